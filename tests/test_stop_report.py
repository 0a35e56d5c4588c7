"""The stop report: from the fold alone, the same live and at rest, each call told exactly once."""

import asyncio
import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from laneway import (
    Code,
    Effect,
    Failure,
    Happened,
    Run,
    Secret,
    State,
    StopReason,
    StopReport,
    Success,
    tool,
)
from laneway.calls import CallRecord, Edge, Reason
from laneway.engine.cli.app import app
from laneway.engine.report_text import LONGEST, MOST
from laneway.engine.reporting import report
from laneway.engine.reports import Confirmed, Unfinished, about, brief
from laneway.errors import JournalError
from laneway.facts import (
    ApprovalAnswered,
    ApprovalAsked,
    AttemptEnded,
    BudgetReserved,
    BudgetSettled,
    CallEnded,
    CallQueued,
    CallReopened,
    CallSettled,
    CallStarted,
    Driver,
    Fact,
    HolderStopped,
    LossAccepted,
    MessageSaid,
    ModeChanged,
    RunOpened,
    RunReopened,
    RunStopped,
    TaskStarted,
    TurnClosed,
    TurnSubmitted,
)
from laneway.ids import ApprovalId, CallId, RunId
from laneway.journal.fold import CallView, RunView, fold
from laneway.journal.overview import lines
from laneway.journal.sqlite import SqliteStore
from laneway.outcomes import Outcome, succeeded
from laneway.states import ARROWS, ENDED
from laneway.testing.sample_facts import AWKWARD, WALL, every_kind_of_fact, numbered
from laneway.testing.scripted import Raise, Return, Sleep, Stage
from laneway.testing.theatre import RUN, Theatre, plan

R = StopReason
T = TypeVar("T")
DRIVER = Driver(host="h", boot="b", pid=1, started="1")
NOTHING_MORE: dict[str, Any] = {"calls": []}
LOST = Failure(code=Code.OUTCOME_UNKNOWN, message="Nobody saw it.", happened=Happened.UNKNOWN)


def theatre_of(**options: Any) -> Theatre:
    stage = Stage()
    return Theatre(
        stage,
        stage.tool("look", Return({"found": "{n}"}), effect=Effect.READ),
        stage.tool("same", Return("as ever"), effect=Effect.READ),
        stage.tool("put", Return("put {n}"), effect=Effect.WRITE, claims=["lane:w"]),
        stage.tool("slow", Sleep(20), effect=Effect.WRITE),
        stage.tool("fail", Raise(ValueError("no")), effect=Effect.READ),
        stage.tool("mail", Return("sent"), effect=Effect.EXTERNAL, approval=True),
        **options,
    )


def eventful() -> dict[str, Any]:
    return plan(
        {"id": "l", "tool": "look", "arguments": {"n": 1}},
        {"id": "p", "tool": "put", "arguments": {"n": 2}},
        {"id": "s", "tool": "slow"},
        {"id": "f", "tool": "fail"},
        {"id": "k", "tool": "look", "arguments": {"n": 3}, "needs": ["f"]},
        {"id": "m", "tool": "mail", "arguments": {"to": "bob"}},
        {"id": "n", "tool": "mail", "arguments": {"to": "eve"}},
        {"id": "w", "tool": "put", "arguments": {"n": 4}, "needs": ["s"]},
    )


async def stopped_run(run: Run) -> StopReport:
    await run.submit(eventful(), wait=False)
    await asyncio.sleep(1)
    await run.approve("n", by="ann", reason="she may know")
    await asyncio.sleep(1)
    await run.stop(R.CANCELLED, "the user went home", by="ann")
    await asyncio.sleep(1)
    return run.report()


def listed(told: StopReport) -> list[CallId]:
    every: list[Confirmed | Unfinished] = [*told.confirmed, *told.unfinished, *told.in_doubt]
    return [one.call for one in every]


