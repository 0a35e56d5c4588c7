"""The rules of the lane table, one by one; test_lane_model.py drives all of them at random."""

# pyright: reportPrivateUsage=false
# Leaks are looked for where they would be: in the queues inside the table.

import itertools
from collections.abc import Callable, Iterable

import pytest

from laneway.claims import Access, Claim, exclusive, shared
from laneway.errors import UsageError
from laneway.lanes.modes import CONFLICTS, IS, IX, MODES, SIX, SUPREMUM, S, X, plan
from laneway.lanes.requests import LaneError, Request
from laneway.lanes.statistics import Holder, LaneStatus, Waiter
from laneway.lanes.table import LaneTable
from laneway.lanes.waits import Blocker

WRITE_A = exclusive("file:/w/a.py")
WRITE_B = exclusive("file:/w/b.py")
READ_A = shared("file:/w/a.py")
READ_ALL = shared("file:/w")
WRITE_ALL = exclusive("file:/w")
MAIL = exclusive("lane:mail")


def owners(requests: Iterable[Request[str]]) -> list[str]:
    return [request.owner for request in requests]


def compatibility_matrix_of_1976() -> list[str]:
    """Rows and columns IS IX S SIX X, as Gray and his colleagues printed them."""
    return ["11110", "11000", "10100", "10000", "00000"]


def test_the_modes_conflict_as_in_the_paper() -> None:
    found = ["".join(str(int(b not in CONFLICTS[a])) for b in MODES) for a in MODES]

    assert found == compatibility_matrix_of_1976()


def test_the_supremum_forbids_what_either_mode_forbids_and_no_more() -> None:
    for one, other in itertools.product(MODES, repeat=2):
        merged = SUPREMUM[one][other]

        assert CONFLICTS[merged] == CONFLICTS[one] | CONFLICTS[other]


def test_what_one_call_takes_of_a_level_in_several_ways_is_merged() -> None:
    merged = plan([READ_ALL, WRITE_A, READ_A])

    assert [(level, mode) for level, mode, _, _ in merged.nodes] == [
        ("file:", IX),
        ("file:/w", SIX),
        ("file:/w/a.py", X),
    ]
    assert plan([WRITE_A, READ_ALL]).nodes[1][:2] == ("file:/w", SIX)
    assert plan([WRITE_ALL, READ_A]).nodes[1][:2] == ("file:/w", X)
    assert plan([READ_ALL]).nodes[0][:2] == ("file:", IS)
    assert plan([shared("run:a/b")]).nodes[0][:2] == ("run:a/b", S)


@pytest.mark.parametrize(
    ("first", "second", "beside"),
    [
        (READ_A, READ_A, True),
        (READ_A, WRITE_A, False),
        (WRITE_A, READ_A, False),
        (WRITE_A, WRITE_A, False),
        (WRITE_A, WRITE_B, True),
        (READ_ALL, READ_A, True),
        (READ_ALL, WRITE_A, False),
        (WRITE_A, READ_ALL, False),
        (WRITE_ALL, READ_A, False),
        (READ_A, WRITE_ALL, False),
        (WRITE_ALL, exclusive("file:/wide"), True),
        (exclusive("file:"), READ_A, False),
        (exclusive("file:/"), READ_A, False),
        (exclusive("db:shop"), shared("db:shop/orders/42"), False),
        (exclusive("db:shop"), WRITE_ALL, True),
        (shared("run:x"), exclusive("run:x"), False),
        (exclusive("run:x"), exclusive("run:x/y"), True),
        (MAIL, MAIL, False),
        (MAIL, shared("lane:mail"), False),
        (MAIL, exclusive("lane:mail/joe"), True),
        (exclusive("lane:/w"), exclusive("lane:/w/a"), True),
    ],
)
def test_two_requests_exclude_each_other_only_where_claims_overlap(
    first: Claim, second: Claim, beside: bool
) -> None:
    table = LaneTable[str]()
    one = table.request([first], "one")

    two = table.request([second], "two")

    assert (one.granted, two.granted) == (True, beside)


def test_a_request_never_conflicts_with_itself() -> None:
    table = LaneTable[str]()

    request = table.request([READ_ALL, WRITE_A, WRITE_A, READ_A, MAIL, MAIL, WRITE_ALL], "a")

    assert request.granted
    assert table.release(request) == []
    assert len(table) == 0


def test_a_request_without_claims_is_granted_at_once() -> None:
    table = LaneTable[str]()

    request = table.request([], "a")

    assert request.granted
    assert len(table) == 0
    assert table.release(request) == []


