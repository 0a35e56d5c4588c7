"""The contract of journal stores, run against ours, and against stores that break it."""

import asyncio
import inspect
import json
import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laneway.errors import DamagedJournalError, JournalError, RunOwnedError
from laneway.facts import CallEnded, Driver, Fact, MessageSaid, Row, TurnClosed
from laneway.ids import CallId, RunId
from laneway.journal.chain import first_link, next_link
from laneway.journal.codec import DECODED_AT_ONCE, Kept, decode, decode_rows, encode
from laneway.journal.lease import this_driver
from laneway.journal.memory import MemoryStore
from laneway.journal.sqlite import SqliteStore
from laneway.journal.store import JournalStore, RunEntry
from laneway.outcomes import Success
from laneway.states import State
from laneway.testing.journal_contract import JournalStoreContract
from laneway.testing.sample_facts import every_kind_of_fact, notes, numbered

RUN = RunId("fix-42")
CALL = CallId("t1.1")


class TestMemoryStore(JournalStoreContract):
    def make_store(self) -> MemoryStore:
        return MemoryStore()

    def beside(self, store: JournalStore) -> MemoryStore:
        assert isinstance(store, MemoryStore)
        return MemoryStore(store.journal)

    def test_a_commit_is_done_when_it_returns(self) -> None:
        assert MemoryStore.keeps_at_once


