"""`laneway plan`: what would become of a plan, told without running or writing anything."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from laneway.engine.cli import journals
from laneway.engine.cli.app import app

TOOLS = """
from pathlib import Path
from laneway import Effect, tool

@tool(effect=Effect.PURE)
async def add(a: int, b: int) -> int:
    Path("entered").touch()
    return a + b

@tool(effect=Effect.WRITE, claims=["write file:{path}"])
async def edit(path: str) -> str:
    Path("entered").touch()
    return path

@tool(effect=Effect.EXTERNAL, claims=["lane:mail"], approval=True)
async def send(to: str) -> str:
    Path("entered").touch()
    return to
"""

ADD = {"id": "sum", "tool": "add", "arguments": {"a": 1, "b": 2}}
EDITS = [{"id": one, "tool": "edit", "arguments": {"path": "f"}} for one in ("first", "second")]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with tools, as the current one."""
    (tmp_path / "toolbox.py").write_text(TOOLS)
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


def planned(*calls: dict[str, Any], options: tuple[str, ...] = ()) -> Result:
    Path("plan.json").write_text(json.dumps({"calls": list(calls)}))
    return laneway("plan", "plan.json", "--tools", "toolbox", *options)


def test_a_plan_is_told_and_nothing_is_run_or_written(here: Path) -> None:
    before = {one.name for one in here.iterdir()} | {"plan.json", "__pycache__"}

    result = planned(*EDITS)

    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "t1.1 first edit  allow (default)  0 s – 1 s"
    where = f"file:{here}/f"
    assert (
        f"    waits for t1.1: conflict {where} (t1.1 writes {where}, t1.2 writes {where})" in lines
    )
    assert lines[-2:] == ["in all about 2 s", "critical path t1.1 → t1.2  about 2 s"]
    assert {one.name for one in here.iterdir()} <= before


@pytest.mark.usefixtures("here")
def test_a_plan_is_told_in_json() -> None:
    result = planned(*EDITS, ADD, options=("--json",))

    assert result.exit_code == 0
    told = json.loads(result.stdout)
    assert [call["start_seconds"] for call in told["calls"]] == [0, 1, 0]
    assert told["critical_path"]["calls"] == ["t1.1", "t1.2"]
    assert [one["second"] for one in told["conflicts"]] == ["t1.2"]


@pytest.mark.usefixtures("here")
def test_a_plan_is_drawn_in_mermaid() -> None:
    result = planned(*EDITS, options=("--mermaid",))

    assert result.exit_code == 0
    assert result.stdout.startswith("flowchart TD\n")
    assert '    t1_1 -.->|"conflict file:' in result.stdout


@pytest.mark.usefixtures("here")
def test_only_one_form_is_printed() -> None:
    result = planned(ADD, options=("--json", "--mermaid"))

    assert result.exit_code == 2
    assert result.stdout == ""
    assert "--json and --mermaid are two forms of one answer; choose one" in result.stderr


@pytest.mark.usefixtures("here")
def test_a_plan_with_a_fault_is_told_and_makes_exit_code_1() -> None:
    result = planned(ADD, {"id": "x", "tool": "nope"})

    assert result.exit_code == 1
    assert "t1.1 sum add  allow (default)  0 s – 1 s" in result.stdout
    assert "t1.2 x nope  UNKNOWN_TOOL: " in result.stdout


@pytest.mark.usefixtures("here")
def test_policy_mode_lanes_and_workspace_count_as_in_a_run() -> None:
    Path("policy.toml").write_text('[[rule]]\ndecision = "deny"\ntools = ["add"]\n')
    Path("work").mkdir()
    mails = [{"id": to, "tool": "send", "arguments": {"to": to}} for to in ("ann", "bob")]
    options = ("--policy", "policy.toml", "--lanes", "mail=2", "--workspace", "work", "--json")

    result = planned(ADD, EDITS[0], *mails, options=options)
    in_mode_plan = planned(EDITS[0], options=("--mode", "plan"))

    assert result.exit_code == 1
    told = json.loads(result.stdout)["calls"]
    assert [call["decision"] for call in told] == ["deny", "allow", "ask", "ask"]
    assert told[1]["claims"][-1] == [f"file:{Path('work').resolve() / 'f'}", "exclusive"]
    assert [call["start_seconds"] for call in told[2:]] == [0, 0]
    assert in_mode_plan.exit_code == 1
    assert "deny (mode plan)" in in_mode_plan.stdout


@pytest.mark.usefixtures("here")
def test_durations_are_learnt_from_earlier_runs_and_the_journal_stays_as_it_is() -> None:
    Path("plan.json").write_text(json.dumps({"calls": [ADD]}))
    assert laneway("run", "plan.json", "--tools", "toolbox", "--run", "r").exit_code == 0
    Path("entered").unlink()
    kept = journals.read_run(Path("laneway.db"), "r")

    result = planned(ADD, options=("--json",))
    named = planned(ADD, options=("--json", "--journal", "laneway.db"))

    (call,) = json.loads(result.stdout)["calls"]
    assert 0 < call["end_seconds"] < 1
    assert json.loads(named.stdout)["calls"] == [call]
    assert journals.read_run(Path("laneway.db"), "r") == kept
    assert [entry.run for entry in journals.list_runs(Path("laneway.db"))] == ["r"]
    assert not Path("entered").exists()


@pytest.mark.usefixtures("here")
def test_a_journal_that_is_named_must_be_there() -> None:
    Path("laneway.db").touch()
    assert planned(ADD).exit_code == 0  # Nothing to learn from yet.

    result = planned(ADD, options=("--journal", "other.db"))

    assert result.exit_code == 2
    assert result.stderr.startswith("laneway: there is no journal other.db")


@pytest.mark.usefixtures("here")
def test_what_cannot_be_read_is_refused() -> None:
    Path("plan.json").write_text("{")
    broken = laneway("plan", "plan.json", "--tools", "toolbox")
    no_tools = planned(ADD, options=("--tools", "no_such_module"))
    no_lane = planned(ADD, options=("--lanes", "mail"))

    assert [one.exit_code for one in (broken, no_tools, no_lane)] == [2, 2, 2]
    assert "this is no JSON" in broken.stderr
    assert "no_such_module" in no_tools.stderr
    assert "write NAME=N" in no_lane.stderr
