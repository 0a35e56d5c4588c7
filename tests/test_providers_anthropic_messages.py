"""Anthropic messages: what is read, what is mended, and what goes back."""

import json
import re
from typing import Any

import pytest
from anthropic.types import Message as AnthropicMessage

from laneway.engine.providers import Answer, Asked, Message, Reply, format_named, parse
from laneway.errors import PayloadError, ProviderRefusedError, UsageError
from laneway.outcomes import Code, Failure, Success


def use(given: Any, name: Any = "lookup", arguments: Any = None) -> dict[str, Any]:
    return {"type": "tool_use", "id": given, "name": name, "input": arguments}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def message(*blocks: Any, stop_reason: str = "tool_use") -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": list(blocks),
        "stop_reason": stop_reason,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def render(reply: Reply, *outcomes: Success | Failure) -> list[Message]:
    return format_named(reply.provider).render(
        reply.message,
        [
            Answer(id=asked.id, name=asked.name, outcome=outcome)
            for asked, outcome in zip(reply.calls, outcomes, strict=True)
        ],
    )


def fault_of(asked: Asked) -> Failure:
    assert asked.fault is not None
    return asked.fault


def test_a_message_gives_its_calls_and_only_what_a_request_may_hold() -> None:
    payload = message(text("I look."), use("t1", arguments={"key": "a"}), use("t2", arguments={}))
    before = json.dumps(payload)

    reply = parse(payload)

    assert reply.provider == "anthropic-messages"
    assert reply.key == "msg_1"
    assert reply.calls == (
        Asked(id="t1", name="lookup", arguments={"key": "a"}),
        Asked(id="t2", name="lookup", arguments={}),
    )
    assert reply.message == {"role": "assistant", "content": payload["content"]}
    assert json.dumps(payload) == before


def test_a_bare_message_and_one_with_only_a_stop_reason_are_read_too() -> None:
    block = use("t1", arguments={"key": "a"})

    bare = parse({"role": "assistant", "content": [block]})
    short = parse({"stop_reason": "tool_use", "content": [block]})

    assert bare.calls == short.calls == (Asked(id="t1", name="lookup", arguments={"key": "a"}),)
    assert bare.message == short.message == {"role": "assistant", "content": [block]}


def test_an_answer_without_calls_is_a_message_alone() -> None:
    reply = parse(message(text("Done."), stop_reason="end_turn"))

    assert render(reply) == [{"role": "assistant", "content": [text("Done.")]}]


def test_content_that_is_a_text_stays_one() -> None:
    reply = parse({"role": "assistant", "content": "Done \ud83d"}, provider="anthropic-messages")

    assert reply.message == {"role": "assistant", "content": "Done �"}
    assert render(reply) == [reply.message]


@pytest.mark.parametrize("blocks", [[], [text("")], [text(" \n")]])
def test_an_answer_that_says_nothing_goes_back_as_something(blocks: list[Any]) -> None:
    reply = parse(message(*blocks, stop_reason="end_turn"))

    assert render(reply) == [{"role": "assistant", "content": [text("(no answer)")]}]


def test_blank_texts_are_left_out_since_no_request_may_hold_them() -> None:
    reply = parse(message(text(""), use("t1", arguments={}), text("\n\n"), text("x")))

    assert reply.message["content"] == [use("t1", arguments={}), text("x")]


def test_what_the_provider_ran_itself_passes_through_and_is_no_call() -> None:
    blocks: list[Any] = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"q": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "f", "input": {}, "server_name": "s"},
        {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "is_error": False, "content": []},
        {"type": "something_new", "x": [1]},
    ]

    reply = parse(message(*blocks, use("t1", arguments={}), stop_reason="tool_use"))

    assert [asked.id for asked in reply.calls] == ["t1"]
    assert reply.message["content"][:-1] == blocks


def test_an_id_of_a_provider_s_own_call_is_not_given_out_again() -> None:
    server: dict[str, Any] = {
        "type": "server_tool_use",
        "id": "same",
        "name": "web_search",
        "input": {},
    }

    reply = parse(message(server, use("same", arguments={})))

    assert reply.calls[0].id != "same"
    assert reply.message["content"][0]["id"] == "same"


@pytest.mark.parametrize("bad", [None, "", 3, "call.1", "a b", "é"])
def test_a_missing_or_illegal_id_is_replaced_by_a_legal_one(bad: Any) -> None:
    payload = message(use(bad, arguments={"n": 1}), use(bad, arguments={"n": 2}))

    reply = parse(payload)

    ids = [asked.id for asked in reply.calls]
    assert len(set(ids)) == 2
    assert all(re.fullmatch(r"toolu_[a-f0-9]{24}", minted) for minted in ids)
    assert [block["id"] for block in reply.message["content"]] == ids
    assert parse(payload) == reply


