"""What a contender is: something that can be opened and then timed, again and again."""

import gc
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec

from laneway.benchmarks.workloads import Workload


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One repetition of a workload by one contender."""

    seconds: float
    faults: tuple[str, ...] = ()
    """What its correctness check found (see checks); empty if the work was done."""


Repeat = Callable[[], Awaitable[Sample]]
"""Do the whole workload once more, time it, and check it outside of the time."""

Contender = Callable[[Workload, Path], AbstractAsyncContextManager[Repeat]]
"""Open, untimed, for a workload; files go into the directory given."""

GC_THRESHOLDS = gc.get_threshold()
"""The interpreter's own, whatever a contender has set for itself meanwhile."""


async def timed(work: Callable[[], Awaitable[None]]) -> float:
    """Time `work` in seconds, with the garbage collector in the same state for everybody."""
    gc.set_threshold(*GC_THRESHOLDS)
    gc.collect()
    started = time.perf_counter()
    await work()
    return time.perf_counter() - started
