"""OpenAI responses, and every server that speaks like it.

Reads a whole response (`output`); its calls are the items `function_call` and `custom_tool_call`,
and the built-in ones that the host runs (`builtins`). What the provider ran itself, its requests
for approval (`mcp_approval_request`), reasoning and unknown items pass through untouched. Feeds the
engine with a `Reply`, and the conversation with the items of the output and one output item for
each call, which are the `input` of the next request.

What is mended in the items that go back: call ids (unique, present), arguments (always the text of
one JSON object), names that are none, ids of items that stand twice, and what the SDK's parsed
objects hold beyond the wire.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from laneway.engine.kinds import is_list, is_object
from laneway.engine.providers import builtins
from laneway.engine.providers.faults import refused, truncated
from laneway.engine.providers.functions import read_custom, read_function
from laneway.engine.providers.mixing import see_that_own
from laneway.engine.providers.parts import Media, content_of
from laneway.engine.providers.payload import (
    arguments_of,
    copied,
    copied_slowly,
    described,
    opened,
    read_decoded,
    text_of_arguments,
)
from laneway.engine.providers.repair import misnamed, paired, settled_ids
from laneway.engine.providers.reply import Answer, Asked, Message, Reply
from laneway.engine.providers.say import said_by_host
from laneway.engine.providers.tool_calls import is_legal
from laneway.engine.results import json_text
from laneway.errors import PayloadError, ProviderRefusedError
from laneway.outcomes import Failure

_READERS = {"function_call": read_function, "custom_tool_call": read_custom}
_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_OUTPUT = "_output"


class OpenAIResponses:
    """The format of POST /v1/responses."""

    name = "openai-responses"

    def recognises(self, payload: Mapping[str, Any], /) -> bool:
        """Whether there is a list of output items, or a response by its kind."""
        return payload.get("object") == "response" or isinstance(
            payload.get("output"), list | tuple
        )

    def parse(self, payload: Mapping[str, Any], /) -> Reply:
        """Read a response; see `Format.parse`."""
        status = _ended(self.name, payload)
        items = _items(payload)
        see_that_own(self.name, items, "output")
        key = payload.get("id")
        key = key if isinstance(key, str) else ""
        calls, repeated = _calls(items, cut=status == "incomplete", key=key)
        kept = [_as_input(item) for item in items if id(item) not in repeated]
        _drop_repeated_ids(kept)
        return Reply(provider=self.name, message={"output": kept}, calls=calls, key=key)

    def render(self, message: Message, answers: Sequence[Answer], /) -> list[Message]:
        """Write the output items, and one output per call behind them."""
        items: list[Message] = message["output"]
        asked = _asked_for(items)
        ordered = paired([item["call_id"] for item in asked], answers)
        names = misnamed(ordered)
        if names:
            items = [
                {**item, "name": names[item["call_id"]]}
                if "name" in item and item.get("call_id") in names
                else item
                for item in items
            ]
        results = [
            one
            for item, answer in zip(asked, ordered, strict=True)
            for one in _results(item, answer)
        ]
        return [*items, *results]

    def with_arguments(
        self, message: Message, arguments: Mapping[str, dict[str, Any]], /
    ) -> Message:
        """Write other arguments, or another free input, into some calls."""
        ours = {id(item) for item in _asked_for(message["output"])}
        items = [
            _rewritten(item, arguments[item["call_id"]])
            if id(item) in ours and item["call_id"] in arguments
            else item
            for item in message["output"]
        ]
        return {**message, "output": items}

    def say(self, said: object, /) -> Message:
        """Make a user message; an item, such as an `mcp_approval_response`, is taken as it is."""
        return said_by_host(said)

    def join(self, messages: Sequence[Message], /) -> list[Message]:
        """Put items in a row as they come."""
        return list(messages)


def approval_requests(messages: Sequence[Message]) -> list[Message]:
    """The calls to MCP servers that the provider will run once the host allows it.

    They are no calls of the turn: answer each with `run.say({"type": "mcp_approval_response",
    "approval_request_id": request["id"], "approve": True})` before the model is asked again.

    Args:
        messages: of a turn, `turn.messages`.
    """
    return [item for item in messages if item.get("type") == "mcp_approval_request"]


def _ended(provider: str, payload: Mapping[str, Any]) -> object:
    """See that a response has ended, well or at a limit; gives its status."""
    if payload.get("error"):
        raise refused(provider, opened(payload["error"]))
    status = payload.get("status")
    if status in ("failed", "cancelled"):
        raise ProviderRefusedError(provider, str(status), "the response did not end")
    if status in ("in_progress", "queued"):
        raise PayloadError(
            "status", f"it is {status!r}: the response goes on", "Get it again, and submit that"
        )
    return status


def _items(payload: Mapping[str, Any]) -> list[Message]:
    given = opened(payload.get("output"))
    fast = copied(given)
    items: Any = fast[0] if fast else copied_slowly(_loosened(given), "output")
    if not is_list(items):
        raise PayloadError(
            "output", f"expected a list of items, not {described(items)}", "Submit the whole answer"
        )
    for index, item in enumerate(items):
        if not is_object(item):
            raise PayloadError(f"output[{index}]", f"expected an object, not {described(item)}")
    return items


def _loosened(given: object) -> object:
    """Open what an SDK left closed, and put arguments given as objects out of harm's way."""
    return [_loosened_item(opened(item)) for item in given] if is_list(given) else given


