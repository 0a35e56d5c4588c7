"""Holds what is found after a power failure against what had been said before it.

Takes an image and the notes that came before it; opens the image as a host would, and finds facts
that were lost, changed or half-applied, a file that is damaged, a run that cannot go on, an effect
that began unseen or begins again.
"""

import asyncio
import random
import shutil
import sqlite3
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from laneway import Engine
from laneway.errors import LanewayError
from laneway.facts import HostNoted, Row
from laneway.ids import RunId
from laneway.journal.fold import RunView, fold
from laneway.journal.lease import this_driver
from laneway.journal.sqlite import SqliteStore
from laneway.states import State
from laneway.testing.scripted import Stage
from tests.power.disk import Image
from tests.power.lives import REPEATABLE, RUNS, TURNS_RUN, cast, host
from tests.power.noting import mark
from tests.power.told import Fault, Place, Told


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What an image came to when it was opened."""

    rows: dict[Place, str] = {}
    damage: str = ""
    """Why it could not be opened, read or carried on."""
    unhandled: str = ""
    """An error that says nothing of a journal: where it came from."""
    started: frozenset[str] = frozenset()
    """The calls of turns whose RUNNING is there."""
    entered: tuple[str, ...] = ()
    """The bodies that were entered while the run was carried on."""
    changed: tuple[str, ...] = ()
    """The calls whose outcome was another afterwards, or that have none."""


def lay(image: Image, folder: Path, dice: random.Random) -> Path:
    """Write an image to a scratch folder, at times with rubbish for a shared memory's file."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path, content in image.items():
        if content is None:
            (folder / path).mkdir()
        else:
            (folder / path).write_bytes(content)
    if "runs.db-wal" in image and dice.random() < 0.2:
        (folder / "runs.db-shm").write_bytes(dice.randbytes(32_768))
    return folder / "runs.db"


def opened(path: Path, *, plays: str) -> Found:
    """Open what a power failure left, and carry it on."""
    try:
        found = asyncio.run(_turns(path) if plays == "turns" else _runs(path))
    except LanewayError as error:
        return Found(damage=f"{type(error).__name__}: {error}")
    except Exception:  # noqa: BLE001 - whatever is not an error of ours is a finding
        return Found(unhandled=traceback.format_exc())
    return msgspec.structs.replace(found, damage=found.damage or _damage(path))


def _damage(path: Path) -> str:
    try:
        with closing(sqlite3.connect(path)) as connection:
            (whole,) = connection.execute("PRAGMA integrity_check").fetchone()
    except sqlite3.Error as error:
        return f"integrity_check: {error}"
    return "" if whole == "ok" else str(whole)


def judged(found: Found, told: Told) -> Iterator[Fault]:
    """Hold what was found against what had been said.

    Yields:
        Each fault that is found.
    """
    if found.damage or found.unhandled:
        kind = "DAMAGED" if found.damage else "UNHANDLED"
        yield Fault(kind, found.damage or found.unhandled)
        return
    for (run, seq), what in told.kept.items():
        if found.rows.get((run, seq)) != what:
            there = "another is there" if (run, seq) in found.rows else "it is not there"
            yield Fault("LOST", f"fact {seq} of run {run}: {there}")
    yield from _whole(found, told)
    for (run, seq), _ in found.rows.items() - told.begun:
        yield Fault("INVENTED", f"fact {seq} of run {run}")
    for call in set(told.entered) - found.started:
        yield Fault("UNSEEN", f"the body of {call} was entered, and its RUNNING is not there")
    for call in set(found.entered) & set(told.entered):
        if call.split("-")[0] not in REPEATABLE:
            yield Fault("TWICE", f"the body of {call} was entered again")
    for call in found.changed:
        yield Fault("CHANGED", f"the outcome of {call}")


def _whole(found: Found, told: Told) -> Iterator[Fault]:
    """Each batch is there or not, and none without those before it."""
    missing = ""
    for number, batch in enumerate(told.batches):
        there = [place for place, what in batch.items() if found.rows.get(place) == what]
        if len(there) == len(batch):
            if missing:
                yield Fault("OUT OF ORDER", f"batch {number} is there without {missing}")
                return
        elif there:
            yield Fault("HALF", f"{len(there)} of the {len(batch)} facts of batch {number}")
        elif number in told.acknowledged:
            missing = f"batch {number}"


async def _runs(path: Path) -> Found:
    """Read the runs, take them, and keep one more fact of each."""
    store = SqliteStore(path)
    await store.open()
    try:
        rows: dict[Place, str] = {}
        for run in RUNS:
            kept = await store.take(run, this_driver())
            rows |= _marks(run, kept)
            more = Row(run, len(kept) + 1, 0.0, 0.0, HostNoted(note="it goes on"))
            await store.commit([more])
            if list(await store.read(run)) != [*kept, more]:
                return Found(damage=f"run {run} is not what was kept of it")
        return Found(rows=rows)
    finally:
        await store.close()


async def _turns(path: Path) -> Found:
    """Read the run, carry it on with a host's loop, and read it again."""
    before = await _read(path)
    view = fold(TURNS_RUN, before)
    entered: list[str] = []
    async with (
        Engine(cast(Stage(), lambda _, call: entered.append(call)), journal=path) as engine,
        engine.run(TURNS_RUN) as run,
    ):
        await host(run, max(1, len(view.turns)))
    after = fold(TURNS_RUN, await _read(path))
    return Found(
        rows=_marks(TURNS_RUN, before),
        started=frozenset(call.record.provider_id for call in view.calls.values() if call.attempt),
        entered=tuple(entered),
        changed=tuple(_changed(view, after)),
    )


def _changed(before: RunView, after: RunView) -> Iterator[str]:
    often = Counter(call.record.provider_id for call in after.calls.values())
    yield from (name for name, times in often.items() if times > 1)
    for name, call in after.calls.items():
        earlier = before.calls.get(name)
        if call.outcome is None or (
            earlier is not None and earlier.outcome not in (None, call.outcome)
        ):
            yield call.record.provider_id
        elif call.state not in (State.SUCCEEDED, State.UNCERTAIN, State.SKIPPED):
            yield f"{call.record.provider_id}, which is {call.state}"


async def _read(path: Path) -> list[Row]:
    store = SqliteStore(path)
    await store.open()
    try:
        return list(await store.read(TURNS_RUN))
    finally:
        await store.close()


def _marks(run: RunId, rows: Sequence[Row]) -> dict[Place, str]:
    return {(run, row.seq): mark(row) for row in rows}
