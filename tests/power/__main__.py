"""`make power`: every campaign, two side by side, and the counts last.

Exits with 1 if there is a fault that must not be, or a control in which none was found.
"""

import argparse
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed

from tests.power.campaigns import Line, part, shares
from tests.power.recording import build, scratch, why_not


def main() -> int:
    """Carry out what the command line asks for."""
    asked = _arguments()
    if reason := why_not():
        print(f"Nothing can be tried here: {reason}", file=sys.stderr)
        return 2
    began = time.monotonic()
    lines: dict[str, Line] = {}
    with (
        scratch() as folder,
        ProcessPoolExecutor(asked.jobs, multiprocessing.get_context("spawn")) as pool,
    ):
        shim = build(folder)
        parts = [
            pool.submit(part, number, shim, -(-share // asked.jobs), asked.seed + 1000 * one)
            for number, share in enumerate(shares(asked.images))
            for one in range(asked.jobs)
        ]
        for done in as_completed(parts):
            line = done.result()
            name = line.campaign.name
            if name in lines:
                lines[name].add(line)
            else:
                lines[name] = line
            print(line, flush=True)
    return _report(list(lines.values()), time.monotonic() - began)


def _report(lines: list[Line], seconds: float) -> int:
    wrong = [one for line in lines for one in line.wrong]
    for one in wrong:
        print(f"\nFAULT  {one}")
    controls = [line for line in lines if line.campaign.must_find]
    print(
        f"\n{sum(line.findings.operations.total() for line in lines)} operations recorded, "
        f"{sum(line.findings.failures for line in lines)} power failures, "
        f"{sum(line.findings.images for line in lines)} images opened, "
        f"{sum(line.struck.struck.total() for line in lines if line.struck)} faults of the disk, "
        f"in {seconds:.0f} s\n"
        f"controls: {sum(line.caught for line in controls)} of {len(controls)} caught, with "
        f"{sum(line.findings.faults.total() for line in controls)} finds\n"
        f"faults: {len(wrong)}"
    )
    return 1 if wrong else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make power", description="Power failures, by a shim.")
    parser.add_argument("--images", type=int, default=3000, help="how many are opened")
    parser.add_argument("--seed", type=int, default=0, help="of what is played, and of all coins")
    parser.add_argument("--jobs", type=int, default=2, help="how many run side by side")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
