"""`laneway policy`: checks, examples and explanations, as a person or a program meets them."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from laneway import Effect, Engine, tool
from laneway.engine.cli.app import app
from laneway.states import State

POLICY = """\
otherwise = "ask"

[[rule]]
name = "no-secrets"
decision = "deny"
claims = ["file:**/.env"]
reason = "Secrets stay here."

[[rule]]
name = "reading"
decision = "allow"
effects = ["read"]

[[rule]]
decision = "deny"
tools = ["deploy"]
arguments.env = "prod*"
"""

TOOLS = """
from laneway import Effect, Engine, tool

@tool(effect=Effect.READ, claims=["read file:{path}"])
def read_file(path: str) -> str:
    return path

@tool(effect=Effect.WRITE, claims=["write file:{path}", "lane:disk"], approval=True)
def write_file(path: str, text: str = "") -> str:
    return path

@tool
def deploy(env: str) -> str:
    return env

@tool(effect=Effect.WRITE, effect_of=lambda arguments: Effect.READ)
def look(at: str) -> str:
    return at

engine = Engine([read_file])
nothing = 5
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a policy and a module of tools, as the current one."""
    (tmp_path / "policy.toml").write_text(POLICY)
    (tmp_path / "policytools.py").write_text(TOOLS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("LANEWAY_JOURNAL", raising=False)
    sys.modules.pop("policytools", None)
    return tmp_path


def laneway(*arguments: str) -> Result:
    result = CliRunner().invoke(app, ["policy", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def document(*arguments: str) -> Any:
    return json.loads(laneway(*arguments, "--json").stdout)


WITH = ("--policy", "policy.toml")


# check

SHADOWED = (
    "policy.toml:19 matches all that it matches, and deny beats allow; narrow the one or remove "
    "the other"
)


def test_a_policy_in_which_nothing_is_found_is_clean(here: Path) -> None:
    result = laneway("check", "policy.toml")

    assert (result.exit_code, result.stdout) == (0, "3 rules, no findings\n")
    assert document("check", "policy.toml") == {"faults": [], "findings": []}


def test_what_is_found_is_told_with_its_line_and_ends_with_1(here: Path) -> None:
    (here / "policy.toml").write_text(POLICY + '\n[[rule]]\ndecision = "deny"\ntools = ["deploy"]')
    (here / "more.toml").write_text('[[rule]]\ndecision = "allow"\ntools = ["deploy"]\n')

    result = laneway("check", "policy.toml", "more.toml")

    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        f"more.toml:1: shadowed: {SHADOWED}",
        "5 rules, 1 finding",
    ]
    assert document("check", "policy.toml", "more.toml")["findings"] == [
        {
            "lint": "shadowed",
            "rule": "more.toml:1",
            "message": SHADOWED,
            "by": "policy.toml:19",
        }
    ]


FAULTY = """\
[[rule]]
decision = "deny"
effects = ["writes"]

[[rule]]
name = "fine"
decision = "deny"
tools = ["a"]

[[rule]]
name = "shout"
decision = "dny"
tools = ["a"]

[[rule]]
decision = "deny"
[rule.arguments]
path = ""

