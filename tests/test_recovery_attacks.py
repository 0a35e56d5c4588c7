"""Recovery attacked: leases, leftovers, changed tools and processes, met at the worst moment."""

# What is held, and where a start may be cut short, is looked at from within:
# pyright: reportPrivateUsage=false

import asyncio
import os
import queue
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

import laneway.journal
from laneway import (
    Code,
    Effect,
    Engine,
    Failure,
    Happened,
    State,
    Success,
    Tool,
    ToolContext,
    tool,
)
from laneway.calls import CallRecord
from laneway.engine import groups
from laneway.engine.cli.commands.settle import write_down
from laneway.engine.processes import run_process
from laneway.engine.run import Run
from laneway.facts import (
    CallEnded,
    CallQueued,
    CallStarted,
    ChildEntered,
    Driver,
    Fact,
    HolderStopped,
    ProcessStarted,
    Row,
    RunOpened,
    TurnClosed,
    TurnSubmitted,
)
from laneway.ids import CallId, RunId
from laneway.journal.fork import Forked, fork
from laneway.journal.heartbeat import Heartbeat
from laneway.journal.lease import this_driver
from laneway.journal.leases import Lease
from laneway.journal.memory import MemoryStore
from laneway.journal.sqlite import SqliteStore
from laneway.testing import Stage
from laneway.testing.theatre import Theatre, failure, plan, states

HANG_SECONDS = 60
RUN = RunId("fix-42")
CALL = CallId("t1.1")
ELSEWHERE = Driver(host="elsewhere", boot="another", pid=4242, started="1", namespace="pid:[1]")

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="this system has no /proc"
)
needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")


# Leases.


class _Watched:
    """The connection of a heartbeat, beside which something happens right before its first beat."""

    def __init__(self, connection: sqlite3.Connection, happens: Callable[[], None]) -> None:
        self.connection = connection
        self.left = [happens]

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if sql.startswith("BEGIN") and self.left:
            self.left.pop()()
        return self.connection.execute(sql, *parameters)

    def close(self) -> None:
        self.connection.close()


def test_a_beat_of_a_lease_that_was_given_back_does_not_silence_the_next_one_of_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "runs.db"
    given_back, taken_again = Lease(1, 99), Lease(1, 1)
    lost: queue.Queue[object] = queue.Queue()

    async def main() -> None:
        store = SqliteStore(path)
        await store.open()
        await store.take(RUN, this_driver())
        beating = Heartbeat(path, 0.03, lambda _, lease: lost.put(lease))
        connect = beating._connect

        def meanwhile() -> None:
            beating.drop(RUN, given_back)
            beating.hold(RUN, taken_again)

        monkeypatch.setattr(beating, "_connect", lambda: _Watched(connect(), meanwhile))
        beating.hold(RUN, given_back)
        assert await asyncio.to_thread(lost.get, timeout=HANG_SECONDS) is given_back
        assert beating._held == {RUN: taken_again}
        await asyncio.to_thread(beating.close)
        await store.close()

    asyncio.run(main())


FORKS = """
    import asyncio, os, sys, threading
    from laneway.journal.lease import this_driver
    from laneway.journal.sqlite import SqliteStore

    async def take():
        store = SqliteStore(sys.argv[1])
        await store.open()
        await store.take("fix-42", this_driver())
        return store

    def in_child(left):
        os.read(left, 1)
        asyncio.run(take())
        print("taken", flush=True)

    async def main():
        store = await take()
        left, leaving = os.pipe()
        if not os.fork():
            child = threading.Thread(target=in_child, args=[left])
            child.start()
            child.join()
            os._exit(0)
        await store.close()
        os.write(leaving, b"!")
        os.wait()

    asyncio.run(main())
"""


def child(program: str, *arguments: object) -> "subprocess.Popen[str]":
    source = Path(laneway.journal.__file__ or "").parent.parent.parent
    if not (source / "laneway").exists():
        source = Path(__file__).parent.parent / "src"
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(source)},
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_takes_a_run_that_its_parent_drove_when_it_was_made_and_has_left(
    tmp_path: Path,
) -> None:
    out, err = child(FORKS, tmp_path / "runs.db").communicate(timeout=HANG_SECONDS)

    assert out == "taken\n", err


