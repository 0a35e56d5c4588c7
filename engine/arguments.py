"""Reads the arguments of a call as the model wrote them: one strict JSON object, or a failure.

Every provider's reader hands its argument text, or the object its library has decoded, to
`read_arguments`; what comes out goes to `Tool.check`. Nothing is mended by guessing: a text that
could mean two things is answered to the model.
"""

# JSON is told apart at run time.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

import msgspec

from laneway.engine.plain import MAX_DEPTH, NotPlainError, plain
from laneway.engine.telling import excerpt, whole_text
from laneway.outcomes import Code, Failure


def read_arguments(given: object, /) -> dict[str, Any] | Failure:
    """Read one strict JSON object (RFC 8259), or say exactly why it is none.

    Nothing (None, blank text, the JSON text `null`) means `{}`. A JSON string that holds an object
    is unwrapped, once. Lone surrogates become U+FFFD; a leading byte order mark is ignored, as the
    RFC allows. A mapping, already decoded by a provider's library, passes the same rules.

    Args:
        given: the text (or UTF-8 bytes) of the arguments, a decoded object, or None.

    Returns:
        A fresh dict of plain JSON types, or a MALFORMED_ARGUMENTS failure that names place and
        fault: no JSON, no object, a key that stands twice in one object, NaN or Infinity, numbers
        beyond a double or 4,300 digits, text behind the object, more than MAX_DEPTH levels.
    """
    if type(given) is str:
        try:
            value = _DECODE(given)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return _read_slowly(given)
        if type(value) is dict and _is_exactly(value, given):
            return value
        return _read_slowly(given)
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return _read_object(given)
    if isinstance(given, bytes | bytearray):
        try:
            return read_arguments(given.decode())
        except UnicodeDecodeError as error:
            return malformed(f"the bytes are not UTF-8 at byte {error.start}")
    return malformed(f"they are of type {type(given).__name__}, not an object")


def malformed(fault: str, hint: str = "") -> Failure:
    """Make the failure that answers arguments which cannot be read."""
    return Failure(
        code=Code.MALFORMED_ARGUMENTS,
        message=f"The arguments are not one strict JSON object: {fault}. The call was not run.",
        hint=hint or "Call the tool again with its arguments as one JSON object.",
    )


_DECODE = msgspec.json.Decoder().decode


def _is_exactly(value: dict[str, Any], text: str) -> bool:
    """Whether no key was lost to a later one of the same name, and nothing lies too deep.

    A decoder keeps the last of two equal keys in silence. Each key written takes one colon, and a
    colon in a string stays one, unless it was written as an escape: so if all colons of the text
    are accounted for by the keys and strings that came out, no key has been dropped.
    """
    colons = text.count(":")
    if colons == len(value):
        return "[" not in text or text.count("[") < MAX_DEPTH
    if text.count("{") + text.count("[") > MAX_DEPTH or "\\u003" in text:
        return False
    return colons == _colons(value)


def _colons(value: Any) -> int:
    items: Iterable[Any] = value
    total = 0
    if type(value) is dict:
        total = len(value)
        items = value.values()
        for key in value:
            if ":" in key:
                total += key.count(":")
    for item in items:
        kind = type(item)
        if kind is str:
            if ":" in item:
                total += item.count(":")
        elif kind is dict or kind is list:
            total += _colons(item)
    return total


class _RefusedError(ValueError):
    """Carries the words for a fault that the json module lets pass."""


def read_json(text: str, /) -> Any:
    """Read one strict JSON value of any type; a Failure that names the fault if it is none."""
    try:
        value = _STRICT.decode(text.removeprefix("\ufeff"))
        return plain(value)
    except json.JSONDecodeError as error:
        return _broken(text, error)
    except (_RefusedError, NotPlainError) as error:
        return malformed(str(error))
    except RecursionError:
        return malformed(f"they are nested deeper than {MAX_DEPTH} levels")


def _read_slowly(text: str) -> dict[str, Any] | Failure:
    """Read what the fast decoder refused or could not vouch for, and find the words for it."""
    text = text.removeprefix("\ufeff")
    value = read_json(text) if text and not text.isspace() else None
    if isinstance(value, str) and value.lstrip().startswith("{"):
        value = read_json(value)
    if value is None:
        return {}
    if isinstance(value, dict | Failure):
        return value
    return malformed(f"they are {_KINDS[type(value)]}")


def _read_object(value: Mapping[Any, Any]) -> dict[str, Any] | Failure:
    try:
        return plain(value)  # type: ignore[no-any-return]
    except NotPlainError as error:
        return malformed(str(error))


_KINDS = {
    list: "an array",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "true or false",
}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _RefusedError(f"the key {excerpt(twice)} stands twice in one object")
    return found


def _constant(name: str) -> NoReturn:
    raise _RefusedError(f"{name} is no JSON value")


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise _RefusedError(f"the number {excerpt(digits)} is beyond the range of a double")
    return value


def _integer(digits: str) -> int:
    if len(digits) > 4300:  # noqa: PLR2004  # CPython's own limit, which it would raise in other words
        raise _RefusedError(f"a number of {len(digits)} digits is too long")
    return int(digits)


_STRICT = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_constant, parse_float=_finite, parse_int=_integer
)


def _broken(text: str, error: json.JSONDecodeError) -> Failure:
    fault = error.msg.removesuffix(" at")
    where = f"at character {error.pos}, near {_near(text, error.pos)}"
    if error.msg == "Extra data":
        return malformed(
            f"more text follows the end of the first value, {where}",
            "Make one call for each object, or one object of them all.",
        )
    if error.pos >= len(text.rstrip()) or fault.startswith("Unterminated"):
        return malformed(f"they break off: {fault} {where}")
    return malformed(f"{fault} {where}")


def _near(text: str, position: int) -> str:
    """A window of the text, never the whole of a long one, with everything in it visible."""
    start, end = max(0, position - 12), position + 20
    window = whole_text(text[start:end])
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in window)
    return f"`{'…' if start else ''}{shown}{'…' if end < len(text) else ''}`"
