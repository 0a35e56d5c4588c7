"""A stream in the hands of a host: iterated, awaited, left.

Reads events as they come, feeds the reader of their format, and lets calls start at its front; at
the end it submits the whole message as any other. Nothing is read ahead of the host: whoever does
not ask for the next event holds up the provider, too.
"""

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from laneway.engine.failures import Told
from laneway.engine.providers import parse
from laneway.engine.providers.reply import Reply
from laneway.engine.providers.streams import StreamReader, reader_for, reader_named
from laneway.engine.streaming.early import BROKEN, LEFT, RECORDED, SUPERSEDED, Early
from laneway.engine.streaming.source import Source
from laneway.errors import BrokenStreamError, PayloadError, UsageError

if TYPE_CHECKING:
    from laneway.engine.turn import Turn


class Door(msgspec.Struct, frozen=True):
    """What a stream may do with its run."""

    open: Callable[[], None]
    """See that the run takes an answer now, and keep others away."""
    close: Callable[[], None]
    early: Callable[[], Early]
    """Begin with nothing started of the next turn."""
    recorded: Callable[[Reply], bool]
    """Whether the answer has been submitted before."""
    submit: "Callable[[Reply, Early], Awaitable[Turn]]"
    uncut: Callable[[Coroutine[Any, Any, None]], Awaitable[None]]
    """Wait for what must not be cut short."""


class Stream:
    """An answer that the model is still writing; made by `run.stream(events)`.

    Await it for the turn; or enter it with `async with`, iterate over its events or its `text()`,
    and await `turn()`.
    """

    def __init__(
        self, source: Source, door: Door, *, provider: str | None, starts_early: bool
    ) -> None:
        """Prepare; nothing is read yet."""
        self._source = source
        self._door = door
        self._reader: StreamReader | None = None if provider is None else reader_named(provider)
        self._starts_early = starts_early
        self._early: Early | None = None
        self._events: deque[tuple[Any, str]] = deque()
        self._count = 0
        self._looked = 0
        self._superseded = 0
        self._entered = self._left = False
        self._turn: Turn | None = None
        self._failed: BaseException | None = None

    # What a host does

    async def __aenter__(self) -> Self:
        """Begin.

        Raises:
            OpenTurnError: the previous turn has not ended, or another answer is on its way in.
            UsageError: it was entered before: a stream can be read once.
        """
        if self._entered:
            raise UsageError("a stream is entered once; each answer needs one of its own")
        self._door.open()
        self._entered = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave: what is not a turn by now never becomes one."""
        self._left = True
        try:
            await self._give_up(LEFT)
        finally:
            if self._turn is None:
                self._door.close()
            await self._source.close()

    def __await__(self) -> Generator[Any, None, "Turn"]:
        """Read to the end; see `turn`."""
        return self._whole().__await__()

    async def _whole(self) -> "Turn":
        async with self:
            return await self.turn()

    def __aiter__(self) -> Self:
        """Iterate over the events."""
        return self

    async def __anext__(self) -> Any:
        """Give the next event as it came: the SDK's object, the dict, or what bytes held.

        Raises:
            PayloadError: the stream cannot be read; nothing of it counts.
        """
        while not self._events:
            if not await self._read():
                raise StopAsyncIteration
        return self._events.popleft()[0]

    async def text(self) -> AsyncGenerator[str, None]:
        """Give what the model says to the user, piece by piece; takes the place of the events."""
        while self._events or await self._read():
            while self._events:
                said = self._events.popleft()[1]
                if said:
                    yield said

    @property
    def started(self) -> tuple[str, ...]:
        """The calls that have been started early, by the provider's ids, in request order."""
        return () if self._early is None else self._early.started

    async def turn(self) -> "Turn":
        """Read what is left of the message, and run its calls, as `run.submit` does.

        Raises:
            BrokenStreamError: the message never ended; nothing of it counts.
            PayloadError: it cannot be read; nothing of it counts.
            UsageError: the stream has not been entered.
        """
        if self._turn is not None:
            return self._turn
        while await self._read():
            pass
        early = self._begun()
        try:
            reply = self._reply()
            if self._door.recorded(reply):
                await early.abandon(RECORDED)
            self._turn = await self._door.submit(reply, early)
        except BaseException as error:
            self._failed = error
            await self._give_up(BROKEN)
            raise
        return self._turn

    def _reply(self) -> Reply:
        reader = self._reader
        if reader is None or not reader.ended:
            raise BrokenStreamError("" if reader is None else reader.name, self._count)
        return parse(reader.whole(), provider=reader.name)

    # Reading

    def _begun(self) -> Early:
        if not self._entered or self._left:
            raise UsageError(
                "a stream is read within `async with run.stream(…) as stream:`, or by "
                "`await run.stream(…)`"
            )
        if self._failed is not None:
            raise self._failed
        if self._early is None:
            self._early = self._door.early()
        return self._early

    async def _read(self) -> bool:
        """Take in the next piece; say whether there was one."""
        early = self._begun()
        try:
            events = await self._source.next()
            for given, event in events or ():
                early = await self._take(given, event, early)
        except BaseException as error:
            self._failed = error
            await self._give_up(BROKEN)
            raise
        return events is not None

    async def _take(self, given: object, event: dict[str, Any], early: Early) -> Early:
        self._count += 1
        if self._reader is None:
            self._reader = reader_for(event)
        reader = self._reader
        try:
            said = reader.feed(event)
        except PayloadError as error:
            error.add_note(f"event {self._count} of the stream")
            raise
        self._events.append((given, said))
        if reader.superseded != self._superseded:
            self._superseded, self._looked = reader.superseded, 0
            await early.abandon(SUPERSEDED)
            early = self._early = self._door.early()
        if self._starts_early and not (early.holds or reader.ended):
            self._look(reader, early)
        return early

    def _look(self, reader: StreamReader, early: Early) -> None:
        """Let calls start if more of the message's front is complete than at the last look."""
        complete = reader.complete
        if complete <= self._looked:
            return
        self._looked = complete
        try:
            reply = parse(reader.front(), provider=reader.name)
        except PayloadError:
            early.hold()  # Whatever it is, the whole message says it, too.
            return
        if self._door.recorded(reply):
            early.hold()
        early.see(reply)

    async def _give_up(self, told: Told) -> None:
        if self._early is not None and self._turn is None:
            await self._door.uncut(self._early.abandon(told))
