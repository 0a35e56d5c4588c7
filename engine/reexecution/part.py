"""A stretch of a recording in the time of one driver, and how all stood when it began."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property

import msgspec

from laneway.calls import CallRecord
from laneway.engine.reexecution.events import Event
from laneway.engine.reexecution.recording import Recording
from laneway.engine.reexecution.standing_in import Attempt
from laneway.engine.secrets.marks import holds_mark
from laneway.facts import (
    ApprovalAsked,
    CallStarted,
    ModeChanged,
    Row,
    RunOpened,
    RunTaken,
    Setting,
    TurnSubmitted,
)
from laneway.ids import ApprovalId, CallId, RunId


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """What earlier passes have found out of the world around the run."""

    held: frozenset[Attempt] = frozenset()
    """Attempts that waited for something outside."""
    by_record: bool = False
    """Ranks, by durations that nobody knows any more, go by the recorded order of starts."""
    aside: bool = False
    """Those of them that wanted a wide lane had no place in it meanwhile."""
    priorities: dict[str, int] = {}
    """Of tools of which nobody else says anything: as low as they explain who went first."""
    apart: bool = False
    """The run is part of another one's call, so that none of its calls is left to another."""


class Part:
    """Some events of a recording, one after the other."""

    def __init__(
        self, recording: Recording, begin: int, end: int, digests: Mapping[ApprovalId, str]
    ) -> None:
        """Cut it out.

        Args:
            recording: of a run.
            begin: its first event.
            end: the event behind its last one.
            digests: what questions of earlier parts would bind now.
        """
        self.recording = recording
        self.events: Sequence[Event] = recording.events[begin:end]
        """What happens in it."""
        first = self.events[0].given[0].seq
        last = recording.events[end].given[0].seq if end < len(recording.events) else None
        self.earlier = recording.rows[: first - 1]
        """The facts before it."""
        self.own = recording.rows[first - 1 : None if last is None else last - 1]
        """Its facts."""
        self._digests = digests

    @property
    def run(self) -> RunId:
        """The name of the run."""
        return self.recording.rows[0].run

    def primed(self, stale: Collection[ApprovalId]) -> Iterator[Row]:
        """The facts before it, with what their questions would bind if asked now.

        Args:
            stale: questions about what was no more when they were answered.
        """
        for row in self.earlier:
            if isinstance(row.fact, ApprovalAsked):
                name = row.fact.approval
                binds = "" if name in stale else self._digests.get(name, row.fact.digest)
                yield msgspec.structs.replace(
                    row, fact=msgspec.structs.replace(row.fact, digest=binds)
                )
            else:
                yield row

    @cached_property
    def records(self) -> dict[CallId, CallRecord]:
        """All calls so far."""
        return {
            record.id: record
            for row in (*self.earlier, *self.own)
            if isinstance(row.fact, TurnSubmitted)
            for record in row.fact.calls
        }

    @property
    def _openings(self) -> list[RunOpened | RunTaken]:
        rows = (*self.earlier, self.own[0])
        return [row.fact for row in rows if isinstance(row.fact, RunOpened | RunTaken)]

    @property
    def mode(self) -> str:
        """The agent mode in which it begins."""
        facts = (row.fact for row in (*self.earlier, self.own[0]))
        kinds = (RunOpened, RunTaken, ModeChanged)
        return [fact.mode for fact in facts if isinstance(fact, kinds)][-1]

    @property
    def setting(self) -> Setting:
        """What the driver brought along, as far as it is recorded."""
        found = [one.setting for one in self._openings if one.setting is not None]
        return found[-1] if found else Setting()

    @property
    def told_nothing(self) -> bool:
        """Whether no driver told what it brought along: so it is of a run within a call."""
        return all(one.setting is None for one in self._openings)

    @property
    def holds_secrets(self) -> bool:
        """Whether calls held some, which are never taken for the same."""
        return any(holds_mark(record.arguments) for record in self.records.values())

    @property
    def overtakes(self) -> bool:
        """Whether calls passed one that waited for a human and merely conflicted with them."""
        return any(row.seq in self.recording.passing for row in self.own)

    def expected(self, fact: TurnSubmitted) -> list[float]:
        """Durations of a turn's calls by which its longest paths would begin in recorded order."""
        started: dict[CallId, int] = {}
        for row in self.own:
            if isinstance(row.fact, CallStarted):
                started.setdefault(row.fact.call, row.seq)
        order = sorted(
            (call.id for call in fact.calls if call.id in started), key=started.__getitem__
        )
        ranks = {name: float(len(order) - at) for at, name in enumerate(order)}
        behind: dict[CallId, float] = {}
        for edge in fact.edges:
            rank = ranks.get(edge.target, 0.0)
            behind[edge.source] = max(behind.get(edge.source, 0.0), rank)
        return [max(ranks.get(call.id, 0.0) - behind.get(call.id, 0.0), 0.0) for call in fact.calls]
