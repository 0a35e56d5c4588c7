"""The tools of a re-execution: what is declared of them counts, their bodies are never entered.

The host's own keep schema, effect and claims; for every other that was called one is made from the
records, which claims for each call what is recorded of it and refuses what was refused.
"""

import copy
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from laneway.claims import Claim
from laneway.effects import Effect
from laneway.engine.checking import Checked
from laneway.engine.plan_definition import SCHEMA
from laneway.engine.planning import PlanTool
from laneway.engine.probing import Finding, Found, Probe
from laneway.engine.providers.reply import Asked
from laneway.engine.reexecution.evidence import Evidence, farthest, is_plan, key_of
from laneway.engine.tools import Tool
from laneway.outcomes import Code, Failure

if TYPE_CHECKING:
    from laneway.ids import CallId
    from laneway.lanes.names import Names

Body = Callable[..., Awaitable[Any]]
Completing = Callable[[], "CallId | None"]
"""Names the call whose arguments are just being completed."""
AnyTool = Tool[..., Any]


def cast(
    own: Iterable[AnyTool], evidence: Evidence, body: Body, completing: Completing
) -> list[AnyTool]:
    """Give every tool that is needed, with this body in place of its own."""
    tools = [
        _untouched(tool, evidence, body) for tool in own if tool.spec.name not in evidence.marked
    ]
    known = {tool.spec.name for tool in tools}
    for name, records in evidence.by_tool.items():
        there = name not in evidence.unknown and any(
            record.tool_version or record.claims for record in records
        )
        if there and name not in known:
            tools.append(_made(name, evidence, body, completing))
    return tools


def _untouched(tool: AnyTool, evidence: Evidence, body: Body) -> AnyTool:
    """A host's tool, as it is but for its body: no thread is needed for it, no context made."""
    stand_in = copy.copy(tool)
    stand_in.function = body
    stand_in.wants_context = False
    stand_in.spec = msgspec.structs.replace(tool.spec, sync=False)
    # Whether there was a probe is in the record: it was asked whenever there was one.
    stand_in.probe = PROBE if tool.spec.name in evidence.probed else None
    return stand_in


def _made(name: str, evidence: Evidence, body: Body, completing: Completing) -> AnyTool:
    records = evidence.by_tool[name]
    if any(record.id in evidence.parents or is_plan(record) for record in records):
        return _made_plan(name, evidence, body)
    changed = name in evidence.changed
    effect = Effect.EXTERNAL if changed else farthest(record.effect for record in records)
    made = RecordedTool.from_schema(
        body,
        schema={"type": "object"},
        name=name,
        description="as recorded",
        effect=effect,
        claims=[],
        timeout=math.inf,
    )
    assert isinstance(made, RecordedTool)
    made.evidence, made.completing = evidence, completing
    made.claims = RecordedClaims(made)
    made.probe = PROBE if name in evidence.probed else None
    made.spec = msgspec.structs.replace(
        made.spec,
        effect_of="recorded"
        if not changed and len({record.effect for record in records}) > 1
        else "",
        idempotent=not changed
        and any(record.idempotent and not record.effect.changes_nothing for record in records),
        declared=not evidence.undeclared(name),
        approval=name in evidence.asking,
        priority=evidence.priorities.get(name, 0),
        retries=evidence.retries[name],
        literal=frozenset(evidence.literal[name]),
        version="" if changed else records[-1].tool_version,
    )
    return made


def _made_plan(name: str, evidence: Evidence, body: Body) -> AnyTool:
    made = RecordedPlan.from_schema(
        body,
        schema=SCHEMA,
        name=name,
        effect=Effect.PURE,
        claims=[],
        literal=["calls"],
        timeout=math.inf,
    )
    assert isinstance(made, RecordedPlan)
    made.refused = evidence.refused
    # One that was taken apart had no fault, or was not refused for it.
    made.whole = False
    made.spec = msgspec.structs.replace(made.spec, version=evidence.by_tool[name][-1].tool_version)
    return made


class RecordedTool(Tool[..., Any]):
    """A tool that only a recording knows."""

    evidence: Evidence
    completing: Completing

    def check(self, arguments: dict[str, Any], /) -> Checked | Failure:
        """Let pass what was let pass."""
        name = self.completing()
        if name is not None:
            failure = self.evidence.refusals.get(name)
        else:
            failure = self.evidence.refused.get(key_of(self.spec.name, arguments))
        if failure is not None and failure.code is not Code.BAD_REFERENCE:
            return failure
        if name is not None and failure is not None:
            return failure  # Its references led somewhere, so its claims had outgrown its place.
        return Checked(arguments, {}, self._bindings)

    def check_unresolved(
        self,
        arguments: dict[str, Any],
        unresolved: Collection[str],  # noqa: ARG002 - what was checked of it is recorded
        /,
    ) -> Checked | Failure:
        """Let pass what was let pass."""
        failure = self.evidence.refused.get(key_of(self.spec.name, arguments))
        if failure is not None and self._at_once(arguments):
            return failure
        return Checked(arguments, {}, self._bindings)

    def _at_once(self, arguments: Mapping[str, Any]) -> bool:
        record = self.evidence.said(self.spec.name, arguments)
        return record is not None and not record.claims

    def effect_of(self, arguments: Mapping[str, Any], /) -> Effect:
        """Say of a call what is recorded of it."""
        record = self.evidence.said(self.spec.name, dict(arguments))
        return self.spec.effect if record is None else record.effect


class RecordedClaims:
    """Claims for each call what is recorded of it."""

    def __init__(self, tool: RecordedTool) -> None:
        """Know the tool."""
        self._tool = tool

    def claims(self, arguments: Mapping[str, Any], names: "Names", /) -> tuple[Claim, ...]:
        """Name the final claims of a call."""
        evidence = self._tool.evidence
        name = self._tool.completing()
        if name is not None:
            return evidence.claims_of(evidence.records[name], dict(arguments))
        return self.widened(arguments, (), names)

    def widened(
        self,
        arguments: Mapping[str, Any],
        unresolved: Collection[str],  # noqa: ARG002 - they were widened then
        names: "Names",  # noqa: ARG002 - they are canonical
        /,
    ) -> tuple[Claim, ...]:
        """Name the claims with which a call was put into its turn."""
        evidence = self._tool.evidence
        record = evidence.said(self._tool.spec.name, dict(arguments), take=True)
        return () if record is None else record.claims[1:]


class RecordedPlan(PlanTool):
    """A tool for plans that only a recording knows."""

    refused: Mapping[Any, Failure]

    def read(self, arguments: Mapping[str, Any]) -> "tuple[Asked, ...] | Failure":
        """Read a plan; one that was refused is refused."""
        failure = self.refused.get(key_of(self.spec.name, dict(arguments)))
        if failure is not None:
            return failure
        calls = super().read(arguments)
        return calls if isinstance(calls, Failure) else tuple(calls)


async def _asked() -> Found:  # pragma: no cover - nobody asks it
    return Found(Finding.UNKNOWN)


PROBE = Probe(function=_asked, sync=False, parameters=frozenset(), takes_any=False, context="")
"""Stands for a probe that was asked, and never is."""
