"""What watches a run for loops: the detectors of the policies, put before each call.

Reads calls that the policy lets pass, before a human is asked; gives the failure of those that are
refused, and the note that the model gets beside the result of one it is warned about. What it
remembers follows from the facts (`laneway.engine.recalling`), so that it survives the process.
"""

from math import inf
from typing import TYPE_CHECKING

from laneway.calls import LITERAL
from laneway.outcomes import Code, Failure
from laneway.policies.findings import LITTLE_NEW, Finding, Stage, stopped, stopping
from laneway.policies.lately import Calls, Entry, Lately
from laneway.policies.loops import Loops, at_once, examine
from laneway.policies.polling import POLL_COUNT, Poll, too_often
from laneway.policies.sameness import key_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from laneway.calls import CallRecord
    from laneway.engine.live import LiveCall
    from laneway.engine.spec import ToolSpec

RULE = "loops"
"""What is named as the rule that denied a call."""


class Watch:
    """Of one run: what its calls were lately, and how often it had to be told."""

    def __init__(self, loops: Loops, above: Lately | None = None) -> None:
        """Start with nothing seen.

        Args:
            loops: the limits.
            above: what the whole tree of runs has asked for, if this run is not its root.
        """
        self.loops = loops
        least = max(loops.warn_below or 0.0, loops.block_below or 0.0) * loops.window
        self.lately = Lately(loops.window, least)
        self.tree = above
        """None while the tree is but this run."""
        self.polls: dict[bytes, Poll] = {}
        self.stopped = False
        """Nothing runs any more before the user has said something."""
        self.on_stop: Callable[[Failure], None] | None = None
        """The one hook for stopping the run as NEEDS_USER_INPUT: called once, when a call is
        refused for the last time, with what the model is told."""
        self._is_root = above is None
        self._refused_in = 0
        """The last answer with a refused call."""
        self._refusals = 0
        """Answers in a row with one."""

    def heard(self) -> None:
        """The user has said something: all of it begins anew."""
        self.lately.clear()
        self.polls.clear()
        self.stopped = False
        self._refused_in = self._refusals = 0
        if self.tree is not None and self._is_root:
            self.tree.clear()

    def widen(self) -> Lately:
        """A run below this one begins: from here on the tree is watched, too."""
        if self.tree is None:
            self.tree = self.lately.copy()
        return self.tree

    # One more call

    def refuses(self, call: "LiveCall") -> Failure | None:
        """Look at a call that is about to pass; note it if it does.

        Returns:
            Why it must not run; None lets it pass, perhaps with a note for the model.
        """
        turn = call.turn
        if turn.referring is LITERAL or call.plan is not None:
            return None  # A body's own calls are a program's; a plan's are looked at one by one.
        lately, checked, tool = self.lately, call.checked, call.tool
        assert checked is not None
        assert tool is not None
        if turn is not lately.answer:
            self.enter(turn)
        key = key_of(call.record.tool, checked.arguments)
        known = lately.latest.get(key)
        plain = not (self.stopped or lately.few or tool.spec.polled) and self.tree is None
        if known is not None or not plain:
            found = stopped() if self.stopped else self._look(call, key, known)
            if found is not None and found.stage is not Stage.WARN:
                return self._refuse(call, found)
            if found is not None:
                call.note = f"[Note: {found.message} {found.hint}]"
        elif plain:  # What `passed` comes to for most calls.
            record = call.record
            effect = not record.effect.changes_nothing
            told = (call.scheduler.log.view.calls, record.id)
            lately.add(key, record.tool, None, told, effect=effect)
            return None
        self.passed(key, known, call.record, tool.spec, call.scheduler.log.view.calls, call.note)
        return None

    def _look(self, call: "LiveCall", key: bytes, known: Entry | None) -> Finding | None:
        assert call.tool is not None
        spec = call.tool.spec
        if spec.polled:
            return self._poll(call, key, spec)
        name, loops, lately = spec.name, self.loops, self.lately
        if known is not None and known.turn == lately.turn:
            return None if call.record.idempotent else at_once(name, known.count, loops)
        found: Finding | None = None
        if known is not None or lately.few:
            seen = tuple(lately.entries)
            found = examine(name, key, lately.turn, seen, loops, repeats=loops.repeats)
        if self.tree is not None and (found is None or found.stage is Stage.WARN):
            found = self._look_wider(name, key, self.tree) or found
        if found is None or found.stage is not Stage.WARN or found.detector != "diversity":
            return found
        return found if lately.added - lately.warned >= lately.size else None

    def _look_wider(self, name: str, key: bytes, tree: Lately) -> Finding | None:
        """Look at what all runs of the tree have asked for; a warning is for its own run alone."""
        tree.begin(self.lately.answer)  # Another run may have asked meanwhile.
        if key not in tree.latest and not tree.few:
            return None
        repeats = self.loops.repeats_in_tree
        seen = tuple(tree.entries)
        found = examine(name, key, tree.turn, seen, self.loops, repeats=repeats)
        return found if found is not None and found.stage is Stage.BLOCK else None

    def _poll(self, call: "LiveCall", key: bytes, spec: "ToolSpec") -> Finding | None:
        poll = self.polls.get(key)
        if poll is None or poll.turn == self.lately.turn:
            return None
        ends = [getattr(calls.get(name), "ended", None) for calls, name in poll.calls]
        now = call.scheduler.services.clock.monotonic()
        since = min((now - ended for ended in ends if ended is not None), default=inf)
        return too_often(
            spec.name,
            poll.settle(),
            since if since >= 0 else inf,
            every_seconds=spec.poll_seconds or 0.0,
            most=spec.poll_count or POLL_COUNT,
        )

    def _refuse(self, call: "LiveCall", found: Finding) -> Failure:
        call.rule = RULE
        before = self.stopped
        if not found.retry:
            self.refused()
        stops = self.stopped and not before
        if stops:
            found = stopping(found, self._refusals)
        failure = Failure(
            code=Code.LOOP_DETECTED, message=found.message, retry=found.retry, hint=found.hint
        )
        if stops and self.on_stop is not None:
            self.on_stop(failure)
        return failure

    # What follows from the facts

    def enter(self, answer: object) -> None:
        """See whose answer is being looked at: one without a refusal ends the row of them."""
        before = self.lately.turn
        self.lately.begin(answer)
        if before not in (self.lately.turn, self._refused_in) and not self.stopped:
            self._refusals = 0

    def refused(self) -> None:
        """A call of the answer that is being looked at was refused."""
        if self._refused_in != self.lately.turn:
            self._refused_in = self.lately.turn
            self._refusals += 1
            most = self.loops.stop_after
            self.stopped = self.stopped or (most is not None and self._refusals >= most)

    def passed(
        self,
        key: bytes,
        known: Entry | None,
        record: "CallRecord",
        spec: "ToolSpec | None",
        calls: Calls,
        note: str,
    ) -> None:
        """A call of the answer that is being looked at was let pass."""
        found = (calls, record.id)
        if spec is not None and spec.polled:
            self.polls.setdefault(key, Poll()).add(self.lately.turn, found)
            if len(self.polls) > self.loops.window:
                del self.polls[next(iter(self.polls))]
            return
        if note and LITTLE_NEW in note:
            self.lately.warned = self.lately.added
        effect = not record.effect.changes_nothing
        self.lately.add(key, record.tool, known, found, effect=effect)
        tree = self.tree
        if tree is not None:
            tree.begin(self.lately.answer)
            tree.add(key, record.tool, tree.latest.get(key), found, effect=effect)
