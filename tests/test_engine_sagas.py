"""Long stories by chance: a host does what it likes, dies anywhere, and the promises hold.

Virtual time makes every story the same each time, so that Hypothesis can shorten it.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from laneway import Effect, Engine, Limits, Run, State, Tool
from laneway.errors import LanewayError, UnknownApprovalError, UnknownCallError
from laneway.facts import CallEnded, CallStarted
from laneway.journal.fold import fold
from laneway.lanes.names import overlaps
from laneway.testing.clock import run_virtual
from laneway.testing.scripted import Stage
from laneway.testing.theatre import RUN, Theatre

ROUNDS = int(os.environ.get("LANEWAY_ROUNDS", "1"))
"""How many times as long to look: `make fuzz` sets it."""

SCHEMA = {
    "type": "object",
    "properties": {"table": {}, "n": {}, "more": {}},
    "required": ["n"],
}
KINDS: dict[str, dict[str, Any]] = {
    "read": {"effect": Effect.READ, "claims": ["read db:{table}"]},
    "write": {"effect": Effect.WRITE, "claims": ["write db:{table}"]},
    "again": {
        "effect": Effect.WRITE,
        "claims": ["write db:{table}"],
        "idempotent": True,
        "retries": 2,
    },
    "send": {"effect": Effect.EXTERNAL},
    "ask": {"effect": Effect.WRITE, "claims": ["write db:{table}"], "approval": True},
    "lane": {"effect": Effect.READ, "claims": ["lane:L"]},
    "wild": {},
}
ENDS = ["returns", "returns", "raises", "loses", "exits", "is deaf"]


class Saga:
    """One run of several lives, and what its bodies saw."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.entered: Counter[str] = Counter()
        tools = [
            Tool.from_schema(self.body(), name=name, schema=SCHEMA, **declared)
            for name, declared in KINDS.items()
        ]
        order = data.draw(st.sampled_from(["keep", "overtake"]))
        self.theatre = Theatre(Stage(), *tools, approval_order=order)

    def draw(self, *choices: Any) -> Any:
        return self.data.draw(st.sampled_from(choices))

    def lucky(self, one_in: int = 2) -> bool:
        return self.data.draw(st.integers(1, one_in)) == 1

    def body(self) -> Any:
        async def body(n: str, **_: Any) -> dict[str, str]:
            self.entered[n] += 1
            assert [one for one in self.theatre.kept(CallStarted) if one.call == n]
            assert not [one for one in self.theatre.kept(CallEnded) if one.call == n]
            return await ending(self.draw(*ENDS), self.draw(0, 1, 5, 40), n)

        return body

    def plan(self, turn: int) -> dict[str, Any]:
        calls: list[dict[str, Any]] = []
        for at in range(self.draw(1, 2, 4, 7)):
            arguments = {"n": f"t{turn}.{at + 1}", "table": self.draw("a", "b")}
            earlier = [call["id"] for call in calls]
            call: dict[str, Any] = {"id": f"c{turn}_{at}", "arguments": arguments}
            call["tool"] = self.draw(*KINDS, "nope")
            if earlier and self.lucky():
                call[self.draw("needs", "after")] = [self.draw(*earlier)]
            if earlier and self.lucky(3):
                arguments[self.draw("more", "table")] = f"${{{self.draw(*earlier)}.from}}"
            calls.append(call)
        return {"calls": calls}

    async def live(self, run: Run) -> None:
        """Do something, and leave or die."""
        if run.open_turn is None:
            plan = self.plan(len(run.turns) + 1)
            task: asyncio.Task[Any] = asyncio.create_task(run.submit(plan, wait=self.lucky()))
        else:
            await self.act(run)
            task = asyncio.create_task(run.finish())
        task.add_done_callback(heard)
        for _ in range(self.draw(0, 1, 3)):
            await asyncio.sleep(self.draw(0, 0.5, 3, 30))
            await self.act(run)
        if self.lucky():
            self.theatre.crash()
        task.cancel()
        if self.lucky():
            with suppress(asyncio.CancelledError):
                await task

    async def act(self, run: Run) -> None:
        if not run.turns:
            return
        call = self.draw(*run.turns[-1].calls)
        with suppress(UnknownApprovalError, UnknownCallError):
            match self.draw("approve", "approve", "deny", "cancel", "cancel all", "settle"):
                case "approve":
                    await run.approve(call.id)
                case "deny":
                    await run.deny(call.id)
                case "cancel":
                    await run.cancel(call.id)
                case "cancel all":
                    await run.cancel()
                case _:
                    found = self.draw({"value": {"from": "a"}}, {"failure": "it never was"})
                    await run.settle(call.id, **found)

    async def end(self, run: Run) -> Sequence[Any]:
        """Answer all questions, and end the open turn."""
        if run.open_turn is not None:
            task = asyncio.create_task(run.finish())
            task.add_done_callback(heard)
            while not task.done():
                await asyncio.sleep(5)
                for approval in run.approvals:
                    await run.approve(approval.id)
            await task
        assert run.open_turn is None
        return run.history()


def heard(task: asyncio.Task[Any]) -> None:
    """Take note of how a task ended, also where the example is broken off before it is awaited."""
    if not task.cancelled():
        task.exception()


async def ending(how: str, seconds: float, n: str) -> dict[str, str]:
    """End in one of the ways in which bodies end."""
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        if how != "is deaf":
            raise
        await asyncio.sleep(seconds)
    match how:
        case "raises":
            raise ValueError(n)
        case "loses":
            raise ConnectionResetError(n)
        case "exits":
            raise SystemExit(n)
        case _:
            return {"from": "b"}


