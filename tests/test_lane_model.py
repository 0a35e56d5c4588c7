"""The lane table against a naive model, driven at random; and a proof that the drive has teeth.

The model keeps a list of requests in the order of their tickets and compares all pairs, claim by
claim. The table must grant exactly what the model grants, at every step. Then faults are seeded in
copies of the lane code, one at a time: the same drive must find each of them.
"""

import importlib
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from math import inf
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any, NamedTuple, TypeVar, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from laneway.claims import Access, Claim
from laneway.errors import LanewayError
from laneway.lanes.table import LaneTable

RESOURCES = (
    "file:",
    "file:/a",
    "file:/a/x",
    "file:/a/y",
    "file:/b",
    "file:/b/x",
    "db:s",
    "db:s/t",
    "run:1",
    "lane:one",
    "lane:two",
    "lane:three",
)
T = TypeVar("T")
ACCESS = tuple(Access)
LIMITS = {"lane:two": 2, "lane:three": 3, "db:s": 2}
RESIZED = ("lane:one", "lane:two", "lane:three", "db:s", "file:/a")
PRIORITIES = (0, 0, 0, 0, 1, 2, -1)
AGEING = 5.0

any_place = st.integers(min_value=0, max_value=63)
wants = st.lists(st.tuples(any_place, st.sampled_from(ACCESS)), max_size=4)


@dataclass(eq=False)
class Wish:
    """A request as the model sees it."""

    name: int
    claims: list[Claim]
    order: tuple[float, ...] = ()
    parent: "Wish | None" = None
    granted: bool = False
    borrows: set[str] = field(default_factory=set[str])
    lost: bool = False
    """Timed out or cancelled, and not stopped: nobody can release it yet."""

    def ancestors(self) -> list["Wish"]:
        return [self.parent, *self.parent.ancestors()] if self.parent else []


def among(things: Sequence[T], at: int) -> T:
    return things[at % len(things)]


@cache
def path_of(resource: str) -> list[str]:
    scheme, _, path = resource.partition(":")
    return [scheme, *(step for step in path.split("/") if step)]


@cache
def meet(one: Claim, other: Claim) -> bool:
    if one.resource.startswith("lane:") or other.resource.startswith("lane:"):
        return False
    ours, theirs = path_of(one.resource), path_of(other.resource)
    depth = min(len(ours), len(theirs))
    return ours[:depth] == theirs[:depth] and Access.EXCLUSIVE in {one.access, other.access}


def conflict(one: Wish, other: Wish) -> bool:
    return any(meet(mine, theirs) for mine in one.claims for theirs in other.claims)


def meeting_places(one: Wish, other: Wish) -> set[str]:
    """The wider of two claims that meet, for each such pair."""
    return {
        min(mine.resource, theirs.resource, key=lambda resource: len(path_of(resource)))
        for mine in one.claims
        for theirs in other.claims
        if meet(mine, theirs)
    }


