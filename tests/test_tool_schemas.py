import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laneway.effects import Effect
from laneway.engine.closing import closed
from laneway.engine.tools import Checked, Tool
from laneway.engine.unwrapping import unwrapped
from laneway.errors import ToolError
from laneway.outcomes import Code, Failure

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


def records(name: str) -> Iterator[dict[str, Any]]:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"the recorded material {path} is not there")
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def anything(**arguments: Any) -> dict[str, Any]:
    return arguments


def make(
    schema: Any, function: Callable[..., Any] = anything, *, name: str = "raw", **said: Any
) -> Tool:
    return Tool.from_schema(function, schema=schema, name=name, **said)


def fields(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def passed(one: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    checked = one.check(arguments)
    assert isinstance(checked, Checked), checked
    return checked.arguments


def refused(one: Tool, arguments: dict[str, Any]) -> str:
    failure = one.check(arguments)
    assert isinstance(failure, Failure), failure
    assert failure.code is Code.INVALID_ARGUMENTS
    return failure.message


SAVE_PLAN = make(
    fields(
        steps={
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"title": {"type": "string"}},
                "required": ["title"],
            },
        },
        meta={"type": "object"},
        note={"type": "string"},
    )
    | {"required": ["steps"]},
    name="save_plan",
    effect=Effect.WRITE,
)


# Doubly encoded values


def test_h_args_2_nested_values_are_unwrapped_only_where_the_schema_leaves_no_choice() -> None:
    sent = {"steps": '[{"title": "one"}]', "meta": '{"k": 1}', "note": "[1, 2]"}

    checked = SAVE_PLAN.check(sent)

    assert isinstance(checked, Checked)
    assert checked.arguments == {"steps": [{"title": "one"}], "meta": {"k": 1}, "note": "[1, 2]"}
    assert checked.call_with({}) == checked.arguments
    assert sent["steps"] == '[{"title": "one"}]'


def test_h_args_2_what_does_not_fit_even_so_is_refused() -> None:
    assert "steps[0].title: should be of type string, met 5" in (
        refused(SAVE_PLAN, {"steps": '[{"title": 5}]'})
    )
    assert 'steps: should be of type array, met "see above"' in (
        refused(SAVE_PLAN, {"steps": "see above"})
    )
    assert "steps is missing" in refused(SAVE_PLAN, {})


ARRAY: dict[str, Any] = {"type": "array"}
OBJECT: dict[str, Any] = {"type": "object"}
ROOM = {
    "type": "object",
    "properties": {"kind": {"const": "room"}, "guests": ARRAY},
    "required": ["kind"],
}
TABLE = {
    "type": "object",
    "properties": {"kind": {"const": "table"}, "guests": {"type": "string"}},
    "required": ["kind"],
}


