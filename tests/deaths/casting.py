"""The tools of all programs; each writes its start and its end to a log that no engine knows of.

A line is one write to a file opened with O_APPEND, so what was written before a death is there
after it. Made once, in the process from which all lives are forked; each life opens the pen anew.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec

from laneway import Effect, Tool, ToolContext, ToolFailed, plan_tool
from tests.deaths.programs import KINDS, NESTING


class Pen:
    """Writes the log of a case, and ends the process in the middle of a body."""

    def __init__(self) -> None:
        self._file = -1
        self._marks = 0

    def open(self, path: Path, *, dies_at: int = 0) -> None:
        """Begin a life; it ends at the n-th mark of its bodies."""
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._marks = dies_at

    def write(self, *lines: Sequence[Any]) -> None:
        """Write lines at once, each with the process and the time, which all processes share."""
        pid, now = os.getpid(), time.monotonic()
        told = b"".join(
            msgspec.json.encode([word, pid, now, *rest]) + b"\n" for word, *rest in lines
        )
        os.write(self._file, told)

    def mark(self) -> None:
        """A place in a body where its process may die."""
        self._marks -= 1
        if not self._marks:
            os.kill(os.getpid(), signal.SIGKILL)


PEN = Pen()


@contextmanager
def entered(tool: str, label: str, path: str, context: ToolContext) -> Generator[None]:
    """Note that a body is entered, and how it is left."""
    which = [str(context.run), str(context.call), context.attempt]
    PEN.write(["start", *which, tool, label, path])
    PEN.mark()
    try:
        yield
        PEN.mark()
    except BaseException:
        PEN.write(["stop", *which])
        raise
    PEN.write(["end", *which])
    PEN.mark()


def value_of(label: str, more: object, size: int) -> str:
    """What a call gives: it tells what it was given."""
    return f"{label}-{crc32(msgspec.json.encode(more)):08x}{'x' * size}"


def outcome_of(kind: str, attempt: int, fails: int) -> None:
    """Raise what the kind of tool raises, if it does."""
    if kind == "bad":
        raise ValueError("no")
    if kind == "lose" or attempt <= fails:
        raise ConnectionResetError("the reply did not come")


def body(kind: str) -> Callable[..., Any]:
    """A body that waits for the loop."""

    async def work(
        id: str,  # noqa: A002 - as a model says it
        path: str,
        context: ToolContext,
        more: Any = "",
        fails: int = 0,
        pause_ms: float = 0,
        size: int = 0,
    ) -> str:
        with entered(kind, id, path, context):
            await asyncio.sleep(5 if kind == "hang" else pause_ms / 1000)
            outcome_of(kind, context.attempt, fails)
        return value_of(id, more, size)

    return work


def blocking(kind: str) -> Callable[..., Any]:
    """A body that blocks its thread."""

    def work(
        id: str,  # noqa: A002 - as a model says it
        path: str,
        context: ToolContext,
        more: Any = "",
        fails: int = 0,
        pause_ms: float = 0,
        size: int = 0,
    ) -> str:
        with entered(kind, id, path, context):
            time.sleep(0.03 if kind == "drag" else pause_ms / 1000)
            outcome_of(kind, context.attempt, fails)
        return value_of(id, more, size)

    return work


def nesting(kind: str) -> Callable[..., Any]:
    """A body that calls other tools."""

    async def work(  # noqa: PLR0913 - the arguments of a tool
        id: str,  # noqa: A002 - as a model says it
        path: str,
        context: ToolContext,
        parts: list[dict[str, Any]],
        *,
        beside: bool = False,
        more: Any = "",
        fails: int = 0,
        pause_ms: float = 0,
        size: int = 0,
    ) -> str:
        async def ask(part: Mapping[str, Any]) -> None:
            try:
                await context.invoke(part["tool"], **part["given"])
            except ToolFailed as error:
                PEN.write(["refused", str(context.run), str(context.call), error.code])

        with entered(kind, id, path, context):
            await asyncio.sleep(pause_ms / 1000)
            if beside:
                await asyncio.gather(*map(ask, parts))
            else:
                for part in parts:
                    await ask(part)
        return value_of(id, more, size)

    return work


def nesting_in_a_thread(kind: str) -> Callable[..., Any]:
    """A body that blocks its thread while other tools run for it."""

    def work(  # noqa: PLR0913 - the arguments of a tool
        id: str,  # noqa: A002 - as a model says it
        path: str,
        context: ToolContext,
        parts: list[dict[str, Any]],
        *,
        beside: bool = False,
        more: Any = "",
        fails: int = 0,
        pause_ms: float = 0,
        size: int = 0,
    ) -> str:
        with entered(kind, id, path, context):
            time.sleep(pause_ms / 1000)
            for part in parts:
                try:
                    context.invoke_blocking(part["tool"], **part["given"])
                except ToolFailed as error:
                    PEN.write(["refused", str(context.run), str(context.call), error.code])
        return value_of(id, more, size)

    return work


def cast(**otherwise: Mapping[str, Any]) -> list[Tool[..., Any]]:
    """All tools.

    Args:
        otherwise: declarations that replace those of a kind, for a double that lies.
    """
    made: list[Tool[..., Any]] = [plan_tool(strict=False)]
    for name, kind in KINDS.items():
        if name == "plan":
            continue
        said: dict[str, Any] = {} if kind.effect is None else {"effect": kind.effect}
        if kind.idempotent:
            said["idempotent"] = True
        if kind.timeout is not None:
            said["timeout"] = kind.timeout
        if name == "free" or kind.effect is Effect.PURE or name == "bad":
            said["claims"] = []
        elif kind.file:
            said["claims"] = [f"{kind.file} file:{{path}}"]
        elif kind.lane in ("bank", "mail"):
            said["claims"] = [f"lane:{kind.lane}"]
        # What names no lane has one of its own: lane:tool/<name>.
        if name in ("flaky", "retry"):
            said["retries"] = 3
        if name == "ask":
            said["approval"] = True
        said.update(otherwise.get(name, {}))
        made.append(Tool.of(_function(name), name=name, **said))
    return made


def _function(name: str) -> Callable[..., Any]:
    if name in NESTING:
        return nesting_in_a_thread(name) if KINDS[name].sync else nesting(name)
    return blocking(name) if KINDS[name].sync else body(name)
