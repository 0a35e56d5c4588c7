"""Shell commands: what a command line may run, read and write, before it runs.

    line ─ grammar ─▶ tree ─ reading, wording ─▶ parts ─ walk ─▶ commands ─ table ─▶ effects

`analyse` is the analysis; `shell_claims` and `shell_effect` declare a tool that runs a command.
The parser is the extra `shell`, loaded when it is first needed.
"""

from laneway.lanes.shell.analysis import Command, Redirection, ShellAnalysis
from laneway.lanes.shell.declaring import shell_claims, shell_effect
from laneway.lanes.shell.grammar import MissingShellError
from laneway.lanes.shell.walk import analyse

__all__ = [
    "Command",
    "MissingShellError",
    "Redirection",
    "ShellAnalysis",
    "analyse",
    "shell_claims",
    "shell_effect",
]
