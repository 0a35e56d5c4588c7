"""The real engine of a re-execution, with nothing real around it.

Reads a part of a recording and what the host wants to see instead; gives a scheduler that stands
where the recorded one stood when that part began.
"""

import math
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec

from laneway.engine.controls import Lanes
from laneway.engine.engine import Engine
from laneway.engine.nesting import inside
from laneway.engine.recovery import found_out, revive
from laneway.engine.reexecution.casting import cast
from laneway.engine.reexecution.events import NOT_STARTED, Happening
from laneway.engine.reexecution.evidence import Evidence
from laneway.engine.reexecution.held_lanes import HeldLanes
from laneway.engine.reexecution.part import Part, Way
from laneway.engine.reexecution.rules import RecordedPolicy
from laneway.engine.reexecution.standing_in import (
    Apart,
    AsRecorded,
    Attempt,
    GatedBodies,
    RecordedBooks,
    RecordedWatch,
    SetClock,
    SilentProbes,
    WatchedScheduler,
)
from laneway.engine.run import remember
from laneway.engine.services import THREAD_LANE, Limits, Services
from laneway.engine.tools import Tool, Toolset
from laneway.facts import CallEnded, CallStarted, Fact, RunOpened, RunTaken
from laneway.ids import CallId
from laneway.journal.fold import RunView, fold
from laneway.journal.lease import this_driver
from laneway.journal.memory import MemoryJournal, MemoryStore
from laneway.journal.writer import RunLog
from laneway.lanes.lane import Joined, Lane, lanes_of
from laneway.lanes.names import Names
from laneway.outcomes import Failure
from laneway.policies import budgets
from laneway.policies.budgets import Budgets
from laneway.policies.rules import Policy
from laneway.states import State

UNLIMITED = Limits(
    call_seconds=math.inf,
    turn_seconds=math.inf,
    approval_seconds=math.inf,
)
"""Time does not pass: whatever came to its limit is recorded."""


NO_BUDGETS = Budgets(
    model_turns=budgets.UNLIMITED, tokens=budgets.UNLIMITED, seconds=budgets.UNLIMITED
)
"""What was refused for a budget is recorded, too."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the host wants to see instead of what is recorded."""

    tools: tuple[Tool[..., Any], ...] = ()
    policy: Policy | None = None
    mode: str | None = None
    lanes: Mapping[str, int | Lane] | None = None
    workspace: str | Path = "."


