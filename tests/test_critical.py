"""The critical path of a turn: what it had to wait for, measured, or estimated while it is open."""

import asyncio
from typing import Any

from laneway import Effect, Engine, State
from laneway.calls import CallRecord, Edge, Reason
from laneway.claims import Claim, exclusive, shared
from laneway.engine.cli.shown import ShownTurn, show_run
from laneway.engine.critical import CriticalPath, TimedCall, measured, shortened, told
from laneway.engine.run import Run
from laneway.facts import (
    CallEnded,
    CallQueued,
    CallStarted,
    Driver,
    Fact,
    Row,
    RunOpened,
    RunTaken,
    TurnClosed,
    TurnSubmitted,
)
from laneway.ids import CallId
from laneway.outcomes import Success
from laneway.testing import Raise, Return, Sleep, Stage, run_virtual
from laneway.testing.theatre import RUN, Theatre, plan


def timed(
    name: str,
    queued: float | None,
    started: float | None,
    ended: float | None,
    *claims: Claim,
    skipped: bool = False,
) -> TimedCall:
    return TimedCall(
        id=CallId(name), claims=claims, queued=queued, started=started, ended=ended, skipped=skipped
    )


def edge(source: str, target: str, reason: Reason = Reason.NEEDS) -> Edge:
    return Edge(CallId(source), CallId(target), reason)


def test_the_path_goes_back_over_the_edge_that_was_released_last() -> None:
    calls = [timed("a", 0, 0, 3), timed("b", 0, 0, 5), timed("c", 5, 5, 6), timed("d", 0, 0, 1)]

    path = measured(calls, [edge("a", "c"), edge("b", "c")], 0.0)

    assert path == CriticalPath(calls=ids("b", "c"), seconds=6, running_seconds=6, estimated=False)


def ids(*names: str) -> tuple[CallId, ...]:
    return tuple(map(CallId, names))


def test_the_path_goes_back_over_the_lane_that_was_left_last() -> None:
    lane = exclusive("lane:mail")
    calls = [
        timed("a", 0, 0, 2, lane),
        timed("b", 0, 2, 5, lane),
        timed("c", 0, 5, 9, lane),
        timed("d", 0, 0, 4, exclusive("lane:other")),
    ]

    path = measured(calls, [], 0.0)

    assert path.calls == ids("a", "b", "c")
    assert (path.seconds, path.running_seconds, path.queued_seconds) == (9, 9, 0)


def test_a_lane_counts_only_if_it_was_left_while_the_call_queued() -> None:
    lane = exclusive("lane:mail")
    calls = [timed("early", 0, 0, 1, lane), timed("a", 0, 0, 4), timed("b", 4, 4, 5, lane)]

    path = measured(calls, [edge("a", "b")], 0.0)

    assert path.calls == ids("a", "b")


def test_that_calls_share_their_run_says_nothing() -> None:
    run = shared("run:r")
    calls = [timed("a", 0, 0, 2, run), timed("b", 0, 2, 5, run)]

    path = measured(calls, [], 0.0)

    assert path.calls == ids("b")
    assert path.queued_seconds == 2


def test_the_wait_for_somebody_else_is_told_apart_from_the_wait_for_humans() -> None:
    calls = [timed("a", 10, 10, 12), timed("b", 20, 25, 26)]

    path = measured(calls, [edge("a", "b")], 9.0)

    assert path.calls == ids("a", "b")
    assert path.running_seconds == 3
    assert path.queued_seconds == 5
    assert path.other_seconds == 9
    assert path.seconds == 17
    assert str(path) == "a → b  17 s: 3 s running, 5 s in queues, 9 s waiting for other things"


def test_a_call_that_ended_without_starting_may_be_what_was_waited_for() -> None:
    asked = timed("asked", None, None, 3600.0)

    path = measured([timed("a", 0, 0, 1), asked], [], 0.0)

    assert path.calls == ids("asked")
    assert (path.seconds, path.other_seconds) == (3600, 3600)


def test_what_was_skipped_is_not_what_was_waited_for() -> None:
    calls = [timed("a", 0, 0, 1), timed("b", None, None, 1.5, skipped=True)]

    assert measured(calls, [edge("a", "b")], 0.0).calls == ids("a")


def test_a_walk_over_calls_that_took_no_time_ends() -> None:
    lane = exclusive("lane:mail")
    calls = [timed(name, 0, 0, 0, lane) for name in "abc"]

    path = measured(calls, [edge("a", "b"), edge("b", "c")], 0.0)

    assert path.calls == ids("a", "b", "c")
    assert path.seconds == 0


def test_times_that_run_backwards_count_for_nothing() -> None:
    path = measured([timed("a", 50, 60, 10)], [], 100.0)

    assert (path.calls, path.seconds) == (ids("a"), 0)


def test_a_turn_without_calls_has_an_empty_path() -> None:
    path = measured([], [], 0.0)

    assert path.calls == ()
    assert str(path) == "nothing  0 s"


def test_the_middle_of_a_long_chain_is_left_out_for_people() -> None:
    assert shortened(list("abcdefgh")) == list("abcdefgh")
    assert shortened(list("abcdefghi")) == [*"abcd", "… 1 more …", *"fghi"]


def test_times_are_told_so_that_digits_tell() -> None:
    assert [told(one) for one in (0, 0.01234, 0.5, 1, 12.345, 3600)] == [
        "0 s",
        "12.3 ms",
        "500 ms",
        "1 s",
        "12.35 s",
        "3600 s",
    ]


