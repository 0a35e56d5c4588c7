"""Where the time of a run went: waiting, at work, or with a human.

Reads the rows of a run; feeds `compare`.
"""

from collections.abc import Sequence

import msgspec

from laneway.facts import Row
from laneway.ids import CallId
from laneway.journal.fold import RunView, fold
from laneway.journal.replay import Times, stepped
from laneway.outcomes import Failure, Outcome
from laneway.states import State

_WAITING = frozenset({State.PENDING, State.QUEUED, State.BACKING_OFF})


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What a call took, in seconds. While nobody drove the run, only a human can be waited for."""

    state: State
    attempts: int
    waiting_seconds: float
    """For other calls, for lanes and between attempts."""
    human_seconds: float
    """For an answer."""
    running_seconds: float
    """In its body, in all attempts."""
    outcome: Outcome | None


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """What a run took altogether; calls beside each other count each for itself."""

    turns: int
    calls: int
    attempts: int
    failures: int
    """Calls that ended otherwise than well."""
    waiting_seconds: float
    human_seconds: float
    running_seconds: float
    span_seconds: float
    """From the first fact to the last."""
    drivers: int
    approvals: int
    """Questions to humans."""
    budgets: dict[str, float]
    """What is gone of each, or set aside."""


class Spent:
    """Where the time of a run went."""

    def __init__(self, rows: Sequence[Row]) -> None:
        """Fold the facts of a run, at least one.

        Raises:
            DamagedJournalError: facts are missing.
        """
        run = rows[0].run
        fold(run, rows)  # Says what is wrong with them, if anything is.
        self.view = RunView(run)
        self.times = Times()
        self.waiting: dict[CallId, float] = {}
        self.human: dict[CallId, float] = {}
        self.running: dict[CallId, float] = {}
        since: dict[CallId, tuple[State, float, float]] = {}
        for row in rows:
            step = stepped(self.view, row, self.times.note(row))
            for move in step.moves:
                self._charge(move.call, since.get(move.call))
                since[move.call] = move.after, self.times.elapsed, self.times.idle
        for call, last in since.items():
            self._charge(call, last)

    def _charge(self, call: CallId, last: tuple[State, float, float] | None) -> None:
        """Count the time that a call has spent in the state that it leaves."""
        if last is None:
            return
        state, elapsed, idle = last
        passed = self.times.elapsed - elapsed
        driven = passed - (self.times.idle - idle)
        if state is State.AWAITING_APPROVAL:
            self.human[call] = self.human.get(call, 0.0) + passed
        elif state is State.RUNNING:
            self.running[call] = self.running.get(call, 0.0) + driven
        elif state in _WAITING:
            self.waiting[call] = self.waiting.get(call, 0.0) + driven

    def cost(self, name: CallId) -> Cost | None:
        """What a call took; None if the run has no such call."""
        call = self.view.calls.get(name)
        if call is None:
            return None
        return Cost(
            state=call.state,
            attempts=call.attempt,
            waiting_seconds=self.waiting.get(name, 0.0),
            human_seconds=self.human.get(name, 0.0),
            running_seconds=self.running.get(name, 0.0),
            outcome=call.outcome,
        )

    def total(self) -> Totals:
        """What all took together."""
        calls = self.view.calls.values()
        return Totals(
            turns=len(self.view.turns),
            calls=len(calls),
            attempts=sum(call.attempt for call in calls),
            failures=sum(isinstance(call.outcome, Failure) for call in calls),
            waiting_seconds=sum(self.waiting.values()),
            human_seconds=sum(self.human.values()),
            running_seconds=sum(self.running.values()),
            span_seconds=self.times.elapsed,
            drivers=self.times.drivers,
            approvals=len(self.view.approvals),
            budgets={name: one.used for name, one in self.view.budgets.items()},
        )
