"""A run is put into another mode: what of it has not started is judged anew, in request order.

Reads the calls of the run and of those within its calls; feeds steps. All are judged before any of
them moves, since what one frees would let the next one start.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from laneway.engine.failures import WITHDRAWN, after_attempts, asks_now, cancelled
from laneway.engine.live import LiveCall
from laneway.engine.step import Step
from laneway.facts import ModeChanged
from laneway.outcomes import Failure
from laneway.policies.modes import at_most
from laneway.policies.questions import Decision, Verdict, denied
from laneway.policies.rules import Policy
from laneway.states import State

if TYPE_CHECKING:
    from laneway.engine.scheduler import Scheduler

_JUDGED = cancelled("its mode has changed")
"""Keeps what is about to be moved from being started by what moves before it."""


def mode_of(asked: str, above: "Scheduler | None", policy: Policy) -> str:
    """Name the mode of a run: within a call of another run, one that is no wider than that run's.

    Args:
        asked: the host's choice, or the run's last one; empty where neither has said.
        above: of the run whose call it is within.
        policy: that knows the modes.

    Raises:
        PolicyError: there is no such mode.
    """
    if above is None:
        return policy.mode(asked or "build").name
    highest = policy.mode(above.mode)
    return at_most(policy.mode(asked), highest).name if asked else highest.name


def change_mode(scheduler: "Scheduler", asked: str, *, by: str) -> None:
    """Put a run into a mode, and move its calls accordingly.

    Raises:
        PolicyError: there is no such mode.
    """
    mode = mode_of(asked, scheduler.above, scheduler.policy)
    if mode == scheduler.mode:
        return
    scheduler.mode = mode
    runs = list(_with_nested(scheduler))
    moves = [(one, list(_moves(one))) for one in runs]
    for _, found in moves:
        for call, _ in found:
            call.told = _JUDGED
    for one, found in moves:
        step = Step(one)
        if one is scheduler:
            step.facts.append(ModeChanged(mode=mode, by=by))
        for call, verdict in found:
            call.told = None
            _move(call, verdict, step, f"{scheduler.log.view.run} is in mode {mode} now")
        one.post(step)


def _with_nested(scheduler: "Scheduler") -> "Iterator[Scheduler]":
    yield scheduler
    calls = () if scheduler.turn is None else scheduler.turn.calls
    for call in calls:
        for turn in call.nested:
            if not turn.closed:
                yield from _with_nested(turn.scheduler)


def _moves(scheduler: "Scheduler") -> Iterator[tuple[LiveCall, Verdict]]:
    """Judge what has been judged before and has not started; give those that are to move."""
    step = Step(scheduler)
    for call in () if scheduler.turn is None else scheduler.turn.calls:
        if call.state not in _JUDGED_BEFORE or call.told is not None or call.plan is not None:
            continue
        if call.checked is None and scheduler.complete(call) is not None:
            continue  # Of an earlier driver, and impossible by now: it ends when it is taken up.
        verdict = step.judge(call)
        asks = verdict.decision is Decision.ASK and call.approval is None and not step.passes(call)
        waits = call.state is State.AWAITING_APPROVAL
        if (
            verdict.decision is Decision.DENY
            or asks
            or (waits and verdict.decision is Decision.ALLOW)
        ):
            yield call, verdict


_JUDGED_BEFORE = frozenset({State.AWAITING_APPROVAL, State.QUEUED, State.BACKING_OFF})


def _move(call: LiveCall, verdict: Verdict, step: Step, now: str) -> None:
    """Do what the verdict of the new mode says of a call that has not started."""
    begun = call.attempt - call.cleared
    if verdict.decision is Decision.ALLOW:
        step.services.deadlines.forget(call)
        call.approval = None
        step.queue(call, verdict.rule)
    elif verdict.decision is Decision.ASK and not begun and call.state is State.QUEUED:
        if call.turn.withdrawn:
            step.end_unstarted(call, WITHDRAWN)
        else:
            step.ask_instead(call, verdict)
    else:
        call.rule = verdict.rule
        failure = denied(verdict) if verdict.decision is Decision.DENY else asks_now(verdict)
        failure = _because(failure, now)
        step.end(call, State.DENIED, after_attempts(begun, call.record.effect, failure))


def _because(failure: Failure, now: str) -> Failure:
    return msgspec.structs.replace(failure, message=f"{failure.message}; {now}.")
