"""Runs that were put into other modes, or stopped, are re-executed as they went."""

import asyncio
from typing import Any

import pytest

from laneway import Decision, Effect, Limits, Policy, Run, StopReason
from laneway.engine.reexecution.rerun import reexecute
from laneway.policies.modes import Mode
from laneway.testing.scripted import Raise, Return, Sleep, Stage
from laneway.testing.theatre import RUN, Theatre, plan

ASKING = Policy(modes=[Mode("careful", frozenset({Effect.PURE, Effect.READ}), Decision.ASK)])


def theatre_of() -> Theatre:
    stage = Stage()
    return Theatre(
        stage,
        stage.tool("edit", Sleep(10), Return("x"), effect=Effect.WRITE, claims=["lane:w"]),
        stage.tool("look", Return("seen"), effect=Effect.READ),
        stage.tool(
            "shaky",
            Raise(ConnectionResetError("gone")),
            effect=Effect.WRITE,
            idempotent=True,
            retries=3,
            claims=[],
        ),
        policy=ASKING,
        limits=Limits(back_off_seconds=50),
    )


def reply() -> dict[str, Any]:
    return plan(
        *({"id": n, "tool": "edit", "arguments": {"n": n}} for n in "abc"),
        {"id": "s", "tool": "shaky"},
        {"id": "d", "tool": "look", "needs": ["a"]},
    )


def told_of(theatre: Theatre, **options: Any) -> str:
    found = asyncio.run(reexecute(theatre.journal.facts[RUN], **options))
    return "" if found.same else str(found)


async def stricter(run: Run) -> None:
    await run.submit(reply(), wait=False)
    await asyncio.sleep(1)
    await run.set_mode("plan", by="ann")
    await run.finish()
    await run.submit(plan({"id": "e", "tool": "edit"}, {"id": "l", "tool": "look"}))


async def asking(run: Run) -> None:
    await run.submit(reply(), wait=False)
    await asyncio.sleep(1)
    await run.set_mode("careful")
    await run.approve("b")
    await run.set_mode("build")
    await run.set_mode("careful")
    await run.deny("c")
    await run.finish()


async def called_off(run: Run) -> None:
    await run.submit(reply(), wait=False)
    await asyncio.sleep(1)
    await run.stop(StopReason.CANCELLED, "enough")
    await run.finish()
    await run.submit(plan({"id": "l", "tool": "look"}))
    await run.resume(by="ann")
    await run.submit(plan({"id": "m", "tool": "look"}))


async def completed(run: Run) -> None:
    await run.stop(StopReason.COMPLETED)
    await run.submit(plan({"id": "m", "tool": "look"}))


@pytest.mark.parametrize("host", [stricter, asking, called_off, completed])
def test_a_run_goes_the_way_that_is_recorded(host: Any) -> None:
    theatre = theatre_of()
    theatre.enter(host)

    assert told_of(theatre) == ""
    assert told_of(theatre, tools=theatre.tools, policy=ASKING) == ""


def test_a_mode_that_the_host_gives_counts_instead_of_all_that_is_recorded() -> None:
    theatre = theatre_of()
    theatre.enter(stricter)

    told = told_of(theatre, tools=theatre.tools, policy=ASKING, mode="build")

    assert "denied by rule 'mode plan'" in told
