"""What a server answers, as the value or the failure of a call.

A result with `isError` is the tool's own failure, and its text is for the model. A JSON-RPC error
says that the request was not understood, or that the server went wrong: by its code it is known
whether anything can have happened.
"""

from typing import Any

from mcp import MCPError
from mcp.types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    CallToolResult,
    TextContent,
)

from laneway.engine.failing import ToolFailed, TransportClosed
from laneway.outcomes import Code, Happened

NOT_BEGUN = {
    PARSE_ERROR: Code.UNAVAILABLE,
    INVALID_REQUEST: Code.UNAVAILABLE,
    METHOD_NOT_FOUND: Code.UNAVAILABLE,
    INVALID_PARAMS: Code.INVALID_ARGUMENTS,
}
"""JSON-RPC errors that come before a tool is entered: https://www.jsonrpc.org/specification §5.1;
an unknown tool and arguments that do not fit are INVALID_PARAMS in MCP."""
SESSION_LOST = (400, 404)
"""HTTP: the specification's 404, and what servers say that hold their sessions in memory."""
TOO_MANY = 429


def value_of(result: CallToolResult, *, whole: bool) -> Any:
    """The value of a call, plain JSON.

    Structured content if there is some; else the text, if there is nothing else; else the parts as
    the server gave them, images and resources among them.

    Args:
        result: of the server.
        whole: give the result as it is instead, for somebody who passes it on.

    Raises:
        ToolFailed: the result says that the tool failed.
    """
    if result.is_error:
        raise ToolFailed(
            texts_of(result) or "the tool failed, and did not say why", happened=Happened.UNKNOWN
        )
    if whole:
        return result.model_dump(mode="json", by_alias=True, exclude_none=True)
    parts = [one for one in result.content if not isinstance(one, TextContent)]
    if result.structured_content is None and not parts:
        return texts_of(result)
    content = [
        one.model_dump(mode="json", by_alias=True, exclude_none=True) for one in result.content
    ]
    if result.structured_content is None:
        return content
    if parts:
        return {"structured": result.structured_content, "content": content}
    return result.structured_content


def texts_of(result: CallToolResult) -> str:
    """The text of a result."""
    return "\n".join(one.text for one in result.content if isinstance(one, TextContent))


def refused(error: MCPError) -> ToolFailed:
    """What a JSON-RPC error of the server says."""
    code = NOT_BEGUN.get(error.code)
    return ToolFailed(
        f"the server answered with an error ({error.code}): {error.message}",
        happened=Happened.UNKNOWN if code is None else Happened.NOTHING,
        code=Code.TOOL_ERROR if code is None else code,
    )


def turned_away(server: str, status: int, error: MCPError) -> Exception:
    """What it means that an HTTP server refused a request before it read it as one of MCP's."""
    if status in SESSION_LOST:
        return closed(server, f"it knows nothing of this session, HTTP {status}", sent=False)
    limited = status == TOO_MANY
    return ToolFailed(
        f"the server refused the request (HTTP {status}): {error}",
        happened=Happened.NOTHING,
        code=Code.RATE_LIMITED if limited else Code.UNAVAILABLE,
        retry=limited,
        hint="" if limited else "Tell the user that the server does not take our requests.",
    )


def closed(server: str, why: str, *, sent: bool) -> TransportClosed:
    """The connection ended before an answer came."""
    told = f" ({why})" if why else ""
    if sent:
        return TransportClosed(
            f"the server {server!r} is gone{told}; no answer can come", sent=True
        )
    return TransportClosed(f"the server {server!r} cannot be reached{told}", sent=False)
