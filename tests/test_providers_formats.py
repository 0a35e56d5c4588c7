"""What holds in every wire format: calls are read once, and each is answered in the same form."""

import json
import re
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from laneway.engine.kinds import is_list, is_object
from laneway.engine.providers import Answer, Asked, Reply, format_named, parse
from laneway.errors import PayloadError, ProviderRefusedError, UsageError
from laneway.outcomes import Code, Failure, Success
from tests.wires import ABSENT, TEXTUAL, WIRES, Said, answer, calls_in, results_in, said

NO_IDS = {"google-generate", "ollama-chat"}


def given(wire: str, arguments: dict[str, Any]) -> Any:
    return json.dumps(arguments) if wire in TEXTUAL else arguments


def read(wire: str, *calls: Said, cut: bool = False) -> Reply:
    reply = parse(answer(wire, calls, cut=cut))
    assert reply.provider == wire
    return reply


def answered(reply: Reply, **outcomes: Any) -> list[dict[str, Any]]:
    answers = [
        Answer(
            id=asked.id,
            name=asked.name,
            outcome=asked.fault or outcomes.get(asked.name, Success(value=f"did {asked.name}")),
        )
        for asked in reply.calls
    ]
    return format_named(reply.provider).render(reply.message, answers)


def told(messages: list[dict[str, Any]]) -> list[Any]:
    return [said(result.told) for result in results_in(messages)]


@pytest.mark.parametrize("wire", WIRES)
def test_calls_are_read_in_order_beside_a_text(wire: str) -> None:
    reply = read(
        wire,
        Said("a", "search", given(wire, {"q": "x"})),
        Said("b", "look", given(wire, {"deep": {"n": [1]}})),
    )

    assert [(asked.id, asked.name, asked.arguments) for asked in reply.calls] == [
        ("a", "search", {"q": "x"}),
        ("b", "look", {"deep": {"n": [1]}}),
    ]
    assert all(asked.fault is None for asked in reply.calls)
    assert "Let me see." in json.dumps(reply.message)


@pytest.mark.parametrize("wire", WIRES)
def test_results_stand_in_the_order_of_the_calls_and_close_the_turn(wire: str) -> None:
    reply = read(wire, Said("a", "f", given(wire, {})), Said("b", "g", given(wire, {})))
    answers = [
        Answer(id="b", name="g", outcome=Success(value="two")),
        Answer(id="a", name="f", outcome=Success(value="one")),
    ]

    messages = format_named(wire).render(reply.message, answers)

    assert [call.id for call in calls_in(messages)] == ["a", "b"]
    assert [result.id for result in results_in(messages)] == ["a", "b"]
    assert told(messages) == ["one", "two"]
    assert "laneway" not in json.dumps(messages)


@pytest.mark.parametrize("wire", WIRES)
def test_a_failure_is_marked_in_the_provider_s_own_way(wire: str) -> None:
    reply = read(wire, Said("a", "f", given(wire, {})), Said("b", "g", given(wire, {})))

    messages = answered(reply, f=Failure(code=Code.TIMEOUT, message="too slow"))

    failed, well = results_in(messages)
    assert "Error TIMEOUT: too slow" in said(failed.told)
    assert (failed.is_error, well.is_error) in ((True, False), (None, None))
    assert (failed.is_error is None) == (wire in {*TEXTUAL, "ollama-chat"})


@pytest.mark.parametrize("wire", WIRES)
def test_an_empty_result_is_told_in_words(wire: str) -> None:
    messages = answered(read(wire, Said("a", "f", given(wire, {}))), f=Success(value=""))

    assert told(messages) == ["(no output)"]


@pytest.mark.parametrize("wire", WIRES)
def test_a_call_without_an_id_gets_one_and_its_result_is_paired(wire: str) -> None:
    calls = [Said(ABSENT, "f", given(wire, {"n": 1})), Said(None, "f", given(wire, {"n": 1}))]
    reply = read(wire, *calls)

    messages = answered(reply)

    ids = [asked.id for asked in reply.calls]
    assert len(set(ids)) == 2
    assert read(wire, *calls).calls == reply.calls, "the same reply is read the same way"
    shown = [result.id for result in results_in(messages)]
    assert shown == [call.id for call in calls_in(messages)]
    assert shown == ([None, None] if wire in NO_IDS else ids)


