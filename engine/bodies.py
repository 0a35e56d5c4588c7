"""The bodies of a run's calls: entered, told to stop, given up, over.

One asyncio.Task per call, owned here. A body that was told to stop and does not is given up after
the grace: its call ends, its claims stay held until it has really stopped.
"""

import asyncio
import inspect
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

from laneway.engine.ending.layers import body_limit, left_in_all, watch_body, worked
from laneway.engine.ending.siblings import stop_siblings
from laneway.engine.execution import end_processes, enter
from laneway.engine.failing import PartialEffect
from laneway.engine.failures import (
    Told,
    cancelled,
    exception_text,
    is_transient,
    raised,
    shortened,
)
from laneway.engine.live import LiveCall
from laneway.engine.nesting import ORPHANED, inside, tell
from laneway.engine.plain import whole_text
from laneway.engine.sealing import outcome_of
from laneway.engine.serialise import normalise
from laneway.engine.shutdown import may_be_parked
from laneway.engine.step import Step
from laneway.engine.telling import named
from laneway.engine.threads import Raised, Returned
from laneway.facts import AttemptEnded, HolderStopped
from laneway.outcomes import StoppedBy, Success
from laneway.policies.retry import AttemptFailed, ExponentialBackOff, GiveUp
from laneway.states import SUCCEEDED, State

if TYPE_CHECKING:
    from laneway.engine.scheduler import Scheduler

RETRIES = ExponentialBackOff()


