"""A driver that is stopped, loses its run and wakes up: nothing is begun twice, nothing written.

Real processes: the owner is a child that stops itself (SIGSTOP) between the commit that announces
bodies and the bodies; this process takes the run over and lets the owner go on.
"""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import laneway.journal
from laneway import Effect, Engine, State, Tool, tool
from laneway.engine.run import Run
from laneway.errors import RunOwnedError
from laneway.journal import lease
from laneway.journal.lease import this_driver
from laneway.journal.sqlite import SqliteStore

HANG_SECONDS = 60
LEASE_SECONDS = 0.5
RUN = "fix-42"

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="this system has no /proc"
)

PROGRAM = """
    import asyncio, os, signal, sys, time
    from laneway import Effect, Engine, tool
    from laneway.errors import JournalError, RunOwnedError
    from laneway.facts import CallStarted
    from laneway.engine.cli.stores import PassingStore
    from laneway.journal.sqlite import SqliteStore

    path, log, lease, when = sys.argv[1:5]

    def happen(text):
        with open(log, "a") as file:
            file.write(f"{text} {os.getpid()}\\n")

    class Stopping(PassingStore):
        async def commit(self, batch):
            await super().commit(batch)
            if any(isinstance(row.fact, CallStarted) and row.fact.call == when for row in batch):
                os.kill(os.getpid(), signal.SIGSTOP)

    @tool(effect=Effect.EXTERNAL, claims=[])
    async def pay(name: str) -> str:
        happen(f"pay {name}")
        return "paid"

    @tool(effect=Effect.EXTERNAL, claims=[])
    async def wait(name: str) -> str:
        happen(f"wait {name}")
        try:
            await asyncio.sleep(600)
        finally:
            happen(f"stop {name}")
        return "waited"

    @tool(effect=Effect.EXTERNAL, idempotent=True)
    async def step(n: int) -> str:
        happen(f"step {n}")
        await asyncio.sleep(float(os.environ.get("STEP_SECONDS", "0.3")))
        return "ok"
"""

PAYS = (
    PROGRAM
    + """
    async def main():
        store = Stopping(SqliteStore(path, lease_seconds=float(lease)))
        try:
            async with Engine([pay, wait], journal=store) as engine, engine.run("fix-42") as run:
                await run.submit({"calls": [
                    {"id": "w", "tool": "wait", "arguments": {"name": "w"}},
                    {"id": "a", "tool": "pay", "arguments": {"name": "a"}},
                    {"id": "b", "tool": "pay", "arguments": {"name": "b"}, "needs": ["a"]},
                ]})
        except RunOwnedError as error:
            print(error, flush=True)

    asyncio.run(main())
"""
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "effects").touch()
    return tmp_path / "effects"


def child(program: str, *arguments: object, **env: str) -> "subprocess.Popen[str]":
    source = Path(laneway.journal.__file__ or "").parent.parent.parent
    if not (source / "laneway").exists():
        source = Path(__file__).parent.parent / "src"
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(source), **env},
    )


def stopped(process: "subprocess.Popen[str]") -> None:
    """Wait until a child has stopped itself."""
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), process.communicate(timeout=HANG_SECONDS)[1]


def effects(log: Path) -> list[str]:
    return [line.rpartition(" ")[0] for line in log.read_text().splitlines()]


def taking_over(
    path: Path, tools: list[Tool[..., Any]], scenario: Callable[[Run], Awaitable[Any]]
) -> Any:
    """Take the run up as soon as its owner has been silent for long enough."""

    async def main() -> Any:
        give_up = time.monotonic() + HANG_SECONDS
        store = SqliteStore(path, lease_seconds=LEASE_SECONDS)
        async with Engine(tools, journal=store) as engine:
            while True:
                try:
                    async with engine.run(RUN) as run:
                        return await scenario(run)
                except RunOwnedError as error:
                    if time.monotonic() > give_up or "it loses the run after" not in str(error):
                        raise
                await asyncio.sleep(0.01)

    return asyncio.run(main())


def taker_s_tools(log: Path) -> list[Tool[..., Any]]:
    def happen(text: str) -> None:
        with log.open("a") as file:
            file.write(f"{text} {os.getpid()}\n")

    @tool(effect=Effect.EXTERNAL, claims=[])
    async def pay(name: str) -> str:
        happen(f"pay {name}")
        return "paid"

    @tool(effect=Effect.EXTERNAL, claims=[])
    async def wait(name: str) -> str:
        happen(f"wait {name}")
        return "waited"

    return [pay, wait]


