"""Which format a history is in, and where in a request it stands.

Reads lists of messages, or bodies of requests; feeds everything that looks at histories. A message
that only one format can have decides; a history that has such messages of two is refused.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from laneway.engine.history.blocks import AnthropicBlocks, BedrockBlocks, GoogleBlocks
from laneway.engine.history.items import InteractionsItems, ResponsesItems, is_continued
from laneway.engine.history.parts import Message, Wire
from laneway.engine.history.rows import Rows
from laneway.engine.kinds import is_list, is_object
from laneway.engine.providers.payload import opened
from laneway.errors import HistoryError

WIRES: tuple[Wire, ...] = (
    Rows("cohere-v2"),
    Rows("ollama-chat", ids=False),
    Rows("openai-chat"),
    AnthropicBlocks(),
    GoogleBlocks(),
    BedrockBlocks(),
    ResponsesItems(),
    InteractionsItems(),
)
"""All formats; of those written alike, the more particular first."""

_KEYS = ("messages", "contents", "input")
_CONTINUES = ("previous_response_id", "previous_interaction_id", "conversation")


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """A history as it was given, and how it is read."""

    wire: Wire
    messages: tuple[Message, ...]
    continued: bool = False
    """Earlier parts stand with the provider."""
    body: Mapping[str, Any] | None = None
    """The request that it is part of."""
    key: str = ""

    def back(self, messages: Sequence[Message]) -> Any:
        """Give other messages back in the form in which these were given."""
        if self.body is None:
            return list(messages)
        return {**self.body, self.key: list(messages)}


def given(history: object, wire: str = "") -> Given:
    """Read a history.

    Args:
        history: a list of messages, or the body of a request that holds one.
        wire: the name of its format; told from the messages if empty.

    Raises:
        HistoryError: it is none, or in a format that is not known, or in two at once.
    """
    body, key = None, ""
    if not is_list(history):
        history = opened(history)
    if is_object(history):
        body = history
        key = next((name for name in _KEYS if is_list(body.get(name))), "")
        if not key:
            raise HistoryError(
                "history", "no list of messages", "Give the list itself, or the request with it"
            )
        history = body[key]
    if not is_list(history):
        raise HistoryError("history", f"expected a list of messages, not {type(history).__name__}")
    where = key or "messages"
    messages = tuple(_message(one, f"{where}[{at}]") for at, one in enumerate(history))
    chosen = _chosen(messages, where, wire)
    continued = any(body.get(name) for name in _CONTINUES) if body else False
    return Given(
        wire=chosen,
        messages=messages,
        continued=continued or is_continued(messages),
        body=body,
        key=where,
    )


def _message(given: object, where: str) -> Message:
    message = given if is_object(given) else opened(given)
    if not is_object(message):
        raise HistoryError(where, f"expected a message, not {type(given).__name__}")
    return message


def _chosen(messages: Sequence[Message], where: str, name: str) -> Wire:
    named = _named(name) if name else None
    owners: dict[str, tuple[Wire, int]] = {}
    for at, message in enumerate(messages):
        for wire in WIRES:
            if wire.owns(message):
                owners.setdefault(wire.name, (wire, at))
    found = [owners[wire.name] for wire in WIRES if wire.name in owners]
    if named is not None:
        found.insert(0, (named, -1))
    other = next((one for one in found[1:] if type(one[0]) is not type(found[0][0])), None)
    if other is not None:
        first, at = found[0]
        here = f"{where}[{at}]" if at >= 0 else "the format that was named"
        raise HistoryError(
            f"{where}[{other[1]}]",
            f"a message of {other[0].name}, but {here} is {first.name}: a history has one format",
        )
    return found[0][0] if found else _by_look(messages)


def _by_look(messages: Sequence[Message]) -> Wire:
    """A history without calls: nearly all formats write it alike."""
    items = any("type" in message and "role" not in message for message in messages)
    return _named("openai-responses" if items else "openai-chat")


def _named(name: str) -> Wire:
    for wire in WIRES:
        if wire.name == name:
            return wire
    known = ", ".join(wire.name for wire in WIRES)
    raise HistoryError("format", f"there is no format {name!r}", f"Known are {known}")
