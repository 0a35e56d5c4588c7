"""The instruments that metrics are counted with; docs/telemetry.md lists them.

Buckets are those that the GenAI conventions ask for, so that percentiles of Laneway and of model
clients can be laid over each other.
"""

from collections.abc import Sequence

from opentelemetry.metrics import Histogram, Meter

SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""`gen_ai.execute_tool.duration`: 10 ms to 82 s, doubling."""
LONG_SECONDS = (1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200)
"""`gen_ai.workflow.duration`: a second to two hours."""
AGENT_SECONDS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6)
"""`gen_ai.invoke_agent.duration`."""
TOKENS = tuple(float(4**power) for power in range(14))
"""`gen_ai.client.token.usage`: 1 to 67 million, each four times the one before."""
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)


class Instruments:
    """Made once for an engine that is listened to."""

    def __init__(self, meter: Meter) -> None:
        """Make all of them."""

        def seconds(name: str, told: str, buckets: Sequence[float] = SECONDS) -> Histogram:
            return meter.create_histogram(
                name, "s", told, explicit_bucket_boundaries_advisory=buckets
            )

        self.calls = meter.create_counter(
            "laneway.calls", "{call}", "Calls by the state in which they ended."
        )
        self.call_seconds = seconds(
            "gen_ai.execute_tool.duration", "From the model's asking to the outcome."
        )
        self.attempt_seconds = seconds("laneway.attempt.duration", "In the body of a tool.")
        self.queue_seconds = seconds(
            "laneway.queue.wait", "In the queues of lanes, before an attempt."
        )
        self.human_seconds = seconds(
            "laneway.approval.wait", "From a question to a human to the answer.", LONG_SECONDS
        )
        self.retries = meter.create_counter(
            "laneway.retries", "{retry}", "Attempts that were followed by another."
        )
        self.degradations = meter.create_counter(
            "laneway.degradations", "{degradation}", "Answers by another way than the tool itself."
        )
        self.trips = meter.create_counter(
            "laneway.breaker.trips", "{trip}", "Circuit breakers that opened."
        )
        self.loops = meter.create_counter(
            "laneway.loops", "{loop}", "Calls in which a loop was seen."
        )
        self.tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Tokens of an answer, as its provider told.",
            explicit_bucket_boundaries_advisory=TOKENS,
        )
        self.all_tokens = meter.create_counter(
            "laneway.tokens", "{token}", "Tokens of all model requests, input and output together."
        )
        self.budget_share = meter.create_histogram(
            "laneway.budget.use",
            "1",
            "How much of a limit a run had used when it was left.",
            explicit_bucket_boundaries_advisory=SHARES,
        )
        self.budget_warnings = meter.create_counter(
            "laneway.budget.warnings", "{warning}", "Thresholds of budgets that were reached."
        )
        self.turn_seconds = seconds(
            "laneway.turn.duration", "From a model's answer to the end of its turn.", LONG_SECONDS
        )
        self.run_seconds = seconds(
            "gen_ai.workflow.duration", "While one process drove a run.", LONG_SECONDS
        )
        self.agent_seconds = seconds(
            "gen_ai.invoke_agent.duration",
            "While one process drove a named agent's run.",
            AGENT_SECONDS,
        )
        self.stops = meter.create_counter("laneway.runs.stopped", "{run}", "Runs by stop reason.")
