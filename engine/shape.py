"""The shape of a tool's results, as it is declared: `@tool(shape="shell")`.

Reads what a host says; feeds the specification of the tool.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, cast, get_args

import msgspec

from laneway.errors import ToolError

Kind = Literal["text", "file", "search", "shell", "tests", "browser", "database", "agent"]
KINDS: tuple[str, ...] = get_args(Kind)
Shaper = Callable[[Any, int], str]
"""A host's own: from the value and the room, in characters, to what the model is shown."""

CHARACTERS: dict[str, int] = {
    "file": 16_000,
    "search": 8_000,
    "shell": 8_000,
    "tests": 10_000,
    "browser": 8_000,
    "database": 16_000,
    "agent": 8_000,
}
"""Up to so much, a result of that kind is shown whole: some 2,000 to 4,000 tokens. Of a text, up to
what the engine allows for one result."""
ITEMS = {"search": 50, "database": 50}
"""Hits, and rows."""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """How results of a tool are shortened, and from when on."""

    kind: Kind = "text"
    """`text` keeps beginning and end; `file` whole, or ranges and an outline; `search` the first
    hits; `shell` exit code, stderr and key lines; `tests` what failed, the stack, how to repeat it;
    `browser` title, key text and the screenshot's reference; `database` JSON of the first rows;
    `agent` conclusion, evidence, what is unfinished, artifacts."""
    chars: int | None = None
    """A result of up to so many characters is shown whole; None for what is usual for the kind."""
    items: int | None = None
    """Hits or rows that are shown at most; None for 50."""
    by: Shaper | None = None
    """A function of the host's, in place of all that."""

    @property
    def most_chars(self) -> float:
        """The characters at most, as far as the tool has a say."""
        return CHARACTERS.get(self.kind, math.inf) if self.chars is None else float(self.chars)

    @property
    def most_items(self) -> int | None:
        """The hits or rows at most; None where nothing is counted."""
        usual = ITEMS.get(self.kind)
        return usual if self.items is None else self.items


TEXT = Shape()


def shape_of(tool: str, given: object) -> Shape | None:
    """Read what is declared.

    Raises:
        ToolError: it is no shape.
    """
    if given is None:
        return None
    if callable(given):
        return Shape(by=cast("Shaper", given))
    shape: Any = Shape(kind=cast("Kind", given)) if isinstance(given, str) else given
    if not isinstance(shape, Shape) or shape.kind not in KINDS:
        raise ToolError(
            tool,
            f"shape={given!r} is none (the shapes: {', '.join(KINDS)}; or Shape(…), or a function "
            "of a value and the room for it)",
        )
    for name in ("chars", "items"):
        count = getattr(shape, name)
        if count is not None and (type(count) is not int or count < 1):
            raise ToolError(tool, f"Shape({name}={count!r}) is no number; give 1 or more")
    return shape
