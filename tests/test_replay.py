"""A run fact by fact: forward, back, at any moment, and as far as it is whole."""

from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laneway.calls import CallRecord, Edge, Reason
from laneway.claims import exclusive
from laneway.effects import Effect
from laneway.errors import DamagedJournalError, UsageError
from laneway.facts import (
    ApprovalAnswered,
    ApprovalAsked,
    AttemptEnded,
    BudgetNeared,
    BudgetReserved,
    BudgetSettled,
    CallEnded,
    CallProbed,
    CallQueued,
    CallReopened,
    CallSettled,
    CallStarted,
    ChildEntered,
    CompensationEnded,
    CompensationStarted,
    Driver,
    Fact,
    Grant,
    GrantRevoked,
    HolderStopped,
    HostNoted,
    LaneChanged,
    LevelEntered,
    LossAccepted,
    MessageSaid,
    ModeChanged,
    ProcessStarted,
    Row,
    RunAbandoned,
    RunForked,
    RunOpened,
    RunReopened,
    RunStopped,
    RunTaken,
    TaskEnded,
    TaskStarted,
    TurnClosed,
    TurnSubmitted,
)
from laneway.ids import ApprovalId, CallId, RunId
from laneway.journal import replay as replay_module
from laneway.journal.fold import RunView, fold
from laneway.journal.replay import Move, Replay, Times, calls_of, copied
from laneway.outcomes import Code, Failure, Happened, StopReason, Success
from laneway.states import State
from laneway.testing.sample_facts import every_kind_of_fact, numbered

RUN = RunId("r")
DRIVER = Driver(host="h", boot="b", pid=1, started="1")
LOST = Failure(code=Code.OUTCOME_UNKNOWN, message="Nobody saw its end.", happened=Happened.UNKNOWN)
ONE, TWO, THREE = CallId("t1.1"), CallId("t1.2"), CallId("t1.3")
QUESTION = ApprovalId("t1.1.a1")


def asked_for(turn: int, *names: CallId, edges: tuple[Edge, ...] = ()) -> TurnSubmitted:
    calls = tuple(
        CallRecord(
            id=name,
            provider_id=f"call_{name}",
            tool="edit",
            arguments={"path": f"{name}.py"},
            effect=Effect.WRITE,
            claims=(exclusive(f"file:/w/{name}.py"),),
        )
        for name in names
    )
    message = {"role": "assistant", "content": "Now the edits."}
    return TurnSubmitted(turn=turn, provider="plan", message=message, calls=calls, edges=edges)


