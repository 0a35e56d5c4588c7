"""Lints: what is called unreachable never changes a verdict, and what is plain is seen."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from laneway.claims import Access, Claim
from laneway.effects import Effect
from laneway.policies.conditions import Rule
from laneway.policies.inclusion import at_or_below, glob_covers
from laneway.policies.lint import Finding, Lint, label, lint
from laneway.policies.modes import Mode, known_modes
from laneway.policies.rulefile import read_rule_file
from laneway.policies.rules import Decision, Policy, Question

ALLOW, ASK, DENY = Decision.ALLOW, Decision.ASK, Decision.DENY
OWN = [
    Mode("careful", frozenset({Effect.READ, Effect.WRITE}), ASK),
    Mode("timid", frozenset({Effect.PURE}), ASK),
]
MODES = known_modes(OWN)
NEVER_HEARD = {Lint.UNREACHABLE, Lint.SHADOWED, Lint.DUPLICATE}

# what is random

texts = st.text("ab/.", max_size=4) | st.sampled_from(["a/../b", "../a", "true", "1", "1.0"])
globs = st.text("ab*?/", min_size=1, max_size=3) | st.sampled_from(["*", "a/*", "a*", "a/../*"])
regexes = st.sampled_from(["a", "^a", "b$", "a|bb", "[^a]b?", "^$"])
scalars = st.sampled_from([0, 1, 1.0, True, False, None, "", "a", "ab"])
equal = scalars | st.lists(scalars, max_size=2)
patterns = st.one_of(
    globs,
    st.sampled_from([0, 1, True]),
    st.lists(globs | st.integers(0, 1), min_size=1, max_size=2),
    st.fixed_dictionaries({"glob": globs | st.lists(globs, min_size=1, max_size=2)}),
    st.fixed_dictionaries({"glob": globs, "missing": st.booleans()}),
    st.fixed_dictionaries({"regex": regexes, "missing": st.booleans()}),
    st.fixed_dictionaries({"equals": equal, "missing": st.booleans()}),
    st.just({"missing": True}),
)
paths = st.sampled_from(["x", "y", "*", "x.a", "x[*]"])
levels = st.sampled_from(["a", "b", "*", "a*", "?", "**"])
claim_patterns = st.builds(
    lambda word, scheme, path: f"{word}{scheme}:/{'/'.join(path)}",
    st.sampled_from(["", "read ", "write "]),
    st.sampled_from(["file", "file", "file", "db", "lane"]),
    st.lists(levels, max_size=3),
)


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    decision = draw(st.sampled_from(list(Decision)))
    return Rule(
        decision,
        tools=draw(st.lists(st.text("ab*?", min_size=1, max_size=2), max_size=2)) or ["*"],
        effects=draw(st.lists(st.sampled_from(list(Effect)), max_size=2)),
        modes=draw(st.lists(st.sampled_from(sorted(MODES)), max_size=2)),
        arguments=draw(st.dictionaries(paths, patterns, max_size=1)),
        claims=draw(st.lists(claim_patterns, max_size=1)),
        without_asking=decision is ALLOW and draw(st.booleans()),
    )


@st.composite
def rule_lists(draw: st.DrawFn) -> list[Rule]:
    """Rules of which some are made from others, so that coverage is no rare luck."""
    drawn = draw(st.lists(rules(), min_size=1, max_size=3))
    for _ in range(draw(st.integers(0, 3))):
        source, fresh = draw(st.sampled_from(drawn)), draw(rules())
        kept = draw(st.sets(st.sampled_from(["tools", "effects", "modes", "arguments", "claims"])))
        decision = draw(st.sampled_from([source.decision, fresh.decision]))
        drawn.append(
            msgspec.structs.replace(
                fresh,
                decision=decision,
                without_asking=fresh.without_asking and decision is ALLOW,
                **{name: getattr(source, name) for name in kept},
            )
        )
    shuffled = draw(st.permutations(drawn))
    return [
        msgspec.structs.replace(rule, source=f"r{at}", reason=f"because {at}")
        for at, rule in enumerate(shuffled)
    ]


leaves = texts | scalars
values = leaves | st.lists(leaves, max_size=2) | st.dictionaries(st.just("a"), leaves, max_size=1)
resources = st.builds(
    lambda scheme, path: f"{scheme}:/{'/'.join(path)}",
    st.sampled_from(["file", "file", "file", "db", "lane"]),
    st.lists(st.sampled_from(["a", "b", "ab"]), max_size=4),
)
questions = st.builds(
    Question,
    tool=st.text("ab", min_size=1, max_size=2),
    arguments=st.none() | st.dictionaries(st.sampled_from(["x", "y"]), values, max_size=2),
    effect=st.sampled_from(list(Effect)),
    mode=st.sampled_from([*MODES, "nowhere"]),
    claims=st.lists(st.builds(Claim, resources, st.sampled_from(list(Access))), max_size=2).map(
        tuple
    ),
    declared=st.booleans(),
    asks=st.booleans(),
)


def policy(given_rules: Sequence[Rule], otherwise: Decision) -> Policy:
    return Policy(given_rules, otherwise=otherwise, modes=OWN)


def without(given_rules: Sequence[Rule], *names: str) -> list[Rule]:
    return [rule for rule in given_rules if rule.source not in names]


@settings(max_examples=400, deadline=None)
@given(rule_lists(), st.sampled_from(list(Decision)), st.lists(questions, min_size=20, max_size=40))
def test_what_is_called_unreachable_or_shadowed_never_changes_a_verdict(
    given_rules: list[Rule], otherwise: Decision, asked: list[Question]
) -> None:
    whole = policy(given_rules, otherwise)
    silent = [
        finding.rule
        for finding in lint(given_rules, MODES, otherwise)
        if finding.lint in NEVER_HEARD
    ]
    fewer = [policy(without(given_rules, name), otherwise) for name in silent]
    fewer.append(policy(without(given_rules, *silent), otherwise))
    event(f"{len(silent)} rules are silent")

    for question in asked:
        verdict = whole.decide(question)
        assert all(one.decide(question) == verdict for one in fewer)


@settings(max_examples=300, deadline=None)
@given(rule_lists(), st.sampled_from(list(Decision)), st.lists(questions, min_size=20, max_size=40))
def test_what_is_said_to_have_no_effect_never_changes_a_decision(
    given_rules: list[Rule], otherwise: Decision, asked: list[Question]
) -> None:
    whole = policy(given_rules, otherwise)
    idle = [
        finding for finding in lint(given_rules, MODES, otherwise) if finding.lint is Lint.NO_EFFECT
    ]
    others: list[Policy] = []
    for finding in idle:
        if finding.message.startswith("without_asking"):
            plain = [
                msgspec.structs.replace(rule, without_asking=False)
                if rule.source == finding.rule
                else rule
                for rule in given_rules
            ]
            others.append(policy(plain, otherwise))
        else:
            others.append(policy(without(given_rules, finding.rule), otherwise))

    for question in asked:
        decision = whole.decide(question).decision
        assert all(one.decide(question).decision is decision for one in others)
