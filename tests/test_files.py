"""Files in a real file system: links of both kinds, case, and names that are no text."""

import itertools
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laneway.claims import exclusive, shared
from laneway.lanes.files import Files, folded
from laneway.lanes.names import BadResourceError, Names, is_alias, overlaps
from laneway.lanes.templates import compile_claims


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A folder with `a.txt`, which is `src/b.txt` as well, and `alone.txt`."""
    folder = Path(os.path.realpath(tmp_path)) / "w"
    (folder / "src").mkdir(parents=True)
    (folder / "a.txt").touch()
    (folder / "src" / "b.txt").hardlink_to(folder / "a.txt")
    (folder / "alone.txt").touch()
    return folder


def inode(path: Path) -> str:
    found = path.lstat()
    return f"inode:{found.st_dev}/{found.st_ino}"


def test_a_chain_of_very_many_links_is_followed_or_refused(workspace: Path) -> None:
    for n in range(1, 2000):
        (workspace / f"link{n}").symlink_to(f"link{n - 1}")
    (workspace / "link0").symlink_to("alone.txt")

    try:
        found = Names(workspace).canonical("file:link1999")
    except BadResourceError as refused:
        found = refused.fault

    assert found in {
        f"file:{workspace}/alone.txt",
        "it leads through more links than any system follows",
    }


# Hard links


def test_two_names_of_one_file_have_an_alias_in_common(workspace: Path) -> None:
    names = Names(workspace)

    one, other = names.resources("file:a.txt"), names.resources("file:src/b.txt")

    assert one == [f"file:{workspace}/a.txt", inode(workspace / "a.txt")]
    assert other == [f"file:{workspace}/src/b.txt", one[1]]
    assert [is_alias(name) for name in one] == [False, True]
    assert names.canonical("file:a.txt") == one[0]


@pytest.mark.parametrize("path", ["alone.txt", "src", ".", "new.txt", "src/new/new.txt", "/", ""])
def test_what_has_one_name_has_no_alias(workspace: Path, path: str) -> None:
    assert len(Names(workspace).resources(f"file:{path}")) == 1


@pytest.mark.parametrize(
    "spelling", ["./a.txt", "src/../a.txt", "{w}/a.txt", "to", "src/up/a.txt", "../w/src/b.txt"]
)
def test_an_alias_does_not_depend_on_the_spelling(workspace: Path, spelling: str) -> None:
    (workspace / "to").symlink_to("src/b.txt")
    (workspace / "src" / "up").symlink_to("..")

    found = Names(workspace).resources(f"file:{spelling.format(w=workspace)}")

    assert found[1:] == [inode(workspace / "a.txt")]


def test_files_that_are_no_data_have_links_too(workspace: Path, tmp_path: Path) -> None:
    os.mkfifo(workspace / "fifo")
    (workspace / "fifo2").hardlink_to(workspace / "fifo")
    names = Names(workspace)

    assert names.resources("file:fifo")[1:] == names.resources("file:fifo2")[1:] != []


def test_the_last_name_of_a_file_has_no_alias(workspace: Path) -> None:
    (workspace / "a.txt").unlink()

    assert Names(workspace).resources("file:src/b.txt") == [f"file:{workspace}/src/b.txt"]


def test_a_template_claims_the_alias_as_it_claims_the_name(workspace: Path) -> None:
    templates = compile_claims(
        ["read file:{path}", "write file:{paths}", "read file:a.txt"], ["path", "paths"]
    )
    alias = inode(workspace / "a.txt")

    found = templates.claims(
        {"path": "a.txt", "paths": ["src/b.txt", "alone.txt"]}, Names(workspace)
    )

    assert found == (
        shared(f"file:{workspace}/a.txt"),
        shared(alias),
        exclusive(f"file:{workspace}/src/b.txt"),
        exclusive(alias),
        exclusive(f"file:{workspace}/alone.txt"),
    )


def test_folders_are_claimed_by_name_alone(workspace: Path) -> None:
    """The inode of a folder cannot tell which of the files below have other names outside."""
    templates = compile_claims(
        ["write file:{folder}/**", "read file:src/{name}"], ["folder", "name"]
    )
    names = Names(workspace)

    assert templates.claims({"folder": "src"}, names) == (
        exclusive(f"file:{workspace}/src"),
        shared(f"file:{workspace}/src"),
    )


# Case


def tells_no_case(monkeypatch: pytest.MonkeyPatch, below: Path) -> None:
    """Let `lstat` find names below a folder in any case, as some file systems do."""
    lstat = Path.lstat

    def forgiving(path: Path) -> os.stat_result:
        if below in path.parents:
            for beside in path.parent.iterdir():
                if beside.name.casefold() == path.name.casefold():
                    return lstat(beside)
        return lstat(path)

    monkeypatch.setattr(Path, "lstat", forgiving)


@pytest.mark.parametrize("entries", [[], ["src"], ["Ä", "1", "a"], ["dangling"], ["linked", "d"]])
def test_a_workspace_that_does_not_tell_case_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: list[str]
) -> None:
    folder = tmp_path / "mount" / "w"
    folder.mkdir(parents=True)
    for name in entries:
        (folder / name).touch()
    if "linked" in entries:
        (folder / "linked2").hardlink_to(folder / "linked")
    if "dangling" in entries:
        (folder / "dangling").unlink()
        (folder / "dangling").symlink_to("nowhere")
    assert Names(folder).canonical("file:B") != Names(folder).canonical("file:b")

    tells_no_case(monkeypatch, folder.parent)

    assert Names(folder).canonical("file:B") == Names(folder).canonical("file:b")


@pytest.mark.parametrize("link", [Path.hardlink_to, Path.symlink_to, Path.write_text])
def test_a_name_that_is_there_in_two_cases_does_not_mislead(tmp_path: Path, link: Any) -> None:
    for name in ("a", "A"):
        if (tmp_path / name).exists():
            pytest.skip("the file system doesn't tell case")
        (tmp_path / name).touch()
    (tmp_path / "A").unlink()
    link(tmp_path / "A", str(tmp_path / "a"))

    names = Names(tmp_path)

    assert names.canonical("file:b") != names.canonical("file:B")


def test_a_workspace_that_cannot_be_listed_is_asked_for_by_its_name(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> Iterator[object]:
        raise PermissionError

    monkeypatch.setattr(os, "scandir", refuse)
    assert Files(workspace).find("B") == (f"{workspace}/B", "")
    assert Files("/").find("B") == ("/B", "")

    tells_no_case(monkeypatch, workspace.parent)

    assert Files(workspace).find("B") == (f"{workspace}/b".casefold(), "")


def test_a_folded_name_still_has_its_alias(workspace: Path) -> None:
    found = Names(workspace, case_sensitive=False).resources("file:a.txt")

    assert found == [f"file:{workspace}/a.txt".casefold(), inode(workspace / "a.txt")]


@given(st.text(max_size=8))
def test_a_folded_name_is_folded_for_good(name: str) -> None:
    assert folded(folded(name)) == folded(name)
    assert folded(name.upper().lower()) == folded(name.upper())


# Names that are no text


def test_bytes_that_are_no_text_are_written_as_text(workspace: Path) -> None:
    odd = os.fsdecode(b"\xff")
    try:
        (workspace / odd).mkdir()
    except (OSError, UnicodeError):
        pytest.skip("the file system takes no names that are no text")
    (workspace / "to").symlink_to(odd)
    names = Names(workspace)

    through_link, straight = names.canonical("file:to/x"), names.canonical(f"file:{odd}/x")

    assert through_link == straight == f"file:{workspace}/\\udcff/x"
    assert Names(workspace / odd).canonical("file:x") == straight


@pytest.mark.parametrize("name", ["\ud800", "new/\ud800", "a.txt/\ud800"])
def test_what_is_half_a_character_names_no_file(workspace: Path, name: str) -> None:
    with pytest.raises(BadResourceError, match="half a surrogate pair is in no name"):
        Names(workspace).canonical(f"file:{name}")


# Whatever the tree: one thing has something in common with itself, and with nothing else


FOLDERS = ("", "d", "d/e", "f")
NAMES = ("a", "b", "c")
STEPS = st.sampled_from([*NAMES, "d", "e", "f", "l", "m", "..", ".", "", "new"])
Tree = tuple[list[tuple[str, str]], list[tuple[str, str, int]], list[tuple[str, str, str]]]

trees = st.tuples(
    st.lists(st.tuples(st.sampled_from(FOLDERS), st.sampled_from(NAMES)), max_size=4),
    st.lists(  # hard links: folder, name, which of the files
        st.tuples(st.sampled_from(FOLDERS), st.sampled_from(NAMES), st.integers(0, 3)), max_size=4
    ),
    st.lists(  # symbolic links
        st.tuples(
            st.sampled_from(FOLDERS),
            st.sampled_from(["l", "m", "a"]),
            st.sampled_from(
                ["d", "d/e", "e", "..", "../f", "../a", "a", "l", "m/..", "new", "d/l"]
            ),
        ),
        max_size=4,
    ),
)


def plant(root: Path, tree: Tree) -> None:
    files, hard, symbolic = tree
    for folder in FOLDERS:
        (root / folder).mkdir(exist_ok=True)
    for folder, name in files:
        (root / folder / name).touch()
    for folder, name, which in hard:
        if files and not os.path.lexists(root / folder / name):
            (root / folder / name).hardlink_to(root.joinpath(*files[which % len(files)]))
    for folder, name, target in symbolic:
        if not os.path.lexists(root / folder / name):
            (root / folder / name).symlink_to(target)


def identity(path: str) -> object:
    """What a spelling stands for, as the operating system has it; None for nothing at all."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a Path would tidy the spelling
    except OSError:
        folder, _, name = path.rpartition("/")
        if os.path.lexists(path) or name in {"", ".", ".."}:
            return None  # A link that leads nowhere, or no name to be made.
        try:
            above = os.stat(folder)  # noqa: PTH116 - the same
        except OSError:
            return None
        return (above.st_dev, above.st_ino, name) if stat.S_ISDIR(above.st_mode) else None
    return found.st_dev, found.st_ino


@settings(deadline=None, max_examples=150)
@given(trees, st.lists(st.lists(STEPS, min_size=1, max_size=5), min_size=2, max_size=14))
def test_spellings_of_one_file_overlap_and_different_files_have_nothing_in_common(
    tree: Tree,
    spellings: list[list[str]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "w")
        root.mkdir()
        plant(root, tree)
        Path(folder, "to").symlink_to("w")
        names = Names(Path(folder, "to"))
        claimed = [
            (thing, names.resources(f"file:{spelling}"))
            for steps in [
                *spellings,
                *([folder, name] for folder in FOLDERS for name in NAMES),
                *([folder, "l", "..", "a"] for folder in FOLDERS),
            ]
            for path in ["/".join(steps).lstrip("/") or "."]
            for spelling in (path, f"{root}/{path}", f"{folder}/to//{path}")
            if (thing := identity(f"{root}/{path}")) is not None
        ]

        for (thing, one), (stuff, other) in itertools.combinations(claimed, 2):
            if thing == stuff:
                assert any(overlaps(a, b) for a in one for b in other), (one, other)
            else:
                assert not set(one) & set(other)
        for _, resources in claimed:
            assert names.resources(resources[0]) == resources
