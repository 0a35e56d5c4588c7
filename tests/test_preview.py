"""The dry run: order, conflicts, verdicts and times of a turn that is not run."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laneway import Code, Effect, Engine, Failure, Lane, Limits, Policy, Rate
from laneway.calls import Reason
from laneway.claims import Claim, exclusive, shared
from laneway.engine.forecast import Expected, Planned, forecast
from laneway.engine.foreseen import Preview
from laneway.engine.ranks import critical_path
from laneway.engine.services import THREAD_LANE
from laneway.facts import Row
from laneway.journal.export.escaping import quoted
from laneway.journal.memory import MemoryStore
from laneway.testing import Job, Return, Sleep, Stage, simulate
from laneway.testing.theatre import Theatre, plan

Graph = list[list[tuple[int, Reason]]]
CLAIMS = [exclusive("r:x"), shared("r:x"), exclusive("r:x/y"), exclusive("lane:a")]


def graph(count: int, *edges: tuple[int, int], reason: Reason = Reason.NEEDS) -> Graph:
    found: Graph = [[] for _ in range(count)]
    for source, target in edges:
        found[source].append((target, reason))
    return found


# The forecast


def test_calls_are_forecast_to_start_when_what_they_need_has_ended() -> None:
    found = forecast(graph(3, (0, 2), (1, 2)), [Planned(seconds=one) for one in (1, 3, 2)])

    assert found.spans == {0: (0, 0, 1), 1: (0, 0, 3), 2: (3, 3, 5)}
    assert found.seconds == 5


def test_a_lane_takes_as_many_as_its_limit_says_the_longest_remaining_path_first() -> None:
    calls = [Planned(seconds=one, claims=(exclusive("lane:a"),)) for one in (1, 2, 4)]

    found = forecast(graph(3), calls, {"lane:a": 2})

    assert found.spans == {0: (0, 2, 3), 1: (0, 0, 2), 2: (0, 0, 4)}


def test_a_lane_of_one_keeps_the_order_of_the_request() -> None:
    calls = [Planned(seconds=one, claims=(exclusive("lane:a"),)) for one in (1, 2)]

    assert forecast(graph(2), calls).spans == {0: (0, 0, 1), 1: (0, 1, 3)}


def test_a_synchronous_call_takes_a_thread_once_it_holds_its_claims() -> None:
    calls = [
        Planned(seconds=2, thread=True),
        Planned(seconds=1, claims=(exclusive("lane:a"),), thread=True),
        Planned(seconds=1, claims=(exclusive("lane:a"),)),
    ]

    found = forecast(graph(3), calls, {THREAD_LANE: 1})

    assert found.spans == {0: (0, 0, 2), 1: (0, 2, 3), 2: (0, 3, 4)}


def test_what_needs_a_fault_is_skipped_and_what_only_comes_after_it_goes_on() -> None:
    successors = graph(5, (0, 1), (1, 2))
    successors[2].append((3, Reason.AFTER))
    successors[0].append((4, Reason.CONFLICT))

    found = forecast(successors, [Planned(faulty=True), *[Planned()] * 4])

    assert found.skipped == {1: 0, 2: 0}
    assert found.spans == {3: (0, 0, 1), 4: (0, 0, 1)}


def test_a_refused_call_ends_when_it_would_be_ready() -> None:
    successors = graph(4, (0, 1), (1, 2))
    successors[1].append((3, Reason.AFTER))

    found = forecast(successors, [Planned(seconds=5), Planned(refused=True), *[Planned()] * 2])

    assert found.skipped == {2: 1}
    assert found.spans[3] == Expected(5, 5, 6)
    assert set(found.spans) == {0, 3}


def test_a_fault_that_needs_a_fault_keeps_its_own() -> None:
    found = forecast(graph(3, (0, 1), (1, 2)), [Planned(faulty=True)] * 2 + [Planned()])

    assert found.skipped == {2: 0}
    assert found.spans == {}
    assert found.seconds == 0


def test_faults_in_a_ring_hold_nobody_up() -> None:
    ring = graph(3, (0, 1), (1, 0))
    ring[1].append((2, Reason.AFTER))

    found = forecast(ring, [Planned(faulty=True), Planned(faulty=True), Planned()])

    assert found.spans == {2: (0, 0, 1)}


@st.composite
def turns(draw: st.DrawFn) -> tuple[Graph, list[Planned], dict[str, int]]:
    count = draw(st.integers(1, 10))
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    edges = [tuple(sorted(pair)) for pair in draw(st.lists(pairs, max_size=12, unique=True))]
    calls = [
        Planned(
            seconds=draw(st.integers(0, 4)),
            claims=tuple(draw(st.sets(st.sampled_from(CLAIMS), max_size=2))),
            thread=draw(st.booleans()),
        )
        for _ in range(count)
    ]
    successors = graph(count, *((one, other) for one, other in set(edges) if one != other))
    limits = {"lane:a": draw(st.integers(1, 3)), THREAD_LANE: draw(st.integers(1, 3))}
    return successors, calls, limits


@given(turns())
def test_every_forecast_keeps_order_exclusion_and_limits(
    drawn: tuple[Graph, list[Planned], dict[str, int]],
) -> None:
    successors, calls, limits = drawn

    found = forecast(successors, calls, limits)

    spans = found.spans
    assert sorted(spans) == list(range(len(calls)))
    for at, call in enumerate(calls):
        assert spans[at].end == spans[at].start + call.seconds
        assert spans[at].ready <= spans[at].start
        for target, _ in successors[at]:
            assert spans[at].end <= spans[target].ready
        for other in range(at):
            if overlap(spans[at], spans[other]):
                assert not excluded(call.claims, calls[other].claims)
    for moment in {span.start for span in spans.values()}:
        running = [calls[at] for at, span in spans.items() if span.start <= moment < span.end]
        assert sum(exclusive("lane:a") in call.claims for call in running) <= limits["lane:a"]
        assert sum(call.thread for call in running) <= limits[THREAD_LANE]
    chain = critical_path(successors, [call.seconds for call in calls])
    assert chain.seconds <= found.seconds <= sum(call.seconds for call in calls)


def overlap(one: Expected, other: Expected) -> bool:
    return max(one.start, other.start) < min(one.end, other.end)


def excluded(some: Sequence[Claim], others: Sequence[Claim]) -> bool:
    """Whether two claims on the tree `r:` can't be held at once."""
    return any(
        one.resource.startswith("r:")
        and other.resource.startswith(one.resource[:3])
        and (one == exclusive("r:x") or other == exclusive("r:x") or one != other)
        for one in some
        for other in others
    ) or exclusive("r:x/y") in set(some) & set(others)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 4),
            st.sampled_from([(), ("write r:x",), ("read r:x",), ("write r:x/y",)]),
            st.sets(st.integers(0, 7), max_size=2),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_the_engine_keeps_to_the_forecast_where_calls_take_what_was_expected(
    drawn: list[tuple[int, tuple[str, ...], set[int]]],
) -> None:
    """Request order settles who goes first, so that there is nothing to choose."""
    jobs = [
        Job(
            name=f"j{at}",
            seconds=float(seconds),
            claims=claims,
            needs=[f"j{one}" for one in sorted(needs) if one < at],
        )
        for at, (seconds, claims, needs) in enumerate(drawn)
    ]
    stage = Stage()
    tools = [stage.tool(f"t{at}", claims=job.claims) for at, job in enumerate(jobs)]
    written = plan(
        *(
            {"id": job.name, "tool": f"t{at}", "needs": list(job.needs)}
            for at, job in enumerate(jobs)
        )
    )

    async def foreseen() -> Preview:
        async with Engine(tools) as engine:
            for at, job in enumerate(jobs):
                engine.durations.learn(f"t{at}", job.seconds)
            return await engine.plan(written)

    shown = asyncio.run(foreseen())
    found = simulate(jobs)

    for call in shown.calls:
        span = found.spans[call.name]
        assert (call.start_seconds, call.end_seconds) == (span.start, span.end)
    assert shown.makespan_seconds == found.makespan


