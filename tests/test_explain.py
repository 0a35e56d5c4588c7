"""Why is it waiting: answered without touching anything."""

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest

from laneway import Effect, Engine, Limits, State
from laneway.engine.explain import LONGEST_CHAIN, Explanation
from laneway.engine.run import Run
from laneway.testing import Block, Do, Raise, Return, Sleep, Stage, run_virtual
from laneway.testing.theatre import Theatre, plan


def explained(
    tools: Any, stage: Stage, *calls: dict[str, Any], at: float = 0.1, **options: Any
) -> dict[str, Explanation]:
    async def main() -> dict[str, Explanation]:
        engine = Engine(tools, clock=stage.make_clock, **options)
        async with engine, engine.run("r") as run:
            turn = await run.submit(plan(*calls), wait=False)
            await asyncio.sleep(at)
            found = {one.name: one for one in run.explain()}
            await run.cancel()
            await turn.wait()
            return found

    return run_virtual(main)


def test_each_waiting_call_names_what_stands_in_its_way() -> None:
    stage = Stage()
    tools = [
        stage.tool("work", Sleep(5), claims=["lane:L"]),
        stage.tool("ask", Return("x"), effect=Effect.WRITE, approval=True),
    ]

    found = explained(
        tools,
        stage,
        {"id": "a", "tool": "work"},
        {"id": "b", "tool": "work"},
        {"id": "c", "tool": "work", "needs": ["b"]},
        {"id": "q", "tool": "ask"},
        {"id": "d", "tool": "work", "after": ["q"]},
    )

    assert {name: one.state for name, one in found.items()} == {
        "a": State.RUNNING,
        "b": State.QUEUED,
        "c": State.PENDING,
        "q": State.AWAITING_APPROVAL,
        "d": State.PENDING,
    }
    kinds = {name: [(w.kind, w.what, w.on) for w in one.waits] for name, one in found.items()}
    assert kinds["a"] == [("body", "work", "")]
    assert kinds["b"] == [("lane", "lane:L", "t1.1")]
    assert kinds["c"] == [("dependency", "needs", "t1.2")]
    assert kinds["q"] == [("approval", "t1.4.a1", "")]
    assert kinds["d"] == [("dependency", "after", "t1.4")]
    assert found["c"].chain == ("t1.3", "t1.2", "t1.1")
    assert {name: round(one.since_seconds, 3) for name, one in found.items()} == dict.fromkeys(
        "abcqd", 0.1
    )
    assert str(found["a"]) == "t1.1 work RUNNING for 0.100 s: body: work"
    assert str(found["b"]) == (
        "t1.2 work QUEUED for 0.100 s: lane lane:L held by t1.1; "
        "in the end: t1.1 waits for body: work"
    )
    assert str(found["c"].waits[0]) == "dependency on t1.2 (needs)"


def test_an_approval_is_the_root_of_all_that_it_holds_up() -> None:
    stage = Stage()
    tools = [
        stage.tool("work", Sleep(5)),
        stage.tool("ask", Return("x"), effect=Effect.WRITE, approval=True),
    ]

    found = explained(
        tools,
        stage,
        {"id": "a", "tool": "work"},
        {"id": "q", "tool": "ask"},
        {"id": "d", "tool": "work", "needs": ["a", "q"]},
        {"id": "e", "tool": "work", "needs": ["d"]},
    )

    assert [wait.on for wait in found["d"].waits] == ["t1.1", "t1.2"]
    assert found["e"].chain == ("t1.4", "t1.3", "t1.2")
    assert (found["e"].root.kind, found["e"].root.what) == ("approval", "t1.2.a1")
    assert str(found["e"]).endswith("in the end: t1.2 waits for approval: t1.2.a1")


