"""`laneway replay`: lists, moments and steps at the command line."""

import asyncio
import json
import os
import pty
import sqlite3
import subprocess
import sys
import termios
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer
from msgspec.structs import replace
from typer.testing import CliRunner, Result

from laneway.calls import CallRecord, Edge, Reason
from laneway.claims import Claim, exclusive, shared
from laneway.engine.cli.app import app
from laneway.engine.cli.commands import replay as command
from laneway.engine.cli.commands.replay import replay_
from laneway.engine.cli.commands.replay_keys import (
    HELP,
    Stepper,
    keys_of,
    step_through,
    typed_keys,
)
from laneway.engine.cli.commands.replay_lines import fact_line, moment_lines
from laneway.engine.cli.commands.replay_moment import shown_moment
from laneway.engine.cli.commands.replay_point import KINDS
from laneway.engine.cli.commands.replay_shown import local_time
from laneway.engine.cli.commands.replay_words import fact_text
from laneway.errors import UsageError
from laneway.facts import (
    ApprovalAnswered,
    ApprovalAsked,
    AttemptEnded,
    BudgetReserved,
    BudgetSettled,
    CallEnded,
    CallJoined,
    CallProbed,
    CallQueued,
    CallReopened,
    CallSettled,
    CallStarted,
    ChildEntered,
    Driver,
    Fact,
    HolderStopped,
    HostNoted,
    LaneChanged,
    LossAccepted,
    MessageSaid,
    ProcessStarted,
    Row,
    RunForked,
    RunOpened,
    RunTaken,
    Setting,
    TaskEnded,
    TaskStarted,
    TurnClosed,
    TurnSubmitted,
)
from laneway.ids import ApprovalId, CallId, RunId
from laneway.journal.fold import RunView
from laneway.journal.lease import this_driver
from laneway.journal.replay import Replay
from laneway.journal.sqlite import SqliteStore
from laneway.outcomes import Code, Failure, Happened, Success
from laneway.states import State
from laneway.testing.sample_facts import every_kind_of_fact

RUN = RunId("r")
DRIVER = Driver(host="h", boot="b", pid=7, started="1")
SRC = Path(__file__).resolve().parent.parent / "src"
FIRST_WALL = 1_769_860_800.0  # 2026-01-31T12:00:00Z
LOST = Failure(code=Code.OUTCOME_UNKNOWN, message="Nobody saw its end.", happened=Happened.UNKNOWN)

ONE, TWO, THREE, FOUR = (CallId(f"t1.{n}") for n in range(1, 5))


def record(call: CallId, tool: str, *claims: Claim, **arguments: Any) -> CallRecord:
    return CallRecord(
        id=call,
        provider_id=f"call_{call[-1]}",
        tool=tool,
        arguments=arguments,
        claims=(*claims, shared("run:r")),
    )


CALLS = (
    record(ONE, "edit", exclusive("file:/w/a.py"), path="a.py"),
    record(TWO, "edit", exclusive("file:/w/a.py"), path="a.py"),
    record(THREE, "send", exclusive("lane:mail"), to="ann"),
    record(FOUR, "look", shared("file:/w"), path="."),
)
EDGES = (Edge(ONE, FOUR, Reason.CONFLICT, "file:/w/a.py"), Edge(THREE, FOUR, Reason.NEEDS))
OPENED = RunOpened(
    run=RUN, driver=DRIVER, settings={"workspace": "/w"}, setting=Setting(lanes={"lane:mail": 2})
)


