"""A run stops and goes on: what becomes of its calls, by reason; and what lets it go on again."""

import asyncio
import re
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from laneway import (
    Code,
    Decision,
    Effect,
    Failure,
    Limits,
    Policy,
    Reserve,
    Rule,
    Run,
    State,
    StopReason,
    ToolContext,
    plan_tool,
    tool,
)
from laneway.engine.probing import Found
from laneway.errors import UsageError
from laneway.facts import CallStarted, RunReopened, RunStopped, TurnSubmitted
from laneway.journal.fold import RunView, fold
from laneway.policies.stopping import (
    STOPS,
    Open,
    Through,
    how_it_goes_on,
    reason_named,
    refusal,
    stands,
    stopped_text,
)
from laneway.testing.scripted import Log, Raise, Return, Sleep, Stage
from laneway.testing.theatre import RUN, Theatre, codes, failure, plan, states

R = StopReason
GONE = ConnectionResetError("gone")
NOTHING_MORE: dict[str, Any] = {"calls": []}


async def soon() -> None:
    await asyncio.sleep(1)


def four() -> dict[str, Any]:
    """One that runs, one that waits for its lane, one for the first, one for a human."""
    return plan(
        {"id": "runs", "tool": "work", "arguments": {"n": 1}},
        {"id": "queued", "tool": "work", "arguments": {"n": 2}},
        {"id": "needs", "tool": "work", "arguments": {"n": 3}, "needs": ["runs"]},
        {"id": "asks", "tool": "mail"},
    )


def theatre_of(**options: Any) -> Theatre:
    stage = Stage()
    work = stage.tool(
        "work",
        Sleep(10),
        Log("work {n}"),
        Return("done"),
        effect=Effect.WRITE,
        claims=["lane:w"],
    )
    mail = stage.tool("mail", Log("mail"), effect=Effect.EXTERNAL, approval=True)
    look = stage.tool("look", Return("seen"), effect=Effect.READ)
    return Theatre(stage, work, mail, look, **options)


def view_of(theatre: Theatre) -> RunView:
    return fold(RUN, theatre.journal.facts[RUN])


ENDS = {
    R.COMPLETED: (State.SUCCEEDED, State.CANCELLED, State.CANCELLED, State.CANCELLED),
    R.NEEDS_USER_INPUT: (
        State.SUCCEEDED,
        State.CANCELLED,
        State.CANCELLED,
        State.AWAITING_APPROVAL,
    ),
    R.BUDGET_EXCEEDED: (
        State.SUCCEEDED,
        State.SUCCEEDED,
        State.SUCCEEDED,
        State.AWAITING_APPROVAL,
    ),
    R.CANCELLED: (State.CANCELLED,) * 4,
    R.FAILED: (State.CANCELLED,) * 4,
}


@pytest.mark.parametrize("reason", StopReason)
def test_a_stop_ends_the_calls_that_its_reason_ends_and_lets_the_others_go_on(
    reason: StopReason,
) -> None:
    theatre = theatre_of()

    async def host(run: Run) -> dict[str, State]:
        turn = await run.submit(four(), wait=False)
        await soon()
        await run.stop(reason, "that is enough", by="ann")
        assert run.stop_reason is reason
        await asyncio.sleep(100)
        return states(turn)

    ended = theatre.enter(host)

    assert tuple(ended.values()) == ENDS[reason]
    (fact,) = theatre.kept(RunStopped)
    assert (fact.reason, fact.detail, fact.by) == (reason, "that is enough", "ann")
    assert fact.resumable is (reason not in {R.CANCELLED, R.FAILED})
    assert view_of(theatre).stop_reason is reason


