"""Budgets in the engine: calls, turns, tokens, cost and time, live, resumed and in trees."""

import asyncio
import sys
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laneway import (
    UNLIMITED,
    Budget,
    BudgetExceededError,
    Budgets,
    BudgetStatus,
    BudgetWarning,
    Code,
    Decision,
    Effect,
    Engine,
    Limits,
    Policy,
    Price,
    Rule,
    Run,
    State,
    Success,
    Tool,
    ToolContext,
    Turn,
    plan_tool,
    tool,
)
from laneway.engine.admission import admit
from laneway.engine.bookkeeping import account_of
from laneway.engine.charging import Charge
from laneway.engine.providers import parse
from laneway.engine.requesting import estimated_tokens
from laneway.engine.tally import active_seconds
from laneway.errors import JournalError, ToolError, UsageError
from laneway.facts import (
    BudgetNeared,
    BudgetReserved,
    BudgetSettled,
    CallQueued,
    CallStarted,
    Driver,
    HostNoted,
    LossAccepted,
    Row,
    RunOpened,
    RunTaken,
    TurnSubmitted,
)
from laneway.ids import CallId, RunId
from laneway.journal.memory import MemoryJournal, MemoryStore
from laneway.testing.clock import VirtualClock, run_virtual
from laneway.testing.scripted import Do, Log, Raise, Return, Sleep, Stage
from laneway.testing.theatre import Theatre, codes, failure, plan, states

ANY = {"type": "object"}


def call(name: str, tool: str = "hit", **declared: Any) -> dict[str, Any]:
    return {"id": name, "tool": tool, **declared}


def hits(count: int, first: int = 1) -> dict[str, Any]:
    return plan(
        *(call(f"h{n}", arguments={"n": n}) for n in range(first, first + count)),
    )


def hit(stage: Stage, *steps: Any, **declared: Any) -> Tool[..., Any]:
    body = steps or (Sleep(0.05), Log("{n}"), Return("ok"))
    declared.setdefault("effect", Effect.EXTERNAL)
    return stage.tool("hit", *body, schema=ANY, **declared)


def paid(key: str, input_tokens: int, output_tokens: int, *calls: str) -> dict[str, Any]:
    asked = [
        {"id": one, "type": "function", "function": {"name": "hit", "arguments": "{}"}}
        for one in calls
    ]
    message = {"role": "assistant", "content": "well", "tool_calls": asked}
    return {
        "id": key,
        "model": "little",
        "choices": [{"finish_reason": "stop", "message": message}],
        "usage": {"prompt_tokens": input_tokens, "completion_tokens": output_tokens},
    }


def standing(run: Run) -> dict[str, tuple[float, float]]:
    return {name: (one.settled, one.reserved) for name, one in run.budgets.items()}


# Calls


def test_h_bud_1_of_seven_parallel_calls_the_first_five_run_and_each_is_answered() -> None:
    stage = Stage()
    theatre = Theatre(stage, hit(stage), budgets=Budgets(tool_calls=5))

    turn = theatre.play(hits(7))

    assert len(stage.log) == 5
    assert sorted(stage.log) == ["1", "2", "3", "4", "5"]
    assert [states(turn)[f"h{n}"] for n in range(1, 8)] == [State.SUCCEEDED] * 5 + [
        State.DENIED
    ] * 2
    assert codes(turn) == {"h6": Code.BUDGET_EXCEEDED, "h7": Code.BUDGET_EXCEEDED}
    assert len(turn.messages[-1]["results"]) == 7
    assert "the budget tool_calls of 5 tool calls has" in failure(turn, "h6").message


def test_h_bud_1_what_the_policy_or_its_schema_refuses_uses_none_of_the_five() -> None:
    stage = Stage()
    strict = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    checked = stage.tool("checked", Log("{n}"), schema=strict, effect=Effect.EXTERNAL)
    denied = stage.tool("denied", schema=ANY)
    policy = Policy([Rule(Decision.DENY, tools=["denied"])])
    theatre = Theatre(
        stage, hit(stage), checked, denied, policy=policy, budgets=Budgets(tool_calls=5)
    )
    refused = [call("d", "denied"), call("c", "checked", arguments={"n": "x"})]

    turn = theatre.play(plan(*refused, *hits(7)["calls"]))

    assert sorted(stage.log) == ["1", "2", "3", "4", "5"]
    assert codes(turn) == {
        "d": Code.POLICY_DENIED,
        "c": Code.INVALID_ARGUMENTS,
        "h6": Code.BUDGET_EXCEEDED,
        "h7": Code.BUDGET_EXCEEDED,
    }


def test_the_rule_of_a_refusal_names_the_budget() -> None:
    stage = Stage()
    theatre = Theatre(stage, hit(stage), budgets=Budgets(tool_calls=0))

    turn = theatre.play(hits(1))

    assert turn.calls[0].rule == "budget tool_calls"
    assert not theatre.kept(CallQueued)


def test_the_order_of_the_request_decides_also_where_priorities_say_who_goes_first() -> None:
    stage = Stage()
    low, high = (
        stage.tool(name, Log(name), schema=ANY, claims=["lane:one"], priority=priority)
        for name, priority in (("low", 0), ("high", 5))
    )
    theatre = Theatre(stage, low, high, budgets=Budgets(tool_calls=3))
    asked = [call("a", "low"), call("b", "high"), call("c", "low"), call("d", "high")]

    turn = theatre.play(plan(*asked))

    assert states(turn)["d"] is State.DENIED
    assert stage.log == ["high", "low", "low"]


