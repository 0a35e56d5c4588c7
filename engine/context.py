"""What a tool may know of the call it serves: a parameter annotated `ToolContext` receives it.

Made by the execution for tools that ask for it, never seen by the model. Its idempotency key is
what a tool hands to a service that can tell a repeated request from a new one.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from laneway.engine.invoking import value_of
from laneway.engine.processes import Ended, run_process
from laneway.engine.serialise import digest
from laneway.errors import UsageError
from laneway.ids import CallId, RunId
from laneway.outcomes import StoppedBy

if TYPE_CHECKING:
    from laneway.engine.invoking import Nest
    from laneway.engine.spawning import Processes


class Stop(msgspec.Struct):
    """Set when a call is told to stop; a flag is all that a thread can look at."""

    asked: bool = False
    processes: "Processes | None" = None
    """What the body starts outside, and what is to end with it; None without an engine."""
    reported: float | None = None
    """When the body last reported progress, in monotonic seconds."""
    said: str = ""
    """What it then said."""
    by: StoppedBy | None = None
    """Who told it to stop."""
    now: Callable[[], float] = time.monotonic
    on_first: Callable[[], None] | None = None
    """Called once, with the first report; from any thread."""

    def ask(self, by: StoppedBy | None = None) -> None:
        """Tell the body to stop."""
        self.by = by
        self.asked = True
        if self.processes is not None:
            self.processes.stop()

    def report(self, said: str) -> None:
        """Note that the body has come further."""
        self.said = said
        self.reported = self.now()
        first, self.on_first = self.on_first, None
        if first is not None:
            first()


class ToolContext(msgspec.Struct, frozen=True, kw_only=True, weakref=True):
    """One attempt of one call."""

    run: RunId
    call: CallId
    attempt: int
    """From 1; more than 1 when an earlier attempt failed."""
    tool: str
    arguments: dict[str, Any]
    """As policy and journal saw them: canonical, host-bound ones absent."""
    stop: Stop = msgspec.field(default_factory=Stop)
    nest: "Nest | None" = None
    """The way to the engine; None where a tool is tried out without one."""
    origin: RunId | None = None
    """The run in which the call was asked for, if this one is a fork of that."""

    @property
    def cancelled(self) -> bool:
        """Whether the call has been told to stop; a long synchronous tool looks now and then."""
        return self.stop.asked

    @property
    def stopped_by(self) -> StoppedBy | None:
        """Who told the call to stop; None while nobody has."""
        return self.stop.by

    def progress(self, said: str = "", /) -> None:
        """Report that the tool has come further; from any thread, and as often as it likes.

        A tool that is silent for longer than its `idle_timeout` is stopped; one without, from its
        first report on, after `Limits.idle_seconds`. Its other limits stay as they are.

        Args:
            said: how far it is, shown to the model if it is stopped for being silent.
        """
        self.stop.report(said)

    async def invoke(self, tool: str, /, **arguments: Any) -> Any:
        """Run another tool of the engine as part of this call, and give its value.

        It is checked, judged, queued and journalled like any call, in a run of its own called
        `<run>/<call>/<n>`. It may use what this call holds, and waits for everybody else. When the
        body is entered again, after a failed attempt or a crash, what the n-th call of a tool with
        these arguments came to is given again, unless it did nothing.

        Raises:
            NestedCallFailed: it did not succeed, a ToolFailed with its code: LANE_DEADLOCK if it
                could only wait for itself. What it says is said of that call alone.
            UsageError: the tool was called without an engine.
        """
        return value_of(tool, await self._nested().outcome(tool, arguments))

    def invoke_blocking(self, tool: str, /, **arguments: Any) -> Any:
        """Do the same in a synchronous tool, whose thread waits for it."""
        return value_of(tool, self._nested().outcome_in_thread(tool, arguments))

    async def run_process(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        input: bytes | str | None = None,  # noqa: A002 - as subprocess calls it
        timeout_seconds: float | None = None,
    ) -> Ended:
        """Run a program as part of this call, to its end, and end what it leaves behind.

        It leads a process group of its own, which is written down before the program begins. When
        the call is cancelled or its time is over, the group gets SIGTERM, and SIGKILL half a grace
        later (`Limits.grace_seconds`); the call holds its claims until all of the group has ended.
        On Linux the program dies with this process, and what it has left behind is ended by whoever
        takes the run up.

        Args:
            command: the program and its arguments; or a line for /bin/sh.
            cwd: the folder in which it runs; that of this process if None.
            env: its variables; those of this process if None.
            input: what it can read; nothing if None.
            timeout_seconds: how long it may take, within the time of the call.

        Returns:
            Its exit code, negative for the signal that killed it, and its output: standard output
            and standard error as they came, the beginning and the end of it if it is long.

        Raises:
            OSError: it cannot be started.
            TimeoutError: it took too long, and has been ended.
            JournalError: its start could not be written down; it did nothing.
            UsageError: the call is over.
        """
        options: dict[str, Any] = {
            "cwd": cwd,
            "env": env,
            "input": input,
            "timeout_seconds": timeout_seconds,
        }
        if self.stop.processes is None:
            return await run_process(command, **options)
        return await self.stop.processes.run(command, options)

    def run_process_blocking(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        input: bytes | str | None = None,  # noqa: A002 - as subprocess calls it
        timeout_seconds: float | None = None,
    ) -> Ended:
        """Do the same in a synchronous tool, whose thread waits for it.

        Raises:
            asyncio.CancelledError: the call was told to stop; all of the group has been.
        """
        options: dict[str, Any] = {
            "cwd": cwd,
            "env": env,
            "input": input,
            "timeout_seconds": timeout_seconds,
        }
        if self.stop.processes is None:
            return asyncio.run(run_process(command, **options))
        return self.stop.processes.run_in_thread(command, options)

    def note_read(self, source: str, *, version: str = "", found: bool | None = True) -> None:
        """Say what the body has read, for whoever looks at the trace; from any thread.

        Args:
            source: a file, a table, an address; never shown to the model.
            version: of what was read: a revision, a digest, a date.
            found: False if the source held nothing that was asked for, None if it could not be
                asked. The three are told apart.
        """
        if self.nest is not None:
            self.nest.has_read(source, version, found=found)

    def _nested(self) -> "Nest":
        if self.nest is None:
            raise UsageError(f"{self.tool} was called without an engine, so it can call no tool")
        return self.nest

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of this call, also after a crash; different for every other.

        In a fork a call of the shared past keeps the key of the run in which it was asked for:
        whoever did what it asks for need not do it twice. SHA-256 over run, call, tool and
        canonical arguments, in hexadecimal: 64 characters, which is within the 255 that HTTP
        services usually take in an Idempotency-Key header.
        """
        return digest([self.origin or self.run, self.call, self.tool, self.arguments])


def process_of(context: ToolContext | None) -> Callable[..., Awaitable[Ended]]:
    """What runs a process for a call; for nobody's, where a tool is called by itself."""
    return run_process if context is None else context.run_process
