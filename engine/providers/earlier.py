"""Sees that what a host says of earlier calls is whole: no result for a call that is not open.

A host may bring a conversation along, with calls and results from before Laneway; but the calls of
Laneway's own turns are answered by Laneway, once, and a second result makes every later request
fail. Reads messages of any format; asked before one is recorded.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from laneway.engine.kinds import is_list, is_object
from laneway.errors import PayloadError

_RESULTS = {
    "tool_result": "tool_use_id",
    "function_result": "call_id",
    "function_call_output": "call_id",
    "custom_tool_call_output": "call_id",
}
_CALLS = {
    "tool_use": "id",
    "function": "id",
    "custom": "id",
    "function_call": "call_id",
    "custom_tool_call": "call_id",
}
"""Where the id stands, by the type of a part."""


def see_that_open(said: object, earlier: Iterable[object]) -> None:
    """See that each result in a message is for a call that was said before and is not answered.

    Args:
        said: the message.
        earlier: all that the host has said before, in order.

    Raises:
        PayloadError: one is not; names its call.
    """
    results = [name for name, is_result in _pairs(said) if is_result]
    if not results:
        return
    waiting: list[object] = []
    for message in earlier:
        for name, is_result in _pairs(message):
            if not is_result:
                waiting.append(name)
            elif name in waiting:
                waiting.remove(name)
    waiting += [name for name, is_result in _pairs(said) if not is_result]
    for name in results:
        if name not in waiting:
            raise PayloadError(
                "message",
                f"it holds a result for the call {name!r}, which is not open",
                "Calls are answered by the engine; `run.settle` says what became of one that it "
                "could not see the end of",
            )
        waiting.remove(name)


def _pairs(message: object) -> Iterator[tuple[object, bool]]:
    """The ids of all calls and results in a message; None where the form has no id."""
    if not is_object(message):
        return
    if message.get("role") == "tool" and not is_list(message.get("results")):
        yield message.get("tool_call_id"), True
        return
    yield from _in_part(message)
    for field in ("content", "parts", "tool_calls", "output", "steps"):
        parts = message.get(field)
        for part in parts if is_list(parts) else ():
            if is_object(part):
                yield from _in_part(part)


def _in_part(part: dict[str, Any]) -> Iterator[tuple[object, bool]]:
    kind = part.get("type")
    if isinstance(kind, str) and kind in _RESULTS:
        yield part.get(_RESULTS[kind]), True
    elif isinstance(kind, str) and kind in _CALLS:
        yield part.get(_CALLS[kind], part.get("id")), False
    elif kind is None and is_object(part.get("function")):  # of Ollama, which has no types
        yield part.get("id"), False
    for field, id_field, is_result in _FIELDS:
        inner = part.get(field)
        if is_object(inner):
            yield inner.get(id_field), is_result


_FIELDS = (
    ("toolUse", "toolUseId", False),
    ("toolResult", "toolUseId", True),
    ("functionCall", "id", False),
    ("function_call", "id", False),
    ("functionResponse", "id", True),
    ("function_response", "id", True),
)
