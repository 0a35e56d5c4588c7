"""The engine's one source of time: the running event loop's, so that a virtual loop rules all."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Monotonic time decides; wall time is for people and for what outlives the process."""

    def monotonic(self) -> float:
        """Seconds since some fixed point, never backwards."""
        ...

    def wall(self) -> float:
        """Unix seconds; may jump either way."""
        ...

    def call_at(self, when: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Call back at a monotonic time."""
        ...

    def hold(self) -> None:
        """Work begins that the event loop cannot see: virtual time stands still until `release`."""
        ...

    def release(self) -> None:
        """The work that began with `hold` is over."""
        ...


class LoopClock:
    """The clock of the running event loop. Made inside it, good for its life."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        """Take the running loop; `wall` gives Unix seconds."""
        self._loop = asyncio.get_running_loop()
        # What the loops of asyncio go by, without the way through the loop.
        plain = type(self._loop).time is asyncio.BaseEventLoop.time
        self.monotonic = time.monotonic if plain else self._loop.time
        self.wall = wall

    def call_at(self, when: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Call back at a monotonic time."""
        return self._loop.call_at(when, callback)

    def hold(self) -> None:
        """Real time never stands still."""

    def release(self) -> None:
        """Real time never stands still."""