def test_all_claims_are_granted_or_none() -> None:
    table = LaneTable[str]()
    first = table.request([WRITE_A], "first")
    both = table.request([WRITE_A, WRITE_B, MAIL], "both")

    assert not both.granted
    assert owners(table.release(first)) == ["both"]
    assert both.granted


def test_each_lane_is_first_in_first_out() -> None:
    table = LaneTable[str]()
    holder = table.request([WRITE_A], "0")
    for name in "1234":
        table.request([WRITE_A], name)

    served: list[str] = []
    while granted := table.release(holder):
        (holder,) = granted
        served.append(holder.owner)

    assert served == ["1", "2", "3", "4"]


def test_nobody_overtakes_an_older_waiter_for_something_both_want() -> None:
    table = LaneTable[str]()
    reader = table.request([READ_A], "reader")
    writer = table.request([WRITE_A], "writer")
    late = table.request([READ_A], "late reader")

    assert not late.granted
    assert owners(table.release(reader)) == ["writer"]
    assert owners(table.release(writer)) == ["late reader"]


def test_a_waiter_keeps_its_place_at_a_node_where_only_it_waits() -> None:
    table = LaneTable[str]()
    holder = table.request([WRITE_A], "holder")
    table.request([WRITE_A, WRITE_B], "both")
    b_only = table.request([WRITE_B], "b only")

    assert not b_only.granted
    assert owners(table.release(holder)) == ["both"]


def test_anybody_passes_who_does_not_meet_the_waiter() -> None:
    table = LaneTable[str]()
    table.request([WRITE_A], "writes a")
    waiting = table.request([READ_ALL], "reads all")

    reads_b = table.request([shared("file:/w/b.py")], "reads b")
    writes_b = table.request([WRITE_B], "writes b")
    elsewhere = table.request([exclusive("file:/x"), MAIL], "elsewhere")

    assert not waiting.granted
    assert reads_b.granted
    assert not writes_b.granted
    assert elsewhere.granted


def test_a_release_lets_in_all_that_have_become_clear_oldest_first() -> None:
    table = LaneTable[str]()
    writer = table.request([WRITE_ALL], "writer")
    table.request([READ_A], "1")
    table.request([READ_ALL], "2")
    table.request([WRITE_B], "3: behind the reader of all")
    table.request([shared("file:/w/c.py")], "4")

    granted = table.release(writer)

    assert owners(granted) == ["1", "2", "4"]
    assert [request.token for request in granted] == [2, 3, 4]


def test_a_reader_and_writer_of_parts_waits_as_both() -> None:
    table = LaneTable[str]()
    intends = table.request([WRITE_A], "writes a")
    mixed = table.request([READ_ALL, WRITE_B], "reads all, writes b")
    reads = table.request([READ_ALL], "reads all")
    peeks = table.request([shared("file:/w/c.py")], "reads c")

    assert [mixed.granted, reads.granted, peeks.granted] == [False, False, True]
    assert owners(table.release(intends)) == ["reads all, writes b"]
    assert owners(table.release(mixed)) == ["reads all"]


def test_tokens_rise_with_every_grant() -> None:
    table = LaneTable[str]()
    first = table.request([WRITE_A], "first")
    second = table.request([WRITE_A], "second")
    other = table.request([WRITE_B], "other")

    assert (first.token, second.token, other.token) == (1, 0, 2)

    table.release(first)

    assert second.token == 3


def test_a_lane_lets_in_as_many_as_its_limit_says() -> None:
    table = LaneTable[str]({"lane:mail": 2})
    first, second, third = (table.request([MAIL], name) for name in "123")

    assert [first.granted, second.granted, third.granted] == [True, True, False]
    assert owners(table.release(second)) == ["3"]


def test_a_waiter_elsewhere_keeps_its_slot_of_a_lane() -> None:
    table = LaneTable[str]({"lane:mail": 2})
    holder = table.request([WRITE_A, MAIL], "holder")
    table.request([WRITE_A, MAIL], "waits for the file")
    late = table.request([MAIL], "late")

    assert not late.granted
    assert owners(table.release(holder)) == ["waits for the file", "late"]


def test_a_limit_on_a_resource_caps_those_who_claim_exactly_that() -> None:
    table = LaneTable[str]({"db:shop": 2})
    whole = [table.request([shared("db:shop")], name) for name in "123"]
    part = table.request([shared("db:shop/orders")], "part")

    assert [request.granted for request in whole] == [True, True, False]
    assert part.granted
    assert owners(table.release(whole[0])) == ["3"]


