"""The rule engine against a naive evaluator that knows neither sheets nor probes nor automata."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from laneway.claims import Access, Claim
from laneway.effects import Effect
from laneway.policies.modes import Mode
from laneway.policies.rules import Decision, Policy, Question, Rule

ALLOW, ASK, DENY = Decision.ALLOW, Decision.ASK, Decision.DENY
SEVERITY = [ALLOW, ASK, DENY]
MODES = {
    "plan": Mode("plan", frozenset({Effect.PURE, Effect.READ})),
    "build": Mode("build"),
    "careful": Mode("careful", frozenset({Effect.READ, Effect.WRITE}), ASK),
}


def glob(pattern: str, text: str, wild: str = "") -> bool:
    """Match by trying everything; `wild` is a character that no wildcard takes."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        more = bool(text) and text[0] != wild and glob(pattern, text[1:], wild)
        return more or glob(pattern[1:], text, wild)
    if not text or (pattern[0] == "?" and text[0] == wild):
        return False
    return pattern[0] in {"?", text[0]} and glob(pattern[1:], text[1:], wild)


def values(node: Any) -> Iterator[Any]:
    if isinstance(node, dict | list):
        inner: list[Any] = []
        inner += cast("dict[str, Any]", node).values() if isinstance(node, dict) else node
        if not inner:
            yield None, False
        for each in inner:
            yield from values(each)
    else:
        yield node, True


def value_fits(pattern: Any, value: Any, *, grants: bool) -> bool:
    if isinstance(pattern, list):
        several: list[Any] = list(pattern)  # pyright: ignore[reportUnknownArgumentType]
        return any(value_fits(each, value, grants=grants) for each in several)
    if isinstance(pattern, str):
        text = value if isinstance(value, str) else str(value).lower()
        climbs = grants and "/" in pattern and ".." in text.split("/")
        return glob(pattern, text) and not climbs
    if isinstance(pattern, dict):
        table = cast("dict[str, Any]", pattern)
        if "regex" in table:
            text = value if isinstance(value, str) else str(value).lower()
            find = re.fullmatch if grants else re.search
            return find(table["regex"], text) is not None
        return "glob" in table and value_fits(table["glob"], value, grants=grants)
    return value == pattern and isinstance(value, bool) is isinstance(pattern, bool)


def argument_fits(name: str, pattern: Any, arguments: Mapping[str, Any], *, grants: bool) -> bool:
    missing = isinstance(pattern, dict) and bool(cast("dict[str, Any]", pattern).get("missing"))
    found = list(values(arguments[name])) if name in arguments else [(None, False)]
    fits = [
        value_fits(pattern, value, grants=grants) if there else missing for value, there in found
    ]
    return all(fits) if grants else any(fits)


def levels_fit(pattern: Sequence[str], levels: Sequence[str]) -> bool:
    if not pattern:
        return not levels
    if pattern[0] == "**":
        return levels_fit(pattern[1:], levels) or (bool(levels) and levels_fit(pattern, levels[1:]))
    return bool(levels) and glob(pattern[0], levels[0]) and levels_fit(pattern[1:], levels[1:])


def resource_fits(pattern: str, resource: str, *, grants: bool) -> bool:
    want = [level for level in pattern.removeprefix("file:").split("/") if level]
    have = [level for level in resource.removeprefix("file:").split("/") if level]
    if any(levels_fit(want, have[:end]) for end in range(len(have) + 1)):
        return True
    head = want[: want.index("**")] if "**" in want else want
    return (
        not grants
        and len(have) <= len(head)
        and all(glob(pattern, level) for pattern, level in zip(head, have, strict=False))
    )


def claim_fits(pattern: str, claim: Claim, *, grants: bool) -> bool:
    word, _, resource = pattern.rpartition(" ")
    if grants and word == "read" and claim.access is Access.EXCLUSIVE:
        return False
    if not grants and word == "write" and claim.access is Access.SHARED:
        return False
    return resource_fits(resource, claim.resource, grants=grants)


def rule_fits(rule: Rule, question: Question) -> bool:
    grants = rule.decision is ALLOW
    effect = question.effect if question.declared else Effect.EXTERNAL
    if rule.tools and not any(glob(each, question.tool) for each in rule.tools):
        return False
    if (rule.effects and effect not in rule.effects) or (
        rule.modes and question.mode not in rule.modes
    ):
        return False
    if question.arguments is None:
        if rule.arguments and grants:
            return False
    elif not all(
        argument_fits(name, pattern, question.arguments, grants=grants)
        for name, pattern in rule.arguments.items()
    ):
        return False
    if not rule.claims:
        return True
    fits = [
        any(claim_fits(each, claim, grants=grants) for each in rule.claims)
        for claim in question.claims
    ]
    return bool(fits) and all(fits) if grants else any(fits)


def naive(rules: Sequence[Rule], otherwise: Decision, question: Question) -> Decision:
    matching = [rule for rule in rules if rule_fits(rule, question)]
    by_rules = max((rule.decision for rule in matching), key=SEVERITY.index, default=otherwise)
    effect = question.effect if question.declared else Effect.EXTERNAL
    by_mode = MODES[question.mode].decide(effect)
    lifted = any(rule.without_asking for rule in matching)
    by_tool = ASK if question.asks and not lifted else ALLOW
    return max(by_rules, by_mode, by_tool, key=SEVERITY.index)


