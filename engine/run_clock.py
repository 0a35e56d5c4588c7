"""The clock of a run: how long it has been at work, and how much of its time is left.

It goes while a turn moves or a request to the model is open, and rests while only humans are
awaited, and between the turns. It is monotonic, one entry of the one sweep over deadlines, and so
narrows whatever waits or runs without a timer of its own.
"""

from collections.abc import Callable
from math import inf

from laneway.engine.clock import Clock
from laneway.engine.deadlines import Deadlines
from laneway.policies.ledger import THRESHOLDS


class RunClock:
    """Counts the time at work of one run."""

    __slots__ = (
        "_clock",
        "_deadlines",
        "_limit",
        "_marks",
        "_on_mark",
        "_since",
        "_spent",
        "_who",
        "due",
        "over",
    )

    def __init__(
        self,
        clock: Clock,
        deadlines: Deadlines,
        limit_seconds: float,
        spent_seconds: float,
        neared: int,
        on_mark: Callable[[int], None],
    ) -> None:
        """Go on from what earlier drivers have spent; it stands at first.

        Args:
            clock: monotonic.
            deadlines: the sweep.
            limit_seconds: of the run; may be infinite.
            spent_seconds: by earlier drivers.
            neared: the highest threshold that has been told.
            on_mark: called with the percentage of each threshold that is reached, 100 at the end.
        """
        self._clock = clock
        self._deadlines = deadlines
        self._spent = spent_seconds
        self._since = 0.0
        self._limit = limit_seconds
        self.due = inf
        """When the next mark is reached, while it goes on."""
        self._who: set[object] = set()
        """What keeps it going."""
        self._on_mark = on_mark
        marks = [(limit_seconds * mark / 100, mark) for mark in (*THRESHOLDS, 100) if mark > neared]
        self._marks = marks if limit_seconds != inf else []
        """What is still to be reached, in seconds and in percent."""
        self.over = limit_seconds <= spent_seconds
        """Nothing is left."""
        if self.over:
            self._marks = []

    def go_on(self, who: object) -> None:
        """Something is at work."""
        if not self._who:
            self._since = self._clock.monotonic()
            self._watch()
        self._who.add(who)

    def rest(self, who: object) -> None:
        """It is no more, or only waits for humans."""
        if who in self._who:
            self._who.discard(who)
            if not self._who:
                self._spent += self._clock.monotonic() - self._since
                self._deadlines.forget(self)

    def close(self) -> None:
        """Watch nothing any more; the run is left."""
        self._deadlines.forget(self)
        self._marks = []

    @property
    def spent_seconds(self) -> float:
        """At work so far."""
        going = self._clock.monotonic() - self._since if self._who else 0.0
        return self._spent + going

    @property
    def left_seconds(self) -> float:
        """What is left of the limit."""
        return max(self._limit - self.spent_seconds, 0.0)

    def _watch(self) -> None:
        if self._marks:
            self.due = self._since + self._marks[0][0] - self._spent
            self._deadlines.watch(self)

    def expired(self) -> None:
        """A mark has been reached."""
        _, mark = self._marks.pop(0)
        self.due = inf
        self.over = not self._marks
        self._watch()
        self._on_mark(mark)
