"""The host's side of a run: what it gives, asks, is shown, and does wrong."""

import asyncio
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import anthropic.types
import openai.types.chat
import pytest

from laneway import (
    UNLIMITED,
    Bound,
    Budgets,
    Code,
    Effect,
    Engine,
    Happened,
    Limits,
    Run,
    State,
    Tool,
    ToolContext,
    Turn,
    tool,
)
from laneway.errors import (
    EngineClosedError,
    EngineFaultError,
    OpenTurnError,
    PayloadError,
    PolicyError,
    ToolError,
    TurnNotReadyError,
    UnknownCallError,
    UsageError,
)
from laneway.journal.fold import CallView
from laneway.lanes.names import BadResourceError
from laneway.testing.clock import run_virtual
from laneway.testing.scripted import Do, Log, Raise, Return, Sleep, Stage
from laneway.testing.theatre import Theatre, codes, failure, plan, states, values

Plan = dict[str, Any]


def openai_reply(*calls: tuple[str, str, Any], reason: str = "tool_calls") -> Plan:
    asked = [
        {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}
        for id_, name, arguments in calls
    ]
    message = {"role": "assistant", "content": None, "tool_calls": asked}
    return {"id": "chat-1", "choices": [{"finish_reason": reason, "message": message}]}


def anthropic_reply(*calls: tuple[str, str, Any], reason: str = "tool_use", key: str = "") -> Plan:
    blocks = [
        {"type": "tool_use", "id": id_, "name": name, "input": given} for id_, name, given in calls
    ]
    return {"id": key, "role": "assistant", "stop_reason": reason, "content": blocks}


def now() -> float:
    return asyncio.get_running_loop().time()


ANY = {"type": "object"}


def echo(stage: Stage, name: str = "echo", **declared: Any) -> Tool[..., Any]:
    return stage.tool(name, Do(dict), schema=ANY, **declared)


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


# What the host sets, and what a tool may know


def test_a_parameter_of_the_hosts_is_hidden_given_and_refused_from_the_model() -> None:
    seen: list[tuple[str, str]] = []

    async def pay(to: str, account: Annotated[str, Bound()]) -> str:
        """Pay somebody."""
        seen.append((to, account))
        return "paid"

    stage = Stage()
    theatre = Theatre(stage, tool(pay, effect=Effect.EXTERNAL), bound={"account": "of the engine"})

    async def host(run: Run) -> list[Turn]:
        assert "account" not in json.dumps(run._engine.definitions("openai-chat"))
        assert "account" not in json.dumps(run._engine.definitions("anthropic-messages"))
        return [
            await run.submit(openai_reply(("a", "pay", '{"to": "x"}'))),
            await run.submit(openai_reply(("b", "pay", '{"to": "x", "account": "mine"}'))),
        ]

    one, two = theatre.enter(host)
    theatre.enter(
        lambda run: run.submit(plan({"id": "c", "tool": "pay", "arguments": {"to": "y"}})),
        run={"bound": {"account": "of the run", "stranger": 1}},
    )

    assert values(one) == {"a": "paid"}
    assert one.call("a").record.arguments == {"to": "x"}
    assert codes(two) == {"b": Code.INVALID_ARGUMENTS}
    assert "account is set by the host and must be left out" in failure(two, "b").message
    assert seen == [("x", "of the engine"), ("y", "of the run")]


def test_a_parameter_that_the_host_must_set_and_has_not_is_named_before_anything_happens() -> None:
    async def pay(to: str, account: str) -> str:
        return to + account

    theatre = Theatre(Stage(), tool(pay, bound=["account"]))

    async def host(run: Run) -> None:
        raise AssertionError("the run cannot be entered")

    with pytest.raises(UsageError, match=r"tool 'pay' needs 'account' from the host: pass it in"):
        theatre.enter(host)

    assert theatre.facts == []


