"""An engine is shut down in a given time: nothing new begins, what runs may end, the rest waits.

Reads the schedulers of the engine. What has not started is parked as a crash would leave it, for
whoever takes the run up; what runs has the given time, and is then told to stop, with the grace of
`Limits.grace_seconds`; what may be repeated safely and gave in is parked, too. Runs within the
calls of others go on as long as these.
"""

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import msgspec

from laneway.engine.failures import cancelled
from laneway.engine.step import Step
from laneway.ids import RunId
from laneway.outcomes import StoppedBy
from laneway.states import State

if TYPE_CHECKING:
    from laneway.engine.live import LiveCall
    from laneway.engine.scheduler import Scheduler

SHUT_DOWN = cancelled("the engine is being shut down", StoppedBy.SHUTDOWN)


class Shutdown(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the calls that were open when the engine was shut down, by run and call."""

    ended: tuple[str, ...]
    """They came to their own end in time: `run/t1.2`."""
    parked: tuple[str, ...]
    """They wait for whoever takes their run up."""
    stopped: tuple[str, ...]
    """They were told to stop, and their outcomes say so."""
    stuck: tuple[str, ...]
    """They were told to stop, and have not: their outcomes stand."""
    runs: tuple[RunId, ...]
    """With a turn that is open still."""


class Closing:
    """One shutdown of one engine, which can be hurried."""

    def __init__(self, schedulers: Collection["Scheduler"]) -> None:
        """Shut these runs down."""
        self._schedulers = schedulers
        self._hurry = asyncio.Event()

    def hurry(self) -> None:
        """Wait for nothing any more, neither the rest of the time nor the grace."""
        self._hurry.set()

    async def carry_out(self, within_seconds: float) -> Shutdown:
        """Drain, stop, save; nothing of what was acknowledged is lost, whatever interrupts it."""
        tops = [one for one in self._schedulers if one.above is None]
        open_calls = [call for top in tops for call in _open(top)]
        for top in tops:
            park(top)
        await self._until_still(tops, within_seconds)
        for top in tops:
            top.cancel(_running(top), SHUT_DOWN)
        leaving = asyncio.gather(*(top.leave() for top in tops), return_exceptions=True)
        hurrying = asyncio.ensure_future(self._hurry.wait())
        try:
            both: list[asyncio.Future[Any]] = [leaving, hurrying]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not leaving.done():
                for one in tuple(self._schedulers):
                    _give_up(one)
            faults = [fault for fault in await leaving if isinstance(fault, BaseException)]
        finally:
            hurrying.cancel()
        if faults:
            raise faults[0]
        return _report(open_calls, tops)

    async def _until_still(self, tops: list["Scheduler"], seconds: float) -> None:
        hurrying = asyncio.ensure_future(self._hurry.wait())
        give_up = asyncio.get_running_loop().time() + seconds
        try:
            # A start that is on its way to the disk enters its body a little later.
            while any(_running(top) for top in tops) and not self._hurry.is_set():
                left = give_up - asyncio.get_running_loop().time()
                if left <= 0:
                    break
                tasks: list[asyncio.Future[Any]] = [hurrying]
                tasks += [task for top in tops for task in top.bodies.tasks]
                await asyncio.wait(
                    tasks,
                    timeout=left if len(tasks) > 1 else min(left, LOOK_SECONDS),
                    return_when=asyncio.FIRST_COMPLETED,
                )
        finally:
            hurrying.cancel()


LOOK_SECONDS = 0.01
"""Between two looks for bodies whose start is being written down."""


def park(scheduler: "Scheduler") -> None:
    """Let a run begin nothing more, and leave what has not started to whoever takes it up."""
    scheduler.leaving = scheduler.shut = True
    scheduler.probes.close()
    scheduler.services.controls.call_in(scheduler)
    turn = scheduler.turn
    if turn is None or turn.closed or turn.parked:
        return
    turn.parked = True
    scheduler.services.deadlines.forget(turn)
    step = Step(scheduler)
    for call in turn.calls:
        if call.outcome is None and call.state is not State.RUNNING:
            scheduler.services.deadlines.forget(call)
            step.leave_flight(call)
            step.give_back(call)
    scheduler.post(step)


def may_be_parked(call: "LiveCall") -> bool:
    """Whether a call that gave in to the shutdown is begun again by whoever takes its run up."""
    told = call.told
    if told is None or told.by is not StoppedBy.SHUTDOWN:
        return False
    return call.harmless or call.record.idempotent


def _open(scheduler: "Scheduler") -> list["LiveCall"]:
    turn = scheduler.turn
    return [] if turn is None else [call for call in turn.calls if call.outcome is None]


def _running(scheduler: "Scheduler") -> list["LiveCall"]:
    return [call for call in _open(scheduler) if call.state is State.RUNNING]


def _give_up(scheduler: "Scheduler") -> None:
    for call in _running(scheduler):
        if call.told is not None and call not in scheduler.bodies.stuck:
            scheduler.bodies.give_up(call)


def _report(calls: list["LiveCall"], tops: list["Scheduler"]) -> Shutdown:
    ended = [call for call in calls if call.outcome is not None]
    by_us = [call for call in ended if call.told is not None and call.told is SHUT_DOWN]
    stuck = {call for top in tops for call in top.bodies.stuck}
    return Shutdown(
        ended=tuple(call.called for call in ended if call not in by_us),
        parked=tuple(call.called for call in calls if call.outcome is None),
        stopped=tuple(call.called for call in by_us if call not in stuck),
        stuck=tuple(call.called for call in by_us if call in stuck),
        runs=tuple(top.log.view.run for top in tops if _is_open(top)),
    )


def _is_open(scheduler: "Scheduler") -> bool:
    return scheduler.turn is not None and not scheduler.turn.closed
