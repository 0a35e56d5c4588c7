"""Laneway itself as a contender: the whole path, from the provider's payload to its messages.

Nothing is switched off. The engine is made anew for every repetition, so that no repetition pays
for what an earlier one left in memory; it has run a turn before the clock starts.
"""

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from laneway import UNLIMITED, Budgets, Effect, Engine, tool
from laneway.benchmarks.checks import INTENT, RESULT, answer_faults, entry_faults, row_faults
from laneway.benchmarks.contenders import Repeat, Sample, timed
from laneway.benchmarks.harness import Subject
from laneway.benchmarks.workloads import TOOL, Workload, payload, position_of, turn_of_one
from laneway.facts import CallEnded, CallStarted, Row, TurnSubmitted
from laneway.ids import RunId
from laneway.journal.sqlite import SqliteStore

_WARM_UP = turn_of_one(turns=1)


def laneway() -> Subject:
    """Put Laneway on trial."""
    return Subject(name="laneway", memory=in_memory, durable=on_disk)


@asynccontextmanager
async def in_memory(workload: Workload, directory: Path) -> AsyncGenerator[Repeat, None]:
    """Laneway with its journal in memory."""
    del directory
    bench = _Bench(workload, None)
    yield bench.repeat


@asynccontextmanager
async def on_disk(workload: Workload, directory: Path) -> AsyncGenerator[Repeat, None]:
    """Laneway with its journal in a file, each commit synced."""
    bench = _Bench(workload, directory / f"laneway-{workload.name}-{workload.n}.db")
    yield bench.repeat


class _Bench:
    """Runs a workload on a fresh engine, and looks afterwards at what it did."""

    def __init__(self, workload: Workload, journal: Path | None) -> None:
        self._workload = workload
        self._journal = journal
        self._repetition = 0
        self._entered: list[int] = []

        @tool(name=TOOL, effect=Effect.READ)
        async def step(position: int) -> int:
            """Do nothing.

            Args:
                position: returned as it is.
            """
            self._entered.append(position)
            return position

        self._tool = step

    async def repeat(self) -> Sample:
        # The engine imports it in a thread when it is entered; the first clock must not hear that.
        import_module("networkx")
        self._repetition += 1
        name = f"run-{self._repetition}"
        workload = self._workload
        payloads = [payload(workload, turn) for turn in range(workload.turns)]
        shown: list[Sequence[Any]] = []
        # More turns than a run may have by default: the cap is lifted, the counting stays.
        budgets = Budgets(model_turns=UNLIMITED, seconds=UNLIMITED)
        async with Engine(tools=[self._tool], journal=self._journal, budgets=budgets) as engine:
            async with engine.run(f"warm-up-{self._repetition}") as run:
                await run.submit(payload(_WARM_UP, 0))
            self._entered.clear()
            async with engine.run(name) as run:

                async def work() -> None:
                    for given in payloads:
                        turn = await run.submit(given)
                        shown.append(turn.messages)

                seconds = await timed(work)
        faults = entry_faults(workload, self._entered)
        faults += answer_faults(workload, [p for messages in shown for p in answered(messages)])
        if self._journal is not None:
            faults += row_faults(workload, await _kept(self._journal, name))
        return Sample(seconds=seconds, faults=tuple(faults))


def answered(messages: Sequence[Any]) -> Iterable[int]:
    """Yield the positions whose own value came back, in the order of the provider's messages."""
    for message in messages[1:]:
        for result in message.get("results", [message]):
            position = position_of(result.get("tool_call_id", result.get("id")))
            if str(result.get("content", result.get("value"))) == str(position):
                yield position


async def _kept(journal: Path, run: str) -> list[tuple[int, str]]:
    """Read from the file what stands in it of each call, in the order of the facts."""
    store = SqliteStore(journal)
    await store.open()
    try:
        return list(_rows(await store.read(RunId(run))))
    finally:
        await store.close()


def _rows(facts: Iterable[Row]) -> Iterable[tuple[int, str]]:
    positions: dict[str, int] = {}
    for row in facts:
        match row.fact:
            case TurnSubmitted(calls=calls):
                positions |= {call.id: position_of(call.provider_id) for call in calls}
            case CallStarted(call=call):
                yield positions[call], INTENT
            case CallEnded(call=call):
                yield positions[call], RESULT
            case _:
                pass
