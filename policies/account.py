"""Why a policy answers as it does: every rule, whether it matches, and what is not met if not.

Each condition of a rule is put to a policy that consists of it alone, so this cannot disagree with
the policy itself, and holds for conditions that are not known here. Reads rules and a question;
feeds `laneway policy explain` and `laneway policy test`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from laneway.claims import Claim
from laneway.effects import Effect
from laneway.errors import PolicyError
from laneway.policies.arguments import flatten
from laneway.policies.conditions import Rule
from laneway.policies.lint import label
from laneway.policies.modes import Mode
from laneway.policies.paths import ABSENT, ends, leaves, parse_path
from laneway.policies.patterns import text_of
from laneway.policies.rules import Decision, Policy, Question, Verdict

_LONGEST = 80
_WORDS = frozenset({"decision", "name", "reason", "source", "without_asking"})


class RuleAccount(msgspec.Struct, frozen=True, kw_only=True):
    """What one rule makes of a call."""

    rule: str
    """As verdicts name it."""
    decision: Decision
    matches: bool
    unmet: str = ""
    """The first condition that is not met, and why; empty if it matches."""
    decides: bool = False
    """Whether the verdict names it."""


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """How a verdict came about."""

    rules: Sequence[RuleAccount]
    """All, in the order of writing."""
    mode: Verdict
    """What the mode alone says."""
    tool: Verdict
    """What the tool alone says."""
    verdict: Verdict


def account(
    policy: Policy, rules: Sequence[Rule], modes: Mapping[str, Mode], question: Question, /
) -> Account:
    """Explain a verdict.

    Args:
        policy: What decides.
        rules: Its rules, in the order of writing.
        modes: All modes that it knows, by name.
        question: The call.
    """
    verdict = policy.decide(question)
    heard: list[RuleAccount] = []
    for position, rule in enumerate(rules):
        name = label(rule, position)
        unmet = next(_unmet(rule, question), "")
        heard.append(
            RuleAccount(
                rule=name,
                decision=rule.decision,
                matches=not unmet,
                unmet=unmet,
                decides=not unmet and is_named(verdict.rule, name),
            )
        )
    return Account(rules=heard, mode=_mode(modes, question), tool=_tool(question), verdict=verdict)


def is_named(by: str, rule: str, /) -> bool:
    """Whether a verdict was given by a rule: meant by its name, its place, or both.

    Args:
        by: What the verdict names; the name of a layer may stand before it.
        rule: `no-prod`, `policy.toml:12`, `policy.toml:12 (no-prod)`, `mode plan`, `default`.
    """
    return any(
        own == rule or own.endswith(f" ({rule})") or own.startswith(f"{rule} (")
        for own in (by, by.partition(": ")[2])
    )


def _mode(modes: Mapping[str, Mode], question: Question) -> Verdict:
    name = f"mode {question.mode}"
    if question.mode not in modes:
        return Verdict(Decision.DENY, name, f"the policy has no mode {question.mode!r}")
    effect, why = _effect(question)
    decision = modes[question.mode].decide(effect)
    return Verdict(decision, name, f"the call is {effect}{why}")


def _tool(question: Question) -> Verdict:
    if question.asks:
        return Verdict(Decision.ASK, "tool asks", "it is declared to ask for each call")
    return Verdict(Decision.ALLOW, "tool", "it is not declared to ask")


def _effect(question: Question) -> tuple[Effect, str]:
    if question.declared:
        return question.effect, ""
    return Effect.EXTERNAL, ", as a tool that declares nothing is"


def _unmet(rule: Rule, question: Question) -> Iterator[str]:
    """Give the conditions that are not met, in the order of the fields of a rule."""
    for field in rule.__struct_fields__:
        if field in _WORDS or not getattr(rule, field):
            continue
        if field == "arguments":
            for path, pattern in flatten(rule.arguments):
                if not meets(rule, field, {path: pattern}, question):
                    yield f"arguments.{path}: {_on_argument(rule, path, pattern, question)}"
        elif field == "modes":
            if question.mode not in rule.modes:
                yield f"modes: the run is in mode {question.mode}, not in {_either(rule.modes)}"
        elif not meets(rule, field, getattr(rule, field), question):
            yield f"{field}: {_on(rule, field, question)}"


def meets(rule: Rule, field: str, condition: Any, question: Question) -> bool:
    """Ask a policy that consists of one condition, in a mode that lets everything pass."""
    given: dict[str, Any] = {field: condition}
    alone = type(rule)(rule.decision, source="alone", **given)
    otherwise = Decision.DENY if rule.decision == Decision.ALLOW else Decision.ALLOW
    try:
        policy = Policy([alone], otherwise=otherwise)
    except PolicyError:  # it is no condition, so it is met
        return True
    asked = msgspec.structs.replace(question, mode="build", asks=False)
    return policy.decide(asked).rule == "alone"


def _on(rule: Rule, field: str, question: Question) -> str:
    match field:
        case "tools":
            return f"{question.tool} does not fit {_either(rule.tools)}"
        case "effects":
            effect, why = _effect(question)
            return f"the call is {effect}{why}, not {_either(rule.effects)}"
        case "claims":
            return _on_claims(rule, question.claims)
        case _:
            return f"the call does not fit {_short(getattr(rule, field))}"


def _on_claims(rule: Rule, claims: Sequence[Claim]) -> str:
    if not claims:
        return "the call claims nothing"
    taken = _short(", ".join(map(str, claims)))
    if rule.decision == Decision.ALLOW:
        return f"not all of {taken} is covered by {_either(rule.claims)}"
    return f"none of {taken} meets {_either(rule.claims)}"


def _on_argument(rule: Rule, path: str, pattern: object, question: Question) -> str:
    if question.arguments is None:
        return "the arguments are not known, so nothing is allowed for their sake"
    found = [leaf for end in ends(question.arguments, parse_path(path)) for leaf in leaves(end)]
    there = [text_of(leaf) for leaf in found if leaf is not ABSENT]
    if not there:
        return "there is no such argument"
    wanted = _short(pattern)
    if len(found) == 1:
        return f"{_short(there[0])} does not fit {wanted}"
    few = "not all" if rule.decision == Decision.ALLOW else "none"
    return f"{few} of {_short(', '.join(there))} fits {wanted}"


def _either(texts: Sequence[str]) -> str:
    return _short(" or ".join(texts))


def _short(value: object) -> str:
    text = value if isinstance(value, str) else _json(value)
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def _json(value: object) -> str:
    return msgspec.json.encode(cast("Any", value), enc_hook=repr).decode()
