"""What a command line reads and writes, gathered while it is walked through."""

from laneway.lanes.shell.folders import Folders, is_device, is_nameable, is_network, joined
from laneway.lanes.shell.words import Word

_MOST = 256
"""Paths of a kind; a line that names more claims all files."""
EVERYTHING = "file:"


class Effects:
    """The effects found so far."""

    __slots__ = ("anything_read", "reads", "why", "writes")

    def __init__(self) -> None:
        """Start with none."""
        self.reads: dict[str, None] = {}
        self.writes: dict[str, None] = {}
        self.anything_read = False
        """Something is read of which the place is not known."""
        self.why = ""
        """What could not be seen through, the first of it; empty for nothing."""

    def opaque(self, why: str) -> None:
        """Something may write anything."""
        self.why = self.why or why

    def read(self, word: Word, folders: Folders) -> None:
        """A file, or a folder with all below it, is read."""
        for path in self._places(word, folders):
            if path is None:
                self.anything_read = True
            else:
                _add(self.reads, path)

    def write(self, word: Word, folders: Folders) -> None:
        """A file, or a folder with all below it, is written."""
        for path in self._places(word, folders):
            if path is None:
                self.opaque(f"where {word.shown!r} leads is not known")
            else:
                _add(self.writes, path)

    def _places(self, word: Word, folders: Folders) -> list[str | None]:
        path = word.text
        if path is None:
            if word.prefix.startswith("/dev/fd/"):
                return []
            path = word.parent
            if path is None:
                return [None]
        if not path or (path[0] == "/" and is_device(path)):
            return []
        if path[0] == "/":
            if is_network(path):
                self.opaque("a connection to another machine")
                return []
            folders = _ROOT
        if not folders or not is_nameable(path):
            return [None]
        return [joined(folder, path) for folder in sorted(folders)]


_ROOT = frozenset({"/"})


def _add(found: dict[str, None], path: str) -> None:
    if EVERYTHING in found:
        return
    found[f"file:{path}"] = None
    if len(found) > _MOST:
        found.clear()
        found[EVERYTHING] = None
