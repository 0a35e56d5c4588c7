"""The processes that tools start: gated, grouped, ended with their call, and after their driver."""

# The ways to the end of a group are looked at from within:
# pyright: reportPrivateUsage=false

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

import laneway.journal
from laneway import Code, Effect, Engine, Failure, Limits, State, Success, Tool, ToolContext, tool
from laneway.engine import groups, holdovers, processes
from laneway.engine.groups import Found, Group, look
from laneway.engine.processes import run_process
from laneway.engine.run import Run
from laneway.errors import JournalError, UsageError
from laneway.facts import (
    AttemptEnded,
    CallEnded,
    CallStarted,
    Fact,
    HolderStopped,
    ProcessStarted,
    Row,
    RunForked,
    RunOpened,
    RunTaken,
)
from laneway.ids import CallId, RunId
from laneway.journal.lease import this_driver
from laneway.journal.memory import MemoryJournal, MemoryStore
from laneway.journal.sqlite import SqliteStore
from laneway.testing.clock import VirtualClock, run_virtual
from laneway.testing.watched import WatchedStore

HANG_SECONDS = 60
RUN = RunId("fix-42")

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="this system has no /proc"
)


def is_alive(pid: int) -> bool:
    found = groups._look_up(pid)
    return found is not None and found.state not in "ZX"


def until(happened: Callable[[], object]) -> None:
    give_up = time.monotonic() + HANG_SECONDS
    while not happened():
        assert time.monotonic() < give_up
        time.sleep(0.001)


async def soon(happened: Callable[[], object]) -> None:
    await asyncio.to_thread(until, happened)


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def plan(*calls: str) -> dict[str, Any]:
    return {"calls": [{"id": name, "tool": name, "arguments": {}} for name in calls]}


def drive(
    tools: Sequence[Tool[..., Any]],
    scenario: Callable[[Run, Engine], Awaitable[Any]],
    store: Any = None,
    **limits: Any,
) -> Any:
    async def main() -> Any:
        engine = Engine(tools, journal=store, limits=Limits(**limits))
        async with engine, engine.run(RUN) as run:
            return await asyncio.wait_for(scenario(run, engine), HANG_SECONDS)

    return asyncio.run(main())


def shell(line: str, **options: Any) -> Tool[..., Any]:
    @tool(effect=Effect.EXTERNAL, claims=["lane:shell"], name="shell")
    async def work(context: ToolContext) -> str:
        ended = await context.run_process(line, **options)
        return f"{ended.code} {ended.output.text()}"

    return work


# Start.


def test_a_process_does_nothing_before_its_start_is_durable(tmp_path: Path) -> None:
    out = tmp_path / "out"
    seen: list[tuple[ProcessStarted, bool]] = []

    async def before(_: int, rows: Sequence[Row]) -> None:
        for row in rows:
            if isinstance(row.fact, ProcessStarted):
                await asyncio.sleep(0.3)  # time enough for what would not wait
                seen.append((row.fact, out.exists()))

    async def scenario(run: Run, _: Engine) -> str:
        turn = await run.submit(plan("shell"))
        outcome = turn.outcomes["shell"]
        assert isinstance(outcome, Success)
        return str(outcome.value)

    ended = drive([shell(f"echo $$ $LANEWAY_CALL > {out}")], scenario, WatchedStore(before=before))

    ((fact, existed),) = seen
    assert ended == "0 "
    assert not existed
    assert fact.started
    assert text_of(out).split() == [str(fact.group), "fix-42/t1.1"]


def test_a_process_whose_start_cannot_be_written_down_does_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"

    def before(_: int, rows: Sequence[Row]) -> None:
        if any(isinstance(row.fact, ProcessStarted) for row in rows):
            raise JournalError("the disk is full")

    async def scenario(run: Run, _: Engine) -> None:
        with pytest.raises(JournalError, match="the disk is full"):
            await run.submit(plan("shell"))

    drive([shell(f"touch {out}")], scenario, WatchedStore(before=before))

    assert not out.exists()


