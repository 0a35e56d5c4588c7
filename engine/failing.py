"""What a tool may raise to say exactly how it failed.

Any other exception of a tool that changes something is taken for the worst: it may have had its
effect, or part of it.
"""

import errno
from collections.abc import Generator, Iterable
from contextlib import contextmanager

from laneway.outcomes import Code, Happened


class ToolFailed(Exception):
    """The tool failed, and knows what came of it."""

    def __init__(
        self,
        message: str,
        *,
        happened: Happened,
        retry: bool = False,
        hint: str = "",
        code: Code = Code.TOOL_ERROR,
    ) -> None:
        """Say it.

        Args:
            message: for the model: what was met.
            happened: what the call did to the world.
            retry: whether asking for the same call again makes sense.
            hint: what to do instead.
            code: TOOL_ERROR, or what fits better: CONFLICT, RATE_LIMITED, PARTIAL_EFFECT.
        """
        self.happened = happened
        self.retry = retry
        self.hint = hint
        self.code = code
        super().__init__(message)


class PartialEffect(ToolFailed):
    """The tool has done a part of its work, and knows which.

    The call is never made again by itself: what was done is completed, or undone by the tool's
    compensation, or put before a human.
    """

    def __init__(
        self, message: str, *, done: Iterable[str] = (), left: Iterable[str] = (), hint: str = ""
    ) -> None:
        """Say it.

        Args:
            message: for the model: what was met.
            done: what the call has done to the world, each in some words.
            left: what it was asked for and has not done.
            hint: what to do instead.
        """
        self.done = tuple(done)
        self.left = tuple(left)
        super().__init__(
            message,
            happened=Happened.PARTLY,
            hint=hint
            or "Do not ask for the same again: go on from what is left, or undo what "
            "was done, or ask the user.",
            code=Code.PARTIAL_EFFECT,
        )


class NestedCallFailed(ToolFailed):
    """A call that a body has made did not succeed.

    It says what that call came to; what the body did besides, nobody has said. Uncaught it is
    therefore taken for the worst, as any other exception.
    """


@contextmanager
def refusing(*kinds: type[Exception]) -> Generator[None]:
    """In here nothing has been done yet: these exceptions are refusals, and say so to the model."""
    try:
        yield
    except kinds as error:
        raise ToolFailed(str(error), happened=Happened.NOTHING) from error


class TransportClosed(ConnectionError):
    """Whoever does the work is gone before the answer came.

    The call is TRANSPORT_CLOSED: UNCERTAIN if it may have had an effect, else FAILED.
    """

    def __init__(self, message: str, *, sent: bool) -> None:
        """Say it.

        Args:
            message: for the model: who is gone, and why, if that is known.
            sent: whether the request may have been seen; if not, nothing has happened.
        """
        super().__init__(message)
        self.sent = sent
        if not sent:
            self.errno = errno.ECONNREFUSED