def test_an_idempotency_key_is_the_same_over_retries_and_resume_and_no_other_calls() -> None:
    keys: list[tuple[str, int, str]] = []
    hold = asyncio.Event

    @tool(effect=Effect.EXTERNAL, idempotent=True, retries=2, claims=[])
    async def charge(n: list[int], context: ToolContext) -> str:
        keys.append((context.call, context.attempt, context.idempotency_key))
        assert context.run == "r"
        assert context.tool == "charge"
        assert context.arguments == {"n": n}
        context.arguments["n"].append(99)
        n.append(99)
        if context.attempt == 1 and context.call != "t1.3":
            raise ConnectionError("lost")
        if context.call == "t1.3" and len(keys) < 6:
            await hold().wait()
        return "charged"

    theatre = Theatre(Stage(), charge)
    calls = [{"id": f"c{n}", "tool": "charge", "arguments": {"n": [1]}} for n in range(3)]

    async def first(run: Run) -> None:
        await run.submit(plan(*calls), wait=False)
        await asyncio.sleep(10)
        # What a crash would leave: the journal as it is now, the call still running.
        theatre.crash()

    theatre.enter(first)
    resumed = theatre.finish()

    assert set(states(resumed).values()) == {State.SUCCEEDED}
    by_call = {call: {key for one, _, key in keys if one == call} for call, _, _ in keys}
    assert [(call, attempt) for call, attempt, _ in keys].count(("t1.3", 2)) == 1
    assert all(len(found) == 1 for found in by_call.values())
    assert len({key for _, _, key in keys}) == 3
    assert all(len(key) == 64 for _, _, key in keys)
    assert [call.record.arguments for call in resumed.calls] == [{"n": [1]}] * 3


# The host's side


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        (
            {"lanes": {"mail": 0}},
            UsageError,
            "max_concurrent of lane:mail is 0; a lane lets at least 1 in",
        ),
        (
            {"lanes": {"mail": 1.5}},
            UsageError,
            "max_concurrent of lane:mail is 1.5; give a whole number",
        ),
        (
            {"lanes": {"mail": "2"}},
            UsageError,
            "max_concurrent of lane:mail is '2'; give a whole number",
        ),
        (
            {"lanes": {"": 1}},
            BadResourceError,
            "resource 'lane:': name one, as in lane:mail",
        ),
        (
            {"durability": "ful"},
            UsageError,
            "durability='ful' is not known (known: full, relaxed)",
        ),
        (
            {"approval_order": None},
            UsageError,
            "approval_order=None is not known (known: keep, overtake)",
        ),
        (
            {"policy": "/nowhere/policy.toml"},
            PolicyError,
            "/nowhere/policy.toml: cannot be read: No such file or directory",
        ),
        (
            {"tools": [Stage().tool("p"), Stage().tool("p")]},
            ToolError,
            "tool 'p': two tools have this name",
        ),
    ],
)
def test_an_engine_that_cannot_be_meant_is_refused_when_it_is_made(
    options: dict[str, Any], error: type[Exception], told: str
) -> None:
    with pytest.raises(error) as refused:
        Engine(**options)

    assert str(refused.value).startswith(told)


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        (
            {"call_seconds": -1},
            "Limits.call_seconds is -1; give a number of 0 or more (math.inf l",
        ),
        ({"turn_seconds": math.nan}, "Limits.turn_seconds is nan; give a number of 0 or more (ma"),
        ({"grace_seconds": "1"}, "Limits.grace_seconds is '1'; give a number of 0 or more (mat"),
        ({"tool_threads": 0}, "Limits.tool_threads is 0; give a whole number of 1 or more"),
        ({"tool_threads": 1.5}, "Limits.tool_threads is 1.5; give a whole number of 1 or more"),
        ({"tool_threads": math.inf}, "Limits.tool_threads is inf; give a whole number of 1 or mo"),
        ({"approval_seconds": 0}, "Limits.approval_seconds is 0, so nobody could ever answer; g"),
    ],
)
def test_limits_that_cannot_be_meant_are_refused(limits: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError) as refused:
        Limits(**limits)

    assert str(refused.value).startswith(told)


def test_limits_may_be_zero_or_lifted() -> None:
    stage = Stage()
    slow = stage.tool("slow", Sleep(1e6), Return("s"))
    calls = plan({"id": "a", "tool": "slow"})
    lifted = Limits(call_seconds=math.inf, turn_seconds=math.inf)
    none = [Limits(call_seconds=0), Limits(turn_seconds=0)]

    endless = Theatre(stage, slow, limits=lifted, budgets=Budgets(seconds=UNLIMITED))

    assert values(endless.play(calls)) == {"a": "s"}
    for limits in none:
        assert codes(Theatre(stage, slow, limits=limits).play(calls)) == {"a": Code.TIMEOUT}


