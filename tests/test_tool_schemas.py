# Schemas are JSON, and tools are lambdas.
# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false

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
        (
            {"type": "array", "prefixItems": [{}, ARRAY], "items": OBJECT},
            ["[]", "[1]"],
            ["[]", [1]],
        ),
        ({"prefixItems": [{}], "items": OBJECT}, ["[]", '{"a": 1}'], ["[]", {"a": 1}]),
        ({"items": [{}, ARRAY], "additionalItems": OBJECT}, ["", "[]", "{}"], ["", [], {}]),
        ({"type": "object", "additionalProperties": ARRAY}, {"a": "[1]"}, {"a": [1]}),
        ({"patternProperties": {"^a": {}}, "additionalProperties": ARRAY}, {"a": "[1]"}, None),
        (
            fields(a={"anyOf": [fields(b=ARRAY), {"type": "null"}]}),
            {"a": {"b": "[]"}},
            {"a": {"b": []}},
        ),
        ({"anyOf": [fields(b=ARRAY), {"type": "null"}]}, {"b": "[]"}, {"b": []}),
        ({"anyOf": [fields(b=ARRAY), fields(b={"type": "string"})]}, {"b": "[]"}, None),
        ({"anyOf": [fields(b=ARRAY), fields(c=ARRAY)]}, {"b": "[]"}, None),
        (
            {"oneOf": [ROOM, TABLE]},
            {"kind": "room", "guests": "[]"},
            {"kind": "room", "guests": []},
        ),
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

    if read is None:
        assert found is arguments
    else:
        assert found == {"value": read, "beside": "[1]"}


def test_a_schema_that_goes_round_for_ever_is_given_up() -> None:
    loop = {"anyOf": [{"$ref": "#/$defs/loop"}] * 3}
    root = fields(value=loop) | {"$defs": {"loop": loop}}
    arguments = {"value": {"deep": [{"deeper": "[1]"}]}, "text": "[1]"}

    assert unwrapped(arguments, root) is arguments


@given(st.text() | st.lists(st.integers()).map(json.dumps) | st.just('{"a": "[1]"}'))
def test_a_field_that_may_be_a_text_is_never_turned_into_anything_else(text: str) -> None:
    schema = fields(
        a={"type": "string"},
        b={"anyOf": [{"type": "string"}, ARRAY]},
        c={"type": ["string", "object"]},
        d={},
        e=ARRAY,
    )
    arguments = {"a": text, "b": text, "c": text, "d": text, "e": 5}

    assert unwrapped(arguments, schema) is arguments
    assert passed(make(fields(a={"type": "string"}, n=ARRAY)), {"a": text, "n": "[1]"}) == {
        "a": text,
        "n": [1],
    }


# The check


def test_arguments_that_fit_are_handed_on_as_they_were_sent() -> None:
    one = make(fields(n={"type": "integer"}, words=ARRAY))
    arguments = {"n": 1, "words": [["a"]], "more": True}

    checked = one.check(arguments)

    assert isinstance(checked, Checked)
    assert checked.arguments is arguments
    first = checked.call_with({})
    first["words"][0].append("changed")
    assert checked.call_with({}) == {"n": 1, "words": [["a"]], "more": True}


