"""Priorities of tools and runs, where calls wait for one lane."""

import asyncio
from typing import Any

import pytest

from laneway import Engine, Run, Tool
from laneway.errors import ToolError, UsageError
from laneway.testing.scripted import Log, Sleep, Stage
from laneway.testing.theatre import Theatre, plan


def call(name: str, tool: str, /, **arguments: Any) -> dict[str, Any]:
    return {"id": name, "tool": tool, "arguments": arguments}


def work(stage: Stage, name: str, priority: int = 0, claims: Any = ("lane:L",)) -> Any:
    return stage.tool(name, Log("{n}"), Sleep(1), claims=claims, priority=priority)


@pytest.mark.parametrize("lanes", [1, 2])
def test_of_calls_that_are_ready_together_the_higher_priority_goes_first(lanes: int) -> None:
    stage = Stage()
    theatre = Theatre(stage, work(stage, "low"), work(stage, "high", 2), lanes={"L": lanes})

    theatre.play(
        plan(*(call(f"l{n}", "low", n=f"low {n}") for n in range(3)), call("h", "high", n="high"))
    )

    assert stage.log == ["high", "low 0", "low 1", "low 2"]


def test_a_run_may_go_first_and_the_two_priorities_add_up() -> None:
    stage = Stage()
    theatre = Theatre(stage, work(stage, "low"), work(stage, "high", 2), work(stage, "late", -9))

    async def host(run: Run) -> None:
        engine = run._engine
        async with engine.run("urgent", priority=1) as urgent, engine.run("usual") as usual:
            first = asyncio.create_task(run.submit(plan(call("a", "low", n="first"))))
            await asyncio.sleep(0.1)
            await asyncio.gather(
                first,
                usual.submit(plan(call("b", "late", n="late"), call("c", "high", n="usual high"))),
                usual_later(engine),
                urgent.submit(plan(call("e", "low", n="urgent"), call("f", "high", n="both"))),
            )

    async def usual_later(engine: Engine) -> None:
        async with engine.run("later") as later:
            await later.submit(plan(call("d", "low", n="usual")))

    theatre.enter(host)

    assert stage.log == ["first", "both", "usual high", "urgent", "usual", "late"]


def test_whoever_has_waited_long_enough_is_overtaken_no_more() -> None:
    stage = Stage()
    theatre = Theatre(stage, work(stage, "low"), work(stage, "high", 1), work(stage, "hold", 5))

    async def host(run: Run) -> None:
        engine = run._engine

        async def ask(name: str, tool: str) -> None:
            async with engine.run(name) as other:
                await other.submit(plan(call("x", tool, n=name)))

        tasks = [asyncio.create_task(ask(f"hold {at}", "hold")) for at in range(40)]
        tasks.append(asyncio.create_task(ask("low", "low")))
        for at in range(3):
            await asyncio.sleep(14)
            tasks.append(asyncio.create_task(ask(f"high {at}", "high")))
        await asyncio.gather(*tasks)

    theatre.enter(host)

    assert [name for name in stage.log if "hold" not in name] == [
        "high 0",
        "high 1",
        "low",
        "high 2",
    ]


@pytest.mark.parametrize("priority", [1001, -1001, 1.5, True, "high"])
def test_a_priority_is_a_whole_number_within_bounds(priority: Any) -> None:
    def add(a: int) -> int:
        return a

    with pytest.raises(ToolError, match=r"priority=.* is none; give a whole number from -1000 to"):
        Tool.of(add, priority=priority)
    with pytest.raises(UsageError, match=r"priority=.* is none; give a whole number from -1000 to"):
        Engine().run("r", priority=priority)
