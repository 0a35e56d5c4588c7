"""Forks: a new run that shares the past of another."""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from laneway import Effect, Engine, State, Tool, ToolContext, tool
from laneway.calls import CallRecord, Edge, Reason
from laneway.claims import Claim, exclusive, shared
from laneway.engine.cli.app import app
from laneway.engine.run import Run
from laneway.errors import (
    DamagedJournalError,
    JournalError,
    RunOwnedError,
    UnknownRunError,
    UsageError,
)
from laneway.facts import (
    ApprovalAnswered,
    ApprovalAsked,
    CallEnded,
    CallJoined,
    CallQueued,
    CallStarted,
    ChildEntered,
    Driver,
    Fact,
    HostNoted,
    MessageSaid,
    Row,
    RunForked,
    RunOpened,
    RunTaken,
    TaskStarted,
    TurnClosed,
    TurnSubmitted,
)
from laneway.ids import ApprovalId, CallId, RunId
from laneway.journal.fold import fold
from laneway.journal.fork import Forked, copied_fact, fork, whole
from laneway.journal.lease import this_driver
from laneway.journal.memory import MemoryJournal, MemoryStore
from laneway.journal.sqlite import SqliteStore
from laneway.journal.store import JournalStore
from laneway.outcomes import Success
from laneway.testing import VirtualClock, run_virtual
from laneway.testing.sample_facts import numbered
from laneway.testing.theatre import plan, values

R, F = RunId("r"), RunId("f")
SRC = Path(__file__).resolve().parent.parent / "src"
DRIVER = Driver(host="h", boot="b", pid=7, started="1")
ONE, TWO = CallId("t1.1"), CallId("t1.2")
OPENED = RunOpened(run=R, driver=DRIVER, resume_with="m:f", settings={"a": 1})


def record(call: CallId, *claims: Claim) -> CallRecord:
    return CallRecord(id=call, provider_id=call, tool="edit", arguments={"run": "r"}, claims=claims)


TURN = TurnSubmitted(
    turn=1,
    provider="plan",
    message={"run": "r"},
    calls=(
        record(ONE, exclusive("run:r")),
        record(TWO, shared("run:r"), shared("run:q"), exclusive("file:/r/a.py")),
    ),
    edges=(Edge(ONE, TWO, Reason.CONFLICT, "run:r"), Edge(ONE, TWO, Reason.CONFLICT, "file:/r")),
)
DONE = CallEnded(call=ONE, state=State.SUCCEEDED, outcome=Success(value="r"))
FACTS: list[Fact] = [
    OPENED,
    TURN,
    CallQueued(call=ONE, rule="default"),
    CallStarted(call=ONE, attempt=1, token=1),
    DONE,
    CallQueued(call=TWO, rule="default", claims=(shared("run:r"),)),
    CallStarted(call=TWO, attempt=1, token=2),
]


@pytest.fixture(params=["memory", "sqlite"])
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], JournalStore]:
    """Makes stores on one journal."""
    journal = MemoryJournal()
    if request.param == "memory":
        return lambda: MemoryStore(journal)
    return lambda: SqliteStore(tmp_path / "runs.db")


def memory() -> MemoryStore:
    return MemoryStore(MemoryJournal())


async def kept(store: JournalStore, *rows: Row) -> None:
    """Keep rows of runs that nobody drives."""
    runs = list(dict.fromkeys(row.run for row in rows))
    for run in runs:
        await store.take(run, this_driver())
    committing = store.commit(rows)
    if committing is not None:
        await committing
    for run in runs:
        await store.leave(run)


def on(store: JournalStore, main: Callable[[JournalStore], Awaitable[Any]]) -> Any:
    """Do something with a store, opened for it."""

    async def opened() -> Any:
        await store.open()
        try:
            return await main(store)
        finally:
            await store.close()

    return asyncio.run(opened())


def rows_of(store: JournalStore, run: RunId) -> Sequence[Row]:
    found: Sequence[Row] = on(store, lambda opened: opened.read(run))
    return found


def forked(store: JournalStore, *rows: Row, at: int | None = None, new: str = "f") -> Forked:
    async def main(opened: JournalStore) -> Forked:
        await kept(opened, *rows)
        return await fork(opened, "r", new, at=at)

    result: Forked = on(store, main)
    return result


