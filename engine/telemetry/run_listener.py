"""Hears the facts of one run, and tells spans and metrics of them.

Stands in the `RunLog` of the run. Whatever goes wrong in here is reported once to the event loop's
exception handler and ends the telling of that run: no run fails because of what is told about it.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from opentelemetry.context import attach
from opentelemetry.trace import Span, set_span_in_context

from laneway.engine.telemetry.attributes import Attributes
from laneway.engine.telemetry.counters import RunMetrics
from laneway.engine.telemetry.courses import Course, Courses, follow, resumed
from laneway.engine.telemetry.metrics import CALL_METRICS, RUN_METRICS
from laneway.engine.telemetry.opening import Opening, begin, traceparent
from laneway.engine.telemetry.spans import CALL_SPANS, RUN_SPANS
from laneway.engine.telemetry.tree import RunSpans
from laneway.facts import Row, TurnClosed
from laneway.ids import CallId
from laneway.journal.fold import RunView
from laneway.states import State

if TYPE_CHECKING:
    from laneway.engine.budget_status import BudgetStatus
    from laneway.engine.telemetry.listener import Listener


class RunListener:
    """Hears the facts of one run."""

    def __init__(self, engine: "Listener", opening: Opening) -> None:
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
            self._span = begin(engine.tracer, opening, round(wall * 1e9))
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
        return traceparent(self._spans.span)

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
