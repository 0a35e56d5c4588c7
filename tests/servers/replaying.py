"""Plays the server of a recorded MCP session: what the recording says, in its order.

`argv`: the file of sessions, and the id of one. A server line is sent when the client has sent the
request before it in the recording; requests that the client leaves out are left out with their
answers. Ids and progress tokens are those of the client.
"""

import json
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any


def same(recorded: dict[str, Any], arrived: dict[str, Any]) -> bool:
    if recorded["method"] != arrived["method"]:
        return False
    if recorded["method"] != "tools/call":
        return True
    one, other = recorded["params"], arrived["params"]
    named = one.get("name") == other["name"]
    return named and (one.get("arguments") or {}) == (other.get("arguments") or {})


def unlisted(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tools that the recording client called with success and had not been told of."""
    told = [one["msg"] for one in messages if one["dir"] == "server" and "result" in one["msg"]]
    lists = [one["result"]["tools"] for one in told if "tools" in one["result"]]
    known = {tool["name"] for tools in lists for tool in tools}
    good = {one["id"] for one in told if not one["result"].get("isError")}
    asked = [one["msg"] for one in messages if one["msg"].get("method") == "tools/call"]
    names = {one["params"].get("name", "") for one in asked if one["id"] in good} - known - {""}
    return [{"name": name, "inputSchema": {"type": "object"}} for name in sorted(names)]


def play(messages: list[dict[str, Any]]) -> None:
    ids: dict[Any, Any] = {}
    tokens: dict[Any, Any] = {}
    skipped: set[Any] = set()
    arrived: deque[dict[str, Any]] = deque()
    listed: list[dict[str, Any]] = []

    def receive() -> dict[str, Any]:
        while True:
            line = sys.stdin.readline()
            if not line:
                raise EOFError
            found: dict[str, Any] = json.loads(line)
            if found.get("method") != "tools/list" or not listed:
                return found
            # The recording client did not ask again when it was told of changes.
            print(
                json.dumps({"jsonrpc": "2.0", "id": found["id"], "result": listed[0]}), flush=True
            )

    def next_request() -> dict[str, Any]:
        while not arrived:
            message = receive()
            if "method" in message and "id" in message:
                arrived.append(message)
        return arrived[0]

    def later(at: int, request: dict[str, Any]) -> bool:
        rest = (one["msg"] for one in messages[at + 1 :] if one["dir"] == "client")
        return any("method" in one and "id" in one and same(one, request) for one in rest)

    for at, one in enumerate(messages):
        message = one["msg"]
        if one["dir"] == "client":
            if "method" not in message or "id" not in message:
                continue
            request = next_request()
            while not same(message, request) and not later(at, request):
                raise SystemExit(f"nobody recorded {request}")
            if not same(message, request):
                skipped.add(message["id"])
                continue
            arrived.popleft()
            ids[message["id"]] = request["id"]
            recorded = (message.get("params") or {}).get("_meta", {}).get("progressToken")
            tokens[recorded] = (request.get("params") or {}).get("_meta", {}).get("progressToken")
            continue
        told = dict(message)
        if "method" not in told:
            if told["id"] in skipped:
                continue
            told["id"] = ids[told["id"]]
            if "tools" in told.get("result", {}):
                told["result"] = {"tools": [*told["result"]["tools"], *unlisted(messages)]}
                listed.append(told["result"])
        elif told["method"] == "notifications/progress":
            told["params"] = {
                **told["params"],
                "progressToken": tokens[told["params"]["progressToken"]],
            }
        print(json.dumps(told), flush=True)
        if "method" in told and "id" in told:
            while True:  # The server waits for the host.
                answer = receive()
                if "method" not in answer:
                    break
                if "id" in answer:
                    arrived.append(answer)
    while True:
        receive()


if __name__ == "__main__":
    sessions = map(json.loads, Path(sys.argv[1]).read_text(encoding="utf-8").splitlines())
    with suppress(EOFError):
        play(next(one["messages"] for one in sessions if one["id"] == sys.argv[2]))
