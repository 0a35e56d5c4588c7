"""What broke under the journal, in words that help: SQLite's error, and the way out."""

import sqlite3
from pathlib import Path

from laneway.errors import JournalError

_WAYS_OUT = {
    sqlite3.SQLITE_BUSY: (
        "another program holds its lock: see who has it open (`fuser -v {path}`), end that "
        "transaction, then resume the run"
    ),
    sqlite3.SQLITE_FULL: "the disk is full: make room, then resume the run",
    sqlite3.SQLITE_READONLY: (
        "it cannot be written: give this user the right to write {path} and the folder it is in, "
        "then resume the run"
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "it cannot be opened: let this user read and write {path} and the folder it is in"
    ),
    sqlite3.SQLITE_IOERR: "the disk failed: see the system's log, then resume the run",
    sqlite3.SQLITE_CORRUPT: (
        "the file is damaged: `laneway verify --journal {path}` tells what of it is whole; or put "
        "it aside and go back to a copy"
    ),
    sqlite3.SQLITE_NOTADB: "the file is damaged: put it aside and go back to a copy",
}


def fault(path: Path, doing: str, error: BaseException, /) -> JournalError:
    """Turn an error of SQLite into one of ours, which names the file and the way out.

    Args:
        path: The journal.
        doing: What did not succeed: `could not be read`.
        error: What SQLite said.
    """
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest of it is detail
    way_out = _WAYS_OUT.get(code, "mend the cause, then resume the run")
    found = JournalError(
        f"journal {path} {doing} ({type(error).__name__}: {error}); {way_out.format(path=path)}"
    )
    found.__cause__ = error
    return found


def is_busy(error: sqlite3.Error, /) -> bool:
    """Whether another program's lock is in the way, so that the same may succeed later."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


def is_damage(error: BaseException | None, /) -> bool:
    """Whether SQLite could not make sense of what is in the file."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CORRUPT
