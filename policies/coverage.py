"""Whether one rule matches all that another matches: sound, not complete.

A yes is proof; a no says only that nobody could tell. A condition that is not known here may differ
from any other, so a rule with one covers nothing. Reads rules and modes; feeds the lints.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from laneway.effects import Effect
from laneway.policies.arguments import flatten
from laneway.policies.conditions import Rule
from laneway.policies.inclusion import (
    Values,
    claims_cover,
    glob_covers,
    values_cover,
    values_of,
)
from laneway.policies.modes import Mode
from laneway.policies.paths import Each, Step, parse_path
from laneway.policies.questions import Decision

Kind = tuple[Effect, str]
"""An effect, and the name of a mode; empty for a mode that the policy does not know."""

UNKNOWN_MODE = ""

SEVERITY = (Decision.ALLOW, Decision.ASK, Decision.DENY)

_WORDS = frozenset({"decision", "name", "reason", "source", "without_asking"})
_ORIGINS = ("servers", "agents", "risks")
"""Globs over what a tool says of itself; a tool that says nothing fits none of them."""
_CONDITIONS = frozenset({"tools", "effects", "modes", "arguments", "claims", *_ORIGINS})


def covers(wide: Rule, narrow: Rule, kinds: Iterable[Kind], /) -> bool:
    """Whether `wide` matches every call of these kinds that `narrow` matches.

    Args:
        wide: The rule that must cover; not less strict than the other.
        narrow: The rule that must be covered.
        kinds: All that count, as `heard_kinds` gives them.
    """
    return (
        SEVERITY.index(wide.decision) >= SEVERITY.index(narrow.decision)
        and not strange_conditions(wide)
        and all(concerns(wide, kind) for kind in kinds)
        and _names_cover(wide.tools, narrow.tools or ["*"])
        and _origins_cover(wide, narrow)
        and _claims_cover(wide, narrow)
        and _arguments_cover(wide, narrow)
    )


def heard_kinds(rule: Rule, modes: Mapping[str, Mode], otherwise: Decision, /) -> Collection[Kind]:
    """Give the kinds of calls in which a rule is heard at all if it matches.

    A rule that denies always is. One that asks is not where the mode denies; one that allows is
    not where the mode denies, either, nor where the mode asks and calls without a rule may run.
    """
    found: set[Kind] = set()
    for effect in Effect:
        for name in (*modes, UNKNOWN_MODE):
            limit = modes[name].decide(effect) if name in modes else Decision.DENY
            if concerns(rule, (effect, name)) and _is_heard(rule.decision, limit, otherwise):
                found.add((effect, name))
    return found


def concerns(rule: Rule, kind: Kind, /) -> bool:
    """Whether a rule may match calls of a kind, as far as effect and mode go."""
    effect, mode = kind
    return (not rule.effects or effect in rule.effects) and (not rule.modes or mode in rule.modes)


def strange_conditions(rule: Rule, /) -> Collection[str]:
    """Name what a rule says beyond what is understood here."""
    plain = type(rule)(rule.decision)
    others = set(rule.__struct_fields__) - _WORDS - _CONDITIONS
    # An empty list says as little as none, whatever its type.
    return {
        name
        for name in others
        if (said := getattr(rule, name)) != (unsaid := getattr(plain, name)) and (said or unsaid)
    }


def same_conditions(one: Rule, other: Rule, /) -> bool:
    """Whether two rules are written alike, but for name, reason and place."""
    return _bare(one) == _bare(other)


def _bare(rule: Rule) -> Rule:
    return msgspec.structs.replace(
        rule,
        tools=sorted(set(rule.tools)),
        effects=sorted(set(rule.effects)),
        modes=sorted(set(rule.modes)),
        claims=sorted(set(rule.claims)),
        name="",
        reason="",
        source="",
    )


def _is_heard(decision: Decision, limit: Decision, otherwise: Decision) -> bool:
    if decision == Decision.DENY or limit is Decision.ALLOW:
        return True
    asks_anyway = decision == Decision.ALLOW and otherwise is not Decision.DENY
    return limit is Decision.ASK and not asks_anyway


def _names_cover(wide: Sequence[str], narrow: Sequence[str]) -> bool:
    return not wide or all(any(glob_covers(one, other) for one in wide) for other in narrow)


def _origins_cover(wide: Rule, narrow: Rule) -> bool:
    for field in _ORIGINS:
        said: Sequence[str] = getattr(wide, field, ())
        other: Sequence[str] = getattr(narrow, field, ())
        if said and not (other and _names_cover(said, other)):
            return False
    return True


def _claims_cover(wide: Rule, narrow: Rule) -> bool:
    return not wide.claims or (
        bool(narrow.claims)
        and claims_cover(
            wide.claims,
            narrow.claims,
            wide_grants=_grants(wide),
            narrow_grants=_grants(narrow),
        )
    )


def _arguments_cover(wide: Rule, narrow: Rule) -> bool:
    known = [(parse_path(path), values_of(what)) for path, what in flatten(narrow.arguments)]
    return all(
        any(
            _leads_there(wide, parse_path(path), steps, values)
            and values_cover(values_of(what), values, wide_grants=_grants(wide))
            for steps, values in known
        )
        for path, what in flatten(wide.arguments)
    )


def _leads_there(
    wide: Rule, path: tuple[Step, ...], other: tuple[Step, ...], values: Values
) -> bool:
    """Whether a value at the end of the other path is one at the end of this, too."""
    if path == other:
        return True
    # `*` means every value of every argument, and a refusal needs only one.
    return path == (Each(),) and not (_grants(wide) or values.missing or values.whole)


def _grants(rule: Rule) -> bool:
    return rule.decision == Decision.ALLOW
