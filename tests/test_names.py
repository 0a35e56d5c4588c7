"""One thing has one name, and levels say what covers it."""

import os
import re
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from laneway.errors import UsageError
from laneway.lanes.names import BadResourceError, Names, covers, levels, overlaps


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A folder with `src/a.py`, a link `linked` to `src`, and a link `loop` to itself."""
    folder = Path(os.path.realpath(tmp_path)) / "w"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "a.py").touch()
    (folder / "linked").symlink_to("src")
    (folder / "up").symlink_to("..")
    (folder / "loop").symlink_to("loop")
    (folder / "slashes").symlink_to("//no-such-folder")
    (folder / "dangling").symlink_to("src/not-yet.py")
    (folder / "ring").symlink_to("gnir")
    (folder / "gnir").symlink_to("ring")
    return folder


@pytest.mark.parametrize(
    "spelling",
    ["./out/f.txt", "out/../out/f.txt", "{w}/out//f.txt", "out/./f.txt", "/{w}/out/f.txt"],
)
def test_h_res_1_every_spelling_of_a_path_that_does_not_exist_is_one_name(
    workspace: Path, spelling: str
) -> None:
    name = Names(workspace).canonical(f"file:{spelling.format(w=workspace)}")

    assert name == f"file:{workspace}/out/f.txt"


@pytest.mark.parametrize(
    ("path", "real"),
    [
        ("linked/a.py", "src/a.py"),
        ("linked", "src"),
        ("linked/", "src"),
        ("linked/new/b.py", "src/new/b.py"),
        ("linked/../src/a.py", "src/a.py"),
        ("up/w/src/a.py", "src/a.py"),
        ("src/a.py/x", "src/a.py/x"),
        ("SRC/a.py", "SRC/a.py"),
        ("ä/日本.txt", "ä/日本.txt"),
        ("a b.txt ", "a b.txt "),
        ("~/x", "~/x"),
        ("file:///x", "file:/x"),
        ("a%20b", "a%20b"),
        ("a\\b", "a\\b"),
        ("\n", "\n"),
        ("[x]*?.py", "[x]*?.py"),
        ("a\u0308", "a\u0308"),
        ("src/a.py/", "src/a.py"),
        ("src/a.py/..", "src"),
        ("up/..", "../.."),
        ("src/..", "."),
        ("dangling", "src/not-yet.py"),
        ("dangling/../b", "src/b"),
        ("linked/not/yet/../x", "src/not/x"),
        ("ring/x", "ring/x"),
        ("loop", "loop"),
        ("loop/../src", "src"),
        ("loop//x", "loop/x"),
    ],
)
def test_links_are_resolved_and_the_rest_is_kept(workspace: Path, path: str, real: str) -> None:
    names = Names(workspace)

    assert names.canonical(f"file:{path}") == f"file:{os.path.normpath(workspace / real)}"
    assert names.canonical(f"file:{workspace}/{path}") == names.canonical(f"file:{path}")


def test_a_workspace_that_is_a_link_is_one_with_what_it_leads_to(workspace: Path) -> None:
    (workspace.parent / "link").symlink_to(workspace)
    through_link = Names(workspace.parent / "link")

    assert through_link.canonical("file:src/a.py") == f"file:{workspace}/src/a.py"
    assert (
        Names(workspace).canonical(f"file:{workspace.parent}/link/src")
        == through_link.canonical("file:src")
        == f"file:{workspace}/src"
    )


@pytest.mark.parametrize("spelling", ["/{w}/x", "//{w}/x", "///{w}//x/", "/{w}/./x"])
def test_slashes_before_a_path_are_one(workspace: Path, spelling: str) -> None:
    name = Names(workspace).canonical(f"file:{spelling.format(w=workspace)}")

    assert name == f"file:{workspace}/x"


def test_a_relative_workspace_stays_where_it_was(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace)
    names = Names(".")
    monkeypatch.chdir("/")

    assert names.canonical("file:x") == f"file:{workspace}/x"


@pytest.mark.parametrize(
    "everything", ["file:", "file:/", "file://", "file:/..", "file:" + "../" * 50]
)
def test_the_root_of_all_files_is_the_scheme(workspace: Path, everything: str) -> None:
    assert Names(workspace).canonical(everything) == "file:"


def test_a_link_that_begins_with_two_slashes_is_no_other_place(workspace: Path) -> None:
    assert Names(workspace).canonical("file:slashes/x") == "file:/no-such-folder/x"


def test_a_workspace_may_be_the_root(workspace: Path) -> None:
    names = Names("/")

    assert names.canonical("file:.") == "file:"
    assert names.canonical("file:no-such-folder/x") == "file:/no-such-folder/x"
    assert names.canonical("file:/no-such-folder/x") == "file:/no-such-folder/x"
    assert names.canonical(f"file:{workspace}/linked") == f"file:{workspace}/src"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(
        st.sampled_from(["src", "linked", "loop", "up", "w", "a.py", "..", ".", "", "new"]),
        min_size=1,
        max_size=8,
    )
)
def test_paths_are_resolved_as_realpath_resolves_them(workspace: Path, steps: list[str]) -> None:
    path = "/".join(steps)
    expected = os.path.realpath(re.sub("/+", "/", f"{workspace}/{path}"))

    name = Names(workspace).canonical(f"file:./{path}")

    assert name == f"file:{expected}" or (expected, name) == ("/", "file:")


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("db:shop//orders/./42/", "db:shop/orders/42"),
        ("db:/shop", "db:shop"),
        ("db:", "db:"),
        ("agent:researcher", "agent:researcher"),
        ("browser:ctx1", "browser:ctx1"),
        ("lane:tool/x", "lane:tool/x"),
        ("lane:shell//w/../x", "lane:shell//w/../x"),
        ("run:fix/42", "run:fix/42"),
        ("run:a:b", "run:a:b"),
    ],
)
def test_other_schemes_have_tidy_levels_and_flat_ones_are_left_alone(
    workspace: Path, spelling: str, name: str
) -> None:
    assert Names(workspace).canonical(spelling) == name


@pytest.mark.parametrize(
    ("resource", "message"),
    [
        ("", "resource '': write scheme:path, as in file:src/a.py or lane:mail"),
        ("mail", "resource 'mail': write scheme:path, as in file:src/a.py or lane:mail"),
        ("/w/a", "resource '/w/a': write scheme:path, as in file:src/a.py or lane:mail"),
        ("DB:x", "resource 'DB:x': write scheme:path, as in file:src/a.py or lane:mail"),
        ("lane:", "resource 'lane:': name one, as in lane:mail"),
        ("db:a/../b", "resource 'db:a/../b': only a file path may hold '..'"),
        (
            "file:a\0b",
            "resource 'file:a\\x00b': a name has up to 4096 characters, none a NUL",
        ),
        ("file:\ud800", "resource 'file:\\ud800': half a surrogate pair is in no name"),
        ("file:no/\ud800", "resource 'file:no/\\ud800': half a surrogate pair is in no name"),
        (
            "db:" + "x" * 5000,
            "resource 'db:" + "x" * 197 + "…': a name has up to 4096 characters, none a NUL",
        ),
        (
            "db:" + "/".join("x" * 150),
            "resource 'db:" + ("x/" * 99)[:197] + "…': it is more than 128 levels deep",
        ),
    ],
    ids=lambda text: text[:20].encode("ascii", "backslashreplace").decode(),
)
def test_a_resource_that_cannot_be_named_is_refused_by_name(
    workspace: Path, resource: str, message: str
) -> None:
    with pytest.raises(BadResourceError) as refused:
        Names(workspace).canonical(resource)

    assert str(refused.value) == message


def test_a_workspace_that_cannot_be_named_is_refused() -> None:
    with pytest.raises(BadResourceError, match="file:/w"):
        Names("/w\0")


def test_a_deep_lane_is_one_level(workspace: Path) -> None:
    name = "lane:" + "/".join("x" * 150)

    assert Names(workspace).canonical(name) == name
    assert levels(name) == (name,)


def table_name(path: str) -> str:
    if not path:
        raise ValueError("a table needs a name")
    return path.lower().replace(".", "/")


def test_a_host_registers_the_spelling_of_a_scheme(workspace: Path) -> None:
    names = Names(workspace, canonicalisers={"db": table_name, "file": str.upper})

    assert names.canonical("db:Shop.Orders") == "db:shop/orders"
    assert names.canonical("file:a/b") == names.canonical("file:/a//./b/") == "file:/A/B"
    assert names.canonical("file:") == "file:"
    with pytest.raises(BadResourceError) as refused:
        names.canonical("db:")
    assert str(refused.value) == "resource 'db:': a table needs a name"


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("shop/orders/", "db:shop/orders"),
        ("/shop//orders", "db:shop/orders"),
        ("./shop/./orders", "db:shop/orders"),
        ("/", "db:"),
    ],
)
def test_what_a_canonicaliser_gives_is_split_into_tidy_levels(
    workspace: Path, spelling: str, name: str
) -> None:
    assert Names(workspace, canonicalisers={"db": str}).canonical(f"db:{spelling}") == name


def of_a_kind(kind: Any) -> Any:
    def canonicaliser(_: str) -> Any:
        if isinstance(kind, BaseException):
            raise kind
        return kind

    return canonicaliser


def test_an_interrupt_leaves_a_canonicaliser(workspace: Path) -> None:
    names = Names(workspace, canonicalisers={"db": of_a_kind(KeyboardInterrupt())})

    with pytest.raises(KeyboardInterrupt):
        names.canonical("db:x")


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (ValueError("two levels, as in shop/orders"), "two levels, as in shop/orders"),
        (ValueError(), "it is none"),
        (KeyError("x"), "the canonicaliser of db: raised KeyError"),
        (None, "the canonicaliser of db: gave None, which is no name"),
        (ValueError("x" * 300), f"{'x' * 200}…"),
        (SystemExit(1), "the canonicaliser of db: raised SystemExit"),
        ("a\0", "the canonicaliser of db: gave 'a\\x00', which is no name"),
        ("x" * 4097, f"the canonicaliser of db: gave '{'x' * 199}…, which is no name"),
        (
            "shop/../x",
            (
                "the canonicaliser of db: gave 'shop/../x', and nothing climbs in a name; it has "
                "to resolve or refuse '..'"
            ),
        ),
        ("\ud800", "half a surrogate pair is in no name"),
        ("a/" * 200, "it is more than 128 levels deep"),
    ],
)
def test_whatever_goes_wrong_in_a_canonicaliser_is_a_fault_of_the_name(
    workspace: Path, given: Any, fault: str
) -> None:
    names = Names(workspace, canonicalisers={"db": of_a_kind(given)})

    with pytest.raises(BadResourceError) as refused:
        names.canonical("db:x")

    assert str(refused.value) == f"resource 'db:x': {fault}"


@pytest.mark.parametrize("scheme", ["db:", "DB", "", "lane", "run", "inode"])
def test_a_canonicaliser_is_registered_for_a_scheme_of_the_hosts_own(scheme: str) -> None:
    with pytest.raises(UsageError) as refused:
        Names("/", canonicalisers={scheme: str})

    assert str(refused.value) == (
        f"no canonicaliser can be registered for {scheme!r}: give the scheme alone, as in 'db'; "
        "names of lane:, run:, inode: are Laneway's own"
    )


def test_the_parent_of_a_name_that_a_host_spells_is_the_hosts_or_all(workspace: Path) -> None:
    def two_levels(path: str) -> str:
        if path.count("/") != 1:
            raise ValueError("two levels, as in shop/orders")
        return path.lower()

    lower = Names(workspace, canonicalisers={"db": str.lower})
    strict = Names(workspace, canonicalisers={"db": two_levels})

    assert lower.literal_parent("db:Shop/ord") == "db:shop"
    assert strict.literal_parent("db:Shop/ord") == "db:"
    assert strict.literal_parent("db:Shop/Orders/4") == "db:shop/orders"
    with pytest.raises(BadResourceError, match=r"'\.\.'"):
        lower.literal_parent("other:../x")


@pytest.mark.parametrize(
    ("prefix", "parent"),
    [
        ("file:", "file:{w}"),
        ("file:/", "file:"),
        ("file:src/", "file:{w}/src"),
        ("file:linked/a_", "file:{w}/src"),
        ("file:src", "file:{w}"),
        ("db:", "db:"),
        ("db:shop/ord", "db:shop"),
    ],
)
def test_a_glob_starts_in_the_workspace(workspace: Path, prefix: str, parent: str) -> None:
    assert Names(workspace).glob_parent(prefix) == parent.format(w=workspace)


def test_names_are_folded_where_the_file_system_does_not_tell_case(workspace: Path) -> None:
    names = Names(workspace, case_sensitive=False)

    assert names.canonical("file:SRC/Ä.py") == names.canonical("file:src/a\u0308.PY")
    assert Names(workspace).canonical("file:SRC") != Names(workspace).canonical("file:src")


@pytest.mark.parametrize(
    ("prefix", "parent"),
    [
        ("file:", "file:"),
        ("file:/", "file:"),
        ("file:/no-such/a_", "file:/no-such"),
        ("file:src/", "file:{w}/src"),
        ("file:src/a_", "file:{w}/src"),
        ("file:linked/", "file:{w}/src"),
        ("file:src", "file:{w}"),
        ("file:./", "file:{w}"),
        ("db:", "db:"),
        ("db:shop/orders/", "db:shop/orders"),
        ("db:shop/ord", "db:shop"),
        ("db:sho", "db:"),
        ("lane:", "lane:"),
        ("lane:mail/", "lane:mail"),
        ("lane:mail", "lane:mail"),
        ("lane:/", "lane:/"),
    ],
)
def test_the_literal_parent_covers_whatever_may_follow(
    workspace: Path, prefix: str, parent: str
) -> None:
    assert Names(workspace).literal_parent(prefix) == parent.format(w=workspace)


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        ("file:/w/a.py", ("file:", "file:/w", "file:/w/a.py")),
        ("file:/w", ("file:", "file:/w")),
        ("file:/", ("file:",)),
        ("file:", ("file:",)),
        ("db:shop/orders/42", ("db:", "db:shop", "db:shop/orders", "db:shop/orders/42")),
        ("lane:tool/x", ("lane:tool/x",)),
        ("run:a/b", ("run:a/b",)),
    ],
)
def test_levels_lead_from_the_scheme_to_the_resource(
    resource: str, expected: tuple[str, ...]
) -> None:
    assert levels(resource) == expected


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("file:", "file:/w/a"),
        ("file:/", "file:/w/a"),
        ("file:/w", "file:/w/a"),
        ("file:/w", "file:/w"),
        ("db:shop", "db:shop/orders/42"),
        ("lane:", "lane:mail"),
        ("lane:mail", "lane:mail"),
    ],
)
def test_a_resource_covers_itself_and_all_below(wide: str, narrow: str) -> None:
    assert covers(wide, narrow)
    assert covers(narrow, wide) == (wide == narrow)
    assert overlaps(wide, narrow)
    assert overlaps(narrow, wide)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("file:/w", "file:/wide"),
        ("file:/w/a", "file:/w/b"),
        ("file:/w", "db:w"),
        ("file:", "db:"),
        ("lane:mail", "lane:mail/joe"),
        ("run:a", "run:a/b"),
        ("lane:", "run:a"),
    ],
)
def test_strangers_do_not_overlap(one: str, other: str) -> None:
    assert not overlaps(one, other)
    assert not overlaps(other, one)


path_texts = st.lists(st.text(string.ascii_lowercase, min_size=1, max_size=2), max_size=4)


@given(path_texts, path_texts)
def test_overlap_is_one_path_being_the_beginning_of_the_other(
    one: list[str], other: list[str]
) -> None:
    depth = min(len(one), len(other))

    found = overlaps("db:" + "/".join(one), "db:" + "/".join(other))

    assert found == (one[:depth] == other[:depth])
