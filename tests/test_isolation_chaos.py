"""Tools that do whatever a tool must not, at random: at the end nothing of them is left."""

import asyncio
import ctypes
import gc
import multiprocessing.util
import os
import random
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from laneway import Effect, Engine, Limits, State, Tool, ToolContext, tool
from laneway.engine.groups import has_ended
from laneway.journal.sqlite import SqliteStore
from laneway.states import ENDED
from laneway.testing import troublesome

GRACE_SECONDS = 0.05
LIMITS = Limits(
    call_seconds=5,
    grace_seconds=GRACE_SECONDS,
    tool_threads=4,
    tool_processes=2,
    back_off_seconds=0.001,
    blocked_seconds=float("inf"),
)


class Own(BaseException):
    """Outside of Exception, as nobody expects it."""


ERRORS: list[type[BaseException]] = [
    SystemExit,
    asyncio.CancelledError,
    GeneratorExit,
    Own,
    ValueError,
    ConnectionError,
    TimeoutError,
    MemoryError,
    RecursionError,
    StopAsyncIteration,
]


def lane(n: int) -> list[str]:
    return [f"lane:{n % 3}", f"write file:/w/{n % 5}"]


@tool(effect=Effect.WRITE, claims=lambda given: lane(given["n"]))
async def returns(n: int) -> Any:
    """Return something, now and then much."""
    return "x" * 1_000_000 if n % 50 == 0 else {"n": n}


@tool(effect=Effect.READ, claims=lambda given: [f"read file:/w/{given['n'] % 5}"], retries=2)
async def raises(n: int) -> None:
    """Raise anything."""
    await asyncio.sleep(0)
    raise ERRORS[n % len(ERRORS)](f"{n}")


@tool(effect=Effect.EXTERNAL, claims=lambda given: lane(given["n"]))
def raises_in_thread(n: int) -> None:
    """Raise anything there."""
    raise ERRORS[n % len(ERRORS)](f"{n}")


@tool(effect=Effect.WRITE, claims=lambda given: lane(given["n"]), timeout=0.01)
async def hangs(n: int) -> None:
    """Hang, but hear."""
    await asyncio.Event().wait()


@tool(effect=Effect.WRITE, claims=lambda given: lane(given["n"]), timeout=0.01)
async def ignores(n: int) -> str:
    """Ignore the stop for a while."""
    give_up = time.monotonic() + 2 * GRACE_SECONDS
    while time.monotonic() < give_up:
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            continue
    return "late"


@tool(effect=Effect.WRITE, claims=lambda given: lane(given["n"]), timeout=0.01)
def blocks(n: int) -> str:
    """Block a thread beyond its time."""
    time.sleep(0.03)
    return "late"


@tool(effect=Effect.READ, claims=[])
async def nests(n: int, context: ToolContext) -> Any:
    """Ask for another one, and leave one behind."""
    left = asyncio.ensure_future(context.invoke("hangs", n=n))
    left.add_done_callback(lambda over: over.cancelled() or over.exception())
    return await context.invoke("returns", n=n)


def _worst(said: dict[str, Any]) -> Any:
    return {"effect": Effect.WRITE, **said}


def process(function: Any, **said: Any) -> Tool[..., Any]:
    return tool(function, isolation="process", **_worst({"claims": [], **said}))


IN_PROCESSES = [
    process(troublesome.crash),
    process(troublesome.leave),
    process(troublesome.leave_politely),
    process(troublesome.hang, timeout=0.1),
    process(troublesome.flood),
    process(troublesome.leave_children),
    process(troublesome.close_everything),
    process(troublesome.return_much),
    process(troublesome.echo, effect=Effect.READ),
]
INSIDE: list[Tool[..., Any]] = [returns, raises, raises_in_thread, hangs, ignores, blocks, nests]
TOOLS = [*INSIDE, *IN_PROCESSES]


def some_calls(chance: random.Random, count: int, processes: float) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []
    for at in range(count):
        n = chance.randrange(1000)
        if chance.random() < processes:
            one = chance.choice(IN_PROCESSES)
            calls.append({"id": f"c{at}", "tool": one.spec.name, "arguments": {}})
        else:
            name = chance.choice(INSIDE).spec.name
            calls.append({"id": f"c{at}", "tool": name, "arguments": {"n": n}})
        if at and chance.random() < 0.1:
            calls[-1]["after"] = [f"c{chance.randrange(at)}"]
    return calls


