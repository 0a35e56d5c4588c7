"""OpenAI chat completions as a stream of chunks, and every server that speaks like it.

The format has no word for the end of a call: fragments of several calls may come in turns. A call
counts as complete when its text is one whole object and another call has begun behind it, or the
choice has finished. If more text comes for it all the same, the whole message says otherwise, and
what was begun early is given up.

Servers that leave out `index` or `id`, give one index to several calls, send names again with each
fragment, or an empty object ahead of the real one, are met in `_Calls.find` and `_Call.add`.
"""

from typing import Any

from laneway.engine.providers.payload import ENCODE
from laneway.engine.providers.streams.reading import (
    Event,
    Texts,
    after_end,
    gather,
    index_in,
    is_whole,
    list_in,
    object_in,
    objects_in,
    raise_error,
    text_in,
)


class OpenAIChatStream:
    """Reads chunks of POST /v1/chat/completions."""

    name = "openai-chat"
    superseded = 0

    def __init__(self) -> None:
        """Start before the first chunk."""
        self._envelope: dict[str, Any] = {}
        self._choices: dict[int, _Choice] = {}

    @staticmethod
    def recognises(event: Event, /) -> bool:
        """Whether it is a chunk."""
        return event.get("object") == "chat.completion.chunk" or "choices" in event

    @property
    def ended(self) -> bool:
        """Whether every choice says why it has finished."""
        return bool(self._choices) and all(one.finish for one in self._choices.values())

    @property
    def complete(self) -> int:
        """The calls at the front that are complete; none where there are alternatives."""
        if len(self._choices) != 1:
            return 0
        (choice,) = self._choices.values()
        return choice.complete

    def feed(self, event: Event, /) -> str:
        """Take in a chunk; see `StreamReader.feed`."""
        raise_error(self.name, event)
        known = self._envelope.get("id")
        if self.ended and known and event.get("id") not in (None, "", known):
            raise after_end(self.name)
        told = {key: value for key, value in event.items() if key != "choices"}
        self._envelope.update(told if not self._envelope else _newer(told, self._envelope))
        said = ""
        for given in objects_in(event, "choices"):
            index = index_in(given, "index") or 0
            choice = self._choices.setdefault(index, _Choice())
            text = choice.feed(given)
            said += text if index == 0 else ""
        return said

    def front(self) -> dict[str, Any]:
        """The message with the calls at its front that are complete."""
        return self._payload(front=True)

    def whole(self) -> dict[str, Any]:
        """The completion with all that has come."""
        return self._payload(front=False)

    def _payload(self, *, front: bool) -> dict[str, Any]:
        choices = [
            {"index": index, **choice.told(front=front)}
            for index, choice in sorted(self._choices.items())
        ]
        return {**self._envelope, "object": "chat.completion", "choices": choices}


