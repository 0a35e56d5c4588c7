"""The yardsticks with durability: two rows per call, each on disk before what it announces.

`floor_d` is the least that a durable scheduler has to do; `raw_d` writes the same rows in the
same commits with no scheduler at all. Both pay a real fsync per commit (SQLite, WAL,
synchronous=FULL) and use the fastest way found to put rows into it: multi-row INSERT statements.
"""

import asyncio
import queue
import sqlite3
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from itertools import chain
from pathlib import Path

from laneway.benchmarks.checks import INTENT, RESULT, entry_faults, row_faults
from laneway.benchmarks.contenders import Repeat, Sample, timed
from laneway.benchmarks.workloads import Workload, call_name, position_of

StoredRow = tuple[str, str, str, str]
"""Run, call, INTENT or RESULT, and the arguments or the value as JSON text."""

Body = Callable[[int], Awaitable[int]]

_ROWS_PER_STATEMENT = 200
_FULL = 2


@asynccontextmanager
async def floor_d(workload: Workload, directory: Path) -> AsyncGenerator[Repeat, None]:
    """In-degree counters, a task per call, a group-commit thread, two rows per call: no more."""
    file = RowFile(directory / f"floor-{workload.name}-{workload.n}.db")
    entered: list[int] = []

    async def step(position: int) -> int:
        entered.append(position)
        return position

    floor = DurableFloor(workload, file, step)

    async def repeat() -> Sample:
        entered.clear()
        mark = file.last()
        seconds = await timed(floor.run)
        faults = entry_faults(workload, entered) + row_faults(workload, file.since(mark))
        return Sample(seconds=seconds, faults=tuple(faults))

    try:
        yield repeat
    finally:
        floor.close()
        file.close()


@asynccontextmanager
async def raw_d(workload: Workload, directory: Path) -> AsyncGenerator[Repeat, None]:
    """The rows of `floor_d`, made beforehand, one bare commit per level of dependency.

    A level's results go down with the intents of the next, as in `floor_d`.
    """
    file = RowFile(directory / f"raw-{workload.name}-{workload.n}.db")
    batches = level_batches(workload)

    async def repeat() -> Sample:
        mark = file.last()

        async def work() -> None:
            for batch in batches:
                file.commit(batch)

        seconds = await timed(work)
        return Sample(seconds=seconds, faults=tuple(row_faults(workload, file.since(mark))))

    try:
        yield repeat
    finally:
        file.close()


class DurableFloor:
    """A scheduler that keeps the order of a workload and the promise of its rows, and that is all.

    A result and the intents of the calls it frees are one commit. While a commit is under way
    the next batch gathers; nobody waits to make a batch bigger.
    """

    def __init__(self, workload: Workload, file: "RowFile", body: Body) -> None:
        """Start the group-commit thread; `close` ends it."""
        self._workload = workload
        self._children = workload.children()
        self._in_degrees = [len(parents) for parents in workload.parents]
        self._roots = [p for p, degree in enumerate(self._in_degrees) if not degree]
        self._body = body
        self._loop = asyncio.get_running_loop()
        self._file = file
        self._batches: queue.SimpleQueue[tuple[list[StoredRow], list[int]] | None]
        self._batches = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="group-commit")
        self._thread.start()

    async def run(self) -> None:
        """Run all the turns once.

        Raises:
            sqlite3.Error: a commit failed.
        """
        for turn in range(self._workload.turns):
            await self._turn(turn * self._workload.n)

    def close(self) -> None:
        """End the thread."""
        self._batches.put(None)
        self._thread.join()

    async def _turn(self, first: int) -> None:
        self._first = first
        self._waiting = self._in_degrees.copy()
        self._left = self._workload.n
        self._tasks: list[asyncio.Task[None]] = []
        self._rows = [intent(first + position) for position in self._roots]
        self._freed = self._roots
        self._committing = False
        self._flush_is_due = False
        self._done = self._loop.create_future()
        self._flush()
        await self._done

    async def _call(self, position: int) -> None:
        value = await self._body(self._first + position)
        self._rows.append(result(self._first + position, value))
        self._left -= 1
        for child in self._children[position]:
            self._waiting[child] -= 1
            if not self._waiting[child]:
                self._rows.append(intent(self._first + child))
                self._freed.append(child)
        if not self._flush_is_due:
            # After all that the loop has ready by now: whatever ends at once shares a commit.
            self._flush_is_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_is_due = False
        if self._rows and not self._committing:
            self._committing = True
            self._batches.put((self._rows, self._freed))
            self._rows, self._freed = [], []

    def _acknowledge(self, freed: Sequence[int]) -> None:
        self._committing = False
        self._tasks += [self._loop.create_task(self._call(position)) for position in freed]
        if self._rows:
            self._flush()
        elif not self._left and not self._done.done():
            self._done.set_result(None)

    def _refuse(self, error: sqlite3.Error) -> None:
        self._done.set_exception(error)

    def _write(self) -> None:
        while (batch := self._batches.get()) is not None:
            rows, freed = batch
            try:
                self._file.commit(rows)
            except sqlite3.Error as error:
                self._loop.call_soon_threadsafe(self._refuse, error)
            else:
                self._loop.call_soon_threadsafe(self._acknowledge, freed)


