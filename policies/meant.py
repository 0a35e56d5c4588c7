"""Which tools the rules of a policy can mean, where the tools of a host are known.

Reads rules, and what is known of tools; feeds `laneway policy check`.
"""

from collections.abc import Iterator, Sequence

import msgspec

from laneway.effects import Effect
from laneway.policies.arguments import flatten
from laneway.policies.conditions import Rule
from laneway.policies.coverage import strange_conditions
from laneway.policies.globs import glob_regex, text_test
from laneway.policies.lint import Finding, Lint, label
from laneway.policies.names import closest
from laneway.policies.paths import parse_path


class KnownTool(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a tool before it is called."""

    name: str
    effects: frozenset[Effect]
    """All that a call of it may have."""
    asks: bool = False
    parameters: frozenset[str] | None = None
    """What the model may set; None where it may set anything."""


def lint_tools(rules: Sequence[Rule], tools: Sequence[KnownTool], /) -> Sequence[Finding]:
    """Find what means no tool.

    Args:
        rules: In the order of writing, as they were accepted by a policy.
        tools: All that the host has.
    """
    return [
        finding
        for position, rule in enumerate(rules)
        for finding in _about(rule, label(rule, position), tools)
    ]


def _about(rule: Rule, name: str, tools: Sequence[KnownTool]) -> Iterator[Finding]:
    if strange_conditions(rule):  # it may be about tools that come from elsewhere
        return
    names = [tool.name for tool in tools]
    for glob in rule.tools:
        if not any(map(text_test([glob_regex(glob)]), names)):
            message = f"tools: {glob!r} fits the name of no tool{closest(glob, names)}"
            yield Finding(lint=Lint.NO_TOOL, rule=name, message=message)
    fits = text_test([glob_regex(glob) for glob in rule.tools or ["*"]])
    named = [tool for tool in tools if fits(tool.name)]
    meant = [tool for tool in named if not rule.effects or tool.effects & {*rule.effects}]
    if named and not meant:
        message = f"effects: no call of {_listed(named)} is {' or '.join(rule.effects)}"
        yield Finding(lint=Lint.NO_TOOL, rule=name, message=message)
    if not meant:
        return
    yield from _unknown_arguments(rule, name, meant)
    if rule.without_asking and not any(tool.asks for tool in meant):
        message = f"without_asking changes nothing: none of {_listed(meant)} asks; leave it out"
        yield Finding(lint=Lint.NO_EFFECT, rule=name, message=message)


def _unknown_arguments(rule: Rule, name: str, tools: Sequence[KnownTool]) -> Iterator[Finding]:
    parameters: set[str] = set()
    for tool in tools:
        if tool.parameters is None:
            return
        parameters |= tool.parameters
    for path, _ in flatten(rule.arguments):
        first = parse_path(path)[0]
        if isinstance(first, str) and first not in parameters:
            message = f"arguments.{path}: no argument of {_listed(tools)} is called {first!r}"
            yield Finding(
                lint=Lint.NO_TOOL, rule=name, message=message + closest(first, parameters)
            )


def _listed(tools: Sequence[KnownTool], most: int = 5) -> str:
    names = ", ".join(tool.name for tool in tools[:most])
    return names if len(tools) <= most else f"{names} and {len(tools) - most} more"
