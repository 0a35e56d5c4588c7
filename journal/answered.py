"""What the journal answers, as data: of a call, why; of a run, what it did, and where it stands.

Made by `answers`; the engine adds who held the lanes, the command line puts it into words. Walls
are Unix seconds; a call of the same run is named `t1.2`, one of another run `run/t1.2`.
"""

from typing import Any

import msgspec

from laneway.facts import Driver
from laneway.ids import ApprovalId, CallId, RunId
from laneway.outcomes import Code, Happened, Outcome
from laneway.states import State


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """A question to a human, and who answered it."""

    approval: ApprovalId
    call: CallId
    tool: str
    arguments: Any
    """What the answer is bound to, exactly."""
    rule: str
    """The rule that asks."""
    reason: str
    asked_wall: float
    expires_wall: float
    granted: bool | None
    """None where nobody has answered."""
    by: str
    said: str
    """The reason that the answer gives."""
    waited_seconds: float | None
    edited: Any = None
    """What a human made of the arguments, and what the answer is bound to then."""
    approvers: int = 1
    """How many different people must grant it."""
    granted_by: tuple[str, ...] = ()
    """Those who have."""
    holds_for: str = ""
    """`run` or `pattern`, where it was granted for later calls, too."""


class Dependency(msgspec.Struct, frozen=True, kw_only=True):
    """A call that had to end first."""

    call: CallId
    tool: str
    reason: str
    """needs, after, data or conflict."""
    detail: str
    """The resource of a conflict, the path of a reference."""
    state: State
    ended_wall: float | None
    last: bool
    """It was the last of them to end: what the waiting came down to."""


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A call that held a claim in the way of one that waited."""

    call: str
    """`t1.2`, or `run/t1.2` of another run."""
    tool: str
    resource: str
    """What it held."""
    wanted: str
    """What the other wanted of it."""
    seconds: float
    """How long both were so."""
    holding: bool
    """It holds it still."""


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """A call in a state that is neither running nor an end."""

    state: State
    began_wall: float
    ended_wall: float | None
    """None while it lasts."""
    seconds: float
    lost: bool = False
    """It ends where its driver was lost: what is missing until the next is nobody's time."""
    dependencies: tuple[Dependency, ...] = ()
    approval: ApprovalId | None = None
    claims: tuple[str, ...] = ()
    same_as: tuple[str, ...] = ()
    """Calls that are the same, and under way: their success was waited for."""
    holders: tuple[Holder, ...] = ()
    paused: tuple[str, ...] = ()
    """Lanes among its claims that an operator had paused meanwhile."""
    cause: str = ""
    """Why an attempt was not the last."""
    delay_seconds: float = 0.0


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """One entry into the body."""

    attempt: int
    token: int
    """The fencing token of its permit."""
    began_wall: float
    seconds: float
    """Until its end; where its driver was lost, until it was last heard of."""
    ended: bool
    cause: str
    """Why another may follow; empty for the last."""


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A call in a chain of failures."""

    call: CallId
    tool: str
    state: State
    code: Code


class CallAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Why a call ran or did not, what it waited for, and what came of it."""

    run: RunId
    call: CallId
    name: str
    """The provider's id."""
    tool: str
    arguments: Any
    effect: str
    idempotent: bool
    parent: CallId | None
    """The call that it is part of."""
    turn: int
    state: State
    decision: str
    """allow, ask or deny; empty where it was never judged."""
    rule: str
    """The rule that said so."""
    approvals: tuple[Approval, ...]
    waits: tuple[Wait, ...]
    """In order, running left out."""
    attempts: tuple[Tried, ...]
    ended_wall: float | None
    outcome: Outcome | None
    chain: tuple[Link, ...]
    """The calls whose failures it ended for, the root last."""
    happened: Happened | None
    """What may have happened in the world: ALL of a success, None while it is open."""
    probes: tuple[str, ...]
    """What the tool's probe answered, each time."""
    reopened_by: tuple[str, ...]
    """Who found out that it had done nothing, so that it ran again."""
    settled: Outcome | None
    settled_by: str
    stuck: bool
    """Its outcome stands, and its body has not stopped."""
    late: str
    """What a body that outlived the call still gave."""
    children: tuple[RunId, ...]
    """The runs that its body entered."""
    processes: tuple[int, ...]
    """The process groups that its body started."""


class Drove(msgspec.Struct, frozen=True, kw_only=True):
    """A driver's time with the run."""

    driver: Driver | None
    """None for whoever forked the run, or gave up a damaged part."""
    took_wall: float
    last_wall: float
    facts: int
    changes: tuple[str, ...]
    """What was not as the driver before had it."""


class TurnDone(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of the model."""

    turn: int
    calls: int
    submitted_wall: float
    closed_wall: float | None


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """What is gone of a budget."""

    settled: float
    reserved: float


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What the run has cost."""

    turns: int
    calls: int
    attempts: int
    driven_seconds: float
    """The drivers' times together."""
    body_seconds: float
    """All attempts together, side by side or not."""
    human_seconds: float
    """All waits for an approval together."""
    budgets: dict[str, Budget]


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """A call in a list, in a line."""

    call: CallId
    tool: str
    arguments: Any
    effect: str
    state: State
    code: Code | None = None
    message: str = ""
    happened: Happened | None = None
    by: str = ""
    """Who found out what it came to, where that was somebody."""
    stuck: bool = False
    waits_for: tuple[str, ...] = ()
    """Of an unfinished one: calls, a question, lanes, or whoever knows what happened."""
    at_wall: float = 0.0
    """When it came into this state."""


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that were damaged, and given up."""

    after: int
    """The last fact before them."""
    facts: int
    by: str
    wall: float


class RunAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a run did, where it stands, and what is known of its effects."""

    run: RunId
    mode: str
    facts: int
    opened_wall: float
    touched_wall: float
    """Of the last fact."""
    forked_from: RunId | None
    forked_at: int
    """The last fact that both runs share."""
    standing: str
    """`empty`: no turn yet; `open`: a turn has not ended; `answered`: the model's last answer asked
    for nothing; `done`: all that was asked for has ended, and no other answer came."""
    stopped: str
    """Why it goes on no more by itself: the reason, or empty while it does."""
    stopped_because: str
    open_turn: int | None
    spent: Spent
    states: dict[str, int]
    """How many calls are in each state."""
    tools: dict[str, int]
    """How often each tool was asked for."""
    turns: tuple[TurnDone, ...]
    confirmed: tuple[Told, ...]
    """Effects that succeeded."""
    unknown: tuple[Told, ...]
    """Calls of which it is not known what they did to the world, or that did it in part."""
    unfinished: tuple[Told, ...]
    """Calls without a final outcome, and bodies that have not stopped."""
    failed: tuple[Told, ...]
    """Calls that ended without success, and without doubt."""
    approvals: tuple[Approval, ...]
    drivers: tuple[Drove, ...]
    lost: tuple[Lost, ...]
    lanes_changed: tuple[str, ...]
    tasks: dict[str, str]
    """Background tasks: how each ended, or `open`."""
    notes: tuple[Any, ...]
    """The host's."""
