"""Commands that write files that their arguments name.

A target that may be a folder is claimed with all below it, so it does not matter whether it is one.
A glob is not suspected to match a file that is called like an option, as it is where a command is
to be proven harmless. Feeds the table of known commands.
"""

from collections.abc import Mapping

from laneway.lanes.shell.invocation import HERE, Handler, Invocation
from laneway.lanes.shell.options import Options, Parsed, sort
from laneway.lanes.shell.words import Word, literal, unknown

_BACKUPS = {"backup": "b", "suffix": "S"}


def writes(options: Options | None = None) -> Handler:
    """A command whose operands are files that it writes."""
    options = options or Options()

    def handle(call: Invocation) -> None:
        call.write(*_sorted(call, options).operands)

    return handle


def change_mode(call: Invocation) -> None:
    """chmod, chown and chgrp: the first operand is the new mode or owner."""
    parsed = _sorted(call, Options(long={"reference": "read", "from": "value"}))
    given = parsed.has("reference", *("rwxXstugoa" if call.name == "chmod" else ""))
    call.write(*parsed.operands[0 if given else 1 :])


def rmdir(call: Invocation) -> None:
    """Removes folders; with -p their parents too."""
    parsed = _sorted(call, Options())
    for word in parsed.operands:
        if parsed.has("p", "parents"):
            call.write(_top(word))
        call.write(word)


def copy(call: Invocation) -> None:
    """cp, mv and install: to the last operand, or into the folder of -t."""
    parsed = _sorted(
        call,
        Options(
            values="gmoS" if call.name == "install" else "S",
            writes="t",
            long={"target-directory": "t", "strip-program": "opaque", **_BACKUPS},
            trusting=True,
        ),
    )
    operands = parsed.operands
    if call.name == "install" and parsed.has("d", "directory"):
        call.write(*operands)
        return
    targets = parsed.writes or operands[-1:]
    sources = operands if parsed.writes else operands[:-1]
    if call.name == "mv":
        call.write(*sources)
    else:
        call.read(*sources)
    call.write(*targets)
    if parsed.has("b", "backup", "S", "suffix"):
        call.write(*map(_folder_of, targets))
    if any(word.many and not word.wild for word in operands):
        call.opaque("operands that are not known")


def link(call: Invocation) -> None:
    """Makes links: at the last operand, in the folder of -t, or in the folder it is in."""
    parsed = _sorted(
        call,
        Options(values="S", writes="t", long={"target-directory": "t", **_BACKUPS}, trusting=True),
    )
    operands = parsed.operands
    if not parsed.has("s", "symbolic"):
        call.read(*operands)
    if not parsed.writes:
        one = len(operands) == 1 and not operands[0].many
        call.write(HERE if one else operands[-1] if operands else HERE)
    if parsed.has("b", "backup", "S", "suffix"):
        call.write(*map(_folder_of, parsed.writes or operands[-1:]))


def touch(call: Invocation) -> None:
    """Makes files, or sets their times."""
    options = Options(values="dt", reads="r", long={"date": "value", "reference": "read"})
    call.write(*_sorted(call, options).operands)


def tee(call: Invocation) -> None:
    """Copies its input to files."""
    call.write(*_sorted(call, Options(long={"output-error": "optional"})).operands)


def dd(call: Invocation) -> None:
    """Copies from if= to of=."""
    for word in call.args:
        name, equals, _ = word.prefix.partition("=")
        if not equals:
            call.opaque("an operand of dd that is not known")
        elif name in {"if", "of"}:
            value = word._replace(
                text=None if word.text is None else word.text[3:], prefix=word.prefix[3:],
                shown=word.shown[3:],
            )  # fmt: skip
            if name == "of":
                call.write(value)
            else:
                call.read(value)


def split(call: Invocation) -> None:
    """Writes files that begin with its second operand."""
    parsed = _sorted(
        call,
        Options(
            values="abClnt",
            optional="dx",
            long={"filter": "opaque", **dict.fromkeys(("bytes", "lines", "number"), "value")},
        ),
    )
    call.read(*parsed.operands[:1])
    call.write(*(map(_folder_of, parsed.operands[1:]) if parsed.operands[1:] else [HERE]))


