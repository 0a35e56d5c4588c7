"""Whatever stands in an answer, in any format: no exception but ours, and no call invented.

Part of the long campaign of `make fuzz`. A call is invented if its name or its arguments stand
nowhere in the payload, or if what the provider ran comes out as one of ours.
"""

import json
import os
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from laneway.engine.kinds import is_list, is_object
from laneway.engine.plain import whole_text
from laneway.engine.providers import FORMATS, Answer, Reply, format_named, parse
from laneway.engine.providers.parts import image_part
from laneway.errors import PayloadError, PlanError
from laneway.outcomes import Code, Failure, Success
from tests.wires import ABSENT, WIRES, Said, answer, calls_in, results_in

ROUNDS = int(os.environ.get("LANEWAY_ROUNDS", "1"))
NAMES = [wire.name for wire in FORMATS]

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.binary(max_size=3)
    | st.sampled_from(["\ud83d", "a", "t.1", " ", "call_1", "function_call", "tool_use"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
TEXTS = st.sampled_from(
    [
        "",
        " ",
        "{}",
        '{"n": 1}',
        '{"n": 1',
        '{"n": "\\ud83d"}',
        '{"n": 1}{"n": 2}',
        '{"n": 1, "n": 2}',
        '{"n": NaN}',
        "null",
        "[1]",
        '"{\\"n\\": 1}"',
        "\ufeff{}",
        "{'n': 1}",
        '{"a":' * 200 + "1" + "}" * 200,
    ]
)
ARGUMENTS = st.just(ABSENT) | TEXTS | VALUES | st.dictionaries(st.text(max_size=3), VALUES)
IDS = st.just(ABSENT) | st.sampled_from(["a", "b", "t.1", "", " ", None, 5, "\ud83d"]) | VALUES
TOOLS = st.sampled_from(["f", "g.h", "x<|y|>", "", None, "n" * 80]) | VALUES
SAID = st.builds(Said, IDS, TOOLS, ARGUMENTS)

_FIELDS = """
    choices message role content tool_calls type calls error id output steps candidates parts
    functionCall function_call toolUse toolUseId name args arguments input call_id function
    status action operation finish_reason finishReason stopReason done created_at custom object
    execution environment tool_plan laneway minted blobs $bytes promptFeedback
"""
_WORDS = """
    assistant model message tool_use custom function function_call custom_tool_call shell_call
    apply_patch_call computer_call tool_search_call client server response interaction
    server_tool_use incomplete completed length MAX_TOKENS max_tokens ERROR f
"""
KEYS = st.sampled_from(sorted(_FIELDS.split()))
WORDS = st.sampled_from(sorted(_WORDS.split()))
TREES = st.recursive(
    SCALARS | WORDS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=25,
)


def answers_to(reply: Reply) -> list[Answer]:
    unknown = Failure(code=Code.UNKNOWN_TOOL, message="No such tool.")
    picture = Success(value=["x", image_part(b"x")])
    return [
        Answer(
            id=asked.id,
            name=asked.name,
            outcome=asked.fault or (picture if asked.name == "f" else unknown),
        )
        for asked in reply.calls
    ]


def texts_in(value: Any) -> set[str]:
    """All texts and names of fields in a payload."""
    if isinstance(value, str):
        return {value, whole_text(value)}
    if isinstance(value, bytes):  # read as the text that it is in UTF-8
        return {value.decode(errors="ignore")}
    if is_object(value):
        inner = [texts_in(one) for pair in value.items() for one in pair]
    elif is_list(value) or isinstance(value, tuple):
        inner = [texts_in(one) for one in list(value)]  # pyright: ignore[reportUnknownArgumentType]
    else:
        return set()
    return set().union(*inner)


def check(reply: Reply, payload: Any) -> None:
    """See that a reply holds together, whatever it was read from."""
    wire = format_named(reply.provider)
    ids = [asked.id for asked in reply.calls]
    assert len(set(ids)) == len(ids)
    assert all(own.strip() for own in ids)
    texts = texts_in(payload)
    for asked in reply.calls:
        assert (asked.arguments is None) <= (asked.fault is not None)
        assert asked.name == "" or asked.name in texts, "a name that stands nowhere"
        json.dumps(asked.arguments, allow_nan=False, ensure_ascii=False).encode()
    kept = json.loads(json.dumps(reply.message, allow_nan=False))
    messages = wire.render(kept, answers_to(reply))
    json.dumps(messages, allow_nan=False, ensure_ascii=False, default=repr).encode()
    if reply.provider in WIRES and "role" not in reply.message:
        assert len(results_in(messages)) <= len(reply.calls)
    again = wire.parse(kept)
    assert [one.id for one in again.calls] == ids
    wire.with_arguments(kept, {own: {"input": "x"} for own in ids})


@pytest.mark.parametrize("wire", WIRES)
@settings(max_examples=60 * ROUNDS, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_whatever_a_model_writes_into_its_calls_each_is_answered_once(
    wire: str, data: st.DataObject
) -> None:
    calls = data.draw(st.lists(SAID, max_size=4))
    payload = answer(wire, calls, cut=data.draw(st.booleans()))

    try:
        reply = parse(payload)
    except PayloadError:
        return

    check(reply, payload)
    assert len(reply.calls) <= len(calls)
    messages = format_named(wire).render(reply.message, answers_to(reply))
    assert len(calls_in(messages)) == len(results_in(messages)) == len(reply.calls)
    for asked in reply.calls:
        if asked.arguments:
            assert any(one.arguments not in (ABSENT, None, "", {}) for one in calls)


@pytest.mark.parametrize("provider", [None, *NAMES])
@settings(max_examples=60 * ROUNDS, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(payload=TREES)
def test_any_tree_is_read_or_refused_with_an_error_of_ours(
    provider: str | None, payload: Any
) -> None:
    with suppress(PayloadError, PlanError):
        reply = parse(payload, provider=provider)
        if reply.provider != "plan":
            check(reply, payload)
