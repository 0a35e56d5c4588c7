"""Frozen pictures of the lanes, for `engine.status()` and the command line.

Reads the unfinished requests of a lane table, oldest first; nothing here is on the path of a call.
"""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from laneway.claims import Access
from laneway.lanes.names import is_lane
from laneway.lanes.requests import Owner, Request


class Holder(msgspec.Struct, frozen=True):
    """Somebody who holds the resource itself, not only something above or below it."""

    owner: str
    access: Access
    token: int


class Waiter(msgspec.Struct, frozen=True):
    """Somebody who wants the resource and does not hold all its claims yet."""

    owner: str
    access: Access


class LaneStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One lane at one moment, holders and waiters in the order in which they asked."""

    resource: str
    max_concurrent: int | None
    """None where any number of shared holders may enter."""
    holders: tuple[Holder, ...] = ()
    waiters: tuple[Waiter, ...] = ()


def lane_statuses(
    requests: Iterable[Request[Owner]], limits: Mapping[str, int], name: Callable[[Owner], str]
) -> tuple[LaneStatus, ...]:
    """Show every resource that somebody claims or a limit names, sorted by resource.

    Args:
        requests: All unfinished requests, oldest first.
        limits: `max_concurrent` by resource, where it was set.
        name: What an owner is called.
    """
    holders: dict[str, list[Holder]] = {resource: [] for resource in limits}
    waiters: dict[str, list[Waiter]] = {}
    for request in requests:
        owner = name(request.owner)
        for claim in request.claims:
            held = holders.setdefault(claim.resource, [])
            if request.granted:
                held.append(Holder(owner, claim.access, request.token))
            else:
                waiting = waiters.setdefault(claim.resource, [])
                waiting.append(Waiter(owner, claim.access))
    return tuple(
        LaneStatus(
            resource=resource,
            max_concurrent=limits.get(resource, 1 if is_lane(resource) else None),
            holders=tuple(holders[resource]),
            waiters=tuple(waiters.get(resource, ())),
        )
        for resource in sorted(holders)
    )
