"""Reads a journal file with nothing but SQLite, disturbing nobody: for looks from outside.

Gives rows as they are kept, and of a damaged file what can still be got of it.
"""

import os
import sqlite3
from collections.abc import Generator, Iterable
from contextlib import closing, contextmanager
from pathlib import Path

from laneway.errors import DamagedJournalError, JournalError, UnknownRunError
from laneway.facts import Row
from laneway.ids import RunId
from laneway.journal.archives import unpacked
from laneway.journal.codec import Chain, Kept
from laneway.journal.faults import FAULTS, fault, is_out_of_reach
from laneway.journal.migrate import FORMAT, examine
from laneway.journal.spill import values_folder
from laneway.journal.statements import STATEMENTS


@contextmanager
def looking_at(path: Path, /) -> Generator[sqlite3.Connection]:
    """Open a journal to read one state of it, whoever writes meanwhile.

    Raises:
        JournalError: it is not there, foreign, newer, damaged, or cannot be read.
    """
    if not path.exists():
        raise JournalError(f"there is no journal {path}")
    examine(path)
    try:
        with closing(_connected(path.resolve())) as connection:
            (found,) = connection.execute("PRAGMA user_version").fetchone()
            if 0 < found < FORMAT:
                raise JournalError(
                    f"journal {path} has the older format {found}; list its runs once "
                    "(`laneway runs`), which brings it up to date"
                )
            yield connection
    except FAULTS as error:
        raise fault(path, "could not be read", error) from error


def _connected(file: Path) -> sqlite3.Connection:
    """Open a file in the first way that it lets itself be read in, at one state of it.

    Whoever has it open keeps a log beside it, which a reader leaves alone. Where there is none,
    somebody may open it any moment, so a lock is needed all the same; an ordinary connection makes
    a log for that, and removes it in the end. Only what cannot be written here is taken as it is.
    """
    ways = ["mode=rw"]
    if file.with_name(f"{file.name}-wal").exists():
        ways.insert(0, "mode=ro")
    elif os.access(file, os.W_OK) and os.access(file.parent, os.W_OK):
        ways.append("immutable=1")
    else:
        ways = ["immutable=1"]
    for way in ways:
        uri = f"{file.as_uri()}?{way}"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None)
        try:
            # Of a file that was cut short SQLite gives nothing at all, but for recovery.
            connection.execute("PRAGMA writable_schema = ON")
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except BaseException as error:
            connection.close()
            if way == ways[-1] or not is_out_of_reach(error):
                raise
        else:
            return connection
    raise AssertionError(ways)


def names(connection: sqlite3.Connection, /) -> list[RunId]:
    """All runs, the last made first, those without facts too."""
    found = connection.execute("SELECT name FROM runs ORDER BY id DESC")
    return [RunId(name) for (name,) in found if isinstance(name, str)]  # Damage may be anything.


SHOWN = 20
"""Faults of a file that are listed."""


def file_faults(connection: sqlite3.Connection, /) -> tuple[str, ...]:
    """What SQLite finds wrong with the file itself, the first 20 faults."""
    try:
        said = connection.execute(f"PRAGMA integrity_check({SHOWN})").fetchall()
    except FAULTS as error:
        return (str(error),)
    return tuple(line for (text,) in said if text != "ok" for line in str(text).splitlines())


class Found:
    """What can be read of a run, and what is wrong behind it."""

    def __init__(self, run: RunId) -> None:
        """Nothing yet."""
        self.run = run
        self.rows: list[Row] = []
        self.link = b""
        """The hash of the last whole fact."""
        self.behind = 0
        """How many rows there are behind the damage, as far as they can be counted."""
        self.damage: DamagedJournalError | None = None


def find_in(path: Path, run: RunId, /) -> Found:
    """Read a run of a journal up to where it is damaged; see `find`.

    Raises:
        UnknownRunError: the journal has no such run.
        JournalError: nothing at all can be read.
    """
    with looking_at(path) as connection:
        return find(connection, path, run)


def find(connection: sqlite3.Connection, path: Path, run: RunId, /) -> Found:
    """Read a run up to where it is damaged.

    Raises:
        UnknownRunError: the journal has no such run.
        sqlite3.Error: not even the run can be looked up.
    """
    known = names(connection)
    if run not in known:
        raise UnknownRunError(run, known)
    found = Found(run)
    chain = Chain(run, values_folder(path.absolute()))
    rows = kept_rows(connection, run, chain)
    try:
        for row in rows:
            if found.damage is not None:
                found.behind += 1
                continue
            try:
                found.rows.append(chain.decode(row))
            except DamagedJournalError as error:
                found.damage = error
                found.behind = 1
    except DamagedJournalError as error:
        found.damage = found.damage or error
    found.link = chain.link
    if found.damage is not None:
        found.damage.whole = tuple(found.rows)
    return found


def kept_rows(connection: sqlite3.Connection, run: RunId, chain: Chain, /) -> Iterable[Kept]:
    """Give the rows of a run one after the other, from its archive if it was compacted.

    Args:
        connection: to the journal.
        run: whose rows.
        chain: that reads them, and so knows how far one has come.

    Raises:
        DamagedJournalError: the next one cannot be got out of the file.
    """
    try:
        yield from connection.execute(STATEMENTS["read"], {"run": run})
        if not chain.seq:
            for archive, last_link in connection.execute(STATEMENTS["archive"], {"run": run}):
                yield from unpacked(run, archive, last_link)
    except FAULTS as error:
        raise DamagedJournalError(
            run, chain.seq + 1, f"the file is damaged there ({type(error).__name__}: {error})"
        ) from error
    except ValueError as error:
        raise DamagedJournalError(run, chain.seq + 1, str(error)) from error