def test_outside_of_its_engine_a_run_is_closed_and_says_how_to_open_it() -> None:
    stage = Stage()
    engine = Engine([stage.tool("ok", Sleep(1), Return(1))], clock=stage.make_clock)
    calls = plan({"id": "a", "tool": "ok"})

    async def main() -> None:
        for look in (engine.status, lambda: engine.services):
            with pytest.raises(EngineClosedError, match="the Engine is not open; use it inside"):
                look()
        with pytest.raises(EngineClosedError, match="the Engine is not open"):
            await engine.run("r").__aenter__()
        async with engine:
            run = engine.run("r")
            await closed(run)
            async with run:
                turn = await run.submit(calls)
            await closed(run)
            await run.__aexit__(None, None, None)
        assert turn.ready
        assert values(turn) == {"a": 1}

    async def closed(run: Run) -> None:
        for act in (run.submit(calls), run.say("x"), run.finish(), run.approve("a"), run.cancel()):
            with pytest.raises(EngineClosedError) as refused:
                await act
            assert str(refused.value) == (
                "run 'r' is not open; use it inside `async with engine.run('r') as run:`"
            )
        with pytest.raises(EngineClosedError):
            run.history()

    run_virtual(main)


def test_an_engine_that_is_left_under_its_run_stops_what_runs_and_closes_it() -> None:
    stage = Stage()
    slow = stage.tool("slow", Sleep(100), Log("done"), effect=Effect.WRITE)
    engine = Engine([slow], clock=stage.make_clock)
    calls = plan({"id": "a", "tool": "slow"})

    async def main() -> None:
        run = engine.run("r")
        async with engine:
            await run.__aenter__()
            turn = await run.submit(calls, wait=False)
            await asyncio.sleep(1)
        with pytest.raises(EngineClosedError):
            await run.submit(plan({"id": "b", "tool": "slow"}))
        await run.__aexit__(None, None, None)
        assert codes(turn) == {"a": Code.CANCELLED}
        async with engine, engine.run("r") as again:
            assert states(again.turns[0]) == {"a": State.CANCELLED}

    run_virtual(main)

    assert stage.log == []


def test_a_name_or_settings_that_cannot_be_kept_are_refused_at_once() -> None:
    engine = Engine()

    for name in ("", "half \ud83d"):
        with pytest.raises(UsageError, match="a run needs a name"):
            engine.run(name)
    with pytest.raises(UsageError, match=r"settings= of run 'r' cannot be kept as JSON: \$ is of"):
        engine.run("r", settings=object())


def test_texts_of_the_host_are_kept_whole_and_break_no_journal(tmp_path: Path) -> None:
    half = "half \ud83d"
    stage = Stage()
    theatre = Theatre(
        stage, asking(stage), stage.tool("slow", Sleep(9)), journal=str(tmp_path / "runs.db")
    )

    async def host(run: Run) -> Turn:
        asked = plan(asks("a"), asks("b"), {"id": "c", "tool": "slow"})
        turn = await run.submit(asked, key=half, wait=False)
        await run.say(half)
        await run.approve("a", by=half, reason=half)
        await run.deny("b", by=half, reason=half)
        await run.cancel("c", reason=half)
        await turn.wait()
        assert await run.submit(asked, key=half) is not turn
        assert len(run.turns) == 1
        return turn

    turn = theatre.enter(host, run={"resume_with": half, "settings": {half: half}})

    assert states(turn) == {"a": State.SUCCEEDED, "b": State.DENIED, "c": State.CANCELLED}
    assert "half �" in failure(turn, "c").message


@pytest.mark.parametrize(
    "message", [{}, {"content": "x"}, {"role": 5}, [], 5, None, {"role": "user", "content": {1}}]
)
def test_a_message_that_is_none_is_not_taken_into_the_conversation(message: Any) -> None:
    theatre = Theatre(Stage())

    async def host(run: Run) -> list[Any]:
        if message != {"role": "user", "content": {1}}:
            with pytest.raises(
                PayloadError, match=r"is no message\. Say a text, or a message with"
            ):
                await run.say(message)
        return await run.say("hello")

    assert theatre.enter(host) == [{"role": "user", "content": "hello"}]


