"""Lanes that let a number of requests in, whoever they are: a counter and a queue for each.

The half of the lane table for `lane:` claims and for resources whose holders are capped. Of the
requests that are unfinished, the first `max_concurrent` have a slot, be it that they hold their
claims or that they wait elsewhere; so a slot is never given past an older waiter.

A nested request may use the slot of an ancestor: loans.py says which one does. Where slots are
reserved, a pool says who may take one: pools.py. A lane that is shut lets nobody take a slot; who
waits elsewhere hands it back. A rate is a lane like others, whose places come back by time.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Generic

from laneway.lanes.loans import Loans, is_rate
from laneway.lanes.pools import Pool
from laneway.lanes.requests import Owner, Queue, Request, by_order, clear, remove


class Slots(Generic[Owner]):
    """The counters and the queues, by lane. An absent key means nobody."""

    def __init__(self, limits: dict[str, int], pools: Mapping[str, Pool] | None = None) -> None:
        """Start with no one in.

        Args:
            limits: `max_concurrent`, or the number of starts of a rate, where it isn't 1.
            pools: By lane, where slots are reserved.
        """
        self.limits = limits
        self.pools = pools or {}
        self.shut: set[str] = set()
        """Lanes that let nobody in for the time being."""
        self.room = {**limits, **dict.fromkeys(self.pools, 0)}
        """How many may be in a lane without a further question; 1 where it isn't said."""
        self.used: dict[str, int] = {}
        self._lines: dict[str, dict[int, Queue[Owner]]] = {}
        """By lane: by kind."""
        self._early: dict[str, dict[Request[Owner], None]] = {}
        """By lane: the waiters that have a slot of their own, and wait elsewhere; while that is
        asked for."""
        self.loans = Loans[Owner]()
        self.indexed = False

    def enter(self, slot: str, request: Request[Owner]) -> None:
        """Give the newcomer a slot, or a place at the end of the line."""
        used = self.used.get(slot, 0)
        if used < self.room.get(slot, 1):
            self.used[slot] = used + 1
        elif slot in self.pools and self._has_room(slot, request):
            self._take(slot, request)
        else:
            self._line_up(slot, request)

    def enter_ahead(self, slot: str, request: Request[Owner]) -> None:
        """Let a newcomer in that goes ahead of some, or may use an ancestor's slot."""
        without = self.loans.ask(slot, request) if request.parent is not None else request
        if without is not None:
            self._find_place(slot, without)
            if without is not request and not self.in_line(slot, without):
                self._early.setdefault(slot, {})[without] = None

    def _find_place(self, slot: str, request: Request[Owner]) -> None:
        if self._has_room(slot, request):
            self._take(slot, request)
            return
        youngest = max(self._rivals(slot, request), key=by_order, default=request)
        if youngest.order > request.order:
            self._take_back(slot, youngest)
            self._take(slot, request)
        else:
            self._line_up(slot, request)

    def _rivals(self, slot: str, request: Request[Owner]) -> Iterable[Request[Owner]]:
        """Waiters whose slot the newcomer could have instead."""
        early = self._early.get(slot, ())
        pool = self.pools.get(slot)
        if pool is None:
            return early
        own = pool.share_of(request.claims)
        shares = [(pool.share_of(one.claims), one) for one in early]
        return [one for share, one in shares if share == own or pool.takes_open(share)]

    def keep(self, request: Request[Owner]) -> None:
        """Note which slots a newcomer that has to wait has already."""
        for slot in request.slots:
            if slot not in request.borrowed and not self.in_line(slot, request):
                self._early.setdefault(slot, {})[request] = None

    def begin(self, request: Request[Owner]) -> None:
        """A waiter has become a holder."""
        for slot in request.slots:
            self._forget(slot, request)

    def withdraw(self, request: Request[Owner], ready: list[Request[Owner]]) -> None:
        """Take a waiter out that may have slots, or wait for them."""
        for slot in request.slots:
            if self.in_line(slot, request):
                self._step_out(slot, request)
                self.loans.end(slot, request)
            else:
                self._forget(slot, request)
                self.leave(slot, request, ready)

    def resize(self, slot: str, limit: int, ready: list[Request[Owner]]) -> None:
        """Change `max_concurrent`: holders in excess stay, waiters hand slots in excess back."""
        self.limits[slot] = limit
        if slot in self.pools:
            self.pools[slot].limit = limit
        self._fit(slot)
        self._admit(slot, ready)

    def shut_lane(self, slot: str) -> None:
        """Let nobody in: not even who waits elsewhere, and has a slot already."""
        self.shut.add(slot)
        self._fit(slot)

    def open_lane(self, slot: str, ready: list[Request[Owner]]) -> None:
        """Let those in again who may be."""
        self.shut.discard(slot)
        self._fit(slot)
        self._admit(slot, ready)

    def start(self, slot: str) -> None:
        """Keep a place of a rate until it lapses, whatever its holder does."""
        self.room[slot] = self.room.get(slot, 1) - 1
        self._give(slot)

    def lapse(self, slot: str, places: int, ready: list[Request[Owner]]) -> None:
        """The time of some places of a rate is over."""
        self.room[slot] += places
        self._admit(slot, ready)

    def _fit(self, slot: str) -> None:
        """Take back the slots that waiters may not keep, now that there are fewer, or none."""
        if slot in self.shut or slot in self.pools:
            self.room[slot] = 0
        elif slot in self.limits:
            self.room[slot] = self.limits[slot]
        else:
            self.room.pop(slot, None)
        # The youngest first, and those with an open slot before those with a reserved one.
        early = sorted(self._early.get(slot, ()), key=by_order, reverse=True)
        pool = self.pools.get(slot)
        if pool is not None:
            early.sort(key=lambda one: not pool.takes_open(pool.share_of(one.claims)))
        for waiter in early:
            if self._must_hand_back(slot, waiter):
                self._take_back(slot, waiter)

    def _must_hand_back(self, slot: str, waiter: Request[Owner]) -> bool:
        if slot in self.shut:
            return True
        pool = self.pools.get(slot)
        if pool is None:
            return self.used.get(slot, 0) > self.limits.get(slot, 1)
        return pool.must_hand_back(pool.share_of(waiter.claims))

    def fill(self, slot: str, requests: Iterable[Request[Owner]]) -> None:
        """Let all in that have a lane from now on, those who hold their claims first."""
        for request in requests:
            if request.parent is not None and self.loans.ask(slot, request) is None:
                continue
            self.used[slot] = self.used.get(slot, 0) + 1
            if request.pending and self.indexed:
                self._early.setdefault(slot, {})[request] = None

    def in_line(self, slot: str, request: Request[Owner]) -> bool:
        """Whether the request waits for a slot of this lane."""
        return request in self._lines.get(slot, {}).get(self._kind(slot, request), ())

    def awaited(self, request: Request[Owner]) -> bool:
        """Whether anybody waits for a slot of a lane that this holder is in."""
        return any(slot in self._lines for slot in request.slots)

    def __len__(self) -> int:
        """Count the lanes in use."""
        return len(self.used)

    def leave(self, slot: str, request: Request[Owner], ready: list[Request[Owner]]) -> None:
        """Take a holder out of one lane."""
        if request.started and is_rate(slot):
            return
        if request.parent is not None:
            had_loan, heir = self.loans.end(slot, request)
            if heir is not None and self.in_line(slot, heir):
                self._step_out(slot, heir)
                clear(heir, ready)
            elif heir is not None:
                self._forget(slot, heir)
                self._free(slot, heir, ready)
            if had_loan:
                return
        self._free(slot, request, ready)

    def _free(self, slot: str, request: Request[Owner], ready: list[Request[Owner]]) -> None:
        used = self.used[slot] - 1
        if used:
            self.used[slot] = used
        else:
            del self.used[slot]
        if self.pools and slot in self.pools:
            self._share(slot, request, -1)
        if slot in self._lines:
            self._admit(slot, ready)

    def _give(self, slot: str) -> None:
        used = self.used[slot] - 1
        if used:
            self.used[slot] = used
        else:
            del self.used[slot]

    def _take(self, slot: str, request: Request[Owner]) -> None:
        self.used[slot] = self.used.get(slot, 0) + 1
        if slot in self.pools:
            self._share(slot, request, 1)

    def _share(self, slot: str, request: Request[Owner], step: int) -> None:
        pool = self.pools[slot]
        pool.used[pool.share_of(request.claims)] += step

    def _has_room(self, slot: str, request: Request[Owner]) -> bool:
        pool = self.pools.get(slot)
        if pool is None:
            return self.used.get(slot, 0) < self.room.get(slot, 1)
        return slot not in self.shut and pool.has_room(pool.share_of(request.claims))

    def _kind(self, slot: str, request: Request[Owner]) -> int:
        """Whom a request shares its line with: those of its kind and share."""
        share = self.pools[slot].share_of(request.claims) if slot in self.pools else 0
        return request.kind + (share << _SHARE)

    def _take_back(self, slot: str, waiter: Request[Owner]) -> None:
        self._forget(slot, waiter)
        self._give(slot)
        if slot in self.pools:
            self._share(slot, waiter, -1)
        # All of a kind that are in line are younger than any of it that had a slot.
        self._line_up(slot, waiter).move_to_end(waiter, last=False)

    def _line_up(self, slot: str, request: Request[Owner]) -> Queue[Owner]:
        lines = self._lines.get(slot)
        if lines is None:
            lines = self._lines[slot] = {}
        kind = self._kind(slot, request) if self.pools else request.kind
        line = lines.get(kind)
        if line is None:
            line = lines[kind] = OrderedDict()
        line[request] = None
        request.pending += 1
        return line

    def _step_out(self, slot: str, request: Request[Owner]) -> None:
        lines = self._lines[slot]
        kind = self._kind(slot, request) if self.pools else request.kind
        if remove(lines, kind, request) and not lines:
            del self._lines[slot]

    def _forget(self, slot: str, request: Request[Owner]) -> None:
        early = self._early.get(slot)
        if early is not None and request in early:
            del early[request]
            if not early:
                del self._early[slot]

    def _admit(self, slot: str, ready: list[Request[Owner]]) -> None:
        if self.pools and slot in self.pools:
            self._admit_shares(slot, ready)
            return
        used = self.used.get(slot, 0)
        while used < self.room.get(slot, 1) and (lines := self._lines.get(slot)):
            heads = [next(iter(line)) for line in lines.values()]
            oldest = heads[0] if len(heads) == 1 else min(heads, key=by_order)
            self._step_out(slot, oldest)
            self.used[slot] = used = used + 1
            clear(oldest, ready)
            if oldest.pending and self.indexed:
                self._early.setdefault(slot, {})[oldest] = None

    def _admit_shares(self, slot: str, ready: list[Request[Owner]]) -> None:
        """Let in who may come where some slots are reserved: the oldest for whom there is room."""
        while lines := self._lines.get(slot):
            heads = [next(iter(line)) for line in lines.values()]
            fitting = [head for head in heads if self._has_room(slot, head)]
            if not fitting:
                return
            oldest = min(fitting, key=by_order)
            self._step_out(slot, oldest)
            self._take(slot, oldest)
            clear(oldest, ready)
            if oldest.pending and self.indexed:
                self._early.setdefault(slot, {})[oldest] = None


_SHARE = 80
"""Bits of a kind below those of a share: a kind has fewer."""
