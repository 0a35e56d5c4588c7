"""Readers of streams, format by format: what servers get wrong, and that nothing is made up."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from laneway.engine.providers import parse
from laneway.engine.providers.streams import READERS, StreamReader, reader_for, reader_named
from laneway.engine.providers.streams.google_generate import put
from laneway.engine.providers.streams.sse import ByteReader
from laneway.errors import PayloadError, ProviderRefusedError

Event = Mapping[str, Any]


def fed(name: str, events: Iterable[Event]) -> StreamReader:
    reader = reader_named(name)
    for event in events:
        reader.feed(event)
    return reader


def chunks(*deltas: Mapping[str, Any], finish: str | None = "tool_calls") -> list[Event]:
    """Chunks of OpenAI's form, one for each fragment of a call."""
    events: list[Event] = [
        {"id": "x", "choices": [{"index": 0, "delta": {"tool_calls": [one]}}]} for one in deltas
    ]
    if finish:
        events.append({"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    return events


def fragment(text: str = "", **given: Any) -> dict[str, Any]:
    name = given.pop("name", None)
    return {**given, "function": {**({"name": name} if name else {}), "arguments": text}}


def openai_calls(*deltas: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    reader = fed("openai-chat", chunks(*deltas))
    assert reader.ended
    reply = parse(reader.whole(), provider="openai-chat")
    return [(one.name, one.arguments) for one in reply.calls]


# OpenAI chat


def test_h_ident_2_interleaved_fragments_belong_to_the_call_of_their_index() -> None:
    deltas = [
        fragment(index=0, id="c_a", name="add"),
        fragment(index=1, id="c_b", name="mul"),
        fragment('{"x": 1,', index=0),
        fragment('{"x": 3,', index=1),
        fragment(' "y": 4}', index=1),
        fragment(' "y": 2}', index=0),
    ]

    assert openai_calls(*deltas) == [("add", {"x": 1, "y": 2}), ("mul", {"x": 3, "y": 4})]


def test_h_ident_2_lost_a_stream_without_a_finish_has_not_ended() -> None:
    deltas = [
        fragment(index=0, id="c_a", name="add"),
        fragment(index=1, id="c_b", name="mul"),
        fragment('{"x": 3, "y": 4}', index=1),
    ]

    reader = fed("openai-chat", chunks(*deltas, finish=None))

    assert not reader.ended
    assert reader.complete == 0, "the first is not complete, so the second is not at the front"


def test_a_call_is_complete_when_it_is_whole_and_another_has_begun() -> None:
    reader = reader_named("openai-chat")
    seen: list[int] = []
    for event in chunks(
        fragment('{"a":', index=0, id="1", name="f"),
        fragment("1}", index=0),
        fragment("", index=1, id="2", name="g"),
        fragment("{}", index=1),
    ):
        reader.feed(event)
        seen.append(reader.complete)

    assert seen == [0, 0, 1, 1, 2]
    assert len(reader.front()["choices"][0]["message"]["tool_calls"]) == 2


@pytest.mark.parametrize("ids", [("k1", "k2", "k3"), (None, None, None)])
def test_one_index_for_several_calls_gives_several_calls(ids: tuple[str | None, ...]) -> None:
    deltas = [
        fragment(f'{{"city":"{at}"}}', index=0, name="w", **({"id": name} if name else {}))
        for at, name in enumerate(ids)
    ]

    assert openai_calls(*deltas) == [("w", {"city": str(at)}) for at in range(3)]


def test_fragments_without_index_go_by_id_and_else_to_the_last_call() -> None:
    deltas = [
        fragment('{"a"', id="1", name="f"),
        fragment(": 1}"),
        fragment('{"b"', id="2", name="g"),
        fragment(": 2}", id="2"),
    ]

    assert openai_calls(*deltas) == [("f", {"a": 1}), ("g", {"b": 2})]


def test_an_empty_object_ahead_of_the_real_one_is_no_argument() -> None:
    deltas = [fragment("{}", index=0, name="lookup"), fragment('{"stock": "MSFT"}', index=0)]

    assert openai_calls(*deltas) == [("lookup", {"stock": "MSFT"})]


def test_objects_in_a_row_are_an_error_for_the_model() -> None:
    reader = fed("openai-chat", chunks(fragment('{"p": 3}{"p": 9}', index=0, id="1", name="f")))
    (asked,) = parse(reader.whole()).calls

    assert asked.arguments is None
    assert asked.fault is not None


def test_names_and_ids_that_come_with_each_fragment_are_not_put_in_a_row() -> None:
    deltas = [
        fragment('{"a"', index=0, id="1", name="f"),
        fragment(": 1}", index=0, id="1", name="f"),
    ]

    assert openai_calls(*deltas) == [("f", {"a": 1})]


def test_custom_tools_and_the_older_form_of_functions_are_read() -> None:
    custom = {"index": 0, "id": "1", "type": "custom", "custom": {"name": "sql", "input": "SEL"}}
    more = {"index": 0, "custom": {"input": "ECT 1"}}
    older = {"function_call": {"name": "f", "arguments": '{"a":'}}

    assert openai_calls(custom, more) == [("sql", {"input": "SELECT 1"})]
    reader = fed(
        "openai-chat",
        [
            {"choices": [{"delta": older}]},
            {"choices": [{"delta": {"function_call": {"arguments": "1}"}}}]},
            {"choices": [{"delta": {}, "finish_reason": "function_call"}]},
        ],
    )
    assert "function_call" in reader.front()["choices"][0]["message"]
    assert [one.arguments for one in parse(reader.whole()).calls] == [{"a": 1}]


def test_texts_thoughts_and_unknown_fields_are_gathered() -> None:
    deltas: list[Event] = [
        {"role": "assistant", "content": "he", "reasoning_content": "hm"},
        {"content": "llo", "reasoning_content": "m", "odd": [1]},
        {"content": [{"type": "thinking"}], "odd": [2]},
    ]
    events = [{"id": "x", "usage": None, "choices": [{"delta": one}]} for one in deltas]

    whole = fed("openai-chat", [*events, {"id": "", "choices": [], "usage": {"n": 1}}]).whole()

    assert whole["id"] == "x"
    assert whole["usage"] == {"n": 1}
    message = whole["choices"][0]["message"]
    assert message["content"] == [{"type": "thinking"}, {"type": "text", "text": "hello"}]
    assert (message["reasoning_content"], message["odd"]) == ("hmm", [1, 2])


def test_alternatives_are_never_begun() -> None:
    events: list[Event] = [
        {"choices": [{"index": at, "delta": {"tool_calls": [fragment("{}", index=0, name="f")]}}]}
        for at in (0, 1)
    ]

    assert fed("openai-chat", events).complete == 0


# Anthropic


def test_deltas_without_index_belong_to_the_last_block() -> None:
    reader = fed(
        "anthropic-messages",
        [
            {"type": "content_block_start", "content_block": {"type": "tool_use", "id": "a"}},
            {"type": "content_block_delta", "delta": {"type": "input_json_delta"}},
            {
                "type": "content_block_delta",
                "delta": {"type": "input_json_delta", "partial_json": '{"a": 1}'},
            },
            {"type": "content_block_stop"},
        ],
    )

    assert reader.complete == 1
    assert reader.front()["content"] == [{"type": "tool_use", "id": "a", "input": {"a": 1}}]
    assert not reader.ended


def test_a_cut_object_stays_text_and_is_never_closed() -> None:
    reader = fed(
        "anthropic-messages",
        [
            {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 3}}},
            {
                "type": "content_block_start",
                "index": 0,
                "content_block": {"type": "tool_use", "id": "a", "name": "f", "input": {}},
            },
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "input_json_delta", "partial_json": '{"a": 1'},
            },
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"o": 1}},
            {"type": "message_stop"},
        ],
    )

    assert reader.complete == 0
    (asked,) = parse(reader.whole()).calls
    assert asked.arguments is None
    assert reader.whole()["usage"] == {"input_tokens": 3, "o": 1}


