"""What a set of claims takes of every level it touches: multi-granularity locking.

A shared claim takes S at its resource and IS at every level above; an exclusive one X and IX; what
one call takes of a level in several ways is merged to the supremum, so that a call never meets
itself (Gray, Lorie, Putzolu, Traiger: Granularity of Locks and Degrees of Consistency in a Shared
Data Base, 1976). Two calls conflict exactly where their modes do. Reads claims and the levels of
names; feeds the lane table, whose whole knowledge of who holds a node is the node's word.

A node's word is one int, so that asking, taking and giving back are one operation each:

    bits 0–4                  bit m: somebody waits for mode m
    24 bits for each mode     how many requests are clear in it (holders, and waiters that only
                              wait elsewhere); a process has room for fewer than 2²⁴ requests
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from laneway.claims import Access, Claim
from laneway.lanes.names import is_lane, levels

IS, IX, S, SIX, X = MODES = range(5)

CONFLICTS = (
    frozenset({X}),
    frozenset({S, SIX, X}),
    frozenset({IX, SIX, X}),
    frozenset({IX, S, SIX, X}),
    frozenset(MODES),
)
"""By mode: the modes that nobody else may hold beside it."""

SUPREMUM = (
    (IS, IX, S, SIX, X),
    (IX, IX, SIX, SIX, X),
    (S, SIX, S, SIX, X),
    (SIX, SIX, SIX, SIX, X),
    (X, X, X, X, X),
)
"""By two modes: the weakest mode that allows what both allow."""

_WIDTH = 24
WAITING = (1 << len(MODES)) - 1
"""Any waiter at all."""
UNIT = tuple(1 << (len(MODES) + _WIDTH * mode) for mode in MODES)
"""By mode: one request that is clear."""
HELD_AGAINST = tuple(
    sum(UNIT[other] * ((1 << _WIDTH) - 1) for other in CONFLICTS[mode]) for mode in MODES
)
"""By mode: the fields of all that conflict with it and are clear."""
AGAINST = tuple(HELD_AGAINST[mode] | sum(1 << other for other in CONFLICTS[mode]) for mode in MODES)
"""By mode: the same, and those that wait: what a newcomer must not overtake."""

Node = tuple[str, int, int, int]
"""A level, the mode wanted there, and the mode's `UNIT` and `AGAINST`, to save two look-ups."""


class Plan(NamedTuple):
    """What claims come to: modes at levels, and one slot in each of these lanes."""

    nodes: tuple[Node, ...]
    slots: tuple[str, ...]


def plan(claims: Iterable[Claim], capped: Collection[str] = ()) -> Plan:
    """Merge claims into one mode for each level, from the root down, and one slot for each lane.

    Args:
        claims: What a call wants; resources are canonical, an access to a lane says nothing.
        capped: Resources other than lanes whose holders are limited: each takes a slot too.
    """
    modes: dict[str, int] = {}
    slots: dict[str, None] = {}
    for claim in claims:
        resource = claim.resource
        if is_lane(resource):
            slots[resource] = None
            continue
        target, above = (X, IX) if claim.access == Access.EXCLUSIVE else (S, IS)
        path = levels(resource)
        last = path[-1]
        for level in path[:-1]:
            modes[level] = SUPREMUM[above][modes[level]] if level in modes else above
        modes[last] = SUPREMUM[target][modes[last]] if last in modes else target
        if last in capped:
            slots[last] = None
    nodes = tuple([(level, mode, UNIT[mode], AGAINST[mode]) for level, mode in modes.items()])
    return Plan(nodes, tuple(slots))
