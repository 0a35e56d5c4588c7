"""Functions that do to their process what a tool must not: for tests of isolation.

They stand at the top of a module, so that another process finds them: `tool(crash,
isolation="process", …)`.
"""

import asyncio
import contextvars
import ctypes
import os
import signal
import stat
import struct
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

from laneway.engine.context import ToolContext
from laneway.engine.failing import PartialEffect, ToolFailed
from laneway.outcomes import Happened

carried: contextvars.ContextVar[str] = contextvars.ContextVar("carried", default="nothing")
"""What `tell_variable` reads."""


def echo(value: Any = None) -> Any:
    """Give back what it got."""
    return value


def tell_process() -> dict[str, Any]:
    """Say in which process it runs, and what that leads."""
    return {"pid": os.getpid(), "group": os.getpgrp(), "session": os.getsid(0)}


def tell_variable() -> str:
    """Read a context variable."""
    return carried.get()


async def wait(seconds: float = 0.0) -> str:
    """Await."""
    await asyncio.sleep(seconds)
    return "waited"


def hang() -> None:
    """Never come back, and hear of nothing that could be caught."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(60)


def spin() -> None:
    """Compute for ever."""
    while True:
        pass


def crash() -> None:
    """Read where nothing is."""
    ctypes.string_at(0)


def leave(code: int = 3) -> None:
    """End the process without a word."""
    os._exit(code)


def leave_politely(code: int = 3) -> None:
    """Raise SystemExit."""
    sys.exit(code)


def interrupt() -> None:
    """Raise KeyboardInterrupt."""
    raise KeyboardInterrupt


def give_up() -> None:
    """Raise CancelledError, unasked."""
    raise asyncio.CancelledError


def fail(text: str = "boom") -> None:
    """Raise."""
    raise ValueError(text)


def raise_local() -> None:
    """Raise what cannot be pickled."""

    class Awkward(Exception):
        pass

    raise Awkward("cannot travel")


def be_refused() -> None:
    """Raise what is known to have done nothing."""
    raise ConnectionRefusedError(111, "refused")


def know_better() -> None:
    """Raise what says that nothing was done."""
    raise ToolFailed("the door is locked", happened=Happened.NOTHING, hint="knock", retry=True)


def scribble(kind: int = 99, length: int = 5) -> None:
    """Write into every socket what nobody can read."""
    for number in range(3, 64):
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                os.write(number, struct.pack("!BQ", kind, length) + b"what?")
    time.sleep(60)


def tell_trace() -> str:
    """Say of which trace it is part."""
    from opentelemetry import trace  # noqa: PLC0415 - only where somebody traces

    return format(trace.get_current_span().get_span_context().trace_id, "032x")


def do_a_part() -> None:
    """Do a part of its work."""
    raise PartialEffect("two of three mails are out", done=["a", "b"], left=["c"])


def fill_memory() -> int:
    """Take more and more."""
    taken = [bytearray(1 << 24)]
    while True:
        taken.append(bytearray(1 << 24))


def flood(mebibytes: int = 50) -> str:
    """Write to standard output and error what nobody wants to read."""
    line = b"x" * (1 << 20)
    for stream in (1, 2):
        for _ in range(mebibytes // 2):
            os.write(stream, line)
    return "flooded"


def return_much(mebibytes: int = 100) -> str:
    """Return a large text."""
    return "x" * (mebibytes << 20)


def leave_children(seconds: float = 60.0) -> list[int]:
    """Start processes that outlive the call, by fork and as a program."""
    child = os.fork()
    if not child:
        time.sleep(seconds)
        os._exit(0)
    program = subprocess.Popen(["/bin/sleep", str(seconds)])  # noqa: S603 - our own
    return [child, program.pid]


def close_everything() -> str:
    """Close every file, the line to the engine among them."""
    os.closerange(0, 256)
    return "closed"


def report(context: ToolContext, times: int = 3, pause: float = 0.0) -> int:
    """Report progress, then return."""
    for at in range(times):
        context.progress(f"{at + 1} of {times}")
        time.sleep(pause)
    return times


def fall_silent(context: ToolContext) -> None:
    """Report once, then never again."""
    context.progress("about to begin")
    time.sleep(60)


def obey(context: ToolContext) -> None:
    """Work until told to stop, then tidy up and go."""
    while not context.cancelled:
        time.sleep(0.005)
    raise PartialEffect("stopped in the middle", done=["half"])
