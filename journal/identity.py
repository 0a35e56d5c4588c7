"""Which file a name leads to: two names of one file must not look like two journals.

SQLite keeps the write-ahead log beside the name that it was given, with symbolic links resolved. A
file with two names of its own (hard links) could get two logs, each unknown to whoever uses the
other: https://www.sqlite.org/howtocorrupt.html, section 2.5. So such a file is refused.
"""

import os
from pathlib import Path

from laneway.errors import JournalError


def identity(path: str | Path, /) -> tuple[int, int]:
    """Device and inode of the file that a name leads to, through symbolic links.

    Raises:
        OSError: it leads nowhere.
    """
    found = os.stat(path)  # noqa: PTH116 - half the time of Path.stat, with each commit
    return found.st_dev, found.st_ino


def refuse_second_name(path: Path, /) -> None:
    """See that a file has no other name; one that is not there has none.

    Raises:
        JournalError: it has; nothing was touched.
    """
    try:
        names = path.stat().st_nlink
    except OSError:
        return
    if names > 1:
        raise JournalError(
            f"journal {path} has {names} names (hard links), and under each of them it would look "
            "like a journal of its own: two processes could drive one run, and damage the file. "
            f"It was left untouched: find the others (`find / -xdev -samefile {path}`) and remove "
            "them, or open a copy"
        )
