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
from laneway.engine.providers.faults import refused, unknown_kind
from laneway.engine.providers.functions import read_custom, read_function
from laneway.engine.providers.payload import (
    arguments_of,
    assistant_role,
    copied,
    copied_slowly,
    described,
    opened,
)
from laneway.engine.providers.repair import UNNAMED, misnamed, paired, settled_ids
from laneway.engine.providers.reply import Answer, Asked, Message, Reply
from laneway.engine.providers.say import said_by_host
from laneway.engine.results import json_text, noted
from laneway.errors import PayloadError
from laneway.ids import is_own

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
        message = _copied(given, where)
        assistant_role(message, where)
        message.pop("parsed", None)  # what the SDK made of the text; no request has it
        key = payload.get("id")
        key = key if isinstance(key, str) and "choices" in payload else ""
        calls: tuple[Asked, ...] = ()
        if message.get("tool_calls"):
            calls = _tool_calls(message, where, cut=reason in LIMIT_REACHED, key=key)
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
        names = misnamed(ordered)
        if names:
            message = {**message, "tool_calls": [_renamed(entry, names) for entry in entries]}
        results = [
            {
                "role": "tool",
                "tool_call_id": answer.id,
                "content": noted(answer.outcome, answer.note, answer.warning),
            }
            for answer in ordered
        ]
        return [message, *results]

    def with_arguments(
        self, message: Message, arguments: Mapping[str, dict[str, Any]], /
    ) -> Message:
        """Write other arguments, or another free input, into some calls."""
        entries: list[Message] = message.get("tool_calls") or []
        if not entries:
            (given,) = arguments.values()
            return {**message, "function_call": _rewritten(message, "function_call", given)}
        return {
            **message,
            "tool_calls": [
                {**entry, _part(entry): _rewritten(entry, _part(entry), arguments[entry["id"]])}
                if entry["id"] in arguments
                else entry
                for entry in entries
            ],
        }

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


def _copied(given: object, where: str) -> Message:
    fast = copied(given)
    message: Message = fast[0] if fast else copied_slowly(_loosened(given), where)
    return message


def _loosened(given: object) -> object:
    """Open what an SDK left closed, and put arguments given as objects out of harm's way."""
    message = opened(given)
    entries = opened(message.get("tool_calls")) if is_object(message) else None
    if not is_object(message) or not is_list(entries):
        return message
    return {**message, "tool_calls": [_loosened_entry(entry) for entry in entries]}


def _loosened_entry(given: object) -> object:
    entry = opened(given)
    if not is_object(entry):
        return entry
    function = opened(entry.get("function"))
    if not is_object(function) or isinstance(function.get("arguments"), str):
        return entry
    return {**entry, "function": {**function, "arguments": arguments_of(function.get("arguments"))}}


def _tool_calls(message: Message, where: str, *, cut: bool, key: str) -> tuple[Asked, ...]:
    entries: Any = message["tool_calls"]
    where = f"{where}.tool_calls"
    if not is_list(entries):
        raise PayloadError(where, f"expected a list, not {described(entries)}")
    for index, entry in enumerate(entries):
        if not is_object(entry):
            raise PayloadError(f"{where}[{index}]", f"expected an object, not {described(entry)}")
    ids = settled_ids(entries, is_legal=_is_legal, content=_content, mint=_mint, key=key)
    last = len(entries) - 1
    kept: list[Message] = []
    calls: list[Asked] = []
    for index, call_id in enumerate(ids):
        if call_id is not None:
            entry = entries[index]
            entry["id"] = call_id
            kept.append(entry)
            calls.append(_asked(entry, call_id, where, index, cut=cut and index == last))
    message["tool_calls"] = kept
    return tuple(calls)


def _asked(entry: Message, call_id: str, where: str, index: int, *, cut: bool) -> Asked:
    function = entry.get("function")
    kind = entry.get("type")
    if kind == "custom" and is_object(entry.get("custom")):
        return read_custom(entry["custom"], call_id, cut=cut)
    if is_object(function):
        if not kind:
            entry["type"] = "function"
        return read_function(function, call_id, cut=cut)
    if not kind or kind in ("function", "custom"):
        missing = kind or "function"
        raise PayloadError(
            f"{where}[{index}].{missing}",
            f"expected an object with name and arguments, not {described(entry.get(missing))}",
        )
    return Asked(id=call_id, name=str(kind), arguments=None, fault=unknown_kind(kind))


def _function_call(message: Message, *, cut: bool, key: str) -> tuple[Asked, ...]:
    """Read the older form: one call, without an id."""
    function = message["function_call"]
    entry = {"function": function}
    ids = settled_ids([entry], is_legal=_is_legal, content=_content, mint=_mint, key=key)
    return tuple(
        read_function(function, call_id, cut=cut) for call_id in ids if call_id is not None
    )


def _is_legal(call_id: str) -> bool:
    """Refuse rubbish, and what would pass for one of Laneway's own names; no more.

    Servers differ in what they call an id, and take back what they gave.
    """
    rubbish = not call_id.isprintable() or not call_id or call_id.isspace()
    return not rubbish and not is_own(call_id)


def _mint(digits: str) -> str:
    """Nine letters or digits: the one form that Mistral's servers take, and all others too."""
    return digits[:9]


def _content(entry: Message) -> object:
    return entry.get("function"), entry.get("custom")


def _renamed(entry: Message, names: Mapping[str, str]) -> Message:
    if entry["id"] not in names:
        return entry
    kind = _part(entry)
    if not is_object(entry.get(kind)):
        return entry
    return {**entry, kind: {**entry[kind], "name": names[entry["id"]]}}


def _part(entry: Message) -> str:
    return "custom" if entry["type"] == "custom" else "function"


def _rewritten(entry: Message, part: str, arguments: dict[str, Any]) -> Any:
    if part == "custom":
        return {**entry[part], "input": arguments.get("input", "")}
    return {**entry[part], "arguments": json_text(arguments)}


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
        "content": noted(answer.outcome, answer.note, answer.warning),
    }
