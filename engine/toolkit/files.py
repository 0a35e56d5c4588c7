"""Reads and changes files of a workspace.

A change is made beside the file and put in its place in one step (rename(2)), synced before the
call counts as done: a process that dies leaves the old text or the new one, never half of it.
"""

import os
import stat
from pathlib import Path

from laneway.engine.context import ToolContext
from laneway.engine.failing import ToolFailed, refusing
from laneway.engine.toolkit.edits import edited, line_of
from laneway.engine.toolkit.workspace import Workspace
from laneway.outcomes import Happened

MOST_LINES = 2_000
"""Of one answer of `read_file`."""
MOST_CHARACTERS = 100_000
"""Of one answer of `read_file`: some 25,000 tokens."""
MOST_BYTES = 10_000_000
"""Of a file that is read or edited: it is held in memory."""


class Files:
    """The file tools of one workspace."""

    __slots__ = ("_workspace",)

    def __init__(self, workspace: Workspace) -> None:
        """Serve this workspace."""
        self._workspace = workspace

    def read_file(self, path: str, start: int = 1, lines: int = MOST_LINES) -> str:
        """Read a text file.

        Args:
            path: relative to the workspace.
            start: the first line wanted, from 1.
            lines: how many lines at most.
        """
        if start < 1 or lines < 1:
            raise ValueError("start and lines count from 1")
        text = _text(self._workspace.file(path), path)
        return excerpt(text, path, start, min(lines, MOST_LINES))

    def edit_file(self, path: str, old: str, new: str, context: ToolContext) -> str:
        """Replace a passage of a text file. It must occur exactly once.

        Idempotent: the file changes in one step, and another attempt after a crash finds the edit
        made and leaves the file alone (see `edits`).

        Args:
            path: relative to the workspace.
            old: the passage, exactly as it stands in the file.
            new: what takes its place; empty to delete the passage.
            context: tells a first attempt from a repeat.
        """
        with refusing(ValueError, OSError):
            real = self._workspace.file(path)
            text = _text(real, path)
        try:
            result = edited(text, old, new, repeat=context.attempt > 1)
        except ValueError as error:
            raise ToolFailed(f"{path}: {error}", happened=Happened.NOTHING) from None
        if result == text:
            return f"{path} has this edit already; an earlier attempt made it"
        replace_file(real, result, context.idempotency_key)
        return f"edited {path}, line {line_of(text, text.find(old))}"

    def write_file(self, path: str, content: str, context: ToolContext) -> str:
        """Write a whole text file, in place of what was there; folders are made as needed.

        Idempotent: the same content again is the same file.

        Args:
            path: relative to the workspace.
            content: all of the new text.
            context: names the attempt's own file.
        """
        with refusing(ValueError, OSError):
            real = self._workspace.find(path)
        if real.exists() and not real.is_file():
            raise ToolFailed(
                f"{path!r} is no regular file; nothing was written", happened=Happened.NOTHING
            )
        there = real.exists()
        real.parent.mkdir(parents=True, exist_ok=True)
        replace_file(real, content, context.idempotency_key)
        return f"{'replaced' if there else 'created'} {path}: {len(content):,} characters"


def excerpt(text: str, path: str, start: int, lines: int) -> str:
    """Cut whole lines out of a text, and say so where it is not all of it.

    Raises:
        ValueError: it has fewer lines than that.
    """
    rows = text.split("\n")
    total = len(rows) - (rows[-1] == "")
    if start > max(total, 1):
        raise ValueError(f"{path} has {total} lines, so there is no line {start}")
    end, room = start - 1, MOST_CHARACTERS
    while end < min(start - 1 + lines, total) and (room := room - len(rows[end]) - 1) >= 0:
        end += 1
    if end < start <= total:
        long = rows[start - 1]
        told = f"the first {MOST_CHARACTERS:,} of its {len(long):,} characters"
        return f"{long[:MOST_CHARACTERS]}\n[line {start} of {total}, {told}]"
    if start == 1 and end == total:
        return text
    taken = "\n".join(rows[start - 1 : end])
    more = f"; go on with start={end + 1}" if end < total else ""
    return f"{taken}\n[lines {start}-{end} of {total}{more}]"


def replace_file(real: Path, text: str, key: str) -> None:
    """Put a text in a file's place, all at once and durably; it keeps its permissions.

    A hard link to the old file keeps the old text.

    Args:
        real: the file; its folder exists.
        text: all of it.
        key: of the call. Names the file beside it that is written first, so that what a crash
            leaves of one attempt is cleared away by the next, and nobody else writes there.
    """
    beside = real.with_name(f".{real.name}.{key[:16]}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if real.exists():
                os.fchmod(file.fileno(), stat.S_IMODE(real.stat().st_mode))
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        beside.replace(real)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    folder = os.open(real.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _text(real: Path, path: str) -> str:
    size = real.stat().st_size
    if size > MOST_BYTES:
        raise ValueError(f"{path} has {size:,} bytes; files are read up to {MOST_BYTES:,}")
    try:
        return real.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path!r} is no UTF-8 text") from error
