"""The command line: plans run and taken up, runs shown; everything a program may rely on."""

import asyncio
import json
import os
import pty
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from laneway import Engine, benchmarks
from laneway.engine.cli import main
from laneway.engine.cli.app import app

SRC = Path(__file__).resolve().parent.parent / "src"
ENVIRONMENT = {
    # Coverage would import the package first and asyncio twice, with two kinds of CancelledError.
    **{name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")},
    "PYTHONPATH": str(SRC),
}
HANG_SECONDS = 60

TOOLS = """
import asyncio, os, signal
from pathlib import Path
from laneway import Effect, tool

@tool(effect=Effect.PURE)
async def add(a: int, b: int) -> int:
    return a + b

@tool(effect=Effect.EXTERNAL, claims=["lane:mail"], approval=True)
async def send(to: str, text: str = "") -> str:
    return f"sent to {to}: {text}"

@tool(effect=Effect.READ)
async def broken() -> str:
    raise LookupError("nothing there")

@tool(effect=Effect.READ)
async def wait() -> str:
    await asyncio.sleep(60)
    return "waited"

def die_once():
    if not Path("died").exists():
        Path("died").touch()
        os.kill(os.getpid(), signal.SIGKILL)

@tool(effect=Effect.READ)
async def look() -> str:
    die_once()
    return "seen"

@tool(effect=Effect.EXTERNAL)
async def pay() -> str:
    Path("paid").write_text("x" if not Path("paid").exists() else Path("paid").read_text() + "x")
    die_once()
    return "paid"

some = [add]

async def carry_on(journal, run, settings):
    Path("carried").write_text(f"{run} {settings}")

def not_async(journal, run, settings):
    pass
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module of tools, as the current one; nothing of it outlives the test."""
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


def written(folder: Path, *calls: dict[str, Any]) -> str:
    (folder / "plan.json").write_text(json.dumps({"calls": list(calls)}))
    return "plan.json"


def run_plan(folder: Path, *calls: dict[str, Any], options: tuple[str, ...] = ()) -> Result:
    return laneway("run", written(folder, *calls), "--tools", "toolbox", "--run", "r", *options)


def child(*arguments: str, **options: Any) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "laneway.engine.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
        **options,
    )


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=HANG_SECONDS)
    return process.returncode, output, errors


ADD = {"id": "sum", "tool": "add", "arguments": {"a": 1, "b": 2}}


# run


def test_a_plan_runs_and_its_results_are_printed(here: Path) -> None:
    more = {"id": "more", "tool": "add", "arguments": {"b": 10, "a": {"$from": "sum"}}}

    result = run_plan(here, ADD, more)

    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[:3] == ["run r", "turn 1, 2 calls", "  · t1.2 add 10  waits for t1.1: data"]
    assert "  ▶ t1.1 add 1  holds no lane" in lines
    assert "run r  ✓  (2 calls, 9 facts)" in lines
    assert lines[-2:] == ["sum: 3", "more: 13"]
    assert (here / "laneway.db").exists()


def test_a_call_that_does_not_succeed_makes_exit_code_1(here: Path) -> None:
    needs = {"id": "next", "tool": "add", "arguments": {"a": 1, "b": 1}, "needs": ["bad"]}

    result = run_plan(here, {"id": "bad", "tool": "broken"}, needs)

    assert result.exit_code == 1
    assert "✗ some calls did not succeed" in result.stdout
    assert "     TOOL_ERROR: broken raised LookupError: nothing there" in result.stdout
    assert "– t1.2 add 1  SKIPPED  waited –  took –" in result.stdout
    assert "bad: Error TOOL_ERROR: broken raised LookupError" in result.stdout


def test_a_run_as_json_has_the_keys_that_programs_rely_on(here: Path) -> None:
    result = run_plan(here, ADD, options=("--json",))

    run = json.loads(result.stdout)
    assert list(run) == [
        "run",
        "mode",
        "facts",
        "drivers",
        "resume_with",
        "settings",
        "changes",
        "stopped",
        "stopped_because",
        "finished",
        "succeeded",
        "took_seconds",
        "turns",
    ]
    (turn,) = run["turns"]
    assert list(turn) == ["turn", "provider", "closed", "critical_path", "calls"]
    (call,) = turn["calls"]
    assert {name: value for name, value in call.items() if "seconds" not in name} == {
        "call": "t1.1",
        "id": "sum",
        "tool": "add",
        "arguments": {"a": 1, "b": 2},
        "state": "SUCCEEDED",
        "attempts": 1,
        "waits_for": [],
        "claims": ["shared run:r"],
        "rule": "default",
        "outcome": {"outcome": "success", "value": 3},
        "parent": "",
        "settled": None,
        "by": "",
        "probed": "",
        "stuck": False,
        "runs": [],
    }
    assert call["waited_seconds"] >= 0
    assert call["took_seconds"] >= 0


