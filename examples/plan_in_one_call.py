"""Lets a model hand over a whole plan in one call, and shows what becomes of it.

    python examples/plan_in_one_call.py

Needs no key: the answers of the model are written down. The first plan is refused, with all its
faults named; the second runs, its calls side by side where nothing keeps them apart.
"""

import asyncio
from typing import Any

from laneway import Effect, Engine, plan_tool, tool

PRICES = {"pears": 3, "plums": 2}
BASKET: dict[str, int] = {}


@tool(effect=Effect.READ, claims=["read price:{fruit}"])
async def price(fruit: str) -> dict[str, Any]:
    """Look a price up."""
    await asyncio.sleep(0.01)
    return {"fruit": fruit, "cents": PRICES[fruit]}


@tool(effect=Effect.WRITE, claims=["write basket:"])
async def put(fruit: str, cents: int) -> str:
    """Put a fruit into the basket."""
    BASKET[fruit] = cents
    return f"{fruit} for {cents}"


def call(name: str, tool: str, **arguments: Any) -> dict[str, Any]:
    """Write a call of a plan."""
    return {"id": name, "tool": tool, "arguments": arguments}


def answer(use: str, *calls: dict[str, Any]) -> dict[str, Any]:
    """Write an answer of the model that asks for a plan."""
    block = {"type": "tool_use", "id": use, "name": "plan", "input": {"calls": list(calls)}}
    return {"role": "assistant", "content": [block]}


CENTS = {"$from": "pears", "path": "cents"}
ANSWERS = (
    answer("toolu_1", call("pears", "prize", fruit="pears"), call("b", "put", cents="${plums}")),
    answer(
        "toolu_2",
        call("bought", "put", fruit="pears", cents=CENTS),
        call("pears", "price", fruit="pears"),
        call("plums", "price", fruit="plums"),
    ),
)


async def main() -> None:
    """Submit both answers; print what the model is told, and how the second plan went."""
    async with Engine([price, put, plan_tool()]) as engine, engine.run("basket") as run:
        for reply in ANSWERS:
            turn = await run.submit(reply)
            print(turn.messages[-1]["content"][0]["content"], end="\n\n")
        for each in run.turns[-1].calls:
            print(f"{each.id}  {each.record.tool}  {each.state}")
    print(f"basket: {BASKET}")


if __name__ == "__main__":
    asyncio.run(main())