def _newer(told: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """What a later chunk adds; the id stays that of the first."""
    return {
        key: value
        for key, value in told.items()
        if value is not None and not (key in ("id", "created", "model") and known.get(key))
    }


class _Choice:
    """One of the alternatives; there is nearly always one."""

    def __init__(self) -> None:
        self.message: dict[str, Any] = {}
        self.content = Texts()
        self.has_content = False
        self.calls = _Calls()
        self.function: _Call | None = None
        self.finish = ""
        self.beside: dict[str, Any] = {}

    @property
    def complete(self) -> int:
        if self.finish:
            return len(self.calls.entries) + (self.function is not None)
        return self.calls.front

    def feed(self, given: Event) -> str:
        gather(self.beside, given, ("index", "delta", "message", "finish_reason"))
        delta = object_in(given, "delta") or object_in(given, "message")
        gather(self.message, delta, ("content", "tool_calls", "function_call", "role"))
        self.message["role"] = text_in(delta, "role") or self.message.get("role", "assistant")
        said = self._say(delta.get("content"))
        for entry in objects_in(delta, "tool_calls", "delta"):
            self.calls.add(entry)
        if delta.get("function_call") is not None:
            if self.function is None:
                self.function = _Call({})
            self.function.add({"function": object_in(delta, "function_call", "delta")})
        self.finish = text_in(given, "finish_reason") or self.finish
        return said

    def _say(self, content: object) -> str:
        """Take in a text, or a list of parts, as Mistral sends where the model thinks."""
        if content is None:
            return ""
        self.has_content = True
        if isinstance(content, str):
            self.content.add(content)
            return content
        parts = self.message.setdefault("content", [])
        for part in list_in({"content": content}, "content", "delta"):
            parts.append(part)
        return ""

    def told(self, *, front: bool) -> dict[str, Any]:
        message = dict(self.message)
        text = str(self.content)
        parts: Any = message.pop("content", None)
        if parts:
            message["content"] = [*parts, {"type": "text", "text": text}] if text else parts
        else:
            message["content"] = text if self.has_content else None
        entries = self.calls.entries[: self.complete] if front else self.calls.entries
        if entries:
            message["tool_calls"] = [entry.told() for entry in entries]
        if self.function is not None and not (front and not self.finish):
            message["function_call"] = self.function.told()["function"]
        finish = None if front else self.finish or None
        return {**self.beside, "message": message, "finish_reason": finish}


class _Calls:
    """The calls of a message, in the order in which they began."""

    def __init__(self) -> None:
        self.entries: list[_Call] = []
        self.front = 0
        """How many at the front are complete while the message goes on."""
        self._by_index: dict[int, _Call] = {}

    def add(self, entry: Event) -> None:
        index = index_in(entry, "index")
        call = self._find(entry, index)
        if call is None:
            call = _Call(entry)
            self.entries.append(call)
        if index is not None:
            self._by_index[index] = call
        call.add(entry)
        while self.front < len(self.entries) - 1 and self.entries[self.front].is_whole:
            self.front += 1

    def _find(self, entry: Event, index: int | None) -> "_Call | None":
        """Find the call that a fragment continues; None if it begins another."""
        given = text_in(entry, "id")
        if index is not None:
            call = self._by_index.get(index)
        elif given:
            return next((one for one in self.entries if one.id == given), None)
        else:
            call = self.entries[-1] if self.entries else None
        if call is None:
            return None
        if given and call.id and given != call.id:  # One index for several calls.
            return next((one for one in self.entries if one.id == given), None)
        named = object_in(entry, "function").get("name")
        if not given and named and call.name and call.text.strip() != "{}" and call.is_whole:
            return None
        return call


class _Call:
    """One call, as far as it has come."""

    def __init__(self, entry: Event) -> None:
        self.id = text_in(entry, "id")
        self.name = ""
        self._beside: dict[str, Any] = {}
        self._function: dict[str, Any] = {}
        self._text = Texts()
        self._custom: Texts | None = None
        self._whole: bool | None = None

    @property
    def text(self) -> str:
        return str(self._text if self._custom is None else self._custom)

    @property
    def is_whole(self) -> bool:
        """Whether the arguments are one whole object. Of a free text nobody can say."""
        if self._whole is None:
            self._whole = self._custom is None and is_whole(self.text)
        return self._whole

    def add(self, entry: Event) -> None:
        gather(self._beside, entry, ("index", "id", "function", "custom", "type"))
        self.id = self.id or text_in(entry, "id")
        if entry.get("type"):
            self._beside["type"] = entry["type"]
        for kind, field in (("function", "arguments"), ("custom", "input")):
            part = object_in(entry, kind)
            if not part:
                continue
            gather(self._function, part, ("name", field))
            self._add_name(text_in(part, "name", kind))
            if kind == "custom" and self._custom is None:
                self._custom = Texts()
            self._add_text(part.get(field))

    def _add_name(self, name: str) -> None:
        if name != self.name:  # Else it is sent again with each fragment.
            self.name += name

    def _add_text(self, given: object) -> None:
        if given is None:
            return
        self._whole = None
        piece = given if isinstance(given, str) else ENCODE(given).decode()
        if self._custom is not None:
            self._custom.add(piece)
        elif piece.lstrip().startswith("{") and self.text.strip() == "{}":
            self._text = Texts(piece)  # An empty object stood in for the one that comes now.
        else:
            self._text.add(piece)

    def told(self) -> dict[str, Any]:
        entry: dict[str, Any] = {"id": self.id} if self.id else {}
        entry |= self._beside
        if self._custom is not None:
            entry.setdefault("type", "custom")
            entry["custom"] = {**self._function, "name": self.name, "input": str(self._custom)}
        else:
            entry["function"] = {**self._function, "name": self.name, "arguments": self.text}
        return entry
