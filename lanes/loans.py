"""Slots that are lent: a nested request uses the slot of its nearest ancestor in the lane.

The ancestor waits for it meanwhile, so the lane holds no more bodies at work than it has slots. One
request at a time has the loan: who holds its claims keeps it, else it belongs to the oldest of
those who would use it, whether they have a slot of their own by now or stand in line. Serves the
lanes with the lender of each request and the next of its users.
"""

from typing import Generic

from laneway.lanes.requests import Owner, Request, by_order


class Loans(Generic[Owner]):
    """The users of lent slots and those who come after them, by lane and lender."""

    def __init__(self) -> None:
        """Start with nothing lent."""
        self._users: dict[tuple[str, Request[Owner]], Request[Owner]] = {}
        self._others: dict[tuple[str, Request[Owner]], dict[Request[Owner], None]] = {}
        """Nested requests of that lender in that lane that do without the loan."""

    def ask(self, slot: str, request: Request[Owner]) -> Request[Owner] | None:
        """Lend a newcomer the slot of its nearest ancestor in the lane, if that can be.

        Returns:
            Who now has to do without: a younger one that waits and had the loan, the newcomer
            itself, or nobody.
        """
        lender = lender_of(slot, request)
        if lender is None:
            return request
        user = self._users.get((slot, lender))
        if user is not None and (user.granted or user.order < request.order):
            self._others.setdefault((slot, lender), {})[request] = None
            return request
        self._lend(slot, lender, request)
        if user is not None:
            user.borrowed -= {slot}
            self._others.setdefault((slot, lender), {})[user] = None
        return user

    def end(self, slot: str, request: Request[Owner]) -> tuple[bool, Request[Owner] | None]:
        """Note that a request leaves the lane, or its line.

        Returns:
            Whether it had the loan, and the waiter that has it from now on.
        """
        lender = lender_of(slot, request)
        if lender is None:
            return False, None
        if slot not in request.borrowed:
            self._without(slot, lender, request)
            return False, None
        request.borrowed -= {slot}
        del self._users[slot, lender]
        others = self._others.get((slot, lender), ())
        heir = min((one for one in others if not one.granted), key=by_order, default=None)
        if heir is not None:
            self._without(slot, lender, heir)
            self._lend(slot, lender, heir)
        return True, heir

    def __len__(self) -> int:
        """Count the lent slots, and the lenders that more requests would borrow from."""
        return len(self._users) + len(self._others)

    def _lend(self, slot: str, lender: Request[Owner], request: Request[Owner]) -> None:
        self._users[slot, lender] = request
        request.borrowed |= {slot}

    def _without(self, slot: str, lender: Request[Owner], request: Request[Owner]) -> None:
        others = self._others[slot, lender]
        del others[request]
        if not others:
            del self._others[slot, lender]


def lender_of(slot: str, request: Request[Owner]) -> Request[Owner] | None:
    """The nearest ancestor that is in the lane; nobody lends a start of a rate."""
    if is_rate(slot):
        return None
    return next((above for above in request.ancestors() if slot in above.slots), None)


def rate_of(lane: str) -> str:
    """The lane of the starts in a lane that has a rate."""
    return _RATE + lane


def is_rate(slot: str) -> bool:
    """Whether the places of a lane are starts, which come back by time."""
    return slot.startswith(_RATE)


_RATE = "rate of "
"""Begins no resource."""
