"""What in a policy is not what its author can have meant: rules that say nothing, or too little.

What is called unreachable, a duplicate or shadowed never changes a verdict, and what is said to
have no effect never changes a decision: nothing is said that is not sure. Reads rules and modes;
feeds `laneway policy check`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec

from laneway.policies.advice import advice_on, climbing
from laneway.policies.conditions import Rule
from laneway.policies.coverage import (
    SEVERITY,
    Kind,
    covers,
    heard_kinds,
    same_conditions,
    strange_conditions,
)
from laneway.policies.modes import Mode
from laneway.policies.questions import Decision


class Lint(StrEnum):
    """What is the matter with a rule."""

    UNREACHABLE = "unreachable"
    """It never decides and is never named."""
    SHADOWED = "shadowed"
    """A stricter rule covers all that it matches."""
    DUPLICATE = "duplicate"
    """An earlier rule says the same."""
    NO_EFFECT = "no effect"
    """What is decided would be the same without it, or without a word of it."""
    PATH_TEXT = "path as text"
    """It refuses a path by its spelling, of which there are many."""
    COMMAND_TEXT = "command as text"
    """It allows command lines by their text, which may hold more commands than meant."""
    NO_TOOL = "no such tool"
    """None of the tools that there are is meant."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to look at."""

    lint: Lint
    rule: str
    """As verdicts name it: `policy.toml:12 (no-prod)`."""
    message: str
    """What was met, and what to do."""
    by: str = ""
    """The other rule, where there is one."""


class Ruled(msgspec.Struct, frozen=True, kw_only=True):
    """What one policy, or one layer of several, says."""

    rules: Sequence[Rule]
    """In the order of writing, as they were accepted by a policy."""
    modes: Mapping[str, Mode]
    """All that there are, by name."""
    otherwise: Decision
    """For calls that no rule matches."""


Named = tuple[str, Rule]
"""A rule, behind what verdicts call it."""


def lint(ruled: Ruled, /, above: Sequence[Ruled] = ()) -> Sequence[Finding]:
    """Look through the rules of a policy.

    Args:
        ruled: What it says.
        above: Broader layers, if it is not the broadest: whatever they deny is denied.

    Returns:
        What was found, in the order of the rules.
    """
    denied = [
        (label(rule, position), rule)
        for layer in above
        for position, rule in enumerate(layer.rules)
        if rule.decision == Decision.DENY
    ]
    own = [(label(rule, position), rule) for position, rule in enumerate(ruled.rules)]
    found: list[Finding] = []
    for position, (name, rule) in enumerate(own):
        heard = [*denied, *_heard_before(own, position)]
        found += _about(rule, name, ruled, heard, broadest=not above)
    return found


def label(rule: Rule, position: int, /) -> str:
    """Name a rule as verdicts do; positions count from 0."""
    source = rule.source or f"rule {position + 1}"
    return f"{source} ({rule.name})" if rule.name else source


def _heard_before(rules: Sequence[Named], position: int) -> Sequence[Named]:
    """Give all rules that are stricter than one, then those that say the same and stand before."""
    ranks = [(-SEVERITY.index(rule.decision), at) for at, (_, rule) in enumerate(rules)]
    return [rules[at] for rank, at in sorted(ranks) if (rank, at) < ranks[position]]


def _about(
    rule: Rule, name: str, ruled: Ruled, heard: Sequence[Named], *, broadest: bool
) -> Iterator[Finding]:
    """Say what is the matter with a rule, given those that are heard before it."""
    kinds = heard_kinds(rule, ruled.modes, ruled.otherwise)
    silent = _never(rule, kinds) or _covered(rule, heard, kinds)
    if silent:
        kind, message, by = silent
        yield Finding(lint=kind, rule=name, message=message, by=by)
        return
    idle = _idle(rule, kinds, ruled) if broadest else ""  # else a layer above may rely on it
    if idle:
        yield Finding(lint=Lint.NO_EFFECT, rule=name, message=idle)
    for about_path, message in advice_on(rule):
        kind = Lint.PATH_TEXT if about_path else Lint.COMMAND_TEXT
        yield Finding(lint=kind, rule=name, message=message)


def _never(rule: Rule, kinds: Collection[Kind]) -> tuple[Lint, str, str] | None:
    if not kinds:
        message = (
            "in every mode that it applies to, the mode itself denies these effects, or asks about "
            "them, and no rule lifts a mode; change effects or modes, or remove the rule"
        )
        return Lint.UNREACHABLE, message, ""
    for path in climbing(rule):
        message = (
            f"arguments.{path} climbs with '..', and what allows a path fits none that climbs; "
            "write the path that is meant, or remove the rule"
        )
        return Lint.UNREACHABLE, message, ""
    return None


def _covered(
    rule: Rule, heard: Sequence[Named], kinds: Collection[Kind]
) -> tuple[Lint, str, str] | None:
    """Find the rule on whose account this one is never heard: the strictest, then the first."""
    for by, other in heard:
        if not covers(other, rule, kinds):
            continue
        if other.decision != rule.decision:
            message = (
                f"{by} matches all that it matches, and {other.decision} beats {rule.decision}; "
                "narrow the one or remove the other"
            )
            return Lint.SHADOWED, message, by
        if rule.without_asking and not other.without_asking:
            continue
        if same_conditions(other, rule):
            return Lint.DUPLICATE, f"{by} says the same; remove one of the two", by
        message = (
            f"{by} stands before it, says {rule.decision} too, and matches all that it matches; "
            "remove this rule, or put it first if it shall be the one that is named"
        )
        return Lint.UNREACHABLE, message, by
    return None


def _idle(rule: Rule, kinds: Collection[Kind], ruled: Ruled) -> str:
    """Say why a rule that allows changes no decision; empty if it may."""
    if rule.decision != Decision.ALLOW or strange_conditions(rule):
        return ""
    if ruled.otherwise == Decision.ALLOW and not rule.without_asking:
        return (
            "it changes no decision, for what no rule matches is allowed anyway; say otherwise = "
            '"ask" or "deny" at the top, or remove the rule'
        )
    let_through = any(
        mode in ruled.modes and ruled.modes[mode].decide(effect) == Decision.ALLOW
        for effect, mode in kinds
    )
    if rule.without_asking and not let_through:
        return (
            "without_asking changes nothing, for in every mode that the rule applies to the mode "
            "itself asks, and no rule lifts a mode; leave it out"
        )
    return ""
