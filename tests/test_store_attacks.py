"""A journal file under others' hands: raced, damaged, tidied while it is used."""

# pyright: reportPrivateUsage=false

import asyncio
import multiprocessing
import os
import shutil
import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import pytest
from typer.testing import CliRunner

from laneway.engine.cli.app import app
from laneway.errors import DamagedJournalError, JournalError
from laneway.facts import MessageSaid, Row
from laneway.ids import RunId
from laneway.journal import housekeeping, reading
from laneway.journal.connection import JournalConnection
from laneway.journal.lease import this_driver
from laneway.journal.loss import accept_loss
from laneway.journal.migrate import open_file
from laneway.journal.overview import lines
from laneway.journal.spill import SPILL_BYTES, values_folder
from laneway.journal.sqlite import SqliteStore
from laneway.journal.upgrade import copy_of
from laneway.journal.verify import verify
from laneway.testing.sample_facts import notes

GOLDEN = Path(__file__).resolve().parent / "golden"
T = TypeVar("T")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


def using(path: Path, do: Callable[[SqliteStore], Awaitable[T]]) -> T:
    async def main() -> T:
        store = SqliteStore(path)
        await store.open()
        try:
            return await do(store)
        finally:
            await store.close()

    return asyncio.run(main())


def write(path: Path, *names: str, facts: int = 9, large: str = "") -> None:
    async def do(store: SqliteStore) -> None:
        for name in names:
            run = RunId(name)
            seq = len(await store.take(run, this_driver()))
            rows = notes(run, seq + facts)[seq:]
            if large:
                rows = [*rows[:-1], value(run, seq + facts, large)]
            await store.commit(rows)
            await store.leave(run)

    using(path, do)


def value(run: RunId, seq: int, letter: str) -> Row:
    return Row(run, seq, time.time(), 1.0, MessageSaid(message=letter * (SPILL_BYTES + 1)))


