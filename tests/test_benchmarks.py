"""The benchmarks tell the truth: they measure work that was done, and say nothing of other work.

No duration is asserted anywhere.
"""

import asyncio
import gc
import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from laneway.benchmarks import checks, machine
from laneway.benchmarks.checks import INTENT, RESULT
from laneway.benchmarks.command import main, run
from laneway.benchmarks.contenders import Contender, Repeat, Sample, timed
from laneway.benchmarks.durable import (
    DurableFloor,
    RowFile,
    StoredRow,
    floor_d,
    level_batches,
    raw_d,
)
from laneway.benchmarks.grants import QUEUES
from laneway.benchmarks.harness import Pace, Subject
from laneway.benchmarks.records import Record
from laneway.benchmarks.references import bare, task_per_link
from laneway.benchmarks.subject import answered, laneway
from laneway.benchmarks.table import judgement_table, record_table
from laneway.benchmarks.targets import TARGETS, judged
from laneway.benchmarks.workloads import (
    TOOL,
    WORKLOADS,
    Workload,
    call_name,
    chain,
    independent,
    layers,
    openai_chat,
    payload,
    plan,
    turn_of_one,
)

SMALL = (turn_of_one(3), independent(5), chain(4), layers(3, 3))
ONCE = Pace(seconds=0.0, least_rounds=1, most_rounds=1)


@pytest.fixture(autouse=True, scope="module")
def small_heap() -> Iterator[None]:
    """Keep what the suite has loaded out of the collections before each repetition."""
    gc.freeze()
    yield
    gc.unfreeze()


def small_named(workload: Workload) -> str:
    return workload.name


@asynccontextmanager
async def honest(workload: Workload, directory: Path) -> AsyncGenerator[Repeat, None]:
    """A contender that enters one body after the other."""

    async def repeat() -> Sample:
        entered: list[int] = []

        async def work() -> None:
            entered.extend(range(workload.total))

        seconds = await timed(work)
        return Sample(seconds=seconds, faults=tuple(checks.entry_faults(workload, entered)))

    yield repeat


@asynccontextmanager
async def forgetful(workload: Workload, directory: Path) -> AsyncGenerator[Repeat, None]:
    """A contender that leaves out the last call and doubles the first."""

    async def repeat() -> Sample:
        entered = [0, *range(workload.total - 1)]
        return Sample(seconds=1e-9, faults=tuple(checks.entry_faults(workload, entered)))

    yield repeat


@asynccontextmanager
async def raising(workload: Workload, directory: Path) -> AsyncGenerator[Repeat, None]:
    """A contender that breaks."""

    async def repeat() -> Sample:
        raise LookupError("no such lane")

    yield repeat


def subject(memory: Contender = honest, durable: Contender = floor_d) -> Subject:
    return Subject(name="scripted", memory=memory, durable=durable)


def sample_of(contender: Contender, workload: Workload, directory: Path) -> Sample:
    async def once() -> Sample:
        async with contender(workload, directory) as repeat:
            await repeat()
            return await repeat()

    return asyncio.run(once())


# Workloads


def test_the_workloads_have_the_sizes_that_the_targets_speak_of() -> None:
    sizes = [(workload.name, workload.n) for workload in WORKLOADS]

    assert sizes == [("W1", 1), ("W2", 1_000), ("W2", 10_000), ("W3", 500), ("W4", 1_000)]