def test_a_withdrawn_waiter_leaves_at_once_and_swallows_no_slot() -> None:
    table = LaneTable[str]()
    a, b, c = (table.request([MAIL], name) for name in "abc")

    assert table.withdraw(b) == []
    assert table.snapshot()[0].waiters == (Waiter("c", Access.EXCLUSIVE),)
    assert owners(table.release(a)) == ["c"]
    assert table.release(c) == []
    assert len(table) == 0


def test_a_withdrawn_waiter_lets_those_pass_that_it_held_up() -> None:
    table = LaneTable[str]()
    reader = table.request([READ_A], "reader")
    writer = table.request([WRITE_A, MAIL], "writer")
    table.request([READ_A], "late reader")
    table.request([MAIL], "mail")

    granted = table.withdraw(writer)

    assert owners(granted) == ["late reader", "mail"]
    assert reader.granted
    assert not writer.granted


def test_a_lane_grows_while_busy_and_lets_the_next_in() -> None:
    table = LaneTable[str]()
    for name in "1234":
        table.request([MAIL], name)

    assert owners(table.resize("lane:mail", 3)) == ["2", "3"]
    assert table.snapshot()[0].max_concurrent == 3


def test_a_lane_that_shrinks_keeps_its_holders_and_lets_nobody_in_until_enough_have_left() -> None:
    table = LaneTable[str]({"lane:mail": 3})
    holder = table.request([WRITE_A], "has the file")
    first = table.request([MAIL], "1")
    table.request([WRITE_A, MAIL], "2: waits for the file with a slot in hand")
    third = table.request([MAIL], "3")

    assert table.resize("lane:mail", 1) == []
    assert table.release(holder) == []
    assert table.release(first) == []
    assert owners(table.release(third)) == ["2: waits for the file with a slot in hand"]


def test_slots_handed_back_by_waiters_keep_their_order() -> None:
    table = LaneTable[str]({"lane:mail": 4})
    holder = table.request([WRITE_A], "has the file")
    for name in "1234":
        table.request([WRITE_A if name == "1" else READ_A, MAIL], name)
    table.request([MAIL], "5")

    table.resize("lane:mail", 2)
    one = table.release(holder)[0]

    assert one.owner == "1"
    assert owners(table.release(one)) == ["2", "3"]


def test_a_cap_put_on_a_busy_resource_counts_those_who_are_there() -> None:
    table = LaneTable[str]()
    shop = [table.request([shared("db:shop")], name) for name in "123"]
    other = table.request([shared("db:shop/orders")], "other")

    assert table.resize("db:shop", 2) == []
    fourth = table.request([shared("db:shop")], "4")

    assert not fourth.granted
    assert table.release(shop[0]) == []
    assert owners(table.release(shop[1])) == ["4"]
    assert table.release(other) == []


def test_a_limit_below_one_is_refused() -> None:
    table = LaneTable[str]()

    with pytest.raises(UsageError) as refused:
        table.resize("lane:mail", 0)
    with pytest.raises(UsageError):
        LaneTable[str]({"lane:mail": -1})

    assert str(refused.value) == "max_concurrent of lane:mail is 0; a lane lets at least 1 in"


def test_ten_thousand_paths_leave_nothing_behind() -> None:
    table = LaneTable[int]()
    requests = [
        table.request([shared("run:x"), exclusive(f"file:/w/{n % 100}/{n}"), MAIL], n)
        for n in range(10_000)
    ]
    assert len(table) > 10_000

    for request in requests:
        table.release(request)

    assert len(table) == 0
    assert table.snapshot() == ()
    assert not table._nodes._queues
    assert not table._slots._lines


def test_plans_of_claims_are_kept_within_bounds() -> None:
    table = LaneTable[int]()

    for n in range(10_000):
        table.release(table.request([shared(f"run:{n}")], n))

    assert len(table._plans) <= 4096


def test_blockers_names_the_oldest_in_the_way_at_each_node() -> None:
    table = LaneTable[str]()
    writer = table.request([WRITE_A], "writer")
    sender = table.request([MAIL], "sender")
    reader = table.request([READ_ALL], "reader")
    last = table.request([WRITE_B, MAIL], "last")
    after = table.request([WRITE_ALL], "after")

    assert table.blockers(writer) == ()
    assert table.blockers(reader) == (Blocker("file:/w", "writer", holding=True),)
    assert table.blockers(last) == (
        Blocker("file:/w", "reader", holding=False),
        Blocker("lane:mail", "sender", holding=True),
    )
    assert table.blockers(after) == (Blocker("file:/w", "writer", holding=True),)
    assert [request.owner for request, _ in table.waits()] == ["reader", "last", "after"]

    table.withdraw(after)

    assert table.blockers(after) == ()
    assert table.blockers(sender) == ()


