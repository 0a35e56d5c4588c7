"""Opens what a client library handed over, and copies messages out of it as plain JSON.

Reads SDK objects, dicts and mixtures of both; feeds the formats. A message is copied by a round
trip through JSON: that is the cheapest deep copy there is (1 µs a call), it proves that a message
holds nothing but JSON, and the copy may then be mended in place.
"""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard

import msgspec

from laneway.engine.arguments import read_arguments
from laneway.engine.kinds import is_list, is_object
from laneway.engine.plain import MAX_DEPTH, NotPlainError, plain, whole_text
from laneway.engine.providers.reply import Message
from laneway.errors import PayloadError
from laneway.outcomes import Failure

ENCODE = msgspec.json.Encoder().encode
DECODE = msgspec.json.Decoder().decode


def opened(value: object, /) -> object:
    """Turn an SDK's object, any mapping or tuple into a dict or list, one level deep.

    The SDKs of OpenAI and Anthropic have `to_dict`, which leaves out what the server did not send;
    other pydantic models are dumped without the fields that are None. Anything else stays.
    """
    if type(value) is dict:  # Told by its type alone: nearly all are, and an ABC is slow to ask.
        return dict(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if value is None or isinstance(value, str | type):
        return value
    if _is_mapping(value):
        return dict(value)
    if _is_array(value):
        return list(value)
    to_dict: Callable[..., object] | None = getattr(value, "to_dict", None)
    if callable(to_dict):
        try:
            return to_dict(mode="json", warnings=False)
        except TypeError:  # another library's `to_dict`, which takes no such arguments
            return to_dict()
    dump: Callable[..., object] | None = getattr(value, "model_dump", None)
    return dump(mode="json", exclude_none=True) if callable(dump) else value


def _is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)


def _is_array(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, list | tuple)


def body_of(payload: object, /) -> Mapping[str, Any]:
    """Open a payload as far as its own fields; a list is a plan's list of calls.

    Raises:
        PayloadError: it is a stream, something not awaited, or no object at all.
    """
    body = opened(payload)
    if is_object(body):
        return body
    if is_list(body):
        return {"calls": body}
    if inspect.isawaitable(body):
        fault, way_out = "it has not been awaited", "Submit `await client…create(…)`"
    elif isinstance(body, str | bytes | bytearray):
        fault, way_out = "it is text", "Decode the JSON first, or submit the SDK's object"
    elif not isinstance(body, type) and (hasattr(body, "__aiter__") or hasattr(body, "__iter__")):
        fault = f"it is a stream ({type(body).__name__}), and streams are not read here"
        way_out = "Submit the finished message that the SDK gathers from it"
    else:
        fault = f"it is a {type(body).__name__}"
        way_out = "Submit the SDK's response object, or its dict"
    raise PayloadError("reply", fault, way_out)


def copied(message: object, /) -> tuple[Any, bytes] | None:
    """Copy a message of plain JSON; None if it holds anything else.

    Returns:
        The copy, and the compact JSON it went through.
    """
    try:
        written = ENCODE(message)
        copy = DECODE(written)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return None
    # Tuples, dates, NaN and their like are written in silence, but do not come back the same.
    return (copy, written) if copy == message else None


def copied_slowly(message: object, where: str, /) -> Any:
    """Copy a message that is not quite plain JSON: tuples, SDK objects, half characters.

    Raises:
        PayloadError: something in it cannot be said in JSON; names the place.
    """
    try:
        return plain(message)
    except NotPlainError as error:
        raise PayloadError(
            where + error.place.removeprefix("$"),
            error.fault,
            "Submit the SDK's object or its JSON",
        ) from None


def arguments_of(given: object, /) -> object:
    """Copy arguments that a library has decoded; as text, where JSON has no word for them.

    The text then fails to be read, at the place of the fault, as any other the model writes.
    """
    given = opened(given)
    try:
        return plain(given)
    except NotPlainError:
        try:
            return whole_text(json.dumps(given, ensure_ascii=False))
        except (TypeError, ValueError, RecursionError):
            return _kind(given)


def read_decoded(given: object, /) -> dict[str, Any] | Failure:
    """Read arguments out of a copied message: an object, or a text that holds one."""
    if is_object(given) and is_roomy(ENCODE(given), 0):
        return given
    return read_arguments(given)


def is_roomy(written: bytes, known: int, /) -> bool:
    """Whether nothing in a JSON text can be nested too deeply.

    Args:
        written: the text.
        known: brackets that are opened in it without adding to the depth of any arguments.
    """
    return written.count(b"{") + written.count(b"[") - known <= MAX_DEPTH


def text_of_arguments(given: object, /) -> str:
    """What to keep of arguments that could not be read."""
    return given if isinstance(given, str) else ENCODE(given).decode()


def described(value: object, /) -> str:
    """Say what was met, for an error message."""
    if value is None:
        return "null"
    if _is_mapping(value):
        names = ", ".join(str(key) for key in list(value)[:8])
        return f"an object with {names}" if names else "an empty object"
    if _is_array(value):
        return f"a list of {len(value)}" if value else "an empty list"
    if isinstance(value, str):
        return f"the text {json.dumps(value[:40])}" if value else "an empty text"
    return json.dumps(value, default=_kind)[:40]


def assistant_role(message: Message, where: str, /) -> None:
    """Make sure that a message is the model's own.

    Raises:
        PayloadError: it is somebody else's.
    """
    role = message.setdefault("role", "assistant") or "assistant"
    if role != "assistant":
        raise PayloadError(
            f"{where}.role", f"it is {described(role)}", "Submit the model's own message"
        )
    message["role"] = role


def _kind(value: object) -> str:
    return f"<{type(value).__name__}>"
