"""The lane table under control: groups with reservations, rates, pauses, barriers, bounds."""

import os
from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laneway.claims import Access, Claim, exclusive, shared
from laneway.errors import UsageError
from laneway.lanes.lane import Lane, Rate
from laneway.lanes.requests import Request
from laneway.lanes.statistics import Holder, LaneStatus, Waiter
from laneway.lanes.table import LaneTable

ROUNDS = int(os.environ.get("LANEWAY_ROUNDS", "1"))
"""How many times as long to look: `make fuzz` sets it."""

MAIL = exclusive("lane:mail")
ORDERS = exclusive("db:shop/orders")
GROUP = "lane:shop"
SHOP = Lane(max_concurrent=5, over=["db:shop"], reserved={"db:shop/orders": 2})


def others(n: int) -> Claim:
    return exclusive(f"db:shop/t{n}")


def orders(n: int) -> Claim:
    return exclusive(f"db:shop/orders/{n}")


def owners(requests: Iterable[Request[str]]) -> list[str]:
    return [request.owner for request in requests]


def test_a_group_counts_calls_over_all_that_is_below_on_and_above_its_resource() -> None:
    table = LaneTable[str]({GROUP: Lane(max_concurrent=2, over=["db:shop/a"])})
    table.request([shared("db:shop/a/1")], "below")
    table.request([shared("db:shop/a")], "on")

    above = table.request([shared("db:")], "above")
    beside = table.request([shared("db:shop/b")], "beside")

    assert (above.granted, beside.granted) == (False, True)
    assert above.slots == (GROUP,)


def test_a_call_takes_one_slot_of_a_group_however_many_of_its_claims_are_in_it() -> None:
    table = LaneTable[str]({GROUP: Lane(max_concurrent=2, over=["db:shop"])})

    table.request([others(1), others(2), exclusive(GROUP)], "both, and the lane itself")

    assert table.request([others(3)], "another").granted


def test_others_leave_what_is_reserved() -> None:
    table = LaneTable[str]({GROUP: SHOP})
    for n in range(3):
        assert table.request([others(n)], f"other {n}").granted

    fourth = table.request([others(4)], "one too many")
    kept = [table.request([orders(n)], f"orders {n}") for n in range(3)]

    assert not fourth.granted
    assert [one.granted for one in kept] == [True, True, False]


def test_those_for_whom_slots_are_reserved_may_have_the_open_ones_too() -> None:
    table = LaneTable[str]({GROUP: SHOP})
    kept = [table.request([orders(n)], f"orders {n}") for n in range(5)]
    other = table.request([others(0)], "other")

    assert all(one.granted for one in kept)
    assert not other.granted
    assert owners(table.release(kept[0])) == ["other"]


def test_an_older_waiter_of_the_others_gets_an_open_slot_before_a_younger_of_the_reserved() -> None:
    table = LaneTable[str]({GROUP: SHOP})
    held = [table.request([others(n)], f"other {n}") for n in range(3)]
    for n in range(2):
        table.request([orders(n)], f"orders {n}")
    table.request([others(8)], "older")
    table.request([orders(9)], "younger")

    assert owners(table.release(held[0])) == ["older"]


def test_a_reserved_slot_is_for_its_own_even_if_others_are_older() -> None:
    table = LaneTable[str]({GROUP: SHOP})
    for n in range(3):
        table.request([others(n)], f"other {n}")
    kept = [table.request([orders(n)], f"orders {n}") for n in range(2)]
    table.request([others(8)], "older")
    table.request([orders(9)], "younger")

    assert owners(table.release(kept[0])) == ["younger"]


