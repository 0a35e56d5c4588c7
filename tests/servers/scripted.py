"""An MCP server that misbehaves to order: JSON-RPC over stdio, one message a line, no SDK.

Its tools say what it does; `argv[1]`, if given, is a file to which it appends a line per tool call.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

LOG = Path(sys.argv[1]) if len(sys.argv) > 1 else None
READ, WRITE = {"readOnlyHint": True}, {"openWorldHint": False}
TOOLS: dict[str, dict[str, Any]] = {
    "echo": READ,
    "die": {},
    "read_die": READ,
    "exit_with_child": {},
    "slow": WRITE,
    "read_slow": READ,
    "deaf": WRITE,
    "late": WRITE,
    "never": WRITE,
    "progress": READ,
    "grow": WRITE,
    "error": WRITE,
    "fails": WRITE,
    "ask": READ,
    "noise": READ,
    "lies": WRITE,
    "wipe": {"destructiveHint": True},
}
deaf = False
answers: dict[Any, Any] = {}
lock = threading.Lock()


def send(**message: Any) -> None:
    with lock:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def described(name: str, hints: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    told = {"name": name, "description": name, "inputSchema": schema, "annotations": hints}
    if name == "lies":
        told["outputSchema"] = {"type": "object", "required": ["n"]}
    return told


def text(told: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": told}], **more}


def called(request: Any, name: str, arguments: dict[str, Any], token: Any) -> None:
    global deaf  # noqa: PLW0603 - one server, one state
    if LOG is not None:
        with LOG.open("a") as file:
            file.write(f"{name}\n")
    match name:
        case "die" | "read_die":
            sys.stderr.write("last words\n")
            sys.stderr.flush()
            os._exit(3)
        case "exit_with_child":
            subprocess.Popen(["sleep", "1000"])  # Holds the output open.
            os._exit(0)
        case "deaf":
            deaf = True
        case "slow" | "read_slow" | "never" | "late":
            pass
        case "progress":
            for step in range(5):
                time.sleep(0.1)
                params = {"progressToken": token, "progress": step, "message": f"step {step}"}
                send(method="notifications/progress", params=params)
            send(id=request, result=text("at last"))
        case "grow":
            TOOLS["grown"] = READ
            send(method="notifications/tools/list_changed")
            send(id=request, result=text("grown"))
        case "error":
            send(id=request, error={"code": int(arguments["text"]), "message": "no"})
        case "fails":
            send(id=request, result=text("the disk is full", isError=True))
        case "ask":
            answers["roots"] = request
            send(id="roots", method="roots/list")
        case "noise":
            print("this is no JSON", flush=True)
            send(id=request, result=text("heard"))
        case "lies":
            send(id=request, result=text("{}", structuredContent={"m": 1}))
        case _:
            send(id=request, result=text(arguments.get("text", name)))


def main() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for line in sys.stdin:
        message = json.loads(line)
        method, params = message.get("method"), message.get("params", {})
        if deaf:
            continue
        match method:
            case "initialize":
                result = {
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": {"tools": {"listChanged": True}},
                    "serverInfo": {"name": "scripted", "version": "1"},
                }
                send(id=message["id"], result=result)
            case "tools/list":
                listed = [described(name, hints) for name, hints in TOOLS.items()]
                send(id=message["id"], result={"tools": listed})
            case "tools/call":
                token = params.get("_meta", {}).get("progressToken")
                given = (message["id"], params["name"], params.get("arguments") or {}, token)
                answers[message["id"]] = params["name"]
                threading.Thread(target=called, args=given, daemon=True).start()
            case "notifications/cancelled":
                if answers.get(params["requestId"]) == "late":
                    send(id=params["requestId"], result=text("it was done"))
            case "ping":
                send(id=message["id"], result={})
            case None:
                if message.get("id") == "roots":
                    told = message.get("result") or message["error"]["message"]
                    send(id=answers["roots"], result=text(json.dumps(told)))
            case _:
                if "id" in message:
                    send(id=message["id"], error={"code": -32601, "message": "Method not found"})


if __name__ == "__main__":
    main()
