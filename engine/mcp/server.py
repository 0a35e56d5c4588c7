"""An MCP server as a host writes it, and as a source of tools for an engine.

    files = MCPServer.stdio("files", "mcp-server-filesystem", ["/w"], trusted=True)
    async with Engine(tools=[files, ask_user], journal="runs.db") as engine: ...

Entering the engine starts the server and asks for its tools, leaving it ends it; so one server
serves one engine after another, and one event loop after another. `async with files:` does the same
for a host that wants to look at `files.offered` by itself.
"""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self, Unpack

import msgspec

from laneway.engine.mcp.hints import declared, names, overridden
from laneway.engine.mcp.missing import see_that_installed
from laneway.engine.mcp.settings import MCPOptions, Settings
from laneway.engine.tools import Tool
from laneway.errors import LanewayError, ToolError, UsageError

if TYPE_CHECKING:
    from laneway.engine.mcp.keeping import Keeper
    from laneway.engine.mcp.link import Link

logger = logging.getLogger("laneway")
logger.addHandler(logging.NullHandler())  # What a host does not want to hear is not printed.


class ServerUnavailableError(LanewayError):
    """An MCP server that is required cannot be connected."""

    def __init__(self, name: str, why: str, stderr: str = "") -> None:
        """Name it, why, and the end of what it wrote to standard error."""
        told = f"\n  it wrote: {stderr}" if stderr else ""
        super().__init__(
            f"MCP server {name!r} cannot be connected: {why}; see that it runs by itself, or let "
            f"the engine begin without it (required=False){told}"
        )


class ServerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A frozen snapshot of a server."""

    up: bool
    starts: int
    """How often it has been connected since it was opened."""
    why: str
    """Why it is down; empty while it is up."""
    pid: int | None
    """Of its process, which is the number of its group, too; None of a server at an address."""
    tools: tuple[str, ...]
    """By the server's own names."""
    refused: tuple[str, ...]
    """Tools that cannot be used, each with the reason."""
    stderr: str
    """The end of what it wrote to standard error, since its last start."""


