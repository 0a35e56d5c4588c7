"""Lanes that let a number of requests in, whoever they are: a counter and a queue for each.

The half of the lane table for `lane:` claims and for resources whose holders are capped. Of the
requests that are unfinished, the first `max_concurrent` have a slot, be it that they hold their
claims or that they wait elsewhere; so a slot is never given past an older waiter.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Generic

from laneway.lanes.requests import Owner, Queue, Request, clear, remove


class Slots(Generic[Owner]):
    """The counters and the queues, by lane. An absent key means nobody."""

    def __init__(self, limits: dict[str, int]) -> None:
        """Start with no one in; `limits` gives `max_concurrent` where it isn't 1."""
        self.limits = limits
        self.used: dict[str, int] = {}
        self._lines: dict[str, Queue[Owner]] = {}

    def enter(self, slot: str, request: Request[Owner]) -> None:
        """Give the newcomer a slot, or a place at the end of the line."""
        used = self.used.get(slot, 0)
        if used < self.limits.get(slot, 1):
            self.used[slot] = used + 1
        else:
            self._lines.setdefault(slot, OrderedDict())[request] = None
            request.pending += 1

    def leave(self, slot: str, ready: list[Request[Owner]]) -> None:
        """Free one slot, for the oldest in line if there is one."""
        used = self.used[slot] - 1
        if used:
            self.used[slot] = used
        else:
            del self.used[slot]
        if slot in self._lines:
            self._admit(slot, ready)

    def withdraw(self, slot: str, request: Request[Owner], ready: list[Request[Owner]]) -> None:
        """Take a request out that may have a slot, or wait for one."""
        if self.in_line(slot, request):
            remove(self._lines, slot, request)
        else:
            self.leave(slot, ready)

    def resize(
        self,
        slot: str,
        limit: int,
        youngest_first: Iterable[Request[Owner]],
        ready: list[Request[Owner]],
    ) -> None:
        """Change `max_concurrent`: holders in excess stay, waiters hand back slots in excess."""
        self.limits[slot] = limit
        for request in youngest_first:
            if self.used.get(slot, 0) <= limit:
                break
            if not request.granted and slot in request.slots and not self.in_line(slot, request):
                line = self._lines.setdefault(slot, OrderedDict())
                line[request] = None
                line.move_to_end(request, last=False)
                request.pending += 1
                self.used[slot] -= 1
        self._admit(slot, ready)

    def in_line(self, slot: str, request: Request[Owner]) -> bool:
        """Whether the request waits for a slot of this lane."""
        return request in self._lines.get(slot, ())

    def _admit(self, slot: str, ready: list[Request[Owner]]) -> None:
        used = self.used.get(slot, 0)
        while used < self.limits.get(slot, 1) and (line := self._lines.get(slot)):
            request = next(iter(line))
            remove(self._lines, slot, request)
            self.used[slot] = used = used + 1
            clear(request, ready)