def test_a_report_tells_why_what_is_so_what_is_not_and_who_said_so() -> None:
    told = theatre_of().enter(stopped_run)

    assert (told.reason, told.detail, told.by) == (R.CANCELLED, "the user went home", "ann")
    assert not told.resumable
    assert told.goes_on == "somebody who says so by name (run.resume)"
    assert "called off" in told.tell
    assert [(one.call, one.tool) for one in told.confirmed] == [
        ("t1.2", "put"),
        ("t1.7", "mail"),
        ("t1.1", "look"),
    ], "effects first"
    assert told.confirmed[0].about == "n=2"
    assert told.confirmed[0].value == "put 2"
    assert told.last_new is not None
    assert told.last_new.call == "t1.7"
    assert {one.call: one.code for one in told.unfinished} == {
        "t1.4": Code.TOOL_ERROR,
        "t1.5": Code.DEPENDENCY_FAILED,
        "t1.6": Code.CANCELLED,
        "t1.8": Code.CANCELLED,
    }
    assert next(one.cause for one in told.unfinished if one.call == "t1.5") == "t1.4"
    assert [(one.call, one.happened) for one in told.in_doubt] == [("t1.3", Happened.UNKNOWN)]
    assert [(one.call, one.granted, one.by) for one in told.approvals] == [
        ("t1.6", None, ""),
        ("t1.7", True, "ann"),
    ]
    assert (told.used.turns, told.used.calls, told.used.attempts) == (1, 8, 5)


def test_a_report_of_a_run_that_goes_on_says_what_each_open_call_waits_for() -> None:
    async def host(run: Run) -> StopReport:
        await run.submit(eventful(), wait=False)
        await asyncio.sleep(1)
        return run.report()

    told = theatre_of().enter(host)

    assert told.reason is None
    assert told.tell == "The work goes on, or was interrupted and can be taken up again."
    assert {one.call: one.why for one in told.unfinished if one.code is None} == {
        "t1.3": "its body has been entered, and has not ended",
        "t1.6": "waits for the answer to t1.6.a1",
        "t1.7": "waits for the answer to t1.7.a1",
        "t1.8": "waits for t1.3",
    }
    assert [one.open for one in told.approvals] == [True, True]


def test_a_report_says_of_calls_that_are_queued_or_between_attempts_what_they_wait_for() -> None:
    stage = Stage()
    theatre = Theatre(
        stage,
        stage.tool("hold", Sleep(9), effect=Effect.WRITE, claims=["lane:w"]),
        stage.tool("shaky", Raise(ConnectionResetError("x")), effect=Effect.READ, retries=3),
    )

    async def host(run: Run) -> StopReport:
        await run.submit(
            plan(*({"id": n, "tool": n[:-1]} for n in ("hold1", "hold2", "shaky1"))), wait=False
        )
        await asyncio.sleep(0.1)
        return run.report()

    told = theatre.enter(host)

    assert [one.why for one in told.unfinished] == [
        "its body has been entered, and has not ended",
        "waits for its lanes",
        "waits for its next attempt",
    ]


def test_a_report_after_a_crash_is_that_of_the_live_run() -> None:
    theatre = theatre_of()

    async def host(run: Run) -> StopReport:
        told = await stopped_run(run)
        theatre.crash()
        return told

    live = theatre.enter(host)
    at_rest = report(fold(RUN, theatre.journal.facts[RUN]))

    async def later(run: Run) -> StopReport:
        return run.report()

    assert at_rest == live
    assert str(at_rest) == str(live)
    assert theatre.enter(later) == live
    assert msgspec.json.decode(live.to_json(), type=StopReport) == live


def test_the_last_new_fact_is_no_repeat_of_an_earlier_one() -> None:
    async def host(run: Run) -> StopReport:
        for name in ("look", "same", "same", "same"):
            await run.submit(plan({"id": "a", "tool": name}))
        return run.report()

    told = theatre_of().enter(host)

    assert told.last_new is not None
    assert told.last_new.call == "t2.1"


def test_a_completed_run_with_failures_in_its_last_turn_is_warned_of() -> None:
    async def host(run: Run) -> StopReport:
        await run.submit(plan({"id": "f", "tool": "fail"}))
        await run.stop(R.COMPLETED)
        return run.report()

    told = theatre_of().enter(host)

    assert told.warnings == ("stopped as complete, though calls of the last turn failed: t1.1",)


def test_a_run_that_was_answered_is_complete_and_goes_on_with_the_next_question() -> None:
    async def host(run: Run) -> StopReport:
        await run.submit(NOTHING_MORE)
        return run.report()

    told = theatre_of().enter(host)

    assert told.reason is R.COMPLETED
    assert told.resumable
    assert "another answer of the model or a new message of the user" in told.goes_on


