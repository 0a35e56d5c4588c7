"""Reads one call out of the part of a message that holds it.

Its arguments, or its free input, are a text there (the OpenAI family), or an object (all others).
Gives the call, and leaves in the part what any server accepts again. Feeds the formats.
"""

import msgspec

from laneway.engine.arguments import malformed, read_arguments
from laneway.engine.providers.faults import truncated
from laneway.engine.providers.payload import DECODE, described, read_decoded, text_of_arguments
from laneway.engine.providers.repair import named
from laneway.engine.providers.reply import Asked, Message
from laneway.engine.results import json_text
from laneway.outcomes import Failure


def read_function(function: Message, call_id: str, *, cut: bool) -> Asked:
    """Read name and arguments, and leave in `function` what can be sent again."""
    function.pop("parsed_arguments", None)  # the SDK's reading of the text; no request has it
    name, fault = named(function)
    given = function.get("arguments")
    read = read_arguments(given)
    if isinstance(read, Failure):
        function["arguments"] = "{}"
        text = text_of_arguments(given)
        fault = fault or (truncated(text) if cut else read)
        return Asked(id=call_id, name=name, arguments=None, text=text, fault=fault)
    if not isinstance(given, str) or not _is_sendable(given):
        function["arguments"] = json_text(read)
    if not cut:
        return Asked(id=call_id, name=name, arguments=read, fault=fault)
    if not given or (isinstance(given, str) and given.isspace()):
        return Asked(id=call_id, name=name, arguments=None, fault=fault or truncated())
    return Asked(id=call_id, name=name, arguments=read, fault=fault, cut=truncated())


def _is_sendable(text: str) -> bool:
    """Whether any strict reader takes a text, which is known to hold one object, as that object."""
    if text[:1] != "{" and text.lstrip(" \t\r\n")[:1] != "{":
        return False  # blank, null, or an object in a string
    if "\\u" not in text:
        return True
    try:
        DECODE(text)
    except msgspec.DecodeError:  # half a character, escaped
        return False
    return True


def read_custom(custom: Message, call_id: str, *, cut: bool) -> Asked:
    """Read a call of a custom tool: its input is free text, so nothing shows that it is whole."""
    name, fault = named(custom)
    given = custom.get("input")
    if isinstance(given, str):
        if cut:
            return Asked(
                id=call_id, name=name, arguments=None, text=given, fault=fault or truncated(given)
            )
        return Asked(id=call_id, name=name, arguments={"input": given}, fault=fault)
    custom["input"] = ""
    fault = fault or malformed(f"the input of a custom tool is a text, not {described(given)}")
    return Asked(id=call_id, name=name, arguments=None, text=text_of_arguments(given), fault=fault)


def read_object(part: Message, field: str, call_id: str, *, cut: bool) -> Asked:
    """Read a call whose arguments its provider has decoded; nothing shows that they are whole."""
    name, fault = named(part)
    given = part.get(field)
    read = read_decoded(given)
    part[field] = {} if isinstance(read, Failure) else read
    if not cut and not isinstance(read, Failure):
        return Asked(id=call_id, name=name, arguments=read, fault=fault)
    text = text_of_arguments(given)
    why = read if isinstance(read, Failure) and not cut else truncated(text)
    return Asked(id=call_id, name=name, arguments=None, text=text, fault=fault or why)
