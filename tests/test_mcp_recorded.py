"""Recorded MCP sessions, played to our client, and the specification's own examples, validated."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from laneway import Engine, Failure, Limits, MCPServer, State, Success

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
from mcp.types import CallToolResult, ElicitResult, ErrorData

from laneway.engine.mcp.calling import relaying
from laneway.engine.mcp.reading import texts_of, value_of

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
SESSIONS = DATA / "mcp_sessions.jsonl"
EXAMPLES = DATA / "mcp_examples.jsonl"
PLAYER = Path(__file__).resolve().parent / "servers" / "replaying.py"

pytestmark = pytest.mark.skipif(not SESSIONS.is_file(), reason=f"{DATA} is not here")


def lines(file: Path) -> list[dict[str, Any]]:
    if not file.is_file():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def turns_of(messages: list[dict[str, Any]]) -> list[list[tuple[Any, str, dict[str, Any]]]]:
    """The tool calls of a recording; those with nothing from the server between are one turn."""
    turns: list[list[tuple[Any, str, dict[str, Any]]]] = []
    together = False
    for one in messages:
        message = one["msg"]
        if one["dir"] == "client" and message.get("method") == "tools/call":
            if "name" not in message["params"]:
                continue
            asked = message["params"]
            call = (message["id"], asked["name"], asked.get("arguments") or {})
            if together:
                turns[-1].append(call)
            else:
                turns.append([call])
            together = True
        else:
            together = False
    return turns


@pytest.mark.parametrize("session", [one["id"] for one in lines(SESSIONS)])
def test_a_recorded_session_comes_out_as_the_server_said_it(session: str) -> None:
    messages = next(one["messages"] for one in lines(SESSIONS) if one["id"] == session)
    answers = {
        one["msg"]["id"]: one["msg"]["result"]
        for one in messages
        if one["dir"] == "server" and "result" in one["msg"]
    }
    counted = {"succeeded": 0, "failed": 0, "refused here": 0, "cancelled": 0}

    async def sample(*_: Any) -> ErrorData:
        return ErrorData(code=-1, message="no model here")

    async def decline(*_: Any) -> ElicitResult:
        return ElicitResult(action="decline")

    async def main() -> None:
        server = MCPServer.stdio(
            "r",
            sys.executable,
            [str(PLAYER), str(SESSIONS), session],
            trusted=True,
            protocol="legacy",
            effect="read",  # type: ignore[arg-type]
            roots=["/workspace"],
            sampling=sample,
            elicitation=decline,
        )
        # Recorded calls were sent together, whatever they write: the lanes are not what is tried.
        engine = Engine([server], limits=Limits(grace_seconds=0.1), loops=None)
        async with engine, engine.run("replayed") as run:
            for number, calls in enumerate(turns_of(messages)):
                asked = [
                    {"type": "tool_use", "id": f"c{key}", "name": f"r__{name}", "input": given}
                    for key, name, given in calls
                ]
                message = {
                    "id": f"m{number}",
                    "role": "assistant",
                    "stop_reason": "tool_use",
                    "content": asked,
                }
                working = asyncio.Event()
                relaying.set(lambda *_, working=working: noted(working))
                turn = await run.submit(message, wait=False)
                for key, *_ in calls:
                    if key not in answers:
                        await working.wait()
                        await run.cancel(f"c{key}")
                await turn.close()
                for (key, *_), call in zip(calls, turn.calls, strict=True):
                    compare(call, answers.get(key), counted)

    asyncio.run(asyncio.wait_for(main(), 50))

    print(f"{session}: {counted}")
    assert counted["succeeded"] > 5
    assert counted["cancelled"] == ("everything" in session)


async def noted(working: asyncio.Event) -> None:
    working.set()


def compare(call: Any, recorded: dict[str, Any] | None, counted: dict[str, int]) -> None:
    if recorded is None:
        assert call.state is State.CANCELLED
        counted["cancelled"] += 1
        return
    result = CallToolResult.model_validate(recorded, by_name=False)
    if isinstance(call.outcome, Success):
        assert call.outcome.value == value_of(result, whole=False)
        counted["succeeded"] += 1
        return
    assert isinstance(call.outcome, Failure)
    assert result.is_error, call.outcome
    if call.outcome.code in {"INVALID_ARGUMENTS", "UNKNOWN_TOOL"}:
        counted["refused here"] += 1  # Before the server was asked, which refused it, too.
    else:
        assert texts_of(result) in call.outcome.message
        counted["failed"] += 1


def test_every_example_of_the_specification_is_valid_by_its_schema() -> None:
    schema = json.loads((DATA / "mcp_schemas" / "2026-07-28.json").read_text(encoding="utf-8"))
    examples = lines(EXAMPLES)

    for one in examples:
        jsonschema_rs.validator_for({**schema, "$ref": f"#/$defs/{one['type']}"}).validate(
            one["instance"]
        )

    assert len(examples) >= 60


def test_every_result_of_the_specifications_examples_is_read() -> None:
    results = [one["instance"] for one in lines(EXAMPLES) if one["type"] == "CallToolResult"]

    for one in results:
        result = CallToolResult.model_validate(one, by_name=False)
        if not result.is_error:
            value = value_of(result, whole=False)
            assert value == one.get("structuredContent", value)

    assert results


def test_every_tool_of_the_specifications_examples_can_be_offered() -> None:
    from mcp.types import Tool  # noqa: PLC0415

    tools = [one["instance"] for one in lines(EXAMPLES) if one["type"] == "Tool"]
    listed = [
        tool
        for one in lines(EXAMPLES)
        if one["type"] == "ListToolsResult"
        for tool in one["instance"]["tools"]
    ]
    server = MCPServer.over("x", lambda: None)

    made = [server._tool(f"x__{one['name']}", Tool.model_validate(one)) for one in tools + listed]

    assert made
