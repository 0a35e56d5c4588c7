"""Cohere's chat, version 2.

Reads a whole response (`message` and `finish_reason`) or a bare assistant message with a
`tool_plan`; its calls are those of `tool_calls`. Plans, citations and thoughts pass through
untouched. Feeds the engine with a `Reply`, and the conversation with `tool` messages, whose content
is a text: the service takes documents there, but no pictures.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from laneway.engine.kinds import is_object
from laneway.engine.providers.faults import refused
from laneway.engine.providers.mixing import see_that_own
from laneway.engine.providers.parts import told
from laneway.engine.providers.payload import assistant_role, described, opened
from laneway.engine.providers.repair import misnamed, paired
from laneway.engine.providers.reply import Answer, Asked, Message, Reply
from laneway.engine.providers.say import said_by_host
from laneway.engine.providers.tool_calls import (
    copied_message,
    read_tool_calls,
    renamed,
    with_other_arguments,
)
from laneway.errors import PayloadError, ProviderRefusedError

LIMIT_REACHED = ("MAX_TOKENS", "TIMEOUT")
"""The values of `finish_reason` after which a call at the end may be cut."""

_OF_ERROR = {"id", "message", "data"}

NO_ANSWER = "(no answer)"
"""Stands where the model said nothing: an assistant message with nothing in it is refused later."""


class CohereV2:
    """The format of POST /v2/chat."""

    name = "cohere-v2"

    def recognises(self, payload: Mapping[str, Any], /) -> bool:
        """Whether there is a message with a reason for its end, a plan, or an error with an id."""
        if isinstance(payload.get("message"), str):
            return payload.keys() <= _OF_ERROR and "id" in payload
        return "tool_plan" in payload or (
            "finish_reason" in payload and "message" in payload and "delta" not in payload
        )

    def parse(self, payload: Mapping[str, Any], /) -> Reply:
        """Read a response or a message; see `Format.parse`."""
        given = opened(payload.get("message", payload))
        if isinstance(given, str):
            raise refused(self.name, {"message": given})
        if not is_object(given):
            raise PayloadError("message", f"expected an object, not {described(given)}")
        reason = payload.get("finish_reason")
        if reason == "ERROR":
            raise ProviderRefusedError(self.name, reason, "the answer broke off")
        if "message" not in payload and not {"tool_plan", "tool_calls", "content"} & given.keys():
            raise PayloadError(
                "message", f"there is none in {described(given)}", "Submit the whole answer"
            )
        message = copied_message(given, "message")
        assistant_role(message, "message")
        see_that_own(self.name, message.get("content"), "message.content")
        key = payload.get("id") if "message" in payload else None
        key = key if isinstance(key, str) else ""
        calls: tuple[Asked, ...] = ()
        if message.get("tool_calls"):
            cut = reason in LIMIT_REACHED
            calls = read_tool_calls(message, "message", mint=_mint, cut=cut, key=key)
        else:
            message.pop("tool_calls", None)
        return Reply(provider=self.name, message=message, calls=calls, key=key)

    def render(self, message: Message, answers: Sequence[Answer], /) -> list[Message]:
        """Write one `tool` message per call behind the assistant message."""
        entries: list[Message] = message.get("tool_calls") or []
        ordered = paired([entry["id"] for entry in entries], answers)
        if not entries and not message.get("content"):
            message = {**message, "content": NO_ANSWER}
        results = [
            {"role": "tool", "tool_call_id": answer.id, "content": told(answer)}
            for answer in ordered
        ]
        return [renamed(message, misnamed(ordered)), *results]

    def with_arguments(
        self, message: Message, arguments: Mapping[str, dict[str, Any]], /
    ) -> Message:
        """Write other arguments into some calls."""
        return with_other_arguments(message, arguments)

    def say(self, said: object, /) -> Message:
        """Make a user message."""
        return said_by_host(said)

    def join(self, messages: Sequence[Message], /) -> list[Message]:
        """Put messages in a row as they come."""
        return list(messages)


def _mint(digits: str) -> str:
    return f"call_{digits[:12]}"
