"""The SQLite journal: its file, its locks, its leases, and everything that can break."""

# What breaks is broken from within:
# pyright: reportPrivateUsage=false

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

import laneway.journal
from laneway.errors import (
    DamagedJournalError,
    ForeignJournalError,
    JournalError,
    NewerJournalError,
    RunOwnedError,
)
from laneway.facts import Driver, MessageSaid, Row
from laneway.ids import RunId
from laneway.journal import lease, migrate
from laneway.journal.connection import LARGEST, JournalConnection
from laneway.journal.file import JournalFile
from laneway.journal.lease import describe, is_dead, owner_in_the_way, this_driver
from laneway.journal.migrate import APPLICATION_ID, FORMAT, open_file
from laneway.journal.sqlite import SqliteStore
from laneway.testing.journal_contract import dead_driver
from laneway.testing.sample_facts import notes

RUN = RunId("fix-42")
HANG_SECONDS = 60
_T = TypeVar("_T")

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="this system has no /proc"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


def with_store(store: SqliteStore, scenario: Callable[[], Awaitable[_T]]) -> _T:
    """Run a scenario while the store is open."""

    async def opened() -> _T:
        await store.open()
        try:
            return await scenario()
        finally:
            await store.close()

    return asyncio.run(opened())


def written(path: Path, rows: Sequence[Row]) -> None:
    """Make a journal that holds these rows of RUN."""
    store = SqliteStore(path)

    async def scenario() -> None:
        await store.take(RUN, this_driver())
        await store.commit(rows)

    with_store(store, scenario)