def story() -> list[Fact]:
    """One edit runs, one waits for it, a mail waits for a human, and a look waits for both."""
    return [
        OPENED,
        TurnSubmitted(turn=1, provider="plan", message={}, calls=CALLS, edges=EDGES),
        CallQueued(call=ONE, rule="default"),
        CallStarted(call=ONE, attempt=1, token=1),
        CallQueued(call=TWO, rule="default"),
        ApprovalAsked(
            call=THREE,
            approval=ApprovalId("t1.3.a1"),
            digest="",
            arguments={"to": "ann"},
            rule="mail",
            reason="it leaves the house",
            expires_wall=FIRST_WALL + 3600,
        ),
        BudgetReserved(budget="tokens", amount=100, reservation="x"),
        TaskStarted(task="build", call=ONE, run=RunId("r/build")),
        CallEnded(call=ONE, state=State.SUCCEEDED, outcome=Success(value="edited")),
        LaneChanged(lane="lane:mail", change="resized", value=3),
    ]


def rows(facts: Sequence[Fact]) -> list[Row]:
    """A fact each half second."""
    return [
        Row(RUN, seq, FIRST_WALL + seq / 2 - 0.5, 50 + seq / 2, fact)
        for seq, fact in enumerate(facts, 1)
    ]


def replay(facts: Sequence[Fact]) -> Replay:
    return Replay(RUN, rows(facts))


async def kept(path: Path, facts: Sequence[Fact]) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.take(RUN, this_driver())
    await store.commit(rows(facts))
    await store.close()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the story in its journal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LANEWAY_JOURNAL", raising=False)
    asyncio.run(kept(tmp_path / "laneway.db", story()))
    return tmp_path


def laneway(*arguments: str) -> Result:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def seqs(*options: str) -> list[int]:
    result = laneway("replay", "r", "--json", *options)
    assert result.exit_code == 0, result.output
    return [fact["seq"] for fact in json.loads(result.stdout)["shown"]]


# The list


def test_each_fact_is_a_line_with_its_time_what_it_says_and_the_state_it_led_to(
    here: Path,
) -> None:
    lines = laneway("replay", "r").stdout.splitlines()

    assert len(lines) == 10
    assert lines[0].endswith("+0.000 s  run r opened by process 7 on host 'h', mode build")
    assert lines[1].endswith("+0.500 s  turn 1, 4 calls  → 4 PENDING")
    assert lines[2].endswith("t1.1 edit a.py  queued for file:a.py exclusive (default)  → QUEUED")
    assert lines[3].endswith(
        "t1.1 edit a.py  started, attempt 1, holds file:a.py exclusive (token 1)  → RUNNING"
    )
    assert lines[8].endswith("+4.000 s  t1.1 edit a.py  ended: edited  → SUCCEEDED")
    assert lines[9].endswith("  lane:mail resized to 3")
    assert [line[0] for line in lines] == [*"  ·▶·?  ✓ "]
    assert lines[0].split()[:2] == ["1", local_time(FIRST_WALL).split()[1]]


def test_a_day_is_told_where_it_is_not_the_first_one() -> None:
    assert local_time(1e18) == "1000000000000000000.000"

    late = Row(RUN, 2, FIRST_WALL + 90_000, 60, HostNoted(note="late"))
    told = Replay(RUN, [*rows([OPENED]), late])
    facts = [shown_moment(told, seq).fact for seq in (1, 2)]

    first, second = (fact_line(fact, FIRST_WALL).split() for fact in facts)
    assert first[1] == local_time(FIRST_WALL).split()[1]
    assert second[1:3] == local_time(FIRST_WALL + 90_000).split()


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ((), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        (("--call", "t1.1"), [2, 3, 4, 8, 9]),
        (("--call", "call_1"), [2, 3, 4, 8, 9]),
        (("--lane", "mail"), [2, 6, 10]),
        (("--lane", "lane:mail"), [2, 6, 10]),
        (("--lane", "file:a.py", "--call", "t1.2"), [2, 5]),
        (("--lane", "file:/w/b.py"), [2]),  # t1.4 reads the whole folder.
        (("--lane", "file:/elsewhere"), []),
        (("--state", "RUNNING"), [4]),
        (("--state", "pending"), [2]),
        (("--state", "RUNNING", "--call", "t1.2"), []),
        (("--lane", "mail", "--state", "AWAITING_APPROVAL"), [6]),
        (("--kind", "call_queued"), [3, 5]),
        (("--kind", "call_queued", "--kind", "run_opened"), [1, 3, 5]),
        (("--kind", "call_queued", "--call", "t1.2"), [5]),
    ],
)
def test_facts_are_filtered(here: Path, options: tuple[str, ...], found: list[int]) -> None:
    assert seqs(*options) == found


