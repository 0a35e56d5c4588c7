"""Histories in which each result is a message of its own: OpenAI chat, Cohere, Ollama.

Ollama's calls have no ids: results are told apart by the tool's name and their order.
"""

from collections.abc import Sequence
from typing import Any

from laneway.engine.history.parts import (
    LOST,
    Kind,
    Message,
    Pairs,
    Part,
    Side,
    object_at,
    role_of,
    word,
)
from laneway.engine.kinds import is_list, is_object
from laneway.errors import HistoryError

ROLES = ("system", "developer", "user", "assistant", "tool", "function", "control")


class Rows:
    """OpenAI chat completions, and all that are written like it."""

    pairs = Pairs.BEHIND
    alternates = False

    def __init__(self, name: str, *, ids: bool = True) -> None:
        """Serve one format.

        Args:
            name: of the format.
            ids: whether results name the call that they answer.
        """
        self.name = name
        self.needs_ids = ids

    def owns(self, message: Message, /) -> bool:
        """Whether it is a result by its role, or has calls beside its content."""
        entries: Any = message.get("tool_calls") or ()
        first: Any = entries[0] if is_list(entries) and entries else None
        function: Any = first.get("function") if is_object(first) else None
        arguments = function.get("arguments") if is_object(function) else None
        match self.name:
            case "cohere-v2":
                return "tool_plan" in message
            case "ollama-chat":
                return "tool_name" in message or is_object(arguments)
            case _:
                called = bool(entries) or is_object(message.get("function_call"))
                return called or message.get("role") in ("tool", "function")

    def side(self, message: Message, /) -> Side:
        """By its role."""
        role = message.get("role")
        if role in ("system", "developer"):
            return Side.SYSTEM
        return Side.MODEL if role == "assistant" else Side.USER

    def parts(self, message: Message, where: str, /) -> list[Part]:
        """A result is all of its message; of the model's, calls are parts, and the rest is one."""
        role = role_of(message, where, ROLES)
        if role in ("tool", "function"):
            if "content" not in message:
                raise HistoryError(where, "a result without content")
            name = word(message.get("name")) or word(message.get("tool_name"))
            call_id = word(message.get("tool_call_id"))
            return [Part(kind=Kind.RESULT, raw=message, id=call_id, name=name)]
        if role != "assistant":
            return [Part(kind=Kind.OTHER, raw=message)]
        rest = {key: value for key, value in message.items() if key not in _CALLS}
        found = [Part(kind=Kind.OTHER, raw=rest)]
        entries: Any = message.get("tool_calls") or []
        if not is_list(entries):
            raise HistoryError(f"{where}.tool_calls", "expected a list")
        for index, entry in enumerate(entries):
            place = f".tool_calls[{index}]"
            found.append(_call(object_at(entry, f"{where}{place}"), place))
        if not entries and is_object(message.get("function_call")):
            call = message["function_call"]
            found.append(
                Part(
                    kind=Kind.CALL,
                    raw={"function_call": call},
                    name=word(call.get("name")),
                    place=".function_call",
                )
            )
        return found

    def build(self, message: Message, parts: Sequence[Part], /) -> Message:
        """Write other calls in their place."""
        calls = [part.raw for part in parts if part.kind is Kind.CALL]
        return {key: calls if key == "tool_calls" else message[key] for key in message}

    def named(self, part: Part, call_id: str, /) -> Part:
        """Write another id into a call or a result."""
        key = "id" if part.kind is Kind.CALL else "tool_call_id"
        if part.raw.get("role") == "function" or "function_call" in part.raw:
            return part  # The older form has no ids.
        raw = {**part.raw, key: call_id}
        return Part(kind=part.kind, raw=raw, id=call_id, name=part.name, place=part.place)

    def answered(self, part: Part, text: str, /) -> Message:
        """Write another content into a result."""
        return {**part.raw, "content": text}

    def lost(self, call: Part, /) -> Part:
        """Answer a call with the error that its result was lost."""
        if "function_call" in call.raw:
            raw = {"role": "function", "name": call.name, "content": LOST}
        elif not self.needs_ids and not call.id:
            raw = {"role": "tool", "tool_name": call.name, "content": LOST}
        else:
            raw = {"role": "tool", "tool_call_id": call.id, "content": LOST}
        return Part(kind=Kind.RESULT, raw=raw, id=call.id, name=call.name)

    def messages(self, parts: Sequence[Part], /) -> list[Message]:
        """Each result is a message."""
        return [part.raw for part in parts]

    def say(self, text: str, /) -> Message:
        """Write a message of the user's."""
        return {"role": "user", "content": text}

    def text(self, text: str, /) -> Part:
        """All of a message."""
        return Part(kind=Kind.OTHER, raw=self.say(text))


_CALLS = ("tool_calls", "function_call")


def _call(entry: dict[str, Any], place: str) -> Part:
    kind = entry.get("type")
    told = entry.get("custom" if kind == "custom" else "function")
    name = word(told.get("name")) if is_object(told) else ""
    return Part(kind=Kind.CALL, raw=entry, id=word(entry.get("id")), name=name, place=place)
