"""Shows what a run tells OpenTelemetry: its spans as they end, then its metrics, on the console.

    python examples/telemetry.py

Needs no key: the answer of the model is written out.
"""

import asyncio
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    ConsoleMetricExporter,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from laneway import Effect, Engine, ToolContext, tool

PAGES = {"prices": "Pears are 2.40 a kilo.", "hours": "We open at nine."}


@tool(effect=Effect.READ, claims=[])
async def look_up(page: str, context: ToolContext) -> list[str]:
    """Look a page up."""
    found = PAGES.get(page)
    context.note_read(f"page:{page}", version="2025-11", found=found is not None)
    return [] if found is None else [found]


@tool(effect=Effect.READ, claims=[], retries=1)
async def ask_shop(question: str, context: ToolContext) -> str:
    """Ask the shop, whose line is bad."""
    if context.attempt == 1:
        raise ConnectionError("the line was cut")
    with trace.get_tracer("shop").start_as_current_span("shop.ask"):  # as instrumented clients do
        return f"The shop says yes to: {question}"


ANSWER: dict[str, Any] = {
    "calls": [
        {"id": "prices", "tool": "look_up", "arguments": {"page": "prices"}},
        {"id": "team", "tool": "look_up", "arguments": {"page": "team"}},
        {
            "id": "shop",
            "tool": "ask_shop",
            "arguments": {"question": "${prices[0]}"},
        },
    ]
}


def span_line(span: ReadableSpan) -> str:
    """A span on one line; the exporter's own form is JSON."""
    told = span.attributes or {}
    mark = "✗" if span.status.status_code.name == "ERROR" else "✓"
    about = [str(told[one]) for one in ("laneway.answer", "error.type") if one in told]
    happened = [event.name for event in span.events]
    return f"{mark} {span.name}  {' '.join([*about, *happened])}".rstrip() + "\n"


def metric_lines(data: MetricsData) -> str:
    """The names of the metrics, with how many series each has."""
    found = [
        f"{metric.name}: {len(metric.data.data_points)} series\n"
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    ]
    return "".join(sorted(found))


async def main() -> None:
    """Run one answer; the engine finds the providers that are set here."""
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=span_line)))
    trace.set_tracer_provider(tracers)
    reader = PeriodicExportingMetricReader(ConsoleMetricExporter(formatter=metric_lines))
    meters = MeterProvider([reader])
    metrics.set_meter_provider(meters)

    async with (
        Engine([look_up, ask_shop]) as engine,
        engine.run("shopping", task_class="question") as run,
    ):
        await run.submit(ANSWER)
    tracers.shutdown()
    meters.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
