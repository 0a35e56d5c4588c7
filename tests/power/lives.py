"""What is played under the shim: lives of a process that keeps facts, and says what it was told.

A life opens the journal that the one before left, drives runs or whole turns, and ends by closing
or by dying. What it says goes through the shim, between the operations: the batch it is about to
commit, that a commit returned, that a tool's body was entered.
"""

import asyncio
import os
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec

from laneway import Effect, Engine, Tool, Turn
from laneway.engine.run import Run
from laneway.errors import JournalError
from laneway.facts import HostNoted, Row
from laneway.ids import RunId
from laneway.journal.lease import this_driver
from laneway.journal.sqlite import SqliteStore
from laneway.testing.scripted import Do, Return, Stage
from tests.power.noting import NotedStore, Voice

RUNS = tuple(map(RunId, ("a", "b", "c")))
TURNS_RUN = RunId("turns")
REPEATABLE = {"pure", "read", "put"}
"""The tools that may be entered again."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be played, and how the disk behaves."""

    root: str
    log: str
    plays: Literal["store", "turns"] = "store"
    seed: int = 0
    batches: int = 12
    """Commits of each life that drives a store."""
    lives: tuple[Literal["closes", "dies"], ...] = ("closes", "dies", "dies")
    synchronous: Literal["FULL", "NORMAL"] = "FULL"
    careless: bool = False
    """synchronous=OFF is set behind the store's back."""
    split: bool = False
    """What is asked to be kept as one batch is kept fact by fact, behind the host's back."""
    autocheckpoint: int = 12
    """Pages of the write-ahead log that make SQLite begin a checkpoint. Its own figure is 1,000."""
    lies: bool = False
    """The disk says that it has synced, and has not."""
    fault: str = ""
    """As the shim reads it."""
    abrupt: bool = False
    """A life that a fault has stopped dies before it closes the journal."""


def live(job: Job, number: int) -> None:
    """Play one life of a job, to its end but for a fault of the disk."""
    voice = Voice(Path(job.root))
    voice.say("born", life=number)
    _bend_sqlite(job)
    store = SqliteStore(Path(job.root) / "runs.db", synchronous=job.synchronous)
    noted = NotedStore(store, voice, split=job.split)
    play = _drive_turns if job.plays == "turns" else _drive_store
    asyncio.run(play(job, number, noted, voice))
    voice.say("ended", life=number)


async def _drive_store(job: Job, number: int, store: NotedStore, voice: Voice) -> None:
    """Take runs, keep batches for them, leave them now and then; try again what failed, once."""
    dice = random.Random(f"{job.seed}/{number}")
    driver = this_driver()
    try:
        await store.open()
        last = {run: len(await store.take(run, driver)) for run in RUNS}
        for count in range(job.batches):
            batch = _batch(dice, last, f"{number}.{count}", many=count == job.batches - 2)
            try:
                await store.commit(batch)
            except JournalError:
                await store.commit(batch)
            for row in batch:
                last[row.run] = row.seq
            if dice.random() < 0.2:
                left = dice.choice(RUNS)
                await store.leave(left)
                last[left] = len(await store.take(left, driver))
    except JournalError as error:
        voice.say("stopped", error=str(error))
        if not job.abrupt:
            await store.close()
    if job.lives[number] == "closes":
        await store.close()


def _batch(dice: random.Random, last: dict[RunId, int], name: str, *, many: bool) -> list[Row]:
    """Make rows for one run or several: small ones, pages of text, a value of a file of its own."""
    next_seq = dict(last)
    rows: list[Row] = []
    for count in range(1100 if many and dice.random() < 0.3 else dice.choice((1, 1, 2, 3, 7))):
        run = dice.choice(RUNS)
        next_seq[run] += 1
        size = 0 if count > 8 else dice.choice((0, 40, 40, 600, 5_000, 20_000))
        text = dice.choice("xyz") * size
        note = {"name": f"{name}.{count}", "text": text}
        rows.append(Row(run, next_seq[run], dice.random(), dice.random(), HostNoted(note=note)))
    if dice.random() < 0.25:
        # The same in several batches: it need not be written twice, but must be there.
        run = dice.choice(RUNS)
        large = HostNoted(note={"large": dice.choice("pq") * 300_000})
        rows.append(Row(run, next_seq[run] + 1, dice.random(), dice.random(), large))
    return rows


