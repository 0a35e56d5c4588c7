"""Follows a command line from command to command, and gathers what each may do.

The folder is followed through `cd`, both where it succeeds and where it fails; what runs in a
subshell leaves it alone. Where it can't be followed, in loops and functions, the line is walked
once more with a folder that is not known. Reads the parts of a line; gives the analysis.
"""

from collections.abc import Sequence
from functools import lru_cache

from laneway.lanes.shell.analysis import Command, Redirection, ShellAnalysis
from laneway.lanes.shell.effects import Effects
from laneway.lanes.shell.folders import Folders, is_device, is_network, union
from laneway.lanes.shell.invocation import Invocation
from laneway.lanes.shell.lines import Compound, Redirect, Script, Shape, Step
from laneway.lanes.shell.reading import read
from laneway.lanes.shell.source import Unreadable
from laneway.lanes.shell.table import KNOWN, unknown_command
from laneway.lanes.shell.variables import MOVES, is_telling
from laneway.lanes.shell.wording import Found
from laneway.lanes.shell.words import Word

_MOST_COMMANDS = 2000
_DEEPEST = 8
"""Lines in lines in lines: `bash -c "bash -c …"`."""
_SYSTEM = ("/bin/", "/usr/bin/", "/usr/local/bin/", "/sbin/", "/usr/sbin/")
_WRITING = frozenset({">", ">>", ">|", "&>", "&>>", ">&"})


@lru_cache(maxsize=256)
def analyse(command: str, *, cwd: str = ".") -> ShellAnalysis:
    """Find out what a command line may run, read and write.

    Where bash and a POSIX shell differ, both are covered. Taken for granted: the programs on the
    path, their configuration and the environment are the user's own; a folder holds no link that
    leads out of it; and a path is not a link to what the line itself creates. What can't be seen
    through makes the line opaque; no line raises.

    Args:
        command: For `sh -c` or `bash -c`.
        cwd: The folder that it starts in, absolute or relative to the workspace.

    Raises:
        MissingShellError: The extra `shell` is not installed.
    """
    walker = _Walk()
    try:
        walker.run_script(command, frozenset({cwd}), "", here=True)
    except _LostError:
        walker = _Walk(lost=True)
        walker.run_script(command, None, "", here=True)
    return walker.analysis()


class _LostError(Exception):
    """The folder can't be followed."""