@dataclass
class Model:
    """Nothing but the rules, all pairs compared claim by claim."""

    limits: dict[str, int]
    wishes: list[Wish] = field(default_factory=list[Wish])
    """Those that have not ended, in their order."""
    latest: float = -inf
    known: dict[Any, Any] = field(default_factory=dict[Any, Any])
    """What does not change while the same resources have limits."""

    def slots(self, wish: Wish) -> list[str]:
        if wish.name not in self.known:
            resources = {claim.resource for claim in wish.claims}
            limited = [r for r in resources if r.startswith("lane:") or r in self.limits]
            self.known[wish.name] = sorted(limited)
        return cast("list[str]", self.known[wish.name])

    def conflict(self, one: Wish, other: Wish) -> bool:
        both = one.name, other.name
        if both not in self.known:
            self.known[both] = conflict(one, other)
        return cast("bool", self.known[both])

    def lender(self, wish: Wish, slot: str) -> Wish | None:
        return next((above for above in wish.ancestors() if slot in self.slots(above)), None)

    def before(self, wish: Wish) -> list[Wish]:
        """Whom a waiter has to let go first if both want the same."""
        family = wish.ancestors()
        return [
            other
            for other in self.wishes
            if other is not wish
            and other not in family
            and (other.granted or other.order < wish.order)
        ]

    def is_in_line(self, wish: Wish, slot: str) -> bool:
        if slot in wish.borrows:
            return False
        before = [
            other
            for other in self.wishes
            if other is not wish
            and slot in self.slots(other)
            and slot not in other.borrows
            and (other.granted or other.order < wish.order)
        ]
        return len(before) >= self.limits.get(slot, 1)

    def blocked(self, wish: Wish) -> list[Wish]:
        before = self.before(wish)
        found = [other for other in before if self.conflict(wish, other)]
        for slot in self.slots(wish):
            if self.is_in_line(wish, slot):
                found += [other for other in before if slot in self.slots(other)]
        return sorted(found, key=lambda other: other.order)

    def lend(self, *, new: str = "") -> None:
        """The slot of a holder is used by one of its parts: by a holder, else by the oldest."""
        self.wishes.sort(key=lambda wish: wish.order)
        for wish in self.wishes:
            if not wish.granted:
                wish.borrows.clear()
        for wish in sorted(self.wishes, key=lambda one: not one.granted):
            for slot in [new] if wish.granted else self.slots(wish):
                lender = self.lender(wish, slot) if slot in self.slots(wish) else None
                if lender and not any(
                    slot in other.borrows and self.lender(other, slot) is lender
                    for other in self.wishes
                ):
                    wish.borrows.add(slot)

    def settle(self) -> list[int]:
        """Grant what may be granted; returns the names, in their order."""
        self.lend()
        granted: list[int] = []
        for wish in self.wishes:
            if not wish.granted and not self.blocked(wish):
                wish.granted = True
                granted.append(wish.name)
        return granted

    def stuck(self) -> set[int]:
        """Let end whoever can, and see who is left."""
        copies: dict[Wish, Wish] = {}
        for wish in sorted(self.wishes, key=lambda one: len(one.ancestors())):
            parent = copies[wish.parent] if wish.parent else None
            copies[wish] = replace(wish, parent=parent, borrows=set(wish.borrows))
        rest = Model(self.limits, list(copies.values()), known=self.known)
        rest.settle()
        while ends := rest.childless():
            rest.wishes = [wish for wish in rest.wishes if wish not in ends]
            rest.settle()
        return {wish.name for wish in rest.wishes}

    def childless(self) -> list[Wish]:
        parents = {id(wish.parent) for wish in self.wishes}
        return [wish for wish in self.wishes if wish.granted and id(wish) not in parents]

    def enter(self, wish: Wish, time: float) -> list[Wish]:
        """Find the newcomer's place; returns the waits of one that is refused, else nothing."""
        wish.order = (time, wish.name, 0)
        self.wishes.append(wish)
        if behind := self.waiting_for_family(wish):
            wish.order = (*behind[0].order[:-1], -1, wish.name, 0)
        self.lend()
        if self.blocked(wish) and self.stuck() and wish.order[0] < self.latest:
            wish.order = (self.latest, wish.name, 0)
            self.lend()
        while wish.parent and self.blocked(wish) and (stuck := self.stuck()):
            behind = [w for w in self.blocked(wish) if not w.granted and w.name in stuck]
            if not behind:
                return self.blocked(wish)
            wish.order = (*behind[0].order[:-1], -1, wish.name, 0)
            self.lend()
        self.latest = max(self.latest, wish.order[0])
        wish.granted = not self.blocked(wish)
        return []

    def waiting_for_family(self, part: Wish) -> list[Wish]:
        """Who is in the way of a part just where an ancestor of it keeps them out."""
        return [
            wish
            for wish in self.blocked(part)
            if not wish.granted
            for above in part.ancestors()
            if above not in wish.ancestors()
            and meeting_places(wish, part) & meeting_places(wish, above)
        ]

    def leave(self, wish: Wish) -> None:
        self.wishes.remove(wish)
        if not self.wishes:
            self.latest = -inf

    def resize(self, slot: str, limit: int) -> list[int]:
        """Returns those who are granted, and nested ones that have to go."""
        capped = not slot.startswith("lane:") and slot not in self.limits
        self.limits[slot] = limit
        if capped:
            self.known.clear()
        self.lend(new=slot if capped else "")
        changed = self.settle()
        while stuck := self.stuck():
            youngest = [w for w in self.wishes if w.parent and not w.granted and w.name in stuck][
                -1
            ]
            self.leave(youngest)
            changed += [youngest.name, *self.settle()]
        return changed