def test_a_priority_takes_an_open_slot_from_a_waiter_of_a_reserved_share() -> None:
    table = LaneTable[str](
        {GROUP: Lane(max_concurrent=2, over=["db:shop"], reserved={"db:shop/orders": 1})}
    )
    table.request([exclusive("file:/x")], "holder of x")
    table.request([orders(1)], "has the reserved slot")
    waits = table.request([orders(2), exclusive("file:/x")], "has the open one, waits for x")

    urgent = table.request([others(1)], "urgent", priority=1)

    assert urgent.granted
    assert table.held_up(waits) == ([], [])
    assert waits.pending == 2


def test_a_nested_request_uses_the_slot_of_its_holder_in_a_group() -> None:
    table = LaneTable[str]({GROUP: Lane(max_concurrent=1, over=["db:shop"])})
    parent = table.request([others(1)], "parent")

    child = table.request([orders(1)], "child", parent=parent)

    assert child.granted
    assert child.borrowed == frozenset({GROUP})


def test_a_reserved_slot_is_handed_back_where_holders_fill_the_narrower_group() -> None:
    table = LaneTable[str]({GROUP: SHOP})
    inside = [table.request([others(n)], f"other {n}") for n in range(3)]
    elsewhere = table.request([exclusive("db:other")], "elsewhere")
    waiter = table.request([orders(1), exclusive("db:other")], "has a reserved slot, and waits")

    assert table.resize(GROUP, 3) == []
    assert table.release(elsewhere) == []
    assert table.release(inside[0]) == [waiter]


def test_open_slots_are_handed_back_before_reserved_ones() -> None:
    table = LaneTable[str]({GROUP: SHOP})
    inside = [table.request([others(n)], f"other {n}") for n in range(2)]
    elsewhere = table.request([exclusive("db:other")], "elsewhere")
    open_slot = table.request([others(3), exclusive("db:other")], "waits with an open slot")
    reserved = table.request([orders(1), exclusive("db:other")], "waits with a reserved slot")

    table.resize(GROUP, 3)
    assert table.withdraw(open_slot) == []
    assert table.release(elsewhere) == [reserved]
    for one in (*inside, reserved):
        table.release(one)

    assert len(table) == 0


def test_a_ring_through_a_group_is_seen_though_reserved_slots_are_free() -> None:
    group = Lane(max_concurrent=2, over=["db:shop"], reserved={"db:shop/orders": 1})
    table = LaneTable[str]({GROUP: group})
    in_group = table.request([others(1)], "in the group")
    of_file = table.request([exclusive("file:/x")], "of the file")
    table.request([exclusive("file:/x")], "wants the file", parent=in_group)

    closing = table.request([others(2)], "wants a slot", parent=of_file)

    assert closing.refused
    assert closing.cycle == ("wants a slot", "in the group", "wants the file", "of the file")


def test_the_same_waits_are_no_ring_for_whom_a_slot_is_reserved() -> None:
    group = Lane(max_concurrent=2, over=["db:shop"], reserved={"db:shop/orders": 1})
    table = LaneTable[str]({GROUP: group})
    in_group = table.request([others(1)], "in the group")
    of_file = table.request([exclusive("file:/x")], "of the file")
    table.request([exclusive("file:/x")], "wants the file", parent=in_group)

    assert table.request([orders(2)], "wants a slot", parent=of_file).granted


def test_a_group_cannot_be_made_so_narrow_that_nothing_is_open() -> None:
    table = LaneTable[str]({GROUP: SHOP})

    with pytest.raises(
        UsageError, match="lane:shop can't be 2, since 2 are reserved in it; give 3"
    ):
        table.resize(GROUP, 2)

    assert table.resize(GROUP, 3) == []


def test_a_narrower_group_takes_open_slots_back_from_waiters() -> None:
    table = LaneTable[str]({GROUP: SHOP})
    table.request([exclusive("file:/x")], "holder of x")
    for n in range(2):
        table.request([orders(n)], f"orders {n}")
    early = [table.request([others(n), exclusive("file:/x")], f"other {n}") for n in range(3)]

    table.resize(GROUP, 3)

    assert [one.pending for one in early] == [1, 2, 2]