def test_a_question_is_explained_since_it_was_asked() -> None:
    stage = Stage()
    tools = [
        stage.tool("work", Sleep(3), Return("x")),
        stage.tool("ask", Return("x"), effect=Effect.WRITE, approval=True),
    ]
    calls = ({"id": "a", "tool": "work"}, {"id": "q", "tool": "ask", "after": ["a"]})

    found = explained(tools, stage, *calls, at=5)
    for_ever = explained(tools, stage, *calls, at=5, limits=Limits(approval_seconds=math.inf))

    assert found["q"].since_seconds == pytest.approx(2)
    assert for_ever["q"].since_seconds == pytest.approx(5)  # Nobody noted when.


def test_threads_back_off_and_stops_are_told_apart() -> None:
    stage = Stage()
    tools = [
        stage.tool("blocking", Block(5), sync=True),
        stage.tool("flaky", Raise(ConnectionError("gone")), retries=3),
    ]

    found = explained(
        tools,
        stage,
        {"id": "a", "tool": "blocking"},
        {"id": "b", "tool": "blocking"},
        {"id": "f", "tool": "flaky"},
        limits=Limits(tool_threads=1, back_off_seconds=10),
    )

    assert [(w.kind, w.on) for w in found["b"].waits] == [("thread", "t1.1")]
    assert str(found["b"].waits[0]) == "thread lane:engine/threads held by t1.1"
    assert [w.kind for w in found["f"].waits] == ["back-off"]
    assert found["f"].since_seconds == pytest.approx(0.1)


def test_a_body_that_will_not_stop_is_explained_until_it_does() -> None:
    stage = Stage()

    async def stubborn(_: Any) -> None:
        for _n in range(3):
            try:
                await asyncio.sleep(2)
            except asyncio.CancelledError:
                continue

    tools = [
        stage.tool("stubborn", Do(stubborn), timeout=0.5, claims=["lane:L"]),
        stage.tool("work", Return("x"), claims=["lane:L"]),
    ]

    found = explained(
        tools, stage, {"id": "s", "tool": "stubborn"}, {"id": "w", "tool": "work"}, at=2.0
    )

    assert found["s"].state is State.TIMED_OUT
    assert [w.kind for w in found["s"].waits] == ["stop"]
    assert [(w.kind, w.on) for w in found["w"].waits] == [("lane", "t1.1")]
    assert found["s"].waits[0].told_seconds == pytest.approx(1.5)
    assert found["w"].waits[0].told_seconds == pytest.approx(1.5)
    assert found["w"].root.kind == "stop"
    told = "lane lane:L held by t1.1, which was told to stop 1.500 s ago and has not"
    assert told in str(found["w"])


def test_a_thread_that_will_not_stop_is_told_to_what_waits_behind_it() -> None:
    stage = Stage()
    tools = [
        stage.tool("block", Block(60), sync=True, timeout=1.0, claims=["lane:L"]),
        stage.tool("work", Return("x"), claims=["lane:L"]),
    ]

    found = explained(
        tools,
        stage,
        {"id": "b", "tool": "block"},
        {"id": "w", "tool": "work"},
        {"id": "d", "tool": "work", "needs": ["w"]},
        at=13,
    )

    assert found["w"].waits[0].told_seconds == pytest.approx(12)
    assert found["d"].chain == ("t1.3", "t1.2", "t1.1")
    assert found["d"].root.told_seconds == pytest.approx(12)


def test_a_body_is_told_to_stop_before_it_is_given_up() -> None:
    stage = Stage()

    async def stubborn(_: Any) -> None:
        for _n in range(2):
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                continue

    tools = [
        stage.tool("stubborn", Do(stubborn), timeout=1.0, claims=["lane:L"]),
        stage.tool("work", Return("x"), claims=["lane:L"]),
    ]
    calls = ({"id": "s", "tool": "stubborn"}, {"id": "w", "tool": "work"})

    found = explained(tools, stage, *calls, at=4, limits=Limits(grace_seconds=5))
    for_ever = explained(tools, stage, *calls, at=4, limits=Limits(grace_seconds=math.inf))

    assert found["s"].state is State.RUNNING
    assert str(found["s"].waits[0]) == (
        "stop: TIMEOUT, which was told to stop 3.000 s ago and has not"
    )
    assert found["w"].waits[0].told_seconds == pytest.approx(3)
    assert str(for_ever["s"].waits[0]) == "stop: TIMEOUT"


