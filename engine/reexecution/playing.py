"""What comes from outside, given to a real scheduler again, one event after the other."""

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from laneway.engine.admission import Admission, admit
from laneway.engine.failures import Told, cancelled
from laneway.engine.live import LiveCall, LiveTurn
from laneway.engine.modes import change_mode
from laneway.engine.probing import Finding, Found
from laneway.engine.reexecution.ends import AS_RECORDED, let_end, veiled
from laneway.engine.reexecution.events import Event, Happening, told_of
from laneway.engine.reexecution.replies import reply_of
from laneway.engine.reexecution.standing_in import Gate, GatedBodies, WatchedScheduler
from laneway.engine.run import remember
from laneway.engine.step import Step, bound_digest
from laneway.engine.stopping import ends_unstarted, reopened
from laneway.errors import LanewayError
from laneway.facts import (
    ApprovalAnswered,
    AttemptEnded,
    CallEnded,
    CallProbed,
    CallReopened,
    CallSettled,
    HolderStopped,
    LaneChanged,
    ModeChanged,
    Row,
    RunStopped,
    TurnClosed,
    TurnSubmitted,
)
from laneway.ids import CallId
from laneway.outcomes import Code, Ended, Failure, succeeded
from laneway.policies.approvals import Standing, standing
from laneway.states import State

if TYPE_CHECKING:
    from laneway.engine.reexecution.evidence import Evidence

LEFT = cancelled("the program left the run").message
SPINS = 10_000
"""Rounds of the event loop in which a step of this scheduler comes to rest, many times over."""


class PartedError(Exception):
    """What is recorded cannot happen to the engine as it stands now."""

    def __init__(self, row: Row, now: str) -> None:
        """Name the fact, and how things stand."""
        self.row = row
        self.now = now
        super().__init__(now)


