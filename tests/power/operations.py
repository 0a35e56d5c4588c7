"""What the shim recorded: every change and sync of a journal's files, in order, and the notes.

Reads the log that shim.c writes; feeds the model of the disk, and the oracle with what the program
said while it ran.
"""

import os
import struct
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

_HEAD = struct.Struct("@IIQqiIQ")
MAGIC = 0x4C504F57
"""What each record of the log begins with."""


class Kind(Enum):
    """What was done, by the letter that the shim writes."""

    CREATED = "C"
    WROTE = "W"
    CUT = "T"
    SYNCED = "S"
    FOLDER_SYNCED = "D"
    DELETED = "U"
    FOLDER_MADE = "M"
    MOVED = "R"
    LINKED = "L"
    FAILED = "!"
    NOTED = "N"


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One change, sync, fault or note."""

    kind: Kind
    inode: int
    at: int
    """Where the bytes went; the length that was cut to; how many operations came before a sync."""
    error: int
    """Why a sync failed, else 0."""
    name: str
    """The path below the root."""
    data: bytes
    """What was written; where a file was moved to; which kind of fault struck."""

    def __str__(self) -> str:
        """Show it as a line of a report."""
        why = f" failed: {os.strerror(self.error)}" if self.error else ""
        size = f" {len(self.data)} bytes at {self.at}" if self.kind is Kind.WROTE else ""
        return f"{self.kind.name.lower()} {self.name or 'the folder'}{size}{why}"


Note: TypeAlias = dict[str, Any]
"""What the program wrote to the file `notes`: a JSON object on a line."""


def recorded(log: Path) -> list[Operation]:
    """Read a log of the shim, up to where its process died."""
    return list(_parsed(log.read_bytes()))


def note_of(operation: Operation) -> Note:
    """Read what a NOTED operation says."""
    note: Note = msgspec.json.decode(operation.data)
    return note


def _parsed(log: bytes) -> Iterator[Operation]:
    place = 0
    while place < len(log):
        magic, kind, inode, at, error, name, data = _HEAD.unpack_from(log, place)
        if magic != MAGIC:
            raise ValueError(f"the shim's log cannot be read at byte {place}")
        place += _HEAD.size
        path, bytes_ = log[place : place + name], log[place + name : place + name + data]
        place += name + data
        if chr(kind) == "?":
            raise ValueError(f"{path.decode()} was changed in a way that the shim does not follow")
        yield Operation(
            kind=Kind(chr(kind)),
            inode=inode,
            at=at,
            error=error,
            name=path.decode(),
            data=bytes_,
        )
