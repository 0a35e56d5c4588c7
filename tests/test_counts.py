"""What a turn costs in commits, tasks and timers, counted on virtual time."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import aiosqlite
import pytest

from laneway import UNLIMITED, Budgets, Effect, Engine, Limits, State, Tool
from laneway.benchmarks.workloads import Workload, chain, independent, layers, payload, turn_of_one
from laneway.facts import CallEnded, CallStarted, Row
from laneway.testing.clock import VirtualClock, VirtualLoop, run_virtual
from laneway.testing.watched import WatchedStore

TICK_SECONDS = 0.0001
"""How long a commit takes, in virtual time."""
NO_LIMITS = Limits(call_seconds=inf, turn_seconds=inf)


async def tick(_number: int, _rows: Sequence[Row]) -> None:
    await asyncio.sleep(TICK_SECONDS)


@dataclass(slots=True)
class Counts:
    """What was needed once the run was open."""

    commits: int = 0
    tasks: list[str] = field(default_factory=list)
    timers: int = 0
    """Handles of call_later and call_at that somebody else than the store's tick asked for."""
    seconds: float = 0.0


class CountingLoop(VirtualLoop):
    """A loop that counts timer handles, and the tasks that it has run a step of."""

    def __init__(self) -> None:
        super().__init__()
        self.timers = 0
        self.stepped: set[asyncio.Task[Any]] = set()

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        task = getattr(callback, "__self__", None)
        if isinstance(task, asyncio.Task):
            self.stepped.add(task)
        return super().call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        self.timers += 1
        return super().call_at(when, callback, *args, context=context)


def counted(main: Coroutine[Any, Any, Counts]) -> Counts:
    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        return runner.run(main)


def step_tool(effect: Effect = Effect.PURE, **declared: Any) -> Tool[..., Any]:
    async def step(position: int) -> int:
        return position

    return Tool.of(step, effect=effect, **declared)


async def play(
    replies: Sequence[Mapping[str, Any]],
    tools: Sequence[Tool[..., Any]],
    *,
    limits: Limits = NO_LIMITS,
    store: WatchedStore | None = None,
) -> Counts:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, CountingLoop)
    store = store or WatchedStore(before=tick)
    counts = Counts()

    budgets = None if limits is not NO_LIMITS else Budgets(seconds=UNLIMITED)
    engine = Engine(tools, journal=store, limits=limits, budgets=budgets, clock=VirtualClock)
    async with engine, engine.run("r") as run:
        before = len(store.batches)
        loop.timers = 0
        loop.stepped.clear()
        began = loop.time()
        for reply in replies:
            turn = await run.submit(reply)
            assert {call.state for call in turn.calls} == {State.SUCCEEDED}
        counts.seconds = loop.time() - began
        mine = asyncio.current_task()
        counts.tasks = [name_of(task) for task in loop.stepped if task is not mine]
        counts.commits = len(store.batches) - before
        counts.timers = loop.timers - counts.commits
    return counts


def name_of(task: "asyncio.Task[Any]") -> str:
    return str(getattr(task.get_coro(), "__qualname__", ""))


def replies_of(workload: Workload) -> list[Mapping[str, Any]]:
    return [payload(workload, turn) for turn in range(workload.turns)]


def count(workload: Workload, **options: Any) -> Counts:
    return counted(play(replies_of(workload), [step_tool()], **options))


def test_a_turn_of_one_call_takes_two_commits() -> None:
    counts = count(turn_of_one(turns=1))

    assert counts.commits <= 2


@pytest.mark.parametrize("n", [1, 499, 500, 501, 1000, 2500, 10_000])
def test_independent_calls_share_their_commits(n: int) -> None:
    counts = count(independent(n))

    assert counts.commits <= 2 + 2 * n / 500


@pytest.mark.parametrize("n", [2, 100, 500])
def test_a_chain_takes_one_commit_a_link_and_one_to_begin(n: int) -> None:
    counts = count(chain(n))

    assert counts.commits <= n + 1


