"""Random programs of bodies within bodies, on virtual time: whatever they do, it all ends well."""

import asyncio
import os
import random
import threading
from contextvars import ContextVar
from typing import Any

import pytest

from laneway import Effect, Engine, Limits, Run, State, Tool, ToolContext, ToolFailed
from laneway.facts import ApprovalAnswered, CallEnded
from laneway.journal.fold import fold
from laneway.journal.memory import MemoryJournal, MemoryStore
from laneway.testing import run_virtual
from laneway.testing.clock import VirtualClock

ROUNDS = int(os.environ.get("LANEWAY_ROUNDS", "1"))
"""How many times as long to look: `make fuzz` sets it."""

FILES = ["file:a", "file:a/b", "file:a/b/c", "file:a/d", "file:e"]
LANES = {"lane:one": 1, "lane:two": 2, "lane:three": 3}
DEEPEST = 4

Path = tuple[int, ...]
Asked = tuple[str, dict[str, Any]]

inside: ContextVar[Path] = ContextVar("inside", default=())


class World:
    """Who is in its body, and with which claims; all that goes wrong is noted."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.faults: list[str] = []
        self.active: dict[Path, list[str]] = {}
        self.entered = 0
        self.widened = False
        self._one_at_a_time = threading.Lock()

    def enter(self, claims: list[str]) -> Path:
        with self._one_at_a_time:
            return self._enter(claims)

    def _enter(self, claims: list[str]) -> Path:
        self.entered += 1
        me = (*inside.get(), self.entered)
        for other, theirs in self.active.items():
            if not related(me, other):
                self.faults += [
                    f"{me} {one} beside {other} {two}"
                    for one in claims
                    for two in theirs
                    if meet(one, two)
                ]
        self.active[me] = claims
        for lane, limit in LANES.items():
            users = [path for path in self.active if self._takes_a_slot(path, lane)]
            if len(users) > limit and not self.widened:
                self.faults.append(f"{len(users)} in {lane}")
        inside.set(me)
        return me

    def leave(self, me: Path) -> None:
        with self._one_at_a_time:
            del self.active[me]

    def _takes_a_slot(self, path: Path, lane: str) -> bool:
        above = [self.active.get(path[:n], []) for n in range(1, len(path))]
        return lane in self.active[path] and not any(lane in claims for claims in above)

    def claims(self) -> list[str]:
        pick = self.chance
        found = [
            pick.choice(["read ", "write "]) + pick.choice(FILES)
            if pick.random() < 0.6
            else pick.choice(list(LANES))
            for _ in range(pick.choice([0, 1, 1, 2]))
        ]
        return list(dict.fromkeys(found))

    def call(self, depth: int = 0) -> Asked:
        pick = self.chance
        tool = pick.choice(["agent"] * 6 + ["pure"] * 2 + ["sync"] * 2 + ["deaf", "asks", "flaky"])
        if tool == "pure":
            return tool, {"claims": pick.choice([[], ["lane:one"], ["read file:a"]]), "n": depth}
        if tool in {"deaf", "asks"}:
            return tool, {"claims": self.claims(), "n": pick.choice([1, 4])}
        steps = [self.step(depth + 1) for _ in range(pick.choice([0, 1, 1, 2, 3]))]
        if tool == "sync":
            steps = [one for one in steps if one[0] in {"sleep", "call"}]
        return tool, {"claims": self.claims(), "n": steps}

    def step(self, depth: int) -> list[Any]:
        pick = self.chance
        kinds = ["call"] * 6 + ["gather"] * 3 + ["leave", "cancel", "run", "raise", "lose"]
        kind = "sleep" if depth > DEEPEST or pick.random() < 0.3 else pick.choice(kinds)
        many = pick.choice([2, 3]) if kind in {"gather", "run"} else 1
        calls = [self.call(depth) for _ in range(many)] if depth <= DEEPEST else []
        return [kind, pick.choice([0, 0.5, 1, 3]), calls]


def related(one: Path, two: Path) -> bool:
    return one == two[: len(one)] or two == one[: len(two)]


def meet(one: str, two: str) -> bool:
    if "lane:" in one or "lane:" in two or "write" not in one + two:
        return False
    first, second = one.split()[1], two.split()[1]
    return f"{first}/".startswith(f"{second}/") or f"{second}/".startswith(f"{first}/")


class Company:
    """Tools that do what the steps of their arguments say."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.engine: Engine | None = None
        self.clock: VirtualClock | None = None
        self.runs = 0

    def make_clock(self) -> VirtualClock:
        self.clock = VirtualClock()
        return self.clock

    def tools(self) -> list[Tool[..., Any]]:
        def made(name: str, play: Any, effect: Effect, **said: Any) -> Tool[..., Any]:
            schema = {
                "type": "object",
                "properties": {"claims": {}, "n": {}},
                "required": ["claims", "n"],
            }
            return Tool.from_schema(
                play,
                name=name,
                description=name,
                schema=schema,
                effect=effect,
                claims=lambda arguments: arguments["claims"],
                **said,
            )

        return [
            made("agent", self.agent, Effect.WRITE, timeout=20, priority=1),
            made("flaky", self.flaky, Effect.WRITE, timeout=15, idempotent=True, retries=2),
            made("sync", self.sync, Effect.WRITE, timeout=20),
            made("deaf", self.deaf, Effect.WRITE, timeout=2),
            made("asks", self.asks, Effect.READ, approval=True),
            made("pure", self.pure, Effect.PURE, timeout=self.world.chance.choice([0.5, 5])),
        ]

    async def agent(self, context: ToolContext, claims: list[str], n: list[Any]) -> str:
        me = self.world.enter(claims)
        try:
            for kind, seconds, calls in n:
                await self.follow(context, kind, seconds, calls)
            return "ok"
        finally:
            self.world.leave(me)

    async def flaky(self, context: ToolContext, claims: list[str], n: list[Any]) -> str:
        await self.agent(context, claims, n)
        if context.attempt < 3:
            raise ConnectionResetError
        return "ok"

    def sync(self, context: ToolContext, claims: list[str], n: list[Any]) -> None:
        me = self.world.enter(claims)
        try:
            for kind, seconds, calls in n:
                if kind == "sleep":
                    assert self.clock is not None
                    self.clock.block(seconds + 0.01)
                for tool, arguments in calls:
                    context.invoke_blocking(tool, **arguments)
        finally:
            self.world.leave(me)

    async def deaf(self, claims: list[str], n: float) -> None:
        me = self.world.enter(claims)
        try:
            await asyncio.sleep(n)
        except asyncio.CancelledError:
            await asyncio.sleep(3)
        finally:
            self.world.leave(me)

    async def asks(self, claims: list[str], n: float) -> None:
        me = self.world.enter(claims)
        try:
            await asyncio.sleep(n)
        finally:
            self.world.leave(me)

    async def pure(self, claims: list[str], n: int) -> int:
        me = self.world.enter(claims)
        try:
            await asyncio.sleep(1)
            if self.world.chance.random() < 0.2:
                raise ValueError
            return n
        finally:
            self.world.leave(me)

    async def follow(
        self, context: ToolContext, kind: str, wait: float, calls: list[Asked]
    ) -> None:
        match kind:
            case "sleep":
                await asyncio.sleep(wait)
            case "raise":
                raise ValueError
            case "lose":
                raise ConnectionResetError
            case "run":
                await self.own_run(calls)
            case "cancel" | "leave":
                task = asyncio.create_task(context.invoke(calls[0][0], **calls[0][1]))
                task.add_done_callback(lambda done: done.cancelled() or done.exception())
                if kind == "cancel":
                    await asyncio.sleep(wait)
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
            case _:
                parts = (context.invoke(tool, **arguments) for tool, arguments in calls)
                for found in await asyncio.gather(*parts, return_exceptions=True):
                    if isinstance(found, ToolFailed) and self.world.chance.random() < 0.3:
                        raise found

    async def own_run(self, calls: list[Asked]) -> None:
        assert self.engine is not None
        self.runs += 1
        priority = self.world.chance.choice([0, 0, 2, -1])
        async with self.engine.run(f"own{self.runs}", priority=priority) as run:
            await run.submit(plan_of(calls))


