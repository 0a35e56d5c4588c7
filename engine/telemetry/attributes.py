"""The attributes of spans and events, by the GenAI semantic conventions where they have a name.

Reads facts and courses. Content (arguments, results, the words of failures, names of resources) is
told only where the host wants it; the facts are sealed before they come here, so that no secret is
in them.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from laneway.calls import CallRecord, Edge
from laneway.engine.telemetry.courses import Course
from laneway.facts import TurnSubmitted
from laneway.ids import RunId
from laneway.lanes.names import is_lane
from laneway.outcomes import Failure, Success

Value = str | bool | int | float | tuple[str, ...]
Attributes = dict[str, Value]

LONGEST_NAME = 128
"""Characters of a name that a model may have made up."""

PROVIDERS: Mapping[str, str] = {
    "anthropic": "anthropic",
    "bedrock": "aws.bedrock",
    "cohere": "cohere",
    "google": "gcp.gen_ai",
    "openai": "openai",
}
"""`gen_ai.provider.name` by the first word of a wire format. Whoever speaks another's format is
taken for that one: nothing else is known of it."""


def provider_of(wire: str) -> str:
    """The provider whose format this is; the format itself if it is nobody's."""
    return PROVIDERS.get(wire.partition("-")[0], wire)


def of_run(run: RunId, mode: str, workflow: str, agent: str) -> tuple[str, Attributes]:
    """The name and the attributes that a run begins with."""
    operation = "invoke_agent" if agent else "invoke_workflow"
    name = agent or workflow
    told: Attributes = {
        "gen_ai.operation.name": operation,
        "gen_ai.conversation.id": run,
        "laneway.mode": mode,
    }
    if name:
        told["gen_ai.agent.name" if agent else "gen_ai.workflow.name"] = name
    return f"{operation} {name}".rstrip(), told


def of_turn(run: RunId, number: int, wire: str, calls: int) -> Attributes:
    """What a turn begins with."""
    return {
        "gen_ai.conversation.id": run,
        "laneway.turn": number,
        "laneway.format": wire,
        "laneway.calls": calls,
    }


def of_usage(fact: TurnSubmitted) -> Attributes:
    """What an answer took, as far as it was told."""
    if fact.usage is None:
        return {}
    return {
        "gen_ai.usage.input_tokens": fact.usage.input_tokens,
        "gen_ai.usage.output_tokens": fact.usage.output_tokens,
    }


def of_call(run: RunId, record: CallRecord, description: str, *, content: bool) -> Attributes:
    """What a call begins with."""
    told: Attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": record.tool[:LONGEST_NAME],
        "gen_ai.tool.call.id": record.provider_id,
        "gen_ai.tool.type": "function",
        "gen_ai.conversation.id": run,
        "laneway.call": record.id,
        "laneway.effect": record.effect.value,
    }
    if description:
        told["gen_ai.tool.description"] = description
    if record.tool_version:
        told["laneway.tool.version"] = record.tool_version
    if content:
        told["gen_ai.tool.call.arguments"] = as_text(record.arguments)
    return told


def of_end(course: Course, rule: str, *, content: bool) -> Attributes:
    """What a call came to."""
    outcome = course.outcome
    told: Attributes = {
        "laneway.state": course.state.value,
        "laneway.attempts": course.attempt,
        "laneway.path": tuple(course.path),
    }
    if rule:
        told["laneway.rule"] = rule
    if course.answer:
        told["laneway.answer"] = course.answer
    if isinstance(outcome, Failure):
        told["error.type"] = outcome.code.value
        told["laneway.happened"] = outcome.happened.value
        if outcome.cause is not None:
            told["laneway.cause"] = outcome.cause
    elif content and isinstance(outcome, Success):
        told["gen_ai.tool.call.result"] = as_text(outcome.value)
    return told


def of_attempt(course: Course, token: int) -> Attributes:
    """What an attempt begins with."""
    return {
        "gen_ai.tool.name": course.record.tool[:LONGEST_NAME],
        "laneway.call": course.record.id,
        "laneway.attempt": course.attempt,
        "laneway.fencing_token": token,
    }


def of_edge(edge: Edge, *, content: bool) -> Attributes:
    """Why one call waits for another; over what, is content, since arguments stand in it."""
    told: Attributes = {"laneway.reason": edge.reason.value}
    if content and edge.detail:
        told["laneway.detail"] = edge.detail
    return told


def lanes_of(resources: tuple[str, ...], *, content: bool) -> tuple[str, ...]:
    """What a call waited for: names, or without content only the kinds of things."""
    own = [one for one in resources if not one.startswith(("run:", "lane:engine/"))]
    if content:
        return tuple(own)
    return tuple(sorted({"lane" if is_lane(one) else one.partition(":")[0] for one in own}))


def as_text(value: Any) -> str:
    """A value as JSON."""
    return msgspec.json.encode(value).decode()
