"""What a turn had to wait for, one thing after the other: why it took as long as it did.

Reads the edges of a turn and, of each call, its claims and times; gives the critical path: measured
when every call has ended, before that estimated from what is expected. Feeds
`turn.critical_path()` and `laneway show`.

A measured path is found backwards (as in Yang and Miller: Critical Path Analysis for the Execution
of Parallel and Distributed Programs, 1988): from the call that ended last, over whatever released
it last: the end of a call it depended on, or of one that it queued behind in a lane.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from laneway.calls import Edge, Reason
from laneway.claims import Claim
from laneway.engine.ranks import critical_path
from laneway.ids import CallId
from laneway.journal.fold import TurnView
from laneway.states import State

T = TypeVar("T")


class CriticalPath(msgspec.Struct, frozen=True, kw_only=True):
    """The chain of calls that the end of a turn waits for, and where its time goes."""

    calls: tuple[CallId, ...]
    """The first first; empty where nothing ran or was waited for."""
    seconds: float
    """From the submission to the end of the last of them: the three below together."""
    running_seconds: float
    """In which one of them runs."""
    queued_seconds: float = 0.0
    """In which the next of them waits for lanes behind calls that are not on the path, of this run
    or of another."""
    other_seconds: float = 0.0
    """Questions to humans, attempts that failed and pauses after them, a run that was left."""
    estimated: bool
    """Whether calls are still open: then it is the longest chain of the graph by expected
    durations, as if every lane were free."""

    def __str__(self) -> str:
        chain = " → ".join(shortened(self.calls)) or "nothing"
        about = "about " if self.estimated else ""
        waits = [
            f"{told(seconds)} {what}"
            for seconds, what in (
                (self.queued_seconds, "in queues"),
                (self.other_seconds, "waiting for other things"),
            )
            if seconds
        ]
        rest = f": {told(self.running_seconds)} running, {', '.join(waits)}" if waits else ""
        return f"{chain}  {about}{told(self.seconds)}{rest}"


class TimedCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """When a call moved, all of it on one clock, in seconds."""

    id: CallId
    claims: tuple[Claim, ...] = ()
    queued: float | None = None
    started: float | None = None
    """Of the last attempt."""
    ended: float | None = None
    skipped: bool = False
    """It ended because another did not succeed, and so with that one."""


def path_of(turn: TurnView, expect: Callable[[str], float]) -> CriticalPath:
    """Find the critical path of a turn.

    Args:
        turn: its facts so far, told by one driver or by several on one machine; times of another
            machine, or before it was restarted, are on another clock and cannot be told apart.
        expect: how long a call of a tool is expected to take, in seconds.
    """
    if any(call.outcome is None for call in turn.calls):
        return estimated(turn, expect)
    timed = [
        TimedCall(
            id=call.id,
            claims=call.claims or call.record.claims,
            queued=call.queued,
            started=call.started,
            ended=call.ended,
            skipped=call.state is State.SKIPPED,
        )
        for call in turn.calls
    ]
    submitted = turn.calls[0].submitted if turn.calls else 0.0
    return measured(timed, turn.edges, submitted)


def estimated(turn: TurnView, expect: Callable[[str], float]) -> CriticalPath:
    """Find the longest chain, counting what has ended as it was and the rest as is expected."""
    calls = turn.calls
    place = {call.id: at for at, call in enumerate(calls)}
    successors: list[list[tuple[int, Reason]]] = [[] for _ in calls]
    for edge in turn.edges:
        successors[place[edge.source]].append((place[edge.target], edge.reason))
    seconds = [
        expect(call.record.tool) if call.outcome is None else _between(call.started, call.ended)
        for call in calls
    ]
    chain = critical_path(successors, seconds)
    return CriticalPath(
        calls=tuple(calls[at].id for at in chain.calls),
        seconds=chain.seconds,
        running_seconds=chain.seconds,
        estimated=True,
    )


def measured(calls: Sequence[TimedCall], edges: Iterable[Edge], submitted: float) -> CriticalPath:
    """Walk back from the call that ended last.

    Args:
        calls: of one turn, in request order.
        edges: between them.
        submitted: when the turn was.
    """
    backwards = _Backwards(calls, edges)
    path: list[TimedCall] = []
    running = queued = other = 0.0
    at = backwards.last()
    while at is not None:
        call = calls[at]
        path.append(call)
        at = backwards.released_by(at)
        before = submitted if at is None else _end(calls[at])
        begun = _begin(call)
        in_queue = _between(max(call.queued, before), begun) if call.queued is not None else 0.0
        running += _between(call.started, call.ended)
        queued += in_queue
        other += _between(before, begun) - in_queue
    return CriticalPath(
        calls=tuple(call.id for call in reversed(path)),
        seconds=running + queued + other,
        running_seconds=running,
        queued_seconds=queued,
        other_seconds=other,
        estimated=False,
    )


class _Backwards:
    """Who could have released whom."""

    def __init__(self, calls: Sequence[TimedCall], edges: Iterable[Edge]) -> None:
        self._calls = calls
        self._seen: set[int] = set()
        self._sources: list[list[int]] = [[] for _ in calls]
        place = {call.id: at for at, call in enumerate(calls)}
        for edge in edges:
            self._sources[place[edge.target]].append(place[edge.source])
        # Calls that share a resource without an edge between them can only have met in its lane.
        lanes: dict[str, list[tuple[float, int]]] = {}
        for at, call in enumerate(calls):
            if call.started is not None and call.ended is not None:
                for claim in call.claims:
                    if not claim.resource.startswith("run:"):
                        lanes.setdefault(claim.resource, []).append((call.ended, at))
        for ended in lanes.values():
            ended.sort()
        self._lanes = lanes

    def last(self) -> int | None:
        """The call that ended last; of several, one that ran, and the one asked for last."""
        ends = [
            (call.ended, call.started is not None, at)
            for at, call in enumerate(self._calls)
            if call.ended is not None and not call.skipped
        ]
        return self._took(max(ends)[2]) if ends else None

    def released_by(self, at: int) -> int | None:
        """The call whose end let this one begin; None where the walk is at its root."""
        begun = _begin(self._calls[at])
        ends = [
            (_end(self._calls[source]), source)
            for source in self._sources[at]
            if source not in self._seen and _end(self._calls[source]) <= begun
        ]
        ends += self._left_lanes(at, begun)
        return self._took(max(ends)[1]) if ends else None

    def _left_lanes(self, at: int, begun: float) -> Iterable[tuple[float, int]]:
        """The last to leave each of its lanes while it queued for them."""
        call = self._calls[at]
        if call.queued is None or begun <= call.queued:
            return
        for claim in call.claims:
            ended = self._lanes.get(claim.resource, ())
            found = bisect_right(ended, (begun, len(self._calls)))
            if (
                found
                and ended[found - 1][0] > call.queued
                and ended[found - 1][1] not in self._seen
            ):
                yield ended[found - 1]

    def _took(self, at: int) -> int:
        self._seen.add(at)
        return at


def told(seconds: float) -> str:
    """Write a time so that three digits tell."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    return f"{seconds:.2f}".rstrip("0").rstrip(".") + " s"


def shortened(calls: Sequence[T], most: int = 8) -> list[T | str]:
    """Leave out the middle of a long chain."""
    if len(calls) <= most:
        return list(calls)
    half = most // 2
    return [*calls[:half], f"… {len(calls) - 2 * half} more …", *calls[-half:]]


def _begin(call: TimedCall) -> float:
    """When it started; of one that never did, when it ended."""
    return call.started if call.started is not None else _end(call)


def _end(call: TimedCall) -> float:
    return call.ended if call.ended is not None else 0.0


def _between(first: float | None, last: float | None) -> float:
    return max(last - first, 0.0) if first is not None and last is not None else 0.0
