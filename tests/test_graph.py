"""The graph of a turn: edges with reasons, conflicts by an index, faults before anything runs."""

import random

from hypothesis import given
from hypothesis import strategies as st

from laneway.calls import Reason
from laneway.claims import Access, Claim, exclusive, shared
from laneway.engine.graph import CallGraph, Node, Scoreboard, analyse, digraph
from laneway.ids import CallId
from laneway.lanes.names import overlaps
from laneway.outcomes import Code


def node(
    name: str,
    *claims: Claim,
    needs: tuple[str, ...] = (),
    after: tuple[str, ...] = (),
    data: tuple[tuple[str, str], ...] = (),
    out: bool = False,
) -> Node:
    return Node(
        id=CallId(name), name=name, needs=needs, after=after, data=data, claims=claims, out=out
    )


def edges(graph: CallGraph) -> set[tuple[str, str, str]]:
    return {(edge.source, edge.target, edge.reason.value) for edge in graph.edges}


def test_edges_carry_their_reason() -> None:
    graph = analyse(
        [node("a"), node("b", needs=("a",)), node("c", after=("a",), data=(("b", ".x"),))]
    )

    assert edges(graph) == {("a", "b", "needs"), ("a", "c", "after"), ("b", "c", "data")}
    assert graph.waits == [0, 1, 2]
    drawn = digraph(graph.ids, graph.edges)
    assert drawn.edges[CallId("b"), CallId("c")] == {"reason": Reason.DATA, "detail": ".x"}


def test_reads_of_one_file_do_not_meet_and_writes_do() -> None:
    file = "file:/w/x"
    graph = analyse(
        [
            node("r0", shared(file)),
            node("w", exclusive(file)),
            node("r1", shared(file)),
            node("r2", shared(file)),
            node("other", shared("file:/w/y")),
        ]
    )

    assert edges(graph) == {
        ("r0", "w", "conflict"),
        ("w", "r1", "conflict"),
        ("w", "r2", "conflict"),
    }


def test_a_folder_meets_its_files() -> None:
    graph = analyse(
        [
            node("a", exclusive("file:/w/a")),
            node("b", shared("file:/w/b")),
            node("all", exclusive("file:/w")),
            node("c", shared("file:/w/c/d")),
        ]
    )

    assert edges(graph) == {
        ("a", "all", "conflict"),
        ("b", "all", "conflict"),
        ("all", "c", "conflict"),
    }


def test_lanes_make_no_edges() -> None:
    graph = analyse([node("a", exclusive("lane:L")), node("b", exclusive("lane:L"))])

    assert graph.edges == []


def test_an_explicit_order_against_the_request_wins_over_a_conflict() -> None:
    graph = analyse(
        [
            node("first", exclusive("file:/x"), needs=("second",)),
            node("second", exclusive("file:/x")),
        ]
    )

    assert edges(graph) == {("second", "first", "needs")}
    assert graph.faults == {}


def test_a_conflict_never_closes_a_cycle_with_explicit_edges() -> None:
    graph = analyse(
        [
            node("a", exclusive("file:/x"), needs=("c",)),
            node("b", exclusive("file:/x")),
            node("c", exclusive("file:/y"), needs=("b",)),
        ]
    )

    assert edges(graph) == {("c", "a", "needs"), ("b", "c", "needs"), ("b", "a", "conflict")}


def test_a_ring_is_named_whole_and_what_hangs_on_it_is_not() -> None:
    graph = analyse(
        [
            node("a", needs=("b",)),
            node("b", needs=("c",)),
            node("c", data=(("a", ""),)),
            node("d"),
            node("e", needs=("a",)),
        ]
    )

    assert set(graph.faults) == {0, 1, 2}
    for failure in graph.faults.values():
        assert failure.code is Code.DEPENDENCY_CYCLE
        assert "a, b, c" in failure.message


def test_a_call_that_needs_itself_is_a_cycle() -> None:
    graph = analyse([node("a", needs=("a",))])

    assert graph.faults[0].code is Code.DEPENDENCY_CYCLE
    assert graph.faults[0].message == "a waits for itself, so it can never start."


def test_a_dangling_name_is_told_with_the_names_there_are() -> None:
    graph = analyse([node("a"), node("b", needs=("nope",))])

    failure = graph.faults[1]
    assert failure.code is Code.BAD_REFERENCE
    assert failure.message == "b depends on 'nope', but no call has that name."
    assert failure.hint == "The calls of this turn are: a, b."


def test_calls_of_earlier_turns_can_be_needed_without_an_edge() -> None:
    graph = analyse([node("b", needs=("old",), after=("old",))], {"old": object()})

    assert graph.edges == []
    assert graph.earlier == {0: ["old"]}


def test_a_call_that_will_not_run_conflicts_with_nothing() -> None:
    graph = analyse([node("a", exclusive("file:/x"), out=True), node("b", exclusive("file:/x"))])

    assert graph.edges == []


RESOURCES = ["file:", "file:/a", "file:/a/x", "file:/a/y", "file:/b", "file:/b/z", "db:t"]
claims = st.lists(
    st.builds(Claim, st.sampled_from(RESOURCES), st.sampled_from(list(Access))), max_size=3
)


@given(st.lists(claims, max_size=12))
def test_every_conflict_is_ordered_and_nothing_else_is(calls: list[list[Claim]]) -> None:
    graph = analyse([node(str(at), *taken) for at, taken in enumerate(calls)])

    reach = _closure(len(calls), graph)
    for late, taken in enumerate(calls):
        for early, before in enumerate(calls[:late]):
            meet = any(_conflict(one, other) for one in before for other in taken)
            direct = any(
                edge.source == str(early) and edge.target == str(late) for edge in graph.edges
            )
            assert not meet or early in reach[late]
            assert not direct or meet


def _conflict(one: Claim, other: Claim) -> bool:
    both_read = one.access is Access.SHARED and other.access is Access.SHARED
    return overlaps(one.resource, other.resource) and not both_read


def _closure(count: int, graph: CallGraph) -> list[set[int]]:
    reach: list[set[int]] = [set() for _ in range(count)]
    for edge in sorted(graph.edges, key=lambda edge: int(edge.target)):
        source, target = int(edge.source), int(edge.target)
        reach[target] |= {source} | reach[source]
    return reach


def test_the_scoreboard_looks_at_what_matters_only() -> None:
    board = Scoreboard()
    for call in range(1000):
        board.meet(call, exclusive("file:/one"))

    assert board.meet(1000, shared("file:/one")) == [(999, "file:/one")]


def test_random_orders_of_explicit_edges_stay_acyclic_with_conflicts() -> None:
    chance = random.Random(7)
    for _ in range(200):
        names = [str(at) for at in range(8)]
        order = chance.sample(names, len(names))
        nodes = [
            node(
                name,
                exclusive(chance.choice(RESOURCES)),
                needs=tuple(other for other in order[: order.index(name)] if chance.random() < 0.2),
            )
            for name in names
        ]

        graph = analyse(nodes)

        assert graph.faults == {}
        waits = list(graph.waits)
        ready = [at for at, count in enumerate(waits) if not count]
        seen = 0
        while ready:
            at = ready.pop()
            seen += 1
            for target, _ in graph.successors[at]:
                waits[target] -= 1
                if not waits[target]:
                    ready.append(target)
        assert seen == len(nodes)
