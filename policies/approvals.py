"""Approvals: what binds an answer to a call, and whether it still counts.

The engine asks, waits and records; here stands what a question is about and what becomes of it.
A call that asks holds no lane. Reads facts; feeds the engine.
"""

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final

import msgspec

from laneway.claims import Claim
from laneway.errors import UsageError
from laneway.facts import ApprovalAnswered, ApprovalAsked
from laneway.ids import ApprovalId, CallId

EXPIRY_SECONDS: Final = 3600.0
"""How long a question stays open unless the host says otherwise."""

FAR_WALL: Final = 253_402_300_799.0
"""The last second of the year 9999: the expiry of a question that never expires, for JSON knows
no infinity."""


class Standing(StrEnum):
    """What an approval has come to."""

    OPEN = "open"
    GRANTED = "granted"
    REFUSED = "refused"
    EXPIRED = "expired"
    """Nobody answered in time; a later answer does not count."""
    STALE = "stale"
    """Granted, but for something else than what would run now: ask again."""


def standing(
    asked: ApprovalAsked,
    answered: ApprovalAnswered | None,
    /,
    *,
    digest_now: str,
    wall: float,
) -> Standing:
    """Judge an approval.

    Args:
        asked: The question.
        answered: Its answer, if there is one.
        digest_now: Of the call as it would run now.
        wall: Unix seconds: when the answer was recorded; without answer, now.
    """
    if expired(asked.expires_wall, wall):
        return Standing.EXPIRED
    if answered is None:
        return Standing.OPEN
    if not answered.granted:
        return Standing.REFUSED
    return Standing.GRANTED if digest_now == asked.digest else Standing.STALE


def digest(
    tool: str, tool_version: str, arguments: Mapping[str, Any], claims: Sequence[Claim], /
) -> str:
    """Bind an approval to exactly what was shown.

    SHA-256, in hexadecimal, over JSON with sorted keys: the order of keys and of claims makes no
    difference, everything else does, 1 and 1.0 included.

    Args:
        tool: Its name.
        tool_version: Digest of its schema and declarations.
        arguments: Checked JSON.
        claims: The final claims.
    """
    bound = ("laneway approval 1", tool, tool_version, arguments, sorted(set(claims)))
    return sha256(msgspec.json.encode(bound, order="sorted")).hexdigest()


def approval_id(call: CallId, n: int, /) -> ApprovalId:
    """Name the `n`-th question (from 1) about a call: `t3.2.a1`; the same after a restart."""
    return ApprovalId(f"{call}.a{n}")


def expiry(now_wall: float, seconds: float = EXPIRY_SECONDS, /) -> float:
    """Say when a question asked now ends, in Unix seconds.

    Args:
        now_wall: Unix seconds.
        seconds: More than 0; `math.inf` for a question that never expires.

    Raises:
        UsageError: seconds is not a positive number.
    """
    if math.isnan(seconds) or seconds <= 0:
        raise UsageError(
            f"an approval cannot expire after {seconds} seconds; give a positive number, "
            "or math.inf for one that never expires"
        )
    return min(now_wall + seconds, FAR_WALL)


def expired(expires_wall: float, now_wall: float, /) -> bool:
    """Say whether a question has ended; it ends at its very second."""
    return now_wall >= expires_wall