def test_a_terminal_is_told_line_by_line_what_a_file_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "runs.db"
    asyncio.run(kept(path, [replace(OPENED, settings=None), *story()[1:4]]))

    for seen in (True, False):
        monkeypatch.setattr(sys.stdout, "isatty", lambda seen=seen: seen)
        with pytest.raises(typer.Exit):
            replay_("r", path)

    lines = capsys.readouterr().out.splitlines()
    assert lines[3].startswith("\x1b[36m▶\x1b[0m")
    assert [line.replace("\x1b[36m", "").replace("\x1b[0m", "") for line in lines[:4]] == lines[4:]
    assert lines[3].endswith("holds file:/w/a.py exclusive (token 1)  → RUNNING")


def test_that_nothing_fits_is_said(here: Path) -> None:
    assert laneway("replay", "r", "--state", "DENIED").stdout == "no fact fits\n"


def test_a_list_as_json_has_the_keys_that_programs_rely_on(here: Path) -> None:
    told = json.loads(laneway("replay", "r", "--json", "--kind", "call_started").stdout)

    assert {name: told[name] for name in told if name != "shown"} == {
        "run": "r",
        "facts": 10,
        "damage": "",
    }
    assert told["shown"] == [
        {
            "seq": 4,
            "wall": FIRST_WALL + 1.5,
            "elapsed_seconds": 1.5,
            "kind": "call_started",
            "text": "▶ t1.1 edit a.py  started, attempt 1, holds file:a.py exclusive (token 1)",
            "calls": ["t1.1"],
            "moves": [{"call": "t1.1", "before": "QUEUED", "after": "RUNNING"}],
            "fact": {"fact": "call_started", "call": "t1.1", "attempt": 1, "token": 1},
        }
    ]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--call", "nobody"), "run 'r' has no call 'nobody'"),
        (("--kind", "started"), "no fact is a 'started'; there are: approval_answered, "),
        (("--lane", "nothing:"), ""),
        (("--lane", "lane:"), "resource 'lane:': "),
        (("--at", "3", "--call", "t1.1"), "--at shows all of a moment; leave --call"),
        (("--step",), "--step needs a terminal to read keys from"),
        (("--at", "0"), "run 'r' has no fact 0: give a number from 1 to 10"),
        (("--at", "11"), "run 'r' has no fact 11: give a number from 1 to 10"),
        (("--at", "yesterday"), "--at 'yesterday' is no moment: give the number of a fact"),
        (("--at", "2026-01-31T11:59:59Z"), "run 'r' had not begun at 2026-01-31T11:59:59Z"),
        (("--at", "-3"), "--at '-3' is no moment"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_way_out(
    here: Path, options: tuple[str, ...], told: str
) -> None:
    result = laneway("replay", "r", *options)

    assert result.exit_code == (2 if told else 0)
    assert told in result.stderr


def test_a_run_that_is_not_there_is_named(here: Path) -> None:
    result = laneway("replay", "q")

    assert result.exit_code == 2
    assert result.stderr == "laneway: the journal has no run 'q' (runs: r)\n"


# A moment


@pytest.mark.parametrize(
    ("at", "seq"),
    [
        ("4", 4),
        ("+0s", 1),
        ("+1.4s", 3),
        ("+1.5", 4),
        ("+1500ms", 4),
        ("+1m", 10),
        ("+1h", 10),
        ("2026-01-31T12:00:01.6Z", 4),
        ("2026-01-31T13:00:01+01:00", 3),
        ("12:00:02Z", 5),
        ("12:00:00.9+00:00", 2),
        ("2027-01-01", 10),
    ],
)
def test_a_moment_is_named_in_many_ways(here: Path, at: str, seq: int) -> None:
    told = json.loads(laneway("replay", "r", "--at", at, "--json").stdout)

    assert told["seq"] == seq


def test_a_time_without_a_zone_is_of_this_place(here: Path) -> None:
    day, clock = local_time(FIRST_WALL + 2).split()

    for at in (f"{day}T{clock}", f"{day} {clock}", clock):
        assert json.loads(laneway("replay", "r", "--at", at, "--json").stdout)["seq"] == 5


def test_a_moment_tells_who_held_what_and_who_waited_for_what(here: Path) -> None:
    lines = laneway("replay", "r", "--at", "8").stdout.splitlines()

    until = local_time(FIRST_WALL + 3600)
    assert lines[7].startswith("  · t1.4 look .  PENDING  since +0.500 s  ")
    assert lines[7].endswith("  waits for t1.1 (conflict file:a.py), waits for t1.3 (needs)")
    assert lines[0].startswith(f"run r  after fact 8 of 10  {local_time(FIRST_WALL + 3.5)} ")
    assert lines[0].endswith("  +3.500 s")
    assert lines[1:] == [
        "driven by process 7 on host 'h', mode build",
        "background task build begins in run r/build",
        "turn 1  OPEN",
        "  ▶ t1.1 edit a.py  RUNNING  since +1.500 s  attempt 1",
        "  · t1.2 edit a.py  QUEUED  since +2.000 s  waits for t1.1 (lane file:a.py)",
        "  ? t1.3 send ann  AWAITING_APPROVAL  since +2.500 s  waits for approval t1.3.a1",
        lines[7],
        "lanes",
        "  file:a.py  held by t1.1; waited for by t1.2",
        f"? t1.3.a1 waits for a human until {until} (mail: it leaves the house)",
        "budget tokens: 0 taken, 100 set aside",
        "background task build: running",
    ]


def test_what_was_free_by_then_is_waited_for_no_more(here: Path) -> None:
    told = json.loads(laneway("replay", "r", "--at", "9", "--json").stdout)

    calls = {call["call"]: call for call in told["turns"][0]["calls"]}
    assert calls["t1.1"]["outcome"] == {"outcome": "success", "value": "edited"}
    assert calls["t1.2"]["waits_for"] == []
    assert [wait["call"] for wait in calls["t1.4"]["waits_for"]] == ["t1.3"]
    assert told["lanes"] == [{"resource": "file:/w/a.py", "holders": ["t1.2"], "waiters": []}] or (
        told["lanes"] == [{"resource": "file:/w/a.py", "holders": [], "waiters": ["t1.2"]}]
    )
    lines = laneway("replay", "r", "--at", "9").stdout
    assert "QUEUED  since +2.000 s  starts next, or waits for what this run does not tell" in lines
    assert "✓ t1.1 edit a.py  SUCCEEDED  since +4.000 s  edited" in lines


def test_a_lane_is_as_wide_as_the_driver_said_or_as_it_was_seen_to_be() -> None:
    mail = [record(CallId(f"t1.{n}"), "send", exclusive("lane:mail")) for n in range(1, 5)]
    post = [record(CallId(f"t1.{n}"), "post", exclusive("lane:post")) for n in range(5, 8)]
    facts: list[Fact] = [
        OPENED,
        TurnSubmitted(turn=1, provider="plan", message={}, calls=(*mail, *post)),
        *(CallQueued(call=call.id, rule="") for call in (*mail, *post)),
        *(CallStarted(call=call.id, attempt=1, token=1) for call in (mail[0], *post[:2])),
    ]

    moment = shown_moment(replay(facts), len(facts))

    calls = moment.turns[0].calls
    waits = {str(call.call): [wait.call for wait in call.waits_for] for call in calls}
    assert waits["t1.2"] == []
    assert waits["t1.4"] != []
    assert waits["t1.7"] != []


def test_a_call_that_joined_another_waits_for_it_and_for_no_lane() -> None:
    facts = [
        *story()[:5],
        CallJoined(call=TWO, leader="r/t1.1"),
        CallEnded(call=ONE, state=State.FAILED, outcome=LOST),
    ]
    told = replay(facts)

    (before,) = [one for one in shown_moment(told, 6).turns[0].calls if one.call == TWO]
    (after,) = [one for one in shown_moment(told, 7).turns[0].calls if one.call == TWO]

    assert [(wait.call, wait.reason) for wait in before.waits_for] == [("r/t1.1", "same call")]
    assert TWO not in {name for lane in shown_moment(told, 6).lanes for name in lane.waiters}
    assert after.waits_for == ()


def test_a_call_that_joined_one_of_another_run_waits_for_it() -> None:
    told = replay([*story()[:5], CallJoined(call=TWO, leader="q/t1.1")])

    (call,) = [one for one in shown_moment(told, 6).turns[0].calls if one.call == TWO]

    assert [wait.call for wait in call.waits_for] == ["q/t1.1"]


def test_nothing_is_held_behind_a_fork_that_nobody_drives() -> None:
    told = shown_moment(replay([*story()[:4], RunForked(source=RUN, seq=4)]), 5)

    assert told.driver is None
    assert told.lanes == ()
    assert told.turns[0].calls[0].state is State.RUNNING


def test_a_stuck_body_an_unsettled_call_and_a_pause_between_attempts_are_told() -> None:
    facts = [
        *story()[:4],
        CallEnded(call=ONE, state=State.TIMED_OUT, outcome=LOST, stopped=False),
        CallQueued(call=TWO, rule=""),
        CallStarted(call=TWO, attempt=1, token=2),
        CallEnded(call=TWO, state=State.UNCERTAIN, outcome=LOST),
        CallQueued(call=THREE, rule=""),
        CallStarted(call=THREE, attempt=1, token=3),
        AttemptEnded(call=THREE, attempt=1, cause="503"),
    ]
    told = replay(facts)

    moment = shown_moment(told, 11)

    assert moment.turns[0].calls[0].stuck
    assert [wait.reason for wait in moment.turns[0].calls[1].waits_for] == ["settlement"]
    assert moment.turns[0].calls[2].waits_for == ()
    assert any("its body has not stopped" in line for line in moment_lines(moment))
    assert any(line.endswith("waits for settlement") for line in moment_lines(moment))
    assert moment.lanes[0].holders == (ONE,)


def test_an_uncertain_call_is_waited_for_by_what_needs_it_until_it_is_settled() -> None:
    facts = [
        *story()[:2],
        CallQueued(call=THREE, rule=""),
        CallStarted(call=THREE, attempt=1, token=3),
        CallEnded(call=THREE, state=State.UNCERTAIN, outcome=LOST),
        CallSettled(call=THREE, outcome=Success(value=1)),
    ]
    told = replay(facts)

    def waits(seq: int) -> list[str]:
        return [wait.call for wait in shown_moment(told, seq).turns[0].calls[3].waits_for]

    assert waits(5) == ["t1.1", "t1.3"]
    assert waits(6) == ["t1.1"]
    assert shown_moment(told, 6).turns[0].calls[2].since_seconds == 2.5


def test_a_settlement_that_came_too_late_moves_nothing() -> None:
    facts = [
        *story()[:4],
        CallEnded(call=ONE, state=State.UNCERTAIN, outcome=LOST),
        TurnClosed(turn=1),
        CallSettled(call=ONE, outcome=Success(value=1)),
    ]

    call = shown_moment(replay(facts), 7).turns[0].calls[0]

    assert (call.state, call.since_seconds, call.waits_for) == (State.UNCERTAIN, 2.0, ())


def test_only_what_is_not_over_is_told_while_stepping() -> None:
    facts = [*story()[:4], CallEnded(call=ONE, state=State.SUCCEEDED, outcome=Success(value=1))]

    moment = shown_moment(replay(facts), 5, all_calls=False)

    assert [call.call for call in moment.turns[0].calls] == [TWO, THREE, FOUR]


def test_ended_tasks_and_settled_budgets_are_told() -> None:
    facts = [
        *story()[:8],
        BudgetSettled(reservation="x", amount=30),
        TaskEnded(task="build", outcome=LOST),
        TaskStarted(task="lint", call=ONE, run=RUN),
        TaskEnded(task="lint", outcome=Success(value=0)),
    ]

    moment = shown_moment(replay(facts), 12)

    assert (moment.budgets["tokens"].settled, moment.budgets["tokens"].reserved) == (30, 0)
    assert moment.tasks == {"build": "failed", "lint": "succeeded"}


# Words


def test_every_kind_of_fact_has_words() -> None:
    view = RunView(RUN)
    for row in rows(story()[:2]):
        view.apply(row)

    told = {type(fact): fact_text(view, fact) for fact in every_kind_of_fact()}

    assert len(told) == len(KINDS)
    assert all(text.strip() for text in told.values())
    assert not [text for text in told.values() if "object at 0x" in text]


@pytest.mark.parametrize(
    ("fact", "told"),
    [
        (ApprovalAnswered(call=ONE, approval=ApprovalId("x"), granted=True), "approved"),
        (
            ApprovalAnswered(
                call=ONE, approval=ApprovalId("x"), granted=False, by="ann", reason="no"
            ),
            "refused by ann: no",
        ),
        (CallQueued(call=ONE, rule=""), "queued for file:/w/a.py exclusive (no rule)"),
        (CallJoined(call=ONE, leader="r/t1.2"), "waits for the same call r/t1.2"),
        (ChildEntered(call=ONE, run=RunId("r/t1.1/1")), "entered run r/t1.1/1"),
        (ProcessStarted(call=ONE, group=7, started=""), "started process group 7"),
        (
            AttemptEnded(call=ONE, attempt=2, cause="503", delay_seconds=0.5),
            "attempt 2 ended: 503; again in 0.5 s",
        ),
        (
            CallEnded(call=ONE, state=State.TIMED_OUT, outcome=LOST, stopped=False),
            "ended: OUTCOME_UNKNOWN: Nobody saw its end.; its body has not stopped",
        ),
        (HolderStopped(call=ONE), "its body has stopped at last"),
        (HolderStopped(call=ONE, late="late"), "its body has stopped at last: late"),
        (CallProbed(call=ONE, found="unknown", detail="503"), "its probe says: unknown: 503"),
        (CallSettled(call=ONE, outcome=Success(value=1), by="ann"), "settled by ann: 1"),
        (CallReopened(call=ONE, by="ann"), "did nothing, as was found out by ann: it runs again"),
    ],
)
def test_what_befalls_a_call_is_said_in_words(fact: Fact, told: str) -> None:
    view = RunView(RUN)
    for row in rows(story()[:2]):
        view.apply(row)

    assert fact_text(view, fact) == f"· t1.1 edit a.py  {told}"


@pytest.mark.parametrize(
    ("fact", "told"),
    [
        (
            RunTaken(driver=DRIVER, changes=("other rules",)),
            "taken up by process 7 on host 'h', mode build; other rules",
        ),
        (RunForked(source=RunId("q"), seq=3), "forked from run q at its fact 3"),
        (LossAccepted(lost=3, by="ann"), "3 damaged facts behind this were given up by ann"),
        (HostNoted(note={"a": 1}), 'the host notes: {"a": 1}'),
        (LaneChanged(lane="lane:mail", change="paused"), "lane:mail paused"),
        (MessageSaid(message="Hello."), "the host says: Hello."),
        (MessageSaid(message={"role": "user", "content": "Hi."}), "the host says: Hi."),
        (MessageSaid(message={"x": 1}), 'the host says: {"x": 1}'),
        (
            TurnSubmitted(turn=2, provider="p", message={"content": "Done."}),
            "turn 2, no calls: Done.",
        ),
        (TurnClosed(turn=2), "turn 2 closed: its outcomes are final"),
        (
            BudgetReserved(budget="b", amount=3, reservation="x", call=ONE),
            "budget b: 3 set aside for t1.1",
        ),
        (BudgetSettled(reservation="x", amount=2), "reservation x: 2 taken"),
        (TaskEnded(task="build", outcome=Success(value=1)), "background task build: 1"),
    ],
)
def test_what_befalls_a_run_is_said_in_words(fact: Fact, told: str) -> None:
    assert fact_text(RunView(RUN), fact).strip() == told


# Damage


def damaged(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()


def test_a_damaged_run_is_shown_up_to_the_damage(here: Path) -> None:
    damaged(here / "laneway.db", "UPDATE facts SET body = '{}' WHERE place & 255 = 8")

    listed = laneway("replay", "r")
    told = json.loads(laneway("replay", "r", "--json").stdout)
    moment = laneway("replay", "r", "--at", "3")

    assert listed.exit_code == moment.exit_code == 1
    assert len(listed.stdout.splitlines()) == 8
    assert "! damaged: run 'r', fact 8: " in listed.stdout
    assert "the run can be read up to there, but not go on" in listed.stdout
    assert (told["facts"], len(told["shown"])) == (7, 7)
    assert "run 'r', fact 8: " in told["damage"]
    assert "after fact 3 of 7" in moment.stdout
    assert "! damaged: run 'r', fact 8" in moment.stdout


def test_a_run_of_which_nothing_is_left_is_refused(here: Path) -> None:
    damaged(here / "laneway.db", "UPDATE facts SET body = '{}' WHERE place & 255 = 1")

    result = laneway("replay", "r")

    assert result.exit_code == 2
    assert "run 'r', fact 1: " in result.stderr


def test_a_file_whose_pages_are_damaged_is_read_as_far_as_they_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "long.db"
    asyncio.run(kept(path, [OPENED, *(HostNoted(note="x" * 500) for _ in range(100))]))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    content = bytearray(path.read_bytes())
    content[-size:] = b"\xff" * size
    path.write_bytes(content)

    result = laneway("replay", "r", "--journal", str(path), "--json")

    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert 50 < told["facts"] == len(told["shown"]) < 101
    assert f"fact {told['facts'] + 1}: the file is damaged there" in told["damage"]


# Stepping


def pressed(stepper: Stepper, keys: str) -> list[int]:
    seen: list[int] = []
    step_through(stepper, iter(keys), lambda: seen.append(stepper.seq))
    return seen


def test_keys_lead_forward_and_back_and_no_further_than_the_ends() -> None:
    assert pressed(Stepper(range(1, 4), 1), "n n\nnppppx") == [1, 2, 3, 3, 3, 3, 2, 1, 1, 1, 1]


def test_q_quits_but_not_while_a_number_is_typed() -> None:
    assert pressed(Stepper(range(1, 4), 1), "nqn") == [1, 2]
    assert pressed(Stepper(range(1, 4), 1), "gqn") == [1, 1, 1, 2]


@pytest.mark.parametrize(
    ("typed", "seq"),
    [
        ("3\n", 3),
        ("12\x7f\n", 1),
        ("5\r", 6),
        ("999999999999999999999\n", 9),
        ("\n", 3),
        ("0\n", 1),
    ],
)
def test_a_number_leads_to_its_fact_or_to_the_next_that_fits(typed: str, seq: int) -> None:
    stepper = Stepper([1, 3, 6, 9], 3)

    pressed(stepper, f"g{typed}")

    assert stepper.seq == seq
    assert stepper.prompt == HELP


def test_what_is_typed_is_shown_and_any_other_key_gives_it_up() -> None:
    stepper = Stepper([1, 3], 1)

    pressed(stepper, "g12")
    assert stepper.prompt == "go to fact: 12"
    pressed(stepper, "x")
    assert (stepper.prompt, stepper.seq) == (HELP, 1)


def test_arrows_are_keys_in_either_mode_and_in_pieces() -> None:
    pieces = iter(
        [b"\x1b[C\x1b[D", b"\x1b", b"[", b"Cg", b"\x1bOA\x1bOB", "é".encode(), b"\x1bx", b""]
    )

    assert list(typed_keys(lambda: next(pieces))) == [*"npngpn", "é", "\x1b", "x"]


def at_a_terminal(
    keys: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], call: str = ""
) -> str:
    """What is drawn for somebody who presses keys."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as typing:
        monkeypatch.setattr(sys, "stdin", typing)
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        typist = threading.Thread(target=os.write, args=(ours, keys))

        @contextmanager
        def typed(terminal: int) -> Generator[Iterator[str]]:
            with keys_of(terminal) as pressed:
                typist.start()
                yield pressed

        monkeypatch.setattr(command, "keys_of", typed)
        with pytest.raises(typer.Exit) as left:
            replay_("r", step=True, call=call)
        typist.join()
    os.close(ours)
    assert left.value.exit_code == 0
    return capsys.readouterr().out


def test_each_key_draws_the_moment_it_leads_to(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LINES", "9")

    screens = at_a_terminal(b"n\x1b[Dg8\rq", monkeypatch, capsys).split(command.CLEAR)[1:]

    assert [screen.split(" of 10")[0] for screen in screens] == [
        f"run r  after fact {seq}" for seq in (1, 2, 1, 1, 1, 8)
    ]
    assert screens[1].splitlines()[2:4] == ["turn 1, 4 calls  → 4 PENDING", "turn 1  OPEN"]
    assert screens[4].endswith("go to fact: 8")
    assert screens[5].splitlines()[-2:] == ["… and 7 lines more: --at 8", HELP]


def test_stepping_leaves_out_what_does_not_fit(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = at_a_terminal(b"nnq", monkeypatch, capsys, "t1.2")

    assert [screen.split(" of ")[0][-1] for screen in drawn.split(command.CLEAR)[1:]] == [
        *("2", "5", "5")
    ]


def test_ctrl_c_leaves_the_terminal_as_it_was(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)

    def interrupted() -> None:
        with keys_of(theirs):
            assert termios.tcgetattr(theirs) != before
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()

    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)


def test_where_nothing_fits_there_is_nothing_to_step_through(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    with pytest.raises(UsageError, match="no fact fits"):
        replay_("r", step=True, state=State.DENIED)


def test_a_human_steps_through_a_run_at_a_terminal(here: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "laneway.engine.cli", "replay", "r", "--step", "--at", "3"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={
            **{name: one for name, one in os.environ.items() if not name.startswith("COVERAGE_")},
            "PYTHONPATH": str(SRC),
            "LINES": "8",
            "COLUMNS": "100",
        },
    )
    os.close(theirs)
    try:
        seen = ""
        for keys, wanted in (
            ("", "after fact 3 of 10"),
            ("n", "after fact 4 of 10"),
            ("\x1b[D\x1b[D", "after fact 2 of 10"),
            ("g8\n", "lines more: --at 8"),
        ):
            os.write(ours, keys.encode())
            seen = ""
            while not (wanted in seen and seen.rstrip(" ").endswith("q quit")):
                seen += os.read(ours, 4096).decode()
        os.write(ours, b"q")
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
