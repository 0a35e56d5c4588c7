"""The span of a run: where it hangs, what it links to, and how the journal names it.

Reads what is known of a run that is being entered.
"""

import msgspec
from opentelemetry.context import Context, get_current
from opentelemetry.trace import Link, Span, Tracer, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from laneway.engine.telemetry.attributes import of_run
from laneway.engine.telemetry.courses import Courses
from laneway.ids import CallId
from laneway.journal.fold import RunView

_PROPAGATOR = TraceContextTextMapPropagator()
"""The journal keeps W3C trace context, whatever the program propagates by."""


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a run when it is entered, before its first fact of now."""

    view: RunView
    mode: str
    task_class: str = ""
    agent: str = ""
    """The named agent whose run it is; empty for none, or for a call within its run."""
    above: Courses | None = None
    """What befell the calls of the run whose call's body this one is part of."""
    call: CallId | None = None
    """That call."""


def begin(tracer: Tracer, opening: Opening, at: int) -> Span:
    """Begin it, at a time in Unix nanoseconds."""
    workflow = opening.task_class if opening.above is None else ""
    name, told = of_run(opening.view.run, opening.mode, workflow, opening.agent)
    if opening.task_class:
        told["laneway.task.class"] = opening.task_class
    return tracer.start_span(
        name, _parent(opening), attributes=told, links=_links(opening.view), start_time=at
    )


def _parent(opening: Opening) -> Context:
    """What a run hangs below: the current span; without one, the attempt that it is part of."""
    here = get_current()
    above = opening.above
    if above is None or opening.call is None or get_current_span(here).get_span_context().is_valid:
        return here
    course = above.get(opening.call)
    attempt = None if course is None else course.attempt_span
    return here if attempt is None else set_span_in_context(attempt, here)


def _links(view: RunView) -> list[Link]:
    """To the span of the driver before, or of the run that this is a fork of."""
    if not view.trace:
        return []
    carried = _PROPAGATOR.extract({"traceparent": view.trace}, Context())
    former = get_current_span(carried).get_span_context()
    if not former.is_valid:
        return []
    forked = view.forked is not None and view.driver is None
    return [Link(former, {"laneway.reason": "forked" if forked else "resumed"})]


def traceparent(span: Span) -> str:
    """A span as a W3C traceparent."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, set_span_in_context(span, Context()))
    return carrier.get("traceparent", "")
