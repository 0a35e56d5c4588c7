"""Canonical names of resources: one thing has one name, however it was spelt.

A resource is `scheme:path`. The path is split by `/` into levels, and a resource covers all below
it; `lane:` and `run:` names are flat: whatever they hold, they are one level. Reads what claims
say, and the file system; feeds the lane table and the graph, which compare canonical names only.
"""

import os
import re
from collections.abc import Callable, Mapping
from functools import lru_cache

from laneway.errors import LanewayError, UsageError
from laneway.lanes.files import ALIASES, Files, readable

Canonicaliser = Callable[[str], str]
"""From a path, as it was spelt, to its one spelling; a ValueError says why it is none."""

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
_FLAT = ("lane:", "run:")
_OWN = (*_FLAT, ALIASES)
"""Schemes whose names Laneway makes itself."""
_LONGEST = 4096
"""Characters of a path: Linux opens none that is longer (PATH_MAX)."""
_SHOWN = 200
_DEEPEST = 128
"""Levels of a name: each is a node in the lane table."""


class BadResourceError(LanewayError):
    """A resource that cannot be named; where a model's argument did it, its call is at fault."""

    def __init__(self, resource: str, fault: str, places: str = "") -> None:
        """Show the name as it was met, where it came from if that is known, and what is wrong."""
        self.resource = resource
        self.fault = fault
        shown = _shown(resource)
        source = f", from {places}" if places else ""
        super().__init__(f"resource {shown!r}{source}: {fault}")


class Names:
    """Makes names canonical, relative to one workspace."""

    def __init__(
        self,
        workspace: str | os.PathLike[str],
        *,
        canonicalisers: Mapping[str, Canonicaliser] | None = None,
        case_sensitive: bool | None = None,
    ) -> None:
        """Find out where the workspace really is.

        Args:
            workspace: The folder that relative `file:` paths start from.
            canonicalisers: By scheme, a function from a path to its one spelling. It takes the
                place of the scheme's own rules, `file` included; of what it returns empty levels
                and `.` are dropped. What was below must stay below: `f("a/b")` is `f("a")`, or
                begins with it; it must resolve or refuse `..`. It is called in the event loop, for
                every claim. A ValueError from it, any other fault, and what is no name are
                reported as a BadResourceError.
            case_sensitive: Whether names in the file system differ by case; asked of the
                workspace itself if None.

        Raises:
            BadResourceError: The workspace has no usable name.
            UsageError: A canonicaliser of a scheme that cannot have one.
        """
        try:
            self._files = Files(workspace, case_sensitive=case_sensitive)
        except ValueError as fault:
            raise BadResourceError(f"file:{workspace}", str(fault)) from fault
        self.workspace = self._files.workspace
        self._canonicalisers: dict[str, Callable[[str], object]] = {**(canonicalisers or {})}
        for scheme in self._canonicalisers:
            if not _SCHEME.fullmatch(scheme) or f"{scheme}:" in _OWN:
                own = ", ".join(_OWN)
                raise UsageError(
                    f"no canonicaliser can be registered for {scheme!r}: give the scheme alone, as "
                    f"in 'db'; names of {own} are Laneway's own"
                )

    def canonical(self, resource: str) -> str:
        """Give the one name of a resource.

        A `file:` path is relative to the workspace; `.`, `..`, doubled slashes and symbolic links
        are resolved as the operating system would, a tail that doesn't exist yet is kept. Other
        schemes lose empty levels and `.`, and refuse `..`. `scheme:` alone is everything in it.

        Raises:
            BadResourceError: No scheme, an empty lane, a path that can't be one, or too long a one.
        """
        return self.resources(resource)[0]

    def resources(self, resource: str) -> list[str]:
        """Give all that a claim on a resource must claim: its one name, first, and its aliases.

        A file with several hard links is `inode:<device>/<number>` as well, so that two of its
        names are one thing, while each stays in its folder.

        Raises:
            BadResourceError: As `canonical`.
        """
        scheme, colon, path = resource.partition(":")
        if not colon or not _SCHEME.fullmatch(scheme):
            raise BadResourceError(resource, "write scheme:path, as in file:src/a.py or lane:mail")
        if "\0" in path or len(path) > _LONGEST:
            raise BadResourceError(resource, f"a name has up to {_LONGEST} characters, none a NUL")
        alias = ""
        try:
            if scheme in self._canonicalisers:
                path = self._registered(scheme, path)
            elif scheme != "file":
                path = _own_rules(scheme, path)
            elif path:
                path, alias = self._files.find(path)
            name = f"{scheme}:{path}"
            if not name.isascii():
                name = _written(name)
        except UnicodeEncodeError as fault:
            raise BadResourceError(resource, "half a surrogate pair is in no name") from fault
        except ValueError as fault:
            raise BadResourceError(resource, str(fault)) from fault
        if name.count("/") > _DEEPEST and not is_flat(name):
            raise BadResourceError(resource, f"it is more than {_DEEPEST} levels deep")
        return [name, alias] if alias else [name]

    def literal_parent(self, prefix: str) -> str:
        """Name what surely covers a resource of which only the beginning is known.

        Args:
            prefix: `scheme:` and the literal text before the first unknown value.

        Returns:
            The folder that the prefix has reached, `file:<workspace>/src` for `file:src/a_`; the
            whole scheme where the unknown value may be an absolute path. A flat name has no
            parents: the prefix itself, without what only joins it to the value.
        """
        scheme, _, path = prefix.partition(":")
        if is_flat(prefix):
            return f"{scheme}:{path.rstrip('/:-_.') or path}"
        if not path:
            return prefix
        folder = path.rpartition("/")[0]
        try:
            return self.canonical(f"{scheme}:{folder or _first(scheme, path)}")
        except BadResourceError:
            # To the host a table of a database may be a name, and the database none.
            if scheme in self._canonicalisers:
                return f"{scheme}:"
            raise

    def glob_parent(self, prefix: str) -> str:
        """Name what surely covers all that a relative glob fits.

        Args:
            prefix: `scheme:` and the literal text before the first wildcard.
        """
        return self.literal_parent("file:./" if prefix == "file:" else prefix)

    def _registered(self, scheme: str, path: str) -> str:
        try:
            given = self._canonicalisers[scheme](path)
        except ValueError as fault:
            raise ValueError(_shown(str(fault)) or "it is none") from fault
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # the host's code meets the model's names here
            raise ValueError(
                f"the canonicaliser of {scheme}: raised {type(error).__name__}"
            ) from error
        if not isinstance(given, str) or "\0" in given or len(given) > _LONGEST:
            told = _shown(repr(given))
            raise ValueError(f"the canonicaliser of {scheme}: gave {told}, which is no name")
        steps = _steps(str.__str__(given))
        if ".." in steps:
            raise ValueError(
                f"the canonicaliser of {scheme}: gave {_shown(repr(given))}, and nothing climbs in "
                "a name; it has to resolve or refuse '..'"
            )
        return ("/" if scheme == "file" and steps else "") + "/".join(steps)


