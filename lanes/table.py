"""The lane table: who may start now, and who is next when somebody leaves.

A request enters the queue of every node that its claims touch at once, in one order for all of
them, and is granted when at no node anybody who comes before it stands in its way, holder or
waiter. So each lane is FIFO, nobody overtakes an older waiter for something both want, anybody may
pass who doesn't meet it, and nobody can deadlock: the first waiter never waits for a waiter. Grant
and release cost a constant for each node of the call, whatever the queues hold.

Two things change the order. A priority lets a request come as if it had been asked for earlier, so
that whoever waits is overtaken for a bounded time only. And a nested request, part of a holder that
waits for it, counts nothing of what its ancestors hold (Moss: Nested Transactions, 1981): it goes
before those who wait for them, and is refused where it could only wait for itself.
A barrier goes before all who wait.

Reads canonical claims, feeds the scheduler with requests. Never waits; belongs to one thread.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any, Generic, cast

from typing_extensions import TypeIs

from laneway.claims import Claim
from laneway.errors import LanewayError, UsageError
from laneway.lanes.deadlocks import Census, reduced, ring
from laneway.lanes.lane import Lane, checked_limit
from laneway.lanes.loans import is_rate, rate_of
from laneway.lanes.modes import CONFLICTS, IS, WAITING, Plan, S, plan
from laneway.lanes.names import is_lane, levels, overlaps
from laneway.lanes.nodes import Nodes
from laneway.lanes.pools import Pool
from laneway.lanes.requests import ALONE, PLACES, Order, Owner, Request, by_order
from laneway.lanes.slots import Slots
from laneway.lanes.statistics import LaneStatus, lane_statuses
from laneway.lanes.waits import Blocker, waits
from laneway.lanes.watching import Watch, Watches, meets

_PLANS_KEPT = 4096
AGEING_SECONDS = 30.0
"""How much earlier a request comes for each step of priority."""
PRIORITIES = range(-1000, 1001)
PRIORITY_HINT = f"give a whole number from {PRIORITIES[0]} to {PRIORITIES[-1]}"


class LaneError(LanewayError):
    """A request was given back that is not there to be given back: the engine itself is wrong."""

    def __init__(self, deed: str, request: Request[Any], *, stranger: bool = False) -> None:
        """Say what was tried on which request, and how that one stands."""
        if stranger:
            stand = "belongs to another lane table"
        elif request.granted:
            stand = "holds " + (", ".join(map(str, request.claims)) or "nothing")
            if request.children:
                stand += f" for {request.children} nested requests, too"
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

    def __init__(
        self,
        lanes: Mapping[str, int | Lane] | None = None,
        *,
        ageing_seconds: float = AGEING_SECONDS,
    ) -> None:
        """Open the lanes.

        Args:
            lanes: How they are configured, by canonical resource, checked as `lanes_of` does; an
                int is `max_concurrent` (1 and more). A lane that is not named lets one in; another
                resource any number of shared holders.
            ageing_seconds: How long a request has to wait to outweigh one step of priority.

        Raises:
            UsageError: A limit is below 1.
        """
        self._configured = {
            _slot(name): lane if isinstance(lane, Lane) else Lane(max_concurrent=lane)
            for name, lane in (lanes or {}).items()
        }
        self._slots = Slots[Owner](_limits(self._configured), _pools(self._configured))
        self._nodes = Nodes[Owner]()
        self._words = self._nodes.words
        self._live: dict[Request[Owner], None] = {}  # the unfinished ones
        self._ageing_seconds = ageing_seconds
        self._tickets = 0
        self._tokens = 0
        self._latest = -inf
        """No unfinished request comes later, in seconds; -inf when there is none."""
        self._nested_waiters = 0
        self._census: Census[Owner] | None = None
        """Kept from the first look for a ring until the lanes are empty."""
        self._plans: dict[tuple[Claim, ...], Plan] = {}
        self._groups = [(name, lane.over) for name, lane in self._configured.items() if lane.over]
        self._rated = {name for name, lane in self._configured.items() if lane.rate is not None}
        self._watches = Watches[Owner]()
        self._watched = False
        self._barriers: dict[Request[Owner], Callable[[], None]] = {}
        self._bounds: dict[str, tuple[int, Watch]] = {}
        """How many may wait in a lane that refuses more, and who does."""
        for name, lane in self._configured.items():
            if lane.max_waiting is not None and lane.when_full == "refuse":
                self._bounds[name] = lane.max_waiting, self.watch(name, _nobody)

    def request(
        self,
        claims: Iterable[Claim],
        owner: Owner,
        *,
        now: float = 0.0,
        priority: int = 0,
        parent: Request[Owner] | None = None,
        refusable: bool = True,
    ) -> Request[Owner]:
        """Ask for all of the claims; look at `granted`, `refused` and `full` of what comes back.

        Args:
            claims: Canonical. None at all is granted at once.
            owner: Found again as `request.owner` when a later release grants the request.
            now: Monotonic seconds, never less than in an earlier call. Only priorities need it.
            priority: Each step is worth as much as having come `ageing_seconds` earlier.
            parent: The holder that this is part of, and that will not release before it. What it
                and its own ancestors hold does not count. A cycle of waits that the request would
                close refuses it; that costs a look at all it would wait for, directly or through
                others, and only where somebody waits for an ancestor.
            refusable: Whether it is sent away where it would have to wait in a lane in which as
                many wait as may. A nested one never is, nor does it count.
        """
        claims = tuple(claims)
        nodes, slots = self._plans.get(claims) or self._plan(claims)
        self._tickets = ticket = self._tickets + 1
        if priority:
            now -= priority * self._ageing_seconds
        request = Request(
            owner, claims, nodes, slots, ticket, (now, ticket, 0.0), priority * PLACES
        )
        if parent is not None:
            return self._nest(request, parent)
        if now < self._latest:
            return self._overtake(request, refusable=refusable)
        self._latest = now
        words = self._words
        for level, mode, unit, against in nodes:
            word = words.get(level, 0)
            if word & against:
                self._nodes.queue(level, mode, request)
            else:
                words[level] = word + unit
        for slot in slots:
            self._slots.enter(slot, request)
        if self._bounds and refusable and request.pending and self._is_turned_away(request):
            return request
        return self._entered(request)

    def release(self, request: Request[Owner]) -> list[Request[Owner]]:
        """Give all claims back; the holder has really stopped.

        Returns:
            The requests that are granted now, in their order.

        Raises:
            LaneError: The request holds nothing, or nested ones have not been given back.
        """
        if not request.granted or request.children:
            raise LaneError("release", request)
        self._forget("release", request)
        request.granted = False
        ready: list[Request[Owner]] = []
        words = self._words
        for level, _, unit, _ in request.nodes:
            word = words[level] - unit
            if word & WAITING:
                words[level] = word
                self._nodes.admit(level, ready)
            elif word:
                words[level] = word
            else:
                del words[level]
        for slot in request.slots:
            self._slots.leave(slot, request, ready)
        return self._grant(ready) if ready else ready

    def withdraw(self, request: Request[Owner]) -> list[Request[Owner]]:
        """Take a waiter out of every queue at once.

        Returns:
            The requests that nobody but this one held up, in their order, granted now.

        Raises:
            LaneError: The request does not wait.
        """
        if not request.pending:
            raise LaneError("withdraw", request)
        self._forget("withdraw", request)
        self._nested_waiters -= request.parent is not None
        ready: list[Request[Owner]] = []
        self._nodes.withdraw(request, ready)
        self._slots.withdraw(request, ready)
        request.pending = 0
        return self._grant(ready)

    def resize(self, resource: str, max_concurrent: int) -> list[Request[Owner]]:
        """Set how many may hold a lane, or this very resource, at once; busy or not.

        Holders in excess stay; nobody enters until enough of them have left. A waiter that has
        its slot already hands it back.

        Returns:
            The requests that are granted now, in their order; and nested ones that are refused,
            since a lane so narrow lets them wait for themselves.

        Raises:
            UsageError: The limit is below 1, or leaves nothing beside what is reserved.
        """
        limit, slot = checked_limit(resource, max_concurrent), _slot(resource)
        pool = self._slots.pools.get(slot)
        if pool is not None and limit <= pool.kept:
            raise UsageError(
                f"max_concurrent of {resource} can't be {limit}, since {pool.kept} are reserved in "
                f"it; give {pool.kept + 1} or more"
            )
        if not is_lane(slot) and slot not in self._slots.limits:
            self._cap(slot)
        self._index()
        ready: list[Request[Owner]] = []
        self._slots.resize(slot, limit, ready)
        return [*self._grant(ready), *self._break_rings()]

    def pause(self, lane: str) -> None:
        """Let nobody take a slot of a lane; who has one goes on, and lends it as before."""
        self._index()
        self._slots.shut_lane(lane)

    def resume(self, lane: str) -> list[Request[Owner]]:
        """Let those in again who may be.

        Returns:
            The requests that are granted now, in their order.
        """
        ready: list[Request[Owner]] = []
        self._slots.open_lane(lane, ready)
        return self._grant(ready)

    def barrier(self, claims: Iterable[Claim], entered: Callable[[], None]) -> Request[Owner]:
        """Keep everybody else out: granted when the holders have left, ahead of all who wait.

        Only nested requests go before it, whose ancestors it waits for. It is released, or
        withdrawn, as any other; nobody owns it.

        Args:
            claims: What is kept free, none of them a lane.
            entered: Called when a release grants it; it must not ask the table.
        """
        claims = tuple(claims)
        nodes, slots = plan(claims)
        self._tickets = ticket = self._tickets + 1
        kind = ALONE + ticket * PLACES
        nobody = cast("Owner", None)
        request = Request(nobody, claims, nodes, slots, ticket, (-inf, ticket, 0.0), kind)
        request.is_barrier = True
        self._barriers[request] = entered
        self._index()
        self._enter_ahead(request)
        while self._nested_waiters and (stuck := self._rings(request)):
            last = max(one.order for one in stuck if one.parent and not one.granted)
            self._move(request, (*last[:-1], 1.0, ticket, 0.0))
        return self._entered(request)

    def start(self, request: Request[Owner]) -> list[str]:
        """Note that the work of a holder has begun.

        Returns:
            Its lanes that have a rate: a place in each is given back by `lapse`, when the time of
            the rate is over, and only then.
        """
        request.started = True
        rates = [slot for slot in request.slots if is_rate(slot)]
        for slot in rates:
            self._slots.start(slot)
        return [slot for slot in request.slots if rate_of(slot) in rates]

    def lapse(self, lane: str, places: int = 1) -> list[Request[Owner]]:
        """Give places in the rate of a lane back.

        Returns:
            The requests that are granted now, in their order.
        """
        ready: list[Request[Owner]] = []
        self._slots.lapse(rate_of(lane), places, ready)
        return self._grant(ready)

    def watch(self, resource: str, changed: Callable[[], None]) -> Watch:
        """Count the holders and waiters of a lane, or of all that overlaps another resource.

        Args:
            resource: Canonical.
            changed: Told whenever one has gone or a waiter holds; it must not ask the table.
        """
        found = Watch(resource, changed)
        self._watches.add(found, self._live)
        self._watched = True
        return found

    def unwatch(self, watch: Watch) -> None:
        """Count no more."""
        self._watches.remove(watch)
        self._watched = len(self._watches) > 0

    def crowd(self, lane: str) -> tuple[int, int, int]:
        """Count who is in a lane that refuses, and who waits, and say how many may wait."""
        most, watch = self._bounds[lane]
        return watch.holders, watch.waiters, most

    def concerned(self, resource: str) -> list[Request[Owner]]:
        """All unfinished requests in a lane, or for what overlaps another resource, in order."""
        found = [one for one in self._live if not one.is_barrier and meets(one, resource)]
        return sorted(found, key=by_order)

    def parts(self, request: Request[Owner]) -> list[Request[Owner]]:
        """All unfinished requests that are part of a holder, the innermost first."""
        found = [one for one in self._live if request in one.ancestors()]
        return sorted(found, key=lambda one: -sum(1 for _ in one.ancestors()))

    def slots_of(self, claims: Iterable[Claim]) -> tuple[str, ...]:
        """Name the lanes that a request for these claims would be in, groups and rates included."""
        claims = tuple(claims)
        return (self._plans.get(claims) or self._plan(claims)).slots

    def held_up(self, request: Request[Owner]) -> tuple[list[str], list[str]]:
        """Name the paused lanes that a waiter is kept out of, and those whose rate it waits for."""
        waits_in = [slot for slot in request.slots if self._slots.in_line(slot, request)]
        paused = [slot for slot in waits_in if slot in self._slots.shut]
        return paused, [slot for slot in request.slots if rate_of(slot) in waits_in]

    def is_wide(self, claim: Claim) -> bool:
        """Whether this claims a lane that lets several in."""
        return is_lane(claim.resource) and self._slots.limits.get(claim.resource, 1) > 1

    def lets_several_in(self, request: Request[Owner]) -> bool:
        """Whether all that a request wants can be held by several at once."""
        return all(self._slots.limits.get(slot, 1) > 1 for slot in request.slots) and all(
            mode in (IS, S) for _, mode, _, _ in request.nodes
        )

    def blockers(self, request: Request[Owner]) -> tuple[Blocker[Owner], ...]:
        """Name the oldest that a waiter waits for at each node; none for a holder.

        Costs a look at every unfinished request: to explain many waiters, ask `waits`.
        """
        found = (who for waiter, who in waits(self._live, self._in_turn) if waiter is request)
        return next(found, ())

    def waits(self) -> list[tuple[Request[Owner], tuple[Blocker[Owner], ...]]]:
        """Name the blockers of all waiters, in their order, in one pass."""
        return list(waits(self._live, self._in_turn))

    def snapshot(self, name: Callable[[Owner], str] = str) -> tuple[LaneStatus, ...]:
        """Show all lanes that are in use or have a limit, sorted by resource.

        Args:
            name: What an owner is called in the picture.
        """
        requests = sorted(self._live, key=by_order)
        limits = {slot: n for slot, n in self._slots.limits.items() if not is_rate(slot)}
        return lane_statuses(requests, limits, name, self._configured, self._slots.shut)

    def __len__(self) -> int:
        """Count the nodes in use: 0 when nobody holds or waits."""
        return len(self._nodes.words) + len(self._slots)

    # Coming in ahead of others

    def _overtake(self, request: Request[Owner], *, refusable: bool) -> Request[Owner]:
        """Let a newcomer in before those of a lower priority who wait."""
        self._index()
        self._enter_ahead(request)
        if self._nested_waiters and self._rings(request):
            # Whom it passed may belong to somebody that it waits for.
            self._go_to_end(request)
        if self._bounds and refusable and request.pending and self._is_turned_away(request):
            return request
        return self._entered(request)

    def _is_turned_away(self, request: Request[Owner]) -> bool:
        """Send a newcomer away that would be one waiter too many."""
        for slot in request.slots:
            if slot in self._bounds:
                most, watch = self._bounds[slot]
                if watch.outside >= most:
                    request.full = slot
                    self._take_out(request)
                    return True
        return False

    def _nest(self, request: Request[Owner], parent: Request[Owner]) -> Request[Owner]:
        """Let a part of a holder in."""
        if not parent.granted or parent not in self._live:
            raise LaneError("ask for a part of", parent, stranger=parent.granted)
        request.parent = parent
        request.kind = ALONE + request.ticket * PLACES
        request.family = dict(parent.family or ())
        for level, _, unit, _ in parent.nodes:
            request.family[level] = request.family.get(level, 0) + unit
        if (behind := self._nodes.first_behind(request)) is not None:
            request.order = _just_before(behind, request)
        if request.order[0] < self._latest or behind is not None:
            self._index()
        risky = request.order[0] < self._latest and self._nested_waiters > 0
        risky = risky or any(
            self._nodes.awaited(above) or self._slots.awaited(above)
            for above in request.ancestors()
        )
        self._enter_ahead(request)
        if request.pending and risky:
            self._keep_out_of_rings(request)
        if request.refused:
            return request
        self._latest = max(self._latest, request.order[0])
        parent.children += 1
        self._nested_waiters += request.pending > 0
        return self._entered(request)

    def _keep_out_of_rings(self, request: Request[Owner]) -> None:
        """Put a nested request where it does not wait for itself, or refuse it.

        It passes nobody else at first. Then it passes the waiters in its way that cannot end
        before it, since they wait for an ancestor: it stands just before the first of them. No
        other place would do where that one doesn't.
        """
        if not self._rings(request):
            return
        self._go_to_end(request)
        while stuck := self._rings(request):
            behind = [
                one.order
                for one in stuck
                if not one.granted and one is not request and self._in_way(request, one)
            ]
            if not behind:
                request.cycle = ring(request, stuck, self._in_way)
                self._take_out(request)
                return
            self._move(request, _just_before(min(behind), request))

    def _break_rings(self) -> list[Request[Owner]]:
        """Refuse the youngest of those who wait for themselves, until nobody does."""
        changed: list[Request[Owner]] = []
        while self._nested_waiters and (
            stuck := reduced(self._live, self._slots.in_line, self._slots.limits, self._slots.pools)
        ):
            last = max((one for one in stuck if one.parent and not one.granted), key=by_order)
            last.cycle = ring(last, stuck, self._in_way)
            changed += [last, *self.withdraw(last)]
        return changed

    def _rings(self, newcomer: Request[Owner]) -> set[Request[Owner]]:
        """All that can never end any more, now that this one waits."""
        if not newcomer.pending:
            return set()
        if self._census is None:
            slots = self._slots
            self._census = Census(self._live, slots.in_line, slots.limits, slots.pools)
        return self._census.stuck_with(newcomer)

    def _go_to_end(self, newcomer: Request[Owner]) -> None:
        """Let it pass nobody."""
        if newcomer.order[0] < self._latest:
            self._move(newcomer, (self._latest, newcomer.ticket, 0.0))

    def _move(self, newcomer: Request[Owner], order: Order) -> None:
        self._index()
        self._take_out(newcomer)
        newcomer.order = order
        newcomer.kind = ALONE + newcomer.ticket * PLACES
        self._enter_ahead(newcomer)

    def _in_way(self, waiter: Request[Owner], other: Request[Owner]) -> bool:
        """Whether a request stands directly in the way of a waiter."""
        if not other.granted and other.order >= waiter.order:
            return False
        if other in waiter.ancestors():
            return False
        theirs = {level: mode for level, mode, _, _ in other.nodes}
        if any(theirs.get(level) in CONFLICTS[mode] for level, mode, _, _ in waiter.nodes):
            return True
        shared = set(waiter.slots).intersection(other.slots)
        return any(self._slots.in_line(slot, waiter) for slot in shared)

    def _enter_ahead(self, request: Request[Owner]) -> None:
        self._nodes.enter_ahead(request)
        for slot in request.slots:
            self._slots.enter_ahead(slot, request)

    def _take_out(self, request: Request[Owner]) -> None:
        """Undo what a newcomer has changed: nobody is granted anything by that."""
        ready: list[Request[Owner]] = []
        self._nodes.withdraw(request, ready)
        self._slots.withdraw(request, ready)
        request.pending = 0
        assert not ready, "whoever was ready had been granted before it came"

    # Within

    def _in_turn(self, slot: str, request: Request[Owner]) -> bool:
        """Whether it waits for those before it to leave a lane, and not for time or a resume."""
        waits_in = self._slots.in_line(slot, request)
        return waits_in and slot not in self._slots.shut and not is_rate(slot)

    def _entered(self, request: Request[Owner]) -> Request[Owner]:
        self._live[request] = None
        if self._census is not None:
            self._census.add(request)
        if request.pending:
            if self._nodes.indexed:
                self._nodes.keep(request)
                self._slots.keep(request)
        else:
            self._tokens = request.token = self._tokens + 1
            request.granted = True
        if self._watched:
            self._watches.entered(request)
        return request

    def _plan(self, claims: tuple[Claim, ...]) -> Plan:
        if len(self._plans) >= _PLANS_KEPT:
            self._plans.clear()
        nodes, slots = plan(claims, self._slots.limits)
        if self._groups or self._rated:
            slots = self._with_groups(claims, slots)
        found = self._plans[claims] = Plan(nodes, slots)
        return found

    def _with_groups(self, claims: tuple[Claim, ...], slots: tuple[str, ...]) -> tuple[str, ...]:
        """Add the lanes that are over what is claimed, and the rates of all."""
        groups = [
            name
            for name, over in self._groups
            if any(overlaps(claim.resource, wide) for claim in claims for wide in over)
        ]
        found = tuple(dict.fromkeys((*slots, *groups)))
        return (*found, *(rate_of(slot) for slot in found if slot in self._rated))

    def _forget(self, deed: str, request: Request[Owner]) -> None:
        try:
            del self._live[request]
        except KeyError:
            raise LaneError(deed, request, stranger=True) from None
        if self._watched:
            self._watches.ended(request)
        if request.is_barrier:
            del self._barriers[request]
        if request.parent is not None:
            request.parent.children -= 1
        if self._census is not None:
            self._census.remove(request)
        if not self._live:
            self._latest = -inf
            self._census = None
            self._nodes.indexed = self._slots.indexed = False

    def _grant(self, ready: list[Request[Owner]]) -> list[Request[Owner]]:
        if len(ready) > 1:
            ready.sort(key=by_order)
        for request in ready:
            if self._watched:
                self._watches.begun(request)
            if self._barriers and request.is_barrier:
                self._barriers[request]()
            self._tokens = request.token = self._tokens + 1
            request.granted = True
            self._nested_waiters -= request.parent is not None
            if self._nodes.indexed:
                self._nodes.begin(request)
                self._slots.begin(request)
        return [one for one in ready if not one.is_barrier] if self._barriers else ready

    def _index(self) -> None:
        """Note where every waiter is clear: somebody is about to go ahead of some.

        Kept up from now on until the lanes are empty, so that it costs nothing where nobody does.
        """
        if not self._nodes.indexed:
            self._nodes.indexed = self._slots.indexed = True
            for request in self._live:
                if request.pending:
                    self._nodes.keep(request)
                    self._slots.keep(request)

    def _cap(self, slot: str) -> None:
        """Let all who claim the resource in, as if it had always been capped with room for them."""
        self._plans.clear()
        self._census = None
        inside = [
            request
            for request in self._live
            if any(_slot(claim.resource) == slot for claim in request.claims)
        ]
        for request in inside:
            request.slots += (slot,)
        self._slots.fill(slot, sorted(inside, key=lambda one: (not one.granted, one.order)))


def _just_before(order: Order, newcomer: Request[Any]) -> Order:
    return *order[:-1], -1.0, newcomer.ticket, 0.0


def is_priority(priority: object) -> TypeIs[int]:
    """Whether this is a priority that the table takes."""
    return type(priority) is int and priority in PRIORITIES


def bounded(priority: int) -> int:
    """The nearest priority that the table takes."""
    return max(PRIORITIES[0], min(priority, PRIORITIES[-1]))


def _slot(resource: str) -> str:
    return levels(resource)[-1]


def _limits(lanes: Mapping[str, Lane]) -> dict[str, int]:
    """How many may be in each lane, and how many starts may be in each rate."""
    limits: dict[str, int] = {}
    for name, lane in lanes.items():
        if lane.max_concurrent is None:
            limits[name] = sys.maxsize
        else:
            limits[name] = checked_limit(name, lane.max_concurrent)
        if lane.rate is not None:
            limits[rate_of(name)] = lane.rate.starts
    return limits


def _pools(lanes: Mapping[str, Lane]) -> dict[str, Pool]:
    return {
        name: Pool(lane.max_concurrent, lane.reserved)
        for name, lane in lanes.items()
        if lane.reserved and lane.max_concurrent is not None
    }


def _nobody() -> None:
    """Nobody waits for room in a lane that refuses."""
