"""The real scheduler, lanes and policies on virtual time, with given durations.

For schedules, not for tools: what starts when, how many rounds a plan takes, whether a bound holds.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from laneway.effects import Effect
from laneway.engine.engine import Engine
from laneway.engine.services import Limits
from laneway.engine.tools import Tool
from laneway.states import State
from laneway.testing.clock import VirtualClock, run_virtual


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A call to simulate."""

    name: str
    seconds: float = 1.0
    needs: Sequence[str] = ()
    after: Sequence[str] = ()
    claims: Sequence[str] = ()
    """As a tool declares them, `write file:a.py` or `lane:mail`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """When a call ran, in virtual seconds from the start."""

    start: float
    end: float

    def overlaps(self, other: "Span") -> bool:
        """Whether both ran at the same time, for more than an instant."""
        return self.start < other.end and other.start < self.end


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What the scheduler made of the jobs."""

    spans: Mapping[str, Span]
    states: Mapping[str, State]
    makespan: float = field(default=0.0)


def simulate(jobs: Sequence[Job], *, lanes: Mapping[str, int] | None = None) -> Schedule:
    """Run jobs through a real engine on virtual time.

    Args:
        jobs: in request order.
        lanes: `max_concurrent` by lane or resource.
    """
    return run_virtual(lambda: _simulate(jobs, lanes or {}))


async def _simulate(jobs: Sequence[Job], lanes: Mapping[str, int]) -> Schedule:
    clock: VirtualClock | None = None
    began = 0.0
    spans: dict[str, Span] = {}

    def make_clock() -> VirtualClock:
        nonlocal clock
        clock = VirtualClock()
        return clock

    async def job(name: str, seconds: float, claims: list[str]) -> str:  # noqa: ARG001 - read below
        assert clock is not None
        start = clock.monotonic()
        await asyncio.sleep(seconds)
        spans[name] = Span(start=start - began, end=clock.monotonic() - began)
        return name

    def claims_of(arguments: Mapping[str, Any]) -> Sequence[str]:
        claims: Sequence[str] = arguments["claims"]
        return claims

    tool = Tool.of(job, effect=Effect.PURE, claims=claims_of, timeout=float("inf"))
    engine = Engine([tool], lanes=lanes, clock=make_clock, limits=Limits(turn_seconds=float("inf")))
    plan = {
        "calls": [
            {
                "id": one.name,
                "tool": "job",
                "arguments": {
                    "name": one.name,
                    "seconds": one.seconds,
                    "claims": list(one.claims),
                },
                "needs": list(one.needs),
                "after": list(one.after),
            }
            for one in jobs
        ]
    }
    async with engine, engine.run("simulation") as run:
        assert clock is not None
        began = clock.monotonic()
        turn = await run.submit(plan)
        makespan = clock.monotonic() - began
        states = {call.record.provider_id: call.state for call in turn.calls}
    return Schedule(spans=spans, states=states, makespan=makespan)