def test_a_rate_lets_in_as_many_as_may_start_and_the_next_when_a_start_lapses() -> None:
    table = LaneTable[str](
        {"lane:mail": Lane(max_concurrent=None, rate=Rate(starts=2, per_seconds=9))}
    )
    first, second, third = (table.request([MAIL], name) for name in "123")

    assert [first.granted, second.granted, third.granted] == [True, True, False]
    assert table.start(first) == ["lane:mail"]
    assert table.release(first) == []
    assert table.held_up(third) == ([], ["lane:mail"])
    assert table.blockers(third) == ()
    assert owners(table.lapse("lane:mail")) == ["3"]


def test_a_start_that_never_was_is_given_back_at_once() -> None:
    table = LaneTable[str](
        {"lane:mail": Lane(rate=Rate(starts=1, per_seconds=9), max_concurrent=5)}
    )
    first = table.request([MAIL], "not started")
    table.request([MAIL], "next")

    assert owners(table.release(first)) == ["next"]


def test_a_nested_request_counts_in_the_rate_though_it_uses_its_holders_slot() -> None:
    table = LaneTable[str]({"lane:mail": Lane(rate=Rate(starts=1, per_seconds=9))})
    parent = table.request([MAIL], "parent")
    table.start(parent)

    child = table.request([MAIL], "child", parent=parent)

    assert not child.granted
    assert not child.refused
    assert owners(table.lapse("lane:mail")) == ["child"]


def test_waiting_for_time_is_no_ring_even_if_the_start_was_the_holders_own() -> None:
    lane = Lane(rate=Rate(starts=1, per_seconds=9), max_concurrent=None)
    table = LaneTable[str]({"lane:mail": lane})
    parent = table.request([MAIL, exclusive("file:/x")], "parent")
    table.start(parent)
    table.request([exclusive("file:/x")], "waits for the parent")

    child = table.request([MAIL], "child", parent=parent)

    assert not child.refused
    assert owners(table.lapse("lane:mail")) == ["child"]


def test_a_lane_whose_starts_have_lapsed_is_as_if_nobody_had_come() -> None:
    table = LaneTable[str]({"lane:mail": Lane(rate=Rate(starts=2, per_seconds=9))})
    one = table.request([MAIL], "one")
    table.start(one)
    table.release(one)

    assert len(table) == 0

    table.lapse("lane:mail")
    two = [table.request([MAIL], name) for name in "ab"]
    assert [one.granted for one in two] == [True, False]


def test_a_paused_lane_lets_nobody_in_and_hurts_nobody_inside() -> None:
    table = LaneTable[str]({"lane:mail": 2})
    inside = table.request([MAIL], "inside")
    table.pause("lane:mail")

    outside = table.request([MAIL], "outside")

    assert inside.granted
    assert not outside.granted
    assert table.held_up(outside) == (["lane:mail"], [])
    assert table.blockers(outside) == ()
    assert table.release(inside) == []
    assert owners(table.resume("lane:mail")) == ["outside"]


def test_a_pause_takes_the_slot_of_who_waits_elsewhere() -> None:
    table = LaneTable[str]()
    file = table.request([exclusive("file:/x")], "file")
    both = table.request([exclusive("file:/x"), MAIL], "both")
    table.pause("lane:mail")

    assert table.release(file) == []
    assert not both.granted
    assert owners(table.resume("lane:mail")) == ["both"]


def test_in_a_paused_lane_a_nested_request_goes_on_with_its_holders_slot() -> None:
    table = LaneTable[str]({"lane:mail": 2})
    parent = table.request([MAIL], "parent")
    table.pause("lane:mail")

    child = table.request([MAIL], "child", parent=parent)
    sibling = table.request([MAIL], "sibling", parent=parent)

    assert child.granted
    assert not sibling.granted
    assert not sibling.refused
    assert owners(table.release(child)) == ["sibling"]


