"""Anthropic messages, as POST /v1/messages answers them.

Reads a whole message, or a bare assistant message; its calls are the `tool_use` blocks. What the
provider runs itself (`server_tool_use`, `mcp_tool_use`, and their results) passes through
untouched. Feeds the engine with a `Reply`, and the conversation with one user message that holds
all the results of a turn.

What is mended in the message that goes back: ids (unique, of letters, digits, `_` and `-`), inputs
(always an object: `{}` where nothing or nothing readable stood; what was there stays in
`Asked.text`), names that are none, and blank texts, which requests may not hold.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from laneway.engine.kinds import is_list, is_object
from laneway.engine.providers.faults import refused, truncated
from laneway.engine.providers.mixing import see_that_own
from laneway.engine.providers.parts import Media, content_of
from laneway.engine.providers.payload import (
    arguments_of,
    assistant_role,
    copied,
    copied_slowly,
    described,
    is_roomy,
    opened,
    read_decoded,
    text_of_arguments,
)
from laneway.engine.providers.repair import misnamed, named, paired, settled_ids
from laneway.engine.providers.reply import Answer, Asked, Message, Reply
from laneway.engine.providers.say import said_by_host
from laneway.errors import PayloadError
from laneway.outcomes import Failure

LIMIT_REACHED = ("max_tokens", "model_context_window_exceeded")
"""The values of `stop_reason` after which a call at the end may be cut
(docs.anthropic.com, "Handling stop reasons")."""

NO_ANSWER: Message = {"type": "text", "text": "(no answer)"}
"""Stands where the model said nothing: an assistant message without content is refused later."""


class AnthropicMessages:
    """The format of POST /v1/messages."""

    name = "anthropic-messages"

    def recognises(self, payload: Mapping[str, Any], /) -> bool:
        """Whether there is a message or error by its type, or an assistant's list of blocks."""
        kind = payload.get("type")
        if kind in ("message", "error") or _is_event(kind):
            return True
        ours = "stop_reason" in payload or payload.get("role") == "assistant"
        blocks = isinstance(payload.get("content"), list | tuple) and "tool_calls" not in payload
        return ours and blocks

    def parse(self, payload: Mapping[str, Any], /) -> Reply:
        """Read a message; see `Format.parse`."""
        if payload.get("error"):
            raise refused(self.name, opened(payload["error"]))
        if _is_event(payload.get("type")):
            raise PayloadError(
                "type",
                f"{payload['type']!r} is an event of a stream, and streams are not read here",
                "Submit the finished message (`stream.get_final_message()`)",
            )
        if "content" not in payload:
            raise PayloadError(
                "content", f"there is none in {described(payload)}", "Submit the whole message"
            )
        message: Message = {"role": payload.get("role"), "content": payload["content"]}
        assistant_role(message, "message")
        key = payload.get("id")
        key = key if isinstance(key, str) else ""
        if isinstance(message["content"], str):
            message = copied_slowly(message, "message")
            return Reply(provider=self.name, message=message, calls=(), key=key)
        blocks, roomy = _copied(message["content"])
        calls = _calls(
            blocks, cut=payload.get("stop_reason") in LIMIT_REACHED, key=key, roomy=roomy
        )
        message["content"] = [block for block in blocks if not _is_left_out(block)]
        return Reply(provider=self.name, message=message, calls=calls, key=key)

    def render(self, message: Message, answers: Sequence[Answer], /) -> list[Message]:
        """Write one user message with all results behind the assistant message."""
        content: Any = message["content"]
        if not content:
            message = {**message, "content": [NO_ANSWER]}
        blocks: list[Message] = content if is_list(content) else []
        ordered = paired([block["id"] for block in blocks if block["type"] == "tool_use"], answers)
        if not ordered:
            return [message]
        names = misnamed(ordered)
        if names:
            message = {**message, "content": [_renamed(block, names) for block in blocks]}
        return [message, {"role": "user", "content": [_result(answer) for answer in ordered]}]

    def with_arguments(
        self, message: Message, arguments: Mapping[str, dict[str, Any]], /
    ) -> Message:
        """Write other inputs into some `tool_use` blocks."""
        if not arguments:
            return message
        blocks = [
            {**block, "input": arguments[block["id"]]}
            if block["type"] == "tool_use" and block["id"] in arguments
            else block
            for block in message["content"]
        ]
        return {**message, "content": blocks}

    def say(self, said: object, /) -> Message:
        """Make a user message."""
        return said_by_host(said)

    def join(self, messages: Sequence[Message], /) -> list[Message]:
        """Put messages in a row; what the user says after results joins their message.

        Results must be the first blocks of the message right behind their calls.
        """
        joined: list[Message] = []
        for message in messages:
            if joined and message["role"] == "user" and _holds_results(joined[-1]):
                content = [*joined[-1]["content"], *_blocks_of(message)]
                content.sort(key=_is_no_result)
                joined[-1] = {**joined[-1], "content": content}
            else:
                joined.append(message)
        return joined


