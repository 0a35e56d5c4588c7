"""The real tools: what they do, how they refuse, and what the scheduler is told of them."""

import asyncio
import os
import re
import runpy
import signal
import stat
import sys
import time
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laneway import Code, Effect, Engine, Failure, State, Success, Turn
from laneway.engine.context import ToolContext
from laneway.engine.failing import ToolFailed
from laneway.engine.groups import signal_group
from laneway.engine.output import HEAD_BYTES, TAIL_BYTES
from laneway.engine.processes import run_process
from laneway.engine.toolkit import OutsideWorkspaceError, Workspace, edits, grep, toolkit
from laneway.engine.toolkit.files import MOST_CHARACTERS, Files
from laneway.engine.toolkit.shell import Shell
from laneway.engine.tools import Tool
from laneway.ids import CallId, RunId

T = TypeVar("T")
PYTHON = sys.executable


def context(attempt: int = 1) -> ToolContext:
    return ToolContext(
        run=RunId("r"), call=CallId("t1.1"), attempt=attempt, tool="edit_file", arguments={}
    )


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 30))


def shell(folder: Path, command: str, **options: Any) -> str:
    return run(Shell(Workspace(folder), **options).run_shell(command))


def files(folder: Path, **texts: str) -> Files:
    for name, text in texts.items():
        (folder / f"{name}.txt").write_bytes(text.encode())
    return Files(Workspace(folder))


def turn_of(tools: list[Tool], *calls: Mapping[str, Any]) -> Turn:
    async def main() -> Turn:
        async with Engine(tools) as engine, engine.run("toolkit") as taken:
            return await taken.submit({"calls": list(calls)})

    return run(main())


# The workspace


@pytest.mark.parametrize("path", ["..", "../x", "a/../../x", "out/x", "out"])
def test_no_path_leads_out_of_the_workspace(tmp_path: Path, path: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "out").symlink_to(tmp_path)

    with pytest.raises(OutsideWorkspaceError, match="leads out of the workspace; only what is bel"):
        Workspace(home).find(path)


def test_an_absolute_path_is_refused_with_the_relative_one(tmp_path: Path) -> None:
    with pytest.raises(OutsideWorkspaceError, match=r"start at the workspace: write 'a/b\.py'"):
        Workspace(tmp_path).find(f"{tmp_path}/a/b.py")


def test_an_absolute_path_elsewhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutsideWorkspaceError, match="'/etc/passwd' is absolute; paths start at"):
        Workspace(tmp_path).find("/etc/passwd")


def test_a_symbolic_link_within_the_workspace_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real.txt").write_text("x")
    (tmp_path / "link").symlink_to("real.txt")

    assert Workspace(tmp_path).file("link") == Path(os.path.realpath(tmp_path)) / "real.txt"


def test_a_workspace_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError, match=r"gone is no folder; create it first"):
        Workspace(tmp_path / "gone")


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("a\0b", "no file name holds a NUL character"),
        ("folder", "'folder' is a folder; name a file in it"),
        ("pipe", "'pipe' is no regular file"),
        ("notes.tx", r"there is no file 'notes.tx' in the workspace; is 'notes.txt' meant\?"),
        ("zzz", "there is no file 'zzz' in the workspace$"),
        ("no/such", "there is no file 'no/such' in the workspace, nor a folder 'no'"),
    ],
)
def test_what_is_no_file_is_named(tmp_path: Path, path: str, told: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "notes.txt").write_text("x")

    with pytest.raises((ValueError, FileNotFoundError), match=told):
        Workspace(tmp_path).file(path)


# Reading


def test_a_file_is_read_as_it_is(tmp_path: Path) -> None:
    assert files(tmp_path, a="one\r\ntwo\n").read_file("a.txt") == "one\r\ntwo\n"


def test_an_empty_file_is_read_as_nothing(tmp_path: Path) -> None:
    assert files(tmp_path, a="").read_file("a.txt") == ""


def test_a_part_says_of_how_much_it_is_a_part(tmp_path: Path) -> None:
    reader = files(tmp_path, a="1\n2\n3\n4\n")

    assert reader.read_file("a.txt", 2, 2) == "2\n3\n[lines 2-3 of 4; go on with start=4]"
    assert reader.read_file("a.txt", 3, 5) == "3\n4\n[lines 3-4 of 4]"


