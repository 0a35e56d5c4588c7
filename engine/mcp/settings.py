"""What a host says of a server beside where it is."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import msgspec

from laneway.effects import Effect
from laneway.engine.mcp.hints import SERVER_NAME
from laneway.engine.spec import Declarations
from laneway.errors import UsageError


class MCPLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one server, in seconds; `math.inf` lifts one, by name."""

    idle_seconds: float = 45.0
    """How long a call may go without a sign from the server: its progress begins it anew (an MCP
    server: 30–60 s)."""
    call_seconds: float = 600.0
    """The most that a call may take, however much progress it makes."""
    ping_seconds: float = 10.0
    """How long a server that has been idle for too long may take to answer a ping; one that does
    is slow, one that does not is dead, and is started again."""
    connect_seconds: float = 30.0
    """From the start of a server until its tools are known."""
    linger_seconds: float = 15.0
    """How long a call that changes something is still waited for when it has been cancelled, before
    its claims are freed: a server need not answer it any more."""
    pause_seconds: float = 0.5
    """Before a server is started again that died once more; doubles, up to `pause_most_seconds`."""
    pause_most_seconds: float = 30.0
    settled_seconds: float = 10.0
    """A server that has lived so long may die again without a pause."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            UsageError: a limit is no number of seconds above 0.
        """
        for name in self.__struct_fields__:
            given = getattr(self, name)
            if not isinstance(given, (int, float)) or not given > 0:
                raise UsageError(
                    f"MCPLimits.{name} is {given!r}; give seconds, more than 0 (math.inf lifts it)"
                )


ToolSaying = Mapping[str, Declarations]
Answers = Callable[..., Awaitable[Any]]


class MCPOptions(TypedDict, total=False):
    """What can be said of a server; everything may be left out."""

    trusted: bool
    """Whether its annotations are believed (docs/mcp.md). False if left out: each of its tools is
    taken for the worst case."""
    effect: Effect | None
    """How far its tools reach, whatever their annotations say."""
    tools: ToolSaying
    """What the host says of single tools, by the server's own names, as for `@tool`: it goes before
    everything else."""
    only: Collection[str] | None
    """The tools that are taken, by the server's own names; all if left out."""
    prefix: str | None
    """Put before the names of its tools; `<name>__` if left out."""
    required: bool
    """False lets the engine begin without it: its tools come when it does. True if left out."""
    limits: MCPLimits
    """Its figures."""
    protocol: str
    """`auto` asks the server what it speaks, `legacy` begins with `initialize` (up to 2025-11-25),
    or a version from 2026-07-28 on. `auto` if left out."""
    roots: Sequence[str | Path] | None
    """Folders that it may ask for; a server that asks is refused if left out."""
    sampling: Answers | None
    """Answers its requests for a model's answer: the SDK's `sampling_callback`; refused if left
    out."""
    elicitation: Answers | None
    """Asks the user for it: the SDK's `elicitation_callback`; refused if left out."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The same, with every value."""

    name: str
    trusted: bool = False
    effect: Effect | None = None
    tools: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    only: Collection[str] | None = None
    prefix: str | None = None
    required: bool = True
    limits: MCPLimits = msgspec.field(default_factory=MCPLimits)
    protocol: str = "auto"
    roots: Sequence[str | Path] | None = None
    sampling: Answers | None = None
    elicitation: Answers | None = None
    whole: bool = False
    """Results are given as the server gave them, for somebody who passes them on."""
    alone: bool = True
    """Of what is not trusted nothing is said, so that it has its run alone."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            UsageError: a name that no server can have, or an option that makes no sense.
        """
        if not SERVER_NAME.fullmatch(self.name):
            raise UsageError(
                f"{self.name!r} is no name for an MCP server: it stands in the names of its tools, "
                "so give letters, digits, _ and -, up to 32"
            )
        for option in ("only", "tools"):
            given = getattr(self, option)
            if isinstance(given, str):
                raise UsageError(
                    f"MCP server {self.name!r}: {option}={given!r} is a text; name its tools in a "
                    + ("list" if option == "only" else "map")
                )
        for root in self.roots or ():
            if not Path(root).is_absolute():
                raise UsageError(
                    f"MCP server {self.name!r}: roots= names {str(root)!r}; give absolute folders"
                )
        if self.only is not None and (left := sorted(set(self.tools) - set(self.only))):
            raise UsageError(
                f"MCP server {self.name!r}: tools= speaks of {left[0]!r}, which only= leaves out"
            )