def test_calls_freed_in_one_step_draw_in_the_order_of_the_request_too() -> None:
    stage = Stage()
    low, high = (
        stage.tool(name, Log(name), schema=ANY, claims=["lane:one"], priority=priority)
        for name, priority in (("low", 0), ("high", 5))
    )
    theatre = Theatre(stage, low, high, hit(stage), budgets=Budgets(tool_calls=3))
    asked = [
        call("a", arguments={"n": 1}),
        call("b", "low", needs=["a"]),
        call("c", "low", needs=["a"]),
        call("d", "high", needs=["a"]),
    ]

    turn = theatre.play(plan(*asked))

    assert states(turn)["d"] is State.DENIED
    assert stage.log == ["1", "low", "low"]


def test_a_call_that_never_started_gives_everything_back() -> None:
    stage = Stage()
    slow = stage.tool("slow", Sleep(10), schema=ANY, claims=["lane:one"])
    theatre = Theatre(stage, slow, budgets=Budgets(tool_calls=2))

    async def host(run: Run) -> tuple[Any, Any, Turn]:
        turn = await run.submit(plan(call("a", "slow"), call("b", "slow")), wait=False)
        before = standing(run)["tool_calls"]
        await run.cancel("b")
        after = standing(run)["tool_calls"]
        await turn.wait()
        later = await run.submit(plan(call("c", "slow"), call("d", "slow")))
        return before, after, later

    before, after, later = theatre.enter(host)

    assert before == (1, 1)
    assert after == (1, 0)
    assert states(later) == {"c": State.SUCCEEDED, "d": State.DENIED}


def test_attempts_are_counted_apart_and_a_repeat_that_does_not_fit_ends_the_call() -> None:
    stage = Stage()
    flaky = stage.tool("flaky", Raise(ConnectionError("gone")), schema=ANY, retries=3)
    theatre = Theatre(stage, flaky, budgets=Budgets(attempts=2))

    async def host(run: Run) -> tuple[Turn, Any]:
        return await run.submit(plan(call("a", "flaky"))), standing(run)

    turn, stands = theatre.enter(host)

    assert states(turn) == {"a": State.DENIED}
    assert codes(turn) == {"a": Code.BUDGET_EXCEEDED}
    assert stands["attempts"] == (2, 0)
    assert stands["tool_calls"] == (1, 0)
    assert len(theatre.kept(CallStarted)) == 2


def test_a_tool_and_a_lane_have_budgets_of_their_own_and_no_other_call_is_stopped() -> None:
    stage = Stage()
    mail = stage.tool("mail", schema=ANY)
    post = stage.tool("post", schema=ANY, claims=["lane:api"])
    theatre = Theatre(
        stage,
        mail,
        post,
        budgets=Budgets(tools={"mail": Budget(tool_calls=1)}, lanes={"api": Budget(attempts=1)}),
    )
    asked = [call("m1", "mail"), call("m2", "mail"), call("p1", "post"), call("p2", "post")]

    async def host(run: Run) -> tuple[Turn, Any]:
        return await run.submit(plan(*asked)), run.budgets

    turn, stands = theatre.enter(host)

    assert [one for one, state in states(turn).items() if state is State.DENIED] == ["m2", "p2"]
    assert stands["tool:mail:tool_calls"].settled == 1
    assert stands["lane:lane:api:attempts"].left == 0


def test_a_call_that_waits_for_a_human_has_nothing_set_aside_until_it_is_let_pass() -> None:
    stage = Stage()
    asks = stage.tool("asks", schema=ANY, approval=True)
    theatre = Theatre(stage, asks, hit(stage), budgets=Budgets(tool_calls=1))

    async def host(run: Run) -> tuple[Any, Turn]:
        turn = await run.submit(plan(call("q", "asks"), call("h", arguments={"n": 1})), wait=False)
        await asyncio.sleep(1)
        stands = standing(run)["tool_calls"]
        await run.approve("q")
        await turn.wait()
        return stands, turn

    stands, turn = theatre.enter(host)

    assert stands == (1, 0)
    assert states(turn) == {"q": State.DENIED, "h": State.SUCCEEDED}
    assert codes(turn) == {"q": Code.BUDGET_EXCEEDED}


def test_many_calls_are_looked_at_in_slices_and_the_first_of_them_run() -> None:
    stage = Stage()
    quick = stage.tool("hit", Do(lambda n: n), schema=ANY)
    theatre = Theatre(stage, quick, budgets=Budgets(tool_calls=1100))

    turn = theatre.play(hits(1300))

    ran = [name for name, state in states(turn).items() if state is State.SUCCEEDED]
    assert ran == [f"h{n}" for n in range(1, 1101)]


def test_a_run_without_such_budgets_writes_nothing_of_them() -> None:
    stage = Stage()
    theatre = Theatre(stage, hit(stage))

    theatre.play(hits(3))

    assert not theatre.kept(BudgetReserved) + theatre.kept(BudgetSettled)
    assert not theatre.kept(BudgetNeared)


def test_a_plan_in_one_call_is_counted_by_its_calls() -> None:
    stage = Stage()
    theatre = Theatre(stage, hit(stage), plan_tool(), budgets=Budgets(tool_calls=2))
    inner = [call(f"h{n}", arguments={"n": n}) for n in (1, 2, 3)]
    asked = plan(call("p", "plan", arguments={"calls": inner}))

    async def host(run: Run) -> tuple[Turn, Any]:
        return await run.submit(asked), standing(run)

    turn, stands = theatre.enter(host)

    assert [one.state for one in turn.calls[1:]] == [State.SUCCEEDED] * 2 + [State.DENIED]
    assert turn.calls[0].state is not State.DENIED
    assert stands["tool_calls"] == (2, 0)


# What a host asks for that makes no sense


