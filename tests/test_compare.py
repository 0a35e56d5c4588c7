"""Two runs side by side: where they part, and what each cost."""

import asyncio
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from typer.testing import CliRunner, Result

from laneway import Effect, Engine, State, Tool, tool
from laneway.calls import CallRecord, Edge, Reason
from laneway.claims import shared
from laneway.engine.cli.app import app
from laneway.errors import DamagedJournalError
from laneway.facts import (
    ApprovalAnswered,
    ApprovalAsked,
    AttemptEnded,
    BudgetReserved,
    BudgetSettled,
    CallEnded,
    CallJoined,
    CallQueued,
    CallSettled,
    CallStarted,
    Driver,
    Fact,
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
from laneway.journal.bare import streams
from laneway.journal.compare import Comparison, compare
from laneway.journal.fork import fork
from laneway.journal.lease import this_driver
from laneway.journal.memory import MemoryJournal, MemoryStore
from laneway.journal.sqlite import SqliteStore
from laneway.outcomes import Code, Failure, Success
from laneway.testing import VirtualClock, run_virtual
from laneway.testing.sample_facts import every_kind_of_fact
from laneway.testing.theatre import plan

DRIVER = Driver(host="h", boot="b", pid=7, started="1")
ONE, TWO = CallId("t1.1"), CallId("t1.2")
BROKEN = Failure(code=Code.TOOL_ERROR, message="call_1 broke")


def opened(run: str, **changes: Any) -> RunOpened:
    return RunOpened(run=RunId(run), driver=DRIVER, **changes)


def turn_of(
    run: str, ids: tuple[str, str] = ("call_1", "call_2"), **arguments: Any
) -> TurnSubmitted:
    first, second = ids
    calls = (
        CallRecord(
            id=ONE,
            provider_id=first,
            tool="look",
            arguments={"path": "a", **arguments},
            claims=(shared(f"run:{run}"),),
        ),
        CallRecord(
            id=TWO,
            provider_id=second,
            tool="edit",
            arguments={"text": {"$from": first}, "note": f"see ${{{first}.path}}"},
        ),
    )
    message = {
        "role": "assistant",
        "tool_calls": [
            {"id": first, "function": {"arguments": '{"path": "a"}'}},
            {"id": second, "function": {"arguments": f'{{"text": {{"$from": "{first}"}}}}'}},
        ],
    }
    edges = (Edge(ONE, TWO, Reason.DATA, "path"),)
    return TurnSubmitted(
        turn=1, provider="openai-chat", message=message, calls=calls, edges=edges, key=f"msg_{run}"
    )


def story(run: str, **changes: Any) -> list[Fact]:
    """Two calls one after the other, the second with a question before it."""
    question = ApprovalId("t1.2.a1")
    return [
        opened(run),
        MessageSaid(message="Go."),
        turn_of(run, **changes),
        CallQueued(call=ONE, rule="default"),
        CallStarted(call=ONE, attempt=1, token=hash(run) % 100 + 1),
        CallEnded(call=ONE, state=State.SUCCEEDED, outcome=Success(value="seen")),
        ApprovalAsked(
            call=TWO,
            approval=question,
            digest=run,
            arguments={"text": "seen"},
            rule="ask",
            expires_wall=float(len(run)),
        ),
        ApprovalAnswered(call=TWO, approval=question, granted=True, by="ann"),
        CallQueued(call=TWO, rule="ask"),
        CallStarted(call=TWO, attempt=1, token=50),
        CallEnded(call=TWO, state=State.SUCCEEDED, outcome=Success(value="done")),
        TurnClosed(turn=1),
    ]


def rows(run: str, facts: Sequence[Fact], start: float = 0.0, pace: float = 1.0) -> list[Row]:
    return [
        Row(RunId(run), seq, 1000 + start + seq * pace, start + seq * pace, fact)
        for seq, fact in enumerate(facts, 1)
    ]


def compared(a: Sequence[Fact], b: Sequence[Fact], **changes: Any) -> Comparison:
    return compare(rows("a", a), rows("b", b, **changes))


def changed(facts: list[Fact], at: int, **changes: Any) -> list[Fact]:
    """The same facts, one of them with other fields."""
    return [*facts[: at - 1], replace(facts[at - 1], **changes), *facts[at:]]


# Where they part


def test_runs_that_differ_in_names_times_tokens_and_ids_alone_do_not_part() -> None:
    other = story("b", ids=("toolu_x", "toolu_y"))

    found = compared(story("a"), other, start=77, pace=3)

    assert found.parting is None
    assert (found.shared, found.kin, found.brought) == (0, "", ())
    assert all(call.same for call in found.calls)
    assert "they don't part: nothing differs but times" in str(found)


@pytest.mark.parametrize("seed", range(20))
def test_the_order_in_which_calls_beside_each_other_were_written_is_chance(seed: int) -> None:
    def told(run: str, order: Sequence[int]) -> list[Fact]:
        ids = [CallId(f"t1.{n}") for n in range(1, 4)]
        streams: dict[int, list[Fact]] = {
            n: [
                CallQueued(call=call, rule=""),
                CallStarted(call=call, attempt=1, token=1),
                CallEnded(call=call, state=State.SUCCEEDED, outcome=Success(value=n)),
            ]
            for n, call in enumerate(ids)
        }
        calls = tuple(CallRecord(id=call, provider_id=call, tool="t") for call in ids)
        asked = TurnSubmitted(turn=1, provider="plan", message={}, calls=calls)
        return [opened(run), asked, *(streams[n].pop(0) for n in order), TurnClosed(turn=1)]

    order = [0, 1, 2] * 3
    other = order.copy()
    random.Random(seed).shuffle(other)

    assert compared(told("a", order), told("b", other)).parting is None


@pytest.mark.parametrize(
    ("at", "changes", "where", "what"),
    [
        (2, {"message": "Stop."}, "run", "message_said: message Go. against Stop."),
        (4, {"rule": "other"}, "call t1.1", "call_queued: rule default against other"),
        (
            6,
            {"outcome": Success(value="hidden")},
            "call t1.1",
            "call_ended: outcome.value seen against hidden",
        ),
        (
            8,
            {"granted": False},
            "call t1.2",
            "approval_answered: granted true against false",
        ),
        (
            7,
            {"arguments": {"text": "seen", "more": 1}},
            "call t1.2",
            "approval_asked: arguments.more null against 1",
        ),
    ],
)
def test_the_first_difference_is_named_with_its_place(
    at: int, changes: dict[str, Any], where: str, what: str
) -> None:
    found = compared(story("a"), changed(story("b"), at, **changes))

    assert found.parting is not None
    assert (found.parting.where, found.parting.what) == (where, what)
    assert found.parting.a is not None
    assert found.parting.b is not None
    assert found.parting.a.seq == found.parting.b.seq == at
    assert f"they part at fact {at} of a and fact {at} of b, {where}: {what}" in str(found)


def test_of_several_differences_the_first_is_named() -> None:
    other = changed(changed(story("b"), 11, outcome=BROKEN, state=State.FAILED), 4, rule="x")

    found = compared(story("a"), other)

    assert found.parting is not None
    assert found.parting.where == "call t1.1"


def test_other_arguments_part_runs_at_their_turn_whatever_the_form_of_the_message() -> None:
    found = compared(story("a"), story("b", path="b"))

    assert found.parting is not None
    assert found.parting.where == "turn 1"
    assert found.parting.what == "turn_submitted: calls[0].arguments.path a against b"


def test_another_tool_or_one_call_more_is_named() -> None:
    turn = turn_of("b")
    other_tool = replace(turn, calls=(replace(turn.calls[0], tool="list"), turn.calls[1]))
    one_more = replace(
        turn, calls=(*turn.calls, CallRecord(id=CallId("t1.3"), provider_id="c", tool="x"))
    )

    tool_apart = compared(story("a"), [*story("b")[:2], other_tool])
    count_apart = compared(story("a"), [*story("b")[:2], one_more])

    assert tool_apart.parting is not None
    assert tool_apart.parting.what == "turn_submitted: calls[0].tool look against list"
    assert [call.tool for call in tool_apart.calls] == ["look / list", "edit"]
    assert not tool_apart.calls[0].same
    assert count_apart.parting is not None
    assert count_apart.parting.what == "turn_submitted: calls has 2 against 3"
    assert [call.call for call in count_apart.calls] == ["t1.1", "t1.2", "t1.3"]
    assert count_apart.calls[2].a is None


def test_a_run_that_ended_earlier_parts_where_the_other_goes_on() -> None:
    found = compared(story("a"), story("b")[:5])
    back = compared(story("a")[:5], story("b"))

    assert found.parting is not None
    assert back.parting is not None
    assert (found.parting.what, found.parting.b) == ("call_ended in a alone", None)
    assert (back.parting.what, back.parting.a) == ("call_ended in b alone", None)
    assert "they part at fact 6 of a, call t1.1: call_ended in a alone" in str(found)
    assert "they part at fact 6 of b, call t1.1: call_ended in b alone" in str(back)


def test_facts_of_two_kinds_are_named_both() -> None:
    other = story("b")
    other[5] = AttemptEnded(call=ONE, attempt=1, cause="503")

    found = compared(story("a"), other[:6])

    assert found.parting is not None
    assert found.parting.what == "call_ended against attempt_ended"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            ProcessStarted(call=ONE, group=1, started="1"),
            ProcessStarted(call=ONE, group=2, started="2"),
        ),
        (CallJoined(call=ONE, leader="a/t1.2"), CallJoined(call=ONE, leader="b/t1.2")),
        (
            AttemptEnded(call=ONE, attempt=1, cause="503", delay_seconds=1),
            AttemptEnded(call=ONE, attempt=1, cause="503", delay_seconds=2),
        ),
        (
            TaskStarted(task="x", call=ONE, run=RunId("a/t1.1/1")),
            TaskStarted(task="x", call=ONE, run=RunId("b/t1.1/1")),
        ),
        (HostNoted(note="one"), HostNoted(note="other")),
        (RunTaken(driver=DRIVER), RunTaken(driver=DRIVER, mode="plan")),
    ],
)
def test_what_is_another_in_each_run_is_left_aside(one: Fact, other: Fact) -> None:
    after = story("a")[:5], story("b")[:5]

    assert compared([*after[0], one], [*after[1], other]).parting is None


