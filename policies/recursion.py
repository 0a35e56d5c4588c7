"""How deep, and how often, runs may begin below the calls of others.

Reads where a run would stand in its tree, from the engine's own record, and the limits that the
host set; gives the failure that all its calls end with, if it may not begin.
"""

from typing import ClassVar

import msgspec

from laneway.errors import UsageError
from laneway.outcomes import Code, Failure


class Recursion(msgspec.Struct, frozen=True, kw_only=True):
    """What a tree of runs may come to; None lifts a limit, by name."""

    OFF: ClassVar["Recursion"]
    """All limits lifted."""

    depth: int | None = 3
    """Levels: the run at the top is the first, each run that a body enters is one more. What a
    body calls by `ToolContext.invoke` is no level."""
    calls_per_agent: int | None = 3
    """How often one named agent may be begun in a tree."""
    runs: int | None = 12
    """Runs in a tree, the one at the top included."""
    seconds: float | None = 3600.0
    """How long after a body at the top was entered runs may begin below it."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            UsageError: a limit that makes no sense.
        """
        for name in ("depth", "calls_per_agent", "runs"):
            given = getattr(self, name)
            whole = isinstance(given, int) and not isinstance(given, bool)
            if given is not None and not (whole and given >= 1):
                raise UsageError(
                    f"Recursion.{name} is {given!r}; give a whole number of 1 or more, or None"
                )
        seconds = self.seconds
        if seconds is not None and (isinstance(seconds, bool) or not seconds >= 0):
            raise UsageError(f"Recursion.seconds is {seconds!r}; give 0 or more, or None")


Recursion.OFF = Recursion(depth=None, calls_per_agent=None, runs=None, seconds=None)


class Descent(msgspec.Struct, frozen=True, kw_only=True):
    """A run that would begin below a call: all that the decision may look at."""

    chain: tuple[str, ...]
    """The levels down to it, the root first, its own name last: names of agents, or of runs."""
    agents: tuple[str, ...] = ()
    """The named agents above it, the outermost first."""
    agent: str = ""
    """The named agent that would work in it."""
    known: bool = False
    """It has begun before, and is counted already."""
    runs: int = 1
    """That have begun in the tree, the root included."""
    calls: int = 0
    """How often its agent has been begun in the tree."""
    seconds: float = 0.0
    """Since the outermost body of the chain was entered."""


def refusal(descent: Descent, limits: Recursion) -> Failure | None:
    """Say why a run must not begin; None if it may."""
    chain = " > ".join(descent.chain)
    if descent.agent and descent.agent in descent.agents:
        return Failure(
            code=Code.AGENT_CYCLE,
            message=f"{descent.agent} is at work already further up: {chain}.",
            hint=f"Do it without {descent.agent}, or return what is missing to whoever asked.",
        )
    depth = len(descent.chain)
    if limits.depth is not None and depth > limits.depth:
        return Failure(
            code=Code.DEPTH_EXCEEDED,
            message=f"It would be level {depth} of {limits.depth}: {chain}.",
            hint="Do this part here instead of handing it on.",
        )
    if descent.known:
        return None
    if limits.calls_per_agent is not None and 0 < limits.calls_per_agent <= descent.calls:
        return Failure(
            code=Code.AGENT_LIMIT,
            message=f"{descent.agent} was asked {descent.calls} times in this tree of runs, which "
            f"is as often as it may be: {chain}.",
            hint=f"Go on with what {descent.agent} has given so far.",
        )
    if limits.runs is not None and descent.runs >= limits.runs:
        return Failure(
            code=Code.BUDGET_EXCEEDED,
            message=f"{descent.runs} runs were begun in the tree of {descent.chain[0]}, as many as "
            f"there may be: {chain}.",
            hint="Do this part here, with what the others have found.",
        )
    if limits.seconds is not None and descent.seconds > limits.seconds:
        return Failure(
            code=Code.TIMEOUT,
            message=f"The chain {chain} began {descent.seconds:.0f} s ago; after "
            f"{limits.seconds:g} s nothing more begins in it.",
            hint="Bring what you have to an end.",
        )
    return None
