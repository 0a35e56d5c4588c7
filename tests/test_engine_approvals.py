"""Policy and approvals: what may run, who says so, and what an answer binds."""

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import pytest

from laneway import (
    Code,
    Decision,
    Effect,
    Happened,
    Limits,
    Policy,
    Rule,
    Run,
    State,
    Tool,
    Turn,
)
from laneway.engine.providers.reply import Asked, Reply
from laneway.errors import (
    OpenTurnError,
    PolicyError,
    TurnNotReadyError,
    UnknownApprovalError,
    UsageError,
)
from laneway.facts import ApprovalAsked, CallQueued
from laneway.policies.modes import Mode
from laneway.policies.questions import Question, Verdict
from laneway.testing.scripted import Do, Log, Return, Sleep, Stage
from laneway.testing.theatre import Theatre, codes, failure, plan, spans, states, values

ANY = {"type": "object"}

Plan = dict[str, Any]


def now() -> float:
    return asyncio.get_running_loop().time()


def echo(stage: Stage, name: str = "echo", **declared: Any) -> Tool[..., Any]:
    return stage.tool(name, Do(dict), schema=ANY, **declared)


# Policy


def test_a_policy_is_read_from_a_file_and_its_rule_is_named_in_outcome_and_journal(
    tmp_path: Path,
) -> None:
    (tmp_path / "policy.toml").write_text(
        """
[[rule]]
name = "no-prod"
decision = "deny"
tools = ["deploy"]
arguments.env = ["prod", "prod-*"]
reason = "Production is changed by the release job only."

[[rule]]
decision = "deny"
claims = ["write db:bank"]

[[rule]]
name = "fine"
decision = "allow"
tools = ["deploy"]
arguments.env = "test"
"""
    )
    stage = Stage()
    theatre = Theatre(
        stage,
        echo(stage),
        stage.tool("deploy", Return("up"), effect=Effect.EXTERNAL, schema=ANY),
        stage.tool("put", Return("ok"), effect=Effect.WRITE, claims=["write db:{t}"]),
        policy=tmp_path / "policy.toml",
    )

    turn = theatre.play(
        plan(
            {"id": "s", "tool": "echo", "arguments": {"env": "prod-eu", "t": "bank"}},
            {"id": "p", "tool": "deploy", "arguments": {"env": "prod"}},
            {"id": "r", "tool": "deploy", "arguments": {"env": "${s.env}"}},
            {"id": "t", "tool": "deploy", "arguments": {"env": "test"}},
            {"id": "b", "tool": "put", "arguments": {"t": "bank"}},
            {"id": "c", "tool": "put", "arguments": {"t": "${s.t}"}},
            {"id": "o", "tool": "put", "arguments": {"t": "shop"}},
        )
    )

    assert states(turn) == dict.fromkeys("prbc", State.DENIED) | dict.fromkeys(
        "sto", State.SUCCEEDED
    )
    assert set(codes(turn).values()) == {Code.POLICY_DENIED}
    for name in "pr":
        assert failure(turn, name).message == (
            "Production is changed by the release job only. (policy.toml:2 (no-prod))"
        )
    assert "policy.toml:9" in failure(turn, "b").message
    assert "policy.toml:9" in failure(turn, "c").message
    rules = {fact.call: fact.rule for fact in theatre.kept(CallQueued)}
    assert rules[turn.call("t").id] == turn.call("t").rule == "policy.toml:13 (fine)"
    assert rules[turn.call("o").id] == "default"
    assert stage.entered == {"echo": 1, "deploy": 1, "put": 1}


