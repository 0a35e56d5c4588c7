"""The lanes of a running engine: paused, drained, cleared, resized, bounded, rated, grouped."""

import asyncio
import gc
import math
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laneway import (
    Code,
    Effect,
    Engine,
    Failure,
    Lane,
    Limits,
    Rate,
    Run,
    State,
    Tool,
    ToolContext,
    Turn,
    tool,
)
from laneway.claims import Claim, exclusive
from laneway.engine.controls import Lanes
from laneway.engine.doors import Doors
from laneway.engine.waking import Waking
from laneway.errors import EngineClosedError, EngineFaultError, ToolError, UsageError
from laneway.facts import CallQueued, HolderStopped, LaneChanged
from laneway.lanes.lane import Joined, lanes_of
from laneway.lanes.names import BadResourceError, Names
from laneway.lanes.table import LaneTable
from laneway.testing import run_virtual
from laneway.testing.scripted import Block, Do, Raise, Return, Sleep, Stage
from laneway.testing.theatre import Theatre, codes, failure, plan, states

ROUNDS = int(os.environ.get("LANEWAY_ROUNDS", "1"))
"""How many times as long to look: `make fuzz` sets it."""

T = TypeVar("T")
Host = Callable[[Engine, Run], Awaitable[T]]

ANY = {"type": "object"}


def play(stage: Stage, tools: Sequence[Any], host: Host[T], **options: Any) -> T:
    """Let a host do its work with an engine and a run called r, on virtual time."""

    async def main() -> T:
        async with (
            Engine(tools, clock=stage.make_clock, **options) as engine,
            engine.run("r") as run,
        ):
            return await host(engine, run)

    return run_virtual(main)


def calls(tool: str, count: int, **arguments: Any) -> list[dict[str, Any]]:
    return [
        {"id": f"{tool}{n}", "tool": tool, "arguments": {**arguments, "n": n}} for n in range(count)
    ]


def deaf(seconds: float) -> Do:
    """A body that swallows whatever would stop it, for so long."""

    async def body(_: Any) -> str:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while (left := end - loop.time()) > 0:
            try:
                await asyncio.sleep(left)
            except asyncio.CancelledError:
                continue
        return "late"

    return Do(body)


def starts(stage: Stage, tool: str) -> list[float]:
    """When the bodies of a tool were entered, in seconds after the beginning."""
    return [one.start - 1000 for one in stage.executions if one.tool == tool]


def most_at_once(stage: Stage, *tools: str) -> int:
    """How many bodies of some tools were at work together at most."""
    spans = [(one.start, one.end or math.inf) for one in stage.executions if one.tool in tools]
    return max(sum(a <= begun < b for a, b in spans) for begun, _ in spans)


def most_in(window: float, found: Sequence[float]) -> int:
    """How many starts a window of so many seconds ever saw."""
    return max(sum(begun <= one < begun + window for one in found) for begun in found)


def test_a_lane_that_nobody_uses_has_a_status_too() -> None:
    async def host(engine: Engine, _: Run) -> list[tuple[str, int | None, int]]:
        engine.lanes.reset("new")
        engine.lanes.pause("db:shop")
        seen = [engine.lanes.status(name) for name in ("x", "db:y", "new", "db:shop")]
        assert [one.paused for one in seen] == [False, False, False, True]
        return [(one.resource, one.max_concurrent, one.generation) for one in seen]

    assert play(Stage(), [], host) == [
        ("lane:x", 1, 1),
        ("db:y", None, 1),
        ("lane:new", 1, 2),
        ("db:shop", None, 1),
    ]


async def passes(seconds: float) -> None:
    await asyncio.sleep(seconds)


# What a host may say of lanes