def test_a_list_of_calls_is_a_plan_and_a_run_gets_a_name_of_its_own(here: Path) -> None:
    (here / "calls.json").write_text(json.dumps([ADD]))

    result = laneway("run", "calls.json", "--tools", "toolbox:some", "--json")

    assert result.exit_code == 0
    assert json.loads(result.stdout)["run"].startswith("calls-")


def test_a_models_answer_is_a_plan_too(here: Path) -> None:
    use = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 2, "b": 2}}
    answer = {"role": "assistant", "content": [{"type": "text", "text": "Sum."}, use]}
    (here / "plan.json").write_text(json.dumps(answer))

    result = laneway("run", "plan.json", "--tools", "toolbox")

    assert result.exit_code == 0
    assert "turn 1, 1 call: Sum." in result.stdout
    assert result.stdout.endswith("toolu_1: 4\n")


def test_lanes_policy_mode_and_workspace_are_taken_from_the_options(here: Path) -> None:
    (here / "policy.toml").write_text('[[rule]]\ndecision = "deny"\ntools = ["add"]\n')
    (here / "work").mkdir()
    options = ("--policy", "policy.toml", "--lanes", "mail=2", "--workspace", "work")

    result = run_plan(here, ADD, options=(*options, "--mode", "plan", "--json"))

    assert result.exit_code == 1
    run = json.loads(result.stdout)
    assert run["mode"] == "plan"
    assert run["turns"][0]["calls"][0]["state"] == "DENIED"
    assert run["settings"]["workspace"] == str(here / "work")
    assert run["settings"]["lanes"] == {"mail": 2}


def test_what_asks_a_human_is_refused_where_nobody_is_at_a_terminal(here: Path) -> None:
    result = run_plan(here, ADD, {"id": "mail", "tool": "send", "arguments": {"to": "me"}})

    assert result.exit_code == 1
    assert "  ? t1.2 send me  waits for a human (tool asks)" in result.stdout
    assert "nobody is at a terminal to answer; run it at one, or with --yes" in result.stdout
    assert "sum: 3" in result.stdout


def test_yes_grants_what_asks(here: Path) -> None:
    call = {"id": "mail", "tool": "send", "arguments": {"to": "me", "text": "hello"}}

    result = run_plan(here, call, options=("--yes",))

    assert result.exit_code == 0
    assert "  ? t1.1 send me  approved" in result.stdout
    assert result.stdout.endswith("mail: sent to me: hello\n")


@pytest.mark.parametrize(
    ("typed", "code", "told"),
    [(b"y\n", 0, "mail: sent to me: "), (b"\n", 1, "APPROVAL_REJECTED: ")],
)
def test_a_human_at_the_terminal_is_asked(here: Path, typed: bytes, code: int, told: str) -> None:
    written(here, {"id": "mail", "tool": "send", "arguments": {"to": "me"}})
    ours, theirs = pty.openpty()
    try:
        process = child("run", "plan.json", "--tools", "toolbox", stdin=theirs)
        os.write(ours, typed)
        returned, output, errors = ended(process)
    finally:
        os.close(ours)
        os.close(theirs)

    assert returned == code, output + errors
    assert told in output
    assert errors == 'May t1.1 run?  send {"to": "me"}  [y/N] '


def test_a_long_result_is_cut_for_people(here: Path) -> None:
    call = {"id": "mail", "tool": "send", "arguments": {"to": "me", "text": "x" * 3000}}

    result = run_plan(here, call, options=("--yes",))

    assert result.stdout.endswith("xxx… (cut: --json gives all of it)\n")


def test_the_work_goes_on_when_nobody_reads_its_lines(here: Path) -> None:
    written(here, *({"tool": "add", "arguments": {"a": n, "b": n}} for n in range(50)))
    process = child("run", "plan.json", "--tools", "toolbox", "--run", "r")
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None

    returned, _, errors = ended(process)

    assert (returned, errors) == (0, "")
    assert json.loads(laneway("show", "r", "--json").stdout)["succeeded"] is True