def test_plan_mode_lets_only_pass_what_changes_nothing() -> None:
    async def mystery() -> str:
        return "?"

    stage = Stage()
    effects = [stage.tool(str(one), Return("x"), effect=one) for one in Effect]
    rule = Rule(Decision.ALLOW, tools=["*"], without_asking=True)
    theatre = Theatre(stage, *effects, mystery, policy=Policy([rule]))
    names = ["pure", "read", "write", "external", "mystery"]

    turn = theatre.enter(
        lambda run: run.submit(plan(*({"id": name, "tool": name} for name in names))),
        run={"mode": "plan"},
    )

    assert states(turn) == dict.fromkeys(names[:2], State.SUCCEEDED) | dict.fromkeys(
        names[2:], State.DENIED
    )
    assert failure(turn, "write").message == (
        "mode plan allows no write call, and write is write (mode plan)"
    )
    assert "it declares nothing, so it counts as external" in failure(turn, "mystery").message


def test_a_mode_is_kept_on_resume_changed_by_name_and_must_exist() -> None:
    stage = Stage()
    theatre = Theatre(stage, stage.tool("put", Return("x"), effect=Effect.WRITE), loops=None)
    put = plan({"id": "a", "tool": "put"})

    async def host(run: Run) -> State:
        return (await run.submit(put)).calls[0].state

    seen = [
        theatre.enter(host, run={"mode": "plan"}),
        theatre.enter(host),
        theatre.enter(host, run={"mode": "build"}),
        theatre.enter(host),
    ]
    with pytest.raises(PolicyError, match=r"mode 'plam': there is no such mode; did you mean 'pl"):
        theatre.enter(host, run={"mode": "plam"})

    assert seen == [State.DENIED, State.DENIED, State.SUCCEEDED, State.SUCCEEDED]
    assert theatre.enter(host) is State.SUCCEEDED


def test_a_stricter_mode_on_resume_holds_for_calls_that_were_let_pass_before() -> None:
    stage = Stage()
    put: dict[str, Any] = {"effect": Effect.WRITE, "schema": ANY}
    theatre = Theatre(
        stage,
        stage.tool("slow", Sleep(20), Log("{n}"), claims=["lane:L"], idempotent=True, **put),
        stage.tool("ask", Log("asked"), approval=True, **put),
        stage.tool("read", Sleep(20), Log("read"), claims=["lane:L"]),
    )

    async def first(run: Run) -> None:
        await run.submit(
            plan(
                {"id": "running", "tool": "slow", "arguments": {"n": 1}},
                {"id": "queued", "tool": "slow", "arguments": {"n": 2}},
                {"id": "asked", "tool": "ask"},
                {"id": "read", "tool": "read"},
            ),
            wait=False,
        )
        await asyncio.sleep(1)
        assert [call.state for call in run.turns[0].calls] == [
            State.RUNNING,
            State.QUEUED,
            State.AWAITING_APPROVAL,
            State.QUEUED,
        ]
        theatre.crash()

    theatre.enter(first)
    resumed = theatre.finish(run={"mode": "plan"})

    assert states(resumed) == dict.fromkeys(["running", "queued", "asked"], State.DENIED) | {
        "read": State.SUCCEEDED
    }
    assert failure(resumed, "running").happened is Happened.UNKNOWN
    assert "It had been started before" in failure(resumed, "running").message
    assert failure(resumed, "queued").happened is Happened.NOTHING
    assert stage.log == ["read"]


def test_what_a_new_policy_wants_to_ask_does_not_run_because_an_old_one_allowed_it() -> None:
    stage = Stage()
    slow = stage.tool("slow", Sleep(20), Log("{n}"), claims=["lane:L"], schema=ANY)
    theatre = Theatre(stage, slow)

    async def first(run: Run) -> None:
        calls = [{"id": n, "tool": "slow", "arguments": {"n": n}} for n in "ab"]
        await run.submit(plan(*calls), wait=False)
        await asyncio.sleep(1)
        theatre.crash()

    theatre.enter(first)
    asks = Policy([Rule(Decision.ASK, tools=["slow"], arguments={"n": "b"}, name="careful")])
    resumed = theatre.finish(policy=asks)

    assert states(resumed) == {"a": State.SUCCEEDED, "b": State.DENIED}
    assert "(rule 1 (careful))" in failure(resumed, "b").message
    assert failure(resumed, "b").hint == (
        "Ask for it again if it is still wanted: then a human is asked."
    )


