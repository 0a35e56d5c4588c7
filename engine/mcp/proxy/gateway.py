"""The engine behind a proxy, and the server that its clients meet.

What a client lists is what the servers offer, but for what the policy always denies; what it calls
goes through the engine, and comes back as the server gave it, or as an error that says whether a
repeat makes sense and what may have happened.
"""

import asyncio
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.types import (
    INTERNAL_ERROR,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
)
from mcp.types import Tool as RemoteTool

from laneway.engine.engine import Engine
from laneway.engine.mcp.proxy.config import ProxyConfig, limits_of, servers_of
from laneway.engine.mcp.proxy.sessions import SESSION, Admitting, Session, session_tool
from laneway.engine.mcp.server import MCPServer
from laneway.engine.plain import plain
from laneway.errors import LanewayError
from laneway.journal.store import JournalStore
from laneway.outcomes import Failure, Happened, Outcome, Success
from laneway.policies.layers import policy_of

ONLY = "only"
"""The name of the session of a client that has none of its own."""


class Gateway:
    """One proxy; used with `async with`."""

    def __init__(
        self, config: ProxyConfig, folder: Path, *, journal: JournalStore | None = None
    ) -> None:
        """Put it together; no server is started yet.

        Args:
            config: what its file says.
            folder: of the file.
            journal: a store in place of the configured file.

        Raises:
            UsageError: it says what cannot be meant.
            PolicyError: the policy cannot be read.
        """
        own = config.own
        self._mode = own.mode
        self.servers: Sequence[MCPServer] = servers_of(config, folder)
        self._sessions: dict[str, Session] = {}
        self._by_run: dict[str, Session] = {}
        policy = policy_of(None if own.policy is None else folder / own.policy)
        policy.mode(own.mode)
        self.engine = Engine(
            [session_tool(self._by_run.__getitem__), *self.servers],
            journal=journal or folder / own.journal,
            policy=Admitting(policy),
            unattended=own.unattended,
            lanes=own.lanes,
            workspace=folder / own.workspace,
            limits=limits_of(config),
            loops=None,  # Nobody could tell the client's model to go on.
            recursion=None,
        )
        self._started = time.strftime("%Y%m%d-%H%M%S")
        self._changes = InMemorySubscriptionBus()
        self._telling: set[asyncio.Task[None]] = set()
        self.server: Server[Any] = Server(
            "laneway",
            on_list_tools=self._list,
            on_call_tool=self._call,
            on_subscriptions_listen=ListenHandler(self._changes),
        )
        """Meets the clients, over whatever transport."""
        self.options = self.server.create_initialization_options(
            NotificationOptions(tools_changed=True)
        )

    async def __aenter__(self) -> Self:
        """Start the servers, and open the journal.

        Raises:
            LanewayError: a server that is required cannot be connected, or the journal opened.
        """
        for one in self.servers:
            await one.open(self._changed)
        try:
            await self.engine.__aenter__()
        except BaseException:
            await self._close_servers()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        """End all sessions, then the engine and its servers."""
        for name in tuple(self._sessions):
            await self.end(name)
        for task in tuple(self._telling):
            task.cancel()
        await self.engine.__aexit__(None, None, None)
        await self._close_servers()

    async def _close_servers(self) -> None:
        for one in self.servers:
            with suppress(ValueError):  # Not opened.
                await one.close(self._changed)

    async def end(self, key: str) -> None:
        """End the session of a client; no harm if it has none."""
        session = self._sessions.pop(key, None)
        if session is not None:
            await session.close()
            self._by_run.pop(session.name, None)

    async def end_idle(self, seconds: float) -> None:
        """End the sessions of clients that have asked for nothing for so long."""
        now = asyncio.get_running_loop().time()
        for key, session in tuple(self._sessions.items()):
            if not session.open_calls and now - session.last_used >= seconds:
                await self.end(key)

    def _session(self, context: Any) -> Session:
        request = context.request
        key = ONLY if request is None else request.headers.get("mcp-session-id", ONLY)
        session = self._sessions.get(key)
        if session is None:
            name = f"mcp-{self._started}-{secrets.token_hex(3)}"
            session = self._sessions[key] = Session(self.engine, name, self._mode)
            self._by_run[name] = session
        session.tell_changed = context.session.send_tool_list_changed
        return session

    def _changed(self) -> None:
        """A server has other tools; called once the engine has them, too."""
        task = asyncio.ensure_future(self._tell_changed())
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _tell_changed(self) -> None:
        await self._changes.publish(ToolsListChanged())
        for session in tuple(self._sessions.values()):
            if session.tell_changed is not None:
                with suppress(Exception):  # A client that is gone.
                    await session.tell_changed()

    # What a client asks

    async def _list(self, context: Any, _: PaginatedRequestParams | None) -> ListToolsResult:
        self._session(context)  # So that it hears of changes.
        shown = {
            one["name"] for one in self.engine.definitions("anthropic-messages", mode=self._mode)
        }
        return ListToolsResult(
            tools=[
                _as_here(name, remote)
                for server in self.servers
                for name, remote in server.remote.items()
                if name in shown and name != SESSION
            ]
        )

    async def _call(self, context: Any, asked: CallToolRequestParams) -> CallToolResult:
        async def progress(done: float, total: float | None, message: str | None) -> None:
            await context.session.report_progress(done, total, message)

        if asked.name == SESSION:
            raise MCPError(code=INTERNAL_ERROR, message=f"{SESSION} is the proxy's own")
        try:
            outcome = await self._session(context).call(
                asked.name, plain(asked.arguments or {}), progress
            )
        except LanewayError as error:
            raise MCPError(code=INTERNAL_ERROR, message=str(error)) from error
        return shown_to_client(outcome)


def shown_to_client(outcome: Outcome) -> CallToolResult:
    """An outcome as a client gets it."""
    if isinstance(outcome, Success):
        return CallToolResult.model_validate(outcome.value, by_name=False)
    return CallToolResult(
        content=[TextContent(type="text", text=_told(outcome))],
        is_error=True,
        _meta={
            "laneway/code": str(outcome.code),
            "laneway/happened": str(outcome.happened),
            "laneway/retry": outcome.retry,
        },
    )


def _told(failure: Failure) -> str:
    parts = [f"{failure.code}: {failure.message}"]
    if failure.happened is not Happened.NOTHING:
        parts.append(f"What it may have done: {failure.happened}.")
    return " ".join([*parts, failure.hint]).strip()


def _as_here(name: str, remote: RemoteTool) -> RemoteTool:
    return remote.model_copy(update={"name": name})
