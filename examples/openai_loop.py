"""A host behind OpenAI's chat completions, or any server that speaks them.

    python examples/openai_loop.py   # with recorded answers, no key needed

A real host makes `client = openai.AsyncOpenAI()`; `submit` takes the SDK's object as well as its
dict. The model's calls run side by side where they may; a payment asks a human first, and the other
calls do not wait for the answer.
"""

import asyncio
import json
from typing import Any

from laneway import Effect, Engine, Run, tool

QUESTION = "Pay invoice 17 if it is ours, and tell me what is still open."


@tool(effect=Effect.READ, claims=["read invoices:{number}"])
async def invoice(number: int) -> dict[str, Any]:
    """Look an invoice up."""
    return {"number": number, "to": "ours", "cents": 12900}


@tool(effect=Effect.READ, claims=["read invoices:"])
async def open_invoices() -> list[int]:
    """List the numbers of invoices that are not paid."""
    return [17, 21]


@tool(effect=Effect.EXTERNAL, claims=["write invoices:{number}", "lane:bank"], approval=True)
async def pay(number: int, cents: int) -> str:
    """Pay an invoice."""
    return f"invoice {number} is paid: {cents / 100:.2f}"


async def work(client: Any) -> list[dict[str, Any]]:
    """Talk until the model asks for nothing more."""
    async with Engine([invoice, open_invoices, pay]) as engine, engine.run("invoices") as run:
        messages = await run.say(QUESTION)
        while True:
            reply = await client.chat.completions.create(
                model="gpt-5", messages=messages, tools=engine.definitions("openai-chat")
            )
            turn = await run.submit(reply, wait=False)
            asking = asyncio.create_task(answer_questions(run))
            await run.finish()
            asking.cancel()
            messages += turn.messages
            if not turn.calls:
                return messages


async def answer_questions(run: Run) -> None:
    """Ask the human whatever the turn asks; here somebody has said yes beforehand."""
    while True:
        for question in run.approvals:
            print(f"approved: {run.view.calls[question.call].record.tool} {question.arguments}")
            await run.approve(question.id, by="the example")
        await asyncio.sleep(0.01)


class Recorded:
    """Stands in for `openai.AsyncOpenAI()`: gives answers that were written down."""

    def __init__(self) -> None:
        """Offer `client.chat.completions.create`, as the SDK does."""
        self.chat = self.completions = self

    async def create(self, *, messages: list[dict[str, Any]], **_: Any) -> dict[str, Any]:
        """Give the answer that follows this conversation."""
        return ANSWERS[sum(message["role"] == "assistant" for message in messages)]


def answer(number: int, text: str | None, *calls: dict[str, Any]) -> dict[str, Any]:
    """Write an answer as POST /v1/chat/completions does."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = list(calls)
    finish = "tool_calls" if calls else "stop"
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 1750000000,
        "model": "gpt-5",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
    }


def use(call: str, name: str, **arguments: Any) -> dict[str, Any]:
    """Write a call as the model does."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": call, "type": "function", "function": function}


ANSWERS = (
    answer(1, None, use("call_1", "invoice", number=17), use("call_2", "open_invoices")),
    answer(2, None, use("call_3", "pay", number=17, cents=12900)),
    answer(3, "Invoice 17 is paid; 21 is still open."),
)

if __name__ == "__main__":
    for message in asyncio.run(work(Recorded())):
        print(json.dumps(message))