def test_citations_signatures_and_unknown_deltas_are_gathered() -> None:
    deltas = [
        {"type": "citations_delta", "citation": {"n": 1}},
        {"type": "citations_delta", "citation": {"n": 2}},
        {"type": "signature_delta", "signature": "sig"},
        {"type": "compaction_delta", "content": "short"},
    ]
    reader = fed(
        "anthropic-messages",
        [
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}},
            *({"type": "content_block_delta", "index": 0, "delta": one} for one in deltas),
        ],
    )

    assert reader.whole()["content"] == [
        {
            "type": "text",
            "citations": [{"n": 1}, {"n": 2}],
            "content": "short",
            "signature": "sig",
        }
    ]


# The others


def test_the_items_of_a_response_stand_in_where_the_last_event_has_no_output() -> None:
    item = {"type": "function_call", "id": "f", "call_id": "c", "name": "f", "arguments": ""}
    reader = reader_named("openai-responses")
    seen: list[int] = []
    events: list[Event] = [
        {"type": "response.created", "response": {"id": "r"}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": '{"a":'},
        {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": "1}"},
        {"type": "response.function_call_arguments.done", "output_index": 0},
        {
            "type": "response.output_item.added",
            "item": {"type": "custom_tool_call", "id": "q", "status": "in_progress"},
        },
        {"type": "response.custom_tool_call_input.delta", "item_id": "q", "delta": "SEL"},
        {"type": "response.custom_tool_call_input.done", "item_id": "q", "input": "SELECT"},
        {"type": "response.completed", "response": {"status": "completed"}},
    ]
    for event in events:
        reader.feed(event)
        seen.append(reader.complete)

    assert seen == [0, 0, 0, 0, 1, 1, 1, 2, 2]
    assert reader.ended
    first, second = reader.whole()["output"]
    assert first["arguments"] == '{"a":1}'
    assert second["input"] == "SELECT"
    assert reader.front()["output"][1]["status"] == "completed"


def test_a_new_response_takes_the_place_of_a_half_sent_one() -> None:
    created = {"type": "response.created", "response": {"id": "r"}}

    assert fed("openai-responses", [created, created]).superseded == 1
    assert fed("google-interactions", [{"event_type": "interaction.created"}] * 2).superseded == 1
    assert fed("bedrock-converse", [{"messageStart": {}}] * 2).superseded == 1
    assert fed("cohere-v2", [{"type": "message-start"}] * 2).superseded == 1


@pytest.mark.parametrize(
    ("name", "events"),
    [
        ("openai-responses", [{"type": "error", "code": "x", "message": "no"}]),
        ("openai-responses", [{"type": "response.failed", "response": {"error": {"code": "x"}}}]),
        ("anthropic-messages", [{"type": "error", "error": {"type": "overloaded_error"}}]),
        ("openai-chat", [{"error": {"message": "no"}}]),
        ("google-generate", [{"error": {"status": "UNAVAILABLE"}}]),
        ("google-interactions", [{"event_type": "interaction.failed"}]),
        ("bedrock-converse", [{"throttlingException": {"message": "slow"}}]),
        ("cohere-v2", [{"type": "message-end", "delta": {"finish_reason": "ERROR"}}]),
        ("ollama-chat", [{"error": "model not found"}]),
    ],
)
def test_an_error_in_the_stream_is_the_providers_refusal(name: str, events: list[Event]) -> None:
    with pytest.raises(ProviderRefusedError, match=name):
        fed(name, events)


ENDED: dict[str, tuple[list[Event], Event]] = {
    "openai-chat": (chunks(), {"id": "y", "choices": []}),
    "openai-responses": (
        [{"type": "response.completed", "response": {}}],
        {"type": "response.created"},
    ),
    "anthropic-messages": ([{"type": "message_stop"}], {"type": "content_block_start"}),
    "google-interactions": (
        [{"event_type": "interaction.completed"}],
        {"event_type": "interaction.completed"},
    ),
    "bedrock-converse": ([{"messageStop": {}}], {"contentBlockDelta": {}}),
    "cohere-v2": ([{"type": "message-end"}], {"type": "message-end"}),
    "ollama-chat": ([{"message": {}, "done": True}], {"message": {}, "done": False}),
}


@pytest.mark.parametrize("name", ENDED)
def test_a_second_message_behind_an_ended_one_is_refused(name: str) -> None:
    events, more = ENDED[name]
    reader = fed(name, events)
    assert reader.ended

    with pytest.raises(PayloadError, match="another message begins behind one that has ended"):
        reader.feed(more)


def test_a_second_start_behind_an_ended_message_is_refused() -> None:
    starts: dict[str, Event] = {
        "openai-responses": {"type": "response.completed"},
        "anthropic-messages": {"type": "message_start"},
        "google-interactions": {"event_type": "interaction.created"},
        "bedrock-converse": {"messageStart": {}},
        "cohere-v2": {"type": "message-start"},
    }
    for name, start in starts.items():
        with pytest.raises(PayloadError, match="another message"):
            fed(name, [*ENDED[name][0], start])


def test_streamed_arguments_of_google_are_put_together_path_by_path() -> None:
    def part(**call: Any) -> Event:
        return {"candidates": [{"content": {"parts": [{"functionCall": call}]}}]}

    pieces = [
        {"jsonPath": "$.a", "stringValue": "x", "willContinue": True},
        {"jsonPath": "$.a", "stringValue": "y"},
        {"jsonPath": "$.b[0].c", "numberValue": 1},
        {"jsonPath": "$['d']", "nullValue": "NULL_VALUE"},
        {"jsonPath": "$.e", "boolValue": False},
    ]
    reader = fed("google-generate", [part(name="f", willContinue=True)])
    assert reader.complete == 0
    for piece in pieces:
        reader.feed(part(partialArgs=[piece], willContinue=True))
    reader.feed(part())

    assert reader.complete == 1
    (only,) = reader.front()["candidates"][0]["content"]["parts"]
    assert only["functionCall"]["args"] == {"a": "xy", "b": [{"c": 1}], "d": None, "e": False}
    assert not reader.ended


def test_paths_that_lead_nowhere_are_refused() -> None:
    for into, path in [({}, "a"), ({}, "$"), ({}, "$.a b"), ({}, "$[0]"), (1, "$.a"), ([], "$[3]")]:
        with pytest.raises(PayloadError, match="jsonPath"):
            put(into, path, 1)


def test_texts_of_google_are_one_part_and_a_blocked_prompt_ends_it() -> None:
    def said(**part: Any) -> Event:
        return {"candidates": [{"content": {"role": "model", "parts": [part]}}]}

    events = [said(text="he"), said(text="llo"), said(text="hm", thought=True), said(odd=1)]
    reader = fed("google-generate", events)

    parts = reader.whole()["candidates"][0]["content"]["parts"]
    assert parts == [{"text": "hello"}, {"text": "hm", "thought": True}, {"odd": 1}]
    blocked = fed("google-generate", [{"promptFeedback": {"blockReason": "SAFETY"}}])
    assert blocked.ended
    assert blocked.whole() == {"promptFeedback": {"blockReason": "SAFETY"}}
    assert blocked.complete == 0
    finished = [{"candidates": [{"finishReason": "STOP", "index": 0}]}]
    assert "finishReason" not in fed("google-generate", finished).front()["candidates"][0]


def test_a_function_call_of_an_interaction_is_complete_when_its_step_has_stopped() -> None:
    step = {"type": "function_call", "id": "c", "name": "f"}
    reader = reader_named("google-interactions")
    seen: list[int] = []
    events: list[Event] = [
        {"event_type": "interaction.created", "interaction": {"id": "i"}},
        {"event_type": "step.start", "index": 0, "step": step},
        {"event_type": "step.delta", "index": 0, "delta": {"arguments": '{"a":'}},
        {"event_type": "step.delta", "index": 0, "delta": {"partial_arguments": "1}"}},
        {"event_type": "step.stop", "index": 0},
        {"event_type": "step.start", "step": step},
        {"event_type": "step.delta", "delta": {"arguments": {"b": 2}}},
        {"event_type": "step.stop"},
        {"event_type": "odd"},
    ]
    for event in events:
        reader.feed(event)
        seen.append(reader.complete)

    assert seen == [0, 0, 0, 0, 1, 1, 1, 2, 2]
    assert [one["arguments"] for one in reader.front()["steps"]] == [{"a": 1}, {"b": 2}]
    reader.feed({"event_type": "interaction.completed", "interaction": {"steps": [step]}})
    assert reader.whole()["steps"] == [step]


def test_an_event_about_something_that_has_not_begun_is_refused() -> None:
    with pytest.raises(PayloadError, match="no content block 3 has begun"):
        fed("anthropic-messages", [{"type": "content_block_stop", "index": 3}])
    with pytest.raises(PayloadError, match="no step 3 has started"):
        fed("google-interactions", [{"event_type": "step.stop", "index": 3}])


def test_blocks_of_bedrock_are_put_together() -> None:
    def delta(index: int | None, **told: Any) -> Event:
        place = {} if index is None else {"contentBlockIndex": index}
        return {"contentBlockDelta": {**place, "delta": told}}

    use = {"toolUse": {"toolUseId": "u", "name": "f"}}
    reader = fed(
        "bedrock-converse",
        [
            {"messageStart": {"role": "assistant"}},
            delta(0, reasoningContent={"text": "hm"}),
            delta(0, reasoningContent={"signature": "s"}),
            delta(1, reasoningContent={"redactedContent": "r"}),
            delta(2, text="he"),
            delta(None, text="y"),
            {"contentBlockStart": {"contentBlockIndex": 3, "start": use}},
            delta(3, toolUse={"input": '{"a": 1}'}),
        ],
    )
    assert reader.complete == 0
    reader.feed({"contentBlockStop": {"contentBlockIndex": 3}})
    assert reader.complete == 1
    reader.feed({"messageStop": {"stopReason": "tool_use"}})
    reader.feed({"metadata": {"usage": {"inputTokens": 1}}, "odd": None})

    assert reader.whole() == {
        "output": {
            "message": {
                "role": "assistant",
                "content": [
                    {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}},
                    {"reasoningContent": {"redactedContent": "r"}},
                    {"text": "hey"},
                    {"toolUse": {"toolUseId": "u", "name": "f", "input": {"a": 1}}},
                ],
            }
        },
        "stopReason": "tool_use",
        "usage": {"inputTokens": 1},
    }
    assert "stopReason" not in reader.front()


