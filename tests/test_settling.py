"""What an unknown effect came to, found out before and after its turn is closed."""

from typing import Any

import pytest

from laneway import Effect, Engine, Failure, Happened, State, Success
from laneway.engine.run import Run
from laneway.errors import UnknownCallError
from laneway.testing import Raise, Return, Sleep, Stage, run_virtual

REPLY: dict[str, Any] = {
    "role": "assistant",
    "content": [
        {"type": "tool_use", "id": "p", "name": "pay", "input": {}},
        {"type": "tool_use", "id": "q", "name": "quick", "input": {}},
    ],
}


def settle(name: str, **found: Any) -> tuple[Run, list[dict[str, Any]]]:
    stage = Stage()
    tools = [
        stage.tool("pay", Raise(ConnectionError("reply lost")), effect=Effect.EXTERNAL),
        stage.tool("quick", Return("done")),
    ]

    async def main() -> tuple[Run, list[dict[str, Any]]]:
        async with Engine(tools, clock=stage.make_clock) as engine, engine.run("r") as run:
            turn = await run.submit(REPLY)
            before = turn.messages
            await run.settle(name, by="ann", **found)
            call = turn.call("p")
            assert turn.messages == before, "a recorded outcome never changes"
            assert call.state is State.UNCERTAIN
            assert isinstance(call.settled, (Success, Failure))
            with pytest.raises(UnknownCallError, match="'p' whose effect is unknown"):
                await run.settle("p", value="again")
            return run, run.history()

    return run_virtual(main)


def test_a_late_settlement_reaches_the_model_as_a_note_behind_the_results() -> None:
    _, history = settle("p", value={"receipt": 7})

    assert [message["role"] for message in history] == ["assistant", "user"]
    note = history[1]["content"][-1]
    assert note["type"] == "text"
    assert note["text"] == (
        '[Note on the call p of pay: it did happen, with the result: {"receipt":7}]'
    )


def test_a_late_settlement_may_be_that_it_failed() -> None:
    _, history = settle("t1.1", failure="the bank never saw it")

    assert "the bank never saw it" in history[1]["content"][-1]["text"]


def test_a_timed_out_effect_can_be_settled_and_a_known_one_cannot() -> None:
    stage = Stage()
    tools = [
        stage.tool("slow", Sleep(9), effect=Effect.EXTERNAL, timeout=1),
        stage.tool("look", Sleep(9), timeout=1),
    ]

    async def main() -> list[Happened]:
        async with Engine(tools, clock=stage.make_clock) as engine, engine.run("r") as run:
            turn = await run.submit(
                {
                    "calls": [
                        {"id": "s", "tool": "slow", "arguments": {}},
                        {"id": "l", "tool": "look", "arguments": {}},
                    ]
                }
            )
            await run.settle("s", value="sent")
            with pytest.raises(UnknownCallError, match="'l' whose effect is unknown"):
                await run.settle("l", value="x")
            return [o.happened for o in turn.outcomes.values() if isinstance(o, Failure)]

    assert run_virtual(main) == [Happened.UNKNOWN, Happened.NOTHING]