def test_blockers_of_a_waiter_whose_lane_shrank_are_the_younger_ones_in_it() -> None:
    table = LaneTable[str]({"lane:mail": 2})
    holder = table.request([WRITE_A], "has the file")
    older = table.request([WRITE_A, MAIL], "older")
    table.request([MAIL], "younger")
    table.resize("lane:mail", 1)
    table.release(holder)

    assert table.blockers(older) == (Blocker("lane:mail", "younger", holding=True),)


def test_a_snapshot_shows_holders_waiters_and_limits_and_never_changes() -> None:
    table = LaneTable[int]({"lane:idle": 4, "lane:mail": 2})
    first = table.request([MAIL, WRITE_A], 1)
    table.request([MAIL, READ_A], 2)

    before = table.snapshot(lambda number: f"t1.{number}")
    table.release(first)

    assert before == (
        LaneStatus(
            resource="file:/w/a.py",
            max_concurrent=None,
            holders=(Holder("t1.1", Access.EXCLUSIVE, token=1),),
            waiters=(Waiter("t1.2", Access.SHARED),),
        ),
        LaneStatus(resource="lane:idle", max_concurrent=4),
        LaneStatus(
            resource="lane:mail",
            max_concurrent=2,
            holders=(Holder("t1.1", Access.EXCLUSIVE, token=1),),
            waiters=(Waiter("t1.2", Access.EXCLUSIVE),),
        ),
    )
    assert table.snapshot()[0].holders == (Holder("2", Access.SHARED, token=2),)


def test_giving_back_what_is_not_held_is_an_error_and_changes_nothing() -> None:
    table = LaneTable[str]()
    holder = table.request([MAIL], "holder")
    waiter = table.request([MAIL], "waiter")
    stranger = LaneTable[str]().request([MAIL], "stranger")
    elsewhere = LaneTable[str]()
    elsewhere.request([MAIL], "x")
    foreign_waiter = elsewhere.request([MAIL], "y")

    misuses: list[Callable[[], object]] = [
        lambda: table.release(waiter),
        lambda: table.withdraw(holder),
        lambda: table.release(stranger),
        lambda: table.withdraw(foreign_waiter),
        lambda: table.request([], "part", parent=waiter),
        lambda: table.request([], "part", parent=stranger),
    ]
    faults: list[str] = []
    for misuse in misuses:
        with pytest.raises(LaneError) as caught:
            misuse()
        faults.append(str(caught.value).removesuffix("; this is a bug in Laneway"))

    assert faults == [
        "cannot release request 2 of 'waiter', which waits at 1 of its nodes",
        "cannot withdraw request 1 of 'holder', which holds exclusive lane:mail",
        "cannot release request 1 of 'stranger', which belongs to another lane table",
        "cannot withdraw request 2 of 'y', which belongs to another lane table",
        "cannot ask for a part of request 2 of 'waiter', which waits at 1 of its nodes",
        "cannot ask for a part of request 1 of 'stranger', which belongs to another lane table",
    ]
    assert owners(table.release(holder)) == ["waiter"]


def test_a_second_release_is_an_error() -> None:
    table = LaneTable[str]()
    request = table.request([MAIL], "a")
    table.release(request)

    with pytest.raises(LaneError, match="cannot release request 1 of 'a', which has ended;"):
        table.release(request)


def test_an_exclusive_mode_excludes_every_mode() -> None:
    assert CONFLICTS[X] == set(MODES)


# Priorities


def test_a_higher_priority_goes_before_those_who_wait() -> None:
    table = LaneTable[str]()
    holder = table.request([WRITE_A], "holder")
    low = table.request([WRITE_A], "low", now=1)
    table.request([WRITE_A], "high", now=2, priority=1)

    assert owners(table.release(holder)) == ["high"]
    assert not low.granted


def test_whoever_waited_long_enough_outweighs_a_priority() -> None:
    table = LaneTable[str](ageing_seconds=10)
    holder = table.request([WRITE_A], "holder", now=0)
    table.request([WRITE_A], "low", now=0)
    table.request([WRITE_A], "high, but late", now=10.5, priority=1)

    assert owners(table.release(holder)) == ["low"]


