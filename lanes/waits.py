"""Who waits for whom: the answer to "why does it not start?".

Reads the unfinished requests of a lane table in one pass, in their order, so that explaining every
waiter costs no more than looking at each request once; a nested one, which does not count its
ancestors, passes over them.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Generic

import msgspec

from laneway.lanes.modes import CONFLICTS
from laneway.lanes.names import overlaps
from laneway.lanes.requests import SLOT, Owner, Place, Request, by_order, places


class Blocker(msgspec.Struct, Generic[Owner], frozen=True):
    """The oldest of those who stand in the way at one resource."""

    resource: str
    """Where the two meet: the wider of what both claim, or the lane; what a barrier keeps free."""
    owner: Owner | None
    """None for a barrier: somebody keeps the resource free."""
    holding: bool
    """Whether it holds its claims; else it waits itself, and comes first."""


def waits(
    requests: Iterable[Request[Owner]], in_line: Callable[[str, Request[Owner]], bool]
) -> Iterator[tuple[Request[Owner], tuple[Blocker[Owner], ...]]]:
    """Name the blockers of every waiting request, in their order.

    Args:
        requests: All unfinished requests.
        in_line: Whether a request stands in the queue of a lane, without a slot in it.
    """
    requests = sorted(requests, key=by_order)
    before = _Before[Owner]()
    for request in requests:
        if request.granted:
            before.add(request)
    for request in requests:
        if request.granted:
            continue
        family = frozenset(request.ancestors())
        found: dict[str, Request[Owner]] = {}
        for level, mode, _, _ in request.nodes:
            before.note(found, level, CONFLICTS[mode], family)
        for slot in request.slots:
            # After a lane was made narrower, only younger ones may be left in it.
            if in_line(slot, request):
                before.note(found, slot, (SLOT,), family)
        if not request.is_barrier:
            yield request, tuple(_blocker(spot, who) for spot, who in found.items())
        before.add(request)


def _blocker(spot: str, who: Request[Owner]) -> Blocker[Owner]:
    if not who.is_barrier:
        return Blocker(spot, who.owner, who.granted)
    kept = next(claim.resource for claim in who.claims if overlaps(claim.resource, spot))
    return Blocker(kept, None, who.granted)


class _Before(Generic[Owner]):
    """The holders, and the waiters so far, each in their order, by level and mode and by lane."""

    def __init__(self) -> None:
        self._oldest: dict[Place, Request[Owner]] = {}
        self._holders: dict[Place, list[Request[Owner]]] = {}
        self._waiters: dict[Place, list[Request[Owner]]] = {}

    def add(self, request: Request[Owner]) -> None:
        among = self._holders if request.granted else self._waiters
        for place in places(request):
            among.setdefault(place, []).append(request)
            known = self._oldest.setdefault(place, request)
            if request.order < known.order:
                self._oldest[place] = request

    def note(
        self,
        found: dict[str, Request[Owner]],
        name: str,
        kinds: Iterable[int],
        family: Collection[Request[Owner]],
    ) -> None:
        """Note the oldest of some kinds at a level or lane that is none of the family."""
        for kind in kinds:
            one = self._oldest.get((name, kind))
            if one in family:
                one = self._but(family, (name, kind))
            if one is not None:
                known = found.setdefault(name, one)
                if one.order < known.order:
                    found[name] = one

    def _but(self, family: Collection[Request[Owner]], place: Place) -> Request[Owner] | None:
        every = (self._holders.get(place, ()), self._waiters.get(place, ()))
        firsts = (next((one for one in those if one not in family), None) for those in every)
        return min((one for one in firsts if one is not None), key=by_order, default=None)
