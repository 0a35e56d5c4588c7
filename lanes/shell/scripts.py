"""sed and awk: commands whose program is an argument, and may write or run things itself.

Feeds the table of known commands.
"""

import re
from collections.abc import Mapping, Sequence

from laneway.lanes.shell.invocation import Handler, Invocation
from laneway.lanes.shell.options import Options, sort
from laneway.lanes.shell.words import Word, literal, unknown

_SED = Options(
    values="el",
    optional="i",
    opaque="f",
    long={
        "expression": "e",
        "file": "opaque",
        "line-length": "value",
        "in-place": "i",
        "null-data": "optional",
    },
)
_ADDRESS = re.compile(
    r"(?:\d+(?:~\d+)?|\$|/(?:[^/\\\n\[]|\\.|\[\^?\]?[^\]\n/]*\])*/[IM]*)"
    r"(?:\s*,\s*(?:[+~]?\d+|\$|/(?:[^/\\\n\[]|\\.|\[\^?\]?[^\]\n/]*\])*/[IM]*))?\s*!?\s*"
)
_LETTER = re.compile(r"[{}pdqQ=nNgGhHxDPlFz]\s*\d*\s*")
_LABEL = re.compile(r"(?:[btT]\s*\w*|:\s*\w+)\s*")
_TEXT = re.compile(r"[aic](?:\\\n|[^\n])*")
_READ = re.compile(r"r\s*([^\n]+)")
_FLAGS = re.compile(r"[gpiIMm\d]*\s*")
_BETWEEN = re.compile(r"(?:[\s;]|#[^\n]*)+")


def sed(call: Invocation) -> None:
    """Edits a stream; with -i, files in their place."""
    parsed = sort(call.args, _SED)
    if parsed.opaque:
        call.opaque(f"sed with {parsed.opaque}")
    programs: Sequence[Word] = parsed.values.get("e", [])
    files = parsed.operands
    if not programs:
        programs, files = files[:1], files[1:]
    for program in programs:
        read = None if program.text is None else files_of_sed(program.text)
        if read is None:
            call.opaque("a program of sed that may write or run something")
        else:
            call.read(*map(literal, read))
    if parsed.has("i"):
        _in_place(call, files, parsed.values["i"])
    else:
        call.read(*files)


def _in_place(call: Invocation, files: Sequence[Word], suffixes: Sequence[Word]) -> None:
    """Write the files, and their backups beside them."""
    call.write(*files)
    for suffix in suffixes:
        if suffix.text is None or "*" in suffix.text or "/" in suffix.text:
            call.opaque("backups of sed in another place")
        elif suffix.text:
            for file in files:
                if file.text is not None:
                    call.write(literal(file.text + suffix.text))


def files_of_sed(program: str) -> list[str] | None:
    """List the files that a program of sed reads; None if it may write or run something."""
    at, files = 0, list[str]()
    while at < len(program):
        for form in (_BETWEEN, _ADDRESS):
            if match := form.match(program, at):
                at = match.end()
        if at >= len(program):
            break
        if match := _READ.match(program, at):
            files.append(match[1])
        elif program[at] in "sy":
            end = _end_of_substitution(program, at)
            if end is None:
                return None
            at = end
            continue
        else:
            match = (
                _LETTER.match(program, at) or _LABEL.match(program, at) or _TEXT.match(program, at)
            )
        if not match:
            return None
        at = match.end()
    return files


def _end_of_substitution(program: str, at: int) -> int | None:
    """Find the end of `s/…/…/flags`; None if there is none, or a flag that does more."""
    delimiter = program[at + 1 : at + 2]
    if not delimiter or delimiter in "\\\n":
        return None
    end, left = at + 2, 2
    while left:
        if end >= len(program):
            return None
        letter = program[end]
        if letter == "\\":
            end += 1
        elif letter == "[" and left == 2:  # noqa: PLR2004  # in the first part
            # Where a bracket expression ends, and whether a delimiter in it counts, differs.
            close = program.find("]", end + 2)
            if close < 0 or delimiter in program[end:close]:
                return None
            end = close
        elif letter == delimiter:
            left -= 1
        end += 1
    match = _FLAGS.match(program, end)
    assert match is not None
    end = match.end()
    return end if end == len(program) or program[end] in ";}\n#" else None


_AWK = Options(
    values="Fv",
    opaque="fiElopdDeW",
    long={"field-separator": "value", "assign": "value"},
    in_order=True,
)
_DOES_MORE = re.compile(r"[>|@]|system|getline")
_VALUE = re.compile(r"[A-Za-z_]\w*=")


def awk(call: Invocation) -> None:
    """Runs a program over files; one that can write, pipe or run something is opaque."""
    parsed = sort(call.args, _AWK)
    program, *files = parsed.operands or [literal("")]
    unfamiliar = {name for name in parsed.values if len(name) > 1} - {"field-separator", "assign"}
    if parsed.opaque or unfamiliar or program.text is None or _DOES_MORE.search(program.text):
        call.opaque("a program of awk that may write or run something")
    elif "ARGV" in program.text:
        call.read(unknown("a file that the program names"))
    call.read(*(file for file in files if not _VALUE.match(file.prefix)))


SCRIPTS: Mapping[str, Handler] = {
    "sed": sed,
    "gsed": sed,
    **dict.fromkeys("awk gawk mawk nawk".split(), awk),
}
"""By name."""
