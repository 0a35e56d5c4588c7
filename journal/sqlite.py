"""A journal in one SQLite file, written through aiosqlite.

Takes batches from the writer and makes each durable with a single statement, in a single hop to
the connection's thread; gives runs back to whoever resumes or reads them. Several processes may
use one file, each with runs of its own: an append shows the fencing token of its lease in the very
statement that writes (M. Kleppmann, "How to do distributed locking", 2016).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from laneway.errors import (
    DamagedJournalError,
    JournalError,
    RunOwnedError,
    UnknownRunError,
)
from laneway.facts import Driver, Row
from laneway.ids import RunId
from laneway.journal.archives import unpacked
from laneway.journal.chain import first_link, next_link
from laneway.journal.codec import Kept, decode_rows, encode
from laneway.journal.connection import JournalConnection
from laneway.journal.faults import is_damage
from laneway.journal.heartbeat import BEATS
from laneway.journal.inbox import Letter, SentAnswer, letter_of
from laneway.journal.lease import LEASE_SECONDS, lease_clock
from laneway.journal.leases import Lease, Leases
from laneway.journal.migrate import Synchronous, open_file
from laneway.journal.overview import seconds
from laneway.journal.reading import find_in
from laneway.journal.spill import SPILL_BYTES, spilled, values_folder
from laneway.journal.store import RunEntry

_T = TypeVar("_T")


class SqliteStore:
    """Keeps facts in an SQLite file, in WAL mode.

    A process holds the lease of a run until it leaves the run, closes the store or dies. One that
    can be looked at from here is never robbed while it lives. One that cannot (in another
    container, or on another host) loses its runs when it has given no sign of life for
    `lease_seconds`; so does one that is stopped (SIGSTOP, a frozen container). The store gives one
    every third of that, from a thread of its own: an event loop that is blocked looks alive.
    """

    has_inbox = True

    def __init__(
        self,
        path: str | Path,
        *,
        busy_seconds: float = 30.0,
        synchronous: Synchronous = "FULL",
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        """Name the file; nothing is touched before `open`.

        Args:
            path: The file; `open` creates it if it is not there, in a folder that is.
            busy_seconds: How long a commit waits for another program's lock. The event loop
                goes on meanwhile.
            synchronous: "FULL" syncs each commit; "NORMAL" may lose the last commits when the
                power fails, though never by the death of the process.
            lease_seconds: How long the driver of a run may be silent, where it cannot be seen.
        """
        self.path = Path(path).absolute()
        self.values = values_folder(self.path)
        """Where large values are kept; there is no such folder before there is one."""
        self._opener = partial(
            open_file, self.path, busy_seconds=busy_seconds, synchronous=synchronous
        )
        self._lease_seconds = lease_seconds
        self._fresh_seconds = lease_seconds / BEATS
        self._opened: tuple[JournalConnection, Leases] | None = None
        self._broken: JournalError | None = None

    async def open(self) -> None:
        """Open the file, created if it is not there, in the running event loop.

        Raises:
            ForeignJournalError: the file is not a journal; it was not touched.
            NewerJournalError: a newer Laneway wrote it; it was not touched.
            JournalError: it cannot be opened, created or written here, or is open already.
        """
        if self._opened is not None:
            raise JournalError(f"journal {self.path} is open already; close it first")
        await _to_the_end(self._open(), undo=self.close)

    async def _open(self) -> None:
        connection = await JournalConnection.open(self.path, self._opener)
        self._opened = connection, Leases(connection, self._lease_seconds)
        self._broken = None

    async def close(self) -> None:
        """Leave the runs that are still held, end the thread, let go of the file."""
        await _to_the_end(self._close())

    async def _close(self) -> None:
        if self._opened is None:
            return
        (connection, leases), self._opened = self._opened, None
        try:
            await leases.close()
        finally:
            await connection.close()

    async def take(self, run: RunId, driver: Driver) -> Sequence[Row]:
        """Become the driver of a run, created if need be, and read all its facts so far.

        Raises:
            RunOwnedError: another driver has it that is not known to be dead.
            DamagedJournalError: facts are missing or cannot be read; the run was left again.
            JournalError: the journal cannot be read or written.
        """
        self._refuse_if_broken()
        return await _to_the_end(self._take(run, driver), undo=partial(self.leave, run))

    async def _take(self, run: RunId, driver: Driver) -> Sequence[Row]:
        _, leases = self._ready()
        lease = await leases.take(run, driver)
        try:
            kept = await self._kept(run, unpack=True)
            rows = await decode_rows(run, kept, self.values)
        except JournalError:
            await self._leave(run)
            raise
        lease.next_seq = len(rows) + 1
        lease.link = kept[-1][3] if kept else first_link(run)
        return rows

    async def leave(self, run: RunId) -> None:
        """Stop being the driver of a run, so that another may take it at once.

        Does nothing for a run that is not held. After a failed commit it does what it can.

        Raises:
            JournalError: the journal cannot be written.
        """
        await _to_the_end(self._leave(run))

    async def _leave(self, run: RunId) -> None:
        _, leases = self._ready()
        try:
            await leases.leave(run)
        except JournalError:
            if self._broken is None:
                raise

    async def commit(self, batch: Sequence[Row], /) -> None:
        """Keep a batch, durably and whole, but for runs that were lost.

        Raises:
            RunOwnedError: another driver has runs of the batch, named in `runs`, of which nothing
                is kept. The rest of the batch is kept, and only these runs are refused from now.
            JournalError: it is not known to be kept. Unless nothing was tried (the journal is not
                open, a run is not held, a fact cannot be written as JSON), every later commit is
                refused until the store has been closed and opened again.
        """
        self._refuse_if_broken()
        connection, leases = self._ready()
        bodies = [encode(row) for row in batch]
        if bodies and max(map(len, bodies)) > SPILL_BYTES:
            bodies = await asyncio.to_thread(self._spill, bodies)
        runs = {row.run for row in batch}
        lease = leases.held.get(batch[0].run) if len(runs) == 1 else None
        if lease is None:
            parameters, rows = _bind(batch, bodies, leases)
        else:
            parameters, rows = _bind_one(batch, bodies, lease), len(batch)
        before = lease_clock()
        if leases.lost:
            runs -= leases.lost.keys()
        try:
            if rows:
                if lease is None:
                    kept = await connection.append(parameters)
                else:
                    kept = await connection.append_of_one(parameters, lease.id, lease.token)
                if kept != rows:
                    await leases.find_lost(runs, missing=rows - kept)
                leases.heard(runs, before)
        except BaseException as error:
            # Cancelled or not, the statement may have been executed: nobody knows.
            self._broken = (
                error
                if isinstance(error, JournalError)
                else JournalError(f"a commit was given up ({type(error).__name__})")
            )
            raise
        lost = {row.run for row in batch} & leases.lost.keys() if leases.lost else ()
        for first in sorted(lost):
            raise RunOwnedError(first, leases.lost[first], runs=lost)

    def confirm(self, run: RunId, /) -> Awaitable[None] | None:
        """See that a run is still driven from here; the file is asked only if it may not be.

        Raises:
            RunOwnedError: another driver has it now.
            JournalError: the file cannot be read, or is not there any more.
        """
        opened = self._opened or self._ready()
        lease = opened[1].held.get(run)  # Each body comes by here.
        if lease is not None and lease_clock() - lease.heard <= self._fresh_seconds:
            return None
        return opened[1].confirm(run)

    def when_lost(self, tell: Callable[[RunOwnedError], object], /) -> None:
        """Tell of each run that another driver is found to have, beside what a commit says.

        Raises:
            JournalError: the journal is not open.
        """
        _, leases = self._ready()
        leases.when_lost = tell

    async def send(self, run: RunId, answer: SentAnswer, /) -> int:
        """Put an answer into the inbox of a run, durably, whoever drives it or nobody.

        Returns:
            Its number in the file.

        Raises:
            UnknownRunError: there is no such run.
            JournalError: the journal is not open, or cannot be written.
        """
        connection, _ = self._ready()
        body = msgspec.json.encode(answer).decode()
        line = {"run": run, "now": time.time(), "body": body}
        for (number,) in await connection.fetch("send", line):
            return int(number)
        raise UnknownRunError(run, [entry.run for entry in await self.runs()])

    async def letters(self, run: RunId | None = None, /) -> Sequence[Letter]:
        """List the inbox of a run, or of all, the oldest first; those that were refused, too.

        Raises:
            JournalError: the journal is not open, or cannot be read.
        """
        connection, _ = self._ready()
        return [letter_of(line) for line in await connection.fetch("letters", {"run": run})]

    async def taken(self, number: int, refused: str = "", /) -> None:
        """An answer is a fact now, and leaves the inbox; or it is refused, and stays with that.

        Raises:
            JournalError: the journal is not open, or cannot be written.
        """
        connection, _ = self._ready()
        if refused:
            await connection.fetch("refuse", {"id": number, "refused": refused})
        else:
            await connection.fetch("taken", {"id": number})

    def when_sent(self, tell: Callable[[RunId], object], /) -> None:
        """Tell of each run held here that has answers to take up, each second until they are.

        Raises:
            JournalError: the journal is not open.
        """
        _, leases = self._ready()
        leases.when_sent = tell

    async def read(self, run: RunId) -> Sequence[Row]:
        """Read all facts of a run without driving it; empty for a run that does not exist.

        Raises:
            DamagedJournalError: facts are missing or cannot be read.
            JournalError: the file cannot be read.
        """
        return await decode_rows(run, await self._kept(run), self.values)

    async def _kept(self, run: RunId, *, unpack: bool = False) -> Sequence[Kept]:
        connection, _ = self._ready()
        try:
            return (
                await connection.fetch("read", {"run": run})
                or await self._archived(run, unpack=unpack)
                # Somebody took it up in between, and its facts are back in their places.
                or await connection.fetch("read", {"run": run})
            )
        except JournalError as error:
            if not is_damage(error.__cause__):
                raise
            found = await asyncio.to_thread(find_in, self.path, run)
            raise (found.damage or error) from error

    async def _archived(self, run: RunId, *, unpack: bool) -> Sequence[Kept]:
        """Read a run that was compacted; put its facts back in their places if it is to go on."""
        connection, _ = self._ready()
        rows: list[Kept] = []
        for archive, last_link in await connection.fetch("archive", {"run": run}):
            try:
                rows = unpacked(run, archive, last_link)
            except ValueError as error:
                raise DamagedJournalError(run, 1, str(error)) from error
        if rows and unpack:
            await connection.each("unpack", [(run, *row) for row in rows])
            await connection.fetch("unpacked", {"run": run})
        return rows

    def _spill(self, bodies: Sequence[bytes]) -> list[bytes]:
        return [spilled(self.values, body) if len(body) > SPILL_BYTES else body for body in bodies]

    async def runs(self) -> Sequence[RunEntry]:
        """List the runs that have facts, the last opened first.

        Raises:
            JournalError: the file cannot be read.
        """
        connection, _ = self._ready()
        return [
            RunEntry(
                run=RunId(str(name)),
                facts=facts if isinstance(facts, int) else 0,
                opened_wall=seconds(opened),
                touched_wall=seconds(touched),
            )
            for name, facts, opened, touched in await connection.fetch("runs")
        ]

    def _ready(self) -> tuple[JournalConnection, Leases]:
        if self._opened is None:
            raise JournalError(f"journal {self.path} is not open")
        return self._opened

    def _refuse_if_broken(self) -> None:
        if self._broken is not None:
            raise JournalError(
                f"journal {self.path} takes nothing more since a commit failed, and what it kept "
                f"must be read again: resume the run ({self._broken})"
            ) from self._broken


def _bind(batch: Sequence[Row], bodies: Sequence[bytes], leases: Leases) -> tuple[list[Any], int]:
    """Lay out a batch for `append`, without the rows of runs that are lost, and count its rows."""
    parameters: list[Any] = []
    before: list[tuple[Lease, int, bytes]] = []
    run: RunId | None = None
    lease: Lease | None = None
    count = 0
    for row, body in zip(batch, bodies, strict=True):
        if row.run is not run:
            run = row.run
            lease = leases.held.get(run)
            if lease is not None:
                before.append((lease, lease.next_seq, lease.link))
        seq = row.seq
        if lease is None or seq != lease.next_seq:
            if lease is None and row.run in leases.lost:
                continue
            for earlier, number, link in reversed(before):
                earlier.next_seq, earlier.link = number, link
            raise _refusal(row, lease)
        wall, mono = row.wall, row.mono
        lease.link = link = next_link(lease.link, seq, wall, mono, body)
        lease.next_seq = seq + 1
        parameters += (lease.id, lease.token, seq, wall, mono, link, body)
        count += 1
    return parameters, count


def _bind_one(batch: Sequence[Row], bodies: Sequence[bytes], lease: Lease) -> list[Any]:
    """Lay out a batch of one run for `append_of_one`."""
    parameters: list[Any] = []
    place, seq, link = lease.id << 32, lease.next_seq, lease.link
    for row, body in zip(batch, bodies, strict=True):
        if row.seq != seq:
            raise _refusal(row, lease)
        wall, mono = row.wall, row.mono
        link = next_link(link, seq, wall, mono, body)
        parameters += (place | seq, wall, mono, link, body)
        seq += 1
    lease.next_seq, lease.link = seq, link
    return parameters


def _refusal(row: Row, lease: Lease | None) -> JournalError:
    if lease is None:
        return JournalError(f"run {row.run!r} is not driven by this store; take it first")
    return JournalError(
        f"run {row.run!r}: fact {row.seq} cannot follow fact {lease.next_seq - 1}; "
        "this is a bug in Laneway"
    )


async def _nothing() -> None:
    """Undo what needs no undoing."""


async def _to_the_end(
    work: Coroutine[Any, Any, _T], *, undo: Callable[[], Awaitable[None]] = _nothing
) -> _T:
    """Let work end that must not stop half-way; undo it if its caller was cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled() and task.exception() is None:
            await undo()
        raise