def test_a_lane_nobody_has_named_can_be_paused_and_is_forgotten_afterwards() -> None:
    table = LaneTable[str]()
    table.pause("lane:mail")
    waiting = [table.request([MAIL], name) for name in "ab"]

    assert table.snapshot()[0].paused
    assert owners(table.resume("lane:mail")) == ["a"]
    assert owners(table.release(waiting[0])) == ["b"]
    table.release(waiting[1])
    assert table.snapshot() == ()


def test_a_barrier_waits_for_holders_and_goes_before_all_who_wait() -> None:
    table = LaneTable[str]()
    entered: list[str] = []
    holder = table.request([exclusive("file:/w/a")], "holder")
    waiter = table.request([exclusive("file:/w/a")], "waiter")
    barrier = table.barrier([exclusive("file:/w")], lambda: entered.append("barrier"))
    beside = table.request([exclusive("file:/x")], "beside")

    assert (barrier.granted, waiter.granted, beside.granted) == (False, False, True)
    assert [blocker.owner for blocker in table.blockers(waiter)] == [None, "holder"]
    assert table.release(holder) == []
    assert entered == ["barrier"]
    assert owners(table.release(barrier)) == ["waiter"]


def test_a_barrier_that_is_withdrawn_leaves_no_trace() -> None:
    table = LaneTable[str]()
    holder = table.request([shared("file:/w/a")], "holder")
    barrier = table.barrier([exclusive("file:/w")], list[str]().clear)
    reader = table.request([shared("file:/w/b")], "reader")

    assert not reader.granted
    assert owners(table.withdraw(barrier)) == ["reader"]
    table.release(holder)
    table.release(reader)
    assert len(table) == 0
    assert table.snapshot() == ()


def test_a_barrier_lets_a_nested_request_pass_whose_holder_it_waits_for() -> None:
    table = LaneTable[str]()
    parent = table.request([exclusive("file:/w/a")], "parent")
    other = table.request([exclusive("file:/w/b")], "other")
    early = table.request([shared("file:/w/b")], "came before", parent=parent)
    barrier = table.barrier([exclusive("file:/w")], list[str]().clear)

    late = table.request([shared("file:/w/b")], "came after", parent=parent)

    assert owners(table.release(other)) == ["came before", "came after"]
    assert not barrier.granted
    for request in (early, late, parent):
        table.release(request)
    assert barrier.granted


def test_barriers_go_in_their_own_order() -> None:
    table = LaneTable[str]()
    entered: list[str] = []
    first = table.barrier([exclusive("file:/w")], lambda: entered.append("first"))
    second = table.barrier([exclusive("file:/w/a")], lambda: entered.append("second"))
    third = table.barrier([exclusive("file:/w")], lambda: entered.append("third"))

    table.release(first)
    table.release(second)
    table.release(third)

    assert entered == ["second", "third"]


def test_one_waiter_too_many_is_sent_away_and_nothing_else_is_touched() -> None:
    table = LaneTable[str]({"lane:mail": Lane(max_waiting=1, when_full="refuse")})
    holder = table.request([MAIL], "holder")
    table.request([MAIL], "waiter")

    third = table.request([MAIL, ORDERS], "third")

    assert third.full == "lane:mail"
    assert not third.granted
    assert not third.refused
    assert table.crowd("lane:mail") == (1, 1, 1)
    assert table.request([ORDERS], "elsewhere").granted
    assert owners(table.release(holder)) == ["waiter"]


def test_who_need_not_wait_is_let_in_whatever_the_bound() -> None:
    table = LaneTable[str]({"lane:mail": Lane(max_waiting=0, when_full="refuse")})

    first, second = (table.request([MAIL], name) for name in "12")

    assert (first.granted, second.full) == (True, "lane:mail")


