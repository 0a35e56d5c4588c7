"""Calls within calls: what a tool's body submits through the engine is part of the tool's call.

A body that runs another call holds its own claims meanwhile. What it submits is therefore nested
(Moss: Nested Transactions, 1981): it counts nothing of what the calls above it hold, it is told to
stop with them, and their claims are freed only when it has stopped. Which call a body belongs to
is known from a context variable, so that it holds for every way to the engine: for
`ToolContext.invoke` or a run of the tool's own, in this task, in one it started, or in its thread.
"""

import asyncio
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING

from msgspec.structs import replace

from laneway.engine.failures import Told, cancelled
from laneway.errors import JournalError
from laneway.facts import ChildEntered
from laneway.ids import RunId
from laneway.outcomes import Code, StoppedBy
from laneway.states import State

if TYPE_CHECKING:
    from laneway.engine.live import LiveCall, LiveTurn
    from laneway.engine.services import Services
    from laneway.lanes.requests import Request

inside: ContextVar["LiveCall | None"] = ContextVar("laneway_call", default=None)
"""The call whose body this code runs in."""

ORPHANED: Told = cancelled("the call that asked for it has ended", StoppedBy.PARENT)

DEEPEST = 100
"""Calls within calls: what is told of one is told of all below it, which takes stack. Nobody means
more, but by a tool that calls itself for ever."""

TOO_DEEP = Told(
    state=State.CANCELLED,
    code=Code.DEPTH_EXCEEDED,
    message=f"The call would be the {DEEPEST + 1}st within another.",
    by=StoppedBy.PARENT,
    hint="A tool that calls itself has to come to an end; call the inner tool by itself.",
)


def holder(services: "Services") -> "LiveCall | None":
    """The call of this engine that the running code is part of; None outside of all bodies."""
    return _of(services, inside.get())


def _of(services: "Services", call: "LiveCall | None") -> "LiveCall | None":
    while call is not None and call.scheduler.services is not services:
        call = call.turn.within  # Another engine's, which was called from a body of this one.
    return call


def note_child(run: RunId, services: "Services") -> bool:
    """Write into the run of a call that its body enters a run, with whatever is written next.

    Returns:
        Whether the running code is part of a call.
    """
    call = holder(services)
    if call is None:
        return False
    log = call.scheduler.log
    view = log.view.calls.get(call.id)
    if view is None or run not in view.children:
        with suppress(JournalError):  # Of a run that has been left nothing more is written.
            services.journal.post(log, [ChildEntered(call=call.id, run=run)])
    return True


def take_in(turn: "LiveTurn") -> Told | None:
    """Make a turn part of the call whose body submits it.

    Returns:
        Why it may not begin anything: that call has been told to stop, is over, or is part of so
        many others that it had better not.
    """
    call = inside.get()
    if call is None or call.scheduler.bodies.loop is not asyncio.get_running_loop():
        return None  # What runs in a loop of its own has nothing to do with the lanes of this one.
    turn.within = call
    others = (other for other in call.nested if not other.closed and other is not turn)
    call.nested = (*others, turn)
    if call.told is not None:
        return call.told
    if call.outcome is not None or call.request is None or not call.entered:
        return ORPHANED
    return TOO_DEEP if _depth(turn) > DEEPEST else None


def _depth(turn: "LiveTurn") -> int:
    depth = 0
    while turn.within is not None:
        depth += 1
        turn = turn.within.turn
    return depth


def permit(turn: "LiveTurn") -> "Request[LiveCall] | None":
    """What the call that a turn is part of holds, with all that the calls above it hold."""
    call = _of(turn.scheduler.services, turn.within)
    request = None if call is None else call.request
    return request if request is not None and request.granted else None


def tell(call: "LiveCall", told: Told) -> None:
    """Stop what a body has submitted and not awaited, too."""
    for turn in call.nested:
        if not turn.closed:
            turn.scheduler.cancel(turn.calls, replace(told, by=StoppedBy.PARENT))
