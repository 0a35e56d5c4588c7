"""Takes up what others have answered to the runs of an engine, and tells them what became of it.

The store says which run was sent something; here the letters are read, each answer is followed as
if it had been given here, and removed once its fact is kept. Whoever dies in between leaves both,
and the next driver finds the fact, which names the letter: it counts once.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from laneway.engine.answering import Said, answer
from laneway.errors import JournalError, UsageError
from laneway.ids import RunId
from laneway.journal.inbox import Letter, letters, taken, when_sent
from laneway.journal.writer import Journal

if TYPE_CHECKING:
    from laneway.engine.scheduler import Scheduler


class Letters:
    """Of one engine, in one event loop."""

    def __init__(self, journal: Journal, driven: "Callable[[RunId], Scheduler | None]") -> None:
        """Listen from now on.

        Args:
            journal: that is open.
            driven: gives the scheduler of a run that is driven here.
        """
        self._driven = driven
        self._taking: dict[RunId, asyncio.Task[None]] = {}
        when_sent(journal.store, self._sent)

    async def close(self) -> None:
        """Leave what has not been taken up to the next driver."""
        for task in self._taking.values():
            task.cancel()
        if self._taking:
            await asyncio.wait(self._taking.values())

    def _sent(self, run: RunId) -> None:
        scheduler = self._driven(run)
        if scheduler is None or run in self._taking:
            return
        task = asyncio.get_running_loop().create_task(take_up(scheduler), name="laneway-inbox")
        self._taking[run] = task
        task.add_done_callback(lambda _: self._taking.pop(run, None))


async def take_up(scheduler: "Scheduler") -> None:
    """Follow all answers that lie in the inbox of a run, the oldest first.

    What goes wrong with the journal is left to whoever writes the next fact: the letters stay.
    """
    services = scheduler.services
    services.clock.hold()
    try:
        for letter in await letters(services.journal.store, scheduler.log.view.run):
            if scheduler.leaving or scheduler.log.broken is not None:
                return
            refused = _follow(scheduler, letter)
            await scheduler.kept()
            await taken(services.journal.store, letter.number, refused)
    except JournalError:
        return
    finally:
        services.clock.release()


def _follow(scheduler: "Scheduler", letter: Letter) -> str:
    """Do what an answer says; why it does not count, or nothing."""
    said = letter.answer
    question = scheduler.log.view.approvals.get(said.approval)
    if question is not None and any(one.sent == letter.number for one in question.answers):
        return ""  # It was followed, and its driver died before it could say so.
    try:
        answer(
            scheduler,
            said.approval,
            Said(
                granted=said.granted,
                by=said.by,
                reason=said.reason,
                arguments=said.arguments,
                scope=said.scope,
                pattern=said.pattern,
                digest=said.digest,
                sent=letter.number,
                wall=letter.sent_wall,
            ),
        )
    except UsageError as error:
        return str(error)
    return ""
