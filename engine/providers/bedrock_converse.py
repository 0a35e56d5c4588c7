"""Amazon Bedrock's Converse, as boto3 and the REST service answer it.

Reads a whole response (`output.message`) or a bare assistant message; its calls are the `toolUse`
blocks. What Bedrock runs itself (`server_tool_use`, and its results), reasoning and signatures pass
through untouched. Feeds the engine with a `Reply`, and the conversation with one user message that
holds all the results of a turn, failures with the status `error`.

boto3 hands over blobs (redacted reasoning, pictures) as bytes and wants them back so. A journal
holds JSON: there they stand as `{"$bytes": <base64>}`, and the renderer makes them bytes again.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any

from laneway.engine.kinds import is_list, is_object
from laneway.engine.plain import whole_text
from laneway.engine.providers.faults import refused
from laneway.engine.providers.functions import read_object
from laneway.engine.providers.mixing import see_that_own
from laneway.engine.providers.parts import Media, content_of
from laneway.engine.providers.payload import (
    arguments_of,
    assistant_role,
    copied,
    copied_slowly,
    described,
    opened,
)
from laneway.engine.providers.repair import misnamed, paired, settled_ids
from laneway.engine.providers.reply import Answer, Asked, Message, Reply
from laneway.engine.providers.say import said_by_host
from laneway.engine.providers.unsent import note_unsent, sent, unsent
from laneway.errors import PayloadError
from laneway.ids import is_own
from laneway.outcomes import Failure

LIMIT_REACHED = ("max_tokens", "model_context_window_exceeded")
"""The values of `stopReason` after which a call at the end may be cut (API reference, Converse)."""

NO_ANSWER: Message = {"text": "(no answer)"}
"""Stands where the model said nothing: a message without content is refused later."""

_OF_ERROR = {"message", "__type", "ResponseMetadata"}
_BLOCKS = frozenset({"text", "toolUse", "reasoningContent", "citationsContent", "image"})
_MARK = "$bytes"
_IMAGES = {"png": "png", "jpeg": "jpeg", "jpg": "jpeg", "gif": "gif", "webp": "webp"}
_DOCUMENTS = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "text/html": "html",
    "text/plain": "txt",
    "text/markdown": "md",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
}
"""What a result may hold (API reference, ImageBlock and DocumentBlock)."""


class BedrockConverse:
    """The format of POST /model/…/converse."""

    name = "bedrock-converse"

    def recognises(self, payload: Mapping[str, Any], /) -> bool:
        """Whether there is an output with a message, a bare message of blocks, or an error."""
        if "type" in payload or "choices" in payload:
            return False
        output = opened(payload.get("output"))
        if is_object(output):
            return "message" in output
        content = opened(payload.get("content"))
        if is_list(content) and payload.get("role", "assistant") == "assistant":
            return any(map(_is_ours, content))
        return isinstance(payload.get("message"), str) and payload.keys() <= _OF_ERROR

    def parse(self, payload: Mapping[str, Any], /) -> Reply:
        """Read a response or a message; see `Format.parse`."""
        where, given = _chosen(self.name, payload)
        message, blobs = _copied(given, where)
        assistant_role(message, where)
        blocks = _blocks(message, where)
        see_that_own(self.name, blocks, f"{where}.content")
        metadata = opened(payload.get("ResponseMetadata"))
        key = metadata.get("RequestId") if is_object(metadata) else None
        key = key if isinstance(key, str) else ""
        calls = _calls(blocks, cut=payload.get("stopReason") in LIMIT_REACHED, key=key)
        message["content"] = [_as_input(block) for block in blocks if not _is_left_out(block)]
        note_unsent(message, "blobs", value=blobs)
        return Reply(provider=self.name, message=message, calls=calls, key=key)

    def render(self, message: Message, answers: Sequence[Answer], /) -> list[Message]:
        """Write one user message with all results behind the assistant message."""
        own, message = unsent(message), sent(message)
        blocks: list[Message] = message["content"]
        ordered = paired([_use(block)["toolUseId"] for block in blocks if _is_call(block)], answers)
        names = misnamed(ordered)
        if names:
            blocks = [_renamed(block, names) for block in blocks]
        if own.get("blobs"):
            blocks = _unmarked(blocks)
        message = {**message, "content": blocks or [NO_ANSWER]}
        if not ordered:
            return [message]
        return [message, {"role": "user", "content": [_result(answer) for answer in ordered]}]

    def with_arguments(
        self, message: Message, arguments: Mapping[str, dict[str, Any]], /
    ) -> Message:
        """Write other inputs into some `toolUse` blocks."""
        blocks = [
            {"toolUse": {**_use(block), "input": arguments[_use(block)["toolUseId"]]}}
            if _is_call(block) and _use(block)["toolUseId"] in arguments
            else block
            for block in message["content"]
        ]
        return {**message, "content": blocks}

    def say(self, said: object, /) -> Message:
        """Make a user message."""
        if isinstance(said, str):
            return {"role": "user", "content": [{"text": whole_text(said)}]}
        return said_by_host(said)

    def join(self, messages: Sequence[Message], /) -> list[Message]:
        """Put messages in a row; what the user says after results joins their message.

        Two user messages in a row are refused, and results must be the first blocks of theirs.
        """
        joined: list[Message] = []
        for message in messages:
            last = joined[-1] if joined else None
            if last is not None and message["role"] == last["role"] == "user":
                content = [*_listed(last), *_listed(message)]
                content.sort(key=_is_no_result)
                joined[-1] = {**last, "content": content}
            else:
                joined.append(message)
        return joined


def _is_ours(block: object) -> bool:
    block = opened(block)
    if not is_object(block):
        return False
    return "toolUse" in block or ("type" not in block and not _BLOCKS.isdisjoint(block))


def _chosen(provider: str, payload: Mapping[str, Any]) -> tuple[str, object]:
    """Find the message to go on with: its place, and itself."""
    told = payload.get("message")
    if isinstance(told, str) and "output" not in payload:
        raise refused(provider, {"type": payload.get("__type"), "message": told})
    if "output" not in payload:
        if "content" in payload:
            return "message", payload
        raise PayloadError(
            "output", f"there is none in {described(payload)}", "Submit the whole answer"
        )
    output = opened(payload["output"])
    message = opened(output.get("message")) if is_object(output) else None
    if not is_object(message):
        raise PayloadError("output.message", f"expected an object, not {described(message)}")
    return "output.message", message


def _copied(given: object, where: str) -> tuple[Message, bool]:
    """Copy a message, and tell whether there were blobs in it."""
    fast = copied(given)
    if fast:
        return fast[0], _MARK in str(fast[1])
    loosened = _loosened(given)
    message: Message = copied_slowly(loosened, where)
    return message, True


def _loosened(given: object) -> object:
    """Mark blobs, and put inputs that are not JSON out of harm's way."""
    message = opened(given)
    blocks = opened(message.get("content")) if is_object(message) else None
    if not is_object(message) or not is_list(blocks):
        return message
    return {**message, "content": [_loosened_block(opened(block)) for block in blocks]}


