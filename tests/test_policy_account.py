"""Accounts of a verdict: what each rule makes of a call, and why it does not match."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laneway.claims import Access, Claim
from laneway.effects import Effect
from laneway.policies.account import account
from laneway.policies.modes import Mode, known_modes
from laneway.policies.rules import Decision, Policy, Question, Rule

ALLOW, ASK, DENY = Decision.ALLOW, Decision.ASK, Decision.DENY
CAREFUL = Mode("careful", frozenset({Effect.READ}), ASK)
MODES = known_modes([CAREFUL])
CALL = Question(
    tool="deploy",
    arguments={"env": "test", "tags": ["a", "b"], "none": []},
    effect=Effect.WRITE,
    claims=(Claim("file:/a", Access.EXCLUSIVE), Claim("file:/b", Access.SHARED)),
)


def unmet(rule: Rule, question: Question = CALL) -> str:
    said = account(Policy([rule], modes=[CAREFUL]), [rule], MODES, question)
    assert said.rules[0].matches is not bool(said.rules[0].unmet)
    return said.rules[0].unmet


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (Rule(DENY, tools=["a", "b*"]), "tools: deploy does not fit a or b*"),
        (Rule(DENY, effects=[Effect.READ]), "effects: the call is write, not read"),
        (Rule(DENY, modes=["plan"]), "modes: the run is in mode build, not in plan"),
        (Rule(DENY, arguments={"env": "prod"}), "arguments.env: test does not fit prod"),
        (
            Rule(DENY, arguments={"tags": ["x", 1]}),
            'arguments.tags: none of b, a fits ["x",1]',
        ),
        (Rule(ALLOW, arguments={"tags": "a"}), "arguments.tags: not all of b, a fits a"),
        (Rule(DENY, arguments={"gone": "a"}), "arguments.gone: there is no such argument"),
        (Rule(DENY, arguments={"none": "a"}), "arguments.none: there is no such argument"),
        (
            Rule(DENY, claims=["write file:/b"]),
            "claims: none of exclusive file:/a, shared file:/b meets write file:/b",
        ),
        (
            Rule(ALLOW, claims=["file:/b"]),
            "claims: not all of exclusive file:/a, shared file:/b is covered by file:/b",
        ),
    ],
)
def test_a_rule_that_does_not_match_says_what_is_not_met(rule: Rule, why: str) -> None:
    assert unmet(rule) == why


@pytest.mark.parametrize(
    ("rule", "question", "why"),
    [
        (
            Rule(DENY, claims=["file:/a"]),
            Question(tool="a", arguments={}),
            "claims: the call claims nothing",
        ),
        (
            Rule(ALLOW, arguments={"x": "a"}),
            Question(tool="a", arguments=None),
            "arguments.x: the arguments are not known, so nothing is allowed for their sake",
        ),
        (
            Rule(DENY, effects=[Effect.READ]),
            Question(tool="a", arguments={}, effect=Effect.READ, declared=False),
            "effects: the call is external, as a tool that declares nothing is, not read",
        ),
        (
            Rule(DENY, arguments={"x": {"equals": "b" * 200}}),
            Question(tool="a", arguments={"x": "a\n" * 200}),
            f'arguments.x: {"a " * 39}a… does not fit {{"equals":"{"b" * 68}…',
        ),
    ],
)
def test_what_a_call_does_not_have_is_said(rule: Rule, question: Question, why: str) -> None:
    assert unmet(rule, question) == why


def test_the_first_condition_that_is_not_met_is_named() -> None:
    rule = Rule(DENY, tools=["x"], effects=[Effect.READ], arguments={"env": "x"}, claims=["db:x"])

    assert unmet(rule).startswith("tools: ")
    assert unmet(msgspec.structs.replace(rule, tools=["*"])).startswith("effects: ")


def test_the_rule_that_decides_is_told_from_one_that_matches_too() -> None:
    rules = [
        Rule(ASK, tools=["*"], source="p:1"),
        Rule(DENY, tools=["d*"], source="p:5", name="no-d"),
        Rule(DENY, effects=[Effect.WRITE], source="p:9"),
    ]

    said = account(Policy(rules), rules, MODES, CALL)

    assert [(one.rule, one.matches, one.decides) for one in said.rules] == [
        ("p:1", True, False),
        ("p:5 (no-d)", True, True),
        ("p:9", True, False),
    ]
    assert said.verdict.rule == "p:5 (no-d)"


@pytest.mark.parametrize(
    ("mode", "declared", "decision", "reason"),
    [
        ("build", True, ALLOW, "the call is read"),
        ("plan", False, DENY, "the call is external, as a tool that declares nothing is"),
        ("careful", False, ASK, "the call is external, as a tool that declares nothing is"),
        ("lost", True, DENY, "the policy has no mode 'lost'"),
    ],
)
def test_the_mode_says_its_own(mode: str, declared: bool, decision: Decision, reason: str) -> None:
    question = Question(
        tool="a", arguments={}, effect=Effect.READ, mode=mode, declared=declared, asks=True
    )

    said = account(Policy(modes=[CAREFUL]), [], MODES, question)

    assert (said.mode.rule, said.mode.decision, said.mode.reason) == (
        f"mode {mode}",
        decision,
        reason,
    )
    assert (said.tool.rule, said.tool.decision) == ("tool asks", ASK)


class WordyRule(Rule, frozen=True):
    """A rule with a word that is no condition."""

    colour: str = ""


def test_a_word_that_is_no_condition_stops_no_rule_from_matching() -> None:
    rule = WordyRule(DENY, tools=["deploy"], colour="red", source="p:1")

    assert unmet(rule) == ""


def test_a_condition_that_is_not_known_here_is_told_by_its_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("laneway.policies.account.meets", lambda _, field, *__: field != "colour")

    assert unmet(WordyRule(DENY, tools=["*"], colour="red")) == "colour: the call does not fit red"


values = st.text("ab", max_size=2) | st.lists(st.text("ab", max_size=2), max_size=2)
rules = st.builds(
    Rule,
    st.sampled_from(list(Decision)),
    tools=st.sampled_from([["*"], ["a"], ["a", "b"]]),
    effects=st.lists(st.sampled_from(list(Effect)), max_size=2),
    modes=st.lists(st.sampled_from(sorted(MODES)), max_size=2),
    arguments=st.dictionaries(
        st.sampled_from(["x", "y.z"]), st.text("ab*", min_size=1, max_size=2), max_size=2
    ),
    claims=st.lists(st.sampled_from(["file:/a", "write file:/a/b", "read db:x"]), max_size=2),
)
questions: st.SearchStrategy[Any] = st.builds(
    Question,
    tool=st.sampled_from(["a", "b"]),
    arguments=st.none()
    | st.fixed_dictionaries({}, optional={"x": values, "y": st.builds(dict, z=values)}),
    effect=st.sampled_from(list(Effect)),
    mode=st.sampled_from([*MODES, "lost"]),
    claims=st.lists(
        st.builds(
            Claim, st.sampled_from(["file:/a", "file:/a/b", "db:x"]), st.sampled_from(list(Access))
        ),
        max_size=2,
    ).map(tuple),
    declared=st.booleans(),
    asks=st.booleans(),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(rules, min_size=1, max_size=5), st.sampled_from(list(Decision)), questions)
def test_the_rules_that_are_said_to_match_come_to_the_same_verdict_alone(
    some: list[Rule], otherwise: Decision, question: Question
) -> None:
    placed = [msgspec.structs.replace(rule, source=f"r{at}") for at, rule in enumerate(some)]
    policy = Policy(placed, otherwise=otherwise, modes=[CAREFUL])

    said = account(policy, placed, MODES, question)

    matching = [rule for rule, one in zip(placed, said.rules, strict=True) if one.matches]
    alone = Policy(matching, otherwise=otherwise, modes=[CAREFUL]).decide(question)
    assert said.verdict == policy.decide(question) == alone
    for rule, one in zip(placed, said.rules, strict=True):
        if rule.decision is DENY:
            only = Policy([rule], modes=[CAREFUL]).decide(question)
            assert one.matches is (only.rule == rule.source)
