"""Commands that run another command: what they run is judged as if it stood there itself.

Feeds the table of known commands.
"""

from collections.abc import Callable, Mapping, Sequence

from laneway.lanes.shell.folders import Folders, entered, union
from laneway.lanes.shell.invocation import Handler, Invocation
from laneway.lanes.shell.options import Options, Parsed, sort
from laneway.lanes.shell.reading import RESERVED
from laneway.lanes.shell.words import Word, literal, unknown


def runs(
    options: Options | None = None,
    *,
    skipped: int = 0,
    assigns: bool = False,
    hides: str = "",
    here: bool = False,
    chdir: str = "",
) -> Handler:
    """A command that runs its operands.

    Args:
        options: Those that matter.
        skipped: How many operands come before the command.
        assigns: Whether `NAME=value` may come before it.
        hides: Options, by letter or name, with which another environment decides what runs.
        here: Whether it runs a builtin in this very shell.
        chdir: Options that name the folder to run it in.
    """
    options = options or Options()
    ordered = Options(
        values=options.values,
        reads=options.reads,
        writes=options.writes,
        optional=options.optional,
        opaque=options.opaque or " ",  # an unknown word may be the end of the options
        long=options.long,
        in_order=True,
    )
    hiding = hides.split()

    def handle(call: Invocation) -> None:
        parsed = sort(call.args, ordered)
        if parsed.opaque or parsed.has(*hiding):
            call.hidden(f"{call.name} with {parsed.opaque or 'another environment'}")
            return
        call.read(*parsed.reads)
        call.write(*parsed.writes)
        words = parsed.operands[skipped:]
        if words and words[0].text == "-":  # `env -` is `env -i`
            words = words[1:]
        while assigns and words and "=" in words[0].prefix:
            call.shell.assign(words.pop(0).prefix.partition("=")[0])
        if words:
            after = call.shell.run(words, _folders(call, parsed, chdir), call.name)
            call.after = after if here else None

    return handle


def _folders(call: Invocation, parsed: Parsed, chdir: str) -> Folders:
    """Where the command runs: env -C and sudo -D go to a folder first."""
    folders = call.folders
    for name in chdir.split():
        for word in parsed.values.get(name, []):
            folders = None if word.text is None else entered(folders, word.text)
    return folders


def time(call: Invocation) -> None:
    """Measures a command; as a reserved word of bash, also what is none."""
    parsed = sort(call.args, Options(values="f", writes="o", opaque=" ", in_order=True))
    if parsed.operands and parsed.operands[0].text in RESERVED:
        call.hidden("a measured command that can't be read")
        return
    _TIME(call)
    if call.after:  # as a program, it measures in a shell of its own
        there = union(*call.after)
        call.after = (there, there)


_TIME = runs(
    Options(values="f", writes="o", long={"output": "o", "format": "f"}), assigns=True, here=True
)


def command(call: Invocation) -> None:
    """Runs a command and no function; with -v, tells where it is."""
    parsed = sort(call.args, Options(opaque=" ", in_order=True))
    if not parsed.has("v", "V"):
        _PLAIN(call)


_PLAIN = runs(here=True)


def xargs(call: Invocation) -> None:
    """Runs a command with words that it reads."""
    parsed = sort(
        call.args,
        Options(
            values="dEILnPs",
            reads="a",
            optional="eil",
            opaque=" ",
            long={
                "arg-file": "a",
                "replace": "i",
                **dict.fromkeys(
                    "delimiter max-args max-procs max-chars max-lines process-slot-var".split(),
                    "value",
                ),
            },
            in_order=True,
        ),
    )
    if parsed.opaque:
        call.hidden(f"xargs with {parsed.opaque}")
        return
    call.read(*parsed.reads)
    words = parsed.operands or [literal("echo")]
    marks = [word.text or "{}" for name in "Ii" for word in parsed.values.get(name, [])]
    words = [_with_holes(word, marks) for word in words] if marks else [*words, unknown("…")]
    call.shell.run(words, call.folders, "xargs")


def _with_holes(word: Word, marks: Sequence[str]) -> Word:
    for mark in marks:
        if mark in word.shown:
            return unknown(word.shown, word.prefix.partition(mark)[0], many=False)
    return word


def shell(call: Invocation) -> None:
    """Runs the line behind -c; anything else that a shell reads is not seen."""
    at = 0
    args = call.args
    line = False
    while at < len(args) and (text := args[at].text) is not None and text[:1] in {"-", "+"}:
        at += 1
        if text[:2] != "--":
            at += sum(letter in "oO" for letter in text)  # each takes a word of its own
        if text in {"--rcfile", "--init-file"}:
            break
        if text == "--":
            break
        line |= "c" in text[1:] and text[:2] != "--"
    if at == len(args) and args and args[-1].text in {"--version", "--help"}:
        return
    script = args[at].text if line and at < len(args) else None
    if script is None:
        call.hidden(f"what {call.name} reads is not known")
        return
    call.shell.run_script(script, call.folders, call.name)


