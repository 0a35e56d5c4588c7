"""Futures that somebody sleeps on until the lanes change; they end with the engine."""

import asyncio

from laneway.errors import EngineClosedError


class Waking:
    """All sleepers of an engine in one event loop."""

    def __init__(self) -> None:
        """Start with none."""
        self._asleep: set[asyncio.Future[None]] = set()
        self._closed = False

    def future(self) -> "asyncio.Future[None]":
        """Make a future to sleep on.

        Raises:
            EngineClosedError: the engine was left, so that nobody would ever wake it.
        """
        if self._closed:
            raise EngineClosedError
        made: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asleep.add(made)
        made.add_done_callback(self._asleep.discard)
        return made

    @staticmethod
    def wake(sleeper: "asyncio.Future[None]") -> None:
        """Wake one; nothing happens to who is awake, or has gone."""
        if not sleeper.done():
            sleeper.set_result(None)

    def close(self) -> None:
        """Wake all with an EngineClosedError, and let nobody sleep any more."""
        self._closed = True
        for sleeper in tuple(self._asleep):
            if not sleeper.done():  # Woken in this very moment, it only has not been told so.
                sleeper.set_exception(EngineClosedError())
                sleeper.exception()  # Nobody sleeps on that of a pause: no loop is to complain.
