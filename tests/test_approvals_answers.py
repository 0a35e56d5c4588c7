"""Answers that change the arguments, hold for later calls, or need several people."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laneway import (
    Code,
    Decision,
    Effect,
    Policy,
    Rule,
    Run,
    Secret,
    State,
    Tool,
    ToolContext,
    Turn,
    tool,
)
from laneway.claims import exclusive, shared
from laneway.errors import (
    EngineClosedError,
    PolicyError,
    ToolError,
    UnknownApprovalError,
    UsageError,
)
from laneway.facts import (
    ApprovalAnswered,
    ApprovalAsked,
    AttemptEnded,
    CallEnded,
    CallQueued,
    CallStarted,
    Fact,
    GrantRevoked,
)
from laneway.journal.fold import fold
from laneway.policies.grants import covers, grant
from laneway.policies.modes import Mode
from laneway.testing.scripted import Log, Return, Sleep, Stage
from laneway.testing.theatre import RUN, Theatre, codes, failure, plan, states, values

ANY = {"type": "object"}
TEXT = {
    "type": "object",
    "properties": {"n": {"type": "string"}, "path": {"type": "string"}},
    "required": ["n"],
    "additionalProperties": False,
}

DB = {"type": "object", "properties": {"n": {"type": "string"}, "db": {"type": "string"}}}

Plan = dict[str, Any]


def asking(stage: Stage, name: str = "ask", *claims: str, **declared: Any) -> Tool[..., Any]:
    given: dict[str, Any] = {"effect": Effect.WRITE, "approval": True, "schema": TEXT, **declared}
    return stage.tool(
        name, Log("{n}"), Sleep(1), Return("{n}"), claims=claims or ["lane:{n}"], **given
    )


def asks(name: str, tool: str = "ask", **more: Any) -> Plan:
    return {"id": name, "tool": tool, "arguments": {"n": name}, **more}


async def moment() -> None:
    """Let whatever is ready happen."""
    await asyncio.sleep(0.1)


# Edits


def test_changed_arguments_run_in_place_of_those_that_were_asked_for() -> None:
    stage = Stage()
    theatre = Theatre(stage, asking(stage))

    async def host(run: Run) -> Turn:
        turn = await run.submit(plan(asks("a")), wait=False)
        await run.approve("a", by="ann", arguments={"n": "b"})
        await turn.wait()
        return turn

    turn = theatre.enter(host)

    assert stage.log == ["b"]
    call = turn.call("a")
    assert call.record.arguments == {"n": "a"}
    assert call.edit is not None
    assert call.edit.arguments == {"n": "b"}
    assert call.rule == "approved by ann"
    (answered,) = theatre.kept(ApprovalAnswered)
    assert answered.edit == call.edit
    assert call.edit.digest != theatre.kept(ApprovalAsked)[0].digest
    assert theatre.kept(CallQueued)[0].claims == call.edit.claims


@pytest.mark.parametrize("provider", ["plan", "openai-chat", "anthropic-messages"])
def test_the_model_is_told_what_a_human_made_of_its_arguments(provider: str) -> None:
    stage = Stage()
    theatre = Theatre(stage, asking(stage))
    reply: Any = {
        "plan": plan(asks("a")),
        "openai-chat": {
            "choices": [
                {
                    "message": {
                        "role": "assistant",
                        "content": None,
                        "tool_calls": [
                            {
                                "id": "a",
                                "type": "function",
                                "function": {"name": "ask", "arguments": '{"n":"a"}'},
                            }
                        ],
                    },
                    "finish_reason": "tool_calls",
                }
            ]
        },
        "anthropic-messages": {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "a", "name": "ask", "input": {"n": "a"}}],
            "stop_reason": "tool_use",
        },
    }[provider]

    async def host(run: Run) -> Any:
        turn = await run.submit(reply, wait=False)
        await run.approve("a", arguments={"n": "b"})
        await turn.wait()
        return turn.messages, run.history()

    messages, history = theatre.enter(host)
    told: Any = {
        "plan": lambda: messages[-1]["results"][0]["note"],
        "openai-chat": lambda: messages[-1]["content"],
        "anthropic-messages": lambda: messages[-1]["content"][0]["content"],
    }[provider]()
    note = 'A human changed the arguments of this call to: {"n":"b"}'
    assert told == (note if provider == "plan" else f"{note}\n\nb")
    assert "b" not in str(messages[0])
    assert history == messages


def test_the_idempotency_key_is_that_of_what_runs() -> None:
    keys: list[str] = []

    @tool(effect=Effect.EXTERNAL, approval=True, claims=[])
    async def pay(amount: int, context: ToolContext) -> str:
        keys.append(context.idempotency_key)
        return "paid"

    def key(edit: Any, asked: int) -> str:
        theatre = Theatre(Stage(), pay)

        async def host(run: Run) -> None:
            calls = plan({"id": "p", "tool": "pay", "arguments": {"amount": asked}})
            turn = await run.submit(calls, wait=False)
            await run.approve("p", arguments=edit)
            await turn.wait()

        theatre.enter(host)
        return keys[-1]

    assert key({"amount": 5}, 7) == key(None, 5)
    assert key(None, 7) != key(None, 5)


def test_changed_arguments_that_do_not_fit_are_refused_and_the_question_stays_open() -> None:
    stage = Stage()
    claims = stage.tool(
        "put",
        Log("put"),
        effect=Effect.WRITE,
        approval=True,
        claims=["write file:{n}"],
        schema=TEXT,
    )
    theatre = Theatre(stage, asking(stage), claims)

    async def host(run: Run) -> Turn:
        turn = await run.submit(
            plan(asks("a"), {"id": "p", "tool": "put", "arguments": {"n": "x"}}), wait=False
        )
        for arguments, told in (
            ({}, r"cannot be used: .*n.*; the question is still open"),
            ({"n": "b", "more": 1}, "more"),
            ({"n": object()}, "cannot be told in JSON"),
            ({"n": "[secret: not kept]"}, "no secret is known that it could mean"),
        ):
            with pytest.raises(UsageError, match=told):
                await run.approve("a", arguments=arguments)
        with pytest.raises(
            UsageError, match=r"the changed arguments of t1\.2 \(put\) cannot be us"
        ):
            await run.approve("p", arguments={"n": "a\0b"})
        with pytest.raises(UsageError, match="for_='all' is no scope"):
            await run.approve("a", for_="all")  # type: ignore[arg-type]
        assert len(run.approvals) == 2
        await run.deny("a")
        await run.deny("p")
        await turn.wait()
        return turn

    assert set(states(theatre.enter(host)).values()) == {State.DENIED}
    assert [one.granted for one in theatre.kept(ApprovalAnswered)] == [False, False]
    assert stage.log == []


def test_a_policy_that_denies_the_changed_arguments_ends_the_call() -> None:
    stage = Stage()
    never = Rule(Decision.DENY, tools=["ask"], arguments={"n": "prod"}, name="no-prod")
    theatre = Theatre(stage, asking(stage), policy=Policy([never]))

    async def host(run: Run) -> Turn:
        turn = await run.submit(plan(asks("a")), wait=False)
        await run.approve("a", arguments={"n": "prod"}, by="ann")
        await turn.wait()
        return turn

    turn = theatre.enter(host)

    assert states(turn) == {"a": State.DENIED}
    assert failure(turn, "a").code is Code.POLICY_DENIED
    assert turn.call("a").rule == "rule 1 (no-prod)"
    assert stage.log == []


def test_what_a_changed_call_may_do_is_judged_by_what_runs() -> None:
    stage = Stage()
    shell = stage.tool(
        "sh",
        Log("{n}"),
        effect=Effect.WRITE,
        effect_of=lambda given: Effect.READ if given["n"] == "ls" else Effect.WRITE,
        claims=[],
        approval=True,
        schema=TEXT,
    )
    theatre = Theatre(stage, shell)

    async def host(run: Run) -> None:
        calls = plan({"id": "a", "tool": "sh", "arguments": {"n": "ls"}})
        turn = await run.submit(calls, wait=False)
        assert turn.call("a").record.effect is Effect.READ
        assert turn.call("a").record.idempotent
        await run.approve("a", arguments={"n": "rm"})
        await turn.wait()
        assert turn.call("a").record.effect is Effect.WRITE
        assert not turn.call("a").record.idempotent

    theatre.enter(host)


@pytest.mark.parametrize("when", ["queued", "running"])
def test_what_was_changed_survives_a_crash_right_after_the_answer(when: str) -> None:
    stage = Stage()
    theatre = Theatre(
        stage,
        asking(stage, "ask", "write file:{n}", idempotent=True),
        stage.tool("hold", Sleep(5), effect=Effect.WRITE, claims=["write file:b"], schema=ANY),
    )

    async def first(run: Run) -> None:
        before = [{"id": "h", "tool": "hold"}] if when == "queued" else []
        await run.submit(plan(*before, asks("a")), wait=False)
        await moment()
        await run.approve("a", by="ann", arguments={"n": "b"})
        await moment()
        theatre.crash()

    theatre.enter(first)
    live = len(stage.log)
    turn = theatre.finish()

    assert values(turn)["a"] == "b"
    assert stage.log[live:] == ["b"]
    assert turn.call("a").edit is not None


def test_a_call_whose_tool_is_gone_takes_no_other_arguments() -> None:
    stage = Stage()
    theatre = Theatre(stage, asking(stage))

    async def first(run: Run) -> None:
        await run.submit(plan(asks("a")), wait=False)

    async def second(run: Run) -> Turn:
        with pytest.raises(UsageError, match=r"no tool 'ask' any more, so t1\.1 cannot run"):
            await run.approve("a", arguments={"n": "b"})
        with pytest.raises(UsageError, match="there is no tool 'ask' any more"):
            await run.approve("a", for_="run")
        await run.approve("a")
        turn = await run.finish()
        assert turn is not None
        return turn

    theatre.enter(first)
    theatre.tools = []

    assert codes(theatre.enter(second)) == {"a": Code.UNKNOWN_TOOL}


def test_no_answer_lifts_what_the_policy_denies_by_now() -> None:
    stage = Stage()
    theatre = Theatre(stage, asking(stage))

    async def first(run: Run) -> None:
        await run.submit(plan(asks("a")), wait=False)

    async def second(run: Run) -> Turn:
        await run.approve("a", by="ann")
        turn = run.open_turn or run.turns[0]
        assert turn.call("a").state is State.DENIED
        return turn

    theatre.enter(first)
    turn = theatre.enter(second, policy=Policy([Rule(Decision.DENY, tools=["ask"], name="stop")]))

    assert failure(turn, "a").code is Code.POLICY_DENIED
    assert turn.call("a").rule == "rule 1 (stop)"


# Order, where an edit claims more


def writers(stage: Stage, **declared: Any) -> list[Tool[..., Any]]:
    put: dict[str, Any] = {"effect": Effect.WRITE, "schema": DB, **declared}
    return [
        stage.tool("ask", Log("{n}"), Sleep(1), approval=True, claims=["write db:{db}"], **put),
        stage.tool("put", Log("{n}"), Sleep(1), claims=["write db:{db}"], **put),
        stage.tool("slow", Log("{n}"), Sleep(10), claims=["write db:{db}"], **put),
    ]


def writes(name: str, db: str, tool: str = "put", **more: Any) -> Plan:
    return {"id": name, "tool": tool, "arguments": {"n": name, "db": db}, **more}


def test_a_changed_call_comes_before_what_it_now_conflicts_with_and_was_asked_for_later() -> None:
    stage = Stage()
    theatre = Theatre(stage, *writers(stage))

    async def host(run: Run) -> Turn:
        turn = await run.submit(
            plan(
                writes("hold", "y", "slow"),
                writes("a", "x", "ask"),
                writes("later", "y"),
                writes("last", "z", after=["hold"]),
            ),
            wait=False,
        )
        await moment()
        await run.approve("a", arguments={"n": "a", "db": "y"})
        await turn.wait()
        return turn

    turn = theatre.enter(host)

    assert set(states(turn).values()) == {State.SUCCEEDED}
    assert [one for one in stage.log if one in ("hold", "a", "later")] == ["hold", "a", "later"]
    edges = {(edge.source, edge.target) for edge in theatre.kept(ApprovalAnswered)[0].edges}
    assert edges == {("t1.2", "t1.3")}


def test_a_changed_call_waits_for_what_it_now_conflicts_with_and_was_asked_for_earlier() -> None:
    stage = Stage()
    theatre = Theatre(stage, *writers(stage))

    async def host(run: Run) -> Turn:
        turn = await run.submit(
            plan(
                writes("first", "q", "slow"),
                writes("early", "y", needs=["first"]),
                writes("a", "x", "ask"),
            ),
            wait=False,
        )
        await moment()
        await run.approve("a", by="ann", arguments={"n": "a", "db": "y"})
        assert turn.call("a").state is State.PENDING
        assert theatre.kept(ApprovalAnswered)[0].waits
        (waiting,) = [one for one in run.explain() if one.call == "t1.3"]
        assert [(wait.on, wait.what) for wait in waiting.waits] == [("t1.2", "conflict over db:y")]
        await turn.wait()
        return turn

    turn = theatre.enter(host)

    assert stage.log == ["first", "early", "a"]
    assert turn.call("a").rule == "approved by ann"
    assert len(theatre.kept(ApprovalAsked)) == 1


def test_a_call_that_waits_in_a_lane_is_taken_out_of_it_for_an_earlier_one() -> None:
    stage = Stage()
    put, hold, ask = writers(stage)[1:] + writers(stage)[:1]
    outside = stage.tool("outside", Sleep(5), effect=Effect.WRITE, claims=["lane:l"], schema=ANY)
    both = stage.tool(
        "both",
        Log("{n}"),
        Sleep(1),
        effect=Effect.WRITE,
        claims=["lane:l", "write db:{db}"],
        schema=DB,
    )
    theatre = Theatre(stage, put, hold, ask, outside, both)

    async def host(run: Run) -> Turn:
        turn = await run.submit(
            plan({"id": "o", "tool": "outside"}, writes("a", "x", "ask"), writes("b", "y", "both")),
            wait=False,
        )
        await moment()
        assert turn.call("b").state is State.QUEUED
        await run.approve("a", arguments={"n": "a", "db": "y"})
        assert turn.call("b").state is State.PENDING
        await turn.wait()
        return turn

    turn = theatre.enter(host)

    assert stage.log == ["a", "b"]
    assert set(states(turn).values()) == {State.SUCCEEDED}


def test_the_order_that_an_edit_has_drawn_is_the_same_after_a_crash() -> None:
    stage = Stage()
    theatre = Theatre(stage, *writers(stage, idempotent=True))

    async def first(run: Run) -> None:
        await run.submit(
            plan(
                writes("first", "q", "slow"),
                writes("early", "y", needs=["first"]),
                writes("a", "x", "ask"),
                writes("late", "y", needs=["first"]),
            ),
            wait=False,
        )
        await moment()
        await run.approve("a", arguments={"n": "a", "db": "y"})
        theatre.crash()

    theatre.enter(first)
    stage.log.clear()
    turn = theatre.finish()

    assert set(states(turn).values()) == {State.SUCCEEDED}
    assert stage.log == ["first", "early", "a", "late"]


def test_an_earlier_call_that_needs_the_changed_one_does_not_wait_for_itself() -> None:
    stage = Stage()
    theatre = Theatre(stage, *writers(stage))

    async def host(run: Run) -> Turn:
        turn = await run.submit(
            plan(writes("x", "y", needs=["a"]), writes("a", "x", "ask"), writes("z", "y")),
            wait=False,
        )
        await moment()
        await run.approve("a", arguments={"n": "a", "db": "y"})
        await turn.wait()
        return turn

    turn = theatre.enter(host)

    assert set(states(turn).values()) == {State.SUCCEEDED}
    assert stage.log.index("a") < stage.log.index("x")


def test_two_changed_calls_keep_the_order_of_the_request_however_they_are_answered() -> None:
    stage = Stage()
    theatre = Theatre(stage, *writers(stage))

    async def host(run: Run) -> Turn:
        turn = await run.submit(plan(writes("a", "x", "ask"), writes("b", "z", "ask")), wait=False)
        await run.approve("b", arguments={"n": "b", "db": "x"})
        assert turn.call("b").state is State.PENDING
        await run.approve("a")
        await turn.wait()
        return turn

    turn = theatre.enter(host)

    assert set(states(turn).values()) == {State.SUCCEEDED}
    assert stage.log == ["a", "b"]


def test_a_call_that_asks_and_comes_after_a_changed_one_waits_once_it_is_answered() -> None:
    stage = Stage()
    theatre = Theatre(stage, *writers(stage))

    async def host(run: Run) -> Turn:
        turn = await run.submit(plan(writes("a", "x", "ask"), writes("b", "z", "ask")), wait=False)
        await run.approve("a", arguments={"n": "a", "db": "z"})
        await run.approve("b", by="bob")
        assert turn.call("b").state is State.PENDING
        await turn.wait()
        return turn

    turn = theatre.enter(host)

    assert stage.log == ["a", "b"]
    assert turn.call("b").rule == "approved by bob"


def test_a_call_that_may_be_overtaken_is_not_waited_for() -> None:
    stage = Stage()
    theatre = Theatre(stage, *writers(stage), approval_order="overtake")

    async def host(run: Run) -> Turn:
        turn = await run.submit(plan(writes("a", "x", "ask"), writes("b", "z", "ask")), wait=False)
        await run.approve("b", arguments={"n": "b", "db": "x"})
        await moment()
        assert turn.call("b").state is State.RUNNING
        await run.deny("a")
        await turn.wait()
        return turn

    assert states(theatre.enter(host)) == {"a": State.DENIED, "b": State.SUCCEEDED}


# Secrets


@tool(effect=Effect.WRITE, approval=True, claims=["lane:login"])
async def login(user: str, password: Annotated[str, Secret]) -> str:
    SEEN.append((user, password))
    return "in"


SEEN: list[tuple[str, str]] = []


def log_in(password: str) -> Plan:
    return plan({"id": "l", "tool": "login", "arguments": {"user": "ann", "password": password}})


def test_a_secret_that_is_left_as_it_was_shown_stays_what_it_was() -> None:
    SEEN.clear()
    theatre = Theatre(Stage(), login)

    async def host(run: Run) -> Any:
        turn = await run.submit(log_in("hunter2"), wait=False)
        shown = run.approvals[0].arguments
        assert shown == {"user": "ann", "password": "[secret: not kept]"}
        await run.approve("l", arguments={**shown, "user": "bob"})
        await turn.wait()
        return turn.messages

    messages = theatre.enter(host)

    assert SEEN == [("bob", "hunter2")]
    assert "hunter2" not in str(theatre.facts) + str(messages)


def test_a_secret_that_a_human_writes_is_kept_nowhere() -> None:
    SEEN.clear()
    theatre = Theatre(Stage(), login)

    async def host(run: Run) -> Any:
        turn = await run.submit(log_in("hunter2"), wait=False)
        await run.approve("l", arguments={"user": "ann", "password": "correct horse"})
        await turn.wait()
        return turn.messages

    messages = theatre.enter(host)

    assert SEEN == [("ann", "correct horse")]
    assert "correct horse" not in str(theatre.facts) + str(messages)


def test_a_changed_call_whose_secret_is_lost_with_its_driver_does_not_run() -> None:
    SEEN.clear()
    theatre = Theatre(Stage(), login)

    async def first(run: Run) -> None:
        await run.submit(log_in("hunter2"), wait=False)
        theatre.crash()

    async def second(run: Run) -> Turn:
        with pytest.raises(UsageError, match="no secret is known that it could mean"):
            await run.approve("l", arguments=run.approvals[0].arguments)
        await run.approve("l", arguments={"user": "ann", "password": "written again"})
        turn = await run.finish()
        assert turn is not None
        return turn

    theatre.enter(first)
    assert states(theatre.enter(second)) == {"l": State.SUCCEEDED}
    assert SEEN == [("ann", "written again")]


# Grants


def test_a_grant_for_the_run_lets_later_calls_of_the_tool_pass_and_names_who_gave_it() -> None:
    stage = Stage()
    theatre = Theatre(stage, asking(stage), asking(stage, "other"))

    async def host(run: Run) -> Turn:
        turn = await run.submit(plan(asks("a")), wait=False)
        await run.approve("a", by="ann", for_="run", reason="go ahead")
        await turn.wait()
        (given,) = run.grants
        assert (given.id, given.by, given.grant.tool) == ("t1.1.a1", "ann", "ask")
        turn = await run.submit(plan(asks("b"), asks("c", "other")), wait=False)
        assert [one.call for one in run.approvals] == ["t2.2"]
        await run.deny("c")
        await turn.wait()
        return turn

    turn = theatre.enter(host)

    assert states(turn) == {"b": State.SUCCEEDED, "c": State.DENIED}
    assert turn.call("b").rule == "granted by ann for this run (t1.1.a1)"


def test_a_grant_for_a_pattern_holds_for_what_fits_and_survives_a_restart_until_revoked() -> None:
    stage = Stage()
    theatre = Theatre(stage, asking(stage))

    async def first(run: Run) -> None:
        turn = await run.submit(plan(asks("a")), wait=False)
        await run.approve("a", by="ann", pattern={"n": "doc*"})
        await turn.wait()

    async def second(run: Run) -> None:
        turn = await run.submit(plan(asks("doc1"), asks("prod")), wait=False)
        assert [one.arguments for one in run.approvals] == [{"n": "prod"}]
        await run.deny("prod")
        await turn.wait()
        assert turn.call("doc1").rule == "granted by ann for such calls in this run (t1.1.a1)"
        await run.revoke("t1.1.a1", by="bob", reason="done")
        with pytest.raises(
            UsageError, match=r"no grant 't1\.1\.a1' \(grants: none\); it was revok"
        ):
            await run.revoke("t1.1.a1")
        with pytest.raises(UsageError, match="no grant 'x'"):
            await run.revoke("x")
        assert run.grants == []
        turn = await run.submit(plan(asks("doc2")), wait=False)
        assert len(run.approvals) == 1
        await run.deny("doc2")
        await turn.wait()

    theatre.enter(first)
    theatre.enter(second)

    (revoked,) = theatre.kept(GrantRevoked)
    assert (revoked.grant, revoked.by, revoked.reason) == ("t1.1.a1", "bob", "done")


def test_a_call_that_a_grant_let_pass_is_not_asked_about_when_the_run_is_taken_up() -> None:
    stage = Stage()
    theatre = Theatre(stage, asking(stage, "ask", "lane:one", idempotent=True))

    async def first(run: Run) -> None:
        turn = await run.submit(plan(asks("a")), wait=False)
        await run.approve("a", for_="run", by="ann")
        await turn.wait()
        await run.submit(plan(asks("b"), asks("c")), wait=False)
        await moment()
        theatre.crash()

    theatre.enter(first)
    turn = theatre.finish()

    assert states(turn) == {"b": State.SUCCEEDED, "c": State.SUCCEEDED}


def test_a_grant_goes_beyond_no_deny_no_mode_and_nothing_that_is_asked_each_time() -> None:
    stage = Stage()
    rules = [
        Rule(Decision.DENY, tools=["ask"], arguments={"n": "never"}, name="never"),
        Rule(Decision.ASK, tools=["ask"], arguments={"n": "each"}, ask_each_time=True),
        Rule(Decision.ASK, tools=["ask"], arguments={"n": "two"}, approvers=2),
    ]
    careful = Mode("careful", frozenset({Effect.READ}), Decision.ASK)
    theatre = Theatre(stage, asking(stage), policy=Policy(rules, modes=[careful]))

    async def first(run: Run) -> Turn:
        turn = await run.submit(plan(asks("a")), wait=False)
        await run.approve("a", for_="run")
        await turn.wait()
        calls = plan(asks("never"), asks("each"), asks("two"), asks("fine"))
        turn = await run.submit(calls, wait=False)
        assert [one.arguments["n"] for one in run.approvals] == ["each", "two"]
        with pytest.raises(UsageError, match="ask is asked about each time, so nothing can be gr"):
            await run.approve("each", for_="run")
        with pytest.raises(UsageError, match="ask needs several people, so nothing can be grant"):
            await run.approve("two", by="ann", pattern={"n": "*"})
        await run.deny("each")
        await run.deny("two")
        await turn.wait()
        return turn

    turn = theatre.enter(first)
    assert codes(turn)["never"] is Code.POLICY_DENIED
    assert turn.call("fine").state is State.SUCCEEDED

    async def second(run: Run) -> None:
        turn = await run.submit(plan(asks("later")), wait=False)
        (question,) = run.approvals
        assert question.asked.each_time
        await run.deny("later")
        await turn.wait()

    theatre.enter(second, run={"mode": "careful"})


def test_a_grant_ends_with_the_version_of_its_tool() -> None:
    stage = Stage()
    theatre = Theatre(stage, asking(stage, version="1"))

    async def first(run: Run) -> None:
        turn = await run.submit(plan(asks("a")), wait=False)
        await run.approve("a", for_="run")
        await turn.wait()

    async def second(run: Run) -> None:
        turn = await run.submit(plan(asks("b")), wait=False)
        assert len(run.approvals) == 1
        await run.deny("b")
        await turn.wait()

    theatre.enter(first)
    theatre.tools = [asking(stage, version="2")]
    theatre.enter(second)


def test_a_pattern_is_read_before_anything_is_granted() -> None:
    assert covers(grant("t", "1", {"a.b": "x*"}), "t", "1", {"a": {"b": "xy"}})
    assert not covers(grant("t", "1", {"path": "src/*"}), "t", "1", {"path": "src/../etc"})
    assert not covers(grant("t", "1", {"path": "src/*"}), "t", "1", {})
    assert not covers(grant("t", "1"), "t", "2", {})
    with pytest.raises(UsageError, match="an empty pattern says nothing"):
        grant("t", "1", {})
    with pytest.raises(UsageError, match=r"the pattern of the grant, a: "):
        grant("t", "1", {"a": {"regex": "("}})


def test_neither_a_body_nor_a_call_within_another_grants_anything_for_later() -> None:
    stage = Stage()
    told: list[str] = []
    runs: list[Run] = []

    @tool(effect=Effect.READ, claims=[])
    async def sly() -> str:
        with pytest.raises(UsageError) as refused:
            await runs[0].approve("a", for_="run")
        told.append(str(refused.value))
        return "tried"

    @tool(effect=Effect.READ, claims=[])
    async def outer(context: ToolContext) -> str:
        await context.invoke("ask", n="inner")
        return "done"

    theatre = Theatre(stage, asking(stage), sly, outer)

    async def host(run: Run) -> Turn:
        runs.append(run)
        turn = await run.submit(
            plan(asks("a"), {"id": "s", "tool": "sly"}, {"id": "o", "tool": "outer"}), wait=False
        )
        await moment()
        inner = run.approvals[-1]
        assert inner.id == "r/t1.3/1/t1.1.a1"
        with pytest.raises(UsageError, match="is a call within another, which is approved by its"):
            await run.approve(inner.id, for_="run")
        await run.approve(inner.id, arguments={"n": "changed"})
        await run.deny("a")
        await turn.wait()
        return turn

    theatre.enter(host)

    assert told == ["only a human grants later calls; this was said within a tool's body"]
    assert stage.log == ["changed"]


def test_a_pattern_that_is_no_json_is_refused() -> None:
    stage = Stage()
    theatre = Theatre(stage, asking(stage))

    async def host(run: Run) -> None:
        turn = await run.submit(plan(asks("a")), wait=False)
        with pytest.raises(UsageError, match="the pattern of the grant cannot be told in JSON"):
            await run.approve("a", pattern={"n": object()})
        await run.deny("a")
        await turn.wait()

    theatre.enter(host)


def test_a_changed_call_that_claims_more_by_the_time_it_is_put_in_place_does_not_run() -> None:
    stage = Stage()
    times: list[str] = []

    def claims(given: Any) -> list[str]:
        times.append(given["n"])
        return [f"write db:{given['n']}{'/more' if times.count('b') < 2 else ''}"]

    put = stage.tool(
        "put", Log("{n}"), effect=Effect.WRITE, approval=True, claims=claims, schema=TEXT
    )
    theatre = Theatre(stage, put)

    async def host(run: Run) -> Turn:
        turn = await run.submit(plan(asks("a", "put")), wait=False)
        await run.approve("a", arguments={"n": "b"})
        await turn.wait()
        return turn

    turn = theatre.enter(host)

    assert codes(turn) == {"a": Code.BAD_REFERENCE}
    assert stage.log == []


# Several people


def test_two_different_people_are_needed_where_the_tool_or_a_rule_says_so() -> None:
    stage = Stage()
    rule = Rule(Decision.ASK, tools=["one"], approvers=2, name="four-eyes")
    theatre = Theatre(
        stage, asking(stage, approvers=2), asking(stage, "one"), policy=Policy([rule])
    )

    async def host(run: Run) -> Turn:
        turn = await run.submit(plan(asks("a"), asks("b", "one")), wait=False)
        assert [one.needed for one in run.approvals] == [2, 2]
        await run.approve("a", by="ann")
        with pytest.raises(
            UsageError, match=r"ann has granted approval t1\.1\.a1 already; it needs"
        ):
            await run.approve("a", by="ann")
        with pytest.raises(UsageError, match=r"needs 2 different people: say who grants it"):
            await run.approve("a")
        with pytest.raises(UsageError, match=r"needs 2 different people: say who grants it"):
            await run.approve("a", arguments={"n": "c"})
        assert [one.by for one in run.approvals[0].counted] == ["ann"]
        assert turn.call("a").state is State.AWAITING_APPROVAL
        await asyncio.gather(run.approve("a", by="bob"), run.approve("b", by="ann"))
        await run.deny("b", by="bob", reason="no")
        await turn.wait()
        return turn

    turn = theatre.enter(host)

    assert states(turn) == {"a": State.SUCCEEDED, "b": State.DENIED}
    assert turn.call("a").rule == "approved by ann and bob"


def test_an_edit_voids_what_others_granted_before() -> None:
    stage = Stage()
    theatre = Theatre(stage, asking(stage, approvers=2))

    async def first(run: Run) -> None:
        await run.submit(plan(asks("a")), wait=False)
        before = run.approvals[0].digest
        await run.approve("a", by="ann")
        await run.approve("a", by="bob", arguments={"n": "b"})
        (question,) = run.approvals
        assert question.arguments == {"n": "b"}
        assert [one.by for one in question.counted] == ["bob"]
        with pytest.raises(
            UsageError, match=r"is about something else .* it was changed by bob si"
        ):
            await run.approve("a", by="ann", digest=before)
        theatre.crash()

    async def second(run: Run) -> Turn:
        (question,) = run.approvals
        assert question.arguments == {"n": "b"}
        await run.approve("a", by="ann", digest=question.digest)
        turn = await run.finish()
        assert turn is not None
        return turn

    theatre.enter(first)
    turn = theatre.enter(second)

    assert values(turn) == {"a": "b"}
    assert turn.call("a").rule == "approved by bob and ann"
    assert stage.log == ["b"]


def test_an_edit_needs_as_many_people_as_what_would_run_then() -> None:
    stage = Stage()
    rule = Rule(Decision.ASK, tools=["ask"], arguments={"n": "prod"}, approvers=2)
    theatre = Theatre(stage, asking(stage), policy=Policy([rule]))

    async def host(run: Run) -> Turn:
        turn = await run.submit(plan(asks("a")), wait=False)
        await run.approve("a", by="ann", arguments={"n": "prod"})
        assert turn.call("a").state is State.AWAITING_APPROVAL
        await run.approve("a", by="bob")
        await turn.wait()
        return turn

    assert values(theatre.enter(host)) == {"a": "prod"}


def test_numbers_of_people_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ToolError, match="approvers=0 is no number of people"):
        asking(Stage(), approvers=0)
    with pytest.raises(ToolError, match="approvers=2 is of no use without approval=True"):
        asking(Stage(), approval=False, approvers=2)
    with pytest.raises(PolicyError, match="approvers must be a whole number of 1 or more, not 0"):
        Policy([Rule(Decision.ASK, tools=["x"], approvers=0)])
    for word in ("approvers=2", "ask_each_time=true"):
        text = f"[[rule]]\ndecision='deny'\ntools='x'\n{word.replace('=', ' = ')}\n"
        with pytest.raises(PolicyError, match=f"policy:4.*{word.split('=')[0]} belongs to rules"):
            Policy.from_toml(text)
    with pytest.raises(PolicyError, match="approvers must be a whole number, not 'two'"):
        Policy.from_toml("[[rule]]\ndecision='ask'\ntools='x'\napprovers='two'\n")


# Answers that come too late


def test_an_answer_to_what_is_over_is_told_what_happened_instead() -> None:
    stage = Stage()
    theatre = Theatre(stage, asking(stage))

    async def host(run: Run) -> None:
        turn = await run.submit(plan(asks("a"), asks("b"), asks("c")), wait=False)
        await run.approve("a", by="ann")
        await run.deny("b", by="bob", reason="no")
        await run.cancel("c")
        for name, told in (
            ("a", "it was granted by ann, and call t1.1 is "),
            ("t1.2.a1", "it was refused by bob (no), and call t1.2 is DENIED"),
            ("t1.3", "its call t1.3 has ended: CANCELLED (CANCELLED)"),
        ):
            with pytest.raises(UnknownApprovalError) as unknown:
                await run.approve(name)
            assert told in str(unknown.value)
        await turn.wait()

    theatre.enter(host)


def test_a_call_whose_tool_changed_while_it_waited_for_others_is_asked_about_again() -> None:
    stage = Stage()
    theatre = Theatre(stage, *writers(stage, idempotent=True, version="1"))

    async def first(run: Run) -> None:
        await run.submit(
            plan(
                writes("first", "q", "slow"),
                writes("early", "y", needs=["first"]),
                writes("a", "x", "ask"),
            ),
            wait=False,
        )
        await moment()
        await run.approve("a", by="ann", arguments={"n": "a", "db": "y"})
        theatre.crash()

    async def second(run: Run) -> Turn:
        resuming = asyncio.create_task(run.finish())
        (question,) = await run.asked()
        assert question.id == "t1.3.a2"
        assert question.arguments == {"n": "a", "db": "y"}
        with pytest.raises(UnknownApprovalError, match=r"was asked about again, as t1\.3\.a2"):
            await run.approve("t1.3.a1")
        await run.approve(question.id, by="bob")
        turn = await resuming
        assert turn is not None
        return turn

    theatre.enter(first)
    theatre.tools = writers(stage, idempotent=True, version="2")
    turn = theatre.enter(second)

    assert turn.call("a").rule == "approved by bob"
    assert turn.call("a").edit is not None


# What an answer sets free, and waiting for questions


def test_each_question_names_the_calls_that_wait_only_for_it() -> None:
    stage = Stage()
    theatre = Theatre(stage, *writers(stage))

    async def host(run: Run) -> None:
        turn = await run.submit(
            plan(
                writes("a", "x", "ask"),
                writes("b", "z", "ask"),
                writes("conflict", "x"),
                writes("behind", "q", after=["conflict"]),
                writes("both", "r", needs=["a", "b"]),
                writes("free", "s"),
            ),
            wait=False,
        )
        await moment()
        a, b = run.approvals
        assert a.unblocks == ("t1.3", "t1.4")
        assert b.unblocks == ()
        await run.deny("b")
        await moment()
        assert run.approvals[0].unblocks == ("t1.3", "t1.4")
        await run.approve("a")
        await turn.wait()

    theatre.enter(host)


def test_a_host_waits_for_each_question_without_looking_again_and_again() -> None:
    stage = Stage()
    theatre = Theatre(stage, asking(stage), stage.tool("slow", Sleep(5)))

    async def host(run: Run) -> list[str]:
        turn = await run.submit(
            plan({"id": "s", "tool": "slow"}, asks("a", needs=["s"]), asks("b", needs=["a"])),
            wait=False,
        )
        seen: list[str] = []
        async for question in run.questions():
            seen.append(question.id)
            await run.approve(question.id)
        assert set(states(turn).values()) == {State.SUCCEEDED}
        return seen

    assert theatre.enter(host) == ["t1.2.a1", "t1.3.a1"]


def test_a_question_that_others_changed_comes_again() -> None:
    stage = Stage()
    theatre = Theatre(stage, asking(stage, approvers=2))

    async def host(run: Run) -> list[Any]:
        await run.submit(plan(asks("a")), wait=False)
        seen: list[Any] = []
        async for question in run.questions():
            seen.append(question.arguments)
            if len(seen) == 1:
                await run.approve("a", by="ann", arguments={"n": "b"})
            else:
                await run.approve("a", by="bob")
        return seen

    assert theatre.enter(host) == [{"n": "a"}, {"n": "b"}]


def test_whoever_waits_for_a_question_is_told_when_the_run_is_left() -> None:
    stage = Stage()
    theatre = Theatre(stage, stage.tool("slow", Sleep(5)))
    left: list[str] = []

    waiting: list[asyncio.Task[None]] = []

    async def host(run: Run) -> None:
        assert [one async for one in run.questions()] == []
        await run.submit(plan({"id": "s", "tool": "slow"}), wait=False)

        async def waits() -> None:
            with pytest.raises(EngineClosedError):
                await run.asked()
            left.append("asked")

        async def listens() -> None:
            assert [one async for one in run.questions()] == []
            left.append("questions")

        waiting.extend([asyncio.create_task(waits()), asyncio.create_task(listens())])
        await moment()

    theatre.enter(host)

    assert sorted(left) == ["asked", "questions"]


def test_claims_of_an_edit_are_those_of_what_runs() -> None:
    stage = Stage()
    theatre = Theatre(stage, *writers(stage))

    async def host(run: Run) -> None:
        turn = await run.submit(plan(writes("a", "x", "ask")), wait=False)
        await run.approve("a", arguments={"n": "a", "db": "y"})
        await turn.wait()
        claims = turn.call("a").claims
        assert claims is not None
        assert claims == (shared("run:r"), exclusive("db:y"))

    theatre.enter(host)

    assert stage.log == ["a"]


# At random

DBS = "xyz"


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[Plan], dict[str, str], list[str], int]:
    count = draw(st.integers(2, 6))
    names = [f"c{at}" for at in range(count)]
    calls: list[Plan] = []
    for at, name in enumerate(names):
        asks_first = draw(st.booleans())
        more = {}
        if at and draw(st.integers(0, 3)) == 0:
            more = {
                draw(st.sampled_from(["needs", "after"])): [names[draw(st.integers(0, at - 1))]]
            }
        tool_name = "ask" if asks_first else draw(st.sampled_from(["put", "slow"]))
        calls.append(writes(name, draw(st.sampled_from(DBS)), tool_name, **more))
    edits = {name: draw(st.sampled_from(DBS)) for name in names if draw(st.booleans())}
    return calls, edits, draw(st.permutations(names)), draw(st.integers(0, 3))


@given(program=programs())
@settings(max_examples=150, deadline=None)
def test_however_calls_are_changed_all_end_and_those_that_conflict_keep_their_order(  # noqa: C901 - two hosts
    program: tuple[list[Plan], dict[str, str], list[str], int],
) -> None:
    calls, edits, order, crash_after = program
    stage = Stage()
    theatre = Theatre(stage, *writers(stage, idempotent=True))
    place = {f"t1.{at}": one["id"] for at, one in enumerate(calls, 1)}
    dbs = {one["id"]: one["arguments"]["db"] for one in calls}

    async def answers(run: Run, most: int = 99) -> None:
        async for _ in run.questions():
            open_now = {place[one.call] for one in run.approvals}
            for name in [one for one in order if one in open_now]:
                if not most:
                    return
                most -= 1
                dbs[name] = edits.get(name, dbs[name])
                changed = {"n": name, "db": dbs[name]} if name in edits else None
                await run.approve(name, arguments=changed)

    async def first(run: Run) -> None:
        await run.submit(plan(*calls), wait=False)
        await answers(run, crash_after)
        theatre.crash()

    async def second(run: Run) -> None:
        resuming = asyncio.create_task(run.finish())
        await asyncio.sleep(0)
        await answers(run)
        await resuming

    theatre.enter(first)
    theatre.enter(second)

    view = fold(RUN, theatre.journal.facts[RUN])
    assert {call.state for call in view.calls.values()} == {State.SUCCEEDED}
    ran = attempts(theatre.facts)
    for one, (began, over) in ran:
        for other, (later, _) in ran:
            if began < later and dbs[place[one]] == dbs[place[other]]:
                assert over < later, "two that conflict ran at once"
    for edge in view.turns[0].edges:
        if view.calls[edge.source].approval is not None:
            assert ran_last(ran, edge.source)[1] < ran_last(ran, edge.target)[0]


def attempts(facts: Sequence[Fact]) -> list[tuple[str, tuple[int, int]]]:
    """From where to where in the journal each body ran."""
    began: dict[str, int] = {}
    found: list[tuple[str, tuple[int, int]]] = []
    for at, fact in enumerate(facts):
        if isinstance(fact, CallStarted):
            began[fact.call] = at
        elif isinstance(fact, CallEnded | AttemptEnded):
            found.append((fact.call, (began[fact.call], at)))
    return found


def ran_last(ran: list[tuple[str, tuple[int, int]]], call: str) -> tuple[int, int]:
    return [span for name, span in ran if name == call][-1]
