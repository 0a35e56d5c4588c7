"""Claims as a tool declares them, `write file:{path}`, filled in with the arguments of a call.

Compiled when the tool is registered, so that a mistake in a template is found then; evaluated for
every call. Reads arguments that have passed the tool's schema; feeds the graph and the lane table
with canonical claims.
"""

import difflib
import itertools
import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from laneway.claims import Access, Claim
from laneway.lanes.names import BadResourceError, Names, is_flat, is_lane

_VERBS = {
    "read": Access.SHARED,
    "shared": Access.SHARED,
    "write": Access.EXCLUSIVE,
    "exclusive": Access.EXCLUSIVE,
}
_MOST_RESOURCES = 1000
"""A template that lists make to name more of them claims what covers them all instead."""
_RESOURCE = re.compile(r"(?!(?:lane|run):\Z)[a-z][a-z0-9+.-]*:.*", re.DOTALL)
_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_PLACE = re.compile(r"([^\W\d]\w*)((?:\.[^\W\d]\w*|\[\d+\])*)")
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")


class ClaimTemplates:
    """What a tool claims, whatever its arguments. Made by `compile_claims`."""

    __slots__ = ("_templates", "parameters")

    def __init__(self, templates: Sequence["_Template"]) -> None:
        """Keep templates that have been checked."""
        self._templates = tuple(templates)
        self.parameters = frozenset(
            place.parameter for template in templates for place in template.places
        )
        """The parameters that decide what is claimed."""

    def claims(self, arguments: Mapping[str, Any], names: Names) -> tuple[Claim, ...]:
        """Say what a call takes.

        A list makes a claim for each element. A value that is absent or None may mean anything, so
        its claim widens to the longest parent that is known. In all schemes but `file:` a value
        stays within its level: what could climb or nest is percent-encoded.

        Raises:
            BadResourceError: A value that names nothing: empty, an object, an impossible path.
                The arguments are at fault.
        """
        return self.widened(arguments, (), names)

    def widened(
        self, arguments: Mapping[str, Any], unresolved: Collection[str], names: Names
    ) -> tuple[Claim, ...]:
        """Say what a call may take at most while some parameters are unresolved references.

        Raises:
            BadResourceError: As `claims`, of a parameter that is resolved.
        """
        found = [
            Claim(resource, template.access)
            for template in self._templates
            for resource in template.resources(arguments, unresolved, names)
        ]
        return tuple(found) if len(found) <= 1 else tuple(dict.fromkeys(found))


def compile_claims(templates: Sequence[str], parameters: Collection[str]) -> ClaimTemplates:
    """Compile what a tool declares.

    Args:
        templates: `read file:{path}`, `write …`, `shared …`, `exclusive …`, or `lane:mail` without
            a verb. `{parameter}`, `{parameter.field}` and `{parameter[0]}` stand for values; a
            field of a list for that field of each element. `{{` and `}}` are braces.
        parameters: The names of the tool's parameters.

    Raises:
        ValueError: A template that cannot be read, or names no parameter of the tool. The message
            shows the template and the way out.
    """
    return ClaimTemplates([_compiled(template, parameters) for template in templates])


class _Place(NamedTuple):
    """`{edits.path}`: where in the arguments a value stands."""

    text: str
    parameter: str
    steps: tuple[str | int, ...]

    def values(self, arguments: Mapping[str, Any], unresolved: Collection[str]) -> list[Any]:
        """Find the values, of a list one by one; None stands for one that is not known."""
        if self.parameter in unresolved:
            return [None]
        found: list[Any] = [arguments.get(self.parameter)]
        for step in self.steps:
            if isinstance(step, int):
                found = [_item(inner, step) for inner in found]
            else:
                found = [_field(inner, step) for inner in _spread(found)]
        return _spread(found)


