"""Where a history may be cut: never between a call and its result, nor within one answer.

Reads a pairing; feeds compaction and pruning.
"""

from laneway.engine.history.pairing import Pairing
from laneway.engine.history.parts import Kind, Side


def cuts(pairing: Pairing) -> list[int]:
    """The messages before which a history may be cut, in order; 0 is always one.

    The history must be whole: each call answered, each result of a call.
    """
    within = [0] * (len(pairing.lines) + 1)
    for call in pairing.calls:
        if call.other is not None:
            within[call.line + 1] += 1
            within[call.other.line + 1] -= 1
    found: list[int] = []
    depth = 0
    for number, line in enumerate(pairing.lines):
        depth += within[number]
        answers = any(part.kind is Kind.RESULT for part in line.parts)
        goes_on = line.side is Side.MODEL and number and pairing.lines[number - 1].run == line.run
        if number == 0 or not (depth or answers or goes_on):
            found.append(number)
    return found


def head(pairing: Pairing) -> int:
    """How many messages of the system stand at the beginning."""
    sides = [line.side for line in pairing.lines]
    return next((at for at, side in enumerate(sides) if side is not Side.SYSTEM), len(sides))