def squeeze(call: Invocation) -> None:
    """gzip and its kin: each file is replaced by another in its folder, but with -c, -l or -t."""
    parsed = _sorted(call, Options(values="SbTM", long={"suffix": "value"}))
    if parsed.has("c", "stdout", "to-stdout", "l", "list", "t", "test"):
        call.read(*parsed.operands)
    else:
        call.write(*map(_folder_of, parsed.operands))


_TAR = Options(
    values="bfCHLVXTgKN",
    opaque="IFMTgP",
    long={
        **dict.fromkeys("file directory exclude strip-components transform".split(), "value"),
        "exclude-from": "read",
    },
)
_TAR_NAMES = frozenset(
    "file directory exclude exclude-from strip-components create extract list get append update "
    "gzip gunzip bzip2 xz zstd verbose no-same-owner same-owner overwrite keep-old-files "
    "exclude-vcs wildcards anchored dereference".split()
)


def tar(call: Invocation) -> None:
    """Reads an archive, makes one, or writes what is in one into a folder."""
    args = list(call.args)
    first = (args[0].text if args else None) or "-"
    if first[0] != "-":  # the old style
        args[0] = literal(f"-{first}")
        if sum(letter in _TAR.values for letter in first) > 1:
            call.opaque("tar with several values in the old style")
            return
    parsed = sort(args, _TAR)
    unfamiliar = [name for name in parsed.values if len(name) > 1 and name not in _TAR_NAMES]
    if parsed.opaque or unfamiliar:
        call.opaque(f"tar with {parsed.opaque or unfamiliar[0]}")
        return
    archives = parsed.values.get("f", []) + parsed.values.get("file", [])
    folders = parsed.values.get("C", []) + parsed.values.get("directory", [])
    if any(":" in word.prefix for word in archives):
        call.opaque("an archive on another machine")
    call.read(*parsed.reads)
    if parsed.has("x", "extract", "get"):
        call.read(*archives)
        call.write(*(folders or [HERE]))
    elif parsed.has("t", "list"):
        call.read(*archives)
    elif parsed.has("c", "create", "r", "append", "u", "update"):
        call.write(*archives)
        call.read(*folders, *parsed.operands)
        if folders and any(".." in word.shown for word in parsed.operands):
            call.read(unknown("a path from another folder"))
    else:
        call.opaque("a use of tar that is not known")


def _sorted(call: Invocation, options: Options) -> Parsed:
    parsed = sort(call.args, options)
    if parsed.opaque:
        call.opaque(f"{call.name} with {parsed.opaque}")
    call.read(*parsed.reads)
    call.write(*parsed.writes)
    return parsed


def _folder_of(word: Word) -> Word:
    """The folder of a file, for what is written beside it."""
    if word.text is None:
        parent = word.parent
        return unknown(word.shown) if parent is None else literal(parent)
    return literal(
        word.text.rstrip("/").rpartition("/")[0] or ("/" if word.text[:1] == "/" else ".")
    )


def _top(word: Word) -> Word:
    """The first of the folders in a path."""
    if word.text is None or ".." in word.text:
        return unknown(word.shown)
    return literal("/" if word.text[:1] == "/" else word.text.split("/")[0] or ".")


WRITERS: Mapping[str, Handler] = {
    "rm": writes(Options(long={"interactive": "optional"})),
    "unlink": writes(),
    "rmdir": rmdir,
    "mkdir": writes(Options(values="m", optional="Z", long={"mode": "value"})),
    "mkfifo": writes(Options(values="m", long={"mode": "value"})),
    "touch": touch,
    "truncate": writes(Options(values="s", reads="r", long={"size": "value", "reference": "read"})),
    "tee": tee,
    "cp": copy,
    "mv": copy,
    "install": copy,
    "ln": link,
    **dict.fromkeys("chmod chown chgrp".split(), change_mode),
    "dd": dd,
    "split": split,
    **dict.fromkeys("gzip gunzip bzip2 bunzip2 xz unxz".split(), squeeze),
    "tar": tar,
}
"""By name."""
