"""What is wrong with a history, in words."""

import msgspec

from laneway.engine.history.pairing import Pairing, Spot
from laneway.engine.history.parts import Pairs
from laneway.engine.history.repairing import open_run, renamed


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Something for which a provider would refuse a history."""

    place: str
    """`messages[3].content[1]`."""
    kind: str
    """`unanswered`, `orphan`, `repeated`, `misplaced`, or `id`."""
    call: str
    """The id that is told; empty where there is none."""
    told: str
    """A sentence."""
    way_out: str
    """What a repair does about it."""


_WANTED = {
    Pairs.BEHIND: "directly behind the message with the calls",
    Pairs.NEXT: "in the user's next message",
    Pairs.FIRST: "first in the user's next message",
    Pairs.LATER: "behind its call",
}


def faults(
    pairing: Pairing, key: str, *, continued: bool = False, open_end: bool = False
) -> tuple[Fault, ...]:
    """List what is wrong, in the order of the history.

    Args:
        pairing: of the history.
        key: how its list is called.
        continued: results without a call are of calls that stand with the provider.
        open_end: the calls of the last message may be unanswered.
    """
    found: list[tuple[int, int, Fault]] = []
    last = open_run(pairing) if open_end else -1
    new_ids = renamed(pairing)
    calls = {call.part.id for call in pairing.calls}

    def note(spot: Spot, kind: str, told: str, way_out: str) -> None:
        place = f"{key}[{spot.line}]{spot.part.place}"
        fault = Fault(place=place, kind=kind, call=spot.part.id, told=told, way_out=way_out)
        found.append((spot.line, spot.at, fault))

    for call in pairing.calls:
        if call.other is None and call.run != last:
            lost = pairing.wire.lost(call.part)
            note(
                call,
                "unanswered",
                f"{_called(call)} has no result",
                "it is answered with an error" if lost else "it is left out",
            )
        if (call.line, call.at) in new_ids:
            has = "has the id of an earlier one" if call.part.id else "has no id"
            note(call, "id", f"{_called(call)} {has}", "it is given one of its own")
    for result in pairing.results:
        if result.other is None:
            if not continued:
                repeated = result.part.id in calls
                told = "is answered already" if repeated else "is nowhere"
                kind = "repeated" if repeated else "orphan"
                note(
                    result, kind, f"the call {result.part.id!r} of a result {told}", "it is dropped"
                )
        elif not pairing.stands_right(result):
            wanted = _WANTED[pairing.wire.pairs]
            told = f"the result of {_called(result.other)} does not stand {wanted}"
            note(result, "misplaced", told, "it is put there")
        elif not result.part.id and (result.line, result.at) in new_ids:
            told = f"the result of {_called(result.other)} does not name it"
            note(result, "id", told, "it is given the id of its call")
    return tuple(fault for _, _, fault in sorted(found, key=lambda one: one[:2]))


def _called(call: Spot) -> str:
    name = call.part.name or "a tool"
    return f"call {call.part.id!r} of {name}" if call.part.id else f"a call of {name}"
