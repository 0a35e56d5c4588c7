"""What the tokens of a model cost: the host's own price, or one from a table.

Reads numbers of tokens; feeds budgets of cost. Pure: where a table comes from is the engine's
business.
"""

from decimal import Decimal, DecimalException
from typing import Any, Protocol

import msgspec

from laneway.errors import UsageError

PER = 1_000_000
"""Prices are per million tokens, as providers publish them."""


class Tokens(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one model request took."""

    input: int = 0
    """All of the input, cached parts included."""
    output: int = 0
    cache_read: int = 0
    """The part of the input that a cache gave."""
    cache_write: int = 0
    """The part of the input that was put into a cache."""

    @property
    def total(self) -> int:
        """Input and output."""
        return self.input + self.output


class Pricing(Protocol):
    """Anything that says what tokens cost."""

    @property
    def source(self) -> str:
        """Where the price comes from, with version and date."""
        ...

    def of(self, tokens: Tokens, /) -> Decimal:
        """US dollars for so many tokens."""
        ...


class Price(msgspec.Struct, frozen=True):
    """A price that the host gives; cached input costs as any other."""

    input: Decimal | float | str
    """US dollars per million tokens."""
    output: Decimal | float | str
    source: str = "given by the host"
    """Kept with what is reserved: where the price comes from, and of what date it is."""

    def __post_init__(self) -> None:
        """Refuse what is no price.

        Raises:
            UsageError: it is none.
        """
        _dollars("input", self.input)
        _dollars("output", self.output)

    def of(self, tokens: Tokens, /) -> Decimal:
        """US dollars for so many tokens."""
        input_price, output_price = _dollars("input", self.input), _dollars("output", self.output)
        return (tokens.input * input_price + tokens.output * output_price) / PER


def _dollars(name: str, given: Any) -> Decimal:
    try:
        price = Decimal(str(given))
    except DecimalException:
        price = Decimal("NaN")
    if isinstance(given, bool) or not price.is_finite() or price < 0:
        raise UsageError(f"Price.{name} is {given!r}; give US dollars per million tokens")
    return price
