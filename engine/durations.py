"""How long calls of a tool take, as far as the engine has seen: what estimates are made of.

Learns from calls that have run, live ones and those of folded journals; feeds ranks, which order
calls that become ready together, and the estimates of critical paths and dry runs. An estimate is
never a limit: nothing is stopped or refused for it.
"""

from typing import TYPE_CHECKING, Any

import msgspec

from laneway.states import State

if TYPE_CHECKING:
    from laneway.journal.fold import RunView

LONGEST_SECONDS = 7 * 86_400.0
"""A longer span is rather the difference of two machines' clocks than a call."""

_MOST_EXACT = 10_000
_encode = msgspec.json.Encoder(order="sorted").encode

_MOST_WEIGHT = 32.0
"""Of what is known against one more call: the mean follows a tool that has become slower or faster,
and one call in 32 that hangs until its limit does not decide alone."""


class Durations:
    """What one engine expects, by tool.

    Its memory grows with the tools that ran, no further; of single calls a bounded number is kept.

    A running mean whose weight is capped: the first calls count alike, so that two or three are a
    fair estimate (an exponential mean alone would keep most of the first one, the cold start, for
    long), and from the 32nd on it is an exponential mean with a weight of 1/32.
    """

    __slots__ = ("_exact", "_known", "_typical")

    def __init__(self) -> None:
        """Know nothing."""
        self._exact: dict[tuple[str, bytes], float] = {}
        """By tool and arguments: how long the last such call took, the latest last."""
        self._known: dict[str, list[float]] = {}
        """By tool: the mean in seconds, and its weight."""
        self._typical: float | None = None
        """The mean over all tools, until something else is learnt."""

    def learn(self, tool: str, seconds: float) -> None:
        """Take in how long a call took that ran to its end.

        Args:
            tool: that ran; never a name that only a model has said.
            seconds: from 0 to a week; anything else is no duration, and is not taken in.
        """
        if not 0.0 <= seconds <= LONGEST_SECONDS:
            return
        self._typical = None
        known = self._known.get(tool)
        if known is None:
            self._known[tool] = [seconds, 1.0]
            return
        mean, weight = known
        if weight < _MOST_WEIGHT:
            known[1] = weight = weight + 1.0
        known[0] = mean + (seconds - mean) / weight

    def learn_call(self, tool: str, arguments: Any, seconds: float) -> None:
        """Take in how long a call with these arguments took, too: the same plan may come again.

        Costs an encoding of the arguments; the last 10,000 are kept.
        """
        if not 0.0 <= seconds <= LONGEST_SECONDS:
            return
        key = tool, _encode(arguments)
        self._exact.pop(key, None)
        self._exact[key] = seconds
        if len(self._exact) > _MOST_EXACT:
            del self._exact[next(iter(self._exact))]

    def learn_from(self, view: "RunView") -> None:
        """Take in the calls of a run that succeeded.

        A failure says little of how long the work takes. A call that somebody settled ended when
        that was said, perhaps on another machine's clock.
        """
        ranked = {turn.number for turn in view.turns if turn.edges}
        for call in view.calls.values():
            if (
                call.state is State.SUCCEEDED
                and call.settled is None
                and call.started is not None
                and call.ended is not None
            ):
                seconds = call.ended - call.started
                self.learn(call.record.tool, seconds)
                if call.turn in ranked:
                    self.learn_call(call.record.tool, call.record.arguments, seconds)

    def expect_call(self, tool: str, arguments: Any) -> float:
        """Say how long a call with these arguments will take, in seconds.

        Returns:
            What the last such call took; else what the tool's calls take.
        """
        found = self._exact.get((tool, _encode(arguments))) if self._exact else None
        return self.expect(tool) if found is None else found

    def expect(self, tool: str) -> float:
        """Say how long a call of the tool will take, in seconds.

        Returns:
            The mean of the tool; of one that never ran, the mean over all tools that did; 1.0
            where nothing is known at all.
        """
        known = self._known.get(tool)
        if known is not None:
            return known[0]
        if self._typical is None:
            means = [mean for mean, _ in self._known.values()]
            self._typical = sum(means) / len(means) if means else 1.0
        return self._typical

    def __len__(self) -> int:
        """Count the tools of which something is known."""
        return len(self._known)