def test_a_heartbeat_for_which_there_is_no_thread_lets_the_run_be_taken_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def scarce(thread: threading.Thread) -> None:
        if thread.name == "laneway-lease":
            raise RuntimeError("can't start new thread")
        start(thread)

    async def main() -> None:
        one, other = SqliteStore(tmp_path / "runs.db"), SqliteStore(tmp_path / "runs.db")
        await one.open()
        await other.open()
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", scarce)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                await one.take(RUN, this_driver())
        assert not await other.take(RUN, ELSEWHERE)
        await other.leave(RUN)
        await one.take(RUN, this_driver())
        names = [thread.name for thread in threading.enumerate()]
        assert "laneway-lease" in names
        await one.close()
        await other.close()

    asyncio.run(main())


# Tools that are others by now.


def paying(entered: list[str], version: str, **declared: Any) -> Tool[..., Any]:
    @tool(name="pay", **declared)
    async def pay() -> str:
        entered.append(version)
        if declared.get("retries"):
            raise ConnectionError("the bank is busy")
        await asyncio.sleep(9)
        return version

    return pay


@tool(effect=Effect.READ)
async def wait() -> str:
    await asyncio.sleep(1)
    return "waited"


def in_its_midst(theatre: Theatre, *calls: dict[str, Any], seconds: float = 0.5) -> None:
    """Drive the run for some seconds, from the beginning if calls are given, and crash."""

    async def host(run: Run) -> None:
        if calls:
            await run.submit(plan(*calls), wait=False)
        finishing = asyncio.ensure_future(run.finish())
        await asyncio.sleep(seconds)
        theatre.crash()
        finishing.cancel()
        await asyncio.gather(finishing, return_exceptions=True)

    theatre.enter(host)


PAY = {"id": "p", "tool": "pay"}
PAY_LATER = ({"id": "w", "tool": "wait"}, {**PAY, "needs": ["w"]})


def test_what_its_tool_forbids_to_repeat_by_now_is_not_entered_again_after_a_crash() -> None:
    entered: list[str] = []
    theatre = Theatre(Stage(), paying(entered, "old", effect=Effect.WRITE, idempotent=True))
    in_its_midst(theatre, PAY)

    theatre.tools = [paying(entered, "new", effect=Effect.EXTERNAL)]
    turn = theatre.finish()

    assert entered == ["old"]
    assert states(turn) == {"p": State.UNCERTAIN}


def test_what_was_asked_of_a_repeatable_tool_is_entered_once_by_one_that_is_not() -> None:
    entered: list[str] = []
    theatre = Theatre(Stage(), paying(entered, "old", effect=Effect.READ), wait)
    in_its_midst(theatre, *PAY_LATER)
    assert entered == []

    theatre.tools = [paying(entered, "new", effect=Effect.EXTERNAL), wait]
    in_its_midst(theatre, seconds=2)
    turn = theatre.finish()

    assert entered == ["new"]
    assert states(turn) == {"w": State.SUCCEEDED, "p": State.UNCERTAIN}


def test_a_tool_that_only_read_once_is_not_said_to_have_done_nothing_when_it_pays_by_now() -> None:
    entered: list[str] = []
    theatre = Theatre(Stage(), paying(entered, "old", effect=Effect.READ), wait)
    in_its_midst(theatre, *PAY_LATER)

    theatre.tools = [paying(entered, "new", effect=Effect.EXTERNAL, timeout=2), wait]
    turn = theatre.finish()

    told = failure(turn, "p")
    assert (told.code, told.happened, told.retry) == (Code.TIMEOUT, Happened.UNKNOWN, False)


def test_a_call_that_backs_off_is_not_tried_again_by_a_tool_that_must_not_be_run_twice() -> None:
    entered: list[str] = []
    old = paying(entered, "old", effect=Effect.WRITE, idempotent=True, retries=5)
    theatre = Theatre(Stage(), old)
    in_its_midst(theatre, PAY)
    tried = len(entered)

    theatre.tools = [paying(entered, "new", effect=Effect.WRITE)]
    turn = theatre.finish()

    told = failure(turn, "p")
    assert len(entered) == tried > 0
    assert (told.code, told.happened) == (Code.OUTCOME_UNKNOWN, Happened.UNKNOWN)
    assert "pay had been started before, and by now it is a tool that must not be run twice" in (
        told.message
    )