def test_a_tool_that_does_not_exist_and_a_lane_that_is_named_twice_are_refused() -> None:
    stage = Stage()
    with pytest.raises(UsageError, match=r"names 'mial', which is no tool \(tools: hit\)"):
        Engine([hit(stage)], budgets=Budgets(tools={"mial": Budget(attempts=1)}))
    lanes = {"a": Budget(attempts=1), "lane:a": Budget(attempts=1)}
    with pytest.raises(UsageError, match="names lane:a twice, the second time as 'lane:a'"):
        Engine([], budgets=Budgets(lanes=lanes))
    with pytest.raises(ToolError, match="minimum_seconds=-1 is no time"):
        hit(stage, minimum_seconds=-1)
    with pytest.raises(ToolError, match="minimum_seconds=nan is no time"):
        hit(stage, minimum_seconds="soon")


# Turns


def test_a_turn_too_many_is_refused_whole_and_each_of_its_calls_is_answered() -> None:
    stage = Stage()
    theatre = Theatre(stage, hit(stage), budgets=Budgets(model_turns=2))

    async def host(run: Run) -> tuple[list[Turn], Any]:
        turns = [await run.submit(hits(2, first=10 * n)) for n in range(3)]
        return turns, standing(run)

    turns, stands = theatre.enter(host)

    assert states(turns[1]) == {"h10": State.SUCCEEDED, "h11": State.SUCCEEDED}
    assert codes(turns[2]) == {"h20": Code.BUDGET_EXCEEDED, "h21": Code.BUDGET_EXCEEDED}
    assert "so nothing of this answer runs" in failure(turns[2], "h20").message
    assert len(turns[2].messages[-1]["results"]) == 2
    assert stands["model_turns"] == (2, 0)
    assert theatre.kept(TurnSubmitted)[-1].refused == "model_turns"


def test_an_ordinary_conversation_is_not_ended_by_the_default_and_an_endless_one_is() -> None:
    stage = Stage()
    theatre = Theatre(stage, stage.tool("hit", schema=ANY), loops=None)

    async def host(run: Run) -> list[State]:
        return [(await run.submit(hits(1))).calls[0].state for _ in range(101)]

    ends = theatre.enter(host)

    assert ends == [State.SUCCEEDED] * 100 + [State.DENIED]


def test_a_recorded_turn_is_not_charged_again() -> None:
    stage = Stage()
    theatre = Theatre(stage, hit(stage), budgets=Budgets(model_turns=1))

    async def host(run: Run) -> tuple[Turn, Any]:
        await run.submit(hits(1), key="k")
        return await run.submit(hits(1), key="k"), standing(run)

    turn, stands = theatre.enter(host)

    assert states(turn) == {"h1": State.SUCCEEDED}
    assert stands["model_turns"] == (1, 0)


def test_a_turn_of_which_nothing_was_taken_in_is_charged_for_nothing() -> None:
    stage = Stage()
    theatre = Theatre(stage, hit(stage), budgets=Budgets(tool_calls=1))

    async def host(run: Run) -> Any:
        with pytest.raises(Exception, match="the plan has 1 fault"):
            await run.submit(plan(call("x", "nothing")), strict=True)
        return standing(run)

    assert theatre.enter(host)["model_turns"] == (0, 0)


# Tokens and cost


def test_what_answers_tell_of_tokens_is_counted_and_the_turn_behind_the_limit_is_refused() -> None:
    stage = Stage()
    theatre = Theatre(stage, hit(stage, Return("ok")), budgets=Budgets(tokens=1000))

    async def host(run: Run) -> tuple[Turn, Turn, Any]:
        first = await run.submit(paid("a", 900, 150, "c1"))
        second = await run.submit(paid("b", 10, 5, "c2"))
        return first, second, run.budgets["tokens"]

    first, second, stands = theatre.enter(host)

    assert states(first) == {"c1": State.SUCCEEDED}
    assert codes(second) == {"c2": Code.BUDGET_EXCEEDED}
    assert (stands.settled, stands.left) == (1065, 0)
    assert not theatre.kept(BudgetReserved)


def test_an_anthropic_answer_counts_what_its_cache_read_and_wrote() -> None:
    stage = Stage()
    usage = {
        "input_tokens": 10,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 1000,
        "output_tokens": 1,
    }
    reply = {"id": "m", "type": "message", "role": "assistant", "content": [], "usage": usage}
    odd = {**reply, "id": "o", "usage": {"input_tokens": "many", "output_tokens": None}}
    none = {**reply, "id": "n", "usage": "a lot"}

    async def host(run: Run) -> Any:
        await run.submit(reply)
        await run.submit(odd)
        await run.submit(none)
        return run.budgets["tokens"].settled

    assert Theatre(stage).enter(host) == 1111


def test_a_request_sets_aside_what_it_may_take_and_settles_what_it_took() -> None:
    stage = Stage()
    prices = {"little": Price(input="1", output="2", source="of the house, 2026-01-01")}
    budgets = Budgets(tokens=10_000, cost=1, prices=prices, count_tokens=len)
    theatre = Theatre(stage, hit(stage, Return("ok")), budgets=budgets)

    async def host(run: Run) -> tuple[Any, Any, Any]:
        async with run.request(model="little", messages="x" * 500, max_output_tokens=300) as asking:
            during = standing(run)
            reply = paid("a", 400, 50, "c1")
            asking.reply(reply)
        after = standing(run)
        await run.submit(reply)
        return during, after, standing(run)

    during, after, then = theatre.enter(host)

    assert during["tokens"] == (0, 800)
    assert during["cost"] == (0, 0.0011)
    assert after["tokens"] == (450, 0)
    assert after["cost"] == (0.0005, 0)
    assert then["tokens"] == (450, 0)
    assert then["model_turns"] == (1, 0)
    kept = theatre.kept(BudgetReserved)
    assert [(one.budget, one.least, one.price) for one in kept] == [
        ("tokens", 500, ""),
        ("cost", 0.0005, "of the house, 2026-01-01"),
    ]


