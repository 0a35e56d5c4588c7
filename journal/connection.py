"""The one connection to a journal file: aiosqlite, a hop to its thread for each thing done.

Takes named statements and batches of parameters; gives rows, and errors that help. A hop costs
60 to 130 µs whatever it does, so nothing here takes more than one: what must be several
statements is one transaction inside the thread, which no other task can get into.
"""

import sqlite3
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import aiosqlite

from laneway.journal.faults import fault
from laneway.journal.file import JournalFile
from laneway.journal.statements import (
    ROW_OF_ONE_PARAMETERS,
    ROW_PARAMETERS,
    STATEMENTS,
    append,
    append_of_one,
)

LARGEST = 1024
"""Rows of the largest statement. A batch is padded to the next power of two, so that few statements
are prepared and stay warm: preparing takes 4 µs a row, a row of padding 0.3. A larger batch is
several executions in one transaction."""

_PADDING: list[None] = [None] * (LARGEST * ROW_PARAMETERS)

_appending = cache(append)
_appending_of_one = cache(append_of_one)


class JournalConnection:
    """An open journal file. Its thread lives until `close`."""

    def __init__(self, path: Path, connection: aiosqlite.Connection) -> None:
        """Use `open`, which gives one that is ready."""
        self.path = path
        self._connection = connection

    @classmethod
    async def open(cls, path: Path, opener: Callable[[], JournalFile], /) -> "JournalConnection":
        """Let `opener` open the file, in the thread that it will be used from.

        Raises:
            JournalError: as the opener says; the thread has ended.
        """
        refusal: list[BaseException] = []

        def connect() -> sqlite3.Connection:
            try:
                return opener()
            except BaseException as error:  # noqa: BLE001 - raised below, once the thread has ended
                refusal.append(error)
                return sqlite3.connect(":memory:")

        connecting = aiosqlite.Connection(connect, iter_chunk_size=64)
        # Whoever forgets to close, or dies of an error before, must still be able to exit.
        thread: Any = getattr(connecting, "_thread", connecting)
        thread.daemon = True
        connection = await connecting
        if refusal:
            await connection.close()
            raise refusal[0]
        return cls(path, connection)

    async def close(self) -> None:
        """End the thread and let go of the file."""
        await self._connection.close()

    async def fetch(self, name: str, parameters: Any = (), /) -> list[Any]:
        """Execute a statement of schema.sql, in a transaction of its own, and get all its rows.

        Raises:
            JournalError: it failed, and nothing of it was done.
        """
        try:
            return list(await self._connection.execute_fetchall(STATEMENTS[name], parameters))
        except (sqlite3.Error, ValueError) as error:
            raise fault(self.path, f"could not do {name!r}", error) from error

    async def each(self, name: str, parameters: Sequence[Any], /) -> None:
        """Execute a statement with each of several sets of parameters, in one transaction.

        Raises:
            JournalError: it failed, and nothing of it was done.
        """
        try:
            await self._connection.executemany(STATEMENTS[name], parameters)
        except (sqlite3.Error, ValueError) as error:
            raise fault(self.path, f"could not do {name!r}", error) from error

    async def append(self, parameters: list[Any], /) -> int:
        """Append rows, in one transaction, and count those that were kept.

        Args:
            parameters: Seven for each row, one after the other; see `append` in schema.sql.

        Raises:
            JournalError: it failed, and it is not known whether anything was kept.
        """
        return await self._append(_appending, ROW_PARAMETERS, parameters, ())

    async def append_of_one(self, parameters: list[Any], run: int, token: int, /) -> int:
        """Append rows of one run, in one transaction, and count those that were kept: all or none.

        Args:
            parameters: Five for each row, one after the other; see `append_of_one` in schema.sql.
            run: Its number in the file.
            token: That its driver must show.

        Raises:
            JournalError: it failed, and it is not known whether anything was kept.
        """
        driven = (run, token)
        return await self._append(_appending_of_one, ROW_OF_ONE_PARAMETERS, parameters, driven)

    async def _append(
        self,
        statement: Callable[[int], str],
        width: int,
        parameters: list[Any],
        behind: tuple[int, ...],
    ) -> int:
        rows, connection = len(parameters) // width, self._connection
        try:
            if rows <= LARGEST:
                shape = 1 << (rows - 1).bit_length()
                parameters += _PADDING[: (shape - rows) * width]
                parameters += behind
                return (await connection.execute(statement(shape), parameters)).rowcount
            size = LARGEST * width
            parameters += _PADDING[: -len(parameters) % size]
            starts = range(0, len(parameters), size)
            parts = [[*parameters[start : start + size], *behind] for start in starts]
            return (await connection.executemany(statement(LARGEST), parts)).rowcount
        except (sqlite3.Error, ValueError) as error:
            raise fault(self.path, "could not be written", error) from error
