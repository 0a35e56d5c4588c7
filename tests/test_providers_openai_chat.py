"""OpenAI chat completions: what is read, what is mended, and what goes back."""

import json
from typing import Any

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionMessage

from laneway.engine.providers import Answer, Asked, Message, Reply, format_named, parse
from laneway.errors import PayloadError, ProviderRefusedError, UsageError
from laneway.outcomes import Code, Failure, Success


def call(given: Any, name: Any = "ping", arguments: Any = "{}") -> dict[str, Any]:
    return {"id": given, "type": "function", "function": {"name": name, "arguments": arguments}}


def assistant(*calls: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def completion(*calls: Any, finish_reason: str = "tool_calls") -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": assistant(*calls), "finish_reason": finish_reason}],
    }


def succeeded(reply: Reply, *values: Any) -> list[Answer]:
    return [
        Answer(id=asked.id, name=asked.name, outcome=Success(value=value))
        for asked, value in zip(reply.calls, values, strict=True)
    ]


def failed(reply: Reply) -> list[Answer]:
    return [
        Answer(id=asked.id, name=asked.name, outcome=asked.fault or Success(value="ok"))
        for asked in reply.calls
    ]


def render(reply: Reply, answers: list[Answer]) -> list[Message]:
    return format_named(reply.provider).render(reply.message, answers)


def replayed(reply: Reply) -> list[Any]:
    return [entry["function"]["arguments"] for entry in reply.message["tool_calls"]]


def fault_of(asked: Asked) -> Failure:
    assert asked.fault is not None
    return asked.fault


def test_a_completion_gives_its_calls_in_order_and_its_message_unchanged() -> None:
    payload = completion(call("a", "read", '{"path": "x"}'), call("b", "list", "{ }"))
    before = json.dumps(payload)

    reply = parse(payload)

    assert reply.provider == "openai-chat"
    assert reply.key == "chatcmpl-1"
    assert not reply.referring.strict
    assert reply.calls == (
        Asked(id="a", name="read", arguments={"path": "x"}),
        Asked(id="b", name="list", arguments={}),
    )
    assert reply.message == payload["choices"][0]["message"]
    assert json.dumps(payload) == before


def test_a_bare_assistant_message_is_read_too() -> None:
    reply = parse(assistant(call("a")))

    assert [asked.id for asked in reply.calls] == ["a"]
    assert reply.key == ""


def test_an_answer_without_calls_is_a_message_alone() -> None:
    reply = parse({"role": "assistant", "content": "Hello", "tool_calls": []})

    assert reply.calls == ()
    assert render(reply, []) == [{"role": "assistant", "content": "Hello"}]


