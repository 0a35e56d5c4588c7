"""The lanes of running engines as a table for people, once or again and again.

Draws what `lanes` has read; the command line says the lines.
"""

from collections.abc import Callable, Iterator, Sequence
from io import StringIO
from itertools import groupby
from time import sleep

from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from laneway.claims import Access
from laneway.engine.cli.lanes_shown import (
    ShownBlocker,
    ShownHolder,
    ShownLane,
    ShownLanes,
    ShownLeft,
    ShownWaiter,
)
from laneway.engine.cli.wording import MARKS, seconds_text
from laneway.lanes.names import is_lane
from laneway.states import State

WATCH_SECONDS = 1.0
"""Between two looks at the journal."""
_WIDEST = 10_000


def watch_lanes(
    read: Callable[[], ShownLanes],
    say: Callable[[ShownLanes], None],
    tick: Callable[[], bool],
    *,
    clear: bool,
) -> None:
    """Show the lanes again and again.

    Args:
        read: looks at the journal.
        say: shows what was read.
        tick: waits until the next look is due; False ends it.
        clear: show each picture in the place of the last; else only those that differ by more
            than the time, one below the other.
    """
    before: ShownLanes | None = None
    while True:
        shown = read()
        timeless = replace(shown, read_wall=0.0)
        if clear:
            print(CLEAR, end="")
        if clear or timeless != before:
            say(shown)
        before = timeless
        if not tick():
            return


CLEAR = "\x1b[H\x1b[2J"
"""Cursor home, erase all (ECMA-48)."""


def next_look() -> bool:
    """Wait until it is time to look again."""
    sleep(WATCH_SECONDS)
    return True


def table_lines(shown: ShownLanes, *, width: int | None = None) -> Iterator[str]:
    """Draw the lanes of each engine, and below them what dead processes have left.

    Args:
        shown: what was read.
        width: columns; as wide as need be if None.
    """
    if not shown.engines:
        yield f"no engine is at work on {shown.journal}"
    for engine in shown.engines:
        runs = f"run{'' if len(engine.runs) == 1 else 's'} {', '.join(engine.runs)}"
        yield f"process {engine.pid} on {engine.host}  {runs}"
        lanes = [lane for lane in engine.lanes if not _says_nothing(lane)]
        if lanes:
            yield from _drawn(_table(lanes, shown.read_wall), width or _WIDEST)
        else:
            yield "  nobody holds a lane or waits for one"
    for (run, host, pid), left in groupby(shown.gone, lambda one: (one.run, one.host, one.pid)):
        yield f"left by a process that is gone ({pid} on {host}), in run {run}:"
        yield from map(_left_text, left)


def _table(lanes: Sequence[ShownLane], now: float) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("lane", "limit", "", "call", "tool", "since", ""):
        table.add_column(heading, overflow="fold")
    for lane in lanes:
        first = lane.resource, _limit_text(lane)
        for holder in lane.holders:
            table.add_row(*first, *_holder_cells(holder, lane, now))
            first = "", ""
        for waiter in lane.waiters:
            table.add_row(*first, *_waiter_cells(waiter, lane, now))
            first = "", ""
    return table


def _drawn(table: Table, width: int) -> Iterator[str]:
    paper = StringIO()
    console = Console(
        file=paper, width=width, color_system=None, markup=False, emoji=False, highlight=False
    )
    console.print(table)
    return (line.rstrip() for line in paper.getvalue().splitlines())


def _limit_text(lane: ShownLane) -> str:
    if lane.max_concurrent is not None:
        return str(lane.max_concurrent)
    return "?" if is_lane(lane.resource) else ""


def _holder_cells(holder: ShownHolder, lane: ShownLane, now: float) -> tuple[str, ...]:
    told = [] if is_lane(lane.resource) else [str(holder.access)]
    if holder.stuck:
        told.append(f"stuck: it ended {holder.state}, and its body has not stopped")
    return (
        MARKS[State.RUNNING],
        holder.call,
        holder.tool,
        _age(holder.since_wall, now),
        ", ".join(told),
    )


def _waiter_cells(waiter: ShownWaiter, lane: ShownLane, now: float) -> tuple[str, ...]:
    access = "" if is_lane(lane.resource) else f"{waiter.access}, "
    waits = "; ".join(map(_blocker_text, waiter.waits_for))
    about = f"waits for {waits}" if waits else "starts next, or waits for what no journal tells"
    return (
        MARKS[State.QUEUED],
        waiter.call,
        waiter.tool,
        _age(waiter.since_wall, now),
        f"{access}{about}",
    )


def _age(since: float, now: float) -> str:
    return seconds_text(max(now - since, 0.0))


def _blocker_text(blocker: ShownBlocker) -> str:
    how = "held by" if blocker.holding else "behind"
    doubt = "" if blocker.certain else ", if it is full"
    return f"{blocker.resource} {how} {blocker.call}{doubt}"


def _left_text(left: ShownLeft) -> str:
    claims = ", ".join(left.claims)
    return f"  {MARKS[left.state]} {left.call} {left.tool}  {left.state}  {claims}".rstrip()


def _says_nothing(lane: ShownLane) -> bool:
    """Whether it is a run that its calls merely share."""
    accesses = [
        *(holder.access for holder in lane.holders),
        *(waiter.access for waiter in lane.waiters),
    ]
    return lane.resource.startswith("run:") and Access.EXCLUSIVE not in accesses
