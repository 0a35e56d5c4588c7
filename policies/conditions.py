"""A rule, and the tests that it comes to.

What a rule says of tool, effect and mode is settled once for each kind of call; what it says of
arguments and claims is tested for each call. Reads patterns; feeds the policy.
"""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from laneway.effects import Effect
from laneway.policies.arguments import ArgumentCondition, argument_condition, flatten
from laneway.policies.commands import CommandsCondition, commands_condition
from laneway.policies.fitting import CallTest, Need, call_test, need_of
from laneway.policies.globs import TextTest, glob_regex, text_test
from laneway.policies.names import closest
from laneway.policies.questions import Decision, Question, Verdict
from laneway.policies.resources import ClaimsCondition, claims_condition


class Rule(msgspec.Struct, frozen=True):
    """A decision for all calls that meet every condition given; a list offers alternatives."""

    decision: Decision
    tools: Sequence[str] = ()
    """Globs over the name."""
    servers: Sequence[str] = ()
    """Globs over the MCP server that the tool is of; a tool of none fits no pattern."""
    agents: Sequence[str] = ()
    """Globs over the named agent that the tool is; a tool that is none fits no pattern."""
    risks: Sequence[str] = ()
    """Globs over what the tool says of its risk; one that says nothing fits no pattern."""
    effects: Sequence[Effect] = ()
    modes: Sequence[str] = ()
    arguments: Mapping[str, object] = {}
    """Path → pattern, as `laneway.policies.arguments.argument_condition` reads them."""
    claims: Sequence[str] = ()
    """Patterns as `laneway.policies.resources.claims_condition` reads them."""
    commands: Sequence[str] = ()
    """Globs over commands, as `laneway.policies.commands.commands_condition` reads them."""
    name: str = ""
    reason: str = ""
    """For the model, and for the human who is asked."""
    source: str = ""
    """Where it is written, such as `policy.toml:12`."""
    without_asking: bool = False
    """On allow: also without the question that the tool itself wants asked."""
    approvers: int = 1
    """On ask: how many different people must grant it."""
    ask_each_time: bool = False
    """On ask: what was granted for later calls does not hold for these."""


class RuleFault(ValueError):
    """A rule that cannot be meant; the caller adds the place."""

    def __init__(self, keys: tuple[str, ...], fault: str) -> None:
        """Name the key in the rule, as a path, and the fault."""
        self.keys = keys
        super().__init__(fault)


class Compiled(msgspec.Struct, frozen=True, kw_only=True):
    """A rule, ready to be applied."""

    decision: Decision
    verdict: Verdict
    tools: TextTest | None
    """None for every tool."""
    origins: Sequence[tuple[str, TextTest]]
    """Tests of what a question says of the tool's server, agent and risk, by field."""
    effects: frozenset[str]
    modes: frozenset[str]
    test: CallTest | None
    """None where arguments, claims and commands play no part."""
    doubt: CallTest | None
    """Whether a denial may be due, and only a human can tell."""
    doubted: Verdict
    """What is said then."""
    need: Need | None
    tool_patterns: Sequence[str]
    without_asking: bool
    approvers: int = 1
    ask_each_time: bool = False

    def concerns(self, question: Question, effect: Effect) -> bool:
        """Whether the rule may apply to such calls at all.

        Args:
            question: Any question of the kind.
            effect: What it counts as: a tool that declares nothing is external.
        """
        if (self.effects and effect not in self.effects) or (
            self.modes and question.mode not in self.modes
        ):
            return False
        for field, fits in self.origins:
            said: str = getattr(question, field)
            if not said or not fits(said):
                return False
        return self.tools is None or self.tools(question.tool)