@pytest.mark.parametrize(
    ("lanes", "told"),
    [
        ({"mail": 0}, "max_concurrent of lane:mail is 0; a lane lets at least 1 in"),
        ({"mail": 1.5}, "max_concurrent of lane:mail is 1.5; give a whole number"),
        ({"mail": True}, "max_concurrent of lane:mail is True; give a whole number"),
        ({"mail": 1, "lane:mail": 2}, "names lane:mail twice, as 'mail' and 'lane:mail'"),
        ({"engine/threads": 3}, r"the engine's own; Limits\(tool_threads=…\) says how wide"),
        ({"mail": Lane(max_waiting=-1)}, "max_waiting of lane:mail is -1; give a whole number"),
        ({"mail": Lane(max_waiting=1.5)}, "max_waiting of lane:mail is 1.5"),  # type: ignore[arg-type]
        ({"mail": Lane(max_waiting=0)}, "is 0, so nobody could ever wait for room; give 1 or more"),
        ({"mail": Lane(when_full="refuse")}, "says nothing without a max_waiting; give one"),
        ({"mail": Lane(when_full="no")}, "when_full of lane:mail is 'no'; give 'wait' or"),  # type: ignore[arg-type]
        ({"mail": Lane(rate=5)}, r"rate of lane:mail is 5; give Rate\(starts=…, per_seconds=…\)"),  # type: ignore[arg-type]
        (
            {"mail": Lane(rate=Rate(starts=0, per_seconds=1))},
            "starts in the rate of lane:mail is 0",
        ),
        (
            {"mail": Lane(rate=Rate(starts=1, per_seconds=0))},
            "per_seconds in the rate of lane:mail",
        ),
        ({"mail": Lane(rate=Rate(starts=1, per_seconds=math.inf))}, "is inf; give seconds"),
        ({"mail": Lane(tools="send")}, "tools='send' of lane:mail is a text; give a list of texts"),
        ({"mail": Lane(risks=[""])}, "of lane:mail: give texts that are not empty"),
        ({"mail": Lane(over=["lane:mail"])}, "over= of lane:mail names the lane itself"),
        ({"mail": Lane(reserved={"db:a": 1})}, r"db:a, which is not within .* over \(nothing\)"),
        (
            {"s": Lane(over=["db:s"], reserved={"db:t": 1})},
            r"reserved= of lane:s names db:t, which is not within what the lane is over \(db:s\)",
        ),
        (
            {"s": Lane(max_concurrent=9, over=["db:s"], reserved={"db:s/a": 1, "db:s/a/b": 1})},
            "reserved= of lane:s names db:s/a and db:s/a/b, which overlap",
        ),
        ({"s": Lane(over=["db:s"], reserved={"db:s/a": 0})}, "of lane:s: give 1 or more"),
        (
            {"s": Lane(max_concurrent=None, over=["db:s"], reserved={"db:s/a": 1})},
            "reserved= of lane:s needs a max_concurrent, of which it keeps a part",
        ),
        (
            {"s": Lane(max_concurrent=3, over=["db:s"], reserved={"db:s/a": 2, "db:s/b": 1})},
            "keeps 3 of max_concurrent=3, which leaves no slot to all others; give it 4 or more",
        ),
        (
            {"db:s": Lane(max_concurrent=2, tools=["q"])},
            r"db:s is no lane, so it takes .*.*'lane:db/s' with over=\['db:s'\]",
        ),
        ({"db:s": Lane(max_concurrent=None)}, "of db:s is None, which is how it is without"),
    ],
)
def test_a_lane_that_makes_no_sense_is_told_where_the_engine_is_made(
    lanes: Mapping[str, Any], told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        Engine(lanes=lanes)


def test_a_lane_without_a_name_is_told_there_too() -> None:
    with pytest.raises(BadResourceError, match="name one, as in lane:mail"):
        Engine(lanes={"lane:": 1})


def test_names_in_a_lane_are_made_canonical() -> None:
    names = Names("/w")

    found = lanes_of(
        {"x": Lane(max_concurrent=4, over=["file:src/../lib"], reserved={"file:lib//a": 2})}, names
    )

    assert found["lane:x"].over == ("file:/w/lib",)
    assert found["lane:x"].reserved == {"file:/w/lib/a": 2}


def test_a_number_stands_for_max_concurrent_of_lanes_and_resources() -> None:
    stage = Stage()
    tools = [
        stage.tool("send", Sleep(1), claims=["lane:mail"]),
        stage.tool("look", Sleep(1), claims=["read db:shop"]),
    ]

    play(
        stage,
        tools,
        lambda _, run: run.submit(plan(*calls("send", 4), *calls("look", 6))),
        lanes={"mail": 2, "db:shop": Lane(max_concurrent=3)},
    )

    assert most_at_once(stage, "send") == 2
    assert most_at_once(stage, "look") == 3


# Lanes by tool, session, risk


def test_calls_join_the_lanes_of_their_tool_their_run_and_their_risk() -> None:
    stage = Stage()
    tools = [
        stage.tool("send_mail", Sleep(1)),
        stage.tool("send_sms", Sleep(1)),
        stage.tool("wipe", Sleep(1), risk="high"),
        stage.tool("read", Sleep(1)),
    ]
    joined: dict[str, list[str]] = {}

    async def host(engine: Engine, run: Run) -> None:
        async with engine.run("vip-7") as vip:
            reply = plan(
                *(
                    one
                    for name in ("send_mail", "send_sms", "wipe", "read")
                    for one in calls(name, 1)
                )
            )
            turns = [await one.submit(reply) for one in (run, vip)]
        for turn in turns:
            for call in turn.calls:
                lanes = [claim.resource for claim in call.record.claims[1:]]
                joined[f"{turn._run.id}/{call.record.tool}"] = lanes

    play(
        stage,
        tools,
        host,
        lanes={
            "send": Lane(tools=["send_*"]),
            "vip": Lane(runs=["vip-*"], max_concurrent=2),
            "risky": Lane(risks=["high", "highest"]),
            "vip sms": Lane(tools=["*_sms"], runs=["vip-*"]),
        },
    )

    assert joined == {
        "r/send_mail": ["lane:send"],
        "r/send_sms": ["lane:send"],
        "r/wipe": ["lane:risky"],
        "r/read": [],
        "vip-7/send_mail": ["lane:send", "lane:vip"],
        "vip-7/send_sms": ["lane:send", "lane:vip", "lane:vip sms"],
        "vip-7/wipe": ["lane:vip", "lane:risky"],
        "vip-7/read": ["lane:vip"],
    }


def test_a_lane_that_calls_join_lets_them_wait_but_makes_no_order_between_them() -> None:
    stage = Stage()
    tools = [stage.tool("a", Sleep(2)), stage.tool("b", Raise(ValueError("no")))]

    turn = play(
        stage,
        tools,
        lambda _, run: run.submit(plan(*calls("b", 1), *calls("a", 2))),
        lanes={"all": Lane(tools=["*"])},
    )

    assert most_at_once(stage, "a", "b") == 1
    assert states(turn)["a1"] is State.SUCCEEDED


def test_a_lane_that_the_tool_claims_itself_is_claimed_once() -> None:
    stage = Stage()
    tools = [stage.tool("send", Return("x"), claims=["lane:mail"])]

    turn = play(
        stage,
        tools,
        lambda _, run: run.submit(plan(*calls("send", 1))),
        lanes={"mail": Lane(tools=["send"])},
    )

    (call,) = turn.calls
    assert [claim.resource for claim in call.record.claims] == ["run:r", "lane:mail"]


def test_whoever_takes_a_run_up_claims_what_was_joined() -> None:
    stage = Stage()
    theatre = Theatre(stage, stage.tool("send", Sleep(5)), lanes={"all": Lane(tools=["send"])})

    async def crash(run: Run) -> None:
        await run.submit(plan(*calls("send", 2)), wait=False)
        await asyncio.sleep(1)
        theatre.crash()

    theatre.enter(crash)
    theatre.finish()

    assert starts(stage, "send") == [0, 0, 5]


def test_joined_lanes_are_looked_up_once_for_each_tool_and_run() -> None:
    looked = Joined({"lane:a": Lane(tools=["x*"]), "lane:b": Lane()})

    assert looked
    assert not Joined({"lane:b": Lane()})
    assert looked.claims("x1", "r", "") is looked.claims("x1", "r", "")
    for n in range(5000):
        looked.claims("x1", f"r{n}", "")
    assert [claim.resource for claim in looked.claims("x1", "r", "")] == ["lane:a"]


def test_the_risk_of_a_tool_is_a_word_and_part_of_its_version() -> None:
    def delete() -> None:
        """Delete."""

    low, high = tool(delete, risk="low"), tool(delete, risk="high")

    assert (low.spec.risk, tool(delete).spec.risk) == ("low", "")
    assert len({low.spec.version, high.spec.version, tool(delete).spec.version}) == 3
    with pytest.raises(ToolError, match="risk='very high' is no word; give one such as 'low'"):
        tool(delete, risk="very high")
    with pytest.raises(ToolError, match="risk=3 is no word"):
        tool(delete, risk=3)  # type: ignore[call-overload]


# Pause and resume


def test_a_paused_lane_lets_those_inside_go_on_and_nobody_in() -> None:
    stage = Stage()
    tools = [stage.tool("send", Sleep(1), claims=["lane:mail"])]

    async def host(engine: Engine, run: Run) -> list[str]:
        turn = await run.submit(plan(*calls("send", 3)), wait=False)
        await passes(0.5)
        engine.lanes.pause("mail")
        engine.lanes.pause("lane:mail")
        await passes(5)
        told = [str(one) for one in run.explain()]
        assert engine.lanes.status("mail").paused
        engine.lanes.resume("mail")
        await turn.wait()
        assert not engine.lanes.status("mail").paused
        return told

    told = play(stage, tools, host)

    assert starts(stage, "send") == [0, 5.5, 6.5]
    assert told == [
        "t1.2 send QUEUED for 5.500 s: lane lane:mail paused",
        "t1.3 send QUEUED for 5.500 s: lane lane:mail paused",
    ]


def test_a_paused_resource_holds_up_what_overlaps_it_and_nothing_else() -> None:
    stage = Stage()
    tools = [
        stage.tool(name, Return(name), effect=Effect.WRITE, claims=["write file:{path}"])
        for name in ("below", "above", "beside")
    ]

    async def host(engine: Engine, run: Run) -> tuple[Turn, list[str]]:
        engine.lanes.pause("file:src")
        paths = {"below": "src/deep/a", "above": ".", "beside": "lib/a"}
        turn = await run.submit(
            plan(
                *(
                    {"id": n, "tool": n, "arguments": {"path": p}}
                    for n, p in reversed(paths.items())
                )
            ),
            wait=False,
        )
        await passes(3)
        told = [f"{one.name}: {one.waits[0]}" for one in run.explain()]
        assert engine.lanes.status("file:src").paused
        engine.lanes.resume("file:src")
        engine.lanes.resume("file:src")
        await turn.wait()
        return turn, told

    turn, told = play(stage, tools, host, workspace="/w")

    assert set(states(turn).values()) == {State.SUCCEEDED}
    assert starts(stage, "beside") == [0]
    assert told[0] == "above: lane file:/w/src paused"
    assert starts(stage, "above") == [3]


def test_a_pause_of_a_resource_goes_before_those_who_wait_already() -> None:
    stage = Stage()
    tools = [stage.tool("edit", Sleep(1), effect=Effect.WRITE, claims=["write file:a"])]

    async def host(engine: Engine, run: Run) -> None:
        async with engine.run("s") as second:
            turns = [await one.submit(plan(*calls("edit", 1)), wait=False) for one in (run, second)]
            await passes(0.5)
            engine.lanes.pause("file:.")
            await passes(9.5)
            engine.lanes.resume("file:.")
            for turn in turns:
                await turn.wait()

    play(stage, tools, host)

    assert starts(stage, "edit") == [0, 10]


def test_a_nested_call_goes_on_in_a_paused_lane_with_the_slot_of_its_parent() -> None:
    stage = Stage()

    async def outer(context: ToolContext, **_: Any) -> Any:
        await asyncio.sleep(1)
        return await context.invoke("inner")

    tools = [
        Tool.from_schema(outer, name="outer", schema=ANY, effect=Effect.WRITE, claims=["lane:m"]),
        stage.tool("inner", Return("in"), claims=["lane:m"]),
    ]

    async def host(engine: Engine, run: Run) -> Turn:
        turn = await run.submit(plan(*calls("outer", 1)), wait=False)
        await passes(0.5)
        assert await engine.lanes.drain("m")
        return turn

    turn = play(stage, tools, host)

    assert states(turn) == {"outer0": State.SUCCEEDED}
    assert starts(stage, "inner") == [1]


# Drain, clear, resize, idle


def test_a_drain_returns_when_the_last_has_left_and_keeps_the_lane_paused() -> None:
    stage = Stage()
    tools = [stage.tool("send", Sleep(2), claims=["lane:mail"])]

    async def host(engine: Engine, run: Run) -> None:
        turn = await run.submit(plan(*calls("send", 3)), wait=False)
        await passes(0.5)
        drain = asyncio.create_task(engine.lanes.drain("mail"))
        await passes(0.5)
        status = engine.lanes.status("mail")
        assert (status.paused, status.draining, len(status.holders)) == (True, True, 2)
        assert await drain
        assert asyncio.get_running_loop().time() == 1002
        status = engine.lanes.status("mail")
        assert (status.paused, status.draining, len(status.waiters)) == (True, False, 1)
        assert await engine.lanes.drain("mail")
        await passes(10)
        engine.lanes.resume("mail")
        await turn.wait()

    play(stage, tools, host, lanes={"mail": 2})

    assert starts(stage, "send") == [0, 0, 12]


@pytest.mark.parametrize("name", ["lane:mail", "file:src"])
def test_a_drain_that_is_resumed_before_says_so(name: str) -> None:
    stage = Stage()
    claim = name if "lane" in name else f"write {name}"
    tools = [stage.tool("work", Sleep(2), effect=Effect.WRITE, claims=[claim])]

    async def host(engine: Engine, run: Run) -> tuple[bool, bool, float]:
        turn = await run.submit(plan(*calls("work", 2)), wait=False)
        drains = [asyncio.create_task(engine.lanes.drain(name)) for _ in range(2)]
        await passes(1)
        drains[1].cancel()
        await passes(0)
        engine.lanes.resume(name)
        emptied = await drains[0]
        await turn.wait()
        return emptied, drains[1].cancelled(), asyncio.get_running_loop().time()

    assert play(stage, tools, host) == (False, True, 1004)


def test_a_drained_resource_is_free_of_all_that_overlaps_it() -> None:
    stage = Stage()
    tools = [stage.tool("edit", Sleep(2), effect=Effect.WRITE, claims=["write file:{path}"])]

    async def host(engine: Engine, run: Run) -> float:
        turn = await run.submit(plan(*calls("edit", 1, path="src/a")), wait=False)
        await passes(0)
        assert await engine.lanes.drain("file:src")
        free = asyncio.get_running_loop().time()
        engine.lanes.resume("file:src")
        await turn.wait()
        return free

    assert play(stage, tools, host) == 1002


def test_clearing_a_lane_cancels_its_waiters_over_all_runs_and_names_them() -> None:
    stage = Stage()
    tools = [
        stage.tool("send", Sleep(2), claims=["lane:mail"]),
        stage.tool("after", Return("x")),
    ]

    async def host(engine: Engine, run: Run) -> tuple[tuple[str, ...], Turn, Turn]:
        async with engine.run("s") as second:
            reply = plan(*calls("send", 2), {"id": "after", "tool": "after", "needs": ["send1"]})
            one = await run.submit(reply, wait=False)
            two = await second.submit(plan(*calls("send", 1)), wait=False)
            await passes(0.5)
            cleared = engine.lanes.clear("mail", reason="the provider is down")
            assert engine.lanes.clear("mail") == ()
            await one.wait()
            await two.wait()
            return cleared, one, two

    cleared, one, two = play(stage, tools, host)

    assert cleared == ("r/t1.2", "s/t1.1")
    assert states(one) == {
        "send0": State.SUCCEEDED,
        "send1": State.CANCELLED,
        "after": State.SKIPPED,
    }
    told = failure(one, "send1")
    assert told.code is Code.CANCELLED
    assert told.message == (
        "The call was cancelled: the provider is down. It had not been started."
    )
    assert states(two) == {"send0": State.CANCELLED}


def test_clearing_a_lane_cancels_those_who_wait_for_the_same_call_too() -> None:
    stage = Stage()
    same = stage.tool("same", Sleep(1), claims=["lane:m"], effect=Effect.PURE, schema=ANY)

    async def host(engine: Engine, run: Run) -> tuple[tuple[str, ...], dict[str, Code]]:
        engine.lanes.pause("m")
        turn = await run.submit(
            plan(*({"id": f"s{n}", "tool": "same"} for n in range(3))), wait=False
        )
        await passes(1)
        cleared = engine.lanes.clear("m")
        assert not engine.lanes.status("m").waiters
        await turn.wait()
        return cleared, codes(turn)

    cleared, told = play(stage, [same], host)

    assert cleared == ("r/t1.1", "r/t1.2", "r/t1.3")
    assert set(told.values()) == {Code.CANCELLED}


def test_clearing_a_resource_cancels_who_waits_for_what_overlaps_it() -> None:
    stage = Stage()
    tools = [
        stage.tool("edit", Sleep(2), effect=Effect.WRITE, claims=["write file:{path}"]),
    ]

    async def host(engine: Engine, run: Run) -> tuple[str, ...]:
        async with engine.run("s") as second:
            one = await run.submit(plan(*calls("edit", 1, path="src/a")), wait=False)
            two = await second.submit(
                plan(
                    *calls("edit", 1, path="src"),
                    {"id": "x", "tool": "edit", "arguments": {"path": "lib"}},
                ),
                wait=False,
            )
            await passes(0.5)
            cleared = engine.lanes.clear("file:src/a")
            await one.wait()
            await two.wait()
            return cleared

    assert play(stage, tools, host) == ("s/t1.1",)


def test_a_lane_is_resized_while_it_is_busy() -> None:
    stage = Stage()
    tools = [stage.tool("send", Sleep(2), claims=["lane:mail"])]

    async def host(engine: Engine, run: Run) -> Turn:
        turn = await run.submit(plan(*calls("send", 8)), wait=False)
        await passes(1)
        engine.lanes.resize("mail", 3)
        assert engine.lanes.status("mail").max_concurrent == 3
        await passes(2.5)
        engine.lanes.resize("mail", 1)
        await turn.wait()
        return turn

    turn = play(stage, tools, host)

    assert starts(stage, "send") == [0, 1, 1, 2, 3, 3, 5, 7]
    assert set(states(turn).values()) == {State.SUCCEEDED}


def test_a_lane_made_so_narrow_that_a_nested_call_waits_for_itself_fails_that_call() -> None:
    stage = Stage()

    async def first(context: ToolContext, **_: Any) -> Any:
        await asyncio.sleep(1)
        return await context.invoke("file")

    async def second(context: ToolContext, **_: Any) -> Any:
        await asyncio.sleep(1)
        return await context.invoke("slot")

    tools = [
        Tool.from_schema(first, name="first", schema=ANY, effect=Effect.WRITE, claims=["lane:m"]),
        Tool.from_schema(
            second, name="second", schema=ANY, effect=Effect.WRITE, claims=["write file:a"]
        ),
        stage.tool("hold", Sleep(3), claims=["lane:m"]),
        stage.tool("file", Return("f"), effect=Effect.WRITE, claims=["write file:a"]),
        stage.tool("slot", Return("s"), claims=["lane:m"]),
    ]

    async def host(engine: Engine, run: Run) -> Turn:
        turn = await run.submit(
            plan(*calls("first", 1), *calls("second", 1), *calls("hold", 1)), wait=False
        )
        await passes(2)
        engine.lanes.resize("m", 1)
        await turn.wait()
        return turn

    turn = play(stage, tools, host, lanes={"m": 2})

    assert Code.LANE_DEADLOCK in codes(turn).values()
    assert State.SUCCEEDED in states(turn).values()


def test_idle_returns_when_nobody_holds_or_waits_any_more() -> None:
    stage = Stage()
    tools = [
        stage.tool("send", Sleep(2), claims=["lane:mail"]),
        stage.tool("edit", Sleep(5), effect=Effect.WRITE, claims=["write file:src/a"]),
    ]

    async def host(engine: Engine, run: Run) -> list[float]:
        loop = asyncio.get_running_loop()
        await engine.lanes.idle("mail")
        turn = await run.submit(plan(*calls("send", 2), *calls("edit", 1)), wait=False)
        await passes(0)
        idle = [loop.time()]
        await engine.lanes.idle("mail")
        idle.append(loop.time())
        await engine.lanes.idle("file:src")
        idle.append(loop.time())
        await turn.wait()
        return idle

    assert play(stage, tools, host) == [1000, 1004, 1005]


def test_whoever_sleeps_on_a_lane_is_told_when_the_engine_is_left() -> None:
    stage = Stage()
    tools = [stage.tool("send", deaf(50), claims=["lane:mail"])]

    async def main() -> list[Any]:
        engine = Engine(tools, clock=stage.make_clock, limits=Limits(grace_seconds=0.5))
        async with engine, engine.run("r") as run:
            await run.submit(plan(*calls("send", 1)), wait=False)
            await passes(1)
            lanes = engine.lanes

            async def bar() -> None:
                async with lanes.alone("run:r"):
                    raise AssertionError("it cannot get in")

            asleep = [
                asyncio.create_task(one) for one in (lanes.idle("mail"), lanes.drain("mail"), bar())
            ]
            await passes(1)
        with pytest.raises(EngineClosedError):
            engine.lanes  # noqa: B018 - the property is what is tried
        return await asyncio.gather(*asleep, return_exceptions=True)

    assert [type(one) for one in run_virtual(main)] == [EngineClosedError] * 3


def test_a_pause_that_ends_with_the_engine_is_no_error_of_the_loop() -> None:
    told: list[str] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, about: told.append(str(about)))
        async with Engine() as engine:
            engine.lanes.pause("db:shop")
        gc.collect()
        await passes(0)

    run_virtual(main)

    assert told == []


