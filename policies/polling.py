"""Tools that are asked again and again by design: how soon, and how often without news.

Reads what a tool declares (`@tool(poll_seconds=…, poll_count=…)`) and how the last answers to the
same question were; feeds the engine, in place of the detectors of `laneway.policies.loops`.
"""

from laneway.ids import CallId
from laneway.policies.findings import OTHERWISE, Finding, Stage
from laneway.policies.lately import Calls
from laneway.policies.sameness import digest_of_results

POLL_COUNT = 100
"""How often a tool that only says how soon may bring the same."""


class Poll:
    """One question to a tool that is polled, and how its answers were."""

    __slots__ = ("calls", "count", "result", "settled", "turn")

    def __init__(self) -> None:
        """Start before the first call."""
        self.calls: list[tuple[Calls, CallId]] = []
        """Those of the last answer of the model that asked it."""
        self.turn = 0
        """Which answer that was."""
        self.count = 0
        """How many answers in a row have brought the same result."""
        self.result: bytes | None = None
        self.settled = True
        """Whether the last one has been counted."""

    def add(self, turn: int, call: tuple[Calls, CallId]) -> None:
        """Take in a call that was let pass."""
        if turn != self.turn:
            self.settle()
            self.turn, self.calls, self.settled = turn, [], False
        self.calls.append(call)

    def settle(self) -> int:
        """Count the last answer, once; gives how many in a row have brought the same by now."""
        if not self.settled:
            found = [calls.get(name) for calls, name in self.calls]
            result = digest_of_results(None if call is None else call.outcome for call in found)
            same = result is not None and result == self.result
            self.count = self.count + 1 if same else int(result is not None)
            self.result, self.settled = result, True
        return self.count


def too_often(
    tool: str, count: int, since_seconds: float, *, every_seconds: float, most: int
) -> Finding | None:
    """Look at one more question before it is asked.

    Args:
        tool: its name.
        count: how many times in a row it has brought the same.
        since_seconds: since the last answer ended; infinite where there is none.
        every_seconds: how soon it may be asked again.
        most: how often it may bring the same.
    """
    if count >= most:
        return Finding(
            stage=Stage.BLOCK,
            detector="repeat",
            message=f"{tool} has brought the same result {count} times in a row, which is as often "
            "as it may be asked without news. It was not run again.",
            hint=OTHERWISE,
        )
    if since_seconds < every_seconds:
        return Finding(
            stage=Stage.BLOCK,
            detector="poll",
            message=f"{tool} was asked the same {since_seconds:.1f} s ago; it may be asked every "
            f"{every_seconds:g} s.",
            hint=f"Ask again in {every_seconds - since_seconds:.1f} s, and do something else "
            "meanwhile.",
            retry=True,
        )
    return None
