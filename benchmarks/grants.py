"""What a grant of lanes costs, whatever waits: behind 10, 1,000 and 100,000 others.

A step is what the end of a call brings about in the lane table: the holder gives its claims back,
the next waiter is granted, and a newcomer joins the end of the queue, so that its length stays.
Nothing but the table is measured, without an event loop; the figures to compare are the ratios to
the shortest queue, taken in turns in one run.
"""

import gc
import statistics
import time
from collections.abc import Callable, Sequence

import msgspec

from laneway.claims import Claim, exclusive, shared
from laneway.lanes.requests import Request
from laneway.lanes.table import LaneTable

WAITERS = (10, 1_000, 100_000)
STEPS = 2_000
RUN = shared("run:r")


class GrantCost(msgspec.Struct, frozen=True, kw_only=True):
    """One queue of one length."""

    queue: str
    waiters: int
    us_per_grant: float
    """Microseconds for giving back, granting and joining; the median over the rounds."""
    ratio_to_shortest: float
    """To the same queue with the fewest waiters; the median of the ratios within a round."""


class _Queue(msgspec.Struct, frozen=True):
    name: str
    claims: Callable[[int], tuple[Claim, ...]]
    """Of the n-th that asks."""
    priority: Callable[[int], int] = lambda _: 0
    limits: dict[str, int] = {}


QUEUES = (
    _Queue("writers of one file", lambda _: (RUN, exclusive("file:/w/a.py"))),
    _Queue("a lane of one", lambda _: (RUN, exclusive("lane:mail"))),
    _Queue("a lane of eight", lambda _: (RUN, exclusive("lane:m")), limits={"lane:m": 8}),
    _Queue("a file and a lane", lambda _: (RUN, exclusive("file:/w/a.py"), exclusive("lane:mail"))),
    _Queue(
        "three priorities on one file",
        lambda _: (RUN, exclusive("file:/w/a.py")),
        priority=lambda n: n % 3,
    ),
    _Queue(
        "files behind one who wants their folder",
        lambda n: (RUN, exclusive("file:/w" if not n % 50 else f"file:/w/{n % 50}")),
    ),
)


def grant_costs(*, rounds: int, waiters: Sequence[int] = WAITERS) -> list[GrantCost]:
    """Measure all queues at all lengths, in turns.

    Args:
        rounds: repetitions behind a median.
        waiters: the lengths, the shortest first.
    """
    found: list[GrantCost] = []
    for queue in QUEUES:
        crowds = [_Crowd(queue, length) for length in waiters]
        seconds = [[crowd.seconds_per_step(STEPS) for crowd in crowds] for _ in range(rounds)]
        for at, length in enumerate(waiters):
            found.append(
                GrantCost(
                    queue=queue.name,
                    waiters=length,
                    us_per_grant=round(statistics.median(one[at] for one in seconds) * 1e6, 2),
                    ratio_to_shortest=round(
                        statistics.median(one[at] / one[0] for one in seconds), 2
                    ),
                )
            )
    return found


class _Crowd:
    """Holders and so many waiters, kept up."""

    def __init__(self, queue: _Queue, waiters: int) -> None:
        self.queue = queue
        self.table = LaneTable[int](queue.limits)
        self.asked = 0
        self.holders: list[Request[int]] = []
        waiting = 0
        while waiting < waiters:
            waiting += not self._ask()

    def _ask(self) -> bool:
        self.asked += 1
        request = self.table.request(
            self.queue.claims(self.asked),
            self.asked,
            now=self.asked * 1e-3,
            priority=self.queue.priority(self.asked),
        )
        if request.granted:
            self.holders.append(request)
        return request.granted

    def seconds_per_step(self, steps: int) -> float:
        gc.collect()
        gc.disable()
        began = time.perf_counter()
        for _ in range(steps):
            self.holders += self.table.release(self.holders.pop())
            self._ask()
        seconds = time.perf_counter() - began
        gc.enable()
        return seconds / steps