def test_who_has_waited_before_and_who_is_nested_is_never_sent_away() -> None:
    table = LaneTable[str](
        {"lane:mail": Lane(max_waiting=1, when_full="refuse"), "lane:other": Lane()}
    )
    parent = table.request([exclusive("lane:other")], "parent")
    table.request([MAIL], "holder")
    nested = table.request([MAIL], "nested", parent=parent)
    waiter = table.request([MAIL], "waiter")

    again = table.request([MAIL], "again", refusable=False)

    assert [one.full for one in (nested, waiter, again)] == ["", "", ""]
    assert table.request([MAIL], "third").full == "lane:mail"


def test_who_comes_ahead_of_others_is_sent_away_if_it_would_wait_all_the_same() -> None:
    table = LaneTable[str]({"lane:mail": Lane(max_waiting=1, when_full="refuse")})
    holder = table.request([MAIL], "holder")
    table.request([MAIL], "waiter")

    urgent = table.request([MAIL], "urgent", priority=3)

    assert urgent.full == "lane:mail"
    assert owners(table.release(holder)) == ["waiter"]


def test_a_watch_counts_who_comes_and_goes() -> None:
    table = LaneTable[str]()
    told: list[tuple[int, int]] = []
    one = table.request([shared("db:shop/a")], "below")
    watch = table.watch("db:shop", lambda: told.append((watch.holders, watch.waiters)))
    two = table.request([exclusive("db:")], "above")
    table.request([shared("file:/x")], "elsewhere")

    assert (watch.holders, watch.waiters, watch.outside, watch.idle) == (1, 1, 1, False)
    table.release(one)
    table.release(two)
    assert told == [(0, 1), (1, 0), (0, 0)]
    assert watch.idle
    table.unwatch(watch)
    table.request([ORDERS], "unseen")
    assert watch.idle


def test_a_picture_tells_how_a_lane_is_configured_and_who_is_in_a_group() -> None:
    lane = Lane(
        max_concurrent=3,
        over=["db:shop"],
        reserved={"db:shop/orders": 1},
        max_waiting=4,
        rate=Rate(starts=9, per_seconds=2),
    )
    table = LaneTable[str]({GROUP: lane, "lane:any": Lane(max_concurrent=None)})
    table.request([orders(1)], "a")
    table.request([orders(1)], "b")
    table.barrier([exclusive("file:/x")], list[str]().clear)

    any_number, _, group = sorted(table.snapshot(), key=lambda one: one.resource != "lane:any")

    assert any_number == LaneStatus(resource="lane:any", max_concurrent=None)
    assert group == LaneStatus(
        resource=GROUP,
        max_concurrent=3,
        rate=lane.rate,
        over=("db:shop",),
        reserved={"db:shop/orders": 1},
        max_waiting=4,
        holders=(Holder("a", Access.EXCLUSIVE, token=1),),
        waiters=(Waiter("b", Access.EXCLUSIVE),),
    )


RESOURCES = (
    "db:shop/orders/1",
    "db:shop/a",
    "db:shop",
    "db:",
    "file:/x",
    "lane:mail",
    "lane:rate",
    "lane:bound",
)
CONTROLLED = ("lane:mail", GROUP, "lane:rate", "lane:bound")
LANES: dict[str, int | Lane] = {
    GROUP: Lane(max_concurrent=4, over=["db:shop"], reserved={"db:shop/orders": 1, "db:shop/a": 1}),
    "lane:mail": 2,
    "lane:rate": Lane(max_concurrent=2, rate=Rate(starts=3, per_seconds=5)),
    "lane:bound": Lane(max_waiting=2, when_full="refuse"),
}


