"""Which journal the command line means, and what it reads from it without driving a run."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from laneway.errors import DamagedJournalError, JournalError, UnknownRunError, UsageError
from laneway.facts import Row
from laneway.ids import RunId
from laneway.journal.sqlite import SqliteStore
from laneway.journal.store import JournalStore, RunEntry

T = TypeVar("T")

VARIABLE = "LANEWAY_JOURNAL"
"""The environment variable that names the journal."""
DEFAULT = "laneway.db"
"""In the current folder, where nothing else is said."""


def journal_path(given: Path | None) -> Path:
    """The journal that is meant: as given, else by the environment, else `laneway.db` here."""
    return given or Path(os.environ.get(VARIABLE) or DEFAULT)


def existing(path: Path) -> Path:
    """Refuse a journal that is not there, so that reading never makes one.

    Raises:
        JournalError: there is no such file, or nothing was ever written to it.
    """
    if not path.exists():
        raise JournalError(
            f"there is no journal {path}; name one with --journal or {VARIABLE}, "
            "or make one with `laneway run`"
        )
    if path.is_file() and not path.stat().st_size:
        raise JournalError(f"journal {path} is an empty file: no run was ever written to it")
    return path


def read_run(path: Path, run: str) -> Sequence[Row]:
    """Read all facts of a run, which may go on meanwhile in another process.

    Raises:
        UnknownRunError: there is no such run.
        JournalError: the journal is not there, foreign, newer, or cannot be read.
    """

    async def read(store: JournalStore) -> Sequence[Row]:
        rows = await store.read(RunId(run))
        if not rows:
            raise UnknownRunError(run, [entry.run for entry in await store.runs()])
        return rows

    return asyncio.run(_opened(existing(path), read))


def read_whole(path: Path, run: str) -> tuple[Sequence[Row], DamagedJournalError | None]:
    """Read a run as far as it is whole, and say what is wrong behind that.

    Raises:
        UnknownRunError: there is no such run.
        DamagedJournalError: not even its first fact can be read.
        JournalError: as for `read_run`.
    """
    try:
        return read_run(path, run), None
    except DamagedJournalError as error:
        if not error.whole:
            raise
        return error.whole, error


def list_runs(path: Path) -> Sequence[RunEntry]:
    """List the runs, the last opened first.

    Raises:
        JournalError: as for `read_run`.
    """
    return asyncio.run(_opened(existing(path), SqliteStore.runs))


def refuse_known(path: Path, run: str) -> None:
    """Refuse the name of a run that the journal has already; a journal may be missing.

    Raises:
        UsageError: there is such a run.
        JournalError: as for `read_run`, but for a file that is not there.
    """
    if not path.exists() or (path.is_file() and not path.stat().st_size):
        return
    if any(entry.run == run for entry in list_runs(path)):
        raise UsageError(
            f"{path} has a run {run!r} already; choose another name with --run, "
            f"or go on with it: laneway resume {run}"
        )


async def _opened(path: Path, read: Callable[[SqliteStore], Awaitable[T]]) -> T:
    store = SqliteStore(path)
    await store.open()
    try:
        return await read(store)
    finally:
        await store.close()
