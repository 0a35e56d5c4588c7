"""How a lane is configured: how many, how often, how long a queue, over what, and for whom.

Reads what a host says when it makes an engine; feeds the lane table with lanes in canonical form,
and admission with the lanes that a call joins for its tool, its run or its risk. A mistake is a
UsageError, at once, that names the lane.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal

import msgspec

from laneway.claims import Claim, exclusive
from laneway.errors import UsageError
from laneway.lanes.names import Names, covers, is_lane, overlaps


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """At most so many starts within any stretch of so many seconds (a sliding window).

    A start uses its place from the moment the body is entered until `per_seconds` have passed,
    whatever the call does meanwhile; every attempt is a start of its own.
    """

    starts: int
    """1 or more."""
    per_seconds: float
    """More than 0."""


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """One lane of an engine: `Engine(lanes={"lane:api": Lane(max_concurrent=4, rate=…)})`.

    A plain resource (`db:shop`) takes `max_concurrent` alone, which caps its shared holders.
    """

    max_concurrent: int | None = 1
    """How many may be in it at once; None for any number, in a lane that has a rate, a bound or a
    pause of its own to offer."""
    max_waiting: int | None = None
    """How many calls may wait in it; None for any number. A nested call is not counted, and never
    refused: the call that it is part of holds claims that others wait for."""
    when_full: Literal["wait", "refuse"] = "wait"
    """What happens when so many wait already: `refuse` ends the call with LANE_FULL; `wait` lets
    `run.submit` wait, before the turn is taken in, until there is room for a waiter."""
    rate: Rate | None = None
    over: Sequence[str] = ()
    """Resources: a call that claims one of them, or anything below or above one, takes a slot of
    this lane; one slot, however many of its claims do."""
    reserved: Mapping[str, int] = {}
    """Slots kept for calls that claim these resources, or something below them: all others use at
    most the rest, which is open to everybody."""
    tools: Sequence[str] = ()
    """Globs of tool names whose calls join. Of `tools`, `runs` and `risks`, all that are given must
    fit."""
    runs: Sequence[str] = ()
    """Globs of names of runs whose calls join."""
    risks: Sequence[str] = ()
    """Globs of risks (`@tool(risk="high")`) of tools whose calls join."""

    @property
    def joined(self) -> bool:
        """Whether calls join it that do not claim it themselves."""
        return bool(self.tools or self.runs or self.risks)

    def takes(self, tool: str, run: str, risk: str) -> bool:
        """Whether a call joins it for its tool, its run and its risk."""
        asked = ((self.tools, tool), (self.runs, run), (self.risks, risk))
        return self.joined and all(
            any(fnmatchcase(name, glob) for glob in globs) for globs, name in asked if globs
        )


def lanes_of(configured: Mapping[str, int | Lane], names: Names) -> dict[str, Lane]:
    """Check a host's lanes, and give them by canonical name.

    Args:
        configured: By `mail`, `lane:mail` or the name of another resource; an int stands for
            `max_concurrent`.
        names: Make names canonical.

    Raises:
        UsageError: One makes no sense; says which, and what would.
        BadResourceError: A name that no resource can have.
    """
    found: dict[str, Lane] = {}
    spelt: dict[str, str] = {}
    for name, given in configured.items():
        resource = names.canonical(name if ":" in name else f"lane:{name}")
        if resource in found:
            raise UsageError(f"lanes= names {resource} twice, as {spelt[resource]!r} and {name!r}")
        spelt[resource] = name
        lane = given if isinstance(given, Lane) else Lane(max_concurrent=given)
        found[resource] = _checked(resource, lane, names)
    return found


class Joined:
    """The lanes that calls join without claiming them, each looked up once."""

    def __init__(self, lanes: Mapping[str, Lane]) -> None:
        """Pick out the lanes that say whom they are for."""
        self._lanes = {resource: lane for resource, lane in lanes.items() if lane.joined}
        self._known: dict[tuple[str, str], tuple[Claim, ...]] = {}

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self._lanes)

    def claims(self, tool: str, run: str, risk: str) -> tuple[Claim, ...]:
        """Name the lanes that a call joins.

        Args:
            tool: Its name.
            run: The name of the call's run.
            risk: The tool's own.
        """
        found = self._known.get((tool, run))
        if found is None:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            found = self._known[tool, run] = tuple(
                exclusive(resource)
                for resource, lane in self._lanes.items()
                if lane.takes(tool, run, risk)
            )
        return found


_KNOWN = 4096


def checked_limit(resource: str, limit: object) -> int:
    """See that a `max_concurrent` is a number of slots.

    Raises:
        UsageError: It is not.
    """
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise UsageError(f"max_concurrent of {resource} is {limit!r}; give a whole number")
    if limit < 1:
        raise UsageError(f"max_concurrent of {resource} is {limit}; a lane lets at least 1 in")
    return limit


def _checked(resource: str, lane: Lane, names: Names) -> Lane:
    if lane.max_concurrent is not None:
        checked_limit(resource, lane.max_concurrent)
    if not is_lane(resource):
        _see_that_plain(resource, lane)
        return lane
    _check_bound(resource, lane)
    _check_rate(resource, lane.rate)
    for word in ("over", "tools", "runs", "risks"):
        _check_texts(resource, word, getattr(lane, word))
    over = tuple(dict.fromkeys(names.canonical(one) for one in lane.over))
    if resource in over:
        raise UsageError(f"over= of {resource} names the lane itself; name what it is over")
    reserved = _checked_shares(resource, lane, over, names)
    return msgspec.structs.replace(lane, over=over, reserved=reserved)


def _see_that_plain(resource: str, lane: Lane) -> None:
    """A resource has readers and writers; all else is of lanes."""
    if lane != Lane(max_concurrent=lane.max_concurrent):
        raise UsageError(
            f"{resource} is no lane, so it takes max_concurrent alone; for all else configure a "
            f"lane over it: 'lane:{resource.replace(':', '/')}' with over=[{resource!r}]"
        )
    if lane.max_concurrent is None:
        raise UsageError(
            f"max_concurrent of {resource} is None, which is how it is without; leave it out"
        )


def _check_bound(resource: str, lane: Lane) -> None:
    if lane.when_full not in ("wait", "refuse"):
        raise UsageError(f"when_full of {resource} is {lane.when_full!r}; give 'wait' or 'refuse'")
    waiting: Any = lane.max_waiting
    if waiting is None:
        if lane.when_full == "refuse":
            raise UsageError(
                f"when_full='refuse' of {resource} says nothing without a max_waiting; give one"
            )
        return
    if not isinstance(waiting, int) or isinstance(waiting, bool) or waiting < 0:
        raise UsageError(f"max_waiting of {resource} is {waiting!r}; give a whole number or None")
    if waiting == 0 and lane.when_full == "wait":
        raise UsageError(
            f"max_waiting of {resource} is 0, so nobody could ever wait for room; give 1 or more, "
            "or when_full='refuse'"
        )


def _check_rate(resource: str, rate: Any) -> None:
    if rate is None:
        return
    if not isinstance(rate, Rate):
        raise UsageError(f"rate of {resource} is {rate!r}; give Rate(starts=…, per_seconds=…)")
    starts: Any = rate.starts
    if not isinstance(starts, int) or isinstance(starts, bool) or starts < 1:
        raise UsageError(f"starts in the rate of {resource} is {starts!r}; give 1 or more")
    seconds: Any = rate.per_seconds
    if not isinstance(seconds, (int, float)) or not 0 < seconds < math.inf:
        raise UsageError(
            f"per_seconds in the rate of {resource} is {seconds!r}; give seconds, more than 0"
        )


def _check_texts(resource: str, word: str, given: Any) -> None:
    if isinstance(given, str):
        raise UsageError(f"{word}={given!r} of {resource} is a text; give a list of texts")
    if not all(isinstance(one, str) and one for one in given):
        raise UsageError(f"{word}={given!r} of {resource}: give texts that are not empty")


def _checked_shares(resource: str, lane: Lane, over: Sequence[str], names: Names) -> dict[str, int]:
    reserved: dict[str, int] = {}
    for name, slots in lane.reserved.items():
        if type(slots) is not int or slots < 1:
            raise UsageError(f"reserved={{{name!r}: {slots!r}}} of {resource}: give 1 or more")
        share = names.canonical(name)
        if not any(covers(wide, share) for wide in over):
            listed = ", ".join(over) or "nothing"
            raise UsageError(
                f"reserved= of {resource} names {share}, which is not within what the lane is "
                f"over ({listed})"
            )
        _see_that_apart(resource, share, reserved)
        reserved[share] = slots
    if reserved:
        _see_that_rest(resource, lane.max_concurrent, sum(reserved.values()))
    return reserved


def _see_that_apart(resource: str, share: str, others: Iterable[str]) -> None:
    for other in others:
        if overlaps(share, other):
            raise UsageError(
                f"reserved= of {resource} names {other} and {share}, which overlap; a call could "
                "count for either"
            )


def _see_that_rest(resource: str, limit: int | None, kept: int) -> None:
    """See that what is reserved leaves something to those for whom nothing is."""
    if limit is None:
        raise UsageError(
            f"reserved= of {resource} needs a max_concurrent, of which it keeps a part"
        )
    if kept >= limit:
        raise UsageError(
            f"reserved= of {resource} keeps {kept} of max_concurrent={limit}, which leaves no slot "
            f"to all others; give it {kept + 1} or more"
        )
