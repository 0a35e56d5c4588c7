"""Turns what Python code hands over into plain JSON values, or names the place that cannot be.

Tools return whatever they like; the journal, the dependents and the renderer must see one value
that is the same before and after a restart. So the value is rebuilt once, here, out of dict, list,
str, int, float, bool and None, and shares nothing mutable with what it was built from. Feeds
`serialise` (results) and `arguments` (objects that a provider's library has already decoded).
"""

# Values of any type are told apart at run time.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false

from collections.abc import Sequence
from typing import Any

from laneway.engine.telling import place_of, whole_text
from laneway.engine.walk import (
    MAX_CHARACTERS,
    MAX_DEPTH,
    MAX_INTEGER_BITS,
    MAX_VALUES,
    UnstorableError,
    Walk,
)

__all__ = [
    "MAX_CHARACTERS",
    "MAX_DEPTH",
    "MAX_INTEGER_BITS",
    "MAX_VALUES",
    "NotPlainError",
    "plain",
    "whole_text",
]


class NotPlainError(Exception):
    """A value cannot be told in JSON."""

    def __init__(self, place: str, fault: str) -> None:
        """Name the place (`$[1].x`) and what stands there, without showing its content."""
        self.place = place
        self.fault = fault
        super().__init__(f"{place} {fault}")


def plain(value: object, /) -> Any:
    """Rebuild a value from plain JSON types.

    Taken as they are: str, int, finite float, bool, None. As a list: list, tuple, any sequence, and
    sets, sorted. As an object: dict and any mapping (keys: str, int, UUID, date, Enum of those),
    pydantic models (`model_dump(mode="json")`), dataclasses, msgspec structs. As text: Decimal,
    UUID, dates and times (ISO 8601), paths, and bytes that are UTF-8. An Enum is its value. Half
    characters (lone surrogates, also those that stand for undecodable bytes) become U+FFFD.

    Raises:
        NotPlainError: anything else, numbers that are not finite, cycles, more than MAX_DEPTH
            levels, MAX_VALUES values or MAX_CHARACTERS characters, and whatever the value's own
            code raised while it was read. Nothing but KeyboardInterrupt leaves otherwise.
    """
    walk = Walk()
    try:
        return walk.value(value)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  # the value's own code runs here, and may raise anything
        path = _cycle(value, walk.path) if isinstance(error, RecursionError) else None
        if path is not None:
            raise NotPlainError(place_of(path), "contains itself") from None
        raise NotPlainError(place_of(walk.path), _fault(error)) from None


def _fault(error: BaseException) -> str:
    if isinstance(error, UnstorableError):
        return str(error)
    return f"could not be read: its own code raised {type(error).__name__}"


def _cycle(root: Any, path: Sequence[str | int]) -> Sequence[str | int] | None:
    """Follow the path until an object comes twice; None where none does."""
    seen = {id(root)}
    for length, step in enumerate(path, start=1):
        try:
            root = root[step]
        except (KeyError, IndexError, TypeError, AttributeError):
            return None
        if id(root) in seen:
            return path[:length]
        seen.add(id(root))
    return None
