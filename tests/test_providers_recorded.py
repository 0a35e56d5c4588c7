"""What providers really answered, and what they really took back."""

import importlib
import json
from collections import Counter
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from anthropic.types import Message as AnthropicMessage
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from laneway.engine.kinds import is_list
from laneway.engine.providers import Answer, Asked, Reply, format_named, parse
from laneway.engine.providers.earlier import see_that_open
from laneway.engine.results import NO_OUTPUT, json_text
from laneway.errors import PayloadError, ProviderRefusedError
from laneway.outcomes import Code, Failure, Outcome, Success
from tests.wires import TEXTUAL, WIRES, Said, Shown, calls_in, results_in, said
from tests.wires import answer as written

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
SDK: dict[str, Any] = {
    "openai-chat": lambda payload: ChatCompletion.construct(**payload),
    "openai-responses": lambda payload: Response.construct(**payload),
    "anthropic-messages": lambda payload: AnthropicMessage.construct(**payload),
}
with suppress(ImportError):  # Its bound on tenacity keeps it out of the pinned tools.
    google = importlib.import_module("google.genai.types")
    SDK["google-generate"] = google.GenerateContentResponse.model_validate


@cache
def exchanges() -> dict[tuple[str, int], dict[str, Any]]:
    path = DATA / "provider_exchanges.jsonl"
    if not path.exists():
        pytest.skip("the recorded exchanges are not beside this checkout")
    with path.open(encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    return {(record["conv"], record["seq"]): record for record in records}


def answered() -> list[dict[str, Any]]:
    return [record for record in exchanges().values() if record["response"] is not None]


def client_calls(record: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What a record says that its calls are; free text is our `input`, and nothing is `{}`."""
    return [
        (
            call["id"],
            call["name"],
            {"input": call["arguments"]}
            if call.get("type") == "custom"
            else call["arguments"] or {},
        )
        for call in record["calls"]
        if call["kind"] == "client"
    ]


def read_calls(reply: Reply, record: dict[str, Any]) -> list[tuple[Any, ...]]:
    """The calls that were read, without the ids that are ours."""
    assert all(asked.fault is None for asked in reply.calls)
    given = [call["id"] for call in record["calls"] if call["kind"] == "client"]
    named = len(given) == len(reply.calls)
    return [
        (asked.id if not named or given[at] is not None else None, asked.name, asked.arguments)
        for at, asked in enumerate(reply.calls)
    ]


def test_recorded_answers_give_exactly_their_client_calls() -> None:
    counts: Counter[str] = Counter()
    wires: Counter[str] = Counter()
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
            assert read_calls(reply, record) == client_calls(record), record["id"]
            counts["calls"] += len(reply.calls)
            wires[reply.provider] += 1

    print(dict(counts), dict(wires))  # part of the proof
    assert counts == {
        "exchanges": 499,
        "calls": 223,
        "server calls": 165,
        "refused": 20,
        "no message": 2,
    }


def test_recorded_answers_are_recorded_and_read_again_as_the_same() -> None:
    seen = 0
    for record in answered():
        with suppress(PayloadError):
            reply = parse(record["response"])
            again = format_named(reply.provider).parse(json.loads(json.dumps(reply.message)))
            assert again.message == reply.message, record["id"]
            assert [one.id for one in again.calls] == [one.id for one in reply.calls]
            seen += 1

    assert seen == 477


def test_what_a_model_said_comes_back_untouched_but_for_what_is_named() -> None:
    """Left out: blank texts; Bedrock's `type` beside a block, which no request may have."""
    seen: Counter[str] = Counter()
    for record in answered():
        with suppress(PayloadError):
            reply = parse(record["response"])
            own = {"google-generate": "parts", "openai-responses": "output"}
            field = own.get(reply.provider)
            if field is None:
                continue
            body = record["response"]
            given = body["output"] if field == "output" else parts_of(body)
            sent = format_named(reply.provider).render(reply.message, failed(reply))
            kept = sent[0]["parts"] if field == "parts" else sent
            assert [one for one in given if one != {"text": ""}] == kept[: len(given)] or not given
            seen[reply.provider] += 1

    print(dict(seen))  # part of the proof
    assert sum(seen.values()) > 190


def parts_of(body: dict[str, Any]) -> list[Any]:
    found: list[Any] = body["candidates"][0].get("content", {}).get("parts", [])
    return found


def failed(reply: Reply) -> list[Answer]:
    failure = Failure(code=Code.CANCELLED, message="Not run.")
    return [Answer(id=asked.id, name=asked.name, outcome=failure) for asked in reply.calls]


def test_the_sdk_s_objects_of_recorded_answers_read_like_their_json() -> None:
    counts: Counter[str] = Counter()
    for record in answered():
        payload = record["response"]
        build = SDK.get(record["dialect"])
        if build is None or not {"choices", "content", "output", "candidates"} & payload.keys():
            continue
        if record["dialect"] == "google-generate":
            payload = kept(payload, "modelVersion", "responseId") | {
                "candidates": [
                    without_redacted(kept(one, "content", "finishReason"))
                    for one in payload["candidates"]
                ]
            }
        built = parse(build(payload))
        assert read_calls(built, record) == client_calls(record), record["id"]
        if record["dialect"] != "google-generate":  # its objects have names of their own
            assert built.message == parse(payload).message, record["id"]
        counts[record["dialect"]] += 1

    print(dict(counts))  # part of the proof
    assert counts == {
        "openai-chat": 110,
        "anthropic-messages": 117,
        "openai-responses": 122,
        **({"google-generate": 76} if "google-generate" in SDK else {}),
    }


def kept(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: fields[name] for name in names if name in fields}


def without_redacted(value: Any) -> Any:
    """Put real base64 where the recording was shortened: Google's SDK decodes it."""
    if isinstance(value, dict):
        fields: dict[str, Any] = value
        return {
            name: "AAAA" if name in ("thoughtSignature", "data") else without_redacted(one)
            for name, one in fields.items()
        }
    return [without_redacted(one) for one in value] if is_list(value) else value


def test_a_reply_renders_to_what_the_provider_took_back() -> None:
    """Each recorded answer with its results, beside the request that the provider accepted.

    Compared are calls (id, name, arguments) and results (id, name, text, error), in order. Not
    compared, because they are the other client's choice: ids that it made up for calls without one;
    the field under which a result stands in a Google response; pictures and files in results.
    """
    pairs = results = 0
    wires: Counter[str] = Counter()
    for record in answered():
        check = record.get("echo_check")
        if check is None:
            continue
        later = sent_in(exchanges()[record["conv"], check["in"]]["request"])
        reply = parse(record["response"])
        own = [asked for asked in reply.calls if not minted(reply)]
        accepted = [one for one in results_in(later) if belongs(one, reply)]
        if not own and reply.calls:  # without ids: by their order, and it is the last of them
            accepted = accepted[-len(reply.calls) :]
        assert len(accepted) == len(reply.calls), record["id"]

        rendered = format_named(reply.provider).render(
            reply.message,
            [
                Answer(id=asked.id, name=asked.name, outcome=outcome_of(one))
                for asked, one in zip(reply.calls, accepted, strict=True)
            ],
        )

        if "by" not in check:
            echoed = [one for one in calls_in(later) if belongs(one, reply)][-len(reply.calls) :]
            assert alike(calls_in(rendered), reply) == alike(echoed, reply), record["id"]
        assert [plain(one) for one in results_in(rendered)] == [
            plain(one, reply) for one in accepted
        ], record["id"]
        pairs += 1
        results += len(accepted)
        wires[reply.provider] += 1

    print(f"{pairs} pairs, {results} results, {dict(wires)}")  # part of the proof
    assert (pairs, results) == (126, 135)


def sent_in(request: dict[str, Any]) -> list[Any]:
    found = request.get("messages") or request.get("contents") or request.get("input")
    return found if is_list(found) else []


def minted(reply: Reply) -> bool:
    """Whether ids in it are ours, and so not in what is sent."""
    return bool(reply.message.get("laneway", {}).get("minted"))


def belongs(one: Shown, reply: Reply) -> bool:
    ids = {asked.id for asked in reply.calls}
    if minted(reply):
        return one.name in {asked.name for asked in reply.calls}
    return one.id in ids


def alike(calls: list[Shown], reply: Reply) -> list[Any]:
    numbered = not minted(reply)
    return [(one.id if numbered else None, one.name, one.told) for one in calls]


def plain(one: Shown, reply: Reply | None = None) -> tuple[Any, ...]:
    """Id, text, and whether it is an error; our renderer's frame is not part of it."""
    own = one.id if reply is None or not minted(reply) else None
    return own, text_of(one), bool(one.is_error)


def text_of(one: Shown) -> str:
    """The text of a result; our renderer's frame around an error is not part of it."""
    told = said(one.told)
    text = told if isinstance(told, str) else json_text(told)
    if text.startswith("Error TOOL_ERROR: "):
        return text.removeprefix("Error TOOL_ERROR: ").split("\nAsking again: ")[0]
    return text or NO_OUTPUT  # where there were only pictures


def outcome_of(one: Shown) -> Outcome:
    if one.is_error:
        return Failure(code=Code.TOOL_ERROR, message=text_of(one))
    return Success(value=text_of(one))


def lines_of(name: str) -> list[dict[str, Any]]:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not beside this checkout")
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def calls_of(wire: str, sample: dict[str, Any]) -> list[Asked]:
    """What a sample of a report comes to in a format, whichever it was met in."""
    ids = sample.get("ids", ["a"])
    call = Said("", sample.get("name", "f"), sample.get("arguments_raw", "{}"))
    cut = sample.get("finish_reason") == "length" or sample.get("status") == "incomplete"
    return list(parse(written(wire, [call._replace(id=one) for one in ids], cut=cut)).calls)


@pytest.mark.parametrize("wire", WIRES)
def test_calls_as_users_met_them_are_faults_never_guesses(wire: str) -> None:
    seen: Counter[str] = Counter()
    for record in lines_of("field_reports.jsonl"):
        sample = record["sample"]
        if not {"arguments_raw", "name", "ids"} & sample.keys():
            continue
        calls = calls_of(wire, sample)
        asked = calls[0]
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
                fault = asked.cut if wire in TEXTUAL else asked.fault
                assert fault is not None
                assert fault.code is Code.TRUNCATED_CALL
            case "leaked_tokens_in_name" | "name_concatenation":
                assert asked.name == sample["name"]
            case "duplicate_ids_in_turn":
                assert [one.id for one in calls] == ["toolu_1", "toolu_2", "toolu_3"]
            case other:
                pytest.fail(f"no rule for {other}")

    print(dict(seen))  # part of the proof
    assert sum(seen.values()) == 10


def test_lines_of_claude_code_are_read_as_anthropic_s_messages() -> None:
    """An assistant's line is an answer; a user's line holds results, which are nobody's answer."""
    counts: Counter[str] = Counter()
    for entry in lines_of("claude_code_records.jsonl"):
        record = entry["record"]
        counts["lines"] += 1
        message = record.get("message")
        if message is None:
            counts[f"no message ({record['type']})"] += 1
            continue
        if record["type"] == "assistant":
            reply = parse(message)
            uses = [one for one in message["content"] if one["type"] == "tool_use"]
            assert reply.provider == "anthropic-messages"
            assert [(one.id, one.name, one.arguments) for one in reply.calls] == [
                (use["id"], use["name"], use["input"]) for use in uses
            ]
            counts["calls"] += len(uses)
        else:
            with pytest.raises(PayloadError, match=r'role: it is the text "user"'):
                parse(message)
            ids = [one.id for one in results_in([message])]
            uses = [{"type": "tool_use", "id": one, "name": "f", "input": {}} for one in ids]
            see_that_open(message, [{"role": "assistant", "content": uses}])
            if ids:
                with pytest.raises(PayloadError, match=r"a result for the call 'toolu_"):
                    see_that_open(message, [])
            counts["results"] += len(ids)

    print(dict(counts))  # part of the proof
    assert (counts["lines"], counts["calls"], counts["results"]) == (29, 9, 12)
