"""The spans of one run that are open, and how they hang below one another.

    invoke_workflow or invoke_agent     the run, while this process drives it
      turn                              a model's answer, to the end of its last call
        execute_tool {tool}             from the model's asking to the outcome
          attempt                       one entry into the body, where it is the current span

Times are those of the facts, on the axis of `laneway.journal.timeline`. Written by the rows of
`spans`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from opentelemetry.context import Context
from opentelemetry.trace import Span, Status, StatusCode, Tracer, set_span_in_context

from laneway.engine.telemetry.attributes import (
    LONGEST_NAME,
    of_attempt,
    of_call,
    of_end,
    of_turn,
)
from laneway.engine.telemetry.courses import Course, Courses
from laneway.facts import RunStopped
from laneway.ids import CallId, RunId
from laneway.outcomes import Failure, StopReason

if TYPE_CHECKING:
    from laneway.engine.tools import Toolset


class RunSpans:
    """The spans of one run that are open."""

    def __init__(
        self,
        tracer: Tracer,
        run: RunId,
        span: Span,
        began: tuple[float, float],
        tools: "Toolset",
        courses: Courses,
        *,
        content: bool,
        elsewhere: Callable[[RunId, CallId], Course | None],
    ) -> None:
        """Serve a run whose span has begun and is sampled.

        Args:
            tracer: makes the others.
            run: its name.
            span: its span.
            began: Unix seconds and monotonic seconds of the same moment.
            tools: of the engine.
            courses: of its calls.
            content: whether arguments, results and words of failures are told.
            elsewhere: finds the course of another run's call.
        """
        self.run = run
        self.span = span
        self.courses = courses
        self.content = content
        self.elsewhere = elsewhere
        self._tracer = tracer
        self._tools = tools
        self._wall, self._mono = began
        self._within: Context = set_span_in_context(span, Context())
        self.turns: dict[int, Span] = {}
        self.stopped: RunStopped | None = None
        """How the run was stopped, until something reopens it."""

    def at(self, mono: float) -> int:
        """When something happened, in Unix nanoseconds: a wall clock that jumps moves nothing."""
        return round((self._wall + max(mono - self._mono, 0.0)) * 1e9)

    def begin_turn(self, number: int, wire: str, calls: int, at: int) -> Span:
        """Begin the span of a turn."""
        told = of_turn(self.run, number, wire, calls)
        span = self._tracer.start_span("turn", self._within, attributes=told, start_time=at)
        self.turns[number] = span
        return span

    def begin_call(self, course: Course, at: int) -> None:
        """Begin the span of a call: below the call that it is part of, else below its turn."""
        record = course.record
        above = self.turns[course.turn]
        if record.parent is not None and record.parent in self.courses:
            above = self.courses[record.parent].span or above
        tool = self._tools.get(record.tool)
        described = "" if tool is None else tool.spec.description
        course.span = self._tracer.start_span(
            f"execute_tool {record.tool[:LONGEST_NAME]}",
            set_span_in_context(above, Context()),
            attributes=of_call(self.run, record, described, content=self.content),
            start_time=at,
        )

    def begin_attempt(self, course: Course, token: int, at: int) -> None:
        """Begin the span that is the current one in the body."""
        course.attempt_span = self._tracer.start_span(
            "attempt",
            set_span_in_context(course.span, Context()),
            attributes=of_attempt(course, token),
            start_time=at,
        )

    def end_attempt(self, course: Course, at: int, error: str = "", words: str = "") -> None:
        """The body has stopped."""
        span, course.attempt_span = course.attempt_span, None
        if span is not None:
            if error:
                span.set_attribute("error.type", error)
                span.set_status(self.failed(error, words))
            span.end(at)

    def end_call(self, course: Course, rule: str, at: int) -> None:
        """The outcome stands."""
        span, outcome = course.span, course.outcome
        if span is None:
            return
        span.set_attributes(of_end(course, rule, content=self.content))
        if isinstance(outcome, Failure):
            span.set_status(self.failed(outcome.code, outcome.message))
        span.end(at)

    def failed(self, error: str, words: str) -> Status:
        """The status of what failed: its words, where content is told, else its kind."""
        return Status(StatusCode.ERROR, (self.content and words) or error)

    def left(self, at: int) -> None:
        """The run is being left: what is open ends as open."""
        for course in self.courses.values():
            self._cut(course.attempt_span, at)
            if not course.final:
                self._cut(course.span, at)
        for span in self.turns.values():
            self._cut(span, at)
        if self.stopped is not None:
            reason = self.stopped.reason
            self.span.set_attribute("laneway.stop_reason", reason.value)
            if reason is StopReason.FAILED:
                self.span.set_attribute("error.type", reason.value)
                self.span.set_status(self.failed(reason, self.stopped.detail))
        self.span.end(at)

    @staticmethod
    def _cut(span: Span | None, at: int) -> None:
        if span is not None:
            span.set_attribute("laneway.open", True)  # noqa: FBT003 - OpenTelemetry's signature
            span.end(at)


TellOfRun = Callable[[RunSpans, Any, int], None]
"""Takes the spans, the fact, and when it was, in Unix nanoseconds."""
TellOfCall = Callable[[RunSpans, Any, int, Course], None]
"""Takes besides what befell the call."""
