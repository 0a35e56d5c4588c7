"""Back-pressure on hosts: a turn is taken in when its lanes have room for a waiter.

Reads how many wait in the lanes that say so (`max_waiting`, `when_full="wait"`); lets hosts through
in the order in which they came, each when all its lanes have room. A host that finds no room sleeps
until somebody leaves one of the lanes, or until it is called in; nothing polls, and whoever goes
costs a look at the next in line.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec

from laneway.claims import Claim
from laneway.engine.waking import Waking
from laneway.lanes.lane import Lane
from laneway.lanes.table import LaneTable


class Doors:
    """The hosts that wait before lanes which are full."""

    def __init__(self, lanes: Mapping[str, Lane], table: LaneTable[Any], waking: Waking) -> None:
        """Watch the lanes whose hosts wait.

        Args:
            lanes: by canonical name; those that refuse, or have no bound, are left out.
            table: says who waits.
            waking: makes futures that end with the engine.
        """
        self._table = table
        self._waking = waking
        self._bounds = {
            name: (lane.max_waiting, table.watch(name, partial(self._look, (name,))))
            for name, lane in lanes.items()
            if lane.max_waiting is not None and lane.when_full == "wait"
        }
        self._coming: Counter[str] = Counter()
        """By lane: turns that have been let through and are still being taken in."""
        self._lines: dict[str, dict[_Place, None]] = {}
        """Who waits, by lane, the first first; an absent key means nobody."""
        self._places: dict[object, _Place] = {}
        """By host: where it waits."""

    def __bool__(self) -> bool:
        """Whether any lane lets hosts wait."""
        return bool(self._bounds)

    @asynccontextmanager
    async def through(
        self, claims: Iterable[tuple[Claim, ...]], host: object = None
    ) -> AsyncGenerator[None, None]:
        """Wait until all lanes of a turn have room, and keep that room while it is taken in.

        Args:
            claims: of its calls.
            host: whose turn it is, to be called in by.
        """
        lanes = self._bounded(claims)
        if not lanes:
            yield
            return
        has_room = await self._wait(lanes, host)
        try:
            yield
        finally:
            if has_room:
                self._coming.subtract(lanes)
                self._look(lanes)

    def call_in(self, host: object) -> None:
        """Let a host that waits come in without room: it has nothing more to do in the lanes."""
        place = self._places.get(host)
        if place is not None:
            self._step_out(place)
            self._look(place.lanes)
            Waking.wake(place.sleeper)

    def _bounded(self, claims: Iterable[tuple[Claim, ...]]) -> tuple[str, ...]:
        slots = {slot for one in set(claims) for slot in self._table.slots_of(one)}
        return tuple(sorted(slots & self._bounds.keys()))

    async def _wait(self, lanes: tuple[str, ...], host: object) -> bool:
        """Wait for room, or to be called in; say which it was."""
        place = self._places[host] = _Place(self._waking.future(), lanes, host)
        for lane in lanes:
            self._lines.setdefault(lane, {})[place] = None
        try:
            self._look(lanes)
            await place.sleeper
        except BaseException:
            if place.has_room:
                self._coming.subtract(lanes)  # It was let through, and does not go.
            else:
                self._step_out(place)
            self._look(lanes)
            raise
        return place.has_room

    def _look(self, lanes: Iterable[str]) -> None:
        """Let through whoever may go: nobody overtakes a host that waits for the same lane."""
        changed = [*lanes]
        while changed:
            line = self._lines.get(changed.pop())
            first = next(iter(line)) if line else None
            if first is not None and all(self._may_enter(lane, first) for lane in first.lanes):
                self._step_out(first)
                self._coming.update(first.lanes)
                first.has_room = True
                Waking.wake(first.sleeper)
                changed += first.lanes

    def _may_enter(self, lane: str, place: "_Place") -> bool:
        most, watch = self._bounds[lane]
        first = next(iter(self._lines[lane]))
        return first is place and watch.outside + self._coming[lane] < most

    def _step_out(self, place: "_Place") -> None:
        if self._places.get(place.host) is place:
            del self._places[place.host]
        for lane in place.lanes:
            line = self._lines.get(lane, {})
            line.pop(place, None)
            if not line:
                self._lines.pop(lane, None)


class _Place(msgspec.Struct, eq=False):
    """Where one host waits: in the line of each of its lanes."""

    sleeper: asyncio.Future[None]
    lanes: tuple[str, ...]
    host: object
    has_room: bool = False
    """It was let through, and its lanes keep room for it."""
