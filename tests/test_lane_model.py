"""The lane table against a naive model, driven at random; and a proof that the drive has teeth.

The model keeps a list of requests in the order of their tickets and compares all pairs, claim by
claim. The table must grant exactly what the model grants, at every step. Then faults are seeded in
copies of the lane code, one at a time: the same drive must find each of them.
"""

import importlib
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
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

any_place = st.integers(min_value=0, max_value=63)
wants = st.lists(st.tuples(any_place, st.sampled_from(ACCESS)), max_size=4)


@dataclass(eq=False)
class Wish:
    """A request as the model sees it; its place in the model's list is its ticket."""

    name: int
    claims: list[Claim]
    granted: bool = False


def among(things: Sequence[T], at: int) -> T:
    return things[at % len(things)]


def is_slot(resource: str, limits: dict[str, int]) -> bool:
    return resource.startswith("lane:") or resource in limits


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


@dataclass
class Model:
    """Nothing but the rules, at a cost of n²."""

    limits: dict[str, int]
    wishes: list[Wish] = field(default_factory=list[Wish])

    def slots(self, wish: Wish) -> set[str]:
        return {c.resource for c in wish.claims if is_slot(c.resource, self.limits)}

    def full(self, wish: Wish, slot: str) -> list[Wish]:
        """Who keeps it out of the lane: the older ones and those who are in, if they are enough."""
        at = self.wishes.index(wish)
        before = [
            other
            for place, other in enumerate(self.wishes)
            if slot in self.slots(other) and (place < at or (place > at and other.granted))
        ]
        return before if len(before) >= self.limits.get(slot, 1) else []

    def blocked(self, wish: Wish) -> list[Wish]:
        at = self.wishes.index(wish)
        found = [other for other in self.wishes[:at] if conflict(wish, other)]
        for slot in self.slots(wish):
            found += self.full(wish, slot)
        return found

    def settle(self) -> list[int]:
        """Grant what may be granted; returns the names, oldest first."""
        granted: list[int] = []
        for wish in self.wishes:
            if not wish.granted and not self.blocked(wish):
                wish.granted = True
                granted.append(wish.name)
        return granted


