"""Anthropic messages as a stream of events: blocks that begin, grow and stop.

A call is complete when its block has stopped; the message has ended well at `message_stop`. A
second `message_start` before that takes the place of what was half-sent: the server has begun
again. Deltas without `index` belong to the block that began last.
"""

from typing import Any

from laneway.engine.providers.streams.reading import (
    Event,
    Texts,
    after_end,
    arguments_in,
    gather,
    index_in,
    object_in,
    objects_in,
    raise_error,
    text_in,
)
from laneway.errors import PayloadError

_GROWING = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}
_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")


class AnthropicStream:
    """Reads the events of POST /v1/messages."""

    name = "anthropic-messages"

    def __init__(self) -> None:
        """Start before the first event."""
        self.ended = False
        self.superseded = 0
        self._message: dict[str, Any] | None = None
        self._blocks: list[_Block] = []
        self._by_index: dict[int, _Block] = {}

    @staticmethod
    def recognises(event: Event, /) -> bool:
        """Whether it is one of Anthropic's events."""
        kind = event.get("type")
        return isinstance(kind, str) and (
            kind.startswith(("message_", "content_block_")) or kind == "ping"
        )

    @property
    def complete(self) -> int:
        """The calls at the front whose blocks have stopped."""
        return sum(block.is_call for block in self._front())

    def feed(self, event: Event, /) -> str:
        """Take in an event; see `StreamReader.feed`."""
        raise_error(self.name, event)
        match text_in(event, "type"):
            case "message_start":
                self._start(object_in(event, "message"))
            case "content_block_start":
                self._begin(event)
            case "content_block_delta":
                return self._grow(event)
            case "content_block_stop":
                self._block(event).stopped = True
            case "message_delta":
                message = self._begun()
                message.update(object_in(event, "delta"))
                gather_usage(message, event)
            case "message_stop":
                self._begun()
                self.ended = True
            case _:
                pass  # ping, and what later versions of the format bring
        return ""

    def front(self) -> dict[str, Any]:
        """The message up to the first call whose block has not stopped."""
        return self._payload(self._front(), stop_reason=None)

    def whole(self) -> dict[str, Any]:
        """The message with all that has come."""
        return self._payload(self._blocks)

    def _payload(self, blocks: "list[_Block]", **changed: Any) -> dict[str, Any]:
        told = {"type": "message", "role": "assistant", **(self._message or {})}
        return {**told, "content": [block.told() for block in blocks], **changed}

    def _start(self, message: dict[str, Any]) -> None:
        if self.ended:
            raise after_end(self.name)
        if self._message is not None:
            self.superseded += 1
        # What a program of the provider's own calls is sent whole with the first event.
        given = objects_in(message, "content", "message")
        self._message, self._by_index = dict(message), {}
        self._blocks = [_Block(block, stopped=True) for block in given]

    def _begun(self) -> dict[str, Any]:
        if self._message is None:
            self._message = {}  # Fixtures and proxies leave the first event out.
        return self._message

    def _begin(self, event: Event) -> None:
        self._begun()
        if self.ended:
            raise after_end(self.name)
        block = _Block(object_in(event, "content_block"))
        self._blocks.append(block)
        index = index_in(event, "index")
        if index is not None:
            self._by_index[index] = block

    def _block(self, event: Event) -> "_Block":
        index = index_in(event, "index")
        if index is None and self._blocks:
            return self._blocks[-1]
        if index not in self._by_index:
            raise PayloadError("index", f"no content block {index} has begun")
        return self._by_index[index]

    def _grow(self, event: Event) -> str:
        delta = object_in(event, "delta")
        self._block(event).grow(delta)
        return text_in(delta, "text") if delta.get("type") == "text_delta" else ""

    def _front(self) -> "list[_Block]":
        for at, block in enumerate(self._blocks):
            if block.is_call and not block.stopped:
                return self._blocks[:at]
        return self._blocks


def gather_usage(message: dict[str, Any], event: Event) -> None:
    """Put the final count of tokens in the place of the first."""
    usage = object_in(event, "usage")
    if usage:
        message["usage"] = {**object_in(message, "usage"), **usage}


class _Block:
    """A content block, as far as it has come."""

    def __init__(self, first: dict[str, Any], *, stopped: bool = False) -> None:
        self.stopped = stopped
        self._told = dict(first)
        self._kind = text_in(first, "type")
        self.is_call = self._kind in _CALLS
        self._texts: dict[str, Texts] = {}
        self._input: Texts | None = None

    def grow(self, delta: dict[str, Any]) -> None:
        kind = text_in(delta, "type")
        if kind == "input_json_delta":
            self._input = self._input or Texts()
            self._input.add(text_in(delta, "partial_json"))
        elif kind in _GROWING:
            field = _GROWING[kind]
            if field not in self._texts:
                self._texts[field] = Texts(text_in(self._told, field))
            self._texts[field].add(text_in(delta, field))
        elif kind == "citations_delta":
            cited: Any = self._told.get("citations") or []
            self._told["citations"] = [*cited, delta.get("citation")]
        else:
            gather(self._told, delta, ("type",))

    def told(self) -> dict[str, Any]:
        told = {**self._told, **{field: str(text) for field, text in self._texts.items()}}
        text = "" if self._input is None else str(self._input)
        if text:
            told["input"] = arguments_in(text)
        return told
