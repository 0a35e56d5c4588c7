# Tools are made of lambdas and of functions of any kind.
# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false

import asyncio
import enum
import functools
import inspect
import math
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, PlainSerializer, SecretStr

from laneway.effects import Effect
from laneway.engine.context import Stop, ToolContext
from laneway.engine.plain import MAX_DEPTH
from laneway.engine.tools import Bound, Checked, Tool, tool
from laneway.errors import ToolError, UsageError
from laneway.ids import CallId, RunId
from laneway.lanes.shell import shell_claims
from laneway.outcomes import Code, Failure, Happened


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Step(BaseModel):
    """One step."""

    title: str
    times: int = 1


@dataclass
class Meeting:
    day: date
    guests: list[str]


def passed(one: Tool, arguments: dict[str, Any]) -> Checked:
    checked = one.check(arguments)
    assert isinstance(checked, Checked), checked
    return checked


def refused(one: Tool, arguments: dict[str, Any]) -> Failure:
    failure = one.check(arguments)
    assert isinstance(failure, Failure), failure
    assert failure.code is Code.INVALID_ARGUMENTS
    assert failure.happened is Happened.NOTHING
    assert not failure.retry
    return failure


def make(function: Callable[..., Any], **declarations: Any) -> Tool:
    return Tool.of(function, **declarations)


# What the function says


@tool(effect=Effect.WRITE, claims=["write file:{path}"], timeout=20)
async def edit_file(  # noqa: D417  # a docstring as people write them
    path: Annotated[str, Field(description="Which file.")],
    old: str,
    new: str = "",
    *,
    count: int | None = None,
    colour: Colour = Colour.RED,
    steps: list[Step] = [],  # noqa: B006  # tools in the wild do this
) -> str:
    """Replace text in
    a file.

    And more that the model need not know.

    Args:
        path: not used, since the annotation says more.
        old: What to replace,
            exactly once.
        *new (str): By what.

    Returns:
        What was done.
    """  # noqa: D205  # as above
    return f"{path}:{old}:{new}:{count}:{colour}:{steps}"


def test_the_schema_comes_from_the_signature_and_the_docstring() -> None:
    assert edit_file.spec.name == "edit_file"
    assert edit_file.spec.description == "Replace text in a file."
    assert edit_file.spec.schema == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Which file."},
            "old": {"type": "string", "description": "What to replace, exactly once."},
            "new": {"type": "string", "description": "By what.", "default": ""},
            "count": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
            "colour": {"$ref": "#/$defs/Colour", "default": "red"},
            "steps": {"type": "array", "items": {"$ref": "#/$defs/Step"}, "default": []},
        },
        "required": ["path", "old"],
        "additionalProperties": False,
        "$defs": {
            "Colour": {"enum": ["red", "blue"], "title": "Colour", "type": "string"},
            "Step": {
                "type": "object",
                "description": "One step.",
                "title": "Step",
                "properties": {
                    "title": {"type": "string"},
                    "times": {"type": "integer", "default": 1},
                },
                "required": ["title"],
            },
        },
    }


def test_the_spec_says_what_was_declared() -> None:
    spec = edit_file.spec

    assert spec.effect is Effect.WRITE
    assert spec.declared
    assert not spec.idempotent
    assert spec.claims == ("write file:{path}",)
    assert spec.timeout_seconds == 20.0
    assert not spec.sync
    assert not edit_file.wants_context
    assert spec.importable == f"{__name__}:edit_file"
    assert repr(edit_file) == "<Tool edit_file: write>"


def test_a_decorated_function_can_be_called_as_before() -> None:
    assert asyncio.run(edit_file("a", old="b")) == "a:b::None:Colour.RED:[]"
    assert edit_file.__name__ == "edit_file"
    assert list(inspect.signature(edit_file).parameters)[:2] == ["path", "old"]


