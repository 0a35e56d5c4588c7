"""A run as the command line shows it, whether as a tree or as JSON; the names of the fields stay.

Reads the rows of a run; feeds `tree` and every `--json`.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from laneway.calls import Edge
from laneway.engine.cli.journals import existing, read_run
from laneway.engine.cli.moments import Moments
from laneway.engine.critical import CriticalPath
from laneway.engine.durations import Durations
from laneway.errors import DamagedJournalError
from laneway.facts import ChildEntered, Row
from laneway.ids import CallId, RunId
from laneway.journal.fold import CallView, RunView, TurnView
from laneway.journal.sqlite import SqliteStore
from laneway.outcomes import Outcome
from laneway.states import State


class ShownWait(msgspec.Struct, frozen=True):
    """Why a call had to wait for another."""

    call: str
    reason: str
    """needs, after, data or conflict."""
    detail: str
    """The resource of a conflict, the path of a reference."""


class ShownCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call and what became of it."""

    call: str
    """Laneway's own name."""
    id: str
    """The provider's."""
    parent: str
    """The call that it is part of, or empty."""
    tool: str
    arguments: Any
    state: str
    attempts: int
    waited_seconds: float | None
    """From the model's asking to the start of the last attempt; None if it has not started."""
    took_seconds: float | None
    """From that start to the outcome."""
    waits_for: list[ShownWait]
    claims: list[str]
    rule: str
    """The rule of the policy that decided."""
    outcome: Outcome | None
    settled: Outcome | None
    """What an unknown effect came to, found out later."""
    by: str
    """Who found that out, or that it did nothing and runs again; or empty."""
    probed: str
    """What the tool's probe said last of its end that nobody saw, or empty."""
    stuck: bool
    """Its body has not stopped."""
    runs: "list[ShownRun]"
    """The runs that its body entered."""


class ShownTurn(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of the model."""

    turn: int
    provider: str
    closed: bool
    critical_path: CriticalPath
    """What its end waited for; of an open turn an estimate from what the run's calls took."""
    calls: list[ShownCall]
    """In request order; what is part of a call stands behind it."""


class ShownRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run."""

    run: str
    mode: str
    facts: int
    drivers: int
    """How many processes have driven it, one after the other."""
    resume_with: str
    """The function that carries it on, or empty."""
    settings: Any
    """What that function wants to know."""
    changes: list[str]
    """What the last driver found changed, in a sentence each."""
    stopped: str
    """Why it goes on no more by itself: the reason, or empty while it does."""
    stopped_because: str
    finished: bool
    """No turn is open."""
    succeeded: bool
    """It is finished, and all of its calls succeeded."""
    took_seconds: float | None
    """From the first answer to the last outcome; None while there is neither."""
    turns: list[ShownTurn]


Below = Mapping[RunId, Sequence[Row]]
"""The rows of the runs that calls have entered."""


def read_shown(file: Path, run: str) -> ShownRun:
    """Read a run as it is shown, with all that is below its calls.

    Raises:
        UnknownRunError: the journal has no such run.
        JournalError: it is not there, foreign, newer, damaged, or cannot be read.
    """
    rows = read_run(file, run)
    return show_run(run, rows, asyncio.run(_read_below(file, rows)))


async def _read_below(file: Path, rows: Sequence[Row]) -> Below:
    found: dict[RunId, Sequence[Row]] = {}
    pending = _entered(rows)
    if not pending:
        return found
    store = SqliteStore(existing(file))
    await store.open()
    try:
        while pending:
            run = pending.pop()
            if run not in found:
                try:
                    found[run] = await store.read(run)
                except DamagedJournalError:  # What is above it can be shown all the same.
                    found[run] = ()
                pending += _entered(found[run])
    finally:
        await store.close()
    return found


def _entered(rows: Sequence[Row]) -> list[RunId]:
    return [row.fact.run for row in rows if isinstance(row.fact, ChildEntered)]


def show_run(run: str, rows: Sequence[Row], below: Below | None = None) -> ShownRun:
    """Fold the rows of a run into what is shown.

    Args:
        run: its name.
        rows: its facts.
        below: those of the runs within its calls, at any depth, as far as they are known.

    Raises:
        DamagedJournalError: facts are missing.
    """
    below = below or {}
    view = RunView(RunId(run))
    moments = Moments()
    for row in rows:
        view.apply(row)
        moments.note(row)
    durations = Durations()
    durations.learn_from(view)
    parts = _parts(view)
    turns = [_turn(turn, parts, moments, durations, below) for turn in view.turns]
    finished = view.open_turn is None
    return ShownRun(
        run=run,
        mode=view.mode,
        facts=view.seq,
        drivers=moments.drivers,
        resume_with=view.resume_with,
        settings=view.settings,
        changes=list(view.changes),
        stopped=view.stop_reason or "",
        stopped_because=view.stopped.detail if view.stopped is not None else "",
        finished=finished,
        succeeded=finished
        and all(call.state is State.SUCCEEDED for turn in view.turns for call in turn.calls),
        took_seconds=_took(view),
        turns=turns,
    )


def workspace_of(run: ShownRun) -> str:
    """The folder that the run works in, if its settings name one; else empty."""
    match run.settings:
        case {"workspace": str(folder)}:
            return folder
        case _:
            return ""


def _took(view: RunView) -> float | None:
    ends = [call.ended for call in view.calls.values() if call.ended is not None]
    begins = [call.submitted for call in view.calls.values()]
    return max(max(ends) - min(begins), 0.0) if ends else None


_Parts = Mapping[CallId, Sequence[CallView]]


def _parts(view: RunView) -> _Parts:
    """Find the calls that are part of another, by that other."""
    parts: defaultdict[CallId, list[CallView]] = defaultdict(list)
    for call in view.calls.values():
        if call.record.parent is not None:
            parts[call.record.parent].append(call)
    return parts


def _ordered(turn: TurnView, parts: _Parts) -> Iterator[CallView]:
    pending = [call for call in reversed(turn.calls) if call.record.parent is None]
    while pending:
        call = pending.pop()
        yield call
        pending += reversed(parts.get(call.id, ()))


def _turn(
    turn: TurnView, parts: _Parts, moments: Moments, durations: Durations, below: Below
) -> ShownTurn:
    return ShownTurn(
        turn=turn.number,
        provider=turn.provider,
        closed=turn.closed,
        critical_path=moments.critical_path(turn, durations),
        calls=[_call(call, turn.edges, moments, below) for call in _ordered(turn, parts)],
    )


def _call(call: CallView, edges: Sequence[Edge], moments: Moments, below: Below) -> ShownCall:
    record = call.record
    return ShownCall(
        call=call.id,
        id=record.provider_id,
        parent=record.parent or "",
        tool=record.tool,
        arguments=record.arguments,
        state=call.state,
        attempts=call.attempt,
        waited_seconds=moments.waited(call.id),
        took_seconds=moments.took(call.id),
        waits_for=[
            ShownWait(edge.source, edge.reason, edge.detail)
            for edge in edges
            if edge.target == call.id
        ],
        claims=[str(claim) for claim in call.claims or record.claims],
        rule=call.rule,
        outcome=call.outcome,
        settled=call.settled,
        by=call.by,
        probed=call.probed,
        stuck=call.stuck,
        runs=[show_run(run, below[run], below) for run in call.children if run in below],
    )