@pytest.mark.parametrize(
    ("schema", "arguments", "told"),
    [
        (fields(a={"type": "string"}), {"a": 5}, "a: should be of type string, met 5"),
        (fields(a={"type": ["string", "null"]}), {"a": 5}, "of type null or string, met 5"),
        (fields() | {"required": ["a", "b"]}, {}, "a is missing; b is missing"),
        (fields(a=fields() | {"required": ["b"]}), {"a": {}}, "a.b is missing"),
        (fields(a={"enum": ["x", "y"]}), {"a": "z"}, 'a: should be one of "x", "y", met "z"'),
        (fields(a={"minimum": 3}), {"a": 1}, "a: it is less than the minimum of 3, met 1"),
        (fields(a={"anyOf": [ARRAY, OBJECT]}), {"a": 1}, "a: fits none of the forms that are"),
        (fields(a={"oneOf": [ARRAY, OBJECT]}), {"a": 1}, "a: fits none of the forms that are"),
        (fields(a={"pattern": "x" * 300}), {"a": "y"}, "…, met"),
        (fields(a=fields() | {"additionalProperties": False}), {"a": {"b": 1}}, "a.b is unknown"),
        (fields() | {"additionalProperties": False}, {"b": 1}, "b is unknown"),
        (fields() | {"minProperties": 1}, {}, "the arguments: it has less than 1 property"),
        (fields(a=False), {"a": 1}, "a: "),
    ],
)
def test_every_fault_is_named_with_what_was_expected_and_met(
    schema: dict[str, Any], arguments: dict[str, Any], told: str
) -> None:
    assert told in refused(make(schema), arguments)


def test_a_long_value_is_shown_by_its_beginning() -> None:
    message = refused(make(fields(a={"type": "integer"})), {"a": "y" * 10_000})

    assert 'met "yyyy' in message
    assert len(message) < 200


def test_an_argument_that_the_function_does_not_take_is_unknown() -> None:
    def save(steps: list[str], note: str = "") -> None: ...

    one = make(fields(steps=ARRAY) | {"required": ["steps"]}, save)

    assert passed(one, {"steps": []}) == {"steps": []}
    assert passed(one, {"steps": "[]"}) == {"steps": []}
    assert passed(one, {"steps": [], "note": "n"}) == {"steps": [], "note": "n"}
    assert "more is unknown" in refused(one, {"steps": [], "more": 1})
    assert "steps: should be of type array, met 1" in refused(one, {"steps": 1})


def test_an_unknown_field_is_told_once() -> None:
    def save(a: int = 1) -> None: ...

    message = refused(make(fields(a={}) | {"additionalProperties": False}, save), {"b": 1})

    assert message.count("b is unknown") == 1


def test_what_the_host_sets_is_taken_out_of_the_schema_and_cannot_be_sent() -> None:
    schema = fields(user={"type": "string"}, q={"type": "string"}) | {"required": ["user", "q"]}
    one = make(schema, bound=["user"])
    free = make({"type": "object"}, bound=["user"])

    checked = one.check({"q": "x"})

    assert one.spec.schema == fields(q={"type": "string"}) | {"required": ["q"]}
    assert isinstance(checked, Checked)
    assert checked.call_with({"user": "u"}) == {"q": "x", "user": "u"}
    assert "user is set by the host and must be left out" in refused(one, {"q": "x", "user": "r"})
    assert "user is set by the host" in refused(free, {"user": "r"})
    assert schema["required"] == ["user", "q"]


def test_a_strict_tool_unwraps_nothing_and_knows_no_other_fields() -> None:
    one = make(fields(items={"type": "array", "items": fields(a={})}), strict=True)

    assert passed(one, {"items": [{"a": 1}]}) == {"items": [{"a": 1}]}
    assert "items: should be of type array" in refused(one, {"items": "[]"})
    assert "items[0].b is unknown" in refused(one, {"items": [{"b": 1}]})
    assert "more is unknown" in refused(one, {"more": 1})
    assert one.spec.schema["additionalProperties"] is False


