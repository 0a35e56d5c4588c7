"""Examples of calls, each with what a policy is expected to say of it, kept in a file of their own.

Reads TOML; feeds `laneway policy test`. docs/policies.md describes the format.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from laneway.engine.cli.policy_calls import CALL_KEYS, asked_by_engine, said_of_call
from laneway.engine.cli.policy_files import Loaded
from laneway.engine.tools import Tool
from laneway.errors import UsageError
from laneway.lanes.names import Names, is_lane
from laneway.outcomes import Failure
from laneway.policies.account import account, is_named
from laneway.policies.questions import Decision, Question, Verdict
from laneway.policies.rulefile import text_and_name
from laneway.policies.tables import Table, read_table

BESIDE = "_test"
"""The examples of `policy.toml` stand in `policy_test.toml`, if nothing else is said."""


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """A call, and what is expected."""

    where: str
    """`policy_test.toml:12 (prod is refused)`."""
    said: Mapping[str, Any]
    expect: Decision
    rule: str = ""
    """The name of a rule, or `mode plan`, `tool asks`, `default`; empty where any may decide."""


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an example."""

    example: str
    ok: bool
    expect: Decision
    decision: str
    """Empty where there was no call to decide about."""
    rule: str
    """That decided."""
    fault: str = ""
    """Why it is not ok."""


def example_files(policies: Sequence[Path], given: Sequence[Path]) -> Sequence[Path]:
    """Find the files with examples: those given, else those that stand beside the policies.

    Raises:
        UsageError: there are none.
    """
    if given:
        return given
    beside = [path.with_name(f"{path.stem}{BESIDE}.toml") for path in policies]
    found = [path for path in beside if path.exists()]
    if not found:
        raise UsageError(
            f"there is no {' and no '.join(map(str, beside))}; write examples there, or name "
            "a file with --examples"
        )
    return found


def read_examples(paths: Sequence[Path], names: Names) -> Sequence[Example]:
    """Read all examples.

    Raises:
        PolicyError: one cannot be meant; names the line.
        UsageError: there is none.
    """
    found: list[Example] = []
    for path in paths:
        top = read_table(*text_and_name(path))
        top.check_keys(["example"])
        found += [_example(table, names) for table in top.tables("example")]
    if not found:
        listed = ", ".join(map(str, paths))
        raise UsageError(f"{listed}: there is no [[example]] in it, so nothing would be tested")
    return found


async def try_examples(
    examples: Sequence[Example], loaded: Loaded, tools: Sequence[Tool], workspace: Path
) -> Sequence[Tried]:
    """Put all examples to a policy.

    Args:
        examples: as `read_examples` gives them.
        loaded: the policy.
        tools: whose declarations say what the calls take and do; none if the examples say it.
        workspace: the folder that relative file names start from.
    """
    if not tools:
        return [_tried(one, Question(**one.said), loaded) for one in examples]
    asked = await asked_by_engine([one.said for one in examples], tools, workspace)
    return [_tried(one, question, loaded) for one, question in zip(examples, asked, strict=True)]


def _example(table: Table, names: Names) -> Example:
    table.check_keys([*CALL_KEYS, "name", "expect", "rule"])
    name = table.text("name")
    return Example(
        where=f"{table.source} ({name})" if name else table.source,
        said=said_of_call(table, names),
        expect=table.choice("expect", Decision),
        rule=table.text("rule"),
    )


def _tried(example: Example, question: Question | Failure, loaded: Loaded) -> Tried:
    if isinstance(question, Failure):
        return _found(example, None, f"it would not run at all: {question.message}")
    verdict = loaded.policy.decide(question)
    if other := _otherwise_declared(example.said, question):
        return _found(example, verdict, other)
    if verdict.decision == example.expect and is_named(verdict.rule, example.rule or verdict.rule):
        return _found(example, verdict)
    by = f" by {example.rule}{_unmet(example, question, loaded)}" if example.rule else ""
    fault = f"expected {example.expect}{by}; the reason given: {verdict.reason}"
    return _found(example, verdict, fault)


def _found(example: Example, verdict: Verdict | None, fault: str = "") -> Tried:
    return Tried(
        example=example.where,
        ok=not fault,
        expect=example.expect,
        decision=verdict.decision if verdict else "",
        rule=verdict.rule if verdict else "",
        fault=fault,
    )


def _otherwise_declared(said: Mapping[str, Any], question: Question) -> str:
    """Say where an example says something else of a call than its tool; empty if it does not."""
    for key, value in said.items():
        if key in {"tool", "arguments", "mode"}:
            continue
        real = getattr(question, key)
        if key == "claims":
            real = tuple(one for one in real if one in value or not _keeps_order(one.resource))
        if real != value and (key != "claims" or {*real} != {*value}):
            return (
                f"the example says {key} = {_shown(value)}, but with its tool it is {_shown(real)}"
            )
    return ""


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, cast("tuple[object, ...]", value))) or "nothing"
    return str(value)


def _keeps_order(resource: str) -> bool:
    return is_lane(resource) or resource.startswith(("run:", "inode:"))


def _unmet(example: Example, question: Question, loaded: Loaded) -> str:
    """Say why the rule that was expected does not match; empty where it does."""
    said = account(loaded.policy, loaded.rules, loaded.modes, question)
    for rule in said.rules:
        if is_named(rule.rule, example.rule) and rule.unmet:
            return f", which does not match: {rule.unmet}"
    return ""
