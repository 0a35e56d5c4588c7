"""OpenAI chat completions, and every server that speaks like it.

Reads a whole completion (`choices`) or a bare assistant message; its calls are those of
`tool_calls` (functions and custom tools) and of the older `function_call`. Feeds the engine with a
`Reply`, and the conversation with `tool` messages.

What is mended in the message that goes back: ids (unique, present), arguments (always the text of
one JSON object: `{}` where nothing or nothing readable stood, since servers that fill a template
with the history fail on anything else; the raw text stays in `Asked.text`), names that are none,
and empty `tool_calls` and `function_call`, which requests may not hold.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from laneway.engine.kinds import is_list, is_object
from laneway.engine.providers.faults import refused
from laneway.engine.providers.functions import read_function
from laneway.engine.providers.mixing import see_that_own
from laneway.engine.providers.parts import told
from laneway.engine.providers.payload import assistant_role, described, opened
from laneway.engine.providers.repair import UNNAMED, misnamed, paired, settled_ids
from laneway.engine.providers.reply import Answer, Asked, Message, Reply
from laneway.engine.providers.say import said_by_host
from laneway.engine.providers.tool_calls import (
    content_of,
    copied_message,
    is_legal,
    mint,
    read_tool_calls,
    renamed,
    with_other_arguments,
)
from laneway.engine.results import json_text
from laneway.errors import PayloadError

LIMIT_REACHED = ("length", "max_tokens", "model_length")
"""What servers say in `finish_reason` when the output limit ended the answer (OpenAI, LiteLLM's
pass-through, Mistral)."""


class OpenAIChat:
    """The format of POST /v1/chat/completions."""

    name = "openai-chat"

    def recognises(self, payload: Mapping[str, Any], /) -> bool:
        """Whether there are choices, an assistant message, or an error without a type."""
        return (
            "choices" in payload
            or "tool_calls" in payload
            or "function_call" in payload
            or (payload.get("role") == "assistant" and "content" in payload)
            or bool(payload.get("error"))
            or payload.get("object") == "error"
        )

    def parse(self, payload: Mapping[str, Any], /) -> Reply:
        """Read a completion or an assistant message; see `Format.parse`."""
        where, given, reason = _chosen(self.name, payload)
        message = copied_message(given, where)
        assistant_role(message, where)
        see_that_own(self.name, message.get("content"), f"{where}.content")
        message.pop("parsed", None)  # what the SDK made of the text; no request has it
        key = payload.get("id")
        key = key if isinstance(key, str) and "choices" in payload else ""
        calls: tuple[Asked, ...] = ()
        if message.get("tool_calls"):
            calls = read_tool_calls(message, where, mint=mint, cut=reason in LIMIT_REACHED, key=key)
        else:
            message.pop("tool_calls", None)
            if _name_of(message.get("function_call")):
                calls = _function_call(message, cut=reason in LIMIT_REACHED, key=key)
        if "function_call" in message and (message.get("tool_calls") or not calls):
            del message["function_call"]
        return Reply(provider=self.name, message=message, calls=calls, key=key)

    def render(self, message: Message, answers: Sequence[Answer], /) -> list[Message]:
        """Write one `tool` message per call behind the assistant message."""
        entries: list[Message] = message.get("tool_calls") or []
        if not entries and "function_call" in message:
            return [_renamed_function(message, answers), *map(_function_result, answers)]
        ordered = paired([entry["id"] for entry in entries], answers)
        results = [
            {"role": "tool", "tool_call_id": answer.id, "content": told(answer)}
            for answer in ordered
        ]
        return [renamed(message, misnamed(ordered)), *results]

    def with_arguments(
        self, message: Message, arguments: Mapping[str, dict[str, Any]], /
    ) -> Message:
        """Write other arguments, or another free input, into some calls."""
        if message.get("tool_calls") or not arguments:
            return with_other_arguments(message, arguments)
        (given,) = arguments.values()
        function = {**message["function_call"], "arguments": json_text(given)}
        return {**message, "function_call": function}

    def say(self, said: object, /) -> Message:
        """Make a user message."""
        return said_by_host(said)

    def join(self, messages: Sequence[Message], /) -> list[Message]:
        """Put messages in a row: this form takes them as they come."""
        return list(messages)


def _chosen(provider: str, payload: Mapping[str, Any]) -> tuple[str, object, object]:
    """Find the one message to go on with: its place, itself, and why it ended."""
    if "choices" not in payload:
        error = payload.get("error") or (payload if payload.get("object") == "error" else None)
        if error:
            raise refused(provider, opened(error))
        if "role" in payload or "tool_calls" in payload:
            return "message", payload, None
        raise PayloadError(
            "choices", f"there are none in {described(payload)}", "Submit the whole answer"
        )
    choices = opened(payload["choices"])
    if not is_list(choices) or not choices:
        if payload.get("error"):
            raise refused(provider, opened(payload["error"]))
        raise PayloadError("choices", f"expected a list with one choice, not {described(choices)}")
    opened_choices = [_choice(choice, index) for index, choice in enumerate(choices)]
    calling = [index for index, (_, calls, _) in enumerate(opened_choices) if calls]
    if len(calling) > 1:
        raise PayloadError(
            f"choices[{calling[1]}]",
            "it carries calls, and so does an earlier choice: they are alternatives",
            "Submit the message of the one to go on with",
        )
    index = calling[0] if calling else 0
    message, _, choice = opened_choices[index]
    if choice.get("error") or (choice.get("finish_reason") == "error" and not calling):
        raise refused(provider, opened(choice.get("error") or "the answer broke off"))
    return f"choices[{index}].message", message, choice.get("finish_reason")


def _choice(given: object, index: int) -> tuple[Mapping[str, Any], bool, Mapping[str, Any]]:
    choice = opened(given)
    where = f"choices[{index}]"
    if not is_object(choice):
        raise PayloadError(where, f"expected an object, not {described(choice)}")
    message = opened(choice.get("message"))
    if message is None and "delta" in choice:
        raise PayloadError(
            f"{where}.delta",
            "this is a chunk of a stream, and streams are not read here",
            "Submit the finished completion",
        )
    if not is_object(message):
        raise PayloadError(f"{where}.message", f"expected an object, not {described(message)}")
    calls = bool(message.get("tool_calls")) or bool(_name_of(message.get("function_call")))
    return message, calls, choice


def _name_of(function_call: object) -> object:
    """The name in an older `function_call`; some servers send an empty one along."""
    call = opened(function_call)
    return call.get("name") if is_object(call) else None


def _function_call(message: Message, *, cut: bool, key: str) -> tuple[Asked, ...]:
    """Read the older form: one call, without an id."""
    function = message["function_call"]
    entry = {"function": function}
    ids = settled_ids([entry], is_legal=is_legal, content=content_of, mint=mint, key=key)
    return tuple(
        read_function(function, call_id, cut=cut) for call_id in ids if call_id is not None
    )


def _renamed_function(message: Message, answers: Sequence[Answer]) -> Message:
    names = list(misnamed(answers).values())
    if not names:
        return message
    return {**message, "function_call": {**message["function_call"], "name": names[0]}}


def _function_result(answer: Answer) -> Message:
    name = next(iter(misnamed([answer]).values()), answer.name or UNNAMED)
    return {
        "role": "function",
        "name": name,
        "content": told(answer),
    }
