"""What can come to a scheduler from outside, as a recording tells it."""

from enum import StrEnum, auto

import msgspec

from laneway.engine.failures import POSSIBLE_EFFECT, Told
from laneway.facts import CallEnded, CallProbed, Row
from laneway.ids import CallId
from laneway.outcomes import Code, Failure
from laneway.states import State


class Happening(StrEnum):
    """The kinds of what comes from outside, clocks and bodies included."""

    TAKEN = auto()
    """A driver took the run up, or opened it."""
    SUBMITTED = auto()
    ANSWERED = auto()
    """A human answered a question."""
    LAPSED = auto()
    """A question expired."""
    RAN_OUT = auto()
    """A call that waited for its lanes or its next attempt had no budget left."""
    RETURNED = auto()
    """A body came to its end by itself."""
    TOLD = auto()
    """Calls were told to stop: cancelled, out of time, left."""
    STOPPED = auto()
    """A body that outlived its call has stopped."""
    RESTED = auto()
    """A pause between two attempts is over."""
    PROBED = auto()
    SETTLED = auto()
    REOPENED = auto()
    LANDED = auto()
    """Another run's call, the same as this one, is over."""
    CLOSED = auto()
    """The host asks for the messages while something is unknown."""
    WORKED = auto()
    """An operator worked a lane."""
    MODE = auto()
    """The run was put into another mode."""
    HALTED = auto()
    """The run was stopped; whom that ended is told by events of their own."""
    WENT_ON = auto()
    """The stopped run was let go on."""


class Event(msgspec.Struct, kw_only=True):
    """One thing that happened, and what the engine made of it."""

    kind: Happening
    given: list[Row]
    """The facts that tell of it; more than one where several calls were told the same at once."""
    decided: list[Row] = []
    late: dict[CallId, str] = {}
    """What bodies gave back that had been told to stop."""
    withdrawn: bool = False
    """The host was closing the turn: no human was asked any more."""

    @property
    def rows(self) -> list[Row]:
        """All its facts, in their order."""
        return [*self.given, *self.decided]

    def takes_in(self, other: "Event", before: dict[int, State]) -> bool:
        """Make another event a part of this one, if both were one: several calls were told at once.

        Args:
            other: that follows at once.
            before: how calls stood before the facts.
        """
        if self.decided or not self._is_one_with(other, before):
            return False
        self.kind = other.kind
        self.given += other.given
        return True

    def _is_one_with(self, other: "Event", before: dict[int, State]) -> bool:
        last, new = self.given[-1].fact, other.given[0].fact
        if isinstance(last, CallProbed):  # Cancelling a call tells its probe, too.
            if isinstance(new, CallProbed):
                return bool(last.detail) and last.detail == new.detail
            unstarted = before.get(other.given[0].seq) is not State.RUNNING
            return (
                isinstance(new, CallEnded)
                and other.kind is Happening.TOLD
                and unstarted
                and last.detail == told_of(new).message
            )
        states = [before.get(row.seq) for row in (self.given[-1], other.given[0])]
        return (
            self.kind is other.kind is Happening.TOLD
            and State.RUNNING not in states
            and isinstance(last, CallEnded)
            and isinstance(new, CallEnded)
            and told_of(last) == told_of(new)
        )


def told_of(fact: CallEnded) -> Told:
    """Find out what a call was told that was made to stop."""
    failure = fact.outcome
    assert isinstance(failure, Failure)
    message = failure.message
    for told in (NOT_STARTED, f" {POSSIBLE_EFFECT}", STILL_RUNNING):
        message = message.removesuffix(told)
    state = State.TIMED_OUT if failure.code is Code.TIMEOUT else State.CANCELLED
    hint = "" if failure.hint == FIND_OUT else failure.hint
    return Told(state=state, code=failure.code, message=message, hint=hint)


NOT_STARTED = " It had not been started."
STILL_RUNNING = " The tool has not stopped: it may still be working."
FIND_OUT = "Find out what happened before asking again."
