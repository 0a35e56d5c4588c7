"""Why is it waiting? Answered for every unfinished call, from what the scheduler knows now.

Reads live calls, their edges and the lane table; gives frozen answers, and changes nothing.
"""

from typing import TYPE_CHECKING

import msgspec

from laneway.engine.live import LiveCall, LiveTurn
from laneway.ids import CallId
from laneway.journal.fold import CallView
from laneway.states import State

if TYPE_CHECKING:
    from laneway.engine.scheduler import Scheduler


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a call waits for."""

    kind: str
    """`dependency`, `approval`, `lane`, `thread`, `back-off`, `body`, `stop`, `settlement` or
    `start`."""
    what: str
    """The reason of the edge, the approval, the lane: a word or two for a human."""
    on: str = ""
    """The call in the way, as `run/t1.2` if it is another run's."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why one call has not ended."""

    call: CallId
    name: str
    """The provider's id."""
    tool: str
    state: State
    since_seconds: float
    """How long it has been in this state."""
    waits: tuple[Wait, ...]
    chain: tuple[str, ...]
    """From the call to the root of its waiting, each a call."""

    def __str__(self) -> str:
        told = "; ".join(
            f"{wait.kind} {wait.what}" + (f" of {wait.on}" if wait.on else "")
            for wait in self.waits
        )
        return f"{self.call} {self.tool} {self.state} for {self.since_seconds:.3f} s: {told}"


def explain(scheduler: "Scheduler") -> tuple[Explanation, ...]:
    """Explain every unfinished call of a run, and every body that has not stopped."""
    turn = scheduler.turn
    if turn is None:
        return ()
    waiting = [
        call
        for call in turn.calls
        if call.outcome is None or call.state is State.UNCERTAIN or call in scheduler.bodies.stuck
    ]
    found = {call.id: _waits(call, turn, scheduler) for call in waiting}
    return tuple(
        Explanation(
            call=call.id,
            name=call.name,
            tool=call.record.tool,
            state=call.state,
            since_seconds=_since(call, scheduler),
            waits=found[call.id],
            chain=_chain(call.id, found),
        )
        for call in waiting
    )


def _waits(call: LiveCall, turn: LiveTurn, scheduler: "Scheduler") -> tuple[Wait, ...]:
    match call.state:
        case State.PENDING:
            return _dependencies(call, turn)
        case State.AWAITING_APPROVAL:
            return (Wait(kind="approval", what=call.approval or ""),)
        case State.QUEUED:
            return _lanes(call, scheduler)
        case State.BACKING_OFF:
            left = max(call.due - scheduler.services.clock.monotonic(), 0.0)
            return (Wait(kind="back-off", what=f"{left:.3f} s until the next attempt"),)
        case State.UNCERTAIN:
            return (Wait(kind="settlement", what="somebody who knows what happened"),)
        case State.RUNNING:
            if call.told is not None:
                return (Wait(kind="stop", what=call.told.code),)
            return (Wait(kind="body", what=call.record.tool),)
        case _:
            return (Wait(kind="stop", what="its body, which holds its claims until it stops"),)


def _dependencies(call: LiveCall, turn: LiveTurn) -> tuple[Wait, ...]:
    return tuple(
        Wait(kind="dependency", what=reason, on=source.id)
        for source in turn.calls
        for target, reason in source.successors
        if target is call and (source.outcome is None or source.state is State.UNCERTAIN)
    ) or (Wait(kind="start", what="its turn to be looked at"),)


def _lanes(call: LiveCall, scheduler: "Scheduler") -> tuple[Wait, ...]:
    lanes = scheduler.services.lanes
    request, kind = (call.thread, "thread") if call.thread is not None else (call.request, "lane")
    if request is None or request.granted:
        return (Wait(kind="start", what="its start to be written down"),)
    return tuple(
        Wait(
            kind=kind,
            what=f"{blocker.resource} {'held by' if blocker.holding else 'behind'}",
            on=_owner(blocker.owner, scheduler),
        )
        for blocker in lanes.blockers(request)
    )


def _owner(owner: LiveCall, scheduler: "Scheduler") -> str:
    if owner.scheduler is scheduler:
        return owner.id
    return f"{owner.scheduler.log.view.run}/{owner.id}"


def _since(call: LiveCall, scheduler: "Scheduler") -> float:
    view: CallView | None = scheduler.log.view.calls.get(call.id)
    if view is None:
        return 0.0
    began = {
        State.QUEUED: view.queued,
        State.RUNNING: view.started,
        State.PENDING: view.submitted,
    }.get(view.state, view.ended or view.queued or view.submitted)
    now = scheduler.services.clock.monotonic()
    # A time of an earlier driver is on another clock; it says nothing here.
    return max(now - began, 0.0) if began is not None else 0.0


def _chain(call: CallId, found: dict[CallId, tuple[Wait, ...]]) -> tuple[str, ...]:
    """Follow the first thing in the way, and the first in its way, to the end."""
    chain: list[str] = []
    at: str = call
    while at and at not in chain:
        chain.append(at)
        waits = found.get(CallId(at), ())
        at = next((wait.on for wait in waits if wait.on), "")
    return tuple(chain)