def test_another_version_that_may_be_repeated_as_well_is_entered_again() -> None:
    entered: list[str] = []
    theatre = Theatre(Stage(), paying(entered, "old", effect=Effect.WRITE, idempotent=True))
    in_its_midst(theatre, PAY)

    theatre.tools = [paying(entered, "new", effect=Effect.EXTERNAL, idempotent=True)]
    turn = theatre.finish()

    assert entered == ["old", "new"]
    assert states(turn) == {"p": State.SUCCEEDED}


# What a dead driver left running.


@pytest.fixture
def left_running() -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(HANG_SECONDS)


async def lay_down(path: Path, group: int) -> None:
    """Write a run down whose only call was given up, and whose driver died before its process."""
    dead = msgspec.structs.replace(this_driver(), pid=2**22 + 1, started="1")
    failed = Failure(code=Code.TIMEOUT, message="too long", happened=Happened.UNKNOWN)
    facts: tuple[Fact, ...] = (
        RunOpened(run=RUN, driver=dead, mode="build"),
        TurnSubmitted(
            turn=1,
            provider="plan",
            message={},
            calls=(CallRecord(id=CALL, provider_id="p", tool="pay", arguments={}),),
        ),
        CallQueued(call=CALL, rule=""),
        CallStarted(call=CALL, attempt=1, token=1),
        ProcessStarted(call=CALL, group=group, started=groups.start_of(group)),
        CallEnded(call=CALL, state=State.TIMED_OUT, outcome=failed, stopped=False),
        TurnClosed(turn=1),
    )
    store = SqliteStore(path)
    await store.open()
    await store.take(RUN, dead)
    await store.commit([Row(RUN, seq, 0.0, 0.0, fact) for seq, fact in enumerate(facts, 1)])
    await store.leave(RUN)
    await store.close()


@needs_proc
def test_who_settles_a_call_from_outside_does_not_say_that_what_it_left_running_has_ended(
    tmp_path: Path, left_running: "subprocess.Popen[bytes]"
) -> None:
    path = tmp_path / "runs.db"

    async def main() -> list[HolderStopped]:
        await lay_down(path, left_running.pid)
        await write_down(path, RUN, "p", Success(value="paid"), "ann")
        assert left_running.poll() is None
        async with Engine([], journal=path) as engine, engine.run(RUN):
            assert left_running.poll() == -signal.SIGTERM
            rows = await engine.services.journal.store.read(RUN)
        return [row.fact for row in rows if isinstance(row.fact, HolderStopped)]

    stops = asyncio.run(main())

    assert stops[-1] == HolderStopped(call=CALL, late="what it left running has ended")


async def lay_down_within(path: Path, group: int) -> None:
    """Write a run down in which a process was running within a call, and another call beside."""
    dead = msgspec.structs.replace(this_driver(), pid=2**22 + 1, started="1")
    inner, beside = RunId(f"{RUN}/{CALL}/1"), CallId("t1.2")
    outer = CallRecord(
        id=CALL, provider_id="o", tool="outer", arguments={}, effect=Effect.WRITE, idempotent=True
    )
    pay = CallRecord(id=beside, provider_id="p", tool="pay", arguments={})
    within = msgspec.structs.replace(pay, id=CALL, provider_id="1")

    def submitted(*calls: CallRecord) -> TurnSubmitted:
        return TurnSubmitted(turn=1, provider="plan", message={}, calls=calls)

    def started(call: CallId) -> tuple[Fact, Fact]:
        return CallQueued(call=call, rule=""), CallStarted(call=call, attempt=1, token=1)

    told: dict[RunId, list[Fact]] = {
        RUN: [
            RunOpened(run=RUN, driver=dead, mode="build"),
            submitted(outer, pay),
            *started(CALL),
            *started(beside),
            ChildEntered(call=CALL, run=inner),
        ],
        inner: [
            RunOpened(run=inner, driver=dead, mode="build"),
            submitted(within),
            *started(CALL),
            ProcessStarted(call=CALL, group=group, started=groups.start_of(group)),
        ],
    }
    store = SqliteStore(path)
    await store.open()
    for run, facts in told.items():
        await store.take(run, dead)
        await store.commit([Row(run, seq, 0.0, 0.0, fact) for seq, fact in enumerate(facts, 1)])
        await store.leave(run)
    await store.close()


