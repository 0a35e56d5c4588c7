"""A command line as its parts, in the order of writing.

Made by the reading of the syntax tree; followed by the walk.
"""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from laneway.lanes.shell.words import Word


class Redirect(msgspec.Struct):
    """`2> errors.txt`: where a command reads from or writes to."""

    operator: str
    target: Word | None
    """None where the stream comes from the line itself, or is closed."""
    descriptor: str = ""


class Simple(msgspec.Struct):
    """A simple command."""

    words: list[Word]
    redirects: list[Redirect]
    inner: list["Script"]
    """Substitutions in its words, each run in a subshell of its own."""


class Shape(StrEnum):
    """How the bodies of a compound command are run."""

    GROUP = "group"
    """One after the other, in the shell itself."""
    SUBSHELL = "subshell"
    BRANCH = "branch"
    """Some of them."""
    LOOP = "loop"
    FUNCTION = "function"
    """Later, from wherever it is called."""


class Compound(msgspec.Struct):
    """A compound command."""

    shape: Shape
    bodies: list["Script"]
    redirects: list[Redirect]
    inner: list["Script"]
    name: str = ""
    """Of the function."""


class Step(msgspec.Struct):
    """A command and how it follows the one before."""

    after: str
    """`;` `&` `&&` `||` `|`; the first of a script has `;`."""
    command: Simple | Compound
    negated: bool = False


Script = Sequence[Step]
