"""The parts that keep secrets apart: shapes, forms, the vault, declarations, comparison."""

# Hints and values of any kind are made here.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false

import base64
import html
import json
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, NewType, NotRequired

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AliasChoices, BaseModel, Field, RootModel, SecretBytes, SecretStr
from typing_extensions import TypeAliasType, TypedDict

from laneway import Effect, Tool, tool
from laneway.engine.checking import Checked
from laneway.engine.providers import FORMATS, parse
from laneway.engine.secrets.alike import alike
from laneway.engine.secrets.facts import sealed_fact
from laneway.engine.secrets.forms import forms
from laneway.engine.secrets.hints import of_hint, opened
from laneway.engine.secrets.losses import without
from laneway.engine.secrets.marks import MARK, Secret, holds_mark
from laneway.engine.secrets.shapes import (
    Shape,
    hidden,
    keep_nothing,
    merged,
    of_path,
    of_schema,
    secrets_in,
)
from laneway.engine.secrets.vault import Vault, texts
from laneway.errors import ToolError
from laneway.facts import HolderStopped, MessageSaid, RunOpened, TurnSubmitted
from laneway.ids import CallId, RunId
from laneway.journal.lease import this_driver
from laneway.testing.sample_facts import every_kind_of_fact
from tests.wires import WIRES, Said, answer

# Shapes


class Login(BaseModel):
    user: str
    password: SecretStr = Field(alias="pass", validation_alias=AliasChoices("pass", "word"))


class Node(BaseModel):
    name: str
    key: Annotated[str, Secret] = ""
    below: "list[Node]" = []


class Plain(BaseModel):
    below: "list[Plain]" = []


Keys = RootModel[dict[str, SecretStr]]


@dataclass
class Record:
    key: Annotated[str, Secret()]
    open: int


class Row(NamedTuple):
    key: Annotated[str, Secret]
    open: int


class Typed(TypedDict):
    key: NotRequired[Annotated[str, Secret]]
    open: int


class Renamed(msgspec.Struct, rename="camel"):
    the_key: Annotated[str, Secret]
    is_open: int = 1


class Unresolved:
    pass


Alias = TypeAliasType("Alias", Annotated[str, Secret])
New = NewType("New", SecretStr)


def shown(value: Any, shape: Shape | None) -> Any:
    assert shape is not None
    return hidden(value, shape, keep_nothing)


@pytest.mark.parametrize(
    ("hint", "value", "told"),
    [
        (SecretStr, "x", MARK),
        (SecretBytes | None, None, None),
        (SecretBytes | None, "x", MARK),
        (Annotated[int, Secret], 5, MARK),
        (Alias, "x", MARK),
        (New, "x", MARK),
        (list[SecretStr], ["x", "y"], MARK),
        (list[Login], [{"user": "u", "pass": "x"}], [{"user": "u", "pass": MARK}]),
        (Login, {"word": "x", "password": "y"}, {"word": MARK, "password": MARK}),
        (Login, '{"pass": "x"}', MARK),
        (tuple[int, Login], [1, {"pass": "x"}], [1, {"pass": MARK}]),
        (dict[str, Login], {"a": {"pass": "x"}, "b": 1}, {"a": {"pass": MARK}, "b": 1}),
        (Mapping[str, SecretStr], {"a": "x"}, {"a": MARK}),
        (Keys, {"a": "x"}, {"a": MARK}),
        (Record, {"key": "x", "open": 1}, {"key": MARK, "open": 1}),
        (Row, ["x", 1], MARK),
        (Typed, {"key": "x", "open": 1}, {"key": MARK, "open": 1}),
        (Renamed, {"theKey": "x", "isOpen": 1}, {"theKey": MARK, "isOpen": 1}),
        (
            Node,
            {"name": "n", "key": "x", "below": [{"name": "n"}, 3]},
            {"name": "n", "key": MARK, "below": MARK},
        ),
    ],
)
def test_an_annotation_says_what_is_secret(hint: Any, value: Any, told: Any) -> None:
    assert shown(value, of_hint(hint)) == told


