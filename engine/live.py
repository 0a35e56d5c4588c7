"""Calls and turns while they move: what the scheduler has decided, a commit ahead of the facts."""

import asyncio
import contextvars
from collections.abc import Collection, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec

from laneway.calls import CallRecord, Reason, Referring
from laneway.claims import Claim
from laneway.engine.context import Stop
from laneway.errors import IllegalTransitionError
from laneway.facts import ApprovalAnswered
from laneway.ids import ApprovalId, CallId, RunId
from laneway.outcomes import Outcome
from laneway.states import ARROWS, State

if TYPE_CHECKING:
    from laneway.engine.failures import Told
    from laneway.engine.flights import Flight
    from laneway.engine.scheduler import Scheduler
    from laneway.engine.seats import Seats
    from laneway.engine.tools import Checked, Tool
    from laneway.lanes.requests import Request

Successors = Sequence[tuple["LiveCall", Reason]]
Sources = dict["LiveCall", list[tuple["LiveCall", Reason]]]
_NO_SUCCESSORS: tuple[()] = ()


class LiveCall(msgspec.Struct, eq=False, kw_only=True):
    """A call in the hands of the scheduler.

    Invariants: `state` is never behind the journal's view and at most one commit ahead of it;
    `outcome` is set once, but for an UNCERTAIN one that is settled or taken back; `request` is held
    from the moment of asking for lanes until the body has really stopped; `waits` counts the edges
    that still lead in.
    """

    record: CallRecord
    name: str
    """The provider's id."""
    tool: "Tool[..., Any] | None"
    turn: "LiveTurn"
    scheduler: "Scheduler"
    claims: tuple[Claim, ...]
    arguments: Any
    """What policy and journal see; references are resolved once the call is ready."""
    checked: "Checked | None" = None
    """The final arguments as the tool takes them; None while they are not final."""
    sealed: dict[str, Any] | None = None
    """The recorded arguments with their secrets, where they have any, or `LOST`."""
    state: State = State.PENDING
    outcome: Outcome | None = None
    waits: int = 0
    successors: "Successors" = _NO_SUCCESSORS
    request: "Request[LiveCall] | None" = None
    thread: "Request[LiveCall] | None" = None
    """For a synchronous tool: its claim to a thread, asked for once the others are held."""
    task: asyncio.Task[None] | None = None
    told: "Told | None" = None
    """Why it is to stop, once it has been told."""
    stop: Stop | None = None
    """Seen by a tool that asks for its context, once its body is entered."""
    attempt: int = 0
    origin: "RunId | None" = None
    """The run in which it was asked for, if this one is a fork of that."""
    due: float = inf
    hard_due: float = inf
    """When the body has to have ended, however much it reports; `due` may be earlier."""
    began: float = 0.0
    """When the body was entered, in monotonic seconds."""
    worked: float = 0.0
    """What earlier attempts and the pauses behind them took, in this driver's time."""
    left_seconds: float | None = None
    """What is left of its limit, while its body only waits for humans and its clock stands."""
    entered: bool = False
    """The body of this attempt has been entered."""
    running: "asyncio.Future[Any] | None" = None
    """Of the thread that is in its body."""
    gave_up_thread: bool = False
    rule: str = ""
    approval: ApprovalId | None = None
    """The question about it that is open, or was answered with yes."""
    asked: int = 0
    """How many questions have been asked about it."""
    answers: tuple[ApprovalAnswered, ...] = ()
    """To that question, kept or on their way."""
    edited: dict[str, Any] | None = None
    """What a human made of the arguments, with their secrets; no text in them refers."""
    plan: "LivePlan | None" = None
    """What it holds, if it is the call of a plan: it only gathers what those calls come to."""
    part_of: "LivePlan | None" = None
    """The plan whose call it is, if it is one."""
    nested: "Sequence[LiveTurn]" = ()
    """What its body has submitted through the engine, and has not ended."""
    flight: "Flight | None" = None
    """What it leads or has joined, as one of several calls that are the same."""
    probing: bool = False
    """It is UNCERTAIN and its probe has not answered: all that waits for it still does."""
    reopened: bool = False
    """Its probe had it run again, once in this driver's time."""
    cleared: int = 0
    """How many of its attempts are known to have done nothing."""
    note: str = ""
    """What the model is told beside its result."""
    root: "LiveCall | None" = None
    """Whose end it was skipped for: the first in the chain of calls that did not succeed."""

    @property
    def id(self) -> CallId:
        """Laneway's own name of the call."""
        return self.record.id

    @property
    def called(self) -> str:
        """What it is called over all runs."""
        return f"{self.scheduler.log.view.run}/{self.id}"

    @property
    def path(self) -> str:
        """What a host calls it: the provider's id, below that of its plan: `call_7/a`."""
        return self.name if self.part_of is None else f"{self.part_of.call.path}/{self.name}"

    @property
    def harmless(self) -> bool:
        """Whether running it changes nothing."""
        return self.record.effect.changes_nothing

    def move(self, state: State) -> None:
        """Go along an arrow."""
        if state not in ARROWS[self.state]:
            raise IllegalTransitionError(self.state, state)
        self.state = state

    def expired(self) -> None:
        """The deadline of whatever it does now has passed."""
        self.scheduler.expired(self)

    def drop(self) -> None:
        """Let go of what an ended call needs no more."""
        self.checked = None
        self.task = None
        self.successors = _NO_SUCCESSORS


