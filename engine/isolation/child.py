"""In the process of a call: its limits, the body, and what came of it.

Started by Python's fork server, so that it begins as a fork of a process with one thread. It leads
a session and a group of its own, does nothing before its start is written down, dies with whoever
started it, and hands back plain JSON: nothing that it does reaches the engine but by one socket.
"""

import asyncio
import ctypes
import importlib
import inspect
import multiprocessing
import os
import pickle
import resource
import signal
import socket
import sys
from contextlib import suppress
from math import inf
from typing import Any

import msgspec

from laneway.effects import Effect
from laneway.engine.context import Stop, ToolContext
from laneway.engine.failing import ToolFailed
from laneway.engine.failures import exception_text
from laneway.engine.groups import MARK
from laneway.engine.isolation import carried
from laneway.engine.isolation.frames import Kind, Said, receive, send
from laneway.engine.serialise import normalise
from laneway.outcomes import Code, Failure, Happened

PR_SET_PDEATHSIG = 1
"""prctl(2)."""
MEBIBYTE = 1 << 20


class Work(msgspec.Struct):
    """What the engine hands over; pickled, since arguments may be of any type."""

    module: str
    name: str
    tool: str
    effect: Effect
    arguments: dict[str, Any]
    context_parameter: str
    context: dict[str, Any]
    carried: carried.Carried
    trace: dict[str, str]
    mark: str
    folder: str
    environment: dict[str, str]
    path: list[str]
    memory_bytes: float
    cpu_seconds: float
    result_bytes: float


def main(line: socket.socket, output: socket.socket, parent: int) -> None:
    """Live as the process of one call; `parent` is the process whose death ends it."""
    os.setsid()
    _die_with(parent)
    for stream in (1, 2):
        os.dup2(output.fileno(), stream)
    output.close()
    # Made as one that may not start processes of its own by multiprocessing: that is for the tool.
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]  # noqa: SLF001
    try:
        send(line, Kind.READY, str(os.getpid()).encode())
        _, data = receive(line)
    except (EOFError, OSError):
        os._exit(125)  # Nobody wants it any more.
    kind, answer = _answer(pickle.loads(data), line)  # noqa: S301 - from the engine that started this
    for written in (sys.stdout, sys.stderr):
        with suppress(Exception):
            written.flush()
    with suppress(OSError):
        send(line, kind, answer)
    os._exit(0)


def _answer(work: Work, line: socket.socket) -> tuple[Kind, bytes]:
    try:
        value = _run(work, line)
        return _told(work, value)
    # Whatever it raises is its failure, told to the engine: SystemExit and KeyboardInterrupt, too.
    except BaseException as error:  # noqa: BLE001
        return Kind.RAISED, _raised(error)


def _run(work: Work, line: socket.socket) -> Any:
    os.environ.clear()
    os.environ.update(work.environment)
    os.environ[MARK] = work.mark
    os.chdir(work.folder)
    sys.path[:] = work.path
    stop = Stop()
    stop.on_first = None
    _limit(resource.RLIMIT_AS, work.memory_bytes)
    _limit(resource.RLIMIT_CPU, work.cpu_seconds)
    _limit(resource.RLIMIT_CORE, 0)
    function: Any = importlib.import_module(work.module)
    for part in work.name.split("."):
        function = getattr(function, part)
    function = getattr(function, "function", function)  # The name may be that of the tool.
    _listen_for_the_end(stop, polite=bool(work.context_parameter))
    carried.unpack(work.carried, work.trace)
    arguments = dict(work.arguments)
    if work.context_parameter:
        arguments[work.context_parameter] = ToolContext(**work.context, stop=_Reporting(line=line))
        _listen_for_the_end(arguments[work.context_parameter].stop, polite=True)
    value = function(**arguments)
    return asyncio.run(_awaited(value)) if inspect.isawaitable(value) else value


class _Reporting(Stop):
    """Reports to the engine."""

    line: socket.socket | None = None

    def report(self, said: str) -> None:
        """Tell the engine that the body has come further."""
        assert self.line is not None
        send(self.line, Kind.PROGRESS, str(said).encode(errors="replace")[:10_000])


async def _awaited(value: Any) -> Any:
    return await value


def _listen_for_the_end(stop: Stop, *, polite: bool) -> None:
    """SIGTERM is how the engine says that the call is to stop; SIGKILL follows after the grace."""

    def told(_: int, __: object) -> None:
        stop.ask()
        if not polite:
            raise SystemExit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, told)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _told(work: Work, value: Any) -> tuple[Kind, bytes]:
    outcome = normalise(value, tool=work.tool, effect=work.effect)
    if isinstance(outcome, Failure):
        return Kind.FAILED, _said(outcome)
    encoded = msgspec.json.encode(outcome.value)
    if len(encoded) > work.result_bytes:
        harmless = work.effect.changes_nothing
        size, most = len(encoded) / MEBIBYTE, work.result_bytes / MEBIBYTE
        return Kind.FAILED, _said(
            Failure(
                code=Code.RESULT_NOT_SERIALISABLE,
                message=f"It did run, but returned {size:.0f} MiB, and no more than {most:g} MiB "
                "may come out of its process.",
                happened=Happened.NOTHING if harmless else Happened.ALL,
                hint="Ask for less at once." if harmless else "Do not call it again for that.",
            )
        )
    return Kind.VALUE, encoded


def _said(failure: Failure) -> bytes:
    return msgspec.msgpack.encode(
        Said(
            text=failure.message,
            hint=failure.hint,
            happened=failure.happened,
            code=failure.code,
        )
    )


def _raised(error: BaseException) -> bytes:
    pickled = b""
    if isinstance(error, Exception | SystemExit):
        with suppress(Exception):
            once = pickle.dumps(error)
            pickled = once if type(pickle.loads(once)) is type(error) else b""  # noqa: S301 - its own
        if isinstance(error, ToolFailed) and not pickled:
            pickled = pickle.dumps((str(error), dict(vars(error)), type(error)))
    return msgspec.msgpack.encode(
        Said(text=exception_text(error), kind=type(error).__name__, pickled=pickled)
    )


def _limit(which: int, most: float) -> None:
    if most == inf:
        return
    _, hard = resource.getrlimit(which)
    wanted = int(most) if hard == resource.RLIM_INFINITY else min(int(most), hard)
    # One second between SIGXCPU and SIGKILL; for the others both are one.
    above = (
        wanted + 1 if which == resource.RLIMIT_CPU and hard == resource.RLIM_INFINITY else wanted
    )
    resource.setrlimit(which, (wanted, above))


def _die_with(parent: int) -> None:
    """On Linux the kernel ends this process with the one that made it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if parent and os.getppid() == 1:
        os._exit(125)  # It has gone already.
