"""The lane table: who may start now, and who is next when somebody leaves.

A request enters the queue of every node that its claims touch at once, under one ticket, and is
granted when at no node anybody older stands in its way, holder or waiter. So each lane is FIFO,
nobody overtakes an older waiter for something both want, anybody may pass who doesn't meet it, and
nobody can deadlock: the oldest waiter never waits for a waiter.

A request that is *clear* at a node stays clear, because whoever comes later has a higher ticket
(but for waiters of a lane that is made narrower). So a node need not know its members, only how
many are clear in each mode, and the queues of those that are not; and whoever is clear and
conflicts with a waiter came before it. A waiter therefore becomes clear by the counts and the heads
of the other queues alone: grant and release cost a constant for each node of the call, whatever the
queues hold.

Reads canonical claims, feeds the scheduler with requests. Never waits; belongs to one thread.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, Generic

from laneway.claims import Claim
from laneway.errors import LanewayError, UsageError
from laneway.lanes.modes import CONFLICTS, HELD_AGAINST, MODES, UNIT, WAITING, Plan, plan
from laneway.lanes.names import is_lane, levels
from laneway.lanes.requests import Owner, Queue, Request, clear, remove
from laneway.lanes.slots import Slots
from laneway.lanes.statistics import LaneStatus, lane_statuses
from laneway.lanes.waits import Blocker, waits

_PLANS_KEPT = 4096
_BARS = tuple(sum(1 << other for other in CONFLICTS[mode]) for mode in MODES)
"""By mode: the modes that must not pass a waiter for it, as bits."""
_BITS = tuple(tuple(m for m in MODES if bits & 1 << m) for bits in range(WAITING + 1))
"""By a set of modes as bits: the modes."""
_by_ticket = attrgetter("ticket")


class LaneError(LanewayError):
    """A request was given back that is not there to be given back: the engine itself is wrong."""

    def __init__(self, deed: str, request: Request[Any], *, stranger: bool = False) -> None:
        """Say what was tried on which request, and how that one stands."""
        if stranger:
            stand = "belongs to another lane table"
        elif request.granted:
            stand = "holds " + (", ".join(map(str, request.claims)) or "nothing")
        elif request.pending:
            stand = f"waits at {request.pending} of its nodes"
        else:
            stand = "has ended"
        super().__init__(
            f"cannot {deed} request {request.ticket} of {request.owner!r}, which {stand}; "
            "this is a bug in Laneway"
        )


class LaneTable(Generic[Owner]):
    """All lanes of an engine, over all its runs."""

    def __init__(self, limits: Mapping[str, int] | None = None) -> None:
        """Open the lanes.

        Args:
            limits: `max_concurrent` (1 and more) by canonical resource. A lane that is not named
                lets one in; another resource any number of shared holders.

        Raises:
            UsageError: A limit is below 1.
        """
        self._slots = Slots[Owner](
            {_slot(resource): _checked(resource, n) for resource, n in (limits or {}).items()}
        )
        self._live: dict[Request[Owner], None] = {}  # the unfinished ones, oldest first
        self._tickets = 0
        self._tokens = 0
        # A node lasts as long as its last request: a key that is absent means nobody.
        self._words: dict[str, int] = {}
        self._queues: dict[str, dict[int, Queue[Owner]]] = {}
        self._plans: dict[tuple[Claim, ...], Plan] = {}

    def request(self, claims: Iterable[Claim], owner: Owner) -> Request[Owner]:
        """Ask for all of the claims; look at `granted` of what comes back.

        Args:
            claims: Canonical. None at all is granted at once.
            owner: Found again as `request.owner` when a later release grants the request.
        """
        claims = tuple(claims)
        nodes, slots = self._plans.get(claims) or self._plan(claims)
        self._tickets = ticket = self._tickets + 1
        request = Request(owner, claims, nodes, slots, ticket)
        words = self._words
        for level, mode, unit, against in nodes:
            word = words.get(level, 0)
            if word & against:
                self._queue(level, mode, request)
            else:
                words[level] = word + unit
        for slot in slots:
            self._slots.enter(slot, request)
        self._live[request] = None
        if not request.pending:
            self._tokens = request.token = self._tokens + 1
            request.granted = True
        return request

    def release(self, request: Request[Owner]) -> list[Request[Owner]]:
        """Give all claims back; the holder has really stopped.

        Returns:
            The requests that are granted now, oldest first.

        Raises:
            LaneError: The request holds nothing.
        """
        if not request.granted:
            raise LaneError("release", request)
        self._forget("release", request)
        request.granted = False
        ready: list[Request[Owner]] = []
        words = self._words
        for level, _, unit, _ in request.nodes:
            word = words[level] - unit
            if word & WAITING:
                words[level] = word
                self._admit(level, ready)
            elif word:
                words[level] = word
            else:
                del words[level]
        for slot in request.slots:
            self._slots.leave(slot, ready)
        return self._grant(ready) if ready else ready

    def withdraw(self, request: Request[Owner]) -> list[Request[Owner]]:
        """Take a waiter out of every queue at once.

        Returns:
            The requests that nobody but this one held up, oldest first, granted now.

        Raises:
            LaneError: The request does not wait.
        """
        if not request.pending:
            raise LaneError("withdraw", request)
        self._forget("withdraw", request)
        ready: list[Request[Owner]] = []
        for level, mode, unit, _ in request.nodes:
            if not self._unqueue(level, mode, request):
                self._words[level] -= unit
            self._settle(level, ready)
        for slot in request.slots:
            self._slots.withdraw(slot, request, ready)
        request.pending = 0
        return self._grant(ready)

    def shed(self, request: Request[Owner], resource: str) -> list[Request[Owner]]:
        """Give back what a holder claims of one resource, and keep the rest.

        Returns:
            The requests that are granted now, oldest first.

        Raises:
            LaneError: The request does not hold this resource.
        """
        rest = tuple(claim for claim in request.claims if claim.resource != resource)
        if not request.granted or rest == request.claims:
            raise LaneError(f"shed {resource} of", request)
        if request not in self._live:
            raise LaneError(f"shed {resource} of", request, stranger=True)
        old_nodes, old_slots, request.claims = request.nodes, request.slots, rest
        request.nodes, request.slots = self._plans.get(rest) or self._plan(rest)
        kept = {level: unit for level, _, unit, _ in request.nodes}
        ready: list[Request[Owner]] = []
        for level, _, unit, _ in old_nodes:
            self._words[level] += kept.get(level, 0) - unit
            self._settle(level, ready)
        for slot in old_slots:
            if slot not in request.slots:
                self._slots.leave(slot, ready)
        return self._grant(ready)

    def resize(self, resource: str, max_concurrent: int) -> list[Request[Owner]]:
        """Set how many may hold a lane, or this very resource, at once; busy or not.

        Holders in excess stay; nobody enters until enough of them have left. Costs a look at every
        unfinished request.

        Returns:
            The requests that are granted now, oldest first.

        Raises:
            UsageError: The limit is below 1.
        """
        limit, slot = _checked(resource, max_concurrent), _slot(resource)
        if not is_lane(slot) and slot not in self._slots.limits:
            self._cap(slot)
        ready: list[Request[Owner]] = []
        self._slots.resize(slot, limit, reversed(self._live), ready)
        return self._grant(ready)

    def blockers(self, request: Request[Owner]) -> tuple[Blocker[Owner], ...]:
        """Name the oldest that a waiter waits for at each node; none for a holder.

        Costs a look at every unfinished request: to explain many waiters, ask `waits`.
        """
        found = (who for waiter, who in waits(self._live, self._slots.in_line) if waiter is request)
        return next(found, ())

    def waits(self) -> list[tuple[Request[Owner], tuple[Blocker[Owner], ...]]]:
        """Name the blockers of all waiters, oldest waiter first, in one pass."""
        return list(waits(self._live, self._slots.in_line))

    def snapshot(self, name: Callable[[Owner], str] = str) -> tuple[LaneStatus, ...]:
        """Show all lanes that are in use or have a limit, sorted by resource.

        Args:
            name: What an owner is called in the picture.
        """
        return lane_statuses(self._live, self._slots.limits, name)

    def __len__(self) -> int:
        """Count the nodes in use: 0 when nobody holds or waits."""
        return len(self._words) + len(self._slots.used)

    def _plan(self, claims: tuple[Claim, ...]) -> Plan:
        if len(self._plans) >= _PLANS_KEPT:
            self._plans.clear()
        found = self._plans[claims] = plan(claims, self._slots.limits)
        return found

    def _forget(self, deed: str, request: Request[Owner]) -> None:
        try:
            del self._live[request]
        except KeyError:
            raise LaneError(deed, request, stranger=True) from None

    def _grant(self, ready: list[Request[Owner]]) -> list[Request[Owner]]:
        if len(ready) > 1:
            ready.sort(key=_by_ticket)
        for request in ready:
            self._tokens = request.token = self._tokens + 1
            request.granted = True
        return ready

    def _queue(self, level: str, mode: int, request: Request[Owner]) -> None:
        queues = self._queues.get(level)
        if queues is None:
            queues = self._queues[level] = {}
        queue = queues.get(mode)
        if queue is None:
            queue = queues[mode] = OrderedDict()
        queue[request] = None
        self._words[level] |= 1 << mode
        request.pending += 1

    def _unqueue(self, level: str, mode: int, request: Request[Owner]) -> bool:
        queues = self._queues.get(level, {})
        if request not in queues.get(mode, ()):
            return False
        if remove(queues, mode, request):
            self._words[level] ^= 1 << mode
            if not queues:
                del self._queues[level]
        return True

    def _settle(self, level: str, ready: list[Request[Owner]]) -> None:
        word = self._words[level]
        if word & WAITING:
            self._admit(level, ready)
        elif not word:
            del self._words[level]

    def _admit(self, level: str, ready: list[Request[Owner]]) -> None:
        """Let all in that have become clear at this node, the oldest first.

        The heads of the queues are taken in the order of their tickets. One that cannot go, be it
        for a holder or for an older head that cannot go either, bars all younger that conflict.
        """
        word, queues = self._words[level], self._queues[level]
        barred = stopped = 0
        while waiting := word & WAITING & ~stopped:
            mode = waiting.bit_length() - 1
            if waiting != 1 << mode:
                mode = min((next(iter(queues[m])).ticket, m) for m in _BITS[waiting])[1]
            if word & HELD_AGAINST[mode] or barred & 1 << mode:
                barred |= _BARS[mode]
                stopped |= 1 << mode
                continue
            oldest = next(iter(queues[mode]))
            if remove(queues, mode, oldest):
                word ^= 1 << mode
            word += UNIT[mode]
            clear(oldest, ready)
        self._words[level] = word
        if not queues:
            del self._queues[level]

    def _cap(self, slot: str) -> None:
        """Let all who claim the resource in, as if it had always been capped with room for them."""
        self._plans.clear()
        for request in self._live:
            if any(_slot(claim.resource) == slot for claim in request.claims):
                request.slots += (slot,)
                self._slots.used[slot] = self._slots.used.get(slot, 0) + 1


def _slot(resource: str) -> str:
    return levels(resource)[-1]


def _checked(resource: str, limit: int) -> int:
    if not isinstance(limit, int):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"max_concurrent of {resource} is {limit!r}; give a whole number")
    if limit < 1:
        raise UsageError(f"max_concurrent of {resource} is {limit}; a lane lets at least 1 in")
    return limit
