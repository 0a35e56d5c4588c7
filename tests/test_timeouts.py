"""The limits of time of a call: in queues, of an attempt, in all, and without progress."""

import asyncio
import threading
from typing import Any

import pytest

from laneway import Code, Effect, Failure, Limits, State, StoppedBy, ToolContext, tool
from laneway.engine.run import Run
from laneway.errors import UsageError
from laneway.journal.fold import CallView
from laneway.testing.clock import VirtualClock
from laneway.testing.scripted import Do, Log, Raise, Return, Sleep, Stage
from laneway.testing.theatre import Theatre


def plan(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"calls": list(calls)}


def failure(call: CallView) -> Failure:
    assert isinstance(call.outcome, Failure)
    return call.outcome


def took(call: CallView) -> float:
    assert call.started is not None
    assert call.ended is not None
    return call.ended - call.started


def test_an_attempt_is_stopped_at_its_limit_and_told_by_whom() -> None:
    stage = Stage()
    slow = stage.tool("slow", Sleep(9), effect=Effect.READ, timeout=2)

    turn = Theatre(stage, slow).play(plan({"id": "s", "tool": "slow"}))

    (call,) = turn.calls
    assert (call.state, failure(call).code) == (State.TIMED_OUT, Code.TIMEOUT)
    assert call.stopped_by is StoppedBy.DEADLINE
    assert "limit of 2 s" in failure(call).message
    assert took(call) == 2


def test_all_attempts_together_have_a_limit_that_cuts_the_last_one_short() -> None:
    stage = Stage()
    tries: list[int] = []

    async def work(_: Any) -> str:
        tries.append(1)
        await asyncio.sleep(4 if len(tries) == 1 else 60)
        raise ConnectionError("gone")

    flaky = stage.tool(
        "flaky", Do(work), effect=Effect.READ, retries=5, timeout=30, total_timeout=10
    )

    turn = Theatre(stage, flaky, limits=Limits(back_off_seconds=1)).play(
        plan({"id": "f", "tool": "flaky"})
    )

    (call,) = turn.calls
    assert call.state is State.TIMED_OUT
    assert "within 10 s in all" in failure(call).message
    assert len(tries) == 2
    assert call.ended is not None
    assert call.ended - call.submitted == pytest.approx(10)


def test_no_attempt_is_begun_for_which_no_time_is_left_after_the_pause() -> None:
    stage = Stage()
    flaky = stage.tool(
        "flaky",
        Sleep(4),
        Raise(ConnectionError("gone")),
        effect=Effect.READ,
        retries=5,
        total_timeout=4.5,
    )

    turn = Theatre(stage, flaky, limits=Limits(back_off_seconds=1)).play(
        plan({"id": "f", "tool": "flaky"})
    )

    assert turn.calls[0].state is State.FAILED
    assert stage.entered == {"flaky": 1}


def test_the_default_for_all_attempts_never_cuts_a_single_one() -> None:
    stage = Stage()
    long = stage.tool("long", Sleep(400), Return("done"), effect=Effect.READ, timeout=500)

    turn = Theatre(stage, long, limits=Limits(attempts_seconds=10)).play(
        plan({"id": "l", "tool": "long"})
    )

    assert turn.calls[0].state is State.SUCCEEDED


def test_time_in_queues_counts_against_no_limit_of_the_call() -> None:
    stage = Stage()
    work = stage.tool("work", Sleep(4), Return(1), claims=["lane:L"], timeout=5, total_timeout=5)

    turn = Theatre(stage, work).play(plan(*({"id": str(n), "tool": "work"} for n in range(4))))

    assert {call.state for call in turn.calls} == {State.SUCCEEDED}


def test_waiting_in_queues_has_a_limit_of_its_own() -> None:
    stage = Stage()
    work = stage.tool("work", Sleep(4), Log("{n}"), claims=["lane:L"])
    calls = ({"id": str(n), "tool": "work", "arguments": {"n": n}} for n in range(3))

    turn = Theatre(stage, work, limits=Limits(queue_seconds=5)).play(plan(*calls))

    assert [call.state for call in turn.calls] == [
        State.SUCCEEDED,
        State.SUCCEEDED,
        State.CANCELLED,
    ]
    assert failure(turn.calls[2]).code is Code.TIMEOUT
    assert "waited for its turn for longer than 5 s" in failure(turn.calls[2]).message
    assert "not been started" in failure(turn.calls[2]).message
    assert turn.calls[2].stopped_by is StoppedBy.DEADLINE
    assert stage.log == ["0", "1"]


