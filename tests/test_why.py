"""Why it ran, waited, stopped: answers from facts that engines wrote, and from facts by hand."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from laneway import Effect, Engine, Run
from laneway.calls import CallRecord, Edge, Reason
from laneway.claims import Claim, exclusive, shared
from laneway.engine.answers import conflict, why
from laneway.engine.cli.because import CODES, MOST, call_lines
from laneway.engine.cli.stands import Driven, run_lines
from laneway.errors import DamagedJournalError, UnknownCallError
from laneway.facts import (
    ApprovalAsked,
    AttemptEnded,
    BudgetReserved,
    BudgetSettled,
    CallEnded,
    CallJoined,
    CallProbed,
    CallQueued,
    CallReopened,
    CallSettled,
    CallStarted,
    ChildEntered,
    Driver,
    Fact,
    HolderStopped,
    HostNoted,
    LaneChanged,
    LossAccepted,
    ProcessStarted,
    Row,
    RunForked,
    RunOpened,
    RunTaken,
    TaskEnded,
    TaskStarted,
    TurnClosed,
    TurnSubmitted,
)
from laneway.ids import ApprovalId, CallId, RunId
from laneway.journal.accounts import why_run
from laneway.journal.answered import CallAnswer, RunAnswer, Wait
from laneway.journal.answers import why_call
from laneway.journal.memory import MemoryJournal, MemoryStore
from laneway.journal.timeline import Timeline, timeline
from laneway.outcomes import Code, Failure, Happened, Success
from laneway.states import State
from laneway.testing.clock import VirtualClock, run_virtual
from laneway.testing.scripted import Do, Log, Raise, Return, Sleep, Stage
from laneway.testing.theatre import RUN, Theatre, plan

WALL, MONO = 1_700_000_000.0, 500.0
DRIVER = Driver(host="h", boot="b", pid=7, started="1")
SECOND = Driver(host="h", boot="b", pid=8, started="2")
NOBODY = Driven(driver=None, told="nobody drives it now", alive=False)
A, B, C = CallId("t1.1"), CallId("t1.2"), CallId("t1.3")


# Facts by hand: each with its second, counted from the opening


def written(*facts: tuple[float, Fact], run: str = "r", driver: Driver = DRIVER) -> Timeline:
    opened = (0.0, RunOpened(run=RunId(run), driver=driver))
    return timeline(RunId(run), rows(opened, *facts, run=run))


def rows(*facts: tuple[float, Fact], run: str = "r") -> list[Row]:
    return [
        Row(RunId(run), seq, WALL + second, MONO + second, fact)
        for seq, (second, fact) in enumerate(facts, 1)
    ]


def asked(*calls: CallRecord, edges: Sequence[Edge] = (), turn: int = 1) -> Fact:
    return TurnSubmitted(turn=turn, provider="plan", message=None, calls=calls, edges=tuple(edges))


def call(name: CallId, *claims: Claim, **fields: Any) -> CallRecord:
    given: dict[str, Any] = {"provider_id": f"id-{name}", "tool": "edit", "effect": Effect.WRITE}
    return CallRecord(id=name, claims=(shared("run:r"), *claims), **{**given, **fields})


def queued(name: CallId) -> Fact:
    return CallQueued(call=name, rule="default")


def started(name: CallId, attempt: int = 1, token: int = 1) -> Fact:
    return CallStarted(call=name, attempt=attempt, token=token)


def ended(name: CallId, state: State = State.SUCCEEDED, **failed: Any) -> Fact:
    stopped = failed.pop("stopped", True)
    if state is State.SUCCEEDED:
        return CallEnded(call=name, state=state, outcome=Success(value="done"), stopped=stopped)
    failed.setdefault("code", Code.TOOL_ERROR)
    failed.setdefault("message", "It broke.")
    return CallEnded(call=name, state=state, outcome=Failure(**failed), stopped=stopped)


def text(answer: CallAnswer | RunAnswer, driven: Driven = NOBODY) -> str:
    if isinstance(answer, CallAnswer):
        return "\n".join(call_lines(answer))
    return "\n".join(run_lines(answer, driven))


def waits(answer: CallAnswer, state: State) -> list[Wait]:
    return [one for one in answer.waits if one.state is state]


def played(theatre: Theatre) -> Timeline:
    return timeline(RUN, theatre.journal.facts[RUN])


# A call


def test_a_call_tells_what_it_depended_on_and_which_of_them_it_came_down_to() -> None:
    stage = Stage()
    tool = stage.tool("edit", Sleep(2), effect=Effect.WRITE, claims=["write r:{x}"])
    theatre = Theatre(stage, tool, stage.tool("look", Sleep(5)))
    theatre.play(
        plan(
            {"id": "a", "tool": "edit", "arguments": {"x": "1"}},
            {"id": "b", "tool": "look", "arguments": {}},
            {"id": "c", "tool": "edit", "arguments": {"x": "1"}, "after": ["b"]},
        )
    )

    answer = why(played(theatre), "c")

    (pending,) = waits(answer, State.PENDING)
    found = [(one.call, one.reason, one.detail, one.last) for one in pending.dependencies]
    assert sorted(found) == [(A, "conflict", "r:1", False), (B, "after", "", True)]
    assert pending.seconds == 5
    assert answer.attempts[0].seconds == 2
    assert answer.attempts[0].token > 0
    told = text(answer)
    assert "t1.1 edit (conflict over r:1), SUCCEEDED" in told
    assert "t1.2 look (after), SUCCEEDED, the last of them to end" in told
    assert "rule default let it pass" in told
    assert "in the world: it happened" in told


def test_a_call_tells_who_held_its_lane_and_for_how_long() -> None:
    stage = Stage()
    mail = stage.tool("mail", Sleep(3), effect=Effect.EXTERNAL, claims=["lane:mail"])
    theatre = Theatre(stage, mail)
    theatre.play(plan({"id": "a", "tool": "mail"}, {"id": "b", "tool": "mail"}))

    answer = why(played(theatre), "b")

    (wait,) = waits(answer, State.QUEUED)
    (holder,) = wait.holders
    assert (holder.call, holder.seconds, holder.holding) == (A, 3, False)
    assert wait.seconds == 3
    told = text(answer)
    assert "QUEUED 3.00 s: for exclusive lane:mail" in told
    assert "t1.1 mail held exclusive lane:mail for 3.00 s of it" in told


def test_a_call_of_another_run_of_the_engine_is_named_as_the_holder() -> None:
    stage = Stage()
    journal = MemoryJournal()
    mail = stage.tool("mail", Sleep(4), effect=Effect.EXTERNAL, claims=["lane:mail"])

    async def main() -> None:
        engine = Engine([mail], journal=MemoryStore(journal), clock=VirtualClock)
        async with engine, engine.run("one") as one, engine.run("two") as two:
            first = asyncio.create_task(one.submit(plan({"id": "a", "tool": "mail"})))
            await asyncio.sleep(1)
            await two.submit(plan({"id": "b", "tool": "mail"}))
            await first

    run_virtual(main)
    one, two = (timeline(RunId(name), journal.facts[RunId(name)]) for name in ("one", "two"))

    (wait,) = waits(why(two, "b", [one]), State.QUEUED)

    assert [(holder.call, holder.seconds) for holder in wait.holders] == [("one/t1.1", 3)]


def test_a_holder_of_another_process_was_in_nobodys_way() -> None:
    mine = written((0, asked(call(A, exclusive("lane:x")))), (1, queued(A)), (5, started(A)))
    theirs = written(
        (0, asked(call(A, exclusive("lane:x")))),
        (0, queued(A)),
        (0, started(A)),
        run="other",
        driver=SECOND,
    )

    (wait,) = waits(why(mine, A, [theirs]), State.QUEUED)

    assert not wait.holders


def test_what_has_no_claim_in_common_or_came_at_another_time_is_not_named() -> None:
    record = call(A, exclusive("file:/w/a"))
    below, beside = call(B, shared("file:/w/a/b")), call(C, exclusive("file:/w/b"))
    early, late = CallId("t1.4"), CallId("t1.5")
    time = written(
        (0, asked(record, below, beside, call(early, *record.claims), call(late, *record.claims))),
        *((0, queued(one)) for one in (early, B, C)),
        *((0, started(one)) for one in (early, B, C)),
        (1, ended(early)),
        (2, queued(A)),
        (6, ended(B)),
        (7, started(A)),
        (8, ended(A)),
        (8, queued(late)),
        (8, started(late)),
    )

    (wait,) = waits(why(time, A), State.QUEUED)

    (holder,) = wait.holders
    assert (holder.call, holder.seconds) == (B, 4)
    assert (holder.resource, holder.wanted) == ("shared file:/w/a/b", "exclusive file:/w/a")


def test_a_call_that_waits_now_names_who_holds_now() -> None:
    time = written(
        (0, asked(call(A, exclusive("lane:x")), call(B, exclusive("lane:x")))),
        (0, queued(A)),
        (0, started(A)),
        (1, queued(B)),
        (4, HostNoted(note="still here")),
    )

    answer = why(time, B)

    (wait,) = waits(answer, State.QUEUED)
    assert (wait.seconds, wait.ended_wall) == (3, None)
    assert [(one.seconds, one.holding) for one in wait.holders] == [(3, True)]
    told = text(answer)
    assert "QUEUED 3.00 s so far: for exclusive lane:x" in told
    assert "t1.1 edit holds exclusive lane:x for 3.00 s of it" in told
    assert "ended: not yet" in told


def test_a_body_that_outlived_its_call_is_named_as_the_holder_until_it_stopped() -> None:
    time = written(
        (0, asked(call(A, exclusive("lane:x")), call(B, exclusive("lane:x")))),
        (0, queued(A)),
        (0, started(A)),
        (1, queued(B)),
        (2, ended(A, State.TIMED_OUT, code=Code.TIMEOUT, happened=Happened.UNKNOWN, stopped=False)),
        (9, HolderStopped(call=A, late="42")),
        (9, started(B)),
    )

    (wait,) = waits(why(time, B), State.QUEUED)

    assert [(one.call, one.seconds) for one in wait.holders] == [(A, 8)]
    told = text(why(time, A))
    assert "TIMEOUT, it took longer than it may" in told
    assert "a body that outlived it said, unused: 42" in told
    assert "in the world: nobody knows what happened" in told


def test_a_call_that_holds_for_another_within_it_was_not_in_its_way() -> None:
    outer = written((0, asked(call(A, exclusive("r:x")))), (0, queued(A)), (0, started(A)))
    inner = written(
        (0, asked(call(A, exclusive("r:x")))), (0, queued(A)), (2, started(A)), run="r/t1.1/1"
    )

    (wait,) = waits(why(inner, A, [outer]), State.QUEUED)

    assert not wait.holders


def test_a_paused_lane_is_named() -> None:
    time = written(
        (0, LaneChanged(lane="lane:x", change="paused")),
        (0, LaneChanged(lane="lane:y", change="paused")),
        (0, LaneChanged(lane="lane:y", change="resumed")),
        (0, LaneChanged(lane="lane:z", change="paused")),
        (0, asked(call(A, *(exclusive(f"lane:{one}") for one in "wxy")))),
        (1, queued(A)),
        (2, LaneChanged(lane="lane:w", change="paused")),
        (3, LaneChanged(lane="lane:w", change="resumed")),
        (4, LaneChanged(lane="lane:x", change="resumed")),
        (4, started(A)),
        (5, LaneChanged(lane="lane:y", change="paused")),
    )

    answer = why(time, A)

    assert waits(answer, State.QUEUED)[0].paused == ("lane:w", "lane:x")
    assert "lane:w was paused" in text(answer)


@pytest.mark.parametrize(
    ("one", "other", "meets"),
    [
        (exclusive("lane:a"), exclusive("lane:a"), True),
        (exclusive("lane:a"), exclusive("lane:b"), False),
        (shared("r:a"), shared("r:a"), False),
        (shared("r:a"), exclusive("r:a/b"), True),
        (exclusive("r:a/b"), exclusive("r:a/c"), False),
        (exclusive("run:r"), shared("run:r"), True),
    ],
)
def test_claims_conflict_as_the_lanes_say(one: Claim, other: Claim, meets: bool) -> None:
    assert conflict(one, other) is meets
    assert conflict(other, one) is meets


def test_an_approval_tells_who_answered_what_about_which_arguments_and_when() -> None:
    stage = Stage()
    send = stage.tool("send", Return("ok"), effect=Effect.EXTERNAL, claims=[], approval=True)
    theatre = Theatre(stage, send)

    async def host(run: Run) -> None:
        call = {"tool": "send"}
        turn = await run.submit(
            plan({"id": "a", "arguments": {"to": "x"}, **call}, {"id": "b", **call}), wait=False
        )
        await asyncio.sleep(3)
        first, second = run.approvals
        await run.approve(first.id, by="ann")
        await run.deny(second.id, by="bob", reason="not today")
        await turn.wait()

    theatre.enter(host)
    time = played(theatre)

    granted, refused = why(time, "a"), why(time, "b")

    assert granted.decision == refused.decision == "ask"
    (one,), (other,) = granted.approvals, refused.approvals
    assert (one.granted, one.by, one.arguments) == (True, "ann", {"to": "x"})
    assert (other.granted, other.by, other.said) == (False, "bob", "not today")
    (wait,) = waits(granted, State.AWAITING_APPROVAL)
    assert wait.seconds == one.waited_seconds
    assert wait.seconds >= 3
    assert wait.approval == one.approval
    assert 'send {"to": "x"}' in text(granted)
    assert "granted by ann after" in text(granted)
    assert f"the answer to {one.approval}" in text(granted)
    assert "APPROVAL_REJECTED, a human refused it" in text(refused)
    assert "refused by bob after" in text(refused)
    whole = why_run(time)
    assert [one.by for one in whole.approvals] == ["ann", "bob"]
    assert "not today" in text(whole)


def test_a_question_that_nobody_has_answered_says_until_when_it_stands() -> None:
    question = ApprovalAsked(
        call=A,
        approval=ApprovalId("t1.1.a1"),
        digest="0",
        arguments={"x": 1},
        rule="tool asks",
        expires_wall=WALL + 60,
        reason="It sends mail.",
    )
    time = written((0, asked(call(A))), (1, question), (3, HostNoted(note=1)))

    answer = why(time, A)

    assert answer.rule == "tool asks"
    assert answer.approvals[0].waited_seconds == 2
    assert "(It sends mail.): not answered after 2.00 s; expires" in text(answer)
    gone = why(written((0, asked(call(A))), (1, question), (2, ended(A, State.DENIED))), A)
    assert gone.approvals[0].waited_seconds == 1


def test_attempts_tell_their_causes_and_back_offs() -> None:
    stage = Stage()
    fails = [ConnectionError("503"), ConnectionError("504")]

    def body(_: object) -> str:
        if fails:
            raise fails.pop(0)
        return "ok"

    fetch = stage.tool("fetch", Sleep(1), Do(body), retries=3)
    theatre = Theatre(stage, fetch)
    theatre.play(plan({"id": "a", "tool": "fetch"}))

    answer = why(played(theatre), "a")

    assert [one.attempt for one in answer.attempts] == [1, 2, 3]
    assert ["503" in one.cause for one in answer.attempts] == [True, False, False]
    assert all(one.seconds == 1 for one in answer.attempts)
    first, second = waits(answer, State.BACKING_OFF)
    assert "503" in first.cause
    assert "504" in second.cause
    assert first.seconds == pytest.approx(first.delay_seconds)
    assert "attempt 1: " in text(answer)
    assert "another could follow: " in text(answer)


def test_a_skipped_call_leads_to_the_root_of_the_failure() -> None:
    stage = Stage()
    theatre = Theatre(stage, stage.tool("bad", Raise(LookupError("no"))), stage.tool("u"))
    theatre.play(
        plan(
            {"id": "a", "tool": "bad"},
            {"id": "b", "tool": "u", "needs": ["a"]},
            {"id": "c", "tool": "u", "needs": ["b"]},
        )
    )

    answer = why(played(theatre), "c")

    assert answer.decision == ""
    assert answer.chain[-1].call == A
    assert answer.chain[-1].code is Code.TOOL_ERROR
    assert "it ended before it was judged" in text(answer)
    assert "because t1.1 bad was FAILED: the tool failed" in text(answer)


def test_a_chain_that_leads_nowhere_or_round_ends() -> None:
    skipped = {"code": Code.DEPENDENCY_FAILED}
    gone = CallId("t0.9")
    time = written(
        (0, asked(call(A), call(B), call(C))),
        (0, ended(A, State.SKIPPED, cause=B, **skipped)),
        (0, ended(B, State.SKIPPED, cause=A, **skipped)),
        (0, ended(C, State.SKIPPED, cause=gone, **skipped)),
    )

    assert [one.call for one in why(time, A).chain] == [B]
    assert not why(time, C).chain


def test_what_a_human_or_a_probe_found_out_is_told() -> None:
    unknown = {"code": Code.OUTCOME_UNKNOWN, "happened": Happened.UNKNOWN}
    time = written(
        (0, asked(call(A), call(B))),
        *((0, fact) for one in (A, B) for fact in (queued(one), started(one))),
        (0, ChildEntered(call=A, run=RunId("r/t1.1/1"))),
        (0, ProcessStarted(call=A, group=4242, started="9")),
        (1, ended(A, State.UNCERTAIN, **unknown)),
        (1, ended(B, State.UNCERTAIN, **unknown)),
        (2, CallProbed(call=A, found="unknown", detail="503")),
        (2, CallProbed(call=A, found="did not happen")),
        (3, CallReopened(call=A, by="ann")),
        (4, queued(A)),
        (5, started(A, 2, 3)),
        (6, TurnClosed(turn=1)),
        (7, CallSettled(call=B, outcome=Success(value=7), by="bob")),
    )

    first, second = why(time, A), why(time, B)

    assert first.probes == ("unknown: 503", "did not happen")
    assert first.reopened_by == ("ann",)
    assert first.children == ("r/t1.1/1",)
    assert first.processes == (4242,)
    assert [one.seconds for one in waits(first, State.UNCERTAIN)] == [2]
    assert second.settled == Success(value=7)
    assert second.settled_by == "bob"
    told = text(first)
    assert "ann found that it had done nothing, so that it ran again" in told
    assert "nested run: r/t1.1/1" in told
    assert "process group: 4242" in told
    assert "UNCERTAIN 2.00 s: somebody who knows what happened" in told
    assert "attempt 2: " in told
    assert "goes on" in told
    assert "settled by bob: it happened: 7" in text(second)
    assert "OUTCOME_UNKNOWN, nobody saw its end" in text(second)
    assert [(one.by, one.waits_for) for one in why_run(time).confirmed] == [("bob", ())]
    assert not why_run(time).unknown


def test_the_same_call_under_way_is_what_a_follower_waited_for() -> None:
    time = written(
        (0, asked(call(A), call(B))),
        (0, queued(A)),
        (0, started(A)),
        (0, queued(B)),
        (0, CallJoined(call=B, leader="r/t1.1")),
        (2, ended(A)),
        (2, ended(B)),
    )

    answer = why(time, B)

    assert waits(answer, State.QUEUED)[0].same_as == ("r/t1.1",)
    assert "for r/t1.1, which is the same call and under way" in text(answer)


def test_a_call_is_found_by_either_name_and_a_wrong_one_is_refused() -> None:
    twice = call(C, provider_id="id-t1.2")
    time = written((0, asked(call(A), call(B), twice)))

    assert why_call(time, "id-t1.1").call == A
    assert text(why_call(time, A)).count("it has not been judged yet") == 1
    with pytest.raises(UnknownCallError, match=r"no call 'x' \(`laneway show` lists them\)"):
        why_call(time, "x")
    with pytest.raises(UnknownCallError, match=r"several have this id; .* \(t1\.2, t1\.3\)"):
        why_call(time, "id-t1.2")


def test_a_denied_call_names_the_rule() -> None:
    denied = CallEnded(
        call=A,
        state=State.DENIED,
        outcome=Failure(code=Code.POLICY_DENIED, message="No."),
        rule="policy.toml:3",
    )

    answer = why(written((0, asked(call(A, arguments=None))), (0, denied)), A)

    assert (answer.decision, answer.rule) == ("deny", "policy.toml:3")
    assert "rule policy.toml:3 denied it" in text(answer)
    assert "with no arguments that could be read" in text(answer)
    assert "in the world: nothing happened" in text(answer)


def test_a_part_of_a_plan_and_a_stuck_body_are_told() -> None:
    part = call(CallId("t1.1/1"), provider_id="", parent=A, idempotent=True)
    time = written(
        (0, asked(call(A), part)),
        (0, queued(part.id)),
        (0, started(part.id)),
        (1, ended(part.id, State.CANCELLED, code=Code.CANCELLED, stopped=False)),
        (2, HostNoted(note=1)),
    )

    told = text(why(time, part.id))

    assert "part of t1.1" in told
    assert "write, may be repeated" in told
    assert "its body has not stopped, and holds its claims until it does" in told


def test_every_code_has_words() -> None:
    assert set(CODES) == set(Code)


def test_the_live_explanation_names_the_resource_of_a_conflict_too() -> None:
    stage = Stage()
    theatre = Theatre(
        stage, stage.tool("edit", Sleep(9), effect=Effect.WRITE, claims=["write r:{x}"])
    )

    async def host(run: Run) -> tuple[str, ...]:
        edit = {"tool": "edit", "arguments": {"x": "1"}}
        turn = await run.submit(plan({"id": "a", **edit}, {"id": "b", **edit}), wait=False)
        await asyncio.sleep(1)
        told = tuple(str(wait) for one in run.explain() for wait in one.waits)
        await turn.close()
        return told

    assert "dependency on t1.1 (conflict over r:1)" in theatre.enter(host)


# Times


def test_each_drivers_time_is_placed_by_its_own_wall_clock() -> None:
    first = rows(
        (0, RunOpened(run=RUN, driver=DRIVER)),
        (1, asked(call(A, exclusive("lane:x")))),
        (2, queued(A)),
    )
    taken = Row(RUN, 4, WALL + 100, 3.0, RunTaken(driver=SECOND, changes=("tool edit changed",)))
    later = [
        taken,
        Row(RUN, 5, WALL - 999, 5.0, started(A)),
        Row(RUN, 6, WALL - 999, 6.5, ended(A)),
    ]

    time = timeline(RUN, [*first, *later])

    answer = why(time, A)
    before, after = waits(answer, State.QUEUED)
    assert (before.lost, after.lost) == (True, False)
    assert (before.seconds, after.seconds) == (0, 2)
    assert answer.attempts[0].began_wall == WALL + 102
    assert answer.attempts[0].seconds == 1.5
    assert "then its driver was lost" in text(answer)
    whole = why_run(time)
    assert whole.drivers[1].changes == ("tool edit changed",)
    assert whole.spent.driven_seconds == 2 + 3.5
    assert "changed: tool edit changed" in text(whole)


def test_a_take_up_before_the_last_fact_of_the_driver_before_is_placed_behind_it() -> None:
    first = rows((50, RunOpened(run=RUN, driver=DRIVER)), (60, HostNoted(note=1)))
    second = Row(RUN, 3, WALL + 10, 1.0, RunTaken(driver=SECOND))

    time = timeline(RUN, [*first, second, Row(RUN, 4, 0.0, 2.0, HostNoted(note=2))])

    assert [one.first.at - WALL for one in time.drivers] == [50, 60]
    assert time.last.at == WALL + 61


def test_a_running_call_of_a_lost_driver_took_as_long_as_was_heard_of_it() -> None:
    first = rows(
        (0, RunOpened(run=RUN, driver=DRIVER)),
        (0, asked(call(A))),
        (0, queued(A)),
        (0, started(A)),
        (3, HostNoted(note=1)),
    )
    second = [
        Row(RUN, 6, WALL + 900, 0.0, RunTaken(driver=SECOND)),
        Row(RUN, 7, WALL + 900, 0.0, AttemptEnded(call=A, attempt=1, cause="the process ended")),
    ]

    answer = why(timeline(RUN, [*first, *second]), A)

    assert answer.attempts[0].seconds == 3
    assert answer.attempts[0].cause == "the process ended"


def test_missing_facts_are_named() -> None:
    facts = rows((0, RunOpened(run=RUN, driver=DRIVER)), (0, queued(A)))

    with pytest.raises(DamagedJournalError, match=r"fact 2: it tells of 't1\.1'"):
        timeline(RUN, facts)
    with pytest.raises(DamagedJournalError, match="fact 2 was expected"):
        timeline(RUN, [facts[0], Row(RUN, 3, 0, 0, HostNoted(note=1))])


# A run


def test_a_run_tells_what_it_did_what_is_confirmed_and_what_is_not() -> None:
    stage = Stage()
    theatre = Theatre(
        stage,
        stage.tool("edit", Sleep(1), Log("x"), effect=Effect.WRITE, claims=["write r:{x}"]),
        stage.tool("pay", Sleep(9), effect=Effect.EXTERNAL, claims=[], timeout=2),
        stage.tool("look", Raise(LookupError("no"))),
    )
    theatre.play(
        plan(
            {"id": "a", "tool": "edit", "arguments": {"x": "1"}},
            {"id": "b", "tool": "pay"},
            {"id": "c", "tool": "look"},
        )
    )

    answer = why_run(played(theatre))

    assert [one.call for one in answer.confirmed] == [A]
    assert [(one.call, one.code) for one in answer.unknown] == [(B, Code.TIMEOUT)]
    assert [one.call for one in answer.failed] == [C]
    assert not answer.unfinished
    assert answer.states == {"SUCCEEDED": 1, "TIMED_OUT": 1, "FAILED": 1}
    assert (answer.spent.turns, answer.spent.calls, answer.spent.attempts) == (1, 3, 3)
    assert answer.spent.body_seconds == 3
    told = text(answer)
    assert "confirmed effects (1):" in told
    assert "unknown or partial effects (1):" in told
    assert "did not succeed (1):" in told


def test_a_crashed_run_says_what_is_unfinished_and_how_to_go_on() -> None:
    stage = Stage()
    theatre = Theatre(stage, stage.tool("pay", Sleep(5), effect=Effect.EXTERNAL, claims=[]))

    async def host(run: Run) -> None:
        turn = await run.submit(plan({"id": "a", "tool": "pay"}), wait=False)
        await asyncio.sleep(2)
        theatre.crash()
        await turn.wait()

    theatre.enter(host)

    answer = why_run(played(theatre))
    gone = Driven(driver=DRIVER, told="process 7 on host 'h', which is gone", alive=False)

    assert answer.standing == "open"
    assert [(one.call, one.state) for one in answer.unfinished] == [(A, State.RUNNING)]
    told = text(answer, gone)
    assert "turn 1 is open and waits for 1 call" in told
    assert "go on with: laneway resume r" in told
    assert "resume" not in text(answer, Driven(driver=DRIVER, told="lives", alive=True))


def test_a_run_says_what_each_unfinished_call_waits_for_now() -> None:
    fourth, fifth, sixth = (CallId(f"t1.{n}") for n in (4, 5, 6))
    edges = [
        Edge(A, B, Reason.CONFLICT, "r:1"),
        Edge(C, B, Reason.NEEDS),
        Edge(C, sixth, Reason.AFTER),
    ]
    edges += [Edge(fifth, sixth, Reason.AFTER)] * 6
    question = ApprovalAsked(
        call=fourth, approval=ApprovalId("q"), digest="", arguments={}, rule="x", expires_wall=0
    )
    time = written(
        (
            0,
            asked(
                *(call(one) for one in (A, B, C, fourth)),
                call(fifth, exclusive("lane:x")),
                call(sixth),
                edges=edges,
            ),
        ),
        *((0, fact) for one in (A, C) for fact in (queued(one), started(one))),
        (1, ended(C, State.UNCERTAIN, code=Code.OUTCOME_UNKNOWN, happened=Happened.UNKNOWN)),
        (1, question),
        (1, queued(fifth)),
    )

    answer = why_run(time)

    assert {one.call: one.waits_for for one in answer.unfinished} == {
        A: (),
        B: ("t1.1 (conflict r:1)", "t1.3 (needs)"),
        C: ("somebody who knows what happened",),
        fourth: ("the answer to q",),
        fifth: ("exclusive lane:x",),
        sixth: ("t1.5 (after)",) * 6,
    }
    told = text(answer)
    assert "turn 1 is open and waits for 6 calls" in told
    assert "PENDING; waits for t1.1 (conflict r:1), t1.3 (needs)" in told
    assert "t1.5 (after) and 2 more" in told


def test_where_a_run_stands_is_told() -> None:
    closed = ((0, asked(call(A))), (1, ended(A, State.CANCELLED)), (1, TurnClosed(turn=1)))
    last = ((2, asked(turn=2)), (2, TurnClosed(turn=2)))

    assert "nothing has been asked for yet" in text(why_run(written()))
    assert "all that was asked for has ended" in text(why_run(written(*closed)))
    assert "asked for nothing" in text(why_run(written(*closed, *last)))
    assert "turn 1 is open and waits to be closed" in text(why_run(written(*closed[:2])))


def test_budgets_tasks_notes_forks_losses_and_lanes_are_told() -> None:
    time = written(
        (0, RunForked(source=RunId("old"), seq=1)),
        (0, LossAccepted(lost=3, by="ann")),
        (1, RunTaken(driver=SECOND)),
        (1, LaneChanged(lane="lane:x", change="resized", value=4)),
        (1, HostNoted(note={"ticket": 9})),
        (1, BudgetReserved(budget="tokens", amount=800, reservation="a")),
        (1, BudgetReserved(budget="tokens", amount=100, reservation="b")),
        (1, BudgetReserved(budget="calls", amount=1, reservation="c")),
        (2, BudgetSettled(reservation="a", amount=312.5)),
        (2, BudgetSettled(reservation="c", amount=1)),
        *((2, TaskStarted(task=one, call=A, run=RunId("r/x"))) for one in ("build", "lint", "t")),
        (3, TaskEnded(task="build", outcome=Success(value=None))),
        (3, TaskEnded(task="t", outcome=Failure(code=Code.TIMEOUT, message="No."))),
    )

    answer = why_run(time)

    assert (answer.forked_from, answer.forked_at) == ("old", 1)
    assert [(one.after, one.facts, one.by) for one in answer.lost] == [(2, 3, "ann")]
    assert answer.spent.budgets["tokens"].settled == 312.5
    assert answer.spent.budgets["tokens"].reserved == 100
    assert answer.tasks == {"build": "succeeded", "lint": "open", "t": "TIMEOUT"}
    told = text(answer)
    assert "forked from old after its fact 1" in told
    assert "3 facts after fact 2, given up by ann" in told
    assert "budget tokens: 312.5 spent, 100 set aside" in told
    assert "budget calls: 1 spent\n" in told
    assert "lane:x resized to 4" in told
    assert '{"ticket": 9}' in told
    assert "lint: open" in told
    assert "nobody, 1 facts" in told


def test_long_lists_are_cut_in_words_and_whole_in_data() -> None:
    many = [CallId(f"t1.{number}") for number in range(1, 31)]
    tools = [call(one, exclusive("lane:x"), tool=f"tool{at % 9}") for at, one in enumerate(many)]
    edges = [Edge(one, many[-1], Reason.AFTER) for one in many[:-1]]
    time = written(
        (0, asked(*tools, edges=edges)), *((1, ended(one, State.FAILED)) for one in many)
    )

    whole, last = why_run(time), why(time, many[-1])

    assert len(whole.failed) == 30
    told = text(whole)
    assert f"… and {30 - MOST} more: --json has them all" in told
    assert "and 1 more kinds" in told
    assert len(last.waits[0].dependencies) == 29
    assert f"… and {29 - MOST} more: --json has them all" in text(last)
