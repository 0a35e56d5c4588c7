"""How much a run may use: what the host gives, checked and put together.

A budget has a unit, a scope and a limit. Three units always have a limit in every run, because a
model that goes round in circles pays for nothing else: model turns, tokens and the clock. They are
lifted by name (`Budgets(model_turns=UNLIMITED)`), never by leaving them out. Reads what a host
gives to the engine and to a run; feeds the ledger, which does the counting.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, DecimalException
from enum import StrEnum
from typing import Any, Final

import msgspec

from laneway.errors import UsageError
from laneway.policies.prices import Price

UNLIMITED: Final = math.inf
"""Lifts a budget, by name."""

MICROS = 1_000_000
"""Costs are counted in whole millionths of a dollar, so that no sum drifts."""


class Unit(StrEnum):
    """What is counted."""

    MODEL_TURNS = "model_turns"
    """Answers of the model that were let in."""
    TOOL_CALLS = "tool_calls"
    """Calls whose body was begun, each once."""
    ATTEMPTS = "attempts"
    """Beginnings of bodies, repeats included."""
    TOKENS = "tokens"
    """Of model requests, input and output together."""
    COST = "cost"
    """US dollars, of model requests."""
    SECONDS = "seconds"
    """At work: not while only humans are awaited, nor between the turns."""


class Scope(StrEnum):
    """Whose use is counted together."""

    RUN = "run"
    """Of one run, without the runs within its calls."""
    TREE = "tree"
    """Of a run and of all runs within its calls, at any depth."""
    TOOL = "tool"
    """Of one tool, in the tree."""
    LANE = "lane"
    """Of the calls that claim one lane, in the tree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a tree of runs, a tool or a lane may use; what is left out is not limited."""

    model_turns: float = UNLIMITED
    tool_calls: float = UNLIMITED
    attempts: float = UNLIMITED
    tokens: float = UNLIMITED
    cost: Decimal | float | str = UNLIMITED
    """US dollars, to a millionth."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            UsageError: a limit is no whole number, or no amount.
        """
        for name, given in _given(self):
            limit_of("Budget", name, given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """What a run may use. None takes the default, or for a run what its engine says."""

    model_turns: float | None = None
    """Answers of the model; 100 by default."""
    tokens: float | None = None
    """Input and output of all model requests; 2,000,000 by default."""
    seconds: float | None = None
    """At work, humans and pauses between turns apart; 900 by default."""
    tool_calls: float | None = None
    attempts: float | None = None
    cost: Decimal | float | str | None = None
    """US dollars, to a millionth."""
    tree: Budget | None = None
    """Of the run and all runs within its calls together."""
    tools: Mapping[str, Budget] = field(default_factory=dict[str, Budget])
    """By name of a tool: `tool_calls` and `attempts`, in the whole tree."""
    lanes: Mapping[str, Budget] = field(default_factory=dict[str, Budget])
    """By lane (`mail` or `lane:mail`): `tool_calls` and `attempts`, in the whole tree."""
    prices: Mapping[str, Price] = field(default_factory=dict[str, Price])
    """By model: the host's own prices, before those of the library genai-prices."""
    count_tokens: Callable[[Any], int] | None = None
    """Estimates the tokens of a request's messages; a rule of thumb if left out."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            UsageError: a limit is no number of its kind, or a tool or lane is given one that only
                runs have.
        """
        for name, given in _given(self):
            limit_of("Budgets", name, given)
        for where, each in (("tools", self.tools), ("lanes", self.lanes)):
            for name, budget in each.items():
                _see_calls_only(where, name, budget)


DEFAULTS: Final[Mapping[Unit, float]] = {
    Unit.MODEL_TURNS: 100,
    Unit.TOKENS: 2_000_000,
    Unit.SECONDS: 900.0,
}
"""The hard caps of a run of which nothing was said."""


class Limit(msgspec.Struct, frozen=True):
    """One budget: so much of this unit, for this scope."""

    unit: Unit
    scope: Scope
    name: str
    """Of the tool or the lane; empty for runs and trees."""
    limit: float
    """A whole number (for costs of millionths of a dollar), seconds, or UNLIMITED."""

    @property
    def key(self) -> str:
        """How it is called: `tokens`, `tree:cost`, `tool:mail:attempts`."""
        parts = [] if self.scope is Scope.RUN else [self.scope.value]
        return ":".join([*parts, *([self.name] if self.name else []), self.unit.value])


