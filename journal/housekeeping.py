"""Keeps a journal small and safe: compacts and removes old runs, gives room back, makes copies.

Works on the file beside whoever drives runs in it, one short transaction for each run, and touches
no run that has a driver or an open turn unless it is told to.
"""

import shutil
import sqlite3
import time
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from math import inf
from pathlib import Path

import msgspec

from laneway.errors import DamagedJournalError, JournalError
from laneway.facts import Driver
from laneway.ids import RunId, is_own
from laneway.journal.archives import bodies, packed
from laneway.journal.codec import Chain, Kept
from laneway.journal.faults import FAULTS, fault
from laneway.journal.lease import is_dead
from laneway.journal.migrate import open_file
from laneway.journal.overview import RunLine, lines, read_driver, seconds
from laneway.journal.reading import looking_at
from laneway.journal.spill import Spilled, is_spilled, values_folder
from laneway.journal.statements import STATEMENTS

BUSY_SECONDS = 30.0
SETTLED_SECONDS = 3600.0
"""A value's file younger than this may belong to a fact that is only just being kept."""


def old_runs(
    path: Path, /, *, idle_seconds: float, unfinished: bool = False, now: float | None = None
) -> list[RunLine]:
    """Find the runs that nothing was written of for so long; the oldest first.

    A run below another's call (`fix-42/t1.2/1`) goes with that one, and is not listed.

    Args:
        path: of the journal.
        idle_seconds: since the last fact.
        unfinished: whether a run with an open turn counts; one with a living driver never does.
        now: Unix seconds, if not those of now.

    Raises:
        JournalError: the journal cannot be read.
    """
    limit = (time.time() if now is None else now) - idle_seconds
    found = lines(path)
    names = {one.run for one in found}
    return [
        one
        for one in reversed(found)
        if one.facts
        and one.touched_wall <= limit
        and not is_driven(one.driver)
        and (unfinished or not one.open_turn)
        and _above(one.run, names) is None
    ]


def is_driven(driver: Driver | None, /) -> bool:
    """Whether somebody may still write: a driver that is not known to be dead."""
    return driver is not None and is_dead(driver) is not True


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the runs that were to be compacted."""

    runs: int
    """Compacted now: not those that were before, or are driven."""
    damaged: tuple[str, ...] = ()
    """What is wrong with those that were left as they are."""


def compact(path: Path, runs: Iterable[RunId], /) -> Compacted:
    """Compress runs, and what is below their calls; they are read, shown and resumed as before.

    Raises:
        JournalError: the journal cannot be written.
    """
    done = 0
    damaged: list[str] = []
    with _working_on(path) as connection:
        for run in _with_children(connection, runs):
            try:
                done += _compacted(connection, path, run)
            except DamagedJournalError as error:
                damaged.append(str(error))
    return Compacted(runs=done, damaged=tuple(damaged))


def _compacted(connection: sqlite3.Connection, path: Path, run: RunId) -> bool:
    connection.execute("BEGIN IMMEDIATE")
    try:
        number = _number_of_free(connection, run)
        rows: list[Kept] = []
        if number is not None:
            rows = connection.execute(STATEMENTS["read"], {"run": run}).fetchall()
        if number is None or not rows:
            return False
        chain = Chain(run, values_folder(path.absolute()))
        for row in rows:
            chain.decode(row)
        connection.execute(
            "INSERT OR REPLACE INTO archives VALUES (?, ?, ?, ?, ?, ?)",
            (number, len(rows), rows[0][1], rows[-1][1], chain.link, packed(rows)),
        )
        connection.execute(
            "DELETE FROM facts WHERE place BETWEEN ? AND ?",
            (number << 32, number << 32 | 0xFFFFFFFF),
        )
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return True


def remove(path: Path, runs: Iterable[RunId], /, *, untouched_since: float = inf) -> int:
    """Remove runs for good, and what is below their calls, with the values that only they had.

    Args:
        path: of the journal.
        runs: which.
        untouched_since: Unix seconds; one of which something was written later stays after all.

    Returns:
        How many were removed: not those that are driven by now.

    Raises:
        JournalError: the journal cannot be written.
    """
    done = 0
    with _working_on(path) as connection:
        for run in _with_children(connection, runs):
            connection.execute("BEGIN IMMEDIATE")
            number = _number_of_free(connection, run)
            if number is not None and not _is_touched(connection, number, untouched_since):
                bounds = (number << 32, number << 32 | 0xFFFFFFFF)
                connection.execute("DELETE FROM facts WHERE place BETWEEN ? AND ?", bounds)
                connection.execute("DELETE FROM archives WHERE run = ?", (number,))
                connection.execute("DELETE FROM lost WHERE run = ?", (run,))
                connection.execute("DELETE FROM inbox WHERE run = ?", (number,))
                connection.execute("DELETE FROM runs WHERE id = ?", (number,))
                done += 1
            connection.execute("COMMIT")
        if done:
            _sweep(connection, values_folder(path.absolute()))
    return done


def vacuum(path: Path, /) -> int:
    """Give the room of removed rows back to the disk.

    Returns:
        How many bytes the file has become smaller.

    Raises:
        JournalError: the journal cannot be written, or somebody reads or writes all the time.
    """
    before = path.stat().st_size
    with _working_on(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return before - path.stat().st_size


def back_up(path: Path, target: Path, /) -> None:
    """Copy a journal with its large values, as it is at one moment, while it is worked on.

    The copy has no drivers: whoever opens it may take its runs up, and then does again what was
    unfinished, as after a crash.

    Args:
        path: of the journal.
        target: of the copy, which must not be there.

    Raises:
        JournalError: the journal cannot be read, or the copy cannot be written.
    """
    if not target.parent.is_dir():
        raise JournalError(f"there is no folder {target.parent} for the copy; create it first")
    if target.exists() or values_folder(target).exists():
        raise JournalError(f"{target} is there already; name a new file for the copy")
    coming = target.with_name(f"{target.name}.coming")
    coming.unlink(missing_ok=True)
    try:
        # Twice: whoever prunes meanwhile removes old values, that of a new fact is a new file.
        _copy_values(path, target)
        with looking_at(path) as connection, closing(sqlite3.connect(coming)) as copy:
            connection.execute("COMMIT")
            connection.backup(copy)
            copy.execute("UPDATE runs SET driver = NULL, token = token + 1")
            copy.commit()
            copy.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        _copy_values(path, target)
        coming.replace(target)
    except OSError as error:
        raise JournalError(f"the copy {target} could not be written ({error})") from error
    finally:
        coming.unlink(missing_ok=True)
        if not target.exists():
            shutil.rmtree(values_folder(target), ignore_errors=True)


def _copy_values(path: Path, target: Path) -> None:
    """Copy the values that are there and not copied yet; they never change."""
    source, copy = values_folder(path.absolute()), values_folder(target.absolute())
    for file in source.glob("*/[!.]*"):
        to = copy / file.parent.name / file.name
        if not to.exists():
            to.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # Somebody prunes.
                shutil.copy2(file, to)


class _working_on:  # noqa: N801 - read as a sentence
    """A connection to an existing journal, whose errors help."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    def __enter__(self) -> sqlite3.Connection:
        with looking_at(self._path):
            pass  # It is there, and ours: so none is created.
        self._connection = open_file(self._path, busy_seconds=BUSY_SECONDS, synchronous="FULL")
        return self._connection

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        assert self._connection is not None
        self._connection.close()
        if isinstance(error, (*FAULTS, OSError)):
            raise fault(self._path, "could not be tidied", error) from error


