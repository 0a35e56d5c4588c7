"""All commands that are known, by name; any other may write anything."""

from collections.abc import Mapping

from laneway.lanes.shell.finding import find
from laneway.lanes.shell.invocation import Handler, Invocation
from laneway.lanes.shell.readers import READERS
from laneway.lanes.shell.repository import git
from laneway.lanes.shell.scripts import SCRIPTS
from laneway.lanes.shell.variables import VARIABLES
from laneway.lanes.shell.wrappers import WRAPPERS
from laneway.lanes.shell.writers import WRITERS


def unknown_command(call: Invocation) -> None:
    """A program that is not known, but for the question of its version."""
    if [word.text for word in call.args] != ["--version"] or call.name not in _TELL_VERSION:
        call.opaque()


_TELL_VERSION = frozenset(
    "python python3 pip pip3 node npm npx yarn pnpm cargo rustc gcc g++ clang make cmake java ruby "
    "perl go docker uv ruff mypy pytest tsc deno bun php curl wget".split()
)

KNOWN: Mapping[str, Handler] = {
    **READERS,
    **WRITERS,
    **SCRIPTS,
    **VARIABLES,
    **WRAPPERS,
    "find": find,
    "git": git,
}
"""By name."""