def test_a_waiter_of_low_priority_does_not_starve_in_an_endless_stream_of_higher_ones() -> None:
    table = LaneTable[str](ageing_seconds=10)
    holder = table.request([WRITE_A], "0", now=0)
    low = table.request([WRITE_A], "low", now=0, priority=-1)

    served = 0
    for second in itertools.count(1):
        table.request([WRITE_A], "high", now=second, priority=3)
        (holder,) = table.release(holder)
        if low.granted:
            break
        served += 1

    assert served == 39


def test_a_negative_priority_lets_later_ones_go_first() -> None:
    table = LaneTable[str](ageing_seconds=10)
    holder = table.request([WRITE_A], "holder", now=0)
    table.request([WRITE_A], "background", now=0, priority=-1)
    table.request([WRITE_A], "usual", now=9)
    table.request([WRITE_A], "too late", now=11)

    served: list[str] = []
    while granted := table.release(holder):
        (holder,) = granted
        served.append(holder.owner)

    assert served == ["usual", "background", "too late"]


def test_requests_of_one_priority_keep_their_order() -> None:
    table = LaneTable[str]()
    holder = table.request([MAIL], "holder")
    for name in "12":
        table.request([MAIL], f"low {name}")
    for name in "12":
        table.request([MAIL], f"high {name}", priority=1)

    served: list[str] = []
    while granted := table.release(holder):
        (holder,) = granted
        served.append(holder.owner)

    assert served == ["high 1", "high 2", "low 1", "low 2"]


def test_a_priority_never_takes_from_a_holder() -> None:
    table = LaneTable[str]()
    holder = table.request([WRITE_A], "holder")

    high = table.request([WRITE_A], "high", priority=1000)

    assert not high.granted
    assert holder.granted


def test_a_higher_priority_passes_a_waiter_that_waits_elsewhere() -> None:
    table = LaneTable[str]()
    holder = table.request([WRITE_A], "has a")
    both = table.request([WRITE_A, WRITE_B, MAIL], "wants a and b")

    high = table.request([WRITE_B, MAIL], "wants b now", priority=1)

    assert high.granted
    assert table.blockers(both) == (
        Blocker("file:/w/a.py", "has a", holding=True),
        Blocker("file:/w/b.py", "wants b now", holding=True),
        Blocker("lane:mail", "wants b now", holding=True),
    )
    assert table.release(holder) == []
    assert owners(table.release(high)) == ["wants a and b"]


def test_those_who_are_passed_keep_their_places_among_each_other() -> None:
    table = LaneTable[str](ageing_seconds=5)
    held = table.request([WRITE_B], "has b", now=0)
    table.request([READ_A, WRITE_B], "first", now=0)
    table.request([READ_A, shared("file:/w/b.py")], "second", now=10)
    passes_both = table.request([WRITE_A, WRITE_B], "passes both", now=20, priority=5)
    between = table.request([WRITE_A], "between", now=20, priority=3)

    assert table.withdraw(passes_both) == []
    assert not between.granted
    assert owners(table.release(held)) == ["first"]


def test_a_priority_that_would_close_a_ring_is_not_heeded() -> None:
    table = LaneTable[str]()
    parent = table.request([WRITE_A], "parent")
    table.request([WRITE_B], "has b")
    part = table.request([WRITE_B], "part", parent=parent)

    high = table.request([WRITE_A, WRITE_B], "wants what the parent has", priority=1)

    assert not part.granted
    assert high.order > part.order
    assert table.blockers(part) == (Blocker("file:/w/b.py", "has b", holding=True),)
    assert table.blockers(high) == (
        Blocker("file:/w/a.py", "parent", holding=True),
        Blocker("file:/w/b.py", "has b", holding=True),
    )


# Nested requests


def nested(table: LaneTable[str], parent: Request[str], *claims: Claim, name: str) -> Request[str]:
    return table.request(claims, name, parent=parent)


def test_a_part_calls_back_into_the_lane_of_its_parent() -> None:
    table = LaneTable[str]({"lane:db": 1})
    database = exclusive("lane:db")
    outer = table.request([database], "outer")
    other = table.request([database], "other")

    inner = nested(table, outer, database, name="inner")

    assert inner.granted
    assert table.release(inner) == []
    assert owners(table.release(outer)) == ["other"]
    assert other.granted


