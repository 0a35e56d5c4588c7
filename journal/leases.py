"""The leases that one store holds in a journal file: taken, kept alive, given back, found lost.

Reads and writes the lines of `runs`; gives the store the number and fencing token that each of
its appends must show. A lease is swapped in by comparing with what was seen, in one statement, so
that of two who saw the same dead owner exactly one gets the run.
"""

import asyncio
import time
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path

import msgspec

from laneway.errors import JournalError, RunOwnedError
from laneway.facts import Driver
from laneway.ids import RunId
from laneway.journal.connection import JournalConnection
from laneway.journal.lease import describe, describe_here, owner_in_the_way, this_driver


class Lease(msgspec.Struct):
    """A run that is driven from here."""

    id: int
    """The number of the run in the file."""
    token: int
    """The fencing token: what is written must show it."""
    next_seq: int = 1
    link: bytes = b""
    """The hash of the last fact; see chain.py."""


_DRIVEN_HERE: dict[tuple[Path, RunId], Lease] = {}
"""The runs that this process drives, or is about to, in its own name. A lease in a file that names
this process and is not among these is a leftover: it could not be given back when it should."""


class Leases:
    """What one store drives, over one connection."""

    def __init__(self, connection: JournalConnection, lease_seconds: float) -> None:
        """Hold nothing yet."""
        self.held: dict[RunId, Lease] = {}
        self.lost: dict[RunId, str] = {}
        """Runs that were held and have another driver now, and who that is."""
        self._connection = connection
        self._file = connection.path.resolve()
        self._lease_seconds = lease_seconds
        self._beating: asyncio.Task[None] | None = None

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
            lease.id, lease.token = await self._swap(run, driver, leftovers=in_own_name)
        except BaseException:
            self._let_go(run, lease)
            raise
        self.held[run] = lease
        self.lost.pop(run, None)
        if self._beating is None or self._beating.done():
            self._beating = asyncio.create_task(self._beat(), name="laneway-lease")
        return lease

    async def leave(self, run: RunId) -> None:
        """Give a lease back, if it is held.

        Raises:
            JournalError: the file cannot be written; this process itself can take the run again.
        """
        self.lost.pop(run, None)
        lease = self.held.pop(run, None)
        if lease is None:
            return
        try:
            await self._connection.fetch("leave", (lease.id, lease.token))
        finally:
            self._let_go(run, lease)

    async def close(self) -> None:
        """Give all leases back; those that cannot be given back end with the process."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait([self._beating])
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
        before = len(self.lost)
        for run in runs & self.held.keys():
            now = await self._connection.fetch("owner", {"run": run})
            if now and now[0][0] == self.held[run].token:
                continue
            owner = now[0][1] if now else None
            self._let_go(run, self.held.pop(run))
            self.lost[run] = (
                describe(_read_driver(run, owner)) if owner else "nobody now, but was by another"
            )
        if len(self.lost) == before:
            raise JournalError(
                f"journal {self._connection.path} did not keep {missing} facts, for no known reason"
            )

    async def _swap(self, run: RunId, driver: Driver, *, leftovers: bool) -> tuple[int, int]:
        """Become the driver of a run that is free, and get its number and token."""
        mine = msgspec.json.encode(driver).decode()
        while True:
            token, owner, beat = await self._look(run)
            if owner is not None and not (leftovers and owner == mine):
                in_the_way = owner_in_the_way(
                    _read_driver(run, owner),
                    silent_seconds=max(0.0, time.time() - beat),
                    lease_seconds=self._lease_seconds,
                )
                if in_the_way is not None:
                    raise RunOwnedError(run, in_the_way)
            swap = {
                "run": run,
                "driver": mine,
                "now": time.time(),
                "seen_token": token,
                "seen_driver": owner,
            }
            for number, new_token in await self._connection.fetch("take", swap):
                return number, new_token
            # Somebody was faster: look who.

    async def _look(self, run: RunId) -> tuple[int | None, str | None, float]:
        for token, owner, beat in await self._connection.fetch("owner", {"run": run}):
            return token, owner, beat
        return None, None, 0.0

    async def _beat(self) -> None:
        while self.held:
            await asyncio.sleep(self._lease_seconds / 3)
            now = time.time()
            alive = [(now, lease.id, lease.token) for lease in self.held.values()]
            # A beat is no fact: if the file cannot be written, the next commit says so.
            with suppress(JournalError):
                await self._connection.each("beat", alive)

    def _let_go(self, run: RunId, lease: Lease) -> None:
        if _DRIVEN_HERE.get((self._file, run)) is lease:
            del _DRIVEN_HERE[self._file, run]


def _read_driver(run: RunId, text: str) -> Driver:
    try:
        return msgspec.json.decode(text, type=Driver)
    except msgspec.MsgspecError as error:
        raise JournalError(f"run {run!r}: its lease cannot be read ({error}): {text}") from error
