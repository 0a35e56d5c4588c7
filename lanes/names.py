"""Canonical names of resources: one thing has one name, however it was spelt.

A resource is `scheme:path`. The path is split by `/` into levels, and a resource covers all below
it; `lane:` and `run:` names are flat: whatever they hold, they are one level. Reads what claims
say; feeds the lane table and the graph, which compare canonical names only.
"""

import os
import re
import stat
import unicodedata
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

from laneway.errors import LanewayError

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
_FLAT = ("lane:", "run:")
_SLASHES = re.compile("//+")
_LONGEST = 4096
"""Characters of a path: Linux opens none that is longer (PATH_MAX)."""
_SHOWN = 200
_DEEPEST = 128
"""Levels of a name: each is a node in the lane table."""


class BadResourceError(LanewayError):
    """A resource that cannot be named; where a model's argument did it, its call is at fault."""

    def __init__(self, resource: str, fault: str) -> None:
        """Show the name as it was met, and say what is wrong with it."""
        self.resource = resource
        self.fault = fault
        shown = resource if len(resource) <= _SHOWN else resource[:_SHOWN] + "…"
        super().__init__(f"resource {shown!r}: {fault}")


class Names:
    """Makes names canonical, relative to one workspace."""

    def __init__(
        self,
        workspace: str | os.PathLike[str],
        *,
        canonicalisers: Mapping[str, Callable[[str], str]] | None = None,
        case_sensitive: bool | None = None,
    ) -> None:
        """Find out where the workspace really is.

        Args:
            workspace: The folder that relative `file:` paths start from.
            canonicalisers: By scheme, a function from a path to its one spelling. It takes the
                place of the scheme's own rules, `file` included; what it returns is split into
                levels. A ValueError from it is reported as a BadResourceError.
            case_sensitive: Whether names in the file system differ by case; asked of the
                workspace itself if None.

        Raises:
            BadResourceError: The workspace has no usable name.
        """
        try:
            self.workspace = _real(os.fspath(workspace))
        except ValueError as fault:
            raise BadResourceError(f"file:{workspace}", str(fault)) from fault
        self._below = self.workspace.rstrip("/") + "/"
        self._folds = _folds(self.workspace) if case_sensitive is None else not case_sensitive
        self._canonicalisers = dict(canonicalisers or {})

    def canonical(self, resource: str) -> str:
        """Give the one name of a resource.

        A `file:` path is relative to the workspace; `.`, `..`, doubled slashes and symbolic links
        are resolved as the operating system would, a tail that doesn't exist yet is kept. Other
        schemes lose empty levels and `.`, and refuse `..`. `scheme:` alone is everything in it.

        Raises:
            BadResourceError: No scheme, an empty lane, a path that can't be one, or too long a one.
        """
        scheme, colon, path = resource.partition(":")
        if not colon or not _SCHEME.fullmatch(scheme):
            raise BadResourceError(resource, "write scheme:path, as in file:src/a.py or lane:mail")
        if "\0" in path or len(path) > _LONGEST:
            raise BadResourceError(resource, f"a name has up to {_LONGEST} characters, none a NUL")
        try:
            name = f"{scheme}:{self._path(scheme, path)}"
            name.encode()
        except UnicodeEncodeError as fault:
            raise BadResourceError(resource, "half a surrogate pair is in no name") from fault
        except ValueError as fault:
            raise BadResourceError(resource, str(fault)) from fault
        if name.count("/") > _DEEPEST and not is_flat(name):
            raise BadResourceError(resource, f"it is more than {_DEEPEST} levels deep")
        return name

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
        return self.canonical(f"{scheme}:{folder or _first(scheme, path)}")

    def _path(self, scheme: str, path: str) -> str:
        if scheme in self._canonicalisers:
            return self._canonicalisers[scheme](path)
        if scheme == "file":
            real = self._real(path) if path else ""
            if self._folds:
                real = unicodedata.normalize("NFC", real).casefold()
            return "" if real == "/" else real
        if f"{scheme}:" in _FLAT:
            if not path:
                raise ValueError(f"name one, as in {scheme}:mail")
            return path
        steps = [step for step in path.split("/") if step and step != "."]
        if ".." in steps:
            raise ValueError("only a file path may hold '..'")
        return "/".join(steps)

    def _real(self, path: str) -> str:
        """Do as `realpath` does, but look only at what is below the workspace, which is real."""
        below = self._below
        if path[0] == "/":
            if not path.startswith(below):
                return _real(path)
            path = path[len(below) :]
        steps = [step for step in path.split("/") if step and step != "."]
        if ".." in steps:
            return _real(below + path)
        real = below[:-1]
        for done, step in enumerate(steps, start=1):
            real = f"{real}/{step}"
            try:
                if stat.S_ISLNK(os.lstat(real).st_mode):
                    return _real(below + path)
            except OSError:
                return "/".join([real, *steps[done:]])
        return real


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


def _first(scheme: str, path: str) -> str:
    return ("/" if path[0] == "/" else ".") if scheme == "file" else ""


def _real(path: str) -> str:
    # Doubled slashes mislead realpath behind a link that leads to itself. POSIX leaves two leading
    # ones to the system, and realpath keeps them where a link begins so; here they are one.
    real = os.path.realpath(_SLASHES.sub("/", path))
    return real[1:] if real.startswith("//") else real


def _folds(folder: str) -> bool:
    swapped = Path(folder.swapcase())
    return str(swapped) != folder and swapped.exists() and swapped.samefile(folder)
