"""Texts of models and tools, written so that they are nothing but text wherever they stand."""

import re


def visible(text: str) -> str:
    """Write what steers a terminal, breaks a line or turns its direction as an escape.

    A model chooses the names, and a human judges by what is shown.
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def plain_json(document: bytes) -> bytes:
    """Write what steers a terminal as an escape in JSON: another spelling of the same value.

    Args:
        document: valid JSON, in which such a letter can stand in strings only.
    """
    if document.isascii() and b"\x7f" not in document:
        return document
    text = document.decode()
    if text.isprintable():
        return document
    return _UNSEEN.sub(_escaped, text).encode()


# Letters that str.isprintable refuses are looked at one by one; the others are the many.
_UNSEEN = re.compile(r"[^\x20-\x7e\xa1-\xac\xae-\u02ff\u0370-\u0377\u3041-\u3096\u4e00-\u9fff\n]")


def _escaped(found: re.Match[str]) -> str:
    letter = found[0]
    if letter.isprintable():
        return letter
    units = letter.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def node(call: str) -> str:
    """Name the node of a call in Mermaid; ids of Laneway's own stay different."""
    return re.sub(r"[^A-Za-z0-9]", "_", call)


_ENTITIES = {
    "#": "#35;",
    '"': "#quot;",
    "<": "#lt;",
    ">": "#gt;",
    "`": "#96;",
    "&": "#amp;",
    "%": "#37;",  # A directive is found in a label, too: %%{init: …}%%.
    "$": "#36;",  # $$ begins a formula.
    "\\": "#92;",  # \n was a line break once.
    "*": "#42;",  # Markdown, here and below.
    "~": "#126;",
    "[": "#91;",
    "]": "#93;",
}
_EDGES = re.compile(r"(?<![^\W_])_|_(?![^\W_])")
"""Underscores that are not within a word: they would slant it."""


def quoted(text: str) -> str:
    """Write a text so that it can stand in a quoted label, and be nothing but text there."""
    line = visible(" ".join(text.split()))
    escaped = "".join(_ENTITIES.get(letter, letter) for letter in line)
    return _EDGES.sub("#95;", escaped)
