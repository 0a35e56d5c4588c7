"""Who drives a run, whether that process still lives, and how long it has been silent.

A lease names its driver so exactly that no other process, past or present, is taken for it. It
reads /proc where there is one; elsewhere less is known, and what is not known to be dead keeps
its lease until it has been silent for too long. Silence on one host is measured by the clock of
its boot, which nobody sets: a wall clock that jumps neither steals a lease nor keeps one.
"""

import os
import socket
import time
from functools import partial
from pathlib import Path

from laneway.facts import Driver

LEASE_SECONDS = 30.0
"""How long a driver may be silent that cannot be looked at, or is stopped, before its run is free.

A third of it passes between two signs of life."""

lease_clock = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    if hasattr(time, "CLOCK_BOOTTIME")
    else time.monotonic
)
"""Seconds, never backwards. Where the system has such a clock it goes on while the host sleeps."""

_PROC = Path("/proc")


def this_driver() -> Driver:
    """Describe the process that asks.

    Where /proc is missing, boot, start time and namespace are empty.
    """
    pid = os.getpid()
    found = _look_up(pid)
    return Driver(
        host=socket.gethostname(),
        boot=_boot(),
        pid=pid,
        started=found[1] if found else "",
        namespace=_namespace(),
    )


def is_dead(driver: Driver, /) -> bool | None:
    """Whether a driver is known to have ended (True), known to live (False), or neither (None).

    Known needs the same boot and pid namespace, and then the pid and its start time, since pids
    are reused. A host that has been restarted since has no process of before.
    """
    boot = _boot()
    if driver.boot and boot and driver.boot != boot:
        return True if driver.host == socket.gethostname() else None
    if driver.boot != boot or driver.namespace != _namespace():
        return None
    if not boot and driver.host != socket.gethostname():
        return None
    return _is_gone(driver)


def owner_in_the_way(
    owner: Driver, /, *, silent_seconds: float, lease_seconds: float = LEASE_SECONDS
) -> str | None:
    """Describe the owner of a run if the run must be left to it, else return None.

    One that is dead has lost it. One that is alive and at work keeps it. One that is stopped, or
    cannot be looked at, loses it when it has been silent for longer than the lease.

    Args:
        owner: Who took the run and has not left it.
        silent_seconds: How long ago it last gave a sign of life; see `silence`.
        lease_seconds: How long the silence of such an owner is tolerated.
    """
    dead = is_dead(owner)
    if dead:
        return None
    if dead is None:
        how = "cannot be looked at from here"
    elif owner == this_driver():
        return describe_here(owner)
    elif _is_stopped(owner):
        how = "is stopped"
    else:
        return f"{describe(owner)}, which is alive; it keeps the run until it leaves it or ends"
    if silent_seconds > lease_seconds:
        return None
    return (
        f"{describe(owner)}, which {how}; last heard of {silent_seconds:.0f} s ago, "
        f"it loses the run after {lease_seconds:.0f} s of silence"
    )


def pulse() -> float:
    """Seconds since this host was booted, its sleep included; 0 where no clock tells."""
    return lease_clock() if hasattr(time, "CLOCK_BOOTTIME") else 0.0


def silence(owner: Driver, /, *, beat: float, pulse: float) -> float:
    """How long ago an owner gave its last sign of life, in seconds.

    By the clock of the boot, if the owner is of the same; else by the two hosts' wall clocks.

    Args:
        owner: Who gave it.
        beat: When, in Unix seconds.
        pulse: When, in seconds since its host was booted; 0 if it did not know.
    """
    boot = _boot()
    if pulse and boot and owner.boot == boot:
        silent = lease_clock() - pulse
        if silent >= 0:  # else the two do not share the clock after all (time_namespaces(7))
            return silent
    return max(time.time() - beat, 0.0)


def describe(driver: Driver, /) -> str:
    """Name a driver for people: `process 4242 on host 'build-7'`."""
    return f"process {driver.pid} on host {driver.host!r}"


def describe_here(driver: Driver, /) -> str:
    """Name the process that asks, which has the run already."""
    return f"this very {describe(driver)}; leave the run there before it is taken again"


def _is_gone(driver: Driver) -> bool | None:
    if os.name != "posix":
        return None  # signal 0 is Ctrl-C elsewhere
    try:
        os.kill(driver.pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        pass
    found = _look_up(driver.pid)
    if found is None:
        return None  # no /proc, or one that hides other users' processes
    state, started = found
    return started != driver.started or state in {"Z", "X"}


def _is_stopped(driver: Driver) -> bool:
    """Whether it was stopped by a signal or a debugger, and cannot do anything."""
    found = _look_up(driver.pid)
    return found is not None and found[0] in {"T", "t"} and found[1] == driver.started


def _look_up(pid: int) -> tuple[str, str] | None:
    """Return state and start time of a process: fields 3 and 22 of proc_pid_stat(5)."""
    stat = _read(_PROC / str(pid) / "stat")
    # Field 2, the command's name in brackets, may itself hold brackets and blanks.
    after_name = stat.rpartition(")")[2].split()
    return (after_name[0], after_name[22 - 3]) if after_name else None


def _boot() -> str:
    return _read(_PROC / "sys" / "kernel" / "random" / "boot_id").strip()


def _namespace() -> str:
    try:
        return str((_PROC / "self" / "ns" / "pid").readlink())
    except OSError:
        return ""


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
