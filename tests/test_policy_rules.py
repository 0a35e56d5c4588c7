"""Rules, the mode and the tool's own wish in one verdict, and who is named for it."""

import pytest

from laneway.claims import exclusive, shared
from laneway.effects import Effect
from laneway.errors import PolicyError
from laneway.outcomes import Code
from laneway.policies.modes import Mode
from laneway.policies.questions import denied
from laneway.policies.rules import Decision, Policy, Question, Rule, Verdict
from laneway.policies.sheets import Sheet

ALLOW, ASK, DENY = Decision.ALLOW, Decision.ASK, Decision.DENY
READING = Mode("reading", frozenset({Effect.PURE, Effect.READ}), ASK)


def question(
    tool: str = "edit",
    arguments: dict[str, object] | None = None,
    *,
    effect: Effect = Effect.WRITE,
    mode: str = "build",
    declared: bool = True,
    asks: bool = False,
) -> Question:
    return Question(
        tool=tool,
        arguments={} if arguments is None else arguments,
        effect=effect,
        mode=mode,
        declared=declared,
        asks=asks,
    )


def test_without_rules_every_call_is_allowed_in_build() -> None:
    verdict = Policy().decide(question())

    assert verdict == Verdict(
        ALLOW, "default", "no rule matches this call, and the policy says: otherwise allow"
    )


@pytest.mark.parametrize("otherwise", list(Decision))
def test_otherwise_decides_where_no_rule_matches(otherwise: Decision) -> None:
    policy = Policy([Rule(DENY, tools=["rm"])], otherwise=otherwise)

    assert policy.decide(question("edit")).decision is otherwise
    assert policy.decide(question("edit")).rule == "default"


def test_deny_beats_ask_and_ask_beats_allow_in_any_order() -> None:
    allow, ask, deny = (Rule(decision, tools=["edit"]) for decision in (ALLOW, ASK, DENY))

    assert Policy([allow, ask, deny]).decide(question()).decision is DENY
    assert Policy([deny, ask, allow]).decide(question()).decision is DENY
    assert Policy([allow, ask]).decide(question()).decision is ASK
    assert Policy([ask, allow]).decide(question()).decision is ASK


def test_the_first_matching_rule_of_the_winning_decision_is_named() -> None:
    policy = Policy(
        [
            Rule(ALLOW, tools=["edit"], name="open"),
            Rule(DENY, tools=["edit"], arguments={"path": "b*"}, name="not-b"),
            Rule(DENY, tools=["ed*"], name="closed", reason="No edits today."),
            Rule(DENY, tools=["*"]),
        ]
    )

    assert policy.decide(question(arguments={"path": "b"})).rule == "rule 2 (not-b)"
    assert policy.decide(question(arguments={"path": "a"})) == Verdict(
        DENY, "rule 3 (closed)", "No edits today."
    )
    assert policy.decide(question("other")).rule == "rule 4"


def test_a_rule_without_a_reason_still_gives_one() -> None:
    reasons = {
        decision: Policy([Rule(decision, tools=["edit"])]).decide(question()).reason
        for decision in Decision
    }

    assert reasons == {
        ALLOW: "a rule of the policy allows this call",
        ASK: "a rule of the policy wants a human to approve this call",
        DENY: "a rule of the policy denies this call",
    }


def test_a_rule_matches_only_if_all_its_conditions_are_met() -> None:
    rule = Rule(
        DENY,
        tools=["edit", "write"],
        effects=[Effect.WRITE],
        modes=["build"],
        arguments={"path": "a*", "size": 5},
        claims=["write file:/w"],
    )
    policy = Policy([rule])
    met = Question(
        tool="edit",
        arguments={"path": "abc", "size": 5},
        effect=Effect.WRITE,
        claims=(exclusive("file:/w/a"),),
    )

    assert policy.decide(met).decision is DENY
    for changed in (
        {"tool": "read"},
        {"effect": Effect.READ},
        {"mode": "plan", "effect": Effect.READ},
        {"arguments": {"path": "abc"}},
        {"arguments": {"path": "b", "size": 5}},
        {"claims": (shared("file:/w/a"),)},
        {"claims": ()},
    ):
        fields: dict[str, object] = {name: getattr(met, name) for name in met.__struct_fields__}
        other = Question(**(fields | changed))  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        assert policy.decide(other).decision is ALLOW, changed