class Player:
    """Gives events to one scheduler."""

    def __init__(
        self,
        scheduler: WatchedScheduler,
        bodies: GatedBodies,
        evidence: "Evidence",
        own: frozenset[str],
        *,
        fixed_mode: bool = False,
    ) -> None:
        """Play to a scheduler.

        Args:
            scheduler: with gated bodies.
            bodies: those.
            evidence: of the driver whose time it is.
            own: names of tools that the host gave.
            fixed_mode: whether the host gave a mode, so that recorded changes of it count for
                nothing.
        """
        self.scheduler = scheduler
        self._bodies = bodies
        self._evidence = evidence
        self._own = own
        self._fixed_mode = fixed_mode
        self._nested = _NESTED.search(scheduler.log.view.run) is not None
        """The call that it is part of may lend it its own place in a lane that is paused."""
        self.fulfilled: Event | None = None
        """The event to come, if it has happened already as a part of the one before."""
        self._deeds: dict[Happening, Callable[[Event], None]] = {
            Happening.ANSWERED: self._answered,
            Happening.LAPSED: lambda event: self._expired(event, State.AWAITING_APPROVAL),
            Happening.RAN_OUT: self._ran_out,
            Happening.RESTED: lambda event: self._expired(event, State.BACKING_OFF),
            Happening.RETURNED: self._returned,
            Happening.TOLD: self._told,
            Happening.STOPPED: self._stopped,
            Happening.PROBED: self._probed,
            Happening.SETTLED: self._settled,
            Happening.REOPENED: self._settled,
            Happening.LANDED: self._landed,
            Happening.CLOSED: self._closed,
            Happening.WORKED: self._worked,
            Happening.MODE: self._mode,
            Happening.HALTED: self._halted,
            Happening.WENT_ON: lambda _: reopened(self.scheduler),
        }

    async def play(self, event: Event, coming: Event | None) -> None:
        """Let an event happen, and wait until the engine has come to rest.

        Args:
            event: that happens.
            coming: the one after it, if there is one.

        Raises:
            PartedError: it cannot happen now.
        """
        if event is self.fulfilled:
            return
        turn = self.scheduler.turn
        if event.withdrawn and turn is not None:
            turn.withdrawn = True
        if event.kind is Happening.SUBMITTED:
            await self._submitted(event, coming)
        elif event.kind is Happening.CLOSED or isinstance(event.given[0].fact, CallProbed):
            await self.resume()  # Probes are asked, and turns closed, when they go on.
        if event.kind in self._deeds:
            self._deeds[event.kind](event)
        await self.rest()

    async def forestall(self, coming: Event | None) -> bool:
        """Let the coming event happen now, if it is one that is noted behind what it brought about.

        Returns:
            Whether it has happened.
        """
        fact = None if coming is None else coming.given[0].fact
        if coming is self.fulfilled or not isinstance(fact, LaneChanged) or fact.change != "reset":
            return False
        assert coming is not None
        await self.play(coming, None)
        self.fulfilled = coming
        return True

    async def resume(self) -> bool:
        """Let a turn go on that an earlier driver left; says whether there was one."""
        turn = self.scheduler.turn
        if turn is None or turn.closed or not turn.parked:
            return False
        await self.scheduler.resume(turn)
        await self.rest()
        return True

    async def rest(self) -> None:
        """Wait until nothing moves by itself any more."""
        for _ in range(SPINS):
            await asyncio.sleep(0)
            if self._bodies.at_rest:
                return
        raise RuntimeError("the re-executed engine does not come to rest")

    # What happens

    async def _submitted(self, event: Event, coming: Event | None) -> None:
        fact = event.given[0].fact
        assert isinstance(fact, TurnSubmitted)
        scheduler = self.scheduler
        turns = scheduler.log.view.turns
        if turns and not turns[-1].closed:
            raise PartedError(event.given[0], f"turn {turns[-1].number} has not ended")
        if turns:
            remember(turns[-1], scheduler)
        faults = {
            row.fact.call: row.fact.outcome
            for row in event.decided
            if isinstance(row.fact, CallEnded) and isinstance(row.fact.outcome, Failure)
        }
        reply = reply_of(fact, faults, self._own)
        taken_in = await admit(reply, len(turns) + 1, scheduler, key=fact.key)
        taken_in.opening = msgspec.structs.replace(
            taken_in.opening, usage=fact.usage, refused=fact.refused
        )
        if fact.refused:
            self._refused(taken_in)
        scheduler.refusal = _refusal(event, coming)
        if scheduler.refusal is not None:
            self.fulfilled = coming
        await scheduler.admit(taken_in)
        scheduler.refusal = None

    def _refused(self, taken_in: Admission) -> None:
        """A budget let nothing of the answer in."""
        for at, call in enumerate(taken_in.turn.calls):
            if call.id in self._evidence.unaffordable and at not in taken_in.faults:
                call.rule, failure = self._evidence.unaffordable[call.id]
                taken_in.faults[at] = Ended(State.DENIED, failure)

    def _ran_out(self, event: Event) -> None:
        row = event.given[0]
        assert isinstance(row.fact, CallEnded)
        call = self._call(row, row.fact.call)
        call.rule = row.fact.rule
        self.end(call, row.fact)

    def _answered(self, event: Event) -> None:
        row = event.given[0]
        fact = row.fact
        assert isinstance(fact, ApprovalAnswered)
        call = self._call(row, fact.call, State.AWAITING_APPROVAL)
        if call.checked is None:
            failure = self.scheduler.complete(call)
            if failure is not None:
                raise PartedError(row, f"it cannot run any more: {failure.message}")
        question = self.scheduler.log.view.approvals[fact.approval]
        asked = msgspec.structs.replace(question.asked, digest=question.digest)
        stands = standing(asked, fact, digest_now=bound_digest(call), wall=asked.expires_wall - 1)
        if stands is Standing.STALE:
            raise PartedError(row, "the question is about something else than what would run now")
        self.scheduler.answer(call, fact)

    def _expired(self, event: Event, state: State) -> None:
        row = event.given[0]
        self.scheduler.expired(self._call(row, _of(row), state))

    def _returned(self, event: Event) -> None:
        row = event.given[0]
        call = self._call(row, _of(row), State.RUNNING)
        gate = self._gate(row, call)
        match row.fact:
            case AttemptEnded():
                gate.open(error=ConnectionError(AS_RECORDED))
            case CallEnded(outcome=outcome):
                let_end(gate, outcome, call)
            case _:
                raise AssertionError(row)

    def _told(self, event: Event) -> None:
        first = event.given[-1].fact
        assert isinstance(first, CallEnded)
        told = told_of(first)
        if told.message == LEFT:
            self.scheduler.leaving = True
        calls: list[LiveCall] = []
        for row in event.given:
            fact = row.fact
            call = self._call(row, _of(row))
            calls.append(call)
            gate = self._bodies.gates.get(call.id)
            if isinstance(fact, CallEnded) and gate is not None:
                gate.stays = not fact.stopped
                gate.late = event.late.get(call.id)
        self.scheduler.cancel(calls, told)
        if not first.stopped and calls[0].outcome is None:
            self._bodies.give_up(calls[0])

    def _stopped(self, event: Event) -> None:
        row = event.given[0]
        fact = row.fact
        assert isinstance(fact, HolderStopped)
        gate = self._bodies.gates.get(fact.call)  # Perhaps of an earlier turn.
        if gate is None:
            raise PartedError(row, "its body is not at work")
        gate.open(fact.late)

    def _probed(self, event: Event) -> None:
        for row in event.given:
            fact = row.fact
            assert isinstance(fact, CallProbed)
            call = self._call(row, fact.call, State.UNCERTAIN)
            if fact.detail.startswith(CANCELLED):  # What its probe is told by whoever cancels it.
                told = Told(state=State.CANCELLED, code=Code.CANCELLED, message=fact.detail)
                self.scheduler.cancel([call], told)
            else:
                self.scheduler.probed(call, _found(fact, event))

    def _settled(self, event: Event) -> None:
        row = event.given[0]
        call = self._call(row, _of(row), State.UNCERTAIN)
        if isinstance(row.fact, CallSettled):
            self.scheduler.settle(call, row.fact.outcome, row.fact.by)
        elif isinstance(row.fact, CallReopened):
            self.scheduler.reopen(call, row.fact.by)

    def _landed(self, event: Event) -> None:
        row = event.given[0]
        assert isinstance(row.fact, CallEnded)
        call = self._call(row, row.fact.call)
        if call.state is State.RUNNING:
            let_end(self._gate(row, call), row.fact.outcome, call)
        else:
            self.end(self._call(row, row.fact.call, State.QUEUED), row.fact)

    def end(self, call: LiveCall, fact: CallEnded) -> None:
        """Give a call the outcome that came to it from outside."""
        step = Step(self.scheduler)
        step.end(call, fact.state, fact.outcome)
        self.scheduler.post(step)

    def _closed(self, event: Event) -> None:
        row = event.given[0]
        turn: LiveTurn | None = self.scheduler.turn
        number = row.fact.turn if isinstance(row.fact, TurnClosed) else None
        if turn is None or turn.closed or number not in (None, turn.number):
            raise PartedError(row, "there is no such open turn")
        self.scheduler.close(turn)

    def _worked(self, event: Event) -> None:
        fact = event.given[0].fact
        assert isinstance(fact, LaneChanged)
        lanes = self.scheduler.services.controls
        with suppress(LanewayError):  # A lane that cannot be worked so now: its starts will tell.
            match fact.change:
                case "paused" | "draining" if not self._nested:
                    lanes.pause(fact.lane)
                case "resumed":
                    lanes.resume(fact.lane)
                case "resized":
                    lanes.resize(fact.lane, fact.value)
                case "reset":
                    lanes.reset(fact.lane)
                case _:
                    pass  # Whom a clearing cancelled is recorded.

    def _mode(self, event: Event) -> None:
        fact = event.given[0].fact
        assert isinstance(fact, ModeChanged)
        if self.scheduler.mode != fact.mode and not self._fixed_mode:
            self._evidence.verdict_in(event.decided)
            change_mode(self.scheduler, fact.mode, by=fact.by)

    def _halted(self, event: Event) -> None:
        fact = event.given[0].fact
        assert isinstance(fact, RunStopped)
        self.scheduler.stopped = fact
        self.scheduler.halted = ends_unstarted(fact)

    # Finding

    def _call(self, row: Row, name: CallId, state: State | None = None) -> LiveCall:
        turn = self.scheduler.turn
        call = None if turn is None else turn.by_id(name)
        if call is None:
            raise PartedError(row, "there is no such call in the last turn")
        if state is not None and call.state is not state:
            raise PartedError(row, f"the call is {call.state}")
        return call

    def _gate(self, row: Row, call: LiveCall) -> Gate:
        gate = self._bodies.gates.get(call.id)
        if gate is None:
            raise PartedError(row, f"the call is {call.state}, and its body is not at work")
        return gate