def test_a_request_that_failed_is_settled_with_its_input_and_one_that_is_not_billed_with_none() -> (
    None
):
    stage = Stage()
    theatre = Theatre(stage, budgets=Budgets(count_tokens=len))

    async def host(run: Run) -> Any:
        with pytest.raises(TimeoutError):
            async with run.request(messages="x" * 70):
                raise TimeoutError
        failed = standing(run)["tokens"]
        async with run.request(messages="x" * 70) as asking:
            asking.not_billed()
        return failed, standing(run)["tokens"]

    assert theatre.enter(host) == ((70, 0), (70, 0))


def test_an_answer_that_tells_nothing_is_settled_by_the_estimate() -> None:
    stage = Stage()

    async def host(run: Run) -> Any:
        async with run.request(messages=[{"role": "user", "content": "hello"}]) as asking:
            asking.reply({"role": "assistant", "content": "hi"}, provider="openai-chat")
        with pytest.raises(UsageError, match="belongs inside"):
            asking.reply({"role": "assistant", "content": "hi"})
        await run.submit({"role": "assistant", "content": "hi"}, provider="openai-chat")
        return standing(run)["tokens"]

    settled, reserved = Theatre(stage).enter(host)

    assert settled == estimated_tokens([{"role": "user", "content": "hello"}]) + estimated_tokens(
        {"role": "assistant", "content": "hi"}
    )
    assert reserved == 0


def test_a_request_that_does_not_fit_is_an_error_of_the_host_with_the_way_out() -> None:
    stage = Stage()
    theatre = Theatre(stage, budgets=Budgets(tokens=1000, model_turns=1, count_tokens=len))

    async def host(run: Run) -> tuple[str, str, Any]:
        with pytest.raises(BudgetExceededError) as first:
            async with run.request(messages="x" * 990, max_output_tokens=20):
                pass
        with pytest.raises(UsageError, match="max_output_tokens=-1 is no number of tokens"):
            run.request(max_output_tokens=-1)
        await run.submit({"role": "assistant", "content": "hi"}, provider="openai-chat")
        with pytest.raises(BudgetExceededError) as second:
            async with run.request():
                pass
        return str(first.value), str(second.value), standing(run)["tokens"]

    first, second, stands = theatre.enter(host)

    assert "the budget tokens of 1,000 tokens has 0 tokens used; 1,010 tokens more" in first
    assert "take the run up with a higher limit" in first
    assert "the budget model_turns of 1 model turn has 1 model turn used" in second
    assert stands == (0, 0)


def test_requests_beside_each_other_cannot_pass_one_check_together() -> None:
    stage = Stage()
    theatre = Theatre(stage, budgets=Budgets(tokens=250, count_tokens=len))
    passed: list[int] = []

    async def host(run: Run) -> Any:
        async def ask(n: int) -> None:
            with suppress(BudgetExceededError):
                async with run.request(messages="x" * 50, max_output_tokens=50):
                    passed.append(n)
                    await asyncio.sleep(1)

        await asyncio.gather(*(ask(n) for n in range(5)))
        return standing(run)["tokens"]

    assert theatre.enter(host) == (100, 0)
    assert passed == [0, 1]


def test_a_request_that_a_crash_left_is_settled_with_its_input_when_the_run_is_taken_up() -> None:
    stage = Stage()
    prices = {"little": Price(input=1, output=1)}
    theatre = Theatre(stage, budgets=Budgets(cost=5, prices=prices, count_tokens=len))

    async def dies(run: Run) -> None:
        async with run.request(model="little", messages="x" * 40, max_output_tokens=60):
            theatre.crash()

    async def host(run: Run) -> Any:
        return standing(run)

    theatre.enter(dies)
    stands = theatre.enter(host)

    assert stands["tokens"] == (40, 0)
    assert stands["cost"] == (0.00004, 0)


def test_a_settled_answer_is_not_charged_again_after_a_crash() -> None:
    stage = Stage()
    theatre = Theatre(stage, hit(stage, Return("ok")))

    async def dies(run: Run) -> None:
        async with run.request(messages="x") as asking:
            asking.reply(paid("a", 30, 12, "c"))
        theatre.crash()

    async def host(run: Run) -> Any:
        await run.submit(paid("a", 30, 12, "c"))
        return standing(run)["tokens"]

    theatre.enter(dies)

    assert theatre.enter(host) == (42, 0)


def test_the_cost_of_a_submitted_answer_is_counted_at_the_price_that_is_recorded_with_it() -> None:
    stage = Stage()
    budgets = Budgets(cost="0.001", prices={"little": Price(input=1, output=2, source="mine")})
    theatre = Theatre(stage, hit(stage, Return("ok")), budgets=budgets)

    async def host(run: Run) -> Any:
        await run.submit(paid("a", 400, 300, "c1"))
        return run.budgets["cost"], await run.submit(paid("b", 1, 1, "c2"))

    stands, refused = theatre.enter(host)

    assert (stands.settled, stands.left) == (0.001, 0)
    assert codes(refused) == {"c2": Code.BUDGET_EXCEEDED}
    usage = theatre.kept(TurnSubmitted)[0].usage
    assert usage is not None
    assert (usage.cost, usage.price) == (0.001, "mine")
    assert theatre.enter(_cost) == 0.001003


async def _cost(run: Run) -> float:
    return run.budgets["cost"].settled


