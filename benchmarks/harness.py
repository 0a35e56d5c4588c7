"""Repetitions of all contenders, interleaved in one run, so that a noisy machine hits all alike.

Reads a workload and the contenders (references, durable, subject), feeds records with the
microseconds per call of every round. A contender that raises, or whose correctness check finds
a fault, is timed no more, and what depends on it is not shown.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from laneway.benchmarks.contenders import Contender, Repeat, Sample
from laneway.benchmarks.durable import floor_d, raw_d
from laneway.benchmarks.references import bare, task_per_link
from laneway.benchmarks.workloads import Workload

MEMORY = "memory"
DURABLE = "durable"
GATHER_BESIDE = {MEMORY: "gather before memory", DURABLE: "gather before durable"}
LINK = "task per link"
FLOOR = "floor_d"
RAW = "raw_d"


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How long to measure one workload."""

    seconds: float
    """No new round is begun after this time, the round to warm up included."""
    least_rounds: int
    most_rounds: int


QUICK = Pace(seconds=2.5, least_rounds=1, most_rounds=15)
FULL = Pace(seconds=22.0, least_rounds=5, most_rounds=101)


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What is put on trial: the same engine with its journal in memory and on disk."""

    name: str
    memory: Contender
    durable: Contender


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """All rounds of one workload."""

    workload: Workload
    micros: Mapping[str, Sequence[float]]
    """Microseconds per call of each contender, one figure a round, the same rounds for all."""
    faults: Mapping[str, Sequence[str]]
    """By contender; who stands here has no figures that count."""


async def measure(workload: Workload, subject: Subject, directory: Path, pace: Pace) -> Measurement:
    """Measure one workload: a round to warm up, then rounds for as long as `pace` says.

    Every other round goes backwards through the groups, so that nobody profits from always
    coming after the same neighbour; the gather always comes right before the subject.

    Args:
        workload: the shape of the calls.
        subject: what is compared with the references.
        directory: where the files of durable contenders go; it should be on a real disk.
        pace: how many rounds.
    """
    groups = _groups(workload, subject)
    micros: dict[str, list[float]] = {name: [] for group in groups for name in group}
    faults: dict[str, Sequence[str]] = {}
    async with AsyncExitStack() as stack:
        repeats: dict[str, Repeat] = {}
        for name, contender in (item for group in groups for item in group.items()):
            place = directory / name.replace(" ", "-")
            place.mkdir()
            repeats[name] = await stack.enter_async_context(contender(workload, place))
        ends = time.monotonic() + pace.seconds
        done = -1
        while done < pace.most_rounds and (done < pace.least_rounds or time.monotonic() < ends):
            for name in _order(groups, backwards=bool(done % 2)):
                if name in faults:
                    continue
                sample = await _repeat(repeats[name])
                if sample.faults:
                    faults[name] = sample.faults
                elif done >= 0:
                    micros[name].append(sample.seconds / workload.total * 1e6)
            done += 1
    return Measurement(workload=workload, micros=micros, faults=faults)


def _groups(workload: Workload, subject: Subject) -> list[dict[str, Contender]]:
    memory: dict[str, Contender] = {GATHER_BESIDE[MEMORY]: bare, MEMORY: subject.memory}
    if workload.is_chain:
        memory = {LINK: task_per_link, **memory}
    durable: dict[str, Contender] = {GATHER_BESIDE[DURABLE]: bare, DURABLE: subject.durable}
    return [memory, durable, {FLOOR: floor_d}, {RAW: raw_d}]


def _order(groups: Sequence[Mapping[str, Contender]], *, backwards: bool) -> list[str]:
    return [name for group in (reversed(groups) if backwards else groups) for name in group]


async def _repeat(repeat: Repeat) -> Sample:
    try:
        return await repeat()
    except Exception as error:  # noqa: BLE001 - whatever it is, the others keep their figures
        return Sample(seconds=0.0, faults=(f"{type(error).__name__}: {error}",))
