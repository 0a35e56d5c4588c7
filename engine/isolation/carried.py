"""Context variables on their way into a process.

A thread takes a copy of the context; a process can only be told of those variables that another
process finds, too: a variable that stands at the top of a module, with a value that can be pickled.
The context of OpenTelemetry goes in the form that goes between services (W3C Trace Context).
"""

import contextvars
import pickle
import sys
from typing import Any

from laneway.engine.nesting import inside
from laneway.engine.telemetry.carrying import trace_context

Carried = list[tuple[str, str, bytes]]
"""Module, name in it, and the pickled value."""

_places: dict[contextvars.ContextVar[Any], tuple[str, str] | None] = {}
"""Where each variable stands that has been looked for; None for nowhere."""


def pack() -> tuple[Carried, dict[str, str]]:
    """Take what can be taken of the running context: variables, and the trace."""
    found: Carried = []
    for variable, value in contextvars.copy_context().items():
        place = None if variable is inside else _place_of(variable)
        if place is None:
            continue
        try:
            found.append((*place, pickle.dumps(value)))
        except Exception:  # noqa: BLE001, S112 - what cannot be pickled stays here
            continue
    return found, trace_context()


def unpack(carried: Carried, trace: dict[str, str]) -> None:
    """Set in this process what was taken in another one."""
    for module, name, value in carried:
        try:
            variable = getattr(__import__(module, fromlist=[name]), name)
            variable.set(pickle.loads(value))  # noqa: S301 - from the engine that started this
        except Exception:  # noqa: BLE001, S112 - a module that is not here, a class that is another
            continue
    if trace:
        from opentelemetry import context, propagate  # noqa: PLC0415 - only where somebody traces

        context.attach(propagate.extract(trace))


def _place_of(variable: contextvars.ContextVar[Any]) -> tuple[str, str] | None:
    if variable not in _places:
        _places[variable] = next(
            (
                (module, name)
                for module, found in list(sys.modules.items())
                for name, value in list(getattr(found, "__dict__", {}).items())
                if value is variable and not module.startswith("laneway.engine.")
            ),
            None,
        )
    return _places[variable]
