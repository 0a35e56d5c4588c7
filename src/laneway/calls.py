"""A call as it is recorded, and the edges between calls."""

from enum import StrEnum
from typing import Any, Final

import msgspec

from laneway.claims import Claim
from laneway.effects import Effect
from laneway.ids import CallId


class Reason(StrEnum):
    """Why one call waits for another."""

    NEEDS = "needs"
    """Declared: the source must succeed."""
    AFTER = "after"
    """Declared: order only, whatever the outcome."""
    DATA = "data"
    """An argument refers to the source's result."""
    CONFLICT = "conflict"
    """Both touch a resource, at least one of them writes, and the source was asked for first."""

    @property
    def carries_failure(self) -> bool:
        """Whether the target is skipped when the source does not succeed."""
        return self is Reason.NEEDS or self is Reason.DATA


class Referring(StrEnum):
    """How references in arguments are read; the form of the reply decides."""

    KNOWN = "known"
    """A model's turn: a text refers to a call only where a call has that name, since shell and
    template code is full of `${HOME}`."""
    STRICT = "strict"
    """A plan: a name that no call has is a fault."""
    FIRST = "first"
    """A labelled plan: strict, and a field of a list means that of its first element."""
    LITERAL = "literal"
    """A call that a tool's body makes: its arguments are values, and no text in them refers."""

    @property
    def strict(self) -> bool:
        """Whether a name that no call has is a fault."""
        return self in (Referring.STRICT, Referring.FIRST)


LITERAL: Final = Referring.LITERAL
"""For whoever asks on the path of each call; see `states`."""


class Edge(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`target` does not start before `source` has ended."""

    source: CallId
    target: CallId
    reason: Reason
    detail: str = ""
    """The resource of a conflict, the path of a reference."""


class CallRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A call as the model asked for it and as the scheduler understood it, before it moved."""

    id: CallId
    provider_id: str
    """The id its result must carry, already repaired."""
    tool: str
    arguments: Any = None
    """The checked arguments, a JSON object, references unresolved, host-bound ones absent;
    None where none could be read."""
    text: str = ""
    """What stood in place of arguments that could not be read."""
    effect: Effect = Effect.EXTERNAL
    idempotent: bool = False
    tool_version: str = ""
    """Digest of the tool's schema and declarations when the call was asked for."""
    claims: tuple[Claim, ...] = ()
    """Widened where a reference stands in the template."""
    parent: CallId | None = None
    """The call that it is part of: its result goes to that call, never to the model."""
