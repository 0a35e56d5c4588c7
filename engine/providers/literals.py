"""Reads the arguments of a call that a model wrote as code: `(7, "x", [1, $2], unit="m")`.

Understands what Python and JSON have in common, and the words of both (`None`, `null`); feeds the
reader of LLMCompiler's plans. Nothing is evaluated, and an unquoted `$2` is kept as the text "$2".
"""

import math
import re
from typing import Any

import msgspec

from laneway.engine.telling import excerpt, whole_text

MAX_NESTED = 100
"""Levels of nesting that are read: fewer than `plain` lets through."""

_SPACE = re.compile(r"\s*")
_TEXT = re.compile(r""""((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'""", re.DOTALL)
_HEX = "[0-9a-fA-F]"
_ESCAPE = re.compile(
    rf"\\(?:u({_HEX}{{4}})|U(00(?:0{_HEX}|10){_HEX}{{4}})|x({_HEX}{{2}})|(.))", re.DOTALL
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\n": ""}
_ESCAPES.update({letter: letter for letter in "\\/\"'"})
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_DIGITS = re.compile(r"[+-]?[0-9]{1,300}")
_REFERENCE = re.compile(r"\$(?:\{[0-9]+\}|[0-9]+)")
_WORD = re.compile(r"[^\W\d]\w*")
_NAMED = re.compile(r"([^\W\d]\w*)\s*=")
_WORDS = {"None": None, "null": None, "True": True, "true": True, "False": False, "false": False}
_CLOSING = {"(": ")", "[": "]"}


class UnreadableError(Exception):
    """What stands there is no argument."""

    def __init__(self, at: int, fault: str) -> None:
        """Keep the place, as an offset into the text."""
        self.at = at
        self.fault = fault
        super().__init__(fault)


class Arguments(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of one call."""

    positional: list[Any]
    by_name: dict[str, Any]
    end: int
    """The offset behind the closing parenthesis."""


def read_call_arguments(text: str, at: int) -> Arguments:
    """Read arguments up to their closing parenthesis.

    Args:
        text: in which they stand.
        at: the offset behind the opening parenthesis.

    Raises:
        UnreadableError: at something that is no literal, or at the end of the text.
    """
    scanner = _Scanner(text, at)
    positional: list[Any] = []
    by_name: dict[str, Any] = {}
    while not scanner.takes(")"):
        name = scanner.match(_NAMED)
        value = scanner.value(0)
        if name is None:
            positional.append(value)
        elif name[1] in by_name:
            raise UnreadableError(name.start(), f"{name[1]} is given twice")
        else:
            by_name[name[1]] = value
        scanner.separated(")")
    return Arguments(positional=positional, by_name=by_name, end=scanner.at)


class _Scanner:
    def __init__(self, text: str, at: int) -> None:
        self.text = text
        self.at = at

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Take what a pattern matches behind white space, if it does."""
        self._skip_space()
        found = pattern.match(self.text, self.at)
        if found is not None:
            self.at = found.end()
        return found

    def takes(self, mark: str) -> bool:
        """Take a mark, if it is the next thing."""
        self._skip_space()
        if not self.text.startswith(mark, self.at):
            return False
        self.at += len(mark)
        return True

    def separated(self, closing: str) -> None:
        """Take the comma behind a value; before a closing mark there need be none."""
        if not self.takes(",") and not self.text.startswith(closing, self.at):
            raise self._met(f"a comma or {closing}")

    def value(self, depth: int) -> Any:
        if depth > MAX_NESTED:
            raise UnreadableError(self.at, f"it is nested more than {MAX_NESTED} deep")
        if text := self.match(_TEXT):
            return _unescaped(text[1] if text[1] is not None else text[2])
        if reference := self.match(_REFERENCE):
            return reference[0]
        if number := self.match(_NUMBER):
            return _number(number)
        for opening, closing in _CLOSING.items():
            if self.takes(opening):
                return self._list(closing, depth)
        if self.takes("{"):
            return self._object(depth)
        word = self.match(_WORD)
        if word is not None and word[0] in _WORDS:
            return _WORDS[word[0]]
        if word is not None:
            self.at = word.start()
        raise self._met("a value; put text in quotes")

    def _list(self, closing: str, depth: int) -> list[Any]:
        items: list[Any] = []
        while not self.takes(closing):
            items.append(self.value(depth + 1))
            self.separated(closing)
        return items

    def _object(self, depth: int) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        while not self.takes("}"):
            key = self.match(_TEXT)
            if key is None or not self.takes(":"):
                raise self._met('a field, "name": value')
            fields[_unescaped(key[1] if key[1] is not None else key[2])] = self.value(depth + 1)
            self.separated("}")
        return fields

    def _skip_space(self) -> None:
        space = _SPACE.match(self.text, self.at)
        assert space is not None, "it matches nothing, too"
        self.at = space.end()

    def _met(self, wanted: str) -> UnreadableError:
        rest = self.text[self.at : self.at + 60].split("\n", 1)[0]
        met = excerpt(rest) if rest else "the end of the line"
        return UnreadableError(self.at, f"expected {wanted}, met {met}")


def _number(number: re.Match[str]) -> int | float:
    if _DIGITS.fullmatch(number[0]):
        return int(number[0])
    value = float(number[0])
    if not math.isfinite(value) or number[0].lstrip("+-").isdigit():
        raise UnreadableError(number.start(), f"the number {excerpt(number[0])} is too large")
    return value


def _unescaped(inner: str) -> str:
    if "\\" not in inner:
        return inner
    return whole_text(_ESCAPE.sub(_character, inner))


def _character(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2] or escape[3]
    if code:
        return chr(int(code, 16))
    return _ESCAPES.get(escape[4], escape[0])
