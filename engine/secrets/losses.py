"""The failures of calls whose secrets were lost, or must not be told.

Fed by the sealing and by admission; each names what was not kept, and the way out.
"""

# Values are JSON, told apart at run time.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from laneway.engine.secrets.marks import MARK
from laneway.outcomes import Code, Failure, Happened

ASK_AGAIN = "Call it again with the value itself, or ask the user for it."


def not_kept(tool: str, names: Sequence[str]) -> Failure:
    """The call was to run in another process than the one that had its secrets."""
    what = ", ".join(names)
    return Failure(
        code=Code.INVALID_ARGUMENTS,
        message=(
            f"{tool} was not run: what was given for {what} is secret and kept in memory only, and "
            "the process that had it has ended."
        ),
        hint=ASK_AGAIN,
    )


def written_marks(tool: str, names: Sequence[str]) -> Failure:
    """A model gave the mark itself, which it had read in place of a secret."""
    what = ", ".join(names)
    return Failure(
        code=Code.INVALID_ARGUMENTS,
        message=(
            f"{tool} was not run: what was given for {what} holds the mark that stands for a "
            "secret, not the secret."
        ),
        hint=(
            "Give the value itself; if it is in the result of a call, refer to it there: "
            "${call.field}."
        ),
    )


def lost_reference(place: str) -> Failure:
    """A reference leads to a secret that nobody has any more."""
    return Failure(
        code=Code.BAD_REFERENCE,
        message=(
            f"{place} leads to a secret, which was kept in memory only, and the process that had "
            "it has ended."
        ),
        hint="Call that tool again, and refer to its new result.",
    )


LOST_RESULT = Failure(
    code=Code.BAD_REFERENCE,
    message="The same call was made before and did succeed, but its result holds a secret, which "
    "was kept in memory only, and the process that had it has ended.",
    happened=Happened.ALL,
    hint="Find out what came of it by other means; it is not run a second time.",
)


def unread(failure: Failure, tool: str) -> Failure:
    """Say that arguments cannot be read, without a word of what stands in them."""
    told = "The output limit cut this call off before it was complete"
    if failure.code is Code.MALFORMED_ARGUMENTS:
        told = "The arguments are not one strict JSON object"
    return msgspec.structs.replace(
        failure,
        message=f"{told}; it was not run. They are not shown, since {tool} takes secrets.",
    )


def unquoted(failure: Failure) -> Failure:
    """Leave out whatever a message quotes: nobody knows what stands in a plan that is not read."""
    return msgspec.structs.replace(failure, message=_QUOTED.sub(MARK, failure.message))


_QUOTED = re.compile(r'"(?:[^"\\\n]|\\.)*"?')


def without(message: str, values: Iterable[Any]) -> str:
    """Leave short texts and numbers out of the message of one failure, as JSON or Python say them.

    They stand in too many texts by chance to be searched for in any other.
    """
    for value in values:
        if isinstance(value, dict | list):
            message = without(message, value.values() if isinstance(value, dict) else value)
        elif isinstance(value, str):
            for shown in (json.dumps(value, ensure_ascii=False), json.dumps(value), repr(value)):
                message = message.replace(shown, MARK)
        elif value is not None:
            shown = re.escape(json.dumps(value))
            message = re.sub(rf"(?<![\w.]){shown}(?!\w|\.\d)", lambda _: MARK, message)
    return message