def test_the_same_answer_is_one_turn_by_the_providers_id_or_the_hosts_key() -> None:
    stage = Stage()
    theatre = Theatre(stage, stage.tool("slow", Sleep(1), Log("ran"), Return("s")))
    reply = anthropic_reply(("a", "slow", {}), key="msg_1")

    async def host(run: Run) -> None:
        one = await run.submit(reply, wait=False)
        two = await run.submit(reply, wait=False)
        assert not two.ready
        three = await run.submit(reply)
        assert one.number == two.number == three.number == 1
        assert three.ready
        keyed = await run.submit(plan({"id": "b", "tool": "slow"}), key="mine")
        again = await run.submit(plan({"id": "other", "tool": "slow"}), key="mine")
        assert keyed.number == again.number == 2
        assert (await run.submit(reply)).number == 3
        assert (await run.submit(reply, key="mine")).number == 2

    theatre.enter(host, loops=None)

    assert stage.log == ["ran"] * 3


def test_a_second_answer_is_refused_while_the_first_is_taken_in_or_runs() -> None:
    stage = Stage()
    theatre = Theatre(stage, stage.tool("slow", Sleep(1), Return("s")))

    async def host(run: Run) -> None:
        results = await asyncio.gather(
            *(run.submit(plan({"id": n, "tool": "slow"})) for n in "abc"), return_exceptions=True
        )
        assert [type(result) for result in results] == [Turn, OpenTurnError, OpenTurnError]
        assert "run 'r' has an open turn 1 (" in str(results[1])
        turn = await run.submit(plan({"id": "d", "tool": "slow"}), wait=False)
        with pytest.raises(OpenTurnError, match=r"an open turn 2 \(call d is open\); wait for"):
            await run.submit(plan({"id": "e", "tool": "slow"}))
        await turn.wait()
        big = plan(*({"id": f"c{n}", "tool": "slow"} for n in range(600)))
        first = asyncio.create_task(run.submit(big))
        await asyncio.sleep(0)
        with pytest.raises(OpenTurnError, match="an open turn 3 "):
            await run.submit(plan({"id": "f", "tool": "slow"}))
        await first

    theatre.enter(host, loops=None)

    assert sum(stage.entered.values()) == 602


@pytest.mark.parametrize("ticks", range(8))
@pytest.mark.parametrize("wait", [True, False])
def test_whoever_is_cancelled_in_submit_cancels_the_turn_at_any_point(
    ticks: int, wait: bool, tmp_path: Path
) -> None:
    stage = Stage()
    slow = stage.tool("slow", Sleep(5), Log("done"), effect=Effect.WRITE)
    theatre = Theatre(stage, slow, journal=str(tmp_path / "runs.db"))

    async def host(run: Run) -> Turn | None:
        submitting = asyncio.create_task(run.submit(plan({"id": "a", "tool": "slow"}), wait=wait))
        for _ in range(ticks):
            await asyncio.sleep(0)
        finished = submitting.done()
        submitting.cancel()
        try:
            await submitting
        except asyncio.CancelledError:
            assert run.open_turn is None
        else:
            assert finished
            await run.cancel()
            await run.finish()
        await asyncio.sleep(20)
        return run.turns[0] if run.turns else None

    turn = theatre.enter(host)

    assert stage.log == []
    assert turn is None or states(turn) == {"a": State.CANCELLED}


