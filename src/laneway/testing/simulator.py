"""The real scheduler, lanes and policies on virtual time, with given durations.

For schedules, not for tools: what starts when, how many rounds a plan takes, whether a bound holds.
Only what surrounds the engine is left out: jobs become a parsed reply without being written as a
plan first, the journal forgets, and the garbage collector waits.
"""

import asyncio
import gc
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Any

import msgspec

from laneway.calls import Referring
from laneway.effects import Effect
from laneway.engine.durations import Durations
from laneway.engine.engine import Engine
from laneway.engine.providers.reply import Asked, Reply
from laneway.engine.services import Limits
from laneway.engine.tools import Tool
from laneway.errors import UsageError
from laneway.policies.budgets import UNLIMITED, Budgets
from laneway.states import State
from laneway.testing.clock import VirtualClock, VirtualLoop, run_virtual
from laneway.testing.null import NullStore


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A call to simulate."""

    name: str
    seconds: float = 1.0
    needs: Sequence[str] = ()
    after: Sequence[str] = ()
    claims: Sequence[str] = ()
    """As a tool declares them, `write file:a.py` or `lane:mail`."""
    tool: str = "job"
    """The tool that it calls: there is one for each name."""


class Span(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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
    """Of the calls that have run to their end."""
    states: Mapping[str, State]
    makespan: float = field(default=0.0)


def simulate(
    jobs: Sequence[Job],
    *,
    lanes: Mapping[str, int] | None = None,
    learnt: Durations | None = None,
) -> Schedule:
    """Run jobs through a real engine on virtual time.

    Meanwhile the garbage collector of the process is switched off. 100,000 jobs take 300 to 500 MB.

    Args:
        jobs: in request order.
        lanes: `max_concurrent` by lane or resource.
        learnt: what the engine knows of earlier simulations, and keeps of this one.

    Raises:
        UsageError: two jobs share a name, or one takes no time that can pass.
        ToolError: a name that no tool can have.
    """
    _refuse_faulty(jobs)
    with _uncollected():
        return run_virtual(lambda: _simulate(jobs, lanes or {}, learnt))


async def _simulate(
    jobs: Sequence[Job], lanes: Mapping[str, int], learnt: Durations | None
) -> Schedule:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    began = loop.virtual_now
    spans: dict[str, Span] = {}

    async def run_job(at: int) -> None:
        job = jobs[at]
        start = loop.virtual_now
        await asyncio.sleep(job.seconds)
        spans[job.name] = Span(start=start - began, end=loop.virtual_now - began)

    def claims_of(arguments: Mapping[str, Any]) -> Sequence[str]:
        at: int = arguments["at"]
        return jobs[at].claims

    tools = [
        Tool.from_schema(
            run_job,
            schema=_SCHEMA,
            name=name,
            effect=Effect.READ,  # Equal calls of a pure one would share one body.
            claims=claims_of,
            timeout=inf,
        )
        for name in dict.fromkeys(job.tool for job in jobs)
    ]
    limits = Limits(turn_seconds=inf)
    engine = Engine(
        tools,
        journal=NullStore(),
        lanes=lanes,
        clock=VirtualClock,
        limits=limits,
        budgets=Budgets(seconds=UNLIMITED),
    )
    if learnt is not None:
        engine.durations = learnt
    async with engine, engine.run("simulation") as run:
        turn = await run.submit(_reply(jobs))
        makespan = loop.virtual_now - began
        states = {call.record.provider_id: call.state for call in turn.calls}
    return Schedule(spans=spans, states=states, makespan=makespan)


_SCHEMA = {"type": "object", "properties": {"at": {"type": "integer"}}, "required": ["at"]}
"""The place of a job is all that its call is told."""


def _reply(jobs: Sequence[Job]) -> Reply:
    """What the reader of plans would make of the jobs."""
    return Reply(
        provider="plan",
        message={"role": "assistant", "calls": []},
        calls=tuple(
            Asked(
                id=job.name,
                name=job.tool,
                arguments={"at": at},
                needs=tuple(job.needs),
                after=tuple(job.after),
            )
            for at, job in enumerate(jobs)
        ),
        referring=Referring.STRICT,
    )


def _refuse_faulty(jobs: Sequence[Job]) -> None:
    seen: set[str] = set()
    for at, job in enumerate(jobs):
        if job.name in seen:
            raise UsageError(f"jobs[{at}]: a job before it is called {job.name!r}, too; rename one")
        if not 0 <= job.seconds < inf:
            raise UsageError(
                f"jobs[{at}], {job.name!r}, takes {job.seconds!r} seconds; give a finite number of "
                "0 or more"
            )
        seen.add(job.name)


@contextmanager
def _uncollected() -> Generator[None]:
    """Keep the garbage collector away: nothing becomes garbage here before the end.

    Each of its rounds would look at every call again, which costs a third of the time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
