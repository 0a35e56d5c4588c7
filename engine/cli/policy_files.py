"""Policies and tools that the command line was given, read so that every fault is told at once.

Reads files; feeds `laneway policy`.
"""

import re
import sys
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import msgspec

from laneway.effects import Effect
from laneway.engine.cli.plans import named_tools
from laneway.engine.engine import Engine
from laneway.engine.tools import Tool
from laneway.errors import PolicyError, ToolError
from laneway.policies.conditions import Rule
from laneway.policies.layers import policy_of
from laneway.policies.lines import Lines
from laneway.policies.lint import Ruled
from laneway.policies.meant import KnownTool
from laneway.policies.modes import Mode, known_modes
from laneway.policies.rulefile import read_rule_file, text_and_name
from laneway.policies.rules import Policy


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """Policy files, put together."""

    layers: Sequence[Ruled]
    """What each file says, the broadest first."""
    policy: Policy
    """All of them."""

    @property
    def rules(self) -> Sequence[Rule]:
        """Those of all layers."""
        return [rule for layer in self.layers for rule in layer.rules]

    @property
    def modes(self) -> Mapping[str, Mode]:
        """Those of all layers; the broadest that knows one describes it."""
        found: dict[str, Mode] = {}
        for layer in reversed(self.layers):
            found |= layer.modes
        return found


def load(paths: Sequence[Path]) -> Loaded | Sequence[PolicyError]:
    """Read policy files as layers of one policy, the broadest first.

    Returns:
        Them, or all faults that can be told: the first of each rule.
    """
    layers: list[Ruled] = []
    policies: list[Policy] = []
    faults: list[PolicyError] = []
    short = len({path.name for path in paths}) == len(paths)
    for path in paths:
        try:
            text, name = text_and_name(path, path.name if short else str(path))
        except PolicyError as fault:
            faults.append(fault)
            continue
        broader = [mode for policy in policies for mode in policy.modes]
        found = list(_faults(text, name, broader))
        faults += found
        if not found:
            file = read_rule_file(text, name, broader)
            modes = known_modes(file.modes)
            layers.append(Ruled(rules=file.rules, modes=modes, otherwise=file.otherwise))
            policies.append(Policy.from_toml(f"{text}\n", name=name, modes=broader))
    if faults:
        return faults
    return Loaded(layers=layers, policy=policies[0] if len(policies) == 1 else policy_of(policies))


def load_sound(paths: Sequence[Path]) -> Loaded:
    """Read policy files that must be sound.

    Raises:
        PolicyError: they have faults; the first.
    """
    loaded = load(paths)
    if isinstance(loaded, Loaded):
        return loaded
    raise loaded[0]


def tools_or_engine(reference: str) -> list[Tool]:
    """Import tools, or those of an engine, as a program started in this folder would.

    Raises:
        ToolError: there are none of that name.
    """
    try:
        return named_tools(reference, str(Path.cwd()))
    except ToolError:
        module, _, attribute = reference.partition(":")
        engine = getattr(sys.modules.get(module), attribute, None)
        if isinstance(engine, Engine):
            return list(engine.tools)
        raise


def known_tool(tool: Tool) -> KnownTool:
    """Say of a tool what rules can be held against."""
    spec = tool.spec
    effects = frozenset(Effect) if spec.effect_of else frozenset({spec.effect})
    properties = spec.schema.get("properties", {})
    closed = spec.schema.get("additionalProperties") is False
    return KnownTool(
        name=spec.name,
        effects=effects if spec.declared else frozenset({Effect.EXTERNAL}),
        asks=spec.approval,
        parameters=frozenset(properties) if closed else None,
    )


def _faults(text: str, name: str, broader: Collection[Mode]) -> Iterator[PolicyError]:
    """Give the first fault, take the rule that it is in away, and look again."""
    left = text
    while True:
        try:
            Policy.from_toml(f"{left}\n", name=name, modes=broader)
        except PolicyError as fault:
            found = re.match(rf"{re.escape(name)}:(\d+)(?: |$)", fault.where)
            if found is None:
                yield fault
                return
            line = int(found[1])
            shorter = _without_rule_at(left, line)
            if shorter == left:  # what follows from a fault elsewhere is no fault of its own
                yield fault
                return
            yield _renumbered(fault, sum(start <= line for start in _rule_starts(text)))
            left = shorter
        else:
            return


def _renumbered(fault: PolicyError, number: int) -> PolicyError:
    """Count a rule without name in the whole file, not in what was left of it."""
    said = str(fault).removeprefix(f"{fault.where}: ")
    return PolicyError(re.sub(r"\(rule \d+\)$", f"(rule {number})", fault.where), said)


def _without_rule_at(text: str, line: int) -> str:
    """Empty the lines of the rule that a line belongs to, so that all others keep their numbers."""
    lines = text.split("\n")
    starts = sorted(_starts(text))
    at = max((start for start, _ in starts if start <= line), default=0)
    if (at, "rule") not in starts or not lines[at - 1].lstrip().startswith("[["):
        return text
    end = min((start for start, _ in starts if start > at), default=len(lines) + 1)
    lines[at - 1 : end - 1] = [""] * (end - at)
    return "\n".join(lines)


def _rule_starts(text: str) -> Iterator[int]:
    return (start for start, key in _starts(text) if key == "rule")


def _starts(text: str) -> Iterator[tuple[int, str]]:
    """Give the line of each table at the top, with its key."""
    lines = Lines(text)
    for key, value in tomllib.loads(text).items():
        if isinstance(value, list):
            many = len(cast("list[object]", value))
            yield from ((lines.of(key, at), key) for at in range(many))
        else:
            yield lines.of(key), key