def test_a_part_ignores_what_all_its_ancestors_hold() -> None:
    table = LaneTable[str]()
    top = table.request([WRITE_ALL], "top")
    middle = nested(table, top, WRITE_B, name="middle")
    inner = nested(table, middle, WRITE_A, WRITE_B, READ_ALL, name="inner")

    assert inner.granted
    for request in (inner, middle, top):
        assert table.release(request) == []
    assert len(table) == 0


def test_siblings_and_cousins_meet() -> None:
    table = LaneTable[str]()
    top = table.request([WRITE_ALL], "top")
    first = nested(table, top, WRITE_A, name="first")
    second = nested(table, top, WRITE_B, name="second")
    sibling = nested(table, top, WRITE_A, name="sibling")
    cousin = nested(table, second, WRITE_A, name="cousin")

    assert [first.granted, sibling.granted, cousin.granted] == [True, False, False]
    assert table.blockers(cousin) == (Blocker("file:/w/a.py", "first", holding=True),)
    assert owners(table.release(first)) == ["sibling"]
    assert owners(table.release(sibling)) == ["cousin"]


def test_a_parent_cannot_be_released_before_its_parts() -> None:
    table = LaneTable[str]()
    parent = table.request([WRITE_A], "parent")
    part = nested(table, parent, WRITE_A, name="part")

    with pytest.raises(LaneError) as refused:
        table.release(parent)

    assert str(refused.value) == (
        "cannot release request 1 of 'parent', which holds exclusive file:/w/a.py for 1 nested "
        "requests, too; this is a bug in Laneway"
    )
    assert part.granted
    table.release(part)
    assert table.release(parent) == []


def test_a_bystander_who_waits_for_the_parent_is_passed_by_its_part() -> None:
    table = LaneTable[str]()
    parent = table.request([WRITE_A], "parent")
    bystander = table.request([WRITE_A, WRITE_B], "bystander")

    part = nested(table, parent, WRITE_B, name="part")

    assert part.granted
    assert table.blockers(bystander)[1] == Blocker("file:/w/b.py", "part", holding=True)
    table.release(part)
    assert owners(table.release(parent)) == ["bystander"]


def test_a_part_does_not_pass_a_bystander_who_waits_for_others() -> None:
    table = LaneTable[str]()
    parent = table.request([WRITE_A], "parent")
    holder = table.request([MAIL], "holder")
    table.request([MAIL, WRITE_B], "bystander")

    part = nested(table, parent, WRITE_B, name="part")

    assert not part.granted
    (bystander,) = table.release(holder)
    assert owners(table.release(bystander)) == ["part"]


def test_two_parents_whose_parts_want_each_others_files_are_told_at_once() -> None:
    table = LaneTable[str]()
    one = table.request([WRITE_A], "one")
    two = table.request([WRITE_B], "two")
    waits = nested(table, one, WRITE_B, name="part of one")

    refused = nested(table, two, WRITE_A, name="part of two")

    assert refused.refused
    assert refused.cycle == ("part of two", "one", "part of one", "two")
    assert [waits.refused, waits.granted, refused.granted, two.children] == [False, False, False, 0]
    assert owners(table.release(two)) == ["part of one"]


def test_a_ring_of_three_parents_is_found() -> None:
    table = LaneTable[str]()
    files = [exclusive(f"file:/w/{n}") for n in range(3)]
    parents = [table.request([files[n]], f"parent {n}") for n in range(3)]

    parts = [nested(table, parents[n], files[(n + 1) % 3], name=f"part {n}") for n in range(3)]

    assert [part.refused for part in parts] == [False, False, True]
    assert parts[2].cycle == ("part 2", "parent 0", "part 0", "parent 1", "part 1", "parent 2")


def test_of_two_upgrades_of_a_shared_claim_the_second_is_refused() -> None:
    table = LaneTable[str]()
    one = table.request([READ_A], "one")
    two = table.request([READ_A], "two")
    first = nested(table, one, WRITE_A, name="upgrade of one")

    second = nested(table, two, WRITE_A, name="upgrade of two")

    assert not first.granted
    assert second.cycle == ("upgrade of two", "one", "upgrade of one", "two")
    assert owners(table.release(two)) == ["upgrade of one"]


def test_an_upgrade_of_the_only_reader_is_granted_ahead_of_a_writer_who_waits() -> None:
    table = LaneTable[str]()
    reader = table.request([READ_A], "reader")
    writer = table.request([WRITE_A], "writer")

    upgrade = nested(table, reader, WRITE_A, name="upgrade")

    assert upgrade.granted
    table.release(upgrade)
    assert owners(table.release(reader)) == ["writer"]
    assert writer.granted