def test_a_model_without_a_price_is_an_error_that_says_how_to_give_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage()
    theatre = Theatre(stage, hit(stage), budgets=Budgets(cost=1))

    async def host(run: Run) -> str:
        with pytest.raises(UsageError) as caught:
            await run.submit(paid("a", 4, 3, "c1"))
        return str(caught.value)

    monkeypatch.setitem(sys.modules, "genai_prices", None)
    without = theatre.enter(host)

    class Prices(SimpleNamespace):
        @staticmethod
        def calc_price(usage: Any, model_ref: str) -> Any:
            raise LookupError(model_ref)

    monkeypatch.setitem(
        sys.modules, "genai_prices", Prices(__version__="9.9", Usage=SimpleNamespace)
    )
    unknown = theatre.enter(host)

    assert "pip install 'laneway[prices]'" in without
    assert "genai-prices 9.9 does not know; give it one" in unknown
    assert not theatre.kept(TurnSubmitted)


def test_the_table_of_genai_prices_is_used_and_named_with_version_and_date() -> None:
    pytest.importorskip("genai_prices", reason="the extra `prices` is not installed")
    stage = Stage()
    theatre = Theatre(stage, budgets=Budgets(cost=1, count_tokens=len))

    async def host(run: Run) -> Any:
        async with run.request(model="gpt-4o", messages="x" * 1000, max_output_tokens=100):
            return standing(run)["cost"]

    assert theatre.enter(host) == (0, 0.0035)
    price = theatre.kept(BudgetReserved)[1].price
    assert price.startswith("genai-prices ")
    assert "openai/gpt-4o, asked 20" in price


# Thresholds


def test_thresholds_are_told_once_each_also_after_the_run_is_taken_up() -> None:
    stage = Stage()
    told: list[BudgetWarning] = []
    theatre = Theatre(
        stage,
        hit(stage, Return("ok")),
        budgets=Budgets(tool_calls=20),
        on_budget=told.append,
        loops=None,
    )

    async def host(run: Run) -> None:
        await run.submit(hits(1))
        await asyncio.sleep(1)

    theatre.enter(lambda run: run.submit(hits(16)))
    theatre.crash()
    for _ in range(4):
        theatre.enter(host)

    assert [(one.budget, one.percent, one.used) for one in told] == [
        ("tool_calls", 80, 16),
        ("tool_calls", 95, 19),
    ]
    assert told[0].run == "r"
    assert [one.percent for one in theatre.kept(BudgetNeared)] == [80, 95]


# Time


def test_when_the_time_of_a_run_is_used_up_what_runs_times_out_and_what_waits_is_refused() -> None:
    stage = Stage()
    slow = stage.tool("slow", Sleep(20), schema=ANY, claims=["lane:one"])
    theatre = Theatre(stage, slow, budgets=Budgets(seconds=30))

    async def host(run: Run) -> tuple[Turn, Turn, Any]:
        asked = [
            call("a", "slow"),
            call("b", "slow"),
            call("c", "slow"),
            call("d", "slow", after=["c"]),
        ]
        return await run.submit(plan(*asked)), await run.submit(hits(1)), run.budgets["seconds"]

    first, second, stands = theatre.enter(host)

    assert states(first) == {
        "a": State.SUCCEEDED,
        "b": State.TIMED_OUT,
        "c": State.DENIED,
        "d": State.DENIED,
    }
    assert codes(first)["d"] is Code.BUDGET_EXCEEDED
    assert "the run's time of 30 s is used up" in failure(first, "b").message
    assert states(second)["h1"] is not State.SUCCEEDED
    assert stands.settled == pytest.approx(30)
    assert stage.entered["slow"] == 2


def test_the_clock_rests_between_turns_and_while_only_humans_are_awaited() -> None:
    stage = Stage()
    asks = stage.tool("asks", Sleep(4), schema=ANY, approval=True)
    theatre = Theatre(stage, asks, budgets=Budgets(seconds=10))

    async def host(run: Run) -> tuple[Turn, float]:
        turn = await run.submit(plan(call("q", "asks")), wait=False)
        await asyncio.sleep(100)
        await run.approve("q")
        await turn.wait()
        await asyncio.sleep(100)
        return turn, run.budgets["seconds"].settled

    turn, seconds = theatre.enter(host)

    assert states(turn) == {"q": State.SUCCEEDED}
    assert seconds == pytest.approx(4)


def test_the_time_goes_on_after_the_run_is_taken_up_and_is_not_begun_anew() -> None:
    stage = Stage()
    theatre = Theatre(stage, hit(stage, Sleep(6)), budgets=Budgets(seconds=10))

    async def seconds(run: Run) -> float:
        return run.budgets["seconds"].settled

    theatre.play(hits(1))
    theatre.crash()
    kept = theatre.enter(seconds)
    turn = theatre.play(hits(1, first=2))

    assert kept == pytest.approx(6)
    assert states(turn) == {"h2": State.TIMED_OUT}
    assert theatre.enter(seconds) == pytest.approx(10)
    assert codes(theatre.play(hits(1, first=3))) == {"h3": Code.BUDGET_EXCEEDED}


def test_a_call_that_needs_more_than_is_left_is_not_started() -> None:
    stage = Stage()
    long = stage.tool("long", schema=ANY, minimum_seconds=5)
    theatre = Theatre(stage, hit(stage, Sleep(6)), long, budgets=Budgets(seconds=10))

    turn = theatre.play(plan(call("s", "long"), call("h"), call("l", "long", needs=["h"])))

    assert states(turn) == {"s": State.SUCCEEDED, "h": State.SUCCEEDED, "l": State.DENIED}
    assert failure(turn, "l").message == (
        "Not started: long needs at least 5 s, and 4 s are left of the run's time."
    )


def test_a_pause_between_attempts_that_the_time_would_end_is_not_begun() -> None:
    stage = Stage()
    flaky = stage.tool("flaky", Raise(ConnectionError("gone")), schema=ANY, retries=3)
    theatre = Theatre(stage, flaky, budgets=Budgets(seconds=10), limits=Limits(back_off_seconds=50))

    turn = theatre.play(plan(call("a", "flaky")))

    assert codes(turn) == {"a": Code.TOOL_ERROR}
    assert turn.calls[0].attempt == 1


