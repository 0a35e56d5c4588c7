"""Everything ends: cancels, limits, grace, retries, stuck bodies, and what is left afterwards."""

import asyncio
import gc
import math
import signal
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laneway import (
    UNLIMITED,
    Budgets,
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
from laneway.engine.bodies import _BodyTask
from laneway.engine.deadlines import Deadlines
from laneway.engine.failures import core, exception_text
from laneway.engine.run import Run, uncancelled
from laneway.engine.threads import ToolThreads
from laneway.errors import (
    EngineClosedError,
    EngineFaultError,
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
from laneway.journal.sqlite import SqliteStore
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
    return asyncio.all_tasks() - {asyncio.current_task()}


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

    def __init__(self, *, at_once: bool = False, store: Any = None) -> None:
        self.stage = Stage()
        self.journal = MemoryJournal()
        self.store: Any = store or MemoryStore(self.journal)
        if store is None and not at_once:
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
    assert turn.ready
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
        turn = await run.submit(
            plan(call("a", "first"), call("b", "second", needs=["a"])), wait=False
        )
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
        for name in ("b", "t1.2", "t1.0", "t2.1", "t1.x", f"t1.{'9' * 5000}", "t1.\u0661"):
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

    turn = play.run(main, tools, limits=Limits(back_off_seconds=100), loops=None)

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

        async def both() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(run.submit(plan(call("a", "slow"))))
                group.create_task(fail())

        with pytest.raises(ExceptionGroup) as raised:
            await both()
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


# Limits of calls


def test_a_call_is_stopped_at_its_own_limit_or_else_at_the_engines() -> None:
    play = Play()
    tools = [
        play.tool("own", Sleep(50), timeout=2),
        play.tool("longer", Sleep(50), timeout=8.5, effect=Effect.EXTERNAL),
        play.tool("engines", Sleep(50)),
        play.tool("lifted", Sleep(50), Return("ok"), timeout=math.inf),
        play.tool("quick", Sleep(1), Return("ok"), timeout=2),
    ]

    turn = play.turn(
        plan(*(call(tool.spec.name) for tool in tools)), tools, limits=Limits(call_seconds=5)
    )

    assert states(turn) == {
        "own": State.TIMED_OUT,
        "longer": State.TIMED_OUT,
        "engines": State.TIMED_OUT,
        "lifted": State.SUCCEEDED,
        "quick": State.SUCCEEDED,
    }
    lasted = {name: play.stage.of(name).span.end - play.began for name in states(turn)}
    assert lasted == {"own": 2, "longer": 8.5, "engines": 5, "lifted": 50, "quick": 1}
    own, longer = failure(turn, "own"), failure(turn, "longer")
    assert own.message == "The call did not end within its limit of 2 s."
    assert (own.code, own.retry, own.happened) == (Code.TIMEOUT, True, Happened.NOTHING)
    assert longer.message.startswith("The call did not end within its limit of 8.5 s.")
    assert "It may have had its effect, or part of it." in longer.message
    assert (longer.code, longer.retry, longer.happened) == (Code.TIMEOUT, False, Happened.UNKNOWN)
    assert "Ask for less at once" in own.hint


def test_limits_that_are_lifted_leave_no_timer() -> None:
    play = Play()
    limits = Limits(call_seconds=math.inf, turn_seconds=math.inf, approval_seconds=math.inf)
    tools = [play.tool("slow", Sleep(1e6), Return("ok")), play.tool("ask", approval=True)]

    async def main(engine: Engine, run: Run) -> Turn:
        turn = await run.submit(plan(call("slow"), call("ask")), wait=False)
        await asyncio.sleep(5e5)
        assert len(engine.services.deadlines) == 0
        await run.approve("ask")
        await turn.wait()
        return turn

    turn = play.run(main, tools, limits=limits, budgets=Budgets(seconds=UNLIMITED))

    assert set(states(turn).values()) == {State.SUCCEEDED}


@pytest.mark.parametrize("sync", [False, True])
def test_a_limit_of_nothing_stops_every_call_at_once(*, sync: bool) -> None:
    play = Play()
    step = Block(5) if sync else Sleep(5)
    tools = [play.tool("work", step, sync=sync)]

    turn = play.turn(
        plan(call("a", "work"), call("b", "work")),
        tools,
        lingers=6,
        limits=Limits(call_seconds=0, grace_seconds=0),
    )

    assert set(states(turn).values()) == {State.TIMED_OUT}
    assert play.lasted == 0


def test_the_limit_of_a_call_does_not_count_the_time_in_queues() -> None:
    play = Play()
    tools = [play.tool("work", Sleep(3), Return("ok"), claims=["lane:x"], timeout=4)]

    turn = play.turn(plan(*(call(f"c{n}", "work") for n in range(5))), tools)

    assert set(states(turn).values()) == {State.SUCCEEDED}
    assert play.lasted == 15


def test_a_body_that_swallows_its_stop_and_returns_is_late_and_its_value_is_not_used() -> None:
    play = Play()
    tools = [
        play.tool("pay", deaf(2.5, "paid"), timeout=2, effect=Effect.EXTERNAL),
        play.tool("next", Return("ok")),
    ]

    turn = play.turn(plan(call("pay"), call("next", needs=["pay"])), tools)

    assert states(turn) == {"pay": State.TIMED_OUT, "next": State.SKIPPED}
    assert turn.call("pay").late == "paid"
    assert not turn.call("pay").stuck
    assert play.facts(HolderStopped) == [HolderStopped(call=turn.call("pay").id, late="paid")]
    assert "has not stopped" not in failure(turn, "pay").message
    assert play.lasted == 2.5


def test_a_tool_that_meets_a_limit_of_its_own_has_an_error_and_no_timeout() -> None:
    play = Play()

    async def own_limit(_: Any) -> None:
        async with asyncio.timeout(1):
            await asyncio.sleep(10)

    tools = [
        play.tool("read", Do(own_limit)),
        play.tool("pay", Do(own_limit), effect=Effect.EXTERNAL),
    ]

    async def main(_: Engine, run: Run) -> Turn:
        turn = await run.submit(plan(call("read"), call("pay")))
        assert turn.ready
        return turn

    turn = play.run(main, tools)

    assert states(turn) == {"read": State.FAILED, "pay": State.UNCERTAIN}
    assert failure(turn, "read").code is Code.TOOL_ERROR
    assert "TimeoutError" in failure(turn, "read").message


# Limits of turns


def test_a_turn_that_takes_too_long_is_stopped_as_a_whole() -> None:
    play = Play()
    tools = [
        play.tool(
            "slow", Sleep(8), Log("{n}"), Return("ok"), effect=Effect.WRITE, claims=["lane:x"]
        ),
        play.tool("flaky", Raise(GONE), retries=99),
        play.tool("ask", approval=True),
    ]

    turn = play.turn(
        plan(
            call("a", "slow", arguments={"n": 1}),
            call("b", "slow", arguments={"n": 2}),
            call("c", "slow", arguments={"n": 3}),
            call("d", "slow", arguments={"n": 4}, needs=["a"]),
            call("f", "flaky"),
            call("q", "ask"),
        ),
        tools,
        limits=Limits(turn_seconds=10, back_off_seconds=50),
    )

    assert play.lasted == 10
    assert states(turn) == {
        "a": State.SUCCEEDED,
        "b": State.TIMED_OUT,
        "c": State.CANCELLED,
        "d": State.CANCELLED,
        "f": State.TIMED_OUT,
        "q": State.CANCELLED,
    }
    assert {failure(turn, name).code for name in "bcdfq"} == {Code.TIMEOUT}
    for name in "bcdfq":
        assert "The turn did not end within its limit of 10 s." in failure(turn, name).message
    for name in "cdq":
        assert "It had not been started." in failure(turn, name).message
    assert play.stage.log == ["1"]


def test_the_limit_of_a_turn_of_nothing_stops_it_before_anything_is_long() -> None:
    play = Play()
    tools = [play.tool("slow", Sleep(8))]

    turn = play.turn(
        plan(call("a", "slow"), call("b", "slow", after=["a"])),
        tools,
        limits=Limits(turn_seconds=0, grace_seconds=0),
    )

    assert states(turn) == {"a": State.TIMED_OUT, "b": State.CANCELLED}
    assert play.lasted == 0


def test_the_clock_of_a_turn_rests_while_only_humans_are_awaited() -> None:
    """Two hours with a human cost nothing of the ten seconds; what runs before and after does."""
    play = Play()
    tools = [
        play.tool("work", Sleep(4), Return("ok"), effect=Effect.WRITE, claims=["lane:x"]),
        play.tool("ask", Sleep(5), Return("ok"), approval=True),
    ]

    async def main(_: Engine, run: Run) -> Turn:
        turn = await run.submit(
            plan(call("w", "work"), call("a", "ask"), call("b", "ask", after=["a"])), wait=False
        )
        await asyncio.sleep(3600 - 1)
        await run.approve("a")
        await asyncio.sleep(3600 - 1)
        await run.approve("b")
        await turn.wait()
        return turn

    turn = play.run(main, tools, limits=Limits(turn_seconds=10))

    assert states(turn) == {"w": State.SUCCEEDED, "a": State.SUCCEEDED, "b": State.TIMED_OUT}
    span = play.stage.executions[-1].span
    assert span.end - span.start == pytest.approx(1)


def test_the_clock_of_a_turn_counts_while_anything_else_goes_on_beside_the_humans() -> None:
    play = Play()
    tools = [play.tool("work", Sleep(40)), play.tool("ask", Return("ok"), approval=True)]

    async def main(_: Engine, run: Run) -> Turn:
        return await run.submit(plan(call("w", "work"), call("a", "ask")))

    turn = play.run(main, tools, limits=Limits(turn_seconds=10, call_seconds=60))

    assert states(turn) == {"w": State.TIMED_OUT, "a": State.CANCELLED}
    assert play.lasted == 10


def test_the_clock_of_a_turn_rests_while_an_unknown_end_waits_to_be_settled() -> None:
    play = Play()
    tools = [play.tool("pay", Raise(GONE), effect=Effect.EXTERNAL), play.tool("n", Sleep(5))]

    async def main(_: Engine, run: Run) -> Turn:
        turn = await run.submit(plan(call("p", "pay"), call("n", needs=["p"])), wait=False)
        await asyncio.sleep(100)
        assert turn.call("n").state is State.PENDING
        await run.settle("p", value="paid")
        await turn.wait()
        return turn

    turn = play.run(main, tools, limits=Limits(turn_seconds=10))

    assert states(turn) == {"p": State.SUCCEEDED, "n": State.SUCCEEDED}


def test_a_limit_that_passes_with_that_of_its_turn_leaves_the_body_its_grace() -> None:
    """Both in one sweep, in whichever order: what was told a moment ago is not given up."""
    for _ in range(5):
        play = Play()
        tools = [play.tool(f"t{n}", tidy(0.5), timeout=10) for n in range(8)]

        turn = play.turn(
            plan(*(call(tool.spec.name) for tool in tools)), tools, limits=Limits(turn_seconds=10)
        )

        assert set(states(turn).values()) == {State.TIMED_OUT}
        for name in states(turn):
            assert "has not stopped" not in failure(turn, name).message
        assert play.lasted == 10.5


def test_a_turn_that_is_taken_up_has_its_whole_limit_again() -> None:
    play = Play()
    tools = [
        play.tool("work", Sleep(6), Return("ok"), effect=Effect.WRITE, claims=[]),
        play.tool("ask", Sleep(6), Return("ok"), approval=True, effect=Effect.WRITE, claims=[]),
    ]
    options: dict[str, Any] = {"limits": Limits(turn_seconds=10)}

    async def first(_: Engine, run: Run) -> None:
        await run.submit(plan(call("w", "work"), call("a", "ask", needs=["w"])), wait=False)
        await asyncio.sleep(8)

    async def second(_: Engine, run: Run) -> Turn | None:
        finishing = asyncio.create_task(run.finish())
        await asyncio.sleep(100)
        await run.approve("a")
        return await finishing

    play.run(first, tools, **options)
    turn = play.run(second, tools, **options)

    assert turn is not None
    assert set(states(turn).values()) == {State.SUCCEEDED}


def test_a_turn_that_is_taken_up_with_a_question_rests_whatever_was_answered_before() -> None:
    play = Play()
    tools = [play.tool("ask", Return("ok"), approval=True)]
    limits = Limits(turn_seconds=10)

    async def first(_: Engine, run: Run) -> None:
        await run.submit(plan(call("a", "ask"), call("b", "ask")), wait=False)

    async def second(_: Engine, run: Run) -> Turn | None:
        await run.deny("a")
        finishing = asyncio.create_task(run.finish())
        await asyncio.sleep(100)
        await run.approve("b")
        return await finishing

    play.run(first, tools, limits=limits)
    turn = play.run(second, tools, limits=limits)

    assert turn is not None
    assert states(turn) == {"a": State.DENIED, "b": State.SUCCEEDED}


# Grace, and giving up


def test_a_body_that_cleans_up_within_its_grace_is_waited_for() -> None:
    play = Play()
    tools = [
        play.tool("tidy", tidy(0.9), effect=Effect.WRITE, claims=["lane:x"], timeout=2),
        play.tool("next", Return("ok"), effect=Effect.WRITE, claims=["lane:x"]),
    ]

    turn = play.turn(plan(call("tidy"), call("next")), tools)

    assert states(turn) == {"tidy": State.TIMED_OUT, "next": State.SUCCEEDED}
    assert play.lasted == pytest.approx(2.9)
    assert play.facts(HolderStopped) == []
    assert turn.call("tidy").ended == turn.call("next").started


def test_without_grace_a_body_that_stops_at_once_is_not_given_up() -> None:
    play = Play()
    tools = [play.tool("slow", Sleep(50), timeout=2), play.tool("tidy", tidy(0.1), timeout=2)]

    turn = play.turn(
        plan(call("slow"), call("tidy")), tools, lingers=1, limits=Limits(grace_seconds=0)
    )

    assert "has not stopped" not in failure(turn, "slow").message
    assert "has not stopped" in failure(turn, "tidy").message


def test_a_body_that_will_not_stop_is_given_up_and_holds_its_claims_until_it_has_stopped() -> None:
    play = Play()
    tools = [
        play.tool("deaf", deaf(20), effect=Effect.WRITE, claims=["write file:{path}"], timeout=5),
        play.tool("write", Return("ok"), effect=Effect.WRITE, claims=["write file:{path}"]),
        play.tool("read", Return("ok"), claims=["read file:{path}"]),
    ]
    reply = plan(
        call("d", "deaf", arguments={"path": "a/b"}),
        call("same", "write", arguments={"path": "a/b"}),
        call("beside", "write", arguments={"path": "a/c"}),
        call("above", "read", arguments={"path": "a"}),
        call("below", "read", arguments={"path": "a/b/c"}),
        call("needs", "read", arguments={"path": "z"}, needs=["d"]),
        call("after", "read", arguments={"path": "y"}, after=["d"]),
    )

    async def main(engine: Engine, run: Run) -> Turn:
        turn = await run.submit(reply, wait=False)
        await asyncio.sleep(10)
        assert states(turn) == {
            "d": State.TIMED_OUT,
            "same": State.QUEUED,
            "beside": State.SUCCEEDED,
            "above": State.PENDING,
            "below": State.PENDING,
            "needs": State.SKIPPED,
            "after": State.SUCCEEDED,
        }
        assert turn.call("d").stuck
        assert turn.call("d").ended == pytest.approx(play.began + 6)
        (stuck,) = engine.status().stuck
        assert (stuck.run, stuck.call, stuck.tool) == (NAME, "t1.1", "deaf")
        assert stuck.age_seconds == pytest.approx(4)
        assert engine.status().stuck_threads == 0
        await turn.wait()
        return turn

    turn = play.run(main, tools)

    stopped = play.stage.of("deaf").span.end
    assert stopped == play.began + 20
    assert turn.call("same").started == stopped
    for name in ("same", "above", "below"):
        assert turn.call(name).state is State.SUCCEEDED
    told = failure(turn, "d")
    assert told.message == (
        "The call did not end within its limit of 5 s. The tool has not stopped: it may still be "
        "working. It may have had its effect, or part of it."
    )
    assert told.happened is Happened.UNKNOWN
    assert turn.call("d").late == "late"
    assert not turn.call("d").stuck
    assert [fact.stopped for fact in play.facts(CallEnded, "t1.1")] == [False]


def test_a_stuck_read_says_that_it_still_works_and_can_have_changed_nothing() -> None:
    play = Play()
    tools = [play.tool("deaf", deaf(20), timeout=5)]

    turn = play.turn(plan(call("d", "deaf")), tools, lingers=20)

    told = failure(turn, "d")
    assert told.message == (
        "The call did not end within its limit of 5 s. The tool has not stopped: it may still be "
        "working."
    )
    assert (told.happened, told.retry) == (Happened.NOTHING, True)


@pytest.mark.parametrize(
    ("value", "late"),
    [
        ("done", "done"),
        ("x" * 5000, "x" * 4000 + "… (1000 more characters)"),
        ("half \ud83d", "half \ufffd"),
        ({"a": 1}, "returned dict"),
        (None, "returned NoneType"),
        (ValueError("boom"), "raised ValueError: boom"),
        (ValueError(), "raised ValueError"),
        (SystemExit(3), "raised SystemExit: 3"),
        (asyncio.CancelledError(), "raised CancelledError"),
    ],
)
def test_what_a_stuck_body_still_comes_to_is_kept_in_short_and_changes_nothing(
    value: Any, late: str, tmp_path: Path
) -> None:
    play = Play(store=SqliteStore(tmp_path / "runs.db"))
    tools = [play.tool("deaf", deaf(20, value), timeout=5)]

    async def main(_: Engine, run: Run) -> Turn:
        turn = await run.submit(plan(call("d", "deaf")))
        messages = turn.messages
        assert turn.call("d").late == ""
        await asyncio.sleep(20)
        await run.say("go on")  # Behind whatever was written of the body.
        assert turn.messages == messages
        return turn

    assert play.run(main, tools).call("d").late == late


# Threads that will not stop


def test_stuck_threads_are_replaced_up_to_their_number_and_those_beyond_are_not() -> None:
    play = Play()
    tools = [
        play.tool("block", Block(50), Log("{n}"), Return("late {n}"), sync=True, timeout=1),
        play.tool("quick", Return("ok"), sync=True),
    ]
    reply = plan(
        *(call(f"b{n}", "block", arguments={"n": n}) for n in range(3)),
        call("q", "quick", after=["b0", "b1", "b2"]),
    )

    async def main(engine: Engine, run: Run) -> Turn:
        turn = await run.submit(reply, wait=False)
        await asyncio.sleep(10)
        assert engine.status().stuck_threads == 3
        assert [one.call for one in engine.status().stuck] == ["t1.1", "t1.2", "t1.3"]
        assert turn.call("q").state is State.QUEUED
        await turn.wait()
        return turn

    turn = play.run(main, tools, lingers=3, limits=Limits(tool_threads=1, stuck_threads=2))

    assert set(states(turn).values()) == {State.TIMED_OUT, State.SUCCEEDED}
    began = [play.stage.of("block", n=n).start - play.began for n in range(3)]
    assert began == [0, 1, 2], "two were replaced, one after the other"
    assert play.stage.of("quick").start - play.began == 50, "when the first has come back"
    assert [turn.call(f"b{n}").late for n in range(3)] == ["late 0", "late 1", "late 2"]


def test_a_stuck_thread_is_replaced_late_when_another_one_has_come_back() -> None:
    """One that never ends counts against the threads only as long as too many are stuck."""
    play = Play()
    tools = [
        play.tool("short", Block(10), sync=True, timeout=1),
        play.tool("long", Block(1000), sync=True, timeout=1),
        play.tool("quick", Return("ok"), sync=True),
    ]

    async def main(engine: Engine, run: Run) -> Turn:
        async with engine.run("other") as other:
            await run.submit(plan(call("s", "short")))
            await other.submit(plan(call("l", "long")))
            assert engine.status().stuck_threads == 2
            turn = await run.submit(plan(call("q", "quick")))
            assert engine.status().stuck_threads == 1
        return turn

    turn = play.run(main, tools, lingers=1000, limits=Limits(tool_threads=1, stuck_threads=1))

    assert states(turn) == {"q": State.SUCCEEDED}
    assert play.stage.of("quick").start - play.began == 10


def test_stuck_threads_that_are_never_replaced_hold_up_the_next_until_they_end() -> None:
    play = Play()
    tools = [
        play.tool("block", Block(20), sync=True, timeout=1),
        play.tool("quick", Return("ok"), sync=True),
        play.tool("task", Return("ok")),
    ]

    turn = play.turn(
        plan(call("b", "block"), call("q", "quick", after=["b"]), call("t", "task", after=["b"])),
        tools,
        limits=Limits(tool_threads=1, stuck_threads=0),
    )

    assert play.stage.of("task").start - play.began == 1
    assert play.stage.of("quick").start - play.began == 20
    assert states(turn) == {"b": State.TIMED_OUT, "q": State.SUCCEEDED, "t": State.SUCCEEDED}


def test_a_call_that_waits_for_a_stuck_thread_ends_with_its_turn() -> None:
    play = Play()
    tools = [
        play.tool("block", Block(500), sync=True, timeout=1),
        play.tool("quick", Return("ok"), sync=True),
    ]

    turn = play.turn(
        plan(call("b", "block"), call("q", "quick", after=["b"])),
        tools,
        lingers=500,
        limits=Limits(tool_threads=1, stuck_threads=0, turn_seconds=60),
    )

    assert states(turn) == {"b": State.TIMED_OUT, "q": State.CANCELLED}
    assert failure(turn, "q").code is Code.TIMEOUT
    assert play.lasted == 60


def test_a_thread_is_told_by_its_context_and_may_stop_of_its_own_accord() -> None:
    play = Play()
    seen: list[bool] = []

    def patient(context: ToolContext) -> str:
        assert play.stage.clock is not None
        while not context.cancelled:
            seen.append(context.cancelled)
            play.stage.clock.block(1)
        return "stopped early"

    tools = [
        Tool.of(patient, name="patient", effect=Effect.WRITE, claims=["lane:x"]),
        play.tool("next", Return("ok"), claims=["lane:x"]),
    ]

    async def main(_: Engine, run: Run) -> Turn:
        turn = await run.submit(plan(call("p", "patient"), call("n", "next")), wait=False)
        await asyncio.sleep(2.5)
        await run.cancel("p")
        assert turn.call("p").stuck
        await turn.wait()
        return turn

    turn = play.run(main, tools)

    assert seen == [False, False, False]
    assert turn.call("p").late == "stopped early"
    assert turn.call("n").started == play.began + 3


def test_a_thread_that_ends_as_it_is_told_ends_once() -> None:
    """Its result is on its way to the loop when its limit passes."""
    for seconds in (0.99999, 1.0, 1.00001):
        play = Play()
        tools = [play.tool("block", Block(seconds), Return("x"), sync=True, timeout=1)]

        turn = play.turn(plan(call("b", "block")), tools, lingers=1)

        assert states(turn)["b"] in (State.SUCCEEDED, State.TIMED_OUT)
        assert len(play.facts(CallEnded)) == 1


def test_threads_are_used_again_and_go_home_with_their_engine() -> None:
    play = Play()
    names: set[str] = set()
    tools = [
        play.tool(
            "work",
            Do(lambda _: names.add(threading.current_thread().name)),
            Return("ok"),
            sync=True,
        )
    ]

    play.turn(
        plan(*(call(f"c{n}", "work") for n in range(50))), tools, limits=Limits(tool_threads=3)
    )

    assert 1 <= len(names) <= 3
    assert all(name.startswith("laneway-tool") for name in names)


def test_a_thread_whose_loop_is_gone_ends_in_silence(recwarn: pytest.WarningsRecorder) -> None:
    go = threading.Event()

    async def main() -> None:
        ToolThreads(VirtualClock()).run(lambda: go.wait(WAIT_SECONDS))

    run_virtual(main)
    go.set()
    assert_no_tool_threads()

    assert list(recwarn) == []


def test_closed_threads_end_idle_ones_at_once_and_busy_ones_with_their_work() -> None:
    go = threading.Event()

    async def main() -> None:
        threads = ToolThreads(VirtualClock())
        assert (await threads.run(lambda: 1)).value == 1  # type: ignore[union-attr]
        busy, failing = threads.run(lambda: go.wait(WAIT_SECONDS)), threads.run(lambda: 1 / 0)
        assert repr((await failing).error) == "ZeroDivisionError('division by zero')"  # type: ignore[union-attr]
        threads.close()
        busy.cancel()
        go.set()
        await asyncio.to_thread(assert_no_tool_threads)

    run_virtual(main)


def test_threads_go_home_though_the_loop_stops_before_it_hears_that_they_are_done() -> None:
    async def main() -> None:
        threads = ToolThreads(VirtualClock())
        for _ in range(8):
            threads.run(lambda: None)
        threads.close()

    for _ in range(20):
        run_virtual(main)
        assert_no_tool_threads()


def test_bodies_see_the_context_variables_of_whoever_submitted_and_not_of_each_other() -> None:
    request: ContextVar[str] = ContextVar("request", default="none")
    seen: list[str] = []

    def look(_: Any) -> None:
        seen.append(request.get())
        request.set("changed by a body")

    play = Play()
    tools = [play.tool("task", Do(look)), play.tool("thread", Do(look), sync=True)]

    async def main(_: Engine, run: Run) -> None:
        for name in ("first", "second"):
            request.set(name)
            await run.submit(
                plan(
                    call("a", "task"),
                    call("b", "task", needs=["a"]),
                    call("c", "thread", needs=["b"]),
                    call("d", "thread", needs=["c"]),
                )
            )
        assert request.get() == "second"

    play.run(main, tools)

    assert seen == ["first"] * 4 + ["second"] * 4


# Retries and back-off


def test_a_passing_fault_of_a_repeatable_tool_is_tried_again_with_growing_pauses() -> None:
    play = Play()
    attempts: list[int] = []

    async def flaky(context: ToolContext) -> str:
        attempts.append(context.attempt)
        if context.attempt < 5:
            raise ConnectionResetError(f"gone {context.attempt}")
        return "ok"

    tools = [Tool.of(flaky, name="flaky", effect=Effect.READ, retries=4)]

    turn = play.turn(plan(call("f", "flaky")), tools, limits=Limits(back_off_seconds=2))

    assert states(turn) == {"f": State.SUCCEEDED}
    assert attempts == [1, 2, 3, 4, 5]
    assert turn.call("f").attempt == 5
    moves = play.facts((CallQueued, CallStarted, AttemptEnded, CallEnded))
    assert [type(fact) for fact in moves] == [
        *[CallQueued, CallStarted, AttemptEnded] * 4,
        CallQueued,
        CallStarted,
        CallEnded,
    ]
    assert [fact.attempt for fact in play.facts(CallStarted)] == [1, 2, 3, 4, 5]
    ended = play.facts(AttemptEnded)
    assert [fact.attempt for fact in ended] == [1, 2, 3, 4]
    assert ended[0].cause == "ConnectionResetError: gone 1"
    for fact, pause in zip(ended, (2, 4, 8, 16), strict=True):
        assert 0.8 * pause <= fact.delay_seconds <= 1.2 * pause
    assert play.lasted == pytest.approx(sum(fact.delay_seconds for fact in ended))
    tokens = [fact.token for fact in play.facts(CallStarted)]
    assert tokens == sorted(set(tokens))


def test_attempts_come_to_an_end_and_the_last_fault_is_told() -> None:
    play = Play()
    tools = [play.tool("flaky", Raise(TimeoutError("no answer")), retries=2)]

    turn = play.turn(plan(call("f", "flaky")), tools)

    assert states(turn) == {"f": State.FAILED}
    assert play.stage.entered == {"flaky": 3}
    told = failure(turn, "f")
    assert told.code is Code.TOOL_ERROR
    assert told.message == "flaky raised TimeoutError: no answer"
    assert told.retry


REFUSED = ConnectionRefusedError(111, "refused")


@pytest.mark.parametrize(
    ("effect", "idempotent", "error", "entered", "state"),
    [
        (Effect.EXTERNAL, False, GONE, 1, State.UNCERTAIN),
        (Effect.EXTERNAL, False, REFUSED, 1, State.FAILED),
        (Effect.EXTERNAL, True, GONE, 4, State.FAILED),
        (Effect.WRITE, False, TimeoutError(), 1, State.UNCERTAIN),
        (Effect.WRITE, True, InterruptedError(), 4, State.FAILED),
        (Effect.READ, None, ValueError("wrong"), 1, State.FAILED),
        (Effect.READ, None, asyncio.CancelledError(), 1, State.FAILED),
        (Effect.READ, None, SystemExit(1), 1, State.FAILED),
        (Effect.PURE, None, REFUSED, 4, State.FAILED),
        (Effect.READ, None, ExceptionGroup("one", [GONE]), 4, State.FAILED),
        (Effect.EXTERNAL, False, ExceptionGroup("one", [GONE]), 1, State.UNCERTAIN),
        (Effect.READ, None, ExceptionGroup("two", [GONE, GONE]), 1, State.FAILED),
    ],
)
@pytest.mark.parametrize("sync", [False, True])
def test_only_passing_faults_of_what_may_be_repeated_are_tried_again(
    effect: Effect,
    idempotent: bool | None,
    error: BaseException,
    entered: int,
    state: State,
    *,
    sync: bool,
) -> None:
    play = Play()
    tools = [
        play.tool("work", Raise(error), effect=effect, idempotent=idempotent, retries=3, sync=sync)
    ]

    turn = play.turn(plan(call("w", "work")), tools)

    assert states(turn) == {"w": state}
    assert play.stage.entered == {"work": entered}
    assert len(play.facts(CallStarted)) == entered
    assert len(play.facts(AttemptEnded)) == entered - 1


def test_a_call_that_met_its_limit_is_not_tried_again() -> None:
    play = Play()
    tools = [play.tool("slow", Sleep(10), timeout=1, retries=3)]

    turn = play.turn(plan(call("s", "slow")), tools)

    assert states(turn) == {"s": State.TIMED_OUT}
    assert play.stage.entered == {"slow": 1}


def test_each_attempt_has_the_whole_limit_and_the_last_one_may_meet_it() -> None:
    play = Play()
    tries: list[float] = []

    async def flaky(_: Any) -> str:
        tries.append(now())
        await asyncio.sleep(0.9 * len(tries))
        raise GONE

    tools = [
        play.tool(
            "flaky",
            Do(flaky),
            timeout=2,
            retries=9,
            effect=Effect.WRITE,
            idempotent=True,
            claims=[],
        )
    ]

    turn = play.turn(plan(call("f", "flaky")), tools)

    assert states(turn) == {"f": State.TIMED_OUT}
    assert len(tries) == 3
    assert failure(turn, "f").happened is Happened.UNKNOWN


def test_a_call_that_backs_off_frees_its_claims_and_goes_to_the_end_of_the_queue() -> None:
    play = Play()
    tools = [
        play.tool("flaky", Log("flaky"), fail_times(1), retries=1, claims=["lane:x"]),
        play.tool("work", Log("work {n}"), Sleep(6), Return("ok"), claims=["lane:x"]),
    ]
    reply = plan(
        call("f", "flaky"),
        *(call(f"w{n}", "work", arguments={"n": n}) for n in range(2)),
        call("late", "work", arguments={"n": 2}, needs=["w0"]),
    )

    turn = play.turn(reply, tools)

    assert set(states(turn).values()) == {State.SUCCEEDED}
    assert play.stage.log == ["flaky", "work 0", "work 1", "flaky", "work 2"]


def test_what_conflicts_with_a_call_that_backs_off_keeps_waiting() -> None:
    play = Play()
    tools = [
        play.tool(
            "put",
            Log("put"),
            fail_times(2),
            effect=Effect.WRITE,
            idempotent=True,
            retries=2,
            claims=["write file:{path}"],
        ),
        play.tool("read", Log("read {path}"), claims=["read file:{path}"]),
    ]

    turn = play.turn(
        plan(
            call("p", "put", arguments={"path": "a"}),
            call("r", "read", arguments={"path": "a"}),
            call("s", "read", arguments={"path": "b"}),
        ),
        tools,
    )

    assert set(states(turn).values()) == {State.SUCCEEDED}
    assert play.stage.log == ["put", "read b", "put", "put", "read a"]


@pytest.mark.parametrize("place", ["backing off", "queued", "starting"])
def test_the_end_of_a_call_between_attempts_says_that_it_had_been_started(place: str) -> None:
    play = Play()
    tools = [
        play.tool(
            "put",
            fail_times(1),
            effect=Effect.WRITE,
            idempotent=True,
            retries=1,
            claims=["lane:x"],
        ),
        play.tool("hold", Sleep(30), Return("ok"), claims=["lane:x"]),
    ]

    async def main(_: Engine, run: Run) -> Turn:
        gate, reached = asyncio.Event(), asyncio.Event()

        async def hold(_: int, rows: Sequence[Row]) -> None:
            if any(isinstance(one.fact, CallStarted) and one.fact.attempt == 2 for one in rows):
                reached.set()
                await gate.wait()

        play.store.before = hold
        calls = [call("p", "put"), *[call("h", "hold")] * (place == "queued")]
        turn = await run.submit(plan(*calls), wait=False)
        if place == "starting":
            await reached.wait()
        else:
            await asyncio.sleep(0.5 if place == "backing off" else 2)
            found = State.BACKING_OFF if place == "backing off" else State.QUEUED
            assert turn.call("p").state is found
        cancelling = asyncio.create_task(run.cancel("p"))
        await passes(5)
        gate.set()
        await cancelling
        await turn.wait()
        return turn

    turn = play.run(main, tools)

    told = failure(turn, "p")
    assert turn.call("p").state is State.CANCELLED
    assert told.happened is Happened.UNKNOWN
    assert "had not been started" not in told.message
    assert "may have had its effect" in told.message
    assert play.stage.entered["put"] == 1


# Failures touch only what depends on them

CHAIN = 5000


@pytest.mark.parametrize("order", ["root first", "root last"])
@pytest.mark.parametrize("ends", ["fails", "is cancelled", "times out", "is denied"])
def test_a_chain_of_thousands_is_skipped_and_names_its_root(order: str, ends: str) -> None:
    play = Play(at_once=True)
    tools = [
        play.tool("fails", Raise(ValueError("boom"))),
        play.tool("slow", Sleep(99)),
        play.tool("limited", Sleep(99), timeout=1),
        play.tool("asks", approval=True),
        play.tool("work", Return("ok")),
    ]
    root = {"fails": "fails", "is cancelled": "slow", "times out": "limited", "is denied": "asks"}
    calls = [
        call("c0", root[ends]),
        *(call(f"c{n}", "work", needs=[f"c{n - 1}"]) for n in range(1, CHAIN)),
        call("free", "work"),
    ]
    if order == "root last":
        calls.reverse()

    async def main(_: Engine, run: Run) -> Turn:
        submitting = asyncio.create_task(run.submit(plan(*calls)))
        await asyncio.sleep(0.5)
        if ends == "is cancelled":
            await run.cancel("c0")
        elif ends == "is denied":
            await run.deny("c0")
        return await submitting

    turn = play.run(main, tools)

    ended = Counter(states(turn).values())
    assert ended[State.SKIPPED] == CHAIN - 1
    assert states(turn)["free"] is State.SUCCEEDED
    root_id = turn.call("c0").id
    told = turn.outcomes
    causes = [told[f"c{n}"].cause for n in range(1, CHAIN)]  # type: ignore[union-attr]
    assert set(causes) == {root_id}
    last = failure(turn, f"c{CHAIN - 1}").message
    assert last.startswith(f"Not started, because c{CHAIN - 2} (and before it c0) ended ")


def test_a_chain_of_thousands_that_only_keeps_an_order_runs_to_its_end() -> None:
    play = Play(at_once=True)
    tools = [play.tool("fails", Raise(ValueError("boom"))), play.tool("work", Return("ok"))]
    calls = [
        call(f"c{n}", "work" if n % 2 else "fails", after=[f"c{n - 1}"] if n else [])
        for n in range(CHAIN)
    ]

    turn = play.turn(plan(*calls), tools)

    ended = Counter(states(turn).values())
    assert ended == {State.SUCCEEDED: CHAIN / 2, State.FAILED: CHAIN / 2}


def test_a_fan_of_thousands_behind_a_failure_is_skipped_and_its_neighbours_run() -> None:
    play = Play(at_once=True)
    tools = [
        play.tool("fails", Sleep(1), Raise(ValueError("boom"))),
        play.tool("work", Sleep(1), Return("ok")),
    ]
    calls = [
        call("bad", "fails"),
        call("good", "work"),
        *(call(f"b{n}", "work", needs=["bad", "good"]) for n in range(CHAIN)),
        *(call(f"g{n}", "work", needs=["good"], after=["bad"]) for n in range(100)),
        call("join", "work", needs=[f"b{n}" for n in range(CHAIN)]),
    ]

    turn = play.turn(plan(*calls), tools)

    ended = Counter(states(turn).values())
    assert ended == {State.FAILED: 1, State.SUCCEEDED: 101, State.SKIPPED: CHAIN + 1}
    assert failure(turn, "join").cause == turn.call("bad").id


def test_what_needs_two_that_fail_is_skipped_once() -> None:
    play = Play()
    tools = [play.tool("fails", Raise(ValueError("boom"))), play.tool("work", Return("ok"))]

    turn = play.turn(
        plan(
            call("a", "fails"),
            call("b", "fails"),
            call("c", "work", needs=["a", "b"], after=["a"]),
            call("d", "work", needs=["c", "a"]),
        ),
        tools,
    )

    assert [fact.call for fact in play.facts(CallEnded)].count(turn.call("c").id) == 1
    assert states(turn)["d"] is State.SKIPPED
    assert failure(turn, "d").cause in (turn.call("a").id, turn.call("b").id)


# What tools may raise


class UnspeakableError(ConnectionError):
    """What it says raises."""

    def __str__(self) -> str:
        raise SystemExit(9)


class WrongOS(OSError):
    pass


RAISED: dict[str, tuple[BaseException, str]] = {
    "cancel": (asyncio.CancelledError("me"), "CancelledError: me"),
    "generator exit": (GeneratorExit(), "GeneratorExit"),
    "exit": (SystemExit(3), "SystemExit: 3"),
    "base": (BaseException("bare"), "BaseException: bare"),
    "stop async": (StopAsyncIteration(), "StopAsyncIteration"),
    "memory": (MemoryError(), "MemoryError"),
    "surrogate": (ValueError("half \ud83d"), "ValueError: half \ufffd"),
    "long": (ValueError("x" * 9000), "ValueError: " + "x" * 4000 + "… (5000 more characters)"),
    "group of one": (ExceptionGroup("g", [ValueError("inner")]), "ValueError: inner"),
    "group in group": (
        ExceptionGroup("g", [ExceptionGroup("h", [ValueError("inner")])]),
        "ValueError: inner",
    ),
    "group of exits": (BaseExceptionGroup("g", [SystemExit(1)]), "SystemExit: 1"),
    "group of two": (
        BaseExceptionGroup("g", [ValueError("one"), SystemExit(2)]),
        "BaseExceptionGroup of ValueError: one; SystemExit: 2",
    ),
    "group of many": (
        ExceptionGroup("g", [ValueError(str(n)) for n in range(20)]),
        "ExceptionGroup of " + "; ".join(f"ValueError: {n}" for n in range(8)) + "; and 12 more",
    ),
    "unspeakable": (
        UnspeakableError(),
        "UnspeakableError: (what it says cannot be read: that raised SystemExit)",
    ),
}


@pytest.mark.parametrize("what", RAISED)
@pytest.mark.parametrize("form", ["task", "thread", "awaited in a thread's result"])
def test_whatever_a_tool_raises_is_its_failure_and_its_neighbours_go_on(
    what: str, form: str, tmp_path: Path
) -> None:
    error, text = RAISED[what]
    play = Play(store=SqliteStore(tmp_path / "runs.db"))

    async def raise_later(_: Any) -> None:
        await asyncio.sleep(0)
        raise error

    body = Raise(error) if form != "awaited in a thread's result" else Do(raise_later)
    tools = [
        play.tool("bad", body, sync=form != "task"),
        play.tool("good", Sleep(1), Return("ok")),
    ]

    turn = play.turn(
        plan(call("b", "bad"), call("n", "good", needs=["b"]), call("g", "good")), tools
    )

    assert states(turn) == {"b": State.FAILED, "n": State.SKIPPED, "g": State.SUCCEEDED}
    assert failure(turn, "b").code is Code.TOOL_ERROR
    assert failure(turn, "b").message == f"bad raised {text}"


def test_a_stop_iteration_is_a_failure_like_any_other() -> None:
    play = Play()
    tools = [
        play.tool("task", Raise(StopIteration("over"))),
        play.tool("thread", Raise(StopIteration("over")), sync=True),
    ]

    turn = play.turn(plan(call("a", "task"), call("b", "thread")), tools)

    assert set(states(turn).values()) == {State.FAILED}


def test_a_group_is_named_by_what_it_holds_however_deep() -> None:
    error: BaseException = ValueError("inner")
    for _ in range(5000):
        inner: list[BaseException] = [error]
        error = BaseExceptionGroup("deeper", inner)
    interrupt = KeyboardInterrupt()
    held: list[BaseException] = [ValueError(), BaseExceptionGroup("in", [interrupt])]
    both = BaseExceptionGroup("both", held)

    assert str(core(error)) == "inner"
    assert core(both) is interrupt
    assert core(interrupt) is interrupt
    assert exception_text(both) == "BaseExceptionGroup of ValueError; KeyboardInterrupt"

    play = Play()
    turn = play.turn(plan(call("deep")), [play.tool("deep", Raise(error))])

    assert failure(turn, "deep").message == "deep raised ValueError: inner"


def test_somebody_who_cancels_the_engines_tasks_ends_calls_and_hangs_nobody() -> None:
    """Also those that have been started and not yet entered, without any limit to end them."""
    limits = Limits(call_seconds=math.inf, turn_seconds=math.inf)
    for pause in range(20):
        play = Play()
        tools = [
            play.tool("work", Sleep(0), Sleep(3), Return("ok"), effect=Effect.WRITE, claims=[]),
            play.tool("block", Block(3), Return("ok"), sync=True, claims=["lane:x"]),
            play.tool("next", Return("ok"), claims=["lane:x"]),
        ]

        async def main(_: Engine, run: Run, pause: int = pause) -> Turn:
            reply = plan(call("w", "work"), call("b", "block"), call("n", "next", after=["b"]))
            submitting = asyncio.create_task(run.submit(reply))
            await passes(pause)
            for task in others():
                if isinstance(task, _BodyTask) or task.get_name() == "laneway-journal":
                    task.cancel()
            return await submitting

        turn = play.run(main, tools, lingers=4, limits=limits)

        assert states(turn)["w"] in (State.SUCCEEDED, State.CANCELLED)
        assert play.stage.entered["work"] <= 1
        for name, outcome in turn.outcomes.items():
            if isinstance(outcome, Failure):
                assert "the event loop is closing" in outcome.message, name
        blocked = [one for one in play.stage.executions if one.tool == "block"]
        for one in blocked:
            assert play.stage.of("next").start >= one.span.end, "the thread kept its lane"


def test_a_tool_that_cancels_its_own_task_is_cancelled() -> None:
    play = Play()

    async def give_in(_: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(1)

    turn = play.turn(plan(call("g", "give")), [play.tool("give", Do(give_in))])

    assert states(turn) == {"g": State.CANCELLED}


def test_a_body_may_survive_a_cancel_from_outside() -> None:
    play = Play()
    tools = [play.tool("deaf", deaf(5, "done"))]

    async def main(_: Engine, run: Run) -> Turn:
        turn = await run.submit(plan(call("d", "deaf")), wait=False)
        await asyncio.sleep(1)
        for task in others():
            task.cancel()
        await turn.wait()
        return turn

    turn = play.run(main, tools)

    assert turn.outcomes == {"d": Success(value="done")}


# Functions that give back something to be awaited


class Awaitable3:
    """Awaitable, and no coroutine."""

    def __await__(self) -> Any:
        yield from asyncio.sleep(3).__await__()
        return "three"


@pytest.mark.parametrize(
    ("give", "value"),
    [
        (lambda _: asyncio.sleep(3, "three"), "three"),
        (lambda _: Awaitable3(), "three"),
    ],
    ids=["coroutine", "object"],
)
def test_what_a_function_gives_back_to_be_awaited_is_awaited(
    give: Callable[[Any], Any], value: str
) -> None:
    play = Play()
    tools = [play.tool("lazy", Do(give), sync=True)]

    turn = play.turn(plan(call("l", "lazy")), tools)

    assert turn.outcomes == {"l": Success(value=value)}
    assert play.lasted == 3


def test_what_is_awaited_of_a_function_meets_limits_and_cancels_like_any_body() -> None:
    play = Play()
    log: list[str] = []

    async def later(n: int) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            log.append(f"stopped {n}")

    tools = [play.tool("lazy", Do(lambda given: later(given["n"])), sync=True, timeout=2)]

    async def main(_: Engine, run: Run) -> Turn:
        turn = await run.submit(
            plan(*(call(f"c{n}", "lazy", arguments={"n": n}) for n in range(2))), wait=False
        )
        await asyncio.sleep(1)
        await run.cancel("c0")
        await turn.wait()
        return turn

    turn = play.run(main, tools)

    assert states(turn) == {"c0": State.CANCELLED, "c1": State.TIMED_OUT}
    assert log == ["stopped 0", "stopped 1"]
    assert play.facts(HolderStopped) == []


def test_what_a_thread_gives_back_after_its_call_has_ended_is_not_entered_any_more() -> None:
    play = Play()
    log: list[str] = []

    async def second_half() -> None:
        log.append("entered")

    for give in (lambda _: second_half(), lambda _: Awaitable3()):
        tools = [
            play.tool("lazy", Block(3), Do(give), sync=True, timeout=1, effect=Effect.EXTERNAL)
        ]

        async def main(_: Engine, run: Run) -> Turn:
            turn = await run.submit(plan(call("l", "lazy")))
            await asyncio.sleep(5)
            assert not turn.call("l").stuck
            return turn

        turn = play.run(main, tools)
        gc.collect()

        assert states(turn) == {"l": State.TIMED_OUT}
        assert turn.call("l").late == "raised CancelledError"
    assert log == []


def test_a_coroutine_that_a_body_returns_too_late_is_dropped_without_a_warning() -> None:
    play = Play()

    async def inner() -> None:
        raise AssertionError("nobody awaits it")

    async def odd(_: Any) -> Any:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            return [inner()].pop()

    async def body(**_: Any) -> Any:
        return await odd(None)

    odd_tool = Tool.from_schema(
        body, name="odd", schema={"type": "object"}, effect=Effect.READ, timeout=1
    )

    turn = play.turn(plan(call("o", "odd")), [odd_tool])
    gc.collect()

    assert states(turn) == {"o": State.TIMED_OUT}
    assert turn.call("o").late == "returned a coroutine that nobody awaited"


# KeyboardInterrupt and SystemExit


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), BaseExceptionGroup("g", [KeyboardInterrupt()])]
)
def test_a_keyboard_interrupt_from_a_tool_leaves_once_the_final_states_are_kept(
    error: BaseException, *, sync: bool
) -> None:
    play = Play()
    tools = [
        play.tool("ctrl_c", Raise(error), sync=sync, effect=Effect.WRITE, claims=[]),
        play.tool("slow", tidy(0.5), effect=Effect.WRITE, claims=["lane:x"]),
        play.tool("next", Log("next"), claims=["lane:x"]),
        play.tool("ask", approval=True),
        play.tool("done", Return("ok")),
    ]
    reply = plan(
        call("done"),
        call("slow"),
        call("queued", "next"),
        call("ask"),
        call("c", "ctrl_c", after=["done"]),
        call("after", "next", after=["c"]),
        call("needs", "next", needs=["c"]),
    )

    async def main(_: Engine, run: Run) -> None:
        with pytest.raises(KeyboardInterrupt):
            await run.submit(reply)
        assert run.turns[0].ready

    play.run(main, tools)

    view = fold(NAME, play.journal.facts[NAME])
    ended = {one.record.provider_id: one.state for one in view.calls.values()}
    assert ended == {
        "done": State.SUCCEEDED,
        "slow": State.CANCELLED,
        "queued": State.CANCELLED,
        "ask": State.CANCELLED,
        "c": State.CANCELLED,
        "after": State.CANCELLED,
        "needs": State.SKIPPED,
    }
    assert "the user interrupted the program" in str(view.calls[view.turns[0].calls[4].id].outcome)
    assert play.stage.log == []
    assert view.turns[0].closed


