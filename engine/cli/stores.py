"""Journal stores around a journal store: one that tells what is kept, one that dies.

Both speak the `JournalStore` Protocol and stand between the engine's writer and the real store, so
that the engine knows nothing of them.
"""

import os
import signal
from collections.abc import Awaitable, Callable, Sequence

from laneway.errors import JournalError, RunOwnedError
from laneway.facts import Driver, Row
from laneway.ids import RunId
from laneway.journal.inbox import Letter, SentAnswer, inbox_of, taken, when_sent
from laneway.journal.store import JournalStore, RunEntry, confirm, when_lost


class PassingStore:
    """Hands everything on to another store."""

    def __init__(self, store: JournalStore) -> None:
        """Stand in front of this store."""
        self.store = store

    async def open(self) -> None:
        """Open it."""
        await self.store.open()

    async def close(self) -> None:
        """Close it."""
        await self.store.close()

    async def take(self, run: RunId, driver: Driver) -> Sequence[Row]:
        """Become the driver of a run."""
        return await self.store.take(run, driver)

    async def leave(self, run: RunId) -> None:
        """Stop being the driver of a run."""
        await self.store.leave(run)

    async def commit(self, batch: Sequence[Row], /) -> None:
        """Keep a batch."""
        committing = self.store.commit(batch)
        if committing is not None:
            await committing

    def confirm(self, run: RunId, /) -> Awaitable[None] | None:
        """See that a run is still driven from here."""
        return confirm(self.store, run)

    def when_lost(self, tell: Callable[[RunOwnedError], object], /) -> None:
        """Be told of runs that are lost."""
        when_lost(self.store, tell)

    @property
    def has_inbox(self) -> bool:
        """Whether the store behind has one."""
        return inbox_of(self.store) is not None

    async def send(self, run: RunId, answer: SentAnswer, /) -> int:
        """Put an answer into the inbox of a run.

        Raises:
            JournalError: the store behind has none.
        """
        inbox = inbox_of(self.store)
        if inbox is None:
            raise JournalError("this journal has no inbox")
        return await inbox.send(run, answer)

    async def letters(self, run: RunId | None = None, /) -> Sequence[Letter]:
        """List the inbox of a run, or of all."""
        inbox = inbox_of(self.store)
        return () if inbox is None else await inbox.letters(run)

    async def taken(self, number: int, refused: str = "", /) -> None:
        """Say what became of an answer."""
        await taken(self.store, number, refused)

    def when_sent(self, tell: Callable[[RunId], object], /) -> None:
        """Be told of answers to take up."""
        when_sent(self.store, tell)

    async def read(self, run: RunId) -> Sequence[Row]:
        """Read all facts of a run."""
        return await self.store.read(run)

    async def runs(self) -> Sequence[RunEntry]:
        """List the runs."""
        return await self.store.runs()


class ObservedStore(PassingStore):
    """Tells which facts a run begins with, and each batch once it is kept."""

    def __init__(
        self,
        store: JournalStore,
        *,
        taken: Callable[[RunId, Sequence[Row]], None],
        kept: Callable[[Sequence[Row]], None],
    ) -> None:
        """Stand in front of this store; what the observers raise would break the journal."""
        super().__init__(store)
        self._taken = taken
        self._kept = kept

    async def take(self, run: RunId, driver: Driver) -> Sequence[Row]:
        """Become the driver of a run, and tell its facts so far."""
        rows = await super().take(run, driver)
        self._taken(run, rows)
        return rows

    async def commit(self, batch: Sequence[Row], /) -> None:
        """Keep a batch, and tell it."""
        await super().commit(batch)
        self._kept(batch)


class CrashingStore(PassingStore):
    """Kills its process around one commit, as a power cut or the kernel would: without a word.

    SIGKILL cannot be caught, so that nothing is tidied up: no `finally`, no flush, no close.
    """

    def __init__(
        self,
        store: JournalStore,
        *,
        at: int,
        before: bool = False,
        last_words: Callable[[], None] = lambda: None,
    ) -> None:
        """Stand in front of this store.

        Args:
            store: that keeps the facts.
            at: the commit to die at, from 1; 0 for none.
            before: die before it is kept instead of right after.
            last_words: called right before; must flush what it prints.
        """
        super().__init__(store)
        self.commits = 0
        """How many have begun."""
        self._at = at
        self._before = before
        self._last_words = last_words

    async def commit(self, batch: Sequence[Row], /) -> None:
        """Keep a batch, or die of it."""
        self.commits += 1
        fatal = self.commits == self._at
        if fatal and self._before:
            self._die()
        await super().commit(batch)
        if fatal:
            self._die()

    def _die(self) -> None:
        self._last_words()
        os.kill(os.getpid(), signal.SIGKILL)
