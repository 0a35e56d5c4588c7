"""Holds what the engine decides now against what is recorded, event by event."""

from collections.abc import Hashable, Iterable, Mapping

from laneway.calls import CallRecord
from laneway.engine.reexecution.standing_in import Attempt
from laneway.engine.reexecution.verdict import Divergence
from laneway.engine.reexecution.wording import (
    NOTHING,
    key_of,
    lets_go_on,
    record_told,
    stops,
    told,
)
from laneway.facts import (
    CallEnded,
    CallStarted,
    Fact,
    HolderStopped,
    Row,
    TurnSubmitted,
)
from laneway.ids import CallId


class Pool:
    """What the engine has decided in an event and nobody has looked for yet."""

    def __init__(self, records: Mapping[CallId, CallRecord]) -> None:
        """Know the calls as they are recorded."""
        self.records = records
        self.early: set[Attempt] = set()
        """Starts that the record has only later."""
        self._facts: dict[Hashable, Fact] = {}
        self._places: dict[Hashable, int] = {}
        """In the order in which they were decided."""
        self._found = 0
        """The place of the last that somebody looked for."""

    def add(self, facts: Iterable[Fact]) -> None:
        """Put decisions in, in their order."""
        for fact in facts:
            key = key_of(fact)
            if key is not None:
                self._facts[key] = fact
                self._places[key] = len(self._places) + 1

    def like(self, fact: Fact) -> Fact | None:
        """Take out the decision that is about the same."""
        key = key_of(fact)
        found = self._facts.pop(key, None)
        if found is not None:
            self._found = max(self._found, self._places[key])
        return found

    def passed_over(self) -> list[Fact]:
        """What nobody looked for though something was that was decided later."""
        return [
            one
            for key, one in self._facts.items()
            if _counts(one) and self._places[key] < self._found
        ]

    def instead(self, fact: Fact) -> Fact | None:
        """Find what else was decided of the same call."""
        call = getattr(fact, "call", None)
        found = (one for one in self._facts.values() if getattr(one, "call", None) == call)
        return next(found, None) if call is not None else None

    def started_early(self, fact: Fact) -> bool:
        """Whether this is a start that was made before; it is one no more."""
        if not isinstance(fact, CallStarted) or not self.is_early(fact):
            return False
        self.early.discard((fact.call, fact.attempt))
        return True

    def is_early(self, fact: CallStarted) -> bool:
        """Whether this start was made before."""
        return (fact.call, fact.attempt) in self.early

    def never_recorded(self, fact: Fact) -> CallStarted | None:
        """The start of a call that is recorded to have ended, and not to have started."""
        if not isinstance(fact, CallEnded):
            return None
        found = (attempt for name, attempt in self.early if name == fact.call)
        attempt = next(found, None)
        return None if attempt is None else CallStarted(call=fact.call, attempt=attempt, token=0)

    def left(self) -> tuple[list[Attempt], list[Fact]]:
        """Take out what nobody looked for: starts, which may be early, and anything else."""
        facts, self._facts = list(self._facts.values()), {}
        self._places.clear()
        self._found = 0
        starts = [(one.call, one.attempt) for one in facts if isinstance(one, CallStarted)]
        self.early.update(starts)
        return starts, [one for one in facts if _counts(one)]


def _counts(fact: Fact) -> bool:
    """Whether it must be recorded: a start may come later, a late end is no decision."""
    return not isinstance(fact, CallStarted | HolderStopped)


def differing(row: Row, now: Fact, records: Mapping[CallId, CallRecord]) -> Divergence | None:
    """Compare a recorded fact with the one that is about the same now."""
    fact = row.fact
    if isinstance(fact, TurnSubmitted) and isinstance(now, TurnSubmitted):
        return _differing_turn(row, fact, now)
    if told(fact, records) == told(now, records):
        return None
    return parted(row, records, now=now)


def _differing_turn(row: Row, fact: TurnSubmitted, now: TurnSubmitted) -> Divergence | None:
    is_now = {one.id: one for one in now.calls}
    for record in fact.calls:
        other = is_now.pop(record.id, None)
        then = record_told(record, fact.edges)
        told_now = NOTHING if other is None else record_told(other, now.edges)
        if then != told_now:
            return _divergence(row, record, then, told_now, turn=fact.turn)
    for record in is_now.values():
        told_now = record_told(record, now.edges)
        return _divergence(row, record, NOTHING, told_now, turn=fact.turn)
    return None


def parted(
    row: Row,
    records: Mapping[CallId, CallRecord],
    *,
    now: Fact | None = None,
    why: str = "",
    recorded: bool = True,
) -> Divergence:
    """Say that what is decided now is not what is recorded.

    Args:
        row: the recorded fact; where nothing stands for `now`, the last before it.
        records: the calls of the run.
        now: what is decided now, if anything.
        why: what keeps the engine from deciding what is recorded.
        recorded: whether the row itself is what differs.
    """
    fact = row.fact if recorded else None
    about = fact if fact is not None else now
    name: CallId | None = getattr(about, "call", None)
    then = NOTHING if fact is None else told(fact, records)
    is_now = why or NOTHING
    if now is not None:
        is_now = told(now, records)
    follows = ""
    if lets_go_on(fact) and stops(now):
        follows = " This would have stopped it."
    elif stops(fact) and lets_go_on(now):
        follows = " It would have gone on."
    turn = getattr(about, "turn", 0)
    record = records.get(name) if name is not None else None
    return _divergence(row, record, then, is_now, turn=turn, name=name, follows=follows)


def _divergence(
    row: Row,
    record: CallRecord | None,
    then: str,
    now: str,
    *,
    turn: int = 0,
    name: CallId | None = None,
    follows: str = "",
) -> Divergence:
    name = name if record is None else record.id
    if name is not None:
        turn = int(name[1:].partition(".")[0])
    who = f"turn {turn}" if turn else "the run"
    if record is not None:
        who = f"{name} ({record.provider_id} of {record.tool})"
    elif name is not None:
        who = name
    return Divergence(
        seq=row.seq,
        turn=turn,
        call=name,
        name="" if record is None else record.provider_id,
        tool="" if record is None else record.tool,
        recorded=then,
        now=now,
        sentence=f"fact {row.seq}, {who}: recorded is: {then}; now it is: {now}.{follows}",
    )
