"""Keeps a server connected: begun, and begun again with growing pauses when it dies.

Calls ask it for the link that stands. While one is being made they wait for it; in a pause they are
told at once that the server is down, and nothing has happened.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress

from laneway.engine.failing import TransportClosed
from laneway.engine.mcp.link import Link
from laneway.engine.mcp.reading import closed
from laneway.engine.mcp.settings import Settings

logger = logging.getLogger("laneway")

JITTER = 0.2


class Keeper:
    """Of one server, in one event loop."""

    def __init__(
        self, settings: Settings, make_link: Callable[[], Link], came_up: Callable[[Link], None]
    ) -> None:
        """Prepare.

        Args:
            settings: of the server.
            make_link: gives a link that has not been connected.
            came_up: told of each link that stands, before any call gets it.
        """
        self._settings = settings
        self._make_link = make_link
        self._came_up = came_up
        self._loop = asyncio.get_running_loop()
        self.link: Link | None = None
        """That stands, or stood last."""
        self.starts = 0
        """How often it has been connected."""
        self.why = ""
        """Why it is down."""
        self._deaths = 0
        """In a row, none of which it has outlived for long."""
        self._settled = asyncio.Event()
        """Set unless a link is being made: then what there is, up or down, stays for a while."""
        self._resumes = 0.0
        """When the pause ends."""
        self._task: asyncio.Task[None] | None = None
        self._closing = False

    async def open(self) -> None:
        """Connect for the first time, and keep it so.

        Raises:
            Exception: whatever kept it from being connected, if the server is required.
        """
        try:
            link = await self._connected()
        except Exception as error:
            if self._settings.required:
                raise
            self._went_down(f"{type(error).__name__}: {error}")
            link = None
        self._task = asyncio.create_task(self._keep(link), name=f"mcp {self._settings.name} kept")

    async def close(self) -> None:
        """End it, and wait until nothing is left."""
        self._closing = True
        self._settled.set()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self.link is not None:
            await self.link.close()
        self.why = "it was closed"

    async def up(self) -> Link:
        """The link that stands.

        Raises:
            TransportClosed: there is none, and none is being made.
        """
        await self._settled.wait()
        if self.link is not None and self.link.is_up and not self._closing:
            return self.link
        left = self._resumes - self._loop.time()
        again = f"; it is tried again in {left:.0f} s" if left > 0 and not self._closing else ""
        raise closed(self._settings.name, f"it is down: {self.why}{again}", sent=False)

    async def up_at_last(self) -> Link:
        """The link that stands, or that is made next, if one that ended has just been met."""
        try:
            return await self.up()
        except TransportClosed:
            if self._resumes > self._loop.time() or self._closing:
                raise
        await asyncio.sleep(0)  # What noticed the end is about to make the next.
        return await self.up()

    async def _keep(self, link: Link | None) -> None:
        while True:
            if link is not None:
                began = self._loop.time()
                await link.ended.wait()
                lived = self._loop.time() - began
                if link.lost_session or lived >= self._settings.limits.settled_seconds:
                    self._deaths = 0
                self._went_down(link.why)
                self._settled.clear()
                await link.close()
            await self._pause()
            try:
                link = await self._connected()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again
                link = None
                self._went_down(f"{type(error).__name__}: {error}")

    async def _connected(self) -> Link:
        self._settled.clear()
        link = self._make_link()
        try:
            await link.connect()
            self.link = link
            self.starts += 1
            self._came_up(link)
        finally:
            self._settled.set()
        return link

    def _went_down(self, why: str) -> None:
        self._deaths += 1
        self.why = why
        logger.warning("MCP server %s is down: %s", self._settings.name, why)

    async def _pause(self) -> None:
        """Wait before the next start: not after the first death, then longer and longer."""
        limits = self._settings.limits
        if self._deaths <= 1 and self.link is not None:
            return
        exponent = min(self._deaths - 1, 32)
        seconds = min(limits.pause_seconds * 2.0**exponent, limits.pause_most_seconds)
        seconds *= 1 + random.uniform(-JITTER, JITTER)  # noqa: S311 - jitter, not a secret
        self._resumes = self._loop.time() + seconds
        self._settled.set()
        await asyncio.sleep(seconds)
