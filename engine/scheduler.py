"""The scheduler of one run: the only loop there is.

It reads events (a turn admitted, a body over, a deadline, an answer, a cancel), lets a `Step`
decide all that follows from one of them, posts the step's facts together, and carries the step out
when they are kept.
"""

import asyncio
import contextvars
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Any, TypeVar

from laneway.engine.accounts import Account
from laneway.engine.admission import Admission, alone, beside, complete
from laneway.engine.answering import follow
from laneway.engine.asking import Probes
from laneway.engine.bodies import INTERRUPTED, Bodies
from laneway.engine.descent import refuse_all, top
from laneway.engine.ending.layers import in_queues, watch_queue, why_due
from laneway.engine.failures import APPROVAL_EXPIRED, Told, cancelled, turn_timed_out
from laneway.engine.live import LiveCall, LiveTurn
from laneway.engine.looping import Watch
from laneway.engine.nesting import take_in
from laneway.engine.probing import Found
from laneway.engine.request_order import Books, admit_in_order
from laneway.engine.running_out import run_out
from laneway.engine.sealing import secrets_of
from laneway.engine.seats import seats_of
from laneway.engine.services import Services
from laneway.engine.step import Step
from laneway.engine.stopping import carry_out, ends_unstarted, enforce, go_on, meet, stop
from laneway.errors import (
    EngineClosedError,
    EngineFaultError,
    JournalError,
    LanewayError,
    ShuttingDownError,
)
from laneway.facts import ApprovalAnswered
from laneway.journal.fold import CallView
from laneway.journal.writer import RunLog
from laneway.lanes.requests import Request
from laneway.outcomes import Code, Failure, Outcome, StoppedBy, StopReason
from laneway.policies.rules import Policy
from laneway.policies.stopping import Through
from laneway.states import PENDING, State

T = TypeVar("T")

SLICE = 500
"""Calls admitted at a stretch, so that the loop's other users wait at most some milliseconds."""


NOTHING_KEPT: Told = cancelled("the journal can keep nothing more", StoppedBy.FAULT)


