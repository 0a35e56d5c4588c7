"""Policy files: what is read, and every fault with its file, line and rule."""

from pathlib import Path

import pytest

from laneway.claims import exclusive
from laneway.effects import Effect
from laneway.errors import PolicyError
from laneway.policies.lines import Lines
from laneway.policies.rules import Decision, Policy, Question

FULL = """\
# A policy with everything in it.
otherwise = "ask"

[[rule]]
name = "one"
decision = "deny"
tools = ["a", "b*"]
effects = "write"
modes = ["careful"]
arguments.path = "src/*"
arguments.user = { name = "ann" }
claims = ["write file:/w"]
reason = "Because."

[[mode]]
name = "careful"
effects_allowed = ["read", "write"]

[[rule]]
decision = "allow"
without_asking = true
tools = "c"
[rule.arguments]
n = 5
"""


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(FULL, "utf-8")

    policy = Policy.from_toml(path)

    met = Question(
        tool="b2",
        arguments={"path": "src/a", "user": {"name": "ann"}},
        effect=Effect.WRITE,
        mode="careful",
        claims=(exclusive("file:/w/a"),),
    )
    verdict = policy.decide(met)
    assert (verdict.decision, verdict.rule, verdict.reason) == (
        Decision.DENY,
        "policy.toml:4 (one)",
        "Because.",
    )
    asked = Question(tool="c", arguments={"n": 5}, asks=True)
    assert policy.decide(asked).rule == "policy.toml:19"
    assert policy.decide(Question(tool="d", arguments={})).decision is Decision.ASK
    assert policy.mode("careful").otherwise is Decision.DENY
    assert Policy.from_toml(str(path)).decide(met) == verdict


def test_a_text_is_told_from_a_path_by_its_line_break() -> None:
    policy = Policy.from_toml('otherwise = "deny"\n')

    assert policy.decide(Question(tool="t", arguments={})).decision is Decision.DENY


def test_a_policy_may_be_given_another_name(tmp_path: Path) -> None:
    text = '[[rule]]\ndecision = "deny"\ntools = "t"\n'
    (tmp_path / "p.toml").write_text(text, "utf-8")
    asked = Question(tool="t", arguments={})

    assert Policy.from_toml(text).decide(asked).rule == "policy:1"
    assert Policy.from_toml(text, name="inline").decide(asked).rule == "inline:1"
    named = Policy.from_toml(tmp_path / "p.toml", name="team/p.toml")
    assert named.decide(asked).rule == "team/p.toml:1"


