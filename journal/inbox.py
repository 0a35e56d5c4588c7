"""Answers from whoever does not drive a run: put into the journal, taken up by its driver.

The driver alone writes facts of a run. So an answer from another process lies in the inbox until
the driver, or the next one, takes it up: what counts becomes a fact and leaves the inbox, what does
not stays there with the reason, for whoever sent it. Feeds the engine and the command line; a store
need not be able to do this.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from laneway.errors import JournalError
from laneway.ids import ApprovalId, RunId


class SentAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What somebody says to a question of a run."""

    approval: ApprovalId
    digest: str
    """Of the question as it was shown: it counts for that and for nothing else."""
    granted: bool
    by: str = ""
    reason: str = ""
    arguments: Any = None
    """In place of those that were asked about; None for those."""
    scope: str = ""
    """`run`: for later calls of the tool, too."""
    pattern: Any = None
    """For later calls whose arguments fit, too."""


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """An answer in the inbox."""

    number: int
    """In the file; the fact of an answer that counts names it."""
    run: RunId
    sent_wall: float
    """Unix seconds."""
    answer: SentAnswer
    refused: str = ""
    """Why it does not count; empty while nobody has looked at it. Its arguments are gone then."""


@runtime_checkable
class Inbox(Protocol):
    """What a store may do besides, if other processes can reach its journal.

    A store that wraps another passes it on, with the functions of this module.
    """

    @property
    def has_inbox(self) -> bool:
        """Whether there is one: a store that wraps another says what that one says."""
        ...

    async def send(self, run: RunId, answer: SentAnswer, /) -> int:
        """Put an answer in, durably, whoever drives the run or nobody; gives its number.

        Raises:
            UnknownRunError: there is no such run.
            JournalError: it is not known to be kept.
        """
        ...

    async def letters(self, run: RunId | None = None, /) -> Sequence[Letter]:
        """List the inbox of a run, or of all, the oldest first; those that were refused, too."""
        ...

    async def taken(self, number: int, refused: str = "", /) -> None:
        """An answer is a fact now, and leaves the inbox; or it is refused, and stays with that.

        Only for whoever drives the run. Saying it again changes nothing.
        """
        ...

    def when_sent(self, tell: Callable[[RunId], object], /) -> None:
        """Tell, in the event loop of `open`, of each run held here that has answers to take up.

        Again and again, until they have been taken.
        """
        ...


def inbox_of(store: object, /) -> Inbox | None:
    """The inbox of a journal, if it has one."""
    return store if isinstance(store, Inbox) and store.has_inbox else None


async def letters(store: object, run: RunId, /) -> Sequence[Letter]:
    """The answers that wait to be taken up, if there can be any."""
    inbox = inbox_of(store)
    found = () if inbox is None else await inbox.letters(run)
    return [one for one in found if not one.refused]


async def taken(store: object, number: int, refused: str = "", /) -> None:
    """Say what became of an answer; see `Inbox`."""
    inbox = inbox_of(store)
    if inbox is not None:
        await inbox.taken(number, refused)


def when_sent(store: object, tell: Callable[[RunId], object], /) -> None:
    """Be told of answers, if there can be any; see `Inbox`."""
    inbox = inbox_of(store)
    if inbox is not None:
        inbox.when_sent(tell)


def letter_of(line: Sequence[Any], /) -> Letter:
    """Read a line of the inbox: number, run, when, JSON, and why it was refused.

    Raises:
        JournalError: it is none of an answer.
    """
    number, run, sent, body, refused = line
    try:
        answer = msgspec.json.decode(body, type=SentAnswer)
    except msgspec.MsgspecError as error:
        raise JournalError(
            f"line {number} of the table inbox, to run {run!r}, cannot be read ({error}); remove "
            "that line, and answer again"
        ) from error
    return Letter(
        number=int(number),
        run=RunId(run),
        sent_wall=float(sent),
        answer=answer,
        refused=refused or "",
    )
