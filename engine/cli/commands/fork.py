"""`laneway fork`: a new run that shares the past of another."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from laneway.engine.cli.journals import existing, journal_path
from laneway.engine.cli.options import Journal, Json, RunName
from laneway.engine.cli.terminal import Terminal
from laneway.journal.fork import Forked, fork
from laneway.journal.sqlite import SqliteStore


def fork_(
    run: RunName,
    new: Annotated[str, typer.Argument(metavar="NEW", help="The name of the new run.")],
    at: Annotated[
        int | None,
        typer.Option(metavar="SEQ", help="The last fact that both share; the last of all, if not."),
    ] = None,
    journal: Journal = None,
    json: Json = False,
) -> None:
    """Make a new run that begins with the facts of another, to go on from there in another way.

    The runs below its calls are copied with it. What was running there is for the new run what a
    crash leaves; open questions are asked of it as well. Nothing is run: go on with `laneway
    resume NEW`, or in the program that made RUN.
    """
    terminal = Terminal(json=json)
    forked = asyncio.run(_fork(existing(journal_path(journal)), run, new, at))
    terminal.say_all(forked_lines(forked))
    terminal.give(forked)


def forked_lines(forked: Forked) -> Iterator[str]:
    """Tell what a fork has made, and what to look out for."""
    yield f"run {forked.run} shares {forked.seq} facts with run {forked.source}"
    if forked.below:
        yield f"  copied with it: {', '.join(forked.below)}"
    if forked.running:
        yield f"  was running there, as after a crash: {', '.join(forked.running)}"
    if forked.repeated:
        yield (
            f"  ? will be entered again, under the same idempotency key: "
            f"{', '.join(forked.repeated)}"
        )
    if forked.approvals:
        yield f"  ? waits for a human in both: {', '.join(forked.approvals)}"


async def _fork(path: Path, run: str, new: str, at: int | None) -> Forked:
    store = SqliteStore(path)
    await store.open()
    try:
        return await fork(store, run, new, at=at)
    finally:
        await store.close()
