"""The tool by which a model reads what it was not shown of an earlier result.

    Engine(tools, shaping=Shaping())          # offers it
    read_result(result="t3.1", first=200, last=260)

Reads the full value from the run as the journal has it, so also after a resume; secrets are not in
it. A shortened result tells its handle.
"""

from typing import Any, Literal

import msgspec

from laneway.effects import Effect
from laneway.engine.context import ToolContext
from laneway.engine.failing import ToolFailed
from laneway.engine.kinds import is_list, is_object
from laneway.engine.plain import whole_text
from laneway.engine.references import steps
from laneway.engine.results import json_text, text_of
from laneway.engine.tool import Tool
from laneway.journal.fold import CallView, RunView
from laneway.outcomes import Happened, Success

MOST_CHARACTERS = 20_000
"""Of one answer: some 5,000 tokens."""
_SHOWN = 8
"""Names that one message lists."""

DESCRIPTION = (
    "Read more of an earlier result that was shown shortened: a range of its lines, characters or "
    "bytes, or a part of it by its path."
)
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "result": {"type": "string", "description": "The handle that a shortened result tells."},
        "unit": {
            "enum": ["lines", "characters", "bytes"],
            "description": "What first and last count; lines if left out.",
        },
        "first": {
            "type": "integer",
            "minimum": 1,
            "description": "The first one wanted, from 1.",
        },
        "last": {
            "type": "integer",
            "minimum": 1,
            "description": "The last one wanted; as many as fit if left out.",
        },
        "path": {
            "type": "string",
            "description": "Only this part of a JSON result, such as items[0].text.",
        },
    },
    "required": ["result"],
    "additionalProperties": False,
}

Unit = Literal["lines", "characters", "bytes"]


class ReadResult(Tool[..., Any]):
    """Made by `read_result`."""


def read_result(name: str = "read_result", *, most_chars: int = MOST_CHARACTERS) -> "ReadResult":
    """Make the tool by which a model reads ranges of earlier results of its run.

    Args:
        name: for the model.
        most_chars: of one answer.

    Raises:
        ToolError: no provider would take the name.
    """

    async def read(
        result: str,
        context: ToolContext,
        unit: Unit = "lines",
        first: int = 1,
        last: int | None = None,
        path: str = "",
    ) -> str:
        if context.nest is None:
            raise _refused(f"{name} was called without an engine")
        value = _part(_found(context.nest.view, result), path)
        return ranged(value, unit, first, last, most_chars)

    made = ReadResult.from_schema(
        read,
        schema=SCHEMA,
        name=name,
        description=DESCRIPTION,
        effect=Effect.READ,
        claims=[],
    )
    assert isinstance(made, ReadResult)
    return made


def _found(view: RunView, handle: str) -> CallView:
    """The call whose result is meant, by Laneway's own name or by the provider's id."""
    calls = {str(call.id): call for call in view.calls.values() if call.outcome is not None}
    named = {call.record.provider_id: call for call in calls.values()}
    call = calls.get(handle) or named.get(handle)
    if call is None:
        known = list(calls)[-_SHOWN:]
        raise _refused(
            f"there is no result {handle!r}",
            f"the last ones are {', '.join(known)}" if known else "nothing has a result yet",
        )
    return call


def _part(call: CallView, path: str) -> Any:
    outcome = call.outcome
    assert outcome is not None
    if not isinstance(outcome, Success):
        if path:
            raise _refused(f"{call.id} did not succeed, so its result has no parts")
        return text_of(outcome)
    value: Any = outcome.value
    way = steps(path if path[:1] in ("", ".", "[") else f".{path}")
    if way is None:
        raise _refused(f"the path {path!r} cannot be read", "write it as items[0].text")
    walked = ""
    for step in way:
        fits = is_list(value) if isinstance(step, int) else is_object(value)
        there = fits and (step < len(value) if isinstance(step, int) else step in value)
        if not there:
            raise _refused(f"there is no {step!r} in {walked or 'the result'}", _has(value))
        value = value[step]
        walked = f"{walked}[{step}]" if isinstance(step, int) else f"{walked}.{step}".lstrip(".")
    return value


def _has(value: Any) -> str:
    if is_object(value):
        return f"it has {', '.join(list(value)[:_SHOWN]) or 'no fields'}"
    return f"it has {len(value)} items" if is_list(value) else "it has no parts"


def ranged(value: Any, unit: Unit, first: int, last: int | None, most: int) -> str:
    """A range of a value, within some room, and where it goes on.

    Args:
        value: a text, or any JSON: its lines are those of an indented text.
        unit: what the numbers count.
        first: from 1.
        last: included; None for as much as fits.
        most: characters.

    Raises:
        ToolFailed: it does not have so many.
    """
    if isinstance(value, str):
        text = whole_text(value)
    elif unit == "lines":
        text = msgspec.json.format(json_text(value).encode(errors="replace"), indent=1).decode()
    else:
        text = whole_text(json_text(value))
    units: Any = text
    if unit == "lines":
        units = text.split("\n")
    elif unit == "bytes":
        units = text.encode()
    total = len(units)
    if first > max(total, 1):
        raise _refused(f"it has {total:,} {unit}, so there is none with the number {first:,}")
    wanted = units[first - 1 : last]
    taken, count = _fitting(wanted, unit, most)
    end = first - 1 + count
    if first == 1 and end >= total:
        return taken
    more = f"; go on with first={end + 1}" if end < total else ""
    if unit == "lines" and not count and wanted:
        more = "; the line is longer than an answer: read it by characters"
    return f"{taken}\n[{unit} {first:,}-{end:,} of {total:,}{more}]"


def _fitting(wanted: Any, unit: Unit, most: int) -> tuple[str, int]:
    """As many as have room, as text, and their number."""
    if unit == "characters":
        return wanted[:most], min(len(wanted), most)
    if unit == "bytes":
        cut: bytes = wanted[:most]
        return cut.decode(errors="ignore"), len(cut)
    count, room = 0, most
    for line in wanted:
        room -= len(line) + 1
        if room < -1:
            break
        count += 1
    return "\n".join(wanted[:count]), count


def _refused(told: str, hint: str = "") -> ToolFailed:
    return ToolFailed(told, happened=Happened.NOTHING, hint=hint)
