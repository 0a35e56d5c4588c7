"""What a host chooses of telemetry; feeds `Engine(telemetry=…)`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from laneway.errors import UsageError

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """Where spans and metrics go, and how much they tell."""

    tracer_provider: "TracerProvider | None" = None
    """None for the one that the program has set, if it has."""
    meter_provider: "MeterProvider | None" = None
    """None for the one that the program has set, if it has."""
    content: bool = False
    """Whether arguments, results, names of resources and the words of failures go along.

    Secrets never do."""
    tools: int = 100
    """Names of tools, and of budgets, that metrics tell apart; the rest counts as `other`."""
    task_classes: int = 20
    """Task classes that metrics tell apart; the rest counts as `other`."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            UsageError: a number of names is none.
        """
        for name in ("tools", "task_classes"):
            given: Any = getattr(self, name)
            if isinstance(given, bool) or not isinstance(given, int) or given < 0:
                raise UsageError(
                    f"Telemetry.{name} is {given!r}; give how many names metrics may tell apart, "
                    "0 or more"
                )
