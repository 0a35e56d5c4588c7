"""The engine's end of a process that runs the body of one call.

Each call has a process of its own, made by Python's fork server (`multiprocessing`, forkserver): no
worker that a tool has broken is ever used again, and what it leaves behind ends with its group.
Pools (concurrent.futures, Pebble, loky, anyio.to_process) end a worker and not its group, begin
before that could be written down, and share what a dying worker may leave broken.
"""

import asyncio
import functools
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.process
import os
import pickle
import signal
import socket
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec

from laneway.engine.failing import ToolFailed
from laneway.engine.groups import signal_group, start_of
from laneway.engine.isolation import carried
from laneway.engine.isolation.child import MEBIBYTE, Work, main
from laneway.engine.isolation.frames import HEAD, Kind, Said
from laneway.engine.output import Output
from laneway.engine.plain import whole_text
from laneway.engine.processes import DRAIN_SECONDS, GRACE_SECONDS, end_group
from laneway.engine.threads import Raised
from laneway.facts import ProcessStarted
from laneway.outcomes import Code, Happened

if TYPE_CHECKING:
    from laneway.engine.live import LiveCall

EXIT_SECONDS = 0.5
"""How long a process may take to go once it has said what came of it."""
SHOWN = 2000
"""Characters of what a dead process wrote last."""
MOST_BYTES = 1 << 34
"""Of one message, where the result has no limit."""

_starting = threading.Lock()
"""`multiprocessing` looks after all its children whenever one is started, in any thread."""


async def run_in_process(call: "LiveCall", arguments: dict[str, Any]) -> Any:
    """Run the body of a call in a process of its own, to the end of its whole group.

    Raises:
        ToolFailed: it died, or what it returned cannot be handed back.
        BaseException: what the body raised, SystemExit included.
    """
    clock = call.scheduler.services.clock
    data = _packed(call, arguments)
    clock.hold()
    try:
        async with _started(call) as process:
            await process.be_ready()
            await process.announce()
            await process.go(data)
            return await process.hear()
    finally:
        clock.release()