@pytest.mark.parametrize("reason", [R.NEEDS_USER_INPUT, R.BUDGET_EXCEEDED, R.CANCELLED, R.FAILED])
def test_every_call_of_an_answer_to_a_stopped_run_is_refused_with_the_code_of_the_reason(
    reason: StopReason,
) -> None:
    theatre = theatre_of()

    async def host(run: Run) -> Any:
        await run.stop(reason, "no more")
        turn = await run.submit(four())
        assert len(turn.messages) > 1
        return turn

    turn = theatre.enter(host)

    assert set(states(turn).values()) == {State.DENIED}
    assert set(codes(turn).values()) == {STOPS[reason].code}
    assert failure(turn, "runs").message == (
        f"Not started, because the run has stopped ({reason}): no more."
    )
    assert how_it_goes_on(reason) in failure(turn, "runs").hint
    assert turn.call("runs").rule == f"run stopped ({reason})"
    assert theatre.kept(CallStarted) == []
    assert view_of(theatre).stop_reason is reason


def test_a_call_of_a_refused_answer_keeps_a_fault_of_its_own() -> None:
    theatre = theatre_of()

    async def host(run: Run) -> Any:
        await run.stop(R.CANCELLED)
        return await run.submit(
            plan({"id": "a", "tool": "lok"}, {"id": "b", "tool": "look", "needs": ["a"]})
        )

    turn = theatre.enter(host)

    assert codes(turn) == {"a": Code.UNKNOWN_TOOL, "b": Code.CANCELLED}


OPENS = {
    R.COMPLETED: {Through.SUBMIT, Through.SAY, Through.RESUME},
    R.NEEDS_USER_INPUT: {Through.SAY, Through.RESUME},
    R.BUDGET_EXCEEDED: {Through.BUDGET, Through.RESUME},
    R.CANCELLED: {Through.RESUME},
    R.FAILED: {Through.RESUME},
}


@pytest.mark.parametrize("through", Through)
@pytest.mark.parametrize("reason", StopReason)
@pytest.mark.parametrize("crashed", [False, True])
def test_a_stopped_run_goes_on_through_what_the_table_says_and_nothing_else(
    reason: StopReason, through: Through, crashed: bool
) -> None:
    theatre = theatre_of()

    async def stops(run: Run) -> None:
        await run.stop(reason)

    async def tries(run: Run) -> bool:
        if not crashed:
            await run.stop(reason)
        match through:
            case Through.SUBMIT:
                await run.submit(plan({"id": "a", "tool": "look"}))
            case Through.SAY:
                await run.say("go on")
            case Through.BUDGET:
                scheduler = run._live
                scheduler.go_on(Through.BUDGET)
                await scheduler.kept()
            case Through.RESUME:
                await run.resume(by="ann")
        return run.stop_reason is None

    if crashed:
        theatre.enter(stops)
        theatre.crash()

    assert theatre.enter(tries) is (through in OPENS[reason])
    assert bool(theatre.kept(RunReopened)) is (through in OPENS[reason])
    assert (view_of(theatre).stop_reason is None) is (through in OPENS[reason])
    assert STOPS[reason].reopened == OPENS[reason]


def test_a_reopened_run_runs_calls_again() -> None:
    theatre = theatre_of()

    async def host(run: Run) -> Any:
        await run.stop(R.CANCELLED)
        await run.submit(plan({"id": "a", "tool": "look"}))
        await run.resume(by="ann")
        return await run.submit(plan({"id": "b", "tool": "look"}))

    turn = theatre.enter(host)

    assert states(turn) == {"b": State.SUCCEEDED}
    assert theatre.kept(RunReopened) == [RunReopened(through="resume", by="ann")]


@pytest.mark.parametrize("reason", [R.CANCELLED, R.FAILED])
def test_what_was_called_off_goes_on_only_if_somebody_says_so_by_name(reason: StopReason) -> None:
    theatre = theatre_of()

    async def host(run: Run) -> None:
        await run.stop(reason)
        with pytest.raises(UsageError) as refused:
            await run.resume()
        assert str(refused.value) == (
            f"run 'r' has stopped ({reason}), and goes on only if somebody says so by name: "
            "run.resume(by=…)"
        )

    theatre.enter(host)

    assert view_of(theatre).stop_reason is reason


