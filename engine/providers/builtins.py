"""OpenAI's tools that have forms of their own: shells, patches, screens, the search for tools.

The model's call is an item of its own type, and so is its answer. A host runs one by registering a
tool named like the item (`shell_call`, `apply_patch_call` …): its parameters are the fields of the
action, and what it returns is written in the form that the service wants. Feeds the reader and the
renderer of OpenAI responses, and the definitions of tools.
"""

from collections.abc import Collection, Mapping
from typing import Any

from laneway.engine.kinds import is_list, is_object
from laneway.engine.providers.parts import Media, parts_of, told
from laneway.engine.providers.reply import Answer, Message
from laneway.outcomes import Code, Failure, Success

ACTIONS = {
    "shell_call": "action",
    "local_shell_call": "action",
    "apply_patch_call": "operation",
    "computer_call": "action",
    "tool_search_call": "arguments",
}
"""The items that a host may have to answer, and the field with what is asked for."""

DEFINITIONS: dict[str, Message] = {
    "shell_call": {"type": "shell", "environment": {"type": "local"}},
    "local_shell_call": {"type": "local_shell"},
    "apply_patch_call": {"type": "apply_patch"},
    "computer_call": {"type": "computer"},
}
"""How requests offer the tools of these names; the model knows what they do."""

_BLANK = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGA"
    "WjR9awAAAABJRU5ErkJggg=="
)
"""One pixel: a screen must be answered with a picture, even where there is none."""


def is_ours(item: Mapping[str, Any], answered: Collection[object]) -> bool:
    """Whether an item of these types is for the host to run, not something the provider ran.

    Args:
        item: of the output.
        answered: the call ids of the outputs that stand beside it.
    """
    kind = str(item.get("type"))
    call_id = item.get("call_id")
    if kind not in ACTIONS or (call_id is not None and call_id in answered):
        return False
    if kind == "tool_search_call":
        return item.get("execution") == "client"
    environment = item.get("environment")
    where = environment.get("type") if is_object(environment) else None
    return not (isinstance(where, str) and where.startswith("container"))


def action_of(item: Mapping[str, Any]) -> object:
    """What a call asks for; a screen's also tells what its user must be asked first."""
    action = item.get(ACTIONS[item["type"]])
    if item["type"] != "computer_call":
        return action
    if action is None and is_list(item.get("actions")):
        action = {"actions": item["actions"]}
    checks = item.get("pending_safety_checks")
    if checks and is_object(action):
        return {**action, "pending_safety_checks": checks}
    return action


def with_action(item: Message, arguments: dict[str, Any]) -> Message:
    """Write other arguments into a call."""
    action = {name: value for name, value in arguments.items() if name != "pending_safety_checks"}
    if item["type"] == "computer_call" and action.keys() == {"actions"}:
        return {**item, "actions": action["actions"]}
    return {**item, ACTIONS[item["type"]]: action}


def answered(item: Message, answer: Answer) -> list[Message]:
    """Write the answer to a call of these types."""
    output: Message = {"type": f"{item['type']}_output", "call_id": answer.id}
    if "caller" in item:
        output["caller"] = item["caller"]
    failed = isinstance(answer.outcome, Failure)
    match item["type"]:
        case "apply_patch_call":
            status = "failed" if failed else "completed"
            return [{**output, "status": status, "output": told(answer)}]
        case "local_shell_call":
            return [{"type": output["type"], "id": answer.id, "output": told(answer)}]
        case "shell_call":
            most = item.get("action", {}).get("max_output_length")
            if isinstance(most, int):
                output["max_output_length"] = most
            return [{**output, "output": _shell(answer)}]
        case "tool_search_call":
            output["type"] = "tool_search_output"
            output |= {"execution": "client", "status": "incomplete" if failed else "completed"}
            return [{**output, "tools": _tools(answer)}]
        case _:
            return _screen(output, item, answer)


def _shell(answer: Answer) -> list[Message]:
    """What each command wrote and how it ended; of anything else, one text.

    A tool may return `{"stdout", "stderr", "exit_code"}`, or a list of them.
    """
    outcome = answer.outcome
    if isinstance(outcome, Failure):
        timeout = outcome.code is Code.TIMEOUT
        ended: Message = {"type": "timeout"} if timeout else {"type": "exit", "exit_code": 1}
        return [{"stdout": "", "stderr": told(answer), "outcome": ended}]
    value = outcome.value
    chunks: list[Any] = value if is_list(value) else [value]
    if not chunks or answer.note or answer.warning or not all(map(_is_chunk, chunks)):
        ended = {"type": "exit", "exit_code": 0}
        return [{"stdout": told(answer), "stderr": "", "outcome": ended}]
    return [
        {
            "stdout": chunk["stdout"],
            "stderr": chunk.get("stderr", ""),
            "outcome": {"type": "exit", "exit_code": chunk.get("exit_code", 0)},
        }
        for chunk in chunks
    ]


def _is_chunk(chunk: object) -> bool:
    return (
        is_object(chunk)
        and isinstance(chunk.get("stdout"), str)
        and isinstance(chunk.get("stderr", ""), str)
        and type(chunk.get("exit_code", 0)) is int
        and chunk.keys() <= {"stdout", "stderr", "exit_code"}
    )


def _tools(answer: Answer) -> list[Any]:
    value = answer.outcome.value if isinstance(answer.outcome, Success) else None
    found = value.get("tools") if is_object(value) else value
    return [one for one in found if is_object(one)] if is_list(found) else []


def _screen(output: Message, item: Message, answer: Answer) -> list[Message]:
    """A picture of the screen; what else there is to say follows as a message."""
    value = answer.outcome.value if isinstance(answer.outcome, Success) else None
    picture = next((one for one in parts_of(value) or [] if isinstance(one, Media)), None)
    url = picture.url if picture is not None else _BLANK
    output["output"] = {"type": "computer_screenshot", "image_url": url}
    checks = item.get("pending_safety_checks")
    if checks and isinstance(answer.outcome, Success):
        output["acknowledged_safety_checks"] = checks
    told_too = [note for note in (answer.note, answer.warning) if note]
    said = "\n".join(told_too) if picture is not None else told(answer)
    if not said:
        return [output]
    text = f"About the call {answer.id} of {item['type']}: {said}"
    return [output, {"role": "user", "content": [{"type": "input_text", "text": text}]}]
