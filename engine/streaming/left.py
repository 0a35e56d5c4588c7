"""A turn that was still being written when its process died: nobody can know how it would end.

Reads the view of a run that is taken up; gives the facts by which such a turn is abandoned. Its
calls change nothing, so none of them is left uncertain.
"""

from collections.abc import Collection

from laneway.engine.failures import Told, stopped
from laneway.facts import CallEnded, Fact, TurnAbandoned, TurnClosed
from laneway.ids import CallId
from laneway.journal.fold import RunView, TurnView
from laneway.outcomes import Code
from laneway.states import State


def abandoned(why: str) -> Told:
    """Why a call was stopped that had been started early."""
    return Told(
        state=State.CANCELLED,
        code=Code.STREAM_ABANDONED,
        message=f"The call was cancelled: {why}, so the answer that it was part of does not count.",
    )


DIED = abandoned("the process ended while the answer was still being written")


def half_written(view: RunView) -> int:
    """The number of the turn that was still being written, or was being given up; 0 for none."""
    turn = view.open_turn
    return turn.number if turn is not None and (turn.provisional or turn.abandoned) else 0


def given_up(turn: TurnView, held: Collection[CallId]) -> list[Fact]:
    """Abandon a turn whose process has died.

    Args:
        turn: that is still provisional, or being given up.
        held: calls of which processes are still running, and hold their claims.
    """
    facts: list[Fact] = []
    if not turn.abandoned:
        facts.append(TurnAbandoned(turn=turn.number, reason=DIED.message))
    for call in turn.calls:
        if call.outcome is None:
            running = call.id in held
            failure = stopped(
                DIED,
                effect=call.record.effect,
                entered=call.attempt > call.cleared,
                still_running=running,
            )
            facts.append(
                CallEnded(call=call.id, state=State.CANCELLED, outcome=failure, stopped=not running)
            )
    return [*facts, TurnClosed(turn=turn.number)]
