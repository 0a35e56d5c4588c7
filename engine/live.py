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
from laneway.ids import ApprovalId, CallId
from laneway.outcomes import Outcome
from laneway.states import State, move

if TYPE_CHECKING:
    from laneway.engine.failures import Told
    from laneway.engine.scheduler import Scheduler
    from laneway.engine.tools import Checked, Tool
    from laneway.lanes.requests import Request

Successors = Sequence[tuple["LiveCall", Reason]]
_NO_SUCCESSORS: tuple[()] = ()
_DIGITS = 9
"""Of the largest number that the name of a call may hold."""


class LiveCall(msgspec.Struct, eq=False, kw_only=True):
    """A call in the hands of the scheduler.

    Invariants: `state` is never behind the journal's view and at most one commit ahead of it;
    `outcome` is set once, but for an UNCERTAIN one that is settled; `request` is held from the
    moment of asking for lanes until the body has really stopped; `waits` counts the edges that
    still lead in.
    """

    record: CallRecord
    name: str
    """The provider's id."""
    tool: "Tool[..., Any] | None"
    turn: "LiveTurn"
    scheduler: "Scheduler"
    claims: tuple[Claim, ...]
    arguments: Any
    """What policy, journal and tool see; references are resolved once the call is ready."""
    checked: "Checked | None" = None
    """The final arguments as the tool takes them; None while they are not final."""
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
    due: float = inf
    entered: bool = False
    """The body of this attempt has been entered."""
    running: "asyncio.Future[Any] | None" = None
    """Of the thread that is in its body."""
    gave_up_thread: bool = False
    rule: str = ""
    approval: ApprovalId | None = None
    root: "LiveCall | None" = None
    """Whose end it was skipped for: the first in the chain of calls that did not succeed."""

    @property
    def id(self) -> CallId:
        """Laneway's own name of the call."""
        return self.record.id

    @property
    def harmless(self) -> bool:
        """Whether running it changes nothing."""
        return self.record.effect.changes_nothing

    def move(self, state: State) -> None:
        """Go along an arrow."""
        self.state = move(self.state, state)

    def expired(self) -> None:
        """The deadline of whatever it does now has passed."""
        self.scheduler.expired(self)

    def drop(self) -> None:
        """Let go of what an ended call needs no more."""
        self.checked = None
        self.task = None
        self.successors = _NO_SUCCESSORS


class LiveTurn:
    """A turn in the hands of the scheduler."""

    __slots__ = (
        "active",
        "admitting",
        "by_name",
        "calls",
        "closed",
        "context",
        "due",
        "humans",
        "left_seconds",
        "limit_seconds",
        "names",
        "number",
        "open",
        "parked",
        "quiet",
        "referring",
        "rests",
        "scheduler",
        "seq",
        "uncertain",
        "withdrawn",
    )

    def __init__(self, number: int, scheduler: "Scheduler", *, referring: Referring) -> None:
        """Start without calls."""
        self.number = number
        self.scheduler = scheduler
        self.referring = referring
        self.context = contextvars.copy_context()
        """Of whoever submitted or resumed it: what bodies see of context variables."""
        self.calls: list[LiveCall] = []
        self.by_name: dict[str, LiveCall] = {}
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
        self.quiet: list[asyncio.Future[None]] = []
        """Who waits until nothing moves by itself any more."""

    def by_id(self, name: str) -> LiveCall | None:
        """Find a call by Laneway's own name of it."""
        turn, _, place = name.rpartition(".")
        if turn != f"t{self.number}" or not place.isdecimal() or len(place) > _DIGITS:
            return None
        at = int(place)
        found = self.calls[at - 1] if 0 < at <= len(self.calls) else None
        return found if found is not None and found.id == name else None

    @property
    def is_quiet(self) -> bool:
        """Whether nothing of the turn moves by itself any more."""
        return not self.active and not self.admitting

    def expired(self) -> None:
        """The turn as a whole has taken too long."""
        self.scheduler.turn_expired(self)