def test_who_is_in_line_behind_others_is_told_whom_it_is_behind() -> None:
    stage = Stage()
    tools = [
        stage.tool("read", Sleep(5), claims=["read r:x"]),
        stage.tool("both", Sleep(5), claims=["lane:L", "lane:M"]),
        stage.tool("one", Sleep(5), claims=["lane:L"]),
        stage.tool("other", Sleep(5), claims=["lane:M"]),
    ]

    found = explained(
        tools,
        stage,
        {"id": "a", "tool": "one"},
        {"id": "b", "tool": "both"},
        {"id": "c", "tool": "other"},
    )

    (wait,) = found["c"].waits
    assert str(wait) == "lane lane:M behind t1.2"
    assert found["c"].chain == ("t1.3", "t1.2", "t1.1")


def test_a_chain_crosses_runs() -> None:
    stage = Stage()
    tools = [
        stage.tool("work", Sleep(5), claims=["lane:L"]),
        stage.tool("both", Sleep(5), claims=["lane:L", "lane:M"]),
        stage.tool("other", Sleep(5), claims=["lane:M"]),
    ]

    async def main() -> tuple[Explanation, ...]:
        engine = Engine(tools, clock=stage.make_clock)
        async with (
            engine,
            engine.run("one") as one,
            engine.run("two") as two,
            engine.run("three") as three,
        ):
            turns = [
                await one.submit(plan({"id": "a", "tool": "work"}), wait=False),
                await two.submit(plan({"id": "a", "tool": "both"}), wait=False),
                await three.submit(
                    plan(
                        {"id": "a", "tool": "other"}, {"id": "b", "tool": "other", "needs": ["a"]}
                    ),
                    wait=False,
                ),
            ]
            found = three.explain()
            for run, turn in zip((one, two, three), turns, strict=True):
                await run.cancel()
                await turn.wait()
            return found

    found = run_virtual(main)

    assert [one.chain for one in found] == [
        ("t1.1", "two/t1.1", "one/t1.1"),
        ("t1.2", "t1.1", "two/t1.1", "one/t1.1"),
    ]
    assert [one.root.kind for one in found] == ["body", "body"]


def test_of_a_very_long_chain_the_beginning_and_the_root_are_named() -> None:
    stage = Stage()
    tools = [stage.tool("work", Sleep(5))]
    count = 2_000

    found = explained(
        tools,
        stage,
        {"id": "c0", "tool": "work"},
        *({"id": f"c{at}", "tool": "work", "needs": [f"c{at - 1}"]} for at in range(1, count)),
    )

    chain = found[f"c{count - 1}"].chain
    assert len(chain) == LONGEST_CHAIN
    assert chain[:2] == (f"t1.{count}", f"t1.{count - 1}")
    assert chain[-1] == "t1.1"


def test_what_an_earlier_driver_left_waits_for_somebody_to_resume_it() -> None:
    stage = Stage()
    tools = [
        stage.tool("pay", Sleep(5), effect=Effect.EXTERNAL),
        stage.tool("work", Sleep(5), claims=["lane:L"]),
    ]
    theatre = Theatre(stage, *tools)

    async def begin(run: Run) -> None:
        await run.submit(
            plan(
                {"id": "p", "tool": "pay"},
                {"id": "d", "tool": "work", "needs": ["p"]},
                {"id": "a", "tool": "work"},
                {"id": "b", "tool": "work"},
                {"id": "f", "tool": "work", "after": ["p"]},
            ),
            wait=False,
        )
        await asyncio.sleep(1)
        theatre.crash()

    async def look(run: Run) -> dict[str, Explanation]:
        return {one.name: one for one in run.explain()}

    theatre.enter(begin)
    found = theatre.enter(look)

    assert found["p"].state is State.UNCERTAIN
    assert str(found["p"].waits[0]) == "settlement: somebody who knows what happened"
    assert found["d"].chain == ("t1.2", "t1.1")
    parked = "start: somebody who resumes the turn that an earlier driver left"
    assert str(found["b"].waits[0]) == parked
    assert str(found["f"].waits[0]) == parked


