"""Why is it waiting? Answered for every unfinished call, from what the scheduler knows now.

Reads live calls, their edges and the lane table, of other runs too where a wait leads there; gives
frozen answers, and changes nothing. Costs a look at every call, edge and lane request, once.
"""

from collections.abc import Callable, Iterator
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from laneway.calls import Reason
from laneway.engine.live import LiveCall, LiveTurn
from laneway.ids import CallId
from laneway.journal.fold import CallView
from laneway.lanes.names import is_lane
from laneway.lanes.requests import Request
from laneway.lanes.waits import Blocker
from laneway.states import State

if TYPE_CHECKING:
    from laneway.engine.scheduler import Scheduler
    from laneway.engine.services import Services

LONGEST_CHAIN = 100
"""Calls of a chain that are named; of a longer one the first, and the root."""


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a call waits for."""

    kind: str
    """`dependency`, `approval`, `lane`, `group`, `pause`, `rate`, `thread`, `back-off`, `body`,
    `part` (a call within it), `same call`, `stop`, `settlement` or `start`."""
    what: str
    """The reason of the edge, the approval, the lane: a word or two for a human."""
    on: str = ""
    """The call in the way, as `run/t1.2` if it is another run's."""
    held: bool = False
    """Of a lane or thread: the call in the way holds it; else it waits itself, and comes first."""
    told_seconds: float | None = None
    """How long ago the body in the way was told to stop; it has not, and so holds its claims."""

    def __str__(self) -> str:
        if self.kind in ("lane", "group", "thread") and self.on:
            about = f"{self.kind} {self.what} {'held by' if self.held else 'behind'} {self.on}"
        elif self.kind == "pause":
            about = f"lane {self.what} paused"
        elif self.kind == "rate":
            about = f"rate of {self.what}"
        elif self.kind == "part":
            about = f"{self.on} ({self.what}), a call within it"
        elif self.kind == "same call":
            about = f"{self.on}, the same call of {self.what}"
        elif self.on:
            about = f"{self.kind} on {self.on} ({self.what})"
        else:
            about = f"{self.kind}: {self.what}"
        if self.told_seconds is None:
            return about
        return f"{about}, which was told to stop {self.told_seconds:.3f} s ago and has not"


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why one call has not ended."""

    call: CallId
    name: str
    """The provider's id."""
    tool: str
    state: State
    since_seconds: float
    """How long it has been in this state."""
    waits: tuple[Wait, ...]
    chain: tuple[str, ...]
    """From the call to the root of its waiting, over runs too, each a call. Where ways part, it
    leads to what needs a human, else to a body that won't stop, else to what was first."""
    root: Wait
    """What the last call of the chain waits for."""

    def __str__(self) -> str:
        waits = "; ".join(map(str, self.waits))
        told = f"{self.call} {self.tool} {self.state} for {self.since_seconds:.3f} s: {waits}"
        if len(self.chain) == 1:
            return told
        return f"{told}; in the end: {self.chain[-1]} waits for {self.root}"


def explain(scheduler: "Scheduler") -> tuple[Explanation, ...]:
    """Explain every unfinished call of a run, and every body that has not stopped."""
    turn = scheduler.turn
    if turn is None:
        return ()
    seen = _Seen(scheduler)
    return tuple(
        Explanation(
            call=call.id,
            name=call.name,
            tool=call.record.tool,
            state=call.state,
            since_seconds=_since(call),
            waits=tuple(wait for wait, _ in seen.waits(call)),
            chain=seen.chain(call),
            root=seen.way(call).root,
        )
        for call in turn.calls
        if call.outcome is None or call.state is State.UNCERTAIN or call in scheduler.bodies.stuck
    )


class _Way(NamedTuple):
    """Where the waiting of a call leads."""

    toward: LiveCall | None
    """The call in its way."""
    end: LiveCall
    root: Wait

    @property
    def urgency(self) -> int:
        return _URGENCY.get(self.root.kind, 0)


_URGENCY = {"approval": 2, "settlement": 2, "stop": 1}
"""What does not end by itself comes first."""

_Found = list[tuple[Wait, LiveCall | None]]


