"""`engine.lanes`: the lanes of a running engine, paused, drained, cleared, resized and looked at.

Reads the lane table; what a control grants, or refuses, goes to the runs that own it. Lanes are
named as in `Engine(lanes=…)`, other resources by their names: a control of a resource concerns
whatever overlaps it, above and below.
"""

import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING

import msgspec

from laneway.claims import exclusive
from laneway.engine.doors import Doors
from laneway.engine.failures import cancelled
from laneway.engine.flights import followers
from laneway.engine.live import LiveCall
from laneway.engine.nesting import holder
from laneway.engine.pacing import Pacing, Tell
from laneway.engine.plain import whole_text
from laneway.engine.resetting import let_go
from laneway.engine.services import OWN
from laneway.engine.waking import Waking
from laneway.errors import EngineClosedError, UsageError
from laneway.facts import LaneChanged
from laneway.lanes.lane import Lane
from laneway.lanes.names import is_lane
from laneway.lanes.requests import Request
from laneway.lanes.statistics import LaneStatus
from laneway.lanes.table import LaneTable
from laneway.lanes.watching import Watch, meets

if TYPE_CHECKING:
    from laneway.engine.scheduler import Scheduler
    from laneway.engine.services import Services


class Lanes:
    """The controls of one engine, in one event loop; what they changed ends with it."""

    def __init__(
        self,
        services: "Services",
        configured: Mapping[str, Lane],
        note: Callable[[LaneChanged], None] = lambda _: None,
    ) -> None:
        """Control the lanes of an engine that has been entered.

        Args:
            services: what its runs share.
            configured: its lanes by canonical name.
            note: writes down, in each run that is open, what an operator does.
        """
        self._note = note
        self._services = services
        self._table = services.lanes
        self._waking = Waking()
        self._doors = Doors(configured, services.lanes, self._waking)
        self.pacing = Pacing(
            configured, services.lanes, services.clock, services.deadlines, self.tell
        )
        """The rates of the lanes."""
        self._paused: dict[str, _Pause] = {}
        self._generations: dict[str, int] = {}
        self._closed = False
        self._thread = threading.get_ident()

    # What an operator does

    def pause(self, name: str) -> None:
        """Let nobody in until `resume`; who is in goes on.

        Of a resource that is no lane, whoever overlaps it waits, and nobody else. A nested call
        that uses the slot of a call it is part of is let in: else that call could never end.

        As every control, it belongs to the thread of the engine's event loop; from another one,
        `loop.call_soon_threadsafe(engine.lanes.pause, name)`.

        Raises:
            UsageError: the lane is the engine's own, or this is not its thread.
            BadResourceError: no resource can have this name.
            EngineClosedError: the engine was left.
        """
        resource = self._controlled(name)
        if resource in self._paused:
            return
        if is_lane(resource):
            self._table.pause(resource)
            self._paused[resource] = _Pause()
        else:
            self._paused[resource] = _Pause(self._barrier([resource]))
        self._note(LaneChanged(lane=resource, change="paused"))

    def resume(self, name: str) -> None:
        """Let those in again who may be; a `drain` that still waits ends with it.

        Raises:
            UsageError: the lane is the engine's own.
            BadResourceError: no resource can have this name.
        """
        resource = self._controlled(name)
        pause = self._paused.pop(resource, None)
        if pause is None:
            return
        self._note(LaneChanged(lane=resource, change="resumed"))
        if pause.barrier is None:
            self.tell(self._table.resume(resource))
        else:
            pause.barrier.lift()
        for drain in pause.drains:
            drain.look()

    async def drain(self, name: str) -> bool:
        """Pause, and wait until everybody inside has left; it stays paused until `resume`.

        A body that was told to stop is inside until it has stopped.

        Returns:
            Whether all have left; False if somebody resumed it before.

        Raises:
            UsageError: the lane is the engine's own, or this is the body of a call that is in it.
            BadResourceError: no resource can have this name.
            EngineClosedError: the engine was left meanwhile.
        """
        resource = self._controlled(name)
        self._see_that_outside(resource, "drain")
        self.pause(name)
        self._note(LaneChanged(lane=resource, change="draining"))
        pause = self._paused[resource]
        drain = self._until(
            resource, lambda watch: not watch.holders or self._paused.get(resource) is not pause
        )
        pause.drains.append(drain)
        try:
            await drain.met()
        finally:
            pause.drains.remove(drain)
        return self._paused.get(resource) is pause

    def clear(self, name: str, reason: str = "its lane was cleared") -> tuple[str, ...]:
        """Cancel the calls that wait for it; those that are in go on.

        Args:
            name: of the lane or resource.
            reason: for the model.

        Returns:
            The cancelled calls, as `run/t1.2`, in the order in which they waited.

        Raises:
            UsageError: the lane is the engine's own.
            BadResourceError: no resource can have this name.
        """
        resource = self._controlled(name)
        waiting = [one.owner for one in self._table.concerned(resource) if not one.granted]
        # Who waits for a call as the same as its own waits for what that one waits for.
        meant = [one for call in waiting for one in (call, *followers(call))]
        calls = [call for call in meant if call.told is None and call.outcome is None]
        told = cancelled(whole_text(reason))
        self._note(LaneChanged(lane=resource, change="cleared"))
        for scheduler, own in _by_scheduler(calls).items():
            scheduler.cancel(own, told)
        return tuple(call.called for call in calls)

    def resize(self, name: str, max_concurrent: int) -> None:
        """Set how many may be in it at once, busy or not; of a resource, how many may share it.

        Who is in stays. Nobody enters until fewer are in than may be.

        Raises:
            UsageError: a number below 1 or below what is reserved, or the lane is the engine's own.
            BadResourceError: no resource can have this name.
        """
        resource = self._controlled(name)
        changed = self._table.resize(resource, max_concurrent)
        self._note(LaneChanged(lane=resource, change="resized", value=max_concurrent))
        self.tell(changed)

    def reset(self, name: str) -> tuple[str, ...]:
        """Let go, by force, of bodies that were told to stop and have not.

        All claims of such a call stop counting, so that others may start while its body still
        works: that nobody else touches what it touches is the operator's word, not Laneway's. When
        the body stops at last, that changes nothing. The lane's generation goes up by one.

        Returns:
            The calls that were let go of, as `run/t1.2`.

        Raises:
            UsageError: somebody holds it who has not been told to stop, or still may: cancel
                first; or the lane is the engine's own.
            BadResourceError: no resource can have this name.
        """
        resource = self._controlled(name)
        calls = let_go(resource, self._services)
        generation = self._generations[resource] = self._generations.get(resource, 1) + 1
        self._note(LaneChanged(lane=resource, change="reset", value=generation))
        return calls

    async def idle(self, name: str) -> None:
        """Wait until nobody holds it or waits for it.

        Raises:
            UsageError: this is the body of a call that is in it.
            BadResourceError: no resource can have this name.
            EngineClosedError: the engine was left meanwhile.
        """
        self._see_that_here()
        resource = self._canonical(name)
        self._see_that_outside(resource, "idle")
        await self._until(resource, lambda watch: watch.idle).met()

    @asynccontextmanager
    async def alone(self, *names: str) -> AsyncGenerator[None, None]:
        """Keep resources free for what stands in the block: a barrier.

        It waits for those who hold what overlaps them, goes before all who wait for that, and holds
        up nobody else. Calls that the block itself submits and awaits must not need them.

        Args:
            names: of resources; a lane has slots, no readers and writers: `drain` it.

        Raises:
            UsageError: a lane, no name at all, or this is a tool's body, which holds claims itself.
            BadResourceError: no resource can have this name.
            EngineClosedError: the engine was left meanwhile.
        """
        self._see_that_here()
        resources = [self._canonical(name) for name in names]
        lanes = [resource for resource in resources if is_lane(resource)]
        if lanes or not resources:
            what = lanes[0] if lanes else "nothing"
            raise UsageError(
                f"alone() is for resources such as 'file:src', not {what}; drain a lane, then "
                "resume it"
            )
        if holder(self._services) is not None:
            raise UsageError(
                "alone() cannot be used in a tool's body, which may hold what it would wait for; "
                "declare an exclusive claim of the tool instead"
            )
        barrier = self._barrier(resources)
        try:
            await barrier.entered()
            yield
        finally:
            barrier.lift()

    # What everybody sees

    def status(self, name: str) -> LaneStatus:
        """Look at one lane, or at one resource itself.

        Raises:
            BadResourceError: no resource can have this name.
        """
        resource = self._canonical(name)
        known = (one for one in self.statuses() if one.resource == resource)
        return next(known, None) or self._told(
            LaneStatus(resource=resource, max_concurrent=1 if is_lane(resource) else None)
        )

    def statuses(self) -> tuple[LaneStatus, ...]:
        """Look at all that are in use, have been configured or are paused, sorted by name."""
        found = {one.resource: one for one in self._table.snapshot(_called)}
        for resource in (*self._paused, *self._generations):
            if resource not in found:
                limit = 1 if is_lane(resource) else None
                found[resource] = LaneStatus(resource=resource, max_concurrent=limit)
        return tuple(self._told(found[resource]) for resource in sorted(found))

    def _told(self, status: LaneStatus) -> LaneStatus:
        resource = status.resource
        pause = self._paused.get(resource)
        return msgspec.structs.replace(
            status,
            paused=pause is not None,
            draining=pause is not None and bool(pause.drains),
            generation=self._generations.get(resource, 1),
        )

    # For the engine

    def standing(self) -> list[LaneChanged]:
        """What a run that is entered now has to know of what operators did before."""
        return [LaneChanged(lane=resource, change="paused") for resource in self._paused]

    def room(
        self, calls: Iterable[LiveCall], host: "Scheduler"
    ) -> AbstractAsyncContextManager[None]:
        """Wait, in an `async with`, until there is room for the calls of a turn."""
        if not self._doors or holder(self._services) is not None:
            return nullcontext()
        return self._doors.through((call.claims for call in calls if call.outcome is None), host)

    def call_in(self, host: "Scheduler") -> None:
        """End the wait for room of a turn that is to begin nothing."""
        self._doors.call_in(host)

    def tell(self, changed: Sequence[Request[LiveCall]]) -> None:
        """Pass on whom the lane table has granted something, or refused."""
        if not self._closed:
            for request in changed:
                request.owner.scheduler.changed(request)

    def close(self) -> None:
        """Wake all who wait: the engine is left."""
        self._closed = True
        self._waking.close()

    def _barrier(self, resources: Sequence[str]) -> "_Barrier":
        return _Barrier(resources, self._table, self._waking, self.tell)

    def _until(self, resource: str, so: Callable[[Watch], bool]) -> "_Until":
        return _Until(resource, so, self._table, self._waking)

    def _canonical(self, name: str) -> str:
        return self._services.names.canonical(name if ":" in name else f"lane:{name}")

    def _controlled(self, name: str) -> str:
        self._see_that_here()
        resource = self._canonical(name)
        if resource.startswith(OWN):
            raise UsageError(
                f"{resource} is the engine's own; Engine(limits=…) says how wide it is"
            )
        return resource

    def _see_that_here(self) -> None:
        """Controls start bodies, or are waited for: both belong to the engine, and to its loop."""
        if self._closed:
            raise EngineClosedError
        if threading.get_ident() != self._thread:
            raise UsageError(
                "this is not the thread of the engine's event loop; from another one, such as that "
                "of a synchronous tool, use loop.call_soon_threadsafe(engine.lanes.pause, name), "
                "or asyncio.run_coroutine_threadsafe for what is awaited"
            )

    def _see_that_outside(self, resource: str, deed: str) -> None:
        """A body that waits for its own call to leave would wait for ever."""
        call = holder(self._services)
        request = None if call is None else call.request
        if request is not None:
            for one in (request, *request.ancestors()):
                if meets(one, resource):
                    raise UsageError(
                        f"{deed}({resource!r}) in the body of {one.owner.called}, which is in it, "
                        "would wait for itself; do it outside of the tool"
                    )