def test_only_objects_whose_fields_are_all_listed_are_closed() -> None:
    schema = {
        "type": "object",
        "properties": {
            "plain": fields(a={}),
            "open": fields(a={}) | {"additionalProperties": True},
            "both": fields(a={}) | {"allOf": [fields(b={})]},
            "either": {"anyOf": [fields(a={}), {"type": "null"}, True]},
            "pair": {"prefixItems": [fields(a={})], "items": fields(b={})},
            "map": {"additionalProperties": fields(a={})},
        },
        "$defs": {"properties": fields(a={})},
    }

    found = closed(schema)
    listed = fields(a={}) | {"additionalProperties": False}

    assert found["additionalProperties"] is False
    assert found["properties"]["plain"] == listed
    assert found["properties"]["open"] == schema["properties"]["open"]  # type: ignore[index]
    assert found["properties"]["both"] == schema["properties"]["both"]  # type: ignore[index]
    assert found["properties"]["either"]["anyOf"] == [listed, {"type": "null"}, True]
    assert found["properties"]["pair"]["prefixItems"] == [listed]
    assert found["properties"]["pair"]["items"]["additionalProperties"] is False
    assert found["properties"]["map"] == {"additionalProperties": listed}
    assert found["$defs"]["properties"] == listed


def test_arguments_that_are_no_json_are_refused_not_raised() -> None:
    one = make(fields(a={"type": "integer"}))

    assert "the arguments are no plain JSON" in refused(one, {"a": "\ud800"})
    assert isinstance(one.check_unresolved({"a": "\ud800", "b": "${x}"}, {"b"}), Failure)
    assert "$.a is of type object" in refused(one, {"a": object()})


# While references are unresolved


CONDITIONAL = {
    "type": "object",
    "properties": {"kind": {"type": "string"}, "size": {"type": "integer"}, "list": ARRAY},
    "required": ["kind"],
    "if": {"properties": {"kind": {"const": "box"}}},
    "then": {"required": ["size"], "properties": {"size": {"minimum": 5}}},
    "else": {"properties": {"size": {"maximum": 1}}},
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("arguments", "unresolved", "known"),
    [
        ({"kind": "${a}"}, {"kind"}, {"kind": "${a}"}),
        ({"kind": "${a}", "size": 9}, {"kind"}, {"kind": "${a}", "size": 9}),
        ({"kind": "box", "size": {"$from": "a"}}, {"size"}, None),
        ({"kind": "${a}", "list": "[1]"}, {"kind"}, {"kind": "${a}", "list": [1]}),
        ({"kind": "x", "list": "${a}"}, {"list"}, None),
        ({"kind": "x", "list": '["${a}"]'}, {"list"}, {"kind": "x", "list": ["${a}"]}),
    ],
)
def test_what_depends_on_a_reference_is_left_open(
    arguments: dict[str, Any], unresolved: set[str], known: dict[str, Any] | None
) -> None:
    checked = make(CONDITIONAL).check_unresolved(arguments, unresolved)

    assert isinstance(checked, Checked), checked
    assert checked.arguments == (known or arguments)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"size": "${a}"}, "kind is missing"),
        ({"kind": 5, "size": "${a}"}, "kind: should be of type string, met 5"),
        ({"kind": "x", "size": "${a}", "more": 1}, "more is unknown"),
        ({"kind": "x", "size": "${a}", "list": "see"}, "list: should be of type array"),
    ],
)
def test_faults_that_are_certain_are_told_before_references_are_resolved(
    arguments: dict[str, Any], told: str
) -> None:
    failure = make(CONDITIONAL).check_unresolved(arguments, {"size"})

    assert isinstance(failure, Failure)
    assert told in failure.message


def test_a_strict_tool_unwraps_nothing_while_references_wait() -> None:
    one = make(fields(a=ARRAY, b={}), strict=True)

    assert isinstance(one.check_unresolved({"a": "[1]", "b": "${x}"}, {"b"}), Failure)


