"""Power failures, small: nothing acknowledged is lost, nothing is half-applied.

`make power` tries thousands; here stand a few of each kind, and what the tries rest on: the shim,
and the model of a disk.
"""

import random
import struct
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.power.campaigns import CAMPAIGNS, Campaign, Line, carry_out, part, shares
from tests.power.disk import SECTOR, Chance, Disk, Image
from tests.power.failures import Findings, try_failures
from tests.power.faults import strike
from tests.power.operations import MAGIC, Kind, Note, Operation, note_of, recorded
from tests.power.oracle import Found, judged, lay, opened
from tests.power.recording import Player, Recording, build, scratch, why_not
from tests.power.told import Fault, Place, Told

SMALL = {one.name: share for one, share in zip(CAMPAIGNS, shares(70), strict=True)}
"""A share of 70 images."""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with scratch() as made:
        yield made


@pytest.fixture(scope="module")
def player(folder: Path) -> Iterator[Player]:
    if reason := why_not():
        pytest.skip(reason)
    with Player(folder, build(folder)) as playing:
        if not playing.play(batches=1, lives=("closes",)).is_seen:
            pytest.skip("the shim sees nothing of what SQLite does here: a static build?")
        yield playing


@pytest.mark.parametrize(
    "campaign", [one for one in CAMPAIGNS if not one.must_find], ids=lambda one: one.name
)
def test_a_power_failure_loses_nothing_that_was_acknowledged(
    campaign: Campaign, player: Player, folder: Path
) -> None:
    line = carry_out(campaign, player, folder, images=SMALL[campaign.name])

    assert line.wrong == []
    assert line.findings.images >= 1
    assert line.findings.operations["synced"] > 10


@pytest.mark.parametrize(
    "campaign", [one for one in CAMPAIGNS if one.must_find], ids=lambda one: one.name
)
def test_a_store_or_a_disk_with_a_fault_built_in_is_caught(
    campaign: Campaign, player: Player, folder: Path
) -> None:
    line = carry_out(campaign, player, folder, images=20)

    assert line.wrong == []
    assert campaign.must_find & line.findings.faults.keys()


def test_checkpoints_are_among_what_the_power_interrupts(player: Player) -> None:
    assert player.play().checkpoints > 5


@pytest.mark.parametrize("way", ["EIO", "ENOSPC", "full"])
def test_a_write_that_fails_stops_the_journal_and_nothing_further_is_taken(
    way: str, player: Player, folder: Path
) -> None:
    job: dict[str, Any] = {"lives": ("closes", "closes"), "batches": 5}
    at = place(player.play(**job), Kind.WROTE, "runs.db-wal", after=20)

    recording = player.play(**job, fault=f"write:{at}:{way}")
    findings = try_failures(recording, folder, images=8)

    said = notes(recording)
    failed = [one["error"] for one in said if one["note"] == "failed"]
    assert len(failed) >= 2, "what is tried again after a failed commit is refused"
    assert "the disk" in failed[0]
    assert "takes nothing more since a commit failed" in failed[1]
    assert findings.faults == {}


def test_a_sync_that_fails_stops_a_turn_before_any_further_effect(
    player: Player, folder: Path
) -> None:
    job: dict[str, Any] = {"plays": "turns", "lives": ("closes", "closes")}
    at = place(player.play(**job), Kind.SYNCED, "runs.db-wal", after=6)

    recording = player.play(**job, fault=f"sync:{at}:EIO")
    findings = try_failures(recording, folder, images=8)

    said = notes(recording)
    failed = next(n for n, one in enumerate(said) if one["note"] == "failed")
    first_life = next(n for n, one in enumerate(said) if one["note"] == "ended")
    assert not [one for one in said[failed:first_life] if one["note"] == "entered"]
    assert [one for one in said[first_life:] if one["note"] == "entered"], "the next goes on"
    assert findings.faults == {}


def test_a_short_write_is_completed(player: Player, folder: Path) -> None:
    job: dict[str, Any] = {"lives": ("closes",), "batches": 4}
    at = place(player.play(**job), Kind.WROTE, "runs.db-wal", after=10)

    recording = player.play(**job, fault=f"write:{at}:short")

    assert [one for one in recording.operations if one.kind is Kind.FAILED]
    assert {one["note"] for one in notes(recording)} == {"born", "told", "begun", "kept", "ended"}
    assert try_failures(recording, folder, images=8).faults == {}


