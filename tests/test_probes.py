"""Probes: what became of a call whose end nobody saw is asked for, and what follows is right."""

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest

from laneway import Effect, Failure, Happened, State, ToolContext, plan_tool, tool
from laneway.engine.probing import Found
from laneway.engine.run import Run
from laneway.engine.services import Limits
from laneway.engine.turn import Turn
from laneway.errors import EngineFaultError, ToolError
from laneway.facts import (
    CallEnded,
    CallProbed,
    CallQueued,
    CallReopened,
    CallSettled,
    CallStarted,
)
from laneway.outcomes import Code
from laneway.policies.rules import Decision, Policy, Rule
from laneway.testing import Log, Raise, Return, Sleep, Stage
from laneway.testing.scripted import Do
from laneway.testing.theatre import RUN, Theatre, failure, plan, states, values

LOST = ConnectionError("reply lost")


def call(id_: str, tool_: str, n: int = 1, **more: Any) -> dict[str, Any]:
    return {"id": id_, "tool": tool_, "arguments": {"n": n}, **more}


def paying(stage: Stage, probe: Any, *steps: Any, **more: Any) -> Any:
    """A tool that pays, and whose first reply is lost if nothing else is said."""
    more.setdefault("schema", {"type": "object", "properties": {"n": {"type": "integer"}}})
    steps = steps or (Log("pay {n}"), Do(lambda _: lose_once(stage)), Return("paid"))
    return stage.tool("pay", *steps, effect=Effect.EXTERNAL, reconcile=probe, **more)


def lose_once(stage: Stage) -> None:
    if stage.entered["pay"] == 1:
        raise LOST


def saying(*answers: Any) -> Callable[[ToolContext], Any]:
    """A probe that gives one answer after the other, the last for ever."""
    left = list(answers)

    async def probe(context: ToolContext) -> Any:
        assert context.tool == "pay"
        return left.pop(0) if len(left) > 1 else left[0]

    return probe


def crashed(theatre: Theatre, reply: Any, after_seconds: float = 0.5, **options: Any) -> None:
    """Play until some time has passed, then let the process be dead."""

    async def host(run: Run) -> None:
        await run.submit(reply, wait=False)
        await asyncio.sleep(after_seconds)
        theatre.crash()

    theatre.enter(host, **options)


def kinds(theatre: Theatre, call_id: str = "t1.1") -> list[str]:
    return [type(fact).__name__ for fact in theatre.facts if getattr(fact, "call", None) == call_id]


# What is found


def test_what_a_probe_finds_after_a_crash_is_the_outcome_and_its_dependents_go_on() -> None:
    stage = Stage()
    probe = saying(Found.happened({"receipt": 7}))
    theatre = Theatre(
        stage,
        paying(stage, probe, Log("pay {n}"), Sleep(9), Return("paid")),
        stage.tool("tell", Log("tell {n}"), Return("told")),
    )
    crashed(theatre, plan(call("p", "pay"), call("t", "tell", needs=["p"])))

    turn = theatre.finish()

    assert states(turn) == {"p": State.SUCCEEDED, "t": State.SUCCEEDED}
    assert values(turn)["p"] == {"receipt": 7}
    assert stage.log == ["pay 1", "tell 1"]
    assert theatre.kept(CallProbed) == [CallProbed(call=turn.calls[0].id, found="happened")]
    (settled,) = theatre.kept(CallSettled)
    assert settled.by == "probe of pay"
    assert kinds(theatre) == [
        "CallQueued",
        "CallStarted",
        "CallEnded",
        "CallProbed",
        "CallSettled",
    ]


def test_what_did_not_happen_runs_again_judged_and_queued_once_more() -> None:
    stage = Stage()
    theatre = Theatre(
        stage,
        paying(stage, saying(Found.nothing()), Log("pay {n}"), Sleep(1), Return("paid")),
        stage.tool("tell", Log("tell {n}"), Return("told")),
    )
    crashed(theatre, plan(call("p", "pay"), call("t", "tell", needs=["p"])))

    turn = theatre.finish()

    assert values(turn) == {"p": "paid", "t": "told"}
    assert turn.calls[0].attempt == 2
    assert stage.log == ["pay 1", "pay 1", "tell 1"]
    assert kinds(theatre) == [
        "CallQueued",
        "CallStarted",
        "CallEnded",
        "CallProbed",
        "CallReopened",
        "CallQueued",
        "CallStarted",
        "CallEnded",
    ]
    first, second = (one for one in theatre.kept(CallStarted) if one.call == "t1.1")
    assert second.token > first.token