def test_an_answer_of_cohere_is_put_together() -> None:
    def about(kind: str, index: int | None = None, **message: Any) -> Event:
        place = {} if index is None else {"index": index}
        return {"type": kind, **place, "delta": {"message": message}}

    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}
    reader = fed(
        "cohere-v2",
        [
            {"id": "m", **about("message-start", role="assistant", content=[])},
            about("tool-plan-delta", tool_plan="I wi"),
            about("tool-plan-delta", tool_plan="ll"),
            about("content-start", 0, content={"type": "text", "text": "he"}),
            about("content-delta", 0, content={"text": "y"}),
            about("citation-start", 0, citations={"n": 1}),
            about("tool-call-start", 0, tool_calls=call),
            about("tool-call-delta", 0, tool_calls={"function": {"arguments": '{"a":'}}),
            about("tool-call-delta", None, tool_calls={"function": {"arguments": "1}"}}),
        ],
    )
    assert reader.complete == 0
    reader.feed({"type": "tool-call-end", "index": 0})
    assert reader.complete == 1
    reader.feed({"type": "message-end", "delta": {"finish_reason": "TOOL_CALL", "usage": {}}})

    assert reader.ended
    assert reader.whole() == {
        "id": "m",
        "finish_reason": "TOOL_CALL",
        "usage": {},
        "message": {
            "role": "assistant",
            "tool_plan": "I will",
            "content": [{"type": "text", "text": "hey"}],
            "citations": [{"n": 1}],
            "tool_calls": [{**call, "function": {"name": "f", "arguments": '{"a":1}'}}],
        },
    }
    assert "finish_reason" not in reader.front()


