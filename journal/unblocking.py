"""What an answer would set free: the calls of a turn that wait for one call, and for nothing else.

Reads the view of a run; feeds whoever shows a question to a human.
"""

from laneway.calls import Edge
from laneway.ids import CallId
from laneway.journal.fold import RunView
from laneway.states import State


def unblocks(view: RunView, call: CallId, /) -> tuple[CallId, ...]:
    """Name the calls that wait for nothing but this one, directly or behind one another.

    Args:
        view: of the run.
        call: that has not ended.

    Returns:
        Their ids, in request order, whatever the reason they wait: needs, data, order or conflict.
    """
    turn = view.turns[view.calls[call].turn - 1]
    sources: dict[CallId, set[CallId]] = {}
    targets: dict[CallId, list[CallId]] = {}
    for edge in turn.edges:
        if _holds_up(view, edge):
            sources.setdefault(edge.target, set()).add(edge.source)
            targets.setdefault(edge.source, []).append(edge.target)
    found, pending = {call}, [call]
    while pending:
        source = pending.pop()
        for target in targets.get(source, ()):
            sources[target].discard(source)
            if not sources[target] and target not in found:
                found.add(target)
                pending.append(target)
    return tuple(one.id for one in turn.calls if one.id in found and one.id != call)


def _holds_up(view: RunView, edge: Edge) -> bool:
    source, target = view.calls[edge.source], view.calls[edge.target]
    open_ = source.open or (source.state is State.UNCERTAIN and edge.reason.carries_failure)
    return open_ and target.state is State.PENDING