def by_hand(path: Path, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
    """Do something to the file with nothing but SQLite."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(sql, parameters).fetchall()


def child(program: str, *arguments: object) -> "subprocess.Popen[str]":
    """Start another process that can import the journal."""
    source = Path(laneway.journal.__file__ or "").parent.parent.parent
    if not (source / "laneway").exists():
        source = Path(__file__).parent.parent / "src"
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(source)},
    )


def line_of(process: "subprocess.Popen[str]") -> str:
    """Wait for a line that the child prints."""
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    assert line, process.communicate(timeout=HANG_SECONDS)[1]
    return line


# The file.


def test_the_header_alone_tells_whose_file_it_is_before_the_first_fact(path: Path) -> None:
    async def scenario() -> bytes:
        return await asyncio.to_thread(path.read_bytes)

    header = with_store(SqliteStore(path), scenario)[:100]

    assert header.startswith(b"SQLite format 3\0")
    assert int.from_bytes(header[68:72], "big") == APPLICATION_ID
    assert header[68:72] == b"Lane"
    assert int.from_bytes(header[60:64], "big") == FORMAT


def test_a_journal_can_be_read_by_hand(path: Path) -> None:
    written(path, notes(RUN, 2))

    found = by_hand(path, "SELECT run, seq, kind, call, body FROM journal ORDER BY seq")

    assert found == [
        ("fix-42", 1, "message_said", None, '{"fact":"message_said","message":"fix-42 0"}'),
        ("fix-42", 2, "message_said", None, '{"fact":"message_said","message":"fix-42 1"}'),
    ]


@pytest.mark.parametrize(("synchronous", "level"), [("FULL", 2), ("NORMAL", 1)])
def test_a_connection_is_in_wal_mode_and_synced_as_asked(
    path: Path, synchronous: migrate.Synchronous, level: int
) -> None:
    with closing(open_file(path, busy_seconds=1, synchronous=synchronous)) as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (level,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_place_without_write_ahead_log_is_refused(path: Path) -> None:
    with (
        closing(sqlite3.connect(":memory:", factory=JournalFile)) as connection,
        pytest.raises(JournalError) as refused,
    ):
        migrate._settle(connection, path, "FULL")

    assert "journal_mode is memory instead of wal" in str(refused.value)
    assert "put it on a local disk" in str(refused.value)


def sqlite_file(
    application_id: int = 0, version: int = 0, *statements: str
) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA application_id = {application_id}")
            connection.execute(f"PRAGMA user_version = {version}")
            for statement in statements:
                connection.execute(statement)

    return make


FOREIGN: dict[str, tuple[Callable[[Path], Any], str]] = {
    "text": (lambda path: path.write_text("Dear diary"), "it is not an SQLite file"),
    "one byte": (lambda path: path.write_bytes(b"\0"), "it is not an SQLite file"),
    "zeros": (lambda path: path.write_bytes(bytes(8192)), "it is not an SQLite file"),
    "empty database": (sqlite_file(), "of another program, application_id 0"),
    "other tables": (
        sqlite_file(0, 1, "CREATE TABLE facts (x)"),
        "of another program, application_id 0",
    ),
    "other program": (
        sqlite_file(252006673, 1, "CREATE TABLE runs (x)"),
        "of another program, application_id 252006673",
    ),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_foreign_file_is_refused_untouched(path: Path, kind: str) -> None:
    make, found = FOREIGN[kind]
    make(path)
    before = path.read_bytes(), path.stat().st_mtime_ns

    with pytest.raises(ForeignJournalError) as refused:
        asyncio.run(SqliteStore(path).open())

    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert list(path.parent.iterdir()) == [path]
    assert f"{path} is not a Laneway journal" in str(refused.value)
    assert found in str(refused.value)
    assert "left untouched" in str(refused.value)


def test_a_newer_journal_is_refused_untouched(path: Path) -> None:
    written(path, notes(RUN, 1))
    by_hand(path, f"PRAGMA user_version = {FORMAT + 1}")
    before = path.read_bytes(), path.stat().st_mtime_ns

    with pytest.raises(NewerJournalError) as refused:
        asyncio.run(SqliteStore(path).open())

    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert list(path.parent.iterdir()) == [path]
    assert f"journal format {FORMAT + 1}" in str(refused.value)
    assert f"formats up to {FORMAT}" in str(refused.value)
    assert "upgrade Laneway" in str(refused.value)


def test_a_newer_format_that_is_only_in_the_log_is_refused_too(path: Path) -> None:
    written(path, notes(RUN, 1))
    with closing(sqlite3.connect(path, isolation_level=None)) as newer:
        newer.execute(f"PRAGMA user_version = {FORMAT + 1}")

        with pytest.raises(NewerJournalError, match="upgrade Laneway"):
            open_file(path, busy_seconds=0, synchronous="FULL")


def test_a_link_to_a_journal_leads_to_it(path: Path) -> None:
    written(path, notes(RUN, 1))
    link = path.with_name("link.db")
    link.symlink_to(path)
    store, linked = SqliteStore(path), SqliteStore(link)

    async def scenario() -> None:
        await linked.open()
        await store.take(RUN, this_driver())
        with pytest.raises(RunOwnedError, match="this very process"):
            await linked.take(RUN, this_driver())
        await linked.close()

    with_store(store, scenario)


@pytest.mark.parametrize(
    "make",
    [Path.touch, sqlite_file(APPLICATION_ID), sqlite_file(APPLICATION_ID, FORMAT)],
    ids=["no byte", "no version, no table", "no table"],
)
def test_a_journal_whose_making_broke_off_is_made_whole(
    path: Path, make: Callable[[Path], None]
) -> None:
    make(path)

    written(path, notes(RUN, 1))

    assert by_hand(path, "PRAGMA user_version") == [(FORMAT,)]
    assert by_hand(path, "SELECT count(*) FROM facts") == [(1,)]


def test_a_creation_that_died_among_its_pages_is_taken_back(path: Path) -> None:
    # What a crash leaves that hits SQLite while it writes pages: the rollback journal is
    # complete, of the file some pages are, and not the first one.
    making = path.with_name("making.db")
    with closing(sqlite3.connect(making, isolation_level=None)) as connection:
        connection.execute("PRAGMA cache_size = 2")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("CREATE TABLE half (x)")
        connection.executemany("INSERT INTO half VALUES (?)", [(bytes(3000),)] * 50)
        shutil.copy(making, path)
        shutil.copy(f"{making}-journal", f"{path}-journal")
    pages = path.read_bytes()
    path.write_bytes(bytes(4096) + pages[4096:])
    assert any(pages[4096:])

    written(path, notes(RUN, 1))

    assert by_hand(path, "SELECT name FROM sqlite_master WHERE name = 'half'") == []
    assert by_hand(path, "SELECT count(*) FROM facts") == [(1,)]


DIES_CREATING = """
    import asyncio, os, signal, sqlite3, sys
    from laneway.journal.sqlite import SqliteStore

    path, deadly = sys.argv[1], int(sys.argv[2])
    connect = sqlite3.connect

    def watched(*arguments, **options):
        connection = connect(*arguments, **options)
        count = 0

        def before(statement):
            nonlocal count
            count += 1
            if count == deadly:
                os.kill(os.getpid(), signal.SIGKILL)

        connection.set_trace_callback(before)
        return connection

    sqlite3.connect = watched
    asyncio.run(SqliteStore(path).open())
    print("whole", flush=True)
    os._exit(0)
"""


def test_a_process_killed_while_it_creates_a_journal_leaves_one_that_opens(tmp_path: Path) -> None:
    deaths = 0
    for deadly in range(1, 30, 2):
        path = tmp_path / f"{deadly}.db"
        process = child(DIES_CREATING, path, deadly)
        out, err = process.communicate(timeout=HANG_SECONDS)
        if "whole" in out:
            break
        assert process.returncode == -signal.SIGKILL, err
        deaths += 1

        written(path, notes(RUN, 1))

        assert by_hand(path, "SELECT count(*) FROM facts") == [(1,)]

    assert deaths >= 5


def test_a_journal_that_lost_a_table_is_refused(path: Path) -> None:
    written(path, notes(RUN, 1))
    by_hand(path, "DROP TABLE facts")

    with pytest.raises(JournalError, match="is damaged: it has no table facts; put it aside"):
        asyncio.run(SqliteStore(path).open())


def test_a_file_with_garbage_inside_is_refused(path: Path) -> None:
    written(path, notes(RUN, 1))
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + b"\xa5" * 8000)

    with pytest.raises(JournalError, match="the file is damaged: `laneway verify"):
        asyncio.run(SqliteStore(path).open())


def test_many_may_create_one_journal_at_once(path: Path) -> None:
    stores = [SqliteStore(path) for _ in range(8)]

    async def scenario() -> None:
        await asyncio.gather(*(store.open() for store in stores))
        for number, store in enumerate(stores):
            run = RunId(f"run {number}")
            await store.take(run, this_driver())
            await store.commit(notes(run, 1))
        await asyncio.gather(*(store.close() for store in stores))

    asyncio.run(scenario())

    assert by_hand(path, "SELECT count(*) FROM facts") == [(8,)]


def test_a_new_file_that_others_open_at_once_is_busy_for_nobody(tmp_path: Path) -> None:
    def open_and_close(path: Path) -> None:
        open_file(path, busy_seconds=HANG_SECONDS, synchronous="FULL").close()

    with ThreadPoolExecutor(8) as threads:
        for number in range(10):  # each of them failed one time in three, once
            path = tmp_path / f"{number}.db"
            list(threads.map(open_and_close, [path] * 8))

    assert all(
        by_hand(path, "SELECT count(*) FROM facts") == [(0,)] for path in tmp_path.glob("*.db")
    )


def test_who_comes_second_takes_the_tables_of_the_first(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(path, notes(RUN, 1))
    look, looks = migrate._tables, iter([True, False, False])

    def too_early(connection: JournalFile) -> set[str]:
        return set() if next(looks) else look(connection)

    monkeypatch.setattr(migrate, "_tables", too_early)

    open_file(path, busy_seconds=1, synchronous="FULL").close()

    assert by_hand(path, "SELECT count(*) FROM facts") == [(1,)]


# A place that cannot be used.


@pytest.mark.parametrize(
    ("place", "says"),
    [
        (".", "is a folder; name a file in it"),
        ("missing/runs.db", "there is no folder {folder}/missing; create it first"),
        ("file/runs.db", "there is no folder {folder}/file; create it first"),
        ("x" * 300, "could not be read (OSError"),
    ],
)
def test_a_place_that_cannot_hold_a_journal_is_named(tmp_path: Path, place: str, says: str) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(JournalError) as refused:
        asyncio.run(SqliteStore(tmp_path / place).open())

    assert says.format(folder=tmp_path) in str(refused.value)


@needs_proc
def test_a_folder_that_cannot_be_written_is_named() -> None:
    with pytest.raises(JournalError) as refused:
        asyncio.run(SqliteStore("/proc/runs.db").open())

    assert "journal /proc/runs.db could not be opened" in str(refused.value)
    assert "let this user read and write /proc/runs.db and the folder" in str(refused.value)


def test_a_path_that_sqlite_cannot_take_is_named(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise sqlite3.OperationalError("unable to open database file")

    monkeypatch.setattr(sqlite3, "connect", refuse)

    with pytest.raises(JournalError, match=r"could not be opened .* mend the cause"):
        open_file(path, busy_seconds=0, synchronous="FULL")


def test_memory_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(JournalError, match="use MemoryStore"):
        asyncio.run(SqliteStore(":memory:").open())

    assert list(tmp_path.iterdir()) == []


def test_an_sqlite_that_is_too_old_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrate, "_SQLITE_NEEDED", (99, 1))

    with pytest.raises(JournalError, match=r"a journal needs 99\.1 or newer"):
        asyncio.run(SqliteStore(path).open())

    assert not path.exists()


def test_a_refused_open_leaves_no_thread(path: Path) -> None:
    path.write_text("Dear diary")
    before = set(threading.enumerate())

    with pytest.raises(ForeignJournalError):
        asyncio.run(SqliteStore(path).open())

    for thread in set(threading.enumerate()) - before:
        thread.join(HANG_SECONDS)
        assert not thread.is_alive()


# Locks.


def test_a_lock_of_another_program_is_waited_for_while_the_loop_goes_on(path: Path) -> None:
    store = SqliteStore(path)

    async def scenario() -> None:
        await store.take(RUN, this_driver())
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            committing = asyncio.ensure_future(store.commit(notes(RUN, 3)))
            for _ in range(20):
                await asyncio.sleep(0.001)
            assert not committing.done()
            other.execute("COMMIT")
        await committing

    with_store(store, scenario)

    assert by_hand(path, "SELECT count(*) FROM facts") == [(3,)]


def test_a_lock_that_lasts_too_long_ends_the_journal_and_says_who_may_hold_it(path: Path) -> None:
    store = SqliteStore(path, busy_seconds=0.05)

    async def scenario() -> str:
        await store.take(RUN, this_driver())
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(JournalError) as locked:
                await store.commit(notes(RUN, 3))
        with pytest.raises(JournalError, match="takes nothing more since a commit failed"):
            await store.commit(notes(RUN, 3))
        return str(locked.value)

    said = with_store(store, scenario)

    assert "database is locked" in said
    assert f"`fuser -v {path}`" in said
    assert "resume the run" in said
    assert by_hand(path, "SELECT count(*) FROM facts") == [(0,)]


def test_a_journal_that_another_program_has_locked_can_be_opened_and_read(path: Path) -> None:
    written(path, notes(RUN, 3))
    store = SqliteStore(path, busy_seconds=0)

    async def scenario() -> int:
        return len(await store.read(RUN))

    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert with_store(store, scenario) == 3


def test_the_switch_to_the_write_ahead_log_waits_for_locks_too(path: Path) -> None:
    with closing(open_file(path, busy_seconds=0, synchronous="FULL")) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN")
        other.execute("SELECT * FROM facts").fetchall()

        with pytest.raises(JournalError, match="database is locked"):
            open_file(path, busy_seconds=0.03, synchronous="FULL")
        release = threading.Timer(0.05, other.execute, ["COMMIT"])
        release.start()
        open_file(path, busy_seconds=HANG_SECONDS, synchronous="FULL").close()
        release.join()


# Commits that fail.


async def raw(store: SqliteStore, sql: str) -> None:
    """Do something on the store's own connection."""
    assert store._opened is not None
    await store._opened[0]._connection.execute(sql)


FAULTS = {
    "disk full": ("PRAGMA max_page_count = 1", "the disk is full: make room"),
    "read-only": ("PRAGMA query_only = ON", "give this user the right to write {path}"),
    "table gone": ("ALTER TABLE facts RENAME TO elsewhere", "no such table: facts"),
}


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("rows", [500, 3 * LARGEST])
def test_a_commit_that_fails_keeps_nothing_and_poisons_the_store(
    path: Path, kind: str, rows: int
) -> None:
    cause, says = FAULTS[kind]
    store = SqliteStore(path)

    async def scenario() -> None:
        await store.take(RUN, this_driver())
        await store.commit(notes(RUN, 1))
        await raw(store, cause)
        with pytest.raises(JournalError) as failed:
            await store.commit(notes(RUN, rows, after=1))
        assert says.format(path=path) in str(failed.value)
        assert str(path) in str(failed.value)
        for again in (
            lambda: store.commit(notes(RUN, 1, after=1)),
            lambda: store.take(RunId("other"), this_driver()),
        ):
            with pytest.raises(JournalError, match="takes nothing more since") as refused:
                await again()
            assert str(failed.value) in str(refused.value)
        await store.leave(RUN)

    with_store(store, scenario)

    if kind != "table gone":

        async def afterwards() -> list[Row]:
            found = list(await store.take(RUN, this_driver()))
            await store.commit(notes(RUN, 1, after=len(found)))
            return list(await store.read(RUN))

        assert with_store(store, afterwards) == notes(RUN, 2)


def test_a_fact_that_stands_in_the_way_is_never_overwritten(path: Path) -> None:
    store = SqliteStore(path)
    place = (1 << 32) + 2 * LARGEST + 5
    before = (place, 1.0, 2.0, b"", "{}")

    async def scenario() -> None:
        await store.take(RUN, this_driver())
        by_hand(path, "INSERT INTO facts VALUES (?, ?, ?, ?, ?)", before)
        with pytest.raises(JournalError, match="UNIQUE constraint failed"):
            await store.commit(notes(RUN, 3 * LARGEST))

    with_store(store, scenario)

    assert by_hand(path, "SELECT * FROM facts") == [before]


def test_a_cancelled_commit_poisons_the_store_since_nobody_knows_its_end(path: Path) -> None:
    store = SqliteStore(path)

    async def scenario() -> None:
        await store.take(RUN, this_driver())
        committing = asyncio.ensure_future(store.commit(notes(RUN, 1)))
        await asyncio.sleep(0)
        committing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await committing
        with pytest.raises(JournalError, match="a commit was given up"):
            await store.commit(notes(RUN, 1))

    with_store(store, scenario)


def test_a_value_that_cannot_be_kept_is_refused_and_the_store_goes_on(path: Path) -> None:
    store = SqliteStore(path)
    good = notes(RUN, 2)
    bad = Row(RUN, 2, 0.0, 0.0, MessageSaid(message=float("nan")))

    async def scenario() -> list[Row]:
        await store.take(RUN, this_driver())
        with pytest.raises(JournalError, match="not finite"):
            await store.commit([good[0], bad])
        await store.commit(good)
        return list(await store.read(RUN))

    assert with_store(store, scenario) == good


@pytest.mark.parametrize("several", [False, True])
def test_rows_that_vanish_without_a_reason_poison_the_store(
    path: Path, monkeypatch: pytest.MonkeyPatch, several: bool
) -> None:
    store, other = SqliteStore(path), RunId("other")
    batch = [*notes(RUN, 1), *(notes(other, 1) if several else notes(RUN, 2)[1:])]

    async def keep_nothing(connection: JournalConnection, *_: Any) -> int:
        return 0

    async def scenario() -> None:
        await store.take(RUN, this_driver())
        await store.take(other, this_driver())
        statement = "append" if several else "append_of_one"
        monkeypatch.setattr(JournalConnection, statement, keep_nothing)
        with pytest.raises(JournalError, match="did not keep 2 facts, for no known reason"):
            await store.commit(batch)
        with pytest.raises(JournalError, match="takes nothing more"):
            await store.commit(batch)

    with_store(store, scenario)


# Damage.


@pytest.mark.parametrize(
    ("damage", "seq", "says"),
    [
        ("DELETE FROM facts WHERE place & 255 = 3", 3, "it is missing (the next is 4)"),
        ("DELETE FROM facts WHERE place & 255 <= 2", 1, "it is missing (the next is 3)"),
        ("UPDATE facts SET body = 'garbage' WHERE place & 255 = 2", 2, "its hash does not fit"),
        ("UPDATE facts SET body = x'00ff' WHERE place & 255 = 5", 5, "its hash does not fit"),
        (
            "UPDATE facts SET body = replace(body, 'said', 'sung') WHERE place & 255 = 4",
            4,
            "its hash does not fit",
        ),
        (
            "UPDATE facts SET place = place + 10 WHERE place & 255 = 5",
            5,
            "it is missing (the next is 15)",
        ),
    ],
)
def test_damage_is_named_and_the_run_left(path: Path, damage: str, seq: int, says: str) -> None:
    written(path, notes(RUN, 5))
    by_hand(path, damage)
    store = SqliteStore(path)

    async def scenario() -> None:
        for look in (partial(store.read, RUN), partial(store.take, RUN, this_driver())):
            with pytest.raises(DamagedJournalError) as found:
                await look()
            assert found.value.seq == seq
            assert f"run 'fix-42', fact {seq}" in str(found.value)
            assert says in str(found.value)
        with pytest.raises(JournalError, match="not driven by this store"):
            await store.commit(notes(RUN, 1, after=5))

    with_store(store, scenario)

    assert by_hand(path, "SELECT driver FROM runs") == [(None,)]


def test_a_lease_that_cannot_be_read_is_named(path: Path) -> None:
    written(path, notes(RUN, 1))
    by_hand(path, "UPDATE runs SET driver = 'me'")
    store = SqliteStore(path)

    async def scenario() -> None:
        with pytest.raises(JournalError, match=r"run 'fix-42': its lease cannot be read .*: me"):
            await store.take(RUN, this_driver())

    with_store(store, scenario)


# Leases.


def unseen_driver(host: str = "elsewhere") -> Driver:
    """Name a process that cannot be looked at from here."""
    return Driver(host=host, boot="another", pid=4242, started="1", namespace="pid:[1]")


def test_an_owner_out_of_sight_keeps_its_run_until_it_has_been_silent_for_a_lease(
    path: Path,
) -> None:
    store, other = SqliteStore(path), SqliteStore(path, lease_seconds=30)

    async def scenario() -> None:
        await store.take(RUN, unseen_driver())
        await other.open()
        with pytest.raises(RunOwnedError) as owned:
            await other.take(RUN, this_driver())
        assert "process 4242 on host 'elsewhere'" in str(owned.value)
        assert "it loses the run after 30 s of silence" in str(owned.value)
        by_hand(path, "UPDATE runs SET beat = beat - 31")
        await other.take(RUN, this_driver())
        with pytest.raises(RunOwnedError, match=f"driven by {describe(this_driver())}"):
            await store.commit(notes(RUN, 1))
        await other.commit(notes(RUN, 1))
        await other.close()

    with_store(store, scenario)


async def beaten(path: Path) -> None:
    """Wait for a sign of life of the only run, which has been set to 0."""
    while by_hand(path, "SELECT beat FROM runs") == [(0.0,)]:  # noqa: ASYNC110 - no event tells it
        await asyncio.sleep(0.001)


def test_a_driver_gives_signs_of_life_as_long_as_it_holds_a_run(path: Path) -> None:
    store = SqliteStore(path, lease_seconds=0.006)

    async def scenario() -> None:
        await store.take(RUN, this_driver())
        by_hand(path, "UPDATE runs SET beat = 0")
        await beaten(path)
        await store.leave(RUN)
        while "laneway-lease" in {thread.name for thread in threading.enumerate()}:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await store.take(RUN, this_driver())
        by_hand(path, "UPDATE runs SET beat = 0")
        await beaten(path)

    with_store(store, scenario)


def test_a_sign_of_life_that_fails_is_no_fault_of_the_journal(path: Path) -> None:
    store = SqliteStore(path, lease_seconds=0.006, busy_seconds=0)

    async def scenario() -> None:
        await store.take(RUN, this_driver())
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            other.execute("UPDATE runs SET beat = 0")
            for _ in range(10):
                await asyncio.sleep(0.001)
            other.execute("COMMIT")
        await beaten(path)
        await store.commit(notes(RUN, 1))

    with_store(store, scenario)


def test_a_run_that_was_deleted_takes_nothing_more(path: Path) -> None:
    store = SqliteStore(path)

    async def scenario() -> None:
        await store.take(RUN, this_driver())
        by_hand(path, "DELETE FROM runs")
        with pytest.raises(RunOwnedError, match="nobody now, but was by another"):
            await store.commit(notes(RUN, 1))
        await store.take(RUN, this_driver())
        await store.commit(notes(RUN, 1))

    with_store(store, scenario)

    assert by_hand(path, "SELECT id FROM runs") == [
        (2,)
    ]  # the number of the first is not used again


def test_leaving_says_when_the_lease_could_not_be_given_back(path: Path) -> None:
    store = SqliteStore(path)

    async def scenario() -> None:
        await store.take(RUN, this_driver())
        await raw(store, "PRAGMA query_only = ON")
        with pytest.raises(JournalError, match="could not do 'leave'"):
            await store.leave(RUN)

    with_store(store, scenario)


def test_closing_a_journal_that_cannot_be_written_still_ends_its_thread(path: Path) -> None:
    store = SqliteStore(path)

    async def scenario() -> None:
        await store.take(RUN, this_driver())
        await raw(store, "PRAGMA query_only = ON")

    with_store(store, scenario)

    with pytest.raises(JournalError, match="is not open"):
        asyncio.run(store.runs())


def test_of_many_takers_in_two_stores_of_one_process_one_gets_the_run(path: Path) -> None:
    stores = [SqliteStore(path), SqliteStore(path)]

    async def scenario() -> list[object]:
        for store in stores:
            await store.open()
        takes = [store.take(RUN, this_driver()) for store in stores * 5]
        ends: list[object] = list(await asyncio.gather(*takes, return_exceptions=True))
        for store in stores:
            await store.close()
        return ends

    ends = asyncio.run(scenario())

    assert sum(not isinstance(end, RunOwnedError) for end in ends) == 1
    assert by_hand(path, "SELECT token, driver FROM runs") == [(1, None)]


def test_a_cancelled_take_leaves_the_run(path: Path) -> None:
    store, other = SqliteStore(path), SqliteStore(path)

    async def scenario() -> None:
        await other.open()
        taking = asyncio.ensure_future(store.take(RUN, this_driver()))
        await asyncio.sleep(0)
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
        await other.take(RUN, this_driver())
        await other.close()

    with_store(store, scenario)


def test_a_cancelled_open_lets_go_of_the_file(path: Path) -> None:
    store = SqliteStore(path)

    async def scenario() -> None:
        opening = asyncio.ensure_future(store.open())
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await store.open()
        await store.close()

    asyncio.run(scenario())


def test_a_cancelled_open_of_a_foreign_file_is_cancelled(path: Path) -> None:
    path.write_text("Dear diary")

    async def scenario() -> None:
        opening = asyncio.ensure_future(SqliteStore(path).open())
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening

    asyncio.run(scenario())


NEVER_CLOSES = """
    import asyncio, sys
    from laneway.journal.sqlite import SqliteStore

    store = SqliteStore(sys.argv[1])
    asyncio.run(store.open())
"""


def test_a_process_that_forgets_to_close_can_still_exit(path: Path) -> None:
    process = child(NEVER_CLOSES, path)

    assert process.communicate(timeout=HANG_SECONDS)[1] == ""

    assert process.returncode == 0


# Two processes.

DRIVES = """
    import asyncio, sys
    from laneway.errors import RunOwnedError
    from laneway.journal.lease import this_driver
    from laneway.journal.sqlite import SqliteStore
    from laneway.testing.sample_facts import notes

    async def main():
        store = SqliteStore(sys.argv[1])
        await store.open()
        found = await store.take(sys.argv[2], this_driver())
        for commit in range(int(sys.argv[3])):
            await store.commit(notes(sys.argv[2], 20, after=20 * commit))
        print("drives", flush=True)
        sys.stdin.readline()
        try:
            await store.commit(notes(sys.argv[2], 1, after=20 * int(sys.argv[3])))
            print("wrote", flush=True)
        except RunOwnedError as error:
            print(error, flush=True)
        await store.close()

    asyncio.run(main())
"""


def test_a_second_process_is_told_who_drives_and_takes_over_when_that_is_killed(
    path: Path,
) -> None:
    owner = child(DRIVES, path, RUN, 2)
    assert line_of(owner) == "drives"
    store = SqliteStore(path)

    async def scenario() -> list[Row]:
        with pytest.raises(RunOwnedError, match=f"process {owner.pid} on host .* which is alive"):
            await store.take(RUN, this_driver())
        assert len(await store.read(RUN)) == 40
        owner.send_signal(signal.SIGSTOP)
        with pytest.raises(RunOwnedError):
            await store.take(RUN, this_driver())
        owner.kill()
        owner.wait(HANG_SECONDS)
        return list(await store.take(RUN, this_driver()))

    found = with_store(store, scenario)

    assert found == notes(RUN, 40)
    owner.communicate(timeout=HANG_SECONDS)


def test_a_process_that_wakes_up_after_a_take_over_writes_nothing(path: Path) -> None:
    owner = child(DRIVES, path, RUN, 1)
    assert line_of(owner) == "drives"
    # As if it were out of sight, and silent.
    by_hand(path, "UPDATE runs SET driver = ?, beat = 0", [_json(unseen_driver())])
    store = SqliteStore(path)

    async def scenario() -> str:
        found = await store.take(RUN, this_driver())
        out, _ = await asyncio.to_thread(owner.communicate, "\n", HANG_SECONDS)
        await store.commit(notes(RUN, 1, after=len(found)))
        return out

    said = with_store(store, scenario)

    assert f"run 'fix-42' is driven by {describe(this_driver())}" in said
    assert by_hand(path, "SELECT count(*) FROM facts") == [(21,)]


def _json(driver: Driver) -> str:
    return msgspec.json.encode(driver).decode()


def test_two_processes_write_runs_of_their_own_past_a_third_one_s_lock(path: Path) -> None:
    asyncio.run(_create(path))
    with closing(sqlite3.connect(path, isolation_level=None)) as third:
        third.execute("BEGIN IMMEDIATE")
        processes = [child(DRIVES, path, f"run {number}", 10) for number in range(2)]
        third.execute("COMMIT")
    for process in processes:
        assert line_of(process) == "drives"
        out, err = process.communicate("\n", timeout=HANG_SECONDS)
        assert out.strip() == "wrote", err

    counts = by_hand(path, "SELECT run, count(*), max(seq) FROM journal GROUP BY run")

    assert counts == [("run 0", 201, 201), ("run 1", 201, 201)]


async def _create(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.close()


# Who is dead.


@needs_proc
def test_this_process_is_alive_and_named_exactly() -> None:
    here = this_driver()

    assert is_dead(here) is False
    assert here.pid == os.getpid()
    assert all((here.host, here.boot, here.started, here.namespace))


def _but(**changes: Any) -> Driver:
    return msgspec.structs.replace(this_driver(), **changes)


@needs_proc
@pytest.mark.parametrize(
    ("changes", "dead"),
    [
        ({"started": "1"}, True),
        ({"boot": "before the restart"}, True),
        ({"boot": "another", "host": "elsewhere"}, None),
        ({"host": "renamed"}, False),
        ({"namespace": "pid:[1]"}, None),
        ({"boot": ""}, None),
        ({"pid": 2**40}, None),
    ],
)
def test_death_is_known_only_by_boot_namespace_pid_and_start(
    changes: dict[str, Any], dead: bool | None
) -> None:
    assert is_dead(_but(**changes)) is dead


@needs_proc
def test_a_process_that_has_ended_is_dead_reaped_or_not() -> None:
    assert is_dead(dead_driver()) is True
    process = child("print('up', flush=True); input()")
    line_of(process)
    driver = _but(pid=process.pid, started=_started(process.pid))
    assert is_dead(driver) is False

    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    assert is_dead(driver) is True  # a zombie
    process.communicate(timeout=HANG_SECONDS)
    assert is_dead(driver) is True


def _started(pid: int) -> str:
    found = lease._look_up(pid)
    assert found is not None
    return found[1]


@needs_proc
def test_a_process_of_another_user_is_seen_where_proc_shows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forbidden(pid: int, signal_number: int) -> None:
        raise PermissionError

    here = this_driver()
    monkeypatch.setattr(os, "kill", forbidden)

    assert is_dead(here) is False


def test_without_proc_a_pid_that_exists_tells_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = dead_driver().pid
    monkeypatch.setattr(lease, "_PROC", tmp_path)
    here = this_driver()

    assert (here.boot, here.started, here.namespace) == ("", "", "")
    assert is_dead(here) is None
    assert is_dead(_but(pid=gone)) is True
    assert is_dead(_but(pid=gone, host="elsewhere")) is None


def test_where_signals_are_other_things_nothing_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_PROC", tmp_path)
    monkeypatch.setattr(lease, "os", _Elsewhere())

    assert is_dead(this_driver()) is None


class _Elsewhere:
    name = "nt"

    def getpid(self) -> int:
        return os.getpid()


def test_an_owner_in_the_way_is_described() -> None:
    this = owner_in_the_way(this_driver(), silent_seconds=1e9)
    unseen = owner_in_the_way(unseen_driver(), silent_seconds=12, lease_seconds=30)

    assert this == (
        f"this very process {os.getpid()} on host {this_driver().host!r}; "
        "leave the run there before it is taken again"
    )
    assert unseen == (
        "process 4242 on host 'elsewhere', which cannot be looked at from here; "
        "last heard of 12 s ago, it loses the run after 30 s of silence"
    )
    assert owner_in_the_way(unseen_driver(), silent_seconds=31, lease_seconds=30) is None
    assert owner_in_the_way(dead_driver(), silent_seconds=0) is None


# A file that is taken away.


@pytest.mark.parametrize("gone", ["", "-wal"])
@pytest.mark.parametrize("rows", [1, 3 * LARGEST])
@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_is_taken_away_takes_no_fact_with_it_that_was_acknowledged(
    path: Path, gone: str, rows: int, *, replaced: bool
) -> None:
    store = SqliteStore(path)

    async def scenario() -> None:
        await store.take(RUN, this_driver())
        await store.commit(notes(RUN, 1))
        file = path.with_name(path.name + gone)
        aside = file.rename(path.with_name("aside"))
        if replaced:
            file.write_bytes(aside.read_bytes())
        with pytest.raises(JournalError, match=r"was removed or replaced while it was open"):
            await store.commit(notes(RUN, rows, after=1))
        with pytest.raises(JournalError, match="takes nothing more since"):
            await store.commit(notes(RUN, 1, after=1 + rows))
        aside.replace(file)

    with_store(store, scenario)

    assert by_hand(path, "SELECT min(place & 4294967295) FROM facts") == [(1,)]
