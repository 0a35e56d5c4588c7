"""How a tool's claims are declared: as templates, or as a function of the arguments.

Reads declarations; gives the source that the admission of a call asks for claims, final ones or
the widest that they may become.
"""

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from laneway.claims import Access, Claim
from laneway.effects import Effect
from laneway.errors import ToolError
from laneway.lanes.names import BadResourceError, Names, is_lane
from laneway.lanes.templates import compile_claims

ClaimsOf = Callable[[Mapping[str, Any]], Iterable[str | Claim]]
"""From canonical arguments to claims such as `read file:a.py` or `lane:mail`."""


class ClaimSource(Protocol):
    """Says what a call takes."""

    def claims(self, arguments: Mapping[str, Any], names: Names, /) -> tuple[Claim, ...]:
        """Name the claims of final arguments.

        Raises:
            BadResourceError: the arguments name something that cannot be.
        """
        ...

    def widened(
        self, arguments: Mapping[str, Any], unresolved: Collection[str], names: Names, /
    ) -> tuple[Claim, ...]:
        """Name claims that cover the final ones, whatever the unresolved parameters become."""
        ...


def claim_source(
    tool: str,
    declared: Sequence[str] | ClaimsOf | None,
    at_most: Sequence[str],
    effect: Effect,
    parameters: Collection[str],
    *,
    said: bool,
) -> ClaimSource | None:
    """Make the source of a tool's claims; None for a tool that is free.

    A write or external tool that says nothing of claims takes a lane of its own. A tool of which
    nothing at all was said takes nothing here: it holds its run alone.

    Args:
        tool: its name.
        declared: templates, a function, or None if nothing was said of claims.
        at_most: templates that cover what a function may claim.
        effect: of the tool.
        parameters: the names of its parameters.
        said: whether anything was declared.

    Raises:
        ToolError: a template that cannot be read or names no parameter.
    """
    if declared is None:
        declared = [f"lane:tool/{tool}"] if said and not effect.changes_nothing else []
    try:
        if callable(declared):
            return ClaimFunction(tool, declared, compile_claims(at_most, ()).claims)
        if isinstance(declared, str):
            raise ToolError(tool, f"claims={declared!r} is a text; give a list of templates")
        return compile_claims(declared, parameters) if declared else None
    except ValueError as fault:
        raise ToolError(tool, str(fault)) from None


class ClaimFunction:
    """Claims that a function works out."""

    def __init__(
        self,
        tool: str,
        function: ClaimsOf,
        at_most: Callable[[Mapping[str, Any], Names], tuple[Claim, ...]],
    ) -> None:
        """Take the function as it is; it is called once for each admission of a call."""
        self._tool = tool
        self._function = function
        self._at_most = at_most

    def claims(self, arguments: Mapping[str, Any], names: Names, /) -> tuple[Claim, ...]:
        """Call the function with a view of the arguments that cannot be changed.

        Raises:
            BadResourceError: what it gave cannot be read, or it raised.
        """
        return self._called(_Known(arguments, ()), names)

    def widened(
        self, arguments: Mapping[str, Any], unresolved: Collection[str], names: Names, /
    ) -> tuple[Claim, ...]:
        """Call it with what is known; if it asks for what isn't, name what it claims at most."""
        known = _Known(arguments, unresolved)
        try:
            found = self._called(known, names)
        except BadResourceError:
            if not known.missed:
                raise
            found = ()
        return self._at_most({}, names) if known.missed else found

    def _called(self, arguments: "_Known", names: Names) -> tuple[Claim, ...]:
        try:
            given = list(self._function(arguments))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # the host's code meets the model's arguments here
            raise BadResourceError(
                f"claims of {self._tool}",
                f"the function that names them raised {type(error).__name__}",
            ) from error
        return tuple(dict.fromkeys(claim for one in given for claim in self._read(one, names)))

    def _read(self, given: object, names: Names) -> list[Claim]:
        match given:
            case Claim(resource=resource, access=access):
                return [Claim(name, access) for name in names.resources(resource)]
            case str() if is_lane(given):
                return [Claim(names.canonical(given), Access.EXCLUSIVE)]
            case str():
                verb, _, resource = given.partition(" ")
                if verb in _VERBS:
                    return [Claim(name, _VERBS[verb]) for name in names.resources(resource)]
            case _:
                pass
        raise BadResourceError(
            f"claims of {self._tool}",
            f"the function that names them gave {given!r}; write 'read scheme:path', 'write "
            "scheme:path' or 'lane:name'",
        )


_VERBS = {
    "read": Access.SHARED,
    "shared": Access.SHARED,
    "write": Access.EXCLUSIVE,
    "exclusive": Access.EXCLUSIVE,
}


class _Known(Mapping[str, Any]):
    """The arguments, read only; notes whether somebody asked for one that is not known yet."""

    def __init__(self, arguments: Mapping[str, Any], unresolved: Collection[str]) -> None:
        self._arguments = arguments
        self._unresolved = unresolved
        self.missed = False

    def __getitem__(self, name: str) -> Any:
        if name in self._unresolved:
            self.missed = True
            raise KeyError(name)
        value = self._arguments[name]
        return copy.deepcopy(value) if type(value) in (dict, list) else value

    def __iter__(self) -> Iterator[str]:
        return iter(self._arguments)

    def __len__(self) -> int:
        return len(self._arguments)
