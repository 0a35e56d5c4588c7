"""The books of budgets: what is settled, what is set aside, and whether there is room for more.

A check is settled + reserved + asked against the limit, over all the lines that something draws on
at once: either every line has the room and all of it is set aside, or nothing is. So calls that
are judged beside each other cannot pass one check together. Reads limits; the engine asks, acts
and writes down.
"""

from collections.abc import Iterable, Sequence
from math import inf

import msgspec

from laneway.outcomes import Code, Failure
from laneway.policies.budgets import MICROS, Limit, Scope, Unit

RULE = "budget "
"""Before the budget's name, where it stands as the rule behind an outcome."""
THRESHOLDS = (80, 95)
"""Percent of a limit at which the host is told, once each."""


class Line(msgspec.Struct, eq=False, kw_only=True):
    """One budget in the books. Amounts are whole numbers: nothing drifts."""

    limit: Limit
    key: str
    settled: int = 0
    """Gone for good."""
    reserved: int = 0
    """Set aside for what is under way."""
    neared: int = 0
    """The highest threshold that has been told."""
    kept_back: int = 0
    """For a last summary: out of reach for anything else."""

    @property
    def used(self) -> int:
        """What a check goes by."""
        return self.settled + self.reserved

    @property
    def left(self) -> float:
        """How much more fits in."""
        return max(self.limit.limit - self.kept_back - self.used, 0)

    def crossed(self) -> tuple[int, ...]:
        """Say which thresholds have been reached and not been told; they count as told now."""
        most, used = self.limit.limit, self.settled + self.reserved
        if not used or used * 100 < most * THRESHOLDS[0]:
            return ()  # A limit that is infinite is never near.
        found = tuple(
            percent
            for percent in THRESHOLDS
            if percent > self.neared and used * 100 >= most * percent
        )
        if found:
            self.neared = found[-1]
        return found


Wants = Sequence[tuple[Line, int]]
"""What something draws on, and how much of each."""


class Reserved(msgspec.Struct, frozen=True):
    """All of it has been set aside."""


class Refused(msgspec.Struct, frozen=True):
    """Nothing has been set aside, since this line has no room for it."""

    line: Line
    asked: int

    def __str__(self) -> str:
        """Name the budget, the limit, and what stands against it."""
        line = self.line
        limit, settled = (
            told(line.limit.unit, line.limit.limit),
            told(line.limit.unit, line.settled),
        )
        unit = line.limit.unit
        aside = f" and {told(unit, line.reserved)} set aside" if line.reserved else ""
        aside += f" and {told(unit, line.kept_back)} kept for a summary" if line.kept_back else ""
        asked = "" if self.asked <= 1 else f"; {told(line.limit.unit, self.asked)} more do not fit"
        return f"the budget {line.key} of {limit} has {settled} used{aside}{asked}"


def reserve(wants: Wants) -> Reserved | Refused:
    """Set all of it aside, or nothing."""
    for at, (line, amount) in enumerate(wants):
        if line.settled + line.reserved + amount > line.limit.limit - line.kept_back:
            release(wants[:at])
            return Refused(line, amount)
        line.reserved += amount
    return RESERVED


def hold(wants: Wants) -> None:
    """Set aside what was set aside before, by whoever drove the run: nobody asks again."""
    for line, amount in wants:
        line.reserved += amount


def release(wants: Wants) -> None:
    """Give back all that was set aside: what it was for was never begun."""
    for line, amount in wants:
        line.reserved -= amount


def settle(wants: Wants, used: Iterable[int] | None = None) -> None:
    """Write down what was used of what was set aside, and give the rest back.

    Args:
        wants: as they were reserved.
        used: of each; all of it if None. It may be more than was set aside: what is used is used.
    """
    if used is None:
        for line, amount in wants:
            line.reserved -= amount
            line.settled += amount
        return
    for (line, amount), taken in zip(wants, used, strict=True):
        line.reserved -= amount
        line.settled += taken


def exceeded(refused: Refused | str, hint: str = "") -> Failure:
    """The outcome of a call that no budget has room for."""
    return Failure(
        code=Code.BUDGET_EXCEEDED,
        message=f"Not started: {refused}.",
        hint=hint
        or "Do not ask for it again in this run: go on with what you have, or tell the "
        "user which limit was reached.",
    )


def is_of_budget(rule: str) -> bool:
    """Whether what is recorded as the rule behind an outcome is a budget."""
    return rule.startswith(RULE)


def told(unit: Unit, amount: float) -> str:
    """An amount in words: `5 tool calls`, `$0.25`, `900 s`."""
    if amount == inf:
        return "no limit"
    if unit is Unit.COST:
        return f"${amount / MICROS:.6f}".rstrip("0").rstrip(".")
    if unit is Unit.SECONDS:
        return f"{amount:g} s"
    words = unit.value.replace("_", " ")
    return f"{amount:,.0f} {words if amount != 1 else words.removesuffix('s')}"


def concerns(limit: Limit, tool: str, resources: Iterable[str]) -> bool:
    """Whether a call draws on a budget of calls: by its scope, its tool and what it claims."""
    if limit.scope is Scope.TOOL:
        return limit.name == tool
    return limit.scope is not Scope.LANE or limit.name in resources


RESERVED = Reserved()