def test_every_call_of_w4_below_the_first_layer_has_two_parents_in_the_layer_above() -> None:
    workload = layers()

    assert all(not parents for parents in workload.parents[:50])
    for position, parents in enumerate(workload.parents[50:], start=50):
        assert len(set(parents)) == 2
        assert {parent // 50 for parent in parents} == {position // 50 - 1}
    assert [len(level) for level in workload.levels()] == [50] * 20


def test_only_a_chain_is_a_chain() -> None:
    assert [workload.is_chain for workload in SMALL] == [False, False, True, False]


def test_a_plan_names_what_each_call_needs_and_counts_on_through_the_turns() -> None:
    workload = Workload(name="W", parents=((), (0,)), turns=2)

    assert plan(workload, 1) == {
        "calls": [
            {"id": "call_2", "tool": TOOL, "arguments": {"position": 2}, "needs": []},
            {"id": "call_3", "tool": TOOL, "arguments": {"position": 3}, "needs": ["call_2"]},
        ]
    }


def test_a_chat_answer_carries_arguments_as_text_and_an_id_for_each_turn() -> None:
    workload = turn_of_one(2)

    first, second = (payload(workload, turn) for turn in range(2))

    (call,) = second["choices"][0]["message"]["tool_calls"]
    assert call["function"] == {"name": TOOL, "arguments": '{"position": 1}'}
    assert first["id"] != second["id"]


def test_a_chat_answer_cannot_say_dependencies() -> None:
    with pytest.raises(ValueError, match="W3 has dependencies: only the plan form can say them"):
        openai_chat(chain(3), 0)


# Checks


@pytest.mark.parametrize(
    ("entered", "fault"),
    [
        ([0, 1], "call 2 is missing"),
        ([0, 1, 1, 2], "call 1 stands 2 times"),
        ([0, 1, 2, 7], "call 7 was never asked for"),
        ([0, 2, 1], "call 2 was entered before its parent 1"),
    ],
)
def test_a_body_left_out_or_doubled_or_too_early_is_a_fault(
    entered: Sequence[int], fault: str
) -> None:
    assert checks.entry_faults(chain(3), entered) == [fault]


def test_a_turn_that_begins_before_the_last_has_ended_is_a_fault() -> None:
    assert checks.entry_faults(turn_of_one(2), [1, 0]) == ["call 1 was entered before its parent 0"]


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        (
            [(0, INTENT), (0, RESULT), (1, INTENT)],
            "row (1, 'result') is missing",
        ),
        (
            [(0, RESULT), (0, INTENT), (1, INTENT), (1, RESULT)],
            "the result of call 0 was written before its intent",
        ),
        (
            [(0, INTENT), (1, INTENT), (0, RESULT), (1, RESULT)],
            "the intent of call 1 was written before the result of its parent 0",
        ),
    ],
)
def test_a_row_left_out_or_too_early_is_a_fault(
    rows: Sequence[tuple[int, str]], fault: str
) -> None:
    assert checks.row_faults(chain(2), rows) == [fault]


def test_answers_out_of_request_order_are_a_fault() -> None:
    assert checks.answer_faults(independent(2), [0, 1]) == []
    assert checks.answer_faults(independent(2), [1, 0]) == ["the answers are not in request order"]
    assert checks.answer_faults(independent(2), [0]) == ["answer 1 is missing"]


# References


@pytest.mark.parametrize("workload", SMALL, ids=small_named)
@pytest.mark.parametrize("contender", [bare, floor_d, raw_d])
def test_every_reference_does_all_of_the_work(
    contender: Contender, workload: Workload, tmp_path: Path
) -> None:
    sample = sample_of(contender, workload, tmp_path)

    assert sample.faults == ()


def test_a_task_per_link_does_all_of_a_chain_and_refuses_what_is_none(tmp_path: Path) -> None:
    assert sample_of(task_per_link, chain(4), tmp_path).faults == ()
    with pytest.raises(ValueError, match="W4 is not a chain"):
        sample_of(task_per_link, layers(2, 2), tmp_path)