def test_a_command_reads_its_input_and_tells_its_exit_code() -> None:
    async def main() -> None:
        ended = await run_process("cat; exit 3", input="in\nput")
        assert (ended.code, ended.output.text()) == (3, "in\nput")
        ended = await run_process(["head", "-c", "3"], input=b"x" * 1_000_000)
        assert (ended.code, ended.output.text()) == (0, "xxx")
        ended = await run_process(["cat"])
        assert (ended.code, ended.output.text()) == (0, "")

    asyncio.run(main())


def test_a_command_has_the_variables_and_the_folder_that_it_is_given(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho $WHO; pwd\n")
    program.chmod(0o755)

    async def main() -> str:
        ended = await run_process(["./program"], cwd=tmp_path, env={"WHO": "me"})
        return ended.output.text()

    assert asyncio.run(main()).split() == ["me", os.path.realpath(tmp_path)]


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (["no-such-program"], FileNotFoundError),
        (["./no-such-program"], FileNotFoundError),
        (["/"], PermissionError),
        ([], ValueError),
    ],
)
def test_what_cannot_be_started_is_an_error(command: list[str], error: type[Exception]) -> None:
    with pytest.raises(error):
        asyncio.run(run_process(command))


def test_a_gate_that_is_shut_lets_nothing_happen(tmp_path: Path) -> None:
    async def main() -> None:
        async def announce(group: int, started: str) -> None:
            assert started == groups.start_of(group)
            raise TimeoutError("nobody wrote it down")

        with pytest.raises(TimeoutError, match="nobody wrote it down"):
            await run_process(["touch", str(tmp_path / "out")], announce=announce)

    asyncio.run(main())

    assert list(tmp_path.iterdir()) == []


# The end.


def test_a_command_that_takes_too_long_is_told_first(tmp_path: Path) -> None:
    out = tmp_path / "out"
    line = f"trap 'echo told >> {out}; exit' TERM; echo up >> {out}; sleep 60 & wait"

    async def main() -> None:
        with pytest.raises(TimeoutError, match=r"/bin/sh was ended, as it took longer than 0\.3 s"):
            await run_process(line, timeout_seconds=0.3, grace_seconds=HANG_SECONDS)

    asyncio.run(main())

    assert text_of(out).split() == ["up", "told"]


def test_a_group_that_does_not_listen_is_killed_and_the_call_holds_its_claims_until_then(
    tmp_path: Path,
) -> None:
    pids = tmp_path / "pids"

    @tool(effect=Effect.EXTERNAL, claims=["lane:shell"])
    async def after() -> bool:
        return any(is_alive(int(pid)) for pid in text_of(pids).split())

    async def scenario(run: Run, _: Engine) -> list[Any]:
        turn = await run.submit(plan("shell", "after"), wait=False)
        await soon(lambda: len(text_of(pids).split()) == 2)
        await run.cancel("shell")
        await turn.wait()
        return list(run.view.calls.values())

    line = "trap '' TERM; sleep 60 & echo $$ $! > pids; wait; sleep 60"
    first, second = drive([shell(line, cwd=tmp_path), after], scenario)

    assert first.state is State.CANCELLED
    assert not first.stuck
    assert second.outcome == Success(value=False)


def test_cancelling_twice_kills_at_once_and_cancelling_again_waits_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[int] = []
    sending = groups.signal_group

    def recorded(number: int, which: signal.Signals, *, started: str = "") -> None:
        sent.append(which)
        sending(number, which, started=started)

    monkeypatch.setattr(processes, "signal_group", recorded)

    async def main() -> None:
        ready = asyncio.Event()

        async def announce(_: int, __: str) -> None:
            ready.set()

        running = asyncio.ensure_future(
            run_process("trap '' TERM; sleep 60", announce=announce, grace_seconds=HANG_SECONDS)
        )
        await ready.wait()
        running.cancel()
        while not sent:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert sent == [signal.SIGTERM]
        monkeypatch.setattr(processes, "has_ended", lambda _: False)
        running.cancel()
        while len(sent) == 1:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert sent == [signal.SIGTERM, signal.SIGKILL]
        assert not running.done()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())


