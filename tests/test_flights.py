"""Single flight: calls of a pure tool that are the same run once."""

import asyncio
from typing import Any

import pytest

from laneway import Code, Effect, Run, State, Success, Turn
from laneway.facts import CallJoined, CallStarted
from laneway.testing.scripted import Block, Do, Raise, Return, Sleep, Stage
from laneway.testing.theatre import RUN, Theatre, failure, plan, states, values


def call(name: str, tool: str, /, **arguments: Any) -> dict[str, Any]:
    return {"id": name, "tool": tool, "arguments": arguments}


def pure(stage: Stage, *steps: Any, name: str = "work", **said: Any) -> Any:
    said.setdefault("schema", {"type": "object"})
    return stage.tool(name, *steps, effect=Effect.PURE, **said)


def test_calls_that_are_the_same_run_once_and_each_has_the_result() -> None:
    stage = Stage()
    theatre = Theatre(stage, pure(stage, Sleep(1), Return("ok {n}"), claims=["lane:L"]))

    turn = theatre.play(
        plan(
            call("a", "work", n=1, m=2),
            call("b", "work", m=2, n=1),
            call("c", "work", n=2),
            call("d", "work", n=1, m=2),
        )
    )

    assert values(turn) == {"a": "ok 1", "b": "ok 1", "c": "ok 2", "d": "ok 1"}
    assert stage.entered["work"] == 2
    assert [(fact.call, fact.leader) for fact in theatre.kept(CallJoined)] == [
        ("t1.2", "r/t1.1"),
        ("t1.4", "r/t1.1"),
    ]
    assert [fact.call for fact in theatre.kept(CallStarted)] == ["t1.1", "t1.3"]
    assert [call.joined for call in turn.calls] == ["", "r/t1.1", "", "r/t1.1"]


@pytest.mark.parametrize("effect", [Effect.READ, Effect.WRITE, Effect.EXTERNAL])
def test_what_is_not_pure_is_never_shared(effect: Effect) -> None:
    stage = Stage()
    tool = stage.tool("work", Sleep(1), Return("ok"), effect=effect, idempotent=True)

    Theatre(stage, tool).play(plan(call("a", "work"), call("b", "work")))

    assert stage.entered["work"] == 2


def test_if_the_first_does_not_succeed_the_oldest_of_the_others_leads() -> None:
    stage = Stage()

    def second_time(_: Any) -> str:
        if stage.entered["work"] == 1:
            raise ValueError("boom")
        return "ok"

    theatre = Theatre(stage, pure(stage, Sleep(1), Do(second_time)))

    turn = theatre.play(plan(*(call(name, "work") for name in "abc")))

    assert failure(turn, "a").code is Code.TOOL_ERROR
    assert values(turn) == {"b": "ok", "c": "ok"}
    assert stage.entered["work"] == 2
    assert [(fact.call, fact.leader) for fact in theatre.kept(CallJoined)][-1] == (
        "t1.3",
        "r/t1.2",
    )


def test_who_waits_may_be_cancelled_and_so_may_who_leads() -> None:
    stage = Stage()
    theatre = Theatre(stage, pure(stage, Sleep(10), Return("ok")))

    async def host(run: Run) -> Turn:
        turn = await run.submit(plan(*(call(name, "work") for name in "abc")), wait=False)
        await asyncio.sleep(1)
        (told,) = [one for one in run.explain() if one.name == "c"]
        assert (told.waits[0].kind, told.waits[0].on, told.chain) == (
            "same call",
            "t1.1",
            ("t1.3", "t1.1"),
        )
        await run.cancel("b")
        assert states(turn)["b"] is State.CANCELLED
        await run.cancel("a")
        await turn.wait()
        return turn

    turn = theatre.enter(host)

    assert states(turn) == {
        "a": State.CANCELLED,
        "b": State.CANCELLED,
        "c": State.SUCCEEDED,
    }
    assert [one.span.end - one.span.start for one in stage.executions] == [1, 10]


def test_a_limit_of_the_one_that_leads_is_not_that_of_the_others() -> None:
    stage = Stage()

    async def slow_at_first(_: Any) -> str:
        await asyncio.sleep(100 if stage.entered["work"] == 1 else 4)
        return "ok"

    theatre = Theatre(stage, pure(stage, Do(slow_at_first), timeout=5))

    turn = theatre.play(plan(call("a", "work"), call("b", "work")))

    assert states(turn) == {"a": State.TIMED_OUT, "b": State.SUCCEEDED}


