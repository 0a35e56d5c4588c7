"""Answers of models in every wire format, written for the tests from one list of calls.

Also reads what was rendered back into one shape, so that a test can say what it expects once.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from laneway.engine.kinds import is_list, is_object

ABSENT = object()


class Said(NamedTuple):
    """A call as a model writes it; an id of ABSENT leaves the field out."""

    id: Any
    name: Any
    arguments: Any = ABSENT


def answer(
    wire: str, calls: Sequence[Said], *, cut: bool = False, text: str = "Let me see."
) -> Any:
    """Write a whole answer with a text and calls."""
    writer: Any = _WRITERS[wire]
    return writer(calls, cut, text)


def _field(name: str, value: Any) -> dict[str, Any]:
    return {} if value is ABSENT else {name: value}


def _function(one: Said) -> dict[str, Any]:
    return {"name": one.name, **_field("arguments", one.arguments)}


def _chat(calls: Sequence[Said], cut: bool, text: str) -> Any:
    entries = [{**_field("id", c.id), "type": "function", "function": _function(c)} for c in calls]
    message = {"role": "assistant", "content": text, "tool_calls": entries}
    reason = "length" if cut else "tool_calls"
    return {"id": "r1", "choices": [{"index": 0, "finish_reason": reason, "message": message}]}


def _responses(calls: Sequence[Said], cut: bool, text: str) -> Any:
    said = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }
    items = [{"type": "function_call", **_field("call_id", c.id), **_function(c)} for c in calls]
    limit = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    ended = limit if cut else {"status": "completed"}
    return {"id": "r1", "object": "response", "output": [said, *items], **ended}


def _anthropic(calls: Sequence[Said], cut: bool, text: str) -> Any:
    blocks = [
        {"type": "tool_use", **_field("id", c.id), "name": c.name, **_field("input", c.arguments)}
        for c in calls
    ]
    return {
        "id": "r1",
        "type": "message",
        "role": "assistant",
        "stop_reason": "max_tokens" if cut else "tool_use",
        "content": [{"type": "text", "text": text}, *blocks],
    }


def _generate(calls: Sequence[Said], cut: bool, text: str) -> Any:
    parts = [
        {
            "functionCall": {
                **_field("id", c.id),
                "name": c.name,
                **_field("args", c.arguments),
            }
        }
        for c in calls
    ]
    content = {"role": "model", "parts": [{"text": text}, *parts]}
    reason = "MAX_TOKENS" if cut else "STOP"
    return {"responseId": "r1", "candidates": [{"content": content, "finishReason": reason}]}


def _interactions(calls: Sequence[Said], cut: bool, text: str) -> Any:
    said = {"type": "model_output", "content": [{"type": "text", "text": text}]}
    steps = [{"type": "function_call", **_field("id", c.id), **_function(c)} for c in calls]
    status = "incomplete" if cut else "requires_action"
    return {"id": "r1", "object": "interaction", "status": status, "steps": [said, *steps]}


def _bedrock(calls: Sequence[Said], cut: bool, text: str) -> Any:
    blocks = [
        {
            "toolUse": {
                **_field("toolUseId", c.id),
                "name": c.name,
                **_field("input", c.arguments),
            }
        }
        for c in calls
    ]
    message = {"role": "assistant", "content": [{"text": text}, *blocks]}
    return {"output": {"message": message}, "stopReason": "max_tokens" if cut else "tool_use"}


def _cohere(calls: Sequence[Said], cut: bool, text: str) -> Any:
    entries = [{**_field("id", c.id), "type": "function", "function": _function(c)} for c in calls]
    message = {"role": "assistant", "tool_plan": text, "tool_calls": entries}
    reason = "MAX_TOKENS" if cut else "TOOL_CALL"
    return {"id": "r1", "finish_reason": reason, "message": message}


def _ollama(calls: Sequence[Said], cut: bool, text: str) -> Any:
    entries = [{**_field("id", c.id), "function": _function(c)} for c in calls]
    message = {"role": "assistant", "content": text, "tool_calls": entries}
    reason = "length" if cut else "stop"
    return {
        "model": "m",
        "created_at": "t",
        "message": message,
        "done": True,
        "done_reason": reason,
    }


_WRITERS: dict[str, Any] = {
    "anthropic-messages": _anthropic,
    "bedrock-converse": _bedrock,
    "cohere-v2": _cohere,
    "google-generate": _generate,
    "google-interactions": _interactions,
    "ollama-chat": _ollama,
    "openai-chat": _chat,
    "openai-responses": _responses,
}
WIRES = sorted(_WRITERS)
"""Every format that models are asked in."""

TEXTUAL = {"cohere-v2", "openai-chat", "openai-responses"}
"""Those whose arguments are a text."""


class Shown(NamedTuple):
    """A call or a result in messages that go to a provider; None where its form has no word."""

    id: str | None
    name: str | None
    told: Any
    is_error: bool | None = None


def calls_in(messages: Sequence[Any]) -> list[Shown]:
    """All calls in messages of any format, in order."""
    return [found for part in _parts(messages) for found in _call(part)]


def results_in(messages: Sequence[Any]) -> list[Shown]:
    """All results in messages of any format, in order."""
    return [found for part in _parts(messages) for found in _result(part)]


def _parts(messages: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for message in messages:
        found.append(message)
        for field in ("content", "parts", "tool_calls"):
            parts = message.get(field) if message.get("role") != "tool" else None
            found += [part for part in parts if is_object(part)] if is_list(parts) else []
    return found


def _loaded(arguments: Any) -> Any:
    return json.loads(arguments) if isinstance(arguments, str) else arguments


def _call(part: Any) -> list[Shown]:  # noqa: PLR0911 - one line a format
    match part:
        case {"type": "function_call", "call_id": own}:
            return [Shown(own, part["name"], _loaded(part["arguments"]))]
        case {"type": "custom_tool_call"}:
            return [Shown(part["call_id"], part["name"], part["input"])]
        case {"type": "apply_patch_call"}:
            return [Shown(part["call_id"], part["type"], part["operation"])]
        case {"type": "function_call"}:
            return [Shown(part["id"], part["name"], part["arguments"])]
        case {"function": {"name": name, "arguments": arguments}}:
            return [Shown(part.get("id"), name, _loaded(arguments))]
        case {"type": "tool_use"}:
            return [Shown(part["id"], part["name"], part["input"])]
        case {"toolUse": use}:
            return [Shown(use["toolUseId"], use["name"], use["input"])]
        case {"functionCall": call} | {"function_call": call}:
            return [Shown(call.get("id"), call["name"], call.get("args", {}))]
        case _:
            return []


def _result(part: Any) -> list[Shown]:
    match part:
        case {"role": "tool"}:
            return [Shown(part.get("tool_call_id"), part.get("tool_name"), part["content"])]
        case {"type": "function_call_output" | "custom_tool_call_output"}:
            return [Shown(part["call_id"], None, part["output"])]
        case {"type": "apply_patch_call_output"}:
            failed = part["status"] == "failed"
            return [Shown(part["call_id"], None, part["output"], failed)]
        case {"type": "function_result"}:
            failed = part.get("is_error", False)
            return [Shown(part["call_id"], part["name"], part["result"], failed)]
        case {"type": "tool_result"}:
            failed = part.get("is_error") or False
            return [Shown(part["tool_use_id"], None, part["content"], failed)]
        case {"toolResult": found}:
            failed = found["status"] == "error"
            return [Shown(found["toolUseId"], None, found["content"], failed)]
        case {"functionResponse": found} | {"function_response": found}:
            failed = "error" in found["response"]
            return [Shown(found.get("id"), found["name"], found["response"], failed)]
        case _:
            return []


def said(told: Any) -> Any:
    """The text of a result, whatever is around it."""
    match told:
        case {"output": inner} | {"error": inner} | {"return_value": inner} | {"result": inner}:
            return inner if len(told) == 1 else told
        case [*parts]:
            return "".join(part.get("text", "") for part in parts)
        case _:
            return told
