"""Google's generate-content, of the Gemini API and of Vertex AI, in either spelling.

Reads a whole response (`candidates`) or a bare `Content` of the model; its calls are the parts with
`functionCall` (`function_call` in the SDK's objects). What Google runs itself (`toolCall`,
`executableCode`, and their results), thoughts and signatures pass through untouched. Feeds the
engine with a `Reply`, and the conversation with one `user` content that holds all the responses.

Many models give a call no id: then none is sent back, and calls and responses are paired by their
order. Results are texts under `output`, errors under `error`, as Google's reference says: a
`response` is a protobuf Struct, which keeps neither the order of keys nor integers beyond 2**53.
Pictures and files stand within the response for Gemini 3 and later; earlier models take nothing
beside a response, so they follow in a content of their own.
"""

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
    copied,
    copied_slowly,
    described,
    opened,
)
from laneway.engine.providers.repair import misnamed, paired, settled_ids
from laneway.engine.providers.reply import Answer, Asked, Message, Reply
from laneway.engine.providers.say import said_by_host
from laneway.engine.providers.tool_calls import is_legal
from laneway.engine.providers.unsent import minted_in, note_unsent, sent, unsent
from laneway.errors import PayloadError, ProviderRefusedError
from laneway.outcomes import Failure

LIMIT_REACHED = "MAX_TOKENS"
"""The `finishReason` after which a call at the end may be cut."""

NO_ANSWER: Message = {"text": "(no answer)"}
"""Stands where the model said nothing: a content without parts is refused later."""

_CALL = ("functionCall", "function_call")
_NESTS_FROM = 3
"""The first generation of Gemini that takes pictures within a response."""


class GoogleGenerate:
    """The format of POST …:generateContent."""

    name = "google-generate"

    def recognises(self, payload: Mapping[str, Any], /) -> bool:
        """Whether there are candidates, a blocked prompt, a content, or an error with a status."""
        return (
            "candidates" in payload
            or bool(payload.get("promptFeedback") or payload.get("prompt_feedback"))
            or isinstance(payload.get("parts"), list | tuple)
            or _is_error(payload.get("error"))
        )

    def parse(self, payload: Mapping[str, Any], /) -> Reply:
        """Read a response or a content; see `Format.parse`."""
        where, given, cut = _chosen(self.name, payload)
        message = _copied(given, where)
        message["role"] = _role(message, where)
        parts = _parts(message, where)
        see_that_own(self.name, parts, f"{where}.parts")
        key = _first(payload, "responseId", "response_id")
        key = key if isinstance(key, str) else ""
        entries = [part for part in parts if _call_of(part) is not None]
        given_ids = [_named_part(part).get("id") for part in entries]
        calls = _calls(parts, entries, cut=cut, key=key)
        note_unsent(message, "minted", minted_in(message, given_ids, calls))
        if calls and _generation(payload) >= _NESTS_FROM:
            note_unsent(message, "nests", value=True)
        message["parts"] = [part for part in parts if not _is_left_out(part)]
        return Reply(provider=self.name, message=message, calls=calls, key=key)

    def render(self, message: Message, answers: Sequence[Answer], /) -> list[Message]:
        """Write one user content with all responses behind the model's content."""
        own, message = unsent(message), sent(message)
        parts: list[Message] = message["parts"]
        ordered = paired(
            [_named_part(part)["id"] for part in parts if _call_of(part) is not None], answers
        )
        minted = own.get("minted", ())
        names = misnamed(ordered)
        if names or minted:
            parts = [_as_sent(part, names, minted) for part in parts]
        message = {**message, "parts": parts or [NO_ANSWER]}
        if not ordered:
            return [message]
        responses: list[Message] = []
        beside: list[Message] = []
        for answer in ordered:
            name = names.get(answer.id, answer.name) or "unnamed_tool"
            response, media = _response(answer, name)
            if answer.id not in minted:
                response = {"id": answer.id, **response}
            if media and own.get("nests"):
                response["parts"] = media
            elif media:
                beside += [{"text": f"From the result of {name}:"}, *media]
            responses.append({"functionResponse": response})
        results = [message, {"role": "user", "parts": responses}]
        return [*results, {"role": "user", "parts": beside}] if beside else results

    def with_arguments(
        self, message: Message, arguments: Mapping[str, dict[str, Any]], /
    ) -> Message:
        """Write other arguments into some calls."""
        parts = [_with_args(part, arguments) for part in message["parts"]]
        return {**message, "parts": parts}

    def say(self, said: object, /) -> Message:
        """Make a user's content."""
        if isinstance(said, str):
            return {"role": "user", "parts": [{"text": whole_text(said)}]}
        return said_by_host(said)

    def join(self, messages: Sequence[Message], /) -> list[Message]:
        """Put contents in a row as they come."""
        return list(messages)


