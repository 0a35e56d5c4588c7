"""Two cases side by side, until so many deaths have been died; and what was found, counted.

Each worker is a process that has warmed up and then only forks, waits and judges. What has been
done stands in a state file, so that a campaign goes on where it was broken off.
"""

import os
import select
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import msgspec

from tests.deaths.evidence import gather
from tests.deaths.judge import FAULTS, Fault, Judge
from tests.deaths.lives import Double, play_case, warm_up
from tests.deaths.programs import case_of

SHARD = 10_000_000
"""Cases of one seed of a campaign; the seed of a case is unique over all of them."""
PROGRESS_SECONDS = 10.0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says of a case."""

    seed: int
    lives: int
    deaths: dict[str, int]
    """By kind."""
    bodies: int
    faults: list[Fault]


class State(msgspec.Struct, kw_only=True):
    """How far a campaign is."""

    seed: int
    deaths: int = 0
    lives: int = 0
    cases: int = 0
    bodies: int = 0
    seconds: float = 0.0
    done: dict[int, int] = msgspec.field(default_factory=dict[int, int])
    """The last case of each worker."""
    kinds: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    faults: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    seeds: list[int] = msgspec.field(default_factory=list[int])
    """Of the cases in which faults were found."""

    def take_in(self, worker: int, report: Report) -> None:
        """Count what a worker has done."""
        self.done[worker] = report.seed
        self.cases += 1
        self.lives += report.lives
        self.bodies += report.bodies
        self.deaths += sum(report.deaths.values())
        _add(self.kinds, report.deaths)
        _add(self.faults, Counter(fault.what for fault in report.faults))
        if report.faults:
            self.seeds.append(report.seed)


def _add(total: dict[str, int], more: dict[str, int]) -> None:
    for name, count in more.items():
        total[name] = total.get(name, 0) + count


def judged(seed: int, folder: Path, double: Double) -> Report:
    """Play a case, and judge it; its folder stays where a fault was found."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    case = case_of(seed)
    lives = play_case(case, folder, double)
    judge = Judge(case, gather(folder, lives))
    faults = judge.faults()
    if faults:
        told = [f"{fault.what}: {fault.where}" for fault in faults]
        (folder / "faults.txt").write_text("\n".join(told), encoding="utf-8")
    else:
        shutil.rmtree(folder)
    died: Counter[str] = Counter(
        death.kind for death, life in zip(case.deaths, lives, strict=False) if life.died
    )
    return Report(
        seed=seed, lives=len(lives), deaths=dict(died), bodies=len(judge.entries), faults=faults
    )


class Campaign:
    """Runs until enough deaths have been died, or all is found that was looked for."""

    def __init__(
        self,
        state: State,
        *,
        deaths: int,
        workers: int,
        folder: Path,
        state_file: Path,
        double: Callable[[], Double] = Double,
        finds: Sequence[str] = (),
    ) -> None:
        """Prepare; nothing runs before `run`.

        Args:
            state: where an earlier campaign was broken off, or a new one.
            deaths: how many are enough, those of the state included.
            workers: how many cases side by side.
            folder: for the journals.
            state_file: where to keep the state.
            double: what is played.
            finds: faults of which one each is enough, too.
        """
        self.state = state
        self._deaths = deaths
        self._workers = workers
        self._folder = folder
        self._file = state_file
        self._double = double
        self._finds = finds
        self._began = time.monotonic() - state.seconds

    def run(self) -> State:
        """Run it."""
        double = self._double()
        warming = self._folder / f"warming-{os.getpid()}"
        warming.mkdir(parents=True)
        warm_up(warming, double)
        shutil.rmtree(warming)
        pipes: dict[int, int] = {}
        pids: list[int] = []
        try:
            for worker in range(self._workers):
                reading, writing = os.pipe()
                pid = os.fork()
                if not pid:
                    for other in (reading, *pipes):
                        os.close(other)
                    self._work(worker, writing, double)
                os.close(writing)
                pipes[reading] = worker
                pids.append(pid)
            self._listen(pipes)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGTERM)
            for pid in pids:
                os.waitpid(pid, 0)
        self._note()
        return self.state

    def _work(self, worker: int, out: int, double: Double) -> NoReturn:
        """Play every n-th case, and tell what came of it, until ended from outside."""
        try:
            first = self.state.seed * SHARD + worker
            seed = self.state.done.get(worker, first - self._workers) + self._workers
            while True:
                report = judged(seed, self._folder / str(seed), double)
                told = msgspec.json.encode(report) + b"\n"
                while told:
                    told = told[os.write(out, told) :]
                seed += self._workers
        finally:
            os._exit(1)

    def _listen(self, pipes: dict[int, int]) -> None:
        told: dict[int, bytes] = dict.fromkeys(pipes, b"")
        due = time.monotonic() + PROGRESS_SECONDS
        while not self._is_over:
            ready, _, _ = select.select(list(pipes), [], [], max(due - time.monotonic(), 0))
            for pipe in ready:
                some = os.read(pipe, 1 << 16)
                if not some:
                    raise RuntimeError(f"worker {pipes[pipe]} ended")
                *lines, told[pipe] = (told[pipe] + some).split(b"\n")
                for line in lines:
                    self._take_in(pipes[pipe], msgspec.json.decode(line, type=Report))
            if time.monotonic() >= due:
                due = time.monotonic() + PROGRESS_SECONDS
                self._note()
                print(self._line(), flush=True)

    @property
    def _is_over(self) -> bool:
        found = bool(self._finds) and all(map(self.state.faults.get, self._finds))
        return found or self.state.deaths >= self._deaths

    def _take_in(self, worker: int, report: Report) -> None:
        self.state.take_in(worker, report)
        for fault in report.faults:
            print(f"seed {report.seed}: {fault.what}: {fault.where:.600}", flush=True)

    def _note(self) -> None:
        self.state.seconds = time.monotonic() - self._began
        draft = self._file.with_suffix(".draft")
        draft.write_bytes(msgspec.json.encode(self.state))
        draft.replace(self._file)

    def _line(self) -> str:
        state = self.state
        return (
            f"{state.deaths:,} of {self._deaths:,} deaths in {state.seconds:.0f} s "
            f"({state.deaths / max(state.seconds, 0.001):.1f} a second), {state.cases:,} cases, "
            f"{sum(state.faults.values())} faults"
        )


def summary(state: State) -> str:
    """All counts, the faults last."""
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(state.kinds.items()))
    done = (
        f"{state.deaths:,} deaths in {state.lives:,} lives of {state.cases:,} programs, "
        f"{state.bodies:,} bodies entered, {state.seconds:.0f} s, "
        f"{state.deaths / max(state.seconds, 0.001):.1f} deaths a second"
    )
    lines = [done, f"how they died: {kinds}"]
    if state.seeds:
        lines.append(f"seeds with faults: {', '.join(map(str, state.seeds))}")
    lines += [f"{state.faults.get(what, 0):6} {what}" for what in FAULTS]
    return "\n".join(lines)
