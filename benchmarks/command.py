"""The command: measure, print, and fail if anything measured was not what it says.

Records go to standard output, the machine's description and complaints to standard error where
the output is JSON, so that it can be piped.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from laneway.benchmarks.grants import WAITERS, grant_costs
from laneway.benchmarks.harness import FULL, QUICK, Pace, Subject, measure
from laneway.benchmarks.machine import describe, disk_directory
from laneway.benchmarks.records import Record, complaints, records
from laneway.benchmarks.subject import laneway
from laneway.benchmarks.table import grant_table, judgement_table, machine_line, record_table
from laneway.benchmarks.targets import judged
from laneway.benchmarks.workloads import WORKLOADS, Workload


def main(
    argv: Sequence[str] | None = None,
    *,
    subject: Subject | None = None,
    workloads: Sequence[Workload] = WORKLOADS,
    pace: Pace | None = None,
) -> int:
    """Run the benchmarks.

    Args:
        argv: the arguments of the command line; those of the process by default.
        subject: what is measured; Laneway by default.
        workloads: the shapes to choose from.
        pace: how many rounds; what the arguments say by default.

    Returns:
        The exit status: 0, or 1 if a correctness check found a fault.

    Raises:
        SystemExit: the arguments make no sense (status 2), or help was asked for.
    """
    options = _parser(workloads).parse_args(argv)
    pace = pace or (QUICK if options.quick else FULL)
    if options.grants:
        costs = grant_costs(rounds=pace.least_rounds + 2, waiters=options.waiters or WAITERS)
        print(as_json(costs) if options.json else grant_table(costs))
        return 0
    chosen = [w for w in workloads if not options.only or w.name in options.only]
    place = disk_directory([options.directory] if options.directory else None)
    header = machine_line(describe(place))
    print(header, file=sys.stderr if options.json else sys.stdout)
    found, faults = run(
        chosen, subject or laneway(), place, pace, lambda name: print(name, file=sys.stderr)
    )
    if options.json:
        print(as_json(found))
    else:
        print(record_table(found), judgement_table(list(judged(found))), sep="\n\n")
    for fault in faults:
        print(f"not shown, failed its check: {fault}", file=sys.stderr)
    return 1 if faults else 0


def as_json(found: object) -> str:
    """Write records for programs, and readable."""
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode()


def run(
    workloads: Sequence[Workload],
    subject: Subject,
    place: Path,
    pace: Pace,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[list[Record], list[str]]:
    """Measure workloads one after the other, each in a fresh event loop and directory.

    Returns:
        The records, and the faults that kept others from being made.
    """
    found: list[Record] = []
    faults: list[str] = []
    for workload in workloads:
        progress(f"measuring {workload.name} n={workload.n}")
        with tempfile.TemporaryDirectory(prefix="laneway-bench-", dir=place) as directory:
            measurement = asyncio.run(measure(workload, subject, Path(directory), pace))
        found += records(measurement)
        faults += complaints(measurement)
    return found, faults


def number_of_waiters(text: str) -> int:
    """Read a length of the queues; a ValueError is told by the parser."""
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def _parser(workloads: Sequence[Workload]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="laneway.benchmarks",
        description="Measure Laneway against a bare asyncio.gather, a minimal durable scheduler "
        "and a raw write of its rows, in turns in one run.",
    )
    parser.add_argument("--json", action="store_true", help="print the records as a JSON list")
    parser.add_argument("--quick", action="store_true", help="some seconds instead of two minutes")
    parser.add_argument(
        "--only",
        action="append",
        choices=sorted({workload.name for workload in workloads}),
        help="measure this workload (may be given again)",
    )
    parser.add_argument(
        "--grants",
        action="store_true",
        help="measure instead what a grant of lanes costs, by the number of waiters",
    )
    parser.add_argument(
        "--waiters",
        action="append",
        type=number_of_waiters,
        help="with --grants: behind so many (may be given again; the shortest first)",
    )
    parser.add_argument("--directory", type=Path, help="where the durable files go for a while")
    return parser
