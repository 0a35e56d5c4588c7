"""From the nodes of a word to what is known of it.

The value of each piece is taken from the text by the rules of quoting, not from the tree, and a
piece of a form that isn't known here makes the line unreadable. Feeds the reading of lines.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from laneway.lanes.shell.lines import Script
from laneway.lanes.shell.source import Source, Unreadable
from laneway.lanes.shell.words import QUOTED, UNKNOWN, Word, assembled, unknown

if TYPE_CHECKING:
    from tree_sitter import Node

_PLAIN = re.compile(r"[\w./:,@%+^=-]+")
_BARE = re.compile(r"(?:[^\s'\"`$\\|&;<>()]|\\[^\n])+")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_BLANKS = " \t\n\r\v\f"
_RAW = re.compile(r"'[^']*'")
_ANSI = re.compile(r"\$'(?:[^'\\]|\\[^'])*'")
"""Without a quote in it: there a POSIX shell ends the string, and bash does not."""
_IN_QUOTES = re.compile(r"(?:[^\"`$\\]++|\\.|\$(?![\w({\[*@#?$!'\"-]))*+", re.DOTALL)
_ESCAPED_IN_QUOTES = re.compile(r"\\([$`\"\\\n])")
_NAMED = re.compile(r"\$(?:\w+|[*@#?$!-])")
_BRACED = re.compile(
    r"\$\{#?(?:\w+|[*@#?$!-])(?:\[[@*\d]\])?"
    r"(?:(:?=)[^${}`'\"\\()]*|:?[-+?][^${}`'\"\\()]*"
    r"|(?:##?|%%?|//?|\^\^?|,,?)[^${}`'\"\\()]*|:[ \d-]+(?::[ \d-]+)?)?\}"
)
_NAME = re.compile(r"\w+")
_ARITHMETIC = re.compile(r"\$\(\([\w\s+*/%<>=!&|^~?:,.$-]*\)\)")
_SEQUENCE = re.compile(r"\{\d+\.\.\d+\}")
_SUBSTITUTION = re.compile(r"\$\(")
_BACKTICKS = re.compile(r"`[^`\\]*`")
_ASSIGNMENT = re.compile(r"(\w+)\+?=")
_NUMBER = re.compile(r"\d*")

EXPANSIONS = frozenset(
    {
        "simple_expansion",
        "expansion",
        "command_substitution",
        "arithmetic_expansion",
    }
)


class Found(msgspec.Struct):
    """What words bring with them."""

    assigned: list[str] = []
    """Variables that are set to something."""
    calculates: bool = False
    """Something is reckoned with variables: bash runs the substitutions in their values."""
    texts: bool = False
    """A variable is set to something that is no number."""


class WordReader:
    """Reads the words of one line."""

    __slots__ = ("_found", "_script", "_source")

    def __init__(self, source: Source, script: "Callable[[Node], Script]", found: Found) -> None:
        """Read from this source; `script` reads the body of a substitution."""
        self._source = source
        self._script = script
        self._found = found

    def word(self, node: "Node", inner: list[Script], *, hash_starts: bool = True) -> Word:
        """Read one word.

        Args:
            node: A literal of any kind.
            inner: Where the substitutions in it are put.
            hash_starts: Whether a `#` at its beginning would start a comment.

        Raises:
            Unreadable: It may not be what it looks like.
        """
        text = self._source.of(node)
        kind = node.type
        if kind in {"word", "number"} and _PLAIN.fullmatch(text) and not node.child_count:
            return Word(text, text, text)
        if hash_starts and text[0] == "#":
            raise Unreadable("a comment that was read as a word")
        if kind == "process_substitution":
            inner.append(self._script(node))
            return unknown(text, "/dev/fd/", many=False)
        values: list[str] = []
        bare: list[str] = []
        many = self._piece(node, values, bare, inner)
        return assembled("".join(values), "".join(bare), text, many=many)

    def assignment(self, node: "Node", inner: list[Script]) -> None:
        """Read `NAME=value`.

        Raises:
            Unreadable: An element of an array is set, or it isn't what it looks like.
        """
        text = self._source.of(node)
        match = _ASSIGNMENT.match(text)
        children = node.children
        if match is None or children[0].type != "variable_name":
            raise Unreadable("a value that is set in an unusual way")
        end = node.start_byte + len(match[0].encode())
        if len(children) == 3:  # noqa: PLR2004  # name, sign and value
            value = children[2]
            if value.start_byte != end or value.end_byte != node.end_byte:
                raise Unreadable("a value that doesn't stand by its name")
            if value.type == "array":
                self._found.texts = True
                for item in self._source.children(value)[1:-1]:
                    self.word(item, inner)
            else:
                word = self.word(value, inner, hash_starts=False)
                is_number = value.type == "arithmetic_expansion" or _NUMBER.fullmatch(word.shown)
                self._found.texts |= not is_number
        elif len(children) != 2 or node.end_byte != end:  # noqa: PLR2004  # name and sign
            raise Unreadable("a value that is set in an unusual way")
        self._found.assigned.append(match[1])

    def _piece(self, node: "Node", values: list[str], bare: list[str], inner: list[Script]) -> bool:
        """Add a piece of a word; say whether it may split."""
        kind = node.type
        if kind == "concatenation":
            return self._pieces(node, values, bare, inner)
        if kind in EXPANSIONS:
            self._expansion(node, inner)
            values.append(UNKNOWN)
            bare.append(UNKNOWN)
            return kind != "arithmetic_expansion"
        if kind == "string":
            return self._string(node, values, bare, inner)
        text = self._source.of(node)
        if kind in {"word", "number", "$"} and not node.child_count:
            if text != "$" and not _BARE.fullmatch(text):
                raise Unreadable(f"the word {text!r}")
            values.append(_ESCAPED.sub(r"\1", text))
            bare.append(_ESCAPED.sub(QUOTED, text))
        elif kind == "raw_string" and _RAW.fullmatch(text):
            values.append(text[1:-1])
            bare.append(QUOTED * (len(text) - 2))
        elif kind == "ansi_c_string" and _ANSI.fullmatch(text):
            values.append(UNKNOWN)
            bare.append(UNKNOWN)
        elif kind == "brace_expression" and _SEQUENCE.fullmatch(text):
            values.append(text)
            bare.append(text)
        else:
            raise Unreadable(f"{text!r} in a word")
        return False

    def _pieces(
        self, node: "Node", values: list[str], bare: list[str], inner: list[Script]
    ) -> bool:
        many = False
        end = node.start_byte
        for child in node.children:
            if child.start_byte != end:
                raise Unreadable("a gap in a word")
            end = child.end_byte
            if child.type == "$" and end != node.end_byte:
                raise Unreadable("a dollar sign that changes what follows")
            many |= self._piece(child, values, bare, inner)
        return many

    def _string(
        self, node: "Node", values: list[str], bare: list[str], inner: list[Script]
    ) -> bool:
        children = node.children
        if children[0].type != '"' or children[-1].type != '"' or len(children) < 2:  # noqa: PLR2004
            raise Unreadable("a string that is not closed")
        expansions = [child for child in children if child.type in EXPANSIONS]
        start, end = node.start_byte + 1, node.end_byte - 1
        raws = self._between(start, end, expansions)
        many = False
        for at, raw in enumerate(raws):
            value = _ESCAPED_IN_QUOTES.sub(_unescaped, raw)
            values.append(value)
            bare.append(QUOTED * len(value))
            if at < len(expansions):
                expansion = expansions[at]
                self._expansion(expansion, inner)
                values.append(UNKNOWN)
                bare.append(UNKNOWN)
                many |= "@" in self._source.of(expansion)
        return many

    def _between(self, start: int, end: int, expansions: "list[Node]") -> list[str]:
        """List the texts around the expansions, after a look at each."""
        text = self._source.text
        raws: list[str] = []
        for expansion in expansions:
            begin = _begin(text, expansion)
            raws.append(text[start:begin].decode())
            if raws[-1].endswith(("$", "\\")):
                raise Unreadable("a sign before an expansion that changes it")
            start = expansion.end_byte
        raws.append(text[start:end].decode())
        for raw in raws:
            if not _IN_QUOTES.fullmatch(raw):
                raise Unreadable("an expansion that was read as text")
        return raws

    def _expansion(self, node: "Node", inner: list[Script]) -> None:
        text = self._source.of(node).lstrip(_BLANKS)
        match node.type:
            case "simple_expansion":
                known = _NAMED.fullmatch(text)
            case "expansion":
                known = _BRACED.fullmatch(text)
                if known and known[1]:
                    name = _NAME.search(text)
                    assert name is not None
                    self._found.assigned.append(name[0])
                    self._found.texts = True
            case "arithmetic_expansion":
                known = _ARITHMETIC.fullmatch(text)
                if known and re.search(r"[A-Za-z_$]", text[3:-2]):
                    self._found.calculates = True
            case _:
                known = _SUBSTITUTION.match(text) or _BACKTICKS.fullmatch(text)
                inner.append(self._script(node))
        if not known:
            raise Unreadable(f"the expansion {text!r}")


def _begin(text: bytes, expansion: "Node") -> int:
    """Where an expansion begins: in a string, the tree counts the blanks before it as its own."""
    start = expansion.start_byte
    while text[start : start + 1].isspace():
        start += 1
    return start


def _unescaped(match: re.Match[str]) -> str:
    return "" if match[1] == "\n" else match[1]