def _loosened_block(block: object) -> object:
    use = opened(block.get("toolUse")) if is_object(block) else None
    if is_object(block) and is_object(use):
        return {**block, "toolUse": {**use, "input": arguments_of(use.get("input"))}}
    return _marked(block)


def _marked(value: object) -> object:
    if isinstance(value, bytes | bytearray):
        return {_MARK: base64.b64encode(value).decode()}
    if is_object(value):
        return {name: _marked(one) for name, one in value.items()}
    return [_marked(one) for one in value] if is_list(value) else value


def _unmarked(value: Any) -> Any:
    if is_object(value):
        if value.keys() == {_MARK} and isinstance(value[_MARK], str):
            return base64.b64decode(value[_MARK])
        return {name: _unmarked(one) for name, one in value.items()}
    return [_unmarked(one) for one in value] if is_list(value) else value


def _blocks(message: Message, where: str) -> list[Message]:
    blocks: Any = message.get("content")
    if not is_list(blocks):
        raise PayloadError(
            f"{where}.content", f"expected a list of blocks, not {described(blocks)}"
        )
    for index, block in enumerate(blocks):
        if not is_object(block):
            raise PayloadError(
                f"{where}.content[{index}]", f"expected an object, not {described(block)}"
            )
        if "toolUse" in block and not is_object(block["toolUse"]):
            raise PayloadError(
                f"{where}.content[{index}].toolUse",
                f"expected an object with name and input, not {described(block['toolUse'])}",
            )
    return blocks


