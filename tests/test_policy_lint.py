"""Lints: what is called unreachable never changes a verdict, and what is plain is seen."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from laneway.claims import Access, Claim
from laneway.effects import Effect
from laneway.policies.conditions import Rule
from laneway.policies.coverage import strange_conditions
from laneway.policies.lint import Lint, Ruled, lint
from laneway.policies.meant import KnownTool, lint_tools
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


@settings(max_examples=100, deadline=None)
@given(rule_lists(), st.sampled_from(list(Decision)), st.lists(questions, min_size=20, max_size=40))
def test_what_is_called_unreachable_or_shadowed_never_changes_a_verdict(
    given_rules: list[Rule], otherwise: Decision, asked: list[Question]
) -> None:
    whole = policy(given_rules, otherwise)
    silent = [
        finding.rule
        for finding in lint(Ruled(rules=given_rules, modes=MODES, otherwise=otherwise))
        if finding.lint in NEVER_HEARD
    ]
    fewer = [policy(without(given_rules, name), otherwise) for name in silent]
    fewer.append(policy(without(given_rules, *silent), otherwise))
    event(f"{len(silent)} rules are silent")

    for question in asked:
        verdict = whole.decide(question)
        assert all(one.decide(question) == verdict for one in fewer)


@settings(max_examples=60, deadline=None)
@given(rule_lists(), st.sampled_from(list(Decision)), st.lists(questions, min_size=20, max_size=40))
def test_what_is_said_to_have_no_effect_never_changes_a_decision(
    given_rules: list[Rule], otherwise: Decision, asked: list[Question]
) -> None:
    whole = policy(given_rules, otherwise)
    idle = [
        finding
        for finding in lint(Ruled(rules=given_rules, modes=MODES, otherwise=otherwise))
        if finding.lint is Lint.NO_EFFECT
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


# what is plain


def found(text: str) -> list[tuple[str, str, str]]:
    """The lints of a policy: what, which rule, on whose account."""
    return [(one.lint.value, one.rule, one.by) for one in lint(ruled(text))]


def ruled(text: str, name: str = "p") -> Ruled:
    file = read_rule_file(text, name)
    return Ruled(rules=file.rules, modes=known_modes(file.modes), otherwise=file.otherwise)


def rule(decision: str, *lines: str) -> str:
    return "\n".join(["[[rule]]", f'decision = "{decision}"', *lines, ""])


def messages(text: str) -> list[str]:
    return [one.message for one in lint(ruled(text))]


TOOLS = 'tools = ["a"]'
ASKING_MODE = '[[mode]]\nname = "m"\neffects_allowed = ["read"]\notherwise = "ask"\n'


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ('tools = ["*"]', 'tools = ["a", "b?"]'),
        ('tools = ["a*"]', 'tools = ["ab*", "a"]'),
        ('tools = ["?*"]', 'tools = ["*?"]'),
        ('effects = ["write", "external"]', 'effects = ["write"]'),
        ('modes = ["plan", "build"]', 'modes = ["plan"]'),
        ('arguments.x = "a*"', 'arguments.x = "ab"'),
        ('arguments.x = ["a*", 1]', "arguments.x = 1"),
        ('arguments.x = "*"', 'arguments.x = { regex = "a" }'),
        ('arguments."*" = "a*"', 'arguments.x.y = "ab*"'),
        ('arguments.x = { regex = "a+" }', 'arguments.x = "bab"'),
        ('arguments.x = { regex = "a+" }', 'effects = ["read"]\narguments.x = { regex = "a+" }'),
        ('arguments.x = { equals = ["a"] }', 'tools = ["a"]\narguments.x = { equals = ["a"] }'),
        ('arguments.x = { glob = "*", missing = true }', "arguments.x = { missing = true }"),
        ('arguments.x = "t*"', "arguments.x = true"),
        ('claims = ["file:/etc"]', 'claims = ["write file:/etc/**", "read file:/etc/a*"]'),
        ('claims = ["write file:/*/b"]', 'claims = ["write file:/a/b/c"]'),
        ('claims = ["file:**/.env"]', 'claims = ["file:**/.env/x"]'),
        ('claims = ["db:shop", "file:/"]', 'claims = ["file:**/a", "db:shop/orders"]'),
    ],
)
@pytest.mark.parametrize("decision", ["ask", "deny"])
def test_a_rule_below_one_that_matches_more_is_unreachable(
    wide: str, narrow: str, decision: str
) -> None:
    lints = found(rule(decision, wide) + rule(decision, narrow))

    assert lints == [("unreachable", "p:4", "p:1")]


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ('tools = ["a"]', 'tools = ["a*"]'),
        ('tools = ["a"]', 'effects = ["read"]'),
        ('effects = ["read"]', 'tools = ["a"]'),
        ('modes = ["plan"]', 'tools = ["a"]'),
        ('arguments.x = "a"', 'arguments.y = "a"'),
        ('arguments.x = "a"', 'arguments.x = "a*"'),
        ('arguments.x = "1"', "arguments.x = 1"),
        ("arguments.x = 1", 'arguments.x = "1"'),
        ('arguments.x = { regex = "a" }', 'arguments.x = { regex = "aa" }'),
        ('arguments.x = "*"', "arguments.x = { missing = true }"),
        ('arguments.x = "*"', "arguments.x = { equals = [] }"),
        ('arguments."*" = "*"', 'arguments.x = { glob = "a", missing = true }'),
        ('arguments."*" = "*"', 'arguments.x = { equals = ["a"] }'),
        ('claims = ["file:/etc/a"]', 'claims = ["file:/etc"]'),
        ('claims = ["write file:/etc"]', 'claims = ["file:/etc"]'),
        ('claims = ["write file:/etc"]', 'claims = ["read file:/etc"]'),
        ('claims = ["db:etc"]', 'claims = ["file:/etc"]'),
        ('claims = ["file:**/a"]', 'claims = ["file:/b/a"]'),
        ('claims = ["file:/*/a"]', 'claims = ["file:**/a"]'),
        ('claims = ["file:/a"]', 'tools = ["a"]'),
    ],
)
def test_a_rule_below_one_that_matches_less_is_left_alone(wide: str, narrow: str) -> None:
    assert found(rule("ask", wide) + rule("ask", narrow)) == []


def test_what_denies_in_every_mode_does_not_cover_what_denies_in_modes_that_do_not_exist() -> None:
    text = rule("deny", 'modes = ["plan", "build"]') + rule("deny", TOOLS)

    assert found(text) == []
    assert found(text.replace("deny", "ask")) == [("unreachable", "p:4", "p:1")]


def test_a_rule_above_one_that_matches_more_is_left_alone() -> None:
    assert found(rule("deny", TOOLS) + rule("deny", 'tools = ["*"]')) == []


@pytest.mark.parametrize(
    ("refusing", "allowing"),
    [
        ('tools = ["*"]', TOOLS),
        ('arguments.path = { regex = "etc" }', 'arguments.path = "etc"'),
        ('claims = ["file:/a"]', 'claims = ["file:/a/b", "read file:/a/c"]'),
        ('claims = ["file:**/a"]', 'claims = ["file:/b/a"]'),
    ],
)
def test_what_is_allowed_below_a_denial_is_shadowed_wherever_it_stands(
    refusing: str, allowing: str
) -> None:
    top = 'otherwise = "ask"\n'

    after = found(top + rule("deny", refusing) + rule("allow", allowing))
    before = found(top + rule("allow", allowing) + rule("ask", refusing))

    assert after == [("shadowed", "p:5", "p:2")]
    assert before == [("shadowed", "p:2", "p:5")]


def test_the_message_of_a_shadowed_rule_names_both_and_the_way_out() -> None:
    text = 'otherwise = "ask"\n' + rule("deny", TOOLS, 'name = "no-a"') + rule("allow", TOOLS)

    assert messages(text) == [
        (
            "p:2 (no-a) matches all that it matches, and deny beats allow; narrow the one or "
            "remove the other"
        )
    ]


def test_an_allowance_that_may_be_read_is_not_shadowed_by_a_denial_of_writing() -> None:
    text = rule("deny", 'claims = ["write file:/a"]') + rule("allow", 'claims = ["file:/a"]')

    assert found('otherwise = "ask"\n' + text) == []


def test_the_order_of_what_a_list_offers_makes_no_other_rule() -> None:
    text = rule("deny", 'tools = ["a", "b"]', 'reason = "x"') + rule("deny", 'tools = ["b", "a"]')

    assert found(text) == [("duplicate", "p:5", "p:1")]
    assert messages(text) == ["p:1 says the same; remove one of the two"]


def test_a_stricter_rule_is_named_before_an_earlier_one() -> None:
    text = rule("ask", 'tools = ["*"]') + rule("ask", TOOLS) + rule("deny", TOOLS)

    assert found(text) == [("shadowed", "p:4", "p:7")]


@pytest.mark.parametrize("decision", ["allow", "ask"])
def test_what_every_mode_of_a_rule_denies_is_unreachable(decision: str) -> None:
    text = rule(decision, 'modes = ["plan"]', 'effects = ["write", "external"]')

    assert [one[0] for one in found('otherwise = "deny"\n' + text)] == ["unreachable"]
    assert messages('otherwise = "deny"\n' + text)[0].startswith("in every mode that it applies to")


def test_a_denial_where_the_mode_denies_is_named_so_it_is_left_alone() -> None:
    assert found(rule("deny", 'modes = ["plan"]', 'effects = ["write"]')) == []


@pytest.mark.parametrize(
    ("otherwise", "lints"), [("deny", []), ("ask", ["unreachable"]), ("allow", ["unreachable"])]
)
def test_an_allowance_where_the_mode_asks_counts_only_if_all_else_is_denied(
    otherwise: str, lints: list[str]
) -> None:
    text = f'otherwise = "{otherwise}"\n' + ASKING_MODE
    text += rule("allow", 'modes = ["m"]', 'effects = ["write"]')

    assert [one[0] for one in found(text)] == lints


def test_without_asking_where_the_mode_asks_has_no_effect() -> None:
    text = 'otherwise = "deny"\n' + ASKING_MODE
    text += rule("allow", 'modes = ["m"]', 'effects = ["write"]', "without_asking = true")

    assert [one[0] for one in found(text)] == ["no effect"]
    assert messages(text)[0].startswith("without_asking changes nothing, for in every mode")


def test_an_allowance_where_everything_is_allowed_has_no_effect() -> None:
    assert [one[0] for one in found(rule("allow", TOOLS))] == ["no effect"]
    assert messages(rule("allow", TOOLS))[0].startswith("it changes no decision, for what no rule")
    assert found(rule("allow", TOOLS, "without_asking = true")) == []
    assert found('otherwise = "ask"\n' + rule("allow", TOOLS)) == []


def test_an_allowance_without_asking_is_not_covered_by_one_that_asks() -> None:
    text = 'otherwise = "deny"\n' + rule("allow", 'tools = ["*"]')

    assert found(text + rule("allow", TOOLS, "without_asking = true")) == []
    assert found(text + rule("allow", TOOLS)) == [("unreachable", "p:5", "p:2")]


@pytest.mark.parametrize("glob", ["a/../b", "../*", "*/..", "a/../b*"])
def test_an_allowance_of_a_path_that_climbs_fits_nothing(glob: str) -> None:
    text = 'otherwise = "deny"\n' + rule("allow", f'arguments.p = "{glob}"')

    assert [one[0] for one in found(text)] == ["unreachable"]
    assert messages(text)[0].startswith("arguments.p climbs with '..'")


@pytest.mark.parametrize(
    "pattern",
    ['"*../a"', '"a/b"', '["../a", "b"]', '{ glob = "../a", missing = true }', '"..a/b"', '".."'],
)
def test_an_allowance_of_a_path_that_need_not_climb_is_left_alone(pattern: str) -> None:
    assert found('otherwise = "deny"\n' + rule("allow", f"arguments.p = {pattern}")) == []


@pytest.mark.parametrize(
    "argument",
    ['path = "etc/*"', 'x = "/etc/*"', 'edits[*].file = "a/b"', 'path = { glob = "~/*" }'],
)
@pytest.mark.parametrize("decision", ["ask", "deny"])
def test_a_path_that_is_refused_by_its_text_is_pointed_out(argument: str, decision: str) -> None:
    key, _, pattern = argument.partition(" = ")
    text = rule(decision, f'arguments."{key}" = {pattern}')

    assert [one[0] for one in found(text)] == ["path as text"]
    assert 'claims = ["file:/…"]' in messages(text)[0]


@pytest.mark.parametrize(
    "argument",
    ['url = "https://a/*"', 'type = "image/*"', 'route = "/v1/*"', 'path = "a*"', "path = 1"],
)
def test_what_is_no_path_is_left_alone(argument: str) -> None:
    assert found(rule("deny", f"arguments.{argument}")) == []


@pytest.mark.parametrize(
    ("argument", "lints"),
    [
        ('command = "git *"', ["command as text"]),
        ('command = ["git status", "git ?"]', ["command as text"]),
        ("cmd = { regex = 'ls' }", ["command as text"]),
        ('command = ["git status", "git diff"]', []),
        ("command = { equals = 'ls *' }", []),
        ('words = "git *"', []),
    ],
)
def test_an_allowance_of_command_lines_by_text_is_pointed_out(
    argument: str, lints: list[str]
) -> None:
    text = 'otherwise = "ask"\n' + rule("allow", f"arguments.{argument}")

    assert [one[0] for one in found(text)] == lints
    assert found(rule("deny", f"arguments.{argument}")) == []


class LaterRule(Rule, frozen=True):
    """A rule of a later version, which knows more conditions."""

    moon: str = ""
    servers: Sequence[str] = ()


def of(*given: Rule, otherwise: Decision = ALLOW) -> Ruled:
    return Ruled(rules=given, modes=MODES, otherwise=otherwise)


def test_a_condition_that_is_not_known_may_differ_so_a_rule_with_one_covers_nothing() -> None:
    plain = Rule(DENY, tools=["*"])
    strange = LaterRule(DENY, tools=["*"], moon="full")
    silent = LaterRule(DENY, tools=["a"])

    assert lint(of(strange, plain)) == []
    assert [one.lint for one in lint(of(plain, silent, strange))] == ["unreachable", "unreachable"]
    assert lint(of(LaterRule(ALLOW, tools=["a"], moon="full"))) == []
    assert strange_conditions(strange) == {"moon"}


@pytest.mark.parametrize(
    ("wide", "narrow", "lints"),
    [
        (["a*"], ["ab"], ["unreachable"]),
        ([], ["ab"], ["unreachable"]),
        (["a"], ["a*"], []),
        (["*"], [], []),
    ],
)
def test_a_tool_of_no_server_fits_no_pattern_over_servers(
    wide: list[str], narrow: list[str], lints: list[str]
) -> None:
    first = LaterRule(DENY, tools=["*"], servers=wide)
    second = LaterRule(DENY, tools=["b"], servers=narrow)

    assert [one.lint for one in lint(of(first, second))] == lints


def test_what_a_broader_layer_denies_no_narrower_one_can_say_otherwise() -> None:
    host = ruled(rule("deny", TOOLS) + rule("ask", 'tools = ["b"]'), "host")
    user = ruled(rule("allow", TOOLS) + rule("deny", TOOLS) + rule("allow", 'tools = ["b"]'), "u")

    given = [(one.lint.value, one.rule, one.by) for one in lint(user, [host])]

    assert given == [("shadowed", "u:1", "host:1"), ("duplicate", "u:4", "host:1")]
    assert lint(host) == []


# where the tools are known

HERE = [
    KnownTool(
        name="read_file", effects=frozenset({Effect.READ}), parameters=frozenset({"path", "limit"})
    ),
    KnownTool(name="send", effects=frozenset({Effect.EXTERNAL}), asks=True),
]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            Rule(DENY, tools=["read_fil", "send"]),
            (
                "tools: 'read_fil' fits the name of no tool; did you mean 'read_file'? "
                "(known: read_file, send)"
            ),
        ),
        (
            Rule(DENY, tools=["read_*"], effects=[Effect.WRITE, Effect.PURE]),
            "effects: no call of read_file is write or pure",
        ),
        (
            Rule(DENY, tools=["read_*"], arguments={"pth": "a"}),
            (
                "arguments.pth: no argument of read_file is called 'pth'; did you mean 'path'? "
                "(known: limit, path)"
            ),
        ),
        (
            Rule(ALLOW, tools=["read_*"], without_asking=True),
            "without_asking changes nothing: none of read_file asks; leave it out",
        ),
    ],
)
def test_a_rule_that_means_no_tool_is_named_with_what_there_is(given: Rule, message: str) -> None:
    assert [one.message for one in lint_tools([given], HERE)] == [message]


@pytest.mark.parametrize(
    "given",
    [
        Rule(DENY, tools=["read_*", "*"]),
        Rule(DENY, effects=[Effect.READ]),
        Rule(DENY, arguments={"anything": "a"}),
        Rule(DENY, tools=["read_*"], arguments={"path": "a", "*": "b"}),
        Rule(ALLOW, tools=["send"], without_asking=True),
        LaterRule(DENY, tools=["elsewhere"], moon="full"),
    ],
)
def test_a_rule_that_means_some_tool_is_left_alone(given: Rule) -> None:
    assert lint_tools([given], HERE) == []


def test_many_tools_are_not_all_listed() -> None:
    many = [KnownTool(name=f"t{n}", effects=frozenset({Effect.READ})) for n in range(7)]

    (finding,) = lint_tools([Rule(DENY, effects=[Effect.WRITE], tools=["t*"])], many)

    assert finding.message == "effects: no call of t0, t1, t2, t3, t4 and 2 more is write"