@pytest.mark.parametrize("wire", sorted(NO_IDS))
def test_only_the_ids_of_the_provider_are_sent_back(wire: str) -> None:
    reply = read(wire, Said("a", "f", {}), Said(ABSENT, "g", {}))

    messages = answered(reply)

    assert [call.id for call in calls_in(messages)] == ["a", None]
    assert [result.id for result in results_in(messages)] == ["a", None]
    assert [result.name for result in results_in(messages)] == ["f", "g"]


@pytest.mark.parametrize("wire", WIRES)
def test_what_is_recorded_reads_as_the_same_calls_and_renders_the_same(wire: str) -> None:
    reply = read(wire, Said("a", "f", given(wire, {"n": 1})), Said(ABSENT, "f", given(wire, {})))
    recorded = json.loads(json.dumps(reply.message))

    again = format_named(wire).parse(recorded)

    assert [asked.id for asked in again.calls] == [asked.id for asked in reply.calls]
    assert again.message == reply.message
    assert answered(again) == answered(reply)


@pytest.mark.parametrize("wire", WIRES)
def test_ids_that_stand_twice_are_told_apart_and_the_same_call_twice_is_one(wire: str) -> None:
    calls = [Said("t1", "f", given(wire, {"n": n})) for n in (1, 2, 1)]
    reply = read(wire, *calls, Said("t3", "g", given(wire, {})))

    ids = [asked.id for asked in reply.calls]
    assert len(ids) == len(set(ids)) == 3
    assert ids[0] == "t1"
    assert ids[2] == "t3"
    assert [asked.arguments for asked in reply.calls] == [{"n": 1}, {"n": 2}, {}]
    messages = answered(reply)
    assert len(calls_in(messages)) == len(results_in(messages)) == 3


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("bad", ["", " ", 5, "a\nb", "t1.2"])
def test_an_id_that_no_provider_takes_back_is_replaced(wire: str, bad: Any) -> None:
    (asked,) = read(wire, Said(bad, "f", given(wire, {}))).calls

    assert asked.id != bad
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", asked.id)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("nothing", [ABSENT, None, "", " \n", "null", {}])
def test_h_args_1_nothing_for_arguments_is_an_empty_object(wire: str, nothing: Any) -> None:
    reply = read(wire, Said("a", "f", nothing))

    (asked,) = reply.calls
    assert asked.fault is None
    assert asked.arguments == {}
    assert calls_in(answered(reply))[0].told == {}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"n": 3}{"n": 9}', Code.MALFORMED_ARGUMENTS),
        ("{'n': 3}", Code.MALFORMED_ARGUMENTS),
        ("2", Code.MALFORMED_ARGUMENTS),
        ('{"n": NaN}', Code.MALFORMED_ARGUMENTS),
        ('{"n": 1, "n": 2}', Code.MALFORMED_ARGUMENTS),
        ('{"n": 1', Code.MALFORMED_ARGUMENTS),
    ],
)
def test_arguments_that_are_not_one_object_are_a_fault_never_a_guess(
    wire: str, text: str, code: Code
) -> None:
    reply = read(wire, Said("a", "f", text), Said("b", "g", given(wire, {"n": 1})))

    faulty, sound = reply.calls
    assert faulty.arguments is None
    assert faulty.fault is not None
    assert faulty.fault.code is code
    assert faulty.text == text
    assert sound.arguments == {"n": 1}
    shown = calls_in(answered(reply))
    assert [call.told for call in shown] == [{}, {"n": 1}]


@pytest.mark.parametrize("wire", WIRES)
def test_h_args_2_an_object_in_a_text_is_unwrapped_once(wire: str) -> None:
    twice = json.dumps(json.dumps({"n": 2})) if wire in TEXTUAL else json.dumps({"n": 2})

    (asked,) = read(wire, Said("a", "f", twice)).calls

    assert asked.arguments == {"n": 2}


@pytest.mark.parametrize("wire", WIRES)
def test_a_call_that_the_output_limit_cut_is_never_run(wire: str) -> None:
    cut_off = '{"path": "b.txt", "text": "lor' if wire in TEXTUAL else {"path": "b.txt"}
    reply = read(wire, Said("a", "f", given(wire, {"n": 1})), Said("b", "write", cut_off), cut=True)

    whole, half = reply.calls
    assert whole.arguments == {"n": 1}
    assert whole.fault is None
    assert half.fault is not None
    assert half.fault.code is Code.TRUNCATED_CALL
    assert "output limit" in str(results_in(answered(reply))[1].told)


