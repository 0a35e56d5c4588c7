"""A tool that knows what came of it says so; of any other the worst is assumed."""

import pytest

from laneway import Code, Effect, Engine, Failure, Happened, State, ToolFailed
from laneway.engine.failing import refusing
from laneway.testing import Raise, Stage, run_virtual


def failure_of(error: BaseException, effect: Effect = Effect.WRITE) -> tuple[State, Failure]:
    stage = Stage()
    tool = stage.tool("act", Raise(error), effect=effect)

    async def main() -> tuple[State, Failure]:
        async with Engine([tool], clock=stage.make_clock) as engine, engine.run("r") as run:
            turn = await run.submit({"calls": [{"id": "a", "tool": "act", "arguments": {}}]})
            outcome = turn.outcomes["a"]
            assert isinstance(outcome, Failure)
            return turn.call("a").state, outcome

    return run_virtual(main)


def test_what_the_tool_says_of_itself_reaches_the_model() -> None:
    error = ToolFailed(
        "two of three rows were written",
        happened=Happened.PARTLY,
        retry=True,
        hint="Write the third.",
        code=Code.PARTIAL_EFFECT,
    )

    state, failure = failure_of(error)

    assert state is State.FAILED
    assert failure == Failure(
        code=Code.PARTIAL_EFFECT,
        message="act: two of three rows were written",
        retry=True,
        happened=Happened.PARTLY,
        hint="Write the third.",
    )


def test_of_any_other_exception_the_worst_is_assumed() -> None:
    state, failure = failure_of(ValueError("no"))

    assert state is State.FAILED
    assert failure.happened is Happened.UNKNOWN
    assert (
        failure.message == "act raised ValueError: no. It may have had its effect, or part of it."
    )


def test_a_tool_that_changes_nothing_cannot_have_done_anything() -> None:
    _, failure = failure_of(ToolFailed("no", happened=Happened.ALL), effect=Effect.READ)

    assert failure.happened is Happened.NOTHING


def test_refusals_are_told_as_such_and_other_exceptions_pass() -> None:
    with pytest.raises(ToolFailed, match="not here") as refused, refusing(ValueError):
        raise ValueError("not here")
    with pytest.raises(KeyError), refusing(ValueError):
        raise KeyError("x")

    assert refused.value.happened is Happened.NOTHING
    assert failure_of(refused.value)[1].message == "act: not here"