def test_the_reply_shares_nothing_with_the_payload() -> None:
    payload = completion(call("a"))

    reply = parse(payload)
    payload["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = "changed"

    assert replayed(reply) == ["{}"]


def test_h_ident_1_two_different_calls_under_one_id_get_two_ids() -> None:
    payload = assistant(
        call("call_7", "read_note", '{"name": "alpha"}'),
        call("call_7", "read_note", '{"name": "beta"}'),
    )

    reply = parse(payload)
    messages = render(reply, succeeded(reply, "note:alpha", "note:beta"))

    first, second = reply.calls
    assert first.id == "call_7"
    assert second.id not in {"call_7", ""}
    assert [first.arguments, second.arguments] == [{"name": "alpha"}, {"name": "beta"}]
    assert [entry["id"] for entry in messages[0]["tool_calls"]] == [first.id, second.id]
    assert messages[1:] == [
        {"role": "tool", "tool_call_id": first.id, "content": "note:alpha"},
        {"role": "tool", "tool_call_id": second.id, "content": "note:beta"},
    ]
    assert parse(payload) == reply, "the same payload is repaired the same way"


def test_h_ident_1_the_same_call_written_twice_is_one_call() -> None:
    twice = call("call_7", "read_note", '{"name": "alpha"}')

    reply = parse(assistant(twice, dict(twice)))
    messages = render(reply, succeeded(reply, "note:alpha"))

    assert len(reply.calls) == 1
    assert len(messages[0]["tool_calls"]) == 1
    assert len(messages) == 2


def test_a_repeated_call_is_found_behind_a_different_one_of_its_id() -> None:
    one, other = call("x", "f", '{"n": 1}'), call("x", "f", '{"n": 2}')

    reply = parse(assistant(one, other, dict(other), dict(one)))

    assert [asked.arguments for asked in reply.calls] == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("bad", [None, "", "  ", 7, ["x"], "a\nb"])
def test_a_missing_or_impossible_id_is_replaced(bad: Any) -> None:
    reply = parse(assistant(call(bad), call("kept"), call(bad, "other")))

    first, kept, last = [asked.id for asked in reply.calls]
    assert kept == "kept"
    assert len({first, kept, last}) == 3
    for minted in (first, last):
        assert minted.isalnum()
        assert len(minted) == 9, "the one form that Mistral's servers accept"


@pytest.mark.parametrize("bad", [None, "", " "])
def test_equal_calls_without_an_id_are_two_calls(bad: Any) -> None:
    assert len({asked.id for asked in parse(assistant(call(bad), call(bad))).calls}) == 2


def test_an_id_without_its_key_is_replaced() -> None:
    entry = call("x")
    del entry["id"]

    reply = parse(assistant(entry))

    assert reply.message["tool_calls"][0]["id"] == reply.calls[0].id != ""


def test_minted_ids_avoid_ids_that_are_there_and_differ_between_replies() -> None:
    minted = parse(assistant(call(None))).calls[0].id

    reply = parse(assistant(call(None), call(minted, "other")))
    later = parse({**completion(call(None)), "id": "chatcmpl-2"})

    assert reply.calls[1].id == minted
    assert reply.calls[0].id != minted
    assert later.calls[0].id != minted


def test_ids_of_other_servers_are_kept_as_they_are() -> None:
    ids = ["functions.get_weather:0", "chatcmpl-tool-0123456789abcdef0123456789abcdef"]

    assert [asked.id for asked in parse(assistant(*map(call, ids))).calls] == ids


def test_h_args_1_nothing_where_the_arguments_should_be_is_an_empty_object() -> None:
    absent = call("p4")
    del absent["function"]["arguments"]

    reply = parse(
        assistant(
            call("p1", arguments=""),
            call("p2", arguments=" \n"),
            call("p3", arguments=None),
            absent,
            call("p5", arguments="{}"),
            call("g1", "greet", ""),
        )
    )

    assert [asked.arguments for asked in reply.calls] == [{}] * 6
    assert [asked.fault for asked in reply.calls] == [None] * 6
    assert replayed(reply) == ["{}"] * 6


@pytest.mark.parametrize(
    "raw",
    [
        '{"project_id": 3}{"project_id": 9}{"project_id": 11}',
        "{'theme': 'dark', 'size': 14}",
        '{"a": NaN}',
        '{"a": 1, "a": 2}',
        '{"location": "Paris", "unit": celsius}',
        "2",
        "[1]",
        '"text"',
    ],
)
def test_arguments_that_cannot_be_read_are_a_fault_and_never_a_guess(raw: str) -> None:
    reply = parse(assistant(call("a", arguments=raw), call("b")))

    bad, good = reply.calls
    fault = fault_of(bad)
    assert bad.arguments is None
    assert bad.text == raw
    assert fault.code is Code.MALFORMED_ARGUMENTS
    assert not fault.retry
    assert good == Asked(id="b", name="ping", arguments={})
    assert replayed(reply) == ["{}", "{}"]


def test_the_fault_names_its_position_and_quotes_the_text_around_it() -> None:
    reply = parse(assistant(call("a", arguments='{"location": "Paris", "unit": celsius}')))

    message = fault_of(reply.calls[0]).message
    assert "character 30" in message
    assert "celsius" in message


def test_an_object_inside_a_string_is_unwrapped_and_goes_back_as_an_object() -> None:
    reply = parse(assistant(call("a", arguments='"{ \\"n\\": 2 }"')))

    assert reply.calls[0].arguments == {"n": 2}
    assert replayed(reply) == ['{"n":2}']


def test_arguments_given_as_an_object_go_back_as_text() -> None:
    reply = parse(assistant(call("a", arguments={"n": [1, 2]})))

    assert reply.calls[0].arguments == {"n": [1, 2]}
    assert replayed(reply) == ['{"n":[1,2]}']


def test_arguments_given_as_something_else_are_a_fault() -> None:
    reply = parse(assistant(call("a", arguments=[1])))

    assert fault_of(reply.calls[0]).code is Code.MALFORMED_ARGUMENTS
    assert reply.calls[0].text == "[1]"
    assert replayed(reply) == ["{}"]


def test_a_decoded_object_with_a_number_that_json_has_not_is_a_fault() -> None:
    reply = parse(assistant(call("a", arguments={"n": float("nan")})))

    assert fault_of(reply.calls[0]).code is Code.MALFORMED_ARGUMENTS
    assert reply.calls[0].text == '{"n": NaN}'


def test_a_decoded_object_that_contains_itself_is_a_fault() -> None:
    circle: dict[str, Any] = {}
    circle["again"] = circle

    reply = parse(assistant(call("a", arguments=circle)))

    assert fault_of(reply.calls[0]).code is Code.MALFORMED_ARGUMENTS
    assert reply.calls[0].text == "<dict>"


def test_parts_that_are_not_quite_json_are_read_where_their_meaning_is_plain() -> None:
    entry = {**call("a"), "extra": (1, 2)}

    reply = parse({"role": "assistant", "content": ("x",), "tool_calls": (entry, custom("b"))})
    alone = parse({"role": "assistant", "content": ("x",)}, provider="openai-chat")

    assert [asked.id for asked in reply.calls] == ["a", "b"]
    assert reply.message["tool_calls"][0]["extra"] == [1, 2]
    assert alone.message == {"role": "assistant", "content": ["x"]}
    with pytest.raises(PayloadError, match=r"tool_calls\[0\]: expected an object, not 5"):
        parse({"role": "assistant", "content": ("x",), "tool_calls": [5]})


def test_half_characters_never_reach_the_message_or_the_arguments() -> None:
    escaped = '{"note": "\\ud83d"}'
    payload = assistant(call("a", arguments=escaped), call("b", arguments='{"x": "\\u00e9"}'))
    payload["content"] = "half: \ud83d"

    reply = parse(payload)

    assert reply.calls[0].arguments == {"note": "�"}
    assert replayed(reply) == ['{"note":"�"}', '{"x": "\\u00e9"}']
    assert reply.message["content"] == "half: �"
    json.dumps(reply.message, ensure_ascii=False).encode()


@pytest.mark.parametrize("reason", ["length", "max_tokens", "model_length"])
@pytest.mark.parametrize("raw", ['{"path": "b.txt", "text": "lor', "", None, " "])
def test_h_args_3_a_last_call_that_the_output_limit_cut_is_told_so(reason: str, raw: Any) -> None:
    payload = completion(
        call("one", "write_text", '{"path": "a.txt", "text": "ok"}'),
        call("two", "write_text", raw),
        finish_reason=reason,
    )

    reply = parse(payload)
    messages = render(reply, failed(reply))

    one, two = reply.calls
    assert one == Asked(
        id="one", name="write_text", arguments={"path": "a.txt", "text": "ok"}, fault=None
    )
    assert fault_of(two).code is Code.TRUNCATED_CALL
    assert two.arguments is None
    assert "output limit cut" in messages[2]["content"]
    assert "missing" not in messages[2]["content"]
    assert [message.get("tool_call_id") for message in messages[1:]] == ["one", "two"]
    assert replayed(reply)[1] == "{}"


def test_the_text_of_a_cut_call_shows_where_it_ended() -> None:
    reply = parse(completion(call("a", arguments='{"text": "lor'), finish_reason="length"))

    assert '{"text": "lor' in fault_of(reply.calls[0]).message
    assert reply.calls[0].text == '{"text": "lor'


def test_a_complete_last_call_before_the_limit_runs_but_remembers_the_cut() -> None:
    reply = parse(
        completion(call("a"), call("b", arguments='{"file_path": "x"}'), finish_reason="length")
    )

    first, last = reply.calls
    assert first.cut is None
    assert last.fault is None
    assert last.arguments == {"file_path": "x"}
    assert last.cut is not None
    assert last.cut.code is Code.TRUNCATED_CALL


def test_an_unreadable_call_before_the_cut_one_is_malformed() -> None:
    reply = parse(
        completion(call("a", arguments="{"), call("b", arguments="{"), finish_reason="length")
    )

    codes = [fault_of(asked).code for asked in reply.calls]
    assert codes == [Code.MALFORMED_ARGUMENTS, Code.TRUNCATED_CALL]


def test_an_incomplete_object_without_a_cut_is_malformed() -> None:
    reply = parse(completion(call("a", arguments='{"a": ')))

    assert fault_of(reply.calls[0]).code is Code.MALFORMED_ARGUMENTS


def custom(given: Any, name: Any = "sql", text: Any = "SELECT 1") -> dict[str, Any]:
    return {"id": given, "type": "custom", "custom": {"name": name, "input": text}}


def test_a_custom_call_brings_its_free_text_as_input() -> None:
    reply = parse(completion(custom("a"), call("b")))

    assert reply.calls[0] == Asked(id="a", name="sql", arguments={"input": "SELECT 1"})
    assert reply.message["tool_calls"][0] == custom("a")


def test_a_custom_call_at_the_cut_is_never_taken_for_whole() -> None:
    reply = parse(completion(custom("a"), custom("b", text="SELECT"), finish_reason="length"))

    assert reply.calls[0].fault is None
    assert fault_of(reply.calls[1]).code is Code.TRUNCATED_CALL
    assert reply.calls[1].text == "SELECT"


def test_a_custom_call_whose_input_is_no_text_is_malformed() -> None:
    reply = parse(completion(custom("a", text={"q": 1}), custom("b", name=None, text=None)))

    assert fault_of(reply.calls[0]).code is Code.MALFORMED_ARGUMENTS
    assert reply.calls[0].text == '{"q":1}'
    assert fault_of(reply.calls[1]).code is Code.UNKNOWN_TOOL
    assert [entry["custom"]["input"] for entry in reply.message["tool_calls"]] == ["", ""]


def test_an_empty_custom_part_beside_a_function_does_not_count() -> None:
    entry = {**call("a", "weather", '{"city": "X"}'), "custom": {"name": "", "input": ""}}

    assert parse(assistant(entry)).calls == (
        Asked(id="a", name="weather", arguments={"city": "X"}),
    )


def test_an_entry_without_a_type_is_a_function() -> None:
    entry = call("a")
    del entry["type"]

    reply = parse(assistant(entry))

    assert len(reply.calls) == 1
    assert reply.message["tool_calls"][0]["type"] == "function"


def test_an_entry_of_an_unknown_kind_is_answered_not_run() -> None:
    reply = parse(assistant({"id": "a", "type": "teleport", "teleport": {}}))
    messages = render(reply, failed(reply))

    assert fault_of(reply.calls[0]).code is Code.UNKNOWN_TOOL
    assert "teleport" in messages[1]["content"]


@pytest.mark.parametrize("name", [None, "", "  ", 5, {"a": 1}])
def test_a_call_without_a_name_is_a_fault_and_can_be_sent_again(name: Any) -> None:
    reply = parse(assistant(call("a", name=name, arguments='{"n": 1}')))

    assert reply.calls[0].name == ""
    assert reply.calls[0].arguments == {"n": 1}
    assert fault_of(reply.calls[0]).code is Code.UNKNOWN_TOOL
    assert reply.message["tool_calls"][0]["function"]["name"] == "unnamed_tool"


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("query_risk_register<|channel|>commentary", "query_risk_register__channel__commentary"),
        ("multi_tool_use.parallel", "multi_tool_use_parallel"),
        ("search_circular" * 6, ("search_circular" * 6)[:64]),
    ],
)
def test_the_name_of_an_unknown_tool_is_made_legal_where_it_is_sent_again(
    name: str, sent: str
) -> None:
    reply = parse(assistant(call("a", name=name), call("b")))
    unknown = Failure(code=Code.UNKNOWN_TOOL, message="No such tool.")
    messages = render(
        reply,
        [
            Answer(id="a", name=name, outcome=unknown),
            Answer(id="b", name="ping", outcome=Success(value="pong")),
        ],
    )

    assert reply.calls[0].name == name
    names = [entry["function"]["name"] for entry in messages[0]["tool_calls"]]
    assert names == [sent, "ping"]
    assert reply.message["tool_calls"][0]["function"]["name"] == name


