"""MCP servers as a source of tools, and Laneway itself before them as a proxy.

    server      what a host writes: `MCPServer.stdio(…)`, `MCPServer.http(…)`, its tools ◀─ Engine
    hints       a server's annotations ─▶ what the scheduler is told; names
    keeping     connects, lists, restarts with back-off ─▶ link, one connection from end to end
    calling     one call: asked, waited for, given up; what may have happened
    tap         what goes over a connection, seen before and behind the SDK
    transports  stdio (a process in a group of its own), streamable HTTP
    reading     results and errors of a server ─▶ values and failures
    proxy/      `laneway mcp-proxy`: a session is a run, each of its calls a call

The SDK, extra `mcp`, is imported where a server is connected to, and not before.
"""
