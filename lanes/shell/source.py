"""The text under the syntax tree: that its pieces and the blanks between them are all there is.

Reads nodes; feeds the reading of words and lines with children that a shell sees the same way.
"""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

_IN_LINE = re.compile(rb"(?:\\\n)*[ \t](?:[ \t]|\\\n)*")
_OVER_LINES = re.compile(rb"(?:\\\n)*[ \t\n](?:[ \t\n]|\\\n)*")
_NEWLINE = re.compile(rb"(?<!\\)\n")
_SEPARATING = frozenset(b"|&;()<> \t\n")
_BEGIN_WITH_OPERATOR = frozenset({"process_substitution", "concatenation"})
"""Words all the same."""
_LONGER = frozenset("(( <( >( ;; ;& && &> >> >& >| << <> <& || |&".split())
"""Two characters that are one operator: where both stand together the tree must have them so."""


class Unreadable(Exception):
    """Something that is not surely what a shell would make of it."""


class LinesJoined(Unreadable):
    """The tree goes on with a command where a newline ends it."""

    def __init__(self, at: int) -> None:
        """Name the place of the newline."""
        super().__init__("two lines that were read as one")
        self.at = at


class Source:
    """The bytes of a command line."""

    __slots__ = ("text",)

    def __init__(self, text: bytes) -> None:
        """Take the bytes that were parsed."""
        self.text = text

    def of(self, node: "Node") -> str:
        """Give the text of a node."""
        return self.text[node.start_byte : node.end_byte].decode()

    def children(self, node: "Node", *, lines: bool = True) -> "list[Node]":
        """List the children without comments.

        Args:
            node: Whose children are separate words and operators.
            lines: Whether they may stand on several lines.

        Raises:
            Unreadable: There is something between them, or two of them would be one.
        """
        found: list[Node] = []
        end = node.start_byte
        after_comment = False
        for child in node.children:
            start = child.start_byte
            if start != end:
                self._blank(end, start, lines=lines)
            elif found and not after_comment and "`" not in {child.type, found[-1].type}:
                self._apart(found[-1], child)
            end = child.end_byte
            after_comment = child.type == "comment"
            if after_comment:
                self._comment(child, lines=lines)
                continue
            if not child.is_named:
                self._whole(child)
            found.append(child)
        if end != node.end_byte:
            self._blank(end, node.end_byte, lines=True)
        return found

    def has_newline(self, start: int, end: int) -> bool:
        """Whether a line ends between two places that have only blanks and comments between."""
        return b"\n" in self.text[start:end].replace(b"\\\n", b"")

    def margins(self, root: "Node") -> None:
        """See that there is nothing around the tree.

        Raises:
            Unreadable: There is.
        """
        for start, end in ((0, root.start_byte), (root.end_byte, len(self.text))):
            if start != end:
                self._blank(start, end, lines=True)

    def _blank(self, start: int, end: int, *, lines: bool) -> None:
        gap = self.text[start:end]
        if not lines and _OVER_LINES.fullmatch(gap) and (newline := _NEWLINE.search(gap)):
            raise LinesJoined(start + newline.end() - 1)
        if gap != b" " and not (_OVER_LINES if lines else _IN_LINE).fullmatch(gap):
            raise Unreadable(f"{gap.decode()!r} between two words")

    def _apart(self, before: "Node", after: "Node") -> None:
        """Two nodes without a blank: one of them must be an operator, and not be half of one."""
        text, at = self.text, after.start_byte
        ends = not before.is_named and text[at - 1] in _SEPARATING
        begins = text[at] in _SEPARATING and after.type not in _BEGIN_WITH_OPERATOR
        if not (ends or begins):
            raise Unreadable(f"{text[at - 1 : at + 1].decode(errors='replace')!r} in one word")

    def _comment(self, node: "Node", *, lines: bool) -> None:
        start = node.start_byte
        before = self.text[start - 1 : start]
        if not lines or (before and before[0] not in _SEPARATING):
            raise Unreadable("a comment in the middle of a line")

    def _whole(self, operator: "Node") -> None:
        end = operator.end_byte
        both = self.text[end - 1 : end + 1]
        if both[0] in _SEPARATING and both.decode(errors="replace") in _LONGER:
            raise Unreadable(f"half of an operator, {both.decode()!r}")