def test_a_policy_that_has_changed_judges_what_is_to_run_again() -> None:
    stage = Stage()
    theatre = Theatre(
        stage, paying(stage, saying(Found.nothing()), Log("pay {n}"), Sleep(1), Return("paid"))
    )
    crashed(theatre, plan(call("p", "pay")))

    turn = theatre.finish(policy=Policy([Rule(Decision.DENY, tools=["pay"])]))

    assert states(turn) == {"p": State.DENIED}
    assert failure(turn, "p").happened is Happened.NOTHING, "the probe has said so"
    assert stage.log == ["pay 1"]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Found.unknown("the bank is closed"), "the bank is closed"),
        (Found.unknown(), ""),
        (True, "the probe answered with bool, not with Found.happened(value), Found.nothing()"),
        (None, "the probe answered with NoneType"),
        (Found("maybe"), "the probe answered with laneway.engine.probing.Found"),  # type: ignore[arg-type]
    ],
)
def test_what_nobody_can_tell_stays_uncertain_with_what_the_probe_said(
    answer: Any, told: str
) -> None:
    stage = Stage()
    theatre = Theatre(
        stage,
        paying(stage, saying(answer), Log("pay {n}"), Sleep(9)),
        stage.tool("tell", Log("tell {n}")),
    )
    crashed(theatre, plan(call("p", "pay"), call("t", "tell", needs=["p"])))

    turn = theatre.finish()

    assert states(turn) == {"p": State.UNCERTAIN, "t": State.SKIPPED}
    assert stage.log == ["pay 1"]
    (probed,) = theatre.kept(CallProbed)
    assert probed.found == "unknown"
    assert told in probed.detail
    assert bool(probed.detail) is bool(told)


def test_a_probe_that_raises_is_recorded_and_harms_nothing() -> None:
    stage = Stage()

    def probe(context: ToolContext) -> Found:
        raise SystemExit(f"no bank for {context.call}")

    theatre = Theatre(stage, paying(stage, probe, Sleep(9)))
    crashed(theatre, plan(call("p", "pay")))

    turn = theatre.finish()

    assert states(turn) == {"p": State.UNCERTAIN}
    assert theatre.kept(CallProbed)[0].detail == "the probe raised SystemExit: no bank for t1.1"


async def deaf(context: ToolContext) -> Found:
    """Does not hear that it is to stop, the first time."""
    del context
    try:
        await asyncio.sleep(1e9)
    except asyncio.CancelledError:
        await asyncio.sleep(1e9)
    raise AssertionError


async def endless(context: ToolContext) -> Found:
    del context
    await asyncio.sleep(1e9)
    raise AssertionError


@pytest.mark.parametrize("probe", [deaf, endless])
def test_a_probe_that_does_not_answer_is_given_up_at_its_limit(probe: Any) -> None:
    stage = Stage()
    theatre = Theatre(stage, paying(stage, probe, Sleep(9)), limits=Limits(probe_seconds=5))
    crashed(theatre, plan(call("p", "pay")))

    async def host(run: Run) -> float:
        began = asyncio.get_running_loop().time()
        await run.finish()
        return asyncio.get_running_loop().time() - began

    assert theatre.enter(host) == 5
    (probed,) = theatre.kept(CallProbed)
    assert probed.detail == "the probe did not answer within its limit of 5 s"


def test_a_synchronous_probe_runs_in_a_thread_and_is_stuck_there_until_it_returns() -> None:
    stage = Stage()

    def probe(context: ToolContext) -> Found:
        assert stage.clock is not None
        stage.clock.block(20)
        return Found.happened(context.call)

    theatre = Theatre(stage, paying(stage, probe, Sleep(9)), limits=Limits(probe_seconds=5))
    crashed(theatre, plan(call("p", "pay")))

    async def host(run: Run) -> list[int]:
        turn = await run.finish()
        assert turn is not None
        assert states(turn) == {"p": State.UNCERTAIN}
        stuck = [run._engine.status().stuck_threads]
        await asyncio.sleep(30)
        return [*stuck, run._engine.status().stuck_threads]

    assert theatre.enter(host) == [1, 0]
    assert theatre.kept(CallSettled) == [], "what it says too late is not heard"


