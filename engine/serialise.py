"""What a tool returned, as the one JSON value that dependents, journal and renderer all see.

Execution calls `normalise` right where a body has returned, so that a value which cannot be stored
is that call's failure, not a broken request or checkpoint later. `canonical` and `digest` are how
two JSON values are told equal: approvals, loop detection and idempotency keys are bound to them.
"""

from hashlib import sha256
from typing import Any

import msgspec

from laneway.effects import Effect
from laneway.engine.plain import MAX_CHARACTERS, NotPlainError, plain
from laneway.outcomes import Code, Failure, Happened, Success


def normalise(value: Any, /, *, tool: str, effect: Effect = Effect.EXTERNAL) -> Success | Failure:
    """Turn what a tool returned into its outcome; raises nothing, whatever the value is.

    Args:
        value: what came back; `plain` lists what can be told in JSON and how.
        tool: its name, for the message.
        effect: of the tool; decides what a failure says has happened.

    Returns:
        Success with plain JSON that shares nothing with `value`, or RESULT_NOT_SERIALISABLE, which
        names the place and the type, and says that the tool did run. It is never to be retried.
    """
    if type(value) is str:
        if value.isascii() and len(value) <= MAX_CHARACTERS:
            return Success(value=value)
    elif value is None or value is True or value is False:
        return Success(value=value)
    try:
        return Success(value=plain(value))
    except NotPlainError as error:
        return _not_serialisable(error, tool, effect)


def canonical(value: Any, /) -> bytes:
    """Write a plain JSON value so that equal values give equal bytes: keys sorted, no white space.

    Raises:
        UnicodeEncodeError: the text holds half characters, so the value was never made plain.
    """
    return _SORTED.encode(value)


def digest(value: Any, /) -> str:
    """SHA-256 (FIPS 180-4) over the canonical form, in hexadecimal."""
    return sha256(_SORTED.encode(value)).hexdigest()


_SORTED = msgspec.json.Encoder(order="deterministic")


def _not_serialisable(error: NotPlainError, tool: str, effect: Effect) -> Failure:
    return Failure(
        code=Code.RESULT_NOT_SERIALISABLE,
        message=(
            f"The tool {tool} did run and returned, but its result cannot be stored as JSON: "
            f"{error.place} {error.fault}."
        ),
        happened=Happened.NOTHING if effect.changes_nothing else Happened.ALL,
        hint=(
            "The same call would end the same way; go on without its result."
            if effect.changes_nothing
            else "Its effect has happened: do not call it again to get the result."
        ),
    )
