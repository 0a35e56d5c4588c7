"""What a process writes, taken in by the event loop in bounded memory, and given as text."""

import asyncio

HEAD_BYTES = 10_000
TAIL_BYTES = 40_000
"""What is kept of an output: its beginning and, as faults stand last, more of its end."""


class Output(asyncio.Protocol):
    """Takes in what a process writes, in bounded memory."""

    def __init__(self) -> None:
        """Start empty, in the running event loop."""
        self.size = 0
        """Bytes written in all."""
        self.ended = asyncio.get_running_loop().create_future()
        self._head = bytearray()
        self._tail = bytearray()

    def data_received(self, data: bytes) -> None:
        """Keep the beginning and the end."""
        self.size += len(data)
        room = HEAD_BYTES - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * TAIL_BYTES:
            del self._tail[:-TAIL_BYTES]

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Nobody holds the other end any more."""
        self.ended.set_result(None)

    @property
    def is_cut(self) -> bool:
        """Whether something of the middle is missing."""
        return self.size > HEAD_BYTES + TAIL_BYTES

    def text(self) -> str:
        """What was written; what is no UTF-8 is replaced."""
        tail = self._tail[-TAIL_BYTES:]
        if not self.is_cut:
            return bytes(self._head + tail).decode(errors="replace")
        left_out = self.size - HEAD_BYTES - TAIL_BYTES
        head, end = self._head.decode(errors="replace"), tail.decode(errors="replace")
        return f"{head}\n[… {left_out:,} bytes left out …]\n{end}"
