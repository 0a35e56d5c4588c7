"""State is a fold of facts: a live run, a resumed run and a replayed run share this code.

Reads rows in the order of their sequence numbers; gives the state of the run, its turns and its
calls. The engine decides from these views and never writes to them: it posts facts, and a view
moves when its fact is kept.
"""

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, assert_never

import msgspec

from laneway.calls import CallRecord, Edge, Referring
from laneway.claims import Claim
from laneway.errors import DamagedJournalError, IllegalTransitionError
from laneway.facts import (
    ApprovalAnswered,
    ApprovalAsked,
    AttemptEnded,
    Below,
    BudgetNeared,
    BudgetReserved,
    BudgetSettled,
    CallEnded,
    CallJoined,
    CallProbed,
    CallQueued,
    CallReopened,
    CallSettled,
    CallStarted,
    ChildEntered,
    CompensationEnded,
    CompensationStarted,
    Driver,
    Edit,
    Grant,
    GrantRevoked,
    HolderStopped,
    HostNoted,
    LaneChanged,
    LevelEntered,
    LossAccepted,
    MessageSaid,
    ModeChanged,
    ProcessStarted,
    Row,
    RunAbandoned,
    RunForked,
    RunOpened,
    RunReopened,
    RunStopped,
    RunTaken,
    Setting,
    TaskEnded,
    TaskStarted,
    TurnAbandoned,
    TurnClosed,
    TurnStreamed,
    TurnSubmitted,
    Usage,
)
from laneway.ids import ApprovalId, CallId, RunId
from laneway.outcomes import Outcome, StoppedBy, StopReason, succeeded
from laneway.states import ARROWS, ENDED, QUEUED, RUNNING, State, move

SeldomFact = (
    AttemptEnded
    | CallReopened
    | CallSettled
    | CallProbed
    | HolderStopped
    | ChildEntered
    | ProcessStarted
    | CompensationStarted
    | CompensationEnded
)
RunFact = (
    RunOpened
    | RunTaken
    | RunForked
    | LossAccepted
    | HostNoted
    | ModeChanged
    | RunStopped
    | RunReopened
    | LevelEntered
    | LaneChanged
    | BudgetReserved
    | BudgetSettled
    | BudgetNeared
    | TaskStarted
    | TaskEnded
    | GrantRevoked
    | RunAbandoned
    | TurnAbandoned
)


class CallView(msgspec.Struct, eq=False, gc=False):
    """A call, as the facts so far tell. Times are monotonic seconds of the driver."""

    record: CallRecord
    turn: int
    submitted: float
    origin: RunId | None = None
    """The run in which it was asked for, if this one is a fork of that."""
    state: State = State.PENDING
    attempt: int = 0
    token: int = 0
    outcome: Outcome | None = None
    rule: str = ""
    claims: tuple[Claim, ...] | None = None
    """The final claims, where they differ from the recorded ones."""
    approval: "ApprovalView | None" = None
    edit: Edit | None = None
    """What a human made of its arguments: this runs in place of what was asked for."""
    joined: str = ""
    """The call that it waited for last, as one that is the same: `run/t1.2`."""
    queued: float | None = None
    started: float | None = None
    ended: float | None = None
    stuck: bool = False
    """Its outcome stands, and its body has not stopped: it still holds its claims."""
    late: str = ""
    settled: Outcome | None = None
    """What an unknown effect came to, found out after the outcome was final."""
    by: str = ""
    """Who found that out."""
    probed: str = ""
    """The last answer of the tool's probe."""
    cleared: int = 0
    """How many of its attempts are known to have done nothing."""
    children: tuple[RunId, ...] = ()
    """The runs that its body entered."""
    processes: tuple[ProcessStarted, ...] = ()
    """The process groups that its body started, in all attempts."""
    since: float = 0.0
    """When it came into its state."""
    ended_wall: float = 0.0
    """Unix seconds of its outcome, or of its settlement."""
    ended_seq: int = 0
    """The fact that told of it."""
    note: str = ""
    """What the model is told beside its result."""
    stopped_by: StoppedBy | None = None
    """Who had it stopped; None if it ended by itself, or has not ended."""
    compensating: bool = False
    """Undoing it was begun, once and for all."""
    compensated: Outcome | None = None
    """What became of that."""

    @property
    def id(self) -> CallId:
        """Laneway's own name of the call."""
        return self.record.id

    @property
    def open(self) -> bool:
        """Whether the call has no outcome yet."""
        return self.outcome is None


