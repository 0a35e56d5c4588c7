"""What every reader of a stream can do, and how it takes fields out of events it cannot trust.

A reader is fed decoded events, one by one, and puts the provider's own whole message together; the
readers of whole messages then find the calls in it. So a call means the same whether its message
was streamed or not, and a reader of a stream decides two things only: when the arguments of a call
are complete, and when the message has ended well.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from laneway.engine.arguments import read_arguments
from laneway.engine.kinds import is_list, is_object
from laneway.engine.providers.faults import refused
from laneway.engine.providers.payload import described
from laneway.errors import PayloadError

Event = Mapping[str, Any]
"""One decoded event of a stream."""


class StreamReader(Protocol):
    """Reads one message, event by event. It belongs to one stream."""

    @property
    def name(self) -> str:
        """Of the wire format, as `Format.name`."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the message has ended well, by what the format itself says."""
        ...

    @property
    def superseded(self) -> int:
        """How many half-sent messages were thrown away since another began in their place."""
        ...

    @property
    def complete(self) -> int:
        """How many calls at the front of the message have complete arguments; counts all kinds."""
        ...

    def feed(self, event: Event, /) -> str:
        """Take in the next event; gives the text that the model says in it.

        Raises:
            PayloadError: the event cannot be part of such a stream.
            ProviderRefusedError: it is an error of the provider's.
        """
        ...

    def front(self) -> dict[str, Any]:
        """The message as far as nothing in it is incomplete, as a whole message of the provider."""
        ...

    def whole(self) -> dict[str, Any]:
        """The message with all that has come, as a whole message of the provider.

        Of one that has not ended, what is half-sent is in it as far as it came.
        """
        ...


def object_in(given: Event, key: str, where: str = "") -> dict[str, Any]:
    """Take an object out of an event; an empty one where there is none."""
    value = given.get(key)
    if value is None:
        return {}
    if not is_object(value):
        raise _unlike(key, where, "an object", value)
    return value


def list_in(given: Event, key: str, where: str = "") -> list[Any]:
    """Take a list out of an event; an empty one where there is none."""
    value = given.get(key)
    if value is None:
        return []
    if not is_list(value):
        raise _unlike(key, where, "a list", value)
    return value


def objects_in(given: Event, key: str, where: str = "") -> list[dict[str, Any]]:
    """Take a list of objects out of an event."""
    found = list_in(given, key, where)
    for at, value in enumerate(found):
        if not is_object(value):
            raise _unlike(f"{key}[{at}]", where, "an object", value)
    return found


def text_in(given: Event, key: str, where: str = "") -> str:
    """Take a text out of an event; an empty one where there is none."""
    value = given.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _unlike(key, where, "a text", value)
    return value


def index_in(given: Event, key: str) -> int | None:
    """Take a position out of an event; None where there is none, as some servers leave it out."""
    value = given.get(key)
    if value is None:
        return None
    if type(value) is not int:
        raise _unlike(key, "", "a whole number", value)
    return value


def _unlike(key: str, where: str, expected: str, met: object) -> PayloadError:
    return PayloadError(
        f"{where}.{key}" if where else key, f"expected {expected}, not {described(met)}"
    )


def arguments_in(text: str) -> Any:
    """The arguments that a text holds; the text itself where it is not one strict object.

    The reader of whole messages then says what is wrong with it.
    """
    if not text.strip():
        return {}
    found = read_arguments(text)
    return found if is_object(found) and text.lstrip().startswith("{") else text


def is_whole(text: str) -> bool:
    """Whether a text is one whole JSON object, so that nothing but blanks could follow."""
    stripped = text.strip()
    return stripped.endswith("}") and is_object(read_arguments(stripped))


def gather(into: dict[str, Any], more: Event, skip: tuple[str, ...] = ()) -> None:
    """Put what a delta brings to what was there: texts and lists grow, all else is replaced."""
    for key, value in more.items():
        known = into.get(key)
        if key in skip or (value is None and known is not None):
            continue
        if isinstance(value, str) and isinstance(known, str):
            into[key] = known + value
        elif is_list(value) and is_list(known):
            into[key] = [*known, *value]
        elif is_object(value) and is_object(known):
            merged = dict(known)
            gather(merged, value)
            into[key] = merged
        else:
            into[key] = value


def raise_error(name: str, event: Event) -> None:
    """Raise the error that an event tells of, if it does."""
    error = event.get("error")
    if error:
        raise refused(name, error)


def after_end(name: str) -> PayloadError:
    """A second message where one has ended: two answers were put into one stream."""
    return PayloadError(
        name,
        "another message begins behind one that has ended",
        "Give each answer a stream of its own",
    )


class Texts:
    """Texts that come in pieces; put together when somebody looks.

    Adding to a text of its own for each piece would cost the square of its length.
    """

    __slots__ = ("_pieces",)

    def __init__(self, first: str = "") -> None:
        """Start with what is there."""
        self._pieces = [first] if first else []

    def add(self, piece: str) -> None:
        """Put a piece behind."""
        if piece:
            self._pieces.append(piece)

    def __str__(self) -> str:
        """Put together."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""


MakeReader = Callable[[], StreamReader]
"""Makes a reader for one stream."""
