"""The leases that one store holds in a journal file: taken, confirmed, given back, found lost.

Reads and writes the lines of `runs`; gives the store the number and fencing token that each of
its appends must show. A lease is swapped in by comparing with what was seen, in one statement, so
that of two who saw the same dead owner exactly one gets the run. It is kept alive by a thread; see
heartbeat.py.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from collections.abc import Set as AbstractSet
from contextlib import suppress

import msgspec

from laneway.errors import JournalError, RunOwnedError
from laneway.facts import Driver
from laneway.ids import RunId
from laneway.journal.connection import JournalConnection
from laneway.journal.heartbeat import BEATS, Beating, Heartbeat
from laneway.journal.identity import identity
from laneway.journal.lease import (
    describe,
    describe_here,
    lease_clock,
    owner_in_the_way,
    pulse,
    silence,
    this_driver,
)


class Lease(msgspec.Struct):
    """A run that is driven from here."""

    id: int
    """The number of the run in the file."""
    token: int
    """The fencing token: what is written must show it."""
    next_seq: int = 1
    link: bytes = b""
    """The hash of the last fact; see chain.py."""
    heard: float = 0.0
    """When it was last known to be held, by `lease_clock`."""


_DRIVEN_HERE: dict[tuple[tuple[int, int], RunId], Lease] = {}
"""The runs that this process drives, or is about to, in its own name, by file and name. A lease in
a file that names this process and is not among these is a leftover: it could not be given back when
it should. A file is known by device and inode, since it may have several names. A fork of the
process drives nothing of it."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_DRIVEN_HERE.clear)


