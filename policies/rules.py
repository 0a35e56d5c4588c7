"""The policy: an ordered list of rules, a mode, and what the tool says of itself, in one verdict.

Reads rules (as objects, or from a TOML file) and modes; feeds the engine, which asks once per call
on its final arguments, and again before each further attempt.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final, Self

import msgspec

from laneway.effects import Effect
from laneway.errors import PolicyError
from laneway.policies.conditions import Compiled, Rule, RuleFault, compile_rule
from laneway.policies.grants import Demands, demands
from laneway.policies.modes import Mode, known_modes
from laneway.policies.names import closest
from laneway.policies.precedence import voices
from laneway.policies.probes import probes_of
from laneway.policies.questions import Decision, Question, Verdict
from laneway.policies.rulefile import read_rule_file, text_and_name
from laneway.policies.sheets import Sheet, make_sheet

__all__ = ["Decision", "Policy", "Question", "Rule", "Verdict"]

DEFAULT: Final = "default"
"""What verdicts call `otherwise`."""
_SHEETS_MAX = 4096


class Policy:
    """Judges calls: deny beats ask beats allow, over all rules that match.

    The mode is a limit of its own, which no rule lifts. The tool's own wish to ask counts as ask,
    unless a rule allows `without_asking`. Among those who say what is decided, the first rule in
    the order of writing is named, then the mode, the tool, and `otherwise`.

    A policy never changes, keeps nothing of what it was asked, and may serve several engines. A
    host that judges in its own way overrides `decide`: from the question alone, without a clock,
    without waiting, and without an exception.
    """

    __slots__ = (
        "_modes",
        "_otherwise",
        "_probes",
        "_rules",
        "_sheets",
        "_written",
        "narrower_may_allow",
    )

    def __init__(
        self,
        rules: Iterable[Rule] = (),
        *,
        otherwise: Decision = Decision.ALLOW,
        modes: Iterable[Mode] = (),
        narrower_may_allow: bool = False,
    ) -> None:
        """Check and compile the rules.

        Args:
            rules: In the order in which they are named when several say the same.
            otherwise: For calls that no rule matches.
            modes: The host's own, beside plan and build.
            narrower_may_allow: Where it is one of several layers: a rule of a narrower one may
                allow what no rule here matches, whatever `otherwise` says.

        Raises:
            PolicyError: a rule or mode cannot be meant.
        """
        self.narrower_may_allow = narrower_may_allow
        """Whether `otherwise` gives way to a rule of a narrower layer."""
        if otherwise not in list(Decision):
            known = closest(otherwise, list(Decision))
            raise PolicyError("policy", f"unknown otherwise {otherwise!r}{known}")
        written = tuple(rules)
        self._modes = known_modes(modes)
        self._rules = tuple(_compile(written, self._modes))
        self._written = written
        self._probes = probes_of(self._rules)
        self._otherwise = Verdict(
            Decision(otherwise),
            DEFAULT,
            f"no rule matches this call, and the policy says: otherwise {otherwise}",
        )
        self._sheets: dict[Kind, Sheet] = {}

    @classmethod
    def from_toml(
        cls, path_or_text: str | Path, /, *, name: str = "", modes: Collection[Mode] = ()
    ) -> Self:
        """Read a policy written in TOML; docs/policies.md describes the format.

        Args:
            path_or_text: A path; a `str` with a line break in it is the text itself.
            name: What verdicts and errors call it, instead of the name of the file.
            modes: Of broader layers, which it may speak of.

        Raises:
            PolicyError: it cannot be read; the message names line, rule and fault.
        """
        text, where = text_and_name(path_or_text, name)
        file = read_rule_file(text, where, modes)
        return cls(
            file.rules,
            otherwise=file.otherwise,
            modes=file.modes,
            narrower_may_allow=file.narrower_may_allow,
        )

    @property
    def digest(self) -> str:
        """SHA-256 over what is decided and said, not where that is written; 16 hexadecimal digits.

        Empty for a policy of the host's own making, of which nobody can tell when it is another.
        """
        own = type(self)
        if own.decide is not Policy.decide or own.mode is not Policy.mode:
            return ""
        rules = [msgspec.structs.replace(rule, source="") for rule in self._written]
        modes = [self._modes[name] for name in sorted(self._modes)]
        said = msgspec.json.encode(
            [rules, modes, self._otherwise.decision, *([True] if self.narrower_may_allow else [])],
            enc_hook=repr,
            order="deterministic",
        )
        return sha256(said).hexdigest()[:16]

    def decide(self, question: Question, /) -> Verdict:
        """Judge one call."""
        sheet = self._sheets.get(
            (
                question.tool,
                question.mode,
                question.effect,
                question.declared,
                question.asks,
                question.server,
                question.agent,
                question.risk,
            )
        )  # kind_of(question), written out: a call of it would double the price
        if sheet is None:
            sheet = self._prepare(question)
        return sheet.answer(question) if sheet.steps else sheet.end

    def possible(self, question: Question, /) -> frozenset[Decision]:
        """Say what may become of calls that differ from this one in arguments and claims only.

        A tool of which nothing but deny is possible need not be shown to the model. Of a policy of
        the host's own making nothing is known, so everything is possible.
        """
        if type(self).decide is not Policy.decide:
            return frozenset(Decision)
        sheet = self._sheet(question)
        return frozenset([sheet.end.decision, *(said.decision for _, said in sheet.steps)])

    def _sheet(self, question: Question, /) -> Sheet:
        """Give what is left to test for calls of this kind."""
        return self._sheets.get(kind_of(question)) or self._prepare(question)

    def may_grant(self, question: Question, /) -> bool:
        """Whether a rule allows some calls of this kind."""
        if type(self).decide is not Policy.decide:
            return True
        sheet = self._sheet(question)
        said = [sheet.end, *(verdict for _, verdict in sheet.steps)]
        return any(one.decision is Decision.ALLOW and not self.is_default(one) for one in said)

    def is_default(self, verdict: Verdict, /) -> bool:
        """Whether a verdict of this policy was given because no rule matches."""
        return verdict is self._otherwise

    @property
    def modes(self) -> Collection[Mode]:
        """All that it knows, plan and build included."""
        return self._modes.values()

    def giving_way(self) -> "Policy":
        """Make the same policy with an `otherwise` that allows."""
        own = [mode for mode in self._modes.values() if mode not in known_modes(()).values()]
        return Policy(self._written, modes=own)

    def demands(self, question: Question, /) -> Demands:
        """Say what is wanted of the answer, once `decide` has said that a human is asked."""
        return demands(question, self._rules, self._modes.get(question.mode))

    def mode(self, name: str, /) -> Mode:
        """Find a mode by its name.

        Raises:
            PolicyError: there is none; the message names those there are.
        """
        found = self._modes.get(name)
        if found is None:
            raise PolicyError(
                f"mode {name!r}", f"there is no such mode{closest(name, self._modes)}"
            )
        return found

    def _prepare(self, question: Question) -> Sheet:
        if len(self._sheets) >= _SHEETS_MAX:  # the names of tools and modes come from outside
            self._sheets.clear()
        mode = self._modes.get(question.mode)
        sheet = make_sheet(voices(question, self._rules, mode, self._otherwise), self._probes)
        self._sheets[kind_of(question)] = sheet
        return sheet


Kind = tuple[str, str, Effect, bool, bool, str, str, str]
"""What all that a rule says without a test of the call itself depends on."""


def kind_of(question: Question, /) -> Kind:
    """Say what kind of call a question is about."""
    return (
        question.tool,
        question.mode,
        question.effect,
        question.declared,
        question.asks,
        question.server,
        question.agent,
        question.risk,
    )


def _compile(rules: Iterable[Rule], modes: Mapping[str, Mode]) -> Iterator[Compiled]:
    taken: dict[str, str] = {}
    for position, rule in enumerate(rules, 1):
        source = rule.source or f"rule {position}"
        label = f"{source} ({rule.name})" if rule.name else source
        if rule.name in taken:
            raise PolicyError(label, f"the name {rule.name!r} is taken by {taken[rule.name]}")
        if rule.name:
            taken[rule.name] = source
        try:
            yield compile_rule(rule, label, modes)
        except RuleFault as fault:
            raise PolicyError(label, str(fault)) from None
