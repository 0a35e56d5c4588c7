"""Gives a run a small budget, and shows what becomes of calls that it has no room for.

    python examples/budgets.py

Needs no key: the answers of the model are written out.
"""

import asyncio
from typing import Any

from laneway import Budgets, Effect, Engine, Success, tool

PAGES = ("terms", "prices", "team", "news", "jobs")


@tool(effect=Effect.READ, claims=[])
async def fetch(page: str) -> str:
    """Fetch a page."""
    return f"The page about {page}."


def answer(*pages: str) -> dict[str, Any]:
    """An answer of the model that asks for pages, all at once."""
    asked = [
        {"type": "tool_use", "id": page, "name": "fetch", "input": {"page": page}} for page in pages
    ]
    usage = {"input_tokens": 700, "output_tokens": 120}
    return {"id": "msg-1", "role": "assistant", "type": "message", "content": asked, "usage": usage}


async def main() -> None:
    """Let three of five calls run."""
    budgets = Budgets(tool_calls=3, tokens=50_000)
    async with (
        Engine([fetch], budgets=budgets, on_budget=warn) as engine,
        engine.run("read") as run,
    ):
        turn = await run.submit(answer(*PAGES))
        for page, outcome in turn.outcomes.items():
            print(f"{page}: {outcome.value if isinstance(outcome, Success) else outcome.message}")
        await asyncio.sleep(0)  # the warnings are given between two steps of the event loop
        calls, tokens = run.budgets["tool_calls"], run.budgets["tokens"]
        print(f"{calls.left:g} calls and {tokens.left:g} tokens are left")


def warn(warning: Any) -> None:
    """Tell of a budget that comes to its end."""
    print(f"{warning.budget}: {warning.percent} % of {warning.limit:g} reached")


if __name__ == "__main__":
    asyncio.run(main())