def test_the_name_of_a_call_that_could_not_be_read_is_made_legal_too() -> None:
    reply = parse(assistant(call("a", "Dentist.Find", "{"), call("b", "x<|y|>", "{")))

    messages = render(reply, failed(reply))

    names = [entry["function"]["name"] for entry in messages[0]["tool_calls"]]
    assert names == ["Dentist_Find", "x__y__"]


def test_the_name_of_a_tool_that_exists_is_left_alone() -> None:
    reply = parse(assistant(call("a", name="Dentist.Find")))

    messages = render(reply, succeeded(reply, "found"))

    assert messages[0]["tool_calls"][0]["function"]["name"] == "Dentist.Find"


def test_an_unknown_custom_tool_and_an_unknown_kind_are_renamed_where_they_have_a_name() -> None:
    reply = parse(
        assistant(custom("a", name="x.y"), {"id": "b", "type": "odd.kind", "odd.kind": {}})
    )
    unknown = Failure(code=Code.UNKNOWN_TOOL, message="No such tool.")

    messages = render(
        reply, [Answer(id=asked.id, name=asked.name, outcome=unknown) for asked in reply.calls]
    )

    assert messages[0]["tool_calls"][0]["custom"]["name"] == "x_y"
    assert messages[0]["tool_calls"][1] == {"id": "b", "type": "odd.kind", "odd.kind": {}}