@pytest.mark.parametrize("hint", [None, str, Any, list, dict[str, int], Plain, 5, Unresolved])
def test_an_annotation_without_secrets_costs_nothing(hint: Any) -> None:
    assert of_hint(hint) is None


def test_an_annotation_of_a_class_that_cannot_be_resolved_tells_nothing() -> None:
    @dataclass
    class Broken:
        key: "Nowhere"  # type: ignore[name-defined]  # noqa: F821

    assert of_hint(Broken) is None


SCHEMA: dict[str, Any] = {
    "properties": {
        "key": {"allOf": [{"type": "string"}, {"writeOnly": True}]},
        "open": {"type": "string"},
        "pair": {"prefixItems": [{"type": "string"}, {"properties": {"b": {"writeOnly": True}}}]},
        "any": {"patternProperties": {"^x": {"format": "password"}}},
        "when": {"dependentSchemas": {"a": {"properties": {"b": {"writeOnly": True}}}}},
        "tree": {"$ref": "#/$defs/a~1b/1"},
        "nowhere": {"$ref": "#/$defs/none/x"},
        "list": {"items": [True, {"properties": {"c": {"writeOnly": True}}}]},
    },
    "$defs": {
        "a/b": [1, {"properties": {"k": {"writeOnly": True}, "t": {"$ref": "#/$defs/a~1b/1"}}}]
    },
}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"key": "x", "open": "y"}, {"key": MARK, "open": "y"}),
        ({"pair": ["x", {"b": 1}]}, {"pair": [MARK, {"b": MARK}]}),
        ({"any": {"x1": 1, "y": 2}}, {"any": {"x1": MARK, "y": MARK}}),
        ({"when": {"a": 1, "b": 2}}, {"when": {"a": 1, "b": MARK}}),
        ({"tree": {"k": 1, "n": 2, "t": {"n": 1}}}, {"tree": {"k": MARK, "n": 2, "t": MARK}}),
        ({"list": [1, {"c": 1, "d": 2}]}, {"list": [1, {"c": MARK, "d": 2}]}),
        ({"nowhere": "x"}, {"nowhere": "x"}),
    ],
)
def test_a_schema_says_what_is_secret(value: Any, told: Any) -> None:
    assert shown(value, of_schema(SCHEMA)) == told


def test_a_schema_without_secrets_costs_nothing() -> None:
    assert of_schema({"properties": {"a": {"type": ["string", "null"]}}, "items": [1]}) is None


def test_what_is_named_and_what_has_any_name_are_both_hidden() -> None:
    shape = of_path(["a", "b"])
    shape.add(of_path(["*", "c"]))

    assert shown({"a": {"b": 1, "c": 2}, "z": {"c": 3, "b": 4}}, _pruned(shape)) == {
        "a": {"b": MARK, "c": MARK},
        "z": {"c": MARK, "b": 4},
    }


def _pruned(shape: Shape) -> Shape | None:
    return merged(shape, None)


def test_what_is_hidden_can_be_listed_and_nothing_is_copied_without_need() -> None:
    shape = of_schema(SCHEMA)
    assert shape is not None
    value = {"key": "x", "tree": {"k": [1]}, "pair": [{"b": None}]}
    free = {"open": "y", "list": [1]}

    assert list(secrets_in(value, shape, keep_nothing)) == ["x", [1]]
    assert hidden(free, shape, keep_nothing) is free


# Declarations


async def enter(user: str, login: dict[str, Any]) -> dict[str, Any]:
    return {"user": user, **login}


def test_paths_name_secret_fields_of_arguments_and_of_the_result() -> None:
    one = tool(enter, effect=Effect.READ, secret=("login.items[].pin", "return.token"))

    assert one.spec.secret == {"login.items[].pin", "return.token"}
    given = {"user": "u", "login": {"items": [{"pin": 1, "n": 2}]}}
    assert shown(given, one.secret_arguments) == {
        "user": "u",
        "login": {"items": [{"pin": MARK, "n": 2}]},
    }
    assert shown({"token": "x", "user": "u"}, one.secret_result) == {"token": MARK, "user": "u"}
    assert one.spec.version != tool(enter, effect=Effect.READ).spec.version


