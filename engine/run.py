"""A run: a conversation's work under one id, and the host's handle on it."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec

from laneway.engine import admission
from laneway.engine.abandoning import Abandoned, to_undo, undo
from laneway.engine.answering import Said, answer, revoke
from laneway.engine.bookkeeping import account_of, hold_again, open_account, setting_with
from laneway.engine.budget_status import BudgetStatus
from laneway.engine.charging import Charge
from laneway.engine.descent import descend
from laneway.engine.explain import Explanation, explain
from laneway.engine.failures import WITHDRAWN, Told, cancelled
from laneway.engine.granting import standing
from laneway.engine.holdovers import end_holdovers, hold_for
from laneway.engine.inbox import take_up
from laneway.engine.leftovers import end_left, is_over
from laneway.engine.live import LiveCall, LiveTurn
from laneway.engine.modes import change_mode, mode_of
from laneway.engine.nesting import holder, note_child
from laneway.engine.plain import whole_text
from laneway.engine.providers import format_named, parse
from laneway.engine.providers.earlier import see_that_open
from laneway.engine.providers.reply import Reply
from laneway.engine.providers.say import said_by_host
from laneway.engine.questions import OpenApproval, asked, each, open_questions
from laneway.engine.recalling import is_of_user, watch_of
from laneway.engine.recovery import found_out, revive
from laneway.engine.repeated import see_that_same
from laneway.engine.reporting import StopReport, report
from laneway.engine.requesting import Request
from laneway.engine.scheduler import SLICE, Scheduler
from laneway.engine.sealing import see_no_secret
from laneway.engine.secrets.alike import alike
from laneway.engine.setting import changes_since, judged_by
from laneway.engine.settling import (
    UNSAID,
    as_json,
    finding,
    settlement,
    told_already,
    unsettled_call,
)
from laneway.engine.showing import definitions
from laneway.engine.step import may_run_again
from laneway.engine.stopping import (
    carry_out,
    reopened,
    reopening,
    see_that_named,
)
from laneway.engine.streaming.early import Early
from laneway.engine.streaming.source import Source
from laneway.engine.streaming.stream import Door, Stream
from laneway.engine.tally import settlements
from laneway.engine.telemetry.joining import count_budgets, join, task_class_of
from laneway.engine.turn import Turn, asked_for, conversation, open_names, said_before
from laneway.errors import (
    EngineBusyError,
    EngineClosedError,
    JournalError,
    LanewayError,
    OpenTurnError,
    PlanError,
    UnknownCallError,
    UsageError,
)
from laneway.facts import Fact, HostNoted, MessageSaid, Row, RunAbandoned, RunOpened, RunTaken
from laneway.ids import RunId
from laneway.journal.fold import CallView, GrantView, RunView, TurnView, fold
from laneway.journal.lease import this_driver
from laneway.journal.writer import RunLog
from laneway.outcomes import Failure, StoppedBy, StopReason
from laneway.policies.budgets import Budgets
from laneway.policies.layers import OnePolicy, with_run_layer
from laneway.policies.stopping import Through, reason_named
from laneway.states import State

if TYPE_CHECKING:
    from laneway.engine.engine import Engine
    from laneway.engine.shaping.showing import Shown


class Run:
    """Made by `engine.run(name)`; use it with `async with`, which creates it or takes it up."""

    def __init__(  # noqa: PLR0913 - one option a line, all by name
        self,
        engine: "Engine",
        name: str,
        *,
        mode: str | None,
        policy: OnePolicy | None,
        bound: Mapping[str, Any],
        parallel: bool,
        priority: int,
        budget: Budgets | None,
        resume_with: str,
        settings: Any,
        task_class: str = "",
    ) -> None:
        """Prepare; nothing is read or written before the run is entered."""
        self._engine = engine
        self._name = RunId(name)
        self._mode = mode
        self._policy = policy
        self._bound = bound
        self._parallel = parallel
        self._priority = priority
        self._budget = budget
        self._resume_with = resume_with
        self._settings = as_json(settings, f"settings= of run {name!r}")
        self._task_class = task_class
        self._scheduler: Scheduler | None = None
        self._submitting = False
        self._parents: list[CallView] = []
        """Calls that an earlier driver left, with runs below them that may be open."""

    # Coming and going

    async def __aenter__(self) -> Self:
        """Become the driver of the run, created if need be.

        Raises:
            RunOwnedError: another living process drives it, or this one already does.
            DamagedJournalError: its facts cannot be read.
            EngineBusyError: the engine serves another event loop.
            UsageError: a tool needs something from the host that is not bound, or the settings of
                the run hold a secret of the host's, which would be written down with them.
        """
        services = self._engine.services
        self._engine.see_that_open(self._name)
        if services.loop is not asyncio.get_running_loop():
            raise EngineBusyError
        bound = {**self._engine.bound, **self._bound}
        services.tools.require_bound(bound)
        see_no_secret(self._name, self._settings, bound, services.tools)
        driver = this_driver()
        rows = await services.journal.take(self._name, driver)
        log = RunLog(RunView(self._name), self._broken)
        try:
            log = RunLog(fold(self._name, rows), self._broken)
            services.journal.attach(log)
            await self._take_up(log, rows)
        except BaseException:
            await uncancelled(asyncio.ensure_future(services.journal.leave(log)))
            raise
        return self

    async def _take_up(self, log: RunLog, rows: Sequence[Row]) -> None:
        services = self._engine.services
        view = log.view
        opening: list[Fact]
        place = await descend(self._name, view, services)
        nested = note_child(self._name, services)
        within = holder(services) if nested else None
        above = None if within is None else within.scheduler
        broader = services.policy if above is None else above.policy
        policy = with_run_layer(broader, self._policy)
        mode = mode_of(self._mode or (view.mode if view.seq else ""), above, policy)
        # What a run within a call is driven with is in the run of that call.
        setting = None
        if not nested:
            setting = setting_with(judged_by(services.setting, policy), services, self._budget)
        ended, stuck = await end_holdovers(view, rows, services)
        task_class = task_class_of(view, self._task_class, above)
        trace = join(services, log, mode, task_class, place.agents, within)
        held = {one.call.id for one in stuck if one.run == view.run}
        if view.seq:
            taken = RunTaken(
                driver=this_driver(),
                mode=mode,
                setting=None if setting == view.setting else setting,
                changes=() if setting is None else changes_since(view, setting),
                trace=trace,
            )
            opening = [taken, *found_out(view, held, services.tools), *ended]
            opening += settlements(view)
            last = view.turns[-1:]
            self._parents = [call for turn in last for call in turn.calls if call.children]
        else:
            opening = [
                RunOpened(
                    run=self._name,
                    driver=this_driver(),
                    mode=mode,
                    resume_with=self._resume_with,
                    settings=self._settings,
                    setting=setting,
                    below=place.below(),
                    task_class=task_class,
                    trace=trace,
                )
            ]
        await services.journal.keep(log, opening)
        scheduler = self._scheduler = Scheduler(
            services,
            log,
            mode=mode,
            bound={**self._engine.bound, **self._bound},
            serial=not self._parallel,
            priority=self._priority,
            policy=policy,
            above=above,
        )
        scheduler.place = place
        place.tree.home = place.tree.home or scheduler
        watch = scheduler.watch = watch_of(scheduler)
        if watch is not None:
            watch.on_stop = scheduler.needs_user
        await open_account(scheduler, self._budget, rows)
        count_budgets(services, log, account_of(scheduler).statuses)
        for one in stuck:
            hold_for(one, scheduler)
        services.durations.learn_from(view)
        for turn in view.turns:
            if turn.closed:
                remember(turn, scheduler)
        if view.open_turn is not None:
            scheduler.turn = revive(view.open_turn, scheduler)
            hold_again(scheduler)
        if any(one.answer is None for one in view.approvals.values()):
            await take_up(scheduler)  # Before a question is shown again.
        self._engine.joined(scheduler)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop what runs, park what waits for humans, and let another driver come."""
        scheduler = self._scheduler
        if scheduler is None:
            return
        try:
            await uncancelled(asyncio.ensure_future(self._engine.leave(scheduler)))
        finally:
            self._scheduler = None
        scheduler.let_interrupt_out()

    def _broken(self, error: JournalError) -> None:
        if self._scheduler is not None:
            self._scheduler.broken(error)

    # What the run is

    @property
    def id(self) -> RunId:
        """The name of the run."""
        return self._name

    @property
    def view(self) -> RunView:
        """The state of the run, folded from the facts that have been kept so far."""
        return self._entered.log.view

    @property
    def mode(self) -> str:
        """The agent mode that policies see: `build`, `plan`, or one of the policy's own."""
        return self._entered.mode

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the run goes on no more by itself; None while it does.

        COMPLETED by itself where the model's last answer asked for nothing.
        """
        return self.view.stop_reason

    @property
    def changes(self) -> tuple[str, ...]:
        """What has changed since the driver before, in a sentence each.

        Only what concerns the run: tools that its calls asked for, the policy, the limits of lanes
        that they take.
        """
        return self.view.changes

    @property
    def turns(self) -> Sequence[Turn]:
        """All turns, the first first; not one whose answer is being written, or never ended."""
        views = self.view.turns
        return [Turn(self, one) for one in views if not (one.provisional or one.abandoned)]

    @property
    def open_turn(self) -> Turn | None:
        """The turn that a crash left, or one that still goes on."""
        view = self.view.open_turn
        gone = view is None or view.provisional or view.abandoned
        return None if view is None or gone else Turn(self, view)

    @property
    def approvals(self) -> Sequence[OpenApproval]:
        """The questions that wait for a human, in the order in which they were asked.

        Those of calls within this run's calls come last; their ids begin with the name of the run
        below: `fix-42/t1.2/1/t1.1.a1`.
        """
        return [question for _, question in open_questions(self._entered)]

    def definitions(self, provider: str) -> list[dict[str, Any]]:
        """The tools as a provider's request wants them, without those that this run always denies.

        Args:
            provider: the name of a wire format, for instance `openai-chat`.

        Raises:
            UsageError: a provider that is not known.
        """
        scheduler, services = self._entered, self._entered.services
        return definitions(
            self._engine.catalogue.shown(self.view),
            provider,
            scheduler.policy,
            scheduler.mode,
            services.unattended,
        )

    def prompt(self) -> str:
        """A text for the system prompt, as `Engine.prompt`, for the mode of this run."""
        return self._engine.prompt_for(self._entered.policy, self._entered.mode)

    @property
    def grants(self) -> Sequence[GrantView]:
        """What humans have granted for later calls, and not revoked; the first first."""
        return standing(self.view)

    @property
    def budgets(self) -> dict[str, BudgetStatus]:
        """How every budget of the run stands, by its name, such as `tokens` or `tree:cost`."""
        return account_of(self._entered).statuses()

    def explain(self) -> tuple[Explanation, ...]:
        """Say of every unfinished call what it waits for, since when, and what that waits for."""
        return explain(self._live)

    def expect(self, tool: str) -> float:
        """Say how long a call of a tool will take, in seconds, as far as the engine has learnt."""
        return self._engine.durations.expect(tool)

    @property
    def shown(self) -> "Shown":
        """How results are shown to the model."""
        return self._engine.shown

    def history(self, provider: str = "") -> list[dict[str, Any]]:
        """Every assistant message with its results, and what `say` added, in the provider's form.

        A turn that has not ended is not shown.

        Args:
            provider: the name of the wire format for what is said before the first answer; of
                OpenAI, Anthropic, Cohere and Ollama the form of a user's text is the same.

        Raises:
            PayloadError: there is no format of that name.
        """
        return conversation(self.view, self.shown, provider)

    # What the host does

    async def submit(
        self,
        reply: object,
        *,
        provider: str | None = None,
        key: str = "",
        wait: bool = True,
        strict: bool = False,
    ) -> Turn:
        """Run the calls of a model's answer.

        Args:
            reply: a provider's answer, as the SDK's object or as its dict; or a plan.
            provider: the name of the wire format; told from the payload's shape if absent.
            key: names this answer; the same key again gives the recorded turn. Without it the
                provider's message id does the same for an answer submitted twice in a row.
            wait: until all outcomes stand; else return once the answer is written down.
            strict: refuse the answer whole if any of its calls has a fault, as for a plan.

        Raises:
            PayloadError: the answer cannot be read.
            PlanError: it has faults, and `strict` was asked for; nothing was run.
            OpenTurnError: the previous turn has not ended.
            ChangedReplyError: an answer of this key is recorded, with other calls.
            EngineClosedError: the run or the engine was left while the answer waited for room in a
                lane (docs/lanes.md); nothing of it was taken in.
            JournalError: nothing can be written down; nothing further is begun.
        """
        parsed = reply if isinstance(reply, Reply) else parse(reply, provider=provider)
        key = whole_text(key)
        recorded = self._recorded(parsed, key)
        if recorded is not None:
            if wait and not recorded.ready:
                await self.finish()
            return recorded
        scheduler = self._live
        self._refuse_second()
        scheduler.refusal = None
        return await self._submit(parsed, key, wait=wait, strict=strict)

    async def _submit(
        self, parsed: Reply, key: str, *, wait: bool, strict: bool, early: Early | None = None
    ) -> Turn:
        scheduler = self._live
        scheduler.let_interrupt_out()
        self._submitting = True

        async def admitted() -> admission.Admission:
            if self.view.turns:
                remember(self.view.turns[-1], scheduler)
            number = len(self.view.turns) + 1 if early is None else early.number
            return await admission.admit(parsed, number, scheduler, key=key)

        try:
            coming = await admitted()
            if early is not None:
                coming = await early.become(coming, admitted)
            if strict and coming.faults:
                raise PlanError(fault_lines(coming))
            charge = Charge(account_of(scheduler), coming, parsed)
            try:
                waiting = () if charge.refused else coming.turn.calls
                async with scheduler.services.controls.room(waiting, scheduler):
                    await self._take_in(coming, wait=wait)
            finally:
                charge.close(taken_in=scheduler.turn is coming.turn)
        finally:
            self._submitting = False
        if not wait:
            return Turn(self, self.view.turns[-1])
        return await self._finish(coming.turn)

    def request(
        self, *, model: str = "", messages: Any = (), max_output_tokens: int | None = None
    ) -> Request:
        """Prepare a request to the model, to be entered with `async with` (docs/budgets.md).

        Entering sets aside the tokens that it may take, and their cost where a budget of cost is
        there; leaving settles it.

        Args:
            model: its name, for the price.
            messages: all that will be sent, tools included, for the estimate of the input.
            max_output_tokens: what the request limits the answer to; 4,096 if left out.

        Raises:
            UsageError: `max_output_tokens` is no number of tokens.
        """
        return Request(
            lambda: account_of(self._live),
            model=model,
            messages=messages,
            max_output_tokens=max_output_tokens,
        )

    def stream(
        self,
        events: object,
        *,
        provider: str | None = None,
        key: str = "",
        wait: bool = True,
        strict: bool = False,
    ) -> Stream:
        """Run the calls of an answer that the model is still writing.

        Pure and read calls start as soon as their arguments are complete, the others when the
        message has ended well (docs/streaming.md):

            turn = await run.stream(events)

            async with run.stream(events) as stream:
                async for event in stream: ...  # or: async for said in stream.text()
                turn = await stream.turn()

        Args:
            events: an async iterable, or an iterable, of the bytes of the answer in any cut, of
                decoded events, or of the SDK's objects.
            provider: the name of the wire format; told from the first event if absent.
            key: as for `submit`.
            wait: as for `submit`, from the end of the message on.
            strict: as for `submit`; nothing starts early.

        Raises:
            PayloadError: it is no stream, or no stream of the format is read.
        """
        key = whole_text(key)
        return Stream(
            Source(events),
            Door(
                open=self._open_stream,
                close=self._close_stream,
                early=self._early,
                recorded=lambda reply: self._recorded(reply, key) is not None,
                submit=lambda reply, early: self._end_stream(
                    reply, key, early, wait=wait, strict=strict
                ),
                uncut=lambda work: uncancelled(asyncio.ensure_future(work)),
            ),
            provider=provider,
            starts_early=not strict,
        )

    def _open_stream(self) -> None:
        scheduler = self._live
        self._refuse_second()
        scheduler.let_interrupt_out()
        scheduler.refusal = None
        self._submitting = True

    def _close_stream(self) -> None:
        self._submitting = False

    def _early(self) -> Early:
        scheduler = self._live
        if self.view.turns:
            remember(self.view.turns[-1], scheduler)
        return Early(scheduler, len(self.view.turns) + 1)

    async def _end_stream(
        self, reply: Reply, key: str, early: Early, *, wait: bool, strict: bool
    ) -> Turn:
        recorded = self._recorded(reply, key)
        if recorded is not None:
            self._submitting = False
            return recorded
        return await self._submit(reply, key, wait=wait, strict=strict, early=early)

    async def finish(self) -> Turn | None:
        """Let the open turn go on, wait for it, and make its outcomes final.

        Returns:
            The turn; None if there is no open one.
        """
        turn = self._live.turn
        if turn is None or turn.closed or turn.provisional:
            return None
        return await self._finish(turn)

    async def _finish(self, turn: LiveTurn) -> Turn:
        await self._wait(turn)
        await self._close(turn)
        return Turn(self, self.view.turns[turn.number - 1])

    async def wait(self, turn: Turn) -> None:
        """Wait for a turn; see Turn.wait."""
        if not turn.ready:
            await self._wait(self._live_turn(turn))

    async def close(self, turn: Turn) -> None:
        """Close a turn; see Turn.close."""
        if turn.ready:
            return
        live = self._live_turn(turn)
        live.withdrawn = True
        asked = [call for call in live.calls if call.state is State.AWAITING_APPROVAL]
        self._live.cancel(asked, WITHDRAWN)
        await self._wait(live)
        await self._close(live)

    async def say(
        self, message: str | Mapping[str, Any], *, provider: str = ""
    ) -> list[dict[str, Any]]:
        """Put a message of the host's into the conversation, durably.

        A message of the user's lets a run go on that stands still until there is one.

        Args:
            message: a text of the user's, or a message in the provider's form.
            provider: as for `history`, before the first answer.

        Returns:
            The history, the message included.

        Raises:
            PayloadError: it is no message, cannot be told in JSON, or holds a result for a call
                that is not open; nothing was written.
        """
        scheduler = self._live
        if provider:
            format_named(provider)
        told = whole_text(message) if isinstance(message, str) else said_by_host(message)
        see_that_open(told, said_before(self.view))
        said: list[Fact] = [MessageSaid(message=told)]
        if scheduler.stopped is not None and is_of_user(told):
            carry_out(scheduler)
            said += reopening(scheduler, Through.SAY)
        await scheduler.services.journal.keep(scheduler.log, said)
        if len(said) > 1:
            reopened(scheduler)
        if scheduler.watch is not None and is_of_user(told):
            scheduler.watch.heard()
        return self.history(provider)

    async def note(self, note: Any) -> None:
        """Write something down for whoever reads the journal; the model never sees it.

        Args:
            note: anything that can be told in JSON.

        Raises:
            UsageError: it cannot; nothing was written.
        """
        scheduler = self._live
        said = HostNoted(note=as_json(note, "a note"))
        await scheduler.services.journal.keep(scheduler.log, [said])

    async def set_mode(self, mode: str, *, by: str = "") -> None:
        """Put the run into another mode, durably; its calls that have not started are judged anew.

        One that the mode denies ends; one that it has asked about leaves its queue and waits for
        the answer; one that waited for an answer that nobody wants any more goes on. What runs goes
        on. Runs within the calls of this one do no more than this one may; one that is within a
        call itself gets no wider mode than the run above it has.

        Args:
            mode: `build`, `plan`, or one of the policy's own.
            by: who says so.

        Raises:
            PolicyError: there is no such mode; nothing was changed.
        """
        scheduler = self._live
        change_mode(scheduler, mode, by=whole_text(by))
        await scheduler.kept()

    async def stop(self, reason: StopReason | str, detail: str = "", *, by: str = "") -> None:
        """Let the run go on no more by itself, durably; docs/stopping.md says what that means.

        What has not started ends at once, but where a budget has ended; for CANCELLED and FAILED
        what runs is told to stop, too. `await run.finish()` waits for it. Of two stops the heavier
        stands (COMPLETED, NEEDS_USER_INPUT, BUDGET_EXCEEDED, then CANCELLED and FAILED), of two of
        one weight the first.

        Args:
            reason: why.
            detail: a sentence, for the user and for the model.
            by: who says so.

        Raises:
            UsageError: there is no such reason.
        """
        scheduler = self._live
        scheduler.stop(reason_named(reason), whole_text(detail), by=whole_text(by))
        carry_out(scheduler)
        await scheduler.kept()

    async def resume(self, *, by: str = "") -> None:
        """Let the run go on that was stopped, durably; nothing happens to one that was not.

        Where a budget has ended that is no larger by now, it ends again.

        Args:
            by: who says so; must be given where the run was CANCELLED or has FAILED.

        Raises:
            UsageError: nobody says so, and somebody has to.
        """
        scheduler = self._live
        see_that_named(scheduler, by)
        scheduler.go_on(Through.RESUME, whole_text(by))
        await scheduler.kept()

    async def abandon(
        self, *, compensate: bool = False, reason: str = "", by: str = ""
    ) -> Abandoned:
        """Give the run up: stop it (CANCELLED), and undo what its calls have done, if asked for.

        What runs is told to stop, and waited for. Then the compensations of the tools
        (`@tool(compensate=…)`) are entered one after another, that of the call that ended last
        first, each once, with the lanes that its call held; a failed one does not keep the others
        from being entered. Calls within a call are undone in place of it, where its tool has no
        compensation. After a crash the same call of this goes on where it was.

        Args:
            compensate: whether what has been done is to be undone.
            reason: kept, and told to the model.
            by: who says so.

        Returns:
            What was undone, and what was not.

        Raises:
            ShuttingDownError: the engine is being shut down; asked again later, it goes on.
        """
        scheduler = self._live
        told, who = whole_text(reason), whole_text(by)
        scheduler.stop(StopReason.CANCELLED, told or "the run was given up", by=who)
        carry_out(scheduler)
        await self.finish()
        if not compensate:
            await scheduler.kept()
            return Abandoned()
        if self.view.abandoned is None:
            said = RunAbandoned(by=who, reason=told)
            await scheduler.services.journal.keep(scheduler.log, [said])
        found = Abandoned()
        for call in to_undo(self.view):
            tool = scheduler.services.tools.get(call.record.tool)
            if call.children and (tool is None or tool.compensation is None):
                found += await self._abandon_within(call, reason=told, by=who)
            undoing = asyncio.ensure_future(undo(call, self._live))
            await uncancelled(undoing)  # What has been begun is written down to its end.
            found += undoing.result()
        return found

    async def _abandon_within(self, call: CallView, *, reason: str, by: str) -> Abandoned:
        """Undo what the runs within a call have done, the last first."""
        found = Abandoned()
        for name in reversed(call.children):
            async with self._engine.run(name) as below:
                there = await below.abandon(compensate=True, reason=reason, by=by)
            found += Abandoned(
                **{
                    word: tuple(f"{name}/{one}" if "/" not in one else one for one in named)
                    for word, named in msgspec.structs.asdict(there).items()
                }
            )
        return found

    def report(self) -> StopReport:
        """Say where the run stands and why: what is confirmed, what is unfinished, what was used.

        Made from the facts that have been kept so far, without asking a model.
        """
        return report(self.view)

    async def approve(
        self,
        name: str,
        *,
        by: str = "",
        reason: str = "",
        arguments: Mapping[str, Any] | None = None,
        for_: Literal["", "run"] = "",
        pattern: Mapping[str, Any] | None = None,
        digest: str = "",
    ) -> None:
        """Let a call run that waits for a human.

        Args:
            name: of the approval, or of its call (the provider's id or Laneway's; for a call of a
                plan `t3.2/1`, or the provider's ids of both: `call_7/a`).
            by: who says so; needed where several people must.
            reason: kept with the answer.
            arguments: all of them, to run with in place of those that were asked about. They are
                checked and judged from the start, this answer takes the place of a new question,
                and the model is told with the result. What others have granted before is void.
            for_: `run` lets later calls of the tool pass too, where a rule or the tool itself asks.
            pattern: path → pattern, as in rules, to let those pass whose arguments fit.
            digest: of the question as it was shown; refused if it has changed since.

        Raises:
            UnknownApprovalError: no such question is open; says what became of it.
            UsageError: the answer does not count, or cannot be meant; nothing was written.
        """
        said = Said(
            granted=True,
            by=by,
            reason=reason,
            arguments=arguments,
            scope=for_,
            pattern=pattern,
            digest=digest,
        )
        await answer(self._live, name, said).kept()

    async def deny(self, name: str, *, by: str = "", reason: str = "", digest: str = "") -> None:
        """Refuse a call that waits for a human; the model is given the reason.

        One refusal is enough where several people are asked.

        Raises:
            UnknownApprovalError: no such question is open; says what became of it.
            UsageError: it has expired, or changed since it was shown.
        """
        said = Said(granted=False, by=by, reason=reason, digest=digest)
        await answer(self._live, name, said).kept()

    async def asked(self) -> Sequence[OpenApproval]:
        """Wait until a human is asked something, and give all questions that are open.

        Raises:
            EngineClosedError: the run is left.
        """
        return await asked(lambda: self._live)

    def questions(self) -> AsyncGenerator[OpenApproval]:
        """Give each question as it is asked, until nothing of the turn moves by itself any more.

        For a turn of `submit(…, wait=False)`; a question comes again if its arguments are changed
        while others are still to answer.
        """
        return each(lambda: self._live)

    async def revoke(self, name: str, *, by: str = "", reason: str = "") -> None:
        """Let what was granted for later calls hold no more; what it has let pass stays so.

        Args:
            name: of the approval that it was granted with, as `run.grants` tells.
            by: who says so.
            reason: kept with it.

        Raises:
            UsageError: there is no such grant, or it was revoked before.
        """
        await revoke(self._live, name, by, reason)

    async def cancel(
        self, name: str | None = None, *, reason: str = "the user cancelled it"
    ) -> None:
        """Stop a call, or all open calls of the run.

        Calls that have not started end at once; the others when they have stopped, or at the end
        of the grace.

        Args:
            name: the provider's id of a call or Laneway's; None for all, and for those of an
                answer that `submit` is still taking in, or that waits for room in a lane.
            reason: for the model.

        Raises:
            UnknownCallError: the last turn has no such call. One that has ended stays as it is.
        """
        scheduler = self._live
        told = cancelled(whole_text(reason))
        if name is None:
            scheduler.cancel_all(told, submitting=self._submitting)
        else:
            call = self._live_call(name)
            if call is None and not any(turn.has(name) for turn in self.turns[-1:]):
                raise UnknownCallError(self._name, name)
            scheduler.cancel([] if call is None else [call], told)
        await scheduler.kept()

    async def settle(
        self,
        name: str,
        *,
        value: Any = UNSAID,
        failure: str = "",
        again: bool = False,
        by: str = "",
    ) -> None:
        """Say what a call came to whose effect is unknown, found out by other means.

        While its turn is open, an UNCERTAIN call moves on. Afterwards its outcome stays as it is:
        the settlement is a fact of its own, and the model is told of it in a note behind the turns
        so far. Runs that a crash left open below the call are ended.

        Args:
            name: the provider's id of the call or Laneway's.
            value: its result, if it did happen; exactly one of this, `failure` and `again`.
            failure: what went wrong, if it did not happen.
            again: it did nothing, and is to run again: only while it is UNCERTAIN and its turn
                open.
            by: who says so.

        Raises:
            UnknownCallError: the run has no such call whose effect is unknown and not settled.
            UsageError: not exactly one thing was said; the value cannot be told in JSON; it is to
                run again and its outcome is final. Nothing was written.
        """
        scheduler = self._live
        found = finding(name, value=value, failure=failure, again=again)
        if found is not None and scheduler.secrets is not None:
            asked = unsettled_call(self.view, name).record
            found = scheduler.secrets.found(self.id, asked, found)
        call = self._live_call(name)
        if call is None or call.state is not State.UNCERTAIN or call.turn.closed:
            said = settlement(self.view, name, found, whole_text(by))
            await scheduler.services.journal.keep(scheduler.log, said)
        elif found is not None:
            scheduler.settle(call, found, whole_text(by))
            await scheduler.kept()
        else:
            see_that_reopens(call)
            scheduler.reopen(call, whole_text(by))
            await scheduler.kept()
        await self._end_left()

    # Within

    @property
    def _entered(self) -> Scheduler:
        """The scheduler, as long as the run may be looked at."""
        if self._scheduler is None or not self._engine.drives(self._scheduler):
            raise EngineClosedError(self._name)
        return self._scheduler

    @property
    def _live(self) -> Scheduler:
        """The scheduler, as long as something may be begun."""
        scheduler = self._entered
        if scheduler.leaving:
            raise scheduler.closed_error()
        if scheduler.log.broken is not None:
            raise scheduler.log.broken
        return scheduler

    def _recorded(self, reply: Reply, key: str) -> Turn | None:
        turns = self.view.turns
        if key:
            view = self.view.by_key.get(key)
            if view is None:
                return None
            see_that_same(reply, view, self._live)
            return Turn(self, view)
        last = turns[-1] if turns else None
        same = last is not None and reply.key and last.key == reply.key
        if last is not None and same and alike(last.message, reply.message):
            return Turn(self, last)
        return None

    def _refuse_second(self) -> None:
        turn = self._live.turn
        if self._submitting or (turn is not None and not turn.closed):
            number = len(self.view.turns) + 1
            if turn is not None and not turn.closed:
                number = turn.number
            view = self.view.open_turn
            names = open_names(view) if view else []
            raise OpenTurnError(self._name, number, names)

    def _live_turn(self, turn: Turn) -> LiveTurn:
        live = self._entered.turn
        assert live is not None
        assert live.number == turn.number, "only the last turn can be open"
        return live

    def _live_call(self, name: str) -> LiveCall | None:
        turn = self._entered.turn
        if turn is None:
            return None
        return turn.by_id(name) or turn.by_path(name)

    async def _take_in(self, coming: admission.Admission, *, wait: bool) -> None:
        scheduler = self._live
        try:
            if len(coming.turn.calls) <= SLICE:
                await scheduler.admit(coming)  # Waits for nothing, so it cannot be cut short.
            else:
                await uncancelled(asyncio.ensure_future(scheduler.admit(coming)))
            if not wait:
                await scheduler.kept()
        except asyncio.CancelledError:
            if scheduler.turn is coming.turn:  # Else nothing of it was written down.
                await self._stop(coming.turn)
            raise

    async def _wait(self, turn: LiveTurn) -> None:
        scheduler = self._entered
        try:
            if turn.parked:
                await scheduler.resume(turn)
            await scheduler.quiet(turn)
        except asyncio.CancelledError:
            await self._stop(turn)
            raise
        scheduler.let_interrupt_out()
        await self._end_left()

    async def _stop(self, turn: LiveTurn) -> None:
        """Cancel a turn for somebody who is cancelled, and so is to hear of nothing else."""
        with suppress(LanewayError):
            scheduler = self._entered
            scheduler.cancel(turn.calls, STOPPED_WAITING)
            await uncancelled(asyncio.ensure_future(scheduler.quiet(turn)))

    async def _close(self, turn: LiveTurn) -> None:
        scheduler = self._entered
        while not turn.closed:
            before = turn.open
            scheduler.close(turn)
            await self._wait(turn)  # What came only after something that is skipped goes on.
            if scheduler.leaving:
                raise scheduler.closed_error()
            if turn.open == before and not turn.closed:
                scheduler.failed(RuntimeError(f"{turn.open} calls wait for nothing that will end"))

    async def _end_left(self) -> None:
        """End what a crash left open below calls whose outcome is final."""
        over = [call for call in self._parents if is_over(self.view, call)]
        if over:
            self._parents = [call for call in self._parents if call not in over]
            runs = [run for call in over for run in call.children]
            services = self._entered.services
            ending = end_left(services.journal, services.clock, runs)
            await uncancelled(asyncio.ensure_future(ending))


STOPPED_WAITING: Told = cancelled("whoever waited for the turn was cancelled", StoppedBy.HOST)


async def uncancelled(task: "asyncio.Future[Any]") -> None:
    """Wait for work that must not be cut short; a cancellation is passed on when it is done."""
    interruption: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            interruption = error
    task.result()
    if interruption is not None:
        raise interruption


def remember(turn: TurnView, scheduler: Scheduler) -> None:
    """Let later turns refer to the calls of a closed one, if the model has ever seen it."""
    if turn.abandoned:
        return
    for call in asked_for(turn):
        scheduler.earlier[call.record.provider_id] = call


def see_that_reopens(call: LiveCall) -> None:
    """See that an UNCERTAIN call can be run again.

    Raises:
        UsageError: its outcome is being made final, or its plan has told what became of it.
    """
    if call.turn.closing:
        raise UsageError(
            f"call {call.path!r} is not run again: its turn is being closed, so that its outcome "
            "is final; say what it came to (value=, failure=)"
        )
    if not may_run_again(call):
        assert call.part_of is not None
        raise told_already(call.scheduler.log.view.run, call.path, call.part_of.call.id)


def fault_lines(coming: admission.Admission) -> list[str]:
    """Name every fault of a plan, each with its call."""
    calls = coming.turn.calls
    return [
        f"{calls[at].path} ({calls[at].record.tool}): {ended.outcome.message}"
        for at, ended in sorted(coming.faults.items())
        if isinstance(ended.outcome, Failure)
    ]
