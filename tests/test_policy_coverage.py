"""Coverage of one rule by another: a yes is proof, tried on calls made to break it."""

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from laneway.claims import Access, Claim
from laneway.policies.conditions import Rule
from laneway.policies.coverage import covers
from laneway.policies.globs import glob_regex, text_test
from laneway.policies.inclusion import glob_covers
from laneway.policies.rules import Decision, Policy, Question

ALLOW, ASK, DENY = Decision.ALLOW, Decision.ASK, Decision.DENY
PAIRS = [(DENY, DENY), (DENY, ALLOW), (ASK, ASK), (ASK, ALLOW), (ALLOW, ALLOW), (DENY, ASK)]

globs = st.text("ab*?", min_size=1, max_size=5)
path_globs = st.text("a/.*", min_size=1, max_size=5) | st.sampled_from(["*", "a/*", "a", "*/.."])
texts = st.text("a/.", max_size=5) | st.sampled_from(["a/../a", "..", "a/b", "1", "true"])
scalars = st.sampled_from([0, 1, 1.0, True, None, "a", "1"]) | texts
patterns = st.one_of(
    path_globs,
    st.sampled_from([1, True]),
    st.lists(path_globs | st.just(1), min_size=1, max_size=2),
    st.fixed_dictionaries({"glob": path_globs, "missing": st.booleans()}),
    st.fixed_dictionaries({"regex": st.sampled_from(["a", "^a$", "/"]), "missing": st.booleans()}),
    st.fixed_dictionaries(
        {"equals": scalars | st.lists(scalars, max_size=1), "missing": st.booleans()}
    ),
    st.just({"missing": True}),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.just("a"), inner, max_size=1),
    max_leaves=3,
)
arguments = st.dictionaries(st.sampled_from(["x", "y"]), values, max_size=2)
paths = st.sampled_from(["x", "x", "x", "*", "x.a", "x[*]"])
levels = st.lists(st.sampled_from(["a", "b", "*", "a*", "**"]), max_size=4)
claim_patterns = st.builds(
    lambda word, scheme, path: f"{word}{scheme}:/{'/'.join(path)}",
    st.sampled_from(["", "read ", "write "]),
    st.sampled_from(["file", "file", "lane"]),
    levels,
)
names = st.lists(st.sampled_from(["a", "b", "ab"]), max_size=4).map("/".join)
claims = st.builds(
    lambda scheme, path, access: Claim(f"{scheme}:/{path}", access),
    st.sampled_from(["file", "file", "lane"]),
    names,
    st.sampled_from(list(Access)),
)


def matches(rule: Rule, question: Question) -> bool:
    otherwise = DENY if rule.decision is ALLOW else ALLOW
    return Policy([rule], otherwise=otherwise).decide(question).decision is rule.decision


def never_disproved(wide: Rule, narrow: Rule, asked: Sequence[Question]) -> None:
    claimed = covers(wide, narrow, ())
    event(f"covers: {claimed}")
    for question in asked if claimed else ():
        assert matches(wide, question) or not matches(narrow, question), (wide, narrow, question)


@settings(max_examples=200, deadline=None)
@given(globs, globs, st.lists(st.text("ab", max_size=4), min_size=5, max_size=20))
def test_a_glob_that_covers_another_fits_whatever_that_fits(
    wide: str, narrow: str, some: list[str]
) -> None:
    claimed = glob_covers(wide, narrow)
    event(f"covers: {claimed}")
    fits, other = text_test([glob_regex(wide)]), text_test([glob_regex(narrow)])

    assert not claimed or all(fits(text) or not other(text) for text in some)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(PAIRS),
    st.tuples(paths, paths),
    st.tuples(patterns, patterns) | patterns.map(lambda one: (one, one)),
    st.lists(st.none() | arguments, min_size=5, max_size=20),
)
def test_a_rule_over_arguments_that_covers_another_matches_whatever_that_matches(
    decisions: tuple[Decision, Decision],
    where: tuple[str, str],
    what: tuple[Any, Any],
    some: list[Mapping[str, Any] | None],
) -> None:
    wide, narrow = (
        Rule(decision, tools=["*"], arguments={path: pattern})
        for decision, path, pattern in zip(decisions, where, what, strict=True)
    )

    never_disproved(wide, narrow, [Question(tool="t", arguments=one) for one in some])


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(PAIRS),
    st.lists(claim_patterns, min_size=1, max_size=2),
    st.lists(claim_patterns, min_size=1, max_size=2),
    st.lists(st.lists(claims, max_size=2), min_size=5, max_size=20),
)
def test_a_rule_over_claims_that_covers_another_matches_whatever_that_matches(
    decisions: tuple[Decision, Decision],
    wide_claims: list[str],
    narrow_claims: list[str],
    some: list[list[Claim]],
) -> None:
    wide = Rule(decisions[0], claims=wide_claims)
    narrow = Rule(decisions[1], claims=narrow_claims)

    never_disproved(
        wide, narrow, [Question(tool="t", arguments={}, claims=tuple(one)) for one in some]
    )


def test_what_is_less_strict_covers_nothing() -> None:
    assert not covers(Rule(ALLOW, tools=["*"]), Rule(DENY, tools=["a"]), ())
    assert not covers(Rule(ASK, tools=["*"]), Rule(DENY, tools=["a"]), ())
