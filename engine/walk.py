"""The walk that rebuilds a value from plain JSON types; `plain` starts it and words its end.

Knows what can be told in JSON and how, and the limits that keep any value from filling the memory
or the disk. Reads whatever a tool returned, and runs that value's own code.
"""

# Values of any type are told apart at run time.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import islice
from numbers import Integral
from pathlib import PurePath
from typing import Any
from uuid import UUID

import msgspec

from laneway.engine.telling import named, whole_text

MAX_DEPTH = 128
"""Levels of nesting: half of what pydantic's validators stand, an eighth of Python's own stack."""
MAX_VALUES = 1_000_000
"""Values in one result: about 0.2 s of work and 100 MB, and what stops an endless sequence."""
MAX_CHARACTERS = 50_000_000
"""Text in one result. SQLite keeps no row above 1 GB, and a character may take six bytes."""
MAX_INTEGER_BITS = 14_000
"""CPython turns integers of more than 4,300 digits neither into text nor back."""

_WORD = 1 << 63
_WRITTEN_BY_MSGSPEC = (date, time, timedelta, Decimal, UUID)


class UnstorableError(Exception):
    """Carries the words for what stands at the end of the walk's path."""


class TooDeepError(UnstorableError, RecursionError):
    """The walk went down too far, perhaps in a circle."""


class Walk:
    """One pass over a value. `path` leads to what is being read, also after an exception."""

    __slots__ = ("characters", "path", "values")

    def __init__(self) -> None:
        self.path: list[str | int] = []
        self.values = 0
        self.characters = 0

    def value(self, value: Any) -> Any:
        """Rebuild any value."""
        kind = type(value)
        if kind is str:
            return self.text(value)
        if kind is int:
            return _integer(value)
        if value is None or kind is bool:
            return value
        if kind is float:
            return _number(value)
        if kind is dict:
            return self.mapping(value.items(), len(value))
        if kind is list or kind is tuple:
            return self.array(value, len(value))
        return self.other(value)

    def text(self, text: str) -> str:
        """Make a text whole, and count it."""
        self.count(len(text))
        return text if text.isascii() else whole_text(text)

    def count(self, characters: int) -> None:
        """Count characters against the limit."""
        self.characters += characters
        if self.characters > MAX_CHARACTERS:
            raise UnstorableError(f"goes over {MAX_CHARACTERS:,} characters of text")

    def mapping(self, items: Iterable[tuple[Any, Any]], size: int) -> dict[str, Any]:
        """Rebuild an object; counts its plain texts at once, being the hottest loop here."""
        self.enter(size)
        path = self.path
        rebuilt: dict[str, Any] = {}
        characters = 0
        for key, value in items:
            name = key if type(key) is str and key.isascii() else self.key(key)
            kind = type(value)
            if kind is str and value.isascii():
                characters += len(value)
                rebuilt[name] = value
            elif value is None or kind is bool or (kind is int and -_WORD < value < _WORD):
                rebuilt[name] = value
            else:
                path.append(name)
                rebuilt[name] = self.value(value)
                path.pop()
        self.count(characters)
        if len(rebuilt) < size:
            raise UnstorableError("has two keys that become the same text")
        return rebuilt

    def array(self, values: Iterable[Any], size: int) -> list[Any]:
        """Rebuild a list."""
        self.enter(size)
        path = self.path
        rebuilt: list[Any] = []
        for index, value in enumerate(values):
            path.append(index)
            rebuilt.append(self.value(value))
            path.pop()
        return rebuilt

    def enter(self, size: int) -> None:
        """Go one level down, into a container of that size."""
        if len(self.path) >= MAX_DEPTH:
            raise TooDeepError(f"is nested deeper than {MAX_DEPTH} levels")
        self.values += size
        if self.values > MAX_VALUES:
            raise UnstorableError(f"goes over {MAX_VALUES:,} values")

    def key(self, key: Any) -> str:
        """Make a text of a key."""
        if isinstance(key, Enum):
            key = key.value
        if isinstance(key, str):
            return self.text(str.__str__(key))
        if isinstance(key, int) and not isinstance(key, bool):
            return str(_integer(int.__int__(key)))
        if isinstance(key, _WRITTEN_BY_MSGSPEC):
            return str(msgspec.to_builtins(key))
        raise UnstorableError(f"has a key that is {named(key)}, and JSON wants text")

    def other(self, value: Any) -> Any:
        """Rebuild what is not one of the JSON types themselves; runs the value's own code."""
        if isinstance(value, type):
            raise UnstorableError(f"is {named(value)}")
        if isinstance(value, Enum):
            return self.value(value.value)
        if _is_model(value):
            return self.value(dumped(value))
        if isinstance(value, msgspec.Struct):
            return self.struct(value)
        if is_dataclass(value):
            members = [(field.name, getattr(value, field.name)) for field in fields(value)]
            return self.mapping(members, len(members))
        if isinstance(value, str | int | float | Integral | bytes | bytearray | memoryview):
            return self.scalar(value)
        if isinstance(value, Mapping | AbstractSet | Sequence):
            return self.collection(value)
        if isinstance(value, _WRITTEN_BY_MSGSPEC):
            return msgspec.to_builtins(value)
        if isinstance(value, PurePath):
            return self.text(str(value))
        raise UnstorableError(f"is {named(value)}")

    def struct(self, value: msgspec.Struct) -> Any:
        """Rebuild a struct as msgspec would encode it: names, tag, unset fields; defaults stay."""
        config = value.__struct_config__
        names = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
        members = [(told, getattr(value, name)) for name, told in names]
        members = [member for member in members if member[1] is not msgspec.UNSET]
        if config.tag is not None:
            members.insert(0, (config.tag_field or "type", config.tag))
        if config.array_like:
            return self.array([item for _, item in members], len(members))
        return self.mapping(members, len(members))

    def scalar(self, value: Any) -> Any:
        """Rebuild what is a kind of text or number."""
        if isinstance(value, str):
            return self.text(str.__str__(value))
        if isinstance(value, float):
            return _number(float.__float__(value))
        if isinstance(value, Integral):
            return _integer(int(value))
        try:
            return self.text(str(value, "utf-8"))
        except UnicodeDecodeError:
            raise UnstorableError(
                "holds bytes that are no UTF-8 text (decode them, or keep them in a file)"
            ) from None

    def collection(self, value: Mapping[Any, Any] | AbstractSet[Any] | Sequence[Any]) -> Any:
        """Rebuild a container of a class of its own, whose length may be a lie."""
        if isinstance(value, dict):
            return self.mapping(dict.items(value), dict.__len__(value))
        if isinstance(value, Mapping):
            items = list(islice(value.items(), MAX_VALUES + 1))
            return self.mapping(items, len(items))
        members = list(islice(value, MAX_VALUES + 1))
        rebuilt = self.array(members, len(members))
        return _sorted(rebuilt) if isinstance(value, AbstractSet) else rebuilt