class Bodies:
    """Whatever of one run is being executed."""

    def __init__(self, scheduler: "Scheduler") -> None:
        """Serve one scheduler."""
        self.scheduler = scheduler
        self.services = scheduler.services
        self.tasks: set[asyncio.Task[None]] = set()
        self.stuck: dict[LiveCall, float] = {}
        """Given-up calls whose body has not stopped, with the time of giving up."""
        self.when_unstuck: Callable[[Scheduler], Coroutine[Any, Any, None]] | None = None
        """Awaited when the last stuck body has stopped, once the run has been left."""
        self.abandoned = False
        """The engine is gone: what a body still comes to is nobody's business."""
        self.loop = asyncio.get_running_loop()

    def launch(self, call: LiveCall) -> None:
        """Enter the body, in a task of its own; the start of the call is durable."""
        # The body sees what the host set where it submitted the turn, not what another body left.
        context = call.turn.context.copy()
        context.run(inside.set, call)
        task = call.task = _BodyTask(self._live(call), loop=self.loop, context=context)
        task.call = call
        self.tasks.add(task)

    async def _live(self, call: LiveCall) -> None:
        task = call.task
        assert isinstance(task, _BodyTask)
        # Whoever was stopped since the start was kept may have lost the run: then all its calls
        # have been told to stop, this one too.
        confirming = self.services.journal.confirm(self.scheduler.log)
        if confirming is not None:
            await confirming
        task.begun = True
        result: Returned | Raised | None = None
        try:
            if call.told is None:
                call.began = self.services.clock.monotonic()
                watch_body(call, self.limit_of(call))
                call.entered = True
                if self.services.controls.pacing and call.request is not None:
                    self.services.controls.pacing.begun(call.request)
                if self.scheduler.log.listener is not None:
                    self.scheduler.log.listener.entering(call.id)
                result = await enter(call, self.services.threads)
                if call.stop is not None:
                    await end_processes(call)
            if call.running is None:
                self._over(call, result)
            else:
                self._outlived(call, call.running)
        except BaseException as error:  # noqa: BLE001 - a fault of the engine: nothing may hang on it
            self._faulted(call, error)
        finally:
            self.tasks.discard(task)

    def limit_of(self, call: LiveCall) -> float:
        """How long the body may take this time, in seconds."""
        return body_limit(call)

    def go_on(self, call: LiveCall) -> None:
        """Let the clock of a call go on that rested while its body only waited for humans."""
        if call.left_seconds is not None:
            call.turn.humans -= 1
            now = self.services.clock.monotonic()
            rested = now + call.left_seconds - call.due
            call.due = now + call.left_seconds
            call.left_seconds = None
            if call.hard_due != inf:
                call.hard_due += rested
            if call.stop is not None and call.stop.reported is not None:
                call.stop.reported = now
            if call.due != inf:
                self.services.deadlines.watch(call)

    # Stopping

    def tell(self, call: LiveCall) -> None:
        """Tell a started call to stop. A thread can't be told: its call is given up at once."""
        assert call.told is not None
        self.go_on(call)
        if call.stop is not None:
            call.stop.ask(call.told.by)
        tell(call, call.told)
        if call.running is not None:
            self.give_up(call)
        elif call.entered:
            assert call.task is not None
            call.task.cancel()
            call.due = self.services.clock.monotonic() + self.services.limits.grace_seconds
            self.services.deadlines.watch(call)
        # Else it has not been entered yet, and will find that it has been told.

    def give_up(self, call: LiveCall) -> None:
        """The body won't stop: the call ends, its claims stay held until the body has stopped."""
        assert call.told is not None
        step = Step(self.scheduler)
        self.stuck[call] = self.services.clock.monotonic()
        if call.running is not None:
            call.gave_up_thread = True
            threads = self.services.threads
            threads.stuck += 1
            threads.unreplaced[call] = None
            self._replace(step)
        step.end_told(call, call.told, still_running=True)
        self.scheduler.post(step)
        stop_siblings(call)

    async def stopped(self) -> None:
        """Wait until every body has stopped or been given up."""
        # Giving a body up ends no task, so that has to be looked for.
        while waiting := self.tasks - {call.task for call in self.stuck}:
            await asyncio.wait(waiting, timeout=0.1)

    def abandon(self) -> None:
        """Cancel whatever is left, without waiting: the loop's teardown does."""
        self.abandoned = True
        for task in self.tasks:
            task.cancel()
        if self.scheduler.shut:
            for call in self.stuck:
                _force_out(call)

    # Over

    def _outlived(self, call: LiveCall, running: "asyncio.Future[Returned | Raised]") -> None:
        """The task was cancelled from outside; no thread can be, so it is one that won't stop."""
        if call.outcome is None and not self.abandoned:
            call.told = call.told or CLOSING
            self.give_up(call)
        running.add_done_callback(lambda done: self._over(call, done.result()))

    def _faulted(self, call: LiveCall, error: BaseException) -> None:
        """The engine went wrong about a body that is over: the run ends, its claims are free."""
        call.task, call.entered = None, False
        self.scheduler.failed(error)
        step = Step(self.scheduler)
        step.give_back(call)
        self.scheduler.post(step)

    def _over(self, call: LiveCall, result: Returned | Raised | None) -> None:
        """The body has really stopped."""
        if self.abandoned:
            return
        self.go_on(call)
        self.services.deadlines.forget(call)
        call.running = None
        tell(call, ORPHANED)
        if isinstance(result, Raised) and isinstance(result.error, KeyboardInterrupt):
            self.scheduler.interrupted(result.error)
        step = Step(self.scheduler)
        if call.outcome is not None:
            self._late(step, call, result)
        elif self.scheduler.log.broken is not None:
            step.give_back(call)
        elif call.told is not None:
            self._gave_way(step, call, result)
        elif isinstance(result, Returned):
            record, tool = call.record, call.tool
            if tool is not None and tool.secret_result is not None:
                outcome = outcome_of(call, result.value)
            else:
                outcome = normalise(result.value, tool=record.tool, effect=record.effect)
            ended = SUCCEEDED if isinstance(outcome, Success) else State.FAILED
            seconds = self.services.clock.monotonic() - call.began
            self.services.durations.learn(call.record.tool, seconds)
            if call.turn.seats is not None:
                record = call.record
                self.services.durations.learn_call(record.tool, record.arguments, seconds)
            step.end(call, ended, outcome)
        else:
            assert result is not None
            self._raised(step, call, result.error)
        self.scheduler.post(step)

    def _gave_way(self, step: Step, call: LiveCall, result: Returned | Raised | None) -> None:
        """A body that was told to stop has."""
        assert call.told is not None
        if may_be_parked(call) and (result is None or _gave_in(result)):
            self._set_aside(step, call, "the engine was shut down")
            return
        error = result.error if isinstance(result, Raised) else None
        step.end_told(call, call.told, error=error)
        stop_siblings(call)
        if result is not None and not _gave_in(result):
            step.facts.append(HolderStopped(call=call.id, late=_late(call, result)))

    def _late(self, step: Step, call: LiveCall, result: Returned | Raised | None) -> None:
        """A body that outlived its call has stopped: note what came of it, free its claims."""
        assert result is not None, "what was never entered is not given up"
        if call.gave_up_thread:
            self.services.threads.stuck -= 1
            self.services.threads.unreplaced.pop(call, None)
            self._replace(step)
        step.facts.append(HolderStopped(call=call.id, late=_late(call, result)))
        step.give_back(call)
        call.drop()
        self.unstick(call)

    def unstick(self, call: LiveCall) -> None:
        """One that was stuck holds nothing any more; the last one may let the run go."""
        self.stuck.pop(call, None)
        if self.when_unstuck is not None and not self.stuck:
            self.loop.call_soon(
                lambda then: self.loop.create_task(then(self.scheduler)), self.when_unstuck
            )

    def _replace(self, step: Step) -> None:
        """Let another thread stand in for one that is stuck, if so many may be replaced."""
        threads = self.services.threads
        replaced = threads.stuck - len(threads.unreplaced)
        if threads.unreplaced and replaced < self.services.limits.stuck_threads:
            call = next(iter(threads.unreplaced))
            del threads.unreplaced[call]
            step.give_back_thread(call)

    def _raised(self, step: Step, call: LiveCall, error: BaseException) -> None:
        if isinstance(error, KeyboardInterrupt):
            step.end_told(call, INTERRUPTED)
        elif isinstance(error, asyncio.CancelledError) and _cancelled_from_outside():
            step.end_told(call, CLOSING)
        elif isinstance(error, PartialEffect) or not self._again(step, call, error):
            record = call.record
            state, failure = raised(
                error, tool=record.tool, effect=record.effect, idempotent=record.idempotent
            )
            step.end(call, state, failure)
            stop_siblings(call)

    def _again(self, step: Step, call: LiveCall, error: BaseException) -> bool:
        """Back off before another attempt, if there may be one."""
        assert call.tool is not None
        decision = RETRIES.decide(
            AttemptFailed(
                attempt=call.attempt - call.cleared,
                attempts_allowed=1 + call.tool.spec.retries,
                idempotent=call.record.idempotent,
                transient=is_transient(error),
                first_seconds=self.services.limits.back_off_seconds,
                chance=random.random(),  # noqa: S311 - jitter, not a secret
            )
        )
        if isinstance(decision, GiveUp) or self.scheduler.leaving or self.scheduler.halted:
            return False
        account = self.scheduler.account
        if account is not None and decision.seconds >= account.left_seconds:
            return False  # The run's time would end the pause.
        worked(call)
        if left_in_all(call) <= decision.seconds:
            return False
        call.worked += decision.seconds
        self._set_aside(step, call, exception_text(error), decision.seconds)
        call.due = self.services.clock.monotonic() + decision.seconds
        self.services.deadlines.watch(call)
        return True

    def _set_aside(self, step: Step, call: LiveCall, cause: str, seconds: float = 0.0) -> None:
        """An attempt is over, and another will follow."""
        call.move(State.BACKING_OFF)
        step.facts.append(
            AttemptEnded(call=call.id, attempt=call.attempt, cause=cause, delay_seconds=seconds)
        )
        step.give_back(call)
        call.entered = False
        call.task = None