def test_a_long_file_is_cut_at_whole_lines(tmp_path: Path) -> None:
    line = "x" * 999
    text = f"{line}\n" * 200

    shown = files(tmp_path, a=text).read_file("a.txt")

    assert shown.endswith(f"{line}\n[lines 1-100 of 200; go on with start=101]")
    assert len(shown) < MOST_CHARACTERS + 100


def test_a_line_that_is_too_long_says_how_long_it_is(tmp_path: Path) -> None:
    shown = files(tmp_path, a="x" * 250_000).read_file("a.txt")

    assert shown.endswith("x\n[line 1 of 1, the first 100,000 of its 250,000 characters]")


@pytest.mark.parametrize(
    ("start", "lines", "told"),
    [(0, 1, "count from 1"), (1, 0, "count from 1"), (9, 1, "a.txt has 2 lines, so there is no")],
)
def test_lines_that_are_not_there_are_refused(
    tmp_path: Path, start: int, lines: int, told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        files(tmp_path, a="1\n2\n").read_file("a.txt", start, lines)


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"\xff\xfe")

    with pytest.raises(ValueError, match=r"'a\.bin' is no UTF-8 text"):
        files(tmp_path).read_file("a.bin")


def test_a_huge_file_is_refused_with_its_size(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(20_000_000)

    with pytest.raises(ValueError, match="huge has 20,000,000 bytes; files are read up to 10,0"):
        files(tmp_path).read_file("huge")


# Editing


def test_an_edit_replaces_the_one_passage(tmp_path: Path) -> None:
    told = files(tmp_path, a="one\ntwo\nthree\n").edit_file("a.txt", "two", "2", context())

    assert told == "edited a.txt, line 2"
    assert (tmp_path / "a.txt").read_text() == "one\n2\nthree\n"


def test_an_edit_keeps_permissions_and_leaves_nothing_beside(tmp_path: Path) -> None:
    editor = files(tmp_path, a="one")
    (tmp_path / "a.txt").chmod(0o754)

    editor.edit_file("a.txt", "one", "two", context())

    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o754
    assert names_in(tmp_path) == ["a.txt"]


def test_an_edit_through_a_link_changes_the_file_and_keeps_the_link(tmp_path: Path) -> None:
    editor = files(tmp_path, a="one")
    (tmp_path / "link").symlink_to("a.txt")

    editor.edit_file("link", "one", "two", context())

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a.txt").read_text() == "two"


def test_a_repeat_after_a_crash_finds_the_edit_made(tmp_path: Path) -> None:
    editor = files(tmp_path, a="one\n")
    editor.edit_file("a.txt", "one", "one\none more", context())

    told = editor.edit_file("a.txt", "one", "one\none more", context(attempt=2))

    assert told == "a.txt has this edit already; an earlier attempt made it"
    assert (tmp_path / "a.txt").read_text() == "one\none more\n"


def test_a_repeat_makes_the_edit_that_was_not_made_and_clears_what_was_left(
    tmp_path: Path,
) -> None:
    editor = files(tmp_path, a="one")
    left = tmp_path / f".a.txt.{context().idempotency_key[:16]}"
    left.write_text("half of a lon")

    editor.edit_file("a.txt", "one", "two", context(attempt=2))

    assert (tmp_path / "a.txt").read_text() == "two"
    assert not left.exists()


def test_an_edit_that_cannot_be_put_in_place_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = files(tmp_path, a="one")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        editor.edit_file("a.txt", "one", "two", context())

    assert (tmp_path / "a.txt").read_text() == "one"
    assert names_in(tmp_path) == ["a.txt"]


@pytest.mark.parametrize(
    ("text", "old", "new", "told"),
    [
        ("x", "", "y", "old is empty; copy the passage"),
        ("x", "x", "x", "old and new are the same"),
        ("x y", "z", "w", "does not occur in the file; read the file and copy"),
        ("x\nx\n", "x", "y", r"old occurs 2 times \(lines 1, 2\); give more of the text around"),
        ("x " * 9, "x", "y", r"old occurs 9 times \(lines 1, 1, 1, 1, 1, …\)"),
        ("aaa", "aa", "b", "old occurs 2 times"),
        ("a\ny\n", "x", "y", "new stands at line 2 already"),
        ("if a:\n\n    b()\n", "if a:\n  b()", "c", "only in white space stands at line 1: copy"),
        ("a\r\nb\r\n", "a\nb", "c", r"its lines end in \\r\\n, so must those of old and new"),
        ("x\ny", "x", "x\ny", "old occurs only within new, at line 1: the edit seems to be made"),
        ("aab", "ab", "b", "old would occur again beside what replaced it; give more"),
    ],
)
def test_an_edit_that_is_not_clear_is_refused(
    tmp_path: Path, text: str, old: str, new: str, told: str
) -> None:
    editor = files(tmp_path, a=text)

    with pytest.raises(ToolFailed, match=rf"^a\.txt: .*{told}"):
        editor.edit_file("a.txt", old, new, context())

    assert (tmp_path / "a.txt").read_bytes() == text.encode()


def test_a_repeated_deletion_is_recognised() -> None:
    once = edits.edited("one two three", " two", "", repeat=False)

    assert once == "one three"
    assert edits.edited(once, " two", "", repeat=True) == once


words = st.text("ab\n", max_size=6)


@given(text=st.text("ab\n", max_size=20), old=words, new=words)
def test_an_edit_made_twice_is_an_edit_made_once(text: str, old: str, new: str) -> None:
    try:
        once = edits.edited(text, old, new, repeat=False)
    except ValueError:
        return  # refused, so never made

    assert once != text
    # Whether the process died before or after it was made, the repeat comes to the same.
    assert edits.edited(text, old, new, repeat=True) == once
    assert edits.edited(once, old, new, repeat=True) == once


def test_a_whole_file_is_written_with_its_folders(tmp_path: Path) -> None:
    writer = files(tmp_path)

    assert writer.write_file("a/b/c.txt", "größer", context()) == "created a/b/c.txt: 6 characters"
    assert writer.write_file("a/b/c.txt", "x", context()) == "replaced a/b/c.txt: 1 characters"
    assert (tmp_path / "a/b/c.txt").read_text() == "x"


def test_nothing_is_written_over_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match=r"'\.' is no regular file; nothing was written"):
        files(tmp_path).write_file(".", "x", context())


