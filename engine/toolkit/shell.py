"""Runs commands and the project's tests in a workspace."""

import signal
from collections.abc import Mapping, Sequence

from laneway.engine.context import ToolContext, process_of
from laneway.engine.processes import Ended
from laneway.engine.toolkit.workspace import Workspace


class Shell:
    """The shell of one workspace."""

    __slots__ = ("_environment", "_tests", "_workspace")

    def __init__(
        self,
        workspace: Workspace,
        tests: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Serve this workspace.

        Args:
            workspace: the folder that commands run in.
            tests: the program and arguments that run the tests.
            environment: of whatever is run; that of this process if None.
        """
        self._workspace = workspace
        self._tests = tuple(tests)
        self._environment = environment

    async def run_shell(  # noqa: D417 - the model is not told of the context
        self, command: str, context: ToolContext | None = None
    ) -> str:
        """Run a shell command in the workspace and wait for it. What it leaves running is killed.

        Args:
            command: for /bin/sh.
        """
        return await self._run(command, context)

    async def run_tests(self, context: ToolContext | None = None) -> str:
        """Run the project's tests.

        Idempotent: it changes nothing that another run would not make again, so a crash in the
        middle of it is followed by another run.
        """
        return await self._run(self._tests, context)

    async def _run(self, command: str | Sequence[str], context: ToolContext | None) -> str:
        running = process_of(context)
        ended = await running(command, cwd=self._workspace.root, env=self._environment)
        return told(ended)


def told(ended: Ended) -> str:
    """Write how a command ended: the exit code first, then its output.

    A code that is not 0 is an answer, not a failure of the tool.
    """
    how = f"exit code {ended.code}" if ended.code >= 0 else f"killed by {_signal(-ended.code)}"
    output = ended.output
    size = f" (output of {output.size:,} bytes, cut)" if output.is_cut else ""
    return f"{how}{size}\n{output.text().rstrip() or '(no output)'}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
