"""Compacted runs: all facts of a run in one compressed row.

Facts are small and much alike, so that a run shrinks to a fraction. Nothing of it is lost: the rows
come back when the run is read, and take their places again when somebody takes it up. Their links
are computed anew; the last one must be what it was.
"""

import zlib
from collections.abc import Iterable, Sequence

import msgspec

from laneway.ids import RunId
from laneway.journal.chain import first_link, next_link
from laneway.journal.codec import Kept

_decode = msgspec.msgpack.Decoder(list[tuple[float, float, bytes]]).decode


def packed(rows: Sequence[Kept], /) -> bytes:
    """Compress all rows of a run (zlib, RFC 1950, around MessagePack)."""
    return zlib.compress(msgspec.msgpack.encode([(row[1], row[2], row[4]) for row in rows]), 6)


def unpacked(run: RunId, archive: bytes, last_link: bytes, /) -> list[Kept]:
    """Give the rows back.

    Args:
        run: whose they are.
        archive: as `packed` gave it.
        last_link: the hash of its last fact.

    Raises:
        ValueError: it is no archive, or was changed.
    """
    rows: list[Kept] = []
    link = first_link(run)
    for seq, (wall, mono, body) in enumerate(_opened(archive), 1):
        link = next_link(link, seq, wall, mono, body)
        rows.append((seq, wall, mono, link, body))
    if link != last_link:
        raise ValueError("its archive was changed: the hash of its last fact does not fit")
    return rows


def bodies(archive: bytes, /) -> Iterable[bytes]:
    """Give the JSON of all its facts, unchecked.

    Raises:
        ValueError: it is no archive.
    """
    return [body for _, _, body in _opened(archive)]


def _opened(archive: bytes) -> list[tuple[float, float, bytes]]:
    try:
        return _decode(zlib.decompress(archive))
    except (zlib.error, msgspec.MsgspecError, TypeError) as error:
        raise ValueError(f"its archive cannot be read ({error})") from error