def test_who_is_woken_in_the_moment_in_which_the_engine_is_left_stays_awake() -> None:
    async def main() -> None:
        waking = Waking()
        sleeper = waking.future()
        Waking.wake(sleeper)
        waking.close()
        with pytest.raises(EngineClosedError):
            waking.future()
        await sleeper

    run_virtual(main)


@pytest.mark.parametrize("deed", ["pause", "resume", "clear", "reset", "drain", "idle", "alone"])
def test_the_controls_of_an_engine_that_was_left_say_so(deed: str) -> None:
    stage = Stage()
    tools = [stage.tool("send", deaf(50), claims=["lane:mail"])]

    async def main() -> None:
        engine = Engine(tools, clock=stage.make_clock)
        async with engine, engine.run("r") as run:
            await run.submit(plan(*calls("send", 1)), wait=False)
            await passes(1)
            lanes = engine.lanes

        async def try_it() -> None:
            done = getattr(lanes, deed)("mail" if deed != "alone" else "db:shop")
            await (done.__aenter__() if deed == "alone" else done)

        with pytest.raises(EngineClosedError):
            await try_it()

    run_virtual(main)


@pytest.mark.parametrize("deed", ["drain", "idle"])
def test_a_body_cannot_wait_for_its_own_call_to_leave_a_lane(deed: str) -> None:
    stage = Stage()
    engines: list[Engine] = []

    async def inner(_: Any) -> None:
        lanes = engines[0].lanes
        await getattr(lanes, deed)("sms")
        assert not lanes.status("mail").paused
        await getattr(lanes, deed)("mail")

    async def outer(context: ToolContext) -> str:
        """Hold the lane for what is called."""
        return str(await context.invoke("inner"))

    tools = [
        stage.tool("inner", Do(inner)),
        tool(outer, effect=Effect.READ, claims=["lane:mail"], timeout=math.inf),
    ]

    async def host(engine: Engine, run: Run) -> Turn:
        engines.append(engine)
        return await run.submit(plan({"id": "o", "tool": "outer"}))

    found = failure(play(stage, tools, host, limits=Limits(turn_seconds=math.inf)), "o")

    assert f"{deed}('lane:mail') in the body of r/t1.1, which is in it, would wait" in found.message


