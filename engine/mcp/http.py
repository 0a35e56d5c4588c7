"""A server at an address: streamable HTTP, with an eye on what breaks below the SDK.

There is no lasting connection whose end could be seen: a request that finds nobody, or an answer
that breaks off, is the first sign of a death, and it is passed on at once.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from laneway.engine.kinds import is_object

CONNECT_SECONDS = 10.0
"""For a connection to be made, a request to be written: a server that works answers later."""

_REFUSED, _FAULTY = 400, 500


@asynccontextmanager
async def connected(
    url: str,
    headers: Mapping[str, str],
    auth: Any,
    broken: Callable[[], None],
    refused: Callable[[int, Any], None],
) -> AsyncGenerator[tuple[Any, Any]]:
    """Open a transport.

    Args:
        url: of the server's endpoint.
        headers: of every request.
        auth: an `httpx2.Auth`, such as the SDK's for OAuth; None for none.
        broken: called when a request found nobody, or an answer broke off.
        refused: called with the status and the JSON-RPC id of a request that was refused (4xx), and
            so has not been carried out.
    """
    client = httpx2.AsyncClient(
        headers=dict(headers),
        auth=auth,
        # How long an answer may take is not for the transport to say.
        timeout=httpx2.Timeout(CONNECT_SECONDS, read=None),
        transport=_Watched(httpx2.AsyncHTTPTransport(), broken, refused),
    )
    async with client, streamable_http_client(url, http_client=client) as streams:
        yield streams


class _Watched(httpx2.AsyncBaseTransport):
    """Tells of what breaks, and lets it go on."""

    def __init__(
        self,
        inner: httpx2.AsyncBaseTransport,
        broken: Callable[[], None],
        refused: Callable[[int, Any], None],
    ) -> None:
        self._inner, self._broken, self._refused = inner, broken, refused

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = await self._inner.handle_async_request(request)
        except httpx2.TransportError:
            self._broken()
            raise
        if request.method == "POST" and _REFUSED <= response.status_code < _FAULTY:
            self._refused(response.status_code, _id_of(request))
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Body(response.stream, self._broken)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


def _id_of(request: httpx2.Request) -> Any:
    try:
        message: Any = json.loads(request.content)
    except (ValueError, httpx2.RequestNotRead):
        return None
    return message["id"] if is_object(message) and "id" in message else None


class _Body(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, broken: Callable[[], None]) -> None:
        self._inner, self._broken = inner, broken

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._inner:
                yield chunk
        except httpx2.TransportError:
            self._broken()
            raise

    async def aclose(self) -> None:
        await self._inner.aclose()
