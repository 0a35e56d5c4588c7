"""Who waits for whom: the answer to "why does it not start?".

Reads the unfinished requests of a lane table in one pass, oldest first, so that explaining every
waiter costs no more than looking at each request once.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Generic

import msgspec

from laneway.lanes.modes import CONFLICTS
from laneway.lanes.requests import Owner, Request


class Blocker(msgspec.Struct, Generic[Owner], frozen=True):
    """The oldest of those who stand in the way at one resource."""

    resource: str
    """Where the two meet: the wider of what both claim, or the lane."""
    owner: Owner
    holding: bool
    """Whether it holds its claims; else it waits itself, and came first."""


def waits(
    requests: Iterable[Request[Owner]], in_line: Callable[[str, Request[Owner]], bool]
) -> Iterator[tuple[Request[Owner], tuple[Blocker[Owner], ...]]]:
    """Name the blockers of every waiting request, oldest waiter first.

    Args:
        requests: All unfinished requests, oldest first.
        in_line: Whether a request stands in the queue of a lane, without a slot in it.
    """
    requests = list(requests)
    entered: dict[str, Request[Owner]] = {}
    for request in requests:
        if request.granted:
            for slot in request.slots:
                entered.setdefault(slot, request)
    oldest: dict[tuple[str, int], Request[Owner]] = {}
    asked: dict[str, Request[Owner]] = {}
    for request in requests:
        if not request.granted:
            found = _blockers(request, oldest)
            for slot in request.slots:
                if in_line(slot, request):
                    # After a lane was made narrower, only younger ones may be left in it.
                    rival = asked.get(slot) or entered[slot]
                    found[slot] = min(rival, found.get(slot, rival), key=_ticket)
            yield request, tuple(Blocker(at, who.owner, who.granted) for at, who in found.items())
        for level, mode, _, _ in request.nodes:
            oldest.setdefault((level, mode), request)
        for slot in request.slots:
            asked.setdefault(slot, request)


def _blockers(
    request: Request[Owner], oldest: dict[tuple[str, int], Request[Owner]]
) -> dict[str, Request[Owner]]:
    found: dict[str, Request[Owner]] = {}
    for level, mode, _, _ in request.nodes:
        against = [oldest[level, other] for other in CONFLICTS[mode] if (level, other) in oldest]
        if against:
            found[level] = min(against, key=_ticket)
    return found


def _ticket(request: Request[Owner]) -> int:
    return request.ticket
