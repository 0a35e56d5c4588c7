"""The rules of the lane table, one by one; test_lane_model.py drives all of them at random."""

# pyright: reportPrivateUsage=false
# Leaks are looked for where they would be: in the queues inside the table.

import itertools
from collections.abc import Callable, Iterable

import pytest

from laneway.claims import Access, Claim, exclusive, shared
from laneway.errors import UsageError
from laneway.lanes.modes import CONFLICTS, IS, IX, MODES, SIX, SUPREMUM, S, X, plan
from laneway.lanes.requests import Request
from laneway.lanes.statistics import Holder, LaneStatus, Waiter
from laneway.lanes.table import LaneError, LaneTable
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


def test_a_holder_may_shed_one_claim_and_keep_the_rest() -> None:
    table = LaneTable[str]()
    holder = table.request([READ_ALL, WRITE_A, MAIL], "holder")
    table.request([WRITE_B], "writes b")
    table.request([MAIL], "mail")
    table.request([READ_A], "reads a")

    assert owners(table.shed(holder, "lane:mail")) == ["mail"]
    assert owners(table.shed(holder, "file:/w")) == ["writes b"]
    assert holder.claims == (WRITE_A,)
    assert owners(table.release(holder)) == ["reads a"]


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
    assert not table._queues
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
        lambda: table.shed(waiter, "lane:mail"),
        lambda: table.shed(holder, "lane:post"),
        lambda: table.release(stranger),
        lambda: table.shed(stranger, "lane:mail"),
        lambda: table.withdraw(foreign_waiter),
    ]
    faults: list[str] = []
    for misuse in misuses:
        with pytest.raises(LaneError) as caught:
            misuse()
        faults.append(str(caught.value).removesuffix("; this is a bug in Laneway"))

    assert faults == [
        "cannot release request 2 of 'waiter', which waits at 1 of its nodes",
        "cannot withdraw request 1 of 'holder', which holds exclusive lane:mail",
        "cannot shed lane:mail of request 2 of 'waiter', which waits at 1 of its nodes",
        "cannot shed lane:post of request 1 of 'holder', which holds exclusive lane:mail",
        "cannot release request 1 of 'stranger', which belongs to another lane table",
        "cannot shed lane:mail of request 1 of 'stranger', which belongs to another lane table",
        "cannot withdraw request 2 of 'y', which belongs to another lane table",
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
