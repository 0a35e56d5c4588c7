"""The published schema of policy files and their reader say the same."""

import json
import tomllib
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from laneway.effects import Effect
from laneway.errors import PolicyError
from laneway.policies.conditions import CONDITIONS
from laneway.policies.patterns import MATCHERS
from laneway.policies.questions import Decision
from laneway.policies.rulefile import MODE_KEYS, RULE_KEYS, TOP_KEYS
from laneway.policies.rules import Policy

DOCS = Path(__file__).parent.parent / "docs"
SCHEMA: dict[str, Any] = json.loads((DOCS / "policy.schema.json").read_text("utf-8"))
VALID = jsonschema_rs.validator_for(SCHEMA)

RULE = '[[rule]]\ndecision = "allow"\ntools = ["*"]\n'
MODE = '[[mode]]\nname = "m"\neffects_allowed = ["read"]\n'
GOOD = {
    ("", "otherwise"): 'otherwise = "ask"\n',
    ("", "narrower_may_allow"): "narrower_may_allow = true\n",
    ("", "rule"): RULE,
    ("", "mode"): MODE,
    ("rule", "decision"): RULE,
    ("rule", "tools"): RULE,
    ("rule", "servers"): RULE + 'servers = "git*"\n',
    ("rule", "agents"): RULE + 'agents = ["a", "b"]\n',
    ("rule", "risks"): RULE + 'risks = ["high"]\n',
    ("rule", "effects"): RULE + 'effects = "read"\n',
    ("rule", "modes"): RULE + 'modes = ["plan"]\n',
    ("rule", "arguments"): RULE + "arguments.a = [1, true]\narguments.b.c = { equals = {} }\n",
    ("rule", "claims"): RULE + 'claims = ["write file:/w"]\n',
    ("rule", "commands"): RULE + 'commands = ["git *"]\n',
    ("rule", "name"): RULE + 'name = "n"\n',
    ("rule", "reason"): RULE + 'reason = "r"\n',
    ("rule", "without_asking"): RULE + "without_asking = true\n",
    ("rule", "approvers"): RULE.replace("allow", "ask") + "approvers = 2\n",
    ("rule", "ask_each_time"): RULE.replace("allow", "ask") + "ask_each_time = true\n",
    ("mode", "name"): MODE,
    ("mode", "effects_allowed"): MODE,
    ("mode", "otherwise"): MODE + 'otherwise = "ask"\n',
    ("matcher", "glob"): RULE + 'arguments.a = { glob = "x" }\n',
    ("matcher", "regex"): RULE + 'arguments.a = { regex = ["x", "y"], missing = true }\n',
    ("matcher", "equals"): RULE + "arguments.a = { equals = [1] }\n",
    ("matcher", "missing"): RULE + "arguments.a = { missing = true }\n",
}
BAD = [
    'otherwise = "no"\n',
    "narrower_may_allow = 1\n",
    "more = 1\n",
    "[rule]\n",
    '[[rule]]\ntools = "*"\n',
    '[[rule]]\ndecision = "deny"\n',
    '[[rule]]\ndecision = "deny"\narguments = {}\n',
    RULE + "more = 1\n",
    RULE + "name = 1\n",
    RULE + "reason = 1\n",
    RULE.replace("allow", "deny") + "without_asking = true\n",
    RULE + "without_asking = 1\n",
    RULE + "approvers = 2\n",
    RULE.replace("allow", "ask") + "approvers = 0\n",
    RULE + "ask_each_time = true\n",
    RULE + 'arguments = "a"\n',
    RULE + "arguments.a = []\n",
    RULE + 'arguments.a = ""\n',
    RULE + 'arguments.a = { glob = "x", regex = "y" }\n',
    RULE + 'arguments.a = { glob = "x", more = "y" }\n',
    RULE + "arguments.a = { missing = false }\n",
    RULE + "arguments.a = { regex = 1 }\n",
    *(f"{RULE}{key} = []\n" for key in ("servers", "agents", "risks", "modes", "claims")),
    *(f"{RULE}{key} = [1]\n" for key in ("servers", "agents", "risks", "effects", "commands")),
    '[[mode]]\nname = "m"\n',
    '[[mode]]\neffects_allowed = ["read"]\n',
    MODE + "more = 1\n",
    MODE + 'otherwise = "allow"\n',
]


def said(part: str) -> dict[str, Any]:
    found: dict[str, Any] = SCHEMA["$defs"][part] if part else SCHEMA
    return found


@pytest.mark.parametrize(
    ("part", "keys"),
    [("", TOP_KEYS), ("rule", RULE_KEYS), ("mode", MODE_KEYS), ("matcher", MATCHERS)],
)
def test_the_schema_and_the_reader_know_the_same_keys(part: str, keys: tuple[str, ...]) -> None:
    assert set(said(part)["properties"]) == set(keys)
    assert {key for where, key in GOOD if where == part} == set(keys)
    assert said(part)["additionalProperties"] is False


def test_the_schema_and_the_code_know_the_same_words() -> None:
    assert set(said("decision")["enum"]) == set(Decision)
    assert set(said("effect")["enum"]) == set(Effect)
    assert {one["required"][0] for one in said("rule")["anyOf"]} == set(CONDITIONS)


@pytest.mark.parametrize("text", GOOD.values())
def test_what_the_schema_takes_is_read(text: str) -> None:
    assert list(VALID.iter_errors(tomllib.loads(text))) == []
    Policy.from_toml(text)


@pytest.mark.parametrize("text", BAD)
def test_what_the_schema_refuses_is_not_read(text: str) -> None:
    assert not VALID.is_valid(tomllib.loads(text))
    with pytest.raises(PolicyError):
        Policy.from_toml(text)
