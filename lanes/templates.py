"""Claims as a tool declares them, `write file:{path}`, filled in with the arguments of a call.

Compiled when the tool is registered, so that a mistake in a template is found then; evaluated for
every call. Reads arguments that have passed the tool's schema; feeds the graph and the lane table
with canonical claims.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from laneway.claims import Access, Claim
from laneway.lanes.filling import Template
from laneway.lanes.globs import DECLARED, parted
from laneway.lanes.names import Names, is_flat, is_lane
from laneway.lanes.places import Place, read_place

_VERBS = {
    "read": Access.SHARED,
    "shared": Access.SHARED,
    "write": Access.EXCLUSIVE,
    "exclusive": Access.EXCLUSIVE,
}
_RESOURCE = re.compile(r"(?!(?:lane|run):\Z)[a-z][a-z0-9+.-]*:.*", re.DOTALL)
_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


class ClaimTemplates:
    """What a tool claims, whatever its arguments. Made by `compile_claims`."""

    __slots__ = ("_templates", "parameters")

    def __init__(self, templates: Sequence["Template"]) -> None:
        """Keep templates that have been checked."""
        self._templates = tuple(templates)
        self.parameters = frozenset(
            place.parameter for template in templates for place in template.places
        )
        """The parameters that decide what is claimed."""

    def claims(self, arguments: Mapping[str, Any], names: Names) -> tuple[Claim, ...]:
        """Say what a call takes.

        A list makes a claim for each element. A value that is absent or None may mean anything, so
        its claim widens to the longest parent that is known; so does a glob, and if it climbs
        behind a wildcard, to its whole scheme. In all schemes but `file:` a value stays within its
        level: what could climb or nest is percent-encoded. A file with several hard links is
        claimed by its inode, too.

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
            A template that holds `*`, `?` or `[` is a glob, in all schemes but the flat ones, and
            claims the longest folder before it: `write file:src/**/*.py` is `write file:src`.
            `[*]`, `[?]` and `[[]` are the letters themselves. A value is a glob only where the
            template says so, `read file:{pattern:glob}`, and there `{`, `(`, `!` and a backslash
            end the folder, too; any other value is a name, as `[x].py` is.
        parameters: The names of the tool's parameters.

    Raises:
        ValueError: A template that cannot be read, or names no parameter of the tool. The message
            shows the template and the way out.
    """
    return ClaimTemplates([_compiled(template, parameters) for template in templates])


def _compiled(template: str, parameters: Collection[str]) -> Template:
    first, _, rest = template.strip().partition(" ")
    verb, resource = (first, rest.strip()) if first in _VERBS else ("", template.strip())
    try:
        _check(verb, resource)
        literals, places = _pieces(resource, parameters)
        _check_globs(resource, literals, places)
    except ValueError as fault:
        raise ValueError(f"claim {template!r}: {fault}") from None
    literals, globbed, glob = _globbed(literals, resource)
    simple = globbed < 0 and len(places) == 1 and not (places[0].steps or places[0].is_glob)
    return Template(
        text=resource,
        access=_VERBS.get(verb, Access.EXCLUSIVE),
        literals=literals,
        places=places,
        is_path=resource.startswith("file:"),
        whole=places[0].parameter if simple else "",
        globbed=globbed,
        glob=glob,
    )


def _globbed(literals: tuple[str, ...], resource: str) -> tuple[tuple[str, ...], int, str]:
    """Cut the first literal with a wildcard before it; say which it was, and what was cut off."""
    if is_flat(resource):
        return literals, -1, ""
    known = list[str]()
    for at, literal in enumerate(literals):
        begun, glob = parted(literal, DECLARED)
        known.append(begun)
        if glob:
            return (*known, *literals[at + 1 :]), at, glob
    return tuple(known), -1, ""


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


def _check_globs(resource: str, literals: Sequence[str], places: Sequence[Place]) -> None:
    for place in places:
        if place.is_glob and is_flat(resource):
            name = place.text.removesuffix(":glob")
            raise ValueError(f"nothing is below a lane or a run; write {{{name}}}")
    if is_flat(resource):
        return
    _, glob = parted("\0".join(literals), DECLARED)
    if ".." in glob.split("/"):
        raise ValueError(
            "a '..' behind a wildcard may lead anywhere; claim the folder that is meant"
        )


def _pieces(
    resource: str, parameters: Collection[str]
) -> tuple[tuple[str, ...], tuple[Place, ...]]:
    literals, places = [""], list[Place]()
    end = 0
    for brace in _BRACES.finditer(resource):
        literals[-1] += resource[end : brace.start()]
        end = brace.end()
        if brace[0] in {"{{", "}}"}:
            literals[-1] += brace[0][0]
        elif brace[1] is None:
            raise ValueError(f"a {brace[0]!r} stands alone; double a brace that is meant")
        else:
            places.append(read_place(brace[1], parameters))
            literals.append("")
    literals[-1] += resource[end:]
    return tuple(literals), tuple(places)
