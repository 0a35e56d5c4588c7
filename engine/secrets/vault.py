"""What is to be found nowhere, and the search for it in whatever is about to be told.

Learns texts from what hosts bind, models send and tools return; scrubs texts and plain values. A
text that was cut off where a secret stands, with an ellipsis, is scrubbed of what is left of it.
"""

# Values of any type are told apart at run time.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false

import re
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from typing import Any

import msgspec

from laneway.engine.secrets.forms import SHORTEST, forms
from laneway.engine.secrets.hints import is_secret_type
from laneway.engine.secrets.marks import MARK
from laneway.engine.telling import whole_text

_DEEPEST = 32
_PLACEHOLDER = "\ufdd0"
"""A noncharacter: what is replaced must not be searched again for what the mark itself says."""
_CUT = re.compile(r"(…|\.{3,})")
"""Python's reprlib and pydantic write three dots."""
_TEXT = frozenset({str, dict, list})


class Vault:
    """Secrets of one run and the runs within its calls. Nothing of it is ever written down."""

    __slots__ = ("_known", "_needles")

    def __init__(self) -> None:
        """Start with nothing."""
        self._known: set[str] = set()
        self._needles: tuple[str, ...] = ()
        """Longest first, so that none is replaced in part."""

    def __bool__(self) -> bool:
        """Whether there is anything to search for."""
        return bool(self._needles)

    def __repr__(self) -> str:
        """Show nothing."""
        return f"<Vault of {len(self._known)}>"

    def learn(self, values: Iterable[Any]) -> None:
        """Search for every text in these values from now on."""
        new = {text for value in values for text in _texts(value, 0)} - self._known
        if new:
            self._known |= new
            found = {one for text in new for one in forms(text)} - {MARK}
            self._needles = tuple(sorted({*self._needles, *found}, key=len, reverse=True))

    def scrub(self, text: str) -> str:
        """Put marks in place of all secrets in a text; the same object if there are none."""
        given = text
        text = text.replace(MARK, _PLACEHOLDER)
        for needle in self._needles:
            if needle in text:
                text = text.replace(needle, _PLACEHOLDER)
        if "…" in text or "..." in text:
            text = self._scrub_cuts(text)
        text = text.replace(_PLACEHOLDER, MARK)
        return given if text == given else text

    def _scrub_cuts(self, text: str) -> str:
        pieces = _CUT.split(text)  # Every second one is a cut.
        for at in range(2, len(pieces), 2):
            pieces[at - 2] = self._without_end(pieces[at - 2])
            pieces[at] = self._without_start(pieces[at])
        return "".join(pieces)

    def _without_end(self, piece: str) -> str:
        cut = self._longest(piece, lambda needle, length: piece.endswith(needle[:length]))
        return piece[:-cut] + _PLACEHOLDER if cut else piece

    def _without_start(self, piece: str) -> str:
        cut = self._longest(piece, lambda needle, length: piece.startswith(needle[-length:]))
        return _PLACEHOLDER + piece[cut:] if cut else piece

    def _longest(self, piece: str, fits: Callable[[str, int], bool]) -> int:
        """How much of a secret, in any of its forms, is left at an end of a text; 0 for none."""
        found = 0
        for needle in self._needles:
            least = max(found, SHORTEST - 1)
            lengths = range(min(len(needle) - 1, len(piece)), least, -1)
            found = next((length for length in lengths if fits(needle, length)), found)
        return found

    def scrubbed(self, value: Any, *, leave: Collection[str] = ()) -> Any:
        """Put marks in place of all secrets in a plain value; the same object if there are none.

        Args:
            value: plain JSON.
            leave: names of fields whose text stays as it is, at any depth.
        """
        kind = type(value)
        if kind is str:
            return self.scrub(value)
        if kind is dict:
            found = {
                self.scrub(name): one
                if type(one) not in _TEXT or name in leave
                else self.scrubbed(one, leave=leave)
                for name, one in value.items()
            }
            same = len(found) == len(value) and all(
                found.get(name, found) is one for name, one in value.items()
            )
            return value if same else found
        if kind is list:
            each = [self.scrubbed(one, leave=leave) for one in value]
            same = all(one is was for one, was in zip(each, value, strict=True))
            return value if same else each
        return value


def texts(value: Any) -> list[str]:
    """All that would be searched for, had the vault learnt this value."""
    return list(_texts(value, 0))


def _texts(value: Any, depth: int) -> Iterator[str]:
    """The texts in a value that are long enough; objects of unknown classes are not looked into."""
    if depth > _DEEPEST or value is None:
        return
    if is_secret_type(type(value)):
        value = value.get_secret_value()
    if isinstance(value, str):
        text = whole_text(str.__str__(value))
        yield from (one for one in (text, text.strip()) if len(one) >= SHORTEST)
    elif isinstance(value, bytes | bytearray):
        yield from _texts_of_bytes(bytes(value))
    else:
        for one in _held(value):
            yield from _texts(one, depth + 1)


def _texts_of_bytes(raw: bytes) -> Iterator[str]:
    try:
        yield from _texts(raw.decode(), 0)
    except UnicodeDecodeError:
        shown = (repr(raw)[2:-1], raw.hex(), b64encode(raw).decode().rstrip("="))
        yield from (one for one in shown if len(one) >= SHORTEST)


def _held(value: Any) -> Iterable[Any]:
    kind = type(value)
    if isinstance(value, Mapping):
        return value.values()
    if isinstance(value, list | tuple | AbstractSet):
        return value
    if isinstance(getattr(kind, "model_fields", None), dict):
        return [getattr(value, name) for name in kind.model_fields]
    if is_dataclass(kind):
        return [getattr(value, one.name) for one in fields(kind)]
    return msgspec.structs.astuple(value) if isinstance(value, msgspec.Struct) else ()
