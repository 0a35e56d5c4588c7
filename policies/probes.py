"""One look at a text for many rules: which of them can fit at all?

A hundred rules over one argument would be a hundred tests for each call. Patterns of several rules
make one automaton, which costs no more than one of them; only where it fits are its halves asked,
and at last the rules themselves. Reads compiled rules; feeds the sheets.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from laneway.policies.arguments import texts_in
from laneway.policies.commands import texts_for_probe
from laneway.policies.conditions import Compiled
from laneway.policies.fitting import CallTest, Place
from laneway.policies.globs import text_test
from laneway.policies.questions import Decision, Question

SIZE = 128
"""How many rules a probe speaks for: a miss costs one automaton for so many. Each probe is halved
down to a few, so that one that fits is found in about as many looks as its size has bits."""
_FEW = 4


class Probe:
    """Speaks for a few rules of one decision: where it finds nothing, none of them fits."""

    __slots__ = ("_rules", "fits", "halves", "is_last", "place", "tests")

    def __init__(self, place: str | Place, rules: "Sequence[tuple[CallTest, str]]") -> None:
        """Speak for some rules.

        Args:
            place: Where to look: in an argument, or elsewhere.
            rules: In the order of writing: their tests, and what must fit there if one does.

        Raises:
            ValueError: Together they are too large.
        """
        self.place = place
        self.fits = text_test(dict.fromkeys(regex for _, regex in rules))
        """Looks at one text."""
        self.tests = tuple(test for test, _ in rules)
        """Those that it speaks for, in the order of writing."""
        self._rules = rules
        self.is_last = len(rules) <= _FEW
        """Whether it speaks for so few that it isn't halved."""
        self.halves: tuple[Probe, Probe] | None = None
        """Two that speak for half of them each; made when one of the rules is looked for."""

    def halve(self) -> "tuple[Probe, Probe]":
        """Make the halves."""
        middle = len(self._rules) // 2
        first, second = self._rules[:middle], self._rules[middle:]
        self.halves = (Probe(self.place, first), Probe(self.place, second))
        return self.halves


_Group = tuple[Sequence[str], str | Place, Decision, bool]
"""What the rules of a probe have in common, so that they are heard in the order of writing."""


def probes_of(rules: Iterable[Compiled], /) -> Mapping[CallTest, Probe]:
    """Give the tests of rules to probes: those over the same tools and place together."""
    waiting: dict[_Group, list[tuple[CallTest, str]]] = {}
    probes: dict[CallTest, Probe] = {}
    doubts: list[CallTest] = []
    for rule in rules:
        if rule.doubt is not None:
            doubts.append(rule.doubt)
        if rule.need is None or rule.test is None:
            continue
        key = (rule.tool_patterns, rule.need.place, rule.decision, rule.without_asking)
        group = waiting.setdefault(key, [])
        group.append((rule.test, rule.need.regex))
        if len(group) == SIZE:
            probes |= _probes(rule.need.place, waiting.pop(key))
    for (_, place, _, _), group in waiting.items():
        probes |= _probes(place, group)
    probes |= _probes(Place.DOUBT, [(doubt, NOTHING) for doubt in doubts])
    return probes


def texts_for(question: Question, place: str | Place, /) -> Sequence[str] | None:
    """Give the texts that a probe looks at; None if they are not known, so that all may fit."""
    if place is _CLAIMS:
        return [claim.resource for claim in question.claims]
    if isinstance(place, Place):
        return texts_for_probe(question)
    arguments = question.arguments
    return None if arguments is None else texts_in(arguments, place)


def candidates(probe: Probe, texts: Sequence[str], /) -> Iterator[CallTest]:
    """Give the tests that may fit, in the order of writing, as late as each is wanted.

    Args:
        probe: One that has found something.
        texts: In these.
    """
    waiting = [(probe, True)]
    only = texts[0] if len(texts) == 1 else None
    while waiting:
        at, known = waiting.pop()
        if not known and not _finds(at, texts):
            continue
        while not at.is_last:
            left, right = at.halves or at.halve()
            if left.fits(only) if only is not None else _finds(left, texts):
                waiting.append((right, False))
                at = left
            else:  # then what was found is in the other half
                at = right
        yield from at.tests


def _finds(probe: Probe, texts: Sequence[str]) -> bool:
    fits = probe.fits
    for text in texts:  # noqa: SIM110 - any() would cost more than the one text there is
        if fits(text):
            return True
    return False


_CLAIMS = Place.CLAIMS
NOTHING = r"[^\s\S]"
"""Fits no text: where all commands are known, no doubt is left."""


def _probes(place: str | Place, rules: Sequence[tuple[CallTest, str]]) -> Mapping[CallTest, Probe]:
    if not rules:
        return {}
    try:
        probe = Probe(place, rules)
    except ValueError:  # together they are too large: each is tested for itself
        return {}
    return dict.fromkeys(probe.tests, probe)
