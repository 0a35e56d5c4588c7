"""The simulator: the real scheduler on given durations."""

import asyncio
import gc
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from laneway import Effect, Engine, State, tool
from laneway.errors import ToolError, UsageError
from laneway.testing import HungError, Job, NullStore, Schedule, run_virtual, simulate

LARGE = "LANEWAY_LARGE_SCHEDULES"
"""Set to simulate schedules of 100,000 calls too, and to see how long it takes: half a minute."""
CALLS = 100_000 if os.environ.get(LARGE) else 10_000
WIDTH = 100


def test_jobs_overlap_unless_something_stands_between_them() -> None:
    schedule = simulate(
        [
            Job(name="a", seconds=2),
            Job(name="b", seconds=3),
            Job(name="c", seconds=1, needs=["a"]),
            Job(name="d", seconds=1, after=["b"]),
        ]
    )

    assert schedule.makespan == 4
    assert schedule.spans["a"].overlaps(schedule.spans["b"])
    assert schedule.spans["c"].start == 2
    assert schedule.spans["d"].start == 3
    assert set(schedule.states.values()) == {State.SUCCEEDED}


def test_a_lane_lets_as_many_in_as_it_is_told() -> None:
    jobs = [Job(name=str(n), claims=["lane:press"]) for n in range(6)]

    assert simulate(jobs).makespan == 6
    assert simulate(jobs, lanes={"press": 3}).makespan == 2


def test_a_million_seconds_pass_in_no_time() -> None:
    assert simulate([Job(name="long", seconds=1e6)]).makespan == 1e6


def test_writers_of_one_file_follow_one_another() -> None:
    jobs = [Job(name=str(n), claims=["write file:a"]) for n in range(3)]

    spans = simulate(jobs).spans

    assert [(spans[str(n)].start, spans[str(n)].end) for n in range(3)] == [(0, 1), (1, 2), (2, 3)]


def test_a_program_on_which_nothing_can_happen_any_more_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("laneway.testing.clock.HANG_GUARD_SECONDS", 0.01)

    async def hang() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(HungError, match="nothing is scheduled"):
        run_virtual(hang)


def test_a_job_may_name_the_tool_that_it_calls() -> None:
    jobs = [Job(name="a", tool="fetch"), Job(name="b", tool="build", needs=["a"]), Job(name="c")]

    schedule = simulate(jobs)

    assert set(schedule.states.values()) == {State.SUCCEEDED}
    assert schedule.spans["b"].start == 1
    with pytest.raises(ToolError, match="no tool"):
        simulate([Job(name="a", tool="no tool")])


def test_a_job_that_cannot_run_has_a_state_and_no_span() -> None:
    jobs = [
        Job(name="a", needs=["nobody"]),
        Job(name="b", needs=["a"]),
        Job(name="c", claims=["no claim"]),
        Job(name="d", needs=["e"]),
        Job(name="e", after=["d"]),
        Job(name="f"),
    ]

    schedule = simulate(jobs)

    assert schedule.states == {
        "a": State.FAILED,
        "b": State.SKIPPED,
        "c": State.FAILED,
        "d": State.FAILED,
        "e": State.FAILED,
        "f": State.SUCCEEDED,
    }
    assert schedule.spans.keys() == {"f"}


def test_nothing_at_all_is_a_schedule_too() -> None:
    assert simulate([]) == Schedule(spans={}, states={}, makespan=0.0)


