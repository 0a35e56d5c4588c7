"""A journal kept small: compacted runs are as before, removed ones are gone, copies are whole."""

import asyncio
import json
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import pytest
from typer.testing import CliRunner

from laneway import Effect, Engine, State, tool
from laneway.engine.cli.app import app
from laneway.engine.cli.commands.housekeeping import age_text, seconds, size_text
from laneway.errors import JournalError, UsageError
from laneway.facts import MessageSaid, Row
from laneway.ids import RunId
from laneway.journal import housekeeping
from laneway.journal.archives import packed
from laneway.journal.lease import this_driver
from laneway.journal.overview import lines
from laneway.journal.spill import SPILL_BYTES, values_folder
from laneway.journal.sqlite import SqliteStore
from laneway.journal.verify import verify
from laneway.testing.sample_facts import notes, numbered

GOLDEN = Path(__file__).parent / "golden"
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


def write(path: Path, *runs: str, facts: int = 50, large: bool = False) -> None:
    async def do(store: SqliteStore) -> None:
        for name in runs:
            run = RunId(name)
            await store.take(run, this_driver())
            await store.commit(notes(run, facts))
            if large:
                value = MessageSaid(message=f"{name} " + "x" * SPILL_BYTES)
                await store.commit(numbered(run, [value], after=facts))
            await store.leave(run)

    using(path, do)


def read(path: Path, run: str) -> Sequence[Row]:
    return using(path, lambda store: store.read(RunId(run)))


def ids(*runs: str) -> list[RunId]:
    return [RunId(run) for run in runs]


