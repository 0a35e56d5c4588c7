"""The engine: tools, lanes, a policy and a journal, ready to run what models ask for."""

import asyncio
import importlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from laneway.engine.bodies import name_of_task
from laneway.engine.bookkeeping import checked
from laneway.engine.budget_status import Listener
from laneway.engine.clock import Clock, LoopClock
from laneway.engine.controls import Lanes
from laneway.engine.deadlines import Deadlines
from laneway.engine.durations import Durations
from laneway.engine.ending.signals import shutting_down_on_signals
from laneway.engine.foreseen import Preview
from laneway.engine.inbox import Letters
from laneway.engine.isolation.watchdog import Blocked, Watchdog
from laneway.engine.nesting import holder
from laneway.engine.plain import whole_text
from laneway.engine.preview import preview
from laneway.engine.providers import parse
from laneway.engine.providers.reply import Reply
from laneway.engine.run import Run, uncancelled
from laneway.engine.scheduler import Scheduler
from laneway.engine.services import OWN, PROCESS_LANE, THREAD_LANE, Limits, Services
from laneway.engine.setting import setting_of
from laneway.engine.shaping.offering import offering
from laneway.engine.shaping.options import Shaping
from laneway.engine.shaping.showing import Shown
from laneway.engine.showing import definitions, passing
from laneway.engine.shutdown import Closing, Shutdown
from laneway.engine.sources import Sources, ToolSource
from laneway.engine.telemetry.listening import listener_of
from laneway.engine.telemetry.options import Telemetry
from laneway.engine.threads import ToolThreads
from laneway.engine.tools import Tool, Toolset
from laneway.engine.toolsearch.finding import Catalogue
from laneway.engine.toolsearch.options import Search
from laneway.engine.toolsearch.prompt import prompt
from laneway.errors import EngineBusyError, EngineClosedError, ShuttingDownError, UsageError
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
from laneway.policies.budgets import Budgets
from laneway.policies.layers import AnyPolicy, OnePolicy, policy_of, with_run_layer
from laneway.policies.loops import Loops
from laneway.policies.recursion import Recursion
from laneway.policies.rules import Policy
from laneway.policies.stopping import Reserve
from laneway.policies.unattended import Unattended

