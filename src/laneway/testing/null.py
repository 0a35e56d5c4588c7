"""A journal that keeps nothing, for programs that only want to see what the engine does.

Takes batches from the writer and drops them, at once: nothing can be read, resumed or shown
afterwards, and no run has an owner. It fulfils the form of `JournalStore`, not its contract.
"""

from collections.abc import Sequence

from laneway.facts import Driver, Row
from laneway.ids import RunId
from laneway.journal.store import RunEntry


class NullStore:
    """Keeps nothing: what is committed is gone, and every run that is taken is a new one."""

    keeps_at_once = True
    """`commit` is done when it returns."""

    async def open(self) -> None:
        """Do nothing; a store that is open may be opened again."""

    async def close(self) -> None:
        """Do nothing."""

    async def take(self, run: RunId, driver: Driver) -> Sequence[Row]:  # noqa: ARG002
        """Let anybody drive the run, which has no facts."""
        return ()

    async def leave(self, run: RunId) -> None:
        """Do nothing."""

    def commit(self, batch: Sequence[Row], /) -> None:
        """Drop a batch."""

    async def read(self, run: RunId) -> Sequence[Row]:  # noqa: ARG002
        """Find no facts."""
        return ()

    async def runs(self) -> Sequence[RunEntry]:
        """List no runs."""
        return ()
