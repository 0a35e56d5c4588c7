"""`laneway show --watch`: the call tree of a run, while it goes on."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from laneway import Effect, Engine, Tool, ToolContext, ToolFailed
from laneway.engine.cli.app import app
from laneway.engine.cli.shown import ShownRun, show_run
from laneway.engine.cli.tree import tree_lines
from laneway.engine.cli.watching import watch_run
from laneway.facts import Row
from laneway.ids import RunId
from laneway.journal.memory import MemoryJournal, MemoryStore
from laneway.outcomes import Happened
from laneway.testing.theatre import plan


async def good() -> int:
    return 1


async def bad() -> int:
    raise ToolFailed("no luck today", happened=Happened.NOTHING)


async def both(context: ToolContext) -> Any:
    await context.invoke("good")
    return await context.invoke("bad")


TOOLS = [Tool.of(one, effect=Effect.READ, claims=[]) for one in (good, bad, both)]
REPLY = plan({"id": "a", "tool": "good"}, {"id": "b", "tool": "both"})


async def play(journal: Any) -> None:
    async with Engine(TOOLS, journal=journal) as engine, engine.run("r") as run:
        await run.submit(REPLY)
        await run.stop("COMPLETED")


def pictures() -> list[ShownRun]:
    """The run after each of its facts."""
    journal = MemoryJournal()
    asyncio.run(play(MemoryStore(journal)))
    rows: list[Row] = list(journal.facts[RunId("r")])
    below = {run: facts for run, facts in journal.facts.items() if run != "r"}
    return [show_run("r", rows[:seen], below) for seen in range(1, len(rows) + 1)]


def test_watching_a_run_shows_each_change_once_until_it_has_stopped() -> None:
    seen: list[ShownRun] = []
    all_of_it = pictures()
    looks = iter([*all_of_it[:3], all_of_it[2], *all_of_it[3:]])

    watch_run(lambda: next(looks), seen.append, lambda: True, clear=False)

    assert seen == all_of_it


def test_watching_a_run_ends_when_nobody_waits_for_the_next_look(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen: list[ShownRun] = []
    first = pictures()[0]

    watch_run(lambda: first, seen.append, lambda: len(seen) < 3, clear=True)

    assert seen == [first] * 3
    assert capsys.readouterr().out == "\x1b[H\x1b[2J" * 3


def test_the_tree_of_nested_calls_tells_marks_times_counts_and_reasons() -> None:
    lines = list(tree_lines(pictures()[-1]))

    told = "\n".join(lines)
    assert lines[0].startswith("run r  ✗ some calls did not succeed  (2 calls")
    assert "✓ t1.1 good  SUCCEEDED  waited" in told
    assert "✗ t1.2 both  FAILED  waited" in told
    assert "run r/t1.2/1  ✓  1 call  took" in told
    assert "run r/t1.2/2  ✗ some calls did not succeed  1 call  took" in told
    assert "TOOL_ERROR: bad: no luck today" in told


def test_watching_a_run_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "runs.db"
    asyncio.run(play(file))

    def interrupt() -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr("laneway.engine.cli.app.next_look", interrupt)
    result = CliRunner().invoke(app, ["show", "r", "--journal", str(file), "--watch"])
    once = CliRunner().invoke(app, ["show", "r", "--journal", str(file)])

    assert result.exit_code == 0
    assert result.stdout == once.stdout


def test_watching_a_run_and_json_are_not_for_the_same_reader(tmp_path: Path) -> None:
    file = tmp_path / "runs.db"
    asyncio.run(play(file))

    result = CliRunner().invoke(app, ["show", "r", "--journal", str(file), "--watch", "--json"])

    assert result.exit_code == 2
    assert "--watch shows a run to people" in result.stderr
