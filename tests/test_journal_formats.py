"""Journals of every format there has been open for ever; h-jrn-2 in all its parts."""

import asyncio
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from laneway import Effect, Engine, State, Turn, tool
from laneway.engine.reexecution import Reexecution, reexecute
from laneway.engine.run import Run
from laneway.errors import ForeignJournalError, JournalError, NewerJournalError
from laneway.ids import RunId
from laneway.journal import upgrade as upgrading
from laneway.journal.fold import RunView, fold
from laneway.journal.lease import this_driver
from laneway.journal.migrate import FORMAT, open_file
from laneway.journal.sqlite import SqliteStore
from laneway.journal.upgrade import copy_of

GOLDEN = Path(__file__).parent / "golden"
FORMATS = range(1, FORMAT + 1)


@pytest.fixture(params=FORMATS)
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the recorded journal of a format."""
    return golden(request.param, tmp_path)


def golden(number: int, folder: Path) -> Path:
    path = folder / "runs.db"
    shutil.copyfile(GOLDEN / f"format-{number}.db", path)
    return path


@tool(effect=Effect.READ, claims=["read file:{path}"])
async def read_note(path: str) -> str:
    return f"note of {path}"


@tool(effect=Effect.WRITE, idempotent=True, claims=["write file:{path}"])
async def write_note(path: str, text: str) -> int:
    raise AssertionError(f"{path} was written once: {text}")


@tool(effect=Effect.EXTERNAL, approval=True, claims=["lane:ship"])
async def deploy(version: int) -> str:
    return f"deployed {version}"


@tool(effect=Effect.EXTERNAL, claims=["lane:bank"])
async def pay(amount: int) -> str:
    raise AssertionError(f"{amount} was paid once")


TOOLS: list[Any] = [read_note, write_note, deploy, pay]


def views(path: Path) -> dict[str, RunView]:
    async def read() -> dict[str, RunView]:
        store = SqliteStore(path)
        await store.open()
        try:
            entries = await store.runs()
            return {one.run: fold(one.run, await store.read(one.run)) for one in entries}
        finally:
            await store.close()

    return asyncio.run(read())


def enter(path: Path, run: str, host: Callable[[Run], Any]) -> Any:
    async def main() -> Any:
        async with (
            Engine(TOOLS, journal=path, workspace="/w") as engine,
            engine.run(run) as entered,
        ):
            return await host(entered)

    return asyncio.run(main())


def rows_of(path: Path) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT run, seq, kind, wall, mono, body FROM journal").fetchall()


def test_every_format_has_a_recorded_journal() -> None:
    assert sorted(one.name for one in GOLDEN.glob("*.db")) == [f"format-{n}.db" for n in FORMATS]


def test_h_jrn_2_a_finished_run_of_an_older_format_reads_as_before(journal: Path) -> None:
    finished = views(journal)["finished"]

    assert [turn.closed for turn in finished.turns] == [True, True]
    states = {one.record.provider_id: one.state for one in finished.calls.values()}
    assert states == {
        "c1": State.SUCCEEDED,
        "c2": State.SUCCEEDED,
        "c3": State.FAILED,
        "c4": State.SUCCEEDED,
    }
    history = enter(journal, "finished", _history)
    assert history[0]["content"] == "Keep a note."
    assert history[1]["content"][1]["input"] == {"path": "a.txt", "text": "Grüße 😀"}
    assert history[2]["content"][1]["content"] == "note of a.txt"


async def _history(run: Run) -> list[dict[str, Any]]:
    return run.history()


def test_h_jrn_2_an_open_approval_of_an_older_format_can_be_answered(journal: Path) -> None:
    async def host(run: Run) -> Turn | None:
        (question,) = run.approvals
        assert question.arguments == {"version": 7}
        await run.approve(question.id, by="ann")
        return await run.finish()

    turn = enter(journal, "asks", host)

    assert turn.call("d").state is State.SUCCEEDED
    assert turn.call("d").outcome.value == "deployed 7"


def test_what_an_older_laneway_left_running_is_settled_by_its_effect(journal: Path) -> None:
    async def host(run: Run) -> Turn | None:
        return await run.finish()

    turn = enter(journal, "died", host)

    assert {name: turn.call(name).state for name in "qpz"} == {
        "q": State.SUCCEEDED,
        "p": State.UNCERTAIN,
        "z": State.SKIPPED,
    }


def test_h_jrn_2_an_upgrade_keeps_every_row_once_and_puts_a_copy_aside(tmp_path: Path) -> None:
    path = golden(1, tmp_path)
    before = rows_of(path)
    whole = path.read_bytes()

    views(path)

    assert rows_of(path) == before
    assert copy_of(path, 1).exists()
    assert rows_of(copy_of(path, 1)) == before
    assert len(copy_of(path, 1).read_bytes()) == len(whole)
    assert int.from_bytes(path.read_bytes()[60:64], "big") == FORMAT
    assert sorted(one.name for one in tmp_path.iterdir()) == ["runs.db", "runs.db.format-1"]


def test_an_upgraded_journal_is_upgraded_no_more(tmp_path: Path) -> None:
    path = golden(1, tmp_path)
    views(path)
    copy_of(path, 1).unlink()

    views(path)

    assert not copy_of(path, 1).exists()


STATEMENTS_OF_AN_UPGRADE = 60
"""More than it takes; a test says so."""


def killed_in_upgrade(path: Path, at: int) -> bool:
    """Upgrade in a child that is killed before its n-th statement; say whether it was."""
    pid = os.fork()
    if pid:
        return os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    try:
        seen = 0

        def count(_: str) -> None:
            nonlocal seen
            seen += 1
            if seen == at:
                os.kill(os.getpid(), signal.SIGKILL)

        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.set_trace_callback(count)
            upgrading.upgrade(connection, path, FORMAT)
    finally:
        os._exit(0)


@pytest.mark.parametrize("at", range(1, STATEMENTS_OF_AN_UPGRADE, 3))
def test_h_jrn_2_whoever_dies_in_an_upgrade_finds_every_row_once(tmp_path: Path, at: int) -> None:
    path = golden(1, tmp_path)
    before = rows_of(path)

    killed_in_upgrade(path, at)

    assert rows_of(path) == before
    assert {len(view.calls) for view in views(path).values()} == {4, 1, 3}
    assert rows_of(path) == before


def test_an_upgrade_is_killed_at_every_statement_it_makes(tmp_path: Path) -> None:
    assert killed_in_upgrade(golden(1, tmp_path), 1)
    assert not killed_in_upgrade(golden(1, tmp_path), STATEMENTS_OF_AN_UPGRADE)


def test_a_journal_that_an_older_laneway_works_on_is_left_to_it(tmp_path: Path) -> None:
    path = golden(1, tmp_path)
    here = this_driver()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(
            "UPDATE runs SET driver = json_object('host', ?, 'boot', ?, 'pid', ?, 'started', ?, "
            "'namespace', ?) WHERE name = 'died'",
            (here.host, here.boot, here.pid, here.started, here.namespace),
        )
    before = path.read_bytes()

    with pytest.raises(JournalError, match=r"older format 1, and run 'died' in it is driven by"):
        asyncio.run(SqliteStore(path).open())

    assert path.read_bytes() == before
    assert not copy_of(path, 1).exists()


def test_an_upgrade_that_fails_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = golden(1, tmp_path)
    before = rows_of(path)

    def fails(connection: sqlite3.Connection) -> None:
        connection.execute("DROP VIEW journal")
        connection.execute("DELETE FROM facts")
        connection.execute("SELECT * FROM nowhere")

    monkeypatch.setattr(upgrading, "_STEPS", {1: fails})

    with pytest.raises(JournalError, match=r"could not be made ready .*no such table: nowhere"):
        open_file(path, busy_seconds=1, synchronous="FULL")

    assert rows_of(path) == before


def test_h_jrn_2_a_newer_and_a_foreign_file_are_refused_byte_for_byte(tmp_path: Path) -> None:
    newer, foreign = tmp_path / "newer.db", tmp_path / "foreign.db"
    open_file(newer, busy_seconds=1, synchronous="FULL").close()
    with closing(sqlite3.connect(newer)) as connection:
        connection.execute(f"PRAGMA user_version = {FORMAT + 1}")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with closing(sqlite3.connect(foreign)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    before = {path: path.read_bytes() for path in (newer, foreign)}

    with pytest.raises(NewerJournalError, match=f"format {FORMAT + 1}.*up to {FORMAT}"):
        asyncio.run(SqliteStore(newer).open())
    with pytest.raises(ForeignJournalError, match="not a Laneway journal"):
        asyncio.run(SqliteStore(foreign).open())

    assert {path: path.read_bytes() for path in (newer, foreign)} == before
    assert sorted(one.name for one in tmp_path.iterdir()) == ["foreign.db", "newer.db"]


def test_a_run_that_was_upgraded_is_chained_from_its_first_fact(tmp_path: Path) -> None:
    path = golden(1, tmp_path)
    views(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE facts SET wall = wall + 1 WHERE place & 4294967295 = 2")

    async def read() -> None:
        store = SqliteStore(path)
        await store.open()
        try:
            await store.read(RunId("finished"))
        finally:
            await store.close()

    with pytest.raises(JournalError, match="fact 2: its hash does not fit"):
        asyncio.run(read())


def test_every_recorded_run_is_decided_again_as_it_was(journal: Path) -> None:
    async def again() -> dict[str, Reexecution]:
        store = SqliteStore(journal)
        await store.open()
        try:
            return {
                one.run: await reexecute(await store.read(one.run), workspace="/w")
                for one in await store.runs()
            }
        finally:
            await store.close()

    found = asyncio.run(again())

    assert {run: one.divergence for run, one in found.items()} == dict.fromkeys(found)
    assert all(one.decisions for one in found.values())


def test_another_policy_differs_in_exactly_the_decision_that_it_changes(tmp_path: Path) -> None:
    path = golden(FORMAT, tmp_path)
    rules = tmp_path / "policy.toml"
    rules.write_text('[[rule]]\nname = "no payments"\ntools = ["pay"]\ndecision = "deny"\n')

    async def again() -> dict[str, Reexecution]:
        store = SqliteStore(path)
        await store.open()
        try:
            return {
                one.run: await reexecute(await store.read(one.run), policy=rules, workspace="/w")
                for one in await store.runs()
            }
        finally:
            await store.close()

    found = asyncio.run(again())

    paying = {"finished", "died", "mixed", "mixed/t1.7/1"}
    assert {run for run, one in found.items() if not one.same} == paying
    differing = {run: one.divergence for run, one in found.items() if one.divergence is not None}
    assert {run: one.call for run, one in differing.items()} == {
        "finished": "t2.1",
        "died": "t1.2",
        "mixed": "t1.8/2",
        "mixed/t1.7/1": "t1.1",
    }
    assert all("no payments" in str(one) for one in differing.values())
