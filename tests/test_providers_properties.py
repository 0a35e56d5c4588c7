"""Whatever a model or a server writes: never a crash, and never a message that can't be sent."""

import json
import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laneway.engine.providers import Answer, Reply, format_named, parse
from laneway.errors import PayloadError, PlanError
from laneway.outcomes import Code, Failure, Success


def record(
    needed: dict[Any, st.SearchStrategy[Any]],
    *,
    optional: dict[Any, st.SearchStrategy[Any]] | None = None,
) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(needed, optional=optional or {})


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["\ud83d", "a", "t.1", " ", "x y"])
)


def nested(scalars: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.tuples(inner)
            | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        ),
        max_leaves=6,
    )


VALUES = nested(SCALARS)
WILD_VALUES = nested(SCALARS | st.floats())
ARGUMENT_TEXTS = st.sampled_from(
    [
        "",
        " ",
        "{}",
        '{"n": 1}',
        '{"n": 1',
        '{"n": "\\ud83d"}',
        '{"n": 1}{"n": 2}',
        "null",
        '"{\\"n\\": 1}"',
        "\ufeff{}",
        '{"a": [[[]]]}',
    ]
)
IDS = st.sampled_from(["a", "b", "call_1", "t.1", "", " ", None, 5, "\ud83d"]) | VALUES
NAMES = st.sampled_from(["f", "g.h", "x<|y|>", "", None, "n" * 80]) | VALUES

FUNCTIONS = record(
    {"name": NAMES},
    optional={"arguments": ARGUMENT_TEXTS | WILD_VALUES, "parsed_arguments": VALUES},
)
ENTRIES = record(
    {"id": IDS, "function": FUNCTIONS}, optional={"type": st.just("function")}
) | record(
    {
        "id": IDS,
        "type": st.just("custom"),
        "custom": record({"name": NAMES, "input": VALUES}),
    }
)
COMPLETIONS = record(
    {
        "id": st.sampled_from(["c", None]),
        "choices": st.tuples(
            record(
                {
                    "finish_reason": st.sampled_from(["length", "stop", None]),
                    "message": record(
                        {"content": SCALARS},
                        optional={
                            "tool_calls": st.lists(ENTRIES, max_size=4),
                            "function_call": FUNCTIONS,
                        },
                    ),
                }
            )
        ),
    }
)
BLOCKS = record(
    {"type": st.just("tool_use"), "id": IDS, "name": NAMES},
    optional={"input": ARGUMENT_TEXTS | WILD_VALUES},
) | record({"type": st.sampled_from(["text", "server_tool_use"]), "id": IDS, "text": SCALARS})
MESSAGES = record(
    {
        "type": st.just("message"),
        "stop_reason": st.sampled_from(["max_tokens", "tool_use", None]),
        "content": st.lists(BLOCKS, max_size=4),
    }
)
PLANS = record(
    {
        "calls": st.lists(
            record(
                {"tool": st.sampled_from(["f", "g"])},
                optional={
                    "id": st.sampled_from(["a", "b", "", None]),
                    "arguments": ARGUMENT_TEXTS | WILD_VALUES,
                    "needs": st.lists(st.sampled_from(["a", "b"]), max_size=2),
                },
            ),
            max_size=4,
        )
    }
)


def answers_to(reply: Reply) -> list[Answer]:
    unknown = Failure(code=Code.UNKNOWN_TOOL, message="No such tool.")
    return [
        Answer(
            id=asked.id,
            name=asked.name,
            outcome=asked.fault or (Success(value=None) if asked.name == "f" else unknown),
        )
        for asked in reply.calls
    ]


def check_reply(reply: Reply) -> None:
    ids = [asked.id for asked in reply.calls]
    assert len(set(ids)) == len(ids)
    assert all(given_id.strip() for given_id in ids)
    for asked in reply.calls:
        assert asked.arguments is not None or asked.fault is not None
        json.dumps(asked.arguments, allow_nan=False, ensure_ascii=False).encode()
    messages = format_named(reply.provider).render(reply.message, answers_to(reply))
    json.dumps(messages, allow_nan=False, ensure_ascii=False).encode()


@settings(max_examples=60, deadline=None)
@given(COMPLETIONS)
def test_any_completion_is_read_and_what_goes_back_reads_as_the_same_calls(payload: Any) -> None:
    reply = parse(payload)

    check_reply(reply)
    messages = format_named(reply.provider).render(reply.message, answers_to(reply))
    assert [message["role"] for message in messages[1:]] in (
        ["tool"] * len(reply.calls),
        ["function"] * len(reply.calls),
    )
    again = parse(messages[0], provider=reply.provider)
    assert len(again.calls) == len(reply.calls)
    for first, second in zip(reply.calls, again.calls, strict=True):
        assert second.fault is None
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", second.name)
        if first.arguments is not None and first.arguments.keys() != {"input"}:
            assert second.arguments == first.arguments
    if reply.message.get("tool_calls"):
        assert [asked.id for asked in again.calls] == [asked.id for asked in reply.calls]


@settings(max_examples=60, deadline=None)
@given(MESSAGES)
def test_any_message_is_read_and_what_goes_back_reads_as_the_same_calls(payload: Any) -> None:
    reply = parse(payload)

    check_reply(reply)
    messages = format_named(reply.provider).render(reply.message, answers_to(reply))
    assert len(messages) == 1 + bool(reply.calls)
    assert messages[0]["content"]
    again = parse(messages[0])
    assert [asked.id for asked in again.calls] == [asked.id for asked in reply.calls]
    for first, second in zip(reply.calls, again.calls, strict=True):
        assert second.fault is None
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", second.name)
        assert re.fullmatch(r"[a-zA-Z0-9_-]+", second.id)
        if first.arguments is not None:
            assert second.arguments == first.arguments


@settings(max_examples=60, deadline=None)
@given(PLANS)
def test_any_plan_is_read_and_is_still_the_same_plan_when_it_comes_back(payload: Any) -> None:
    reply = parse(payload)

    check_reply(reply)
    again = parse(reply.message)
    assert [(asked.id, asked.name, asked.needs) for asked in again.calls] == [
        (asked.id, asked.name, asked.needs) for asked in reply.calls
    ]


@pytest.mark.parametrize("provider", [None, "openai-chat", "anthropic-messages", "plan"])
@settings(max_examples=60, deadline=None)
@given(payload=st.data())
def test_any_rubbish_is_refused_with_a_payload_error_or_read(
    provider: str | None, payload: st.DataObject
) -> None:
    keys = st.sampled_from(
        ["choices", "message", "role", "content", "tool_calls", "type", "calls", "error", "id"]
    )
    rubbish: Any = payload.draw(
        st.recursive(
            SCALARS | st.floats() | st.sampled_from(["assistant", "message", "tool_use", "custom"]),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5),
            max_leaves=12,
        )
    )

    with suppress(PayloadError, PlanError):
        check_reply(parse(rubbish, provider=provider))