def test_a_keyboard_interrupt_leaves_the_whole_program_with_everything_written_down() -> None:
    play = Play()
    tools = [
        play.tool("ctrl_c", Sleep(1), Raise(KeyboardInterrupt())),
        play.tool("slow", Sleep(50)),
    ]

    async def main(_: Engine, run: Run) -> None:
        await run.submit(plan(call("c", "ctrl_c"), call("s", "slow")))

    with pytest.raises(KeyboardInterrupt):
        play.run(main, tools)

    assert len(play.facts(TurnClosed)) == 1
    assert {fact.state for fact in play.facts(CallEnded)} == {State.CANCELLED}


@pytest.mark.parametrize("times_out", [False, True])
def test_a_keyboard_interrupt_of_a_body_that_was_told_to_stop_is_not_lost(
    *, times_out: bool
) -> None:
    play = Play()

    async def interrupted(_: Any) -> None:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    tools = [
        play.tool("body", Do(interrupted), timeout=2 if times_out else 20),
        play.tool("slow", Sleep(50)),
    ]

    async def main(_: Engine, run: Run) -> Turn:
        submitting = asyncio.create_task(
            run.submit(plan(call("b", "body"), call("s", "slow")), wait=False)
        )
        turn = await submitting
        await asyncio.sleep(1)
        if not times_out:
            await run.cancel("b")
        with pytest.raises(KeyboardInterrupt):
            await turn.wait()
        return turn

    turn = play.run(main, tools)

    assert states(turn)["b"] is (State.TIMED_OUT if times_out else State.CANCELLED)
    assert states(turn)["s"] is State.CANCELLED


