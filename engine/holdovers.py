"""Processes that an earlier driver of a run left running: ended, or waited for.

Reads the facts of the run and of those within its calls, and /proc; ends the process groups whose
end nobody saw. What cannot be ended keeps the claims of its call: it stands in the lane table as a
body that does not stop, looked at each second, until it is gone or an operator resets its lane.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from laneway.calls import Referring
from laneway.engine.failures import cancelled
from laneway.engine.groups import Group, end, look
from laneway.engine.live import LiveCall, LiveTurn
from laneway.engine.step import Step
from laneway.errors import DamagedJournalError
from laneway.facts import (
    AttemptEnded,
    CallEnded,
    Driver,
    Fact,
    HolderStopped,
    ProcessStarted,
    Row,
    RunForked,
    RunOpened,
    RunTaken,
)
from laneway.ids import CallId, RunId
from laneway.journal.fold import CallView, RunView, fold
from laneway.outcomes import StoppedBy
from laneway.states import State

if TYPE_CHECKING:
    from laneway.engine.scheduler import Scheduler
    from laneway.engine.services import Services

LOOK_SECONDS = 1.0
"""Between two looks at what could not be ended."""
HAS_ENDED = "what it left running has ended"

_LEFT_RUNNING = cancelled(
    "the process that drove the run ended, and left processes of it running", StoppedBy.FAULT
)


class Holdover(msgspec.Struct, frozen=True):
    """A call whose processes may have outlived its driver."""

    run: RunId
    call: CallView
    groups: tuple[Group, ...]


async def end_holdovers(
    view: RunView, rows: Sequence[Row], services: "Services"
) -> tuple[list[Fact], list[Holdover]]:
    """End what earlier drivers of a run left running, in it and within its calls.

    Args:
        view: of the run, which has just been taken.
        rows: its facts.
        services: of the engine.

    Returns:
        What is known now of the run's own calls, as facts; and what could not be ended.
    """
    left = await _found(view, rows, services)
    if not left:
        return [], []
    services.clock.hold()
    try:
        groups = [group for one in left for group in one.groups]
        still = set(await asyncio.to_thread(end, groups))
    finally:
        services.clock.release()
    stuck = [one for one in left if not still.isdisjoint(one.groups)]
    facts: list[Fact] = [
        HolderStopped(call=one.call.id, late=HAS_ENDED)
        for one in left
        if one.run == view.run and one not in stuck
    ]
    return facts, stuck


def groups_left(run: RunId, rows: Iterable[Row]) -> dict[CallId, tuple[Group, ...]]:
    """The process groups of a run whose end nobody saw, by call."""
    driver: Driver | None = None
    found: dict[CallId, list[Group]] = {}
    for row in rows:
        match row.fact:
            case RunOpened() | RunTaken():
                driver = row.fact.driver
            case RunForked():
                found.clear()  # They are the other run's.
            case ProcessStarted(call=call, group=group, started=started) if driver is not None:
                mark = f"{run}/{call}"
                found.setdefault(call, []).append(Group(group, started, driver, mark))
            case HolderStopped(call=call):
                found.pop(call, None)
            case AttemptEnded(call=call) | CallEnded(call=call, stopped=True) if call in found:
                # Whoever had started them saw to it that they ended; nobody else can have.
                found[call] = [one for one in found[call] if one.driver != driver]
            case _:
                pass
    return {call: tuple(groups) for call, groups in found.items() if groups}


async def _found(view: RunView, rows: Sequence[Row], services: "Services") -> list[Holdover]:
    left = _of_run(view, rows)
    pending = [run for call in view.calls.values() if _was_left(call) for run in call.children]
    while pending:
        run = pending.pop()
        services.clock.hold()
        try:
            inner = await services.journal.store.read(run)
            below = fold(run, inner)
        except DamagedJournalError:
            continue
        finally:
            services.clock.release()
        left += _of_run(below, inner)
        pending += [one for call in below.calls.values() for one in call.children]
    return left


def _was_left(call: CallView) -> bool:
    begun = call.attempt > 0 and call.outcome is None
    return call.stuck or begun or call.state is State.UNCERTAIN


def _of_run(view: RunView, rows: Sequence[Row]) -> list[Holdover]:
    if not any(call.processes for call in view.calls.values()):
        return []
    found = groups_left(view.run, rows)
    return [Holdover(view.run, view.calls[call], groups) for call, groups in found.items()]


def hold_for(holdover: Holdover, scheduler: "Scheduler") -> None:
    """Let what could not be ended hold the claims of its call until it is gone."""
    view = holdover.call
    above = f"{scheduler.log.view.run}/"
    called = CallId(f"{holdover.run}/{view.id}".removeprefix(above))
    call = LiveCall(
        record=replace(view.record, id=called),
        name=view.record.provider_id,
        tool=None,
        turn=LiveTurn(view.turn, scheduler, referring=Referring.KNOWN),
        scheduler=scheduler,
        claims=view.claims or view.record.claims,
        arguments=view.record.arguments,
        told=_LEFT_RUNNING,
    )
    services = scheduler.services
    # Ahead of all that will be asked for; whoever holds something of it already, goes on.
    call.request = services.lanes.request(
        call.claims, call, now=services.clock.monotonic(), refusable=False
    )
    scheduler.bodies.stuck[call] = services.clock.monotonic()
    _look_later(holdover, call)


def _look_later(holdover: Holdover, call: LiveCall) -> None:
    clock = call.scheduler.services.clock
    clock.call_at(clock.monotonic() + LOOK_SECONDS, lambda: _look(holdover, call))


def _look(holdover: Holdover, call: LiveCall) -> None:
    scheduler = call.scheduler
    if scheduler.bodies.abandoned:
        return
    if not all(look(group).gone for group in holdover.groups):
        _look_later(holdover, call)
        return
    step = Step(scheduler)
    if holdover.run == scheduler.log.view.run and scheduler.log.broken is None:
        step.facts.append(HolderStopped(call=call.id, late=HAS_ENDED))
    step.give_back(call)
    scheduler.bodies.unstick(call)
    scheduler.post(step)