def test_lines_of_ollama_are_put_together() -> None:
    call = {"function": {"name": "f", "arguments": {"a": 1}}}
    lines = [
        {"model": "m", "message": {"role": "assistant", "thinking": "hm"}, "done": False},
        {"model": "m", "message": {"content": "", "tool_calls": [call]}, "done": False},
        {"model": "m", "message": {"content": "hey"}, "done": True, "done_reason": "stop"},
    ]
    decoder = ByteReader()
    events = decoder.feed("\n".join(map(json.dumps, lines)).encode())
    events += decoder.end()
    assert events == lines
    reader = reader_for(events[0])
    for event in events:
        reader.feed(event)

    assert reader.ended
    assert reader.complete == 1
    assert reader.whole()["message"] == {
        "role": "assistant",
        "content": "hey",
        "thinking": "hm",
        "tool_calls": [call],
    }
    assert reader.front()["done"] is False


# Bytes


def test_all_line_ends_comments_marks_and_several_data_lines_are_read() -> None:
    text = '\ufeff: hello\r\ndata: {"a":\rdata: 1}\r\n\r\nid: 7\nretry: 9\nevent: x\ndata:{}\n\n'

    for size in range(1, 9):
        data, decoder = text.encode(), ByteReader()
        found = [
            one for at in range(0, len(data), size) for one in decoder.feed(data[at : at + size])
        ]
        assert found + decoder.end() == [{"a": 1}, {}]


