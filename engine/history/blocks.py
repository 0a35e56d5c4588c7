"""Histories in which results are parts of the user's next message: Anthropic, Google, Bedrock.

What a provider runs itself stands, with its results, in the model's own messages, and is let alone.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

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


class Blocks(ABC):
    """What the three have in common: a role, and a list of blocks."""

    name: ClassVar[str]
    pairs = Pairs.NEXT
    needs_ids = True
    alternates = False
    key: ClassVar[str] = "content"
    """Where a message has its blocks."""
    roles: ClassVar[tuple[str, ...]] = ("user", "assistant")

    def side(self, message: Message, /) -> Side:
        """By its role."""
        role = message.get("role")
        if role == "system":
            return Side.SYSTEM
        return Side.MODEL if role in ("assistant", "model") else Side.USER

    def parts(self, message: Message, where: str, /) -> list[Part]:
        """Each block is a part; a text alone is one, too."""
        if self.key not in message:
            raise HistoryError(where, f"a message without {self.key}")
        self.see_role(message, where)
        blocks = message[self.key]
        if isinstance(blocks, str):
            return [Part(kind=Kind.OTHER, raw=blocks)]
        if not is_list(blocks):
            raise HistoryError(f"{where}.{self.key}", f"expected a list, not {_kind(blocks)}")
        found: list[Part] = []
        model = self.side(message) is Side.MODEL
        for index, block in enumerate(blocks):
            place = f".{self.key}[{index}]"
            given = block if isinstance(block, str) else object_at(block, f"{where}{place}")
            part = self.part(given, place) if is_object(given) else None
            if part is not None and (part.kind is Kind.CALL) is not model:
                whose = "the model's" if model else "the user's"
                raise HistoryError(f"{where}{place}", f"a {part.kind.value} in {whose} message")
            found.append(part or Part(kind=Kind.OTHER, raw=given, place=place))
        return found

    def see_role(self, message: Message, where: str) -> None:
        """See that the role is one of the format."""
        role_of(message, where, self.roles)

    @abstractmethod
    def part(self, block: dict[str, Any], place: str) -> Part | None:
        """Read a call or a result; None for anything else."""

    def build(self, message: Message, parts: Sequence[Part], /) -> Message:
        """Write other blocks in their place."""
        raws = [
            self.text(part.raw).raw if isinstance(part.raw, str) else part.raw for part in parts
        ]
        return {**message, self.key: raws}

    def messages(self, parts: Sequence[Part], /) -> list[Message]:
        """All in one message of the user's."""
        return [{"role": "user", self.key: [part.raw for part in parts]}]

    def say(self, text: str, /) -> Message:
        """Write a message of the user's."""
        return {"role": "user", self.key: [self.text(text).raw]}

    def text(self, text: str, /) -> Part:
        """Write a text as a block."""
        return Part(kind=Kind.OTHER, raw={"text": text})


class AnthropicBlocks(Blocks):
    """POST /v1/messages."""

    name = "anthropic-messages"
    pairs = Pairs.FIRST
    roles = ("user", "assistant", "system")

    def owns(self, message: Message, /) -> bool:
        """Whether it holds blocks that only this format has."""
        blocks = message.get("content")
        return is_list(blocks) and any(
            is_object(block)
            and block.get("type") in ("tool_use", "tool_result", "server_tool_use", "thinking")
            for block in blocks
        )

    def part(self, block: dict[str, Any], place: str) -> Part | None:
        """Read `tool_use` and `tool_result`."""
        match block.get("type"):
            case "tool_use":
                kind, key = Kind.CALL, "id"
            case "tool_result":
                kind, key = Kind.RESULT, "tool_use_id"
            case _:
                return None
        name = word(block.get("name"))
        return Part(kind=kind, raw=block, id=word(block.get(key)), name=name, place=place)

    def named(self, part: Part, call_id: str, /) -> Part:
        """Write another id into a block."""
        key = "id" if part.kind is Kind.CALL else "tool_use_id"
        return _renamed(part, {**part.raw, key: call_id}, call_id)

    def answered(self, part: Part, text: str, /) -> dict[str, Any]:
        """Write another content into a result."""
        return {**part.raw, "content": text}

    def lost(self, call: Part, /) -> Part:
        """Answer a call with the error that its result was lost."""
        raw = {"type": "tool_result", "tool_use_id": call.id, "content": LOST, "is_error": True}
        return Part(kind=Kind.RESULT, raw=raw, id=call.id, name=call.name)

    def text(self, text: str, /) -> Part:
        """Write a text as a block."""
        return Part(kind=Kind.OTHER, raw={"type": "text", "text": text})


