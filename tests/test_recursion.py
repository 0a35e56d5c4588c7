"""Runs below the calls of others: how deep, how many, and from whose record that is known."""

import asyncio
import itertools
import threading
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from laneway import (
    Code,
    Effect,
    Engine,
    Failure,
    Limits,
    Recursion,
    State,
    ToolContext,
    Turn,
    tool,
)
from laneway.engine.descent import entered_as
from laneway.engine.reexecution import reexecute
from laneway.errors import DamagedJournalError, UsageError
from laneway.facts import LevelEntered, RunOpened
from laneway.ids import RunId
from laneway.journal.fold import fold
from laneway.journal.fork import fork
from laneway.journal.memory import MemoryJournal, MemoryStore
from laneway.journal.sqlite import SqliteStore
from laneway.policies.recursion import Descent, refusal
from laneway.testing import Stage
from laneway.testing.clock import VirtualClock, run_virtual
from laneway.testing.theatre import codes, failure, plan, states

AGENT = plan({"id": "a", "tool": "agent"})
HOUR = Limits(call_seconds=3600)


class Agents:
    """A tool that begins runs of itself below it, and a log of how deep it was entered."""

    def __init__(self, *, each: int = 1, wait: float = 0.0, **options: Any) -> None:
        self.each = each
        self.wait = wait
        self.options = options
        self.journal = MemoryJournal()
        self.log: list[int] = []
        self.told: list[Failure | None] = []
        self.engine: Engine
        self.depth: ContextVar[int] = ContextVar("depth", default=1)
        self.names = itertools.count()
        self.enter: Callable[[Engine, str], Awaitable[Turn]] = submit

    def tool(self) -> Any:
        @tool(effect=Effect.EXTERNAL, claims=[])
        async def agent() -> str:
            depth = self.depth.get()
            self.log.append(depth)
            self.depth.set(depth + 1)
            if self.wait:
                await asyncio.sleep(self.wait)
            names = [f"below {next(self.names)}" for _ in range(self.each)]
            turns = await asyncio.gather(*(self.enter(self.engine, name) for name in names))
            for turn in turns:
                outcome = turn.calls[0].outcome
                self.told.append(outcome if isinstance(outcome, Failure) else None)
            return "done"

        return agent

    def play(self, reply: Any = AGENT, **options: Any) -> Turn:
        async def main() -> Turn:
            store = MemoryStore(self.journal)
            given: dict[str, Any] = {"limits": HOUR, **self.options, **options}
            self.engine = Engine([self.tool()], journal=store, clock=VirtualClock, **given)
            async with self.engine, self.engine.run("top") as run:
                return await run.submit(reply)

        return run_virtual(main)

    @property
    def refused(self) -> set[Code]:
        return {one.code for one in self.told if one is not None}


async def submit(engine: Engine, name: str) -> Turn:
    async with engine.run(name) as run:
        return await run.submit(AGENT)


# Handed cases


def test_h_bud_3_agents_that_start_agents_end_at_a_depth_and_a_number() -> None:
    agents = Agents(each=5, recursion=Recursion(depth=3, runs=12))

    turn = agents.play()

    assert states(turn) == {"a": State.SUCCEEDED}
    assert max(agents.log) <= 3
    assert len(agents.log) == 12
    assert agents.refused == {Code.DEPTH_EXCEEDED, Code.BUDGET_EXCEEDED}
    assert len(agents.told) == 5 * len(agents.log), "each caller has been told, and went on"


