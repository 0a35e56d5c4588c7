"""The writer groups facts into commits and tells who waits; the fold makes state of them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import pytest

from laneway.calls import CallRecord
from laneway.engine.clock import LoopClock
from laneway.errors import (
    DamagedJournalError,
    EngineFaultError,
    IllegalTransitionError,
    JournalError,
    RunOwnedError,
)
from laneway.facts import (
    ApprovalAnswered,
    ApprovalAsked,
    AttemptEnded,
    CallEnded,
    CallQueued,
    CallSettled,
    CallStarted,
    Fact,
    HolderStopped,
    MessageSaid,
    Row,
    RunOpened,
    RunTaken,
    TurnClosed,
    TurnSubmitted,
)
from laneway.ids import ApprovalId, CallId, RunId
from laneway.journal.fold import RunView, fold, open_calls
from laneway.journal.lease import this_driver
from laneway.journal.memory import MemoryJournal, MemoryStore
from laneway.journal.store import JournalStore
from laneway.journal.writer import BATCH_ROWS, Journal, RunLog, unknown_commit
from laneway.outcomes import Code, Failure, Success
from laneway.states import State
from laneway.testing.clock import run_virtual
from laneway.testing.watched import WatchedStore

RUN, OTHER = RunId("r"), RunId("other")


def note(text: object) -> Fact:
    return MessageSaid(message=str(text))


def notes(count: int, start: int = 0) -> list[Fact]:
    return [note(n) for n in range(start, start + count)]


class Desk:
    """An open journal with the logs of some runs, and what its logs and posts were told."""

    def __init__(self, store: JournalStore) -> None:
        self.store = store
        self.journal = Journal(store, LoopClock())
        self.told: list[tuple[object, JournalError | None]] = []
        self.broken: list[tuple[RunId, JournalError]] = []

    async def log(self, run: RunId = RUN) -> RunLog:
        rows = await self.journal.take(run, this_driver())

        def on_broken(error: JournalError) -> None:
            self.broken.append((run, error))

        log = RunLog(fold(run, rows), on_broken)
        self.journal.attach(log)
        return log

    def post(self, log: RunLog, facts: Sequence[Fact], name: object) -> None:
        self.journal.post(log, facts, lambda error: self.told.append((name, error)))

    @property
    def names(self) -> list[object]:
        return [name for name, error in self.told if error is None]


def at_a_desk(
    main: Callable[[Desk], Awaitable[Any]], store: JournalStore | None = None
) -> tuple[Desk, Any]:
    async def work() -> tuple[Desk, Any]:
        desk = Desk(store or WatchedStore())
        await desk.journal.open()
        try:
            return desk, await main(desk)
        finally:
            await asyncio.wait_for(desk.journal.close(), 5)

    return asyncio.run(asyncio.wait_for(work(), 20))


async def passes(count: int = 5) -> None:
    """Let the loop run what is runnable."""
    for _ in range(count):
        await asyncio.sleep(0)


class Gate:
    """Holds a commit until it is opened, and says when one has come."""

    def __init__(self, *held: int) -> None:
        self.held = held
        self.open = asyncio.Event()
        self.reached = asyncio.Event()

    async def __call__(self, number: int, _rows: Sequence[Row]) -> None:
        if number in self.held:
            self.reached.set()
            await self.open.wait()


# Group commit


def test_what_is_posted_in_one_pass_of_the_loop_goes_down_in_one_commit() -> None:
    store = WatchedStore()

    async def main(desk: Desk) -> None:
        one, two = await desk.log(RUN), await desk.log(OTHER)
        desk.post(one, notes(2), "a")
        desk.post(two, notes(1), "b")
        desk.post(one, notes(3, start=2), "c")
        assert desk.told == []
        await passes()

    desk, _ = at_a_desk(main, store)

    assert [len(batch) for batch in store.batches] == [6]
    assert desk.names == ["a", "b", "c"]
    assert [(row.run, row.seq) for row in store.batches[0]] == [
        (RUN, 1),
        (RUN, 2),
        (OTHER, 1),
        (RUN, 3),
        (RUN, 4),
        (RUN, 5),
    ]


def test_what_is_posted_during_a_commit_goes_down_in_the_next_one() -> None:
    store = WatchedStore()

    async def main(desk: Desk) -> None:
        gate = store.before = Gate(1)
        log = await desk.log()
        desk.post(log, [note(1)], "first")
        await gate.reached.wait()
        for n in range(2, 6):
            desk.post(log, [note(n)], n)
            await asyncio.sleep(0)
        assert desk.told == []
        assert log.view.seq == 0, "what is not kept has not happened"
        gate.open.set()
        await passes(8)

    desk, _ = at_a_desk(main, store)

    assert [len(batch) for batch in store.batches] == [1, 4]
    assert desk.names == ["first", 2, 3, 4, 5]


def test_nobody_waits_for_company() -> None:
    store = WatchedStore()

    async def main(desk: Desk) -> None:
        log = await desk.log()
        for n in range(4):
            await desk.journal.keep(log, [note(n)])

    at_a_desk(main, store)

    assert [len(batch) for batch in store.batches] == [1, 1, 1, 1]


def test_a_commit_takes_no_post_beyond_its_limit() -> None:
    store = WatchedStore()
    third = BATCH_ROWS // 3 + 1

    async def main(desk: Desk) -> None:
        log = await desk.log()
        for n in range(5):
            desk.post(log, notes(third, start=n * third), n)
        await passes(12)

    desk, _ = at_a_desk(main, store)

    assert [len(batch) for batch in store.batches] == [2 * third, 2 * third, third]
    assert desk.names == [0, 1, 2, 3, 4]


def test_a_post_is_never_split() -> None:
    store = WatchedStore()

    async def main(desk: Desk) -> None:
        log = await desk.log()
        desk.post(log, [note("small")], "small")
        desk.post(log, notes(3 * BATCH_ROWS), "large")
        desk.post(log, [note("last")], "last")
        await passes(12)

    desk, _ = at_a_desk(main, store)

    assert [len(batch) for batch in store.batches] == [1, 3 * BATCH_ROWS, 1]
    assert desk.names == ["small", "large", "last"]


@pytest.mark.parametrize("at_once", [False, True], ids=["awaited", "at once"])
def test_a_post_without_facts_is_told_in_its_turn_and_commits_nothing(*, at_once: bool) -> None:
    watched = WatchedStore()
    store: JournalStore = MemoryStore() if at_once else watched

    async def main(desk: Desk) -> int:
        log = await desk.log()
        desk.post(log, [], "nothing")
        desk.post(log, [note(1)], "one")
        desk.post(log, [], "nothing more")
        await passes()
        await desk.journal.keep(log, [])
        return desk.journal.commits

    desk, commits = at_a_desk(main, store)

    assert desk.names == ["nothing", "one", "nothing more"]
    assert commits == 1
    if not at_once:
        assert [len(batch) for batch in watched.batches] == [1]


def test_a_store_that_keeps_at_once_tells_at_once_and_in_order() -> None:
    async def main(desk: Desk) -> None:
        log = await desk.log()
        journal = desk.journal

        def then(error: JournalError | None) -> None:
            assert error is None
            desk.told.append(("outer", log.view.seq))  # type: ignore[arg-type]
            desk.post(log, [note("inner")], "inner")
            assert len(desk.told) == 1, "not told within the telling"

        journal.post(log, [note("outer")], then)
        assert [name for name, _ in desk.told] == ["outer", "inner"]

    at_a_desk(main, MemoryStore())


@pytest.mark.parametrize("at_once", [False, True], ids=["awaited", "at once"])
def test_the_view_has_moved_when_the_post_is_told(*, at_once: bool) -> None:
    seen: list[int] = []

    async def main(desk: Desk) -> None:
        log = await desk.log()
        for n in range(3):
            desk.journal.post(log, notes(2, start=2 * n), lambda _: seen.append(log.view.seq))
        await passes()

    at_a_desk(main, MemoryStore() if at_once else WatchedStore())

    assert seen == [2, 4, 6]


def test_sequence_numbers_go_on_from_what_was_read() -> None:
    kept = MemoryJournal()
    stores = [WatchedStore(MemoryStore(kept)), WatchedStore(MemoryStore(kept))]

    async def main(desk: Desk) -> int:
        log = await desk.log()
        await desk.journal.keep(log, notes(3))
        return log.view.seq

    assert at_a_desk(main, stores[0])[1] == 3
    assert at_a_desk(main, stores[1])[1] == 6
    assert [row.seq for row in kept.facts[RUN]] == [1, 2, 3, 4, 5, 6]


def test_cancelling_who_waits_withdraws_nothing() -> None:
    store = WatchedStore()

    async def main(desk: Desk) -> None:
        gate = store.before = Gate(1)
        log = await desk.log()
        waiting = asyncio.create_task(desk.journal.keep(log, [note("said")]))
        await gate.reached.wait()
        waiting.cancel()
        await passes()
        assert waiting.cancelled()
        gate.open.set()
        await desk.journal.keep(log, [note("more")])

    at_a_desk(main, store)

    assert [fact.message for fact in store.kept if isinstance(fact, MessageSaid)] == [
        "said",
        "more",
    ]


def test_cancelling_who_waits_for_a_commit_that_fails_is_no_noise() -> None:
    store = WatchedStore()
    noise: list[dict[str, Any]] = []

    async def main(desk: Desk) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: noise.append(context))
        gate = Gate(1)

        async def fail(number: int, rows: Sequence[Row]) -> None:
            await gate(number, rows)
            raise OSError("the disk is gone")

        store.before = fail
        log = await desk.log()
        waiting = asyncio.create_task(desk.journal.keep(log, [note("said")]))
        await gate.reached.wait()
        waiting.cancel()
        await passes()
        gate.open.set()
        await passes()

    at_a_desk(main, store)

    assert noise == []


# Closing


def test_closing_writes_what_is_still_waiting() -> None:
    store = WatchedStore()

    async def main(desk: Desk) -> None:
        gate = store.before = Gate(1)
        log = await desk.log()
        desk.post(log, [note(1)], 1)
        await gate.reached.wait()
        desk.post(log, [note(2)], 2)
        closing = asyncio.create_task(desk.journal.close())
        await passes()
        assert not closing.done()
        gate.open.set()
        await closing

    desk, _ = at_a_desk(main, store)

    assert desk.names == [1, 2]
    assert len(store.kept) == 2


def test_a_closed_journal_takes_nothing_and_says_so() -> None:
    async def main(desk: Desk) -> RunLog:
        log = await desk.log()
        await desk.journal.keep(log, [note(1)])
        await desk.journal.close()
        with pytest.raises(JournalError, match="its engine has been left"):
            desk.journal.post(log, [note(2)])
        with pytest.raises(JournalError, match="its engine has been left"):
            await desk.journal.take(OTHER, this_driver())
        return log

    _, log = at_a_desk(main)

    assert log.view.seq == 1


def test_a_journal_that_never_wrote_is_closed_as_well() -> None:
    async def main(desk: Desk) -> None:
        await desk.log()

    desk, _ = at_a_desk(main)

    assert desk.told == []


def test_leaving_a_run_waits_for_what_was_posted_of_it() -> None:
    """Else its rows would come to a store that does not drive the run any more."""
    store = WatchedStore()

    async def main(desk: Desk) -> RunLog:
        gate = store.before = Gate(1)
        one, two = await desk.log(RUN), await desk.log(OTHER)
        desk.post(two, [note(1)], "other")
        await gate.reached.wait()
        desk.post(one, [note(1)], "mine")
        leaving = asyncio.create_task(desk.journal.leave(one))
        await passes()
        assert not leaving.done()
        gate.open.set()
        await leaving
        await desk.journal.keep(two, [note(2)])
        return one

    desk, left = at_a_desk(main, store)

    assert desk.names == ["other", "mine"]
    assert desk.broken == []
    assert "has been left" in str(left.broken)


def test_who_leaves_may_be_cancelled_meanwhile() -> None:
    store = WatchedStore()

    async def main(desk: Desk) -> None:
        gate = store.before = Gate(1)
        log = await desk.log()
        desk.post(log, [note(1)], "mine")
        await gate.reached.wait()
        leaving = asyncio.create_task(desk.journal.leave(log))
        await passes()
        leaving.cancel()
        await passes()
        gate.open.set()
        await desk.journal.keep(log, [note(2)])

    desk, _ = at_a_desk(main, store)

    assert desk.broken == []


# Breaking


class NoError(BaseException):
    """Neither an Exception nor one of the three that Python itself raises."""


STRANGE: list[BaseException] = [
    OSError("disk"),
    ValueError(""),
    asyncio.CancelledError(),
    RecursionError(),
    ExceptionGroup("both", [OSError("a"), OSError("b")]),
    TimeoutError(),
    StopAsyncIteration(),
    MemoryError(),
    JournalError("no more"),
    UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"),
]


@pytest.mark.parametrize("at_once", [False, True], ids=["awaited", "at once"])
@pytest.mark.parametrize("error", STRANGE, ids=lambda error: type(error).__name__)
def test_whatever_a_store_raises_breaks_the_journal_and_hangs_nobody(
    error: BaseException, *, at_once: bool
) -> None:
    async def main(desk: Desk) -> None:
        one, two = await desk.log(RUN), await desk.log(OTHER)
        await desk.journal.keep(one, [note(1)])
        failing(desk.store, error)

        async def keep(log: RunLog) -> JournalError:
            with pytest.raises(JournalError) as told:
                await asyncio.wait_for(desk.journal.keep(log, [note(2)]), 5)
            return told.value

        found = await asyncio.gather(keep(one), keep(two))

        assert found[0] is found[1]
        assert {run for run, _ in desk.broken} == {RUN, OTHER}
        with pytest.raises(JournalError) as told:
            desk.journal.post(one, [note(3)])
        assert told.value is found[0]
        with pytest.raises(JournalError):
            await desk.journal.take(RunId("third"), this_driver())
        assert one.view.seq == 1
        if not isinstance(error, JournalError):
            assert type(error).__name__ in str(told.value)
            assert "may or may not be kept" in str(told.value)
            assert told.value.__cause__ is error

    at_a_desk(main, MemoryStore() if at_once else WatchedStore())


def failing(store: Any, error: BaseException) -> None:
    """Let every commit from now on raise."""

    def fail(*_: Any) -> None:
        raise error

    if isinstance(store, WatchedStore):
        store.before = fail
    else:
        store.commit = fail


@pytest.mark.parametrize("at_once", [False, True], ids=["awaited", "at once"])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_ends_the_program_ends_it_and_leaves_nobody_waiting(
    kind: type[BaseException], *, at_once: bool
) -> None:
    found: list[BaseException | None] = []

    async def work() -> None:
        desk = Desk(MemoryStore() if at_once else WatchedStore())
        await desk.journal.open()
        log = await desk.log()
        failing(desk.store, kind())
        try:
            await desk.journal.keep(log, [note(1)])
        except BaseException as error:
            found.append(error)
            raise
        finally:
            found.append(desk.journal.broken)
            await asyncio.wait_for(desk.journal.leave(log), 5)
            await asyncio.wait_for(desk.journal.close(), 5)

    with pytest.raises((kind, JournalError)):
        asyncio.run(work())

    assert found, "whoever waited was told"
    assert isinstance(found[-1], JournalError)


def test_a_broken_journal_takes_nothing_even_if_its_store_would() -> None:
    """No blind retry: what the failed commit left behind is not known."""
    store = WatchedStore()

    async def main(desk: Desk) -> None:
        def fail_once(number: int, _rows: Sequence[Row]) -> None:
            if number == 2:
                raise OSError("for a moment")

        store.before = fail_once
        one = await desk.log(RUN)
        await desk.journal.keep(one, [note(1)])
        with pytest.raises(JournalError):
            await desk.journal.keep(one, [note(2)])
        with pytest.raises(JournalError):
            await desk.journal.keep(one, [note(3)])
        with pytest.raises(JournalError):
            await desk.log(OTHER)

    at_a_desk(main, store)

    assert len(store.batches) == 2


def test_a_run_taken_while_the_journal_broke_can_post_nothing() -> None:
    store = WatchedStore()

    async def main(desk: Desk) -> None:
        failing(store, OSError())
        one = await desk.log(RUN)
        two = await desk.log(OTHER)
        desk.journal.detach(two)
        with pytest.raises(JournalError):
            await desk.journal.keep(one, [note(1)])
        assert two.broken is None
        with pytest.raises(JournalError, match="may or may not be kept"):
            desk.journal.post(two, [note(1)])

    at_a_desk(main, store)


def test_all_that_waits_is_refused_when_a_commit_fails() -> None:
    store = WatchedStore()

    async def main(desk: Desk) -> None:
        gate = Gate(1)

        async def fail(number: int, rows: Sequence[Row]) -> None:
            await gate(number, rows)
            raise OSError("disk")

        store.before = fail
        one, two = await desk.log(RUN), await desk.log(OTHER)
        desk.post(one, [note(1)], 1)
        await gate.reached.wait()
        desk.post(one, [note(2)], 2)
        desk.post(two, [note(1)], 3)
        gate.open.set()
        await passes()

    desk, _ = at_a_desk(main, store)

    assert [name for name, _ in desk.told] == [1, 2, 3]
    assert all(isinstance(error, JournalError) for _, error in desk.told)
    assert len(store.batches) == 1


def test_a_log_learns_of_the_break_before_its_posts_do() -> None:
    order: list[str] = []
    store = WatchedStore()

    async def main(desk: Desk) -> None:
        failing(store, OSError())
        log = await desk.log()
        log.on_broken = lambda _: order.append("log")
        desk.journal.post(log, [note(1)], lambda _: order.append("post"))
        await passes()

    at_a_desk(main, store)

    assert order == ["log", "post"]


def test_a_run_that_cannot_be_stopped_is_reported_and_stops_no_other() -> None:
    store = WatchedStore()
    noise: list[dict[str, Any]] = []

    async def main(desk: Desk) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: noise.append(context))
        failing(store, OSError())
        one, two = await desk.log(RUN), await desk.log(OTHER)

        def raising(_: JournalError) -> None:
            raise RuntimeError("cannot")

        one.on_broken = raising
        desk.post(one, [note(1)], "one")
        desk.post(two, [note(1)], "two")
        await passes()

    desk, _ = at_a_desk(main, store)

    assert [name for name, _ in desk.told] == ["one", "two"]
    assert [run for run, _ in desk.broken] == [OTHER]
    assert [str(context["exception"]) for context in noise] == ["cannot"]
    assert "'r' could not be stopped" in noise[0]["message"]


@pytest.mark.parametrize("at_once", [False, True], ids=["awaited", "at once"])
def test_a_fault_in_one_run_stops_no_other_and_hangs_nobody(*, at_once: bool) -> None:
    async def main(desk: Desk) -> None:
        one, two = await desk.log(RUN), await desk.log(OTHER)

        def raising(error: JournalError | None) -> None:
            desk.told.append(("raising", error))
            if error is None:
                raise RuntimeError("a fault of the engine")

        desk.journal.post(one, [note(1)], raising)
        desk.post(two, [note(1)], "other")
        if not at_once:
            desk.post(one, [note(2)], "behind it")
        await passes()
        with pytest.raises(EngineFaultError, match=r"a fault of the engine.*please report it"):
            await asyncio.wait_for(desk.journal.keep(one, [note(3)]), 5)
        await desk.journal.keep(two, [note(2)])

    desk, _ = at_a_desk(main, MemoryStore() if at_once else WatchedStore())

    told = dict(desk.told)
    assert told["other"] is None
    assert isinstance(told["raising"], EngineFaultError)
    if not at_once:
        assert isinstance(told["behind it"], EngineFaultError)
    assert [run for run, _ in desk.broken] == [RUN]


def test_a_fact_that_does_not_fold_tells_whoever_waits_for_it() -> None:
    async def main(desk: Desk) -> None:
        log = await desk.log()
        with pytest.raises(EngineFaultError):
            await asyncio.wait_for(desk.journal.keep(log, [TurnClosed(turn=7)]), 5)

    at_a_desk(main)


# Losing a run to another driver


@pytest.mark.parametrize("at_once", [False, True], ids=["awaited", "at once"])
def test_a_run_that_was_lost_stops_and_the_others_go_on(*, at_once: bool) -> None:
    journal = MemoryJournal()
    memory = MemoryStore(journal)

    async def main(desk: Desk) -> None:
        one, two = await desk.log(RUN), await desk.log(OTHER)
        await desk.journal.keep(one, [note(1)])
        lose(journal, RUN)
        results = await asyncio.wait_for(
            asyncio.gather(
                desk.journal.keep(one, [note(2)]),
                desk.journal.keep(two, [note(1)]),
                return_exceptions=True,
            ),
            5,
        )
        assert isinstance(results[0], RunOwnedError)
        assert results[1] is None
        assert "'r' is driven by somebody else" in str(results[0])
        await desk.journal.keep(two, [note(2)])
        with pytest.raises(RunOwnedError):
            desk.journal.post(one, [note(3)])
        assert one.view.seq == 1

    desk, _ = at_a_desk(main, memory if at_once else WatchedStore(memory))

    assert [run for run, _ in desk.broken] == [RUN]
    assert len(journal.facts[RUN]) == 1
    assert len(journal.facts[OTHER]) == 2


def lose(journal: MemoryJournal, run: RunId) -> None:
    """Somebody else has taken the run, as if its owner had been thought dead."""
    lease = journal.leases.pop(run)
    lease.held.pop(run)
    lease.lost[run] = "somebody else"


def test_what_is_posted_behind_a_lost_commit_is_refused_before_the_run_is_left() -> None:
    """Once the run has been left, its rows would be taken for those of a stranger."""
    journal = MemoryJournal()
    store = WatchedStore(MemoryStore(journal))

    async def main(desk: Desk) -> None:
        gate = store.before = Gate(1)
        one, two = await desk.log(RUN), await desk.log(OTHER)
        lost = asyncio.Event()

        def told(error: JournalError | None) -> None:
            desk.told.append(("lost", error))
            lost.set()

        desk.journal.post(one, [note(1)], told)
        await gate.reached.wait()
        desk.post(one, [note(2)], "behind")
        desk.post(two, [note(1)], "other")
        lose(journal, RUN)
        gate.open.set()
        await lost.wait()
        await desk.journal.leave(one)
        await desk.journal.keep(two, [note(2)])

    desk, _ = at_a_desk(main, store)

    answers = dict(desk.told)
    assert isinstance(answers["lost"], RunOwnedError)
    assert isinstance(answers["behind"], RunOwnedError)
    assert answers["other"] is None
    assert [run for run, _ in desk.broken] == [RUN]


# The writer's own task


def test_the_writer_is_not_cancelled_in_a_commit() -> None:
    store = WatchedStore()

    async def main(desk: Desk) -> None:
        gate = store.before = Gate(1)
        log = await desk.log()
        desk.post(log, [note(1)], 1)
        await gate.reached.wait()
        desk.post(log, [note(2)], 2)
        writer = the_writer()
        assert not writer.cancel()
        await passes()
        gate.open.set()
        await passes(8)
        assert writer.done(), "it ends when all is written, so that a loop can be torn down"
        assert not writer.cancelled()
        await desk.journal.keep(log, [note(3)])

    desk, _ = at_a_desk(main, store)

    assert desk.names == [1, 2]
    assert len(store.kept) == 3


def the_writer() -> "asyncio.Task[Any]":
    found = [task for task in asyncio.all_tasks() if task.get_name() == "laneway-journal"]
    assert len(found) == 1
    return found[0]


def test_an_idle_writer_can_be_cancelled_and_another_takes_over() -> None:
    async def main(desk: Desk) -> None:
        log = await desk.log()
        await desk.journal.keep(log, [note(1)])
        writer = the_writer()
        assert writer.cancel()
        await passes()
        assert writer.cancelled()
        await asyncio.wait_for(desk.journal.keep(log, [note(2)]), 5)

    at_a_desk(main)


def test_what_is_posted_in_the_breath_in_which_the_writer_is_cancelled_is_kept() -> None:
    async def main(desk: Desk) -> None:
        log = await desk.log()
        await desk.journal.keep(log, [note(1)])
        writer = the_writer()
        writer.cancel()
        desk.post(log, [note(2)], 2)
        await passes()
        assert desk.names == [2]
        assert writer.done()
        await asyncio.wait_for(desk.journal.keep(log, [note(3)]), 5)

    at_a_desk(main)


def test_a_loop_can_be_torn_down_in_the_middle_of_a_commit() -> None:
    """Nobody leaves the engine: asyncio.run cancels every task that it finds, and waits for it."""
    store = WatchedStore()

    async def work() -> None:
        desk = Desk(store)
        await desk.journal.open()

        async def slow(_number: int, _rows: Sequence[Row]) -> None:
            await passes(3)

        store.before = slow
        log = await desk.log()
        desk.post(log, [note(1)], 1)
        await asyncio.sleep(0)
        desk.post(log, [note(2)], 2)

    asyncio.run(work())

    assert len(store.kept) == 2


def test_the_store_is_closed_though_its_writer_was_ended() -> None:
    closed: list[bool] = []

    class Closing(WatchedStore):
        async def close(self) -> None:
            closed.append(True)
            await super().close()

    store = Closing()

    async def main(desk: Desk) -> None:
        log = await desk.log()
        await desk.journal.keep(log, [note(1)])
        the_writer().cancel()

    at_a_desk(main, store)

    assert closed == [True]


def test_virtual_time_stands_still_during_a_commit() -> None:
    """A commit is outside of virtual time, so that the same program takes the same course."""

    async def main() -> tuple[float, float]:
        from laneway.testing.clock import VirtualClock  # noqa: PLC0415

        loop = asyncio.get_running_loop()
        store = WatchedStore()
        journal = Journal(store, VirtualClock())
        await journal.open()
        log = RunLog(RunView(RUN), lambda _: None)
        await journal.take(RUN, this_driver())
        asyncio.get_running_loop().call_later(1.0, lambda: None)
        before = loop.time()
        await journal.keep(log, [note(1)])
        after = loop.time()
        await journal.close()
        return before, after

    before, after = run_virtual(main)

    assert before == after


def test_an_unknown_commit_says_what_to_do() -> None:
    error = unknown_commit(OSError("no space"))

    assert str(error) == (
        "the journal could not be written (OSError: no space); what was being written may or may "
        "not be kept, and nothing further is begun: mend the cause, then resume the run"
    )


# The fold


CALL = CallId("t1.1")
QUESTION = ApprovalId("t1.1.a1")
DRIVER = this_driver()
FAILED = Failure(code=Code.TOOL_ERROR, message="no")


def submitted(*names: str, turn: int = 1) -> TurnSubmitted:
    return TurnSubmitted(
        turn=turn,
        provider="plan",
        message={},
        calls=tuple(
            CallRecord(id=CallId(f"t{turn}.{n}"), provider_id=name, tool="x")
            for n, name in enumerate(names, 1)
        ),
    )


def rows(*facts: Fact) -> list[Row]:
    return [Row(RUN, seq, 1e9 + seq, float(seq), fact) for seq, fact in enumerate(facts, 1)]


def test_the_life_of_a_call_is_folded() -> None:
    view = fold(
        RUN,
        rows(
            RunOpened(run=RUN, driver=DRIVER, mode="plan", resume_with="m:f", settings={"a": 1}),
            submitted("a"),
            ApprovalAsked(
                call=CALL,
                approval=QUESTION,
                digest="d",
                arguments={"x": 1},
                rule="ask",
                reason="it is risky",
                expires_wall=2e9,
            ),
            ApprovalAnswered(call=CALL, approval=QUESTION, granted=True, by="ann"),
            CallQueued(call=CALL, rule="approved by ann"),
            CallStarted(call=CALL, attempt=1, token=5),
            AttemptEnded(call=CALL, attempt=1, cause="503"),
            CallQueued(call=CALL, rule="approved by ann"),
            CallStarted(call=CALL, attempt=2, token=3),
            CallEnded(call=CALL, state=State.TIMED_OUT, outcome=FAILED, stopped=False),
            HolderStopped(call=CALL, late="at last"),
            TurnClosed(turn=1),
            CallSettled(call=CALL, outcome=Success(value=1), by="ann"),
            RunTaken(driver=DRIVER, mode="build"),
        ),
    )

    call = view.calls[CALL]
    question = view.approvals[QUESTION]
    assert (view.mode, view.resume_with, view.settings, view.token) == ("build", "m:f", {"a": 1}, 5)
    assert (call.state, call.outcome, call.attempt, call.token) == (State.TIMED_OUT, FAILED, 2, 3)
    assert (call.stuck, call.late, call.settled) == (False, "at last", Success(value=1))
    assert (call.submitted, call.queued, call.started, call.ended) == (2.0, 8.0, 9.0, 10.0)
    assert (question.id, question.call, question.rule) == (QUESTION, CALL, "ask")
    assert (question.arguments, question.reason) == ({"x": 1}, "it is risky")
    assert view.open_turn is None


def test_an_unknown_end_may_be_settled_while_its_turn_is_open() -> None:
    running: list[Fact] = [
        RunOpened(run=RUN, driver=DRIVER),
        submitted("a"),
        CallQueued(call=CALL, rule="default"),
        CallStarted(call=CALL, attempt=1, token=1),
        CallEnded(call=CALL, state=State.UNCERTAIN, outcome=FAILED),
    ]
    settled = CallSettled(call=CALL, outcome=Success(value=1), by="ann")

    one = fold(RUN, rows(*running, settled)).calls[CALL]
    failed = fold(RUN, rows(*running, CallSettled(call=CALL, outcome=FAILED))).calls[CALL]
    late = fold(RUN, rows(*running, TurnClosed(turn=1), settled)).calls[CALL]

    assert (one.state, one.outcome, one.ended) == (State.SUCCEEDED, Success(value=1), 6.0)
    assert (failed.state, failed.outcome) == (State.FAILED, FAILED)
    assert (late.state, late.outcome, late.settled) == (
        State.UNCERTAIN,
        FAILED,
        Success(value=1),
    )


def test_only_the_last_turn_can_be_open() -> None:
    opened = RunOpened(run=RUN, driver=DRIVER)

    view = fold(RUN, rows(opened, submitted("a"), TurnClosed(turn=1), submitted("b", turn=2)))

    assert view.open_turn is view.turns[1]
    assert [call.record.provider_id for call in open_calls(view.turns[1])] == ["b"]
    assert fold(RUN, ()).open_turn is None


@pytest.mark.parametrize("missing", [1, 2, 5])
def test_a_gap_in_the_facts_is_named(missing: int) -> None:
    given = [row for row in rows(*notes(6)) if row.seq != missing]

    with pytest.raises(DamagedJournalError) as told:
        fold(RUN, given)

    assert told.value.seq == missing + 1
    assert f"fact {missing} was expected here: facts are missing" in str(told.value)
    assert "the run can be read up to there" in str(told.value)


def test_a_fact_that_comes_twice_is_named() -> None:
    one, two = rows(*notes(2))

    with pytest.raises(DamagedJournalError, match="fact 2: fact 3 was expected here"):
        fold(RUN, [one, two, two])


@pytest.mark.parametrize(
    "fact",
    [
        CallQueued(call=CALL, rule=""),
        CallStarted(call=CALL, attempt=1, token=1),
        AttemptEnded(call=CALL, attempt=1, cause=""),
        CallEnded(call=CALL, state=State.FAILED, outcome=FAILED),
        HolderStopped(call=CALL),
        CallSettled(call=CALL, outcome=FAILED),
        ApprovalAsked(
            call=CALL, approval=QUESTION, digest="", arguments={}, rule="", expires_wall=0
        ),
        ApprovalAnswered(call=CALL, approval=QUESTION, granted=True),
        TurnClosed(turn=2),
    ],
    ids=lambda fact: type(fact).__name__,
)
def test_a_fact_about_nothing_that_was_written_is_damage(fact: Fact) -> None:
    with pytest.raises(DamagedJournalError, match="of which no earlier fact tells"):
        fold(RUN, rows(RunOpened(run=RUN, driver=DRIVER), fact))


def test_facts_that_no_engine_writes_are_refused() -> None:
    with pytest.raises(IllegalTransitionError, match="no arrow leads from PENDING to RUNNING"):
        fold(RUN, rows(submitted("a"), CallStarted(call=CALL, attempt=1, token=1)))


def test_a_call_without_outcome_is_open() -> None:
    view = fold(RUN, rows(submitted("a", "b")))

    assert [call.open for call in view.calls.values()] == [True, True]
    assert msgspec.structs.astuple(view.calls[CALL])[0].provider_id == "a"
