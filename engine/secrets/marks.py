"""The marker of a secret field, and the mark that stands for its value once it has been told.

Serves every module that must know a mark when it meets one; reads nothing.
"""

# Values are JSON, told apart at run time.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false

from collections.abc import Iterable
from typing import Any

MARK = "[secret: not kept]"
"""Told in place of a secret. Nobody writes it by chance: where it is met, a value has been lost."""


class Secret:
    """Marks a parameter, or a field of a result, that is never written down.

    `Annotated[str, Secret]`; pydantic's `SecretStr` and `SecretBytes` need no marker.
    """

    __slots__ = ()


def is_marker(mark: object) -> bool:
    """Whether what stands in an `Annotated` is the marker, or an instance of it."""
    return mark is Secret or isinstance(mark, Secret)


def holds_mark(value: Any) -> bool:
    """Whether a mark stands anywhere in a plain value."""
    if type(value) is str:
        return MARK in value
    if type(value) is dict:
        return _any_holds(value) or _any_holds(value.values())
    return type(value) is list and _any_holds(value)


def _any_holds(values: Iterable[Any]) -> bool:
    return any(type(value) in _HOLDING and holds_mark(value) for value in values)


_HOLDING = frozenset({str, dict, list})
