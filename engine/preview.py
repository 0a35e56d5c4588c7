"""Dry run: what would become of an answer, with nothing executed and nothing journalled.

Reads a reply; gives its graph, the conflicts with their reason, the faults and the verdicts, as
text, JSON or Mermaid.
"""

from collections.abc import Container
from typing import Any

import msgspec

from laneway.calls import Edge
from laneway.claims import Claim
from laneway.engine import admission
from laneway.engine.graph import CallGraph
from laneway.engine.providers.reply import Reply
from laneway.engine.scheduler import Scheduler
from laneway.engine.services import Services
from laneway.engine.step import Step
from laneway.ids import CallId, RunId
from laneway.journal.fold import RunView
from laneway.journal.writer import RunLog
from laneway.outcomes import Failure, Outcome


class PreviewCall(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a call before anything runs."""

    id: CallId
    name: str
    tool: str
    arguments: Any
    claims: tuple[Claim, ...] = ()
    """Widened where a reference stands in a template."""
    outcome: Outcome | None = None
    """A fault that would end it before anything runs."""
    decision: str = ""
    """allow, ask or deny, on the arguments as written; empty for a faulty call."""
    rule: str = ""


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that was not run."""

    calls: tuple[PreviewCall, ...]
    edges: tuple[Edge, ...]
    rounds: tuple[tuple[CallId, ...], ...]
    """What could start together if every call took the same time and every lane were free."""

    def to_json(self) -> Any:
        """Plain JSON."""
        return msgspec.to_builtins(self)

    def to_mermaid(self) -> str:
        """A flowchart; conflicts are dotted, and faulty calls marked."""
        lines = ["flowchart TD"]
        for call in self.calls:
            mark = "✗ " if call.outcome is not None else ""
            lines.append(f'    {_node(call.id)}["{mark}{call.name}: {call.tool}"]')
        for edge in self.edges:
            arrow = "-.->" if edge.reason == "conflict" else "-->"
            label = edge.reason + (f" {edge.detail}" if edge.detail else "")
            lines.append(
                f'    {_node(edge.source)} {arrow}|"{_quoted(label)}"| {_node(edge.target)}'
            )
        return "\n".join(lines)

    def __str__(self) -> str:
        """A line for each call, and a line for each thing that it would wait for."""
        lines: list[str] = []
        for call in self.calls:
            verdict = (
                f"{call.outcome.code}: {call.outcome.message}"
                if isinstance(call.outcome, Failure)
                else f"{call.decision} ({call.rule})"
            )
            lines.append(f"{call.id} {call.name} {call.tool}  {verdict}")
            lines += [f"    claims {claim}" for claim in call.claims]
            lines += [
                f"    waits for {edge.source}: {edge.reason}"
                + (f" {edge.detail}" if edge.detail else "")
                for edge in self.edges
                if edge.target == call.id
            ]
        return "\n".join(lines)


async def preview(reply: Reply, services: Services, *, mode: str, bound: dict[str, Any]) -> Preview:
    """Analyse and judge a reply as a turn of its own, and forget it."""
    nobody = RunLog(RunView(RunId("preview")), lambda _: None)
    scheduler = Scheduler(services, nobody, mode=mode, bound=bound)
    coming = await admission.admit(reply, 1, scheduler)
    calls: list[PreviewCall] = []
    for at, call in enumerate(coming.turn.calls):
        ended = coming.faults.get(at)
        verdict = None if ended is not None else Step(scheduler).judge(call)
        calls.append(
            PreviewCall(
                id=call.id,
                name=call.name,
                tool=call.record.tool,
                arguments=call.record.arguments,
                claims=call.claims,
                outcome=None if ended is None else ended.outcome,
                decision="" if verdict is None else verdict.decision,
                rule="" if verdict is None else verdict.rule,
            )
        )
    edges = tuple(coming.graph.edges)
    return Preview(calls=tuple(calls), edges=edges, rounds=_rounds(coming.graph, coming.faults))


def _rounds(graph: CallGraph, faults: Container[int]) -> tuple[tuple[CallId, ...], ...]:
    waits = list(graph.waits)
    ready = [at for at, count in enumerate(waits) if not count and at not in faults]
    rounds: list[tuple[CallId, ...]] = []
    while ready:
        rounds.append(tuple(graph.ids[at] for at in ready))
        following: list[int] = []
        for at in ready:
            for target, _ in graph.successors[at]:
                waits[target] -= 1
                if not waits[target] and target not in faults:
                    following.append(target)
        ready = sorted(following)
    return tuple(rounds)


def _node(call: CallId) -> str:
    return call.replace(".", "_")


def _quoted(text: str) -> str:
    return text.replace('"', "#quot;")