def test_only_a_message_of_the_user_lets_a_run_go_on_that_waits_for_one() -> None:
    theatre = theatre_of()

    async def host(run: Run) -> None:
        await run.stop(R.NEEDS_USER_INPUT)
        await run.say({"role": "system", "content": "be brief"})
        assert run.stop_reason is R.NEEDS_USER_INPUT
        await run.say({"role": "user", "content": "leave the tests alone"})
        assert run.stop_reason is None

    theatre.enter(host)

    assert theatre.kept(RunReopened) == [RunReopened(through="say")]


def test_a_run_that_has_not_stopped_is_not_reopened() -> None:
    theatre = theatre_of()

    async def host(run: Run) -> None:
        await run.resume()
        await run.say("hello")

    theatre.enter(host)

    assert theatre.kept(RunReopened) == []


def test_an_answer_without_calls_completes_a_run_without_a_fact_and_the_next_message_goes_on() -> (
    None
):
    theatre = theatre_of()

    async def host(run: Run) -> list[StopReason | None]:
        found = [run.stop_reason]
        await run.submit(plan({"id": "a", "tool": "look"}))
        found.append(run.stop_reason)
        await run.submit(NOTHING_MORE)
        found.append(run.stop_reason)
        await run.say("and then?")
        found.append(run.stop_reason)
        await run.submit(NOTHING_MORE)
        return found

    assert theatre.enter(host) == [None, None, R.COMPLETED, None]
    assert view_of(theatre).stop_reason is R.COMPLETED
    assert theatre.kept(RunStopped) == []


def test_of_two_stops_the_heavier_stands_and_of_equals_the_first() -> None:
    theatre = theatre_of()

    async def host(run: Run) -> list[StopReason | None]:
        found: list[StopReason | None] = []
        for reason in (R.COMPLETED, R.BUDGET_EXCEEDED, R.NEEDS_USER_INPUT, R.FAILED, R.CANCELLED):
            await run.stop(reason)
            found.append(run.stop_reason)
        return found

    found = theatre.enter(host)

    assert found == [R.COMPLETED, R.BUDGET_EXCEEDED, R.BUDGET_EXCEEDED, R.FAILED, R.FAILED]
    assert [one.reason for one in theatre.kept(RunStopped)] == [
        R.COMPLETED,
        R.BUDGET_EXCEEDED,
        R.FAILED,
    ]
    assert stands(None, R.COMPLETED)


def test_a_reason_that_there_is_not_is_refused_and_one_may_be_given_as_text() -> None:
    assert reason_named("CANCELLED") is R.CANCELLED
    with pytest.raises(UsageError) as refused:
        reason_named("DONE")
    assert str(refused.value) == (
        "a run does not stop for 'DONE'; the reasons are COMPLETED, NEEDS_USER_INPUT, "
        "BUDGET_EXCEEDED, CANCELLED, FAILED"
    )


def test_an_open_question_of_a_run_that_waits_for_its_user_can_still_be_answered() -> None:
    theatre = theatre_of()

    async def host(run: Run) -> Any:
        turn = await run.submit(four(), wait=False)
        await soon()
        await run.stop(R.NEEDS_USER_INPUT)
        await run.approve("asks", by="ann")
        await turn.wait()
        assert run.stop_reason is R.NEEDS_USER_INPUT, "an answer to a question is no new message"
        return turn

    turn = theatre.enter(host)

    assert states(turn)["asks"] is State.SUCCEEDED
    assert theatre.stage.log == ["mail", "work 1"]


def test_a_call_is_not_tried_again_once_its_run_has_stopped() -> None:
    stage = Stage()
    shaky = stage.tool("shaky", Sleep(5), Raise(GONE), effect=Effect.READ, retries=3)
    theatre = Theatre(stage, shaky)

    async def host(run: Run) -> Any:
        turn = await run.submit(plan({"id": "a", "tool": "shaky"}), wait=False)
        await soon()
        await run.stop(R.NEEDS_USER_INPUT)
        await turn.wait()
        return turn

    turn = theatre.enter(host)

    assert states(turn) == {"a": State.FAILED}
    assert stage.entered == {"shaky": 1}


