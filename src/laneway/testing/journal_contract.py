"""What every journal store must do, as tests that run against any of them.

Make a subclass that says how to make a store, and let pytest collect it:

    class TestMyStore(JournalStoreContract):
        def make_store(self) -> JournalStore:
            return MyStore(...)

        def beside(self, store: JournalStore) -> JournalStore | None:
            return MyStore(the same journal)

Nothing but the standard library is needed to run the tests: each is a plain method, which raises
AssertionError with a sentence that says what was expected.
"""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from laneway.errors import JournalError, RunOwnedError
from laneway.facts import Driver, Row
from laneway.ids import ApprovalId, RunId
from laneway.journal.inbox import SentAnswer, inbox_of
from laneway.journal.lease import this_driver
from laneway.journal.store import JournalStore, RunEntry
from laneway.testing.sample_facts import every_kind_of_fact, notes, numbered

_T = TypeVar("_T")
_E = TypeVar("_E", bound=BaseException)

SENT_SECONDS = 30.0
"""Within which the driver of a run is told of what was sent to it: ten times and more."""

A = RunId("a")
B = RunId("b")


class JournalStoreContract:
    """The contract of `JournalStore`. A store that passes can be given to an engine."""

    def make_store(self) -> JournalStore:
        """Make a store, not opened yet, on a new and empty journal."""
        raise NotImplementedError

    def beside(self, store: JournalStore) -> JournalStore | None:  # noqa: ARG002 - for subclasses
        """Make another store on the journal of `store`, as a second process would have it.

        None where a journal cannot be shared: then no run can be lost, and what is said about
        that is not asked.
        """
        return None

    # What was committed comes back.

    def test_every_kind_of_fact_comes_back_as_it_was(self) -> None:
        """In the order of sequence numbers, times to the last bit."""
        rows = numbered(A, every_kind_of_fact())

        kept = self._with_store(lambda store: _written(store, rows))

        _expect(kept == rows, f"the rows differ: {_difference(kept, rows)}")

    def test_a_batch_of_any_size_is_kept(self) -> None:
        """From none to thousands; what is kept when `commit` is done can be read at once."""
        sizes = [0, 1, 2, 3, 0, 20, 64, 65, 1_000, 3_000, 1]

        async def scenario(store: JournalStore) -> None:
            await store.take(A, this_driver())
            kept: list[Row] = []
            for size in sizes:
                batch = notes(A, size, after=len(kept))
                await commit(store, batch)
                kept += batch
                _expect(
                    list(await store.read(A)) == kept, f"a batch of {size} rows was not kept whole"
                )

        self._with_store(scenario)

    def test_a_batch_may_mix_runs(self) -> None:
        """Each run has sequence numbers of its own."""

        async def scenario(store: JournalStore) -> None:
            await store.take(A, this_driver())
            await store.take(B, this_driver())
            in_turns = [
                row for pair in zip(notes(A, 30), notes(B, 30), strict=True) for row in pair
            ]
            await commit(store, in_turns)
            for run in (A, B):
                _expect(list(await store.read(run)) == notes(run, 30), f"run {run!r} is not whole")

        self._with_store(scenario)

    def test_facts_outlive_the_store_and_its_event_loop(self) -> None:
        """Close, open in another loop, go on."""
        store = self.make_store()
        asyncio.run(_opened(store, lambda: _written(store, notes(A, 5))))

        async def go_on() -> list[Row]:
            found = await store.take(A, this_driver())
            await commit(store, notes(A, 5, after=len(found)))
            return list(await store.read(A))

        kept = asyncio.run(_opened(store, go_on))

        _expect(kept == notes(A, 10), f"after reopening: {_difference(kept, notes(A, 10))}")

    def test_a_run_may_have_any_name(self) -> None:
        """Names are data: quotes, blanks, other scripts."""
        names = [RunId(name) for name in ("o'hara\"; --", "  ", "пять/五", "a" * 500, "%_*")]

        async def scenario(store: JournalStore) -> None:
            for name in names:
                await _written(store, notes(name, 1))
            listed = [entry.run for entry in await store.runs()]
            _expect(listed == names[::-1], f"the runs are listed as {listed}")

        self._with_store(scenario)

    def test_an_unknown_run_reads_as_empty(self) -> None:
        """Reading creates nothing."""

        async def scenario(store: JournalStore) -> None:
            _expect(list(await store.read(A)) == [], "an unknown run has facts")
            _expect(list(await store.runs()) == [], "reading a run created it")

        self._with_store(scenario)

    def test_runs_are_listed_the_last_opened_first(self) -> None:
        """With the number of facts, and the wall times of the first and the last."""

        async def scenario(store: JournalStore) -> Sequence[RunEntry]:
            await store.take(RunId("without facts"), this_driver())
            await _written(store, notes(B, 3))
            await _written(store, notes(A, 2))
            await commit(store, notes(B, 1, after=3))
            return await store.runs()

        listed = list(self._with_store(scenario))

        expected = [_entry(A, 2), _entry(B, 4)]
        _expect(listed == expected, f"listed are {listed}, not {expected}")

    # A batch that cannot be kept is refused, and nothing of it is kept.

    def test_a_run_that_was_not_taken_is_refused(self) -> None:
        """Also after it was left; a batch that holds such a run is refused whole."""

        async def scenario(store: JournalStore) -> None:
            await store.take(A, this_driver())
            mixed = [*notes(A, 2), *notes(B, 1)]
            await refused(JournalError, lambda: commit(store, mixed))
            _expect(list(await store.read(A)) == [], "part of a refused batch was kept")
            await commit(store, notes(A, 2))
            await store.leave(A)
            await refused(JournalError, lambda: commit(store, notes(A, 1, after=2)))
            _expect(
                list(await store.read(A)) == notes(A, 2), "a fact was kept after its run was left"
            )

        self._with_store(scenario)

    def test_sequence_numbers_have_no_gaps_and_never_repeat(self) -> None:
        """Whatever does not follow is refused, with the batch that it stands in."""

        async def scenario(store: JournalStore) -> None:
            await _written(store, notes(A, 3))
            for wrong in (notes(A, 1, after=2), notes(A, 1, after=4)):
                await refused(JournalError, partial(commit, store, wrong))
            skipping = [*notes(A, 2, after=3), *notes(A, 1, after=6)]
            await refused(JournalError, lambda: commit(store, skipping))
            _expect(list(await store.read(A)) == notes(A, 3), "part of a refused batch was kept")

        self._with_store(scenario)

    def test_a_store_that_is_not_open_says_so(self) -> None:
        """Before `open`, and after `close`."""
        store = self.make_store()

        async def scenario() -> None:
            await refused(JournalError, lambda: store.take(A, this_driver()))
            await refused(JournalError, lambda: commit(store, notes(A, 1)))
            await refused(JournalError, lambda: store.read(A))
            await refused(JournalError, store.runs)
            await store.open()
            await refused(JournalError, store.open)
            await store.close()
            await refused(JournalError, lambda: commit(store, notes(A, 1)))
            await store.close()

        asyncio.run(scenario())

    # One driver for each run.

    def test_taking_a_run_gives_its_facts(self) -> None:
        """All of them, in order; none for a new run."""

        async def scenario(store: JournalStore) -> None:
            _expect(list(await store.take(A, this_driver())) == [], "a new run has facts")
            await commit(store, notes(A, 7))
            await store.leave(A)
            found = list(await store.take(A, this_driver()))
            _expect(found == notes(A, 7), f"taking gave {_difference(found, notes(A, 7))}")

        self._with_store(scenario)

    def test_a_run_that_is_driven_here_is_not_taken_again(self) -> None:
        """Not even by the process that drives it; it can be once it was left."""

        async def scenario(store: JournalStore) -> None:
            await store.take(A, this_driver())
            error = await refused(RunOwnedError, lambda: store.take(A, this_driver()))
            _expect(str(this_driver().pid) in str(error), f"the owner is not named: {error}")
            await commit(store, notes(A, 1))
            await store.leave(A)
            await store.leave(A)
            await store.take(A, this_driver())

        self._with_store(scenario)

    def test_of_many_who_take_a_run_at_once_one_gets_it(self) -> None:
        """Reading a lease and then writing it would let several win."""

        async def scenario(store: JournalStore) -> None:
            takes = [store.take(A, this_driver()) for _ in range(10)]
            ends = await asyncio.gather(*takes, return_exceptions=True)
            won = [end for end in ends if not isinstance(end, BaseException)]
            _expect(len(won) == 1, f"{len(won)} of 10 became the driver")
            for end in ends:
                _expect(
                    not isinstance(end, BaseException) or isinstance(end, RunOwnedError),
                    f"a loser was told {end!r}",
                )

        self._with_store(scenario)

    def test_closing_leaves_the_runs(self) -> None:
        """Another store can take them at once."""

        async def scenario(store: JournalStore, other: JournalStore) -> None:
            await _written(store, notes(A, 2))
            await store.close()
            await other.take(A, this_driver())
            await commit(other, notes(A, 1, after=2))
            await store.open()

        self._with_two(scenario)

    def test_two_stores_write_runs_of_their_own(self) -> None:
        """Into one journal, in turns, and each reads what the other wrote."""

        async def scenario(store: JournalStore, other: JournalStore) -> None:
            await store.take(A, this_driver())
            await other.take(B, this_driver())
            for done in range(5):
                await commit(store, notes(A, 1, after=done))
                await commit(other, notes(B, 1, after=done))
            _expect(list(await other.read(A)) == notes(A, 5), "the other does not see this run")
            _expect(list(await store.read(B)) == notes(B, 5), "this does not see the other's run")
            _expect(
                list(await store.runs()) == [_entry(B, 5), _entry(A, 5)], "the list is not of both"
            )

        self._with_two(scenario)

    def test_a_living_driver_keeps_its_run(self) -> None:
        """Whoever asks is told who that is."""

        async def scenario(store: JournalStore, other: JournalStore) -> None:
            await store.take(A, this_driver())
            error = await refused(RunOwnedError, lambda: other.take(A, this_driver()))
            for part in (str(this_driver().pid), this_driver().host):
                _expect(part in str(error), f"{part!r} is missing from: {error}")
            await commit(store, notes(A, 1))

        self._with_two(scenario)

    def test_a_dead_driver_loses_its_run_at_once(self) -> None:
        """The process is gone; its facts are there."""

        async def scenario(store: JournalStore, other: JournalStore) -> None:
            await store.take(A, dead_driver())
            await commit(store, notes(A, 3))
            found = list(await other.take(A, this_driver()))
            _expect(found == notes(A, 3), f"taken over: {_difference(found, notes(A, 3))}")

        self._with_two(scenario)

    def test_a_run_that_was_lost_takes_nothing_more(self) -> None:
        """Of a batch, the rows of other runs are kept; the error names all runs that were lost."""

        async def scenario(store: JournalStore, other: JournalStore) -> None:
            lost = [RunId("lost 1"), RunId("lost 2")]
            for run in lost:
                await store.take(run, dead_driver())
            await store.take(A, this_driver())
            for run in lost:
                await other.take(run, this_driver())
                await commit(other, notes(run, 1))

            def batch(after: int) -> list[Row]:
                return [row for run in (lost[0], A, lost[1]) for row in notes(run, 2, after=after)]

            error = await refused(RunOwnedError, lambda: commit(store, batch(0)))
            _expect(error.runs == frozenset[str](lost), f"the error names {sorted(error.runs)}")
            _expect(str(this_driver().pid) in error.owner, f"the owner is not named: {error}")
            again = await refused(RunOwnedError, lambda: commit(store, batch(2)))
            _expect(
                again.runs == frozenset[str](lost), f"the second error names {sorted(again.runs)}"
            )
            await refused(RunOwnedError, lambda: commit(store, notes(lost[0], 1, after=1)))
            await commit(store, notes(A, 1, after=4))
            _expect(list(await other.read(A)) == notes(A, 5), "the other rows were not kept")
            for run in lost:
                await store.leave(run)
                await commit(other, notes(run, 1, after=1))
                found = list(await other.read(run))
                _expect(found == notes(run, 2), f"a paused owner wrote into {run!r}")

        self._with_two(scenario)

    # What others send to a run, if the store can do that.

    def test_an_answer_waits_in_the_inbox_until_its_driver_has_taken_it(self) -> None:
        """From any store on the journal, whoever drives the run or nobody; the oldest first."""

        async def scenario(store: JournalStore, other: JournalStore) -> None:
            here, there = inbox_of(store), inbox_of(other)
            if here is None or there is None:
                return
            await _written(store, notes(A, 1))
            await refused(JournalError, lambda: there.send(B, _answer("t1.1.a1")))
            await store.take(B, this_driver())
            await commit(store, notes(B, 1))
            first = await there.send(A, _answer("t1.1.a1"))
            await there.send(B, _answer("t1.1.a1"))
            second = await here.send(A, _answer("t1.2.a1"))
            numbers = [one.number for one in await here.letters(A)]
            _expect(numbers == [first, second], f"the inbox of one run holds {numbers}")
            named = [one.run for one in await there.letters()]
            _expect(named == [A, B, A], f"the inbox of all runs holds letters to {named}")
            kept = next(iter(await here.letters(A))).answer
            _expect(kept == _answer("t1.1.a1"), f"the answer came back as {kept}")
            await here.taken(first)
            await here.taken(first)
            numbers = [one.number for one in await there.letters(A)]
            _expect(numbers == [second], "an answer was not removed, or another was")

        self._with_two(scenario)

    def test_an_answer_that_does_not_count_stays_with_the_reason(self) -> None:
        """And without what it would have run with; what was said of it first stands."""

        async def scenario(store: JournalStore) -> None:
            inbox = inbox_of(store)
            if inbox is None:
                return
            await _written(store, notes(A, 1))
            number = await inbox.send(A, _answer("t1.1.a1", arguments={"secret": 1}))
            await inbox.taken(number, "too late")
            await inbox.taken(number, "much too late")
            await inbox.taken(number)
            (found,) = await inbox.letters(A)
            _expect(found.refused == "too late", f"it is said to be refused as {found.refused!r}")
            _expect(found.answer.arguments is None, "what it would have run with is still there")

        self._with_store(scenario)

    def test_whoever_drives_a_run_is_told_of_what_was_sent_to_it(self) -> None:
        """Of that run and no other, and again until it has been taken."""

        async def scenario(store: JournalStore, other: JournalStore) -> None:
            here, there = inbox_of(store), inbox_of(other)
            if here is None or there is None:
                return
            told: asyncio.Queue[RunId] = asyncio.Queue()
            await _written(other, notes(B, 1))
            await _written(store, notes(A, 1))
            here.when_sent(told.put_nowait)
            await there.send(B, _answer("t1.1.a1"))
            await there.send(A, _answer("t1.1.a1"))
            for _ in range(2):
                run = await asyncio.wait_for(told.get(), SENT_SECONDS)
                _expect(run == A, f"told of {run!r}, which another drives")

        self._with_two(scenario)

    # How the tests are run.

    def _with_store(self, scenario: Callable[[JournalStore], Awaitable[_T]]) -> _T:
        store = self.make_store()
        return asyncio.run(_opened(store, lambda: scenario(store)))

    def _with_two(self, scenario: Callable[[JournalStore, JournalStore], Awaitable[None]]) -> None:
        store = self.make_store()
        other = self.beside(store)
        if other is None:
            return

        async def both(other: JournalStore) -> None:
            await _opened(other, lambda: scenario(store, other))

        asyncio.run(_opened(store, lambda: both(other)))


