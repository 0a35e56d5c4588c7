"""How many tokens something has, about: no tokenizer is at hand for every model.

English text and code have some four characters a token with all the usual tokenizers, other
scripts between one and two; what is meant is a budget, so the estimate is rather too high. The
same value has the same estimate for ever: cuts that go by it are repeated exactly.
"""

import math
from typing import Any

from laneway.engine.kinds import is_list, is_object
from laneway.engine.results import json_text

CHARACTERS_PER_TOKEN = 4.0
"""Of ASCII (OpenAI, "What are tokens and how to count them": about 4 in English)."""
OTHERS_PER_TOKEN = 1.5
"""Of characters beyond ASCII."""
MEDIA_TOKENS = 1_600
"""Of a picture or a file (Anthropic, "Vision": width × height / 750, at most some 1,600)."""

_MEDIA = frozenset({"data", "bytes", "blob", "file_data", "b64_json"})
_LONG = 512
"""Characters from which a field called so holds content in base64."""


def tokens(value: object, /) -> int:
    """Estimate the tokens of a text, a message, a definition or any other JSON value.

    Pictures and files within it count as `MEDIA_TOKENS` each, however long their base64 is.
    """
    if isinstance(value, str):
        return _of_text(value)
    media: list[str] = []
    slim = _without_media(value, media)
    return _of_text(json_text(slim)) + MEDIA_TOKENS * len(media)


def _of_text(text: str) -> int:
    if text.isascii():
        return math.ceil(len(text) / CHARACTERS_PER_TOKEN)
    others = sum(character > "\x7f" for character in text)
    plain = len(text) - others
    return math.ceil(plain / CHARACTERS_PER_TOKEN + others / OTHERS_PER_TOKEN)


def _without_media(value: object, media: list[str], key: str = "") -> Any:
    if is_object(value):
        return {name: _without_media(inner, media, name) for name, inner in value.items()}
    if is_list(value):
        return [_without_media(inner, media) for inner in value]
    if (
        isinstance(value, str)
        and len(value) > _LONG
        and (key in _MEDIA or value.startswith("data:"))
    ):
        media.append(value)
        return ""
    return value
