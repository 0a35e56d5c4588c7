"""What each fact counts: one row a fact.

A fact of a new kind takes a function here, and its row in a table below. Read by the listener.
"""

from collections.abc import Callable, Mapping
from typing import Any

from laneway.engine.telemetry.attributes import provider_of
from laneway.engine.telemetry.counters import Marks, RunMetrics
from laneway.engine.telemetry.courses import Course
from laneway.facts import (
    ApprovalAnswered,
    AttemptEnded,
    BudgetNeared,
    BudgetReserved,
    BudgetSettled,
    CallEnded,
    CallQueued,
    CallSettled,
    CallStarted,
    Recorded,
    RunStopped,
    TurnClosed,
    TurnSubmitted,
)
from laneway.outcomes import Code, Failure
from laneway.policies.budgets import Unit


def submitted(metrics: RunMetrics, fact: TurnSubmitted, now: float) -> None:
    """The model answered, and its provider told what that took."""
    metrics.turns[fact.turn] = now
    if fact.usage is None:
        return
    marks: Marks = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider_of(fact.provider),
        **metrics.of_class,
    }
    told = (("input", fact.usage.input_tokens), ("output", fact.usage.output_tokens))
    for kind, tokens in told:
        metrics.instruments.tokens.record(tokens, {**marks, "gen_ai.token.type": kind})
        metrics.instruments.all_tokens.add(tokens, metrics.of_class)


def closed(metrics: RunMetrics, fact: TurnClosed, now: float) -> None:
    """All of a turn is final, what nobody knows the end of, too."""
    for course in metrics.courses.values():
        if course.turn == fact.turn and course.outcome is not None:
            metrics.count_end(course, now)
    began = metrics.turns.pop(fact.turn, None)
    if began is not None:
        metrics.instruments.turn_seconds.record(max(now - began, 0.0), metrics.of_class)


def queued(metrics: RunMetrics, fact: CallQueued, _: float, course: Course) -> None:
    """The model is told that it begins to go round in circles."""
    if fact.note:
        metrics.instruments.loops.add(1, {**metrics.marks(course), "laneway.loop": "warned"})


def started(metrics: RunMetrics, _: CallStarted, __: float, course: Course) -> None:
    """It holds its lanes."""
    metrics.instruments.queue_seconds.record(course.waited_seconds, metrics.marks(course))


def tried(metrics: RunMetrics, _: AttemptEnded, now: float, course: Course) -> None:
    """An attempt failed, and another follows."""
    metrics.instruments.retries.add(1, metrics.marks(course))
    metrics.count_attempt(course, now, "_OTHER")


def ended(metrics: RunMetrics, fact: CallEnded, now: float, course: Course) -> None:
    """The outcome is there."""
    code = fact.outcome.code if isinstance(fact.outcome, Failure) else None
    if code is Code.LOOP_DETECTED:
        metrics.instruments.loops.add(1, {**metrics.marks(course), "laneway.loop": "blocked"})
    if "RUNNING" in course.path[-2:-1]:
        metrics.count_attempt(course, now, code.value if code is not None else "")
    if course.final:
        metrics.count_end(course, now)


def answered(metrics: RunMetrics, fact: ApprovalAnswered, _: float, course: Course) -> None:
    """A human has answered."""
    marks: Marks = {**metrics.marks(course), "laneway.granted": fact.granted}
    metrics.instruments.human_seconds.record(course.humans_seconds, marks)


def settled(metrics: RunMetrics, _: CallSettled, now: float, course: Course) -> None:
    """Somebody found out what became of it."""
    metrics.count_end(course, now)


def stopped(metrics: RunMetrics, fact: RunStopped, _: float) -> None:
    """The run goes on no more by itself."""
    marks: Marks = {"laneway.stop_reason": fact.reason.value, **metrics.of_class}
    metrics.instruments.stops.add(1, marks)


def neared(metrics: RunMetrics, fact: BudgetNeared, _: float) -> None:
    """A threshold of a budget was reached."""
    marks: Marks = {
        "laneway.budget": metrics.counters.budget(fact.budget),
        "laneway.percent": fact.percent,
        **metrics.of_class,
    }
    metrics.instruments.budget_warnings.add(1, marks)


def reserved(metrics: RunMetrics, fact: BudgetReserved, _: float) -> None:
    """Remember what of budgets is tokens."""
    if fact.budget == Unit.TOKENS:
        metrics.token_reservations.add(fact.reservation)


def paid(metrics: RunMetrics, fact: BudgetSettled, _: float) -> None:
    """What a request of the host took; its turn tells of no usage then."""
    if fact.reservation in metrics.token_reservations:
        metrics.token_reservations.discard(fact.reservation)
        metrics.instruments.all_tokens.add(fact.amount, metrics.of_class)


RUN_METRICS: Mapping[type[Recorded], Callable[[RunMetrics, Any, float], None]] = {
    TurnSubmitted: submitted,
    TurnClosed: closed,
    RunStopped: stopped,
    BudgetNeared: neared,
    BudgetReserved: reserved,
    BudgetSettled: paid,
}
"""Facts of a run and of its turns; each function takes the fact, and when it was."""

CALL_METRICS: Mapping[type[Recorded], Callable[[RunMetrics, Any, float, Course], None]] = {
    CallQueued: queued,
    CallStarted: started,
    AttemptEnded: tried,
    CallEnded: ended,
    ApprovalAnswered: answered,
    CallSettled: settled,
}
"""Facts of a call that is known; each function takes besides what befell it."""