def untimed(rows: Sequence[Row]) -> list[tuple[int, Fact]]:
    return [(row.seq, row.fact) for row in rows]


# What is copied


def test_a_fork_has_the_facts_up_to_its_point_and_says_where_they_come_from(
    new_store: Callable[[], JournalStore],
) -> None:
    rows = numbered(R, FACTS)

    told = forked(new_store(), *rows, at=4)

    copies = rows_of(new_store(), F)
    assert [(row.seq, row.wall, row.mono) for row in copies[:4]] == [
        (row.seq, row.wall, row.mono) for row in rows[:4]
    ]
    assert [row.fact for row in copies[2:]] == [
        FACTS[2],
        FACTS[3],
        RunForked(source=R, seq=4),
    ]
    assert {row.run for row in copies} == {F}
    assert told == Forked(
        run=F, source=R, seq=4, below=(), running=(ONE,), repeated=(), approvals=()
    )
    assert untimed(rows_of(new_store(), R)) == untimed(rows)
    view = fold(F, copies)
    assert (view.driver, view.resume_with, view.settings) == (None, "m:f", {"a": 1})


def test_only_the_name_of_the_run_differs_where_laneway_wrote_it() -> None:
    opened = copied_fact(OPENED, "r", "f")
    turn = copied_fact(TURN, "r", "f")
    queued = copied_fact(FACTS[5], "r", "f")

    assert isinstance(opened, RunOpened)
    assert (opened.run, opened.driver) == (F, DRIVER)
    assert isinstance(turn, TurnSubmitted)
    assert turn.message == TURN.message
    assert [call.claims for call in turn.calls] == [
        (exclusive("run:f"),),
        (shared("run:f"), shared("run:q"), exclusive("file:/r/a.py")),
    ]
    assert [call.arguments for call in turn.calls] == [{"run": "r"}, {"run": "r"}]
    assert [edge.detail for edge in turn.edges] == ["run:f", "file:/r"]
    assert isinstance(queued, CallQueued)
    assert queued.claims == (shared("run:f"),)
    assert copied_fact(DONE, "r", "f") is DONE
    assert copied_fact(FACTS[2], "r", "f") is FACTS[2]


@pytest.mark.parametrize(
    ("name", "renamed"),
    [
        ("r", "f"),
        ("r/t1.1/1", "f/t1.1/1"),
        ("r/t1.1/1/t1.1/2", "f/t1.1/1/t1.1/2"),
        ("r/build", "r/build"),
        ("rr/t1.1/1", "rr/t1.1/1"),
        ("q/r/t1.1", "q/r/t1.1"),
    ],
)
def test_runs_below_calls_are_renamed_and_others_are_not(name: str, renamed: str) -> None:
    child = ChildEntered(call=ONE, run=RunId(name))
    task = TaskStarted(task="x", call=ONE, run=RunId(name))
    joined = CallJoined(call=ONE, leader=name)

    assert copied_fact(child, "r", "f") == ChildEntered(call=ONE, run=RunId(renamed))
    assert copied_fact(task, "r", "f") == TaskStarted(task="x", call=ONE, run=RunId(renamed))
    assert copied_fact(joined, "r", "f") == CallJoined(call=ONE, leader=renamed)


def test_all_that_is_kept_is_shared_where_no_point_is_named() -> None:
    store = memory()

    told = forked(store, *numbered(R, FACTS))

    assert (told.seq, told.running) == (7, (TWO,))


def test_a_fork_can_be_forked() -> None:
    store = memory()
    forked(store, *numbered(R, FACTS), at=4)

    async def main(opened: JournalStore) -> None:
        await kept(opened, Row(F, 6, 9e9, 1, RunTaken(driver=DRIVER)))
        await fork(opened, "f", "g", at=6)
        await fork(opened, "f", "h", at=3)

    on(store, main)
    assert [type(row.fact).__name__ for row in rows_of(store, RunId("g"))[3:]] == [
        *("CallStarted", "RunForked", "RunTaken", "RunForked")
    ]
    assert rows_of(store, RunId("g"))[-1].fact == RunForked(source=F, seq=6)
    assert rows_of(store, RunId("h"))[-1].fact == RunForked(source=F, seq=3)
    assert isinstance(rows_of(store, RunId("g"))[0].fact, RunOpened)
    assert fold(RunId("g"), rows_of(store, RunId("g"))).run == "g"