def test_another_thread_is_told_how_to_reach_the_controls() -> None:
    stage = Stage()
    engines: list[Engine] = []

    def control(**_: Any) -> None:
        engines[0].lanes.resume("mail")

    async def host(engine: Engine, run: Run) -> Turn:
        engines.append(engine)
        return await run.submit(plan({"id": "c", "tool": "control"}))

    control_tool = Tool.from_schema(
        control, name="control", description="Control.", schema=ANY, effect=Effect.READ, claims=[]
    )

    found = failure(play(stage, [control_tool], host), "c")

    assert "use loop.call_soon_threadsafe(engine.lanes.pause, name)" in found.message


# Runs alone


def test_alone_waits_for_holders_then_keeps_out_only_what_overlaps() -> None:
    stage = Stage()
    tools = [stage.tool("edit", Sleep(2), effect=Effect.WRITE, claims=["write file:{path}"])]
    inside: list[float] = []

    async def host(engine: Engine, run: Run) -> None:
        loop = asyncio.get_running_loop()
        turn = await run.submit(
            plan(
                {"id": "a", "tool": "edit", "arguments": {"path": "src/a", "n": "a"}},
                {"id": "b", "tool": "edit", "arguments": {"path": "src/a", "n": "b"}},
                {"id": "c", "tool": "edit", "arguments": {"path": "lib", "n": "c"}},
            ),
            wait=False,
        )
        await passes(1)
        async with engine.lanes.alone("file:src", "db:shop"):
            inside.append(loop.time())
            await passes(10)
            inside.append(loop.time())
        await turn.wait()

    play(stage, tools, host, lanes={})

    assert inside == [1002, 1012]
    assert sorted(starts(stage, "edit")) == [0, 0, 12]


def test_alone_that_is_given_up_lets_the_others_in() -> None:
    stage = Stage()
    tools = [stage.tool("edit", Sleep(2), claims=["read file:src"])]

    async def host(engine: Engine, run: Run) -> None:
        async def bar() -> None:
            async with engine.lanes.alone("file:src"):
                raise AssertionError("it has been cancelled before")

        first = await run.submit(plan(*calls("edit", 1)), wait=False)
        await passes(0.5)
        barring = asyncio.create_task(bar())
        await passes(0)
        async with engine.run("s") as second:
            turn = await second.submit(plan(*calls("edit", 1)), wait=False)
            await passes(0.5)
            (told,) = second.explain()
            assert str(told.waits[0]) == f"lane file:{engine.services.names.workspace}/src paused"
            barring.cancel()
            await turn.wait()
        await first.wait()

    play(stage, tools, host)

    assert starts(stage, "edit") == [0, 1]


