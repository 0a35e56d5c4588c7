"""Ollama's own chat (its OpenAI-compatible one is read as OpenAI's).

Reads a whole response (`message` with `done` or `created_at`); its calls are those of `tool_calls`,
with decoded arguments and, but for the newest servers, without ids: calls and results are paired by
their order. Thoughts pass through untouched. Feeds the engine with a `Reply`, and the conversation
with `tool` messages that name their tool.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from laneway.engine.kinds import is_list, is_object
from laneway.engine.providers.faults import refused
from laneway.engine.providers.functions import read_object
from laneway.engine.providers.mixing import see_that_own
from laneway.engine.providers.parts import told
from laneway.engine.providers.payload import assistant_role, described, opened
from laneway.engine.providers.repair import UNNAMED, misnamed, paired, settled_ids
from laneway.engine.providers.reply import Answer, Asked, Message, Reply
from laneway.engine.providers.say import said_by_host
from laneway.engine.providers.tool_calls import content_of, copied_message, is_legal, renamed
from laneway.engine.providers.unsent import minted_in, note_unsent, sent, unsent
from laneway.errors import PayloadError

LIMIT_REACHED = "length"
"""The `done_reason` after which a call at the end may be cut."""


class OllamaChat:
    """The format of POST /api/chat."""

    name = "ollama-chat"

    def recognises(self, payload: Mapping[str, Any], /) -> bool:
        """Whether there is a message beside the marks of Ollama's answers."""
        message = payload.get("message")
        if message is None or isinstance(message, str):
            return False
        return "done" in payload or "created_at" in payload or "done_reason" in payload

    def parse(self, payload: Mapping[str, Any], /) -> Reply:
        """Read a response or a message; see `Format.parse`."""
        if payload.get("error"):
            raise refused(self.name, opened(payload["error"]))
        if payload.get("done") is False:
            raise PayloadError(
                "done",
                "it is false: this is a chunk of a stream",
                "Submit the finished answer, or read the stream with `run.stream`",
            )
        given = opened(payload.get("message", payload))
        if not is_object(given) or not {"role", "content", "tool_calls"} & given.keys():
            raise PayloadError(
                "message", f"there is none in {described(payload)}", "Submit the whole answer"
            )
        message = copied_message(given, "message")
        assistant_role(message, "message")
        see_that_own(self.name, message.get("content"), "message.content")
        cut = payload.get("done_reason") == LIMIT_REACHED
        calls = _calls(message, cut=cut, seed=str(payload.get("created_at", "")))
        return Reply(provider=self.name, message=message, calls=calls)

    def render(self, message: Message, answers: Sequence[Answer], /) -> list[Message]:
        """Write one `tool` message per call behind the assistant message."""
        minted, message = unsent(message).get("minted", ()), sent(message)
        entries: list[Message] = message.get("tool_calls") or []
        ordered = paired([entry["id"] for entry in entries], answers)
        names = misnamed(ordered)
        message = renamed(message, names)
        if minted:
            unnamed = [_without_id(entry, minted) for entry in message["tool_calls"]]
            message = {**message, "tool_calls": unnamed}
        return [message, *(_result(answer, names, minted) for answer in ordered)]

    def with_arguments(
        self, message: Message, arguments: Mapping[str, dict[str, Any]], /
    ) -> Message:
        """Write other arguments into some calls."""
        entries = [
            {**entry, "function": {**entry["function"], "arguments": arguments[entry["id"]]}}
            if entry["id"] in arguments
            else entry
            for entry in message.get("tool_calls", ())
        ]
        return {**message, "tool_calls": entries} if entries else message

    def say(self, said: object, /) -> Message:
        """Make a user message."""
        return said_by_host(said)

    def join(self, messages: Sequence[Message], /) -> list[Message]:
        """Put messages in a row as they come."""
        return list(messages)


def _calls(message: Message, *, cut: bool, seed: str) -> tuple[Asked, ...]:
    entries: Any = message.get("tool_calls")
    if not entries:
        message.pop("tool_calls", None)
        return ()
    if not is_list(entries):
        raise PayloadError("message.tool_calls", f"expected a list, not {described(entries)}")
    for index, entry in enumerate(entries):
        if not is_object(entry) or not is_object(entry.get("function")):
            raise PayloadError(
                f"message.tool_calls[{index}]",
                f"expected an object with a function, not {described(entry)}",
            )
    given = [entry.get("id") for entry in entries]
    ids = settled_ids(entries, is_legal=is_legal, content=content_of, mint=_mint, key=seed)
    calls: list[Asked] = []
    for entry, call_id in zip(entries, ids, strict=True):
        if call_id is not None:
            entry["id"] = call_id
            last = cut and entry is entries[-1]
            calls.append(read_object(entry["function"], "arguments", call_id, cut=last))
    pairs = zip(entries, ids, strict=True)
    message["tool_calls"] = [entry for entry, call_id in pairs if call_id is not None]
    note_unsent(message, "minted", minted_in(message, given, calls))
    return tuple(calls)


def _mint(digits: str) -> str:
    return f"call_{digits[:12]}"


def _without_id(entry: Message, minted: Sequence[str]) -> Message:
    if entry["id"] not in minted:
        return entry
    return {name: value for name, value in entry.items() if name != "id"}


def _result(answer: Answer, names: Mapping[str, str], minted: Sequence[str]) -> Message:
    name = names.get(answer.id, answer.name) or UNNAMED
    result: Message = {"role": "tool", "tool_name": name, "content": told(answer)}
    if answer.id not in minted:
        result["tool_call_id"] = answer.id
    return result