def test_a_lane_in_which_nobody_is_in_the_way_is_named_all_the_same() -> None:
    stage = Stage()
    tools = [stage.tool("work", Sleep(5), claims=["lane:L"])]

    async def host(run: Run) -> list[str]:
        turn = await run.submit(
            plan({"id": "a", "tool": "work"}, {"id": "b", "tool": "work"}), wait=False
        )
        lanes = run._live.services.lanes  # pyright: ignore[reportPrivateUsage]
        lanes.waits = list  # type: ignore[method-assign]  # as if the lane were closed
        found = [str(wait) for wait in run.explain()[1].waits]
        del lanes.waits
        await run.cancel()
        await turn.wait()
        return found

    found = Theatre(stage, *tools).enter(host)

    assert found == ["lane: its lanes, in which nobody stands in its way"]


def test_a_call_that_nobody_has_looked_at_yet_waits_for_its_turn() -> None:
    stage = Stage()
    calls = [{"id": str(n), "tool": "work"} for n in range(1_100)]

    async def host(run: Run) -> set[tuple[State, str, float]]:
        submitting = asyncio.create_task(run.submit(plan(*calls)))
        found: tuple[Explanation, ...] = ()
        while not found:
            await asyncio.sleep(0)
            found = run.explain()
        await submitting
        return {(one.state, str(one.waits[0]), one.since_seconds) for one in found}

    found = Theatre(stage, stage.tool("work")).enter(host)

    assert (State.PENDING, "start: its turn to be looked at", 0.0) in found


def test_another_runs_call_is_named_with_its_run() -> None:
    stage = Stage()
    tools = [stage.tool("work", Sleep(5), claims=["lane:L"])]

    async def main() -> list[str]:
        engine = Engine(tools, clock=stage.make_clock)
        async with engine, engine.run("one") as one, engine.run("two") as two:
            first = await one.submit(plan({"id": "a", "tool": "work"}), wait=False)
            second = await two.submit(plan({"id": "a", "tool": "work"}), wait=False)
            found = [wait.on for call in two.explain() for wait in call.waits]
            await one.cancel()
            await two.cancel()
            await first.wait()
            await second.wait()
            assert two.explain() == ()
            return found

    assert run_virtual(main) == ["one/t1.1"]


def test_a_run_without_turns_has_nothing_to_explain() -> None:
    async def main() -> tuple[Explanation, ...]:
        async with Engine() as engine, engine.run("r") as run:
            return run.explain()

    assert asyncio.run(main()) == ()


def test_a_run_can_be_asked_while_it_runs(tmp_path: Path) -> None:
    """Explaining does not move anything: the turn ends as it would have."""
    stage = Stage()
    tools = [stage.tool("work", Sleep(0.2), Return("done"), claims=["lane:L"])]

    async def main() -> list[State]:
        engine = Engine(tools, clock=stage.make_clock, journal=tmp_path / "runs.db")
        async with engine, engine.run("r") as run:
            turn = await run.submit(
                plan(*({"id": str(n), "tool": "work"} for n in range(3))), wait=False
            )
            while not turn.ready:
                _look(run)
                await asyncio.sleep(0.05)
            return [call.state for call in turn.calls]

    assert run_virtual(main) == [State.SUCCEEDED] * 3


def _look(run: Run) -> None:
    for one in run.explain():
        assert one.waits
        assert str(one)
