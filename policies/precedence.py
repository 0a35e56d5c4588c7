"""Who has a say about a kind of call, the strictest first.

Rules, the mode and the tool's own wish meet here. Deny beats ask, and ask beats allow; among
those who say the same, rules come first, in the order of writing, then the mode, then the tool.
Reads compiled rules and modes; feeds the sheets.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from laneway.effects import Effect
from laneway.policies.conditions import Compiled
from laneway.policies.fitting import CallTest
from laneway.policies.modes import Mode
from laneway.policies.questions import Decision, Question, Verdict

Voice = tuple[CallTest | None, Verdict]
"""A verdict, and the test under which it is given; None for always."""
TOOL_ASKS: Final = "tool asks"
"""What verdicts call the tool's own wish."""


def voices(
    question: Question, rules: Iterable[Compiled], mode: Mode | None, otherwise: Verdict, /
) -> Iterator[Voice]:
    """List the voices in the order in which they are heard; the first without a test closes.

    Args:
        question: Any question of this kind.
        rules: All rules, in the order of writing.
        mode: The question's mode, None if there is no such mode: then nothing passes.
        otherwise: The verdict where no rule matches.
    """
    effect = question.effect if question.declared else Effect.EXTERNAL
    concerned = [rule for rule in rules if rule.concerns(question, effect)]
    limit, wish = _limit(question, mode), _wish(question)
    yield from _own(concerned, Decision.DENY)
    if limit and limit.decision is Decision.DENY:
        yield None, limit
    yield from _asking(concerned)
    yield from _the_rest(concerned, limit, wish, otherwise)


def _the_rest(
    rules: Sequence[Compiled], limit: Verdict | None, wish: Verdict | None, otherwise: Verdict
) -> Iterator[Voice]:
    """No rule denies or asks: an allowed call still asks if the mode or the tool wants it."""
    at_least = limit or wish
    if at_least is None:
        yield from _own(rules, Decision.ALLOW)
    else:
        if limit is None:
            yield from _own([rule for rule in rules if rule.without_asking], Decision.ALLOW)
        if otherwise.decision is not Decision.DENY:
            yield None, at_least
        yield from ((fits, at_least) for fits, _ in _own(rules, Decision.ALLOW))
    yield None, otherwise


def _own(rules: Iterable[Compiled], decision: Decision) -> Iterator[Voice]:
    return ((rule.test, rule.verdict) for rule in rules if rule.decision is decision)


def _asking(rules: Iterable[Compiled]) -> Iterator[Voice]:
    """Rules that ask, and those that may deny and cannot tell."""
    for rule in rules:
        if rule.decision is Decision.ASK:
            yield rule.test, rule.verdict
        elif rule.doubt is not None:
            yield rule.doubt, rule.doubted


def _limit(question: Question, mode: Mode | None) -> Verdict | None:
    name = f"mode {question.mode}"
    if mode is None:
        return Verdict(Decision.DENY, name, f"the policy has no mode {question.mode!r}")
    effect = question.effect if question.declared else Effect.EXTERNAL
    counted = "" if question.declared else "; it declares nothing, so it counts as external"
    match mode.decide(effect):
        case Decision.ALLOW:
            return None
        case Decision.ASK:
            reason = f"in mode {mode.name} a human approves each {effect} call"
            return Verdict(
                Decision.ASK, name, f"{reason}, and {question.tool} is {effect}{counted}"
            )
        case Decision.DENY:
            reason = f"mode {mode.name} allows no {effect} call"
            return Verdict(
                Decision.DENY, name, f"{reason}, and {question.tool} is {effect}{counted}"
            )


def _wish(question: Question) -> Verdict | None:
    if not question.asks:
        return None
    reason = f"{question.tool} is declared to ask for approval of each call"
    return Verdict(Decision.ASK, TOOL_ASKS, reason)
