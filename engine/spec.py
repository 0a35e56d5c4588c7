"""What the scheduler must know of a tool, apart from what the model sees of it.

Reads what a host declares; feeds admission, policies, lanes and execution.
"""

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypedDict

import msgspec

from laneway.effects import Effect
from laneway.engine.callables import Callee
from laneway.engine.claiming import ClaimsOf
from laneway.engine.docstrings import summary
from laneway.engine.serialise import digest
from laneway.errors import ToolError
from laneway.lanes.priorities import PRIORITY_HINT, is_priority

NAME = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9_.:/-]{0,127}")
"""What some provider or MCP server takes for the name of a tool."""
NARROW_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What both OpenAI and Anthropic take; a dot is refused by both."""


EffectOf = Callable[[Mapping[str, Any]], Effect]
"""From canonical arguments to the effect of a call with them."""

_SAYING = ("effect", "effect_of", "idempotent", "claims")
"""What makes a tool declared: with any of it, the worst is no longer assumed."""


class Declarations(TypedDict, total=False):
    """What can be said of a tool; everything may be left out."""

    name: str | None
    """For the model; the function's own name if left out."""
    description: str | None
    """For the model; the first paragraph of the docstring if left out."""
    effect: Effect | None
    """How far a call reaches."""
    effect_of: EffectOf | None
    """How far one call reaches, from its canonical arguments, where that depends on them: for
    policies, and for what may be repeated. `effect` is the most that it can be; it holds while
    arguments wait for another call's result, and where the function raises."""
    idempotent: bool | None
    """Whether a repeated call changes nothing more; pure and read tools always are."""
    claims: Sequence[str] | ClaimsOf | None
    """What a call takes: templates (`write file:{path}`), or a function from its canonical
    arguments to such texts; [] for nothing."""
    claims_at_most: Sequence[str]
    """Covers whatever a function in `claims` may give, for a call whose arguments wait for another
    call's result; all files if left out."""
    timeout: float | None
    """Seconds for one attempt; the engine's default if left out, math.inf for no limit."""
    minimum_seconds: float
    """How long a call needs at least: with less left of its run's time it is not started."""
    retries: int
    """Further attempts after a transient fault, if a repeat is safe."""
    priority: int
    """Where calls wait for one lane: each step is worth half a minute of waiting. 0 if left out."""
    risk: str
    """A word of the host's for what is at stake, such as low, medium or high: lanes may be for it
    (`Lane(risks=["high"])`)."""
    approval: bool
    """Whether a human is asked for each call that no rule decides."""
    strict: bool
    """No coercion, no unknown fields, nothing unwrapped."""
    literal: Collection[str]
    """Parameters in which `${…}` is text, such as a shell command."""
    bound: Collection[str]
    """Parameters that the host sets and the model never sees."""
    secret: Collection[str]
    """Fields of arguments, and of the result behind `return`, that are never written down:
    `password`, `login.pin`, `return.token`; lists are passed through, `*` is any field. Fields of
    types that say so themselves need not be named (docs/journal.md)."""
    version: str
    """Of the tool's behaviour: a result recorded under another version is not shared or reused."""
    reconcile: Callable[..., Any] | None
    """Asks the outside world what became of a call whose end nobody saw: gets its ToolContext, or
    arguments by name, or both, and answers with a `Found`. A repeat is left to it, so it must
    know the call by its idempotency key or by what it did (docs/journal.md)."""


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a tool."""

    name: str
    description: str
    schema: dict[str, Any]
    """JSON Schema of what the model sends; host-bound parameters are absent."""
    effect: Effect = Effect.EXTERNAL
    """The most that a call can do."""
    effect_of: str = ""
    """The function that says what one call does, by name; `Tool.effect_of` asks it."""
    idempotent: bool = False
    declared: bool = False
    """False if nothing was said of effect, claims and idempotence: it runs alone in its run."""
    claims: tuple[str, ...] | None = None
    """Templates as declared, None if nothing was said of them; `Tool.claims` evaluates."""
    timeout_seconds: float | None = None
    """None for the engine's default, math.inf for no limit."""
    minimum_seconds: float = 0.0
    retries: int = 0
    priority: int = 0
    """Steps of `AGEING_SECONDS` that its calls come earlier where they wait; may be negative."""
    risk: str = ""
    approval: bool = False
    strict: bool = False
    sync: bool = False
    """The function blocks: it runs in a thread."""
    literal: frozenset[str] = frozenset()
    bound: frozenset[str] = frozenset()
    secret_bound: frozenset[str] = frozenset()
    """Those of `bound` whose values are found nowhere in what the tool says."""
    secret: frozenset[str] = frozenset()
    """Paths of secret fields, as declared."""
    version: str = ""
    """Digest of schema, declarations and the declared version."""
    importable: str = ""
    """`module:qualname` of the function, or empty."""
    reconcile: str = ""
    """The probe, by name; `Tool.probe` asks it."""