@pytest.mark.parametrize(
    ("secret", "told"),
    [
        ("login", "secret='login' is a text; give a tuple of paths"),
        (["logn.pin"], "secret= names 'logn', no parameter of it (it has: login, user); what a "),
        (["login..pin"], "secret= names 'login..pin', no path; write field.field"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused(secret: Any, told: str) -> None:
    with pytest.raises(ToolError) as refused:
        tool(enter, secret=secret)

    assert told in str(refused.value)


def test_coercion_beside_a_secret_leaves_the_secret_as_it_was_sent() -> None:
    class Account(BaseModel):
        n: int
        key: SecretStr

    async def store(account: Account, m: int) -> None:
        return None

    checked = tool(store).check({"account": {"n": "5", "key": "the key"}, "m": "7"})

    assert isinstance(checked, Checked)
    assert checked.arguments == {"account": {"n": "5", "key": "the key"}, "m": 7}
    assert checked.values["account"].key.get_secret_value() == "the key"


# Results


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (SecretStr("x"), "x"),
        (SecretBytes(b"x"), b"x"),
        ({"a": (SecretStr("x"), {1})}, {"a": ["x", [1]]}),
        (Login.model_validate({"user": "u", "pass": "x"}), {"user": "u", "password": "x"}),
        (Keys({"a": SecretStr("x")}), {"a": "x"}),
        (
            Node(name="n", below=[Node(name="m")]),
            Node(name="n", below=[Node(name="m")]).model_dump(),
        ),
        (Record("k", 1), {"key": "k", "open": 1}),
        (Renamed("k"), Renamed("k")),
        (5, 5),
    ],
)
def test_secret_objects_in_a_result_are_opened(value: Any, told: Any) -> None:
    assert opened(value) == told


def test_secret_objects_are_found_in_structs_and_dataclasses_within_models() -> None:
    class Held(msgspec.Struct, rename="camel"):
        the_key: SecretStr

    @dataclass
    class Wrapped:
        held: list[Any]

    class Outer(BaseModel):
        model_config = {"arbitrary_types_allowed": True, "serialize_by_alias": True}
        wrapped: Any = Field(serialization_alias="w")
        sets: set[int] = {1}

    outer = Outer(wrapped=Wrapped([{"a": SecretStr("x")}]))

    assert opened(Held(SecretStr("x"))) == {"theKey": "x"}
    assert opened(outer)["w"] == {"held": [{"a": "x"}]}


# Forms and the vault

SOME = 'p/ä"\\ß&+ 7<'


def said(secret: str) -> list[str]:
    raw = secret.encode()
    return [
        secret,
        json.dumps({"a": secret}),
        json.dumps({"a": secret}, ensure_ascii=False),
        json.dumps({"a": json.dumps([secret])}),
        repr({"a": secret}),
        repr(raw),
        urllib.parse.urlencode({"q": secret}),
        urllib.parse.quote(secret),
        urllib.parse.quote(secret).lower().replace(secret.lower(), secret),
        html.escape(secret),
        raw.hex(),
        *(base64.b64encode(b"u:" * n + raw + b"!").decode() for n in range(3)),
        *(base64.b64encode(b"." * n + raw).decode() for n in range(3)),
        base64.urlsafe_b64encode(raw).decode(),
    ]


@pytest.mark.parametrize("text", said(SOME))
def test_a_secret_is_found_in_whatever_form_it_is_said(text: str) -> None:
    vault = Vault()
    vault.learn([SOME])

    assert MARK in vault.scrub(f"before {text} behind")


@given(st.text(min_size=4), st.text(), st.text())
def test_no_text_holds_a_secret_after_it_was_scrubbed(
    secret: str, before: str, behind: str
) -> None:
    vault = Vault()
    vault.learn([secret])
    for text in texts(secret):
        found = vault.scrub(before + text + behind)
        left = found.replace(MARK, "\ufdd0")

        assert not any(form in left for form in forms(text))
        assert vault.scrub(found) == found


def test_what_is_too_short_is_not_searched_for() -> None:
    vault = Vault()
    vault.learn(["abc", None, 12345, object()])

    assert not vault
    assert vault.scrub("abc 12345") == "abc 12345"


def test_a_secret_that_is_part_of_the_mark_does_not_break_it() -> None:
    vault = Vault()
    vault.learn(["secret", "kept"])

    assert vault.scrub(f"a secret that is kept: {MARK}") == f"a {MARK} that is {MARK}: {MARK}"


@pytest.mark.parametrize("cut", range(4, 11))
def test_what_is_left_of_a_secret_at_a_cut_is_replaced_too(cut: int) -> None:
    vault = Vault()
    vault.learn(["0123456789a"])
    whole = "0123456789a"

    assert vault.scrub(f"at {whole[:cut]}… (9 more)") == f"at {MARK}… (9 more)"
    assert vault.scrub(f"«…{whole[-cut:]}»") == f"«…{MARK}»"
    assert vault.scrub("nothing 012… of it") == "nothing 012… of it"


def test_keys_and_deep_values_are_scrubbed_and_the_rest_is_the_same_object() -> None:
    vault = Vault()
    vault.learn([{"a": ["deep-secret"]}])
    free = {"a": ["b", {"c": 1}], "d": None}
    value = {"deep-secret": 1, "x": ["a deep-secret", free]}

    assert vault.scrubbed(free) is free
    assert vault.scrubbed(value) == {MARK: 1, "x": [f"a {MARK}", free]}
    assert vault.scrubbed({"id": "deep-secret", "b": "deep-secret"}, leave=["id"]) == {
        "id": "deep-secret",
        "b": MARK,
    }
    assert "deep" not in repr(vault)


def test_texts_are_found_in_objects_that_hosts_bind() -> None:
    value = [
        Record("record-key", 1),
        Renamed("struct-key"),
        Login.model_validate({"user": "the-user", "pass": "the-pass"}),
        {"set-member"},
        b"\xff\xfe\xfd",
    ]

    assert set(texts(value)) == {
        "record-key",
        "struct-key",
        "the-user",
        "the-pass",
        "set-member",
        "\\xff\\xfe\\xfd",
        "fffefd",
        "//79",
    }


def test_what_holds_itself_is_looked_into_only_so_far() -> None:
    ring: list[Any] = ["in-a-ring"]
    ring.append(ring)

    assert set(texts(ring)) == {"in-a-ring"}


def test_short_values_are_left_out_of_the_message_of_one_failure() -> None:
    message = "a: met \"ab\"; b: met 7, not 17 or 7.5; c: met true; d: met 'ab'."

    assert without(message, [{"x": "ab"}, [7, None], True]) == (
        f"a: met {MARK}; b: met {MARK}, not 17 or 7.5; c: met {MARK}; d: met {MARK}."
    )


def test_a_mark_is_found_wherever_it_stands() -> None:
    assert holds_mark({"a": [1, f"x{MARK}"]})
    assert holds_mark({MARK: 1})
    assert not holds_mark({"a": [1, None, "x", {"b": 2.5}]})
    assert not holds_mark(5)


# Facts


@pytest.mark.parametrize("fact", every_kind_of_fact(), ids=lambda fact: type(fact).__name__)
def test_a_fact_without_secrets_is_kept_as_it_is(fact: Any) -> None:
    vault = Vault()
    vault.learn(["found-in-no-fact"])

    assert sealed_fact(fact, vault) is fact


def test_ids_and_names_of_a_message_stay_and_signed_blocks_that_change_go() -> None:
    vault = Vault()
    vault.learn(["toolu_1x", "text"])
    message = {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "a text", "signature": "text"},
            {"type": "thinking", "thinking": "other", "signature": "text"},
            {"type": "tool_use", "id": "toolu_1x", "name": "text", "input": {"a": "toolu_1x"}},
        ],
    }
    fact = TurnSubmitted(turn=1, provider="anthropic-messages", message=message)

    found = sealed_fact(fact, vault)

    assert isinstance(found, TurnSubmitted)
    assert found.message["content"] == [
        {"type": "thinking", "thinking": "other", "signature": "text"},
        {"type": "tool_use", "id": "toolu_1x", "name": "text", "input": {"a": MARK}},
    ]
    assert alike(found.message, message)


