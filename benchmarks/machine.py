"""Where a benchmark ran: a figure without its machine and versions says nothing."""

import os
import platform
import sqlite3
import tempfile
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import msgspec

_IN_MEMORY = {"tmpfs", "ramfs"}
_LIBRARIES = ("aiosqlite", "anyio", "jsonschema-rs", "msgspec", "networkx", "pydantic")
_MOUNTS = Path("/proc/self/mounts")
_CPUS = Path("/proc/cpuinfo")


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The header of a result."""

    laneway: str
    python: str
    sqlite: str
    libraries: dict[str, str]
    system: str
    processor: str
    cores: int
    load: float
    """The load average of the last minute when the measuring began."""
    disk: str
    """The file system under the durable files."""


def describe(directory: Path) -> Machine:
    """Describe this machine, with `directory` as the place of the durable files."""
    return Machine(
        laneway=_version("laneway"),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        sqlite=sqlite3.sqlite_version,
        libraries={name: _version(name) for name in _LIBRARIES},
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0,
        load=round(os.getloadavg()[0], 2),
        disk=file_system(directory),
    )


def disk_directory(candidates: Iterable[Path] | None = None) -> Path:
    """Find a directory for temporary files that is not kept in memory, where fsync costs nothing.

    Args:
        candidates: directories that may be used, the preferred first; by default the system's
            directories for temporary files and the working directory.

    Returns:
        The first that can be written and lies on a disk, else the first that can be written.

    Raises:
        FileNotFoundError: none can be written.
    """
    places = candidates or (Path(tempfile.gettempdir()), Path("/var/tmp"), Path.cwd())  # noqa: S108 - a name of its own is made in it
    usable = [place for place in places if os.access(place, os.W_OK)]
    if not usable:
        raise FileNotFoundError("no directory for temporary files can be written; set TMPDIR")
    return next((place for place in usable if file_system(place) not in _IN_MEMORY), usable[0])


def file_system(directory: Path) -> str:
    """Name the type of the file system a directory lies on, `unknown` where nobody tells."""
    try:
        mounts = [line.split() for line in _MOUNTS.read_text().splitlines()]
    except OSError:
        return "unknown"
    real = directory.resolve()
    found = [(Path(point), kind) for _, point, kind, *_ in mounts if real.is_relative_to(point)]
    return max(found, key=lambda item: len(item[0].parts), default=(real, "unknown"))[1]


def _processor() -> str:
    try:
        lines = _CPUS.read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "unknown")


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"
