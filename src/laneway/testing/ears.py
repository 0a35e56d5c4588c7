"""In-memory ears: every span and metric that an engine tells, in forms that tests can compare.

Reads what the OpenTelemetry SDK is given; `Engine(telemetry=ears.telemetry())`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler

from laneway.engine.telemetry.options import Telemetry


class Ears:
    """An SDK that keeps what it hears."""

    def __init__(self, *, sampler: Sampler | None = None) -> None:
        """Hear everything, or what a sampler lets through."""
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader], shutdown_on_exit=False)

    def telemetry(self, **options: Any) -> Telemetry:
        """What an engine is given; options of `Telemetry` besides."""
        return Telemetry(tracer_provider=self.tracers, meter_provider=self.meters, **options)

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        """All spans that have ended."""
        return self.exporter.get_finished_spans()

    def of_call(self, call: str, *, run: str = "r") -> ReadableSpan:
        """The span of one call."""
        (found,) = [
            one
            for one in self.spans
            if told(one).get("laneway.call") == call
            and told(one).get("gen_ai.conversation.id") == run
        ]
        return found

    def attempts(self, call: str) -> list[ReadableSpan]:
        """The spans of the attempts of a call, over all runs."""
        return [
            one for one in self.spans if one.name == "attempt" and told(one)["laneway.call"] == call
        ]

    def tree(self) -> list[str]:
        """The names of all spans, each below its parent, in the order in which they began."""
        below: dict[int | None, list[ReadableSpan]] = {}
        for one in self.spans:
            below.setdefault(one.parent.span_id if one.parent else None, []).append(one)

        def lines(parent: int | None, before: str) -> Iterator[str]:
            for one in sorted(below.get(parent, ()), key=place):
                mark = "✗" if one.status.status_code.name == "ERROR" else "✓"
                state = told(one).get("laneway.state", "")
                yield f"{before}{mark} {one.name} {state}".rstrip()
                yield from lines(context_of(one), f"{before}  ")

        return list(lines(None, ""))

    def metrics(self) -> dict[str, dict[tuple[tuple[str, Any], ...], Any]]:
        """The points of each metric by their attributes: a number, or (count, sum)."""
        found: dict[str, dict[tuple[tuple[str, Any], ...], Any]] = {}
        data = self.reader.get_metrics_data()
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    points = found.setdefault(metric.name, {})
                    for point in metric.data.data_points:
                        key = tuple(sorted((point.attributes or {}).items()))
                        points[key] = (
                            point.value
                            if isinstance(point, NumberDataPoint)
                            else (point.count, point.sum)
                        )
        return found


def place(span: ReadableSpan) -> tuple[int, int, str]:
    """When it began, and of which call it tells."""
    call = str(told(span).get("laneway.call", ""))
    return span.start_time or 0, len(call), call


def told(span: ReadableSpan) -> Mapping[str, Any]:
    """Its attributes."""
    return span.attributes or {}


def context_of(span: ReadableSpan) -> int:
    """Its id."""
    return int(span.get_span_context().span_id)  # type: ignore[union-attr]


def events(span: ReadableSpan) -> list[str]:
    """The names of its events."""
    return [event.name for event in span.events]


def seconds(span: ReadableSpan) -> float:
    """How long it lasted."""
    assert span.start_time is not None
    assert span.end_time is not None
    return (span.end_time - span.start_time) / 1e9
