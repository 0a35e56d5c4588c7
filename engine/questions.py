"""The questions that wait for a human in a run and in all that its calls have begun within them.

Reads the views of the schedulers; a host that drives the run at the top answers for all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laneway.engine.turn import host_name
from laneway.ids import ApprovalId, CallId
from laneway.journal.fold import ApprovalView
from laneway.states import State

if TYPE_CHECKING:
    from laneway.engine.scheduler import Scheduler

Open = tuple["Scheduler", ApprovalView]


@dataclass(slots=True)
class NestedApprovalView(ApprovalView):
    """A question of a call within a call, named with the run that it is in."""

    run: str = ""

    @property
    def id(self) -> ApprovalId:
        """The name of the question, over all runs."""
        return ApprovalId(f"{self.run}/{self.asked.approval}")

    @property
    def call(self) -> CallId:
        """The call that waits for the answer, over all runs."""
        return CallId(f"{self.run}/{self.asked.call}")


def open_questions(scheduler: "Scheduler") -> list[Open]:
    """Find the open questions of a run, and of the runs within its calls."""
    return _open(scheduler, nested=False)


def question_named(name: str, questions: Sequence[Open]) -> Open | None:
    """Find an open question; the model chose the provider's ids, so they count last."""
    for own in (
        [one for one in questions if one[1].id == name],
        [one for one in questions if one[1].call == name],
        [one for one in questions if _host_name(*one) == name],
    ):
        if own:
            return own[0] if len(own) == 1 else None
    return None


def _open(scheduler: "Scheduler", *, nested: bool) -> list[Open]:
    view = scheduler.log.view
    found: list[Open] = [
        (
            scheduler,
            NestedApprovalView(one.asked, one.answer, run=view.run) if nested else one,
        )
        for one in view.approvals.values()
        if one.answer is None
        and view.calls[one.asked.call].state is State.AWAITING_APPROVAL
        and view.calls[one.asked.call].approval is one
    ]
    calls = () if scheduler.turn is None else scheduler.turn.calls
    for call in calls:
        for turn in call.nested:
            if not turn.closed:
                found += _open(turn.scheduler, nested=True)
    return found


def _host_name(scheduler: "Scheduler", question: ApprovalView) -> str:
    calls = scheduler.log.view.calls
    name = host_name(calls[question.asked.call], calls)
    if isinstance(question, NestedApprovalView):
        return f"{question.run}/{name}"
    return name