def test_a_synchronous_probe_may_give_back_what_is_to_be_awaited() -> None:
    stage = Stage()
    theatre = Theatre(
        stage, paying(stage, lambda: saying(Found.happened(1))(CONTEXT), Sleep(9), Return(0))
    )
    crashed(theatre, plan(call("p", "pay")))

    assert values(theatre.finish()) == {"p": 1}


CONTEXT: Any = type("Context", (), {"tool": "pay"})


def test_a_result_that_cannot_be_stored_did_happen_all_the_same() -> None:
    stage = Stage()
    theatre = Theatre(stage, paying(stage, saying(Found.happened(object())), Sleep(9)))
    crashed(theatre, plan(call("p", "pay")))

    turn = theatre.finish()

    assert states(turn) == {"p": State.FAILED}
    assert failure(turn, "p").code is Code.RESULT_NOT_SERIALISABLE
    assert failure(turn, "p").happened is Happened.ALL


# What a probe is given


def test_a_probe_gets_the_key_that_the_body_had_and_the_arguments_that_it_asks_for() -> None:
    seen: dict[str, Any] = {}

    async def probe(amount: int, account: str, context: ToolContext) -> Found:
        seen["probe"] = (amount, account, context.idempotency_key, context.arguments)
        return Found.happened("found")

    @tool(effect=Effect.EXTERNAL, claims=[], bound=["account"], reconcile=probe)
    async def pay(amount: int, account: str, context: ToolContext, note: str = "none") -> str:
        seen["body"] = (amount, account, context.idempotency_key, context.arguments)
        await asyncio.sleep(9)
        return note

    stage = Stage()
    theatre = Theatre(stage, pay, stage.tool("price", Return(12)), bound={"account": "ours"})
    asked = {"id": "p", "tool": "pay", "arguments": {"amount": {"$from": "c"}}}
    crashed(theatre, plan({"id": "c", "tool": "price"}, asked))

    turn = theatre.finish()

    assert values(turn)["p"] == "found"
    assert seen["probe"] == seen["body"]
    assert seen["body"][0] == 12


def test_a_probe_may_take_whatever_its_tool_was_given() -> None:
    seen: dict[str, Any] = {}

    async def probe(**given: Any) -> Found:
        seen.update(given)
        return Found.nothing()

    stage = Stage()
    theatre = Theatre(stage, paying(stage, probe))

    turn = theatre.play(plan(call("p", "pay", 3)))

    assert values(turn) == {"p": "paid"}
    assert seen == {"n": 3}


def test_a_mistake_in_a_probe_is_found_when_the_tool_is_made() -> None:
    async def probe(receipt: str) -> Found:
        return Found.happened(receipt)

    async def pay(amount: int) -> int:
        return amount

    with pytest.raises(
        ToolError,
        match=r"tool 'pay': reconcile= asks for 'receipt', which is no argument of the tool "
        r"\(it has: amount\); annotate it as ToolContext",
    ):
        tool(pay, effect=Effect.EXTERNAL, reconcile=probe)
    with pytest.raises(ToolError, match="a read tool changes nothing, so a probe has nothing to"):
        tool(pay, effect=Effect.READ, reconcile=saying(Found.nothing()))
    with pytest.raises(ToolError, match=r"tool 'pay \(its reconcile\)': 5 is no function"):
        tool(pay, effect=Effect.EXTERNAL, reconcile=5)  # type: ignore[call-overload]


