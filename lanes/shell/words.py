"""Words of a command line: what is known of each before it runs.

Made by the reading of the syntax tree; asked by all that knows commands. A word is known whole,
or by its beginning, or not at all.
"""

import re
import shlex
from typing import NamedTuple

UNKNOWN = "\ud800"
"""Stands for an expansion in a word that is being put together."""
HOLE = "\ufffc"
"""Stands, in what patterns see, for anything that is not known before the line runs."""
QUOTED = "\udc00"
"""Stands, in the bare form of a word, for a character that was quoted."""

_WILD = re.compile(r"[*?\[]|\{[^{}]*(?:,|\.\.)")
_TILDE = re.compile(r"(?:^|[=:])~")
_CLIMBS = re.compile(r"(?:^|/)\.(?:\.(?:/|$)|[*?\[])")
"""What is `..`, or may match it."""
_BRACES = re.compile(r"\{([^{}]*)\}")
_MOST_ALTERNATIVES = 64
_PLAIN = re.compile(r"[\w./:=,@%+-]+")


class Word(NamedTuple):
    """One word as written."""

    text: str | None
    """What the program gets; None where that depends on something."""
    prefix: str
    """The literal beginning; all of it where the text is known."""
    shown: str
    """The pattern where it depends on file names only, else the source text."""
    many: bool = False
    """It may become several words, or none."""
    wild: bool = False
    """It depends on file names alone: a glob, or braces."""

    @property
    def said(self) -> str | None:
        """For people and patterns: the text, or the pattern of a glob; None where it is unknown."""
        return self.shown if self.wild else self.text

    @property
    def quoted(self) -> str:
        """The word so that a shell reads it the same way again."""
        return self.shown if self.text is None else quote(self.text)

    @property
    def outline(self) -> str:
        """The same with a hole for all that is not known, what a glob becomes included."""
        return f"{self.prefix}{HOLE}" if self.text is None else quote(self.text)

    @property
    def may_be_option(self) -> bool:
        """Whether an unknown word could turn out as an option."""
        return self.text is None and self.prefix[:1] in {"", "-"}

    @property
    def parent(self) -> str | None:
        """The folder below which all that the word names must lie; None if that is not known."""
        if not self.wild:
            return None
        for path in _alternatives(self.shown):
            if _CLIMBS.search(path) or (path[:1] == "/" and not self.prefix):
                return None
        folder, slash, _ = self.prefix.rpartition("/")
        return folder or (slash or ".")


def literal(text: str) -> Word:
    """Make a word that is known."""
    return Word(text, text, text)


def unknown(source: str, prefix: str = "", *, many: bool = True) -> Word:
    """Make a word of which at most the beginning is known."""
    return Word(None, prefix, source, many=many)


def assembled(value: str, bare: str, source: str, *, many: bool) -> Word:
    """Make a word of its pieces.

    Args:
        value: The text without quotes, with `UNKNOWN` for each expansion.
        bare: The same, character by character, with `QUOTED` for what was quoted.
        source: The text as written.
        many: Whether an expansion in it may split.
    """
    glob = _WILD.search(bare)
    hole = value.find(UNKNOWN)
    if _TILDE.search(bare):
        at = bare.index("~")
        return Word(None, value[:at] if hole < 0 else value[: min(at, hole)], source, many=many)
    if glob is None and hole < 0:
        return Word(value, value, value)
    if hole < 0:
        assert glob is not None
        return Word(None, value[: glob.start()], value, many=True, wild=True)
    end = hole if glob is None else min(hole, glob.start())
    return Word(None, value[:end], source, many=many or glob is not None)


def _alternatives(pattern: str) -> list[str]:
    """Expand the braces of a pattern; what is not done here climbs, and so is not known."""
    done: list[str] = []
    left = [pattern]
    while left:
        path = left.pop()
        braces = _BRACES.search(path)
        if braces is None:
            done.append(path)
            continue
        inside = ["0"] if ".." in braces[1] else braces[1].split(",")
        if len(done) + len(left) + len(inside) > _MOST_ALTERNATIVES:
            return [".."]
        left += [path[: braces.start()] + one + path[braces.end() :] for one in inside]
    return done


def quote(text: str) -> str:
    """Quote a text for a shell, if it needs it."""
    return text if _PLAIN.fullmatch(text) else shlex.quote(text)
