"""Virtual time: what the clock for tests promises to bodies that block."""

import asyncio
import threading

from laneway.testing import HungError, VirtualClock, run_virtual


def test_a_thread_that_is_blocked_when_its_loop_goes_away_is_let_go() -> None:
    went: list[str] = []

    async def main() -> threading.Thread:
        clock = VirtualClock()
        clock.hold()

        def work() -> None:
            try:
                clock.block(1000)
            except HungError as error:
                went.append(str(error))

        thread = threading.Thread(target=work)
        thread.start()
        await asyncio.sleep(1)  # Time stands still until the thread is blocked.
        return thread

    run_virtual(main).join(10)

    assert went == ["the event loop went away while a tool was blocked"]