class _Template(NamedTuple):
    """Literal text, a place, literal text, and so on: always one more text than places."""

    access: Access
    literals: tuple[str, ...]
    places: tuple[_Place, ...]
    is_path: bool
    whole: str
    """The parameter that is the only place, without steps; else empty."""

    def resources(
        self, arguments: Mapping[str, Any], unresolved: Collection[str], names: Names
    ) -> list[str]:
        """Name every resource that the arguments lead to."""
        if self.whole and self.whole not in unresolved:  # the usual case, by a short way
            value = arguments.get(self.whole)
            if type(value) is str and value:
                before, after = self.literals
                step = value if self.is_path else _within_level(value)
                return [names.canonical(f"{before}{step}{after}")]
        choices = [place.values(arguments, unresolved) for place in self.places]
        if math.prod(map(len, choices)) > _MOST_RESOURCES:
            return [names.literal_parent(self.literals[0])]
        return [self._resource(values, names) for values in itertools.product(*choices)]

    def _resource(self, values: tuple[Any, ...], names: Names) -> str:
        text = self.literals[0]
        for place, value, literal in zip(self.places, values, self.literals[1:], strict=True):
            if value is None:
                return names.literal_parent(text)
            text = f"{text}{self._step(place, value)}{literal}"
        return names.canonical(text)

    def _step(self, place: _Place, value: Any) -> str:
        if isinstance(value, str):
            text = value
        elif isinstance(value, bool):
            text = "true" if value else "false"
        elif isinstance(value, float) and value.is_integer():
            text = str(int(value))
        elif isinstance(value, int | float):
            text = str(value)
        else:
            kind = "an object" if isinstance(value, dict) else "a list in a list"
            raise BadResourceError(str(self), f"{{{place.text}}} is {kind}; it must be a text")
        if not text:
            way_out = "; the workspace itself is '.'" if self.is_path else ""
            raise BadResourceError(str(self), f"{{{place.text}}} is empty{way_out}")
        return text if self.is_path else _within_level(text)

    def __str__(self) -> str:
        places = [f"{{{place.text}}}" for place in self.places] + [""]
        return "".join(itertools.chain(*zip(self.literals, places, strict=True)))


def _item(value: Any, index: int) -> Any:
    match value:
        case [*items] if index < len(items):
            return items[index]
        case _:
            return None


def _field(value: Any, name: str) -> Any:
    match value:
        case {**fields}:
            return fields.get(name)
        case _:
            return None


def _spread(found: list[Any]) -> list[Any]:
    spread: list[Any] = []
    for value in found:
        match value:
            case [*items]:
                spread.extend(items)
            case _:
                spread.append(value)
    return spread


def _within_level(value: str) -> str:
    if value in {".", ".."}:
        return value.replace(".", "%2E")
    return value.replace("%", "%25").replace("/", "%2F")


def _compiled(template: str, parameters: Collection[str]) -> _Template:
    first, _, rest = template.strip().partition(" ")
    verb, resource = (first, rest.strip()) if first in _VERBS else ("", template.strip())
    try:
        _check(verb, resource)
        literals, places = _pieces(resource, parameters)
    except ValueError as fault:
        raise ValueError(f"claim {template!r}: {fault}") from None
    return _Template(
        access=_VERBS.get(verb, Access.EXCLUSIVE),
        literals=literals,
        places=places,
        is_path=resource.startswith("file:"),
        whole=places[0].text if len(places) == 1 and not places[0].steps else "",
    )


def _check(verb: str, resource: str) -> None:
    if not _RESOURCE.fullmatch(resource):
        verbs = ", ".join(_VERBS)
        raise ValueError(
            f"write a verb ({verbs}) and scheme:path, scheme literal: 'write file:{{path}}'"
        )
    if is_lane(resource) and _VERBS.get(verb) is Access.SHARED:
        raise ValueError(f"a lane has slots, no readers; write '{resource}' and set its limit")
    if not verb and not is_lane(resource):
        raise ValueError(f"say how: 'read {resource}' or 'write {resource}'")
    scheme, _, path = resource.partition(":")
    if scheme != "file" and not is_flat(resource) and ".." in path.split("/"):
        raise ValueError("only a file path may hold '..'")


def _pieces(
    resource: str, parameters: Collection[str]
) -> tuple[tuple[str, ...], tuple[_Place, ...]]:
    literals, places = [""], list[_Place]()
    end = 0
    for brace in _BRACES.finditer(resource):
        literals[-1] += resource[end : brace.start()]
        end = brace.end()
        if brace[0] in {"{{", "}}"}:
            literals[-1] += brace[0][0]
        elif brace[1] is None:
            raise ValueError(f"a {brace[0]!r} stands alone; double a brace that is meant")
        else:
            places.append(_place(brace[1], parameters))
            literals.append("")
    literals[-1] += resource[end:]
    return tuple(literals), tuple(places)


def _place(text: str, parameters: Collection[str]) -> _Place:
    match = _PLACE.fullmatch(text)
    if not match:
        raise ValueError(
            f"{{{text}}} is no parameter; write {{path}}, {{edit.path}} or {{paths[0]}}"
        )
    name, steps = match[1], match[2]
    if name not in parameters:
        close = difflib.get_close_matches(name, parameters, n=1)
        meant = f", is {close[0]!r} meant?" if close else ""
        known = ", ".join(parameters) or "none"
        raise ValueError(f"the tool has no parameter {name!r}{meant} (it has: {known})")
    return _Place(text, name, tuple(s[1] or int(s[2]) for s in _STEP.finditer(steps)))
