"""`laneway export RUN --format …`: a run in the form of another program, to a file or on."""

import os
import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from laneway.engine.cli.journals import journal_path, read_whole
from laneway.engine.cli.options import Journal, RunName
from laneway.engine.cli.terminal import Terminal
from laneway.errors import UsageError
from laneway.facts import Row
from laneway.ids import RunId
from laneway.journal.export import chrome, jsonl, mermaid, otlp, spans
from laneway.journal.fold import fold
from laneway.journal.timeline import timeline


class ExportFormat(StrEnum):
    """What a run can be written as."""

    JSONL = "jsonl"
    """A fact a line."""
    MERMAID = "mermaid"
    """The graph of each turn."""
    CHROME = "chrome"
    """A trace for Perfetto."""
    OTEL = "otel"
    """OpenTelemetry spans, as one document of OTLP JSON."""


FormatName = Annotated[
    ExportFormat,
    typer.Option(
        "--format",
        help="jsonl: a fact a line; mermaid: the graph; chrome: a trace for ui.perfetto.dev; "
        "otel: spans as OTLP JSON.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="A file to write; standard output if not given."),
]
TurnNumber = Annotated[
    int | None, typer.Option("--turn", min=1, help="Of a Mermaid graph, only this turn.")
]


def export(
    run: RunName,
    form: FormatName = ExportFormat.JSONL,
    output: Output = None,
    turn: TurnNumber = None,
    journal: Journal = None,
) -> None:
    """Write a run for another program: its facts, its graph, its lanes over time, or its spans.

    Of a damaged run what is whole is written, with exit code 1.
    """
    if turn is not None and form is not ExportFormat.MERMAID:
        raise UsageError("--turn narrows a Mermaid graph; other formats hold the whole run")
    rows, damage = read_whole(journal_path(journal), run)
    pieces = _pieces(run, rows, form, turn)
    if output is None:
        _to_standard_output(pieces)
    else:
        try:
            with output.open("wb") as file:
                file.writelines(pieces)
        except OSError as error:
            raise UsageError(f"{output} cannot be written: {error.strerror}") from error
    if damage is not None:
        Terminal(json=True).note(str(damage))  # Beside what was written.
        raise typer.Exit(1)


def _pieces(run: str, rows: Iterable[Row], form: ExportFormat, turn: int | None) -> Iterator[bytes]:
    name = RunId(run)
    match form:
        case ExportFormat.JSONL:
            return jsonl.lines(rows)
        case ExportFormat.CHROME:
            return chrome.trace(timeline(name, rows))
        case ExportFormat.OTEL:
            return otlp.otlp_json(spans.spans(timeline(name, rows)))
        case ExportFormat.MERMAID:
            view = fold(name, rows)
            if turn is not None and turn > len(view.turns):
                raise UsageError(f"run {run!r} has no turn {turn}: it has {len(view.turns)}")
            return (f"{line}\n".encode() for line in mermaid.chart(view, turn))


def _to_standard_output(pieces: Iterable[bytes]) -> None:
    """Write bytes as they are; where nobody reads any more, stop."""
    out = sys.stdout.buffer
    try:
        for piece in pieces:
            out.write(piece)
        out.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
