"""Calls and turns while they move: what the scheduler has decided, a commit ahead of the facts."""

import asyncio
from math import inf
from typing import TYPE_CHECKING, Any

from laneway.calls import CallRecord, Reason, Referring
from laneway.claims import Claim
from laneway.engine.context import Stop
from laneway.ids import ApprovalId, CallId
from laneway.outcomes import Outcome
from laneway.states import State, move

if TYPE_CHECKING:
    from laneway.engine.failures import Told
    from laneway.engine.references import Unresolved
    from laneway.engine.scheduler import Scheduler
    from laneway.engine.tools import Checked, Tool
    from laneway.lanes.requests import Request

Successors = list[tuple["LiveCall", Reason]]
_NO_SUCCESSORS: Successors = []
NEVER_ASKED = Stop()


class LiveCall:
    """A call in the hands of the scheduler.

    Invariants: `state` is never behind the journal's view and at most one commit ahead of it;
    `outcome` is set once, but for an UNCERTAIN one that is settled; `request` is held from the
    moment of asking for lanes until the body has really stopped; `waits` counts the edges that
    still lead in.
    """

    __slots__ = (
        "approval",
        "arguments",
        "attempt",
        "checked",
        "claims",
        "due",
        "entered",
        "gave_up_thread",
        "in_thread",
        "name",
        "outcome",
        "record",
        "references",
        "request",
        "rule",
        "scheduler",
        "state",
        "stop",
        "successors",
        "task",
        "told",
        "tool",
        "turn",
        "waits",
    )

    def __init__(
        self,
        record: CallRecord,
        tool: "Tool[..., Any] | None",
        turn: "LiveTurn",
        claims: tuple[Claim, ...],
    ) -> None:
        """Start PENDING."""
        self.record = record
        self.name = record.provider_id
        self.tool = tool
        self.turn = turn
        self.scheduler: Scheduler = turn.scheduler
        self.claims = claims
        """All that it takes: the recorded claims, and the lanes that the engine adds."""
        self.arguments: Any = record.arguments
        """What policy, journal and tool see; references are resolved once the call is ready."""
        self.checked: Checked | None = None
        """The final arguments as the tool takes them; None while they are not final."""
        self.references: Unresolved | None = None
        self.state = State.PENDING
        self.outcome: Outcome | None = None
        self.waits = 0
        self.successors = _NO_SUCCESSORS
        self.request: Request[LiveCall] | None = None
        self.task: asyncio.Task[None] | None = None
        self.told: Told | None = None
        """Why it is to stop, once it has been told."""
        self.stop = NEVER_ASKED
        """Seen by a tool that asks for its context; its own once the body is entered."""
        self.attempt = 0
        self.due = inf
        self.entered = False
        """The body of this attempt has been entered."""
        self.in_thread = False
        self.gave_up_thread = False
        self.rule = ""
        self.approval: ApprovalId | None = None

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
        self.references = None
        self.successors = _NO_SUCCESSORS


class LiveTurn:
    """A turn in the hands of the scheduler."""

    __slots__ = (
        "active",
        "admitting",
        "by_name",
        "calls",
        "closed",
        "due",
        "humans",
        "limit_seconds",
        "number",
        "open",
        "quiet",
        "referring",
        "scheduler",
        "seq",
        "uncertain",
    )

    def __init__(self, number: int, scheduler: "Scheduler", *, referring: Referring) -> None:
        """Start without calls."""
        self.number = number
        self.scheduler = scheduler
        self.referring = referring
        self.calls: list[LiveCall] = []
        self.by_name: dict[str, LiveCall] = {}
        self.open = 0
        """Calls without outcome."""
        self.active = 0
        """Open calls that are not PENDING."""
        self.humans = 0
        """Open calls that are AWAITING_APPROVAL."""
        self.uncertain = 0
        """UNCERTAIN calls: while there is one, what needs it stays PENDING."""
        self.admitting = True
        self.closed = False
        self.due = inf
        self.limit_seconds = inf
        self.seq = 0
        """Of the last fact that ended something in the turn, kept or on its way."""
        self.quiet: list[asyncio.Future[None]] = []
        """Who waits until nothing moves by itself any more."""

    @property
    def is_quiet(self) -> bool:
        """Whether nothing of the turn moves by itself any more."""
        return not self.active and not self.admitting

    def expired(self) -> None:
        """The turn as a whole has taken too long."""
        self.scheduler.turn_expired(self)
