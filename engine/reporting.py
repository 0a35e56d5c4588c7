"""The stop report: where a run stands and why, made by the program and not by the model.

Reads the fold of a run and nothing else, so that it is the same while the run is driven, after a
crash, and from a journal at rest; what is sealed there stays sealed. Feeds the host, the user and
the command line.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from laneway.engine.budget_status import recorded
from laneway.engine.report_text import report_lines
from laneway.engine.reports import (
    Answered,
    Confirmed,
    StopReport,
    Unfinished,
    Used,
    about,
    brief,
)
from laneway.engine.tally import used
from laneway.ids import CallId
from laneway.journal.fold import ApprovalView, CallView, RunView
from laneway.outcomes import Failure, Happened, Outcome, StopReason, Success, succeeded
from laneway.policies.budgets import MICROS, Unit
from laneway.policies.stopping import GOES_ON, STOPS, how_it_goes_on
from laneway.states import State

__all__ = ["StopReport", "report", "report_lines"]


def report(view: RunView) -> StopReport:
    """Tell of a run what is confirmed, what is not, what was used, and how it goes on."""
    calls = list(view.calls.values())
    confirmed = [call for call in calls if succeeded(_known(call))]
    in_doubt = [call for call in calls if _is_in_doubt(call)]
    told = {call.id for call in (*confirmed, *in_doubt)}
    new = _last_new(confirmed)
    return StopReport(
        run=view.run,
        reason=view.stop_reason,
        **_why(view),
        mode=view.mode,
        confirmed=tuple(
            _confirmed(call)
            for harmless in (False, True)
            for call in confirmed
            if call.record.effect.changes_nothing is harmless
        ),
        last_new=None if new is None else _confirmed(new),
        unfinished=tuple(_unfinished(view, call) for call in calls if call.id not in told),
        in_doubt=tuple(_unfinished(view, call) for call in in_doubt),
        used=_used(view),
        approvals=tuple(_answered(view, one) for one in view.approvals.values()),
        warnings=tuple(_warnings(view)),
    )


def _known(call: CallView) -> Outcome | None:
    """What it came to, as far as anybody has found out."""
    return call.settled or call.outcome


def _is_in_doubt(call: CallView) -> bool:
    """Whether only a human can say what it did."""
    known = _known(call)
    return isinstance(known, Failure) and known.happened in (Happened.UNKNOWN, Happened.PARTLY)


def _why(view: RunView) -> dict[str, Any]:
    reason, stopped = view.stop_reason, view.stopped
    if reason is None:
        return {"tell": GOES_ON}
    left = 0
    if stopped is not None:
        left = max(stopped.reserved_turns - (len(view.turns) - view.stopped_after), 0)
    return {
        "detail": "" if stopped is None else stopped.detail,
        "by": "" if stopped is None else stopped.by,
        "resumable": stopped.resumable if stopped is not None else STOPS[reason].resumable,
        "goes_on": how_it_goes_on(reason),
        "tell": STOPS[reason].tell,
        "summary_turns": left,
        "summary_tokens": stopped.reserved_tokens if stopped is not None and left else 0,
    }


def _confirmed(call: CallView) -> Confirmed:
    known = _known(call)
    assert isinstance(known, Success)
    return Confirmed(
        call=call.id,
        tool=call.record.tool,
        about=about(call.record.arguments),
        effect=call.record.effect,
        value=brief(known.value),
        at_wall=call.ended_wall,
        by=call.by if call.settled is not None else "",
    )


def _last_new(confirmed: Sequence[CallView]) -> CallView | None:
    """The latest success that is not the repeat of an earlier one: same call, same value."""
    seen: set[bytes] = set()
    last: CallView | None = None
    for call in sorted(confirmed, key=lambda one: one.ended_seq):
        known = _known(call)
        assert isinstance(known, Success)
        same = _ENCODE((call.record.tool, call.record.arguments, known.value))
        if same not in seen:
            seen.add(same)
            last = call
    return last


_ENCODE = msgspec.json.Encoder(order="sorted").encode


def _unfinished(view: RunView, call: CallView) -> Unfinished:
    known = _known(call)
    failure = known if isinstance(known, Failure) else None
    return Unfinished(
        call=call.id,
        tool=call.record.tool,
        about=about(call.record.arguments),
        effect=call.record.effect,
        state=call.state,
        code=None if failure is None else failure.code,
        happened=None if failure is None else failure.happened,
        cause=None if failure is None else failure.cause,
        why=brief(failure.message, 160) if failure is not None else _waits_for(view, call),
        at_wall=call.ended_wall,
    )


def _waits_for(view: RunView, call: CallView) -> str:
    match call.state:
        case State.AWAITING_APPROVAL if call.approval is not None:
            return f"waits for the answer to {call.approval.id}"
        case State.RUNNING:
            return "its body has been entered, and has not ended"
        case State.BACKING_OFF:
            return "waits for its next attempt"
        case State.PENDING:
            sources = ", ".join(_sources(view, call))
            return brief(f"waits for {sources}" if sources else "not looked at yet", 160)
        case _:
            return "waits for its lanes"


def _sources(view: RunView, call: CallView) -> Iterator[CallId]:
    for edge in view.turns[call.turn - 1].edges:
        source = view.calls[edge.source]
        if edge.target == call.id and (source.open or source.state is State.UNCERTAIN):
            yield edge.source


def _used(view: RunView) -> Used:
    settled = {name: one.settled for name, one in view.budgets.items()}
    aside = {name: sum(one.reserved.values()) for name, one in view.budgets.items()}
    limits: dict[str, float] = {}
    for limit in recorded(view.setting.budgets):
        scale = MICROS if limit.unit is Unit.COST else 1
        gone, held = used(view, limit)
        if gone or held or limit.key in view.setting.budgets:
            settled[limit.key], aside[limit.key] = gone / scale, held / scale
            limits[limit.key] = limit.limit / scale
    return Used(
        turns=len(view.turns),
        calls=len(view.calls),
        attempts=sum(call.attempt for call in view.calls.values()),
        budgets=settled,
        set_aside=aside,
        limits=limits,
    )


def _answered(view: RunView, one: ApprovalView) -> Answered:
    answer, call = one.answer, view.calls[one.asked.call]
    open_ = answer is None and call.approval is one and call.state is State.AWAITING_APPROVAL
    return Answered(
        approval=one.asked.approval,
        call=one.asked.call,
        tool=call.record.tool,
        about=about(one.asked.arguments),
        rule=one.asked.rule,
        granted=None if answer is None else answer.granted,
        by="" if answer is None else answer.by,
        said="" if answer is None else brief(answer.reason, 160),
        open=open_,
    )


def _warnings(view: RunView) -> Iterator[str]:
    stuck = [call.id for call in view.calls.values() if call.stuck]
    if stuck:
        yield f"bodies that have not stopped, and hold their claims: {_few(stuck)}"
    if view.open_turn is not None and view.stop_reason is not None:
        yield f"turn {view.open_turn.number} is still open: end it with run.finish()"
    if view.lossy:
        yield "a part of the journal is lost: calls may have done more than is told here"
    tasks = [name for name, task in view.tasks.items() if task.outcome is None]
    if tasks:
        yield f"background tasks that have not ended: {_few(tasks)}"
    if view.stop_reason is StopReason.COMPLETED:
        failed = [
            call.id
            for call in view.calls.values()
            if call.turn == len(view.turns) and isinstance(_known(call), Failure)
        ]
        if failed:
            yield f"stopped as complete, though calls of the last turn failed: {_few(failed)}"


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


_NAMED = 8
