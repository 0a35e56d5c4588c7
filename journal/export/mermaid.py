"""The graph of each turn as a Mermaid flowchart: the state of each call is its class.

Reads the fold of a run. A page that shows it has limits of its own (500 edges, 50,000 characters):
of a long run, draw one turn.
"""

from collections.abc import Iterator
from itertools import pairwise

from laneway.calls import Edge, Reason
from laneway.journal.export.escaping import node, quoted
from laneway.journal.fold import CallView, RunView, TurnView
from laneway.outcomes import Failure
from laneway.states import State

STYLES = {
    State.PENDING: "fill:#f2f2f2,stroke:#999999",
    State.AWAITING_APPROVAL: "fill:#fff3bf,stroke:#e67700",
    State.QUEUED: "fill:#f2f2f2,stroke:#1971c2",
    State.RUNNING: "fill:#d0ebff,stroke:#1971c2",
    State.BACKING_OFF: "fill:#fff3bf,stroke:#1971c2",
    State.SUCCEEDED: "fill:#d3f9d8,stroke:#2b8a3e",
    State.FAILED: "fill:#ffe3e3,stroke:#c92a2a",
    State.TIMED_OUT: "fill:#ffe3e3,stroke:#c92a2a,stroke-dasharray:4",
    State.CANCELLED: "fill:#ffe3e3,stroke:#868e96",
    State.UNCERTAIN: "fill:#f3d9fa,stroke:#862e9c,stroke-width:3px",
    State.SKIPPED: "fill:#ffffff,stroke:#adb5bd,stroke-dasharray:4",
    State.DENIED: "fill:#ffe3e3,stroke:#e67700",
}


def chart(view: RunView, turn: int | None = None) -> Iterator[str]:
    """Draw the turns of a run, line by line, without line ends.

    Conflicts are dotted, order alone is open, what carries a failure is solid.

    Args:
        view: of the run.
        turn: only this one, from 1; all of them if None.
    """
    yield "flowchart TD"
    drawn = [one for one in view.turns if turn in (None, one.number)]
    states: dict[State, list[str]] = {}
    for one in drawn:
        if not one.calls:
            yield f'    turn{one.number}["turn {one.number}: no calls"]'
            continue
        yield f'    subgraph turn{one.number}["turn {one.number}"]'
        for call in one.calls:
            states.setdefault(call.state, []).append(node(call.id))
            yield f'        {node(call.id)}["{_label(call)}"]'
        yield "    end"
    for one in drawn:
        yield from _arrows(one)
    for before, after in pairwise(drawn):
        yield f"    turn{before.number} ==> turn{after.number}"
    for state, style in STYLES.items():
        if state in states:
            yield f"    classDef {state} {style},color:#000000"
            yield f"    class {','.join(states[state])} {state}"


def _arrows(turn: TurnView) -> Iterator[str]:
    for edge in turn.edges:
        yield f'    {node(edge.source)} {_arrow(edge)}|"{edge_label(edge)}"| {node(edge.target)}'


def edge_label(edge: Edge) -> str:
    """Say why, and over what."""
    return quoted(edge.reason + (f" {edge.detail}" if edge.detail else ""))


def _arrow(edge: Edge) -> str:
    if edge.reason is Reason.CONFLICT:
        return "-.->"
    return "-->" if edge.reason.carries_failure else "--o"


def _label(call: CallView) -> str:
    record = call.record
    named = f" ({record.provider_id})" if record.provider_id else ""
    fate = str(call.state)
    if isinstance(call.outcome, Failure):
        fate += f": {call.outcome.code}"
    if call.attempt > 1:
        fate += f", attempt {call.attempt}"
    return f"{quoted(f'{call.id} {record.tool}{named}')}<br>{quoted(fate)}"
