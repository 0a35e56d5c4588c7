"""`laneway verify`: whether a journal is whole, and what a human gives up where it is not."""

from typing import Annotated

import typer

from laneway.engine.cli.journals import existing, journal_path
from laneway.engine.cli.options import Journal, Json
from laneway.engine.cli.terminal import Terminal
from laneway.errors import UsageError
from laneway.journal.loss import accept_loss
from laneway.journal.verify import Anchor, Verified, verify


def verify_(
    run: Annotated[str, typer.Argument(metavar="[RUN]", help="Only this run.")] = "",
    journal: Journal = None,
    expect: Annotated[
        str,
        typer.Option(
            metavar="SEQ:HASH",
            help="How far the run had come when somebody looked before; tells a lost end.",
        ),
    ] = "",
    accept: Annotated[
        bool,
        typer.Option(
            "--accept-loss",
            help="Give up what is damaged of RUN and all behind it, so that it can go on.",
        ),
    ] = False,
    by: Annotated[str, typer.Option(help="Who gives it up.")] = "",
    json: Json = False,
) -> None:
    """Say whether a journal is whole: the file, the chain of each run, its large values.

    Prints how far each run has come, as SEQ:HASH; kept elsewhere, it tells later whether the end of
    the run was cut off, which nothing in the file can tell. Exit code 1: something is damaged.
    """
    terminal = Terminal(json=json)
    path = existing(journal_path(journal))
    if accept and not run:
        raise UsageError("--accept-loss is about one run: name it")
    lost = accept_loss(path, run, by=by) if accept else 0
    found = verify(path, run=run, expect=Anchor.read(expect) if expect else None)
    if accept:
        terminal.say(_given_up(run, lost) if lost else f"{run}: nothing to give up")
    _say(terminal, found)
    terminal.give(found)
    raise typer.Exit(0 if found.whole else 1)


def _given_up(run: str, lost: int) -> str:
    return (
        f"{run}: {lost} facts were given up, or more where none could be counted. Calls that only "
        "these told of may have had their effects, and nothing keeps them from being asked for "
        "again: what can still be read of them is in the table `lost`, or in the file put aside"
    )


def _say(terminal: Terminal, found: Verified) -> None:
    for fault in found.file:
        terminal.say(f"✗ {found.path}: {fault}")
    if found.file and all(run.whole for run in found.runs):
        terminal.say(
            "  every run is whole; `laneway backup FILE`, or `laneway vacuum`, may mend the file"
        )
    for run in found.runs:
        if run.whole:
            terminal.say(f"✓ {run.run}  {run.facts} facts, {run.anchor}")
            continue
        terminal.say(f"✗ {run.run}  {run.facts} whole facts, {run.anchor}")
        terminal.say(f"  {run.damage}")
        if run.lost:
            terminal.say(
                f"  {run.lost} facts are behind; to go on without them: "
                f"laneway verify {run.run} --accept-loss"
            )