class Process:
    """One process of one call, seen from the engine."""

    def __init__(self, call: "LiveCall", spawned: multiprocessing.process.BaseProcess) -> None:
        """Look after a process that has been started."""
        self._call = call
        self._spawned = spawned
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter | None = None
        self._drain: asyncio.BaseTransport | None = None
        self._output = Output()
        assert spawned.pid is not None
        self.pid = spawned.pid
        self.started = start_of(self.pid)
        self._ended = False
        self.over = False
        """It has said what came of its body."""

    async def connect(self, line: socket.socket, output: socket.socket) -> None:
        """Take hold of the engine's ends."""
        loop = asyncio.get_running_loop()
        self._reader, self._writer = await asyncio.open_connection(sock=line)
        self._drain, _ = await loop.create_connection(lambda: self._output, sock=output)

    async def be_ready(self) -> None:
        """Wait until it leads a group of its own."""
        await self._next()

    async def announce(self) -> None:
        """Write down that it is there."""
        scheduler = self._call.scheduler
        fact = ProcessStarted(call=self._call.id, group=self.pid, started=self.started)
        await scheduler.services.journal.keep(scheduler.log, [fact])

    async def go(self, data: bytes) -> None:
        """Let the body be entered."""
        assert self._writer is not None
        self._writer.write(HEAD.pack(Kind.GO, len(data)) + data)
        with suppress(ConnectionError):
            await self._writer.drain()

    async def hear(self) -> Any:
        """Wait for what comes of the body."""
        while True:
            kind, data = await self._next()
            if kind is not Kind.PROGRESS:
                break
            if self._call.stop is not None:
                self._call.stop.report(data.decode(errors="replace"))
        self.over = True
        if kind is Kind.VALUE:
            return msgspec.json.decode(data)
        said = msgspec.msgpack.decode(data, type=Said)
        if kind is Kind.FAILED:
            raise ToolFailed(
                said.text, happened=Happened(said.happened), hint=said.hint, code=Code(said.code)
            )
        raise _error_of(said)

    async def _next(self) -> tuple[Kind, bytes]:
        most = self._call.scheduler.services.limits.process_result_mb * MEBIBYTE + MEBIBYTE
        try:
            kind, length = HEAD.unpack(await self._reader.readexactly(HEAD.size))
            if length > min(most, MOST_BYTES):
                raise _broken_off(self._call, f"sent {length / MEBIBYTE:.0f} MiB at once")
            return Kind(kind), await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise await self._death() from None
        except ValueError as error:
            raise _broken_off(self._call, f"said what cannot be read ({error})") from None

    async def _death(self) -> ToolFailed:
        """Say how it died."""
        waited = 0.0
        while self.returncode is None and waited < EXIT_SECONDS:
            await asyncio.sleep(0.005)
            waited += 0.005
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._output.ended), 0.1)
        wrote = whole_text(self._output.text())[-SHOWN:].strip()
        told = _death_text(self._call, self.returncode)
        return _broken_off(self._call, told + (f"; it wrote last: {wrote}" if wrote else ""))

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative for a signal; None while it lives, or cannot be asked."""
        if not _starting.acquire(blocking=False):
            return None
        try:
            return self._spawned.exitcode
        finally:
            _starting.release()

    async def end(self, grace_seconds: float) -> None:
        """See that nobody of its group lives any more."""
        if self._ended:
            return
        waited = 0.0
        while self.over and self.returncode is None and waited < EXIT_SECONDS:
            await asyncio.sleep(0.002)
            waited += 0.002
        await end_group(self, self.started, 0.0 if self.over else grace_seconds)
        self._ended = True
        if self._drain is not None:
            await asyncio.wait([self._output.ended], timeout=DRAIN_SECONDS)

    async def last_word(self) -> None:
        """Hear what the body said when it was told to stop, if it did.

        Raises:
            ToolFailed: that.
        """
        try:
            await self.hear()
        except ToolFailed:
            if self.over:
                raise
        except Exception:  # noqa: BLE001, S110 - it was told to stop, and how it did is all the same
            pass

    def close(self) -> None:
        """Let go of the engine's ends."""
        if self._writer is not None:
            self._writer.transport.abort()
        if self._drain is not None:
            self._drain.close()
        with suppress(ValueError):  # It cannot be ended: a last resort has been tried.
            self._spawned.close()


@asynccontextmanager
async def _started(call: "LiveCall") -> AsyncGenerator[Process]:
    """Start a process, and see it end, however this is left."""
    line, its_line = socket.socketpair()
    output, its_output = socket.socketpair()
    try:
        spawned = await _start(call, its_line, its_output)
    except BaseException:
        line.close()
        output.close()
        raise
    finally:
        its_line.close()
        its_output.close()
    process = Process(call, spawned)
    grace = min(call.scheduler.services.limits.grace_seconds / 2, 10 * GRACE_SECONDS)
    try:
        line.setblocking(False)  # noqa: FBT003 - socket's own signature
        output.setblocking(False)  # noqa: FBT003
        await process.connect(line, output)
        yield process
    except asyncio.CancelledError:
        try:
            await process.end(grace)
            await process.last_word()
        finally:
            process.close()
        raise
    finally:
        try:
            await process.end(0.0)
        finally:
            process.close()


async def _start(
    call: "LiveCall", line: socket.socket, output: socket.socket
) -> multiprocessing.process.BaseProcess:
    """Have the fork server start it, in a thread: the first time that takes a second."""
    context = multiprocessing.get_context("forkserver")
    spawned = context.Process(target=main, args=(line, output, os.getpid()), daemon=True)
    _preload(call)

    def start() -> None:
        with _starting:
            spawned.start()

    running = call.scheduler.services.threads.run(start)
    try:
        result = await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])  # A cancelled start may have happened.
        if spawned.pid is not None:
            signal_group(spawned.pid, signal.SIGKILL)
            spawned.kill()
        raise
    if isinstance(result, Raised):
        raise ToolFailed(
            f"no process could be started for it: {result.error}", happened=Happened.NOTHING
        ) from result.error
    return spawned


def _preload(call: "LiveCall") -> None:
    """Let the fork server import once what each process would have to import."""
    _preload_once(tuple(sorted(_modules(call))))


