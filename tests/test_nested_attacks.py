"""Ways to misuse calls within calls, and to break off in the midst of them."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from laneway import Code, Effect, Engine, Limits, Run, State, Tool, ToolContext, ToolFailed, Turn
from laneway.errors import JournalError, UsageError
from laneway.facts import CallStarted, Row, TurnSubmitted
from laneway.journal.fold import fold
from laneway.journal.memory import MemoryStore
from laneway.testing.scripted import Do, Log, Return, Sleep, Stage
from laneway.testing.theatre import Theatre, failure, plan, states, values

ANY = {"type": "object"}


def call(name: str, tool: str, /, **arguments: Any) -> dict[str, Any]:
    return {"id": name, "tool": tool, "arguments": arguments}


def nesting(name: str, body: Callable[..., Awaitable[Any]], **said: Any) -> Tool[..., Any]:
    """A tool whose body gets its context and its arguments."""

    async def play(context: ToolContext, **arguments: Any) -> Any:
        return await body(context, **arguments)

    return made(name, play, **said)


def blocking(name: str, body: Callable[..., Any], **said: Any) -> Tool[..., Any]:
    def play(context: ToolContext, **arguments: Any) -> Any:
        return body(context, **arguments)

    return made(name, play, **said)


def made(name: str, play: Callable[..., Any], **said: Any) -> Tool[..., Any]:
    said = {"schema": ANY, "claims": [], "effect": Effect.WRITE, **said}
    return Tool.from_schema(play, name=name, description=name, **said)


def assert_nothing_is_left(engine: Engine) -> None:
    services = engine.services
    assert len(services.lanes) == 0
    assert services.flights == {}
    assert services.leaving == set()
    assert len(services.deadlines) == 0


# In the wrong place


def test_a_blocking_call_in_an_async_tool_is_refused_before_it_blocks_everything() -> None:
    stage = Stage()

    async def body(context: ToolContext) -> Any:
        return context.invoke_blocking("inner")

    turn = Theatre(stage, nesting("outer", body), stage.tool("inner")).play(
        plan(call("a", "outer"))
    )

    assert "use `await context.invoke('inner', …)`" in failure(turn, "a").message
    assert stage.entered == {}


def test_a_call_from_a_loop_of_the_tools_own_is_made_in_the_loop_of_the_engine() -> None:
    stage = Stage()
    loops: list[asyncio.AbstractEventLoop] = []

    async def inner(_: Any) -> str:
        loops.append(asyncio.get_running_loop())
        return "i"

    tools = [
        blocking("outer", lambda context: asyncio.run(context.invoke("inner")), claims=["lane:L"]),
        stage.tool("inner", Do(inner), claims=["lane:L"]),
    ]

    async def host(run: Run) -> Turn:
        loops.append(asyncio.get_running_loop())
        return await run.submit(plan(call("a", "outer")))

    turn = Theatre(stage, *tools).enter(host)

    assert values(turn) == {"a": "i"}
    assert loops[0] is loops[1]


def test_a_run_cannot_be_entered_in_another_loop_than_its_engines() -> None:
    stage = Stage()
    engines: list[Engine] = []

    async def enter() -> None:
        async with engines[0].run("x"):
            raise AssertionError

    tool = blocking("outer", lambda _: asyncio.run(enter()))

    async def host(run: Run) -> Turn:
        engines.append(run._engine)
        return await run.submit(plan(call("a", "outer")))

    turn = Theatre(stage, tool).enter(host)

    assert "EngineBusyError: this Engine is in use in another event loop" in (
        failure(turn, "a").message
    )


def test_threads_that_a_tool_starts_by_itself_are_part_of_its_call_too() -> None:
    stage = Stage()

    def body(context: ToolContext) -> list[str]:
        found: list[str] = []
        threads = [
            threading.Thread(target=lambda: found.append(context.invoke_blocking("inner")))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    tools = [
        blocking("outer", body, claims=["lane:L"]),
        stage.tool("inner", Return("i"), claims=["lane:L"]),
    ]

    turn = Theatre(stage, *tools, limits=Limits(tool_threads=1)).play(
        plan(call("a", "outer"), call("b", "outer"))
    )

    assert values(turn) == {"a": ["i"] * 4, "b": ["i"] * 4}


def test_a_thread_that_asks_when_the_loop_is_gone_is_told_so() -> None:
    stage = Stage()
    contexts: list[ToolContext] = []
    tool = blocking("outer", contexts.append)
    Theatre(stage, tool).play(plan(call("a", "outer")))

    with pytest.raises(UsageError, match="inner cannot be called any more"):
        contexts[0].invoke_blocking("inner")


def test_what_cannot_be_told_in_json_cannot_be_asked_for() -> None:
    stage = Stage()
    said: list[str] = []

    async def body(context: ToolContext) -> None:
        for tool, arguments in (("inner", {"x": [object()]}), (5, {})):
            try:
                await context.invoke(tool, **arguments)  # type: ignore[arg-type]
            except UsageError as error:
                said.append(str(error))

    Theatre(stage, nesting("outer", body), stage.tool("inner")).play(plan(call("a", "outer")))

    assert said == [
        "inner cannot be called with arguments that JSON cannot tell: $.x[0] is of type object",
        "a tool is called by its name, not by 5",
    ]


def test_a_tool_that_calls_itself_for_ever_comes_to_an_end() -> None:
    stage = Stage()
    deepest = 0

    async def body(context: ToolContext) -> Any:
        nonlocal deepest
        deepest += 1
        return await context.invoke("outer")

    async def host(run: Run) -> Turn:
        turn = await run.submit(plan(call("a", "outer")))
        assert_nothing_is_left(run._engine)
        return turn

    turn = Theatre(stage, nesting("outer", body, claims=["lane:L"])).enter(host)

    assert failure(turn, "a").code is Code.DEPTH_EXCEEDED
    assert deepest == 101


# Entered again


@pytest.mark.parametrize("journal", [None, "file"])
def test_what_was_done_side_by_side_is_not_repeated_in_another_order(
    journal: str | None, tmp_path: Path
) -> None:
    stage = Stage()

    async def body(context: ToolContext) -> str:
        async def chain(first: str, then: str, seconds: float) -> None:
            await context.invoke("look", n=first)
            await asyncio.sleep(seconds)
            await context.invoke("pay", n=then)

        swapped = context.attempt > 1
        await asyncio.gather(
            chain("1", "x", 2 if swapped else 1), chain("2", "y", 1 if swapped else 2)
        )
        if not swapped:
            raise ConnectionResetError
        await context.invoke("pay", n="x")
        return "ok"

    tools = [
        nesting("outer", body, idempotent=True, retries=1),
        stage.tool("look", Return("l"), schema=ANY),
        stage.tool("pay", Log("pay {n}"), Return("p"), effect=Effect.EXTERNAL, schema=ANY),
    ]

    store = None if journal is None else tmp_path / journal
    turn = Theatre(stage, *tools, journal=store).play(plan(call("a", "outer")))

    assert values(turn) == {"a": "ok"}
    assert stage.log == ["pay x", "pay y", "pay x"]


def test_what_only_a_dead_attempt_wanted_is_not_begun_by_the_next() -> None:
    stage = Stage()

    async def body(context: ToolContext) -> Any:
        return await context.invoke("pay" if context.attempt == 1 else "look")

    tools = [
        nesting("outer", body, idempotent=True),
        stage.tool("look", Return("l")),
        stage.tool("pay", Log("pay"), effect=Effect.EXTERNAL, claims=["lane:L"]),
        stage.tool("hold", Sleep(5), claims=["lane:L"]),
    ]
    theatre = Theatre(stage, *tools)

    async def host(run: Run) -> None:
        await run.submit(plan(call("h", "hold"), call("a", "outer")), wait=False)
        await asyncio.sleep(1)
        theatre.crash()

    theatre.enter(host)
    turn = theatre.finish()

    assert values(turn)["a"] == "l"
    assert stage.log == []


def test_a_part_that_has_not_stopped_is_not_begun_again_by_the_next_attempt() -> None:
    stage = Stage()
    met: list[str] = []

    async def deaf(_: Any) -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            await asyncio.sleep(50)

    async def body(context: ToolContext) -> None:
        try:
            await context.invoke("inner")
        except ToolFailed as error:
            met.append(error.code)
            raise ConnectionResetError from error

    tools = [
        nesting("outer", body, idempotent=True, retries=1),
        stage.tool("inner", Do(deaf), timeout=2),
    ]

    async def host(run: Run) -> Turn:
        turn = await run.submit(plan(call("a", "outer")))
        await asyncio.sleep(100)
        assert_nothing_is_left(run._engine)
        return turn

    turn = Theatre(stage, *tools, limits=Limits(grace_seconds=1)).enter(host)

    assert states(turn) == {"a": State.FAILED}
    assert stage.entered["inner"] == 1
    assert met[1:] == [Code.ALREADY_RUNNING]


def test_a_task_that_outlives_its_attempt_can_begin_nothing() -> None:
    stage = Stage()
    left: list[asyncio.Task[None]] = []

    async def later(context: ToolContext) -> None:
        for n in range(20):
            await asyncio.sleep(0.25)
            with pytest.raises(ToolFailed, match="the call that asked for it has ended"):
                await context.invoke("inner", n=n)

    async def body(context: ToolContext) -> list[str]:
        if context.attempt == 1:
            left.append(asyncio.create_task(later(context)))
            raise ConnectionResetError
        parts: list[str] = []
        for n in range(3):
            await asyncio.sleep(0.6)
            parts.append(await context.invoke("inner", n=n))
        return parts

    tools = [
        nesting("outer", body, idempotent=True, retries=1, claims=["write file:a"]),
        stage.tool("inner", Return("i{n}"), schema=ANY, claims=["write file:a"]),
    ]

    async def host(run: Run) -> Turn:
        turn = await run.submit(plan(call("a", "outer")))
        await left[0]
        assert_nothing_is_left(run._engine)
        return turn

    turn = Theatre(stage, *tools).enter(host)

    assert values(turn) == {"a": ["i0", "i1", "i2"]}
    assert stage.entered["inner"] == 3


def test_a_run_of_its_own_that_outlives_its_attempt_can_begin_nothing_either() -> None:
    stage = Stage()
    engines: list[Engine] = []
    left: list[asyncio.Task[Turn]] = []

    async def later() -> Turn:
        async with engines[0].run("own") as run:
            await asyncio.sleep(2)  # By then the second attempt waits for the lane.
            return await run.submit(plan(call("i", "inner")))

    async def body(context: ToolContext) -> str:
        if context.attempt == 1:
            left.append(asyncio.create_task(later()))
            await asyncio.sleep(0)
            raise ConnectionResetError
        return "ok"

    tools = [
        nesting("outer", body, idempotent=True, retries=1, claims=["lane:L"]),
        stage.tool("inner", Log("inner")),
        stage.tool("other", Sleep(5), claims=["lane:L"]),
    ]

    async def host(run: Run) -> Turn:
        engines.append(run._engine)
        return await run.submit(plan(call("a", "outer"), call("o", "other")))

    turn = Theatre(stage, *tools).enter(host)

    assert values(turn) == {"a": "ok", "o": None}
    assert stage.log == []


# Broken off


def payments(stage: Stage) -> list[Tool[..., Any]]:
    async def outer(context: ToolContext) -> list[Any]:
        first = await context.invoke("pay", n=1)
        more = await asyncio.gather(context.invoke("pay", n=2), context.invoke("mid"))
        return [first, *more, await context.invoke("pay", n=4)]

    async def mid(context: ToolContext) -> Any:
        await context.invoke("pay", n=30)
        await context.invoke("look")
        return await context.invoke("pay", n=31)

    return [
        nesting("outer", outer, idempotent=True, claims=["write file:a"]),
        nesting("mid", mid, idempotent=True, claims=["write file:a/b"]),
        stage.tool("look", Return("l")),
        stage.tool(
            "pay",
            Sleep(1),
            Return("paid {n}"),
            effect=Effect.EXTERNAL,
            schema=ANY,
            claims=["lane:pay"],
        ),
    ]


WANTED = plan(call("a", "outer"), call("b", "pay", n=99))


class Remembering(MemoryStore):
    """What the journal held after each commit."""

    def __init__(self, facts: dict[Any, list[Row]] | None = None) -> None:
        super().__init__()
        self.journal.facts = {run: list(rows) for run, rows in (facts or {}).items()}
        self.moments: list[dict[Any, list[Row]]] = []

    def commit(self, batch: Sequence[Row], /) -> None:
        super().commit(batch)
        held = self.journal.facts
        self.moments.append({run: list(rows) for run, rows in held.items()})


def played(facts: dict[Any, list[Row]] | None = None) -> Remembering:
    """Take up what a crash left, to its end."""
    stage, store = Stage(), Remembering(facts)

    async def host(run: Run) -> None:
        if run.open_turn is None and not run.turns:
            await run.submit(WANTED)
        await run.finish()

    Theatre(stage, *payments(stage), journal=store).enter(host)
    return store


def starts(facts: dict[Any, list[Row]]) -> list[Any]:
    """The payments that were begun."""
    found: list[Any] = []
    for rows in facts.values():
        turns = [row.fact for row in rows if isinstance(row.fact, TurnSubmitted)]
        asked = {one.id: one for turn in turns for one in turn.calls if one.tool == "pay"}
        begun = [row.fact.call for row in rows if isinstance(row.fact, CallStarted)]
        found += [asked[name].arguments["n"] for name in begun if name in asked]
    return found


def test_whoever_dies_twice_in_the_midst_of_parts_pays_nothing_twice() -> None:
    whole = played()
    assert sorted(starts(whole.journal.facts)) == [1, 2, 4, 30, 31, 99]

    for moment in whole.moments:
        second = played(moment)
        for later in (*second.moments[::3], second.journal.facts):
            facts = played(later).journal.facts
            begun = starts(facts)
            assert len(set(begun)) == len(begun)
            for run, rows in facts.items():
                fold(run, rows)


class Breaking(MemoryStore):
    """Its n-th commit fails."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self._left = at

    def commit(self, batch: Sequence[Row], /) -> None:
        self._left -= 1
        if not self._left:
            raise JournalError("disk full")
        super().commit(batch)


@pytest.mark.parametrize("at", range(3, 45))
def test_whenever_the_journal_breaks_all_lanes_of_all_runs_are_free(at: int) -> None:
    stage = Stage()

    async def host(run: Run) -> None:
        engine = run._engine
        try:
            async with engine.run("s") as other:
                turns = (run.submit(WANTED), other.submit(WANTED))
                found = await asyncio.gather(*turns, return_exceptions=True)
                assert all(isinstance(one, (Turn, JournalError)) for one in found)
        finally:
            await asyncio.sleep(30)
            assert_nothing_is_left(engine)

    Theatre(stage, *payments(stage), journal=Breaking(at)).enter(host)