def _is_model(value: object) -> bool:
    pydantic = sys.modules.get("pydantic")  # not imported for this: without it there is no model
    return pydantic is not None and isinstance(value, pydantic.BaseModel)


def dumped(model: Any, /) -> Any:
    """Let a pydantic model tell itself, but for the numbers for which it would tell null."""
    try:
        told = model.model_dump(mode="json", warnings=False)
    except ValueError:
        return model.model_dump(warnings=False)  # the walk knows more types, or finds the place
    return _with_numbers(told, model.model_dump(warnings=False)) if _holds_none(told) else told


def _holds_none(told: Any) -> bool:
    if type(told) is dict:
        told = told.values()
    elif type(told) is not list:
        return told is None
    return any(map(_holds_none, told))


def _with_numbers(told: Any, given: Any) -> Any:
    """Put numbers that are not finite back in the place of null, for the walk to refuse."""
    if told is None:
        return given if isinstance(given, float) and not math.isfinite(given) else None
    if type(told) is dict and isinstance(given, dict):
        return {name: _with_numbers(one, given.get(name)) for name, one in told.items()}
    if type(told) is list and isinstance(given, list | tuple) and len(told) == len(given):
        return [_with_numbers(one, was) for one, was in zip(told, given, strict=True)]
    return told


def _integer(value: int) -> int:
    if value.bit_length() > MAX_INTEGER_BITS:
        raise UnstorableError("is an integer of more than 4,000 digits")
    return value


def _number(value: float) -> float:
    if not math.isfinite(value):
        raise UnstorableError(f"is {value}, which JSON cannot say")
    return value


def _sorted(members: list[Any]) -> list[Any]:
    try:
        return sorted(members)
    except TypeError:
        return sorted(members, key=lambda member: msgspec.json.encode(member, order="sorted"))
