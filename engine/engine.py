"""The engine: tools, lanes, a policy and a journal, ready to run what models ask for."""

import asyncio
import importlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from laneway.engine.clock import Clock, LoopClock
from laneway.engine.controls import Lanes
from laneway.engine.deadlines import Deadlines
from laneway.engine.durations import Durations
from laneway.engine.foreseen import Preview
from laneway.engine.inbox import Letters
from laneway.engine.plain import whole_text
from laneway.engine.preview import preview
from laneway.engine.providers import parse
from laneway.engine.providers.reply import Reply
from laneway.engine.run import Run, uncancelled
from laneway.engine.scheduler import Scheduler
from laneway.engine.services import OWN, THREAD_LANE, Limits, Services
from laneway.engine.setting import setting_of
from laneway.engine.showing import definitions
from laneway.engine.sources import Sources, ToolSource
from laneway.engine.threads import ToolThreads
from laneway.engine.tools import Tool, Toolset
from laneway.errors import EngineBusyError, EngineClosedError, UsageError
from laneway.facts import LaneChanged
from laneway.ids import RunId
from laneway.journal.memory import MemoryStore
from laneway.journal.sqlite import SqliteStore
from laneway.journal.store import JournalStore
from laneway.journal.writer import Journal
from laneway.lanes.lane import Joined, Lane, lanes_of
from laneway.lanes.names import Names
from laneway.lanes.priorities import PRIORITY_HINT, is_priority
from laneway.lanes.statistics import LaneStatus
from laneway.lanes.table import LaneTable
from laneway.policies.layers import AnyPolicy, OnePolicy, policy_of
from laneway.policies.loops import Loops
from laneway.policies.recursion import Recursion
from laneway.policies.stopping import Reserve
from laneway.policies.unattended import Unattended

LOOPS = Loops()
RECURSION = Recursion()


