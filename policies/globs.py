"""Tests of one text, by glob or regular expression, in linear time.

What a model wrote is matched here, so nothing may backtrack. All patterns run in Rust's automaton,
which jsonschema-rs brings along: without look-around and back-references, it cannot explode.
Globs are translated; many patterns make one automaton, which costs no more than one of them.
Feeds the patterns over tools, arguments and resources.
"""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

import jsonschema_rs

TextTest = Callable[[str], bool]
"""Whether a text fits."""

ANYTHING: Final = r"[\s\S]*"

_SPECIAL = re.compile(r"[\\^$.|?*+()\[\]{}]")
_GROUP = re.compile(r"(?<!\\)(?:\\\\)*\(\?([^:)]*[:)]?)")
_GROUP_KNOWN = re.compile(r":|-?i[:)]")


def glob_regex(pattern: str, /, any_char: str = r"[\s\S]") -> str:
    """Translate a glob to a regular expression over the whole text.

    Args:
        pattern: `*` is any text, `?` any character, the rest literal.
        any_char: What a wildcard stands for.

    Raises:
        ValueError: it is empty.
    """
    if not pattern:
        raise ValueError("an empty pattern fits nothing")
    return "".join(
        f"{any_char}*" if part.startswith("*") else any_char if part == "?" else literal(part)
        for part in re.findall(r"\*+|\?|[^*?]+", pattern)
    )


def checked_regex(pattern: str, /, *, whole: bool) -> str:
    r"""Check a regular expression that a person wrote, and make it speak of the whole text.

    Args:
        pattern: In the dialect of JSON Schema: `\d` and `\w` are ASCII, `.` is no line break.
        whole: It must fit the whole text; else it may fit anywhere inside.

    Raises:
        ValueError: it is empty or cannot be read.
    """
    if not pattern:
        raise ValueError("an empty regex fits everything; leave the argument out instead")
    for kind in _GROUP.findall(pattern):
        if not _GROUP_KNOWN.fullmatch(kind):
            raise ValueError(
                f"regex {pattern!r}: '(?{kind}' is not available; there are (…), (?:…), (?i) and "
                r"(?i:…), and [\s\S] for any character, line breaks too"
            )
    try:
        automaton(pattern)
    except ValueError:
        raise ValueError(f"regex {pattern!r}: {_complaint(pattern)}") from None
    return f"(?:{pattern})" if whole else f"{ANYTHING}(?:{pattern}){ANYTHING}"


def text_test(regexes: Iterable[str], /) -> TextTest:
    """Compile regular expressions into one test: does any of them fit the whole text?

    Raises:
        ValueError: together they are too large.
    """
    fits = automaton(f"^(?:{'|'.join(regexes)})$")

    def test(text: str) -> bool:
        try:
            return fits(text)
        except UnicodeEncodeError:  # a lone surrogate, which no pattern names
            return fits(text.encode("utf-8", "replace").decode())

    return test


def literal(text: str, /) -> str:
    """Write a text as a regular expression that fits it alone."""
    return _SPECIAL.sub(r"\\\g<0>", text)


@lru_cache(maxsize=4096)
def automaton(regex: str, /) -> TextTest:
    """Compile one regular expression; it may fit anywhere in a text.

    Raises:
        ValueError: it cannot be read, or is too large.
    """
    options = jsonschema_rs.RegexOptions()
    return jsonschema_rs.validator_for({"pattern": regex}, pattern_options=options).is_valid


def _complaint(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        return str(error)
    return (
        "look-around, back-references and very large repetitions are not available, "
        "because matching must take linear time"
    )
