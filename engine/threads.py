"""Threads for synchronous tools: the engine's own, so that a stuck one can be counted and replaced.

A thread cannot be stopped. One whose call has been given up goes on until it returns; until then
it is stuck, and a fresh thread stands in for it, up to a limit.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import msgspec

from laneway.engine.clock import Clock

if TYPE_CHECKING:
    from laneway.engine.live import LiveCall


class Returned(msgspec.Struct, frozen=True):
    """The function's value."""

    value: Any


class Raised(msgspec.Struct, frozen=True):
    """Whatever the function raised, SystemExit and KeyboardInterrupt too."""

    error: BaseException


Work = Callable[[], Any]
Done = Callable[["Returned | Raised"], None]


class ToolThreads:
    """Worker threads, made when needed, reused, daemonic: a stuck tool must not keep the process.

    The scheduler starts no more calls than there are free threads (lane `lane:engine/threads`),
    so nothing is ever queued here.
    """

    def __init__(self, clock: Clock) -> None:
        """Serve the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._jobs: SimpleQueue[tuple[Work, contextvars.Context, asyncio.Future[Any]] | None]
        self._jobs = SimpleQueue()
        self._idle = 0
        self._workers = 0
        self._closed = False
        self.stuck = 0
        """Threads whose call has been given up and which still run."""
        self.unreplaced: dict[LiveCall, None] = {}
        """The calls of those for which no other thread stands in yet, the oldest first."""

    def run(self, work: Work) -> "asyncio.Future[Returned | Raised]":
        """Run a function in a thread, with a copy of the caller's context variables."""
        assert not self._closed, "every call has stopped before the threads are sent home"
        done: asyncio.Future[Returned | Raised] = self._loop.create_future()
        self._clock.hold()
        if self._idle:
            self._idle -= 1
        else:
            self._workers += 1
            threading.Thread(
                target=self._work, name=f"laneway-tool-{self._workers}", daemon=True
            ).start()
        self._jobs.put((work, contextvars.copy_context(), done))
        return done

    def close(self) -> None:
        """Send the threads home; stuck ones end with their function, or with the process."""
        self._closed = True
        # One for each, also for those whose end the loop will hear of too late, or never.
        for _ in range(self._workers):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, context, done = job
            result: Returned | Raised
            try:
                result = Returned(context.run(work))
            except BaseException as error:  # noqa: BLE001 - a thread has nobody above it to tell
                result = Raised(error)
            del work, context, job
            try:
                self._loop.call_soon_threadsafe(self._finish, done, result)
            except RuntimeError:
                return  # The loop has been closed; nobody waits for this any more.
            del done, result

    def _finish(self, done: "asyncio.Future[Returned | Raised]", result: Returned | Raised) -> None:
        self._clock.release()
        self._idle += 1
        if not done.done():
            done.set_result(result)