def is_alias(resource: str) -> bool:
    """Whether the resource only stands for another name of a file that is claimed by its path."""
    return resource.startswith(ALIASES)


def is_flat(resource: str) -> bool:
    """Whether the name is one level, whatever it holds."""
    return resource.startswith(_FLAT)


def is_lane(resource: str) -> bool:
    """Whether the resource is a lane: a number of slots, and no readers and writers."""
    return resource.startswith("lane:")


@lru_cache(maxsize=4096)
def levels(resource: str) -> tuple[str, ...]:
    """List what covers a canonical resource, from its scheme down to itself.

    `file:/w/a.py` gives `file:`, `file:/w`, `file:/w/a.py`; `file:/` is the same as `file:`.
    """
    if resource.startswith(_FLAT):
        return (resource,)
    root = resource.find(":") + 1
    found = [resource[:root]]
    end = resource.find("/", root + 1)
    while end != -1:
        found.append(resource[:end])
        end = resource.find("/", end + 1)
    if len(resource) > root and resource[root:] != "/":
        found.append(resource)
    return tuple(found)


def covers(wide: str, narrow: str) -> bool:
    """Whether a claim on the one is a claim on the other as well.

    A bare `lane:` or `run:`, which no call can hold, stands for all names of its kind.
    """
    if wide in _FLAT:
        return narrow.startswith(wide)
    above, below = levels(wide), levels(narrow)
    return len(above) <= len(below) and below[len(above) - 1] == above[-1]


def overlaps(one: str, other: str) -> bool:
    """Whether two canonical resources have anything in common."""
    return covers(one, other) or covers(other, one)


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _own_rules(scheme: str, path: str) -> str:
    if f"{scheme}:" in _FLAT:
        if not path:
            raise ValueError(f"name one, as in {scheme}:mail")
        return path
    steps = _steps(path)
    if ".." in steps:
        raise ValueError("only a file path may hold '..'")
    return "/".join(steps)


def _steps(path: str) -> list[str]:
    return [step for step in path.split("/") if step and step != "."]


def _written(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        if not name.startswith("file:"):
            raise
        return readable(name)
    return name


def _first(scheme: str, path: str) -> str:
    return ("/" if path[0] == "/" else ".") if scheme == "file" else ""
