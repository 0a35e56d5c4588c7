"""One call of a server's tool: asked, waited for, given up; and what may have happened.

The wait ends with an answer, with the end of the connection, or with the patience for a server that
gives no sign: a ping then tells a slow one, whose call alone has timed out, from a dead one, which
loses all its calls and is started again.

A call that is told to stop is cancelled at the server, too, which need not answer it any more. As
long as nobody knows that it has stopped, a call that changes something stays in here and so keeps
its lanes: until its answer comes after all, until the connection ends, or for a bounded time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

from mcp import MCPError
from mcp.client.client import Client
from mcp.types import CONNECTION_CLOSED, CallToolResult
from pydantic import ValidationError

from laneway.engine.failing import ToolFailed, TransportClosed
from laneway.engine.mcp.keeping import Keeper
from laneway.engine.mcp.link import Link
from laneway.engine.mcp.reading import closed, refused, turned_away, value_of
from laneway.engine.mcp.settings import Settings
from laneway.engine.mcp.tap import Ticket, asking
from laneway.outcomes import Code, Happened

Progress = Callable[[float, float | None, str | None], Awaitable[None]]

relaying: ContextVar[Progress | None] = ContextVar("relaying", default=None)
"""Who wants to hear of the progress of the calls that are submitted here."""


async def call(
    keeper: Keeper, settings: Settings, tool: str, arguments: dict[str, Any], *, harmless: bool
) -> Any:
    """Call a tool, and give its value.

    Args:
        keeper: of the server.
        settings: of the server.
        tool: its name at the server.
        arguments: as they were judged.
        harmless: whether nothing is lost if nobody knows that it has stopped.

    Raises:
        ToolFailed: the tool failed, the server refused the call, or gave no sign for too long.
        TransportClosed: the server is down, or went down before it answered.
        asyncio.CancelledError: the call was told to stop, and nobody knows what came of it.
    """
    link = await keeper.up_at_last()
    asked = _Asked(link, settings, tool, arguments)
    try:
        return await asked.value_of(harmless=harmless)
    except TransportClosed:
        if not asked.ticket.refused:
            raise
    finally:
        link.tap.forget(asked.ticket)
    # A server that was restarted knows nothing of the session, and has turned the request away
    # unread: it is asked again, once.
    await link.found_out()
    link = await keeper.up_at_last()
    asked = _Asked(link, settings, tool, arguments)
    try:
        return await asked.value_of(harmless=harmless)
    finally:
        link.tap.forget(asked.ticket)


SMALLER = "Ask for less at once."
FIND_OUT = "Find out what happened before asking again."


class _Asked:
    """A request on its way."""

    def __init__(
        self, link: Link, settings: Settings, tool: str, arguments: dict[str, Any]
    ) -> None:
        self._link, self._settings = link, settings
        self._loop = asyncio.get_running_loop()
        self._relay = relaying.get()
        self.ticket = Ticket()
        self.ticket.heard = self._loop.time()
        self._task = asyncio.create_task(self._ask(link.client, tool, arguments))

    async def _ask(self, client: Client, tool: str, arguments: dict[str, Any]) -> CallToolResult:
        asking.set(self.ticket)
        return await client.call_tool(tool, arguments, progress_callback=self._progressed)

    async def _progressed(self, progress: float, total: float | None, message: str | None) -> None:
        self.ticket.heard = self._loop.time()
        if self._relay is not None:
            await self._relay(progress, total, message)

    async def value_of(self, *, harmless: bool) -> Any:
        """Wait for the answer, to whatever end; see `call`."""
        try:
            return self.value(await self.answered())
        except asyncio.CancelledError:
            await self.abandon()
            if harmless or not await self.settled():
                raise
            return self.late()
        except TimeoutError:
            await self.abandon()
            if not harmless and await self.settled():
                return self.late()
            raise ToolFailed(
                f"the server gave no sign of this call for {self._settings.limits.idle_seconds:g} "
                "s; it answers a ping, so it is slow, not dead",
                happened=Happened.UNKNOWN,
                code=Code.TIMEOUT,
                retry=harmless,
                hint=SMALLER if harmless else FIND_OUT,
            ) from None

    async def answered(self) -> CallToolResult:
        """Wait for the answer.

        Raises:
            TimeoutError: the server has given no sign for too long, and is alive.
        """
        ended = asyncio.ensure_future(self._link.ended.wait())
        try:
            while not self._task.done():
                await asyncio.wait(
                    [self._task, ended],
                    timeout=self._patience(),
                    return_when="FIRST_COMPLETED",
                )
                if self._task.done():
                    break
                if ended.done():
                    raise self._closed()
                if self._patience() != 0:
                    continue
                if await self._link.alive():
                    if self._patience() != 0 or self._task.done():
                        continue  # It has said something about this call meanwhile.
                    raise TimeoutError
                self._link.fail(
                    "it gave no sign, and did not answer a ping within "
                    f"{self._settings.limits.ping_seconds:g} s"
                )
        finally:
            ended.cancel()
        return self._outcome()

    def _patience(self) -> float | None:
        """Seconds that are left until the server should have given a sign."""
        limit = self._settings.limits.idle_seconds
        if limit == float("inf"):
            return None
        if self._link.asked:
            return limit  # It waits for the host, not the host for it.
        since = max(self.ticket.heard, self._link.last_asked)
        return max(since + limit - self._loop.time(), 0.0)

    def _outcome(self) -> CallToolResult:
        """What the SDK makes of the answer."""
        try:
            return self._task.result()
        except asyncio.CancelledError:
            raise self._closed() from None
        except MCPError as error:
            answered = self.ticket.answer is not None
            if error.code == CONNECTION_CLOSED and (self._link.ended.is_set() or not answered):
                raise self._closed(str(error)) from error
            if self.ticket.refused:
                raise turned_away(self._settings.name, self.ticket.refused, error) from error
            if error.code == CONNECTION_CLOSED and self._link.is_http:
                self._link.suspect()
                raise self._closed(str(error)) from error
            raise refused(error) from error
        except (RuntimeError, ValidationError) as error:
            raise ToolFailed(
                f"the server's answer cannot be used: {error}", happened=Happened.UNKNOWN
            ) from error

    def value(self, result: CallToolResult) -> Any:
        """The value of the answer."""
        return value_of(result, whole=self._settings.whole)

    def _closed(self, why: str = "") -> Exception:
        return closed(self._settings.name, self._link.why or why, sent=self.ticket.sent)

    # Told to stop

    async def abandon(self) -> None:
        """Tell the server that nobody waits any more."""
        self._task.cancel()  # The SDK sends the notification, and waits for that at most 5 s.
        with suppress(asyncio.CancelledError):
            await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.exception()

    async def settled(self) -> bool:
        """Wait until the server is done with the call; False if nobody knows that it is.

        Progress of a call that was cancelled shows that the server still works on it.
        """
        if not self.ticket.sent:
            return False
        limits = self._settings.limits
        began = self.ticket.heard = self._loop.time()
        while not self.ticket.settled.is_set():
            end = min(self.ticket.heard + limits.linger_seconds, began + limits.call_seconds)
            left = end - self._loop.time()
            if left <= 0:
                return False
            with suppress(TimeoutError):
                async with asyncio.timeout(_or_none(left)):
                    await self.ticket.settled.wait()
        return self.ticket.answer is not None

    def late(self) -> Any:
        """What came after all, for the record.

        Raises:
            ToolFailed: it was an error.
            TransportClosed: the connection ended.
        """
        answer = self.ticket.answer
        result = getattr(answer, "result", None)
        if result is None:
            error = getattr(answer, "error", None)
            raise ToolFailed(
                f"the server ended the call: {getattr(error, 'message', '')}",
                happened=Happened.UNKNOWN,
            )
        return self.value(CallToolResult.model_validate(result, by_name=False))


def _or_none(seconds: float) -> float | None:
    return None if seconds == float("inf") else seconds
