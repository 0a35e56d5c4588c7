"""Frozen pictures of the lanes, for `engine.status()` and the command line.

Reads the unfinished requests of a lane table, oldest first; nothing here is on the path of a call.
"""

import sys
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from laneway.claims import Access
from laneway.lanes.lane import Lane, Rate
from laneway.lanes.loans import is_rate
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
    """None where any number may be in it: of shared holders, if it is no lane."""
    paused: bool = False
    """Whether nobody is let in until somebody resumes it."""
    draining: bool = False
    """Whether it is paused so that those inside leave, and some have not yet."""
    generation: int = 1
    """How often holders that did not stop have been let go of by force, and one."""
    rate: Rate | None = None
    over: tuple[str, ...] = ()
    """The resources whose claims are in this lane: a capacity group."""
    reserved: Mapping[str, int] = {}
    """Slots kept for some of them."""
    max_waiting: int | None = None
    """None where any number may wait."""
    holders: tuple[Holder, ...] = ()
    waiters: tuple[Waiter, ...] = ()


def lane_statuses(
    requests: Iterable[Request[Owner]],
    limits: Mapping[str, int],
    name: Callable[[Owner], str],
    configured: Mapping[str, Lane] | None = None,
    shut: Collection[str] = (),
) -> tuple[LaneStatus, ...]:
    """Show every resource that somebody claims or a limit names, sorted by resource.

    Args:
        requests: All unfinished requests, oldest first.
        limits: `max_concurrent` by resource, where it was set.
        name: What an owner is called.
        configured: What else was said of lanes.
        shut: Lanes that let nobody in.
    """
    holders: dict[str, list[Holder]] = {resource: [] for resource in (*limits, *shut)}
    waiters: dict[str, list[Waiter]] = {}
    for request in requests:
        if request.is_barrier:
            continue
        owner = name(request.owner)
        for resource, access in _places(request):
            held = holders.setdefault(resource, [])
            if request.granted:
                held.append(Holder(owner, access, request.token))
            else:
                waiting = waiters.setdefault(resource, [])
                waiting.append(Waiter(owner, access))
    found = configured or {}
    return tuple(
        _status(
            resource,
            limits.get(resource, 1 if is_lane(resource) else None),
            found.get(resource, _SILENT),
            paused=resource in shut,
            holders=tuple(holders[resource]),
            waiters=tuple(waiters.get(resource, ())),
        )
        for resource in sorted(holders)
    )


_SILENT = Lane()


def _status(
    resource: str,
    limit: int | None,
    lane: Lane,
    *,
    paused: bool,
    holders: tuple[Holder, ...],
    waiters: tuple[Waiter, ...],
) -> LaneStatus:
    return LaneStatus(
        resource=resource,
        max_concurrent=None if limit == sys.maxsize else limit,
        paused=paused,
        rate=lane.rate,
        over=tuple(lane.over),
        reserved=lane.reserved,
        max_waiting=lane.max_waiting,
        holders=holders,
        waiters=waiters,
    )


def _places(request: Request[Owner]) -> Iterable[tuple[str, Access]]:
    """What it claims, and the lanes that it is in besides."""
    for claim in request.claims:
        yield claim.resource, claim.access
    claimed = {claim.resource for claim in request.claims}
    for slot in request.slots:
        if is_lane(slot) and slot not in claimed and not is_rate(slot):
            yield slot, Access.EXCLUSIVE