async def commit(store: JournalStore, batch: Sequence[Row]) -> None:
    """Commit a batch, whether the store does it at once or is to be awaited."""
    committing = store.commit(batch)
    if committing is not None:
        await committing


async def refused(error: type[_E], act: Callable[[], Awaitable[Any]]) -> _E:
    """Act, expect this error, and give it back."""
    try:
        await act()
    except error as found:
        return found
    except Exception as found:
        raise AssertionError(f"{error.__name__} was expected, and {found!r} was raised") from found
    raise AssertionError(f"{error.__name__} was expected, and nothing was raised")


def dead_driver() -> Driver:
    """Name a process of this host that has ended."""
    child = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    here = this_driver()
    return Driver(
        host=here.host,
        boot=here.boot,
        pid=int(child.stdout),
        started="1",
        namespace=here.namespace,
    )


async def _opened(store: JournalStore, act: Callable[[], Awaitable[_T]]) -> _T:
    await store.open()
    try:
        return await act()
    finally:
        await store.close()


async def _written(store: JournalStore, rows: Sequence[Row]) -> list[Row]:
    """Take the run of these rows, commit them, and read them back."""
    await store.take(rows[0].run, this_driver())
    await commit(store, rows)
    return list(await store.read(rows[0].run))


def _answer(approval: str, *, arguments: object = None) -> SentAnswer:
    return SentAnswer(
        approval=ApprovalId(approval), digest="00ff", granted=True, by="ann", arguments=arguments
    )


def _entry(run: RunId, facts: int) -> RunEntry:
    rows = notes(run, facts)
    return RunEntry(run=run, facts=facts, opened_wall=rows[0].wall, touched_wall=rows[-1].wall)


def _expect(condition: bool, sentence: str) -> None:  # noqa: FBT001 - it is what is expected
    if not condition:
        raise AssertionError(sentence)


def _difference(found: Sequence[Row], expected: Sequence[Row]) -> str:
    """Say where two lists of rows part."""
    for place, (one, other) in enumerate(zip(found, expected, strict=False), 1):
        if one != other:
            return f"row {place} is {one}, not {other}"
    return f"there are {len(found)} rows, not {len(expected)}"
