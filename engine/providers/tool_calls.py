"""The `tool_calls` of an assistant message, as OpenAI chat has them, and Cohere and Ollama like it.

Takes a message that was copied and may be mended in place; gives the calls. Feeds the three
formats, which differ in ids and results.
"""

from collections.abc import Callable, Mapping
from typing import Any

from laneway.engine.kinds import is_list, is_object
from laneway.engine.providers.faults import unknown_kind
from laneway.engine.providers.functions import read_custom, read_function
from laneway.engine.providers.mixing import see_that_own
from laneway.engine.providers.payload import (
    arguments_of,
    copied,
    copied_slowly,
    described,
    opened,
)
from laneway.engine.providers.repair import settled_ids
from laneway.engine.providers.reply import Asked, Message
from laneway.engine.results import json_text
from laneway.errors import PayloadError
from laneway.ids import is_own


def read_tool_calls(
    message: Message, where: str, *, mint: Callable[[str], str], cut: bool, key: str
) -> tuple[Asked, ...]:
    """Read the calls of a message, and leave in it what can be sent again.

    Args:
        message: with a `tool_calls` that is not empty; changed.
        where: its place, for errors.
        mint: turns 64 hexadecimal digits into a legal id.
        cut: whether the output limit ended the message.
        key: the provider's id of the reply.

    Raises:
        PayloadError: they are no list of objects.
    """
    entries: Any = message["tool_calls"]
    where = f"{where}.tool_calls"
    if not is_list(entries):
        raise PayloadError(where, f"expected a list, not {described(entries)}")
    for index, entry in enumerate(entries):
        if not is_object(entry):
            raise PayloadError(f"{where}[{index}]", f"expected an object, not {described(entry)}")
    ids = settled_ids(entries, is_legal=is_legal, content=content_of, mint=mint, key=key)
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
        see_that_own("openai-chat", [entry], where)
        missing = kind or "function"
        raise PayloadError(
            f"{where}[{index}].{missing}",
            f"expected an object with name and arguments, not {described(entry.get(missing))}",
        )
    return Asked(id=call_id, name=str(kind), arguments=None, fault=unknown_kind(kind))


def copied_message(given: object, where: str) -> Message:
    """Copy a message, whatever an SDK left closed in it."""
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


def is_legal(call_id: str) -> bool:
    """Refuse rubbish, and what would pass for one of Laneway's own names; no more.

    Servers differ in what they call an id, and take back what they gave.
    """
    rubbish = not call_id.isprintable() or not call_id or call_id.isspace()
    return not rubbish and not is_own(call_id)


def mint(digits: str) -> str:
    """Nine letters or digits: the one form that Mistral's servers take, and all others too."""
    return digits[:9]


def content_of(entry: Message) -> object:
    """What makes two entries under one id the same call."""
    return entry.get("function"), entry.get("custom")


def renamed(message: Message, names: Mapping[str, str]) -> Message:
    """Write names that can be sent again into some calls, by their ids."""
    if not names:
        return message
    return {**message, "tool_calls": [_renamed(entry, names) for entry in message["tool_calls"]]}


def _renamed(entry: Message, names: Mapping[str, str]) -> Message:
    if entry["id"] not in names:
        return entry
    kind = _part(entry)
    if not is_object(entry.get(kind)):
        return entry
    return {**entry, kind: {**entry[kind], "name": names[entry["id"]]}}


def with_other_arguments(message: Message, arguments: Mapping[str, dict[str, Any]]) -> Message:
    """Write other arguments, or another free input, into some calls, by their ids."""
    entries = [
        {**entry, _part(entry): _rewritten(entry, _part(entry), arguments[entry["id"]])}
        if entry["id"] in arguments
        else entry
        for entry in message.get("tool_calls", ())
    ]
    return {**message, "tool_calls": entries} if entries else message


def _part(entry: Message) -> str:
    return "custom" if entry.get("type") == "custom" else "function"


def _rewritten(entry: Message, part: str, arguments: dict[str, Any]) -> Any:
    if part == "custom":
        return {**entry[part], "input": arguments.get("input", "")}
    return {**entry[part], "arguments": json_text(arguments)}
