"""Recorded streams: exactly the calls of each, however cut; and what the SDKs make of them."""

import json
import random
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest
from anthropic.lib.streaming._messages import accumulate_event
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from laneway.engine.arguments import read_arguments
from laneway.engine.kinds import is_object
from laneway.engine.providers import Reply, parse
from laneway.engine.providers.streams import StreamReader, reader_for, reader_named
from laneway.engine.providers.streams.sse import ByteReader
from laneway.errors import PayloadError, ProviderRefusedError

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
SMALL_BYTES = 2_500
CUTS = 200
Calls = list[tuple[Any, ...]]


@cache
def records() -> list[dict[str, Any]]:
    path = DATA / "provider_exchanges.jsonl"
    if not path.exists():
        pytest.skip("the recorded exchanges are not beside this checkout")
    with path.open(encoding="utf-8") as lines:
        found = [json.loads(line) for line in lines]
    return [record for record in found if record.get("events")]


def events_of(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [event["data"] for event in record["events"] if is_object(event.get("data"))]


def wire(record: dict[str, Any]) -> bytes:
    """The bytes of a stream, as the README of the data says."""
    lines: list[str] = []
    for event in record["events"]:
        if "comment" in event:
            lines.append(f": {event['comment']}\n\n")
            continue
        kind = f"event: {event['event']}\n" if event.get("event") else ""
        data = json.dumps(event["data"], ensure_ascii=False) if "data" in event else event["raw"]
        lines.append(f"{kind}data: {data}\n\n")
    return "".join(lines).encode()


def read(record: dict[str, Any]) -> StreamReader:
    reader = reader_named(record["dialect"])
    for event in events_of(record):
        reader.feed(event)
    return reader


def expected(record: dict[str, Any]) -> Calls:
    return [
        (call["id"], call["name"], call["arguments"] if "arguments_error" not in call else None)
        for call in record["calls"]
        if call["kind"] == "client" and call.get("type") != "builtin"
    ]


def wanted(record: dict[str, Any]) -> Calls:
    """What is recorded; the free text of a custom tool as the argument that it becomes."""
    return [
        (
            call["id"],
            call["name"],
            {"input": call["arguments"]}
            if call.get("type") == "custom"
            else None
            if "arguments_error" in call
            else call["arguments"] or {},
        )
        for call in record["calls"]
        if call["kind"] == "client"
    ]


def without_made_ids(reply: Reply, record: dict[str, Any]) -> Calls:
    """The calls to be run, where the format has no ids without those that were made for them."""
    own = [name for name, _, _ in wanted(record)] + [None] * len(reply.calls)
    return [
        (one.id if own[at] is not None else None, one.name, one.arguments)
        for at, one in enumerate(reply.calls)
    ]


def parts_of(  # noqa: C901, PLR0912 - one arm a format
    payload: dict[str, Any], dialect: str
) -> Iterator[tuple[Any, Any, Any]]:
    """Id, name and arguments of each call, where the format has them."""
    match dialect:
        case "openai-chat":
            for choice in payload["choices"]:
                for entry in choice["message"].get("tool_calls", []):
                    yield entry.get("id"), entry["function"]["name"], entry["function"]["arguments"]
        case "anthropic-messages":
            for block in payload["content"]:
                if block["type"] == "tool_use":
                    yield block["id"], block["name"], block["input"]
        case "openai-responses":
            for item in payload["output"]:
                if item["type"] == "function_call":
                    yield item["call_id"], item["name"], item["arguments"]
                elif item["type"] == "custom_tool_call":
                    yield item["call_id"], item["name"], {"custom": item["input"]}
        case "google-generate":
            for candidate in payload.get("candidates", []):
                for part in candidate["content"]["parts"]:
                    if "functionCall" in part:
                        call = part["functionCall"]
                        yield call.get("id"), call["name"], call.get("args", {})
        case "bedrock-converse":
            for part in payload["output"]["message"]["content"]:
                if "toolUse" in part:
                    use = part["toolUse"]
                    yield use["toolUseId"], use["name"], use["input"]
        case _:
            assert dialect == "google-interactions"
            for step in payload["steps"]:
                if step["type"] == "function_call":
                    yield step["id"], step["name"], step["arguments"]


def calls_in(payload: dict[str, Any], dialect: str) -> Calls:
    found: Calls = []
    for name, tool, given in parts_of(payload, dialect):
        arguments = read_arguments(given)
        free = is_object(given) and given.get("custom")
        found.append((name, tool, free or (arguments if is_object(arguments) else None)))
    return found


def test_recorded_streams_give_exactly_their_client_calls() -> None:
    counts: Counter[str] = Counter()
    for record in records():
        assert reader_for(events_of(record)[0]).name == record["dialect"]
        counts["streams"] += 1
        try:
            reader = read(record)
        except ProviderRefusedError:
            assert record["calls"] == []
            counts["refused"] += 1
            continue
        assert calls_in(reader.whole(), record["dialect"]) == expected(record), record["id"]
        counts["calls"] += len(expected(record))
        counts["never ended"] += not reader.ended
        counts["superseded"] += reader.superseded

    print(dict(counts))  # part of the proof
    assert counts == {
        "streams": 242,
        "refused": 1,
        "calls": 170,
        "never ended": 1,
        "superseded": 1,
    }


def test_the_readers_of_whole_messages_find_the_same_calls() -> None:
    for record in records():
        try:
            reader = read(record)
            if not reader.ended:
                continue
            reply = parse(reader.whole(), provider=record["dialect"])
        except ProviderRefusedError:
            continue
        assert without_made_ids(reply, record) == wanted(record), record["id"]


def test_each_call_is_complete_at_the_front_before_or_when_the_message_ends() -> None:
    early = 0
    for record in records():
        reader = reader_named(record["dialect"])
        seen = 0
        try:
            for event in events_of(record):
                reader.feed(event)
                if reader.superseded:
                    seen = 0
                if reader.ended or reader.complete <= seen:
                    continue
                seen = reader.complete
                front = parse(reader.front(), provider=record["dialect"])
                told = without_made_ids(front, record)
                assert told == wanted(record)[: len(told)], record["id"]
                early += 1
        except ProviderRefusedError:
            continue
    assert early > 50


def test_any_cut_of_the_bytes_gives_the_same_events() -> None:
    chance = random.Random(7)
    counts: Counter[str] = Counter()
    for record in records():
        if any(event.get("raw", "[DONE]") != "[DONE]" for event in record["events"]):
            counts["damaged as recorded"] += 1
            with pytest.raises(PayloadError, match="it is no JSON"):
                decoded([wire(record)])
            continue
        data, told = wire(record), decoded([wire(record)])
        assert [one.get("error") or one for one in told] == [
            one.get("error") or one for one in events_of(record)
        ]
        if len(data) <= SMALL_BYTES:
            counts["cut at every byte"] += 1
            for at in range(1, len(data)):
                assert decoded([data[:at], data[at:]]) == told, record["id"]
            assert decoded([bytes([one]) for one in data]) == told
        else:
            counts["cut at random"] += 1
            cuts = sorted(chance.sample(range(len(data)), min(CUTS, len(data))))
            pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
            assert decoded(pieces) == told, record["id"]
            for at in chance.sample(range(len(data)), 3):
                assert decoded([data[:at], data[at:]]) == told
    print(dict(counts))


def decoded(pieces: list[bytes]) -> list[dict[str, Any]]:
    reader = ByteReader()
    events = [event for piece in pieces for event in reader.feed(piece)]
    return events + reader.end()


def test_openais_own_accumulator_gives_the_same_calls() -> None:
    counts: Counter[str] = Counter()
    for record in records():
        if record["dialect"] != "openai-chat" or not expected(record):
            continue
        state = ChatCompletionStreamState()
        try:
            for event in events_of(record):
                state.handle_chunk(ChatCompletionChunk.model_validate(event))
            whole = state.get_final_completion().to_dict()
        except Exception:  # noqa: BLE001 - whatever the SDK cannot read
            counts["not read by the SDK"] += 1
            continue
        assert calls_in(whole, "openai-chat") == expected(record), record["id"]
        counts["same"] += 1
    print(dict(counts))
    assert counts["same"] >= 10
    assert counts["not read by the SDK"] <= 2


def test_anthropics_own_accumulator_gives_the_same_calls() -> None:
    counts: Counter[str] = Counter()
    for record in records():
        if record["dialect"] != "anthropic-messages" or not expected(record):
            continue
        snapshot: Any = None
        texts: dict[int, bytes] = {}
        try:
            for event in events_of(record):
                if event["type"] != "ping":
                    snapshot = accumulate_event(
                        event=cast("Any", event), current_snapshot=snapshot, json_bufs=texts
                    )
            whole = snapshot.to_dict()
        except Exception:  # noqa: BLE001 - whatever the SDK cannot read
            counts["not read by the SDK"] += 1
            continue
        same = calls_in(whole, "anthropic-messages") == expected(record)
        counts["same" if same else "otherwise"] += 1
    print(dict(counts))
    assert counts["same"] >= 10
    assert counts["otherwise"] <= 2, "a message sent twice, and a cut object that the SDK repairs"
