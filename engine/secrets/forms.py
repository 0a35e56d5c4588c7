"""How a text may look in another one: escaped for JSON or Python, quoted for a URL, encoded.

Reads one secret; feeds the vault with all that is searched for.
"""

import base64
import html
import json
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

SHORTEST = 4
"""Characters of a text that is searched for: a shorter one stands in too many by chance."""
_SHORTEST_FORM = 6
"""Characters of one of its other forms: base64 leaves little of a short text that is certain."""


def forms(text: str) -> frozenset[str]:
    """All forms in which a text is searched for, itself included; none of one that is too short."""
    if len(text) < SHORTEST:
        return frozenset()
    others = {one for one in _others(text) if len(one) >= _SHORTEST_FORM}
    return frozenset({text, *others})


def _others(text: str) -> Iterator[str]:
    for ascii_only in (False, True):
        once = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        yield once
        yield json.dumps(once, ensure_ascii=ascii_only)[1:-1]
    yield repr(text)[1:-1]
    yield html.escape(text)
    raw = text.encode("utf-8", "surrogatepass")
    yield repr(raw)[2:-1]
    for quoted in (quote(raw), quote(raw, safe=""), quote_plus(raw)):
        yield quoted
        yield _lower_case(quoted)
    yield raw.hex()
    yield raw.hex().upper()
    yield from _in_base64(raw)


def _lower_case(quoted: str) -> str:
    """The same with hexadecimal digits in lower case, which RFC 3986 takes for equal."""
    first, *rest = quoted.split("%")
    return "".join([first, *(f"%{one[:2].lower()}{one[2:]}" for one in rest)])


def _in_base64(raw: bytes) -> Iterator[str]:
    """What is certain of the text in base64, by where in a longer text it begins, modulo 3."""
    for before in range(3):
        padded = bytes(before) + raw
        first = -(-8 * before // 6)
        last = 8 * len(padded) // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(padded).decode()[first:last]
