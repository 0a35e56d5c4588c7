"""Claims from templates: what a tool declares, filled in with the arguments of a call."""

import itertools
import tempfile
from glob import iglob
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
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
            "resource 'file:a\\x00', from {path}: a name has up to 4096 characters, none a NUL",
        ),
    ],
)
def test_a_value_that_names_nothing_is_refused(
    template: str, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadResourceError) as refused:
        claims_of(template, **arguments)

    assert str(refused.value) == message


CLIMBS = "a '..' behind a wildcard may lead anywhere; claim the folder that is meant"
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
        ("read file:src/*/../x", CLIMBS),
        ("read file:src/*/{path}/../x", CLIMBS),
        (
            "read file:src/{path:regex}",
            "{path:regex} is no parameter; write {path}, {edit.path}, {paths[0]} or {pattern:glob}",
        ),
        ("lane:{path:glob}", "nothing is below a lane or a run; write {path}"),
        ("exclusive run:{edits.path:glob}", "nothing is below a lane or a run; write {edits.path}"),
        ("read file:{path", "a '{' stands alone; double a brace that is meant"),
        ("read file:path}", "a '}' stands alone; double a brace that is meant"),
        (
            "read file:{}",
            "{} is no parameter; write {path}, {edit.path}, {paths[0]} or {pattern:glob}",
        ),
        (
            "read file:{path.}",
            "{path.} is no parameter; write {path}, {edit.path}, {paths[0]} or {pattern:glob}",
        ),
        (
            "read file:{path[x]}",
            "{path[x]} is no parameter; write {path}, {edit.path}, {paths[0]} or {pattern:glob}",
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


W = "/no-such-workspace"
GLOBS = [
    ("src/**/*.py", f"{W}/src"),
    ("src/*.py", f"{W}/src"),
    ("src/a?.py", f"{W}/src"),
    ("src/pre*/x", f"{W}/src"),
    ("src/[ab].py", f"{W}/src"),
    ("src/**", f"{W}/src"),
    ("src/sub/*", f"{W}/src/sub"),
    ("*.py", W),
    ("**", W),
    ("?", W),
    ("[ab]/x", W),
    ("./*", W),
    ("/etc/*.conf", "/etc"),
    ("/*", ""),
    ("../*", ""),
    ("../other/*.py", "/other"),
    ("src/../lib/*", f"{W}/lib"),
    ("src/a..b/*", f"{W}/src/a..b"),
    ("[[]x[]].py", W),
    ("a[[]x].py", f"{W}/a[x].py"),
    ("a[*][?].py", f"{W}/a*?.py"),
    ("a[*]/*", f"{W}/a*"),
]


@pytest.mark.parametrize(("glob", "folder"), GLOBS)
def test_a_glob_claims_the_longest_folder_before_it(glob: str, folder: str) -> None:
    expected = (exclusive(f"file:{folder}"),)

    assert claims_of(f"write file:{glob}") == expected
    assert claims_of("write file:{path:glob}", path=glob) == expected


@pytest.mark.parametrize(
    ("glob", "folder"),
    [
        ("src/a.py", f"{W}/src/a.py"),
        ("src", f"{W}/src"),
        ("src/{a,b}/x.py", f"{W}/src"),
        ("{src,lib}", W),
        ("src/@(a|b).py", f"{W}/src"),
        (r"src/\*.py", f"{W}/src"),
        ("src/!(a).py", f"{W}/src"),
        ("!src", W),
        # What may lead out of the folder
        ("src/*/../../x", ""),
        ("src/**/..", ""),
        ("src/{..,a}/x", ""),
        ("src/.{.,a}/x", ""),
        ("src/.{./..,a}/x", ""),
        (r"src/*/\../x", ""),
        ("{/etc,src}/*", ""),
        ("{,/etc/}*", ""),
        ("(/etc)/*", ""),
        ("!/etc/*", ""),
        (r"\/etc/*", ""),
    ],
)
def test_a_glob_of_the_models_may_hold_braces_and_what_may_climb_is_everything(
    glob: str, folder: str
) -> None:
    assert claims_of("read file:{path:glob}", path=glob) == (shared(f"file:{folder}"),)


@pytest.mark.parametrize("name", ["[x].py", "*", "what?", "{a}", "a (1).txt", "!x", "a[*].py"])
def test_a_value_is_a_name_unless_the_template_says_that_it_is_a_glob(name: str) -> None:
    assert claims_of("read file:src/{path}", path=name) == (shared(f"file:{W}/src/{name}"),)
    assert claims_of("read db:shop/{path}", path=name) == (shared(f"db:shop/{name}"),)


@pytest.mark.parametrize(
    ("template", "arguments", "resources"),
    [
        ("write file:{folder}/**", {"folder": "src"}, [f"file:{W}/src"]),
        ("write file:{folder}/**", {"folder": "."}, [f"file:{W}"]),
        ("write file:{folder}/**", {"folder": "/"}, ["file:"]),
        ("write file:{folder}/**", {"folder": "[a]*"}, [f"file:{W}/[a]*"]),
        ("write file:{folder}/**", {}, ["file:"]),
        ("write file:{folder}*.py", {"folder": "src/x"}, [f"file:{W}/src"]),
        ("write file:src/*/{path}", {"path": "a"}, [f"file:{W}/src"]),
        ("write file:src/*/{path}", {"path": "/a"}, [f"file:{W}/src"]),
        ("write file:src/*/{path}", {}, [f"file:{W}/src"]),
        ("write file:*/{path}", {}, [f"file:{W}"]),
        ("write file:src/*/{path}", {"path": "../../x"}, ["file:"]),
        ("write file:src/*/{path}/{id}", {"path": "b", "id": ".."}, ["file:"]),
        ("write file:src/*/{path}/*", {"path": "b"}, [f"file:{W}/src"]),
        ("write file:{folder}/{path:glob}", {"folder": "a", "path": "b/*"}, [f"file:{W}/a/b"]),
        ("write file:{folder}/{path:glob}", {"folder": "a*", "path": "b"}, [f"file:{W}/a*/b"]),
        ("write file:{folder}/{path:glob}", {"folder": "a", "path": "*/../.."}, ["file:"]),
        ("write file:{folder}/{path:glob}", {"folder": "a", "path": "{/b,c/d}"}, [f"file:{W}/a"]),
        ("write file:{folder}/{path:glob}", {"folder": "a"}, [f"file:{W}/a"]),
        ("write file:{path:glob}/{id}", {"path": "a/*", "id": 1}, [f"file:{W}/a"]),
        ("write file:{path:glob}/*/{id}", {"path": "a", "id": 1}, [f"file:{W}/a"]),
        ("write file:{paths:glob}", {"paths": ["a/*", "b"]}, [f"file:{W}/a", f"file:{W}/b"]),
        ("write file:{edits.path:glob}", {"edits": [{"path": "a/*"}]}, [f"file:{W}/a"]),
        ("write db:shop/*", {}, ["db:shop"]),
        ("write db:shop/ord*", {}, ["db:shop"]),
        ("write db:*", {}, ["db:"]),
        ("write db:{path}/*/{id}", {"path": "a*", "id": ".."}, ["db:a*"]),
        ("write db:shop/{path:glob}", {"path": "or*"}, ["db:shop"]),
        ("write db:shop/{path:glob}", {"path": "../*"}, ["db:shop"]),
        ("write db:{path:glob}", {"path": "a/*"}, ["db:"]),
        ("lane:mail/*", {}, ["lane:mail/*"]),
        ("lane:[mail]/{id}", {"id": "?"}, ["lane:[mail]/?"]),
    ],
)
def test_globs_stand_beside_values(
    template: str, arguments: dict[str, Any], resources: list[str]
) -> None:
    assert [claim.resource for claim in claims_of(template, **arguments)] == resources


def test_a_folder_and_all_below_it_are_the_same_claim() -> None:
    for folder in ("src", "a/b", "/", ".", "..", "../x", "[x]"):
        everything = claims_of("write file:{folder}/**", folder=folder)

        assert everything == claims_of("write file:{folder}", folder=folder)


def test_an_unresolved_glob_may_be_anything() -> None:
    templates = compile_claims(
        ["read file:{path:glob}", "read file:src/{path:glob}", "read file:lib/*/{path}"], PARAMETERS
    )

    found = templates.widened({"path": "${call}"}, {"path"}, NAMES)

    assert found == (shared("file:"), shared(f"file:{W}/src"), shared(f"file:{W}/lib"))


PIECES = st.lists(
    st.sampled_from(["a", "b", ".", "..", "*", "**", "?", "[ab]", "*a", "a*"]),
    min_size=1,
    max_size=5,
)


@settings(deadline=None)
@given(PIECES.map("/".join))
def test_whatever_a_glob_finds_is_below_what_it_claims(glob: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder, "so/deep/that/nothing/climbs/out/w")
        for inner in ("a/a/a", "a/b", "b/a", "b/b/ba"):
            (workspace / inner).mkdir(parents=True)
        names = Names(workspace)

        (claim,) = compile_claims(["read file:{path:glob}"], ["path"]).claims({"path": glob}, names)

        finds = iglob(glob, root_dir=workspace, recursive=True)  # noqa: PTH207 - it climbs
        for found in itertools.islice(finds, 200):
            assert covers(claim.resource, names.canonical(f"file:{found or '.'}"))


def test_lists_that_would_make_too_many_claims_of_files_widen_to_all_files() -> None:
    """Each of them may climb out of the folder, or leave it by a link."""
    many = [f"{at}" for at in range(1000)]

    assert len(claims_of("read file:src/{paths}", paths=many)) == 1000
    assert claims_of("read file:src/{paths}", paths=[*many, "../x"]) == (shared("file:"),)


def test_a_refused_value_is_told_with_its_place() -> None:
    def number(path: str) -> str:
        return str(int(path.rpartition("/")[2]))

    names = Names(W, canonicalisers={"order": number})
    templates = compile_claims(["write order:{folder}/{edits.id}"], PARAMETERS)

    with pytest.raises(BadResourceError) as refused:
        templates.claims({"folder": "shop", "edits": [{"id": 1}, {"id": "x"}]}, names)

    assert str(refused.value) == (
        "resource 'order:shop/x', from {folder}, {edits.id}: invalid literal for int() with base "
        "10: 'x'"
    )


def test_a_refused_template_without_places_is_told_as_it_is() -> None:
    names = Names(W, canonicalisers={"order": lambda path: str(int(path))})

    with pytest.raises(BadResourceError, match=r"^resource 'order:x': invalid literal"):
        compile_claims(["write order:x"], []).claims({}, names)


def test_a_link_in_the_workspace_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    templates = compile_claims(["write file:link/{path}"], ["path"])

    (claim,) = templates.claims({"path": "x"}, Names(tmp_path))

    assert claim.resource.endswith("/real/x")
