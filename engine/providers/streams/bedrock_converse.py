"""Bedrock converse-stream as decoded events: one dict each, as botocore gives them.

A call is complete when its content block has stopped; the message has ended well at `messageStop`.
Text blocks have no start of their own.
"""

from typing import Any

from laneway.engine.providers.faults import refused
from laneway.engine.providers.streams.reading import (
    Event,
    Texts,
    after_end,
    arguments_in,
    gather,
    index_in,
    object_in,
    raise_error,
    text_in,
)

_KINDS = (
    "messageStart",
    "contentBlockStart",
    "contentBlockDelta",
    "contentBlockStop",
    "messageStop",
    "metadata",
)


class BedrockStream:
    """Reads the events of ConverseStream."""

    name = "bedrock-converse"

    def __init__(self) -> None:
        """Start before the first event."""
        self.ended = False
        self.superseded = 0
        self._begun = False
        self._role = "assistant"
        self._beside: dict[str, Any] = {}
        self._blocks: list[_Block] = []
        self._by_index: dict[int, _Block] = {}

    @staticmethod
    def recognises(event: Event, /) -> bool:
        """Whether it is one of these events."""
        return len(event) == 1 and next(iter(event)) in _KINDS

    @property
    def complete(self) -> int:
        """The calls at the front whose blocks have stopped."""
        return sum(block.is_call for block in self._front())

    def feed(self, event: Event, /) -> str:
        """Take in an event; see `StreamReader.feed`."""
        raise_error(self.name, event)
        for kind in event:
            told = object_in(event, kind)
            match kind:
                case "messageStart":
                    self._start(told)
                case "contentBlockStart":
                    self._block(told, fresh=True).put(object_in(told, "start"))
                case "contentBlockDelta":
                    return self._block(told).grow(object_in(told, "delta"))
                case "contentBlockStop":
                    self._block(told).stopped = True
                case "messageStop":
                    self._beside.update(told)
                    self.ended = True
                case "metadata":
                    self._beside.update(told)
                case _ if kind.endswith("Exception"):
                    raise refused(self.name, {"type": kind, **told})
                case _:
                    pass
        return ""

    def front(self) -> dict[str, Any]:
        """The answer up to the first call whose block has not stopped."""
        return self._payload(self._front(), {})

    def whole(self) -> dict[str, Any]:
        """The answer with all that has come."""
        return self._payload(self._blocks, self._beside)

    def _payload(self, blocks: "list[_Block]", beside: dict[str, Any]) -> dict[str, Any]:
        content = [block.told() for block in blocks]
        return {"output": {"message": {"role": self._role, "content": content}}, **beside}

    def _start(self, told: dict[str, Any]) -> None:
        if self.ended:
            raise after_end(self.name)
        if self._begun or self._blocks:
            self.superseded += 1
        self._begun = True
        self._role = text_in(told, "role") or self._role
        self._blocks, self._by_index = [], {}

    def _block(self, told: dict[str, Any], *, fresh: bool = False) -> "_Block":
        if self.ended:
            raise after_end(self.name)
        index = index_in(told, "contentBlockIndex")
        known = self._by_index.get(index) if index is not None else None
        if index is None and self._blocks:
            known = self._blocks[-1]
        if known is None or fresh:
            known = _Block()
            self._blocks.append(known)
            if index is not None:
                self._by_index[index] = known
        return known

    def _front(self) -> "list[_Block]":
        for at, block in enumerate(self._blocks):
            if block.is_call and not block.stopped:
                return self._blocks[:at]
        return self._blocks


class _Block:
    """A content block, as far as it has come."""

    def __init__(self) -> None:
        self.stopped = False
        self._told: dict[str, Any] = {}
        self._text: Texts | None = None
        self._input: Texts | None = None

    @property
    def is_call(self) -> bool:
        return "toolUse" in self._told

    def put(self, start: dict[str, Any]) -> None:
        gather(self._told, start)

    def grow(self, delta: dict[str, Any]) -> str:
        said = text_in(delta, "text")
        if "text" in delta:
            self._text = self._text or Texts()
            self._text.add(said)
        if "toolUse" in delta:
            self._told.setdefault("toolUse", {})
            self._input = self._input or Texts()
            self._input.add(text_in(object_in(delta, "toolUse"), "input", "toolUse"))
        if "reasoningContent" in delta:
            self._think(object_in(delta, "reasoningContent"))
        gather(self._told, delta, ("text", "toolUse", "reasoningContent"))
        return said

    def _think(self, delta: dict[str, Any]) -> None:
        thought: dict[str, Any] = self._told.setdefault("reasoningContent", {})
        if "redactedContent" in delta:
            thought["redactedContent"] = delta["redactedContent"]
        told = {key: value for key, value in delta.items() if key in ("text", "signature")}
        if told:
            gather(thought.setdefault("reasoningText", {}), told)

    def told(self) -> dict[str, Any]:
        told = dict(self._told)
        if self._text is not None:
            told["text"] = str(self._text)
        if self.is_call:
            call = object_in(told, "toolUse")
            text = "" if self._input is None else str(self._input)
            told["toolUse"] = {
                **call,
                "input": arguments_in(text) if text else call.get("input", {}),
            }
        return told
