"""The runs of a journal that have a driver, read beside it: nothing is locked, made or written.

A connection that may not write reads a snapshot of the file; the driver's writer never waits for
it. Feeds `lanes`.
"""

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import msgspec

from laneway.engine.cli.journals import existing
from laneway.errors import JournalError, UnknownRunError
from laneway.facts import Driver, Row
from laneway.ids import RunId
from laneway.journal.codec import Kept, decode_rows
from laneway.journal.lease import silence
from laneway.journal.reading import looking_at
from laneway.journal.spill import values_folder
from laneway.journal.statements import STATEMENTS


class LeasedRun(msgspec.Struct, frozen=True):
    """A run that somebody drives, or died driving."""

    run: RunId
    driver: Driver
    silent_seconds: float
    """How long ago the driver gave its last sign of life."""
    rows: Sequence[Row]


def leased_runs(path: Path, run: str = "") -> list[LeasedRun]:
    """Read all runs that have a driver, in the order in which they were opened.

    Args:
        path: of the journal.
        run: one that must be in it, driven or not; empty for none.

    Raises:
        UnknownRunError: the journal has no such run.
        JournalError: it is not there, foreign, newer, damaged, or cannot be read.
    """
    with looking_at(existing(path)) as connection:
        names = [RunId(name) for name, *_ in connection.execute(STATEMENTS["runs"])]
        found = [one for name in reversed(names) for one in _leased(connection, name)]
    if run and run not in names:
        raise UnknownRunError(run, names)
    return asyncio.run(_decoded(found, values_folder(path.absolute())))


def _leased(
    connection: sqlite3.Connection, run: RunId
) -> list[tuple[RunId, Driver, float, list[Kept]]]:
    ((_, text, beat, pulse),) = connection.execute(STATEMENTS["owner"], {"run": run})
    if text is None:
        return []
    kept: list[Kept] = connection.execute(STATEMENTS["read"], {"run": run}).fetchall()
    try:
        driver = msgspec.json.decode(text, type=Driver)
    except msgspec.MsgspecError as error:
        raise JournalError(f"run {run!r}: its lease cannot be read ({error}): {text}") from error
    return [(run, driver, silence(driver, beat=beat, pulse=pulse), kept)]


async def _decoded(
    found: list[tuple[RunId, Driver, float, list[Kept]]], values: Path
) -> list[LeasedRun]:
    return [
        LeasedRun(run, driver, silent, await decode_rows(run, kept, values))
        for run, driver, silent, kept in found
    ]
