"""A run stops, and goes on: what becomes of its open calls, and of answers that come meanwhile.

Reads the table of `policies.stopping`; feeds the scheduler. A stop can be decided in the middle of
a step (by a budget, by the detector of loops): nothing is started from then on, and what it means
for the calls is carried out when that step has been posted.
"""

import asyncio
from typing import TYPE_CHECKING

from laneway.engine.failures import Told, shortened
from laneway.engine.live import LiveCall, LiveTurn
from laneway.engine.step import Step
from laneway.errors import UsageError
from laneway.facts import Fact, RunReopened, RunStopped
from laneway.outcomes import Code, Ended, StoppedBy, StopReason
from laneway.policies.stopping import STOPS, Open, Stop, Through, refusal, stands, stopped_text
from laneway.states import State

if TYPE_CHECKING:
    from laneway.engine.admission import Admission
    from laneway.engine.scheduler import Scheduler


def stop(
    scheduler: "Scheduler",
    reason: StopReason,
    detail: str,
    *,
    by: str,
    code: Code | None,
    budget: str = "",
) -> bool:
    """Stop a run; see `Scheduler.stop`."""
    standing = scheduler.stopped
    if not stands(None if standing is None else standing.reason, reason):
        return False
    rule = STOPS[reason]
    reserve = scheduler.services.reserve if reason is StopReason.BUDGET_EXCEEDED else None
    scheduler.stopped = RunStopped(
        reason=reason,
        detail=shortened(detail),
        by=by,
        code=None if rule.code is None else code or rule.code,
        resumable=rule.resumable,
        reserved_turns=0 if reserve is None else reserve.turns,
        reserved_tokens=0 if reserve is None else reserve.tokens,
        budget=budget,
    )
    scheduler.halted = ends_unstarted(scheduler.stopped)
    if scheduler.account is not None:
        scheduler.account.keep_back(last=reason is StopReason.BUDGET_EXCEEDED)
    scheduler.stop_due = True
    asyncio.get_running_loop().call_soon(carry_out, scheduler)
    return True


def ends_unstarted(stopped: RunStopped) -> bool:
    """Whether nothing of the run is started any more."""
    return STOPS[stopped.reason].unstarted is Open.END


def carry_out(scheduler: "Scheduler") -> None:
    """Write a stop down that was decided, and end the calls that it ends."""
    stopped, due = scheduler.stopped, scheduler.stop_due
    scheduler.stop_due = False
    if stopped is None or not due or scheduler.log.broken is not None:
        return
    step = Step(scheduler)
    step.facts.append(stopped)
    scheduler.post(step)
    if scheduler.halted:
        scheduler.services.controls.call_in(scheduler)
    if scheduler.turn is not None:
        enforce(scheduler, scheduler.turn)


def enforce(scheduler: "Scheduler", turn: LiveTurn) -> None:
    """End the open calls of a turn that the stop of its run ends, or of one that was left."""
    stopped = scheduler.stopped
    assert stopped is not None
    rule = STOPS[stopped.reason]
    told = Told(
        state=State.CANCELLED,
        code=stopped.code or Code.CANCELLED,
        message="The call was cancelled, because " + stopped_text(stopped.reason, stopped.detail),
        by=StoppedBy.USER,
    )
    for call in turn.calls:
        if call.state is State.UNCERTAIN and rule.unstarted is Open.END:
            call.reopened = True  # Whatever its probe says, it does not run again by itself.
    # The call of a plan is left out: it tells what the calls that it holds have come to.
    scheduler.cancel([call for call in turn.calls if call.plan is None and _ends(call, rule)], told)


def _ends(call: LiveCall, rule: Stop) -> bool:
    match call.state:
        case State.QUEUED if call.approval is not None:  # A human wants this one.
            return rule.asking is Open.END
        case State.PENDING | State.QUEUED | State.BACKING_OFF:
            return rule.unstarted is Open.END
        case State.RUNNING:
            return rule.running is Open.END
        case State.AWAITING_APPROVAL:
            return rule.asking is Open.END
        case _:
            return False


def meet(scheduler: "Scheduler", admission: "Admission") -> list[Fact]:
    """An answer of the model comes: a run that has stopped goes on, or refuses the calls.

    Returns:
        What is to be written down before the answer.
    """
    stopped = scheduler.stopped
    if stopped is None:
        return []
    if stopped.code is None:
        carry_out(scheduler)
        facts = reopening(scheduler, Through.SUBMIT)
        reopened(scheduler)
        return facts
    failure = refusal(stopped.reason, stopped.detail, stopped.code)
    for at, call in enumerate(admission.turn.calls):
        if at not in admission.faults:
            call.rule = f"run stopped ({stopped.reason})"
            admission.faults[at] = Ended(State.DENIED, failure)
    return []


def go_on(scheduler: "Scheduler", through: Through, by: str) -> bool:
    """Let a run go on; see `Scheduler.go_on`."""
    carry_out(scheduler)
    facts = reopening(scheduler, through, by)
    if not facts:
        return False
    reopened(scheduler)
    step = Step(scheduler)
    step.facts += facts
    scheduler.post(step)
    return True


def reopening(scheduler: "Scheduler", through: Through, by: str = "") -> list[Fact]:
    """Say as a fact that a run goes on; nothing where it runs, or this does not reopen it."""
    stopped = scheduler.stopped
    if stopped is None or through not in STOPS[stopped.reason].reopened:
        return []
    return [RunReopened(through=through, by=by)]


def reopened(scheduler: "Scheduler") -> None:
    """The run goes on, and that is kept or on its way."""
    scheduler.stopped = None
    scheduler.halted = False
    if scheduler.account is not None:
        scheduler.account.keep_back(last=False)


def see_that_named(scheduler: "Scheduler", by: str) -> None:
    """See that somebody answers for letting a run go on that was called off.

    Raises:
        UsageError: nobody does.
    """
    stopped = scheduler.stopped
    if stopped is not None and not stopped.resumable and not by:
        raise UsageError(
            f"run {scheduler.log.view.run!r} has stopped ({stopped.reason}), and goes on only if "
            "somebody says so by name: run.resume(by=…)"
        )