def test_each_fact_with_a_text_of_somebody_elses_is_scrubbed() -> None:
    vault = Vault()
    vault.learn(["the-secret"])
    late = HolderStopped(call=CallId("t1.1"), late="the-secret")
    said_ = MessageSaid(message="the-secret")
    opened_ = RunOpened(run=RunId("the-secret"), driver=this_driver())

    assert sealed_fact(late, vault) == HolderStopped(call=CallId("t1.1"), late=MARK)
    assert sealed_fact(said_, vault) == MessageSaid(message=MARK)
    assert sealed_fact(opened_, vault) is opened_


# Comparing


@pytest.mark.parametrize(
    ("kept", "other", "same"),
    [
        ({"a": MARK}, {"a": {"b": 1}}, True),
        (f"x {MARK} y", "x anything\nat all y", True),
        (f"x {MARK} y", "x y", False),
        (f'{{"a":"{MARK}"}}', '{ "a" : "x" }', True),
        (f'{{"a":"{MARK}","b":1}}', '{"a":"x"}', False),
        ([1, MARK], [1, 2], True),
        ([1, MARK], [1], False),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1}, {"b": 1}, False),
        ("x", "y", False),
        ("x", 5, False),
        (f"{MARK}!", 5, False),
    ],
)
def test_what_is_kept_with_marks_is_compared_by_the_rest(kept: Any, other: Any, same: bool) -> None:
    assert alike(kept, other) is same