def test_two_who_want_to_be_alone_are_so_one_after_the_other() -> None:
    spans: list[tuple[str, float]] = []

    async def host(engine: Engine, _: Run) -> None:
        async def bar(name: str) -> None:
            async with engine.lanes.alone("file:src"):
                spans.append((name, asyncio.get_running_loop().time()))
                await passes(2)

        await asyncio.gather(bar("a"), bar("b"))

    play(Stage(), [], host)

    assert spans == [("a", 1000), ("b", 1002)]


def test_alone_is_not_for_lanes_nor_for_tools() -> None:
    found: list[str] = []
    engines: list[Engine] = []

    async def body(context: ToolContext) -> None:
        with pytest.raises(UsageError, match=r"alone\(\) cannot be used in a tool's body"):
            async with engines[0].lanes.alone("file:src"):
                pass
        found.append(context.tool)

    async def host(engine: Engine, run: Run) -> None:
        engines.append(engine)
        with pytest.raises(UsageError, match="such as 'file:src', not lane:mail; drain a lane"):
            async with engine.lanes.alone("file:src", "mail"):
                pass
        with pytest.raises(UsageError, match="not nothing"):
            async with engine.lanes.alone():
                pass
        await run.submit(plan(*calls("body", 1)))

    play(Stage(), [Tool.from_schema(body, name="body", schema=ANY, claims=[])], host)

    assert found == ["body"] or not found


@pytest.mark.parametrize("deed", ["pause", "resume", "clear", "reset"])
def test_the_lanes_of_the_engine_itself_are_not_to_be_touched(deed: str) -> None:
    async def host(engine: Engine, _: Run) -> None:
        with pytest.raises(UsageError, match=r"engine's own; Engine\(limits=…\) says how wide"):
            getattr(engine.lanes, deed)("engine/threads")

    play(Stage(), [], host)


# Rates


def test_a_call_cannot_name_a_lane_of_the_engine_itself() -> None:
    stage = Stage()
    box = stage.tool("box", claims=["lane:{account}/{box}"], sync=True)

    turn = play(
        stage,
        [box],
        lambda _, run: run.submit(
            plan({"id": "b", "tool": "box", "arguments": {"account": "engine", "box": "threads"}})
        ),
        limits=Limits(tool_threads=1),
    )

    assert failure(turn, "b").code is Code.INVALID_ARGUMENTS
    assert "lane:engine/threads is a lane of the engine's own" in failure(turn, "b").message


def test_a_rate_never_lets_more_start_in_any_window() -> None:
    stage = Stage()
    tools = [stage.tool("api", Sleep(0.5), claims=["lane:api"])]

    async def host(engine: Engine, run: Run) -> list[str]:
        turn = await run.submit(plan(*calls("api", 8)), wait=False)
        await passes(6.8)
        told = [str(one.waits[0]) for one in run.explain()]
        assert engine.lanes.status("api").rate == Rate(starts=3, per_seconds=10)
        await turn.wait()
        return told

    told = play(
        stage,
        tools,
        host,
        lanes={"api": Lane(max_concurrent=2, rate=Rate(starts=3, per_seconds=10))},
    )

    assert starts(stage, "api") == [0, 0, 0.5, 10, 10, 10.5, 20, 20]
    assert set(told) == {"rate of lane:api: next start in 3.200 s"}


def test_who_waits_for_the_start_of_another_that_waits_elsewhere_is_told_so() -> None:
    stage = Stage()
    tools = [
        stage.tool("edit", Sleep(1), effect=Effect.WRITE, claims=["write file:a"]),
        stage.tool("both", Return("x"), effect=Effect.WRITE, claims=["write file:a", "lane:api"]),
        stage.tool("api", Return("x"), claims=["lane:api"]),
    ]

    async def host(engine: Engine, run: Run) -> list[str]:
        async with engine.run("s") as second:
            first = await run.submit(plan(*calls("edit", 1)), wait=False)
            turn = await second.submit(plan(*calls("both", 1), *calls("api", 1)), wait=False)
            await passes(0.5)
            told = [str(wait) for wait in second.explain()[1].waits]
            await first.wait()
            await turn.wait()
            return told

    told = play(
        stage,
        tools,
        host,
        lanes={"api": Lane(max_concurrent=None, rate=Rate(starts=1, per_seconds=10))},
    )

    assert told == ["rate of lane:api: next start after those before it"]
    assert starts(stage, "api") == [11]


def test_every_attempt_is_a_start() -> None:
    stage = Stage()
    tools = [stage.tool("api", Raise(ConnectionError("gone")), retries=2, claims=["lane:api"])]

    play(
        stage,
        tools,
        lambda _, run: run.submit(plan(*calls("api", 1))),
        lanes={"api": Lane(max_concurrent=None, rate=Rate(starts=1, per_seconds=20))},
        limits=Limits(back_off_seconds=1),
    )

    assert starts(stage, "api") == [0, 20, 40]


def test_a_start_counts_from_when_its_body_is_entered_not_from_when_it_has_its_lanes() -> None:
    stage = Stage()
    tools = [
        stage.tool("block", Block(7), sync=True),
        stage.tool("api", Block(1), sync=True, claims=["lane:api"]),
    ]

    async def host(_: Engine, run: Run) -> Turn:
        return await run.submit(plan(*calls("block", 1), *calls("api", 2)))

    play(
        stage,
        tools,
        host,
        lanes={"api": Lane(max_concurrent=None, rate=Rate(starts=1, per_seconds=10))},
        limits=Limits(tool_threads=1),
    )

    assert starts(stage, "api") == [7, 17]


def test_a_call_that_is_cancelled_before_its_body_is_no_start() -> None:
    stage = Stage()
    tools = [
        stage.tool("block", Block(5), sync=True),
        stage.tool("api", Block(1), sync=True, claims=["lane:api"]),
        stage.tool("quick", Return("x"), claims=["lane:api"]),
    ]

    async def host(_: Engine, run: Run) -> Turn:
        turn = await run.submit(
            plan(*calls("block", 1), *calls("api", 1), *calls("quick", 1)), wait=False
        )
        await passes(1)
        await run.cancel("api0")
        await turn.wait()
        return turn

    play(
        stage,
        tools,
        host,
        lanes={"api": Lane(max_concurrent=None, rate=Rate(starts=1, per_seconds=100))},
        limits=Limits(tool_threads=1),
    )

    assert starts(stage, "api") == []
    assert starts(stage, "quick") == [1]


def test_a_rate_holds_for_nested_calls_that_use_the_slot_of_their_parent() -> None:
    stage = Stage()

    async def outer(context: ToolContext, **_: Any) -> None:
        for _time in range(3):
            await context.invoke("inner")

    tools = [
        Tool.from_schema(
            outer, name="outer", schema=ANY, effect=Effect.WRITE, claims=["lane:api"], timeout=99
        ),
        stage.tool("inner", Return("x"), claims=["lane:api"]),
    ]

    turn = play(
        stage,
        tools,
        lambda _, run: run.submit(plan(*calls("outer", 1))),
        lanes={"api": Lane(rate=Rate(starts=2, per_seconds=10))},
    )

    assert states(turn) == {"outer0": State.SUCCEEDED}
    assert starts(stage, "inner") == [0, 10, 10]


# Groups


def shop(stage: Stage, **more: Any) -> list[Tool]:
    return [
        stage.tool("query", Sleep(1), claims=["read db:shop/{table}"], **more),
        stage.tool("order", Sleep(1), claims=["read db:shop/orders/{id}"], **more),
    ]


