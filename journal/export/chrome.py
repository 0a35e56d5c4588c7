"""A run as a Chrome trace: open the file in ui.perfetto.dev, or in chrome://tracing.

A process for each driver; below it a track for each resource that calls held, a second kind of
track for those that waited for it, and arrows from a call to what depended on it. Events of one
track have to nest, so what overlaps there (shared holders, several waiters) stands on further
tracks of the same name. Times are microseconds since 1970 on the axis of `timeline`.

The form is the Trace Event Format (Google, rev. 2016) as Perfetto reads it: phases M, X, i, s, f;
thread ids are unique over all processes, since Perfetto names tracks by them alone.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import msgspec

from laneway.claims import Access
from laneway.ids import CallId
from laneway.journal.export.escaping import plain_json, visible
from laneway.journal.export.tracks import FREE, TURNS, WAITING, Item, Slice, Track, tracks_of
from laneway.journal.lease import describe
from laneway.journal.timeline import Course, Moment, Period, Timeline
from laneway.outcomes import Failure
from laneway.states import ENDED, State

Event = dict[str, Any]


class Drawn(msgspec.Struct, eq=False):
    """What is drawn of a call."""

    course: Course
    waits: list[Item] = []
    runs: list[list[Item]] = []
    """One list for each attempt: its item on each of its lanes, the first of them leading."""


def trace(time: Timeline) -> Iterator[bytes]:
    """Write the trace, in pieces of one JSON document."""
    drawn = {call: _drawn(time, course) for call, course in time.courses.items()}
    items = [item for one in drawn.values() for item in chain(one.waits, *one.runs)]
    items += _turns(time)
    tracks = tracks_of(items, len(time.drivers))
    events = [event for item in items for event in _slices(item)]
    events += _instants(time, drawn)
    events += _arrows(time, drawn)
    # Of two that begin together the longer holds the other; arrows come to what is there.
    events.sort(key=lambda one: (one["ts"], one["ph"] != "X", -one.get("dur", 0)))
    write = msgspec.json.Encoder().encode
    yield b'{"displayTimeUnit":"ms","otherData":'
    yield plain_json(write({"run": visible(time.view.run), "facts": time.view.seq}))
    yield b',"traceEvents":[\n'
    before = b""
    for event in (*_names(time, tracks), *events):
        yield before + plain_json(write(event))
        before = b",\n"
    yield b"\n]}\n"


def _us(moment: Moment) -> int:
    return round(moment.at * 1e6)


def _drawn(time: Timeline, course: Course) -> Drawn:
    drawn = Drawn(course)
    tracks = _resources(course)
    ran = any(one.state is State.RUNNING for one in course.periods)
    waiting: Item | None = None
    for period in course.periods:
        if period.state is State.RUNNING:
            slices = _run_slices(time, course, period)
            drawn.runs.append([Item(period.began.driver, track, list(slices)) for track in tracks])
            waiting = None
        elif period.state not in ENDED or period.ended is not None:
            piece = _piece(time, course, period, str(period.state).lower().replace("_", " "))
            if ran and piece.began == piece.ended and period.state is not State.AWAITING_APPROVAL:
                continue
            if waiting is None or waiting.driver != period.began.driver:
                waiting = Item(period.began.driver, f"{tracks[0]}{WAITING}", [])
                drawn.waits.append(waiting)
            waiting.slices.append(piece)
    return drawn


def _resources(course: Course) -> list[str]:
    """The resources that a call held; that it is part of its run goes without saying."""
    claims = course.view.claims or course.view.record.claims
    told = [
        claim
        for claim in claims
        if claim.access is Access.EXCLUSIVE or not claim.resource.startswith("run:")
    ]
    told.sort(key=lambda claim: claim.access is not Access.EXCLUSIVE)
    return [claim.resource for claim in told] or [FREE]


def _run_slices(time: Timeline, course: Course, period: Period) -> Iterator[Slice]:
    running = _piece(time, course, period, "")
    yield running
    last = next(one for one in reversed(course.periods) if one.state is State.RUNNING)
    if course.outlived and period is last:
        stopped = course.stopped or time.last
        name = f"{running.name}: not stopped"
        yield Slice(name, running.ended, max(_us(stopped), running.ended), running.args)


def _piece(time: Timeline, course: Course, period: Period, what: str) -> Slice:
    view = course.view
    args: Event = {"call": view.id, "state": view.state}
    if view.record.provider_id:
        args["id"] = visible(view.record.provider_id)
    if not what:
        attempt = next((one for one in course.attempts if one.number == period.attempt), None)
        args |= {"attempt": period.attempt, "token": attempt.token if attempt is not None else 0}
    if isinstance(view.outcome, Failure):
        args["code"] = view.outcome.code
    if period.ended is None:
        args["open"] = True
    again = f" #{period.attempt}" if not what and period.attempt > 1 else ""
    name = f"{view.id} {visible(view.record.tool)}{again}" + (f": {what}" if what else "")
    over = period.ended or time.drivers[period.began.driver].last
    return Slice(name, _us(period.began), _us(over), args)


def _turns(time: Timeline) -> Iterator[Item]:
    """A turn on each driver that had it open."""
    for turn, times in zip(time.view.turns, time.turns, strict=True):
        over = times.closed or time.last
        for at in range(times.submitted.driver, over.driver + 1):
            began = times.submitted if at == times.submitted.driver else time.drivers[at].first
            ended = over if at == over.driver else time.drivers[at].last
            args: Event = {"calls": len(turn.calls), "format": turn.provider}
            if times.closed is None:
                args["open"] = True
            yield Item(at, TURNS, [Slice(f"turn {turn.number}", _us(began), _us(ended), args)])


def _names(time: Timeline, tracks: Iterable[Track]) -> Iterator[Event]:
    for at, drive in enumerate(time.drivers):
        who = "no driver" if drive.driver is None else describe(drive.driver)
        name = f"{time.view.run}: driver {at + 1}, {who}"
        yield _metadata("process_name", at + 1, at + 1, {"name": visible(name)})
        yield _metadata("process_sort_index", at + 1, at + 1, {"sort_index": at})
    for index, track in enumerate(tracks):
        name = track.name if track.number == 1 else f"{track.name} ({track.number})"
        pid = track.driver + 1
        yield _metadata("thread_name", pid, track.tid, {"name": visible(name)})
        yield _metadata("thread_sort_index", pid, track.tid, {"sort_index": index})


def _metadata(name: str, pid: int, tid: int, args: Event) -> Event:
    return {"name": name, "ph": "M", "pid": pid, "tid": tid, "ts": 0, "args": args}


def _slices(item: Item) -> Iterator[Event]:
    for one in item.slices:
        yield {
            "name": one.name,
            "cat": "waiting" if item.track.endswith(WAITING) else "running",
            "ph": "X",
            "ts": one.began,
            "dur": one.ended - one.began,
            "pid": item.driver + 1,
            "tid": item.tid,
            "args": one.args,
        }


def _instants(time: Timeline, drawn: dict[CallId, Drawn]) -> Iterator[Event]:
    for one in drawn.values():
        for question in one.course.questions:
            asked, answer, answered = question.asked, question.answer, question.answered_at
            yield _instant(
                f"asked: {asked.approval}", question.asked_at, one, {"rule": visible(asked.rule)}
            )
            if answer is not None and answered is not None:
                word = "granted" if answer.granted else "refused"
                args = {"by": visible(answer.by), "reason": visible(answer.reason)}
                yield _instant(f"{word}: {asked.approval}", answered, one, args)
    for moment, change in time.lane_changes:
        yield _instant(f"{visible(change.lane)} {change.change}", moment, None, {})
    for moment, loss in time.losses:
        yield _instant(f"{loss.lost} damaged facts given up", moment, None, {})


def _instant(name: str, moment: Moment, drawn: Drawn | None, args: Event) -> Event:
    pid = moment.driver + 1
    event: Event = {"name": name, "cat": "approval", "ph": "i", "ts": _us(moment), "pid": pid}
    waits = () if drawn is None else drawn.waits
    item = next((one for one in waits if one.driver == moment.driver), None)
    if item is None:
        return {**event, "cat": "run", "s": "p", "tid": pid, "args": args}
    return {**event, "s": "t", "tid": item.tid, "args": args}


def _arrows(time: Timeline, drawn: dict[CallId, Drawn]) -> Iterator[Event]:
    number = 0
    for turn in time.view.turns:
        for edge in turn.edges:
            start, end = _leaves(drawn[edge.source]), _arrives(drawn[edge.target])
            # A call that overtook one that waits for a human was not held up by it after all.
            if start["ts"] > end["ts"]:
                continue
            number += 1
            same = {"name": edge.reason, "cat": "dependency", "id": number}
            args = {"over": visible(edge.detail)} if edge.detail else {}
            yield {**same, "ph": "s", **start, "args": args}
            yield {**same, "ph": "f", "bp": "e", **end}


def _leaves(drawn: Drawn) -> Event:
    """Where an arrow leaves a call: just before it ended, since it has to be inside."""
    item = drawn.runs[-1][0] if drawn.runs else drawn.waits[-1]
    last = item.slices[0] if drawn.runs else item.slices[-1]
    at = max(last.began, last.ended - 1)
    return {"ts": at, "pid": item.driver + 1, "tid": item.tid}


def _arrives(drawn: Drawn) -> Event:
    """Where an arrow comes to a call: at its start, or at the end of its waiting in vain."""
    if drawn.runs:
        item = drawn.runs[0][0]
        return {"ts": item.began, "pid": item.driver + 1, "tid": item.tid}
    return _leaves(drawn)