def test_snapshots_taken_for_deltas_give_each_call_once() -> None:
    ids = ["toolu_1", "toolu_1", "toolu_2", "toolu_1", "toolu_2", "toolu_3"]

    reply = parse(message(*(use(given, arguments={"of": given}) for given in ids)))

    assert [asked.id for asked in reply.calls] == ["toolu_1", "toolu_2", "toolu_3"]
    assert [block["id"] for block in reply.message["content"]] == ["toolu_1", "toolu_2", "toolu_3"]


def test_calls_that_are_equal_but_not_byte_for_byte_are_two() -> None:
    reply = parse(message(use("t", arguments={"n": 1}), use("t", arguments={"n": True})))

    assert [asked.arguments for asked in reply.calls] == [{"n": 1}, {"n": True}]
    assert len({asked.id for asked in reply.calls}) == 2


def test_nothing_where_the_input_should_be_is_an_empty_object() -> None:
    absent = use("t3")
    del absent["input"]

    reply = parse(message(use("t1"), use("t2", arguments=""), absent))

    assert [asked.arguments for asked in reply.calls] == [{}] * 3
    assert [block["input"] for block in reply.message["content"]] == [{}] * 3


def test_an_input_written_as_text_is_read_and_goes_back_as_an_object() -> None:
    reply = parse(message(use("t1", arguments='{"n": 1}')))

    assert reply.calls[0].arguments == {"n": 1}
    assert reply.message["content"][0]["input"] == {"n": 1}


@pytest.mark.parametrize(
    ("bad", "kept"),
    [
        ('{"n": ', '{"n": '),
        ([1], "[1]"),
        (5, "5"),
        ({"n": float("inf")}, '{"n": Infinity}'),
        ({"n": object()}, '{"n": "<object>"}'),
    ],
)
def test_an_input_that_cannot_be_read_is_a_fault_and_never_a_guess(bad: Any, kept: str) -> None:
    reply = parse(message(use("t1", arguments=bad), use("t2", arguments={})))

    broken = reply.calls[0]
    if not isinstance(bad, dict) or "Infinity" in kept:
        assert broken.arguments is None
        assert broken.text == kept
        assert fault_of(broken).code is Code.MALFORMED_ARGUMENTS
        assert reply.message["content"][0]["input"] == {}
    assert reply.calls[1].fault is None


def test_an_input_nested_too_deeply_is_a_fault() -> None:
    deep: Any = 1
    for _ in range(200):
        deep = [deep]

    reply = parse(message(use("t1", arguments={"n": deep}), use("t2", arguments={"n": [[1]]})))

    assert fault_of(reply.calls[0]).code is Code.MALFORMED_ARGUMENTS
    assert reply.calls[1].arguments == {"n": [[1]]}


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded"])
@pytest.mark.parametrize("given", [{}, {"path": "b.txt", "text": "lor"}, '{"path": "b'])
def test_a_call_at_the_cut_end_of_a_message_is_told_so(reason: str, given: Any) -> None:
    reply = parse(
        message(
            use("one", arguments={"path": "a"}), use("two", arguments=given), stop_reason=reason
        )
    )
    messages = render(reply, Success(value="ok"), fault_of(reply.calls[1]))

    assert reply.calls[0].fault is None
    assert reply.calls[1].arguments is None
    assert fault_of(reply.calls[1]).code is Code.TRUNCATED_CALL
    told = messages[1]["content"][1]
    assert told["is_error"] is True
    assert "output limit cut" in told["content"]
    assert "missing" not in told["content"]
    assert isinstance(reply.message["content"][1]["input"], dict)


def test_a_call_with_text_behind_it_was_not_cut() -> None:
    reply = parse(message(use("t1", arguments={}), text("and th"), stop_reason="max_tokens"))

    assert reply.calls[0].fault is None


@pytest.mark.parametrize("name", [None, "", 5])
def test_a_call_without_a_name_is_a_fault_and_can_be_sent_again(name: Any) -> None:
    reply = parse(message(use("t1", name=name, arguments={"n": 1})))

    assert fault_of(reply.calls[0]).code is Code.UNKNOWN_TOOL
    assert reply.message["content"][0]["name"] == "unnamed_tool"


def test_the_name_of_an_unknown_tool_is_made_legal_where_it_is_sent_again() -> None:
    reply = parse(message(text("x"), use("t1", "fetch.magic", {}), use("t2", "a.b", {})))
    unknown = Failure(code=Code.UNKNOWN_TOOL, message="No such tool.")

    messages = render(reply, unknown, Success(value="ok"))

    assert [block.get("name") for block in messages[0]["content"]] == [None, "fetch_magic", "a.b"]


