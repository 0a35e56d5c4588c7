"""`laneway replay`: a run fact by fact, forward and back, and as it stood at any moment.

Reads a journal and drives nothing; a damaged run is shown up to the damage.
"""

import gc
import os
import shutil
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from laneway.engine.cli.commands.replay_keys import Stepper, keys_of, step_through
from laneway.engine.cli.commands.replay_lines import fact_line, moment_lines
from laneway.engine.cli.commands.replay_moment import shown_moment
from laneway.engine.cli.commands.replay_point import Filter, chosen, point
from laneway.engine.cli.commands.replay_shown import ShownFact, ShownReplay, shown_fact
from laneway.engine.cli.journals import journal_path, read_run
from laneway.engine.cli.options import Journal, Json, RunName
from laneway.engine.cli.terminal import Terminal
from laneway.errors import DamagedJournalError, UnknownRunError, UsageError
from laneway.journal.replay import Replay
from laneway.states import State


def replay_(  # noqa: PLR0913, PLR0917 - typer makes an option of each parameter
    run: RunName,
    journal: Journal = None,
    at: Annotated[
        str,
        typer.Option(
            metavar="MOMENT",
            help="Show the run as it stood then: after fact SEQ, at 2026-01-31T12:00:00, at "
            "12:00:00 on its first day, or +12.5s after its first fact.",
        ),
    ] = "",
    step: Annotated[
        bool, typer.Option("--step", help="Step through it with keys, from --at or its beginning.")
    ] = False,
    call: Annotated[
        str, typer.Option(help="Only facts of this call, by Laneway's name or the provider's.")
    ] = "",
    lane: Annotated[
        str, typer.Option(help="Only facts of calls that touch this lane or resource.")
    ] = "",
    state: Annotated[
        State | None,
        typer.Option(case_sensitive=False, help="Only facts that bring a call into this state."),
    ] = None,
    kind: Annotated[
        list[str] | None, typer.Option(help="Only facts of this kind; repeatable.")
    ] = None,
    execute: Annotated[
        bool,
        typer.Option(
            "--execute",
            help="Run the scheduler again over the recorded turns, with recorded results and no "
            "tool touched, and show the first decision that differs.",
        ),
    ] = False,
    tools: Annotated[
        str, typer.Option(help="With --execute: module or module:attribute; else as recorded.")
    ] = "",
    policy: Annotated[
        Path | None, typer.Option(help="With --execute: other rules than the recorded verdicts.")
    ] = None,
    mode: Annotated[str, typer.Option(help="With --execute: another mode.")] = "",
    lanes: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=N", help="With --execute: another limit; repeatable."),
    ] = None,
    workspace: Annotated[
        Path | None,
        typer.Option(help="With --execute: the folder that relative file names start from."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="With --execute: go on behind a divergence.")
    ] = False,
    json: Json = False,
) -> None:
    """Go through the facts of a run, a line each, or see how all stood at a moment.

    Exit code 1: the run is damaged, and was shown up to there; or a decision differs.
    """
    terminal = Terminal(json=json)
    others = bool(tools or policy or mode or lanes or workspace or every)
    looking = bool(at or step or call or lane or state or kind)
    if others and not execute:
        raise UsageError(
            "--tools, --policy, --mode, --lanes, --workspace and --all belong to --execute"
        )
    if execute:
        if looking:
            raise UsageError("--execute goes over all of a run; leave --at, --call, --lane, … out")
        from laneway.engine.cli.commands.reexecute import (  # noqa: PLC0415 - a whole engine
            reexecuted,
            tell,
        )

        found = reexecuted(
            journal_path(journal),
            run,
            tools=tools,
            policy=policy,
            mode=mode,
            lanes=lanes or (),
            workspace=workspace,
            every=every,
        )
        raise typer.Exit(tell(terminal, found))
    if step and (json or not (sys.stdin.isatty() and sys.stdout.isatty())):
        raise UsageError("--step needs a terminal to read keys from, and shows nothing as JSON")
    with _uncollected():
        replay = replayed(journal_path(journal), run)
        folder = _workspace(replay)
        wanted = chosen(
            replay,
            call=call,
            lane=lane,
            state=state,
            kinds=kind or (),
            workspace=folder or os.curdir,
        )
        if step:
            _step(terminal, replay, wanted, folder, point(at, replay) if at else 1)
        elif at:
            _moment(terminal, replay, wanted, folder, at)
        else:
            _list(terminal, replay, wanted, folder)
    raise typer.Exit(1 if replay.damage else 0)