def test_a_policy_that_raises_lets_nothing_pass_that_it_cannot_judge() -> None:
    class Moody(Policy):
        def decide(self, question: Question, /) -> Verdict:
            if question.tool == "bad":
                raise LookupError("no opinion")
            return super().decide(question)

    stage = Stage()
    theatre = Theatre(stage, echo(stage), stage.tool("bad", Log("bad"), Return(1)), policy=Moody())

    turn = theatre.play(
        plan(
            {"id": "a", "tool": "echo"},
            {"id": "b", "tool": "bad"},
            {"id": "c", "tool": "bad", "needs": ["a"]},
            {"id": "d", "tool": "echo", "after": ["b", "c"]},
        )
    )

    assert states(turn) == dict.fromkeys("ad", State.SUCCEEDED) | dict.fromkeys("bc", State.DENIED)
    assert failure(turn, "b").message == (
        "the policy could not judge this call: it raised LookupError: no opinion (policy error)"
    )
    assert stage.log == []


# Approvals


def asking(stage: Stage, name: str = "ask", *claims: str, **declared: Any) -> Tool[..., Any]:
    return stage.tool(
        name,
        Log("{n}"),
        Sleep(1),
        Return("{n}"),
        effect=Effect.WRITE,
        claims=claims,
        approval=True,
        schema=ANY,
        **declared,
    )


def asks(name: str, **more: Any) -> Plan:
    return {"id": name, "tool": "ask", "arguments": {"n": name}, **more}


@pytest.mark.parametrize("naming", ["provider", "own", "approval"])
def test_an_approval_is_answered_by_any_of_its_names(naming: str) -> None:
    stage = Stage()
    theatre = Theatre(stage, asking(stage))

    async def host(run: Run) -> Turn:
        turn = await run.submit(plan(asks("yes"), asks("no")), wait=False)
        yes, no = (turn.call(name) for name in ("yes", "no"))
        names: Any = {
            "provider": ["yes", "no"],
            "own": [yes.id, no.id],
            "approval": [one.id for one in run.approvals],
        }[naming]
        assert turn.open_calls == ["yes", "no"]
        assert [one.rule for one in run.approvals] == ["tool asks"] * 2
        assert run.approvals[0].reason == "ask is declared to ask for approval of each call"
        await run.approve(names[0], by="ann", reason="looks good")
        await run.deny(names[1], by="bob", reason="too dear")
        assert run.approvals == []
        await turn.wait()
        return turn

    turn = theatre.enter(host)

    assert values(turn) == {"yes": "yes"}
    assert turn.call("yes").rule == "approved by ann"
    assert states(turn)["no"] is State.DENIED
    assert failure(turn, "no").code is Code.APPROVAL_REJECTED
    assert failure(turn, "no").message == "A human refused this call by bob: too dear"
    assert [fact.approval for fact in theatre.kept(ApprovalAsked)] == ["t1.1.a1", "t1.2.a1"]
    assert stage.log == ["yes"]


def test_a_model_cannot_steer_an_answer_to_another_call_by_the_ids_it_chooses() -> None:
    stage = Stage()
    theatre = Theatre(stage, asking(stage))
    # A form that lets such ids through: the host's answer must still reach its own question.
    calls = [
        Asked(id="t1.2.a1", name="ask", arguments={"n": "evil"}),
        Asked(id="t1.1", name="ask", arguments={"n": "asked"}),
        Asked(id="t1.2", name="ask", arguments={"n": "other"}),
    ]
    message = {"role": "assistant", "calls": [{"id": call.id, "tool": "ask"} for call in calls]}
    reply = Reply(provider="plan", message=message, calls=tuple(calls))

    async def host(run: Run) -> Turn:
        turn = await run.submit(reply, wait=False)
        await run.approve(run.approvals[1].id)
        assert turn.call("t1.2").record.arguments == {"n": "asked"}
        await run.cancel("t1.1")
        assert turn.call("t1.2.a1").state is State.CANCELLED
        await run.deny("t1.3")
        await turn.wait()
        return turn

    turn = theatre.enter(host)

    assert stage.log == ["asked"]
    assert [call.state for call in turn.calls] == [
        State.CANCELLED,
        State.SUCCEEDED,
        State.DENIED,
    ]