def by_hand(path: Path, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(sql, parameters).fetchall()


def command(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, arguments)
    return done.exit_code, done.output


@tool(effect=Effect.READ, claims=[])
async def look() -> str:
    return "seen"


@tool(effect=Effect.READ, claims=[], approval=True)
async def ask() -> str:
    return "asked"


def play(path: Path, run: str, *tools: str) -> None:
    calls = [{"id": name, "tool": name, "arguments": {}} for name in tools]

    async def main() -> None:
        async with Engine([look, ask], journal=path) as engine, engine.run(run) as entered:
            await entered.submit({"calls": calls}, wait="ask" not in tools)

    asyncio.run(main())


# Compacting


def test_a_compacted_run_is_read_and_listed_as_before_and_takes_less_room(path: Path) -> None:
    write(path, "a", "b", facts=500)
    before, listed = read(path, "a"), using(path, SqliteStore.runs)

    done = housekeeping.compact(path, ids("a"))

    assert done == housekeeping.Compacted(runs=1)
    assert read(path, "a") == before
    assert using(path, SqliteStore.runs) == listed
    assert by_hand(path, "SELECT count(*) FROM facts") == [(500,)]
    ((packed,),) = by_hand(path, "SELECT length(body) FROM archives")
    ((plain,),) = by_hand(path, "SELECT sum(length(body)) FROM facts")
    assert packed < plain / 2
    assert verify(path).whole


def test_a_compacted_run_goes_on_where_it_was(path: Path) -> None:
    play(path, "r", "look")
    before = read(path, "r")
    housekeeping.compact(path, ids("r"))

    play(path, "r", "look", "look")

    assert read(path, "r")[: len(before)] == before
    assert by_hand(path, "SELECT count(*) FROM archives") == [(0,)]
    assert verify(path).whole


def test_whoever_dies_while_a_run_is_unpacked_loses_nothing(path: Path) -> None:
    write(path, "a")
    before = read(path, "a")
    housekeeping.compact(path, ids("a"))
    archive = by_hand(path, "SELECT * FROM archives")
    write_on = notes(RunId("a"), 5, after=50)

    async def go_on(store: SqliteStore) -> None:
        await store.take(RunId("a"), this_driver())
        await store.commit(write_on)

    using(path, go_on)
    by_hand(path, "INSERT INTO archives VALUES (?, ?, ?, ?, ?, ?)", archive[0])

    assert [*before, *write_on] == list(read(path, "a"))
    assert housekeeping.compact(path, ids("a")).runs == 1
    assert [*before, *write_on] == list(read(path, "a"))


def test_a_run_that_is_driven_or_damaged_is_left_as_it_is(path: Path) -> None:
    write(path, "a", "b", "c")
    by_hand(path, "UPDATE facts SET wall = 0 WHERE place = (2 << 32) + 7")

    async def do(store: SqliteStore) -> housekeeping.Compacted:
        await store.take(RunId("a"), this_driver())
        return await asyncio.to_thread(housekeeping.compact, path, ids("a", "b", "c"))

    done = using(path, do)

    assert done.runs == 1
    (damage,) = done.damaged
    assert "run 'b', fact 7: its hash does not fit" in damage
    assert by_hand(path, "SELECT run FROM archives") == [(3,)]


def test_what_is_below_the_calls_of_a_run_is_compacted_with_it(path: Path) -> None:
    write(path, "a", "a/t1.1/1", "a/t1.1/1/t1.1/1", "a0", "ab")

    assert housekeeping.compact(path, ids("a")).runs == 3


def test_a_changed_archive_is_damage(path: Path) -> None:
    write(path, "a")
    housekeeping.compact(path, ids("a"))
    ((whole,),) = by_hand(path, "SELECT body FROM archives")
    others = packed([(1, 1.0, 2.0, b"", b'{"fact":"message_said","message":"other"}')])
    for body, says in ((b"x", "its archive cannot be read"), (others, "its archive was changed")):
        by_hand(path, "UPDATE archives SET body = ?", (body,))

        with pytest.raises(JournalError, match=f"fact 1: {says}"):
            read(path, "a")
        assert says in verify(path).runs[0].damage

    by_hand(path, "UPDATE archives SET body = ?", (whole,))
    assert verify(path).whole


# Removing


def test_removed_runs_are_gone_with_what_is_below_them_and_their_values(path: Path) -> None:
    write(path, "a", "a/t1.1/1", "b", large=True)
    hours_ago = time.time() - 2 * housekeeping.SETTLED_SECONDS
    for file in values_folder(path).glob("*/*"):
        os.utime(file, (hours_ago, hours_ago))
    kept = read(path, "b")

    assert housekeeping.remove(path, ids("a")) == 2

    assert [one.run for one in using(path, SqliteStore.runs)] == ["b"]
    assert read(path, "b") == kept
    assert len(list(values_folder(path).glob("*/*"))) == 1
    assert verify(path).whole


def test_a_value_that_may_be_about_to_be_needed_stays(path: Path) -> None:
    write(path, "a", large=True)

    housekeeping.remove(path, ids("a"))

    assert len(list(values_folder(path).glob("*/*"))) == 1


def test_the_values_of_compacted_and_of_given_up_facts_stay(path: Path) -> None:
    write(path, "a", "b", large=True)
    housekeeping.compact(path, ids("b"))
    hours_ago = time.time() - 2 * housekeeping.SETTLED_SECONDS
    for file in values_folder(path).glob("*/*"):
        os.utime(file, (hours_ago, hours_ago))
    kept = read(path, "b")

    housekeeping.remove(path, ids("a"))

    assert read(path, "b") == kept


def test_a_driven_run_is_not_removed(path: Path) -> None:
    write(path, "a")

    async def do(store: SqliteStore) -> int:
        await store.take(RunId("a"), this_driver())
        return await asyncio.to_thread(housekeeping.remove, path, ids("a"))

    assert using(path, do) == 0
    assert read(path, "a")


def test_only_finished_and_idle_runs_are_old(path: Path) -> None:
    play(path, "done", "look")
    play(path, "asks", "ask")
    write(path, "done/t1.1/1")
    later = time.time() + 100

    def old(**options: Any) -> list[str]:
        return [one.run for one in housekeeping.old_runs(path, idle_seconds=50, **options)]

    assert old() == []
    assert old(now=later) == ["done"]
    assert old(now=later, unfinished=True) == ["done", "asks"]


def test_vacuum_gives_the_room_back(path: Path) -> None:
    write(path, "a", "b", facts=2_000)
    housekeeping.remove(path, ids("a"))
    before = path.stat().st_size

    given = housekeeping.vacuum(path)

    assert given > before / 4
    assert path.stat().st_size == before - given
    assert len(read(path, "b")) == 2_000


def test_a_busy_journal_is_told_and_left(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "BUSY_SECONDS", 0.05)
    write(path, "a")

    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(JournalError, match="another program holds its lock"):
            housekeeping.compact(path, ids("a"))


# Copies


def test_a_copy_made_while_the_journal_is_written_is_whole_and_free(path: Path) -> None:
    write(path, "a", large=True)
    copy = path.with_name("copy.db")

    async def do(store: SqliteStore) -> None:
        await store.take(RunId("b"), this_driver())
        writing = True

        async def go_on() -> None:
            at = 0
            while writing:
                await store.commit(notes(RunId("b"), 20, after=at))
                at += 20

        other = asyncio.create_task(go_on())
        await asyncio.to_thread(housekeeping.back_up, path, copy)
        writing = False
        await other

    using(path, do)

    assert verify(copy).whole
    assert read(copy, "a") == read(path, "a")
    together = len(read(copy, "b"))
    assert together % 20 == 0
    assert list(read(copy, "b")) == list(read(path, "b"))[:together]
    assert by_hand(copy, "SELECT driver FROM runs") == [(None,), (None,)]


def test_a_copy_overwrites_nothing_and_leaves_nothing_half_made(path: Path) -> None:
    write(path, "a")

    with pytest.raises(JournalError, match="is there already; name a new file"):
        housekeeping.back_up(path, path)
    with pytest.raises(JournalError, match=r"there is no folder .*/none for the copy"):
        housekeeping.back_up(path, path.with_name("none") / "copy.db")
    assert [one.name for one in path.parent.iterdir()] == ["runs.db"]


# The command line


def test_runs_are_listed_with_how_they_stand_their_size_and_their_age(path: Path) -> None:
    play(path, "asks", "ask")
    play(path, "done", "look")
    write(path, "old")
    housekeeping.compact(path, ids("old"))

    code, said = command("runs", "--journal", str(path))

    old, done, asks = said.splitlines()
    assert code == 0
    assert old.startswith("old  compacted  50 facts  ")
    assert done.startswith("done  at rest  6 facts  ")
    assert asks.startswith("asks  open turn  ")
    assert "B  opened " in done
    assert "last fact " in done
    entries = json.loads(command("runs", "--journal", str(path), "--json")[1])
    assert [one["open_turn"] for one in entries] == [False, False, True]
    assert all(one["bytes"] > 0 for one in entries)


def test_a_long_list_is_cut_and_says_so(path: Path) -> None:
    write(path, *(f"r{n}" for n in range(7)), facts=1)

    code, said = command("runs", "--journal", str(path), "--limit", "3")

    assert code == 0
    assert [line.split()[0] for line in said.splitlines()] == ["r6", "r5", "r4", "…"]
    assert "and 4 more: laneway runs --limit 0" in said
    assert len(command("runs", "--journal", str(path), "--limit", "0")[1].splitlines()) == 7


def test_a_run_that_a_process_drives_is_listed_with_it(path: Path) -> None:
    write(path, "a")

    async def do(store: SqliteStore) -> str:
        await store.take(RunId("a"), this_driver())
        return await asyncio.to_thread(lambda: command("runs", "--journal", str(path))[1])

    assert f"driven by process {os.getpid()} on host" in using(path, do)
    dead = '{"host":"h","boot":"b","pid":1,"started":"1"}'
    by_hand(path, "UPDATE runs SET driver = ?", (dead,))
    assert "driven by process 1 on host 'h'" in command("runs", "--journal", str(path))[1]
    assert lines(path)[0].driver is not None


def test_the_list_of_an_older_journal_brings_it_up_to_date(path: Path) -> None:
    path.write_bytes((GOLDEN / "format-1.db").read_bytes())

    assert command("verify", "--journal", str(path))[0] == 2
    assert command("runs", "--journal", str(path))[0] == 0
    assert command("verify", "--journal", str(path))[0] == 0


def test_the_commands_do_what_they_say(path: Path) -> None:
    play(path, "done", "look")
    play(path, "asks", "ask")
    journal = ("--journal", str(path))

    assert "0 runs compacted" in command("compact", *journal)[1]
    assert "1 run compacted" in command("compact", "--older-than", "0s", *journal)[1]
    assert (
        "1 run would be removed" in command("prune", "--older-than", "0s", "--dry-run", *journal)[1]
    )
    assert command("backup", str(path.with_name("copy.db")), *journal)[0] == 0
    assert "1 run removed" in command("prune", "--older-than", "0s", *journal)[1]
    assert "smaller" in command("vacuum", *journal)[1]
    assert [one.run for one in lines(path)] == ["asks"]
    assert "1 run removed" in command("prune", "--older-than", "0s", "--unfinished", *journal)[1]
    assert [one.run for one in lines(path.with_name("copy.db"))] == ["asks", "done"]


def test_a_damaged_run_fails_the_command_and_not_the_others(path: Path) -> None:
    write(path, "a", "b")
    by_hand(path, "UPDATE facts SET mono = 0 WHERE place = (1 << 32) + 7")

    code, said = command("compact", "--older-than", "0s", "--journal", str(path))

    assert code == 1
    assert "1 run compacted" in said
    assert "run 'a', fact 7" in said


@pytest.mark.parametrize("text", ["", "7", "d", "7y", "-1d", "1d2h"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"is no time; give a number and a unit: 45s"):
        seconds(text)


def test_times_and_sizes_are_told_in_one_unit() -> None:
    assert [seconds(text) for text in ("45s", "1.5m", "2w")] == [45.0, 90.0, 1_209_600.0]
    assert [age_text(past) for past in (0.2, 45, 3_700, 90_000, 999_999)] == [
        "now",
        "45s",
        "1h",
        "1d",
        "11d",
    ]
    assert [size_text(size) for size in (5, 2_048, 5 << 20, 3 << 30)] == [
        "5 B",
        "2.0 KB",
        "5.0 MB",
        "3.0 GB",
    ]


def test_the_state_of_an_interrupted_run_is_told_from_its_last_facts(path: Path) -> None:
    play(path, "asks", "ask")

    assert [one.open_turn for one in lines(path)] == [True]

    async def host() -> None:
        async with Engine([look, ask], journal=path) as engine, engine.run("asks") as run:
            await run.approve("ask")
            turn = await run.finish()
            assert turn is not None
            assert turn.call("ask").state is State.SUCCEEDED

    asyncio.run(host())

    assert [one.open_turn for one in lines(path)] == [False]


def test_a_run_whose_facts_are_gone_is_listed_all_the_same(path: Path) -> None:
    write(path, "a", "b")
    by_hand(path, "DELETE FROM facts WHERE place >> 32 = 1")

    code, said = command("runs", "--journal", str(path))

    assert code == 0
    assert "a  no facts: only just made, or damaged (see `laneway verify`)" in said
    assert [one.run for one in housekeeping.old_runs(path, idle_seconds=0.0)] == ["b"]
