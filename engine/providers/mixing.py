"""Finds payloads that mix the forms of several providers.

A call in another provider's form would pass for a part that nobody knows, and so would neither run
nor be answered: such a message is refused by name. Read by every format, and by the choice between
them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from laneway.engine.kinds import is_list, is_object
from laneway.engine.providers.payload import opened
from laneway.errors import PayloadError

_BY_TYPE = {
    "tool_use": ("anthropic-messages",),
    "function_call": ("openai-responses", "google-interactions"),
    "custom_tool_call": ("openai-responses",),
}
_BY_FIELD = {
    "toolUse": ("bedrock-converse",),
    "functionCall": ("google-generate",),
    "function_call": ("google-generate",),
    "function": ("openai-chat", "cohere-v2", "ollama-chat"),
}
"""What a call of a format looks like among the parts of a message."""

_ENVELOPES = ("choices", "candidates", "output", "steps", "calls")


def see_that_own(provider: str, parts: object, where: str) -> None:
    """See that no part of a message is a call in another provider's form.

    Args:
        provider: the format that the message is read in.
        parts: of the message, copied or not; anything but a list holds no calls.
        where: the place of the parts, for the error.

    Raises:
        PayloadError: one is; names it.
    """
    if not is_list(parts):
        return
    for index, part in enumerate(parts):
        if not is_object(part):
            continue
        owners = _owners(part)
        if owners and provider not in owners:
            raise PayloadError(
                f"{where}[{index}]",
                f"it is a call as {owners[0]} writes it, in a message of {provider}",
                "Submit the answer as its provider gave it, of one format throughout",
            )


def see_that_one(body: Mapping[str, Any]) -> None:
    """See that a payload is the answer of one provider.

    Raises:
        PayloadError: it holds the answers of several.
    """
    found = [name for name in _ENVELOPES if name in body and _is_filled(body[name])]
    if len(found) > 1:
        raise PayloadError(
            "reply",
            f"it mixes formats: {' and '.join(found)} are the answers of different providers",
            "Submit one of them, or name its format",
        )


def _is_filled(value: object) -> bool:
    return isinstance(value, list | tuple | dict) and bool(value)  # pyright: ignore[reportUnknownArgumentType]


def _owners(part: Mapping[str, Any]) -> tuple[str, ...]:
    kind = part.get("type")
    if isinstance(kind, str) and kind in _BY_TYPE:
        return _BY_TYPE[kind]
    return next(_by_field(part), ())


def _by_field(part: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for name, owners in _BY_FIELD.items():
        if name in part and is_object(opened(part[name])):
            yield owners