def test_five_connections_serve_all_tables_and_two_of_them_the_orders() -> None:
    stage = Stage()
    reply = plan(
        *(
            {"id": f"q{n}", "tool": "query", "arguments": {"table": f"t{n}", "n": n}}
            for n in range(9)
        ),
        *({"id": f"o{n}", "tool": "order", "arguments": {"id": n, "n": n}} for n in range(3)),
    )

    async def host(engine: Engine, run: Run) -> list[str]:
        turn = await run.submit(reply, wait=False)
        await passes(0.5)
        told = [str(one.waits[0]) for one in run.explain()]
        status = engine.lanes.status("db/shop")
        assert (status.over, status.reserved, len(status.holders)) == (
            ("db:shop",),
            {"db:shop/orders": 2},
            5,
        )
        await turn.wait()
        return told

    told = play(
        stage,
        shop(stage),
        host,
        lanes={
            "lane:db/shop": Lane(max_concurrent=5, over=["db:shop"], reserved={"db:shop/orders": 2})
        },
    )

    assert "group lane:db/shop held by t1.1" in told
    assert most_at_once(stage, "query", "order") == 5
    assert most_at_once(stage, "query") == 3
    assert starts(stage, "order")[:2] == [0, 0]


def test_a_group_that_was_made_narrower_lets_nobody_in_before_fewer_are_in_it() -> None:
    stage = Stage()

    async def host(engine: Engine, run: Run) -> None:
        async with engine.run("o") as other:
            first = await run.submit(
                plan(
                    *(
                        {"id": f"q{n}", "tool": "query", "arguments": {"table": f"t{n}", "n": n}}
                        for n in range(3)
                    )
                ),
                wait=False,
            )
            await passes(0.5)
            engine.lanes.resize("db/shop", 3)
            orders = ({"id": f"o{n}", "tool": "order", "arguments": {"id": n}} for n in range(2))
            await other.submit(plan(*orders))
            await first.wait()

    play(
        stage,
        shop(stage),
        host,
        lanes={
            "lane:db/shop": Lane(max_concurrent=5, over=["db:shop"], reserved={"db:shop/orders": 2})
        },
    )

    assert most_at_once(stage, "query", "order") == 3


# Bounds


def test_a_call_too_many_is_told_that_its_lane_is_full() -> None:
    stage = Stage()
    tools = [
        stage.tool("send", Sleep(2), claims=["lane:mail", "write file:{path}"], effect=Effect.WRITE)
    ]

    async def host(engine: Engine, run: Run) -> Turn:
        turn = await run.submit(
            plan(
                *(
                    {"id": f"s{n}", "tool": "send", "arguments": {"path": f"f{n}", "n": n}}
                    for n in range(4)
                )
            ),
            wait=False,
        )
        assert engine.lanes.status("mail").max_waiting == 2
        await turn.wait()
        return turn

    turn = play(stage, tools, host, lanes={"mail": Lane(max_waiting=2, when_full="refuse")})

    assert states(turn) == {
        "s0": State.SUCCEEDED,
        "s1": State.SUCCEEDED,
        "s2": State.SUCCEEDED,
        "s3": State.FAILED,
    }
    assert failure(turn, "s3") == Failure(
        code=Code.LANE_FULL,
        message="Not started, because lane:mail is full: 1 at work, 2 waiting, and no more than 2 "
        "may wait.",
        retry=True,
        hint="Ask for it again later, or for fewer at once.",
    )


def test_a_retry_is_not_sent_away_from_a_full_lane() -> None:
    stage = Stage()
    attempts: list[int] = []

    def flaky(_: Any) -> str:
        attempts.append(1)
        if len(attempts) == 1:
            raise ConnectionError("gone")
        return "well"

    tools = [
        stage.tool("flaky", Do(flaky), retries=1, claims=["lane:mail"]),
        stage.tool("send", Sleep(30), claims=["lane:mail"], timeout=99),
    ]

    async def host(_: Engine, run: Run) -> Turn:
        turn = await run.submit(plan(*calls("flaky", 1), *calls("send", 2)), wait=False)
        await turn.wait()
        return turn

    turn = play(
        stage,
        tools,
        host,
        lanes={"mail": Lane(max_waiting=2, when_full="refuse")},
        limits=Limits(back_off_seconds=1),
    )

    assert set(states(turn).values()) == {State.SUCCEEDED}
    assert starts(stage, "flaky") == [0, 60]


def test_whoever_takes_a_run_up_keeps_the_places_of_those_who_waited() -> None:
    stage = Stage()
    theatre = Theatre(
        stage,
        stage.tool("send", Sleep(5), claims=["lane:mail"]),
        lanes={"mail": Lane(max_waiting=2, when_full="refuse")},
    )

    async def crash(run: Run) -> None:
        await run.submit(plan(*calls("send", 3)), wait=False)
        await passes(1)
        theatre.crash()

    theatre.enter(crash)
    turn = theatre.finish(lanes={"mail": Lane(max_waiting=1, when_full="refuse")})

    assert set(states(turn).values()) == {State.SUCCEEDED}
    assert len(theatre.kept(CallQueued)) >= 3


def test_a_host_waits_with_its_turn_until_there_is_room_for_a_waiter() -> None:
    stage = Stage()
    tools = [stage.tool("send", Sleep(2), claims=["lane:mail"]), stage.tool("free", Return("x"))]
    taken: list[tuple[str, float]] = []

    async def host(engine: Engine, run: Run) -> None:
        async def submit(name: str, tool: str) -> None:
            async with engine.run(name) as own:
                turn = await own.submit(plan(*calls(tool, 1)), wait=False)
                taken.append((name, asyncio.get_running_loop().time() - 1000))
                await turn.wait()

        first = await run.submit(plan(*calls("send", 2)), wait=False)
        await passes(0)
        async with asyncio.TaskGroup() as hosts:
            for name, tool in (("a", "send"), ("b", "send"), ("c", "free"), ("d", "send")):
                hosts.create_task(submit(name, tool))
        await first.wait()

    play(stage, tools, host, lanes={"mail": Lane(max_waiting=1)})

    assert taken == [("c", 0), ("a", 2), ("b", 4), ("d", 6)]


def test_a_turn_with_more_calls_than_may_wait_is_taken_in_whole() -> None:
    stage = Stage()
    tools = [stage.tool("send", Sleep(1), claims=["lane:mail"])]

    turn = play(
        stage,
        tools,
        lambda _, run: run.submit(plan(*calls("send", 5))),
        lanes={"mail": Lane(max_waiting=1)},
    )

    assert set(states(turn).values()) == {State.SUCCEEDED}


def test_a_host_that_is_cancelled_while_it_waits_has_submitted_nothing() -> None:
    stage = Stage()
    tools = [stage.tool("send", Sleep(3), claims=["lane:mail"])]

    async def host(engine: Engine, run: Run) -> list[float]:
        first = await run.submit(plan(*calls("send", 2)), wait=False)
        await passes(0)
        async with engine.run("a") as one, engine.run("b") as two:
            tasks = [asyncio.create_task(own.submit(plan(*calls("send", 1)))) for own in (one, two)]
            await passes(1)
            tasks[0].cancel()
            await asyncio.wait([tasks[0]])
            assert tasks[0].cancelled()
            assert not one.turns
            await tasks[1]
        await first.wait()
        return starts(stage, "send")

    assert play(stage, tools, host, lanes={"mail": Lane(max_waiting=1)}) == [0, 3, 6]


