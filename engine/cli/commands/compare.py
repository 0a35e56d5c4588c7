"""`laneway compare`: where two runs part, and what each cost."""

from pathlib import Path
from typing import Annotated

import typer

from laneway.engine.cli.journals import journal_path, read_run
from laneway.engine.cli.options import Journal, Json
from laneway.engine.cli.terminal import Terminal
from laneway.journal.compare import compare


def compare_(
    a: Annotated[str, typer.Argument(metavar="A", help="The name of a run.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The name of another.")],
    journal: Journal = None,
    journal_b: Annotated[
        Path | None, typer.Option(help="The journal of B, if it is another than that of A.")
    ] = None,
    json: Json = False,
) -> None:
    """Compare two runs: their first difference, the calls that came to something else, the costs.

    Times, drivers, tokens and the provider's ids of calls are left aside, and which of two calls
    beside each other came first. Exit code 1: they part.
    """
    terminal = Terminal(json=json)
    path = journal_path(journal)
    comparison = compare(read_run(path, a), read_run(journal_b or path, b))
    terminal.say_all(str(comparison).splitlines())
    terminal.give(comparison)
    raise typer.Exit(1 if comparison.parting else 0)
