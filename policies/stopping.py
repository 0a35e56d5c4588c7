"""Why a run stops: what becomes of its open calls, what reopens it, what the user is told.

One table, `STOPS`, says all of it; the engine asks it and acts. Here too stands how much of a
budget is kept back for a last summary. Reads the vocabulary; feeds the engine, which stops and
reopens, the ledger of budgets, and the stop report.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from laneway.errors import UsageError
from laneway.outcomes import Code, Failure, StopReason


class Through(StrEnum):
    """What can let a stopped run go on."""

    SUBMIT = "submit"
    """Another answer of the model."""
    SAY = "say"
    """A new message of the user's."""
    BUDGET = "budget"
    """A larger budget."""
    RESUME = "resume"
    """Somebody who says so by name."""


class Open(StrEnum):
    """What a stop does to calls that are open."""

    GO_ON = "go on"
    END = "end"


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """What a reason to stop means. Every open call has its outcome or goes on; none is lost."""

    unstarted: Open
    """Calls that wait for others, for lanes, or between two attempts."""
    running: Open
    asking: Open
    """Calls that wait for a human, or wait for lanes with the yes of one."""
    code: Code | None
    """With which the calls of further answers are refused; None where such an answer reopens."""
    reopened: frozenset[Through]
    weight: int
    """Of two stops the heavier one stands; of two of one weight the first."""
    tell: str
    """For the user."""

    @property
    def resumable(self) -> bool:
        """Whether the run goes on once what it waits for is there; else a person has to say so."""
        return self.reopened != _BY_NAME


_BY_NAME: Final = frozenset({Through.RESUME})

STOPS: Final[Mapping[StopReason, Stop]] = {
    StopReason.COMPLETED: Stop(
        unstarted=Open.END,
        running=Open.GO_ON,
        asking=Open.END,
        code=None,
        reopened=frozenset({Through.SUBMIT, Through.SAY, Through.RESUME}),
        weight=0,
        tell="The work is done. A further question goes on from here.",
    ),
    StopReason.NEEDS_USER_INPUT: Stop(
        unstarted=Open.END,
        running=Open.GO_ON,
        asking=Open.GO_ON,
        code=Code.POLICY_DENIED,
        reopened=frozenset({Through.SAY, Through.RESUME}),
        weight=1,
        tell="The work stands still until you say how it goes on. Your next message does that.",
    ),
    # Each open call is covered by budgets of its own, which the ledger judges one by one; what has
    # been reserved for is not taken back.
    StopReason.BUDGET_EXCEEDED: Stop(
        unstarted=Open.GO_ON,
        running=Open.GO_ON,
        asking=Open.GO_ON,
        code=Code.BUDGET_EXCEEDED,
        reopened=frozenset({Through.BUDGET, Through.RESUME}),
        weight=2,
        tell="A limit of this work is used up; its state is saved. With a larger budget it goes on "
        "from here.",
    ),
    StopReason.CANCELLED: Stop(
        unstarted=Open.END,
        running=Open.END,
        asking=Open.END,
        code=Code.CANCELLED,
        reopened=_BY_NAME,
        weight=3,
        tell="The work was called off. What it had done stays done; it goes on only if somebody "
        "says so.",
    ),
    StopReason.FAILED: Stop(
        unstarted=Open.END,
        running=Open.END,
        asking=Open.END,
        code=Code.CANCELLED,
        reopened=_BY_NAME,
        weight=3,
        tell="The work could not go on. What it had done stays done; once the cause is mended, "
        "somebody can let it go on.",
    ),
}
"""What each reason means."""

GOES_ON: Final = "The work goes on, or was interrupted and can be taken up again."
"""For the user, of a run that has not stopped."""


def stands(standing: StopReason | None, new: StopReason, /) -> bool:
    """Whether a stop takes the place of one that stands; the heavier does, of equals the first."""
    return standing is None or STOPS[new].weight > STOPS[standing].weight


def reason_named(name: str, /) -> StopReason:
    """Read a reason.

    Raises:
        UsageError: there is none of that name; names those there are.
    """
    try:
        return StopReason(name)
    except ValueError:
        known = ", ".join(StopReason)
        raise UsageError(f"a run does not stop for {name!r}; the reasons are {known}") from None


_WAYS: Final = {
    Through.SUBMIT: "another answer of the model",
    Through.SAY: "a new message of the user (run.say)",
    Through.BUDGET: "a larger budget",
    Through.RESUME: "somebody who says so by name (run.resume)",
}


def how_it_goes_on(reason: StopReason, /) -> str:
    """Name all that reopens a run, for the host."""
    return " or ".join(_WAYS[way] for way in Through if way in STOPS[reason].reopened)


def refusal(reason: StopReason, detail: str, code: Code, /) -> Failure:
    """Word why a call is not run that was asked for when the run had stopped."""
    return Failure(
        code=code,
        message=f"Not started, because {stopped_text(reason, detail)}",
        hint=(
            "Ask for no more calls: say what you have found out, and what is left to be done. The "
            f"run goes on through {how_it_goes_on(reason)}."
        ),
    )


def stopped_text(reason: StopReason, detail: str, /) -> str:
    """Say that a run has stopped, as the rest of a sentence."""
    about = f": {detail}" if detail else ""
    return f"the run has stopped ({reason}){about}" + (
        "" if about.endswith(("?", "!", ".")) else "."
    )


class Reserve(msgspec.Struct, frozen=True, kw_only=True):
    """What of a budget is kept back, so that the model can still sum up when it is used up."""

    turns: int = 1
    """Answers of the model."""
    tokens: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            UsageError: it is negative, or no turn at all.
        """
        if self.turns < 1 or self.tokens < 0:
            raise UsageError(
                f"a reserve of {self.turns} turns and {self.tokens} tokens holds no last summary; "
                "give 1 turn or more, and 0 tokens or more (None for no reserve)"
            )

    def left(self, limit: float, kept_back: float, /, *, last: bool) -> float:
        """Say how much of a limit may be used.

        Args:
            limit: of the budget; `math.inf` where it was lifted.
            kept_back: `turns` or `tokens` of this reserve, by what the limit is of.
            last: whether it is for the last summary: then all of it.
        """
        return limit if last else max(limit - kept_back, 0.0)
