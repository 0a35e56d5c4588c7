"""The time of a run is used up: nothing of it begins any more, and what runs is told to stop.

Questions to humans stay open, for their time is not the run's; what they let pass later is refused.
"""

from typing import TYPE_CHECKING

from laneway.engine.failures import Told, after_attempts
from laneway.engine.step import Step
from laneway.outcomes import Code
from laneway.policies.ledger import RULE
from laneway.states import State

if TYPE_CHECKING:
    from laneway.engine.scheduler import Scheduler


def run_out(scheduler: "Scheduler") -> None:
    """End what waits, and stop what runs."""
    account, turn = scheduler.account, scheduler.turn
    scheduler.gate = account
    if account is None:
        return
    scheduler.budget_ended(account.time_told, "seconds")
    if turn is None:
        return
    failure = account.time_used_up()
    step = Step(scheduler)
    for call in turn.calls:
        if call.state in (State.QUEUED, State.BACKING_OFF) and call.told is None:
            call.rule = f"{RULE}seconds"
            attempts = call.attempt - call.cleared
            step.end(call, State.DENIED, after_attempts(attempts, call.record.effect, failure))
    scheduler.post(step)
    told = Told(
        state=State.TIMED_OUT,
        code=Code.TIMEOUT,
        message=f"The call was stopped: {account.time_told}.",
        hint=failure.hint,
    )
    scheduler.cancel([call for call in turn.calls if call.state is State.RUNNING], told)
