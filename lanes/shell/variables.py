"""Commands that set variables or move the shell; and variables that change what commands do.

Feeds the table of known commands and the walk.
"""

import re
from collections.abc import Mapping

from laneway.lanes.shell.folders import entered
from laneway.lanes.shell.invocation import Handler, Invocation
from laneway.lanes.shell.options import Options, sort

_TELLING = re.compile(
    r"(?:(?:CD|AWK|AWKLIB|GCONV_|LOC|NLS)?PATH|ENV|LD_.*|DYLD_.*|BASH.*|SHELL.*|PS\d|PROMPT.*|HOME|"
    r"PWD|OLDPWD|TMP.*|TEMP.*|.*PAGER.*|.*EDITOR.*|VISUAL|LESS.*|GIT_.*|GREP_.*|RIPGREP_.*|"
    # bash reckons what these are set to, and runs the substitutions in it.
    r"S?RANDOM|SECONDS|LINENO|HISTCMD|OPTIND|"
    r".*OPTIONS|XDG_.*|POSIX.*|SUDO_.*|GLIBC.*|MALLOC.*|JQ_.*|TERMINFO.*|MAGIC|.*_COMMAND)"
)


_CD_OPTION = re.compile(r"-[LPe@]+|--")


def is_telling(name: str) -> bool:
    """Whether a variable may change what a known command, or the shell, does."""
    return not re.fullmatch(r"\w+", name) or _TELLING.fullmatch(name) is not None


def declare(call: Invocation) -> None:
    """declare and its kin: set variables, some of them to what is reckoned."""
    for word in call.args:
        text = word.text
        if text is None:
            call.opaque(f"{call.name} with {word.shown!r}")
        elif text[:1] in {"-", "+"}:
            if set(text) & set("in"):
                call.hidden(f"{call.name} with {text}, which reckons what it is given")
            elif "F" in text:
                call.opaque(f"{call.name} with {text}")
        elif text.partition("=")[2][:1] == "(":
            call.hidden(f"{call.name} reads {text!r} as the elements of an array")
        else:
            call.shell.assign(text.partition("=")[0])


def unset(call: Invocation) -> None:
    """Forgets variables or functions."""
    for word in call.args:
        if word.text is None:
            call.opaque(f"unset with {word.shown!r}")
        elif word.text[:1] != "-":
            call.shell.assign(word.text)


def read(call: Invocation) -> None:
    """Reads a line into variables."""
    parsed = sort(call.args, Options(values="adeiNnptu", opaque=" "))
    if parsed.opaque or any(word.text is None for word in parsed.operands):
        call.opaque("read into a variable that is not known")
    for word in [*parsed.operands, *parsed.values.get("a", [])]:
        call.shell.assign(word.text or "?")


def set_options(call: Invocation) -> None:
    """Sets options of the shell, or its arguments."""
    if any(word.prefix[:1] not in {"-", "+"} or word.text == "--" for word in call.args):
        call.shell.assign("1")


def change_folder(call: Invocation) -> None:
    """cd and pushd: the shell goes to a folder, or stays where it is."""
    options = {word.text for word in call.args if _CD_OPTION.fullmatch(word.text or "")}
    operands = [word for word in call.args if word.text not in options]
    path = operands[0].text if len(operands) == 1 else None
    elsewhere = path in {None, "", "-"} or any("P" in (one or "") for one in options)
    if path is None or elsewhere or (call.name == "pushd" and path[0] in "-+"):
        there = None
    else:
        there = entered(call.folders, path)
    call.after = (there, call.folders)


def go_back(call: Invocation) -> None:
    """popd: the shell goes to a folder where it has been."""
    call.after = (None, call.folders)


def leave(call: Invocation) -> None:
    """exit: nothing comes after it."""
    if len(call.args) <= 1:
        call.after = (frozenset(), frozenset())


VARIABLES: Mapping[str, Handler] = {
    **dict.fromkeys("export declare typeset local readonly".split(), declare),
    "unset": unset,
    "read": read,
    "set": set_options,
    "cd": change_folder,
    "chdir": change_folder,
    "pushd": change_folder,
    "popd": go_back,
    "exit": leave,
}
"""By name."""
MOVES = frozenset({"cd", "chdir", "pushd", "popd"})
"""Those after which the shell may be elsewhere."""
