"""Calls within calls: what a body submits through the engine is part of its own call."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from laneway import (
    Code,
    Effect,
    Engine,
    Happened,
    Limits,
    NestedCallFailed,
    Run,
    State,
    Tool,
    ToolContext,
    ToolFailed,
    Turn,
)
from laneway.errors import UnknownApprovalError, UsageError
from laneway.facts import CallEnded, CallStarted
from laneway.journal.memory import MemoryJournal, MemoryStore
from laneway.testing import run_virtual
from laneway.testing.scripted import Do, Log, Raise, Return, Sleep, Stage
from laneway.testing.theatre import RUN, Theatre, failure, plan, states, values

CONTEXT = {"type": "object", "properties": {}}


def call(name: str, tool: str, arguments: dict[str, Any] | None = None, **more: Any) -> Any:
    return {"id": name, "tool": tool, "arguments": arguments or {}, **more}


def nesting(
    name: str, body: Callable[..., Awaitable[Any]], *, effect: Effect = Effect.WRITE, **said: Any
) -> Tool[..., Any]:
    """A tool whose body gets its context and its arguments."""

    async def play(context: ToolContext, **arguments: Any) -> Any:
        return await body(context, **arguments)

    said.setdefault("schema", {"type": "object"})
    said.setdefault("claims", [])
    return Tool.from_schema(play, name=name, description=name, effect=effect, **said)


def runs_inner(inner: str = "inner") -> Callable[..., Awaitable[Any]]:
    async def body(context: ToolContext, **arguments: Any) -> str:
        return f"outer:{await context.invoke(inner, **arguments)}"

    return body


def now() -> float:
    return asyncio.get_running_loop().time()


def held(run: Run) -> list[str]:
    lanes = run._engine.status().lanes
    return [lane.resource for lane in lanes if lane.holders or lane.waiters]


# What a call may use of what it is part of


def test_a_nested_call_uses_the_slot_that_its_parent_holds() -> None:
    """Case h-lane-1."""
    stage = Stage()
    tools = [
        nesting("outer", runs_inner(), claims=["lane:db"]),
        stage.tool("inner", Log("inner"), Return("i"), claims=["lane:db"]),
        stage.tool("other", Log("other"), Return("o"), claims=["lane:db"]),
    ]

    theatre = Theatre(stage, *tools, lanes={"db": 1})
    turn = theatre.play(plan(call("a", "outer"), call("b", "other")))

    assert set(states(turn).values()) == {State.SUCCEEDED}
    assert values(turn) == {"a": "outer:i", "b": "o"}
    assert stage.log == ["inner", "other"]


def test_a_run_of_a_bodys_own_is_nested_too() -> None:
    stage = Stage()
    engines: list[Engine] = []

    async def body(_: ToolContext) -> Any:
        async with engines[0].run("a run of its own") as run:
            turn = await run.submit(plan(call("i", "inner")))
            return values(turn)["i"]

    tools = [
        nesting("outer", body, claims=["write file:a"]),
        stage.tool("inner", Sleep(1), Log("inner"), Return("i"), claims=["write file:a"]),
        stage.tool("other", Log("other"), claims=["write file:a"]),
    ]

    async def host(run: Run) -> Turn:
        engines.append(run._engine)
        turn = await run.submit(plan(call("a", "outer")), wait=False)
        await asyncio.sleep(0.5)
        async with engines[0].run("another") as other:
            await other.submit(plan(call("o", "other")))
        await turn.wait()
        return turn

    turn = Theatre(stage, *tools).enter(host)

    assert values(turn) == {"a": "i"}
    assert stage.log == ["inner", "other"]


def test_siblings_within_a_call_meet_each_other() -> None:
    stage = Stage()

    async def body(context: ToolContext) -> list[str]:
        edits = (context.invoke("edit", path="f", n=n) for n in range(3))
        return list(await asyncio.gather(*edits))

    tools = [
        nesting("outer", body, claims=["write file:f"]),
        stage.tool("edit", Sleep(1), Return("ok"), claims=["write file:{path}"]),
    ]

    turn = Theatre(stage, *tools).play(plan(call("a", "outer")))

    assert values(turn) == {"a": ["ok", "ok", "ok"]}
    spans = sorted((one.span for one in stage.executions), key=lambda span: span.start)
    assert [span.end - spans[0].start for span in spans] == [1, 2, 3]


def test_others_wait_until_the_last_nested_call_has_stopped() -> None:
    stage = Stage()
    left: list[asyncio.Task[Any]] = []

    async def deaf(_: Any) -> str:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            await asyncio.sleep(5)
        stage.note("inner stopped")
        return "late"

    async def body(context: ToolContext) -> str:
        left.append(asyncio.create_task(context.invoke("inner")))
        await asyncio.sleep(1)
        return "done"

    tools = [
        nesting("outer", body, claims=["write file:f"]),
        stage.tool("inner", Do(deaf), claims=["write file:f"]),
        stage.tool("other", Log("other"), claims=["write file:f"]),
    ]

    async def host(run: Run) -> Turn:
        turn = await run.submit(plan(call("a", "outer"), call("b", "other")), wait=False)
        await turn.wait()
        assert held(run) == []
        with pytest.raises(ToolFailed, match="the call that asked for it has ended"):
            await left[0]
        return turn

    turn = Theatre(stage, *tools, limits=Limits(grace_seconds=1)).enter(host)

    assert values(turn)["a"] == "done"
    assert stage.log == ["inner stopped", "other"]


# Waiting for oneself


def test_two_calls_whose_parts_want_each_others_files_do_not_wait_for_ever() -> None:
    stage = Stage()

    async def body(context: ToolContext, mine: str, other: str) -> str:
        await asyncio.sleep(1)
        try:
            return str(await context.invoke("edit", path=other))
        except ToolFailed as error:
            return f"{error.code}: {error}"

    schema = {"type": "object", "properties": {"mine": {"type": "string"}, "other": {}}}
    tools = [
        nesting("agent", body, claims=["write file:{mine}"], schema=schema),
        stage.tool("edit", Sleep(1), Return("ok"), claims=["write file:{path}"]),
    ]

    async def host(run: Run) -> list[dict[str, Any]]:
        engine = run._engine
        async with engine.run("s") as second:
            turns = await asyncio.gather(
                run.submit(plan(call("a", "agent", {"mine": "x", "other": "y"}))),
                second.submit(plan(call("b", "agent", {"mine": "y", "other": "x"}))),
            )
        return [values(turn) for turn in turns]

    first, second = Theatre(stage, *tools).enter(host)

    assert first == {"a": "ok"}
    assert second["b"].startswith(
        "LANE_DEADLOCK: edit did not succeed (LANE_DEADLOCK): The call would wait for"
    )
    ring = second["b"].split(": ")[-1].removesuffix(".").split(" → ")
    assert ring[0] == ring[-1]
    assert {"agent r/t1.1", "agent s/t1.1", "edit r/t1.1/1/t1.1"} <= set(ring)
    assert stage.entered["edit"] == 1


def test_a_bystander_who_waits_for_the_parent_is_passed_by_its_part() -> None:
    stage = Stage()

    async def body(context: ToolContext) -> str:
        await asyncio.sleep(1)
        return str(await context.invoke("edit", path="b"))

    tools = [
        nesting("agent", body, claims=["write file:a"]),
        stage.tool("both", Log("both"), claims=["write file:a", "write file:b"]),
        stage.tool("edit", Log("edit {path}"), Return("ok"), claims=["write file:{path}"]),
    ]

    async def host(run: Run) -> Turn:
        turn = await run.submit(plan(call("a", "agent")), wait=False)
        async with run._engine.run("s") as second:
            await second.submit(plan(call("b", "both")))
        await turn.wait()
        return turn

    turn = Theatre(stage, *tools).enter(host)

    assert values(turn) == {"a": "ok"}
    assert stage.log == ["edit b", "both"]


@pytest.mark.parametrize("verb", ["write", "read"])
def test_an_upgrade_of_what_two_share_is_refused_to_the_second_alone(verb: str) -> None:
    stage = Stage()

    async def body(context: ToolContext, n: int) -> str:
        await asyncio.sleep(n)
        try:
            return str(await context.invoke("edit", path="f"))
        except ToolFailed as error:
            return error.code

    schema = {"type": "object", "properties": {"n": {"type": "number"}}}
    tools = [
        nesting("agent", body, claims=["read file:f"], effect=Effect.READ, schema=schema),
        stage.tool("edit", Sleep(1), Return("ok"), claims=[f"{verb} file:{{path}}"]),
    ]

    turn = Theatre(stage, *tools).play(
        plan(call("a", "agent", {"n": 1}), call("b", "agent", {"n": 1.5}))
    )

    assert values(turn) == {"a": "ok", "b": "LANE_DEADLOCK" if verb == "write" else "ok"}


# Stopping


def test_a_call_that_is_told_to_stop_takes_its_parts_along() -> None:
    stage = Stage()
    tools = [
        nesting("outer", runs_inner(), claims=["lane:db"]),
        stage.tool("inner", Sleep(100), Log("inner"), claims=["lane:db"]),
    ]

    async def host(run: Run) -> Turn:
        turn = await run.submit(plan(call("a", "outer")), wait=False)
        await asyncio.sleep(1)
        began = now()
        await run.cancel("a")
        await turn.wait()
        assert now() == began
        assert held(run) == []
        return turn

    turn = Theatre(stage, *tools).enter(host)

    assert states(turn) == {"a": State.CANCELLED}
    assert stage.entered["inner"] == 1
    assert stage.log == []


def test_a_call_that_takes_too_long_takes_its_parts_along_wherever_they_are() -> None:
    stage = Stage()

    async def body(context: ToolContext) -> Any:
        return await asyncio.gather(
            context.invoke("inner", n=1), context.invoke("inner", n=2), context.invoke("asks")
        )

    tools = [
        nesting("outer", body, timeout=5),
        stage.tool("inner", Sleep(100), claims=["lane:db"]),
        stage.tool("asks", approval=True),
    ]
    theatre = Theatre(stage, *tools)

    turn = theatre.play(plan(call("a", "outer")))

    assert states(turn) == {"a": State.TIMED_OUT}
    assert stage.entered == {"inner": 1}
    ended = {
        run: [row.fact.state for row in rows if isinstance(row.fact, CallEnded)]
        for run, rows in theatre.journal.facts.items()
        if run != RUN
    }
    names = [f"{RUN}/t1.1/{n}" for n in (1, 2, 3)]
    assert ended == dict(
        zip(names, ([State.TIMED_OUT], [State.CANCELLED], [State.CANCELLED]), strict=True)
    )


def test_nothing_is_begun_for_a_call_that_has_been_told_to_stop() -> None:
    stage = Stage()
    said: list[str] = []

    async def body(context: ToolContext) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            try:
                await context.invoke("inner")
            except ToolFailed as error:
                said.append(str(error))

    tools = [nesting("outer", body), stage.tool("inner", Log("inner"))]

    async def host(run: Run) -> Turn:
        turn = await run.submit(plan(call("a", "outer")), wait=False)
        await asyncio.sleep(1)
        await run.cancel("a")
        await turn.wait()
        return turn

    turn = Theatre(stage, *tools).enter(host)

    assert states(turn) == {"a": State.CANCELLED}
    assert stage.log == []
    told = "The call was cancelled: the user cancelled it. It had not been started."
    assert said == [f"inner did not succeed (CANCELLED): {told}"]


def test_a_failure_within_is_the_failure_of_the_call_unless_it_is_caught() -> None:
    stage = Stage()
    tools = [
        nesting("outer", runs_inner()),
        stage.tool("inner", Raise(ValueError("boom")), effect=Effect.WRITE),
    ]

    turn = Theatre(stage, *tools).play(plan(call("a", "outer")))

    found = failure(turn, "a")
    assert found.code is Code.TOOL_ERROR
    assert "inner did not succeed (TOOL_ERROR): inner raised ValueError: boom" in found.message


# Threads


def test_a_synchronous_tool_waits_in_its_thread_and_none_waits_for_that_thread() -> None:
    stage = Stage()

    def outer(context: ToolContext, n: int) -> str:
        return f"outer:{context.invoke_blocking('inner', n=n)}"

    tools = [
        Tool.from_schema(
            outer,
            name="outer",
            description="outer",
            schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
            effect=Effect.WRITE,
            claims=["lane:many"],
        ),
        stage.tool("inner", Return("{n}"), sync=True, claims=["lane:many"]),
    ]
    theatre = Theatre(stage, *tools, lanes={"many": 4}, limits=Limits(tool_threads=1))

    turn = theatre.play(plan(*(call(f"c{n}", "outer", {"n": n}) for n in range(4))))

    assert values(turn) == {f"c{n}": f"outer:{n}" for n in range(4)}


# Attempts, and crashes


def test_what_has_succeeded_within_a_failed_attempt_is_not_done_again() -> None:
    stage = Stage()
    attempts: list[int] = []

    async def body(context: ToolContext) -> str:
        attempts.append(context.attempt)
        paid = await context.invoke("pay", sum=7)
        if context.attempt == 1:
            raise ConnectionResetError("gone")
        return f"{paid} {await context.invoke('tell')}"

    tools = [
        nesting("outer", body, idempotent=True, retries=2),
        stage.tool("pay", Log("pay {sum}"), Return("paid"), effect=Effect.EXTERNAL),
        stage.tool("tell", Log("tell"), Return("told"), effect=Effect.EXTERNAL),
    ]

    turn = Theatre(stage, *tools).play(plan(call("a", "outer")))

    assert values(turn) == {"a": "paid told"}
    assert attempts == [1, 2]
    assert stage.log == ["pay 7", "tell"]


def test_a_part_that_did_nothing_is_tried_again_by_the_next_attempt() -> None:
    stage = Stage()
    tries: list[int] = []

    def refuse(_: Any) -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionRefusedError(111, "refused")
        return "ok"

    async def body(context: ToolContext) -> str:
        try:
            return str(await context.invoke("ask"))
        except ToolFailed as error:
            raise ConnectionResetError from error

    tools = [
        nesting("outer", body, idempotent=True, retries=1),
        stage.tool("ask", Do(refuse), effect=Effect.READ),
    ]

    assert values(Theatre(stage, *tools).play(plan(call("a", "outer")))) == {"a": "ok"}
    assert len(tries) == 2


def test_whoever_resumes_finds_what_the_parts_came_to() -> None:
    stage = Stage()
    theatre: Theatre

    async def body(context: ToolContext) -> str:
        paid = await context.invoke("pay")
        return f"{paid}, {await context.invoke('wait')}"

    async def wait(_: Any) -> str:
        if stage.entered["wait"] == 1:
            theatre.crash()
        return "waited"

    tools = [
        nesting("outer", body, idempotent=True),
        stage.tool("pay", Log("pay"), Return("paid"), effect=Effect.EXTERNAL),
        stage.tool("wait", Do(wait), effect=Effect.READ),
    ]
    theatre = Theatre(stage, *tools)
    theatre.play(plan(call("a", "outer")))

    turn = theatre.finish()

    assert values(turn) == {"a": "paid, waited"}
    assert stage.entered == {"pay": 1, "wait": 2}


def test_a_part_that_may_have_had_its_effect_is_not_repeated_by_whoever_resumes() -> None:
    stage = Stage()
    theatre: Theatre

    async def body(context: ToolContext) -> str:
        return str(await context.invoke("pay"))

    def pay(_: Any) -> str:
        stage.note("pay")
        theatre.crash()
        return "paid"

    tools = [
        nesting("outer", body, idempotent=True),
        stage.tool("pay", Do(pay), effect=Effect.EXTERNAL),
    ]
    theatre = Theatre(stage, *tools)
    theatre.play(plan(call("a", "outer")))

    turn = theatre.finish()

    assert stage.log == ["pay"]
    assert "pay did not succeed (OUTCOME_UNKNOWN)" in failure(turn, "a").message


# Without an engine, and with two


def test_a_context_without_an_engine_says_that_it_has_none() -> None:
    context = ToolContext(run="r", call="t1.1", attempt=1, tool="outer", arguments={})  # type: ignore[arg-type]

    with pytest.raises(UsageError, match="outer was called without an engine"):
        asyncio.run(context.invoke("inner"))
    with pytest.raises(UsageError, match="outer was called without an engine"):
        context.invoke_blocking("inner")


def test_another_engine_knows_nothing_of_the_lanes_of_this_one_but_of_the_way_back() -> None:
    stage = Stage()
    engines: dict[str, Engine] = {}

    def hands_over(other: str, tool: str) -> Callable[..., Awaitable[Any]]:
        async def body(_: ToolContext) -> Any:
            async with engines[other].run("over") as run:
                return values(await run.submit(plan(call("x", tool))))["x"]

        return body

    async def main() -> dict[str, Any]:
        inner = stage.tool("inner", Return("i"), claims=["lane:db"])
        engines["one"] = Engine(
            [nesting("outer", hands_over("two", "back"), claims=["lane:db"]), inner],
            clock=stage.make_clock,
        )
        engines["two"] = Engine(
            [nesting("back", hands_over("one", "inner"), claims=["lane:db"])],
            clock=stage.make_clock,
        )
        async with engines["one"] as one, engines["two"], one.run("r") as run:
            return values(await run.submit(plan(call("a", "outer"))))

    assert run_virtual(main) == {"a": "i"}


def test_the_journal_of_a_nested_call_is_a_run_below_its_call() -> None:
    stage = Stage()
    tools = [nesting("outer", runs_inner()), stage.tool("inner", Return("i"))]
    journal = MemoryJournal()

    Theatre(stage, *tools, journal=MemoryStore(journal)).play(plan(call("a", "outer")))

    assert set(journal.facts) == {RUN, f"{RUN}/t1.1/1"}
    started = [row.fact for rows in journal.facts.values() for row in rows]
    assert [fact.call for fact in started if isinstance(fact, CallStarted)] == ["t1.1", "t1.1"]


def test_what_a_body_passes_on_is_a_value_and_no_text_in_it_refers_to_a_call() -> None:
    stage = Stage()
    given: list[Any] = []
    texts = {"a": "${1}", "b": "$${1} ${HOME}", "c": [{"$from": "1", "path": "x"}]}

    async def body(context: ToolContext) -> Any:
        return await context.invoke("inner", **texts)

    tools = [
        nesting("outer", body),
        stage.tool("inner", Do(given.append), schema={"type": "object"}),
    ]

    Theatre(stage, *tools).play(plan(call("a", "outer")))

    assert given == [texts]


def test_a_call_that_waits_for_its_part_says_so_and_what_the_part_waits_for() -> None:
    stage = Stage()
    tools = [
        nesting("outer", runs_inner()),
        stage.tool("inner", Return("i"), claims=["lane:db"]),
        stage.tool("other", Sleep(10), claims=["lane:db"]),
    ]

    async def host(run: Run) -> Turn:
        turn = await run.submit(plan(call("o", "other"), call("a", "outer")), wait=False)
        await asyncio.sleep(1)
        (told,) = [one for one in run.explain() if one.name == "a"]
        assert [str(wait) for wait in told.waits] == ["r/t1.2/1/t1.1 (inner), a call within it"]
        assert told.chain == ("t1.2", "r/t1.2/1/t1.1", "t1.1")
        await turn.wait()
        return turn

    turn = Theatre(stage, *tools).enter(host)

    assert values(turn)["a"] == "outer:i"


def test_whoever_drives_the_run_answers_for_the_calls_within_its_calls() -> None:
    stage = Stage()

    async def twice(context: ToolContext) -> Any:
        return await asyncio.gather(context.invoke("ask", n=1), context.invoke("ask", n=2))

    tools = [
        nesting("outer", twice, timeout=5),
        stage.tool("ask", Return("yes {n}"), approval=True),
    ]

    async def host(run: Run) -> Turn:
        turn = await run.submit(plan(call("a", "outer"), call("b", "ask", {"n": 3})), wait=False)
        await asyncio.sleep(1)
        assert [one.id for one in run.approvals] == [
            "t1.2.a1",
            "r/t1.1/1/t1.1.a1",
            "r/t1.1/2/t1.1.a1",
        ]
        assert [one.arguments["n"] for one in run.approvals] == [3, 1, 2]
        await asyncio.sleep(1000)
        await run.approve("r/t1.1/1/t1.1")
        with pytest.raises(UnknownApprovalError, match=r"t1\.1\.a1"):
            await run.approve("t1.1.a1")
        await asyncio.sleep(1000)
        await run.approve("r/t1.1/2/t1.1.a1")
        await run.deny("t1.2.a1")
        await turn.wait()
        return turn

    turn = Theatre(stage, *tools, limits=Limits(turn_seconds=5)).enter(host)

    assert values(turn) == {"a": ["yes 1", "yes 2"]}


def test_the_clock_of_a_call_stands_only_while_all_that_it_waits_for_are_humans() -> None:
    stage = Stage()

    async def both(context: ToolContext) -> Any:
        return await asyncio.gather(context.invoke("ask"), context.invoke("slow"))

    async def after(context: ToolContext) -> Any:
        await context.invoke("ask")
        await asyncio.sleep(100)

    async def host(run: Run) -> Turn:
        turn = await run.submit(plan(call("a", "both"), call("b", "after")), wait=False)
        await asyncio.sleep(4)
        for question in run.approvals:
            await (run.approve if question.run.startswith("r/t1.2") else run.deny)(question.id)
        await turn.wait()
        return turn

    tools = [
        nesting("both", both, timeout=5),
        nesting("after", after, timeout=5),
        stage.tool("ask", Return("yes"), approval=True),
        stage.tool("slow", Sleep(100)),
    ]
    began: list[float] = []

    async def timed(run: Run) -> Turn:
        began.append(now())
        turn = await host(run)
        began.append(now())
        return turn

    turn = Theatre(stage, *tools, limits=Limits(grace_seconds=0)).enter(timed)

    assert failure(turn, "a").code is Code.TOOL_ERROR
    assert failure(turn, "b").code is Code.TIMEOUT
    assert began[1] - began[0] == 4 + 5


def test_what_a_failed_part_did_says_nothing_of_what_the_body_did_besides() -> None:
    stage = Stage()

    async def body(context: ToolContext) -> Any:
        await context.invoke("write")
        try:
            return await context.invoke("flaky")
        except NestedCallFailed as error:
            seen.append((error.code, error.happened, error.retry))
            raise

    seen: list[Any] = []
    refuse = ToolFailed(
        "later", happened=Happened.NOTHING, retry=True, hint="wait", code=Code.RATE_LIMITED
    )
    tools = [
        nesting("changes", body),
        nesting("reads", body, effect=Effect.READ),
        stage.tool("write", Log("write"), effect=Effect.WRITE),
        stage.tool("flaky", Raise(refuse), effect=Effect.WRITE),
    ]

    turn = Theatre(stage, *tools).play(plan(call("a", "changes"), call("b", "reads")))

    assert seen == [(Code.RATE_LIMITED, Happened.NOTHING, True)] * 2
    worst, harmless = failure(turn, "a"), failure(turn, "b")
    assert (worst.code, worst.happened, worst.retry) == (
        Code.RATE_LIMITED,
        Happened.UNKNOWN,
        False,
    )
    assert "It may have had its effect, or part of it." in worst.message
    assert (harmless.happened, harmless.retry) == (Happened.NOTHING, True)
