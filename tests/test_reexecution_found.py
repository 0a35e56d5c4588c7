"""What random runs have found in re-execution, each as small as it could be made."""

import asyncio
from typing import Any

from laneway import Effect
from laneway.engine.reexecution import reexecute
from laneway.engine.run import Run
from laneway.testing.scripted import Raise, Return, Sleep, Stage
from laneway.testing.theatre import RUN, Theatre, plan


def again(theatre: Theatre) -> Any:
    return asyncio.run(reexecute(theatre.journal.facts[RUN]))


def test_a_question_about_a_call_whose_claims_were_narrowed_is_answered_after_a_take_over() -> None:
    stage = Stage()
    theatre = Theatre(
        stage,
        stage.tool("read", Return({"t": "x"}), effect=Effect.READ, claims=[]),
        stage.tool("ask", Return(1), effect=Effect.WRITE, claims=["write db:{t}"], approval=True),
    )
    call = {"id": "q", "tool": "ask", "arguments": {"t": {"$from": "r", "path": "t"}}}

    async def first(run: Run) -> None:
        await run.submit(plan({"id": "r", "tool": "read"}, call), wait=False)
        await asyncio.sleep(1)

    async def second(run: Run) -> None:
        await run.approve("q", by="ann")
        await run.finish()

    theatre.enter(first)
    theatre.enter(second)

    found = again(theatre)
    assert found.same, str(found)


def test_who_passes_a_waiting_human_behind_a_call_that_never_started_is_reproduced() -> None:
    stage = Stage()
    writes: dict[str, Any] = {"effect": Effect.WRITE, "claims": ["write db:a"]}
    theatre = Theatre(
        stage,
        stage.tool("bad", Sleep(1), Raise(ValueError("no")), effect=Effect.READ, claims=[]),
        stage.tool("ask", Return(1), approval=True, **writes),
        stage.tool("write", Return(1), **writes),
    )
    wanted = plan(
        {"id": "n", "tool": "bad"},
        {"id": "q", "tool": "ask"},
        {"id": "s", "tool": "write", "needs": ["n"]},
        {"id": "m", "tool": "write"},
    )

    async def host(run: Run) -> None:
        turn = await run.submit(wanted, wait=False)
        await asyncio.sleep(5)
        assert turn.call("m").outcome is not None
        await run.approve("q")
        await turn.wait()

    theatre.enter(host, approval_order="overtake")

    found = again(theatre)
    assert found.same, str(found)