class _Seen:
    """What one look at a scheduler finds, each thing looked up once."""

    def __init__(self, scheduler: "Scheduler") -> None:
        self._scheduler = scheduler
        self._sources: dict[LiveTurn, dict[LiveCall, _Found]] = {}
        self._blockers: dict[Request[LiveCall], tuple[Blocker[LiveCall], ...]] | None = None
        self._waits: dict[LiveCall, _Found] = {}
        self._ways: dict[LiveCall, _Way] = {}

    def waits(self, call: LiveCall) -> _Found:
        """All that a call waits for, each with the call in the way."""
        found = self._waits.get(call)
        if found is None:
            found = self._waits[call] = self._find(call)
        return found

    def chain(self, call: LiveCall) -> tuple[str, ...]:
        """From the call to the root of its waiting."""
        chain: list[str] = []
        end = self.way(call).end
        at: LiveCall | None = call
        while at is not None and at is not end and len(chain) < LONGEST_CHAIN - 1:
            chain.append(self._name(at))
            at = self.way(at).toward
        return (*chain, self._name(end))

    def way(self, call: LiveCall) -> _Way:
        """Follow the waiting to its root, without recursion: a chain may be as long as a turn."""
        known = self._ways.get(call)
        if known is not None:
            return known
        entered = {call}
        path: list[tuple[LiveCall, Iterator[tuple[Wait, LiveCall | None]]]] = [
            (call, iter(self.waits(call)))
        ]
        while path:
            at, waits = path[-1]
            for _, blocker in waits:
                if blocker is not None and blocker not in entered and blocker not in self._ways:
                    entered.add(blocker)
                    path.append((blocker, iter(self.waits(blocker))))
                    break
            else:
                path.pop()
                self._ways[at] = self._choose(at)
        return self._ways[call]

    def _choose(self, call: LiveCall) -> _Way:
        waits = self.waits(call)
        chosen = _Way(None, call, waits[0][0])
        urgency = -1
        for _, blocker in waits:
            # A blocker without a way is being followed: a ring, which has no root.
            way = None if blocker is None else self._ways.get(blocker)
            if way is not None and way.urgency > urgency:
                urgency = way.urgency
                chosen = _Way(blocker, way.end, way.root)
        return chosen

    def _find(self, call: LiveCall) -> _Found:
        match call.state:
            case State.PENDING:
                return self._dependencies(call)
            case State.QUEUED:
                return self._lanes(call)
            case State.AWAITING_APPROVAL:
                wait = Wait(kind="approval", what=call.approval or "")
            case State.BACKING_OFF:
                left = max(call.due - _now(call), 0.0)
                wait = Wait(kind="back-off", what=f"{left:.3f} s until the next attempt")
            case State.UNCERTAIN:
                wait = Wait(kind="settlement", what="somebody who knows what happened")
            case State.RUNNING if call.told is not None:
                wait = Wait(kind="stop", what=call.told.code, told_seconds=told_ago(call))
            case State.RUNNING:
                parts = [part for turn in call.nested for part in turn.calls if not part.outcome]
                if parts:
                    return [
                        (Wait(kind="part", what=part.record.tool, on=self._name(part)), part)
                        for part in parts
                    ]
                wait = Wait(kind="body", what=call.record.tool)
            case _:
                what = "its body, which holds its claims until it stops"
                wait = Wait(kind="stop", what=what, told_seconds=told_ago(call))
        return [(wait, None)]

    def _dependencies(self, call: LiveCall) -> _Found:
        sources = self._sources.get(call.turn)
        if sources is None:
            sources = self._sources[call.turn] = _open_sources(call.turn, self._name)
        return sources.get(call) or [(_start("its turn to be looked at", call), None)]

    def _lanes(self, call: LiveCall) -> _Found:
        request, kind = call.request, "lane"
        if call.thread is not None:
            request, kind = call.thread, "thread"
        if request is None or request.granted:
            leader = None if call.flight is None else call.flight.leader
            if leader is not None and leader is not call:
                on = self._name(leader)
                return [(Wait(kind="same call", what=leader.record.tool, on=on), leader)]
            return [(_start("its start to be written down", call), None)]
        if self._blockers is None:
            self._blockers = dict(self._scheduler.services.lanes.waits())
        found = _held_up(request, self._scheduler.services)
        for blocker in self._blockers.get(request, ()):
            if blocker.owner is None:
                found.append((Wait(kind="pause", what=blocker.resource), None))
                continue
            claimed = any(claim.resource == blocker.resource for claim in request.claims)
            group = is_lane(blocker.resource) and not claimed
            wait = Wait(
                kind="group" if group else kind,
                what=blocker.resource,
                on=self._name(blocker.owner),
                held=blocker.holding,
                told_seconds=told_ago(blocker.owner) if blocker.holding else None,
            )
            found.append((wait, blocker.owner))
        nobody = Wait(kind=kind, what="its lanes, in which nobody stands in its way")
        return found or [(nobody, None)]

    def _name(self, call: LiveCall) -> str:
        if call.scheduler is self._scheduler:
            return call.id
        return f"{call.scheduler.log.view.run}/{call.id}"