def test_who_is_cancelled_while_its_group_ends_is_cancelled_when_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[int] = []
    ended = groups.has_ended

    def slowly(number: int) -> bool:
        looks.append(number)
        return len(looks) > 5 and ended(number)

    monkeypatch.setattr(processes, "has_ended", slowly)

    async def main() -> None:
        running = asyncio.ensure_future(run_process(["true"]))
        while not looks:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())

    assert len(looks) == 6


def test_a_synchronous_tool_runs_a_process_and_stops_with_it(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    ends: list[object] = []

    @tool(effect=Effect.EXTERNAL)
    def work(context: ToolContext) -> str:
        ended = context.run_process_blocking(["echo", "one"])
        try:
            context.run_process_blocking(f"echo $$ > {pids}; sleep 60")
        except asyncio.CancelledError as error:
            ends.append(error)
            with pytest.raises(asyncio.CancelledError):
                context.run_process_blocking(["touch", str(tmp_path / "more")])
            raise
        return ended.output.text()

    async def scenario(run: Run, _: Engine) -> State:
        turn = await run.submit(plan("work"), wait=False)
        await soon(lambda: text_of(pids).strip())
        await run.cancel("work")
        await turn.wait()
        await soon(lambda: not run.view.calls[CallId("t1.1")].stuck)
        return run.view.calls[CallId("t1.1")].state

    state = drive([work], scenario)

    assert state is State.CANCELLED
    assert len(ends) == 1
    assert not is_alive(int(text_of(pids)))
    assert not (tmp_path / "more").exists()


def test_what_a_body_leaves_behind_in_a_task_ends_with_its_call(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    left: list[asyncio.Task[Any]] = []
    contexts: list[ToolContext] = []

    @tool(effect=Effect.EXTERNAL)
    async def work(context: ToolContext) -> str:
        contexts.append(context)
        left.append(asyncio.ensure_future(context.run_process(f"echo $$ > {pids}; sleep 60")))
        await soon(lambda: text_of(pids).strip())
        return "done"

    async def scenario(run: Run, _: Engine) -> None:
        turn = await run.submit(plan("work"))
        assert turn.outcomes["work"] == Success(value="done")
        assert not is_alive(int(text_of(pids)))
        assert left[0].cancelled()
        with pytest.raises(UsageError, match=r"t1\.1 is over, so it can start no process"):
            await contexts[0].run_process(["true"])

    drive([work], scenario)


def test_a_loop_of_the_tool_s_own_may_run_processes_too() -> None:
    @tool(effect=Effect.EXTERNAL)
    def work(context: ToolContext) -> str:
        return asyncio.run(context.run_process(["echo", "one"])).output.text()

    async def scenario(run: Run, _: Engine) -> Any:
        return (await run.submit(plan("work"))).outcomes["work"]

    assert drive([work], scenario) == Success(value="one\n")


def test_the_blocking_form_is_refused_where_it_would_block_the_loop() -> None:
    contexts: list[ToolContext] = []

    @tool(effect=Effect.EXTERNAL)
    async def work(context: ToolContext) -> str:
        contexts.append(context)
        context.run_process_blocking(["true"])
        return "no"

    async def scenario(run: Run, _: Engine) -> Any:
        return (await run.submit(plan("work"))).outcomes["work"]

    outcome = drive([work], scenario)

    assert isinstance(outcome, Failure)
    assert outcome.code is Code.TOOL_ERROR
    assert "use `await context.run_process(…)`" in outcome.message
    with pytest.raises(UsageError, match="the event loop is closed"):
        contexts[0].run_process_blocking(["true"])


def test_a_tool_that_is_tried_out_without_an_engine_runs_its_processes() -> None:
    context = ToolContext(run=RUN, call=CallId("t1.1"), attempt=1, tool="work", arguments={})

    assert context.run_process_blocking(["echo", "one"]).output.text() == "one\n"
    assert asyncio.run(context.run_process("exit 2")).code == 2
    context.stop.ask()
    assert context.cancelled


# Its parent's death.

DRIVES = """
    import asyncio, sys
    from laneway import Effect, Engine, ToolContext, tool

    @tool(effect=Effect.EXTERNAL, claims=["lane:shell"])
    async def shell(context: ToolContext) -> str:
        await context.run_process(sys.argv[2])
        return "done"

    @tool(effect=Effect.EXTERNAL)
    async def outer(context: ToolContext) -> str:
        return await context.invoke("shell")

    async def main():
        async with Engine([shell, outer], journal=sys.argv[1]) as engine:
            async with engine.run("fix-42") as run:
                name = sys.argv[3]
                await run.submit({"calls": [{"id": name, "tool": name, "arguments": {}}]})

    asyncio.run(main())
"""


def child(program: str, *arguments: object) -> "subprocess.Popen[bytes]":
    source = Path(laneway.journal.__file__ or "").parent.parent.parent
    if not (source / "laneway").exists():
        source = Path(__file__).parent.parent / "src"
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(source)},
    )