def _is_error(error: object) -> bool:
    error = opened(error)
    return is_object(error) and isinstance(error.get("status"), str) and "message" in error


def _first(payload: Mapping[str, Any], *names: str) -> Any:
    """A field under the first of its spellings that is there."""
    return next((payload[name] for name in names if payload.get(name) is not None), None)


def _generation(payload: Mapping[str, Any]) -> int:
    """Of the model that answered; 0 where it is not said."""
    found = re.search(r"gemini-(\d+)", str(_first(payload, "modelVersion", "model_version")))
    return int(found[1]) if found else 0


def _chosen(provider: str, payload: Mapping[str, Any]) -> tuple[str, object, bool]:
    """Find the one content to go on with: its place, itself, and whether the limit cut it."""
    if payload.get("error"):
        error = opened(payload["error"])
        if is_object(error) and error.get("status"):
            error = {**error, "code": None}  # of HTTP, and says less than the status
        raise refused(provider, error)
    if "candidates" not in payload and "parts" in payload:
        return "content", payload, False
    candidates = opened(payload.get("candidates") or [])
    if not is_list(candidates):
        raise PayloadError("candidates", f"expected a list, not {described(candidates)}")
    if not candidates:
        raise _blocked(provider, opened(_first(payload, "promptFeedback", "prompt_feedback")))
    chosen = [_candidate(one, index) for index, one in enumerate(candidates)]
    calling = [index for index, (_, _, calls) in enumerate(chosen) if calls]
    if len(calling) > 1:
        raise PayloadError(
            f"candidates[{calling[1]}]",
            "it carries calls, and so does an earlier candidate: they are alternatives",
            "Submit the content of the one to go on with",
        )
    index = calling[0] if calling else 0
    content, reason, _ = chosen[index]
    return f"candidates[{index}].content", content, str(reason).endswith(LIMIT_REACHED)


def _blocked(provider: str, feedback: object) -> PayloadError:
    reason = _first(feedback, "blockReason", "block_reason") if is_object(feedback) else None
    if not is_object(feedback) or reason is None:
        return PayloadError(
            "candidates", "there are none in the response", "Submit the whole answer"
        )
    told = _first(feedback, "blockReasonMessage", "block_reason_message")
    return ProviderRefusedError(provider, str(reason), str(told or "the prompt was blocked"))


def _candidate(given: object, index: int) -> tuple[Mapping[str, Any], object, bool]:
    candidate = opened(given)
    where = f"candidates[{index}]"
    if not is_object(candidate):
        raise PayloadError(where, f"expected an object, not {described(candidate)}")
    content = opened(candidate.get("content") or {"role": "model", "parts": []})
    if not is_object(content):
        raise PayloadError(f"{where}.content", f"expected an object, not {described(content)}")
    parts = opened(content.get("parts"))
    calls = is_list(parts) and any(_call_of(opened(part)) is not None for part in parts)
    return content, _first(candidate, "finishReason", "finish_reason"), calls


def _call_of(part: object) -> object:
    return _first(part, *_CALL) if is_object(part) else None


def _named_part(part: Message) -> Message:
    """The call in a part that is known to hold one."""
    call: Message = _first(part, *_CALL)
    return call


def _copied(given: object, where: str) -> Message:
    content = opened(given)
    fast = copied(content)
    message: Message = fast[0] if fast else copied_slowly(_loosened(content), where)
    return message


