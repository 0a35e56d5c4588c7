"""Programs that die anywhere: a small campaign, and a judge that is shown to find every fault.

The whole of it is `make crash`. Each campaign is a process of its own, since lives are forked from
one that has no loop and no thread.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from zlib import crc32

import msgspec
import pytest

from laneway import Effect, Failure, Outcome, State, Success
from laneway.calls import CallRecord
from laneway.facts import (
    CallEnded,
    CallStarted,
    Driver,
    Fact,
    HostNoted,
    Row,
    RunOpened,
    RunTaken,
    TurnSubmitted,
)
from laneway.ids import CallId, RunId
from laneway.outcomes import Code
from tests.deaths import campaign as campaigns
from tests.deaths import ruling
from tests.deaths.controls import CONTROLS
from tests.deaths.evidence import Evidence, Life, Line, Result
from tests.deaths.judge import FAULTS, Judge
from tests.deaths.programs import RUN, Call, Case, case_of

ROOT = Path(__file__).resolve().parent.parent


def campaign(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return run_module("tests.deaths", "--folder", str(folder), *options)


def run_module(name: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", name, *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("seed", [11, 12, 13])
def test_programs_that_die_anywhere_keep_every_promise(seed: int, tmp_path: Path) -> None:
    ended = campaign(tmp_path, "--deaths", "40", "--seed", str(seed), "--workers", "1")

    assert ended.returncode == 0, ended.stdout + ended.stderr
    counts = ended.stdout.splitlines()[-len(FAULTS) :]
    assert counts == [f"     0 {what}" for what in FAULTS]


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.long
def test_a_double_with_a_fault_built_in_is_found_out(control: str, tmp_path: Path) -> None:
    options = ("--control", control, "--deaths", "150", "--seed", "2", "--workers", "1")

    ended = campaign(tmp_path, *options)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.endswith("the judge found it\n")


def test_a_campaign_goes_on_where_it_was_broken_off(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    states: list[campaigns.State] = []

    for deaths in ("2", "12", "12"):
        ended = campaign(tmp_path, "--resume", str(file), "--seed", "14", "--deaths", deaths)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        states.append(msgspec.json.decode(file.read_bytes(), type=campaigns.State))

    first, second, third = states
    assert 2 <= first.deaths < 12 <= second.deaths == third.deaths
    assert first.cases < second.cases == third.cases
    assert all(second.done[worker] > case for worker, case in first.done.items())


def test_a_case_is_the_same_whenever_it_is_made_of_its_seed() -> None:
    assert case_of(14) == case_of(14)
    assert case_of(14) != case_of(15)


def test_one_case_is_played_by_its_seed(tmp_path: Path) -> None:
    ended = campaign(tmp_path, "--seed", "140000002", "--only")

    assert ended.returncode == 0, ended.stdout
    assert " 0 faults, " in ended.stdout


@pytest.mark.long
def test_two_processes_that_fight_for_runs_keep_every_promise() -> None:
    ended = run_module("tests.deaths.fight", "--seconds", "3", "--runs", "6", "--seed", "5")

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.splitlines()[-len(ruling.FAULTS) :] == [
        f"     0 {what}" for what in ruling.FAULTS
    ]


# The judge


CALLS = (
    Call(label="p", kind="pay"),
    Call(label="m1", kind="mail"),
    Call(label="w", kind="write", path="d/x", needs=("p",)),
    Call(label="v", kind="write", path="d"),
    Call(label="a", kind="ask"),
)
CASE = Case(seed=0, turns=(CALLS,), deaths=())
IDS = {call.label: CallId(f"t1.{n}") for n, call in enumerate(CALLS, 1)}
VALUE = f"{crc32(msgspec.json.encode('')):08x}"
DRIVER = Driver(host="h", boot="b", pid=1, started="1")


def rows(facts: Sequence[Fact]) -> list[Row]:
    return [Row(RunId(RUN), seq, 0.0, 0.0, fact) for seq, fact in enumerate(facts, 1)]


def submitted() -> TurnSubmitted:
    records = tuple(
        CallRecord(
            id=IDS[call.label],
            provider_id=call.label,
            tool=call.kind,
            arguments=call.arguments(),
            effect=Effect.EXTERNAL,
        )
        for call in CALLS
    )
    return TurnSubmitted(turn=1, provider="plan", message={}, calls=records)


class Story:
    """What a faultless case leaves behind: a life that dies between two calls, and two more."""

    def __init__(self) -> None:
        facts: list[Fact] = [RunOpened(run=RunId(RUN), driver=DRIVER), submitted()]
        self.log: list[Line] = []
        for n, (label, call) in enumerate(IDS.items()):
            tool = CALLS[n].kind
            facts.append(CallStarted(call=call, attempt=1, token=n + 1))
            if label == "a":
                self.log.append(Line("yes", 1, n, ["a"]))
                self.log.append(Line("told yes", 1, n, ["a"]))
            path = CALLS[n].path
            self.log.append(Line("start", 1, n + 0.1, [RUN, call, 1, tool, label, path]))
            self.log.append(Line("end", 1, n + 0.9, [RUN, call, 1]))
            outcome = Success(value=f"{label}-{VALUE}")
            facts.append(CallEnded(call=call, state=State.SUCCEEDED, outcome=outcome))
            self.log.append(Line("kept", 1, n + 1, [RUN, len(facts)]))
        self.kept = [rows(facts), rows([*facts, RunTaken(driver=DRIVER)])]
        self.left = [
            rows([*facts, RunTaken(driver=DRIVER)]),
            rows([*facts, *[RunTaken(driver=DRIVER)] * 2]),
        ]
        result = Result(
            outcomes={
                fact.call: (fact.state, fact.outcome)
                for fact in facts
                if isinstance(fact, CallEnded)
            },
            history=1,
        )
        died = Life(pid=1, ended=90.0, died=True, meant=True, hung=False, status=-9)
        lived = Life(pid=2, ended=99.0, died=False, meant=False, hung=False, status=0)
        self.lives = [died, *[msgspec.structs.replace(lived, result=result)] * 2]

    def faults(self) -> set[str]:
        kept = {n: {RUN: found} for n, found in enumerate(self.kept, 1)}
        left = {n: {RUN: found} for n, found in enumerate(self.left, 1)}
        evidence = Evidence(lives=self.lives, log=self.log, kept=kept, left=left)
        return {fault.what for fault in Judge(CASE, evidence).faults()}

    # What can go wrong

    def everywhere(self, change: Callable[[list[Row]], list[Row]]) -> None:
        self.kept = [change(found) for found in self.kept]
        self.left = [change(found) for found in self.left]

    def end_as(self, label: str, state: State, outcome: Outcome) -> None:
        ended = CallEnded(call=IDS[label], state=state, outcome=outcome)

        def change(found: list[Row]) -> list[Row]:
            return [
                Row(row.run, row.seq, 0.0, 0.0, ended)
                if isinstance(row.fact, CallEnded) and row.fact.call == IDS[label]
                else row
                for row in found
            ]

        self.everywhere(change)
        found = self.lives[-1].result
        assert found is not None
        outcomes = {**found.outcomes, IDS[label]: (state, outcome)}
        result = msgspec.structs.replace(found, outcomes=outcomes)
        self.lives[1:] = [msgspec.structs.replace(one, result=result) for one in self.lives[1:]]

    def without(self, kind: type, label: str) -> None:
        def change(found: list[Row]) -> list[Row]:
            stay = [
                row.fact
                for row in found
                if not (isinstance(row.fact, kind) and getattr(row.fact, "call", "") == IDS[label])
            ]
            return rows(stay)

        self.everywhere(change)

    def move(self, label: str, word: str, mono: float) -> None:
        self.log = [
            line._replace(mono=mono)
            if line.word == word and line.rest[:2] == [RUN, IDS[label]]
            else line
            for line in self.log
        ]


def hang(story: Story) -> None:
    story.lives[1] = msgspec.structs.replace(story.lives[1], hung=True)


def enter_twice(story: Story) -> None:
    story.log.append(Line("start", 2, 95.0, [RUN, IDS["p"], 2, "pay", "p", "a"]))


def enter_under_another_name(story: Story) -> None:
    story.log.append(Line("start", 2, 95.0, [f"{RUN}/t1.1/1", "t1.1", 1, "pay", "p", "a"]))


def never_start(story: Story) -> None:
    story.without(CallStarted, "v")


def lose_what_was_kept(story: Story) -> None:
    story.kept[0] = story.kept[0][:-1]


def change_a_fact(story: Story) -> None:
    row = story.kept[1][0]
    fact = RunOpened(run=RunId(RUN), driver=DRIVER, mode="plan")
    story.kept[1] = [Row(row.run, row.seq, row.wall, row.mono, fact), *story.kept[1][1:]]


def lose_an_outcome(story: Story) -> None:
    story.kept[1] = rows([row.fact for row in story.kept[1] if row.seq != 4])


def change_an_outcome(story: Story) -> None:
    first = story.kept[0]
    ended = CallEnded(call=IDS["p"], state=State.SUCCEEDED, outcome=Success(value="other"))
    story.kept[0] = [
        Row(row.run, row.seq, 0.0, 0.0, ended) if row.seq == 4 else row for row in first
    ]


def leave_a_gap(story: Story) -> None:
    story.everywhere(lambda found: [row for row in found if row.seq != 3])


def overlap(story: Story) -> None:
    story.move("w", "end", 3.5)


def crowd(story: Story) -> None:
    for n in range(2):
        call = [f"{RUN}/t1.{n}/1", "t1.1", 1]
        story.log.append(Line("start", 1, 1.2, [*call, "mail", f"m{n + 2}", "a"]))
        story.log.append(Line("end", 1, 1.4, call))


def swap(story: Story) -> None:
    story.move("v", "start", 1.5)
    story.move("v", "end", 1.6)


def start_early(story: Story) -> None:
    story.move("w", "start", 0.5)


def ask_nobody(story: Story) -> None:
    story.log = [line for line in story.log if line.word != "yes"]


def ask_again(story: Story) -> None:
    story.log.append(Line("yes", 2, 95.0, ["a"]))


def leave_open(story: Story) -> None:
    story.without(CallEnded, "a")


def succeed_without_an_end(story: Story) -> None:
    story.log = [
        line for line in story.log if line.word != "end" or line.rest != [RUN, IDS["v"], 1]
    ]


def give_another_value(story: Story) -> None:
    story.end_as("v", State.SUCCEEDED, Success(value="v-00000000"))


def fail(story: Story) -> None:
    story.end_as("v", State.FAILED, Failure(code=Code.TOOL_ERROR, message="why?"))


def change_at_rest(story: Story) -> None:
    facts = [row.fact for row in story.left[1]]
    story.left[1] = rows([*facts, HostNoted(note="I was here")])


BROKEN: Mapping[Callable[[Story], None], int] = {
    hang: 0,
    enter_twice: 1,
    enter_under_another_name: 1,
    never_start: 2,
    lose_what_was_kept: 3,
    change_a_fact: 4,
    lose_an_outcome: 5,
    change_an_outcome: 6,
    leave_a_gap: 7,
    overlap: 8,
    crowd: 9,
    swap: 10,
    start_early: 11,
    ask_nobody: 12,
    ask_again: 13,
    leave_open: 14,
    succeed_without_an_end: 15,
    give_another_value: 16,
    fail: 17,
    change_at_rest: 18,
}


def test_the_judge_finds_nothing_in_a_faultless_case() -> None:
    assert Story().faults() == set()


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_the_judge_finds(broken: Callable[[Story], None]) -> None:
    story = Story()

    broken(story)

    assert FAULTS[BROKEN[broken]] in story.faults()


def test_every_fault_that_is_counted_is_shown_to_be_found() -> None:
    assert set(BROKEN.values()) == set(range(len(FAULTS)))


# The judge of fights


def bout(facts: Sequence[Fact], *log: tuple[str, float, Sequence[object]]) -> set[str]:
    """What is found where a call of a payment runs in a run that another takes."""
    lines = [Line(word, 1, mono, ["r", *rest]) for word, mono, rest in log]
    return {what for what, _ in ruling.rule({"r": rows(facts)}, lines)}


OPENING: Sequence[Fact] = (RunOpened(run=RunId(RUN), driver=DRIVER), submitted())
PAYS = CallStarted(call=CallId("t1.1"), attempt=1, token=1)
TAKEN = RunTaken(driver=DRIVER)
LEFT_OPEN = "a call was left without an outcome"


def ends(state: State) -> CallEnded:
    return CallEnded(call=CallId("t1.1"), state=state, outcome=Success(value=1))


def test_a_body_that_thaws_into_anothers_run_is_no_fault_if_its_call_was_given_up() -> None:
    facts = (*OPENING, PAYS, TAKEN, ends(State.UNCERTAIN))
    start = ("start", 3.0, ["t1.1", 1, "pay", 1])

    found = bout(facts, ("took", 1.0, [1]), ("took", 2.0, [4]), start)

    assert found == {LEFT_OPEN}  # The other calls of the turn.


BOUTS: Sequence[tuple[int, Sequence[Fact], Sequence[tuple[str, float, Sequence[object]]]]] = (
    (0, OPENING, [("failed", 1.0, ["a traceback"])]),
    (
        1,
        (*OPENING, PAYS, ends(State.SUCCEEDED)),
        [("start", 1.0, ["t1.1", 1, "pay", 1]), ("start", 2.0, ["t1.1", 1, "pay", 1])],
    ),
    (2, OPENING, [("start", 1.0, ["t1.1", 1, "pay", 1])]),
    (
        3,
        (*OPENING, PAYS, TAKEN, ends(State.SUCCEEDED)),
        [("took", 2.0, [4]), ("start", 3.0, ["t1.1", 1, "pay", 1])],
    ),
    (
        3,
        (*OPENING, TAKEN, PAYS, ends(State.UNCERTAIN)),
        [("took", 2.0, [3]), ("start", 3.0, ["t1.1", 1, "pay", 1])],
    ),
    (4, (*OPENING, PAYS, CallStarted(call=CallId("t1.2"), attempt=1, token=1)), []),
    (5, (*OPENING, PAYS, TAKEN, CallStarted(call=CallId("t1.1"), attempt=2, token=2)), []),
    (6, (*OPENING, PAYS, ends(State.SUCCEEDED), ends(State.FAILED)), []),
    (7, OPENING, []),
)


@pytest.mark.parametrize("at", range(len(BOUTS)))
def test_the_judge_of_fights_finds(at: int) -> None:
    number, facts, log = BOUTS[at]

    assert ruling.FAULTS[number] in bout(facts, *log)