def test_a_secret_is_in_no_report() -> None:
    @tool(effect=Effect.WRITE, claims=[])
    async def log_in(password: Annotated[str, Secret]) -> str:
        return f"logged in with {password}"

    theatre = Theatre(Stage(), log_in)

    async def host(run: Run) -> StopReport:
        secret = {"password": "correct-horse-battery"}
        await run.submit(plan({"id": "a", "tool": "log_in", "arguments": secret}))
        await run.stop(R.FAILED, "correct-horse-battery did not do")
        return run.report()

    told = theatre.enter(host)

    assert "horse" not in str(told)
    assert "horse" not in told.to_json()


def test_all_that_is_odd_about_a_run_is_warned_of() -> None:
    record = CallRecord(id=CallId("t1.1"), provider_id="a", tool="edit", effect=Effect.WRITE)
    first = CallId("t1.1")
    facts: list[Fact] = [
        RunOpened(run=RUN, driver=DRIVER),
        TurnSubmitted(turn=1, provider="plan", message={}, calls=(record,)),
        CallQueued(call=first, rule="default"),
        CallStarted(call=first, attempt=1, token=1),
        CallEnded(call=first, state=State.TIMED_OUT, outcome=LOST, stopped=False),
        TaskStarted(task="build", call=first, run=RunId("r/build")),
        BudgetReserved(budget="tokens", amount=800, reservation="x", call=first),
        BudgetReserved(budget="tokens", amount=100, reservation="y"),
        BudgetSettled(reservation="y", amount=60),
        RunStopped(reason=R.FAILED, detail="the disk\nis full"),
        LossAccepted(lost=2),
    ]

    told = report(fold(RUN, numbered(RUN, facts)))

    assert told.warnings == (
        "bodies that have not stopped, and hold their claims: t1.1",
        "turn 1 is still open: end it with run.finish()",
        "a part of the journal is lost: calls may have done more than is told here",
        "background tasks that have not ended: build",
    )
    assert told.used.budgets == {"tokens": 60, "model_turns": 1}
    assert told.used.set_aside == {"tokens": 800, "model_turns": 0}
    text = str(told)
    assert "run r, mode build: stopped: FAILED" in text
    assert "  because: the disk is full" in text
    assert "tokens: 60 of 2,000,000 used, 800 set aside" in text
    assert "in doubt, for a human (1):" in text


def test_what_was_found_out_later_is_confirmed_by_whoever_found_out() -> None:
    record = CallRecord(id=CallId("t1.1"), provider_id="a", tool="pay", arguments={"sum": 3})
    first = CallId("t1.1")
    facts: list[Fact] = [
        RunOpened(run=RUN, driver=DRIVER),
        TurnSubmitted(turn=1, provider="plan", message={}, calls=(record,)),
        CallQueued(call=first, rule="default"),
        CallStarted(call=first, attempt=1, token=1),
        CallEnded(call=first, state=State.UNCERTAIN, outcome=LOST),
        TurnClosed(turn=1),
        CallSettled(call=first, outcome=Success(value="paid"), by="ann"),
    ]

    told = report(fold(RUN, numbered(RUN, facts)))

    assert [(one.call, one.value, one.by) for one in told.confirmed] == [("t1.1", "paid", "ann")]
    assert told.confirmed[0].at_wall == WALL + 7
    assert "pay(sum=3) → paid  [external, 2023-11-14 22:13:27 UTC, as ann found out]" in str(told)


def test_values_and_arguments_are_cut_to_one_short_line() -> None:
    assert brief("a\nb   c") == "a b c"
    assert brief("x" * 500, 10) == "x" * 9 + "…"
    assert brief("x " + " " * 5000 + "y", 10).endswith("…")
    assert brief({"b": [1, "é"]}) == '{"b":[1,"é"]}'
    assert about({"a": 1, "b": "two words"}) == "a=1, b=two words"
    assert about(None) == ""
    assert about([1]) == "[1]"


def test_the_text_of_a_long_run_is_bounded_and_says_what_it_leaves_out() -> None:
    async def host(run: Run) -> StopReport:
        calls = [{"id": f"c{n}", "tool": "look", "arguments": {"n": "x" * 900}} for n in range(50)]
        await run.submit(plan(*calls))
        await run.stop(R.COMPLETED, "y" * 3000)
        return run.report()

    told = theatre_of().enter(host)
    text = str(told).splitlines()

    assert max(map(len, text)) <= LONGEST
    assert f"    … and {50 - MOST} more: the JSON has them all" in text
    assert len(json.loads(told.to_json())["confirmed"]) == 50


