"""Searches the files of a workspace, in a process of its own (see `grep`)."""

import sys
from pathlib import Path

from laneway.engine.context import ToolContext, process_of
from laneway.engine.toolkit import grep
from laneway.engine.toolkit.workspace import Workspace

# -I and -S: nothing of the user's environment is loaded, and it starts in some 10 ms.
GREP = (sys.executable, "-I", "-S", "-X", "utf8", str(Path(grep.__file__).resolve()))


class Search:
    """The search tool of one workspace."""

    __slots__ = ("_workspace",)

    def __init__(self, workspace: Workspace) -> None:
        """Serve this workspace."""
        self._workspace = workspace

    async def search_files(  # noqa: D417 - the model is not told of the context
        self,
        pattern: str,
        path: str = ".",
        files: str = "*",
        context: ToolContext | None = None,
    ) -> str:
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
        ended = await process_of(context)(command, cwd=root)
        if ended.code != 0:
            raise ValueError(ended.output.text().strip())
        return ended.output.text().rstrip("\n")