# What is refused when a tool is made


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (5, "its schema is of type int; give a dict"),
        ({"type": "array"}, "its schema is of type 'array'; arguments are always an object"),
        (
            {"properties": {"a": {"default": object()}}},
            "its schema is not JSON: $.properties.a.def",
        ),
        (
            {"type": "object", "properties": []},
            'not valid at $.properties: it is not of type "object", met []',
        ),
        (fields(a={"type": "text"}), "not valid at $.properties.a.type: it is not valid"),
        (fields(a={"minimum": "x"}), "not valid at $.properties.a.minimum: "),
        (fields(a={"pattern": "("}), "not valid at $.properties.a.pattern: "),
        (fields(a={"$ref": "#/$defs/x"}), 'not valid at $.properties.a["$ref"]: Pointer'),
        (
            fields(a={"anyOf": [{}, {"$ref": "http://example.com/x.json"}]}),
            'not valid at $.properties.a.anyOf[1]["$ref"]: ',
        ),
        (fields(a={"$ref": "http://example.com/x.json"}), "would have to be fetched; put what it"),
        (fields(a={"$ref": "file:///etc/passwd"}), "would have to be fetched"),
        ({"$schema": "http://nowhere/"}, "not valid at $: Unknown meta-schema"),
    ],
)
def test_a_schema_that_is_none_is_refused_with_the_place(schema: Any, told: str) -> None:
    with pytest.raises(ToolError) as raised:
        make(schema)

    assert "tool 'raw': " in str(raised.value)
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda b: b, "its schema has 'a', which its function does not take"),
        (lambda a: a, "its function needs 'a', which its schema does not require"),
        (lambda a=1, *, c: a, "its function needs 'c', which its schema does not have"),
    ],
)
def test_a_function_that_the_schema_does_not_match_is_refused(
    function: Callable[..., Any], told: str
) -> None:
    with pytest.raises(ToolError) as raised:
        make(fields(a={}), function)

    assert told in str(raised.value)


def test_a_required_field_may_be_required_by_a_part_of_the_schema() -> None:
    one = make(fields(a={}) | {"allOf": [{"required": ["a"]}]}, lambda a: a)

    assert "a is missing" in refused(one, {})


def test_a_schema_is_copied_when_the_tool_is_made() -> None:
    schema = fields(a={"type": "string"})
    one = make(schema)

    schema["properties"].clear()

    assert one.spec.schema["properties"] == {"a": {"type": "string"}}


# Recorded material


@pytest.mark.parametrize("name", ["jsonschema_2020_12.jsonl", "jsonschema_draft7.jsonl"])
def test_the_published_test_suite_of_json_schema_is_answered_as_it_wants(name: str) -> None:
    counted: Counter[bool] = Counter()
    drafts = {"jsonschema_draft7.jsonl": "http://json-schema.org/draft-07/schema#"}
    for group in records(name):
        schema = group["schema"]
        if group.get("optional") or "$" in json.dumps(schema).replace("$schema", ""):
            continue
        root = fields(value=drop_schema(schema))
        if name in drafts:
            root["$schema"] = drafts[name]
        one = make(root)
        for test in group["tests"]:
            checked = one.check({"value": test["data"]})
            fits = isinstance(checked, Checked) and checked.arguments["value"] is test["data"]
            assert fits == test["valid"], (group["id"], test)
            counted[fits] += 1
    print(f"{name}: {counted[True]} fit, {counted[False]} do not")  # the count is asked for
    assert sum(counted.values()) > 200


def drop_schema(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {word: one for word, one in schema.items() if word != "$schema"}
    return schema


def test_parallel_calls_fit_their_recorded_schemas_but_for_the_named_ones() -> None:
    counted: Counter[str] = Counter()
    for record in records("calls_parallel.jsonl"):
        tools = {one["name"]: one for one in record["tools"]}
        wrong = {fault[0] for fault in record.get("schema_errors", ())}
        for call in record["calls"]:
            given_tool = tools[call["name"]]
            one = make(schema_of(given_tool), name=call["name"].replace(".", "_")[:64])
            fits = isinstance(one.check(call["arguments"]), Checked)
            assert fits == (call["id"] not in wrong), (record["id"], call)
            counted["fit" if fits else "do not"] += 1
    print(f"calls_parallel: {dict(counted)}")  # as above
    assert counted["fit"] > 200


def schema_of(given_tool: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = given_tool.get("parameters") or given_tool["schema"]
    return found
