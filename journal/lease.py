"""Who drives a run, and whether that process still lives.

A lease names its driver so exactly that no other process, past or present, is taken for it. It
reads /proc where there is one; elsewhere less is known, and what is not known to be dead keeps
its lease until it has been silent for too long.
"""

import os
import socket
from pathlib import Path

from laneway.facts import Driver

LEASE_SECONDS = 30.0
"""How long a driver that cannot be looked at may be silent before its run is free."""

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

    Args:
        owner: Who took the run and has not left it.
        silent_seconds: How long ago it last gave a sign of life, by the wall clock.
        lease_seconds: How long the silence of an owner that cannot be looked at is tolerated.
    """
    dead = is_dead(owner)
    if dead or (dead is None and silent_seconds > lease_seconds):
        return None
    if dead is None:
        return (
            f"{describe(owner)}, which cannot be looked at from here; last heard of "
            f"{silent_seconds:.0f} s ago, it loses the run after {lease_seconds:.0f} s of silence"
        )
    if owner == this_driver():
        return describe_here(owner)
    return f"{describe(owner)}, which is alive"


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
