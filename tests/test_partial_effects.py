"""A part of the work was done: told, never repeated by itself, and undone once if asked for."""

import asyncio
import math
from typing import Any

import pytest

from laneway import (
    Code,
    Done,
    Effect,
    Engine,
    Failure,
    Happened,
    Limits,
    PartialEffect,
    State,
    StopReason,
    Success,
    ToolContext,
    ToolFailed,
    tool,
)
from laneway.engine.run import Run
from laneway.errors import ToolError
from laneway.facts import CompensationEnded, CompensationStarted, RunAbandoned
from laneway.ids import RunId
from laneway.journal.fold import fold
from laneway.testing.clock import VirtualClock
from laneway.testing.scripted import Log, Return, Sleep, Stage
from laneway.testing.theatre import Theatre


def plan(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"calls": list(calls)}


def failure(outcome: object) -> Failure:
    assert isinstance(outcome, Failure)
    return outcome


def facts_of(theatre: Theatre, kind: type[Any]) -> list[Any]:
    return [row.fact for row in theatre.journal.facts[RunId("r")] if isinstance(row.fact, kind)]


def test_a_partial_effect_says_what_was_done_and_what_not_and_is_not_repeated() -> None:
    entered: list[int] = []

    @tool(effect=Effect.EXTERNAL, idempotent=True, retries=3)
    async def send() -> None:
        entered.append(1)
        raise PartialEffect("the server hung up", done=["mail to ann"], left=["mail to bob"])

    turn = Theatre(Stage(), send).play(plan({"id": "s", "tool": "send"}))

    told = failure(turn.outcomes["s"])
    assert entered == [1]
    assert turn.calls[0].state is State.FAILED
    assert (told.code, told.happened, told.retry) == (
        Code.PARTIAL_EFFECT,
        Happened.PARTLY,
        False,
    )
    assert told.message == ("send: the server hung up. Done: mail to ann. Not done: mail to bob.")
    assert (told.done, told.left) == (("mail to ann",), ("mail to bob",))
    assert "Do not ask for the same again" in told.hint


def test_a_partial_effect_without_lists_says_only_what_was_met() -> None:
    @tool(effect=Effect.EXTERNAL)
    async def send() -> None:
        raise PartialEffect("half of it is done.", hint="ask ann")

    turn = Theatre(Stage(), send).play(plan({"id": "s", "tool": "send"}))

    told = failure(turn.outcomes["s"])
    assert (told.message, told.hint) == ("send: half of it is done.", "ask ann")


@pytest.mark.parametrize(
    ("error", "happened"),
    [
        (PartialEffect("stopped", done=["a"], left=["b"]), Happened.PARTLY),
        (ToolFailed("stopped in time", happened=Happened.NOTHING), Happened.NOTHING),
        (ValueError("what"), Happened.UNKNOWN),
    ],
)
def test_a_body_that_is_told_to_stop_may_say_what_it_had_done(
    error: Exception, happened: Happened
) -> None:
    @tool(effect=Effect.WRITE, timeout=1)
    async def work() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise error from None

    turn = Theatre(Stage(), work).play(plan({"id": "w", "tool": "work"}))

    told = failure(turn.outcomes["w"])
    assert turn.calls[0].state is State.TIMED_OUT
    assert told.happened is happened
    assert ("stopped" in told.message) is (happened is not Happened.UNKNOWN)


