"""Fact to JSON and back, never with another meaning.

Reads rows that are to be kept and bodies that were kept; feeds the stores that write bytes. The
engine has made arguments and results plain JSON before they get here. What JSON cannot hold and
would write as something else is refused, because a journal that differs from what happened is
worse than one that stops.
"""

# Values of any type are told apart at run time.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
import asyncio
import math
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from laneway.errors import DamagedJournalError, JournalError
from laneway.facts import Fact, Row
from laneway.ids import RunId

DECODED_AT_ONCE = 2_000
"""Facts decoded before the event loop gets its turn: about 2 ms."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder[Fact](Fact).decode


def encode(row: Row, /) -> bytes:
    """Write the fact of a row as compact JSON, its tag under `fact`.

    Raises:
        JournalError: JSON cannot hold a value of it, or would change it: an infinite number or
            NaN, half a surrogate pair, an object of a class of its own, a value that contains
            itself. Nothing was written.
    """
    try:
        body = _encode(row.fact)
    except (TypeError, ValueError, RecursionError) as error:
        raise _refusal(row, str(error)) from error
    # JSON has no NaN and no infinity: the encoder writes null in their place.
    if b"null" in body and _holds_non_finite((row.fact,)):
        raise _refusal(row, "it holds a number that is not finite (NaN or infinity)")
    return body


def decode(run: RunId, seq: int, body: bytes | str, /) -> Fact:
    """Read what `encode` wrote.

    Raises:
        DamagedJournalError: it is not JSON, or no fact that this Laneway knows.
    """
    try:
        return _decode(body)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise DamagedJournalError(run, seq, f"it cannot be read ({error})") from error


Kept = tuple[int, float, float, bytes]
"""A row as a store keeps it: sequence number, wall seconds, monotonic seconds, body."""


async def decode_rows(run: RunId, kept: Sequence[Kept], /) -> list[Row]:
    """Read all rows of a run, given in order, and let the event loop breathe in between.

    Raises:
        DamagedJournalError: a sequence number is missing, or a body cannot be read.
    """
    rows: list[Row] = []
    for start in range(0, len(kept), DECODED_AT_ONCE):
        if start:
            await asyncio.sleep(0)
        rows.extend(_decode_slice(run, start, kept[start : start + DECODED_AT_ONCE]))
    return rows


def _decode_slice(run: RunId, before: int, kept: Iterable[Kept]) -> Iterable[Row]:
    for expected, (seq, wall, mono, body) in enumerate(kept, before + 1):
        if seq != expected:
            raise DamagedJournalError(run, expected, f"it is missing (the next is {seq})")
        yield Row(run, seq, wall, mono, decode(run, seq, body))


_WITHOUT_FLOATS = frozenset({str, int, bool, type(None)})
_STRUCT = type(msgspec.Struct)


def _holds_non_finite(values: Iterable[Any]) -> bool:
    # Every result of None comes by here, so types are told by identity where that is faster.
    for value in values:
        kind = type(value)
        if kind in _WITHOUT_FLOATS or isinstance(value, str):
            continue
        if isinstance(value, float):
            if not math.isfinite(value):
                return True
            continue
        inner: Iterable[Any]
        if kind is dict:
            inner = value.values()
        elif kind is list or kind is tuple:
            inner = value
        elif type(kind) is _STRUCT:
            inner = msgspec.structs.astuple(value)
        else:
            inner = (msgspec.to_builtins(value),)
        if _holds_non_finite(inner):
            return True
    return False


def _refusal(row: Row, fault: str) -> JournalError:
    name = type(row.fact).__name__
    return JournalError(
        f"run {row.run!r}, fact {row.seq} ({name}): it cannot be kept as JSON: {fault}; "
        "nothing was written"
    )
