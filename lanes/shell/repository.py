"""git: which of its commands only look, and where.

A command that looks reads the workspace, for nobody knows where the repository begins; any other
writes it, and runs the repository's hooks. Feeds the table of known commands.
"""

import re
from collections.abc import Callable

from laneway.lanes.shell.folders import entered
from laneway.lanes.shell.invocation import HERE, Invocation
from laneway.lanes.shell.words import Word, unknown

_LOOKS = frozenset(
    "status log show diff rev-parse ls-files ls-tree blame annotate shortlog describe rev-list "
    "cat-file diff-tree diff-index diff-files merge-base name-rev for-each-ref show-ref "
    "count-objects check-ignore check-attr whatchanged cherry grep version show-branch "
    "range-diff var".split()
)
_FLAGS = frozenset(
    "--no-pager -P --no-optional-locks --bare --no-replace-objects --literal-pathspecs "
    "--glob-pathspecs --noglob-pathspecs --icase-pathspecs".split()
)
_DANGEROUS = ("--output", "--ext-diff", "--open-files-in-pager")


def git(call: Invocation) -> None:
    """Looks at the repository, or changes it."""
    at, folders = _command(call)
    if at < 0:
        return
    if at == len(call.args):
        return
    command, args = call.args[at].text, call.args[at + 1 :]
    risky = [word for word in args if _is_dangerous(word)]
    if command is None or risky:
        known = command is not None and all(word.text is not None for word in risky)
        why = "a use of git that may write or run something"
        (call.hidden if known else call.opaque)(why)
    elif command in _LOOKS or _LISTS.get(command, _never)(args):
        call.read(_REPOSITORY, *(word for word in args if word.prefix[:1] == "/"))
        if folders != call.folders:
            call.effects.read(HERE, folders)
        if command == "grep" and any(_short(word, "O") for word in args):
            call.hidden("git grep that opens what it finds")
    elif _runs_others(command, args):
        call.hidden(f"git {command} that runs what its arguments say")
    else:
        call.opaque(f"git {command} may change the repository")


_REPOSITORY = unknown("the repository")


def _command(call: Invocation) -> tuple[int, "frozenset[str] | None"]:
    """Find the command behind git's own options; -1 if they do more than choose a folder."""
    folders = call.folders
    at = 0
    while at < len(call.args):
        word = call.args[at]
        if word.text == "-C" and at + 1 < len(call.args):
            path = call.args[at + 1].text
            folders = None if path is None else entered(folders, path)
            at += 2
        elif word.text in _FLAGS:
            at += 1
        elif word.text in {"--version", "--help", "-v", "-h"}:
            return -1, folders
        elif word.prefix[:1] == "-" or word.text is None:
            call.hidden(f"git with {word.shown!r}")
            return -1, folders
        else:
            break
    return at, folders


def _is_dangerous(word: Word) -> bool:
    """Whether an argument may be an option that writes or runs something, or its beginning."""
    if word.text is None:
        return word.may_be_option or (word.many and not word.wild)
    name = word.text.partition("=")[0]
    return len(name) > 2 and any(one.startswith(name) for one in _DANGEROUS)  # noqa: PLR2004


def _runs_others(command: str, args: list[Word]) -> bool:
    """Whether a command that changes the repository runs commands that its arguments name."""
    if command in _RUNNERS or (command == "rebase" and any(_short(word, "x") for word in args)):
        return True
    texts = [word.prefix for word in args]
    if texts[:1] in (["run"], ["foreach"]) or any(text.startswith("ext::") for text in texts):
        return True
    return any(len(text) > 3 and _OF_A_RUNNER.match(text) for text in texts)  # noqa: PLR2004


_RUNNERS = frozenset("filter-branch difftool mergetool config".split())
"""Setting the configuration may change what any later command runs."""
_OF_A_RUNNER = re.compile(r"--(?:exe|upload-p|receive-p|config|template)")


def _short(word: Word, letter: str) -> bool:
    text = word.prefix
    return text[:1] == "-" and text[:2] != "--" and letter in text


def _never(_: list[Word]) -> bool:
    return False


def _lists(options: str, *, listing: str = "") -> Callable[[list[Word]], bool]:
    """A command that lists if no other options are given, and no operands but with some of them.

    Args:
        options: Those that change nothing.
        listing: Those that make a list even of operands.
    """
    known = frozenset(f"{options} {listing}".split())
    with_operands = frozenset(listing.split())

    def only(args: list[Word]) -> bool:
        given = [word.prefix.partition("=")[0] for word in args if word.prefix[:1] in {"", "-"}]
        return known.issuperset(given) and (
            len(given) == len(args) or not with_operands.isdisjoint(given)
        )

    return only


def _begins(*commands: str) -> Callable[[list[Word]], bool]:
    """A command that lists if it begins with one of these words."""
    known = frozenset(commands)
    return lambda args: bool(args) and args[0].text in known


def _shows_config(args: list[Word]) -> bool:
    operands = [word for word in args if word.prefix[:1] != "-"]
    return _CONFIG(args) or (
        len(operands) == 1
        and operands[0].text is not None
        and _SCOPES.issuperset(word.text for word in args if word is not operands[0])
    )


_SCOPES: frozenset[str | None] = frozenset({"--global", "--local", "--system"})
_CONFIG = _lists(
    "--global --local --system --show-origin --show-scope -z --null --name-only --type",
    listing="--get --get-all --get-regexp --list -l",
)
_LISTS: dict[str, Callable[[list[Word]], bool]] = {
    "branch": _lists(
        "-a --all -r --remotes -v -vv --verbose --show-current --color --no-color --sort --format "
        "--column --no-column",
        listing="--list -l --contains --no-contains --merged --no-merged --points-at",
    ),
    "tag": _lists("-n --sort --format", listing="-l --list --contains --points-at --merged"),
    "remote": lambda args: _lists("-v --verbose")(args) or _begins("get-url")(args),
    "stash": _begins("list", "show"),
    "config": lambda args: bool(args) and _shows_config(args),
    "reflog": lambda args: not args or _begins("show")(args),
    "worktree": _begins("list"),
    "submodule": _begins("status"),
    "notes": _begins("show", "list"),
    "symbolic-ref": lambda args: len(args) == 1 and args[0].prefix[:1] not in {"", "-"},
    "bisect": _begins("log"),
}
