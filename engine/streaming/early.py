"""Calls that start while their message is still being written, and what becomes of them.

Reads the front of a message, as far as it is complete; starts the calls in it that change nothing
and that nothing before them can disturb. When the message has ended well they become part of its
turn, if it says of them what its front had said; else they are given up.
"""

from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from laneway.calls import CallRecord
from laneway.engine.admission import Admission, drawn, known_names
from laneway.engine.failures import Told
from laneway.engine.graph import Node
from laneway.engine.intake import take_in
from laneway.engine.live import LiveCall, LiveTurn
from laneway.engine.planning import PlanTool
from laneway.engine.providers.reply import Asked, Reply
from laneway.engine.step import Step
from laneway.engine.streaming.left import abandoned
from laneway.errors import LanewayError
from laneway.facts import TurnStreamed
from laneway.ids import call_id
from laneway.outcomes import succeeded
from laneway.policies.questions import Decision

if TYPE_CHECKING:
    from laneway.engine.scheduler import Scheduler

MOST = 100
"""Calls at the front of a message that are looked at: each is looked at beside those before it."""

BROKEN = abandoned("the stream broke off before its message had ended")
SUPERSEDED = abandoned("the provider began the message anew")
LEFT = abandoned("whoever read the stream has left it")
RECORDED = abandoned("the answer had been submitted before")
OTHERWISE = abandoned("the message, once it was whole, had become another")


class Early:
    """What has been started of one message."""

    def __init__(self, scheduler: "Scheduler", number: int) -> None:
        """Start with nothing; nothing is written before the first call starts.

        Args:
            scheduler: of the run.
            number: of the turn that the message will be.
        """
        self._scheduler = scheduler
        self._number = number
        self._turn: LiveTurn | None = None
        self._seen: list[LiveCall] = []
        self._nodes: list[Node] = []
        self._begun = self._joined = False
        self._holds = not _may_begin(scheduler)

    @property
    def number(self) -> int:
        """Of the turn that the message will be."""
        ended = self._turn is not None and self._turn.closed
        return self._number + 1 if ended else self._number

    @property
    def holds(self) -> bool:
        """Whether nothing more of the message is to start early."""
        return self._holds or len(self._seen) >= MOST

    def hold(self) -> None:
        """Start nothing more early."""
        self._holds = True

    @property
    def started(self) -> tuple[str, ...]:
        """The provider's ids of the calls that were started."""
        if not self._begun or self._turn is None:
            return ()
        return tuple(call.name for call in self._turn.calls)

    def see(self, reply: Reply) -> None:
        """Look at the front of the message; start what may start.

        Args:
            reply: as the format reads the front; it has grown since the last look.
        """
        if self.holds or not _may_begin(self._scheduler):
            return
        if self._turn is None:
            self._turn = LiveTurn(self._number, self._scheduler, referring=reply.referring)
        turn = self._turn
        turn.names = known_names(reply, self._scheduler)
        starting: list[LiveCall] = []
        for asked in reply.calls[len(self._seen) : MOST]:
            call = self._take(asked, turn)
            if self._holds:
                break
            if call is not None:
                starting.append(call)
        if starting:
            self._start(turn, starting, reply)

    def _take(self, asked: Asked, turn: LiveTurn) -> LiveCall | None:
        """Take a call in; give it if it may start ahead of the end of the message."""
        at = len(self._seen)
        taken = take_in(asked, call_id(self._number, at + 1), turn)
        call = taken.call
        unresolved = taken.failure is None and call.checked is None
        if unresolved or isinstance(call.tool, PlanTool):
            self._holds = True  # Nobody knows yet what it touches.
            return None
        self._seen.append(call)
        self._nodes.append(taken.node)
        if taken.failure is not None or not call.harmless:
            return None
        graph = drawn([*self._nodes], self._seen, self._scheduler)
        if graph.waits[at] or at in graph.faults or graph.earlier.get(at):
            return None
        room = self._scheduler.services.controls.room([call], self._scheduler)
        if not isinstance(room, nullcontext):
            return None
        allowed = Step(self._scheduler).judge(call).decision is Decision.ALLOW
        return call if allowed else None

    def _start(self, turn: LiveTurn, calls: list[LiveCall], reply: Reply) -> None:
        if not self._begun:
            if self._scheduler.begin(turn) is not None:
                self._holds = True
                return
            self._begun = True
        turn.calls += calls
        turn.by_name |= {call.name: call for call in calls}
        turn.open += len(calls)
        records = tuple(call.record for call in calls)
        announced = TurnStreamed(
            turn=turn.number, provider=reply.provider, calls=records, referring=reply.referring
        )
        self._scheduler.start_early(calls, announced)

    # The end of the message

    async def abandon(self, told: Told) -> None:
        """Give up what was started, and wait until it has stopped; nothing of it counts."""
        turn = self._turn
        self._holds = True
        if turn is None or not self._begun or self._joined or turn.closed:
            return
        scheduler = self._scheduler
        if scheduler.left or scheduler.log.broken is not None:
            return  # Whoever takes the run up finds the turn, and abandons it.
        if turn.provisional:
            scheduler.abandon(turn, told)
        with suppress(LanewayError):
            await scheduler.quiet(turn)

    async def become(
        self, coming: Admission, again: Callable[[], Awaitable[Admission]]
    ) -> Admission:
        """Make what was started part of the turn that the whole message is.

        Args:
            coming: the whole message, as it would be taken in had nothing been started.
            again: takes it in once more, as another turn: for a message that has become another.
        """
        self._holds = True
        turn = self._turn
        if turn is None or not self._begun:
            return coming
        if not _is_as_begun(turn, coming):
            await self.abandon(OTHERWISE)
            return await again()
        self._joined = True
        return _joined(turn, coming)