@pytest.mark.parametrize(
    ("fact", "where"),
    [
        (LaneChanged(lane="lane:mail", change="paused"), "lane lane:mail"),
        (BudgetReserved(budget="tokens", amount=1, reservation="x"), "reservation x"),
        (TaskStarted(task="build", call=ONE, run=RunId("q")), "task build"),
        (LossAccepted(lost=1), "run"),
    ],
)
def test_what_befell_one_run_alone_parts_them(fact: Fact, where: str) -> None:
    found = compared(story("a"), [*story("b"), fact])

    assert found.parting is not None
    assert found.parting.where == where


def test_a_failure_that_names_a_call_is_the_same_under_another_id() -> None:
    def failed(run: str, name: str) -> list[Fact]:
        outcome = Failure(code=Code.TOOL_ERROR, message=f"{name} broke")
        ended = CallEnded(call=ONE, state=State.FAILED, outcome=outcome)
        settled = CallSettled(call=ONE, outcome=outcome)
        return [*story(run, ids=(name, "other"))[:5], ended, settled]

    found = compared(failed("a", "call_1"), failed("b", "toolu_1"))

    assert found.parting is None
    assert found.calls[0].same


def test_every_kind_of_fact_finds_its_stream() -> None:
    told = [Row(RunId("a"), 1, 0.0, 0.0, fact) for fact in every_kind_of_fact()]

    found = streams(told)

    assert sum(map(len, found.values())) == len(told) - 4  # opened, taken, forked, noted
    assert ("reservation", "t1.1") in found
    assert [type(one.fact) for one in found["task", "build"]] == [TaskStarted, TaskEnded]


