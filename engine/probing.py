"""Probes: how the host of a tool asks the outside world what became of one of its calls.

    async def paid(context: ToolContext) -> Found:
        charge = await bank.find(context.idempotency_key)
        return Found.happened({"receipt": charge.id}) if charge else Found.nothing()

    @tool(effect=Effect.EXTERNAL, reconcile=paid)
    async def pay(amount: int, context: ToolContext) -> dict[str, str]: ...

Reads what a host declares as `reconcile`; gives the tool its probe, and the scheduler, which asks
it about calls whose end nobody saw, the words in which it answers.
"""

from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from laneway.engine.callables import examine
from laneway.engine.context import ToolContext
from laneway.engine.failures import shortened
from laneway.engine.plain import whole_text
from laneway.engine.telling import named
from laneway.errors import ToolError


class Finding(StrEnum):
    """What a probe can find."""

    HAPPENED = "happened"
    NOTHING = "did not happen"
    UNKNOWN = "unknown"


class Found(msgspec.Struct, frozen=True):
    """What a probe answers; made by `happened`, `nothing` or `unknown`."""

    finding: Finding
    value: Any = None
    """The result of a call that happened."""
    why: str = ""
    """Why nobody can tell."""

    @classmethod
    def happened(cls, value: Any = None) -> "Found":
        """The call had its whole effect.

        Args:
            value: its result, as the tool would have returned it.
        """
        return cls(Finding.HAPPENED, value)

    @classmethod
    def nothing(cls) -> "Found":
        """The call had no effect, and will have none: it is safe to run it again."""
        return cls(Finding.NOTHING)

    @classmethod
    def unknown(cls, why: str = "") -> "Found":
        """It cannot be told, or not yet: what is under way may still happen.

        Args:
            why: for whoever reads the journal.
        """
        return cls(Finding.UNKNOWN, None, why)


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """The function that a tool declared with `reconcile`, and what it takes."""

    function: Callable[..., Any]
    sync: bool
    parameters: frozenset[str]
    """Those besides the context."""
    takes_any: bool
    context: str
    """The parameter that receives the ToolContext, or empty."""

    @property
    def wants_arguments(self) -> bool:
        """Whether it asks for any of the call's arguments."""
        return self.takes_any or bool(self.parameters)

    def call_with(self, given: Mapping[str, Any], context: ToolContext) -> dict[str, Any]:
        """Choose what it takes of a call's arguments, those that the host binds included."""
        chosen = {
            name: value
            for name, value in given.items()
            if self.takes_any or name in self.parameters
        }
        if self.context:
            chosen[self.context] = context
        return chosen


def probe_of(
    tool: str, function: object, parameters: Collection[str], *, takes_any: bool
) -> Probe | None:
    """Look at what was declared as `reconcile`.

    Args:
        tool: whose probe it is.
        function: sync or async; takes a ToolContext, or arguments of the tool by name, or both.
        parameters: what the tool has.
        takes_any: whether the tool takes more than these.

    Raises:
        ToolError: it is no function, or asks for what the tool has not.
    """
    if function is None:
        return None
    callee = examine(function, f"{tool} (its reconcile)")
    if not takes_any and (unknown := sorted(callee.required - frozenset(parameters))):
        known = ", ".join(sorted(parameters)) or "none"
        raise ToolError(
            tool,
            f"reconcile= asks for {unknown[0]!r}, which is no argument of the tool (it has: "
            f"{known}); annotate it as ToolContext if it is to receive that",
        )
    return Probe(
        function=callee.function,
        sync=callee.sync,
        parameters=frozenset(callee.parameters),
        takes_any=callee.takes_any,
        context=callee.context,
    )


def read_answer(answer: object) -> Found:
    """Take what a probe returned; what is none of the three answers is `unknown`."""
    if not isinstance(answer, Found) or answer.finding not in list(Finding):
        return Found.unknown(
            f"the probe answered with {named(answer).removeprefix('of type ')}, not with "
            "Found.happened(value), Found.nothing() or Found.unknown(why)"
        )
    if answer.finding is Finding.UNKNOWN:
        return Found.unknown(shortened(whole_text(str(answer.why))))
    return answer
