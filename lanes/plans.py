"""From a set of claims to what it takes in the lane table: nodes, lanes, groups and rates.

Reads how the lanes are configured; serves the table, which asks for every request, mostly for a
set that it has asked for before.
"""

import sys
from collections.abc import Mapping

from laneway.claims import Claim
from laneway.lanes.lane import Lane, checked_limit
from laneway.lanes.loans import rate_of
from laneway.lanes.modes import Plan, plan
from laneway.lanes.names import overlaps
from laneway.lanes.pools import Pool

_KEPT = 4096


class Plans(dict[tuple[Claim, ...], Plan]):
    """What sets of claims come to, those that were asked for of late."""

    def __init__(self, lanes: Mapping[str, Lane], limits: Mapping[str, int]) -> None:
        """Know the lanes.

        Args:
            lanes: How they are configured, by canonical resource.
            limits: Whose resources have limits; it may grow, and then all is forgotten.
        """
        super().__init__()
        self._limits = limits
        self._groups = [(name, lane.over) for name, lane in lanes.items() if lane.over]
        self._rated = {name for name, lane in lanes.items() if lane.rate is not None}

    def __missing__(self, claims: tuple[Claim, ...]) -> Plan:
        if len(self) >= _KEPT:
            self.clear()
        nodes, slots = plan(claims, self._limits)
        if self._groups or self._rated:
            slots = self._with_groups(claims, slots)
        found = self[claims] = Plan(nodes, slots)
        return found

    def _with_groups(self, claims: tuple[Claim, ...], slots: tuple[str, ...]) -> tuple[str, ...]:
        """Add the lanes that are over what is claimed, and the rates of all."""
        groups = [
            name
            for name, over in self._groups
            if any(overlaps(claim.resource, wide) for claim in claims for wide in over)
        ]
        found = tuple(dict.fromkeys((*slots, *groups)))
        return (*found, *(rate_of(slot) for slot in found if slot in self._rated))


def limits_of(lanes: Mapping[str, Lane]) -> dict[str, int]:
    """How many may be in each lane, and how many starts may be in each rate."""
    limits: dict[str, int] = {}
    for name, lane in lanes.items():
        if lane.max_concurrent is None:
            limits[name] = sys.maxsize
        else:
            limits[name] = checked_limit(name, lane.max_concurrent)
        if lane.rate is not None:
            limits[rate_of(name)] = lane.rate.starts
    return limits


def pools_of(lanes: Mapping[str, Lane]) -> dict[str, Pool]:
    """The lanes of which slots are reserved."""
    return {
        name: Pool(lane.max_concurrent, lane.reserved)
        for name, lane in lanes.items()
        if lane.reserved and lane.max_concurrent is not None
    }