def replayed(path: Path, run: str) -> Replay:
    """Read a run as far as it is whole.

    Raises:
        UnknownRunError: there is no such run.
        DamagedJournalError: not even its first fact can be read.
        JournalError: the journal is not there, foreign, newer, or cannot be read.
    """
    damage: DamagedJournalError | None = None
    try:
        rows = read_run(path, run)
    except DamagedJournalError as error:
        rows, damage = error.whole, error
    replay = Replay(run, rows, damage)
    if not replay.rows:
        raise replay.damage or UnknownRunError(run, [])
    return replay


def _moment(terminal: Terminal, replay: Replay, wanted: Filter, folder: str, at: str) -> None:
    if not wanted.empty:
        raise UsageError("--at shows all of a moment; leave --call, --lane, … out, or --at")
    moment = shown_moment(replay, point(at, replay), folder=folder)
    terminal.say_all(moment_lines(moment, folder))
    terminal.give(moment)


def _list(terminal: Terminal, replay: Replay, wanted: Filter, folder: str) -> None:
    shown = tuple(_facts(replay, wanted, folder))
    first = replay.rows[0].wall
    lines = (fact_line(fact, first) for fact in shown)
    if sys.stdout.isatty():
        terminal.say_all(lines)
    else:  # Nobody waits for the first line, and the terminal takes its time with each.
        while told := list(islice(lines, 1_000)):
            terminal.say("\n".join(told))
    if not shown:
        terminal.say("no fact fits")
    damage = "" if replay.damage is None else str(replay.damage)
    if damage:
        terminal.say(f"! damaged: {damage}")
    terminal.give(ShownReplay(run=replay.run, facts=len(replay.rows), damage=damage, shown=shown))


def _facts(replay: Replay, wanted: Filter, folder: str) -> Iterator[ShownFact]:
    for step, view in replay.steps():
        if wanted.fits(step, view):
            yield shown_fact(step, view, folder)


def _step(terminal: Terminal, replay: Replay, wanted: Filter, folder: str, seq: int) -> None:
    seqs = [step.row.seq for step, view in replay.steps() if wanted.fits(step, view)]
    if not seqs:
        raise UsageError("no fact fits")
    stepper = Stepper(seqs, seq)

    def draw() -> None:
        moment = shown_moment(replay, stepper.seq, all_calls=False, folder=folder)
        lines = list(moment_lines(moment, folder))
        room = max(shutil.get_terminal_size().lines - 3, 3)
        print(CLEAR, end="")
        terminal.say_all(islice(lines, room))
        if len(lines) > room:
            terminal.say(f"… and {len(lines) - room} lines more: --at {stepper.seq}")
        print(stepper.prompt, end="", flush=True)

    with suppress(KeyboardInterrupt), keys_of(sys.stdin.fileno()) as keys:
        step_through(stepper, keys, draw)
    print()


@contextmanager
def _uncollected() -> Generator[None]:
    """Keep the garbage collector away: a long run makes it look at each call again and again.

    It takes half the time, and nothing here needs it.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


CLEAR = "\x1b[H\x1b[2J"
"""Cursor home, erase all (ECMA-48)."""


def _workspace(replay: Replay) -> str:
    """The folder that the run works in, if its settings name one; else empty."""
    match replay.at(len(replay.rows)).settings:
        case {"workspace": str(folder)}:
            return folder
        case _:
            return ""