def test_a_limit_of_queues_holds_for_who_is_taken_up_by_a_later_driver() -> None:
    stage = Stage()
    work = stage.tool("work", Sleep(4), Return(1), claims=["lane:L"], idempotent=True)
    theatre = Theatre(stage, work, limits=Limits(queue_seconds=5))

    async def go(run: Run) -> None:
        await run.submit(plan(*({"id": str(n), "tool": "work"} for n in range(3))), wait=False)
        await asyncio.sleep(1)
        theatre.crash()

    theatre.enter(go)
    turn = theatre.finish()

    assert [call.state for call in turn.calls] == [
        State.SUCCEEDED,
        State.SUCCEEDED,
        State.CANCELLED,
    ]


def test_a_tool_that_goes_on_reporting_is_not_idle() -> None:
    @tool(effect=Effect.READ, idle_timeout=2, timeout=60)
    async def work(context: ToolContext) -> str:
        for n in range(10):
            context.progress(f"step {n}")
            await asyncio.sleep(1.5)
        return "done"

    turn = Theatre(Stage(), work).play(plan({"id": "w", "tool": "work"}))

    assert turn.calls[0].state is State.SUCCEEDED


def test_a_tool_that_falls_silent_is_stopped_and_the_model_told_what_it_last_said() -> None:
    @tool(effect=Effect.READ, idle_timeout=2, timeout=60)
    async def work(context: ToolContext) -> None:
        await asyncio.sleep(1)
        context.progress("half way")
        await asyncio.sleep(50)

    turn = Theatre(Stage(), work).play(plan({"id": "w", "tool": "work"}))

    (call,) = turn.calls
    assert call.state is State.TIMED_OUT
    assert "no progress for 2 s" in failure(call).message
    assert "half way" in failure(call).message
    assert took(call) == 3


def test_a_tool_that_never_reports_is_silent_from_the_start() -> None:
    @tool(effect=Effect.READ, idle_timeout=2, timeout=60)
    async def work(context: ToolContext) -> None:
        await asyncio.sleep(50)

    turn = Theatre(Stage(), work).play(plan({"id": "w", "tool": "work"}))

    assert took(turn.calls[0]) == 2
    assert failure(turn.calls[0]).message.startswith("The call reported no progress for 2 s.")


@pytest.mark.parametrize(("seconds", "ended"), [(5, State.TIMED_OUT), (500, State.SUCCEEDED)])
def test_the_default_for_silence_holds_from_the_first_report(seconds: float, ended: State) -> None:
    @tool(effect=Effect.READ, timeout=100)
    async def work(context: ToolContext) -> None:
        await asyncio.sleep(20)
        context.progress()
        await asyncio.sleep(20)

    turn = Theatre(Stage(), work, limits=Limits(idle_seconds=seconds)).play(
        plan({"id": "w", "tool": "work"})
    )

    assert turn.calls[0].state is ended
    assert took(turn.calls[0]) == min(20 + seconds, 40)


def test_progress_gives_no_more_time_than_the_attempt_has() -> None:
    @tool(effect=Effect.READ, timeout=5, idle_timeout=2)
    async def work(context: ToolContext) -> None:
        while True:
            context.progress()
            await asyncio.sleep(1)

    turn = Theatre(Stage(), work).play(plan({"id": "w", "tool": "work"}))

    assert took(turn.calls[0]) == 5
    assert "limit of 5 s" in failure(turn.calls[0]).message


def test_a_report_from_a_thread_counts() -> None:
    reported = threading.Event()

    @tool(effect=Effect.READ, timeout=60, idle_timeout=50)
    def work(context: ToolContext) -> str:
        context.progress("in a thread")
        reported.set()
        return context.stop.said

    turn = Theatre(Stage(), work).play(plan({"id": "w", "tool": "work"}))

    assert reported.is_set()
    assert turn.outcomes["w"].value == "in a thread"  # type: ignore[union-attr]


def test_a_tool_without_an_engine_may_report_to_nobody() -> None:
    context = ToolContext(run="r", call="c", attempt=1, tool="t", arguments={})  # type: ignore[arg-type]

    context.progress("here")

    assert context.stop.said == "here"
    assert context.stopped_by is None


def test_the_clocks_of_a_call_rest_while_only_humans_are_awaited() -> None:
    stage = Stage()
    ask = stage.tool("ask", Return("yes"), approval=True, effect=Effect.READ)

    @tool(effect=Effect.READ, claims=[], timeout=5, idle_timeout=3)
    async def work(context: ToolContext) -> str:
        context.progress("asks")
        await context.invoke("ask")
        await asyncio.sleep(2)
        return "done"

    async def host(run: Run) -> CallView:
        turn = await run.submit(plan({"id": "w", "tool": "work"}), wait=False)
        (question,) = await run.asked()
        await asyncio.sleep(100)
        await run.approve(question.id)
        await turn.wait()
        return turn.calls[0]

    call = Theatre(stage, work, ask).enter(host)

    assert call.state is State.SUCCEEDED


