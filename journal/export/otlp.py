"""Spans as one document of OTLP JSON, as a collector's `file` receiver or `/v1/traces` takes it.

Written by the OpenTelemetry Protocol, «JSON Protobuf Encoding»: ids in hex, enums as numbers,
64-bit integers as decimal texts, names in lowerCamelCase. Needs no exporter and no protobuf.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from laneway.journal.export.escaping import plain_json
from laneway.journal.export.spans import SCOPE, Attribute, SpanData

INTERNAL = 1
ERROR = 2
SAMPLED = 1


def otlp_json(
    spans: Iterable[SpanData], *, resource: Mapping[str, Attribute] | None = None
) -> Iterator[bytes]:
    """Write spans, in pieces of one document.

    Args:
        spans: of any number of traces.
        resource: what they come from; `service.name` is `laneway` unless it says otherwise.
    """
    write = msgspec.json.Encoder().encode
    source = _attributes({"service.name": SCOPE, **(resource or {})})
    yield b'{"resourceSpans":[{"resource":' + plain_json(write({"attributes": source}))
    yield b',"scopeSpans":[{"scope":' + write({"name": SCOPE}) + b',"spans":[\n'
    before = b""
    for one in spans:
        yield before + plain_json(write(_span(one)))
        before = b",\n"
    yield b"\n]}]}]}\n"


def _span(one: SpanData) -> dict[str, Any]:
    trace = f"{one.trace_id:032x}"
    told: dict[str, Any] = {
        "traceId": trace,
        "spanId": f"{one.span_id:016x}",
        "flags": SAMPLED,
        "name": one.name,
        "kind": INTERNAL,
        "startTimeUnixNano": str(one.began),
        "endTimeUnixNano": str(one.ended),
        "attributes": _attributes(one.attributes),
    }
    if one.parent_id is not None:
        told["parentSpanId"] = f"{one.parent_id:016x}"
    if one.events:
        told["events"] = [
            {
                "timeUnixNano": str(event.at),
                "name": event.name,
                "attributes": _attributes(event.attributes),
            }
            for event in one.events
        ]
    if one.links:
        told["links"] = [
            {
                "traceId": trace,
                "spanId": f"{link.span_id:016x}",
                "attributes": _attributes(link.attributes),
            }
            for link in one.links
        ]
    if one.error is not None:
        told["status"] = {"code": ERROR, "message": one.error}
    return told


def _attributes(given: Mapping[str, Attribute]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in given.items()]


def _value(value: Attribute) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    return {"stringValue": str(value)}
