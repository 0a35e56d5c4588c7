"""One connection to a server, from the handshake to its end.

The SDK's client lives in one task here; calls ask it from theirs. When the connection ends, for
whatever reason, every call that is open on it hears of it at once.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

from mcp import Client, MCPError
from mcp.types import (
    CONNECTION_CLOSED,
    ListRootsResult,
    PaginatedRequestParams,
    Root,
    ServerCapabilities,
    ToolListChangedNotification,
)
from mcp.types import Tool as RemoteTool
from pydantic import FileUrl

from laneway.engine.failures import core
from laneway.engine.mcp.reading import SESSION_LOST
from laneway.engine.mcp.settings import Settings
from laneway.engine.mcp.tap import Connect, Tap
from laneway.errors import UsageError

logger = logging.getLogger("laneway")

PAGES = 100
"""Of a list of tools: one that never ends is cut off."""


class Link:
    """A connection that is being made, stands, or has ended; it is never made again."""

    def __init__(
        self,
        settings: Settings,
        open_transport: "Callable[[Link], Connect]",
        relisted: "Callable[[Link], None]",
    ) -> None:
        """Prepare; `connect` makes it.

        Args:
            settings: of the server.
            open_transport: what opens a transport for this link.
            relisted: called when the server's tools have changed.
        """
        self._settings = settings
        self._relisted = relisted
        self.tap = Tap(open_transport(self))
        self.tools: tuple[RemoteTool, ...] = ()
        self.why = ""
        """Why it ended, for a sentence."""
        self.ended = asyncio.Event()
        self.asked = 0
        """How many requests of the server the host is at work on."""
        self.last_asked = 0.0
        """When the last of them was answered."""
        self.is_http = False
        """No lasting connection shows whether the server lives."""
        self.fate: Callable[[], str] = str
        """Says more about the end, where the transport knows."""
        self._sessions_lost = 0
        self._stop = asyncio.Event()
        self._ready: asyncio.Future[None]
        self._client: Client | None = None
        self._relist = asyncio.Event()
        self._probing: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def client(self) -> Client:
        """The SDK's, while it is connected."""
        assert self._client is not None
        return self._client

    @property
    def is_up(self) -> bool:
        """Whether calls can be asked."""
        return self._client is not None and not self.ended.is_set()

    # Its life

    async def connect(self) -> None:
        """Make it, and learn which tools there are.

        Raises:
            Exception: whatever kept it from being made.
        """
        self._ready = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live(), name=f"mcp {self._settings.name}")
        seconds = self._settings.limits.connect_seconds
        try:
            async with asyncio.timeout(_or_none(seconds)):
                await asyncio.shield(self._ready)
        except TimeoutError:
            await self.close()
            raise TimeoutError(f"it was not ready within {seconds:g} s") from None
        except BaseException as error:
            await self.close()
            if isinstance(error, MCPError) and (fate := self.fate()):
                raise ConnectionError(fate) from error
            raise

    async def _live(self) -> None:
        watching: list[asyncio.Task[None]] = []
        try:
            async with AsyncExitStack() as leaving:
                client = await leaving.enter_async_context(self._made())
                self.tools = await self._list(client)
                self._client = client
                if not self._ready.done():
                    self._ready.set_result(None)
                watching = [asyncio.create_task(self._keep_listed(client))]
                leaving.callback(watching[0].cancel)
                await self._until_over()
                self._end("")
        except asyncio.CancelledError:
            self._end("it was given up")
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a transport raises ends the link
            self._fail(core(error))
        finally:
            self._end("")
            for task in watching:
                with suppress(asyncio.CancelledError):
                    await task

    def _made(self) -> Client:
        settings = self._settings
        return Client(
            self.tap.transport(),  # type: ignore[arg-type, unused-ignore]
            mode=settings.protocol,
            cache=None,
            message_handler=self._noticed,
            list_roots_callback=None if settings.roots is None else self._list_roots,
            sampling_callback=self._host(settings.sampling),
            elicitation_callback=self._host(settings.elicitation),
            client_info=None,
        )

    async def _until_over(self) -> None:
        waiting = [
            asyncio.ensure_future(self._stop.wait()),
            asyncio.ensure_future(self.tap.ended.wait()),
        ]
        try:
            await asyncio.wait(waiting, return_when="FIRST_COMPLETED")
        finally:
            for one in waiting:
                one.cancel()

    def _fail(self, error: BaseException) -> None:
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()  # Else asyncio complains where nobody asks any more.
        self._end(f"{type(error).__name__}: {error}")

    def _end(self, why: str) -> None:
        if not self.ended.is_set():
            self.why = self.why or self.fate() or why or "the connection was closed"
            self.ended.set()
            self.tap.end()
        if not self._ready.done():
            self._ready.set_exception(ConnectionError(self.why))
            self._ready.exception()

    def fail(self, why: str) -> None:
        """Give it up: it is of no use any more."""
        self._end(why)
        self._stop.set()

    async def close(self) -> None:
        """End it, and wait until nothing of it is left."""
        self._stop.set()
        task = self._task
        if task is None:
            return
        if self._client is None:
            task.cancel()
        while not task.done():
            await asyncio.wait([task])
        if self._probing is not None:
            self._probing.cancel()
            with suppress(asyncio.CancelledError):
                await self._probing

    # Slow or dead

    async def alive(self) -> bool:
        """Whether the server still says anything, if it is asked to."""
        seen, lost = self.tap.messages, self._sessions_lost
        try:
            async with asyncio.timeout(_or_none(self._settings.limits.ping_seconds)):
                await self.client.session.send_ping()
        except MCPError as error:
            if self._sessions_lost != lost:
                return False
            # An answer is an answer: what speaks 2026-07-28 knows no ping, and says so.
            return error.code != CONNECTION_CLOSED or self.tap.messages != seen
        except TimeoutError:
            return self.tap.messages != seen
        except Exception:  # noqa: BLE001 - a transport that breaks
            return False
        return True

    def suspect(self) -> None:
        """Something broke below: find out at once whether the server is dead."""
        if self._client is None or self.ended.is_set():
            return
        if self._probing is None or self._probing.done():
            self._probing = asyncio.create_task(self._probe())

    @property
    def lost_session(self) -> bool:
        """Whether the server lives, and knows nothing of this link."""
        return self._sessions_lost > 0

    async def found_out(self) -> None:
        """Wait until it is known whether the server is dead, if it was suspected."""
        if self._probing is not None:
            await asyncio.wait([self._probing])

    def refused(self, status: int, request: Any) -> None:
        """A request was turned away. A server that knows nothing of the session was restarted."""
        self.tap.turned_away(status, request)
        if status in SESSION_LOST:
            self._sessions_lost += 1
            self.suspect()

    async def _probe(self) -> None:
        if not await self.alive():
            lost = "it was started again, and knows nothing of this session"
            self.fail(lost if self.lost_session else "it broke off, and does not answer")

    # Its tools

    async def _list(self, client: Client) -> tuple[RemoteTool, ...]:
        capabilities: ServerCapabilities = client.server_capabilities
        if capabilities.tools is None:
            return ()
        found: list[RemoteTool] = []
        cursor: str | None = None
        for _ in range(PAGES):
            page = await client.session.list_tools(params=PaginatedRequestParams(cursor=cursor))
            found += page.tools
            cursor = page.next_cursor
            if cursor is None:
                break
        return tuple(found)

    async def _keep_listed(self, client: Client) -> None:
        if client.session.discover_result is not None and _tells_of_tools(client):
            listening = asyncio.create_task(self._listen(client))
        else:
            listening = None
        try:
            while True:
                await self._relist.wait()
                self._relist.clear()
                try:
                    self.tools = await self._list(client)
                except Exception as error:  # noqa: BLE001 - the old list stays
                    logger.warning("MCP server %s: %s", self._settings.name, error)
                else:
                    self._relisted(self)
        finally:
            if listening is not None:
                listening.cancel()
                with suppress(asyncio.CancelledError):
                    await listening

    async def _listen(self, client: Client) -> None:
        """From 2026-07-28 on changes are told to those who listen."""
        try:
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self._relist.set()
        except Exception as error:  # noqa: BLE001 - without it the tools are as they were found
            logger.info("MCP server %s tells of no changes: %s", self._settings.name, error)

    async def _noticed(self, message: Any) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._relist.set()

    # What the server asks

    def _host(self, answer: Callable[..., Any] | None) -> Any:
        if answer is None:
            return None  # Refused by the SDK, and the server is told beforehand.

        async def answered(context: Any, params: Any) -> Any:
            with _Asked(self):
                return await answer(context, params)

        return answered

    async def _list_roots(self, context: Any) -> ListRootsResult:  # noqa: ARG002
        return ListRootsResult(
            roots=[
                Root(uri=FileUrl(folder.as_uri()), name=folder.name)
                for folder in map(Path, self._settings.roots or ())
            ]
        )


class _Asked:
    """While the host is asked something, nobody is idle."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def __enter__(self) -> None:
        self._link.asked += 1

    def __exit__(self, *_: object) -> None:
        self._link.asked -= 1
        self._link.last_asked = asyncio.get_running_loop().time()


def _tells_of_tools(client: Client) -> bool:
    tools = client.server_capabilities.tools
    return tools is not None and bool(tools.list_changed)


def _or_none(seconds: float) -> float | None:
    return None if seconds == float("inf") else seconds


def see_protocol(name: str, protocol: str) -> None:
    """See that a protocol is one that the SDK can speak.

    Raises:
        UsageError: it is not.
    """
    from mcp.types.version import MODERN_PROTOCOL_VERSIONS  # noqa: PLC0415

    known = ("auto", "legacy", *MODERN_PROTOCOL_VERSIONS)
    if protocol not in known:
        raise UsageError(
            f"MCP server {name!r}: protocol={protocol!r} is not known (known: {', '.join(known)})"
        )
