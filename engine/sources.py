"""Where tools come from that are not known when an engine is made: MCP servers, for one.

A source is opened while the engine is entered, before anything can be asked of its tools, and
closed while it is left. Its tools may change meanwhile: then the engine has another toolset, and
the calls that are under way keep what they were checked against.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeGuard

from laneway.engine.tools import Tool, Toolset
from laneway.errors import ToolError

AnyTool = Tool[..., Any] | Callable[..., Any]

logger = logging.getLogger("laneway")


class ToolSource(Protocol):
    """Gives tools while it is open."""

    @property
    def offered(self) -> Sequence[Tool[..., Any]]:
        """Those that are known: none before it has been open for the first time."""
        ...

    async def open(self, changed: Callable[[], None], /) -> None:
        """Make the tools known; `changed` is called in the event loop whenever they change."""
        ...

    async def close(self, changed: Callable[[], None], /) -> None:
        """Undo what `open` did with the same argument; nothing of it goes on behind."""
        ...


class Sources:
    """What an engine was given for tools."""

    def __init__(self, given: Iterable["AnyTool | ToolSource"]) -> None:
        """Tell sources from tools."""
        one_tool = isinstance(given, Tool) or callable(given)  # Toolset says how it is meant.
        listed: list[Any] = [given] if is_source(given) else [] if one_tool else list(given)
        self._own: Any = given if one_tool else [one for one in listed if not is_source(one)]
        self._sources = [one for one in listed if is_source(one)]
        self._open: list[ToolSource] = []
        self._tell: Callable[[Toolset], None] | None = None

    def toolset(self) -> Toolset:
        """All tools that are known now.

        Raises:
            ToolError: two share a name.
            UsageError: this is one tool, not several.
        """
        if not self._sources:
            return Toolset(self._own)
        return Toolset([*self._own, *(tool for one in self._sources for tool in one.offered)])

    async def open(self, tell: Callable[[Toolset], None]) -> Toolset:
        """Open all sources side by side.

        Args:
            tell: gets the toolset whenever it has changed.

        Raises:
            LanewayError: one of them cannot be opened; all of them are closed again.
        """
        if not self._sources:
            return self.toolset()
        tasks = [asyncio.ensure_future(one.open(self._changed)) for one in self._sources]
        try:
            await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            self._open = [
                one
                for one, task in zip(self._sources, tasks, strict=True)
                if not task.cancelled() and task.exception() is None
            ]
            await self.close()
            raise
        self._open = list(self._sources)
        try:
            found = self.toolset()
        except ToolError:
            await self.close()
            raise
        self._tell = tell
        return found

    async def close(self) -> None:
        """Close whatever is open."""
        self._tell = None
        opened, self._open = self._open, []
        if opened:
            await asyncio.gather(
                *(one.close(self._changed) for one in opened), return_exceptions=True
            )

    def _changed(self) -> None:
        if self._tell is None:
            return
        try:
            found = self.toolset()
        except ToolError as error:
            logger.warning("the tools stay as they were: %s", error)
            return
        self._tell(found)


def is_source(given: object) -> TypeGuard[ToolSource]:
    """Whether this gives tools, and is none."""
    return hasattr(given, "offered") and not isinstance(given, Tool)