def killed_while_running(path: Path, line: str, pids: Path, count: int, name: str) -> list[int]:
    """Let another process drive a run, and kill it once its command has told so many pids."""
    driver = child(DRIVES, path, line, name)
    try:
        until(lambda: driver.poll() is not None or len(text_of(pids).split()) == count)
    finally:
        driver.kill()
        driver.wait(HANG_SECONDS)
    return [int(pid) for pid in text_of(pids).split()]


@pytest.mark.skipif(not processes.dying_with_parent(), reason="there is no setpriv here")
def test_a_command_dies_with_the_process_that_drives_its_run(tmp_path: Path) -> None:
    pids = tmp_path / "pids"

    (pid,) = killed_while_running(
        tmp_path / "runs.db", f"echo $$ > {pids}; exec sleep 60", pids, 1, "shell"
    )

    until(lambda: not is_alive(pid))


@pytest.mark.parametrize("name", ["shell", "outer"])
def test_what_a_dead_driver_left_running_is_ended_by_whoever_takes_over(
    tmp_path: Path, name: str
) -> None:
    path, pids = tmp_path / "runs.db", tmp_path / "pids"
    line = f"(trap '' TERM; sleep 60) & echo $$ $! > {pids}; wait"
    leader, member = killed_while_running(path, line, pids, 2, name)
    assert is_alive(member)

    async def scenario(run: Run, engine: Engine) -> list[Fact]:
        assert not is_alive(leader)
        assert not is_alive(member)
        assert engine.status().stuck == ()
        assert run.view.calls[CallId("t1.1")].state is State.UNCERTAIN
        return [row.fact for row in await engine.services.journal.store.read(RUN)]

    facts = drive([shell("true")], scenario, SqliteStore(path))

    stops = [fact for fact in facts if isinstance(fact, HolderStopped)]
    told = [HolderStopped(call=CallId("t1.1"), late="what it left running has ended")]
    assert stops == (told if name == "shell" else [])


# What cannot be ended.


def opened(*facts: Fact) -> MemoryJournal:
    """A journal in memory in which a driver that is dead left these facts."""
    journal = MemoryJournal()
    journal.facts[RUN] = [Row(RUN, seq, 0.0, 0.0, fact) for seq, fact in enumerate(facts, 1)]
    return journal


