"""`laneway mcp-proxy`: stands before MCP servers, and gives any client of theirs a journal."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from laneway.errors import UsageError


def mcp_proxy(
    config: Annotated[
        Path,
        typer.Argument(metavar="CONFIG.json", help="mcpServers, as clients know it, and laneway."),
    ],
    http: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="Serve streamable HTTP there instead of stdio."),
    ] = "",
) -> None:
    """Serve the tools of MCP servers to a client, with lanes, policy, approvals and a journal.

    Speaks MCP over standard input and output, or at http://HOST:PORT/mcp. `laneway approvals` and
    `laneway approve` answer what it asks.
    """
    from laneway.engine.mcp.missing import see_that_installed  # noqa: PLC0415 - an extra

    see_that_installed()
    from laneway.engine.mcp.proxy.config import read_config  # noqa: PLC0415 - an extra
    from laneway.engine.mcp.proxy.gateway import Gateway  # noqa: PLC0415 - an extra
    from laneway.engine.mcp.proxy.serving import serve_http, serve_stdio  # noqa: PLC0415

    host, _, port = http.rpartition(":")
    if http and not (host and port.isdecimal()):
        raise UsageError(f"--http {http}: write HOST:PORT, as in 127.0.0.1:8931")
    gateway = Gateway(read_config(config), config.resolve().parent)
    asyncio.run(serve_http(gateway, host, int(port)) if http else serve_stdio(gateway))
