"""Makes a history whole: each call is answered once, where its provider wants it.

Nothing in it knows the time or throws dice, and what is right stays the same object: the same
history gives the same bytes, a repaired one gives itself, and so a provider's cache holds.
"""

from hashlib import sha256
from typing import Any

from laneway.engine.history.pairing import Line, Pairing, Spot
from laneway.engine.history.parts import STRAY, Kind, Message, Pairs, Part, Side


def mended(pairing: Pairing, *, continued: bool = False, open_end: bool = False) -> list[Message]:
    """Write the messages of a history anew, as far as something is wrong with them.

    Args:
        pairing: of the history.
        continued: results without a call are of calls that stand with the provider.
        open_end: the calls of the last message may be unanswered: they are being worked on.
    """
    return _Mending(pairing, continued=continued, open_end=open_end).messages()


class _Mending:
    def __init__(self, pairing: Pairing, *, continued: bool, open_end: bool) -> None:
        self._pairing = pairing
        self._wire = pairing.wire
        self._gone: set[tuple[int, int]] = set()
        self._renamed: dict[tuple[int, int], Part] = renamed(pairing)
        self._coming: dict[int, list[Part]] = {}
        """Results to be put behind the calls of a run."""
        for result in pairing.results:
            if result.other is None and continued:
                continue
            if not pairing.stands_right(result):
                self._gone.add((result.line, result.at))
        last = open_run(pairing) if open_end else -1
        for call in pairing.calls:
            if call.run != last:
                self._settle(call)

    def _settle(self, call: Spot) -> None:
        place = call.line, call.at
        if call.other is None:
            answer = self._wire.lost(self._renamed.get(place, call.part))
        elif self._pairing.stands_right(call.other):
            return
        else:
            answer = self._renamed.get((call.other.line, call.other.at), call.other.part)
        if answer is None:
            self._gone.add(place)
        else:
            self._coming.setdefault(call.run, []).append(answer)

    def messages(self) -> list[Message]:
        lines = self._pairing.lines
        out: list[Message] = []
        for number, line in enumerate(lines):
            kept = self._kept(number, line)
            then = lines[number + 1] if number + 1 < len(lines) else None
            if self._takes_in(number, line) and line.run in self._coming:
                kept = _behind_results(kept, self._coming.pop(line.run))
            if not kept and line.parts:
                before = self._wire.side(out[-1]) if out else Side.MODEL
                if self._parts_model(line, before, then):
                    kept = [self._wire.text(STRAY)]
            if kept != line.parts:
                if kept:
                    out.append(self._wire.build(line.message, kept))
            else:
                out.append(line.message)
            if self._ends_region(number) and line.run in self._coming:
                out += self._wire.messages(self._coming.pop(line.run))
        return out

    def _kept(self, number: int, line: Line) -> list[Part]:
        return [
            self._renamed.get((number, at), part)
            for at, part in enumerate(line.parts)
            if (number, at) not in self._gone
        ]

    @property
    def _in_blocks(self) -> bool:
        return self._wire.pairs in (Pairs.NEXT, Pairs.FIRST)

    def _takes_in(self, number: int, line: Line) -> bool:
        """Whether this is the user's message in which results belong."""
        before = self._pairing.lines[number - 1] if number else None
        return (
            self._in_blocks
            and line.side is Side.USER
            and before is not None
            and before.side is Side.MODEL
        )

    def _ends_region(self, number: int) -> bool:
        """Whether results that have no message yet belong behind this one."""
        lines = self._pairing.lines
        line, then = lines[number], lines[number + 1] if number + 1 < len(lines) else None
        if then is None:
            return True
        if self._in_blocks:
            return line.side is Side.MODEL and then.side is Side.SYSTEM
        if then.run != line.run:
            return True
        if line.side is Side.MODEL and then.side is Side.MODEL:
            return False
        return not any(part.kind is Kind.RESULT for part in then.parts)

    def _parts_model(self, line: Line, before: Side, then: Line | None) -> bool:
        """Whether the model's messages would touch without this one."""
        between = before is Side.MODEL and then is not None and then.side is Side.MODEL
        return self._in_blocks and line.side is Side.USER and between


def _behind_results(parts: list[Part], coming: list[Part]) -> list[Part]:
    leading = next(
        (at for at, part in enumerate(parts) if part.kind is not Kind.RESULT), len(parts)
    )
    return [*parts[:leading], *coming, *parts[leading:]]


def open_run(pairing: Pairing) -> int:
    """The run of calls that ends a history, with nothing but their results behind it; or -1."""
    last = pairing.lines[-1].run if pairing.lines else -1
    behind = [line for line in pairing.lines if line.run == last and line.side is not Side.MODEL]
    others = [part for line in behind for part in line.parts if part.kind is not Kind.RESULT]
    return -1 if others else last


def renamed(pairing: Pairing) -> dict[tuple[int, int], Part]:
    """The calls and results that need another id, by their places."""
    wire = pairing.wire
    found: dict[tuple[int, int], Part] = {}
    ids = {call.part.id for call in pairing.calls}
    taken: set[str] = set()
    run = 0
    for number, call in enumerate(pairing.calls):
        call_id = call.part.id
        if call.run != run and wire.pairs is not Pairs.LATER:
            run = call.run
            taken = set[str]()  # Providers take back an id that an earlier turn has.
        if call_id in taken or (not call_id and wire.needs_ids):
            call_id = _minted(call.part, number, ids)
            part = wire.named(call.part, call_id)
            if part is call.part:
                continue  # A form without ids.
            ids.add(call_id)
            found[call.line, call.at] = part
        taken |= {call_id} - {""}
        answer = call.other
        if answer is not None and answer.part.id != call_id and _is_told(call, answer, wire):
            found[answer.line, answer.at] = wire.named(answer.part, call_id)
    return found


def _is_told(call: Spot, answer: Spot, wire: Any) -> bool:
    return bool(wire.needs_ids or (answer.part.id and call.part.id == answer.part.id))


def _minted(call: Part, number: int, ids: set[str]) -> str:
    """Nine letters and digits, which every provider takes; the same for the same history."""
    salt = 0
    while True:
        digits = sha256(f"{number}/{call.id}/{call.name}/{salt}".encode()).hexdigest()[:9]
        if digits not in ids:
            return digits
        salt += 1
