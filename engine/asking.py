"""The probes of a run's calls: asked beside everything else, each once, answered within a limit.

Reads calls that are UNCERTAIN and whose tool has a probe; gives the scheduler what was found. A
probe that raises, takes too long or answers nonsense has found out nothing, and says so.
"""

import asyncio
import copy
import inspect
from collections import deque
from collections.abc import Mapping
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from laneway.engine.admission import complete, told_arguments
from laneway.engine.context import ToolContext
from laneway.engine.failures import core, exception_text
from laneway.engine.live import LiveCall
from laneway.engine.probing import Found, Probe, read_answer
from laneway.engine.threads import Raised, Returned
from laneway.outcomes import Failure

if TYPE_CHECKING:
    from laneway.engine.scheduler import Scheduler


class Probes:
    """Whatever is being found out about one run's calls."""

    def __init__(self, scheduler: "Scheduler") -> None:
        """Serve one scheduler."""
        self.scheduler = scheduler
        self.services = scheduler.services
        self.tasks: set[asyncio.Task[None]] = set()
        """Of probes, those too that decide nothing any more and have not stopped."""
        self._open: dict[LiveCall, _Asked] = {}
        """Those that may still decide something."""
        self._line: deque[_Asked] = deque()
        self._free = self.services.limits.tool_threads
        """How many more may be asked at once."""

    def ask(self, call: LiveCall) -> None:
        """Ask the probe of a call that waits for it; the answer is an event of the scheduler."""
        if call.probing and not self.scheduler.leaving and self.scheduler.log.broken is None:
            asked = self._open[call] = _Asked(call, self)
            self._line.append(asked)
            self._begin()

    def forget(self, call: LiveCall) -> None:
        """Whatever the probe of a call finds decides nothing any more."""
        asked = self._open.pop(call, None)
        if asked is not None:
            self._end(asked)

    def close(self) -> None:
        """Let nothing be decided any more: whoever takes the run up asks again."""
        self._line.clear()
        for call in tuple(self._open):
            self.forget(call)

    async def stopped(self) -> None:
        """Wait for probes to stop, no longer than the grace: they hold nothing."""
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=self.services.limits.grace_seconds)

    def answered(self, asked: "_Asked", found: Found) -> None:
        """A probe has found something, or will find nothing."""
        if self._open.get(asked.call) is asked:
            del self._open[asked.call]
            self._end(asked)
            self.scheduler.probed(asked.call, found)

    def _begin(self) -> None:
        while self._line and self._free:
            asked = self._line.popleft()
            if self._open.get(asked.call) is asked:
                self._free -= 1
                asked.begin()

    def _end(self, asked: "_Asked") -> None:
        if asked.task is not None:
            self._free += 1
            asked.stop()
            self._begin()


class _Asked:
    """One probe of one call."""

    __slots__ = ("_probes", "_running", "call", "due", "task")

    def __init__(self, call: LiveCall, probes: Probes) -> None:
        self.call = call
        self.due = inf
        self.task: asyncio.Task[None] | None = None
        self._probes = probes
        self._running: asyncio.Future[Returned | Raised] | None = None
        """Of the thread that is in a synchronous probe."""

    def begin(self) -> None:
        """Enter the probe, in a task of its own; its limit counts from here."""
        services = self._probes.services
        self.due = services.clock.monotonic() + services.limits.probe_seconds
        if self.due != inf:
            services.deadlines.watch(self)
        loop = asyncio.get_running_loop()
        self.task = loop.create_task(self._live(), context=self.call.turn.context.copy())
        self._probes.tasks.add(self.task)
        self.task.add_done_callback(self._over)

    def stop(self) -> None:
        """Tell it to stop; a thread can't be told, and is stuck until it does."""
        services = self._probes.services
        services.deadlines.forget(self)
        if self._running is not None and not self._running.done():
            threads = services.threads
            threads.stuck += 1
            self._running.add_done_callback(lambda _: setattr(threads, "stuck", threads.stuck - 1))
        assert self.task is not None
        if self.task is not asyncio.current_task():
            self.task.cancel()

    def expired(self) -> None:
        """It has taken too long."""
        seconds = self._probes.services.limits.probe_seconds
        told = f"the probe did not answer within its limit of {seconds:g} s"
        self._probes.answered(self, Found.unknown(told))

    def _over(self, task: asyncio.Task[None]) -> None:
        self._probes.tasks.discard(task)
        # Cancelled from outside before it began: nobody else would say so.
        self._probes.answered(self, Found.unknown("the probe was cancelled"))

    async def _live(self) -> None:
        try:
            found = read_answer(await self._answer())
        except _NotAskedError as error:
            found = Found.unknown(str(error))
        # A probe is the host's own code, and whatever it raises says that nobody can tell.
        except BaseException as error:  # noqa: BLE001
            cause = core(error)
            if isinstance(cause, KeyboardInterrupt):
                self._probes.scheduler.interrupted(cause)
            found = Found.unknown(f"the probe raised {exception_text(cause)}")
        self._probes.answered(self, found)

    async def _answer(self) -> Any:
        call = self.call
        assert call.tool is not None
        probe = call.tool.probe
        assert probe is not None
        given = _given(call, probe)
        if not probe.sync:
            return await probe.function(**given)
        running = self._running = self._probes.services.threads.run(
            partial(probe.function, **given)
        )
        result = await asyncio.shield(running)
        if isinstance(result, Raised):
            raise result.error
        value = result.value
        return await value if inspect.isawaitable(value) else value


class _NotAskedError(Exception):
    """Says why a probe cannot be asked about a call."""


def _given(call: LiveCall, probe: Probe) -> dict[str, Any]:
    """What the probe of a call is entered with.

    Raises:
        _NotAskedError: what the call ran with is not known any more, and so neither is its key.
    """
    arguments, values = _ran_with(call)
    context = ToolContext(
        run=call.scheduler.log.view.run,
        origin=call.origin,
        call=call.id,
        attempt=call.attempt,
        tool=call.record.tool,
        arguments=copy.deepcopy(arguments),
    )
    if not isinstance(values, Failure):
        return probe.call_with(values, context)
    if probe.wants_arguments:
        raise _NotAskedError(f"the probe was not asked: {values.message}")
    return probe.call_with({}, context)


def _ran_with(call: LiveCall) -> tuple[dict[str, Any], Mapping[str, Any] | Failure]:
    """The arguments that a call ran with: as they make its key, and as its tool takes them.

    Where the tool is another one by now, or its secrets are lost, the recorded arguments still make
    the key, as long as nothing in them was resolved or made canonical since. Another key would find
    nothing, and the payment would be made twice.
    """
    tool, record = call.tool, call.record
    assert tool is not None
    failure = complete(call) if call.checked is None else None
    values = failure or _taken_by_tool(call)
    if failure is None and record.tool_version == tool.spec.version:
        return call.arguments, values
    told = told_arguments(call, tool)
    if told != record.arguments:
        changed = (
            f"{record.tool} has another version than the one that ran, so the idempotency key of "
            "the call is not known any more"
        )
        raise _NotAskedError(f"the probe was not asked: {failure.message if failure else changed}")
    return record.arguments, values


def _taken_by_tool(call: LiveCall) -> Mapping[str, Any]:
    assert call.checked is not None
    return call.checked.call_with(call.scheduler.bound)