class TestSqliteStore(JournalStoreContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def make_store(self) -> SqliteStore:
        return SqliteStore(self.folder / "runs.db")

    def beside(self, store: JournalStore) -> SqliteStore:
        assert isinstance(store, SqliteStore)
        return SqliteStore(store.path)


class TestSqliteStoreWithNormalSync(TestSqliteStore):
    def make_store(self) -> SqliteStore:
        return SqliteStore(self.folder / "runs.db", synchronous="NORMAL")


class TestUnsharedStore(JournalStoreContract):
    """A store that cannot be shared meets the rest of the contract."""

    def make_store(self) -> MemoryStore:
        return MemoryStore()


class Drops(MemoryStore):
    """Loses the last row of a larger batch."""

    def commit(self, batch: Sequence[Row], /) -> None:
        super().commit(batch[:-1] if len(batch) > 1 else batch)


class KeepsLate(MemoryStore):
    """Says that a batch is kept, and keeps it with the next one."""

    late: Sequence[Row] = ()

    def commit(self, batch: Sequence[Row], /) -> None:
        self.late, ready = batch, self.late
        super().commit(ready)


class KeepsHalf(MemoryStore):
    """Keeps the rows of a batch one by one, up to the bad one."""

    def commit(self, batch: Sequence[Row], /) -> None:
        for row in batch:
            super().commit([row])


class Forgets(MemoryStore):
    """Loses everything when it is closed."""

    async def close(self) -> None:
        await super().close()
        self.journal.facts.clear()


class Rounds(MemoryStore):
    """Keeps times to the microsecond only."""

    async def read(self, run: RunId) -> Sequence[Row]:
        return [
            Row(row.run, row.seq, row.wall, round(row.mono, 6), row.fact)
            for row in await super().read(run)
        ]


class Falsifies(MemoryStore):
    """Writes values as JSON, and huge integers as floats."""

    async def read(self, run: RunId) -> Sequence[Row]:
        return [
            Row(row.run, row.seq, row.wall, row.mono, _through_floats(row.fact))
            for row in await super().read(run)
        ]


def _through_floats(fact: Fact) -> Fact:
    if isinstance(fact, CallEnded) and isinstance(fact.outcome, Success):
        value = str(fact.outcome.value).replace("1" + "0" * 30, "1e30")
        return CallEnded(call=fact.call, state=fact.state, outcome=Success(value=value))
    return fact


class Renumbers(MemoryStore):
    """Takes any sequence number."""

    def commit(self, batch: Sequence[Row], /) -> None:
        for row in batch:
            super().commit(
                [Row(row.run, len(self.journal.facts.get(row.run, ())) + 1, 0.0, 0.0, row.fact)]
            )


class ListsTheFirstFirst(MemoryStore):
    """Lists the runs in the order of their opening."""

    async def runs(self) -> Sequence[RunEntry]:
        return list(await super().runs())[::-1]


class MixesRuns(MemoryStore):
    """Mixes the facts of all runs."""

    async def read(self, run: RunId) -> Sequence[Row]:
        return [row for rows in self.journal.facts.values() for row in rows]


class TakesEverything(MemoryStore):
    """Lets anybody take any run."""

    async def take(self, run: RunId, driver: Driver) -> Sequence[Row]:
        if run in self.journal.leases:
            self.journal.leases.pop(run).held.pop(run)
        return await super().take(run, driver)


class TakesNothing(MemoryStore):
    """Never gives a run to a second driver, dead or not."""

    async def take(self, run: RunId, driver: Driver) -> Sequence[Row]:
        if run in self.journal.leases:
            raise RunOwnedError(run, f"process {driver.pid} on host {driver.host!r}")
        return await super().take(run, driver)


class ReadsThenWrites(MemoryStore):
    """Looks at a lease, and writes it a moment later."""

    async def take(self, run: RunId, driver: Driver) -> Sequence[Row]:
        free = run not in self.journal.leases
        await asyncio.sleep(0)
        if free and run in self.journal.leases:
            self.journal.leases.pop(run).held.pop(run)
        return await super().take(run, driver)


class NoFence(MemoryStore):
    """Lets an owner that was robbed go on writing."""

    def commit(self, batch: Sequence[Row], /) -> None:
        for row in batch:
            self.journal.facts.setdefault(row.run, []).append(row)


class LosesCompany(MemoryStore):
    """Throws the whole batch away when one of its runs was lost."""

    def commit(self, batch: Sequence[Row], /) -> None:
        lost = {row.run for row in batch} & self._lost.keys()
        if lost:
            raise RunOwnedError(min(lost), self._lost[min(lost)], runs=lost)
        super().commit(batch)


class NamesOneOfTwo(MemoryStore):
    """Names one lost run where there are two."""

    def commit(self, batch: Sequence[Row], /) -> None:
        try:
            super().commit(batch)
        except RunOwnedError as error:
            raise RunOwnedError(min(error.runs), error.owner) from error


class KeepsLeases(MemoryStore):
    """Does not leave its runs when it is closed."""

    async def close(self) -> None:
        leases = dict(self.journal.leases)
        await super().close()
        self.journal.leases.update(leases)


class WorksClosed(MemoryStore):
    """Does not care whether it is open."""

    async def open(self) -> None:
        self._open = False
        await super().open()

    def _must_be_open(self) -> None:
        pass


class NamesNobody(MemoryStore):
    """Refuses without a name."""

    async def take(self, run: RunId, driver: Driver) -> Sequence[Row]:
        try:
            return await super().take(run, driver)
        except RunOwnedError as error:
            raise RunOwnedError(run, "somebody") from error


@pytest.mark.parametrize(
    ("broken", "objection"),
    [
        (Drops, "a_batch_of_any_size_is_kept"),
        (KeepsLate, "a_batch_of_any_size_is_kept"),
        (KeepsHalf, "sequence_numbers_have_no_gaps_and_never_repeat"),
        (Forgets, "facts_outlive_the_store_and_its_event_loop"),
        (Rounds, "every_kind_of_fact_comes_back_as_it_was"),
        (Falsifies, "every_kind_of_fact_comes_back_as_it_was"),
        (Renumbers, "sequence_numbers_have_no_gaps_and_never_repeat"),
        (ListsTheFirstFirst, "runs_are_listed_the_last_opened_first"),
        (MixesRuns, "a_batch_may_mix_runs"),
        (TakesEverything, "a_living_driver_keeps_its_run"),
        (TakesNothing, "a_dead_driver_loses_its_run_at_once"),
        (ReadsThenWrites, "of_many_who_take_a_run_at_once_one_gets_it"),
        (NoFence, "a_run_that_was_lost_takes_nothing_more"),
        (LosesCompany, "a_run_that_was_lost_takes_nothing_more"),
        (NamesOneOfTwo, "a_run_that_was_lost_takes_nothing_more"),
        (KeepsLeases, "closing_leaves_the_runs"),
        (WorksClosed, "a_store_that_is_not_open_says_so"),
        (NamesNobody, "a_living_driver_keeps_its_run"),
    ],
)
def test_the_contract_catches_a_store_that_breaks_it(
    broken: type[MemoryStore], objection: str
) -> None:
    class Broken(TestMemoryStore):
        def make_store(self) -> MemoryStore:
            return broken()

        def beside(self, store: JournalStore) -> MemoryStore:
            assert isinstance(store, MemoryStore)
            return broken(store.journal)

    objections = dict(_objections(Broken()))

    assert f"test_{objection}" in objections, f"{broken.__doc__} The contract says: {objections}"


def _objections(suite: JournalStoreContract) -> Iterator[tuple[str, str]]:
    for name, test in inspect.getmembers(suite, inspect.ismethod):
        if name.startswith("test_"):
            try:
                test()
            except (AssertionError, JournalError) as objection:
                yield name, str(objection)


def test_a_suite_without_a_store_says_so() -> None:
    with pytest.raises(NotImplementedError):
        JournalStoreContract().test_an_unknown_run_reads_as_empty()


def test_memory_refuses_numbers_out_of_order_by_name() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await store.open()
        await store.take(RUN, this_driver())
        with pytest.raises(JournalError, match="run 'fix-42': fact 2 cannot follow fact 0"):
            store.commit(notes(RUN, 1, after=1))

    asyncio.run(scenario())


# The codec.


@pytest.mark.parametrize("row", numbered(RUN, every_kind_of_fact()), ids=lambda row: row.seq)
def test_a_fact_becomes_json_with_its_kind_and_back(row: Row) -> None:
    body = encode(row)

    assert json.loads(body)["fact"] == type(row.fact).__struct_config__.tag
    assert decode(RUN, row.seq, body) == row.fact


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(_JSON)
def test_any_json_value_comes_back_equal(value: object) -> None:
    fact = CallEnded(call=CALL, state=State.SUCCEEDED, outcome=Success(value=value))

    found = decode(RUN, 1, encode(Row(RUN, 1, 0.0, 0.0, fact)))

    assert found == fact
    assert repr(found) == repr(fact)  # 1 and 1.0 and True are equal, and not the same


_SELF: list[object] = []
_SELF.append(_SELF)


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (math.nan, "not finite"),
        (math.inf, "not finite"),
        ({"a": [None, {"b": (1, -math.inf)}]}, "not finite"),
        ({1.5, math.nan}, "not finite"),
        (OrderedDict(a=1.5, b=math.inf), "not finite"),
        ("half \ud83d a pair", "surrogates not allowed"),
        ({"\udc00": 1}, "surrogates not allowed"),
        (object(), "type object is unsupported"),
        (_SELF, "recursion"),
    ],
)
def test_what_json_would_falsify_is_refused_by_name(value: object, fault: str) -> None:
    row = Row(RUN, 7, 0.0, 0.0, MessageSaid(message=value))

    with pytest.raises(JournalError) as refused:
        encode(row)

    assert str(refused.value).startswith("run 'fix-42', fact 7 (MessageSaid): it cannot be kept")
    assert fault in str(refused.value)
    assert str(refused.value).endswith("nothing was written")