def test_a_long_difference_is_cut() -> None:
    found = compared(story("a"), changed(story("b"), 2, message="x" * 500))

    assert found.parting is not None
    assert found.parting.what.endswith("xxx…")
    assert len(found.parting.what) < 120


# What they cost


def timed(run: str, *facts: tuple[float, Fact]) -> list[Row]:
    return [Row(RunId(run), seq, 1000 + at, at, fact) for seq, (at, fact) in enumerate(facts, 1)]


def retried(run: str) -> list[Row]:
    """Waits 1 and 2 s, runs 4 and 8 s; asks a human for 16 s; 32 s pass while nobody drives it."""
    question = ApprovalId("t1.2.a1")
    return timed(
        run,
        (0, opened(run)),
        (0, turn_of(run)),
        (1, CallQueued(call=ONE, rule="")),
        (1, CallStarted(call=ONE, attempt=1, token=1)),
        (5, AttemptEnded(call=ONE, attempt=1, cause="503")),
        (7, CallQueued(call=ONE, rule="")),
        (7, CallStarted(call=ONE, attempt=2, token=2)),
        (39, RunTaken(driver=replace(DRIVER, pid=8))),
        (47, CallEnded(call=ONE, state=State.FAILED, outcome=BROKEN)),
        (
            50,
            ApprovalAsked(
                call=TWO, approval=question, digest="", arguments={}, rule="", expires_wall=0
            ),
        ),
        (66, ApprovalAnswered(call=TWO, approval=question, granted=True)),
        (66, CallQueued(call=TWO, rule="")),
        (66, BudgetReserved(budget="tokens", amount=10, reservation="x")),
        (66, BudgetReserved(budget="tokens", amount=5, reservation="y")),
        (66, BudgetSettled(reservation="x", amount=7)),
    )