def eventful() -> list[Fact]:
    """A run to which everything happens that can happen to one."""
    return [
        RunOpened(run=RUN, driver=DRIVER),
        MessageSaid(message="Go."),
        BudgetReserved(budget="tokens", amount=100, reservation="t1", call=ONE),
        BudgetReserved(budget="money", amount=3, reservation="m1"),
        asked_for(1, ONE, TWO, THREE, edges=(Edge(ONE, THREE, Reason.NEEDS),)),
        ApprovalAsked(
            call=ONE, approval=QUESTION, digest="", arguments={}, rule="ask", expires_wall=4e9
        ),
        CallQueued(call=TWO, rule="default"),
        CallStarted(call=TWO, attempt=1, token=1),
        ChildEntered(call=TWO, run=RunId("r/t1.2/1")),
        ProcessStarted(call=TWO, group=7, started="1"),
        AttemptEnded(call=TWO, attempt=1, cause="503", delay_seconds=2),
        BudgetSettled(reservation="t1", amount=40),
        HostNoted(note="half way"),
        CallQueued(call=TWO, rule="default"),
        CallStarted(call=TWO, attempt=2, token=2),
        ApprovalAnswered(
            call=ONE,
            approval=QUESTION,
            granted=True,
            by="ann",
            grant=Grant(tool="edit", tool_version=""),
        ),
        CallQueued(call=ONE, rule="ask", claims=(exclusive("file:/w/other.py"),)),
        CallStarted(call=ONE, attempt=1, token=3),
        LaneChanged(lane="lane:mail", change="paused"),
        CallEnded(call=TWO, state=State.TIMED_OUT, outcome=LOST, stopped=False),
        HolderStopped(call=TWO, late="done"),
        TaskStarted(task="build", call=TWO, run=RunId("r/build")),
        RunTaken(driver=DRIVER, changes=("tool edit has another version",)),
        CallEnded(call=ONE, state=State.UNCERTAIN, outcome=LOST),
        CallProbed(call=ONE, found="did not happen"),
        CallReopened(call=ONE, by="probe"),
        CallQueued(call=ONE, rule="ask"),
        CallStarted(call=ONE, attempt=2, token=4),
        LossAccepted(lost=1),
        RunTaken(driver=DRIVER),
        CallEnded(call=ONE, state=State.UNCERTAIN, outcome=LOST),
        CallSettled(call=ONE, outcome=Success(value=1), by="ann"),
        CallEnded(call=THREE, state=State.SKIPPED, outcome=LOST),
        TaskEnded(task="build", outcome=Success(value=2)),
        GrantRevoked(grant=QUESTION, by="bob"),
        TurnClosed(turn=1),
        CallSettled(call=TWO, outcome=Success(value=3)),
        RunForked(source=RunId("q"), seq=37),
        asked_for(2, CallId("t2.1")),
        BudgetNeared(budget="money", percent=80, used=3, limit=3.5),
        BudgetSettled(reservation="m1", amount=1),
        ModeChanged(mode="plan", by="ann"),
        RunStopped(reason=StopReason.NEEDS_USER_INPUT, detail="Which one?"),
        RunReopened(through="say"),
        LevelEntered(run=RunId("r/t2.1/1"), agent="critic"),
        RunAbandoned(by="ann", reason="enough"),
        CompensationStarted(call=ONE),
        CompensationEnded(call=ONE, outcome=Success(value=None)),
    ]


def plain(value: Any) -> Any:
    """A view as plain data, to be compared."""
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if is_dataclass(value):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, dict):
        return {name: plain(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(member) for member in value]
    return value


def folded(rows: Sequence[Row], seq: int) -> Any:
    return plain(fold(RUN, rows[:seq]))


def row(seq: int, fact: Fact, wall: float, mono: float) -> Row:
    return Row(RUN, seq, wall, mono, fact)


# Anywhere


def test_the_eventful_run_meets_every_kind_of_fact_but_a_joined_call() -> None:
    met = {type(fact) for fact in eventful()}

    missing = {type(fact).__name__ for fact in every_kind_of_fact()} - {one.__name__ for one in met}
    assert missing == {"CallJoined"}


@settings(deadline=None)
@given(st.lists(st.integers(0, len(eventful())), min_size=1, max_size=30))
def test_wherever_one_jumps_the_state_is_that_of_a_fold_up_to_there(seqs: list[int]) -> None:
    rows = numbered(RUN, eventful())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay_module, "NEAR", 4)
        patch.setattr(replay_module, "FAR", 3)
        replay = Replay(RUN, rows)

        for seq in seqs:
            assert plain(replay.at(seq)) == folded(rows, seq)


def test_stepping_back_folds_no_more_than_a_thousand_facts_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notes = (HostNoted(note=n) for n in range(20_000))
    facts: list[Fact] = [RunOpened(run=RUN, driver=DRIVER), *notes]
    replay = Replay(RUN, numbered(RUN, facts))
    replay.at(14_999)
    folds = 0
    apply = RunView.apply

    def counted(view: RunView, one: Row) -> None:
        nonlocal folds
        folds += 1
        apply(view, one)

    monkeypatch.setattr(RunView, "apply", counted)

    for seq in range(14_998, 14_900, -1):
        before = folds
        assert replay.at(seq).seq == seq
        assert folds - before <= replay_module.NEAR


