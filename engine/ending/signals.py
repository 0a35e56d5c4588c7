"""SIGTERM and Ctrl-C shut the engine down: once in good order, twice at once.

Python's own handler runs in the main thread between two instructions, so that it is reached even
where a coroutine keeps the event loop from turning; what it does there is only to wake the loop.
"""

import asyncio
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from types import FrameType
from typing import Any

from laneway.errors import UsageError

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Signalled:
    """Counts the signals of one stretch of a program, and answers each."""

    def __init__(
        self, shut_down: Callable[[], Coroutine[Any, Any, object]], hurry: Callable[[], None]
    ) -> None:
        """Answer the first signal with `shut_down`, the second with `hurry`."""
        self._loop = asyncio.get_running_loop()
        self._host = asyncio.current_task()
        self._shut_down = shut_down
        self._hurry = hurry
        self._ending: asyncio.Task[None] | None = None
        self.first: int | None = None
        """The signal that came first."""
        self._count = 0

    def come(self, number: int, _: FrameType | None) -> None:
        """Take a signal; in the main thread, in the middle of anything."""
        self._count += 1
        if self.first is None:
            self.first = number
            self._loop.call_soon_threadsafe(self._begin)
        elif self._ending is None or self._count > 2:  # noqa: PLR2004 - once, twice, and more
            # Nobody in the loop has heard the first one, or of the second: out, at any price. What
            # the journal has acknowledged is on the disk.
            raise KeyboardInterrupt
        else:
            self._loop.call_soon_threadsafe(self._hurry)

    def _begin(self) -> None:
        self._ending = self._loop.create_task(self._end())

    async def _end(self) -> None:
        try:
            await self._shut_down()
        finally:
            if self._host is not None:
                self._host.cancel()

    async def over(self) -> None:
        """Wait for a shutdown that has begun."""
        if self.first is not None and self._ending is None:
            await asyncio.sleep(0)  # It begins with the loop's next turn.
        while self._ending is not None and not self._ending.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([self._ending])


@asynccontextmanager
async def shutting_down_on_signals(
    shut_down: Callable[[], Coroutine[Any, Any, object]], hurry: Callable[[], None]
) -> AsyncGenerator[None]:
    """Shut down when SIGTERM or SIGINT comes; see `Engine.on_signals`."""
    if threading.current_thread() is not threading.main_thread():
        raise UsageError(
            "signals reach the main thread alone; use `engine.on_signals()` there, or call "
            "`engine.shutdown(…)` from what handles them"
        )
    signalled = Signalled(shut_down, hurry)
    before = {number: signal.signal(number, signalled.come) for number in SIGNALS}
    try:
        yield
    finally:
        try:
            await signalled.over()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if signalled.first is not None:
            _leave(signalled.first)


def _leave(number: int) -> None:
    """End the program as the signal would have.

    Raises:
        KeyboardInterrupt: for SIGINT.
        SystemExit: for SIGTERM, with 128 and its number, as a shell tells it.
    """
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)
