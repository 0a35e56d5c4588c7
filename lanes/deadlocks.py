"""Who can never go on: the requests that wait for each other in a ring, of any length.

Only nested requests can close such a ring, since only their ancestors hold while they wait. Found
by reduction (Holt: Some Deadlock Properties of Computer Systems, 1972): whoever could end is taken
to have ended, until nobody is left that could; so a lane with several slots is no ring as long as
one of them comes free. Only those are looked at that the newcomer waits for, directly or through
others; to find them, the census knows who claims what. Serves the lane table.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from math import inf
from typing import Generic

from laneway.lanes.loans import is_rate, lender_of
from laneway.lanes.modes import CONFLICTS, HELD_AGAINST
from laneway.lanes.pools import Pool
from laneway.lanes.requests import SLOT, Key, Order, Owner, Place, Request, by_order, places

InLine = Callable[[str, Request[Owner]], bool]
"""Whether a request stands in the queue of a lane, without a slot in it."""
_EVERYBODY: Order = (inf,)
_NO_POOLS: Mapping[str, Pool] = {}


class Census(Generic[Owner]):
    """All unfinished requests, by what they claim and by whom they are part of."""

    def __init__(
        self,
        requests: Iterable[Request[Owner]],
        in_line: InLine[Owner],
        limits: Mapping[str, int],
        pools: Mapping[str, Pool] = _NO_POOLS,
    ) -> None:
        """Count those who are here already.

        Args:
            requests: All unfinished requests.
            in_line: Whether a request waits for a slot of a lane.
            limits: `max_concurrent` by lane, where it isn't 1; read whenever it is asked for.
            pools: By lane, where slots are reserved.
        """
        self._pools = pools
        self._in_line = in_line
        self._limits = limits
        self._at: dict[Place, dict[Request[Owner], None]] = {}
        self._parts: dict[Request[Owner], dict[Request[Owner], None]] = {}
        for request in requests:
            self.add(request)

    def add(self, request: Request[Owner]) -> None:
        """Count a newcomer."""
        for place in places(request):
            self._at.setdefault(place, {})[request] = None
        if request.parent is not None:
            self._parts.setdefault(request.parent, {})[request] = None

    def remove(self, request: Request[Owner]) -> None:
        """Forget one that has ended."""
        for place in places(request):
            _drop(self._at, place, request)
        if request.parent is not None:
            _drop(self._parts, request.parent, request)

    def stuck_with(self, newcomer: Request[Owner]) -> set[Request[Owner]]:
        """Name those who can never end among a newcomer, not counted yet, and all it waits for."""
        self.add(newcomer)
        found = self._waited_for(newcomer)
        # Every ring leads back to it, from what it is part of, or from whoever it has passed.
        if newcomer.parent in found or any(
            one.order > newcomer.order and not one.granted for one in found
        ):
            found = reduced(found, self._in_line, self._limits, self._pools)
        else:
            found = set[Request[Owner]]()
        self.remove(newcomer)
        return found

    def _waited_for(self, request: Request[Owner]) -> set[Request[Owner]]:
        """Follow the waits, and on the way a few more than there are: each of these as well.

        A queue is not gone through again for each of its members: the second to ask takes it whole.
        """
        found = {request}
        left = [request]
        seen: dict[Place, Order] = {}
        while left:
            one = left.pop()
            if one.granted:
                new = [part for part in self._parts.get(one, ()) if part not in found]
                found.update(new)
                left += new
                continue
            for place in self._waits_at(one):
                known = seen.get(place)
                if known is not None and known >= one.order:
                    continue
                before = seen[place] = one.order if known is None else _EVERYBODY
                for other in self._at.get(place, ()):
                    if other not in found and (other.granted or other.order < before):
                        found.add(other)
                        left.append(other)
        return found

    def _waits_at(self, waiter: Request[Owner]) -> Iterator[Place]:
        for level, mode, _, _ in waiter.nodes:
            for bar in CONFLICTS[mode]:
                yield level, bar
        for slot in waiter.slots:
            if self._in_line(slot, waiter):
                yield slot, SLOT


def reduced(
    requests: Iterable[Request[Owner]],
    in_line: InLine[Owner],
    limits: Mapping[str, int],
    pools: Mapping[str, Pool] = _NO_POOLS,
) -> set[Request[Owner]]:
    """Let end whoever can; returns the holders and waiters that are left.

    Args:
        requests: Whoever is one of them, all that it waits for are.
        in_line: Whether a request waits for a slot of a lane.
        limits: `max_concurrent` by lane, where it isn't 1. A pause is no limit: it will end.
        pools: By lane, where slots are reserved.
    """
    left = dict.fromkeys(sorted(requests, key=by_order))
    parts: dict[Request[Owner], int] = {}
    for one in left:
        if one.parent is not None:
            parts[one.parent] = parts.get(one.parent, 0) + 1
    while True:
        before = len(left)
        for holder in [one for one in left if one.granted]:
            _end(holder, left, parts)
        standing = _Standing(left, in_line, limits, pools)
        for waiter in [one for one in left if not one.granted]:
            if standing.passes(waiter):
                _end(waiter, left, parts)
        if len(left) == before:
            return set(left)


def _end(
    one: Request[Owner], left: dict[Request[Owner], None], parts: dict[Request[Owner], int]
) -> None:
    """Take out one that ends, unless it has parts left; and the holder that waited for it alone."""
    if one not in left or parts.get(one):
        return
    del left[one]
    if one.parent is not None:
        parts[one.parent] -= 1
        _end(one.parent, left, parts)


class _Standing(Generic[Owner]):
    """What those who have not ended hold or stand before, as the waiters are gone through."""

    def __init__(
        self,
        left: Collection[Request[Owner]],
        in_line: InLine[Owner],
        limits: Mapping[str, int],
        pools: Mapping[str, Pool],
    ) -> None:
        self._left = left
        self._pools = pools
        self._in_line = in_line
        self._limits = limits
        self._words: dict[str, int] = {}
        self._used: dict[str, list[int]] = {}
        """By lane: how many of each share; of a lane without shares, how many."""
        self._lent: set[tuple[str, Request[Owner] | None]] = set()
        for one in left:
            if one.granted:
                self._stand(one)
            for slot in one.slots:
                if slot in one.borrowed:
                    self._lent.add((slot, lender_of(slot, one)))
                elif not (in_line(slot, one) or (one.granted and is_rate(slot))):
                    # A start that has been made comes back by time.
                    self._use(slot, one, 1)

    def passes(self, waiter: Request[Owner]) -> bool:
        """Whether nobody is in its way; else it is itself in the way of those after it."""
        loans = {slot for slot in waiter.slots if self._would_borrow(slot, waiter)}
        passes = self._is_clear(waiter) and all(
            slot in loans or self._has_room(slot, waiter)
            for slot in waiter.slots
            if self._in_line(slot, waiter)
        )
        if not passes:
            self._stand(waiter)
        for slot in waiter.slots:
            if slot in waiter.borrowed:
                if passes:
                    self._lent.discard((slot, lender_of(slot, waiter)))
                continue
            if slot in loans and not passes:
                self._lent.add((slot, lender_of(slot, waiter)))
            in_line = self._in_line(slot, waiter)
            needs = not passes and slot not in loans
            self._use(slot, waiter, needs - (not in_line))
        return passes

    def _use(self, slot: str, one: Request[Owner], step: int) -> None:
        pool = self._pools.get(slot)
        used = self._used.setdefault(slot, [0] if pool is None else [0] * len(pool.used))
        used[0 if pool is None else pool.share_of(one.claims)] += step

    def _has_room(self, slot: str, one: Request[Owner]) -> bool:
        pool = self._pools.get(slot)
        used = self._used.get(slot)
        if used is None:
            return True
        if pool is None:
            return used[0] < self._limits.get(slot, 1)
        return pool.has_room(pool.share_of(one.claims), used)

    def _stand(self, one: Request[Owner]) -> None:
        for level, _, unit, _ in one.nodes:
            self._words[level] = self._words.get(level, 0) + unit

    def _is_clear(self, waiter: Request[Owner]) -> bool:
        own: dict[str, int] = {}
        for above in waiter.ancestors():
            if above in self._left:
                for level, _, unit, _ in above.nodes:
                    own[level] = own.get(level, 0) + unit
        return not any(
            (self._words.get(level, 0) - own.get(level, 0)) & HELD_AGAINST[mode]
            for level, mode, _, _ in waiter.nodes
        )

    def _would_borrow(self, slot: str, waiter: Request[Owner]) -> bool:
        """Whether the slot of an ancestor is there for it."""
        if waiter.parent is None or slot in waiter.borrowed:
            return False
        lender = lender_of(slot, waiter)
        return lender is not None and (slot, lender) not in self._lent


def ring(
    start: Request[Owner],
    stuck: Collection[Request[Owner]],
    in_way: Callable[[Request[Owner], Request[Owner]], bool],
) -> tuple[Owner, ...]:
    """Name those who wait for each other: the way from a stuck request back to itself.

    Args:
        start: A nested request that waits.
        stuck: All that cannot end, it among them.
        in_way: Whether the second stands in the way of the first.

    Returns:
        The owners on the shortest way, `start` first; through what it is part of, if that can be.
        Where it only waits for a ring that it is no part of, the way ends in there.
    """
    ways: dict[Request[Owner], tuple[Request[Owner], ...]] = {start: (start,)}
    passed: tuple[Request[Owner], ...] = ()
    left = [start]
    for last in left:
        way = ways[last]
        for one in stuck:
            if one is last or not (one.parent is last if last.granted else in_way(last, one)):
                continue
            if one is start and last.granted:
                return _owners(way)
            if one is start:
                # It was moved before this one, in vain.
                passed = passed or way
            elif one not in ways:
                ways[one] = (*way, one)
                left.append(one)
    return _owners(passed or ways[left[-1]])


def _owners(way: Iterable[Request[Owner]]) -> tuple[Owner, ...]:
    return tuple(member.owner for member in way if not member.is_barrier)


def _drop(among: dict[Key, dict[Request[Owner], None]], key: Key, request: Request[Owner]) -> None:
    those = among[key]
    del those[request]
    if not those:
        del among[key]
