"""One claim template, filled in with the arguments of a call.

Reads arguments that have passed the tool's schema; feeds the templates of claims with canonical
resources.
"""

import itertools
import math
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from laneway.claims import Access
from laneway.lanes.globs import GIVEN, leaves, parted
from laneway.lanes.names import BadResourceError, Names
from laneway.lanes.places import Place

_MOST_RESOURCES = 1000
"""A template that lists make to name more of them claims what covers them all instead."""


class Template(NamedTuple):
    """Literal text, a place, literal text, and so on: always one more text than places."""

    text: str
    """As it was declared, without the verb."""
    access: Access
    literals: tuple[str, ...]
    places: tuple[Place, ...]
    is_path: bool
    whole: str
    """The parameter that is the only place, if that is all there is to it; else empty."""
    globbed: int
    """The literal behind which a glob begins, else -1."""
    glob: str
    """The glob's own text, until the next place."""

    def resources(
        self, arguments: Mapping[str, Any], unresolved: Collection[str], names: Names
    ) -> list[str]:
        """Name every resource that the arguments lead to.

        Raises:
            BadResourceError: They lead nowhere; it names their places in the template.
        """
        try:
            if self.whole and self.whole not in unresolved:  # the usual case, by a short way
                value = arguments.get(self.whole)
                if type(value) is str and value:
                    before, after = self.literals
                    step = value if self.is_path else _within_level(value)
                    return names.resources(f"{before}{step}{after}")
            choices = [place.values(arguments, unresolved) for place in self.places]
            if math.prod(map(len, choices)) > _MOST_RESOURCES:
                # Any of them may climb out of the folder, or leave it by a link.
                return ["file:" if self.is_path else names.literal_parent(self.literals[0])]
            return [
                resource
                for values in itertools.product(*choices)
                for resource in self._resources(values, names)
            ]
        except BadResourceError as error:
            if error.resource == self.text or not self.places:
                raise
            places = ", ".join(f"{{{place.text}}}" for place in self.places)
            raise BadResourceError(error.resource, error.fault, places) from error

    def _resources(self, values: tuple[Any, ...], names: Names) -> list[str]:
        known, glob = self.literals[0], self.glob if not self.globbed else ""
        following = enumerate(self.literals[1:], start=1)
        for place, value, (at, literal) in zip(self.places, values, following, strict=True):
            if value is None:
                if not glob:
                    return [names.literal_parent(known)]
            elif glob:
                glob += self._step(place, value)
            elif place.is_glob:
                begun, glob = parted(self._step(place, value), GIVEN)
                known += begun
            else:
                known += self._step(place, value)
            if glob:
                glob += literal
            else:
                known += literal
            if at == self.globbed:
                glob += self.glob
        if not glob:
            return names.resources(known)
        if self.is_path and leaves(known, glob):
            return ["file:"]
        return [names.glob_parent(known)]

    def _step(self, place: Place, value: Any) -> str:
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
            raise BadResourceError(self.text, f"{{{place.text}}} is {kind}; it must be a text")
        if not text:
            way_out = "; the workspace itself is '.'" if self.is_path else ""
            raise BadResourceError(self.text, f"{{{place.text}}} is empty{way_out}")
        return text if self.is_path else _within_level(text)


def _within_level(value: str) -> str:
    if value in {".", ".."}:
        return value.replace(".", "%2E")
    return value.replace("%", "%25").replace("/", "%2F")
