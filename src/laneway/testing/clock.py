"""An event loop whose time passes only when nothing else can happen.

The real scheduler runs on it with given durations: hours of waiting take milliseconds, and the
same program takes the same course every time.
"""

import asyncio
import selectors
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

HANG_GUARD_SECONDS = 30.0
"""Real seconds without any event before a test that waits on the outside is given up."""


class HungError(RuntimeError):
    """Nothing can ever happen any more, and the program has not ended."""


class _Selector(selectors.DefaultSelector):
    loop: "VirtualLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        if self.loop.held or timeout is None:
            events = super().select(HANG_GUARD_SECONDS)
            if not events:
                raise HungError(
                    f"nothing is scheduled, and nothing came from outside the event loop in "
                    f"{HANG_GUARD_SECONDS:g} s"
                )
            return events
        self.loop.virtual_now += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop with virtual time, and a wall clock that a test may set."""

    def __init__(self) -> None:
        """Start at second 1000 of virtual time."""
        self.virtual_now = 1000.0
        self.wall_offset = 1_700_000_000.0
        self.held = 0
        """How much goes on outside that the loop cannot see: time stands still meanwhile."""
        self.blocked: set[threading.Event] = set()
        """Set for the threads that are blocked until then; all of them when the loop is closed."""
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        """Virtual monotonic seconds."""
        return self.virtual_now

    def close(self) -> None:
        """Let go of the threads that are still blocked, too: nobody will ever wake them."""
        super().close()
        for event in tuple(self.blocked):
            event.set()


class VirtualClock:
    """The engine's clock on a virtual loop, and what tests do with time."""

    def __init__(self) -> None:
        """Take the running loop, which must be a virtual one."""
        loop = asyncio.get_running_loop()
        if not isinstance(loop, VirtualLoop):
            raise TypeError("VirtualClock needs a VirtualLoop; start with run_virtual(main)")
        self._loop = loop

    def monotonic(self) -> float:
        """Virtual monotonic seconds."""
        return self._loop.virtual_now

    def wall(self) -> float:
        """Virtual Unix seconds: monotonic time plus what `set_wall` made of it."""
        return self._loop.virtual_now + self._loop.wall_offset

    def call_at(self, when: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Call back at a virtual time."""
        return self._loop.call_at(when, callback)

    def hold(self) -> None:
        """Time stands still until `release`."""
        self._loop.held += 1

    def release(self) -> None:
        """The work that began with `hold` is over."""
        self._loop.held -= 1

    def advance_wall(self, seconds: float) -> None:
        """Let the wall clock jump, either way; monotonic time goes on as it was."""
        self._loop.wall_offset += seconds

    def block(self, seconds: float) -> None:
        """For a synchronous tool, in its thread: block for virtual seconds, uninterruptibly."""
        event = threading.Event()

        def park() -> None:
            self._loop.call_later(seconds, wake)
            self.release()

        def wake() -> None:
            self.hold()
            event.set()

        self._loop.blocked.add(event)
        try:
            self._loop.call_soon_threadsafe(park)
            woken = event.wait(HANG_GUARD_SECONDS)
        finally:
            self._loop.blocked.discard(event)
        if not woken or self._loop.is_closed():
            raise HungError("the event loop went away while a tool was blocked")


def run_virtual(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a program on virtual time, like asyncio.run."""
    results: list[T] = []

    async def kept() -> None:
        # The runner formats whatever its task returns; a large result would take its time.
        results.append(await main())

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(kept())
    return results[0]