INTERRUPTED: Told = cancelled("the user interrupted the program")
CLOSING: Told = cancelled("the event loop is closing", StoppedBy.HOST)


class _BodyTask(asyncio.Task[None]):
    """A call's own task; cancelled before it began, it would be gone without a word."""

    call: LiveCall
    begun = False

    def cancel(self, msg: object = None) -> bool:
        """Cancel the body; one that has not been entered will not be."""
        if self.begun:
            return super().cancel(msg)
        self.call.told = self.call.told or CLOSING
        return False


def _force_out(call: LiveCall) -> None:
    """End a coroutine that ignores every cancellation: the loop's teardown would wait for ever.

    Its outcome stands, and nothing of it is looked at any more.
    """
    task = call.task
    if task is None or task.done() or call.running is not None:
        return
    coroutine = task.get_coro()
    assert inspect.iscoroutine(coroutine)
    # One that awaits in the face of GeneratorExit, too, is beyond all help.
    with suppress(RuntimeError):
        coroutine.close()
    task.add_done_callback(lambda over: over.cancelled() or over.exception())


def name_of_task(task: asyncio.Task[Any]) -> tuple[str, str]:
    """The call whose body a task is, and its tool; empty for any other task."""
    if not isinstance(task, _BodyTask):
        return "", ""
    return task.call.called, task.call.record.tool


def _cancelled_from_outside() -> bool:
    """Whether the task itself was cancelled; if not, the tool raised CancelledError by itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _gave_in(result: Returned | Raised) -> bool:
    return isinstance(result, Raised) and isinstance(result.error, asyncio.CancelledError)


def _late(call: LiveCall, result: Returned | Raised) -> str:
    if call.tool is not None and call.tool.secret_result is not None:
        return "returned a secret" if isinstance(result, Returned) else late_text(result)
    return late_text(result)


def late_text(result: Returned | Raised) -> str:
    """What a body gave back after its call had ended, as text for the journal."""
    if isinstance(result, Returned):
        value = result.value
        if type(value) is str:
            return shortened(whole_text(value))
        return f"returned {named(value).removeprefix('of type ')}"
    return f"raised {exception_text(result.error)}"
