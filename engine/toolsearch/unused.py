"""Which tools nobody has called for long: each costs tokens in every request.

Reads the facts of runs; feeds `laneway tools unused`.
"""

from collections.abc import Iterable

import msgspec

from laneway.facts import Row, RunOpened, RunTaken, TurnSubmitted


class Use(msgspec.Struct, kw_only=True):
    """How a tool was used."""

    tool: str
    calls: int = 0
    runs: int = 0
    last_wall: float | None = None
    """Unix seconds of the answer that asked for it last; None for never."""
    tokens: int | None = None
    """Of its definition; None where it is not at hand."""


class Uses:
    """What is known of the use of tools, run by run."""

    def __init__(self, tools: Iterable[str] = ()) -> None:
        """Begin with the tools that are to be told of, if they are known."""
        self._given = frozenset(tools)
        self._uses = {name: Use(tool=name) for name in tools}

    def take(self, rows: Iterable[Row]) -> None:
        """Take in the facts of a run."""
        seen: set[str] = set()
        for row in rows:
            fact = row.fact
            if isinstance(fact, TurnSubmitted):
                for call in fact.calls:
                    use = self._of(call.tool)
                    if use is not None:
                        use.calls += 1
                        use.runs += call.tool not in seen
                        use.last_wall = max(use.last_wall or 0.0, row.wall)
                        seen.add(call.tool)
            elif isinstance(fact, RunOpened | RunTaken) and fact.setting is not None:
                for name in () if self._given else fact.setting.tools:
                    self._uses.setdefault(name, Use(tool=name))

    def _of(self, name: str) -> Use | None:
        return self._uses.get(name)

    def unused(self, since_wall: float) -> list[Use]:
        """The tools that were not called since then, the longest unused first.

        Args:
            since_wall: Unix seconds.
        """
        found = [one for one in self._uses.values() if (one.last_wall or 0.0) < since_wall]
        return sorted(found, key=lambda one: (one.last_wall or 0.0, one.tool))

    @property
    def count(self) -> int:
        """How many tools are known."""
        return len(self._uses)