def test_a_run_that_is_driven_meanwhile_is_forked_as_far_as_it_is_kept(tmp_path: Path) -> None:
    async def main() -> Forked:
        driving, looking = SqliteStore(tmp_path / "j.db"), SqliteStore(tmp_path / "j.db")
        await driving.open()
        await looking.open()
        rows = numbered(R, FACTS)
        await driving.take(R, this_driver())
        await driving.commit(rows[:5])
        told = await fork(looking, "r", "f")
        await driving.commit(rows[5:])
        assert len(await looking.read(R)) == 7
        await driving.close()
        await looking.close()
        return told

    assert asyncio.run(main()).seq == 5


# What is refused


@pytest.mark.parametrize("at", [0, -1, 8])
def test_a_point_outside_the_run_is_refused(at: int) -> None:
    with pytest.raises(
        UsageError, match=rf"run 'r' has no fact {at} to fork it at: give a number from 1 to 7"
    ):
        forked(memory(), *numbered(R, FACTS), at=at)


@pytest.mark.parametrize("name", ["", "r", "r/t1.1/1", "half \ud800"])
def test_a_name_that_cannot_be_a_forks_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="a fork of run 'r' cannot be called"):
        forked(memory(), *numbered(R, FACTS), new=name)


def test_a_run_that_is_not_there_is_named() -> None:
    with pytest.raises(UnknownRunError, match=r"the journal has no run 'r' \(runs: q\)"):
        forked(memory(), *numbered(RunId("q"), [OPENED]))


def test_a_name_that_is_taken_is_refused_and_that_run_stays_as_it_is(
    new_store: Callable[[], JournalStore],
) -> None:
    there = numbered(F, [RunOpened(run=F, driver=DRIVER)])
    store = new_store()

    with pytest.raises(UsageError, match="the journal has a run 'f' already; a fork needs a name"):
        forked(store, *numbered(R, FACTS), *there)

    assert untimed(rows_of(store, F)) == untimed(there)
    assert forked(store, new="g").run == "g"


def test_a_name_below_which_there_is_a_run_is_refused_whole() -> None:
    store = memory()
    below = numbered(RunId("r/t1.1/1"), [RunOpened(run=RunId("r/t1.1/1"), driver=DRIVER)])
    left = numbered(RunId("f/t1.1/1"), [RunOpened(run=RunId("f/t1.1/1"), driver=DRIVER)])

    with pytest.raises(UsageError, match=r"the journal has a run 'f/t1\.1/1' already"):
        forked(store, *numbered(R, FACTS), *below, *left)

    assert rows_of(store, F) == []


def test_a_name_that_somebody_is_about_to_open_is_refused_and_given_back(tmp_path: Path) -> None:
    async def main() -> None:
        first, second = SqliteStore(tmp_path / "j.db"), SqliteStore(tmp_path / "j.db")
        await first.open()
        await second.open()
        await kept(first, *numbered(R, FACTS))
        await first.take(F, this_driver())
        with pytest.raises(RunOwnedError, match="run 'f' is driven by this very process"):
            await fork(second, "r", "f")
        await first.leave(F)
        assert (await fork(second, "r", "f")).seq == 7
        await first.close()
        await second.close()

    asyncio.run(main())


def in_one_go(*groups: Sequence[Fact]) -> list[Row]:
    """Rows of which each group was written in one go."""
    facts = [(at, fact) for at, group in enumerate(groups, 1) for fact in group]
    return [Row(R, seq, 100.0 + at, float(at), fact) for seq, (at, fact) in enumerate(facts, 1)]


NEXT = FACTS[5:]


@pytest.mark.parametrize(
    ("at", "told"),
    [
        (2, None),
        (3, None),
        (4, None),
        (5, None),
        (6, None),
        (8, "fork it at 7 or 9"),
    ],
)
def test_what_was_written_in_one_go_is_parted_only_where_the_rest_follows(
    at: int, told: str | None
) -> None:
    ended = CallEnded(call=TWO, state=State.SUCCEEDED, outcome=Success(value=1))
    rows = in_one_go([OPENED], FACTS[1:4], [DONE, *NEXT], [ended, TurnClosed(turn=1)])

    if told is None:
        assert forked(memory(), *rows, at=at).seq == at
        return
    with pytest.raises(
        UsageError, match=f"run 'r' cannot be forked at fact {at}, in the middle of what .*; {told}"
    ):
        forked(memory(), *rows, at=at)


