"""A call's wish for all its claims at once, and the permit that it becomes.

Made by the lane table, held by the scheduler, read by statistics and waits.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Generic, Optional, TypeVar

import msgspec

from laneway.claims import Claim
from laneway.errors import LanewayError
from laneway.lanes.modes import Node

Owner = TypeVar("Owner")
Key = TypeVar("Key")

Order = tuple[float, ...]
"""When it came, in seconds, made earlier by its priority; its ticket; and 0. Whoever has to go just
before another has -1, its own ticket and 0 in place of the other's last 0."""

ALONE = 1 << 40
"""Kinds from here on are of one request each; below, a kind is a priority."""
PLACES = 8
"""Kinds are multiples of it, which leaves room for a mode."""


class Request(msgspec.Struct, Generic[Owner], eq=False):
    """One place in the queue of every node it needs, until it holds them all. Read it only."""

    owner: Owner
    """Whatever the asker wants to find again when the request is granted."""
    claims: tuple[Claim, ...]
    nodes: tuple[Node, ...]
    slots: tuple[str, ...]
    ticket: int
    """Order of arrival, from 1."""
    order: Order
    """The lower one goes first wherever both want the same."""
    kind: int = 0
    """Whom it shares its queues with: those of its priority, or nobody."""
    token: int = 0
    """The fencing token, 0 until it is granted: later grants of the table have higher ones."""
    pending: int = 0
    """Nodes and lanes at which somebody stands in the way."""
    granted: bool = False
    """Whether it holds its claims now."""
    parent: Optional["Request[Owner]"] = None
    """Of a nested request: the holder that it is part of."""
    family: dict[str, int] | None = None
    """Of a nested request: what its ancestors hold, as units by level."""
    children: int = 0
    """Nested requests that are not finished; it holds its claims until they are."""
    borrowed: frozenset[str] = frozenset()
    """Lanes in which it uses an ancestor's slot."""
    cycle: tuple[Owner, ...] = ()
    """Of one that was refused: who waits for whom in a ring, itself first."""
    full: str = ""
    """Of one that was sent away: the lane in which too many wait already."""
    started: bool = False
    """Whether its work has begun, so that it counts in the rates of its lanes."""
    is_barrier: bool = False
    """Whether it only keeps others out, and does no work of its own."""

    @property
    def refused(self) -> bool:
        """Whether it would have waited for itself: it holds nothing, and waits for nothing."""
        return bool(self.cycle)

    def ancestors(self) -> Iterator["Request[Owner]"]:
        """The holders that it is part of, the nearest first."""
        above = self.parent
        while above is not None:
            yield above
            above = above.parent


Queue = OrderedDict[Request[Owner], None]
"""Waiters of one kind, oldest first: the head, a newcomer and a leaver each cost a constant."""


Place = tuple[str, int]
"""A level and a mode there; or a lane and `SLOT`."""
SLOT = -1


def places(request: Request[Owner]) -> Iterator[Place]:
    """Name all that it claims."""
    for level, mode, _, _ in request.nodes:
        yield level, mode
    for slot in request.slots:
        yield slot, SLOT


def by_order(request: Request[Owner]) -> Order:
    """The key that sorts requests as they go."""
    return request.order


def remove(queues: dict[Key, Queue[Owner]], key: Key, request: Request[Owner]) -> bool:
    """Take a waiter out of its queue; returns whether the queue is gone, too, with its last one."""
    queue = queues[key]
    del queue[request]
    if queue:
        return False
    del queues[key]
    return True


def clear(request: Request[Owner], ready: list[Request[Owner]]) -> None:
    """Note that nobody stands in the way at one more place; at the last one it is ready."""
    request.pending -= 1
    if not request.pending:
        ready.append(request)


class LaneError(LanewayError):
    """A request was given back that is not there to be given back: the engine itself is wrong."""

    def __init__(self, deed: str, request: Request[Any], *, stranger: bool = False) -> None:
        """Say what was tried on which request, and how that one stands."""
        if stranger:
            stand = "belongs to another lane table"
        elif request.granted:
            stand = "holds " + (", ".join(map(str, request.claims)) or "nothing")
            if request.children:
                stand += f" for {request.children} nested requests, too"
        elif request.pending:
            stand = f"waits at {request.pending} of its nodes"
        else:
            stand = "has ended"
        super().__init__(
            f"cannot {deed} request {request.ticket} of {request.owner!r}, which {stand}; "
            "this is a bug in Laneway"
        )
