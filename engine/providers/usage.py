"""What a provider says that its answer took, in the one form that budgets count.

Reads the account of an answer by its fields, whatever the format. Some count what a cache read and
wrote beside the input (Anthropic, "Prompt caching"; Amazon Bedrock, "TokenUsage"), the others
within it; Google counts thinking beside the output ("UsageMetadata"). Feeds the reply; an answer
that tells nothing has none.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from laneway.engine.kinds import is_object
from laneway.engine.providers.payload import opened
from laneway.engine.providers.reply import Reply
from laneway.policies.prices import Tokens

_ACCOUNTS = ("usage", "usageMetadata", "usage_metadata")
_MODELS = ("model", "modelVersion", "model_version")


class _Fields(msgspec.Struct, frozen=True):
    """Where a format tells what; every name of a list counts, camel case or not."""

    told_by: tuple[str, ...]
    """One of these makes it this form."""
    input: tuple[str, ...]
    output: tuple[str, ...]
    read: tuple[str, ...] = ()
    """From a cache."""
    write: tuple[str, ...] = ()
    beside: bool = False
    """What a cache read and wrote is no part of the input."""


_FORMS = (
    _Fields(
        ("prompt_tokens", "completion_tokens"),
        ("prompt_tokens",),
        ("completion_tokens",),
        ("prompt_tokens_details.cached_tokens",),
    ),
    _Fields(
        ("promptTokenCount", "candidatesTokenCount"),
        ("promptTokenCount", "toolUsePromptTokenCount"),
        ("candidatesTokenCount", "thoughtsTokenCount"),
        ("cachedContentTokenCount",),
    ),
    _Fields(
        ("prompt_token_count", "candidates_token_count"),
        ("prompt_token_count", "tool_use_prompt_token_count"),
        ("candidates_token_count", "thoughts_token_count"),
        ("cached_content_token_count",),
    ),
    _Fields(
        ("total_input_tokens", "total_output_tokens"),
        ("total_input_tokens", "total_tool_use_tokens"),
        ("total_output_tokens", "total_thought_tokens"),
        ("total_cached_tokens",),
    ),
    _Fields(
        ("inputTokens", "outputTokens"),
        ("inputTokens",),
        ("outputTokens",),
        ("cacheReadInputTokens",),
        ("cacheWriteInputTokens",),
        beside=True,
    ),
    _Fields(
        ("cache_read_input_tokens", "cache_creation_input_tokens"),
        ("input_tokens",),
        ("output_tokens",),
        ("cache_read_input_tokens",),
        ("cache_creation_input_tokens",),
        beside=True,
    ),
    _Fields(
        ("input_tokens", "output_tokens"),
        ("input_tokens",),
        ("output_tokens",),
        ("input_tokens_details.cached_tokens",),
    ),
    _Fields(("prompt_eval_count", "eval_count"), ("prompt_eval_count",), ("eval_count",)),
)


def with_usage(reply: Reply, body: Mapping[str, Any]) -> Reply:
    """Note in a reply what its payload says of tokens and model."""
    said = next((body[name] for name in _ACCOUNTS if body.get(name) is not None), None)
    if said is None:
        if body.get("eval_count") is None:
            return reply
        said = {name: body.get(name) for name in ("prompt_eval_count", "eval_count")}  # Ollama
    tokens = usage_of(said)
    if tokens is None:
        return reply
    model = next((body[name] for name in _MODELS if isinstance(body.get(name), str)), "")
    return msgspec.structs.replace(reply, tokens=tokens, model=model)


def usage_of(said: object) -> Tokens | None:
    """Read the numbers; None where there are none, or all are 0."""
    said = said if is_object(said) or said is None else opened(said)
    if not is_object(said):
        return None
    billed = said.get("tokens")
    if billed is not None and "input_tokens" not in said:  # Cohere, beside what it bills
        return usage_of(billed)
    for form in _FORMS:
        if any(said.get(name) is not None for name in form.told_by):
            tokens = _read(said, form)
            return tokens if tokens.total else None
    return None


def _read(said: Mapping[str, Any], form: _Fields) -> Tokens:
    sent, read, write = (_sum(said, names) for names in (form.input, form.read, form.write))
    return Tokens(
        input=sent + read + write if form.beside else sent,
        output=_sum(said, form.output),
        cache_read=read if form.beside else min(read, sent),
        cache_write=write,
    )


def _sum(said: Mapping[str, Any], names: tuple[str, ...]) -> int:
    return sum(_count(said, name) for name in names)


def _count(said: Mapping[str, Any], name: str) -> int:
    outer, _, inner = name.partition(".")
    given = said.get(outer)
    if inner:
        details = given if is_object(given) or given is None else opened(given)
        given = details.get(inner) if is_object(details) else None
    return given if isinstance(given, int) and not isinstance(given, bool) and given > 0 else 0