def test_an_interrupted_run_writes_its_end_and_can_be_taken_up(here: Path) -> None:
    written(here, {"tool": "wait"})
    process = child("run", "plan.json", "--tools", "toolbox", "--run", "r")
    assert process.stdout is not None
    while not process.stdout.readline().startswith("  ▶"):
        pass
    process.send_signal(signal.SIGINT)

    returned, _, errors = ended(process)

    assert returned == 130, errors
    assert (
        errors == "laneway: interrupted; what was running has been cancelled, and is recorded so\n"
    )
    shown = laneway("show", "r")
    assert "wait  CANCELLED" in shown.stdout


# resume


def test_a_plan_whose_process_died_is_finished_by_resume(here: Path) -> None:
    after = {"id": "next", "tool": "add", "arguments": {"a": 1, "b": 1}, "needs": ["look"]}
    written(here, {"id": "look", "tool": "look"}, after)
    returned, output, _ = ended(child("run", "plan.json", "--tools", "toolbox", "--run", "r"))
    assert returned == -signal.SIGKILL
    assert "▶ t1.1 look" in output
    assert "look  RUNNING" in laneway("show", "r").stdout

    result = laneway("resume", "r")

    assert result.exit_code == 0
    assert "run r, taken up by process" in result.stdout
    assert "  ↻ t1.1 look  will run again: the process that drove the run ended" in result.stdout
    assert "look  SUCCEEDED" in result.stdout
    assert "attempts 2" in result.stdout
    assert result.stdout.endswith("look: seen\nnext: 2\n")


def test_what_may_have_happened_is_not_repeated_by_resume(here: Path) -> None:
    after = {"id": "next", "tool": "add", "arguments": {"a": 1, "b": 1}, "needs": ["pay"]}
    written(here, {"id": "pay", "tool": "pay"}, after)
    ended(child("run", "plan.json", "--tools", "toolbox", "--run", "r"))

    result = laneway("resume", "r", "--json")

    assert result.exit_code == 1
    assert (here / "paid").read_text() == "x"
    states = [call["state"] for call in json.loads(result.stdout)["turns"][0]["calls"]]
    assert states == ["UNCERTAIN", "SKIPPED"]


def test_a_plan_that_died_before_it_was_submitted_is_run_by_resume(here: Path) -> None:
    script = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from laneway.engine.cli import plans, stores\n"
        "from laneway.journal.sqlite import SqliteStore\n"
        "settings = plans.PlanSettings(plan=plans.read_plan(Path('plan.json')), tools='toolbox',\n"
        "    folder='.', workspace='.')\n"
        "store = stores.CrashingStore(SqliteStore('laneway.db'), at=1)\n"
        "asyncio.run(plans.run_plan(settings, 'r', store))\n"
    )
    written(here, ADD)
    died = subprocess.run([sys.executable, "-c", script], env=ENVIRONMENT, check=False)
    assert died.returncode == -signal.SIGKILL
    assert json.loads(laneway("show", "r", "--json").stdout)["turns"] == []

    result = laneway("resume", "r")

    assert result.exit_code == 0
    assert result.stdout.endswith("sum: 3\n")


def test_a_finished_plan_is_shown_by_resume_and_not_run_again(here: Path) -> None:
    run_plan(here, ADD)

    result = laneway("resume", "r")

    assert result.exit_code == 0
    assert "▶" not in result.stdout
    assert result.stdout.endswith("sum: 3\n")


def of_a_host(resume_with: str, settings: Any = None) -> None:
    async def host() -> None:
        async with (
            Engine(journal="laneway.db") as engine,
            engine.run("mine", resume_with=resume_with, settings=settings),
        ):
            pass

    asyncio.run(host())


def test_a_hosts_own_function_carries_its_run_on(here: Path) -> None:
    of_a_host("toolbox:carry_on", {"since": 7})

    result = laneway("resume", "mine")

    assert result.exit_code == 0
    assert (here / "carried").read_text() == "mine {'since': 7}"


@pytest.mark.parametrize(
    ("resume_with", "told"),
    [
        ("", "names no function that carries it on: take it up in the program that made it"),
        ("no_such:thing", "'no_such:thing', which cannot be imported here: No module named"),
        ("toolbox:nothing", "'toolbox:nothing', which cannot be imported here: module 'toolbox'"),
        ("toolbox:not_async", "'toolbox:not_async', which is no coroutine function"),
        (":x", "which cannot be imported here: Empty module name"),
    ],
)
def test_a_run_that_cannot_be_carried_on_says_why(here: Path, resume_with: str, told: str) -> None:
    of_a_host(resume_with)

    result = laneway("resume", "mine")

    assert result.exit_code == 2
    assert result.stderr.startswith("laneway: run 'mine' ")
    assert told in result.stderr


