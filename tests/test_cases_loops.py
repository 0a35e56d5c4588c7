"""Cases from bug reports of the field: one engine under several event loops."""

import asyncio
import threading
from pathlib import Path

from laneway import Engine, State, tool
from laneway.errors import EngineBusyError

HANG_GUARD_SECONDS = 20


@tool(claims=["lane:L"])
async def work(n: int) -> str:
    """Hold the lane for a moment."""
    for _ in range(3):
        await asyncio.sleep(0)
    return f"ok {n}"


async def three(engine: Engine, name: str) -> list[State]:
    async with engine, engine.run(name) as run:
        turn = await run.submit(
            {"calls": [{"id": f"c{n}", "tool": "work", "arguments": {"n": n}} for n in range(3)]}
        )
        return [call.state for call in turn.calls]


def test_h_thr_2_one_engine_serves_one_loop_after_another(tmp_path: Path) -> None:
    engine = Engine([work], journal=tmp_path / "runs.db")

    first = asyncio.run(three(engine, "first"))
    second = asyncio.run(three(engine, "second"))

    assert first == second == [State.SUCCEEDED] * 3


def test_h_thr_2_a_second_loop_at_once_is_refused_by_name(tmp_path: Path) -> None:
    engine = Engine([work], journal=tmp_path / "runs.db")
    inside, leave = threading.Event(), threading.Event()
    results: list[list[State]] = []
    told = ""

    async def holding() -> None:
        async with engine, engine.run("held") as run:
            inside.set()
            await asyncio.to_thread(leave.wait, HANG_GUARD_SECONDS)
            turn = await run.submit({"calls": [{"id": "c", "tool": "work", "arguments": {"n": 1}}]})
            results.append([call.state for call in turn.calls])

    thread = threading.Thread(target=asyncio.run, args=(holding(),))
    thread.start()
    assert inside.wait(HANG_GUARD_SECONDS)
    try:
        asyncio.run(three(engine, "other"))
    except EngineBusyError as error:
        told = str(error)
    finally:
        leave.set()
        thread.join(HANG_GUARD_SECONDS)

    assert "in use in another event loop" in told
    assert results == [[State.SUCCEEDED]]
    assert asyncio.run(three(engine, "afterwards")) == [State.SUCCEEDED] * 3
