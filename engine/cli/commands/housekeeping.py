"""`laneway runs`, `compact`, `prune`, `vacuum`, `backup`: what a journal holds, and how long."""

import re
import time
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from laneway.engine.cli.journals import existing, journal_path, list_runs
from laneway.engine.cli.options import Journal, Json
from laneway.engine.cli.terminal import Terminal
from laneway.errors import UsageError
from laneway.journal import housekeeping
from laneway.journal.lease import describe, is_dead
from laneway.journal.migrate import is_older
from laneway.journal.overview import RunLine, count, lines

LISTED = 50
"""Runs that `laneway runs` lists unless told otherwise."""

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_STEP = 1024

Older = Annotated[
    str, typer.Option(metavar="TIME", help="Idle for so long: 90d, 12h, 30m, 45s or 2w.")
]


def runs(
    journal: Journal = None,
    limit: Annotated[
        int, typer.Option(min=0, help="How many, the last opened first; 0 for all.")
    ] = LISTED,
    json: Json = False,
) -> None:
    """List the runs of a journal: how each stands, its facts, size and age."""
    terminal = Terminal(json=json)
    path = existing(journal_path(journal)).absolute()
    if is_older(path):
        list_runs(path)  # Opens it, which brings it up to date.
    found = lines(path, latest=limit or None, sized=True)
    now = time.time()
    for line in found:
        terminal.say(_line(line, now))
    behind = count(path) - len(found) if limit and len(found) == limit else 0
    if behind > 0:
        terminal.say(f"… and {behind} more: laneway runs --limit 0")
    terminal.give(found)


def compact(
    journal: Journal = None,
    older_than: Older = "7d",
    json: Json = False,
) -> None:
    """Compress the finished runs that are older than that; they are shown and resumed as before."""
    terminal = Terminal(json=json)
    path = existing(journal_path(journal))
    old = housekeeping.old_runs(path, idle_seconds=seconds(older_than))
    done = housekeeping.compact(path, [one.run for one in old if not one.compacted])
    terminal.say(f"{_runs(done.runs)} compacted; the room is given back by: laneway vacuum")
    for fault in done.damaged:
        terminal.say(f"✗ {fault}")
    terminal.give(done)
    raise typer.Exit(1 if done.damaged else 0)


def prune(
    older_than: Older,
    journal: Journal = None,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Those with an open turn, too.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list what would be removed.")
    ] = False,
    json: Json = False,
) -> None:
    """Remove the finished runs that are older than that, for good.

    A run that somebody drives stays. What is below a run's calls goes with it.
    """
    terminal = Terminal(json=json)
    path = existing(journal_path(journal))
    idle, now = seconds(older_than), time.time()
    old = housekeeping.old_runs(path, idle_seconds=idle, unfinished=unfinished, now=now)
    if dry_run:
        for line in old:
            terminal.say(_line(line, now))
        terminal.say(f"{_runs(len(old))} would be removed")
    else:
        done = housekeeping.remove(path, [one.run for one in old], untouched_since=now - idle)
        terminal.say(f"{_runs(done)} removed; the room is given back by: laneway vacuum")
    terminal.give(old)


def vacuum(journal: Journal = None) -> None:
    """Give the room of what was removed or compacted back to the disk."""
    given = housekeeping.vacuum(existing(journal_path(journal)))
    Terminal(json=False).say(f"the journal is {size_text(max(given, 0))} smaller")


def backup(
    target: Annotated[Path, typer.Argument(metavar="FILE", help="A new file for the copy.")],
    journal: Journal = None,
) -> None:
    """Copy a journal, as it is at one moment, while it is worked on; large values included."""
    path = existing(journal_path(journal))
    housekeeping.back_up(path, target)
    Terminal(json=False).say(f"{path} copied to {target}")


def seconds(text: str) -> float:
    """Read a time such as `90d`.

    Raises:
        UsageError: it is none.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text.strip())
    if found is None:
        raise UsageError(f"{text!r} is no time; give a number and a unit: 45s, 30m, 12h, 90d, 2w")
    return float(found[1]) * _UNITS[found[2]]


def age_text(past: float) -> str:
    """Say how long ago something was, in one unit: `3d`."""
    for unit, length in reversed(_UNITS.items()):
        if past >= length and unit != "w":
            return f"{int(past // length)}{unit}"
    return "now"


def size_text(size: float) -> str:
    """Say a number of bytes: `4.2 MB`."""
    for unit in ("B", "KB", "MB"):
        if size < _STEP:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= _STEP
    return f"{size:.1f} GB"


def _line(line: RunLine, now: float) -> str:
    if not line.facts:
        return f"{line.run}  no facts: only just made, or damaged (see `laneway verify`)"
    parts = [
        line.run,
        _standing(line),
        f"{line.facts} facts",
        *([size_text(line.bytes)] if line.bytes is not None else []),
        f"opened {_clock(line.opened_wall)}",
        f"last fact {age_text(now - line.touched_wall)} ago",
    ]
    return "  ".join(parts)


def _clock(wall: float) -> str:
    try:
        return f"{datetime.fromtimestamp(wall).astimezone():%Y-%m-%d %H:%M:%S %z}"
    except (ValueError, OverflowError, OSError):  # a clock that was set to no year at all
        return f"{wall:.3f}"


def _standing(line: RunLine) -> str:
    if line.compacted:
        return "compacted"
    turn = "open turn" if line.open_turn else "at rest"
    if line.stopped:
        turn = f"{line.stopped}, {turn}" if line.open_turn else line.stopped
    if line.driver is None:
        return turn
    dead = is_dead(line.driver)
    left = "left by" if dead else "driven by"
    return f"{turn}, {left} {describe(line.driver)}{', which is dead' if dead else ''}"


def _runs(number: int) -> str:
    return f"{number} run{'' if number == 1 else 's'}"
