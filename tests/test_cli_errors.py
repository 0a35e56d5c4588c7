"""Bad input to the command line: one message that names place and fault, exit code 2, no traces."""

import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from laneway.engine.cli import demo
from laneway.engine.cli.app import app, shown_run
from laneway.journal.migrate import APPLICATION_ID

TOOLS = """
from laneway import Effect, tool

@tool(effect=Effect.PURE)
async def add(a: int, b: int) -> int:
    return a + b
"""

ADD = {"id": "sum", "tool": "add", "arguments": {"a": 1, "b": 2}}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with tools, plan and policy, as the current one."""
    (tmp_path / "toolbox.py").write_text(TOOLS)
    (tmp_path / "plan.json").write_text(json.dumps({"calls": [ADD]}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("LANEWAY_JOURNAL", raising=False)
    sys.modules.pop("toolbox", None)
    return tmp_path


def laneway(*arguments: str) -> Result:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def refusal(*arguments: str) -> str:
    """The message of a command that must be refused, with nothing on standard output."""
    result = laneway(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("laneway: ")
    assert result.stderr.count("laneway: ") == 1
    return result.stderr.removeprefix("laneway: ").rstrip("\n")


def refused_plan(here: Path, text: str | bytes) -> str:
    (here / "plan.json").write_bytes(text.encode() if isinstance(text, str) else text)
    message = refusal("run", "plan.json", "--tools", "toolbox")
    assert not (here / "laneway.db").exists()
    return message


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            '{"calls": [\n  {"tool": }',
            "plan.json, line 2, column 12: this is no JSON: Expecting va",
        ),
        ("", "plan.json, line 1, column 1: this is no JSON: Expecting value"),
        (b"\xff{}", "plan.json: is no UTF-8 text (byte 0)"),
        ('"x"', 'plan.json: a plan is an object with calls: {"calls": […]}'),
        (
            '{"a": 1, "a": 2}',
            "plan.json: this JSON cannot be taken: the key 'a' stands twice in one",
        ),
        ('{"calls": NaN}', "plan.json: this JSON cannot be taken: NaN is no number in JSON"),
        ("[" * 100_000, "plan.json: this JSON cannot be taken: maximum recursion depth exceeded"),
        ('{"steps": []}', "is in no known format (bedrock-converse, anthropic-"),
        ('{"calls": 3}', "calls: expected a list of calls, not "),
    ],
)
def test_a_plan_that_cannot_be_read_is_refused(here: Path, text: str | bytes, told: str) -> None:
    assert told in refused_plan(here, text)


def test_a_plan_that_is_not_there_is_refused(here: Path) -> None:
    message = refusal("run", "gone.json", "--tools", "toolbox")

    assert message == "gone.json: cannot be read (No such file or directory)"


def test_a_plan_is_refused_whole_with_every_fault_named(here: Path) -> None:
    calls: list[dict[str, Any]] = [
        ADD,
        {"id": "a", "tool": "ad", "arguments": {}},
        {"id": "b", "tool": "add", "arguments": {"a": "x"}},
        {"id": "c", "tool": "add", "arguments": {"a": 1, "b": "${gone}"}},
        {"id": "d", "tool": "add", "arguments": {"a": 1, "b": 1}, "needs": ["e"]},
        {"id": "e", "tool": "add", "arguments": {"a": 1, "b": 1}, "needs": ["d"]},
    ]

    message = refused_plan(here, json.dumps({"calls": calls}))

    assert message.startswith("the plan has 5 faults; nothing of it was run:\n  - a (ad): ")
    for told in ('no tool named "ad"', "b is missing", "'gone'", "d, e wait for one another"):
        assert told in message


@pytest.mark.parametrize(
    ("tools", "told"),
    [
        ("gone", "module 'gone' cannot be imported (ModuleNotFoundError"),
        ("toolbox:gone", "module 'toolbox' has no 'gone'"),
        ("json", "module 'json' holds no tools; decorate its functions with @tool"),
        ("broken", "module 'broken' cannot be imported (ZeroDivisionError: division by zero)"),
    ],
)
def test_tools_that_are_not_there_are_named(here: Path, tools: str, told: str) -> None:
    (here / "broken.py").write_text("1 / 0")

    assert told in refusal("run", "plan.json", "--tools", tools)
    assert not (here / "laneway.db").exists()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[[rule]\n", "policy.toml"),
        ('[[rule]]\ndecision = "maybe"\n', "policy.toml:2"),
        (None, "policy.toml: cannot be read: No such file or directory"),
    ],
)
def test_a_policy_that_cannot_be_read_is_refused(here: Path, text: str | None, told: str) -> None:
    if text is not None:
        (here / "policy.toml").write_text(text)

    message = refusal("run", "plan.json", "--tools", "toolbox", "--policy", "policy.toml")

    assert told in message
    assert not (here / "laneway.db").exists()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--lanes", "mail"], "--lanes mail: write NAME=N, for instance mail=2"),
        (["--lanes", "mail=x"], "--lanes mail=x: write NAME=N"),
        (["--lanes", f"mail={'9' * 5000}"], f"--lanes mail={'9' * 75}…: write NAME=N"),
        (["--lanes", "mail=0"], "mail"),
        (["--workspace", "gone"], "--workspace gone: there is no such folder"),
        (["--mode", "gone"], "mode 'gone': there is no such mode (known: build, plan)"),
    ],
)
def test_options_that_make_no_sense_are_named(here: Path, options: list[str], told: str) -> None:
    assert told in refusal("run", "plan.json", "--tools", "toolbox", *options)
    assert not (here / "laneway.db").exists()


def test_the_name_of_a_run_is_taken_once(here: Path) -> None:
    laneway("run", "plan.json", "--tools", "toolbox", "--run", "r")
    facts = laneway("show", "r", "--json").stdout

    message = refusal("run", "plan.json", "--tools", "toolbox", "--run", "r")

    assert message == (
        "laneway.db has a run 'r' already; choose another name with --run, "
        "or go on with it: laneway resume r"
    )
    assert laneway("show", "r", "--json").stdout == facts


READERS = [("show", "r"), ("resume", "r"), ("runs",)]


@pytest.mark.parametrize("command", READERS)
def test_reading_makes_no_journal(here: Path, command: tuple[str, ...]) -> None:
    message = refusal(*command)

    assert message == (
        "there is no journal laneway.db; name one with --journal or LANEWAY_JOURNAL, "
        "or make one with `laneway run`"
    )
    assert not (here / "laneway.db").exists()


@pytest.mark.parametrize("command", READERS)
def test_an_empty_file_is_no_journal_and_stays_empty(here: Path, command: tuple[str, ...]) -> None:
    (here / "laneway.db").touch()

    assert refusal(*command) == "journal laneway.db is an empty file: no run was ever written to it"
    assert (here / "laneway.db").read_bytes() == b""


def test_an_empty_file_becomes_a_journal_with_the_first_run(here: Path) -> None:
    (here / "laneway.db").touch()

    assert laneway("run", "plan.json", "--tools", "toolbox").exit_code == 0


def made(file: Path, application: int, version: int) -> bytes:
    connection = sqlite3.connect(file)
    connection.execute(f"PRAGMA application_id = {application}")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    return file.read_bytes()


COMMANDS = [*READERS, ("run", "plan.json", "--tools", "toolbox"), ("demo", "--folder", "d")]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_of_another_program_is_left_as_it_was(here: Path, command: tuple[str, ...]) -> None:
    before = made(here / "theirs.db", 42, 1)

    message = refusal(*command, "--journal", "theirs.db")

    assert "theirs.db is not a Laneway journal (" in message
    assert "another program, application_id 42); it was left untouched" in message
    assert (here / "theirs.db").read_bytes() == before
    assert not (here / "d").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_newer_journal_is_left_as_it_was(here: Path, command: tuple[str, ...]) -> None:
    before = made(here / "new.db", APPLICATION_ID, 999)

    message = refusal(*command, "--journal", "new.db")

    assert "new.db has journal format 999, this Laneway knows formats up to" in message
    assert (here / "new.db").read_bytes() == before


def test_a_text_file_is_no_journal(here: Path) -> None:
    (here / "notes.db").write_text("my notes, which are longer than the header of a database " * 3)

    assert "(it is not an SQLite file); it was left untouched" in refusal(
        "runs", "--journal", "notes.db"
    )


def test_a_folder_is_no_journal(here: Path) -> None:
    assert f"journal {here} is a folder; name a file in it" in refusal("runs", "--journal", ".")


def test_a_journal_in_a_folder_that_is_not_there_is_refused(here: Path) -> None:
    message = refusal("run", "plan.json", "--tools", "toolbox", "--journal", "gone/x.db")

    assert f"there is no folder {here}/gone; create it first" in message


def test_a_damaged_run_is_named_with_its_place(here: Path) -> None:
    laneway("run", "plan.json", "--tools", "toolbox", "--run", "r")
    connection = sqlite3.connect(here / "laneway.db")
    connection.execute("DELETE FROM facts WHERE place & 4294967295 = 3")
    connection.commit()
    connection.close()

    fault = "run 'r', fact 3: it is missing (the next is 4)"
    assert fault in refusal("resume", "r")
    shown = laneway("show", "r")
    assert shown.exit_code == 1
    assert shown.stdout.startswith("run r  OPEN  (1 calls, 2 facts)")
    assert fault in shown.output


@pytest.mark.parametrize("command", [("show", "gone"), ("resume", "gone")])
def test_an_unknown_run_is_refused_with_those_there_are(
    here: Path, command: tuple[str, ...]
) -> None:
    laneway("run", "plan.json", "--tools", "toolbox", "--run", "r")

    assert refusal(*command) == "the journal has no run 'gone' (runs: r)"


def test_a_demo_that_cannot_be_laid_out_is_refused(here: Path) -> None:
    (here / "file").write_text("x")

    message = refusal("demo", "--folder", "file")

    assert f"the project cannot be written to {here}/file/project: " in message


def test_a_demo_without_tests_has_not_passed(here: Path) -> None:
    laneway("run", "plan.json", "--tools", "toolbox", "--run", "r")
    assert demo.tests_passed(shown_run(Path("laneway.db"), "r")) is False


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run", "plan.json"], "Missing option '--tools'"),
        (["demo", "--crash-at", "-1"], "--crash-at"),
        (["nothing"], "No such command 'nothing'"),
    ],
)
def test_a_command_that_is_not_complete_is_explained(
    here: Path, arguments: list[str], told: str
) -> None:
    result = laneway(*arguments)

    assert result.exit_code == 2
    assert told in result.stderr