@pytest.mark.parametrize("wire", sorted(TEXTUAL))
def test_whole_arguments_at_the_limit_are_cut_only_if_a_field_is_missing(wire: str) -> None:
    (asked,) = read(wire, Said("a", "f", '{"n": 1}'), cut=True).calls

    assert asked.arguments == {"n": 1}
    assert asked.fault is None
    assert asked.cut is not None
    assert asked.cut.code is Code.TRUNCATED_CALL


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", ["read<|channel|>json", "functions.read", "n" * 80])
def test_a_name_that_leaked_tokens_is_read_as_written_and_sent_back_legal(
    wire: str, name: str
) -> None:
    reply = read(wire, Said("a", name, given(wire, {})))
    (asked,) = reply.calls
    unknown = Failure(code=Code.UNKNOWN_TOOL, message="There is no such tool.")

    messages = format_named(wire).render(
        reply.message, [Answer(id="a", name=name, outcome=unknown)]
    )

    assert asked.name == name
    (call,) = calls_in(messages)
    (result,) = results_in(messages)
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", str(call.name))
    assert result.name in (None, call.name)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", ["", None, 5, " "])
def test_a_call_without_a_name_is_answered_as_an_unknown_tool(wire: str, name: Any) -> None:
    reply = read(wire, Said("a", name, given(wire, {})))

    (asked,) = reply.calls
    assert asked.name == ""
    assert asked.fault is not None
    assert asked.fault.code is Code.UNKNOWN_TOOL
    messages = answered(reply)
    assert calls_in(messages)[0].name == "unnamed_tool"
    assert len(results_in(messages)) == 1


@pytest.mark.parametrize("wire", WIRES)
def test_an_answer_without_calls_is_no_more_than_its_message(wire: str) -> None:
    reply = parse(answer(wire, []))

    messages = format_named(wire).render(reply.message, [])

    assert reply.calls == ()
    assert results_in(messages) == []
    assert "Let me see." in json.dumps(messages)


@pytest.mark.parametrize("wire", WIRES)
def test_answers_that_do_not_fit_the_calls_are_refused(wire: str) -> None:
    reply = read(wire, Said("a", "f", given(wire, {})))
    other = Answer(id="x", name="f", outcome=Success(value=1))

    with pytest.raises(UsageError, match=r"the calls are a, the answers are for x"):
        format_named(wire).render(reply.message, [other])


@pytest.mark.parametrize("wire", WIRES)
def test_other_arguments_are_written_into_the_named_calls_alone(wire: str) -> None:
    reply = read(wire, Said("a", "f", given(wire, {"n": 1})), Said("b", "f", given(wire, {"n": 1})))
    before = json.dumps(reply.message)

    changed = format_named(wire).with_arguments(reply.message, {"b": {"n": 9}})

    assert json.dumps(reply.message) == before
    messages = answered(Reply(provider=wire, message=changed, calls=reply.calls))
    assert [call.told for call in calls_in(messages)] == [{"n": 1}, {"n": 9}]


class Loose(BaseModel):
    """Any SDK's object: what it holds is objects again, as far down as it goes."""

    model_config = ConfigDict(extra="allow")


def as_objects(value: Any) -> Any:
    if is_object(value):
        return Loose(**{name: as_objects(one) for name, one in value.items()})
    return [as_objects(one) for one in value] if is_list(value) else value


@pytest.mark.parametrize("wire", WIRES)
def test_objects_of_an_sdk_read_like_their_json(wire: str) -> None:
    payload = answer(wire, [Said("a", "f", given(wire, {"n": 1}))])

    assert parse(as_objects(payload)) == parse(payload)
    shallow = {name: as_objects(value) for name, value in payload.items()}
    assert parse(shallow) == parse(payload)


@pytest.mark.parametrize("wire", WIRES)
def test_arguments_that_are_no_json_are_a_fault_of_the_call(wire: str) -> None:
    calls = [Said("a", "f", {"n": float("nan")}), Said("b", "f", {"n": SimpleNamespace()})]
    reply = read(wire, *calls)

    for asked in reply.calls:
        assert asked.arguments is None
        assert asked.fault is not None
        assert asked.fault.code is Code.MALFORMED_ARGUMENTS