def test_nothing_counts_behind_done_and_errors_are_known_by_their_kind() -> None:
    decoder = ByteReader()

    found = decoder.feed(b'event: error\ndata: {"message": "no"}\n\ndata: [DONE]\n\ndata: {}\n\n')

    assert found == [{"error": {"message": "no"}}]
    assert decoder.done


def test_a_last_event_without_its_blank_line_counts_only_if_it_is_whole() -> None:
    whole, cut = ByteReader(), ByteReader()
    whole.feed(b'data: {"a": 1}')
    cut.feed(b'data: {"a": ')

    assert whole.end() == [{"a": 1}]
    assert cut.end() == []


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"data: {no}\n\n", "it is no JSON"),
        (b"data: 7\n\n", "expected an object, not b'7'"),
        (b"data: \xff\n\n", "it is not UTF-8"),
        (b"<html>\n", "the line begins with b'<html>'"),
        (b"[{\n", "a JSON list, which is no stream"),
        (b'{"a": 1}\n{"b"\n', "it is no JSON"),
    ],
)
def test_bytes_that_are_no_stream_are_refused(data: bytes, told: str) -> None:
    with pytest.raises(PayloadError, match=told):
        ByteReader().feed(data)


@pytest.mark.parametrize(
    ("event", "told"),
    [
        ({"choices": {}}, r"choices: expected a list, not an empty object"),
        ({"choices": [1]}, r"choices\[0\]: expected an object, not 1"),
        ({"choices": [{"delta": 1}]}, "delta: expected an object"),
        ({"choices": [{"index": "0"}]}, "index: expected a whole number"),
        ({"choices": [{"finish_reason": 1}]}, "finish_reason: expected a text"),
        ({"choices": [{"delta": {"tool_calls": 1}}]}, "delta.tool_calls: expected a list"),
    ],
)
def test_an_event_of_another_shape_is_refused_with_its_place(event: Event, told: str) -> None:
    with pytest.raises(PayloadError, match=told):
        fed("openai-chat", [event])


