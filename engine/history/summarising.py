"""A summary without a model: what was said, called and answered, a line each.

Stands in for a host's own summary where there is none. An earlier summary is taken over into the
next. Reads parts; feeds compaction.
"""

from collections.abc import Sequence
from typing import Any

from laneway.engine.history.pairing import Line, Pairing
from laneway.engine.history.parts import Kind, Part, Side
from laneway.engine.kinds import is_list, is_object
from laneway.engine.results import json_text

MARK = "[Summary of the conversation before this point]"
"""How a summary begins, by which a later compaction knows it."""
MOST_CHARACTERS = 8_000
"""Of a summary: some 2,000 tokens."""
_SAID = 400
_ASKED = 120
_GOT = 160

_TEXTS = ("text", "content", "parts", "output", "response", "result", "error", "stdout", "stderr")
_WITHIN = ("functionResponse", "function_response", "toolResult", "json")
_ARGUMENTS = ("arguments", "input", "args", "action", "operation")


def outline(pairing: Pairing, first: int, end: int) -> str:
    """Write a summary of some messages; what they were answered is told with each call."""
    lines: list[str] = []
    answers = {id(call.part): call.other for call in pairing.calls}
    for line in pairing.lines[first:end]:
        for part in line.parts:
            if part.kind is Kind.CALL:
                answer = answers[id(part)]
                got = cut(texts(answer.part.raw), _GOT) if answer is not None else ""
                lines.append(f"- called {part.name}({cut(asked(part), _ASKED)}) → {got}")
            elif part.kind is Kind.OTHER:
                lines += _said(line, texts(part.raw))
    return within(lines)


def _said(line: Line, text: str) -> list[str]:
    earlier = summary_in(text)
    if earlier:
        return earlier.split("\n")
    if not text.strip():
        return []
    who = {Side.USER: "user", Side.MODEL: "assistant", Side.SYSTEM: "system"}[line.side]
    return [f"- {who}: {cut(text, _SAID)}"]


def summary_in(text: str) -> str:
    """What an earlier summary says; empty if this is none."""
    return text.removeprefix(MARK).strip("\n") if text.startswith(MARK) else ""


def within(lines: Sequence[str]) -> str:
    """Join lines; where they are too many, those in the middle are left out and counted."""
    whole = "\n".join(lines)
    if len(whole) <= MOST_CHARACTERS:
        return whole
    room = MOST_CHARACTERS - 60
    first: list[str] = []
    last: list[str] = []
    for line in lines:
        if sum(map(len, first)) + len(first) + len(line) > room // 3:
            break
        first.append(line)
    for line in reversed(lines[len(first) :]):
        if sum(map(len, last)) + len(last) + len(line) > room * 2 // 3:
            break
        last.insert(0, line)
    left_out = len(lines) - len(first) - len(last)
    return "\n".join([*first, f"- … {left_out} lines left out …", *last])


def cut(text: str, most: int) -> str:
    """The beginning of a text, in one line."""
    line = " ".join(text[: 4 * most].split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def asked(call: Part) -> str:
    """The arguments of a call, as text."""
    found: Any = call.raw
    for _ in range(3):
        if not is_object(found):
            break
        key = next((name for name in _ARGUMENTS if name in found), None)
        if key is not None:
            given = found[key]
            return given if isinstance(given, str) else json_text(given)
        found = next((inner for inner in found.values() if is_object(inner)), None)
    return ""


def texts(value: object) -> str:
    """All that is said in a part, without names, ids and media."""
    if isinstance(value, str):
        return value
    if is_list(value):
        return "\n".join(filter(None, map(texts, value)))
    if not is_object(value):
        return "" if value is None else json_text(value)
    keys = [key for key in (*_TEXTS, *_WITHIN) if key in value]
    return "\n".join(filter(None, (texts(value[key]) for key in keys)))