class Staged:
    """An engine with one scheduler, ready to be given events."""

    def __init__(self, part: Part, options: Options, way: Way) -> None:
        """Prepare; `open` makes it ready.

        Args:
            part: of the recording, that is to come.
            options: of the host.
            way: what is known of the world around.
        """
        self.part = part
        self.options = options
        self.evidence = Evidence(part.earlier, part.own, part.recording)
        self.own = frozenset(tool.spec.name for tool in options.tools) - self.evidence.marked
        self.clock = SetClock()
        self.clock.set(part.events[0].given[0])
        self.scheduler: WatchedScheduler
        self.bodies: GatedBodies
        self.lanes: HeldLanes
        self.durations: AsRecorded
        self._way = way
        self._journal = MemoryJournal()
        self._seen = 0

    async def open(self, stack: AsyncExitStack) -> None:
        """Enter the engine, and the run where this part of the recording begins."""
        self.evidence.priorities = self._way.priorities
        tools = cast(self.options.tools, self.evidence, self._body, self._completing)
        policy = self.options.policy
        engine = Engine(
            tools,
            journal=MemoryStore(self._journal),
            policy=RecordedPolicy(self.evidence, self._who) if policy is None else policy,
            workspace=self.options.workspace,
            limits=UNLIMITED,
            budgets=NO_BUDGETS,
            approval_order="overtake" if self.part.overtakes else "keep",
            clock=lambda: self.clock,
        )
        await stack.enter_async_context(engine)
        services = engine.services
        self._replace_lanes(services)
        if self._way.apart:
            services.flights = Apart()
        self.durations = AsRecorded()
        services.durations = self.durations
        await self._enter(engine, services, tools)
        stack.callback(self._abandon)

    def _replace_lanes(self, services: Services) -> None:
        lanes = self.options.lanes
        if lanes is None:
            limits = self.part.setting.lanes
            lanes = {name: Lane(max_concurrent=most or None) for name, most in limits.items()}
        configured = {
            name: msgspec.structs.replace(lane, rate=None)
            for name, lane in lanes_of(lanes, Names(self.options.workspace)).items()
        }
        way = self._way
        self.lanes = services.lanes = HeldLanes(
            {THREAD_LANE: 1, **configured}, way.held, aside=way.aside
        )
        services.joined = Joined(configured)
        services.controls = Lanes(services, configured)

    async def _enter(self, engine: Engine, services: Services, tools: list[Tool[..., Any]]) -> None:
        run, rows = self.part.run, self.part.primed(self.evidence.stale)
        self._journal.facts[run] = list(rows)
        view = fold(run, await services.journal.take(run, this_driver()))
        log = RunLog(view, lambda _: None)
        services.journal.attach(log)
        mode = self.options.mode or self.part.mode
        services.policy.mode(mode)
        await services.journal.keep(log, self._opening(view, mode, services.tools))
        bound = {name: None for tool in tools for name in tool.spec.bound}
        declared = {tool.spec.name for tool in self.options.tools if tool.spec.declared}
        scheduler = self.scheduler = WatchedScheduler(
            services, log, mode=mode, bound=bound, serial=self.evidence.serial(declared)
        )
        log.on_broken = scheduler.broken
        self.bodies = GatedBodies(scheduler, self._never_entered())
        scheduler.bodies = self.bodies
        scheduler.secrets = None  # All that is recorded is so without them.
        scheduler.probes = SilentProbes(scheduler)
        scheduler.watch = RecordedWatch(
            self.evidence.loops, self.evidence.halting, self.evidence.notes
        )
        if self.evidence.unaffordable or self.part.setting.budgets:
            scheduler.gate = RecordedBooks(self.evidence.unaffordable)
        scheduler.place = msgspec.structs.replace(scheduler.place, refused=self.evidence.barred)
        self.durations.learn_from(view)
        for turn in view.turns:
            if turn.closed:
                remember(turn, scheduler)
        if view.open_turn is not None:
            scheduler.turn = revive(view.open_turn, scheduler)
        engine.joined(scheduler)
        if self.part.events[0].kind is not Happening.TAKEN:
            self.news()  # That a driver took it up here is of this re-execution alone.

    def _opening(self, view: RunView, mode: str, tools: Toolset) -> list[Fact]:
        first = self.part.events[0].given[0].fact
        if isinstance(first, RunOpened):
            return [msgspec.structs.replace(first, mode=mode)]
        # Processes that were still at work then are so now: only the record can tell.
        ends = (row.fact for row in self.part.events[0].decided)
        held = [one.call for one in ends if isinstance(one, CallEnded) and not one.stopped]
        return [RunTaken(driver=this_driver(), mode=mode), *found_out(view, held, tools)]

    def news(self) -> list[Fact]:
        """What has been decided since the last time that somebody asked."""
        rows = self._journal.facts[self.part.run]
        start = max(self._seen, len(self.part.earlier))
        self._seen = len(rows)
        return [row.fact for row in rows[start:]]

    def _abandon(self) -> None:
        self.scheduler.probes.close()
        for gate in self.bodies.gates.values():
            gate.stays, gate.late = False, None
        self.bodies.abandon()

    async def _body(self, **_: Any) -> Any:
        call = inside.get()
        assert call is not None
        return await self.bodies.gates[call.id].passed()

    def _completing(self) -> CallId | None:
        return self.scheduler.completing

    def _who(self, arguments: Any) -> CallId | None:
        turn = self.scheduler.turn
        calls = () if turn is None else turn.calls
        return next((call.id for call in calls if call.arguments is arguments), None)

    def _never_entered(self) -> set[Attempt]:
        found: set[Attempt] = set()
        attempts: dict[CallId, int] = {}
        before = self.part.recording.before
        for row in self.part.own:
            fact = row.fact
            if isinstance(fact, CallStarted):
                attempts[fact.call] = fact.attempt
            elif (
                isinstance(fact, CallEnded)
                and fact.state in (State.CANCELLED, State.TIMED_OUT)
                and isinstance(fact.outcome, Failure)
                and fact.outcome.message.endswith(NOT_STARTED)
                and before[row.seq] is State.RUNNING
            ):
                found.add((fact.call, attempts.get(fact.call, 0)))
        return found
