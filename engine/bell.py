"""A bell that tells hosts of new questions, so that nobody has to look again and again.

Rung by the scheduler once a question is kept, and when a run is left; heard by whoever waits then.
"""

import asyncio


class Bell:
    """Wakes all that wait for it, in the event loop of its engine."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        """Nobody waits yet."""
        self._waiting: set[asyncio.Future[None]] = set()

    def ring(self) -> None:
        """Wake all that wait now."""
        waiting, self._waiting = self._waiting, set()
        for one in waiting:
            if not one.done():
                one.set_result(None)

    def listen(self) -> "asyncio.Future[None]":
        """Give what is done with the next ring; others may end it before."""
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        waiting.add_done_callback(self._waiting.discard)
        return waiting