def test_plan_denies_what_changes_something_whatever_the_rules_allow() -> None:
    policy = Policy([Rule(ALLOW, tools=["*"], without_asking=True)])

    assert policy.decide(question(mode="plan", effect=Effect.READ)).decision is ALLOW
    assert policy.decide(question(mode="plan", effect=Effect.WRITE)) == Verdict(
        DENY, "mode plan", "mode plan allows no write call, and edit is write"
    )


def test_plan_denies_a_tool_that_declares_nothing_even_if_it_is_called_pure() -> None:
    verdict = Policy().decide(question(mode="plan", effect=Effect.PURE, declared=False))

    assert verdict == Verdict(
        DENY,
        "mode plan",
        "mode plan allows no external call, and edit is external; "
        "it declares nothing, so it counts as external",
    )


def test_a_rule_over_effects_sees_a_tool_that_declares_nothing_as_external() -> None:
    policy = Policy([Rule(ASK, effects=[Effect.EXTERNAL])])

    assert policy.decide(question(effect=Effect.READ, declared=False)).decision is ASK


def test_a_denying_rule_is_named_before_the_mode_that_denies_too() -> None:
    policy = Policy([Rule(DENY, tools=["edit"], name="never"), Rule(ASK, tools=["*"])])

    assert policy.decide(question(mode="plan")).rule == "rule 1 (never)"
    assert policy.decide(question("write", mode="plan")).rule == "mode plan"


def test_a_mode_may_ask_and_a_rule_cannot_lift_that() -> None:
    policy = Policy([Rule(ALLOW, tools=["*"], without_asking=True)], modes=[READING])

    assert policy.decide(question(mode="reading")) == Verdict(
        ASK, "mode reading", "in mode reading a human approves each write call, and edit is write"
    )
    assert policy.decide(question(mode="reading", asks=True)).rule == "mode reading"
    assert policy.decide(question(mode="reading", effect=Effect.READ)).decision is ALLOW


def test_an_asking_rule_is_named_before_mode_and_tool() -> None:
    policy = Policy([Rule(ASK, tools=["edit"], name="look")], modes=[READING])

    assert policy.decide(question(mode="reading", asks=True)).rule == "rule 1 (look)"


def test_a_call_in_an_unknown_mode_is_denied() -> None:
    verdict = Policy().decide(question(mode="biuld", effect=Effect.PURE))

    assert verdict == Verdict(DENY, "mode biuld", "the policy has no mode 'biuld'")


def test_a_tool_that_asks_is_asked_about_although_a_rule_allows_it() -> None:
    policy = Policy([Rule(ALLOW, tools=["*"])])

    assert policy.decide(question(asks=True)) == Verdict(
        ASK, "tool asks", "edit is declared to ask for approval of each call"
    )


def test_a_rule_without_asking_lifts_the_wish_of_the_tool_and_is_named() -> None:
    policy = Policy(
        [
            Rule(ALLOW, tools=["*"], name="open"),
            Rule(ALLOW, tools=["edit"], arguments={"path": "a*"}, without_asking=True, name="a"),
        ]
    )

    assert policy.decide(question(arguments={"path": "a"}, asks=True)).rule == "rule 2 (a)"
    assert policy.decide(question(arguments={"path": "a"})).rule == "rule 1 (open)"
    assert policy.decide(question(arguments={"path": "b"}, asks=True)).rule == "tool asks"


def test_a_rule_without_asking_does_not_lift_the_question_of_another_rule() -> None:
    policy = Policy([Rule(ALLOW, tools=["*"], without_asking=True), Rule(ASK, tools=["edit"])])

    assert policy.decide(question(asks=True)).rule == "rule 2"