def limits(engine: Budgets, run: Budgets | None, *, nested: bool) -> list[Limit]:
    """Put together what holds for a run; where engine and run both say something, the less.

    Args:
        engine: what the engine gives to every run.
        run: what was given to this run.
        nested: whether the run is within a call: what the engine says of trees, tools and lanes
            then holds for the tree that it is part of, and is not said once more.
    """
    given = [engine] if run is None else [engine, run]
    found: list[Limit] = []
    for unit in Unit:
        said = [limit_of("Budgets", unit.value, getattr(one, unit.value)) for one in given]
        known = [one for one in said if one is not None]
        default = DEFAULTS.get(unit, UNLIMITED)
        found.append(Limit(unit, Scope.RUN, "", min(known, default=default)))
    wide: dict[tuple[Scope, str, Unit], float] = {}
    for one in given[1:] if nested else given:
        for scope, name, budget in _wide(one):
            for unit_name, amount in _given(budget):
                limit = limit_of("Budget", unit_name, amount)
                if limit is not None and limit != UNLIMITED:
                    place = scope, name, Unit(unit_name)
                    wide[place] = min(limit, wide.get(place, UNLIMITED))
    return [*found, *(Limit(unit, scope, name, most) for (scope, name, unit), most in wide.items())]


def limit_of(where: str, name: str, given: Any) -> float | None:
    """Read one limit; None where nothing was said.

    Args:
        where: the class that it was given to.
        name: of its unit.
        given: a number, UNLIMITED, or for a cost also a Decimal or its text.

    Raises:
        UsageError: it is none.
    """
    if given is None or (given == UNLIMITED and not isinstance(given, str)):
        return given if given is None else UNLIMITED
    if name == Unit.COST:
        return micros(dollars(f"{where}.cost", given), up=False)
    if name == Unit.SECONDS:
        if isinstance(given, bool) or not isinstance(given, (int, float)) or not given >= 0:
            raise UsageError(f"{where}.seconds is {given!r}; give seconds, 0 or more, or UNLIMITED")
        return float(given)
    if isinstance(given, bool) or not isinstance(given, int) or given < 0:
        raise UsageError(
            f"{where}.{name} is {given!r}; give a whole number of 0 or more, or UNLIMITED"
        )
    return given


def dollars(where: str, given: Any) -> Decimal:
    """Read an amount of money, exactly: a float is taken for the number that it is written as.

    Raises:
        UsageError: it is none.
    """
    try:
        amount = Decimal(str(given))
    except DecimalException:
        amount = Decimal("NaN")
    if isinstance(given, bool) or not amount.is_finite() or amount < 0:
        raise UsageError(f"{where} is {given!r}; give US dollars of 0 or more, such as '0.50'")
    return amount


def micros(amount: Decimal, *, up: bool) -> int:
    """Count an amount in millionths of a dollar: what is used is rounded up, a limit down."""
    rounding = ROUND_CEILING if up else ROUND_FLOOR
    return int((amount * MICROS).to_integral_value(rounding))


def _given(of: Budget | Budgets) -> Iterator[tuple[str, Any]]:
    units = frozenset(unit.value for unit in Unit)
    for one in fields(of):
        if one.name in units:
            yield one.name, getattr(of, one.name)


def _wide(of: Budgets) -> Iterator[tuple[Scope, str, Budget]]:
    if of.tree is not None:
        yield Scope.TREE, "", of.tree
    for name, budget in of.tools.items():
        yield Scope.TOOL, name, budget
    for name, budget in of.lanes.items():
        yield Scope.LANE, name, budget


def _see_calls_only(where: str, name: str, budget: Budget) -> None:
    for unit, given in _given(budget):
        if unit not in (Unit.TOOL_CALLS, Unit.ATTEMPTS) and given != UNLIMITED:
            raise UsageError(
                f"Budgets.{where}[{name!r}] limits {unit}, which calls do not use; give it "
                "tool_calls or attempts, or put the limit on the run or its tree"
            )
