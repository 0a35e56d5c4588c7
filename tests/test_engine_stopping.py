"""Everything ends: cancels, limits, grace, retries, stuck bodies, and what is left afterwards."""

import asyncio
import gc
import math
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laneway import (
    Code,
    Effect,
    Engine,
    Failure,
    Happened,
    Limits,
    State,
    Success,
    Tool,
    ToolContext,
    Turn,
)
from laneway.engine.deadlines import Deadlines
from laneway.engine.failures import core, exception_text
from laneway.engine.run import Run, uncancelled
from laneway.engine.threads import ToolThreads
from laneway.errors import (
    EngineClosedError,
    EngineFaultError,
    JournalError,
    OpenTurnError,
    RunOwnedError,
    TurnNotReadyError,
    UnknownApprovalError,
    UnknownCallError,
)
from laneway.facts import (
    AttemptEnded,
    CallEnded,
    CallQueued,
    CallStarted,
    Fact,
    HolderStopped,
    Row,
    TurnClosed,
)
from laneway.ids import RunId
from laneway.journal.fold import fold
from laneway.journal.memory import MemoryJournal, MemoryStore
from laneway.testing.clock import VirtualClock, VirtualLoop, run_virtual
from laneway.testing.scripted import Block, Do, Log, Raise, Return, Sleep, Stage
from laneway.testing.watched import WatchedStore

T = TypeVar("T")

NAME = RunId("case")
GONE = ConnectionResetError("gone")
WAIT_SECONDS = 20
"""Real seconds after which a thread that should end is taken for one that hangs."""

ENDED = {
    State.SUCCEEDED,
    State.FAILED,
    State.TIMED_OUT,
    State.CANCELLED,
    State.UNCERTAIN,
    State.SKIPPED,
    State.DENIED,
}


def plan(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"calls": [{"arguments": {}, **one} for one in calls]}


def call(name: str, tool: str = "", **more: Any) -> dict[str, Any]:
    return {"id": name, "tool": tool or name, **more}


def states(turn: Turn) -> dict[str, State]:
    return {one.record.provider_id: one.state for one in turn.calls}


def failure(turn: Turn, name: str) -> Failure:
    outcome = turn.outcomes[name]
    assert isinstance(outcome, Failure)
    return outcome


def others() -> set[asyncio.Task[Any]]:
    """The tasks that are alive beside the one that asks."""
    return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]


def now() -> float:
    return asyncio.get_running_loop().time()


async def passes(count: int) -> None:
    """Let the loop run what is runnable."""
    for _ in range(count):
        await asyncio.sleep(0)


def deaf(seconds: float, value: Any = "late") -> Do:
    """A body that swallows whatever would stop it, for so long."""

    async def body(_: Any) -> Any:
        end = now() + seconds
        while (left := end - now()) > 0:
            try:
                await asyncio.sleep(left)
            except asyncio.CancelledError:
                continue
        if isinstance(value, BaseException):
            raise value
        return value

    return Do(body)


def tidy(seconds: float) -> Do:
    """A body that needs so long to clean up when it is told to stop."""

    async def body(_: Any) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(seconds)

    return Do(body)


