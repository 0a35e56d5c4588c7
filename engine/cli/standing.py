"""The calls of a run that stand in lanes: those that hold their claims, and those that wait.

Reads the rows of a run; feeds `lanes`.
"""

from collections.abc import Iterable, Sequence
from heapq import merge

import msgspec

from laneway.calls import CallRecord
from laneway.claims import Claim
from laneway.facts import CallEnded, CallQueued, CallStarted, Row
from laneway.ids import CallId
from laneway.journal.fold import RunView
from laneway.states import State


class Standing(msgspec.Struct, eq=False, kw_only=True, frozen=True):
    """A call that holds its claims or waits for them."""

    run: str
    record: CallRecord
    claims: tuple[Claim, ...]
    state: State
    stuck: bool
    joined: str
    """The call, `run/t1.2`, whose success it shares if that is still under way."""
    entered: Row
    """Its last fact but an end: it was queued, or it started. Orders those of one run."""
    since_wall: float

    @property
    def name(self) -> str:
        """`run/t1.2`."""
        return f"{self.run}/{self.record.id}"

    @property
    def waiting(self) -> bool:
        """Whether it has not started; it may hold its claims for all that."""
        return self.state is State.QUEUED


def standing(view: RunView, rows: Sequence[Row]) -> list[Standing]:
    """Find the calls of a run that stand in lanes, in the order in which they came there."""
    last: dict[CallId, Row] = {}
    ended: dict[CallId, Row] = {}
    for row in rows:
        match row.fact:
            case CallQueued(call=call) | CallStarted(call=call):
                last[call] = row
            case CallEnded(call=call):
                ended[call] = row
            case _:
                pass
    found = [
        Standing(
            run=view.run,
            record=call.record,
            claims=call.claims or call.record.claims,
            state=call.state,
            stuck=call.stuck,
            joined=call.joined,
            entered=last[call.id],
            since_wall=(ended if call.stuck else last)[call.id].wall,
        )
        for call in view.calls.values()
        if call.stuck or call.state in (State.QUEUED, State.RUNNING)
    ]
    return sorted(found, key=lambda one: one.entered.seq)


def in_order(runs: Iterable[list[Standing]]) -> list[Standing]:
    """Holders, then waiters; those of several runs by the wall clock, which they share."""
    return [
        one
        for waiting in (False, True)
        for one in merge(
            *([one for one in some if one.waiting is waiting] for some in runs),
            key=lambda one: one.entered.wall,
        )
    ]