def test_racing_siblings_wait_for_each_other_in_turn() -> None:
    table = LaneTable[str]()
    parent = table.request([WRITE_ALL, MAIL], "parent")
    parts = [nested(table, parent, WRITE_A, MAIL, name=str(n)) for n in range(4)]

    served = [part.owner for part in parts if part.granted]
    current = parts[0]
    while granted := table.release(current):
        (current,) = granted
        served.append(current.owner)

    assert served == ["0", "1", "2", "3"]
    assert table.release(parent) == []
    assert len(table) == 0


def test_siblings_that_upgrade_what_both_read_are_told_of_the_ring() -> None:
    table = LaneTable[str]()
    top = table.request([WRITE_ALL], "top")
    one = nested(table, top, READ_A, name="one")
    two = nested(table, top, READ_A, name="two")
    nested(table, one, WRITE_A, name="upgrade of one")

    second = nested(table, two, WRITE_A, name="upgrade of two")

    assert second.cycle == ("upgrade of two", "one", "upgrade of one", "two")


def test_of_two_parts_in_a_lane_of_two_slots_one_uses_the_slot_of_its_parent() -> None:
    table = LaneTable[str]({"lane:mail": 2})
    parent = table.request([MAIL], "parent")
    first = nested(table, parent, MAIL, name="first")
    second = nested(table, parent, MAIL, name="second")
    third = nested(table, parent, MAIL, name="third")
    other = table.request([MAIL], "other")

    assert [first.granted, second.granted, third.granted] == [True, True, False]
    assert owners(table.release(first)) == ["third"]
    assert owners(table.release(second)) == ["other"]
    assert other.granted


def test_a_lent_slot_comes_back_to_the_older_part_that_waits_elsewhere() -> None:
    table = LaneTable[str]({"lane:mail": 2})
    held = table.request([WRITE_A], "has a")
    parent = table.request([MAIL], "parent")
    first = nested(table, parent, MAIL, name="first")
    second = nested(table, parent, MAIL, WRITE_A, name="second")
    other = table.request([MAIL], "other")

    assert owners(table.release(first)) == ["other"]
    assert not second.granted
    assert owners(table.release(held)) == ["second"]
    assert other.granted


def test_a_part_of_higher_priority_takes_the_loan_of_one_that_waits_elsewhere() -> None:
    table = LaneTable[str]()
    table.request([WRITE_A], "has a")
    parent = table.request([MAIL], "parent")
    low = nested(table, parent, MAIL, WRITE_A, name="low")

    high = table.request([MAIL], "high", priority=1, parent=parent)

    assert high.granted
    assert table.blockers(low) == (
        Blocker("file:/w/a.py", "has a", holding=True),
        Blocker("lane:mail", "high", holding=True),
    )


def test_a_grandparent_lends_its_slot_where_the_parent_is_not_in_the_lane() -> None:
    table = LaneTable[str]()
    top = table.request([MAIL], "top")
    middle = nested(table, top, WRITE_A, name="middle")

    inner = nested(table, middle, MAIL, name="inner")

    assert inner.granted


def test_two_lanes_whose_holders_parts_want_the_other_lane_make_a_ring() -> None:
    table = LaneTable[str]({"lane:wide": 2})
    wide = exclusive("lane:wide")
    one = table.request([wide], "one")
    two = table.request([wide], "two")
    table.request([MAIL], "mail")
    nested(table, one, wide, MAIL, name="uses the slot of one, waits for mail")

    part = nested(table, two, MAIL, name="waits for mail, too")

    assert [part.granted, part.refused] == [False, False]

    table = LaneTable[str]()
    one = table.request([MAIL], "one")
    two = table.request([exclusive("lane:post")], "two")
    nested(table, one, exclusive("lane:post"), name="part of one")

    refused = nested(table, two, MAIL, name="part of two")

    assert refused.cycle == ("part of two", "one", "part of one", "two")


def test_a_lane_with_a_slot_that_comes_free_is_no_ring() -> None:
    table = LaneTable[str]({"lane:wide": 2})
    wide = exclusive("lane:wide")
    one = table.request([wide], "one")
    file = table.request([WRITE_A], "has a")
    busy = table.request([wide], "busy, but ends")
    nested(table, one, WRITE_A, name="part of one")

    part = nested(table, file, wide, name="part of who has a")

    assert [part.granted, part.refused] == [False, False]
    assert owners(table.release(busy)) == ["part of who has a"]


