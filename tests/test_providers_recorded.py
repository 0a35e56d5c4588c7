"""What providers really answered, and what they really took back."""

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from anthropic.types import Message as AnthropicMessage
from openai.types.chat import ChatCompletion

from laneway.engine.kinds import is_list
from laneway.engine.providers import Answer, Asked, Reply, format_named, parse
from laneway.errors import PayloadError, ProviderRefusedError
from laneway.outcomes import Code, Failure, Outcome, Success

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
SDK: dict[str, Any] = {"openai-chat": ChatCompletion, "anthropic-messages": AnthropicMessage}


@cache
def exchanges() -> dict[tuple[str, int], dict[str, Any]]:
    path = DATA / "provider_exchanges.jsonl"
    if not path.exists():
        pytest.skip("the recorded exchanges are not beside this checkout")
    with path.open(encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    return {(record["conv"], record["seq"]): record for record in records}


def answered() -> list[dict[str, Any]]:
    return [
        record
        for record in exchanges().values()
        if record["dialect"] in SDK and record["response"] is not None
    ]


def client_calls(record: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [
        (call["id"], call["name"], call["arguments"])
        for call in record["calls"]
        if call["kind"] == "client"
    ]


def read_calls(reply: Reply) -> list[tuple[Any, ...]]:
    assert all(asked.fault is None for asked in reply.calls)
    return [(asked.id, asked.name, asked.arguments) for asked in reply.calls]


def test_recorded_answers_give_exactly_their_client_calls() -> None:
    counts: Counter[str] = Counter()
    for record in answered():
        counts["exchanges"] += 1
        counts["server calls"] += sum(call["kind"] == "server" for call in record["calls"])
        try:
            reply = parse(record["response"])
        except ProviderRefusedError:
            assert "http_error" in record["tags"]
            counts["refused"] += 1
        except PayloadError:
            # A count of tokens, and the answer of something that is no model: no message in either.
            assert record["calls"] == []
            counts["no message"] += 1
        else:
            assert "http_error" not in record["tags"]
            assert reply.provider == record["dialect"]
            assert read_calls(reply) == client_calls(record), record["id"]
            counts["calls"] += len(reply.calls)

    print(dict(counts))  # part of the proof
    assert counts == {
        "exchanges": 241,
        "calls": 114,
        "server calls": 113,
        "refused": 12,
        "no message": 2,
    }


def test_the_sdk_s_objects_of_recorded_answers_read_like_their_json() -> None:
    counts: Counter[str] = Counter()
    for record in answered():
        payload = record["response"]
        if "choices" not in payload and "content" not in payload:
            continue
        built = SDK[record["dialect"]].construct(**payload)
        assert read_calls(parse(built)) == client_calls(record), record["id"]
        assert parse(built).message == parse(payload).message, record["id"]
        counts[record["dialect"]] += 1

    print(dict(counts))  # part of the proof
    assert counts == {"openai-chat": 110, "anthropic-messages": 117}


def test_a_reply_renders_to_what_the_provider_took_back() -> None:
    pairs = results = 0
    for record in answered():
        check = record.get("echo_check")
        if check is None:
            continue
        later = exchanges()[record["conv"], check["in"]]
        reply = parse(record["response"])
        accepted = accepted_results(reply, later["request"]["messages"])
        assert len(accepted) == len(reply.calls)

        answers = [
            Answer(id=asked.id, name=asked.name, outcome=outcome_of(accepted[asked.id]))
            for asked in reply.calls
        ]
        rendered = format_named(reply.provider).render(reply.message, answers)

        messages = later["request"]["messages"]
        assert calls_in(rendered) == [call for call in calls_in(messages) if call[0] in accepted], (
            record["id"]
        )
        assert results_in(rendered) == [
            result for result in results_in(messages) if result[0] in accepted
        ], record["id"]
        pairs += 1
        results += len(accepted)

    print(f"{pairs} pairs, {results} results")  # part of the proof
    assert (pairs, results) == (56, 65)


def accepted_results(reply: Reply, messages: list[Any]) -> dict[str, tuple[Any, ...]]:
    ids = {asked.id for asked in reply.calls}
    return {result[0]: result for result in results_in(messages) if result[0] in ids}


def outcome_of(result: tuple[Any, ...]) -> Outcome:
    _, content, is_error = result
    if is_error:
        return Failure(code=Code.TOOL_ERROR, message=content)
    return Success(value=content)


def calls_in(messages: list[Any]) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for message in messages:
        entries: list[Any] = message.get("tool_calls") or []
        for entry in entries:
            function = entry["function"]
            found.append((entry["id"], function["name"], json.loads(function["arguments"])))
        found.extend(
            (block["id"], block["name"], block["input"])
            for block in blocks_of(message)
            if block["type"] == "tool_use"
        )
    return found


def results_in(messages: list[Any]) -> list[tuple[Any, ...]]:
    """Id, text, and whether it is an error, of each result, in order."""
    found: list[tuple[Any, ...]] = []
    for message in messages:
        if message["role"] == "tool":
            found.append((message["tool_call_id"], said(message["content"]), False))
        for block in blocks_of(message):
            if block["type"] == "tool_result":
                is_error = bool(block.get("is_error"))
                found.append((block["tool_use_id"], said(block["content"]), is_error))
    return found


def blocks_of(message: Any) -> list[Any]:
    content = message.get("content")
    return content if is_list(content) and message["role"] != "tool" else []


def said(content: Any) -> str:
    """The text of a result; our renderer's frame around an error is not part of it."""
    if is_list(content):
        return "".join(part.get("text", json.dumps(part)) for part in content)
    text = str(content)
    if text.startswith("Error TOOL_ERROR: "):
        return text.removeprefix("Error TOOL_ERROR: ").split("\nAsking again: ")[0]
    return text


REPORTS = {"openai-chat", "anthropic-messages", "any"}


def reported() -> list[dict[str, Any]]:
    path = DATA / "field_reports.jsonl"
    if not path.exists():
        pytest.skip("the field reports are not beside this checkout")
    with path.open(encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    return [record for record in records if record["dialect"] in REPORTS]


def completion(sample: dict[str, Any]) -> dict[str, Any]:
    function = {
        "name": sample.get("name", "f"),
        "arguments": sample.get("arguments_raw", "{}"),
    }
    entry = {"id": "a", "type": "function", "function": function}
    return {
        "choices": [
            {
                "finish_reason": sample.get("finish_reason", "tool_calls"),
                "message": {"role": "assistant", "content": None, "tool_calls": [entry]},
            }
        ]
    }


def only_call(sample: dict[str, Any]) -> Asked:
    (asked,) = parse(completion(sample)).calls
    return asked


def test_calls_as_users_met_them_are_faults_never_guesses() -> None:
    seen: Counter[str] = Counter()
    for record in reported():
        sample = record["sample"]
        if "arguments_raw" not in sample and "name" not in sample:
            continue
        asked = only_call(sample)
        seen[record["class"]] += 1
        match record["class"]:
            case "concatenated_args" | "python_literal":
                assert asked.fault is not None
                assert asked.fault.code is Code.MALFORMED_ARGUMENTS
            case "double_encoded":
                assert asked.arguments == {"n": 2}
            case "nested_string_json":
                assert asked.arguments == {"config": '{"a": 1'}
            case "truncated":
                assert asked.fault is not None
                assert asked.fault.code is Code.TRUNCATED_CALL
            case "truncated_valid_json":
                assert asked.cut is not None
                assert asked.cut.code is Code.TRUNCATED_CALL
            case "leaked_tokens_in_name" | "name_concatenation":
                assert asked.name == sample["name"]
            case other:
                pytest.fail(f"no rule for {other}")

    print(dict(seen))  # part of the proof
    assert sum(seen.values()) == 8