def parts_of(payload: Any) -> list[Any]:
    match payload:
        case {"output": {"message": {"content": parts}}}:
            return list_of(parts)
        case {"candidates": [{"content": {"parts": parts}}]}:
            return list_of(parts)
        case {"content": parts} | {"output": parts} | {"steps": parts}:
            return list_of(parts)
        case _:
            raise AssertionError(payload)


def list_of(parts: Any) -> list[Any]:
    assert is_list(parts)
    return parts


IN_PARTS = ["anthropic-messages", "bedrock-converse", "google-generate"]
BY_TYPE = ["google-interactions", "openai-responses"]
"""Their calls look the same at first sight, so an error names the second."""


@pytest.mark.parametrize(
    ("wire", "other"),
    [
        (wire, other)
        for wire in IN_PARTS + BY_TYPE
        for other in IN_PARTS + BY_TYPE
        if wire != other and {wire, other} != set(BY_TYPE)
    ],
)
def test_a_message_that_mixes_formats_is_one_clear_error(wire: str, other: str) -> None:
    payload = answer(wire, [Said("a", "f", given(wire, {}))])
    foreign = answer(other, [Said("a", "f", given(other, {}))])
    parts_of(payload).append(parts_of(foreign)[-1])

    name = "openai-responses" if other in BY_TYPE else other
    with pytest.raises(PayloadError, match=rf"it is a call as {name} writes it, in a message of"):
        parse(payload, provider=wire)


def test_two_answers_in_one_payload_are_refused_unless_a_format_is_named() -> None:
    call = Said("a", "f", "{}")
    payload = answer("openai-chat", [call]) | answer("google-generate", [call])

    with pytest.raises(PayloadError) as caught:
        parse(payload)

    assert str(caught.value) == (
        "reply: it mixes formats: choices and candidates are the answers of different providers. "
        "Submit one of them, or name its format"
    )
    assert parse(payload, provider="google-generate").provider == "google-generate"


@pytest.mark.parametrize("block", ["toolUse", "functionCall"])
def test_a_foreign_call_among_the_parts_of_a_chat_message_is_refused(block: str) -> None:
    message = {"role": "assistant", "content": [{block: {"name": "f"}}], "tool_calls": []}

    with pytest.raises(PayloadError, match=r"^message\.content\[0\]: it is a call as "):
        parse(message, provider="openai-chat")


@pytest.mark.parametrize(
    ("payload", "provider", "text"),
    [
        (
            {"error": {"code": 400, "message": "Bad.", "status": "INVALID_ARGUMENT"}},
            "google-generate",
            "(INVALID_ARGUMENT): Bad.",
        ),
        ({"message": "No such model."}, "bedrock-converse", "(error): No such model."),
        ({"id": "x", "message": "invalid api token"}, "cohere-v2", "(error): invalid api token."),
        ({"error": "model not found"}, "ollama-chat", "(error): model not found."),
        ({"object": "response", "status": "failed"}, "openai-responses", "(failed): "),
        (
            {"object": "response", "error": {"code": "server_error", "message": "Oh."}},
            "openai-responses",
            "(server_error): Oh.",
        ),
        ({"steps": [], "status": "cancelled"}, "google-interactions", "(cancelled): "),
        (
            {"error": {"code": "invalid_request", "message": "Bad."}},
            "google-interactions",
            "(invalid_request): Bad.",
        ),
        (
            {"candidates": [], "promptFeedback": {"blockReason": "SAFETY"}},
            "google-generate",
            "(SAFETY): the prompt was blocked.",
        ),
        (
            {"prompt_feedback": {"block_reason": "OTHER", "block_reason_message": "Odd."}},
            "google-generate",
            "(OTHER): Odd.",
        ),
        (
            {"message": {"role": "assistant"}, "finish_reason": "ERROR"},
            "cohere-v2",
            "(ERROR): the answer broke off.",
        ),
    ],
)
def test_an_error_of_the_provider_is_one_clear_error(
    payload: Any, provider: str, text: str
) -> None:
    with pytest.raises(ProviderRefusedError) as caught:
        parse(payload, provider=provider)

    assert str(caught.value).startswith(f"{provider}: the provider answered with an error")
    assert text.rstrip(".") in str(caught.value)


