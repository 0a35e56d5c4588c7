"""From the rounds of a workload to the records that are printed: medians, ratios, spreads.

A ratio is the median over rounds of the ratios within a round, since the machine's speed may
change from one round to the next.
"""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Literal

import msgspec

from laneway.benchmarks.harness import (
    DURABLE,
    FLOOR,
    GATHER_BESIDE,
    LINK,
    MEMORY,
    RAW,
    Measurement,
)
from laneway.benchmarks.workloads import payload_form

Journal = Literal["memory", "durable"]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One result. None stands where a comparison makes no sense."""

    workload: str
    n: int
    """Calls in a turn."""
    journal: Journal
    us_per_call: float
    """Median, from the provider's payload to the provider's messages."""
    ratio_to_gather: float
    """To one no-op task per call in one asyncio.gather."""
    ratio_to_floor: float | None = None
    """To the least that a durable scheduler does (`floor_d`)."""
    ratio_to_raw: float | None = None
    """To a bare write of two rows per call (`raw_d`)."""
    ratio_to_link: float | None = None
    """Of a chain, to a task per link."""
    journal_ratio_to_raw: float | None = None
    """What is durable costs above what is in memory, to a bare write of two rows per call."""
    payload: str
    """The form in which the turn was submitted."""
    turns: int
    """Turns in a repetition."""
    rounds: int
    """Repetitions behind each median."""
    references: dict[str, float]
    """Median microseconds per call of what the ratios compare with."""
    spread: dict[str, tuple[float, float]]
    """Minimum and maximum over the rounds, of each figure by its name."""


def records(measurement: Measurement) -> list[Record]:
    """Make the records of a workload, without those that a fault took the ground from."""
    found: list[Record] = []
    journals: tuple[Journal, ...] = ("memory", "durable")
    for journal in journals:
        rests_on = _references(measurement, journal) | {journal: journal}
        if journal == DURABLE:
            rests_on["memory"] = MEMORY
        if not measurement.faults.keys() & set(rests_on.values()):
            found.append(_record(measurement, journal))
    return found


def complaints(measurement: Measurement) -> Iterator[str]:
    """Say which contender failed its check, and how."""
    workload = measurement.workload
    for name, faults in measurement.faults.items():
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        yield f"{workload.name} n={workload.n} {name}: {faults[0]}{more}"


def _record(measurement: Measurement, journal: Journal) -> Record:
    workload, micros = measurement.workload, measurement.micros
    own = micros[journal]
    references = _references(measurement, journal)
    figures = {"us_per_call": list(own)}
    for short, name in references.items():
        figures[f"ratio_to_{short}"] = _ratios(own, micros[name])
        figures[f"{short}_us_per_call"] = list(micros[name])
    if journal == DURABLE:
        above = [mine - memory for mine, memory in zip(own, micros[MEMORY], strict=True)]
        figures["journal_ratio_to_raw"] = _ratios(above, micros[RAW])
    medians = {figure: _rounded(median(values)) for figure, values in figures.items()}
    return Record(
        workload=workload.name,
        n=workload.n,
        journal=journal,
        us_per_call=medians["us_per_call"],
        ratio_to_gather=medians["ratio_to_gather"],
        ratio_to_floor=medians.get("ratio_to_floor"),
        ratio_to_raw=medians.get("ratio_to_raw"),
        ratio_to_link=medians.get("ratio_to_link"),
        journal_ratio_to_raw=medians.get("journal_ratio_to_raw"),
        payload=payload_form(workload),
        turns=workload.turns,
        rounds=len(own),
        references={short: medians[f"{short}_us_per_call"] for short in references},
        spread={
            figure: (_rounded(min(values)), _rounded(max(values)))
            for figure, values in figures.items()
        },
    )


def _references(measurement: Measurement, journal: Journal) -> dict[str, str]:
    """Name what a record compares with: short name → contender."""
    references = {"gather": GATHER_BESIDE[journal]}
    if LINK in measurement.micros:
        references["link"] = LINK
    if journal == DURABLE:
        references |= {"floor": FLOOR, "raw": RAW}
    return references


def _ratios(mine: Sequence[float], theirs: Sequence[float]) -> list[float]:
    return [ours / reference for ours, reference in zip(mine, theirs, strict=True)]


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