def test_the_older_function_call_is_read_and_answered_in_its_own_way() -> None:
    message = {
        "role": "assistant",
        "content": None,
        "function_call": {"name": "add.up", "arguments": ""},
    }

    reply = parse({"id": "c", "choices": [{"message": message, "finish_reason": "function_call"}]})
    messages = render(reply, succeeded(reply, 3))

    assert [(asked.name, asked.arguments) for asked in reply.calls] == [("add.up", {})]
    assert messages == [
        {**message, "function_call": {"name": "add.up", "arguments": "{}"}},
        {"role": "function", "name": "add.up", "content": "3"},
    ]


def test_the_older_function_call_of_an_unknown_tool_gets_a_legal_name() -> None:
    reply = parse({"role": "assistant", "function_call": {"name": "add.up", "arguments": "{}"}})
    unknown = Failure(code=Code.UNKNOWN_TOOL, message="No such tool.")

    messages = render(reply, [Answer(id=reply.calls[0].id, name="add.up", outcome=unknown)])

    assert messages[0]["function_call"]["name"] == messages[1]["name"] == "add_up"


def test_an_empty_function_call_is_no_call_and_does_not_go_back() -> None:
    empty = {"name": "", "arguments": ""}

    alone = parse({"role": "assistant", "content": "4", "function_call": empty, "tool_calls": None})
    beside = parse({**assistant(call("a")), "function_call": empty})

    assert alone.calls == ()
    assert alone.message == {"role": "assistant", "content": "4"}
    assert len(beside.calls) == 1
    assert "function_call" not in beside.message