FAULTS: list[tuple[str, Any, str]] = [
    ("bedrock-converse", {"output": {}}, "output.message: expected an object, not null"),
    ("bedrock-converse", {"x": 1}, "output: there is none in an object with x. Submit"),
    (
        "bedrock-converse",
        {"output": {"message": {"content": 5}}},
        "output.message.content: expected a list of blocks, not 5",
    ),
    (
        "bedrock-converse",
        {"content": [{"toolUse": 5}]},
        "message.content[0].toolUse: expected an object with name and input, not 5",
    ),
    ("bedrock-converse", {"content": [5]}, "message.content[0]: expected an object, not 5"),
    (
        "bedrock-converse",
        {"role": "user", "content": []},
        'message.role: it is the text "user". Submit the model',
    ),
    ("cohere-v2", {"message": 5}, "message: expected an object, not 5"),
    ("cohere-v2", {"x": 1}, "message: there is none in an object with x. Submit"),
    (
        "cohere-v2",
        {"tool_calls": {}, "content": [{"type": "tool_use"}]},
        "message.content[0]: it is a call as anthropic-messages writes it",
    ),
    ("cohere-v2", {"tool_calls": 5}, "message.tool_calls: expected a list, not 5"),
    ("google-generate", {"candidates": 5}, "candidates: expected a list, not 5"),
    ("google-generate", {"candidates": []}, "candidates: there are none in the response. Submit"),
    ("google-generate", {"candidates": [5]}, "candidates[0]: expected an object, not 5"),
    (
        "google-generate",
        {"candidates": [{"content": 5}]},
        "candidates[0].content: expected an object, not 5",
    ),
    ("google-generate", {"parts": 5}, "content.parts: expected a list, not 5"),
    ("google-generate", {"parts": [5]}, "content.parts[0]: expected an object, not 5"),
    (
        "google-generate",
        {"parts": [{"functionCall": 5}]},
        "content.parts[0].functionCall: expected an object with name and args, not 5",
    ),
    (
        "google-generate",
        {"role": "user", "parts": []},
        'content.role: it is the text "user". Submit the model',
    ),
    ("google-interactions", {"steps": 5}, "steps: expected a list, not 5. Submit the whole"),
    ("google-interactions", {"steps": [5]}, "steps[0]: expected an object with a type, not 5"),
    (
        "google-interactions",
        {"steps": [], "status": "in_progress"},
        "status: it is 'in_progress': the interaction goes on. Get it again",
    ),
    ("ollama-chat", {"message": 5}, "message: there is none in an object with message. Submit"),
    ("ollama-chat", {"message": {}}, "message: there is none in an object with message. Submit"),
    ("ollama-chat", {"done": False, "message": {}}, "done: it is false: this is a chunk of a"),
    (
        "ollama-chat",
        {"message": {"tool_calls": 5}},
        "message.tool_calls: expected a list, not 5",
    ),
    (
        "ollama-chat",
        {"message": {"tool_calls": [{}]}},
        "message.tool_calls[0]: expected an object with a function, not an empty object",
    ),
    ("openai-responses", {"output": 5}, "output: expected a list of items, not 5. Submit"),
    ("openai-responses", {"output": [5]}, "output[0]: expected an object, not 5"),
    (
        "openai-responses",
        {"output": [], "status": "queued"},
        "status: it is 'queued': the response goes on. Get it again",
    ),
]


@pytest.mark.parametrize(("wire", "payload", "text"), FAULTS)
def test_what_is_no_answer_is_refused_with_its_place(wire: str, payload: Any, text: str) -> None:
    with pytest.raises(PayloadError) as caught:
        parse(payload, provider=wire)

    assert str(caught.value).startswith(text)


def asked_by(payload: Any) -> list[Asked]:
    return list(parse(payload).calls)


def test_calls_of_two_candidates_are_alternatives() -> None:
    one = answer("google-generate", [Said("a", "f", {})])
    two = {**one, "candidates": [*one["candidates"], *one["candidates"]]}
    silent = {"content": {"role": "model", "parts": [{"text": "no"}]}}

    with pytest.raises(PayloadError, match=r"^candidates\[1\]: it carries calls, and so does an"):
        parse(two)

    assert asked_by({**one, "candidates": [silent, *one["candidates"]]}) == asked_by(one)