def _loosened(content: object) -> object:
    """Open what an SDK left closed, and put arguments that are not JSON out of harm's way."""
    parts = opened(content.get("parts")) if is_object(content) else None
    if not is_object(content) or not is_list(parts):
        return content
    return {**content, "parts": [_loosened_part(opened(part)) for part in parts]}


def _loosened_part(part: object) -> object:
    if not is_object(part):
        return part
    for name in _CALL:
        call = opened(part.get(name))
        if is_object(call):
            part = {**part, name: {**call, "args": arguments_of(call.get("args"))}}
    return part


def _role(message: Message, where: str) -> str:
    role = message.get("role") or "model"
    if role not in ("model", "assistant"):
        raise PayloadError(
            f"{where}.role", f"it is {described(role)}", "Submit the model's own content"
        )
    return "model"


def _parts(message: Message, where: str) -> list[Message]:
    parts: Any = message.get("parts") or []
    if not is_list(parts):
        raise PayloadError(f"{where}.parts", f"expected a list, not {described(parts)}")
    for index, part in enumerate(parts):
        if not is_object(part):
            raise PayloadError(
                f"{where}.parts[{index}]", f"expected an object, not {described(part)}"
            )
        call = _call_of(part)
        if call is not None and not is_object(call):
            raise PayloadError(
                f"{where}.parts[{index}].functionCall",
                f"expected an object with name and args, not {described(call)}",
            )
    return parts


def _calls(
    parts: list[Message], entries: list[Message], *, cut: bool, key: str
) -> tuple[Asked, ...]:
    if not entries:
        return ()
    inner = [_named_part(part) for part in entries]
    ids = settled_ids(inner, is_legal=is_legal, content=_content, mint=_mint, key=key)
    last = _named_part(parts[-1]) if cut and _call_of(parts[-1]) is not None else None
    calls: list[Asked] = []
    for call, call_id in zip(inner, ids, strict=True):
        call["id"] = call_id  # None marks a call that was written twice
        if call_id is not None:
            unfinished = call is last or bool(_first(call, "willContinue", "will_continue"))
            calls.append(read_object(call, "args", call_id, cut=unfinished))
    return tuple(calls)


def _content(call: Message) -> object:
    return call.get("name"), call.get("args")


def _mint(digits: str) -> str:
    return f"call_{digits[:24]}"


def _is_left_out(part: Message) -> bool:
    if _call_of(part) is not None:
        return _named_part(part)["id"] is None
    return not part or (part.get("text") == "" and len(part) == 1)


def _as_sent(part: Message, names: Mapping[str, str], minted: Sequence[str]) -> Message:
    """A part with a name that can be sent again, and without an id that is not the provider's."""
    if _call_of(part) is None:
        return part
    field = next(name for name in _CALL if part.get(name) is not None)
    call = dict(part[field])
    call["name"] = names.get(call["id"], call["name"])
    if call["id"] in minted:
        del call["id"]
    return {**part, field: call}


def _with_args(part: Message, arguments: Mapping[str, dict[str, Any]]) -> Message:
    if _call_of(part) is None or _named_part(part)["id"] not in arguments:
        return part
    field = next(name for name in _CALL if part.get(name) is not None)
    call = part[field]
    return {**part, field: {**call, "args": arguments[call["id"]]}}


def _response(answer: Answer, name: str) -> tuple[Message, list[Message]]:
    """A function's response, and the pictures and files that belong to it."""
    content = content_of(answer, lambda text: {"text": text}, _inline)
    field = "error" if isinstance(answer.outcome, Failure) else "output"
    if isinstance(content, str):
        return {"name": name, "response": {field: content}}, []
    texts = [part["text"] for part in content if "text" in part]
    media = [part for part in content if "text" not in part]
    said = "\n".join(texts) or f"({len(media)} attached)"
    return {"name": name, "response": {field: said}}, media


def _inline(media: Media) -> Message:
    return {"inlineData": {"mimeType": media.media_type, "data": media.data}}
