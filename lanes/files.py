"""Where a path really leads: one name for a file, however it was spelt, in this file system.

Made for one workspace, below which most paths lie. Reads paths as tools and models write them;
feeds the canonical names of the scheme `file:`.
"""

import itertools
import os
import re
import stat
import unicodedata
from collections.abc import Iterator
from pathlib import Path

ALIASES = "inode:"
"""The scheme of what a file with several hard links is, whichever of its names was used."""
_SLASHES = re.compile("//+")
_PROBED = 100
"""Names in the workspace that are looked at to learn whether it tells case."""


class Files:
    """Finds files as the operating system would, relative to one workspace."""

    __slots__ = ("_below", "_folds", "workspace")

    def __init__(
        self, workspace: str | os.PathLike[str], *, case_sensitive: bool | None = None
    ) -> None:
        """Find out where the workspace really is.

        Args:
            workspace: The folder that relative paths start from. It may be a link; where it leads
                is settled here.
            case_sensitive: Whether names differ by case; asked of the workspace itself if None.

        Raises:
            ValueError: The workspace has no name that a file can have.
        """
        self.workspace = _real(os.fspath(workspace))
        self._below = self.workspace.rstrip("/") + "/"
        self._folds = _folds(self.workspace) if case_sensitive is None else not case_sensitive

    def find(self, path: str) -> tuple[str, str]:
        """Say where a path leads, and by what else the file there is known.

        `.`, `..`, doubled slashes and symbolic links are resolved as the operating system would; a
        tail that doesn't exist yet is kept. Where names don't differ by case they are folded, and
        composed, by Unicode's rules for all languages: `ß` is `ss`, which some systems tell apart.

        Args:
            path: Not empty.

        Returns:
            The absolute path, empty for the root, and `inode:<device>/<number>` if the file has
            other hard links, else nothing. A folder has none.

        Raises:
            ValueError: No file can have this name.
        """
        real, found = self._walk(path)
        if self._folds:
            real = folded(real)
        if found is not None and found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
            return real, f"{ALIASES}{found.st_dev}/{found.st_ino}"
        return ("" if real == "/" else real), ""

    def _walk(self, path: str) -> tuple[str, os.stat_result | None]:
        """Do as `realpath` does, but look only at what is below the workspace, which is real."""
        below = self._below
        if path[0] == "/":
            if not path.startswith(below):
                return _looked_up(path)
            path = path[len(below) :]
        steps = [step for step in path.split("/") if step and step != "."]
        if ".." in steps:
            return _looked_up(below + path)
        real = below[:-1]
        found = None
        for done, step in enumerate(steps, start=1):
            real = f"{real}/{step}"
            try:
                found = os.lstat(real)
            except OSError:
                return "/".join([real, *steps[done:]]), None
            if stat.S_ISLNK(found.st_mode):
                return _looked_up(below + path)
        return real, found


def folded(path: str) -> str:
    """Give the one spelling of a path where case and composition make no difference."""
    return unicodedata.normalize("NFC", path).casefold()


def readable(name: str) -> str:
    r"""Write a file's name that is no UTF-8 as text: the byte 0xff as `\udcff`.

    A file whose name is that very text shares the name.

    Raises:
        ValueError: No file can have this name.
    """
    os.fsencode(name)
    return name.encode("utf-8", "backslashreplace").decode()


def _looked_up(path: str) -> tuple[str, os.stat_result | None]:
    real = _real(path)
    try:
        return real, os.lstat(real)
    except OSError:
        return real, None


def _real(path: str) -> str:
    # Doubled slashes mislead realpath behind a link that leads to itself. POSIX leaves two leading
    # ones to the system, and realpath keeps them where a link begins so; here they are one.
    try:
        real = os.path.realpath(_SLASHES.sub("/", path))
    except RecursionError:  # Up to Python 3.12 it goes along a chain of links by calling itself.
        raise ValueError("it leads through more links than any system follows") from None
    return real[1:] if real.startswith("//") else real


def _folds(folder: str) -> bool:
    """Whether a name in the folder, or else the folder's own, is found in the other case, too.

    Only the last step is swapped: what is mounted above may go by other rules.
    """
    for path in _probes(folder):
        swapped = path.with_name(path.name.swapcase())
        if not path.name.isascii() or swapped.name == path.name:
            continue
        try:
            found = path.lstat()
            if stat.S_ISDIR(found.st_mode) or found.st_nlink == 1:  # else it may be another link
                return os.path.samestat(found, swapped.lstat())
        except OSError:
            return False
    return False


def _probes(folder: str) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            yield from (Path(entry.path) for entry in itertools.islice(entries, _PROBED))
    except OSError:
        pass
    if folder != "/":
        yield Path(folder)
