"""Rates of lanes: a start keeps its place until its time has passed.

The lane table has no clock. This reads when bodies are entered, and gives each place back through
the engine's one timer; whoever is granted by that is told.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING

from laneway.engine.clock import Clock
from laneway.engine.deadlines import Deadlines
from laneway.lanes.lane import Lane
from laneway.lanes.requests import Request
from laneway.lanes.table import LaneTable

if TYPE_CHECKING:
    from laneway.engine.live import LiveCall

Tell = Callable[["Sequence[Request[LiveCall]]"], None]
"""Passes on whom the lane table has granted something, or refused."""


class Pacing:
    """The starts of all lanes that have a rate."""

    def __init__(
        self,
        lanes: "Mapping[str, Lane]",
        table: "LaneTable[LiveCall]",
        clock: Clock,
        deadlines: Deadlines,
        tell: Tell,
    ) -> None:
        """Start with no start.

        Args:
            lanes: by canonical name; those without a rate are left out.
            table: gives places, and takes them back.
            clock: counts the seconds.
            deadlines: tell when they are over.
            tell: is given whoever may start then.
        """
        self._table = table
        self._clock = clock
        self._starts = {
            name: _Starts(lane.rate.per_seconds, deadlines, self._lapsed, name)
            for name, lane in lanes.items()
            if lane.rate is not None
        }
        self._tell = tell

    def __bool__(self) -> bool:
        """Whether any lane has a rate."""
        return bool(self._starts)

    def begun(self, request: "Request[LiveCall]") -> None:
        """The body of a call is entered."""
        for lane in self._table.start(request):
            self._starts[lane].add(self._clock.monotonic())

    def next_start_seconds(self, lane: str) -> float | None:
        """Say in how many seconds the next place in a lane's rate comes back.

        None where those who have them have not started yet.
        """
        due = self._starts[lane].due
        return None if due == inf else max(due - self._clock.monotonic(), 0.0)

    def _lapsed(self, lane: str) -> None:
        places = self._starts[lane].drop(self._clock.monotonic())
        self._tell(self._table.lapse(lane, places))


class _Starts:
    """When each place of one rate comes back; watched for the first of them."""

    def __init__(
        self, seconds: float, deadlines: Deadlines, lapsed: Callable[[str], None], lane: str
    ) -> None:
        self._seconds = seconds
        self._deadlines = deadlines
        self._lapsed = lapsed
        self._lane = lane
        self._back: deque[float] = deque()
        self.due = inf

    def add(self, now: float) -> None:
        self._back.append(now + self._seconds)
        self._watch()

    def drop(self, now: float) -> int:
        before = len(self._back)
        while self._back and self._back[0] <= now:
            self._back.popleft()
        self._watch()
        return before - len(self._back)

    def expired(self) -> None:
        self._lapsed(self._lane)

    def _watch(self) -> None:
        self.due = self._back[0] if self._back else inf
        if self._back:
            self._deadlines.watch(self)
