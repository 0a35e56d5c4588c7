"""A child process that ends with everything it has started, and with the process that started it.

It leads a session and a process group of its own. It does nothing before its start is written down:
it waits at a gate, and if nobody opens that, it goes. Whichever way the wait for it ends (it exits,
the call is cancelled, its time is over), the whole group is ended and waited for, so that a call
that has ended has really stopped, and its claims can be given to the next. What makes a session of
its own (a daemon) escapes.
"""

import asyncio
import errno
import os
import re
import shutil
import signal
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol

from laneway.engine.groups import MARK, has_ended, signal_group, start_of
from laneway.engine.output import Output

DRAIN_SECONDS = 1.0
"""How long the output may stay open after the group has ended: only a daemon holds it."""
LOOK_SECONDS = 0.1
"""At least so often it is looked whether a group has ended."""
GRACE_SECONDS = 0.5
"""Between SIGTERM and SIGKILL, where no engine says anything else."""

Announce = Callable[[int, str], Awaitable[None]]
"""Writes down a group and the start time of its leader; what it raises keeps the gate shut."""

# The first line of the input opens the gate, end of file closes it. Whoever lost its parent before
# the kernel was told to say so has another parent now, and goes, too: prctl(2), PR_SET_PDEATHSIG.
_GATE = 'read -r go && [ "$PPID" = "$0" ] || exit 125; exec "$@"'
_SHELL_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
"""Of a variable that every shell passes on."""


class Ended(NamedTuple):
    """How a process ended."""

    code: int
    """The exit code; negative for the signal that killed it."""
    output: Output
    """What it wrote, to standard output and standard error, in the order in which it did."""


async def run_process(
    command: str | Sequence[str],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    input: bytes | str | None = None,  # noqa: A002 - as subprocess calls it
    timeout_seconds: float | None = None,
    grace_seconds: float = GRACE_SECONDS,
    announce: Announce | None = None,
    mark: str = "",
) -> Ended:
    """Run a program to its end, and end what it leaves behind.

    Args:
        command: the program and its arguments; or a line for /bin/sh.
        cwd: the folder in which it runs; that of this process if None.
        env: its variables; those of this process if None. Names that no shell can have, as `a.b`,
            need bash: without it they may be missing.
        input: what it can read; nothing if None.
        timeout_seconds: how long it may take.
        grace_seconds: between SIGTERM and SIGKILL, when it is cancelled or has taken too long.
        announce: awaited before the program begins.
        mark: put into its environment, so that its processes are known again.

    Raises:
        OSError: it cannot be started.
        TimeoutError: it took too long; all of its group has ended.
        asyncio.CancelledError: the wait was cancelled; all of its group has ended. A second
            cancellation is SIGKILL at once, and a third one waits for nothing.
    """
    argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
    environment = dict(os.environ if env is None else env)
    see_that_starts(argv, cwd, environment)
    if mark:
        environment[MARK] = mark
    gate = _GATE if input is not None else f"{_GATE} </dev/null"
    async with _pipes() as pipes:
        process = await _start(_behind(gate, argv, environment), cwd, environment, pipes)
        started = start_of(process.pid)
        grace = grace_seconds
        limit = asyncio.timeout(timeout_seconds)
        try:
            async with limit:
                if announce is not None:
                    await announce(process.pid, started)
                pipes.open_gate(input)
                code = await process.wait()
                grace = 0.0
        except TimeoutError:
            if not limit.expired():
                raise
            raise TimeoutError(
                f"{argv[0]} was ended, as it took longer than {timeout_seconds:g} s"
            ) from None
        finally:
            pipes.shut_gate()
            await end_group(process, started, grace)
            await asyncio.wait([pipes.output.ended], timeout=DRAIN_SECONDS)
    return Ended(code, pipes.output)


class Leader(Protocol):
    """The process that leads a group."""

    @property
    def pid(self) -> int:
        """Its number, and that of the group."""
        ...

    @property
    def returncode(self) -> int | None:
        """How it ended; None while it lives."""
        ...


async def end_group(process: Leader, started: str, grace_seconds: float) -> None:
    """End a group and wait until nobody of it lives; see `run_process` on cancellations."""
    loop = asyncio.get_running_loop()
    give_up, pause, cancelled, killed = loop.time() + grace_seconds, 0.001, 0, False
    if grace_seconds:
        signal_group(process.pid, signal.SIGTERM, started=started)
    while True:
        if not killed and (cancelled or loop.time() >= give_up):
            killed = True
            signal_group(process.pid, signal.SIGKILL, started=started)
        if process.returncode is not None and has_ended(process.pid):
            break
        try:
            await asyncio.sleep(pause)
        except asyncio.CancelledError:
            cancelled += 1
            if cancelled > 1:
                raise
        pause = min(2 * pause, LOOK_SECONDS)
    if cancelled:
        raise asyncio.CancelledError


