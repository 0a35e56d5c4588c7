"""A child process that ends with everything it has started.

It leads a process group of its own; whichever way the wait for it ends (it exits, the call is
cancelled), the whole group is killed. So a call that has ended has really stopped, and its claims
can be given to the next. What makes a session of its own (a daemon) escapes.
"""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

HEAD_BYTES = 10_000
TAIL_BYTES = 40_000
"""What is kept of an output: its beginning and, as faults stand last, more of its end."""
DRAIN_SECONDS = 1.0
"""How long the output may stay open after the group has been killed: only a daemon holds it."""


class Output(asyncio.Protocol):
    """Takes in what a process writes, in bounded memory."""

    def __init__(self) -> None:
        """Start empty, in the running event loop."""
        self.size = 0
        """Bytes written in all."""
        self.ended = asyncio.get_running_loop().create_future()
        self._head = bytearray()
        self._tail = bytearray()

    def data_received(self, data: bytes) -> None:
        """Keep the beginning and the end."""
        self.size += len(data)
        room = HEAD_BYTES - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * TAIL_BYTES:
            del self._tail[:-TAIL_BYTES]

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Nobody holds the other end any more."""
        self.ended.set_result(None)

    @property
    def is_cut(self) -> bool:
        """Whether something of the middle is missing."""
        return self.size > HEAD_BYTES + TAIL_BYTES

    def text(self) -> str:
        """What was written; what is no UTF-8 is replaced."""
        tail = self._tail[-TAIL_BYTES:]
        if not self.is_cut:
            return bytes(self._head + tail).decode(errors="replace")
        left_out = self.size - HEAD_BYTES - TAIL_BYTES
        head, end = self._head.decode(errors="replace"), tail.decode(errors="replace")
        return f"{head}\n[… {left_out:,} bytes left out …]\n{end}"


class Ended(NamedTuple):
    """How a process ended."""

    code: int
    """The exit code; negative for the signal that killed it."""
    output: Output


async def run_process(
    command: Sequence[str], *, folder: Path, environment: Mapping[str, str] | None = None
) -> Ended:
    """Run a program to its end, and kill what it leaves behind.

    Args:
        command: the program and its arguments.
        folder: in which it runs.
        environment: its variables; those of this process if None.

    Raises:
        OSError: it cannot be started.
        asyncio.CancelledError: the wait was cancelled; the whole group has been killed.
    """
    loop = asyncio.get_running_loop()
    receiving, sending = os.pipe()
    output = Output()
    transport, _ = await loop.connect_read_pipe(lambda: output, os.fdopen(receiving, "rb", 0))
    try:
        try:
            process = await _start(command, folder, environment, sending)
        finally:
            os.close(sending)
        try:
            code = await process.wait()
        finally:
            end_group(process.pid)
            await process.wait()
            await asyncio.wait([output.ended], timeout=DRAIN_SECONDS)
    finally:
        transport.close()
    return Ended(code, output)


def end_group(leader: int) -> None:
    """Kill a process group; one that is empty has ended already."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # macOS says the latter of a group of zombies
        return


async def _start(
    command: Sequence[str], folder: Path, environment: Mapping[str, str] | None, sending: int
) -> asyncio.subprocess.Process:
    """Start it, or leave nothing started."""
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=sending,
            stderr=sending,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # A cancelled start may have happened: it is waited for, so that its group can be killed.
        await asyncio.wait([starting])
        if not starting.cancelled() and starting.exception() is None:
            process = starting.result()
            end_group(process.pid)
            await process.wait()  # Else its transport would outlive the loop.
        raise