def test_a_commit_is_not_acknowledged_while_its_sync_is_late(player: Player) -> None:
    job: dict[str, Any] = {"lives": ("closes",), "batches": 6}
    at = place(player.play(**job), Kind.SYNCED, "runs.db-wal", after=6)

    operations = player.play(**job, fault=f"sync:{at}:delay=30").operations

    late = next(n for n, one in enumerate(operations) if one.kind is Kind.FAILED)
    assert operations[late + 1].kind is Kind.SYNCED, "nothing was said in between"


@pytest.mark.parametrize("way", ["EIO", "kill"])
def test_a_large_value_whose_name_may_not_be_there_is_not_taken_for_kept(
    way: str, player: Player, folder: Path
) -> None:
    """The file is there already when the same value is kept again; its folder was not synced."""
    job: dict[str, Any] = {"lives": ("closes", "closes"), "batches": 6, "seed": 3}
    operations = player.play(**job).operations
    syncs = [one for one in operations if one.kind in {Kind.SYNCED, Kind.FOLDER_SYNCED}]
    values = [n for n, one in enumerate(syncs, 1) if one.name.startswith("runs.db-values")]
    if not values:
        pytest.skip("this journal keeps large values in the file itself")

    # The file, its folder, the folder of all values, that of the journal.
    faults = [f"sync:{at}:{way}" for at in range(values[0] + 1, values[0] + 4)]
    struck = strike(player, folder, faults, images=3, job=job)

    assert struck.findings.examples == {}


def test_a_log_whose_name_may_not_be_there_is_not_written_to(player: Player, folder: Path) -> None:
    """SQLite syncs the folder of a new log, and does not look whether that succeeded."""
    job: dict[str, Any] = {"lives": ("closes",), "batches": 4}
    syncs = [one for one in player.play(**job).operations if one.kind is not Kind.NOTED]
    numbered = enumerate((one for one in syncs if one.kind in SYNCS), 1)
    folders = [n for n, one in numbered if one.kind is Kind.FOLDER_SYNCED and not one.name]

    struck = strike(player, folder, [f"sync:{at}:EIO" for at in folders], images=3, job=job)

    assert struck.findings.examples == {}


@pytest.mark.parametrize("at", [1, 2, 3])
def test_an_error_while_the_file_is_opened_is_a_journal_error(at: int, player: Player) -> None:
    recording = player.play(lives=("closes",), batches=2, fault=f"shm:{at}:ENOSPC")

    assert recording.died == ""


SYNCS = {Kind.SYNCED, Kind.FOLDER_SYNCED}


def notes(recording: Recording) -> list[Note]:
    return [note_of(one) for one in recording.operations if one.kind is Kind.NOTED]


def place(recording: Recording, kind: Kind, name: str, *, after: int) -> int:
    """The number that the shim gives an operation: one of a file, after so many of its own.

    Of syncs, only those count that a commit waits for: something is said right after.
    """
    counted = [
        (one, following.kind)
        for one, following in pairwise(recording.operations)
        if one.kind in (SYNCS if kind is Kind.SYNCED else {kind})
    ]
    return [
        number
        for number, (one, then) in enumerate(counted, 1)
        if one.name == name and (kind is not Kind.SYNCED or then is Kind.NOTED)
    ][after]


# The model of a disk.

FILE = 7


def operation(kind: Kind, name: str = "f", **what: Any) -> Operation:
    given: dict[str, Any] = {"inode": FILE, "at": 0, "error": 0, "data": b"", **what}
    return Operation(kind=kind, name=name, **given)


def found(
    *operations: Operation, names: float = 0.0, writes: float = 0.0, torn: float = 0.0
) -> Image:
    disk = Disk()
    for one in operations:
        disk.do(one)
    return disk.image(Chance(dice=random.Random(1), names=names, writes=writes, torn=torn))


CREATED = operation(Kind.CREATED)
WROTE = operation(Kind.WROTE, data=b"new")


def synced(after: int, **what: Any) -> Operation:
    return operation(Kind.SYNCED, at=after, **what)


def folder_synced(after: int, name: str = "") -> Operation:
    return operation(Kind.FOLDER_SYNCED, name, at=after)


def test_a_file_whose_folder_was_not_synced_may_be_missing() -> None:
    steps = (CREATED, WROTE, synced(2))

    assert found(*steps) == {}
    assert found(*steps, names=1.0) == {"f": b"new"}
    assert found(*steps, folder_synced(3)) == {"f": b"new"}


def test_what_was_written_after_a_sync_began_may_be_missing() -> None:
    late = operation(Kind.WROTE, at=3, data=b"er")
    steps = (CREATED, folder_synced(1), WROTE, late, synced(3))

    assert found(*steps) == {"f": b"new"}
    assert found(*steps, writes=1.0) == {"f": b"newer"}