def test_a_tool_that_has_another_version_is_asked_by_the_recorded_arguments() -> None:
    seen: list[Any] = []

    async def probe(context: ToolContext) -> Found:
        seen.append(context.idempotency_key)
        return Found.happened("found")

    @tool(name="pay", effect=Effect.EXTERNAL, claims=[], reconcile=probe)
    async def before(amount: int, context: ToolContext) -> None:
        seen.append(context.idempotency_key)
        await asyncio.sleep(9)
        del amount

    @tool(name="pay", effect=Effect.EXTERNAL, claims=[], reconcile=probe)
    async def after(amount: int, currency: str = "EUR") -> str:
        return f"{amount} {currency}"

    @tool(name="pay", effect=Effect.EXTERNAL, claims=[], reconcile=probe)
    async def other(cents: int) -> int:
        return cents

    theatre = Theatre(Stage(), before)
    crashed(theatre, plan({"id": "p", "tool": "pay", "arguments": {"amount": 5}}))
    left = theatre.journal

    for now in (after, other):
        theatre.journal = left
        theatre.crash()
        theatre.tools = (now,)
        assert values(theatre.finish()) == {"p": "found"}

    assert len(set(seen)) == 1


def test_a_probe_is_not_asked_where_the_key_of_the_call_is_not_known_any_more() -> None:
    async def by_key(context: ToolContext) -> Found:
        raise AssertionError(context)

    async def by_amount(amount: int) -> Found:
        raise AssertionError(amount)

    stage = Stage()

    def paying_with(probe: Any, version: str, **kinds: Any) -> Any:
        return stage.tool(
            "pay",
            Sleep(9),
            effect=Effect.EXTERNAL,
            reconcile=probe,
            version=version,
            schema={"type": "object", "properties": {"amount": {"type": "integer"}, **kinds}},
        )

    price = stage.tool("price", Return(12))
    theatre = Theatre(stage, price, paying_with(by_key, "1"))
    given = {"amount": {"$from": "c"}}
    crashed(
        theatre, plan({"id": "c", "tool": "price"}, {"id": "p", "tool": "pay", "arguments": given})
    )
    theatre.tools = (price, paying_with(by_key, "2"))

    turn = theatre.finish()

    assert states(turn)["p"] is State.UNCERTAIN
    assert theatre.kept(CallProbed)[0].detail == (
        "the probe was not asked: pay has another version than the one that ran, so the "
        "idempotency key of the call is not known any more"
    )

    theatre = Theatre(stage, paying_with(by_amount, "1"))
    crashed(theatre, plan({"id": "p", "tool": "pay", "arguments": {"amount": 5}}))
    theatre.tools = (paying_with(by_amount, "1", amount={"type": "string"}),)

    assert states(theatre.finish()) == {"p": State.UNCERTAIN}
    assert theatre.kept(CallProbed)[0].detail.startswith("the probe was not asked: ")


# While it is found out


def test_whatever_waits_for_the_call_waits_for_its_probe_after_a_crash() -> None:
    stage = Stage()

    async def probe(context: ToolContext) -> Found:
        await asyncio.sleep(3)
        stage.note(f"probed {context.arguments['n']}")
        return Found.nothing()

    files = {"type": "object", "properties": {"n": {"type": "integer"}}}
    theatre = Theatre(
        stage,
        paying(stage, probe, Log("pay {n}"), Sleep(1), claims=["write file:/w/a"], schema=files),
        stage.tool("look", Log("look {n}"), claims=["read file:/w/a"], schema=files),
        stage.tool("tell", Log("tell {n}")),
        stage.tool("free", Log("free {n}")),
    )
    crashed(
        theatre,
        plan(
            call("p", "pay"),
            call("l", "look"),
            call("t", "tell", after=["p"]),
            call("f", "free"),
        ),
    )

    turn = theatre.finish()

    assert stage.log[:4] == ["pay 1", "free 1", "probed 1", "pay 1"]
    assert sorted(stage.log[4:]) == ["look 1", "tell 1"]
    assert set(states(turn).values()) == {State.SUCCEEDED}


@pytest.mark.parametrize("answer", [Found.unknown("closed"), Found.happened(1)])
def test_what_merely_comes_after_goes_on_when_the_probe_has_spoken(answer: Found) -> None:
    stage = Stage()
    theatre = Theatre(
        stage,
        paying(stage, saying(answer), Log("pay {n}"), Sleep(1)),
        stage.tool("tell", Log("tell {n}")),
    )
    crashed(theatre, plan(call("p", "pay"), call("t", "tell", after=["p"])))

    turn = theatre.finish()

    assert states(turn)["t"] is State.SUCCEEDED
    facts = [one for one in theatre.facts if isinstance(one, CallProbed | CallStarted)]
    assert [type(one).__name__ for one in facts] == ["CallStarted", "CallProbed", "CallStarted"]


