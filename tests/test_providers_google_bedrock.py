"""What only Google's forms, Bedrock's, Cohere's and Ollama's have."""

from typing import Any

import ollama
import pytest

from laneway.engine.providers import Answer, format_named, parse
from laneway.errors import PayloadError
from laneway.outcomes import Code, Failure, Success
from tests.wires import Said, answer

GENERATE = format_named("google-generate")
BEDROCK = format_named("bedrock-converse")
INTERACTIONS = format_named("google-interactions")


def content(*parts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    one = {"content": {"role": "model", "parts": list(parts)}, "finishReason": "STOP", **fields}
    return {"candidates": [one]}


def done(reply: Any) -> list[Answer]:
    return [Answer(id=one.id, name=one.name, outcome=Success(value="x")) for one in reply.calls]


def test_signatures_thoughts_and_what_google_runs_come_back_untouched() -> None:
    parts: list[dict[str, Any]] = [
        {"text": "Hm.", "thought": True},
        {"thoughtSignature": "AAAA", "toolCall": {"id": "s", "toolType": "GOOGLE_SEARCH_WEB"}},
        {"thoughtSignature": "AAAA", "toolResponse": {"id": "s"}},
        {"executableCode": {"id": "e", "code": "1", "language": "PYTHON"}},
        {"codeExecutionResult": {"id": "e", "outcome": "OUTCOME_OK"}},
        {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "BBBB"},
        {"text": "", "thoughtSignature": "CCCC"},
        {"newThing": 1},
    ]

    reply = parse(content(*parts, {"text": ""}, {}))

    assert [one.name for one in reply.calls] == ["f"]
    assert GENERATE.render(reply.message, done(reply))[0]["parts"] == parts


def test_objects_of_google_s_sdk_are_read_in_its_spelling_and_taken_back_by_it() -> None:
    google: Any = pytest.importorskip("google.genai.types", reason="google-genai is not installed")
    signed = {"functionCall": {"name": "f", "args": {"n": 1}}, "thoughtSignature": "_-8="}
    payload = {**content({"text": "x"}, signed), "responseId": "r"}
    response = google.GenerateContentResponse.model_validate(payload)

    reply = parse(response)
    messages = GENERATE.render(reply.message, done(reply))
    again = [google.Content.model_validate(message) for message in messages]

    assert reply.key == "r"
    assert [(one.name, one.arguments) for one in reply.calls] == [("f", {"n": 1})]
    assert response.candidates is not None
    assert again[0] == response.candidates[0].content
    assert again[1].parts is not None
    assert again[1].parts[0].function_response is not None
    assert again[1].parts[0].function_response.response == {"output": "x"}


def test_changes_are_written_in_the_spelling_of_the_payload() -> None:
    reply = parse(content({"function_call": {"name": "f", "args": {"n": 1}, "id": "a"}}))

    changed = GENERATE.with_arguments(reply.message, {"a": {"n": 2}})

    assert changed["parts"][0] == {"function_call": {"name": "f", "args": {"n": 2}, "id": "a"}}


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "SAFETY"])
def test_an_answer_of_google_s_without_content_is_silence(reason: str) -> None:
    reply = parse({"candidates": [{"finishReason": reason}]})

    assert reply.calls == ()
    assert GENERATE.render(reply.message, []) == [
        {"role": "model", "parts": [{"text": "(no answer)"}]}
    ]


def test_a_call_of_google_s_whose_arguments_go_on_is_not_run() -> None:
    (asked,) = parse(content({"functionCall": {"name": "f", "willContinue": True}})).calls

    assert asked.fault is not None
    assert asked.fault.code is Code.TRUNCATED_CALL


def test_steps_of_the_input_are_left_out_of_an_interaction() -> None:
    payload = {
        "id": "v1",
        "object": "interaction",
        "status": "requires_action",
        "steps": [
            {"type": "user_input", "content": [{"type": "text", "text": "Hi"}]},
            {"type": "function_call", "id": "old", "name": "f", "arguments": {}},
            {"type": "function_result", "call_id": "old", "name": "f", "result": "x"},
            {"type": "thought", "signature": "AAAA"},
            {"type": "google_search_call", "id": "s", "arguments": {}},
            {"type": "google_search_result", "call_id": "s", "result": []},
            {"type": "mcp_server_tool_call", "id": "m", "name": "f", "arguments": {}},
            {"type": "function_call", "id": "new", "name": "g", "arguments": {"n": 1}},
        ],
    }

    reply = parse(payload)

    assert [(one.id, one.name) for one in reply.calls] == [("new", "g")]
    sent = INTERACTIONS.render(reply.message, done(reply))
    assert sent == [
        *payload["steps"][3:],
        {"type": "function_result", "call_id": "new", "name": "g", "result": "x"},
    ]