def spec_of(callee: Callee, schema: dict[str, Any], said: Declarations) -> ToolSpec:
    """Put together what the function, its schema and the host say.

    Raises:
        ToolError: something contradicts itself, is out of range or names no parameter.
    """
    name = tool_name(callee, said)
    effect = _effect(name, said.get("effect"))
    idempotent = said.get("idempotent")
    for word in _FLAGS:
        if said.get(word) not in (None, True, False):
            raise ToolError(name, f"{word}={said.get(word)!r} is neither True nor False")
    if effect is not None and effect.changes_nothing and idempotent is False:
        raise ToolError(name, f"a {effect} tool changes nothing, so it is idempotent; say neither")
    if effect is not None and effect.changes_nothing and said.get("reconcile") is not None:
        raise ToolError(
            name,
            f"a {effect} tool changes nothing, so a probe has nothing to find out; leave "
            "reconcile= out",
        )
    claims = said.get("claims")
    parameters = {*schema.get("properties", ()), *callee.parameters}
    literal, bound = frozenset(said.get("literal", ())), bound_of(callee, said)
    for word, named in (("literal", literal), ("bound", bound)):
        if unknown := sorted(named - parameters) if not callee.takes_any else []:
            known = ", ".join(sorted(parameters)) or "none"
            raise ToolError(
                name, f"{word}= names {unknown[0]!r}, no parameter of it (it has: {known})"
            )
    effect = effect if effect is not None else Effect.EXTERNAL
    spec = ToolSpec(
        name=name,
        description=said.get("description") or summary(callee.docstring),
        schema=schema,
        effect=effect,
        effect_of=_name_of(said.get("effect_of")),
        idempotent=effect.changes_nothing or bool(idempotent),
        declared=any(said.get(word) is not None for word in _SAYING),
        claims=_claims_text(claims),
        timeout_seconds=_timeout(name, said.get("timeout")),
        minimum_seconds=_minimum(name, said.get("minimum_seconds", 0.0)),
        retries=_retries(name, said.get("retries", 0)),
        priority=_priority(name, said.get("priority", 0)),
        risk=_risk(name, said.get("risk", "")),
        approval=said.get("approval", False),
        strict=said.get("strict", False),
        sync=callee.sync,
        literal=literal,
        bound=bound,
        secret_bound=bound - callee.shown,
        secret=frozenset(said.get("secret", ())),
        importable=callee.importable,
        reconcile=_name_of(said.get("reconcile")),
    )
    return msgspec.structs.replace(spec, version=_version(spec, said.get("version", "")))


def tool_name(callee: Callee, said: Declarations) -> str:
    """Give the name that a tool will have.

    Raises:
        ToolError: no provider would take it.
    """
    name = said.get("name") or callee.name
    if not NAME.fullmatch(name):
        raise ToolError(
            name,
            "this is no name that any provider takes (letters, digits, and _ - . : / behind the "
            "first, up to 128); give one with name=",
        )
    return name


def bound_of(callee: Callee, said: Declarations) -> frozenset[str]:
    """Name the parameters that the host sets, marked or declared."""
    named = said.get("bound", ())
    if isinstance(named, str):
        raise ToolError(
            tool_name(callee, said), f"bound={named!r} is a text; give a tuple of names"
        )
    return callee.bound | frozenset(named)


_RISK = re.compile(r"[\w-]{1,64}")
_FLAGS = ("idempotent", "approval", "strict")


def _effect(tool: str, effect: object) -> Effect | None:
    """Take an effect, or its word."""
    if effect is None or isinstance(effect, Effect):
        return effect
    try:
        return Effect(str(effect))
    except ValueError:
        known = ", ".join(Effect)
        raise ToolError(tool, f"effect={effect!r} is none (the effects: {known})") from None


def _claims_text(claims: Sequence[str] | ClaimsOf | None) -> tuple[str, ...] | None:
    if callable(claims):
        return (f"by {_name_of(claims)}",)
    return None if claims is None else tuple(claims)


def _name_of(function: object) -> str:
    if function is None:
        return ""
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def _timeout(tool: str, seconds: float | None) -> float | None:
    if seconds is not None and not seconds > 0:
        raise ToolError(
            tool, f"timeout={seconds!r} is no time; give seconds, or math.inf for no limit"
        )
    return None if seconds is None else float(seconds)


def _minimum(tool: str, seconds: object) -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise ToolError(tool, f"minimum_seconds={seconds!r} is no time; give seconds")
    return float(seconds)


def _retries(tool: str, retries: int) -> int:
    if retries < 0 or retries != math.floor(retries):
        raise ToolError(tool, f"retries={retries!r} is no number of further attempts")
    return int(retries)


def _priority(tool: str, priority: object) -> int:
    if not is_priority(priority):
        raise ToolError(tool, f"priority={priority!r} is none; {PRIORITY_HINT}")
    return priority


def _risk(tool: str, risk: object) -> str:
    if not isinstance(risk, str) or (risk and not _RISK.fullmatch(risk)):
        raise ToolError(tool, f"risk={risk!r} is no word; give one such as 'low' or 'high'")
    return risk


def _version(spec: ToolSpec, declared: str) -> str:
    return digest(
        [
            declared,
            spec.name,
            spec.schema,
            spec.effect,
            spec.idempotent,
            spec.claims,
            sorted(spec.bound),
            sorted(spec.literal),
            spec.strict,
            *([spec.effect_of] if spec.effect_of else []),
            *([["risk", spec.risk]] if spec.risk else []),
            *([["secret", sorted(spec.secret)]] if spec.secret else []),
        ]
    )[:16]