def test_a_call_between_two_attempts_is_refused_when_the_time_is_used_up() -> None:
    stage = Stage()
    flaky = stage.tool("flaky", Raise(ConnectionError("gone")), schema=ANY, retries=3)
    theatre = Theatre(
        stage,
        flaky,
        hit(stage, Sleep(100)),
        budgets=Budgets(seconds=100),
        limits=Limits(back_off_seconds=45, call_seconds=200),
    )

    turn = theatre.play(plan(call("a", "flaky"), call("h")))

    assert states(turn)["a"] in (State.FAILED, State.DENIED)
    assert turn.ready


def test_the_time_of_a_request_counts_and_its_thresholds_are_told() -> None:
    stage = Stage()
    told: list[BudgetWarning] = []
    theatre = Theatre(stage, hit(stage), budgets=Budgets(seconds=100), on_budget=told.append)

    async def host(run: Run) -> tuple[float, Turn]:
        async with run.request():
            await asyncio.sleep(85)
            seconds = run.budgets["seconds"].settled
            await asyncio.sleep(20)
        return seconds, await run.submit(hits(1))

    seconds, turn = theatre.enter(host)

    assert seconds == pytest.approx(85)
    assert [(one.budget, one.percent) for one in told] == [("seconds", 80), ("seconds", 95)]
    assert codes(turn) == {"h1": Code.BUDGET_EXCEEDED}


def test_no_time_at_all_lets_nothing_begin() -> None:
    stage = Stage()

    turn = Theatre(stage, hit(stage), budgets=Budgets(seconds=0)).play(hits(1))

    assert codes(turn) == {"h1": Code.BUDGET_EXCEEDED}


# Trees


def nesting(budgets: Budgets, journal: MemoryJournal, host: Any, **options: Any) -> Any:
    """Enter a run whose tool `outer` calls `inner` n times, side by side."""

    @tool(effect=Effect.READ, claims=[])
    async def inner(n: int) -> int:
        return n

    @tool(effect=Effect.READ, claims=[], timeout=UNLIMITED)
    async def outer(count: int, seconds: float, context: ToolContext) -> dict[str, int]:
        async def one(n: int) -> bool:
            try:
                await context.invoke("inner", n=n)
            except Exception:  # noqa: BLE001 - whatever the engine says, the body goes on
                return False
            return True

        found = await asyncio.gather(*(one(n) for n in range(count)))
        await asyncio.sleep(seconds)
        return {"ran": sum(found)}

    async def main() -> Any:
        engine = Engine(
            [inner, outer],
            journal=MemoryStore(journal),
            budgets=budgets,
            clock=VirtualClock,
            **options,
        )
        async with engine, engine.run("r") as run:
            return await host(run)

    return run_virtual(main)


def outer(name: str, count: int, seconds: float = 0) -> dict[str, Any]:
    return call(name, "outer", arguments={"count": count, "seconds": seconds})


def test_the_runs_within_calls_draw_on_the_budget_of_the_tree_that_they_are_part_of() -> None:
    async def host(run: Run) -> tuple[Turn, Mapping[str, BudgetStatus]]:
        return await run.submit(plan(outer("a", 9), outer("b", 9))), run.budgets

    turn, stands = nesting(Budgets(tree=Budget(tool_calls=12)), MemoryJournal(), host)

    ran = sum(one.value["ran"] for one in turn.outcomes.values() if isinstance(one, Success))
    assert ran == 10
    assert (stands["tree:tool_calls"].settled, stands["tree:tool_calls"].left) == (12, 0)
    assert stands["tool_calls"].settled == 2
    assert stands["model_turns"].settled == 1


def test_the_figures_of_a_tree_are_the_same_once_it_is_taken_up_and_no_run_is_counted_twice() -> (
    None
):
    journal = MemoryJournal()
    budgets = Budgets(tree=Budget(tool_calls=12), tools={"inner": Budget(attempts=8)})

    async def first(run: Run) -> Any:
        await run.submit(plan(outer("a", 4)))
        return standing(run)

    async def again(run: Run) -> Any:
        return standing(run)

    async def more(run: Run) -> Any:
        turn = await run.submit(plan(outer("b", 9)))
        return turn.outcomes["b"], standing(run)

    live = nesting(budgets, journal, first)
    resumed = nesting(budgets, journal, again)
    outcome, then = nesting(budgets, journal, more)

    assert live == resumed
    assert live["tree:tool_calls"] == (5, 0)
    assert outcome == Success(value={"ran": 4})
    assert then["tool:inner:attempts"] == (8, 0)
    assert then["tree:tool_calls"] == (10, 0)


def test_a_run_that_is_entered_again_within_a_call_is_counted_once() -> None:
    stage = Stage()
    entered: list[Any] = []

    @tool(effect=Effect.READ, claims=[])
    async def inner() -> int:
        return 1

    engines: list[Engine] = []

    @tool(effect=Effect.READ, claims=[])
    async def agent() -> str:
        for n in range(3):
            async with engines[0].run("child", budget=Budgets(tree=Budget(attempts=50))) as run:
                await run.submit(plan(call("i", "inner")), key=str(n))
                entered.append(standing(run)["tree:attempts"])
        return "done"

    async def main() -> Any:
        engine = Engine(
            [inner, agent],
            budgets=Budgets(tree=Budget(tool_calls=9)),
            loops=None,
            clock=stage.make_clock,
        )
        engines.append(engine)
        async with engine, engine.run("r") as run:
            await run.submit(plan(call("a", "agent")))
            return standing(run)["tree:tool_calls"]

    assert run_virtual(main) == (4, 0)
    assert entered == [(1, 0), (2, 0), (3, 0)]


