"""A run, fact by fact, forward and back: what each fact moved, and how all stood after it.

Reads the rows of a run and nothing else, so it works on what a damaged run has left, too; feeds
the command line, and the comparison of two runs. To step back is to fold again: from the nearest
copy of the state, since a run of 100,000 facts takes a fifth of a second from its beginning.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace

import msgspec

from laneway.errors import DamagedJournalError, IllegalTransitionError, UsageError
from laneway.facts import (
    Driver,
    Fact,
    LossAccepted,
    Row,
    RunForked,
    RunOpened,
    RunTaken,
    TurnStreamed,
    TurnSubmitted,
)
from laneway.ids import CallId, RunId
from laneway.journal.fold import BudgetView, RunView
from laneway.states import State

NEAR = 1_000
"""Facts folded again, at most, to step back once where one has stepped back before: 2 ms."""
FAR = 8
"""Copies of the state that are kept all along a run: each holds all its calls, 250 bytes apiece."""


class Move(msgspec.Struct, frozen=True):
    """A call that came into another state."""

    call: CallId
    before: State | None
    """None for a call that was asked for by this very fact."""
    after: State


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A fact and what it did."""

    row: Row
    elapsed_seconds: float
    """Since the run's first fact; see `Times`."""
    calls: tuple[CallId, ...]
    """The calls that it is about."""
    moves: tuple[Move, ...]


