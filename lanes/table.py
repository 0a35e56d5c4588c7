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

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Generic, cast

from laneway.claims import Claim
from laneway.errors import UsageError
from laneway.lanes.deadlocks import ring
from laneway.lanes.lane import Lane, checked_limit
from laneway.lanes.loans import is_rate, rate_of
from laneway.lanes.modes import IS, WAITING, S, plan
from laneway.lanes.names import is_lane, levels
from laneway.lanes.nodes import Nodes
from laneway.lanes.passing import Passing, just_before
from laneway.lanes.plans import Plans, limits_of, pools_of
from laneway.lanes.priorities import AGEING_SECONDS
from laneway.lanes.requests import ALONE, PLACES, LaneError, Owner, Request, by_order
from laneway.lanes.slots import Slots
from laneway.lanes.statistics import LaneStatus, lane_statuses
from laneway.lanes.waits import Blocker, waits
from laneway.lanes.watching import Watch, Watches, meets


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
        self._slots = Slots[Owner](limits_of(self._configured), pools_of(self._configured))
        self._nodes = Nodes[Owner]()
        self._words = self._nodes.words
        self._live: dict[Request[Owner], None] = {}  # the unfinished ones
        self._passing = Passing(self._nodes, self._slots, self._live)
        self._ageing_seconds = ageing_seconds
        self._tickets = 0
        self._tokens = 0
        self._nested_waiters = 0
        self._plans = Plans(self._configured, self._slots.limits)
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
        nodes, slots = self._plans[claims]
        self._tickets = ticket = self._tickets + 1
        if priority:
            now -= priority * self._ageing_seconds
        request = Request(
            owner, claims, nodes, slots, ticket, (now, ticket, 0.0), priority * PLACES
        )
        if parent is not None:
            return self._nest(request, parent)
        passing = self._passing
        if now < passing.latest:
            return self._overtake(request, refusable=refusable)
        passing.latest = now
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
        self._passing.index()
        ready: list[Request[Owner]] = []
        self._slots.resize(slot, limit, ready)
        return [*self._grant(ready), *self._break_rings()]

    def pause(self, lane: str) -> None:
        """Let nobody take a slot of a lane; who has one goes on, and lends it as before."""
        self._passing.index()
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
        self._passing.index()
        self._passing.enter_ahead(request)
        while self._nested_waiters and (stuck := self._passing.rings(request)):
            last = max(one.order for one in stuck if one.parent and not one.granted)
            self._passing.move(request, (*last[:-1], 1.0, ticket, 0.0))
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
        return self._plans[claims].slots

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
        self._passing.index()
        self._passing.enter_ahead(request)
        if self._nested_waiters and self._passing.rings(request):
            # Whom it passed may belong to somebody that it waits for.
            self._passing.go_to_end(request)
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
                    self._passing.take_out(request)
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
            request.order = just_before(behind, request)
        if request.order[0] < self._passing.latest or behind is not None:
            self._passing.index()
        risky = request.order[0] < self._passing.latest and self._nested_waiters > 0
        risky = risky or any(
            self._nodes.awaited(above) or self._slots.awaited(above)
            for above in request.ancestors()
        )
        self._passing.enter_ahead(request)
        if request.pending and risky:
            self._passing.keep_out_of_rings(request)
        if request.refused:
            return request
        self._passing.latest = max(self._passing.latest, request.order[0])
        parent.children += 1
        self._nested_waiters += request.pending > 0
        return self._entered(request)

    def _break_rings(self) -> list[Request[Owner]]:
        """Refuse the youngest of those who wait for themselves, until nobody does."""
        changed: list[Request[Owner]] = []
        while self._nested_waiters and (stuck := self._passing.stuck()):
            last = max((one for one in stuck if one.parent and not one.granted), key=by_order)
            last.cycle = ring(last, stuck, self._passing.in_way)
            changed += [last, *self.withdraw(last)]
        return changed

    def _in_turn(self, slot: str, request: Request[Owner]) -> bool:
        """Whether it waits for those before it to leave a lane, and not for time or a resume."""
        waits_in = self._slots.in_line(slot, request)
        return waits_in and slot not in self._slots.shut and not is_rate(slot)

    def _entered(self, request: Request[Owner]) -> Request[Owner]:
        self._live[request] = None
        if self._passing.census is not None:
            self._passing.census.add(request)
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
        if self._passing.census is not None:
            self._passing.census.remove(request)
        if not self._live:
            self._passing.latest = -inf
            self._passing.census = None
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

    def _cap(self, slot: str) -> None:
        """Let all who claim the resource in, as if it had always been capped with room for them."""
        self._plans.clear()
        self._passing.census = None
        inside = [
            request
            for request in self._live
            if any(_slot(claim.resource) == slot for claim in request.claims)
        ]
        for request in inside:
            request.slots += (slot,)
        self._slots.fill(slot, sorted(inside, key=lambda one: (not one.granted, one.order)))


def _slot(resource: str) -> str:
    return levels(resource)[-1]


def _nobody() -> None:
    """Nobody waits for room in a lane that refuses."""
