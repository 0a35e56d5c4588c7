"""Runs a plan from a file, whole or not at all; takes it up again after a crash.

Everything that can be wrong (the plan, the tools, the policy, the lanes) is found before the
journal is touched.
"""

import asyncio
import importlib
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn, cast

import msgspec

from laneway.engine.cli import journals
from laneway.engine.cli.answering import answered, whom_to_ask
from laneway.engine.cli.stores import ObservedStore
from laneway.engine.engine import Engine
from laneway.engine.foreseen import Preview
from laneway.engine.sealing import without_secrets
from laneway.engine.tools import Tool, load_tools
from laneway.errors import PayloadError, PlanError, UsageError
from laneway.facts import ApprovalAsked, Row
from laneway.journal.fold import RunView, fold
from laneway.journal.store import JournalStore
from laneway.outcomes import Failure

RESUME_WITH = "laneway.engine.cli.plans:carry_on"
RUNS_LEARNT_FROM = 20
_DIGITS = 9
"""Of a lane's limit; Python itself reads no number of more than some thousand."""
_SHOWN = 80


class PlanSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is run, and how; kept with the run, so that `laneway resume` can do it alike."""

    plan: dict[str, Any]
    """As it was read: a crash may come before it has been submitted."""
    tools: str
    """`module` or `module:attribute`."""
    folder: str
    """Where that module is looked for first."""
    workspace: str
    policy: str = ""
    lanes: dict[str, int] = {}
    yes: bool = False
    """Whatever a policy asks is granted."""
    mode: str = "build"


def settings_of(
    plan: Path,
    tools: str,
    policy: Path | None,
    mode: str,
    workspace: Path,
    lanes: Iterable[str],
    *,
    yes: bool = False,
) -> PlanSettings:
    """Read what was given on the command line.

    Raises:
        PayloadError: the plan cannot be read.
        UsageError: a folder or a lane's limit is none.
    """
    return PlanSettings(
        plan=read_plan(plan),
        tools=tools,
        folder=str(Path.cwd()),
        workspace=str(existing_folder(workspace)),
        policy=str(policy.resolve()) if policy else "",
        lanes=dict(map(lane_limit, lanes)),
        yes=yes,
        mode=mode,
    )


def read_plan(path: Path) -> dict[str, Any]:
    """Read a plan, or a model's answer, from a JSON file.

    Raises:
        PayloadError: it is not there, or no JSON object; names file, line and column.
    """
    try:
        plan: Any = json.loads(
            path.read_text(encoding="utf-8"),
            object_pairs_hook=_no_key_twice,
            parse_constant=_no_such_number,
        )
    except OSError as error:
        raise PayloadError(str(path), f"cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise PayloadError(str(path), f"is no UTF-8 text (byte {error.start})") from error
    except json.JSONDecodeError as error:
        where = f"{path}, line {error.lineno}, column {error.colno}"
        raise PayloadError(where, f"this is no JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise PayloadError(str(path), f"this JSON cannot be taken: {error}") from error
    if isinstance(plan, list):
        return dict[str, Any](calls=plan)
    if not isinstance(plan, dict):
        raise PayloadError(str(path), 'a plan is an object with calls: {"calls": […]}')
    return cast("dict[str, Any]", plan)


def existing_folder(folder: Path) -> Path:
    """The workspace that was given.

    Raises:
        UsageError: there is no such folder.
    """
    if not folder.is_dir():
        raise UsageError(f"--workspace {folder}: there is no such folder")
    return folder.resolve()


def lane_limit(text: str) -> tuple[str, int]:
    """Read `mail=2`.

    Raises:
        UsageError: it is something else.
    """
    name, _, count = text.rpartition("=")
    if not name or not count.isdecimal() or len(count) > _DIGITS:
        shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
        raise UsageError(f"--lanes {shown}: write NAME=N, for instance mail=2")
    return name, int(count)


async def check_plan(settings: PlanSettings) -> None:
    """Analyse a plan as the engine will, without a journal and without running anything.

    Raises:
        PlanError: it has faults; all are named.
        LanewayError: tools, policy or lanes cannot be used.
    """
    preview = await foresee(settings)
    faults = [
        f"{call.name} ({call.tool}): {call.outcome.message}"
        for call in preview.calls
        if isinstance(call.outcome, Failure)
    ]
    if faults:
        raise PlanError(faults)


async def foresee(settings: PlanSettings, learnt: Iterable[RunView] = ()) -> Preview:
    """Say what would become of a plan, without a journal and without running anything.

    Args:
        settings: as for a run of it.
        learnt: runs that tell how long calls take, the oldest first.

    Raises:
        LanewayError: the plan cannot be read; tools, policy or lanes cannot be used.
    """
    async with make_engine(settings, None) as engine:
        engine.services.policy.mode(settings.mode)
        for view in learnt:
            engine.durations.learn_from(view)
        return await engine.plan(settings.plan, mode=settings.mode)


def earlier_runs(given: Path | None) -> list[RunView]:
    """The last runs of a journal, the oldest first, to learn from how long calls take.

    Args:
        given: a journal's file; None for the one that would be written to, if there is one.

    Raises:
        JournalError: the journal cannot be read, or one that was given is not there.
    """
    path = journals.journal_path(given)
    if given is None and not (path.exists() and path.stat().st_size):
        return []
    names = [entry.run for entry in journals.list_runs(path)[:RUNS_LEARNT_FROM]]
    return [fold(name, journals.read_run(path, name)) for name in reversed(names)]


async def carry_on(journal: JournalStore, run: str, settings: Any) -> None:
    """Go on with an interrupted plan; `laneway resume` calls this.

    Raises:
        UsageError: the run's settings were not written by `laneway run`.
        ToolError: its tools cannot be imported any more.
    """
    try:
        kept = msgspec.convert(settings, PlanSettings)
    except msgspec.ValidationError as error:
        raise UsageError(f"run {run!r} was not made by `laneway run`: {error}") from error
    await run_plan(kept, run, journal)


async def run_plan(settings: PlanSettings, name: str, journal: JournalStore) -> None:
    """Run a plan that has been checked to its end, from wherever the journal ends."""
    news = asyncio.Event()
    observed = ObservedStore(
        journal,
        taken=lambda _run, _rows: None,
        kept=lambda batch: _note_questions(batch, news),
    )
    engine = make_engine(settings, observed)
    kept = msgspec.structs.replace(settings, plan=without_secrets(settings.plan, engine.tools))
    async with (
        engine,
        engine.run(
            name,
            mode=settings.mode,
            resume_with=RESUME_WITH,
            settings=msgspec.to_builtins(kept),
        ) as run,
        answered(run, news, whom_to_ask(yes=settings.yes)),
    ):
        if run.turns:
            await run.finish()
        else:
            await run.submit(settings.plan, strict=True)


def make_engine(settings: PlanSettings, journal: JournalStore | None) -> Engine:
    """Put the engine together that runs a plan.

    Raises:
        LanewayError: tools, policy or lanes cannot be used.
    """
    return Engine(
        named_tools(settings.tools, settings.folder),
        journal=journal,
        policy=settings.policy or None,
        lanes=settings.lanes,
        workspace=settings.workspace,
    )


def named_tools(name: str, folder: str) -> list[Tool]:
    """Import tools, as a program started in that folder would.

    Raises:
        ToolError: there are none of that name.
    """
    if folder not in sys.path:
        sys.path.insert(0, folder)
    importlib.invalidate_caches()
    return list(load_tools(name))


def _note_questions(batch: Sequence[Row], news: asyncio.Event) -> None:
    if any(isinstance(row.fact, ApprovalAsked) for row in batch):
        news.set()


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} stands twice in one object")
    return found


def _no_such_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")
