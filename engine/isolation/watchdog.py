"""Tells of a coroutine that keeps the event loop from turning, by name and with its stack.

A daemon thread looks four times in each `Limits.blocked_seconds` who runs in the loop; only where
that is the body of a call it asks the loop for a sign of life. While the loop turns this costs it
one callback at most for each look, and a call nothing.
"""

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import msgspec

LOG = logging.getLogger("laneway")
KEPT = 20
"""Reports that are kept for `engine.status()`."""
LOOKS = 4
"""In the time after which is reported."""


class Blocked(msgspec.Struct, frozen=True, kw_only=True):
    """A coroutine that kept the event loop from turning."""

    call: str
    """As `run/t1.2`."""
    tool: str
    seconds: float
    """At least so long; until the loop turned again, or so far."""
    stack: str
    """Where it was, the innermost line last."""


class Watchdog:
    """Watches one event loop, from a thread of its own."""

    def __init__(self, blocked_seconds: float, name_of: Callable[[Any], tuple[str, str]]) -> None:
        """Watch the running loop.

        Args:
            blocked_seconds: after which is reported.
            name_of: of a task, if it is the body of a call: the call and its tool; else empty.
        """
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._after = blocked_seconds
        self._name_of = name_of
        self._over = threading.Event()
        self._alive = threading.Event()
        self.found: deque[Blocked] = deque(maxlen=KEPT)
        """The last reports, the newest last."""
        self._thread = threading.Thread(target=self._watch, name="laneway-watchdog", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Watch no more."""
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(self._after / LOOKS):
            task = _running(self._loop)
            call, tool = ("", "") if task is None else self._name_of(task)
            if call:
                self._suspect(call, tool)

    def _suspect(self, call: str, tool: str) -> None:
        """Ask for a sign of life, and report who keeps it away."""
        self._alive.clear()
        begun = time.monotonic()
        with suppress(RuntimeError):  # The loop has been closed.
            self._loop.call_soon_threadsafe(self._alive.set)
        if self._alive.wait(self._after) or self._over.is_set():
            return
        stack = _stack_of(self._loop_thread)
        report = Blocked(call=call, tool=tool, seconds=time.monotonic() - begun, stack=stack)
        LOG.warning(
            "the tool %s of call %s has kept the event loop from turning for %.1f s: every other "
            "call waits for it; await something, or make it a synchronous function. It is at\n%s",
            tool,
            call,
            report.seconds,
            stack,
        )
        self.found.append(report)
        while not self._alive.wait(self._after) and not self._over.is_set():
            self._lasts(report, begun)
        self._lasts(report, begun)

    def _lasts(self, report: Blocked, begun: float) -> None:
        seconds = time.monotonic() - begun
        self.found[-1] = msgspec.structs.replace(report, seconds=seconds)


def _running(loop: asyncio.AbstractEventLoop) -> "asyncio.Task[Any] | None":
    with suppress(RuntimeError):
        return asyncio.current_task(loop)
    return None


def _stack_of(thread: int) -> str:
    frame: FrameType | None = sys._current_frames().get(thread)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - the one way there is
    return "" if frame is None else "".join(traceback.format_stack(frame)[-10:])
