"""The tool by which a model loads the definitions of others.

    search_tools(query="send mail to a customer")
    → {"tools": [{"name": …, "description": …, "parameters": …}, …]}

What it has found stays loaded in the run: `Run.definitions` shows it from then on, also after a
resume, since what was found is in the journal.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from laneway.effects import Effect
from laneway.engine.kinds import is_list, is_object
from laneway.engine.planning import PlanTool
from laneway.engine.shaping.reading import ReadResult
from laneway.engine.tool import Tool
from laneway.engine.tools import Toolset
from laneway.engine.toolsearch.cost import toolset_tokens
from laneway.engine.toolsearch.index import Index
from laneway.engine.toolsearch.options import Search
from laneway.errors import UsageError
from laneway.journal.fold import CallView, RunView
from laneway.outcomes import Success

DESCRIPTION = (
    "Find tools that are not listed here, by what they do. Gives the definitions of those that fit "
    "best; they can be called from then on, by their names."
)
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "What is to be done, in a few words."},
    },
    "required": ["query"],
    "additionalProperties": False,
}


class SearchTools(Tool[..., Any]):
    """Made by `search_tools`."""


def search_tools(
    tools: Sequence[Tool[..., Any]], *, found: int = 5, name: str = "search_tools"
) -> "SearchTools":
    """Make the tool by which a model finds others.

    Args:
        tools: among which it finds them.
        found: how many at most.
        name: for the model.

    Raises:
        ToolError: no provider would take the name.
    """
    index = Index(tools)
    known = {tool.spec.name: tool.spec for tool in tools}

    async def search(query: str) -> dict[str, Any]:
        names = index.find(query, found)
        told = [
            {
                "name": known[one].name,
                "description": known[one].description,
                "parameters": known[one].schema,
            }
            for one in names
        ]
        if told:
            return {"tools": told}
        return {"tools": [], "hint": f"none of {len(known)} tools has these words; try others"}

    made = SearchTools.from_schema(
        search, schema=SCHEMA, name=name, description=DESCRIPTION, effect=Effect.PURE, claims=[]
    )
    assert isinstance(made, SearchTools)
    return made


class Catalogue:
    """The tools of an engine, and which of them a request shows."""

    def __init__(self, tools: Toolset, search: Search) -> None:
        """Decide whether definitions are loaded by search.

        Raises:
            UsageError: a tool that is always to be shown is none of them.
        """
        if unknown := [name for name in search.always if name not in tools]:
            raise UsageError(
                f"Search.always names {unknown[0]!r}, which is no tool here "
                f"(there are {', '.join(tools.names[:20])})"
            )
        ours = (PlanTool, ReadResult, SearchTools)
        hidden = [
            tool
            for tool in tools
            if tool.spec.name not in search.always and not isinstance(tool, ours)
        ]
        self.lazy = bool(hidden) and search.applies(
            len(hidden), lambda: sum(toolset_tokens(hidden).values())
        )
        """Whether tools are found by search."""
        self.tools = tools
        """All of them, with the one that finds the others."""
        self._hidden: dict[str, Tool[..., Any]] = {}
        if self.lazy:
            self._hidden = {tool.spec.name: tool for tool in hidden}
            if not any(isinstance(tool, SearchTools) for tool in tools):
                self.tools = Toolset([*tools, search_tools(hidden, found=search.found)])

    def shown(self, view: RunView | None = None) -> list[Tool[..., Any]]:
        """The tools of a request: the fixed ones first, then what a run has loaded, in order.

        Args:
            view: of the run; None where there is none yet.
        """
        fixed = [tool for tool in self.tools if tool.spec.name not in self._hidden]
        if view is None or not self.lazy:
            return fixed
        return fixed + [self._hidden[name] for name in self._loaded(view)]

    @property
    def hidden(self) -> list[Tool[..., Any]]:
        """Those that are found by search."""
        return list(self._hidden.values())

    def _loaded(self, view: RunView) -> list[str]:
        """What searches of a run have found, and what it has called, the first first."""
        names = dict.fromkeys(
            name for call in view.calls.values() for name in self._loaded_by(call)
        )
        return [name for name in names if name in self._hidden]

    def _loaded_by(self, call: CallView) -> Iterator[str]:
        tool = self.tools.get(call.record.tool)
        outcome = call.outcome
        if not isinstance(tool, SearchTools):
            yield call.record.tool
        elif isinstance(outcome, Success) and is_object(outcome.value):
            found = outcome.value.get("tools")
            for one in found if is_list(found) else ():
                if is_object(one):
                    yield str(one.get("name"))
