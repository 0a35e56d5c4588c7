"""Serves the clients of a proxy: one over stdio, or many over streamable HTTP."""

import asyncio
from contextlib import suppress
from typing import Any

import uvicorn
from mcp.server.stdio import stdio_server

from laneway.engine.mcp.proxy.gateway import ONLY, Gateway

IDLE_SECONDS = 1800.0
"""After so long without a call a session over HTTP is over, as it is for the SDK."""
LOOK_SECONDS = 60.0


async def serve_streams(gateway: Gateway, reading: Any, writing: Any) -> None:
    """Serve one client over a pair of streams, until it goes."""
    async with gateway:
        await gateway.server.run(reading, writing, gateway.options)
        await gateway.end(ONLY)


async def serve_stdio(gateway: Gateway) -> None:
    """Serve the client at this process's standard input and output, until it goes."""
    async with stdio_server() as (reading, writing):
        await serve_streams(gateway, reading, writing)


async def serve_http(gateway: Gateway, host: str, port: int) -> None:
    """Serve clients at http://host:port/mcp until this process is told to stop."""
    async with gateway:
        config = uvicorn.Config(app_of(gateway, host), host=host, port=port, log_level="warning")
        ending = asyncio.create_task(_end_idle(gateway))
        try:
            await uvicorn.Server(config).serve()
        finally:
            ending.cancel()
            with suppress(asyncio.CancelledError):
                await ending


async def _end_idle(gateway: Gateway) -> None:
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        await gateway.end_idle(IDLE_SECONDS)


def app_of(gateway: Gateway, host: str) -> Any:
    """The ASGI application of a proxy that has been entered."""
    app: Any = gateway.server.streamable_http_app(host=host, session_idle_timeout=IDLE_SECONDS)

    async def watched(scope: Any, receive: Any, send: Any) -> None:
        await app(scope, receive, send)
        if scope["type"] == "http" and scope["method"] == "DELETE":  # The client ends its session.
            headers = {name.lower(): value for name, value in scope["headers"]}
            await gateway.end(headers.get(b"mcp-session-id", b"").decode("latin-1"))

    return watched
