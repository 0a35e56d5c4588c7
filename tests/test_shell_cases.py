"""Cases from bug reports of the field: what a shell command conflicts with, and what it runs."""

import asyncio
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from laneway import Code, Effect, Engine, Failure, State, Turn, tool
from laneway.engine.toolkit import toolkit
from laneway.lanes.shell import analyse, shell_claims, shell_effect
from laneway.testing.clock import run_virtual
from laneway.testing.scripted import Log, Return, Sleep, Stage

CONFLICTS = {
    "echo hi > notes.txt": True,
    "cat a.txt | tee -a notes.txt": True,
    "cp a.txt ./notes.txt": True,
    "python3 gen.py": True,
    "ls -la 2>&1": False,
    'echo "a > notes.txt"': False,
    "grep -c x a.txt > /dev/null": False,
}


def one_turn(command: str, workspace: Path, *, mode: str = "build") -> tuple[Stage, Turn]:
    stage = Stage()
    schema = {"type": "object", "properties": {"cmd": {"type": "string"}}}
    tools = [
        stage.tool(
            "bash",
            Sleep(0.2),
            Return("ok"),
            schema=schema,
            effect=Effect.EXTERNAL,
            effect_of=shell_effect("cmd"),
            claims=shell_claims("cmd"),
            literal=["cmd"],
        ),
        stage.tool("read_file", Sleep(0.1), Return("text"), claims=["read file:{path}"]),
    ]
    reply = {
        "calls": [
            {"id": "b", "tool": "bash", "arguments": {"cmd": command}},
            {"id": "r", "tool": "read_file", "arguments": {"path": "notes.txt"}},
        ]
    }

    async def main() -> Turn:
        engine = Engine(tools, clock=stage.make_clock, workspace=workspace)
        async with engine, engine.run("case", mode=mode) as run:
            return await run.submit(reply)

    return stage, run_virtual(main)


@pytest.mark.parametrize(("command", "conflicts"), CONFLICTS.items())
def test_h_res_2_a_read_waits_for_a_command_exactly_if_it_may_write_the_file(
    command: str, conflicts: bool, tmp_path: Path
) -> None:
    stage, turn = one_turn(command, tmp_path)

    bash, read = stage.of("bash").span, stage.of("read_file").span
    assert {call.state for call in turn.calls} == {State.SUCCEEDED}
    if conflicts:
        assert bash.end <= read.start
    else:
        assert read.start < bash.end


@pytest.mark.parametrize(("command", "conflicts"), CONFLICTS.items())
def test_h_res_2_plan_mode_runs_a_command_exactly_if_it_provably_reads(
    command: str, conflicts: bool, tmp_path: Path
) -> None:
    stage, turn = one_turn(command, tmp_path, mode="plan")

    call = turn.call("b")
    assert turn.call("r").state is State.SUCCEEDED
    if conflicts:
        assert call.state is State.DENIED
        assert isinstance(call.outcome, Failure)
        assert call.outcome.code is Code.POLICY_DENIED
        assert stage.entered["bash"] == 0
    else:
        assert call.state is State.SUCCEEDED
        assert call.record.effect is Effect.READ


def test_h_res_2_what_cannot_be_seen_through_writes_the_whole_workspace() -> None:
    assert analyse("python3 gen.py").claims() == ["write file:."]


DECISIONS = {
    "git status": "allow",
    "git diff --stat && ls src": "allow",
    "git diff --stat && rm -rf build": "deny",
    "ls src; rm -rf build": "deny",
    "git log | head -3": "ask",
    "git log $(rm -rf build)": "deny",
    "gitx diff": "ask",
    'git commit -m "drop && rm old"': "allow",
    "git fetch\nrm -rf build": "deny",
}


@pytest.mark.parametrize(("command", "decision"), DECISIONS.items())
def test_h_pol_1_every_simple_command_of_a_line_is_there_to_be_judged(
    command: str, decision: str
) -> None:
    analysis = analyse(command)

    verdicts = [
        "deny"
        if fnmatchcase(one.text, "rm *")
        else "allow"
        if fnmatchcase(one.text, "git *") or fnmatchcase(one.text, "ls *")
        else "ask"
        for one in analysis.commands
    ]

    assert analysis.complete
    assert min(verdicts, key=["deny", "ask", "allow"].index) == decision


H_POL_1_CLAIMS = {
    "git status": ["read file:."],
    "git diff --stat && ls src": ["read file:.", "read file:src"],
    "git diff --stat && rm -rf build": ["read file:.", "write file:build"],
    "ls src; rm -rf build": ["read file:src", "write file:build"],
    "git log | head -3": ["read file:."],
    "git log $(rm -rf build)": ["write file:.", "write file:build"],
    "gitx diff": ["write file:."],
    'git commit -m "drop && rm old"': ["write file:."],
    "git fetch\nrm -rf build": ["write file:.", "write file:build"],
}