def test_a_lost_reply_is_asked_for_at_once_and_its_successors_wait() -> None:
    stage = Stage()
    files = {"type": "object", "properties": {"n": {"type": "integer"}}}
    theatre = Theatre(
        stage,
        paying(stage, saying(Found.nothing()), claims=["write file:/w/a"], schema=files),
        stage.tool("look", Log("look {n}"), claims=["read file:/w/a"], schema=files),
        stage.tool("tell", Log("tell {n}")),
    )

    turn = theatre.play(
        plan(call("p", "pay"), call("l", "look"), call("t", "tell", needs=["p"], n=2))
    )

    assert set(states(turn).values()) == {State.SUCCEEDED}
    assert stage.log[:2] == ["pay 1", "pay 1"]
    assert sorted(stage.log[2:]) == ["look 1", "tell 2"]
    (probed,) = theatre.kept(CallProbed)
    assert probed.found == "did not happen"


def test_a_call_that_loses_its_reply_for_ever_is_run_twice_and_then_known_to_have_failed() -> None:
    stage = Stage()
    theatre = Theatre(stage, paying(stage, saying(Found.nothing()), Log("pay"), Raise(LOST)))

    turn = theatre.play(plan(call("p", "pay")))

    assert stage.log == ["pay", "pay"]
    assert states(turn) == {"p": State.FAILED}
    assert failure(turn, "p").happened is Happened.NOTHING
    assert "its probe says that it did not happen" in failure(turn, "p").message
    assert [one.found for one in theatre.kept(CallProbed)] == ["did not happen"] * 2
    assert len(theatre.kept(CallReopened)) == 1


def test_the_turn_waits_for_its_probes_and_no_more_are_asked_at_once_than_threads_may_be() -> None:
    stage = Stage()
    asked: list[int] = []

    async def probe(n: int) -> Found:
        asked.append(n)
        most.append(len(asked))
        await asyncio.sleep(1)
        asked.remove(n)
        return Found.happened(n)

    most: list[int] = []
    theatre = Theatre(
        stage,
        paying(stage, probe, Sleep(9)),
        limits=Limits(tool_threads=2),
    )
    crashed(theatre, plan(*(call(f"p{n}", "pay", n) for n in range(5))))

    async def host(run: Run) -> float:
        turn = run.open_turn
        assert turn is not None
        began = asyncio.get_running_loop().time()
        await turn.wait()
        assert values(turn) == {f"p{n}": n for n in range(5)}
        return asyncio.get_running_loop().time() - began

    assert theatre.enter(host) == 3
    assert max(most) == 2


# Cancelled, left, settled meanwhile


def slow_probe(stage: Stage) -> Any:
    async def probe(context: ToolContext) -> Found:
        await asyncio.sleep(3)
        stage.note(f"answered for {context.call}")
        return Found.nothing()

    return probe


@pytest.mark.parametrize("all_of_it", [True, False])
def test_what_is_cancelled_while_its_probe_is_asked_does_not_run_again(*, all_of_it: bool) -> None:
    stage = Stage()
    theatre = Theatre(
        stage,
        paying(stage, slow_probe(stage), Log("pay"), Sleep(9)),
        stage.tool("tell", Log("tell {n}")),
    )
    crashed(theatre, plan(call("p", "pay"), call("t", "tell", after=["p"])))

    async def host(run: Run) -> Turn | None:
        ending = asyncio.create_task(run.finish())
        await asyncio.sleep(1)
        await run.cancel(None if all_of_it else "p", reason="enough")
        return await ending

    turn = theatre.enter(host)

    assert turn is not None
    then = State.CANCELLED if all_of_it else State.SUCCEEDED
    assert states(turn) == {"p": State.UNCERTAIN, "t": then}
    assert "answered" not in "".join(stage.log)
    (probed,) = theatre.kept(CallProbed)
    assert (probed.found, "enough" in probed.detail) == ("unknown", True)