def _is_call(block: Message) -> bool:
    """Whether it is for us to run; the service's own are of the type `server_tool_use`."""
    return "toolUse" in block and block["toolUse"].get("type") != "server_tool_use"


def _use(block: Message) -> Message:
    use: Message = block["toolUse"]
    return use


def _calls(blocks: list[Message], *, cut: bool, key: str) -> tuple[Asked, ...]:
    entries = [_use(block) for block in blocks if _is_call(block)]
    if not entries:
        return ()
    elsewhere = [
        str(_use(block).get("toolUseId"))
        for block in blocks
        if "toolUse" in block and not _is_call(block)
    ]
    ids = settled_ids(
        entries,
        is_legal=_is_legal,
        content=_content,
        mint=_mint,
        key=key,
        taken=elsewhere,
        field="toolUseId",
    )
    last = blocks[-1].get("toolUse") if cut else None
    calls: list[Asked] = []
    for use, call_id in zip(entries, ids, strict=True):
        use["toolUseId"] = call_id  # None marks a call that was written twice
        if call_id is not None:
            calls.append(read_object(use, "input", call_id, cut=use is last))
    return tuple(calls)


def _is_legal(call_id: str) -> bool:
    return _LEGAL.fullmatch(call_id) is not None and not is_own(call_id)


_LEGAL = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")


def _mint(digits: str) -> str:
    return f"tooluse_{digits[:22]}"


def _content(use: Message) -> object:
    return use.get("name"), use.get("input")


def _is_left_out(block: Message) -> bool:
    if "toolUse" in block:
        return _use(block).get("toolUseId") is None
    text = block.get("text")
    return "text" in block and (not text or (isinstance(text, str) and text.isspace()))


def _as_input(block: Message) -> Message:
    """A block without the `type` that the REST service adds, and no request may have."""
    if len(block) > 1 and "type" in block:
        block = {name: value for name, value in block.items() if name != "type"}
    if "toolUse" in block and _use(block).get("type") == "tool_use":
        use = {name: value for name, value in _use(block).items() if name != "type"}
        return {**block, "toolUse": use}
    return block


def _renamed(block: Message, names: Mapping[str, str]) -> Message:
    if not _is_call(block) or _use(block)["toolUseId"] not in names:
        return block
    return {"toolUse": {**_use(block), "name": names[_use(block)["toolUseId"]]}}


def _result(answer: Answer) -> Message:
    content = content_of(answer, lambda text: {"text": text}, _media)
    return {
        "toolResult": {
            "toolUseId": answer.id,
            "content": [{"text": content}] if isinstance(content, str) else content,
            "status": "error" if isinstance(answer.outcome, Failure) else "success",
        }
    }


def _media(media: Media) -> Message | None:
    try:
        source = {"bytes": base64.b64decode(media.data, validate=True)}
    except ValueError:
        return None
    image = _IMAGES.get(media.media_type.partition("/")[2])
    if media.kind == "image":
        return image and {"image": {"format": image, "source": source}}  # type: ignore[return-value]
    form = _DOCUMENTS.get(media.media_type)
    if form is None:
        return None
    name = re.sub(r"[^a-zA-Z0-9()\[\] -]+", "-", media.name) or "file"
    return {"document": {"format": form, "name": name, "source": source}}


def _listed(message: Message) -> list[Any]:
    content = message.get("content")
    return content if is_list(content) else [{"text": content}]


def _is_no_result(block: object) -> bool:
    return not is_object(block) or "toolResult" not in block
