"""Facts and moments of a run as `laneway replay --json` gives them; the names of the fields stay.

Times are Unix seconds, or seconds since the run's first fact. Filled by `replay_moment`.
"""

from datetime import datetime
from typing import Any

import msgspec

from laneway.engine.cli.commands.replay_words import fact_text
from laneway.engine.cli.shown import ShownWait
from laneway.facts import Driver, Fact
from laneway.ids import CallId
from laneway.journal.bare import kind
from laneway.journal.fold import RunView
from laneway.journal.replay import Move, Step
from laneway.outcomes import Outcome
from laneway.states import State


class ShownFact(msgspec.Struct, frozen=True, kw_only=True):
    """A fact of a run."""

    seq: int
    wall: float
    elapsed_seconds: float
    kind: str
    text: str
    """What it says, in words."""
    calls: tuple[CallId, ...]
    """Which it is about."""
    moves: tuple[Move, ...]
    """The calls that it brought into another state."""
    fact: Fact


class ShownReplay(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a run that were asked for."""

    run: str
    facts: int
    """How many can be read in all."""
    damage: str
    """Why no more can be read; empty where nothing is wrong."""
    shown: tuple[ShownFact, ...]


class ShownStanding(msgspec.Struct, frozen=True, kw_only=True):
    """A call, as it stood."""

    call: CallId
    id: str
    """The provider's."""
    tool: str
    arguments: Any
    state: State
    since_seconds: float
    """When it came into this state, since the run's first fact."""
    attempt: int
    token: int
    rule: str
    claims: tuple[str, ...]
    waits_for: tuple[ShownWait, ...]
    """Calls, each with the reason of the edge or with `lane`, `same call` or `approval`."""
    stuck: bool
    outcome: Outcome | None


class ShownTurnThen(msgspec.Struct, frozen=True, kw_only=True):
    """A turn, as it stood."""

    turn: int
    closed: bool
    calls: tuple[ShownStanding, ...]


class ShownLaneThen(msgspec.Struct, frozen=True, kw_only=True):
    """A resource that calls of the run held or wanted; what others held is in their runs."""

    resource: str
    holders: tuple[CallId, ...]
    waiters: tuple[CallId, ...]


class ShownQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question to a human that was open."""

    approval: str
    call: CallId
    rule: str
    reason: str
    expires_wall: float


class ShownBudget(msgspec.Struct, frozen=True, kw_only=True):
    """A budget, as far as it was drawn on."""

    settled: float
    reserved: float


class ShownMoment(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it stood after a fact."""

    run: str
    seq: int
    facts: int
    """How many can be read in all."""
    damage: str
    """Why no more can be read; empty where nothing is wrong."""
    fact: ShownFact
    driver: Driver | None
    """None where nobody had taken it up yet: behind a fork."""
    mode: str
    turns: tuple[ShownTurnThen, ...]
    lanes: tuple[ShownLaneThen, ...]
    approvals: tuple[ShownQuestion, ...]
    budgets: dict[str, ShownBudget]
    tasks: dict[str, str]
    """`running`, `succeeded` or `failed`, by name."""


def shown_fact(step: Step, view: RunView, folder: str = "") -> ShownFact:
    """Show a fact.

    Args:
        step: the fact, and what it moved.
        view: of the run after it.
        folder: left out of the names of resources, in words.
    """
    row = step.row
    return ShownFact(
        seq=row.seq,
        wall=row.wall,
        elapsed_seconds=step.elapsed_seconds,
        kind=kind(row.fact),
        text=fact_text(view, row.fact, folder),
        calls=step.calls,
        moves=step.moves,
        fact=row.fact,
    )


def local_time(wall: float) -> str:
    """Write Unix seconds for people, in this place's time."""
    try:
        return f"{datetime.fromtimestamp(wall).astimezone():%Y-%m-%d %H:%M:%S.%f}"[:-3]
    except (ValueError, OverflowError, OSError):
        return f"{wall:.3f}"