def test_the_call_of_a_plan_still_tells_what_its_calls_came_to() -> None:
    stage = Stage()
    work = stage.tool("work", Sleep(10), effect=Effect.WRITE, claims=["lane:w"])
    theatre = Theatre(stage, work, plan_tool())

    async def host(run: Run) -> Any:
        calls = [{"id": n, "tool": "work", "arguments": {}} for n in "xy"]
        reply = plan({"id": "p", "tool": "plan", "arguments": {"calls": calls}})
        turn = await run.submit(reply, wait=False)
        await soon()
        await run.stop(R.NEEDS_USER_INPUT)
        await turn.wait()
        return turn

    turn = theatre.enter(host)

    assert turn.ready
    assert turn.call("p").state is State.SUCCEEDED
    assert [turn.call(f"p/{n}").state for n in "xy"] == [State.SUCCEEDED, State.CANCELLED]


# Decided by the engine itself, in the middle of a step


class Stopping(Policy):
    """Stops its run when it is asked about a certain call, as budgets and detectors do."""

    run: Run
    at = 3
    reason = R.NEEDS_USER_INPUT
    code: Code | None = Code.LOOP_DETECTED

    def decide(self, question: Any, /) -> Any:
        if (question.arguments or {}).get("n") == self.at:
            self.run._live.stop(self.reason, "it goes round in circles", code=self.code)
        return super().decide(question)


def many(count: int) -> dict[str, Any]:
    return plan(*({"id": f"c{n}", "tool": "work", "arguments": {"n": n}} for n in range(count)))


@pytest.mark.parametrize("count", [6, 1300])
def test_a_stop_in_the_middle_of_a_step_starts_nothing_behind_it(count: int) -> None:
    policy = Stopping()
    theatre = theatre_of(policy=policy)

    async def host(run: Run) -> Any:
        policy.run = run
        turn = await run.submit(many(count))
        assert turn.ready
        refused = await run.submit(plan({"id": "z", "tool": "look"}))
        assert codes(refused) == {"z": Code.LOOP_DETECTED}
        return turn

    turn = theatre.enter(host)

    assert states(turn)["c0"] is State.SUCCEEDED
    assert set(list(states(turn).values())[1:]) == {State.CANCELLED}
    assert set(codes(turn).values()) == {Code.LOOP_DETECTED}
    assert theatre.stage.log == ["work 0"]


def test_a_budget_that_ends_in_the_middle_of_a_step_takes_back_nothing() -> None:
    policy = Stopping()
    policy.reason, policy.code = R.BUDGET_EXCEEDED, None
    theatre = theatre_of(policy=policy)

    async def host(run: Run) -> Any:
        policy.run = run
        turn = await run.submit(many(5))
        refused = await run.submit(plan({"id": "z", "tool": "look"}))
        assert codes(refused) == {"z": Code.BUDGET_EXCEEDED}
        return turn

    turn = theatre.enter(host)

    assert set(states(turn).values()) == {State.SUCCEEDED}


def test_a_stop_outside_of_any_step_is_carried_out_by_itself() -> None:
    theatre = theatre_of()

    async def host(run: Run) -> Any:
        turn = await run.submit(four(), wait=False)
        await soon()
        assert run._live.stop(R.CANCELLED, "the tree is over")
        assert not run._live.stop(R.FAILED)
        await turn.wait()
        return turn

    turn = theatre.enter(host)

    assert set(states(turn).values()) == {State.CANCELLED}
    assert "the tree is over" in failure(turn, "needs").message
    assert [one.by for one in theatre.kept(RunStopped)] == [""]


def test_a_stop_that_nothing_follows_before_the_run_is_left_is_kept() -> None:
    theatre = theatre_of()

    async def host(run: Run) -> None:
        run._live.stop(R.FAILED, "the disk is full")

    theatre.enter(host)

    assert view_of(theatre).stop_reason is R.FAILED


