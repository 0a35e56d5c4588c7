"""The policy that a recording tells of, where the host gives none: each call judged as it was.

Also reads from a recorded denial which rule it was.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from laneway.engine.failures import POSSIBLE_EFFECT, asks_now
from laneway.ids import CallId
from laneway.outcomes import Failure
from laneway.policies.modes import Mode
from laneway.policies.questions import Decision, Question, Verdict
from laneway.policies.rules import Policy

if TYPE_CHECKING:
    from laneway.engine.reexecution.evidence import Evidence

STARTED_BEFORE = f" It had been started before. {POSSIBLE_EFFECT}"
ASKS = asks_now(Verdict(Decision.ASK, "", "")).hint
ALLOWED = Verdict(Decision.ALLOW, "default", "")


class RecordedPolicy(Policy):
    """Says again of each call what was said of it."""

    def __init__(self, evidence: "Evidence", who: Callable[[Any], CallId | None]) -> None:
        """Judge by what is recorded.

        Args:
            evidence: of the driver whose policy it stands for.
            who: finds the call by the very arguments that are judged.
        """
        super().__init__()
        self._evidence = evidence
        self._who = who

    def decide(self, question: Question, /) -> Verdict:
        """Judge one call as it was judged."""
        name = self._who(question.arguments)
        if name is None:  # A plan is judged before it is part of any turn.
            record = self._evidence.said(question.tool, question.arguments)
            name = None if record is None else record.id
        return ALLOWED if name is None else self._evidence.verdicts.get(name, ALLOWED)

    def mode(self, name: str, /) -> Mode:
        """Take any mode: what it limits is in the verdicts."""
        return Mode(name)


def verdict_of(failure: Failure, rule: str = "") -> Verdict:
    """Read a verdict from the denial that it came to.

    Args:
        failure: with the code POLICY_DENIED.
        rule: as the fact names it; read from the message if empty.
    """
    message = _CHANGED.sub("", failure.message.removesuffix(STARTED_BEFORE))
    at = _opening(message)
    found = message[at + 1 : -1] if at >= 0 else ""
    reason = message[: max(at - 1, 0)] if at >= 0 else message
    decision = Decision.ASK if failure.hint == ASKS else Decision.DENY
    return Verdict(decision, rule or found, reason)


_CHANGED = re.compile(r"; \S+ is in mode .* now\.$")
"""What is said of a call that another mode of its run has ended."""


def rule_name(rule: str) -> str:
    """What a rule is called: its name where it has one, else where it stands."""
    at = _opening(rule)
    return rule[at + 1 : -1] if at > 0 else rule


def _opening(text: str) -> int:
    """Find the bracket that the last one closes; -1 where the text ends with none."""
    if not text.endswith(")"):
        return -1
    depth = 0
    for at in range(len(text) - 1, -1, -1):
        depth += (text[at] == ")") - (text[at] == "(")
        if not depth:
            return at
    return -1
