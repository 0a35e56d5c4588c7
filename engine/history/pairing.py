"""Which result answers which call, and whether it stands where the provider wants it.

Ids decide where there are some. A call may have the id of an earlier one: then the nearest call
before a result is meant. Where there are none (Google, Ollama), the results behind the calls of a
message are theirs by name and in order. Reads parts; feeds checks, repairs and cuts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from laneway.engine.history.parts import Kind, Message, Pairs, Part, Side, Wire
from laneway.engine.history.wires import Given


@dataclass(slots=True)
class Line:
    """A message, taken apart."""

    message: Message
    side: Side
    parts: list[Part]
    run: int
    """The model's messages before it, its own included, counted in rows of those that are one."""


@dataclass(slots=True, eq=False)
class Spot:
    """A call or a result, and its counterpart."""

    part: Part
    line: int
    at: int
    """Of the parts of its line."""
    run: int
    """Of the calls with which a call was asked for; that a result stands behind."""
    behind: bool = True
    """A result stands where the results of the calls before it belong."""
    other: "Spot | None" = None


@dataclass(slots=True)
class Pairing:
    """A history, and what belongs together in it."""

    wire: Wire
    lines: list[Line] = field(default_factory=list[Line])
    calls: list[Spot] = field(default_factory=list[Spot])
    results: list[Spot] = field(default_factory=list[Spot])
    by_id: dict[str, list[Spot]] = field(default_factory=dict[str, list[Spot]])
    by_run: dict[int, list[Spot]] = field(default_factory=dict[int, list[Spot]])

    def stands_right(self, result: Spot) -> bool:
        """Whether a result is where the provider looks for it."""
        call = result.other
        if call is None:
            return False
        if self.wire.pairs is Pairs.LATER:
            return call.line < result.line
        return result.behind and result.run == call.run


def paired(history: Given) -> Pairing:
    """Take a history apart and pair its calls with its results.

    Raises:
        HistoryError: a message cannot be read.
    """
    pairing = Pairing(history.wire)
    _take_apart(history, pairing)
    for result in pairing.results:
        _pair(pairing, result)
    for result in pairing.results:  # What was written down before its call.
        if result.other is None and result.part.id:
            same = pairing.by_id.get(result.part.id, ())
            _join(next((call for call in same if call.other is None), None), result)
    _prefer_real(pairing)
    return pairing


def _take_apart(history: Given, pairing: Pairing) -> None:
    wire = history.wire
    run, behind, before = 0, False, None
    for number, message in enumerate(history.messages):
        side = wire.side(message)
        parts = wire.parts(message, f"{history.key}[{number}]")
        if side is Side.MODEL:
            run += wire.pairs is Pairs.BEHIND or before is not Side.MODEL
            behind = True
        for at, part in enumerate(parts):
            spot = Spot(part, number, at, run, behind)
            if part.kind is Kind.CALL:
                pairing.calls.append(spot)
                pairing.by_id.setdefault(part.id, []).append(spot)
                pairing.by_run.setdefault(run, []).append(spot)
            elif part.kind is Kind.RESULT:
                pairing.results.append(spot)
            elif side is not Side.MODEL and wire.pairs in (Pairs.BEHIND, Pairs.FIRST):
                behind = False
        if wire.pairs is Pairs.NEXT and side is Side.USER:
            behind = behind and all(part.kind is Kind.RESULT for part in parts)
        pairing.lines.append(Line(message, side, parts, run))
        before = side


def _pair(pairing: Pairing, result: Spot) -> None:
    call_id = result.part.id
    named = _open(pairing.by_id.get(call_id, ()), result) if call_id else []
    if named:
        latest = max(call.run for call in named)
        _join(next(call for call in named if call.run == latest), result)
        return
    near = _open(pairing.by_run.get(result.run, ()), result)
    near = [call for call in near if not (call_id and call.part.id)]
    name = result.part.name
    same = [call for call in near if name and call.part.name == name]
    unnamed = [call for call in near if not name or not call.part.name]
    _join(next(iter(same or unnamed), None), result)


def _open(calls: Sequence[Spot], result: Spot) -> list[Spot]:
    return [call for call in calls if call.other is None and call.line < result.line]


def _join(call: Spot | None, result: Spot) -> None:
    if call is not None:
        call.other, result.other = result, call


def _prefer_real(pairing: Pairing) -> None:
    """A result that turns up takes the place of the error that it was lost."""
    for result in pairing.results:
        if result.other is None and result.part.id:
            for call in pairing.by_id.get(result.part.id, ()):
                if is_lost(pairing.wire, call):
                    assert call.other is not None
                    call.other.other = None
                    _join(call, result)
                    break


def is_lost(wire: Wire, call: Spot) -> bool:
    """Whether a call is answered by the error that its result was lost."""
    lost = wire.lost(call.part)
    return call.other is not None and lost is not None and call.other.part.raw == lost.raw