def test_layers_take_one_commit_each_and_one_to_begin() -> None:
    counts = count(layers(depth=20, width=50))

    assert counts.commits <= 21


def test_serial_lanes_of_equal_calls_move_on_together() -> None:
    n, lanes = 1000, 50

    async def nap(position: int) -> int:
        await asyncio.sleep(0.001)
        return position

    tool = Tool.of(
        nap,
        effect=Effect.WRITE,
        claims=lambda arguments: [f"lane:l{arguments['position'] % lanes}"],
    )
    reply = {
        "calls": [{"id": f"c{n}", "tool": "nap", "arguments": {"position": n}} for n in range(n)]
    }

    counts = counted(play([reply], [tool]))

    assert counts.commits <= 2 * n / lanes + 2
    ideal = n / lanes * (0.001 + TICK_SECONDS)
    assert counts.seconds <= ideal + 3 * TICK_SECONDS


@pytest.mark.parametrize(
    "workload", [independent(300), chain(100), layers(depth=5, width=20)], ids=lambda w: w.name
)
def test_a_call_costs_one_task(workload: Workload) -> None:
    counts = count(workload)

    bodies = [name for name in counts.tasks if name == "Bodies._live"]
    others = [name for name in counts.tasks if name != "Bodies._live"]
    assert len(bodies) == workload.total
    assert len(others) <= 2, others


def test_a_call_without_a_limit_costs_no_timer() -> None:
    counts = count(independent(300))

    assert counts.timers == 0


def test_a_thousand_calls_with_a_limit_share_one_timer() -> None:
    counts = count(independent(1000), limits=Limits())

    assert counts.timers <= 3


def test_a_timer_never_wakes_the_engine_while_work_is_runnable() -> None:
    """The whole of a turn without waiting takes no time beside its commits."""
    counts = count(layers(depth=5, width=20), limits=Limits())

    assert counts.seconds == pytest.approx(counts.commits * TICK_SECONDS)


def test_the_end_of_a_parent_and_the_start_of_its_children_are_one_commit() -> None:
    store = WatchedStore(before=tick)

    counted(play(replies_of(chain(10)), [step_tool()], store=store))

    for batch in store.batches:
        ended = [row.fact.call for row in batch if isinstance(row.fact, CallEnded)]
        started = [row.fact.call for row in batch if isinstance(row.fact, CallStarted)]
        if ended and ended != ["t1.10"]:
            assert len(started) == 1


def test_the_journal_counts_the_commits_that_held_facts() -> None:
    async def main() -> tuple[int, int]:
        store = WatchedStore(before=tick)
        engine = Engine([step_tool()], journal=store, clock=VirtualClock)
        async with engine, engine.run("r") as run:
            for reply in replies_of(turn_of_one(turns=3)):
                await run.submit(reply)
            return engine.services.journal.commits, len(store.batches)

    counted_by_journal, counted_by_store = run_virtual(main)

    assert counted_by_journal == counted_by_store


def test_a_commit_to_a_file_is_one_way_to_its_thread_and_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An await into aiosqlite costs more than most of what it does there."""
    hops = 0
    execute: Any = aiosqlite.Connection._execute

    async def counting(connection: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal hops
        hops += 1
        return await execute(connection, *args, **kwargs)

    async def main() -> tuple[int, int]:
        engine = Engine([step_tool()], journal=tmp_path / "runs.db", clock=VirtualClock)
        async with engine, engine.run("r") as run:
            before = engine.services.journal.commits
            monkeypatch.setattr(aiosqlite.Connection, "_execute", counting)
            for reply in replies_of(chain(20)) + replies_of(independent(50)):
                await run.submit(reply)
            monkeypatch.undo()
            return hops, engine.services.journal.commits - before

    awaits, commits = run_virtual(main)

    assert 0 < awaits <= commits
