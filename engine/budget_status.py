"""How budgets stand, as hosts see it: snapshots, warnings, and what a journal keeps of limits."""

from collections.abc import Callable, Iterable, Mapping
from math import inf

import msgspec

from laneway.ids import RunId
from laneway.policies.budgets import DEFAULTS, MICROS, Limit, Scope, Unit


class BudgetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How one budget of a run stands. Costs are in US dollars."""

    budget: str
    """Its name: `tokens`, `tree:cost`, `tool:mail:attempts`."""
    unit: Unit
    scope: Scope
    limit: float
    """math.inf where there is none."""
    settled: float
    """Gone for good."""
    reserved: float
    """Set aside for what is under way."""

    @property
    def left(self) -> float:
        """How much more there is."""
        return max(self.limit - self.settled - self.reserved, 0.0)


class BudgetWarning(msgspec.Struct, frozen=True, kw_only=True):
    """A threshold of a budget was reached: what `Engine(on_budget=…)` is called with."""

    run: RunId
    budget: str
    percent: int
    """80 or 95."""
    used: float
    limit: float


Listener = Callable[[BudgetWarning], object]


def status_of(limit: Limit, settled: float, reserved: float) -> BudgetStatus:
    """Tell how a budget stands, in the units of hosts."""
    scale = MICROS if limit.unit is Unit.COST else 1
    return BudgetStatus(
        budget=limit.key,
        unit=limit.unit,
        scope=limit.scope,
        limit=limit.limit / scale,
        settled=settled / scale,
        reserved=reserved / scale,
    )


def recorded(stored: Mapping[str, float]) -> list[Limit]:
    """The limits of a run as a journal tells them, defaults included; without trees and time."""
    given = {**{unit.value: DEFAULTS[unit] for unit in DEFAULTS}, **stored}
    found: list[Limit] = []
    for key, amount in given.items():
        place, _, unit_name = key.rpartition(":")
        scope, _, name = place.partition(":")
        if unit_name not in _UNITS:
            continue  # Of a later version.
        unit = Unit(unit_name)
        if unit is not Unit.SECONDS and scope != Scope.TREE:
            scale = MICROS if unit is Unit.COST else 1
            found.append(Limit(unit, Scope(scope or Scope.RUN), name, amount * scale))
    return found


_UNITS = frozenset(unit.value for unit in Unit)


def stored(given: Iterable[Limit]) -> dict[str, float]:
    """The limits as a journal keeps them: those that were given, not the defaults."""
    return {
        limit.key: limit.limit / (MICROS if limit.unit is Unit.COST else 1)
        for limit in given
        if limit.limit != inf
        and not (limit.scope is Scope.RUN and limit.limit == DEFAULTS.get(limit.unit))
    }
