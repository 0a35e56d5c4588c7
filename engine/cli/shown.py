"""A run as the command line shows it, whether as a tree or as JSON; the names of the fields stay.

Reads the rows of a run; feeds `tree` and every `--json`.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from laneway.calls import Edge
from laneway.engine.cli.moments import Moments
from laneway.engine.critical import CriticalPath
from laneway.engine.durations import Durations
from laneway.facts import Row
from laneway.ids import CallId, RunId
from laneway.journal.fold import CallView, RunView, TurnView
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
    stuck: bool
    """Its body has not stopped."""


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
    finished: bool
    """No turn is open."""
    succeeded: bool
    """It is finished, and all of its calls succeeded."""
    turns: list[ShownTurn]


def show_run(run: str, rows: Sequence[Row]) -> ShownRun:
    """Fold the rows of a run into what is shown.

    Raises:
        DamagedJournalError: facts are missing.
    """
    view = RunView(RunId(run))
    moments = Moments()
    for row in rows:
        view.apply(row)
        moments.note(row)
    durations = Durations()
    durations.learn_from(view)
    parts = _parts(view)
    turns = [_turn(turn, parts, moments, durations) for turn in view.turns]
    finished = view.open_turn is None
    return ShownRun(
        run=run,
        mode=view.mode,
        facts=view.seq,
        drivers=moments.drivers,
        resume_with=view.resume_with,
        settings=view.settings,
        finished=finished,
        succeeded=finished
        and all(call.state is State.SUCCEEDED for turn in view.turns for call in turn.calls),
        turns=turns,
    )


def workspace_of(run: ShownRun) -> str:
    """The folder that the run works in, if its settings name one; else empty."""
    match run.settings:
        case {"workspace": str(folder)}:
            return folder
        case _:
            return ""


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


def _turn(turn: TurnView, parts: _Parts, moments: Moments, durations: Durations) -> ShownTurn:
    return ShownTurn(
        turn=turn.number,
        provider=turn.provider,
        closed=turn.closed,
        critical_path=moments.critical_path(turn, durations),
        calls=[_call(call, turn.edges, moments) for call in _ordered(turn, parts)],
    )


def _call(call: CallView, edges: Sequence[Edge], moments: Moments) -> ShownCall:
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
        stuck=call.stuck,
    )
