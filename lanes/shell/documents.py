"""Here-documents are cut out of a line before it is parsed.

The grammar knows them in the simplest places only. Where one seems to begin, its body is taken out
and a redirection is put in its place; whether one did begin there is seen in the tree, which must
have an operator at that place, and the end of the line outside every word. Reads the text; feeds
the parser with the rest, and the reading of lines with the bodies.
"""

import re
from typing import TYPE_CHECKING, NamedTuple

from laneway.lanes.shell.source import Unreadable

if TYPE_CHECKING:
    from tree_sitter import Node

_BEGIN = re.compile(
    rb"(?<!<)<<(-?)[ \t]*(?:'([\w.-]+)'|\"([\w.-]+)\"|\\([\w.-]+)|([A-Za-z_][\w.-]*))"
    rb"(?=[\s|&;()<>]|\Z)"
)
_STAND_IN = b"</dev/fd/0"
_IN_WORDS = frozenset(
    "word string string_content raw_string ansi_c_string concatenation comment expansion "
    "arithmetic_expansion regex extglob_pattern variable_assignment array".split()
)


class Document(NamedTuple):
    """One here-document."""

    body: bytes
    quoted: bool
    """Nothing in it is expanded."""
    at: int
    """Where its operator stands in the rest of the line."""
    line_end: int
    """Where the line with the operator ends there."""


def cut(text: bytes) -> tuple[bytes, list[Document]]:
    """Take the here-documents out of a command line; give the rest and what was taken."""
    if b"<<" not in text:
        return text, []
    lines = text.split(b"\n")
    rest: list[bytes] = []
    documents: list[Document] = []
    length = at = 0
    while at < len(lines):
        line, places = lines[at], list[tuple[bytes, bool, int]]()
        at += 1
        pieces, done = list[bytes](), 0
        for begin in _BEGIN.finditer(line):
            name = next(group for group in begin.groups()[1:] if group is not None)
            end = _end(lines, at, name, tabs=bool(begin[1]))
            if end is None:
                continue
            pieces.append(line[done : begin.start()])
            done = begin.end()
            body = b"".join(one + b"\n" for one in lines[at:end])
            places.append((body, begin[5] is None, length + sum(map(len, pieces))))
            pieces.append(_STAND_IN)
            at = end + 1
        kept = b"".join([*pieces, line[done:]])
        length += len(kept)
        documents += [Document(body, quoted, place, length) for body, quoted, place in places]
        rest.append(kept)
        length += 1
    return b"\n".join(rest), documents


def verify(documents: list[Document], root: "Node", rest: bytes) -> None:
    """See that each here-document began where it was cut.

    Raises:
        Unreadable: The place is quoted, or the body begins on another line.
    """
    for document in documents:
        leaf = root.descendant_for_byte_range(document.at, document.at + 1)
        if leaf is None or leaf.type != "<" or leaf.start_byte != document.at:
            raise Unreadable("something that looks like a here-document")
        end = document.line_end
        if end < len(rest):
            around = root.descendant_for_byte_range(end, end + 1)
            if rest[end - 1 : end] == b"\\" or (around and around.type in _IN_WORDS):
                raise Unreadable("a here-document that begins on another line")


def _end(lines: list[bytes], at: int, name: bytes, *, tabs: bool) -> int | None:
    for number in range(at, len(lines)):
        line = lines[number]
        if line == name or (tabs and line.lstrip(b"\t") == name):
            return number
    return None
