"""What it means that arguments fit a tool: the contract of the two checks, and their failures.

`signatures` checks against a Python signature, `schemas` against a JSON Schema; a tool has one of
them. Both give the canonical arguments, one JSON object that policy, journal and tool all see.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from laneway.engine.context import ToolContext
from laneway.engine.plain import NotPlainError, plain
from laneway.engine.telling import excerpt, place_of
from laneway.outcomes import Code, Failure

_MAX_FAULTS = 10
_MAX_NAMES = 20


class Check(Protocol):
    """Says whether arguments fit, and what the function is to be called with."""

    schema: dict[str, Any]
    """JSON Schema of what the model may send."""

    def check(self, arguments: dict[str, Any], /) -> "Fit | Faults":
        """Fit arguments that are complete."""
        ...

    def check_known(
        self, arguments: dict[str, Any], unresolved: Collection[str], /
    ) -> "Fit | Faults":
        """Fit arguments of which some parameters are not known yet; those stay as they are."""
        ...

    def values(self, arguments: dict[str, Any], /) -> dict[str, Any]:
        """Make the function's own values anew from canonical arguments."""
        ...


class Fit(msgspec.Struct, frozen=True, gc=False):
    """Arguments that fit."""

    arguments: dict[str, Any]
    """Canonical."""
    values: dict[str, Any]
    """As the function takes them."""


class Faults(msgspec.Struct, frozen=True):
    """Arguments that do not."""

    told: Sequence[str]
    """Each as a sentence's part that begins with the place."""


class Bindings(msgspec.Struct, frozen=True):
    """What a tool gets that the model does not send."""

    check: Check
    bound: tuple[str, ...] = ()
    context: str = ""


class Checked(msgspec.Struct, frozen=True, gc=False):
    """Arguments that have passed."""

    arguments: dict[str, Any]
    """Canonical: unwrapped, coerced, plain JSON; host-bound ones absent. Not to be changed."""
    values: dict[str, Any]
    bindings: Bindings

    def call_with(
        self, bound: Mapping[str, Any], context: ToolContext | None = None
    ) -> dict[str, Any]:
        """Give the keyword arguments of one entry into the function.

        Nothing mutable in them is shared with another attempt, nor with what the journal keeps.

        Args:
            bound: what the host sets; only the parameters that the tool has declared are taken.
            context: for a tool that asks for one.
        """
        kwargs = self.values
        for value in kwargs.values():
            if type(value) not in _IMMUTABLE:
                kwargs = self.bindings.check.values(self.arguments)
                break
        else:
            kwargs = kwargs.copy()
        for name in self.bindings.bound:
            if name in bound:
                kwargs[name] = bound[name]
        if self.bindings.context and context is not None:
            kwargs[self.bindings.context] = context
        return kwargs


_IMMUTABLE = frozenset({str, int, float, bool, type(None)})


def invalid(tool: str, faults: Faults, schema: Mapping[str, Any]) -> Failure:
    """Make the failure that lists what is wrong, and what would be right."""
    shown = list(faults.told[:_MAX_FAULTS])
    if more := len(faults.told) - len(shown):
        shown.append(f"and {more} more")
    allowed = list(schema.get("properties", ()))
    required = [name for name in schema.get("required", ()) if name in allowed]
    return Failure(
        code=Code.INVALID_ARGUMENTS,
        message=f"{tool} was not run, because its arguments do not fit: {'; '.join(shown)}.",
        hint=(
            f"Call it again with arguments that fit. Required: {_listed(required)}; "
            f"allowed: {_listed(allowed)}."
        ),
    )


def at(path: Sequence[str | int]) -> str:
    """Name a place in the arguments: `steps[0].title`."""
    return place_of(path).removeprefix("$").removeprefix(".") or "the arguments"


def met(value: object) -> str:
    """Show a value that was met, its first 40 characters at most."""
    try:
        text = msgspec.json.encode(plain(value)).decode()
    except NotPlainError as error:
        return f"something that {error.fault}"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


_SHOWN = 40


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(excerpt(name)[1:-1] for name in names[:_MAX_NAMES])
    return (shown or "none") + (
        f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    )