def plan_of(calls: list[Asked]) -> dict[str, Any]:
    asked: list[dict[str, Any]] = [
        {"id": f"c{at}", "tool": tool, "arguments": arguments}
        for at, (tool, arguments) in enumerate(calls)
    ]
    if len(asked) > 2:
        asked[-1]["after"] = ["c0"]
    return {"calls": asked}


async def host(run: Run, world: World) -> None:
    pick = world.chance
    for _ in range(pick.choice([1, 2])):
        calls = [world.call() for _ in range(pick.choice([1, 3, 5]))]
        turn = await run.submit(plan_of(calls), wait=False)
        await asyncio.sleep(pick.choice([0, 0.4, 1, 2.5, 30]))
        if pick.random() < 0.4:
            await run.cancel(pick.choice([None, "c0"]))
        if pick.random() < 0.2:
            return
        await turn.wait()
        await turn.close()
        if len(turn.messages) < 1 or len(turn.outcomes) != len(calls):
            world.faults.append("outcomes are missing")


async def humans(engine: Engine, world: World) -> None:
    while True:
        await asyncio.sleep(0.7)
        for scheduler in tuple(engine._schedulers):
            turn = scheduler.turn
            over = turn is None or scheduler.leaving or scheduler.log.broken is not None
            calls = () if over or turn is None else turn.calls
            for call in calls:
                if call.state is State.AWAITING_APPROVAL and world.chance.random() < 0.6:
                    assert call.approval is not None
                    granted = world.chance.random() < 0.6
                    scheduler.answer(
                        call,
                        ApprovalAnswered(call=call.id, approval=call.approval, granted=granted),
                    )


