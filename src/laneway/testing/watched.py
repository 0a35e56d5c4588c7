"""A journal store under a test's control: what it is given can be seen, delayed and refused.

It keeps through any other store. The engine meets in it what a slow, blocked or broken disk does
to it, at the commit that the test has in mind; virtual time passes meanwhile.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from laneway.errors import RunOwnedError
from laneway.facts import Driver, Fact, Row
from laneway.ids import RunId
from laneway.journal.memory import MemoryStore
from laneway.journal.store import JournalStore, RunEntry, confirm, when_lost
from laneway.testing.clock import VirtualLoop

Watch = Callable[[int, Sequence[Row]], Awaitable[None] | None]
"""Gets the number of the commit, from 1, and its rows; may wait, and may raise."""


class WatchedStore:
    """Wraps a store; every commit is awaited, even where that store keeps at once."""

    def __init__(
        self,
        store: JournalStore | None = None,
        *,
        before: Watch | None = None,
        after: Watch | None = None,
    ) -> None:
        """Watch a store, or a new one in memory.

        Args:
            store: what keeps the rows.
            before: called when a commit has been asked for; what it raises, the commit raises,
                and nothing is kept.
            after: called when a commit has been kept, before the engine is told; what it raises,
                the commit raises, though all is kept.
        """
        self._store: JournalStore = store or MemoryStore()
        self.before = before
        self.after = after
        self.batches: list[tuple[Row, ...]] = []
        """What was to be kept, commit by commit."""
        self.kept: list[Fact] = []
        """What has been kept, in this order."""

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
        """As the store, between two looks at it."""
        return self._commit(batch)

    async def _commit(self, batch: Sequence[Row]) -> None:
        self.batches.append(tuple(batch))
        number = len(self.batches)
        await self._watched(self.before, number, batch)
        committing = self._store.commit(batch)
        if committing is not None:
            await committing
        self.kept += [row.fact for row in batch]
        await self._watched(self.after, number, batch)

    @staticmethod
    async def _watched(watch: Watch | None, number: int, batch: Sequence[Row]) -> None:
        if watch is None:
            return
        waiting = watch(number, batch)
        if waiting is None:
            return
        loop = asyncio.get_running_loop()
        if not isinstance(loop, VirtualLoop) or not loop.held:
            await waiting
            return
        # The engine lets virtual time stand still during a commit; this one happens in it.
        loop.held -= 1
        try:
            await waiting
        finally:
            loop.held += 1

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