def by_hand(path: Path, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(sql, parameters).fetchall()


def left(path: Path) -> list[str]:
    return [str(one.run) for one in reversed(lines(path))]


def is_whole(path: Path) -> bool:
    return verify(path).whole


def age(path: Path) -> None:
    hours_ago = time.time() - 2 * housekeeping.SETTLED_SECONDS
    for file in values_folder(path).glob("*/*"):
        os.utime(file, (hours_ago, hours_ago))


# Upgrades


def opens(path: Path, ready: Any) -> None:
    ready.wait()
    open_file(path, busy_seconds=30, synchronous="FULL").close()


def test_of_openers_that_race_an_upgrade_all_get_in_and_the_copy_is_the_old_file(
    path: Path,
) -> None:
    spawning = multiprocessing.get_context("fork")
    for _ in range(4):
        for file in path.parent.iterdir():
            file.unlink()
        shutil.copy(GOLDEN / "format-1.db", path)
        ready = spawning.Barrier(3)
        openers = [spawning.Process(target=opens, args=(path, ready)) for _ in range(3)]
        for one in openers:
            one.start()
        for one in openers:
            one.join(60)

        assert [one.exitcode for one in openers] == [0, 0, 0]
        assert by_hand(copy_of(path, 1), "PRAGMA user_version") == [(1,)]
        assert is_whole(path)


# Columns may hold anything


COLUMNS = [
    *(("facts", name) for name in ("wall", "mono", "hash", "body")),
    *(("archives", name) for name in ("facts", "opened", "touched", "hash", "body")),
    *(("runs", name) for name in ("driver", "beat", "name")),
]
COMMANDS = (
    *("verify", "runs", "runs --json", "lanes", "show packed", "show r", "why r", "replay packed"),
    *("export r --format chrome", "compare r packed", "verify packed --accept-loss"),
    *("verify r --accept-loss", "compact --older-than 0s", "prune --older-than 0s", "vacuum"),
)


@pytest.mark.parametrize("odd", ["text", b"\xff\xfe", 1e308, 7])
@pytest.mark.parametrize(("table", "column"), COLUMNS)
def test_whatever_stands_in_a_column_every_command_says_what_is_wrong(
    path: Path, table: str, column: str, odd: Any
) -> None:
    write(path, "packed", "r")
    housekeeping.compact(path, [RunId("packed")])
    last = f"(SELECT max(rowid) FROM {table})"  # noqa: S608 - a constant
    by_hand(path, f"UPDATE {table} SET {column} = ? WHERE rowid = {last}", (odd,))  # noqa: S608 - constants

    for command in COMMANDS:
        done = CliRunner().invoke(app, [*command.split(), "--journal", str(path)])

        assert done.exception is None or isinstance(done.exception, SystemExit), command
        assert done.exit_code in {0, 1, 2}


def test_a_schema_that_is_no_text_is_damage_and_says_so(path: Path) -> None:
    write(path, "r")
    raw = path.read_bytes()
    at = raw.index(b"CREATE TABLE runs")
    path.write_bytes(raw[:at] + b"CRE\xed\xffE" + raw[at + 6 :])

    for act in (
        lambda: using(path, lambda store: store.read(RunId("r"))),
        lambda: housekeeping.back_up(path, path.with_name("copy.db")),
        lambda: housekeeping.vacuum(path),
        lambda: verify(path),
        lambda: accept_loss(path, "r"),
    ):
        with pytest.raises(JournalError, match=r"file is damaged|no such table: runs"):
            act()


# Looking while somebody begins to write


def test_a_look_at_a_quiet_journal_is_not_disturbed_by_whoever_opens_it_meanwhile(
    path: Path,
) -> None:
    write(path, "a", "b", "c", "d", facts=3_000)

    with reading.looking_at(path) as connection:
        connection.execute("SELECT count(*) FROM runs").fetchall()
        housekeeping.remove(path, [RunId("b"), RunId("c")])
        write(path, "a", "e", facts=3_000)
        connection.execute("PRAGMA cache_size = 10")
        found = [reading.find(connection, path, name) for name in reading.names(connection)]

    assert [(one.run, len(one.rows), one.damage) for one in found] == [
        (name, 3_000, None) for name in ("d", "c", "b", "a")
    ]
    assert sorted(one.name for one in path.parent.iterdir()) == ["runs.db"]


def test_what_cannot_be_written_is_read_as_it_is(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path, "r")
    monkeypatch.setattr(os, "access", lambda *_: False)
    before = path.read_bytes()

    assert is_whole(path)

    assert path.read_bytes() == before


def test_a_run_that_is_taken_up_between_two_looks_is_read_all_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path, "r")
    housekeeping.compact(path, [RunId("r")])
    fetch = JournalConnection.fetch

    async def slow(self: Any, name: str, parameters: Any = ()) -> list[Any]:
        if name == "archive":
            monkeypatch.setattr(JournalConnection, "fetch", fetch)
            await asyncio.to_thread(write, path, "r", facts=1)
        return await fetch(self, name, parameters)

    monkeypatch.setattr(JournalConnection, "fetch", slow)

    assert len(using(path, lambda store: store.read(RunId("r")))) >= 9


# Tidying


def test_only_what_is_below_a_call_goes_with_a_run(path: Path) -> None:
    write(path, "shop", "shop/today", "shop/t1.2/1", "shop/t1.2/1/t3.4/2", "shop/x/y")

    old = housekeeping.old_runs(path, idle_seconds=0, now=time.time() + 9)
    assert [one.run for one in old] == ["shop", "shop/today", "shop/x/y"]

    assert housekeeping.remove(path, [RunId("shop")]) == 3
    assert left(path) == ["shop/today", "shop/x/y"]


def test_a_run_that_went_on_since_it_was_found_old_is_not_removed(path: Path) -> None:
    write(path, "r", "s")
    before = time.time() + 0.001
    by_hand(path, "UPDATE facts SET wall = ? WHERE place >> 32 = 1", (before + 1,))
    by_hand(path, "UPDATE facts SET wall = ? WHERE place >> 32 = 2", (before - 1,))

    found = [RunId("r"), RunId("s")]
    assert housekeeping.remove(path, found, untouched_since=before) == 1

    assert left(path) == ["r"]


