"""What a run, or a tree of runs, has asked for lately: bounded, and cheap where nothing repeats.

Reads calls as they are let pass, and what they came to once somebody asks; feeds the detectors of
`laneway.policies.loops`. Of one answer the same calls are one entry: the model has not seen a
result in between.
"""

from collections import deque
from collections.abc import Mapping
from typing import Protocol

import msgspec

from laneway.ids import CallId
from laneway.outcomes import Failure, Outcome
from laneway.policies.sameness import digest_of_results


class Ended(Protocol):
    """A call that may have an outcome by now."""

    @property
    def outcome(self) -> Outcome | None:
        """What it came to; None while it is open."""
        ...


Calls = Mapping[CallId, Ended]
"""Where the outcome of a call will be found."""


class Entry(msgspec.Struct, eq=False, gc=False):
    """One or more calls of an answer that are the same."""

    key: bytes
    """What it is the same by; see `sameness.key_of`."""
    tool: str
    turn: int
    """Of which answer, by a number that only tells answers apart."""
    effect: bool
    """Whether such a call changes anything."""
    fresh: bool
    """Whether nothing in the window was the same when it was asked for."""
    where: Calls
    """Where the outcome of its first call will be found, with the name of that."""
    name: CallId
    more: tuple[tuple[Calls, CallId], ...] = ()
    """Of the same answer."""
    told: bytes | None = None
    """What its results are the same by, once that is known."""

    @property
    def count(self) -> int:
        """How many calls it stands for."""
        return 1 + len(self.more)

    @property
    def outcomes(self) -> list[Outcome | None]:
        """What its calls came to."""
        found = [calls.get(name) for calls, name in ((self.where, self.name), *self.more)]
        return [None if call is None else call.outcome for call in found]

    @property
    def result(self) -> bytes | None:
        """What results are the same by; None while one is open, or says nothing."""
        if self.told is None:
            self.told = digest_of_results(self.outcomes)
        return self.told

    @property
    def is_progress(self) -> bool:
        """Whether it was a new effect, as far as is known: one that did not do nothing."""
        return (
            self.effect
            and self.fresh
            and any(
                not isinstance(outcome, Failure) or outcome.happened != "nothing"
                for outcome in self.outcomes
            )
        )


class Lately:
    """The last calls, the same ones of an answer taken together."""

    __slots__ = ("added", "answer", "entries", "few", "latest", "least", "size", "turn", "warned")

    def __init__(self, size: int, least: float = 0.0) -> None:
        """Start empty.

        Args:
            size: how many entries are kept.
            least: how many of them should be different ones.
        """
        self.size = size
        self.least = least
        self.entries: deque[Entry] = deque()
        self.latest: dict[bytes, Entry] = {}
        """The last entry by key: as many as there are different ones."""
        self.few = False
        """All places are taken, and fewer than `least` of them by different calls: it is worth a
        look whether their results were."""
        self.turn = 0
        """The number of the answer that is being looked at."""
        self.answer: object = None
        """What that answer is known by: another object is another answer."""
        self.added = 0
        """Entries so far."""
        self.warned = -size
        """When the model was last told how little of it is new, in entries so far."""

    def begin(self, answer: object) -> None:
        """Look at another answer from here on, unless it is the same."""
        if answer is not self.answer:
            self.answer = answer
            self.turn += 1

    def add(
        self,
        key: bytes,
        tool: str,
        known: Entry | None,
        call: tuple[Calls, CallId],
        *,
        effect: bool,
    ) -> None:
        """Take in a call that was let pass, of the answer that is being looked at.

        Args:
            key: what it is the same by.
            tool: its name.
            known: the last entry of the key, if there is one.
            call: where its outcome will be found.
            effect: whether it changes anything.
        """
        if known is not None and known.turn == self.turn:
            known.more = (*known.more, call)
            known.told = None
            return
        entry = Entry(key, tool, self.turn, effect, known is None, *call)
        self.latest[key] = entry
        self.entries.append(entry)
        self.added += 1
        if len(self.entries) < self.size:
            return
        if len(self.entries) > self.size:
            oldest = self.entries.popleft()
            if self.latest[oldest.key] is oldest:
                del self.latest[oldest.key]
        self.few = len(self.latest) < self.least

    def clear(self) -> None:
        """Forget all of it."""
        self.entries.clear()
        self.latest.clear()
        self.few = False
        self.warned = self.added - self.size

    def copy(self) -> "Lately":
        """Another one that goes on from here."""
        other = Lately(self.size, self.least)
        other.entries, other.latest = self.entries.copy(), self.latest.copy()
        other.turn, other.answer, other.few = self.turn, self.answer, self.few
        return other