def test_what_a_failed_sync_was_to_cover_is_never_sure() -> None:
    steps = (CREATED, folder_synced(1), WROTE, synced(3, error=5))
    later = operation(Kind.WROTE, at=3, data=b"er")

    assert found(*steps, synced(4)) == {"f": b""}
    assert found(*steps, later, synced(5)) == {"f": b"\0\0\0er"}
    assert found(*steps, later, synced(5), writes=1.0) == {"f": b"newer"}


def test_a_write_is_torn_where_sectors_end() -> None:
    start = SECTOR - 10
    wrote = operation(Kind.WROTE, at=start, data=b"n" * (2 * SECTOR))
    before = operation(Kind.WROTE, data=b"o" * (4 * SECTOR))
    disk = Disk()
    for one in (CREATED, before, synced(2), folder_synced(3), wrote):
        disk.do(one)

    dice = random.Random(2)
    chance = Chance(dice=dice, names=1.0, writes=1.0, torn=1.0)
    seen = {disk.image(chance)["f"] for _ in range(50)}

    parts = [(start, SECTOR), (SECTOR, 2 * SECTOR), (2 * SECTOR, start + 2 * SECTOR)]
    for content in seen:
        assert content is not None
        assert len(content) == 4 * SECTOR
        assert {len(set(content[a:b])) for a, b in parts} == {1}, "each sector is old or new"
        assert set(content[:start] + content[start + 2 * SECTOR :]) == {ord("o")}
    assert len(seen) > 3


def test_a_truncation_and_a_deletion_may_not_have_happened() -> None:
    steps = (CREATED, folder_synced(1), WROTE, synced(3))
    cut = operation(Kind.CUT, at=1)
    grown = operation(Kind.CUT, at=5)

    assert found(*steps, cut) == {"f": b"new"}
    assert found(*steps, cut, writes=1.0) == {"f": b"n"}
    assert found(*steps, grown, writes=1.0) == {"f": b"new\0\0"}
    assert found(*steps, operation(Kind.DELETED)) == {"f": b"new"}
    assert found(*steps, operation(Kind.DELETED), names=1.0) == {}


def test_a_deleted_file_comes_back_with_its_own_bytes_though_its_inode_is_used_again() -> None:
    steps = (CREATED, WROTE, synced(2), folder_synced(3), operation(Kind.DELETED))
    other = (operation(Kind.CREATED, "g"), operation(Kind.WROTE, "g", data=b"other"))

    assert found(*steps, *other, synced(7)) == {"f": b"new"}
    assert found(*steps, *other, synced(7), names=1.0) == {"g": b"other"}


def test_a_file_in_a_folder_that_is_not_there_is_not_there() -> None:
    made = operation(Kind.FOLDER_MADE, "v", inode=8)
    moved = operation(Kind.MOVED, "v/new", data=b"v/f")
    steps = (made, operation(Kind.CREATED, "v/new"), moved, folder_synced(3, "v"))

    assert found(*steps) == {}
    assert found(*steps, folder_synced(4)) == {"v": None, "v/f": b""}
    linked = operation(Kind.LINKED, "v/f", data=b"v/g")
    assert found(*steps, linked, names=1.0) == {"v": None, "v/f": b"", "v/g": b""}
    with pytest.raises(ValueError, match="moves to another folder"):
        found(*steps, operation(Kind.MOVED, "v/f", data=b"f"))


# The oracle.

A1, A2, B1 = ("a", 1), ("a", 2), ("b", 1)


def say(told: Told, note: str, **what: Any) -> None:
    data = msgspec.json.encode({"note": note, **what})
    told.hear(operation(Kind.NOTED, "", data=data))


def begin(told: Told, rows: dict[Place, str]) -> None:
    say(told, "begun", rows=[[run, seq, what] for (run, seq), what in rows.items()])


def keep(told: Told, rows: dict[Place, str]) -> None:
    begin(told, rows)
    say(told, "kept")


def told_so_far() -> Told:
    told = Told()
    keep(told, {A1: "one", B1: "two"})
    begin(told, {A2: "three"})
    return told


def kinds(told: Told, **what: Any) -> list[str]:
    return [fault.kind for fault in judged(Found(**what), told)]


@pytest.mark.parametrize(
    ("rows", "faults"),
    [
        ({A1: "one", B1: "two"}, []),
        ({A1: "one", B1: "two", A2: "three"}, []),
        ({A1: "one"}, ["LOST", "HALF"]),
        ({A1: "one", B1: "other"}, ["LOST", "HALF", "INVENTED"]),
        ({A2: "three"}, ["LOST", "LOST", "OUT OF ORDER"]),
        ({A1: "one", B1: "two", A2: "three", ("a", 3): "four"}, ["INVENTED"]),
    ],
)
def test_facts_that_were_lost_changed_or_half_applied_are_found(
    rows: dict[Place, str], faults: list[str]
) -> None:
    assert kinds(told_so_far(), rows=rows) == faults


