"""Rules over commands: each simple command of a line is judged, wherever it stands."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from laneway import Decision, Effect, Engine, Policy, Rule, State, tool
from laneway.errors import PolicyError
from laneway.lanes.shell import MissingShellError, shell_claims, shell_effect
from laneway.policies import commands
from laneway.policies.commands import line_of
from laneway.policies.questions import Question

ALLOW, ASK, DENY = Decision.ALLOW, Decision.ASK, Decision.DENY
CASES = Path(__file__).parents[1].parent / "shared" / "cases" / "handed.yaml"


def asked(line: Any, **more: Any) -> Question:
    return Question(tool="bash", arguments={"command": line}, command_lines=("command",), **more)


def decided(line: Any, *rules: Rule, otherwise: Decision = ASK) -> Decision:
    return Policy(rules, otherwise=otherwise).decide(asked(line)).decision


ROWS = Policy(
    [Rule(DENY, commands=["rm *"]), Rule(ALLOW, commands=["git *", "ls *"])], otherwise=ASK
)


def handed() -> Mapping[str, Any]:
    if not CASES.exists():
        pytest.skip(f"{CASES} is not there")
    cases: Any = yaml.safe_load(CASES.read_text("utf-8"))
    return next(case for case in cases["cases"] if case["id"] == "h-pol-1")


def test_h_pol_1_an_allowed_command_with_a_forbidden_one_behind_it() -> None:
    given_rules = handed()["given"]
    said = given_rules["policy"]
    policy = Policy(
        [Rule(DENY, commands=said["bash_deny"]), Rule(ALLOW, commands=said["bash_allow"])],
        otherwise=Decision(said["otherwise"]),
    )
    log: list[str] = []

    @tool(effect=Effect.EXTERNAL, effect_of=shell_effect("cmd"), claims=shell_claims("cmd"))
    def bash(cmd: str) -> str:
        log.append(cmd)
        return "ok"

    async def row(cmd: str) -> str:
        plan = {"calls": [{"id": "c", "tool": "bash", "arguments": {"cmd": cmd}}]}
        async with Engine([bash], policy=policy) as engine, engine.run("r") as run:
            turn = await run.submit(plan, wait=False)
            await until(lambda: turn.ready or bool(run.approvals))
            if run.approvals:
                return "ask"
            return "deny" if turn.calls[0].state is State.DENIED else "allow"

    for one in given_rules["rows"]:
        assert asyncio.run(row(one["cmd"])) == one["decision"], one

    assert log == [one["cmd"] for one in given_rules["rows"] if one["decision"] == "allow"]


async def until(so: Callable[[], bool]) -> None:
    while not so():  # noqa: ASYNC110 - there is no event for it; the loop is that of the engine
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("line", "decision"),
    [
        ("ls", ALLOW),
        ("ls -la *.py", ALLOW),
        ("git log 2>&1 >/dev/null", ALLOW),
        ("git log > out", ASK),
        ("{ git log; } >> out", ASK),
        ("git log > /dev/tcp/example.org/80", ASK),
        ("> out", ASK),
        ("", ASK),
        ("FOO=1", ASK),
        ("# nothing", ASK),
        ("PATH=/tmp git log", ASK),
        ("./git log", ASK),
        ("/usr/bin/git log", ASK),
        ("git log $X", ASK),
        ("git -c core.pager='sh -c evil' log", ASK),
        ("git rebase --exec 'rm a' main", ASK),
        ("git config alias.x '!rm a'", ASK),
        ("git grep -Oless a", ASK),
        ("git grep a", ALLOW),
        ("sudo git log", ASK),
        ("rm", DENY),
        ("/bin/rm a", DENY),
        ("./rm a", DENY),
        ("\\rm a", DENY),
        ("'r'm a", DENY),
        ("git log | xargs rm", DENY),
        ("sudo -u root env A=1 rm a", DENY),
        ("sh -c 'git log; rm a'", DENY),
        ("bash -c \"sh -c 'rm a'\"", DENY),
        ("ls && (cd a; rm b)", DENY),
        ("for a in b; do rm $a; done", DENY),
        ("git log `rm a`", DENY),
        ("git log <<E\n$(rm a)\nE", DENY),
        ("find . -exec rm {} +", DENY),
        ("f() { rm a; }; f", DENY),
        ("rm $X", DENY),
        ("$X a", ASK),
        ("eval $X", ASK),
        ("echo cm0gYQo= | base64 -d | sh", ASK),
        ("zsh -c 'rm a'", ASK),
        ("busybox rm a", ASK),
        ("git 'unclosed", ASK),
        ("echo 'rm a'", ASK),
        ('git commit -m "rm a"', ALLOW),
    ],
)
def test_every_command_of_a_line_is_judged_wherever_it_stands(
    line: str, decision: Decision
) -> None:
    assert ROWS.decide(asked(line)).decision is decision


def test_a_list_is_a_program_with_its_arguments() -> None:
    assert ROWS.decide(asked(["git", "log", "; rm a"])).decision is ALLOW
    assert ROWS.decide(asked(["sh", "-c", "rm a"])).decision is DENY
    assert ROWS.decide(asked(["git", 1])).decision is ASK
    assert ROWS.decide(asked({"run": "git log"})).decision is ASK


def test_what_is_not_known_may_be_what_a_rule_denies_and_is_left_to_a_human() -> None:
    rule = Rule(DENY, commands=["git push --force*"], name="no-force")

    for line in ("git push $X", "git $X", "git p*", 'eval "$X"', ". a.sh"):
        verdict = Policy([rule]).decide(asked(line))
        assert verdict.decision is ASK, line
        assert verdict.rule == "rule 1 (no-force)"
        assert "may hide in this line" in verdict.reason
    for line in ("git pull $X", "ls $X", "git push", "git push origin"):
        assert decided(line, rule, otherwise=ALLOW) is ALLOW, line


def test_an_exact_pattern_may_hide_behind_a_hole_no_longer_than_itself() -> None:
    rule = Rule(DENY, commands=["git pus?"])

    assert decided("git $X", rule, otherwise=ALLOW) is ASK
    assert decided("git push", rule, otherwise=ALLOW) is DENY
    assert decided("git push now$X", rule, otherwise=ALLOW) is ALLOW


def test_a_rule_that_asks_does_so_in_doubt() -> None:
    rule = Rule(ASK, commands=["rm *"])

    assert decided("rm a", rule, otherwise=ALLOW) is ASK
    assert decided("eval $X", rule, otherwise=ALLOW) is ASK
    assert decided("ls", rule, otherwise=ALLOW) is ALLOW


def test_arguments_that_are_not_known_meet_whoever_refuses() -> None:
    unknown = Question(tool="bash", arguments=None, command_lines=("command",))

    assert ROWS.decide(unknown).decision is DENY
    assert Policy([Rule(ALLOW, commands=["ls *"])], otherwise=ASK).decide(unknown).decision is ASK
    assert ROWS.decide(Question(tool="x", arguments=None)).decision is ASK


def test_a_tool_without_a_command_line_is_matched_by_no_pattern_of_commands() -> None:
    assert ROWS.decide(Question(tool="x", arguments={"command": "rm a"})).decision is ASK
    assert ROWS.decide(Question(tool="x", arguments={}, command_lines=("command",))).decision is ASK


def test_other_conditions_count_beside_the_commands() -> None:
    rule = Rule(DENY, commands=["rm *"], arguments={"where": "prod"})
    policy = Policy([rule])

    def on(where: str, command: str) -> Decision:
        arguments = {"where": where, "command": command}
        return policy.decide(
            Question(tool="bash", arguments=arguments, command_lines=("command",))
        ).decision

    assert [on("prod", "rm a"), on("test", "rm a")] == [DENY, ALLOW]
    assert [on("prod", "eval $X"), on("test", "eval $X")] == [ASK, ALLOW]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("", "commands: an empty pattern fits nothing"),
        (" ls", "commands: command pattern ' ls' has blanks around it, and never fits"),
        (
            "ls && git *",
            "commands: command pattern 'ls && git *': each command of a line is judged on its own",
        ),
    ],
)
def test_a_pattern_that_could_never_fit_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(PolicyError, match=re.escape(message)):
        Policy([Rule(DENY, commands=[pattern])])


def test_rules_over_commands_want_the_analysis_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise MissingShellError

    monkeypatch.setattr(commands, "require_grammar", missing)

    with pytest.raises(PolicyError, match="rule 1: commands: analysing shell commands needs"):
        Policy([Rule(DENY, commands=["rm *"])])


words = st.sampled_from(["rm", "git", "ls", "cat", "a", "-f", "push", "$X", "*.py", "'b c'"])
simple = st.lists(words, min_size=1, max_size=3).map(" ".join)
joints = st.sampled_from([" && ", " || ", "; ", " | ", "\n", " & "])
wraps = st.sampled_from(["{}", "sudo {}", "({})", "echo $({})", "if {}; then ls; fi", "{} > f"])


@st.composite
def command_lines(draw: st.DrawFn) -> str:
    parts = draw(st.lists(st.builds(str.format, wraps, simple), min_size=1, max_size=3))
    return draw(joints).join(parts)


command_patterns = st.sampled_from(
    ["rm *", "git *", "ls *", "cat *", "git push", "git p*", "echo *", "sudo *", "* a", "*", "?s *"]
)


def fits(pattern: str, outline: str) -> bool:
    """Match by trying everything; a hole is taken by a star alone."""
    if pattern.endswith(" *") and fits(pattern[:-2], outline):
        return True

    def at(p: str, t: str) -> bool:
        if not p:
            return not t
        if p[0] == "*":
            return at(p[1:], t) or (bool(t) and at(p, t[1:]))
        if not t or t[0] == "\ufffc":
            return False
        return p[0] in ("?", t[0]) and at(p[1:], t[1:])

    return at(pattern, outline)


def naive(rules: Sequence[Rule], line: str, otherwise: Decision) -> tuple[Decision, bool]:
    """Judge a line by its parts; and say whether a denial may only hide in it."""
    found = line_of(line)
    said = [otherwise]
    matched = False
    for rule in rules:
        if rule.decision is ALLOW:
            whole = found.listed and not found.beside and bool(found.outlines)
            fit = whole and all(any(fits(p, one) for p in rule.commands) for one in found.outlines)
        else:
            fit = any(fits(p, one) for p in rule.commands for one in found.alike)
        matched |= fit
        if fit:
            said.append(rule.decision)
    if matched:
        said = said[1:]
    return max(said, key=[ALLOW, ASK, DENY].index), found.plain


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.builds(
            lambda decision, patterns: Rule(decision, commands=patterns),
            st.sampled_from(list(Decision)),
            st.lists(command_patterns, min_size=1, max_size=3),
        ),
        min_size=1,
        max_size=12,
    ),
    command_lines(),
    st.sampled_from(list(Decision)),
)
def test_rules_over_commands_decide_as_a_naive_judge(
    rules: list[Rule], line: str, otherwise: Decision
) -> None:
    wanted, plain = naive(rules, line, otherwise)
    found = Policy(rules, otherwise=otherwise).decide(asked(line)).decision

    if plain or found is not ASK:
        assert found is wanted
    else:  # what may hide is asked about, and nothing that is surely denied
        assert wanted is not DENY or not any(
            rule.decision is DENY
            and any(fits(p, one) for p in rule.commands for one in line_of(line).alike)
            for rule in rules
        )


@settings(max_examples=200, deadline=None)
@given(command_lines(), st.sampled_from(["rm x", "sudo rm x", "sh -c 'rm x'", "env A=1 rm x"]))
def test_a_denied_command_is_denied_wherever_it_is_put(line: str, bad: str) -> None:
    rules = [Rule(DENY, commands=["rm *"]), Rule(ALLOW, commands=["*"])]

    for whole in (f"{line}\n{bad}", f"{bad} && {line}", f"echo $({bad}); {line}"):
        assert decided(whole, *rules) is not ALLOW
        if line_of(whole).listed:
            assert decided(whole, *rules) is DENY
