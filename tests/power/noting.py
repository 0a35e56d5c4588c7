"""The voice of what is played: it says between the operations what the program was told.

Wraps a store, and writes to the file `notes`; the shim puts each note in its place among the
operations, and the oracle holds what is found afterwards against them.
"""

import hashlib
import os
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from laneway.errors import JournalError
from laneway.facts import Driver, Row
from laneway.ids import RunId
from laneway.journal.store import JournalStore, RunEntry


class Voice:
    """Writes to the file `notes`, which the shim records in its place among the operations."""

    def __init__(self, root: Path) -> None:
        """Speak in this folder."""
        self._path = root / "notes"

    def say(self, note: str, /, **what: Any) -> None:
        """Note something."""
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, msgspec.json.encode({"note": note, **what}))
        finally:
            os.close(handle)


class NotedStore:
    """Says of each batch when it is asked to be kept, and what came of it."""

    def __init__(self, store: JournalStore, voice: Voice, *, split: bool) -> None:
        """Speak for a store; `split` a batch, as none may be."""
        self._store = store
        self._voice = voice
        self._split = split

    async def open(self) -> None:
        """As the store."""
        await self._store.open()

    async def close(self) -> None:
        """As the store."""
        await self._store.close()

    async def take(self, run: RunId, driver: Driver) -> Sequence[Row]:
        """As the store; what was read is told to the host, so it counts as acknowledged."""
        rows = await self._store.take(run, driver)
        self._voice.say("told", run=run, rows=[_mark(row) for row in rows])
        return rows

    async def leave(self, run: RunId) -> None:
        """As the store."""
        await self._store.leave(run)

    def commit(self, batch: Sequence[Row], /) -> Awaitable[None]:
        """As the store, between two notes."""
        return self._commit(batch)

    async def _commit(self, batch: Sequence[Row]) -> None:
        self._voice.say("begun", rows=[_mark(row) for row in batch])
        try:
            for part in [[row] for row in batch] if self._split else [batch]:
                committing = self._store.commit(part)
                if committing is not None:
                    await committing
        except JournalError as error:
            self._voice.say("failed", error=str(error))
            raise
        self._voice.say("kept")

    async def read(self, run: RunId) -> Sequence[Row]:
        """As the store."""
        return await self._store.read(run)

    async def runs(self) -> Sequence[RunEntry]:
        """As the store."""
        return await self._store.runs()


def mark(row: Row) -> str:
    """Tell one fact from all others in a few letters."""
    return hashlib.sha256(msgspec.json.encode([row.wall, row.mono, row.fact])).hexdigest()[:16]


def _mark(row: Row) -> tuple[str, int, str]:
    return row.run, row.seq, mark(row)
