"""Pictures and files in results: recognised here, and written by each format in its own way.

A tool hands them over as MCP does, since that is where most of them come from: a block
`{"type": "image", "data": <base64>, "mimeType": …}` (or `audio`, or `resource` with a blob), alone,
in a list with texts, or under `content` of a tool's whole answer. Reads outcomes; feeds renderers.
"""

import base64
from collections.abc import Callable
from typing import Any

import msgspec

from laneway.engine.kinds import is_list, is_object
from laneway.engine.plain import whole_text
from laneway.engine.providers.reply import Answer, Message
from laneway.engine.results import json_text, noted
from laneway.outcomes import Success

MAX_PARTS = 256
"""A longer list is data, not a message."""

_FIELDS = frozenset({"type", "data", "mimeType", "annotations", "_meta"})
_BLOCKS = frozenset({"text", "image", "audio", "resource", "resource_link"})


class Media(msgspec.Struct, frozen=True, kw_only=True):
    """A picture, a sound or a file in a result."""

    media_type: str
    data: str
    """Base64."""
    name: str = ""

    @property
    def kind(self) -> str:
        """The first half of the media type, for instance `image`."""
        return self.media_type.partition("/")[0]

    @property
    def url(self) -> str:
        """The content as a `data:` URL."""
        return f"data:{self.media_type};base64,{self.data}"


def image_part(data: bytes, media_type: str = "image/png") -> dict[str, Any]:
    """Make what a tool returns, alone or in a list, to show the model a picture.

    Providers that take no pictures in results are told its type and size instead.

    Args:
        data: the picture.
        media_type: `image/png`, `image/jpeg`, `image/gif` or `image/webp`.
    """
    return {"type": "image", "data": _base64(data), "mimeType": media_type}


def file_part(data: bytes, media_type: str, name: str = "file") -> dict[str, Any]:
    """Make what a tool returns, alone or in a list, to show the model a file.

    Args:
        data: the content.
        media_type: for instance `application/pdf`.
        name: what the model is to call it.
    """
    resource = {"uri": f"file:///{name}", "mimeType": media_type, "blob": _base64(data)}
    return {"type": "resource", "resource": resource}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def parts_of(value: object, /) -> list[str | Media] | None:
    """Split a value with pictures or files into texts and those; None where it has none."""
    if is_object(value):
        content = value.get("content")
        if not is_list(content):
            found = _media(value)
            return None if found is None else [found]
        if len(content) > MAX_PARTS or not all(map(_is_block, content)):
            return None
        value = content
    if not is_list(value) or len(value) > MAX_PARTS:
        return None
    media = [_media(item) for item in value]
    if not any(media):
        return None
    return [found or _text(item) for item, found in zip(value, media, strict=True)]


def _media(item: object) -> Media | None:
    if not is_object(item):
        return None
    kind = item.get("type")
    name = ""
    if kind == "resource":
        item = item.get("resource")
        if not is_object(item):
            return None
        data, name = item.get("blob"), str(item.get("uri") or "").rpartition("/")[2]
    elif kind in ("image", "audio") and item.keys() <= _FIELDS:
        data = item.get("data")
    else:
        return None
    media_type = item.get("mimeType")
    if not isinstance(data, str) or not isinstance(media_type, str) or not data:
        return None
    return Media(media_type=media_type, data=data, name=name)


def _is_block(item: object) -> bool:
    return is_object(item) and item.get("type") in _BLOCKS


def _text(item: object) -> str:
    if is_object(item) and item.get("type") == "text" and isinstance(item.get("text"), str):
        return str(item["text"])
    return item if isinstance(item, str) else json_text(item)


def told(answer: Answer) -> str:
    """Write a result as one text, with words in place of pictures and files."""
    parts = _parts(answer)
    if parts is None:
        return noted(answer.outcome, answer.note, answer.warning)
    said = (part if isinstance(part, str) else _in_words(part) for part in parts)
    return whole_text("\n".join(said))


def content_of(
    answer: Answer,
    text: Callable[[str], Message],
    media: Callable[[Media], Message | None],
) -> str | list[Message]:
    """Write a result as the provider's parts if it holds pictures or files, else as one text.

    Args:
        answer: the result, with the notes around it.
        text: writes a text that is not blank as a part.
        media: writes a picture or file as a part; None where the provider takes none of its type.
    """
    parts = _parts(answer)
    if parts is None:
        return noted(answer.outcome, answer.note, answer.warning)
    return [
        text(whole_text(part))
        if isinstance(part, str)
        else media(part) or text(whole_text(_in_words(part)))
        for part in parts
    ]


def _parts(answer: Answer) -> list[str | Media] | None:
    """All that is told of an outcome with pictures or files, without what is blank."""
    outcome = answer.outcome
    if type(outcome) is not Success or type(outcome.value) is str:
        return None
    parts = parts_of(outcome.value)
    if parts is None:
        return None
    told_too = [answer.note, *parts, answer.warning]
    return [part for part in told_too if not isinstance(part, str) or part.strip()]


def _in_words(part: Media) -> str:
    called = f" {part.name}" if part.name else ""
    size = len(part.data) * 3 // 4 - part.data[-2:].count("=")
    return f"({part.media_type}{called}, {size} bytes: it cannot be shown in a result here)"