[[rule]]
name = "fine"
decision = "deny"
tools = ["a"]
"""


def test_every_fault_of_a_policy_is_told_with_its_own_line_and_ends_with_2(here: Path) -> None:
    (here / "faulty.toml").write_text(FAULTY)

    result = laneway("check", "faulty.toml", "policy.toml", "missing.toml")

    assert result.exit_code == 2
    assert result.stdout.splitlines() == [
        (
            "faulty.toml:3 (rule 1): unknown effect 'writes'; did you mean "
            "'write'? (known: external, "
            "pure, read, write)"
        ),
        (
            "faulty.toml:12 (shout): unknown decision 'dny'; did you mean 'deny'? "
            "(known: allow, ask, "
            "deny)"
        ),
        (
            "faulty.toml:18 (rule 4): arguments.path: an empty pattern fits nothing; for the empty "
            'text write { equals = "" }'
        ),
        "faulty.toml:20 (fine): the name 'fine' is taken by faulty.toml:5",
        "missing.toml: cannot be read: No such file or directory",
        "5 faults; nothing of it can be used",
    ]
    assert [one["where"] for one in document("check", "faulty.toml")["faults"]] == [
        "faulty.toml:3 (rule 1)",
        "faulty.toml:12 (shout)",
        "faulty.toml:18 (rule 4)",
        "faulty.toml:20 (fine)",
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            'otherwise = "no"\n[[rule]]\ndecision = "ask"\ntools = ["a"]\n',
            "p.toml:1: unknown otherwise 'no' (known: allow, ask, deny)",
        ),
        (
            (
                '[[mode]]\nname = "m"\neffects_allowed = ["x"]\n[[rule]]\ndecision = "ask"\n'
                'modes = ["m"]\n'
            ),
            "p.toml:3 (m): unknown effect 'x' (known: external, pure, read, write)",
        ),
        (
            '[colours]\nred = 1\n[[rule]]\ndecision = "ask"\ntools = ["a"]\n',
            "p.toml:1: unknown key 'colours' (known: mode, narrower_may_allow, otherwise, rule)",
        ),
        (
            'rule = [{ decision = "ask" }, { decision = "no" }]\n',
            'p.toml:1 (rule 1): it applies to every call; if that is meant, say tools = ["*"]',
        ),
    ],
)
def test_behind_a_fault_outside_of_rules_nothing_is_guessed(
    here: Path, text: str, fault: str
) -> None:
    (here / "p.toml").write_text(text)

    result = laneway("check", "p.toml")

    assert result.exit_code == 2
    assert result.stdout.splitlines() == [fault, "1 fault; nothing of it can be used"]


def test_what_is_no_toml_is_told_with_line_and_column(here: Path) -> None:
    (here / "p.toml").write_text("\n[[rule]\n")

    result = laneway("check", "p.toml")

    assert result.exit_code == 2
    assert result.stdout.startswith("p.toml:2:")
    assert "not TOML: Expected ']]' at the end of an array declaration" in result.stdout


def test_files_of_one_name_are_told_apart_by_their_folders(here: Path) -> None:
    for folder in ("a", "b"):
        (here / folder).mkdir()
        (here / folder / "p.toml").write_text('[[rule]]\ndecision = "deny"\ntools = ["a"]\n')

    result = laneway("check", "a/p.toml", "b/p.toml")

    assert result.stdout.startswith("b/p.toml:1: duplicate: a/p.toml:1 says the same")


def test_the_strictest_layer_decides_and_the_broadest_of_them_is_named(here: Path) -> None:
    (here / "user.toml").write_text(
        '[[rule]]\ndecision = "ask"\ntools = ["read_*"]\n'
        '[[rule]]\ndecision = "allow"\ntools = ["*"]\n'
        '[[rule]]\ndecision = "deny"\ntools = ["deploy"]\n'
    )
    layers = ("--policy", "policy.toml", "--policy", "user.toml")

    def decides(*call: str) -> str:
        return str(document("explain", *call, *layers)["verdict"]["rule"])

    assert decides('{"tool": "read_file", "effect": "read"}') == "layer 2: user.toml:1"
    assert decides("deploy", '{"env": "prod"}') == "layer 1: policy.toml:14"
    assert decides("deploy") == "layer 2: user.toml:7"
    assert decides("send") == "layer 1: default"


def test_a_narrower_file_may_speak_of_the_modes_of_a_broader_one_and_let_it_decide(
    here: Path,
) -> None:
    (here / "host.toml").write_text(
        'otherwise = "deny"\nnarrower_may_allow = true\n'
        '[[mode]]\nname = "review"\neffects_allowed = ["pure", "read", "write", "external"]\n'
    )
    (here / "user.toml").write_text(
        '[[rule]]\ndecision = "allow"\ntools = ["send"]\nmodes = ["review"]\n'
    )
    assert laneway("check", "host.toml", "user.toml").exit_code == 0
    alone = laneway("check", "user.toml")
    assert alone.exit_code == 2
    assert "review" in alone.output
    layers = ("--policy", "host.toml", "--policy", "user.toml", "--mode", "review")

    assert document("explain", "send", *layers)["verdict"]["decision"] == "allow"
    assert document("explain", "post", *layers)["verdict"]["decision"] == "deny"


@pytest.mark.parametrize(
    ("tools", "lines"),
    [
        ("policytools", []),
        (
            "policytools:engine",
            [
                (
                    "policy.toml:14: no such tool: tools: 'deploy' fits the name of no "
                    "tool (known: "
                    "read_file)"
                )
            ],
        ),
        (
            "policytools:write_file",
            [
                "policy.toml:9 (reading): no such tool: effects: no call of write_file is read",
                (
                    "policy.toml:14: no such tool: tools: 'deploy' fits the name of no "
                    "tool (known: "
                    "write_file)"
                ),
            ],
        ),
        (
            "policytools:look",
            [
                (
                    "policy.toml:14: no such tool: tools: 'deploy' fits the name of no "
                    "tool (known: "
                    "look)"
                )
            ],
        ),
    ],
)
def test_with_tools_rules_that_mean_none_of_them_are_found(
    here: Path, tools: str, lines: list[str]
) -> None:
    result = laneway("check", "policy.toml", "--tools", tools)

    assert result.stdout.splitlines()[:-1] == lines
    assert result.exit_code == (1 if lines else 0)


@pytest.mark.parametrize("command", ["check", "test"])
@pytest.mark.parametrize(
    ("tools", "fault"),
    [
        ("policytools:nothing", "it is of type int; name a tool or a list of tools"),
        ("policytools:gone", "module 'policytools' has no 'gone'"),
        ("nowhere", "module 'nowhere' cannot be imported"),
    ],
)
def test_tools_that_are_none_are_refused(here: Path, command: str, tools: str, fault: str) -> None:
    result = laneway(command, "policy.toml", "--tools", tools)

    assert result.exit_code == 2
    assert fault in result.stderr


# test

EXAMPLES = """\
[[example]]
name = "prod is refused"
tool = "deploy"
arguments.env = "prod-eu"
expect = "deny"
rule = "policy.toml:14"

