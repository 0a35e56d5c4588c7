"""Compaction as a host's loop has it: before each request, as much as needed, and never a crash.

    compaction = Compaction(limit_tokens=150_000, keep_tokens=40_000, summarise=ask_a_model)
    …
    messages = await compaction(messages)

Old results are emptied first; only if that is too little is the older part summarised. A summary
that fails leaves the history as it was, and after three failures in a row none is tried any more:
else each turn would pay for another request that fails.
"""

import inspect
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from laneway.engine.history.compacting import carried_out, planned, summarised, whole
from laneway.engine.history.estimate import tokens
from laneway.engine.history.parts import Message
from laneway.engine.history.pruning import pruned
from laneway.engine.history.wires import Given, given
from laneway.errors import UsageError

FAILURES_MAX = 3

Summarise = Callable[[list[Message]], str | Awaitable[str]]


class Compaction:
    """Compacts one conversation. What it returns is what the next call is to be given."""

    def __init__(
        self,
        *,
        limit_tokens: int,
        keep_tokens: int | None = None,
        summarise: Summarise | None = None,
        protected_turns: int = 2,
        keep_tools: Collection[str] = (),
        format: str = "",  # noqa: A002 - what it is called everywhere
    ) -> None:
        """Say when and how.

        Args:
            limit_tokens: a history that is estimated at more is compacted.
            keep_tokens: what stays as it is, counted from the end; a third of the limit if None.
            summarise: from the messages that are left out to a text; may be a coroutine function.
                An outline of what was said and called, if None.
            protected_turns: answers of the model, counted from the last, whose results are never
                emptied.
            keep_tools: tools whose results are never emptied.
            format: of the history; told from its messages if empty.

        Raises:
            UsageError: the limits make no sense.
        """
        keep = max(limit_tokens // 3, 1) if keep_tokens is None else keep_tokens
        if not 0 < keep < limit_tokens:
            raise UsageError(
                f"keep_tokens={keep} of limit_tokens={limit_tokens}: what stays must be less than "
                "the limit, and more than nothing"
            )
        self.limit_tokens = limit_tokens
        self.keep_tokens = keep
        self.failures = 0
        """In a row."""
        self.error = ""
        """Why the last attempt failed; empty if it did not."""
        self._summarise = summarise
        self._protected_turns = protected_turns
        self._keep_tools = frozenset(keep_tools)
        self._format = format

    @property
    def given_up(self) -> bool:
        """Whether nothing is tried any more, after three failures in a row."""
        return self.failures >= FAILURES_MAX

    def reset(self) -> None:
        """Try again."""
        self.failures, self.error = 0, ""

    async def __call__(self, history: Any) -> Any:
        """Compact a history if it is too long.

        Returns:
            The shorter history; the given one, untouched, if it is short enough, if nothing can be
            left out, or if that failed (`error` says why).

        Raises:
            HistoryError: it cannot be read.
        """
        if self.given_up:
            return history
        read = given(history, self._format)
        before = tokens(list(read.messages))
        if before <= self.limit_tokens:
            return history
        try:
            found = await self._compacted(read, before)
        except Exception as error:  # noqa: BLE001 - the host's code, a model behind it
            self.failures += 1
            self.error = f"{type(error).__name__}: {error}"
            return history
        self.reset()
        return read.back(found)

    async def _compacted(self, history: Given, before: int) -> tuple[Message, ...]:
        sound = whole(history)
        slim = given(
            pruned(
                sound,
                keep_tokens=self.keep_tokens,
                protected_turns=self._protected_turns,
                least_tokens=1,
                keep_tools=self._keep_tools,
            ),
            history.wire.name,
        )
        if tokens(list(slim.messages)) <= self.limit_tokens:
            return slim.messages
        cut = planned(sound, keep=None, keep_tokens=self.keep_tokens)
        if cut is None:
            raise ValueError("nothing can be left out: what stays is one piece")
        told = summarised(cut, None) if self._summarise is None else self._summarise(cut.left_out)
        if inspect.isawaitable(told):
            told = await told
        if not str(told).strip():
            raise ValueError("the summary is empty")
        found = tuple(carried_out(sound, cut, told))
        if tokens(list(found)) >= before:
            raise ValueError("nothing would be saved: the summary is as long as its messages")
        return found