@pytest.mark.parametrize("then", ["leave", "submit", "wait"])
def test_a_keyboard_interrupt_that_nobody_waits_for_leaves_at_the_next_occasion(then: str) -> None:
    play = Play()
    tools = [
        play.tool("ctrl_c", Sleep(1), Raise(KeyboardInterrupt())),
        play.tool("slow", Sleep(50), timeout=60),
    ]

    async def main(_: Engine, run: Run) -> None:
        turn = await run.submit(plan(call("c", "ctrl_c"), call("s", "slow")), wait=False)
        await asyncio.sleep(2)
        assert set(states(turn).values()) == {State.CANCELLED}
        assert turn.ready
        if then == "submit":
            await run.submit(plan(call("s", "slow")))
        elif then == "wait":
            await turn.wait()

    with pytest.raises(KeyboardInterrupt):
        play.run(main, tools)

    assert play.stage.entered["slow"] == 1
    assert len(play.facts(TurnClosed)) == 1


def test_a_keyboard_interrupt_out_of_a_stuck_body_stops_what_runs_by_then() -> None:
    play = Play()
    tools = [
        play.tool("deaf", deaf(10, KeyboardInterrupt()), timeout=1),
        play.tool("slow", Sleep(50)),
    ]

    async def main(_: Engine, run: Run) -> None:
        first = await run.submit(plan(call("d", "deaf")))
        assert states(first) == {"d": State.TIMED_OUT}
        with pytest.raises(KeyboardInterrupt):
            await run.submit(plan(call("s", "slow")))
        assert states(run.turns[1]) == {"s": State.CANCELLED}
        assert states(run.turns[0]) == {"d": State.TIMED_OUT}

    play.run(main, tools)

    assert play.lasted == 10