def test_otherwise_deny_beats_the_question_of_a_tool_and_of_a_mode() -> None:
    policy = Policy(
        [Rule(ALLOW, tools=["edit"], arguments={"path": "a*"})], otherwise=DENY, modes=[READING]
    )

    for fields in ({"asks": True}, {"mode": "reading"}):
        matched = question(arguments={"path": "a"}, **fields)  # pyright: ignore[reportArgumentType]
        unmatched = question(arguments={"path": "b"}, **fields)  # pyright: ignore[reportArgumentType]
        assert policy.decide(matched).decision is ASK
        assert policy.decide(unmatched).rule == "default"
        assert policy.decide(unmatched).decision is DENY


def test_unknown_arguments_meet_what_refuses_and_not_what_grants() -> None:
    condition = {"path": "a*"}
    asked = Question(tool="edit", arguments=None)

    assert Policy([Rule(DENY, arguments=condition)]).decide(asked).decision is DENY
    assert Policy([Rule(ASK, arguments=condition)]).decide(asked).decision is ASK
    allow = Policy([Rule(ALLOW, arguments=condition)], otherwise=DENY)
    assert allow.decide(asked).decision is DENY


def test_unknown_arguments_meet_every_rule_that_shares_a_probe() -> None:
    rules = [Rule(DENY, arguments={"path": f"{i}*"}) for i in range(20)]

    assert Policy(rules).decide(Question(tool="edit", arguments=None)).rule == "rule 1"


def test_a_verdict_that_denies_becomes_an_outcome_the_model_can_use() -> None:
    failure = denied(Verdict(DENY, "policy.toml:3 (no-mail)", "No mail from here."))

    assert failure.code is Code.POLICY_DENIED
    assert failure.message == "No mail from here. (policy.toml:3 (no-mail))"
    assert not failure.retry
    assert failure.hint == (
        "Do not try it in another way. Go on without it, or tell the user what you wanted to do, "
        "so that they can do it themselves or change the policy."
    )


def test_a_mode_is_found_by_its_name_or_refused_with_the_closest() -> None:
    policy = Policy(modes=[READING])

    assert policy.mode("reading") is READING
    assert policy.mode("plan").name == "plan"
    with pytest.raises(PolicyError) as caught:
        policy.mode("plna")
    assert str(caught.value) == (
        "mode 'plna': there is no such mode; did you mean 'plan'? (known: build, plan, reading)"
    )


def test_the_answers_do_not_depend_on_what_was_asked_before() -> None:
    rules = [Rule(DENY, tools=["a*"]), Rule(ASK, tools=["*"], arguments={"x": "1"})]
    questions = [
        question(f"{letter}{i}", {"x": str(i % 2)}) for i in range(3000) for letter in "ab"
    ]
    policy = Policy(rules)

    first = [policy.decide(each) for each in questions]

    assert [policy.decide(each) for each in reversed(questions)] == first[::-1]
    assert {verdict.decision for verdict in first} == set(Decision)


def test_rules_over_other_tools_leave_nothing_to_test() -> None:
    policy = Policy([Rule(DENY, tools=[f"t{i}"], arguments={"x": "1"}) for i in range(100)])
    policy.decide(question("edit"))

    assert [sheet.steps for sheet in _sheets(policy)] == [()]


def test_a_hundred_rules_over_one_argument_are_looked_at_once() -> None:
    policy = Policy([Rule(DENY, arguments={"path": f"{i}/*"}) for i in range(100)])
    policy.decide(question())
    (sheet,) = _sheets(policy)
    ((argument, (probe,)),) = sheet.probed

    assert argument == "path"
    assert len(probe.tests) == 100
    assert [len(half.tests) for half in probe.halve()] == [50, 50]
    assert sheet.unprobed == ()
    assert policy.decide(question(arguments={"path": "99/x"})).rule == "rule 100"
    assert policy.decide(question(arguments={"path": ["x", "7/x"]})).rule == "rule 8"
    assert policy.decide(question(arguments={"path": "x"})).decision is ALLOW
    assert policy.decide(question(arguments={})).decision is ALLOW


