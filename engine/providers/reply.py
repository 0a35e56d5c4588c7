"""The one form that every wire format is read into, and what a format must be able to do.

A `Format` is one file: it reads a provider's answer into a `Reply`, and writes outcomes back as
the messages of that provider. The engine knows only these types.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from laneway.calls import Referring
from laneway.outcomes import Failure, Outcome
from laneway.policies.prices import Tokens

Message = dict[str, Any]
"""A message in a provider's form, plain JSON."""


class Asked(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A call as the model wrote it."""

    id: str
    """The id its result must carry: present, legal for the provider, unique in the reply."""
    name: str
    """As written, even where no tool can have that name; empty where none could be read."""
    arguments: dict[str, Any] | None
    """The JSON object, or None where none could be read, and `fault` says why. May share parts
    with the reply's message: neither is changed once read."""
    text: str = ""
    """What stood in place of arguments that could not be read, unshortened."""
    fault: Failure | None = None
    """Why the call cannot run, whatever tools there are."""
    cut: Failure | None = None
    """The answer if these arguments break the tool's schema: the output limit ended the reply in
    or right behind this call, so a field that is not there was probably cut off, not forgotten."""
    needs: tuple[str, ...] = ()
    """Ids of calls that must succeed first (plans only)."""
    after: tuple[str, ...] = ()
    """Ids of calls that must have ended first (plans only)."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A model's answer: what to run, and the message to put back into the conversation."""

    provider: str
    """The name of the format."""
    message: Message
    """The assistant message as it is recorded; `render` makes of it what the provider takes back.
    Ids are unique, arguments strict JSON, unknown parts untouched."""
    calls: tuple[Asked, ...]
    """The calls that are ours to run, in order; never what the provider ran itself."""
    key: str = ""
    """The provider's id of the answer, or empty: the same answer given twice is one turn."""
    referring: Referring = Referring.KNOWN
    """How references in the arguments are read."""
    tokens: Tokens | None = None
    """What the provider says that the request took; None where it says nothing."""
    model: str = ""
    """That answered, as the provider names it."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What goes back for one call."""

    id: str
    name: str
    outcome: Outcome
    note: str = ""
    """What the model must know before it reads the result: that what ran was not what it had asked
    for."""
    warning: str = ""
    """What it is told behind the result: that it begins to go round in circles."""


class Format(Protocol):
    """One wire format. Stateless: one object serves all runs."""

    @property
    def name(self) -> str:
        """How it is called in journals and by hosts, for instance `openai-chat`."""
        ...

    def recognises(self, payload: Mapping[str, Any], /) -> bool:
        """Whether a payload looks like an answer, or an error, in this format."""
        ...

    def parse(self, payload: Mapping[str, Any], /) -> Reply:
        """Read an answer.

        What the model did wrong becomes a call with a `fault`; only what cannot be a model's doing
        is an exception.

        Raises:
            PayloadError: it is no whole answer in this format; names the place.
            ProviderRefusedError: the provider answered with an error.
        """
        ...

    def render(self, message: Message, answers: Sequence[Answer], /) -> list[Message]:
        """Write the assistant message and the results, one per call, in the order of the calls.

        Args:
            message: of a `Reply`, also after a journey through the journal.
            answers: exactly one for each call, in any order; none where there are no calls.

        Raises:
            UsageError: calls and answers do not pair up.
        """
        ...

    def with_arguments(
        self, message: Message, arguments: Mapping[str, dict[str, Any]], /
    ) -> Message:
        """Write other arguments into some calls of a message; the given one stays as it is.

        Args:
            message: of a `Reply`.
            arguments: by the ids of their calls.
        """
        ...

    def say(self, said: object, /) -> Message:
        """Make a message of the host's own: a user text, or a message already in this form."""
        ...

    def join(self, messages: Sequence[Message], /) -> list[Message]:
        """Put messages in a row as the provider wants a history."""
        ...
