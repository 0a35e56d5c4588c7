"""What goes over a connection, seen between the SDK and the transport.

The SDK forgets a request that is abandoned, and its late answer with it; a lane may be freed only
when the server is done with the call. So each call notes here under which id it was sent, and hears
of its answer whoever else still waits for it. Whatever comes from the server shows that it lives.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from typing import Any, Self

from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

Answer = JSONRPCResponse | JSONRPCError
Connect = Callable[[], AbstractAsyncContextManager[tuple[Any, Any]]]
"""Opens a transport: a stream to read messages from, and one to write them to."""

asking: "ContextVar[Ticket | None]" = ContextVar("asking", default=None)
"""The call that sends a request; set in the task that calls the SDK."""


class Ticket:
    """One call on its way."""

    def __init__(self) -> None:
        """Not sent yet."""
        self.ids: set[Any] = set()
        """Of its requests that have no answer yet; a call with input asked back has several."""
        self.sent = False
        """Whether the server may have seen it."""
        self.answer: Answer | None = None
        """The last that came from the server itself."""
        self.refused = 0
        """The HTTP status with which it was turned away, unread; 0 if it was not."""
        self.settled = asyncio.Event()
        """Nothing of it is open at the server any more."""
        self.heard = 0.0
        """When the server last said something about it."""


class Tap:
    """Of one connection."""

    def __init__(self, open_transport: Connect) -> None:
        """See through it what goes over a transport."""
        self._open = open_transport
        self._loop = asyncio.get_running_loop()
        self._tickets: dict[Any, Ticket] = {}
        self.messages = 0
        """How many have come from the server."""
        self.ended = asyncio.Event()
        """The transport gives nothing any more."""

    @asynccontextmanager
    async def transport(self) -> AsyncGenerator[tuple["_Reader", "_Writer"]]:
        """Open the transport, as the SDK wants it."""
        async with self._open() as (reading, writing):
            try:
                yield _Reader(reading, self), _Writer(writing, self)
            finally:
                self.end()

    def end(self) -> None:
        """Nothing comes any more: nothing is open at the server."""
        self.ended.set()
        for ticket in self._tickets.values():
            ticket.settled.set()

    def forget(self, ticket: Ticket) -> None:
        """Nobody waits for its answers any more."""
        for one in ticket.ids:
            self._tickets.pop(one, None)

    def turned_away(self, status: int, request: Any) -> None:
        """Note that a request was refused below, and so has not been carried out."""
        ticket = self._tickets.get(request)
        if ticket is not None:
            ticket.refused = status

    def sent(self, message: Any) -> None:
        """Note which call a request is of."""
        ticket = asking.get()
        if ticket is None or not isinstance(message, JSONRPCRequest):
            return
        if message.method != "tools/call":
            return
        ticket.sent = True
        ticket.settled.clear()
        ticket.ids.add(message.id)
        ticket.heard = self._loop.time()
        self._tickets[message.id] = ticket

    def received(self, message: Any) -> None:
        """Note that the server lives, and which call it speaks of."""
        self.messages += 1
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            ticket = self._tickets.pop(message.id, None)
            if ticket is not None:
                ticket.ids.discard(message.id)
                ticket.answer = message
                ticket.heard = self._loop.time()
                if not ticket.ids:
                    ticket.settled.set()
        elif isinstance(message, JSONRPCNotification) and message.method == _PROGRESS:
            ticket = self._tickets.get((message.params or {}).get("progressToken"))
            if ticket is not None:
                ticket.heard = self._loop.time()


_PROGRESS = "notifications/progress"


class _Reader:
    """A stream that the SDK reads from."""

    def __init__(self, inner: Any, tap: Tap) -> None:
        self._inner, self._tap = inner, tap

    @property
    def last_context(self) -> Any:
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        return self._seen(await self._inner.receive())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return self._seen(await self._inner.__anext__())
        except StopAsyncIteration:
            self._tap.end()
            raise

    def _seen(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        if isinstance(item, SessionMessage):
            self._tap.received(item.message)
        return item

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> bool | None:
        left: bool | None = await self._inner.__aexit__(*error)
        return left


class _Writer:
    """A stream that the SDK writes to."""

    def __init__(self, inner: Any, tap: Tap) -> None:
        self._inner, self._tap = inner, tap

    async def send(self, item: SessionMessage) -> None:
        self._tap.sent(item.message)
        await self._inner.send(item)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> bool | None:
        left: bool | None = await self._inner.__aexit__(*error)
        return left
