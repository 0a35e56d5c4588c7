"""What a policy comes to for one kind of call: a short list of tests and an end.

Made once for each tool, mode and effect; the policy keeps it and only runs down it for each call.
Reads the voices that count and the probes of their tests; feeds the policy.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from laneway.policies.conditions import CallTest
from laneway.policies.globs import TextTest
from laneway.policies.precedence import Voice
from laneway.policies.probes import Probe, texts_for
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
    probed: Sequence[tuple[str | None, Sequence[tuple[TextTest, Sequence[int]]]]] = ()
    """What to look at → probes, each with the positions of the steps that it speaks of."""
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

    def _possible(self, question: Question) -> Sequence[int]:
        possible = list(self.unprobed)
        for argument, probes in self.probed:
            texts = texts_for(question, argument)
            for fits, positions in probes:
                if texts is None:
                    possible += positions
                    continue
                for text in texts:
                    if fits(text):
                        possible += positions
                        break
        possible.sort()
        return possible


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
    covered: set[int] = set()
    by_argument: dict[str | None, list[tuple[TextTest, Sequence[int]]]] = {}
    for probe, positions in spoken_for.items():
        if len(positions) >= _WORTH_A_PROBE:
            by_argument.setdefault(probe.argument, []).append((probe.fits, tuple(positions)))
            covered.update(positions)
    return Sheet(
        steps,
        end,
        tuple((argument, tuple(tests)) for argument, tests in by_argument.items()),
        tuple(position for position in range(len(steps)) if position not in covered),
    )