class LivePlan(msgspec.Struct, eq=False):
    """The calls that one call of the plan tool holds, and the names that they know.

    They stand in their turn as calls of their own, right behind the call that holds them.
    """

    call: LiveCall
    names: Collection[str]
    """What a reference in them can name: one another, and the calls of earlier turns."""
    calls: list[LiveCall] = []
    by_name: dict[str, LiveCall] = {}
    referring: Referring = Referring.STRICT


class LiveTurn:
    """A turn in the hands of the scheduler."""

    __slots__ = (
        "_ids",
        "active",
        "admitting",
        "by_name",
        "calls",
        "closed",
        "closing",
        "context",
        "due",
        "humans",
        "left_seconds",
        "limit_seconds",
        "names",
        "number",
        "open",
        "parked",
        "probing",
        "quiet",
        "referring",
        "rests",
        "scheduler",
        "seats",
        "seq",
        "sources",
        "uncertain",
        "withdrawn",
        "within",
    )

    def __init__(self, number: int, scheduler: "Scheduler", *, referring: Referring) -> None:
        """Start without calls."""
        self.number = number
        self.scheduler = scheduler
        self.referring = referring
        self.context = contextvars.copy_context()
        """Of whoever submitted or resumed it: what bodies see of context variables."""
        self.seats: Seats | None = None
        """Its calls by the path still ahead of them, where that can matter."""
        self.within: LiveCall | None = None
        """The call whose body submitted it, and so holds for it while it runs."""
        self.calls: list[LiveCall] = []
        self.by_name: dict[str, LiveCall] = {}
        """The calls of the turn itself; those of a plan are known in the plan."""
        self._ids: dict[str, LiveCall] = {}
        self.names: Collection[str] = frozenset()
        """What a reference can name: the calls of this turn and of earlier ones."""
        self.open = 0
        """Calls without outcome."""
        self.active = 0
        """Open calls that are not PENDING."""
        self.humans = 0
        """Open calls that are AWAITING_APPROVAL."""
        self.uncertain = 0
        """UNCERTAIN calls: while there is one, what needs it stays PENDING."""
        self.probing = 0
        """UNCERTAIN calls whose probe has not answered."""
        self.closing = False
        """Every outcome is to be final: what is UNCERTAIN stays so."""
        self.admitting = True
        self.parked = False
        """An earlier driver left it and nobody has resumed it: decided things wait for that."""
        self.closed = False
        self.withdrawn = False
        """The host closes the turn: no human is asked any more."""
        self.due = inf
        self.limit_seconds = inf
        self.rests = False
        """Its clock stands, since only humans are awaited, with `left_seconds` on it."""
        self.left_seconds = inf
        self.seq = 0
        """Of the last fact that ended something in the turn, kept or on its way."""
        self.sources: Sources | None = None
        """The edges into each call, once somebody has had to ask for them."""
        self.quiet: list[asyncio.Future[None]] = []
        """Who waits until nothing moves by itself any more."""

    def by_id(self, name: str) -> LiveCall | None:
        """Find a call by Laneway's own name of it."""
        if len(self._ids) != len(self.calls):
            self._ids = {call.id: call for call in self.calls}
        return self._ids.get(name)

    def by_path(self, path: str) -> LiveCall | None:
        """Find a call by what a host calls it; None where that could mean two."""
        plans = [call.plan for call in self.calls if call.plan is not None]
        found = [call for plan in plans for call in plan.calls if call.path == path]
        if path in self.by_name:
            found.append(self.by_name[path])
        return found[0] if len(found) == 1 else None

    @property
    def is_quiet(self) -> bool:
        """Whether nothing of the turn moves by itself any more."""
        return not (self.active or self.admitting or self.probing)

    def expired(self) -> None:
        """The turn as a whole has taken too long."""
        self.scheduler.turn_expired(self)