def test_a_value_that_is_kept_again_while_its_old_run_is_removed_stays(path: Path) -> None:
    write(path, "old", large="x")
    age(path)

    async def do(store: SqliteStore) -> None:
        run = RunId("new")
        await store.take(run, this_driver())
        append = JournalConnection.append_of_one

        async def late(self: Any, parameters: list[Any], run: int, token: int) -> int:
            await asyncio.to_thread(housekeeping.remove, path, [RunId("old")])
            return await append(self, parameters, run, token)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(JournalConnection, "append_of_one", late)
            await store.commit([value(run, 1, "x")])

    using(path, do)

    assert left(path) == ["new"]
    assert is_whole(path)


def test_a_value_that_becomes_new_while_it_is_swept_away_is_put_back(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path, "r", large="x")
    age(path)
    (file,) = values_folder(path).glob("*/*")
    replace = Path.replace

    def kept_again(self: Path, target: Path) -> Path:
        if self == file:
            os.utime(file)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", kept_again)
    housekeeping._remove_settled(file, time.time() - housekeeping.SETTLED_SECONDS)

    assert is_whole(path)


def test_a_value_whose_file_was_damaged_is_written_again_by_whoever_keeps_it_again(
    path: Path,
) -> None:
    write(path, "r", large="x")
    (file,) = values_folder(path).glob("*/*")
    file.write_bytes(bytes(file.stat().st_size))

    write(path, "s", facts=1, large="x")

    assert is_whole(path)


def test_a_copy_has_its_values_though_somebody_prunes_meanwhile(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path, "r", "s", large="x")
    age(path)
    copy = path.with_name("copy.db")
    values = housekeeping._copy_values
    calls: list[Path] = []

    def pruning(source: Path, target: Path) -> None:
        if calls:
            housekeeping.remove(path, [RunId("r"), RunId("s")])
        calls.append(source)
        values(source, target)

    monkeypatch.setattr(housekeeping, "_copy_values", pruning)
    housekeeping.back_up(path, copy)

    assert left(path) == []
    assert left(copy) == ["r", "s"]
    assert is_whole(copy)


def test_a_copy_that_fails_leaves_nothing_in_the_way_of_the_next_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path, "r", large="x")
    copy = path.with_name("copy.db")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copy2", full)
        with pytest.raises(JournalError, match=r"could not be written .*No space left"):
            housekeeping.back_up(path, copy)
    assert sorted(one.name for one in path.parent.iterdir()) == ["runs.db", "runs.db-values"]

    housekeeping.back_up(path, copy)
    assert is_whole(copy)


# Giving up what is damaged


def overwrite_a_page(path: Path) -> None:
    """Make garbage of a page of facts in the middle of the file."""
    raw = bytearray(path.read_bytes())
    pages = range(len(raw) // 4096 - 2, 2, -1)
    page = next(one for one in pages if raw[one * 4096] == 13)  # a leaf of a table
    raw[page * 4096 : (page + 1) * 4096] = b"\xff" * 4096
    path.write_bytes(raw)


def test_what_was_put_aside_once_is_not_written_over_the_next_time(path: Path) -> None:
    write(path, "r", facts=300)
    for _ in range(2):
        overwrite_a_page(path)
        with pytest.raises(DamagedJournalError):
            using(path, lambda store: store.read(RunId("r")))
        assert accept_loss(path, "r")
        assert is_whole(path)
        write(path, "r", facts=300)

    aside = sorted(one.name for one in path.parent.glob("*.damaged*"))
    assert aside == ["runs.db.damaged", "runs.db.damaged1"]


def test_whoever_dies_while_a_mended_file_takes_its_place_leaves_no_empty_journal(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path, "r", facts=300)
    overwrite_a_page(path)
    replace = Path.replace

    def dies(self: Path, target: Path) -> Path:
        if self.name.endswith(".coming"):
            raise KeyboardInterrupt
        return replace(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", dies)
        with pytest.raises(KeyboardInterrupt):
            accept_loss(path, "r")

    with pytest.raises(JournalError, match="has 2 names"):
        using(path, lambda store: store.read(RunId("r")))