def fail_times(times: int, error: BaseException = GONE, value: Any = "ok") -> Do:
    """A body that fails so often before it gives a value."""
    tries: list[int] = []

    def body(_: Any) -> Any:
        tries.append(1)
        if len(tries) <= times:
            raise error
        return value

    return Do(body)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that hangs says so soon."""
    monkeypatch.setattr("laneway.testing.clock.HANG_GUARD_SECONDS", WAIT_SECONDS / 2)


class Play:
    """A stage and a journal, on which a run is played and looked at afterwards."""

    def __init__(self, *, at_once: bool = False) -> None:
        self.stage = Stage()
        self.journal = MemoryJournal()
        self.store: Any = MemoryStore(self.journal)
        if not at_once:
            self.store = WatchedStore(self.store)
        self.began = 0.0
        self.lasted = 0.0

    def tool(self, name: str, *steps: Any, **declared: Any) -> Tool[..., Any]:
        return self.stage.tool(name, *steps, **declared)

    def engine(self, tools: Sequence[Any], **options: Any) -> Engine:
        return Engine(
            tools, journal=self.store, clock=options.pop("clock", self.stage.make_clock), **options
        )

    def run(
        self,
        main: Callable[[Engine, Run], Awaitable[T]],
        tools: Sequence[Any],
        *,
        lingers: float = 0.0,
        **options: Any,
    ) -> T:
        """Play, and see that nothing is left: no lane, no deadline, no task, no thread.

        Args:
            main: gets an engine and a run.
            tools: of the engine.
            lingers: seconds after leaving the run in which bodies that would not stop may do so.
            **options: of the engine.
        """

        async def work() -> T:
            engine = self.engine(tools, **options)
            async with engine:
                async with engine.run(NAME) as run:
                    self.began = now()
                    result = await main(engine, run)
                self.lasted = now() - self.began
                await asyncio.sleep(lingers)
                assert_nothing_is_held(engine)
            assert others() == set()
            return result

        result = run_virtual(work)
        assert_no_tool_threads()
        return result

    def turn(self, reply: Any, tools: Sequence[Any], **options: Any) -> Turn:
        """Play one turn to its end."""

        async def main(_: Engine, run: Run) -> Turn:
            return await run.submit(reply)

        return self.run(main, tools, **options)

    def facts(self, kind: type[Fact] | tuple[type[Fact], ...], name: str = "") -> list[Any]:
        """The facts of a kind that the journal holds, of one call if it is named."""
        return [
            row.fact
            for row in self.journal.facts.get(NAME, ())
            if isinstance(row.fact, kind) and (not name or getattr(row.fact, "call", "") == name)
        ]


def assert_nothing_is_held(engine: Engine) -> None:
    services = engine.services
    status = engine.status()
    assert len(services.lanes) == 0, services.lanes.snapshot(str)
    assert len(services.deadlines) == 0
    assert status.runs == ()
    assert (status.stuck, status.stuck_threads) == ((), 0)


def assert_no_tool_threads() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("laneway-tool"):
            thread.join(WAIT_SECONDS)
            assert not thread.is_alive(), thread


# Cancelling a call, wherever it is

PLACES = {
    "pending": State.PENDING,
    "approval": State.AWAITING_APPROVAL,
    "lane": State.QUEUED,
    "thread": State.QUEUED,
    "running": State.RUNNING,
    "in a thread": State.RUNNING,
    "backing off": State.BACKING_OFF,
}


def everywhere(play: Play) -> tuple[list[Tool[..., Any]], dict[str, Any]]:
    """A turn that has, after a second, a call in every state, named by its place."""
    tools = [
        play.tool("holder", Sleep(20), Return("ok"), claims=["lane:x"]),
        play.tool("running", Sleep(50), Log("running"), effect=Effect.WRITE, claims=[]),
        play.tool("quick", Log("{place}"), Return("ok"), effect=Effect.WRITE, claims=[]),
        play.tool("asks", Log("asked"), effect=Effect.WRITE, approval=True, claims=[]),
        play.tool("waits", Log("lane"), effect=Effect.WRITE, claims=["lane:x"]),
        play.tool("blocks", Block(5), Log("blocked"), sync=True, effect=Effect.WRITE, claims=[]),
        play.tool("flaky", Raise(GONE), retries=9, effect=Effect.WRITE, idempotent=True, claims=[]),
    ]
    reply = plan(
        call("holder"),
        call("running"),
        call("pending", "quick", arguments={"place": "pending"}, needs=["holder"]),
        call("approval", "asks"),
        call("lane", "waits"),
        call("in a thread", "blocks", arguments={"n": 1}),
        call("thread", "blocks", arguments={"n": 2}),
        call("backing off", "flaky"),
        call("sibling", "quick", arguments={"place": "sibling"}, after=["holder"]),
        *(
            call(f"{place}+", "quick", arguments={"place": f"{place}+"}, needs=[place])
            for place in PLACES
        ),
    )
    return tools, reply


SOON = Limits(tool_threads=1, back_off_seconds=10)


@pytest.mark.parametrize("place", PLACES)
def test_a_call_is_cancelled_wherever_it_is_and_only_what_needs_it_is_touched(place: str) -> None:
    play = Play()
    tools, reply = everywhere(play)

    async def main(_: Engine, run: Run) -> Turn:
        turn = await run.submit(reply, wait=False)
        await asyncio.sleep(1)
        found = {name: turn.call(name).state for name in PLACES}
        assert found == PLACES
        await run.cancel(place, reason="no longer wanted")
        assert turn.call(place).state is State.CANCELLED, "it is answered when that is kept"
        after = {name: turn.call(name).state for name in PLACES if name != place}
        freed = {"thread": State.RUNNING} if place == "in a thread" else {}
        assert after == {name: PLACES[name] for name in after} | freed
        assert turn.call(f"{place}+").state is State.SKIPPED
        await asyncio.sleep(25)
        assert turn.call("sibling").state is State.SUCCEEDED
        await run.cancel()
        await turn.wait()
        return turn

    turn = play.run(main, tools, lingers=10, limits=SOON)

    told = failure(turn, place)
    assert told.code is Code.CANCELLED
    assert "The call was cancelled: no longer wanted." in told.message
    started = place in ("running", "in a thread", "backing off")
    assert ("had not been started" in told.message) is not started
    assert told.happened is (Happened.UNKNOWN if started else Happened.NOTHING)
    assert ("may have had its effect" in told.message) is started
    assert failure(turn, f"{place}+").code is Code.DEPENDENCY_FAILED
    assert failure(turn, f"{place}+").cause == turn.call(place).id
    assert turn.ready
    assert list(turn.outcomes) == [one["id"] for one in reply["calls"]]
    body = {"running": "running", "approval": "asked", "lane": "lane"}.get(place, place)
    assert body not in play.stage.log
    assert f"{place}+" not in play.stage.log


@pytest.mark.parametrize("at_once", [True, False])
def test_a_whole_run_is_cancelled_with_calls_in_every_state(*, at_once: bool) -> None:
    play = Play(at_once=at_once)
    tools, reply = everywhere(play)

    async def main(_: Engine, run: Run) -> tuple[Turn, float]:
        submitting = asyncio.create_task(run.submit(reply))
        await asyncio.sleep(1)
        await run.cancel()
        cancelled = now()
        turn = await submitting
        return turn, now() - cancelled

    turn, took = play.run(main, tools, lingers=10, limits=SOON)

    assert set(states(turn).values()) == {State.CANCELLED}
    assert {failure(turn, name).code for name in states(turn)} == {Code.CANCELLED}
    assert took == 0
    ended = [fact.call for fact in play.facts(CallEnded)]
    assert sorted(ended) == sorted(one.id for one in turn.calls)
    assert len(turn.messages) == 1 + len(turn.calls) or turn.messages
    assert play.stage.log == ["blocked"], "the thread could not be stopped, and nothing else ran"


def test_a_cancel_is_decided_before_the_call_and_what_needs_it_can_start() -> None:
    """All are told at once: ending one must not start another that is cancelled with it."""
    play = Play()
    tools = [
        play.tool("hold", Sleep(50), claims=["lane:x"]),
        play.tool("next", Return("ok"), claims=["lane:x"]),
    ]
    reply = plan(
        call("a", "hold"),
        *(call(f"n{n}", "next") for n in range(5)),
        *(call(f"after{n}", "next", after=[f"n{n}"]) for n in range(5)),
    )

    async def main(_: Engine, run: Run) -> Turn:
        turn = await run.submit(reply, wait=False)
        await asyncio.sleep(1)
        await run.cancel()
        await turn.wait()
        return turn

    turn = play.run(main, tools)

    assert set(states(turn).values()) == {State.CANCELLED}
    assert play.stage.entered == {"hold": 1}


def test_what_comes_only_after_a_cancelled_call_runs() -> None:
    play = Play()
    tools = [play.tool("slow", Sleep(50)), play.tool("next", Return("ok"))]

    async def main(_: Engine, run: Run) -> Turn:
        turn = await run.submit(
            plan(call("slow"), call("next", after=["slow"]), call("n2", "next", needs=["slow"])),
            wait=False,
        )
        await asyncio.sleep(1)
        await run.cancel("slow")
        await turn.wait()
        return turn

    turn = play.run(main, tools)

    assert states(turn) == {
        "slow": State.CANCELLED,
        "next": State.SUCCEEDED,
        "n2": State.SKIPPED,
    }


@pytest.mark.parametrize("effect", [Effect.READ, Effect.EXTERNAL])
def test_a_call_that_is_cancelled_while_its_start_is_written_down_is_never_entered(
    effect: Effect,
) -> None:
    play = Play()
    tools = [
        play.tool("first", Sleep(1), Return("ok")),
        play.tool("second", Log("entered"), effect=effect, claims=["lane:x"]),
    ]

    async def main(_: Engine, run: Run) -> Turn:
        gate, reached = asyncio.Event(), asyncio.Event()

        async def hold(_: int, rows: Sequence[Row]) -> None:
            if any(isinstance(one.fact, CallStarted) and one.fact.call == "t1.2" for one in rows):
                reached.set()
                await gate.wait()

        play.store.before = hold
        turn = await run.submit(plan(call("a", "first"), call("b", "second", needs=["a"])), wait=False)
        await reached.wait()
        cancelling = asyncio.create_task(run.cancel("b"))
        await asyncio.sleep(5)
        gate.set()
        await cancelling
        await turn.wait()
        return turn

    turn = play.run(main, tools)

    assert states(turn) == {"a": State.SUCCEEDED, "b": State.CANCELLED}
    told = failure(turn, "b")
    assert told.happened is Happened.NOTHING
    assert "It had not been started." in told.message
    assert play.stage.entered == {"first": 1}
    assert play.stage.log == []


def test_a_call_is_cancelled_at_any_pass_of_the_loop_and_ends_once() -> None:
    for pause in range(25):
        play = Play()
        tools = [
            play.tool("pay", Sleep(0), Sleep(1), Log("paid"), effect=Effect.EXTERNAL),
            play.tool("next", Return("ok")),
        ]

        async def main(_: Engine, run: Run, pause: int = pause) -> Turn:
            submitting = asyncio.create_task(
                run.submit(plan(call("pay"), call("next", needs=["pay"]), call("free", "next")))
            )
            await passes(pause)
            if run.turns:
                await run.cancel("pay")
            return await submitting

        turn = play.run(main, tools)

        assert states(turn)["free"] is State.SUCCEEDED
        assert play.stage.entered["pay"] <= 1
        outcome = (states(turn)["pay"], states(turn)["next"])
        assert outcome in (
            (State.CANCELLED, State.SKIPPED),
            (State.SUCCEEDED, State.SUCCEEDED),
        )
        assert len(play.facts(CallEnded, "t1.1")) == 1
        assert len(play.facts(CallEnded, "t1.2")) == 1


def test_the_first_reason_to_stop_is_the_one_that_is_told() -> None:
    play = Play()
    tools = [play.tool("slow", tidy(0.8), timeout=5)]

    async def main(_: Engine, run: Run) -> Turn:
        turn = await run.submit(plan(call("a", "slow"), call("b", "slow")), wait=False)
        await asyncio.sleep(4.5)
        await run.cancel("a", reason="first")
        await asyncio.sleep(0.2)
        await run.cancel("a", reason="second")
        await asyncio.sleep(0.5)  # Both have met their limit.
        await run.cancel(reason="third")
        await turn.wait()
        return turn

    turn = play.run(main, tools)

    assert states(turn) == {"a": State.CANCELLED, "b": State.TIMED_OUT}
    assert "cancelled: first." in failure(turn, "a").message
    assert "limit of 5 s" in failure(turn, "b").message


def test_a_call_that_has_ended_is_not_changed_by_a_cancel_and_an_unknown_one_is_named() -> None:
    play = Play()
    tools = [play.tool("quick", Return("done"))]

    async def main(_: Engine, run: Run) -> None:
        with pytest.raises(UnknownCallError, match="run 'case' has no call 'a'"):
            await run.cancel("a")
        await run.cancel()
        turn = await run.submit(plan(call("a", "quick")))
        before = len(play.journal.facts[NAME])
        await run.cancel("a")
        await run.cancel("t1.1")
        await run.cancel()
        for name in ("b", "t1.2", "t1.0", "t2.1", "t1.x", f"t1.{'9' * 5000}", "t1.١"):
            with pytest.raises(UnknownCallError):
                await run.cancel(name)
        assert turn.outcomes == {"a": Success(value="done")}
        assert len(play.journal.facts[NAME]) == before

    play.run(main, tools)


def test_ten_thousand_calls_are_cancelled_at_once() -> None:
    """In every state; with one fact for each, and a few wake-ups for all."""
    many = 10_000
    play = Play(at_once=True)
    tools = [
        play.tool("slow", Sleep(500), effect=Effect.WRITE, claims=[]),
        play.tool("queue", Sleep(500), claims=["lane:x"]),
        play.tool("flaky", Raise(GONE), retries=9),
    ]
    calls = [
        call(f"c{n}", ("slow", "queue", "flaky")[n % 3], needs=[f"c{n - 1}"] if n % 7 == 6 else [])
        for n in range(many)
    ]

    async def main(engine: Engine, run: Run) -> Turn:
        submitting = asyncio.create_task(run.submit(plan(*calls)))
        await asyncio.sleep(20)
        assert len(engine.services.deadlines) > many // 2
        await run.cancel()
        return await submitting

    turn = play.run(main, tools, limits=Limits(back_off_seconds=100))

    assert set(states(turn).values()) == {State.CANCELLED}
    assert len(play.facts(CallEnded)) == many
    assert play.lasted == 20


def test_a_run_of_thousands_is_left_in_one_go_however_differently_they_stop() -> None:
    """Waiting for bodies costs a look at each, not at each for every other that stops."""
    play = Play(at_once=True)

    async def stop_slowly(arguments: Any) -> None:
        try:
            await asyncio.sleep(500)
        finally:
            await asyncio.sleep(arguments["n"] / 4000)

    waits: list[int] = []
    wait = asyncio.wait

    async def counted(tasks: Any, **options: Any) -> Any:
        waits.append(len(tasks))
        return await wait(tasks, **options)

    async def main(_: Engine, run: Run) -> None:
        await run.submit(
            plan(*(call(f"c{n}", "slow", arguments={"n": n}) for n in range(2000))), wait=False
        )
        await asyncio.sleep(1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("laneway.engine.bodies.asyncio.wait", counted)
            await run.__aexit__(None, None, None)

    play.run(main, [play.tool("slow", Do(stop_slowly))])

    assert 1 <= len(waits) <= 8
    assert {fact.state for fact in play.facts(CallEnded)} == {State.CANCELLED}


# Cancelling whoever waits


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("how", ["submit", "wait", "finish", "close"])
def test_cancelling_whoever_waits_cancels_the_turn_and_waits_for_its_stop(
    how: str, times: int
) -> None:
    play = Play()
    tools = [
        play.tool("tidy", tidy(0.5), Log("tidied"), effect=Effect.WRITE, claims=["lane:x"]),
        play.tool("queued", Return("ok"), claims=["lane:x"]),
        play.tool("deaf", deaf(5)),
    ]
    reply = plan(call("t", "tidy"), call("q", "queued"), call("d", "deaf"), call("n", "queued"))

    async def main(_: Engine, run: Run) -> tuple[Turn, float]:
        if how == "submit":
            waiting: asyncio.Task[Any] = asyncio.create_task(run.submit(reply))
        else:
            turn = await run.submit(reply, wait=False)
            waits = {"wait": turn.wait, "finish": run.finish, "close": turn.close}[how]
            waiting = asyncio.create_task(waits())
        await asyncio.sleep(1)
        cancelled = now()
        for _n in range(times):
            waiting.cancel()
            await passes(3)
        assert not waiting.done(), "it waits for the stop"
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return run.turns[0], now() - cancelled

    turn, took = play.run(main, tools, lingers=5)

    assert took == 1, "the grace of the one that would not stop"
    assert set(states(turn).values()) == {State.CANCELLED}
    assert "whoever waited for the turn was cancelled" in failure(turn, "q").message
    assert "has not stopped" in failure(turn, "d").message
    assert "has not stopped" not in failure(turn, "t").message
    assert turn.ready


def test_a_time_limit_of_the_host_around_submit_stops_the_turn() -> None:
    play = Play()
    tools = [play.tool("slow", Sleep(50), effect=Effect.WRITE)]

    async def main(_: Engine, run: Run) -> Turn:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await run.submit(plan(call("a", "slow")))
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
        return run.turns[0]

    turn = play.run(main, tools)

    assert states(turn) == {"a": State.CANCELLED}
    assert turn.ready
    assert play.lasted == 2


def test_a_task_group_that_fails_around_submit_stops_the_turn() -> None:
    play = Play()
    tools = [play.tool("slow", Sleep(50))]

    async def main(_: Engine, run: Run) -> Turn:
        async def fail() -> None:
            await asyncio.sleep(1)
            raise ValueError("something else")

        with pytest.raises(ExceptionGroup) as raised:
            async with asyncio.TaskGroup() as group:
                group.create_task(run.submit(plan(call("a", "slow"))))
                group.create_task(fail())
        assert raised.group_contains(ValueError, match="something else")
        assert not raised.group_contains(asyncio.CancelledError)
        return run.turns[0]

    assert states(play.run(main, tools)) == {"a": State.CANCELLED}


def test_two_may_wait_for_one_turn_and_one_cancel_ends_it_for_both() -> None:
    play = Play()
    tools = [play.tool("slow", Sleep(50))]

    async def main(_: Engine, run: Run) -> None:
        turn = await run.submit(plan(call("a", "slow")), wait=False)
        one, two = asyncio.create_task(turn.wait()), asyncio.create_task(run.finish())
        await asyncio.sleep(1)
        one.cancel()
        with pytest.raises(asyncio.CancelledError):
            await one
        finished = await two
        assert finished is not None
        assert states(finished) == {"a": State.CANCELLED}
        assert finished.ready

    play.run(main, tools)


def test_whoever_waits_for_a_human_can_be_cancelled_and_the_question_is_withdrawn() -> None:
    play = Play()
    tools = [play.tool("ask", Log("entered"), approval=True)]

    async def main(_: Engine, run: Run) -> Turn:
        submitting = asyncio.create_task(run.submit(plan(call("a", "ask"))))
        await asyncio.sleep(10)
        assert [one.call for one in run.approvals] == ["t1.1"]
        submitting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await submitting
        assert run.approvals == []
        with pytest.raises(UnknownApprovalError):
            await run.approve("a")
        return run.turns[0]

    turn = play.run(main, tools)

    assert states(turn) == {"a": State.CANCELLED}
    assert play.stage.log == []


def test_after_a_cancelled_submit_the_run_goes_on_with_the_next_turn() -> None:
    play = Play()
    tools = [play.tool("slow", Sleep(50)), play.tool("quick", Return("ok"))]

    async def main(_: Engine, run: Run) -> None:
        for _n in range(3):
            submitting = asyncio.create_task(run.submit(plan(call("a", "slow"))))
            await asyncio.sleep(1)
            submitting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await submitting
        turn = await run.submit(plan(call("a", "quick")))
        assert states(turn) == {"a": State.SUCCEEDED}
        assert [states(one)["a"] for one in run.turns[:3]] == [State.CANCELLED] * 3

    play.run(main, tools)


def test_work_that_must_not_be_cut_short_passes_on_what_it_raises_and_a_cancel_of_itself() -> None:
    async def fail() -> None:
        await asyncio.sleep(1)
        raise ValueError("in the end")

    async def main() -> None:
        work = asyncio.ensure_future(fail())
        waiting = asyncio.create_task(uncancelled(work))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(ValueError, match="in the end"):
            await waiting

        work = asyncio.ensure_future(fail())
        waiting = asyncio.create_task(uncancelled(work))
        await asyncio.sleep(0)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not waiting.cancelling()

    run_virtual(main)