def test_h_bud_3_another_engine_on_the_same_journal_counts_on(tmp_path: Path) -> None:
    log: list[int] = []
    told: list[str] = []
    names = itertools.count()

    def make() -> Engine:
        return Engine([agent], journal=tmp_path / "runs.db", recursion=Recursion(depth=3, runs=12))

    async def begin(depth: int) -> None:
        async with make() as engine, engine.run(f"below {next(names)}") as run:
            turn = await run.submit(
                plan({"id": "a", "tool": "agent", "arguments": {"depth": depth}})
            )
            told.extend(str(code) for code in codes(turn).values())

    def in_a_loop_of_its_own(depth: int) -> None:
        asyncio.run(begin(depth))

    @tool(effect=Effect.EXTERNAL, claims=[], timeout=60)
    async def agent(depth: int = 1) -> str:
        log.append(depth)
        await begin(depth + 1)
        await asyncio.to_thread(in_a_loop_of_its_own, depth + 1)
        return "done"

    async def main() -> Turn:
        async with make() as engine, engine.run("top") as run:
            return await run.submit(AGENT)

    turn = asyncio.run(main())

    assert states(turn) == {"a": State.SUCCEEDED}
    assert sorted(log) == [1, 2, 2, 3, 3, 3, 3]
    assert told == ["DEPTH_EXCEEDED"] * 8
    rows = asyncio.run(read(tmp_path, "top"))
    assert len(fold(RunId("top"), rows).levels) == 6


async def read(folder: Path, run: str) -> Any:
    store = SqliteStore(folder / "runs.db")
    await store.open()
    try:
        return await store.read(RunId(run))
    finally:
        await store.close()


def test_h_bud_3_a_synchronous_tool_that_starts_a_loop_in_its_thread_counts_on(
    tmp_path: Path,
) -> None:
    log: list[int] = []
    told: list[str] = []

    def make() -> Engine:
        return Engine([agent], journal=tmp_path / "runs.db")

    async def begin(depth: int) -> None:
        async with make() as engine, engine.run(f"level {depth}") as run:
            turn = await run.submit(
                plan({"id": "a", "tool": "agent", "arguments": {"depth": depth}})
            )
            told.extend(str(code) for code in codes(turn).values())

    @tool(effect=Effect.EXTERNAL, claims=[], timeout=60)
    def agent(depth: int = 1) -> str:
        assert threading.current_thread() is not threading.main_thread()
        log.append(depth)
        asyncio.run(begin(depth + 1))
        return "done"

    async def main() -> None:
        async with make() as engine, engine.run("top") as run:
            await run.submit(AGENT)

    asyncio.run(main())

    assert log == [1, 2, 3]
    assert told == ["DEPTH_EXCEEDED"]


# Depth


def test_a_chain_ends_at_the_third_level_and_names_itself() -> None:
    agents = Agents()

    agents.play()

    assert agents.log == [1, 2, 3]
    (refused,) = [one for one in agents.told if one is not None]
    assert refused.code is Code.DEPTH_EXCEEDED
    assert refused.message == "It would be level 4 of 3: top > below 0 > below 1 > below 2."
    assert "Do this part here" in refused.hint


@pytest.mark.parametrize("lifted", [None, Recursion.OFF])
def test_it_is_lifted_by_name(lifted: Recursion | None) -> None:
    agents = Agents()

    async def until_thirty(engine: Engine, name: str) -> Turn:
        if len(agents.log) < 30:
            return await submit(engine, name)
        async with engine.run(name) as run:
            return await run.submit(plan({"id": "x", "tool": "nothing"}))

    agents.enter = until_thirty
    agents.play(recursion=lifted)

    assert agents.log == list(range(1, 31))
    assert agents.refused == {Code.UNKNOWN_TOOL}


def test_every_call_of_a_refused_run_is_told_and_nothing_is_raised() -> None:
    agents = Agents(recursion=Recursion(depth=1))
    turns: list[Turn] = []

    async def two_turns(engine: Engine, name: str) -> Turn:
        first = {"id": "a", "tool": "agent"}
        behind = {"id": "b", "tool": "agent", "needs": ["a"]}
        async with engine.run(name) as run:
            turns.append(await run.submit(plan(first, behind), strict=True))
            turns.append(await run.submit(AGENT))
            return turns[0]

    agents.enter = two_turns

    turn = agents.play()

    assert states(turn) == {"a": State.SUCCEEDED}
    assert states(turns[0]) == {"a": State.DENIED, "b": State.DENIED}
    assert states(turns[1]) == {"a": State.DENIED}
    assert {call.rule for call in turns[0].calls} == {"recursion"}
    assert failure(turns[0], "b").code is Code.DEPTH_EXCEEDED
    assert "Error" not in str(turns[0].messages[0])


