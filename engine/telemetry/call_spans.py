"""What the facts of a call do to its spans: begin them, end them, and tell what happened between.

One function a fact; the table is in `spans`.
"""

import re

from laneway.engine.telemetry.attributes import Attributes, as_text, lanes_of
from laneway.engine.telemetry.courses import Course
from laneway.engine.telemetry.tree import RunSpans
from laneway.facts import (
    ApprovalAnswered,
    ApprovalAsked,
    AttemptEnded,
    CallEnded,
    CallJoined,
    CallProbed,
    CallQueued,
    CallReopened,
    CallSettled,
    CallStarted,
    HolderStopped,
)
from laneway.ids import CallId, RunId
from laneway.outcomes import Code, Failure, succeeded

_ERROR = re.compile(r"[A-Za-z_]\w*(?=:|$)")
"""The name of an exception, in front of what it says."""


def queued(_: RunSpans, fact: CallQueued, at: int, course: Course) -> None:
    """It may pass; a model that begins to go round in circles is told so."""
    if fact.note:
        course.span.add_event("laneway.loop.warned", None, at)
    if fact.rule:
        course.span.set_attribute("laneway.rule", fact.rule)


def joined(spans: RunSpans, fact: CallJoined, at: int, course: Course) -> None:
    """It waits for another that is the same."""
    found = _CALLED.fullmatch(fact.leader)
    leader = None if found is None else spans.elsewhere(RunId(found[1]), CallId(found[2]))
    if leader is not None and leader.span is not None:
        course.span.add_link(leader.span.get_span_context(), {"laneway.reason": "joined"})
    course.span.add_event("laneway.joined", {"laneway.leader": fact.leader}, at)


_CALLED = re.compile(r"(.+)/(t\d+\.\d+(?:/\d+)*)", re.DOTALL)


def started(spans: RunSpans, fact: CallStarted, at: int, course: Course) -> None:
    """It holds its lanes: what it waited for them, and its attempt."""
    if course.waited_seconds > 0:
        resources = tuple(claim.resource for claim in course.claims or course.record.claims)
        waited: Attributes = {
            "laneway.wait_seconds": course.waited_seconds,
            "laneway.lanes": lanes_of(resources, content=spans.content),
        }
        course.span.add_event("laneway.lanes.waited", waited, at)
    spans.begin_attempt(course, fact.token, at)


def tried(spans: RunSpans, fact: AttemptEnded, at: int, course: Course) -> None:
    """An attempt failed, and another follows."""
    found = _ERROR.match(fact.cause)
    error = "_OTHER" if found is None else found[0]
    spans.end_attempt(course, at, error, fact.cause)
    again: Attributes = {
        "laneway.attempt": fact.attempt,
        "laneway.delay_seconds": fact.delay_seconds,
        "error.type": error,
    }
    course.span.add_event("laneway.retry", again, at)


def ended(spans: RunSpans, fact: CallEnded, at: int, course: Course) -> None:
    """Its outcome is there; a body that outlives it keeps its attempt open."""
    failure = fact.outcome if isinstance(fact.outcome, Failure) else None
    if fact.stopped_by is not None:
        course.span.set_attribute("laneway.stopped_by", fact.stopped_by.value)
    if failure is not None and failure.code is Code.LOOP_DETECTED:
        course.span.add_event("laneway.loop.blocked", None, at)
    if course.stuck:
        course.span.add_event("laneway.body.outlives", None, at)
    elif failure is not None:
        spans.end_attempt(course, at, failure.code, failure.message)
    else:
        spans.end_attempt(course, at)
    if course.final:
        spans.end_call(course, fact.rule, at)


def stopped(spans: RunSpans, fact: HolderStopped, at: int, course: Course) -> None:
    """A body that outlived its call has stopped."""
    if course.attempt_span is None:
        return
    late: Attributes = {"laneway.late": fact.late} if spans.content and fact.late else {}
    course.attempt_span.add_event("laneway.body.stopped", late, at)
    outcome = course.outcome
    code = outcome.code if isinstance(outcome, Failure) else ""
    spans.end_attempt(course, at, code, code)


def asked(_: RunSpans, fact: ApprovalAsked, at: int, course: Course) -> None:
    """A human is asked."""
    told: Attributes = {
        "laneway.approval": fact.approval,
        "laneway.rule": fact.rule,
        "laneway.digest": fact.digest,
    }
    course.span.add_event("laneway.approval.asked", told, at)


def answered(spans: RunSpans, fact: ApprovalAnswered, at: int, course: Course) -> None:
    """A human has answered."""
    told: Attributes = {
        "laneway.approval": fact.approval,
        "laneway.granted": fact.granted,
        "laneway.by": fact.by,
    }
    course.span.add_event("laneway.approval.answered", told, at)
    if spans.content and fact.edit is not None:
        edited = as_text(fact.edit.arguments)
        course.span.set_attribute("gen_ai.tool.call.arguments", edited)


def probed(_: RunSpans, fact: CallProbed, at: int, course: Course) -> None:
    """Its probe has answered."""
    course.span.add_event("laneway.probed", {"laneway.found": fact.found}, at)


def settled(spans: RunSpans, fact: CallSettled, at: int, course: Course) -> None:
    """Somebody found out what became of it."""
    told: Attributes = {"laneway.by": fact.by, "laneway.succeeded": succeeded(fact.outcome)}
    course.span.add_event("laneway.settled", told, at)
    spans.end_call(course, "", at)


def reopened(_: RunSpans, fact: CallReopened, at: int, course: Course) -> None:
    """It did nothing, and runs again."""
    course.span.add_event("laneway.reopened", {"laneway.by": fact.by}, at)