def test_a_turn_that_is_not_waited_for_goes_on_and_shows_its_messages_when_ready() -> None:
    stage = Stage()
    theatre = Theatre(
        stage,
        stage.tool("slow", Sleep(2), Return("s")),
        stage.tool("quick", Sleep(1), Return("q")),
    )

    async def host(run: Run) -> None:
        turn = await run.submit(
            plan({"id": "s", "tool": "slow"}, {"id": "q", "tool": "quick"}), wait=False
        )
        assert (turn.ready, turn.open_calls, turn.outcomes) == (False, ["s", "q"], {})
        await asyncio.sleep(1.5)
        assert values(turn) == {"q": "q"}
        assert turn.open_calls == ["s"]
        with pytest.raises(TurnNotReadyError) as refused:
            _ = turn.messages
        assert str(refused.value) == (
            "turn 1 is not ready: call s is open; `await turn.wait()`, answer its approvals, or "
            "end it with `await turn.close()`"
        )
        assert run.history() == []
        await turn.wait()
        assert turn.ready
        assert run.history() == turn.messages
        assert turn.call("q") is turn.call("t1.2")
        assert isinstance(turn.call("s"), CallView)
        with pytest.raises(UnknownCallError, match="run 'r' has no call 'x'"):
            turn.call("x")
        with pytest.raises(UnknownCallError, match="run 'r' has no call 'x'"):
            await run.cancel("x")
        await run.cancel("s")
        await run.cancel()
        assert values(turn) == {"s": "s", "q": "q"}
        assert turn.has("s")
        assert not turn.has("x")
        assert await run.finish() is None
        assert run.open_turn is None
        assert [one.number for one in run.turns] == [1]
        assert run.id == "r"

    async def again(run: Run) -> None:
        await run.cancel("s")
        with pytest.raises(UnknownCallError, match="run 'r' has no call 'x'"):
            await run.cancel("x")

    theatre.enter(host)
    theatre.enter(again)


def test_an_uncertain_call_can_be_settled_while_its_turn_is_open() -> None:
    stage = Stage()
    lost = stage.tool("lost", Raise(ConnectionResetError("cut")), effect=Effect.EXTERNAL)
    theatre = Theatre(stage, lost, echo(stage))

    async def host(run: Run) -> Turn:
        turn = await run.submit(
            plan(
                {"id": "u", "tool": "lost"},
                {"id": "v", "tool": "lost"},
                {"id": "x", "tool": "echo", "arguments": {"v": "${u.id}"}},
                {"id": "y", "tool": "echo", "needs": ["v"]},
            ),
            wait=False,
        )
        await turn.wait()
        assert turn.open_calls == ["x", "y"]
        with pytest.raises(UnknownCallError, match="has no call 'x' whose effect is unknown"):
            await run.settle("x", value=1)
        with pytest.raises(UsageError, match="what u came to cannot be kept as JSON"):
            await run.settle("u", value=object())
        await run.settle("u", value={"id": 7}, by="the bank")
        await run.settle("v", failure="it was never sent")
        await turn.wait()
        assert turn.ready
        with pytest.raises(UnknownCallError):
            await run.settle("u", value=2)
        return turn

    turn = theatre.enter(host)

    assert values(turn) == {"u": {"id": 7}, "x": {"v": "7"}}
    assert codes(turn) == {"v": Code.TOOL_ERROR, "y": Code.DEPENDENCY_FAILED}
    assert failure(turn, "v").message == (
        "It was found out afterwards that the call failed: it was never sent"
    )


def test_a_tool_that_is_gone_when_a_run_is_taken_up_fails_its_calls_alone() -> None:
    stage = Stage()
    slow: dict[str, Any] = {"effect": Effect.WRITE, "idempotent": True, "schema": ANY}
    tools = [
        asking(stage),
        stage.tool("slow", Sleep(20), **slow),
        stage.tool("other", Sleep(20), Return("o"), **slow),
    ]
    theatre = Theatre(stage, *tools)

    async def first(run: Run) -> None:
        await run.submit(
            plan(
                asks("asked"),
                {"id": "running", "tool": "slow"},
                {"id": "pending", "tool": "slow", "needs": ["other"]},
                {"id": "other", "tool": "other"},
            ),
            wait=False,
        )
        await asyncio.sleep(1)
        theatre.crash()

    theatre.enter(first)
    theatre.tools = tools[2:]
    turn = theatre.finish()

    assert values(turn) == {"other": "o"}
    assert codes(turn) == dict.fromkeys(["asked", "running", "pending"], Code.UNKNOWN_TOOL)
    assert failure(turn, "running").happened is Happened.UNKNOWN
    assert failure(turn, "pending").happened is Happened.NOTHING


def test_definitions_are_written_for_each_provider_and_no_other() -> None:
    async def look(path: str, lines: int = 9) -> str:
        """Look at a file."""
        return path

    engine = Engine([tool(look, effect=Effect.READ)])

    (chat,) = engine.definitions("openai-chat")
    (message,) = engine.definitions("anthropic-messages")

    assert chat["type"] == "function"
    assert chat["function"]["name"] == message["name"] == "look"
    assert chat["function"]["parameters"] == message["input_schema"]
    assert message["description"] == "Look at a file."
    assert message["input_schema"]["required"] == ["path"]
    for asked in (engine, Engine()):
        with pytest.raises(UsageError, match=r"for 'gemini' \(known: anthropic-messages, bed"):
            asked.definitions("gemini")


