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


FAULTS = (sqlite3.Error, UnicodeDecodeError)
"""What reading or writing a file may raise: the second where SQLite quotes a damaged schema."""


def fault(path: Path, doing: str, error: BaseException, /) -> JournalError:
    """Turn an error of SQLite into one of ours, which names the file and the way out.

    Args:
        path: The journal.
        doing: What did not succeed: `could not be read`.
        error: What SQLite said.
    """
    way_out = _WAYS_OUT.get(_code(error), "mend the cause, then resume the run")
    found = JournalError(
        f"journal {path} {doing} ({type(error).__name__}: {error}); {way_out.format(path=path)}"
    )
    found.__cause__ = error
    return found


def is_busy(error: BaseException, /) -> bool:
    """Whether another program's lock is in the way, so that the same may succeed later."""
    return _code(error) == sqlite3.SQLITE_BUSY


def is_damage(error: BaseException | None, /) -> bool:
    """Whether SQLite could not make sense of what is in the file."""
    return _code(error) == sqlite3.SQLITE_CORRUPT


def is_out_of_reach(error: BaseException, /) -> bool:
    """Whether the file, or its log, cannot be opened in this way."""
    return _code(error) in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}


def _code(error: BaseException | None) -> int:
    if isinstance(error, UnicodeDecodeError):
        return sqlite3.SQLITE_CORRUPT
    found: int = getattr(error, "sqlite_errorcode", 0)
    return found & 0xFF  # the rest of it is detail
