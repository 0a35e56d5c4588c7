"""A call's wish for all its claims at once, and the permit that it becomes.

Made by the lane table, held by the scheduler, read by statistics and waits.
"""

from collections import OrderedDict
from typing import Generic, TypeVar

import msgspec

from laneway.claims import Claim
from laneway.lanes.modes import Node

Owner = TypeVar("Owner")
Key = TypeVar("Key")


class Request(msgspec.Struct, Generic[Owner], eq=False):
    """One place in the queue of every node it needs, until it holds them all. Read it only."""

    owner: Owner
    """Whatever the asker wants to find again when the request is granted."""
    claims: tuple[Claim, ...]
    nodes: tuple[Node, ...]
    slots: tuple[str, ...]
    ticket: int
    """Global order of arrival: the lower one goes first wherever both want the same."""
    token: int = 0
    """The fencing token, 0 until it is granted: later grants of the table have higher ones."""
    pending: int = 0
    """Nodes at which somebody older stands in the way."""
    granted: bool = False
    """Whether it holds its claims now."""


Queue = OrderedDict[Request[Owner], None]
"""Waiters of one kind, oldest first: the head, a newcomer and a leaver each cost a constant."""


def remove(queues: dict[Key, Queue[Owner]], key: Key, request: Request[Owner]) -> bool:
    """Take a waiter out of its queue; returns whether the queue is gone, too, with its last one."""
    queue = queues[key]
    del queue[request]
    if queue:
        return False
    del queues[key]
    return True


def clear(request: Request[Owner], ready: list[Request[Owner]]) -> None:
    """Note that nobody stands in the way at one more node; at the last one it is ready."""
    request.pending -= 1
    if not request.pending:
        ready.append(request)
