"""A server as a child process: JSON-RPC over its pipes, in a process group of its own.

Its exit ends the connection at once, even where something that it has started holds its output
open; leaving ends the whole group. On Linux the server dies with this process. What it writes to
standard error is kept, the end of it, for whoever looks why it died.
"""

import asyncio
import math
import os
import signal
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Self

import anyio
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter

from laneway.engine.groups import has_ended, signal_group, start_of
from laneway.engine.processes import dying_with_parent, see_that_starts

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

LONGEST_LINE = 64 * 1024 * 1024
"""Bytes of one message: more is no message, and ends the connection."""
STDERR_KEPT = 64 * 1024
DRAIN_SECONDS = 0.25
"""How long what a server wrote before it exited may take to arrive."""
END_SECONDS = 2.0
"""Between closing its input and SIGTERM, then between that and SIGKILL."""
KILL_SECONDS = 2.0
"""How long what was killed may take to be gone."""
_LOOK_SECONDS = 0.02

INHERITED = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "TMPDIR", "LANG", "LC_ALL")
"""Variables that a server gets from this process; others may hold secrets, and are named."""


class Command:
    """How a server is started."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str | os.PathLike[str] | None,
    ) -> None:
        """Take a program with its arguments, its own variables, and its folder."""
        self.argv = tuple(argv)
        self.env = {name: os.environ[name] for name in INHERITED if name in os.environ} | dict(env)
        self.cwd = cwd


@asynccontextmanager
async def running(command: Command) -> AsyncGenerator["Child"]:
    """Start a server; end it, with all that it has started.

    Raises:
        OSError: it cannot be started.
    """
    see_that_starts(command.argv, command.cwd, command.env)
    child = Child()
    # Shielded: a start that is cancelled may have happened, and its group has to be ended.
    starting = asyncio.ensure_future(child.start(command))
    try:
        await asyncio.shield(starting)
        yield child
    finally:
        await _to_its_end(_end(child, starting), child)


async def _end(child: "Child", starting: "asyncio.Future[None]") -> None:
    await asyncio.wait([starting])
    if not starting.cancelled() and starting.exception() is None:
        await child.end()


async def _to_its_end(ending: Any, child: "Child") -> None:
    """Wait for an end that is bounded by itself; whoever is cancelled meanwhile shortens it."""
    task = asyncio.ensure_future(ending)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
            child.hurry()
    task.result()
    if cancelled:
        raise asyncio.CancelledError


class Child(asyncio.SubprocessProtocol):
    """A server that runs, and both ends of its pipes."""

    def __init__(self) -> None:
        """Prepare; `start` starts it."""
        loop = asyncio.get_running_loop()
        self._loop = loop
        self.exited = asyncio.Event()
        self._hurried = False
        self._output_over = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._transport: asyncio.SubprocessTransport | None = None
        self._started = ""
        self._rest = bytearray()
        self._stderr = bytearray()
        self.received: MemoryObjectReceiveStream[SessionMessage | Exception]
        self._deliver: MemoryObjectSendStream[SessionMessage | Exception]
        self._deliver, self.received = anyio.create_memory_object_stream[
            SessionMessage | Exception
        ](math.inf)
        self.noise = 0
        """Lines on standard output that are no messages."""

    async def start(self, command: Command) -> None:
        """Start the program, the kernel told to kill it if this process dies."""
        await self._loop.subprocess_exec(
            lambda: self,
            *dying_with_parent(),
            *command.argv,
            env=command.env,
            cwd=command.cwd,
            start_new_session=True,
        )

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It runs."""
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._transport = transport
        self._started = start_of(transport.get_pid())

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """It wrote something."""
        if fd != 1:
            self._stderr += data
            del self._stderr[:-STDERR_KEPT]
            return
        self._rest += data
        if b"\n" not in data:
            if len(self._rest) > LONGEST_LINE:
                self._close(ConnectionError(f"a message of more than {LONGEST_LINE} bytes"))
            return
        *lines, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest)
        for line in lines:
            self._read(line)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002
        """One of its pipes is closed; without its output it is of no use."""
        if fd == 1:
            self._output_over = True
            self._close_soon()
        elif fd == 0:
            self._writable.set()

    def process_exited(self) -> None:
        """It is dead, and reaped; what it wrote before may still be on its way."""
        self.exited.set()
        self._close_soon()

    def _close_soon(self) -> None:
        """One of its exit and the end of its output has been seen; the other comes, or not."""
        if self.exited.is_set() and self._output_over:
            self._close()
        else:
            self._loop.call_later(DRAIN_SECONDS, self._close)

    def pause_writing(self) -> None:
        """It does not read what it is sent."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """It reads again."""
        self._writable.set()

    def _read(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            self.noise += 1  # A server that prints is bad manners, and no reason to lose it.
            return
        # Nobody may listen any more.
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._deliver.send_nowait(SessionMessage(message))

    def _close(self, why: Exception | None = None) -> None:
        if why is not None:
            self._stderr += f"\n{why}".encode()
            self.hurry()
        self._deliver.close()

    # What the connection calls

    async def send(self, item: SessionMessage) -> None:
        """Write a message; waits while the server does not read.

        Raises:
            BrokenResourceError: the server is gone.
        """
        await self._writable.wait()
        pipe = None if self._transport is None else self._transport.get_pipe_transport(0)
        if self.exited.is_set() or not isinstance(pipe, asyncio.WriteTransport):
            raise anyio.BrokenResourceError
        if pipe.is_closing():
            raise anyio.BrokenResourceError
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        pipe.write(text.encode() + b"\n")

    async def aclose(self) -> None:
        """Close its input, upon which a server ends."""
        pipe = None if self._transport is None else self._transport.get_pipe_transport(0)
        if pipe is not None:
            pipe.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def hurry(self) -> None:
        """Kill it instead of waiting."""
        self._hurried = True

    @property
    def pid(self) -> int:
        """Of the server, and the number of its group."""
        assert self._transport is not None
        return self._transport.get_pid()

    @property
    def stderr(self) -> str:
        """The end of what it wrote to standard error."""
        return self._stderr.decode(errors="replace")

    def fate(self) -> str:
        """How it ended, for a sentence; empty while it runs."""
        code = None if self._transport is None else self._transport.get_returncode()
        if code is None:
            return ""
        if code < 0:
            try:
                return f"it was killed by {signal.Signals(-code).name}"
            except ValueError:
                return f"it was killed by signal {-code}"
        return f"it exited with code {code}"

    async def end(self) -> None:
        """Close its input, wait, then end the whole group; every wait is bounded."""
        assert self._transport is not None
        await self.aclose()
        await self._gone(END_SECONDS)
        for which in (signal.SIGTERM, signal.SIGKILL):
            if not self._is_gone():
                signal_group(self.pid, which, started=self._started)
                await self._gone(KILL_SECONDS if which is signal.SIGKILL else END_SECONDS)
        self._deliver.close()
        self.received.close()
        self._transport.close()

    def _is_gone(self) -> bool:
        return self.exited.is_set() and has_ended(self.pid)

    async def _gone(self, seconds: float) -> None:
        give_up, pause = self._loop.time() + seconds, 0.001
        while not self._is_gone() and self._loop.time() < give_up:
            if self._hurried:
                signal_group(self.pid, signal.SIGKILL, started=self._started)
            # Who is left of a group behind its leader can only be looked for.
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LOOK_SECONDS)
