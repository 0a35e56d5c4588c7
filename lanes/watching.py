"""Who holds or waits for one resource, counted as they come and go: so that nobody has to poll.

Reads what happens in a lane table; feeds those who wait for a lane to be idle or to have room. A
table that nobody watches pays one look at an empty list.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic

import msgspec

from laneway.lanes.names import is_lane, overlaps
from laneway.lanes.requests import Owner, Request


class Watch(msgspec.Struct, eq=False):
    """The holders and waiters of one lane; of another resource, all who claim what overlaps it."""

    resource: str
    changed: Callable[[], None]
    """Called when there is one less that holds or waits, or a waiter became a holder. It looks at
    the numbers, and asks nothing of the table that is just changing."""
    holders: int = 0
    waiters: int = 0
    outside: int = 0
    """Of the waiters those that are not part of a holder."""

    @property
    def idle(self) -> bool:
        """Whether nobody holds it or waits for it."""
        return not (self.holders or self.waiters)

    def concerns(self, request: Request[Any]) -> bool:
        """Whether a request counts."""
        return not request.is_barrier and meets(request, self.resource)


class Watches(Generic[Owner]):
    """All watches of a table."""

    def __init__(self) -> None:
        """Start with none."""
        self._lanes: dict[str, list[Watch]] = {}
        self._others: list[Watch] = []

    def __len__(self) -> int:
        """How many lanes or resources are watched."""
        return len(self._lanes) + len(self._others)

    def add(self, watch: Watch, requests: Iterable[Request[Owner]]) -> None:
        """Count from now on; `requests` are all that are unfinished now."""
        for request in requests:
            if watch.concerns(request):
                _count(watch, request, 1)
        if is_lane(watch.resource):
            self._lanes.setdefault(watch.resource, []).append(watch)
        else:
            self._others.append(watch)

    def remove(self, watch: Watch) -> None:
        """Count no more."""
        if not is_lane(watch.resource):
            self._others.remove(watch)
            return
        watches = self._lanes[watch.resource]
        watches.remove(watch)
        if not watches:
            del self._lanes[watch.resource]

    def entered(self, request: Request[Owner]) -> None:
        """Somebody has come, and holds or waits."""
        for watch in self._of(request):
            _count(watch, request, 1)

    def begun(self, request: Request[Owner]) -> None:
        """A waiter, not yet marked as granted, becomes a holder."""
        for watch in self._of(request):
            _count(watch, request, -1)
            watch.holders += 1
            watch.changed()

    def ended(self, request: Request[Owner]) -> None:
        """A holder or waiter, still marked as such, has gone."""
        for watch in self._of(request):
            _count(watch, request, -1)
            watch.changed()

    def _of(self, request: Request[Owner]) -> Iterator[Watch]:
        for slot in request.slots:
            yield from self._lanes.get(slot, ())
        for watch in self._others:
            if watch.concerns(request):
                yield watch


def meets(request: Request[Any], resource: str) -> bool:
    """Whether a request is in a lane, or claims what overlaps another resource."""
    if is_lane(resource):
        return resource in request.slots
    return any(overlaps(claim.resource, resource) for claim in request.claims)


def _count(watch: Watch, request: Request[Any], step: int) -> None:
    if request.granted:
        watch.holders += step
    else:
        watch.waiters += step
        watch.outside += step * (request.parent is None)
