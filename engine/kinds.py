"""Tells the two nested kinds of plain JSON values apart, for code and checkers alike."""

from typing import Any, TypeGuard


def is_object(value: object, /) -> TypeGuard[dict[str, Any]]:
    """Whether a plain value is an object."""
    return type(value) is dict


def is_list(value: object, /) -> TypeGuard[list[Any]]:
    """Whether a plain value is a list."""
    return type(value) is list
