"""What a dry run tells: a turn that was not run, as data, text, JSON or a picture.

Made by `preview`; read by hosts, through `engine.plan`, and by `laneway plan`. Times are seconds
from the submission.
"""

from typing import Any

import msgspec

from laneway.calls import Edge, Reason
from laneway.claims import Claim
from laneway.engine.critical import CriticalPath, told
from laneway.ids import CallId
from laneway.journal.export.escaping import node, quoted, visible
from laneway.outcomes import Failure, Outcome
from laneway.policies.questions import Decision


class PreviewCall(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a call before anything runs."""

    id: CallId
    name: str
    """The provider's id."""
    tool: str
    arguments: Any
    claims: tuple[Claim, ...] = ()
    """Widened where a reference stands in a template."""
    outcome: Outcome | None = None
    """A fault that would end it before anything runs."""
    decision: str = ""
    """allow, ask or deny, on the arguments as written; empty for a faulty call."""
    rule: str = ""
    """The rule of the policy that decides."""
    reason: str = ""
    """What the policy would tell the human or the model."""
    skipped_for: CallId | None = None
    """A call that would not succeed, and without which this one would be skipped."""
    ready_seconds: float | None = None
    """When nothing it depends on would be open any more; None where it would not run."""
    start_seconds: float | None = None
    """When it would hold its lanes; what asks a human is taken to be allowed at once."""
    end_seconds: float | None = None
    """When it would be over, if it took what its tool is expected to take."""

    @property
    def runs(self) -> bool:
        """Whether it would run, if no human refuses it."""
        return self.start_seconds is not None


class Conflict(msgspec.Struct, frozen=True, kw_only=True):
    """Two calls that touch one resource, and at least one writes: the order of request is kept."""

    first: CallId
    second: CallId
    resource: str
    """Where they meet."""
    reason: str
    """What each of them does."""


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that was not run."""

    calls: tuple[PreviewCall, ...]
    edges: tuple[Edge, ...]
    conflicts: tuple[Conflict, ...]
    """The edges that nobody asked for, each with its reason."""
    rounds: tuple[tuple[CallId, ...], ...]
    """What could start together if every call took the same time and every lane were free."""
    makespan_seconds: float
    """When the last call would end, were nobody else there and each took what is expected."""
    critical_path: CriticalPath
    """The longest chain: no number of lanes would make the turn faster."""

    @property
    def sound(self) -> bool:
        """Whether every call would run, if no human refuses one."""
        return all(call.runs for call in self.calls)

    def to_json(self) -> Any:
        """Plain JSON."""
        return msgspec.to_builtins(self)

    def to_mermaid(self) -> str:
        """A flowchart: conflicts are dotted, the critical path is thick, ✗ marks what won't run."""
        lines = ["flowchart TD"]
        for call in self.calls:
            mark = "" if call.runs else "✗ "
            what, fate = quoted(f"{mark}{call.name}: {call.tool}"), quoted(_fate(call))
            lines.append(f'    {node(call.id)}["{what}<br>{fate}"]')
        for edge in self.edges:
            arrow = "-.->" if edge.reason is Reason.CONFLICT else "-->"
            label = quoted(edge.reason + (f" {edge.detail}" if edge.detail else ""))
            lines.append(f'    {node(edge.source)} {arrow}|"{label}"| {node(edge.target)}')
        if self.critical_path.calls:
            lines.append("    classDef critical stroke-width:4px")
            lines.append(f"    class {','.join(map(node, self.critical_path.calls))} critical")
        return "\n".join(lines)

    def __str__(self) -> str:
        """A line for each call, a line for each thing that it would wait for, and the sum."""
        conflicts = {(one.first, one.second): f" ({one.reason})" for one in self.conflicts}
        waits: dict[CallId, list[str]] = {call.id: [] for call in self.calls}
        for edge in self.edges:
            about = f" {edge.detail}" if edge.detail else ""
            if edge.reason is Reason.CONFLICT:
                about += conflicts.get((edge.source, edge.target), "")
            waits[edge.target].append(f"    waits for {edge.source}: {edge.reason}{about}")
        lines: list[str] = []
        for call in self.calls:
            lines.append(f"{visible(f'{call.id} {call.name} {call.tool}')}  {_fate(call)}")
            lines += [visible(f"    claims {claim}") for claim in call.claims]
            lines += map(visible, waits[call.id])
        asked = any(call.decision == Decision.ASK for call in self.calls)
        humans = ", without the time that humans take to answer" if asked else ""
        lines.append(f"in all about {told(self.makespan_seconds)}{humans}")
        lines.append(f"critical path {self.critical_path}")
        return "\n".join(lines)


def _fate(call: PreviewCall) -> str:
    """What would become of the call, in a few words."""
    if isinstance(call.outcome, Failure):
        fault = f"{call.outcome.code}: {call.outcome.message}"
        return "\n      ".join(map(visible, fault.split("\n")))
    verdict = visible(f"{call.decision} ({call.rule})")
    if call.decision == Decision.DENY:
        return f"{verdict}: {visible(call.reason)}"
    if call.ready_seconds is None or call.start_seconds is None or call.end_seconds is None:
        return f"{verdict}  skipped: it needs {call.skipped_for}, which would not succeed"
    if call.decision == Decision.ASK:
        verdict += f": {visible(call.reason)}"
    queued = call.start_seconds - call.ready_seconds
    waited = f", after {told(queued)} in queues" if queued else ""
    return f"{verdict}  {told(call.start_seconds)} – {told(call.end_seconds)}{waited}"
