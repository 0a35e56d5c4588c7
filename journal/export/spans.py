"""A run as OpenTelemetry spans, after the fact: run, turn, call, attempt, with the times they had.

Names and attributes follow the GenAI semantic conventions (semantic-conventions-genai 0.1.0,
in development): a run is `invoke_workflow`, a call `execute_tool {tool}`; what they have no name
for begins with `laneway.`. Arguments and results are content, which the conventions leave out
unless it is asked for. Ids are made from the names of run and call, so that a run that is exported
twice is one trace, and a run inside a call hangs below that call's span.

Reads the timeline of a run; feeds any SpanExporter through `export_spans`, and `otlp`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from laneway.facts import Row
from laneway.ids import CallId
from laneway.journal.timeline import Attempt, Course, Moment, Timeline, timeline
from laneway.outcomes import Failure, Success

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

SCOPE = "laneway"
"""The instrumentation scope of all of them."""
AT_ONCE = 512
"""Spans handed over together: what the SDK's own batches hold."""
Attribute = str | bool | int | float
Attributes = dict[str, Attribute]


class SpanEvent(msgspec.Struct, frozen=True, gc=False):
    """Something that happened within a span."""

    name: str
    at: int
    """Unix nanoseconds."""
    attributes: Attributes


class SpanLink(msgspec.Struct, frozen=True, gc=False):
    """A span that this one waited for."""

    span_id: int
    attributes: Attributes


class SpanData(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A span before it is anybody's object. Times are Unix nanoseconds."""

    name: str
    trace_id: int
    span_id: int
    parent_id: int | None
    began: int
    ended: int
    attributes: Attributes
    events: tuple[SpanEvent, ...] = ()
    links: tuple[SpanLink, ...] = ()
    error: str | None = None
    """What went wrong; None where nothing did."""


def export_spans(
    rows: Iterable[Row],
    exporter: "SpanExporter",
    *,
    resource: Mapping[str, Attribute] | None = None,
    content: bool = False,
) -> bool:
    """Hand all spans of a run to an exporter, 512 at a time.

    Args:
        rows: all of one run.
        exporter: any; it is not shut down.
        resource: what the spans come from; `service.name` is `laneway` unless it says otherwise.
        content: whether arguments and results go along.

    Returns:
        Whether the exporter took them all; nothing is sent after the first refusal.

    Raises:
        DamagedJournalError: facts are missing.
    """
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - only who exports pays
    from opentelemetry.sdk.trace.export import SpanExportResult  # noqa: PLC0415 - the same

    given = list(rows)
    if not given:
        return True
    source = Resource({"service.name": SCOPE, **(resource or {})})
    found = spans(timeline(given[0].run, given), content=content)
    while some := list(islice(found, AT_ONCE)):
        done = exporter.export([_readable(one, source) for one in some])
        if done is not SpanExportResult.SUCCESS:
            return False
    return True


def spans(time: Timeline, *, content: bool = False) -> Iterator[SpanData]:
    """Make the spans of a run, parents before their children."""
    run = time.view.run
    trace = trace_id(run)
    inside = _inside(run)
    first, last = time.drivers[0].first, time.last
    top = span_id(run)
    yield SpanData(
        name="invoke_workflow",
        trace_id=trace,
        span_id=top,
        parent_id=None if inside is None else span_id(*inside),
        began=_ns(first),
        ended=_ns(last),
        attributes={
            "gen_ai.operation.name": "invoke_workflow",
            "gen_ai.conversation.id": run,
            "laneway.mode": time.view.mode,
            "laneway.drivers": len(time.drivers),
            "laneway.facts": time.view.seq,
        },
    )
    for turn, times in zip(time.view.turns, time.turns, strict=True):
        attributes: Attributes = {
            "gen_ai.conversation.id": run,
            "laneway.turn": turn.number,
            "laneway.format": turn.provider,
            "laneway.calls": len(turn.calls),
        }
        number = span_id(run, f"turn {turn.number}")
        yield SpanData(
            name="turn",
            trace_id=trace,
            span_id=number,
            parent_id=top,
            began=_ns(times.submitted),
            ended=_ns(times.closed or last),
            attributes=attributes if times.closed else {**attributes, "laneway.open": True},
        )
        links: dict[CallId, list[SpanLink]] = {}
        for edge in turn.edges:
            link = SpanLink(
                span_id(run, edge.source),
                {"laneway.reason": str(edge.reason), "laneway.detail": edge.detail},
            )
            links.setdefault(edge.target, []).append(link)
        for call in turn.calls:
            course = time.courses[call.id]
            parent = call.record.parent
            above = number if parent is None else span_id(run, parent)
            yield _call(time, course, above, tuple(links.get(call.id, ())), content=content)
            yield from _attempts(time, course)


@lru_cache(maxsize=64)
def trace_id(run: str) -> int:
    """The trace of a run: that of the outermost run, for one inside a call."""
    inside = _inside(run)
    while inside is not None:
        run = inside[0]
        inside = _inside(run)
    return _number("trace", run, octets=16)


def span_id(run: str, part: str = "") -> int:
    """The span of a run, or of a part of it: a call, `turn 1`, `t1.2 attempt 1`."""
    return _number("span", run, part, octets=8)


def _number(*parts: str, octets: int) -> int:
    told = "\0".join(parts).encode("utf-8", "surrogatepass")
    return int.from_bytes(sha256(told).digest()[:octets]) or 1


_INSIDE = re.compile(r"(.+)/(t\d+\.\d+(?:/\d+)*)/\d+", re.DOTALL)


def _inside(run: str) -> tuple[str, str] | None:
    """The run and the call that a run is inside of, as its name tells."""
    found = _INSIDE.fullmatch(run)
    return None if found is None else (found[1], found[2])


def _call(
    time: Timeline, course: Course, above: int, links: tuple[SpanLink, ...], *, content: bool
) -> SpanData:
    view, record = course.view, course.view.record
    attributes: Attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": record.tool,
        "gen_ai.tool.call.id": record.provider_id,
        "gen_ai.tool.type": "function",
        "gen_ai.conversation.id": time.view.run,
        "laneway.call": view.id,
        "laneway.state": str(view.state),
        "laneway.effect": str(record.effect),
        "laneway.attempts": view.attempt,
    }
    if view.rule:
        attributes["laneway.rule"] = view.rule
    outcome = view.outcome
    failure = outcome if isinstance(outcome, Failure) else None
    if failure is not None:
        attributes["error.type"] = str(failure.code)
        attributes["laneway.happened"] = str(failure.happened)
    if outcome is None:
        attributes["laneway.open"] = True
    if content:
        attributes["gen_ai.tool.call.arguments"] = _text(record.arguments)
        if isinstance(outcome, Success):
            attributes["gen_ai.tool.call.result"] = _text(outcome.value)
    return SpanData(
        name=f"execute_tool {record.tool}",
        trace_id=trace_id(time.view.run),
        span_id=span_id(time.view.run, view.id),
        parent_id=above,
        began=_ns(course.periods[0].began),
        ended=_ns(time.last if outcome is None else course.periods[-1].began),
        attributes=attributes,
        events=tuple(_events(course)),
        links=links,
        error=None if failure is None else failure.message,
    )