[[example]]
tool = "read_file"
arguments.path = "a.py"
effect = "read"
claims = ["read file:a.py"]
expect = "allow"
rule = "reading"

[[example]]
tool = "read_file"
arguments.path = ".env"
effect = "read"
claims = ["read file:.env", "lane:x"]
mode = "plan"
expect = "deny"
rule = "policy.toml:3 (no-secrets)"
"""


def test_examples_that_are_as_expected_end_with_0(here: Path) -> None:
    (here / "policy_test.toml").write_text(EXAMPLES)

    result = laneway("test", "policy.toml")

    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "✓ ok      policy_test.toml:1 (prod is refused): deny by policy.toml:14",
        "✓ ok      policy_test.toml:8: allow by policy.toml:9 (reading)",
        "✓ ok      policy_test.toml:16: deny by policy.toml:3 (no-secrets)",
        "3 examples: 3 ok, 0 not ok",
    ]


def test_examples_that_are_not_as_expected_say_why_and_end_with_1(here: Path) -> None:
    (here / "mine.toml").write_text(
        EXAMPLES.replace("prod-eu", "test").replace('rule = "reading"', 'rule = "default"')
        + '[[example]]\ntool = "a"\nexpect = "allow"\nrule = "default"\n'
    )

    result = laneway("test", "policy.toml", "--examples", "mine.toml")

    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        (
            "✗ not ok  mine.toml:1 (prod is refused): ask by default; expected "
            "deny by policy.toml:14, "
            "which does not match: arguments.env: test does not fit prod*; the "
            "reason given: no rule "
            "matches this call, and the policy says: otherwise ask"
        ),
        (
            "✗ not ok  mine.toml:8: allow by policy.toml:9 (reading); expected "
            "allow by default; the "
            "reason given: a rule of the policy allows this call"
        ),
        "✓ ok      mine.toml:16: deny by policy.toml:3 (no-secrets)",
        (
            "✗ not ok  mine.toml:24: ask by default; expected allow by default; "
            "the reason given: no "
            "rule matches this call, and the policy says: otherwise ask"
        ),
        "4 examples: 1 ok, 3 not ok",
    ]
    shown = document("test", "policy.toml", "--examples", "mine.toml")
    assert (shown["passed"], shown["failed"]) == (1, 3)
    assert shown["examples"][2] == {
        "example": "mine.toml:16",
        "ok": True,
        "expect": "deny",
        "decision": "deny",
        "rule": "policy.toml:3 (no-secrets)",
        "fault": "",
    }


def test_a_rule_by_another_name_is_no_rule_that_is_expected(here: Path) -> None:
    (here / "policy_test.toml").write_text(
        EXAMPLES.replace('rule = "policy.toml:14"', 'rule = "policy.toml:1"')
    )

    assert "expected deny by policy.toml:1;" in laneway("test", "policy.toml").stdout


def test_with_tools_their_declarations_say_what_a_call_takes_and_does(here: Path) -> None:
    (here / "policy_test.toml").write_text(
        """
[[example]]
tool = "read_file"
arguments.path = "sub/.env"
expect = "deny"
rule = "no-secrets"