def test_what_bedrock_runs_itself_is_neither_run_nor_answered() -> None:
    own = {"toolUse": {"toolUseId": "s", "name": "web", "input": {}, "type": "server_tool_use"}}
    result = {"toolResult": {"toolUseId": "s", "content": []}}
    ours = {"toolUse": {"toolUseId": "s", "name": "f", "input": {}, "type": "tool_use"}}
    message = {"role": "assistant", "content": [own, result, {"text": "x", "type": "text"}, ours]}

    reply = parse({"output": {"message": message}, "stopReason": "tool_use"})

    (asked,) = reply.calls
    assert asked.name == "f"
    assert asked.id != "s", "one id stands on one call only"
    sent, results = BEDROCK.render(reply.message, done(reply))
    assert sent["content"][:3] == [own, result, {"text": "x"}]
    assert "type" not in sent["content"][3]["toolUse"]
    assert len(results["content"]) == 1


def test_a_bare_message_of_bedrock_is_known_by_its_blocks() -> None:
    use = {"toolUse": {"toolUseId": "a", "name": "f", "input": {}}}

    assert parse({"role": "assistant", "content": [use]}).provider == "bedrock-converse"
    assert parse({"role": "assistant", "content": [{"text": "x"}]}).provider == "bedrock-converse"
    silent = parse({"output": {"message": {"role": "assistant", "content": [{"text": " "}]}}})
    assert BEDROCK.render(silent.message, [])[0]["content"] == [{"text": "(no answer)"}]


def test_bedrock_s_history_has_no_two_user_messages_in_a_row_and_results_stand_first() -> None:
    reply = parse(answer("bedrock-converse", [Said("a", "f", {})]))

    joined = BEDROCK.join(
        [
            BEDROCK.say("one"),
            {"role": "user", "content": "two"},
            *BEDROCK.render(reply.message, done(reply)),
            BEDROCK.say("three"),
        ]
    )

    assert [message["role"] for message in joined] == ["user", "assistant", "user"]
    assert joined[0]["content"] == [{"text": "one"}, {"text": "two"}]
    assert [next(iter(block)) for block in joined[2]["content"]] == ["toolResult", "text"]


def test_ollama_s_sdk_is_read_and_takes_messages_back() -> None:
    function = {"name": "f", "arguments": {"n": 1}}
    response = ollama.ChatResponse.model_validate(
        {
            "model": "m",
            "created_at": "2026-01-01T00:00:00Z",
            "done": True,
            "message": {
                "role": "assistant",
                "thinking": "Hm.",
                "tool_calls": [{"function": function}, {"function": function}],
            },
        }
    )

    reply = parse(response)
    messages = format_named("ollama-chat").render(reply.message, done(reply))

    assert [one.arguments for one in reply.calls] == [{"n": 1}, {"n": 1}]
    assert messages[0]["thinking"] == "Hm."
    assert messages[1] == {"role": "tool", "tool_name": "f", "content": "x"}
    again = [ollama.Message.model_validate(message) for message in messages]
    assert again[0].tool_calls is not None
    assert again[2].tool_name == "f"


def test_a_cohere_message_without_content_says_so() -> None:
    wire = format_named("cohere-v2")
    reply = parse({"finish_reason": "COMPLETE", "message": {"role": "assistant"}})

    assert wire.render(reply.message, []) == [{"role": "assistant", "content": "(no answer)"}]


def test_a_cohere_plan_stays_beside_its_calls() -> None:
    reply = parse({"tool_plan": "I will.", "tool_calls": answer_calls(), "role": "assistant"})

    sent = format_named("cohere-v2").render(reply.message, done(reply))

    assert reply.provider == "cohere-v2"
    assert sent[0]["tool_plan"] == "I will."


def answer_calls() -> list[Any]:
    calls: list[Any] = answer("cohere-v2", [Said("a", "f", "{}")])["message"]["tool_calls"]
    return calls


@pytest.mark.parametrize("wire", ["cohere-v2", "ollama-chat"])
def test_another_s_role_is_refused(wire: str) -> None:
    with pytest.raises(PayloadError, match=r'^message\.role: it is the text "user"'):
        parse({"message": {"role": "user", "content": "x"}}, provider=wire)


def test_a_failure_in_google_s_form_stands_under_error() -> None:
    reply = parse(content({"functionCall": {"name": "f", "id": "a"}}))
    lost = Failure(code=Code.TOOL_ERROR, message="Gone.")

    _, results = GENERATE.render(reply.message, [Answer(id="a", name="f", outcome=lost)])

    (part,) = results["parts"]
    assert part["functionResponse"]["id"] == "a"
    assert part["functionResponse"]["response"] == {"error": "Error TOOL_ERROR: Gone."}


def test_steps_without_types_are_no_interaction() -> None:
    with pytest.raises(PayloadError, match=r"^reply: an object with steps is in no known format"):
        parse({"steps": []})
    assert parse({"steps": [{"type": "thought"}]}).provider == "google-interactions"