# Crashes


@pytest.mark.parametrize("reason", StopReason)
def test_a_stop_that_a_crash_cut_short_is_carried_out_by_whoever_takes_the_run_up(
    reason: StopReason,
) -> None:
    theatre = theatre_of()

    async def host(run: Run) -> None:
        await run.submit(four(), wait=False)
        await soon()
        run._live.stop(reason)
        run._live.stop_due = False
        await run._live.services.journal.keep(run._live.log, [RunStopped(reason=reason)])
        theatre.crash()

    theatre.enter(host)

    async def later(run: Run) -> Any:
        turn = run.open_turn
        assert turn is not None
        if reason is R.BUDGET_EXCEEDED:
            await run.deny("asks")
        elif reason is R.NEEDS_USER_INPUT:
            await run.approve("asks")
        return await run.finish()

    turn = theatre.enter(later)

    assert turn is not None
    started = {fact.call for fact in theatre.kept(CallStarted)}
    assert states(turn)["runs"] is State.UNCERTAIN
    assert (turn.call("queued").id in started) is (reason is R.BUDGET_EXCEEDED)
    assert states(turn)["asks"] is {
        R.NEEDS_USER_INPUT: State.SUCCEEDED,
        R.BUDGET_EXCEEDED: State.DENIED,
    }.get(reason, State.CANCELLED)


def test_a_probe_runs_nothing_again_in_a_run_that_was_called_off() -> None:
    stage = Stage()

    async def probe() -> Found:
        return Found.nothing()

    pay = stage.tool("pay", Sleep(50), effect=Effect.EXTERNAL, reconcile=probe)
    theatre = Theatre(stage, pay, limits=Limits(call_seconds=100))

    async def host(run: Run) -> None:
        await run.submit(plan({"id": "a", "tool": "pay"}), wait=False)
        await soon()
        theatre.crash()

    theatre.enter(host)

    async def later(run: Run) -> Any:
        await run.stop(R.CANCELLED)
        return await run.finish()

    turn = theatre.enter(later)

    assert turn is not None
    assert states(turn) == {"a": State.FAILED}
    assert stage.entered == {"pay": 1}


# The reserve for a last summary


def test_what_is_kept_back_for_a_last_summary_is_told_until_it_is_used() -> None:
    theatre = theatre_of(last_summary=Reserve(turns=1, tokens=2000))

    async def host(run: Run) -> Any:
        await run.submit(plan({"id": "a", "tool": "look"}))
        await run.stop(R.BUDGET_EXCEEDED, "10 of 10 turns")
        before = run.report()
        await run.submit(NOTHING_MORE)
        return before, run.report()

    before, after = theatre.enter(host)

    assert (before.summary_turns, before.summary_tokens) == (1, 2000)
    assert "kept back for a last summary: 1 answer of the model and 2000 tokens" in str(before)
    assert (after.summary_turns, after.summary_tokens) == (0, 0)
    assert after.reason is R.BUDGET_EXCEEDED


def test_no_other_stop_keeps_anything_back() -> None:
    theatre = theatre_of(last_summary=Reserve())

    async def host(run: Run) -> None:
        await run.stop(R.CANCELLED)
        assert run.report().summary_turns == 0

    theatre.enter(host)


def test_a_reserve_is_out_of_reach_but_for_the_last_summary() -> None:
    reserve = Reserve(turns=1, tokens=2000)

    assert reserve.left(10, reserve.turns, last=False) == 9
    assert reserve.left(10, reserve.turns, last=True) == 10
    assert reserve.left(500, reserve.tokens, last=False) == 0
    assert reserve.left(float("inf"), reserve.tokens, last=False) == float("inf")


@pytest.mark.parametrize(("turns", "tokens"), [(0, 0), (1, -1)])
def test_a_reserve_that_holds_no_summary_is_refused(turns: int, tokens: int) -> None:
    with pytest.raises(UsageError, match="holds no last summary"):
        Reserve(turns=turns, tokens=tokens)