def test_a_wall_clock_that_was_set_to_no_year_at_all_is_told_as_a_number() -> None:
    told = theatre_of().enter(stopped_run)
    odd = msgspec.structs.replace(
        told, confirmed=(msgspec.structs.replace(told.confirmed[0], at_wall=1e300),)
    )

    assert f"{1e300:.3f}"[:40] in str(odd)


# Any journal at all


class Walk:
    """Facts of a run, each of which may follow the ones before; a tape of numbers chooses."""

    def __init__(self, tape: Sequence[int]) -> None:
        self.tape = iter(tape)
        self.facts: list[Fact] = []
        self.view = RunView(RUN)
        self.add(RunOpened(run=RUN, driver=DRIVER))

    def pick(self, choices: Sequence[T]) -> T:
        return choices[next(self.tape, 0) % len(choices)]

    def add(self, fact: Fact) -> None:
        self.facts.append(fact)
        self.view.apply(numbered(RUN, [fact], after=self.view.seq)[0])

    def step(self) -> None:
        turn = self.view.open_turn
        choices = [self._of_the_run]
        choices += [self._submit] * 3 if turn is None else [self._move] * 9
        if turn is not None and all(call.state in ENDED for call in turn.calls):
            choices += [self._close] * 6
        self.pick(choices)()

    def _of_the_run(self) -> None:
        facts: list[Fact] = [
            RunStopped(reason=self.pick(list(R)), detail=self.pick(TEXTS)),
            RunReopened(through="resume", by="ann"),
            ModeChanged(mode=self.pick(["plan", "build"])),
            MessageSaid(message="go on"),
            BudgetReserved(budget="calls", amount=1, reservation=str(self.view.seq)),
        ]
        self.add(self.pick(facts))

    def _close(self) -> None:
        self.add(TurnClosed(turn=len(self.view.turns)))

    def _submit(self) -> None:
        number = len(self.view.turns) + 1
        names = [CallId(f"t{number}.{n + 1}") for n in range(self.pick(range(5)))]
        calls = tuple(
            CallRecord(
                id=name,
                provider_id=str(name),
                tool=self.pick(["edit", "look"]),
                arguments=self.pick([None, {}, {"a": 1}, AWKWARD]),
                effect=self.pick(list(Effect)),
            )
            for name in names
        )
        edges = tuple(Edge(one, other, Reason.NEEDS) for one, other in pairwise(names))
        self.add(TurnSubmitted(turn=number, provider="plan", message={}, calls=calls, edges=edges))

    def _move(self) -> None:
        calls = self.view.turns[-1].calls
        call = self.pick(calls) if calls else None
        if call is None:
            return
        if call.stuck:
            self.add(HolderStopped(call=call.id, late="late"))
        if ARROWS[call.state]:
            for fact in self._facts(call, self.pick(sorted(ARROWS[call.state]))):
                self.add(fact)

    def _facts(self, call: CallView, target: State) -> Iterator[Fact]:
        name = call.id
        match target:
            case State.AWAITING_APPROVAL:
                yield ApprovalAsked(
                    call=name,
                    approval=ApprovalId(f"{name}.a{len(self.view.approvals)}"),
                    digest="",
                    arguments=call.record.arguments,
                    rule="ask",
                    expires_wall=WALL,
                )
            case State.QUEUED:
                asked = call.approval
                if asked is not None and asked.answer is None and self.pick([True, False]):
                    yield ApprovalAnswered(call=name, approval=asked.id, granted=True, by="ann")
                yield CallQueued(call=name, rule="default")
            case State.RUNNING:
                yield CallStarted(call=name, attempt=call.attempt + 1, token=1)
            case State.BACKING_OFF if call.state is State.UNCERTAIN:
                yield CallReopened(call=name, by="ann")
            case State.BACKING_OFF:
                yield AttemptEnded(call=name, attempt=call.attempt, cause="503")
            case _ if call.state is State.UNCERTAIN:
                yield CallSettled(call=name, outcome=self._outcome(target), by="ann")
            case _:
                outcome, stopped = self._outcome(target), self.pick([True, False])
                yield CallEnded(call=name, state=target, outcome=outcome, stopped=stopped)

    def _outcome(self, state: State) -> Outcome:
        if state is State.SUCCEEDED:
            return Success(value=self.pick([None, "x", 3, AWKWARD]))
        happened = Happened.UNKNOWN if state is State.UNCERTAIN else self.pick(list(Happened))
        return Failure(code=self.pick(list(Code)), message=self.pick(TEXTS), happened=happened)


