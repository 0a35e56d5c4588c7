"""Hears the facts of all runs of an engine.

Made when the engine is entered and somebody listens; makes a `RunListener` for each run.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import NoOpTracer, Tracer, TracerProvider

from laneway.engine.plain import whole_text
from laneway.engine.telemetry.attributes import Attributes
from laneway.engine.telemetry.counters import Counters
from laneway.engine.telemetry.courses import FOUND, NOTHING, UNAVAILABLE, Course
from laneway.engine.telemetry.instruments import Instruments
from laneway.engine.telemetry.opening import Opening
from laneway.engine.telemetry.options import Telemetry
from laneway.engine.telemetry.run_listener import RunListener
from laneway.ids import CallId, RunId
from laneway.journal.writer import RunLog

if TYPE_CHECKING:
    from laneway.engine.budget_status import BudgetStatus
    from laneway.engine.clock import Clock
    from laneway.engine.live import LiveCall
    from laneway.engine.tools import Toolset

SCOPE = "laneway"


class Listener:
    """What the runs of one engine tell."""

    def __init__(
        self,
        tracers: TracerProvider | None,
        meters: MeterProvider | None,
        options: Telemetry,
        tools: "Toolset",
        clock: "Clock",
        *,
        early: bool,
    ) -> None:
        """Take tracer and meter from their providers."""
        tracer = None if tracers is None else tracers.get_tracer(SCOPE)
        self.tracer: Tracer | None = None if isinstance(tracer, NoOpTracer) else tracer
        self.counters: Counters | None = None
        if meters is not None:
            instruments = Instruments(meters.get_meter(SCOPE))
            self.counters = Counters(
                instruments, tools, names=options.tools, classes=options.task_classes
            )
        self.options = options
        self.tools = tools
        self.clock = clock
        self.early = early
        self.runs: dict[RunId, RunListener] = {}

    def join(
        self,
        log: RunLog,
        *,
        mode: str,
        task_class: str,
        agents: Sequence[str],
        within: "LiveCall | None",
    ) -> str:
        """A run is being entered: begin its span, before the fact that names it is written.

        Args:
            log: its journal, which is listened to from now on.
            mode: the agent mode.
            task_class: as the host says.
            agents: the named agents down to it.
            within: the call of this engine whose body it is part of.

        Returns:
            Its span as a W3C traceparent, for that fact; empty if it is not sampled.
        """
        above = None if within is None else within.scheduler
        over = None if above is None else self.runs.get(above.log.view.run)
        opening = Opening(
            view=log.view,
            mode=mode,
            task_class=task_class,
            agent=agents[-1] if above and len(agents) > len(above.place.agents) else "",
            above=None if over is None else over.courses,
            call=None if within is None else within.id,
        )
        listener = self.runs[log.view.run] = RunListener(self, opening)
        log.listener = listener
        return listener.trace

    def count_budgets(self, log: RunLog, statuses: "Callable[[], dict[str, BudgetStatus]]") -> None:
        """Say how the budgets of a run are found, to be counted when it is left."""
        self.runs[log.view.run].budgets = statuses

    def has_read(self, call: "LiveCall", source: str, version: str, *, found: bool | None) -> None:
        """The body of a call has read a source."""
        listener = self.runs.get(call.scheduler.log.view.run)
        if listener is None:
            return
        secrets = call.scheduler.secrets
        told = [whole_text(source), whole_text(version)]
        source, version = told if secrets is None else [secrets.vault.scrub(one) for one in told]
        answer = UNAVAILABLE if found is None else FOUND if found else NOTHING
        read: Attributes = {"laneway.source": source, "laneway.answer": answer}
        if version:
            read["laneway.version"] = version
        listener.has_read(call.id, read)

    def course(self, run: RunId, call: CallId) -> Course | None:
        """What befell a call of any run that is entered."""
        listener = self.runs.get(run)
        return None if listener is None else listener.courses.get(call)

    def close(self) -> None:
        """The engine is left: so are the runs that had not been."""
        for listener in list(self.runs.values()):
            listener.left()
