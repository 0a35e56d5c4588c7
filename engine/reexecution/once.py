"""One pass through a part of a recording: event by event, each decision held against the recorded.

A start that the engine makes before it is recorded is no divergence: the recorded run waited for
something outside. It is counted, and told to the next pass.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack

import msgspec

from laneway.engine.explain import Wait, explain
from laneway.engine.live import LiveCall
from laneway.engine.reexecution.comparing import Pool, differing, parted
from laneway.engine.reexecution.events import Event
from laneway.engine.reexecution.part import Part, Way
from laneway.engine.reexecution.playing import PartedError, Player
from laneway.engine.reexecution.recording import is_of
from laneway.engine.reexecution.staging import Options, Staged
from laneway.engine.reexecution.standing_in import Attempt
from laneway.engine.reexecution.verdict import Divergence
from laneway.engine.reexecution.wording import key_of
from laneway.engine.scheduler import SLICE
from laneway.facts import (
    ApprovalAsked,
    CallEnded,
    CallJoined,
    CallStarted,
    Fact,
    HolderStopped,
    Row,
    TurnSubmitted,
)
from laneway.ids import ApprovalId, CallId
from laneway.outcomes import Code, Failure
from laneway.states import State

FROM_OTHERS = (Code.LANE_FULL, Code.LANE_DEADLOCK)
"""What other runs have a part in, which are not there now."""


class Passed(msgspec.Struct, frozen=True, kw_only=True):
    """What a pass has found."""

    divergence: Divergence | None
    stopped: int
    """The event of the divergence, from 0 at the beginning of the part."""
    decisions: int
    early: frozenset[Attempt]
    """Starts that came earlier than they are recorded."""
    earlier: int
    """How many came earlier, or were held until they were recorded."""
    ranked: bool
    """Whether ranks by durations played a part."""
    overtaken: tuple[str, frozenset[str]]
    """Of a start that is not to be made yet: its tool, and those of the calls in its way."""
    joined: bool
    """Whether the divergence is a call left to another one that is the same."""
    digests: dict[ApprovalId, str]
    """What its questions bind now."""


async def pass_through(part: Part, options: Options, way: Way) -> Passed:
    """Go through a part of a recording once."""
    staged = Staged(part, options, way)
    async with AsyncExitStack() as stack:
        await staged.open(stack)
        return await _Pass(staged, way).go()


class _Diverged(Exception):
    def __init__(self, divergence: Divergence) -> None:
        self.divergence = divergence
        super().__init__(divergence.sentence)


class _Pass:
    def __init__(self, staged: Staged, way: Way) -> None:
        self._staged = staged
        self._way = way
        self._part = staged.part
        self._player = Player(
            staged.scheduler,
            staged.bodies,
            staged.evidence,
            staged.own,
            fixed_mode=staged.options.mode is not None,
        )
        self._pool = Pool(staged.part.records)
        self._decisions = 0
        self._earlier = 0
        self._early: set[Attempt] = set()
        self._ranked = False
        self._joined = False
        self._overtaken: tuple[str, frozenset[str]] = ("", frozenset())
        self._digests: dict[ApprovalId, str] = {}

    async def go(self) -> Passed:
        divergence: Divergence | None = None
        at = 0
        try:
            for at, event in enumerate(self._part.events):
                coming = self._part.events[at + 1 :][:1]
                await self._event(event, coming[0] if coming else None)
        except _Diverged as end:
            divergence = end.divergence
        return Passed(
            divergence=divergence,
            stopped=at,
            decisions=self._decisions,
            early=frozenset(self._early),
            earlier=self._earlier,
            ranked=self._ranked,
            overtaken=self._overtaken,
            joined=self._joined,
            digests=self._digests,
        )

    async def _event(self, event: Event, coming: Event | None) -> None:
        staged = self._staged
        first = event.given[0]
        staged.clock.set(first)
        self._prepare(event)
        try:
            await self._player.play(event, coming)
        except PartedError as error:
            raise self._parted(error.row, why=error.now) from None
        if staged.scheduler.log.broken is not None:
            raise self._parted(first, why=f"the engine failed: {staged.scheduler.log.broken}")
        turn = staged.scheduler.turn
        self._ranked |= turn is not None and turn.seats is not None
        self._collect()
        try:
            for row in event.rows:
                await self._meet(row, coming)
        except _Diverged:
            here = {
                (row.fact.call, row.fact.attempt)
                for row in event.rows
                if isinstance(row.fact, CallStarted)
            }
            self._early.update(set(self._pool.left()[0]) - here)  # For the next pass.
            raise
        if coming is None or self._player.fulfilled is not coming:
            self._leave_over(event, last=coming is None)

    def _prepare(self, event: Event) -> None:
        """Let in who waited for something outside until now, and send away who was sent away."""
        lanes = self._staged.lanes
        for row in event.rows:
            fact = row.fact
            if isinstance(fact, CallStarted) and (fact.call, fact.attempt) in self._way.held:
                self._earlier += 1
                self._staged.scheduler.services.controls.tell(
                    lanes.let_in((fact.call, fact.attempt))
                )
        lanes.sent_away = {
            row.fact.call: row.fact.outcome
            for row in event.decided
            if isinstance(row.fact, CallEnded)
            and isinstance(row.fact.outcome, Failure)
            and row.fact.outcome.code in FROM_OTHERS
        }
        opening = event.given[0].fact
        if self._way.by_record and isinstance(opening, TurnSubmitted):
            self._staged.durations.expect_of_turn(self._part.expected(opening))

    def _collect(self) -> None:
        news = self._staged.news()
        self._digests |= {
            one.approval: one.digest for one in news if isinstance(one, ApprovalAsked)
        }
        self._pool.add(news)

    async def _meet(self, row: Row, coming: Event | None) -> None:
        """Find the decision of now that is about the same as a recorded one, and compare."""
        fact = row.fact
        if key_of(fact) is None:
            return
        found = await self._found(fact, coming)
        if found is None:
            if self._pool.started_early(fact):
                self._earlier += 1
            elif not (isinstance(fact, HolderStopped) or self._is_elsewhere(fact)):
                raise self._missing(row)
            return
        never = self._pool.never_recorded(fact)
        if never is not None:
            raise self._parted(row, now=never, recorded=False)
        divergence = differing(row, found, self._part.records)
        if divergence is not None:
            raise _Diverged(divergence)
        self._decisions += 1

    def _is_elsewhere(self, fact: Fact) -> bool:
        """Whether a call was left to one of another run, which is not there now."""
        part = self._part
        return isinstance(fact, CallJoined) and not is_of(fact.leader, part.run, part.records)

    async def _found(self, fact: Fact, coming: Event | None) -> Fact | None:
        found = self._pool.like(fact)
        if found is None and await self._player.resume():
            self._collect()
            found = self._pool.like(fact)
        started = isinstance(fact, CallStarted) and self._pool.is_early(fact)
        if found is None and not started and await self._player.forestall(coming):
            self._collect()
            found = self._pool.like(fact)
        if found is None and isinstance(fact, CallEnded) and self._is_from_others(fact):
            call = self._call(fact.call)
            assert call is not None
            self._player.end(call, fact)
            await self._player.rest()
            self._collect()
            found = self._pool.like(fact)
        return found

    def _is_from_others(self, fact: CallEnded) -> bool:
        failure = fact.outcome
        call = self._call(fact.call)
        return (
            isinstance(failure, Failure)
            and failure.code in FROM_OTHERS
            and call is not None
            and call.state is State.QUEUED
        )

    def _missing(self, row: Row) -> _Diverged:
        now = self._pool.instead(row.fact)
        self._joined = isinstance(now, CallJoined)
        if now is not None:
            return self._parted(row, now=now)
        name: CallId | None = getattr(row.fact, "call", None)
        if name is None:
            return self._parted(row)
        waits = self._waits(name)
        records = self._part.records
        if isinstance(row.fact, CallStarted):
            rivals = {records[CallId(one.on)].tool for one in waits if one.on in records}
            self._overtaken = records[name].tool, frozenset(rivals)
        call = self._call(name)
        stands = "there is no such call" if call is None else f"the call is {call.state}"
        told = "; ".join(map(str, waits))
        return self._parted(row, why=f"{stands}, {told}" if told else stands)

    def _waits(self, name: CallId) -> Sequence[Wait]:
        found = (one.waits for one in explain(self._staged.scheduler) if one.call == name)
        return next(found, ())

    def _call(self, name: CallId) -> LiveCall | None:
        turn = self._staged.scheduler.turn
        return None if turn is None else turn.by_id(name)

    def _leave_over(self, event: Event, *, last: bool) -> None:
        """What is decided now and not recorded; the end of a record may lack what came last."""
        turn = self._staged.scheduler.turn
        missed = self._pool.passed_over()
        starts, others = self._pool.left()
        self._early.update(starts)
        if turn is not None and len(turn.calls) > SLICE:
            self._pool.add(others)  # They were looked at slice by slice, and other things between.
            return
        found = missed if last else others
        if found:
            raise self._parted(event.rows[-1], now=found[0], recorded=False)

    def _parted(
        self, row: Row, *, now: Fact | None = None, why: str = "", recorded: bool = True
    ) -> _Diverged:
        return _Diverged(parted(row, self._part.records, now=now, why=why, recorded=recorded))
