"""`laneway history check FILE`: would a provider take this conversation, and what to do if not."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from laneway.engine import history
from laneway.engine.cli.options import Json
from laneway.engine.cli.terminal import Terminal
from laneway.engine.kinds import is_object
from laneway.errors import HistoryError, UsageError

history_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Looks at conversations as they are sent to providers.",
)


@history_app.callback()
def named() -> None:
    """Keep `check` a command of its own, although it is the only one."""


@history_app.command()
def check(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="JSON: a list of messages, or a request with one. Or a message in each line, by "
            "itself or under `message`, as in transcripts.",
        ),
    ],
    format: Annotated[  # noqa: A002 - the option's name
        str, typer.Option(help=f"One of {', '.join(history.FORMATS)}; told from the messages.")
    ] = "",
    repair: Annotated[
        bool, typer.Option("--repair", help="Write a whole one to --output.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where; FILE itself if you say so.")
    ] = None,
    open_end: Annotated[
        bool, typer.Option("--open", help="The calls of the last message may be unanswered.")
    ] = False,
    json: Json = False,
) -> None:
    """Say for what a provider would refuse a history: calls without results, results without calls.

    Exit code 1: something was found, and not repaired; 2: it cannot be read; nothing is written.
    """
    if repair is (output is None):
        raise UsageError("give --repair and --output together: what is repaired is written there")
    terminal = Terminal(json=json)
    given = _read(file)
    found = history.check(given, format=format, open_end=open_end)
    for one in found:
        terminal.say(f"{one.place}  {one.told}: {one.way_out}")
    if output is not None:
        repaired = history.repair(given, format=format, open_end=open_end)
        output.write_bytes(msgspec.json.format(msgspec.json.encode(repaired), indent=2) + b"\n")
    terminal.say(_ending(len(found), output))
    terminal.give({"faults": found, "repaired": None if output is None else str(output)})
    if found and output is None:
        raise typer.Exit(1)


def _ending(count: int, output: Path | None) -> str:
    if not count:
        return "whole" if output is None else f"whole; written to {output}"
    faults = f"{count} fault{'s' if count > 1 else ''}"
    if output is None:
        return f"{faults}; mend with --repair -o FILE"
    return f"{faults} mended; written to {output}"


def _read(file: Path) -> Any:
    try:
        text = file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) <= 1:
            raise HistoryError(str(file), f"it is no JSON ({error})") from None
    return [message for at, line in enumerate(lines) for message in _line(file, at + 1, line)]


def _line(file: Path, number: int, line: bytes) -> list[Any]:
    try:
        read = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise HistoryError(f"{file}:{number}", f"it is no JSON ({error})") from None
    if not is_object(read) or "role" in read or ("type" in read and "uuid" not in read):
        return [read]
    return [read["message"]] if is_object(read.get("message")) else []
