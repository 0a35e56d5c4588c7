"""What a case leaves behind: the lives, the log of its tools, the journal after each life.

Written by the lives, read by the judge, and kept as files where a fault was found.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from laneway import Outcome, State
from laneway.facts import Row
from laneway.ids import CallId


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a host has in its hands at the end of a life that was not cut short."""

    outcomes: dict[CallId, tuple[State, Outcome | None]]
    history: int
    """A checksum of all messages."""


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """A process, from its fork to its end."""

    pid: int
    ended: float
    """Monotonic seconds, right after its end."""
    died: bool
    meant: bool
    """Whether it was to die."""
    hung: bool
    status: int
    result: Result | None = None
    said: str = ""
    """The traceback of a life that failed."""

    @property
    def clean(self) -> bool:
        """Whether it ended by itself, or died as it was to."""
        return not self.hung and (self.meant if self.died else self.status == 0)


class Line(NamedTuple):
    """A line of the log."""

    word: str
    pid: int
    mono: float
    rest: Sequence[Any]


Kept = Mapping[str, Sequence[Row]]
"""What the journal held, by run."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """All that there is to be judged by."""

    lives: Sequence[Life]
    log: Sequence[Line]
    kept: Mapping[int, Kept]
    """What each life found, where it came so far as to look."""
    left: Mapping[int, Kept]
    """What each life left that was not to die."""


def gather(folder: Path, lives: Sequence[Life]) -> Evidence:
    """Read what a case has left."""
    lines = (folder / "log").read_bytes().splitlines()
    log = [Line(word, pid, mono, rest) for word, pid, mono, *rest in map(_decode, lines)]
    return Evidence(
        lives=lives,
        log=log,
        kept=_pictures(folder, "kept", len(lives)),
        left=_pictures(folder, "left", len(lives)),
    )


def _pictures(folder: Path, name: str, count: int) -> dict[int, Kept]:
    found: dict[int, Kept] = {}
    for number in range(count):
        path = folder / f"{name}.{number}.json"
        if path.exists():
            found[number] = _decode_kept(path.read_bytes())
    return found


_decode = msgspec.json.Decoder().decode
_decode_kept = msgspec.json.Decoder(dict[str, list[Row]]).decode
