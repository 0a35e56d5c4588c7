"""The proxy, driven by the SDK's own client: what passes through, what is kept, what is refused."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from laneway import LanewayError
from laneway.journal.memory import MemoryStore
from laneway.journal.sqlite import SqliteStore

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
from mcp import Client, StdioServerParameters
from mcp.shared.memory import create_client_server_memory_streams
from mcp.types import CallToolResult, TextContent

from laneway.engine.mcp.proxy.config import read_config
from laneway.engine.mcp.proxy.gateway import Gateway
from laneway.engine.mcp.proxy.serving import serve_streams

T = TypeVar("T")
SCRIPT = str(Path(__file__).resolve().parent / "servers" / "scripted.py")


def written(folder: Path, *, own: dict[str, Any] | None = None, **server: Any) -> Path:
    """Write a configuration with the scripted server in it."""
    words = {
        "command": sys.executable,
        "args": [SCRIPT, str(folder / "log")],
        "trusted": True,
        "protocol": "legacy",
        **server,
    }
    path = folder / "proxy.json"
    path.write_text(json.dumps({"mcpServers": {"s": words}, "laneway": own or {}}))
    return path


class _InMemory:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._streams = create_client_server_memory_streams()

    async def __aenter__(self) -> Any:
        near, far = await self._streams.__aenter__()
        self._serving = asyncio.create_task(serve_streams(self._gateway, *far))
        return near

    async def __aexit__(self, *error: object) -> None:
        await self._streams.__aexit__(None, None, None)
        await self._serving


def met(
    config: Path,
    host: Callable[[Client, Gateway], Awaitable[T]],
    store: MemoryStore | None = None,
    mode: str = "legacy",
    **options: Any,
) -> T:
    async def main() -> T:
        gateway = Gateway(read_config(config), config.parent, journal=store or MemoryStore())
        async with Client(_InMemory(gateway), mode=mode, cache=None, **options) as client:
            return await host(client, gateway)

    return asyncio.run(asyncio.wait_for(main(), 50))


def kept(store: MemoryStore) -> dict[str, list[Any]]:
    """The facts of every run."""

    async def read() -> dict[str, list[Any]]:
        await store.open()
        runs = sorted(one.run for one in await store.runs())
        return {run: [row.fact for row in await store.read(run)] for run in runs}

    return asyncio.run(read())


def text(result: CallToolResult) -> str:
    return "".join(one.text for one in result.content if isinstance(one, TextContent))


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_session_is_a_run_and_each_of_its_calls_a_call_within_it(
    tmp_path: Path, mode: str
) -> None:
    store = MemoryStore()

    async def host(client: Client, gateway: Gateway) -> list[str]:
        listed = [one.name for one in (await client.list_tools()).tools]
        assert "s__echo" in listed
        assert "mcp_session" not in listed
        results = await asyncio.gather(
            *(client.call_tool("s__echo", {"text": word}) for word in "abc")
        )
        return [text(one) for one in results]

    assert met(written(tmp_path), host, store, mode) == ["a", "b", "c"]
    runs = list(kept(store))
    assert [run.removeprefix(runs[0]) for run in runs] == ["", "/t1.1/1", "/t1.1/2", "/t1.1/3"]


def test_calls_that_conflict_keep_the_order_in_which_a_client_asked(tmp_path: Path) -> None:
    async def host(client: Client, gateway: Gateway) -> None:
        names = ["s__noise", "s__wipe", "s__echo", "s__die", "s__noise", "s__fails"]
        await asyncio.gather(*(client.call_tool(name, {}) for name in names))

    met(written(tmp_path, trusted=False), host)

    done = (tmp_path / "log").read_text().split()
    assert done == ["noise", "wipe", "echo", "die", "noise", "fails"]


def test_a_server_that_dies_is_an_error_that_says_what_may_have_happened(tmp_path: Path) -> None:
    async def host(client: Client, gateway: Gateway) -> tuple[CallToolResult, CallToolResult]:
        return await client.call_tool("s__die", {}), await client.call_tool("s__echo", {})

    died, after = met(written(tmp_path), host)

    assert died.is_error
    assert (died.meta or {})["laneway/code"] == "TRANSPORT_CLOSED"
    assert "What it may have done: unknown." in text(died)
    assert text(after) == "echo"


def test_progress_and_changed_tools_are_passed_on(tmp_path: Path) -> None:
    heard: list[Any] = []

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    async def noticed(message: Any) -> None:
        heard.append(getattr(message, "method", message))

    async def host(client: Client, gateway: Gateway) -> list[str]:
        await client.list_tools()
        await client.call_tool("s__progress", {}, progress_callback=progressed)
        await client.call_tool("s__grow", {})
        while "notifications/tools/list_changed" not in heard:
            await asyncio.sleep(0.01)
        return [one.name for one in (await client.list_tools()).tools]

    listed = met(written(tmp_path), host, message_handler=noticed)

    assert "step 4" in heard
    assert "s__grown" in listed


def test_cancelling_a_request_cancels_its_call(tmp_path: Path) -> None:
    store = MemoryStore()

    async def host(client: Client, gateway: Gateway) -> str:
        asked = asyncio.create_task(client.call_tool("s__late", {}))
        while not (tmp_path / "log").exists():
            await asyncio.sleep(0.01)
        asked.cancel()
        await asyncio.wait([asked])
        return text(await client.call_tool("s__grow", {}))

    assert met(written(tmp_path), host, store) == "grown"
    facts = next(facts for run, facts in kept(store).items() if run.endswith("/1"))
    assert "CANCELLED" in [str(getattr(fact, "state", "")) for fact in facts]


def test_a_policy_denies_and_hides_and_leaves_the_session_alone(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(
        'otherwise = "deny"\n[[rule]]\nname = "reads"\ndecision = "allow"\ntools = ["s__echo"]\n'
    )

    async def host(client: Client, gateway: Gateway) -> tuple[list[str], CallToolResult, str]:
        listed = [one.name for one in (await client.list_tools()).tools]
        denied = await client.call_tool("s__grow", {})
        return listed, denied, text(await client.call_tool("s__echo", {"text": "yes"}))

    listed, denied, echoed = met(written(tmp_path, own={"policy": "policy.toml"}), host)

    assert listed == ["s__echo"]
    assert (denied.meta or {})["laneway/code"] == "POLICY_DENIED"
    assert echoed == "yes"


def test_an_approval_is_waited_for_while_other_calls_go_on(tmp_path: Path) -> None:
    async def host(client: Client, gateway: Gateway) -> tuple[str, str]:
        asked = asyncio.create_task(client.call_tool("s__grow", {}))
        await asyncio.sleep(0)
        other = text(await client.call_tool("s__echo", {"text": "meanwhile"}))
        (session,) = gateway._sessions.values()
        async with asyncio.timeout(20):
            assert session.run is not None
            while not (questions := session.run.approvals):
                await asyncio.sleep(0.01)
        await session.run.approve(questions[0].id, by="ann")
        return other, text(await asked)

    config = written(tmp_path, tools={"grow": {"approval": True}})

    assert met(config, host) == ("meanwhile", "grown")


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent / "src")}
COMMAND = [sys.executable, "-P", "-m", "laneway.engine.cli", "mcp-proxy"]


def test_the_command_serves_a_client_over_stdio_and_leaves_its_journal(tmp_path: Path) -> None:
    started = StdioServerParameters(
        command=COMMAND[0], args=[*COMMAND[1:], str(written(tmp_path))], env=ENVIRONMENT
    )

    async def main() -> str:
        async with Client(started, mode="legacy") as client:
            return text(await client.call_tool("s__echo", {"text": "through"}))

    assert asyncio.run(asyncio.wait_for(main(), 50)) == "through"
    assert (tmp_path / "laneway.db").is_file()


def test_the_command_serves_several_clients_over_http_each_with_a_run(tmp_path: Path) -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]

    async def main() -> list[str]:
        serving = await asyncio.create_subprocess_exec(
            *COMMAND, str(written(tmp_path)), "--http", f"127.0.0.1:{port}", env=ENVIRONMENT
        )
        try:
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    await asyncio.sleep(0.05)
                else:
                    writer.close()
                    break
            return [await through(f"http://127.0.0.1:{port}/mcp", word) for word in ("a", "b")]
        finally:
            serving.send_signal(signal.SIGINT)
            await serving.wait()

    async def through(url: str, word: str) -> str:
        async with Client(url, mode="legacy") as client:
            return text(await client.call_tool("s__echo", {"text": word}))

    assert asyncio.run(asyncio.wait_for(main(), 50)) == ["a", "b"]

    async def runs() -> list[str]:
        store = SqliteStore(tmp_path / "laneway.db")
        await store.open()
        try:
            return [one.run for one in await store.runs()]
        finally:
            await store.close()

    assert len([run for run in asyncio.run(runs()) if "/" not in run]) == 2


def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, str(written(tmp_path)), "--http", "here"],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert "write HOST:PORT, as in 127.0.0.1:8931" in done.stderr


@pytest.mark.parametrize(
    ("written_down", "told"),
    [
        ("{", "is no JSON"),
        ("{}", "mcpServers: Field required"),
        ('{"mcpServers": {}}', "names no server"),
        ('{"mcpServers": {"s": {}}}', "mcpServers.s: give a command to start, or a url"),
        ('{"mcpServers": {"s": {"command": "${NOT_SET_}"}}}', "no variable 'NOT_SET_'"),
        ('{"mcpServers": {"s": {"command": "x", "limits": {"x": 1}}}}', "'x' is no limit"),
        ('{"mcpServers": {"s": {"command": "x"}}, "laneway": {"x": 1}}', "laneway.x: Extra"),
        (
            '{"mcpServers": {"s": {"command": "x"}}, "laneway": {"limits": {"x": 1}}}',
            "laneway.limits: 'x' is no limit",
        ),
        ('{"mcpServers": {"s": {"command": "x", "tools": {"t": {"x": 1}}}}}', "tools.t.x: Extra"),
    ],
)
def test_a_configuration_that_cannot_be_meant_is_refused_by_place(
    tmp_path: Path, written_down: str, told: str
) -> None:
    path = tmp_path / "proxy.json"
    path.write_text(written_down)

    with pytest.raises(LanewayError) as refused:
        Gateway(read_config(path), tmp_path)

    assert told in str(refused.value)


def test_a_configuration_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LanewayError, match="cannot be read"):
        read_config(tmp_path / "none.json")