@settings(max_examples=150 * ROUNDS, deadline=None)
@given(st.data())
def test_whatever_a_host_does_and_wherever_it_dies_every_call_ends_once(
    data: st.DataObject,
) -> None:
    saga = Saga(data)
    for _ in range(saga.draw(0, 1, 2, 4)):
        saga.theatre.enter(saga.live, run={"parallel": not saga.lucky(3)})
    history = saga.theatre.enter(saga.end)

    view = fold(RUN, saga.theatre.journal.facts[RUN])
    ended = Counter(fact.call for fact in saga.theatre.kept(CallEnded))
    assert ended == Counter(dict.fromkeys(view.calls, 1))
    assert all(turn.closed for turn in view.turns)
    for call in view.calls.values():
        record = call.record
        if not (record.effect.changes_nothing or record.idempotent):
            assert saga.entered[call.id] <= 1
        assert call.state is not State.SUCCEEDED or saga.entered[call.id] or call.settled
    results = [message["results"] for message in history if message["role"] == "tool"]
    assert [[one["id"] for one in turn] for turn in results] == [
        [call.record.provider_id for call in turn.calls] for turn in view.turns
    ]


CLAIMS = [
    *("read db:", "read db:a", "read db:a/x", "write db:a", "write db:a/x", "write db:a/y"),
    *("write db:b", "lane:L"),
]


def meet(ones: Sequence[str], others: Sequence[str]) -> bool:
    """Whether two calls with these claims must not overlap."""
    return any(
        (one == other and one.startswith("lane:"))
        or (
            " " in one
            and " " in other
            and "write" in (one.split()[0], other.split()[0])
            and overlaps(one.split()[1], other.split()[1])
        )
        for one in ones
        for other in others
    )


class Crowd:
    """Several runs of one engine over the same resources."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.stage = Stage()
        self.active: dict[str, Sequence[str]] = {}

    def draw(self, *choices: Any) -> Any:
        return self.data.draw(st.sampled_from(choices))

    def lucky(self, one_in: int = 2) -> bool:
        return self.data.draw(st.integers(1, one_in)) == 1

    def enter(self, n: str, claims: Sequence[str]) -> None:
        for other, held in self.active.items():
            assert not meet(claims, held), f"{n} runs beside {other}"
        self.active[n] = claims

    async def body(self, n: str, claims: list[str], how: str, seconds: float) -> dict[str, str]:
        self.enter(n, claims)
        try:
            return await ending(how, seconds, n)
        finally:
            del self.active[n]

    def thread(self, n: str, claims: list[str], how: str, seconds: float) -> None:
        self.enter(n, claims)
        assert self.stage.clock is not None
        self.stage.clock.block(seconds)
        del self.active[n]

    def tools(self) -> list[Tool[..., Any]]:
        def claims_of(arguments: Mapping[str, Any]) -> Sequence[str]:
            return list(arguments["claims"])

        every: dict[str, Any] = {"effect": Effect.WRITE, "claims": claims_of, "timeout": 4}
        return [
            Tool.of(self.body, name="once", **every),
            Tool.of(self.body, name="again", idempotent=True, retries=2, **every),
            Tool.of(self.thread, name="thread", **every),
        ]

    def plan(self, name: str) -> dict[str, Any]:
        claims = st.lists(st.sampled_from(CLAIMS), max_size=3, unique=True)
        return {
            "calls": [
                {
                    "id": f"c{at}",
                    "tool": self.draw("once", "again", "thread"),
                    "arguments": {
                        "n": f"{name}/{at}",
                        "claims": self.data.draw(claims),
                        "how": self.draw(*ENDS),
                        "seconds": self.draw(0, 1, 3, 10),
                    },
                }
                for at in range(self.draw(1, 3, 5))
            ]
        }

    async def host(self, engine: Engine, name: str) -> None:
        async with engine.run(name) as run:
            task = asyncio.create_task(run.submit(self.plan(name)))
            task.add_done_callback(heard)
            await asyncio.sleep(self.draw(0, 1, 2, 6))
            match self.draw("wait", "wait", "cancel", "cancel one", "stop waiting", "leave"):
                case "cancel":
                    await run.cancel()
                case "cancel one" if run.turns:
                    await run.cancel(self.draw(*run.turns[-1].calls).id)
                case "stop waiting":
                    task.cancel()
                case _:
                    pass
            if not self.lucky(4):
                with suppress(asyncio.CancelledError):
                    await task
        with suppress(asyncio.CancelledError, LanewayError):
            await task


@settings(max_examples=150 * ROUNDS, deadline=None)
@given(st.data())
def test_however_runs_meet_no_two_bodies_touch_one_thing_and_nothing_is_left_behind(
    data: st.DataObject,
) -> None:
    crowd = Crowd(data)

    async def main() -> None:
        limits = Limits(tool_threads=2, back_off_seconds=0.5)
        engine = Engine(crowd.tools(), clock=crowd.stage.make_clock, limits=limits)
        async with engine:
            await asyncio.gather(*(crowd.host(engine, f"run-{n}") for n in range(3)))
            await asyncio.sleep(100)
            status = engine.status()
            assert not [lane for lane in status.lanes if lane.holders or lane.waiters]
            assert (status.runs, status.stuck, status.stuck_threads) == ((), (), 0)
            assert len(engine.services.lanes) == len(engine.services.deadlines) == 0
            assert len(asyncio.all_tasks()) == 1

    run_virtual(main)

    assert crowd.active == {}