class BedrockBlocks(Blocks):
    """The Converse API."""

    name = "bedrock-converse"
    alternates = True

    def owns(self, message: Message, /) -> bool:
        """Whether it holds blocks that only this format has."""
        blocks = message.get("content")
        return is_list(blocks) and any(
            is_object(block)
            and "type" not in block
            and bool(block.keys() & {"toolUse", "toolResult", "text", "reasoningContent"})
            for block in blocks
        )

    def part(self, block: dict[str, Any], place: str) -> Part | None:
        """Read `toolUse` and `toolResult`."""
        for key, kind in (("toolUse", Kind.CALL), ("toolResult", Kind.RESULT)):
            inner = block.get(key)
            if is_object(inner):
                name = word(inner.get("name"))
                call_id = word(inner.get("toolUseId"))
                return Part(kind=kind, raw=block, id=call_id, name=name, place=place)
        return None

    def named(self, part: Part, call_id: str, /) -> Part:
        """Write another id into a block."""
        key = "toolUse" if part.kind is Kind.CALL else "toolResult"
        raw = {**part.raw, key: {**part.raw[key], "toolUseId": call_id}}
        return _renamed(part, raw, call_id)

    def answered(self, part: Part, text: str, /) -> dict[str, Any]:
        """Write another content into a result."""
        inner = {**part.raw["toolResult"], "content": [{"text": text}]}
        return {**part.raw, "toolResult": inner}

    def lost(self, call: Part, /) -> Part:
        """Answer a call with the error that its result was lost."""
        inner = {"toolUseId": call.id, "content": [{"text": LOST}], "status": "error"}
        return Part(kind=Kind.RESULT, raw={"toolResult": inner}, id=call.id, name=call.name)


class GoogleBlocks(Blocks):
    """Generate-content, in either spelling. Many calls have no id."""

    name = "google-generate"
    key = "parts"
    needs_ids = False
    roles = ("user", "model", "function")

    def owns(self, message: Message, /) -> bool:
        """Whether it has parts."""
        return "parts" in message

    def see_role(self, message: Message, where: str) -> None:
        """A content without a role is the user's."""
        if message.get("role") is not None:
            super().see_role(message, where)

    def part(self, block: dict[str, Any], place: str) -> Part | None:
        """Read `functionCall` and `functionResponse`."""
        key = _google_key(block)
        if key is None:
            return None
        inner = block[key]
        kind = Kind.CALL if "all" in key else Kind.RESULT
        name = word(inner.get("name"))
        return Part(kind=kind, raw=block, id=word(inner.get("id")), name=name, place=place)

    def named(self, part: Part, call_id: str, /) -> Part:
        """Write another id into a part."""
        key = _google_key(part.raw)
        assert key is not None
        return _renamed(part, {**part.raw, key: {**part.raw[key], "id": call_id}}, call_id)

    def answered(self, part: Part, text: str, /) -> dict[str, Any]:
        """Write another response."""
        key = _google_key(part.raw)
        assert key is not None
        inner = {name: value for name, value in part.raw[key].items() if name != "parts"}
        return {**part.raw, key: {**inner, "response": {"output": text}}}

    def lost(self, call: Part, /) -> Part:
        """Answer a call with the error that its result was lost, in the call's own spelling."""
        key = "function_response" if "function_call" in call.raw else "functionResponse"
        inner: dict[str, Any] = {"id": call.id} if call.id else {}
        raw = {key: {**inner, "name": call.name, "response": {"error": LOST}}}
        return Part(kind=Kind.RESULT, raw=raw, id=call.id, name=call.name)


def _google_key(block: dict[str, Any]) -> str | None:
    names = ("functionCall", "function_call", "functionResponse", "function_response")
    return next((name for name in names if is_object(block.get(name))), None)


def _renamed(part: Part, raw: dict[str, Any], call_id: str) -> Part:
    return Part(kind=part.kind, raw=raw, id=call_id, name=part.name, place=part.place)


def _kind(value: object) -> str:
    return type(value).__name__
