"""Names for metrics: so few that nobody can make the series of a metric grow for ever.

The first names that come are told apart; every later one counts as `other`, for as long as the
engine is entered. Feeds the metrics.
"""

OTHER = "other"


class Labels:
    """At most so many names, and `other`."""

    __slots__ = ("_known", "_most")

    def __init__(self, most: int) -> None:
        """Tell so many apart."""
        self._most = most
        self._known: set[str] = set()

    def of(self, name: str) -> str:
        """The name itself, or `other`."""
        if name not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known.add(name)
        return name