@pytest.mark.parametrize(("command", "expected"), H_POL_1_CLAIMS.items())
def test_h_pol_1_each_row_claims_what_it_touches(command: str, expected: list[str]) -> None:
    assert sorted(analyse(command).claims()) == expected


def test_an_effect_of_a_call_is_recorded_and_never_beyond_that_of_the_tool(tmp_path: Path) -> None:
    stage = Stage()
    tools = [
        stage.tool("far", Return(1), effect=Effect.WRITE, effect_of=lambda _: Effect.EXTERNAL),
        stage.tool("near", Return(1), effect=Effect.WRITE, effect_of=lambda _: Effect.PURE),
        stage.tool("lost", Return(1), effect=Effect.WRITE, effect_of=_fails),
        stage.tool("late", Return(1), effect=Effect.WRITE, effect_of=lambda _: Effect.READ,
                   schema={"type": "object", "properties": {"of": {}}}),
    ]  # fmt: skip
    reply: dict[str, Any] = {
        "calls": [{"id": name, "tool": name, "arguments": {}} for name in ("far", "near", "lost")]
        + [{"id": "late", "tool": "late", "arguments": {"of": {"$from": "near"}}}]
    }

    async def main() -> Turn:
        engine = Engine(tools, clock=stage.make_clock, workspace=tmp_path)
        async with engine, engine.run("case") as run:
            return await run.submit(reply)

    turn = run_virtual(main)

    assert {call.record.provider_id: call.record.effect for call in turn.calls} == {
        "far": Effect.WRITE,
        "near": Effect.PURE,
        "lost": Effect.WRITE,
        "late": Effect.WRITE,  # its argument was not known yet
    }
    assert {call.record.provider_id for call in turn.calls if call.record.idempotent} == {"near"}


def test_in_plan_mode_a_call_is_judged_by_its_final_arguments(tmp_path: Path) -> None:
    stage = Stage()
    schema = {"type": "object", "properties": {"cmd": {"type": "string"}}}
    tools = [
        stage.tool("look", Return("a.txt")),
        stage.tool(
            "bash",
            Log("{cmd}"),
            Return("ok"),
            schema=schema,
            effect=Effect.EXTERNAL,
            effect_of=shell_effect("cmd"),
            claims=shell_claims("cmd"),
        ),
    ]
    reply = {
        "calls": [
            {"id": "l", "tool": "look", "arguments": {}},
            {"id": "c", "tool": "bash", "arguments": {"cmd": "cat ${l}"}},
            {"id": "r", "tool": "bash", "arguments": {"cmd": "rm ${l}"}},
        ]
    }

    async def main() -> Turn:
        engine = Engine(tools, clock=stage.make_clock, workspace=tmp_path)
        async with engine, engine.run("case", mode="plan") as run:
            return await run.submit(reply)

    turn = run_virtual(main)

    assert turn.call("c").state is State.SUCCEEDED
    assert turn.call("r").state is State.DENIED
    assert stage.log == ["cat a.txt"]


def test_two_commands_of_one_shell_never_overlap(tmp_path: Path) -> None:
    stage = Stage()
    tools = [
        stage.tool(
            "bash",
            Sleep(1),
            Return("ok"),
            schema={"type": "object", "properties": {"command": {"type": "string"}}},
            effect=Effect.EXTERNAL,
            claims=shell_claims(),
        )
    ]
    reply = {
        "calls": [
            {"id": f"c{n}", "tool": "bash", "arguments": {"command": f"cat {n}"}} for n in range(3)
        ]
    }

    async def main() -> float:
        engine = Engine(tools, clock=stage.make_clock, workspace=tmp_path)
        async with engine, engine.run("case") as run:
            began = asyncio.get_running_loop().time()
            await run.submit(reply)
            return asyncio.get_running_loop().time() - began

    assert run_virtual(main) == pytest.approx(3.0)


def test_the_toolkit_s_shell_claims_what_its_command_touches(tmp_path: Path) -> None:
    shell = next(one for one in toolkit(tmp_path) if one.spec.name == "run_shell")

    assert shell.effect_of({"command": "ls"}) is Effect.READ
    assert shell.effect_of({"command": "touch a"}) is Effect.WRITE
    assert shell.effect_of({"command": "make"}) is Effect.EXTERNAL


def test_a_tool_with_an_effect_of_its_calls_is_declared() -> None:
    @tool(effect_of=shell_effect("command"))
    def run_it(command: str) -> str:
        return command

    assert run_it.spec.declared
    assert run_it.spec.effect is Effect.EXTERNAL


def _fails(_: Mapping[str, Any]) -> Effect:
    raise RuntimeError("no idea")
