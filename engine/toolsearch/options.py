"""When tools are found by search instead of being shown, as a host says."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from laneway.errors import UsageError

WHOLE_UP_TO = 15
"""So few tools are always shown whole."""
SEARCHED_FROM = 50
"""So many tools are found by search unless the host lifts it: models choose worse among so many,
and their definitions cost 200 to 500 tokens each with every request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """How tools are found where there are many of them."""

    lazy: bool | None = None
    """True: definitions are loaded by search. False: all are shown. None: all up to 15 tools, by
    search from 50 on, and between them where their definitions cost more than `most_tokens`."""
    most_tokens: float = 10_000
    """What definitions may cost in each request, about, before they are loaded by search."""
    always: Sequence[str] = ()
    """Tools that are shown in any case: those that nearly every task needs."""
    found: int = 5
    """How many tools one search finds at most."""

    OFF: ClassVar["Search"]
    """All tools are shown, however many."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            UsageError: something is out of range.
        """
        if isinstance(self.always, str):
            raise UsageError(f"Search.always is the text {self.always!r}; give names in a list")
        if type(self.found) is not int or self.found < 1:
            raise UsageError(f"Search.found is {self.found!r}; give 1 or more")
        if math.isnan(self.most_tokens) or self.most_tokens < 0:
            raise UsageError(f"Search.most_tokens is {self.most_tokens!r}; give 0 or more")

    def applies(self, count: int, tokens: Callable[[], float]) -> bool:
        """Whether definitions are loaded by search.

        Args:
            count: of the tools.
            tokens: estimates all their definitions; asked only if it matters.
        """
        if self.lazy is not None:
            return self.lazy
        return count >= SEARCHED_FROM or (count > WHOLE_UP_TO and tokens() > self.most_tokens)


Search.OFF = Search(lazy=False)
