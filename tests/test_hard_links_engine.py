"""A file with several hard links: policies, references, approvals, resuming."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from laneway import Decision, Effect, Policy, Rule, Run, State, Tool
from laneway.claims import Claim, exclusive
from laneway.facts import CallQueued
from laneway.testing.scripted import Return, Sleep, Stage
from laneway.testing.theatre import Theatre, plan, states


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A folder with `a`, which is `out/b` as well."""
    (tmp_path / "out").mkdir()
    (tmp_path / "a").touch()
    (tmp_path / "out" / "b").hardlink_to(tmp_path / "a")
    return tmp_path


def alias(path: Path) -> Claim:
    found = path.stat()
    return exclusive(f"inode:{found.st_dev}/{found.st_ino}")


def put(stage: Stage, claims: Any, **declared: Any) -> Tool[..., Any]:
    schema = {"type": "object", "properties": {"path": {}, "n": {}}}
    steps = (Sleep(1.0), Return("ok"))
    return stage.tool("put", *steps, effect=Effect.WRITE, schema=schema, claims=claims, **declared)


def by_function(arguments: Mapping[str, Any]) -> list[str | Claim]:
    return [f"write file:{arguments['path']}"]


def by_claim(arguments: Mapping[str, Any]) -> list[str | Claim]:
    return [exclusive(f"file:{arguments['path']}")]


@pytest.mark.parametrize("claims", [["write file:{path}"], by_function, by_claim])
def test_two_names_of_one_file_exclude_each_other_however_they_are_claimed(
    workspace: Path, claims: Any
) -> None:
    stage = Stage()
    calls = [
        {"id": n, "tool": "put", "arguments": {"path": path, "n": n}}
        for n, path in {"1": "a", "2": "out/b", "3": "out/c"}.items()
    ]

    Theatre(stage, put(stage, claims), workspace=workspace).play(plan(*calls))

    assert stage.of("put", n="1").end == stage.of("put", n="2").start
    assert stage.of("put", n="3").start == stage.of("put", n="1").start


def test_a_rule_that_allows_need_not_name_inodes(workspace: Path) -> None:
    stage = Stage()
    rules = [Rule(decision=Decision.ALLOW, claims=[f"write file:{workspace}/out/**"])]
    reply = plan(
        {"id": "in", "tool": "put", "arguments": {"path": "out/b"}},
        {"id": "out", "tool": "put", "arguments": {"path": "a"}},
    )
    theatre = Theatre(
        stage,
        put(stage, ["write file:{path}"]),
        workspace=workspace,
        policy=Policy(rules, otherwise=Decision.DENY),
    )

    assert states(theatre.play(reply)) == {"in": State.SUCCEEDED, "out": State.DENIED}


def test_a_rule_may_refuse_all_files_with_several_links(workspace: Path) -> None:
    stage = Stage()
    rules = [Rule(decision=Decision.DENY, claims=["write inode:**"])]
    reply = plan(
        {"id": "linked", "tool": "put", "arguments": {"path": "a"}},
        {"id": "alone", "tool": "put", "arguments": {"path": "c"}},
    )
    theatre = Theatre(
        stage, put(stage, ["write file:{path}"]), workspace=workspace, policy=Policy(rules)
    )

    assert states(theatre.play(reply)) == {"linked": State.DENIED, "alone": State.SUCCEEDED}


def test_a_reference_may_turn_out_to_be_a_file_with_links(workspace: Path) -> None:
    """Its path was foreseen; the alias comes late, and excludes, but orders nothing any more."""
    stage = Stage()
    name = stage.tool("name", Return("b"))
    theatre = Theatre(stage, name, put(stage, ["write file:out/{path}"]), workspace=workspace)
    reply = plan(
        {"id": "name", "tool": "name", "arguments": {}},
        {"id": "put", "tool": "put", "arguments": {"path": {"$from": "name"}}},
    )

    turn = theatre.play(reply)

    assert states(turn) == {"name": State.SUCCEEDED, "put": State.SUCCEEDED}
    (queued,) = [fact for fact in theatre.kept(CallQueued) if fact.claims]
    assert alias(workspace / "a") in queued.claims


@pytest.mark.parametrize("change", ["more links", "fewer links", "another file"])
def test_an_approval_holds_when_only_the_links_of_the_file_have_changed(
    workspace: Path, change: str
) -> None:
    stage = Stage()
    theatre = Theatre(stage, put(stage, ["write file:{path}"], approval=True), workspace=workspace)
    if change == "more links":
        (workspace / "out" / "b").unlink()

    async def ask(run: Run) -> None:
        await run.submit(plan({"id": "put", "tool": "put", "arguments": {"path": "a"}}), wait=False)
        await asyncio.sleep(1.0)
        theatre.crash()

    theatre.enter(ask)
    if change == "more links":
        (workspace / "out" / "b").hardlink_to(workspace / "a")
    elif change == "fewer links":
        (workspace / "out" / "b").unlink()
    else:
        (workspace / "new").touch()
        (workspace / "new").rename(workspace / "a")

    async def answer(run: Run) -> Any:
        await run.approve(run.approvals[0].id, by="ann")
        return await run.finish()

    assert states(theatre.enter(answer)) == {"put": State.SUCCEEDED}