class Replay:
    """Stands anywhere in a run."""

    def __init__(
        self, run: str, rows: Sequence[Row], damage: DamagedJournalError | None = None
    ) -> None:
        """Fold all facts once.

        Args:
            run: its name.
            rows: its facts from the first on, as far as they could be read.
            damage: why no more of them could be read.
        """
        self.run = RunId(run)
        self.rows = rows
        self.damage = damage
        """Why the facts end where they do, if they should not."""
        self._far = max(NEAR, len(rows) // FAR)
        self._copies = {0: RunView(self.run)}
        self._near = 0
        self._view = RunView(self.run)
        self._fold_all()
        times = Times()
        self.elapsed: Sequence[float] = [times.note(row) for row in self.rows]
        """Of each fact, the seconds since the first one; never less than of the one before."""

    def at(self, seq: int) -> RunView:
        """How the run stood after a fact, or before its beginning: at 0.

        Returns:
            A view to look at, which changes with the next call of `at`; `copied` makes it last.

        Raises:
            UsageError: there is no such fact.
        """
        if not 0 <= seq <= len(self.rows):
            raise self._refusal(seq, first=0)
        if self._view.seq > seq:
            self._go_back(seq)
        for row in self.rows[self._view.seq : seq]:
            self._view.apply(row)
        return self._view

    def step(self, seq: int) -> Step:
        """A fact, from 1, and what it moved; `at` gives the run after it at no further cost.

        Raises:
            UsageError: there is no such fact.
        """
        if not 1 <= seq <= len(self.rows):
            raise self._refusal(seq, first=1)
        return stepped(self.at(seq - 1), self.rows[seq - 1], self.elapsed[seq - 1])

    def steps(self) -> Iterator[tuple[Step, RunView]]:
        """Go through all facts, each with the run as it stood after it; see `at`."""
        view = RunView(self.run)
        for row, elapsed in zip(self.rows, self.elapsed, strict=True):
            yield stepped(view, row, elapsed), view

    def seq_at(self, wall: float) -> int:
        """The last fact that was written by a time of day, 0 for none; the clock may have jumped.

        Args:
            wall: Unix seconds.
        """
        return max((row.seq for row in self.rows if row.wall <= wall), default=0)

    def seq_after(self, seconds: float) -> int:
        """The last fact that was written so long after the first one, 0 for none."""
        return bisect_right(self.elapsed, seconds)

    def _refusal(self, seq: int, *, first: int) -> UsageError:
        where = ", behind which it is damaged" if self.damage else ""
        return UsageError(
            f"run {self.run!r} has no fact {seq}: give a number from {first} to {len(self.rows)}"
            f"{where}"
        )

    def _fold_all(self) -> None:
        view = self._view
        for at, row in enumerate(self.rows):
            try:
                view.apply(row)
            except (LookupError, DamagedJournalError, IllegalTransitionError) as error:
                # What it had done before it failed is undone.
                self.rows = self.rows[:at]
                self.damage = _damage(self.run, row, error)
                self._go_back(at)
                return

    def _go_back(self, seq: int) -> None:
        """Fold from the nearest copy, and leave copies where they serve the next steps back."""
        start = max(at for at in self._copies if at <= seq)
        view = copied(self._copies[start])
        near = seq - NEAR
        for row in self.rows[start:seq]:
            if view.seq == near and near not in self._copies:
                if self._near % self._far:
                    del self._copies[self._near]
                self._near = near
                self._copies[near] = copied(view)
            elif not view.seq % self._far and view.seq not in self._copies:
                self._copies[view.seq] = copied(view)
            view.apply(row)
        self._view = view


class Times:
    """Measures a run: by the monotonic clock of its drivers, between two of them by the wall's."""

    def __init__(self) -> None:
        """Start before the first fact."""
        self.elapsed = 0.0
        """Seconds from the first fact to the last one that was noted."""
        self.idle = 0.0
        """How many of these passed while nobody drove the run."""
        self.drivers = 0
        """How many processes have driven it, one after the other."""
        self.clock: str = ""
        """Which monotonic clock the last fact was read off; empty where no driver wrote it."""
        self._base = 0.0
        self._mono = 0.0
        self._wall = 0.0

    def note(self, row: Row) -> float:
        """Take in the next fact, and say when it was."""
        clock = self._clock_of(row.fact)
        if clock is None:
            self.elapsed = max(self.elapsed, self._base + row.mono - self._mono)
        else:
            if clock and clock == self.clock:  # Another driver within one boot.
                passed = self._base + row.mono - self._mono - self.elapsed
            else:
                passed = row.wall - self._wall
            if row.seq > 1:
                self.elapsed += max(passed, 0.0)
                self.idle += max(passed, 0.0)
            self.clock, self._base, self._mono = clock, self.elapsed, row.mono
        self._wall = row.wall
        return self.elapsed

    def _clock_of(self, fact: Fact) -> str | None:
        """Name the clock that begins with a fact, empty for one that ends with it, too."""
        if isinstance(fact, (RunOpened, RunTaken)):
            self.drivers += 1
            return _clock(fact.driver, self.drivers)
        return "" if isinstance(fact, (RunForked, LossAccepted)) else None


def stepped(view: RunView, row: Row, elapsed_seconds: float) -> Step:
    """Let a view take in the next fact, and say what moved."""
    calls = calls_of(row.fact)
    before = {call: view.calls[call].state for call in calls if call in view.calls}
    view.apply(row)
    moves = [
        Move(call, before.get(call), view.calls[call].state)
        for call in calls
        if call in view.calls and before.get(call) is not view.calls[call].state
    ]
    return Step(row=row, elapsed_seconds=elapsed_seconds, calls=calls, moves=tuple(moves))


def calls_of(fact: Fact) -> tuple[CallId, ...]:
    """The calls that a fact is about."""
    if isinstance(fact, (TurnSubmitted, TurnStreamed)):
        return tuple(call.id for call in fact.calls)
    call: CallId | None = getattr(fact, "call", None)
    return () if call is None else (call,)


def copied(view: RunView) -> RunView:
    """Copy a view, so that folding on from the one leaves the other as it is."""
    approvals = {name: replace(one) for name, one in view.approvals.items()}
    calls = {name: copy(call) for name, call in view.calls.items()}
    for call in calls.values():
        if call.approval is not None:
            call.approval = approvals[call.approval.id]
    turns = [replace(turn, calls=[calls[call.id] for call in turn.calls]) for turn in view.turns]
    budgets = {
        name: BudgetView(one.settled, dict(one.reserved), dict(one.least))
        for name, one in view.budgets.items()
    }
    made = {id(one): budgets[name] for name, one in view.budgets.items()}
    # One that is still being written, or was abandoned, is not in the conversation.
    new_turns = (turn for turn in turns if not (turn.provisional or turn.abandoned))
    return replace(
        view,
        turns=turns,
        calls=calls,
        approvals=approvals,
        grants={name: replace(one) for name, one in view.grants.items()},
        levels=dict(view.levels),
        lane_changes=list(view.lane_changes),
        notes=list(view.notes),
        budgets=budgets,
        neared=dict(view.neared),
        paid_replies=set(view.paid_replies),
        tasks={name: replace(one) for name, one in view.tasks.items()},
        _reserved={name: made[id(one)] for name, one in _reserved(view).items()},
        # Turns stand in both lists, in one order.
        conversation=[
            one if isinstance(one, msgspec.Struct) else next(new_turns) for one in view.conversation
        ],
    )


def _reserved(view: RunView) -> dict[str, BudgetView]:
    return view._reserved  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - a copy has it all


def _clock(driver: Driver, number: int) -> str:
    """Monotonic clocks agree within one boot of one host; else each driver has its own."""
    return f"{driver.host} {driver.boot}" if driver.boot else str(number)


def _damage(run: RunId, row: Row, error: Exception) -> DamagedJournalError:
    if isinstance(error, DamagedJournalError):
        return error
    if isinstance(error, IllegalTransitionError):
        return DamagedJournalError(run, row.seq, f"it cannot follow what is before it: {error}")
    return DamagedJournalError(run, row.seq, f"it tells of {error}, of which no earlier fact tells")
