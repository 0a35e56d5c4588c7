"""Short words for calls, outcomes and times, the same in progress lines and in the tree."""

import json
from itertools import islice
from typing import Any, cast

from laneway.outcomes import Failure, Outcome, Success
from laneway.states import State

MARKS = {
    State.PENDING: "·",
    State.AWAITING_APPROVAL: "?",
    State.QUEUED: "·",
    State.RUNNING: "▶",
    State.BACKING_OFF: "↻",
    State.SUCCEEDED: "✓",
    State.FAILED: "✗",
    State.TIMED_OUT: "✗",
    State.CANCELLED: "✗",
    State.UNCERTAIN: "?",
    State.SKIPPED: "–",
    State.DENIED: "✗",
}
"""One sign for each state: ✓ succeeded, ✗ did not, – never started, ? nobody knows yet."""

STYLES = {"✓": "green", "✗": "red", "?": "yellow", "–": "dim", "▶": "cyan", "↻": "yellow"}
"""Colours of the signs, on a terminal."""

_LONGEST = 60


def brief(value: Any, longest: int = _LONGEST) -> str:
    """Write a value on one line, cut where it is long."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def call_text(tool: str, arguments: Any) -> str:
    """Name a call by its tool and its first argument, which is what it is about."""
    given = cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else {}
    return " ".join([tool, *(brief(value, 40) for value in islice(given.values(), 1))])


def outcome_text(outcome: Outcome) -> str:
    """Say in a few words what came of a call."""
    match outcome:
        case Success(value=value):
            return brief(value)
        case Failure(code=code, message=message):
            return f"{code}: {brief(message, 160)}"


def seconds_text(seconds: float | None) -> str:
    """Write a time so that three digits tell."""
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    return f"{seconds:.2f} s"


def said_in(message: Any) -> str:
    """The text that a model put beside its calls, whatever the provider's form."""
    match message:
        case {"content": str(text)}:
            return text
        case {"content": [*parts]} | {"parts": [*parts]}:
            return " ".join(filter(None, map(_text, parts)))
        case {"output": [*items]} | {"steps": [*items]}:
            return " ".join(filter(None, map(said_in, items)))
        case _:
            return ""


def _text(part: Any) -> str:
    """The text of a part that the model said, not thought."""
    match part:
        case {"thought": True}:
            return ""
        case {"type": "text" | "output_text", "text": str(text)}:
            return text
        case {"text": str(text)} if "type" not in part:
            return text
        case _:
            return ""
