"""A run as the command line shows it, whether as a tree or as JSON; the names of the fields stay.

Reads the rows of a run; feeds `tree` and every `--json`.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from laneway.calls import Edge
from laneway.facts import CallEnded, CallStarted, Driver, Row, RunOpened, RunTaken, TurnSubmitted
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
    calls: list[ShownCall]


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
    moments = _Moments()
    for row in rows:
        view.apply(row)
        moments.note(row)
    turns = [_turn(turn, moments) for turn in view.turns]
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


class _Moment(msgspec.Struct, frozen=True):
    wall: float
    mono: float
    boot: str


class _Moments:
    """When the calls were asked for, started and ended, each on the clock of its driver."""

    def __init__(self) -> None:
        self.drivers = 0
        self._boot = ""
        self._asked: dict[CallId, _Moment] = {}
        self._started: dict[CallId, _Moment] = {}
        self._ended: dict[CallId, _Moment] = {}

    def note(self, row: Row) -> None:
        moment = _Moment(row.wall, row.mono, self._boot)
        match row.fact:
            case RunOpened(driver=driver) | RunTaken(driver=driver):
                self._driven(driver)
            case TurnSubmitted(calls=calls):
                self._asked.update((call.id, moment) for call in calls)
            case CallStarted(call=call):
                self._started[call] = moment
            case CallEnded(call=call):
                self._ended[call] = moment
            case _:
                pass

    def waited(self, call: CallId) -> float | None:
        return _between(self._asked.get(call), self._started.get(call))

    def took(self, call: CallId) -> float | None:
        return _between(self._started.get(call), self._ended.get(call))

    def _driven(self, driver: Driver) -> None:
        self.drivers += 1
        # Monotonic clocks agree within one boot of one host; where that is unknown, within one
        # driver.
        self._boot = f"{driver.host} {driver.boot}" if driver.boot else str(self.drivers)


def _between(first: _Moment | None, last: _Moment | None) -> float | None:
    if first is None or last is None:
        return None
    if first.boot == last.boot:
        return max(last.mono - first.mono, 0.0)
    return max(last.wall - first.wall, 0.0)


def _turn(turn: TurnView, moments: _Moments) -> ShownTurn:
    return ShownTurn(
        turn=turn.number,
        provider=turn.provider,
        closed=turn.closed,
        calls=[_call(call, turn.edges, moments) for call in turn.calls],
    )


def _call(call: CallView, edges: Sequence[Edge], moments: _Moments) -> ShownCall:
    record = call.record
    return ShownCall(
        call=call.id,
        id=record.provider_id,
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
