"""The limits of time of one call, beside that of the turn and of the run.

    in queues      `Limits.queue_seconds`: from QUEUED to its start, for each attempt
    an attempt     `timeout=` of the tool, else `Limits.call_seconds`: in the body
    in all         `total_timeout=`, else `Limits.attempts_seconds`: attempts and the pauses between
                   them; not the time in queues, and not that in which only humans are awaited
    progress       `idle_timeout=`; else `Limits.idle_seconds`, from the first report on

All go by the one sweep over deadlines (`deadlines.py`): a report of progress is one assignment.
"""

from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

from laneway.engine.failures import Told, shortened, timed_out
from laneway.engine.plain import whole_text
from laneway.outcomes import Code
from laneway.states import State

if TYPE_CHECKING:
    from laneway.engine.live import LiveCall


def body_limit(call: "LiveCall") -> float:
    """How long the body may take this time, in seconds: what is left in all bounds an attempt."""
    own, _ = limits_of(call)
    if call.attempt == 1:
        return own  # At least one attempt fits into the whole.
    return max(min(own, left_in_all(call)), 0.0)


def limits_of(call: "LiveCall") -> tuple[float, float]:
    """For an attempt, and for all of them together, in seconds."""
    assert call.tool is not None
    spec, limits = call.tool.spec, call.scheduler.services.limits
    own = limits.call_seconds if spec.timeout_seconds is None else spec.timeout_seconds
    if spec.total_timeout_seconds is not None:
        return min(own, spec.total_timeout_seconds), spec.total_timeout_seconds
    return own, max(own, limits.attempts_seconds)


def left_in_all(call: "LiveCall") -> float:
    """What is left for attempts and pauses, in seconds; may be negative."""
    _, whole = limits_of(call)
    return whole - call.worked


def idle_limit(call: "LiveCall") -> float:
    """How long a body may be silent, in seconds; infinite for one that has not reported yet."""
    assert call.tool is not None
    declared = call.tool.spec.idle_seconds
    if declared is not None:
        return declared
    stop = call.stop
    if stop is None or stop.reported is None:
        return inf
    return call.scheduler.services.limits.idle_seconds


def watch_body(call: "LiveCall", limit: float) -> None:
    """Watch a body that is entered now."""
    due = call.hard_due = call.began + limit
    assert call.tool is not None
    if call.tool.spec.idle_seconds is not None:
        due = min(due, call.began + call.tool.spec.idle_seconds)
    call.due = due
    if due != inf:
        call.scheduler.services.deadlines.watch(call)


def watch_queue(call: "LiveCall") -> None:
    """Watch a call that may have to wait in queues, where that has a limit."""
    services = call.scheduler.services
    if services.limits.queue_seconds != inf and call.state is State.QUEUED:
        call.due = services.clock.monotonic() + services.limits.queue_seconds
        services.deadlines.watch(call)


def why_due(call: "LiveCall") -> Told | None:
    """Say why a body has to stop whose time has come; None if it has reported in the meantime."""
    now = call.scheduler.services.clock.monotonic()
    own, whole = limits_of(call)
    if now >= call.hard_due:
        limit = body_limit(call)
        return timed_out(limit) if limit >= own else _in_all(whole)
    idle = idle_limit(call)
    reported = call.stop.reported if call.stop is not None else None
    spoke = call.began if reported is None else max(reported, call.began)
    if now >= spoke + idle:
        return _silent(idle, call.stop.said if call.stop is not None else "")
    call.due = min(call.hard_due, spoke + idle)
    call.scheduler.services.deadlines.watch(call)
    return None


def first_report(call: "LiveCall") -> Callable[[], None]:
    """Have a body watched for its silence once it has reported for the first time."""
    loop, attempt = call.scheduler.bodies.loop, call.attempt

    def reported() -> None:
        with suppress(RuntimeError):  # The loop is closed: nobody watches any more.
            loop.call_soon_threadsafe(_report, call, attempt)

    return reported


def _report(call: "LiveCall", attempt: int) -> None:
    assert call.tool is not None
    at_work = call.attempt == attempt and call.entered and call.outcome is None
    if call.tool.spec.idle_seconds is None and at_work and call.told is None:
        idle = call.scheduler.services.limits.idle_seconds
        due = min(call.hard_due, call.scheduler.services.clock.monotonic() + idle)
        if due < call.due and call.left_seconds is None:
            call.due = due
            call.scheduler.services.deadlines.watch(call)


def worked(call: "LiveCall") -> None:
    """Count what an attempt took against what is left in all."""
    if call.began:
        call.worked += max(call.scheduler.services.clock.monotonic() - call.began, 0.0)


def in_queues(seconds: float) -> Told:
    """Stop because a call waited too long for its lanes."""
    return Told(
        state=State.CANCELLED,
        code=Code.TIMEOUT,
        message=f"The call waited for its turn for longer than {seconds:g} s.",
        hint="Ask for it again later, or for fewer at once.",
    )


def _in_all(seconds: float) -> Told:
    return Told(
        state=State.TIMED_OUT,
        code=Code.TIMEOUT,
        message=f"The call did not end within {seconds:g} s in all, further attempts included.",
        hint="Ask for less at once, or for the same again if it changes nothing.",
    )


def _silent(seconds: float, said: Any) -> Told:
    last = f" The last that it reported was: {shortened(whole_text(str(said)))!r}." if said else ""
    return Told(
        state=State.TIMED_OUT,
        code=Code.TIMEOUT,
        message=f"The call reported no progress for {seconds:g} s.{last}",
        hint="Ask for less at once, or for the same again if it changes nothing.",
    )
