"""Learnt durations, upward ranks and the order that follows from them."""

import math
from collections.abc import Sequence
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laneway import Effect, Engine, tool
from laneway.calls import CallRecord, Reason
from laneway.engine.durations import LONGEST_SECONDS, Durations
from laneway.engine.ranks import critical_path, order, ranks
from laneway.ids import CallId, RunId
from laneway.journal.fold import CallView, RunView
from laneway.outcomes import Success
from laneway.states import State

Graph = list[list[tuple[int, Reason]]]


def graph(count: int, *edges: tuple[int, int]) -> Graph:
    found: Graph = [[] for _ in range(count)]
    for source, target in edges:
        found[source].append((target, Reason.NEEDS))
    return found


# Durations


def test_what_nobody_knows_takes_a_second() -> None:
    durations = Durations()

    assert durations.expect("anything") == 1.0
    assert len(durations) == 0


def test_a_tool_is_expected_to_take_what_it_took_on_average() -> None:
    durations = Durations()

    for seconds in (1.0, 2.0, 6.0):
        durations.learn("read", seconds)

    assert durations.expect("read") == pytest.approx(3.0)


def test_a_tool_that_never_ran_is_expected_to_take_the_mean_over_the_tools_that_did() -> None:
    durations = Durations()
    durations.learn("fast", 1.0)
    durations.learn("slow", 5.0)
    assert durations.expect("new") == pytest.approx(3.0)

    durations.learn("slow", 9.0)

    assert durations.expect("new") == pytest.approx(4.0)


def test_the_mean_follows_a_tool_that_has_become_slower() -> None:
    durations = Durations()
    for _ in range(10_000):
        durations.learn("read", 1.0)

    for _ in range(100):
        durations.learn("read", 10.0)

    assert 9.0 < durations.expect("read") < 10.0


def test_one_call_that_hangs_does_not_decide_alone() -> None:
    durations = Durations()
    for _ in range(100):
        durations.learn("read", 1.0)

    durations.learn("read", 33.0)

    assert durations.expect("read") == pytest.approx(2.0)


@pytest.mark.parametrize("seconds", [-1e-9, math.nan, math.inf, -math.inf, LONGEST_SECONDS * 1.01])
def test_what_is_no_duration_is_not_learnt(seconds: float) -> None:
    durations = Durations()

    durations.learn("read", seconds)

    assert len(durations) == 0


def view(name: str, state: State, started: float | None, ended: float | None) -> CallView:
    record = CallRecord(id=CallId(name), provider_id=name, tool=name)
    found = CallView(record=record, turn=1, submitted=0.0, state=state)
    found.started, found.ended = started, ended
    return found


def test_only_calls_that_ran_and_succeeded_are_learnt_from() -> None:
    settled = view("settled", State.SUCCEEDED, 1.0, 2.0)
    settled.settled = Success(value=1)
    calls = [
        view("ran", State.SUCCEEDED, 1.0, 3.5),
        view("joined", State.SUCCEEDED, None, 2.0),
        view("failed", State.FAILED, 1.0, 2.0),
        view("open", State.SUCCEEDED, 1.0, None),
        view("other clock", State.SUCCEEDED, 900.0, 2.0),
        settled,
    ]
    durations = Durations()

    durations.learn_from(RunView(RunId("r"), calls={call.id: call for call in calls}))

    assert durations.expect("ran") == 2.5
    assert len(durations) == 1


async def test_an_engine_knows_what_it_has_learnt_whenever_it_is_entered() -> None:
    @tool(effect=Effect.PURE)
    async def look() -> str:
        return "seen"

    engine = Engine([look])
    async with engine:
        engine.services.durations.learn("look", 4.0)
    async with engine, engine.run("r") as run:
        assert run.expect("look") == 4.0
        assert engine.services.durations.expect("look") == 4.0


# Ranks


def test_a_rank_is_the_longest_way_to_the_end() -> None:
    diamond = graph(4, (0, 1), (0, 2), (1, 3), (2, 3))

    assert ranks(diamond, [1.0, 2.0, 5.0, 1.0]) == [7.0, 3.0, 6.0, 1.0]


def test_the_critical_path_is_the_longest_chain() -> None:
    diamond = graph(4, (0, 1), (0, 2), (1, 3), (2, 3))

    assert critical_path(diamond, [1.0, 2.0, 5.0, 1.0]) == ((0, 2, 3), 7.0)


def test_of_chains_as_long_as_each_other_the_first_is_named() -> None:
    assert critical_path(graph(4, (0, 1), (2, 3)), [1.0] * 4) == ((0, 1), 2.0)


def test_nothing_has_no_critical_path() -> None:
    assert critical_path([], []) == ((), 0.0)
    assert ranks([], []) == []


def test_calls_that_take_no_time_are_still_a_chain() -> None:
    assert critical_path(graph(3, (0, 1), (1, 2)), [0.0] * 3) == ((0, 1, 2), 0.0)


