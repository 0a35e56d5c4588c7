"""What a host says of the size and form of results."""

import math
from collections.abc import Collection
from dataclasses import dataclass

from laneway.errors import UsageError

LEAST_CHARACTERS = 200
"""What each result is given in any case: room for its size, its handle, and a line or two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaping:
    """How results are shown to the model. Sizes are in characters, some four to a token."""

    result_chars: float = 30_000
    """Of one result, notices included. What the engine itself says of a failure (its code, its
    effect, what to do instead) is not cut."""
    turn_chars: float = 120_000
    """Of all results of a turn together. Where they want more, each gets as much as the others, and
    what a small one does not need goes to the large ones; but never less than 200."""
    as_data: bool | Collection[str] = False
    """Results stand between marks that say that they are data, not instructions: True for all
    tools, or the names of those whose results others can write (web pages, mail)."""
    read_result: bool = True
    """The model is offered a tool by which it reads what was left out."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            UsageError: a size is none, or too small for anything.
        """
        for name in ("result_chars", "turn_chars"):
            given = getattr(self, name)
            number = isinstance(given, (int, float)) and not isinstance(given, bool)
            if not number or math.isnan(given) or given < LEAST_CHARACTERS:
                raise UsageError(
                    f"Shaping.{name} is {given!r}; give {LEAST_CHARACTERS} or more characters "
                    "(math.inf lifts the limit)"
                )
        if isinstance(self.as_data, str):
            raise UsageError(
                f"Shaping.as_data is the text {self.as_data!r}; give True, or names in a list"
            )

    def marks(self, tool: str) -> bool:
        """Whether results of a tool are marked as data."""
        if isinstance(self.as_data, bool):
            return self.as_data
        return tool in self.as_data
