"""Grants: leave that a human gave for later calls of one tool, and what is asked all the same.

A grant takes the place of an answer, and of nothing else: it is looked at only where the verdict is
ask. Reads grants as the journal keeps them, and rules; feeds the engine, which alone may give one.
"""

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from laneway.effects import Effect
from laneway.errors import UsageError
from laneway.facts import Grant
from laneway.policies.arguments import ArgumentCondition, argument_condition, flatten
from laneway.policies.conditions import Compiled
from laneway.policies.modes import Mode
from laneway.policies.questions import Decision, Question


class Demands(msgspec.Struct, frozen=True):
    """What is wanted of the answer, by everybody who wants the call to be asked about."""

    approvers: int = 1
    """Different people who must grant it; the most that anybody wants."""
    each_time: bool = False
    """No answer to another call holds for this one."""

    def __or__(self, other: "Demands") -> "Demands":
        """Want what either wants."""
        return Demands(
            max(self.approvers, other.approvers), each_time=self.each_time or other.each_time
        )


def demands(question: Question, rules: Iterable[Compiled], mode: Mode | None, /) -> Demands:
    """Say what the rules that ask about a call, and its mode, want of the answer.

    A mode that asks is a limit, which no earlier answer lifts: it asks each time.
    """
    effect = question.effect if question.declared else Effect.EXTERNAL
    wanted = Demands(each_time=mode is None or mode.decide(effect) is Decision.ASK)
    for rule in rules:
        if rule.decision is not Decision.ASK:
            continue
        if not rule.concerns(question, effect):
            continue
        if rule.test is None or rule.test(question):
            wanted |= Demands(rule.approvers, each_time=rule.ask_each_time)
    return wanted


def grant(tool: str, tool_version: str, pattern: Mapping[str, Any] | None = None, /) -> Grant:
    """Make a grant, once its pattern has been read.

    Args:
        tool: its name.
        tool_version: the grant ends with it.
        pattern: path → pattern over the arguments, as those of a rule that allows; None for all.

    Raises:
        UsageError: the pattern cannot be read, or holds nothing.
    """
    if pattern is not None:
        _conditions(pattern)
    return Grant(tool=tool, tool_version=tool_version, pattern=pattern)


def covers(given: Grant, tool: str, tool_version: str, arguments: Mapping[str, Any], /) -> bool:
    """Say whether a call needs no further answer: every path of the pattern must fit."""
    if (given.tool, given.tool_version) != (tool, tool_version):
        return False
    return given.pattern is None or all(
        one.test(arguments) for one in _conditions(cast("Mapping[str, Any]", given.pattern))
    )


def _conditions(pattern: Mapping[str, Any]) -> list[ArgumentCondition]:
    if not pattern:
        raise UsageError(
            "a grant with an empty pattern says nothing; name arguments ({'path': 'src/*'}), or "
            "give it for all calls of the tool in this run"
        )
    found: list[ArgumentCondition] = []
    for path, one in flatten(pattern):
        try:
            found.append(argument_condition(path, one, grants=True))
        except ValueError as error:
            raise UsageError(f"the pattern of the grant, {path}: {error}") from None
    return found
