"""find: its tests read, some of its actions write, and some run commands.

Feeds the table of known commands.
"""

from laneway.lanes.shell.invocation import HERE, Invocation
from laneway.lanes.shell.words import Word, unknown

_ALONE = frozenset(
    "-print -print0 -ls -prune -quit -depth -d -mount -xdev -follow -daystart -noleaf -warn "
    "-nowarn -empty -executable -readable -writable -nouser -nogroup -true -false -not -and -or "
    "-a -o ! ( ) , -noignore_readdir_race -ignore_readdir_race".split()
)
_WITH_VALUE = frozenset(
    "-name -iname -path -ipath -wholename -iwholename -regex -iregex -regextype -type -xtype "
    "-lname -ilname -maxdepth -mindepth -size -perm -user -group -uid -gid -links -inum -fstype "
    "-mtime -atime -ctime -mmin -amin -cmin -used -context -printf".split()
)
_READING = frozenset("-newer -anewer -cnewer -samefile".split())
_WRITING = frozenset("-fprint -fprint0 -fls -fprintf".split())
_RUNNING = frozenset("-exec -execdir -ok -okdir".split())


def find(call: Invocation) -> None:
    """Looks below folders, and does what its expression says."""
    args = call.args
    at = 0
    while at < len(args) and args[at].text in {"-H", "-L", "-P"}:
        at += 1
    start = at
    while at < len(args) and args[at].prefix[:1] not in {"-", "(", "!", ","}:
        if args[at].may_be_option or (args[at].many and not args[at].wild):
            call.hidden(f"{args[at].shown!r} may be an action of find")
        at += 1
    starts = list(args[start:at]) or [HERE]
    call.read(*starts)
    while at < len(args):
        at = _expression(call, starts, at)


def _expression(call: Invocation, starts: list[Word], at: int) -> int:
    """Follow one test or action; give the place of the next."""
    args = call.args
    text = args[at].text
    if text in _ALONE:
        return at + 1
    value = args[at + 1 : at + 2]
    if text in _WITH_VALUE or text in _READING or (text or "").startswith("-newer"):
        if any(word.many for word in value):
            call.hidden(f"{value[0].shown!r} may be an action of find")
        if text not in _WITH_VALUE:
            call.read(*value)
        return at + 2
    if text == "-delete":
        call.write(*starts)
        return at + 1
    if text in _WRITING:
        call.write(*value)
        return at + (3 if text == "-fprintf" else 2)
    if text in _RUNNING:
        return _run(call, starts, at + 1, nearby=text.endswith("dir"))
    if args[at].text is None:
        call.hidden(f"{args[at].shown!r} may be an action of find")
    else:
        call.opaque(f"find with {args[at].shown!r}")
    return at + 1


def _run(call: Invocation, starts: list[Word], at: int, *, nearby: bool) -> int:
    """Run the command of -exec on everything below the starting points."""
    args = call.args
    end = at
    while end < len(args) and args[end].text != ";":
        if args[end].text == "+" and end > at and args[end - 1].text == "{}":
            break
        end += 1
    words = args[at:end]
    if not words:
        call.opaque("find with an action that is not complete")
        return end + 1
    for begin in starts[:1] if nearby else starts:
        found = _found(begin, nearby=nearby)
        call.shell.run(
            [found if word.text == "{}" else _with_holes(word) for word in words],
            None if nearby else call.folders,
            "find",
        )
    return end + 1


def _found(begin: Word, *, nearby: bool) -> Word:
    """What `{}` stands for: any path that begins with the starting point."""
    if nearby:
        return unknown("{}", "./")
    if begin.text is None:
        return unknown("{}", begin.prefix)
    folder = begin.text.rstrip("/") + "/"
    return Word(None, folder, f"{folder}*", many=True, wild=".." not in folder)


def _with_holes(word: Word) -> Word:
    if "{}" in word.shown:
        return unknown(word.shown, word.prefix.partition("{}")[0])
    return word
