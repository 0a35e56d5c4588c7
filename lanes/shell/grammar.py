"""The parser of bash, loaded when the first command line is analysed.

tree-sitter and its grammar are the extra `shell`. Reads a command line; gives its syntax tree, or
nothing where there is an error in it, or where parsing would take too long.
"""

import importlib.util
from functools import cache
from typing import TYPE_CHECKING

from laneway.errors import UsageError

if TYPE_CHECKING:
    from tree_sitter import Language, Node

LONGEST = 65_536
"""Bytes of a command line; a longer one is not analysed."""
_SHORT = 256
"""Bytes that are parsed without looking at the effort."""
_EFFORT = 300_000
"""Steps of the parser times bytes, in hundreds: some of its steps look at all that is left, so
that the product bounds the time, to about a third of a second for a line made to be slow."""
_LONG_RUN = 300
_DENSE = 80
_PLAIN = bytes(range(0x80)) + b"%" * 0x80
"""What the parser is shown of each byte. Its scanner asks isdigit of whole code points (as of
tree-sitter-bash 0.25.1), which reads outside of a table and may crash the process. To bash, what is
beyond ASCII is part of a word and of no variable's name; so is a percent sign."""
_OPERATORS = b"<>|&;()[]{}$`\"'\\?*!#=~@"


class MissingShellError(UsageError):
    """The extra `shell` is not installed."""

    def __init__(self) -> None:
        """Name the extra."""
        super().__init__(
            "analysing shell commands needs tree-sitter and its bash grammar; "
            "install them with: pip install 'laneway[shell]'"
        )


def require_grammar() -> None:
    """See that the parser can be loaded, without loading it.

    Raises:
        MissingShellError: The extra `shell` is not installed.
    """
    for name in ("tree_sitter", "tree_sitter_bash"):
        if importlib.util.find_spec(name) is None:
            raise MissingShellError


def parse(source: bytes) -> "Node | None":
    """Parse a command line.

    The tree is of the same length, and has no text of its own: what is beyond ASCII is not in it.

    Returns:
        The root, without an error below it; None if there is one, or it takes too long.

    Raises:
        MissingShellError: The extra `shell` is not installed.
    """
    language = _language()
    from tree_sitter import Parser  # noqa: PLC0415  # the extra `shell`

    source = source.translate(_PLAIN)
    parser = Parser(language)  # 0.3 µs, and one that is shared serves one thread at a time
    if len(source) <= _SHORT:
        root = parser.parse(source).root_node
        return None if root.has_error else root
    if len(source) > LONGEST or _is_dense(source):
        return None
    left = _EFFORT // len(source) + 10

    def stop(_: int, has_error: bool) -> bool:  # noqa: FBT001  # tree-sitter calls it
        nonlocal left
        left -= 1
        return has_error or left < 0

    try:
        root = parser.parse(lambda at, _: source[at:], progress_callback=stop).root_node
    except ValueError:  # stopped
        return None
    return None if root.has_error else root


@cache
def _language() -> "Language":
    try:
        import tree_sitter_bash  # noqa: PLC0415  # the extra `shell`
        from tree_sitter import Language  # noqa: PLC0415
    except ImportError as error:
        raise MissingShellError from error
    return Language(tree_sitter_bash.language())


def _is_dense(source: bytes) -> bool:
    """Whether there are operators without a blank, more than anybody writes."""
    return any(
        len(run) > _LONG_RUN and len(run) - len(run.translate(None, _OPERATORS)) > _DENSE
        for run in source.split()
    )