def _modules(call: "LiveCall") -> set[str]:
    tools = call.scheduler.services.tools
    found = {one.spec.importable.partition(":")[0] for one in tools if one.spec.isolation}
    return found - {"__main__", "__mp_main__"}


@functools.cache
def _preload_once(modules: tuple[str, ...]) -> None:
    server: Any = multiprocessing.forkserver._forkserver  # noqa: SLF001 # pyright: ignore[reportPrivateUsage, reportUnknownMemberType, reportAttributeAccessIssue]
    known = list(getattr(server, "_preload_modules", ["__main__"]))
    ours = ["laneway.engine.isolation.child", *modules]
    server.set_forkserver_preload([*known, *(one for one in ours if one not in known)])


def _packed(call: "LiveCall", arguments: dict[str, Any]) -> bytes:
    tool = call.tool
    assert tool is not None
    spec, limits = tool.spec, call.scheduler.services.limits
    given = dict(arguments)
    context: dict[str, Any] = {}
    if tool.context_parameter:
        made = given.pop(tool.context_parameter)
        context = {name: getattr(made, name) for name in _OF_CONTEXT}
    module, _, name = spec.importable.partition(":")
    variables, trace = carried.pack()
    memory = limits.process_memory_mb if spec.memory_mb is None else spec.memory_mb
    cpu = limits.process_cpu_seconds if spec.cpu_seconds is None else spec.cpu_seconds
    work = Work(
        module=module,
        name=name,
        tool=spec.name,
        effect=call.record.effect,
        arguments=given,
        context_parameter=tool.context_parameter,
        context=context,
        carried=variables,
        trace=trace,
        mark=call.called,
        folder=str(os.getcwd()),  # noqa: PTH109 - as it is spelt
        environment=dict(os.environ),
        path=list(sys.path),
        memory_bytes=memory * MEBIBYTE,
        cpu_seconds=cpu if cpu == inf else max(cpu, 1.0),
        result_bytes=limits.process_result_mb * MEBIBYTE,
    )
    try:
        return pickle.dumps(work)
    except Exception as error:
        raise ToolFailed(
            f"its arguments cannot be handed to a process: {error}", happened=Happened.NOTHING
        ) from error


_OF_CONTEXT = ("run", "call", "attempt", "tool", "arguments", "origin")


def _error_of(said: Said) -> BaseException:
    """What the body raised, as it was if that can be told, else of the same name and text."""
    if said.pickled:
        with suppress(Exception):
            found: Any = pickle.loads(said.pickled)  # noqa: S301 - the host's own classes
            error: BaseException = found if isinstance(found, BaseException) else _rebuilt(*found)
            return error
    text = said.text.removeprefix(f"{said.kind}: ")
    kind: type[Exception] = type(said.kind or "Exception", (Exception,), {})
    return kind("" if text == said.kind else text)


def _rebuilt(text: str, fields: dict[str, Any], kind: type[BaseException]) -> BaseException:
    """Make a failure of the tool's again whose class cannot be pickled as others are."""
    error = kind.__new__(kind, text)
    error.args = (text,)
    vars(error).update(fields)
    return error


def _broken_off(call: "LiveCall", told: str) -> ToolFailed:
    harmless = call.harmless
    more = "" if harmless else " It may have had its effect, or part of it."
    return ToolFailed(
        f"its process {told}.{more}",
        happened=Happened.NOTHING if harmless else Happened.UNKNOWN,
        retry=harmless,
        hint="" if harmless else "Find out what happened before asking again.",
    )


def _death_text(call: "LiveCall", code: int | None) -> str:
    if code is None or code == 255:  # noqa: PLR2004 - the fork server's word for "not known"
        return "ended, and nobody saw how"
    if code >= 0:
        return f"ended with exit code {code} before its body returned"
    name = signal.Signals(-code).name
    if name == "SIGXCPU":
        assert call.tool is not None
        own = call.tool.spec.cpu_seconds
        most = call.scheduler.services.limits.process_cpu_seconds if own is None else own
        return f"used up its {most:g} s of processor time"
    why = ", perhaps for want of memory" if name == "SIGKILL" else ""
    return f"was killed by {name}{why}"