def test_null_is_no_fault_in_itself() -> None:
    value = {
        "a": None,
        "null": "null",
        "b": [1.5, None, b"", datetime(2026, 1, 1, tzinfo=UTC), {2.5}],
    }

    assert b"null" in encode(Row(RUN, 1, 0.0, 0.0, MessageSaid(message=value)))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not JSON",
        b"null",
        b"{}",
        b'{"fact":"no_such_fact"}',
        b'{"fact":"turn_closed"}',
        b'{"fact":"turn_closed","turn":"one"}',
        b'{"fact":"turn_closed","turn":1',
        b'{"fact":"message_said","message":"\xff"}',
        b'{"fact":"message_said","message":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        None,
    ],
)
def test_a_body_that_is_no_fact_is_damage_and_named(body: bytes) -> None:
    with pytest.raises(DamagedJournalError) as damage:
        decode(RUN, 12, body)

    assert damage.value.seq == 12
    assert str(damage.value).startswith("run 'fix-42', fact 12: it cannot be read (")


def test_unknown_fields_of_a_fact_are_no_damage() -> None:
    fact = decode(RUN, 1, b'{"fact":"turn_closed","turn":1,"added_later":true}')

    assert fact == TurnClosed(turn=1)


@pytest.mark.parametrize(("lost", "missing"), [(1, 1), (3, 3)])
def test_a_gap_is_damage_and_named(lost: int, missing: int) -> None:
    kept = [one for one in _as_kept(notes(RUN, 5)) if one[0] != lost]

    with pytest.raises(DamagedJournalError) as damage:
        asyncio.run(decode_rows(RUN, kept, NO_VALUES))

    assert damage.value.seq == missing
    assert f"it is missing (the next is {missing + 1})" in str(damage.value)