@dataclass(slots=True)
class ApprovalView:
    """A question to a human, and the answer if there is one."""

    asked: ApprovalAsked
    answer: ApprovalAnswered | None = None
    """That by which it was decided."""
    answers: tuple[ApprovalAnswered, ...] = ()
    """All that was said, in order."""

    @property
    def counted(self) -> tuple[ApprovalAnswered, ...]:
        """Those who have granted what would run now: an edit voids what was said before it."""
        edits = [at for at, one in enumerate(self.answers) if one.edit is not None]
        return tuple(one for one in self.answers[edits[-1] if edits else 0 :] if one.granted)

    @property
    def edit(self) -> Edit | None:
        """What was last made of the arguments."""
        return next((one.edit for one in reversed(self.answers) if one.edit is not None), None)

    @property
    def needed(self) -> int:
        """How many different people must grant it."""
        return self.asked.approvers if self.edit is None else self.edit.approvers

    @property
    def digest(self) -> str:
        """What an answer binds."""
        return self.asked.digest if self.edit is None else self.edit.digest

    @property
    def id(self) -> ApprovalId:
        """The name of the question."""
        return self.asked.approval

    @property
    def call(self) -> CallId:
        """The call that waits for the answer."""
        return self.asked.call

    @property
    def arguments(self) -> Any:
        """What the call would run with, exactly; a copy."""
        return deepcopy(self.asked.arguments if self.edit is None else self.edit.arguments)

    @property
    def rule(self) -> str:
        """The rule that asks."""
        return self.asked.rule

    @property
    def reason(self) -> str:
        """Why it asks."""
        return self.asked.reason


@dataclass(slots=True)
class GrantView:
    """Leave that a human gave, with an answer, for later calls of a tool."""

    grant: Grant
    answer: ApprovalAnswered
    """That it was given with: by whom, and why."""
    revoked: GrantRevoked | None = None

    @property
    def id(self) -> ApprovalId:
        """The name of the question that it was given with."""
        return self.answer.approval

    @property
    def by(self) -> str:
        """Who gave it."""
        return self.answer.by


@dataclass(slots=True)
class BudgetView:
    """A budget, as far as it was drawn on."""

    settled: float = 0.0
    reserved: dict[str, float] = field(default_factory=dict[str, float])
    """What is set aside and not settled yet, by reservation."""
    least: dict[str, float] = field(default_factory=dict[str, float])
    """What of that is settled if nobody learns what the work took, by reservation."""

    @property
    def used(self) -> float:
        """What is gone or set aside: what a check goes by."""
        return self.settled + sum(self.reserved.values())


@dataclass(slots=True)
class TaskView:
    """A background task."""

    started: TaskStarted
    outcome: Outcome | None = None


@dataclass(slots=True)
class TurnView:
    """One answer of the model, its calls in request order."""

    number: int
    provider: str
    message: Any
    key: str
    calls: list[CallView]
    edges: tuple[Edge, ...]
    referring: Referring = Referring.KNOWN
    closed: bool = False
    usage: Usage | None = None
    refused: str = ""
    """The budget that had no room for it: nothing of it ran."""
    provisional: bool = False
    """The model is still writing it; only calls that were started early are in it."""
    abandoned: bool = False
    """It was provisional to the end, and is no part of the conversation."""