# Messages


MESSAGES: dict[str, dict[str, Any]] = {
    wire: parse(answer(wire, [Said("a", "x", {"k": 1}), Said("b", "x", {"k": 1})])).message
    for wire in WIRES
} | {
    "anthropic-messages": {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "t"},
            {"type": "tool_use", "id": "a", "name": "x", "input": {"k": 1}},
            {"type": "tool_use", "id": "b", "name": "x", "input": {"k": 1}},
        ],
    },
    "openai-chat": {
        "role": "assistant",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "x", "arguments": '{"k": 1}'}},
            {"id": "b", "type": "custom", "custom": {"name": "x", "input": "k"}},
        ],
    },
    "plan": {
        "role": "assistant",
        "calls": [
            {"id": "a", "tool": "x", "arguments": {"k": 1}},
            {"id": "b", "tool": "x", "arguments": {"k": 1}},
        ],
    },
}


@pytest.mark.parametrize("wire", FORMATS, ids=lambda wire: wire.name)
def test_each_format_writes_other_arguments_into_some_calls(wire: Any) -> None:
    message = MESSAGES[wire.name]
    before = json.dumps(message)

    one = json.dumps(wire.with_arguments(message, {"a": {"k": "m"}})).replace('\\"', '"')
    other = json.dumps(wire.with_arguments(message, {"b": {"input": "m"}})).replace('\\"', '"')

    assert json.dumps(message) == before
    assert '{"k":"m"}' in one.replace(" ", "")
    assert '"input":"m"' in other.replace(" ", "")


def test_a_tool_of_a_schema_takes_marks_of_its_function_too() -> None:
    async def store(key: Annotated[str, Secret]) -> SecretStr:
        return SecretStr(key)

    one = Tool.from_schema(
        store, schema={"properties": {"key": {"default": "k"}}, "required": ["key"]}
    )

    assert one.secret_arguments is not None
    assert one.secret_result is not None
    assert one.spec.schema["properties"]["key"] == {}