def test_a_part_that_passes_one_waiter_may_have_to_pass_another() -> None:
    table = LaneTable[str]()
    top = table.request([WRITE_A], "top")
    quarry = table.request([exclusive("file:/q")], "quarry")
    busy = table.request([exclusive("file:/z")], "busy")
    table.request([exclusive("file:/q"), exclusive("file:/m/1")], "waits for the quarry")
    table.request([WRITE_A, exclusive("file:/m/2")], "waits for the top")
    deep = nested(table, quarry, exclusive("file:/z"), exclusive("file:/m/3"), name="deep")

    part = nested(table, top, exclusive("file:/m"), name="part")

    assert part.granted
    assert table.release(busy) == []
    assert owners(table.release(part)) == ["deep"]
    assert deep.granted


def test_rings_are_found_at_ten_levels() -> None:
    table = LaneTable[str]()
    other = table.request([MAIL], "other")
    request = table.request([exclusive("file:/0")], "0")
    for n in range(1, 10):
        request = nested(table, request, exclusive(f"file:/{n}"), name=str(n))
    last = nested(table, request, MAIL, name="waits")

    refused = nested(table, other, exclusive("file:/3"), name="refused")

    assert not last.granted
    assert refused.cycle[:2] == ("refused", "3")
    assert refused.cycle[-2:] == ("waits", "other")
    assert len(refused.cycle) == 10


def test_a_lane_made_narrower_refuses_the_youngest_part_that_waits_for_itself() -> None:
    table = LaneTable[str]({"lane:mail": 2})
    parent = table.request([exclusive("lane:post")], "has the post")
    held = table.request([WRITE_A], "has a")
    mailer = table.request([MAIL], "mailer")
    nested(table, parent, MAIL, WRITE_A, name="has a slot, waits for a")
    nested(table, mailer, exclusive("lane:post"), name="waits for the post")

    changed = table.resize("lane:mail", 1)

    assert [(one.owner, one.refused) for one in changed] == [("waits for the post", True)]
    assert changed[0].cycle == (
        "waits for the post",
        "has the post",
        "has a slot, waits for a",
        "mailer",
    )
    assert table.release(held) == []
    assert owners(table.release(mailer)) == ["has a slot, waits for a"]


def test_a_cap_put_on_what_parent_and_part_hold_counts_them_once() -> None:
    table = LaneTable[str]()
    shop = shared("db:shop")
    parent = table.request([shop], "parent")
    part = nested(table, parent, shop, name="part")

    table.resize("db:shop", 2)

    assert table.request([shop], "second").granted
    assert not table.request([shop], "third").granted
    assert table.release(part) == []
    assert owners(table.release(parent)) == ["third"]


def test_a_withdrawn_part_lets_those_pass_that_it_held_up() -> None:
    table = LaneTable[str]()
    parent = table.request([WRITE_A], "parent")
    table.request([READ_ALL], "reads all")
    held = table.request([MAIL], "mail")
    part = nested(table, parent, READ_ALL, MAIL, name="part")
    writer = table.request([WRITE_B], "writes b")

    assert table.withdraw(part) == []
    assert parent.children == 0
    assert owners(table.release(parent)) == ["reads all"]
    assert not writer.granted
    assert table.release(held) == []


def test_a_snapshot_shows_waiters_as_they_will_go() -> None:
    table = LaneTable[str]()
    parent = table.request([MAIL], "parent")
    nested(table, parent, MAIL, name="part")
    table.request([MAIL], "low")
    table.request([MAIL], "high", priority=2)

    (lane,) = table.snapshot()

    assert [holder.owner for holder in lane.holders] == ["parent", "part"]
    assert [waiter.owner for waiter in lane.waiters] == ["high", "low"]


def test_nested_requests_leave_nothing_behind() -> None:
    table = LaneTable[int]()
    parent = table.request([MAIL, WRITE_ALL], 0)
    bystander = table.request([MAIL, exclusive("file:/x")], -1)
    for n in range(1, 500):
        first = table.request([MAIL, WRITE_A], n, priority=n % 3, parent=parent)
        second = table.request([MAIL, WRITE_A, exclusive("file:/x")], n, parent=parent)
        for request in (second, first):
            if request.granted:
                table.release(request)
            else:
                table.withdraw(request)

    assert table.release(parent) == [bystander]
    assert table.release(bystander) == []
    assert len(table) == 0
    assert not table._nodes._queues
    assert not table._nodes._clear
    assert not table._slots._early
    assert not table._slots.loans
    assert table._passing.census is None
