"""What the runs of an engine share, made anew for every event loop it serves."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from laneway.claims import exclusive
from laneway.engine.bell import Bell
from laneway.engine.clock import Clock
from laneway.engine.deadlines import Deadlines
from laneway.engine.durations import Durations
from laneway.engine.threads import ToolThreads
from laneway.engine.tools import Toolset
from laneway.errors import UsageError
from laneway.facts import Setting
from laneway.journal.writer import Journal
from laneway.lanes.lane import Joined
from laneway.lanes.names import Names
from laneway.lanes.table import LaneTable
from laneway.policies.budgets import Budgets
from laneway.policies.loops import Loops
from laneway.policies.recursion import Recursion
from laneway.policies.rules import Policy
from laneway.policies.stopping import Reserve
from laneway.policies.unattended import Unattended

if TYPE_CHECKING:
    from laneway.engine.budget_status import BudgetWarning
    from laneway.engine.controls import Lanes
    from laneway.engine.flights import Flight, Key
    from laneway.engine.live import LiveCall
    from laneway.engine.run import Run
    from laneway.engine.telemetry.listener import Listener
    from laneway.lanes.requests import Request

OWN = "lane:engine/"
"""Lanes that the engine itself takes, and limits say how wide they are."""
THREAD_LANE = f"{OWN}threads"
PROCESS_LANE = f"{OWN}processes"
PROCESS = (exclusive(PROCESS_LANE),)
THREAD = (exclusive(THREAD_LANE),)
"""A synchronous call asks for a thread when it holds all its claims, so that none waits unused
behind a call that waits for something else; a call that is RUNNING has its thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Every limit has a value; `math.inf` lifts one, by name."""

    call_seconds: float = 30.0
    """An attempt of a call without a timeout of its own (agents' tool calls: 10–30 s)."""
    attempts_seconds: float = 300.0
    """All attempts of a call and the pauses between them, without the time in queues; at least as
    long as one attempt."""
    queue_seconds: float = inf
    """A call in the queues of its lanes, each time; the turn's limit goes on beside it."""
    idle_seconds: float = 60.0
    """Between two reports of a tool that reports progress, from the first on."""
    blocked_seconds: float = 0.5
    """A coroutine that keeps the event loop from turning is told of after so long (`Status`)."""
    turn_seconds: float = 900.0
    """A turn as a whole; rests while only humans are awaited."""
    grace_seconds: float = 1.0
    """Between telling a body to stop and giving its call up."""
    approval_seconds: float = 3600.0
    """A question to a human."""
    tool_threads: int = 32
    """Synchronous calls at once."""
    tool_processes: int = 8
    """Calls of tools with `isolation="process"` at once."""
    process_memory_mb: float = 4096.0
    """What the process of such a call may map, in MiB."""
    process_cpu_seconds: float = inf
    """How long the process of such a call may compute, over all its threads."""
    process_result_mb: float = 32.0
    """What such a call may give back, as JSON, in MiB."""
    stuck_threads: int = 64
    """Stuck threads that are replaced; beyond, they count against `tool_threads`."""
    back_off_seconds: float = 1.0
    """The first pause between two attempts; doubles, up to 60 s, give or take 20 %."""
    probe_seconds: float = 30.0
    """A probe that is asked what became of a call; at most `tool_threads` of a run are at once."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            UsageError: a limit is no number, or one that makes no sense.
        """
        for name in self.__slots__:
            given = getattr(self, name)
            if not isinstance(given, (int, float)) or not given >= 0:
                raise UsageError(
                    f"Limits.{name} is {given!r}; give a number of 0 or more (math.inf lifts it)"
                )
        for name in ("tool_threads", "tool_processes"):
            given = getattr(self, name)
            if not isinstance(given, int) or given < 1:
                raise UsageError(f"Limits.{name} is {given!r}; give a whole number of 1 or more")
        if not self.approval_seconds > 0:
            raise UsageError(
                "Limits.approval_seconds is 0, so nobody could ever answer; give more, or math.inf "
                "for questions that never expire"
            )


@dataclass(slots=True, kw_only=True, eq=False)
class Services:
    """Shared by all schedulers of one engine in one event loop."""

    journal: Journal
    lanes: "LaneTable[LiveCall]"
    joined: Joined
    """The lanes that calls join for their tool, run or risk."""
    controls: "Lanes" = field(init=False)
    """Of the lanes, for the host; pauses, drains, rates and back-pressure."""
    setting: Setting
    """What the host brought along, as the journal keeps it."""
    names: Names
    clock: Clock
    threads: ToolThreads
    deadlines: Deadlines
    policy: Policy
    unattended: Unattended | None
    """Who answers the questions of policies; None for humans."""
    tools: Toolset
    durations: Durations
    limits: Limits
    budgets: Budgets
    on_budget: "Callable[[BudgetWarning], object] | None"
    """Told of thresholds that are reached."""
    relaxed: bool
    """Pure and read calls are entered before their start is durable."""
    loops: Loops | None
    """When a model counts as going round in circles; None if nobody looks."""
    recursion: Recursion
    open_run: "Callable[..., Run]"
    """Makes a run by name, for the calls that a body makes."""
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    """That it serves."""
    leaving: "set[Request[LiveCall]]" = field(default_factory=set["Request[LiveCall]"])
    """Permits of bodies that are over, held for nested calls that have not stopped."""
    flights: "dict[Key, Flight]" = field(default_factory=dict["Key", "Flight"])
    """Pure calls that others may join, by what makes them the same."""
    reserve: Reserve | None = None
    """What is kept back of budgets for a last summary."""
    telemetry: "Listener | None" = None
    """Hears what the runs do; None where nobody listens."""
    bell: Bell = field(default_factory=Bell)
    """Rings whenever a human is asked."""
    queues_limited: bool = field(init=False)
    """Whether waiting in queues has a limit."""
    overtake: bool
    """A call that waits for a human holds up only what needs it, not what conflicts with it."""

    def __post_init__(self) -> None:
        """Look at what is asked for often."""
        self.queues_limited = self.limits.queue_seconds != inf