def evaluate(call: Invocation) -> None:
    """Runs its arguments as a line of this very shell."""
    if any(word.text is None for word in call.args):
        call.hidden("what eval runs is not known")
        return
    args = call.args[1:] if call.args and call.args[0].text == "--" else call.args
    line = " ".join(word.text or "" for word in args)
    folders = call.shell.run_script(line, call.folders, "eval", here=True)
    call.after = (folders, folders)


def trap(call: Invocation) -> None:
    """Runs a line later, from wherever the shell is then."""
    args = [word for word in call.args if word.text not in {"--", "-p", "-l"}]
    if len(args) < 2 or args[0].text in {"-", ""}:  # noqa: PLR2004  # a line and a signal
        return
    if args[0].text is None:
        call.hidden("what a trap runs is not known")
    else:
        call.shell.run_script(args[0].text, None, "trap")


def watch(call: Invocation) -> None:
    """Runs its operands again and again: as a line, or with -x as they are."""
    parsed = sort(
        call.args,
        Options(values="nq", optional="d", opaque=" ", long={"interval": "value"}, in_order=True),
    )
    if parsed.opaque or any(word.text is None for word in parsed.operands):
        call.hidden("what watch runs is not known")
    elif parsed.has("x", "exec"):
        call.shell.run(parsed.operands, call.folders, "watch")
    else:
        line = " ".join(word.text or "" for word in parsed.operands)
        call.shell.run_script(line, call.folders, "watch")


_FLOCK = Options(
    values="wE",
    opaque="c ",
    long={"command": "opaque",
          **dict.fromkeys(("timeout", "wait", "conflict-exit-code"), "value")},
    in_order=True,
)  # fmt: skip


def flock(call: Invocation) -> None:
    """Runs a command while it holds a lock on a file."""
    parsed = sort(call.args, _FLOCK)
    file, *words = parsed.operands or [literal("")]
    if parsed.opaque or (words and words[0].prefix[:1] == "-"):
        call.hidden("what flock runs is not known")
        return
    call.write(file)
    if words:
        call.shell.run(words, call.folders, "flock")


def remember(call: Invocation) -> None:
    """hash: forgets where programs are, or runs one under the name of another."""
    if any("p" in word.prefix or word.text is None for word in call.args):
        call.hidden("what a name runs is changed")
    else:
        call.opaque()


def calls_back(call: Invocation) -> None:
    """With some of its options, runs a line that is given, or the substitutions in a text."""
    if call.name == "bind" or sort(call.args, Options(values="dnOsu", opaque="CcWFx ")).opaque:
        call.hidden(f"what {call.name} runs is not known")
    else:
        call.opaque()


def hides(why: str) -> Callable[[Invocation], None]:
    """A command that runs what can't be listed, or changes what names mean."""
    return lambda call: call.hidden(why)


WRAPPERS: Mapping[str, Handler] = {
    "env": runs(
        Options(
            values="uC",
            opaque="S",
            long={"unset": "value", "chdir": "C", "split-string": "opaque",
                  **dict.fromkeys(("block-signal", "default-signal", "ignore-signal"), "optional")},
        ),
        assigns=True,
        chdir="C",
    ),
    "sudo": runs(
        Options(
            values="ugpCDThRrtU",
            long={"chdir": "D", **dict.fromkeys(("user", "group", "host", "prompt"), "value")},
        ),
        assigns=True,
        chdir="D",
        hides="i s e login shell edit R chroot h host",
    ),
    "doas": runs(Options(values="u", opaque="sC")),
    "timeout": runs(
        Options(values="ks", long={"kill-after": "value", "signal": "value"}), skipped=1
    ),
    "nice": runs(Options(values="n", long={"adjustment": "value"})),
    "ionice": runs(Options(values="cn", opaque="pPu")),
    "chrt": runs(Options(opaque="p"), skipped=1),
    "taskset": runs(Options(opaque="p", long={"pid": "opaque"}), skipped=1),
    "nohup": runs(),
    "setsid": runs(),
    "stdbuf": runs(
        Options(values="eio", long=dict.fromkeys(("input", "output", "error"), "value"))
    ),
    "unbuffer": runs(),
    "time": time,
    "command": command,
    "builtin": runs(here=True),
    "exec": runs(Options(values="a")),
    "xargs": xargs,
    "watch": watch,
    "flock": flock,
    "eval": evaluate,
    "trap": trap,
    **dict.fromkeys("bash sh dash ash".split(), shell),
    **dict.fromkeys((".", "source"), hides("a script that is not seen")),
    **dict.fromkeys(
        ("zsh ksh mksh fish csh tcsh busybox toybox su runuser parallel script strace ltrace "
         "setarch chroot unshare nsenter").split(),
        hides("a program that runs others in a way that is not seen"),
    ),
    "alias": hides("an alias changes what a name means"),
    "enable": hides("a builtin may be loaded"),
    "let": hides("a calculation runs the substitutions in a text"),
    "hash": remember,
    **dict.fromkeys("mapfile readarray compgen complete bind".split(), calls_back),
}  # fmt: skip
"""By name."""