def test_the_result_of_another_tool_version_or_other_bound_arguments_is_not_shared() -> None:
    stage = Stage()
    user = {"type": "object", "properties": {"user": {}}}
    tool = pure(stage, Sleep(1), Return("{user}"), schema=user, bound=("user",))
    theatre = Theatre(stage, tool)

    async def host(run: Run) -> list[Any]:
        engine = run._engine
        async with (
            engine.run("one", bound={"user": "ann"}) as one,
            engine.run("two", bound={"user": "bob"}) as two,
        ):
            turns = await asyncio.gather(
                one.submit(plan(call("a", "work"))), two.submit(plan(call("a", "work")))
            )
        return [values(turn)["a"] for turn in turns]

    assert theatre.enter(host, bound={"user": "eve"}) == ["ann", "bob"]


def test_runs_share_only_within_one_tree() -> None:
    stage = Stage()
    theatre = Theatre(stage, pure(stage, Sleep(1), Return("ok")))

    async def host(run: Run) -> None:
        async with run._engine.run("other") as other:
            await asyncio.gather(
                run.submit(plan(call("a", "work"))), other.submit(plan(call("a", "work")))
            )

    theatre.enter(host)

    assert stage.entered["work"] == 2


def test_a_call_waits_for_the_same_one_in_a_run_below_it_and_goes_on_if_that_is_left() -> None:
    stage = Stage()
    leading: list[Any] = []

    async def agent(_: Any) -> str:
        engine = leading[0]
        async with engine.run("below") as run:
            task = asyncio.create_task(run.submit(plan(call("x", "work"))))
            await asyncio.sleep(3)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return "left"

    tools = [
        pure(stage, Sleep(10), Return("ok")),
        stage.tool("agent", Do(agent), effect=Effect.WRITE),
        stage.tool("wait", Sleep(1), Return("1")),
    ]
    theatre = Theatre(stage, *tools)

    async def host(run: Run) -> Turn:
        leading.append(run._engine)
        return await run.submit(
            plan(call("a", "agent"), call("w", "wait"), {**call("b", "work"), "after": ["w"]})
        )

    turn = theatre.enter(host)

    assert values(turn) == {"a": "left", "w": "1", "b": "ok"}
    assert [fact.leader for fact in theatre.kept(CallJoined)] == ["below/t1.1"]
    assert [one.span.end - one.span.start for one in stage.executions if one.tool == "work"] == [
        3 - 0,
        10,
    ]


def test_a_success_in_a_run_below_is_recorded_for_who_waits_above() -> None:
    stage = Stage()

    engines: list[Any] = []

    async def below(_: Any) -> Any:
        async with engines[0].run("below") as run:
            return values(await run.submit(plan(call("x", "work"))))["x"]

    tools = [
        pure(stage, Sleep(10), Return("ok")),
        stage.tool("agent", Do(below), effect=Effect.WRITE),
        stage.tool("wait", Sleep(1), Return("1")),
    ]

    async def host(run: Run) -> Turn:
        engines.append(run._engine)
        return await run.submit(
            plan(call("a", "agent"), call("w", "wait"), {**call("b", "work"), "after": ["w"]})
        )

    turn = Theatre(stage, *tools).enter(host)

    assert values(turn) == {"a": "ok", "w": "1", "b": "ok"}
    assert stage.entered["work"] == 1


def test_whoever_resumes_lets_them_be_the_same_again() -> None:
    stage = Stage()
    theatre: Theatre

    def crash(_: Any) -> str:
        if stage.entered["work"] == 1:
            theatre.crash()
        return "ok"

    theatre = Theatre(stage, pure(stage, Sleep(1), Do(crash)))
    theatre.play(plan(*(call(name, "work") for name in "abc")))

    turn = theatre.finish()

    assert set(states(turn).values()) == {State.SUCCEEDED}
    assert stage.entered["work"] == 2
    assert all(call.outcome == Success(value="ok") for call in turn.calls)
    assert theatre.journal.facts[RUN]


def test_threads_fly_together_too() -> None:
    stage = Stage()
    theatre = Theatre(stage, pure(stage, Block(1), Return("ok"), sync=True))

    turn = theatre.play(plan(*(call(name, "work") for name in "abc")))

    assert set(values(turn).values()) == {"ok"}
    assert stage.entered["work"] == 1


def test_one_that_raises_for_all_raises_for_each() -> None:
    stage = Stage()
    theatre = Theatre(stage, pure(stage, Raise(ValueError("boom"))))

    turn = theatre.play(plan(*(call(name, "work") for name in "abc")))

    assert {failure(turn, name).code for name in "abc"} == {Code.TOOL_ERROR}
    assert stage.entered["work"] == 3
