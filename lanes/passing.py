"""Coming in ahead of others: who may pass whom, and where nobody comes to wait for itself.

Whoever has a priority, is part of a holder, or is a barrier comes in somewhere before the end. All
of that must leave nobody who could never go on: a ring of waits is looked for where one could
close. Serves the lane table, whose nodes, lanes and unfinished requests it works on.
"""

from math import inf
from typing import Any, Generic

from laneway.lanes.deadlocks import Census, reduced, ring
from laneway.lanes.modes import CONFLICTS
from laneway.lanes.nodes import Nodes
from laneway.lanes.requests import ALONE, PLACES, Order, Owner, Request
from laneway.lanes.slots import Slots


class Passing(Generic[Owner]):
    """The order in which unfinished requests stand."""

    def __init__(
        self, nodes: Nodes[Owner], slots: Slots[Owner], live: dict[Request[Owner], None]
    ) -> None:
        """Work on the parts of a lane table."""
        self.nodes = nodes
        self.slots = slots
        self.live = live
        self.latest = -inf
        """No unfinished request comes later, in seconds; -inf when there is none."""
        self.census: Census[Owner] | None = None
        """Kept from the first look for a ring until the lanes are empty."""

    def keep_out_of_rings(self, request: Request[Owner]) -> None:
        """Put a nested request where it does not wait for itself, or refuse it.

        It passes nobody else at first. Then it passes the waiters in its way that cannot end
        before it, since they wait for an ancestor: it stands just before the first of them. No
        other place would do where that one doesn't.
        """
        if not self.rings(request):
            return
        self.go_to_end(request)
        while stuck := self.rings(request):
            behind = [
                one.order
                for one in stuck
                if not one.granted and one is not request and self.in_way(request, one)
            ]
            if not behind:
                request.cycle = ring(request, stuck, self.in_way)
                self.take_out(request)
                return
            self.move(request, just_before(min(behind), request))

    def rings(self, newcomer: Request[Owner]) -> set[Request[Owner]]:
        """All that can never end any more, now that this one waits."""
        if not newcomer.pending:
            return set()
        if self.census is None:
            slots = self.slots
            self.census = Census(self.live, slots.in_line, slots.limits, slots.pools)
        return self.census.stuck_with(newcomer)

    def stuck(self) -> set[Request[Owner]]:
        """All that can never end, of all."""
        slots = self.slots
        return reduced(self.live, slots.in_line, slots.limits, slots.pools)

    def go_to_end(self, newcomer: Request[Owner]) -> None:
        """Let it pass nobody."""
        if newcomer.order[0] < self.latest:
            self.move(newcomer, (self.latest, newcomer.ticket, 0.0))

    def move(self, newcomer: Request[Owner], order: Order) -> None:
        """Give it another place, of its own."""
        self.index()
        self.take_out(newcomer)
        newcomer.order = order
        newcomer.kind = ALONE + newcomer.ticket * PLACES
        self.enter_ahead(newcomer)

    def in_way(self, waiter: Request[Owner], other: Request[Owner]) -> bool:
        """Whether a request stands directly in the way of a waiter."""
        if not other.granted and other.order >= waiter.order:
            return False
        if other in waiter.ancestors():
            return False
        theirs = {level: mode for level, mode, _, _ in other.nodes}
        if any(theirs.get(level) in CONFLICTS[mode] for level, mode, _, _ in waiter.nodes):
            return True
        shared = set(waiter.slots).intersection(other.slots)
        return any(self.slots.in_line(slot, waiter) for slot in shared)

    def enter_ahead(self, request: Request[Owner]) -> None:
        """Let it in where its order says, whoever is there."""
        self.nodes.enter_ahead(request)
        for slot in request.slots:
            self.slots.enter_ahead(slot, request)

    def take_out(self, request: Request[Owner]) -> None:
        """Undo what a newcomer has changed: nobody is granted anything by that."""
        ready: list[Request[Owner]] = []
        self.nodes.withdraw(request, ready)
        self.slots.withdraw(request, ready)
        request.pending = 0
        assert not ready, "whoever was ready had been granted before it came"

    def index(self) -> None:
        """Note where every waiter is clear: somebody is about to go ahead of some.

        Kept up from now on until the lanes are empty, so that it costs nothing where nobody does.
        """
        if not self.nodes.indexed:
            self.nodes.indexed = self.slots.indexed = True
            for request in self.live:
                if request.pending:
                    self.nodes.keep(request)
                    self.slots.keep(request)


def just_before(order: Order, newcomer: Request[Any]) -> Order:
    """The place directly before another, behind whoever took one there earlier."""
    return *order[:-1], -1.0, newcomer.ticket, 0.0
