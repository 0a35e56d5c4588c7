"""What the definitions of tools cost in each request, in tokens, about."""

from collections.abc import Iterable
from typing import Any

from laneway.engine.history.estimate import tokens
from laneway.engine.tool import Tool


def definition_tokens(tool: Tool[..., Any]) -> int:
    """Estimate the tokens of one definition; the providers' forms differ by a few."""
    spec = tool.spec
    return tokens({"name": spec.name, "description": spec.description, "parameters": spec.schema})


def toolset_tokens(tools: Iterable[Tool[..., Any]]) -> dict[str, int]:
    """Estimate the tokens of each definition, by name."""
    return {tool.spec.name: definition_tokens(tool) for tool in tools}
