"""What the facts of a run and of its turns do to their spans.

One function a fact; the table is in `spans`.
"""

from laneway.engine.telemetry.attributes import Attributes, of_edge, of_usage
from laneway.engine.telemetry.tree import RunSpans
from laneway.facts import (
    BudgetNeared,
    CallSettled,
    CompensationEnded,
    CompensationStarted,
    LaneChanged,
    ModeChanged,
    RunAbandoned,
    RunOpened,
    RunReopened,
    RunStopped,
    RunTaken,
    TurnClosed,
    TurnSubmitted,
)
from laneway.outcomes import Code, succeeded
from laneway.states import State


def opened(spans: RunSpans, fact: RunOpened | RunTaken, at: int) -> None:
    """A driver has the run."""
    if fact.setting is not None:
        spans.span.set_attribute("laneway.policy.version", fact.setting.policy)
    if isinstance(fact, RunTaken):
        told: Attributes = {"laneway.changes": len(fact.changes)}
        spans.span.add_event("laneway.run.taken", told, at)


def submitted(spans: RunSpans, fact: TurnSubmitted, at: int) -> None:
    """The model answered: a turn, its calls, and what they wait for."""
    turn = spans.turns.get(fact.turn)
    if turn is None:
        turn = spans.begin_turn(fact.turn, fact.provider, len(fact.calls), at)
    turn.set_attributes(of_usage(fact))
    if fact.refused:
        turn.set_attribute("error.type", Code.BUDGET_EXCEEDED.value)
        turn.set_status(spans.failed(Code.BUDGET_EXCEEDED, fact.refused))
    for record in fact.calls:
        course = spans.courses[record.id]
        if course.span is None:
            spans.begin_call(course, at)
    for edge in fact.edges:
        source, target = spans.courses[edge.source], spans.courses[edge.target]
        target.span.add_link(source.span.get_span_context(), of_edge(edge, content=spans.content))


def closed(spans: RunSpans, fact: TurnClosed, at: int) -> None:
    """All of a turn is final."""
    for course in spans.courses.values():
        if course.turn == fact.turn and course.state is State.UNCERTAIN:
            spans.end_call(course, "", at)
    turn = spans.turns.pop(fact.turn, None)
    if turn is not None:
        turn.end(at)


def run_stopped(spans: RunSpans, fact: RunStopped, at: int) -> None:
    """The run goes on no more by itself."""
    told: Attributes = {
        "laneway.stop_reason": fact.reason.value,
        "laneway.resumable": fact.resumable,
        "laneway.by": fact.by,
    }
    spans.span.add_event("laneway.run.stopped", told, at)
    spans.stopped = fact


def run_reopened(spans: RunSpans, fact: RunReopened, at: int) -> None:
    """It goes on."""
    told: Attributes = {"laneway.through": fact.through, "laneway.by": fact.by}
    spans.span.add_event("laneway.run.reopened", told, at)
    spans.stopped = None


def mode(spans: RunSpans, fact: ModeChanged, at: int) -> None:
    """It is in another mode."""
    told: Attributes = {"laneway.mode": fact.mode, "laneway.by": fact.by}
    spans.span.add_event("laneway.mode.changed", told, at)


def lane(spans: RunSpans, fact: LaneChanged, at: int) -> None:
    """An operator worked a lane."""
    told: Attributes = {"laneway.lane": fact.lane, "laneway.change": fact.change}
    spans.span.add_event("laneway.lane.changed", told, at)


def neared(spans: RunSpans, fact: BudgetNeared, at: int) -> None:
    """A threshold of a budget was reached."""
    told: Attributes = {
        "laneway.budget": fact.budget,
        "laneway.percent": fact.percent,
        "laneway.used": fact.used,
        "laneway.limit": fact.limit,
    }
    spans.span.add_event("laneway.budget.neared", told, at)


def abandoned(spans: RunSpans, fact: RunAbandoned, at: int) -> None:
    """The run was given up, and what its calls have done is to be undone."""
    spans.span.add_event("laneway.run.abandoned", {"laneway.by": fact.by}, at)


def undoing(spans: RunSpans, fact: CompensationStarted, at: int) -> None:
    """What a call has done is being undone."""
    spans.span.add_event("laneway.compensation.started", {"laneway.call": fact.call}, at)


def undone(spans: RunSpans, fact: CompensationEnded, at: int) -> None:
    """What became of that."""
    told: Attributes = {
        "laneway.call": fact.call,
        "laneway.succeeded": succeeded(fact.outcome),
    }
    spans.span.add_event("laneway.compensation.ended", told, at)


def settled(spans: RunSpans, fact: CallSettled, at: int) -> None:
    """Somebody found out what became of a call whose turn is closed, and its span with it."""
    if fact.call not in spans.courses:
        told: Attributes = {
            "laneway.call": fact.call,
            "laneway.by": fact.by,
            "laneway.succeeded": succeeded(fact.outcome),
        }
        spans.span.add_event("laneway.settled", told, at)
