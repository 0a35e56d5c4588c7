"""OpenAI responses as a stream of events: items that are added, grow and are done.

A call is complete when its arguments are (`…_arguments.done`, `…_input.done`), or its item is
done. The message has ended well at `response.completed`, or at `response.incomplete`, which says
that a limit cut it: then the reader of whole messages refuses what was cut. The last event carries
the whole response; where a proxy leaves its output out, the items as they came take its place.
"""

from typing import Any

from laneway.engine.kinds import is_object
from laneway.engine.providers.faults import refused
from laneway.engine.providers.streams.reading import (
    Event,
    Texts,
    after_end,
    index_in,
    list_in,
    object_in,
    raise_error,
    text_in,
)

_GROWING = {
    "response.function_call_arguments": "arguments",
    "response.custom_tool_call_input": "input",
    "response.mcp_call_arguments": "arguments",
}


class ResponsesStream:
    """Reads the events of POST /v1/responses."""

    name = "openai-responses"

    def __init__(self) -> None:
        """Start before the first event."""
        self.ended = False
        self.superseded = 0
        self._response: dict[str, Any] | None = None
        self._items: list[_Item] = []

    @staticmethod
    def recognises(event: Event, /) -> bool:
        """Whether it is one of these events."""
        kind = event.get("type")
        return isinstance(kind, str) and kind.startswith("response.")

    @property
    def complete(self) -> int:
        """The calls at the front whose arguments are complete."""
        return sum(item.is_call for item in self._front())

    def feed(self, event: Event, /) -> str:
        """Take in an event; see `StreamReader.feed`."""
        kind = text_in(event, "type")
        if kind == "error" and not event.get("error"):
            raise refused(self.name, dict(event) | {"type": event.get("code") or "error"})
        raise_error(self.name, event)
        match kind:
            case "response.created":
                self._start(object_in(event, "response"))
            case "response.output_item.added":
                self._item(event).put(object_in(event, "item"))
            case "response.output_item.done":
                item = self._item(event)
                item.put(object_in(event, "item"))
                item.done = True
            case "response.completed" | "response.incomplete":
                self._end(object_in(event, "response"))
            case "response.failed":
                failed = object_in(event, "response")
                raise refused(self.name, failed.get("error") or "the response failed")
            case "response.output_text.delta":
                return text_in(event, "delta")
            case _:
                self._grow(kind, event)
        return ""

    def front(self) -> dict[str, Any]:
        """The response up to the first call whose arguments are not complete."""
        output = [item.told(front=True) for item in self._front()]
        told = {"object": "response", **(self._response or {}), "output": output}
        return {**told, "status": "completed"}  # As far as it goes.

    def whole(self) -> dict[str, Any]:
        """The response with all that has come."""
        response = self._response or {}
        output = list_in(response, "output") or [item.told() for item in self._items]
        return {"object": "response", **response, "output": output}

    def _start(self, response: dict[str, Any]) -> None:
        if self.ended:
            raise after_end(self.name)
        if self._response is not None:
            self.superseded += 1
        self._response, self._items = {**response, "output": []}, []

    def _end(self, response: dict[str, Any]) -> None:
        if self.ended:
            raise after_end(self.name)
        self._response = {**(self._response or {}), **response}
        self.ended = True

    def _item(self, event: Event) -> "_Item":
        """Find the item that an event is about, or begin one."""
        index = index_in(event, "output_index")
        item = object_in(event, "item")
        named = text_in(event, "item_id") or text_in(item, "id")
        found = [one for one in self._items if one.index == index] if index is not None else []
        if index is None and named:
            found = [one for one in self._items if one.id == named]
        if found:
            return found[-1]
        made = _Item(index, named)
        self._items.append(made)
        return made

    def _grow(self, kind: str, event: Event) -> None:
        about, _, what = kind.rpartition(".")
        field = _GROWING.get(about)
        if field is None or what not in ("delta", "done"):
            return
        item = self._item(event)
        if what == "delta":
            item.grow(field, text_in(event, "delta"))
        else:
            item.finish(field, text_in(event, field))

    def _front(self) -> "list[_Item]":
        for at, item in enumerate(self._items):
            if item.is_call and not item.done:
                return self._items[:at]
        return self._items


class _Item:
    """An item of the output, as far as it has come."""

    def __init__(self, index: int | None, name: str) -> None:
        self.index = index
        self.id = name
        self.done = False
        self._told: dict[str, Any] = {}
        self._grown: dict[str, Texts] = {}
        self._finished: dict[str, str] = {}

    @property
    def is_call(self) -> bool:
        kind = self._told.get("type")
        return isinstance(kind, str) and kind.endswith("_call")

    def put(self, item: dict[str, Any]) -> None:
        self._told = dict(item)
        for field in (*self._grown, *self._finished):
            if item.get(field):
                self._grown.pop(field, None)
                self._finished.pop(field, None)

    def grow(self, field: str, piece: str) -> None:
        self._grown.setdefault(field, Texts()).add(piece)

    def finish(self, field: str, text: str) -> None:
        grown = self._grown.pop(field, None)
        self._finished[field] = text or str(grown or "")
        self.done = self.done or self._told.get("type") in ("function_call", "custom_tool_call")

    def told(self, *, front: bool = False) -> dict[str, Any]:
        grown = {field: str(text) for field, text in self._grown.items()}
        told = {**self._told, **grown, **self._finished}
        if front and is_object(told) and told.get("status") == "in_progress":
            told["status"] = "completed"
        return told