async def operator(engine: Engine, world: World) -> None:
    pick = world.chance
    await asyncio.sleep(2)
    if pick.random() < 0.3:
        world.widened = True
        engine.lanes.resize(pick.choice(list(LANES)), pick.choice([1, 2, 5]))
    if pick.random() < 0.3:
        name = pick.choice(["lane:two", "lane:one", "file:a/b"])
        engine.lanes.pause(name)
        await asyncio.sleep(3)
        engine.lanes.resume(name)
    if pick.random() < 0.3:
        engine.lanes.clear(pick.choice(["lane:one", "file:a"]))


def left_overs(engine: Engine, world: World) -> list[str]:
    services = engine.services
    slots = services.lanes._slots
    found = {
        "lanes": len(services.lanes),
        "loans": len(slots.loans),
        "early": slots._early,
        "lines": slots._lines,
        "flights": services.flights,
        "leaving": services.leaving,
        "deadlines": [
            (getattr(one, "called", "a turn"), one.due) for one in services.deadlines._watched
        ],
        "runs": engine.status().runs,
        "stuck threads": services.threads.stuck,
        "bodies": world.active,
        "a broken journal": services.journal.broken,
    }
    return [f"left over: {name}: {what}" for name, what in found.items() if what]


def drive(seed: int) -> list[str]:
    random.seed(seed)  # For the jitter of retries.
    world = World(seed)
    company = Company(world)
    journal = MemoryJournal()
    pick = world.chance
    limits = Limits(
        grace_seconds=1,
        tool_threads=pick.choice([1, 2, 8]),
        turn_seconds=200,
        approval_seconds=pick.choice([3, 100]),
    )

    async def one_host(engine: Engine, at: int) -> None:
        async with engine.run(f"h{at}", priority=pick.choice([0, 0, 1, -3])) as run:
            await host(run, world)

    async def main() -> None:
        engine = company.engine = Engine(
            company.tools(),
            clock=company.make_clock,
            journal=MemoryStore(journal),
            lanes=dict(LANES),
            limits=limits,
        )
        async with engine:
            others = [asyncio.create_task(one(engine, world)) for one in (humans, operator)]
            hosts = [one_host(engine, at) for at in range(pick.choice([1, 2, 3]))]
            for found in await asyncio.gather(*hosts, return_exceptions=True):
                if isinstance(found, BaseException):
                    world.faults.append(f"a host got {found!r}")
            await others[1]
            others[0].cancel()
            await asyncio.sleep(60)
            world.faults.extend(left_overs(engine, world))

    run_virtual(main)
    for run, rows in journal.facts.items():
        fold(run, rows)
        ended = [row.fact.call for row in rows if isinstance(row.fact, CallEnded)]
        if len(set(ended)) != len(ended):
            world.faults.append(f"{run}: a call ended twice")
    return world.faults


@pytest.mark.parametrize("seed", range(60 * ROUNDS))
def test_whatever_bodies_do_claims_are_kept_and_all_of_it_ends(seed: int) -> None:
    assert drive(seed) == []