texts = st.text("ab/.", max_size=6)
globs = st.text("ab*?/", min_size=1, max_size=5)
regexes = st.sampled_from(["a", "^a", "b$", "a|bb", "(ab)+", "[^a]b?", "a.*b", "^$"])
leaves = texts | st.integers(0, 3) | st.booleans()
json_values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
patterns = st.one_of(
    globs,
    st.integers(0, 3),
    st.booleans(),
    st.lists(globs | st.integers(0, 3), min_size=1, max_size=3),
    st.fixed_dictionaries({"glob": globs, "missing": st.booleans()}),
    st.fixed_dictionaries({"regex": regexes, "missing": st.booleans()}),
    st.just({"missing": True}),
)
levels = st.lists(st.sampled_from(["a", "b", "ab"]), max_size=4)
pattern_levels = st.lists(st.sampled_from(["a", "b", "ab", "*", "a*", "?", "**"]), max_size=4)
resources = levels.map(lambda path: "file:/" + "/".join(path))
claims = st.builds(Claim, resources, st.sampled_from(list(Access)))
words = st.sampled_from(["", "read ", "write "])
claim_patterns = st.tuples(words, pattern_levels).map(
    lambda pair: f"{pair[0]}file:/{'/'.join(pair[1])}"
)
tools = st.text("ab", min_size=1, max_size=2)
names = st.sampled_from(["x", "y"])


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    decision = draw(st.sampled_from(list(Decision)))
    return Rule(
        decision,
        tools=draw(st.lists(st.text("ab*?", min_size=1, max_size=2), max_size=2)) or ["*"],
        effects=draw(st.lists(st.sampled_from(list(Effect)), max_size=2)),
        modes=draw(st.lists(st.sampled_from(list(MODES)), max_size=1)),
        arguments=draw(st.dictionaries(names, patterns, max_size=2)),
        claims=draw(st.lists(claim_patterns, max_size=2)),
        without_asking=decision is ALLOW and draw(st.booleans()),
    )


questions = st.builds(
    Question,
    tool=tools,
    arguments=st.none() | st.dictionaries(names, json_values, max_size=2),
    effect=st.sampled_from(list(Effect)),
    mode=st.sampled_from(list(MODES)),
    claims=st.lists(claims, max_size=2).map(tuple),
    declared=st.booleans(),
    asks=st.booleans(),
)
decisions = st.sampled_from(list(Decision))


def policy_of(given_rules: Sequence[Rule], otherwise: Decision = ALLOW) -> Policy:
    return Policy(given_rules, otherwise=otherwise, modes=[MODES["careful"]])


@settings(max_examples=200, deadline=None)
@given(st.lists(rules(), max_size=8), decisions, st.lists(questions, min_size=1, max_size=4))
def test_the_policy_decides_as_the_naive_evaluator(
    given_rules: list[Rule], otherwise: Decision, asked: list[Question]
) -> None:
    policy = policy_of(given_rules, otherwise)

    for question in asked:
        assert policy.decide(question).decision is naive(given_rules, otherwise, question)


@settings(max_examples=50, deadline=None)
@given(rules(), st.lists(patterns, min_size=20, max_size=40), questions)
def test_rules_that_share_probes_decide_as_the_naive_evaluator(
    rule: Rule, many: list[Any], question: Question
) -> None:
    given_rules = [rule, *(Rule(DENY, arguments={"x": pattern}) for pattern in many)]
    policy = policy_of(given_rules)

    verdict = policy.decide(question)

    assert verdict.decision is naive(given_rules, ALLOW, question)
    denying = [
        position
        for position, each in enumerate(given_rules, 1)
        if each.decision is DENY and rule_fits(each, question)
    ]
    if denying:
        assert verdict.rule == f"rule {denying[0]}"


@settings(max_examples=50, deadline=None)
@given(st.lists(rules(), max_size=6), st.lists(rules(), max_size=6), questions)
def test_a_denial_is_never_overridden_by_more_rules(
    some: list[Rule], more: list[Rule], question: Question
) -> None:
    if any(rule.decision is DENY and rule_fits(rule, question) for rule in some):
        assert policy_of([*more, *some]).decide(question).decision is DENY
        assert policy_of([*some, *more]).decide(question).decision is DENY


@settings(max_examples=50, deadline=None)
@given(st.lists(rules(), max_size=6), questions)
def test_no_rule_lifts_the_mode(given_rules: list[Rule], question: Question) -> None:
    effect = question.effect if question.declared else Effect.EXTERNAL

    decision = policy_of(given_rules).decide(question).decision

    assert SEVERITY.index(decision) >= SEVERITY.index(MODES[question.mode].decide(effect))


@settings(max_examples=50, deadline=None)
@given(
    st.lists(rules(), max_size=6),
    decisions,
    st.lists(questions, min_size=2, max_size=8),
    st.randoms(use_true_random=False),
)
def test_an_answer_never_depends_on_what_was_asked_before(
    given_rules: list[Rule], otherwise: Decision, asked: list[Question], random: Any
) -> None:
    policy = policy_of(given_rules, otherwise)
    for question in random.sample(asked, len(asked)):
        policy.decide(question)

    for question in asked:
        assert policy.decide(question) == policy_of(given_rules, otherwise).decide(question)


@settings(max_examples=50, deadline=None)
@given(st.lists(rules(), max_size=5), decisions, questions, st.randoms(use_true_random=False))
def test_the_order_of_rules_never_changes_a_decision(
    given_rules: list[Rule], otherwise: Decision, question: Question, random: Any
) -> None:
    shuffled = random.sample(given_rules, len(given_rules))

    one = policy_of(given_rules, otherwise).decide(question).decision

    assert policy_of(shuffled, otherwise).decide(question).decision is one