class Leases:
    """What one store drives, over one connection."""

    def __init__(self, connection: JournalConnection, lease_seconds: float) -> None:
        """Hold nothing yet, in the running event loop."""
        self.held: dict[RunId, Lease] = {}
        self.lost: dict[RunId, str] = {}
        """Runs that were held and have another driver now, and who that is."""
        self.when_lost: Callable[[RunOwnedError], object] | None = None
        """Told of each run that is found lost beside the commits."""
        self.when_sent: Callable[[RunId], object] | None = None
        """Told of each run that somebody else has sent something."""
        self._connection = connection
        self._file = identity(connection.path)
        self._lease_seconds = lease_seconds
        self._loop = asyncio.get_running_loop()
        self._heartbeat = Heartbeat(connection.path, lease_seconds, self._beaten, self._addressed)
        self._telling: set[asyncio.Task[None]] = set()

    async def take(self, run: RunId, driver: Driver) -> Lease:
        """Become the driver of a run, created if need be.

        Raises:
            RunOwnedError: another driver has it that is not known to be dead.
            JournalError: the file cannot be read or written.
        """
        lease = Lease(0, 0)
        in_own_name = driver == this_driver()
        if run in self.held or (
            in_own_name and _DRIVEN_HERE.setdefault((self._file, run), lease) is not lease
        ):
            raise RunOwnedError(run, describe_here(driver))
        try:
            heard = lease_clock()
            lease.id, lease.token = await self._swap(run, driver, leftovers=in_own_name)
            lease.heard = heard
            await self._keep_alive(run, lease)
        except BaseException:
            self._let_go(run, lease)
            raise
        self.held[run] = lease
        self.lost.pop(run, None)
        return lease

    async def _keep_alive(self, run: RunId, lease: Lease) -> None:
        try:
            self._heartbeat.hold(run, lease)
        except RuntimeError:  # No thread can be had: nobody else is to wait for this process.
            await self._connection.fetch("leave", (lease.id, lease.token))
            raise

    def heard(self, runs: Iterable[RunId], when: float) -> None:
        """A commit has shown that these were held at a moment of `lease_clock`."""
        for run in runs:
            lease = self.held.get(run)
            if lease is not None:
                lease.heard = when

    def confirm(self, run: RunId) -> Awaitable[None] | None:
        """See that a run is still held; None where nobody can have taken it since it last was.

        Raises:
            RunOwnedError: it is not, or found lost by what is awaited.
        """
        lease = self.held.get(run)
        if lease is None:
            raise RunOwnedError(run, self.lost.get(run, "nobody here: it has been left"))
        if lease_clock() - lease.heard <= self._lease_seconds / BEATS:
            return None
        return self._confirm(run, lease)

    async def leave(self, run: RunId) -> None:
        """Give a lease back, if it is held.

        Raises:
            JournalError: the file cannot be written; this process itself can take the run again.
        """
        self.lost.pop(run, None)
        lease = self.held.pop(run, None)
        if lease is None:
            return
        self._heartbeat.drop(run, lease)
        try:
            await self._connection.fetch("leave", (lease.id, lease.token))
        finally:
            self._let_go(run, lease)

    async def close(self) -> None:
        """Give all leases back; those that cannot be given back end with the process."""
        await asyncio.to_thread(self._heartbeat.close)
        if self._telling:
            await asyncio.wait(self._telling)
        if self.held:
            with suppress(JournalError):
                await self._connection.each(
                    "leave", [(lease.id, lease.token) for lease in self.held.values()]
                )
        for run, lease in self.held.items():
            self._let_go(run, lease)

    async def find_lost(self, runs: AbstractSet[RunId], *, missing: int) -> None:
        """Find out which of these runs have another driver now, since rows of them were not kept.

        Raises:
            JournalError: none of them has; or the file cannot be read.
        """
        for run in runs & self.held.keys():
            lease = self.held.get(run)
            if lease is not None:
                await self._ask(run, lease)
        if not runs & self.lost.keys():
            raise JournalError(
                f"journal {self._connection.path} did not keep {missing} facts, for no known reason"
            )

    async def _swap(self, run: RunId, driver: Driver, *, leftovers: bool) -> tuple[int, int]:
        """Become the driver of a run that is free, and get its number and token."""
        mine = msgspec.json.encode(driver).decode()
        while True:
            token, owner, beat, since_boot = await self._look(run)
            if owner is not None and not (leftovers and owner == mine):
                other = _read_driver(run, owner)
                silent = silence(other, beat=beat, pulse=since_boot)
                in_the_way = owner_in_the_way(
                    other,
                    silent_seconds=silent,
                    lease_seconds=self._lease_seconds,
                )
                if in_the_way is not None:
                    raise RunOwnedError(run, in_the_way)
            swap = {
                "run": run,
                "driver": mine,
                "now": time.time(),
                "pulse": pulse(),
                "seen_token": token,
                "seen_driver": owner,
                "seen_beat": beat,
            }
            for number, new_token in await self._connection.fetch("take", swap):
                return number, new_token
            # Somebody was faster: look who.

    async def _look(self, run: RunId) -> tuple[int | None, str | None, float, float]:
        for token, owner, beat, since_boot in await self._connection.fetch("owner", {"run": run}):
            return token, owner, beat, since_boot
        return None, None, 0.0, 0.0

    async def _confirm(self, run: RunId, lease: Lease) -> None:
        if not self._is_there():
            raise JournalError(
                f"journal file {self._connection.path} was removed or replaced while run {run!r} "
                "was driven in it; nothing further is begun: put the file back, then resume the run"
            )
        heard = lease_clock()
        await self._ask(run, lease)
        if self.held.get(run) is not lease:
            raise RunOwnedError(run, self.lost.get(run, "nobody here: it has been left"))
        lease.heard = heard

    def _is_there(self) -> bool:
        try:
            return identity(self._connection.path) == self._file
        except OSError:
            return False

    async def _ask(self, run: RunId, lease: Beating) -> bool:
        """Ask the file whether a lease is still held; note it as lost, and say so, if not."""
        token, owner, _, _ = await self._look(run)
        if token == lease.token or self.held.get(run) is not lease:
            return False
        self._let_go(run, self.held.pop(run))
        self._heartbeat.drop(run, lease)
        self.lost[run] = (
            describe(_read_driver(run, owner)) if owner else "nobody now, but was by another"
        )
        return True

    def _beaten(self, run: RunId, lease: Beating) -> None:
        """The heartbeat found a lease lost; it says so in its own thread."""
        with suppress(RuntimeError):  # the loop has been closed
            self._loop.call_soon_threadsafe(self._find_out, run, lease)

    def _addressed(self, run: RunId) -> None:
        """The heartbeat found something in the inbox of a run; it says so in its own thread."""
        with suppress(RuntimeError):  # the loop has been closed
            self._loop.call_soon_threadsafe(self._pass_on, run)

    def _pass_on(self, run: RunId) -> None:
        if self.when_sent is not None and run in self.held:
            self.when_sent(run)

    def _find_out(self, run: RunId, lease: Beating) -> None:
        telling = self._loop.create_task(self._tell(run, lease), name="laneway-lease")
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)

    async def _tell(self, run: RunId, lease: Beating) -> None:
        """Say who has a run now, if it was held until now."""
        with suppress(JournalError):  # if the file cannot be read, the next commit says so
            if await self._ask(run, lease) and self.when_lost is not None:
                self.when_lost(RunOwnedError(run, self.lost[run]))

    def _let_go(self, run: RunId, lease: Lease) -> None:
        if _DRIVEN_HERE.get((self._file, run)) is lease:
            del _DRIVEN_HERE[self._file, run]


def _read_driver(run: RunId, text: str) -> Driver:
    try:
        return msgspec.json.decode(text, type=Driver)
    except msgspec.MsgspecError as error:
        raise JournalError(f"run {run!r}: its lease cannot be read ({error}): {text}") from error