def test_a_question_that_is_not_open_is_named_with_those_that_are() -> None:
    stage = Stage()
    theatre = Theatre(stage, asking(stage), echo(stage))

    async def host(run: Run) -> None:
        with pytest.raises(UnknownApprovalError, match=r"no open approval 'a' \(open: none\)"):
            await run.approve("a")
        turn = await run.submit(plan(asks("a"), asks("b"), {"id": "e", "tool": "echo"}), wait=False)
        for name in ("e", "t1.3", "", "t1.1.a2", "nobody"):
            with pytest.raises(UnknownApprovalError) as unknown:
                await run.deny(name)
            assert str(unknown.value) == (
                f"run 'r' has no open approval {name!r} (open: t1.1.a1, t1.2.a1)"
            )
        answers = [run.approve("a"), run.deny("a"), run.approve("t1.1")]
        results = await asyncio.gather(*answers, return_exceptions=True)
        assert [type(result) for result in results] == [
            type(None),
            UnknownApprovalError,
            UnknownApprovalError,
        ]
        await run.cancel("b")
        with pytest.raises(UnknownApprovalError):
            await run.approve("b")
        await turn.wait()

    theatre.enter(host)

    assert stage.log == ["a"]


def test_an_approval_binds_the_arguments_that_run_with_their_references_resolved() -> None:
    stage = Stage()
    ran: list[Any] = []
    send = stage.tool(
        "send",
        Do(lambda given: ran.append(json.loads(json.dumps(given)))),
        effect=Effect.EXTERNAL,
        approval=True,
        schema=ANY,
    )
    theatre = Theatre(stage, stage.tool("find", Return({"to": ["ann"]})), send)

    async def host(run: Run) -> tuple[Any, Turn]:
        turn = await run.submit(
            plan(
                {"id": "f", "tool": "find"},
                {"id": "s", "tool": "send", "arguments": {"to": {"$from": "f", "path": "to"}}},
            ),
            wait=False,
        )
        await asyncio.sleep(1)
        (question,) = run.approvals
        shown = json.loads(json.dumps(question.arguments))
        await run.approve(question.id)
        await turn.wait()
        return shown, turn

    shown, turn = theatre.enter(host)

    assert shown == {"to": ["ann"]}
    assert ran == [shown]
    assert values(turn)["f"] == {"to": ["ann"]}


def test_arguments_that_somebody_changed_after_asking_are_not_approved() -> None:
    stage = Stage()
    theatre = Theatre(stage, asking(stage))

    async def host(run: Run) -> Turn:
        turn = await run.submit(plan(asks("a")), wait=False)
        run.approvals[0].asked.arguments["n"] = "something else"
        with pytest.raises(UsageError, match=r"approval t1.1.a1 is stale: it was asked for somet"):
            await run.approve("a")
        await run.deny("a")
        await turn.wait()
        return turn

    assert states(theatre.enter(host)) == {"a": State.DENIED}
    assert stage.log == []


def test_a_tool_that_changed_over_a_restart_needs_a_new_question() -> None:
    stage = Stage()
    theatre = Theatre(stage, asking(stage, version="1"))

    async def first(run: Run) -> None:
        await run.submit(plan(asks("a")), wait=False)

    async def second(run: Run) -> Turn:
        with pytest.raises(UsageError, match=r"approval t1\.1\.a1 is stale"):
            await run.approve("a")
        await run.deny("a")
        turn = await run.finish()
        assert turn is not None
        return turn

    theatre.enter(first)
    theatre.tools = [asking(stage, version="2")]

    assert states(theatre.enter(second)) == {"a": State.DENIED}


