"""What a command line may run, read and write.

One analysis serves two masters: claims, for the order of calls, and policies, which judge every
simple command. Reads a line and the folder that it starts in; nothing else, no file is looked at.
"""

import msgspec

from laneway.effects import Effect


class Redirection(msgspec.Struct, frozen=True):
    """Where a command reads from or writes to, as it is written."""

    operator: str
    target: str | None
    """None where it is not known, or the line itself holds what is read."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One simple command, wherever in the line it stands."""

    name: str
    """Without the folder it lies in; empty where it is not known."""
    argv: tuple[str | None, ...]
    """The name as written, and the arguments: texts without quotes, globs as patterns, None for
    what is not known before it runs."""
    text: str
    """For patterns and people: known words quoted only where they must be, unknown ones as
    written."""
    outline: str = ""
    """The text with a `HOLE` for whatever is not known before the line runs."""
    redirections: tuple[Redirection, ...] = ()
    through: tuple[str, ...] = ()
    """What starts it, from the outside: `("sudo", "bash")`; empty for the line itself."""
    seen_through: bool = True
    """Whether all that it reads, writes and runs is known. What it runs itself follows in the
    list."""


class ShellAnalysis(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a command line before it runs."""

    commands: tuple[Command, ...] = ()
    """Every simple command that may run, in the order of writing; one that runs another (`env`,
    `xargs`, `bash -c`) is followed by it."""
    reads: tuple[str, ...] = ()
    """Resources, relative to the workspace where the folder given was."""
    writes: tuple[str, ...] = ()
    reads_anything: bool = False
    """Something is read of which the place is not known."""
    opaque: bool = False
    """Something can't be seen through: it may write anything."""
    complete: bool = True
    """Whether the commands are all there: false after a syntax error, `eval "$x"`, a script."""
    redirected: bool = False
    """A redirection writes a file or connects to another machine: no command's words tell of it."""
    why: str = ""
    """What can't be seen through, the first of it."""

    @property
    def changes_nothing(self) -> bool:
        """Whether the line provably only reads."""
        return not self.opaque and not self.writes

    @property
    def effect(self) -> Effect:
        """How far the line reaches: what can't be seen through may leave the system."""
        if self.opaque:
            return Effect.EXTERNAL
        return Effect.WRITE if self.writes else Effect.READ

    def claims(self, workspace: str = ".") -> list[str]:
        """Say what the line takes, in the words of a tool's claims.

        Args:
            workspace: The folder that is written by what can't be seen through, and read by what
                reads from a place that is not known.
        """
        everything = f"file:{workspace}"
        writes = dict.fromkeys(self.writes)
        reads = dict.fromkeys(self.reads)
        if self.opaque:
            writes[everything] = None
        elif self.reads_anything:
            reads[everything] = None
        return [
            *(f"read {resource}" for resource in reads if resource not in writes),
            *(f"write {resource}" for resource in writes),
        ]
