"""Google generate-content as a stream of partial responses, of Gemini and of Vertex.

Calls come whole in one part; with streamed arguments (Vertex), in parts that say `willContinue`
until one does not. The message has ended well when its candidates say why they have finished, or
the prompt was blocked. Texts that follow one another are one part.
"""

import re
from typing import Any

from laneway.engine.kinds import is_list, is_object
from laneway.engine.providers.streams.reading import (
    Event,
    gather,
    index_in,
    object_in,
    objects_in,
    raise_error,
    text_in,
)
from laneway.errors import PayloadError

_PATH = re.compile(r"\.([A-Za-z_][\w-]*)|\[(\d{1,4})\]|\[['\"]([^'\"]*)['\"]\]")
_VALUES = ("stringValue", "numberValue", "boolValue", "nullValue")


class GoogleStream:
    """Reads what streamGenerateContent sends."""

    name = "google-generate"
    superseded = 0

    def __init__(self) -> None:
        """Start before the first event."""
        self._envelope: dict[str, Any] = {}
        self._candidates: dict[int, _Candidate] = {}
        self._blocked = False

    @staticmethod
    def recognises(event: Event, /) -> bool:
        """Whether it is a partial response."""
        return any(key in event for key in ("candidates", "promptFeedback", "usageMetadata"))

    @property
    def ended(self) -> bool:
        """Whether every candidate says why it has finished."""
        finished = [one.finished for one in self._candidates.values()]
        return self._blocked or (bool(finished) and all(finished))

    @property
    def complete(self) -> int:
        """The calls at the front; none where there are alternatives."""
        if len(self._candidates) != 1:
            return 0
        (candidate,) = self._candidates.values()
        return sum("functionCall" in part for part in candidate.front())

    def feed(self, event: Event, /) -> str:
        """Take in a partial response; see `StreamReader.feed`."""
        raise_error(self.name, event)
        told = {key: value for key, value in event.items() if key != "candidates"}
        self._envelope.update({key: value for key, value in told.items() if value is not None})
        self._blocked = self._blocked or bool(object_in(event, "promptFeedback").get("blockReason"))
        said = ""
        for given in objects_in(event, "candidates"):
            index = index_in(given, "index") or 0
            candidate = self._candidates.setdefault(index, _Candidate())
            text = candidate.feed(given)
            said += text if index == 0 else ""
        return said

    def front(self) -> dict[str, Any]:
        """The message up to the first call that is not complete."""
        return self._payload(front=True)

    def whole(self) -> dict[str, Any]:
        """The response with all that has come."""
        return self._payload(front=False)

    def _payload(self, *, front: bool) -> dict[str, Any]:
        if not self._candidates:
            return dict(self._envelope)
        candidates = [one.told(front=front) for _, one in sorted(self._candidates.items())]
        return {**self._envelope, "candidates": candidates}


class _Candidate:
    """One of the alternatives; there is nearly always one."""

    def __init__(self) -> None:
        self.finished = False
        self._beside: dict[str, Any] = {}
        self._role = "model"
        self._parts: list[dict[str, Any]] = []
        self._open: _Partial | None = None
        """The call at the end whose arguments still come."""

    def feed(self, given: Event) -> str:
        beside = {key: value for key, value in given.items() if key != "content"}
        self._beside.update({key: value for key, value in beside.items() if value is not None})
        content = object_in(given, "content", "candidates")
        self._role = text_in(content, "role") or self._role
        said = "".join(self._add(part) for part in objects_in(content, "parts", "content"))
        self.finished = self.finished or bool(given.get("finishReason"))
        return said

    def _add(self, part: dict[str, Any]) -> str:
        if "functionCall" in part:
            self._call(part)
            return ""
        text = part.get("text")
        if isinstance(text, str) and self._joins(part):
            last = self._parts[-1]
            self._parts[-1] = {**last, "text": last["text"] + text}
        elif part:
            self._parts.append(dict(part))
        return text if isinstance(text, str) and not part.get("thought") else ""

    def _joins(self, part: dict[str, Any]) -> bool:
        """Whether a text goes on where the last one stopped."""
        last = self._parts[-1] if self._parts else {}
        same = last.get("thought") == part.get("thought")
        return same and isinstance(last.get("text"), str) and {*last, *part} <= {"text", "thought"}

    def _call(self, part: dict[str, Any]) -> None:
        call = object_in(part, "functionCall", "parts")
        if self._open is None or text_in(call, "name"):
            self._open = _Partial()
            self._parts.append(self._open.part)
        self._open.feed(part, call)
        if not call.get("willContinue"):
            self._open = None

    def front(self) -> list[dict[str, Any]]:
        return self._parts if self._open is None else self._parts[:-1]

    def told(self, *, front: bool) -> dict[str, Any]:
        parts = self.front() if front else self._parts
        beside = self._beside
        if front:
            beside = {key: value for key, value in beside.items() if key != "finishReason"}
        return {"content": {"role": self._role, "parts": [*parts]}, **beside}


