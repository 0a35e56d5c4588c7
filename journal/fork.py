"""A new run that shares the past of another, up to a fact of it.

Reads what the store has kept of a run, which may go on meanwhile under its own driver; writes the
copies, and behind them where they come from, in one commit: the new run is there whole or not at
all. What was running at that point is for the new run's first driver what a crash leaves.

The copies differ from their originals in the name of the run alone, wherever Laneway itself has
written it: in `run_opened`, in `run:` claims and conflicts over them, in the names of calls that
others joined, and in the names of the runs below its calls. Those runs are copied with it, as they
stood at the same moment: a body that is entered again must not repeat what it had done through
them. Arguments, messages and results stay as they were said.
"""

import time
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from laneway.calls import CallRecord, Edge
from laneway.claims import Claim
from laneway.errors import DamagedJournalError, UnknownRunError, UsageError
from laneway.facts import (
    ApprovalAsked,
    Below,
    CallJoined,
    CallQueued,
    CallStarted,
    ChildEntered,
    Fact,
    LevelEntered,
    Row,
    RunForked,
    RunOpened,
    TaskStarted,
    TurnStreamed,
    TurnSubmitted,
)
from laneway.ids import ApprovalId, CallId, RunId, is_own
from laneway.journal.fold import RunView, fold
from laneway.journal.lease import this_driver
from laneway.journal.replay import Times
from laneway.journal.store import JournalStore
from laneway.states import State

FOLLOWS = (CallQueued, CallJoined, CallStarted, ApprovalAsked)
"""What a driver finds again by itself from the facts before it, if it is lost."""


class Forked(msgspec.Struct, frozen=True, kw_only=True):
    """What a fork has made."""

    run: RunId
    source: RunId
    seq: int
    """The last fact that both share."""
    below: tuple[RunId, ...]
    """The runs that were copied with it, below its calls; by their new names."""
    running: tuple[CallId, ...]
    """Calls that were RUNNING there, in the run itself."""
    repeated: tuple[CallId, ...]
    """Those of `running` that will be entered again though they change something: each declares
    that it is idempotent. Their idempotency keys are those of the run that is shared, as are those
    of every call in the shared past."""
    approvals: tuple[ApprovalId, ...]
    """Questions that were open there, and now are the fork's to be answered as well; those of calls
    in the runs below by their new names: `fork/t1.2/1/t1.1.a1`."""


async def fork(store: JournalStore, run: str, new: str, *, at: int | None = None) -> Forked:
    """Make a new run that begins with the facts of another.

    Args:
        store: open, and no engine's own: an engine's writer must be alone with its store. Two
            stores may be open on one file.
        run: the run to share the past of; it may be driven meanwhile, here or elsewhere.
        new: a name that the journal does not have.
        at: the last fact to share, from 1; all that are kept by now if None. Of a damaged run a
            fact before the damage must be named.

    Raises:
        UsageError: there is a run of that name, or of a name below it; there is no such fact, or
            it was written in one go with others that are needed to make sense of it.
        UnknownRunError: there is no such run.
        RunOwnedError: somebody is just making a run of that name.
        DamagedJournalError: the facts up to there are damaged.
        JournalError: the journal cannot be read or written.
    """
    source = RunId(run)
    if not _usable(new) or new == run or new.startswith(f"{run}/"):
        raise UsageError(f"a fork of run {run!r} cannot be called {new!r}; choose another name")
    rows, damage = await _read(store, source)
    if not rows:
        raise damage or UnknownRunError(run, [entry.run for entry in await store.runs()])
    seq = _chosen(run, rows, at, damage)
    shared = rows[:seq]
    view = fold(source, shared)
    copies = {RunId(new): _forked(shared, source, source, new)}
    asked = list(_open_questions(view))
    for name in await _below(store, view):
        inner = _until(shared, (await _read(store, name))[0])
        if inner:
            copy = RunId(_renamed(name, source, new))
            copies[copy] = _forked(inner, name, source, new)
            asked += (ApprovalId(f"{copy}/{one}") for one in _open_questions(fold(name, inner)))
    await _write(store, copies)
    return _told(view, RunId(new), tuple(copies)[1:], tuple(asked))


def _open_questions(view: RunView) -> Iterator[ApprovalId]:
    for one in view.approvals.values():
        call = view.calls[one.call]
        if one.answer is None and call.state is State.AWAITING_APPROVAL and call.approval is one:
            yield one.id


def whole(rows: Sequence[Row], seq: int) -> bool:
    """Whether what was written by a fact is complete with it.

    Facts that a driver wrote in one go carry the same times. They can be parted only where all that
    is left over follows from what is before: a queue, a start, a question; never an outcome, which
    may be that of a call which must not run.
    """
    here = rows[seq - 1]
    for row in rows[seq:]:
        if (row.wall, row.mono) != (here.wall, here.mono):
            break
        if not isinstance(row.fact, FOLLOWS):
            return False
    return True


def _usable(name: str) -> bool:
    try:
        return bool(name.encode())
    except UnicodeEncodeError:  # half a surrogate pair
        return False


def _chosen(
    run: str, rows: Sequence[Row], at: int | None, damage: DamagedJournalError | None
) -> int:
    if at is None:
        if damage is not None:
            raise damage
        return len(rows)
    if not 1 <= at <= len(rows):
        if damage is not None and at >= damage.seq:
            raise damage
        raise UsageError(
            f"run {run!r} has no fact {at} to fork it at: give a number from 1 to {len(rows)}"
        )
    if whole(rows, at):
        return at
    before = next((seq for seq in range(at - 1, 0, -1) if whole(rows, seq)), None)
    after = next(seq for seq in range(at + 1, len(rows) + 1) if whole(rows, seq))
    raise UsageError(
        f"run {run!r} cannot be forked at fact {at}, in the middle of what was written in one go; "
        f"fork it at {after if before is None else f'{before} or {after}'}"
    )


