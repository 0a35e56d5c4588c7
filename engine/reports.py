"""What a stop report holds, as data: each call of the run stands in exactly one of its three lists.

Made by `reporting`; shown by `report_text`. Walls are Unix seconds; texts of the run's own are cut.
"""

from typing import Any

import msgspec

from laneway.engine.report_text import report_lines
from laneway.ids import ApprovalId, CallId, RunId
from laneway.outcomes import Code, Happened, StopReason
from laneway.states import State


class Confirmed(msgspec.Struct, frozen=True, kw_only=True):
    """A call that succeeded: what it says is so."""

    call: CallId
    tool: str
    about: str
    """Its arguments, short."""
    effect: str
    value: str
    """What it gave, short; all of it stays in the journal."""
    at_wall: float
    by: str = ""
    """Who found out that it had, where nobody saw its end."""


class Unfinished(msgspec.Struct, frozen=True, kw_only=True):
    """A call that has not succeeded, and why."""

    call: CallId
    tool: str
    about: str
    effect: str
    state: State
    code: Code | None
    """None while it is open."""
    happened: Happened | None
    cause: CallId | None
    """The call that it was skipped for."""
    why: str
    at_wall: float
    """Of its outcome; 0 while it is open."""


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """A question to a human, and who answered it."""

    approval: ApprovalId
    call: CallId
    tool: str
    about: str
    rule: str
    granted: bool | None
    """None where nobody has answered."""
    by: str
    said: str
    open: bool
    """It can still be answered."""


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """What the run has used up."""

    turns: int
    calls: int
    attempts: int
    budgets: dict[str, float]
    """What was settled, by budget, of the run without the runs within its calls; of time nothing
    is told. Costs are in US dollars."""
    set_aside: dict[str, float]
    """What is reserved and not settled, by budget."""
    limits: dict[str, float] = {}
    """How much there is, where there is a limit."""


class StopReport(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run stands: why it stopped, what is confirmed and what is not, what was used.

    `str(report)` is the text for people, the same wherever it is made and of bounded size;
    `to_json()` has all of it.
    """

    run: RunId
    reason: StopReason | None
    """None while it goes on, or was interrupted."""
    detail: str = ""
    by: str = ""
    """Who stopped it; empty for the engine itself."""
    resumable: bool = True
    """Whether it goes on once what it waits for is there; else only a person reopens it."""
    goes_on: str = ""
    """What lets it go on, for the host."""
    tell: str
    """What to tell the user."""
    summary_turns: int = 0
    """Answers of the model that are kept back for a last summary."""
    summary_tokens: int = 0
    mode: str
    confirmed: tuple[Confirmed, ...]
    """Calls that succeeded, those with effects first."""
    last_new: Confirmed | None
    """The latest of them that is not the repeat of an earlier one."""
    unfinished: tuple[Unfinished, ...]
    """Calls that are open, or ended without success and without doubt."""
    in_doubt: tuple[Unfinished, ...]
    """Calls of which only a human can say what they did to the world."""
    used: Used
    approvals: tuple[Answered, ...]
    warnings: tuple[str, ...]

    def to_json(self) -> str:
        """All of it, as one JSON document."""
        return msgspec.json.encode(self).decode()

    def __str__(self) -> str:
        """Write it for people; long lists are cut, and say so."""
        return "\n".join(report_lines(self))


def brief(value: Any, longest: int = 80) -> str:
    """Write a value on one line, cut where it is long; a text as it is."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    line = " ".join(text[: 4 * longest].split())
    return line if len(line) <= longest and len(text) <= 4 * longest else line[: longest - 1] + "…"


def about(arguments: Any) -> str:
    """Write the arguments of a call on one line."""
    if isinstance(arguments, dict):
        given: dict[str, Any] = arguments  # pyright: ignore[reportUnknownVariableType] - it is JSON
        return brief(", ".join(f"{name}={brief(value, 40)}" for name, value in given.items()), 100)
    return "" if arguments is None else brief(arguments)
