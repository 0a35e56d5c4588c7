"""The nodes of the hierarchy: who is in, who waits, and who may pass, level by level.

The half of the lane table for resources. A waiter that is *clear* at a node, since nobody older
stands in its way there, counts like a holder against whoever comes later; whoever may go ahead of
it takes that back. So a node need not know its members, only how many are clear in each mode, the
queues of those that are not, and which of the clear ones still wait elsewhere.

A nested request does not count what its ancestors hold, and so stands in a queue of its own.
"""

from collections import OrderedDict
from heapq import heapify, heappop, heapreplace
from typing import Generic

from laneway.lanes.modes import CONFLICTS, HELD_AGAINST, MODES, UNIT, WAITING
from laneway.lanes.requests import PLACES, Order, Owner, Queue, Request, by_order, clear, remove

_MODE = PLACES - 1
"""Of a queue's key: the mode."""
_BARS = tuple(sum(1 << other for other in CONFLICTS[mode]) for mode in MODES)
"""By mode: the modes that must not pass a waiter for it, as bits."""


class Nodes(Generic[Owner]):
    """The words and the queues, by level. A level lasts as long as its last request."""

    def __init__(self) -> None:
        """Start with no one in."""
        self.words: dict[str, int] = {}
        self._queues: dict[str, dict[int, Queue[Owner]]] = {}
        """By level: by kind and mode."""
        self._clear: dict[str, dict[int, dict[Request[Owner], None]]] = {}
        """By level and mode: the waiters that are clear there; while that is asked for."""
        self.indexed = False
        """Whether somebody has gone ahead of others since the lanes were last empty."""

    def enter_ahead(self, request: Request[Owner]) -> None:
        """Let a newcomer in that goes ahead of some, or does not count what its ancestors hold."""
        for level, mode, unit, _ in request.nodes:
            if level in self._clear:
                self._take_back(level, mode, request)
            self.words.setdefault(level, 0)
            if self._is_barred(level, mode, request) or self._waits_before(level, mode, request):
                self.queue(level, mode, request)
            else:
                self.words[level] += unit

    def keep(self, request: Request[Owner]) -> None:
        """Note where a newcomer that has to wait is clear."""
        for level, mode, _, _ in request.nodes:
            if not self._is_queued(level, mode, request):
                self._note(level, mode, request)

    def begin(self, request: Request[Owner]) -> None:
        """A waiter has become a holder."""
        for level, mode, _, _ in request.nodes:
            self._forget(level, mode, request)

    def withdraw(self, request: Request[Owner], ready: list[Request[Owner]]) -> None:
        """Take a waiter out, wherever it stands."""
        for level, mode, unit, _ in request.nodes:
            if self._is_queued(level, mode, request):
                self._unqueue(level, mode, request)
            else:
                self.words[level] -= unit
                self._forget(level, mode, request)
            word = self.words[level]
            if word & WAITING:
                self.admit(level, ready)
            elif not word:
                del self.words[level]

    def awaited(self, request: Request[Owner]) -> bool:
        """Whether anybody waits at a node of this holder for what it keeps out."""
        return any(self.words[level] & WAITING & _BARS[mode] for level, mode, _, _ in request.nodes)

    def first_behind(self, part: Request[Owner]) -> Order | None:
        """Find the oldest of those in the way of a nested newcomer that wait for an ancestor."""
        found = [
            head.order
            for level, mode, _, _ in part.nodes
            for key, queue in self._queues.get(level, {}).items()
            if key & _MODE in CONFLICTS[mode]
            and (head := next(iter(queue))).order < part.order
            and _waits_for_family(head, key & _MODE, level, part)
        ]
        return min(found, default=None)

    def _take_back(self, level: str, mode: int, ahead: Request[Owner]) -> None:
        """Let those wait again that are clear, not in yet, and now come later."""
        kept = self._clear[level]
        for its_mode in CONFLICTS[mode].intersection(kept):
            later = [waiter for waiter in kept[its_mode] if waiter.order > ahead.order]
            later.sort(key=by_order, reverse=True)
            for waiter in later:
                self._forget(level, its_mode, waiter)
                self.words[level] -= UNIT[its_mode]
                # All that are queued of a kind are younger than any of it that was clear.
                self.queue(level, its_mode, waiter).move_to_end(waiter, last=False)

    def _waits_before(self, level: str, mode: int, request: Request[Owner]) -> bool:
        queues = self._queues.get(level)
        return queues is not None and any(
            key & _MODE in CONFLICTS[mode] and next(iter(queue)).order < request.order
            for key, queue in queues.items()
        )

    def queue(self, level: str, mode: int, request: Request[Owner]) -> Queue[Owner]:
        """Let it wait at a node."""
        queues = self._queues.get(level)
        if queues is None:
            queues = self._queues[level] = {}
        key = request.kind | mode
        queue = queues.get(key)
        if queue is None:
            queue = queues[key] = OrderedDict()
        queue[request] = None
        self.words[level] |= 1 << mode
        request.pending += 1
        return queue

    def _is_queued(self, level: str, mode: int, request: Request[Owner]) -> bool:
        return request in self._queues.get(level, {}).get(request.kind | mode, ())

    def _unqueue(self, level: str, mode: int, request: Request[Owner]) -> None:
        queues = self._queues[level]
        if remove(queues, request.kind | mode, request):
            if all(key & _MODE != mode for key in queues):
                self.words[level] ^= 1 << mode
            if not queues:
                del self._queues[level]

    def _note(self, level: str, mode: int, request: Request[Owner]) -> None:
        self._clear.setdefault(level, {}).setdefault(mode, {})[request] = None

    def _forget(self, level: str, mode: int, request: Request[Owner]) -> None:
        kept = self._clear.get(level, {})
        if request in kept.get(mode, ()):
            del kept[mode][request]
            if not kept[mode]:
                del kept[mode]
            if not kept:
                del self._clear[level]

    def admit(self, level: str, ready: list[Request[Owner]]) -> None:
        """Let all in that have become clear at this node, the oldest first.

        The heads of the queues are taken in their order. One that cannot go, be it for a holder or
        for an older head that cannot go either, bars all later ones that conflict with it.
        """
        queues = self._queues[level]
        if len(queues) == 1:
            self._admit_alike(level, *next(iter(queues.items())), ready)
            return
        heads = [(next(iter(queue)).order, key) for key, queue in queues.items()]
        heapify(heads)
        barred = 0
        while heads and barred != WAITING:
            key = heads[0][1]
            mode = key & _MODE
            oldest = next(iter(queues[key]))
            if barred & 1 << mode or self._is_barred(level, mode, oldest):
                barred |= _BARS[mode]
                heappop(heads)
                continue
            self._let_in(level, mode, oldest, ready)
            if key in queues:
                heapreplace(heads, (next(iter(queues[key])).order, key))
            else:
                heappop(heads)

    def _admit_alike(
        self, level: str, key: int, queue: Queue[Owner], ready: list[Request[Owner]]
    ) -> None:
        """Let in who may go where all that wait are of one kind and mode."""
        mode = key & _MODE
        while queue and not self._is_barred(level, mode, oldest := next(iter(queue))):
            self._let_in(level, mode, oldest, ready)

    def _is_barred(self, level: str, mode: int, request: Request[Owner]) -> bool:
        """Whether a holder is in its way, or somebody who is clear."""
        word = self.words[level]
        if request.family is not None:
            word -= request.family.get(level, 0)
        return word & HELD_AGAINST[mode] != 0

    def _let_in(
        self, level: str, mode: int, request: Request[Owner], ready: list[Request[Owner]]
    ) -> None:
        self._unqueue(level, mode, request)
        self.words[level] += UNIT[mode]
        clear(request, ready)
        if self.indexed and request.pending:
            self._note(level, mode, request)


def _waits_for_family(waiter: Request[Owner], mode: int, level: str, part: Request[Owner]) -> bool:
    """Whether an ancestor of the part keeps the waiter out at a level."""
    return any(
        held in CONFLICTS[mode] and above not in waiter.ancestors()
        for above in part.ancestors()
        for its_level, held, _, _ in above.nodes
        if its_level == level
    )
