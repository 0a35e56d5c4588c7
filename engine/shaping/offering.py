"""Offers the model the tool by which it reads what a result was shortened by."""

from laneway.engine.shaping.options import LEAST_CHARACTERS, Shaping
from laneway.engine.shaping.reading import MOST_CHARACTERS, ReadResult, read_result
from laneway.engine.tools import Toolset


def offering(tools: Toolset, shaping: Shaping | None) -> Toolset:
    """The tools, with `read_result` if the host wants it and has not brought it along."""
    if shaping is None or not shaping.read_result:
        return tools
    if any(isinstance(one, ReadResult) for one in tools):
        return tools
    most = max(int(min(MOST_CHARACTERS, shaping.result_chars - LEAST_CHARACTERS)), LEAST_CHARACTERS)
    return Toolset([*tools, read_result(most_chars=most)])