def test_a_fault_that_stands_beside_its_turn_is_not_parted_from_it() -> None:
    faulty = CallEnded(call=TWO, state=State.FAILED, outcome=Success(value=1))
    rows = in_one_go([OPENED, TURN, faulty, *FACTS[2:4]])

    assert [seq for seq in range(1, 6) if whole(rows, seq)] == [3, 4, 5]
    with pytest.raises(UsageError, match=r"; fork it at 3$"):
        forked(memory(), *rows, at=2)


def test_an_answer_is_not_parted_from_what_follows_of_it() -> None:
    question = ApprovalId("t1.1.a1")
    asked = ApprovalAsked(
        call=ONE, approval=question, digest="", arguments={}, rule="", expires_wall=9e9
    )
    answer = ApprovalAnswered(call=ONE, approval=question, granted=False)
    denied = CallEnded(call=ONE, state=State.DENIED, outcome=Success(value=0))
    rows = in_one_go([OPENED], [TURN, asked], [answer, denied])

    assert [seq for seq in range(1, 6) if whole(rows, seq)] == [1, 2, 3, 5]
    assert forked(memory(), *rows, at=3).approvals == (question,)


# Damage


@pytest.fixture
def damaged(tmp_path: Path) -> SqliteStore:
    """A store of a run that is damaged at its fact 6."""
    path = tmp_path / "runs.db"
    on(SqliteStore(path), lambda store: kept(store, *numbered(R, FACTS)))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE facts SET body = '{}' WHERE place & 255 = 6")
        connection.commit()
    return SqliteStore(path)


def test_a_damaged_run_can_be_forked_before_the_damage(damaged: SqliteStore) -> None:
    assert on(damaged, lambda store: fork(store, "r", "f", at=5)).seq == 5
    assert len(rows_of(damaged, F)) == 6


@pytest.mark.parametrize("at", [None, 6, 7])
def test_a_damaged_run_cannot_be_forked_behind_the_damage(
    damaged: SqliteStore, at: int | None
) -> None:
    with pytest.raises(DamagedJournalError, match="run 'r', fact 6: "):
        on(damaged, lambda store: fork(store, "r", "f", at=at))


def test_a_run_of_which_nothing_is_whole_cannot_be_forked(damaged: SqliteStore) -> None:
    with closing(sqlite3.connect(damaged.path)) as connection:
        connection.execute("UPDATE facts SET body = '{}' WHERE place & 255 = 1")
        connection.commit()

    with pytest.raises(DamagedJournalError, match="run 'r', fact 1: "):
        on(damaged, lambda store: fork(store, "r", "f", at=1))


# Death


SCRIPT = """
import asyncio, sys
from laneway.journal.fork import fork
from laneway.journal.sqlite import SqliteStore
from laneway.testing import DyingStore

async def main():
    path, at, when = sys.argv[1:]
    store = DyingStore(SqliteStore(path), at=int(at), before=when == "before")
    await store.open()
    await fork(store, "r", "f")
    await store.close()

asyncio.run(main())
"""


def dies(path: Path, at: int, when: str) -> int:
    environment = {
        **{name: one for name, one in os.environ.items() if not name.startswith("COVERAGE_")},
        "PYTHONPATH": str(SRC),
    }
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, str(path), str(at), when], env=environment, check=False
    ).returncode


@pytest.fixture
def long(tmp_path: Path) -> Path:
    """A journal with a run that takes several statements to be written, and a run below it."""
    path = tmp_path / "runs.db"
    below = RunId("r/t1.1/1")
    rows = numbered(R, [*FACTS, *(HostNoted(note=n) for n in range(2_500))])
    inner = numbered(below, [RunOpened(run=below, driver=DRIVER), HostNoted(note="inner")])
    on(SqliteStore(path), lambda store: kept(store, *rows, *inner))
    return path


