"""Commands that only read, and the options that make writers of them.

Each handler says which of its operands are files. A command is listed here only if no argument
without an entry makes it write, run a program or read a list of files to be changed. That the
programs on the path, their configuration and the environment are the user's own is taken for
granted. Feeds the table of known commands.
"""

from collections.abc import Mapping

from laneway.lanes.shell.invocation import HERE, Handler, Invocation
from laneway.lanes.shell.options import Options, sort
from laneway.lanes.shell.words import Word, unknown

_ANYTHING = unknown("a list of files")
_FILES_FROM = {"files0-from": "read"}


def reads_nothing(options: Options | None = None) -> Handler:
    """A command whose operands are no files."""
    options = options or Options()

    def handle(call: Invocation) -> None:
        if options.is_risky and (why := sort(call.args, options).opaque):
            call.opaque(f"{call.name} with {why}")

    return handle


def reads(
    options: Options | None = None,
    *,
    skipped: int = 0,
    unless: str = "",
    here: str | None = None,
    anything: str = "",
) -> Handler:
    """A command whose operands are files that it reads.

    Args:
        options: Those that matter.
        skipped: How many operands come before the files.
        unless: Letters of options that take the place of those operands.
        here: Options with which it reads the folder it is in if no file is named; empty for
            always, None for never.
        anything: Options, by letter or name, with which it reads files that a file lists.
    """
    options = options or Options()
    lists = [*(one for one in anything.split() if one)]

    def handle(call: Invocation) -> None:
        parsed = sort(call.args, options)
        if parsed.opaque:
            call.opaque(f"{call.name} with {parsed.opaque}")
        call.read(*parsed.reads)
        call.write(*parsed.writes)
        files = parsed.operands[0 if parsed.has(*unless) else skipped :]
        call.read(*files)
        if not files and here is not None and (not here or parsed.has(*here.split())):
            call.read(HERE)
        if parsed.has(*lists):
            call.read(_ANYTHING)

    return handle


def reads_and_writes_the_rest(options: Options) -> Handler:
    """A command whose first operand is read and whose second, if it is there, is written."""

    def handle(call: Invocation) -> None:
        parsed = sort(call.args, options)
        if parsed.opaque:
            call.opaque(f"{call.name} with {parsed.opaque}")
        if any(word.many for word in parsed.operands):
            call.write(*parsed.operands)
        call.read(*parsed.operands[:1])
        call.write(*parsed.operands[1:])

    return handle


def date(call: Invocation) -> None:
    """Reads the clock; with an operand that is no format, sets it."""
    parsed = sort(call.args, Options(values="d", reads="fr", opaque="s", long={"set": "opaque"}))
    if parsed.opaque or any(word.prefix[:1] != "+" for word in parsed.operands):
        call.opaque("date may set the clock")
    call.read(*parsed.reads)


def hostname(call: Invocation) -> None:
    """Reads the name of the machine; with an operand, sets it."""
    parsed = sort(call.args, Options(opaque="F", long={"file": "opaque"}))
    if parsed.opaque or parsed.operands:
        call.opaque("hostname may set the name")


def printf(call: Invocation) -> None:
    """Prints, or sets a variable."""
    if call.args and call.args[0].prefix[:1] in {"", "-"} and call.args[0].text != "--":
        first = call.args[0].text
        if first == "-v" and len(call.args) > 1 and (name := call.args[1].text):
            call.shell.assign(name)
        elif first is None or first.startswith("-v"):
            call.opaque("printf may set a variable")


_FILE_TESTS = frozenset(f"-{letter}" for letter in "abcdefghkprsuwxGLNOS")
_PAIR_TESTS = frozenset({"-nt", "-ot", "-ef"})


def test(call: Invocation) -> None:
    """Looks at the files of its file operators; reckons in `[[`, and with `-v` in `[` too."""
    args = call.args
    for at, word in enumerate(args):
        if word.text in _FILE_TESTS and at + 1 < len(args):
            call.read(args[at + 1])
        elif word.text in _PAIR_TESTS and 0 < at < len(args) - 1:
            call.read(args[at - 1], args[at + 1])
        elif word.text is None and word.many and not word.wild:
            call.read(word)
    if any(word.text in {"-v", "-R"} for word in args):
        call.hidden("a test of a variable by its name, which may hold a substitution")


def jq(call: Invocation) -> None:
    """Reads its filter, then files."""
    names = {"arg": 2, "argjson": 2, "slurpfile": 2, "rawfile": 2, "indent": 1, "tab": 0}
    operands, at, filtered = list[Word](), 0, False
    while at < len(call.args):
        word = call.args[at]
        text = word.text or ""
        at += 1
        if text[:2] == "--" and text[2:] in names:
            if text in {"--slurpfile", "--rawfile"}:
                call.read(*call.args[at + 1 : at + 2])
            at += names[text[2:]]
        elif text in {"-f", "--from-file", "-L"}:
            filtered |= text != "-L"
            call.read(*call.args[at : at + 1])
            at += 1
        elif text[:1] != "-" or text == "-":
            operands.append(word)
        elif text[:2] != "--" and ("f" in text or "L" in text):
            call.read(_ANYTHING)
    call.read(*operands[0 if filtered else 1 :])


_GREP = Options(
    values="emABCDdX",
    reads="f",
    long={
        "file": "read",
        "exclude-from": "read",
        **dict.fromkeys(
            ("regexp max-count after-context before-context context include exclude "
             "exclude-dir label binary-files devices directories").split(), "value",
        ),
    },
)  # fmt: skip
_RG = Options(
    values="eABCmgtTjMrdE",
    reads="f",
    long={
        "pre": "opaque",
        "hostname-bin": "opaque",
        "file": "read",
        "ignore-file": "read",
        **dict.fromkeys(
            ("regexp glob iglob type type-not max-count max-depth after-context before-context "
             "context threads replace sort sortr color colors encoding engine").split(), "value",
        ),
    },
)  # fmt: skip


