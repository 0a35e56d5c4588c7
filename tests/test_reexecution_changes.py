"""Re-execution: a changed policy, tool or lane shows exactly the decision that differs."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from laneway import (
    Decision,
    Effect,
    Engine,
    Lane,
    Limits,
    Policy,
    Rate,
    Rule,
    Run,
    Tool,
    ToolContext,
)
from laneway.engine.reexecution import Divergence, Reexecution, reexecute
from laneway.engine.reexecution.rules import rule_name, verdict_of
from laneway.errors import PolicyError, UsageError
from laneway.facts import (
    ApprovalAsked,
    CallEnded,
    CallJoined,
    CallReopened,
    CallStarted,
    LaneChanged,
    Row,
    TurnClosed,
    TurnSubmitted,
)
from laneway.ids import CallId, RunId
from laneway.journal.memory import MemoryJournal, MemoryStore
from laneway.outcomes import Code, Failure
from laneway.policies.questions import Question, Verdict
from laneway.testing import run_virtual
from laneway.testing.scripted import Block, Do, Return, Sleep, Stage
from laneway.testing.theatre import RUN, Theatre, plan

ANY = {"type": "object"}


def again(rows: Theatre | Sequence[Row], **options: Any) -> Reexecution:
    found = rows.journal.facts[RUN] if isinstance(rows, Theatre) else rows
    return asyncio.run(reexecute(found, **options))


def parted(found: Reexecution) -> Divergence:
    assert found.divergence is not None
    assert len(found.divergences) == 1
    assert not found.same
    return found.divergence


def call(name: str, tool: str, /, **arguments: Any) -> dict[str, Any]:
    return {"id": name, "tool": tool, "arguments": arguments}


def write(stage: Stage, **said: Any) -> Tool[..., Any]:
    said = {"effect": Effect.WRITE, "claims": ["write file:{path}"], **said}
    return stage.tool("write", Sleep(1), Return("ok"), **said)


def three_writes(**options: Any) -> Theatre:
    stage = Stage()
    theatre = Theatre(stage, write(stage), **options)
    theatre.play(
        plan(
            call("a", "write", path="x"), call("b", "write", path="y"), call("c", "write", path="x")
        )
    )
    return theatre


# A policy


def test_a_policy_that_would_have_stopped_a_call_is_told_with_its_rule() -> None:
    theatre = three_writes()
    policy = Policy([Rule(Decision.DENY, arguments={"path": "y"}, name="not-y")])

    found = parted(again(theatre, policy=policy))

    assert (found.call, found.name, found.tool, found.turn) == ("t1.2", "b", "write", 1)
    assert found.recorded.startswith("let pass by rule 'default'")
    assert found.now == "denied by rule 'not-y'"
    assert str(found) == (
        f"fact {found.seq}, t1.2 (b of write): recorded is: {found.recorded}; now it is: denied by "
        "rule 'not-y'. This would have stopped it."
    )
    assert f"{RUN}: 1 diverged" in str(again(theatre, policy=policy))


def test_a_policy_that_would_have_asked_is_told() -> None:
    policy = Policy([Rule(Decision.ASK, claims=["write file:**/x"], name="ask-x")])

    found = parted(again(three_writes(), policy=policy))

    assert found.call == "t1.1"
    assert found.now == 'put to a human by rule \'ask-x\': {"path":"x"}'
    assert str(found).endswith("This would have stopped it.")


def test_a_policy_that_lets_pass_what_was_denied_is_told() -> None:
    policy = Policy([Rule(Decision.DENY, arguments={"path": "y"}, name="not-y")])
    theatre = three_writes(policy=policy)

    assert again(theatre).same
    assert again(theatre, policy=policy).same
    found = parted(again(theatre, policy=Policy()))

    assert found.recorded == "denied by rule 'not-y'"
    assert found.now.startswith("let pass by rule 'default'")
    assert str(found).endswith("It would have gone on.")


def test_another_rule_that_says_the_same_is_another_decision_and_its_line_is_none() -> None:
    first = Policy([Rule(Decision.ALLOW, tools=["write"], name="fine", source="p.toml:1")])
    theatre = three_writes(policy=first)
    moved = Policy([Rule(Decision.ALLOW, tools=["write"], name="fine", source="p.toml:90")])
    renamed = Policy([Rule(Decision.ALLOW, tools=["write"], name="good", source="p.toml:1")])

    assert again(theatre, policy=moved).same
    found = parted(again(theatre, policy=renamed))

    assert "rule 'fine'" in found.recorded
    assert "rule 'good'" in found.now


def test_a_policy_may_be_a_file(tmp_path: Any) -> None:
    (tmp_path / "p.toml").write_text(
        '[[rule]]\nname = "no"\ndecision = "deny"\ntools = ["write"]\n'
    )

    assert parted(again(three_writes(), policy=tmp_path / "p.toml")).now == "denied by rule 'no'"
    with pytest.raises(PolicyError, match="cannot be read"):
        again(three_writes(), policy=str(tmp_path / "none.toml"))


def test_another_mode_is_judged_anew() -> None:
    found = parted(again(three_writes(), mode="plan", policy=Policy()))

    assert found.now == "denied by rule 'mode plan'"


def test_a_policy_of_the_host_s_own_that_raises_denies() -> None:
    class Broken(Policy):
        def decide(self, question: Question, /) -> Verdict:
            raise ValueError(question.tool)

    assert parted(again(three_writes(), policy=Broken())).now == "denied by rule 'policy error'"


# Tools and lanes


def test_another_effect_is_told() -> None:
    stage = Stage()

    found = parted(again(three_writes(), tools=[write(stage, effect=Effect.EXTERNAL)]))

    assert found.call == "t1.1"
    assert found.recorded.startswith("taken in as write write")
    assert found.now.startswith("taken in as external write")
    assert not stage.entered


def test_other_claims_are_told_and_so_are_the_edges_that_they_draw() -> None:
    wider = write(Stage(), claims=["write file:"], schema={"type": "object"})

    found = again(three_writes(), tools=[wider])

    assert parted(found).call == "t1.1"
    assert "claims on exclusive file:, shared" in parted(found).now


def test_an_edge_that_is_recorded_and_would_not_be_drawn_is_told() -> None:
    rows = three_writes().journal.facts[RUN]
    opening = rows[1].fact
    assert isinstance(opening, TurnSubmitted)
    extra = msgspec.structs.replace(opening, edges=())
    changed = [rows[0], msgspec.structs.replace(rows[1], fact=extra), *rows[2:]]

    found = parted(again(changed))

    assert found.call == "t1.3"
    assert found.now.endswith("behind t1.1 (conflict)")


def test_a_schema_that_refuses_what_passed_is_told() -> None:
    narrow = {"type": "object", "properties": {"path": {"enum": ["x"]}}, "required": ["path"]}

    found = parted(again(three_writes(), tools=[write(Stage(), schema=narrow)]))

    assert found.call == "t1.2"
    assert "with no claims" in found.now


def test_a_schema_that_lets_pass_what_was_refused_is_told() -> None:
    stage = Stage()
    narrow = {"type": "object", "properties": {"path": {"enum": ["x"]}}, "required": ["path"]}
    theatre = Theatre(stage, write(stage, schema=narrow))
    theatre.play(plan(call("a", "write", path="x"), call("b", "write", path="y")))

    assert again(theatre).same
    assert parted(again(theatre, tools=[write(Stage())])).call == "t1.2"


def test_fewer_attempts_are_told() -> None:
    stage = Stage()

    def second_time(_: Any) -> str:
        if stage.entered["flaky"] == 1:
            raise ConnectionError("gone")
        return "ok"

    theatre = Theatre(stage, stage.tool("flaky", Do(second_time), retries=1))
    theatre.play(plan(call("a", "flaky")))

    found = parted(again(theatre, tools=[stage.tool("flaky", retries=0)]))

    assert found.recorded == "to be tried again after attempt 1"
    assert found.now == "ended FAILED (TOOL_ERROR)"


def test_a_tool_that_may_be_repeated_now_would_not_end_uncertain() -> None:
    stage = Stage()

    def lose(_: Any) -> None:
        raise ConnectionError("gone")

    def tool(**said: Any) -> Tool[..., Any]:
        return stage.tool("pay", Do(lose), effect=Effect.EXTERNAL, claims=[], **said)

    theatre = Theatre(stage, tool())
    theatre.play(plan(call("a", "pay")))

    found = parted(again(theatre, tools=[tool(idempotent=True)]))

    assert found.now.startswith("taken in as external pay {}, may be repeated")


def test_a_tool_that_needs_what_the_host_binds_is_taken_without_it() -> None:
    stage = Stage()
    schema = {"type": "object", "properties": {"user": {}, "n": {}}, "required": ["user"]}
    tool = stage.tool("who", Return("x"), effect=Effect.PURE, schema=schema, bound=("user",))
    theatre = Theatre(stage, tool, bound={"user": "ann"})
    theatre.play(plan(call("a", "who", n=1), call("b", "who", n=1)))

    assert again(theatre, tools=theatre.tools).same


def test_wider_lanes_let_calls_start_earlier_and_narrower_ones_are_told() -> None:
    stage = Stage()
    tool = stage.tool("mail", Sleep(1), effect=Effect.EXTERNAL, claims=["lane:mail"])
    theatre = Theatre(stage, tool, lanes={"mail": 2})
    theatre.play(plan(*(call(name, "mail") for name in "abc")))

    assert again(theatre).same
    rate = Rate(starts=1, per_seconds=9)
    assert again(theatre, lanes={"mail": Lane(max_concurrent=2, rate=rate)}).same
    found = parted(again(theatre, lanes={"mail": 1}))
    wide = again(theatre, lanes={"mail": 9})

    assert found.recorded == "started, attempt 1"
    assert found.now == "the call is QUEUED, lane lane:mail held by t1.1"
    assert (wide.same, wide.earlier) == (True, 1)
    assert "started later then" in str(wide)


# Other runs


def two_runs(lanes: dict[str, Any], host: Callable[[Engine], Any], *tools: Any) -> MemoryJournal:
    journal = MemoryJournal()

    async def main() -> None:
        engine = Engine(tools, journal=MemoryStore(journal), lanes=lanes, clock=Stage().make_clock)
        async with engine:
            await host(engine)

    run_virtual(main)
    return journal


def test_what_waited_for_another_run_is_counted_and_keeps_its_place() -> None:
    stage = Stage()
    tool = stage.tool(
        "mail", Sleep(10), effect=Effect.EXTERNAL, claims=["lane:mail", "write db:{t}"]
    )
    urgent = stage.tool(
        "now", Sleep(10), effect=Effect.EXTERNAL, claims=["write db:{t}"], priority=3
    )

    async def host(engine: Engine) -> None:
        async with engine.run("other") as other, engine.run(RUN) as run:
            first = asyncio.create_task(other.submit(plan(call("o", "mail", t="z"))))
            await asyncio.sleep(1)
            second = asyncio.create_task(
                run.submit(plan(call("a", "mail", t="x"), call("b", "mail", t="y")))
            )
            await asyncio.sleep(1)
            await run.cancel("b")
            await asyncio.gather(first, second)
            await run.submit(plan(call("c", "now", t="x"), call("d", "mail", t="x")))

    journal = two_runs({}, host, tool, urgent)

    for options in ({}, {"tools": [tool, urgent]}):
        found = again(journal.facts[RUN], **options)
        assert found.same, str(found)
        assert found.earlier == 1
        assert again(journal.facts[RunId("other")]).same


@pytest.mark.parametrize("fails", [False, True])
def test_the_same_call_of_another_run_is_waited_for(fails: bool) -> None:
    stage = Stage()

    def first_time(_: Any) -> str:
        if fails and stage.entered["work"] == 1:
            raise ValueError("boom")
        return "ok"

    work = stage.tool("work", Sleep(5), Do(first_time), effect=Effect.PURE, schema=ANY)
    short = stage.tool("short", Sleep(1))

    async def once(context: ToolContext) -> Any:
        return await context.invoke("work")

    agent = Tool.of(once, effect=Effect.READ, claims=[])

    async def host(engine: Engine) -> None:
        async with engine.run(RUN) as run:
            await run.submit(
                plan(call("w", "once"), call("s", "short"), {**call("a", "work"), "after": ["s"]})
            )

    journal = two_runs({}, host, work, agent, short)

    leaders = [row.fact.leader for row in journal.facts[RUN] if isinstance(row.fact, CallJoined)]
    assert leaders == ["r/t1.1/1/t1.1"]
    for rows in journal.facts.values():
        assert again(rows).same, str(again(rows))
        assert again(rows, tools=[work, agent, short]).same


def test_a_call_that_is_to_run_again_runs_again() -> None:
    stage = Stage()

    def second_time(_: Any) -> str:
        if stage.entered["pay"] == 1:
            raise ConnectionError("gone")
        return "paid"

    tool = stage.tool("pay", Do(second_time), effect=Effect.EXTERNAL, claims=[])
    theatre = Theatre(stage, tool, stage.tool("tell", Return("ok")))

    async def host(run: Run) -> None:
        later = {**call("t", "tell"), "needs": ["p"]}
        turn = await run.submit(plan(call("p", "pay"), later), wait=False)
        await turn.wait()
        await run.settle("p", again=True, by="ann")
        await run.finish()

    theatre.enter(host)

    assert stage.entered["pay"] == 2
    assert any(isinstance(row.fact, CallReopened) for row in theatre.journal.facts[RUN])
    assert again(theatre).same
    assert again(theatre, tools=theatre.tools).same


def test_an_answer_to_what_nobody_asks_any_more_is_told() -> None:
    stage = Stage()

    def ask(name: str) -> Tool[..., Any]:
        return stage.tool(name, Return("ok"), effect=Effect.EXTERNAL, claims=[], approval=True)

    theatre = Theatre(stage, ask("mail"))

    async def first(run: Run) -> None:
        await run.submit(plan(call("a", "mail")), wait=False)
        theatre.crash()

    async def second(run: Run) -> None:
        await run.approve("a", by="ann")
        await run.finish()

    theatre.enter(first)
    theatre.enter(second)
    rows = theatre.journal.facts[RUN]
    assert again(rows).same
    asked = next(at for at, row in enumerate(rows) if isinstance(row.fact, ApprovalAsked))
    taken = [row for at, row in enumerate(rows) if at != asked]

    found = parted(again([msgspec.structs.replace(row, seq=n) for n, row in enumerate(taken, 1)]))

    assert "t1.1.a1" in found.now


def test_ends_that_cannot_come_to_the_engine_as_it_stands_are_told() -> None:
    stage = Stage()
    tool = stage.tool("mail", Sleep(1), effect=Effect.EXTERNAL, claims=["lane:mail"])
    theatre = Theatre(stage, tool)
    theatre.play(plan(call("a", "mail"), call("b", "mail")))
    rows = theatre.journal.facts[RUN]
    first = next(at for at, row in enumerate(rows) if isinstance(row.fact, CallEnded))

    found = parted(again(moved(rows, first + 2, first)))

    assert found.call == "t1.2"


def test_runs_within_calls_are_re_executed_each_on_its_own() -> None:
    stage = Stage()
    write_ = write(stage)

    async def edit(path: str, context: ToolContext) -> Any:
        await context.invoke("write", path=path)
        return await context.invoke("write", path=path)

    agent = Tool.of(edit, effect=Effect.WRITE, claims=["write file:{path}"])

    async def host(engine: Engine) -> None:
        async with engine.run(RUN) as run:
            await run.submit(plan(call("a", "edit", path="x"), call("b", "edit", path="x")))

    journal = two_runs({}, host, write_, agent)

    assert len(journal.facts) == 5
    for rows in journal.facts.values():
        assert again(rows).same
        assert again(rows, tools=[write_, agent]).same
    assert stage.entered == {"write": 4}


def test_a_lane_that_is_full_of_others_sends_away_as_it_did() -> None:
    stage = Stage()
    tool = stage.tool("mail", Sleep(10), effect=Effect.EXTERNAL, claims=["lane:mail"])

    async def host(engine: Engine) -> None:
        async with engine.run("other") as other, engine.run(RUN) as run:
            first = asyncio.create_task(other.submit(plan(call("o", "mail"), call("p", "mail"))))
            await asyncio.sleep(1)
            await run.submit(plan(call("a", "mail"), call("b", "mail")))
            await first

    journal = two_runs({"mail": Lane(max_waiting=1, when_full="refuse")}, host, tool)

    ends = [row.fact.outcome for row in journal.facts[RUN] if isinstance(row.fact, CallEnded)]
    assert [one.code for one in ends if isinstance(one, Failure)] == [Code.LANE_FULL] * 2
    assert again(journal.facts[RUN]).same
    assert again(journal.facts[RunId("other")]).same


def test_a_lane_that_an_operator_works_is_worked_again() -> None:
    stage = Stage()
    tool = stage.tool("mail", Sleep(10), effect=Effect.EXTERNAL, claims=["lane:mail"])

    async def host(engine: Engine) -> None:
        async with engine.run(RUN) as run:
            engine.lanes.pause("mail")
            turn = asyncio.create_task(run.submit(plan(*(call(name, "mail") for name in "abcd"))))
            await asyncio.sleep(1)
            engine.lanes.resize("mail", 2)
            engine.lanes.resume("mail")
            await asyncio.sleep(1)
            engine.lanes.clear("mail")
            await turn

    journal = two_runs({}, host, tool)

    assert again(journal.facts[RUN]).same


def test_a_stuck_holder_that_an_operator_let_go_of_is_let_go_of_again() -> None:
    stage = Stage()
    tool = stage.tool(
        "mail",
        Block(60),
        effect=Effect.EXTERNAL,
        sync=True,
        claims=["lane:mail"],
        timeout=5,
    )

    async def host(run: Run) -> None:
        turn = await run.submit(plan(call("a", "mail"), call("b", "mail")), wait=False)
        await asyncio.sleep(10)
        engine.lanes.reset("mail")
        await turn.wait()
        await asyncio.sleep(200)

    journal = MemoryJournal()
    engine = Engine([tool], journal=MemoryStore(journal), clock=stage.make_clock)

    async def main() -> None:
        async with engine, engine.run(RUN) as run:
            await host(run)

    run_virtual(main)

    assert any(isinstance(row.fact, LaneChanged) for row in journal.facts[RUN])
    assert again(journal.facts[RUN]).same


# Recordings that are not what they were


def moved(rows: Sequence[Row], at: int, to: int) -> list[Row]:
    found = [*rows]
    found.insert(to, found.pop(at))
    return [msgspec.structs.replace(row, seq=seq) for seq, row in enumerate(found, 1)]


def test_two_exclusive_holders_of_one_lane_that_overlap_are_found() -> None:
    stage = Stage()
    tool = stage.tool("mail", Sleep(1), effect=Effect.EXTERNAL, claims=["lane:mail"])
    theatre = Theatre(stage, tool)
    theatre.play(plan(call("a", "mail"), call("b", "mail")))
    rows = theatre.journal.facts[RUN]
    ended = next(at for at, row in enumerate(rows) if isinstance(row.fact, CallEnded))
    assert isinstance(rows[ended + 1].fact, CallStarted)

    found = parted(again(moved(rows, ended + 1, ended)))

    assert found.call == "t1.2"
    assert found.now == "the call is QUEUED, lane lane:mail held by t1.1"


def test_a_fact_that_no_engine_writes_there_is_told() -> None:
    rows = three_writes().journal.facts[RUN]
    gap = [row for row in rows if row.seq != 4]

    assert "impossible there" in parted(again(gap)).now
    stranger = msgspec.structs.replace(
        rows[3], fact=CallStarted(call=CallId("t9.9"), attempt=1, token=1)
    )
    found = parted(again([*rows[:3], stranger, *rows[4:]]))
    assert found.call == "t9.9"
    assert "t9.9" in found.now


def test_a_turn_that_is_never_closed_is_found_when_the_next_one_comes() -> None:
    stage = Stage()
    theatre = Theatre(stage, write(stage))

    async def host(run: Run) -> None:
        await run.submit(plan(call("a", "write", path="x")))
        await run.submit(plan(call("b", "write", path="x")))

    theatre.enter(host)
    rows = [row for row in theatre.journal.facts[RUN] if row.fact != TurnClosed(turn=1)]

    found = parted(again(moved(rows, 0, 0)))

    assert found.recorded == "nothing"
    assert found.now == "turn 1 closed"


def test_all_divergences_are_told_turn_by_turn_if_they_are_asked_for() -> None:
    stage = Stage()
    theatre = Theatre(stage, write(stage))

    async def host(run: Run) -> None:
        for path in "xyx":
            await run.submit(plan(call(f"a{len(run.turns)}", "write", path=path)))

    theatre.enter(host)
    theatre.enter(host)
    policy = Policy([Rule(Decision.DENY, arguments={"path": "x"}, name="not-x")])

    first = again(theatre, policy=policy)
    found = again(theatre, policy=policy, all=True)

    assert [one.turn for one in first.divergences] == [1]
    assert [one.turn for one in found.divergences] == [1, 3, 4, 6]
    broken = [row for row in theatre.journal.facts[RUN] if row.seq != 20]
    assert len(again(broken, policy=policy, all=True).divergences) == 4


def test_only_all_facts_of_a_run_can_be_re_executed() -> None:
    rows = three_writes().journal.facts[RUN]

    for some in ([], rows[1:]):
        with pytest.raises(UsageError, match="all facts of one run, from the first on"):
            again(some)


def test_a_run_that_goes_on_is_compared_as_far_as_it_has_come() -> None:
    rows = three_writes().journal.facts[RUN]

    for length in range(1, len(rows) + 1):
        assert again(rows[:length]).same


def test_durations_that_nobody_knows_any_more_go_by_the_record() -> None:
    stage = Stage()
    tools = [
        stage.tool(f"w{n}", Sleep(n), Return(n), schema=ANY, claims=["lane:wide"])
        for n in range(1, 6)
    ]

    async def host(engine: Engine) -> None:
        async with engine.run("before") as before:
            await before.submit(plan(*(call(f"b{n}", f"w{n}") for n in range(1, 6))))
        async with engine.run(RUN) as run:
            calls = [call(f"c{n}", f"w{n}") for n in range(1, 6)]
            last = {**call("end", "w1"), "needs": ["c1"]}
            await run.submit(plan(*calls, last))

    journal = two_runs({"wide": 2}, host, *tools)

    found = again(journal.facts[RUN])

    assert found.same, str(found)
    assert found.by_durations
    assert str(found).endswith("(the order of the longest path goes by the record)")


def test_a_large_turn_is_looked_at_slice_by_slice() -> None:
    stage = Stage()
    tool = stage.tool("mail", Sleep(1), claims=["lane:mail"])
    theatre = Theatre(stage, tool, limits=Limits(turn_seconds=5))
    theatre.play(plan(*(call(f"c{n}", "mail") for n in range(1100))))

    assert again(theatre).same


def test_an_engine_that_goes_wrong_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = three_writes().journal.facts[RUN]

    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("laneway.engine.scheduler.Step.in_order", broken)
    found = parted(again(rows))

    assert "a bug" in found.now


def test_a_rule_is_read_from_what_the_model_was_told() -> None:
    failure = Failure(
        code=Code.POLICY_DENIED, message="Not (so) now. (policy.toml:2 (no-prod (at all)))"
    )

    assert verdict_of(failure).rule == "policy.toml:2 (no-prod (at all))"
    assert verdict_of(failure).reason == "Not (so) now."
    assert verdict_of(Failure(code=Code.POLICY_DENIED, message="no")).reason == "no"
    assert rule_name("policy.toml:2 (no-prod (at all))") == "no-prod (at all)"
    assert rule_name("rule 3") == "rule 3"
    assert rule_name(")") == ")"
