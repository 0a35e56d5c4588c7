"""Who held the lanes that a call waited for: what the journal's answers cannot know by themselves.

Claims hold within one engine, so only calls of the same process can have been in the way, of this
run or of another; its monotonic clock orders them. What overlaps, the lanes say. Reads timelines
of runs; feeds the answer for a call.
"""

from collections.abc import Iterable, Iterator
from math import inf

import msgspec

from laneway.claims import Access, Claim
from laneway.journal.answered import CallAnswer, Holder, Wait
from laneway.journal.answers import WAITING, why_call
from laneway.journal.timeline import Course, Moment, Period, Timeline
from laneway.lanes.names import is_lane, overlaps
from laneway.states import State


def why(time: Timeline, name: str, others: Iterable[Timeline] = ()) -> CallAnswer:
    """Answer for one call, with who held its lanes while it was queued.

    Args:
        time: of its run.
        name: of the call, as for `why_call`.
        others: other runs that may have shared its lanes.

    Raises:
        UnknownCallError: as `why_call`.
    """
    answer = why_call(time, name)
    course = time.courses[answer.call]
    periods = [one for one in course.periods if one.state in WAITING]
    if all(one.state is not State.QUEUED for one in periods):
        return answer
    runs = [time, *others]
    waits = [
        _with_holders(wait, period, time, course, runs)
        for wait, period in zip(answer.waits, periods, strict=True)
    ]
    return msgspec.structs.replace(answer, waits=tuple(waits))


def conflict(one: Claim, other: Claim) -> bool:
    """Whether two claims, canonical, cannot both be held."""
    if is_lane(one.resource) or is_lane(other.resource):
        return one.resource == other.resource
    if Access.EXCLUSIVE not in (one.access, other.access):
        return False
    return overlaps(one.resource, other.resource)


def _with_holders(
    wait: Wait, period: Period, time: Timeline, course: Course, runs: Iterable[Timeline]
) -> Wait:
    if wait.state is not State.QUEUED:
        return wait
    found = [one for run in runs for one in _holders(run, period, time, course)]
    found.sort(key=lambda one: -one.seconds)
    paused = _paused(time, period, {claim.resource for claim in _claims(course)})
    return msgspec.structs.replace(wait, holders=tuple(found), paused=paused)


def _holders(run: Timeline, period: Period, time: Timeline, course: Course) -> Iterator[Holder]:
    driver = time.drivers[period.began.driver].driver
    mine = f"{time.view.run}/{course.view.id}"
    began, over = period.began.mono, _mono(period.ended, inf)
    now = max(time.last.mono, run.last.mono)
    for other in run.courses.values():
        name = f"{run.view.run}/{other.view.id}"
        if other is course or mine.startswith(f"{name}/"):
            continue  # What a call within another needs, the other shares with it.
        for held, freed in other.holds():
            if run.drivers[held.driver].driver != driver:
                continue
            end = _mono(freed, inf)
            if held.mono >= over or end <= began:
                continue
            met = _met(course, other)
            if met is None:
                break
            until = min(end, over, now)
            yield Holder(
                call=other.view.id if run is time else name,
                tool=other.view.record.tool,
                resource=str(met[1]),
                wanted=str(met[0]),
                seconds=max(until - max(held.mono, began), 0.0),
                holding=freed is None,
            )


def _met(course: Course, other: Course) -> tuple[Claim, Claim] | None:
    pairs = ((mine, theirs) for mine in _claims(course) for theirs in _claims(other))
    return next(((mine, theirs) for mine, theirs in pairs if conflict(mine, theirs)), None)


def _claims(course: Course) -> Iterable[Claim]:
    return course.view.claims or course.view.record.claims


def _mono(moment: Moment | None, otherwise: float) -> float:
    return otherwise if moment is None else moment.mono


def _paused(time: Timeline, period: Period, claimed: set[str]) -> tuple[str, ...]:
    """Lanes that were paused for some of the time."""
    over = inf if period.ended is None else period.ended.seq
    at_first: dict[str, bool] = {}
    later: set[str] = set()
    for moment, one in time.lane_changes:
        if one.lane not in claimed or one.change not in ("paused", "resumed") or moment.seq > over:
            continue
        if moment.seq < period.began.seq:
            at_first[one.lane] = one.change == "paused"
        elif one.change == "paused":
            later.add(one.lane)
    return tuple(sorted(later | {lane for lane, is_so in at_first.items() if is_so}))
