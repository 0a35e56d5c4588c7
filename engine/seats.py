"""Whose turn it is among the calls of one turn that wait for the same: the longest path first.

A lane serves requests in the order in which they came. But where several calls of one turn wait in
a lane that lets several in, and all with the same claims, the places that the turn has in the line
are its own to fill: whenever one comes up, the call with the longest remaining path takes it
(HEFT's upward rank: Topcuoglu, Hariri, Wu 2002; with the durations that the engine has learnt), so
that no other turn is overtaken and this one ends sooner. In a lane of one the order of requests can
carry meaning (click after navigate), and is kept.

Made for a turn with edges whose calls claim such lanes; serves the steps of its scheduler.
"""

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from laneway.claims import Claim
from laneway.engine.ranks import order, ranks
from laneway.lanes.names import is_lane
from laneway.states import State

if TYPE_CHECKING:
    from laneway.engine.live import LiveCall, LiveTurn
    from laneway.engine.services import Services

_Line = list[tuple[float, int, "LiveCall"]]


def seats_of(turn: "LiveTurn", services: "Services") -> "Seats | None":
    """Rank the calls of a turn, if that can matter to it."""
    if not any(call.successors for call in turn.calls):
        return None
    every = {call.claims for call in turn.calls if len(call.claims) > 1}
    if not any(services.lanes.is_wide(claim) for claims in every for claim in claims):
        return None
    return Seats(turn, services)


class Seats:
    """The calls of one turn by the length of the path that begins with them, and who waits."""

    def __init__(self, turn: "LiveTurn", services: "Services") -> None:
        """Rank the calls of a turn, once for all."""
        place = {call: at for at, call in enumerate(turn.calls)}
        successors = [
            [(place[target], reason) for target, reason in call.successors] for call in turn.calls
        ]
        expect = services.durations.expect_call
        seconds = [expect(call.record.tool, call.record.arguments) for call in turn.calls]
        self._lanes = services.lanes
        self._ranks = dict(zip(turn.calls, ranks(successors, seconds), strict=True))
        self._lines: dict[tuple[tuple[Claim, ...], int], _Line] = {}
        """By claims, and by kind: its priority."""
        self._waits = 0

    def longest_first(self, ready: "Sequence[LiveCall]") -> "list[LiveCall]":
        """Sort calls that become ready in one instant."""
        paths = [self._ranks[call] for call in ready]
        places = order(range(len(ready)), paths, lambda at: self._serial(ready[at]))
        return [ready[at] for at in places]

    def wait(self, call: "LiveCall") -> None:
        """A call has entered the queue of its lanes."""
        assert call.request is not None
        self._waits += 1
        line = self._lines.setdefault((call.claims, call.request.kind), [])
        heappush(line, (-self._ranks[call], self._waits, call))

    def take(self, granted: "LiveCall") -> "LiveCall":
        """Give what one of the calls was granted to whoever has the longest path still ahead.

        The two change their places in the lanes.
        """
        assert granted.request is not None
        line = self._lines.get((granted.claims, granted.request.kind), [])
        while line:
            _, _, first = heappop(line)
            if first is granted:
                break
            if _waits(first):
                first.request, granted.request = granted.request, first.request
                for call in (first, granted):
                    assert call.request is not None
                    call.request.owner = call
                return first
        return granted

    def _serial(self, call: "LiveCall") -> list[str]:
        return [
            claim.resource
            for claim in call.claims
            if is_lane(claim.resource) and not self._lanes.is_wide(claim)
        ]


def _waits(call: "LiveCall") -> bool:
    return (
        call.state is State.QUEUED
        and call.told is None
        and call.request is not None
        and not call.request.granted
    )
