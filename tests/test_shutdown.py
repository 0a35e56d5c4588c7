"""The engine ends in good order: refuse, drain, park, save; by the host, by SIGTERM, by Ctrl-C."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from laneway import (
    Effect,
    Engine,
    Failure,
    Happened,
    Limits,
    Shutdown,
    State,
    StoppedBy,
    ToolContext,
    tool,
)
from laneway.engine.run import Run
from laneway.errors import EngineClosedError, ShuttingDownError, UsageError
from laneway.ids import RunId
from laneway.testing.clock import VirtualClock, run_virtual
from laneway.testing.scripted import Log, Return, Sleep, Stage
from laneway.testing.theatre import Theatre

HANG_GUARD_SECONDS = 30


def plan(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"calls": list(calls)}


def states(run: Run) -> dict[str, State]:
    return {call.record.provider_id: call.state for call in run.view.turns[-1].calls}


def test_what_runs_ends_what_waits_is_parked_and_a_later_engine_goes_on() -> None:
    stage = Stage()
    work = stage.tool(
        "work", Sleep(3), Log("{n}"), Return("{n}"), effect=Effect.WRITE, claims=["lane:L"]
    )
    theatre = Theatre(stage, work)
    calls = [{"id": n, "tool": "work", "arguments": {"n": n}} for n in "abc"]

    async def host(run: Run) -> tuple[Shutdown, dict[str, State]]:
        waiting = asyncio.ensure_future(run.submit(plan(*calls)))
        await asyncio.sleep(1)
        found = await run._engine.shutdown(within=10)
        with pytest.raises(ShuttingDownError, match="begins nothing more"):
            await waiting
        return found, states(run)

    found, left = theatre.enter(host)

    assert found == Shutdown(
        ended=("r/t1.1",), parked=("r/t1.2", "r/t1.3"), stopped=(), stuck=(), runs=(RunId("r"),)
    )
    assert left == {"a": State.SUCCEEDED, "b": State.QUEUED, "c": State.QUEUED}
    turn = theatre.finish()
    assert {call.state for call in turn.calls} == {State.SUCCEEDED}
    assert stage.log == ["a", "b", "c"]


def test_what_does_not_end_in_time_is_told_who_stopped_it() -> None:
    stage = Stage()
    slow = stage.tool("slow", Sleep(60), effect=Effect.WRITE)
    theatre = Theatre(stage, slow)

    async def host(run: Run) -> Any:
        turn = await run.submit(plan({"id": "s", "tool": "slow"}), wait=False)
        await asyncio.sleep(1)
        found = await run._engine.shutdown(within=5)
        return found, turn.calls[0], asyncio.get_running_loop().time()

    found, call, now = theatre.enter(host)

    assert found.stopped == ("r/t1.1",)
    assert (call.state, call.stopped_by) == (State.CANCELLED, StoppedBy.SHUTDOWN)
    assert isinstance(call.outcome, Failure)
    assert "the engine is being shut down" in call.outcome.message
    assert call.outcome.happened is Happened.UNKNOWN
    assert now == 1006


def test_what_may_be_repeated_waits_for_a_later_engine_instead_of_ending_cancelled() -> None:
    stage = Stage()
    slow = stage.tool("slow", Sleep(60), Return("read"), effect=Effect.READ)
    theatre = Theatre(stage, slow, limits=Limits(call_seconds=100))

    async def host(run: Run) -> Any:
        await run.submit(plan({"id": "s", "tool": "slow"}), wait=False)
        await asyncio.sleep(1)
        return await run._engine.shutdown(within=0)

    found = theatre.enter(host)

    assert found.parked == ("r/t1.1",)
    turn = theatre.finish()
    assert turn.calls[0].state is State.SUCCEEDED
    assert turn.calls[0].attempt == 2


def test_a_body_that_ignores_the_stop_is_given_up_after_the_grace() -> None:
    @tool(effect=Effect.READ)
    async def deaf() -> None:
        for _ in range(100):
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                continue

    theatre = Theatre(Stage(), deaf, limits=Limits(grace_seconds=2))

    async def host(run: Run) -> Any:
        turn = await run.submit(plan({"id": "d", "tool": "deaf"}), wait=False)
        await asyncio.sleep(1)
        found = await run._engine.shutdown(within=3)
        return found, turn.calls[0].state, asyncio.get_running_loop().time()

    found, state, now = theatre.enter(host)

    assert found.stuck == ("r/t1.1",)
    assert state is State.CANCELLED
    assert now == 1006


def test_nothing_new_begins_while_the_engine_is_shut_down() -> None:
    stage = Stage()
    slow = stage.tool("slow", Sleep(3), Return(1), effect=Effect.READ)

    async def host(run: Run) -> None:
        engine = run._engine
        await run.submit(plan({"id": "s", "tool": "slow"}), wait=False)
        assert not engine.status().shutting_down
        ending = asyncio.ensure_future(engine.shutdown(within=5))
        await asyncio.sleep(1)
        assert engine.status().shutting_down
        with pytest.raises(ShuttingDownError, match="run 'r' begins nothing more"):
            await run.submit(plan({"id": "t", "tool": "slow"}))
        with pytest.raises(ShuttingDownError, match="run 'other'"):
            async with engine.run("other"):
                pass
        assert (await ending).ended == ("r/t1.1",)
        assert run.turns[0].ready
        assert isinstance(ShuttingDownError("r"), EngineClosedError)

    Theatre(stage, slow).enter(host)


def test_calls_within_a_call_that_runs_may_still_be_made_while_it_drains() -> None:
    stage = Stage()
    inner = stage.tool("inner", Sleep(1), Return("in"), effect=Effect.READ)

    @tool(effect=Effect.READ, claims=[])
    async def outer(context: ToolContext) -> str:
        await asyncio.sleep(2)
        return str(await context.invoke("inner"))

    async def host(run: Run) -> Any:
        turn = await run.submit(plan({"id": "o", "tool": "outer"}), wait=False)
        await asyncio.sleep(1)
        found = await run._engine.shutdown(within=60)
        return found, turn.calls[0]

    found, call = Theatre(stage, outer, inner).enter(host)

    assert found.ended == ("r/t1.1",)
    assert call.outcome.value == "in"


def test_a_question_to_a_human_survives_a_shutdown() -> None:
    stage = Stage()
    ask = stage.tool("ask", Return("asked"), approval=True, effect=Effect.WRITE)
    theatre = Theatre(stage, ask)

    async def host(run: Run) -> Any:
        await run.submit(plan({"id": "a", "tool": "ask"}), wait=False)
        return await run._engine.shutdown(within=5)

    found = theatre.enter(host)

    assert found.parked == ("r/t1.1",)

    async def answered(run: Run) -> Any:
        finishing = asyncio.ensure_future(run.finish())
        await run.approve("a")
        turn = await finishing
        assert turn is not None
        return turn.calls[0].state

    assert theatre.enter(answered) is State.SUCCEEDED


def test_a_shutdown_asked_for_twice_is_one_and_zero_hurries_it() -> None:
    @tool(effect=Effect.READ)
    async def deaf() -> None:
        for _ in range(500):
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                continue

    theatre = Theatre(Stage(), deaf, limits=Limits(grace_seconds=50))

    async def host(run: Run) -> Any:
        await run.submit(plan({"id": "d", "tool": "deaf"}), wait=False)
        first = asyncio.ensure_future(run._engine.shutdown(within=100))
        await asyncio.sleep(1)
        second = asyncio.ensure_future(run._engine.shutdown(within=7))
        await asyncio.sleep(1)
        hurried = await run._engine.shutdown(within=0)
        assert await first == await second == hurried
        return hurried, asyncio.get_running_loop().time()

    found, now = theatre.enter(host)

    assert found.stuck == ("r/t1.1",)
    assert now < 1003


def test_a_shutdown_without_anything_open_is_over_at_once() -> None:
    async def host(run: Run) -> Any:
        return await run._engine.shutdown(within=100), asyncio.get_running_loop().time()

    found, now = Theatre(Stage()).enter(host)

    assert found == Shutdown(ended=(), parked=(), stopped=(), stuck=(), runs=())
    assert now == 1000


def test_leaving_a_run_while_the_engine_is_shut_down_waits_for_that() -> None:
    stage = Stage()
    slow = stage.tool("slow", Sleep(60), effect=Effect.WRITE)

    async def main() -> float:
        async with Engine([slow], clock=VirtualClock) as engine, engine.run("r") as run:
            await run.submit(plan({"id": "s", "tool": "slow"}), wait=False)
            ending = asyncio.ensure_future(engine.shutdown(within=5))
            await asyncio.sleep(1)
        await ending
        return asyncio.get_running_loop().time()

    assert 1005 <= run_virtual(main) < 1006


def test_an_engine_that_was_shut_down_can_be_entered_again() -> None:
    stage = Stage()
    work = stage.tool("work", Return("ok"), effect=Effect.READ)
    engine = Engine([work])

    async def once(*, end: bool) -> int:
        async with engine, engine.run("r") as run:
            turn = await run.submit(plan({"id": "w", "tool": "work"}))
            if end:
                await engine.shutdown()
            return len(turn.calls)

    assert asyncio.run(once(end=True)) == 1
    assert asyncio.run(once(end=False)) == 1
    with pytest.raises(EngineClosedError):
        asyncio.run(engine.shutdown())


def test_signals_are_for_the_main_thread_alone() -> None:
    told: list[str] = []

    async def main() -> None:
        async with Engine() as engine:
            try:
                async with engine.on_signals():
                    pass
            except UsageError as error:
                told.append(str(error))

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    thread.join(HANG_GUARD_SECONDS)

    assert "signals reach the main thread alone" in told[0]


def test_handlers_are_put_back_where_no_signal_came() -> None:
    before = signal.getsignal(signal.SIGTERM)

    async def main() -> None:
        async with Engine() as engine, engine.on_signals():
            assert signal.getsignal(signal.SIGTERM) is not before

    asyncio.run(main())

    assert signal.getsignal(signal.SIGTERM) is before


PROGRAM = """
import asyncio, sys, time
from laneway import Effect, Engine, Limits, tool