def _number_of_free(connection: sqlite3.Connection, run: RunId) -> int | None:
    """The number of a run that nobody drives; None for any other."""
    for number, driver in connection.execute("SELECT id, driver FROM runs WHERE name = ?", (run,)):
        if driver is None or not is_driven(read_driver(run, str(driver))):
            return int(number)
    return None


def _is_touched(connection: sqlite3.Connection, number: int, since: float) -> bool:
    """Whether a fact of a run is younger than that."""
    found = connection.execute(
        "SELECT wall FROM facts WHERE place = (SELECT max(place) FROM facts "
        "WHERE place BETWEEN ? AND ?)",
        (number << 32, number << 32 | 0xFFFFFFFF),
    )
    return any(seconds(wall) > since for (wall,) in found)


def _with_children(connection: sqlite3.Connection, runs: Iterable[RunId]) -> list[RunId]:
    """Runs with all that are below them, those below first."""
    found: list[RunId] = []
    for run in runs:
        below = connection.execute(
            "SELECT name FROM runs WHERE name > ? AND name < ? ORDER BY id DESC",
            (f"{run}/", f"{run}0"),  # 0 comes right behind /
        )
        found += [
            RunId(name)
            for (name,) in below.fetchall()
            if is_own(name[len(run) + 1 :].split("/")[0])
        ]
        found.append(run)
    return list(dict.fromkeys(found))


def _above(run: RunId, names: set[RunId]) -> RunId | None:
    """The run below whose call a run is, if that one is there."""
    parts = run.split("/")
    for end in range(len(parts) - 1, 0, -1):
        above = RunId("/".join(parts[:end]))
        if above in names and is_own(parts[end]):
            return above
    return None


def _sweep(connection: sqlite3.Connection, values: Path) -> None:
    """Remove the files of values that no fact refers to any more."""
    if not values.exists():
        return
    connection.execute("BEGIN")  # One state: a run that is taken up leaves its archive meanwhile.
    try:
        needed = set(_values_of(body for (body,) in connection.execute(_SPILLED)))
        for (archive,) in connection.execute("SELECT body FROM archives"):
            needed.update(_values_of(bodies(archive)))
    except (ValueError, msgspec.MsgspecError):
        return  # What is damaged refers to nobody knows what.
    finally:
        connection.execute("ROLLBACK")
    settled = time.time() - SETTLED_SECONDS
    for file in values.glob("*/[!.]*"):
        if file.name not in needed:
            _remove_settled(file, settled)
    for left in values.glob("*/.*"):
        with suppress(FileNotFoundError):
            if left.stat().st_mtime < settled:
                left.unlink()


def _remove_settled(file: Path, settled: float) -> None:
    """Remove a value's file, unless a fact that is only just being kept has found it there."""
    gone = file.with_name(f".gone-{file.name}")
    try:
        if file.stat().st_mtime >= settled:
            return
        file.replace(gone)  # Whoever looks for it from now on writes it anew.
        if gone.stat().st_mtime >= settled:
            gone.replace(file)
        else:
            gone.unlink()
    except FileNotFoundError:
        return  # Somebody else prunes, too.


_SPILLED = (
    'SELECT CAST(body AS BLOB) FROM facts WHERE body LIKE \'{"fact":"spilled",%\' '
    'UNION ALL SELECT CAST(body AS BLOB) FROM lost WHERE body LIKE \'{"fact":"spilled",%\''
)


def _values_of(bodies: Iterable[bytes]) -> Sequence[str]:
    return [msgspec.json.decode(body, type=Spilled).sha256 for body in bodies if is_spilled(body)]
