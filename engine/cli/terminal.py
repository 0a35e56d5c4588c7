"""Where the command line writes: colours on a terminal, plain lines anywhere else."""

import os
import shlex
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from laneway.engine.cli.wording import STYLES
from laneway.journal.export.escaping import visible


class Terminal:
    """Standard output, for people or for programs."""

    def __init__(self, *, json: bool = False) -> None:
        """Write for people, or one JSON document and nothing else."""
        self._json = json
        self._console = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)

    def say(self, line: str) -> None:
        """Write a line for people, at once; nothing where JSON is wanted."""
        if self._json:
            return
        # rich ends the process where nobody reads any more (`laneway run … | head`), but the work
        # must go on: so it only renders.
        with self._console.capture() as rendered:
            self._console.print(_coloured(_harmless(line)))
        _write(rendered.get())

    def say_all(self, lines: Iterable[str]) -> None:
        """Write lines."""
        for line in lines:
            self.say(line)

    def note(self, line: str) -> None:
        """Write a line in any case, beside the document where JSON is wanted."""
        print(_harmless(line), file=sys.stderr if self._json else sys.stdout, flush=True)

    def give(self, document: Any) -> None:
        """Write a JSON document, where JSON is wanted."""
        if self._json:
            _write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")


def program() -> str:
    """How this command line was called, to be typed again."""
    called = Path(sys.argv[0])
    if called.name != "laneway":
        return f"{shlex.quote(sys.executable)} -m laneway.engine.cli"
    found = shutil.which("laneway")
    if found and called.resolve() == Path(found).resolve():
        return "laneway"
    return shlex.quote(str(called))


def _harmless(text: str) -> str:
    """Models name calls and files: nothing of theirs steers the terminal."""
    return "\n".join(map(visible, text.split("\n")))


def _coloured(line: str) -> Text:
    """Colour the sign of a line."""
    text = Text(line)
    for at, letter in enumerate(line[:16]):
        if letter in STYLES:
            text.stylize(STYLES[letter], at, at + 1)
            break
    return text


def _write(text: str) -> None:
    """Write at once; what the output cannot show becomes a `?`, what nobody reads is dropped."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
