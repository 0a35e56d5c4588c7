"""What a provider says that its answer took, in the one form that budgets count.

Reads the `usage` of an answer by its fields, whatever the format: Anthropic counts what a cache
read and wrote beside `input_tokens` (docs.anthropic.com, "Prompt caching"), OpenAI within
`prompt_tokens`. Feeds the reply; an answer that tells nothing has none.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from laneway.engine.kinds import is_object
from laneway.engine.providers.payload import opened
from laneway.engine.providers.reply import Reply
from laneway.policies.prices import Tokens


def with_usage(reply: Reply, body: Mapping[str, Any]) -> Reply:
    """Note in a reply what its payload says of tokens and model."""
    said = body.get("usage")
    if said is None:
        return reply
    tokens = usage_of(said if is_object(said) else opened(said))
    if tokens is None:
        return reply
    model = body.get("model")
    return msgspec.structs.replace(
        reply, tokens=tokens, model=model if isinstance(model, str) else ""
    )


def usage_of(said: object) -> Tokens | None:
    """Read the numbers; None where there are none, or all are 0."""
    if not is_object(said):
        return None
    if "prompt_tokens" in said or "completion_tokens" in said:
        sent, output = _count(said, "prompt_tokens"), _count(said, "completion_tokens")
        details = said.get("prompt_tokens_details")
        details = details if is_object(details) or details is None else opened(details)
        cached = _count(details, "cached_tokens") if is_object(details) else 0
        tokens = Tokens(input=sent, output=output, cache_read=min(cached, sent))
    else:
        read = _count(said, "cache_read_input_tokens")
        write = _count(said, "cache_creation_input_tokens")
        tokens = Tokens(
            input=_count(said, "input_tokens") + read + write,
            output=_count(said, "output_tokens"),
            cache_read=read,
            cache_write=write,
        )
    return tokens if tokens.total else None


def _count(said: Mapping[str, Any], name: str) -> int:
    given = said.get(name)
    return given if isinstance(given, int) and given > 0 else 0
