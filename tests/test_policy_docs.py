"""docs/policies.md says what is so: its policies load, its Python runs."""

import re
from pathlib import Path

import pytest

from laneway.policies.rules import Decision, Policy, Question

GUIDE = Path(__file__).parent.parent / "docs" / "policies.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)


@pytest.mark.parametrize("text", blocks("toml"))
def test_every_policy_in_the_guide_loads(text: str) -> None:
    assert isinstance(Policy.from_toml(text), Policy)


@pytest.mark.parametrize("code", blocks("python"))
def test_every_piece_of_python_in_the_guide_runs(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "policy.toml").write_text(blocks("toml")[0], "utf-8")
    monkeypatch.chdir(tmp_path)

    exec(compile(code, str(GUIDE), "exec"), {})  # noqa: S102 - it is our own guide


@pytest.mark.parametrize(
    ("tool", "arguments", "decision"),
    [
        ("http_call", {"url": "https://a.internal/x", "method": "POST"}, Decision.ASK),
        ("http_call", {"url": "https://a.internal/x", "method": "GET"}, Decision.ALLOW),
        ("http_call", {"url": "https://a.example/x", "method": "POST"}, Decision.ALLOW),
        ("transfer", {"amount": 123456, "dry_run": True}, Decision.DENY),
        ("transfer", {"amount": 1234, "dry_run": True}, Decision.ALLOW),
        ("transfer", {"amount": 1234, "dry_run": False}, Decision.DENY),
        ("transfer", {"amount": 1234}, Decision.DENY),
        ("note", {"text": "the Password: x"}, Decision.DENY),
    ],
)
def test_the_rules_over_arguments_do_what_the_guide_says_beside_them(
    tool: str, arguments: dict[str, object], decision: Decision
) -> None:
    policy = Policy.from_toml(blocks("toml")[1])

    assert policy.decide(Question(tool=tool, arguments=arguments)).decision is decision
