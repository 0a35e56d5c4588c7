"""When calls moved, each on the clock of its driver: a run may have had several, one after another.

Reads the rows of a run; feeds `shown` with spans that can be trusted, and with the critical path.
"""

from collections.abc import Iterable

import msgspec

from laneway.engine.critical import CriticalPath, TimedCall, estimated, measured
from laneway.engine.durations import Durations
from laneway.facts import (
    CallEnded,
    CallQueued,
    CallStarted,
    Driver,
    Row,
    RunOpened,
    RunTaken,
    TurnSubmitted,
)
from laneway.ids import CallId
from laneway.journal.fold import CallView, TurnView
from laneway.states import State


class Moment(msgspec.Struct, frozen=True):
    """One moment, on two clocks."""

    wall: float
    mono: float
    boot: str
    """Monotonic clocks agree within one boot of one host; where that is unknown, within one
    driver."""
    drive: int
    """Which of the run's drivers had it, from 1."""


class Moments:
    """What the rows of a run tell of times."""

    def __init__(self) -> None:
        """Start before the first row."""
        self.drivers = 0
        """How many processes have driven the run."""
        self._boot = ""
        self._asked: dict[CallId, Moment] = {}
        self._queued: dict[CallId, Moment] = {}
        self._started: dict[CallId, Moment] = {}
        self._ended: dict[CallId, Moment] = {}

    def note(self, row: Row) -> None:
        """Take in the next row."""
        moment = Moment(row.wall, row.mono, self._boot, self.drivers)
        match row.fact:
            case RunOpened(driver=driver) | RunTaken(driver=driver):
                self._driven(driver)
            case TurnSubmitted(calls=calls):
                self._asked.update((call.id, moment) for call in calls)
            case CallQueued(call=call):
                self._queued[call] = moment
            case CallStarted(call=call):
                self._started[call] = moment
            case CallEnded(call=call):
                self._ended[call] = moment
            case _:
                pass

    def waited(self, call: CallId) -> float | None:
        """From the model's asking to the start of the last attempt, in seconds."""
        return _between(self._asked.get(call), self._started.get(call))

    def took(self, call: CallId) -> float | None:
        """From that start to the outcome, in seconds; None where nobody saw the end.

        A later driver finds out what became of a call, and not when.
        """
        started, ended = self._started.get(call), self._ended.get(call)
        if started is not None and ended is not None and started.drive != ended.drive:
            return None
        return _between(started, ended)

    def critical_path(self, turn: TurnView, durations: Durations) -> CriticalPath:
        """Find the critical path of a turn, on the wall clock where several machines drove it."""
        if any(call.outcome is None for call in turn.calls):
            return estimated(turn, durations.expect)
        of_turn = [self._of(call) for call in turn.calls]
        boots = {moment.boot for moments in of_turn for moment in moments if moment is not None}
        wall = len(boots) > 1
        times = [[_at(moment, wall=wall) for moment in moments] for moments in of_turn]
        timed = [
            TimedCall(
                id=call.id,
                claims=call.claims or call.record.claims,
                queued=queued,
                started=started,
                ended=ended,
                skipped=call.state is State.SKIPPED,
            )
            for call, (_, queued, started, ended) in zip(turn.calls, times, strict=True)
        ]
        return measured(timed, turn.edges, times[0][0] or 0.0 if times else 0.0)

    def _of(self, call: CallView) -> Iterable[Moment | None]:
        kinds = (self._asked, self._queued, self._started, self._ended)
        return [kind.get(call.id) for kind in kinds]

    def _driven(self, driver: Driver) -> None:
        self.drivers += 1
        self._boot = f"{driver.host} {driver.boot}" if driver.boot else str(self.drivers)


def _at(moment: Moment | None, *, wall: bool) -> float | None:
    if moment is None:
        return None
    return moment.wall if wall else moment.mono


def _between(first: Moment | None, last: Moment | None) -> float | None:
    if first is None or last is None:
        return None
    if first.boot == last.boot:
        return max(last.mono - first.mono, 0.0)
    return max(last.wall - first.wall, 0.0)
