"""The demo: what it shows, and that no death in the middle of it loses or repeats anything."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from laneway.engine.cli.app import app
from laneway.engine.cli.demo_model import ANSWERS, TASK, next_answer
from laneway.engine.cli.demo_project import PROJECT, REPAIRED, write_project

pytestmark = pytest.mark.skipif(os.name != "posix", reason="SIGKILL and fork are POSIX")

SRC = Path(__file__).resolve().parent.parent / "src"
ENVIRONMENT = {
    # Coverage would import the package first and asyncio twice, with two kinds of CancelledError.
    **{name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")},
    "PYTHONPATH": str(SRC),
}
HANG_SECONDS = 50

# A warm interpreter that forks: every demo and every resume is a process of its own, and none of
# them pays for the imports. Two of them share the commits, for two cores; every third commit is
# died before as well as after.
DEATHS = """
import json, os, sys, traceback
from pathlib import Path

import networkx

import laneway.engine.cli.app
from laneway.engine.cli import main
from laneway.engine.cli.journals import read_run
from laneway.errors import JournalError
from laneway.facts import CallEnded, CallStarted

folder, first = Path(sys.argv[1]), int(sys.argv[2])


def process(output, *arguments):
    child = os.fork()
    if not child:
        out = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        sys.argv = ["laneway", *arguments]
        try:
            main()
        except SystemExit as exit:
            sys.stdout.flush()
            os._exit(exit.code)
        except BaseException:
            traceback.print_exc()
        os._exit(70)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def rows_of(journal):
    try:
        return list(read_run(journal, "demo"))
    except JournalError:
        return []


def die(commit, *options):
    home = folder / "-".join([str(commit), *options])
    journal, told, answer = home / "laneway.db", folder / "told", folder / "answer"
    begin = ["demo", "--folder", str(home), "--crash-at", str(commit), *options]
    died = process(told, *begin)
    if died == 0:
        return False
    before = rows_of(journal)
    resumed = process(answer, "resume", "demo", "--journal", str(journal), "--json")
    after = rows_of(journal)
    ended = {row.fact.call for row in before if isinstance(row.fact, CallEnded)}
    since = [row.fact.call for row in after[len(before):] if isinstance(row.fact, CallStarted)]
    report = {
        "commit": commit,
        "died": died,
        "told": told.read_text(),
        "resumed": resumed,
        "answer": answer.read_text(),
        "facts": len(before),
        "kept": after[:len(before)] == before,
        "again": sorted(ended.intersection(since)),
        "project": {file.name: file.read_text() for file in (home / "project").iterdir()},
    }
    print(json.dumps(report), flush=True)
    return True


try:
    sys.argv = ["laneway", "resume", "nothing", "--journal", str(folder / "missing"), "--json"]
    main()  # typer imports the rest with its first command
except SystemExit:
    pass
for commit in range(first, 100, 2):
    if commit % 3 == 1:
        die(commit, "--before")
    if not die(commit):
        break
