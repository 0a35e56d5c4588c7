from typing import Any

import pytest

from laneway.engine.results import NO_OUTPUT, json_text, text_of
from laneway.outcomes import Code, Failure, Happened, Success


def test_a_text_stands_as_it_is() -> None:
    assert text_of(Success(value='two lines\n"and quotes" – é')) == 'two lines\n"and quotes" – é'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None, 2.5]}, '{"b":1,"a":[true,null,2.5]}'),
        ([], "[]"),
        (None, "null"),
        (0, "0"),
        (False, "false"),
        ({"ü": "é"}, '{"ü":"é"}'),
    ],
)
def test_any_other_value_is_compact_json_in_its_own_order(value: Any, text: str) -> None:
    assert text_of(Success(value=value)) == text


@pytest.mark.parametrize("blank", ["", " ", "\n\t "])
def test_a_blank_result_says_so(blank: str) -> None:
    assert text_of(Success(value=blank)) == NO_OUTPUT == "(no output)"


def test_half_characters_become_replacement_characters_and_pairs_are_joined() -> None:
    assert text_of(Success(value="a\ud83d b")) == "a� b"
    assert text_of(Success(value="a\ud83d\ude00b")) == "a😀b"
    assert text_of(Success(value={"k\udc00": ["\ud83d"]})) == '{"k�":["�"]}'
    assert text_of(Failure(code=Code.TOOL_ERROR, message="x\ud83d")).startswith(
        "Error TOOL_ERROR: x�"
    )


def test_a_failure_tells_code_message_effect_retry_and_what_to_do_instead() -> None:
    failure = Failure(
        code=Code.TIMEOUT,
        message="It did not end within 20 s.",
        retry=True,
        happened=Happened.UNKNOWN,
        hint="Ask for its status first.",
    )

    assert text_of(failure) == (
        "Error TIMEOUT: It did not end within 20 s.\n"
        "Effect: unknown; it may have happened.\n"
        "Asking again: the same call may succeed.\n"
        "Instead: Ask for its status first."
    )


@pytest.mark.parametrize(
    ("happened", "line"),
    [
        (Happened.PARTLY, "Effect: it happened in part."),
        (Happened.ALL, "Effect: it happened."),
        (Happened.UNKNOWN, "Effect: unknown; it may have happened."),
    ],
)
def test_every_possible_effect_has_its_line(happened: Happened, line: str) -> None:
    assert line in text_of(Failure(code=Code.TOOL_ERROR, message="m", happened=happened))


def test_a_failure_without_effect_says_nothing_of_one() -> None:
    text = text_of(Failure(code=Code.TOOL_ERROR, message="m"))

    assert text == "Error TOOL_ERROR: m"


@pytest.mark.parametrize("message", ["", "  "])
def test_a_failure_without_a_message_is_still_not_empty(message: str) -> None:
    assert text_of(Failure(code=Code.TOOL_ERROR, message=message)).startswith(
        "Error TOOL_ERROR: no reason was given."
    )


def test_the_same_value_gives_the_same_text() -> None:
    value: Any = {"z": {"y": 1, "x": 2}, "a": []}

    assert json_text(value) == json_text(dict(value)) == '{"z":{"y":1,"x":2},"a":[]}'
