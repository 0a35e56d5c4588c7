"""Declares a tool that runs a shell command: its claims and its effect, derived from the command.

    @tool(effect=Effect.EXTERNAL, effect_of=shell_effect("command"), claims=shell_claims("command"))
    async def run_shell(command: str) -> str: ...

Reads a tool's arguments; feeds its admission.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from laneway.effects import Effect
from laneway.lanes.shell.analysis import ShellAnalysis
from laneway.lanes.shell.folders import entered
from laneway.lanes.shell.grammar import require_grammar
from laneway.lanes.shell.walk import analyse

Derived = TypeVar("Derived", bound=Callable[..., Any])


def shell_claims(
    parameter: str = "command", *, workspace: str = ".", cwd_parameter: str | None = None
) -> Callable[[Mapping[str, Any]], list[str]]:
    """Make the claims of a tool that runs a command line.

    A call takes the lane of the workspace's shell, so that no two commands of one shell overlap,
    and what its command reads and writes.

    Args:
        parameter: The argument that holds the command line.
        workspace: The folder that it starts in, absolute or relative to the engine's workspace;
            what can't be seen through writes all of it.
        cwd_parameter: An argument that names the folder to start in instead, absolute or relative
            to `workspace`.

    Raises:
        MissingShellError: The extra `shell` is not installed.
    """
    analysed = _analysis(parameter, workspace, cwd_parameter)

    def claims(arguments: Mapping[str, Any]) -> list[str]:
        return [f"lane:shell/{workspace}", *analysed(arguments).claims(workspace)]

    return _on_command_line(claims, parameter)


def shell_effect(
    parameter: str = "command", *, workspace: str = ".", cwd_parameter: str | None = None
) -> Callable[[Mapping[str, Any]], Effect]:
    """Make the effect of a call that runs a command line.

    READ for a command that provably reads, WRITE for one whose targets are all known, else
    EXTERNAL.

    Args:
        parameter: As for `shell_claims`.
        workspace: As for `shell_claims`.
        cwd_parameter: As for `shell_claims`.

    Raises:
        MissingShellError: The extra `shell` is not installed.
    """
    analysed = _analysis(parameter, workspace, cwd_parameter)
    return _on_command_line(lambda arguments: analysed(arguments).effect, parameter)


def command_parameter(declared: object) -> str | None:
    """Say which parameter holds the command line that a declaration was derived from.

    Args:
        declared: A tool's `claims` or `effect_of`; None for anything else than those made here.
    """
    return _parameters.get(declared) if callable(declared) else None


_parameters: WeakKeyDictionary[object, str] = WeakKeyDictionary()


def _on_command_line(derived: Derived, parameter: str) -> Derived:
    _parameters[derived] = parameter
    return derived


def _analysis(
    parameter: str, workspace: str, cwd_parameter: str | None
) -> Callable[[Mapping[str, Any]], ShellAnalysis]:
    require_grammar()

    def analysed(arguments: Mapping[str, Any]) -> ShellAnalysis:
        command = arguments[parameter]
        folder = arguments.get(cwd_parameter) if cwd_parameter else None
        if not isinstance(command, str):
            return ShellAnalysis(opaque=True, complete=False, why=f"{parameter} is no text")
        if folder is None:
            return analyse(command, cwd=workspace)
        if not isinstance(folder, str):
            return ShellAnalysis(opaque=True, complete=False, why=f"{cwd_parameter} is no text")
        (there,) = entered(frozenset({workspace}), folder) or ("",)
        return analyse(command, cwd=there)

    return analysed
