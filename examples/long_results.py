"""Shows a result of two megabytes to a model: shortened, while another call gets all of it.

    python examples/long_results.py

Needs no key: the answers of the model are written down. The second one reads on in the long result.
"""

import asyncio
from typing import Any

from laneway import Effect, Engine, Shaping, tool


@tool(effect=Effect.READ, shape="shell")
async def build() -> dict[str, Any]:
    """Build the project."""
    log = "\n".join(f"compiling part {number}" for number in range(80_000))
    return {"exit_code": 1, "stdout": f"{log}\nerror: no rule for part 80000", "stderr": ""}


@tool(effect=Effect.PURE)
async def count(text: str) -> int:
    """Count lines."""
    return text.count("\n") + 1


def answer(number: int, *calls: tuple[str, str, dict[str, Any]]) -> dict[str, Any]:
    """An answer of the model, in Anthropic's form."""
    blocks = [
        {"type": "tool_use", "id": call, "name": name, "input": arguments}
        for call, name, arguments in calls
    ]
    return {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": blocks}


async def main() -> None:
    """Run both answers."""
    async with Engine([build, count], shaping=Shaping(result_chars=600)) as engine:
        print(engine.prompt(), end="\n\n")
        async with engine.run("long") as run:
            whole = {"$from": "b1", "path": "stdout"}
            first = await run.submit(
                answer(1, ("b1", "build", {}), ("c1", "count", {"text": whole}))
            )
            part = {"result": "t1.1", "path": "stdout", "first": 79_999, "last": 80_001}
            second = await run.submit(answer(2, ("r1", "read_result", part)))
    for block in [*first.messages[-1]["content"], *second.messages[-1]["content"]]:
        print(f"--- {block['tool_use_id']}\n{block['content']}")


if __name__ == "__main__":
    asyncio.run(main())