LOOPS = Loops()
RECURSION = Recursion()
SEARCH = Search()


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
    blocked: tuple[Blocked, ...] = ()
    """The last coroutines that kept the event loop from turning for `Limits.blocked_seconds`."""
    shutting_down: bool = False


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
        budgets: Budgets | None = None,
        on_budget: Listener | None = None,
        durability: Literal["full", "relaxed"] = "full",
        approval_order: Literal["keep", "overtake"] = "keep",
        last_summary: Reserve | None = None,
        loops: Loops | None = LOOPS,
        recursion: Recursion | None = RECURSION,
        telemetry: bool | Telemetry = True,
        shaping: Shaping | None = None,
        search: Search | None = SEARCH,
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
            budgets: what a run may use: model turns, tokens and time have limits by default
                (docs/budgets.md).
            on_budget: called in the event loop when a budget has reached 80 and 95 %, once each.
            durability: `relaxed` enters pure and read calls before their start is durable.
            approval_order: `overtake` lets calls pass that merely conflict with one that waits
                for a human; `keep` holds to the order of the request.
            last_summary: what is kept back of the budgets of a run, so that the model can still
                sum up when they are used up (docs/stopping.md).
            loops: when a model counts as going round in circles; `Loops.OFF` or None lifts it
                (docs/loops.md).
            recursion: how deep and how often runs may begin below the calls of others;
                `Recursion.OFF` or None lifts it (docs/loops.md).
            telemetry: True tells what runs do to the OpenTelemetry SDK that the program has set up
                when the engine is entered, if it has; `Telemetry(…)` says where to and how much;
                False tells nobody (docs/telemetry.md).
            shaping: how large results may be that the model is shown, and in which form; offers it
                the tool `read_result`. Without it the usual sizes hold (docs/results.md).
            search: when the model finds tools by search instead of being shown them all: by
                default from 50 on; `Search.OFF` or None lifts it (docs/results.md).
            clock: makes the clock, inside the event loop; for tests.

        Raises:
            ToolError: two tools share a name, or one cannot be registered.
            PolicyError: the policy cannot be read.
            UsageError: an option, a lane or a canonicaliser's scheme makes no sense.
            BadResourceError: a lane has no name that a resource can have.
        """
        chosen("durability", durability, ("full", "relaxed"))
        chosen("approval_order", approval_order, ("keep", "overtake"))
        self.shaping = shaping or Shaping()
        self._offers, self._search = shaping, search or Search.OFF
        self._sources = Sources(tools)
        self._offer(self._sources.toolset())
        self.bound = dict(bound or {})
        self.durations = Durations()
        self._policy = policy_of(policy)
        self._unattended = Unattended() if unattended is True else unattended or None
        self._store = journal_store(journal)
        self._names = Names(workspace, canonicalisers=canonicalisers)
        self._lanes = own_apart(lanes_of(lanes or {}, self._names))
        self._limits = limits or Limits()
        self._budgets = checked(budgets or Budgets(), self.tools, self._names)
        self._on_budget = on_budget
        self._durability = durability
        self._overtake = approval_order == "overtake"
        self._reserve = last_summary
        self._loops = None if loops == Loops.OFF else loops
        self._recursion = recursion or Recursion.OFF
        self._telemetry = telemetry
        self._clock = clock
        self._services: Services | None = None
        self._letters: Letters
        self._schedulers: set[Scheduler] = set()
        self._closing: Closing | None = None
        self._ending: asyncio.Future[Shutdown] | None = None
        self._watchdog: Watchdog | None = None
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
            self._offer(await self._sources.open(self._retooled))
            journal = Journal(self._store, clock)
            await journal.open()
        except BaseException:
            await self._sources.close()
            self._entered = False
            raise
        threading.Thread(target=import_networkx, name="laneway-import", daemon=True).start()
        services = self._services = Services(
            journal=journal,
            lanes=LaneTable(self._own_lanes() | self._lanes),
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
            budgets=self._budgets,
            on_budget=self._on_budget,
            relaxed=self._durability == "relaxed",
            overtake=self._overtake,
            reserve=self._reserve,
            loops=self._loops,
            recursion=self._recursion,
            open_run=self.run,
        )
        services.telemetry = listener_of(self._telemetry, self.tools, clock, early=services.relaxed)
        services.controls = Lanes(services, self._lanes, self._note)
        self._letters = Letters(journal, self._driven)
        if self._limits.blocked_seconds != inf:
            self._watchdog = Watchdog(self._limits.blocked_seconds, name_of_task)
        return self

    def _own_lanes(self) -> dict[str, int | Lane]:
        own: dict[str, int | Lane] = {THREAD_LANE: self._limits.tool_threads}
        if any(tool.spec.isolation for tool in self.tools):
            own[PROCESS_LANE] = self._limits.tool_processes
        return own

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop what still runs, write down what there is, and let go of the journal."""
        await uncancelled(asyncio.ensure_future(self._close()))

    async def shutdown(self, *, within: float = 10.0) -> Shutdown:
        """End in good order: begin nothing more, let end what runs, save the rest.

        From now on runs refuse answers, and calls that have not started wait for whoever takes
        their run up: `async with engine.run(name)` and `await run.finish()`, in a later engine.
        What still runs when the time is over is told to stop and has the grace of the engine's
        limits; what may be repeated safely and stops then waits, too. Whoever waits for a turn that
        is open still gets ShuttingDownError. The runs can be looked at until they are left.

        Args:
            within: seconds for what runs; 0 stops it at once. While a shutdown is under way, 0
                hurries it: then there is no grace, either.

        Raises:
            EngineClosedError: outside `async with engine`.
        """
        _ = self.services
        if self._ending is None:
            self._closing = Closing(self._schedulers)
            self._ending = asyncio.ensure_future(self._closing.carry_out(within))
        elif within <= 0 and self._closing is not None:
            self._closing.hurry()
        await uncancelled(self._ending)
        return self._ending.result()

    def on_signals(self, *, within: float = 10.0) -> AbstractAsyncContextManager[None]:
        """Shut down on SIGTERM and Ctrl-C: `async with engine, engine.on_signals(): …`.

        The first signal is `shutdown(within=…)`; then the task in here is cancelled, and what is
        left raises KeyboardInterrupt, or SystemExit(143) for SIGTERM. A second one waits for
        nothing: what runs is given up, with its outcome on the disk. A third one, or a second one
        where the event loop does not turn, leaves as Python does without this; what was
        acknowledged is on the disk even then.

        Args:
            within: seconds for what runs.

        Raises:
            UsageError: on entering it outside the main thread.
        """
        return shutting_down_on_signals(partial(self.shutdown, within=within), self._hurry)

    def _hurry(self) -> None:
        if self._closing is not None:
            self._closing.hurry()

    def see_that_open(self, run: str) -> None:
        """See that something may be begun in a run.

        Raises:
            ShuttingDownError: the engine is being shut down.
        """
        if self._ending is not None and holder(self.services) is None:
            raise ShuttingDownError(run)

    async def _close(self) -> None:
        services = self.services
        if self._watchdog is not None:
            self._watchdog.close()
        if self._ending is not None:
            self._hurry()
            await asyncio.wait([self._ending])
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
        if services.telemetry is not None:
            services.telemetry.close()
        services.deadlines.close()
        services.threads.close()
        self._services = self._watchdog = self._closing = self._ending = None
        self._entered = False

    def _retooled(self, tools: Toolset) -> None:
        """A source has other tools now."""
        self._offer(tools)
        if self._services is not None:
            self._services.tools = self.tools
            self._services.setting = setting_of(self.tools, self._policy, self._lanes)

    def _offer(self, tools: Toolset) -> None:
        """Have these tools, and those that the engine offers beside them."""
        self.catalogue = Catalogue(offering(tools, self._offers), self._search)
        self.tools = self.catalogue.tools
        self.shown = Shown(self.tools, self.shaping)

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

    def run(  # noqa: PLR0913 - one option a line, all by name
        self,
        name: str,
        *,
        mode: str | None = None,
        policy: OnePolicy | None = None,
        bound: Mapping[str, Any] | None = None,
        parallel: bool = True,
        priority: int = 0,
        budget: Budgets | None = None,
        resume_with: str = "",
        settings: Any = None,
        task_class: str = "",
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
            budget: what this run may use; where the engine says something too, the less holds.
            resume_with: importable name of a function that carries the run on after a crash.
            settings: JSON that this function wants to know.
            task_class: what kind of task it is, one of few: measurements go by it. A run that is
                taken up keeps its own, and a run within a call has that of the call's run.
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
            budget=None if budget is None else checked(budget, self.tools, self._names),
            resume_with=whole_text(resume_with),
            settings=settings,
            task_class=whole_text(task_class),
        )

    async def plan(
        self,
        reply: object,
        *,
        provider: str | None = None,
        mode: str = "build",
        bound: Mapping[str, Any] | None = None,
        policy: OnePolicy | None = None,
    ) -> Preview:
        """Say what would become of an answer; nothing is executed and nothing journalled.

        Args:
            reply: as for `Run.submit`.
            provider: as for `Run.submit`.
            mode: the agent mode that policies see.
            bound: as for `run`.
            policy: the layer of the run that it is thought of for, as for `run`.

        Raises:
            PayloadError: the answer cannot be read.
            PolicyError: the layer's file cannot be read.
        """
        parsed = reply if isinstance(reply, Reply) else parse(reply, provider=provider)
        binding = {**self.bound, **(bound or {})}
        judged = with_run_layer(self.services.policy, policy)
        return await preview(parsed, self.services, mode=mode, bound=binding, policy=judged)

    def definitions(self, provider: str, *, mode: str = "build") -> list[dict[str, Any]]:
        """The tools as a provider's request wants them, without those that policies always deny.

        Args:
            provider: the name of a wire format, for instance `openai-chat`.
            mode: the agent mode that policies see; `Run.definitions` knows that of a run.

        Raises:
            UsageError: a provider that is not known.
            PolicyError: the policy has no such mode.
        """
        shown = self.catalogue.shown()
        return definitions(shown, provider, self._policy, mode, self._unattended)

    def prompt(self, *, mode: str = "build") -> str:
        """A text for the system prompt: which calls may be asked for together, and the like.

        It is a hint that saves turns; everything is enforced whatever the model was told.

        Args:
            mode: the agent mode that policies see; `Run.prompt` knows that of a run.

        Raises:
            PolicyError: the policy has no such mode.
        """
        return self.prompt_for(self._policy, mode)

    def prompt_for(self, policy: Policy, mode: str) -> str:
        """The text, as a policy sees the tools in a mode."""
        policy.mode(mode)
        shown, hidden = (
            passing(tools, policy, mode, self._unattended)
            for tools in (self.catalogue.shown(), self.catalogue.hidden)
        )
        return prompt(shown, hidden, self.shaping)

    def status(self) -> Status:
        """Look at everything that is held, waits or is stuck."""
        services = self.services
        now = services.clock.monotonic()
        return Status(
            runs=tuple(scheduler.log.view.run for scheduler in self._schedulers),
            lanes=services.controls.statuses(),
            stuck_threads=services.threads.stuck,
            blocked=() if self._watchdog is None else tuple(self._watchdog.found),
            shutting_down=self._ending is not None,
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
