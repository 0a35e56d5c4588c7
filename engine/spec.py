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
from laneway.engine.isolation.declaring import idle_of, isolation_of
from laneway.engine.serialise import digest
from laneway.engine.shape import Shape, Shaper, shape_of
from laneway.errors import ToolError
from laneway.lanes.priorities import PRIORITY_HINT, is_priority
from laneway.lanes.shell import command_parameter

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
    total_timeout: float | None
    """Seconds for all attempts and the pauses between them; `Limits.attempts_seconds` if left
    out, and at least one attempt."""
    idle_timeout: float | None
    """Seconds that the tool may go without `ToolContext.progress`; needs a ToolContext."""
    isolation: str | None
    """`process` runs each call in a process of its own, with its own limits, which can be ended
    at any time; `thread` or None runs a synchronous function in a thread. See docs/isolation.md."""
    memory_mb: float | None
    """What the process of a call may map, in MiB; `Limits.process_memory_mb` if left out."""
    cpu_seconds: float | None
    """How long the process of a call may compute; `Limits.process_cpu_seconds` if left out."""
    stops_siblings: bool
    """Whether the other open calls of the turn are stopped when a call of this tool has failed."""
    compensate: Callable[..., Any] | None
    """Undoes a call when its run is abandoned: gets a `Done`; sync or async (docs/isolation.md)."""
    retries: int
    """Further attempts after a transient fault, if a repeat is safe."""
    priority: int
    """Where calls wait for one lane: each step is worth half a minute of waiting. 0 if left out."""
    risk: str
    """A word of the host's for what is at stake, such as low, medium or high: lanes may be for it
    (`Lane(risks=["high"])`)."""
    server: str
    """The MCP server that the tool is of, for policies."""
    agent: str
    """The named agent that the tool is, for policies."""
    command_lines: Collection[str]
    """Parameters that hold a command line, or a program with its arguments in a list: policies
    judge every command in them. The one that `shell_claims` and `shell_effect` name is known."""
    approval: bool
    """Whether a human is asked for each call that no rule decides."""
    approvers: int
    """How many different people must grant a call of a tool that asks; 1 if left out."""
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
    shape: "Shape | Shaper | str | None"
    """How its results are shortened for the model: the name of a shape (`file`, `search`, `shell`,
    `tests`, `browser`, `database`, `agent`), a `Shape`, or a function from a value and the room in
    characters to a text (docs/results.md)."""
    version: str
    """Of the tool's behaviour: a result recorded under another version is not shared or reused."""
    poll_seconds: float | None
    """For a tool that is asked again and again by design: how soon the same may be asked again
    (docs/loops.md). 0 if only `poll_count` is given."""
    poll_count: int | None
    """How often in a row the same may bring the same result. 100 if only `poll_seconds` is given;
    for a tool with neither, the loop detectors say."""
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
    total_timeout_seconds: float | None = None
    idle_seconds: float | None = None
    isolation: str = ""
    """`process`, or empty for the event loop and its threads."""
    memory_mb: float | None = None
    cpu_seconds: float | None = None
    stops_siblings: bool = False
    compensate: str = ""
    """The function that undoes a call, by name; `Tool.compensation` runs it."""
    retries: int = 0
    priority: int = 0
    """Steps of `AGEING_SECONDS` that its calls come earlier where they wait; may be negative."""
    risk: str = ""
    server: str = ""
    agent: str = ""
    command_lines: tuple[str, ...] = ()
    """Parameters that hold command lines."""
    approval: bool = False
    approvers: int = 1
    strict: bool = False
    sync: bool = False
    """The function blocks: it runs in a thread."""
    literal: frozenset[str] = frozenset()
    bound: frozenset[str] = frozenset()
    secret_bound: frozenset[str] = frozenset()
    """Those of `bound` whose values are found nowhere in what the tool says."""
    secret: frozenset[str] = frozenset()
    """Paths of secret fields, as declared."""
    shape: Shape | None = None
    """How its results are shortened; None for any text."""
    version: str = ""
    """Digest of schema, declarations and the declared version."""
    importable: str = ""
    """`module:qualname` of the function, or empty."""
    poll_seconds: float | None = None
    poll_count: int | None = None
    polled: bool = False
    """It has one of the two: other limits hold for what repeats."""
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
    lines = _command_lines(name, said)
    for word, named in (
        ("literal", literal),
        ("bound", bound),
        ("command_lines", frozenset(lines)),
    ):
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
        minimum_seconds=_minimum(name, said.get("minimum_seconds", 0.0)),
        timeout_seconds=_seconds(name, "timeout", said.get("timeout")),
        total_timeout_seconds=_seconds(name, "total_timeout", said.get("total_timeout")),
        idle_seconds=idle_of(name, callee, said.get("idle_timeout")),
        isolation=isolation_of(name, callee, said),
        memory_mb=_seconds(name, "memory_mb", said.get("memory_mb")),
        cpu_seconds=_seconds(name, "cpu_seconds", said.get("cpu_seconds")),
        stops_siblings=bool(said.get("stops_siblings", False)),
        compensate=_name_of(said.get("compensate")),
        retries=_retries(name, said.get("retries", 0)),
        priority=_priority(name, said.get("priority", 0)),
        risk=_risk(name, said.get("risk", "")),
        server=_word(name, "server", said.get("server", "")),
        agent=_word(name, "agent", said.get("agent", "")),
        command_lines=lines,
        approval=said.get("approval", False),
        approvers=_approvers(name, said.get("approvers", 1), asks=bool(said.get("approval"))),
        strict=said.get("strict", False),
        sync=callee.sync or said.get("isolation") == "process",
        literal=literal,
        bound=bound,
        secret_bound=bound - callee.shown,
        secret=frozenset(said.get("secret", ())),
        shape=shape_of(name, said.get("shape")),
        importable=callee.importable,
        poll_seconds=_poll_seconds(name, said.get("poll_seconds")),
        poll_count=_poll_count(name, said.get("poll_count")),
        polled=said.get("poll_seconds") is not None or said.get("poll_count") is not None,
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
_FLAGS = ("idempotent", "approval", "strict", "stops_siblings")


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