def test_a_keyboard_interrupt_in_one_run_leaves_another_to_its_host() -> None:
    play = Play()
    tools = [
        play.tool("ctrl_c", Sleep(1), Raise(KeyboardInterrupt()), claims=["lane:x"]),
        play.tool("work", Sleep(2), Return("ok"), claims=["lane:x"]),
    ]

    async def main(engine: Engine, run: Run) -> Turn:
        async with engine.run("other") as other:
            mine = await run.submit(plan(call("c", "ctrl_c"), call("w", "work")), wait=False)
            theirs = await other.submit(plan(call("w", "work")), wait=False)
            with pytest.raises(KeyboardInterrupt):
                await mine.wait()
            await theirs.wait()
            return theirs

    assert states(play.run(main, tools)) == {"w": State.SUCCEEDED}


# Leaving with things under way


@pytest.mark.parametrize("how", ["at its end", "by an exception", "by a cancel"])
def test_leaving_a_run_stops_what_runs_parks_what_waits_and_the_rest_goes_on_later(
    how: str,
) -> None:
    play = Play()
    tools, reply = everywhere(play)

    errors = {"by an exception": ValueError("the host's"), "by a cancel": asyncio.CancelledError()}

    async def main(engine: Engine, _: Run) -> None:
        async def host() -> None:
            async with engine.run("left") as run:
                await run.submit(reply, wait=False)
                await asyncio.sleep(1)
                if how in errors:
                    raise errors[how]

        if how in errors:
            with pytest.raises(type(errors[how])) as raised:
                await host()
            assert raised.value is errors[how]
        else:
            await host()
        await asyncio.sleep(10)

    play.run(main, tools, limits=SOON)
    name = RunId("left")

    view = fold(name, play.journal.facts[name])
    found = {one.record.provider_id: one.state for one in view.calls.values()}
    stopped = ["holder", "running", "lane", "in a thread", "thread", "backing off"]
    skipped = ["pending", "pending+"] + [f"{place}+" for place in PLACES if place in stopped]
    assert found == {
        **dict.fromkeys(stopped, State.CANCELLED),
        **dict.fromkeys(skipped, State.SKIPPED),
        "approval": State.AWAITING_APPROVAL,
        "approval+": State.PENDING,
        "sibling": State.PENDING,
    }
    told = view.turns[0].calls[1].outcome
    assert isinstance(told, Failure)
    assert told.message.startswith("The call was cancelled: the program left the run.")
    entered = play.stage.entered.copy()

    async def later(engine: Engine, _: Run) -> Turn | None:
        async with engine.run("left") as run:
            finishing = asyncio.create_task(run.finish())
            await asyncio.sleep(1)
            await run.approve("approval")
            return await finishing

    turn = play.run(later, tools, limits=SOON)

    assert turn is not None
    again = states(turn)
    assert [again[name] for name in ("approval", "approval+", "sibling")] == [State.SUCCEEDED] * 3
    assert {name: again[name] for name in [*stopped, *skipped]} == {
        name: found[name] for name in [*stopped, *skipped]
    }
    assert play.stage.entered - entered == {"asks": 1, "quick": 2}