def test_a_fork_is_one_commit(long: Path) -> None:
    assert dies(long, 2, "before") == 0
    assert len(rows_of(SqliteStore(long), F)) == 2_508
    assert len(rows_of(SqliteStore(long), RunId("f/t1.1/1"))) == 3


def test_who_dies_before_the_commit_leaves_nothing_and_the_name_stays_free(long: Path) -> None:
    assert dies(long, 1, "before") == -signal.SIGKILL

    names = [entry.run for entry in on(SqliteStore(long), lambda store: store.runs())]
    assert sorted(names) == ["r", "r/t1.1/1"]
    assert on(SqliteStore(long), lambda store: fork(store, "r", "f")).seq == 2_507


def test_who_dies_after_the_commit_leaves_all_of_it(long: Path) -> None:
    assert dies(long, 1, "after") == -signal.SIGKILL

    assert len(rows_of(SqliteStore(long), F)) == 2_508
    assert len(rows_of(SqliteStore(long), RunId("f/t1.1/1"))) == 3


def test_a_commit_that_fails_leaves_nothing_and_gives_the_names_back() -> None:
    class Full(MemoryStore):
        def commit(self, batch: Sequence[Row], /) -> None:
            if any(isinstance(row.fact, RunForked) for row in batch):
                raise JournalError("the disk is full")
            super().commit(batch)

    journal = MemoryJournal()

    with pytest.raises(JournalError, match="the disk is full"):
        forked(Full(journal), *numbered(R, FACTS))

    assert journal.leases == {}
    assert forked(MemoryStore(journal)).seq == 7


# Runs below calls


def below_call(name: str, *stamps: tuple[float, float], driver: Driver = DRIVER) -> list[Row]:
    run = RunId(name)
    facts: list[Fact] = [RunOpened(run=run, driver=driver)]
    facts += [HostNoted(note=n) for n in range(len(stamps) - 1)]
    return [
        Row(run, seq, wall, mono, fact)
        for seq, ((wall, mono), fact) in enumerate(zip(stamps, facts, strict=True), 1)
    ]


def copied_below(*inner: Row) -> dict[str, int]:
    """Fork at the fourth fact, at wall 104 and mono 4; count what is copied of each run below."""
    rows = [Row(R, seq, 100.0 + seq, float(seq), fact) for seq, fact in enumerate(FACTS, 1)]
    store = memory()
    told = forked(store, *rows, *inner, at=4)
    return {name: len(rows_of(store, name)) - 1 for name in told.below}


def test_runs_below_calls_are_copied_as_they_stood_at_that_moment() -> None:
    inner = below_call("r/t1.1/1", (103, 3.5), (0, 4), (104, 4.5), (105, 5))
    deeper = below_call("r/t1.1/1/t1.1/1", (103, 3.6))
    later = below_call("r/t1.2/1", (106, 6))

    assert copied_below(*inner, *deeper, *later) == {"f/t1.1/1": 2, "f/t1.1/1/t1.1/1": 1}


def test_where_another_machine_drove_a_run_below_the_wall_clock_tells_the_moment() -> None:
    other = Driver(host="h", boot="c", pid=1, started="1")

    inner = below_call("r/t1.1/1", (103, 900), (104, 901), (104.5, 902), driver=other)

    assert copied_below(*inner) == {"f/t1.1/1": 2}


def test_other_runs_of_the_host_are_not_copied_whatever_they_are_called() -> None:
    others = (
        *below_call("r/build", (103, 3)),
        *below_call("r/t7.1/1", (103, 3)),
        *below_call("rr/t1.1/1", (103, 3)),
    )

    assert copied_below(*others) == {}


def test_a_run_below_is_copied_with_all_that_was_written_in_one_go() -> None:
    name = RunId("r/t1.1/1")
    stamp = 104.0, 4.0
    turn = CallEnded(call=ONE, state=State.SUCCEEDED, outcome=Success(value=1))
    inner = [
        Row(name, 1, 103.0, 3.0, RunOpened(run=name, driver=DRIVER)),
        Row(name, 2, *stamp, TURN),
        *(Row(name, seq, *stamp, fact) for seq, fact in enumerate(FACTS[2:4], 3)),
        Row(name, 5, 104.5, 4.5, turn),
        Row(name, 6, 104.5, 4.5, MessageSaid(message="")),
    ]

    assert copied_below(*inner) == {"f/t1.1/1": 4}