def _copied(given: object) -> tuple[list[Message], bool]:
    """Copy the blocks, and tell whether no input can be nested too deeply."""
    fast = copied(given)
    blocks: Any = fast[0] if fast else copied_slowly(_loosened(given), "content")
    see_that_own("anthropic-messages", blocks, "content")
    if not is_list(blocks):
        raise PayloadError("content", f"expected a list of blocks, not {described(blocks)}")
    for index, block in enumerate(blocks):
        if not is_object(block):
            raise PayloadError(f"content[{index}]", f"expected an object, not {described(block)}")
        if not isinstance(block.get("type"), str):
            raise PayloadError(
                f"content[{index}].type", f"expected a text, not {described(block.get('type'))}"
            )
    return blocks, fast is not None and is_roomy(fast[1], 2 * len(blocks))


def _loosened(given: object) -> object:
    """Open what an SDK left closed, and put inputs that are not JSON out of harm's way."""
    blocks = opened(given)
    return [_loosened_block(opened(block)) for block in blocks] if is_list(blocks) else blocks


def _loosened_block(block: object) -> object:
    if not is_object(block) or block.get("type") != "tool_use":
        return block
    return {**block, "input": arguments_of(block.get("input"))}


def _calls(blocks: list[Message], *, cut: bool, key: str, roomy: bool) -> tuple[Asked, ...]:
    entries = [block for block in blocks if block["type"] == "tool_use"]
    if not entries:
        return ()
    elsewhere = [str(block.get("id")) for block in blocks if block["type"] in _RUN_BY_PROVIDER]
    ids = settled_ids(
        entries, is_legal=_is_legal, content=_content, mint=_mint, key=key, taken=elsewhere
    )
    last = blocks[-1] if cut else None
    calls: list[Asked] = []
    for block, call_id in zip(entries, ids, strict=True):
        block["id"] = call_id  # None marks a call that was written twice
        if call_id is not None:
            calls.append(_asked(block, call_id, cut=block is last, roomy=roomy))
    return tuple(calls)


def _asked(block: Message, call_id: str, *, cut: bool, roomy: bool) -> Asked:
    name, fault = named(block)
    given = block.get("input")
    read = given if roomy and is_object(given) else read_decoded(given)
    if isinstance(read, Failure):
        block["input"] = {}
        text = text_of_arguments(given)
        fault = fault or (truncated(text) if cut else read)
        return Asked(id=call_id, name=name, arguments=None, text=text, fault=fault)
    block["input"] = read
    if cut:
        text = text_of_arguments(given)
        return Asked(
            id=call_id, name=name, arguments=None, text=text, fault=fault or truncated(text)
        )
    return Asked(id=call_id, name=name, arguments=read, fault=fault)


_RUN_BY_PROVIDER = ("server_tool_use", "mcp_tool_use")


def _is_event(kind: object) -> bool:
    return isinstance(kind, str) and (
        kind.startswith(("message_", "content_block_")) or kind == "ping"
    )


_is_legal = re.compile(r"[a-zA-Z0-9_-]+").fullmatch


def _mint(digits: str) -> str:
    return f"toolu_{digits[:24]}"


def _content(block: Message) -> object:
    return block.get("name"), block.get("input")


def _is_left_out(block: Message) -> bool:
    kind = block["type"]
    if kind == "text":
        block.pop("parsed_output", None)  # what the SDK made of the text; no request has it
        text = block.get("text")
        return not text or (isinstance(text, str) and text.isspace())
    return kind == "tool_use" and block["id"] is None


def _renamed(block: Message, names: Mapping[str, str]) -> Message:
    if block["type"] != "tool_use" or block["id"] not in names:
        return block
    return {**block, "name": names[block["id"]]}


def _result(answer: Answer) -> Message:
    result: Message = {
        "type": "tool_result",
        "tool_use_id": answer.id,
        "content": content_of(answer, lambda text: {"type": "text", "text": text}, _media),
    }
    if isinstance(answer.outcome, Failure):
        result["is_error"] = True
    return result


def _media(media: Media) -> Message | None:
    kind = "image" if media.media_type in _IMAGES else "document"
    if kind == "document" and media.media_type != "application/pdf":
        return None
    source = {"type": "base64", "media_type": media.media_type, "data": media.data}
    return {"type": kind, "source": source}


_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


def _blocks_of(message: Message) -> list[Any]:
    content = message.get("content")
    return content if is_list(content) else [{"type": "text", "text": content}]


def _holds_results(message: Message) -> bool:
    return message["role"] == "user" and not all(map(_is_no_result, _blocks_of(message)))


def _is_no_result(block: object) -> bool:
    return not is_object(block) or block.get("type") != "tool_result"