def test_a_run_is_left_at_any_pass_of_the_loop_with_every_end_written_down() -> None:
    """What was being written down as started is cancelled, and never of unknown end."""
    for pause in range(40):
        play = Play()
        tools = [play.tool("pay", Sleep(0), effect=Effect.EXTERNAL, claims=["lane:x"])]
        reply = plan(*(call(f"c{n}", "pay", after=[f"c{n - 1}"] if n else []) for n in range(4)))

        async def main(engine: Engine, run: Run, pause: int = pause, reply: Any = reply) -> None:
            async with engine.run("other") as other:
                submitting = asyncio.create_task(run.submit(reply))
                await passes(pause)
                await run.__aexit__(None, None, None)
                await asyncio.wait([submitting])
                assert isinstance(submitting.exception(), EngineClosedError | None)
                turn = await other.submit(plan(call("c", "pay")))
                assert states(turn) == {"c": State.SUCCEEDED}

        play.run(main, tools)

        view = fold(NAME, play.journal.facts[NAME])
        for one in view.calls.values():
            assert one.state in (State.SUCCEEDED, State.CANCELLED, State.PENDING)


@pytest.mark.parametrize("ends", [2.0, 2.1, 2.2, 2.25, 2.3, 3.0])
def test_an_engine_is_left_while_a_stuck_body_of_a_left_run_comes_to_its_end(ends: float) -> None:
    play = Play()
    noise: list[Any] = []

    async def slow(_: int, rows: Sequence[Row]) -> None:
        if any(isinstance(one.fact, HolderStopped) for one in rows):
            await asyncio.sleep(0.2)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: noise.append(context))
        play.store.before = slow
        tools = [play.tool("deaf", deaf(2.1), timeout=1, claims=["lane:x"])]
        async with play.engine(tools, limits=Limits(grace_seconds=0.5)) as engine:
            async with engine.run(NAME) as run:
                began = now()
                await run.submit(plan(call("d", "deaf")))
            await asyncio.sleep(began + ends - now())
        await asyncio.sleep(5)
        assert others() == set()

    run_virtual(main)
    gc.collect()

    assert noise == []
    assert fold(NAME, play.journal.facts[NAME]).calls


