"""The reference MCP servers, over stdio and streamable HTTP, killed in the middle of calls.

`make servers` installs them, in the versions that servers/package.json pins.
"""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from laneway import Code, Engine, Failure, Happened, MCPServer, Run, State, Success, Turn

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

SERVERS = Path(__file__).resolve().parent / "servers"
PINNED = json.loads((SERVERS / "package.json").read_text())["dependencies"]
PACKAGES = SERVERS / "node_modules"
MISSING = next(
    (
        f"{name} is not installed; `make servers` does it"
        for name in PINNED
        if not (PACKAGES / name / "dist" / "index.js").is_file()
    ),
    "" if shutil.which("node") else "there is no Node.js here",
)
EVERYTHING = str(PACKAGES / "@modelcontextprotocol/server-everything/dist/index.js")
FILES = str(PACKAGES / "@modelcontextprotocol/server-filesystem/dist/index.js")
LONG = "e__trigger-long-running-operation"
BY_HOST: dict[str, Any] = {"trigger-long-running-operation": {"effect": "external", "claims": []}}

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)


async def submit(run: Run, *asked: tuple[str, dict[str, Any]]) -> Turn:
    number = len(run.turns)
    blocks = [
        {"type": "tool_use", "id": f"c{number}_{place}", "name": name, "input": given}
        for place, (name, given) in enumerate(asked)
    ]
    return await run.submit(
        {
            "id": f"m{number}",
            "role": "assistant",
            "stop_reason": "tool_use",
            "content": blocks,
        }
    )


@contextmanager
def at_an_address() -> Generator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Serve server-everything over HTTP; the list holds the process, and whatever replaces it."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    running = [started(port)]
    try:
        yield f"http://127.0.0.1:{port}/mcp", running
    finally:
        for one in running:
            one.kill()
            one.wait()


def started(port: int) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        ["node", EVERYTHING, "streamableHttp"],
        env={**os.environ, "PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    give_up = time.monotonic() + 30
    while time.monotonic() < give_up:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.05)
        else:
            return process
    raise AssertionError("the server did not start")


def lives(server: MCPServer, kill: Any, again: Any) -> None:
    """Values, a death in the middle of several calls, and life after it."""

    async def main() -> None:
        engine = Engine([server], loops=None)
        async with engine, engine.run("r") as run:
            first = await submit(run, ("e__echo", {"message": "a"}), ("e__get-tiny-image", {}))
            echo, image = (call.outcome for call in first.calls)
            assert echo == Success(value="Echo: a")
            assert isinstance(image, Success)
            assert "image" in [part["type"] for part in image.value]

            killing = asyncio.create_task(in_the_middle())
            second = await submit(
                run,
                (LONG, {"duration": 30, "steps": 300}),
                (LONG, {"duration": 29, "steps": 300}),
            )
            await killing
            for call in second.calls:
                assert call.state is State.UNCERTAIN
                assert isinstance(call.outcome, Failure)
                assert call.outcome.code is Code.TRANSPORT_CLOSED
                assert call.outcome.happened is Happened.UNKNOWN

            again()
            while not server.status().up:
                await asyncio.sleep(0.02)
            third = await submit(run, ("e__echo", {"message": "b"}))
            assert third.calls[0].outcome == Success(value="Echo: b")

    async def in_the_middle() -> None:
        await asyncio.sleep(0.5)
        kill()

    asyncio.run(asyncio.wait_for(main(), 50))


def test_server_everything_over_stdio_killed_in_the_middle_of_calls() -> None:
    server = MCPServer.stdio("e", "node", [EVERYTHING, "stdio"], trusted=True, tools=BY_HOST)

    lives(server, lambda: os.kill(server.status().pid or 0, signal.SIGKILL), lambda: None)


def test_server_everything_over_http_killed_in_the_middle_of_calls() -> None:
    with at_an_address() as (url, running):
        server = MCPServer.http("e", url, trusted=True, tools=BY_HOST)
        port = int(url.split(":")[2].split("/")[0])

        lives(server, running[0].kill, lambda: running.append(started(port)))


def test_a_server_at_an_address_that_was_restarted_is_met_anew_and_the_call_runs_once() -> None:
    with at_an_address() as (url, running):
        server = MCPServer.http("e", url, trusted=True)

        async def main() -> Turn:
            engine = Engine([server])
            async with engine, engine.run("r") as run:
                running[0].kill()
                running[0].wait()
                running.append(started(int(url.split(":")[2].split("/")[0])))
                return await submit(run, ("e__echo", {"message": "once"}))

        turn = asyncio.run(asyncio.wait_for(main(), 50))

    assert turn.calls[0].outcome == Success(value="Echo: once")


def test_writes_and_a_read_of_one_file_keep_the_order_of_the_request(tmp_path: Path) -> None:
    path = str(tmp_path / "race.txt")
    server = MCPServer.stdio(
        "f",
        "node",
        [FILES, str(tmp_path)],
        trusted=True,
        tools={
            "write_file": {"effect": "write", "claims": ["write file:{path}"]},  # type: ignore[typeddict-item]
            "read_text_file": {"effect": "read", "claims": ["read file:{path}"]},  # type: ignore[typeddict-item]
        },
    )

    async def main() -> Turn:
        engine = Engine([server], workspace=tmp_path)
        async with engine, engine.run("r") as run:
            writes = [("f__write_file", {"path": path, "content": f"v{n}"}) for n in range(4)]
            return await submit(run, *writes, ("f__read_text_file", {"path": path}))

    turn = asyncio.run(asyncio.wait_for(main(), 50))

    assert [call.state for call in turn.calls] == [State.SUCCEEDED] * 5
    assert turn.calls[-1].outcome == Success(value={"content": "v3"})
