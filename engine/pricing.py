"""The price of a model: the host's own, or that of the library genai-prices.

The library (extra `prices`) is imported when a budget of cost is there and the host gave no price
of its own for a model. Its table has the version of the library; what is recorded names it, the
model that it took the name for, and the date.
"""

import importlib
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec

from laneway.errors import UsageError
from laneway.policies.budgets import Budgets
from laneway.policies.prices import Pricing, Tokens


class Listed(msgspec.Struct, frozen=True):
    """A price of the library's table."""

    model: str
    source: str

    def of(self, tokens: Tokens, /) -> Decimal:
        """US dollars for so many tokens, cached input at its own rate where the table has one."""
        return Decimal(_calculated(self.model, tokens).total_price)


def pricing_of(model: str, budgets: Budgets) -> Pricing:
    """Find the price of a model.

    Args:
        model: as the host or the answer names it.
        budgets: with the host's own prices.

    Raises:
        UsageError: nobody knows it; says how to give one.
    """
    own = budgets.prices.get(model)
    if own is not None:
        return own
    found = _calculated(model, Tokens(input=1))
    library = importlib.import_module("genai_prices")
    updated = found.auto_update_timestamp
    day = (updated or datetime.now(tz=UTC)).date()
    source = (
        f"genai-prices {library.__version__}, {found.provider.id}/{found.model.id}, "
        f"{'updated' if updated else 'asked'} {day.isoformat()}"
    )
    return Listed(model, source)


def _calculated(model: str, tokens: Tokens) -> Any:
    try:
        library = importlib.import_module("genai_prices")
    except ImportError:
        raise UsageError(
            f"a budget of cost needs the price of model {model!r}: give it one, "
            f"Budgets(prices={{{model!r}: Price(input=…, output=…)}}), or install the table: "
            "pip install 'laneway[prices]'"
        ) from None
    usage = library.Usage(
        input_tokens=tokens.input,
        output_tokens=tokens.output,
        cache_read_tokens=tokens.cache_read,
        cache_write_tokens=tokens.cache_write,
    )
    try:
        return library.calc_price(usage, model_ref=model)
    except LookupError:
        raise UsageError(
            f"a budget of cost needs the price of model {model!r}, which genai-prices "
            f"{library.__version__} does not know; give it one: "
            f"Budgets(prices={{{model!r}: Price(input=…, output=…)}})"
        ) from None