def test_what_a_body_calls_by_invoke_is_no_level_and_no_run_of_the_tree() -> None:
    deep: list[int] = []

    @tool(effect=Effect.EXTERNAL, claims=[])
    async def outer(context: ToolContext, n: int = 0) -> int:
        deep.append(n)
        if n < 20:
            await context.invoke("outer", n=n + 1)
        return n

    async def main() -> Turn:
        async with Engine([outer], clock=VirtualClock) as engine, engine.run("top") as run:
            turn = await run.submit(plan({"id": "o", "tool": "outer"}))
            assert run.view.levels == {}
            return turn

    assert states(run_virtual(main)) == {"o": State.SUCCEEDED}
    assert deep == list(range(21))


def test_a_run_that_an_invoked_tool_enters_is_one_level_below_the_run_at_the_top() -> None:
    agents = Agents()

    @tool(effect=Effect.EXTERNAL, claims=[])
    async def outer(context: ToolContext) -> Any:
        return await context.invoke("agent")

    async def main() -> tuple[Turn, Any]:
        engine = agents.engine = Engine([agents.tool(), outer], clock=VirtualClock)
        async with engine, engine.run("top") as run:
            turn = await run.submit(plan({"id": "o", "tool": "outer"}))
            return turn, run.view.levels

    turn, levels = run_virtual(main)

    assert states(turn) == {"o": State.SUCCEEDED}
    assert levels == {"below 0": "", "below 1": ""}
    assert agents.log == [1, 2, 3]


# Number


def test_runs_that_were_refused_do_not_count_and_one_that_is_entered_again_counts_once() -> None:
    agents = Agents(each=4, recursion=Recursion(depth=2, runs=4))
    seen: list[Code | None] = []

    async def twice(engine: Engine, name: str) -> Turn:
        turn = await submit(engine, name)
        again = await submit(engine, name)
        outcome = again.calls[0].outcome
        seen.append(outcome.code if isinstance(outcome, Failure) else None)
        return turn

    agents.enter = twice

    agents.play()

    assert seen.count(None) == 3
    assert seen.count(Code.BUDGET_EXCEEDED) == 1
    assert agents.told.count(None) == 3


def test_the_number_is_of_the_tree_and_another_root_begins_its_own() -> None:
    agents = Agents(each=3, recursion=Recursion(depth=2, runs=3))

    async def main() -> None:
        agents.engine = Engine(
            [agents.tool()], clock=VirtualClock, recursion=agents.options["recursion"]
        )
        async with agents.engine:
            for name in ("one", "two"):
                await submit(agents.engine, name)

    run_virtual(main)

    assert agents.log.count(1) == 2
    assert agents.log.count(2) == 4
    assert [one.code for one in agents.told if one is not None].count(Code.BUDGET_EXCEEDED) == 2


# Time


def test_a_chain_that_has_gone_on_for_too_long_begins_nothing_more() -> None:
    agents = Agents(wait=40, recursion=Recursion(depth=9, seconds=100))

    agents.play()

    assert agents.log == [1, 2, 3]
    (refused,) = [one for one in agents.told if one is not None]
    assert refused.code is Code.TIMEOUT
    assert refused.message == (
        "The chain top > below 0 > below 1 > below 2 began 120 s ago; after 100 s nothing more "
        "begins in it."
    )


# Named agents


def test_a_named_agent_is_not_begun_below_itself_and_only_so_often_in_a_tree() -> None:
    agents = Agents(recursion=Recursion(depth=5, calls_per_agent=2))
    plans = iter(["writer", "critic", "writer"])

    async def named(engine: Engine, name: str) -> Turn:
        with entered_as(next(plans)):
            entering = engine.run(name)
            async with entering as run:
                return await run.submit(AGENT)

    agents.enter = named
    agents.play()

    assert agents.log == [1, 2, 3]
    (refused,) = [one for one in agents.told if one is not None]
    assert refused.code is Code.AGENT_CYCLE
    assert (
        refused.message == "writer is at work already further up: top > writer > critic > writer."
    )

    beside = Agents(each=4, recursion=Recursion(calls_per_agent=2))
    plans = iter(["writer"] * 99)
    beside.enter = named
    beside.play()

    assert beside.log.count(2) == 2
    assert Code.AGENT_LIMIT in beside.refused
    limit = next(one for one in beside.told if one and one.code is Code.AGENT_LIMIT)
    assert limit.message == (
        "writer was asked 2 times in this tree of runs, which is as often as it may be: "
        "top > writer."
    )
    levels = fold(RunId("top"), beside.journal.facts[RunId("top")]).levels
    assert list(levels.values()) == ["writer", "writer"]


