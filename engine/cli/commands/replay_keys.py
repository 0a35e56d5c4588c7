"""Stepping through a run at a terminal: keys in, screens out.

Reads keys; gives the fact to show. What draws it is handed in.
"""

import os
import re
import termios
import tty
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager

HELP = "n space → next   p ← back   g go to a fact   q quit"

_KEYS = re.compile("\x1b[\\[O]([A-D])|(\x1b(?:[\\[O]?)$)|(.)", re.DOTALL)
"""An arrow (ECMA-48, in either mode of the keypad), the beginning of one, or any other key."""
_ARROWS = {"A": "p", "B": "n", "C": "n", "D": "p"}


class Stepper:
    """Where somebody stands in the facts that fit, and what is being typed."""

    def __init__(self, seqs: Sequence[int], seq: int) -> None:
        """Begin at a fact, or at the next one that fits.

        Args:
            seqs: the facts that fit, at least one, in order.
            seq: where to begin.
        """
        self._seqs = seqs
        self._at = 0
        self.typed: str | None = None
        """The number of a fact, as far as it has been typed; None where none is."""
        self._go(seq)

    @property
    def seq(self) -> int:
        """The fact to show."""
        return self._seqs[self._at]

    @property
    def prompt(self) -> str:
        """The line below all."""
        return HELP if self.typed is None else f"go to fact: {self.typed}"

    def press(self, key: str) -> bool:
        """Do what a key says; False if that is to quit."""
        if self.typed is not None:
            self._type(key)
            return True
        if key in "n \n\r":
            self._at = min(self._at + 1, len(self._seqs) - 1)
        elif key == "p":
            self._at = max(self._at - 1, 0)
        elif key == "g":
            self.typed = ""
        return key != "q"

    def _type(self, key: str) -> None:
        typed = self.typed or ""
        if key.isascii() and key.isdigit():
            self.typed = (typed + key)[:18]
        elif key in "\x7f\b":
            self.typed = typed[:-1]
        else:
            self.typed = None
            if key in "\n\r" and typed:
                self._go(int(typed))

    def _go(self, seq: int) -> None:
        self._at = min(bisect_left(self._seqs, seq), len(self._seqs) - 1)


def step_through(stepper: Stepper, keys: Iterator[str], draw: Callable[[], None]) -> None:
    """Draw, and again after each key, until there are no more or one says so."""
    draw()
    for key in keys:
        if not stepper.press(key):
            return
        draw()


@contextmanager
def keys_of(terminal: int) -> Generator[Iterator[str]]:
    """Take single keys from a terminal, unechoed; it is given back as it was.

    Args:
        terminal: its file descriptor.
    """
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    try:
        yield typed_keys(lambda: os.read(terminal, 64))
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def typed_keys(read: Callable[[], bytes]) -> Iterator[str]:
    """Make keys of bytes; an arrow may come in pieces."""
    rest = ""
    while got := read():
        text, rest = rest + got.decode(errors="replace"), ""
        for arrow, begun, key in _KEYS.findall(text):
            if begun:
                rest = begun
            else:
                yield _ARROWS[arrow] if arrow else key