class LaneMachine(RuleBasedStateMachine):
    """Asks, releases, withdraws, sheds and resizes at random."""

    def __init__(self, table_class: Any = LaneTable) -> None:
        super().__init__()
        self.table = table_class(dict(LIMITS))
        self.model = Model(dict(LIMITS))
        self.requests: dict[int, Any] = {}
        self.pool: list[str] = []
        self.resized: list[str] = []
        self.asked = 0
        self.last_token = 0

    @initialize(pool=st.lists(st.sampled_from(RESOURCES), min_size=2, max_size=5, unique=True))
    def choose(self, pool: list[str]) -> None:
        """Few resources in each example, so that requests meet."""
        self.pool = pool
        self.resized = [resource for resource in pool if resource in RESIZED]

    @rule(wanted=wants)
    def ask(self, wanted: list[tuple[int, Access]]) -> None:
        self.asked += 1
        wish = Wish(self.asked, [Claim(among(self.pool, at), access) for at, access in wanted])
        self.model.wishes.append(wish)
        request = self.table.request(wish.claims, wish.name)
        self.requests[wish.name] = request
        self.compare([request] if request.granted else [])

    @precondition(lambda self: self.holders())
    @rule(at=any_place)
    def release(self, at: int) -> None:
        self.give_back(among(self.holders(), at))

    @precondition(lambda self: self.waiters())
    @rule(at=any_place)
    def withdraw(self, at: int) -> None:
        wish = among(self.waiters(), at)
        self.model.wishes.remove(wish)
        self.compare(self.table.withdraw(self.requests.pop(wish.name)))

    @precondition(lambda self: any(wish.claims for wish in self.holders()))
    @rule(at=any_place, which=any_place)
    def shed(self, at: int, which: int) -> None:
        wish = among([wish for wish in self.holders() if wish.claims], at)
        resource = among(wish.claims, which).resource
        wish.claims = [claim for claim in wish.claims if claim.resource != resource]
        self.compare(self.table.shed(self.requests[wish.name], resource))

    @precondition(lambda self: self.resized)
    @rule(at=any_place, limit=st.integers(1, 3))
    def resize(self, at: int, limit: int) -> None:
        resource = among(self.resized, at)
        self.model.limits[resource] = limit
        self.compare(self.table.resize(resource, limit))

    @invariant()
    def holders_exclude_each_other(self) -> None:
        holders = self.holders()
        for at, wish in enumerate(holders):
            assert not any(conflict(wish, other) for other in holders[:at])

    @invariant()
    def the_same_are_granted(self) -> None:
        assert [self.requests[wish.name].granted for wish in self.model.wishes] == [
            wish.granted for wish in self.model.wishes
        ]

    @invariant()
    def every_waiter_has_a_blocker_and_the_oldest_is_named(self) -> None:
        named = {request.owner: blockers for request, blockers in self.table.waits()}
        assert list(named) == [wish.name for wish in self.waiters()]
        places = {wish.name: place for place, wish in enumerate(self.model.wishes)}
        for wish in self.waiters():
            expected = sorted({places[other.name] for other in self.model.blocked(wish)})
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

    def teardown(self) -> None:
        """Nobody starves: releases alone bring everybody in, and leave nothing behind."""
        while holders := self.holders():
            self.give_back(holders[0])
        assert not self.waiters()
        assert len(self.table) == 0
        assert not self.table._queues
        assert not self.table._slots._lines
        assert not self.table._live

    def give_back(self, wish: Wish) -> None:
        self.model.wishes.remove(wish)
        self.compare(self.table.release(self.requests.pop(wish.name)))

    def compare(self, granted: Sequence[Any]) -> None:
        assert [request.owner for request in granted] == self.model.settle()
        for request in granted:
            assert request.token > self.last_token
            self.last_token = request.token

    def holders(self) -> list[Wish]:
        return [wish for wish in self.model.wishes if wish.granted]

    def waiters(self) -> list[Wish]:
        return [wish for wish in self.model.wishes if not wish.granted]


TestLaneTable = LaneMachine.TestCase
TestLaneTable.settings = settings(stateful_step_count=25, deadline=None)
# Up to 2,500 steps with Hypothesis' default of 100 examples, and the dice below throw 2,000; a
# profile with 5,000 examples makes it 125,000 and 100,000.


class Fault(NamedTuple):
    """One line of the lane code, and what a slip would make of it."""

    name: str
    module: str
    line: str
    slip: str


