"""What the engine asks of a journal: four verbs, whatever keeps the rows."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from laneway.errors import RunOwnedError
from laneway.facts import Driver, Row
from laneway.ids import RunId


class RunEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the list of runs."""

    run: RunId
    facts: int
    """How many, so the last sequence number."""
    opened_wall: float
    """Unix seconds of its first fact."""
    touched_wall: float
    """Unix seconds of its last fact."""


class JournalStore(Protocol):
    """Keeps facts. Nothing else in a process may write what a store keeps.

    Contract, proved for each store by `laneway.testing.JournalStoreContract`:
    a batch is kept whole or not at all; when `commit` is done, the batch survives the death of
    the process; rows come back in the order of their sequence numbers, without gaps; a batch for
    a run that this process has lost to another raises RunOwnedError and keeps nothing of that run.
    """

    async def open(self) -> None:
        """Make ready, in the running event loop.

        Raises:
            JournalError: the place cannot be used, is foreign, or newer; it was not touched.
        """
        ...

    async def close(self) -> None:
        """Let go of everything; `open` may follow, in another event loop."""
        ...

    async def take(self, run: RunId, driver: Driver) -> Sequence[Row]:
        """Become the driver of a run, created if need be, and read all its facts so far.

        Raises:
            RunOwnedError: another living process drives it.
        """
        ...

    async def leave(self, run: RunId) -> None:
        """Stop being the driver of a run, so that another may take it at once."""
        ...

    def commit(self, batch: Sequence[Row], /) -> Awaitable[None] | None:
        """Keep a batch, durably. None means that it is kept already.

        Called again only when the previous commit is done.

        Raises:
            JournalError: it is not known to be kept; the store must not be used again.
            RunOwnedError: a run of the batch has another driver now.
        """
        ...

    async def read(self, run: RunId) -> Sequence[Row]:
        """Read all facts of a run without driving it; empty for a run that does not exist."""
        ...

    async def runs(self) -> Sequence[RunEntry]:
        """List the runs, the last opened first."""
        ...


@runtime_checkable
class Fenced(Protocol):
    """What a store may do besides, if its runs can be lost to another process.

    A store that wraps another passes both on, with `confirm` and `when_lost` of this module.
    """

    def confirm(self, run: RunId, /) -> Awaitable[None] | None:
        """See that a run is still driven from here, right before a body is entered.

        None means that it is known, without anybody being asked: this is called for each body.

        Raises:
            RunOwnedError: another driver has it now.
            JournalError: nobody can tell.
        """
        ...

    def when_lost(self, tell: Callable[[RunOwnedError], object], /) -> None:
        """Tell, in the event loop of `open`, of each run that is found lost beside the commits."""
        ...


def confirm(store: JournalStore, run: RunId, /) -> Awaitable[None] | None:
    """See that a run is still driven from here, as far as its store can tell; see `Fenced`."""
    return store.confirm(run) if isinstance(store, Fenced) else None


def when_lost(store: JournalStore, tell: Callable[[RunOwnedError], object], /) -> None:
    """Be told of runs that are lost, if the store can tell; see `Fenced`."""
    if isinstance(store, Fenced):
        store.when_lost(tell)
