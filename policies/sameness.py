"""When two calls are the same, and when two results are.

Calls: tool and canonical arguments; the order of keys, spacing and ids make no difference. Results:
the value, or code and message of a failure; the time of day in it makes no difference, for a result
that carries a clock never comes twice.
"""

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

import msgspec

from laneway.outcomes import Code, Failure, Outcome

_encode = msgspec.json.Encoder(order="sorted").encode
_SHORT = 64
"""Bytes that are kept rather than hashed; being JSON, they are never the hash of others."""


def key_of(tool: str, arguments: Any, /) -> bytes:
    """SHA-256 (FIPS 180-4) over a tool's name and arguments that are JSON; if short, these."""
    said = _encode((tool, arguments))
    return said if len(said) <= _SHORT else sha256(said).digest()


def digest_of_results(outcomes: Iterable[Outcome | None], /) -> bytes | None:
    """What the results of calls that are the same are known by, taken together.

    Returns:
        None if one of them is still open, or was cancelled, which says nothing of the call.
    """
    told: list[bytes] = []
    for outcome in outcomes:
        if outcome is None:
            return None
        if not isinstance(outcome, Failure):
            told.append(without_clocks(_encode(outcome.value)))
        elif outcome.code in _SAYS_NOTHING:
            return None
        else:
            told.append(without_clocks(_encode((outcome.code, outcome.message))))
    return sha256(b"\0".join(told)).digest() if told else None


_SAYS_NOTHING = frozenset({Code.CANCELLED, Code.ALREADY_RUNNING, Code.LANE_FULL})


def without_clocks(text: bytes, /) -> bytes:
    """Leave out dates with a time, times of day, and how long something took (`in 0.12s`).

    A result that is nothing but a clock keeps it: there the time is what was asked for.

    Args:
        text: of JSON.
    """
    if not _DIGIT.search(text):
        return text
    masked = _CLOCK.sub(b"\0", text)
    return text if masked is text or not _WORD.search(masked) else masked


# In JSON a line break or a tabulator before a time is a letter behind a backslash.
_START = rb"(?:(?<![\w.:/-])|(?<=\\[nrt]))"
_TIME = rb"(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:[.,]\d+)?)?"
_CLOCK = re.compile(
    _START + rb"\d{4}-\d\d-\d\d(?:T|\s)" + _TIME + rb"(?:Z|[+-]\d\d:?\d\d)?(?![\w:])"
    rb"|" + _START + _TIME + rb"(?![\w:])"
    rb"|\b(?:in|took) \d+(?:\.\d+)? ?(?:ms|s|sec|seconds?|min|minutes?)\b"
)
_DIGIT = re.compile(rb"\d[:.sm ]")
_WORD = re.compile(rb"\w")
