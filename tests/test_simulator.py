"""The simulator: the real scheduler on given durations."""

import pytest

from laneway import State
from laneway.testing import HungError, Job, run_virtual, simulate


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
        import asyncio  # noqa: PLC0415

        await asyncio.get_running_loop().create_future()

    with pytest.raises(HungError, match="nothing is scheduled"):
        run_virtual(hang)