def test_the_time_of_a_run_is_that_of_the_runs_within_its_calls_too() -> None:
    async def host(run: Run) -> Turn:
        return await run.submit(plan(outer("a", 2, seconds=99)))

    turn = nesting(Budgets(seconds=5), MemoryJournal(), host)

    assert states(turn) == {"a": State.TIMED_OUT}


# After a crash


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["quick", "slow", "fails", "flaky", "denied", "asks"]),
            st.booleans(),
        ),
        min_size=1,
        max_size=12,
    ),
    st.integers(0, 6),
    st.integers(0, 9),
    st.integers(0, 40),
)
def test_budgets_are_never_overrun_and_never_leak_whatever_happens_and_crashes(
    asked: list[tuple[str, bool]], most_calls: int, most_attempts: int, crash_after: int
) -> None:
    stage = Stage()
    tools = [
        stage.tool("quick", Sleep(1), schema=ANY),
        stage.tool("slow", Sleep(5), schema=ANY, claims=["lane:one"]),
        stage.tool("fails", Raise(ValueError("no")), schema=ANY),
        stage.tool("flaky", Raise(ConnectionError("gone")), schema=ANY, retries=2),
        stage.tool("denied", schema=ANY),
        stage.tool("asks", schema=ANY, approval=True),
    ]
    theatre = Theatre(
        stage,
        *tools,
        policy=Policy([Rule(Decision.DENY, tools=["denied"])]),
        budgets=Budgets(tool_calls=most_calls, attempts=most_attempts),
    )
    reply = plan(
        *(
            call(f"c{n}", name, **({"after": [f"c{n - 1}"]} if behind and n else {}))
            for n, (name, behind) in enumerate(asked)
        )
    )

    crashed: list[int] = []

    async def work(run: Run) -> Any:
        turn = await run.submit(reply, key="k", wait=False)
        waiting = asyncio.ensure_future(turn.wait())
        for second in range(200):
            check(run)
            if second == crash_after and not crashed:
                crashed.append(second)
                theatre.crash()
            for question in run.approvals:
                await run.approve(question.id)
            if second == 3:
                await run.cancel("c0")
            await asyncio.wait([waiting], timeout=1)
            if waiting.done():
                break
        await turn.close()
        check(run)
        return standing(run)

    def check(run: Run) -> None:
        stands = run.budgets
        for name, most in (("tool_calls", most_calls), ("attempts", most_attempts)):
            assert 0 <= stands[name].settled + stands[name].reserved <= most
            assert stands[name].settled >= 0
            assert stands[name].reserved >= 0

    async def look(run: Run) -> Any:
        return standing(run)

    theatre.enter(work)
    ended = theatre.enter(work)
    resumed = theatre.enter(look)

    assert ended["tool_calls"][1] == ended["attempts"][1] == 0
    assert {name: resumed[name] for name in ("tool_calls", "attempts", "model_turns")} == {
        name: ended[name] for name in ("tool_calls", "attempts", "model_turns")
    }
    starts = theatre.kept(CallStarted)
    assert len(starts) == ended["attempts"][0] <= most_attempts
    assert len({one.call for one in starts}) == ended["tool_calls"][0] <= most_calls


def test_the_time_at_work_of_a_journal_is_that_of_the_live_run() -> None:
    stage = Stage()
    theatre = Theatre(stage, hit(stage, Sleep(3)))

    async def host(run: Run) -> float:
        await run.submit(hits(2))
        await asyncio.sleep(50)
        await run.submit(hits(1, first=5))
        return run.budgets["seconds"].settled

    live = theatre.enter(host)

    assert live == pytest.approx(6)
    assert active_seconds(theatre.journal.facts[RunId("r")]) == pytest.approx(live)


def test_between_two_drivers_no_time_passes_and_their_clocks_may_be_any() -> None:
    def rows(*facts: tuple[float, Any]) -> list[Row]:
        return [Row(RunId("r"), seq, 0.0, mono, fact) for seq, (mono, fact) in enumerate(facts, 1)]

    one, driver = CallId("t1.1"), Driver(host="h", boot="b", pid=1, started="1")
    began = rows(
        (5.0, RunOpened(run=RunId("r"), driver=driver)),
        (6.0, CallQueued(call=one, rule="default")),
        (7.0, CallStarted(call=one, attempt=1, token=1)),
        (9.5, HostNoted(note=1)),
    )
    taken = rows(
        (9e6, RunTaken(driver=driver)),
        (9e6 + 50, CallStarted(call=one, attempt=2, token=2)),
        (9e6 + 52, HostNoted(note=2)),
        (1.0, LossAccepted(lost=3)),
    )

    assert active_seconds(began) == 3.5
    assert active_seconds([*began, *taken]) == 5.5


def test_what_a_driver_changes_of_the_limits_is_told_to_the_next() -> None:
    stage = Stage()
    theatre = Theatre(stage, hit(stage, Return("ok")))

    async def changes(run: Run) -> Any:
        return run.changes

    theatre.play(hits(1))
    changed = theatre.enter(changes, budgets=Budgets(tool_calls=7, seconds=60))

    assert "the budget tool_calls is 7, was as by default" in changed
    assert theatre.enter(changes, budgets=Budgets(tool_calls=7, seconds=60)) == ()


# What is seldom met


