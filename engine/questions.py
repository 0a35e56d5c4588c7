"""The questions that wait for a human in a run and in all that its calls have begun within them.

Reads the views of the schedulers; a host that drives the run at the top answers for all of them.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from laneway.engine.turn import host_name
from laneway.errors import EngineClosedError
from laneway.ids import ApprovalId, CallId, RunId
from laneway.journal.fold import ApprovalView, RunView
from laneway.journal.unblocking import unblocks
from laneway.outcomes import Failure
from laneway.states import State

if TYPE_CHECKING:
    from laneway.engine.scheduler import Scheduler

Open = tuple["Scheduler", "OpenApproval"]


@dataclass(slots=True)
class OpenApproval(ApprovalView):
    """A question that is open; of a call within a call, it is named with the run that it is in."""

    view: RunView = field(kw_only=True, repr=False, compare=False)
    nested: bool = field(default=False, kw_only=True)

    @property
    def run(self) -> RunId:
        """The run that it is in."""
        return self.view.run

    @property
    def id(self) -> ApprovalId:
        """The name of the question, over all runs that the host answers for."""
        return ApprovalId(self._prefix + self.asked.approval)

    @property
    def call(self) -> CallId:
        """The call that waits for the answer, over all runs."""
        return CallId(self._prefix + self.asked.call)

    @property
    def unblocks(self) -> tuple[CallId, ...]:
        """The calls of its turn that wait for nothing but this, directly or behind one another."""
        prefix = self._prefix
        return tuple(CallId(prefix + one) for one in unblocks(self.view, self.asked.call))

    @property
    def _prefix(self) -> str:
        return f"{self.view.run}/" if self.nested else ""


def open_questions(scheduler: "Scheduler") -> list[Open]:
    """Find the open questions of a run, and of the runs within its calls."""
    return [
        (
            found,
            OpenApproval(one.asked, one.answer, one.answers, view=found.log.view, nested=nested),
        )
        for found, nested in _with_nested(scheduler)
        for one in open_in(found.log.view)
    ]


def open_in(view: RunView) -> list[ApprovalView]:
    """The open questions of one run, in the order in which they were asked."""
    return [
        one
        for one in view.approvals.values()
        if one.answer is None
        and view.calls[one.asked.call].state is State.AWAITING_APPROVAL
        and view.calls[one.asked.call].approval is one
    ]


def question_named(name: str, questions: Sequence[Open]) -> Open | None:
    """Find an open question; the model chose the provider's ids, so they count last."""
    for own in (
        [one for one in questions if one[1].id == name],
        [one for one in questions if one[1].call == name],
        [one for one in questions if _host_name(one[1]) == name],
    ):
        if own:
            return own[0] if len(own) == 1 else None
    return None


async def asked(live: "Callable[[], Scheduler]") -> list[OpenApproval]:
    """Wait until a question is open, and give all that are.

    Raises:
        EngineClosedError: the run is left.
    """
    while True:
        scheduler = live()
        found = [one for _, one in open_questions(scheduler)]
        if found:
            return found
        await scheduler.services.bell.listen()


async def each(live: "Callable[[], Scheduler]") -> AsyncGenerator[OpenApproval]:
    """Give each question as it is asked, once, and again when others changed its arguments.

    Ends when nothing of the last turn moves by itself any more, or the run is left.
    """
    seen: set[tuple[str, str]] = set()
    await asyncio.sleep(0)  # Whoever has just begun to wait for the turn lets it go on.
    while True:
        try:
            scheduler = live()
        except EngineClosedError:
            return
        for _, one in open_questions(scheduler):
            if (one.id, one.digest) not in seen:
                seen.add((one.id, one.digest))
                yield one
                break  # What else was open may have been answered meanwhile.
        else:
            turn = scheduler.turn
            if turn is None or turn.parked or scheduler.is_quiet(turn):
                return
            waiting = scheduler.services.bell.listen()
            turn.quiet.append(waiting)
            await waiting


def happened_to(view: RunView, name: str) -> str:
    """What became of a question that is not open; empty where nothing is known of it."""
    found = [one for one in view.approvals.values() if name in (one.id, one.call)]
    if not found:
        found = [
            one
            for one in view.approvals.values()
            if host_name(view.calls[one.call], view.calls) == name
        ]
    if not found:
        return ""
    one, call = found[-1], view.calls[found[-1].asked.call]
    if call.approval is not None and call.approval.id != one.id:
        return f"call {call.id} was asked about again, as {call.approval.id}"
    if one.answer is not None:
        by = f" by {one.answer.by}" if one.answer.by else ""
        because = f" ({one.answer.reason})" if one.answer.reason else ""
        what = "granted" if one.answer.granted else "refused"
        return f"it was {what}{by}{because}, and call {call.id} is {call.state}"
    why = f" ({call.outcome.code})" if isinstance(call.outcome, Failure) else ""
    return f"its call {call.id} has ended: {call.state}{why}"


def _with_nested(scheduler: "Scheduler", *, nested: bool = False) -> "list[tuple[Scheduler, bool]]":
    found = [(scheduler, nested)]
    calls = () if scheduler.turn is None else scheduler.turn.calls
    for call in calls:
        for turn in call.nested:
            if not turn.closed:
                found += _with_nested(turn.scheduler, nested=True)
    return found


def _host_name(question: OpenApproval) -> str:
    calls = question.view.calls
    name = host_name(calls[question.asked.call], calls)
    return f"{question.view.run}/{name}" if question.nested else name
