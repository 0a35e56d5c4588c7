"""What each fact does to the spans of its run: one row a fact.

A fact of a new kind takes a function in `run_spans` or `call_spans`, and its row here; without one
it leaves no trace: the others say nothing that another does not. Read by the listener.
"""

from collections.abc import Mapping

from laneway.engine.telemetry import call_spans, run_spans
from laneway.engine.telemetry.tree import TellOfCall, TellOfRun
from laneway.facts import (
    ApprovalAnswered,
    ApprovalAsked,
    AttemptEnded,
    BudgetNeared,
    CallEnded,
    CallJoined,
    CallProbed,
    CallQueued,
    CallReopened,
    CallSettled,
    CallStarted,
    CompensationEnded,
    CompensationStarted,
    HolderStopped,
    LaneChanged,
    ModeChanged,
    Recorded,
    RunAbandoned,
    RunOpened,
    RunReopened,
    RunStopped,
    RunTaken,
    TurnClosed,
    TurnSubmitted,
)

RUN_SPANS: Mapping[type[Recorded], TellOfRun] = {
    RunOpened: run_spans.opened,
    RunTaken: run_spans.opened,
    RunStopped: run_spans.run_stopped,
    RunReopened: run_spans.run_reopened,
    RunAbandoned: run_spans.abandoned,
    CompensationStarted: run_spans.undoing,
    CompensationEnded: run_spans.undone,
    ModeChanged: run_spans.mode,
    LaneChanged: run_spans.lane,
    BudgetNeared: run_spans.neared,
    TurnSubmitted: run_spans.submitted,
    TurnClosed: run_spans.closed,
    CallSettled: run_spans.settled,
}
"""Facts of a run and of its turns."""

CALL_SPANS: Mapping[type[Recorded], TellOfCall] = {
    CallQueued: call_spans.queued,
    CallJoined: call_spans.joined,
    CallStarted: call_spans.started,
    AttemptEnded: call_spans.tried,
    CallEnded: call_spans.ended,
    HolderStopped: call_spans.stopped,
    ApprovalAsked: call_spans.asked,
    ApprovalAnswered: call_spans.answered,
    CallProbed: call_spans.probed,
    CallSettled: call_spans.settled,
    CallReopened: call_spans.reopened,
}
"""Facts of a call that is known: not of one whose turn is closed."""