def test_rules_too_large_for_one_probe_are_tested_one_by_one() -> None:
    rules = [Rule(DENY, arguments={"path": {"regex": f"{i}[^a]{{2000}}"}}) for i in range(16)]
    policy = Policy(rules)
    policy.decide(question())

    assert [sheet.probed for sheet in _sheets(policy)] == [()]
    assert policy.decide(question(arguments={"path": "x7" + "b" * 2000})).rule == "rule 8"


def test_a_rule_that_is_heard_twice_counts_where_it_is_heard_first() -> None:
    claims = (shared("file:/a"),)
    rules = [
        *(Rule(ALLOW, claims=["file:/a"]) for _ in range(5)),
        *(Rule(ALLOW, claims=["file:/a"], without_asking=True) for _ in range(3)),
    ]
    policy = Policy(rules, otherwise=DENY)

    verdict = policy.decide(Question(tool="t", arguments={}, claims=claims, asks=True))

    assert (verdict.decision, verdict.rule) == (ALLOW, "rule 6")


def _sheets(policy: Policy) -> list[Sheet]:
    return list(policy._sheets.values())  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (Rule(DENY), 'rule 1: it applies to every call; if that is meant, say tools = ["*"]'),
        (
            Rule(DENY, tools=["*"], without_asking=True, name="x"),
            "rule 1 (x): without_asking belongs to rules that allow",
        ),
        (
            Rule("dney", tools=["rm"]),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
            "rule 1: unknown decision 'dney'; did you mean 'deny'? (known: allow, ask, deny)",
        ),
        (
            Rule(DENY, tools="rm"),
            "rule 1: tools must be a list, not the text 'rm'",
        ),
        (
            Rule(DENY, claims="file:/w"),
            "rule 1: claims must be a list, not the text 'file:/w'",
        ),
        (
            Rule(DENY, modes=["plna"], source="policy.py:7"),
            "policy.py:7: unknown mode 'plna'; did you mean 'plan'? (known: build, plan)",
        ),
        (
            Rule(DENY, effects=["wirte"]),  # type: ignore[list-item] # pyright: ignore[reportArgumentType]
            (
                "rule 1: unknown effect 'wirte'; did you mean 'write'? "
                "(known: external, pure, read, write)"
            ),
        ),
        (
            Rule(DENY, tools=[""]),
            "rule 1: tools: an empty pattern fits nothing",
        ),
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused_by_name(rule: Rule, message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        Policy([rule])

    assert str(caught.value) == message


def test_decisions_may_be_written_as_plain_text() -> None:
    rule = Rule("deny", tools=["rm"])  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    policy = Policy([rule], otherwise="ask")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]

    assert policy.decide(question("rm")).decision is DENY
    assert policy.decide(question("ls", asks=True)).decision is ASK


def test_an_unknown_otherwise_is_refused() -> None:
    with pytest.raises(PolicyError) as caught:
        Policy(otherwise="dney")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]

    assert str(caught.value) == (
        "policy: unknown otherwise 'dney'; did you mean 'deny'? (known: allow, ask, deny)"
    )


def test_two_rules_of_one_name_are_refused_even_from_one_line() -> None:
    rules = [Rule(DENY, tools=[tool], name="x", source="p.py:7") for tool in ("a", "b")]
    with pytest.raises(PolicyError) as caught:
        Policy(rules)

    assert str(caught.value) == "p.py:7 (x): the name 'x' is taken by p.py:7"


def test_two_rules_of_one_name_are_refused() -> None:
    with pytest.raises(PolicyError) as caught:
        Policy([Rule(DENY, tools=["a"], name="x"), Rule(ASK, tools=["b"], name="x")])

    assert str(caught.value) == "rule 2 (x): the name 'x' is taken by rule 1"


class Recording(Policy):
    """A host's own judgement: it notes what it was asked, then lets the rules decide."""

    def __init__(self, rules: list[Rule]) -> None:
        super().__init__(rules)
        self.asked: list[Question] = []

    def decide(self, asked: Question, /) -> Verdict:
        self.asked.append(asked)
        return super().decide(asked)


def test_a_host_may_judge_in_its_own_way() -> None:
    policy = Recording([Rule(DENY, tools=["edit"])])

    assert policy.decide(question()).decision is DENY
    assert policy.asked == [question()]
