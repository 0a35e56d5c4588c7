"""Where a command line may be: the folders that it has changed to, as far as they are known.

A `cd` that fails leaves the shell where it was, so there may be several. Feeds the effects, which
resolve relative paths in each of them.
"""

import os.path
import re

Folders = frozenset[str] | None
"""Where a command may run; empty after `exit`, None where nothing is known."""

_MOST = 8
_SLASHES = re.compile("/(?:\\.?/)+")
_NOTHING = re.compile(r"/dev/(?:null|zero|full|tty|u?random|stdin|stdout|stderr|fd(?:/.*)?)")
_NETWORK = re.compile(r"/dev/(?:tcp|udp)/.*", re.DOTALL)
_LONGEST = 1024
_DEEPEST = 64


def union(one: Folders, other: Folders) -> Folders:
    """Join what may be, whichever way was taken."""
    if one is None or other is None or one == other:
        return None if one is None or other is None else one
    both = one | other
    return both if len(both) <= _MOST else None


def entered(folders: Folders, path: str) -> Folders:
    """Go to a folder, as a shell does: `..` takes back the step before it."""
    if path.startswith("/"):
        return frozenset({os.path.normpath(path)})
    if folders is None:
        return None
    return frozenset(os.path.normpath(joined(folder, path)) for folder in folders)


def joined(folder: str, path: str) -> str:
    """Resolve a path as the system does: `..` is left alone, for it may follow a link."""
    if "//" in path or "/./" in path:
        path = _SLASHES.sub("/", path)
    while path.startswith("./"):
        path = path[2:]
    if len(path) > 1:
        path = path.removesuffix("/.").rstrip("/") or "/"
    if path.startswith("/") or folder == ".":
        return path or "."
    return folder if path in {".", ""} else f"{folder.rstrip('/')}/{path}"


def is_device(path: str) -> bool:
    """Whether the path is a stream that nobody shares."""
    return _NOTHING.fullmatch(path) is not None


def is_network(path: str) -> bool:
    """Whether bash opens a connection for it."""
    return _NETWORK.fullmatch(path) is not None


def is_nameable(path: str) -> bool:
    """Whether a claim can name the path."""
    return len(path) <= _LONGEST and path.count("/") <= _DEEPEST