def test_a_question_expires_and_a_late_answer_does_not_count() -> None:
    stage = Stage()
    theatre = Theatre(stage, asking(stage), echo(stage))

    async def host(run: Run) -> tuple[Turn, float]:
        began = now()
        turn = await run.submit(plan(asks("a"), {"id": "b", "tool": "echo", "needs": ["a"]}))
        with pytest.raises(UnknownApprovalError):
            await run.approve("a")
        return turn, now() - began

    turn, waited = theatre.enter(host)

    assert waited == 3600
    assert states(turn) == {"a": State.DENIED, "b": State.SKIPPED}
    assert codes(turn) == {"a": Code.APPROVAL_EXPIRED, "b": Code.DEPENDENCY_FAILED}
    assert failure(turn, "a").message == "Nobody answered in time whether this call may run."


def test_a_question_without_expiry_waits_for_ever() -> None:
    stage = Stage()
    theatre = Theatre(stage, asking(stage), limits=Limits(approval_seconds=math.inf))

    async def host(run: Run) -> Turn:
        turn = await run.submit(plan(asks("a")), wait=False)
        await asyncio.sleep(1e6)
        await run.approve("a")
        await turn.wait()
        return turn

    assert values(theatre.enter(host)) == {"a": "a"}


def test_a_question_keeps_its_end_over_a_restart() -> None:
    stage = Stage()
    theatre = Theatre(stage, asking(stage))

    async def first(run: Run) -> None:
        await run.submit(plan(asks("a")), wait=False)
        await asyncio.sleep(600)

    async def second(run: Run) -> tuple[Turn, float]:
        began = now()
        turn = await run.finish()
        assert turn is not None
        return turn, now() - began

    theatre.enter(first)
    theatre.wall_seconds = 600.0
    turn, waited = theatre.enter(second)

    assert codes(turn) == {"a": Code.APPROVAL_EXPIRED}
    assert waited == 3000


def test_a_question_that_ended_while_nobody_drove_the_run_is_over_at_once() -> None:
    stage = Stage()
    theatre = Theatre(stage, asking(stage))

    async def first(run: Run) -> None:
        await run.submit(plan(asks("a")), wait=False)

    async def second(run: Run) -> tuple[Turn, float]:
        with pytest.raises(UsageError, match=r"approval t1.1.a1 is expired: it was asked for som"):
            await run.approve("a")
        began = now()
        turn = await run.finish()
        assert turn is not None
        return turn, now() - began

    theatre.enter(first)
    theatre.wall_seconds = 3600.0
    turn, waited = theatre.enter(second)

    assert codes(turn) == {"a": Code.APPROVAL_EXPIRED}
    assert waited == 0


def test_a_question_is_answered_after_a_restart_before_the_turn_goes_on() -> None:
    stage = Stage()
    theatre = Theatre(stage, asking(stage), stage.tool("find", Return("found")))

    async def first(run: Run) -> None:
        await run.submit(
            plan({"id": "f", "tool": "find"}, asks("x", arguments={"n": "${f}"}), asks("y")),
            wait=False,
        )
        await asyncio.sleep(1)

    async def second(run: Run) -> Turn:
        # In the order of asking: the other one had to wait for what it refers to.
        assert [one.id for one in run.approvals] == ["t1.3.a1", "t1.2.a1"]
        assert run.approvals[1].arguments == {"n": "found"}
        await run.approve("t1.2.a1", by="ann")
        await run.deny("y")
        await asyncio.sleep(5)
        turn = await run.finish()
        assert turn is not None
        return turn

    theatre.enter(first)
    turn = theatre.enter(second)

    assert values(turn) == {"f": "found", "x": "found"}
    assert codes(turn) == {"y": Code.APPROVAL_REJECTED}
    assert stage.log == ["found"]


