"""A journal store that takes its process with it, at a chosen commit."""

import os
import signal
from collections.abc import Awaitable, Callable, Sequence

from laneway.errors import RunOwnedError
from laneway.facts import Driver, Row
from laneway.ids import RunId
from laneway.journal.store import JournalStore, RunEntry, confirm, when_lost


class DyingStore:
    """Wraps any store; the process is killed right before or right after the n-th commit.

    SIGKILL: no handler runs, nothing is flushed. The engine knows nothing of it.
    """

    def __init__(self, store: JournalStore, *, at: int, before: bool) -> None:
        """Die at commit number `at`, from 1; one that never comes kills nobody."""
        self._store = store
        self._at = at
        self._before = before
        self._commits = 0

    async def open(self) -> None:
        """As the store."""
        await self._store.open()

    async def close(self) -> None:
        """As the store."""
        await self._store.close()

    async def take(self, run: RunId, driver: Driver) -> Sequence[Row]:
        """As the store."""
        return await self._store.take(run, driver)

    async def leave(self, run: RunId) -> None:
        """As the store."""
        await self._store.leave(run)

    def commit(self, batch: Sequence[Row], /) -> Awaitable[None]:
        """As the store, and then no more."""
        return self._commit(batch)

    async def _commit(self, batch: Sequence[Row]) -> None:
        self._commits += 1
        if self._before and self._commits == self._at:
            os.kill(os.getpid(), signal.SIGKILL)
        committing = self._store.commit(batch)
        if committing is not None:
            await committing
        if self._commits == self._at:
            os.kill(os.getpid(), signal.SIGKILL)

    def confirm(self, run: RunId, /) -> Awaitable[None] | None:
        """As the store."""
        return confirm(self._store, run)

    def when_lost(self, tell: Callable[[RunOwnedError], object], /) -> None:
        """As the store."""
        when_lost(self._store, tell)

    async def read(self, run: RunId) -> Sequence[Row]:
        """As the store."""
        return await self._store.read(run)

    async def runs(self) -> Sequence[RunEntry]:
        """As the store."""
        return await self._store.runs()