@dataclass(slots=True)
class RunView:
    """A run, as the facts so far tell."""

    run: RunId
    seq: int = 0
    mode: str = "build"
    driver: Driver | None = None
    resume_with: str = ""
    settings: Any = None
    token: int = 0
    """The highest fencing token given to a permit."""
    turns: list[TurnView] = field(default_factory=list[TurnView])
    calls: dict[CallId, CallView] = field(default_factory=dict[CallId, CallView])
    approvals: dict[ApprovalId, ApprovalView] = field(
        default_factory=dict[ApprovalId, ApprovalView]
    )
    grants: dict[ApprovalId, GrantView] = field(default_factory=dict[ApprovalId, GrantView])
    """By the question that each was given with; those that were revoked, too."""
    setting: Setting = field(default_factory=Setting)
    """What the driver brought along."""
    changes: tuple[str, ...] = ()
    """What the last taking up found changed."""
    forked: RunForked | None = None
    lossy: bool = False
    """Facts are missing behind some fact, and nobody has taken the run up since."""
    stopped: RunStopped | None = None
    """How it was stopped, until something reopens it."""
    stopped_after: int = 0
    """How many turns it had then."""
    abandoned: RunAbandoned | None = None
    """Who gave it up for good, with what its calls have done to be undone."""
    below: Below | None = None
    """Where it stands below calls of other runs."""
    task_class: str = ""
    """What kind of task it is, as the host says."""
    trace: str = ""
    """The span of the last driver that was listened to, as a W3C traceparent."""
    levels: dict[RunId, str] = field(default_factory=dict[RunId, str])
    """The runs below its calls that count in its tree, at any depth, each with its agent."""
    lane_changes: list[LaneChanged] = field(default_factory=list[LaneChanged])
    notes: list[HostNoted] = field(default_factory=list[HostNoted])
    budgets: dict[str, BudgetView] = field(default_factory=dict[str, BudgetView])
    neared: dict[str, int] = field(default_factory=dict[str, int])
    """The highest threshold of each budget that was reached, in percent."""
    reservations: int = 0
    """How often something was set aside."""
    paid_replies: set[str] = field(default_factory=set[str])
    """The provider's ids of answers that were settled when they came."""
    tasks: dict[str, TaskView] = field(default_factory=dict[str, TaskView])
    _reserved: dict[str, BudgetView] = field(default_factory=dict[str, BudgetView])
    """The budget of each open reservation."""
    by_key: dict[str, TurnView] = field(default_factory=dict[str, TurnView])
    """The first turn of each key."""
    conversation: list[TurnView | MessageSaid] = field(default_factory=list[TurnView | MessageSaid])
    """Turns and the host's own messages, in the order in which they were put down."""

    def apply(self, row: Row) -> None:  # noqa: C901, PLR0912, PLR0915 - one arm a fact, frequent ones first
        """Take in the next fact.

        Raises:
            DamagedJournalError: the row is not the next one.
        """
        if row.seq != self.seq + 1:
            raise DamagedJournalError(
                self.run, row.seq, f"fact {self.seq + 1} was expected here: facts are missing"
            )
        self.seq = row.seq
        match row.fact:
            case CallQueued() as fact:
                call = self.calls[fact.call]
                if QUEUED not in ARROWS[call.state]:
                    raise IllegalTransitionError(call.state, QUEUED)
                call.state = QUEUED
                call.since = call.queued = row.mono
                call.rule = fact.rule
                if fact.claims:
                    call.claims = fact.claims
                if call.approval is not None and call.approval.answer is None:
                    call.approval = None  # The mode that asked is another now.
                call.note = fact.note
            case CallStarted() as fact:
                call = self.calls[fact.call]
                if RUNNING not in ARROWS[call.state]:
                    raise IllegalTransitionError(call.state, RUNNING)
                call.state = RUNNING
                call.since = call.started = row.mono
                call.attempt = fact.attempt
                call.token = fact.token
                self.token = max(self.token, fact.token)
            case CallEnded() as fact:
                call, state = self.calls[fact.call], fact.state
                if state not in ARROWS[call.state]:
                    raise IllegalTransitionError(call.state, state)
                call.state = state
                call.outcome = fact.outcome
                call.since = call.ended = row.mono
                call.stuck = not fact.stopped
                call.ended_wall = row.wall
                call.ended_seq = row.seq
                call.stopped_by = fact.stopped_by
                if fact.rule:
                    call.rule = fact.rule
            case TurnSubmitted() as fact:
                self._submit(fact, row.mono)
            case TurnClosed() as fact:
                self.turns[fact.turn - 1].closed = True
            case TurnStreamed() as fact:
                self._stream(fact, row.mono)
            case CallJoined() as fact:
                self.calls[fact.call].joined = fact.leader
            case ApprovalAsked() as fact:
                self._ask(fact, row.mono)
            case ApprovalAnswered() as fact:
                self._answer(fact, row.mono)
            case MessageSaid() as fact:
                self.conversation.append(fact)
            case (
                AttemptEnded()
                | CallReopened()
                | CallSettled()
                | CallProbed()
                | HolderStopped()
                | ChildEntered()
                | ProcessStarted()
                | CompensationStarted()
                | CompensationEnded()
            ) as fact:
                self._seldom(fact, row)
            case _ as fact:
                self._of_the_run(fact)

    def _seldom(self, fact: SeldomFact, row: Row) -> None:  # noqa: C901 - one arm per fact
        """Take in what befalls few calls."""
        call, mono = self.calls[fact.call], row.mono
        match fact:
            case AttemptEnded():
                call.state = move(call.state, State.BACKING_OFF)
                call.since = mono
            case CallReopened():
                call.state = move(call.state, State.BACKING_OFF)
                call.since = mono
                call.outcome = call.ended = call.stopped_by = None
                call.cleared = call.attempt
                call.by = fact.by
            case CallSettled():
                self._settle(call, fact, mono)
                call.ended_wall, call.ended_seq = row.wall, row.seq
            case CallProbed():
                call.probed = fact.found
            case HolderStopped():
                call.stuck = False
                call.late = fact.late
            case ChildEntered():
                if fact.run not in call.children:
                    call.children = (*call.children, fact.run)
            case ProcessStarted():
                call.processes = (*call.processes, fact)
            case CompensationStarted():
                call.compensating = True
            case CompensationEnded():
                call.compensated = fact.outcome
            case _ as never:
                assert_never(never)

    def _of_the_run(self, fact: RunFact) -> None:  # noqa: C901, PLR0912, PLR0915 - one arm a fact
        """Take in what befalls the run as a whole."""
        match fact:
            case RunOpened():
                self.driver = fact.driver
                self.mode = fact.mode
                self.resume_with = fact.resume_with
                self.settings = fact.settings
                self.setting = fact.setting or self.setting
                self.below = fact.below
                self.task_class = fact.task_class
                self.trace = fact.trace
            case RunTaken():
                self.driver = fact.driver
                self.mode = fact.mode
                self.setting = fact.setting or self.setting
                self.changes = fact.changes
                self.trace = fact.trace or self.trace
                self.lossy = False
            case RunForked():
                self.forked = fact
                self.driver = None
                for call in self.calls.values():
                    call.origin = call.origin or fact.source
            case LossAccepted():
                self.lossy = True
            case HostNoted():
                self.notes.append(fact)
            case ModeChanged():
                self.mode = fact.mode
            case RunStopped():
                self.stopped, self.stopped_after = fact, len(self.turns)
            case RunReopened():
                self.stopped = None
            case RunAbandoned():
                self.abandoned = fact
            case LevelEntered():
                self.levels[fact.run] = fact.agent
            case LaneChanged():
                self.lane_changes.append(fact)
            case BudgetReserved() | BudgetSettled() | BudgetNeared():
                self._budget(fact)
            case TaskStarted():
                self.tasks[fact.task] = TaskView(fact)
            case TaskEnded():
                self.tasks[fact.task].outcome = fact.outcome
            case GrantRevoked():
                self.grants[fact.grant].revoked = fact
            case TurnAbandoned():
                turn = self.turns[fact.turn - 1]
                turn.provisional, turn.abandoned = False, True
            case _ as never:
                assert_never(never)

    def _budget(self, fact: BudgetReserved | BudgetSettled | BudgetNeared) -> None:
        match fact:
            case BudgetReserved():
                budget = self.budgets.setdefault(fact.budget, BudgetView())
                budget.reserved[fact.reservation] = fact.amount
                budget.least[fact.reservation] = fact.least
                self._reserved[fact.reservation] = budget
                self.reservations += 1
            case BudgetSettled():
                budget = self._reserved.pop(fact.reservation)
                del budget.reserved[fact.reservation], budget.least[fact.reservation]
                budget.settled += fact.amount
                if fact.reply:
                    self.paid_replies.add(fact.reply)
            case BudgetNeared():
                self.neared[fact.budget] = fact.percent

    def _stream(self, fact: TurnStreamed, mono: float) -> None:
        if len(self.turns) < fact.turn:
            self.turns.append(
                TurnView(
                    number=fact.turn,
                    provider=fact.provider,
                    message=None,
                    key="",
                    calls=[],
                    edges=(),
                    referring=fact.referring,
                    provisional=True,
                )
            )
        for record in fact.calls:
            call = CallView(record=record, turn=fact.turn, submitted=mono, since=mono)
            self.calls[record.id] = call
            self.turns[-1].calls.append(call)

    def _submit(self, fact: TurnSubmitted, mono: float) -> None:
        early: dict[CallId, CallView] = {}
        if self.turns and self.turns[-1].provisional:
            early = {call.record.id: call for call in self.turns.pop().calls}
        calls = [
            early.get(record.id)
            or CallView(record=record, turn=fact.turn, submitted=mono, since=mono)
            for record in fact.calls
        ]
        turn = TurnView(
            number=fact.turn,
            provider=fact.provider,
            message=fact.message,
            key=fact.key,
            calls=calls,
            edges=fact.edges,
            referring=fact.referring,
            usage=fact.usage,
            refused=fact.refused,
        )
        self.turns.append(turn)
        if fact.key:
            self.by_key.setdefault(fact.key, turn)
        self.conversation.append(turn)
        for call in calls:
            self.calls[call.record.id] = call

    def _ask(self, fact: ApprovalAsked, mono: float) -> None:
        call = self.calls[fact.call]
        call.state = move(call.state, State.AWAITING_APPROVAL)
        call.since = mono
        call.approval = self.approvals[fact.approval] = ApprovalView(fact)

    def _answer(self, fact: ApprovalAnswered, mono: float) -> None:
        call, approval = self.calls[fact.call], self.approvals[fact.approval]
        approval.answers = (*approval.answers, fact)
        if fact.granted and len(approval.counted) < approval.needed:
            return
        approval.answer = fact
        if fact.granted and approval.edit is not None:
            self._put_in(approval.edit, call)
        if fact.grant is not None:
            self.grants[fact.approval] = GrantView(fact.grant, fact)
        if fact.edges:
            turn = self.turns[call.turn - 1]
            turn.edges = (*turn.edges, *fact.edges)
        behind = [self.calls[edge.target] for edge in fact.edges if edge.target != fact.call]
        held = [one for one in behind if one.state is State.QUEUED]
        for one in [call, *held] if fact.waits else held:
            one.state = move(one.state, State.PENDING)
            one.since = mono

    @staticmethod
    def _put_in(edit: Edit, call: CallView) -> None:
        call.edit = edit
        call.claims = edit.claims
        call.record = msgspec.structs.replace(
            call.record, effect=edit.effect, idempotent=edit.idempotent
        )

    def _settle(self, call: CallView, fact: CallSettled, mono: float) -> None:
        if call.state is State.UNCERTAIN and not self.turns[call.turn - 1].closed:
            call.state = move(
                call.state, State.SUCCEEDED if succeeded(fact.outcome) else State.FAILED
            )
            call.outcome = fact.outcome
            call.since = call.ended = mono
        call.settled = fact.outcome
        call.by = fact.by

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the run goes on no more by itself; None while it does.

        An answer of the model that asks for nothing, with nothing said behind it, completes a run
        without a fact of its own.
        """
        if self.stopped is not None:
            return self.stopped.reason
        last = self.conversation[-1] if self.conversation else None
        answered = isinstance(last, TurnView) and last.closed and not last.calls
        return StopReason.COMPLETED if answered else None

    @property
    def open_turn(self) -> TurnView | None:
        """The turn that has not been closed, if there is one; only the last one can be."""
        if self.turns and not self.turns[-1].closed:
            return self.turns[-1]
        return None


def fold(run: RunId, rows: Iterable[Row]) -> RunView:
    """Fold all the facts of a run.

    Raises:
        DamagedJournalError: facts are missing.
        IllegalTransitionError: the rows were not written by an engine.
    """
    view = RunView(run)
    for row in rows:
        try:
            view.apply(row)
        except LookupError as error:
            raise DamagedJournalError(
                run, row.seq, f"it tells of {error}, of which no earlier fact tells"
            ) from error
    return view


def open_calls(turn: TurnView) -> list[CallView]:
    """The calls of a turn that stand in the way of its messages, in request order."""
    return [call for call in turn.calls if call.state not in ENDED]
