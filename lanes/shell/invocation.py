"""One command with its arguments, as those who know it see it."""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from laneway.lanes.shell.effects import Effects
from laneway.lanes.shell.folders import Folders
from laneway.lanes.shell.words import Word, literal

HERE = literal(".")


class Shell(Protocol):
    """What runs the commands inside a command: the walk."""

    def run(
        self, words: Sequence[Word], folders: Folders, through: str, /
    ) -> tuple[Folders, Folders]:
        """Run a command that another one starts; say where it leaves a shell that it runs in."""
        ...

    def run_script(
        self, text: str, folders: Folders, through: str, /, *, here: bool = False
    ) -> Folders:
        """Run a line that another command has read; `here`, in this very shell."""
        ...

    def hide(self, why: str, /) -> None:
        """Something runs that can't be listed."""
        ...

    def assign(self, name: str, /) -> None:
        """Set a variable to something."""
        ...


class Invocation(msgspec.Struct, eq=False):
    """One command, and the means to say what it does."""

    name: str
    args: list[Word]
    folders: Folders
    effects: Effects
    shell: Shell
    after: tuple[Folders, Folders] | None = None
    """Where the shell is when it has succeeded, and when it has failed; None for where it was."""

    def read(self, *words: Word) -> None:
        """It reads files, or folders with all below them."""
        for word in words:
            self.effects.read(word, self.folders)

    def write(self, *words: Word) -> None:
        """It writes files, or folders with all below them."""
        for word in words:
            self.effects.write(word, self.folders)

    def opaque(self, why: str = "") -> None:
        """It may write anything."""
        self.effects.opaque(why or f"what {self.name or 'an unknown command'} does is not known")

    def hidden(self, why: str) -> None:
        """It runs commands that can't be listed, and so may write anything."""
        self.effects.opaque(why)
        self.shell.hide(why)


Handler = Callable[[Invocation], None]