def conflicting(stage: Stage) -> tuple[list[Tool[..., Any]], Plan]:
    """One call that asks; one that conflicts, one that needs it, and one that does neither."""
    tools = [
        asking(stage, "ask", "write db:t"),
        stage.tool("put", Sleep(1), effect=Effect.WRITE, claims=["write db:t"], schema=ANY),
        stage.tool("other", Sleep(1), effect=Effect.WRITE, claims=["write db:u"], schema=ANY),
        stage.tool("free", Sleep(1), effect=Effect.WRITE, claims=["write db:v"], schema=ANY),
    ]
    calls = plan(
        {"id": "before", "tool": "put", "arguments": {"n": "before"}},
        asks("ask"),
        {"id": "after", "tool": "put", "arguments": {"n": "after"}},
        {"id": "needs", "tool": "other", "arguments": {"n": "needs"}, "needs": ["ask"]},
        {"id": "free", "tool": "free", "arguments": {"n": "free"}},
    )
    return tools, calls


@pytest.mark.parametrize("order", ["keep", "overtake"])
def test_who_does_not_meet_a_call_that_asks_goes_on_and_who_does_waits_or_passes(
    order: str,
) -> None:
    stage = Stage()
    tools, calls = conflicting(stage)
    theatre = Theatre(stage, *tools, approval_order=order)

    async def host(run: Run) -> dict[str, tuple[float, float]]:
        turn = await run.submit(calls, wait=False)
        began = now()
        await asyncio.sleep(10)
        lanes = [lane.resource for lane in run._engine.status().lanes if lane.holders]
        assert lanes == []
        await run.approve("ask")
        await turn.wait()
        assert set(states(turn).values()) == {State.SUCCEEDED}
        return {name: (one - began, two - began) for name, (one, two) in spans(stage).items()}

    assert theatre.enter(host) == {
        "before": (0, 1),
        "ask": (10, 11),
        "after": (11, 12) if order == "keep" else (1, 2),
        "needs": (11, 12),
        "free": (0, 1),
    }


@pytest.mark.parametrize("order", ["keep", "overtake"])
def test_the_order_of_conflicts_with_a_call_that_asks_survives_a_restart(order: str) -> None:
    stage = Stage()
    tools, calls = conflicting(stage)
    theatre = Theatre(stage, *tools, approval_order=order)

    async def first(run: Run) -> None:
        await run.submit(calls, wait=False)
        await asyncio.sleep(1.5)
        theatre.crash()

    async def second(run: Run) -> list[str]:
        stage.executions.clear()
        finishing = asyncio.create_task(run.finish())
        await asyncio.sleep(10)
        await run.approve("ask")
        await finishing
        return [one.arguments["n"] for one in stage.executions]

    theatre.enter(first)
    ran = theatre.enter(second)

    assert ran.index("ask") < ran.index("needs")
    if order == "keep":
        assert ran.index("ask") < ran.index("after")
    else:
        assert "after" not in ran or ran.index("after") < ran.index("ask")


def test_closing_a_turn_withdraws_its_questions_also_those_still_to_come() -> None:
    stage = Stage()
    theatre = Theatre(stage, asking(stage), stage.tool("slow", Sleep(5), Return("s")))

    async def host(run: Run) -> tuple[Turn, float]:
        turn = await run.submit(
            plan({"id": "s", "tool": "slow"}, asks("now"), asks("later", needs=["s"])), wait=False
        )
        await asyncio.sleep(1)
        began = now()
        await turn.close()
        await turn.close()
        return turn, now() - began

    turn, waited = theatre.enter(host)

    assert waited == 4
    assert states(turn) == {"s": State.SUCCEEDED} | dict.fromkeys(["now", "later"], State.CANCELLED)
    for name in ("now", "later"):
        assert failure(turn, name).message == (
            "The call was cancelled: the turn was closed before a human answered. It had not been "
            "started."
        )
    assert stage.log == []