# As the command line shows it


def shown(*facts: Fact) -> ShownTurn:
    """Show a run whose clock starts again with its second driver; walls are ten seconds apart."""
    rows = [
        Row(RUN, seq, 1000.0 + 10 * seq, float(seq if seq < 6 else seq - 900), fact)
        for seq, fact in enumerate(facts, 1)
    ]
    (turn,) = show_run(RUN, rows).turns
    return turn


def moves(name: str) -> list[Fact]:
    call = CallId(name)
    return [
        CallQueued(call=call, rule="default"),
        CallStarted(call=call, attempt=1, token=1),
        CallEnded(call=call, state=State.SUCCEEDED, outcome=Success(value=1)),
    ]


def opening(*drivers: Driver) -> tuple[RunOpened, TurnSubmitted, RunTaken]:
    records = [CallRecord(id=CallId(name), provider_id=name, tool="t") for name in ("a", "b")]
    submitted = TurnSubmitted(
        turn=1, provider="plan", message={}, calls=tuple(records), edges=(edge("a", "b"),)
    )
    return RunOpened(run=RUN, driver=drivers[0]), submitted, RunTaken(driver=drivers[-1])


def test_a_path_over_two_boots_is_measured_by_the_wall() -> None:
    first, second = (Driver(host="h", boot=boot, pid=7, started="1") for boot in "ab")
    opened, submitted, taken = opening(first, second)

    turn = shown(opened, submitted, *moves("a"), taken, *moves("b"), TurnClosed(turn=1))

    path = turn.critical_path
    assert path.calls == ids("a", "b")
    assert (path.running_seconds, path.queued_seconds, path.other_seconds) == (20, 20, 30)
    assert not path.estimated


def test_an_open_turn_is_shown_with_what_its_run_has_taught() -> None:
    driver = Driver(host="h", boot="a", pid=7, started="1")
    opened, submitted, _ = opening(driver)

    path = shown(opened, submitted, *moves("a")).critical_path

    assert path.calls == ids("a", "b")
    assert path.estimated
    assert path.seconds == 2  # A took a second, and B calls the same tool.


# Of a turn


def stage_tools(stage: Stage) -> list[Any]:
    return [
        stage.tool("work", Sleep(2), Return("x"), claims=["lane:L"]),
        stage.tool("think", Sleep(3), Return("x")),
        stage.tool("fail", Raise(ValueError("no"))),
    ]


def test_a_turn_tells_its_critical_path_once_it_has_ended() -> None:
    stage = Stage()
    theatre = Theatre(stage, *stage_tools(stage))

    turn = theatre.play(
        plan(
            {"id": "a", "tool": "work"},
            {"id": "b", "tool": "work"},
            {"id": "c", "tool": "think", "needs": ["b"]},
            {"id": "f", "tool": "fail", "needs": ["c"]},
            {"id": "s", "tool": "think", "needs": ["f"]},
        )
    )

    path = turn.critical_path()
    assert path.calls == ids("t1.1", "t1.2", "t1.3", "t1.4")
    assert not path.estimated
    assert path.seconds == 7
    assert path.running_seconds == 7


def test_an_open_turn_tells_what_is_expected_of_it() -> None:
    stage = Stage()

    async def main() -> tuple[CriticalPath, CriticalPath]:
        engine = Engine(stage_tools(stage), clock=stage.make_clock)
        async with engine, engine.run("r") as run:
            engine.durations.learn("work", 10.0)
            engine.durations.learn("think", 4.0)
            turn = await run.submit(
                plan(
                    {"id": "a", "tool": "think"},
                    {"id": "b", "tool": "work", "needs": ["a"]},
                    {"id": "c", "tool": "think"},
                ),
                wait=False,
            )
            before = turn.critical_path()
            await asyncio.sleep(3.5)
            return before, turn.critical_path()

    before, later = run_virtual(main)

    assert before.calls == ids("t1.1", "t1.2")
    assert before.seconds == 14
    assert before.estimated
    assert str(before) == "t1.1 → t1.2  about 14 s"
    assert later.seconds == 13  # The first took three seconds in truth.
    assert later.calls == before.calls


def test_what_another_run_held_is_time_in_queues() -> None:
    stage = Stage()

    async def host(run: Run, other: Run) -> CriticalPath:
        held = await other.submit(plan({"id": "x", "tool": "work"}), wait=False)
        turn = await run.submit(plan({"id": "a", "tool": "work"}))
        await held.wait()
        return turn.critical_path()

    async def main() -> CriticalPath:
        engine = Engine(stage_tools(stage), clock=stage.make_clock)
        async with engine, engine.run("one") as one, engine.run("two") as two:
            return await host(one, two)

    path = run_virtual(main)

    assert (path.running_seconds, path.queued_seconds, path.other_seconds) == (2, 2, 0)


def test_a_question_to_a_human_is_time_for_other_things() -> None:
    stage = Stage()
    mail = stage.tool("mail", Sleep(1), Return("x"), effect=Effect.EXTERNAL, approval=True)

    async def host(run: Run) -> CriticalPath:
        turn = await run.submit(plan({"id": "m", "tool": "mail"}), wait=False)
        await asyncio.sleep(60)
        await run.approve("m")
        await turn.wait()
        return turn.critical_path()

    path = Theatre(stage, mail).enter(host)

    assert (path.running_seconds, path.queued_seconds, path.other_seconds) == (1, 0, 60)
