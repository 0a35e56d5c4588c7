"""Again, or not? Closed for whatever is not safe to repeat."""

from typing import Protocol

import msgspec

CEILING_SECONDS = 60.0
JITTER = 0.2


class AttemptFailed(msgspec.Struct, frozen=True, kw_only=True):
    """All that the decision may look at."""

    attempt: int
    """From 1."""
    attempts_allowed: int
    """1 for a tool that is never tried again."""
    idempotent: bool
    transient: bool
    """The fault was of the kind that passes: network, overload, rate limit."""
    first_seconds: float
    """The back-off after the first attempt."""
    chance: float
    """Uniform in [0, 1): the randomness of the jitter."""


class RetryAfter(msgspec.Struct, frozen=True):
    """Another attempt, after a pause."""

    seconds: float


class GiveUp(msgspec.Struct, frozen=True):
    """No further attempt."""

    reason: str


class RetryPolicy(Protocol):
    """Anything that can answer: again, or not?"""

    def decide(self, failure: AttemptFailed, /) -> RetryAfter | GiveUp:
        """Look at a failed attempt."""
        ...


class ExponentialBackOff:
    """min(first · 2ⁿ, 60 s) ± 20 %, for idempotent calls and passing faults only."""

    def decide(self, failure: AttemptFailed, /) -> RetryAfter | GiveUp:
        """Look at a failed attempt."""
        if not failure.idempotent:
            return GiveUp("the tool is not idempotent")
        if not failure.transient:
            return GiveUp("the fault will not pass by itself")
        if failure.attempt >= failure.attempts_allowed:
            return GiveUp(f"{failure.attempts_allowed} attempts were made")
        return RetryAfter(back_off(failure.attempt, failure.first_seconds, failure.chance))


def back_off(attempt: int, first_seconds: float, chance: float) -> float:
    """The pause after an attempt, in seconds: never negative, never over 72 s.

    Args:
        attempt: from 1; the exponent is capped, since 2.0 ** 1024 overflows a float.
        first_seconds: the pause after the first attempt.
        chance: uniform in [0, 1).
    """
    pause = min(first_seconds * 2.0 ** min(attempt - 1, 64), CEILING_SECONDS)
    return pause * (1.0 - JITTER + 2.0 * JITTER * chance)