class LaneMachine(RuleBasedStateMachine):
    """Asks, nests, releases, withdraws, loses, stops and resizes at random."""

    checks = 0
    """Of all machines: how often table and model have been compared after a step."""

    def __init__(self, table_class: Any = LaneTable) -> None:
        super().__init__()
        self.table = table_class(dict(LIMITS), ageing_seconds=AGEING)
        self.model = Model(dict(LIMITS))
        self.requests: dict[int, Any] = {}
        self.pool: list[str] = []
        self.resized: list[str] = []
        self.asked = 0
        self.now = 0.0
        self.last_token = 0

    @initialize(pool=st.lists(st.sampled_from(RESOURCES), min_size=2, max_size=5, unique=True))
    def choose(self, pool: list[str]) -> None:
        """Few resources in each example, so that requests meet."""
        self.pool = pool
        self.resized = [resource for resource in pool if resource in RESIZED]

    @rule(wanted=wants, priority=st.sampled_from(PRIORITIES), passed=st.sampled_from((0, 1, 4)))
    def ask(self, wanted: list[tuple[int, Access]], priority: int = 0, passed: float = 0) -> None:
        self.let_in(wanted, priority, passed, None)

    @precondition(lambda self: self.holders())
    @rule(wanted=wants, priority=st.sampled_from(PRIORITIES), under=any_place)
    def nest(self, wanted: list[tuple[int, Access]], priority: int, under: int) -> None:
        self.let_in(wanted, priority, 0, among(self.holders(), under))

    def let_in(
        self, wanted: list[tuple[int, Access]], priority: int, passed: float, parent: Wish | None
    ) -> None:
        self.asked += 1
        self.now += passed
        claims = [Claim(among(self.pool, at), access) for at, access in wanted]
        wish = Wish(self.asked, claims, parent=parent)
        request = self.table.request(
            claims,
            wish.name,
            now=self.now,
            priority=priority,
            parent=self.requests[parent.name] if parent else None,
        )
        in_way = self.model.enter(wish, self.now - priority * AGEING)
        assert request.refused == bool(in_way)
        if in_way:
            self.check_ring(wish, request.cycle)
            self.model.leave(wish)
            assert not request.granted
            assert not self.model.settle()
            return
        self.requests[wish.name] = request
        assert request.granted == wish.granted
        self.compare([request] if request.granted else [], [wish.name] if wish.granted else [])

    @precondition(lambda self: self.stoppable())
    @rule(at=any_place)
    def release(self, at: int) -> None:
        self.give_back(among(self.stoppable(), at))

    @precondition(lambda self: self.waiters())
    @rule(at=any_place)
    def withdraw(self, at: int) -> None:
        wish = among(self.waiters(), at)
        self.model.leave(wish)
        self.compare(self.table.withdraw(self.requests.pop(wish.name)), self.model.settle())

    @precondition(lambda self: self.holders())
    @rule(at=any_place)
    def lose(self, at: int) -> None:
        """A holder is timed out or cancelled, and goes on: its claims stay as they are."""
        among(self.holders(), at).lost = True

    @precondition(lambda self: self.stopping())
    @rule(at=any_place)
    def stop(self, at: int) -> None:
        self.give_back(among(self.stopping(), at))

    @precondition(lambda self: self.resized)
    @rule(at=any_place, limit=st.integers(1, 3))
    def resize(self, at: int, limit: int) -> None:
        resource = among(self.resized, at)
        changed = self.table.resize(resource, limit)
        expected = self.model.resize(resource, limit)
        assert [request.owner for request in changed] == expected
        left = {wish.name for wish in self.model.wishes}
        for request in changed:
            assert request.refused == (request.owner not in left)
            if request.refused:
                del self.requests[request.owner]
        self.compare_tokens([request for request in changed if request.granted])

    @invariant()
    def holders_exclude_each_other(self) -> None:
        holders = self.holders()
        for at, wish in enumerate(holders):
            for other in holders[:at]:
                related = other in wish.ancestors() or wish in other.ancestors()
                assert related or not conflict(wish, other)

    @invariant()
    def the_same_are_granted(self) -> None:
        LaneMachine.checks += 1
        assert [self.requests[wish.name].granted for wish in self.model.wishes] == [
            wish.granted for wish in self.model.wishes
        ]

    @invariant()
    def every_waiter_has_a_blocker_and_the_oldest_is_named(self) -> None:
        named = {request.owner: blockers for request, blockers in self.table.waits()}
        assert list(named) == [wish.name for wish in self.waiters()]
        places = {wish.name: place for place, wish in enumerate(self.model.wishes)}
        for wish in self.waiters():
            expected = [places[other.name] for other in self.model.blocked(wish)]
            found = sorted({places[blocker.owner] for blocker in named[wish.name]})
            assert set(found) <= set(expected)
            assert found[0] == expected[0]

    @invariant()
    def the_picture_counts_everybody(self) -> None:
        for lane in self.table.snapshot():
            on_it = [
                wish.granted
                for wish in self.model.wishes
                for claim in wish.claims
                if claim.resource == lane.resource
            ]
            assert len(lane.holders) == sum(on_it)
            assert len(lane.waiters) == len(on_it) - sum(on_it)

    def check(self) -> None:
        self.holders_exclude_each_other()
        self.the_same_are_granted()
        self.every_waiter_has_a_blocker_and_the_oldest_is_named()
        self.the_picture_counts_everybody()

    def check_ring(self, refused: Wish, cycle: Sequence[int]) -> None:
        """Each waits for the next, or has it as a part, and the last for the first."""
        by_name = {wish.name: wish for wish in self.model.wishes}
        assert cycle[0] == refused.name
        for one, name in zip(cycle, (*cycle[1:], cycle[0]), strict=True):
            wish, following = by_name[one], by_name[name]
            assert (
                following.parent is wish if wish.granted else following in self.model.blocked(wish)
            )

    def teardown(self) -> None:
        """Nobody starves: releases alone bring everybody in, and leave nothing behind."""
        while ends := self.model.childless():
            self.give_back(ends[0])
        assert not self.model.wishes
        assert len(self.table) == 0
        assert not self.table._nodes._queues
        assert not self.table._nodes._clear
        assert not self.table._slots._lines
        assert not self.table._slots._early
        assert not self.table._slots.loans
        assert not self.table._live
        assert self.table._passing.census is None
        assert self.table._nested_waiters == 0

    def give_back(self, wish: Wish) -> None:
        self.model.leave(wish)
        self.compare(self.table.release(self.requests.pop(wish.name)), self.model.settle())

    def compare(self, granted: Sequence[Any], expected: Sequence[int]) -> None:
        assert [request.owner for request in granted] == expected
        self.compare_tokens(granted)

    def compare_tokens(self, granted: Sequence[Any]) -> None:
        for request in granted:
            assert request.token > self.last_token
            self.last_token = request.token

    def holders(self) -> list[Wish]:
        return [wish for wish in self.model.wishes if wish.granted]

    def stoppable(self) -> list[Wish]:
        return [wish for wish in self.model.childless() if not wish.lost]

    def stopping(self) -> list[Wish]:
        return [wish for wish in self.model.childless() if wish.lost]

    def waiters(self) -> list[Wish]:
        return [wish for wish in self.model.wishes if not wish.granted]


