"""A folder that the model's paths cannot leave.

Reads paths as a model writes them; feeds the tools with real ones. A path starts at the folder;
where it leads is asked of the file system, so that neither `..` nor a symbolic link gets out.
"""

import difflib
import os
from pathlib import Path


class OutsideWorkspaceError(ValueError):
    """A path that leads out of the workspace, or does not start in it."""


class Workspace:
    """The folder, by its real path."""

    __slots__ = ("root",)

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Find the folder.

        Raises:
            NotADirectoryError: there is no such folder.
        """
        self.root = Path(os.path.realpath(folder))
        if not self.root.is_dir():
            raise NotADirectoryError(f"the workspace {self.root} is no folder; create it first")

    def find(self, path: str) -> Path:
        """Say where a path really leads; it need not exist.

        Raises:
            OutsideWorkspaceError: it is absolute, or leads out of the folder.
            ValueError: no file can have that name.
        """
        if "\0" in path:
            raise ValueError(f"{path!r} is no path: no file name holds a NUL character")
        if Path(path).is_absolute():
            raise OutsideWorkspaceError(f"{path!r} is absolute; {self._relative_way(path)}")
        real = Path(os.path.realpath(self.root / path))
        if not real.is_relative_to(self.root):
            raise OutsideWorkspaceError(
                f"{path!r} leads out of the workspace; only what is below it can be reached"
            )
        return real

    def file(self, path: str) -> Path:
        """Find a regular file that exists.

        Raises:
            FileNotFoundError: there is none; the message names one that is spelt like it.
            ValueError: it is a folder or something else; or as for `find`.
        """
        real = self.find(path)
        if real.is_file():
            return real
        if real.is_dir():
            raise ValueError(f"{path!r} is a folder; name a file in it")
        if real.exists():
            raise ValueError(f"{path!r} is no regular file")
        raise FileNotFoundError(f"there is no file {path!r} in the workspace{self._meant(real)}")

    def _relative_way(self, path: str) -> str:
        real = Path(os.path.realpath(path))
        if real.is_relative_to(self.root):
            return f"paths start at the workspace: write {str(real.relative_to(self.root))!r}"
        return "paths start at the workspace, and only what is below it can be reached"

    def _meant(self, real: Path) -> str:
        folder = real.parent
        if not folder.is_dir():
            shown = folder.relative_to(self.root)
            return f", nor a folder {str(shown)!r}"
        close = difflib.get_close_matches(real.name, [one.name for one in folder.iterdir()], n=1)
        if not close:
            return ""
        return f"; is {str((folder / close[0]).relative_to(self.root))!r} meant?"