def see_that_starts(
    argv: Sequence[str], cwd: str | os.PathLike[str] | None, env: Mapping[str, str]
) -> None:
    """See that a program is there: what waits at the gate could not say so any more.

    Raises:
        FileNotFoundError: it is not.
        PermissionError: it cannot be executed.
    """
    if not argv:
        raise ValueError("a command needs a program; it is empty")
    name = argv[0]
    if os.sep not in name:
        folders = env.get("PATH", os.defpath).split(os.pathsep)
        beside = os.pathsep.join(os.path.join(cwd or ".", one) for one in folders)  # noqa: PTH118
        if shutil.which(name, path=beside) is None:
            raise FileNotFoundError(errno.ENOENT, "no such program in PATH", name)
        return
    path = Path(cwd or ".") / name
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, "no such program", name)
    if path.is_dir() or not os.access(path, os.X_OK):
        raise PermissionError(errno.EACCES, "it cannot be executed", name)


def _behind(gate: str, argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """A command that waits at the gate, and that the kernel kills if this process dies."""
    return [*dying_with_parent(), *_shell(env), gate, str(os.getpid()), *argv]


def _shell(env: Mapping[str, str]) -> tuple[str, ...]:
    """What reads the gate. dash drops variables of names like `a.b`; bash passes them on.

    With -p, bash takes nothing from them: no start-up file, no function in place of `read`.
    """
    bash = None if all(map(_SHELL_NAME.fullmatch, env)) else shutil.which("bash")
    return ("/bin/sh", "-c") if bash is None else (bash, "-pc")


@cache
def dying_with_parent() -> tuple[str, ...]:
    """What to put before a command on Linux. The thread that starts it is the parent meant.

    It is set in the child between two programs, not between fork and exec, where a process of
    several threads can do next to nothing safely: https://docs.python.org/3/library/subprocess.html
    (preexec_fn).
    """
    found = shutil.which("setpriv")
    command = (found or "", "--pdeathsig", "KILL", "--")
    if found is None or subprocess.run([*command, "true"], capture_output=True).returncode:  # noqa: S603, PLW1510
        return ()
    return command


class _Pipes(asyncio.BaseProtocol):
    """The two ends of a child that are here: its input, which is its gate too, and its output."""

    def __init__(self) -> None:
        self.output = Output()
        self._key: asyncio.WriteTransport | None = None
        self._drain: asyncio.ReadTransport | None = None
        self._ends = ExitStack()
        """Closes whichever ends are still open."""
        with ExitStack() as ends:
            child_input, key_end = os.pipe()
            self.child_input = ends.enter_context(os.fdopen(child_input, "rb", 0))
            self._key_end = ends.enter_context(os.fdopen(key_end, "wb", 0))
            output_end, child_output = os.pipe()
            self._output_end = ends.enter_context(os.fdopen(output_end, "rb", 0))
            self.child_output = ends.enter_context(os.fdopen(child_output, "wb", 0))
            self._ends = ends.pop_all()

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        self._drain, _ = await loop.connect_read_pipe(lambda: self.output, self._output_end)
        self._key, _ = await loop.connect_write_pipe(lambda: self, self._key_end)

    def open_gate(self, input: bytes | str | None) -> None:  # noqa: A002
        data = input.encode() if isinstance(input, str) else input or b""
        assert self._key is not None
        self._key.write(b"go\n" + data)
        self._key.close()  # once all is written

    def shut_gate(self) -> None:
        if self._key is not None:
            self._key.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._key = None

    def close_child_ends(self) -> None:
        self.child_input.close()
        self.child_output.close()

    def close(self) -> None:
        self.shut_gate()
        if self._drain is not None:
            self._drain.close()
        self._ends.close()


@asynccontextmanager
async def _pipes() -> AsyncGenerator[_Pipes]:
    pipes = _Pipes()
    try:
        await pipes.connect()
        yield pipes
    finally:
        pipes.close()


async def _start(
    argv: Sequence[str],
    cwd: str | os.PathLike[str] | None,
    env: Mapping[str, str],
    pipes: _Pipes,
) -> asyncio.subprocess.Process:
    """Start it, or leave nothing started."""
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *argv,
            stdin=pipes.child_input,
            stdout=pipes.child_output,
            stderr=pipes.child_output,
            cwd=cwd,
            env=env,
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # A cancelled start may have happened: it is waited for, so that its group can be ended.
        await asyncio.wait([starting])
        if not starting.cancelled() and starting.exception() is None:
            process = starting.result()
            signal_group(process.pid, signal.SIGKILL)
            await process.wait()  # Else its transport would outlive the loop.
        raise
    finally:
        pipes.close_child_ends()
