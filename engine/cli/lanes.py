"""Who holds which lane in the engines that are at work now, and who waits for whom.

Reads the leased runs of a journal. What has started or is stuck holds its claims, what is queued
waits for them: put into a lane table again in that order, they give the picture that the engine
has. Lanes belong to an engine, so each process has a table of its own.

The picture can be one commit old, as a call's place in a queue rides in the next commit. In no
journal are limits of lanes (but for `laneway run --lanes`), who goes first among waiters for other
reasons than having come first, who waits for a thread, and of which call a tool's own run is part.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from laneway.claims import Access
from laneway.engine.cli.lanes_shown import (
    ShownBlocker,
    ShownEngine,
    ShownHolder,
    ShownLane,
    ShownLanes,
    ShownLeft,
    ShownWaiter,
)
from laneway.engine.cli.leased import LeasedRun, leased_runs
from laneway.engine.cli.plans import RESUME_WITH, PlanSettings
from laneway.engine.cli.standing import Standing, in_order, standing
from laneway.facts import Driver
from laneway.journal.fold import RunView, fold
from laneway.journal.lease import owner_in_the_way
from laneway.lanes.names import is_lane
from laneway.lanes.requests import Request
from laneway.lanes.table import LaneTable
from laneway.lanes.waits import Blocker


def read_lanes(path: Path, run: str = "", *, now_wall: float) -> ShownLanes:
    """Read the lanes of all engines that work with a journal.

    Args:
        path: of the journal.
        run: only the lanes in which calls of this run stand; empty for all.
        now_wall: Unix seconds.

    Raises:
        UnknownRunError: the journal has no such run.
        JournalError: it cannot be read.
    """
    return shown_lanes(leased_runs(path, run), run, journal=str(path), now_wall=now_wall)


def shown_lanes(
    runs: Iterable[LeasedRun], run: str = "", *, journal: str = "", now_wall: float
) -> ShownLanes:
    """Make the picture; see `read_lanes`."""
    engines: dict[Driver, list[LeasedRun]] = {}
    gone: list[ShownLeft] = []
    for one in runs:
        if owner_in_the_way(one.driver, silent_seconds=one.silent_seconds) is not None:
            engines.setdefault(one.driver, []).append(one)
        elif run in ("", one.run):
            gone += _left(one)
    return ShownLanes(
        journal=journal,
        read_wall=now_wall,
        engines=tuple(
            _engine(driver, driven, run)
            for driver, driven in engines.items()
            if not run or any(one.run == run for one in driven)
        ),
        gone=tuple(gone),
    )


def _engine(driver: Driver, runs: Sequence[LeasedRun], run: str) -> ShownEngine:
    views = [fold(one.run, one.rows) for one in runs]
    under_way = {
        f"{view.run}/{call.id}" for view in views for call in view.calls.values() if call.open
    }
    found = [
        [call for call in standing(view, one.rows) if call.joined not in under_way]
        for view, one in zip(views, runs, strict=True)
    ]
    limits = {lane: limit for view in views for lane, limit in _limits(view).items()}
    return ShownEngine(
        host=driver.host,
        pid=driver.pid,
        runs=tuple(one.run for one in runs),
        lanes=tuple(_lanes(in_order(found), run, limits)),
    )


def _limits(view: RunView) -> dict[str, int]:
    """The limits of lanes that a run was begun with, where it was `laneway run` that began it."""
    if view.resume_with != RESUME_WITH:
        return {}
    try:
        given = msgspec.convert(view.settings, PlanSettings).lanes
    except msgspec.ValidationError:
        return {}
    named = {name if ":" in name else f"lane:{name}": limit for name, limit in given.items()}
    return {lane: limit for lane, limit in named.items() if is_lane(lane)}


def _blockers(
    calls: Iterable[Standing], limits: Mapping[str, int]
) -> dict[Standing, tuple[Blocker[Standing], ...]]:
    """Put all into a lane table, and ask it who waits for whom."""
    entered = Counter(
        claim.resource
        for one in calls
        if not one.waiting
        for claim in one.claims
        if is_lane(claim.resource)
    )
    # A lane whose limit is not known lets in as many as it has.
    table = LaneTable[Standing](
        {**limits, **{lane: max(limits.get(lane, 1), count) for lane, count in entered.items()}}
    )
    requests: dict[str, Request[Standing]] = {}
    for one in calls:
        # What a body invokes is a run that is named after its call, and does not wait for it.
        above = requests.get(one.run.rpartition("/")[0])
        parent = above if above is not None and above.granted else None
        requests[one.name] = table.request(one.claims, one, parent=parent)
    return {request.owner: blockers for request, blockers in table.waits() if request.owner.waiting}


def _lanes(calls: Sequence[Standing], run: str, limits: Mapping[str, int]) -> Iterable[ShownLane]:
    blockers = _blockers(calls, limits)
    holders: dict[str, list[ShownHolder]] = {}
    waiters: dict[str, list[ShownWaiter]] = {}
    wanted: set[str] = set()
    for one in calls:
        for claim in one.claims:
            resource = claim.resource
            if one.waiting:
                waiter = _waiter(one, claim.access, blockers.get(one, ()), limits)
                waiters.setdefault(resource, []).append(waiter)
            else:
                holders.setdefault(resource, []).append(_holder(one, claim.access))
            if run in ("", one.run):
                wanted.add(resource)
    for resource in sorted(wanted):
        yield ShownLane(
            resource=resource,
            max_concurrent=limits.get(resource),
            holders=tuple(holders.get(resource, ())),
            waiters=tuple(waiters.get(resource, ())),
        )


def _holder(one: Standing, access: Access) -> ShownHolder:
    return ShownHolder(
        call=one.name,
        tool=one.record.tool,
        access=access,
        state=one.state,
        stuck=one.stuck,
        since_wall=one.since_wall,
    )


def _waiter(
    one: Standing,
    access: Access,
    blockers: Sequence[Blocker[Standing]],
    limits: Mapping[str, int],
) -> ShownWaiter:
    return ShownWaiter(
        call=one.name,
        tool=one.record.tool,
        access=access,
        since_wall=one.since_wall,
        waits_for=tuple(
            ShownBlocker(
                resource=blocker.resource,
                call="" if blocker.owner is None else blocker.owner.name,
                holding=blocker.holding and not _waits(blocker),
                # It does wait, so where a lane is all that can be in its way, it is; but a pause, a
                # rate or a group may be, which no journal tells.
                certain=not is_lane(blocker.resource)
                or blocker.resource in limits
                or (len(blockers) == 1 and not _waits(blocker)),
            )
            for blocker in blockers
        ),
    )


def _waits(blocker: Blocker[Standing]) -> bool:
    return blocker.owner is not None and blocker.owner.waiting


def _left(one: LeasedRun) -> list[ShownLeft]:
    return [
        ShownLeft(
            run=one.run,
            host=one.driver.host,
            pid=one.driver.pid,
            call=call.record.id,
            tool=call.record.tool,
            state=call.state,
            since_wall=call.since_wall,
            claims=tuple(map(str, call.claims)),
        )
        for call in standing(fold(one.run, one.rows), one.rows)
        if not call.stuck
    ]