def test_the_price_of_the_table_is_asked_for_all_that_a_request_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    def calc_price(usage: Any, model_ref: str) -> Any:
        asked.append((usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, model_ref))
        return SimpleNamespace(
            total_price=Decimal(usage.input_tokens + 2 * usage.output_tokens) / 1000,
            auto_update_timestamp=None,
            provider=SimpleNamespace(id="house"),
            model=SimpleNamespace(id="little-1"),
        )

    table = SimpleNamespace(__version__="9.9", Usage=SimpleNamespace, calc_price=calc_price)
    monkeypatch.setitem(sys.modules, "genai_prices", table)
    stage = Stage()
    theatre = Theatre(stage, hit(stage, Return("ok")), budgets=Budgets(cost=1))

    async def host(run: Run) -> float:
        reply = paid("a", 40, 3, "c1")
        reply["usage"]["prompt_tokens_details"] = {"cached_tokens": 30}
        await run.submit(reply)
        return run.budgets["cost"].settled

    assert theatre.enter(host) == 0.046
    assert asked[-1] == (40, 3, 30, "little")
    usage = theatre.kept(TurnSubmitted)[0].usage
    assert usage is not None
    assert usage.price.startswith("genai-prices 9.9, house/little-1, asked 20")


def test_a_request_that_cannot_be_written_down_leaves_nothing_set_aside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage()
    theatre = Theatre(stage, budgets=Budgets(count_tokens=len))

    async def host(run: Run) -> Any:
        async def broken(*_: Any) -> None:
            raise JournalError("the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(run._live.services.journal, "keep", broken)
            with pytest.raises(JournalError, match="the disk is full"):
                async with run.request(messages="x" * 10):
                    pass
        return standing(run)["tokens"]

    settled, reserved = theatre.enter(host)

    assert (settled, reserved) == (10, 0)


def test_what_is_set_aside_for_a_turn_that_is_not_taken_in_is_given_back() -> None:
    stage = Stage()
    theatre = Theatre(stage, hit(stage))

    async def host(run: Run) -> Any:
        scheduler = run._live
        reply = parse(paid("a", 20, 1, "c"))
        charge = Charge(account_of(scheduler), await admit(reply, 1, scheduler), reply)
        during = standing(run)
        charge.close(taken_in=False)
        after = standing(run)
        return [(one["model_turns"], one["tokens"]) for one in (during, after)]

    assert theatre.enter(host) == [((0, 1), (0, 21)), ((0, 0), (0, 0))]


def test_calls_that_are_cancelled_while_many_are_looked_at_are_not_queued() -> None:
    stage = Stage()
    theatre = Theatre(stage, hit(stage, Return("ok")), budgets=Budgets(tool_calls=5000))

    async def host(run: Run) -> Any:
        asyncio.get_running_loop().call_later(0, asyncio.ensure_future, run.cancel())
        turn = await run.submit(hits(2500))
        return turn, standing(run)["tool_calls"]

    turn, (settled, reserved) = theatre.enter(host)

    ended = list(states(turn).values())
    assert set(ended) <= {State.CANCELLED, State.SUCCEEDED}
    assert (settled, reserved) == (ended.count(State.SUCCEEDED), 0)


def test_leaving_while_many_are_looked_at_gives_back_what_was_set_aside() -> None:
    journal = MemoryJournal()
    stage = Stage()
    quick = hit(stage, Return("ok"))

    async def main() -> int:
        engine = Engine(
            [quick],
            journal=MemoryStore(journal),
            budgets=Budgets(tool_calls=5000),
            clock=stage.make_clock,
        )
        async with engine:
            async with engine.run("r") as run:
                submitting = asyncio.ensure_future(run.submit(hits(2500), wait=False))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            with suppress(Exception):
                await submitting
            async with engine.run("r") as run:
                await run.finish()
                return int(run.budgets["tool_calls"].reserved)

    assert run_virtual(main) == 0


def test_a_call_that_a_crash_left_queued_still_has_its_part_set_aside() -> None:
    stage = Stage()
    slow = stage.tool("slow", Sleep(9), schema=ANY, claims=["lane:one"])
    theatre = Theatre(stage, slow, budgets=Budgets(tool_calls=2))

    async def dies(run: Run) -> None:
        await run.submit(plan(call("a", "slow"), call("b", "slow")), wait=False)
        theatre.crash()

    async def host(run: Run) -> Any:
        before = standing(run)["tool_calls"]
        turn = await run.finish()
        assert turn is not None
        return before, states(turn), standing(run)["tool_calls"]

    theatre.enter(dies)
    before, ended, after = theatre.enter(host)

    assert before == (1, 1)
    assert ended == {"a": State.SUCCEEDED, "b": State.SUCCEEDED}
    assert after == (2, 0)


def test_a_request_that_a_crash_left_open_below_counts_in_the_tree_with_its_input() -> None:
    stage = Stage()
    journal = MemoryJournal()
    engines: list[Engine] = []
    left: list[MemoryJournal] = []

    @tool(effect=Effect.READ, claims=[])
    async def agent() -> str:
        async with engines[-1].run("child") as run, run.request(messages="x" * 70):
            kept = MemoryJournal()
            kept.facts = {name: list(rows) for name, rows in journal.facts.items()}
            left.append(kept)
        return "done"

    async def entered(on: MemoryJournal, *replies: Any) -> Any:
        budgets = Budgets(tree=Budget(tokens=5000, cost=1), count_tokens=len, prices=prices)
        engine = Engine([agent], journal=MemoryStore(on), budgets=budgets, clock=stage.make_clock)
        engines.append(engine)
        async with engine, engine.run("r") as run:
            for reply in replies:
                await run.submit(reply)
            return standing(run)["tree:tokens"]

    prices = {"": Price(input=1, output=1)}
    ended = run_virtual(lambda: entered(journal, plan(call("a", "agent"))))

    assert ended == (70, 0)
    assert run_virtual(lambda: entered(left[0])) == (70, 0)
    assert run_virtual(lambda: entered(journal)) == (70, 0)