def _loosened_item(item: object) -> object:
    if not is_object(item):
        return item
    item.pop("parsed_arguments", None)
    for field in ("arguments", *{*builtins.ACTIONS.values()}):
        if field in item and not isinstance(item[field], str):
            item[field] = arguments_of(item[field])
    return item


def _calls(items: list[Message], *, cut: bool, key: str) -> tuple[tuple[Asked, ...], set[int]]:
    """Read the calls, and tell which items repeat another, by identity."""
    entries = _asked_for(items)
    if not entries:
        return (), set()
    ours = {id(item) for item in entries}
    elsewhere = [str(item.get("call_id")) for item in items if id(item) not in ours]
    ids = settled_ids(
        entries,
        is_legal=is_legal,
        content=_content,
        mint=_mint,
        key=key,
        taken=elsewhere,
        field="call_id",
    )
    calls: list[Asked] = []
    for item, call_id in zip(entries, ids, strict=True):
        if call_id is not None:
            ours.discard(id(item))
            item["call_id"] = call_id
            last = cut and item is items[-1] and item.get("status") != "completed"
            calls.append(_asked(item, call_id, cut=last))
    return tuple(calls), ours


def _asked(item: Message, call_id: str, *, cut: bool) -> Asked:
    reader = _READERS.get(item["type"])
    unfinished = item.get("status") == "incomplete"
    if reader is None:
        return _built_in(item, call_id, cut=cut or unfinished)
    asked = reader(item, call_id, cut=cut or unfinished)
    if not unfinished or asked.fault is not None:
        return asked
    text = text_of_arguments(asked.arguments)  # It looks whole, but the provider says it is not.
    return Asked(id=call_id, name=asked.name, arguments=None, text=text, fault=truncated(text))


def _built_in(item: Message, call_id: str, *, cut: bool) -> Asked:
    kind: str = item["type"]
    given = builtins.action_of(item)
    read = read_decoded(given)
    if isinstance(read, Failure) or cut:
        text = text_of_arguments(given)
        fault = read if isinstance(read, Failure) and not cut else truncated(text)
        return Asked(id=call_id, name=kind, arguments=None, text=text, fault=fault)
    return Asked(id=call_id, name=kind, arguments=read)


def _asked_for(items: Sequence[Message]) -> list[Message]:
    """The items that are calls for us to run."""
    answered = [item.get("call_id") for item in items if str(item.get("type")).endswith(_OUTPUT)]
    return [
        item
        for item in items
        if str(item.get("type")) in _READERS or builtins.is_ours(item, answered)
    ]


def _content(item: Message) -> object:
    if item["type"] in builtins.ACTIONS:
        return item["type"], builtins.action_of(item)
    return item.get("name"), item.get("arguments"), item.get("input")


def _mint(digits: str) -> str:
    return f"call_{digits[:24]}"


def _as_input(item: Message) -> Message:
    """An item without what the SDK has made of it."""
    content = item.get("content")
    if is_list(content):
        for part in content:
            if is_object(part):
                part.pop("parsed", None)
    return item


def _drop_repeated_ids(items: list[Message]) -> None:
    """Take away the ids of items that stand twice: a request may hold each only once."""
    seen: set[object] = set()
    for item in items:
        own = item.get("id")
        if isinstance(own, str):
            if own in seen:
                del item["id"]
            seen.add(own)


def _rewritten(item: Message, arguments: dict[str, Any]) -> Message:
    if item["type"] == "custom_tool_call":
        return {**item, "input": arguments.get("input", "")}
    if item["type"] == "function_call":
        return {**item, "arguments": json_text(arguments)}
    return builtins.with_action(item, arguments)


def _results(item: Message, answer: Answer) -> list[Message]:
    kind = item["type"]
    if kind not in _READERS:
        return builtins.answered(item, answer)
    output: Message = {
        "type": f"{kind}{_OUTPUT}",
        "call_id": answer.id,
        "output": content_of(answer, lambda text: {"type": "input_text", "text": text}, _media),
    }
    if "caller" in item:
        output["caller"] = item["caller"]
    return [output]


def _media(media: Media) -> Message | None:
    if media.media_type in _IMAGES:
        return {"type": "input_image", "image_url": media.url}
    if media.media_type == "application/pdf":
        name = media.name or "file.pdf"
        return {"type": "input_file", "filename": name, "file_data": media.url}
    return None
