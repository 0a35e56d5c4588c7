"""What would start when: a turn played through on paper, with the real lane table.

Reads the flat edges of a graph and, of each call, its claims and how long it is expected to take;
gives the time of its start and its end. List scheduling (Graham 1969) over a heap of ends: no event
loop, no clock, nothing executed. Feeds the dry run.
"""

from collections.abc import Collection, Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

import msgspec

from laneway.claims import Claim
from laneway.engine.ranks import Edges, order, ranks
from laneway.engine.services import THREAD
from laneway.lanes.lane import Lane
from laneway.lanes.names import is_lane
from laneway.lanes.requests import Request
from laneway.lanes.table import LaneTable


class Planned(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the forecast wants to know of a call."""

    seconds: float = 1.0
    claims: tuple[Claim, ...] = ()
    thread: bool = False
    """It takes a thread once it holds its claims."""
    faulty: bool = False
    """It ends before anything runs, without success."""
    refused: bool = False
    """It ends when it would be ready, without success."""


class Expected(NamedTuple):
    """When a call would run, in seconds from the submission."""

    ready: float
    """Nothing that it depends on is open any more."""
    start: float
    end: float


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule, by position."""

    spans: Mapping[int, Expected]
    """Of the calls that would run."""
    skipped: Mapping[int, int]
    """The calls that would be skipped, each with the call that this comes from."""

    @property
    def seconds(self) -> float:
        """The makespan: from the submission to the last end."""
        return max((span.end for span in self.spans.values()), default=0.0)


def forecast(
    successors: Edges, calls: Sequence[Planned], lanes: Mapping[str, int | Lane] | None = None
) -> Forecast:
    """Schedule calls as the engine would, were nobody else there and each took what is expected.

    Args:
        successors: by position; every cycle goes through faulty calls alone.
        calls: in request order.
        lanes: by canonical resource, as the lane table takes them; how many may wait in one plays
            no part.
    """
    return _Play(successors, calls, lanes or {}).to_the_end()


class _Play:
    def __init__(
        self, successors: Edges, calls: Sequence[Planned], lanes: Mapping[str, int | Lane]
    ) -> None:
        self._successors = successors
        self._calls = calls
        self._table: LaneTable[int] = LaneTable(lanes)
        self._per_seconds = {
            name: lane.rate.per_seconds
            for name, lane in lanes.items()
            if isinstance(lane, Lane) and lane.rate is not None
        }
        self._lapses: list[tuple[float, str]] = []
        """When places in rates come back."""
        self._ranks = ranks(successors, [call.seconds for call in calls])
        self._waits = [0] * len(calls)
        for edges in successors:
            for target, _ in edges:
                self._waits[target] += 1
        self._now = 0.0
        self._ends: list[tuple[float, int]] = []
        self._held: dict[int, list[Request[int]]] = {}
        self._ready: list[int] = []
        self._since: dict[int, float] = {}
        self._spans: dict[int, Expected] = {}
        self._over: set[int] = set()
        self._skipped: dict[int, int] = {}

    def to_the_end(self) -> Forecast:
        calls = self._calls
        self._ready = [at for at, count in enumerate(self._waits) if not count]
        for at, call in enumerate(calls):
            if call.faulty and at not in self._over:
                self._fail(at)
        self._begin_ready()
        while self._ends or self._lapses:
            self._now = min(heap[0][0] for heap in (self._ends, self._lapses) if heap)
            while self._lapses and self._lapses[0][0] == self._now:
                for granted in self._table.lapse(heappop(self._lapses)[1]):
                    self._go_on(granted.owner)
            while self._ends and self._ends[0][0] == self._now:
                self._finish(heappop(self._ends)[1])
            self._begin_ready()
        return Forecast(spans=self._spans, skipped=self._skipped)

    def _begin_ready(self) -> None:
        """Let the calls ask for their lanes that wait for nothing any more."""
        while self._ready:
            ready = sorted(at for at in self._ready if at not in self._over)
            self._ready = []
            for at in order(ready, self._ranks, self._serial):
                self._since[at] = self._now
                if self._calls[at].refused:
                    self._fail(at)
                else:
                    self._ask(at, self._calls[at].claims)

    def _serial(self, at: int) -> Collection[str]:
        return [
            claim.resource
            for claim in self._calls[at].claims
            if is_lane(claim.resource) and not self._table.is_wide(claim)
        ]

    def _ask(self, at: int, claims: tuple[Claim, ...]) -> None:
        request = self._table.request(claims, at)
        self._held.setdefault(at, []).append(request)
        if request.granted:
            self._go_on(at)

    def _go_on(self, at: int) -> None:
        """The call holds what it asked for last."""
        call = self._calls[at]
        if call.thread and len(self._held[at]) == 1:
            self._ask(at, THREAD)
            return
        if self._per_seconds:
            for lane in self._table.start(self._held[at][0]):
                heappush(self._lapses, (self._now + self._per_seconds[lane], lane))
        end = self._now + call.seconds
        self._spans[at] = Expected(self._since[at], self._now, end)
        heappush(self._ends, (end, at))

    def _finish(self, at: int) -> None:
        self._over.add(at)
        for request in reversed(self._held.pop(at)):
            for granted in self._table.release(request):
                self._go_on(granted.owner)
        for target, _ in self._successors[at]:
            self._one_less(target)

    def _fail(self, root: int) -> None:
        """End a call without success, and all that needs it; what only comes after it goes on."""
        self._over.add(root)
        failed = [root]
        while failed:
            for target, reason in self._successors[failed.pop()]:
                if not reason.carries_failure:
                    self._one_less(target)
                elif target not in self._over:
                    self._over.add(target)
                    if not self._calls[target].faulty:
                        self._skipped[target] = root
                    failed.append(target)

    def _one_less(self, target: int) -> None:
        self._waits[target] -= 1
        if not self._waits[target]:
            self._ready.append(target)
