"""`laneway report RUN`: the stop report of a run, driven or not, from its facts alone."""

import typer

from laneway.engine.cli.journals import journal_path, read_whole
from laneway.engine.cli.options import Journal, Json, RunName
from laneway.engine.cli.terminal import Terminal
from laneway.engine.reporting import report, report_lines
from laneway.ids import RunId
from laneway.journal.export.escaping import visible
from laneway.journal.fold import fold


def report_(run: RunName, journal: Journal = None, json: Json = False) -> None:
    """Tell why a run stopped: what is confirmed and what is not, what was used, how it goes on.

    Of a damaged run what is whole is told of, with exit code 1.
    """
    terminal = Terminal(json=json)
    rows, damage = read_whole(journal_path(journal), run)
    told = report(fold(RunId(run), rows))
    terminal.say_all(map(visible, report_lines(told)))
    terminal.give(told)
    if damage is not None:
        terminal.note(str(damage))
        raise typer.Exit(1)
