"""Whether anybody listens at all; asked once, when an engine is entered.

Imports nothing of OpenTelemetry by itself: a program that has not imported it has set no provider.
Reads what the host has chosen; gives the engine the one who hears its facts.
"""

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

from laneway.engine.telemetry.options import Telemetry
from laneway.errors import UsageError

if TYPE_CHECKING:
    from laneway.engine.clock import Clock
    from laneway.engine.telemetry.listener import Listener
    from laneway.engine.tools import Toolset


def listener_of(
    given: bool | Telemetry,  # noqa: FBT001 - as the host writes it
    tools: "Toolset",
    clock: "Clock",
    *,
    early: bool,
) -> "Listener | None":
    """Make what hears the facts of an engine; None where nobody listens.

    Args:
        given: as to `Engine(telemetry=…)`.
        tools: of the engine.
        clock: of the engine.
        early: whether facts are heard before they are kept.

    Raises:
        UsageError: it is neither a yes, nor a no, nor a Telemetry.
    """
    if not isinstance(given, (bool, Telemetry)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"telemetry={given!r} is none; give True, False or Telemetry(…)")
    if given is False:
        return None
    options = Telemetry() if given is True else given
    tracers = options.tracer_provider or _set_by_program("trace", "tracer")
    meters = options.meter_provider or _set_by_program("metrics", "meter")
    if tracers is None and meters is None:
        return None
    from laneway.engine.telemetry.listener import Listener  # noqa: PLC0415 - only who listens pays

    return Listener(tracers, meters, options, tools, clock, early=early)


def _set_by_program(module: str, kind: str) -> Any:
    """The provider that the program has set, in code or by a variable; None for the API's own."""
    name = f"opentelemetry.{module}"
    api = sys.modules.get(name)
    if api is None:
        if f"OTEL_PYTHON_{kind.upper()}_PROVIDER" not in os.environ:
            return None
        api = importlib.import_module(name)
    provider = getattr(api, f"get_{kind}_provider")()
    return None if type(provider).__module__.startswith(name) else provider
