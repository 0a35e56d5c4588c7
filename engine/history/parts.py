"""What a history is made of, whatever its format: messages, in them calls and results.

A `Wire` is how one format writes these. Reads and writes plain JSON, and never changes what it was
given: a message that nothing was done to is the same object afterwards.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Any, Protocol

import msgspec

from laneway.engine.kinds import is_object
from laneway.errors import HistoryError

Message = dict[str, Any]

LOST = (
    "Error OUTCOME_UNKNOWN: the result of this call was lost; whether it had its effect is not "
    "known. Look before asking for it again."
)
"""Answers a call whose result is nowhere: always the same, so that a prompt repaired twice is the
same prompt."""
STRAY = "(a result stood here that belongs to no call)"
"""Stands where a message held nothing else, and the model's own would touch without it."""


class Kind(Enum):
    """What a part of a message is."""

    CALL = "call"
    RESULT = "result"
    OTHER = "other"


class Side(Enum):
    """Who says a message."""

    SYSTEM = "system"
    MODEL = "model"
    USER = "user"
    """And whoever answers calls."""


class Pairs(Enum):
    """Where a format wants the results of calls."""

    BEHIND = "behind"
    """In messages of their own, directly behind the message with the calls."""
    NEXT = "next"
    """In the user's next message."""
    FIRST = "first"
    """In the user's next message, before anything else in it."""
    LATER = "later"
    """Anywhere behind the call."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a message."""

    kind: Kind
    raw: Any
    """As it stands in the message."""
    id: str = ""
    """Of the call, or that the result answers; empty where there is none."""
    name: str = ""
    """Of the tool, where it is told."""
    place: str = ""
    """Within the message: `.content[1]`."""


class Wire(Protocol):
    """One format of histories. Stateless."""

    @property
    def name(self) -> str:
        """As the formats of answers are called."""
        ...

    @property
    def pairs(self) -> Pairs:
        """Where results belong."""
        ...

    @property
    def needs_ids(self) -> bool:
        """Whether a call without an id is refused."""
        ...

    @property
    def alternates(self) -> bool:
        """Whether two messages of one side in a row are refused."""
        ...

    def owns(self, message: Message, /) -> bool:
        """Whether no other format writes such a message."""
        ...

    def side(self, message: Message, /) -> Side:
        """Who says it."""
        ...

    def parts(self, message: Message, where: str, /) -> list[Part]:
        """Take a message apart.

        Raises:
            HistoryError: it is no message of this format.
        """
        ...

    def build(self, message: Message, parts: Sequence[Part], /) -> Message:
        """Put a message together again of other parts."""
        ...

    def named(self, part: Part, call_id: str, /) -> Part:
        """The same call or result with another id."""
        ...

    def answered(self, part: Part, text: str, /) -> Any:
        """The same result with another content."""
        ...

    def lost(self, call: Part, /) -> Part | None:
        """The error that answers a call; None where the format has none, and the call goes, too."""
        ...

    def messages(self, parts: Sequence[Part], /) -> list[Message]:
        """Write results as messages of their own."""
        ...

    def say(self, text: str, /) -> Message:
        """Write a message of the user's."""
        ...

    def text(self, text: str, /) -> Part:
        """Write a text as part of a user's message."""
        ...


def object_at(value: object, where: str, what: str = "an object") -> dict[str, Any]:
    """See that something is an object.

    Raises:
        HistoryError: it is not.
    """
    if not is_object(value):
        raise HistoryError(where, f"expected {what}, not {type(value).__name__}")
    return value


def role_of(message: Message, where: str, known: Sequence[str]) -> str:
    """Read the role of a message.

    Raises:
        HistoryError: it has none that the format knows.
    """
    role = message.get("role")
    if role not in known:
        raise HistoryError(
            f"{where}.role", f"{role!r} is not known here (known: {', '.join(known)})"
        )
    return str(role)


def word(value: object) -> str:
    """An id or a name; empty where there is none."""
    return value if isinstance(value, str) else ""
