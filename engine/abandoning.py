"""A run is given up: what its calls have done is undone, the last first, each once.

Reads the view of the run; writes down each compensation before it is entered, and what came of it.
A compensation holds what its call held, so that it meets nobody halfway. One that a crash has cut
off is not entered again: whether it happened is for a human to find out, as for any other call.
"""

import asyncio
import inspect
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from laneway.calls import Referring
from laneway.engine.failures import core, exception_text
from laneway.engine.live import LiveCall, LiveTurn
from laneway.engine.plain import whole_text
from laneway.engine.recalling import may_refer, resolved
from laneway.engine.scheduler import Scheduler
from laneway.engine.serialise import digest, normalise
from laneway.engine.step import Step
from laneway.engine.threads import Raised
from laneway.engine.turn import host_name
from laneway.engine.undoing.compensation import Compensation, Done
from laneway.facts import CompensationEnded, CompensationStarted, Fact, MessageSaid
from laneway.journal.fold import CallView, RunView
from laneway.outcomes import Code, Failure, Happened, Outcome, Success, succeeded

if TYPE_CHECKING:
    from laneway.engine.tools import Toolset
    from laneway.lanes.requests import Request


class Abandoned(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the calls of a run that was given up, by call: `t1.2`, or `run/t1.2` below."""

    undone: tuple[str, ...] = ()
    """The last call first, as they were undone."""
    failed: tuple[str, ...] = ()
    """Their compensations failed: the journal says how."""
    unknown: tuple[str, ...] = ()
    """Nobody knows what they did, or whether they were undone: for a human."""
    kept: tuple[str, ...] = ()
    """They did something, and their tools have no compensation."""

    def __add__(self, other: "Abandoned") -> "Abandoned":
        """Both together."""
        return Abandoned(
            undone=self.undone + other.undone,
            failed=self.failed + other.failed,
            unknown=self.unknown + other.unknown,
            kept=self.kept + other.kept,
        )


def to_undo(view: RunView) -> Iterator[CallView]:
    """The calls that may have changed something, the last that ended first; no call of a plan."""
    holders = {call.record.parent for call in view.calls.values()}
    ended = [
        call for call in view.calls.values() if call.outcome is not None and call.id not in holders
    ]
    for call in sorted(ended, key=lambda call: call.ended_seq, reverse=True):
        if call.children or (call.attempt and not call.record.effect.changes_nothing):
            yield call


def standing(call: CallView) -> Happened:
    """What a call did, as far as anybody knows by now."""
    outcome = call.settled or call.outcome
    return outcome.happened if isinstance(outcome, Failure) else Happened.ALL


async def undo(call: CallView, scheduler: Scheduler) -> Abandoned:
    """Undo one call, unless that was begun before or is not known to be right."""
    name = call.id
    found = standing(call)
    if call.compensated is not None:
        return _sorted(name, call.compensated)
    if call.compensating:
        return _sorted(name, await _ended(call, _CUT_OFF, scheduler))
    if found is Happened.NOTHING or call.record.effect.changes_nothing:
        return Abandoned()
    if found is Happened.UNKNOWN or call.stuck:
        return Abandoned(unknown=(name,))
    tool = scheduler.services.tools.get(call.record.tool)
    if tool is None or tool.compensation is None:
        return Abandoned(kept=(name,))
    done = _done(call, scheduler)
    waiter = _Waiter(scheduler)
    held = waiter.claim(call)
    try:
        await waiter.granted_to(held)
        journal = scheduler.services.journal
        await journal.keep(scheduler.log, [CompensationStarted(call=call.id)])
        outcome = await _run(tool.compensation, done, scheduler)
    finally:
        waiter.give_back(held)
    return _sorted(name, await _ended(call, outcome, scheduler))


class _Waiter(Scheduler):
    """Waits for the lanes of a compensation, in the place of the scheduler of its run."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(
            scheduler.services,
            scheduler.log,
            mode=scheduler.mode,
            bound=scheduler.bound,
            priority=scheduler.priority,
            policy=scheduler.policy,
            above=scheduler.above,
        )
        self._coming: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def claim(self, view: CallView) -> LiveCall:
        call = LiveCall(
            record=view.record,
            name=view.record.provider_id,
            tool=None,
            turn=LiveTurn(view.turn, self, referring=Referring.KNOWN),
            scheduler=self,
            claims=view.claims or view.record.claims,
            arguments=view.record.arguments,
        )
        lanes, clock = self.services.lanes, self.services.clock
        call.request = lanes.request(call.claims, call, now=clock.monotonic(), refusable=False)
        return call

    async def granted_to(self, call: LiveCall) -> None:
        if call.request is not None and not call.request.granted:
            await self._coming

    def granted(self, call: LiveCall) -> None:  # noqa: ARG002 - as the scheduler's
        if not self._coming.done():
            self._coming.set_result(None)

    def changed(self, request: "Request[LiveCall]") -> None:
        if request.granted:
            self.granted(request.owner)

    def give_back(self, call: LiveCall) -> None:
        step = Step(self)
        step.give_back(call)
        self.post(step)


