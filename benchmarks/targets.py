"""What the engine has to reach: a gate that must hold and a goal that is aimed at.

Reads records, feeds the table of the command. The factors come from measurements of what the
references show to be reachable with the whole pipeline on.
"""

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from laneway.benchmarks.records import Journal, Record

Figure = Literal[
    "ratio_to_gather",
    "ratio_to_link",
    "ratio_to_lanes",
    "ratio_to_floor",
    "ratio_to_raw",
    "journal_ratio_to_raw",
]


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """At most so many times a reference."""

    id: str
    workload: str
    n: int
    journal: Journal
    figure: Figure
    against: str
    gate: float
    goal: float


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """A target and what was measured for it."""

    target: Target
    measured: float

    @property
    def word(self) -> str:
        """The verdict in a word or two."""
        if self.measured <= self.target.goal:
            return "goal met"
        return "gate met" if self.measured <= self.target.gate else "missed"


def _target(
    name: str,
    workload: tuple[str, int, Journal],
    figure: Figure,
    against: str,
    bounds: tuple[float, float],
) -> Target:
    gate, goal = bounds
    shape, n, journal = workload
    return Target(
        id=name,
        workload=shape,
        n=n,
        journal=journal,
        figure=figure,
        against=against,
        gate=gate,
        goal=goal,
    )


TARGETS = (
    _target("P1", ("W2", 10_000, "memory"), "ratio_to_gather", "bare gather", (6, 2.5)),
    _target("P2", ("W2", 1_000, "memory"), "ratio_to_gather", "bare gather", (6, 2)),
    _target("P2", ("W4", 1_000, "memory"), "ratio_to_gather", "bare gather", (6, 2)),
    _target("P3", ("W3", 500, "memory"), "ratio_to_link", "a task per link", (4, 1.8)),
    _target("P4", ("W1", 1, "memory"), "ratio_to_gather", "bare gather", (15, 5)),
    _target("P5", ("W5", 1_000, "memory"), "ratio_to_lanes", "bare lanes", (1.6, 1.25)),
    _target("P6", ("W2", 10_000, "durable"), "ratio_to_floor", "floor_d", (3, 1.3)),
    _target("P7", ("W2", 1_000, "durable"), "journal_ratio_to_raw", "raw_d, less memory", (4, 2)),
    _target("P7", ("W2", 10_000, "durable"), "journal_ratio_to_raw", "raw_d, less memory", (4, 2)),
    _target("P8", ("W3", 500, "durable"), "ratio_to_raw", "raw_d", (3, 1.5)),
    _target("P9", ("W4", 1_000, "durable"), "ratio_to_floor", "floor_d", (3, 1.3)),
    _target("P10", ("W5", 1_000, "durable"), "ratio_to_lanes", "bare lanes", (2.5, 1.8)),
    _target("P11", ("W1", 1, "durable"), "ratio_to_raw", "raw_d", (2, 1.35)),
)


def judged(records: Iterable[Record]) -> Iterator[Judgement]:
    """Compare what was measured with the targets; a target without a figure is left out."""
    by_key = {(record.workload, record.n, record.journal): record for record in records}
    for target in TARGETS:
        record = by_key.get((target.workload, target.n, target.journal))
        measured = getattr(record, target.figure, None)
        if measured is not None:
            yield Judgement(target=target, measured=measured)
