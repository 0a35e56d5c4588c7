"""Tracks of a trace: whatever overlaps under one name stands on as many tracks as it takes.

Reads items, each a few slices in a row; gives each the id of its track. Feeds `chrome`.
"""

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import Any

import msgspec

FREE = "no lane"
"""The track of calls that claim nothing."""
TURNS = "turns"
WAITING = " · waiting"
"""What the tracks of those are called that wait, behind the name of the resource."""


class Slice(msgspec.Struct, gc=False):
    """Something that lasted, in microseconds."""

    name: str
    began: int
    ended: int
    args: dict[str, Any]


class Item(msgspec.Struct, eq=False):
    """Slices that follow one another on one track."""

    driver: int
    track: str
    slices: list[Slice]
    tid: int = 0

    @property
    def began(self) -> int:
        """When the first begins."""
        return self.slices[0].began

    @property
    def ended(self) -> int:
        """When the last ends."""
        return self.slices[-1].ended


class Track(msgspec.Struct, gc=False):
    """A line of the trace, of one driver."""

    driver: int
    name: str
    number: int
    """From 1, of those with the same name."""
    tid: int


def tracks_of(items: Iterable[Item], drivers: int) -> Sequence[Track]:
    """Give each item a track of its name on which it overlaps none, and each track its id."""
    by_name: dict[tuple[int, str], list[Item]] = {}
    for item in items:
        by_name.setdefault((item.driver, item.track), []).append(item)
    tracks: list[Track] = []
    for (driver, name), same in sorted(by_name.items(), key=lambda one: _order(*one[0])):
        same.sort(key=lambda item: item.began)
        own: list[Track] = []
        busy: list[tuple[int, int]] = []
        free: list[int] = []
        for item in same:
            while busy and busy[0][0] <= item.began:
                heappush(free, heappop(busy)[1])
            if not free:
                heappush(free, len(own))
                own.append(Track(driver, name, len(own) + 1, drivers + 1 + len(tracks) + len(own)))
            at = heappop(free)
            item.tid = own[at].tid
            # What took no time at all still has its place to itself.
            heappush(busy, (max(item.ended, item.began + 1), at))
        tracks += own
    return tracks


def _order(driver: int, name: str) -> tuple[int, bool, bool, str]:
    return driver, name != TURNS, name.startswith(FREE), name
