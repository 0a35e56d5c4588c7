"""Ollama chat as a stream of JSON lines.

Calls come whole, each in one line, so each is complete when it comes; the message has ended well
with the line that says `done`.
"""

from typing import Any

from laneway.engine.providers.streams.reading import (
    Event,
    Texts,
    after_end,
    gather,
    list_in,
    object_in,
    raise_error,
    text_in,
)


class OllamaStream:
    """Reads the lines of POST /api/chat."""

    name = "ollama-chat"
    superseded = 0

    def __init__(self) -> None:
        """Start before the first line."""
        self.ended = False
        self._envelope: dict[str, Any] = {}
        self._message: dict[str, Any] = {}
        self._content = Texts()
        self._thinking = Texts()
        self._calls: list[Any] = []

    @staticmethod
    def recognises(event: Event, /) -> bool:
        """Whether it is one of these lines."""
        return "message" in event and "done" in event

    @property
    def complete(self) -> int:
        """All calls that have come."""
        return len(self._calls)

    def feed(self, event: Event, /) -> str:
        """Take in a line; see `StreamReader.feed`."""
        raise_error(self.name, event)
        message = object_in(event, "message")
        if self.ended:
            raise after_end(self.name)
        self._envelope.update({key: value for key, value in event.items() if key != "message"})
        gather(self._message, message, ("role", "content", "thinking", "tool_calls"))
        said = text_in(message, "content")
        self._content.add(said)
        self._thinking.add(text_in(message, "thinking"))
        self._calls += list_in(message, "tool_calls", "message")
        self.ended = event.get("done") is True
        return said

    def front(self) -> dict[str, Any]:
        """The answer so far."""
        return {**self.whole(), "done": False, "done_reason": None}

    def whole(self) -> dict[str, Any]:
        """The answer with all that has come."""
        message = {"role": "assistant", "content": str(self._content), **self._message}
        if str(self._thinking):
            message["thinking"] = str(self._thinking)
        if self._calls:
            message["tool_calls"] = [*self._calls]
        return {**self._envelope, "message": message}