def test_time_is_told_apart_by_what_was_waited_for_and_is_not_counted_while_nobody_drove() -> None:
    found = compare(retried("a"), rows("b", [opened("b")]))

    one, two = (call.a for call in found.calls)
    assert one is not None
    assert two is not None
    assert (one.waiting_seconds, one.running_seconds, one.human_seconds) == (3, 12, 0)
    assert (one.attempts, one.state, one.outcome) == (2, State.FAILED, BROKEN)
    assert (two.waiting_seconds, two.running_seconds, two.human_seconds) == (18, 0, 16)
    total = found.total_a
    assert msgspec.to_builtins(total) == {
        "turns": 1,
        "calls": 2,
        "attempts": 2,
        "failures": 1,
        "waiting_seconds": 21,
        "human_seconds": 16,
        "running_seconds": 12,
        "span_seconds": 66,
        "drivers": 2,
        "approvals": 1,
        "budgets": {"tokens": 12},
    }
    assert found.total_b.span_seconds == found.total_b.calls == 0


def test_the_text_has_the_calls_that_came_to_something_else_and_the_totals() -> None:
    lines = str(compare(retried("a"), rows("b", story("b")))).splitlines()

    assert lines[:2] == ["a: run a", "b: run b"]
    at = lines.index("calls that came to something else:")
    assert lines[at + 1 : at + 7] == [
        "  t1.1 look",
        "    a: FAILED TOOL_ERROR  attempts 2, waited 3.000 s, ran 12.000 s",
        "    b: SUCCEEDED  attempts 1, waited 2.000 s, ran 1.000 s",
        "  t1.2 edit",
        "    a: QUEUED  attempts 0, waited 18.000 s, a human 16.000 s, ran 0.000 s",
        "    b: SUCCEEDED  attempts 1, waited 5.000 s, a human 2.000 s, ran 1.000 s",
    ]
    totals = {line[:20].strip(): line[20:].split() for line in lines[at + 7 :]}
    assert totals["attempts"] == ["2", "2", "+0"]
    assert totals["waiting, s"] == ["21.000", "7.000", "-14.000"]
    assert totals["budget tokens"] == ["12", "0", "-12"]