def ripgrep(call: Invocation) -> None:
    """Searches below the folder it is in, if none is named."""
    parsed = sort(call.args, _RG)
    if parsed.opaque:
        call.opaque(f"{call.name} with {parsed.opaque}")
    call.read(*parsed.reads)
    given = parsed.has("e", "regexp", "f", "file", "files", "type-list")
    files = parsed.operands[0 if given else 1 :]
    call.read(*(files or [HERE]))


_SUMS = reads(anything="c check")

READERS: Mapping[str, Handler] = {
    **dict.fromkeys(
        ": true false echo sleep seq yes expr whoami logname id groups users who uname arch nproc "
        "uptime free tty printenv locale getconf factor cal basename dirname type times umask "
        "ulimit break continue return exit shift pwd which whereis ps pgrep lscpu shopt tr".split(),
        reads_nothing(),
    ),
    "jobs": reads_nothing(Options(opaque="x")),
    "wait": reads_nothing(Options(opaque="p")),
    "date": date,
    "hostname": hostname,
    "printf": printf,
    "test": test,
    "[": test,
    "[[": test,
    "cat": reads(),
    "tac": reads(Options(values="s")),
    "rev": reads(),
    "nl": reads(Options(values="bdfhilnsvw")),
    "head": reads(Options(values="nc", long={"lines": "value", "bytes": "value"})),
    "tail": reads(
        Options(values="ncs", long=dict.fromkeys(("lines", "bytes", "pid"), "value"))
    ),
    "wc": reads(Options(long=_FILES_FROM), anything="files0-from"),
    "cut": reads(
        Options(values="bcdf", long=dict.fromkeys(("fields", "delimiter", "characters"), "value"))
    ),
    "paste": reads(Options(values="d")),
    "join": reads(Options(values="12aejotv")),
    "comm": reads(),
    "fold": reads(Options(values="w")),
    "fmt": reads(Options(values="gptw")),
    "expand": reads(Options(values="t")),
    "unexpand": reads(Options(values="t")),
    "pr": reads(Options(values="DhloNW", optional="eins")),
    "column": reads(Options(values="cosNHRTOEd")),
    "od": reads(Options(values="AjNt", optional="Sw")),
    "hexdump": reads(Options(values="ens", reads="f")),
    "strings": reads(Options(values="etns")),
    "tsort": reads(),
    "base64": reads(Options(values="w")),
    "base32": reads(Options(values="w")),
    "cksum": _SUMS,
    "sum": _SUMS,
    "md5sum": _SUMS,
    "b2sum": _SUMS,
    **dict.fromkeys([f"sha{bits}sum" for bits in (1, 224, 256, 384, 512)], _SUMS),
    "stat": reads(Options(values="c", long={"format": "value", "printf": "value"})),
    "readlink": reads(),
    "realpath": reads(Options(long={"relative-to": "value", "relative-base": "value"})),
    "cmp": reads(Options(values="in")),
    "diff": reads(
        Options(
            values="CFILSUWDx",
            reads="X",
            long={"exclude-from": "read", "from-file": "read", "to-file": "read",
                  "exclude": "value", "label": "value", "unified": "optional"},
        )
    ),
    "file": reads(
        Options(
            values="FPe", reads="fm", opaque="C", long={"compile": "opaque", "files-from": "f"}
        ),
        anything="f",
    ),
    "ls": reads(Options(values="ITw"), here=""),
    "dir": reads(Options(values="ITw"), here=""),
    "du": reads(
        Options(
            values="Bdt",
            reads="X",
            long={**_FILES_FROM, "max-depth": "value", "exclude": "value", "exclude-from": "read"},
        ),
        here="",
        anything="files0-from",
    ),
    "df": reads(Options(values="Btx")),
    "tree": reads(
        Options(
            values="HILPT",
            writes="o",
            opaque="R",
            long=dict.fromkeys(("filelimit", "charset", "timefmt", "sort"), "value"),
        ),
        here="",
    ),
    "jq": jq,
    "zcat": reads(),
    "grep": reads(_GREP, skipped=1, unless="ef", here="r R recursive dereference-recursive"),
    "egrep": reads(_GREP, skipped=1, unless="ef", here="r R recursive dereference-recursive"),
    "fgrep": reads(_GREP, skipped=1, unless="ef", here="r R recursive dereference-recursive"),
    "zgrep": reads(_GREP, skipped=1, unless="ef"),
    "rg": ripgrep,
    "sort": reads(
        Options(
            values="kSt",
            writes="oT",
            long={"output": "o", "temporary-directory": "T", "compress-program": "opaque",
                  **_FILES_FROM, "key": "value", "field-separator": "value",
                  "buffer-size": "value", "parallel": "value", "batch-size": "value"},
        ),
        anything="files0-from",
    ),
    "shuf": reads(
        Options(
            values="in",
            writes="o",
            long={"output": "o", "random-source": "read", "head-count": "value",
                  "input-range": "value"},
        )
    ),
    "uniq": reads_and_writes_the_rest(
        Options(
            values="fsw",
            opaque=" ",  # an unknown word could be one operand more
            long=dict.fromkeys("skip-fields skip-chars check-chars".split(), "value"),
        )
    ),
    "xxd": reads_and_writes_the_rest(Options(values="closRn", opaque=" ")),
}  # fmt: skip
"""By name."""
