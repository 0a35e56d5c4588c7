"""Searches the files of a workspace, in a process of its own (see `grep`)."""

import sys
from pathlib import Path

from laneway.engine.toolkit import grep
from laneway.engine.toolkit.processes import run_process
from laneway.engine.toolkit.workspace import Workspace

# -I and -S: nothing of the user's environment is loaded, and it starts in some 10 ms.
GREP = (sys.executable, "-I", "-S", "-X", "utf8", str(Path(grep.__file__).resolve()))


class Search:
    """The search tool of one workspace."""

    __slots__ = ("_workspace",)

    def __init__(self, workspace: Workspace) -> None:
        """Serve this workspace."""
        self._workspace = workspace

    async def search_files(self, pattern: str, path: str = ".", files: str = "*") -> str:
        """Search text files for a regular expression, line by line.

        Args:
            pattern: in Python's syntax.
            path: a folder or file, relative to the workspace.
            files: which names to look at, for instance `*.py`.
        """
        root = self._workspace.root
        real = self._workspace.find(path)
        if not real.exists():
            raise FileNotFoundError(f"there is no {path!r} in the workspace")
        below = str(real.relative_to(root))
        command = [*GREP, pattern, str(root), below, files]
        ended = await run_process(command, folder=root)
        if ended.code != 0:
            raise ValueError(ended.output.text().strip())
        return ended.output.text().rstrip("\n")
