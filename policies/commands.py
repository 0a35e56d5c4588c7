"""Patterns over the commands of a shell line: `git *` against each that may run.

A line is judged by its parts, wherever they stand: behind `&&`, in `$( )`, under `sudo` or in
`sh -c`. A rule that refuses needs one command that fits; a rule that grants must cover each, and
grants nothing where not all of them are known, or a redirection writes. What a rule would refuse
and can only hide in the line is left to a human. Reads the analysis of command lines, which makes
claims as well; feeds the conditions of rules.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, cast

import msgspec

from laneway.lanes.shell import HOLE, MissingShellError, analyse, require_grammar
from laneway.policies.globs import ANYTHING, literal, text_test
from laneway.policies.questions import Question

QuestionTest = Callable[[Question], bool]


class CommandsCondition(msgspec.Struct, frozen=True):
    """What a rule wants of the commands in a call's command lines."""

    test: QuestionTest
    """Whether they surely fit."""
    doubt: QuestionTest
    """Whether one that fits may hide: in a line that can't be listed, in a word not known yet."""
    needs: str
    """A regular expression that one of `Line.alike` fits if the test holds."""


class Line(msgspec.Struct, frozen=True):
    """A command line, as patterns see it."""

    outlines: tuple[str, ...] = ()
    """Each command as it is written, with holes."""
    alike: tuple[str, ...] = ()
    """The same, and each whose program is written with a folder by its bare name, too."""
    beginnings: tuple[str, ...] = ()
    """What stands before the first hole, of those of `alike` that have one."""
    listed: bool = False
    """Whether these are all commands that may run."""
    beside: bool = False
    """Whether something happens that no command's words tell of: a redirection writes a file, or
    a program may do anything with a word that is not known."""

    @property
    def plain(self) -> bool:
        """Whether all that runs is known to the last word."""
        return self.listed and not self.beginnings


def commands_condition(patterns: Sequence[str], /, *, grants: bool) -> CommandsCondition:
    """Compile the command patterns of one rule.

    Args:
        patterns: Globs over a whole command, of one blank between words; one that ends in ` *`
            also fits the command alone.
        grants: The rule grants: every command must fit, and there must be one.

    Raises:
        ValueError: A pattern is empty or could never fit one command, or the analysis is not
            installed.
    """
    try:
        require_grammar()
    except MissingShellError as missing:
        raise ValueError(str(missing)) from None
    regexes = [_regex(pattern) for pattern in patterns]
    fits = text_test(regexes)
    return CommandsCondition(
        _all_fit(fits) if grants else _any_fits(fits), _may_hide(tuple(patterns)), "|".join(regexes)
    )


def lines_of(question: Question, arguments: Mapping[str, Any], /) -> Iterator[Line]:
    """Give the command lines in the arguments of a call; one that is left out is none."""
    for name in question.command_lines:
        value = arguments.get(name)
        if isinstance(value, str):
            yield line_of(value)
        elif isinstance(value, list):
            yield _line_of_words(cast("list[object]", value))
        elif value is not None:
            yield Line()


@lru_cache(maxsize=256)
def line_of(text: str, /) -> Line:
    """Analyse a command line; no line raises."""
    found = analyse(text, cwd=".")
    alike = dict.fromkeys(
        each
        for command in found.commands
        for each in (command.outline, _bare(command.outline, command.name))
    )
    return Line(
        tuple(command.outline for command in found.commands),
        tuple(alike),
        tuple(one.partition(HOLE)[0] for one in alike if HOLE in one),
        found.complete,
        found.redirected
        or any(HOLE in one.outline and not one.seen_through for one in found.commands),
    )


def _line_of_words(words: "list[object]") -> Line:
    """Analyse a program with its arguments, which no shell reads."""
    texts = [word for word in words if isinstance(word, str)]
    return line_of(shlex.join(texts)) if len(texts) == len(words) else Line()


def texts_for_probe(question: Question, /) -> Sequence[str] | None:
    """Give the texts that patterns of commands are about; None if some are not known."""
    if question.arguments is None:
        return None
    lines = list(lines_of(question, question.arguments))
    if not all(line.plain for line in lines):
        return None
    return [text for line in lines for text in line.alike]


def _all_fit(fits: Callable[[str], bool]) -> QuestionTest:
    def test(question: Question) -> bool:
        found = False
        for line in lines_of(question, question.arguments or {}):
            if line.beside or not (line.listed and all(map(fits, line.outlines))):
                return False
            found |= bool(line.outlines)
        return found

    return test


def _any_fits(fits: Callable[[str], bool]) -> QuestionTest:
    def test(question: Question) -> bool:
        if question.arguments is None:  # unknown: what might refuse does
            return bool(question.command_lines)
        return any(
            fits(text) for line in lines_of(question, question.arguments) for text in line.alike
        )

    return test


def _may_hide(patterns: Sequence[str]) -> QuestionTest:
    def test(question: Question) -> bool:
        return any(
            not line.listed
            or any(_may_begin(one, begin) for begin in line.beginnings for one in patterns)
            for line in lines_of(question, question.arguments or {})
        )

    return test


def _bare(outline: str, name: str) -> str:
    """Write a command with its program's bare name."""
    program, blank, rest = outline.partition(" ")
    return f"{name}{blank}{rest}" if name and program.endswith(f"/{name}") else outline


def _regex(pattern: str) -> str:
    """Translate a pattern; a hole, which may turn out as anything, is covered by `*` alone."""
    _check(pattern)
    alone = pattern.removesuffix(" *")
    regex = "".join(
        ANYTHING if part.startswith("*") else f"[^{HOLE}]" if part == "?" else literal(part)
        for part in _PARTS.findall(alone)
    )
    return regex if alone == pattern else f"{regex}(?: {ANYTHING})?"


def _may_begin(pattern: str, begin: str) -> bool:
    """Whether a text that begins so, with anything behind it, may fit; rather too often."""
    head, star, _ = pattern.partition("*")
    if not star and len(begin) > len(head):
        return False
    return all(one in ("?", other) for one, other in zip(head, begin, strict=False))


def _check(pattern: str) -> None:
    """Refuse what is not one command.

    Raises:
        ValueError: It is empty, or could never fit.
    """
    if not pattern.strip():
        raise ValueError("an empty pattern fits nothing")
    if pattern != pattern.strip():
        raise ValueError(f"command pattern {pattern!r} has blanks around it, and never fits")
    if _SEVERAL.search(pattern) and not _QUOTES.search(pattern):
        raise ValueError(
            f"command pattern {pattern!r}: each command of a line is judged on its own, without "
            "what joins them; write a pattern for each"
        )


_PARTS: Final = re.compile(r"\*+|\?|[^*?]+")
_SEVERAL: Final = re.compile(r"[|;&<>\n]")
_QUOTES: Final = re.compile(r"['\"\\]")