def test_a_run_that_is_left_while_a_probe_is_asked_asks_it_again_when_it_is_taken_up() -> None:
    stage = Stage()
    theatre = Theatre(
        stage,
        paying(stage, slow_probe(stage), Log("pay"), Sleep(2), Return("paid")),
        stage.tool("tell", Log("tell {n}")),
    )
    crashed(theatre, plan(call("p", "pay"), call("t", "tell", after=["p"])))

    async def left(run: Run) -> None:
        turn = run.open_turn
        assert turn is not None
        waiting = asyncio.ensure_future(turn.wait())
        await asyncio.sleep(1)
        waiting.add_done_callback(lambda done: done.exception())

    theatre.enter(left)
    assert theatre.kept(CallProbed) == []
    assert stage.log == ["pay"]

    turn = theatre.finish()

    assert states(turn) == {"p": State.SUCCEEDED, "t": State.SUCCEEDED}
    assert stage.log == ["pay", "answered for t1.1", "pay", "tell 1"]


@pytest.mark.parametrize("again", [True, False])
def test_a_human_may_be_faster_than_the_probe(*, again: bool) -> None:
    stage = Stage()
    theatre = Theatre(
        stage,
        paying(stage, slow_probe(stage), Log("pay"), Sleep(2), Return("paid")),
        stage.tool("tell", Log("tell {n}")),
    )
    crashed(theatre, plan(call("p", "pay"), call("t", "tell", needs=["p"])))

    async def host(run: Run) -> Turn | None:
        ending = asyncio.create_task(run.finish())
        await asyncio.sleep(1)
        if again:
            await run.settle("p", again=True, by="ann")
        else:
            await run.settle("p", value="by hand", by="ann")
        return await ending

    turn = theatre.enter(host)

    assert turn is not None
    assert values(turn) == {"p": "paid" if again else "by hand", "t": None}
    assert stage.log == ["pay", *(["pay"] if again else []), "tell 1"]
    assert theatre.kept(CallProbed) == []


# Twice


def test_resuming_twice_or_during_recovery_changes_nothing() -> None:
    """The journal is cut behind every fact, and the run taken up from there."""
    stage = Stage()
    answers = [Found.nothing(), Found.happened("found"), Found.unknown("closed")]

    async def probe(n: int) -> Found:
        probed.append(n)
        return answers[n]

    probed: list[int] = []
    theatre = Theatre(
        stage,
        paying(stage, probe, Log("pay {n}"), Do(lambda _: asyncio.sleep(1)), Return("paid")),
        stage.tool("tell", Log("tell {n}"), Return("told"), effect=Effect.EXTERNAL),
    )
    reply = plan(
        *(call(f"p{n}", "pay", n) for n in range(3)),
        *(call(f"t{n}", "tell", n, needs=[f"p{n}"]) for n in range(3)),
    )
    crashed(theatre, reply)
    before = len(theatre.facts)
    theatre.finish()
    whole = theatre.journal

    for end in range(before, len(whole.facts[RUN])):
        theatre.journal = whole
        theatre.crash()
        rows = theatre.journal.facts[RUN] = whole.facts[RUN][:end]
        settled = {row.fact.call for row in rows if isinstance(row.fact, CallSettled)}
        probed.clear()
        stage._log.clear()

        turn = theatre.finish()

        assert not {f"t1.{n + 1}" for n in probed} & settled, "what is settled is not asked again"
        state = states(turn)
        assert (state["p0"], state["p1"]) == (State.SUCCEEDED, State.SUCCEEDED)
        assert (state["p2"], state["t2"]) == (State.UNCERTAIN, State.SKIPPED)
        assert not {"pay 1", "pay 2"} & set(stage.log)
        assert stage.log.count("pay 0") <= 1
        kept = len(theatre.facts)
        with pytest.raises(LookupError, match="no open turn"):
            theatre.finish()
        assert len(theatre.facts) == kept + 1, "only who drives it now"


