"""Large values become files beside the journal, and come back as what they were."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from laneway.errors import DamagedJournalError, JournalError
from laneway.facts import CallEnded, MessageSaid, Row
from laneway.ids import CallId, RunId
from laneway.journal import spill
from laneway.journal.lease import this_driver
from laneway.journal.spill import SPILL_BYTES
from laneway.journal.sqlite import SqliteStore
from laneway.outcomes import Success
from laneway.states import State
from laneway.testing.sample_facts import numbered

RUN = RunId("r")
LARGE = "é" * SPILL_BYTES

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


def keep(path: Path, rows: Sequence[Row]) -> None:
    async def do(store: SqliteStore) -> None:
        await store.take(RUN, this_driver())
        await store.commit(rows)

    using(path, do)


def read(path: Path) -> Sequence[Row]:
    return using(path, lambda store: store.read(RUN))


def files(path: Path) -> list[Path]:
    return sorted(one for one in spill.values_folder(path).rglob("*") if one.is_file())


def large_rows() -> list[Row]:
    ended = CallEnded(call=CallId("t1.1"), state=State.SUCCEEDED, outcome=Success(value=LARGE))
    return numbered(RUN, [MessageSaid(message="small"), ended, MessageSaid(message=LARGE), ended])


def test_a_large_fact_comes_back_as_it_was_and_is_no_row_of_the_file(path: Path) -> None:
    keep(path, large_rows())

    assert read(path) == large_rows()
    assert path.stat().st_size < SPILL_BYTES
    assert len(files(path)) == 2, "the same value is kept once"


def test_people_see_in_the_journal_what_a_large_fact_is(path: Path) -> None:
    keep(path, large_rows())

    with sqlite3.connect(path) as connection:
        seen = connection.execute("SELECT seq, kind, call FROM journal").fetchall()
    connection.close()
    assert seen == [
        (1, "message_said", None),
        (2, "call_ended", "t1.1"),
        (3, "message_said", None),
        (4, "call_ended", "t1.1"),
    ]


def test_small_facts_make_no_files(path: Path) -> None:
    keep(path, large_rows()[:1])

    assert not spill.values_folder(path).exists()


def test_a_value_whose_file_is_missing_is_damage_and_what_is_before_it_stays(path: Path) -> None:
    keep(path, large_rows())
    for file in files(path):
        file.unlink()

    with pytest.raises(DamagedJournalError, match=r"fact 2: its value is in .*cannot be read") as e:
        read(path)

    assert list(e.value.whole) == large_rows()[:1]


def test_a_value_whose_file_was_changed_is_damage(path: Path) -> None:
    keep(path, large_rows())
    for file in files(path):
        file.write_bytes(file.read_bytes()[:-1] + b" ")

    with pytest.raises(DamagedJournalError, match="not what was written there"):
        read(path)


def test_a_value_that_cannot_be_written_stops_the_commit_and_loses_nothing(path: Path) -> None:
    spill.values_folder(path).write_text("in the way")

    async def do(store: SqliteStore) -> None:
        await store.take(RUN, this_driver())
        await store.commit(large_rows()[:1])
        with pytest.raises(JournalError, match="a large value could not be written to"):
            await store.commit(large_rows()[1:2])

    using(path, do)

    assert read(path) == large_rows()[:1]


def test_a_file_that_cannot_be_completed_leaves_nothing_behind(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)

    with pytest.raises(JournalError, match="No space left on device"):
        spill.spilled(spill.values_folder(path), b'{"fact":"message_said","message":1}')

    assert files(path) == []


def test_a_half_written_file_of_that_name_is_written_again(path: Path) -> None:
    body = b'{"fact":"message_said","message":"' + b"x" * 100 + b'"}'
    folder = spill.values_folder(path)
    spill.spilled(folder, body)
    (file,) = files(path)
    file.write_bytes(body[:50])

    stands_for = spill.spilled(folder, body)

    assert spill.unspilled(folder, stands_for) == body


def test_a_name_that_leads_out_of_the_folder_is_no_value(path: Path) -> None:
    secret = path.with_name("secret")
    secret.write_text("{}")
    stands_for: dict[str, Any] = {
        "fact": "spilled",
        "was": "x",
        "sha256": "../../secret",
        "bytes": 2,
    }
    with pytest.raises(ValueError, match="no name of a value"):
        spill.unspilled(spill.values_folder(path), msgspec.json.encode(stands_for))