class Fault(NamedTuple):
    """A line of the lane code, and what a slip would make of it."""

    name: str
    module: str
    line: str
    slip: str
    seed: int = 1
    """Of dice that find it soon."""


FAULTS = (
    Fault("IX passes S", "modes", "frozenset({S, SIX, X}),", "frozenset({SIX, X}),"),
    Fault("IS waits for IX", "modes", "frozenset({X}),", "frozenset({IX, X}),"),
    Fault("S and IX merge to IX", "modes", "(S, SIX, S, SIX, X)", "(S, IX, S, SIX, X)", seed=8),
    Fault("writers intend to read", "modes", "= (X, IX) if", "= (X, IS) if"),
    Fault("ancestors are not marked", "modes", "for level in path[:-1]:", "for level in ():"),
    Fault(
        "the last claim on a level wins",
        "modes",
        "SUPREMUM[target][modes[last]] if last in modes else target",
        "target",
    ),
    Fault(
        "newcomers pass waiters",
        "modes",
        "HELD_AGAINST[mode] | sum(",
        "HELD_AGAINST[mode] | 0 * sum(",
    ),
    Fault("a lane claimed twice takes two slots", "modes", "tuple(slots)", "tuple(slots) * 2"),
    Fault("a cap is not seen", "modes", "if last in capped:", "if last in ():"),
    Fault("granted with claims missing", "requests", "    if not request.pending:", "    if True:"),
    # Slots
    Fault("one too many in a lane", "slots", "if used < self.room", "if used <= self.room"),
    Fault(
        "the next in line sleeps on",
        "slots",
        "if slot in self._lines:\n            self._admit",
        "if False:\n            self._admit",
    ),
    Fault(
        "a withdrawn waiter keeps its slot",
        "slots",
        "                self.leave(slot, request, ready)",
        "                pass",
    ),
    Fault(
        "a waiter keeps its slot in a narrower lane",
        "slots",
        "return self.used.get(slot, 0) > self.limits.get(slot, 1)",
        "return False",
    ),
    Fault(
        "a slot handed back goes to the end",
        "slots",
        "self._line_up(slot, waiter).move_to_end(waiter, last=False)",
        "self._line_up(slot, waiter)",
    ),
    Fault(
        "the line is served from its end",
        "slots",
        "heads = [next(iter(line)) for line in lines.values()]\n            oldest",
        "heads = [next(reversed(line)) for line in lines.values()]\n            oldest",
    ),
    Fault(
        "the lower priority is served first",
        "slots",
        "else min(heads, key=by_order)",
        "else max(heads, key=by_order)",
    ),
    Fault(
        "a wider lane lets nobody in",
        "slots",
        "self._fit(slot)\n        self._admit(slot, ready)\n\n    def shut_lane",
        "self._fit(slot)\n\n    def shut_lane",
    ),
    Fault(
        "a priority takes no slot back",
        "slots",
        "if youngest.order > request.order:",
        "if youngest.order < request.order:",
    ),
    Fault(
        "a priority takes the slot of the oldest",
        "slots",
        "youngest = max(self._rivals(slot, request)",
        "youngest = min(self._rivals(slot, request)",
    ),
    Fault(
        "who got a slot in time is not noted",
        "slots",
        "used + 1\n            clear(oldest, ready)\n"
        "            if oldest.pending and self.indexed:",
        "used + 1\n            clear(oldest, ready)\n            if False:",
    ),
    Fault(
        "a holder's slot can be taken back",
        "slots",
        "for slot in request.slots:\n            self._forget(slot, request)\n\n    def withdraw",
        "pass\n\n    def withdraw",
    ),
    Fault(
        "waiters for an ancestor's slot are not seen",
        "slots",
        "return any(slot in self._lines for slot in request.slots)",
        "return False",
    ),
    # Slots that are lent
    Fault(
        "nobody lends", "loans", "if lender is None:\n            return request", "return request"
    ),
    Fault("a slot is lent to many", "loans", "if user is not None and (", "if False and ("),
    Fault(
        "a young waiter keeps the loan",
        "loans",
        "(user.granted or user.order < request.order)",
        "True",
        seed=5,
    ),
    Fault(
        "a holder loses the loan",
        "loans",
        "(user.granted or user.order < request.order)",
        "(user.order < request.order)",
    ),
    Fault(
        "a loan is not passed on",
        "loans",
        "        if heir is not None:",
        "        heir = None\n        if heir is not None:",
    ),
    Fault("the youngest inherits the loan", "loans", "heir = min(", "heir = max("),
    Fault("a holder inherits the loan", "loans", "if not one.granted)", "if True)", seed=2),
    Fault(
        "an heir's own slot is lost",
        "slots",
        "self._free(slot, heir, ready)",
        "pass",
    ),
    # Nodes
    Fault("waiters of one mode bar no other", "nodes", "barred |= _BARS[mode]", "barred |= 0"),
    Fault(
        "a holder bars nobody",
        "nodes",
        "if barred & 1 << mode or self._is_barred(level, mode, oldest):",
        "if barred & 1 << mode:",
    ),
    Fault(
        "the youngest of a queue goes first",
        "nodes",
        "oldest = next(iter(queues[key]))",
        "oldest = next(reversed(queues[key]))",
    ),
    Fault("only one is let in", "nodes", "while queue and not", "if queue and not"),
    Fault("the sign of waiters stays up", "nodes", "self.words[level] ^= 1 << mode", "pass"),
    Fault(
        "a withdrawal wakes nobody",
        "nodes",
        "if word & WAITING:\n                self.admit(level, ready)",
        "if word & WAITING:\n                pass",
    ),
    Fault(
        "a part waits for its whole",
        "nodes",
        "word -= request.family.get(level, 0)",
        "word -= 0",
    ),
    Fault(
        "who goes ahead sees no older waiter",
        "nodes",
        "or self._waits_before(level, mode, request)",
        "",
    ),
    Fault("a priority stops nobody", "nodes", "if level in self._clear:", "if False:"),
    Fault("a priority stops its elders", "nodes", "if waiter.order > ahead.order]", "]"),
    Fault("a part passes its siblings", "nodes", "and above not in waiter.ancestors()", ""),
    Fault(
        "who is stopped goes to the end",
        "nodes",
        "self.queue(level, its_mode, waiter).move_to_end(waiter, last=False)",
        "self.queue(level, its_mode, waiter)",
    ),
    Fault(
        "who was clear in time is not noted",
        "nodes",
        "if self.indexed and request.pending:",
        "if False:",
    ),
    Fault(
        "waiters for an ancestor are not seen",
        "nodes",
        "self.words[level] & WAITING & _BARS[mode]",
        "0 & _BARS[mode]",
    ),
    # Rings
    Fault("a whole ends before its parts", "deadlocks", "or parts.get(one)", ""),
    Fault("parts are not looked at", "deadlocks", "self._parts.get(one, ())", "()"),
    Fault(
        "who stays is in nobody's way",
        "deadlocks",
        "if not passes:\n            self._stand(waiter)",
        "if not passes:\n            pass",
    ),
    Fault("ancestors are in the way", "deadlocks", "if above in self._left:", "if False:"),
    Fault(
        "loans are overlooked",
        "deadlocks",
        "return lender is not None and (slot, lender) not in self._lent",
        "return False",
    ),
    Fault(
        "a queue is gone through once",
        "deadlocks",
        "if known is not None and known >= one.order:",
        "if known is not None:",
        seed=8,
    ),
    Fault("every lane has one slot", "deadlocks", "< self._limits.get(slot, 1)", "< 1"),
    Fault("the ring lacks its head", "deadlocks", "return _owners(way)", "return _owners(way[1:])"),
    # The table
    Fault(
        "a release wakes nobody",
        "table",
        "                words[level] = word\n                self._nodes.admit(level, ready)",
        "                words[level] = word",
    ),
    Fault(
        "those granted come unsorted",
        "table",
        "ready.sort(key=by_order)",
        "ready.sort(key=by_order, reverse=True)",
    ),
    Fault(
        "tokens stand still",
        "table",
        "self._tokens = request.token = self._tokens + 1\n            request.granted = True\n"
        "            self._nested",
        "request.token = self._tokens + 1\n            request.granted = True\n"
        "            self._nested",
    ),
    Fault("a new cap forgets those inside", "table", "self._cap(slot)\n", "pass\n"),
    Fault(
        "empty nodes stay",
        "table",
        "                del words[level]",
        "                words[level] = 0",
    ),
    Fault(
        "a priority is worth nothing",
        "table",
        "now -= priority * self._ageing_seconds",
        "now -= 0",
    ),
    Fault(
        "a priority is worth half",
        "table",
        "now -= priority * self._ageing_seconds",
        "now -= priority * self._ageing_seconds / 2",
    ),
    Fault("priorities share a queue", "table", "priority * PLACES\n", "0\n"),
    Fault("rings are not looked for", "table", "if request.pending and risky:", "if False:"),
    Fault(
        "a priority closes a ring",
        "table",
        "if self._nested_waiters and self._passing.rings(request):",
        "if False:",
    ),
    Fault("a part is refused for waiters", "passing", "if not behind:", "if True:"),
    Fault("a part passes too few", "passing", "just_before(min(behind)", "just_before(max(behind)"),
    Fault("parts are not counted", "table", "parent.children += 1", "pass"),
    Fault("a grandparent is a stranger", "table", "dict(parent.family or ())", "{}"),
    Fault(
        "a narrower lane leaves a ring",
        "table",
        "*self._grant(ready), *self._break_rings()",
        "*self._grant(ready)",
        seed=5,
    ),
    Fault(
        "the eldest in a ring is refused",
        "table",
        "last = max((one for one in stuck",
        "last = min((one for one in stuck",
        seed=6,
    ),
    Fault(
        "a part that came late is passed",
        "table",
        "self._passing.latest = max(self._passing.latest, request.order[0])",
        "pass",
    ),
    # Explaining
    Fault(
        "holders are named to nobody",
        "waits",
        "if request.granted:\n            before",
        "if False:\n            before",
    ),
    Fault("an ancestor is named", "waits", "if one in family:", "if False:"),
)
LANE_MODULES = (
    "modes",
    "requests",
    "loans",
    "pools",
    "slots",
    "nodes",
    "deadlocks",
    "waits",
    "passing",
    "plans",
    "table",
)


