"""Faults of the engine that the campaign of deaths has found, each as small as it could be made."""

import asyncio
from typing import Any

import pytest

from laneway import Effect, NestedCallFailed, State, Tool, ToolContext
from laneway.engine.run import Run
from laneway.testing.scripted import Log, Raise, Return, Sleep, Stage
from laneway.testing.theatre import Theatre, plan, states, values


def call(name: str, tool: str, *needs: str) -> dict[str, Any]:
    return {"id": name, "tool": tool, "arguments": {}, "needs": list(needs)}


# The order of conflicting calls, where one between two others never starts


def writers(stage: Stage) -> list[Tool[..., Any]]:
    def on_file(name: str, access: str = "write", **said: Any) -> Tool[..., Any]:
        claims = [f"{access} file:x"]
        return stage.tool(name, Log(name), Return(name), effect=Effect.WRITE, claims=claims, **said)

    return [
        stage.tool("slow", Sleep(2), Return("s"), claims=[]),
        stage.tool("slower", Sleep(5), Return("s"), claims=[]),
        stage.tool("bad", Sleep(1), Raise(ValueError("no")), claims=[]),
        on_file("first"),
        on_file("reader", "read"),
        on_file("second"),
        on_file("third"),
        on_file("fourth"),
    ]


WRITES = plan(
    call("s", "slow"),
    call("n", "bad"),
    call("1", "first", "s"),
    call("2", "second", "n"),
    call("3", "third"),
)
ENDED = {
    "s": State.SUCCEEDED,
    "n": State.FAILED,
    "1": State.SUCCEEDED,
    "2": State.SKIPPED,
    "3": State.SUCCEEDED,
}


def test_a_writer_that_is_skipped_lets_nobody_pass_the_writer_before_it() -> None:
    stage = Stage()

    turn = Theatre(stage, *writers(stage)).play(WRITES)

    assert states(turn) == ENDED
    assert stage.log == ["first", "third"]


def test_a_writer_that_was_skipped_before_a_crash_lets_nobody_pass_after_it() -> None:
    stage = Stage()
    theatre = Theatre(stage, *writers(stage))

    async def host(run: Run) -> None:
        await run.submit(WRITES, wait=False)
        await asyncio.sleep(1.5)
        theatre.crash()

    theatre.enter(host)
    turn = theatre.finish()

    assert states(turn) == ENDED
    assert stage.log == ["first", "third"]


def test_a_chain_of_calls_that_never_start_hands_on_what_the_first_of_them_waited_for() -> None:
    stage = Stage()
    wanted = plan(
        call("s", "slow"),
        call("n", "bad"),
        call("1", "first", "s"),
        call("r", "reader", "n"),
        call("2", "second", "n"),
        call("3", "third", "n"),
        call("4", "fourth"),
    )

    turn = Theatre(stage, *writers(stage)).play(wanted)

    assert states(turn)["4"] is State.SUCCEEDED
    assert stage.log == ["first", "fourth"]


def test_a_chain_that_never_started_hands_on_after_a_crash_too() -> None:
    stage = Stage()
    theatre = Theatre(stage, *writers(stage))

    async def host(run: Run) -> None:
        await run.submit(
            plan(
                call("s", "slow"),
                call("n", "bad"),
                call("1", "first", "s"),
                call("2", "second", "n"),
                call("3", "third", "n"),
                call("4", "fourth"),
            ),
            wait=False,
        )
        await asyncio.sleep(1.5)
        theatre.crash()

    theatre.enter(host)
    theatre.finish()

    assert stage.log == ["first", "fourth"]


def test_a_call_that_waits_for_a_human_and_may_be_overtaken_is_handed_on_to_nobody() -> None:
    stage = Stage()
    asks = stage.tool(
        "asks", Log("asks"), effect=Effect.WRITE, claims=["write file:x"], approval=True
    )
    theatre = Theatre(stage, asks, *writers(stage), approval_order="overtake")

    async def host(run: Run) -> None:
        wanted = plan(
            call("a", "asks"), call("n", "bad"), call("2", "second", "n", "a"), call("3", "third")
        )
        turn = await run.submit(wanted, wait=False)
        await asyncio.sleep(2)
        assert stage.log == ["third"]
        await run.approve(run.approvals[0].id)
        await turn.wait()

    theatre.enter(host)

    assert stage.log == ["third", "asks"]


def test_who_comes_after_a_skipped_writer_by_another_edge_passes_nobody_either() -> None:
    stage = Stage()
    wanted = plan(
        call("s", "slow"),
        call("n", "bad"),
        call("1", "first", "s"),
        call("2", "second", "n"),
        {**call("3", "third"), "after": ["2"]},
    )

    Theatre(stage, *writers(stage)).play(wanted)

    assert stage.log == ["first", "third"]


def test_what_a_skipped_writer_needed_without_meeting_it_holds_nobody_up() -> None:
    stage = Stage()
    wanted = plan(
        call("s", "slower"), call("n", "bad"), call("2", "second", "n", "s"), call("3", "third")
    )

    Theatre(stage, *writers(stage)).play(wanted)

    assert stage.of("third").span.end < stage.of("slower").span.end


# What a human has refused


def test_nobody_is_asked_again_for_a_nested_call_that_was_refused_before_a_crash() -> None:
    stage = Stage()

    async def outer(context: ToolContext) -> str:
        with pytest.raises(NestedCallFailed, match="APPROVAL_REJECTED"):
            await context.invoke("pay")
        return str(await context.invoke("slow"))

    tools = [
        Tool.of(outer, effect=Effect.WRITE, idempotent=True),
        stage.tool("pay", Log("pay"), effect=Effect.EXTERNAL, approval=True),
        stage.tool("slow", Sleep(5), Return("s")),
    ]
    theatre = Theatre(stage, *tools)

    async def first(run: Run) -> None:
        await run.submit(plan(call("a", "outer")), wait=False)
        await asyncio.sleep(1)
        await run.deny(run.approvals[0].id)
        await asyncio.sleep(1)
        theatre.crash()

    theatre.enter(first)
    turn = theatre.finish()

    assert values(turn) == {"a": "s"}
    assert stage.log == []


@pytest.mark.parametrize("crash", [False, True])
def test_writers_that_need_one_another_and_never_start_hand_on_what_the_first_waited_for(
    *, crash: bool
) -> None:
    stage = Stage()
    theatre = Theatre(stage, *writers(stage))
    wanted = plan(
        call("s", "slow"),
        call("n", "bad"),
        call("1", "first", "s"),
        call("2", "second", "n"),
        call("3", "third", "2"),
        call("4", "fourth"),
    )

    async def host(run: Run) -> None:
        await run.submit(wanted, wait=False)
        await asyncio.sleep(1.5)
        theatre.crash()

    if crash:
        theatre.enter(host)
        turn = theatre.finish()
    else:
        turn = theatre.play(wanted)

    assert (states(turn)["2"], states(turn)["3"]) == (State.SKIPPED, State.SKIPPED)
    assert stage.log == ["first", "fourth"]
