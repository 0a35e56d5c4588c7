"""Claims from templates: what a tool declares, filled in with the arguments of a call."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laneway.claims import Claim, exclusive, shared
from laneway.lanes.names import BadResourceError, Names, covers, overlaps
from laneway.lanes.templates import compile_claims

NAMES = Names("/no-such-workspace")
PARAMETERS = ("path", "paths", "edits", "id", "folder", "flag")


def claims_of(template: str, **arguments: Any) -> tuple[Claim, ...]:
    return compile_claims([template], PARAMETERS).claims(arguments, NAMES)


@pytest.mark.parametrize(
    ("template", "claim"),
    [
        ("write file:{path}", exclusive("file:/no-such-workspace/a.py")),
        ("exclusive file:{path}", exclusive("file:/no-such-workspace/a.py")),
        ("read file:{path}", shared("file:/no-such-workspace/a.py")),
        ("shared  file:{path} ", shared("file:/no-such-workspace/a.py")),
        ("write file:src/{path}", exclusive("file:/no-such-workspace/src/a.py")),
        ("write file:{path}.bak", exclusive("file:/no-such-workspace/a.py.bak")),
        ("read file:src", shared("file:/no-such-workspace/src")),
        ("read file:{{{path}}}", shared("file:/no-such-workspace/{a.py}")),
        ("exclusive file:", exclusive("file:")),
        ("shared db:shop/{path}/rows", shared("db:shop/a.py/rows")),
        ("lane:mail", exclusive("lane:mail")),
        ("lane:mail/{path}", exclusive("lane:mail/a.py")),
        ("exclusive lane:send mail", exclusive("lane:send mail")),
        ("exclusive run:{path}", exclusive("run:a.py")),
    ],
)
def test_a_template_names_one_resource(template: str, claim: Claim) -> None:
    assert claims_of(template, path="a.py") == (claim,)


@pytest.mark.parametrize(
    ("value", "level"),
    [
        ("a/b", "a%2Fb"),
        ("a%2Fb", "a%252Fb"),
        ("..", "%2E%2E"),
        (".", "%2E"),
        ("../x", "..%2Fx"),
        ("a.b", "a.b"),
        (42, "42"),
        (42.0, "42"),
        (4.5, "4.5"),
        (True, "true"),
        (False, "false"),
    ],
)
def test_a_value_stays_within_its_level(value: Any, level: str) -> None:
    assert claims_of("shared db:shop/{id}", id=value) == (shared(f"db:shop/{level}"),)
    assert claims_of("lane:shop/{id}", id=value) == (exclusive(f"lane:shop/{level}"),)


@given(st.text(min_size=1, max_size=6), st.text(min_size=1, max_size=6))
def test_different_values_never_share_a_level(one: str, other: str) -> None:
    def resource(value: str) -> str:
        try:
            return claims_of("write db:t/{id}", id=value)[0].resource
        except BadResourceError:
            return f"db:t/refused {value!r}"

    assert overlaps(resource(one), resource(other)) == (one == other)
    assert covers("db:t", resource(one))


def test_a_list_makes_a_claim_for_each_element() -> None:
    found = claims_of("read file:{paths}", paths=["/a", "/b", "/a", 1])

    assert found == (shared("file:/a"), shared("file:/b"), shared("file:/no-such-workspace/1"))
    assert claims_of("read file:{paths}", paths=[]) == ()


def test_fields_and_items_of_a_parameter_are_reached() -> None:
    edits: list[dict[str, Any]] = [
        {"path": "/a", "lines": ["/1", "/2"]},
        {"path": "/b", "lines": []},
    ]

    assert claims_of("write file:{edits.path}", edits=edits) == (
        exclusive("file:/a"),
        exclusive("file:/b"),
    )
    assert claims_of("write file:{edits[1].path}", edits=edits) == (exclusive("file:/b"),)
    assert claims_of("write file:{edits.lines}", edits=edits) == (
        exclusive("file:/1"),
        exclusive("file:/2"),
    )
    assert claims_of("write db:{folder.id}", folder={"id": 7}) == (exclusive("db:7"),)


def test_two_lists_make_every_pair() -> None:
    found = claims_of("read db:{paths}/{edits}", paths=["a", "b"], edits=[1, 2])

    assert [claim.resource for claim in found] == ["db:a/1", "db:a/2", "db:b/1", "db:b/2"]


def test_lists_that_would_make_too_many_claims_widen_to_the_literal_parent() -> None:
    many = list(range(40))

    assert claims_of("read db:shop/{paths}/{edits}", paths=many, edits=many) == (shared("db:shop"),)
    assert len(claims_of("read db:shop/{paths}", paths=list(range(1000)))) == 1000
    assert claims_of("read db:shop/{paths}", paths=list(range(1001))) == (shared("db:shop"),)


ABSENT: list[tuple[str, dict[str, Any], Claim]] = [
    ("write file:{path}", {}, exclusive("file:")),
    ("read file:{path}", {"path": None}, shared("file:")),
    ("write file:src/{path}/x", {}, exclusive("file:/no-such-workspace/src")),
    ("write file:{folder}/{path}", {"folder": "/f"}, exclusive("file:/f")),
    ("write file:{folder}/{path}", {"path": "/f"}, exclusive("file:")),
    ("shared db:shop/orders/{id}", {}, shared("db:shop/orders")),
    ("write file:{edits.path}", {"edits": "text"}, exclusive("file:")),
    ("write file:{edits.path}", {"edits": [{}]}, exclusive("file:")),
    ("write file:{edits[3]}", {"edits": ["a"]}, exclusive("file:")),
    ("write file:{edits[3]}", {"edits": "text"}, exclusive("file:")),
    ("lane:mail/{id}", {}, exclusive("lane:mail")),
    ("lane:{id}", {}, exclusive("lane:")),
]


@pytest.mark.parametrize(
    ("template", "arguments", "claim"),
    ABSENT,
)
def test_a_value_that_is_not_there_widens_the_claim(
    template: str, arguments: dict[str, Any], claim: Claim
) -> None:
    assert claims_of(template, **arguments) == (claim,)


def test_an_unresolved_parameter_widens_only_what_it_stands_in() -> None:
    templates = compile_claims(
        ["write file:out/{path}", "read file:{folder}", "lane:mail", "read db:{edits.id}"],
        PARAMETERS,
    )
    arguments = {"path": "${call}", "folder": "/f", "edits": [{"id": 1}]}

    assert templates.widened(arguments, {"path", "edits"}, NAMES) == (
        exclusive("file:/no-such-workspace/out"),
        shared("file:/f"),
        exclusive("lane:mail"),
        shared("db:"),
    )
    assert templates.parameters == {"path", "folder", "edits"}


@given(
    st.sampled_from(
        ["file:{path}", "file:src/{path}/x", "db:a/{path}/{id}", "db:{id}/{path}", "lane:m/{path}"]
    ),
    st.text("ab/.", min_size=1, max_size=5),
    st.integers(0, 3),
    st.sets(st.sampled_from(["path", "id"])),
)
def test_widened_claims_cover_the_final_ones_but_where_a_path_climbs(
    template: str, path: str, number: int, unresolved: set[str]
) -> None:
    templates = compile_claims([f"write {template}"], PARAMETERS)
    arguments = {"path": path, "id": number}

    (wide,) = templates.widened(arguments, unresolved, NAMES)
    (final,) = templates.claims(arguments, NAMES)

    climbs = template.startswith("file:src") and ".." in path
    flat = template.startswith("lane:") and "path" in unresolved
    assert climbs or flat or covers(wide.resource, final.resource)


@pytest.mark.parametrize(
    ("template", "arguments", "message"),
    [
        (
            "write file:{path}",
            {"path": ""},
            "resource 'file:{path}': {path} is empty; the workspace itself is '.'",
        ),
        ("write db:x/{id}", {"id": ""}, "resource 'db:x/{id}': {id} is empty"),
        (
            "write file:{path}",
            {"path": {"a": 1}},
            "resource 'file:{path}': {path} is an object; it must be a text",
        ),
        (
            "write db:{edits.id}/x",
            {"edits": {"id": [[1]]}},
            "resource 'db:{edits.id}/x': {edits.id} is a list in a list; it must be a text",
        ),
        (
            "write file:{path}",
            {"path": "a\0"},
            "resource 'file:a\\x00': a name has up to 4096 characters, none a NUL",
        ),
    ],
)
def test_a_value_that_names_nothing_is_refused(
    template: str, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadResourceError) as refused:
        claims_of(template, **arguments)

    assert str(refused.value) == message


VERBS = "write a verb (read, shared, write, exclusive) and scheme:path, scheme literal"


@pytest.mark.parametrize(
    ("template", "fault"),
    [
        ("", f"{VERBS}: 'write file:{{path}}'"),
        ("{path}", f"{VERBS}: 'write file:{{path}}'"),
        ("append file:{path}", f"{VERBS}: 'write file:{{path}}'"),
        ("write {path}:x", f"{VERBS}: 'write file:{{path}}'"),
        ("write file", f"{VERBS}: 'write file:{{path}}'"),
        ("lane:", f"{VERBS}: 'write file:{{path}}'"),
        ("file:{path}", "say how: 'read file:{path}' or 'write file:{path}'"),
        ("read lane:mail", "a lane has slots, no readers; write 'lane:mail' and set its limit"),
        ("read db:../{path}", "only a file path may hold '..'"),
        ("read file:{path", "a '{' stands alone; double a brace that is meant"),
        ("read file:path}", "a '}' stands alone; double a brace that is meant"),
        ("read file:{}", "{} is no parameter; write {path}, {edit.path} or {paths[0]}"),
        ("read file:{path.}", "{path.} is no parameter; write {path}, {edit.path} or {paths[0]}"),
        (
            "read file:{path[x]}",
            "{path[x]} is no parameter; write {path}, {edit.path} or {paths[0]}",
        ),
        (
            "read file:{pth}",
            f"the tool has no parameter 'pth', is 'path' meant? (it has: {', '.join(PARAMETERS)})",
        ),
        (
            "read file:{zzz.path}",
            f"the tool has no parameter 'zzz' (it has: {', '.join(PARAMETERS)})",
        ),
    ],
)
def test_a_bad_template_is_found_when_the_tool_is_registered(template: str, fault: str) -> None:
    with pytest.raises(ValueError, match=r"^claim ") as refused:
        compile_claims(["lane:mail", template], PARAMETERS)

    assert str(refused.value) == f"claim {template!r}: {fault}"


def test_a_tool_without_parameters_is_told_so() -> None:
    with pytest.raises(ValueError, match=r"no parameter 'path' \(it has: none\)$"):
        compile_claims(["read file:{path}"], [])


def test_a_link_in_the_workspace_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    templates = compile_claims(["write file:link/{path}"], ["path"])

    (claim,) = templates.claims({"path": "x"}, Names(tmp_path))

    assert claim.resource.endswith("/real/x")
