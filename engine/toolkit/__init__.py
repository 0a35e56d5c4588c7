"""Real tools for one folder: read, search, edit and write files, run commands and tests.

Made for a host that wants to start with something, and as examples of how a tool is declared. Each
tool is a plain method with a docstring for the model; what the scheduler must know of it (effect,
claims, whether it may run again) is said here, in one place.

    workspace ─▶ files (edits)      read_file  edit_file  write_file
              ─▶ search (grep)      search_files
              ─▶ shell (processes)  run_shell  run_tests
"""

import os
from collections.abc import Mapping, Sequence

from laneway.effects import Effect
from laneway.engine.claiming import ClaimsOf
from laneway.engine.spec import EffectOf
from laneway.engine.toolkit.files import Files
from laneway.engine.toolkit.search import Search
from laneway.engine.toolkit.shell import Shell
from laneway.engine.toolkit.workspace import OutsideWorkspaceError, Workspace
from laneway.engine.tools import Tool, tool
from laneway.lanes.shell import MissingShellError, shell_claims, shell_effect

__all__ = ["OutsideWorkspaceError", "Workspace", "toolkit"]

COMMAND_SECONDS = 120.0
"""How long a command or the tests may take."""


def toolkit(
    workspace: str | os.PathLike[str],
    *,
    tests: Sequence[str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> list[Tool]:
    """Make the tools for one folder.

    Their claims name the folder by its absolute path, so the engine may have another workspace, or
    several toolkits. No path of the model's leads out of the folder; a command of the shell can do
    whatever the user may who runs this program: let a policy ask before `run_shell`.

    With the extra `shell` a command is analysed: it claims what it reads and writes, and one that
    provably reads counts as READ. Without it, a command may touch anything in the folder.

    Args:
        workspace: the folder; it must exist.
        tests: the program and arguments that run the project's tests, run in the folder; without
            them there is no `run_tests`. They must be fit to be run again after a crash.
        environment: of commands and tests; that of this process if None.

    Raises:
        NotADirectoryError: there is no such folder.
    """
    folder = Workspace(workspace)
    shell = Shell(folder, tests or (), environment)
    # A brace in the folder's own name is text, not a parameter.
    root = str(folder.root).replace("{", "{{").replace("}", "}}").rstrip("/")
    reads = [f"read file:{root}/{{path}}"]
    writes = [f"write file:{root}/{{path}}"]
    everything = [f"lane:shell/{root}", f"write file:{root}"]
    claims, effect_of = _analysed(str(folder.root).rstrip("/")) or (everything, None)
    files, search = Files(folder), Search(folder)
    tools: list[Tool] = [
        tool(files.read_file, effect=Effect.READ, claims=reads, shape="file"),
        tool(
            search.search_files,
            effect=Effect.READ,
            claims=reads,
            literal=["pattern"],
            shape="search",
        ),
        tool(
            files.edit_file,
            effect=Effect.WRITE,
            idempotent=True,
            claims=writes,
            literal=["old", "new"],
        ),
        tool(
            files.write_file,
            effect=Effect.WRITE,
            idempotent=True,
            claims=writes,
            literal=["content"],
        ),
        tool(
            shell.run_shell,
            effect=Effect.EXTERNAL,
            effect_of=effect_of,
            claims=claims,
            claims_at_most=["write file:"],
            timeout=COMMAND_SECONDS,
            literal=["command"],
            shape="shell",
        ),
    ]
    if tests:
        tools.append(
            tool(
                shell.run_tests,
                effect=Effect.WRITE,
                idempotent=True,
                claims=everything,
                timeout=COMMAND_SECONDS,
                shape="tests",
            )
        )
    return tools


def _analysed(root: str) -> tuple[ClaimsOf, EffectOf] | None:
    """What the analysis of a command line says of its claims and effect; None without it."""
    try:
        return shell_claims(workspace=root or "/"), shell_effect(workspace=root or "/")
    except MissingShellError:
        return None