def crashed(tools: Sequence[Tool[..., Any]], name: str) -> MemoryJournal:
    """A journal in memory of a run whose process died while its only call had a process."""

    async def main() -> MemoryJournal:
        journal = MemoryJournal()
        entered = asyncio.Event()
        store = WatchedStore(MemoryStore(journal))

        async def after(_: int, rows: Sequence[Row]) -> None:
            if any(isinstance(row.fact, CallStarted) for row in rows):
                entered.set()

        store.after = after
        engine = Engine(tools, journal=store, clock=VirtualClock)
        async with engine, engine.run(RUN) as run:
            turn = await run.submit(plan(name), wait=False)
            await entered.wait()
            kept = list(journal.facts[RUN])
            await run.cancel(name)
            await turn.wait()
        started = ProcessStarted(call=CallId("t1.1"), group=2**22 + 7, started="1")
        kept.append(Row(RUN, len(kept) + 1, 0.0, 0.0, started))
        return opened(*(row.fact for row in kept))

    return run_virtual(main)


def waiting(effect: Effect, **options: Any) -> Tool[..., Any]:
    @tool(effect=effect, name="work", **options)
    async def work() -> str:
        await asyncio.sleep(600)
        return "done"

    return work


@pytest.mark.parametrize(
    ("effect", "options", "state"),
    [
        (Effect.EXTERNAL, {"claims": ["lane:shell"]}, State.UNCERTAIN),
        (Effect.WRITE, {"claims": ["lane:shell"], "idempotent": True}, State.BACKING_OFF),
        (Effect.WRITE, {"claims": [], "idempotent": True}, State.UNCERTAIN),
        (Effect.READ, {"claims": ["read file:/a"]}, State.BACKING_OFF),
    ],
)
def test_what_cannot_be_ended_keeps_its_claims_until_it_is_gone(
    monkeypatch: pytest.MonkeyPatch, effect: Effect, options: dict[str, Any], state: State
) -> None:
    journal = crashed([waiting(effect, **options)], "work")
    found = Found(pids=(1,))
    monkeypatch.setattr(holdovers, "end", lambda groups: groups)
    monkeypatch.setattr(holdovers, "look", lambda _: found)

    @tool(effect=Effect.WRITE, claims=["lane:shell", "write file:/a"])
    async def other() -> str:
        return "done"

    async def main() -> None:
        nonlocal found
        engine = Engine(
            [waiting(effect, **options), other], journal=MemoryStore(journal), clock=VirtualClock
        )
        async with engine, engine.run("another") as beside:
            async with engine.run(RUN) as run:
                call = run.view.calls[CallId("t1.1")]
                assert call.state is state
                assert call.stuck is (state is State.UNCERTAIN)
                (stuck,) = engine.status().stuck
                assert (stuck.run, stuck.call, stuck.tool) == (RUN, "t1.1", "work")
            turn = await beside.submit(plan("other"), wait=False)
            await asyncio.sleep(100)
            blocked = bool(options["claims"])
            assert bool(turn.open_calls) is blocked
            if blocked:
                (explained,) = beside.explain()
                assert any(wait.on == "fix-42/t1.1" for wait in explained.waits)
            assert RUN in engine.status().runs
            found = Found()
            await asyncio.sleep(2)
            assert turn.outcomes["other"] == Success(value="done")
            assert engine.status().stuck == ()
            assert RUN not in engine.status().runs
        last = journal.facts[RUN][-1].fact
        assert last == HolderStopped(call=CallId("t1.1"), late="what it left running has ended")

    run_virtual(main)


def test_an_operator_lets_go_of_what_cannot_be_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    tools = [waiting(Effect.EXTERNAL, claims=["lane:shell"])]
    journal = crashed(tools, "work")
    monkeypatch.setattr(holdovers, "end", lambda groups: groups)
    monkeypatch.setattr(holdovers, "look", lambda _: Found(out_of_reach=True))

    async def main() -> None:
        engine = Engine(tools, journal=MemoryStore(journal), clock=VirtualClock)
        async with engine, engine.run(RUN):
            assert len(engine.status().stuck) == 1
            engine.lanes.reset("shell")
            assert "t1.1" not in str(engine.status().lanes)
            await asyncio.sleep(5)
            assert len(engine.status().stuck) == 1

    run_virtual(main)