def test_a_probe_is_asked_again_if_the_crash_came_before_what_follows_from_its_answer() -> None:
    stage = Stage()
    probe = saying(Found.nothing(), Found.happened("found"))
    theatre = Theatre(stage, paying(stage, probe, Log("pay"), Sleep(1), Return("paid")))
    crashed(theatre, plan(call("p", "pay")))
    theatre.finish()
    (rows,) = theatre.journal.facts.values()
    at = next(at for at, row in enumerate(rows) if isinstance(row.fact, CallProbed))
    theatre.crash()
    (name,) = theatre.journal.facts
    theatre.journal.facts[name] = rows[: at + 1]

    turn = theatre.finish()

    assert values(turn) == {"p": "found"}
    assert [one.found for one in theatre.kept(CallProbed)] == ["did not happen", "happened"]


def test_a_call_that_was_let_go_before_never_runs_beside_the_one_that_runs_again() -> None:
    """Its successor was let go by a driver whose probe knew nothing; claims keep them apart."""
    stage = Stage()
    probe = saying(Found.unknown("closed"), Found.nothing())
    files = {"type": "object", "properties": {"n": {"type": "integer"}}}
    theatre = Theatre(
        stage,
        paying(stage, probe, Sleep(2), claims=["write file:/w/a"], schema=files),
        stage.tool(
            "edit",
            Sleep(2),
            claims=["write file:/w/a"],
            schema=files,
            effect=Effect.WRITE,
            idempotent=True,
        ),
    )
    crashed(theatre, plan(call("p", "pay"), call("e", "edit")))

    async def dies(run: Run) -> None:
        waiting = asyncio.ensure_future(run.finish())
        await asyncio.sleep(1)
        theatre.crash()
        await waiting

    theatre.enter(dies)
    turn = theatre.finish()

    assert set(states(turn).values()) == {State.SUCCEEDED}
    last = {one.tool: one for one in stage.executions}
    one, other = last["pay"], last["edit"]
    assert one.end is not None
    assert other.end is not None
    assert one.end <= other.start or other.end <= one.start


# In plans


def test_a_call_of_a_plan_runs_again_before_its_plan_tells_of_it() -> None:
    stage = Stage()
    theatre = Theatre(stage, plan_tool(), paying(stage, saying(Found.nothing())))

    turn = theatre.play(
        plan({"id": "all", "tool": "plan", "arguments": {"calls": [call("p", "pay")]}})
    )

    assert values(turn) == {"all": {"results": {"p": {"value": "paid"}}}}


def test_a_call_whose_plan_has_told_of_it_is_settled_in_a_note() -> None:
    stage = Stage()
    probe = saying(Found.unknown("closed"), Found.nothing())
    theatre = Theatre(
        stage,
        plan_tool(),
        paying(stage, probe),
        stage.tool("slow", Sleep(9), Return("s")),
    )
    asked = {"id": "all", "tool": "plan", "arguments": {"calls": [call("p", "pay")]}}
    crashed(theatre, plan(asked, {"id": "s", "tool": "slow"}))

    turn = theatre.finish()

    inner = turn.call("all/p")
    assert inner.state is State.FAILED
    assert stage.entered["pay"] == 1
    assert isinstance(inner.outcome, Failure)

    async def history(run: Run) -> list[dict[str, Any]]:
        return run.history()

    assert "its probe says that it did not happen" in str(theatre.enter(history))


def test_what_is_queued_again_is_a_fact_before_its_body() -> None:
    stage = Stage()
    theatre = Theatre(stage, paying(stage, saying(Found.nothing())))

    theatre.play(plan(call("p", "pay")))

    assert len(theatre.kept(CallQueued)) == len(theatre.kept(CallStarted)) == 2
    assert [one.attempt for one in theatre.kept(CallStarted)] == [1, 2]


# Of no consequence, or of all