# Going on


class Bank:
    """Tools that count, and what they were told."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        self.keys: list[str] = []
        bank = self

        @tool(effect=Effect.EXTERNAL)
        async def pay(to: str) -> str:
            bank.paid.append(to)
            await asyncio.sleep(1)
            return f"paid {to}"

        @tool(effect=Effect.EXTERNAL, approval=True)
        async def order(what: str) -> str:
            bank.paid.append(what)
            return f"ordered {what}"

        @tool(effect=Effect.EXTERNAL, idempotent=True, claims=[])
        async def transfer(context: ToolContext) -> str:
            bank.keys.append(context.idempotency_key)
            await asyncio.sleep(1)
            return "transferred"

        @tool(effect=Effect.WRITE, idempotent=True, claims=[])
        async def settle_all(context: ToolContext) -> str:
            told = str(await context.invoke("pay", to="ann"))
            await asyncio.sleep(1)
            return told

        self.tools: list[Tool] = [pay, order, transfer, settle_all]
        self.journal = MemoryJournal()

    def enter(self, name: str, host: Callable[[Run], Awaitable[Any]]) -> Any:
        """Drive a run with a new engine."""

        async def main() -> Any:
            store = MemoryStore(self.journal)
            async with (
                Engine(self.tools, journal=store, clock=VirtualClock) as engine,
                engine.run(name) as run,
            ):
                return await host(run)

        return run_virtual(main)

    def fork(self, at: Callable[[Fact], bool]) -> Forked:
        """Fork `r` as `f` at the first such fact."""
        rows = self.journal.facts[R]
        seq = next(row.seq for row in rows if at(row.fact))
        told: Forked = on(MemoryStore(self.journal), lambda store: fork(store, "r", "f", at=seq))
        return told


def is_started(fact: Fact) -> bool:
    return isinstance(fact, CallStarted)


def test_what_was_running_and_may_have_happened_is_not_done_again_by_a_fork() -> None:
    bank = Bank()
    bank.enter(
        "r", lambda run: run.submit(plan({"id": "a", "tool": "pay", "arguments": {"to": "bob"}}))
    )

    told = bank.fork(is_started)
    turn = bank.enter("f", lambda run: run.finish())

    assert (told.running, told.repeated) == ((ONE,), ())
    assert [call.state for call in turn.calls] == [State.UNCERTAIN]
    assert bank.paid == ["bob"]


def test_what_is_idempotent_is_entered_again_by_a_fork_under_the_same_key() -> None:
    bank = Bank()
    bank.enter("r", lambda run: run.submit(plan({"id": "a", "tool": "transfer"})))

    told = bank.fork(is_started)
    turn = bank.enter("f", lambda run: run.finish())

    assert told.repeated == told.running == (ONE,)
    assert values(turn) == {"a": "transferred"}
    assert len(bank.keys) == 2
    assert len(set(bank.keys)) == 1, "whoever did it need not do it twice"


def test_a_fork_before_a_start_starts_it_for_itself() -> None:
    bank = Bank()
    bank.enter(
        "r", lambda run: run.submit(plan({"id": "a", "tool": "pay", "arguments": {"to": "bob"}}))
    )

    bank.fork(lambda fact: isinstance(fact, TurnSubmitted))
    turn = bank.enter("f", lambda run: run.finish())

    assert values(turn) == {"a": "paid bob"}
    assert bank.paid == ["bob", "bob"]


def test_a_question_is_asked_in_both_and_answered_in_each() -> None:
    bank = Bank()
    call = {"id": "a", "tool": "order", "arguments": {"what": "tea"}}

    async def ask(run: Run) -> None:
        await run.submit(plan(call), wait=False)

    async def answer(run: Run, *, yes: bool) -> State:
        turn = run.open_turn
        assert turn is not None
        (question,) = run.approvals
        if yes:
            await run.approve(question.id, by="ann")
        else:
            await run.deny(question.id, by="ann")
        ended = await run.finish()
        assert ended is not None
        return ended.calls[0].state

    bank.enter("r", ask)
    told = bank.fork(lambda fact: isinstance(fact, ApprovalAsked))

    assert told.approvals == (ApprovalId("t1.1.a1"),)
    assert bank.enter("f", lambda run: answer(run, yes=True)) is State.SUCCEEDED
    assert bank.enter("r", lambda run: answer(run, yes=False)) is State.DENIED
    assert bank.paid == ["tea"]


def test_what_a_body_had_done_through_other_calls_is_not_done_again_by_a_fork() -> None:
    bank = Bank()
    bank.enter("r", lambda run: run.submit(plan({"id": "a", "tool": "settle_all"})))
    rows = bank.journal.facts[R]
    # A moment at which the payment was over, and the body that had asked for it was not.
    bank.journal.facts[R] = [
        *rows[: _started(rows)],
        Row(R, _started(rows) + 1, rows[0].wall + 1.5, rows[0].mono + 1.5, HostNoted(note="")),
    ]

    told = bank.fork(lambda fact: isinstance(fact, HostNoted))
    turn = bank.enter("f", lambda run: run.finish())

    assert [name.startswith("f/t1.1/") for name in told.below] == [True]
    assert values(turn) == {"a": "paid ann"}
    assert bank.paid == ["ann"]


def _started(rows: Sequence[Row]) -> int:
    return next(row.seq for row in rows if is_started(row.fact))


def test_a_fork_of_a_finished_run_goes_on_with_a_turn_of_its_own() -> None:
    bank = Bank()
    call = plan({"id": "a", "tool": "pay", "arguments": {"to": "bob"}})
    bank.enter("r", lambda run: run.submit(call))

    on(MemoryStore(bank.journal), lambda store: fork(store, "r", "f"))
    again = plan({"id": "b", "tool": "pay", "arguments": {"to": {"$from": "a"}}})
    turn = bank.enter("f", lambda run: run.submit(again))

    assert values(turn) == {"b": "paid paid bob"}
    assert len(fold(R, bank.journal.facts[R]).turns) == 1


# The command


def laneway(*arguments: str) -> Result:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_the_command_tells_what_it_made_and_what_to_look_out_for(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    asked = ApprovalAsked(
        call=CallId("t1.3"),
        approval=ApprovalId("t1.3.a1"),
        digest="",
        arguments={},
        rule="",
        expires_wall=9e9,
    )
    keyed = CallRecord(id=TWO, provider_id="b", tool="pay", idempotent=True)
    third = CallRecord(id=CallId("t1.3"), provider_id="c", tool="pay")
    turn = TurnSubmitted(turn=1, provider="plan", message={}, calls=(record(ONE), keyed, third))
    rows = numbered(
        R,
        [
            OPENED,
            turn,
            CallQueued(call=TWO, rule=""),
            CallStarted(call=TWO, attempt=1, token=1),
            asked,
        ],
    )
    inner = below_call("r/t1.1/1", (rows[0].wall, rows[0].mono))
    on(SqliteStore(path), lambda store: kept(store, *rows, *inner))

    told = laneway("fork", "r", "f", "--journal", str(path))
    document = json.loads(
        laneway("fork", "r", "g", "--at", "2", "--json", "--journal", str(path)).stdout
    )

    assert told.stdout.splitlines() == [
        "run f shares 5 facts with run r",
        "  copied with it: f/t1.1/1",
        "  was running there, as after a crash: t1.2",
        "  ? will be entered again, under the same idempotency key: t1.2",
        "  ? waits for a human in both: t1.3.a1",
    ]
    assert document == {
        "run": "g",
        "source": "r",
        "seq": 2,
        "below": ["g/t1.1/1"],
        "running": [],
        "repeated": [],
        "approvals": [],
    }


def test_the_command_says_no_more_than_there_is_to_say(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    on(SqliteStore(path), lambda store: kept(store, *numbered(R, FACTS[:2])))

    told = laneway("fork", "r", "f", "--journal", str(path))

    assert told.stdout == "run f shares 2 facts with run r\n"


def test_the_command_makes_no_journal(tmp_path: Path) -> None:
    result = laneway("fork", "r", "f", "--journal", str(tmp_path / "none.db"))

    assert result.exit_code == 2
    assert "there is no journal" in result.stderr
    assert list(tmp_path.iterdir()) == []
