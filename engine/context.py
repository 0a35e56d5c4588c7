"""What a tool may know of the call it serves: a parameter annotated `ToolContext` receives it.

Made by the execution for tools that ask for it, never seen by the model. Its idempotency key is
what a tool hands to a service that can tell a repeated request from a new one.
"""

from typing import TYPE_CHECKING, Any

import msgspec

from laneway.engine.invoking import value_of
from laneway.engine.serialise import digest
from laneway.errors import UsageError
from laneway.ids import CallId, RunId

if TYPE_CHECKING:
    from laneway.engine.invoking import Nest


class Stop(msgspec.Struct):
    """Set when a call is told to stop; a flag is all that a thread can look at."""

    asked: bool = False


class ToolContext(msgspec.Struct, frozen=True, kw_only=True, weakref=True):
    """One attempt of one call."""

    run: RunId
    call: CallId
    attempt: int
    """From 1; more than 1 when an earlier attempt failed."""
    tool: str
    arguments: dict[str, Any]
    """As policy and journal saw them: canonical, host-bound ones absent."""
    stop: Stop = msgspec.field(default_factory=Stop)
    nest: "Nest | None" = None
    """The way to the engine; None where a tool is tried out without one."""

    @property
    def cancelled(self) -> bool:
        """Whether the call has been told to stop; a long synchronous tool looks now and then."""
        return self.stop.asked

    async def invoke(self, tool: str, /, **arguments: Any) -> Any:
        """Run another tool of the engine as part of this call, and give its value.

        It is checked, judged, queued and journalled like any call, in a run of its own called
        `<run>/<call>/<n>`. It may use what this call holds, and waits for everybody else. When the
        body is entered again, after a failed attempt or a crash, what the n-th call of a tool with
        these arguments came to is given again, unless it did nothing.

        Raises:
            NestedCallFailed: it did not succeed, a ToolFailed with its code: LANE_DEADLOCK if it
                could only wait for itself. What it says is said of that call alone.
            UsageError: the tool was called without an engine.
        """
        return value_of(tool, await self._nested().outcome(tool, arguments))

    def invoke_blocking(self, tool: str, /, **arguments: Any) -> Any:
        """Do the same in a synchronous tool, whose thread waits for it."""
        return value_of(tool, self._nested().outcome_in_thread(tool, arguments))

    def _nested(self) -> "Nest":
        if self.nest is None:
            raise UsageError(f"{self.tool} was called without an engine, so it can call no tool")
        return self.nest

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of this call, also after a crash; different for every other.

        SHA-256 over run, call, tool and canonical arguments, in hexadecimal: 64 characters, which
        is within the 255 that HTTP services usually take in an Idempotency-Key header.
        """
        return digest([self.run, self.call, self.tool, self.arguments])
