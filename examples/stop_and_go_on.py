"""Stops a run, tells the user why from the journal alone, and goes on with what the user says.

    python examples/stop_and_go_on.py

Needs no key and no model: the answers are written out as plans.
"""

import asyncio
from typing import Any

from laneway import Effect, Engine, StopReason, tool


@tool(effect=Effect.READ)
async def find_invoices(customer: str) -> list[int]:
    """Find the open invoices of a customer."""
    return [17, 21] if customer == "Ada" else []


@tool(effect=Effect.EXTERNAL, claims=["lane:bank"])
async def pay(invoice: int) -> str:
    """Pay an invoice."""
    return f"invoice {invoice} is paid"


def answer(name: str, **arguments: Any) -> dict[str, Any]:
    """What a model would have said."""
    return {"calls": [{"id": name, "tool": name, "arguments": arguments}]}


async def main() -> None:
    """Look, stop to ask, refuse what comes meanwhile, and go on."""
    async with Engine([find_invoices, pay]) as engine, engine.run("order-7") as run:
        await run.set_mode("plan", by="ann")  # look, but touch nothing
        await run.submit(answer("find_invoices", customer="Ada"))
        await run.stop(StopReason.NEEDS_USER_INPUT, "Ada has two open invoices: which one?")
        await run.submit(answer("pay", invoice=17))  # a model that does not wait is refused

        print(run.report())

        await run.say("The first.")  # the run goes on
        await run.set_mode("build", by="ann")
        turn = await run.submit(answer("pay", invoice=17))
        print(turn.outcomes["pay"])
        print(f"stopped: {run.stop_reason}")


if __name__ == "__main__":
    asyncio.run(main())
