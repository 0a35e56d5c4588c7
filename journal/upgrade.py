"""Brings a journal of an older format up to date: a copy is put aside, then one transaction.

Reads the file as the older Laneway left it; gives one that this code can go on with. Whoever dies
in between finds the file as it was, and the copy beside it.

Format 1 (the first): runs and facts. Format 2: each fact carries the link of a hash chain, a lease
also says when its driver was last alive by the clock of the host's boot, and there are places for
compacted runs and for facts that were given up. Format 3: an inbox for answers from processes that
do not drive the run.
"""

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import msgspec

from laneway.errors import JournalError
from laneway.facts import Driver
from laneway.ids import RunId
from laneway.journal.chain import first_link, next_link
from laneway.journal.lease import describe, is_dead
from laneway.journal.spill import sync_folder
from laneway.journal.statements import STATEMENTS


def upgrade(connection: sqlite3.Connection, path: Path, target: int, /) -> None:
    """Bring the open file to the format `target`, if it is older.

    Raises:
        JournalError: a living process works on it with the older Laneway; nothing was changed.
        sqlite3.Error: it failed; nothing was changed.
    """
    if _format(connection) >= target:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Only now does nobody else upgrade it, or take a run in it.
        if _format(connection) < target:
            _refuse_if_driven(connection, path)
            _put_aside(path, _format(connection))
        while (found := _format(connection)) < target:
            _STEPS[found](connection)
            connection.execute(f"PRAGMA user_version = {found + 1}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    # The header itself has to tell, to whoever looks at it before SQLite does.
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def copy_of(path: Path, version: int, /) -> Path:
    """Where the copy of a file is put before it is upgraded from a format."""
    return path.with_name(f"{path.name}.format-{version}")


def _format(connection: sqlite3.Connection) -> int:
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    return int(found)


def _refuse_if_driven(connection: sqlite3.Connection, path: Path) -> None:
    drivers = connection.execute("SELECT name, driver FROM runs WHERE driver IS NOT NULL")
    for run, text in drivers.fetchall():
        try:
            driver = msgspec.json.decode(text, type=Driver)
        except msgspec.MsgspecError:
            continue
        if is_dead(driver) is False:
            raise JournalError(
                f"journal {path} has the older format {_format(connection)}, and run {run!r} in it "
                f"is driven by {describe(driver)}, which is alive; end that process first, then "
                "open the journal again"
            )


def _put_aside(path: Path, version: int) -> None:
    """Copy the file, whole and durably, before anything of it is changed."""
    copy = copy_of(path, version)
    coming = copy.with_name(f"{copy.name}.coming")
    coming.unlink(missing_ok=True)
    # Whoever writes a file cannot copy it meanwhile, but a second connection can.
    with (
        closing(sqlite3.connect(path)) as source,
        closing(sqlite3.connect(coming, isolation_level=None)) as target,
    ):
        target.execute("PRAGMA synchronous = FULL")
        source.backup(target)
    coming.replace(copy)
    sync_folder(copy.parent)


def _from_1_to_2(connection: sqlite3.Connection) -> None:
    execute = connection.execute
    execute("DROP VIEW IF EXISTS journal")
    execute("ALTER TABLE runs ADD COLUMN pulse REAL NOT NULL DEFAULT 0")
    execute("ALTER TABLE facts RENAME TO facts_1")
    for name in ("create_facts", "create_archives", "create_lost"):
        execute(STATEMENTS[name])
    for number, name in execute("SELECT id, name FROM runs").fetchall():
        link = first_link(RunId(name))
        rows = execute(
            "SELECT place, wall, mono, CAST(body AS BLOB) FROM facts_1 "
            "WHERE place BETWEEN ? AND ? ORDER BY place",
            (number << 32, number << 32 | 0xFFFFFFFF),
        )
        for place, wall, mono, body in rows:
            link = next_link(link, place & 0xFFFFFFFF, wall, mono, body)
            execute(
                "INSERT INTO facts VALUES (?, ?, ?, ?, CAST(? AS TEXT))",
                (place, wall, mono, link, body),
            )
    execute("DROP TABLE facts_1")
    execute(STATEMENTS["create_journal"])


def _from_2_to_3(connection: sqlite3.Connection) -> None:
    connection.execute(STATEMENTS["create_inbox"])


_STEPS: Mapping[int, Callable[[sqlite3.Connection], None]] = {1: _from_1_to_2, 2: _from_2_to_3}
"""From each format to the next."""