[[example]]
tool = "write_file"
arguments.path = "a"
asks = true
claims = ["write file:a"]
expect = "ask"
rule = "tool asks"

[[example]]
tool = "look"
arguments.at = "${HOME}"
expect = "allow"

[[example]]
tool = "deploy"
arguments.env = "prod"
mode = "plan"
expect = "deny"
declared = false
"""
    )

    result = laneway("test", "policy.toml", "--tools", "policytools")

    assert result.exit_code == 0
    assert result.stdout.splitlines()[1:] == [
        "✓ ok      policy_test.toml:8: ask by tool asks",
        "✓ ok      policy_test.toml:16: allow by policy.toml:9 (reading)",
        "✓ ok      policy_test.toml:21: deny by policy.toml:14",
        "4 examples: 4 ok, 0 not ok",
    ]


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        (
            'effect = "write"',
            "the example says effect = write, but with its tool it is read",
        ),
        (
            'claims = ["write file:a"]',
            (
                "the example says claims = exclusive file:{}/a, but with its tool it is shared "
                "file:{}/a"
            ),
        ),
        ("asks = true", "the example says asks = True, but with its tool it is False"),
        (
            "arguments.pth = 1",
            (
                "it would not run at all: read_file was not run, because its arguments "
                "do not fit: pth "
                "is unknown."
            ),
        ),
    ],
)
def test_an_example_that_says_something_else_than_its_tool_is_not_ok(
    here: Path, lines: str, fault: str
) -> None:
    (here / "policy_test.toml").write_text(
        f'[[example]]\ntool = "read_file"\narguments.path = "a"\n{lines}\nexpect = "allow"\n'
    )

    result = laneway("test", "policy.toml", "--tools", "policytools")

    assert result.exit_code == 1
    assert fault.format(*[here.resolve()] * 2) in result.stdout


def test_a_tool_that_takes_nothing_is_said_to_take_nothing(here: Path) -> None:
    (here / "policy_test.toml").write_text(
        '[[example]]\ntool = "look"\narguments.at = "a"\nclaims = ["read db:x"]\nexpect = "allow"\n'
    )

    result = laneway("test", "policy.toml", "--tools", "policytools")

    assert "claims = shared db:x, but with its tool it is nothing" in result.stdout


@pytest.mark.parametrize(
    ("example", "fault"),
    [
        ('expect = "deny"', "e.toml:1 (example 1): tool is missing; name the tool that is called"),
        ('tool = "a"', "e.toml:1 (example 1): expect is missing; write one of allow, ask, deny"),
        (
            'tool = "a"\nexpect = "no"',
            "e.toml:3 (example 1): unknown expect 'no' (known: allow, ask, deny)",
        ),
        (
            'tool = "a"\nexpects = "ask"',
            "e.toml:3 (example 1): unknown key 'expects'; did you mean 'expect'?",
        ),
        ('tool = "a"\narguments = 5', "e.toml:3 (example 1): arguments must be a table"),
        (
            'tool = "a"\nclaims = ["take file:a"]',
            "e.toml:3 (example 1): claim 'take file:a': write an access and a resource",
        ),
        (
            'tool = "a"\nclaims = ["read nothing"]',
            "e.toml:3 (example 1): claim 'read nothing': resource 'nothing': write scheme:path",
        ),
        ('tool = "a"\nclaims = ["file:a"]', "claim 'file:a': write an access and a resource"),
    ],
)
def test_an_example_that_cannot_be_meant_is_named_with_its_line(
    here: Path, example: str, fault: str
) -> None:
    (here / "e.toml").write_text(f"[[example]]\n{example}\n")

    result = laneway("test", "policy.toml", "--examples", "e.toml")

    assert result.exit_code == 2
    assert fault in result.stderr


def test_where_there_are_no_examples_the_way_to_write_them_is_told(here: Path) -> None:
    (here / "empty.toml").write_text("")

    without = laneway("test", "policy.toml")
    empty = laneway("test", "policy.toml", "--examples", "empty.toml")

    assert (without.exit_code, empty.exit_code) == (2, 2)
    assert "there is no policy_test.toml; write examples there, or name a file" in without.stderr
    assert "empty.toml: there is no [[example]] in it, so nothing would be tested" in empty.stderr


def test_a_policy_that_cannot_be_used_is_neither_tested_nor_explained(here: Path) -> None:
    (here / "policy.toml").write_text("x = 1\n")

    for result in (laneway("test", "policy.toml"), laneway("explain", "a", *WITH)):
        assert result.exit_code == 2
        assert "policy.toml:1: unknown key 'x'" in result.stderr


# explain


def test_a_call_is_explained_rule_by_rule(here: Path) -> None:
    call = json.dumps(
        {"tool": "read_file", "arguments": {}, "effect": "read", "claims": ["read file:/x/.env"]}
    )

    result = laneway("explain", call, *WITH)

    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "read_file {}  read, mode build",
        "  takes shared file:/x/.env",
        "✓ policy.toml:3 (no-secrets): deny, matches, and decides",
        "· policy.toml:9 (reading): allow, matches, but does not decide",
        "– policy.toml:14: deny, does not match: tools: read_file does not fit deploy",
        "  mode build: allow, for the call is read",
        "  tool: allow, for it is not declared to ask",
        "deny by policy.toml:3 (no-secrets): Secrets stay here.",
    ]


def test_an_explanation_is_there_for_programs_too(here: Path) -> None:
    shown = document("explain", "deploy", '{"env": "prod"}', "--mode", "plan", *WITH)

    assert shown["call"]["arguments"] == {"env": "prod"}
    assert shown["call"]["mode"] == "plan"
    assert shown["mode"]["decision"] == "deny"
    assert shown["verdict"]["rule"] == "policy.toml:14"
    assert [one["decides"] for one in shown["rules"]] == [False, False, True]


def test_a_tool_alone_is_a_call_without_arguments(here: Path) -> None:
    result = laneway("explain", "deploy", *WITH)

    assert result.stdout.splitlines()[0] == "deploy {}  external, mode build"
    assert result.stdout.splitlines()[-1].startswith("ask by default: ")


def test_with_tools_a_call_is_explained_as_the_engine_would_ask(here: Path) -> None:
    result = laneway("explain", "deploy", '{"env": "x"}', "--tools", "policytools", *WITH)

    assert result.stdout.splitlines()[:2] == [
        'deploy {"env": "x"}  declares nothing, so external, mode build',
        "  takes exclusive run:preview",
    ]


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["{"], "CALL: this is no JSON"),
        (["a", "[]"], "ARGUMENTS: it must be a JSON object, not []"),
        (['{"tool": "a", "efect": "read"}'], "unknown key 'efect'; did you mean 'effect'?"),
        (["a", "{}", "c"], "write a call as one JSON object, or as TOOL and its arguments in JSON"),
        (["a", "--journal", "x.db"], "with --journal, name a run and a call of it: RUN CALL"),
        (["a", "b", "--journal", "x.db"], "there is no journal x.db"),
        (["a", "--workspace", "gone"], "--workspace gone: there is no such folder"),
        (
            ["read_file", "--tools", "policytools"],
            "this would be no call: read_file was not run, because its arguments do not fit",
        ),
    ],
)
def test_what_is_no_call_is_refused_with_the_way_to_write_one(
    here: Path, words: list[str], fault: str
) -> None:
    result = laneway("explain", *words, *WITH)

    assert result.exit_code == 2
    assert fault in result.stderr


@tool(effect=Effect.PURE)
async def name_of(number: int) -> str:
    return f"prod-{number}"


@tool(name="deploy", effect=Effect.WRITE, claims=["write db:{env}"])
async def deploying(env: str) -> str:
    return env


@tool(name="ask_me", effect=Effect.WRITE, approval=True)
async def asking(env: str) -> str:
    return env


@tool(name="raw")
async def undeclared(env: str) -> str:
    return env


@tool(effect=Effect.READ)
async def broken() -> str:
    raise LookupError("nothing there")


@pytest.fixture
def journal(here: Path) -> str:
    """A journal with a run whose calls refer to each other, ask, and fail."""

    async def record() -> None:
        tools: list[Any] = [name_of, deploying, asking, undeclared, broken]
        async with Engine(tools, journal=here / "runs.db") as engine, engine.run("r") as run:
            calls = [
                {"id": "name", "tool": "name_of", "arguments": {"number": 1}},
                {"id": "go", "tool": "deploy", "arguments": {"env": {"$from": "name"}}},
                {"id": "raw", "tool": "raw", "arguments": {"env": "${name}"}},
                {"id": "bad", "tool": "broken", "arguments": {}},
                {
                    "id": "gone",
                    "tool": "raw",
                    "arguments": {"env": {"$from": "name", "path": "x"}},
                },
                {"id": "lost", "tool": "deploy", "arguments": {"env": {"$from": "bad"}}},
                {"id": "ask", "tool": "ask_me", "arguments": {"env": "prod"}},
            ]
            turn = await run.submit({"calls": calls}, wait=False)
            while not run.approvals:  # noqa: ASYNC110 - a question sets no event
                await asyncio.sleep(0)
            assert turn.calls[-1].state is State.AWAITING_APPROVAL
            await run.deny(run.approvals[0].id, by="ann")
            await turn.wait()
            await turn.close()
            function = {"name": "deploy", "arguments": "{{"}
            cut = {"id": "unread", "type": "function", "function": function}
            message = {"role": "assistant", "content": None, "tool_calls": [cut]}
            await run.submit(
                {
                    "object": "chat.completion",
                    "id": "c1",
                    "choices": [{"index": 0, "message": message}],
                }
            )

    asyncio.run(record())
    return str(here / "runs.db")


def test_a_recorded_call_is_explained_with_what_it_was_judged_on(here: Path, journal: str) -> None:
    result = laneway("explain", "r", "go", "--journal", journal, *WITH)

    assert result.exit_code == 0
    assert result.stdout.splitlines()[:2] == [
        'deploy {"env": "prod-1"}  write, mode build',
        "  takes shared run:r",
    ]
    assert "  takes exclusive db:prod-1" in result.stdout
    assert result.stdout.splitlines()[-2:] == [
        "deny by policy.toml:14: a rule of the policy denies this call",
        "recorded with the call is another: default",
    ]


def test_a_recorded_call_that_asked_is_known_to_have_asked(here: Path, journal: str) -> None:
    shown = document("explain", "r", "ask", "--journal", journal, "--mode", "plan", *WITH)

    assert shown["call"]["asks"] is True
    assert shown["call"]["mode"] == "plan"
    assert shown["recorded_rule"] == "tool asks"
    assert shown["call"]["arguments"] == {"env": "prod"}


def test_a_recorded_call_of_a_tool_that_declares_nothing_is_judged_so(
    here: Path, journal: str
) -> None:
    (here / "empty.toml").write_text("\n")

    result = laneway("explain", "r", "raw", "--journal", journal, "--policy", "empty.toml")

    assert "raw" in result.stdout.splitlines()[0]
    assert "declares nothing, so external" in result.stdout.splitlines()[0]
    assert result.stdout.splitlines()[-1] == "recorded with the call is the same: default"


def test_with_tools_what_is_declared_now_counts_for_a_recorded_call(
    here: Path, journal: str
) -> None:
    shown = document(
        "explain", "r", "raw", "--journal", journal, "--tools", "policytools:deploy", *WITH
    )
    declared = document(
        "explain", "r", "go", "--journal", journal, "--tools", "policytools:deploy", *WITH
    )

    assert (shown["call"]["tool"], shown["call"]["declared"]) == ("raw", False)
    assert declared["call"]["declared"] is False


def test_what_a_recorded_call_refers_to_in_vain_is_not_known(here: Path, journal: str) -> None:
    result = laneway("explain", "r", "lost", "--journal", journal, *WITH)

    assert result.stdout.splitlines()[0].startswith("deploy of unknown arguments  write")
    assert "  its arguments refer to bad, which did not succeed" in result.stdout
    assert "recorded with the call" not in result.stdout


def test_what_a_recorded_call_refers_to_and_is_not_there_is_told(here: Path, journal: str) -> None:
    result = laneway("explain", "r", "gone", "--journal", journal, *WITH)

    assert "  what its arguments refer to is not there: " in result.stdout


def test_a_recorded_call_that_the_tools_of_now_refuse_is_told_so(here: Path, journal: str) -> None:
    (here / "newer.py").write_text(
        "from laneway import tool\n@tool\ndef deploy(target: str) -> str:\n    return target\n"
    )

    result = laneway("explain", "r", "go", "--journal", journal, "--tools", "newer", *WITH)

    assert "  with these tools it would be no call: deploy was not run" in result.stdout
    assert result.stdout.splitlines()[0] == 'deploy {"env": "prod-1"}  write, mode build'


def test_a_recorded_call_whose_arguments_could_not_be_read_is_judged_without_them(
    here: Path, journal: str
) -> None:
    result = laneway("explain", "r", "unread", "--journal", journal, *WITH)

    assert result.stdout.splitlines()[0].startswith("deploy of unknown arguments")
    assert "its arguments could not be read, so nothing is known of them" in result.stdout
