"""Records the journal of the current format that every later version must read.

    PYTHONPATH=src python tests/golden/record.py

Run it once, in the last commit before a format becomes an older one, and never again for that
format: what it wrote then is the point. Hosts and boots are made up, and its question never
expires, so that the file is the same for everybody and for ever.
"""

import asyncio
import os
import re
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from laneway import Effect, Engine, ToolContext, plan_tool, tool
from laneway.ids import RunId
from laneway.journal.chain import first_link, next_link
from laneway.journal.lease import this_driver
from laneway.journal.migrate import FORMAT


@tool(effect=Effect.READ, claims=["read file:{path}"])
async def read_note(path: str) -> str:
    return f"note of {path}"


@tool(effect=Effect.WRITE, idempotent=True, claims=["write file:{path}"])
async def write_note(path: str, text: str) -> int:
    return len(text) if path else 0


@tool(effect=Effect.EXTERNAL, approval=True, claims=["lane:ship"])
async def deploy(version: int) -> str:
    return f"deployed {version}"


@tool(effect=Effect.EXTERNAL, claims=["lane:bank"])
async def pay(amount: int) -> str:
    if amount == UNLUCKY:
        os._exit(0)
    return "paid"


@tool(effect=Effect.READ, claims=[], retries=1)
async def flaky(context: ToolContext) -> str:
    if context.attempt == 1:
        raise ConnectionError("the line was cut")
    return "second time"


@tool(effect=Effect.WRITE, claims=["write file:{path}"], timeout=0.05)
async def hang(path: str) -> str:
    await asyncio.sleep(60)
    return path


@tool(effect=Effect.WRITE, claims=["write file:/w/all"])
async def both(context: ToolContext) -> Any:
    await context.invoke("pay", amount=7)
    return await context.invoke("read_note", path="a.txt")


TOOLS: list[Any] = [read_note, write_note, deploy, pay, flaky, hang, both, plan_tool()]
UNLUCKY = 13

MIXED = {
    "calls": [
        {"id": "w1", "tool": "write_note", "arguments": {"path": "m.txt", "text": "one"}},
        {"id": "w2", "tool": "write_note", "arguments": {"path": "m.txt", "text": "two"}},
        {"id": "r", "tool": "read_note", "arguments": {"path": "${f}.txt"}, "after": ["w2"]},
        {"id": "f", "tool": "flaky", "arguments": {}},
        {"id": "h", "tool": "hang", "arguments": {"path": "h.txt"}},
        {"id": "s", "tool": "read_note", "arguments": {"path": "s.txt"}, "needs": ["h"]},
        {"id": "b", "tool": "both", "arguments": {}},
        {
            "id": "p",
            "tool": "plan",
            "arguments": {
                "calls": [
                    {"id": "x", "tool": "read_note", "arguments": {"path": "x.txt"}},
                    {"id": "y", "tool": "pay", "arguments": {"amount": 1}, "needs": ["x"]},
                ]
            },
            "needs": ["f"],
        },
        {"id": "d", "tool": "deploy", "arguments": {"version": 8}},
    ]
}


def answer(number: int, *calls: tuple[str, str, dict[str, Any]]) -> dict[str, Any]:
    asked = [{"type": "tool_use", "id": i, "name": name, "input": said} for i, name, said in calls]
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "On it."}, *asked],
        "stop_reason": "tool_use",
    }


PLAN = {
    "calls": [
        {"id": "q", "tool": "read_note", "arguments": {"path": "b.txt"}},
        {"id": "p", "tool": "pay", "arguments": {"amount": UNLUCKY}, "needs": ["q"]},
        {"id": "z", "tool": "read_note", "arguments": {"path": "c.txt"}, "needs": ["p"]},
    ]
}


async def record(path: Path) -> None:
    """Leave finished runs, one with an open question, and one whose process died in a payment."""
    async with Engine(TOOLS, journal=path, workspace="/w") as engine:
        async with engine.run("finished") as run:
            await run.say("Keep a note.")
            await run.submit(
                answer(
                    1,
                    ("c1", "write_note", {"path": "a.txt", "text": "Grüße 😀"}),
                    ("c2", "read_note", {"path": "a.txt"}),
                    ("c3", "no_such_tool", {}),
                )
            )
            await run.submit(answer(2, ("c4", "pay", {"amount": 5})))
        async with engine.run("mixed") as run:
            turn = await run.submit(MIXED, wait=False)
            while not run.approvals:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.01)
            await run.deny("d", by="ann", reason="not on a Friday")
            await turn.wait()
            await run.note({"seen": "all of it"})
        async with engine.run("asks") as run:
            await run.submit(answer(3, ("d", "deploy", {"version": 7})), wait=False)
            while not run.approvals:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.01)
        async with engine.run("edited") as run:
            turn = await run.submit(answer(4, ("e1", "deploy", {"version": 1})), wait=False)
            while not run.approvals:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.01)
            await run.approve("e1", by="ann", arguments={"version": 2}, for_="run")
            await turn.wait()
            await run.submit(answer(5, ("e2", "deploy", {"version": 3})))
            await run.revoke("t1.1.a1", by="bob", reason="once was enough")
        async with engine.run("died") as run:
            await run.submit(PLAN)


def anonymise(path: Path) -> None:
    """Make hosts and boots up, let the question live for ever, and chain the facts anew."""
    here = this_driver()

    def anonymous(text: str | None) -> str | None:
        if text is None:
            return None
        text = text.replace(f'"host":"{here.host}"', '"host":"build-7"')
        text = text.replace(here.boot, "11111111-2222-4333-8444-555555555555")
        return re.sub(r'"expires_wall":[0-9.]+', '"expires_wall":4102444800.0', text)

    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.create_function("anonymous", 1, anonymous)
        connection.execute("UPDATE runs SET driver = anonymous(driver), beat = 0, pulse = 0")
        connection.execute("UPDATE facts SET body = anonymous(body)")
        for number, name in connection.execute("SELECT id, name FROM runs").fetchall():
            link = first_link(RunId(name))
            for place, wall, mono, body in connection.execute(
                "SELECT place, wall, mono, CAST(body AS BLOB) FROM facts "
                "WHERE place >> 32 = ? ORDER BY place",
                (number,),
            ).fetchall():
                link = next_link(link, place & 0xFFFFFFFF, wall, mono, body)
                connection.execute("UPDATE facts SET hash = ? WHERE place = ?", (link, place))
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


if __name__ == "__main__":
    file = Path(__file__).with_name(f"format-{FORMAT}.db")
    if file.exists():
        sys.exit(f"{file} is there already, and stays as it is")
    pid = os.fork()
    if not pid:
        asyncio.run(record(file))
    os.waitpid(pid, 0)
    anonymise(file)
