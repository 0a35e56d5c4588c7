"""Who draws on a budget first: the call that was asked for first, whoever is queued before it.

Where several calls become ready at once, priorities and long paths decide who enters the lanes
first. What is left of a budget goes by the order of the request: all of them are judged and have
their part set aside in that order, and are queued afterwards.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from laneway.outcomes import Failure
from laneway.states import State

if TYPE_CHECKING:
    from laneway.engine.live import LiveCall
    from laneway.engine.step import Step

SLICE = 500
"""Calls looked at in a stretch."""


class Books(Protocol):
    """What a scheduler asks before it queues a call."""

    def admit(self, call: "LiveCall", /) -> Failure | None:
        """Set aside what the call will use, or say why it may not run."""
        ...

    def started(self, call: "LiveCall", /) -> None:
        """It is begun: what was set aside is used."""
        ...

    def ended(self, call: "LiveCall", /) -> None:
        """It is over: what it never began is given back."""
        ...

    def hold(self, call: "LiveCall", /) -> None:
        """Set aside again what was set aside for it by an earlier driver."""
        ...


async def admit_in_order(calls: Sequence["LiveCall"], step: "Step") -> "Step":
    """Consider the calls of a new turn that wait for nothing, slice by slice.

    Returns:
        The step that has not been posted yet.
    """
    scheduler = step.scheduler
    deferred: list[LiveCall] = []
    step.deferred = deferred
    for start in range(0, len(calls), SLICE):
        step = await _next(step, start)
        if scheduler.leaving or scheduler.log.broken is not None:
            break  # What was set aside is given back when the run is left.
        for call in calls[start : start + SLICE]:
            if not call.waits and _may(call):
                step.consider(call)
    step.deferred = None
    ordered = step.in_order(deferred)
    for start in range(0, len(ordered), SLICE):
        step = await _next(step, start)
        if scheduler.leaving or scheduler.log.broken is not None:
            break
        _queue(ordered[start : start + SLICE], step)
    return step


def queue_together(ready: Sequence["LiveCall"], step: "Step") -> None:
    """Consider calls that became ready in one step."""
    whole = step.deferred is None
    deferred: list[LiveCall] = []
    if whole:
        step.deferred = deferred
    for call in sorted(ready, key=_place):
        if _may(call) and not call.turn.parked:
            step.consider(call)
    if whole:
        step.deferred = None
        _queue(step.in_order(deferred), step)


async def _next(step: "Step", start: int) -> "Step":
    if not start:
        return step
    following = type(step)(step.scheduler)
    following.deferred = step.deferred
    step.scheduler.post(step)
    await asyncio.sleep(0)
    return following


def _queue(calls: Sequence["LiveCall"], step: "Step") -> None:
    for call in calls:
        if _may(call):
            step.queue(call, call.rule)


def _may(call: "LiveCall") -> bool:
    return call.state is State.PENDING and call.told is None


def _place(call: "LiveCall") -> list[int]:
    """Where a call stands in the request: `t3.2/1` is the first call of the plan `t3.2`."""
    return [int(number) for number in call.id[1:].replace("/", ".").split(".")]
