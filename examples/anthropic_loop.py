"""A host behind Anthropic's API that survives a crash: what the loop looks like, in full.

    python examples/anthropic_loop.py            # with recorded answers, no key needed
    python examples/anthropic_loop.py notes.db   # the same, kept in a journal

A real host makes `client = anthropic.AsyncAnthropic()`; nothing else changes, since `submit` takes
the SDK's object as well as its dict. Start it again on the same journal, and it goes on where it
was: what has an outcome is not done again.
"""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

from laneway import Engine, Run
from laneway.engine.toolkit import toolkit

QUESTION = "Note that the meeting is moved to Friday."


async def work(client: Any, journal: str | None, folder: Path) -> list[dict[str, Any]]:
    """Talk until the model asks for nothing more."""
    async with (
        Engine(toolkit(folder), journal=journal, workspace=folder) as engine,
        engine.run("notes") as run,
    ):
        await run.finish()  # what a crash left open, if anything
        messages = run.history() or await run.say(QUESTION)
        while not done(run):
            reply = await client.messages.create(
                model="claude-sonnet-4-5",
                max_tokens=4096,
                messages=messages,
                tools=engine.definitions("anthropic-messages"),
            )
            turn = await run.submit(reply)
            messages += turn.messages
        return messages


def done(run: Run) -> bool:
    """Whether the model's last answer asked for nothing."""
    return bool(run.turns) and not run.turns[-1].calls


class Recorded:
    """Stands in for `anthropic.AsyncAnthropic()`: gives answers that were written down."""

    def __init__(self) -> None:
        """Offer `client.messages.create`, as the SDK does."""
        self.messages = self

    async def create(self, *, messages: list[dict[str, Any]], **_: Any) -> dict[str, Any]:
        """Give the answer that follows this conversation."""
        return ANSWERS[sum(message["role"] == "assistant" for message in messages)]


def answer(number: int, *content: dict[str, Any]) -> dict[str, Any]:
    """Write an answer as POST /v1/messages does."""
    calls = any(block["type"] == "tool_use" for block in content)
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": list(content),
        "stop_reason": "tool_use" if calls else "end_turn",
        "usage": {"input_tokens": 700, "output_tokens": 60},
    }


def use(call: str, name: str, **arguments: Any) -> dict[str, Any]:
    """Write a call as the model does."""
    return {"type": "tool_use", "id": call, "name": name, "input": arguments}


ANSWERS = (
    answer(
        1,
        {"type": "text", "text": "Let me look at the notes."},
        use("toolu_1", "read_file", path="notes.md"),
        use("toolu_2", "search_files", pattern="(?i)meeting"),
    ),
    answer(2, use("toolu_3", "edit_file", path="notes.md", old="Thursday", new="Friday")),
    answer(3, {"type": "text", "text": "Done: the meeting is on Friday."}),
)


def main(journal: str | None = None) -> None:
    """Work in a temporary folder with one file of notes, and show it."""
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder, "notes.md")
        notes.write_text("# Notes\n\nMeeting on Thursday, 10:00.\n", encoding="utf-8")
        for message in asyncio.run(work(Recorded(), journal, Path(folder))):
            print(f"{message['role']}: {message['content']}")
        print(notes.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main(*sys.argv[1:])