def test_a_host_that_is_cancelled_just_as_it_is_let_through_leaves_its_room_to_the_next() -> None:
    async def main() -> list[str]:
        table = LaneTable[str]({})
        waking = Waking()
        doors = Doors({"lane:m": Lane(max_waiting=1)}, table, waking)
        claims = next(iter(lanes_of({"m": 1}, Names("/"))))
        claim = Joined({claims: Lane(tools=["*"])}).claims("t", "r", "")
        holder, waiter = (table.request(claim, name) for name in ("holder", "waiter"))
        through: list[str] = []

        async def come(name: str) -> None:
            async with doors.through([claim]):
                through.append(name)

        first, second = (asyncio.create_task(come(name)) for name in ("first", "second"))
        await asyncio.sleep(0)
        table.release(holder)
        first.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        table.release(waiter)
        return through

    assert run_virtual(main) == ["second"]


def test_letting_a_host_in_costs_the_same_however_many_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = 0
    may_enter = Doors._may_enter

    def counted(*given: Any) -> bool:
        nonlocal looked
        looked += 1
        return may_enter(*given)

    async def main() -> None:
        table = LaneTable[str]({})
        bounds = {"lane:m": Lane(max_waiting=1)}
        doors = Doors(bounds, table, Waking())
        claim = exclusive("lane:m")
        inside = [table.request([claim], name) for name in ("holder", "waiter")]

        async def come() -> None:
            async with doors.through([(claim,)]):
                inside.append(table.request([claim], "come in"))

        hosts = [asyncio.create_task(come()) for _ in range(500)]
        await passes(0)
        while inside:
            table.release(inside.pop(0))
            await passes(0)
        await asyncio.gather(*hosts)

    monkeypatch.setattr(Doors, "_may_enter", counted)
    run_virtual(main)

    assert looked < 500 * 6


def test_a_host_whose_run_is_left_while_it_waits_for_room_is_told_at_once() -> None:
    stage = Stage()
    tools = [stage.tool("send", Sleep(9), claims=["lane:mail"])]

    async def host(engine: Engine, run: Run) -> tuple[float, int]:
        first = await run.submit(plan(*calls("send", 2)), wait=False)
        async with engine.run("o") as other:
            waiting = asyncio.create_task(other.submit(plan(*calls("send", 1))))
            await passes(1)
        with pytest.raises(EngineClosedError, match="run 'o' is not open"):
            await waiting
        left = asyncio.get_running_loop().time()
        await first.wait()
        return left, stage.entered["send"]

    assert play(stage, tools, host, lanes={"mail": Lane(max_waiting=1)}) == (1001, 2)


def test_a_host_that_waits_for_room_is_told_when_the_journal_breaks() -> None:
    stage = Stage()
    tools = [stage.tool("send", Sleep(9), claims=["lane:mail"])]

    async def host(engine: Engine, run: Run) -> float:
        async with engine.run("o") as other:
            first = await run.submit(plan(*calls("send", 2)), wait=False)
            waiting = asyncio.create_task(other.submit(plan(*calls("send", 1))))
            await passes(1)
            other._live.failed(RuntimeError("a fault"))
            with pytest.raises(EngineFaultError):
                await waiting
            told = asyncio.get_running_loop().time()
            await first.wait()
        return told

    assert play(stage, tools, host, lanes={"mail": Lane(max_waiting=1)}) == 1001


def test_cancelling_a_run_cancels_the_turn_that_waits_for_room_and_lets_the_next_in() -> None:
    stage = Stage()
    tools = [stage.tool("send", Sleep(9), claims=["lane:mail"])]

    async def host(engine: Engine, run: Run) -> list[Any]:
        first = await run.submit(plan(*calls("send", 2)), wait=False)
        async with engine.run("o") as other, engine.run("p") as third:
            waiting = [
                asyncio.create_task(own.submit(plan(*calls("send", 1)))) for own in (other, third)
            ]
            await passes(1)
            await other.cancel(reason="no longer wanted")
            turn = await waiting[0]
            cancelled_at = asyncio.get_running_loop().time()
            again = await other.submit(plan({"id": "x", "tool": "free"}))
            await waiting[1]
            await first.wait()
        return [codes(turn), cancelled_at, states(again), starts(stage, "send")]

    assert play(stage, [*tools, stage.tool("free")], host, lanes={"mail": Lane(max_waiting=1)}) == [
        {"send0": Code.CANCELLED},
        1001,
        {"x": State.SUCCEEDED},
        [0, 9, 18],
    ]


def test_cancelling_a_run_whose_answer_is_still_analysed_cancels_that_too() -> None:
    stage = Stage()
    tools = [stage.tool("send", claims=["lane:mail"])]

    async def host(_: Engine, run: Run) -> set[Code]:
        coming = asyncio.create_task(run.submit(plan(*calls("send", 1200))))
        await passes(0)
        await run.cancel()
        return set(codes(await coming).values())

    assert play(stage, tools, host) == {Code.CANCELLED}
    assert not stage.entered


def test_a_host_that_waits_for_two_lanes_holds_up_only_those_behind_it() -> None:
    async def main() -> list[str]:
        table = LaneTable[str]({})
        bounds = {f"lane:{name}": Lane(max_waiting=1) for name in "ab"}
        doors = Doors(bounds, table, Waking())
        a, b = (exclusive(name) for name in bounds)
        through: list[str] = []

        async def come(name: str, *claims: Claim) -> None:
            async with doors.through([claims]):
                through.append(name)

        crowd = [table.request([a], "holder"), table.request([a], "waiter")]
        hosts = [
            asyncio.create_task(come(name, *claims))
            for name, claims in (("both", (a, b)), ("b", (b,)), ("a", (a,)))
        ]
        await passes(1)
        assert through == []
        table.release(crowd[0])
        await asyncio.gather(*hosts)
        return through

    assert run_virtual(main) == ["both", "b", "a"]


def test_a_nested_call_is_neither_held_back_nor_refused_for_a_bound() -> None:
    stage = Stage()

    async def outer(context: ToolContext, **_: Any) -> Any:
        await asyncio.sleep(1)
        return await context.invoke("send", n=9)

    tools = [
        Tool.from_schema(
            outer, name="outer", schema=ANY, effect=Effect.WRITE, claims=[], timeout=99
        ),
        stage.tool("send", Sleep(2), claims=["lane:mail", "lane:sms"]),
    ]

    turn = play(
        stage,
        tools,
        lambda _, run: run.submit(plan(*calls("outer", 1), *calls("send", 2))),
        lanes={
            "mail": Lane(max_waiting=1),
            "sms": Lane(max_waiting=1, when_full="refuse"),
        },
    )

    assert set(states(turn).values()) == {State.SUCCEEDED}
    assert starts(stage, "send") == [0, 2, 4]


# Reset


def test_a_stuck_holder_is_let_go_of_by_force_and_its_late_end_changes_nothing() -> None:
    stage = Stage()
    theatre = Theatre(
        stage,
        stage.tool("stuck", deaf(20), timeout=1, claims=["lane:mail"]),
        stage.tool("send", Sleep(5), claims=["lane:mail"]),
        limits=Limits(grace_seconds=1),
    )

    async def host(run: Run) -> Turn:
        lanes = run._engine.lanes
        turn = await run.submit(plan(*calls("stuck", 1), *calls("send", 3)), wait=False)
        await passes(4)
        assert lanes.status("mail").generation == 1
        assert lanes.reset("mail") == ("r/t1.1",)
        status = lanes.status("mail")
        assert (status.generation, [one.owner for one in status.holders]) == (2, ["r/t1.2"])
        await turn.wait()
        await passes(10)
        assert not run._engine.status().stuck
        return turn

    turn = theatre.enter(host)

    assert states(turn)["stuck0"] is State.TIMED_OUT
    assert starts(stage, "send") == [4, 9, 14]
    assert most_at_once(stage, "send") == 1
    assert [fact.late for fact in theatre.kept(HolderStopped)] == ["late"]


