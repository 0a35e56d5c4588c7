"""Places in a claim template, `{edits.path}`: which values of the arguments they stand for.

Reads arguments that have passed the tool's schema; feeds the templates of claims.
"""

import difflib
import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

_PLACE = re.compile(r"([^\W\d]\w*)((?:\.[^\W\d]\w*|\[\d+\])*)(:glob)?")
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")


class Place(NamedTuple):
    """`{edits.path}`: where in the arguments a value stands."""

    text: str
    parameter: str
    steps: tuple[str | int, ...]
    is_glob: bool

    def values(self, arguments: Mapping[str, Any], unresolved: Collection[str]) -> list[Any]:
        """Find the values, of a list one by one; None stands for one that is not known."""
        if self.parameter in unresolved:
            return [None]
        found: list[Any] = [arguments.get(self.parameter)]
        for step in self.steps:
            if isinstance(step, int):
                found = [_item(inner, step) for inner in found]
            else:
                found = [_field(inner, step) for inner in _spread(found)]
        return _spread(found)


def read_place(text: str, parameters: Collection[str]) -> Place:
    """Read what stands between two braces.

    Args:
        text: `path`, `edits.path`, `paths[0]` or `pattern:glob`.
        parameters: The names that the tool has.

    Raises:
        ValueError: It is none of these, or the tool has no such parameter.
    """
    match = _PLACE.fullmatch(text)
    if not match:
        raise ValueError(
            f"{{{text}}} is no parameter; write {{path}}, {{edit.path}}, {{paths[0]}} or "
            "{pattern:glob}"
        )
    name, steps = match[1], match[2]
    if name not in parameters:
        close = difflib.get_close_matches(name, parameters, n=1)
        meant = f", is {close[0]!r} meant?" if close else ""
        known = ", ".join(parameters) or "none"
        raise ValueError(f"the tool has no parameter {name!r}{meant} (it has: {known})")
    found = tuple(step[1] or int(step[2]) for step in _STEP.finditer(steps))
    return Place(text, name, found, is_glob=bool(match[3]))


def _item(value: Any, index: int) -> Any:
    match value:
        case [*items] if index < len(items):
            return items[index]
        case _:
            return None


def _field(value: Any, name: str) -> Any:
    match value:
        case {**fields}:
            return fields.get(name)
        case _:
            return None


def _spread(found: list[Any]) -> list[Any]:
    spread: list[Any] = []
    for value in found:
        match value:
            case [*items]:
                spread.extend(items)
            case _:
                spread.append(value)
    return spread
