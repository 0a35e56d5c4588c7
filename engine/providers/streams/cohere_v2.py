"""Cohere chat v2 as a stream of events.

A call is complete at `tool-call-end`; the message has ended well at `message-end`.
"""

from typing import Any

from laneway.engine.providers.faults import refused
from laneway.engine.providers.streams.reading import (
    Event,
    Texts,
    after_end,
    gather,
    index_in,
    object_in,
    raise_error,
    text_in,
)

_KINDS = ("message-", "content-", "tool-plan-", "tool-call-", "citation-")


class CohereStream:
    """Reads the events of POST /v2/chat."""

    name = "cohere-v2"

    def __init__(self) -> None:
        """Start before the first event."""
        self.ended = False
        self.superseded = 0
        self._envelope: dict[str, Any] | None = None
        self._message: dict[str, Any] = {}
        self._plan = Texts()
        self._content: list[dict[str, Any]] = []
        self._citations: list[Any] = []
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}

    @staticmethod
    def recognises(event: Event, /) -> bool:
        """Whether it is one of these events."""
        kind = event.get("type")
        return isinstance(kind, str) and kind.startswith(_KINDS)

    @property
    def complete(self) -> int:
        """The calls at the front that have ended."""
        return next((at for at, one in enumerate(self._calls) if not one.ended), len(self._calls))

    def feed(self, event: Event, /) -> str:
        """Take in an event; see `StreamReader.feed`."""
        raise_error(self.name, event)
        delta = object_in(event, "delta")
        message = object_in(delta, "message", "delta")
        match text_in(event, "type"):
            case "message-start":
                self._start(event, message)
            case "content-start" | "content-delta" as kind:
                return self._say(object_in(message, "content"), fresh=kind == "content-start")
            case "tool-plan-delta":
                self._plan.add(text_in(message, "tool_plan"))
            case "tool-call-start":
                self._call(event, fresh=True).add(object_in(message, "tool_calls"))
            case "tool-call-delta":
                self._call(event).add(object_in(message, "tool_calls"))
            case "tool-call-end":
                self._call(event).ended = True
            case "citation-start":
                self._citations.append(message.get("citations"))
            case "message-end":
                self._end(delta)
            case _:
                pass
        return ""

    def front(self) -> dict[str, Any]:
        """The answer with the calls at its front that have ended."""
        return self._payload(self._calls[: self.complete], front=True)

    def whole(self) -> dict[str, Any]:
        """The answer with all that has come."""
        return self._payload(self._calls)

    def _payload(self, calls: "list[_Call]", *, front: bool = False) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", **self._message}
        parts = {
            "tool_plan": str(self._plan),
            "content": self._content,
            "citations": self._citations,
            "tool_calls": [call.told() for call in calls],
        }
        message |= {key: value for key, value in parts.items() if value}
        envelope = dict(self._envelope or {})
        if front:
            envelope.pop("finish_reason", None)
        return {**envelope, "message": message}

    def _start(self, event: Event, message: dict[str, Any]) -> None:
        if self.ended:
            raise after_end(self.name)
        if self._envelope is not None:
            self.superseded += 1
        name = text_in(event, "id")
        self._envelope = {"id": name} if name else {}
        empty = ("content", "tool_plan", "tool_calls", "citations")
        self._message = {key: value for key, value in message.items() if key not in empty}
        self._plan, self._content, self._citations = Texts(), [], []
        self._calls, self._by_index = [], {}

    def _say(self, content: dict[str, Any], *, fresh: bool) -> str:
        if fresh or not self._content:
            self._content.append({"type": "text"} | content)
        else:
            gather(self._content[-1], content, ("type",))
        return text_in(content, "text")

    def _call(self, event: Event, *, fresh: bool = False) -> "_Call":
        index = index_in(event, "index")
        known = self._by_index.get(index) if index is not None else None
        if index is None and self._calls:
            known = self._calls[-1]
        if known is None or fresh:
            known = _Call()
            self._calls.append(known)
            if index is not None:
                self._by_index[index] = known
        return known

    def _end(self, delta: dict[str, Any]) -> None:
        if self.ended:
            raise after_end(self.name)
        if delta.get("finish_reason") == "ERROR" or delta.get("error"):
            raise refused(self.name, delta.get("error") or "the answer broke off")
        self._envelope = {**(self._envelope or {}), **delta}
        self.ended = True


class _Call:
    """A call, as far as it has come."""

    def __init__(self) -> None:
        self.ended = False
        self._told: dict[str, Any] = {}
        self._function: dict[str, Any] = {}
        self._text = Texts()

    def add(self, given: dict[str, Any]) -> None:
        self._told.update({key: value for key, value in given.items() if key != "function"})
        function = object_in(given, "function", "tool_calls")
        gather(self._function, function, ("arguments",))
        self._text.add(text_in(function, "arguments", "function"))

    def told(self) -> dict[str, Any]:
        return {**self._told, "function": {**self._function, "arguments": str(self._text)}}
