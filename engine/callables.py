"""What Python itself says of a tool's function: its parameters, its kind, its importable name.

Reads any callable; feeds the making of tools, from a signature as well as from a JSON Schema.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from laneway.engine.context import ToolContext
from laneway.errors import ToolError


class Bound:
    """Marks a parameter that the host sets and the model never sees: `Annotated[str, Bound()]`.

    What the host gives for it is a secret besides: its texts are taken out of all that the tool
    returns or raises. `Bound(secret=False)` lets the tool speak of it, as of a folder or a user.
    """

    __slots__ = ("secret",)

    def __init__(self, *, secret: bool = True) -> None:
        """Say whether its texts may be found in what the tool says."""
        self.secret = secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Callee:
    """A function that can be called with keyword arguments alone."""

    function: Callable[..., Any]
    name: str
    """Its own name, or empty."""
    parameters: Mapping[str, inspect.Parameter]
    """By name, without the one for the context."""
    hints: Mapping[str, Any]
    """The annotations, resolved, with what is Annotated."""
    takes_any: bool
    """It has `**kwargs`, or no signature that could be read."""
    context: str
    """The parameter that receives the ToolContext, or empty."""
    bound: frozenset[str]
    """The parameters marked with Bound."""
    shown: frozenset[str]
    """Those of them that are no secret."""
    sync: bool
    importable: str
    """`module:qualname`, or empty for what is made inside a function."""
    docstring: str

    @property
    def required(self) -> frozenset[str]:
        """The parameters without a default."""
        return frozenset(
            name
            for name, parameter in self.parameters.items()
            if parameter.default is inspect.Parameter.empty
        )


def examine(function: object, name: str) -> Callee:
    """Look at a callable.

    Args:
        function: coroutine function, function, method, partial or object with `__call__`.
        name: of the tool, for messages; the function's own if empty.

    Raises:
        ToolError: it is no function, yields instead of returning, has parameters that cannot be
            given by keyword, or annotations that do not resolve.
    """
    own = _own_name(function)
    told = name or own or type(function).__name__
    if not callable(function) or isinstance(function, type):
        raise ToolError(told, f"{function!r} is no function; give a function or coroutine function")
    plain = _underlying(function)
    if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        raise ToolError(
            told, "it yields; a call has one result, so return a list of what it yields"
        )
    parameters, takes_any = _parameters(function, told)
    hints = _hints(plain, told)
    context = next((name for name in parameters if _is_context(hints.get(name))), "")
    module, qualname = getattr(plain, "__module__", None), getattr(plain, "__qualname__", "")
    return Callee(
        function=function,
        name=own,
        parameters={name: one for name, one in parameters.items() if name != context},
        hints=hints,
        takes_any=takes_any,
        context=context,
        bound=frozenset(name for name in parameters if _is_bound(hints.get(name))),
        shown=frozenset(name for name in parameters if _is_shown(hints.get(name))),
        sync=not inspect.iscoroutinefunction(plain),
        importable=f"{module}:{qualname}" if module and "<" not in qualname else "",
        docstring=inspect.getdoc(plain) or "",
    )


def _own_name(function: object) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", "")
    return name if isinstance(name, str) else ""


def _underlying(function: Callable[..., Any]) -> Callable[..., Any]:
    """Find the function that will really run, below partials and objects that can be called."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function):
        return function
    return type(function).__call__


def _parameters(
    function: Callable[..., Any], tool: str
) -> tuple[dict[str, inspect.Parameter], bool]:
    try:
        found = dict(inspect.signature(function).parameters)
    except (ValueError, TypeError):
        return {}, True
    first = next(iter(found), "")
    if first in {"self", "cls"} and "." in getattr(function, "__qualname__", ""):
        raise ToolError(
            tool, f"it is a method without its {first}; give the bound one: tool(obj.name)"
        )
    takes_any = False
    for parameter in tuple(found.values()):
        match parameter.kind:
            case inspect.Parameter.VAR_KEYWORD:
                takes_any = True
                del found[parameter.name]
            case inspect.Parameter.VAR_POSITIONAL:
                raise ToolError(tool, f"*{parameter.name} has no name in JSON; take a list instead")
            case inspect.Parameter.POSITIONAL_ONLY:
                raise ToolError(
                    tool,
                    f"parameter {parameter.name!r} is positional only; arguments come by name, so "
                    "remove the `/`",
                )
            case _:
                pass
    return found, takes_any


def _hints(function: Callable[..., Any], tool: str) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except Exception as error:  # an annotation that is a text is evaluated
        raise ToolError(
            tool,
            f"an annotation cannot be resolved ({error}); define the name at the top of its module",
        ) from error


def _is_context(hint: Any) -> bool:
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) is Union or isinstance(hint, _UnionType):
        return ToolContext in get_args(hint)
    return hint is ToolContext


_UnionType = type(int | None)


def _is_bound(hint: Any) -> bool:
    return get_origin(hint) is Annotated and any(
        mark is Bound or isinstance(mark, Bound) for mark in get_args(hint)[1:]
    )


def _is_shown(hint: Any) -> bool:
    return get_origin(hint) is Annotated and any(
        isinstance(mark, Bound) and not mark.secret for mark in get_args(hint)[1:]
    )