def test_a_body_knows_who_stopped_it() -> None:
    seen: list[StoppedBy | None] = []

    @tool(effect=Effect.READ)
    async def work(context: ToolContext) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            seen.append(context.stopped_by)

    async def host(run: Run) -> CallView:
        turn = await run.submit(plan({"id": "w", "tool": "work"}), wait=False)
        await asyncio.sleep(1)
        await run.cancel("w", reason="enough of it")
        await turn.wait()
        return turn.calls[0]

    call = Theatre(Stage(), work).enter(host)

    assert seen == [StoppedBy.USER]
    assert call.stopped_by is StoppedBy.USER
    assert "enough of it" in failure(call).message


def test_what_a_call_had_asked_for_is_stopped_by_its_parent() -> None:
    stage = Stage()
    inner = stage.tool("inner", Sleep(60), effect=Effect.READ)

    @tool(effect=Effect.READ, claims=[], timeout=2)
    async def outer(context: ToolContext) -> None:
        await context.invoke("inner")

    theatre = Theatre(stage, outer, inner)
    turn = theatre.play(plan({"id": "o", "tool": "outer"}))

    (child,) = turn.calls[0].children
    from laneway.journal.fold import fold  # noqa: PLC0415

    below = fold(child, theatre.journal.facts[child])
    (call,) = below.calls.values()
    assert turn.calls[0].stopped_by is StoppedBy.DEADLINE
    assert call.stopped_by is StoppedBy.PARENT


def test_a_call_may_take_the_others_of_its_turn_along_when_it_fails() -> None:
    stage = Stage()
    shell = stage.tool("shell", Sleep(1), Raise(ValueError("no")), claims=[], stops_siblings=True)
    slow = stage.tool("slow", Sleep(9), effect=Effect.READ)
    later = stage.tool("later", Log("later"), effect=Effect.WRITE)

    turn = Theatre(stage, shell, slow, later).play(
        plan(
            {"id": "a", "tool": "shell"},
            {"id": "b", "tool": "slow"},
            {"id": "c", "tool": "later", "after": ["b"]},
        )
    )

    a, b, c = turn.calls
    assert (a.state, b.state, c.state) == (State.FAILED, State.CANCELLED, State.CANCELLED)
    assert a.stopped_by is None
    assert b.stopped_by is c.stopped_by is StoppedBy.SIBLING
    assert "a (shell) ended FAILED" in failure(b).message
    assert stage.log == []
    assert took(b) == 1


@pytest.mark.parametrize("told", ["success", "cancel"])
def test_a_call_that_did_not_fail_takes_nobody_along(told: str) -> None:
    stage = Stage()
    shell = stage.tool("shell", Sleep(2), Return("ok"), claims=[], stops_siblings=True)
    slow = stage.tool("slow", Sleep(5), Return("slow"), effect=Effect.READ)

    async def host(run: Run) -> list[State]:
        turn = await run.submit(
            plan({"id": "a", "tool": "shell"}, {"id": "b", "tool": "slow"}), wait=False
        )
        await asyncio.sleep(1)
        if told == "cancel":
            await run.cancel("a")
        await turn.wait()
        return [call.state for call in turn.calls]

    a, b = Theatre(stage, shell, slow).enter(host)

    assert a is (State.CANCELLED if told == "cancel" else State.SUCCEEDED)
    assert b is State.SUCCEEDED


def test_a_stuck_thread_takes_its_siblings_along_once_it_is_given_up() -> None:
    stage = Stage()
    clock: list[VirtualClock] = []

    @tool(claims=[], effect=Effect.WRITE, timeout=1, stops_siblings=True)
    def stuck() -> None:
        clock[0].block(5)

    slow = stage.tool("slow", Sleep(60), effect=Effect.READ)

    async def host(run: Run) -> list[CallView]:
        clock.append(VirtualClock())
        turn = await run.submit(plan({"id": "a", "tool": "stuck"}, {"id": "b", "tool": "slow"}))
        await asyncio.sleep(10)
        return list(turn.calls)

    a, b = Theatre(stage, stuck, slow).enter(host)

    assert a.state is State.TIMED_OUT
    assert (b.state, b.stopped_by) == (State.CANCELLED, StoppedBy.SIBLING)


@pytest.mark.parametrize(
    "name", ["attempts_seconds", "queue_seconds", "idle_seconds", "blocked_seconds"]
)
def test_each_limit_is_checked_by_name(name: str) -> None:
    with pytest.raises(UsageError, match=f"Limits.{name} is -1"):
        Limits(**{name: -1})
    with pytest.raises(UsageError, match=r"Limits.tool_processes is 1\.5; give a whole number"):
        Limits(tool_processes=1.5)  # type: ignore[arg-type]