# The record


def test_where_a_run_stands_is_in_its_first_fact_and_what_was_begun_in_the_root() -> None:
    agents = Agents()

    agents.play()

    opened = [
        row.fact
        for name in ("top", "below 0", "below 1", "below 2")
        for row in agents.journal.facts[RunId(name)]
        if isinstance(row.fact, RunOpened)
    ]
    assert [one.below and one.below.chain for one in opened] == [
        None,
        ("top",),
        ("top", "below 0"),
        ("top", "below 0", "below 1"),
    ]
    levels = [
        row.fact for row in agents.journal.facts[RunId("top")] if isinstance(row.fact, LevelEntered)
    ]
    assert levels == [LevelEntered(run=RunId("below 0")), LevelEntered(run=RunId("below 1"))]


def test_the_count_of_a_tree_survives_the_death_of_the_process() -> None:
    agents = Agents(each=3, recursion=Recursion(depth=2, runs=3))
    agents.play()
    assert len(agents.log) == 3

    turn = agents.play(plan({"id": "b", "tool": "agent"}))

    assert states(turn) == {"b": State.SUCCEEDED}
    assert len(agents.log) == 4, "nothing more begins in this tree"


def test_a_run_that_is_taken_up_by_itself_stays_as_deep_as_it_was_begun() -> None:
    agents = Agents()
    agents.play()
    assert agents.log == [1, 2, 3]

    async def alone(name: str) -> Turn:
        store = MemoryStore(agents.journal)
        agents.engine = Engine([agents.tool()], journal=store, clock=VirtualClock)
        async with agents.engine, agents.engine.run(name) as run:
            return await run.submit(plan({"id": "again", "tool": "agent"}))

    async def main() -> list[dict[str, State]]:
        return [states(await alone(name)) for name in ("below 1", "below 2", "top")]

    agents.log.clear()
    found = run_virtual(main)

    assert found == [
        {"again": State.SUCCEEDED},
        {"again": State.DENIED},
        {"again": State.SUCCEEDED},
    ]
    assert agents.log == [1, 1, 2, 3]


def test_a_run_is_as_deep_as_it_was_begun_in_a_body_further_up_too() -> None:
    agents = Agents()
    agents.play()
    agents.log.clear()
    agents.told.clear()

    async def of_another_tree(engine: Engine, name: str) -> Turn:
        async with engine.run("below 1" if len(agents.log) == 1 else name) as run:
            return await run.submit(plan({"id": name, "tool": "agent"}))

    async def main() -> None:
        store = MemoryStore(agents.journal)
        agents.engine = Engine([agents.tool()], journal=store, clock=VirtualClock)
        async with agents.engine:
            await submit(agents.engine, "another top")

    agents.enter = of_another_tree
    run_virtual(main)

    assert agents.log == [1, 2], "below 1 is of the third level"
    (refused,) = [one for one in agents.told if one is not None]
    assert refused.message.startswith("It would be level 4 of 3: top > below 0 > below 1 > below")


def test_a_root_that_cannot_be_read_does_not_keep_a_run_below_from_going_on() -> None:
    agents = Agents()
    agents.play()

    class Damaged(MemoryStore):
        async def read(self, run: RunId) -> Any:
            if run == "top":
                raise DamagedJournalError(run, 2, "it is gone")
            return await super().read(run)

    async def main() -> Turn:
        store = Damaged(agents.journal)
        agents.engine = Engine([agents.tool()], journal=store, clock=VirtualClock)
        return await alone(agents.engine)

    async def alone(engine: Engine) -> Turn:
        async with engine, engine.run("below 1") as run:
            return await run.submit(plan({"id": "again", "tool": "agent"}))

    assert states(run_virtual(main)) == {"again": State.SUCCEEDED}


