"""What a power failure may leave of the files: a model of a disk that honours fsync, and no more.

Takes operations one by one; gives images: the files as they could be found afterwards. Every change
that no sync of its own file, or folder, covers is there or not, independently of all others, and a
write may be torn at any sector of 512 bytes. What is assumed is what SQLite assumes
(https://www.sqlite.org/psow.html): a write that is cut short harms no byte beside its own.

The bytes that a failed sync was to cover are never sure afterwards: the kernel may have marked the
pages clean and dropped them (A. Rebello et al., "Can Applications Recover from fsync Failures?",
USENIX ATC 2020). Names are sure with the next sync of their folder that succeeds.
"""

import random
from collections.abc import Callable, Iterator
from typing import TypeAlias

import msgspec

from tests.power.operations import Kind, Operation

SECTOR = 512

Image: TypeAlias = dict[str, bytes | None]
"""What is found afterwards, by path below the root; None is a folder."""


class Change(msgspec.Struct):
    """A change of a file's bytes, or of a folder's names, that may not have reached the disk."""

    number: int
    """How many operations were recorded before it."""
    operation: Operation
    file: "File | None" = None
    """What the name leads to, where names change."""
    sure: bool = False
    """It is on the disk, behind one that may not be."""
    dropped: bool = False
    """A sync of it failed: no later one makes it sure."""


class File(msgspec.Struct):
    """A file, whatever its names: the bytes that are sure, and the changes that came after."""

    content: bytearray = msgspec.field(default_factory=bytearray)
    changes: list[Change] = []


class Chance(msgspec.Struct, frozen=True, kw_only=True):
    """Which of the changes that are not sure have reached the disk, by coin."""

    dice: random.Random
    names: float
    """How likely a change of names is there."""
    writes: float
    """How likely a write or truncation is there."""
    torn: float = 0.0
    """How likely a write that is there is torn."""

    def name(self) -> bool:
        """Whether this change of names is there."""
        return self.dice.random() < self.names

    def write(self) -> bool:
        """Whether this write or truncation is there, whole or torn."""
        return self.dice.random() < self.writes

    def parts(self, operation: Operation) -> list[tuple[int, bytes]]:
        """Give the parts of a write that are there, each with its place."""
        parts = list(_sectors(operation))
        if len(parts) == 1 or self.dice.random() >= self.torn:
            return [(operation.at, operation.data)]
        cut = self.dice.randrange(1, len(parts))
        ways = (parts[:cut], parts[cut:], [one for one in parts if self.dice.random() < 0.5])
        return self.dice.choice(ways)


class Disk:
    """The files below the root: what is sure of them, and what is not."""

    def __init__(self) -> None:
        """Begin with an empty folder that is on the disk itself."""
        self._count = 0
        self._files: dict[int, File] = {}
        """By inode. The number of a file that was deleted is used again."""
        self._names: dict[str, File | None] = {}
        """The names that are sure; None is a folder."""
        self._now: dict[str, File | None] = {}
        """The names as the program sees them."""
        self._renamed: dict[str, list[Change]] = {}
        """The changes of names that are not sure, by folder."""

    @property
    def unsure(self) -> int:
        """How many changes a power failure may undo."""
        lists = [file.changes for file in (*self._now.values(), *self._names.values()) if file]
        every = {id(one): one for changes in (*lists, *self._renamed.values()) for one in changes}
        return sum(not change.sure for change in every.values())

    def do(self, operation: Operation) -> None:
        """Let an operation happen."""
        change = Change(self._count, operation)
        self._count += 1
        match operation.kind:
            case Kind.WROTE | Kind.CUT:
                self._files[operation.inode].changes.append(change)
            case Kind.CREATED:
                change.file = self._files[operation.inode] = File()
                self._change_names(change)
            case Kind.DELETED | Kind.FOLDER_MADE:
                self._change_names(change)
            case Kind.MOVED | Kind.LINKED:
                change.file = self._files[operation.inode]
                self._change_names(change)
            case Kind.SYNCED:
                file = self._files[operation.inode]
                _settle(file.changes, operation, lambda one: _write(file.content, one.operation))
            case Kind.FOLDER_SYNCED:
                changes = self._renamed.get(operation.name, [])
                _settle(changes, operation, lambda one: _rename(self._names, one))
            case Kind.FAILED | Kind.NOTED:
                pass

    def image(self, chance: Chance) -> Image:
        """Let the power fail now, and see what is there."""
        names = dict(self._names)
        pending = (change for changes in self._renamed.values() for change in changes)
        for change in sorted(pending, key=lambda one: one.number):
            if change.sure or chance.name():
                _rename(names, change)
        content: dict[int, bytes] = {}
        image: Image = {}
        for path, file in sorted(names.items()):
            folder = _folder(path)
            if folder and folder not in image:
                continue
            if file is not None and id(file) not in content:
                content[id(file)] = _found(file, chance)
            image[path] = None if file is None else content[id(file)]
        return image

    def _change_names(self, change: Change) -> None:
        _rename(self._now, change)
        self._renamed.setdefault(_folder(change.operation.name), []).append(change)


def _found(file: File, chance: Chance) -> bytes:
    content = bytearray(file.content)
    for change in file.changes:
        if change.sure:
            _write(content, change.operation)
        elif chance.write():
            if change.operation.kind is Kind.CUT:
                _write(content, change.operation)
                continue
            for at, data in chance.parts(change.operation):
                _put(content, at, data)
    return bytes(content)


def _settle(changes: list[Change], sync: Operation, make: Callable[[Change], None]) -> None:
    """Let a sync make sure what came before it began, or doubtful for ever if it failed."""
    for change in changes:
        if change.number < sync.at and not change.dropped:
            change.sure = sync.error == 0
            change.dropped = sync.error != 0 and sync.kind is Kind.SYNCED
    while changes and changes[0].sure:
        make(changes.pop(0))


def _write(content: bytearray, operation: Operation) -> None:
    if operation.kind is Kind.WROTE:
        _put(content, operation.at, operation.data)
    elif operation.at < len(content):
        del content[operation.at :]
    else:
        content.extend(bytes(operation.at - len(content)))


def _put(content: bytearray, at: int, data: bytes) -> None:
    if at > len(content):
        content.extend(bytes(at - len(content)))
    content[at : at + len(data)] = data


def _rename(names: dict[str, File | None], change: Change) -> None:
    operation = change.operation
    match operation.kind:
        case Kind.CREATED | Kind.FOLDER_MADE:
            names[operation.name] = change.file
        case Kind.DELETED:
            names.pop(operation.name, None)
        case _:
            target = operation.data.decode()
            if _folder(target) != _folder(operation.name):
                raise ValueError(f"{operation.name} moves to another folder; the model has one")
            if operation.kind is Kind.MOVED:
                names.pop(operation.name, None)
            names[target] = change.file


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _sectors(operation: Operation) -> Iterator[tuple[int, bytes]]:
    """Cut a write where the disk's sectors end."""
    start, end = operation.at, operation.at + len(operation.data)
    while start < end:
        stop = min(end, (start // SECTOR + 1) * SECTOR)
        yield start, operation.data[start - operation.at : stop - operation.at]
        start = stop