def cast(stage: Stage, enter: Callable[[str, str], None]) -> list[Tool[..., Any]]:
    """Make tools of every effect class, whose bodies say when they are entered."""

    def tool(name: str, effect: Effect, **declared: Any) -> Tool[..., Any]:
        doing = (
            Do(lambda given: enter(name, str(given["id"]))),
            Do(lambda _: asyncio.sleep(0)),
            Return("done {id} " + "." * 900),
        )
        return stage.tool(name, *doing, effect=effect, **declared)

    return [
        tool("pure", Effect.PURE),
        tool("read", Effect.READ, claims=["read file:{path}"]),
        tool("write", Effect.WRITE, claims=["write file:{path}"]),
        tool("put", Effect.WRITE, idempotent=True, claims=["write file:{path}"]),
        tool("pay", Effect.EXTERNAL, claims=["lane:bank"]),
        tool("mail", Effect.EXTERNAL),
    ]


def turn(number: int) -> dict[str, Any]:
    """Give a reply of a model that asks for two calls of each tool, some after others."""

    def call(name: str, tool: str, path: str = "", **edges: Any) -> dict[str, Any]:
        name = f"{tool}-{number}-{name}"
        return {"id": name, "tool": tool, "arguments": {"id": name, "path": path}, **edges}

    first = [call("1", tool, "f") for tool in ("pure", "read", "write", "put", "pay", "mail")]
    names = [one["id"] for one in first]
    second = [
        call("2", tool, "f", needs=[name])
        for tool, name in zip(("read", "put", "pay", "pure", "write", "mail"), names, strict=True)
    ]
    return {"calls": [*first, *second]}


async def host(run: Run, turns: int) -> list[Turn]:
    """Do what a host does after a crash: finish what was left, then ask for what is missing."""
    await run.finish()
    while len(run.turns) < turns:
        await run.submit(turn(len(run.turns)))
    return list(run.turns)


async def _drive_turns(job: Job, number: int, store: NotedStore, voice: Voice) -> None:
    def enter(tool: str, call: str) -> None:
        voice.say("entered", tool=tool, call=call)

    try:
        tools = cast(Stage(), enter)
        async with Engine(tools, journal=store) as engine, engine.run(TURNS_RUN) as run:
            await host(run, 2 * (number + 1))
            if job.lives[number] == "dies":
                voice.say("ended", life=number)
                os._exit(0)
    except JournalError as error:
        voice.say("stopped", error=str(error))


def _bend_sqlite(job: Job) -> None:
    """Give each connection of this process a shorter log; and no syncs, in a careless one."""
    connect = sqlite3.connect

    def bent(*given: Any, **named: Any) -> sqlite3.Connection:
        kind: Any = named.get("factory", sqlite3.Connection)
        if job.careless:
            named["factory"] = type("Careless", (_Careless, kind), {})
        connection: sqlite3.Connection = connect(*given, **named)
        connection.execute(f"PRAGMA wal_autocheckpoint = {job.autocheckpoint}")
        return connection

    sqlite3.connect = bent  # type: ignore[assignment]


class _Careless:
    """Turns syncing off, unseen by whoever asks for the setting."""

    def execute(self, sql: str, *given: Any) -> Any:
        kin: Any = super()
        if not kin.__getattribute__("in_transaction") and not sql.startswith("PRAGMA"):
            kin.execute("PRAGMA synchronous = OFF")
        return kin.execute(sql, *given)