# Searching


def searched(folder: Path, pattern: str, path: str = ".", names: str = "*") -> str:
    tools = {one.spec.name: one for one in toolkit(folder)}
    found: str = run(tools["search_files"](pattern, path, names))
    return found


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("b.py", "a/c.py", "a/d.txt", ".git/e.py", "__pycache__/f.py"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("def one():\n    return 1\n")
    (tmp_path / "data.bin").write_bytes(b"\xff def one()")
    (tmp_path / "z.py").symlink_to("b.py")
    return tmp_path


def test_matches_come_with_file_and_line_in_order(tree: Path) -> None:
    found = "b.py:1: def one():\na/c.py:1: def one():\na/d.txt:1: def one():"

    assert searched(tree, r"def \w+\(") == found


def test_a_search_may_be_narrowed(tree: Path) -> None:
    assert searched(tree, "def", names="*.txt") == "a/d.txt:1: def one():"
    assert searched(tree, "def", names="a/*.py") == "a/c.py:1: def one():"
    assert searched(tree, "def", path="a", names="c*") == "a/c.py:1: def one():"
    assert searched(tree, "return", path="a/d.txt") == "a/d.txt:2:     return 1"
    assert searched(tree, "nowhere", path="a/d.txt") == "no match in 1 file"


def test_a_broken_pattern_says_where_it_is_broken(tree: Path) -> None:
    with pytest.raises(ValueError, match=r"no regular expression: .* at position 0"):
        searched(tree, "(")


def test_a_search_somewhere_that_is_not_there_is_refused(tree: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no 'gone' in the workspace"):
        searched(tree, "x", path="gone")
    with pytest.raises(OutsideWorkspaceError):
        searched(tree, "x", path="..")


def test_many_matches_and_long_lines_are_cut(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(f"{'x' * 500}\n" * 300)

    lines = searched(tmp_path, "x").splitlines()

    assert lines[0] == f"a:1: {'x' * 300}…"
    assert len(lines) == 101
    assert lines[-1] == "[only the first 100 matches; narrow pattern, path or files]"


def test_a_pattern_that_never_ends_can_be_stopped(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a" * 60 + "b")
    search = toolkit(tmp_path)[1]

    async def main() -> float:
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(search("(a+)+$"), 0.3)
        return time.monotonic() - began

    assert run(main()) < 5


def test_the_search_is_a_script_of_its_own(
    tree: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["grep.py", "def", str(tree), "a/c.py", "*"])

    with pytest.raises(SystemExit) as left:
        runpy.run_path(grep.__file__, run_name="__main__")

    assert left.value.code == 0
    assert capsys.readouterr().out == "a/c.py:1: def one():\n"


def test_the_script_gives_no_more_than_the_first_matches(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x\n" * 300)
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(6_000_000)

    assert len(list(grep.found(re.compile("x"), tmp_path, ".", "*"))) == 101


def test_the_search_runs_by_itself(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert grep.main(["def", str(tree), ".", "b*"]) == 0
    assert grep.main(["(", str(tree), ".", "*"]) == 2
    assert grep.main(["zzz", str(tree), ".", "*"]) == 0

    told = capsys.readouterr().out
    assert told.startswith("b.py:1: def one():\nthe pattern is no regular expression: ")
    assert told.endswith("no match in 4 files\n")


def test_a_file_too_large_is_not_searched(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(6_000_000)

    assert searched(tmp_path, "x") == "no match in 0 files"


# Commands


def test_a_command_tells_its_exit_code_first(tmp_path: Path) -> None:
    assert shell(tmp_path, "echo one; echo two >&2; exit 3") == "exit code 3\none\ntwo"
    assert shell(tmp_path, "true") == "exit code 0\n(no output)"


def test_a_command_runs_in_the_workspace_with_its_environment(tmp_path: Path) -> None:
    told = shell(tmp_path, "pwd; echo $WHO", environment={"WHO": "me"})

    assert told == f"exit code 0\n{os.path.realpath(tmp_path)}\nme"


def test_a_command_reads_no_input(tmp_path: Path) -> None:
    assert shell(tmp_path, "cat") == "exit code 0\n(no output)"


def test_a_signal_is_named(tmp_path: Path) -> None:
    assert shell(tmp_path, "kill -TERM $$") == "killed by SIGTERM\n(no output)"
    assert shell(tmp_path, "kill -40 $$").startswith("killed by ")


def test_a_long_output_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    told = shell(tmp_path, f"{PYTHON} -c \"print('a' * 50_000, 'b' * 250_000, 'end')\"")

    size = 50_000 + 250_000 + 6
    first, rest = told.split("\n", 1)
    assert first == f"exit code 0 (output of {size:,} bytes, cut)"
    assert rest.startswith("aaa")
    assert rest.endswith("bbb end")
    assert f"[… {size - HEAD_BYTES - TAIL_BYTES:,} bytes left out …]" in rest


def test_what_is_no_text_is_shown_as_well_as_it_can_be(tmp_path: Path) -> None:
    assert shell(tmp_path, r"printf 'a\377b'") == "exit code 0\na\ufffdb"


def test_what_a_command_leaves_running_is_killed(tmp_path: Path) -> None:
    told = shell(tmp_path, "sleep 60 & echo $!")

    assert is_gone(int(told.split()[-1]))


def test_a_daemon_that_escapes_does_not_hold_the_call_up(tmp_path: Path) -> None:
    began = time.monotonic()

    told = shell(tmp_path, f"{PYTHON} -c 'import os, time; os.setsid(); time.sleep(5)' & sleep 0.3")

    assert told.startswith("exit code 0")
    assert time.monotonic() - began < 4


def test_a_cancelled_command_ends_with_all_that_it_has_started(tmp_path: Path) -> None:
    async def main() -> list[int]:
        script = "sleep 60 & echo $$ $! > pids; wait"
        running = asyncio.ensure_future(Shell(Workspace(tmp_path)).run_shell(script))
        while not (pids := read(tmp_path / "pids").split()):  # noqa: ASYNC110 - it is the shell's file
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return [int(pid) for pid in pids]

    assert all(is_gone(pid) for pid in run(main()))


def test_a_command_cancelled_while_it_starts_leaves_nothing_running(tmp_path: Path) -> None:
    async def main() -> None:
        command = ["/bin/sh", "-c", "sleep 0.2; touch it_went_on"]
        running = asyncio.ensure_future(run_process(command, cwd=tmp_path))
        for _ in range(3):  # into the start of the process, not beyond
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await asyncio.sleep(0.4)

    run(main())

    assert names_in(tmp_path) == []


def test_a_program_that_is_not_there_may_be_cancelled_too(tmp_path: Path) -> None:
    async def main() -> None:
        running = asyncio.ensure_future(run_process(["no-such-program"], cwd=tmp_path))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises((asyncio.CancelledError, FileNotFoundError)):
            await running

    run(main())


def test_a_program_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        run(run_process(["no-such-program"], cwd=tmp_path))


def test_a_group_that_has_ended_is_ended() -> None:
    signal_group(2**22 + 1, signal.SIGKILL)  # above the highest process id of Linux


# What the scheduler is told


def test_the_tools_declare_what_they_do(tmp_path: Path) -> None:
    tools = {one.spec.name: one.spec for one in toolkit(tmp_path, tests=["true"])}

    assert {name: (spec.effect, spec.idempotent) for name, spec in tools.items()} == {
        "read_file": (Effect.READ, True),
        "search_files": (Effect.READ, True),
        "edit_file": (Effect.WRITE, True),
        "write_file": (Effect.WRITE, True),
        "run_shell": (Effect.EXTERNAL, False),
        "run_tests": (Effect.WRITE, True),
    }
    assert tools["edit_file"].literal == {"old", "new"}
    assert tools["write_file"].literal == {"content"}
    assert tools["run_shell"].literal == {"command"}
    assert tools["edit_file"].schema["required"] == ["path", "old", "new"]
    assert tools["edit_file"].description.startswith("Replace a passage of a text file.")
    assert "context" not in tools["edit_file"].schema["properties"]


def test_the_tests_run_as_the_host_says(tmp_path: Path) -> None:
    tests = toolkit(tmp_path, tests=["/bin/sh", "-c", "echo 3 tests; exit 1"])[-1]

    assert run(tests()) == "exit code 1\n3 tests"


def test_there_are_no_tests_to_run_unless_the_host_says_how(tmp_path: Path) -> None:
    assert "run_tests" not in {one.spec.name for one in toolkit(tmp_path)}


def test_claims_name_the_file_whatever_the_engine_works_in(tmp_path: Path) -> None:
    folder = tmp_path / "with {braces}"
    folder.mkdir()
    (folder / "a.txt").write_text("x")

    turn = turn_of(
        toolkit(folder),
        {"id": "r", "tool": "read_file", "arguments": {"path": "./a.txt"}},
        {"id": "s", "tool": "run_shell", "arguments": {"command": "echo ${r} >> a.txt"}},
    )

    root = os.path.realpath(folder)
    assert f"shared file:{root}/a.txt" in map(str, turn.call("r").record.claims)
    assert [str(claim) for claim in turn.call("s").record.claims][1:] == [
        f"exclusive lane:shell/{root}",
        f"exclusive file:{root}/a.txt",
    ]
    # The command is text, so it waits for the read by conflict, not by reference.
    edge = turn.graph.edges[CallId("t1.1"), CallId("t1.2")]
    assert edge["reason"] == "conflict"
    assert turn.call("s").outcome == Success(value="exit code 0\n(no output)")


def test_two_edits_of_one_file_keep_their_order_and_those_of_others_overlap(
    tmp_path: Path,
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("1")

    turn = turn_of(
        toolkit(tmp_path),
        {"id": "one", "tool": "edit_file", "arguments": {"path": "a", "old": "1", "new": "12"}},
        {"id": "other", "tool": "edit_file", "arguments": {"path": "b", "old": "1", "new": "2"}},
        {"id": "two", "tool": "edit_file", "arguments": {"path": "./a", "old": "2", "new": "3"}},
    )

    assert [call.state for call in turn.calls] == [State.SUCCEEDED] * 3
    assert (tmp_path / "a").read_text() == "13"
    assert [*turn.graph.edges] == [("t1.1", "t1.3")]


def test_a_path_that_leads_out_is_answered_to_the_model(tmp_path: Path) -> None:
    turn = turn_of(
        toolkit(tmp_path), {"id": "r", "tool": "read_file", "arguments": {"path": "../x"}}
    )

    outcome = turn.call("r").outcome
    assert isinstance(outcome, Failure)
    assert outcome.code is Code.TOOL_ERROR
    assert "'../x' leads out of the workspace" in outcome.message


def test_a_file_of_text_with_references_in_it_is_written_as_it_is(tmp_path: Path) -> None:
    text = "echo ${HOME} ${r} $${x}"

    turn_of(
        toolkit(tmp_path),
        {"id": "r", "tool": "search_files", "arguments": {"pattern": "${HOME}"}},
        {"id": "w", "tool": "write_file", "arguments": {"path": "a.sh", "content": text}},
    )

    assert (tmp_path / "a.sh").read_text() == text


def names_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def read(file: Path) -> str:
    return file.read_text() if file.exists() else ""


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for yet has."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False
