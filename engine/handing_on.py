"""The order of conflicting calls, kept where a call between two others ends without having begun.

Of three calls that write one resource the graph draws only first → second → third: whoever comes
later waits for the last one before it. A second one that never starts waits for nobody, so the
third would pass the first. Such a call hands on what it waited for to those behind it. Reads and
writes the edges of live calls; called by a step when a call has ended, and when a turn is revived.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from laneway.calls import Reason
from laneway.claims import Access, Claim
from laneway.lanes.names import covers, is_lane
from laneway.states import State

if TYPE_CHECKING:
    from laneway.engine.live import LiveCall, LiveTurn, Sources


def hand_on(call: "LiveCall") -> None:
    """Let those that would come after a call which has not begun wait for those before it.

    Also those that are skipped with it: they hand it on in their turn.
    """
    behind = [
        target
        for target, reason in call.successors
        if target.outcome is None and _is_conflict(call, target, reason)
    ]
    if behind:
        if call.turn.sources is None:
            call.turn.sources = _sources(call.turn.calls)
        _draw(_before(call, call.turn.sources), behind)


def hand_on_again(turn: "LiveTurn", edges: "Iterable[tuple[LiveCall, LiveCall, Reason]]") -> None:
    """Do so for all calls that ended without having begun while an earlier driver had the turn.

    Args:
        turn: that is revived; its open calls have their edges already.
        edges: as they were recorded.
    """
    drawn = list(edges)
    turn.sources = {}
    for source, target, reason in drawn:
        turn.sources.setdefault(target, []).append((source, reason))
    for source, target, reason in drawn:
        ended = source.outcome is not None and not source.attempt
        if ended and target.outcome is None and _is_conflict(source, target, reason):
            _draw(_before(source, turn.sources, past_ended=True), [target])


def _draw(before: "Sequence[LiveCall]", behind: "Sequence[LiveCall]") -> None:
    for first in before:
        first.successors = [*first.successors, *((target, Reason.CONFLICT) for target in behind)]
        for target in behind:
            target.waits += 1
            if target.turn.sources is not None:
                target.turn.sources.setdefault(target, []).append((first, Reason.CONFLICT))


def _sources(calls: "list[LiveCall]") -> "Sources":
    found: Sources = {}
    for source in calls:
        for target, reason in source.successors:
            found.setdefault(target, []).append((source, reason))
    return found


def _before(call: "LiveCall", sources: "Sources", *, past_ended: bool = False) -> "list[LiveCall]":
    """The open calls that come before one in the order of conflicts.

    Those before a call that ended without having begun are among its sources once it has handed
    them on; where it has not, in this driver's time, they are looked for past it.
    """
    found: dict[LiveCall, None] = {}
    passed = {call}
    pending = [call]
    while pending:
        target = pending.pop()
        for source, reason in sources.get(target, ()):
            if source in passed or not _is_conflict(source, target, reason):
                continue
            passed.add(source)
            if _holds_its_place(source):
                found[source] = None
            elif past_ended and not source.attempt:
                pending.append(source)
    return list(found)


def _is_conflict(one: "LiveCall", other: "LiveCall", reason: Reason) -> bool:
    """Whether two conflict; between those that another edge links, no conflict was drawn."""
    return reason is Reason.CONFLICT or any(
        meet(first, second) for first in one.claims for second in other.claims
    )


def meet(one: Claim, other: Claim) -> bool:
    """Whether two claims keep the order of the request."""
    if is_lane(one.resource) or Access.EXCLUSIVE not in (one.access, other.access):
        return False
    return covers(one.resource, other.resource) or covers(other.resource, one.resource)


def _holds_its_place(call: "LiveCall") -> bool:
    if call.state is State.AWAITING_APPROVAL:
        return not call.scheduler.services.overtake
    return call.outcome is None or call.probing
