"""Hosts where nobody answers: what becomes of a call that a policy wants a human asked about.

Reads the verdict and its question; feeds the engine. It turns a question into a no, or into a yes
that the host declared beforehand. It changes no other verdict and counts nothing.
"""

import msgspec

from laneway.effects import Effect
from laneway.errors import UsageError
from laneway.policies.commands import lines_of
from laneway.policies.names import closest
from laneway.policies.questions import Decision, Question, Verdict


class Unattended(msgspec.Struct, frozen=True):
    """Nobody is there to ask: each question is answered no, but for effects named here.

    What a tool itself wants asked (`approval=True`), what a tool that declares nothing does, and a
    command line of which not all is known before it runs, is denied in any case.
    """

    allowed: frozenset[Effect] = frozenset()
    """Calls of these effects run without the question; never `external`."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            UsageError: there is no such effect, or it is `external`: what leaves the system is
                allowed by a rule, or not at all.
        """
        for effect in self.allowed:
            if effect not in list(Effect):
                known = closest(str(effect), list(Effect))
                raise UsageError(f"Unattended: unknown effect {effect!r}{known}")
        if Effect.EXTERNAL in self.allowed:
            raise UsageError(
                "Unattended: what is external may leave the system, so no question about it is "
                "answered yes in advance; write a rule that allows what is meant"
            )

    def settle(self, verdict: Verdict, question: Question, /) -> Verdict:
        """Answer for the human who is not there; any verdict but ask stays as it is."""
        if verdict.decision is not Decision.ASK:
            return verdict
        rule = f"{verdict.rule}, unattended"
        if self._may_pass(question):
            told = f"{verdict.reason}; nobody is there to ask, and {question.effect} calls may run"
            return Verdict(Decision.ALLOW, rule, told)
        return Verdict(Decision.DENY, rule, f"{verdict.reason}, and nobody is there to be asked")

    def may_allow(self, question: Question, /) -> bool:
        """Whether a call of this kind may run without the question, if all of it is known."""
        return not question.asks and question.declared and question.effect in self.allowed

    def _may_pass(self, question: Question) -> bool:
        if not self.may_allow(question):
            return False
        if not question.command_lines:
            return True
        arguments = question.arguments
        return arguments is not None and all(line.plain for line in lines_of(question, arguments))
