"""The yardsticks without durability: asyncio alone, with as little as it can do."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from laneway.benchmarks.checks import entry_faults
from laneway.benchmarks.contenders import Repeat, Sample, timed
from laneway.benchmarks.workloads import Workload


@asynccontextmanager
async def bare(workload: Workload, directory: Path) -> AsyncGenerator[Repeat, None]:
    """One no-op task per call in one `asyncio.gather` per turn; dependencies are ignored."""
    del directory
    shape = workload.flat()

    async def repeat() -> Sample:
        entered: list[int] = []

        async def step(position: int) -> int:
            entered.append(position)
            return position

        async def work() -> None:
            for first in range(0, shape.total, shape.n):
                await asyncio.gather(*[step(p) for p in range(first, first + shape.n)])

        seconds = await timed(work)
        return Sample(seconds=seconds, faults=tuple(entry_faults(shape, entered)))

    yield repeat


@asynccontextmanager
async def task_per_link(workload: Workload, directory: Path) -> AsyncGenerator[Repeat, None]:
    """A chain as a plain loop writes it: a task is made for a link when the one before has ended.

    Raises:
        ValueError: the workload is not a chain.
    """
    del directory
    if not workload.is_chain:
        raise ValueError(f"{workload.name} is not a chain")

    async def repeat() -> Sample:
        entered: list[int] = []

        async def step(position: int) -> int:
            entered.append(position)
            return position

        async def work() -> None:
            for position in range(workload.total):
                await asyncio.create_task(step(position))

        seconds = await timed(work)
        return Sample(seconds=seconds, faults=tuple(entry_faults(workload, entered)))

    yield repeat
