"""Histories that are flat lists of items: OpenAI responses, Google interactions.

A result may stand anywhere behind its call. What stands on the provider's side (an earlier response
or interaction, a reference to an item) may hold the call of a result.
"""

from collections.abc import Sequence
from typing import Any

from laneway.engine.history.parts import LOST, Kind, Message, Pairs, Part, Side, word
from laneway.engine.kinds import is_object
from laneway.errors import HistoryError

OUTPUTS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "tool_search_call": "tool_search_output",
    "mcp_approval_request": "mcp_approval_response",
}
"""Of each item that is ours to answer, the item that answers it."""
_SEARCH = ("tool_search_call", "tool_search_output")
_RESULTS = frozenset(OUTPUTS.values())


class Items:
    """What both have in common."""

    pairs = Pairs.LATER
    alternates = False
    needs_ids = True

    def build(self, message: Message, parts: Sequence[Part], /) -> Message:
        """An item is one part."""
        return next((part.raw for part in parts), message)

    def messages(self, parts: Sequence[Part], /) -> list[Message]:
        """Each result is an item."""
        return [part.raw for part in parts]


class ResponsesItems(Items):
    """POST /v1/responses."""

    name = "openai-responses"

    def owns(self, message: Message, /) -> bool:
        """Whether it is an item that only this format has."""
        kind = message.get("type")
        if kind == "function_call":
            return "call_id" in message
        return kind in OUTPUTS or kind in _RESULTS or kind in ("reasoning", "item_reference")

    def side(self, message: Message, /) -> Side:
        """By its role, or by its type."""
        role, kind = message.get("role"), message.get("type")
        if role in ("system", "developer"):
            return Side.SYSTEM
        if role == "user" or kind in _RESULTS:
            return Side.USER
        return Side.MODEL

    def parts(self, message: Message, where: str, /) -> list[Part]:
        """An item is one part."""
        kind = message.get("type")
        if not isinstance(kind, str) and not isinstance(message.get("role"), str):
            raise HistoryError(where, "an item without a type or a role")
        answers = _told_id(message)
        if kind in _SEARCH and message.get("execution") != "client":
            return [Part(kind=Kind.OTHER, raw=message)]  # The provider searches by itself.
        if kind in OUTPUTS and (answers or kind == "function_call"):
            name = word(message.get("name")) or str(kind)
            return [Part(kind=Kind.CALL, raw=message, id=answers, name=name)]
        if kind in _RESULTS and (answers or kind == "function_call_output"):
            return [Part(kind=Kind.RESULT, raw=message, id=answers)]
        return [Part(kind=Kind.OTHER, raw=message)]

    def named(self, part: Part, call_id: str, /) -> Part:
        """Write another id into an item."""
        key = _id_key(part.raw)
        return Part(kind=part.kind, raw={**part.raw, key: call_id}, id=call_id, name=part.name)

    def answered(self, part: Part, text: str, /) -> Message:
        """Write another output, where it is a text."""
        if part.raw["type"] in ("function_call_output", "custom_tool_call_output"):
            return {**part.raw, "output": text}
        return part.raw  # type: ignore[no-any-return]

    def lost(self, call: Part, /) -> Part | None:
        """Answer a call with the error that its result was lost, where the output can say it."""
        kind = OUTPUTS[call.raw["type"]]
        raw: Message = {"type": kind, "call_id": call.id}
        match kind:
            case "function_call_output" | "custom_tool_call_output":
                raw["output"] = LOST
            case "local_shell_call_output":
                raw = {"type": kind, "id": call.id, "output": LOST}
            case "apply_patch_call_output":
                raw |= {"status": "failed", "output": LOST}
            case "shell_call_output":
                ended = {"type": "exit", "exit_code": 1}
                raw["output"] = [{"stdout": "", "stderr": LOST, "outcome": ended}]
            case _:
                return None
        return Part(kind=Kind.RESULT, raw=raw, id=call.id, name=call.name)

    def say(self, text: str, /) -> Message:
        """Write a message of the user's."""
        return {"role": "user", "content": text}

    def text(self, text: str, /) -> Part:
        """All of an item."""
        return Part(kind=Kind.OTHER, raw=self.say(text))


class InteractionsItems(Items):
    """POST …/interactions."""

    name = "google-interactions"

    def owns(self, message: Message, /) -> bool:
        """Whether it is a step that only this format has."""
        return message.get("type") in ("user_input", "model_output", "function_result") or (
            message.get("type") == "function_call" and "call_id" not in message
        )

    def side(self, message: Message, /) -> Side:
        """By its type."""
        users = message.get("role") == "user" or message.get("type") in (
            "user_input",
            "function_result",
        )
        return Side.USER if users else Side.MODEL

    def parts(self, message: Message, where: str, /) -> list[Part]:
        """A step is one part."""
        kind = message.get("type")
        if not isinstance(kind, str) and not isinstance(message.get("role"), str):
            raise HistoryError(where, "a step without a type")
        name = word(message.get("name"))
        if kind == "function_call":
            return [Part(kind=Kind.CALL, raw=message, id=word(message.get("id")), name=name)]
        if kind == "function_result":
            call_id = word(message.get("call_id"))
            return [Part(kind=Kind.RESULT, raw=message, id=call_id, name=name)]
        return [Part(kind=Kind.OTHER, raw=message)]

    def named(self, part: Part, call_id: str, /) -> Part:
        """Write another id into a step."""
        key = "id" if part.kind is Kind.CALL else "call_id"
        return Part(kind=part.kind, raw={**part.raw, key: call_id}, id=call_id, name=part.name)

    def answered(self, part: Part, text: str, /) -> Message:
        """Write another result."""
        return {**part.raw, "result": text}

    def lost(self, call: Part, /) -> Part:
        """Answer a call with the error that its result was lost."""
        raw = {"type": "function_result", "call_id": call.id, "name": call.name, "result": LOST}
        return Part(kind=Kind.RESULT, raw={**raw, "is_error": True}, id=call.id, name=call.name)

    def say(self, text: str, /) -> Message:
        """Write a step of the user's."""
        return {"type": "user_input", "content": [{"type": "text", "text": text}]}

    def text(self, text: str, /) -> Part:
        """All of a step."""
        return Part(kind=Kind.OTHER, raw=self.say(text))


def _id_key(item: Message) -> str:
    kind = item.get("type")
    if kind == "mcp_approval_request":
        return "id"
    if kind == "mcp_approval_response":
        return "approval_request_id"
    return "id" if kind == "local_shell_call_output" and "call_id" not in item else "call_id"


def _told_id(item: Message) -> str:
    return word(item.get(_id_key(item)))


def is_continued(items: Sequence[Any]) -> bool:
    """Whether items stand on the provider's side: their calls are not to be seen here."""
    return any(is_object(item) and item.get("type") == "item_reference" for item in items)