# The table


def test_the_table_of_the_docs_is_that_of_the_code() -> None:
    text = (Path(__file__).parent.parent / "docs" / "stopping.md").read_text(encoding="utf-8")
    rows = [line.strip("| \n").split(" | ") for line in text.splitlines()]
    told = {row[0]: row[1:] for row in rows if row[0] in StopReason.__members__}

    assert told == {
        str(reason): [
            str(stop.unstarted),
            str(stop.running),
            str(stop.asking),
            "run: the answer reopens it" if stop.code is None else str(stop.code),
            ", ".join(way for way in Through if way in stop.reopened),
        ]
        for reason, stop in STOPS.items()
    }


def test_the_python_of_the_docs_runs() -> None:
    text = (Path(__file__).parent.parent / "docs" / "stopping.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    theatre = theatre_of()

    async def host(run: Run) -> None:
        given: dict[str, Any] = {"run": run, "tools": []}
        exec(f"async def example():\n{indent(code, '    ')}", given)  # noqa: S102 - our own page
        await given["example"]()

    theatre.enter(host)

    assert [one.reason for one in theatre.kept(RunStopped)] == [R.NEEDS_USER_INPUT]
    assert theatre.kept(RunReopened) == [RunReopened(through="say")]


@pytest.mark.parametrize(("detail", "told"), [("", ")."), ("why?", "): why?"), ("so", "): so.")])
def test_what_is_told_of_a_stop_ends_with_one_mark(detail: str, told: str) -> None:
    assert stopped_text(R.FAILED, detail) == f"the run has stopped (FAILED{told}"


def test_every_reason_says_all_that_there_is_to_say() -> None:
    assert set(STOPS) == set(StopReason)
    for reason, stop in STOPS.items():
        assert stop.tell
        assert Through.RESUME in stop.reopened
        assert (stop.code is None) is (Through.SUBMIT in stop.reopened)
        assert stop.running is Open.GO_ON or stop.unstarted is stop.asking is Open.END
        told = refusal(reason, "", Code.CANCELLED)
        assert isinstance(told, Failure)
        assert f"({reason})." in told.message


def test_a_stop_reaches_the_calls_that_running_ones_have_made() -> None:
    stage = Stage()
    inner = stage.tool("inner", Sleep(50), effect=Effect.READ)

    @tool(effect=Effect.READ)
    async def outer(context: ToolContext) -> Any:
        return await context.invoke("inner")

    theatre = Theatre(stage, inner, outer)

    async def host(run: Run) -> Any:
        await run.submit(plan({"id": "o", "tool": "outer"}), wait=False)
        await soon()
        await run.stop(R.CANCELLED)
        return await run.finish()

    turn = theatre.enter(host)

    assert turn is not None
    assert states(turn) == {"o": State.CANCELLED}
    below = next(name for name in theatre.journal.facts if name != RUN)
    (call,) = fold(below, theatre.journal.facts[below]).calls.values()
    assert call.state is State.CANCELLED


def test_a_detail_is_cut_where_it_would_fill_the_journal() -> None:
    theatre = theatre_of()

    async def host(run: Run) -> None:
        await run.stop(R.FAILED, "x" * 100_000)

    theatre.enter(host)

    assert len(theatre.kept(RunStopped)[0].detail) < 5000


def test_a_rule_that_denies_is_asked_before_a_stop_is_told() -> None:
    rule = Rule(Decision.DENY, tools=["mail"])
    theatre = theatre_of(policy=Policy([rule]))

    async def host(run: Run) -> Any:
        await run.stop(R.BUDGET_EXCEEDED)
        return await run.submit(plan({"id": "m", "tool": "mail"}))

    turn = theatre.enter(host)

    assert codes(turn) == {"m": Code.BUDGET_EXCEEDED}
    assert [len(fact.calls) for fact in theatre.kept(TurnSubmitted)] == [1]