@tool(effect=Effect.WRITE, claims=["lane:L"])
async def work(seconds: float) -> str:
    print("work", flush=True)
    await asyncio.sleep(seconds)
    print("worked", flush=True)
    return "done"

@tool(effect=Effect.WRITE)
async def deaf() -> None:
    print("deaf", flush=True)
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            continue

@tool(effect=Effect.WRITE)
async def blocks() -> None:
    print("blocks", flush=True)
    while True:
        time.sleep(0.01)

async def main(within, calls):
    engine = Engine([work, deaf, blocks], journal=sys.argv[1], limits=Limits(grace_seconds=60))
    async with engine, engine.on_signals(within=within):
        async with engine.run("r") as run:
            turn = await run.submit({"calls": calls}, wait=False)
            print("ready", flush=True)
            await asyncio.sleep(3600)

asyncio.run(main(*eval(sys.argv[2])))
"""


class Program:
    """A host in a process of its own, which is sent signals."""

    def __init__(self, folder: Path, within: float, *calls: dict[str, Any]) -> None:
        self.journal = folder / "runs.db"
        script = folder / "host.py"
        script.write_text(PROGRAM, encoding="utf-8")
        root = Path(__file__).parents[1]
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(script), str(self.journal), repr((within, list(calls)))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(root / "src")},
        )

    def wait_for(self, *words: str) -> None:
        left = set(words)
        assert self.process.stdout is not None
        while left:
            line = self.process.stdout.readline()
            assert line, self.process.communicate()[1]
            left.discard(line.strip())

    def send(self, which: signal.Signals) -> None:
        self.process.send_signal(which)

    def end(self) -> tuple[int, str, str]:
        try:
            out, err = self.process.communicate(timeout=HANG_GUARD_SECONDS)
        finally:
            self.process.kill()
        return self.process.returncode, out, err

    def outcomes(self) -> dict[str, tuple[State, StoppedBy | None]]:
        async def read() -> dict[str, tuple[State, StoppedBy | None]]:
            async with Engine(journal=self.journal) as engine, engine.run("r") as run:
                calls = run.view.turns[0].calls
                return {one.record.provider_id: (one.state, one.stopped_by) for one in calls}

        return asyncio.run(read())


def call(name: str, tool: str, **arguments: Any) -> dict[str, Any]:
    return {"id": name, "tool": tool, "arguments": arguments}


@pytest.mark.parametrize(
    ("which", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)]
)
def test_a_signal_lets_end_what_runs_and_parks_what_waits(
    tmp_path: Path, which: signal.Signals, code: int
) -> None:
    calls = (call("a", "work", seconds=0.3), call("b", "work", seconds=0.3))
    program = Program(tmp_path, 20, *calls)
    program.wait_for("ready", "work")

    program.send(which)
    ended, out, err = program.end()

    assert ended == code, err
    assert "worked" in out
    assert program.outcomes() == {"a": (State.SUCCEEDED, None), "b": (State.QUEUED, None)}


def test_a_second_ctrl_c_waits_for_nothing_and_loses_nothing(tmp_path: Path) -> None:
    program = Program(
        tmp_path,
        3600,
        call("a", "work", seconds=0),
        call("d", "deaf"),
        call("c", "work", seconds=0),
    )
    program.wait_for("ready", "worked", "deaf")

    program.send(signal.SIGINT)
    _until(lambda: program.process.poll() is not None, within=0.5)
    program.send(signal.SIGINT)
    ended, _, err = program.end()

    assert ended == -signal.SIGINT, err
    found = program.outcomes()
    assert found["d"] == (State.CANCELLED, StoppedBy.SHUTDOWN)
    assert found["a"] == (State.SUCCEEDED, None)


def test_a_second_ctrl_c_leaves_even_where_a_coroutine_blocks_the_loop(tmp_path: Path) -> None:
    program = Program(tmp_path, 3600, call("b", "blocks"))
    program.wait_for("blocks")

    program.send(signal.SIGINT)
    _until(lambda: program.process.poll() is not None, within=0.3)
    program.send(signal.SIGINT)
    ended, _, _ = program.end()

    assert ended != 0
    assert program.outcomes()["b"][0] in (State.CANCELLED, State.UNCERTAIN)


def _until(over: Any, *, within: float) -> None:
    """Give the program a moment in which it must not end by itself."""
    gone = threading.Event()
    gone.wait(within)
    assert not over()
