"""A human changes what a tool is called with, and lets later calls of the same kind pass.

    python examples/approvals.py

`HUMAN` stands where a host asks somebody; another process could answer, too: `laneway approve`.
"""

import asyncio
from typing import Any

from laneway import Effect, Engine, Run, tool


@tool(effect=Effect.EXTERNAL, approval=True, claims=["lane:mail"])
async def send(to: str, text: str) -> str:
    """Send a mail."""
    return f"sent to {to}" if text else "nothing to send"


@tool(effect=Effect.READ, claims=[])
async def look(folder: str) -> str:
    """Look into a folder; it waits for no human."""
    return f"nothing new in {folder}"


HUMAN: dict[str, Any] = {"to": "team@example.org"}
"""What the human makes of the arguments."""


async def answer(run: Run) -> None:
    """Answer each question as it is asked, until the turn is over."""
    async for question in run.questions():
        print(f"{question.id} asks: {question.arguments}; {question.reason}")
        await run.approve(
            question.id,
            by="ann",
            arguments={**question.arguments, **HUMAN},
            pattern={"to": "*@example.org"},  # mails in there need no other answer
        )


async def main() -> None:
    """Let a model's answer run, then another one."""
    async with Engine([send, look]) as engine, engine.run("letters") as run:
        mail = call("a", "send", to="all@example.org", text="Hi")
        turn = await run.submit(says(mail, call("b", "look", folder="the inbox")), wait=False)
        await answer(run)
        await turn.wait()
        for message in turn.messages[1:]:
            for result in message["results"]:
                print(result)
        turn = await run.submit(says(call("c", "send", to="bob@example.org", text="Hi Bob")))
        print(f"{turn.call('c').rule}: {turn.messages[1]['results'][0]['value']}")


def says(*calls: dict[str, Any]) -> dict[str, Any]:
    """Write a model's answer."""
    return {"calls": list(calls)}


def call(name: str, tool_name: str, **arguments: Any) -> dict[str, Any]:
    """Write a call."""
    return {"id": name, "tool": tool_name, "arguments": arguments}


if __name__ == "__main__":
    asyncio.run(main())