def _held_up(request: Request[LiveCall], services: "Services") -> _Found:
    """What no call is to blame for: lanes that are paused, and rates."""
    paused, rated = services.lanes.held_up(request)
    found: _Found = [(Wait(kind="pause", what=lane), None) for lane in paused]
    for lane in rated:
        seconds = services.controls.pacing.next_start_seconds(lane)
        when = "after those before it" if seconds is None else f"in {seconds:.3f} s"
        found.append((Wait(kind="rate", what=f"{lane}: next start {when}"), None))
    return found


def _open_sources(turn: LiveTurn, name: Callable[[LiveCall], str]) -> dict[LiveCall, _Found]:
    """Of each call, the ones it still depends on: all edges turned round at once."""
    found: dict[LiveCall, _Found] = {}
    over = _conflicts(turn)
    for source in turn.calls:
        if source.outcome is None or source.state is State.UNCERTAIN:
            for target, reason in source.successors:
                resource = over.get((source.id, target.id)) if reason is Reason.CONFLICT else None
                what = f"{reason} over {resource}" if resource else reason
                wait = Wait(kind="dependency", what=what, on=name(source))
                found.setdefault(target, []).append((wait, source))
    return found


def _conflicts(turn: LiveTurn) -> dict[tuple[CallId, CallId], str]:
    """Over which resource calls of a turn conflict, as its fact says."""
    turns = turn.scheduler.log.view.turns
    edges = turns[turn.number - 1].edges if turn.number <= len(turns) else ()
    return {
        (edge.source, edge.target): edge.detail for edge in edges if edge.reason is Reason.CONFLICT
    }


def _start(what: str, call: LiveCall) -> Wait:
    if call.turn.parked:
        what = "somebody who resumes the turn that an earlier driver left"
    return Wait(kind="start", what=what)


def told_ago(call: LiveCall) -> float | None:
    """How long ago a body was told to stop that has not stopped, in seconds; None for any other."""
    limits = call.scheduler.services.limits
    grace = limits.grace_seconds
    given_up = call.scheduler.bodies.stuck.get(call)
    if given_up is not None:
        # A thread cannot be told, so that it is given up at once.
        return _now(call) - given_up + (0.0 if call.gave_up_thread else grace)
    if call.told is None or not call.entered or not isfinite(call.due - grace):
        return None
    return max(_now(call) - (call.due - grace), 0.0)


def _since(call: LiveCall) -> float:
    view: CallView | None = call.scheduler.log.view.calls.get(call.id)
    if view is None:
        return 0.0
    match view.state:
        case State.PENDING:
            began: float | None = view.submitted
        case State.AWAITING_APPROVAL:
            began = _asked(view, call)
        case State.QUEUED:
            began = view.queued
        case State.RUNNING | State.BACKING_OFF:
            began = view.started
        case _:
            began = view.ended
    # A time of an earlier driver may be on another clock; it says nothing here.
    return max(_now(call) - began, 0.0) if began is not None else 0.0


def _asked(view: CallView, call: LiveCall) -> float:
    """When the question was put that the call waits for, by the wall clock: so that it expires."""
    services = call.scheduler.services
    seconds = services.limits.approval_seconds
    if view.approval is None or not isfinite(seconds):
        return view.submitted
    asked_wall = view.approval.asked.expires_wall - seconds
    return _now(call) - (services.clock.wall() - asked_wall)


def _now(call: LiveCall) -> float:
    return call.scheduler.services.clock.monotonic()