@pytest.mark.parametrize("step", [1, -1])
def test_a_chain_of_a_hundred_thousand_calls_has_ranks_either_way_round(step: int) -> None:
    count = 100_000
    chain = graph(count, *((at, at + step) for at in range(count) if 0 <= at + step < count))

    found = ranks(chain, [1.0] * count)

    assert sorted(found) == [float(n) for n in range(1, count + 1)]
    assert critical_path(chain, [1.0] * count).seconds == count


def test_cycles_end_and_do_not_spoil_what_leads_to_them_or_comes_behind() -> None:
    # 0 → 1 ⇄ 2 → 3, and 4 waits for itself
    ring = graph(5, (0, 1), (1, 2), (2, 1), (2, 3), (4, 4))
    found = ranks(ring, [1.0] * 5)

    assert found[3] == 1.0
    assert found[4] == 1.0
    assert found[0] == 1.0 + found[1]
    assert found[2] == 1.0 + max(found[1], found[3])
    path = critical_path(ring, [1.0] * 5)
    assert len(set(path.calls)) == len(path.calls) == path.seconds


@st.composite
def weighted(draw: st.DrawFn) -> tuple[Graph, list[float]]:
    """An acyclic graph, its positions in any order, and whole seconds."""
    count = draw(st.integers(1, 12))
    places = draw(st.permutations(range(count)))
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    edges = [
        (places[min(pair)], places[max(pair)])
        for pair in draw(st.lists(pairs, max_size=30))
        if pair[0] != pair[1]
    ]
    seconds = [float(draw(st.integers(0, 9))) for _ in range(count)]
    return graph(count, *edges), seconds


@given(weighted())
def test_ranks_and_critical_path_are_those_of_the_definition(
    drawn: tuple[Graph, list[float]],
) -> None:
    successors, seconds = drawn

    @cache
    def rank(at: int) -> float:
        return seconds[at] + max((rank(target) for target, _ in successors[at]), default=0.0)

    found = ranks(successors, seconds)
    chain = critical_path(successors, seconds)

    assert found == [rank(at) for at in range(len(seconds))]
    assert chain.seconds == max(found)
    assert sum(seconds[at] for at in chain.calls) == chain.seconds
    for source, target in zip(chain.calls, chain.calls[1:], strict=False):
        assert target in {to for to, _ in successors[source]}


# Order


def free(_: int) -> Sequence[str]:
    return ()


def test_the_longest_remaining_path_goes_first_and_equals_keep_their_order() -> None:
    assert order([0, 1, 2, 3], [1.0, 3.0, 1.0, 3.0], free) == [1, 3, 0, 2]


def test_calls_of_a_lane_of_one_keep_the_order_of_the_request_among_themselves() -> None:
    lanes = {0: ["lane:browser"], 2: ["lane:browser"], 3: ["lane:browser"]}

    found = order([0, 1, 2, 3], [1.0, 9.0, 5.0, 7.0], lambda at: lanes.get(at, []))

    assert found == [1, 0, 2, 3]


def test_one_call_of_a_lane_of_one_goes_where_its_rank_puts_it() -> None:
    assert order([0, 1], [1.0, 2.0], lambda at: ["lane:mail"] if at else []) == [1, 0]


@pytest.mark.parametrize("ready", [[], [3], [0, 1, 2]])
def test_where_nothing_is_to_be_sorted_nobody_asks_for_lanes(ready: list[int]) -> None:
    def asked(_: int) -> Sequence[str]:
        raise AssertionError

    assert order(ready, [3.0, 2.0, 2.0, 1.0], asked) == ready


@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=12).map(
        lambda drawn: [(float(rank), serial) for rank, serial in drawn]
    )
)
def test_every_ready_call_is_named_once_whatever_the_ranks(drawn: list[tuple[float, bool]]) -> None:
    ready = list(range(len(drawn)))
    found = order(ready, [rank for rank, _ in drawn], lambda at: "L" if drawn[at][1] else "")

    assert sorted(found) == ready
    bound = [at for at in found if drawn[at][1]]
    assert bound == sorted(bound)
    loose = [at for at in found if not drawn[at][1]]
    assert loose == sorted(loose, key=lambda at: -drawn[at][0])


def test_a_call_of_a_plan_is_expected_to_take_what_the_same_call_took_last() -> None:
    durations = Durations()
    durations.learn("fit", 10)
    durations.learn_call("fit", {"n": 1, "m": 2}, 3)
    durations.learn_call("fit", {"m": 2, "n": 1}, 4)
    durations.learn_call("fit", {"n": 2}, -1)

    assert durations.expect_call("fit", {"n": 1, "m": 2}) == 4
    assert durations.expect_call("fit", {"n": 2}) == 10
    assert Durations().expect_call("fit", {}) == 1


def test_only_so_many_single_calls_are_remembered() -> None:
    durations = Durations()
    for n in range(10_001):
        durations.learn_call("fit", {"n": n}, n)

    assert durations.expect_call("fit", {"n": 0}) == 1
    assert durations.expect_call("fit", {"n": 1}) == 1.0
    assert durations.expect_call("fit", {"n": 10_000}) == 10_000