class CountedFile(RowFile):
    """Remembers the batches."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.batches: list[list[StoredRow]] = []

    def commit(self, rows: Sequence[StoredRow]) -> None:
        self.batches.append(list(rows))
        super().commit(rows)


async def at_once(position: int) -> int:
    return position


@pytest.mark.parametrize("workload", SMALL, ids=small_named)
def test_the_floor_commits_what_the_raw_writer_commits(workload: Workload, tmp_path: Path) -> None:
    file = CountedFile(tmp_path / "floor.db")

    async def once() -> None:
        floor = DurableFloor(workload, file, at_once)
        await floor.run()
        floor.close()

    asyncio.run(once())
    file.close()

    expected = level_batches(workload)
    assert [sorted(batch) for batch in file.batches] == [sorted(batch) for batch in expected]
    assert len(expected) == workload.turns * (len(workload.levels()) + 1)


def test_the_floor_enters_a_body_when_its_intent_and_the_results_above_can_be_read(
    tmp_path: Path,
) -> None:
    workload = layers(3, 3)
    file = RowFile(tmp_path / "floor.db")
    reader = sqlite3.connect(tmp_path / "floor.db")
    missing: list[str] = []

    async def step(position: int) -> int:
        kept = set(reader.execute("SELECT call, kind FROM rows"))
        needed = {(call_name(position), INTENT)} | {
            (call_name(parent), RESULT) for parent in workload.parents[position]
        }
        missing.extend(map(str, needed - kept))
        return position

    async def once() -> None:
        floor = DurableFloor(workload, file, step)
        await floor.run()
        floor.close()

    asyncio.run(once())
    reader.close()
    file.close()

    assert missing == []


class HeldFile(RowFile):
    """Says when its second commit begins, and does not end it before it is told to."""

    def __init__(self, path: Path, begun: Callable[[], object]) -> None:
        super().__init__(path)
        self.release = threading.Event()
        self.commits = 0
        self._begun = begun

    def commit(self, rows: Sequence[StoredRow]) -> None:
        self.commits += 1
        if self.commits == 2:
            self._begun()
            assert self.release.wait(timeout=30)
        super().commit(rows)


def test_what_ends_while_a_commit_of_the_floor_is_under_way_goes_into_the_next(
    tmp_path: Path,
) -> None:
    workload = independent(3)

    async def once() -> tuple[int, list[tuple[int, str]]]:
        loop = asyncio.get_running_loop()
        begun = asyncio.Event()
        file = HeldFile(tmp_path / "floor.db", lambda: loop.call_soon_threadsafe(begun.set))

        async def step(position: int) -> int:
            if position == 0:
                await begun.wait()
                # Later than the flush that follows the end of this body.
                loop.call_soon(lambda: loop.call_soon(lambda: loop.call_soon(file.release.set)))
            return position

        floor = DurableFloor(workload, file, step)
        await floor.run()
        floor.close()
        rows = file.since(0)
        file.close()
        return file.commits, rows

    commits, rows = asyncio.run(once())

    assert commits == 3
    assert rows[-1] == (0, RESULT)
    assert checks.row_faults(workload, rows) == []


def test_a_commit_that_fails_ends_the_floor_with_the_error_of_the_database(tmp_path: Path) -> None:
    class FullDisk(RowFile):
        def commit(self, rows: Sequence[StoredRow]) -> None:
            raise sqlite3.OperationalError("database or disk is full")

    file = FullDisk(tmp_path / "floor.db")

    async def once() -> None:
        floor = DurableFloor(chain(2), file, at_once)
        try:
            await floor.run()
        finally:
            floor.close()
            file.close()

    with pytest.raises(sqlite3.OperationalError, match="disk is full"):
        asyncio.run(once())


def test_a_file_that_cannot_be_durable_is_refused() -> None:
    with pytest.raises(RuntimeError, match=":memory: is not durable: journal_mode=memory"):
        RowFile(Path(":memory:"))


def test_a_batch_of_many_statements_is_one_transaction(tmp_path: Path) -> None:
    file = RowFile(tmp_path / "rows.db")
    (batch, _) = level_batches(independent(450))

    file.commit(batch)

    assert file.last() == 450
    assert [position for position, _ in file.since(0)] == list(range(450))
    file.close()


# From the rounds to what is printed


def test_a_record_has_the_figures_that_its_journal_can_have(tmp_path: Path) -> None:
    found, faults = run(SMALL, subject(), tmp_path, ONCE)

    assert faults == []
    assert [(record.workload, record.n, record.journal) for record in found] == [
        (workload.name, workload.n, journal)
        for workload in SMALL
        for journal in ("memory", "durable")
    ]
    for record in found:
        durable, is_chain = record.journal == "durable", record.workload == "W3"
        assert (record.ratio_to_floor is not None) is durable
        assert (record.ratio_to_raw is not None) is durable
        assert (record.journal_ratio_to_raw is not None) is durable
        assert (record.ratio_to_link is not None) is is_chain
        assert record.rounds == 1
        low, high = record.spread["us_per_call"]
        assert low <= record.us_per_call <= high
        assert record.spread.keys() >= {"ratio_to_gather", "gather_us_per_call"}


def test_the_files_of_the_durable_ones_are_gone_afterwards(tmp_path: Path) -> None:
    run(SMALL[:1], subject(), tmp_path, ONCE)

    assert list(tmp_path.iterdir()) == []


def test_rounds_go_on_for_the_time_given_between_the_least_and_the_most(tmp_path: Path) -> None:
    pace = Pace(seconds=3600.0, least_rounds=2, most_rounds=4)

    found, _ = run(SMALL[:1], subject(), tmp_path, pace)

    assert {record.rounds for record in found} == {4}


@pytest.mark.parametrize(
    ("broken", "fault"),
    [
        (forgetful, "W2 n=5 memory: call 0 stands 2 times (and 1 more)"),
        (raising, "W2 n=5 memory: LookupError: no such lane"),
    ],
)
def test_a_subject_that_is_wrong_in_memory_loses_both_records_since_one_rests_on_the_other(
    broken: Contender, fault: str, tmp_path: Path
) -> None:
    found, faults = run([independent(5)], subject(memory=broken), tmp_path, ONCE)

    assert found == []
    assert faults == [fault]


def test_a_subject_that_is_wrong_on_disk_keeps_its_record_in_memory(tmp_path: Path) -> None:
    found, faults = run([independent(5)], subject(durable=forgetful), tmp_path, ONCE)

    assert [record.journal for record in found] == ["memory"]
    assert len(faults) == 1


# The command


def test_the_command_prints_a_list_of_records_and_the_machine_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--json", "--quick", "--directory", str(tmp_path)]

    status = main(arguments, subject=subject(), workloads=SMALL[:2], pace=ONCE)

    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert status == 0
    assert [(record["workload"], record["journal"]) for record in found] == [
        ("W1", "memory"),
        ("W1", "durable"),
        ("W2", "memory"),
        ("W2", "durable"),
    ]
    assert found[0].keys() >= {
        "workload",
        "n",
        "journal",
        "us_per_call",
        "ratio_to_gather",
        "ratio_to_floor",
        "ratio_to_raw",
    }
    assert found[0]["ratio_to_floor"] is None
    assert "SQLite" in printed.err


def test_the_command_prints_a_table_with_the_targets_that_were_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = main(["--only", "W1"], subject=subject(), workloads=[*SMALL[:2]], pace=ONCE)

    printed = capsys.readouterr().out
    assert status == 0
    assert "µs per call" in printed
    assert [line.split()[0] for line in printed.splitlines() if " gate " in line] == ["P4", "P11"]
    assert "W2" not in printed


def test_the_command_fails_and_hides_the_figures_of_work_that_was_not_done(
    capsys: pytest.CaptureFixture[str],
) -> None:
    broken = subject(durable=forgetful)

    status = main(["--json"], subject=broken, workloads=[independent(5)], pace=ONCE)

    printed = capsys.readouterr()
    assert status == 1
    assert [record["journal"] for record in json.loads(printed.out)] == ["memory"]
    assert "not shown, failed its check: W2 n=5 durable: call 0 stands 2 times" in printed.err


def test_the_cost_of_a_grant_is_printed_by_queue_and_length(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laneway.benchmarks.grants.STEPS", 20)
    arguments = ["--grants", "--waiters", "3", "--waiters", "30"]

    assert main(arguments, pace=ONCE) == 0
    told = capsys.readouterr().out
    assert main([*arguments, "--json"], pace=ONCE) == 0
    found = json.loads(capsys.readouterr().out)

    assert told.splitlines()[0].split() == ["queue", "waiters", "µs/grant", "×shortest"]
    assert len(told.splitlines()) == 1 + len(found) == 1 + 2 * len(QUEUES)
    assert {(one["queue"], one["waiters"]) for one in found} == {
        (queue.name, waiters) for queue in QUEUES for waiters in (3, 30)
    }
    assert all(one["us_per_grant"] > 0 for one in found)
    assert [one["ratio_to_shortest"] for one in found][::2] == [1.0] * len(QUEUES)


def test_a_queue_needs_a_waiter(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["--grants", "--waiters", "0"])

    assert refused.value.code == 2
    assert "invalid number_of_waiters value: '0'" in capsys.readouterr().err


def test_an_unknown_workload_is_refused_with_the_known_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["--only", "W9"])

    assert refused.value.code == 2
    assert "invalid choice: 'W9'" in capsys.readouterr().err


def test_the_module_can_be_run() -> None:
    root = Path(__file__).parent.parent

    finished = subprocess.run(
        [sys.executable, "-m", "laneway.benchmarks", "--help"],
        env={**os.environ, "PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
        check=True,
    )

    assert "--quick" in finished.stdout


# Laneway itself


@pytest.mark.parametrize("workload", SMALL, ids=small_named)
@pytest.mark.parametrize("journal", ["memory", "durable"])
def test_laneway_does_all_of_the_work(journal: str, workload: Workload, tmp_path: Path) -> None:
    contender: Contender = getattr(laneway(), journal)

    sample = sample_of(contender, workload, tmp_path)

    assert sample.faults == ()


def test_an_answer_counts_only_if_it_brings_the_value_of_its_own_call() -> None:
    chat = [
        {"role": "assistant"},
        {"role": "tool", "tool_call_id": "call_0", "content": "0"},
        {"role": "tool", "tool_call_id": "call_1", "content": "Error TOOL_ERROR: no"},
    ]
    results = [{"id": "call_0", "value": 0}, {"id": "call_1", "error": "TOOL_ERROR"}]

    assert list(answered(chat)) == [0]
    assert list(answered([{"role": "assistant"}, {"role": "tool", "results": results}])) == [0]


# Targets and tables


def record(workload: str, n: int, journal: str, **figures: float) -> Record:
    fields = {
        "workload": workload,
        "n": n,
        "journal": journal,
        "us_per_call": 20.0,
        "ratio_to_gather": 4.0,
        "payload": "plan",
        "turns": 1,
        "rounds": 3,
        "references": {"gather": 5.0},
        "spread": {"us_per_call": (18.0, 31.0)},
        **figures,
    }
    return msgspec.convert(fields, Record)


def test_there_is_a_target_for_each_of_p1_to_p11_and_its_goal_is_harder_than_its_gate() -> None:
    assert {target.id for target in TARGETS} == {f"P{number}" for number in range(1, 12)}
    assert all(target.goal < target.gate for target in TARGETS)


@pytest.mark.parametrize(
    ("measured", "word"), [(1.9, "goal met"), (2.0, "goal met"), (5.9, "gate met"), (6.1, "missed")]
)
def test_a_measured_ratio_is_compared_with_gate_and_goal(measured: float, word: str) -> None:
    found = list(judged([record("W2", 1_000, "memory", ratio_to_gather=measured)]))

    assert [(judgement.target.id, judgement.word) for judgement in found] == [("P2", word)]


def test_a_target_is_judged_by_its_own_figure_only() -> None:
    found = list(judged([record("W2", 1_000, "durable", journal_ratio_to_raw=3.0)]))

    assert [(judgement.target.id, judgement.measured) for judgement in found] == [("P7", 3.0)]


def test_a_size_that_no_target_speaks_of_is_not_judged() -> None:
    found = list(judged([record("W2", 7, "memory")]))

    assert found == []
    assert judgement_table(found) == ""


def test_a_table_says_gate_goal_and_measured_in_words() -> None:
    found = list(judged([record("W2", 1_000, "memory")]))

    line = " ".join(judgement_table(found).split())

    assert line == ("P2 W2 1,000 memory bare gather gate 6 × goal 2 × measured 4.00 × gate met")


def test_a_table_shows_a_dash_where_a_comparison_makes_no_sense() -> None:
    table = record_table([record("W2", 1_000, "memory")])

    assert table.splitlines()[-1].split() == [
        *("W2", "1,000", "memory", "20.0", "18.0", "–", "31.0", "4.00", "–", "–", "–", "3")
    ]


# The machine


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table of mounts in which the directory `memory` is kept in memory."""
    (tmp_path / "memory").mkdir()
    (tmp_path / "disk").mkdir()
    table = tmp_path / "mounts"
    table.write_text(f"/dev/sda1 / ext4 rw 0 0\ntmpfs {tmp_path / 'memory'} tmpfs rw 0 0\n")
    monkeypatch.setattr(machine, "_MOUNTS", table)
    return tmp_path


def test_durable_files_go_to_a_disk_and_not_into_memory(mounts: Path) -> None:
    memory, disk = mounts / "memory", mounts / "disk"

    assert machine.file_system(memory) == "tmpfs"
    assert machine.disk_directory([memory, disk]) == disk
    assert machine.disk_directory([memory]) == memory


def test_no_place_for_durable_files_is_an_error_that_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="can be written; set TMPDIR"):
        machine.disk_directory([tmp_path / "absent"])


def test_a_machine_that_tells_nothing_is_described_as_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_MOUNTS", tmp_path / "absent")
    monkeypatch.setattr(machine, "_CPUS", tmp_path / "absent")
    monkeypatch.setattr("platform.processor", lambda: "")

    described = machine.describe(tmp_path)

    assert (described.disk, described.processor) == ("unknown", "unknown")