def test_long_walks_back_keep_few_copies() -> None:
    notes = (HostNoted(note=n) for n in range(20_000))
    facts: list[Fact] = [RunOpened(run=RUN, driver=DRIVER), *notes]
    replay = Replay(RUN, numbered(RUN, facts))

    for seq in range(20_000, 0, -700):
        replay.at(seq)

    assert len(replay._copies) <= replay_module.FAR + 2


@pytest.mark.parametrize("seq", range(len(eventful())))
def test_folding_on_from_a_copy_leaves_the_original_as_it_was(seq: int) -> None:
    rows = numbered(RUN, eventful())
    view = fold(RUN, rows[:seq])

    other = copied(view)
    for one in rows[seq:]:
        other.apply(one)

    assert plain(view) == folded(rows, seq)
    assert plain(other) == folded(rows, len(rows))


def test_a_step_tells_what_moved() -> None:
    replay = Replay(RUN, numbered(RUN, eventful()))

    steps = [step for step, _ in replay.steps()]

    assert steps[4].moves == tuple(Move(call, None, State.PENDING) for call in (ONE, TWO, THREE))
    assert steps[5].moves == (Move(ONE, State.PENDING, State.AWAITING_APPROVAL),)
    assert steps[8].moves == ()
    assert steps[8].calls == (TWO,)
    assert steps[31].moves == (Move(ONE, State.UNCERTAIN, State.SUCCEEDED),)
    assert [replay.step(one.row.seq) for one in reversed(steps)] == steps[::-1]


def test_a_fact_of_the_run_is_about_no_call_unless_it_says_so() -> None:
    assert calls_of(MessageSaid(message="")) == ()
    assert calls_of(BudgetReserved(budget="b", amount=1, reservation="x")) == ()
    assert calls_of(BudgetReserved(budget="b", amount=1, reservation="x", call=ONE)) == (ONE,)


@pytest.mark.parametrize("seq", [-1, 3])
def test_a_fact_that_is_not_there_is_named_with_those_that_are(seq: int) -> None:
    replay = Replay(RUN, numbered(RUN, eventful()[:2]))

    with pytest.raises(UsageError, match=rf"run 'r' has no fact {seq}: give a number from 0 to 2$"):
        replay.at(seq)


@pytest.mark.parametrize("seq", [-1, 0, 3])
def test_there_is_a_step_for_each_fact_only(seq: int) -> None:
    replay = Replay(RUN, numbered(RUN, eventful()[:2]))

    with pytest.raises(UsageError, match=rf"no fact {seq}: give a number from 1 to 2$"):
        replay.step(seq)


# Damage


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ([CallQueued(call=CallId("t9.9"), rule="")], "fact 6: it tells of 't9.9', of which no"),
        ([CallStarted(call=ONE, attempt=1, token=1)], "fact 6: it cannot follow what is before it"),
    ],
)
def test_a_run_that_makes_no_sense_is_shown_up_to_there(facts: list[Fact], told: str) -> None:
    rows = numbered(RUN, [*eventful()[:5], *facts, TurnClosed(turn=1)])

    replay = Replay(RUN, rows)

    assert told in str(replay.damage)
    assert len(replay.rows) == len(replay.elapsed) == 5
    assert plain(replay.at(5)) == folded(rows, 5)
    with pytest.raises(UsageError, match="from 0 to 5, behind which it is damaged"):
        replay.at(6)


def test_a_gap_in_the_numbers_ends_a_run() -> None:
    rows = numbered(RUN, eventful()[:5])

    replay = Replay(RUN, [*rows[:3], rows[4]])

    assert "fact 5: fact 4 was expected here" in str(replay.damage)
    assert len(replay.rows) == 3


def test_damage_that_the_reader_met_is_kept() -> None:
    damage = DamagedJournalError("r", 3, "it cannot be read")

    assert Replay(RUN, numbered(RUN, eventful()[:2]), damage).damage is damage


# Times


def elapsed(*rows: Row) -> Sequence[float]:
    return Replay(RUN, rows).elapsed


