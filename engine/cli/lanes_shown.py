"""The lanes of running engines as they are shown, as a table or as JSON; the names stay.

Times are Unix seconds; `read_wall` less a `since_wall` is an age. Filled by `lanes`, drawn by
`lanes_table`.
"""

import msgspec

from laneway.claims import Access
from laneway.states import State


class ShownHolder(msgspec.Struct, frozen=True, kw_only=True):
    """A call that holds the resource, or is about to start and holds it already."""

    call: str
    """`run/t1.2`."""
    tool: str
    access: Access
    state: State
    """RUNNING; QUEUED where nothing is in its way that the journal tells; how it ended where its
    body has not stopped."""
    stuck: bool
    """Its outcome stands, and its body has not stopped."""
    since_wall: float
    """When it came into this state."""


class ShownBlocker(msgspec.Struct, frozen=True, kw_only=True):
    """The oldest call in the way at one resource."""

    resource: str
    call: str
    holding: bool
    """It holds the resource; else it waits itself, and came first."""
    certain: bool
    """False where it is only known that the lane has let no more in than are in it now."""


class ShownWaiter(msgspec.Struct, frozen=True, kw_only=True):
    """A call that wants the resource."""

    call: str
    tool: str
    access: Access
    since_wall: float
    waits_for: tuple[ShownBlocker, ...]
    """At all the resources that it claims."""


class ShownLane(msgspec.Struct, frozen=True, kw_only=True):
    """A resource that somebody holds or wants; holders and waiters in their order."""

    resource: str
    max_concurrent: int | None
    """None where it is not known."""
    holders: tuple[ShownHolder, ...]
    waiters: tuple[ShownWaiter, ...]


class ShownEngine(msgspec.Struct, frozen=True, kw_only=True):
    """A process that drives runs."""

    host: str
    pid: int
    runs: tuple[str, ...]
    lanes: tuple[ShownLane, ...]


class ShownLeft(msgspec.Struct, frozen=True, kw_only=True):
    """A call that a process had begun or queued when it died: nothing holds its claims now."""

    run: str
    host: str
    pid: int
    call: str
    tool: str
    state: State
    since_wall: float
    claims: tuple[str, ...]


class ShownLanes(msgspec.Struct, frozen=True, kw_only=True):
    """All lanes of the engines that work with one journal."""

    journal: str
    read_wall: float
    """When the journal was read."""
    engines: tuple[ShownEngine, ...]
    gone: tuple[ShownLeft, ...]
