"""The questions of all runs of a journal, read beside whoever drives them, and answers to them.

Reads facts and the inbox without driving a run; puts answers into the inbox, and waits for what
becomes of them. Feeds `approvals`, `approve` and `deny`.
"""

import asyncio
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from laneway.engine.cli.journals import existing
from laneway.engine.questions import happened_to, open_in
from laneway.engine.turn import host_name
from laneway.errors import DamagedJournalError, UnknownApprovalError, UnknownRunError, UsageError
from laneway.ids import ApprovalId, CallId, RunId
from laneway.journal.fold import ApprovalView, RunView, fold
from laneway.journal.inbox import Letter, SentAnswer
from laneway.journal.sqlite import SqliteStore
from laneway.journal.unblocking import unblocks
from laneway.policies.approvals import expired
from laneway.states import State

LOOK_SECONDS = 0.1
"""Between two looks at what became of an answer."""


class ShownApproval(msgspec.Struct, frozen=True, kw_only=True):
    """A question that waits for a human."""

    run: RunId
    approval: ApprovalId
    call: CallId
    name: str
    """The provider's id of the call."""
    tool: str
    arguments: Any
    """What would run, exactly."""
    changed: bool
    """Somebody has changed the arguments already."""
    rule: str
    reason: str
    digest: str
    """What an answer binds."""
    expires_wall: float
    expired: bool
    """By the clock of this host; nobody drives the run who would say so."""
    approvers: int
    granted_by: tuple[str, ...]
    each_time: bool
    unblocks: tuple[CallId, ...]
    """The calls that wait for nothing but this."""
    waiting_answers: tuple[str, ...]
    """Answers in the inbox that the driver has not taken up, each in a word or two."""


