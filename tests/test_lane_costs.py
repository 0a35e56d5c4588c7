"""What the lane table does for one call must not depend on who else waits: counted, not timed."""

# pyright: reportPrivateUsage=false
# Leaks are looked for where they would be: in the queues inside the table.

import gc
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from laneway.claims import Claim, exclusive, shared
from laneway.lanes.lane import Lane
from laneway.lanes.requests import Request
from laneway.lanes.table import LaneTable

RUN = shared("run:x")
WRITE = exclusive("file:/w/a.py")
READ_ALL = shared("file:/w")
MAIL = exclusive("lane:mail")
ALL = (RUN, WRITE, MAIL)

Table = LaneTable[int]
Work = tuple[int, int]
"""Calls made, Python and C; steps taken through queues."""


class CountedQueue(OrderedDict[Any, None]):
    """A queue that counts the elements somebody looks at one after another."""

    steps = 0

    def __iter__(self) -> Iterator[Any]:
        for key in super().__iter__():
            CountedQueue.steps += 1
            yield key


@pytest.fixture(autouse=True)
def _count_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laneway.lanes.nodes.OrderedDict", CountedQueue)
    monkeypatch.setattr("laneway.lanes.slots.OrderedDict", CountedQueue)


def work_of(deed: Callable[[], Any]) -> Work:
    calls = 0

    def count(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    CountedQueue.steps = 0
    before = sys.getprofile()
    gc.collect()
    gc.disable()  # A collection runs callbacks of others' rubbish, which would be counted.
    sys.setprofile(count)
    try:
        deed()
    finally:
        sys.setprofile(before)
        gc.enable()
    return calls, CountedQueue.steps


def crowded(waiters: int, *claims: Claim) -> tuple[Table, Request[int], list[Request[int]]]:
    table = Table()
    holder = table.request(claims, 0)
    return table, holder, [table.request(claims, n) for n in range(1, waiters + 1)]


def asking(waiters: int) -> Work:
    table, _, _ = crowded(waiters, *ALL)
    return work_of(lambda: table.request(ALL, 0))


def releasing(waiters: int) -> Work:
    table, holder, _ = crowded(waiters, *ALL)
    return work_of(lambda: table.release(holder))


def releasing_behind_mixed_queues(waiters: int) -> Work:
    table, holder, _ = crowded(0, WRITE)
    for n in range(waiters):
        table.request([READ_ALL if n % 2 else WRITE], n)
        table.request([shared("file:/w/b.py")], n)
    return work_of(lambda: table.release(holder))


def withdrawing_from_the_middle(waiters: int) -> Work:
    table, _, others = crowded(waiters, *ALL)
    return work_of(lambda: table.withdraw(others[waiters // 2]))


def withdrawing_the_oldest_after_many(waiters: int) -> Work:
    table, _, others = crowded(waiters, *ALL)
    for request in others[: waiters - 2]:
        table.withdraw(request)
    return work_of(lambda: table.withdraw(others[waiters - 2]))


def releasing_a_part_whose_slot_is_lent_on(waiters: int) -> Work:
    table, holder, _ = crowded(waiters, *ALL)
    first, _ = (table.request(ALL, n, parent=holder) for n in range(2))
    return work_of(lambda: table.release(first))


def asking_with_priority(waiters: int) -> Work:
    table, _, _ = crowded(waiters, *ALL)
    table.request(ALL, 0, priority=1)
    return work_of(lambda: table.request(ALL, 0, priority=2))


def releasing_to_a_priority(waiters: int) -> Work:
    table, holder, _ = crowded(waiters, *ALL)
    table.request(ALL, 0, priority=1)
    return work_of(lambda: table.release(holder))


def asking_for_a_part_that_is_free(waiters: int) -> Work:
    """The first that passes others has all who wait noted; this is one after it."""
    table, holder, _ = crowded(waiters, *ALL)
    table.release(table.request((RUN, WRITE), 0, parent=holder))
    return work_of(lambda: table.request((RUN, WRITE), 0, parent=holder))


def asking_for_a_part_that_waits(waiters: int) -> Work:
    """Somebody waits for the parent, so that a ring is looked for; most are not in its way."""
    table, holder, _ = crowded(1, RUN, WRITE)
    table.request([shared("run:y"), exclusive("file:/x")], 0)
    for n in range(waiters):
        table.request([shared("run:y"), exclusive(f"file:/w/{n}"), MAIL], n)
    wanted = (RUN, exclusive("file:/x"))
    table.withdraw(table.request(wanted, 0, parent=holder))
    return work_of(lambda: table.request(wanted, 0, parent=holder))


def passing_by(waiters: int) -> Work:
    table, _, _ = crowded(waiters, *ALL)
    other = (RUN, exclusive("file:/w/b.py"))

    def deed() -> None:
        table.release(table.request(other, 0))

    return work_of(deed)


@pytest.mark.parametrize(
    "deed",
    [
        asking,
        releasing,
        releasing_behind_mixed_queues,
        withdrawing_from_the_middle,
        withdrawing_the_oldest_after_many,
        releasing_a_part_whose_slot_is_lent_on,
        asking_with_priority,
        releasing_to_a_priority,
        asking_for_a_part_that_is_free,
        asking_for_a_part_that_waits,
        passing_by,
    ],
)
def test_its_work_is_the_same_at_ten_waiters_and_at_three_thousand(
    deed: Callable[[int], Work],
) -> None:
    deed(10)  # whatever is remembered between calls is remembered now

    few, many = deed(10), deed(3_000)

    assert many == few
    assert few[0] < 200
    assert few[1] < 10


def test_the_count_would_see_a_walk_through_a_queue() -> None:
    table, _, others = crowded(50, MAIL)

    _, steps = work_of(lambda: list(*table._slots._lines[MAIL.resource].values()))

    assert steps == len(others)


def test_letting_everybody_in_costs_each_of_them_the_same() -> None:
    def per_reader(readers: int) -> Work:
        table, holder, _ = crowded(0, WRITE)
        for n in range(readers):
            table.request([READ_ALL], n)
        calls, steps = work_of(lambda: table.release(holder))
        return calls // readers, steps // readers

    per_reader(10)

    assert per_reader(3_000) <= per_reader(100)


@pytest.mark.parametrize("reserved", [{}, {"db:a": 1}])
def test_shutting_a_lane_costs_each_who_hands_its_slot_back_the_same(
    reserved: dict[str, int],
) -> None:
    def per_waiter(waiters: int) -> Work:
        wide = Lane(max_concurrent=waiters + 2, over=["db:"], reserved=reserved)
        table = Table({MAIL.resource: wide})
        table.request([WRITE], 0)
        for n in range(waiters):
            table.request([WRITE, MAIL], n)
        calls, steps = work_of(lambda: table.pause(MAIL.resource))
        return calls // waiters, steps // waiters

    per_waiter(10)

    assert per_waiter(3_000) <= per_waiter(100)


def test_a_long_holder_does_not_make_its_lane_grow() -> None:
    table, _, _ = crowded(1, *ALL)

    for n in range(3_000):
        table.withdraw(table.request(ALL, n))

    assert [
        len(queue) for queues in table._nodes._queues.values() for queue in queues.values()
    ] == [1]
    assert [len(line) for line in table._slots._lines.values()] == [1]