@pytest.mark.parametrize(
    ("jobs", "fault"),
    [
        (
            [Job(name="a"), Job(name="b"), Job(name="a")],
            r"jobs\[2\]: a job before it is called 'a', too; rename one",
        ),
        ([Job(name="a", seconds=-1)], r"jobs\[0\], 'a', takes -1 seconds; give a finite number"),
        ([Job(name="a", seconds=float("inf"))], "takes inf seconds"),
        ([Job(name="a", seconds=float("nan"))], "takes nan seconds"),
    ],
)
def test_jobs_that_make_no_schedule_are_refused(jobs: Sequence[Job], fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        simulate(jobs)


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_is_left_as_it_was(
    enabled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    during: list[bool] = []

    async def look(job_seconds: float) -> None:
        during.append(gc.isenabled())

    monkeypatch.setattr("laneway.testing.simulator.asyncio.sleep", look)
    was = gc.isenabled()
    try:
        gc.enable() if enabled else gc.disable()
        simulate([Job(name="a")])
        after = gc.isenabled()
    finally:
        gc.enable() if was else gc.disable()

    assert set(during) == {False}
    assert after is enabled


def test_a_null_store_keeps_nothing_and_stands_in_nobodys_way() -> None:
    @tool(effect=Effect.PURE)
    async def add(a: int, b: int) -> int:
        return a + b

    async def main() -> tuple[object, int]:
        store = NullStore()
        calls = [{"id": "x", "tool": "add", "arguments": {"a": 1, "b": 2}}]
        async with Engine([add], journal=store) as engine:
            async with engine.run("r") as run:
                turn = await run.submit({"calls": calls})
                assert turn.call("x").state is State.SUCCEEDED
            async with engine.run("r") as again:
                return (await store.read(again.id), await store.runs()), len(again.turns)

    assert asyncio.run(main()) == (((), ()), 0)


# Schedules of 10,000 calls, and of 100,000 if asked for


def lane_of_eight(calls: int) -> list[Job]:
    return [Job(name=str(n), claims=["lane:press"]) for n in range(calls)]


def chain(calls: int) -> list[Job]:
    return [Job(name=str(n), needs=[str(n - 1)] if n else []) for n in range(calls)]


def layers(calls: int) -> list[Job]:
    """Each call needs one to three of the layer before it; as far as it lasts as many seconds."""
    chance = random.Random(1)
    return [
        Job(
            name=str(n),
            seconds=chance.choice((0.5, 1.0, 2.0)),
            needs=[
                str((n // WIDTH - 1) * WIDTH + at)
                for at in chance.sample(range(WIDTH), chance.randint(1, 3) if n >= WIDTH else 0)
            ],
        )
        for n in range(calls)
    ]


def timed(make: Callable[[int], list[Job]]) -> tuple[list[Job], Schedule]:
    jobs = make(CALLS)
    began = time.perf_counter()
    schedule = simulate(jobs, lanes={"press": 8})
    print(f"\n{make.__name__}: {CALLS} calls in {time.perf_counter() - began:.2f} s")
    assert schedule.states == {job.name: State.SUCCEEDED for job in jobs}
    assert list(schedule.states) == [job.name for job in jobs]
    return jobs, schedule


def test_thousands_of_calls_go_through_a_lane_of_eight_in_the_order_of_the_request() -> None:
    _, schedule = timed(lane_of_eight)

    assert schedule.makespan == CALLS / 8
    assert [schedule.spans[str(n)].start for n in range(CALLS)] == [n // 8 for n in range(CALLS)]
    assert set(Counter(span.start for span in schedule.spans.values()).values()) == {8}


def test_thousands_of_calls_in_a_chain_follow_one_another_without_a_gap() -> None:
    _, schedule = timed(chain)

    assert schedule.makespan == CALLS
    spans = [(schedule.spans[str(n)].start, schedule.spans[str(n)].end) for n in range(CALLS)]
    assert spans == [(n, n + 1) for n in range(CALLS)]


def test_thousands_of_calls_in_layers_start_as_soon_as_what_they_need_has_ended() -> None:
    jobs, schedule = timed(layers)

    ends: dict[str, float] = {}
    for job in jobs:
        start = max((ends[source] for source in job.needs), default=0.0)
        ends[job.name] = start + job.seconds
        assert schedule.spans[job.name].start == start
    assert schedule.makespan == max(ends.values())