async def _read(
    store: JournalStore, run: RunId
) -> tuple[Sequence[Row], DamagedJournalError | None]:
    """Read a run as far as it is whole."""
    try:
        return await store.read(run), None
    except DamagedJournalError as error:
        return error.whole, error


async def _below(store: JournalStore, view: RunView) -> list[RunId]:
    """Find the runs below the calls of a run: `fix-42/t1.2/1`."""
    start = f"{view.run}/"
    return [
        entry.run
        for entry in await store.runs()
        if entry.run.startswith(start) and entry.run[len(start) :].split("/")[0] in view.calls
    ]


def _until(shared: Sequence[Row], inner: Sequence[Row]) -> Sequence[Row]:
    """What a run below had written by the last shared fact, as a run that can be taken up.

    By the monotonic clock, if both were under one driver then, else by that of the wall.
    """
    clocks = Times()
    last = shared[-1]
    for row in shared:
        clocks.note(row)
    inner_clocks = Times()
    upto = 0
    for row in inner:
        inner_clocks.note(row)
        one_clock = clocks.clock and inner_clocks.clock == clocks.clock
        if (row.mono > last.mono) if one_clock else (row.wall > last.wall):
            break
        upto = row.seq
    if not upto:
        return ()
    # A little more of it does no harm: it has happened.
    return inner[: next(seq for seq in range(upto, len(inner) + 1) if whole(inner, seq))]


def _forked(rows: Sequence[Row], run: RunId, source: RunId, new: str) -> list[Row]:
    """Copy facts for a run, and say behind them where they come from."""
    name = RunId(_renamed(run, source, new))
    copies = [
        Row(name, row.seq, row.wall, row.mono, copied_fact(row.fact, source, new)) for row in rows
    ]
    forked = RunForked(source=run, seq=len(rows))
    return [*copies, Row(name, len(rows) + 1, time.time(), time.monotonic(), forked)]


def copied_fact(fact: Fact, source: str, new: str) -> Fact:
    """A fact of one run, as another's: under its name, where Laneway itself has written that."""
    match fact:
        case RunOpened(run=run, below=Below() as below):
            root = RunId(_renamed(below.root, source, new))
            below = replace(below, root=root)
            return replace(fact, run=RunId(_renamed(run, source, new)), below=below)
        case (
            RunOpened(run=run)
            | ChildEntered(run=run)
            | LevelEntered(run=run)
            | TaskStarted(run=run)
        ):
            return replace(fact, run=RunId(_renamed(run, source, new)))
        case CallJoined(leader=leader):
            return replace(fact, leader=_renamed(leader, source, new))
        case CallQueued(claims=claims):
            return replace(fact, claims=_claims(claims, source, new)) if claims else fact
        case TurnStreamed(calls=calls):
            return replace(fact, calls=tuple(_record(call, source, new) for call in calls))
        case TurnSubmitted(calls=calls, edges=edges):
            return replace(
                fact,
                calls=tuple(_record(call, source, new) for call in calls),
                edges=tuple(_edge(edge, source, new) for edge in edges),
            )
        case _:
            return fact


def _renamed(name: str, source: str, new: str) -> str:
    """Rename the run, a call of it, or a run below one of its calls; another's name stays."""
    if name == source:
        return new
    start = f"{source}/"
    below = name.startswith(start) and is_own(name[len(start) :].split("/", maxsplit=1)[0])
    return f"{new}/{name[len(start) :]}" if below else name


def _resource(resource: str, source: str, new: str) -> str:
    scheme, _, name = resource.partition(":")
    return f"run:{_renamed(name, source, new)}" if scheme == "run" else resource


def _claims(claims: tuple[Claim, ...], source: str, new: str) -> tuple[Claim, ...]:
    return tuple(Claim(_resource(one.resource, source, new), one.access) for one in claims)


def _record(call: CallRecord, source: str, new: str) -> CallRecord:
    return replace(call, claims=_claims(call.claims, source, new))


def _edge(edge: Edge, source: str, new: str) -> Edge:
    detail = _resource(edge.detail, source, new)
    return Edge(edge.source, edge.target, edge.reason, detail)


async def _write(store: JournalStore, copies: Mapping[RunId, Sequence[Row]]) -> None:
    driver = this_driver()
    taken: list[RunId] = []
    try:
        for name in copies:
            found = await store.take(name, driver)
            taken.append(name)
            if found:
                raise UsageError(
                    f"the journal has a run {name!r} already; a fork needs a name of its own"
                )
        committing = store.commit([row for rows in copies.values() for row in rows])
        if committing is not None:
            await committing
    finally:
        for name in taken:
            await store.leave(name)


def _told(
    view: RunView, new: RunId, below: tuple[RunId, ...], asked: tuple[ApprovalId, ...]
) -> Forked:
    running = [call for call in view.calls.values() if call.state is State.RUNNING]
    return Forked(
        run=new,
        source=view.run,
        seq=view.seq,
        below=below,
        running=tuple(call.id for call in running),
        repeated=tuple(
            call.id
            for call in running
            if call.record.idempotent and not call.record.effect.changes_nothing
        ),
        approvals=asked,
    )
