"""The model of the demo: its answers were written down, as POST /v1/messages gives them.

It asks for three files, runs the tests, edits, runs the tests again, and is content. Which answer
comes next follows from the conversation alone, as with a real model: from the number of answers in
it. So it needs no memory of its own, and goes on after a crash wherever the journal ends.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from laneway.engine.cli.demo_project import COUNT_QUANTITIES, KEEP_WHOLE_CENTS, SHOW_CENTS

TASK = "The tests of this project fail. Find out why, and repair it."
"""What the user asks."""

Message = dict[str, Any]
"""As Anthropic's API gives and takes it."""


def next_answer(messages: Sequence[Mapping[str, Any]]) -> Message:
    """Answer a conversation, as `client.messages.create(messages=…)` would.

    Raises:
        IndexError: the model has said its last word.
    """
    said: int = sum(message["role"] == "assistant" for message in messages)
    return ANSWERS[said]


def _answer(number: int, text: str, *calls: tuple[str, Message]) -> Message:
    content: list[Message] = [{"type": "text", "text": text}]
    content += [
        {"type": "tool_use", "id": f"toolu_0{number}_{at}", "name": name, "input": arguments}
        for at, (name, arguments) in enumerate(calls, 1)
    ]
    return {
        "id": f"msg_0{number}",
        "type": "message",
        "role": "assistant",
        "model": "recorded",
        "content": content,
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 400 * number, "output_tokens": 60 + 40 * len(calls)},
    }


def _edit(path: str, edit: tuple[str, str]) -> tuple[str, Message]:
    return "edit_file", {"path": path, "old": edit[0], "new": edit[1]}


ANSWERS: Sequence[Message] = (
    _answer(
        1,
        "I'll read the code and its tests first.",
        ("read_file", {"path": "cart.py"}),
        ("read_file", {"path": "discounts.py"}),
        ("read_file", {"path": "test_cart.py"}),
    ),
    _answer(2, "Now let me see which tests fail.", ("run_tests", {})),
    _answer(
        3,
        "Three faults: quantities are ignored, a discount leaves fractions of a cent, and the "
        "receipt shows one decimal.",
        _edit("cart.py", COUNT_QUANTITIES),
        _edit("discounts.py", KEEP_WHOLE_CENTS),
        _edit("cart.py", SHOW_CENTS),
    ),
    _answer(4, "Let me see whether that was all.", ("run_tests", {})),
    _answer(5, "All tests pass: the cart counts quantities, keeps whole cents, and shows them."),
)