def test_a_batch_that_was_not_acknowledged_is_whole_or_absent() -> None:
    told = Told()
    begin(told, {A1: "one", B1: "two"})

    assert kinds(told) == []
    assert kinds(told, rows={B1: "two"}) == ["HALF"]


def test_effects_that_began_unseen_or_begin_again_are_found() -> None:
    told = Told()
    for call in ("pay-0-1", "read-0-1"):
        say(told, "entered", call=call)
    both = frozenset({"pay-0-1", "read-0-1"})

    assert kinds(told, started=both, entered=("read-0-1",)) == []
    assert kinds(told, started=both, entered=("pay-0-1",)) == ["TWICE"]
    assert kinds(told, started=frozenset({"pay-0-1"})) == ["UNSEEN"]
    assert kinds(told, started=both, changed=("pay-0-1",)) == ["CHANGED"]


def test_a_file_that_is_damaged_or_refused_without_reason_is_found(tmp_path: Path) -> None:
    damaged = opened(
        lay({"runs.db": b"no journal"}, tmp_path / "image", random.Random(0)), plays="store"
    )

    assert kinds(Told(), rows=damaged.rows, damage=damaged.damage) == ["DAMAGED"]
    assert "is not a Laneway journal" in damaged.damage
    assert kinds(Told(), unhandled="Traceback") == ["UNHANDLED"]


def test_a_store_that_goes_on_after_a_failed_commit_is_found() -> None:
    told = Told()
    struck = operation(Kind.FAILED, "runs.db-wal", data=b"sync")

    told.hear(struck)
    begin(told, {A1: "one"})
    say(told, "failed", error="the disk failed")
    keep(told, {A1: "one"})
    say(told, "entered", call="pay-0-1")
    say(told, "born", life=1)
    say(told, "entered", call="pay-0-2")
    say(told, "told", run="a", rows=[["a", 1, "other"]])

    assert [fault.kind for fault in told.faults] == [
        "TAKEN AFTER A FAILED COMMIT",
        "ENTERED AFTER A FAILED COMMIT",
        "LOST",
    ]


# What the tries rest on besides.


def test_a_change_that_the_shim_does_not_follow_is_refused(player: Player, folder: Path) -> None:
    player.play(batches=1, lives=("closes",))
    log = (folder / "log").read_bytes()
    write, unknown = (struct.pack("@II", MAGIC, ord(kind)) for kind in "W?")

    (folder / "log").write_bytes(log.replace(write, unknown, 1))

    with pytest.raises(ValueError, match="in a way that the shim does not follow"):
        recorded(folder / "log")
    (folder / "log").write_bytes(b"\0" * 40)
    with pytest.raises(ValueError, match="cannot be read at byte 0"):
        recorded(folder / "log")


def test_where_nothing_can_be_recorded_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    no_compiler = why_not()
    monkeypatch.setattr(sys, "platform", "darwin")
    elsewhere = why_not()

    assert "no-such-compiler" not in no_compiler
    assert ("there is no C compiler" in no_compiler) is (elsewhere != no_compiler)
    assert "this is darwin" in elsewhere


def test_a_control_in_which_nothing_is_found_is_a_fault() -> None:
    control = next(one for one in CAMPAIGNS if one.must_find)
    plain = CAMPAIGNS[0]
    half = Findings()
    half.blame(Fault("HALF", "1 of the 2 facts of batch 3"), "after operation 9")

    assert Line(campaign=plain, findings=Findings()).wrong == []
    (silent,) = Line(campaign=control, findings=Findings()).wrong
    assert "the fault that is built in was not found" in silent
    (broken,) = Line(campaign=plain, findings=half).wrong
    assert "1 × HALF: 1 of the 2 facts of batch 3\n    after operation 9" in broken


def test_parts_of_a_campaign_are_counted_together(player: Player, folder: Path) -> None:
    faulty = next(n for n, one in enumerate(CAMPAIGNS) if one.ways and one.may_find)

    first = part(faulty, folder / "shim.so", 5, 0)
    images = first.findings.images
    first.add(carry_out(CAMPAIGNS[faulty], player, folder, images=5, seed=1))

    assert first.struck is not None
    assert first.struck.struck.total() == 2
    assert first.findings.images > images
    assert f"{first.findings.images} images" in str(first)
