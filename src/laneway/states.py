"""The life of a call: one enum, one table of arrows, one function that moves."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from laneway.errors import IllegalTransitionError


class State(StrEnum):
    """Where a call stands. A state is left only by an arrow of `ARROWS`."""

    PENDING = "PENDING"
    """Known, waits for what it depends on."""
    AWAITING_APPROVAL = "AWAITING_APPROVAL"
    """Waits for a human, and holds nothing meanwhile."""
    QUEUED = "QUEUED"
    """Judged and admitted, waits for its lanes."""
    RUNNING = "RUNNING"
    """Its body may have been entered."""
    BACKING_OFF = "BACKING_OFF"
    """Between two attempts."""
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    CANCELLED = "CANCELLED"
    UNCERTAIN = "UNCERTAIN"
    """It started and the engine did not see its end; a probe or a human may still say."""
    SKIPPED = "SKIPPED"
    """Never started, through another call's fault."""
    DENIED = "DENIED"
    """Never started, by a policy, a human or a budget."""


ARROWS: Mapping[State, frozenset[State]] = {
    State.PENDING: frozenset(
        {
            State.AWAITING_APPROVAL,
            State.QUEUED,
            State.FAILED,
            State.SKIPPED,
            State.CANCELLED,
            State.DENIED,
        }
    ),
    State.AWAITING_APPROVAL: frozenset(
        {State.PENDING, State.QUEUED, State.FAILED, State.CANCELLED, State.DENIED}
    ),
    State.QUEUED: frozenset(
        {
            State.PENDING,
            State.RUNNING,
            State.AWAITING_APPROVAL,
            State.SUCCEEDED,
            State.FAILED,
            State.CANCELLED,
            State.DENIED,
        }
    ),
    State.RUNNING: frozenset(
        {
            State.BACKING_OFF,
            State.SUCCEEDED,
            State.FAILED,
            State.TIMED_OUT,
            State.CANCELLED,
            State.UNCERTAIN,
        }
    ),
    State.BACKING_OFF: frozenset(
        {State.QUEUED, State.FAILED, State.TIMED_OUT, State.CANCELLED, State.DENIED}
    ),
    State.UNCERTAIN: frozenset({State.BACKING_OFF, State.SUCCEEDED, State.FAILED}),
    State.SUCCEEDED: frozenset(),
    State.FAILED: frozenset(),
    State.TIMED_OUT: frozenset(),
    State.CANCELLED: frozenset(),
    State.SKIPPED: frozenset(),
    State.DENIED: frozenset(),
}

# In Python 3.11 every access to a member goes through a hook of its class, 0.15 µs; whoever asks on
# the path of each call imports these.
PENDING: Final = State.PENDING
AWAITING_APPROVAL: Final = State.AWAITING_APPROVAL
QUEUED: Final = State.QUEUED
RUNNING: Final = State.RUNNING
SUCCEEDED: Final = State.SUCCEEDED
UNCERTAIN: Final = State.UNCERTAIN
DENIED: Final = State.DENIED

ENDED = frozenset(state for state, arrows in ARROWS.items() if not arrows) | {State.UNCERTAIN}
"""States that carry an outcome. UNCERTAIN alone may still be settled while its turn is open."""


def move(current: State, target: State, /) -> State:
    """Return `target`, or raise IllegalTransitionError where no arrow leads there."""
    if target not in ARROWS[current]:
        raise IllegalTransitionError(current, target)
    return target