# Whose group it is.


def driver(**changes: Any) -> Any:
    return msgspec.structs.replace(this_driver(), **changes)


def facts_of(*facts: Fact) -> dict[CallId, tuple[Group, ...]]:
    rows = [Row(RUN, seq, 0.0, 0.0, fact) for seq, fact in enumerate(facts, 1)]
    return holdovers.groups_left(RUN, rows)


CALL = CallId("t1.1")
FIRST, SECOND = driver(pid=1), driver(pid=2)
OPENED = RunOpened(run=RUN, driver=FIRST)
STARTED = ProcessStarted(call=CALL, group=77, started="5")
ENDED = CallEnded(call=CALL, state=State.FAILED, outcome=Success(value=1))
LEFT = {CALL: (Group(77, "5", FIRST, "fix-42/t1.1"),)}


@pytest.mark.parametrize(
    ("facts", "left"),
    [
        ([], LEFT),
        ([ENDED], {}),
        ([msgspec.structs.replace(ENDED, stopped=False)], LEFT),
        ([AttemptEnded(call=CALL, attempt=1, cause="")], {}),
        ([HolderStopped(call=CALL)], {}),
        ([RunTaken(driver=SECOND)], LEFT),
        ([RunTaken(driver=SECOND), ENDED], LEFT),
        ([RunTaken(driver=SECOND), AttemptEnded(call=CALL, attempt=1, cause="")], LEFT),
        ([RunTaken(driver=SECOND), HolderStopped(call=CALL)], {}),
        ([RunForked(source=RunId("other"), seq=2)], {}),
    ],
)
def test_a_group_is_left_until_somebody_has_seen_its_end(
    facts: list[Fact], left: dict[CallId, tuple[Group, ...]]
) -> None:
    assert facts_of(OPENED, STARTED, *facts) == left


@pytest.fixture
def session() -> Iterator["subprocess.Popen[bytes]"]:
    """A marked session of a leader and a member, as a command of a call is."""
    process = subprocess.Popen(
        ["/bin/sh", "-c", "sleep 60 & echo $!; read -r _"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, groups.MARK: "fix-42/t1.1"},
    )
    yield process
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(HANG_SECONDS)
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        pipe.close()


def group_of(process: "subprocess.Popen[bytes]", **changes: Any) -> Group:
    group = Group(process.pid, groups.start_of(process.pid), this_driver(), "fix-42/t1.1")
    return msgspec.structs.replace(group, **changes)


def member_of(process: "subprocess.Popen[bytes]") -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def test_a_group_is_found_by_its_leader(session: "subprocess.Popen[bytes]") -> None:
    member = member_of(session)

    assert set(look(group_of(session)).pids) == {session.pid, member}


@pytest.mark.parametrize(
    "changes",
    [
        {"started": "1"},
        {"driver": driver(boot="before")},
        {"driver": driver(boot="")},
        {"number": os.getpgrp()},
        {"number": 2**22 + 7},
    ],
)
def test_another_s_group_is_none_of_ours(
    session: "subprocess.Popen[bytes]", changes: dict[str, Any]
) -> None:
    group = group_of(session, **changes)

    assert look(group).gone
    assert groups.end([group]) == []
    assert is_alive(member_of(session))


@pytest.mark.parametrize(("mark", "ours"), [("fix-42/t1.1", True), ("fix-42/t1.2", False)])
def test_a_group_without_its_leader_is_known_by_its_mark(
    session: "subprocess.Popen[bytes]", mark: str, ours: bool
) -> None:
    member = member_of(session)
    group = group_of(session, mark=mark)
    assert session.stdin is not None
    session.stdin.close()
    session.wait(HANG_SECONDS)

    assert look(group) == (Found((member,)) if ours else Found(out_of_reach=True))
    assert groups.end([group]) == ([] if ours else [group])
    assert is_alive(member) is not ours