def _seconds(tool: str, word: str, given: float | None) -> float | None:
    if given is not None and not given > 0:
        unit, what = ("MiB", "size") if word == "memory_mb" else ("seconds", "time")
        raise ToolError(
            tool, f"{word}={given!r} is no {what}; give {unit}, or math.inf for no limit"
        )
    return None if given is None else float(given)


def _poll_seconds(tool: str, seconds: Any) -> float | None:
    number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if seconds is not None and not (number and 0 <= seconds < math.inf):
        raise ToolError(tool, f"poll_seconds={seconds!r} is no interval; give seconds, 0 or more")
    return None if seconds is None else float(seconds)


def _poll_count(tool: str, count: object) -> int | None:
    if count is None:
        return None
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ToolError(tool, f"poll_count={count!r} is no number of calls; give 1 or more")
    return count


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


def _approvers(tool: str, approvers: object, *, asks: bool) -> int:
    if type(approvers) is not int or approvers < 1:
        raise ToolError(tool, f"approvers={approvers!r} is no number of people; give 1 or more")
    if approvers > 1 and not asks:
        raise ToolError(tool, f"approvers={approvers} is of no use without approval=True; say both")
    return approvers


def _priority(tool: str, priority: object) -> int:
    if not is_priority(priority):
        raise ToolError(tool, f"priority={priority!r} is none; {PRIORITY_HINT}")
    return priority


def _risk(tool: str, risk: object) -> str:
    if not isinstance(risk, str) or (risk and not _RISK.fullmatch(risk)):
        raise ToolError(tool, f"risk={risk!r} is no word; give one such as 'low' or 'high'")
    return risk


def _word(tool: str, word: str, given: object) -> str:
    if not isinstance(given, str):
        raise ToolError(tool, f"{word}={given!r} is no text")
    return given


def _command_lines(tool: str, said: Declarations) -> tuple[str, ...]:
    """Name the parameters that hold command lines, declared or known from what is derived."""
    declared = said.get("command_lines", ())
    if isinstance(declared, str):
        raise ToolError(tool, f"command_lines={declared!r} is a text; give a tuple of names")
    derived = map(command_parameter, (said.get("claims"), said.get("effect_of")))
    return tuple(sorted({*declared, *(name for name in derived if name)}))


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
            *([["server", spec.server]] if spec.server else []),
            *([["agent", spec.agent]] if spec.agent else []),
            *([["secret", sorted(spec.secret)]] if spec.secret else []),
        ]
    )[:16]