class Scheduler:
    """Moves the calls of one run."""

    def __init__(
        self,
        services: Services,
        log: RunLog,
        *,
        mode: str,
        bound: Mapping[str, Any],
        serial: bool = False,
        priority: int = 0,
        policy: Policy | None = None,
        above: "Scheduler | None" = None,
    ) -> None:
        """Go on after the facts of `log`.

        Args:
            services: what the runs of the engine share.
            log: the run's journal.
            mode: the agent mode that policies see.
            bound: arguments that the host sets, by parameter.
            serial: whether every call has the run alone.
            priority: of its calls where they wait for lanes, beside the tool's own.
            policy: what judges its calls; the engine's if None.
            above: of the run whose call's body this run is part of, if it is.
        """
        self.services = services
        self.policy = services.policy if policy is None else policy
        """The engine's, with the layer that the run brought along."""
        self.log = log
        self.mode = mode
        self.bound = bound
        self.secrets = log.secrets = secrets_of(services, bound)
        """Of the run; None if nothing in it is secret."""
        self.serial = serial
        self.priority = priority
        self.above = above
        self.stopped = log.view.stopped
        """How the run was stopped, a commit ahead of the facts."""
        self.halted = self.stopped is not None and ends_unstarted(self.stopped)
        """It was stopped so that nothing of it is started any more."""
        self.stop_due = False
        """It was stopped by a step that is not done yet; what that means for calls comes next."""
        self.place = top(log.view.run, log.view)
        self.watch: Watch | None = None
        """Looks for loops; None if nobody does."""
        self.beside_in_run = beside(log.view.run)
        self.alone_in_run = alone(log.view.run)
        self.earlier: dict[str, CallView] = {}
        """The calls of earlier turns by the names they had; the latest wins."""
        self.token = log.view.token
        """The last fencing token that was given out."""
        self.turn: LiveTurn | None = None
        """The last turn."""
        self.refusal: Told | None = None
        """Why what is being submitted may begin nothing: all was cancelled in the meantime."""
        self.leaving = False
        self.shut = False
        """The engine is being shut down: what has not started waits for another driver."""
        self.left = False
        """All of it has stopped, or is parked: nobody needs to wait for anything any more."""
        self.interrupt: KeyboardInterrupt | None = None
        self.account: Account | None = None
        """The books of the run; a scheduler that only tries something out has none."""
        self.gate: Books | None = None
        """The same, where calls have to be looked at before they are queued."""
        self.bodies = Bodies(self)
        self.probes = Probes(self)

    def complete(self, call: LiveCall) -> Failure | None:
        """Resolve a ready call's references, and check what comes of it."""
        return complete(call)

    # Events from the host

    async def admit(self, admission: Admission) -> None:
        """Take a turn in, slice by slice; the fact that announces it goes down with the first."""
        try:
            await self._admit(admission)
        except Exception as error:  # noqa: BLE001 - a fault of the engine: nothing may hang on it
            self.failed(error)

    async def _admit(self, admission: Admission) -> None:  # noqa: C901 - slice by slice, to its end
        turn = self.turn = admission.turn
        turn.open = len(turn.calls)
        refusal = self._nest(turn) or self.refusal
        self._limit(turn)
        step = Step(self)
        step.facts += (*meet(self, admission), admission.opening)
        try:
            refuse_all(self.place, turn, step)
            for at, ended in admission.faults.items():
                if turn.calls[at].outcome is None:
                    step.end(turn.calls[at], ended.state, ended.outcome)
            step.drain()
            turn.seats = seats_of(turn, self.services)
            if self.gate is not None and not (self._begins_nothing or refusal):
                step = await admit_in_order(turn.calls, step)
            calls = step.in_order(turn.calls)
            for start in range(0, len(calls), SLICE):
                if start:
                    self.post(step)
                    step = Step(self)
                    await asyncio.sleep(0)
                if self._begins_nothing or refusal is not None:
                    break  # The rest stays PENDING, for whoever takes the run up.
                for call in calls[start : start + SLICE]:
                    if not call.waits and call.state is PENDING and call.told is None:
                        step.consider(call)
        except Exception as error:  # noqa: BLE001 - a fault of the engine: what it decided is void
            self.failed(error)
        finally:
            turn.admitting = False
            step.turns.append(turn)
            self.post(step)
            if refusal is not None:
                self.cancel(turn.calls, refusal)

    @property
    def _begins_nothing(self) -> bool:
        """Whether it is too late for anything, since the run is left or its journal broke."""
        return self.leaving or self.log.broken is not None

    def _nest(self, turn: LiveTurn) -> Told | None:
        """Make the turn part of the call whose body asks for it; say why it may not begin."""
        refusal = take_in(turn)
        call = turn.within
        if call is not None and call.thread is not None:
            # The thread only waits now: others may start instead, so none waits for a thread that
            # waits for it.
            step = Step(call.scheduler)
            step.give_back_thread(call)
            call.scheduler.post(step)
        return refusal

    async def resume(self, turn: LiveTurn) -> None:
        """Let a turn go on that an earlier driver left, slice by slice."""
        self._limit(turn)
        turn.context = contextvars.copy_context()
        turn.parked = False
        refusal = self._nest(turn)
        if self.stopped is not None:
            enforce(self, turn)
        found = [(call, call.state) for call in turn.calls if call.outcome is None]
        step = Step(self)
        if refusal is None and not self._begins_nothing:
            self._find_out(turn, step)
        try:
            for at, (call, state) in enumerate(found):
                if at and not at % SLICE:
                    self.post(step)
                    step = Step(self)
                    await asyncio.sleep(0)
                if self._begins_nothing or refusal is not None:
                    break
                if call.state is state and call.told is None:  # Else it has moved meanwhile.
                    self._resume(call, step)
        except Exception as error:  # noqa: BLE001 - a fault of the engine: what it decided is void
            self.failed(error)
        finally:
            turn.admitting = False
            step.turns.append(turn)
            self.post(step)
            if refusal is not None:
                self.cancel(turn.calls, refusal)

    def _find_out(self, turn: LiveTurn, step: Step) -> None:
        """Ask what became of calls whose end nobody saw, before anything goes on behind them.

        Of one that was found to have failed while nobody drove the run, skip what needs it.
        """
        for call in turn.calls:
            if call.state is State.UNCERTAIN:
                step.ask_probe(call)
            elif call.outcome is not None and call.state is not State.SUCCEEDED:
                step.skip_dependents(call)
        step.hold(step.probes)
        step.drain()

    def _resume(self, call: LiveCall, step: Step) -> None:
        if call.state is not State.PENDING and not step.take_up(call):
            return
        if call.state is State.QUEUED:
            step.ask_for_lanes(call, waited=True)
            watch_queue(call)
        elif call.state is State.BACKING_OFF:
            step.queue(call, call.rule)
        elif call.state is State.AWAITING_APPROVAL:
            self.services.deadlines.watch(call)
        elif not call.waits:
            step.consider(call)

    def cancel(self, calls: Iterable[LiveCall], told: Told) -> None:
        """Stop calls: those that have not started at once, the others as soon as they do stop.

        Of a plan the calls that it holds are stopped; its own call then tells what they came to.
        """
        meant = dict.fromkeys(one for call in calls for one in _held(call))
        affected = [call for call in meant if call.outcome is None and call.told is None]
        for call in affected:
            call.told = told
        step = Step(self)
        for call in meant:
            if call.probing:  # What was cancelled does not run again, whatever a probe says.
                self.probes.forget(call)
                step.probed(call, Found.unknown(told.message))
        for call in affected:
            if call.state is not State.RUNNING:
                step.end_unstarted(call, told)
        self.post(step)
        for call in affected:
            if call.state is State.RUNNING:
                self.bodies.tell(call)

    def cancel_all(self, told: Told, *, submitting: bool) -> None:
        """Stop all calls of the run, those of a turn that is still on its way in, too."""
        if submitting:
            self.refusal = told
            self.services.controls.call_in(self)
        if self.turn is not None:
            self.cancel(self.turn.calls, told)

    def stop(
        self, reason: StopReason, detail: str = "", *, by: str = "", code: Code | None = None
    ) -> bool:
        """Let the run go on no more by itself; may be called in the middle of a step.

        Args:
            reason: why; `policies.stopping.STOPS` says what becomes of calls.
            detail: for the user and the model, a sentence.
            by: who says so; empty for the engine itself.
            code: of calls that are refused meanwhile, if not that of the reason.

        Returns:
            Whether it stands: not where the run was stopped before, for a reason of at least that
            weight.
        """
        return stop(self, reason, detail, by=by, code=code)

    def needs_user(self, loop: Failure) -> None:
        """The model goes round in circles: the run goes on when its user has said something."""
        self.stop(StopReason.NEEDS_USER_INPUT, loop.message, code=loop.code)

    def budget_ended(self, detail: str, budget: str) -> None:
        """A budget of the run has ended: the model is let in no more, and what is open goes on."""
        stop(self, StopReason.BUDGET_EXCEEDED, detail, by="", code=None, budget=budget)
        carry_out(self)

    def go_on(self, through: Through, by: str = "") -> bool:
        """Let a run go on that has stopped, if this lets it; say whether it does."""
        return go_on(self, through, by)

    def answer(
        self, call: LiveCall, answered: ApprovalAnswered, real: dict[str, Any] | None = None
    ) -> None:
        """A human answered the question that a call waits for.

        Args:
            call: that waits.
            answered: the answer.
            real: the arguments that it changes, with their secrets.
        """
        step = Step(self)
        follow(step, call, answered, real)
        self.post(step)

    def settle(self, call: LiveCall, outcome: Outcome, by: str) -> None:
        """Somebody found out what an UNCERTAIN call came to, while its turn is open."""
        self.probes.forget(call)
        step = Step(self)
        step.leave_probe(call)
        step.settle(call, outcome, by)
        self.post(step)

    def reopen(self, call: LiveCall, by: str) -> None:
        """Somebody found out that an UNCERTAIN call did nothing: it runs again."""
        self.probes.forget(call)
        step = Step(self)
        step.leave_probe(call)
        step.reopen(call, by)
        self.post(step)

    def probed(self, call: LiveCall, found: Found) -> None:
        """The probe of a call has answered."""
        self._happens(lambda call: self._probed(call, found), call)

    def _probed(self, call: LiveCall, found: Found) -> None:
        if self._begins_nothing:
            return  # Whoever takes the run up asks again.
        step = Step(self)
        step.probed(call, found)
        self.post(step)

    def close(self, turn: LiveTurn) -> None:
        """Make every outcome of a quiet turn final: what still waits for an unknown is skipped."""
        step = Step(self)
        turn.uncertain = 0
        turn.closing = True
        for call in turn.calls:
            if call.state is State.UNCERTAIN:
                step.skip_dependents(call)
        step.turns.append(turn)
        self.post(step)

    async def quiet(self, turn: LiveTurn) -> None:
        """Wait until nothing of the turn moves by itself any more, and all of it is kept.

        Raises:
            EngineClosedError: the run was left, and the turn has not been closed.
            JournalError: the journal broke.
        """
        while self.log.broken is None and not self.left and not self.is_quiet(turn):
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            turn.quiet.append(waiting)
            await waiting
        if self.is_quiet(turn) and (turn.closed or self.log.broken is None):
            return
        if self.log.broken is None or self.leaving:
            raise self.closed_error()
        raise self.log.broken

    async def kept(self) -> None:
        """Wait until everything decided so far is kept.

        Raises:
            JournalError: it is not known to be.
        """
        await self.services.journal.keep(self.log, [])

    async def leave(self) -> None:
        """Stop everything that runs, park what waits, and see it all written down."""
        self.leaving = True
        self.probes.close()
        self.services.controls.call_in(self)
        broken_before = self.log.broken is not None
        turn = self.turn
        if turn is not None and not turn.closed and not turn.parked:
            moving = (State.QUEUED, State.RUNNING, State.BACKING_OFF)
            self.cancel(
                [call for call in turn.calls if call.state in moving],
                cancelled("the program left the run", StoppedBy.HOST),
            )
            for call in turn.calls:
                if call.state is State.AWAITING_APPROVAL:
                    self.services.deadlines.forget(call)
            self.services.deadlines.forget(turn)
        try:
            await self.bodies.stopped()
            await self.probes.stopped()
            # Whoever was in the run has been told that it broke; the run may have been left by its
            # host meanwhile, while the engine is left.
            if not broken_before and not self.left:
                await self.kept()
        finally:
            self.left = True
            self.services.bell.ring()
            if self.account is not None:
                self.account.close()
            if self.turn is not None:
                self._wake(self.turn, self.closed_error())

    def closed_error(self) -> EngineClosedError:
        """Why nothing more of the run can be waited for."""
        run = self.log.view.run
        return ShuttingDownError(run) if self.shut else EngineClosedError(run)

    # Events from the engine

    def expired(self, call: LiveCall) -> None:
        """The deadline of whatever a call does has passed."""
        self._happens(self._expired, call)

    def _expired(self, call: LiveCall) -> None:
        if call.state is State.AWAITING_APPROVAL:
            step = Step(self)
            step.end(call, State.DENIED, APPROVAL_EXPIRED)
            self.post(step)
        elif call.state is State.BACKING_OFF:
            step = Step(self)
            step.queue(call, call.rule)
            self.post(step)
        elif call.state is State.QUEUED:
            self.cancel([call], in_queues(self.services.limits.queue_seconds))
        elif call.told is None:
            call.told = why_due(call)
            if call.told is not None:
                self.bodies.tell(call)
        else:
            self.bodies.give_up(call)

    def turn_expired(self, turn: LiveTurn) -> None:
        """The turn as a whole has taken too long."""
        if turn.parked:
            return
        told = turn_timed_out(turn.limit_seconds)
        self._happens(lambda turn: self.cancel(turn.calls, told), turn)

    def time_over(self) -> None:
        """The time of the run is used up."""
        self._happens(run_out, self)

    def _happens(self, follow: Callable[[T], None], about: T) -> None:
        """Follow what happened to one thing; a fault in it ends this run, and no other."""
        try:
            follow(about)
        except Exception as error:  # noqa: BLE001 - a fault of the engine, met in somebody else's event
            self.failed(error)

    def failed(self, error: BaseException) -> None:
        """The engine itself went wrong: nothing may hang on it, so the run ends here."""
        if self.log.broken is None:
            self.log.broken = EngineFaultError(self.log.view.run, error)
            self.broken(self.log.broken)

    def granted(self, call: LiveCall) -> None:
        """Another run gave back what this call waits for."""
        self._happens(self._granted, call)

    def _granted(self, call: LiveCall) -> None:
        step = Step(self)
        if self.log.broken is None:
            step.start(call)
        else:
            step.give_back(call)
        self.post(step)

    def changed(self, request: Request[LiveCall]) -> None:
        """The lanes themselves have changed: somebody is let in, or could only wait for itself."""
        self._happens(self._changed, request)

    def _changed(self, request: Request[LiveCall]) -> None:
        step = Step(self)
        if request.refused:
            step.refuse(request.owner, request)
        elif self.log.broken is None:
            step.pass_on([request])
        else:
            step.give_back(request.owner)
        self.post(step)

    def landed(self, follower: LiveCall, leader: LiveCall) -> None:
        """Another run's call is over that was the same as this one and stood for it."""
        self._happens(lambda call: self._landed(call, leader), follower)

    def _landed(self, follower: LiveCall, leader: LiveCall) -> None:
        if self.log.broken is None:
            step = Step(self)
            step.land(follower, leader)
            self.post(step)

    def interrupted(self, interrupt: KeyboardInterrupt) -> None:
        """A tool raised KeyboardInterrupt: stop everything, then let it out of the run."""
        self.interrupt = interrupt
        if self.turn is not None:
            asyncio.get_running_loop().call_soon(self.cancel, self.turn.calls, INTERRUPTED)

    def let_interrupt_out(self) -> None:
        """Raise what a tool raised to end the program, once, now that the final states are kept.

        Raises:
            KeyboardInterrupt: a tool raised it.
        """
        interrupt, self.interrupt = self.interrupt, None
        if interrupt is not None:
            raise interrupt

    def broken(self, error: JournalError) -> None:
        """No fact can be kept any more: begin nothing, stop what runs, tell who waits."""
        self.services.controls.call_in(self)
        self.services.bell.ring()
        self.probes.close()
        turn = self.turn
        if turn is None:
            return
        self.services.deadlines.forget(turn)
        if self.account is not None:
            self.account.clock.close()
        step = Step(self)
        for call in turn.calls:
            step.leave_flight(call)
            if call.task is None:
                self.services.deadlines.forget(call)
                step.give_back(call)
        self._hand_over(step)
        for call in turn.calls:
            if call.task is not None and call.outcome is None and call.told is None:
                call.told = NOTHING_KEPT
                self.bodies.tell(call)
        self._wake(turn, error)

    # Steps

    def post(self, step: Step) -> None:
        """Put a step's facts down, to be carried out when they are kept."""
        if self.log.broken is None:
            step.drain()
            step.close_turns()
            turn = self.turn
            if turn is not None:
                self._rest_or_go_on(turn)
            if self.services.relaxed:
                self._start_early(step)
            for turn in step.turns:
                turn.seq = self.log.seq + len(step.facts)
            if step.starts or step.turns or step.probes or step.asks:
                self.services.journal.post(
                    self.log, step.facts, lambda error: self._kept(step, error)
                )
            elif step.facts:
                self.services.journal.post(self.log, step.facts)
        self._hand_over(step)
        if self.stop_due:
            carry_out(self)

    def _start_early(self, step: Step) -> None:
        """In the weaker mode, what changes nothing is entered before its start is durable."""
        early = [call for call in step.starts if call.harmless]
        step.starts = [call for call in step.starts if not call.harmless]
        for call in early:
            self.bodies.launch(call)

    def _hand_over(self, step: Step) -> None:
        for call in step.released:
            call.scheduler.granted(call)
        for follower, leader in step.landed:
            follower.scheduler.landed(follower, leader)

    def _kept(self, step: Step, error: JournalError | None) -> None:
        if error is not None:
            return
        for call in step.starts:
            self.bodies.launch(call)
        for call in step.probes:
            self.probes.ask(call)
        if step.asks:
            self.services.bell.ring()
        for turn in step.turns:
            if turn.quiet and self.is_quiet(turn):
                self._wake(turn, None)

    def _wake(self, turn: LiveTurn, error: LanewayError | None) -> None:
        waiting, turn.quiet = turn.quiet, []
        for future in waiting:
            if not future.done():
                if error is None:
                    future.set_result(None)
                else:
                    future.set_exception(error)

    def is_quiet(self, turn: LiveTurn) -> bool:
        """Whether nothing of the turn moves by itself any more, and all of it is kept."""
        return turn.is_quiet and self.log.view.seq >= turn.seq

    def _limit(self, turn: LiveTurn) -> None:
        turn.limit_seconds = turn.left_seconds = self.services.limits.turn_seconds
        turn.rests = False
        self._count(turn)

    def _rest_or_go_on(self, turn: LiveTurn) -> None:
        """The clock of a turn rests while nothing of it moves, or only humans are awaited."""
        if turn.rests is not (turn.active == turn.humans):
            turn.rests = not turn.rests
            if not turn.rests:
                self._count(turn)
            elif self.account is not None:
                self.account.clock.rest(turn)
            if turn.rests and turn.limit_seconds != inf:
                turn.left_seconds = turn.due - self.services.clock.monotonic()
                self.services.deadlines.forget(turn)
        if turn.within is not None:
            turn.within.scheduler.rest_within(turn.within)

    def rest_within(self, call: LiveCall) -> None:
        """The clock of a call rests, too, while all that its body asked for waits for humans."""
        parts = [turn for turn in call.nested if not turn.closed]
        rests = call.told is None and call.outcome is None
        rests = rests and bool(parts) and all(turn.rests and turn.humans for turn in parts)
        if rests is (call.left_seconds is not None):
            return
        if rests:
            call.left_seconds = call.due - self.services.clock.monotonic()
            self.services.deadlines.forget(call)
            call.turn.humans += 1
        else:
            self.bodies.go_on(call)
        self._rest_or_go_on(call.turn)

    def _count(self, turn: LiveTurn) -> None:
        if self.account is not None:
            self.account.clock.go_on(turn)
        if turn.limit_seconds != inf:
            turn.due = self.services.clock.monotonic() + turn.left_seconds
            self.services.deadlines.watch(turn)


def _held(call: LiveCall) -> Sequence[LiveCall]:
    return (call,) if call.plan is None else call.plan.calls
