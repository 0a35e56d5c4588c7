"""Recorded scientific workflows on a lane of m, held against Graham's bound.

Every scheduler that leaves no slot idle while a call is ready lies between the lower bound,
max(critical path, work / m), and work / m + (1 - 1/m) × critical path (Graham 1969).
"""

import json
import os
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from laneway import State
from laneway.engine.durations import Durations
from laneway.testing import Job, Schedule, simulate

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "workflows.jsonl"

ALL = "LANEWAY_ALL_WORKFLOWS"
"""Set to simulate the large workflows too: about a minute."""
LARGEST = 350
"""Calls of a workflow that is simulated anyway."""

TOLERANCE = 1e-6
"""Relative: sums of the same floats in another order."""

COLUMNS = ("new", "known", "fifo", "hlf")
"""The engine with a workflow that is new to it, and with one it has run before; two list
schedulers that know all durations, the latter longest tail first."""

Record = dict[str, Any]


def workflows() -> list[Record]:
    if not DATA.exists():
        pytest.skip("the recorded material ../shared/data/workflows.jsonl is not here")
    return [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]


def jobs_of(record: Record) -> list[Job]:
    return [
        Job(
            name=str(at),
            seconds=seconds,
            needs=[str(source) for source in record["parents"][at]],
            claims=["lane:m"],
            tool=f"program-{record['cat'][at]}",
        )
        for at, seconds in enumerate(record["runtime"])
    ]


def most_at_once(found: Schedule) -> int:
    """The largest number of spans of some length that overlap."""
    changes = sorted(
        (at, change)
        for span in found.spans.values()
        if span.end > span.start
        for at, change in ((span.start, 1), (span.end, -1))
    )
    running = most = 0
    for _, change in changes:
        running += change
        most = max(most, running)
    return most


@pytest.mark.long
def test_workflows_keep_to_their_order_and_end_within_grahams_bound_on_every_number_of_lanes() -> (
    None
):
    everything = workflows()
    chosen = [one for one in everything if os.environ.get(ALL) or one["n"] <= LARGEST]
    ratios: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    for record in chosen:
        jobs = jobs_of(record)
        learnt = Durations()
        for written, bounds in record["bounds"].items():
            lanes, least = int(written), bounds["lb"]
            first = simulate(jobs, lanes={"m": lanes})
            found = simulate(jobs, lanes={"m": lanes}, learnt=learnt)

            where = (record["id"], lanes)
            assert set(found.states.values()) == {State.SUCCEEDED}, where
            assert least * (1 - TOLERANCE) <= found.makespan, where
            assert found.makespan <= bounds["graham_ub"] * (1 + TOLERANCE), where
            assert most_at_once(found) <= lanes, where
            for at, sources in enumerate(record["parents"]):
                start = found.spans[str(at)].start
                assert all(found.spans[str(source)].end <= start for source in sources), where
            row = ratios[lanes]
            row["new"].append(first.makespan / least)
            # On one lane any order takes the same, and so the engine learns without an advantage.
            row["known"].append(found.makespan / least)
            row["fifo"].append(bounds["fifo"] / least)
            row["hlf"].append(bounds["hlf"] / least)

    print("\n" + table(ratios))
    left_out = len(everything) - len(chosen)
    print(f"{len(chosen)} workflows, {sum(one['n'] for one in chosen)} calls, on each m")
    if left_out:
        print(f"left out: {left_out} of more than {LARGEST} calls; set {ALL}=1 for them")
    every = pooled(ratios)
    assert fmean(every["known"]) <= 1.03 * fmean(every["hlf"])
    assert fmean(every["new"]) <= fmean(every["fifo"])
    assert len(everything) == 71
    assert len(chosen) >= 38


def table(ratios: dict[int, dict[str, list[float]]]) -> str:
    """Mean ratio to the lower bound, by number of lanes."""
    lines = [
        f"{'lanes':>7} " + " ".join(f"{name:>8}" for name in COLUMNS) + "   mean makespan / lb"
    ]
    for lanes, row in [*sorted(ratios.items()), ("all", pooled(ratios))]:
        means = " ".join(f"{fmean(row[name]):8.4f}" for name in COLUMNS)
        lines.append(f"{lanes:>7} {means}")
    return "\n".join(lines)


def pooled(ratios: dict[int, dict[str, list[float]]]) -> dict[str, list[float]]:
    return {name: [one for row in ratios.values() for one in row[name]] for name in COLUMNS}
