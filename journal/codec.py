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
from pathlib import Path
from struct import error as StructError  # noqa: N812 - a class
from typing import Any

import msgspec

from laneway.errors import DamagedJournalError, JournalError
from laneway.facts import Fact, Row
from laneway.ids import RunId
from laneway.journal.chain import first_link, next_link
from laneway.journal.spill import unspilled

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


Kept = tuple[int, float, float, bytes, bytes]
"""A row as a store keeps it: sequence number, wall seconds, monotonic seconds, link, body."""


async def decode_rows(run: RunId, kept: Sequence[Kept], values: Path, /) -> list[Row]:
    """Read all rows of a run, given in order, and let the event loop breathe in between.

    Args:
        run: Whose rows they are.
        kept: As the store gives them.
        values: The folder of large values; see `spill`.

    Raises:
        DamagedJournalError: a sequence number is missing, a link does not fit the one before, or a
            body cannot be read; its `whole` holds the rows before.
    """
    rows: list[Row] = []
    chain = Chain(run, values)
    try:
        for start in range(0, len(kept), DECODED_AT_ONCE):
            if start:
                await asyncio.sleep(0)
            rows.extend(map(chain.decode, kept[start : start + DECODED_AT_ONCE]))
    except DamagedJournalError as error:
        error.whole = tuple(rows)
        raise
    return rows


class Chain:
    """Reads the rows of a run one after the other, and sees that each follows the one before."""

    __slots__ = ("_run", "_values", "link", "seq")

    def __init__(self, run: RunId, values: Path) -> None:
        """Begin before the first row."""
        self._run = run
        self._values = values
        self.seq = 0
        self.link = first_link(run)

    def decode(self, kept: Kept) -> Row:
        """Read the next row.

        Raises:
            DamagedJournalError: it is not the next one, was changed, or cannot be read.
        """
        seq, wall, mono, link, body = kept
        run, expected = self._run, self.seq + 1
        if seq != expected:
            raise DamagedJournalError(run, expected, f"it is missing (the next is {seq})")
        try:
            fits = next_link(self.link, seq, wall, mono, body) == link
        except (StructError, TypeError):  # SQLite keeps anything in any column
            fits = False
        if not fits:
            raise DamagedJournalError(
                run, seq, "its hash does not fit: it, or the fact before it, was changed"
            )
        try:
            whole = unspilled(self._values, body)
        except (ValueError, msgspec.MsgspecError) as error:
            raise DamagedJournalError(run, seq, str(error)) from error
        row = Row(run, seq, wall, mono, decode(run, seq, whole))
        self.seq, self.link = seq, link
        return row


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
