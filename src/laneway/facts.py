"""The rows of the journal. What is not a fact did not happen.

Facts are in the past tense, frozen, and complete: folding a run's facts in the order of their
sequence numbers gives its state, live, resumed and replayed alike. Fields may be added with a
default; a field's meaning never changes.
"""

from typing import Any

import msgspec

from laneway.calls import CallRecord, Edge, Referring
from laneway.claims import Claim
from laneway.effects import Effect
from laneway.ids import ApprovalId, CallId, RunId
from laneway.outcomes import Code, Outcome, StoppedBy, StopReason
from laneway.states import State


class Recorded(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="fact", omit_defaults=True, gc=False
):
    """What all facts share: the tag that names their class on disk.

    Their values are JSON and hold no cycles, so the garbage collector need not look at them.
    """


class Driver(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The process that drives a run, told apart from any other, past or present."""

    host: str
    boot: str
    """The kernel's boot id: the same host after a restart is another driver."""
    pid: int
    started: str
    """The start time of the process as the kernel counts it: pids are reused."""
    namespace: str = ""
    """The pid namespace, in which alone the pid means something."""


class Setting(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a driver brought along that decides what becomes of calls."""

    tools: dict[str, str] = {}
    """The version of each tool, by name: a digest of its schema and declarations."""
    policy: str = ""
    """A digest of the rules; empty for a policy of the host's own making."""
    lanes: dict[str, int] = {}
    """The limits that the host gave, by resource."""
    budgets: dict[str, float] = {}
    """The limits of budgets that the host gave, by budget; defaults are not told."""
    clock: str = ""
    """What the budget of seconds is counted by, and how exactly."""


class Below(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a run stands below the bodies of other runs' calls."""

    root: RunId
    """The run at the top of the tree."""
    chain: tuple[str, ...]
    """The levels above it, the root first: names of agents, or of runs."""
    agents: tuple[str, ...] = ()
    """The named agents among them, and its own."""


class RunOpened(Recorded, frozen=True, kw_only=True, tag="run_opened"):
    """The run was created, by this driver, to be taken up by `resume_with` after a crash."""

    run: RunId
    driver: Driver
    mode: str = "build"
    resume_with: str = ""
    """Importable name of a host's function that carries the run on, or empty."""
    settings: Any = None
    """What that function wants to know, as JSON."""
    setting: Setting | None = None
    below: Below | None = None
    """None for a run at the top."""
    task_class: str = ""
    """What kind of task it is, as the host says: measurements go by it."""
    trace: str = ""
    """Its span as a W3C traceparent, where somebody listened."""


class RunTaken(Recorded, frozen=True, kw_only=True, tag="run_taken"):
    """A later driver took the run up; whatever ran before has an end or is uncertain."""

    driver: Driver
    mode: str = "build"
    setting: Setting | None = None
    """None where nothing of it has changed since the driver before."""
    changes: tuple[str, ...] = ()
    """What has changed since, in a sentence each."""
    trace: str = ""
    """The span of this driver's time as a W3C traceparent, where somebody listened."""


class RunForked(Recorded, frozen=True, kw_only=True, tag="run_forked"):
    """All facts before this one were copied from another run; here the two part."""

    source: RunId
    seq: int
    """The last fact of the source that both share."""


class LossAccepted(Recorded, frozen=True, kw_only=True, tag="loss_accepted"):
    """What stood behind the fact before this one was damaged, and a human gave it up.

    Calls that are open here may have done anything since.
    """

    lost: int
    """Facts that were given up, whole or damaged."""
    by: str = ""


class HostNoted(Recorded, frozen=True, kw_only=True, tag="host_noted"):
    """The host wrote something down for whoever reads the journal; the model never sees it."""

    note: Any


class ModeChanged(Recorded, frozen=True, kw_only=True, tag="mode_changed"):
    """The run was put into another mode; what becomes of calls by that is told by other facts."""

    mode: str
    by: str = ""


class RunStopped(Recorded, frozen=True, kw_only=True, tag="run_stopped"):
    """The run goes on no more by itself; a later stop stands in the place of an earlier one."""

    reason: StopReason
    detail: str = ""
    by: str = ""
    """Who stopped it; empty for the engine itself."""
    code: Code | None = None
    """With which calls that are asked for meanwhile are refused; None where such an answer of the
    model lets the run go on."""
    resumable: bool = True
    """Whether it goes on once what it waits for is there; else only a person reopens it."""
    reserved_turns: int = 0
    """Answers of the model that were kept back for a last summary."""
    reserved_tokens: int = 0
    budget: str = ""
    """That has ended, where the engine saw that; empty where somebody else says so."""


class RunReopened(Recorded, frozen=True, kw_only=True, tag="run_reopened"):
    """The run that had stopped goes on."""

    through: str
    """`submit`, `say`, `budget` or `resume`: what reopened it."""
    by: str = ""


class LaneChanged(Recorded, frozen=True, kw_only=True, tag="lane_changed"):
    """An operator worked a lane while the run was open: what waits there waits for that, too."""

    lane: str
    change: str
    """`paused`, `resumed`, `draining`, `cleared`, `resized` or `reset`."""
    value: int = 0
    """The new limit of a lane that was resized; the new generation of one that was reset."""


class MessageSaid(Recorded, frozen=True, kw_only=True, tag="message_said"):
    """The host put a message of its own into the conversation."""

    message: Any
    """A text, or a message in the provider's form."""
    noted: bool = False
    """It is a note of Laneway's own: no user has said anything."""


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the request behind an answer took, as its provider told."""

    input_tokens: int = 0
    """All of the input, cached parts included."""
    output_tokens: int = 0
    cost: float = 0.0
    """US dollars, to a millionth; 0 where no budget asked for it."""
    price: str = ""
    """Where the price came from, with version and date."""


class TurnSubmitted(Recorded, frozen=True, kw_only=True, tag="turn_submitted"):
    """The model answered: all its calls are PENDING, with the edges between them."""

    turn: int
    provider: str
    message: Any
    """The assistant message in the provider's form, ids repaired."""
    calls: tuple[CallRecord, ...] = ()
    edges: tuple[Edge, ...] = ()
    key: str = ""
    """The provider's message id or the host's key: the same reply is one turn."""
    referring: Referring = Referring.KNOWN
    usage: Usage | None = None
    """None where nothing was told, or a request of the host's has settled it."""
    refused: str = ""
    """The budget that had no room for the turn, so that nothing of it ran; it is not counted."""


class TurnStreamed(Recorded, frozen=True, kw_only=True, tag="turn_streamed"):
    """Calls of an answer that the model is still writing: they change nothing, and start early.

    The turn is provisional until `TurnSubmitted` tells all of it, these calls included. May come
    several times.
    """

    turn: int
    provider: str
    calls: tuple[CallRecord, ...]
    referring: Referring = Referring.KNOWN


class TurnAbandoned(Recorded, frozen=True, kw_only=True, tag="turn_abandoned"):
    """The answer of a provisional turn never ended well: it is no part of the conversation."""

    turn: int
    reason: str = ""


class TurnClosed(Recorded, frozen=True, kw_only=True, tag="turn_closed"):
    """Every outcome of the turn is final; its messages may be shown."""

    turn: int


class Edit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a human made of a call's arguments, checked again from the start: this is what runs."""

    arguments: Any
    """Canonical, without secrets; no text in them refers to a result."""
    digest: str
    """What the answer binds, as that of the question: over these arguments and claims."""
    claims: tuple[Claim, ...] = ()
    effect: Effect = Effect.EXTERNAL
    idempotent: bool = False
    approvers: int = 1
    """How many people must grant it."""


class Grant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Leave for later calls of one tool in one version, given with the answer to a question."""

    tool: str
    tool_version: str
    pattern: Any = None
    """Path → pattern over the arguments, as rules write them; None for whatever arguments."""


class ApprovalAsked(Recorded, frozen=True, kw_only=True, tag="approval_asked"):
    """A human is asked about exactly these arguments: the call is AWAITING_APPROVAL."""

    call: CallId
    approval: ApprovalId
    digest: str
    """SHA-256 over tool, tool version, canonical arguments and claims."""
    arguments: Any
    rule: str
    expires_wall: float
    """Unix seconds; the question ends then, by this host's wall clock."""
    reason: str = ""
    """Why the rule asks, for the human."""
    approvers: int = 1
    """How many different people must grant it."""
    each_time: bool = False
    """A rule or a mode wants each such call to be asked about: no answer holds for later ones."""


class ApprovalAnswered(Recorded, frozen=True, kw_only=True, tag="approval_answered"):
    """A human answered. What follows for the call is a fact of its own."""

    call: CallId
    approval: ApprovalId
    granted: bool
    by: str = ""
    reason: str = ""
    edit: Edit | None = None
    """Granted with other arguments; the answers that others gave before are void."""
    edges: tuple[Edge, ...] = ()
    """Conflicts that the other arguments bring: of these calls those that were QUEUED are PENDING
    once more."""
    waits: bool = False
    """It is the last answer that was needed, and calls of the turn come first: the call is PENDING
    once more."""
    grant: Grant | None = None
    """It holds for later calls, too."""
    sent: int = 0
    """Its number in the journal's inbox, if it was not given to the driver itself."""


class GrantRevoked(Recorded, frozen=True, kw_only=True, tag="grant_revoked"):
    """What was granted with an answer for later calls holds no more."""

    grant: ApprovalId
    """The question that it was given with."""
    by: str = ""
    reason: str = ""


class CallQueued(Recorded, frozen=True, kw_only=True, tag="call_queued"):
    """The call is QUEUED: nothing it depends on is open, and this rule let it pass."""

    call: CallId
    rule: str
    claims: tuple[Claim, ...] = ()
    """The final claims, where references narrowed the recorded ones."""
    note: str = ""
    """What the model is told beside its result: that it begins to go round in circles."""


class CallJoined(Recorded, frozen=True, kw_only=True, tag="call_joined"):
    """The call stays QUEUED for one that is the same and under way, and takes no lane."""

    call: CallId
    leader: str
    """The call that it waits for, as `run/t1.2`."""


class CallStarted(Recorded, frozen=True, kw_only=True, tag="call_started"):
    """The call is RUNNING. Written before the body is touched, so that a crash leaves a trace."""

    call: CallId
    attempt: int
    token: int
    """The fencing token of its permit: higher than any that this run was given before."""


class ChildEntered(Recorded, frozen=True, kw_only=True, tag="child_entered"):
    """The body of the call entered a run of its own."""

    call: CallId
    run: RunId


class LevelEntered(Recorded, frozen=True, kw_only=True, tag="level_entered"):
    """Below a call of this run, at whatever depth, a run was begun that counts in its tree."""

    run: RunId
    agent: str = ""
    """The named agent that works in it."""


class ProcessStarted(Recorded, frozen=True, kw_only=True, tag="process_started"):
    """The body of the call has a process group of its own; it does nothing before this is kept."""

    call: CallId
    group: int
    """The pid of its leader, which is the id of the group."""
    started: str
    """The start time of the leader as the kernel counts it."""


class AttemptEnded(Recorded, frozen=True, kw_only=True, tag="attempt_ended"):
    """An attempt is over and another may follow: the call is BACKING_OFF."""

    call: CallId
    attempt: int
    cause: str
    delay_seconds: float = 0.0


class CallEnded(Recorded, frozen=True, kw_only=True, tag="call_ended"):
    """The call has its one outcome, in this state."""

    call: CallId
    state: State
    outcome: Outcome
    stopped: bool = True
    """Whether its body has really stopped; if not, its claims stay held until HolderStopped."""
    rule: str = ""
    """The rule that denied it."""
    stopped_by: StoppedBy | None = None
    """Who had it stopped; None for a call that ended by itself."""


class RunAbandoned(Recorded, frozen=True, kw_only=True, tag="run_abandoned"):
    """The run was given up for good, and what its calls have done is to be undone."""

    by: str = ""
    reason: str = ""


class CompensationStarted(Recorded, frozen=True, kw_only=True, tag="compensation_started"):
    """What a call has done is being undone; written before the compensation is entered."""

    call: CallId


class CompensationEnded(Recorded, frozen=True, kw_only=True, tag="compensation_ended"):
    """What became of undoing a call; it is not tried again."""

    call: CallId
    outcome: Outcome


class HolderStopped(Recorded, frozen=True, kw_only=True, tag="holder_stopped"):
    """A body that outlived its call has stopped; what it still returned is kept, unused."""

    call: CallId
    late: str = ""
    """Its late value or error, as text."""


class CallSettled(Recorded, frozen=True, kw_only=True, tag="call_settled"):
    """Somebody found out what an unknown effect came to."""

    call: CallId
    outcome: Outcome
    by: str = ""


class CallProbed(Recorded, frozen=True, kw_only=True, tag="call_probed"):
    """The probe of a tool was asked what became of a call under its idempotency key.

    What follows from the answer is a fact of its own.
    """

    call: CallId
    found: str
    """`happened`, `did not happen` or `unknown`."""
    detail: str = ""


class CallReopened(Recorded, frozen=True, kw_only=True, tag="call_reopened"):
    """An UNCERTAIN call did nothing, as somebody found out: it is BACKING_OFF and runs again."""

    call: CallId
    by: str = ""


class BudgetReserved(Recorded, frozen=True, kw_only=True, tag="budget_reserved"):
    """A part of a budget is set aside for work that is about to be submitted."""

    budget: str
    amount: float
    reservation: str
    """Unique in the run."""
    call: CallId | None = None
    least: float = 0.0
    """What it is settled with if nobody learns what the work took."""
    price: str = ""
    """Where the price of a cost came from, with version and date."""


class BudgetSettled(Recorded, frozen=True, kw_only=True, tag="budget_settled"):
    """The work of a reservation is over, and this is what it took; the rest is free again."""

    reservation: str
    amount: float
    reply: str = ""
    """The provider's id of the answer that it paid for: no turn is charged for that again."""


class BudgetNeared(Recorded, frozen=True, kw_only=True, tag="budget_neared"):
    """A threshold of a budget was reached, for the first time."""

    budget: str
    percent: int
    used: float
    """Settled and set aside, in the budget's unit; US dollars for a cost."""
    limit: float


class TaskStarted(Recorded, frozen=True, kw_only=True, tag="task_started"):
    """A background task was begun, which goes on beside the conversation."""

    task: str
    call: CallId
    run: RunId
    """The run in which it does its work."""


class TaskEnded(Recorded, frozen=True, kw_only=True, tag="task_ended"):
    """A background task has its outcome."""

    task: str
    outcome: Outcome


Fact = (
    RunOpened
    | RunTaken
    | RunForked
    | LossAccepted
    | HostNoted
    | ModeChanged
    | RunStopped
    | RunReopened
    | LaneChanged
    | MessageSaid
    | TurnStreamed
    | TurnSubmitted
    | TurnAbandoned
    | TurnClosed
    | ApprovalAsked
    | ApprovalAnswered
    | GrantRevoked
    | CallQueued
    | CallJoined
    | CallStarted
    | ChildEntered
    | LevelEntered
    | ProcessStarted
    | AttemptEnded
    | CallEnded
    | RunAbandoned
    | CompensationStarted
    | CompensationEnded
    | HolderStopped
    | CallProbed
    | CallSettled
    | CallReopened
    | BudgetReserved
    | BudgetSettled
    | BudgetNeared
    | TaskStarted
    | TaskEnded
)


class Row(msgspec.Struct, frozen=True, gc=False):
    """A fact in its place."""

    run: RunId
    seq: int
    """From 1, without gaps, per run: the only order there is."""
    wall: float
    """Unix seconds, for people."""
    mono: float
    """Monotonic seconds of the driver, for durations within one driver's time."""
    fact: Fact
