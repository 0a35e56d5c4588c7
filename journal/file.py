"""The SQLite connection to a journal file: what is one transaction, and whether the file is there.

Used by one thread. A file that somebody removed or put another in place of takes what is written
to it to the grave: so each write sees to it that the name still leads to what was opened.
"""

import os
import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from laneway.errors import JournalError
from laneway.journal.identity import identity

_APPEND = "INSERT INTO facts"


class JournalFile(sqlite3.Connection):
    """A connection in autocommit mode, on which `executemany` is one transaction."""

    _watched: dict[str, tuple[int, int]] | None = None
    """Device and inode of the files that hold what is written, by path."""

    def watch(self, path: Path, /) -> None:
        """Remember which file this is, and its write-ahead log."""
        super().execute("SELECT id FROM runs LIMIT 1").fetchall()  # the log is there from now on
        self._watched = {name: identity(name) for name in (str(path), f"{path.resolve()}-wal")}

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Execute a statement.

        Raises:
            JournalError: facts were appended, and the file is not where it was any more.
        """
        cursor = super().execute(sql, parameters)
        if sql.startswith(_APPEND):
            self._see_the_file()
        return cursor

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
        """Execute the statement with each set of parameters: all of them are kept, or none."""
        self.execute("BEGIN IMMEDIATE")
        try:
            cursor = super().executemany(sql, parameters)
            self.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # some errors have rolled back already
                self.execute("ROLLBACK")
            raise
        self._see_the_file()
        return cursor

    def _see_the_file(self) -> None:
        if self._watched is None:
            return
        for path, known in self._watched.items():
            try:
                gone = identity(path) != known
            except FileNotFoundError:
                gone = True
            if gone:
                raise JournalError(
                    f"journal file {path} was removed or replaced while it was open, so what is "
                    "written to it may be lost; nothing further is begun: put the files back "
                    f"(on Linux `ls -l /proc/{os.getpid()}/fd` still shows them while this process "
                    "lives), then resume the run"
                )
