"""The command line of the campaign; see `--help`.

    python -m tests.deaths --deaths 10000
    python -m tests.deaths --seed 10000123 --only

Exit code 1: faults were found (for a control: those that it must have were not); 2: bad options.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import msgspec

from tests.deaths.campaign import Campaign, State, judged, summary
from tests.deaths.controls import CONTROLS, Control
from tests.deaths.lives import Double, warm_up


def main() -> int:
    """Run a campaign, one case, or a control."""
    options = _options()
    parent = None if options.folder is None else Path(options.folder)
    if parent is not None:
        parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="laneway-deaths-", dir=parent))
    control = CONTROLS[options.control] if options.control else None
    make = control.double if control else Double
    if options.only:
        return _one(options.seed, folder, make())
    file = Path(options.resume or folder / "state.json")
    state = State(seed=options.seed)
    if file.exists():
        state = msgspec.json.decode(file.read_bytes(), type=State)
    print(f"to go on later: --resume {file}", flush=True)
    state = Campaign(
        state,
        deaths=options.deaths,
        workers=options.workers,
        folder=folder,
        state_file=file,
        double=make,
        finds=control.finds if control else (),
    ).run()
    if state.seeds and control is None:
        print(f"what the faulty cases left: {folder}")
    print(summary(state))
    return _verdict(state, control)


def _verdict(state: State, control: Control | None) -> int:
    if control is None:
        return 1 if state.faults else 0
    missed = [what for what in control.finds if not state.faults.get(what)]
    print(f"the judge missed: {', '.join(missed)}" if missed else "the judge found it")
    return 1 if missed else 0


def _one(seed: int, folder: Path, double: Double) -> int:
    (folder / "warming").mkdir()
    warm_up(folder / "warming", double)
    report = judged(seed, folder / str(seed), double)
    for fault in report.faults:
        print(f"{fault.what}: {fault.where}")
    print(f"{sum(report.deaths.values())} deaths, {len(report.faults)} faults, {folder}")
    return 1 if report.faults else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.deaths", description=__doc__)
    parser.add_argument("--deaths", type=int, default=10_000, help="how many, at least")
    parser.add_argument("--seed", type=int, default=1, help="of the campaign, or of the one case")
    parser.add_argument("--only", action="store_true", help="play this one case")
    parser.add_argument("--workers", type=int, default=2, help="cases side by side")
    parser.add_argument("--folder", help="for the journals, in place of the system's temporary one")
    parser.add_argument("--resume", metavar="FILE", help="go on from the state that is kept there")
    parser.add_argument("--control", choices=sorted(CONTROLS), help="play a double with a fault")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
