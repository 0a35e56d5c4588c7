"""Records what a process does to a journal's files: builds the shim, and plays lives under it.

A player is started once, with the shim in it; it forks a process for each life, so that a life
takes tens of milliseconds. Feeds the campaigns with recordings.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Self

import msgspec

from tests.power.lives import Job
from tests.power.operations import Kind, Operation, recorded

SOURCE = Path(__file__).with_name("shim.c")
CHECKOUT = Path(__file__).resolve().parent.parent.parent


def compiler() -> Sequence[str]:
    """Name the system's C compiler, or nothing if there is none; CC chooses another."""
    words = shlex.split(os.environ.get("CC", "cc"))
    return words if words and shutil.which(words[0]) else ()


def why_not() -> str:
    """Say why nothing can be recorded here; nothing if it can."""
    if sys.platform != "linux":
        return f"the shim is for Linux's LD_PRELOAD and /proc; this is {sys.platform}"
    if not compiler():
        return "there is no C compiler (cc, or what CC names) to build the shim with"
    return ""


def build(folder: Path) -> Path:
    """Build the shim in a scratch folder.

    Raises:
        RuntimeError: the compiler refuses it.
    """
    shim = folder / "shim.so"
    command = [*compiler(), "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-o", str(shim)]
    done = subprocess.run(
        [*command, str(SOURCE), "-ldl", "-lpthread"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"the shim could not be built:\n{done.stderr}")
    return shim


@contextmanager
def scratch() -> Generator[Path]:
    """Give a folder for a while; in memory where there is such a place, since all is synced."""
    memory = Path("/dev/shm")  # noqa: S108 - the folder made in it has a name of its own
    within = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="laneway-power-", dir=within) as folder:
        yield Path(folder).resolve()


class Recording(msgspec.Struct, frozen=True):
    """What was recorded of a job."""

    job: Job
    operations: Sequence[Operation]
    died: str
    """How lives ended that should not have; nothing if none did."""

    @property
    def is_seen(self) -> bool:
        """Whether the shim sees what SQLite does, which a static build may hide."""
        return any(one.kind is Kind.WROTE for one in self.operations)

    @property
    def checkpoints(self) -> int:
        """How often the file itself was synced while there was a write-ahead log."""
        there = False
        count = 0
        for one in self.operations:
            if one.name == "runs.db-wal":
                there = one.kind is not Kind.DELETED
            count += there and one.kind is Kind.SYNCED and one.name == "runs.db"
        return count


class Player:
    """A process with the shim in it, from which lives are forked."""

    def __init__(self, folder: Path, shim: Path) -> None:
        """Start with a shim that was built; recordings are made in a scratch folder."""
        self._folder = folder
        environment = {
            **os.environ,
            "LD_PRELOAD": str(shim),
            "PYTHONPATH": os.pathsep.join([str(CHECKOUT / "src"), str(CHECKOUT)]),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.power.player"],
            env=environment,
            cwd=CHECKOUT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> Self:
        """Play until left."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process."""
        with self._process:
            _pipe(self._process.stdin).close()

    def play(self, **what: object) -> Recording:
        """Play a job in a folder of its own; its files stay there until the next.

        Args:
            **what: The fields of `Job`, but for root and log.
        """
        root, log = self._folder / "root", self._folder / "log"
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        job = msgspec.convert({**what, "root": str(root), "log": str(log)}, Job)
        _pipe(self._process.stdin).write(msgspec.json.encode(job) + b"\n")
        _pipe(self._process.stdin).flush()
        answer = _pipe(self._process.stdout).readline()
        if not answer:
            raise RuntimeError("the player under the shim has died; what it said stands above")
        return Recording(job, recorded(log), msgspec.json.decode(answer, type=str))


def _pipe(end: IO[bytes] | None) -> IO[bytes]:
    assert end is not None
    return end