def test_settings_of_another_kind_are_named(here: Path) -> None:
    of_a_host("laneway.engine.cli.plans:carry_on", {"tools": 3})

    result = laneway("resume", "mine")

    assert result.exit_code == 2
    assert "run 'mine' was not made by `laneway run`: " in result.stderr


# show, runs, bench


def test_a_run_is_shown_with_waits_reasons_and_times(here: Path) -> None:
    run_plan(here, ADD, {"id": "b", "tool": "add", "arguments": {"a": 1, "b": 2}, "after": ["sum"]})

    lines = laneway("show", "r").stdout.splitlines()

    assert lines[0] == "run r  ✓  (2 calls, 9 facts)"
    assert lines[1].startswith("└─ turn 1  2 calls  critical path t1.1 → t1.2  ")
    assert lines[2].startswith("   ├─ ✓ t1.1 add 1  SUCCEEDED  waited 0 ms  took ")
    assert lines[3].startswith("   └─ ✓ t1.2 add 1  SUCCEEDED  waited ")
    assert lines[4] == "         waited for t1.1: after"


def test_runs_are_listed_the_last_opened_first(here: Path) -> None:
    run_plan(here, ADD)
    of_a_host("")

    lines = laneway("runs").stdout.splitlines()
    entries = json.loads(laneway("runs", "--json").stdout)

    assert [line.split()[0] for line in lines] == ["mine", "r"]
    assert [entry["facts"] for entry in entries] == [1, 6]
    assert [entry["run"] for entry in entries] == ["mine", "r"]
    assert entries[0]["opened_wall"] == pytest.approx(time.time(), abs=60)


def test_the_journal_may_be_named_by_option_or_environment(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_plan(here, ADD, options=("--journal", "other.db"))
    assert not (here / "laneway.db").exists()

    monkeypatch.setenv("LANEWAY_JOURNAL", "other.db")

    assert laneway("show", "r").exit_code == 0
    assert laneway("runs", "--journal", "other.db").exit_code == 0


def test_bench_is_handed_over_with_its_arguments(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[list[str]] = []

    def measure(argv: list[str]) -> int:
        given.append(argv)
        return 7

    monkeypatch.setattr(benchmarks, "main", measure)

    result = CliRunner().invoke(app, ["bench", "--quick", "--json", "--only", "W1"])

    assert result.exit_code == 7
    assert given == [["--quick", "--json", "--only", "W1"]]


def test_the_command_lists_itself(here: Path) -> None:
    result = laneway("--help")

    assert result.exit_code == 0
    for command in ("demo", "run", "resume", "show", "runs", "bench"):
        assert f"\n  {command} " in result.stdout


def test_the_entry_point_runs_the_command_line(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["laneway", "runs"])

    with pytest.raises(SystemExit) as left:
        main()

    assert left.value.code == 2
    assert "there is no journal laneway.db" in capsys.readouterr().err


def test_a_missing_package_is_found_at_the_first_import(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "laneway.engine.cli.app")
    monkeypatch.setitem(sys.modules, "typer", None)

    with pytest.raises(SystemExit) as left:
        main()

    assert left.value.code == 2
    assert "needs the package typer; install it with" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "laneway.engine.cli.app", None)
    with pytest.raises(ModuleNotFoundError, match=r"laneway\.engine\.cli\.app"):
        main()


def test_the_package_can_be_run_as_a_module(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["laneway", "--help"])

    with pytest.raises(SystemExit) as left:
        runpy.run_module("laneway.engine.cli", run_name="__main__")

    assert left.value.code == 0
    assert "Usage: laneway" in capsys.readouterr().out


def without(package: str) -> "subprocess.CompletedProcess[str]":
    script = (
        f"import sys; sys.modules[{package!r}] = None; from laneway.engine.cli import main; main()"
    )
    return subprocess.run(
        [sys.executable, "-c", script],
        env=ENVIRONMENT,
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_its_packages_the_command_line_names_the_extra(missing: str) -> None:
    done = without(missing)

    assert done.returncode == 2
    assert done.stderr == (
        f"laneway: the command line needs the package {missing}; "
        "install it with: pip install 'laneway[cli]'\n"
    )


def test_any_other_missing_module_is_not_taken_for_the_extra() -> None:
    done = without("msgspec")

    assert done.returncode == 1
    assert "ModuleNotFoundError: import of msgspec halted" in done.stderr
