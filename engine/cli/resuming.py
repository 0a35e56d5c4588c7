"""Takes up a run that was interrupted: finds the function that its host left a name of, calls it.

A host says `engine.run(name, resume_with="my.agent:carry_on", settings={...})`, and writes

    async def carry_on(journal: JournalStore, run: str, settings: Any) -> None: ...

which makes an Engine with its own tools on this journal and goes on, just as it would in a program
of its own. The name is imported from the current folder first, and called: resume only runs of
journals that you trust like a program.
"""

import importlib
import inspect
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from laneway.errors import UsageError
from laneway.journal.store import JournalStore

CarryOn = Callable[[JournalStore, str, Any], Awaitable[object]]
"""Gets the journal (not open), the name of the run, and the settings that were kept with it."""


def carry_on_of(run: str, resume_with: str) -> CarryOn:
    """Import the function that carries a run on.

    Raises:
        UsageError: the run names none, or none that can be imported.
    """
    if not resume_with:
        raise UsageError(
            f"run {run!r} names no function that carries it on: take it up in the program that "
            "made it, or let that program say engine.run(name, resume_with='module:function')"
        )
    module, _, attribute = resume_with.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
        for step in attribute.split("."):
            found = getattr(found, step)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(
            f"run {run!r} is carried on by {resume_with!r}, which cannot be imported here: {error}"
        ) from error
    if not inspect.iscoroutinefunction(found):
        raise UsageError(
            f"run {run!r} is carried on by {resume_with!r}, which is no coroutine function"
        )
    carry_on: CarryOn = found
    return carry_on