@pytest.mark.parametrize("seen", ["stopped", "out of sight"])
def test_an_owner_that_was_stopped_before_a_body_does_not_enter_it_when_it_wakes_up(
    path: Path, log: Path, seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = child(PAYS, path, log, LEASE_SECONDS, "t1.3")
    stopped(owner)
    if seen == "out of sight":
        monkeypatch.setattr(lease, "_namespace", lambda: "pid:[1]")

    async def scenario(run: Run) -> tuple[list[State], str]:
        assert effects(log) == ["wait w", "pay a"]
        await run.finish()
        written = run.view.seq
        owner.send_signal(signal.SIGCONT)
        out, err = await asyncio.to_thread(owner.communicate, None, HANG_SECONDS)
        assert not err
        assert run.view.driver == this_driver()
        store = SqliteStore(path)
        await store.open()
        assert len(await store.read(run.id)) == written
        await store.close()
        return [call.state for call in run.view.calls.values()], out

    states, out = taking_over(path, taker_s_tools(log), scenario)

    assert states == [State.UNCERTAIN, State.SUCCEEDED, State.UNCERTAIN]
    # The one that ran was told to stop; the one that was about to begin has not.
    assert effects(log) == ["wait w", "pay a", "stop w"]
    assert f"run 'fix-42' is driven by process {os.getpid()} on host" in out


def test_an_owner_that_was_stopped_for_a_moment_goes_on(path: Path, log: Path) -> None:
    program = PAYS.replace('"tool": "wait"', '"tool": "pay"')
    owner = child(program, path, log, LEASE_SECONDS, "t1.3")
    stopped(owner)
    since = time.monotonic()
    while time.monotonic() < since + LEASE_SECONDS / 2:  # longer than a third: it has to ask
        time.sleep(0.01)
    owner.send_signal(signal.SIGCONT)

    out, err = owner.communicate(timeout=HANG_SECONDS)

    assert (out, err) == ("", "")
    assert sorted(effects(log)) == ["pay a", "pay b", "pay w"]


STEPS = (
    PROGRAM
    + """
    async def main():
        store = SqliteStore(path, lease_seconds=float(lease))
        fatal = int(when)
        async with Engine([step], journal=store) as engine:
            if fatal == 0:
                print("ready", flush=True)
                await asyncio.to_thread(sys.stdin.readline)
            while True:
                try:
                    async with engine.run("steps") as run:
                        print("has the run", flush=True)
                        if run.open_turn:
                            await run.finish()
                        elif not run.turns:
                            await run.submit({"calls": [
                                {"id": f"s{n}", "tool": "step", "arguments": {"n": n},
                                 "needs": [f"s{n - 1}"] if n > 1 else []}
                                for n in range(1, 5)
                            ]})
                        print("done", *[call.state for call in run.view.calls.values()], flush=True)
                        return
                except RunOwnedError as error:
                    print("refused", error, flush=True)
                    await asyncio.to_thread(sys.stdin.readline)

    asyncio.run(main())
"""
)


def until(log: Path, text: str, process: "subprocess.Popen[str]") -> None:
    give_up = time.monotonic() + HANG_SECONDS
    while text not in effects(log):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < give_up
        time.sleep(0.001)


def line_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    assert line, process.communicate(timeout=HANG_SECONDS)[1]
    return line


def say(process: "subprocess.Popen[str]", text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{text}\n")
    process.stdin.flush()


@pytest.mark.parametrize("variant", ["", "owner_dies"])
def test_h_crash_3_two_processes_resume_the_same_run(path: Path, log: Path, variant: str) -> None:
    first = child(STEPS, path, log, LEASE_SECONDS, 1)
    until(log, "step 2", first)
    first.kill()
    first.communicate(timeout=HANG_SECONDS)
    fighters = [child(STEPS, path, log, LEASE_SECONDS, 0, STEP_SECONDS="0.3") for _ in range(2)]
    for process in fighters:
        assert line_of(process) == "ready"
    for process in fighters:  # within 10 ms
        say(process, "go")
    said = [line_of(process) for process in fighters]

    assert sorted(line.split()[0] for line in said) == ["has", "refused"]
    winner, loser = fighters if said[0].startswith("has") else fighters[::-1]
    refusal = next(line for line in said if line.startswith("refused"))
    assert f"process {winner.pid} on host" in refusal
    if variant:
        until(log, "step 3", winner)
        winner.kill()
        winner.wait(HANG_SECONDS)
    else:
        assert winner.stdout is not None
        assert winner.stdout.readline().split() == ["done", *["SUCCEEDED"] * 4]
        winner.wait(HANG_SECONDS)
    say(loser, "again")

    out, err = loser.communicate(timeout=HANG_SECONDS)

    winner.communicate(timeout=HANG_SECONDS)
    assert out.splitlines() == ["has the run", "done" + " SUCCEEDED" * 4], err
    counted = {f"step {n}": effects(log).count(f"step {n}") for n in range(1, 5)}
    assert counted == {"step 1": 1, "step 2": 2, "step 3": 2 if variant else 1, "step 4": 1}
    assert _seqs(path) == [(1,)]


def _seqs(path: Path) -> list[Any]:

    with closing(sqlite3.connect(path)) as connection:
        sql = "SELECT count(*) = max(seq) AND count(DISTINCT seq) = max(seq) FROM journal"
        return connection.execute(sql).fetchall()
