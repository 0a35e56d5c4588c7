"""Gives up what is damaged of a run, so that it can go on from what is whole before it.

Reads a run up to its damage, puts the rest aside in the file's own table of lost facts, and writes
down that it did. If the file itself is damaged, a new one is built from whatever can be read, and
the old one is put aside. Only for a human who has looked: calls that were open at the end of what
is whole may have done anything since.
"""

import sqlite3
import time
from collections.abc import Iterable
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from laneway.errors import JournalError, RunOwnedError
from laneway.facts import Driver, LossAccepted, Row
from laneway.ids import RunId
from laneway.journal.chain import next_link
from laneway.journal.codec import encode
from laneway.journal.faults import FAULTS, fault, is_damage
from laneway.journal.lease import owner_in_the_way, silence
from laneway.journal.migrate import make, open_file
from laneway.journal.reading import Found, file_faults, find
from laneway.journal.spill import sync_folder

BUSY_SECONDS = 10.0


def accept_loss(path: Path, run: str, /, *, by: str = "") -> int:
    """Give up the damaged facts of a run, and all behind them.

    Args:
        path: of the journal.
        run: whose facts.
        by: who says so.

    Returns:
        How many were given up, as far as they could be counted; 0 if the run is whole, of which
        nothing is changed.

    Raises:
        RunOwnedError: another process drives the run, or, where the file is damaged, any run.
        UnknownRunError: there is no such run.
        JournalError: the file cannot be read or written.
    """
    try:
        return _accept(path, RunId(run), by)
    except FAULTS as error:
        raise fault(path, "could not be mended", error) from error


def _accept(path: Path, run: RunId, by: str) -> int:
    connection, sound = _opened(path)
    with closing(connection):
        # What SQLite edits on pages that it cannot make sense of may be lost, or come back.
        sound = sound and not file_faults(connection)
        connection.execute("BEGIN IMMEDIATE" if sound else "BEGIN")
        found = find(connection, path, run)
        lost = max(found.behind, 1)
        if found.damage is None and sound:
            return 0
        if sound and _mended_in_place(connection, found, lost, by):
            return lost
        # The rows lie on pages that SQLite cannot go through: all that can be read moves.
        _refuse_if_driven(connection, "", ())
        coming = _rebuild(connection, path)
    _exchange(path, coming)
    with closing(open_file(path, busy_seconds=BUSY_SECONDS, synchronous="FULL")) as mended:
        mended.execute("BEGIN IMMEDIATE")
        found = find(mended, path, run)
        if found.damage is None:
            mended.execute("ROLLBACK")
            return 0
        _give_up(mended, found, lost, by)
        mended.execute("COMMIT")
    return lost


def _mended_in_place(connection: sqlite3.Connection, found: Found, lost: int, by: str) -> bool:
    _refuse_if_driven(connection, "WHERE name = ?", (found.run,))
    try:
        _give_up(connection, found, lost, by)
    except FAULTS as error:
        if not is_damage(error):
            raise
        connection.execute("ROLLBACK")
        return False
    connection.execute("COMMIT")
    return True


def _opened(path: Path) -> tuple[sqlite3.Connection, bool]:
    """Open the file, and say whether SQLite can work on it, or only read what is left."""
    try:
        return open_file(path, busy_seconds=BUSY_SECONDS, synchronous="FULL"), True
    except JournalError as error:
        if not is_damage(error.__cause__):
            raise
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    connection.execute("PRAGMA writable_schema = ON")  # Reads a file that was cut short.
    return connection, False


def _exchange(path: Path, coming: Path) -> None:
    """Put the damaged file aside, with its log, and the new one in its place.

    Whoever dies in between leaves a file with two names, which nobody opens: where there were none,
    somebody would make an empty journal.
    """
    names = (f"{path.name}.damaged{n or ''}" for n in count())
    aside = next(one for one in map(path.with_name, names) if not one.exists())
    try:
        aside.hardlink_to(path)
    except OSError:  # There are file systems without links.
        path.replace(aside)
    for ending in ("-wal", "-shm"):
        log = path.with_name(path.name + ending)
        if log.exists():
            log.replace(aside.with_name(aside.name + ending))
    coming.replace(path)
    sync_folder(path.parent)


def _refuse_if_driven(
    connection: sqlite3.Connection, which: str, parameters: tuple[str, ...]
) -> None:
    found = connection.execute(f"SELECT name, driver, beat, pulse FROM runs {which}", parameters)  # noqa: S608 - a constant
    for name, text, beat, pulse in found.fetchall():
        if text is None:
            continue
        try:
            driver = msgspec.json.decode(text, type=Driver)
        except msgspec.MsgspecError:
            continue  # Damaged, too; whoever gives up facts has looked.
        silent = silence(driver, beat=beat, pulse=pulse)
        in_the_way = owner_in_the_way(driver, silent_seconds=silent)
        if in_the_way is not None:
            raise RunOwnedError(name, in_the_way)


