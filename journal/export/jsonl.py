"""A run as JSON Lines: a fact a line, and nothing lost on the way there and back.

    {"run":"fix-42","seq":7,"wall":1700000012.5,"mono":815.25,"fact":{"fact":"call_started",…}}

Reads rows; `read_lines` gives the same rows back, of as many runs as the lines hold.
"""

from collections.abc import Iterable, Iterator

import msgspec

from laneway.errors import DamagedJournalError
from laneway.facts import Row
from laneway.ids import RunId
from laneway.journal.codec import decode, encode
from laneway.journal.export.escaping import plain_json


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    run: RunId
    seq: int
    wall: float
    mono: float
    fact: msgspec.Raw


def lines(rows: Iterable[Row]) -> Iterator[bytes]:
    r"""Write each row as a line, with its `\n`.

    Raises:
        JournalError: JSON cannot hold a value of it.
    """
    write = msgspec.json.Encoder().encode
    for row in rows:
        fact = msgspec.Raw(encode(row))
        line = _Line(run=row.run, seq=row.seq, wall=row.wall, mono=row.mono, fact=fact)
        yield plain_json(write(line)) + b"\n"


def read_lines(written: Iterable[bytes | str]) -> Iterator[Row]:
    """Read what `lines` wrote; empty lines are passed over.

    Raises:
        DamagedJournalError: a line is none, or holds a fact that this Laneway does not know.
    """
    read = msgspec.json.Decoder(_Line).decode
    for number, one in enumerate(written, 1):
        if not one.strip():
            continue
        try:
            line = read(one)
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise DamagedJournalError("", number, f"line {number} is no fact ({error})") from error
        fact = decode(line.run, line.seq, bytes(line.fact))
        yield Row(line.run, line.seq, line.wall, line.mono, fact)
