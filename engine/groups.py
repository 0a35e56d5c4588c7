"""Process groups, as the kernel shows them: who of them lives, and an end to all of them.

Reads /proc; where there is none (macOS), a group is known by its number alone, and one that an
earlier process left is not looked for. Everything here is quick, but for `end`, which blocks.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from laneway.facts import Driver
from laneway.journal.lease import this_driver

MARK = "LANEWAY_CALL"
"""The environment variable by which the processes of a call are known, as `run/t1.2`."""
TERM_SECONDS = 0.5
"""Between SIGTERM and SIGKILL for what an earlier driver left."""
KILL_SECONDS = 1.0
"""How long what was killed may take to be gone."""
_ROUNDS = 3
"""Looks for processes that were started while others were sent a signal."""

_PROC = Path("/proc")
_DEAD = frozenset("ZX")
_FIRST_NAMESPACE = "pid:[4026531836]"
"""Of the host itself, in which every process can be seen: PROC_PID_INIT_INO of the kernel."""


class Group(msgspec.Struct, frozen=True):
    """A process group, told apart from any other of the same number, past or present."""

    number: int
    """The pid of its leader, in the leader's own namespace."""
    started: str
    """The start time of its leader."""
    driver: Driver
    """The process that started it."""
    mark: str
    """Of the call that it belongs to."""


class _Process(NamedTuple):
    pid: int
    state: str
    group: int
    session: int
    started: str


def start_of(pid: int) -> str:
    """The start time of a process as the kernel counts it; empty where that cannot be seen."""
    found = _look_up(pid)
    return found.started if found else ""


def signal_group(number: int, which: signal.Signals, *, started: str = "") -> None:
    """Send a signal to a whole group of this process's making; one that is empty has ended.

    Groups that a shell's job control has made in the session of the leader are part of it.

    Args:
        number: the pid of its leader.
        which: the signal.
        started: when the leader started, if that is known: another process that has its pid now
            is left alone.
    """
    if number <= 1 or number == os.getpgrp():
        return
    leader = _look_up(number)
    if started and leader is not None and leader.started != started:
        return
    with suppress(ProcessLookupError, PermissionError):  # macOS: the latter of zombies
        os.killpg(number, which)
    told: set[int] = set()
    for _ in range(_ROUNDS):
        found = {one.pid for one in _in_session(number) if one.group != number} - told
        _send(Found(tuple(found)), which)
        told |= found
        if not found:
            break


def has_ended(number: int) -> bool:
    """Whether nobody of a group lives any more, nor of the session that its leader leads."""
    try:
        os.killpg(number, 0)
    except ProcessLookupError:
        return not any(_in_session(number))
    except PermissionError:
        if not _PROC.joinpath("self").exists():
            return True  # macOS says so of a group of zombies
    # What is there may be dead, and only not reaped by its parent.
    alive = (one for one in _processes() if one.state not in _DEAD)
    return all(number not in (one.group, one.session) for one in alive)


def _in_session(number: int) -> Iterator[_Process]:
    """The living of a session. Asking the kernel is quicker than reading of each process."""
    for pid in _pids():
        with suppress(ProcessLookupError, PermissionError):
            if os.getsid(pid) != number:
                continue
        found = _look_up(pid)
        if found is not None and found.session == number and found.state not in _DEAD:
            yield found


class Found(NamedTuple):
    """What lives of a group that somebody else started."""

    pids: tuple[int, ...] = ()
    """Its processes, those of other groups of its session included."""
    out_of_reach: bool = False
    """There may be some that cannot be seen, or must not be touched as they may be others'."""

    @property
    def gone(self) -> bool:
        """Whether all of it has ended."""
        return not self.pids and not self.out_of_reach


def look(group: Group) -> Found:
    """Find what is left of a group; of another host, or from before a restart, nothing is."""
    here = this_driver()
    if not here.boot or group.driver.boot != here.boot or group.number == os.getpgrp():
        return Found()
    if group.driver.namespace != here.namespace:
        return _look_into_namespace(group, here)
    found = [one for one in _processes() if group.number in (one.group, one.session, one.pid)]
    leader = next((one for one in found if one.pid == group.number), None)
    if leader is not None and leader.started != group.started:
        return Found()  # The number has been given to another.
    alive = tuple(one.pid for one in found if one.state not in _DEAD)
    if leader is None and alive and not any(_is_marked(pid, group.mark) for pid in alive):
        return Found(out_of_reach=True)
    return Found(alive)


def end(groups: list[Group]) -> list[Group]:
    """End what other processes started: SIGTERM, then SIGKILL. Blocks for up to 1.5 s.

    Returns:
        The groups that are still there, or may be.
    """
    left = groups
    for which, seconds in ((signal.SIGTERM, TERM_SECONDS), (signal.SIGKILL, KILL_SECONDS)):
        give_up = time.monotonic() + seconds
        for group in left:
            _send(look(group), which)
        # One that is about to die shows no mark any more: what is out of reach may be gone soon.
        while left := [group for group in left if not look(group).gone]:
            if time.monotonic() >= give_up:
                break
            time.sleep(0.01)
    return left


def _send(found: Found, which: signal.Signals) -> None:
    for pid in found.pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, which)


def _look_into_namespace(group: Group, here: Driver) -> Found:
    """Find a group of a container, by the numbers it has there: NSpgid, proc_pid_status(5)."""
    inside = [one for one in _processes() if _namespace(one.pid) == group.driver.namespace]
    if not inside:
        return Found(out_of_reach=here.namespace != _FIRST_NAMESPACE)
    return Found(
        tuple(
            one.pid
            for one in inside
            if one.state not in _DEAD and group.number in _numbers_inside(one.pid)
        )
    )


def _numbers_inside(pid: int) -> set[int]:
    """Group and session of a process as its own namespace counts them."""
    lines = [line.split() for line in _read(pid, "status").splitlines()]
    return {int(line[-1]) for line in lines if line and line[0] in ("NSpgid:", "NSsid:")}


def _is_marked(pid: int, mark: str) -> bool:
    return f"{MARK}={mark}" in _read(pid, "environ").split("\0")


def _namespace(pid: int) -> str:
    try:
        return str((_PROC / str(pid) / "ns" / "pid").readlink())
    except OSError:
        return ""


def _processes() -> Iterator[_Process]:
    for pid in _pids():
        found = _look_up(pid)
        if found is not None:
            yield found


def _pids() -> list[int]:
    try:
        names = os.listdir(_PROC)  # noqa: PTH208 - names, hundreds of them
    except OSError:
        return []
    return [int(name) for name in names if name.isdecimal()]


def _look_up(pid: int) -> _Process | None:
    """Read state, group, session and start time: fields 3, 5, 6 and 22 of proc_pid_stat(5)."""
    # Field 2, the command's name in brackets, may itself hold brackets and blanks.
    fields = _read(pid, "stat").rpartition(")")[2].split()
    if not fields:
        return None
    return _Process(pid, fields[0], int(fields[2]), int(fields[3]), fields[22 - 3])


def _read(pid: int, file: str) -> str:
    try:
        return (_PROC / str(pid) / file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
