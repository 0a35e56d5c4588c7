"""What a tool may know of the call it serves: a parameter annotated `ToolContext` receives it.

Made by the execution for tools that ask for it, never seen by the model. Its idempotency key is
what a tool hands to a service that can tell a repeated request from a new one.
"""

from typing import Any

import msgspec

from laneway.engine.serialise import digest
from laneway.ids import CallId, RunId


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

    @property
    def cancelled(self) -> bool:
        """Whether the call has been told to stop; a long synchronous tool looks now and then."""
        return self.stop.asked

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of this call, also after a crash; different for every other.

        SHA-256 over run, call, tool and canonical arguments, in hexadecimal: 64 characters, which
        is within the 255 that HTTP services usually take in an Idempotency-Key header.
        """
        return digest([self.run, self.call, self.tool, self.arguments])