# Providers' own objects, and a conversation of several turns


def test_objects_of_the_openai_sdk_go_straight_in() -> None:
    stage = Stage()
    reply = openai_reply(("call_1", "echo", '{"x": 1}'), ("call_2", "echo", "{"))
    reply["choices"][0]["index"] = 0
    reply |= {"object": "chat.completion", "created": 1, "model": "m"}
    completion = openai.types.chat.ChatCompletion.model_validate(reply)
    theatre = Theatre(stage, echo(stage))

    whole = theatre.play(completion)
    bare = Theatre(stage, echo(stage)).play(completion.choices[0].message)

    for turn in (whole, bare):
        assert values(turn) == {"call_1": {"x": 1}}
        assert codes(turn) == {"call_2": Code.MALFORMED_ARGUMENTS}
        assert [one["role"] for one in turn.messages] == ["assistant", "tool", "tool"]
        assert json.loads(json.dumps(turn.messages)) == turn.messages


def test_objects_of_the_anthropic_sdk_go_straight_in() -> None:
    stage = Stage()
    reply = anthropic_reply(("toolu_1", "echo", {"x": 1}), ("toolu_2", "nope", {}), key="msg_1")
    reply |= {"type": "message", "model": "m", "usage": {"input_tokens": 1, "output_tokens": 1}}
    message = anthropic.types.Message.model_validate(reply)

    turn = Theatre(stage, echo(stage)).play(message)

    assert values(turn) == {"toolu_1": {"x": 1}}
    assert codes(turn) == {"toolu_2": Code.UNKNOWN_TOOL}
    _, results = turn.messages
    assert [block["tool_use_id"] for block in results["content"]] == ["toolu_1", "toolu_2"]


def check_anthropic(messages: Sequence[Plan]) -> None:
    """Every tool_use has its result in the very next message, ahead of anything else."""
    for at, message in enumerate(messages):
        content = message["content"]
        blocks = content if isinstance(content, list) else [{"type": "text"}]
        assert blocks
        used = [block["id"] for block in blocks if block["type"] == "tool_use"]
        assert bool(used) <= (message["role"] == "assistant")
        if used:
            after = messages[at + 1]
            assert after["role"] == "user"
            results = after["content"][: len(used)]
            assert [block["tool_use_id"] for block in results] == used
        answered = [block for block in blocks if block["type"] == "tool_result"]
        assert not answered or messages[at - 1]["role"] == "assistant"


def check_openai(messages: Sequence[Plan]) -> None:
    """Every call has its message right behind the assistant's, in order."""
    at = 0
    while at < len(messages):
        message = messages[at]
        assert message["role"] != "tool"
        calls = [call["id"] for call in message.get("tool_calls") or ()]
        behind = messages[at + 1 : at + 1 + len(calls)]
        assert [one.get("tool_call_id") for one in behind] == calls
        assert all(one["role"] == "tool" and one["content"] for one in behind)
        at += 1 + len(calls)


@pytest.mark.parametrize("form", ["openai", "anthropic"])
def test_a_conversation_of_several_turns_is_valid_and_the_same_after_a_restart(form: str) -> None:
    stage = Stage()
    theatre = Theatre(
        stage,
        echo(stage),
        stage.tool("bad", Raise(ValueError("x"))),
        stage.tool("silent", Return("")),
        stage.tool("slow", Sleep(50)),
        asking(stage),
    )
    check = check_openai if form == "openai" else check_anthropic

    def reply(*calls: tuple[str, str, Any]) -> Plan:
        if form == "openai":
            return openai_reply(*((i, n, json.dumps(given)) for i, n, given in calls))
        return anthropic_reply(*calls)

    async def host(run: Run) -> list[Any]:
        check(await run.say("Do it."))
        await run.submit(reply(("a", "echo", {"x": 1}), ("a", "bad", {}), ("", "no such", {})))
        check(run.history())
        await run.submit(reply(("a", "echo", {"x": "${a.x}"}), ("s", "silent", {})))
        check(await run.say("And now?"))
        check(await run.say({"role": "user", "content": [{"type": "text", "text": "Well?"}]}))
        open_turn = await run.submit(reply(("w", "slow", {}), ("q", "ask", {"n": 1})), wait=False)
        check(await run.say("Stop!"))
        await run.cancel()
        await open_turn.wait()
        check(run.history())
        await run.submit({"role": "assistant", "content": [{"type": "text", "text": "Done."}]})
        check(await run.say("Thanks."))
        return run.history()

    async def again(run: Run) -> list[Any]:
        return run.history()

    history = theatre.enter(host)

    assert len([message for message in history if message["role"] == "assistant"]) == 4
    assert theatre.enter(again) == history