def test_results_come_in_the_order_of_the_calls_whatever_order_they_are_given_in() -> None:
    reply = parse(assistant(call("a"), call("b"), call("c")))
    answers = succeeded(reply, "1", "2", "3")

    messages = render(reply, [answers[2], answers[0], answers[1]])

    assert [(m["tool_call_id"], m["content"]) for m in messages[1:]] == [
        ("a", "1"),
        ("b", "2"),
        ("c", "3"),
    ]


@pytest.mark.parametrize("ids", [["a"], ["a", "a"], ["a", "b", "x"], []])
def test_calls_and_answers_that_do_not_pair_up_are_refused(ids: list[str]) -> None:
    reply = parse(assistant(call("a"), call("b")))
    answers = [Answer(id=given, name="ping", outcome=Success(value="x")) for given in ids]

    with pytest.raises(UsageError, match=r"exactly one answer: the calls are a, b, the answers"):
        render(reply, answers)


def test_an_empty_result_is_never_sent_empty() -> None:
    reply = parse(assistant(call("a")))

    assert render(reply, succeeded(reply, ""))[1]["content"] == "(no output)"


def test_rendering_leaves_the_message_as_it_was() -> None:
    reply = parse(assistant(call("a", name="x y")))
    before = json.dumps(reply.message)

    render(reply, failed(reply))
    render(
        reply,
        [Answer(id="a", name="x y", outcome=Failure(code=Code.UNKNOWN_TOOL, message="m"))],
    )

    assert json.dumps(reply.message) == before


def test_the_sdk_s_own_objects_read_like_their_json() -> None:
    payload = completion(call("a", "read", '{"path": "x"}'))
    payload |= {"created": 1, "model": "m"}
    payload["choices"][0]["logprobs"] = None
    whole = ChatCompletion.model_validate(payload)
    message = whole.choices[0].message

    assert parse(whole) == parse(payload)
    assert parse(message).calls == parse(payload).calls
    assert parse({"role": "assistant", "tool_calls": message.tool_calls}).calls == (
        parse(payload).calls
    )
    assert parse({"choices": [{"message": message}]}).calls == parse(payload).calls


def test_what_the_sdk_has_parsed_for_its_user_does_not_go_back() -> None:
    entry = call("a", arguments='{"n": 1}')
    entry["function"]["parsed_arguments"] = {"n": 1}

    reply = parse({**assistant(entry), "parsed": {"x": 1}})

    assert reply.message == assistant(call("a", arguments='{"n": 1}'))