def test_an_empty_file_is_a_policy_without_rules(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("", "utf-8")

    assert Policy.from_toml(path).decide(Question(tool="t", arguments={})).rule == "default"


def test_a_byte_order_mark_and_windows_line_ends_are_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_bytes(b'\xef\xbb\xbf# x\r\n[[rule]]\r\ndecision = "deny"\r\ntools = "t"\r\n')

    verdict = Policy.from_toml(path).decide(Question(tool="t", arguments={}))

    assert verdict.rule == "policy.toml:2"


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none.toml"

    with pytest.raises(PolicyError) as caught:
        Policy.from_toml(path)

    assert str(caught.value) == f"{path}: cannot be read: No such file or directory"


def test_a_text_of_one_line_is_taken_for_a_path_and_told_so() -> None:
    with pytest.raises(PolicyError) as caught:
        Policy.from_toml('otherwise = "deny"')

    assert str(caught.value) == (
        'otherwise = "deny": cannot be read: No such file or directory; '
        "a text, not a path, has at least one line break"
    )


def test_a_path_that_no_file_can_have_is_refused() -> None:
    with pytest.raises(PolicyError) as caught:
        Policy.from_toml("a\0b")

    assert str(caught.value) == "a\0b: cannot be read: embedded null byte"


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_bytes(b'otherwise = "\xff"\n')

    with pytest.raises(PolicyError) as caught:
        Policy.from_toml(path)

    assert str(caught.value) == f"{path}: is not UTF-8 text, from byte 13 on"


RULE = '[[rule]]\ndecision = "deny"\ntools = "t"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = \n", "policy:1:5: not TOML: Invalid value"),
        (
            '[[rule]]\ndecision = "deny"\ndecision = "ask"\n',
            "policy:3:17: not TOML: Cannot overwrite a value",
        ),
        ("\na = " + "[" * 5000, "policy: not a policy: its values are nested too deeply"),
        ("a = [\n", "policy: not TOML: Invalid value (at end of document)"),
        (
            "\nohterwise = 'deny'\n",
            (
                "policy:2: unknown key 'ohterwise'; did you mean 'otherwise'? "
                "(known: mode, narrower_may_allow, otherwise, rule)"
            ),
        ),
        (
            "\notherwise = 'dney'\n",
            "policy:2: unknown otherwise 'dney'; did you mean 'deny'? (known: allow, ask, deny)",
        ),
        (
            "otherwise = 1\n",
            "policy:1: unknown otherwise 1 (known: allow, ask, deny)",
        ),
        (
            "[rule]\ndecision = 'deny'\n",
            "policy:1: write [[rule]], with two brackets, above each rule",
        ),
        ("rule = [1]\n", "policy:1: write [[rule]], with two brackets, above each rule"),
        (
            "[[rule]]\nname = 'x'\ntools = 't'\n",
            "policy:1 (x): decision is missing; write one of allow, ask, deny",
        ),
        (
            RULE + "[[rule]]\ndecision = 'forbid'\n",
            "policy:5 (rule 2): unknown decision 'forbid' (known: allow, ask, deny)",
        ),
        (
            RULE + "\ntolls = ['a']\n",
            (
                "policy:5 (rule 1): unknown key 'tolls'; did you mean 'tools'? (known: agents, "
                "approvers, arguments, ask_each_time, claims, commands, decision, effects, modes, "
                "name, reason, risks, servers, tools, without_asking)"
            ),
        ),
        (
            "[[rule]]\ndecision = 'deny'\n",
            'policy:1 (rule 1): it applies to every call; if that is meant, say tools = ["*"]',
        ),
        (
            "[[rule]]\nname = 'x'\ndecision = 'deny'\ntools = []\n",
            "policy:4 (x): tools is empty, so nothing would fit; leave it out to mean all",
        ),
        (
            "[[rule]]\ndecision = 'deny'\ntools = ['a', 5]\n",
            "policy:3 (rule 1): tools must be a text or a list of texts, not ['a', 5]",
        ),
        (
            "[[rule]]\ndecision = 'deny'\ntools = [\n 'a',\n '',\n]\n",
            "policy:3 (rule 1): tools: an empty pattern fits nothing",
        ),
        (
            RULE + "effects = ['wirte']\n",
            (
                "policy:4 (rule 1): unknown effect 'wirte'; did you mean 'write'? "
                "(known: external, pure, read, write)"
            ),
        ),
        (
            RULE + "modes = 'plna'\n",
            "policy:4 (rule 1): unknown mode 'plna'; did you mean 'plan'? (known: build, plan)",
        ),
        (
            RULE + "name = 5\n",
            "policy:4 (rule 1): name must be a text, not 5",
        ),
        (
            RULE + "without_asking = 'yes'\n",
            "policy:4 (rule 1): without_asking must be true or false, not 'yes'",
        ),
        (
            RULE + "without_asking = true\n",
            "policy:4 (rule 1): without_asking belongs to rules that allow",
        ),
        (
            RULE + "arguments = 'x'\n",
            'policy:4 (rule 1): arguments must be a table, such as arguments.path = "src/*"',
        ),
        (
            RULE + "arguments.a = 'x'\narguments.b.c = ''\n",
            (
                "policy:5 (rule 1): arguments.b.c: an empty pattern fits nothing; "
                'for the empty text write { equals = "" }'
            ),
        ),
        (
            RULE + "[rule.arguments]\na = 'x'\n'b.c' = { regex = '(' }\n",
            (
                "policy:6 (rule 1): arguments.b.c: regex '(': "
                "missing ), unterminated subpattern at position 0"
            ),
        ),
        (
            RULE + "arguments.day = 2024-05-01\n",
            (
                "policy:4 (rule 1): arguments.day: datetime.date(2024, 5, 1) is no pattern; "
                "write a text, a number, true, false, a list of those, or a table with glob, "
                "regex or equals"
            ),
        ),
        (
            RULE + "claims = 'file:x'\n",
            (
                "policy:4 (rule 1): claims: claim pattern 'file:x': claims hold absolute paths, so "
                "a relative one never fits; write 'file:/…/x' or 'file:**/x'"
            ),
        ),
        (
            RULE + "name = 'x'\n" + RULE + "name = 'x'\n",
            "policy:5 (x): the name 'x' is taken by policy:1",
        ),
        (
            "rule = [{ decision = 'deny', tools = '' }]\n",
            "policy:1 (rule 1): tools: an empty pattern fits nothing",
        ),
        (
            "[[mode]]\nname = 'x'\n",
            (
                "policy:1 (x): effects_allowed is missing; say, for example, "
                'effects_allowed = ["read"]'
            ),
        ),
        (
            "[[mode]]\nname = 'x'\neffects_allowed = ['red']\n",
            (
                "policy:3 (x): unknown effect 'red'; did you mean 'read'? "
                "(known: external, pure, read, write)"
            ),
        ),
        (
            "[[mode]]\nname = 'x'\neffects_allowed = 'read'\notherwise = 'allow'\n",
            (
                "policy:1 (x): otherwise must be deny or ask; a mode that allows the rest limits "
                "nothing"
            ),
        ),
        (
            "[[mode]]\neffects_allowed = 'read'\n",
            "policy:1 (mode 1): a mode needs a name",
        ),
        (
            (
                "[[mode]]\nname = 'a'\neffects_allowed = 'read'\n"
                "[[mode]]\nname = 'a'\neffects_allowed = 'read'\n"
            ),
            "policy:4 (a): it is defined twice; keep one of the two",
        ),
        (
            "[[mode]]\nname = 'plan'\neffects_allowed = ['read', 'write']\n",
            (
                "policy:1 (plan): plan promises that nothing is changed, so it cannot allow write; "
                "give a mode that does another name"
            ),
        ),
        (
            "[[mode]]\nname = 'x'\neffect = 'read'\n",
            "policy:3 (x): unknown key 'effect' (known: effects_allowed, name, otherwise)",
        ),
    ],
)
def test_a_fault_is_named_with_line_and_rule(text: str, message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        Policy.from_toml(text, name="policy")

    assert str(caught.value) == message


TRICKY = '''\
text = """
[[rule]]
"" \\""" x = 1
"""
raw = \'\'\'
[[rule]]
\'\'\'
end = """a""""
list = [
  "[[rule]]", # [[rule]]
  [ "]" ],
]
quote = 'it"s' # "
[[ rule ]] # first
"tools" = "a"
[["rule"]]
x.y = 1
  x . z = 2
[rule.arguments]
"a.b" = 1
[other]
x = 1
'''


@pytest.mark.parametrize(
    ("place", "line"),
    [
        (("text",), 1),
        (("raw",), 5),
        (("end",), 8),
        (("list",), 9),
        (("quote",), 13),
        (("rule", 0), 14),
        (("rule", 0, "tools"), 15),
        (("rule", 0, "nothing"), 14),
        (("rule", 1), 16),
        (("rule", 1, "x"), 17),
        (("rule", 1, "x", "y"), 17),
        (("rule", 1, "x", "z"), 18),
        (("rule", 1, "arguments"), 19),
        (("rule", 1, "arguments", "a", "b"), 20),
        (("other",), 21),
        (("other", "x"), 22),
        (("nothing",), 1),
    ],
)
def test_lines_are_found_whatever_stands_in_texts_lists_and_comments(
    place: tuple[str | int, ...], line: int
) -> None:
    assert Lines(TRICKY).of(*place) == line