class MCPServer:
    """A server; made by `stdio` or `http`, and given to an engine among its tools."""

    def __init__(self, settings: Settings, transport: "Callable[[MCPServer, Link], Any]") -> None:
        """Put one together; `stdio`, `http` and `over` are the way to one.

        Args:
            settings: everything about it but where it is.
            transport: opens a transport of the SDK's for a link.
        """
        self.settings = settings
        self._transport = transport
        self._keeper: Keeper | None = None
        self._opening = 0
        self._listeners: list[Callable[[], None]] = []
        self._lock: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None
        self._offered: tuple[Tool[..., Any], ...] = ()
        self._refused: tuple[str, ...] = ()
        self._fingerprint = ""
        self.child: Any = None
        """Its process, or the last that it had; None of a server at an address."""
        self.remote: dict[str, Any] = {}
        """The SDK's descriptions of the tools that are offered, by the names they have here."""

    @classmethod
    def stdio(
        cls,
        name: str,
        command: str,
        args: Sequence[str] = (),
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        **options: Unpack[MCPOptions],
    ) -> "MCPServer":
        """Make one that is a program, which speaks over its standard input and output.

        It leads a process group of its own, which is ended with the engine.

        Args:
            name: for policies (`servers = ["files"]`) and in front of the names of its tools.
            command: the program.
            args: its arguments.
            env: its variables, beside the harmless ones that it gets from this process.
            cwd: the folder in which it runs; that of this process if None.
            options: see `MCPOptions`.

        Raises:
            UsageError: the name, or an option, makes no sense.
        """
        if isinstance(args, str):
            raise UsageError(f"MCP server {name!r}: args={args!r} is a text; give a list")
        argv, given = (command, *args), dict(env or {})

        @asynccontextmanager
        async def spawned(server: "MCPServer", link: "Link") -> AsyncGenerator[tuple[Any, Any]]:
            from laneway.engine.mcp.stdio import Command, running  # noqa: PLC0415 - the extra

            async with running(Command(argv, given, cwd)) as child:
                server.child, link.fate = child, child.fate
                yield child.received, child

        return cls(settings_of(name, options), spawned)

    @classmethod
    def http(
        cls,
        name: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        auth: Any = None,
        **options: Unpack[MCPOptions],
    ) -> "MCPServer":
        """Make one that is at an address, and speaks streamable HTTP.

        Args:
            name: for policies (`servers = ["search"]`) and in front of the names of its tools.
            url: of its endpoint, as in `http://127.0.0.1:3001/mcp`.
            headers: of every request.
            auth: an `httpx2.Auth`, such as the SDK's for OAuth.
            options: see `MCPOptions`.

        Raises:
            UsageError: the name, the address or an option makes no sense.
        """
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"MCP server {name!r}: {url!r} is no address; write http://host/path")
        given = dict(headers or {})

        @asynccontextmanager
        async def reached(_: "MCPServer", link: "Link") -> AsyncGenerator[tuple[Any, Any]]:
            from laneway.engine.mcp.http import connected  # noqa: PLC0415 - the extra

            link.is_http = True
            async with connected(url, given, auth, link.suspect, link.refused) as streams:
                yield streams

        return cls(settings_of(name, options), reached)

    @classmethod
    def over(
        cls, name: str, transport: Callable[[], Any], **options: Unpack[MCPOptions]
    ) -> "MCPServer":
        """Make one that is reached by any transport of the SDK's, such as a pair in memory.

        Args:
            name: for policies, and in front of the names of its tools.
            transport: gives a transport, for each connection a new one.
            options: see `MCPOptions`.
        """
        return cls(settings_of(name, options), lambda _, __: transport())

    def __repr__(self) -> str:
        return f"<MCPServer {self.settings.name}: {len(self._offered)} tools>"

    @property
    def name(self) -> str:
        """Of the server, for policies."""
        return self.settings.name

    @property
    def offered(self) -> Sequence[Tool[..., Any]]:
        """Its tools, as far as they are known: none before it has been open for the first time."""
        return self._offered

    def status(self) -> ServerStatus:
        """Look at it."""
        keeper = self._keeper
        up = keeper is not None and keeper.link is not None and keeper.link.is_up
        return ServerStatus(
            up=up,
            starts=0 if keeper is None else keeper.starts,
            why="" if up else "it is closed" if keeper is None else keeper.why,
            pid=self.child.pid if up and self.child is not None else None,
            tools=tuple(sorted(tool.name for tool in self.remote.values())),
            refused=self._refused,
            stderr="" if self.child is None else self.child.stderr,
        )

    def passing_on(self) -> "MCPServer":
        """The same for a proxy: results as they came, and calls that may come of several runs."""
        settings = msgspec.structs.replace(self.settings, whole=True, alone=False)
        return MCPServer(settings, self._transport)

    # Its life

    async def __aenter__(self) -> Self:
        """Connect it, and keep it connected.

        Raises:
            ServerUnavailableError: it cannot be connected, and is required.
        """
        await self.open(_nobody)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close(_nobody)

    async def open(self, changed: Callable[[], None], /) -> None:
        """Connect it, if it is not; `changed` is called whenever its tools change.

        Raises:
            ServerUnavailableError: it cannot be connected, and is required.
            MissingMCPError: the extra `mcp` is missing.
            UsageError: it is open in another event loop.
        """
        async with self._locked():
            if self._keeper is None:
                await self._connect()
            self._opening += 1
            self._listeners.append(changed)

    async def close(self, changed: Callable[[], None], /) -> None:
        """End it, when all that have opened it have closed it."""
        async with self._locked():
            self._listeners.remove(changed)
            self._opening -= 1
            keeper = self._keeper
            if self._opening or keeper is None:
                return
            self._keeper = None
            await keeper.close()

    def _locked(self) -> asyncio.Lock:
        loop = asyncio.get_running_loop()
        if self._lock is None or (self._lock[0] is not loop and not self._opening):
            self._lock = (loop, asyncio.Lock())
        if self._lock[0] is not loop:
            raise UsageError(
                f"MCP server {self.name!r} is open in another event loop; make a second one"
            )
        return self._lock[1]

    async def _connect(self) -> None:
        see_that_installed()
        from laneway.engine.mcp.keeping import Keeper  # noqa: PLC0415 - the extra
        from laneway.engine.mcp.link import Link, see_protocol  # noqa: PLC0415 - the extra

        see_protocol(self.name, self.settings.protocol)

        def link() -> Link:
            return Link(self.settings, lambda one: lambda: self._transport(self, one), self._listed)

        self._fingerprint = ""
        keeper = Keeper(self.settings, link, self._listed)
        self._keeper = keeper
        try:
            await keeper.open()
        except Exception as error:
            self._keeper = None
            told = "" if self.child is None else self.child.stderr.strip()[-2000:]
            if isinstance(error, LanewayError):
                raise
            raise ServerUnavailableError(self.name, f"{type(error).__name__}: {error}", told) from (
                error
            )
        except BaseException:
            self._keeper = None
            raise

    # Its tools

    def _listed(self, link: "Link") -> None:
        """Make tools of what the server offers now, and tell whoever wants to know."""
        listed = {tool.name: tool for tool in link.tools}
        fingerprint = repr(sorted((name, one.model_dump_json()) for name, one in listed.items()))
        if fingerprint == self._fingerprint:
            return
        first, self._fingerprint = not self._fingerprint, fingerprint
        settings = self.settings
        if settings.only is not None:
            listed = {name: one for name, one in listed.items() if name in set(settings.only)}
        for missing in sorted({*settings.tools, *(settings.only or ())} - set(listed)):
            logger.warning("MCP server %s has no tool %r", self.name, missing)
        prefix = f"{self.name}__" if settings.prefix is None else settings.prefix
        here = names(prefix, listed)
        made: list[Tool[..., Any]] = []
        refused: list[str] = []
        remote: dict[str, Any] = {}
        for name, one in listed.items():
            try:
                made.append(self._tool(here[name], one))
                remote[here[name]] = one
            except ToolError as error:
                if first and name in settings.tools:
                    raise  # It is the host's own word that cannot be.
                refused.append(str(error))
                logger.warning("MCP server %s: %s", self.name, error)
        self._offered, self._refused, self.remote = tuple(made), tuple(refused), remote
        for tell in tuple(self._listeners):
            tell()

    def _tool(self, name: str, remote: Any) -> Tool[..., Any]:
        settings = self.settings
        said = declared(
            remote.annotations,
            server=self.name,
            trusted=settings.trusted,
            alone=settings.alone,
        )
        if settings.effect is not None:
            said = overridden(said, {"effect": settings.effect})
        said = overridden(said, settings.tools.get(remote.name, {}))
        said.setdefault("name", name)
        said.setdefault("description", remote.description or remote.title or "")
        said.setdefault("server", self.name)
        said.setdefault("timeout", settings.limits.call_seconds)
        own_name: str = remote.name

        async def call_remote(**arguments: Any) -> Any:
            return await self._call(own_name, arguments, harmless=made.spec.effect.changes_nothing)

        made = Tool.from_schema(call_remote, schema=remote.input_schema, **said)
        return made

    async def _call(self, tool: str, arguments: dict[str, Any], *, harmless: bool) -> Any:
        from laneway.engine.mcp.calling import call  # noqa: PLC0415 - the extra

        keeper = self._keeper
        if keeper is None:
            raise UsageError(
                f"MCP server {self.name!r} is not open; use its tools inside `async with engine:`"
            )
        return await call(keeper, self.settings, tool, arguments, harmless=harmless)


def settings_of(name: str, options: MCPOptions) -> Settings:
    """Put together what a host says of a server.

    Raises:
        UsageError: an option that is not known, or makes no sense.
    """
    if unknown := sorted(options.keys() - MCPOptions.__annotations__.keys()):
        known = ", ".join(MCPOptions.__annotations__)
        raise UsageError(f"MCP server {name!r}: {unknown[0]} is no option (it takes {known})")
    return Settings(name=name, **options)


def _nobody() -> None:
    """Nobody wants to know."""