def test_a_long_run_is_decoded_while_the_event_loop_goes_on() -> None:
    rows = notes(RUN, 3 * DECODED_AT_ONCE)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def scenario() -> list[Row]:
        busy = asyncio.create_task(others())
        found = await decode_rows(RUN, _as_kept(rows), NO_VALUES)
        busy.cancel()
        return found

    assert asyncio.run(scenario()) == rows
    assert turns >= 2


NO_VALUES = Path("there-is-no-such-folder")


def _as_kept(rows: Iterable[Row], *, bodies: Mapping[int, bytes] | None = None) -> list[Kept]:
    kept: list[Kept] = []
    link = first_link(RUN)
    for row in rows:
        body = (bodies or {}).get(row.seq) or encode(row)
        link = next_link(link, row.seq, row.wall, row.mono, body)
        kept.append((row.seq, row.wall, row.mono, link, body))
    return kept


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"fact":"message_sung"}', "message_sung"),
        (b"garbage", "it cannot be read"),
        (b"\x00\xff", "it cannot be read"),
        (b'{"fact":"spilled","was":"x","bytes":1}', "sha256"),
    ],
)
def test_a_fact_that_nobody_can_read_is_damage_and_what_is_before_it_is_given(
    body: bytes, says: str
) -> None:
    rows = notes(RUN, 5)

    with pytest.raises(DamagedJournalError) as damage:
        asyncio.run(decode_rows(RUN, _as_kept(rows, bodies={4: body}), NO_VALUES))

    assert says in str(damage.value)
    assert damage.value.seq == 4
    assert list(damage.value.whole) == rows[:3]


@pytest.mark.parametrize("field", range(1, 5))
def test_whatever_is_changed_in_a_row_its_hash_tells(field: int) -> None:
    kept = _as_kept(notes(RUN, 5))
    changed = [list(one) for one in kept]
    changed[2][field] = {1: 1.5, 2: 1.5, 3: b"x" * 16, 4: kept[3][4]}[field]

    with pytest.raises(DamagedJournalError, match="its hash does not fit") as damage:
        asyncio.run(decode_rows(RUN, [tuple(one) for one in changed], NO_VALUES))  # type: ignore[misc]

    assert damage.value.seq == 3


def test_the_rows_of_one_run_are_no_rows_of_another() -> None:
    with pytest.raises(DamagedJournalError, match="fact 1: its hash does not fit"):
        asyncio.run(decode_rows(RunId("other"), _as_kept(notes(RUN, 2)), NO_VALUES))
