"""`laneway settle`: a human says what became of a call whose effect is unknown.

Takes the run up to write that down, and nothing else: no tool is needed, and nothing is started.
"""

import asyncio
import getpass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from laneway.engine.cli.journals import existing, journal_path, read_run
from laneway.engine.cli.options import Journal, Json, RunName
from laneway.engine.cli.terminal import Terminal
from laneway.engine.cli.wording import outcome_text
from laneway.engine.clock import LoopClock
from laneway.engine.leftovers import end_left, is_over, taken_up
from laneway.engine.plain import whole_text
from laneway.engine.settling import UNSAID, finding, settlement
from laneway.errors import UsageError
from laneway.facts import CallReopened, CallSettled, Row
from laneway.ids import CallId, RunId
from laneway.journal import writer
from laneway.journal.fold import fold
from laneway.journal.lease import this_driver
from laneway.journal.sqlite import SqliteStore
from laneway.outcomes import Outcome


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """What was written down."""

    run: str
    call: str
    """Laneway's own name."""
    tool: str
    state: str
    """What the call is now."""
    outcome: Outcome | None
    """What it came to; None if it is to run again."""
    by: str
    ended: tuple[RunId, ...]
    """Runs within the call that a crash had left open, and that were ended with it."""


def settle(
    run: RunName,
    call: Annotated[
        str, typer.Argument(metavar="CALL", help="Laneway's name of it (t1.2), or the model's id.")
    ],
    value: Annotated[
        str | None, typer.Option(metavar="JSON", help="It happened, with this result.")
    ] = None,
    failure: Annotated[
        str, typer.Option(metavar="TEXT", help="It went wrong, and this is what went wrong.")
    ] = "",
    again: Annotated[
        bool, typer.Option("--again", help="It did nothing: run it again when the run is resumed.")
    ] = False,
    by: Annotated[str, typer.Option(metavar="NAME", help="Who says so; you, if left out.")] = "",
    journal: Journal = None,
    json: Json = False,
) -> None:
    """Say what became of a call whose effect is unknown; nothing is started.

    Say one of --value, --failure and --again. What waits for it goes on with `laneway resume`.
    """
    terminal = Terminal(json=json)
    given: Any = UNSAID if value is None else _read(value)
    found = finding(call, value=given, failure=failure, again=again)
    file = existing(journal_path(journal))
    read_run(file, run)  # Taking a run up would make one that is not there.
    settled = asyncio.run(write_down(file, RunId(run), call, found, whole_text(by) or _user()))
    told = "it did nothing, and runs again when the run is resumed"
    if settled.outcome is not None:
        told = outcome_text(settled.outcome)
    terminal.say(f"{settled.call} {settled.tool}  {settled.state}  {told}")
    for child in settled.ended:
        terminal.say(f"  {child} was open within it, and is ended")
    terminal.give(settled)


async def write_down(file: Path, run: RunId, name: str, found: Outcome | None, by: str) -> Settled:
    """Take a run up, write a settlement down, and leave it.

    Raises:
        RunOwnedError: another process drives the run.
        UnknownCallError: the run has no such call whose effect is unknown and not settled.
        UsageError: the call is to run again, and cannot.
        JournalError: the journal cannot be used.
    """
    clock = LoopClock()
    journal = writer.Journal(SqliteStore(file), clock)
    await journal.open()
    try:
        rows = await journal.take(run, this_driver())
        log = writer.RunLog(fold(run, rows), lambda _: None)
        journal.attach(log)
        try:
            view, facts = taken_up(run, rows)
            said = settlement(view, name, found, by)
            await journal.keep(log, [*facts, *said])
        finally:
            await journal.leave(log)
        for fact in said:
            view.apply(Row(run, view.seq + 1, 0.0, 0.0, fact))
        call = view.calls[_about(said)]
        ended = await end_left(journal, clock, call.children) if is_over(view, call) else []
    finally:
        await journal.close()
    return Settled(
        run=run,
        call=call.id,
        tool=call.record.tool,
        state=call.state,
        outcome=found,
        by=by,
        ended=tuple(ended),
    )


def _about(said: list[Any]) -> CallId:
    return next(fact.call for fact in said if isinstance(fact, CallSettled | CallReopened))


def _read(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise UsageError(
            f"--value {text}: this is no JSON ({error}); a text needs quotes: --value '\"paid\"'"
        ) from None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no name for this user id
        return ""