def test_h_name_1_results_stand_in_one_message_in_call_order_with_failures_marked() -> None:
    reply = parse(
        {
            "stop_reason": "tool_use",
            "content": [
                use("t1", "lookup", {"key": "a"}),
                use("t2", "fetch_magic", {"key": "b"}),
                use("t3", "lookup", {"key": "c"}),
            ],
        }
    )

    messages = render(
        reply,
        Success(value="v:a"),
        Failure(code=Code.UNKNOWN_TOOL, message="There is no fetch_magic; there is lookup."),
        Success(value={"v": "c"}),
    )

    assert len(messages) == 2
    first, second, third = messages[1]["content"]
    assert messages[1]["role"] == "user"
    assert first == {"type": "tool_result", "tool_use_id": "t1", "content": "v:a"}
    assert second["is_error"] is True
    assert second["content"].startswith("Error UNKNOWN_TOOL: There is no fetch_magic")
    assert third == {"type": "tool_result", "tool_use_id": "t3", "content": '{"v":"c"}'}


def test_h_pair_2_what_the_user_says_next_stands_behind_the_results_in_their_message() -> None:
    reply = parse(message(use("a", arguments={}), use("b", arguments={}), use("c", arguments={})))
    cancelled = Failure(code=Code.CANCELLED, message="The turn was cancelled.")
    form = format_named(reply.provider)

    question = form.say("start")
    history = form.join(
        [question, *render(reply, Success(value="done"), cancelled, cancelled), form.say("go on")]
    )

    assert [entry["role"] for entry in history] == ["user", "assistant", "user"]
    *results, last = history[2]["content"]
    assert [block["tool_use_id"] for block in results] == ["a", "b", "c"]
    assert [block.get("is_error", False) for block in results] == [False, True, True]
    assert "cancelled" in results[1]["content"]
    assert last == text("go on")


def test_joining_puts_results_first_and_changes_no_message_it_was_given() -> None:
    form = format_named("anthropic-messages")
    result = {"type": "tool_result", "tool_use_id": "a", "content": "x"}
    first = {"role": "user", "content": [result]}
    second = {"role": "user", "content": [text("look"), {**result, "tool_use_id": "b"}]}

    joined = form.join([first, second, form.say("and")])

    assert [block["type"] for block in joined[0]["content"]] == [
        "tool_result",
        "tool_result",
        "text",
        "text",
    ]
    assert first["content"] == [result]


def test_user_messages_without_results_are_left_apart() -> None:
    form = format_named("anthropic-messages")
    said = [form.say("one"), form.say("two")]

    assert form.join(said) == said


def test_calls_and_answers_that_do_not_pair_up_are_refused() -> None:
    reply = parse(message(use("a", arguments={})))

    with pytest.raises(UsageError, match=r"the calls are a, the answers are for none"):
        format_named(reply.provider).render(reply.message, [])


def test_the_sdk_s_own_objects_read_like_their_json() -> None:
    payload = message(text("x"), use("t1", arguments={"n": 1}))
    payload |= {"stop_sequence": None}
    whole = AnthropicMessage.model_validate(payload)

    reply = parse(whole)

    assert reply == parse(payload)
    assert parse({"role": "assistant", "content": whole.content}).message == reply.message
    assert parse({"role": "assistant", "content": tuple(whole.content)}).calls == reply.calls


def test_what_the_sdk_has_parsed_for_its_user_does_not_go_back() -> None:
    reply = parse(message({**text("x"), "parsed_output": {"a": 1}}))

    assert reply.message["content"] == [text("x")]


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ({"type": "message", "role": "assistant"}, "content: there is none in an object with type"),
        ({"type": "message", "content": None}, "content: expected a list of blocks, not null"),
        ({"type": "message", "content": {"a": 1}}, "content: expected a list of blocks, not an"),
        ({"type": "message", "content": ["x"]}, 'content[0]: expected an object, not the text "x"'),
        ({"type": "message", "content": [{"id": 1}]}, "content[0].type: expected a text, not null"),
        (
            {"type": "message", "role": "user", "content": []},
            'message.role: it is the text "user"',
        ),
        (
            {"type": "content_block_start", "index": 0},
            "type: 'content_block_start' is an event of a stream, and streams are not read here",
        ),
        (
            {"type": "message", "content": [{"type": "text", "text": {1, 2}, "x": object()}]},
            "content[0].x: is of type object. Submit the SDK's object or its JSON",
        ),
    ],
)
def test_nonsense_is_refused_with_its_place(payload: Any, said: str) -> None:
    with pytest.raises(PayloadError) as caught:
        parse(payload)

    assert str(caught.value).startswith(said)


def test_an_error_of_the_provider_is_one_clear_error() -> None:
    payload = {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "Overloaded"},
        "request_id": "r",
    }

    with pytest.raises(ProviderRefusedError, match=r"^anthropic-messages: .*\(overloaded_error\)"):
        parse(payload)