class RowFile:
    """An SQLite file that keeps rows; a commit is on disk when it returns."""

    def __init__(self, path: Path) -> None:
        """Create the file, in WAL mode, synchronous=FULL."""
        self._connection = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        (mode,) = self._connection.execute("PRAGMA journal_mode=WAL").fetchone()
        self._connection.execute("PRAGMA synchronous=FULL")
        (level,) = self._connection.execute("PRAGMA synchronous").fetchone()
        if (mode, level) != ("wal", _FULL):
            self._connection.close()
            raise RuntimeError(f"{path} is not durable: journal_mode={mode}, synchronous={level}")
        self._connection.execute(
            "CREATE TABLE rows (id INTEGER PRIMARY KEY, run TEXT NOT NULL, call TEXT NOT NULL,"
            " kind TEXT NOT NULL, body TEXT NOT NULL)"
        )

    def commit(self, rows: Sequence[StoredRow]) -> None:
        """Write rows in one transaction: one statement is one by itself."""
        execute = self._connection.execute
        count = len(rows)
        if count <= _ROWS_PER_STATEMENT:
            execute(_insert(count), tuple(chain.from_iterable(rows)))
            return
        execute("BEGIN")
        for start in range(0, count, _ROWS_PER_STATEMENT):
            part = rows[start : start + _ROWS_PER_STATEMENT]
            execute(_insert(len(part)), tuple(chain.from_iterable(part)))
        execute("COMMIT")

    def last(self) -> int:
        """Return the id of the last row, 0 if there is none."""
        (last,) = self._connection.execute("SELECT coalesce(max(id), 0) FROM rows").fetchone()
        return int(last)

    def since(self, mark: int) -> list[tuple[int, str]]:
        """Read `(position, kind)` of the rows after the id `mark`."""
        found = self._connection.execute(
            "SELECT call, kind FROM rows WHERE id > ? ORDER BY id", (mark,)
        )
        return [(position_of(call), kind) for call, kind in found]

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def level_batches(workload: Workload) -> list[list[StoredRow]]:
    """Group the rows of a workload into the fewest commits that keep the promise."""
    batches: list[list[StoredRow]] = []
    for turn in range(workload.turns):
        first = turn * workload.n
        ended: list[StoredRow] = []
        for level in workload.levels():
            batches.append(ended + [intent(first + position) for position in level])
            ended = [result(first + position, first + position) for position in level]
        batches.append(ended)
    return batches


def intent(position: int) -> StoredRow:
    """Say that a call is about to run."""
    return ("run-1", call_name(position), INTENT, f'{{"position":{position}}}')


def result(position: int, value: int) -> StoredRow:
    """Say what a call came to."""
    return ("run-1", call_name(position), RESULT, str(value))


@cache
def _insert(count: int) -> str:
    values = ",".join(["(?,?,?,?)"] * count)
    return f"INSERT INTO rows (run, call, kind, body) VALUES {values}"  # noqa: S608 - only marks