class StuckCall(msgspec.Struct, frozen=True, kw_only=True):
    """A body that was told to stop and has not."""

    run: RunId
    call: str
    tool: str
    age_seconds: float
    """Since its call was given up."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """A frozen snapshot of the engine."""

    runs: tuple[RunId, ...]
    lanes: tuple[LaneStatus, ...]
    stuck_threads: int
    stuck: tuple[StuckCall, ...]


class Engine:
    """Schedules tool calls. Reusable: one event loop after another, never two at once."""

    def __init__(  # noqa: PLR0913 - one option a line, all by name
        self,
        tools: Iterable[Tool[..., Any] | Callable[..., Any] | ToolSource] = (),
        *,
        journal: JournalStore | str | Path | None = None,
        policy: AnyPolicy | None = None,
        unattended: bool | Unattended = False,
        lanes: Mapping[str, int | Lane] | None = None,
        workspace: str | Path = ".",
        canonicalisers: Mapping[str, Callable[[str], str]] | None = None,
        bound: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        durability: Literal["full", "relaxed"] = "full",
        approval_order: Literal["keep", "overtake"] = "keep",
        last_summary: Reserve | None = None,
        loops: Loops | None = LOOPS,
        recursion: Recursion | None = RECURSION,
        clock: Callable[[], Clock] = LoopClock,
    ) -> None:
        """Put an engine together; nothing is opened yet.

        Args:
            tools: made with `@tool`, or plain functions, which are then taken for the worst case;
                or sources of tools, such as an `MCPServer`, which are opened with the engine.
            journal: a path of an SQLite file, a store, or None for one in memory.
            policy: rules, or a path of a TOML file of rules, or several as layers: by name
                (`{"host": "host.toml", "user": rules}`; host, project, user, session), or in a
                list, the broadest first. Without one everything is allowed, but for tools that
                ask.
            unattended: nobody is there to be asked: True denies each call that a human would be
                asked about, `Unattended(…)` lets the effects run that it names.
            lanes: by lane (`mail` or `lane:mail`) or other resource; a number is `max_concurrent`,
                which is 1 by default (docs/lanes.md).
            workspace: the folder that relative file names start from.
            canonicalisers: by scheme of resources, a function from a name as it was spelt to its
                one spelling, in place of the scheme's own rules: `{"db": str.lower}`. It is called
                in the event loop; its ValueError is told to the model (docs/resources.md).
            bound: arguments that the host sets, by parameter, for every run.
            limits: time limits and numbers of threads.
            durability: `relaxed` enters pure and read calls before their start is durable.
            approval_order: `overtake` lets calls pass that merely conflict with one that waits
                for a human; `keep` holds to the order of the request.
            last_summary: what is kept back of the budgets of a run, so that the model can still
                sum up when they are used up (docs/stopping.md).
            loops: when a model counts as going round in circles; `Loops.OFF` or None lifts it
                (docs/loops.md).
            recursion: how deep and how often runs may begin below the calls of others;
                `Recursion.OFF` or None lifts it (docs/loops.md).
            clock: makes the clock, inside the event loop; for tests.

        Raises:
            ToolError: two tools share a name, or one cannot be registered.
            PolicyError: the policy cannot be read.
            UsageError: an option, a lane or a canonicaliser's scheme makes no sense.
            BadResourceError: a lane has no name that a resource can have.
        """
        chosen("durability", durability, ("full", "relaxed"))
        chosen("approval_order", approval_order, ("keep", "overtake"))
        self._sources = Sources(tools)
        self.tools = self._sources.toolset()
        self.bound = dict(bound or {})
        self.durations = Durations()
        self._policy = policy_of(policy)
        self._unattended = Unattended() if unattended is True else unattended or None
        self._store = journal_store(journal)
        self._names = Names(workspace, canonicalisers=canonicalisers)
        self._lanes = own_apart(lanes_of(lanes or {}, self._names))
        self._limits = limits or Limits()
        self._durability = durability
        self._overtake = approval_order == "overtake"
        self._reserve = last_summary
        self._loops = None if loops == Loops.OFF else loops
        self._recursion = recursion or Recursion.OFF
        self._clock = clock
        self._services: Services | None = None
        self._letters: Letters
        self._schedulers: set[Scheduler] = set()
        self._entering = threading.Lock()
        self._entered = False

    async def __aenter__(self) -> Self:
        """Open the journal, in the running event loop.

        Raises:
            EngineBusyError: the engine is in use in another event loop.
            JournalError: the journal cannot be used.
            LanewayError: a source of tools cannot be opened.
        """
        with self._entering:
            if self._entered:
                raise EngineBusyError
            self._entered = True
        try:
            clock = self._clock()
            self.tools = await self._sources.open(self._retooled)
            journal = Journal(self._store, clock)
            await journal.open()
        except BaseException:
            await self._sources.close()
            self._entered = False
            raise
        threading.Thread(target=import_networkx, name="laneway-import", daemon=True).start()
        services = self._services = Services(
            journal=journal,
            lanes=LaneTable({THREAD_LANE: self._limits.tool_threads, **self._lanes}),
            joined=Joined(self._lanes),
            setting=setting_of(self.tools, self._policy, self._lanes),
            names=self._names,
            clock=clock,
            threads=ToolThreads(clock),
            deadlines=Deadlines(clock),
            policy=self._policy,
            unattended=self._unattended,
            tools=self.tools,
            durations=self.durations,
            limits=self._limits,
            relaxed=self._durability == "relaxed",
            overtake=self._overtake,
            reserve=self._reserve,
            loops=self._loops,
            recursion=self._recursion,
            open_run=self.run,
        )
        services.controls = Lanes(services, self._lanes, self._note)
        self._letters = Letters(journal, self._driven)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop what still runs, write down what there is, and let go of the journal."""
        await uncancelled(asyncio.ensure_future(self._close()))

    async def _close(self) -> None:
        services = self.services
        services.controls.close()
        # All of it is done, whatever some of it raises.
        async with AsyncExitStack() as closing:
            closing.callback(self._forget, services)
            closing.push_async_callback(self._sources.close)
            closing.push_async_callback(services.journal.close)
            closing.push_async_callback(self._letters.close)
            for scheduler in self._schedulers:
                closing.callback(scheduler.bodies.abandon)
                closing.push_async_callback(scheduler.leave)

    def _forget(self, services: Services) -> None:
        self._schedulers.clear()
        services.deadlines.close()
        services.threads.close()
        self._services = None
        self._entered = False

    def _retooled(self, tools: Toolset) -> None:
        """A source has other tools now."""
        self.tools = tools
        if self._services is not None:
            self._services.tools = tools
            self._services.setting = setting_of(tools, self._policy, self._lanes)

    @property
    def services(self) -> Services:
        """What the runs share.

        Raises:
            EngineClosedError: outside `async with engine`.
        """
        if self._services is None:
            raise EngineClosedError
        return self._services

    @property
    def lanes(self) -> Lanes:
        """The controls of the lanes: pause, drain, clear, resize, and what they are like now.

        Raises:
            EngineClosedError: outside `async with engine`.
        """
        return self.services.controls

    def run(
        self,
        name: str,
        *,
        mode: str | None = None,
        policy: OnePolicy | None = None,
        bound: Mapping[str, Any] | None = None,
        parallel: bool = True,
        priority: int = 0,
        resume_with: str = "",
        settings: Any = None,
    ) -> Run:
        """Prepare a run, to be entered with `async with`.

        Args:
            name: of the run; the same name takes the run up again.
            mode: the agent mode that policies see: `build` (the default), `plan`, or one of the
                policy's own; a run that is taken up keeps its mode.
            policy: rules of this run alone, or their path: the narrowest layer. It is not kept in
                the journal; whoever takes the run up gives it again, or is told of the change.
            bound: arguments that the host sets, by parameter.
            parallel: False runs one call after another, in request order.
            priority: where its calls and another run's wait for one lane: each step is worth half
                a minute of waiting; adds to the tool's own.
            resume_with: importable name of a function that carries the run on after a crash.
            settings: JSON that this function wants to know.
        """
        if not is_priority(priority):
            raise UsageError(f"priority={priority!r} is none; {PRIORITY_HINT}")
        if not name or whole_text(name) != name:
            raise UsageError(f"a run needs a name that can be written down, not {name!r}")
        return Run(
            self,
            name,
            mode=mode,
            policy=policy,
            bound=bound or {},
            parallel=parallel,
            priority=priority,
            resume_with=whole_text(resume_with),
            settings=settings,
        )

    async def plan(
        self,
        reply: object,
        *,
        provider: str | None = None,
        mode: str = "build",
        bound: Mapping[str, Any] | None = None,
    ) -> Preview:
        """Say what would become of an answer; nothing is executed and nothing journalled.

        Args:
            reply: as for `Run.submit`.
            provider: as for `Run.submit`.
            mode: the agent mode that policies see.
            bound: as for `run`.

        Raises:
            PayloadError: the answer cannot be read.
        """
        parsed = reply if isinstance(reply, Reply) else parse(reply, provider=provider)
        binding = {**self.bound, **(bound or {})}
        return await preview(parsed, self.services, mode=mode, bound=binding)

    def definitions(self, provider: str, *, mode: str = "build") -> list[dict[str, Any]]:
        """The tools as a provider's request wants them, without those that policies always deny.

        Args:
            provider: `openai-chat` or `anthropic-messages`.
            mode: the agent mode that policies see; `Run.definitions` knows that of a run.

        Raises:
            UsageError: a provider that is not known.
            PolicyError: the policy has no such mode.
        """
        return definitions(self.tools, provider, self._policy, mode, self._unattended)

    def status(self) -> Status:
        """Look at everything that is held, waits or is stuck."""
        services = self.services
        now = services.clock.monotonic()
        return Status(
            runs=tuple(scheduler.log.view.run for scheduler in self._schedulers),
            lanes=services.controls.statuses(),
            stuck_threads=services.threads.stuck,
            stuck=tuple(
                StuckCall(
                    run=scheduler.log.view.run,
                    call=call.id,
                    tool=call.record.tool,
                    age_seconds=now - since,
                )
                for scheduler in self._schedulers
                for call, since in scheduler.bodies.stuck.items()
            ),
        )

    def _driven(self, run: RunId) -> Scheduler | None:
        return next((one for one in self._schedulers if one.log.view.run == run), None)

    def drives(self, scheduler: Scheduler) -> bool:
        """Whether a run that has been entered has not been left, and neither has the engine."""
        return scheduler in self._schedulers

    def joined(self, scheduler: Scheduler) -> None:
        """A run has been entered."""
        self._schedulers.add(scheduler)
        for standing in self.lanes.standing():
            self.services.journal.post(scheduler.log, [standing])

    def _note(self, change: LaneChanged) -> None:
        """Write down in every run what an operator does to a lane."""
        for scheduler in self._schedulers:
            if scheduler.log.broken is None:
                self.services.journal.post(scheduler.log, [change])

    async def leave(self, scheduler: Scheduler) -> None:
        """A run is being left: it goes at once, or when its last stuck body has stopped."""
        if not self.drives(scheduler):
            return  # The engine was left first, and took its runs along.
        try:
            await scheduler.leave()
        finally:
            if scheduler.bodies.stuck:
                scheduler.bodies.when_unstuck = self._let_go
            else:
                await self._let_go(scheduler)

    async def _let_go(self, scheduler: Scheduler) -> None:
        if scheduler in self._schedulers:
            self._schedulers.discard(scheduler)
            await self.services.journal.leave(scheduler.log)


def own_apart(lanes: dict[str, Lane]) -> dict[str, Lane]:
    """See that a host configures no lane of the engine's own.

    Raises:
        UsageError: it does.
    """
    for name in lanes:
        if name.startswith(OWN):
            raise UsageError(
                f"{name} is the engine's own; Limits(tool_threads=…) says how wide it is"
            )
    return lanes


def journal_store(journal: JournalStore | str | Path | None) -> JournalStore:
    """The store that a host meant."""
    if journal is None:
        return MemoryStore()
    if isinstance(journal, (str, Path)):
        return SqliteStore(journal)
    return journal


def chosen(option: str, given: object, known: Sequence[str]) -> None:
    """See that an option is one that there is.

    Raises:
        UsageError: it is not, and would have been taken for the default in silence.
    """
    if given not in known:
        raise UsageError(f"{option}={given!r} is not known (known: {', '.join(known)})")


def import_networkx() -> None:
    """Import it beside the loop: half a second that no turn should wait for."""
    importlib.import_module("networkx")
