"""One look at a text for many rules: which of them can fit at all?

A hundred rules over one argument would be a hundred tests for each call. Patterns of several rules
make one automaton, which costs no more than one of them; only where it fits are smaller ones
asked, and then the rules themselves. Reads compiled rules; feeds the sheets.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from laneway.policies.arguments import texts_in
from laneway.policies.commands import texts_for_probe
from laneway.policies.conditions import Compiled
from laneway.policies.fitting import CallTest, Need, Place
from laneway.policies.globs import TextTest, text_test
from laneway.policies.questions import Question

SIZES = (128, 32, 8)
"""How many rules a probe speaks for, then each of its parts, and their parts: a miss costs one
automaton for 128 rules, a rule that fits about as many tests as four and four and eight."""


class Probe(msgspec.Struct, frozen=True, eq=False):
    """Speaks for a few rules: where it finds nothing, none of them fits."""

    place: str | Place
    """Where to look: in an argument, or elsewhere."""
    fits: TextTest
    parts: "Sequence[Probe]"
    tests: Sequence[CallTest]
    """Those that it speaks for."""


def probes_of(rules: Iterable[Compiled], /) -> Mapping[CallTest, Probe]:
    """Give the tests of rules to probes: those over the same tools and place together."""
    waiting: dict[tuple[Sequence[str], str | Place], list[tuple[CallTest, Need]]] = {}
    probes: dict[CallTest, Probe] = {}
    for rule in rules:
        if rule.need is None or rule.test is None:
            continue
        key = (rule.tool_patterns, rule.need.place)
        group = waiting.setdefault(key, [])
        group.append((rule.test, rule.need))
        if len(group) == SIZES[0]:
            probes |= _probes(waiting.pop(key))
    for group in waiting.values():
        probes |= _probes(group)
    return probes


def texts_for(question: Question, place: str | Place, /) -> Sequence[str] | None:
    """Give the texts that a probe looks at; None if they are not known."""
    if place is _CLAIMS:
        return [claim.resource for claim in question.claims]
    if isinstance(place, Place):
        return texts_for_probe(question)
    arguments = question.arguments
    return None if arguments is None else texts_in(arguments, place)


def possible(probe: Probe, texts: Sequence[str], /) -> Iterator[CallTest]:
    """Give the tests that may fit, with others that stand beside them.

    Args:
        probe: One that has found something.
        texts: In these.
    """
    if not probe.parts:
        yield from probe.tests
    for part in probe.parts:
        fits = part.fits
        if any(fits(text) for text in texts):
            yield from possible(part, texts)


_CLAIMS = Place.CLAIMS


def _probes(rules: Sequence[tuple[CallTest, Need]]) -> Mapping[CallTest, Probe]:
    probe = _probe(rules, SIZES[1:])
    return {} if probe is None else dict.fromkeys(probe.tests, probe)


def _probe(rules: Sequence[tuple[CallTest, Need]], sizes: Sequence[int]) -> Probe | None:
    try:
        fits = text_test([need.regex for _, need in rules])
    except ValueError:  # together they are too large: each is tested for itself
        return None
    parts: list[Probe] = []
    if sizes and len(rules) > sizes[0]:
        size, *smaller = sizes
        made = (_probe(rules[at : at + size], smaller) for at in range(0, len(rules), size))
        parts = [part for part in made if part is not None]  # smaller than what could be made
    elif len(sizes) > 1:
        return _probe(rules, sizes[1:])
    return Probe(rules[0][1].place, fits, tuple(parts), tuple(test for test, _ in rules))