def test_a_run_with_a_stuck_body_is_left_after_its_grace_and_free_when_the_body_has_stopped() -> (
    None
):
    play = Play()
    tools = [
        play.tool("deaf", deaf(10), effect=Effect.WRITE, claims=["lane:x"]),
        play.tool("next", Return("ok"), claims=["lane:x"]),
    ]

    async def main(engine: Engine, run: Run) -> None:
        await run.submit(plan(call("d", "deaf")), wait=False)
        await asyncio.sleep(1)
        left = now()
        await run.__aexit__(None, None, None)
        assert now() - left == pytest.approx(1, abs=0.11)
        assert [one.run for one in engine.status().stuck] == [NAME]
        with pytest.raises(RunOwnedError, match="leave the run there before it is taken again"):
            await engine.run(NAME).__aenter__()
        async with engine.run("other") as other:
            turn = await other.submit(plan(call("n", "next")))
            assert turn.call("n").started == play.began + 10
        await asyncio.sleep(0)
        async with engine.run(NAME) as again:
            assert again.turns[0].call("d").late == "late"
            assert failure(again.turns[0], "d").happened is Happened.UNKNOWN

    play.run(main, tools)


def test_a_run_that_is_left_twice_is_left_once() -> None:
    play = Play()

    async def main(_: Engine, run: Run) -> None:
        await run.__aexit__(None, None, None)
        await run.__aexit__(None, None, None)
        with pytest.raises(EngineClosedError):
            await run.submit(plan())

    play.run(main, [])


def test_leaving_can_be_cancelled_any_number_of_times_and_is_done_all_the_same() -> None:
    play = Play()
    tools = [play.tool("tidy", tidy(0.8), effect=Effect.WRITE), play.tool("deaf", deaf(5))]

    async def main(engine: Engine, run: Run) -> None:
        await run.submit(plan(call("t", "tidy"), call("d", "deaf")), wait=False)
        await asyncio.sleep(1)
        leaving = asyncio.create_task(run.__aexit__(None, None, None))
        for _n in range(5):
            await asyncio.sleep(0.1)
            leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        assert [one.call for one in engine.status().stuck] == ["t1.2"]

    play.run(main, tools, lingers=5)

    assert {fact.state for fact in play.facts(CallEnded)} == {State.CANCELLED}


def test_an_engine_that_is_left_with_stuck_bodies_goes_and_they_harm_nobody_afterwards() -> None:
    """A coroutine and a thread go on; the engine can be entered again meanwhile."""
    play = Play()
    tools = [
        play.tool("deaf", deaf(10, "deaf"), effect=Effect.EXTERNAL),
        play.tool("block", Block(10), sync=True, effect=Effect.EXTERNAL),
        play.tool("quick", Return("ok")),
    ]
    noise: list[Any] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: noise.append(context))
        engine = play.engine(tools, limits=Limits(call_seconds=1))
        async with engine, engine.run(NAME) as run:
            turn = await run.submit(plan(call("d", "deaf"), call("b", "block")))
            assert set(states(turn).values()) == {State.TIMED_OUT}
        assert now() < 1003
        async with engine, engine.run("next") as run:
            assert states(await run.submit(plan(call("q", "quick")))) == {"q": State.SUCCEEDED}
        await asyncio.sleep(20)
        async with engine, engine.run(NAME) as run:
            assert [one.stuck for one in run.turns[0].calls] == [False, False]
            assert_nothing_but(engine, NAME)
        assert others() == set()

    run_virtual(main)
    assert_no_tool_threads()

    assert noise == []


def assert_nothing_but(engine: Engine, run: RunId) -> None:
    assert engine.status().runs == (run,)
    assert len(engine.services.lanes) == 0


def test_a_loop_that_is_closed_under_stuck_bodies_ends() -> None:
    """asyncio.run cancels whatever is left and waits for it: that must not be for ever."""
    play = Play()
    go = threading.Event()

    def block(_: Any) -> None:
        assert play.stage.clock is not None
        play.stage.clock._loop.call_soon_threadsafe(play.stage.clock.release)
        go.wait(WAIT_SECONDS)

    tools = [play.tool("deaf", Do(swallow_once)), play.tool("block", Do(block), sync=True)]

    async def main() -> None:
        engine = play.engine(tools, limits=Limits(call_seconds=1))
        async with engine, engine.run(NAME) as run:
            turn = await run.submit(plan(call("d", "deaf"), call("b", "block")))
            assert set(states(turn).values()) == {State.TIMED_OUT}

    run_virtual(main)
    go.set()
    assert_no_tool_threads()


async def swallow_once(_: Any) -> None:
    """Swallow the engine's cancel, and give in to the loop's."""
    try:
        await asyncio.sleep(1000)
    except asyncio.CancelledError:
        await asyncio.sleep(1000)


def test_engines_and_runs_in_one_another_are_left_one_by_one() -> None:
    play = Play()
    tools = [play.tool("slow", Sleep(50), effect=Effect.WRITE, claims=["lane:x"])]

    async def main(engine: Engine, run: Run) -> None:
        inner = Play()
        async with inner.engine(tools) as other, other.run(NAME) as nested:
            async with engine.run("second") as second:
                for one in (run, nested, second):
                    await one.submit(plan(call("s", "slow")), wait=False)
                await asyncio.sleep(1)
                assert states(second.turns[0]) == {"s": State.QUEUED}
            assert states(nested.turns[0]) == {"s": State.RUNNING}
        assert states(run.turns[0]) == {"s": State.RUNNING}
        await asyncio.sleep(1)
        assert play.stage.entered == {"slow": 2}

    play.run(main, tools)


def test_whoever_waits_for_a_human_elsewhere_is_told_when_the_run_is_left() -> None:
    play = Play()
    tools = [play.tool("slow", Sleep(50)), play.tool("ask", approval=True)]

    async def main(_: Engine, run: Run) -> None:
        turn = await run.submit(plan(call("s", "slow"), call("a", "ask")), wait=False)
        waits = [asyncio.create_task(one) for one in (turn.wait(), run.finish())]
        await asyncio.sleep(1)
        await run.__aexit__(None, None, None)
        done = await asyncio.gather(*waits, return_exceptions=True)
        assert [type(outcome) for outcome in done] == [EngineClosedError] * 2
        assert states(turn) == {"s": State.CANCELLED, "a": State.AWAITING_APPROVAL}

    play.run(main, tools)


def test_a_turn_that_waits_for_a_human_is_no_turn_that_is_ready() -> None:
    play = Play()
    tools = [play.tool("ask", Return("ok"), approval=True)]

    async def main(_engine: Engine, run: Run) -> None:
        turn = await run.submit(plan(call("a", "ask")), wait=False)
        with pytest.raises(TurnNotReadyError):
            _ = turn.messages
        await turn.close()
        assert turn.ready
        assert "closed before a human answered" in failure(turn, "a").message

    play.run(main, tools)


def test_what_comes_only_after_something_that_closing_skips_runs_before_the_turn_is_ready() -> None:
    play = Play()
    tools = [
        play.tool("pay", Raise(GONE), effect=Effect.EXTERNAL, claims=[]),
        play.tool("slow", Sleep(5), Return("ok")),
        play.tool("pay2", Sleep(1), Raise(GONE), effect=Effect.EXTERNAL, claims=[]),
    ]

    turn = play.turn(
        plan(
            call("u", "pay"),
            call("n", "slow", needs=["u"]),
            call("after", "slow", after=["n"]),
            call("u2", "pay2", after=["after"]),
            call("n2", "slow", needs=["u2"]),
            call("after2", "slow", after=["n2"]),
        ),
        tools,
    )

    assert turn.ready
    assert states(turn) == {
        "u": State.UNCERTAIN,
        "n": State.SKIPPED,
        "after": State.SUCCEEDED,
        "u2": State.UNCERTAIN,
        "n2": State.SKIPPED,
        "after2": State.SUCCEEDED,
    }
    assert play.lasted == 11


# Two runs over the same lanes


@pytest.mark.parametrize(
    "how", ["ends", "is cancelled", "is left", "times out", "is lost", "breaks"]
)
def test_a_lane_goes_to_the_next_run_however_its_holder_comes_to_an_end(how: str) -> None:
    play = Play()
    tools = [
        play.tool("hold", tidy(0.5), effect=Effect.WRITE, claims=["lane:x"], timeout=20),
        play.tool("short", Sleep(5), Return("ok"), effect=Effect.WRITE, claims=["lane:x"]),
        play.tool("wait", Return("ok"), effect=Effect.WRITE, claims=["lane:x"]),
    ]
    name = "short" if how == "ends" else "hold"

    async def main(engine: Engine, run: Run) -> float:
        holder = engine.run("holder")
        await holder.__aenter__()
        held = await holder.submit(
            plan(call("h", name), *(call(f"q{n}", "wait") for n in range(3))), wait=False
        )
        turn = await run.submit(plan(call("w", "wait")), wait=False)
        await asyncio.sleep(2)
        assert states(turn) == {"w": State.QUEUED}
        if how == "is cancelled":
            await holder.cancel()
        elif how == "is lost":
            play.journal.leases.pop(RunId("holder"))
            play.store._store._held.pop(RunId("holder"))
            play.store._store._lost[RunId("holder")] = "somebody else"
            with pytest.raises(RunOwnedError):
                await holder.say("x")
        elif how == "breaks":
            holder._entered.failed(ValueError("a fault of the engine"))
            with pytest.raises(EngineFaultError):
                await held.wait()
        elif how == "is left":
            await holder.__aexit__(None, None, None)
        await turn.wait()
        assert states(turn) == {"w": State.SUCCEEDED}
        await holder.__aexit__(None, None, None)
        started = turn.call("w").started
        assert started is not None
        return started - play.began

    started = play.run(main, tools)

    assert started == {"ends": 5, "times out": 20.5}.get(how, 2.5)


