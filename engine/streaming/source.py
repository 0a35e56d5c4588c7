"""Whatever a host can hand over as a stream, as decoded events.

Reads async iterables and iterables of bytes, texts, dicts and SDK objects; feeds the readers. What
blocks is waited for in a thread, so that calls run meanwhile.
"""

import asyncio
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, TypeGuard

from laneway.engine.kinds import is_object
from laneway.engine.providers.payload import described, opened
from laneway.engine.providers.streams.sse import ByteReader
from laneway.errors import PayloadError

Pieces: TypeAlias = AsyncIterator[object]


class Source:
    """Gives the events of one stream, as many at a time as came in one piece."""

    def __init__(self, events: object) -> None:
        """Take hold of the stream; nothing is read yet.

        Raises:
            PayloadError: it is none; says what was met.
        """
        self._pieces = _pieces(events)
        self._bytes: ByteReader | None = None
        self._over = False

    async def next(self) -> list[tuple[object, dict[str, Any]]] | None:
        """Wait for the next piece.

        Returns:
            Its events, each as it came and as a dict; None when there are no more.

        Raises:
            PayloadError: it cannot be read.
        """
        if self._over or (self._bytes is not None and self._bytes.done):
            return None
        async for piece in self._pieces:
            return self._decoded(piece)
        self._over = True
        last = [] if self._bytes is None else self._bytes.end()
        return [(event, event) for event in last] or None

    async def close(self) -> None:
        """Let go of the stream, where it can be told to stop."""
        self._over = True
        close: Callable[[], Any] | None = getattr(self._pieces, "aclose", None)
        if close is not None:
            await close()

    def _decoded(self, piece: object) -> list[tuple[object, dict[str, Any]]]:
        if isinstance(piece, str):
            piece = piece.encode("utf-8", "surrogatepass")
        if isinstance(piece, bytes | bytearray):
            self._bytes = self._bytes or ByteReader()
            return [(event, event) for event in self._bytes.feed(bytes(piece))]
        event = _event(piece)
        if not is_object(event):
            raise PayloadError(
                "stream",
                f"an event is {described(event)}",
                "Give bytes, decoded events, or the objects of the SDK",
            )
        return [(piece, event)]


def _event(piece: object) -> object:
    """Open an SDK's event; other pydantic models by the names that the wire has."""
    dump: Callable[..., object] | None = getattr(piece, "model_dump", None)
    if callable(dump) and not callable(getattr(piece, "to_dict", None)):
        return dump(mode="json", by_alias=True, exclude_none=True)
    return opened(piece)


def _pieces(events: object) -> Pieces:
    if _is_async(events):
        return aiter(events)
    if inspect.isawaitable(events):
        if inspect.iscoroutine(events):
            events.close()
        raise PayloadError(
            "stream", "it has not been awaited", "Give `await client…create(…, stream=True)`"
        )
    if isinstance(events, bytes | bytearray | str):
        return _of_list([events])
    if _is_array(events):
        return _of_list(events)
    if not is_object(events) and _is_iterable(events):
        return _in_thread(iter(events))
    raise PayloadError(
        "stream",
        f"it is a {type(events).__name__}",
        "Give an async iterable, or an iterable, of bytes or events",
    )


def _is_async(value: object) -> TypeGuard[AsyncIterable[object]]:
    return isinstance(value, AsyncIterable)


def _is_array(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, list | tuple)


def _is_iterable(value: object) -> TypeGuard[Iterable[object]]:
    return isinstance(value, Iterable)


async def _of_list(events: Sequence[object]) -> Pieces:
    for event in events:
        yield event
        await asyncio.sleep(0)


_END = object()


async def _in_thread(events: Iterator[object]) -> Pieces:
    while True:
        event = await asyncio.to_thread(next, events, _END)
        if event is _END:
            return
        yield event
