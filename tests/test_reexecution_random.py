"""Re-execution of random runs: all kinds of calls, hosts that intervene, crashes, take-overs.

Every run is reproduced from its records alone, and with the host's own tools, whose bodies raise.
"""

import asyncio
import copy
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from laneway import Effect, Engine, Limits, Run, Tool, plan_tool
from laneway.engine.reexecution import reexecute
from laneway.errors import LanewayError
from laneway.facts import Row
from laneway.journal.memory import MemoryJournal, MemoryStore
from laneway.testing import run_virtual
from laneway.testing.scripted import Do, Return, Sleep, Stage
from laneway.testing.theatre import RUN, Theatre

NAMES = ("read", "write", "mail", "asks", "same", "flaky", "lose", "wild", "slow", "wide", "nope")
ANY = {"type": "object", "properties": {"t": {}, "n": {}}}
Draw = dict[str, Any]

ROUNDS = int(os.environ.get("LANEWAY_ROUNDS", "1"))
"""How many times as long to look, and elsewhere each time: `make fuzz` sets it."""


def broken(arguments: Mapping[str, Any]) -> None:
    raise ConnectionError("gone")


def sometimes(arguments: Mapping[str, Any]) -> Any:
    if arguments.get("n", 0) % 3 == 1:
        raise ConnectionError("gone") if arguments["n"] % 2 else ValueError("wrong")
    return {"t": arguments.get("t", "x")}


def tools(stage: Stage) -> list[Any]:
    def made(name: str, *steps: Any, **said: Any) -> Tool[..., Any]:
        return stage.tool(name, *steps, schema=ANY, **said)

    value = Return({"t": "x"})
    write, external = Effect.WRITE, Effect.EXTERNAL
    return [
        made("read", Sleep(1), value, claims=["read db:{t}"]),
        made("write", Sleep(2), value, effect=write, claims=["write db:{t}"]),
        made("mail", Sleep(3), value, effect=external, claims=["lane:mail"], priority=1),
        made("asks", Sleep(1), value, effect=external, claims=["write db:{t}"], approval=True),
        made("same", Sleep(2), Do(sometimes), effect=Effect.PURE, claims=["lane:mail"]),
        made("flaky", Sleep(1), Do(sometimes), retries=1, claims=["lane:wide"]),
        made("lose", Sleep(1), Do(broken), effect=external, claims=["lane:mail"]),
        made("wild", Sleep(1), value, effect=external, claims=["lane:wide", "write db:"]),
        made("slow", Sleep(60), value, claims=["lane:wide"], timeout=4),
        made("wide", Sleep(4), value, claims=["lane:wide"]),
        plan_tool(strict=False),
    ]


@st.composite
def calls(draw: st.DrawFn, most: int = 9) -> list[Draw]:
    found: list[Draw] = []
    for at in range(draw(st.integers(1, most))):
        names = [f"c{before}" for before in range(at)]
        table: Any = draw(st.sampled_from(["a", "b", "a/x"]))
        if names and draw(st.integers(0, 4)) == 0:
            table = {"$from": draw(st.sampled_from(names)), "path": "t"}
        subset = st.lists(st.sampled_from(names), max_size=2) if names else st.just([])
        found.append(
            {
                "id": f"c{at}",
                "tool": draw(st.sampled_from(NAMES)),
                "arguments": {"t": table, "n": draw(st.integers(0, 3))},
                "needs": draw(subset) if draw(st.booleans()) else [],
                "after": draw(subset) if draw(st.booleans()) else [],
            }
        )
    if draw(st.integers(0, 3)) == 0:
        inner = [{**one, "id": f"i{at}"} for at, one in enumerate(draw(calls(3)))]
        plain = [{"id": one["id"], "tool": one["tool"], "arguments": {"t": "a"}} for one in inner]
        found.append({"id": "p", "tool": "plan", "arguments": {"calls": plain}})
    return found


deeds = st.lists(
    st.tuples(
        st.sampled_from(["approve", "deny", "cancel", "cancel all", "settle", "wait"]),
        st.integers(0, 8),
        st.sampled_from([0.0, 0.5, 1.0, 2.5, 7.0]),
    ),
    max_size=5,
)


