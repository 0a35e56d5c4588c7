"""`laneway why RUN [CALL]`: why it ran, waited, stopped; from facts alone, driven or not."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from laneway.engine.answers import why as why_call
from laneway.engine.cli.because import call_lines
from laneway.engine.cli.journals import journal_path, list_runs, read_whole
from laneway.engine.cli.leased import leased_runs
from laneway.engine.cli.options import Journal, Json, RunName
from laneway.engine.cli.stands import Driven, run_lines
from laneway.engine.cli.terminal import Terminal
from laneway.errors import DamagedJournalError
from laneway.ids import RunId
from laneway.journal.accounts import why_run
from laneway.journal.export.escaping import visible
from laneway.journal.lease import describe, owner_in_the_way
from laneway.journal.sqlite import SqliteStore
from laneway.journal.timeline import Course, Timeline, timeline
from laneway.states import State

CallName = Annotated[
    str, typer.Argument(metavar="[CALL]", help="A call, as t1.2 or by the provider's id.")
]


def why(run: RunName, call: CallName = "", journal: Journal = None, json: Json = False) -> None:
    """Say why a call ran, waited and ended; or what a run did, and where it stands.

    Of a damaged run what is whole is told of, with exit code 1.
    """
    terminal = Terminal(json=json)
    file = journal_path(journal)
    rows, damage = read_whole(file, run)
    course_of = timeline(RunId(run), rows)
    if call:
        answer = why_call(course_of, call)
        others = _beside(file, course_of, course_of.courses[answer.call])
        if others:
            answer = why_call(course_of, call, others)
        terminal.say_all(map(visible, call_lines(answer)))
        terminal.give(answer)
    else:
        told = why_run(course_of)
        driven = _driven(file, run)
        terminal.say_all(map(visible, run_lines(told, driven)))
        terminal.give({**msgspec.to_builtins(told), "driven": driven})
    if damage is not None:
        terminal.note(str(damage))
        raise typer.Exit(1)


def _driven(file: Path, run: str) -> Driven:
    """Find out who drives a run now."""
    try:
        lease = next((one for one in leased_runs(file, run) if one.run == run), None)
    except DamagedJournalError as error:  # Of another run: this one has been read.
        return Driven(driver=None, told=f"cannot be told: {error}", alive=False)
    if lease is None:
        return Driven(driver=None, told="nobody drives it now", alive=False)
    owner = owner_in_the_way(lease.driver, silent_seconds=lease.silent_seconds)
    if owner is None:
        told = f"{describe(lease.driver)}, which is gone"
        return Driven(driver=lease.driver, told=told, alive=False)
    return Driven(driver=lease.driver, told=owner, alive=True)


def _beside(file: Path, mine: Timeline, course: Course) -> list[Timeline]:
    """Read the runs that can have shared lanes with a call while it was queued.

    A run that was touched last before that can still have held a lane, in a body that has not
    ended since; then it has a driver.
    """
    queued = [one for one in course.periods if one.state is State.QUEUED]
    if not queued:
        return []
    began = min(one.began.at for one in queued)
    over = max(inf if one.ended is None else one.ended.at for one in queued)
    names = {
        entry.run
        for entry in list_runs(file)
        if entry.opened_wall <= over and entry.touched_wall >= began
    }
    found = {one.view.run: one for one in asyncio.run(_read(file, names - {mine.view.run}))}
    with suppress(DamagedJournalError):
        for lease in leased_runs(file):
            if lease.run not in names:
                found[lease.run] = timeline(lease.run, lease.rows)
    return [one for name, one in found.items() if name != mine.view.run]


async def _read(file: Path, runs: Iterable[RunId]) -> list[Timeline]:
    found: list[Timeline] = []
    store = SqliteStore(file)
    await store.open()
    try:
        for run in sorted(runs):
            # Of a damaged run `laneway verify` tells; the question is about another.
            with suppress(DamagedJournalError):
                found.append(timeline(run, await store.read(run)))
    finally:
        await store.close()
    return found
