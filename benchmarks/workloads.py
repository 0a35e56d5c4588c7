"""The shapes of work that are measured: who waits for whom, as plain data.

Every contender gets the same shape and nothing else; the bodies do nothing, so that what is
measured is the scheduling around them. The two payload forms are what a model would have sent.
"""

import json
from typing import Any

import msgspec

TOOL = "step"
"""The name of the one tool: it takes its `position` and returns it."""


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """Calls by position, each with the positions of its parents; all parents come before it.

    A workload of several turns repeats the same calls, one turn after the other, and positions
    count on through the turns.
    """

    name: str
    parents: tuple[tuple[int, ...], ...]
    turns: int = 1

    @property
    def n(self) -> int:
        """The number of calls in a turn."""
        return len(self.parents)

    @property
    def total(self) -> int:
        """The number of calls in all turns."""
        return self.n * self.turns

    @property
    def is_chain(self) -> bool:
        """Whether each call waits for the one before it."""
        return self.n > 1 and all(
            parents == (position - 1,) for position, parents in enumerate(self.parents) if position
        )

    def flat(self) -> "Workload":
        """As many calls and turns, nobody waits for anybody within a turn."""
        return Workload(name=self.name, parents=((),) * self.n, turns=self.turns)

    def children(self) -> list[list[int]]:
        """Turn the edges of one turn around."""
        children: list[list[int]] = [[] for _ in self.parents]
        for position, parents in enumerate(self.parents):
            for parent in parents:
                children[parent].append(position)
        return children

    def levels(self) -> list[list[int]]:
        """Group the positions of one turn by the length of the longest path to them."""
        level_of: list[int] = []
        levels: list[list[int]] = []
        for position, parents in enumerate(self.parents):
            level = 1 + max((level_of[parent] for parent in parents), default=-1)
            level_of.append(level)
            if level == len(levels):
                levels.append([])
            levels[level].append(position)
        return levels


def turn_of_one(turns: int = 50) -> Workload:
    """W1: a turn of one call, many times over, since one alone is too short to be timed."""
    return Workload(name="W1", parents=((),), turns=turns)


def independent(n: int) -> Workload:
    """W2: n calls in one turn that have nothing to do with each other."""
    return Workload(name="W2", parents=((),) * n)


def chain(n: int = 500) -> Workload:
    """W3: each call needs the one before it."""
    return Workload(name="W3", parents=((), *((position - 1,) for position in range(1, n))))


def layers(depth: int = 20, width: int = 50) -> Workload:
    """W4: layers of calls, each call with two parents in the layer above."""
    parents: list[tuple[int, ...]] = [()] * width
    for layer in range(1, depth):
        above = (layer - 1) * width
        parents += [
            tuple(sorted({above + column, above + (column + 1) % width})) for column in range(width)
        ]
    return Workload(name="W4", parents=tuple(parents))


WORKLOADS = (turn_of_one(), independent(1_000), independent(10_000), chain(), layers())


def plan(workload: Workload, turn: int) -> dict[str, Any]:
    """Write a turn in the plan form, which alone can say what needs what."""
    first = turn * workload.n
    return {
        "calls": [
            {
                "id": call_name(first + position),
                "tool": TOOL,
                "arguments": {"position": first + position},
                "needs": [call_name(first + parent) for parent in parents],
            }
            for position, parents in enumerate(workload.parents)
        ]
    }


def openai_chat(workload: Workload, turn: int) -> dict[str, Any]:
    """Write a turn as an answer of OpenAI's chat completions.

    Raises:
        ValueError: the workload has dependencies, which this form cannot say.
    """
    if any(workload.parents):
        raise ValueError(f"{workload.name} has dependencies: only the plan form can say them")
    first = turn * workload.n
    calls = [
        {
            "id": call_name(position),
            "type": "function",
            "function": {"name": TOOL, "arguments": json.dumps({"position": position})},
        }
        for position in range(first, first + workload.n)
    ]
    message = {"role": "assistant", "content": None, "refusal": None, "tool_calls": calls}
    return {
        "id": f"chatcmpl-{turn}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "recorded",
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": message}],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }


def payload_form(workload: Workload) -> str:
    """Name the form a model would use: its provider's, unless calls depend on each other."""
    return "plan" if any(workload.parents) else "openai-chat"


def payload(workload: Workload, turn: int) -> dict[str, Any]:
    """Write a turn in the form that `payload_form` names."""
    write = plan if payload_form(workload) == "plan" else openai_chat
    return write(workload, turn)


def call_name(position: int) -> str:
    """Name the call at a position as the payloads do."""
    return f"call_{position}"


def position_of(name: str) -> int:
    """Read the position out of a call's name."""
    return int(name.removeprefix("call_"))
