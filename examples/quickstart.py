"""Embeds the engine in twenty lines: tools, a run, and a loop between the model and them.

    python examples/quickstart.py

Needs no key: `Recorded` stands where a host has `anthropic.AsyncAnthropic().messages`.
"""

import asyncio
from typing import Any

from laneway import Effect, Engine, tool

STOCK = {"pears": 12, "plums": 40}


@tool(effect=Effect.READ, claims=["read stock:{fruit}"])
async def count(fruit: str) -> int:
    """Count what is in stock."""
    return STOCK[fruit]


@tool(effect=Effect.WRITE, claims=["write stock:{fruit}"])
async def take(fruit: str, number: int) -> str:
    """Take fruit out of the stock."""
    STOCK[fruit] -= number
    return f"{STOCK[fruit]} {fruit} are left"


async def work(client: "Recorded", question: str) -> list[dict[str, Any]]:
    """Let model and tools take turns until the model asks for nothing more."""
    async with Engine([count, take]) as engine, engine.run("order-7") as run:
        messages = run.history() or await run.say(question)
        while True:
            reply = await client.create(messages=messages)
            turn = await run.submit(reply)  # parse, analyse, judge, queue, run, record
            messages += turn.messages  # the answer and all results, in the provider's form
            if not turn.calls:
                return messages


class Recorded:
    """Answers what was written down, one answer after the other."""

    def __init__(self, *contents: list[dict[str, Any]]) -> None:
        """Take the contents of the answers."""
        self._contents = contents

    async def create(self, *, messages: list[dict[str, Any]]) -> dict[str, Any]:
        """Give the answer that follows this conversation."""
        said = sum(message["role"] == "assistant" for message in messages)
        return {"role": "assistant", "content": self._contents[said]}


def use(call: str, name: str, **arguments: Any) -> dict[str, Any]:
    """Write a call as the model does."""
    return {"type": "tool_use", "id": call, "name": name, "input": arguments}


ANSWERS = (
    [
        use("toolu_1", "count", fruit="pears"),  # these two run side by side,
        use("toolu_2", "count", fruit="plums"),
        use("toolu_3", "take", fruit="pears", number=2),  # this one after the first,
        use("toolu_4", "take", fruit="pears", number=5),  # and this one after that
    ],
    [{"type": "text", "text": "There were 12 pears; 5 are left."}],
)

if __name__ == "__main__":
    for message in asyncio.run(work(Recorded(*ANSWERS), "Take 2 pears, then 5.")):
        print(f"{message['role']}: {message['content']}")
