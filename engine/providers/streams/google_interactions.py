"""Google interactions as a stream of events: steps that start, grow and stop.

A call is complete when its step has stopped; the message has ended well at
`interaction.completed`. Arguments come as an object, or as pieces of text (`arguments_delta`).
"""

from typing import Any

from laneway.engine.kinds import is_object
from laneway.engine.providers.faults import refused
from laneway.engine.providers.streams.reading import (
    Event,
    Texts,
    after_end,
    arguments_in,
    gather,
    index_in,
    list_in,
    object_in,
    raise_error,
    text_in,
)
from laneway.errors import PayloadError


class InteractionsStream:
    """Reads the events of POST /interactions."""

    name = "google-interactions"

    def __init__(self) -> None:
        """Start before the first event."""
        self.ended = False
        self.superseded = 0
        self._interaction: dict[str, Any] | None = None
        self._steps: list[_Step] = []
        self._by_index: dict[int, _Step] = {}

    @staticmethod
    def recognises(event: Event, /) -> bool:
        """Whether it is one of these events."""
        kind = event.get("event_type")
        return isinstance(kind, str) and kind.startswith(("interaction.", "step.", "content."))

    @property
    def complete(self) -> int:
        """The calls at the front whose steps have stopped."""
        return sum(step.is_call for step in self._front())

    def feed(self, event: Event, /) -> str:
        """Take in an event; see `StreamReader.feed`."""
        raise_error(self.name, event)
        match text_in(event, "event_type"):
            case "interaction.created" | "interaction.start":
                self._start(object_in(event, "interaction"))
            case "step.start":
                self._begin(event)
            case "step.delta":
                return self._step(event).grow(object_in(event, "delta"))
            case "step.stop":
                self._step(event).stopped = True
            case "interaction.completed" | "interaction.complete":
                self._end(object_in(event, "interaction"))
            case "interaction.failed" | "interaction.cancelled" as kind:
                raise refused(self.name, f"the answer broke off ({kind})")
            case _:
                pass
        return ""

    def front(self) -> dict[str, Any]:
        """The interaction up to the first call whose step has not stopped."""
        return {**self._payload(self._front()), "status": "completed"}  # As far as it goes.

    def whole(self) -> dict[str, Any]:
        """The interaction with all that has come."""
        if self._interaction and list_in(self._interaction, "steps"):
            return dict(self._interaction)
        return self._payload(self._steps)

    def _payload(self, steps: "list[_Step]") -> dict[str, Any]:
        told = {"object": "interaction", **(self._interaction or {})}
        return {**told, "steps": [step.told() for step in steps]}

    def _start(self, interaction: dict[str, Any]) -> None:
        if self.ended:
            raise after_end(self.name)
        if self._interaction is not None:
            self.superseded += 1
        self._interaction, self._steps, self._by_index = dict(interaction), [], {}

    def _end(self, interaction: dict[str, Any]) -> None:
        if self.ended:
            raise after_end(self.name)
        self._interaction = {**(self._interaction or {}), **interaction}
        self.ended = True

    def _begin(self, event: Event) -> None:
        step = _Step(object_in(event, "step"))
        self._steps.append(step)
        index = index_in(event, "index")
        if index is not None:
            self._by_index[index] = step

    def _step(self, event: Event) -> "_Step":
        index = index_in(event, "index")
        if index is None and self._steps:
            return self._steps[-1]
        if index not in self._by_index:
            raise PayloadError("index", f"no step {index} has started")
        return self._by_index[index]

    def _front(self) -> "list[_Step]":
        for at, step in enumerate(self._steps):
            if step.is_call and not step.stopped:
                return self._steps[:at]
        return self._steps


class _Step:
    """A step, as far as it has come."""

    def __init__(self, first: dict[str, Any]) -> None:
        self.stopped = False
        self._told = dict(first)
        self._texts: Texts | None = None
        self._arguments: Texts | None = None

    @property
    def is_call(self) -> bool:
        kind = self._told.get("type")
        return isinstance(kind, str) and kind.endswith("_call")

    def grow(self, delta: dict[str, Any]) -> str:
        text = delta.get("text")
        if isinstance(text, str) and self._told.get("type") == "model_output":
            self._texts = self._texts or Texts()
            self._texts.add(text)
            return text
        arguments = delta.get("arguments")
        if arguments is None:
            arguments = delta.get("partial_arguments")
        if isinstance(arguments, str):
            self._arguments = self._arguments or Texts()
            self._arguments.add(arguments)
        elif is_object(arguments):
            self._told["arguments"] = {**object_in(self._told, "arguments"), **arguments}
        gather(self._told, delta, ("type", "arguments", "partial_arguments"))
        return ""

    def told(self) -> dict[str, Any]:
        told = dict(self._told)
        text = "" if self._arguments is None else str(self._arguments)
        if text:
            told["arguments"] = arguments_in(text)
        if self._texts is not None:
            part: dict[str, Any] = {"type": "text", "text": str(self._texts)}
            if "annotations" in told:
                part["annotations"] = told.pop("annotations")
            told["content"] = [*list_in(self._told, "content"), part]
        return told