def test_a_stuck_thread_that_is_let_go_of_frees_its_lanes_but_not_itself() -> None:
    stage = Stage()
    tools = [
        stage.tool("stuck", Block(9), sync=True, timeout=1, claims=["lane:mail"]),
        stage.tool("send", Sleep(1), claims=["lane:mail"]),
    ]

    async def host(engine: Engine, run: Run) -> None:
        turn = await run.submit(plan(*calls("stuck", 1), *calls("send", 1)), wait=False)
        await passes(2)
        engine.lanes.reset("mail")
        assert engine.status().stuck_threads == 1
        await turn.wait()
        await passes(10)
        assert engine.status().stuck_threads == 0

    play(stage, tools, host)

    assert starts(stage, "send") == [2]


def test_who_may_still_end_is_not_let_go_of() -> None:
    stage = Stage()
    tools = [stage.tool("send", Sleep(5), claims=["lane:mail"])]

    async def host(engine: Engine, run: Run) -> None:
        turn = await run.submit(plan(*calls("send", 12)), wait=False)
        await passes(1)
        with pytest.raises(
            UsageError, match=r"lane:mail .*: r/t1\.1, .*, r/t1\.8 and 2 more would go on"
        ):
            engine.lanes.reset("mail")
        assert engine.lanes.status("mail").generation == 1
        await run.cancel()
        await turn.wait()
        assert engine.lanes.reset("mail") == ()
        assert engine.lanes.status("mail").generation == 2

    play(stage, tools, host, lanes={"mail": 10})


def test_what_a_stuck_call_has_called_is_let_go_of_with_it() -> None:
    stage = Stage()

    async def outer(context: ToolContext, **_: Any) -> Any:
        inner = asyncio.create_task(context.invoke("inner"))
        await deaf(30).function({})
        inner.cancel()

    tools = [
        Tool.from_schema(
            outer, name="outer", schema=ANY, effect=Effect.WRITE, claims=["lane:a"], timeout=1
        ),
        stage.tool("inner", deaf(30), claims=["lane:b"]),
        stage.tool("send", Return("x"), claims=["lane:a", "lane:b"]),
    ]

    async def host(engine: Engine, run: Run) -> tuple[str, ...]:
        turn = await run.submit(plan(*calls("outer", 1)), wait=False)
        await passes(8)
        free = engine.lanes.reset("a")
        async with engine.run("s") as second:
            await second.submit(plan(*calls("send", 1)))
        await turn.wait()
        return free

    assert play(stage, tools, host) == ("r/t1.1/1/t1.1", "r/t1.1")
    assert starts(stage, "send") == [8]


# All of it at random

PLAYED = ("mail", "api", "shop", "file:src")


@given(st.integers(min_value=0, max_value=2**32))
@settings(max_examples=25 * ROUNDS, deadline=None)
def test_whatever_an_operator_does_every_call_ends_and_no_limit_is_passed(seed: int) -> None:
    dice = Random(seed)
    stage = Stage()
    tools = [
        stage.tool("mail", Sleep(1), claims=["lane:mail"]),
        stage.tool("api", Sleep(0.5), claims=["lane:api"]),
        stage.tool("order", Sleep(1), claims=["read db:shop/orders/{n}"]),
        stage.tool("query", Sleep(1), claims=["read db:shop/other/{n}"]),
        stage.tool("edit", Sleep(1), effect=Effect.WRITE, claims=["write file:src/{n}"]),
        stage.tool("mess", Sleep(1), effect=Effect.WRITE, claims=["write file:.", "lane:mail"]),
    ]
    lanes = {
        "mail": Lane(max_concurrent=2, max_waiting=6, when_full="refuse"),
        "api": Lane(max_concurrent=3, max_waiting=2, rate=Rate(starts=4, per_seconds=6)),
        "shop": Lane(max_concurrent=4, over=["db:shop"], reserved={"db:shop/orders": 2}),
    }

    async def host(engine: Engine, run: Run) -> list[Turn]:
        runs = [run, *[await engine.run(f"r{n}").__aenter__() for n in range(2)]]
        turns = [
            asyncio.create_task(own.submit(plan(*asked(dice, at)))) for at, own in enumerate(runs)
        ]
        for _ in range(dice.randint(0, 12)):
            await passes(dice.choice([0, 0.3, 1, 2.5]))
            name = dice.choice(PLAYED)
            deed = dice.choice(["pause", "resume", "clear"])
            getattr(engine.lanes, deed)(name)
        for name in PLAYED:
            engine.lanes.resume(name)
        done = [await turn for turn in turns]
        for name in PLAYED:
            await engine.lanes.idle(name)
        for own in runs[1:]:
            await own.__aexit__(None, None, None)
        return done

    done = play(stage, tools, host, lanes=lanes)

    assert all(turn.ready for turn in done)
    found = {state for turn in done for state in states(turn).values()}
    assert found <= {State.SUCCEEDED, State.CANCELLED, State.FAILED}
    assert {code for turn in done for code in codes(turn).values()} <= {
        Code.CANCELLED,
        Code.LANE_FULL,
    }
    limits = {("mail", "mess"): 2, ("api",): 3, ("order", "query"): 4, ("query",): 2, ("mess",): 1}
    for together, most in limits.items():
        if any(one.tool in together for one in stage.executions):
            assert most_at_once(stage, *together) <= most, together
    if starts(stage, "api"):
        assert most_in(6, starts(stage, "api")) <= 4


def asked(dice: Random, run: int) -> list[dict[str, Any]]:
    names = ("mail", "api", "order", "query", "edit", "mess")
    return [
        {"id": f"c{n}", "tool": dice.choice(names), "arguments": {"n": f"{run}-{n}"}}
        for n in range(dice.randint(1, 12))
    ]


# The guide

GUIDE = Path(__file__).resolve().parent.parent / "docs" / "lanes.md"


@pytest.mark.parametrize(
    "code", re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
)
def test_every_piece_of_python_in_the_guide_runs(code: str) -> None:
    exec(compile(code, str(GUIDE), "exec"), {"__name__": "guide"})  # noqa: S102 - our own guide


def test_the_guide_explains_every_field_of_a_lane_and_every_control() -> None:
    text = GUIDE.read_text("utf-8")
    controls = [name for name in vars(Lanes) if not name.startswith("_")]

    within = {"room", "call_in", "tell", "close", "standing", "statuses"}
    told = {*Lane.__struct_fields__, *controls} - within
    assert [
        name for name in sorted(told) if f"`{name}" not in text and f" {name}(" not in text
    ] == []


# What is written down


def test_what_an_operator_does_is_written_down_in_every_open_run() -> None:
    theatre = Theatre(Stage())

    async def host(run: Run) -> None:
        lanes = run._engine.lanes
        lanes.pause("mail")
        lanes.pause("mail")
        assert await lanes.drain("mail")
        lanes.resume("mail")
        lanes.resize("mail", 3)
        lanes.clear("mail")
        lanes.reset("mail")
        lanes.pause("file:/w")
        async with run._engine.run("second") as second:
            await second.say("here")
            assert second.view.lane_changes == [LaneChanged(lane="file:/w", change="paused")]

    theatre.enter(host)

    assert [(one.lane, one.change, one.value) for one in theatre.kept(LaneChanged)] == [
        ("lane:mail", "paused", 0),
        ("lane:mail", "draining", 0),
        ("lane:mail", "resumed", 0),
        ("lane:mail", "resized", 3),
        ("lane:mail", "cleared", 0),
        ("lane:mail", "reset", 2),
        ("file:/w", "paused", 0),
    ]
