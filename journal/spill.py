"""Large values beside the journal: a fact too long for a page of SQLite is a file of its own.

Takes the JSON of a fact and gives the short JSON that stands for it in the journal; gives the long
one back. A file is named by what is in it (SHA-256), so that the same value is kept once, a file
that was changed is found out, and nothing is ever written over. It is on the disk before the fact
that needs it is.
"""

import hashlib
import os
import re
import tempfile
from pathlib import Path

import msgspec

from laneway.errors import JournalError

SPILL_BYTES = 256 * 1024
"""JSON of a fact that is longer than this becomes a file. SQLite's own figures: a BLOB of more than
100 KB is read faster from a file than from the database (https://www.sqlite.org/intern-v-extern-blob.html)."""

_NAME = re.compile("[0-9a-f]{64}")
_MARK = b'{"fact":"spilled",'


class Spilled(msgspec.Struct, frozen=True, kw_only=True, tag_field="fact", tag="spilled"):
    """What stands in the journal for a fact that is in a file."""

    was: str
    """The kind of the fact."""
    sha256: str
    """Of the file's bytes, in hexadecimal: its name."""
    bytes: int
    call: str | None = None


class _Glance(msgspec.Struct):
    """What people want to see of any fact."""

    fact: str
    call: str | None = None


def values_folder(journal: Path, /) -> Path:
    """Where a journal keeps its large values: `runs.db-values` beside `runs.db`."""
    return journal.with_name(f"{journal.name}-values")


def spilled(folder: Path, body: bytes, /) -> bytes:
    """Write a fact's JSON to its file, durably, and give what stands for it.

    Raises:
        JournalError: the file cannot be written; nothing refers to it.
    """
    glance = msgspec.json.decode(body, type=_Glance)
    name = hashlib.sha256(body).hexdigest()
    path = folder / name[:2] / name
    try:
        if not _is_kept(path, body):
            _write(path, body)
        # Each time: whoever made the names may have died, or failed, before they were durable.
        for named in (path.parent, folder, folder.parent):
            sync_folder(named)
    except OSError as error:
        raise JournalError(
            f"a large value could not be written to {path} ({error}); nothing further is begun: "
            "mend the cause, then resume the run"
        ) from error
    return msgspec.json.encode(
        Spilled(was=glance.fact, call=glance.call, sha256=name, bytes=len(body))
    )


def is_spilled(body: bytes, /) -> bool:
    """Whether this stands for a fact that is in a file."""
    return body.startswith(_MARK)


def unspilled(folder: Path, body: bytes, /) -> bytes:
    """Give the JSON of a fact, from its file if it is in one.

    Raises:
        ValueError: the file is missing or is not what it was; the text says so.
    """
    if not is_spilled(body):
        return body
    stands_for = msgspec.json.decode(body, type=Spilled)
    if not _NAME.fullmatch(stands_for.sha256):
        raise ValueError(f"{stands_for.sha256!r} is no name of a value")
    path = folder / stands_for.sha256[:2] / stands_for.sha256
    try:
        whole = path.read_bytes()
    except OSError as error:
        raise ValueError(f"its value is in {path}, which cannot be read ({error})") from error
    if hashlib.sha256(whole).hexdigest() != stands_for.sha256:
        raise ValueError(f"its value is in {path}, which is not what was written there")
    return whole


def sync_folder(folder: Path, /) -> None:
    """See the names in a folder on the disk.

    Raises:
        OSError: it failed.
    """
    if os.name != "posix":
        return  # Elsewhere a folder cannot be opened, and its entries are durable by themselves.
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _is_kept(path: Path, body: bytes) -> bool:
    """Whether a file is there and whole; it counts as new then, so that nobody sweeps it away."""
    try:
        os.utime(path)
        return path.read_bytes() == body
    except FileNotFoundError:
        return False


def _write(path: Path, body: bytes) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