def test_a_group_of_another_user_is_out_of_reach_and_left(
    session: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    member_of(session)

    def forbidden(pid: int, which: int) -> None:
        raise PermissionError

    group = group_of(session)
    monkeypatch.setattr(groups, "KILL_SECONDS", 0.05)
    monkeypatch.setattr(groups, "TERM_SECONDS", 0.05)
    with monkeypatch.context() as patched:
        patched.setattr(os, "kill", forbidden)
        patched.setattr(os, "killpg", forbidden)
        assert groups.end([group]) == [group]
        assert not groups.has_ended(session.pid)
        groups.signal_group(session.pid, signal.SIGKILL)
        patched.setattr(groups, "_PROC", Path("/nowhere"))
        assert groups.has_ended(session.pid)
        assert groups.start_of(session.pid) == ""


def test_our_own_group_and_one_whose_number_was_given_away_are_sent_no_signal(
    session: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda number, _: sent.append(number))

    for number, started in ((os.getpgrp(), ""), (1, ""), (0, ""), (session.pid, "1")):
        groups.signal_group(number, signal.SIGTERM, started=started)
    assert sent == []
    groups.signal_group(session.pid, signal.SIGTERM, started=groups.start_of(session.pid))
    assert sent == [session.pid]


def test_a_group_of_the_dead_has_ended() -> None:
    process = subprocess.Popen(["true"], start_new_session=True)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    assert groups.has_ended(process.pid)  # a zombie, which its group still counts
    process.wait()
    assert groups.has_ended(process.pid)


def test_what_runs_in_another_namespace_is_found_from_the_host() -> None:
    unshare = shutil.which("unshare")
    here = this_driver()
    if unshare is None or here.namespace != groups._FIRST_NAMESPACE:
        pytest.skip("this needs unshare, on the host itself")
    inside = subprocess.Popen(
        [unshare, "--pid", "--fork", "/bin/sh", "-c", "setsid sleep 60 & sleep 60"],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        until(lambda: inside.poll() is not None or _sleepers_outside(here.namespace))
        if inside.poll() is not None:
            pytest.skip("namespaces cannot be made here")
        (sleeper,) = _sleepers_outside(here.namespace)
        namespace = groups._namespace(sleeper)
        number = next(iter(groups._numbers_inside(sleeper)))
        group = Group(number, "5", driver(namespace=namespace, pid=1), "fix-42/t1.1")
        assert look(group) == Found((sleeper,))
        assert look(msgspec.structs.replace(group, number=4_000)).gone
        assert groups.end([group]) == []
        assert not is_alive(sleeper)
    finally:
        os.killpg(inside.pid, signal.SIGKILL)
        inside.wait(HANG_SECONDS)
    assert look(group).gone  # nobody is in that namespace any more


def _sleepers_outside(namespace: str) -> list[int]:
    """Processes that lead a session of their own in another namespace."""
    return [
        one.pid
        for one in groups._processes()
        if groups._namespace(one.pid) not in ("", namespace)
        and one.pid == one.session
        and groups._read(one.pid, "comm").strip() == "sleep"
    ]


def test_a_namespace_that_cannot_be_looked_into_may_hide_anything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = Group(77, "5", driver(namespace="pid:[2]"), "fix-42/t1.1")
    monkeypatch.setattr(groups, "_FIRST_NAMESPACE", "pid:[1]")

    assert look(group) == Found(out_of_reach=True)
    assert groups.end([group]) == [group]


def test_a_start_without_setpriv_is_a_start_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None if path is None else name)
    processes.dying_with_parent.cache_clear()
    try:
        assert processes.dying_with_parent() == ()
        assert asyncio.run(run_process(["true"])).code == 0
    finally:
        processes.dying_with_parent.cache_clear()
