"""Readers of streams, one file for each wire format, and the choice between them.

Reads what a host gets from a provider, event by event or in any cut of the bytes; gives whole
messages in the provider's own shape, which `providers.parse` reads, and says when each call is
complete. A new format is one file and one line in `READERS`.
"""

from collections.abc import Mapping
from typing import TypeAlias

from laneway.engine.providers.payload import described
from laneway.engine.providers.streams.anthropic_messages import AnthropicStream
from laneway.engine.providers.streams.bedrock_converse import BedrockStream
from laneway.engine.providers.streams.cohere_v2 import CohereStream
from laneway.engine.providers.streams.google_generate import GoogleStream
from laneway.engine.providers.streams.google_interactions import InteractionsStream
from laneway.engine.providers.streams.ollama_chat import OllamaStream
from laneway.engine.providers.streams.openai_chat import OpenAIChatStream
from laneway.engine.providers.streams.openai_responses import ResponsesStream
from laneway.engine.providers.streams.reading import Event, StreamReader
from laneway.errors import PayloadError

__all__ = ["READERS", "StreamReader", "reader_for", "reader_named"]


_Known: TypeAlias = (
    type[AnthropicStream]
    | type[ResponsesStream]
    | type[OpenAIChatStream]
    | type[GoogleStream]
    | type[InteractionsStream]
    | type[BedrockStream]
    | type[CohereStream]
    | type[OllamaStream]
)
_ALL: tuple[_Known, ...] = (
    AnthropicStream,
    ResponsesStream,
    OpenAIChatStream,
    GoogleStream,
    InteractionsStream,
    BedrockStream,
    CohereStream,
    OllamaStream,
)
READERS: Mapping[str, _Known] = {reader.name: reader for reader in _ALL}
"""All known formats by name; the first that recognises an event reads the stream."""


def reader_named(name: str) -> StreamReader:
    """Make a reader of a format.

    Raises:
        PayloadError: no stream of that name can be read.
    """
    if name not in READERS:
        raise PayloadError(
            "provider", f"no streams of the format {name!r} are read", f"Known are {_names()}"
        )
    return READERS[name]()


def reader_for(event: Event) -> StreamReader:
    """Make a reader for the stream that begins with an event.

    Raises:
        PayloadError: it is in no known format.
    """
    for reader in READERS.values():
        if reader.recognises(event):
            return reader()
    raise PayloadError(
        "stream",
        f"{described(event)} is an event of no known format ({_names()})",
        "Name the format: run.stream(…, provider=…)",
    )


def _names() -> str:
    return ", ".join(READERS)
