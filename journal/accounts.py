"""What did a run do, where does it stand, and what of its effects is known? From the facts alone.

Reads the timeline of a run; gives a frozen answer (`answered`). Of single calls `answers` tells.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from laneway.calls import Edge
from laneway.ids import CallId
from laneway.journal.answered import (
    Budget,
    Drove,
    Lost,
    RunAnswer,
    Spent,
    Told,
    TurnDone,
)
from laneway.journal.answers import approval_of, happened_in
from laneway.journal.timeline import Course, Timeline
from laneway.outcomes import Failure, Happened, Outcome, succeeded
from laneway.states import State


def why_run(time: Timeline) -> RunAnswer:
    """Answer for a run as a whole."""
    view = time.view
    courses = list(time.courses.values())
    turn = view.open_turn
    open_edges = _open_edges(time)
    told = [(course, _told(course, open_edges.get(course.view.id, ()))) for course in courses]
    return RunAnswer(
        run=view.run,
        mode=view.mode,
        facts=view.seq,
        opened_wall=time.drivers[0].wall,
        touched_wall=time.last.at,
        forked_from=view.forked.source if view.forked is not None else None,
        forked_at=view.forked.seq if view.forked is not None else 0,
        standing=_standing(time),
        stopped=view.stop_reason or "",
        stopped_because=view.stopped.detail if view.stopped is not None else "",
        open_turn=turn.number if turn is not None else None,
        spent=_spent(time),
        states=dict(Counter(str(course.view.state) for course in courses)),
        tools=dict(Counter(course.view.record.tool for course in courses)),
        turns=tuple(
            TurnDone(
                turn=one.number,
                calls=len(one.calls),
                submitted_wall=times.submitted.at,
                closed_wall=times.closed.at if times.closed is not None else None,
            )
            for one, times in zip(view.turns, time.turns, strict=True)
        ),
        confirmed=tuple(one for course, one in told if _confirmed(course)),
        unknown=tuple(one for course, one in told if _in_doubt(course)),
        unfinished=tuple(one for course, one in told if _unfinished(time, course)),
        failed=tuple(
            one
            for course, one in told
            if not (course.view.open or succeeded(_known(course)) or _in_doubt(course))
        ),
        approvals=tuple(
            approval_of(time, course, one) for course in courses for one in course.questions
        ),
        drivers=tuple(
            Drove(
                driver=one.driver,
                took_wall=one.wall,
                last_wall=one.last.at,
                facts=one.facts,
                changes=one.changes,
            )
            for one in time.drivers
        ),
        lost=tuple(
            Lost(after=moment.seq - 1, facts=one.lost, by=one.by, wall=moment.at)
            for moment, one in time.losses
        ),
        lanes_changed=tuple(
            f"{one.lane} {one.change}" + (f" to {one.value}" if one.value else "")
            for _, one in time.lane_changes
        ),
        tasks={
            name: "open"
            if task.outcome is None
            else "succeeded"
            if succeeded(task.outcome)
            else task.outcome.code
            for name, task in view.tasks.items()
        },
        notes=tuple(one.note for one in view.notes),
    )


def _known(course: Course) -> Outcome | None:
    """What it came to, as far as anybody has found out."""
    return course.view.settled or course.view.outcome


def _confirmed(course: Course) -> bool:
    return not course.view.record.effect.changes_nothing and succeeded(_known(course))


def _in_doubt(course: Course) -> bool:
    known = _known(course)
    return isinstance(known, Failure) and (
        known.happened is not Happened.NOTHING
        or (course.view.state is State.UNCERTAIN and course.view.settled is None)
    )


def _unfinished(time: Timeline, course: Course) -> bool:
    view = course.view
    settles = view.state is State.UNCERTAIN and not time.view.turns[view.turn - 1].closed
    return view.open or view.stuck or settles


def _open_edges(time: Timeline) -> dict[CallId, list[Edge]]:
    """By call, the edges that still hold it up."""
    found: dict[CallId, list[Edge]] = {}
    turn = time.view.open_turn
    for edge in turn.edges if turn is not None else ():
        source = time.courses[edge.source]
        if source.view.open or (
            source.view.state is State.UNCERTAIN and edge.reason.carries_failure
        ):
            found.setdefault(edge.target, []).append(edge)
    return found


def _waits_for(course: Course, edges: Iterable[Edge]) -> Iterator[str]:
    match course.view.state:
        case State.PENDING:
            for edge in edges:
                yield f"{edge.source} ({edge.reason}{f' {edge.detail}' if edge.detail else ''})"
        case State.AWAITING_APPROVAL:
            yield f"the answer to {course.questions[-1].asked.approval}"
        case State.QUEUED:
            claims = course.view.claims or course.view.record.claims
            yield from (str(claim) for claim in claims if not claim.resource.startswith("run:"))
        case State.UNCERTAIN if course.view.settled is None:
            yield "somebody who knows what happened"
        case _:
            pass


def _told(course: Course, edges: Iterable[Edge]) -> Told:
    view, known = course.view, _known(course)
    failure = known if isinstance(known, Failure) else None
    asked = course.questions[-1].asked if course.questions else None
    return Told(
        call=view.id,
        tool=view.record.tool,
        arguments=view.record.arguments if asked is None else asked.arguments,
        effect=view.record.effect,
        state=view.state,
        code=None if failure is None else failure.code,
        message="" if failure is None else failure.message,
        happened=happened_in(known),
        by=view.by,
        stuck=view.stuck,
        waits_for=tuple(_waits_for(course, edges)),
        at_wall=course.periods[-1].began.at,
    )


def _spent(time: Timeline) -> Spent:
    courses = time.courses.values()
    attempts = [one for course in courses for one in course.attempts]
    return Spent(
        turns=len(time.turns),
        calls=len(time.courses),
        attempts=len(attempts),
        driven_seconds=sum(one.last.at - one.first.at for one in time.drivers),
        body_seconds=sum((one.ended or time.last).at - one.began.at for one in attempts),
        human_seconds=sum(
            (one.ended or time.last).at - one.began.at
            for course in courses
            for one in course.periods
            if one.state is State.AWAITING_APPROVAL
        ),
        budgets={
            name: Budget(settled=one.settled, reserved=sum(one.reserved.values()))
            for name, one in time.view.budgets.items()
        },
    )


def _standing(time: Timeline) -> str:
    view = time.view
    if not view.turns:
        return "empty"
    if view.open_turn is not None:
        return "open"
    return "done" if view.turns[-1].calls else "answered"
