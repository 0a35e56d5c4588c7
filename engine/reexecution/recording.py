"""A recorded run as its re-execution reads it: what came from outside, and what was made of it.

Reads rows in the order of their sequence numbers; gives them as events, each with the facts that it
brought about: a step of the scheduler is kept as a whole, so these stand right behind it. Whatever
cannot have been written by an engine is named as the place where the recording breaks.
"""

from collections.abc import Container, Sequence

from laneway.calls import Reason
from laneway.engine.failures import WITHDRAWN
from laneway.engine.handing_on import meet
from laneway.engine.reexecution.events import Event, Happening
from laneway.errors import DamagedJournalError, IllegalTransitionError
from laneway.facts import (
    ApprovalAnswered,
    ApprovalAsked,
    AttemptEnded,
    CallEnded,
    CallJoined,
    CallProbed,
    CallQueued,
    CallReopened,
    CallSettled,
    CallStarted,
    HolderStopped,
    LaneChanged,
    MessageSaid,
    ModeChanged,
    Row,
    RunOpened,
    RunReopened,
    RunStopped,
    RunTaken,
    TurnClosed,
    TurnSubmitted,
)
from laneway.ids import CallId
from laneway.journal.fold import CallView, RunView
from laneway.outcomes import Code, Failure
from laneway.policies.ledger import is_of_budget
from laneway.states import State

_SAID_OUTSIDE = {Happening.SETTLED, Happening.REOPENED, Happening.WORKED}
"""What a host may also write into a run that nobody drives."""