async def _run(compensation: Compensation, done: Done, scheduler: Scheduler) -> Outcome:
    """Enter a compensation; whatever it comes to is a value."""
    seconds = scheduler.services.limits.call_seconds
    limit = asyncio.timeout(None if seconds == float("inf") else seconds)
    try:
        async with limit:
            value = await _value(compensation, done, scheduler)
        return normalise(value, tool=done.tool)
    # The host's own code: its failure is told, and the calls before it are undone all the same.
    except BaseException as error:  # noqa: BLE001
        if limit.expired():
            return _failure(f"did not end within its limit of {seconds:g} s", Happened.UNKNOWN)
        return _failure(f"raised {exception_text(core(error))}", Happened.UNKNOWN)


async def _value(compensation: Compensation, done: Done, scheduler: Scheduler) -> Any:
    if not compensation.sync:
        return await compensation.function(done)
    threads = scheduler.services.threads
    running = threads.run(partial(compensation.function, done))
    try:
        result = await asyncio.shield(running)
    except asyncio.CancelledError:
        threads.stuck += 1
        running.add_done_callback(lambda _: setattr(threads, "stuck", threads.stuck - 1))
        raise
    if isinstance(result, Raised):
        raise result.error
    return await result.value if inspect.isawaitable(result.value) else result.value


async def _ended(call: CallView, outcome: Outcome, scheduler: Scheduler) -> Outcome:
    """Write down what became of it, for the model, too."""
    view = scheduler.log.view
    told = "it has been undone" if succeeded(outcome) else _message(outcome)
    note = f"[Note on the call {host_name(call, view.calls)} of {call.record.tool}: {told}]"
    facts: list[Fact] = [
        CompensationEnded(call=call.id, outcome=outcome),
        MessageSaid(message=whole_text(note), noted=True),
    ]
    await scheduler.services.journal.keep(scheduler.log, facts)
    return outcome


def _message(outcome: Outcome) -> str:
    return outcome.message if isinstance(outcome, Failure) else ""


def _sorted(name: str, outcome: Outcome) -> Abandoned:
    if isinstance(outcome, Success):
        return Abandoned(undone=(name,))
    if outcome is _CUT_OFF or outcome.code is Code.OUTCOME_UNKNOWN:
        return Abandoned(unknown=(name,))
    return Abandoned(failed=(name,))


def _failure(what: str, happened: Happened) -> Failure:
    return Failure(
        code=Code.TOOL_ERROR,
        message=f"Its compensation {what}, so what the call did may stand, or a part of it.",
        happened=happened,
        hint="Tell the user: it has to be looked at by a human.",
    )


_CUT_OFF = Failure(
    code=Code.OUTCOME_UNKNOWN,
    message="Its compensation had been begun when the process that drove the run ended, and nobody "
    "saw its end. It may or may not have been undone.",
    happened=Happened.UNKNOWN,
    hint="Tell the user: it has to be looked at by a human.",
)


def _done(call: CallView, scheduler: Scheduler) -> Done:
    view = scheduler.log.view
    arguments = arguments_of(call, view, scheduler.services.tools)
    outcome = call.settled or call.outcome
    assert outcome is not None
    if scheduler.secrets is not None:
        outcome = scheduler.secrets.revealed(f"{view.run}/{call.id}", outcome)
    key = digest([call.origin or view.run, call.id, call.record.tool, arguments])
    return Done(
        run=view.run,
        call=call.id,
        tool=call.record.tool,
        arguments=arguments,
        outcome=outcome,
        idempotency_key=key,
        undo_key=digest(["undo", key]),
    )


def arguments_of(call: CallView, view: RunView, tools: "Toolset") -> Any:
    """What a call ran with, its references resolved; as recorded where that cannot be told."""
    if call.edit is not None:
        return call.edit.arguments
    recorded = call.record.arguments
    if not may_refer(recorded):
        return recorded
    earlier: Mapping[str, CallView] = {
        one.record.provider_id: one
        for turn in view.turns[: call.turn - 1]
        for one in turn.calls
        if one.record.parent is None
    }
    found = resolved(view.turns[call.turn - 1], call, earlier, tools)
    return recorded if found is None else found