class Became(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an answer that was sent."""

    number: int
    run: RunId
    approval: ApprovalId
    standing: str
    """`waits`, `counted` or `refused`."""
    why: str = ""


def open_approvals(path: Path, run: str = "", *, wall: float | None = None) -> list[ShownApproval]:
    """List the open questions of a journal, run by run in the order in which these were opened.

    Args:
        path: of the journal.
        run: only of this one, and of those within its calls; empty for all.
        wall: Unix seconds, if not those of now.

    Raises:
        UnknownRunError: there is no such run.
        JournalError: the journal cannot be read.
    """
    views, letters = asyncio.run(_read(existing(path), run))
    now = time.time() if wall is None else wall
    return [_shown(view, one, now, letters) for view in views for one in open_in(view)]


def sent_answers(path: Path, run: str = "") -> list[Letter]:
    """List the inbox: what waits to be taken up, and what was refused.

    Raises:
        UnknownRunError: there is no such run.
        JournalError: the journal cannot be read.
    """
    return asyncio.run(_read(existing(path), run))[1]


def send(path: Path, run: str, name: str, answer: SentAnswer) -> Became:
    """Put an answer to an open question into the inbox.

    Args:
        path: of the journal.
        run: whose question it is; one within a call of it may be named by `name`.
        name: of the question, or of its call, as for `Run.approve`.
        answer: what is said; question and digest are filled in.

    Raises:
        UnknownApprovalError: no such question is open; says what became of it.
        UsageError: it has expired.
        JournalError: it is not known to be kept.
    """
    return asyncio.run(_send(existing(path), run, name, answer))


def became(path: Path, sent: Became, seconds: float) -> Became:
    """Wait until an answer has been taken up, so many seconds at most, and say what became of it.

    Raises:
        JournalError: the journal cannot be read.
    """
    return asyncio.run(_became(path, sent, seconds))


async def _read(path: Path, run: str) -> tuple[list[RunView], list[Letter]]:
    store = SqliteStore(path)
    await store.open()
    try:
        views = await _views(store, run)
        names = {view.run for view in views}
        return views, [one for one in await store.letters() if one.run in names]
    finally:
        await store.close()


async def _views(store: SqliteStore, run: str) -> list[RunView]:
    names = [entry.run for entry in await store.runs()]
    if run and run not in names:
        raise UnknownRunError(run, names)
    found: list[RunView] = []
    for name in reversed(names):
        if run and name != run and not name.startswith(f"{run}/"):
            continue
        try:
            found.append(fold(name, await store.read(name)))
        except DamagedJournalError:
            if run:
                raise  # Else the questions of the others are still worth a look.
    return found


def _shown(
    view: RunView, one: ApprovalView, now: float, letters: Iterable[Letter]
) -> ShownApproval:
    call = view.calls[one.call]
    return ShownApproval(
        run=view.run,
        approval=one.id,
        call=one.call,
        name=host_name(call, view.calls),
        tool=call.record.tool,
        arguments=one.arguments,
        changed=one.edit is not None,
        rule=one.rule,
        reason=one.reason,
        digest=one.digest,
        expires_wall=one.asked.expires_wall,
        expired=expired(one.asked.expires_wall, now),
        approvers=one.needed,
        granted_by=tuple(said.by for said in one.counted),
        each_time=one.asked.each_time,
        unblocks=unblocks(view, one.call),
        waiting_answers=tuple(
            f"{'granted' if letter.answer.granted else 'refused'}"
            + (f" by {letter.answer.by}" if letter.answer.by else "")
            for letter in letters
            if (letter.run, letter.answer.approval) == (view.run, one.id) and not letter.refused
        ),
    )


async def _send(path: Path, run: str, name: str, answer: SentAnswer) -> Became:
    store = SqliteStore(path)
    await store.open()
    try:
        views = await _views(store, run)
        view, found = _named(views, run, name)
        if expired(found.asked.expires_wall, time.time()):
            raise UsageError(f"approval {found.id} has expired: nobody answered in time")
        answer = msgspec.structs.replace(answer, approval=found.id, digest=found.digest)
        number = await store.send(view.run, answer)
        return Became(number=number, run=view.run, approval=found.id, standing="waits")
    finally:
        await store.close()


def _named(views: Sequence[RunView], run: str, name: str) -> tuple[RunView, ApprovalView]:
    found = [(view, one) for view in views for one in open_in(view)]
    for names in (
        [one for one in found if name in _spelt(run, one[0], one[1].id)],
        [one for one in found if name in _spelt(run, one[0], one[1].call)],
        [one for one in found if name in _spelt(run, one[0], _host_name(*one))],
    ):
        if len(names) == 1:
            return names[0]
    of_run = next(view for view in views if view.run == run)
    ids = [one.id if view.run == run else f"{view.run}/{one.id}" for view, one in found]
    raise UnknownApprovalError(run, name, ids, happened_to(of_run, name))


def _host_name(view: RunView, one: ApprovalView) -> str:
    return host_name(view.calls[one.call], view.calls)


def _spelt(run: str, view: RunView, name: str) -> set[str]:
    return {name, f"{view.run}/{name}"} if view.run == run else {f"{view.run}/{name}"}


async def _became(path: Path, sent: Became, seconds: float) -> Became:
    store = SqliteStore(path)
    await store.open()
    try:
        until = time.monotonic() + seconds
        while True:
            lying = {one.number: one for one in await store.letters(sent.run)}
            letter = lying.get(sent.number)
            if letter is None:
                return await _counted(store, sent)
            if letter.refused:
                return msgspec.structs.replace(sent, standing="refused", why=letter.refused)
            if time.monotonic() >= until:
                return sent
            await asyncio.sleep(LOOK_SECONDS)
    finally:
        await store.close()


async def _counted(store: SqliteStore, sent: Became) -> Became:
    """What the fact of an answer that has left the inbox brought about so far."""
    view = fold(sent.run, await store.read(sent.run))
    question = view.approvals.get(sent.approval)
    if question is None:
        return msgspec.structs.replace(sent, standing="refused", why="the run was removed")
    call = view.calls[question.call]
    missing = question.needed - len(question.counted)
    why = f"call {call.id} is {call.state}"
    if call.state is State.AWAITING_APPROVAL and missing:
        why = f"{missing} more must grant it"
    return msgspec.structs.replace(sent, standing="counted", why=why)