class _Partial:
    """A call whose arguments come path by path."""

    def __init__(self) -> None:
        self.part: dict[str, Any] = {}
        self._last = ""

    def feed(self, part: dict[str, Any], call: dict[str, Any]) -> None:
        known: dict[str, Any] = self.part.get("functionCall", {})
        gather(self.part, part, ("functionCall",))
        own = ("partialArgs", "willContinue", "args")
        told = known | {key: value for key, value in call.items() if key not in own}
        arguments = told.get("args", {})
        if call.get("args") is not None:
            given: Any = call["args"]
            arguments = {**arguments, **given} if is_object(given) and arguments else given
        for piece in objects_in(call, "partialArgs", "functionCall"):
            arguments = self._put(arguments, piece)
        self.part["functionCall"] = {**told, "args": arguments}

    def _put(self, arguments: Any, piece: dict[str, Any]) -> Any:
        path = text_in(piece, "jsonPath", "partialArgs")
        value = next((piece[key] for key in _VALUES if key in piece), None)
        if "nullValue" in piece:
            value = None
        continues, self._last = path == self._last, path if piece.get("willContinue") else ""
        return put(arguments, path, value, grows=continues)


def put(into: Any, path: str, value: Any, *, grows: bool = False) -> Any:
    """Put a value at a JSON path of names and positions; a text may grow in its place.

    Raises:
        PayloadError: the path cannot be read, or leads through something that has no parts.
    """
    steps: list[str | int] = []
    at = 1 if path.startswith("$") else -1
    while 0 <= at < len(path):
        match = _PATH.match(path, at)
        at = -1 if match is None else match.end()
        if match is not None:
            name, position, quoted = match.groups()
            steps.append(int(position) if position is not None else name or quoted or "")
    if at < 0 or not steps:
        raise PayloadError("partialArgs.jsonPath", f"{path[:80]!r} is no path that is known here")
    return _put(into, steps, value, grows=grows)


def _put(into: Any, steps: list[str | int], value: Any, *, grows: bool) -> Any:
    step, rest = steps[0], steps[1:]
    if isinstance(step, int):
        items: list[Any] = list(into) if is_list(into) else []
        if step > len(items) or not (is_list(into) or into is None):
            raise PayloadError("partialArgs.jsonPath", f"it skips to position {step}")
        known = items[step] if step < len(items) else None
        items[step : step + 1] = [_value(known, rest, value, grows=grows)]
        return items
    if not (is_object(into) or into is None):
        raise PayloadError("partialArgs.jsonPath", f"it leads to {step!r} of something without")
    fields: dict[str, Any] = dict(into or {})
    fields[step] = _value(fields.get(step), rest, value, grows=grows)
    return fields


def _value(known: Any, rest: list[str | int], value: Any, *, grows: bool) -> Any:
    if rest:
        return _put(known, rest, value, grows=grows)
    if grows and isinstance(known, str) and isinstance(value, str):
        return known + value
    return value