@needs_proc
def test_what_was_left_running_within_a_call_is_ended_though_somebody_settled_another_meanwhile(
    tmp_path: Path, left_running: "subprocess.Popen[bytes]"
) -> None:
    path = tmp_path / "runs.db"

    async def main() -> None:
        await lay_down_within(path, left_running.pid)
        await write_down(path, RUN, "p", Success(value="paid"), "ann")
        async with Engine([], journal=path) as engine, engine.run(RUN) as run:
            assert run.view.calls[CALL].state is State.BACKING_OFF
            assert left_running.poll() == -signal.SIGTERM

    asyncio.run(main())


# Forks.


def test_a_fork_tells_of_questions_of_calls_within_its_calls_too() -> None:
    @tool(effect=Effect.EXTERNAL, approval=True)
    async def pay() -> str:
        return "paid"

    @tool(effect=Effect.WRITE, idempotent=True)
    async def outer(context: ToolContext) -> str:
        return str(await context.invoke("pay"))

    theatre = Theatre(Stage(), outer, pay)

    async def host(run: Run) -> Forked:
        await run.submit(plan({"id": "o", "tool": "outer"}, PAY), wait=False)
        await asyncio.sleep(1)
        theatre.crash()
        store = MemoryStore(theatre.journal)
        await store.open()
        forked = await fork(store, run.id, "other")
        await store.close()
        return forked

    forked = theatre.enter(host)

    assert forked.below == ("other/t1.1/1",)
    assert forked.approvals == ("t1.2.a1", "other/t1.1/1/t1.1.a1")


# Processes.


def test_a_program_is_looked_for_in_folders_beside_the_one_in_which_it_runs(
    tmp_path: Path,
) -> None:
    program = tmp_path / "bin" / "greet"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho hello\n")
    program.chmod(0o755)

    ended = asyncio.run(run_process(["greet"], cwd=tmp_path, env={"PATH": "bin:/usr/bin:/bin"}))

    assert ended.output.text() == "hello\n"


def is_alive(pid: int) -> bool:
    found = groups._look_up(pid)
    return found is not None and found.state not in "ZX"


@needs_proc
@needs_bash
def test_jobs_that_a_shell_put_into_groups_of_their_own_end_with_their_call() -> None:
    line = "set -m; (trap '' TERM; sleep 60) >/dev/null 2>&1 & echo $!"

    ended = asyncio.run(run_process(["bash", "-c", line]))

    assert not is_alive(int(ended.output.text()))


@needs_proc
@needs_bash
def test_jobs_in_groups_of_their_own_are_told_to_stop_before_they_are_killed(
    tmp_path: Path,
) -> None:
    said = tmp_path / "said"
    job = f"(trap 'echo told > {said}; exit' TERM; echo up; while :; do sleep 0.01; done)"

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await run_process(
                ["bash", "-c", f"set -m; {job} & wait"], timeout_seconds=0.5, grace_seconds=30
            )

    asyncio.run(main())

    assert said.read_text() == "told\n"


@needs_bash
def test_variables_whose_names_no_shell_can_have_reach_the_program() -> None:
    given = {
        "PATH": os.environ["PATH"],
        "spring.profile": "test",
        "npm_config_//host/:key": "1",
        "BASH_FUNC_read%%": "() { echo hijacked; }",
    }

    ended = asyncio.run(run_process(["env"], env=given))

    lines = ended.output.text().splitlines()
    assert ended.code == 0
    assert {f"{name}={value}" for name, value in given.items()} <= set(lines)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="this system has no /proc")
def test_wherever_a_start_is_cancelled_no_file_stays_open() -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    async def main() -> None:
        await run_process(["true"])
        before = open_files()
        for steps in range(12):
            starting = asyncio.ensure_future(run_process(["sleep", "60"], grace_seconds=0))
            for _ in range(steps):
                await asyncio.sleep(0)
            starting.cancel()
            with suppress(asyncio.CancelledError):
                await starting
        await asyncio.sleep(0)
        assert open_files() == before

    asyncio.run(main())


def test_a_start_without_room_for_its_second_pipe_leaves_none_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[int] = []
    pipe = os.pipe

    def scarce() -> tuple[int, int]:
        if made:
            raise OSError(24, "Too many open files")
        made.extend(pipe())
        return made[0], made[1]

    async def main() -> None:
        monkeypatch.setattr(os, "pipe", scarce)
        with pytest.raises(OSError, match="Too many open files"):
            await run_process(["true"])
        monkeypatch.undo()

    asyncio.run(main())

    for end in made:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(end)