def test_an_sdk_object_built_without_checks_is_read_without_a_warning() -> None:
    entries: Any = [call("a", arguments=None)]
    message = ChatCompletionMessage.model_construct(role="assistant", tool_calls=entries)

    assert parse(message).calls == (Asked(id="a", name="ping", arguments={}),)


def test_the_choice_that_carries_calls_is_taken() -> None:
    text = {"index": 0, "message": {"role": "assistant", "content": "I look."}}
    calling = {"index": 1, "message": assistant(call("a"))}

    assert parse({"choices": [text, calling]}).calls[0].id == "a"
    assert parse({"choices": [text, text]}).message == text["message"]


@pytest.mark.parametrize("missing", [None, ""])
def test_a_message_without_a_role_is_the_assistant_s(missing: Any) -> None:
    reply = parse({"choices": [{"message": {"role": missing, "content": "x"}}]})

    assert reply.message == {"role": "assistant", "content": "x"}


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ({"choices": []}, "choices: expected a list with one choice, not an empty list"),
        ({"choices": None}, "choices: expected a list with one choice, not null"),
        ({"choices": [5]}, "choices[0]: expected an object, not 5"),
        ({"choices": [{"message": "x"}]}, "choices[0].message: expected an object, not the text"),
        (
            {"object": "chat.completion.chunk", "choices": [{"delta": {"content": "x"}}]},
            (
                "choices[0].delta: this is a chunk of a stream, and streams are not read here. "
                "Submit the finished completion"
            ),
        ),
        (
            {"choices": [{"message": assistant(call("a"))}, {"message": assistant(call("b"))}]},
            "choices[1]: it carries calls, and so does an earlier choice: they are alternatives",
        ),
        (
            completion(call("a"), call("b"), {"id": "c", "type": "function"}),
            (
                "choices[0].message.tool_calls[2].function: expected an object with name and "
                "arguments, not null"
            ),
        ),
        (
            completion({"id": "c", "type": "custom", "custom": 1}),
            "choices[0].message.tool_calls[0].custom: expected an object with name",
        ),
        (
            completion({"id": "c", "function": "f"}),
            "choices[0].message.tool_calls[0].function: expected an object",
        ),
        (completion("x"), "choices[0].message.tool_calls[0]: expected an object, not the text"),
        (
            {"role": "assistant", "tool_calls": "x"},
            "message.tool_calls: expected a list, not the text",
        ),
        (
            {"role": "user", "content": "x", "tool_calls": []},
            'message.role: it is the text "user". Submit the model\'s own message',
        ),
        (
            {"role": "assistant", "content": {"x": object()}},
            "message.content.x: is of type object. Submit the SDK's object or its JSON",
        ),
    ],
)
def test_nonsense_is_refused_with_its_place(payload: Any, text: str) -> None:
    with pytest.raises(PayloadError) as caught:
        parse(payload)

    assert str(caught.value).startswith(text)


def test_a_payload_that_does_not_fit_the_named_format_says_what_is_not_there() -> None:
    with pytest.raises(PayloadError, match=r"^choices: there are none in an object with a, b\."):
        parse({"a": 1, "b": 2}, provider="openai-chat")


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (
            {"error": {"message": "No such model.", "type": "invalid_request_error", "code": "x"}},
            (
                "openai-chat: the provider answered with an error (invalid_request_error): "
                "No such model. There is no turn in it"
            ),
        ),
        ({"error": {"code": 429, "message": "slow down"}}, "(429): slow down. There"),
        ({"error": "model not found"}, "(error): model not found. There"),
        ({"error": {"odd": 1}}, "(error): an object with odd. There"),
        ({"object": "error", "message": "bad", "type": "BadRequest"}, "(BadRequest): bad. There"),
        ({"choices": [], "error": {"code": 502, "message": "gone"}}, "(502): gone. There"),
        (
            {"choices": [{"error": {"code": 500, "message": "broke"}, "message": {}}]},
            "(500): broke. There",
        ),
        (
            {"choices": [{"finish_reason": "error", "message": {"content": "half"}}]},
            "(error): the answer broke off. There",
        ),
    ],
)
def test_an_error_of_the_provider_is_one_clear_error(payload: Any, text: str) -> None:
    with pytest.raises(ProviderRefusedError) as caught:
        parse(payload)

    assert text in str(caught.value)


def test_the_host_s_own_messages_stand_in_a_row() -> None:
    form = format_named("openai-chat")
    said = form.say("go on")

    assert said == {"role": "user", "content": "go on"}
    assert form.join([said, said]) == [said, said]
