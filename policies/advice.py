"""Rules that do what they say, and less or more than is meant: paths and commands taken as texts.

Reads rules; feeds the lints. docs/policies.md says why claims are for files, and what a text of a
command line hides.
"""

from collections.abc import Iterator
from typing import Final

from laneway.policies.arguments import flatten
from laneway.policies.conditions import Rule
from laneway.policies.inclusion import values_of
from laneway.policies.paths import parse_path
from laneway.policies.patterns import parse_pattern
from laneway.policies.questions import Decision

PATHS: Final = frozenset(
    {
        "destination",
        "dest",
        "dir",
        "directory",
        "dst",
        "file",
        "file_name",
        "file_path",
        "filename",
        "filepath",
        "files",
        "folder",
        "path",
        "paths",
        "src",
        "target_path",
    }
)
"""Names of arguments that hold paths of files."""

COMMANDS: Final = frozenset(
    {"cmd", "cmdline", "command", "command_line", "commandline", "commands", "script", "shell"}
)
"""Names of arguments that hold command lines."""

_ROUTES = frozenset({"endpoint", "link", "route", "uri", "url"})
_ROOTED = ("/", "./", "../", "~/", "**/")


def advice_on(rule: Rule, /) -> Iterator[tuple[bool, str]]:
    """Say what is risky in a rule: whether it concerns a path (else a command), and the advice."""
    for path, pattern in flatten(rule.arguments):
        name = next((step for step in reversed(parse_path(path)) if isinstance(step, str)), "")
        for kind, what in values_of(pattern):
            if rule.decision == Decision.ALLOW:
                if name.lower() in COMMANDS and _is_open(kind, what):
                    yield False, _on_command(path, what)
                    break
            elif kind == "glob" and _is_path(name, what):
                yield True, _on_path(path, what)
                break


def climbing(rule: Rule, /) -> Iterator[str]:
    """Give the arguments for which a rule that allows wants a path with `..`, which none fits."""
    if rule.decision != Decision.ALLOW:
        return
    for path, pattern in flatten(rule.arguments):
        values = values_of(pattern)
        globs = [what for kind, what in values if kind == "glob" and "/" in what]
        if (
            globs
            and len(globs) == len(values.alternatives)
            and not values.missing
            and not any(_may_fit(what) for what in globs)
        ):
            yield path


def _may_fit(glob: str) -> bool:
    """Whether a glob that grants may fit: what it has of `..` between slashes is in every text."""
    steady = glob.replace("*", "x").replace("?", "x")
    return parse_pattern("*/*", grants=True).fits(steady)


def _is_open(kind: str, what: object) -> bool:
    return kind == "regex" or (kind == "glob" and isinstance(what, str) and bool({*"*?"} & {*what}))


def _is_path(name: str, glob: str) -> bool:
    if "://" in glob or "/" not in glob:
        return False
    return name.lower() in PATHS or (name.lower() not in _ROUTES and glob.startswith(_ROOTED))


def _on_path(path: str, glob: str) -> str:
    return (
        f"arguments.{path} refuses the text {glob!r}, and a path has other spellings ('..', links, "
        f'relative ones); refuse what the call takes: claims = ["file:/…"], as claims are '
        "canonical"
    )


def _on_command(path: str, what: object) -> str:
    return (
        f"arguments.{path} allows every command line that fits {what!r}, whatever else stands in "
        "it: 'git log; rm -rf /' fits 'git *'; let it ask, or allow whole commands by name"
    )
