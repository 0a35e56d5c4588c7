"""A journal store in a process that dies at a chosen moment, and that tells what it was told.

It is the real store of files. After each commit that has been acknowledged it writes to the log of
the case what is now said to be kept; when it is opened, it writes down what is kept.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from laneway.facts import Driver, Row
from laneway.ids import RunId
from laneway.journal.sqlite import SqliteStore
from tests.deaths.casting import PEN
from tests.deaths.programs import Death

Rows = dict[RunId, Sequence[Row]]


def die() -> NoReturn:
    """End the process: no handler runs, nothing is flushed."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


class DyingFile(SqliteStore):
    """Dies as it is told to."""

    def __init__(self, path: Path, *, death: Death | None, picture: Path) -> None:
        """Name the file.

        Args:
            path: of the journal.
            death: how this life ends; None if it does not.
            picture: where to write what is kept, when the file is opened.
        """
        super().__init__(path)
        self._death = death
        self._picture = picture
        self._commits = 0

    async def open(self) -> None:
        """Open the file, and write down what is in it."""
        await super().open()
        await self.picture(self._picture)

    async def picture(self, path: Path) -> None:
        """Write down all facts of all runs, whole or not at all."""
        kept: Rows = {entry.run: await self.read(entry.run) for entry in await self.runs()}
        draft = path.with_suffix(".draft")
        draft.write_bytes(msgspec.json.encode(kept))
        draft.replace(path)

    async def close(self) -> None:
        """Close the file, or die in it."""
        if self._dies("close"):
            await self._amid(super().close)
        await super().close()

    async def take(self, run: RunId, driver: Driver) -> Sequence[Row]:
        """Take a run, or die in it."""
        if self._dies("take"):
            await self._amid(lambda: super(DyingFile, self).take(run, driver))
        return await super().take(run, driver)

    async def commit(self, batch: Sequence[Row], /) -> None:
        """Keep a batch, and note that it is said to be kept; or die."""
        self._commits += 1
        due = self._death is not None and self._commits == self._death.at
        if due and self._dies("before"):
            die()
        if due and self._dies("amid"):
            await self._amid(lambda: super(DyingFile, self).commit(batch))
        await self.keep(batch)
        if due and self._dies("after"):
            die()
        PEN.write(*(["kept", row.run, row.seq] for row in batch))

    async def keep(self, batch: Sequence[Row]) -> None:
        """Keep a batch; doubles do it otherwise."""
        await super().commit(batch)

    def _dies(self, kind: str) -> bool:
        return self._death is not None and self._death.kind == kind

    async def _amid(self, work: Callable[[], Awaitable[Any]]) -> NoReturn:
        """Die a little after something has begun, be it done by then or not."""
        assert self._death is not None
        doing = asyncio.ensure_future(work())
        await asyncio.wait([doing], timeout=self._death.ms / 1000)
        die()