def test_a_run_that_is_left_while_it_waits_for_a_lane_leaves_the_queue() -> None:
    play = Play()
    tools = [play.tool("hold", Sleep(5), Return("ok"), claims=["lane:x"])]

    async def main(engine: Engine, run: Run) -> None:
        first = await run.submit(plan(call("a", "hold")), wait=False)
        async with engine.run("second") as second:
            await second.submit(plan(call("b", "hold")), wait=False)
        async with engine.run("third") as third:
            turn = await third.submit(plan(call("c", "hold")))
            assert turn.call("c").started == first.call("a").ended
        assert play.stage.entered == {"hold": 2}

    play.run(main, tools)


def test_a_thousand_waiters_of_two_runs_are_served_in_the_order_of_asking() -> None:
    play = Play(at_once=True)
    tools = [play.tool("work", Sleep(0.01), Return("ok"), effect=Effect.WRITE, claims=["lane:x"])]

    async def main(engine: Engine, run: Run) -> None:
        async with engine.run("other") as other:
            calls = [call(f"c{n}", "work") for n in range(500)]
            turns = [await each.submit(plan(*calls), wait=False) for each in (run, other)]
            await asyncio.sleep(0.055)
            await run.cancel("c7")
            await run.cancel("c250")
            await other.cancel("c0")
            for turn in turns:
                await turn.wait()
            started = [
                one.started for turn in turns for one in turn.calls if one.started is not None
            ]
            assert started == sorted(started)
            assert len(started) == 997
            assert play.stage.entered == {"work": 997}

    play.run(main, tools, limits=Limits(turn_seconds=math.inf), loops=None)

    spans = sorted((one.span for one in play.stage.executions), key=lambda span: span.start)
    assert not any(one.overlaps(two) for one, two in pairwise(spans))


def test_runs_that_want_the_same_lanes_in_opposite_order_do_not_stop_each_other() -> None:
    play = Play()

    def both(given: Any) -> list[str]:
        return [f"lane:{name}" for name in given["lanes"]]

    tools = [
        play.tool(
            "work",
            Sleep(1),
            Return("ok"),
            effect=Effect.WRITE,
            claims=both,
            schema={"type": "object", "properties": {"lanes": {}}},
        )
    ]
    orders = ["ab", "ba", "abc", "cb", "ca", "bac"]

    async def main(engine: Engine, run: Run) -> None:
        async with engine.run("other") as other:
            turns = [
                await one.submit(
                    plan(
                        *(
                            call(f"c{n}", "work", arguments={"lanes": list(order)})
                            for n, order in enumerate(way)
                        )
                    ),
                    wait=False,
                )
                for one, way in ((run, orders), (other, orders[::-1]))
            ]
            for turn in turns:
                await turn.wait()
                assert set(states(turn).values()) == {State.SUCCEEDED}

    play.run(main, tools)

    assert play.lasted <= 12


# One timer for all limits


class Alarm:
    """Something with a deadline that notes when it passed."""

    def __init__(self, due: float, deadlines: Deadlines | None = None, again: float = 0.0) -> None:
        self.due = due
        self.rang: list[float] = []
        self._deadlines = deadlines
        self._again = again

    def expired(self) -> None:
        self.rang.append(now())
        if self._deadlines is not None and self._again:
            self.due += self._again
            self._again = 0.0
            self._deadlines.watch(self)