@pytest.mark.parametrize("form", ["openai", "anthropic", "plan"])
def test_what_a_host_does_to_the_messages_changes_nothing_that_is_recorded(form: str) -> None:
    stage = Stage()
    theatre = Theatre(stage, echo(stage))
    given = {"x": [1]}
    reply = {
        "openai": openai_reply(("a", "echo", json.dumps(given))),
        "anthropic": anthropic_reply(("a", "echo", {"x": [1]}), key="msg_1"),
        "plan": plan({"id": "a", "tool": "echo", "arguments": {"x": [1]}}),
    }[form]

    async def host(run: Run) -> None:
        turn = await run.submit(reply)
        before = json.dumps(run.history())
        spoil(turn.messages)
        spoil(run.history())
        spoil(reply)
        assert json.dumps(run.history()) == before
        assert turn.call("a").record.arguments == given
        assert values(turn) == {"a": given}

    theatre.enter(host)


def spoil(value: Any) -> list[Any]:
    """Change everything that can be changed, all the way down."""
    inner = list(value.values()) if isinstance(value, dict) else value
    for one in inner if isinstance(inner, list) else ():
        spoil(one)
    if isinstance(value, dict):
        value["cache_control"] = {"type": "ephemeral"}
    elif isinstance(value, list):
        value.append("spoilt")
    return []


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user"},
        {"role": "user", "content": None},
        {"role": "user", "content": ["text"]},
        {"role": "user", "content": {"type": "text"}},
        {"role": "user", "content": []},
    ],
)
def test_an_odd_message_of_the_hosts_never_costs_it_the_history(message: Any) -> None:
    stage = Stage()
    theatre = Theatre(stage, echo(stage))

    async def host(run: Run) -> list[Any]:
        await run.submit(anthropic_reply(("a", "echo", {})))
        await run.say(message)
        return await run.say("hello")

    history = theatre.enter(host)

    assert [one["role"] for one in history] == ["assistant", "user"]
    assert history[1]["content"][0]["type"] == "tool_result"


def test_the_form_of_an_answer_may_be_named_and_must_exist() -> None:
    stage = Stage()
    theatre = Theatre(stage, echo(stage))
    calls = plan({"id": "a", "tool": "echo"})

    async def host(run: Run) -> Turn:
        with pytest.raises(PayloadError, match=r"there is no format 'gemini'\. Known are bedrock"):
            await run.submit(calls, provider="gemini")
        with pytest.raises(PayloadError):
            await run.submit(calls, provider="openai-chat")
        return await run.submit(calls, provider="plan")

    assert values(theatre.enter(host)) == {"a": {}}


def test_a_fault_of_the_engine_while_a_turn_is_taken_in_ends_the_run_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage()
    engine = Engine([echo(stage)], clock=stage.make_clock)
    calls = plan({"id": "a", "tool": "echo"})

    def stumble(step: Any, call: Any) -> None:
        raise ArithmeticError("two and two make five")

    async def main() -> None:
        async with engine:
            async with engine.run("r") as run:
                with monkeypatch.context() as patched:
                    patched.setattr("laneway.engine.step.Step.consider", stumble)
                    with pytest.raises(
                        EngineFaultError, match=r"two and two make five\); please re"
                    ):
                        await run.submit(calls)
                for again in (run.submit(calls), run.say("x"), run.submit(calls, wait=False)):
                    with pytest.raises(EngineFaultError):
                        await again
            async with engine.run("other") as other:
                assert values(await other.submit(calls)) == {"a": {}}
            async with engine.run("r") as resumed:
                assert resumed.turns == []
                assert values(await resumed.submit(calls)) == {"a": {}}

    run_virtual(main)
