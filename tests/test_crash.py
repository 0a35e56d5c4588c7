"""Killed before and after every commit: nothing is lost, changed or wrongly done twice."""

import asyncio
import importlib
import os
import signal
import sqlite3
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from laneway import Effect, Engine, State, Turn
from laneway.engine.run import Run
from laneway.journal.fold import fold
from laneway.journal.sqlite import SqliteStore
from laneway.testing.dying import DyingStore
from laneway.testing.scripted import Do, Log, Return, Stage

# A child is forked from a parent in which this import is not under way in a thread.
importlib.import_module("networkx")

COMMITS = 12
"""More than the turn takes; a test says so."""


def pause(_: Any) -> Any:
    return asyncio.sleep(0)


def cast(stage: Stage) -> Sequence[Any]:
    """Tools of every effect class; each notes its start and its end outside the engine."""
    doing = (Log("start {id}"), Do(pause), Log("end {id}"), Return("done {id}"))
    return [
        stage.tool("pure", *doing, effect=Effect.PURE),
        stage.tool("read", *doing, effect=Effect.READ, claims=["read file:{path}"]),
        stage.tool("write", *doing, effect=Effect.WRITE, claims=["write file:{path}"]),
        stage.tool(
            "put", *doing, effect=Effect.WRITE, idempotent=True, claims=["write file:{path}"]
        ),
        stage.tool("pay", *doing, effect=Effect.EXTERNAL, claims=["lane:bank"]),
        stage.tool("mail", *doing, effect=Effect.EXTERNAL),
    ]


MAY_REPEAT = {"p1", "p2", "r1", "r2", "r3", "i1", "i2"}


def call(name: str, tool: str, path: str = "", **edges: Any) -> dict[str, Any]:
    return {"id": name, "tool": tool, "arguments": {"id": name, "path": path}, **edges}


TURN = {
    "calls": [
        call("p1", "pure"),
        call("r1", "read", "a"),
        call("w1", "write", "a"),
        call("r2", "read", "a"),
        call("i1", "put", "b"),
        call("w2", "write", "b", needs=["w1"]),
        call("x1", "pay"),
        call("x2", "pay"),
        call("m1", "mail", after=["x1"]),
        call("i2", "put", "c", needs=["m1"]),
        call("p2", "pure", needs=["i2", "x2"]),
        call("r3", "read", "b", needs=["w2"]),
    ]
}
NAMES = [one["id"] for one in TURN["calls"]]


async def drive(run: Run) -> Turn:
    """The host's loop: finish what a crash left, else submit."""
    turn = await run.finish()
    if turn is None:
        turn = run.turns[0] if run.turns else await run.submit(TURN)
    return turn


async def play(journal: Any, stage: Stage) -> dict[str, tuple[State, Any]]:
    async with Engine(cast(stage), journal=journal) as engine, engine.run("r") as run:
        turn = await drive(run)
        return {c.record.provider_id: (c.state, c.outcome) for c in turn.calls}


