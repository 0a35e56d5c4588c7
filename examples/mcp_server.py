"""An MCP server's tools in an engine: reads overlap, a death is told, the next call finds it back.

The server is this file itself, so that nothing has to be installed but the extra `mcp`.
"""

import asyncio
import os
import sys


def serve() -> None:
    """Be the server."""
    from mcp.server.mcpserver import MCPServer as Served  # noqa: PLC0415 - only the child needs it
    from mcp.types import ToolAnnotations  # noqa: PLC0415

    server = Served("pantry")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def count(fruit: str) -> str:
        """Count fruit."""
        return f"{len(fruit)} {fruit}"

    @server.tool()
    def eat(fruit: str) -> str:
        """Eat fruit, and choke on it."""
        os._exit(len(fruit))

    server.run()


async def main() -> None:
    """Be the host."""
    from laneway import Engine, MCPServer  # noqa: PLC0415 - the server has no need of it

    pantry = MCPServer.stdio("pantry", sys.executable, [__file__, "serve"], trusted=True)
    async with Engine([pantry]) as engine, engine.run("lunch") as run:
        for tool, fruit in (("count", "pears"), ("eat", "plums"), ("count", "figs")):
            call = {"id": "1", "tool": f"pantry__{tool}", "arguments": {"fruit": fruit}}
            turn = await run.submit({"calls": [call]})
            print(tool, fruit, "→", turn.calls[0].state, turn.calls[0].outcome)


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    else:
        asyncio.run(main())
