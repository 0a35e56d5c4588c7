"""One look at a text for many rules: which of them can fit at all?

A hundred rules over one argument would be a hundred tests for each call. Patterns of several rules
make one automaton, which costs no more than one of them; only where it fits are its rules tested.
Reads compiled rules; feeds the sheets.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from laneway.policies.arguments import texts_in
from laneway.policies.conditions import CallTest, Compiled
from laneway.policies.globs import TextTest, text_test
from laneway.policies.questions import Question

RULES_PER_PROBE = 16
"""A miss costs one automaton for each so many rules, a hit at most so many tests."""


class Probe(msgspec.Struct, frozen=True, eq=False):
    """Speaks for a few rules: where it finds nothing, none of them fits."""

    argument: str | None
    """Where to look: in an argument, or, for None, in the resources of the claims."""
    fits: TextTest


def probes_of(rules: Iterable[Compiled], /) -> Mapping[CallTest, Probe]:
    """Give the tests of rules to probes: those over the same tools and argument together."""
    waiting: dict[tuple[Sequence[str], str | None], list[Compiled]] = {}
    probes: dict[CallTest, Probe] = {}
    for rule in rules:
        if rule.need is None:
            continue
        key = (rule.tool_patterns, rule.need.argument)
        group = waiting.setdefault(key, [])
        group.append(rule)
        if len(group) == RULES_PER_PROBE:
            probes |= _probe(waiting.pop(key))
    for group in waiting.values():
        probes |= _probe(group)
    return probes


def texts_for(question: Question, argument: str | None, /) -> Sequence[str] | None:
    """Give the texts that a probe looks at; None if they are not known."""
    if argument is None:
        return [claim.resource for claim in question.claims]
    arguments = question.arguments
    return None if arguments is None else texts_in(arguments, argument)


def _probe(rules: Sequence[Compiled]) -> Mapping[CallTest, Probe]:
    needs = [rule.need for rule in rules if rule.need]
    try:
        probe = Probe(needs[0].argument, text_test([need.regex for need in needs]))
    except ValueError:  # together they are too large: each is tested for itself
        return {}
    return {rule.test: probe for rule in rules if rule.test}