class Counted:
    """What this process has of everything."""

    def __init__(self, folder: Path) -> None:
        gc.collect()
        self.files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a folder of the kernel's
        self.threads = sorted(one.name for one in threading.enumerate())
        self.children = children()
        self.temporary = sorted(one.name for one in folder.iterdir())


def children() -> int:
    """The processes that descend from this one, the fork server and its like included."""
    parents: dict[int, int] = {}
    for one in Path("/proc").iterdir():
        try:
            fields = (one / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if one.name.isdecimal() and fields[0] != "Z":
            parents[int(one.name)] = int(fields[1])
    found, pending = 0, [os.getpid()]
    while pending:
        parent = pending.pop()
        below = [pid for pid, above in parents.items() if above == parent]
        found += len(below)
        pending += below
    return found


def resident_bytes() -> int:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def play(
    folder: Path, seed: int, count: int, *, processes: float, a_turn: int = 50
) -> tuple[Counter[State], list[int]]:
    """Run so many random calls, in runs of one turn each; give their states, and the memory."""
    chance = random.Random(seed)
    met: Counter[State] = Counter()
    memory: list[int] = []

    async def main() -> None:
        store = SqliteStore(folder / "runs.db")
        async with Engine(TOOLS, journal=store, limits=LIMITS) as engine:
            for number in range(count // a_turn):
                async with engine.run(f"r{seed}/{number}") as run:
                    calls = some_calls(chance, a_turn, processes)
                    turn = await run.submit({"calls": calls}, wait=False)
                    if chance.random() < 0.3:
                        await asyncio.sleep(chance.random() * 0.05)
                        await run.cancel(chance.choice(calls)["id"])
                    await turn.wait()
                    await turn.close()
                    assert len(turn.messages) == 2 or turn.messages
                    assert len(turn.outcomes) == a_turn
                    for call in turn.calls:
                        assert call.state in ENDED
                        assert call.outcome is not None
                        met[call.state] += 1
                    groups = [one.group for call in turn.calls for one in call.processes]
                    assert all(has_ended(group) for group in groups)
                if number % 10 == 9:
                    memory.append(resident_bytes())
            await _free(engine)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())
    return met, memory


async def _free(engine: Engine) -> None:
    """Wait until what is stuck has stopped, and see that nothing is held."""
    while engine.status().stuck or engine.status().runs:  # noqa: ASYNC110 - nothing tells a host
        await asyncio.sleep(0.01)
    status = engine.status()
    assert status.stuck_threads == 0
    assert [one for one in status.lanes if one.holders or one.waiters] == []


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    multiprocessing.util.get_temp_dir()  # That of its own server stays where it is.
    here = tmp_path / "temporary"
    here.mkdir()
    monkeypatch.setenv("TMPDIR", str(here))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return here


@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_tools_do_each_call_has_one_outcome_and_nothing_is_left(
    tmp_path: Path, folder: Path, seed: int
) -> None:
    play(tmp_path, 0, 50, processes=0.2)  # Starts what a process has once: the fork server.
    before = Counted(folder)

    met, _ = play(tmp_path, seed, 200, processes=0.1)

    after = _settled(folder, before)
    assert vars(after) == vars(before)
    assert sum(met.values()) == 200
    assert {State.SUCCEEDED, State.FAILED, State.TIMED_OUT} <= set(met)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_ten_thousand_calls_of_such_tools_leave_nothing_and_take_no_memory(
    tmp_path: Path, folder: Path
) -> None:
    play(tmp_path, 0, 2_000, processes=0.02)
    before = Counted(folder)

    met, memory = play(tmp_path, 3, 10_000, processes=0.02)

    after = _settled(folder, before)
    assert vars(after) == vars(before)
    assert sum(met.values()) == 10_000
    assert memory[-1] <= memory[len(memory) // 4] * 1.05
    print(dict(met), memory)


def _settled(folder: Path, before: Counted) -> Counted:
    """Count once more; daemon threads of the last engine may take a moment to go home."""
    give_up = time.monotonic() + 20
    after = Counted(folder)
    while vars(after) != vars(before) and time.monotonic() < give_up:
        time.sleep(0.05)
        after = Counted(folder)
    return after
