"""The hash chain of a run: each fact carries a hash over itself and all facts before it.

Reads what a store is about to keep, and what it kept; tells whether anything was changed, dropped
or put in between afterwards. The chain cannot tell that its tail is missing: for that, somebody
must remember how far it reached (`laneway verify --expect SEQ:HASH`).
"""

from hashlib import blake2b
from struct import Struct

from laneway.ids import RunId

HASH_BYTES = 16
"""BLAKE2b (RFC 7693) cut to 128 bits: against accidents and against whoever edits a journal by
hand; 64 bits of work to forge two that agree."""

_head = Struct("<Qdd").pack


def first_link(run: RunId, /) -> bytes:
    """Begin the chain of a run: facts of one run are none of another's."""
    return blake2b(run.encode("utf-8", "surrogatepass"), digest_size=HASH_BYTES).digest()


def next_link(before: bytes, seq: int, wall: float, mono: float, body: bytes, /) -> bytes:
    """Hash a fact onto the chain.

    Args:
        before: The link of the fact before, or the first link.
        seq: Its sequence number.
        wall: Its Unix seconds.
        mono: Its monotonic seconds.
        body: Its JSON, as it is kept.
    """
    return blake2b(before + _head(seq, wall, mono) + body, digest_size=HASH_BYTES).digest()
