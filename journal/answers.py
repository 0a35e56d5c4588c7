"""Why did a call run, wait, end? Answered from the facts alone, driven or not.

Reads the timeline of a run; gives frozen answers (`answered`). Who held a lane meanwhile needs the
lanes' own idea of overlap and other runs: the engine adds that to the waits. Of a run as a whole
`accounts` tells.
"""

from collections.abc import Iterator

from laneway.errors import UnknownCallError
from laneway.ids import CallId
from laneway.journal.answered import (
    Approval,
    CallAnswer,
    Dependency,
    Link,
    Tried,
    Wait,
)
from laneway.journal.timeline import Course, Moment, Period, Question, Timeline
from laneway.outcomes import Failure, Happened, Outcome, succeeded
from laneway.states import ENDED, State

WAITING = frozenset(State) - ENDED - {State.RUNNING} | {State.UNCERTAIN}
"""States in which a call waits; UNCERTAIN, since it waits for somebody who knows."""


def why_call(time: Timeline, name: str) -> CallAnswer:
    """Answer for one call.

    Args:
        time: of its run.
        name: `t1.2`, or the provider's id where only one call of the run has it.

    Raises:
        UnknownCallError: the run has no such call, or several.
    """
    course = _find(time, name)
    view, record = course.view, course.view.record
    return CallAnswer(
        run=time.view.run,
        call=view.id,
        name=record.provider_id,
        tool=record.tool,
        arguments=record.arguments,
        effect=record.effect,
        idempotent=record.idempotent,
        parent=record.parent,
        turn=view.turn,
        state=view.state,
        decision=_decision(course),
        rule=view.rule or (course.questions[-1].asked.rule if course.questions else ""),
        approvals=tuple(approval_of(time, course, one) for one in course.questions),
        waits=tuple(_waits(time, course)),
        attempts=tuple(
            Tried(
                attempt=one.number,
                token=one.token,
                began_wall=one.began.at,
                seconds=(one.ended or time.last).at - one.began.at,
                ended=one.ended is not None,
                cause=one.cause,
            )
            for one in course.attempts
        ),
        ended_wall=course.periods[-1].began.at if view.outcome is not None else None,
        outcome=view.outcome,
        chain=tuple(_chain(time, course)),
        happened=happened_in(view.outcome),
        probes=tuple(
            f"{one.found}: {one.detail}" if one.detail else one.found for one in course.probes
        ),
        reopened_by=tuple(course.reopened),
        settled=view.settled,
        settled_by=view.by if view.settled is not None else "",
        stuck=view.stuck,
        late=view.late,
        children=view.children,
        processes=tuple(one.group for one in view.processes),
    )


def _find(time: Timeline, name: str) -> Course:
    found = time.courses.get(CallId(name))
    if found is not None:
        return found
    same = [one for one in time.courses.values() if one.view.record.provider_id == name]
    if len(same) == 1:
        return same[0]
    ids = ", ".join(one.view.id for one in same[:8])
    raise UnknownCallError(
        time.view.run,
        name,
        f"alone: several have this id; give Laneway's own name of one ({ids})"
        if same
        else "(`laneway show` lists them)",
    )


def _decision(course: Course) -> str:
    if course.questions:
        return "ask"
    if course.view.state is State.DENIED:
        return "deny"
    return "allow" if any(one.state is State.QUEUED for one in course.periods) else ""


def approval_of(time: Timeline, course: Course, question: Question) -> Approval:
    """Tell of a question to a human, and of the answer."""
    asked, answer = question.asked, question.answer
    view = time.view.approvals[asked.approval]
    over = question.answered_at or next(
        (
            one.ended
            for one in course.periods
            if one.state is State.AWAITING_APPROVAL
            and one.began.seq >= question.asked_at.seq
            and one.ended is not None
        ),
        time.last if course.view.open else None,
    )
    return Approval(
        approval=asked.approval,
        call=asked.call,
        tool=course.view.record.tool,
        arguments=asked.arguments,
        rule=asked.rule,
        reason=asked.reason,
        asked_wall=question.asked_at.at,
        expires_wall=asked.expires_wall,
        granted=None if answer is None else answer.granted,
        by="" if answer is None else answer.by,
        said="" if answer is None else answer.reason,
        waited_seconds=None if over is None else over.at - question.asked_at.at,
        edited=None if view.edit is None else view.edit.arguments,
        approvers=view.needed,
        granted_by=tuple(one.by for one in view.counted),
        holds_for=""
        if answer is None or answer.grant is None
        else "run"
        if answer.grant.pattern is None
        else "pattern",
    )


def _waits(time: Timeline, course: Course) -> Iterator[Wait]:
    for period in course.periods:
        if period.state in WAITING:
            yield _wait(time, course, period)


def _wait(time: Timeline, course: Course, period: Period) -> Wait:
    view, state, over = course.view, period.state, period.ended
    attempt = next((one for one in course.attempts if one.number == period.attempt), None)
    queued, again = state is State.QUEUED, state is State.BACKING_OFF
    asked = [one for one in course.questions if one.asked_at.seq <= period.began.seq]
    claims = view.claims or view.record.claims
    return Wait(
        state=state,
        began_wall=period.began.at,
        ended_wall=None if over is None else over.at,
        seconds=(over or time.last).at - period.began.at,
        lost=period.cut,
        dependencies=_dependencies(time, course, period) if state is State.PENDING else (),
        approval=asked[-1].asked.approval if state is State.AWAITING_APPROVAL and asked else None,
        claims=tuple(map(str, claims)) if queued else (),
        same_as=tuple(course.joined) if queued else (),
        cause=attempt.cause if again and attempt is not None else "",
        delay_seconds=attempt.delay_seconds if again and attempt is not None else 0.0,
    )


def _dependencies(time: Timeline, course: Course, period: Period) -> tuple[Dependency, ...]:
    turn = time.view.turns[course.view.turn - 1]
    edges = [edge for edge in turn.edges if edge.target == course.view.id]
    over = {edge: _over(time.courses[edge.source]) for edge in edges}
    limit = period.ended.seq if period.ended is not None else time.last.seq
    before = [moment.seq for moment in over.values() if moment is not None and moment.seq <= limit]
    last = max(before, default=0)
    return tuple(
        Dependency(
            call=edge.source,
            tool=time.courses[edge.source].view.record.tool,
            reason=edge.reason,
            detail=edge.detail,
            state=time.courses[edge.source].view.state,
            ended_wall=None if (moment := over[edge]) is None else moment.at,
            last=moment is not None and moment.seq == last,
        )
        for edge in edges
    )


def _over(course: Course) -> Moment | None:
    period = course.periods[-1]
    return period.began if period.state in ENDED else None


def _chain(time: Timeline, course: Course) -> Iterator[Link]:
    """Follow a failure to the call that it came from."""
    seen = {course.view.id}
    outcome = course.view.outcome
    while isinstance(outcome, Failure) and outcome.cause is not None and outcome.cause not in seen:
        seen.add(outcome.cause)
        source = time.courses.get(outcome.cause)
        if source is None:
            return
        outcome = source.view.outcome
        if isinstance(outcome, Failure):
            record, state = source.view.record, source.view.state
            yield Link(call=record.id, tool=record.tool, state=state, code=outcome.code)


def happened_in(outcome: Outcome | None) -> Happened | None:
    """What a call did to the world, as its outcome says; None while it has none."""
    if outcome is None:
        return None
    return Happened.ALL if succeeded(outcome) else outcome.happened