def timers() -> int:
    """How many timers of the loop have not been cancelled."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return sum(not one.cancelled() for one in loop._scheduled)  # type: ignore[attr-defined]


def test_deadlines_ring_in_order_at_their_time_by_one_timer() -> None:
    async def main() -> None:
        deadlines = Deadlines(VirtualClock())
        start = now()
        alarms = [Alarm(start + seconds) for seconds in (5, 1, 3, 3, 2)]
        for alarm in alarms:
            deadlines.watch(alarm)
            assert timers() == 1
        deadlines.watch(alarms[0])
        assert len(deadlines) == 5
        forgotten = Alarm(start + 2.5)
        deadlines.watch(forgotten)
        deadlines.forget(forgotten)
        deadlines.forget(forgotten)
        await asyncio.sleep(10)
        assert [[at - start for at in one.rang] for one in alarms] == [[5], [1], [3], [3], [2]]
        assert forgotten.rang == []
        assert len(deadlines) == 0
        assert timers() == 0

    run_virtual(main)


def test_a_deadline_may_be_set_again_when_it_rings_and_moved_while_it_is_watched() -> None:
    async def main() -> None:
        deadlines = Deadlines(VirtualClock())
        start = now()
        again = Alarm(start + 1, deadlines, again=2)
        moved = Alarm(start + 1)
        deadlines.watch(again)
        deadlines.watch(moved)
        moved.due = start + 4
        deadlines.watch(moved)
        never = Alarm(math.inf)
        deadlines.watch(never)
        await asyncio.sleep(10)
        assert [at - start for at in again.rang] == [1, 3]
        assert [at - start for at in moved.rang] == [4]
        deadlines.close()
        assert (len(deadlines), never.rang, timers()) == (0, [], 0)

    run_virtual(main)


def test_deadlines_that_are_closed_ring_no_more() -> None:
    async def main() -> None:
        deadlines = Deadlines(VirtualClock())
        deadlines.close()
        alarm = Alarm(now() + 1)
        deadlines.watch(alarm)
        deadlines.close()
        assert timers() == 0
        await asyncio.sleep(5)
        assert alarm.rang == []

    run_virtual(main)


def test_thousands_of_deadlines_close_together_take_few_looks_at_all_of_them() -> None:
    many = 3000

    async def main() -> int:
        deadlines = Deadlines(VirtualClock())
        sweeps = 0
        sweep = deadlines._sweep

        def counted() -> None:
            nonlocal sweeps
            sweeps += 1
            sweep()

        deadlines._sweep = counted  # type: ignore[method-assign]
        start = now()
        alarms = [Alarm(start + 1 + n / many) for n in range(many)]
        for alarm in alarms:
            deadlines.watch(alarm)
        await asyncio.sleep(10)
        for alarm in alarms:
            (rang,) = alarm.rang
            assert 0 <= rang - alarm.due <= 0.007
        return sweeps

    assert run_virtual(main) < many / 4


def test_an_engine_needs_one_timer_for_thousands_of_calls_and_none_afterwards() -> None:
    play = Play(at_once=True)
    tools = [play.tool("slow", Sleep(0), Do(lambda _: asyncio.Event().wait()), timeout=5)]

    async def main(engine: Engine, run: Run) -> Turn:
        submitting = asyncio.create_task(
            run.submit(plan(*(call(f"c{n}", "slow") for n in range(2000))))
        )
        await asyncio.sleep(1)
        assert len(engine.services.deadlines) == 2001, "the calls and their turn"
        assert timers() == 1
        turn = await submitting
        assert len(engine.services.deadlines) == 0
        return turn

    turn = play.run(main, tools, budgets=Budgets(seconds=UNLIMITED))

    assert set(states(turn).values()) == {State.TIMED_OUT}
    assert play.lasted == 5


# Anything at all


STEPS: dict[str, tuple[Any, ...]] = {
    "quick": (Return("ok"),),
    "slow": (Sleep(5), Return("ok")),
    "tidy": (tidy(0.5),),
    "deaf": (deaf(10),),
    "block": (Block(4), Return("ok")),
    "lost": (Sleep(1), Raise(GONE)),
    "fails": (Sleep(0.5), Raise(ValueError("boom"))),
    "exits": (Raise(SystemExit(1)),),
    "asks": (Return("ok"),),
    "flaky": (Raise(GONE),),
}
REPEATABLE = {"quick", "flaky"}

CALLS = st.lists(
    st.tuples(
        st.sampled_from(sorted(STEPS)),
        st.sampled_from(["a", "b", "c"]),
        st.lists(st.integers(0, 6), max_size=2),
        st.lists(st.integers(0, 6), max_size=2),
    ),
    min_size=1,
    max_size=7,
)
DEEDS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.25, 1.0, 2.5, 6.0]),
        st.sampled_from(
            ["cancel one", "cancel all", "cancel waiting", "approve", "deny", "leave", "close"]
        ),
        st.integers(0, 6),
        st.integers(0, 1),
    ),
    max_size=6,
)


@settings(max_examples=80, deadline=None)
@given(
    st.tuples(CALLS, CALLS),
    DEEDS,
    st.booleans(),
    st.sampled_from(["full", "relaxed"]),
    st.sampled_from(["keep", "overtake"]),
    st.sampled_from([4.0, 900.0]),
)
def test_whatever_is_stopped_when_everything_ends_once_and_nothing_is_left(
    turns: tuple[Any, Any],
    deeds: list[tuple[float, str, int, int]],
    at_once: bool,
    durability: Any,
    order: Any,
    turn_seconds: float,
) -> None:
    """Two runs that share three lanes; hosts that cancel, answer, close and leave at any time."""
    play = Play(at_once=at_once)
    stage = play.stage
    schema = {"type": "object", "properties": {"lane": {}, "id": {}}}
    tools = [
        play.tool(
            name,
            *steps,
            schema=schema,
            claims=["lane:{lane}"],
            sync=name == "block",
            approval=name == "asks",
            effect=Effect.READ if name in REPEATABLE else Effect.EXTERNAL,
            retries=2 if name == "flaky" else 0,
            timeout=3 if name in ("deaf", "block") else None,
        )
        for name, steps in STEPS.items()
    ]
    plans = [
        plan(
            *(
                call(
                    f"c{n}",
                    name,
                    arguments={"lane": lane, "id": f"{run}/{n}"},
                    needs=[f"c{to}" for to in needs if to < n],
                    after=[f"c{to}" for to in after if to < n],
                )
                for n, (name, lane, needs, after) in enumerate(calls)
            )
        )
        for run, calls in enumerate(turns)
    ]

    async def main() -> None:
        engine = play.engine(
            tools,
            durability=durability,
            approval_order=order,
            limits=Limits(tool_threads=2, stuck_threads=1, turn_seconds=turn_seconds),
        )
        async with engine:
            runs = [await engine.run(f"run{n}").__aenter__() for n in range(2)]
            waiting = [
                asyncio.create_task(run.submit(reply))
                for run, reply in zip(runs, plans, strict=True)
            ]
            for pause, deed, which, whose in deeds:
                await asyncio.sleep(pause)
                await do(deed, runs[whose], f"c{which}", waiting[whose])
            for _n in range(20):
                await asyncio.sleep(10)
                for run in runs:
                    await do("approve", run, "", waiting[0])
            done = await asyncio.gather(*waiting, return_exceptions=True)
            for outcome in done:
                assert isinstance(outcome, Turn | asyncio.CancelledError | EngineClosedError)
                assert not isinstance(outcome, Turn) or outcome.ready
            for run in runs:
                await run.__aexit__(None, None, None)
            await asyncio.sleep(20)
            assert_nothing_is_held(engine)
        assert others() == set()

    run_virtual(main)

    entered = Counter(one.arguments["id"] for one in stage.executions)
    for one in stage.executions:
        assert one.tool in REPEATABLE or entered[one.arguments["id"]] == 1
    for lane in "abc":
        spans = sorted(
            (one.span for one in stage.executions if one.arguments["lane"] == lane),
            key=lambda span: (span.start, span.end),
        )
        assert not any(one.overlaps(two) for one, two in pairwise(spans))
    for name in ("run0", "run1"):
        rows = play.journal.facts[RunId(name)]
        view = fold(RunId(name), rows)
        ended = Counter(row.fact.call for row in rows if isinstance(row.fact, CallEnded))
        assert all(times == 1 for times in ended.values())
        assert set(ended) == {one.id for one in view.calls.values() if one.state in ENDED}
        assert not any(one.stuck for one in view.calls.values())
        tokens = [row.fact.token for row in rows if isinstance(row.fact, CallStarted)]
        assert tokens == sorted(set(tokens))


async def do(deed: str, run: Run, name: str, waiting: "asyncio.Task[Turn]") -> None:
    """Do as a host might, at a time that it might; what makes no sense then is refused."""
    try:
        match deed:
            case "cancel one":
                await run.cancel(name)
            case "cancel all":
                await run.cancel()
            case "cancel waiting":
                waiting.cancel()
                await asyncio.sleep(0)
            case "approve":
                for approval in run.approvals:
                    await run.approve(approval.id)
            case "deny":
                await run.deny(name)
            case "close":
                if run.open_turn is not None:
                    await run.open_turn.close()
            case _:
                await run.__aexit__(None, None, None)
    except (UnknownCallError, UnknownApprovalError, EngineClosedError):
        pass


# Odd hosts, odd bodies, faults of the engine


def test_a_cleanup_that_fails_is_noted_beside_the_stop() -> None:
    play = Play()

    async def fail_to_clean_up(_: Any) -> None:
        try:
            await asyncio.sleep(50)
        finally:
            raise ValueError("the half-written file is still there")

    tools = [play.tool("work", Do(fail_to_clean_up), effect=Effect.WRITE, timeout=1)]

    turn = play.turn(plan(call("w", "work")), tools)

    assert states(turn) == {"w": State.TIMED_OUT}
    assert turn.call("w").late == "raised ValueError: the half-written file is still there"
    assert not turn.call("w").stuck


@pytest.mark.parametrize("deed", ["cancels", "leaves", "waits", "submits"])
def test_a_body_that_drives_its_own_run_ends_all_the_same(deed: str) -> None:
    play = Play()
    run_of: list[Run] = []

    async def drive(_: Any) -> Any:
        (run,) = run_of
        turn = run.open_turn
        assert turn is not None
        if deed == "cancels":
            await run.cancel()
        elif deed == "leaves":
            await run.__aexit__(None, None, None)
        elif deed == "waits":
            await turn.wait()
        else:
            await run.submit(plan(call("x", "drive")))

    tools = [play.tool("drive", Sleep(1), Do(drive), timeout=5)]

    async def main(_: Engine, run: Run) -> None:
        run_of.append(run)
        turn = await run.submit(plan(call("d", "drive")), wait=False)
        await asyncio.sleep(20)
        state = {"waits": State.TIMED_OUT, "submits": State.FAILED}.get(deed, State.CANCELLED)
        assert states(turn) == {"d": state}

    play.run(main, tools)


def test_a_turn_of_thousands_may_meet_its_limit_while_it_is_taken_in() -> None:
    play = Play()
    tools = [play.tool("work", Sleep(5))]

    turn = play.turn(
        plan(*(call(f"c{n}", "work") for n in range(1200))),
        tools,
        limits=Limits(turn_seconds=0, grace_seconds=0),
    )

    assert len(turn.outcomes) == 1200
    assert set(states(turn).values()) <= {State.CANCELLED, State.TIMED_OUT}
    assert play.lasted == 0


def test_what_comes_behind_a_ring_keeps_its_declared_order_and_ends() -> None:
    """A conflict is drawn along the declared order, not against it, behind a ring too."""
    play = Play()
    tools = [play.tool("put", Log("{id}"), effect=Effect.WRITE, claims=["write db:{n}"])]
    reply = plan(
        call("ring", "put", arguments={"n": 9, "id": "ring"}, needs=["ring2"]),
        call("ring2", "put", arguments={"n": 9, "id": "ring2"}, needs=["ring"]),
        call("last", "put", arguments={"n": 1, "id": "last"}, after=["first", "ring"]),
        call("first", "put", arguments={"n": 1, "id": "first"}, after=["ring2"]),
        call("alone", "put", arguments={"n": 1, "id": "alone"}, after=["alone2", "ring"]),
        call("alone2", "put", arguments={"n": 2, "id": "alone2"}),
    )

    turn = play.turn(reply, tools)

    assert turn.ready
    assert [states(turn)[name] for name in ("ring", "ring2")] == [State.FAILED] * 2
    assert play.stage.log.index("first") < play.stage.log.index("last")
    assert len(play.stage.log) == 4


def test_a_turn_that_can_never_end_is_a_fault_of_the_engine_and_no_endless_loop() -> None:
    play = Play()
    tools = [play.tool("pay", Raise(GONE), effect=Effect.EXTERNAL), play.tool("work")]

    async def main(_: Engine, run: Run) -> None:
        turn = await run.submit(plan(call("p", "pay"), call("w", "work", needs=["p"])), wait=False)
        await asyncio.sleep(1)
        live = run._entered.turn
        assert live is not None
        live.calls[0].successors = ()
        with pytest.raises(EngineFaultError, match="1 calls wait for nothing that will end"):
            await turn.close()

    play.run(main, tools)


@pytest.mark.parametrize("event", ["limit", "turn", "grant"])
def test_a_fault_of_the_engine_ends_its_run_and_keeps_no_lane_and_no_other_run(
    event: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = Play()
    tools = [
        play.tool("hold", Sleep(5), Return("ok"), claims=["lane:x"]),
        play.tool("slow", Sleep(50), claims=["lane:y"], timeout=5),
        play.tool("block", Block(5), sync=True, claims=["lane:z"], timeout=2),
        *(play.tool(f"take_{lane}", Return("ok"), claims=[f"lane:{lane}"]) for lane in "xyz"),
    ]

    async def main(engine: Engine, run: Run) -> None:
        faulty = engine.run("faulty")
        await faulty.__aenter__()
        holder = await run.submit(plan(call("h", "hold")), wait=False)
        turn = await faulty.submit(
            plan(call("w", "hold"), call("s", "slow"), call("b", "block")), wait=False
        )
        scheduler = faulty._entered

        def fault(*_: Any) -> None:
            raise LookupError("a fault")

        if event == "turn":
            assert scheduler.turn is not None
            scheduler.turn.due = now() + 1
            engine.services.deadlines.watch(scheduler.turn)
        place = {"limit": "_expired", "turn": "cancel", "grant": "_granted"}[event]
        monkeypatch.setattr(scheduler, place, fault)
        with pytest.raises(EngineFaultError, match="LookupError: a fault"):
            await turn.wait()
        monkeypatch.undo()
        await holder.wait()
        assert states(holder) == {"h": State.SUCCEEDED}
        await faulty.__aexit__(None, None, None)
        again = await run.submit(plan(*(call(lane, f"take_{lane}") for lane in "xyz")))
        assert set(states(again).values()) == {State.SUCCEEDED}

    play.run(main, tools)


def ends_of(play: Play) -> dict[str, State]:
    view = fold(NAME, play.journal.facts[NAME])
    assert view.turns[0].closed
    return {one.record.provider_id: one.state for one in view.calls.values()}


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_ends_the_program_with_the_final_states_written_down(times: int) -> None:
    """The first cancels the program; a second one is raised wherever it is, here in a cleanup."""
    play = Play()

    async def press(_: Any) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(50)
        finally:
            if times == 2:
                signal.raise_signal(signal.SIGINT)

    tools = [
        play.tool("press", Sleep(1), Do(press), effect=Effect.WRITE),
        play.tool("slow", tidy(0.5), effect=Effect.WRITE),
        play.tool("ask", approval=True),
    ]

    async def main(_: Engine, run: Run) -> None:
        await run.submit(plan(call("p", "press"), call("s", "slow"), call("a", "ask")))

    with pytest.raises(KeyboardInterrupt):
        play.run(main, tools)

    assert ends_of(play) == dict.fromkeys("psa", State.CANCELLED)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_a_task_of_a_tools_own_that_ends_the_program_leaves_final_states(
    error: BaseException,
) -> None:
    """It goes through the loop and past the engine, which is left by the cancel that follows."""
    play = Play()

    async def own_task(_: Any) -> None:
        async def quit_all() -> None:
            await asyncio.sleep(1)
            raise error

        await asyncio.create_task(quit_all())

    tools = [
        play.tool("quit", Do(own_task), effect=Effect.WRITE),
        play.tool("slow", tidy(0.5), effect=Effect.WRITE),
    ]

    async def main(_: Engine, run: Run) -> None:
        await run.submit(plan(call("q", "quit"), call("s", "slow")))

    with pytest.raises(type(error)):
        play.run(main, tools)

    ends = ends_of(play)
    assert ends["s"] is State.CANCELLED
    assert ends["q"] in (State.CANCELLED, State.FAILED)


@pytest.mark.parametrize("what", ["run", "engine"])
def test_whoever_submits_while_everything_is_left_is_told_at_any_pass_of_the_loop(
    what: str,
) -> None:
    for pause in range(25):
        play = Play()
        tools = [play.tool("ask", approval=True), play.tool("slow", Sleep(5))]

        async def main(pause: int = pause, play: Play = play, tools: Any = tools) -> None:
            engine = play.engine(tools)
            await engine.__aenter__()
            run = await engine.run(NAME).__aenter__()
            submitting = asyncio.create_task(run.submit(plan(call("a", "ask"), call("s", "slow"))))
            await passes(pause)
            if what == "run":
                await run.__aexit__(None, None, None)
            await engine.__aexit__(None, None, None)
            async with asyncio.timeout(1):
                await asyncio.wait([submitting])
            assert isinstance(submitting.exception(), EngineClosedError)
            await run.__aexit__(None, None, None)
            assert others() == set()

        run_virtual(main)

        fold(NAME, play.journal.facts[NAME])


def test_a_thread_that_is_done_when_its_task_is_cancelled_from_outside_has_its_value() -> None:
    play = Play()
    tools = [play.tool("block", Block(3), Return("done"), sync=True)]

    async def main(_: Engine, run: Run) -> Turn:
        turn = await run.submit(plan(call("b", "block")), wait=False)
        await asyncio.sleep(1)
        assert run._entered.turn is not None
        (live,) = run._entered.turn.calls
        assert live.running is not None
        assert live.task is not None
        task = live.task
        live.running.add_done_callback(lambda _: task.cancel())
        await turn.wait()
        return turn

    turn = play.run(main, tools)

    assert turn.outcomes == {"b": Success(value="done")}
    assert play.facts(HolderStopped) == []


def test_a_fault_of_the_engine_around_a_body_ends_the_run_and_frees_its_lane(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = Play()
    tools = [play.tool("work", Sleep(1), Return("ok"), claims=["lane:x"])]

    async def main(engine: Engine, run: Run) -> None:
        async with engine.run("faulty") as faulty:
            monkeypatch.setattr(faulty._entered.bodies, "limit_of", lambda _: "no number")
            with pytest.raises(EngineFaultError, match="please report it; the run can be resumed"):
                await faulty.submit(plan(call("w", "work"), call("v", "work")))
        turn = await run.submit(plan(call("w", "work")))
        assert states(turn) == {"w": State.SUCCEEDED}

    play.run(main, tools)