@tool
def bare(anything, times=2):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Do it."""
    return anything * times


def test_a_tool_of_which_nothing_is_said_is_the_worst_case() -> None:
    spec = bare.spec

    assert not spec.declared
    assert spec.effect is Effect.EXTERNAL
    assert not spec.idempotent
    assert spec.timeout_seconds is None
    assert spec.sync
    assert bare.claims is None
    assert bare(2) == 4
    assert passed(bare, {"anything": [1]}).arguments == {"anything": [1]}
    assert spec.schema["properties"] == {"anything": {}, "times": {"default": 2}}


@pytest.mark.parametrize(
    ("declarations", "declared", "idempotent"),
    [
        ({"effect": Effect.PURE}, True, True),
        ({"effect": Effect.READ}, True, True),
        ({"effect": Effect.READ, "idempotent": True}, True, True),
        ({"effect": Effect.WRITE}, True, False),
        ({"effect": Effect.WRITE, "idempotent": True}, True, True),
        ({"idempotent": True}, True, True),
        ({"claims": []}, True, False),
        ({"timeout": 5, "approval": True, "retries": 2}, False, False),
    ],
)
def test_effect_claims_and_idempotence_are_what_counts_as_declared(
    declarations: dict[str, Any], declared: bool, idempotent: bool
) -> None:
    spec = make(lambda: None, name="one", **declarations).spec

    assert spec.declared is declared
    assert spec.idempotent is idempotent


def test_every_kind_of_callable_is_told_apart() -> None:
    class Client:
        async def fetch(self, url: str) -> str:
            """Fetch it."""
            return url

        def look(self, url: str) -> str:
            return url

        async def __call__(self, url: str) -> str:
            return url

    async def base(prefix: str, url: str) -> str:
        return prefix + url

    client = Client()

    fetch, look = make(client.fetch), make(client.look)
    called = make(client, name="client")
    partly = make(functools.partial(base, prefix="x"))

    assert (fetch.spec.sync, look.spec.sync, called.spec.sync, partly.spec.sync) == (
        False,
        True,
        False,
        False,
    )
    assert fetch.spec.description == "Fetch it."
    assert partly.spec.name == "base"
    assert partly.spec.schema["properties"]["prefix"]["default"] == "x"
    assert fetch.spec.importable == ""
    assert list(called.spec.schema["properties"]) == ["url"]


def test_names_that_models_share_with_pydantic_are_no_trouble() -> None:
    def odd(schema: int, json: str, model_config: str, copy: int, _private: int = 1) -> None: ...

    arguments = {"schema": 1, "json": "j", "model_config": "m", "copy": 2, "_private": 3}

    assert passed(make(odd), arguments).call_with({}) == arguments


def test_a_default_that_json_cannot_say_is_left_out_of_the_schema() -> None:
    marker = threading.Lock()

    def odd(value: Annotated[Any, Field()] = marker) -> None: ...

    assert make(odd).spec.schema["properties"] == {"value": {}}
    assert passed(make(odd), {}).call_with({}) == {}


def test_a_default_given_in_the_annotation_is_one() -> None:
    def odd(value: Annotated[int, Field(default=3)]) -> None: ...

    assert passed(make(odd), {}).call_with({}) == {"value": 3}
    assert isinstance(make(odd).check_unresolved({}, ()), Checked)


def test_a_docstring_may_be_anything() -> None:
    def odd(a: int, b: int) -> None:
        """Do.

        Args:
            No entry at all
            a: The first
              of two.
            b (int): The second.
        And so on.
        """

    described = make(odd).spec.schema["properties"]

    assert described["a"]["description"] == "The first of two."
    assert described["b"]["description"] == "The second."
    assert make(lambda: None, name="one").spec.description == ""


# What is refused when a tool is made


class Holder:
    def method(self, path: str) -> None: ...

    @classmethod
    def of_class(cls, path: str) -> None: ...


def yields() -> Iterator[int]:
    yield 1


async def yields_later() -> Any:
    yield 1


def star(*paths: str) -> None: ...
def keywords(**rest: str) -> None: ...
def positional(path: str, /) -> None: ...
def unresolved(path: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def garbled(path: "1 +") -> None: ...  # type: ignore[valid-type]  # noqa: F722
def locked(lock: threading.Thread) -> None: ...
def calls_back(back: Callable[[int], int]) -> None: ...
def field_default(n: int = Field(3)) -> None: ...  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (5, "tool 'int': 5 is no function"),
        (Holder, "tool 'Holder': <class"),
        (Holder.method, "tool 'method': it is a method without its self; give the bound one"),
        (yields, "tool 'yields': it yields; a call has one result"),
        (yields_later, "tool 'yields_later': it yields"),
        (star, "tool 'star': *paths has no name in JSON; take a list instead"),
        (keywords, "tool 'keywords': its parameters cannot be listed"),
        ({}.update, "tool 'update': its parameters cannot be listed (it has **kwargs, or no sig"),
        (positional, "tool 'positional': parameter 'path' is positional only"),
        (unresolved, "an annotation cannot be resolved (name 'Nowhere' is not defined)"),
        (garbled, "an annotation cannot be resolved (Forward reference must be an expression"),
        (locked, "a parameter's type cannot be described as JSON: Unable to generate"),
        (calls_back, "a parameter's type cannot be described as JSON: Cannot generate"),
        (field_default, "the default of parameter 'n' is a Field"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_refused_with_the_way_out(
    function: Any, told: str
) -> None:
    with pytest.raises(ToolError) as raised:
        tool(function)

    assert told in str(raised.value)


def test_a_bound_class_method_is_a_tool() -> None:
    assert list(make(Holder.of_class).spec.schema["properties"]) == ["path"]


@pytest.mark.parametrize(
    ("declarations", "told"),
    [
        ({"effect": Effect.PURE, "idempotent": False}, "a pure tool changes nothing"),
        ({"claims": "write file:{a}"}, "claims='write file:{a}' is a text; give a list"),
        ({"claims": ["write file:{b}"]}, "the tool has no parameter 'b'"),
        ({"claims": ["file:{a}"]}, "say how: 'read file:{a}'"),
        ({"claims": lambda _: [], "claims_at_most": ["write file:{a}"]}, "no parameter 'a'"),
        ({"timeout": 0}, "timeout=0 is no time"),
        ({"timeout": math.nan}, "timeout=nan is no time"),
        ({"retries": -1}, "retries=-1 is no number"),
        ({"retries": 1.5}, "retries=1.5 is no number"),
        ({"literal": ["b"]}, "literal= names 'b', no parameter of it (it has: a)"),
        ({"bound": ["b"]}, "bound= names 'b', no parameter of it (it has: a)"),
        ({"bound": "a"}, "bound='a' is a text; give a tuple of names"),
        ({"name": "a b"}, "this is no name that any provider takes"),
        ({"name": ".a"}, "this is no name that any provider takes"),
        ({"name": "x" * 129}, "this is no name that any provider takes"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(
    declarations: dict[str, Any], told: str
) -> None:
    with pytest.raises(ToolError) as raised:
        make(lambda a: a, **{"name": "one", **declarations})

    assert told in str(raised.value)


def test_a_misspelt_declaration_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'effects'"):
        make(lambda: None, name="one", effects=Effect.PURE)


def test_a_function_without_a_usable_name_needs_one() -> None:
    with pytest.raises(ToolError, match=r"tool '<lambda>': this is no name"):
        tool(lambda: None)


# Arguments


@pytest.mark.parametrize(
    ("sent", "understood"),
    [
        ({"count": 5}, {"count": 5}),
        ({"count": "5"}, {"count": 5}),
        ({"count": 5.0}, {"count": 5}),
        ({"count": None}, {"count": None}),
        ({"colour": "blue"}, {"colour": "blue"}),
        ({"steps": [{"title": "x"}]}, {"steps": [{"title": "x"}]}),
        ({"steps": [{"title": "x", "times": "3"}]}, {"steps": [{"title": "x", "times": 3}]}),
        ({"steps": '[{"title": "x"}]'}, {"steps": [{"title": "x"}]}),
        ({"steps": '[{"title": "x", "times": "3"}]'}, {"steps": [{"title": "x", "times": 3}]}),
        ({"new": "[1, 2]"}, {"new": "[1, 2]"}),
    ],
)
def test_canonical_arguments_say_what_was_understood(
    sent: dict[str, Any], understood: dict[str, Any]
) -> None:
    required = {"path": "a", "old": "b"}

    checked = passed(edit_file, {**required, **sent})

    assert checked.arguments == {**required, **understood}
    assert passed(edit_file, checked.arguments).arguments == checked.arguments


def test_arguments_that_fit_are_handed_on_as_they_were_sent() -> None:
    arguments = {"old": "b", "path": "a"}

    assert passed(edit_file, arguments).arguments is arguments


def test_the_function_gets_its_own_types_and_its_own_defaults() -> None:
    def plan(meeting: Meeting, colour: Colour, step: Step | None = None, n: int = 3) -> None: ...

    sent = {
        "meeting": {"day": "2024-02-29", "guests": ["a"]},
        "colour": "blue",
        "step": {"title": "x"},
    }

    kwargs = passed(make(plan), sent).call_with({})

    assert kwargs == {
        "meeting": Meeting(day=date(2024, 2, 29), guests=["a"]),
        "colour": Colour.BLUE,
        "step": Step(title="x"),
    }


def test_no_attempt_sees_what_another_has_changed() -> None:
    def note(steps: list[Step], words: dict[str, list[str]]) -> None: ...

    arguments: dict[str, Any] = {"steps": [{"title": "x"}], "words": {"a": ["b"]}}
    checked = passed(make(note), arguments)

    first = checked.call_with({})
    first["steps"].clear()
    first["words"]["a"].append("changed")

    assert checked.call_with({}) == {"steps": [Step(title="x")], "words": {"a": ["b"]}}
    assert arguments == {"steps": [{"title": "x"}], "words": {"a": ["b"]}}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "path is missing; old is missing"),
        ({"path": "a", "old": "b", "zz": 1}, "zz is unknown"),
        ({"path": 5, "old": "b"}, "path: should be a valid string, met 5"),
        (
            {"path": "a", "old": "b", "count": "five"},
            'count: should be a valid integer, unable to parse string as an integer, met "five"',
        ),
        ({"path": "a", "old": "b", "colour": "green"}, "colour: should be 'red' or 'blue', met"),
        (
            {"path": "a", "old": "b", "steps": '[{"title": 5}]'},
            "steps[0].title: should be a valid string, met 5",
        ),
        (
            {"path": "a", "old": "b", "steps": "see above"},
            'steps: should be a valid array, met "see above"',
        ),
        ({"path": "a", "old": "b", "steps": '[{"title": "cut'}, "steps: should be a valid array"),
    ],
)
def test_every_fault_is_named_with_what_was_expected_and_met(
    arguments: dict[str, Any], told: str
) -> None:
    failure = refused(edit_file, arguments)

    assert told in failure.message
    assert failure.message.startswith("edit_file was not run, because its arguments do not fit: ")
    assert failure.hint == (
        "Call it again with arguments that fit. Required: path, old; allowed: path, old, new, "
        "count, colour, steps."
    )


def test_a_long_list_of_faults_and_long_values_are_cut_short() -> None:
    arguments = {"path": "a", "old": "x" * 10_000} | {f"field{n}": n for n in range(30)}
    wrong = {"path": "a", "old": ["y" * 10_000]}

    many, long = refused(edit_file, arguments), refused(edit_file, wrong)

    assert "field9 is unknown; and 20 more." in many.message
    assert len(many.message) < 400
    assert len(long.message) < 200


def test_h_args_1_a_missing_field_is_named() -> None:
    def greet(name: str) -> str:
        return f"hi {name}"

    assert "name is missing" in refused(make(greet), {}).message


def test_a_strict_tool_coerces_and_unwraps_nothing_and_knows_no_other_fields() -> None:
    def plan(steps: list[Step], n: int = 1) -> None: ...

    strict = make(plan, strict=True)

    assert passed(strict, {"steps": [{"title": "x"}], "n": 2}).call_with({})["n"] == 2
    assert "n: should be a valid integer" in refused(strict, {"steps": [], "n": "2"}).message
    assert "steps: should be" in refused(strict, {"steps": '[{"title": "x"}]'}).message
    assert "steps[0].more is unknown" in (
        refused(strict, {"steps": [{"title": "x", "more": 1}]}).message
    )
    assert isinstance(strict.check_unresolved({"steps": "${a}", "n": "2"}, {"steps"}), Failure)
    assert isinstance(strict.check_unresolved({"steps": "${a}", "n": 2}, {"steps"}), Checked)
    assert strict.spec.schema["$defs"]["Step"]["additionalProperties"] is False


def test_what_cannot_be_written_back_stays_as_it_was_sent() -> None:
    def odd(
        secret: SecretStr,
        number: float = 0.0,
        doubled: Annotated[int, AfterValidator(lambda n: 2 * n)] = 0,
        hidden: Annotated[int, PlainSerializer(lambda _: threading.Lock())] = 0,
        n: int = 0,
    ) -> None: ...

    one = make(odd)

    checked = passed(one, {"secret": "pw", "number": "nan", "doubled": "3", "n": "5"})
    kwargs = checked.call_with({})

    assert checked.arguments == {"secret": "pw", "number": "nan", "doubled": "3", "n": 5}
    assert kwargs["secret"].get_secret_value() == "pw"
    assert kwargs["doubled"] == 6
    assert kwargs["n"] == 5
    assert passed(one, {"secret": "pw", "hidden": "3"}).arguments == {
        "secret": "pw",
        "hidden": "3",
    }


def test_a_parameters_own_validator_may_raise_anything() -> None:
    def explode(value: Any) -> Any:
        raise LookupError(value)

    def odd(value: Annotated[int, BeforeValidator(explode)]) -> None: ...

    told = "the arguments made a check of the tool raise LookupError"
    assert told in refused(make(odd), {"value": 1}).message


def test_a_fault_in_what_a_validator_made_of_a_value_is_told_by_its_type() -> None:
    def odd(value: Annotated[int, BeforeValidator(lambda _: threading.Lock())]) -> None: ...

    assert "met something that is of type _thread.lock" in refused(make(odd), {"value": 1}).message


def test_arguments_may_be_nested_as_deep_as_they_can_be_read() -> None:
    def odd(value: Any, steps: list[Step]) -> None: ...

    deep: Any = 1
    for _ in range(MAX_DEPTH - 1):
        deep = [deep]

    checked = passed(make(odd), {"value": deep, "steps": '[{"title": "x"}]'})

    assert checked.call_with({}) == {"value": deep, "steps": [Step(title="x")]}


def test_arguments_that_are_no_json_are_refused_not_raised() -> None:
    assert "raise UnicodeEncodeError" in refused(edit_file, {"path": "\ud800", "old": ""}).message


@given(
    st.dictionaries(
        st.sampled_from(["path", "old", "new", "count", "colour", "steps", "other"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
            ),
            max_leaves=5,
        ),
    )
)
def test_whatever_is_sent_is_passed_or_refused_and_passing_is_stable(sent: dict[str, Any]) -> None:
    checked = edit_file.check(sent)
    known = edit_file.check_unresolved(sent, ())

    if isinstance(checked, Checked):
        assert isinstance(known, Checked)
        assert known.arguments == checked.arguments
        again = edit_file.check(checked.arguments)
        assert isinstance(again, Checked)
        assert again.arguments == checked.arguments
    else:
        assert checked.code is Code.INVALID_ARGUMENTS


# While references are unresolved


def test_what_can_be_known_is_checked_while_references_wait() -> None:
    known = edit_file.check_unresolved(
        {"path": "${read.path}", "old": "b", "count": "5", "steps": {"$from": "plan"}},
        {"path", "steps"},
    )

    assert isinstance(known, Checked)
    assert known.arguments == {
        "path": "${read.path}",
        "old": "b",
        "count": 5,
        "steps": {"$from": "plan"},
    }


def test_a_reference_in_doubly_encoded_json_cannot_change_its_structure() -> None:
    known = edit_file.check_unresolved(
        {"path": "a", "old": "b", "steps": '[{"title": "${read.title}"}]'}, {"steps"}
    )

    assert isinstance(known, Checked)
    assert known.arguments["steps"] == [{"title": "${read.title}"}]


@pytest.mark.parametrize(
    ("arguments", "unresolved", "told"),
    [
        ({"path": "${a}"}, {"path"}, "old is missing"),
        ({"path": "${a}", "old": "b", "zz": "${a}"}, {"path", "zz"}, "zz is unknown"),
        ({"path": "${a}", "old": 5}, {"path"}, "old: should be a valid string, met 5"),
        ({"path": "${a}", "count": []}, {"path"}, "old is missing; count: should be"),
    ],
)
def test_faults_that_are_certain_are_told_before_references_are_resolved(
    arguments: dict[str, Any], unresolved: set[str], told: str
) -> None:
    failure = edit_file.check_unresolved(arguments, unresolved)

    assert isinstance(failure, Failure)
    assert failure.code is Code.INVALID_ARGUMENTS
    assert told in failure.message


def test_a_validator_that_raises_is_a_fault_while_references_wait_too() -> None:
    def explode(value: Any) -> Any:
        raise LookupError(value)

    def odd(value: Annotated[int, BeforeValidator(explode)], other: str) -> None: ...

    failure = make(odd).check_unresolved({"value": 1, "other": "${a}"}, {"other"})

    assert isinstance(failure, Failure)


# What the host sets


@tool(effect=Effect.READ, bound=("tenant",))
def orders(
    status: Literal["open", "shipped"],
    user_id: Annotated[str, Bound()],
    tenant: str,
    session: Annotated[object, Bound] = None,
) -> list[str]:
    """List orders."""
    return [status, user_id, tenant, str(session)]


def test_host_bound_parameters_are_absent_from_what_the_model_sees() -> None:
    assert list(orders.spec.schema["properties"]) == ["status"]
    assert orders.spec.schema["required"] == ["status"]
    assert orders.spec.bound == {"user_id", "tenant", "session"}


def test_host_bound_parameters_are_set_by_the_host_alone() -> None:
    checked = passed(orders, {"status": "open"})
    bound = {"user_id": "u1", "tenant": "t1", "not_its_own": 1}

    assert checked.call_with(bound) == {"status": "open", "user_id": "u1", "tenant": "t1"}
    assert checked.arguments == {"status": "open"}


def test_a_model_cannot_override_what_the_host_sets() -> None:
    failure = refused(orders, {"status": "open", "user_id": "root"})

    assert "user_id is set by the host and must be left out" in failure.message
    assert "user_id" not in failure.hint


def test_a_host_that_has_not_set_a_parameter_is_told() -> None:
    assert orders.unbound({"user_id"}) == ("tenant",)
    assert orders.unbound({"user_id", "tenant"}) == ()


# Context


def context_of(**changes: Any) -> ToolContext:
    fields: dict[str, Any] = {
        "run": RunId("fix-42"),
        "call": CallId("t1.1"),
        "attempt": 1,
        "tool": "pay",
        "arguments": {"amount": 5, "to": "a"},
    }
    return ToolContext(**{**fields, **changes})


@pytest.mark.parametrize("annotation", [ToolContext, ToolContext | None, Annotated[ToolContext, 1]])
def test_a_parameter_for_the_context_is_injected_and_never_seen(annotation: Any) -> None:
    def pay(amount: int, context: Any = None) -> str:
        return str(context)

    pay.__annotations__["context"] = annotation
    one, context = make(pay), context_of()
    checked = passed(one, {"amount": 5})

    assert one.wants_context
    assert list(one.spec.schema["properties"]) == ["amount"]
    assert checked.call_with({}, context) == {"amount": 5, "context": context}
    assert checked.call_with({}) == {"amount": 5}
    assert "context is unknown" in refused(one, {"amount": 5, "context": 1}).message


def test_the_idempotency_key_is_the_same_for_each_attempt_and_no_other_call() -> None:
    key = context_of().idempotency_key

    assert context_of(attempt=2).idempotency_key == key
    assert context_of(arguments={"to": "a", "amount": 5}).idempotency_key == key
    others: list[dict[str, Any]] = [
        {"run": "r"},
        {"call": "t1.2"},
        {"tool": "send"},
        {"arguments": {"amount": 6}},
    ]
    assert len({key, *(context_of(**one).idempotency_key for one in others)}) == 5


def test_a_thread_can_see_that_it_is_to_stop() -> None:
    stop = Stop()
    context = context_of(stop=stop)

    before = context.cancelled
    stop.asked = True

    assert (before, context.cancelled) == (False, True)
    assert not context_of().cancelled


# Definitions and versions


def test_a_definition_is_written_as_the_provider_wants_it() -> None:
    chat, messages = edit_file.definition("openai-chat"), edit_file.definition("anthropic-messages")

    assert chat["type"] == "function"
    assert set(chat["function"]) == {"name", "description", "parameters"}
    assert set(messages) == {"name", "description", "input_schema"}
    assert messages["input_schema"] == edit_file.spec.schema
    messages["input_schema"]["properties"].clear()
    assert edit_file.spec.schema["properties"]


def test_a_definition_for_an_unknown_provider_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'cohere' \(known: anthropic-messages, bedrock-conv"):
        edit_file.definition("cohere")


def test_the_version_changes_with_schema_declarations_and_the_hosts_own() -> None:
    def one(a: int) -> None: ...
    def other(a: str) -> None: ...

    def version(function: Callable[..., Any], **declarations: Any) -> str:
        return make(function, name="one", **declarations).spec.version

    assert version(one) == version(one)
    changed = [
        version(one),
        version(other),
        version(one, version="2"),
        version(one, effect=Effect.READ),
        version(one, claims=["write db:{a}"]),
        version(one, claims=context_of),
    ]
    assert len(set(changed)) == len(changed)


@pytest.mark.parametrize("provider", ["openai-chat", "anthropic-messages"])
def test_a_name_with_a_dot_is_a_tool_but_not_for_providers_that_refuse_it(provider: str) -> None:
    dotted = tool(lambda: None, name="spotify.play")

    assert dotted.spec.name == "spotify.play"
    with pytest.raises(ToolError, match=f"{provider} takes no such name"):
        dotted.definition(provider)


def test_an_effect_may_be_said_by_its_word() -> None:
    said: dict[str, Any] = {"effect": "write"}

    assert tool(lambda: None, name="t", **said).spec.effect is Effect.WRITE


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"effect": "writes"}, "effect='writes' is none"),
        ({"approval": "maybe"}, "approval='maybe' is neither True nor False"),
        ({"idempotent": "yes"}, "idempotent='yes' is neither True nor False"),
    ],
)
def test_a_declaration_that_cannot_be_meant_is_refused(said: dict[str, Any], told: str) -> None:
    with pytest.raises(ToolError, match=told):
        tool(lambda: None, name="t", **said)


def test_what_policies_look_at_is_declared_and_bears_on_the_version_only_where_results_do() -> None:
    def run(cmd: str) -> str:
        return cmd

    plain = tool(run, effect=Effect.EXTERNAL)
    said = tool(run, effect=Effect.EXTERNAL, server="github", agent="r", command_lines=("cmd",))
    derived = tool(run, effect=Effect.EXTERNAL, claims=shell_claims("cmd"))

    assert (said.spec.server, said.spec.agent, said.spec.command_lines) == ("github", "r", ("cmd",))
    assert derived.spec.command_lines == ("cmd",)
    assert plain.spec.command_lines == ()
    assert said.spec.version != plain.spec.version
    assert tool(run, effect=Effect.EXTERNAL, command_lines=("cmd",)).spec.version == (
        plain.spec.version
    )


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"server": 1}, "server=1 is no text"),
        ({"command_lines": "cmd"}, "command_lines='cmd' is a text; give a tuple of names"),
        ({"command_lines": ("x",)}, "command_lines= names 'x', no parameter of it"),
    ],
)
def test_what_policies_look_at_has_to_make_sense(said: Any, message: str) -> None:
    with pytest.raises(ToolError, match=re.escape(message)):
        tool(lambda cmd: cmd, name="t", **said)