class Recording:
    """The events of one run."""

    def __init__(self, rows: Sequence[Row]) -> None:
        """Read rows, at least one, up to where they break."""
        self.rows = rows
        self.events: list[Event] = []
        self.before: dict[int, State] = {}
        """By sequence number: how the call stood of which the fact tells."""
        self.passing: set[int] = set()
        """Facts of calls that passed one that waited for a human, with which they conflict."""
        self.judged_anew: set[int] = set()
        """Facts of what became of calls when their run was put into another mode."""
        self.retried: set[int] = set()
        """Facts of attempts after which the engine meant to make another."""
        self.broken: tuple[Row, str] | None = None
        """The first fact that no engine can have written there, and why."""
        self._view = RunView(rows[0].run)
        self._started: set[CallId] = set()
        """By the driver of the moment."""
        self._backing_off: set[CallId] = set()
        """Those whose attempt has ended in this driver's time."""
        self._final: set[CallId] = set()
        """UNCERTAIN calls whose turn the host was closing."""
        self._last: Row | None = None
        for at, row in enumerate(rows):
            try:
                self._read(row)
                self._view.apply(row)
            except (IllegalTransitionError, DamagedJournalError, LookupError) as error:
                told = f"it tells of {error}" if isinstance(error, LookupError) else str(error)
                self.broken = (row, told)
                self.rows = rows[:at]
                self._forget(row)
                break
            if not isinstance(row.fact, MessageSaid):  # It tells the model of what comes next.
                self._last = row
        self._drop_trailing()

    def _read(self, row: Row) -> None:
        name: CallId | None = getattr(row.fact, "call", None)
        call = None if name is None else self._view.calls.get(name)
        if call is not None:
            self.before[row.seq] = call.state
        happening = self._happening(row, call)
        if happening is Happening.TAKEN:
            self._drop_trailing()
        if isinstance(happening, Happening):
            event = Event(kind=happening, given=[row])
            last = self.events[-1] if self.events else None
            if last is None or not last.takes_in(event, self.before):
                self.events.append(event)
        elif happening and self.events:
            self.events[-1].decided.append(row)
            if self.events[-1].kind is Happening.MODE:
                self.judged_anew.add(row.seq)

    def _forget(self, row: Row) -> None:
        """Take a fact out again that cannot be."""
        last = self.events[-1]
        last.given = [one for one in last.given if one is not row]
        last.decided = [one for one in last.decided if one is not row]
        if not last.given:
            self.events.pop()

    def _drop_trailing(self) -> None:
        """Leave out what was said of a run when its driver was gone: the next finds it said."""
        while self.events and self.events[-1].kind in _SAID_OUTSIDE and not self.events[-1].decided:
            self.events.pop()

    def _happening(self, row: Row, call: CallView | None) -> Happening | bool:  # noqa: C901, PLR0911, PLR0912 - one arm a fact
        """Say what came from outside by a fact; else whether the engine has decided it."""
        match row.fact:
            case RunOpened() | RunTaken():
                self._started.clear()
                self._backing_off.clear()
                self._final.clear()
                return Happening.TAKEN
            case TurnSubmitted():
                return Happening.SUBMITTED
            case ApprovalAnswered():
                return Happening.ANSWERED
            case LaneChanged():
                return Happening.WORKED
            case ModeChanged():
                return Happening.MODE
            case RunStopped():
                return Happening.HALTED
            case RunReopened():
                return Happening.WENT_ON
            case CallStarted(call=name):
                self._started.add(name)
                return True
            case CallJoined():
                return True
            case CallQueued(call=name):
                self._note_passing(row, call)
                rested = name in self._backing_off
                self._backing_off.discard(name)
                return Happening.RESTED if rested else True
            case ApprovalAsked():
                self._note_passing(row, call)
                return True
            case CallEnded() as fact if call is not None:
                return self._ended(fact, call)
            case AttemptEnded(call=name):
                if name not in self._started:
                    return True
                self._backing_off.add(name)
                self.retried.add(row.seq)
                return Happening.RETURNED
            case HolderStopped(call=name, late=late):
                return self._stopped(name, late, call)
            case CallProbed():
                return Happening.PROBED
            case CallSettled() as fact if call is not None:
                moves = call.state is State.UNCERTAIN and not self._view.turns[call.turn - 1].closed
                return self._follows_probe(fact.call) or (moves and Happening.SETTLED)
            case CallReopened() as fact:
                return self._follows_probe(fact.call) or Happening.REOPENED
            case TurnClosed(turn=number):
                return self._closing(number) or True
            case _:
                return False

    def _ended(self, fact: CallEnded, call: CallView) -> Happening | bool:
        running = call.state is State.RUNNING
        failure = fact.outcome if isinstance(fact.outcome, Failure) else None
        match fact.state:
            case State.CANCELLED | State.TIMED_OUT:
                if call.state is State.PENDING and failure and WITHDRAWN.message in failure.message:
                    self.events[-1].withdrawn = True
                    return True
                return Happening.TOLD
            case State.SKIPPED:
                cause = self._view.calls.get(failure.cause) if failure and failure.cause else None
                unknown = cause is not None and cause.state is State.UNCERTAIN
                return (unknown and self._closing(call.turn)) or True
            case State.DENIED if call.state in (State.QUEUED, State.BACKING_OFF) and is_of_budget(
                fact.rule
            ):
                return Happening.RAN_OUT
            case State.DENIED:
                waited = call.state is State.AWAITING_APPROVAL
                lapsed = waited and failure and failure.code is Code.APPROVAL_EXPIRED
                return Happening.LAPSED if lapsed else True
            case State.SUCCEEDED if not running:
                elsewhere = call.joined and not is_of(call.joined, self._view.run, self._view.calls)
                return Happening.LANDED if elsewhere else True
            case _:
                return Happening.RETURNED if running and fact.call in self._started else True

    def _stopped(self, name: CallId, late: str, call: CallView | None) -> Happening | bool:
        if call is None or not call.stuck:
            if self.events:  # It was told to stop, and gave something back nevertheless.
                self.events[-1].late[name] = late
            return False
        return Happening.STOPPED if name in self._started else True

    def _follows_probe(self, name: CallId) -> bool:
        last = self._last.fact if self._last is not None else None
        return isinstance(last, CallProbed) and last.call == name

    def _closing(self, number: int) -> Happening | None:
        """The host has a turn closed in which something is unknown."""
        unknown = {
            call.id for call in self._view.turns[number - 1].calls if call.state is State.UNCERTAIN
        }
        if unknown <= self._final:
            return None
        self._final |= unknown
        return Happening.CLOSED

    def _note_passing(self, row: Row, call: CallView | None) -> None:
        if call is None or call.state is not State.PENDING:
            return
        edges = self._view.turns[call.turn - 1].edges
        pending, seen = [call], {call.id}
        while pending:
            behind = pending.pop()
            for edge in edges:
                source = self._view.calls[edge.source]
                if edge.target != behind.id or source.id in seen:
                    continue
                if edge.reason is not Reason.CONFLICT and not _meet(source, behind):
                    continue
                seen.add(source.id)
                if source.open and source.approval is not None:
                    self.passing.add(row.seq)
                elif not source.open and not source.attempt:
                    pending.append(source)  # It handed on what it waited for.


def _meet(one: CallView, other: CallView) -> bool:
    return any(
        meet(first, second)
        for first in one.claims or one.record.claims
        for second in other.claims or other.record.claims
    )


def is_of(leader: str, run: str, calls: Container[str]) -> bool:
    """Whether a call that another one was left to is of the same run."""
    return leader.startswith(f"{run}/") and leader.removeprefix(f"{run}/") in calls
