"""Shell commands: what a command line may run, read and write, before it runs.

    line ─ grammar ─▶ tree ─ reading, wording ─▶ parts ─ walk ─▶ commands ─ table ─▶ effects

`analyse` is the analysis; `shell_claims` and `shell_effect` declare a tool that runs a command.
The parser is the extra `shell`, loaded when it is first needed.
"""

from laneway.lanes.shell.analysis import Command, Redirection, ShellAnalysis
from laneway.lanes.shell.declaring import command_parameter, shell_claims, shell_effect
from laneway.lanes.shell.grammar import MissingShellError, require_grammar
from laneway.lanes.shell.walk import analyse
from laneway.lanes.shell.words import HOLE

__all__ = [
    "HOLE",
    "Command",
    "MissingShellError",
    "Redirection",
    "ShellAnalysis",
    "analyse",
    "command_parameter",
    "require_grammar",
    "shell_claims",
    "shell_effect",
]
