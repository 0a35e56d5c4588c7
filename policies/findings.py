"""What is found about a call of a model that goes round in circles, and how it is told.

Made by the detectors (`laneway.policies.loops`, `laneway.policies.polling`); read by the engine,
which refuses the call, puts the note beside its result, or stops the run.
"""

from enum import StrEnum

import msgspec


class Stage(StrEnum):
    """How far it has come."""

    WARN = "warn"
    """The call runs; the model is told beside its result."""
    BLOCK = "block"
    """The call is refused."""
    STOP = "stop"
    """The run is over until its user says something."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What was found about one more call."""

    stage: Stage
    detector: str
    """`repeat`, `rounds`, `diversity`, `at once`, `poll` or `stopped`."""
    message: str
    """For the model: what it keeps doing."""
    hint: str
    """What to do instead."""
    retry: bool = False
    """Whether the same call makes sense later."""


OTHERWISE = (
    "Do not ask for it again as it is. Go on with the results that you have, ask for something "
    "else, or tell the user what stands in the way and ask how to go on."
)
LITTLE_NEW = "Little of what you ask for is new"


def stopping(found: Finding, answers: int) -> Finding:
    """A refusal that was one too many.

    Args:
        found: why the call is refused.
        answers: how many in a row had a refused call.
    """
    message = f"{found.message} {_in_a_row(answers)} so: the run stops here."
    return Finding(stage=Stage.STOP, detector=found.detector, message=message, hint=ASK_THE_USER)


def stopped() -> Finding:
    """Why no further call runs once a run is stopped."""
    return Finding(
        stage=Stage.STOP,
        detector="stopped",
        message="You kept asking for the same although it was refused, so this run is stopped: "
        "nothing is run before the user has said something.",
        hint=ASK_THE_USER,
    )


ASK_THE_USER = (
    "Ask for no further call. Tell the user what you tried, what came of it and what stands in the "
    "way, and ask how to go on."
)


def _in_a_row(answers: int) -> str:
    return "It is" if answers == 1 else f"{answers} answers in a row were"


def times(count: int) -> str:
    """How often, in words."""
    return "once" if count == 1 else "twice" if count == 2 else f"{count} times"  # noqa: PLR2004