@contextmanager
def seeded(fault: Fault) -> Generator[Any]:
    """A lane table from a copy of the lane code that has the fault."""
    names = [f"laneway.lanes.{name}" for name in LANE_MODULES]
    sound = {name: importlib.import_module(name) for name in names}
    assert fault.module in LANE_MODULES
    try:
        for name in names:
            source = Path(str(sound[name].__file__)).read_text(encoding="utf-8")
            if name.endswith(f".{fault.module}"):
                assert source.count(fault.line) == 1, (
                    f"{fault.name}: the line is gone, or not alone"
                )
                source = source.replace(fault.line, fault.slip)
            module = sys.modules[name] = ModuleType(name)
            exec(compile(source, f"<{fault.name}>", "exec"), module.__dict__)  # noqa: S102
        yield sys.modules["laneway.lanes.table"].LaneTable
    finally:
        sys.modules.update(sound)


def throw_dice(table_class: Any, *, seed: int, steps: int) -> None:
    """Drive the machine by its own rules, evenly: Hypothesis likes small examples better."""
    dice = Random(seed)
    deeds = ["ask"] * 3 + ["nest"] * 3 + ["release"] * 3 + ["withdraw", "resize", "lose", "stop"]
    done = 0
    while done < steps:
        machine = LaneMachine(table_class)
        machine.choose(dice.sample(RESOURCES, dice.randint(2, 5)))
        for _ in range(30):
            done += 1
            throw(machine, dice.choice(deeds), dice)
            machine.check()
        machine.teardown()


