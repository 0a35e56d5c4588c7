"""What a policy comes to for one kind of call: a short list of tests and an end.

Made once for each tool, mode and effect; the policy keeps it and only runs down it for each call.
Reads the voices that count and the probes of their tests; feeds the policy.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge

import msgspec

from laneway.policies.fitting import CallTest, Place
from laneway.policies.precedence import Voice
from laneway.policies.probes import Probe, candidates, texts_for
from laneway.policies.questions import Question, Verdict

Step = tuple[CallTest, Verdict]

_WORTH_A_PROBE = 3
"""Tests that a probe must spare at least."""


class Sheet(msgspec.Struct, frozen=True):
    """All that is left to test for questions that differ in arguments and claims only."""

    steps: Sequence[Step]
    """In order; the first that fits gives the verdict."""
    end: Verdict
    """Given when none fits."""
    probed: Sequence[tuple[str | Place, Sequence[Probe]]] = ()
    """What to look at → probes."""
    positions: Mapping[CallTest, int] = {}
    """Of the steps that probes speak for."""
    unprobed: Sequence[int] = ()
    """The positions of all other steps, where there are probes."""

    def answer(self, question: Question) -> Verdict:
        """Run down the sheet."""
        steps = self.steps
        for position in self._possible(question) if self.probed else range(len(steps)):
            fits, verdict = steps[position]
            if fits(question):
                return verdict
        return self.end

    def _possible(self, question: Question) -> Iterable[int]:
        """Give the positions of steps that may fit, in order, as late as each is wanted."""
        found: list[Iterable[int]] = [self.unprobed] if self.unprobed else []
        for place, probes in self.probed:
            texts = texts_for(question, place)
            for probe in probes:
                if texts is None:
                    found.append(self._at(probe.tests))
                    continue
                fits = probe.fits
                for text in texts:
                    if fits(text):
                        found.append(self._at(candidates(probe, texts)))
                        break
        if not found:
            return ()
        return found[0] if len(found) == 1 else merge(*found)

    def _at(self, tests: Iterable[CallTest]) -> Iterator[int]:
        at = self.positions
        return (at[test] for test in tests if test in at)


def make_sheet(voices: Iterable[Voice], probes: Mapping[CallTest, Probe], /) -> Sheet:
    """Write down what is left to test, up to the first voice that needs no test."""
    steps: list[Step] = []
    for fits, verdict in voices:
        if fits is None:
            return _probed(tuple(steps), verdict, probes)
        steps.append((fits, verdict))
    raise AssertionError("the last voice needs no test")  # pragma: no cover


def _probed(steps: Sequence[Step], end: Verdict, probes: Mapping[CallTest, Probe]) -> Sheet:
    """Use the probes that spare tests."""
    spoken_for: dict[Probe, list[int]] = {}
    for position, (fits, _) in enumerate(steps):
        if fits in probes:
            spoken_for.setdefault(probes[fits], []).append(position)
    by_place: dict[str | Place, list[Probe]] = {}
    positions: dict[CallTest, int] = {}
    for probe, spared in spoken_for.items():
        if len(spared) >= _WORTH_A_PROBE:
            by_place.setdefault(probe.place, []).append(probe)
            for position in spared:  # a rule that is heard twice counts where it is heard first
                positions.setdefault(steps[position][0], position)
    return Sheet(
        steps,
        end,
        tuple((place, tuple(several)) for place, several in by_place.items()),
        positions,
        tuple(at for at, (fits, _) in enumerate(steps) if fits not in positions),
    )
