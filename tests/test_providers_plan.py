"""Laneway's own form of a plan."""

from typing import Any

import pytest

from laneway.engine.providers import Answer, Asked, format_named, parse
from laneway.errors import PlanError, UsageError
from laneway.outcomes import Code, Failure, Happened, Success


def test_a_plan_gives_its_calls_with_what_they_need() -> None:
    reply = parse(
        {
            "id": "plan-1",
            "calls": [
                {"id": "a", "tool": "search", "arguments": {"q": "x"}},
                {"id": "b", "name": "send", "args": {"to": "${a}"}, "needs": ["a"], "after": ()},
                {"id": "c", "tool": "log", "after": ["a", "b"]},
            ],
        }
    )

    assert reply.provider == "plan"
    assert reply.key == "plan-1"
    assert reply.referring.strict
    assert reply.calls == (
        Asked(id="a", name="search", arguments={"q": "x"}),
        Asked(id="b", name="send", arguments={"to": "${a}"}, needs=("a",)),
        Asked(id="c", name="log", arguments={}, after=("a", "b")),
    )
    assert reply.message == {
        "role": "assistant",
        "calls": [
            {"id": "a", "tool": "search", "arguments": {"q": "x"}},
            {"id": "b", "tool": "send", "arguments": {"to": "${a}"}, "needs": ["a"]},
            {"id": "c", "tool": "log", "arguments": {}, "after": ["a", "b"]},
        ],
    }


def test_the_message_of_a_plan_is_the_same_plan() -> None:
    reply = parse([{"tool": "f"}, {"id": "x", "tool": "g", "needs": ["call_1"]}])

    assert parse(reply.message).calls == reply.calls


def test_an_empty_plan_has_no_calls() -> None:
    reply = parse({"calls": []})

    assert reply.calls == ()
    assert format_named("plan").render(reply.message, []) == [{"role": "assistant", "calls": []}]


def test_calls_without_an_id_are_named_by_their_place() -> None:
    reply = parse([{"tool": "f"}, {"id": "call_1", "tool": "f"}, {"id": "", "tool": "f"}])

    assert [asked.id for asked in reply.calls] == ["call_1_", "call_1", "call_3"]


def test_a_second_call_of_one_id_is_ambiguous() -> None:
    reply = parse([{"id": "a", "tool": "f"}, {"id": "a", "tool": "f"}, {"id": "a", "tool": "g"}])

    first, second, third = reply.calls
    assert first.fault is None
    assert second.fault is not None
    assert second.fault.code is Code.BAD_REFERENCE
    assert second.fault.message == (
        "An earlier call of the plan has the id 'a' too, so a reference to it could mean either."
    )
    assert [asked.id for asked in reply.calls] == ["a", "a_2", "a_3"]
    assert third.fault is not None


def test_arguments_may_be_a_text_that_holds_an_object() -> None:
    good, bad, odd = parse(
        [
            {"id": "a", "tool": "f", "arguments": '{"n": 1}'},
            {"id": "b", "tool": "f", "arguments": "{"},
            {"id": "c", "tool": "f", "args": {"n": float("nan"), "t": (1,)}},
        ]
    ).calls

    assert good.arguments == {"n": 1}
    assert bad.arguments is None
    assert bad.text == "{"
    assert bad.fault is not None
    assert bad.fault.code is Code.MALFORMED_ARGUMENTS
    assert odd.fault is not None
    assert odd.text == '{"n": NaN, "t": [1]}'


def test_half_characters_never_reach_the_plan() -> None:
    reply = parse([{"id": "a\ud83d", "tool": "f\ud83d", "needs": ("b\ud83d",)}])

    assert reply.calls == (Asked(id="a�", name="f�", arguments={}, needs=("b�",)),)


def test_every_fault_of_form_is_named_at_once() -> None:
    empty: dict[str, Any] = {}
    payload: Any = {
        "calls": [
            {"id": "a", "tool": "f", "need": ["x"]},
            {"id": 5, "tool": ""},
            {"id": "c", "tool": "f", "name": "g", "args": empty, "arguments": empty},
            {"id": "d", "tool": "f", "needs": "a", "after": [1]},
            "e",
            {"id": "f"},
            {"tool": "f", 5: object()},
        ]
    }

    with pytest.raises(PlanError) as caught:
        parse(payload)

    known = "id, tool, name, arguments, args, needs, after"
    assert caught.value.faults == (
        f"calls[0]: unknown field need; a call may have {known}",
        "calls[1].tool: expected the name of a tool, not an empty text",
        "calls[1].id: expected a text, not 5",
        "calls[2]: tool and name are two words for one thing; give one",
        "calls[2]: arguments and args are two words for one thing; give one",
        'calls[3].needs: expected a list of ids, not the text "a"',
        "calls[3].after: expected a list of ids, not a list of 1",
        'calls[4]: expected an object with a tool, not the text "e"',
        "calls[5].tool: expected the name of a tool, not null",
        f"calls[6]: unknown field 5; a call may have {known}",
    )


@pytest.mark.parametrize("calls", [None, 5, {"a": 1}, "x"])
def test_calls_that_are_no_list_are_refused(calls: Any) -> None:
    with pytest.raises(PlanError, match=r"calls: expected a list of calls, not "):
        parse({"calls": calls})


def test_results_stand_in_one_message_in_the_order_of_the_plan() -> None:
    reply = parse([{"id": "a", "tool": "f"}, {"id": "b", "tool": "g"}])
    failure = Failure(
        code=Code.TIMEOUT, message="Too slow.", happened=Happened.UNKNOWN, hint="Ask later."
    )

    messages = format_named("plan").render(
        reply.message,
        [
            Answer(id="b", name="g", outcome=failure),
            Answer(id="a", name="f", outcome=Success(value={"n": [1]})),
        ],
    )

    assert messages == [
        reply.message,
        {
            "role": "tool",
            "results": [
                {"id": "a", "tool": "f", "value": {"n": [1]}},
                {
                    "id": "b",
                    "tool": "g",
                    "error": {
                        "code": "TIMEOUT",
                        "message": "Too slow.",
                        "retry": False,
                        "happened": "unknown",
                        "hint": "Ask later.",
                    },
                },
            ],
        },
    ]
    assert format_named("plan").join(messages) == messages


def test_calls_and_answers_that_do_not_pair_up_are_refused() -> None:
    reply = parse([{"id": "a", "tool": "f"}])

    with pytest.raises(UsageError, match=r"the calls are a, the answers are for none"):
        format_named("plan").render(reply.message, [])