def throw(machine: LaneMachine, deed: str, dice: Random) -> None:
    at = dice.randrange(64)
    match deed:
        case "release" if machine.stoppable():
            machine.release(at)
        case "withdraw" if machine.waiters():
            machine.withdraw(at)
        case "resize" if machine.resized:
            machine.resize(at, dice.randint(1, 3))
        case "lose" if machine.holders():
            machine.lose(at)
        case "stop" if machine.stopping():
            machine.stop(at)
        case _:
            count = dice.randint(1, 3)
            wanted = [(dice.randrange(64), dice.choice(ACCESS)) for _ in range(count)]
            if deed == "nest" and machine.holders():
                machine.nest(wanted, dice.choice(PRIORITIES), at)
            else:
                machine.ask(wanted, dice.choice(PRIORITIES), dice.choice((0, 1, 4)))


def test_hypothesis_finds_no_fault_in_the_lane_table() -> None:
    LaneMachine.checks = 0

    run_state_machine_as_test(LaneMachine, settings=settings(stateful_step_count=25, deadline=None))

    print(f"Hypothesis drove the lane table for {LaneMachine.checks:,} steps.")


def test_the_dice_find_no_fault_in_the_lane_table() -> None:
    steps = 20 * settings().max_examples
    LaneMachine.checks = 0

    throw_dice(LaneTable, seed=1, steps=steps)

    print(f"The dice drove the lane table for {LaneMachine.checks:,} steps.")
    assert LaneMachine.checks >= steps


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
def test_the_dice_find_a_seeded_fault(fault: Fault) -> None:
    with (
        seeded(fault) as faulty,
        pytest.raises((AssertionError, LookupError, LanewayError)),
    ):
        throw_dice(faulty, seed=fault.seed, steps=20_000)