class Shop:
    """Orders and mails, and what undid them."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.keys: list[str] = []
        self.fail = ""
        order = tool(self.order, claims=["lane:shop"], compensate=self.cancel, effect=Effect.WRITE)
        pay = tool(self.pay, effect=Effect.EXTERNAL, compensate=self.refund)
        mail = tool(self.mail, effect=Effect.EXTERNAL)
        look = tool(self.look, effect=Effect.READ)
        self.tools = (order, pay, mail, look)

    async def order(self, item: str) -> dict[str, str]:
        """Order."""
        self.log.append(f"order {item}")
        return {"id": f"o-{item}"}

    async def pay(self, order: str) -> str:
        """Pay."""
        self.log.append(f"pay {order}")
        if self.fail == "pay":
            raise PartialEffect("half was paid", done=["50"], left=["50"])
        return f"p-{order}"

    async def mail(self) -> str:
        """Mail."""
        return "sent"

    async def look(self) -> str:
        """Look."""
        return "seen"

    async def cancel(self, done: Done) -> str:
        """Undo an order."""
        assert isinstance(done.outcome, Success)
        self.log.append(f"cancel {done.outcome.value['id']} of {done.arguments['item']}")
        self.keys.append(done.undo_key)
        assert done.undo_key != done.idempotency_key
        if self.fail == "cancel":
            raise RuntimeError("the shop is closed")
        return "cancelled"

    def refund(self, done: Done) -> None:
        """Undo a payment, in a thread."""
        what = done.outcome.done if isinstance(done.outcome, Failure) else done.outcome.value
        self.log.append(f"refund {what} for {done.arguments['order']}")


WORK = plan(
    {"id": "a", "tool": "order", "arguments": {"item": "x"}},
    {"id": "b", "tool": "pay", "arguments": {"order": "${a.id}"}},
    {"id": "m", "tool": "mail", "needs": ["b"]},
    {"id": "l", "tool": "look"},
)


def test_what_was_done_is_undone_in_reverse_order_when_the_host_asks_for_it() -> None:
    shop = Shop()
    theatre = Theatre(Stage(), *shop.tools)

    async def host(run: Run) -> Any:
        await run.submit(WORK)
        found = await run.abandon(compensate=True, reason="the customer left", by="ann")
        return found, run.stop_reason, run.history()[-1]

    found, stopped, last = theatre.enter(host)

    assert shop.log == ["order x", "pay o-x", "refund p-o-x for o-x", "cancel o-x of x"]
    assert found.undone == ("t1.2", "t1.1")
    assert found.kept == ("t1.3",)
    assert (found.failed, found.unknown) == ((), ())
    assert stopped is StopReason.CANCELLED
    assert "[Note on the call a of order: it has been undone]" in str(last)
    assert [one.by for one in facts_of(theatre, RunAbandoned)] == ["ann"]


def test_asked_again_nothing_is_undone_twice_in_this_process_or_in_the_next() -> None:
    shop = Shop()
    theatre = Theatre(Stage(), *shop.tools)

    async def host(run: Run) -> Any:
        if not run.turns:
            await run.submit(WORK)
        await run.abandon(compensate=True)
        return await run.abandon(compensate=True)

    first, second = theatre.enter(host), theatre.enter(host)

    assert first == second
    assert shop.log.count("cancel o-x of x") == 1
    assert len(facts_of(theatre, RunAbandoned)) == 1
    assert len(facts_of(theatre, CompensationStarted)) == 2


def test_without_being_asked_for_nothing_is_undone() -> None:
    shop = Shop()

    async def host(run: Run) -> Any:
        await run.submit(WORK)
        return await run.abandon()

    found = Theatre(Stage(), *shop.tools).enter(host)

    assert (found.undone, found.kept) == ((), ())
    assert shop.log == ["order x", "pay o-x"]


def test_a_part_of_the_work_is_undone_with_what_the_tool_said_of_it() -> None:
    shop = Shop()
    shop.fail = "pay"

    async def host(run: Run) -> Any:
        await run.submit(WORK)
        return await run.abandon(compensate=True)

    found = Theatre(Stage(), *shop.tools).enter(host)

    assert shop.log[-2:] == ["refund ('50',) for o-x", "cancel o-x of x"]
    assert found.kept == ()


def test_a_compensation_that_fails_keeps_no_other_from_being_entered() -> None:
    shop = Shop()
    shop.fail = "cancel"
    theatre = Theatre(Stage(), *shop.tools)

    async def host(run: Run) -> Any:
        await run.submit(
            plan(
                *WORK["calls"],
                {"id": "z", "tool": "pay", "arguments": {"order": "z"}, "after": ["l"]},
            )
        )
        return await run.abandon(compensate=True)

    found = theatre.enter(host)

    assert found.failed == ("t1.1",)
    assert set(found.undone) == {"t1.2", "t1.5"}
    (ended,) = [
        one for one in facts_of(theatre, CompensationEnded) if isinstance(one.outcome, Failure)
    ]
    assert "RuntimeError: the shop is closed" in failure(ended.outcome).message


def test_what_runs_is_stopped_first_and_what_nobody_knows_of_is_left_to_a_human() -> None:
    undone: list[Done] = []
    stage = Stage()
    slow = stage.tool("slow", Sleep(60), effect=Effect.WRITE, compensate=undone.append)

    async def host(run: Run) -> Any:
        await run.submit(plan({"id": "s", "tool": "slow"}), wait=False)
        await asyncio.sleep(1)
        return await run.abandon(compensate=True)

    found = Theatre(stage, slow).enter(host)

    assert found.unknown == ("t1.1",)
    assert undone == []


def test_what_was_found_out_afterwards_counts() -> None:
    undone: list[Done] = []
    stage = Stage()
    slow = stage.tool("slow", Sleep(60), effect=Effect.WRITE, timeout=1, compensate=undone.append)

    async def host(run: Run) -> Any:
        await run.submit(plan({"id": "s", "tool": "slow"}))
        await run.settle("s", value={"id": 7}, by="ann")
        return await run.abandon(compensate=True)

    found = Theatre(stage, slow).enter(host)

    assert found.undone == ("t1.1",)
    assert undone[0].outcome == Success(value={"id": 7})


def test_a_compensation_that_a_crash_cut_off_is_not_entered_again() -> None:
    stage, entered = Stage(), [0]

    async def undo(done: Done) -> None:
        entered[0] += 1
        await asyncio.sleep(5)

    work = stage.tool("work", Return("ok"), effect=Effect.WRITE, compensate=undo)
    theatre = Theatre(stage, work)

    async def dies(run: Run) -> None:
        await run.submit(plan({"id": "w", "tool": "work"}))
        undoing = asyncio.ensure_future(run.abandon(compensate=True))
        await asyncio.sleep(1)
        theatre.crash()
        await undoing

    async def goes_on(run: Run) -> Any:
        return await run.abandon(compensate=True), await run.abandon(compensate=True)

    theatre.enter(dies)
    first, again = theatre.enter(goes_on)

    assert entered == [1]
    assert first.unknown == again.unknown == ("t1.1",)


def test_a_crash_before_a_compensation_is_begun_loses_nothing() -> None:
    shop = Shop()
    theatre = Theatre(Stage(), *shop.tools)

    async def dies(run: Run) -> None:
        await run.submit(WORK)
        theatre.crash()

    theatre.enter(dies)

    async def goes_on(run: Run) -> Any:
        await run.finish()
        return await run.abandon(compensate=True)

    assert theatre.enter(goes_on).undone == ("t1.2", "t1.1")


def test_a_compensation_has_a_time_limit_and_a_cancel_waits_for_it() -> None:
    stage = Stage()

    async def undo(done: Done) -> None:
        await asyncio.sleep(1000)

    work = stage.tool("work", Return("ok"), effect=Effect.WRITE, compensate=undo)
    theatre = Theatre(stage, work, limits=Limits(call_seconds=5))

    async def host(run: Run) -> None:
        await run.submit(plan({"id": "w", "tool": "work"}))
        undoing = asyncio.ensure_future(run.abandon(compensate=True))
        await asyncio.sleep(1)
        undoing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await undoing

    theatre.enter(host)

    (ended,) = facts_of(theatre, CompensationEnded)
    assert "did not end within its limit of 5 s" in failure(ended.outcome).message


@pytest.mark.parametrize("seconds", [1, math.inf])
def test_a_compensation_in_a_thread_may_raise_or_give_back_what_is_awaited(seconds: float) -> None:
    stage = Stage()

    async def later() -> str:
        return "later"

    def awaited(done: Done) -> Any:
        return later()

    def raising(done: Done) -> None:
        raise SystemExit(3)

    one = stage.tool("one", Return("ok"), effect=Effect.WRITE, compensate=awaited)
    two = stage.tool("two", Return("ok"), effect=Effect.WRITE, compensate=raising)
    theatre = Theatre(stage, one, two, limits=Limits(call_seconds=seconds))

    async def host(run: Run) -> Any:
        await run.submit(plan({"id": "a", "tool": "one"}, {"id": "b", "tool": "two"}))
        return await run.abandon(compensate=True)

    found = theatre.enter(host)

    assert (found.undone, found.failed) == (("t1.1",), ("t1.2",))


def test_a_compensation_that_does_not_end_in_its_thread_is_counted_as_stuck() -> None:
    clock: list[VirtualClock] = []
    stage = Stage()

    def undo(done: Done) -> None:
        clock[0].block(10)

    work = stage.tool("work", Return("ok"), effect=Effect.WRITE, compensate=undo)

    async def host(run: Run) -> Any:
        clock.append(VirtualClock())
        await run.submit(plan({"id": "a", "tool": "work"}))
        found = await run.abandon(compensate=True)
        stuck = run._engine.status().stuck_threads
        await asyncio.sleep(20)
        return found, stuck, run._engine.status().stuck_threads

    found, stuck, later = Theatre(stage, work, limits=Limits(call_seconds=2)).enter(host)

    assert found.failed == ("t1.1",)
    assert (stuck, later) == (1, 0)


def test_a_compensation_is_told_the_arguments_that_a_human_made_and_the_secrets_of_a_result() -> (
    None
):
    seen: list[Done] = []

    @tool(effect=Effect.WRITE, approval=True, compensate=seen.append, secret=["return.token"])
    async def login(user: str) -> dict[str, str]:
        return {"token": f"very-secret-{user}"}

    async def host(run: Run) -> Any:
        turn = await run.submit(
            plan({"id": "a", "tool": "login", "arguments": {"user": "ann"}}), wait=False
        )
        await run.approve("a", arguments={"user": "bob"})
        await turn.wait()
        return await run.abandon(compensate=True)

    found = Theatre(Stage(), login).enter(host)

    assert found.undone == ("t1.1",)
    assert seen[0].arguments == {"user": "bob"}
    assert seen[0].outcome == Success(value={"token": "very-secret-bob"})


def test_a_lane_that_is_widened_lets_a_compensation_in() -> None:
    stage, shop = Stage(), Shop()
    other = stage.tool("other", Sleep(50), effect=Effect.WRITE, claims=["lane:shop"])
    theatre = Theatre(stage, other, *shop.tools, limits=Limits(call_seconds=100))

    async def host(run: Run) -> Any:
        await run.submit(plan({"id": "a", "tool": "order", "arguments": {"item": "x"}}))
        async with run._engine.run("second") as second:
            turn = await second.submit(plan({"id": "o", "tool": "other"}), wait=False)
            undoing = asyncio.ensure_future(run.abandon(compensate=True))
            await asyncio.sleep(1)
            run._engine.lanes.resize("shop", 2)
            found = await undoing
            assert not turn.ready
            await second.cancel()
            return found

    assert theatre.enter(host).undone == ("t1.1",)


def test_a_compensation_holds_what_its_call_held() -> None:
    shop, order = Shop(), list[str]()

    @tool(effect=Effect.WRITE, claims=["lane:shop"])
    async def other() -> None:
        await asyncio.sleep(5)
        order.append("other")

    async def cancel(done: Done) -> None:
        order.append("undone")

    first = tool(shop.order, claims=["lane:shop"], effect=Effect.WRITE, compensate=cancel)
    theatre = Theatre(Stage(), first, other)

    async def host(run: Run) -> Any:
        await run.submit(plan({"id": "a", "tool": "order", "arguments": {"item": "x"}}))
        async with run._engine.run("second") as second:
            turn = await second.submit(plan({"id": "o", "tool": "other"}), wait=False)
            found = await run.abandon(compensate=True)
            await turn.wait()
            held = {one.resource for one in run._engine.status().lanes if one.holders}
            assert "lane:shop" not in held
            return found

    found = theatre.enter(host)

    assert order == ["other", "undone"]
    assert found.undone == ("t1.1",)


def test_calls_within_a_call_are_undone_in_its_place() -> None:
    shop = Shop()

    @tool(effect=Effect.WRITE, claims=[])
    async def outer(context: ToolContext) -> str:
        await context.invoke("order", item="x")
        await context.invoke("order", item="y")
        return "both"

    async def host(run: Run) -> Any:
        await run.submit(plan({"id": "o", "tool": "outer"}))
        return await run.abandon(compensate=True)

    found = Theatre(Stage(), outer, *shop.tools).enter(host)

    assert shop.log[-2:] == ["cancel o-y of y", "cancel o-x of x"]
    assert found.undone == ("r/t1.1/2/t1.1", "r/t1.1/1/t1.1")
    assert found.kept == ("t1.1",)


def test_the_views_of_a_resumed_run_tell_the_same() -> None:
    shop = Shop()
    theatre = Theatre(Stage(), *shop.tools)

    async def host(run: Run) -> Any:
        await run.submit(WORK)
        await run.abandon(compensate=True)
        return [(call.compensating, call.compensated) for call in run.view.calls.values()]

    live = theatre.enter(host)

    view = fold(RunId("r"), theatre.journal.facts[RunId("r")])
    assert [(call.compensating, call.compensated) for call in view.calls.values()] == live
    assert view.abandoned is not None


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"effect": Effect.READ, "compensate": print}, "there is nothing to undo"),
        ({"effect": Effect.WRITE, "compensate": 5}, "compensate=5 is no function"),
        ({"effect": Effect.WRITE, "compensate": lambda: None}, "a function of one argument"),
    ],
)
def test_a_compensation_is_checked_where_the_tool_is_made(said: Any, told: str) -> None:
    with pytest.raises(ToolError, match=told):
        tool(lambda: None, name="t", **said)


def test_an_answer_after_a_run_was_given_up_is_refused() -> None:
    stage = Stage()
    work = stage.tool("work", Log("w"), effect=Effect.WRITE)

    async def main() -> Any:
        async with Engine([work]) as engine, engine.run("r") as run:
            await run.abandon(compensate=True)
            turn = await run.submit(plan({"id": "w", "tool": "work"}))
            return turn.calls[0].state

    assert asyncio.run(main()) is State.DENIED
    assert stage.log == []