def _events(course: Course) -> Iterator[SpanEvent]:
    for one in course.questions:
        asked, answer, answered = one.asked, one.answer, one.answered_at
        question: Attributes = {"laneway.approval": asked.approval}
        about: Attributes = {**question, "laneway.rule": asked.rule, "laneway.digest": asked.digest}
        yield SpanEvent("laneway.approval.asked", _ns(one.asked_at), about)
        if answer is not None and answered is not None:
            said: Attributes = {
                **question,
                "laneway.granted": answer.granted,
                "laneway.by": answer.by,
            }
            yield SpanEvent("laneway.approval.answered", _ns(answered), said)
    if course.settled is not None and course.view.settled is not None:
        settled: Attributes = {
            "laneway.by": course.view.by,
            "laneway.succeeded": isinstance(course.view.settled, Success),
        }
        yield SpanEvent("laneway.settled", _ns(course.settled), settled)
    if course.stopped is not None:
        yield SpanEvent("laneway.body.stopped", _ns(course.stopped), {})


def _attempts(time: Timeline, course: Course) -> Iterator[SpanData]:
    run, call, outcome = time.view.run, course.view.id, course.view.outcome
    for one in course.attempts:
        error = one.cause or None
        if one is course.attempts[-1] and isinstance(outcome, Failure):
            error = outcome.message
        attributes: Attributes = {
            "gen_ai.tool.name": course.view.record.tool,
            "laneway.call": call,
            "laneway.attempt": one.number,
            "laneway.fencing_token": one.token,
        }
        if error is not None:
            attributes["error.type"] = _kind(course, one)
        yield SpanData(
            name="attempt",
            trace_id=trace_id(run),
            span_id=span_id(run, f"{call} attempt {one.number}"),
            parent_id=span_id(run, call),
            began=_ns(one.began),
            ended=_ns(one.ended or time.last),
            attributes=attributes,
            error=error,
        )


def _kind(course: Course, attempt: Attempt) -> str:
    outcome = course.view.outcome
    last = attempt is course.attempts[-1]
    return str(outcome.code) if last and isinstance(outcome, Failure) else "_OTHER"


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _ns(moment: Moment) -> int:
    return round(moment.at * 1e9)


def _readable(one: SpanData, resource: Any) -> "ReadableSpan":
    from opentelemetry.sdk.trace import Event, ReadableSpan  # noqa: PLC0415 - as above
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope  # noqa: PLC0415
    from opentelemetry.trace import (  # noqa: PLC0415
        Link,
        SpanContext,
        SpanKind,
        Status,
        StatusCode,
        TraceFlags,
    )

    def context(number: int) -> SpanContext:
        flags = TraceFlags(TraceFlags.SAMPLED)
        return SpanContext(one.trace_id, number, is_remote=False, trace_flags=flags)

    return ReadableSpan(
        name=one.name,
        context=context(one.span_id),
        parent=None if one.parent_id is None else context(one.parent_id),
        resource=resource,
        attributes=one.attributes,
        events=[Event(event.name, event.attributes, event.at) for event in one.events],
        links=[Link(context(link.span_id), link.attributes) for link in one.links],
        kind=SpanKind.INTERNAL,
        status=Status(StatusCode.UNSET if one.error is None else StatusCode.ERROR, one.error),
        start_time=one.began,
        end_time=one.ended,
        instrumentation_scope=InstrumentationScope(SCOPE),
    )
