"""A journal's run held against today's code, another policy, other tools: replay --execute."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from laneway import Effect, Engine, Run, ToolContext, tool
from laneway.engine.cli.app import app
from laneway.testing.theatre import plan

TOOLS = """
from laneway import Effect, tool

@tool(effect=Effect.WRITE, claims=["write file:{path}"])
async def save(path: str) -> str:
    raise AssertionError("a body was entered")

@tool(effect=Effect.EXTERNAL, claims=["lane:mail"])
async def send(to: str) -> str:
    raise AssertionError("a body was entered")
"""


@tool(effect=Effect.WRITE, claims=["write file:{path}"])
async def save(path: str) -> str:
    return path


@tool(effect=Effect.EXTERNAL, claims=["lane:mail"])
async def send(to: str) -> str:
    return to


@tool(effect=Effect.READ, claims=[])
async def twice(context: ToolContext) -> Any:
    await context.invoke("send", to="ann")
    return await context.invoke("send", to="bob")


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sometools.py").write_text(TOOLS)
    path = tmp_path / "runs.db"

    async def host(run: Run) -> None:
        calls: list[dict[str, Any]] = [
            {"id": "a", "tool": "save", "arguments": {"path": "x"}},
            {"id": "b", "tool": "save", "arguments": {"path": "x"}},
            {"id": "m", "tool": "send", "arguments": {"to": "ann"}},
            {"id": "n", "tool": "send", "arguments": {"to": "bob"}},
            {"id": "t", "tool": "twice"},
        ]
        await run.submit(plan(*calls))
        await run.submit(plan(calls[0], calls[2]))

    async def main() -> None:
        settings = {"workspace": str(tmp_path)}
        async with (
            Engine([save, send, twice], journal=path, lanes={"mail": 3}) as engine,
            engine.run("work", settings=settings) as run,
        ):
            await host(run)

    asyncio.run(main())
    return path


def laneway(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["replay", "--execute", *arguments])


def test_a_run_that_would_go_the_same_way_is_said_to(journal: Path) -> None:
    done = laneway("work", "--journal", str(journal))

    assert done.exit_code == 0, done.output
    assert done.output.startswith("✓ work: the same, ")


def test_the_tools_of_a_module_are_taken_and_not_entered(journal: Path) -> None:
    done = laneway("work", "--journal", str(journal), "--tools", "sometools")

    assert done.exit_code == 0, done.output


def test_what_a_policy_would_have_stopped_is_shown_and_told_by_the_exit_code(
    journal: Path, tmp_path: Path
) -> None:
    policy = tmp_path / "strict.toml"
    policy.write_text('[[rule]]\nname = "no-bob"\ndecision = "deny"\narguments.to = "bob"\n')

    done = laneway("work", "--journal", str(journal), "--policy", str(policy))

    assert done.exit_code == 1
    assert done.output.startswith("✗ work: 1 diverged")
    assert "n of send" in done.output
    assert "denied by rule 'no-bob'. This would have stopped it." in done.output


def test_it_is_one_document_for_programs(journal: Path, tmp_path: Path) -> None:
    policy = tmp_path / "strict.toml"
    policy.write_text('[[rule]]\nname = "no"\ndecision = "deny"\ntools = ["save"]\n')
    options = ("--journal", str(journal), "--policy", str(policy), "--json")

    first = laneway("work", *options)
    every = laneway("work", *options, "--all")

    assert first.exit_code == every.exit_code == 1
    told = json.loads(first.output)
    assert (told["run"], told["same"]) == ("work", False)
    (divergence,) = told["divergences"]
    assert divergence["call"] == "t1.1"
    assert divergence["now"] == "denied by rule 'no'"
    turns = [one["turn"] for one in json.loads(every.output)["divergences"]]
    assert turns == [1, 2]


def test_lanes_can_be_narrower_and_a_mode_another(journal: Path, tmp_path: Path) -> None:
    narrow = laneway("work", "--journal", str(journal), "--lanes", "mail=1")
    (tmp_path / "open.toml").write_text('otherwise = "allow"\n')
    options = ("--journal", str(journal), "--mode", "plan")
    other = laneway("work", *options, "--policy", str(tmp_path / "open.toml"))
    alone = laneway("work", *options)

    assert narrow.exit_code == 1
    assert "QUEUED, lane lane:mail held by" in narrow.output
    assert other.exit_code == 1
    assert "denied by rule 'mode plan'" in other.output
    assert alone.exit_code == 2
    assert "name the policy, too" in alone.stderr


def test_runs_within_calls_have_the_lanes_of_the_run_above(journal: Path) -> None:
    for name in ("work/t1.5/1", "work/t1.5/2"):
        done = laneway(name, "--journal", str(journal))
        assert done.exit_code == 0, done.output


def test_a_caller_s_mistake_is_told(journal: Path, tmp_path: Path) -> None:
    path = str(journal)

    for arguments, told in (
        (("none", "--journal", path), "has no run 'none'"),
        (("work", "--journal", str(tmp_path / "no.db")), "there is no journal"),
        (("work", "--journal", path, "--tools", "no_such_module"), "cannot be imported"),
        (("work", "--journal", path, "--lanes", "mail"), "write NAME=N"),
        (("work", "--journal", path, "--workspace", "nowhere"), "there is no such folder"),
        (("work", "--journal", path, "--policy", "none.toml"), "cannot be read"),
    ):
        done = laneway(*arguments)
        assert done.exit_code == 2, done.output
        assert told in done.stderr


def test_the_workspace_can_be_said(journal: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    options = ("--journal", str(journal), "--tools", "sometools", "--workspace")

    assert laneway("work", *options, str(tmp_path)).exit_code == 0
    done = laneway("work", *options, str(tmp_path / "elsewhere"))
    assert done.exit_code == 1
    assert "elsewhere/x" in done.output