def noted(*rows: Row) -> Times:
    times = Times()
    for one in rows:
        times.note(one)
    return times


OPENED = RunOpened(run=RUN, driver=DRIVER)
NOTE = HostNoted(note="")


def test_the_monotonic_clock_counts_whatever_the_wall_clock_does() -> None:
    rows = (row(1, OPENED, 100, 5), row(2, NOTE, 9000, 6), row(3, NOTE, 3, 7.5))

    assert elapsed(*rows) == [0, 1, 2.5]
    assert noted(*rows).idle == 0


def test_another_driver_of_the_same_boot_goes_on_with_its_clock() -> None:
    taken = RunTaken(driver=msgspec.structs.replace(DRIVER, pid=2))
    rows = (row(1, OPENED, 100, 5), row(2, NOTE, 101, 6), row(3, taken, 0, 16), row(4, NOTE, 0, 17))

    assert elapsed(*rows) == [0, 1, 11, 12]
    assert noted(*rows).idle == 10
    assert noted(*rows).drivers == 2


@pytest.mark.parametrize(
    "driver",
    [
        msgspec.structs.replace(DRIVER, boot="c"),
        msgspec.structs.replace(DRIVER, host="g"),
        msgspec.structs.replace(DRIVER, boot=""),
    ],
)
def test_between_two_clocks_the_wall_counts(driver: Driver) -> None:
    taken = RunTaken(driver=driver)
    rows = (row(1, OPENED, 100, 5), row(2, NOTE, 0, 6), row(3, taken, 30, 900))
    later = row(4, NOTE, 0, 901)

    assert elapsed(*rows, later) == [0, 1, 31, 32]
    assert noted(*rows).idle == 30


def test_two_drivers_of_which_no_boot_is_known_have_two_clocks() -> None:
    unknown = msgspec.structs.replace(DRIVER, boot="")
    opened, taken = RunOpened(run=RUN, driver=unknown), RunTaken(driver=unknown)

    assert elapsed(row(1, opened, 100, 5), row(2, taken, 130, 900)) == [0, 30]


def test_a_wall_clock_that_was_set_back_between_drivers_takes_nothing_away() -> None:
    taken = RunTaken(driver=msgspec.structs.replace(DRIVER, boot="c"))

    assert elapsed(row(1, OPENED, 100, 5), row(2, taken, 30, 1), row(3, NOTE, 0, 2)) == [0, 0, 1]


@pytest.mark.parametrize("fact", [RunForked(source=RUN, seq=1), LossAccepted(lost=1)])
def test_what_no_driver_wrote_is_timed_by_the_wall(fact: Fact) -> None:
    rows = (row(1, OPENED, 100, 500), row(2, fact, 130, 1))
    taken = row(3, RunTaken(driver=DRIVER), 140, 600)

    assert elapsed(*rows, taken) == [0, 30, 40]
    assert noted(*rows).clock == ""
    assert noted(*rows, taken).idle == 40


def test_a_moment_is_found_by_either_clock() -> None:
    replay = Replay(RUN, [row(1, OPENED, 100, 5), row(2, NOTE, 90, 6), row(3, NOTE, 110, 8)])

    assert [replay.seq_after(seconds) for seconds in (-1, 0, 0.9, 1, 2.9, 3, 99)] == [
        *(0, 1, 1, 2, 2, 3, 3)
    ]
    assert [replay.seq_at(wall) for wall in (89, 90, 100, 109, 110)] == [0, 2, 2, 2, 3]


def applied(rows: Iterable[Row]) -> RunView:
    view = RunView(RUN)
    for one in rows:
        view.apply(one)
    return view


def test_a_run_without_facts_stands_before_its_beginning() -> None:
    replay = Replay(RUN, ())

    assert plain(replay.at(0)) == plain(applied(()))
    assert list(replay.steps()) == []
    assert replay.seq_at(1e12) == replay.seq_after(1e12) == 0
