"""Two processes fight for the same runs, and a referee freezes and thaws them at random.

Neither can look at the other, as if each were in a container of its own, so that only silence
tells that one has lost a run: `python -m tests.deaths.fight --seconds 60 --runs 50`. The log of
the bodies and the journal are judged afterwards, in `ruling`.
"""

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from laneway import Engine, LanewayError, Limits, Tool, ToolContext
from laneway.engine.run import Run
from laneway.errors import RunOwnedError
from laneway.journal import lease
from laneway.journal.sqlite import SqliteStore
from tests.deaths.casting import PEN
from tests.deaths.evidence import Kept, Line
from tests.deaths.lives import Double, warm_up
from tests.deaths.programs import KINDS
from tests.deaths.ruling import FAULTS, rule, stale

LEASE_SECONDS = 0.6
AT_ONCE = 6
"""Runs that one process drives at a time."""
TOOLS = ("pure", "look", "put", "write", "pay", "mail")


def tools() -> list[Tool[..., Any]]:
    """A few tools, each noting under which taking of its run it is entered."""

    def made(name: str) -> Tool[..., Any]:
        async def work(number: int, pause_ms: float, context: ToolContext) -> str:
            which = [str(context.run), str(context.call), context.attempt]
            PEN.write(["start", *which, name, TAKEN.get(str(context.run), 0)])
            await asyncio.sleep(pause_ms / 1000)
            PEN.write(["end", *which])
            return f"{name} {number}"

        kind = KINDS[name]
        claims = [f"lane:{kind.lane}/{{number}}"] if kind.lane else [f"{kind.file} file:f"]
        return Tool.of(
            work,
            name=name,
            effect=kind.effect,
            idempotent=kind.idempotent or None,
            claims=claims if kind.lane or kind.file else [],
        )

    return [made(name) for name in TOOLS]


TAKEN: dict[str, int] = {}
"""The fact with which this process took each run last."""


def fight(folder: Path, side: int, *, runs: int, until: float, seed: int) -> NoReturn:
    """Be one of the two, until the time is over."""
    code = 1
    try:
        os.setpgid(0, 0)
        # What the kernel says of the namespace is what leases go by.
        setattr(lease, "_namespace", lambda: f"pid:[{side}]")  # noqa: B010 - a private name
        PEN.open(folder / "log")
        asyncio.run(_fight(folder, runs=runs, until=until, chance=random.Random(f"{seed} {side}")))
        code = 0
    except BaseException:  # noqa: BLE001 - a child must not go on as a second referee
        PEN.write(["failed", traceback.format_exc()])
    finally:
        os._exit(code)


async def _fight(folder: Path, *, runs: int, until: float, chance: random.Random) -> None:
    while time.monotonic() < until:
        store = SqliteStore(folder / "runs.db", lease_seconds=LEASE_SECONDS)
        engine = Engine(tools(), journal=store, limits=Limits(back_off_seconds=0.01))
        async with engine:
            workers = [_drive(engine, runs, until, chance) for _ in range(AT_ONCE)]
            found = await asyncio.gather(*workers, return_exceptions=True)
        for error in found:
            if isinstance(error, LanewayError):
                PEN.write(["broke", str(error)])
            elif isinstance(error, BaseException):
                raise error


async def _drive(engine: Engine, runs: int, until: float, chance: random.Random) -> None:
    """Take one run after another, and leave each after a few turns."""
    while time.monotonic() < until:
        name = f"r{chance.randrange(runs)}"
        try:
            async with engine.run(name) as run:
                TAKEN[name] = run.view.seq
                PEN.write(["took", name, run.view.seq])
                await run.finish()
                for _ in range(chance.randint(1, 6)):
                    await run.submit(_turn(chance), key=f"turn {len(run.turns) + 1}")
        except RunOwnedError:
            PEN.write(["lost", name])
            await asyncio.sleep(0.02)


def _turn(chance: random.Random) -> dict[str, Any]:
    calls = [
        {
            "id": f"c{n}",
            "tool": chance.choice(TOOLS),
            "arguments": {"number": chance.randrange(9), "pause_ms": chance.choice((0, 1, 5, 20))},
        }
        for n in range(chance.randint(1, 4))
    ]
    return {"calls": calls}


def referee(pids: Sequence[int], *, until: float, chance: random.Random) -> int:
    """Freeze and thaw both at random; return how often one was frozen for longer than a lease."""
    frozen: dict[int, float] = {}
    long = 0
    while time.monotonic() < until:
        pid = chance.choice(pids)
        if pid in frozen:
            long += time.monotonic() - frozen.pop(pid) > LEASE_SECONDS
            os.kill(pid, signal.SIGCONT)
        elif not frozen:
            frozen[pid] = time.monotonic()
            os.kill(pid, signal.SIGSTOP)
        time.sleep(chance.uniform(0.0, 2 * LEASE_SECONDS) if frozen else chance.uniform(0.0, 0.4))
    for pid in frozen:
        os.kill(pid, signal.SIGCONT)
    return long


async def clean_up(folder: Path, runs: int) -> Kept:
    """End what the two have left open, and read everything."""
    store = SqliteStore(folder / "runs.db", lease_seconds=LEASE_SECONDS)
    await asyncio.sleep(2 * LEASE_SECONDS)
    async with Engine(tools(), journal=store) as engine:
        for number in range(runs):
            async with engine.run(f"r{number}") as run:
                await _end(run)
    await store.open()
    try:
        return {entry.run: await store.read(entry.run) for entry in await store.runs()}
    finally:
        await store.close()


async def _end(run: Run) -> None:
    TAKEN[run.id] = run.view.seq
    PEN.write(["took", str(run.id), run.view.seq])
    await run.finish()


def main() -> int:
    """Let them fight; 0 if every promise was kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.deaths.fight", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="laneway-fight-"))
    (folder / "warming").mkdir()
    warm_up(folder / "warming", Double())
    until = time.monotonic() + options.seconds
    pids: list[int] = []
    for side in (1, 2):
        pid = os.fork()
        if not pid:
            fight(folder, side, runs=options.runs, until=until, seed=options.seed)
        pids.append(pid)
    long = referee(pids, until=until, chance=random.Random(options.seed))
    for pid in pids:
        os.waitpid(pid, 0)
    return _verdict(folder, options.runs, long)


def _verdict(folder: Path, runs: int, long: int) -> int:
    PEN.open(folder / "log")
    kept = asyncio.run(clean_up(folder, runs))
    lines = map(msgspec.json.decode, (folder / "log").read_bytes().splitlines())
    log = [Line(word, pid, mono, rest) for word, pid, mono, *rest in lines]
    found = list(rule(kept, log))
    words = Counter(line.word for line in log)
    counts = Counter(what for what, _ in found)
    for what, where in found[:20]:
        print(f"{what}: {where}")
    print(
        f"{long} times one was frozen for longer than its lease of {LEASE_SECONDS} s; "
        f"runs were taken {words['took']:,} times, refused or lost {words['lost']:,} times; "
        f"{words['start']:,} bodies entered, {stale(kept, log)} of them when another had the run, "
        f"which is allowed of what was given up; {words['broke']} engines broke"
    )
    if found:
        print(f"what it left: {folder}")
    print("\n".join(f"{counts[what]:6} {what}" for what in FAULTS))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
