"""The trace context on its way out of the process: to a server, a program, another interpreter.

Reads the current span, which in the body of a call is that of its attempt. Without OpenTelemetry in
the program all of it is empty and costs a look into a dict.

- MCP: `_meta` of a request takes `trace_context()` as it is (`traceparent`, `tracestate`), by the
  MCP semantic conventions, «Context propagation».
- A program that is started gets the same in its environment, in capitals, by the specification of
  environment variables as carriers of context.
"""

import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager


def trace_context() -> dict[str, str]:
    """The current span as W3C trace context, by the propagators that the program has set.

    Returns:
        `traceparent`, and `tracestate` or `baggage` if there are any; nothing without a span.
    """
    if "opentelemetry.trace" not in sys.modules:
        return {}
    from opentelemetry.propagate import inject  # noqa: PLC0415 - only who traces pays

    carrier: dict[str, str] = {}
    inject(carrier)
    return carrier


@contextmanager
def continued(carrier: Mapping[str, str]) -> Generator[None]:
    """Go on with a trace that began elsewhere: spans within are below the one that was carried.

    Args:
        carrier: what `trace_context` gave; nothing is imported for an empty one.
    """
    if not carrier:
        yield
        return
    from opentelemetry.context import attach, detach  # noqa: PLC0415 - as above
    from opentelemetry.propagate import extract  # noqa: PLC0415 - as above

    token = attach(extract(carrier))
    try:
        yield
    finally:
        detach(token)


def environment(given: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """The environment of a program that is started, with the trace context.

    What the host set for the program stays; what it merely passed on from this process is stale.

    Args:
        given: by the host; None for that of this process.
    """
    carried = {name.upper(): value for name, value in trace_context().items()}
    if not carried:
        return given
    env = dict(os.environ if given is None else given)
    for name, value in carried.items():
        if env.get(name) == os.environ.get(name):
            env[name] = value
    return env