def die(folder: Path, at: int, *, before: bool) -> int:
    """Play in a child that dies at a commit; return how the child ended."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    try:
        store = DyingStore(SqliteStore(folder / "runs.db"), at=at, before=before)
        asyncio.run(play(store, Stage(folder / "log")))
    except BaseException:  # noqa: BLE001 - a child must not go on as a second pytest
        os._exit(3)
    os._exit(0)


def recorded(folder: Path) -> dict[str, tuple[State, Any]]:
    """The outcomes that the journal holds."""

    async def read() -> dict[str, tuple[State, Any]]:
        store = SqliteStore(folder / "runs.db")
        await store.open()
        try:
            view = fold("r", await store.read("r"))  # type: ignore[arg-type]
        finally:
            await store.close()
        return {
            c.record.provider_id: (c.state, c.outcome)
            for c in view.calls.values()
            if c.outcome is not None
        }

    return asyncio.run(read()) if (folder / "runs.db").exists() else {}


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("at", range(1, COMMITS + 1))
def test_a_process_killed_at_a_commit_is_resumed_without_repeating(
    tmp_path: Path, at: int, *, before: bool
) -> None:
    status = die(tmp_path, at, before=before)
    kept = recorded(tmp_path)

    first = asyncio.run(play(tmp_path / "runs.db", Stage(tmp_path / "log")))
    second = asyncio.run(play(tmp_path / "runs.db", Stage(tmp_path / "log")))

    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    starts = Counter(line[6:] for line in Stage(tmp_path / "log").log if line.startswith("start"))
    for name in NAMES:
        assert starts[name] <= (2 if name in MAY_REPEAT else 1), (name, starts)
    assert list(first) == NAMES
    assert second == first
    for name, ended in kept.items():
        assert first[name] == ended
    for name, (state, _) in first.items():
        assert state in (State.SUCCEEDED, State.UNCERTAIN, State.SKIPPED)
        if state is State.SUCCEEDED:
            assert starts[name] >= 1
        if name in MAY_REPEAT:
            assert state is not State.UNCERTAIN


def test_the_turn_is_killed_at_every_commit_it_makes(tmp_path: Path) -> None:
    last = die(tmp_path, COMMITS, before=True)

    assert os.WIFEXITED(last), "the turn makes more commits than the test kills"
    assert {state for state, _ in recorded(tmp_path).values()} == {State.SUCCEEDED}


def test_the_journal_is_synchronised_before_an_effect_begins(tmp_path: Path) -> None:
    """The connection that writes has synchronous=FULL when a body is entered."""
    store = SqliteStore(tmp_path / "runs.db")
    stage = Stage()
    seen: list[int] = []

    async def look(_: Any) -> str:
        seen.append(await synchronous(store))
        return "seen"

    tool = stage.tool("look", Do(look), effect=Effect.EXTERNAL)

    async def main() -> None:
        async with Engine([tool], journal=store) as engine, engine.run("r") as run:
            await run.submit({"calls": [{"id": "a", "tool": "look", "arguments": {}}]})

    asyncio.run(main())

    full = 2
    assert seen == [full]


async def synchronous(store: SqliteStore) -> int:
    connection, _ = store._opened  # type: ignore[misc]
    rows = await connection._connection.execute_fetchall("PRAGMA synchronous")
    return int(next(iter(rows))[0])


def test_h_crash_1_a_batch_that_died_is_resumed_by_effect_class(tmp_path: Path) -> None:
    """A read runs again, a payment in flight does not, a finished call is answered."""
    log = tmp_path / "log"

    def cast_of(stage: Stage, *, hang: bool) -> Sequence[Any]:
        async def stay(_: Any) -> None:
            if hang:
                if len(stage.log) == 3:
                    os.kill(os.getpid(), signal.SIGKILL)
                await asyncio.sleep(60)

        return [
            stage.tool("read", Log("read {n}"), Do(stay), Return("r")),
            stage.tool("pay", Log("pay {n}"), Do(stay), Return("paid"), effect=Effect.EXTERNAL),
            stage.tool("quick", Log("quick {n}"), Return("q"), effect=Effect.EXTERNAL),
        ]

    turn = {
        "calls": [
            {"id": "q", "tool": "quick", "arguments": {"n": 1}},
            {"id": "z0", "tool": "read", "arguments": {"n": 0}, "needs": ["q"]},
            {"id": "p", "tool": "pay", "arguments": {"n": 1}, "needs": ["q"]},
            {"id": "z", "tool": "quick", "arguments": {"n": 2}, "needs": ["p"]},
        ]
    }

    async def first() -> None:
        stage = Stage(log)
        async with (
            Engine(cast_of(stage, hang=True), journal=tmp_path / "runs.db") as engine,
            engine.run("r") as run,
        ):
            await run.submit(turn)

    pid = os.fork()
    if not pid:
        try:
            asyncio.run(first())
        finally:
            os._exit(3)
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    assert running_before_entered(tmp_path / "runs.db") == {"t1.2", "t1.3"}

    async def again() -> list[Any]:
        stage = Stage(log)
        async with (
            Engine(cast_of(stage, hang=False), journal=tmp_path / "runs.db") as engine,
            engine.run("r") as run,
        ):
            resumed = await run.finish() or run.turns[0]
            return [resumed.outcomes, [c.state for c in resumed.calls], resumed.messages]

    one, two = asyncio.run(again()), asyncio.run(again())

    assert one == two
    outcomes, states, messages = one
    assert states == [State.SUCCEEDED, State.SUCCEEDED, State.UNCERTAIN, State.SKIPPED]
    assert outcomes["p"].code == "OUTCOME_UNKNOWN"
    assert outcomes["z"].code == "DEPENDENCY_FAILED"
    assert "may or may not have happened" in str(messages)
    done = Counter(Stage(log).log)
    assert done == {"quick 1": 1, "read 0": 2, "pay 1": 1}


def running_before_entered(path: Path) -> set[str]:
    """The calls whose RUNNING is in the file, as any SQLite reader sees it."""
    with sqlite3.connect(path) as connection:
        rows = connection.execute(
            "SELECT body ->> '$.call' FROM facts WHERE body ->> '$.fact' = 'call_started'"
        )
        return {row[0] for row in rows} - {"t1.1"}
