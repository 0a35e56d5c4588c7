"""A budget that has ended stops its run: what that leaves, what reopens it, the last summary."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from laneway import (
    Budget,
    BudgetExceededError,
    Budgets,
    Code,
    Decision,
    Effect,
    Engine,
    Policy,
    Reserve,
    Rule,
    Run,
    State,
    StopReason,
    tool,
)
from laneway.engine.reexecution import reexecute
from laneway.engine.reporting import report
from laneway.facts import RunReopened, RunStopped, TurnSubmitted
from laneway.journal.fold import fold
from laneway.testing.clock import run_virtual
from laneway.testing.scripted import Raise, Return, Sleep, Stage
from laneway.testing.theatre import RUN, Theatre, codes, failure, plan, states

ANY = {"type": "object"}


def theatre(*steps: Any, declared: dict[str, Any] | None = None, **options: Any) -> Theatre:
    stage = Stage()
    said: dict[str, Any] = {"effect": Effect.READ, "claims": [], **(declared or {})}
    hit = stage.tool("hit", *(steps or (Return("ok"),)), schema=ANY, **said)
    return Theatre(stage, hit, **{"loops": None, **options})


def hits(*numbers: int) -> dict[str, Any]:
    return plan(*({"id": f"h{n}", "tool": "hit", "arguments": {"n": n}} for n in numbers))


def words(tokens: int = 0) -> dict[str, Any]:
    usage = {"usage": {"prompt_tokens": tokens, "completion_tokens": 0}} if tokens else {}
    message = {"role": "assistant", "content": f"well, {tokens}"}
    return {"model": "little", "choices": [{"finish_reason": "stop", "message": message}], **usage}


def play_again(played: Theatre) -> Sequence[Any]:
    found = asyncio.run(reexecute(played.journal.facts[RUN]))
    return found.divergences


# Stopping


def test_a_run_whose_turns_are_used_up_stops_and_says_so_in_its_report() -> None:
    played = theatre(budgets=Budgets(model_turns=1))

    async def host(run: Run) -> tuple[Any, ...]:
        await run.submit(hits(1))
        before = run.stop_reason
        refused = await run.submit(hits(2))
        return before, codes(refused), run.stop_reason, run.report()

    before, refused, reason, told = played.enter(host)

    assert before is None
    assert refused == {"h2": Code.BUDGET_EXCEEDED}
    assert reason is StopReason.BUDGET_EXCEEDED
    assert [stop.budget for stop in played.kept(RunStopped)] == ["model_turns"]
    assert "the budget model_turns of 1 model turn has 1 model turn used" in told.detail
    assert (told.used.budgets["model_turns"], told.used.limits["model_turns"]) == (1, 1)
    assert "model_turns: 1 of 1 used" in str(told)
    assert str(report(fold(RUN, played.journal.facts[RUN]))) == str(told)


def test_what_is_open_goes_on_when_the_time_of_the_run_ends_it_but_what_runs_is_told_to_stop() -> (
    None
):
    policy = Policy([Rule(Decision.ASK, tools=["hit"], arguments={"n": 2})])
    played = theatre(Sleep(20), Return("ok"), budgets=Budgets(seconds=10), policy=policy)

    async def host(run: Run) -> Any:
        turn = await run.submit(hits(1, 2), wait=False)
        await asyncio.sleep(11)
        reason, asked = run.stop_reason, states(turn)["h2"]
        await run.deny("h2")
        await turn.wait()
        return reason, asked, codes(turn)

    assert played.enter(host) == (
        StopReason.BUDGET_EXCEEDED,
        State.AWAITING_APPROVAL,
        {"h1": Code.TIMEOUT, "h2": Code.APPROVAL_REJECTED},
    )
    assert "the run's time of 10 s is used up" in played.kept(RunStopped)[0].detail


def test_the_time_of_a_run_can_end_between_its_turns_while_a_request_is_open() -> None:
    played = theatre(budgets=Budgets(seconds=10))

    async def host(run: Run) -> Any:
        async with run.request():
            await asyncio.sleep(11)
        return run.stop_reason

    assert played.enter(host) is StopReason.BUDGET_EXCEEDED


def test_a_request_for_which_nothing_is_left_stops_the_run_and_one_that_is_too_large_does_not() -> (
    None
):
    played = theatre(budgets=Budgets(tokens=100))

    async def host(run: Run) -> Any:
        with pytest.raises(BudgetExceededError, match="do not fit"):
            async with run.request(max_output_tokens=1000):
                pass
        too_large = run.stop_reason
        await run.submit(words(100))
        after = run.stop_reason
        with pytest.raises(BudgetExceededError, match="tokens of 100 tokens has 100 tokens used"):
            async with run.request(max_output_tokens=1):
                pass
        return too_large, after, run.stop_reason, played.kept(RunStopped)[0].budget

    assert played.enter(host) == (
        None,
        StopReason.COMPLETED,  # The model asked for nothing.
        StopReason.BUDGET_EXCEEDED,
        "tokens",
    )


def test_a_request_sets_the_turn_aside_that_its_answer_will_be() -> None:
    played = theatre(budgets=Budgets(model_turns=1))

    async def host(run: Run) -> Any:
        async with run.request() as first:
            inside = run.budgets["model_turns"].reserved
            with pytest.raises(BudgetExceededError, match="model_turns"):
                async with run.request():
                    pass
            first.reply(words())
        turn = await run.submit(words())
        return inside, turn.ready, run.budgets["model_turns"].settled

    assert played.enter(host) == (1, True, 1)


def test_a_budget_of_calls_that_ends_stops_these_calls_and_not_the_run() -> None:
    played = theatre(budgets=Budgets(tool_calls=1))

    async def host(run: Run) -> Any:
        turn = await run.submit(hits(1, 2))
        return codes(turn), run.stop_reason

    assert played.enter(host) == ({"h2": Code.BUDGET_EXCEEDED}, None)


# Going on


def test_taken_up_with_a_larger_budget_the_run_goes_on_and_with_the_same_it_does_not() -> None:
    played = theatre(budgets=Budgets(model_turns=1))
    played.play(hits(1))
    played.play(hits(2))

    async def host(run: Run) -> Any:
        before = run.stop_reason
        return before, codes(await run.submit(hits(3)))

    same = played.enter(host)
    larger = played.enter(host, budgets=Budgets(model_turns=5))

    assert same == (StopReason.BUDGET_EXCEEDED, {"h3": Code.BUDGET_EXCEEDED})
    assert larger == (None, {})
    assert [fact.through for fact in played.kept(RunReopened)] == ["budget"]


def test_a_run_that_its_host_has_stopped_for_a_budget_of_its_own_is_not_reopened_by_ours() -> None:
    played = theatre()

    async def host(run: Run) -> Any:
        await run.stop(StopReason.BUDGET_EXCEEDED, "the month's money")

    async def look(run: Run) -> Any:
        return run.stop_reason

    played.enter(host)

    assert played.enter(look, budgets=Budgets(model_turns=500)) is StopReason.BUDGET_EXCEEDED
    assert not played.kept(RunReopened)


def test_resumed_by_name_without_more_budget_it_ends_again_at_the_next_answer() -> None:
    played = theatre(budgets=Budgets(model_turns=1))

    async def host(run: Run) -> Any:
        await run.submit(hits(1))
        await run.submit(hits(2))
        await run.resume(by="ann")
        resumed = run.stop_reason
        return resumed, codes(await run.submit(hits(3))), run.stop_reason

    assert played.enter(host) == (
        None,
        {"h3": Code.BUDGET_EXCEEDED},
        StopReason.BUDGET_EXCEEDED,
    )
    assert len(played.kept(RunStopped)) == 2


def test_a_run_within_a_call_stops_with_the_budget_of_the_tree_and_its_root_can_sum_up() -> None:
    stage = Stage()
    engines: list[Engine] = []
    found: list[Any] = []

    @tool(effect=Effect.READ, claims=[])
    async def inner() -> int:
        return 1

    @tool(effect=Effect.READ, claims=[])
    async def agent() -> str:
        async with engines[0].run("child") as run:
            for n in range(3):
                turn = await run.submit(plan({"id": "i", "tool": "inner"}), key=str(n))
                found.append((codes(turn), run.stop_reason))
        return "done"

    async def main() -> Any:
        engine = Engine(
            [inner, agent],
            budgets=Budgets(tree=Budget(model_turns=3)),
            loops=None,
            clock=stage.make_clock,
        )
        engines.append(engine)
        async with engine, engine.run("r") as run:
            await run.submit(plan({"id": "a", "tool": "agent"}))
            return run.stop_reason, codes(await run.submit(plan({"id": "i", "tool": "inner"})))

    assert run_virtual(main) == (None, {"i": Code.BUDGET_EXCEEDED})
    assert found == [
        ({}, None),
        ({}, None),
        ({"i": Code.BUDGET_EXCEEDED}, StopReason.BUDGET_EXCEEDED),
    ]


# The last summary


def test_a_turn_kept_back_is_out_of_reach_until_the_budget_has_ended_and_then_for_one_answer() -> (
    None
):
    played = theatre(budgets=Budgets(model_turns=2), last_summary=Reserve())

    async def host(run: Run) -> Any:
        first = codes(await run.submit(hits(1)))
        second = codes(await run.submit(hits(2)))
        kept = run.report().summary_turns
        await run.submit(words())
        used = run.report().summary_turns
        third = await run.submit(hits(3))
        return first, second, kept, used, failure(third, "h3").code, run.budgets["model_turns"]

    first, second, kept, used, code, standing = played.enter(host)

    assert (first, second) == ({}, {"h2": Code.BUDGET_EXCEEDED})
    assert (kept, used) == (1, 0)
    assert code is Code.BUDGET_EXCEEDED
    assert (standing.settled, standing.limit) == (2, 2)
    assert [bool(fact.refused) for fact in played.kept(TurnSubmitted)] == [False, True, False, True]
    assert len(played.kept(RunStopped)) == 1


def test_tokens_kept_back_can_be_asked_for_when_the_budget_has_ended_also_after_a_crash() -> None:
    played = theatre(budgets=Budgets(tokens=1000), last_summary=Reserve(turns=1, tokens=300))

    async def first(run: Run) -> Any:
        await run.submit(words(700))
        with pytest.raises(BudgetExceededError, match="300 tokens kept for a summary"):
            async with run.request(max_output_tokens=100):
                pass
        return run.stop_reason

    async def second(run: Run) -> Any:
        async with run.request(max_output_tokens=250) as request:
            request.reply(words(120))
        await run.submit(words(120))
        return run.budgets["tokens"].settled, run.stop_reason

    assert played.enter(first) is StopReason.BUDGET_EXCEEDED
    played.crash()
    assert played.enter(second) == (820, StopReason.BUDGET_EXCEEDED)


def test_calls_in_the_last_summary_are_refused_like_all_others() -> None:
    played = theatre(budgets=Budgets(model_turns=2), last_summary=Reserve())

    async def host(run: Run) -> Any:
        await run.submit(hits(1))
        await run.submit(hits(2))
        return codes(await run.submit(hits(3))), run.budgets["model_turns"].settled

    assert played.enter(host) == ({"h3": Code.BUDGET_EXCEEDED}, 2)


def test_more_is_kept_back_than_there_is_and_nothing_but_a_summary_is_let_in() -> None:
    played = theatre(budgets=Budgets(model_turns=1), last_summary=Reserve(turns=5))

    async def host(run: Run) -> Any:
        refused = codes(await run.submit(hits(1)))
        await run.submit(words())
        return refused, run.budgets["model_turns"].settled

    assert played.enter(host) == ({"h1": Code.BUDGET_EXCEEDED}, 1)


# Re-execution


def of_calls() -> Theatre:
    played = theatre(budgets=Budgets(tool_calls=2))
    played.play(hits(1, 2, 3))
    played.play(hits(4))
    return played


def of_turns() -> Theatre:
    played = theatre(budgets=Budgets(model_turns=1))
    played.play(hits(1))
    played.play(hits(2, 3))
    return played


def of_time() -> Theatre:
    played = theatre(
        Sleep(20),
        Return("ok"),
        budgets=Budgets(seconds=10),
        lanes={"hit": 1},
        declared={"claims": ["lane:hit"]},
    )
    played.play(hits(1, 2))
    return played


def of_repeats() -> Theatre:
    played = theatre(
        Raise(ConnectionError("away")),
        Raise(ConnectionError("away")),
        Return("ok"),
        budgets=Budgets(attempts=2),
        declared={"retries": 3},
    )
    played.play(hits(1))
    return played


def after_a_question() -> Theatre:
    policy = Policy([Rule(Decision.ASK, tools=["hit"], arguments={"n": 1})])
    played = theatre(budgets=Budgets(tool_calls=1), policy=policy)

    async def host(run: Run) -> Any:
        turn = await run.submit(hits(1, 2), wait=False)
        await asyncio.sleep(1)
        await run.approve("h1")
        await turn.wait()
        return codes(turn)

    assert played.enter(host) == {"h1": Code.BUDGET_EXCEEDED}
    return played


@pytest.mark.parametrize("build", [of_calls, of_turns, of_time, of_repeats, after_a_question])
def test_what_budgets_refused_is_refused_when_the_run_is_executed_again(build: Any) -> None:
    played = build()
    refused = [fact for fact in played.facts if getattr(fact, "rule", "").startswith("budget ")]
    assert refused
    found = asyncio.run(reexecute(played.journal.facts[RUN]))
    assert found.divergence is None, found.divergence
