"""The body of a call: entered, awaited, and whatever came out of it taken as a value."""

import asyncio
import copy
import inspect
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from laneway.engine.context import Stop, ToolContext
from laneway.engine.ending.layers import first_report
from laneway.engine.failures import core
from laneway.engine.invoking import Nest
from laneway.engine.isolation.parent import run_in_process
from laneway.engine.spawning import Processes
from laneway.engine.threads import Raised, Returned, ToolThreads

if TYPE_CHECKING:
    from laneway.engine.live import LiveCall


async def enter(call: "LiveCall", threads: ToolThreads) -> Returned | Raised:
    """Enter the body of a call's tool; nothing that it raises comes out as an exception.

    What it has started and not waited for still runs: see `end_processes`.
    """
    tool, checked = call.tool, call.checked
    assert tool is not None
    assert checked is not None
    try:
        context = context_of(call) if tool.wants_context else None
        kwargs = checked.call_with(call.scheduler.bound, context)
        if not tool.spec.sync:
            return Returned(await tool.function(**kwargs))
        if tool.spec.isolation == "process":
            return Returned(await run_in_process(call, kwargs))
        value = await _in_thread(call, partial(tool.function, **kwargs), threads)
        if not inspect.isawaitable(value):
            return Returned(value)
        if call.told is not None:
            return Raised(_not_awaited(value))
        return Returned(await value)
    # A tool's failure is a value, whatever it raised: SystemExit, CancelledError and
    # KeyboardInterrupt are told apart by the scheduler, which knows whether it asked for a stop.
    except BaseException as error:  # noqa: BLE001
        return Raised(core(error))


async def end_processes(call: "LiveCall") -> None:
    """End what a body has started and left running, unless its thread is still in it."""
    if call.stop is not None and call.stop.processes is not None and call.running is None:
        await call.stop.processes.end()


async def _in_thread(call: "LiveCall", work: Callable[[], Any], threads: ToolThreads) -> Any:
    """Run in a thread, to its end: a call told to stop is given up, since no thread can be."""
    running = call.running = threads.run(work)
    try:
        result = await asyncio.shield(running)
    except asyncio.CancelledError:
        if not running.done():
            raise  # The thread goes on; whoever owns the task sees it by `running`.
        result = running.result()
    call.running = None
    if isinstance(result, Raised):
        raise result.error
    return result.value


def _not_awaited(value: Any) -> asyncio.CancelledError:
    """Drop what a thread gave back to be awaited, after its call had been given up."""
    if inspect.iscoroutine(value):
        value.close()
    return asyncio.CancelledError()


def context_of(call: "LiveCall") -> ToolContext:
    """What a tool may know of the call, if it asks for it."""
    call.stop = Stop(
        processes=Processes(call),
        now=call.scheduler.services.clock.monotonic,
        on_first=first_report(call),
    )
    return ToolContext(
        run=call.scheduler.log.view.run,
        origin=call.origin,
        call=call.id,
        attempt=call.attempt,
        tool=call.record.tool,
        arguments=copy.deepcopy(call.arguments),
        stop=call.stop,
        nest=Nest(call.scheduler.services.open_run, call),
    )
