"""Policies as people write them: TOML into rules and modes, each fault with its line.

Reads a text; feeds `Policy.from_toml`. docs/policies.md describes the format.
"""

from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from laneway.effects import Effect
from laneway.errors import PolicyError
from laneway.policies.conditions import Rule, RuleFault, check_names, compile_rule
from laneway.policies.modes import Mode, fault_of, known_modes
from laneway.policies.questions import Decision
from laneway.policies.tables import Table, read_table


class RuleFile(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy file says."""

    rules: Sequence[Rule]
    modes: Sequence[Mode]
    otherwise: Decision
    narrower_may_allow: bool


TOP_KEYS = ("otherwise", "narrower_may_allow", "rule", "mode")
MODE_KEYS = ("name", "effects_allowed", "otherwise")
RULE_KEYS = tuple(field for field in Rule.__struct_fields__ if field != "source")


def read_rule_file(text: str, name: str, inherited: Collection[Mode] = (), /) -> RuleFile:
    """Read and check a whole policy.

    Args:
        text: TOML.
        name: Of the file, for messages and for the sources of rules.
        inherited: Modes of broader layers: what it does not limit itself, they do.

    Raises:
        PolicyError: the first fault, with its line.
    """
    top = read_table(text, name)
    top.check_keys(TOP_KEYS)
    modes = _modes(top.tables("mode"))
    own = {"plan", "build", *(mode.name for mode in modes)}
    modes = [*modes, *(Mode(mode.name) for mode in inherited if mode.name not in own)]
    names = known_modes(modes).keys()
    return RuleFile(
        rules=[_rule(table, names) for table in top.tables("rule")],
        modes=modes,
        otherwise=top.choice("otherwise", Decision, Decision.ALLOW),
        narrower_may_allow=top.flag("narrower_may_allow"),
    )


def text_and_name(path_or_text: str | Path, name: str = "", /) -> tuple[str, str]:
    """Fetch the text of a policy, and what to call it.

    Args:
        path_or_text: A path; a `str` with a line break in it is the text itself.
        name: Overrides the name of the file, or `policy` for a text.

    Raises:
        PolicyError: the file cannot be read, or is not UTF-8.
    """
    if isinstance(path_or_text, str) and "\n" in path_or_text:
        return path_or_text, name or "policy"
    path = Path(path_or_text)
    try:
        return path.read_bytes().decode("utf-8-sig"), name or path.name
    except UnicodeDecodeError as error:
        raise PolicyError(str(path), f"is not UTF-8 text, from byte {error.start} on") from None
    except (OSError, ValueError) as error:  # a path with a null byte is a ValueError
        fault = error.strerror if isinstance(error, OSError) else error
        hint = "; a text, not a path, has at least one line break" if "=" in path.name else ""
        raise PolicyError(str(path), f"cannot be read: {fault}{hint}") from None


def _modes(tables: Sequence[Table]) -> Sequence[Mode]:
    seen: set[str] = set()
    return [_mode(table, seen) for table in tables]


def _mode(table: Table, seen: set[str]) -> Mode:
    table.check_keys(MODE_KEYS)
    names = table.texts("effects_allowed")
    if not names:
        table.refuse('effects_allowed is missing; say, for example, effects_allowed = ["read"]')
    _check(table, "effects_allowed", "effect", names, list(Effect))
    mode = Mode(
        table.text("name"),
        frozenset(map(Effect, names)),
        table.choice("otherwise", Decision, Decision.DENY),
    )
    if fault := fault_of(mode, seen):
        table.refuse(fault)
    seen.add(mode.name)
    return mode


def _rule(table: Table, modes: Collection[str]) -> Rule:
    table.check_keys(RULE_KEYS)
    effects = table.texts("effects")
    _check(table, "effects", "effect", effects, list(Effect))
    rule = Rule(
        table.choice("decision", Decision),
        tools=table.texts("tools"),
        effects=[Effect(name) for name in effects],
        modes=table.texts("modes"),
        servers=table.texts("servers"),
        agents=table.texts("agents"),
        risks=table.texts("risks"),
        arguments=table.table("arguments"),
        claims=table.texts("claims"),
        commands=table.texts("commands"),
        name=table.text("name"),
        reason=table.text("reason"),
        source=table.source,
        without_asking=table.flag("without_asking"),
        approvers=table.number("approvers", 1),
        ask_each_time=table.flag("ask_each_time"),
    )
    try:
        compile_rule(rule, rule.source, modes)
    except RuleFault as fault:
        table.refuse(str(fault), *fault.keys)
    return rule


def _check(table: Table, key: str, kind: str, names: Sequence[str], known: Collection[str]) -> None:
    try:
        check_names(key, kind, names, known)
    except RuleFault as fault:
        table.refuse(str(fault), key)
