"""Damage done to a journal afterwards: found, named, and given up only by a human."""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from laneway.engine.cli.app import app
from laneway.errors import (
    DamagedJournalError,
    JournalError,
    RunOwnedError,
    UnknownRunError,
    UsageError,
)
from laneway.facts import LossAccepted, MessageSaid, Row, TurnClosed
from laneway.ids import RunId
from laneway.journal.lease import this_driver
from laneway.journal.loss import accept_loss
from laneway.journal.spill import SPILL_BYTES, values_folder
from laneway.journal.sqlite import SqliteStore
from laneway.journal.verify import Anchor, verify
from laneway.testing.sample_facts import notes, numbered

RUN, OTHER = RunId("r"), RunId("other")
FACTS = 300


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal with two runs of 300 facts each."""
    file = tmp_path / "runs.db"

    async def write() -> None:
        store = SqliteStore(file)
        await store.open()
        for run in (OTHER, RUN):
            await store.take(run, this_driver())
            await store.commit(notes(run, FACTS))
        await store.close()

    asyncio.run(write())
    return file


def by_hand(path: Path, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(sql, parameters).fetchall()


def taken(path: Path, run: RunId = RUN) -> Sequence[Row]:
    async def main() -> Sequence[Row]:
        store = SqliteStore(path)
        await store.open()
        try:
            return await store.take(run, this_driver())
        finally:
            await store.close()

    return asyncio.run(main())


def command(path: Path, *arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["verify", *arguments, "--journal", str(path)])
    return done.exit_code, done.output


def test_a_whole_journal_is_whole_and_says_how_far_each_run_has_come(path: Path) -> None:
    found = verify(path)

    assert found.whole
    assert [(one.run, one.facts) for one in found.runs] == [(OTHER, FACTS), (RUN, FACTS)]
    code, said = command(path)
    assert code == 0
    assert f"✓ r  {FACTS} facts, {FACTS}:{found.runs[1].hash}" in said


def test_verifying_changes_nothing(path: Path) -> None:
    before = path.read_bytes()

    verify(path)

    assert path.read_bytes() == before
    assert [one.name for one in path.parent.iterdir()] == ["runs.db"]


@pytest.mark.parametrize(
    ("damage", "whole", "behind"),
    [
        ("DELETE FROM facts WHERE place & 4294967295 = 100", 99, 200),
        ("UPDATE facts SET body = 'garbage' WHERE place & 4294967295 = 200", 199, 101),
        ("UPDATE facts SET wall = 0 WHERE place & 4294967295 = 300", 299, 1),
        ("DELETE FROM facts WHERE place & 4294967295 < 3", 0, 298),
    ],
)
def test_a_damaged_run_is_named_and_goes_on_only_when_its_loss_is_accepted(
    path: Path, damage: str, whole: int, behind: int
) -> None:
    by_hand(path, damage + " AND place >> 32 = 2")

    found = verify(path)

    assert not found.whole
    assert [one.whole for one in found.runs] == [True, False]
    assert (found.runs[1].facts, found.runs[1].lost) == (whole, behind)
    with pytest.raises(DamagedJournalError, match=f"fact {whole + 1}"):
        taken(path)
    assert accept_loss(path, RUN, by="ann") == behind
    rows = taken(path)
    assert list(rows[:whole]) == notes(RUN, whole)
    assert rows[whole].fact == LossAccepted(lost=behind, by="ann")
    assert len(rows) == whole + 1
    assert verify(path).whole
    kept = by_hand(path, "SELECT count(*) FROM lost WHERE run = 'r'")
    assert kept == [(behind,)], "what was given up is still there for a human to read"
    assert accept_loss(path, RUN) == 0, "there is nothing more to give up"


def test_a_lost_end_is_told_only_by_somebody_who_remembers_it(path: Path) -> None:
    anchor = verify(path, run=RUN).runs[0].anchor
    by_hand(path, "DELETE FROM facts WHERE place > (2 << 32) + 250 AND place >> 32 = 2")

    assert verify(path).whole
    found = verify(path, run=RUN, expect=anchor)

    assert found.runs[0].damage == (
        "run 'r': its end is missing: fact 300 was there once, and the last one is 250"
    )
    code, said = command(path, "r", "--expect", str(anchor))
    assert code == 1
    assert "its end is missing" in said


def test_what_was_remembered_of_a_run_that_went_on_still_fits(path: Path) -> None:
    anchor = verify(path, run=RUN).runs[0].anchor

    async def go_on() -> None:
        store = SqliteStore(path)
        await store.open()
        await store.take(RUN, this_driver())
        await store.commit(notes(RUN, 5, after=FACTS))
        await store.close()

    asyncio.run(go_on())

    assert verify(path, run=RUN, expect=anchor).whole
    cut = Anchor.read(f"{anchor.seq}:{anchor.hash[:8].upper()}")
    assert verify(path, run=RUN, expect=cut).whole


def test_another_history_than_the_remembered_one_is_told(path: Path) -> None:
    found = verify(path, run=RUN, expect=Anchor(FACTS, "0" * 32))

    assert "is another one than was expected: its hash is" in found.runs[0].damage


@pytest.mark.parametrize("text", ["", "12", "0:9f86d081", "12:9f86", "12:xyzxyzxy", "-1:9f86d081"])
def test_what_is_no_anchor_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match=r"is no anchor; give a sequence number and its hash"):
        Anchor.read(text)


def page_of(path: Path, seq: int) -> int:
    """Find a page of the file that holds a fact of the run."""
    text = f'"{RUN} {seq}"'.encode()
    return path.read_bytes().index(text) // 4096


def test_a_garbage_page_is_found_and_what_is_before_it_stays_readable(path: Path) -> None:
    page = page_of(path, 200)
    whole = bytearray(path.read_bytes())
    whole[page * 4096 : (page + 1) * 4096] = b"\xa5" * 4096
    path.write_bytes(whole)

    found = verify(path)

    assert found.file
    broken = found.runs[1]
    assert 0 < broken.facts <= 200
    with pytest.raises(DamagedJournalError) as damage:
        taken(path)
    assert list(damage.value.whole) == notes(RUN, broken.facts)
    assert accept_loss(path, RUN, by="ann") >= 1
    rows = taken(path)
    assert list(rows[: broken.facts]) == notes(RUN, broken.facts)
    assert isinstance(rows[-1].fact, LossAccepted)
    assert verify(path).whole
    assert list(taken(path, OTHER)) == notes(OTHER, FACTS)
    assert b"\xa5" * 4096 in path.with_name("runs.db.damaged").read_bytes()


def test_of_a_garbage_page_under_two_runs_only_the_named_one_is_given_up(path: Path) -> None:
    whole = bytearray(path.read_bytes())
    for run in (RUN, OTHER):
        page = path.read_bytes().index(f'"{run} 200"'.encode()) // 4096
        whole[page * 4096 : (page + 1) * 4096] = b"\xa5" * 4096
    path.write_bytes(whole)

    accept_loss(path, RUN)

    taken(path)
    with pytest.raises(DamagedJournalError, match="it is missing"):
        taken(path, OTHER)
    accept_loss(path, OTHER)
    assert verify(path).whole


def test_a_file_cut_short_loses_no_run_that_is_whole_in_silence(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 2 // 3 // 4096 * 4096])

    found = verify(path)

    assert not found.whole
    assert found.file
    for run in found.runs:
        assert not run.whole or run.facts == FACTS
        with pytest.raises(JournalError, match="laneway verify"):
            taken(path, run.run)
        accept_loss(path, run.run)
        rows = taken(path, run.run)
        assert list(rows[: run.facts]) == notes(run.run, run.facts)
        assert len(rows) == run.facts + (not run.whole)
    assert verify(path).whole


def test_a_run_that_somebody_drives_is_not_mended_under_its_hands(path: Path) -> None:
    by_hand(path, "DELETE FROM facts WHERE place = (2 << 32) + 100")

    async def main() -> None:
        store = SqliteStore(path)
        await store.open()
        await store.take(OTHER, this_driver())
        assert await asyncio.to_thread(accept_loss, path, RUN) == 200
        by_hand(path, "DELETE FROM facts WHERE place = (1 << 32) + 100")
        with pytest.raises(RunOwnedError, match="run 'other' is driven by"):
            await asyncio.to_thread(accept_loss, path, OTHER)
        await store.close()

    asyncio.run(main())


def test_a_missing_large_value_is_damage_that_can_be_given_up(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"

    async def write() -> None:
        store = SqliteStore(path)
        await store.open()
        await store.take(RUN, this_driver())
        facts = [row.fact for row in notes(RUN, 3)]
        large = MessageSaid(message="x" * (SPILL_BYTES + 1))
        await store.commit(numbered(RUN, [*facts, large, *facts]))
        await store.close()

    asyncio.run(write())
    for file in values_folder(path).rglob("*"):
        if file.is_file():
            file.unlink()

    assert verify(path).runs[0].facts == 3
    assert accept_loss(path, RUN) == 4
    assert verify(path).whole


def test_the_command_gives_up_only_what_is_named(path: Path) -> None:
    by_hand(path, "DELETE FROM facts WHERE place = (2 << 32) + 100")

    code, said = command(path)
    assert code == 1
    assert "✗ r  99 whole facts, 99:" in said
    assert "to go on without them: laneway verify r --accept-loss" in said
    assert command(path, "--accept-loss")[0] == 2
    code, said = command(path, "r", "--accept-loss", "--by", "ann")
    assert code == 0
    assert "r: 200 facts were given up" in said
    assert "r: nothing to give up" in command(path, "r", "--accept-loss")[1]
    assert command(path)[0] == 0


def test_what_is_not_there_is_named(path: Path) -> None:
    with pytest.raises(UnknownRunError, match="no run 'nobody'"):
        verify(path, run="nobody")
    with pytest.raises(UnknownRunError, match="no run 'nobody'"):
        accept_loss(path, "nobody")
    with pytest.raises(UsageError, match="--expect is about one run"):
        verify(path, expect=Anchor(1, "00" * 16))
    with pytest.raises(JournalError, match="there is no journal"):
        verify(path.with_name("none.db"))


def test_a_run_whose_facts_contradict_each_other_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"

    async def write() -> None:
        store = SqliteStore(path)
        await store.open()
        await store.take(RUN, this_driver())
        await store.commit(numbered(RUN, [TurnClosed(turn=1)]))
        await store.close()

    asyncio.run(write())

    assert "it tells of" in verify(path).runs[0].damage


@pytest.mark.parametrize("sector", range(20, 200, 12))
@pytest.mark.parametrize("filling", [b"\0", b"\xa5"])
def test_wherever_sectors_are_damaged_the_runs_can_be_given_up_to_where_they_are_whole(
    path: Path, sector: int, filling: bytes
) -> None:
    whole = bytearray(path.read_bytes())
    whole[sector * 512 : (sector + 3) * 512] = filling * 1536
    path.write_bytes(whole[: path.stat().st_size])

    before = verify(path)
    for run in before.runs:
        accept_loss(path, run.run, by="ann")

    after = verify(path)
    assert after.whole, after
    for run in before.runs:
        rows = taken(path, run.run)
        assert list(rows[: run.facts]) == notes(run.run, run.facts)
        assert len(rows) == run.facts + (not run.whole)
    assert not list(path.parent.glob("*.coming"))


def test_where_not_even_the_names_of_runs_can_be_read_a_copy_is_needed(path: Path) -> None:
    whole = bytearray(path.read_bytes())
    whole[4096:8192] = bytes(4096)
    path.write_bytes(whole)

    for attempt in (lambda: verify(path), lambda: accept_loss(path, RUN)):
        with pytest.raises(JournalError, match="go back to a copy"):
            attempt()


def test_a_header_of_a_format_that_there_never_was_is_damage(path: Path) -> None:
    whole = bytearray(path.read_bytes())
    whole[60:64] = bytes(4)
    path.write_bytes(whole)

    with pytest.raises(JournalError, match="its header says format 0, which there never was"):
        taken(path)

    assert [one.name for one in path.parent.iterdir()] == ["runs.db"]