def test_a_turn_that_waits_for_humans_is_parked_when_the_run_is_left() -> None:
    stage = Stage()
    theatre = Theatre(stage, asking(stage), echo(stage))

    async def first(run: Run) -> None:
        turn = await run.submit(
            plan(asks("a"), {"id": "b", "tool": "echo", "needs": ["a"]}), wait=False
        )
        with pytest.raises(TurnNotReadyError, match="turn 1 is not ready: calls a, b are open; "):
            _ = turn.messages
        assert repr(turn) == "<Turn 1 of run 'r', 2 calls, open: a, b>"

    async def second(run: Run) -> Turn:
        assert run.open_turn is not None
        assert run.open_turn.open_calls == ["a", "b"]
        with pytest.raises(OpenTurnError) as refused:
            await run.submit(plan({"id": "c", "tool": "echo"}))
        assert str(refused.value) == (
            "run 'r' has an open turn 1 (calls a, b are open); wait for it, or end it with "
            "`await run.finish()`, before the next turn"
        )
        await run.approve("a")
        turn = await run.finish()
        assert turn is not None
        return turn

    theatre.enter(first)

    assert set(states(theatre.enter(second)).values()) == {State.SUCCEEDED}


def test_a_mode_may_ask_instead_of_refusing_and_is_named_as_who_asks() -> None:
    stage = Stage()
    careful = Mode("careful", frozenset({Effect.READ}), Decision.ASK)
    theatre = Theatre(
        stage,
        echo(stage),
        stage.tool("put", Log("put"), Return("ok"), effect=Effect.WRITE),
        policy=Policy(modes=[careful]),
    )

    async def host(run: Run) -> Turn:
        turn = await run.submit(
            plan({"id": "r", "tool": "echo"}, {"id": "w", "tool": "put"}), wait=False
        )
        (question,) = run.approvals
        assert (question.rule, question.call) == ("mode careful", "t1.2")
        assert question.reason == (
            "in mode careful a human approves each write call, and put is write"
        )
        await run.approve("w")
        await turn.wait()
        return turn

    turn = theatre.enter(host, run={"mode": "careful"})

    assert values(turn) == {"r": {}, "w": "ok"}
    assert turn.call("w").rule == "approved"


def test_a_policy_that_gives_no_verdict_lets_nothing_pass() -> None:
    class Silent(Policy):
        def decide(self, question: Question, /) -> Verdict:
            return None  # type: ignore[return-value]

    stage = Stage()

    turn = Theatre(stage, echo(stage), policy=Silent()).play(plan({"id": "a", "tool": "echo"}))

    assert codes(turn) == {"a": Code.POLICY_DENIED}
    assert "it raised TypeError: it gave NoneType, not a Verdict" in failure(turn, "a").message


def test_a_rule_whose_words_no_journal_can_keep_is_refused() -> None:
    with pytest.raises(PolicyError, match="rule 1: reason holds half a character, which no jour"):
        Policy([Rule(Decision.DENY, tools=["x"], reason="half \ud83d")])


def test_a_run_that_is_serial_only_since_it_was_taken_up_keeps_its_approvals() -> None:
    stage = Stage()
    theatre = Theatre(stage, asking(stage), stage.tool("slow", Sleep(1), schema=ANY))

    async def first(run: Run) -> None:
        calls = [{"id": n, "tool": "slow", "arguments": {"n": n}, "needs": ["a"]} for n in "bc"]
        await run.submit(plan(asks("a"), *calls), wait=False)

    async def second(run: Run) -> Turn:
        await run.approve("a")
        turn = await run.finish()
        assert turn is not None
        return turn

    theatre.enter(first)
    turn = theatre.enter(second, run={"parallel": False})

    assert set(states(turn).values()) == {State.SUCCEEDED}
    ran = spans(stage)
    assert ran["b"][1] <= ran["c"][0]
