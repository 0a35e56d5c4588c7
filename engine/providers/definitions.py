"""How each provider wants a tool to be described in a request.

Reads what the model is to know of a tool; feeds the host's requests.
"""

from collections.abc import Callable, Sequence
from typing import Any

from laneway.engine.providers.builtins import DEFINITIONS

Written = dict[str, Any]


def definition(provider: str, name: str, description: str, schema: Written) -> Written:
    """Write one tool as a provider wants it.

    Args:
        provider: one of `FORMS`.
        name: of the tool.
        description: for the model.
        schema: of the arguments; it becomes part of the definition.
    """
    return FORMS[provider](name, description, schema)


def gathered(provider: str, tools: Sequence[Written]) -> list[Written]:
    """Put definitions into the list that a request takes."""
    if provider == "google-generate" and tools:
        return [{"functionDeclarations": list(tools)}]
    return list(tools)


def _chat(name: str, description: str, schema: Written) -> Written:
    function = {"name": name, "description": description, "parameters": schema}
    return {"type": "function", "function": function}


def _flat(name: str, description: str, schema: Written) -> Written:
    return {"type": "function", "name": name, "description": description, "parameters": schema}


def _responses(name: str, description: str, schema: Written) -> Written:
    """A function; not strict, which is the default there, and refuses most schemas."""
    if name in DEFINITIONS:
        return dict(DEFINITIONS[name])
    if name == "tool_search_call":
        told = {"description": description, "parameters": schema}
        return {"type": "tool_search", "execution": "client", **told}
    return {**_flat(name, description, schema), "strict": False}


def _anthropic(name: str, description: str, schema: Written) -> Written:
    return {"name": name, "description": description, "input_schema": schema}


def _google(name: str, description: str, schema: Written) -> Written:
    return {"name": name, "description": description, "parametersJsonSchema": schema}


def _bedrock(name: str, description: str, schema: Written) -> Written:
    told = {"description": description} if description else {}  # an empty one is refused
    return {"toolSpec": {"name": name, **told, "inputSchema": {"json": schema}}}


FORMS: dict[str, Callable[[str, str, Written], Written]] = {
    "anthropic-messages": _anthropic,
    "bedrock-converse": _bedrock,
    "cohere-v2": _chat,
    "google-generate": _google,
    "google-interactions": _flat,
    "ollama-chat": _chat,
    "openai-chat": _chat,
    "openai-responses": _responses,
}
"""By the name of the format."""