async def meddle(run: Run, todo: Sequence[tuple[str, int, float]]) -> None:
    for deed, at, seconds in todo:
        await asyncio.sleep(seconds)
        name = f"c{at}"
        with suppress(LanewayError):
            if deed == "approve":
                await run.approve(name, by="ann")
            elif deed == "deny":
                await run.deny(name)
            elif deed == "cancel":
                await run.cancel(name)
            elif deed == "cancel all":
                await run.cancel()
            elif deed == "settle":
                await run.settle(name, value={"t": "y"})


def unenterable(given: Sequence[Any]) -> list[Any]:
    async def body(**_: Any) -> None:
        raise AssertionError("a body was entered")

    found = []
    for tool in given:
        one = copy.copy(tool)
        one.function = body
        found.append(one)
    return found


def reproduced(rows: Sequence[Row], own: Sequence[Any] = (), **options: Any) -> None:
    for given_tools in ((), unenterable(own)):
        found = asyncio.run(reexecute(rows, tools=given_tools, **options))
        assert found.same, "\n".join([str(found), *(f"{row.seq} {row.fact}" for row in rows)])


@settings(max_examples=80 * ROUNDS, derandomize=ROUNDS == 1, deadline=None)
@given(calls(), calls(4), deeds, st.booleans(), st.booleans())
def test_whatever_a_run_was_it_is_reproduced(
    first: list[Draw],
    second: list[Draw],
    todo: list[tuple[str, int, float]],
    serial: bool,
    overtake: bool,
) -> None:
    stage = Stage()
    theatre = Theatre(
        stage,
        *tools(stage),
        lanes={"wide": 2},
        limits=Limits(approval_seconds=20, turn_seconds=30),
        approval_order="overtake" if overtake else "keep",
    )

    async def host(run: Run) -> None:
        turn = await run.submit({"calls": first}, wait=False)
        await meddle(run, todo)
        await turn.wait()
        await turn.close()
        await run.submit({"calls": second}, wait=False)
        await run.finish()

    theatre.enter(host, run={"parallel": not serial})
    entered = dict(stage.entered)

    reproduced(theatre.journal.facts[RUN], theatre.tools)

    assert dict(stage.entered) == entered


@settings(max_examples=50 * ROUNDS, derandomize=ROUNDS == 1, deadline=None)
@given(calls(), deeds, deeds, st.floats(0, 12), st.booleans())
def test_a_run_that_dies_or_is_left_and_is_taken_up_is_reproduced(
    first: list[Draw],
    todo: list[tuple[str, int, float]],
    later: list[tuple[str, int, float]],
    lived: float,
    dies: bool,
) -> None:
    stage = Stage()
    theatre = Theatre(stage, *tools(stage), lanes={"wide": 2}, limits=Limits(approval_seconds=20))

    async def host(run: Run) -> None:
        await run.submit({"calls": first}, wait=False)
        meddling = asyncio.ensure_future(meddle(run, todo))
        await asyncio.sleep(lived)
        if dies:
            theatre.crash()
        meddling.cancel()
        await asyncio.wait([meddling])

    async def heir(run: Run) -> None:
        await meddle(run, later[:1])
        finishing = asyncio.ensure_future(run.finish())
        await meddle(run, later[1:])
        await finishing

    theatre.enter(host)
    theatre.wall_seconds += 10
    theatre.enter(heir)

    reproduced(theatre.journal.facts[RUN], theatre.tools)


@settings(max_examples=35 * ROUNDS, derandomize=ROUNDS == 1, deadline=None)
@given(calls(6), calls(6), st.sampled_from([0.0, 0.5, 1.0, 3.5]))
def test_runs_that_share_lanes_are_reproduced_each_on_its_own(
    first: list[Draw], second: list[Draw], between: float
) -> None:
    stage = Stage()
    own = tools(stage)
    journal = MemoryJournal()

    async def main() -> None:
        engine = Engine(
            own,
            journal=MemoryStore(journal),
            clock=stage.make_clock,
            lanes={"wide": 2},
            limits=Limits(approval_seconds=5),
        )
        async with engine, engine.run("one") as one, engine.run("two") as two:
            running = asyncio.create_task(one.submit({"calls": first}))
            await asyncio.sleep(between)
            await asyncio.gather(running, two.submit({"calls": second}))

    run_virtual(main)

    for rows in journal.facts.values():
        reproduced(rows, own)