"""


def laneway(*arguments: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "laneway.engine.cli", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        env=ENVIRONMENT,
        **options,
    )


def deaths(folder: Path, first: int) -> "subprocess.Popen[str]":
    folder.mkdir()
    return subprocess.Popen(
        [sys.executable, "-c", DEATHS, str(folder), str(first)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )


def told_of(process: "subprocess.Popen[str]") -> list[dict[str, Any]]:
    output, errors = process.communicate(timeout=2 * HANG_SECONDS)
    assert process.returncode == 0, errors
    return [json.loads(line) for line in output.splitlines()]


@pytest.mark.long
def test_a_death_at_any_commit_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    odd, even = deaths(tmp_path / "odd", 1), deaths(tmp_path / "even", 2)
    reports = [*told_of(odd), *told_of(even)]

    assert len(reports) >= 14
    for report in reports:
        assert report["died"] == -signal.SIGKILL, report
        if not report["facts"]:
            assert "nothing was written yet" in report["told"]
            assert report["resumed"] == 2
            assert report["project"] == PROJECT
            continue
        assert "resume demo --journal" in report["told"]
        assert report["resumed"] == 0, report
        assert report["kept"], report
        assert report["again"] == [], report
        assert report["project"] == REPAIRED, report
        run = json.loads(report["answer"])
        assert run["succeeded"], report
        assert [len(turn["calls"]) for turn in run["turns"]] == [3, 1, 3, 1, 0]


def test_the_demo_repairs_the_project_and_shows_its_calls_and_lanes(tmp_path: Path) -> None:
    done = laneway("demo", "--folder", str(tmp_path / "demo"))

    assert done.returncode == 0, done.stderr
    project = tmp_path / "demo/project"
    assert {file.name: file.read_text() for file in project.iterdir()} == REPAIRED
    lines = done.stdout.splitlines()
    assert "  ▶ t1.1 read_file cart.py  holds file:cart.py shared" in lines
    assert "  · t3.3 edit_file cart.py  waits for t3.1: both touch file:cart.py" in lines
    # The reads overlap; the second edit of one file starts when the first has ended.
    order = [line.split()[:2] for line in lines if line[:3] in {"  ▶", "  ✓"}]
    assert [f"{mark} {call}" for mark, call in order[:3]] == ["▶ t1.1", "▶ t1.2", "▶ t1.3"]
    assert order.index(["✓", "t3.1"]) < order.index(["▶", "t3.3"])
    assert order.index(["▶", "t3.2"]) < order.index(["✓", "t3.1"])
    assert lines[-1].startswith("✓ the tests pass; journal: ")
    assert any("t3.3 edit_file cart.py  SUCCEEDED" in line for line in lines)
    assert done.stderr == ""


def test_the_tests_of_the_project_fail_before_and_pass_afterwards(tmp_path: Path) -> None:
    done = laneway("demo", "--folder", str(tmp_path / "demo"), "--json")

    document = json.loads(done.stdout)
    runs = [
        call["outcome"]["value"]
        for turn in document["run"]["turns"]
        for call in turn["calls"]
        if call["tool"] == "run_tests"
    ]
    assert [text.splitlines()[0] for text in runs] == ["exit code 1", "exit code 0"]
    assert document["passed"] is True
    assert document["workspace"] == str(tmp_path / "demo/project")


def in_process(*arguments: str) -> Result:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_the_demo_says_how_to_go_on_before_it_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaths: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: deaths.append((pid, number)))
    monkeypatch.setattr(sys, "argv", ["laneway"])
    monkeypatch.setattr("shutil.which", lambda _: None)

    result = in_process("demo", "--folder", str(tmp_path / "a b"), "--crash-at", "3", "--json")

    assert deaths == [(os.getpid(), signal.SIGKILL)]
    assert result.stderr == (
        "killed right after commit 3, as asked\n"
        "go on with:\n"
        f"  laneway resume demo --journal '{tmp_path}/a b/laneway.db'\n"
    )
    assert json.loads(result.stdout)["passed"] is True


def test_a_demo_that_dies_before_it_begins_has_nothing_to_go_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "kill", lambda *_: None)

    result = in_process("demo", "--folder", str(tmp_path / "d"), "--crash-at", "1", "--before")

    assert result.stdout.startswith(
        "killed right before commit 1, as asked\n"
        "nothing was written yet, so there is nothing to go on with\n"
    )
    assert result.exit_code == 0


def test_a_demo_that_has_ended_is_not_begun_again_by_resume(tmp_path: Path) -> None:
    in_process("demo", "--folder", str(tmp_path / "d"))

    result = in_process("resume", "demo", "--journal", str(tmp_path / "d/laneway.db"))

    assert result.exit_code == 0
    assert "▶" not in result.stdout
    (tmp_path / "d/project").rename(tmp_path / "elsewhere")
    result = in_process("resume", "demo", "--journal", str(tmp_path / "d/laneway.db"))
    assert result.exit_code == 2
    assert "that folder is gone: start anew" in result.stderr


def test_without_a_folder_the_demo_makes_one_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    result = in_process("demo")

    (folder,) = tmp_path.iterdir()
    assert folder.name.startswith("laneway-demo-")
    assert result.stdout.endswith(f"✓ the tests pass; journal: {folder}/laneway.db\n")


def test_the_demo_may_be_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("laneway.engine.cli.demo.repair", interrupted)

    result = in_process("demo", "--folder", str(tmp_path / "d"))

    assert result.exit_code == 130
    assert (
        result.stderr
        == "laneway: interrupted; what was running has been cancelled, and is recorded so\n"
    )


def test_the_demo_does_not_write_over_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()

    done = laneway("demo", "--folder", str(tmp_path))

    assert done.returncode == 2
    assert f"{tmp_path}/project is there already; name another folder" in done.stderr
    assert list((tmp_path / "project").iterdir()) == []
    assert not (tmp_path / "laneway.db").exists()


def test_the_demo_goes_on_only_where_its_project_still_is(tmp_path: Path) -> None:
    crashed = laneway("demo", "--folder", str(tmp_path / "demo"), "--crash-at", "4")
    assert crashed.returncode == -signal.SIGKILL
    (tmp_path / "demo/project").rename(tmp_path / "elsewhere")

    done = laneway("resume", "demo", "--journal", str(tmp_path / "demo/laneway.db"))

    assert done.returncode == 2
    assert "that folder is gone: start anew" in done.stderr


def test_the_recorded_model_needs_no_memory() -> None:
    conversation: list[dict[str, Any]] = [{"role": "user", "content": TASK}]
    for answer in ANSWERS:
        assert next_answer(conversation) == answer
        conversation += [answer, {"role": "user", "content": "…"}]

    with pytest.raises(IndexError):
        next_answer(conversation)


def test_the_project_is_laid_in_a_new_folder_only(tmp_path: Path) -> None:
    write_project(tmp_path / "new")

    assert {file.name: file.read_text() for file in (tmp_path / "new").iterdir()} == PROJECT
    with pytest.raises(FileExistsError):
        write_project(tmp_path / "new")
