"""What the model is told of an outcome: one text, never empty, always valid UTF-8.

Reads outcomes; feeds the renderer of every provider's form.
"""

import json
from typing import Any

import msgspec

from laneway.engine.failures import shortened
from laneway.engine.plain import whole_text
from laneway.facts import Edit
from laneway.outcomes import Failure, Happened, Outcome, Success

NO_OUTPUT = "(no output)"
"""Stands for an empty result: some providers refuse an empty or blank text, and a model takes
silence for a fault."""

_EFFECTS = {
    Happened.NOTHING: "",
    Happened.PARTLY: "\nEffect: it happened in part.",
    Happened.UNKNOWN: "\nEffect: unknown; it may have happened.",
    Happened.ALL: "\nEffect: it happened.",
}


def text_of(outcome: Outcome, note: str = "") -> str:
    """Write an outcome as the text of a result.

    A value that is a string stands as it is, any other as compact JSON in its own order. A failure
    is `Error CODE: message`, then a line for what it may have done, one if asking again makes
    sense, and one for what to do instead; never a stack trace. A note stands behind all of it.
    """
    if isinstance(outcome, Success):
        value = outcome.value
        text = value if isinstance(value, str) else json_text(value)
        if not text or text.isspace():
            text = NO_OUTPUT
    else:
        text = _told(outcome)
    if note:
        text = f"{text}\n{note}"
    return text if text.isascii() else whole_text(text)


def noted(outcome: Outcome, note: str, warning: str = "") -> str:
    """Write an outcome behind a note of the engine's own, and before a warning of it."""
    text = text_of(outcome, warning)
    return f"{whole_text(note)}\n\n{text}" if note else text


def note_of(edit: Edit | None) -> str:
    """What the model is told with the result of a call whose arguments a human changed."""
    if edit is None:
        return ""
    return f"A human changed the arguments of this call to: {shortened(json_text(edit.arguments))}"


def json_text(value: Any) -> str:
    """Write a JSON value compactly, keys in their own order: the same value, the same text."""
    try:
        return _ENCODE(value).decode()
    except UnicodeEncodeError:  # half a character, which a value read from JSON may hold
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


_ENCODE = msgspec.json.Encoder().encode


def _told(failure: Failure) -> str:
    message = failure.message.strip() or "no reason was given."
    again = "\nAsking again: the same call may succeed." if failure.retry else ""
    hint = f"\nInstead: {failure.hint}" if failure.hint else ""
    return f"Error {failure.code}: {message}{_EFFECTS[failure.happened]}{again}{hint}"