def _may_begin(scheduler: "Scheduler") -> bool:
    """Whether calls of this run may start early at all.

    Not where secrets of the host's would have to be found in a message that is half there.
    """
    return not (
        scheduler.leaving
        or scheduler.log.broken is not None
        or scheduler.stopped is not None
        or scheduler.refusal is not None
        or scheduler.secrets is not None
        or scheduler.place.refused is not None
    )


def _is_as_begun(turn: LiveTurn, coming: Admission) -> bool:
    """Whether the whole message says of what was started what its front had said."""
    places = {call.id: at for at, call in enumerate(coming.turn.calls)}
    for call in turn.calls:
        at = places.get(call.id)
        if at is None or at in coming.faults:
            return False
        now = coming.turn.calls[at]
        if now.waits or now.checked is None or not _alike(now.record, call.record):
            return False
    return True


def _alike(one: CallRecord, other: CallRecord) -> bool:
    # Links to a file come and go between two looks; what is asked for stays.
    return replace(one, claims=other.claims) == other


def _joined(turn: LiveTurn, coming: Admission) -> Admission:
    """Put the calls of a whole message into the turn in which some of them have started."""
    fresh = coming.turn
    begun = {call.id: call for call in turn.calls}
    turn.ended_early = sum(call.outcome is not None for call in turn.calls)
    for at, now in enumerate(fresh.calls):
        call = begun.get(now.id)
        if call is None:
            now.turn = turn
            continue
        fresh.calls[at] = fresh.by_name[now.name] = call
        if call.outcome is None:
            call.successors = now.successors
            continue
        for target, reason in now.successors:
            if succeeded(call.outcome) or not reason.carries_failure:
                target.waits -= 1
            else:
                coming.skips.append((target, call))
    turn.calls, turn.by_name, turn.names = fresh.calls, fresh.by_name, fresh.names
    coming.turn = turn
    coming.opening = replace(coming.opening, calls=tuple(call.record for call in turn.calls))
    return coming