def compile_rule(rule: Rule, label: str, modes: Collection[str], /) -> Compiled:
    """Check a rule and build its tests.

    Args:
        rule: The rule.
        label: What verdicts call it.
        modes: The names of modes that exist.

    Raises:
        RuleFault: it cannot be read, applies to nothing, or applies to everything unsaid.
    """
    if not any(getattr(rule, field) for field in CONDITIONS):
        raise RuleFault((), 'it applies to every call; if that is meant, say tools = ["*"]')
    for key, text in (("name", rule.name), ("reason", rule.reason)):
        if not _is_whole(text):
            raise RuleFault((key,), f"{key} holds half a character, which no journal can keep")
    check_names("decision", "decision", [rule.decision], list(Decision))
    grants = rule.decision == Decision.ALLOW
    if rule.without_asking and not grants:
        raise RuleFault(("without_asking",), "without_asking belongs to rules that allow")
    _check_asking(rule)
    check_names("effects", "effect", rule.effects, list(Effect))
    check_names("modes", "mode", rule.modes, modes)
    arguments = _on_arguments(rule, grants=grants)
    claims = _on_claims(rule, grants=grants)
    commands = _on_commands(rule, grants=grants)
    decision = Decision(rule.decision)
    fits, doubt = call_test(arguments, claims, commands, decision)
    return Compiled(
        decision=decision,
        verdict=Verdict(decision, label, rule.reason or _REASONS[decision]),
        tools=_on_names("tools", rule.tools),
        origins=_on_origins(rule),
        effects=frozenset(rule.effects),
        modes=frozenset(rule.modes),
        test=fits,
        doubt=doubt,
        doubted=Verdict(Decision.ASK, label, _DOUBT),
        need=need_of(arguments, claims, commands),
        tool_patterns=tuple(rule.tools),
        without_asking=rule.without_asking,
        approvers=rule.approvers,
        ask_each_time=rule.ask_each_time,
    )


def _check_asking(rule: Rule) -> None:
    if type(rule.approvers) is not int or rule.approvers < 1:
        fault = f"approvers must be a whole number of 1 or more, not {rule.approvers!r}"
        raise RuleFault(("approvers",), fault)
    for key, said in (("approvers", rule.approvers > 1), ("ask_each_time", rule.ask_each_time)):
        if said and rule.decision != Decision.ASK:
            raise RuleFault((key,), f"{key} belongs to rules that ask")


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_names(key: str, kind: str, names: Sequence[str], known: Collection[str], /) -> None:
    """Refuse names that do not exist.

    Raises:
        RuleFault: the first of them, with the closest that does.
    """
    for name in _several(key, names):
        if name not in known:
            raise RuleFault((key,), f"unknown {kind} {name!r}{closest(name, known)}")


CONDITIONS = (
    "tools", "servers", "agents", "risks", "effects", "modes", "arguments", "claims", "commands"
)  # fmt: skip
"""The fields of a rule that say which calls it is about."""
_DOUBT = (
    "a rule of the policy denies some commands, and one of them may hide in this line, of which "
    "not all that runs is known before it runs; a human decides"
)
_REASONS = {
    Decision.ALLOW: "a rule of the policy allows this call",
    Decision.ASK: "a rule of the policy wants a human to approve this call",
    Decision.DENY: "a rule of the policy denies this call",
}


def _several(key: str, patterns: Sequence[str]) -> Sequence[str]:
    if isinstance(patterns, str):
        raise RuleFault((key,), f"{key} must be a list, not the text {patterns!r}")
    return patterns


def _on_names(key: str, names: Sequence[str]) -> TextTest | None:
    patterns = _several(key, names)
    try:
        return text_test([glob_regex(pattern) for pattern in patterns]) if patterns else None
    except ValueError as error:
        raise RuleFault((key,), f"{key}: {error}") from None


def _on_origins(rule: Rule) -> Sequence[tuple[str, TextTest]]:
    found = [
        ("server", _on_names("servers", rule.servers)),
        ("agent", _on_names("agents", rule.agents)),
        ("risk", _on_names("risks", rule.risks)),
    ]
    return tuple((field, fits) for field, fits in found if fits)


def _on_arguments(rule: Rule, *, grants: bool) -> Sequence[ArgumentCondition]:
    conditions: list[ArgumentCondition] = []
    for path, pattern in flatten(rule.arguments):
        try:
            conditions.append(argument_condition(path, pattern, grants=grants))
        except ValueError as error:
            keys = ("arguments", *path.split("."))
            raise RuleFault(keys, f"arguments.{path}: {error}") from None
    return conditions


def _on_claims(rule: Rule, *, grants: bool) -> ClaimsCondition | None:
    patterns = _several("claims", rule.claims)
    try:
        return claims_condition(patterns, grants=grants) if patterns else None
    except ValueError as error:
        raise RuleFault(("claims",), f"claims: {error}") from None


def _on_commands(rule: Rule, *, grants: bool) -> CommandsCondition | None:
    patterns = _several("commands", rule.commands)
    try:
        return commands_condition(patterns, grants=grants) if patterns else None
    except ValueError as error:
        raise RuleFault(("commands",), f"commands: {error}") from None
