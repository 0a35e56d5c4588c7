"""What the engine and the process of a call say: a kind, a length, and so many bytes."""

import socket
import struct
from enum import IntEnum

import msgspec

HEAD = struct.Struct("!BQ")


class Kind(IntEnum):
    """Of a message."""

    READY = 1
    """From the process: it leads a group of its own, and has begun nothing."""
    GO = 2
    """To the process: the body may be entered, and with what."""
    PROGRESS = 3
    VALUE = 4
    """What the body returned, as JSON."""
    FAILED = 5
    """What it came to is a failure in words: a `Told`."""
    RAISED = 6
    """An exception: a `Raised`, with the exception itself if it can be pickled."""


class Said(msgspec.Struct):
    """A failure that the process words itself, or the text of an exception."""

    text: str
    kind: str = ""
    """The class of the exception."""
    hint: str = ""
    happened: str = ""
    code: str = ""
    pickled: bytes = b""


def send(line: socket.socket, kind: Kind, data: bytes = b"") -> None:
    """Say something; blocks until it is taken."""
    line.sendall(HEAD.pack(kind, len(data)))
    line.sendall(data)


def receive(line: socket.socket) -> tuple[Kind, bytes]:
    """Hear something; blocks.

    Raises:
        EOFError: nobody is at the other end any more.
    """
    kind, length = HEAD.unpack(_exactly(line, HEAD.size))
    return Kind(kind), _exactly(line, length)


def _exactly(line: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = line.recv(min(count - len(data), 1 << 20))
        if not part:
            raise EOFError
        data += part
    return bytes(data)
