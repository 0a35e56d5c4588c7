"""The processes that the body of a call starts: written down, and ended with the call.

Made for each attempt of a tool that asks for its context. Reads the call; writes the fact of each
process group before the process does anything.
"""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from laneway.engine.processes import GRACE_SECONDS, Ended, run_process
from laneway.engine.telemetry.carrying import environment
from laneway.errors import UsageError
from laneway.facts import ProcessStarted

if TYPE_CHECKING:
    from laneway.engine.live import LiveCall


class Processes:
    """Of one attempt of a call."""

    def __init__(self, call: "LiveCall") -> None:
        """Serve one attempt, in the running event loop."""
        self._call = call
        self._attempt = call.attempt
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        """That wait for a process."""
        self._of_threads: set[Future[Ended]] = set()
        """What threads wait for, who cannot be told to stop."""

    async def run(self, command: Any, options: dict[str, Any]) -> Ended:
        """Run a process; see `ToolContext.run_process`."""
        if asyncio.get_running_loop() is self._loop:
            return await self._run(command, options)
        return await asyncio.wrap_future(self._from_elsewhere(self._run(command, options)))

    def run_in_thread(self, command: Any, options: dict[str, Any]) -> Ended:
        """Do the same from the thread of a synchronous tool, which waits."""
        if self._loop is _running_loop():
            raise UsageError(
                "run_process_blocking(…) would keep the event loop from seeing the process to its "
                "end; in an async tool, use `await context.run_process(…)`"
            )
        if self._loop.is_closed():
            raise UsageError("no process can be run any more: the event loop is closed")
        coming = self._from_elsewhere(self._run(command, options))
        try:
            return coming.result()
        except CancelledError:
            raise asyncio.CancelledError from None

    def stop(self) -> None:
        """The call is told to stop: so are the processes that threads wait for."""
        for waiting in tuple(self._of_threads):
            waiting.cancel()

    async def end(self) -> None:
        """The body is over: end what it has left running beside it, and see that it has ended."""
        for task in self._tasks:
            task.cancel()
        # Whoever is told to stop meanwhile goes on waiting; what does not end, is given up.
        while self._tasks and not self._call.scheduler.bodies.abandoned:
            with suppress(asyncio.CancelledError):
                await asyncio.wait(self._tasks)

    def _from_elsewhere(self, coming: Coroutine[Any, Any, Ended]) -> "Future[Ended]":
        waiting = asyncio.run_coroutine_threadsafe(coming, self._loop)
        self._of_threads.add(waiting)
        waiting.add_done_callback(self._of_threads.discard)
        if self._call.stop is not None and self._call.stop.asked:
            waiting.cancel()  # It was told in the same moment.
        return waiting

    async def _run(self, command: Any, options: dict[str, Any]) -> Ended:
        call = self._call
        if call.outcome is not None or call.attempt != self._attempt or not call.entered:
            raise UsageError(f"{call.id} is over, so it can start no process")
        grace = call.scheduler.services.limits.grace_seconds
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        if call.scheduler.log.listener is not None:
            options = {**options, "env": environment(options.get("env"))}
        try:
            return await run_process(
                command,
                announce=self._announce,
                mark=call.called,
                # Well before the call itself is given up.
                grace_seconds=min(grace / 2, 10 * GRACE_SECONDS),
                **options,
            )
        finally:
            self._tasks.discard(task)

    async def _announce(self, group: int, started: str) -> None:
        scheduler = self._call.scheduler
        fact = ProcessStarted(call=self._call.id, group=group, started=started)
        await scheduler.services.journal.keep(scheduler.log, [fact])


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