def test_a_run_of_the_host_is_no_deeper_for_being_entered_in_a_body_and_no_higher() -> None:
    agents = Agents(recursion=Recursion(depth=4))

    async def one_run(engine: Engine, name: str) -> Turn:
        async with engine.run("side") as run:
            return await run.submit(plan({"id": name, "tool": "nothing"}))

    async def main() -> tuple[str, ...]:
        store = MemoryStore(agents.journal)
        engine = agents.engine = Engine([agents.tool()], journal=store, clock=VirtualClock)
        async with engine:
            async with engine.run("side") as side:
                await side.say("It was there before.")
            await submit(engine, "top")
            async with engine.run("side") as side:
                return side._live.place.chain

    agents.enter = one_run

    assert run_virtual(main) == ("side",)


def test_a_fork_stands_in_the_tree_of_the_forked_root() -> None:
    agents = Agents()
    agents.play()

    async def main() -> RunOpened:
        store = MemoryStore(agents.journal)
        await store.open()
        await fork(store, RunId("below 0"), "other", at=None)
        await store.close()
        fact = agents.journal.facts[RunId("other")][0].fact
        assert isinstance(fact, RunOpened)
        return fact

    opened = run_virtual(main)

    assert opened.run == "other"
    assert opened.below is not None
    assert opened.below.root == "top"


def test_a_refused_run_is_executed_again_as_it_was() -> None:
    agents = Agents(recursion=Recursion(depth=1))
    agents.play()

    for name in ("top", "below 0"):
        result = asyncio.run(reexecute(agents.journal.facts[RunId(name)]))
        assert result.divergence is None, name


# The question and the answer


def descent(**said: Any) -> Descent:
    given: dict[str, Any] = {"chain": ("top", "x"), **said}
    return Descent(**given)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({}, None),
        ({"chain": ("a", "b", "c")}, None),
        ({"chain": ("a", "b", "c", "d")}, Code.DEPTH_EXCEEDED),
        ({"chain": ("a", "b", "c", "d"), "known": True}, Code.DEPTH_EXCEEDED),
        ({"agent": "w", "agents": ("v", "w")}, Code.AGENT_CYCLE),
        ({"agent": "w", "agents": ("w",), "chain": ("a", "b", "c", "d")}, Code.AGENT_CYCLE),
        ({"agent": "w", "agents": ("v",)}, None),
        ({"agent": "w", "calls": 2}, None),
        ({"agent": "w", "calls": 3}, Code.AGENT_LIMIT),
        ({"agent": "w", "calls": 3, "known": True}, None),
        ({"runs": 11}, None),
        ({"runs": 12}, Code.BUDGET_EXCEEDED),
        ({"runs": 12, "known": True}, None),
        ({"seconds": 3600.0}, None),
        ({"seconds": 3600.5}, Code.TIMEOUT),
    ],
)
def test_each_limit_has_its_code(said: dict[str, Any], code: Code | None) -> None:
    found = refusal(descent(**said), Recursion())

    assert (found and found.code) == code
    assert refusal(descent(**{**said, "agents": ()}), Recursion.OFF) is None
    if found is not None:
        assert " > ".join(descent(**said).chain) in found.message
        assert found.hint


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"depth": 0}, "Recursion.depth is 0; give a whole number of 1 or more, or None"),
        ({"runs": True}, "Recursion.runs is True; give a whole number of 1 or more, or None"),
        ({"calls_per_agent": 1.5}, "Recursion.calls_per_agent is 1.5; give a whole number"),
        ({"seconds": -1}, "Recursion.seconds is -1; give 0 or more, or None"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused_by_name(limits: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError) as refused:
        Recursion(**limits)

    assert str(refused.value).startswith(told)


def test_runs_that_a_host_enters_one_after_the_other_are_roots_each_of_its_own() -> None:
    stage = Stage()

    async def main() -> None:
        async with Engine([stage.tool("look")], clock=VirtualClock) as engine:
            for n in range(20):
                async with engine.run(f"r{n}") as run:
                    await run.submit(plan({"id": "l", "tool": "look"}))

    run_virtual(main)

    assert stage.entered["look"] == 20