class _Barrier:
    """Keeps resources free for somebody."""

    def __init__(
        self, resources: Sequence[str], table: LaneTable[LiveCall], waking: Waking, tell: Tell
    ) -> None:
        self._table = table
        self._tell = tell
        sleeper = self._sleeper = waking.future()
        claims = tuple(exclusive(resource) for resource in dict.fromkeys(resources))
        self._request = table.barrier(claims, lambda: Waking.wake(sleeper))

    async def entered(self) -> None:
        """Wait until those have left who hold what overlaps it."""
        if not self._request.granted:
            await self._sleeper

    def lift(self) -> None:
        """Let the others in."""
        self._sleeper.cancel()
        give = self._table.release if self._request.granted else self._table.withdraw
        self._tell(give(self._request))


class _Until:
    """Sleeps until something is so of the holders and waiters of a resource."""

    def __init__(
        self,
        resource: str,
        so: Callable[[Watch], bool],
        table: LaneTable[LiveCall],
        waking: Waking,
    ) -> None:
        self._so = so
        self._table = table
        self._waking = waking
        self._sleeper = waking.future()
        self._watch = table.watch(resource, self.look)

    def look(self) -> None:
        """Wake up if it is so."""
        if self._so(self._watch):
            Waking.wake(self._sleeper)

    async def met(self) -> None:
        """Wait for it; it may be so no more by the time that this is awake, and is waited for."""
        try:
            while not self._so(self._watch):
                await self._sleeper
                self._sleeper = self._waking.future()
        finally:
            self._sleeper.cancel()
            self._table.unwatch(self._watch)


class _Pause(msgspec.Struct, eq=False):
    """Nobody is let in until it is over."""

    barrier: _Barrier | None = None
    """Of a resource that is no lane."""
    drains: list[_Until] = []
    """Who waits for those inside to leave."""


def _called(call: LiveCall) -> str:
    return call.called


def _by_scheduler(calls: Iterable[LiveCall]) -> "dict[Scheduler, list[LiveCall]]":
    found: dict[Scheduler, list[LiveCall]] = {}
    for call in calls:
        found.setdefault(call.scheduler, []).append(call)
    return found
