"""The function that undoes a call of a tool, and what it is told of the call."""

import inspect
from collections.abc import Callable
from typing import Any

import msgspec

from laneway.effects import Effect
from laneway.errors import ToolError
from laneway.ids import CallId, RunId
from laneway.outcomes import Outcome


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """A call that is to be undone."""

    run: RunId
    call: CallId
    tool: str
    arguments: Any
    """As policy and journal saw them, references resolved; secrets are gone."""
    outcome: Outcome
    """A success, or the failure of a call that did a part of its work: `done` says which."""
    idempotency_key: str
    """The key that the call itself had: what it did is known by it elsewhere."""
    undo_key: str
    """The same for each try to undo this call, and different from the key of the call."""


class Compensation(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool declared with `compensate`."""

    function: Callable[[Done], Any]
    sync: bool


def compensation_of(tool: str, function: object, effect: Effect) -> Compensation | None:
    """Look at what was declared as `compensate`.

    Raises:
        ToolError: it is no function of one argument, or the tool has nothing to undo.
    """
    if function is None:
        return None
    if effect.changes_nothing:
        raise ToolError(
            tool,
            f"a {effect} tool changes nothing, so there is nothing to undo; leave compensate= out",
        )
    if not callable(function):
        raise ToolError(tool, f"compensate={function!r} is no function")
    try:
        inspect.signature(function).bind(None)
    except (TypeError, ValueError):
        raise ToolError(
            tool,
            "compensate= takes a function of one argument, the laneway.Done that says what the "
            "call was and what it did",
        ) from None
    sync = not (
        inspect.iscoroutinefunction(function)
        or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - of an object
    )
    return Compensation(function=function, sync=sync)