TEXTS = ["", "no", "x" * 5000, "\x1b[31m\u2028 a\nb\t漢"]


@settings(deadline=None, max_examples=200)
@given(tape=st.lists(st.integers(0, 10_000), max_size=400))
def test_of_any_journal_a_report_is_made_that_tells_of_each_call_exactly_once(
    tape: list[int],
) -> None:
    walk = Walk(tape)
    for _ in range(len(tape) // 4):
        walk.step()
    rows = numbered(RUN, walk.facts)
    view = fold(RUN, rows)

    told = report(view)

    assert Counter(listed(told)) == Counter(list(view.calls))
    assert {one.call for one in told.confirmed} == {
        call.id for call in view.calls.values() if succeeded(call.settled or call.outcome)
    }
    assert (told.last_new is None) is (not told.confirmed)
    text = str(told)
    assert text == str(report(fold(RUN, rows)))
    assert len(text) < 60_000
    assert msgspec.json.decode(told.to_json(), type=StopReport) == told
    assert (told.reason is None) is (view.stop_reason is None)


def test_a_report_is_made_at_every_moment_of_a_run_to_which_everything_happens() -> None:
    facts = [one for one in every_kind_of_fact() if isinstance(one, (RunStopped, ModeChanged))]

    told = report(fold(RUN, numbered(RUN, [RunOpened(run=RUN, driver=DRIVER), *facts])))

    assert (told.reason, told.mode) == (R.BUDGET_EXCEEDED, "plan")


# The command line


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "runs.db"
    theatre_of(journal=SqliteStore(path)).enter(stopped_run)
    return path


def told_by(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == code, result.output
    return result.output


def test_the_command_tells_the_report_of_a_journal_at_rest(file: Path) -> None:
    text = told_by("report", "r", "--journal", str(file))
    given = json.loads(told_by("report", "r", "--journal", str(file), "--json"))

    assert "run r, mode build: stopped: CANCELLED by ann" in text
    assert "  because: the user went home" in text
    assert given["reason"] == "CANCELLED"
    assert len(given["confirmed"]) == 3


def test_a_run_that_there_is_not_is_named(file: Path) -> None:
    assert "other" in told_by("report", "other", "--journal", str(file), code=2)


def test_a_damaged_run_is_reported_as_far_as_it_is_whole(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE facts SET body = '{' WHERE body LIKE '%run_stopped%'")

    text = told_by("report", "r", "--journal", str(file), code=1)

    assert "not stopped" in text


def test_the_other_commands_name_the_reason(file: Path) -> None:
    assert "stopped: CANCELLED: the user went home" in told_by("show", "r", "--journal", str(file))
    assert json.loads(told_by("show", "r", "--journal", str(file), "--json"))["stopped"] == (
        "CANCELLED"
    )
    assert "stopped: CANCELLED: the user went home (laneway report r)" in told_by(
        "why", "r", "--journal", str(file)
    )
    assert "r  CANCELLED" in told_by("runs", "--journal", str(file))
    assert "stopped: CANCELLED" in told_by("replay", "r", "--journal", str(file))


def stops_listed(path: Path) -> str:
    return lines(path)[0].stopped


def test_the_list_of_runs_tells_of_stops_and_of_answers_that_ask_for_nothing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "runs.db"
    theatre = theatre_of(journal=SqliteStore(path))
    with pytest.raises(JournalError):
        lines(path)

    async def host(run: Run) -> list[str]:
        found = [stops_listed(path)]
        await run.submit(NOTHING_MORE)
        found.append(stops_listed(path))
        await run.say("more")
        found.append(stops_listed(path))
        await run.submit(plan({"id": "a", "tool": "same"}))
        found.append(stops_listed(path))
        await run.stop(R.BUDGET_EXCEEDED)
        await run.submit(plan({"id": "a", "tool": "same"}))
        found.append(stops_listed(path))
        await run.resume()
        return [*found, stops_listed(path)]

    assert theatre.enter(host) == ["", "COMPLETED", "", "", "BUDGET_EXCEEDED", ""]
