"""Cases from bug reports of the field: what only shows after thousands of turns."""

import asyncio
import ctypes
import gc
import os
from collections.abc import Sized
from pathlib import Path
from typing import Any

import pytest

from laneway import Effect, Engine, Limits, State, tool
from laneway.engine.live import LiveCall, LiveTurn
from laneway.engine.run import Run
from laneway.lanes import plans


def test_a_session_of_many_turns_keeps_nothing_for_paths_that_are_not_in_use(
    tmp_path: Path,
) -> None:
    few, many = asyncio.run(session(tmp_path, 100, 600))

    assert few["sizes"] == many["sizes"]
    assert few["live"] == many["live"]
    assert many["lanes"] == ()
    assert few["tasks"] == many["tasks"]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_h_long_1_ten_thousand_files_later_tables_and_memory_are_what_they_were(
    tmp_path: Path,
) -> None:
    few, many = asyncio.run(session(tmp_path, 2_000, 10_000))

    print(few["memory"], many["memory"])
    assert few["sizes"] == many["sizes"]
    assert few["live"] == many["live"]
    assert many["lanes"] == ()
    assert few["tasks"] == many["tasks"]
    assert many["memory"] <= few["memory"] * 1.2


async def session(folder: Path, few: int, many: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Touch a new path each turn, every 100th cancelled while queued; look twice."""
    holding, let_go = asyncio.Event(), asyncio.Event()

    @tool(effect=Effect.WRITE, claims=["write w:{path}"])
    async def touch(path: str) -> str:
        return "ok"

    @tool(effect=Effect.WRITE, claims=["write w:{path}"])
    async def hold(path: str) -> str:
        holding.set()
        await let_go.wait()
        return "ok"

    found: list[dict[str, Any]] = []
    limits = Limits(blocked_seconds=float("inf"))
    engine = Engine([touch, hold], journal=folder / "runs.db", limits=limits, loops=None)
    async with engine:
        run = engine.run("r")
        for at in range(1, many + 1):
            # As a host that serves many conversations: one run for each fifty turns.
            if at % 50 == 1:
                run = await engine.run(f"r{at}").__aenter__()
            if at % 100 == 0:
                await cancelled_while_queued(run, f"p{at}", holding, let_go)
            else:
                turn = await run.submit({"calls": [call("t", "touch", f"p{at}")]}, key=f"k{at}")
                assert turn.calls[0].state is State.SUCCEEDED
            if at % 50 == 0:
                await run.__aexit__(None, None, None)
            if at in (few, many):
                found.append(counted(engine))
    return found[0], found[1]


def call(name: str, tool: str, path: str) -> dict[str, Any]:
    return {"id": name, "tool": tool, "arguments": {"path": path}}


async def cancelled_while_queued(
    run: Run, path: str, holding: asyncio.Event, let_go: asyncio.Event
) -> None:
    holding.clear()
    let_go.clear()
    calls = [call("h", "hold", path), call("t", "touch", path)]
    turn = await run.submit({"calls": calls}, key=path, wait=False)
    await holding.wait()
    await run.cancel("t")
    let_go.set()
    await turn.wait()
    assert [one.state for one in turn.calls] == [State.SUCCEEDED, State.CANCELLED]


def counted(engine: Engine) -> dict[str, Any]:
    """What the engine keeps: sizes of its tables, live calls, lanes in use, tasks, memory."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    alive = [type(one) for one in gc.get_objects() if isinstance(one, LiveCall | LiveTurn)]
    resident = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return {
        "sizes": sizes(engine),
        "live": len(alive),
        "lanes": tuple(one for one in engine.status().lanes if one.holders or one.waiters),
        "tasks": len(asyncio.all_tasks()),
        "memory": resident * os.sysconf("SC_PAGESIZE"),
    }


def sizes(engine: Engine) -> dict[str, int]:
    """The size of every table that hangs on what the runs share, two levels deep.

    Left out is what sets of claims come to: a cache of its own bound, which is held apart.
    """
    services = engine.services
    found: dict[str, int] = {}
    for name in type(services).__slots__:
        part = getattr(services, name, None)
        if isinstance(part, Sized) and not isinstance(part, str):
            found[name] = len(part)
        for field, value in _fields(part):
            if isinstance(value, Sized) and not isinstance(value, str | bytes):
                found[f"{name}.{field}"] = len(value)
    assert found.pop("lanes._plans") <= plans._KEPT
    return found


def _fields(part: object) -> list[tuple[str, object]]:
    slots = [name for kind in type(part).__mro__ for name in getattr(kind, "__slots__", ())]
    held = dict(getattr(part, "__dict__", {}))
    for name in slots:
        if isinstance(name, str) and hasattr(part, name):
            held[name] = getattr(part, name)
    return list(held.items())