def test_failures_are_the_same_by_their_codes() -> None:
    def ended(run: str, failure: Failure) -> list[Fact]:
        return [*story(run)[:5], CallEnded(call=ONE, state=State.FAILED, outcome=failure)]

    other_words = Failure(code=Code.TOOL_ERROR, message="at 0x7f")
    other_code = Failure(code=Code.TIMEOUT, message="call_1 broke")

    assert compared(ended("a", BROKEN), ended("b", other_words)).calls[0].same_outcome
    assert not compared(ended("a", BROKEN), ended("b", other_code)).calls[0].same_outcome


def test_what_the_drivers_brought_along_is_told() -> None:
    before = Setting(tools={"edit": "1", "old": "1"}, policy="aa", lanes={"lane:mail": 1})
    after = Setting(tools={"edit": "2", "new": "1"}, lanes={"lane:mail": 2})

    found = compared(
        [opened("a", setting=before, settings={"x": 1})],
        [opened("b", setting=after, mode="plan")],
    )

    assert found.parting is None
    assert found.brought == (
        "mode: build against plan",
        "policy: aa against none",
        "tool edit: 1 against 2",
        "tool new: none against 1",
        "tool old: 1 against none",
        "lane lane:mail: 1 against 2",
        "the settings that `resume` is given",
    )
    assert "they brought along: mode: build against plan" in str(found)


def test_a_run_with_a_gap_cannot_be_compared() -> None:
    told = rows("a", story("a"))

    with pytest.raises(DamagedJournalError, match="fact 4: fact 3 was expected here"):
        compare([*told[:2], *told[3:]], rows("b", story("b")))


# Kin


async def _forks(*forks: tuple[str, str, int], more: Mapping[str, Fact]) -> MemoryJournal:
    journal = MemoryJournal()
    store = MemoryStore(journal)
    await store.open()
    await store.take(RunId("a"), this_driver())
    store.commit(rows("a", story("a")))
    for source, new, at in forks:
        await fork(store, source, new, at=at)
        await store.take(RunId(new), this_driver())
        seq = len(journal.facts[RunId(new)]) + 1
        store.commit([Row(RunId(new), seq, 9e9, seq, more.get(new, MessageSaid(message=new)))])
    await store.close()
    return journal


def kin(one: str, other: str, *forks: tuple[str, str, int]) -> Comparison:
    facts = asyncio.run(_forks(*forks, more={})).facts
    return compare(facts[RunId(one)], facts[RunId(other)])


def test_a_fork_is_compared_from_the_point_where_it_left() -> None:
    found = kin("a", "f", ("a", "f", 6))

    assert found.shared == 6
    assert found.kin == "b is a fork of a: they share 6 facts"
    assert found.parting is not None
    assert found.parting.a is not None
    assert found.parting.a.seq == 7
    assert kin("f", "a", ("a", "f", 6)).kin == "a is a fork of b: they share 6 facts"


def test_forks_of_one_run_share_what_the_earlier_one_has() -> None:
    found = kin("f", "g", ("a", "f", 6), ("a", "g", 9))

    assert found.kin == "a and b are forks of a: they share 6 facts"
    assert found.parting is not None


def test_a_fork_of_a_fork_is_kin_of_both() -> None:
    forks = ("a", "f", 6), ("f", "g", 8)

    assert kin("a", "g", *forks).kin == "b is a fork of a: they share 6 facts"
    assert kin("f", "g", *forks).kin == "b is a fork of a: they share 8 facts"


