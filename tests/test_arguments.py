# JSON is told apart at run time.
# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laneway.engine.arguments import read_arguments, read_json
from laneway.engine.plain import MAX_DEPTH
from laneway.outcomes import Code, Failure, Happened

TEXT = st.text(st.characters(codec="utf-8"))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT
VALUES = st.recursive(
    SCALARS.filter(lambda value: value not in (float("inf"), float("-inf"))),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(TEXT, VALUES, max_size=5)


def fault(given_arguments: object) -> str:
    failure = read_arguments(given_arguments)
    assert isinstance(failure, Failure)
    assert failure.code is Code.MALFORMED_ARGUMENTS
    assert failure.retry is False
    assert failure.happened is Happened.NOTHING
    assert failure.hint
    return failure.message


@pytest.mark.parametrize("nothing", [None, "", " \n", "\ufeff", "{}", "null", " null ", b"", {}])
def test_h_args_1_nothing_where_the_arguments_should_be_is_an_empty_object(nothing: object) -> None:
    assert read_arguments(nothing) == {}


def test_h_args_2_an_object_wrapped_in_a_json_string_is_unwrapped_once() -> None:
    once = json.dumps(json.dumps({"steps": [{"title": "two"}]}))

    assert read_arguments(once) == {"steps": [{"title": "two"}]}
    assert read_arguments('"{ \\"n\\": 2 }"') == {"n": 2}
    assert "they are a string" in fault(json.dumps(once))
    assert "break off" in fault(json.dumps('{"n": 2'))


@given(OBJECTS)
def test_whatever_json_can_say_is_read_back_as_it_was(value: dict[str, Any]) -> None:
    assert read_arguments(json.dumps(value)) == value
    assert read_arguments(json.dumps(value, ensure_ascii=False, indent=1)) == value
    assert read_arguments(json.dumps(value).encode()) == value
    assert read_arguments(value) == value


@given(OBJECTS, st.data())
def test_a_text_with_one_character_changed_is_read_as_a_strict_reader_would(
    value: dict[str, Any], data: st.DataObject
) -> None:
    text = json.dumps(value)
    at = data.draw(st.integers(0, len(text) - 1))
    text = text[:at] + data.draw(st.sampled_from('{}[]:,"0 a\\u')) + text[at + 1 :]

    found = read_arguments(text)

    expected = strictly(text)
    assert found == expected if expected is not None else isinstance(found, Failure)


def strictly(text: str) -> Any:
    """What the standard library makes of a text if it is told to be strict; None for a fault."""
    try:
        value = json.loads(text, object_pairs_hook=no_key_twice)
    except ValueError:
        return None
    return mended(value) if isinstance(value, dict) else None


def mended(value: Any) -> Any:
    if isinstance(value, dict):
        return {mended(key): mended(item) for key, item in value.items()}
    if isinstance(value, list):
        return [mended(item) for item in value]
    return re.sub("[\ud800-\udfff]", "\ufffd", value) if isinstance(value, str) else value


def no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"a": 1, "a": 2}', "a"),
        ('{"a": {"b": 1, "b": 2}}', "b"),
        ('{"list": [{"deep": 1, "deep": 1}]}', "deep"),
        ('{"a": "x:y", "a": 2}', "a"),
        ('{"url": "http://x:80", "a": [":"], "a": 2}', "a"),
        ('{"a": "one colon less \\u003a", "b": 1, "b": 2}', "b"),
        ('{"k:ey": 1, "k:ey": 2}', "k:ey"),
    ],
)
def test_a_key_that_stands_twice_is_refused_at_any_level(text: str, name: str) -> None:
    assert f'the key "{name}" stands twice in one object' in fault(text)


@given(OBJECTS.filter(bool), st.data())
def test_no_key_that_stands_twice_is_ever_missed(
    value: dict[str, Any], data: st.DataObject
) -> None:
    key = data.draw(st.sampled_from(sorted(value)))
    twice = json.dumps(value)[:-1] + "," + json.dumps({key: data.draw(VALUES)})[1:]

    assert "stands twice" in fault(twice)