def test_without_a_probe_a_crash_leaves_a_payment_uncertain_and_repeats_nothing() -> None:
    """Case h-crash-1."""
    stage = Stage()
    theatre = Theatre(
        stage,
        stage.tool("read", Log("read {n}"), Sleep(0.5), Return("r")),
        stage.tool("pay", Log("pay {n}"), Sleep(0.5), Return("paid"), effect=Effect.EXTERNAL),
        stage.tool("quick", Log("quick {n}"), Return("q"), effect=Effect.EXTERNAL),
    )
    crashed(
        theatre,
        plan(
            call("q", "quick"),
            call("r", "read"),
            call("p", "pay"),
            call("z", "quick", 2, needs=["p"]),
        ),
        0.2,
    )

    turn = theatre.finish()
    kept = len(theatre.facts)

    assert states(turn) == {
        "q": State.SUCCEEDED,
        "r": State.SUCCEEDED,
        "p": State.UNCERTAIN,
        "z": State.SKIPPED,
    }
    assert failure(turn, "p").code is Code.OUTCOME_UNKNOWN
    assert failure(turn, "z").code is Code.DEPENDENCY_FAILED
    assert sorted(stage.log) == ["pay 1", "quick 1", "read 1", "read 1"]
    with pytest.raises(LookupError):
        theatre.finish()
    assert len(theatre.facts) == kept + 1


def test_an_interrupt_out_of_a_probe_ends_the_run_and_is_let_out() -> None:
    stage = Stage()

    def probe(context: ToolContext) -> Found:
        raise KeyboardInterrupt

    theatre = Theatre(stage, paying(stage, probe, Sleep(9)), stage.tool("slow", Sleep(99)))
    crashed(theatre, plan(call("p", "pay"), call("s", "slow")))

    with pytest.raises(KeyboardInterrupt):
        theatre.finish()

    assert theatre.kept(CallProbed)[0].detail == "the probe raised KeyboardInterrupt"
    ended = {one.call: one.state for one in theatre.kept(CallEnded)}
    assert set(ended.values()) == {State.UNCERTAIN, State.CANCELLED}


def test_a_probe_without_a_limit_may_take_as_long_as_it_likes() -> None:
    stage = Stage()

    async def probe() -> Found:
        await asyncio.sleep(100_000)
        return Found.happened("late")

    theatre = Theatre(stage, paying(stage, probe, Sleep(9)), limits=Limits(probe_seconds=math.inf))
    crashed(theatre, plan(call("p", "pay")))

    assert values(theatre.finish()) == {"p": "late"}


def test_a_call_is_settled_while_its_probe_waits_for_its_place() -> None:
    stage = Stage()
    asked: list[int] = []

    async def probe(n: int) -> Found:
        asked.append(n)
        await asyncio.sleep(3)
        return Found.happened("found")

    theatre = Theatre(stage, paying(stage, probe, Sleep(9)), limits=Limits(tool_threads=1))
    crashed(theatre, plan(*(call(f"p{n}", "pay", n) for n in range(3))))

    async def host(run: Run) -> Turn | None:
        ending = asyncio.create_task(run.finish())
        await asyncio.sleep(1)
        await run.settle("p1", value="by hand")
        return await ending

    turn = theatre.enter(host)

    assert turn is not None
    assert values(turn) == {"p0": "found", "p1": "by hand", "p2": "found"}
    assert len(asked) == 2


def test_a_task_that_somebody_else_cancels_has_found_out_nothing() -> None:
    stage = Stage()
    theatre = Theatre(stage, paying(stage, endless, Sleep(9)))
    crashed(theatre, plan(call("p", "pay")))

    async def host(run: Run) -> Turn | None:
        ending = asyncio.create_task(run.finish())
        await asyncio.sleep(1)
        for task in asyncio.all_tasks():
            if "_Asked" in repr(task):
                task.cancel()
        return await ending

    turn = theatre.enter(host)

    assert turn is not None
    assert states(turn) == {"p": State.UNCERTAIN}
    assert theatre.kept(CallProbed)[0].detail == "the probe raised CancelledError"


def test_a_journal_that_breaks_while_a_probe_is_asked_ends_the_wait() -> None:
    stage = Stage()
    theatre = Theatre(stage, paying(stage, endless, Sleep(9)))
    crashed(theatre, plan(call("p", "pay")))

    async def host(run: Run) -> None:
        ending = asyncio.create_task(run.finish())
        await asyncio.sleep(1)
        run._entered.failed(RuntimeError("broken"))
        with pytest.raises(EngineFaultError, match="broken"):
            await ending

    theatre.enter(host)

    assert theatre.kept(CallProbed) == []
