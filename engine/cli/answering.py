"""Answers the questions of a run: a human at the terminal does, or nobody is there.

Reads the run's open approvals whenever the journal has kept something; calls approve or deny.
"""

import asyncio
import contextlib
import getpass
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import NamedTuple

from laneway.engine.cli.wording import brief
from laneway.engine.run import Run
from laneway.errors import UsageError
from laneway.journal.fold import CallView


class Answer(NamedTuple):
    """What somebody said."""

    granted: bool
    by: str
    reason: str = ""


Asking = Callable[[CallView], Awaitable[Answer]]

NOBODY = "nobody is at a terminal to answer; run it at one, or with --yes"


@contextlib.asynccontextmanager
async def answered(run: Run, news: asyncio.Event, ask: Asking) -> AsyncGenerator[None]:
    """Answer whatever the run asks, inside the block.

    Args:
        run: whose calls ask.
        news: set whenever there may be a new question.
        ask: gets the answer to one.
    """
    news.set()
    answering = asyncio.ensure_future(_answer(run, news, ask))
    try:
        yield
    finally:
        answering.cancel()
        await asyncio.wait([answering])
        if not answering.cancelled():
            answering.result()


def whom_to_ask(*, yes: bool) -> Asking:
    """Choose who answers: `--yes` does, else whoever is at the terminal, else nobody."""
    if yes:
        return _yes
    return _at_terminal if sys.stdin.isatty() else _nobody


async def _answer(run: Run, news: asyncio.Event, ask: Asking) -> None:
    heard: set[tuple[str, str]] = set()
    while True:
        await news.wait()
        news.clear()
        for approval in run.approvals:
            shown = (approval.id, approval.digest)
            if shown in heard:
                continue  # Somebody else must say so, too: `laneway approve`.
            heard.add(shown)
            answer = await ask(approval.view.calls[approval.asked.call])
            # It may have expired, changed or been cancelled while somebody thought about it.
            with contextlib.suppress(UsageError):
                if answer.granted:
                    await run.approve(approval.id, by=answer.by, digest=approval.digest)
                else:
                    await run.deny(approval.id, by=answer.by, reason=answer.reason)


async def _yes(_: CallView) -> Answer:
    return Answer(granted=True, by=_user())


async def _nobody(_: CallView) -> Answer:
    return Answer(granted=False, by="", reason=NOBODY)


async def _at_terminal(call: CallView) -> Answer:
    """Ask, and read a line without holding up whatever else runs."""
    assert call.approval is not None
    what = f"{call.record.tool} {brief(call.approval.arguments, 500)}"
    print(f"May {call.id} run?  {what}  [y/N] ", end="", file=sys.stderr, flush=True)
    loop = asyncio.get_running_loop()
    typed: asyncio.Future[str] = loop.create_future()

    def read() -> None:
        loop.remove_reader(sys.stdin)
        typed.set_result(sys.stdin.readline())

    loop.add_reader(sys.stdin, read)
    try:
        line = await typed
    finally:
        loop.remove_reader(sys.stdin)
    return Answer(granted=line.strip().lower() in {"y", "yes"}, by=_user())


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no name for this user id
        return ""