# The preview


class CountingStore(MemoryStore):
    """Counts what it is given to keep."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = 0

    def commit(self, batch: Sequence[Row], /) -> None:
        self.kept += len(batch)
        super().commit(batch)


def foreseen(tools: Sequence[Any], reply: Any, learnt: dict[str, float], **options: Any) -> Preview:
    async def main() -> Preview:
        store = CountingStore()
        async with Engine(tools, journal=store, **options) as engine:
            for tool, seconds in learnt.items():
                engine.durations.learn(tool, seconds)
            shown = await engine.plan(reply)
            assert len(engine.services.lanes) == 0
        assert store.kept == 0
        return shown

    return asyncio.run(main())


@pytest.fixture
def shown(tmp_path: Path) -> Preview:
    """Of a turn with an edge of every reason, a question, a refusal and a fault."""
    stage = Stage()
    tools = [
        stage.tool("read", Return("x"), claims=["read file:{path}"]),
        stage.tool("write", Return("x"), effect=Effect.WRITE, claims=["write file:{path}"]),
        stage.tool("mail", Return("x"), effect=Effect.EXTERNAL, approval=True),
        stage.tool("pay", Return("x"), effect=Effect.EXTERNAL),
    ]
    reply = plan(
        {"id": "r", "tool": "read", "arguments": {"path": "a"}},
        {"id": "w", "tool": "write", "arguments": {"path": "a"}},
        {"id": "m", "tool": "mail", "arguments": {"text": "${r}"}},
        {"id": "n", "tool": "mail", "arguments": {"text": "again"}, "after": ["m"]},
        {"id": "p", "tool": "pay"},
        {"id": "s", "tool": "read", "arguments": {"path": "b"}, "needs": ["p"]},
        {"id": "x", "tool": "nope"},
    )
    (tmp_path / "policy.toml").write_text('[[rule]]\ndecision = "deny"\ntools = ["pay"]\n')
    policy = Policy.from_toml(tmp_path / "policy.toml")
    learnt = {"read": 0.5, "write": 2.0, "mail": 4.0}
    found = foreseen(tools, reply, learnt, workspace=tmp_path, policy=policy)
    assert stage.entered == {}
    return found


def test_a_dry_run_shows_verdicts_faults_and_what_would_be_skipped(shown: Preview) -> None:
    assert [call.decision for call in shown.calls] == [
        "allow",
        "allow",
        "ask",
        "ask",
        "deny",
        "allow",
        "",
    ]
    fault = shown.calls[6].outcome
    assert isinstance(fault, Failure)
    assert fault.code is Code.UNKNOWN_TOOL
    assert [call.name for call in shown.calls if call.skipped_for == "t1.5"] == ["s"]
    assert [call.runs for call in shown.calls] == [True] * 4 + [False] * 3
    assert not shown.sound


def test_a_dry_run_estimates_when_calls_start_and_end(shown: Preview) -> None:
    times = [(call.ready_seconds, call.start_seconds, call.end_seconds) for call in shown.calls]

    assert times[:4] == [(0, 0, 0.5), (0.5, 0.5, 2.5), (0.5, 0.5, 4.5), (4.5, 4.5, 8.5)]
    assert times[4:] == [(None, None, None)] * 3
    assert shown.makespan_seconds == 8.5
    assert shown.critical_path.calls == ("t1.1", "t1.3", "t1.4")
    assert shown.critical_path.seconds == 8.5
    assert shown.critical_path.estimated
    assert shown.rounds == (("t1.1",), ("t1.2", "t1.3"), ("t1.4",))


def test_a_dry_run_gives_each_conflict_with_its_reason(shown: Preview, tmp_path: Path) -> None:
    (conflict,) = shown.conflicts

    assert (conflict.first, conflict.second) == ("t1.1", "t1.2")
    assert conflict.resource == f"file:{tmp_path}/a"
    assert conflict.reason == f"t1.1 reads file:{tmp_path}/a, t1.2 writes file:{tmp_path}/a"


def test_a_dry_run_is_told_in_text(shown: Preview, tmp_path: Path) -> None:
    where = f"file:{tmp_path}/a"
    lines = str(shown).splitlines()

    assert lines[0] == "t1.1 r read  allow (default)  0 s – 500 ms"
    assert f"    claims shared {where}" in lines
    assert "t1.2 w write  allow (default)  500 ms – 2.5 s" in lines
    assert (
        f"    waits for t1.1: conflict {where} (t1.1 reads {where}, t1.2 writes {where})" in lines
    )
    (asked,) = (line for line in lines if line.startswith("t1.3 "))
    assert asked.startswith("t1.3 m mail  ask (tool asks): ")
    assert asked.endswith("  500 ms – 4.5 s")
    assert "    waits for t1.1: data" in lines
    assert "    waits for t1.3: after" in lines
    (refused,) = (line for line in lines if line.startswith("t1.5 "))
    assert refused.startswith("t1.5 p pay  deny (")
    skipped = "allow (default)  skipped: it needs t1.5, which would not succeed"
    assert f"t1.6 s read  {skipped}" in lines
    assert any(line.startswith("t1.7 x nope  UNKNOWN_TOOL: ") for line in lines)
    assert lines[-2:] == [
        "in all about 8.5 s, without the time that humans take to answer",
        "critical path t1.1 → t1.3 → t1.4  about 8.5 s",
    ]


def test_a_dry_run_is_told_in_json(shown: Preview) -> None:
    told = json.loads(json.dumps(shown.to_json()))

    assert list(told) == [
        "calls",
        "edges",
        "conflicts",
        "rounds",
        "makespan_seconds",
        "critical_path",
    ]
    assert told["calls"][1]["start_seconds"] == 0.5
    assert told["calls"][6]["outcome"]["code"] == "UNKNOWN_TOOL"
    assert told["critical_path"]["calls"] == ["t1.1", "t1.3", "t1.4"]


def test_a_dry_run_is_drawn_in_mermaid(shown: Preview) -> None:
    lines = shown.to_mermaid().splitlines()

    assert lines[0] == "flowchart TD"
    assert '    t1_1["r: read<br>allow (default) 0 s – 500 ms"]' in lines
    assert any(line.startswith('    t1_5["✗ p: pay<br>deny (') for line in lines)
    assert any(line.startswith('    t1_1 -.->|"conflict file:') for line in lines)
    assert '    t1_1 -->|"data"| t1_3' in lines
    assert lines[-1] == "    class t1_1,t1_3,t1_4 critical"


def test_a_turn_that_would_not_run_at_all_is_drawn_without_a_critical_path() -> None:
    shown = foreseen([], plan({"id": 'a"b', "tool": "nope"}), {})

    assert shown.makespan_seconds == 0
    assert shown.critical_path.calls == ()
    assert 't1_1["✗ a#quot;b: nope<br>UNKNOWN_TOOL' in shown.to_mermaid()
    assert "class" not in shown.to_mermaid()


def test_labels_hold_nothing_that_would_be_read_as_markup() -> None:
    assert quoted('a "b"\n<i>`#1') == "a #quot;b#quot; #lt;i#gt;#96;#35;1"


def test_what_a_model_named_steers_no_terminal_and_breaks_no_line() -> None:
    stage = Stage()
    edit = stage.tool("edit", effect=Effect.WRITE, claims=["write file:{path}"])
    forged = "\x1b[2Ja\nt1.2 b edit  allow \u202e"
    calls = [
        {"id": forged, "tool": "edit", "arguments": {"path": forged}},
        {"id": "c", "tool": forged, "arguments": {}},
        {"id": "d", "tool": "edit", "arguments": {"path": forged}},
    ]

    shown = foreseen([edit], plan(*calls), {})

    lines = str(shown).splitlines()
    assert [line.split(" ")[0] for line in lines if line[0] == "t"] == ["t1.1", "t1.2", "t1.3"]
    assert r"t1.1 \x1b[2Ja\nt1.2 b edit  allow \u202e edit  allow (default)" in lines[0]
    assert not any(bad in str(shown) + shown.to_mermaid() for bad in "\x1b\u202e")


def test_limits_of_lanes_and_threads_are_those_of_the_engine() -> None:
    stage = Stage()
    tools = [
        stage.tool("mail", Return("x"), claims=["lane:mail"]),
        stage.tool("block", sync=True),
    ]
    calls = [{"id": f"m{n}", "tool": "mail"} for n in range(3)]
    calls += [{"id": f"b{n}", "tool": "block"} for n in range(2)]

    shown = foreseen(tools, plan(*calls), {}, lanes={"mail": 2}, limits=Limits(tool_threads=1))

    assert [call.start_seconds for call in shown.calls] == [0, 0, 1, 0, 1]
    assert "t1.3 m2 mail  allow (default)  1 s – 2 s, after 1 s in queues" in str(shown)
    assert shown.sound
    assert shown.makespan_seconds == 2


def test_groups_and_rates_of_lanes_are_foreseen_as_they_come() -> None:
    stage = Stage()
    tools = [
        stage.tool("look", Sleep(1), claims=["read db:shop/{table}"]),
        stage.tool("ask", Sleep(1), claims=["lane:api"]),
    ]
    lanes = {
        "shop": Lane(max_concurrent=3, over=["db:shop"], reserved={"db:shop/orders": 1}),
        "api": Lane(max_concurrent=None, rate=Rate(starts=2, per_seconds=10)),
    }
    reply = plan(
        *({"id": f"l{n}", "tool": "look", "arguments": {"table": f"t{n}"}} for n in range(4)),
        {"id": "o", "tool": "look", "arguments": {"table": "orders"}},
        *({"id": f"a{n}", "tool": "ask"} for n in range(5)),
    )

    shown = foreseen(tools, reply, {}, lanes=lanes)
    theatre = Theatre(stage, *tools, lanes=lanes)
    theatre.play(reply)

    assert shown.makespan_seconds == 21
    assert [call.start_seconds for call in shown.calls] == [0, 0, 1, 1, 0, 0, 0, 10, 10, 20]
    begun = sorted(one.start - 1000 for one in stage.executions)
    assert begun == sorted(call.start_seconds or 0 for call in shown.calls)


def test_a_call_behind_a_refused_one_still_waits_for_what_that_one_waited_for() -> None:
    stage = Stage()
    tools = [stage.tool("look"), stage.tool("pay", effect=Effect.EXTERNAL)]
    policy = Policy.from_toml('[[rule]]\ndecision = "deny"\ntools = ["pay"]\n')
    reply = plan(
        {"id": "a", "tool": "look"},
        {"id": "p", "tool": "pay", "after": ["a"]},
        {"id": "b", "tool": "look", "after": ["p"]},
    )

    shown = foreseen(tools, reply, {}, policy=policy)

    assert shown.calls[2].start_seconds == 1
    assert shown.critical_path.calls == ("t1.1", "t1.3")
    assert shown.critical_path.seconds == shown.makespan_seconds == 2


def test_the_layer_of_a_run_is_heard_in_its_dry_run() -> None:
    stage = Stage()
    narrower = Policy.from_toml('[[rule]]\ndecision = "deny"\ntools = ["hit"]\n', name="run.toml")

    async def main() -> tuple[Preview, Preview]:
        async with Engine([stage.tool("hit", Return("ok"))]) as engine:
            reply = plan({"id": "h", "tool": "hit"})
            return await engine.plan(reply), await engine.plan(reply, policy=narrower)

    without, with_layer = asyncio.run(main())

    assert [call.decision for call in without.calls] == ["allow"]
    assert [(call.decision, call.rule) for call in with_layer.calls] == [
        ("deny", "run: run.toml:1")
    ]
