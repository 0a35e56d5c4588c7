"""The process under the shim: reads jobs from its input, a line each, and forks their lives.

`python -m tests.power.player`, as recording.py starts it. It answers with how lives ended that
should not have.
"""

import ctypes
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable
from functools import partial

import msgspec

from tests.power.lives import Job, live

MOST_SECONDS = 60
"""A life that takes longer hangs, and is ended."""


def main() -> None:
    """Play every job that comes."""
    # A life is forked from a process in which no import is under way.
    importlib.import_module("networkx")
    for line in sys.stdin.buffer:
        job = msgspec.json.decode(line, type=Job)
        sys.stdout.buffer.write(msgspec.json.encode(_forked(partial(_play, job))) + b"\n")
        sys.stdout.buffer.flush()


def _play(job: Job) -> None:
    """Turn the shim to this job, and play its lives one after the other."""
    os.environ |= {"LANEWAY_POWER_ROOT": job.root, "LANEWAY_POWER_LOG": job.log}
    os.environ["LANEWAY_POWER_FAULT"] = job.fault
    if job.lies:
        os.environ["LANEWAY_POWER_LIES"] = "1"
    ctypes.CDLL(None).power_arm()
    for number in range(len(job.lives)):
        ended = _forked(partial(live, job, number))
        if ended and not (ended == "signal 9" and ":kill" in job.fault):
            raise RuntimeError(f"life {number}: {ended}")


def _forked(play: Callable[[], object]) -> str:
    """Let a child do it; say how it failed, or nothing."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reading)
        signal.alarm(MOST_SECONDS)
        try:
            play()
        except BaseException:  # noqa: BLE001 - whatever it is, the parent reports it
            os.write(writing, traceback.format_exc().encode()[-4000:])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(pid, 0)
    return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else said


if __name__ == "__main__":
    main()