class _Walk:
    """What has been found on the way."""

    def __init__(self, *, lost: bool = False) -> None:
        self._lost = lost
        self._effects = Effects()
        self._commands: list[Command] = []
        self._complete = True
        self._through: tuple[str, ...] = ()
        self._found = Found()
        self._functions: set[str] = set()
        self._defined: set[str] = set()
        """Those of the functions that are surely there from now on."""
        self._nesting = 0
        self._moves = 0
        self._redirected = False

    def analysis(self) -> ShellAnalysis:
        """Say what was found."""
        effects, found = self._effects, self._found
        if found.calculates and (found.texts or self._functions):
            # bash reckons with names: it runs the substitutions in the text that a name stands for.
            self.hide("a calculation with a variable that may be a text")
        for name in filter(is_telling, found.assigned):
            self.hide(f"the variable {name} changes what commands do")
        return ShellAnalysis(
            commands=tuple(self._commands),
            reads=tuple(effects.reads),
            writes=tuple(effects.writes),
            reads_anything=effects.anything_read,
            opaque=bool(effects.why),
            complete=self._complete,
            redirected=self._redirected,
            why=effects.why,
        )

    # What commands ask for

    def run_script(
        self, text: str, folders: Folders, through: str, *, here: bool = False
    ) -> Folders:
        """Walk through a line; give where it leaves the shell."""
        if len(self._through) >= _DEEPEST:
            self.hide("a line in a line, too deep")
            return folders
        try:
            script = read(_bytes(text), self._found)
        except Unreadable as fault:
            self.hide(str(fault))
            return None if here else folders
        outer = self._through
        self._through = (*outer, through) if through else outer
        after = self._script(script, folders)
        self._through = outer
        return after if here else folders

    def run(self, words: Sequence[Word], folders: Folders, through: str) -> tuple[Folders, Folders]:
        """Walk through a command that another one starts."""
        if len(self._through) >= _DEEPEST:
            self.hide("a command in a command, too deep")
            return folders, folders
        outer = self._through
        self._through = (*outer, through)
        after = self._invoke(words, (), folders)
        self._through = outer
        return after

    def hide(self, why: str) -> None:
        """Not all commands can be listed."""
        self._complete = False
        self._effects.opaque(why)

    def assign(self, name: str) -> None:
        """A variable is set."""
        self._found.texts = True
        self._found.assigned.append(name)

    # Lists and pipes

    def _script(self, script: Script, folders: Folders) -> Folders:
        """Walk through lists joined by `;` and `&`."""
        done = begin = folders
        failed: Folders = frozenset()
        at = 0
        while at < len(script):
            end = at + 1
            while end < len(script) and script[end].after == "|":
                end += 1
            after = script[at].after
            match after:
                case "&&":
                    ok, not_ok = self._pipe(script[at:end], done)
                    done, failed = ok, union(failed, not_ok)
                case "||":
                    ok, not_ok = self._pipe(script[at:end], failed)
                    done, failed = union(done, ok), not_ok
                case _:
                    begin = begin if after == "&" else union(done, failed)
                    done, failed = self._pipe(script[at:end], begin)
            at = end
        return union(done, failed)

    def _pipe(self, steps: Sequence[Step], folders: Folders) -> tuple[Folders, Folders]:
        if not folders:
            folders = None  # after `exit`, which may not be one
        if len(steps) > 1:
            self._nesting += 1
            for step in steps:
                self._step(step, folders)
            self._nesting -= 1
            return folders, folders
        ok, failed = self._step(steps[0], folders)
        if steps[0].negated or any(
            # A POSIX shell takes `&>` for the end of a command in the background.
            one.operator.startswith("&")
            for one in steps[0].command.redirects
        ):
            there = union(union(ok, failed), folders)
            return there, there
        return ok, failed

    def _step(self, step: Step, folders: Folders) -> tuple[Folders, Folders]:
        command = step.command
        for script in command.inner:
            self._nesting += 1
            self._script(script, folders)
            self._nesting -= 1
        self._redirect(command.redirects, folders)
        if isinstance(command, Compound):
            sure = step.after == ";" and not (self._nesting or self._through)
            self._nesting += 1
            there = self._compound(command, folders)
            self._nesting -= 1
            if sure and command.shape is Shape.FUNCTION:
                self._defined.add(command.name)
            return there, there
        if not command.words:
            return folders, folders
        return self._invoke(command.words, command.redirects, folders)

    def _redirect(self, redirects: Sequence[Redirect], folders: Folders) -> None:
        for redirect in redirects:
            target, operator = redirect.target, redirect.operator
            if target is None:
                continue
            if operator.endswith("&") and (target.text or "-").rstrip("-").isdecimal():
                continue
            if operator in _WRITING:
                self._effects.write(target, folders)
                self._redirected |= not is_device(target.text or "")
            else:
                self._effects.read(target, folders)
                self._redirected |= is_network(target.text or "")

    def _compound(self, compound: Compound, folders: Folders) -> Folders:
        match compound.shape:
            case Shape.GROUP:
                for body in compound.bodies:
                    folders = self._script(body, folders)
                return folders
            case Shape.SUBSHELL:
                for body in compound.bodies:
                    self._script(body, folders)
                return folders
            case Shape.BRANCH:
                for body in compound.bodies:
                    folders = union(folders, self._script(body, folders))
                return folders
            case Shape.LOOP:
                moves = self._moves
                for body in compound.bodies:
                    self._script(body, folders)
                self._lose(self._moves > moves)
                return folders
            case Shape.FUNCTION:
                self._define(compound, folders)
                return folders

    def _define(self, function: Compound, folders: Folders) -> None:
        if function.name in KNOWN:
            self._effects.opaque(f"{function.name} is not what it was")
        self._functions.add(function.name)
        for body in function.bodies:
            self._script(body, folders)
        self._lose(self._moves > 0)

    def _lose(self, lost: bool) -> None:  # noqa: FBT001  # whether it is the case
        if lost and not self._lost:
            raise _LostError

    # Commands

    def _invoke(
        self, words: Sequence[Word], redirects: Sequence[Redirect], folders: Folders
    ) -> tuple[Folders, Folders]:
        """Note a command, and ask who knows it."""
        first = words[0].text
        name = "" if first is None else first.rpartition("/")[2]
        place = len(self._commands)
        if place >= _MOST_COMMANDS:
            self.hide("more commands than are looked at")
            return folders, folders
        self._commands.append(
            Command(
                name=name,
                argv=tuple([word.said for word in words]),
                text=" ".join([word.quoted for word in words]),
                outline=" ".join([word.outline for word in words]),
                redirections=tuple(
                    [Redirection(one.operator, one.target and one.target.said) for one in redirects]
                ),
                through=self._through,
            )
        )
        effects = self._effects
        before, effects.why = effects.why, ""
        call = Invocation(name, list(words[1:]), folders, effects, self)
        self._know(call, first)
        if effects.why:
            command = self._commands[place]
            self._commands[place] = Command(
                name=command.name,
                argv=command.argv,
                text=command.text,
                outline=command.outline,
                redirections=command.redirections,
                through=command.through,
                seen_through=False,
            )
        effects.why = before or effects.why
        if name in MOVES:
            self._moves += 1
            self._lose(bool(self._functions))
        return call.after or (folders, folders)

    def _know(self, call: Invocation, first: str | None) -> None:
        if first is None:
            call.hidden("the name of a command is not known")
            return
        if "/" in first and not first.startswith(_SYSTEM):
            call.opaque(f"what {first} does is not known")
            return
        if first in self._defined and not self._through:
            return  # its body has been walked through
        KNOWN.get(call.name, unknown_command)(call)


def _bytes(text: str) -> bytes:
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        raise Unreadable("half a surrogate pair") from None
    if b"\0" in encoded:
        raise Unreadable("a NUL")
    return encoded
