"""A journal in memory, for runs that need not outlive their process, and for tests.

Takes batches and gives rows back as it got them: nothing is encoded. It keeps leases as the file
does, so that what is tried on it holds for the file too.
"""

from collections.abc import Callable, Sequence
from typing import NoReturn

import msgspec

from laneway.errors import JournalError, RunOwnedError
from laneway.facts import Driver, Row
from laneway.ids import RunId
from laneway.journal.lease import describe, owner_in_the_way
from laneway.journal.store import RunEntry


class _Lease(msgspec.Struct):
    """Who drives a run, and what that one's store holds and has lost."""

    driver: Driver
    held: dict[RunId, list[Row]]
    lost: dict[RunId, str]


class MemoryJournal:
    """What a file would hold: facts and leases, for all the stores that are opened on it."""

    def __init__(self) -> None:
        """Hold nothing yet."""
        self.facts: dict[RunId, list[Row]] = {}
        self.leases: dict[RunId, _Lease] = {}


class MemoryStore:
    """Keeps facts as long as its journal lives, opened and closed as often as one likes."""

    keeps_at_once = True
    """`commit` is done when it returns."""

    def __init__(self, journal: MemoryJournal | None = None) -> None:
        """Start an empty journal, or share one, as a second process would share a file."""
        self.journal = journal or MemoryJournal()
        self._held: dict[RunId, list[Row]] = {}
        """The runs that this store drives, with the journal's own lists of their facts."""
        self._lost: dict[RunId, str] = {}
        self._open = False

    async def open(self) -> None:
        """Make ready; what was kept before is still there.

        Raises:
            JournalError: it is open already.
        """
        if self._open:
            raise JournalError("this journal in memory is open already; close it first")
        self._open = True

    async def close(self) -> None:
        """Leave the runs that are still held; the facts stay."""
        for run in list(self._held):
            await self.leave(run)
        self._lost.clear()
        self._open = False

    async def take(self, run: RunId, driver: Driver) -> Sequence[Row]:
        """Become the driver of a run, created if need be, and read all its facts so far.

        Raises:
            RunOwnedError: another driver has it that is not known to be dead, or this very store.
        """
        self._must_be_open()
        lease = self.journal.leases.get(run)
        if lease is not None:
            # Nobody beats here, so silence tells nothing: only a death that is known frees a run.
            in_the_way = owner_in_the_way(lease.driver, silent_seconds=0.0)
            if in_the_way is not None:
                raise RunOwnedError(run, in_the_way)
            lease.held.pop(run)
            lease.lost[run] = describe(driver)
        rows = self.journal.facts.setdefault(run, [])
        self.journal.leases[run] = _Lease(driver, self._held, self._lost)
        self._held[run] = rows
        self._lost.pop(run, None)
        return list(rows)

    async def leave(self, run: RunId) -> None:
        """Stop being the driver of a run; does nothing for a run that is not held."""
        self._lost.pop(run, None)
        if self._held.pop(run, None) is not None:
            del self.journal.leases[run]

    def commit(self, batch: Sequence[Row], /) -> None:
        """Keep a batch; it is kept when this returns.

        Raises:
            RunOwnedError: another driver has runs of the batch, named in `runs`, of which nothing
                is kept. The rest of the batch is kept, and only these runs are refused from now.
            JournalError: nothing was kept: a run is not held, or facts are out of order.
        """
        held = self._held
        for done, row in enumerate(batch):
            rows = held.get(row.run)
            if rows is None or row.seq != len(rows) + 1:
                for earlier in batch[:done]:
                    held[earlier.run].pop()
                self._refuse(row, batch)
            rows.append(row)

    def _refuse(self, row: Row, batch: Sequence[Row]) -> NoReturn:
        """Refuse a batch for this row; if its run is lost, keep the rest, and say so."""
        if row.run in self._held:
            after = len(self._held[row.run])
            raise JournalError(
                f"run {row.run!r}: fact {row.seq} cannot follow fact {after}; "
                "this is a bug in Laneway"
            )
        if row.run not in self._lost:
            self._must_be_open()
            raise JournalError(f"run {row.run!r} is not driven by this store; take it first")
        lost = {row.run for row in batch} & self._lost.keys()
        self.commit([row for row in batch if row.run not in lost])
        first = min(lost)
        raise RunOwnedError(first, self._lost[first], runs=lost)

    def confirm(self, run: RunId, /) -> None:
        """See that a run is still driven from here.

        Raises:
            RunOwnedError: another driver has it now.
        """
        if run not in self._held:
            raise RunOwnedError(run, self._lost.get(run, "nobody here: it has been left"))

    def when_lost(self, tell: Callable[[RunOwnedError], object], /) -> None:
        """Nothing is found lost here beside the commits, and the bodies that were to begin."""

    async def read(self, run: RunId) -> Sequence[Row]:
        """Read all facts of a run without driving it; empty for a run that does not exist."""
        self._must_be_open()
        return list(self.journal.facts.get(run, ()))

    async def runs(self) -> Sequence[RunEntry]:
        """List the runs that have facts, the last opened first."""
        self._must_be_open()
        return [
            RunEntry(run=run, facts=len(rows), opened_wall=rows[0].wall, touched_wall=rows[-1].wall)
            for run, rows in reversed(self.journal.facts.items())
            if rows
        ]

    def _must_be_open(self) -> None:
        if not self._open:
            raise JournalError("this journal in memory is not open")
