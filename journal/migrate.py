"""Opens a journal file: whose it is, which format it has, how it comes into being.

Reads the first hundred bytes before SQLite sees the file, since SQLite would touch it; gives a
connection on which a fact can be written. A file of an older format is brought up to date first;
see upgrade.py. All of this blocks, and runs in the connection's own thread.
"""

import sqlite3
import time
from pathlib import Path
from typing import Literal

from laneway.errors import ForeignJournalError, JournalError, NewerJournalError
from laneway.journal.faults import FAULTS, fault, is_busy
from laneway.journal.file import JournalFile
from laneway.journal.identity import refuse_second_name
from laneway.journal.spill import sync_folder
from laneway.journal.statements import STATEMENTS
from laneway.journal.upgrade import upgrade

APPLICATION_ID = 0x4C616E65
"""Bytes 68 to 71 of the file, "Lane": https://www.sqlite.org/fileformat.html, section 1.3."""

FORMAT = 3
"""Bytes 60 to 63 of the file, SQLite's user_version: the format of tables and facts."""

Synchronous = Literal["FULL", "NORMAL"]
"""FULL syncs each commit. NORMAL may lose the last ones when the power fails, and only then."""

TABLES = (
    "create_runs",
    "create_facts",
    "create_archives",
    "create_lost",
    "create_inbox",
    "create_journal",
)
"""What a new file is given."""

_HEADER_BYTES = 100
_MAGIC = b"SQLite format 3\x00"
_SQLITE_NEEDED = (3, 35)
"""For RETURNING."""
_BUSY_PAUSE_SECONDS = 0.01
_SYNCHRONOUS = {"FULL": 2, "NORMAL": 1}


def open_file(path: Path, /, *, busy_seconds: float, synchronous: Synchronous) -> JournalFile:
    """Open a journal, created if it is not there, ready to be written.

    Args:
        path: The file; its folder must exist.
        busy_seconds: How long to wait for another program's lock.
        synchronous: How far a commit goes before it counts.

    Raises:
        ForeignJournalError: the file is not ours; it was not touched.
        NewerJournalError: its format is newer than this code; it was not touched.
        JournalError: it cannot be opened, created or written here, or has a second name.
    """
    if sqlite3.sqlite_version_info < _SQLITE_NEEDED:
        needed = ".".join(map(str, _SQLITE_NEEDED))
        raise JournalError(
            f"this Python comes with SQLite {sqlite3.sqlite_version}; "
            f"a journal needs {needed} or newer"
        )
    examine(path)
    refuse_second_name(path)
    try:
        connection = sqlite3.connect(
            path, timeout=busy_seconds, isolation_level=None, factory=JournalFile
        )
    except FAULTS as error:
        raise fault(path, "could not be opened", error) from error
    try:
        _make_ready(connection, path, synchronous, busy_seconds)
        connection.watch(path)
        # SQLite makes the log and syncs its name, but does not look whether that succeeded.
        sync_folder(path.resolve().parent)
    except (*FAULTS, OSError) as error:
        connection.close()
        raise fault(path, "could not be made ready", error) from error
    except BaseException:
        connection.close()
        raise
    return connection


def examine(path: Path, /) -> None:
    """Refuse a file that this code must not open, without touching it.

    Raises:
        ForeignJournalError: the file is not ours.
        NewerJournalError: its format is newer than this code.
        JournalError: the path does not lead to a file that can be read.
    """
    header = _read_header(path)
    if not header or _is_half_created(path, header):
        return
    if not header.startswith(_MAGIC):
        raise ForeignJournalError(str(path), "it is not an SQLite file")
    owner = int.from_bytes(header[68:72], "big")
    if owner != APPLICATION_ID:
        raise ForeignJournalError(
            str(path), f"it is an SQLite file of another program, application_id {owner}"
        )
    found = int.from_bytes(header[60:64], "big")
    if found > FORMAT:
        raise NewerJournalError(str(path), found, FORMAT)


