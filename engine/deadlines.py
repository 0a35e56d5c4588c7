"""One timer for everything that has a limit.

A timer handle per call costs as much as a task; a set and one timer at the earliest deadline cost
a set operation. The sweep looks at whatever is watched, which is what is running or waits for a
human, and is made only when a deadline has been reached; deadlines that lie close together are met
by one sweep.
"""

import asyncio
from math import inf
from typing import Protocol

from laneway.engine.clock import Clock

SPACING_SECONDS = 2e-6
"""Between two sweeps, for each that is watched: a sweep looks at one in about 0.1 µs, so all sweeps
together take a twentieth of the time at most, and with 1,000 watched a deadline is 2 ms late."""


class Limited(Protocol):
    """Something with a deadline."""

    due: float
    """Monotonic seconds."""

    def expired(self) -> None:
        """The deadline has passed; watched no more unless it asks again."""
        ...


class Deadlines:
    """Tells whatever is watched that its time is over."""

    def __init__(self, clock: Clock) -> None:
        """Count on this clock."""
        self._clock = clock
        self._watched: set[Limited] = set()
        self._armed = inf
        self._swept = -inf
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, limited: Limited) -> None:
        """Call `expired` once `due` has passed. Watching again after a change of `due` is cheap."""
        self._watched.add(limited)
        if limited.due < self._armed:
            self._arm(limited.due)

    def forget(self, limited: Limited) -> None:
        """Watch no more; nothing happens where it was not watched."""
        self._watched.discard(limited)

    def close(self) -> None:
        """Watch nothing any more."""
        self._watched.clear()
        if self._timer is not None:
            self._timer.cancel()

    def __len__(self) -> int:
        """How much is watched."""
        return len(self._watched)

    def _arm(self, when: float) -> None:
        when = max(when, self._swept + len(self._watched) * SPACING_SECONDS)
        if when >= self._armed:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed = when
        self._timer = self._clock.call_at(when, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        self._armed = inf
        now = self._swept = self._clock.monotonic()
        passed = [limited for limited in self._watched if limited.due <= now]
        passed.sort(key=_due)
        try:
            for limited in passed:
                # One that passed before it may have ended it, or given it more time.
                if limited in self._watched and limited.due <= now:
                    self._watched.discard(limited)
                    limited.expired()
        finally:
            if self._watched:
                self._arm(min(map(_due, self._watched)))


def _due(limited: Limited) -> float:
    return limited.due
