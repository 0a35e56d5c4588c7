"""What befell each call of a run that is listened to, as far as spans and metrics want to know.

Reads facts in their order; times are monotonic seconds of the driver. A call is forgotten when its
turn is closed, unless its body has not stopped.
"""

# Values are JSON, told apart at run time.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false

from typing import Any

import msgspec

from laneway.calls import CallRecord
from laneway.claims import Claim
from laneway.facts import (
    ApprovalAnswered,
    ApprovalAsked,
    AttemptEnded,
    CallEnded,
    CallQueued,
    CallReopened,
    CallSettled,
    CallStarted,
    HolderStopped,
    Row,
    TurnSubmitted,
)
from laneway.ids import CallId
from laneway.journal.fold import CallView
from laneway.outcomes import Code, Outcome, Success
from laneway.states import State

LONGEST_PATH = 64
"""States of one call that are told; a call that is tried for ever must not fill the memory."""

FOUND, NOTHING, UNAVAILABLE = "found", "nothing found", "source unavailable"
_SOURCE_IS_GONE = frozenset(
    {
        Code.UNAVAILABLE,
        Code.TRANSPORT_CLOSED,
        Code.CIRCUIT_OPEN,
        Code.RATE_LIMITED,
        Code.TIMEOUT,
    }
)


class Course(msgspec.Struct, eq=False, kw_only=True):
    """One call."""

    record: CallRecord
    turn: int
    submitted: float
    state: State = State.PENDING
    path: list[str] = msgspec.field(default_factory=lambda: [State.PENDING.value])
    """The states that it went through."""
    attempt: int = 0
    asked: float = 0.0
    humans_seconds: float = 0.0
    """How long it waited for the answer that came last."""
    queued: float = 0.0
    started: float = 0.0
    waited_seconds: float = 0.0
    """In its queues before the last attempt."""
    claims: tuple[Claim, ...] = ()
    """The final ones, where they are others than the recorded."""
    stuck: bool = False
    outcome: Outcome | None = None
    told: bool = False
    """Metrics have counted how it ended."""
    span: Any = None
    attempt_span: Any = None

    def move(self, state: State) -> None:
        """It is in another state."""
        self.state = state
        if len(self.path) < LONGEST_PATH:
            self.path.append(state.value)

    @property
    def final(self) -> bool:
        """Whether its outcome stands, but for what a closed turn makes of an UNCERTAIN one."""
        return self.outcome is not None and self.state is not State.UNCERTAIN

    @property
    def answer(self) -> str:
        """What a question to a source came to; empty where it was no question, or a bad one."""
        if not self.record.effect.changes_nothing or self.outcome is None:
            return ""
        if isinstance(self.outcome, Success):
            return NOTHING if says_nothing(self.outcome.value) else FOUND
        gone = self.attempt and self.outcome.code in _SOURCE_IS_GONE
        return UNAVAILABLE if gone or self.outcome.code is Code.CIRCUIT_OPEN else ""


Courses = dict[CallId, Course]


def says_nothing(value: Any) -> bool:
    """Whether a value says that there was nothing to be found: it is empty, or holds only that.

    0 and False are answers by themselves; beside an empty list they are a count and a flag of it.
    """
    if _is_empty(value):
        return True
    if not isinstance(value, dict):
        return False
    held = list(value.values())
    return any(one in ([], {}) for one in held) and all(
        _is_empty(one) or one in (0, False) for one in held
    )


def _is_empty(value: Any) -> bool:
    return value is None or value in ("", [], {})


def resumed(call: CallView, now: float) -> Course:
    """The course of a call that another driver left open, from now on."""
    course = Course(
        record=call.record,
        turn=call.turn,
        submitted=now,
        state=call.state,
        path=[call.state.value],
        attempt=call.attempt,
        queued=now,
        asked=now,
        started=now,
    )
    course.outcome = call.outcome
    return course


def follow(courses: Courses, row: Row) -> Course | None:  # noqa: C901, PLR0912 - one arm a fact
    """Take in a fact; give the course of the call that it is about, if it is known."""
    fact, now = row.fact, row.mono
    if isinstance(fact, TurnSubmitted):
        for record in fact.calls:
            known = courses.setdefault(
                record.id, Course(record=record, turn=fact.turn, submitted=now)
            )
            known.record = record
        return None
    call: CallId | None = getattr(fact, "call", None)
    course = None if call is None else courses.get(call)
    if course is None:
        return None
    match fact:
        case CallQueued():
            course.move(State.QUEUED)
            course.queued = now
            course.claims = fact.claims or course.claims
        case CallStarted():
            course.move(State.RUNNING)
            course.waited_seconds = max(now - course.queued, 0.0)
            course.started = now
            course.attempt = fact.attempt
        case CallEnded():
            course.move(fact.state)
            course.outcome = fact.outcome
            course.stuck = not fact.stopped
        case AttemptEnded() | CallReopened():
            course.move(State.BACKING_OFF)
            course.outcome = None
        case ApprovalAsked():
            course.move(State.AWAITING_APPROVAL)
            course.asked = now
        case ApprovalAnswered():
            course.humans_seconds = max(now - course.asked, 0.0)
            if fact.waits:
                course.move(State.PENDING)
        case CallSettled() if course.state is State.UNCERTAIN:
            course.outcome = fact.outcome
            course.move(State.SUCCEEDED if isinstance(fact.outcome, Success) else State.FAILED)
        case HolderStopped():
            course.stuck = False
        case _:
            pass
    return course
