"""Google's Interactions API.

Reads a whole interaction (`steps`) or a list of steps; its calls are the `function_call` steps of
the model. What Google runs itself (`google_search_call`, `mcp_server_tool_call` …), thoughts and
their signatures pass through untouched. Feeds the engine with a `Reply`, and the conversation with
the model's steps and one `function_result` for each call, which are the `input` of the next
request. Steps of the input that the service repeats (`user_input`, `function_result`) are left out:
they are in the conversation already.
"""

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
from laneway.errors import PayloadError, ProviderRefusedError
from laneway.outcomes import Failure

UNFINISHED = ("in_progress", "queued")
CUT = ("incomplete", "budget_exceeded")
"""The values of `status` after which a call at the end may be cut."""

_OF_INPUT = ("user_input", "function_result")
_KINDS = {"image": "image", "audio": "audio", "video": "video"}


class GoogleInteractions:
    """The format of POST /v1beta/interactions."""

    name = "google-interactions"

    def recognises(self, payload: Mapping[str, Any], /) -> bool:
        """Whether it is an interaction by its kind, or there are steps with types."""
        if payload.get("object") == "interaction":
            return True
        steps = opened(payload.get("steps"))
        first = opened(steps[0]) if is_list(steps) and steps else None
        return is_object(first) and "type" in first

    def parse(self, payload: Mapping[str, Any], /) -> Reply:
        """Read an interaction; see `Format.parse`."""
        status = _finished(self.name, payload)
        steps = _steps(payload)
        key = payload.get("id")
        key = key if isinstance(key, str) else ""
        calls = _calls(steps, cut=status in CUT, key=key)
        kept = [step for step in steps if not _is_left_out(step)]
        return Reply(provider=self.name, message={"steps": kept}, calls=calls, key=key)

    def render(self, message: Message, answers: Sequence[Answer], /) -> list[Message]:
        """Write the model's steps, and one result per call behind them."""
        steps: list[Message] = message["steps"]
        ordered = paired([step["id"] for step in steps if _is_call(step)], answers)
        names = misnamed(ordered)
        if names:
            steps = [
                {**step, "name": names[step["id"]]}
                if _is_call(step) and step["id"] in names
                else step
                for step in steps
            ]
        return [*steps, *(_result(answer, names) for answer in ordered)]

    def with_arguments(
        self, message: Message, arguments: Mapping[str, dict[str, Any]], /
    ) -> Message:
        """Write other arguments into some calls."""
        steps = [
            {**step, "arguments": arguments[step["id"]]}
            if _is_call(step) and step["id"] in arguments
            else step
            for step in message["steps"]
        ]
        return {**message, "steps": steps}

    def say(self, said: object, /) -> Message:
        """Make a step of the user's."""
        if isinstance(said, str):
            return {"type": "user_input", "content": [{"type": "text", "text": whole_text(said)}]}
        return said_by_host(said)

    def join(self, messages: Sequence[Message], /) -> list[Message]:
        """Put steps in a row as they come."""
        return list(messages)


def _finished(provider: str, payload: Mapping[str, Any]) -> object:
    """See that an interaction has ended well; gives its status."""
    if payload.get("error"):
        raise refused(provider, opened(payload["error"]))
    status = payload.get("status")
    if status in ("failed", "cancelled"):
        raise ProviderRefusedError(provider, str(status), "the interaction did not end")
    if status in UNFINISHED:
        raise PayloadError(
            "status", f"it is {status!r}: the interaction goes on", "Get it again, and submit that"
        )
    return status


def _steps(payload: Mapping[str, Any]) -> list[Message]:
    given = opened(payload.get("steps"))
    fast = copied(given)
    steps: Any = fast[0] if fast else copied_slowly(_loosened(given), "steps")
    if not is_list(steps):
        raise PayloadError(
            "steps", f"expected a list, not {described(steps)}", "Submit the whole interaction"
        )
    see_that_own(GoogleInteractions.name, steps, "steps")
    for index, step in enumerate(steps):
        if not is_object(step) or not isinstance(step.get("type"), str):
            raise PayloadError(
                f"steps[{index}]", f"expected an object with a type, not {described(step)}"
            )
    return steps


def _loosened(given: object) -> object:
    """Open what an SDK left closed, and put arguments that are not JSON out of harm's way."""
    return [_loosened_step(opened(step)) for step in given] if is_list(given) else given


def _loosened_step(step: object) -> object:
    if not is_object(step) or step.get("type") != "function_call":
        return step
    return {**step, "arguments": arguments_of(step.get("arguments"))}


def _is_call(step: Message) -> bool:
    return bool(step["type"] == "function_call")


def _calls(steps: list[Message], *, cut: bool, key: str) -> tuple[Asked, ...]:
    entries = [step for step in steps if _is_call(step)]
    answered = [step.get("call_id") for step in steps if step["type"] == "function_result"]
    for step in [step for step in entries if step.get("id") in answered]:
        step["type"] = "answered"  # of an earlier turn, told again: it is left out
    entries = [step for step in entries if _is_call(step)]
    if not entries:
        return ()
    elsewhere = [str(step["id"]) for step in steps if "id" in step and not _is_call(step)]
    ids = settled_ids(
        entries, is_legal=is_legal, content=_content, mint=_mint, key=key, taken=elsewhere
    )
    last = steps[-1] if cut else None
    calls: list[Asked] = []
    for step, call_id in zip(entries, ids, strict=True):
        step["id"] = call_id  # None marks a call that was written twice
        if call_id is not None:
            calls.append(read_object(step, "arguments", call_id, cut=step is last))
    return tuple(calls)


def _content(step: Message) -> object:
    return step.get("name"), step.get("arguments")


def _mint(digits: str) -> str:
    return f"call_{digits[:24]}"


def _is_left_out(step: Message) -> bool:
    kind = step["type"]
    return kind in _OF_INPUT or kind == "answered" or (_is_call(step) and step["id"] is None)


def _result(answer: Answer, names: Mapping[str, str]) -> Message:
    result: Message = {
        "type": "function_result",
        "call_id": answer.id,
        "name": names.get(answer.id, answer.name) or "unnamed_tool",
        "result": content_of(answer, lambda text: {"type": "text", "text": text}, _media),
    }
    if isinstance(answer.outcome, Failure):
        result["is_error"] = True
    return result


def _media(media: Media) -> Message:
    kind = _KINDS.get(media.kind, "document")
    return {"type": kind, "mime_type": media.media_type, "data": media.data}
