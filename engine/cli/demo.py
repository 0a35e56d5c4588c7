"""The demo, and an example of a host: an agent repairs a small project with failing tests.

The model's answers were written down (`demo_model`), so it needs no network and no key; the tools
are the real ones of `laneway.engine.toolkit`, in a real folder. It shows what a host's loop looks
like when it must survive a crash: `converse`.
"""

import sys
from pathlib import Path
from typing import Any

import anyio

from laneway.engine.cli.demo_model import TASK, next_answer
from laneway.engine.cli.demo_project import write_project
from laneway.engine.cli.shown import ShownRun
from laneway.engine.engine import Engine
from laneway.engine.run import Run
from laneway.engine.toolkit import toolkit
from laneway.engine.tools import Tool
from laneway.errors import UsageError
from laneway.journal.store import JournalStore
from laneway.outcomes import Success

RESUME_WITH = "laneway.engine.cli.demo:carry_on"


async def converse(run: Run) -> None:
    """Let model and tools take turns until the model asks for nothing more.

    Begins, and goes on after a crash, alike: what the crash left open is finished first, and the
    conversation so far says what comes next.
    """
    if run.open_turn:
        await run.finish()
    messages = run.history() or await run.say(TASK)
    while not (run.turns and not run.turns[-1].calls):
        reply = next_answer(messages)  # here a host awaits client.messages.create(messages=…)
        turn = await run.submit(reply)
        messages += turn.messages


async def repair(journal: JournalStore, run: str, workspace: Path) -> None:
    """Repair the project in a folder, from the beginning or from where the journal ends."""
    settings = {"workspace": str(workspace)}
    async with (
        Engine(demo_tools(workspace), journal=journal, workspace=workspace) as engine,
        engine.run(run, resume_with=RESUME_WITH, settings=settings) as taken,
    ):
        await converse(taken)


async def carry_on(journal: JournalStore, run: str, settings: Any) -> None:
    """Go on with a demo that was interrupted; `laneway resume` calls this.

    Raises:
        UsageError: the folder that was being repaired is gone.
    """
    workspace = Path(settings["workspace"])
    if not await anyio.Path(workspace).is_dir():
        raise UsageError(f"run {run!r} repairs {workspace}, and that folder is gone: start anew")
    await repair(journal, run, workspace)


def lay_out(workspace: Path) -> None:
    """Write the project that is to be repaired.

    Raises:
        UsageError: something is in the way.
    """
    try:
        write_project(workspace)
    except FileExistsError as error:
        raise UsageError(
            f"{workspace} is there already; name another folder, or remove it"
        ) from error
    except OSError as error:
        raise UsageError(f"the project cannot be written to {workspace}: {error}") from error


def tests_passed(run: ShownRun) -> bool:
    """Whether the tests passed when they were run for the last time."""
    ran = [call for turn in run.turns for call in turn.calls if call.tool == "run_tests"]
    match ran[-1].outcome if ran else None:
        case Success(value=str(told)):
            return told.startswith("exit code 0\n")
        case _:
            return False


def demo_tools(workspace: Path) -> list[Tool]:
    """The tools, with the tests of the project.

    The project needs nothing but the standard library, so its tests start without site-packages;
    and without writing byte code, which Python would take for that of an edit in the same second.
    """
    return toolkit(workspace, tests=[sys.executable, "-B", "-S", "-m", "unittest"])