def _give_up(connection: sqlite3.Connection, found: Found, lost: int, by: str) -> None:
    run, after, now = found.run, len(found.rows), time.time()
    ((number, _),) = connection.execute("SELECT id, name FROM runs WHERE name = ?", (run,))
    bounds = (number << 32 | after, number << 32 | 0xFFFFFFFF)
    connection.execute(
        "INSERT INTO lost SELECT ?, place & 4294967295, ?, wall, mono, hash, body FROM facts "
        "WHERE place > ? AND place <= ?",
        (run, now, *bounds),
    )
    connection.execute("DELETE FROM facts WHERE place > ? AND place <= ?", bounds)
    # Whoever thinks that it drives the run writes nothing any more.
    connection.execute("UPDATE runs SET token = token + 1, driver = NULL WHERE id = ?", (number,))
    mono = found.rows[-1].mono if found.rows else 0.0
    fact = LossAccepted(lost=lost, by=by)
    body = encode(Row(run, after + 1, now, mono, fact))
    link = next_link(found.link, after + 1, now, mono, body)
    connection.execute(
        "INSERT INTO facts VALUES (?, ?, ?, ?, CAST(? AS TEXT))",
        (number << 32 | after + 1, now, mono, link, body),
    )


def _rebuild(connection: sqlite3.Connection, path: Path) -> Path:
    """Copy whatever can be read into a new file."""
    coming = path.with_name(f"{path.name}.coming")
    coming.unlink(missing_ok=True)
    try:
        with closing(sqlite3.connect(coming, isolation_level=None)) as target:
            make(target)
            target.execute("BEGIN IMMEDIATE")
            copied = sum(_copied(connection, target, table) for table in _TABLES)
            _see_something(copied, path)
            target.execute("COMMIT")
    except BaseException:
        coming.unlink(missing_ok=True)
        raise
    return coming


def _see_something(copied: int, path: Path) -> None:
    if not copied:
        raise JournalError(f"nothing of journal {path} can be read; go back to a copy")


_TABLES = ("runs", "facts", "archives", "lost", "inbox")


def _copied(connection: sqlite3.Connection, target: sqlite3.Connection, table: str) -> int:
    """Copy the rows of a table that a table can hold, and count them."""
    width = len(target.execute(f"SELECT * FROM {table} LIMIT 0").description)  # noqa: S608 - a constant
    insert = f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * width)})"  # noqa: S608 - a constant
    copied = 0
    for row in _readable(connection, table):
        copied += target.execute(insert, row).rowcount > 0
    return copied


def _readable(connection: sqlite3.Connection, table: str) -> Iterable[tuple[Any, ...]]:
    """All rows before a damage, and, of facts, those of each run before it."""
    if table != "facts":
        yield from _until_damage(connection, f"SELECT * FROM {table}")[0]  # noqa: S608 - a constant
        return
    for (number,) in _until_damage(connection, "SELECT id FROM runs")[0]:
        first, last = number << 32, number << 32 | 0xFFFFFFFF
        rows, damaged = _until_damage(
            connection,
            "SELECT * FROM facts WHERE place BETWEEN ? AND ? ORDER BY place",
            (first, last),
        )
        # Pages that lie about their order give rows of others, too.
        own = [row for row in rows if isinstance(row[0], int) and first < row[0] <= last]
        for row in own:
            yield row if _is_row(row) else _no_fact(row[0])
        if damaged or len(own) < len(rows):
            # A gap, and something behind it: so that nobody takes what there is for all.
            yield _no_fact((own[-1][0] if own else first) + 2)


def _is_row(row: tuple[Any, ...]) -> bool:
    _, wall, mono, link, body = row
    return (
        isinstance(wall, float)
        and isinstance(mono, float)
        and isinstance(link, bytes)
        and isinstance(body, (str, bytes))
    )


def _no_fact(place: int) -> tuple[Any, ...]:
    """What stands in a place of which nothing can be told."""
    return place, 0.0, 0.0, b"", "{}"


def _until_damage(
    connection: sqlite3.Connection, sql: str, parameters: tuple[int, ...] = ()
) -> tuple[list[tuple[Any, ...]], bool]:
    """Read until something cannot be read, and say whether there was such a thing."""
    rows: list[tuple[Any, ...]] = []
    try:
        for row in connection.execute(sql, parameters):
            rows.append(row)  # noqa: PERF402 - what came before the damage counts
    except FAULTS:
        return rows, True
    return rows, False