def _found(fact: CallProbed, event: Event) -> Found:
    """What a probe answered, as far as what followed tells."""
    finding = Finding(fact.found)
    follows = (row.fact for row in event.decided)
    settled = next((one.outcome for one in follows if isinstance(one, CallSettled)), None)
    value: Any = None
    if finding is Finding.HAPPENED:
        # What could not be stored then cannot be now.
        value = veiled(settled.value) if succeeded(settled) else object()
    return Found(finding, value, fact.detail)


CANCELLED = cancelled("").message.removesuffix(".")
_NESTED = re.compile(r"/t\d+\.\d+(?:/\d+)*/\d+$")


def _refusal(event: Event, coming: Event | None) -> Told | None:
    """Why a turn was to begin nothing: one of its first calls was told before it was looked at."""
    opening = event.given[0].fact
    if coming is None or coming.kind is not Happening.TOLD:
        return None
    assert isinstance(opening, TurnSubmitted)
    behind = {edge.target for edge in opening.edges}
    decided = {getattr(row.fact, "call", None) for row in event.decided}
    for row in coming.given:
        if isinstance(row.fact, CallEnded) and row.fact.call not in behind | decided:
            return told_of(row.fact)
    return None


def _of(row: Row) -> CallId:
    name: CallId = getattr(row.fact, "call")  # noqa: B009 - of facts that are about a call
    return name
