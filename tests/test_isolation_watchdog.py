"""Whoever keeps the event loop from turning is told of, by name and with its place."""

import asyncio
import logging
import threading
import time

import pytest

from laneway import Blocked, Effect, Engine, Limits, State, tool
from laneway.engine.isolation.watchdog import Watchdog

HANG_GUARD_SECONDS = 20


@tool(effect=Effect.READ)
async def hog(until: float) -> str:
    """Block the loop, until it has been told of or for so many seconds."""
    engine = engines[-1]
    give_up = time.monotonic() + until
    while not engine.status().blocked and time.monotonic() < give_up:
        time.sleep(0.005)  # noqa: ASYNC251 - that is what it is for
    return "done"


engines: list[Engine] = []


def test_a_coroutine_that_blocks_the_loop_is_told_of_with_its_stack(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> tuple[Blocked, State]:
        engine = Engine([hog], limits=Limits(blocked_seconds=0.05))
        engines.append(engine)
        async with engine, engine.run("r") as run:
            arguments = {"until": HANG_GUARD_SECONDS}
            turn = await run.submit({"calls": [{"id": "h", "tool": "hog", "arguments": arguments}]})
            (found,) = engine.status().blocked
            return found, turn.calls[0].state

    with caplog.at_level(logging.WARNING, logger="laneway"):
        found, state = asyncio.run(main())

    assert (found.call, found.tool, state) == ("r/t1.1", "hog", State.SUCCEEDED)
    assert found.seconds >= 0.05
    assert "in hog" in found.stack
    assert "tool hog of call r/t1.1 has kept the event loop from turning" in caplog.text


def test_a_loop_that_turns_is_not_told_of_and_neither_is_one_nobody_watches() -> None:
    @tool(effect=Effect.READ)
    async def patient() -> None:
        for _ in range(50):
            await asyncio.sleep(0.001)

    async def main(limits: Limits) -> tuple[Blocked, ...]:
        async with Engine([patient], limits=limits) as engine, engine.run("r") as run:
            await run.submit({"calls": [{"id": "p", "tool": "patient"}]})
            return engine.status().blocked

    assert asyncio.run(main(Limits(blocked_seconds=10))) == ()
    assert asyncio.run(main(Limits(blocked_seconds=float("inf")))) == ()
    _until_gone()


def test_the_watchdog_goes_while_the_loop_is_still_blocked() -> None:
    async def main() -> Watchdog:
        watchdog = Watchdog(0.02, lambda _: ("r/t1.1", "mine"))
        while not watchdog.found:
            time.sleep(0.005)  # noqa: ASYNC251 - that is what it is for
        watchdog.close()
        watchdog._thread.join(HANG_GUARD_SECONDS)
        assert not watchdog._thread.is_alive()
        return watchdog

    watchdog = asyncio.run(main())

    assert watchdog.found[0].tool == "mine"


def test_the_watchdog_goes_when_its_loop_has_been_closed() -> None:
    held: list[Watchdog] = []

    async def main() -> None:
        held.append(Watchdog(0.02, lambda _: ("", "")))

    asyncio.run(main())
    held[0].close()
    held[0]._suspect("r/t1.1", "late")

    held[0]._thread.join(HANG_GUARD_SECONDS)
    assert not held[0].found


def _until_gone() -> None:
    for thread in threading.enumerate():
        if thread.name == "laneway-watchdog":
            thread.join(HANG_GUARD_SECONDS)
            assert not thread.is_alive()