@pytest.mark.parametrize(
    ("schema", "sent", "read"),
    [
        (ARRAY, "[1]", [1]),
        (ARRAY, " [1] ", [1]),
        (ARRAY, '{"a": 1}', None),
        (ARRAY, "[1", None),
        (ARRAY, "[NaN]", None),
        (ARRAY, '{"a": 1, "a": 2}', None),
        (ARRAY, '"[1]"', None),
        (OBJECT, '{"a": "[1]"}', {"a": "[1]"}),
        (fields(a=ARRAY), '{"a": "[1]"}', {"a": [1]}),
        ({"type": ["array", "object"]}, '{"a": 1}', {"a": 1}),
        ({"type": ["array", "null"]}, "[1]", [1]),
        ({"type": ["array", "null"]}, "null", None),
        ({"type": ["array", "integer"]}, "5", None),
        ({"type": ["array", "string"]}, "[1]", None),
        ({"type": "string"}, "[1]", None),
        ({}, "[1]", None),
        (True, "[1]", None),
        (False, "[1]", None),
        ({"anyOf": [ARRAY, {"type": "null"}]}, "[1]", [1]),
        ({"anyOf": [ARRAY, {"type": "string"}]}, "[1]", None),
        ({"oneOf": [ARRAY, OBJECT]}, "[1]", [1]),
        ({"allOf": [ARRAY, {"minItems": 1}]}, "[1]", [1]),
        ({"allOf": [{}, {"type": ["array", "string"]}]}, "[1]", None),
        ({"enum": [[1], [2]]}, "[1]", [1]),
        ({"enum": [[1], "x"]}, "[1]", None),
        ({"const": [1]}, "[1]", [1]),
        ({"$ref": "#/$defs/list"}, "[1]", [1]),
        ({"$ref": "#/$defs/a~1b~0c"}, "[1]", [1]),
        ({"$ref": "#/$defs/any/anyOf/0"}, "[1]", [1]),
        ({"$ref": "#/$defs/text"}, "[1]", None),
        ({"$ref": "#/$defs/any/anyOf/9"}, "[1]", None),
        ({"$ref": "#/$defs/any/anyOf"}, "[1]", None),
        ({"$ref": "#/$defs/nowhere"}, "[1]", None),
        ({"$ref": "elsewhere.json"}, "[1]", None),
        ({"$ref": "#"}, '{"value": "[1]"}', {"value": "[1]"}),
        ({"type": "array", "items": ARRAY}, ["[1]", [2]], [[1], [2]]),
        ({"type": "array", "prefixItems": [{}, ARRAY], "items": OBJECT}, ["[]", "[1]"], ["[]", [1]]),
        ({"prefixItems": [{}], "items": OBJECT}, ["[]", '{"a": 1}'], ["[]", {"a": 1}]),
        ({"items": [{}, ARRAY], "additionalItems": OBJECT}, ["", "[]", "{}"], ["", [], {}]),
        ({"type": "object", "additionalProperties": ARRAY}, {"a": "[1]"}, {"a": [1]}),
        ({"patternProperties": {"^a": {}}, "additionalProperties": ARRAY}, {"a": "[1]"}, None),
        (fields(a={"anyOf": [fields(b=ARRAY), {"type": "null"}]}), {"a": {"b": "[]"}}, None),
        ({"anyOf": [fields(b=ARRAY), {"type": "null"}]}, {"b": "[]"}, {"b": []}),
        ({"anyOf": [fields(b=ARRAY), fields(b={"type": "string"})]}, {"b": "[]"}, None),
        ({"anyOf": [fields(b=ARRAY), fields(c=ARRAY)]}, {"b": "[]"}, None),
        ({"oneOf": [ROOM, TABLE]}, {"kind": "room", "guests": "[]"}, {"kind": "room", "guests": []}),
        ({"oneOf": [ROOM, TABLE]}, {"kind": "table", "guests": "[]"}, None),
        ({"oneOf": [ROOM, TABLE]}, {"guests": "[]"}, None),
        (
            {"oneOf": [{"$ref": "#/$defs/room"}, {"$ref": "#/$defs/table"}]},
            {"kind": "room", "guests": "[]"},
            {"kind": "room", "guests": []},
        ),
        ({"$ref": "#/$defs/loop"}, "[1]", None),
    ],
)
def test_a_text_is_read_as_json_exactly_where_no_text_is_allowed(
    schema: Any, sent: Any, read: Any
) -> None:
    root = {
        "type": "object",
        "properties": {"value": schema},
        "$defs": {
            "list": ARRAY,
            "text": {"type": "string"},
            "a/b~c": ARRAY,
            "any": {"anyOf": [ARRAY]},
            "room": ROOM,
            "table": TABLE,
            "loop": {"anyOf": [{"$ref": "#/$defs/loop"}, {"$ref": "#/$defs/loop"}]},
        },
    }
    arguments = {"value": sent, "beside": "[1]"}

    found = unwrapped(arguments, root)

    if read is None and not (schema == fields(a={"anyOf": [fields(b=ARRAY), {"type": "null"}]})):
        assert found is arguments
    elif read is None:
        assert found["value"] == {"a": {"b": []}}
    else:
        assert found == {"value": read, "beside": "[1]"}
