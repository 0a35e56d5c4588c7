"""Single flight: calls of a pure tool that are the same run once, and share what comes of it.

The first of them leads; whoever asks for the same while it is under way waits for it, QUEUED, and
takes no lane. Its success is recorded for each; if it does not succeed, the oldest of the others
leads. The same are calls of one tool in one version, with the same canonical and host-bound
arguments, in one tree of runs, each with a verdict of its own.

A call that is part of another does not join: what its ancestors hold might be what the leader
waits for.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from laneway.effects import Effect
from laneway.ids import RunId

if TYPE_CHECKING:
    from laneway.engine.live import LiveCall, LiveTurn

_encode = msgspec.json.Encoder(order="sorted").encode

_PURE: Final = Effect.PURE

Key = tuple[Any, ...]


class Flight(msgspec.Struct, eq=False):
    """Calls that are the same, under way."""

    key: Key
    leader: "LiveCall"
    followers: "list[LiveCall]"
    """Oldest first."""


def join(call: "LiveCall", flights: dict[Key, Flight]) -> "LiveCall | None":
    """Let a call lead, or wait for the one that does.

    Returns:
        The call that it waits for; None if it has to run itself.
    """
    if call.flight is not None or (key := _key(call)) is None:
        return None
    flight = flights.get(key)
    if flight is None:
        call.flight = flights[key] = Flight(key, call, [])
        return None
    if call.turn.within is not None:
        return None
    flight.followers.append(call)
    call.flight = flight
    return flight.leader


def part(call: "LiveCall", flights: dict[Key, Flight]) -> "list[LiveCall]":
    """Take a call that is over out of its flight.

    Returns:
        If it led, those who waited for it, oldest first: the flight is over.
    """
    flight, call.flight = call.flight, None
    if flight is None:
        return []
    if flight.leader is not call:
        flight.followers.remove(call)
        return []
    del flights[flight.key]
    for follower in flight.followers:
        follower.flight = None
    return flight.followers


def followers(call: "LiveCall") -> "Sequence[LiveCall]":
    """Who waits for a call as the same as its own, oldest first."""
    flight = call.flight
    return () if flight is None or flight.leader is not call else flight.followers


def _key(call: "LiveCall") -> Key | None:
    tool = call.tool
    if tool is None or tool.spec.effect is not _PURE or call.plan is not None:
        return None
    if tool.secret_result is not None or call.checked is None:
        return None
    if call.checked.arguments is not call.arguments:
        return None  # Two secrets look the same.
    bound = call.scheduler.bound
    # What a host binds can be anything, so it is the same only if it is the same object.
    given = tuple(id(bound[name]) for name in sorted(tool.spec.bound))
    return (_root(call.turn), tool.spec.name, tool.spec.version, _encode(call.arguments), given)


def _root(turn: "LiveTurn") -> RunId:
    """The run at the top of the tree."""
    while turn.within is not None:
        turn = turn.within.turn
    return turn.scheduler.log.view.run
