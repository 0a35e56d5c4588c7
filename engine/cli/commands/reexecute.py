"""`laneway replay --execute`: would today's code, this policy, these tools have decided the same?

Reads a journal and drives nothing; the tools' bodies are never entered.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from laneway.engine.cli.journals import read_run
from laneway.engine.cli.plans import existing_folder, lane_limit, named_tools
from laneway.engine.cli.terminal import Terminal
from laneway.engine.reexecution import Divergence, Reexecution, reexecute
from laneway.errors import LanewayError, UsageError
from laneway.facts import Row, RunOpened, RunTaken
from laneway.ids import RunId

_WITHIN = re.compile(r"(.+?)/t\d+\.\d+(?:/\d+)*/\d+(?:/.*)?")
"""The name of a run within a call; the run at the top comes first."""


class ShownReexecution(msgspec.Struct, frozen=True, kw_only=True):
    """A re-execution, as one JSON document."""

    run: RunId
    same: bool
    decisions: int
    earlier: int
    by_durations: bool
    priorities: dict[str, int]
    divergences: tuple[Divergence, ...]


def reexecuted(
    path: Path,
    run: str,
    *,
    tools: str = "",
    policy: Path | None = None,
    mode: str = "",
    lanes: Iterable[str] = (),
    workspace: Path | None = None,
    every: bool = False,
) -> Reexecution:
    """Re-execute a run of a journal.

    Args:
        path: the journal's file.
        run: the name of the run.
        tools: `module` or `module:attribute`; empty for tools as they are recorded.
        policy: a TOML file of rules; None for verdicts as they are recorded.
        mode: instead of the recorded one, if not empty.
        lanes: `NAME=N`; none for those that are recorded.
        workspace: None for the one that the run's settings name, else the current folder.
        every: go on behind a divergence.

    Raises:
        UnknownRunError: there is no such run.
        LanewayError: the journal, tools, policy or lanes cannot be used.
    """
    if mode and policy is None:
        raise UsageError(
            "--mode is judged by rules, and without --policy the recorded verdicts are taken: name "
            "the policy, too"
        )
    rows = read_run(path, run)
    limits = dict(map(lane_limit, lanes))
    folder = existing_folder(workspace) if workspace is not None else _workspace(rows[0])
    return asyncio.run(
        reexecute(
            rows,
            tools=named_tools(tools, str(Path.cwd())) if tools else (),
            policy=policy,
            mode=mode or None,
            lanes=limits or _lanes(path, run, rows),
            workspace=folder,
            all=every,
        )
    )


def tell(terminal: Terminal, found: Reexecution) -> int:
    """Show what was found, and give the exit code that says so."""
    sign = "✓" if found.same else "✗"
    terminal.say_all(f"{sign} {found}".splitlines())
    terminal.give(
        ShownReexecution(
            run=found.run,
            same=found.same,
            decisions=found.decisions,
            earlier=found.earlier,
            by_durations=found.by_durations,
            priorities=found.priorities,
            divergences=found.divergences,
        )
    )
    return 0 if found.same else 1


def _workspace(first: Row) -> Path:
    settings: Any = first.fact.settings if isinstance(first.fact, RunOpened) else None
    match settings:
        case {"workspace": str(folder)}:
            return Path(folder)
        case _:
            return Path()


def _lanes(path: Path, run: str, rows: Iterable[Row]) -> Mapping[str, int] | None:
    """The limits that a run within a call had: those of the run at the top. None for any other."""
    within = _WITHIN.fullmatch(run)
    if within is None or any(_limits(row) is not None for row in rows):
        return None
    try:
        above = read_run(path, within[1])
    except LanewayError:
        return None
    found = [limits for row in above if (limits := _limits(row)) is not None]
    return found[-1] if found else None


def _limits(row: Row) -> Mapping[str, int] | None:
    setting = row.fact.setting if isinstance(row.fact, RunOpened | RunTaken) else None
    return None if setting is None else setting.lanes