@pytest.mark.parametrize(
    "text",
    [
        '{"url": "http://x:80/", "q": "a"}',
        '{"a": "x:y", "b": {"c": [{"d": "e:f"}, ":"]}}',
        '{"a:b": 1}',
        '{"escaped": "\\u003a"}',
    ],
)
def test_colons_in_texts_and_keys_are_no_key_that_stands_twice(text: str) -> None:
    assert read_arguments(text) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[1]", "they are an array"),
        ("2", "they are a number"),
        ("2.5", "they are a number"),
        ("true", "they are true or false"),
        ('"text"', "they are a string"),
        ('{"a": NaN}', "NaN is no JSON value"),
        ('{"a": -Infinity}', "-Infinity is no JSON value"),
        ('{"a": 1e400}', 'the number "1e400" is beyond the range of a double'),
        ('{"a": ' + "9" * 5000 + "}", "a number of 5000 digits is too long"),
        ("{'a': 1}", "Expecting property name enclosed in double quotes at character 1"),
        ('{"unit": celsius}', 'Expecting value at character 9, near `{"unit": celsius}`'),
        ('{"path": "a"', "they break off: Expecting ',' delimiter at character 12"),
        ('{"path": "b.txt", "text": "lor', "they break off: Unterminated string"),
        ('{"a": "\x01"}', 'near `{"a": "\\x01"}`'),
        ('{"a": 1} x', "more text follows the end of the first value, at character 9"),
    ],
)
def test_what_is_no_strict_object_is_told_with_its_place(text: str, told: str) -> None:
    assert told in fault(text)


def test_several_objects_in_a_row_are_not_guessed_apart() -> None:
    failure = read_arguments('{"id": 3}{"id": 9}{"id": 11}')

    assert isinstance(failure, Failure)
    assert "more text follows the end of the first value" in failure.message
    assert failure.hint == "Make one call for each object, or one object of them all."


def test_a_failure_shows_a_window_of_the_text_and_never_the_whole() -> None:
    secret = "s3cret" * 100
    message = fault('{"password": "' + secret + '", "then": oops, "more": "' + secret + '"}')

    assert "oops" in message
    assert "s3cret" * 4 not in message
    assert len(message) < 300


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ('{"s": "x\\ud800y"}', "x\ufffdy"),
        ('{"s": "x\ud800y"}', "x\ufffdy"),
        ('{"s": "\\ude00\\ud83d"}', "\ufffd\ufffd"),
        ('{"s": "\\ud83d\\ude00"}', "\U0001f600"),
    ],
)
def test_h_ser_2_half_a_character_becomes_a_replacement_character(text: str, read: str) -> None:
    arguments = read_arguments(text)

    assert arguments == {"s": read}
    assert json.dumps(arguments, ensure_ascii=False).encode()


def test_keys_that_become_one_by_mending_are_refused() -> None:
    assert "two keys that become the same text" in fault('{"\\ud800": 1, "\\ud801": 2}')


@pytest.mark.parametrize("digits", ["123456789012345678901234567890", "9" * 4000, "-" + "9" * 300])
def test_huge_integers_are_exact(digits: str) -> None:
    assert read_arguments('{"n": ' + digits + "}") == {"n": int(digits)}


@pytest.mark.parametrize(
    "nest",
    [
        lambda depth: '{"a":' * depth + "1" + "}" * depth,
        lambda depth: '{"a": ' + "[" * (depth - 1) + "]" * (depth - 1) + "}",
    ],
)
def test_depth_has_a_limit(nest: Callable[[int], str]) -> None:
    assert read_arguments(nest(MAX_DEPTH)) == json.loads(nest(MAX_DEPTH))
    for depth in (MAX_DEPTH + 1, 900, 100_000):
        assert f"nested deeper than {MAX_DEPTH} levels" in fault(nest(depth))


def test_many_brackets_are_not_depth() -> None:
    wide: dict[str, Any] = {"rows": [[str(n), {"n": n}] for n in range(500)]}

    assert read_arguments(json.dumps(wide)) == wide


def test_bytes_are_utf_8_and_a_byte_order_mark_is_ignored() -> None:
    assert read_arguments(b'{"a": "\xc3\xa9"}') == {"a": "é"}
    assert read_arguments(bytearray(b"\xef\xbb\xbf{}")) == {}
    assert read_arguments('\ufeff{"a": 1}') == {"a": 1}
    assert "not UTF-8 at byte 6" in fault(b'{"a":"\xff"}')


def test_an_object_that_a_library_has_decoded_passes_the_same_rules() -> None:
    given_arguments = {"a": ["x\ud800"], "n": 1}

    read = read_arguments(given_arguments)

    assert read == {"a": ["x\ufffd"], "n": 1}
    assert isinstance(read, dict)
    assert read["a"] is not given_arguments["a"]
    assert "$.a[0] is nan" in fault({"a": [float("nan")]})
    assert "nested deeper" in fault(json.loads('{"a":' * 200 + "1" + "}" * 200))


def test_anything_else_is_named_by_its_type() -> None:
    assert "they are of type int, not an object" in fault(5)
    assert "they are of type list, not an object" in fault([1])


def test_any_json_value_can_be_read_strictly() -> None:
    assert read_json("[1, 2]") == [1, 2]
    assert read_json('"x"') == "x"
    assert isinstance(read_json("[1, 2"), Failure)
    assert isinstance(read_json("[NaN]"), Failure)
