"""Which of the ready calls goes first: the one with the longest path still ahead of it.

Reads the flat edges of a turn's graph and what each call is expected to take; gives upward ranks,
the critical path, and the order of calls that become ready in the same instant. It feeds the
scheduler, the dry run and `turn.critical_path()`.

The upward rank of a call is its own duration and the largest rank among its successors, as in HEFT
(Topcuoglu, Hariri, Wu: Performance-Effective and Low-Complexity Task Scheduling for Heterogeneous
Computing, 2002); taking the largest first is Hu's highest-level-first rule (1961) with durations.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from laneway.calls import Reason

Edges = Sequence[Sequence[tuple[int, Reason]]]
"""By position: the calls that wait for this one, and why, as `CallGraph.successors` has them."""

NOWHERE = -1
_PAIR = 2


class Chain(NamedTuple):
    """Calls by position, each waiting for the one before it, and how long they take together."""

    calls: tuple[int, ...]
    seconds: float


def order(
    ready: Sequence[int], ranks: Sequence[float], serial: Callable[[int], Collection[str]]
) -> list[int]:
    """Sort calls that become ready in the same instant: the longest remaining path first.

    In a lane of one the order of requests can carry meaning (click after navigate), so the calls
    that claim such a lane share out their places among themselves in request order.

    Args:
        ready: positions in request order.
        ranks: by position.
        serial: names the lanes of one that a call claims; asked only if there is something to sort.

    Returns:
        The same positions; calls of one rank stay in request order.
    """
    if len(ready) < _PAIR:
        return list(ready)
    found = sorted(ready, key=ranks.__getitem__, reverse=True)
    if found == ready:
        return found
    bound = [at for at in ready if serial(at)]
    if len(bound) > 1:
        in_order, members = iter(bound), frozenset(bound)
        found = [next(in_order) if at in members else at for at in found]
    return found


def ranks(successors: Edges, seconds: Sequence[float]) -> list[float]:
    """Work out the upward rank of every call, in seconds.

    Costs O(calls + edges). Of a cycle, whose calls are faults and never run, the edge that closes
    it counts for nothing.

    Args:
        successors: by position.
        seconds: what each call is expected to take, by position; 0 or more.
    """
    return _ranked(successors, seconds)[0]


def critical_path(successors: Edges, seconds: Sequence[float]) -> Chain:
    """Find the longest chain: no number of lanes would end the turn sooner.

    Args:
        successors: as for `ranks`.
        seconds: as for `ranks`.

    Returns:
        Of several that are as long, the one that was asked for first; nothing where nothing is.
    """
    found, following = _ranked(successors, seconds)
    if not found:
        return Chain((), 0.0)
    at = max(range(len(found)), key=found.__getitem__)
    whole = found[at]
    path: list[int] = []
    while at != NOWHERE:
        path.append(at)
        at = following[at]
    return Chain(tuple(path), whole)


def _ranked(successors: Edges, seconds: Sequence[float]) -> tuple[list[float], list[int]]:
    """The ranks, and of each call the successor that its rank comes from.

    Edges mostly lead from earlier requests to later ones, so in the reverse order of requests a
    call usually finds its successors done; where one isn't, it is gone into first.
    """
    count = len(successors)
    found = [0.0] * count
    following = [NOWHERE] * count
    seen = bytearray(count)
    done = bytearray(count)
    for root in reversed(range(count)):
        if seen[root]:
            continue
        seen[root] = 1
        path: list[tuple[int, Iterator[tuple[int, Reason]]]] = [(root, iter(successors[root]))]
        while path:
            at, edges = path[-1]
            for target, _ in edges:
                if not seen[target]:
                    seen[target] = 1
                    path.append((target, iter(successors[target])))
                    break
            else:
                path.pop()
                best = 0.0
                for target, _ in successors[at]:
                    # One that isn't done is on the path itself: this edge closes a cycle.
                    if done[target] and (following[at] == NOWHERE or found[target] > best):
                        best, following[at] = found[target], target
                found[at] = seconds[at] + best
                done[at] = 1
    return found, following