def test_forks_of_forks_share_what_they_have_from_the_nearest_they_come_from() -> None:
    forks = ("a", "f", 6), ("f", "g", 7), ("f", "h", 8)

    found = kin("g", "h", *forks)

    assert found.kin == "a and b are forks of f: they share 7 facts"


def test_one_run_in_two_journals_shares_all_that_both_have() -> None:
    told = rows("a", story("a"))

    found = compare(told, told[:9])

    assert found.kin == "a and b are both called a, and share 9 facts"
    assert RunForked(source=RunId("a"), seq=1) not in [row.fact for row in told]


# Real runs


def test_runs_of_the_same_work_part_where_a_tool_does_something_else() -> None:
    def tools(answer: int) -> list[Tool]:
        @tool(effect=Effect.PURE)
        async def add(a: int, b: int) -> int:
            await asyncio.sleep(a)
            return a + b + answer

        return [add]

    async def played(answer: int, run: str) -> list[Row]:
        journal = MemoryJournal()
        calls = (
            {"id": "x", "tool": "add", "arguments": {"a": 2, "b": 2}},
            {"id": "y", "tool": "add", "arguments": {"a": 1, "b": 1}},
            {"id": "z", "tool": "add", "arguments": {"a": 0, "b": {"$from": "x"}}},
        )
        store = MemoryStore(journal)
        async with (
            Engine(tools(answer), journal=store, clock=VirtualClock) as engine,
            engine.run(run) as entered,
        ):
            await entered.submit(plan(*calls))
        return journal.facts[RunId(run)]

    first = run_virtual(lambda: played(0, "a"))
    again = run_virtual(lambda: played(0, "b"))
    other = run_virtual(lambda: played(1, "c"))

    assert compare(first, again).parting is None
    found = compare(first, other)
    assert found.parting is not None
    assert (found.parting.where, found.parting.what) == (
        "call t1.2",
        "call_ended: outcome.value 2 against 3",
    )
    assert found.total_a.running_seconds == found.total_b.running_seconds == 3


# The command


def laneway(*arguments: str) -> Result:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


async def kept(path: Path, *runs: Sequence[Row]) -> str:
    store = SqliteStore(path)
    await store.open()
    for told in runs:
        await store.take(told[0].run, this_driver())
        await store.commit(told)
    await store.close()
    return str(path)


def test_the_command_compares_runs_of_one_journal_and_of_two(tmp_path: Path) -> None:
    first, second = rows("a", story("a")), rows("b", story("b"), pace=2)
    other = rows("b", changed(story("b"), 4, rule="x"))
    here = asyncio.run(kept(tmp_path / "one.db", first, second))
    there = asyncio.run(kept(tmp_path / "two.db", other))

    same = laneway("compare", "a", "b", "--journal", here)
    apart = laneway("compare", "a", "b", "--journal", here, "--journal-b", there)
    document = laneway("compare", "a", "b", "--journal", here, "--json")

    assert (same.exit_code, apart.exit_code) == (0, 1)
    assert same.stdout.splitlines() == str(compare(first, second)).splitlines()
    assert apart.stdout.splitlines() == str(compare(first, other)).splitlines()
    told = json.loads(document.stdout)
    assert list(told) == [
        *("a", "b", "kin", "shared", "brought", "parting", "calls", "total_a", "total_b")
    ]
    assert told["parting"] is None
    assert told["calls"][0]["same_outcome"] is True


def test_the_command_names_a_run_that_is_not_there(tmp_path: Path) -> None:
    here = asyncio.run(kept(tmp_path / "one.db", rows("a", story("a"))))

    result = laneway("compare", "a", "b", "--journal", here)

    assert result.exit_code == 2
    assert result.stderr == "laneway: the journal has no run 'b' (runs: a)\n"