FAULTS = (
    Fault("IX passes S", "modes", "frozenset({S, SIX, X}),", "frozenset({SIX, X}),"),
    Fault("IS waits for IX", "modes", "frozenset({X}),", "frozenset({IX, X}),"),
    Fault("S and IX merge to IX", "modes", "(S, SIX, S, SIX, X)", "(S, IX, S, SIX, X)"),
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
    Fault("one too many in a lane", "slots", "if used < self.limits", "if used <= self.limits"),
    Fault(
        "the next in line sleeps on",
        "slots",
        "if slot in self._lines:",
        "if slot not in self._lines:",
    ),
    Fault(
        "a withdrawn waiter keeps its slot",
        "slots",
        "            self.leave(slot, ready)",
        "            pass",
    ),
    Fault(
        "a waiter keeps its slot in a narrower lane",
        "slots",
        "if not request.granted and slot in",
        "if request.granted and slot in",
    ),
    Fault(
        "a slot handed back goes to the end",
        "slots",
        "line.move_to_end(request, last=False)",
        "pass",
    ),
    Fault(
        "the line is served from its end",
        "slots",
        "request = next(iter(line))",
        "request = next(reversed(line))",
    ),
    Fault(
        "a wider lane lets nobody in",
        "slots",
        "        self._admit(slot, ready)\n\n    def in_line",
        "\n    def in_line",
    ),
    Fault("waiters of one mode bar no other", "table", "barred |= _BARS[mode]", "barred |= 0"),
    Fault(
        "who is barred bars nobody",
        "table",
        "while waiting := word & WAITING & ~stopped:",
        "while waiting := word & WAITING & ~(stopped | barred):",
    ),
    Fault("the youngest head goes first", "table", "mode = min(", "mode = max("),
    Fault("a holder bars nobody", "table", "if word & HELD_AGAINST[mode] or", "if"),
    Fault(
        "only one is let in",
        "table",
        "            clear(oldest, ready)\n",
        "            clear(oldest, ready)\n            break\n",
    ),
    Fault(
        "a release wakes nobody",
        "table",
        "                words[level] = word\n                self._admit(level, ready)",
        "                words[level] = word",
    ),
    Fault(
        "a withdrawal wakes nobody",
        "table",
        "                self._words[level] -= unit\n            self._settle(level, ready)",
        "                self._words[level] -= unit",
    ),
    Fault(
        "the sign of waiters stays up", "table", "            self._words[level] ^= 1 << mode\n", ""
    ),
    Fault(
        "the last of a queue leaves the sign up",
        "table",
        "                word ^= 1 << mode\n",
        "                pass\n",
    ),
    Fault("shedding frees too much", "table", "kept.get(level, 0) - unit", "-unit"),
    Fault(
        "shedding wakes nobody",
        "table",
        "- unit\n            self._settle(level, ready)\n        for slot in old",
        "- unit\n        for slot in old",
    ),
    Fault("shedding keeps the slot", "table", "if slot not in request.slots:", "if False:"),
    Fault(
        "those granted come unsorted",
        "table",
        "ready.sort(key=_by_ticket)",
        "ready.sort(key=_by_ticket, reverse=True)",
    ),
    Fault(
        "tokens stand still",
        "table",
        "for request in ready:\n            self._tokens = request.token",
        "for request in ready:\n            request.token",
    ),
    Fault("a new cap forgets those inside", "table", "self._cap(slot)\n", "pass\n"),
    Fault(
        "empty nodes stay",
        "table",
        "                del words[level]",
        "                words[level] = 0",
    ),
)
LANE_MODULES = ("modes", "requests", "slots", "statistics", "waits", "table")


@contextmanager
def seeded(fault: Fault) -> Generator[Any]:
    """A lane table from a copy of the lane code that has the fault."""
    names = [f"laneway.lanes.{name}" for name in LANE_MODULES]
    sound = {name: importlib.import_module(name) for name in names}
    try:
        for name in names:
            source = Path(str(sound[name].__file__)).read_text(encoding="utf-8")
            if name.endswith(fault.module):
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
    while steps > 0:
        machine = LaneMachine(table_class)
        machine.choose(dice.sample(RESOURCES, dice.randint(2, 5)))
        for _ in range(40):
            steps -= 1
            at, which = dice.randrange(64), dice.randrange(64)
            match dice.choice(["ask"] * 5 + ["release"] * 3 + ["withdraw", "shed", "resize"]):
                case "release" if machine.holders():
                    machine.release(at)
                case "withdraw" if machine.waiters():
                    machine.withdraw(at)
                case "shed" if any(wish.claims for wish in machine.holders()):
                    machine.shed(at, which)
                case "resize" if machine.resized:
                    machine.resize(at, dice.randint(1, 3))
                case _:
                    count = dice.randint(1, 4)
                    machine.ask([(dice.randrange(64), dice.choice(ACCESS)) for _ in range(count)])
            machine.check()
        machine.teardown()


def test_the_dice_find_no_fault_in_the_lane_table() -> None:
    throw_dice(LaneTable, seed=1, steps=20 * settings().max_examples)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
def test_the_dice_find_a_seeded_fault(fault: Fault) -> None:
    with (
        seeded(fault) as faulty,
        pytest.raises((AssertionError, LookupError, LanewayError)),
    ):
        throw_dice(faulty, seed=1, steps=20_000)