class Drive:
    """The table, driven at random, beside what is known of it without looking inside."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.table = LaneTable[int](LANES, ageing_seconds=5)
        self.limits = {GROUP: 4, "lane:mail": 2, "lane:rate": 2, "lane:bound": 1}
        self.live: list[Request[int]] = []
        self.barriers: list[Request[int]] = []
        self.paused: set[str] = set()
        self.starts: list[float] = []
        self.lapsing: list[float] = []
        self.now = 0.0
        self.asked = 0

    def step(self) -> None:
        deed = self.dice.choice(
            [self.ask] * 6
            + [self.give] * 5
            + [self.leave, self.pause, self.resume, self.resize]
            + [self.bar, self.lift]
            + [self.wait] * 2
        )
        deed()
        self.check()

    def ask(self) -> None:
        claims = [
            Claim(self.dice.choice(RESOURCES), self.dice.choice(list(Access)))
            for _ in range(self.dice.randint(1, 3))
        ]
        holders = [one for one in self.live if one.granted]
        nested = holders and self.dice.random() < 0.4
        self.asked += 1
        request = self.table.request(
            claims,
            self.asked,
            now=self.now,
            priority=self.dice.choice([0, 0, 0, 1, -1]),
            parent=self.dice.choice(holders) if nested else None,
        )
        if request.full:
            outside = [
                one
                for one in self.live
                if request.full in one.slots and not one.granted and one.parent is None
            ]
            assert len(outside) >= 2
        elif not request.refused:
            self.live.append(request)
            self.granted([request] if request.granted else [])

    def give(self) -> None:
        holders = [one for one in self.live if one.granted and not one.children]
        if holders:
            request = self.dice.choice(holders)
            self.live.remove(request)
            self.granted(self.table.release(request))

    def leave(self) -> None:
        waiters = [one for one in self.live if not one.granted]
        if waiters:
            request = self.dice.choice(waiters)
            self.live.remove(request)
            self.granted(self.table.withdraw(request))

    def pause(self) -> None:
        lane = self.dice.choice(CONTROLLED)
        self.paused.add(lane)
        self.table.pause(lane)

    def resume(self) -> None:
        if self.paused:
            lane = self.dice.choice(sorted(self.paused))
            self.paused.discard(lane)
            self.granted(self.table.resume(lane))

    def resize(self) -> None:
        lane = self.dice.choice(CONTROLLED)
        self.limits[lane] = self.dice.randint(3 if lane == GROUP else 1, 5)
        changed = self.table.resize(lane, self.limits[lane])
        self.live = [one for one in self.live if not one.refused]
        self.granted([one for one in changed if not one.refused], resized=True)

    def bar(self) -> None:
        if len(self.barriers) < 2:
            resource = self.dice.choice([one for one in RESOURCES if one[:4] != "lane"])
            barrier = self.table.barrier([exclusive(resource)], self.entered)
            self.barriers.append(barrier)

    def lift(self) -> None:
        if self.barriers:
            barrier = self.barriers.pop(self.dice.randrange(len(self.barriers)))
            give = self.table.release if barrier.granted else self.table.withdraw
            self.granted(give(barrier))

    def entered(self) -> None:
        """A barrier is in; `check` sees whether rightly."""

    def wait(self) -> None:
        self.now += self.dice.choice([1.0, 2.0, 6.0])
        while self.lapsing and self.lapsing[0] <= self.now:
            self.lapsing.pop(0)
            self.granted(self.table.lapse("lane:rate"))

    def granted(self, requests: list[Request[int]], *, resized: bool = False) -> None:
        for request in requests:
            assert request.granted
            assert not self.paused.intersection(request.slots) - request.borrowed
            for lane in set(request.slots).intersection(self.limits) - request.borrowed:
                assert len(self.inside(lane)) <= self.limits[lane] or resized
            if self.table.start(request):
                self.starts.append(self.now)
                self.lapsing.append(self.now + 5)
        self.see_shares(requests)

    def inside(self, lane: str) -> list[Request[int]]:
        return [
            one
            for one in self.live
            if one.granted and lane in one.slots and lane not in one.borrowed
        ]

    def see_shares(self, newcomers: list[Request[int]]) -> None:
        """Whoever has just come in took an own or an open slot."""
        inside = self.inside(GROUP)
        shares = [share_of(one) for one in inside]
        beyond = sum(max(shares.count(share) - kept, 0) for share, kept in enumerate((0, 1, 1)))
        for one in newcomers:
            if one in inside and shares.count(share_of(one)) > (0, 1, 1)[share_of(one)]:
                assert beyond <= self.limits[GROUP] - 2

    def check(self) -> None:
        holders = [one for one in (*self.live, *self.barriers) if one.granted]
        for at, one in enumerate(holders):
            for other in holders[:at]:
                if one not in other.ancestors() and other not in one.ancestors():
                    assert not conflict(one, other), (one, other)
        recent = [start for start in self.starts if start > self.now - 5]
        assert len(recent) <= 3
        for one in self.live:
            assert one.granted or self.reason(one), "a wake-up was lost"

    def reason(self, waiter: Request[int]) -> bool:
        """Whether something can be seen that holds it up."""
        rivals = [
            one
            for one in (*self.live, *self.barriers)
            if one is not waiter and (one.granted or one.order < waiter.order)
        ]
        if any(conflict(waiter, one) for one in rivals if one not in waiter.ancestors()):
            return True
        for lane in waiter.slots:
            lender = next((a for a in waiter.ancestors() if lane in a.slots), None)
            lent = lender is not None and any(
                lane in one.borrowed
                and next(a for a in one.ancestors() if lane in a.slots) is lender
                for one in self.live
            )
            if lane.startswith("rate"):
                early = [one for one in rivals if not one.granted and lane in one.slots]
                if len(self.lapsing) + len(early) >= 3:
                    return True
                continue
            if lane in waiter.borrowed or (lender is not None and not lent):
                continue
            if lane in self.paused:
                return True
            using = [one for one in rivals if lane in one.slots and lane not in one.borrowed]
            if lane != GROUP:
                if len(using) >= self.limits[lane]:
                    return True
                continue
            shares = [share_of(one) for one in using]
            beyond = sum(max(shares.count(share) - kept, 0) for share, kept in enumerate((0, 1, 1)))
            own = shares.count(share_of(waiter)) < (0, 1, 1)[share_of(waiter)]
            if not own and beyond >= self.limits[GROUP] - 2:
                return True
        return False

    def end(self) -> None:
        """Whatever happened, all of it can be brought to its end."""
        for lane in sorted(self.paused):
            self.paused.discard(lane)
            self.granted(self.table.resume(lane))
        while self.barriers:
            self.lift()
        for _ in range(len(self.live) * 2 + 2):
            self.now += 6
            self.wait()
            while any(one.granted and not one.children for one in self.live):
                self.give()
            self.check()
        assert not self.live
        assert len(self.table) == 0


def conflict(one: Request[int], other: Request[int]) -> bool:
    return any(meet(a, b) for a in one.claims for b in other.claims)


def meet(one: Claim, other: Claim) -> bool:
    if "lane:" in (one.resource[:5], other.resource[:5]):
        return False
    a, b = parts(one.resource), parts(other.resource)
    depth = min(len(a), len(b))
    return a[:depth] == b[:depth] and Access.EXCLUSIVE in (one.access, other.access)


def parts(resource: str) -> list[str]:
    scheme, _, path = resource.partition(":")
    return [scheme, *(part for part in path.split("/") if part)]


def share_of(request: Request[int]) -> int:
    for share, wide in enumerate(("db:shop/orders", "db:shop/a"), 1):
        if any(f"{claim.resource}/".startswith(f"{wide}/") for claim in request.claims):
            return share
    return 0


@given(st.integers(min_value=0, max_value=2**32))
@settings(max_examples=60 * ROUNDS, deadline=None)
def test_driven_at_random_nothing_is_lost_and_no_limit_is_passed(seed: int) -> None:
    drive = Drive(Random(seed))

    for _ in range(80):
        drive.step()

    drive.end()
