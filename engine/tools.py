"""The tools of an engine, by name; and where the command line finds them.

Reads tools and plain functions; feeds admission, which asks for a tool by the name that the model
wrote, and the host, which puts the definitions into its requests.
"""

# Isinstance says nothing of the signature of a tool.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false

import difflib
import importlib
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache
from typing import Any

from laneway.engine.callables import Bound
from laneway.engine.checking import Checked
from laneway.engine.providers.definitions import gathered
from laneway.engine.secrets.shapes import merged
from laneway.engine.spec import Declarations, ToolSpec
from laneway.engine.telling import excerpt
from laneway.engine.tool import Tool, see_that_known, tool
from laneway.errors import ToolError, UsageError
from laneway.outcomes import Code, Failure

__all__ = [
    "Bound",
    "Checked",
    "Declarations",
    "Tool",
    "ToolSpec",
    "Toolset",
    "load_tools",
    "tool",
]

_MAX_NAMES = 20
_LONGEST_NAME = 128
"""Characters of an unknown name that are compared: more are in no tool's name."""
_NAMES_KEPT = 256
"""A model that invents a name tends to repeat it, and comparing is slow (30 µs for each tool)."""


class Toolset:
    """Tools by name; never changed."""

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]] = ()) -> None:
        """Take tools as they are, and plain functions as tools of which nothing was said.

        Raises:
            ToolError: two share a name, or one cannot be made into a tool.
            UsageError: this is one tool, not several.
        """
        if isinstance(tools, Tool) or callable(tools):
            raise UsageError(f"tools are given as a list: [{_shown(tools)}]")
        self._tools: dict[str, Tool] = {}
        for given in tools:
            one: Tool = given if isinstance(given, Tool) else Tool.of(given)
            other = self._tools.setdefault(one.spec.name, one)
            if other is not one:
                raise ToolError(
                    one.spec.name,
                    f"two tools have this name ({_origin(other)} and {_origin(one)}); rename one "
                    "with name=",
                )
        self.graded = any(one.spec.priority for one in self._tools.values())
        """Whether some have a priority."""
        self.hasty = any(one.spec.minimum_seconds for one in self._tools.values())
        """Whether some need a minimum of time."""
        self.secretive = merged(*(one.secret_arguments for one in self._tools.values()))
        """What is secret in the arguments of any tool."""
        self.reveals = any(one.secret_result is not None for one in self._tools.values())
        """Whether some have secrets in their results."""
        self.secret_bound = frozenset[str]().union(
            *(one.spec.secret_bound for one in self._tools.values())
        )
        """The parameters whose values from the host are found nowhere."""
        self.get = self._tools.get
        """Find a tool by name, None if there is none."""
        self._closest = lru_cache(_NAMES_KEPT)(self._closest_of)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in the order of registration."""
        return tuple(self._tools)

    def unknown(self, name: str) -> Failure:
        """Answer a call of a tool that does not exist with the names that do, the closest first."""
        told = "There are no tools"
        if self._tools:
            closest = self._closest(name[:_LONGEST_NAME])
            more = len(self._tools) - len(closest)
            told = f"Tools: {', '.join(closest)}" + (f", and {more} more" if more else "")
        return Failure(
            code=Code.UNKNOWN_TOOL,
            message=f"There is no tool named {excerpt(name)}; nothing was run. {told}.",
            hint="Call one of the tools that exist, by its exact name." if self._tools else "",
        )

    def _closest_of(self, name: str) -> list[str]:
        return difflib.get_close_matches(name, self._tools, _MAX_NAMES, cutoff=0.0)

    def definitions(self, provider: str) -> list[dict[str, Any]]:
        """Write all tools as the provider wants them in a request.

        Args:
            provider: the name of a wire format, for instance `openai-chat`.

        Raises:
            UsageError: a provider that is not known.
        """
        see_that_known(provider)
        return gathered(provider, [one.definition(provider) for one in self])

    def require_bound(self, bound: Collection[str]) -> None:
        """See that the host has set what it must set, before anything is submitted.

        Raises:
            UsageError: it has not; names tool and parameters.
        """
        for one in self:
            if missing := one.unbound(bound):
                raise UsageError(
                    f"tool {one.spec.name!r} needs {', '.join(map(repr, missing))} from the host: "
                    "pass it in bound={…} to the Engine or to engine.run"
                )


def load_tools(reference: str) -> Toolset:
    """Find tools in a module.

    Args:
        reference: `package.module` for all tools that stand in it under a name of their own, or
            `package.module:name` for a tool, a plain function, or a list of them.

    Raises:
        ToolError: no such module or name, nothing in it is a tool, or its import failed.
    """
    module_name, _, attribute = reference.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a module may raise anything while it is imported
        raise ToolError(
            reference,
            f"module {module_name!r} cannot be imported ({type(error).__name__}: {error})",
        ) from error
    if not attribute:
        found = [one for one in vars(module).values() if isinstance(one, Tool)]
        if not found:
            raise ToolError(
                reference,
                f"module {module_name!r} holds no tools; decorate its functions with @tool, or "
                "name a list of them, as in module:tools",
            )
        return Toolset(found)
    try:
        named = getattr(module, attribute)
    except AttributeError:
        raise ToolError(reference, f"module {module_name!r} has no {attribute!r}") from None
    return _as_toolset(named, reference)


def _as_toolset(named: object, reference: str) -> Toolset:
    if isinstance(named, Tool):
        return Toolset([named])
    if isinstance(named, Toolset):
        return named
    if callable(named):
        return Toolset([named])
    if isinstance(named, Iterable):
        return Toolset(named)
    raise ToolError(
        reference, f"it is of type {type(named).__name__}; name a tool or a list of tools"
    )


def _shown(one: object) -> str:
    return one.spec.name if isinstance(one, Tool) else str(getattr(one, "__name__", one))


def _origin(one: Tool) -> str:
    return one.spec.importable or "a local function"
