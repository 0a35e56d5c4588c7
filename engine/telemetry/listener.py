"""Hears the facts of all runs of an engine, and tells spans and metrics of them.

Made when the engine is entered and somebody listens; `RunListener` stands in the `RunLog` of each
run. Whatever goes wrong in here is reported once to the event loop's exception handler and ends the
telling of that run: no run fails because of what is told about it.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from opentelemetry.context import Context, attach, get_current
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import (
    Link,
    NoOpTracer,
    Span,
    Tracer,
    TracerProvider,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from laneway.engine.plain import whole_text
from laneway.engine.telemetry.attributes import Attributes, of_run
from laneway.engine.telemetry.counters import Counters, RunMetrics
from laneway.engine.telemetry.courses import (
    FOUND,
    NOTHING,
    UNAVAILABLE,
    Course,
    Courses,
    follow,
    resumed,
)
from laneway.engine.telemetry.instruments import Instruments
from laneway.engine.telemetry.metrics import CALL_METRICS, RUN_METRICS
from laneway.engine.telemetry.options import Telemetry
from laneway.engine.telemetry.spans import CALL_SPANS, RUN_SPANS
from laneway.engine.telemetry.tree import RunSpans
from laneway.facts import Row, TurnClosed
from laneway.ids import CallId, RunId
from laneway.journal.fold import RunView
from laneway.journal.writer import RunLog
from laneway.states import State

if TYPE_CHECKING:
    from laneway.engine.budget_status import BudgetStatus
    from laneway.engine.clock import Clock
    from laneway.engine.live import LiveCall
    from laneway.engine.tools import Toolset

SCOPE = "laneway"
_PROPAGATOR = TraceContextTextMapPropagator()
"""The journal keeps W3C trace context, whatever the program propagates by."""


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a run when it is entered, before its first fact of now."""

    view: RunView
    mode: str
    task_class: str = ""
    agent: str = ""
    """The named agent whose run it is; empty for none, or for a call within its run."""
    above: "RunListener | None" = None
    """Of the run whose call's body this one is part of."""
    call: CallId | None = None
    """That call."""


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
        opening = Opening(
            view=log.view,
            mode=mode,
            task_class=task_class,
            agent=agents[-1] if above and len(agents) > len(above.place.agents) else "",
            above=None if above is None else self.runs.get(above.log.view.run),
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


class RunListener:
    """Hears the facts of one run."""

    def __init__(self, engine: Listener, opening: Opening) -> None:
        """Begin the run's span; what an earlier driver left open goes on in spans of its own."""
        self.early = engine.early
        self.courses: Courses = {}
        self.budgets: Callable[[], dict[str, BudgetStatus]] = dict
        """How the budgets of the run stand; asked when it is left."""
        self._engine = engine
        self._opening = opening
        self._over = False
        self._closed = 0
        """The last turn that has been closed."""
        clock = engine.clock
        wall, mono = clock.wall(), clock.monotonic()
        self._span: Span | None = None
        self._spans: RunSpans | None = None
        if engine.tracer is not None:
            self._span = _begin(engine.tracer, opening, round(wall * 1e9))
            # The sampler has decided for the run: what it leaves out costs nothing further.
            if self._span.is_recording():
                self._spans = RunSpans(
                    engine.tracer,
                    opening.view.run,
                    self._span,
                    (wall, mono),
                    engine.tools,
                    self.courses,
                    content=engine.options.content,
                    elsewhere=engine.course,
                )
        self._metrics: RunMetrics | None = None
        if engine.counters is not None:
            self._metrics = RunMetrics(engine.counters, self.courses, opening.task_class, mono)
        self.deaf = self._spans is None and self._metrics is None
        if not self.deaf:
            self._take_up(opening.view, mono)

    def _take_up(self, view: RunView, now: float) -> None:
        turn = view.open_turn
        if turn is None:
            return
        if self._spans is not None:
            at = self._spans.at(now)
            span = self._spans.begin_turn(turn.number, turn.provider, len(turn.calls), at)
            span.set_attribute("laneway.resumed", True)  # noqa: FBT003 - OpenTelemetry's signature
        for call in turn.calls:
            if call.open or call.state is State.UNCERTAIN:
                course = self.courses[call.id] = resumed(call, now)
                if self._spans is not None:
                    self._spans.begin_call(course, self._spans.at(now))

    @property
    def trace(self) -> str:
        """The run's span as a W3C traceparent, for the journal; empty if it is not sampled."""
        if self._spans is None:
            return ""
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, set_span_in_context(self._spans.span, Context()))
        return carrier.get("traceparent", "")

    def heard(self, rows: Sequence[Row]) -> None:
        """Facts were kept; or only posted, where bodies do not wait for that."""
        if self.deaf:
            return
        try:
            for row in rows:
                self._hear(row)
        except Exception as error:  # noqa: BLE001 - no run fails because of what is told about it
            self._give_up(error)

    def _hear(self, row: Row) -> None:
        fact, kind = row.fact, type(row.fact)
        course = follow(self.courses, row)
        if self._metrics is not None:
            if kind in RUN_METRICS:
                RUN_METRICS[kind](self._metrics, fact, row.mono)
            if course is not None and kind in CALL_METRICS:
                CALL_METRICS[kind](self._metrics, fact, row.mono, course)
        if self._spans is not None:
            at = self._spans.at(row.mono)
            if kind in RUN_SPANS:
                RUN_SPANS[kind](self._spans, fact, at)
            if course is not None and kind in CALL_SPANS:
                CALL_SPANS[kind](self._spans, fact, at, course)
        self._let_go(row, course)

    def _let_go(self, row: Row, course: Course | None) -> None:
        """A call is forgotten with its turn, unless its body has not stopped."""
        if isinstance(row.fact, TurnClosed):
            self._closed = row.fact.turn
            for call, one in list(self.courses.items()):
                if one.turn == row.fact.turn and not one.stuck:
                    del self.courses[call]
        elif course is not None and course.turn <= self._closed and not course.stuck:
            self.courses.pop(course.record.id, None)

    def entering(self, call: CallId) -> None:
        """The running task is about to enter the body: what that does is below its attempt."""
        span = self._span
        if span is None or self._over:
            return
        course = self.courses.get(call)
        if course is not None and course.attempt_span is not None:
            span = course.attempt_span
        attach(set_span_in_context(span))

    def has_read(self, call: CallId, told: Attributes) -> None:
        """The body of a call tells what it has read."""
        course = self.courses.get(call)
        if course is not None and course.attempt_span is not None:
            course.attempt_span.add_event("laneway.read", told)

    def left(self) -> None:
        """The run is left, or its opening failed: all of its spans end."""
        if self._over:
            return
        self._over = True
        self._engine.runs.pop(self._opening.view.run, None)
        if self.deaf:
            return
        try:
            self._leave()
        except Exception as error:  # noqa: BLE001 - as in `heard`
            self._give_up(error)

    def _leave(self) -> None:
        opening, now = self._opening, self._engine.clock.monotonic()
        if self._metrics is not None:
            self._metrics.left(
                now, opening.agent, top=opening.above is None, budgets=self.budgets().values()
            )
        if self._spans is not None:
            self._spans.span.set_attribute("laneway.facts", opening.view.seq)
            self._spans.left(self._spans.at(now))

    def _give_up(self, error: Exception) -> None:
        self.deaf = True
        if self._span is not None:
            with suppress(Exception):
                self._span.end()
        asyncio.get_running_loop().call_exception_handler(
            {
                "message": f"nothing more is told of run {self._opening.view.run!r}: telemetry "
                "failed, and the run goes on",
                "exception": error,
            }
        )


def _begin(tracer: Tracer, opening: Opening, at: int) -> Span:
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
    course = above.courses.get(opening.call)
    attempt = None if course is None else course.attempt_span
    return here if attempt is None else set_span_in_context(attempt, here)


def _links(view: RunView) -> list[Link]:
    """To the span of the driver before, or of the run that this is a fork of."""
    if not view.trace:
        return []
    carried: Any = _PROPAGATOR.extract({"traceparent": view.trace}, Context())
    former = get_current_span(carried).get_span_context()
    if not former.is_valid:
        return []
    forked = view.forked is not None and view.driver is None
    return [Link(former, {"laneway.reason": "forked" if forked else "resumed"})]
