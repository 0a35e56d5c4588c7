# Claims are named by lambdas.
# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from laneway.claims import Claim, exclusive, shared
from laneway.effects import Effect
from laneway.engine.claiming import ClaimSource
from laneway.engine.tools import Tool
from laneway.lanes.names import BadResourceError, Names


@pytest.fixture
def names(tmp_path: Path) -> Names:
    return Names(tmp_path)


def edit(path: str = "", text: str = "", table: str = "") -> None: ...


def source(claims: Any, **declarations: Any) -> ClaimSource:
    found = Tool.of(edit, claims=claims, **declarations).claims
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("declarations", "lanes"),
    [
        ({}, None),
        ({"effect": Effect.PURE}, None),
        ({"effect": Effect.READ}, None),
        ({"effect": Effect.WRITE}, "lane:tool/edit"),
        ({"effect": Effect.EXTERNAL}, "lane:tool/edit"),
        ({"idempotent": True}, "lane:tool/edit"),
        ({"effect": Effect.EXTERNAL, "claims": []}, None),
    ],
)
def test_a_tool_that_says_nothing_of_claims_takes_a_lane_of_its_own_if_it_changes_anything(
    declarations: dict[str, Any], lanes: str | None, names: Names
) -> None:
    found = Tool.of(edit, **declarations).claims

    if lanes is None:
        assert found is None
    else:
        assert found is not None
        assert found.claims({}, names) == (exclusive(lanes),)


def test_templates_are_filled_in_with_the_arguments(names: Names) -> None:
    found = source(["write file:{path}", "read db:shop/{table}"])

    assert found.claims({"path": "a.py", "table": "orders"}, names) == (
        exclusive(names.canonical("file:a.py")),
        shared("db:shop/orders"),
    )
    assert found.widened({"path": "a.py"}, {"table"}, names) == (
        exclusive(names.canonical("file:a.py")),
        shared("db:shop"),
    )


def test_a_function_names_claims_as_texts_or_claims(names: Names) -> None:
    def claims(arguments: Mapping[str, Any]) -> list[str | Claim]:
        return [
            f"write file:{arguments['path']}",
            f"read file:{arguments['path']} ",
            f"shared db:{arguments.get('table', 'none')}",
            "exclusive db:log",
            "lane:mail",
            "lane:mail",
            shared("db:./x"),
            f"read db:{len(arguments)}",
        ]

    assert source(claims).claims({"path": "a"}, names) == (
        exclusive(names.canonical("file:a")),
        shared(names.canonical("file:a ")),
        shared("db:none"),
        exclusive("db:log"),
        exclusive("lane:mail"),
        shared("db:x"),
        shared("db:1"),
    )


def test_a_function_cannot_change_the_arguments(names: Names) -> None:
    def claims(arguments: Any) -> list[str]:
        arguments["path"] = "b"
        return []

    with pytest.raises(BadResourceError, match="the function that names them raised TypeError"):
        source(claims).claims({"path": "a"}, names)


@pytest.mark.parametrize("given", ["file:a", "write", "remove file:a", 5, None])
def test_what_a_function_gives_must_be_a_claim(given: Any, names: Names) -> None:
    with pytest.raises(BadResourceError) as raised:
        source(lambda _: [given]).claims({}, names)

    assert "edit" in str(raised.value) or "write scheme:path" in str(raised.value)


def test_a_function_that_raises_is_told_of_with_the_call(names: Names) -> None:
    with pytest.raises(BadResourceError) as raised:
        source(lambda arguments: [f"write file:{arguments['nothing']}"]).claims({}, names)

    assert str(raised.value) == (
        "resource 'claims of edit': the function that names them raised KeyError"
    )


def asks(arguments: Mapping[str, Any]) -> list[str]:
    return [f"write file:{arguments['path']}"]


def asks_gently(arguments: Mapping[str, Any]) -> list[str]:
    return [f"write file:{arguments.get('path', 'other')}"]


def asks_for_all(arguments: Mapping[str, Any]) -> list[str]:
    return (
        [f"write file:{arguments | {}}"]
        if isinstance(arguments, dict)
        else [f"write file:{dict(arguments)['path']}"]
    )


def looks_whether_it_is_there(arguments: Mapping[str, Any]) -> list[str]:
    return ["lane:mail"] if "path" in arguments else []


@pytest.mark.parametrize("claims", [asks, asks_gently, asks_for_all, looks_whether_it_is_there])
def test_a_function_that_asks_for_what_is_not_known_yet_claims_the_most_it_may(
    claims: Callable[[Mapping[str, Any]], list[str]], names: Names
) -> None:
    arguments = {"path": "${a}", "text": "x"}

    assert source(claims).widened(arguments, {"path"}, names) == (exclusive("file:"),)
    at_most = source(claims, claims_at_most=["write file:out", "lane:mail"])
    assert at_most.widened(arguments, {"path"}, names) == (
        exclusive(names.canonical("file:out")),
        exclusive("lane:mail"),
    )


def test_a_function_that_asks_for_what_is_known_claims_just_that(names: Names) -> None:
    found = source(asks).widened({"path": "a", "text": "${x}"}, {"text"}, names)

    assert found == (exclusive(names.canonical("file:a")),)


def test_a_fault_that_has_nothing_to_do_with_references_is_told_at_once(names: Names) -> None:
    with pytest.raises(BadResourceError):
        source(lambda _: ["nonsense"]).widened({"path": "${a}"}, {"path"}, names)


def test_the_spec_tells_of_claims_as_they_were_declared() -> None:
    assert Tool.of(edit, claims=["lane:mail"]).spec.claims == ("lane:mail",)
    assert Tool.of(edit, claims=asks).spec.claims == ("by asks",)
    assert Tool.of(edit).spec.claims is None