def is_older(path: Path, /) -> bool:
    """Whether a file is a journal of an older format, which opening it brings up to date.

    Raises:
        JournalError: as for `examine`.
    """
    examine(path)
    header = _read_header(path)
    return header.startswith(_MAGIC) and int.from_bytes(header[60:64], "big") < FORMAT


def _read_header(path: Path) -> bytes:
    if path.name == ":memory:":
        raise JournalError("':memory:' is no file: use MemoryStore for a journal in memory")
    if not path.parent.is_dir():
        raise JournalError(f"journal {path}: there is no folder {path.parent}; create it first")
    try:
        with path.open("rb") as file:
            return file.read(_HEADER_BYTES)
    except FileNotFoundError:
        return b""
    except IsADirectoryError as error:
        raise JournalError(f"journal {path} is a folder; name a file in it") from error
    except OSError as error:
        raise fault(path, "could not be read", error) from error


def _is_half_created(path: Path, header: bytes) -> bool:
    """Whether its creator died while SQLite wrote the pages, the first one not the first.

    The rollback journal beside it says that nothing was there before; SQLite goes back to that.
    """
    file = path.resolve()
    return not any(header) and file.with_name(f"{file.name}-journal").exists()


def _make_ready(
    connection: JournalFile, path: Path, synchronous: Synchronous, busy_seconds: float
) -> None:
    """Create what is missing and set what must be set, as often as somebody is in the way.

    Two that change a new file to WAL mode at once could wait for each other, so SQLite refuses one
    of them at once, whatever its busy time-out: https://www.sqlite.org/c3ref/busy_handler.html.
    """
    give_up = time.monotonic() + busy_seconds
    while True:
        try:
            _create(connection)
            _check(connection, path)
            upgrade(connection, path, FORMAT)
            _settle(connection, path, synchronous)
        except sqlite3.OperationalError as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if not is_busy(error) or time.monotonic() >= give_up:
                raise
        else:
            return
        time.sleep(_BUSY_PAUSE_SECONDS)


def _create(connection: JournalFile) -> None:
    """Make the tables, unless they are there: in one transaction, header included.

    The file is not in WAL mode yet, so what is committed stands in the file itself: its header
    alone tells what it is, from before the first fact.
    """
    if _tables(connection):
        return
    connection.execute("BEGIN IMMEDIATE")
    if not _tables(connection):  # nobody else was faster
        make(connection)
    connection.execute("COMMIT")


def make(connection: sqlite3.Connection, /) -> None:
    """Make an empty file a journal."""
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {FORMAT}")
    for name in TABLES:
        connection.execute(STATEMENTS[name])


def _check(connection: JournalFile, path: Path) -> None:
    """Refuse what the header did not tell: a change that is still in the write-ahead log."""
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if found > FORMAT:
        raise NewerJournalError(str(path), found, FORMAT)
    if found < 1:
        raise JournalError(
            f"journal {path} is damaged: its header says format {found}, which there never was; "
            "put it aside and go back to a copy"
        )
    missing = {"runs", "facts"} - _tables(connection)
    if missing:
        raise JournalError(
            f"journal {path} is damaged: it has no table {', '.join(sorted(missing))}; put it "
            "aside and go back to a copy"
        )


def _tables(connection: JournalFile) -> set[str]:
    found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return {name for (name,) in found.fetchall()}


def _settle(connection: JournalFile, path: Path, synchronous: Synchronous) -> None:
    """Set what makes a commit durable, and see that it is set."""
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute("PRAGMA fullfsync = ON")  # macOS; elsewhere fsync reaches the disk by itself
    connection.execute("PRAGMA checkpoint_fullfsync = ON")
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    (level,) = connection.execute("PRAGMA synchronous").fetchone()
    if mode != "wal" or level != _SYNCHRONOUS[synchronous]:
        raise JournalError(
            f"journal {path} cannot be kept durably here: journal_mode is {mode} instead of wal, "
            f"synchronous is {level} instead of {_SYNCHRONOUS[synchronous]}; put it on a local disk"
        )