# Whatever comes

WORDS = sorted(
    {
        *("type", "index", "id", "delta", "message", "content", "text", "name", "function"),
        *("arguments", "choices", "tool_calls", "finish_reason", "content_block", "partial_json"),
        *("item", "output_index", "response", "output", "candidates", "parts", "functionCall"),
        *("args", "partialArgs", "jsonPath", "willContinue", "event_type", "step", "interaction"),
        *("contentBlockDelta", "contentBlockStart", "toolUse", "input", "done", "error", "role"),
        *("tool_plan", "thinking", "custom", "usage", "steps", "citations", "toolUseId"),
    }
)
KINDS = [
    *("message_start", "content_block_start", "content_block_delta", "content_block_stop"),
    *("message_delta", "message_stop", "tool_use", "input_json_delta", "text_delta"),
    *("response.created", "response.output_item.added", "response.output_item.done"),
    *("response.function_call_arguments.delta", "response.completed", "function_call"),
    *("step.start", "step.delta", "step.stop", "interaction.completed", "model_output"),
    *("tool-call-start", "tool-call-delta", "tool-call-end", "message-end", "content-delta"),
    *("$.a", "$.a[0]", "{}", '{"a": 1}', "[DONE]", ""),
]
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 3), st.floats(), st.sampled_from(KINDS), st.text()
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(WORDS), inner, max_size=4)
    ),
    max_leaves=12,
)
any_events = st.dictionaries(st.sampled_from(WORDS), values, max_size=5)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(READERS)), st.lists(any_events, max_size=8))
def test_whatever_events_come_only_our_own_errors_do(name: str, given_events: list[Event]) -> None:
    reader = reader_named(name)
    try:
        for event in given_events:
            reader.feed(event)
            assert reader.complete >= 0
            reader.front()
        whole = reader.whole()
        if name in ("openai-chat", "anthropic-messages"):
            written = json.dumps(given_events)
            for asked in parse(whole, provider=name).calls:
                for word in asked.name.split():
                    assert json.dumps(word)[1:-1] in written, "no call is made up"
    except PayloadError:
        pass


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_whatever_bytes_come_only_our_own_errors_do(pieces: list[bytes]) -> None:
    decoder = ByteReader()
    try:
        for piece in pieces:
            decoder.feed(piece)
    except PayloadError:
        return
    decoder.end()


@given(st.data())
def test_a_message_cut_anywhere_never_ends(data: st.DataObject) -> None:
    whole = chunks(
        fragment('{"a": 1}', index=0, id="1", name="f"),
        fragment('{"b": 2}', index=1, id="2", name="g"),
    )
    wire = b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in whole)
    cut = data.draw(st.integers(0, len(wire) - 4))
    decoder, reader = ByteReader(), reader_named("openai-chat")
    for event in [*decoder.feed(wire[:cut]), *decoder.end()]:
        reader.feed(event)

    assert not reader.ended
    assert reader.complete <= 1
