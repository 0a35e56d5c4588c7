"""A run is put into another mode while its calls wait, ask, run and back off."""

import asyncio
from collections.abc import Iterator
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
    tool,
)
from laneway.engine.modes import mode_of
from laneway.engine.nesting import inside
from laneway.errors import PolicyError
from laneway.facts import ApprovalAsked, CallStarted, ModeChanged, RunOpened
from laneway.ids import RunId
from laneway.journal.fold import fold
from laneway.lanes.shell import shell_claims, shell_effect
from laneway.policies.modes import BUILD, PLAN, Mode, at_most
from laneway.testing.scripted import Do, Log, Raise, Return, Sleep, Stage
from laneway.testing.theatre import RUN, Theatre, codes, failure, plan, states, values

ASKING = Policy(modes=[Mode("careful", frozenset({Effect.PURE, Effect.READ}), Decision.ASK)])
GONE = ConnectionResetError("gone")


async def soon() -> None:
    await asyncio.sleep(1)


def edits(stage: Stage, seconds: float = 10, **declared: Any) -> Any:
    """A writer, one at a time over all files."""
    given: dict[str, Any] = {"effect": Effect.WRITE, "claims": ["lane:w"], **declared}
    return stage.tool("edit", Sleep(seconds), Log("edit {n}"), Return("done"), **given)


def three(name: str = "edit") -> dict[str, Any]:
    return plan(*({"id": n, "tool": name, "arguments": {"n": n}} for n in "abc"))


def test_a_queued_call_that_the_new_mode_denies_ends_and_a_running_one_goes_on() -> None:
    stage = Stage()
    theatre = Theatre(stage, edits(stage))

    async def host(run: Run) -> Any:
        turn = await run.submit(three(), wait=False)
        await soon()
        await run.set_mode("plan", by="ann")
        assert run.mode == "plan"
        assert not turn.ready
        await turn.wait()
        return await run.finish() or turn

    turn = theatre.enter(host)

    assert states(turn) == {"a": State.SUCCEEDED, "b": State.DENIED, "c": State.DENIED}
    assert stage.log == ["edit a"], "freeing the lane of b did not let c start"
    assert codes(turn) == dict.fromkeys("bc", Code.POLICY_DENIED)
    assert failure(turn, "b").message == (
        "mode plan allows no write call, and edit is write (mode plan); r is in mode plan now."
    )
    assert failure(turn, "b").hint == (
        "Do not try it in another way. Say what you would do, and that it takes another mode: "
        "only the user or the host can change that."
    )
    assert turn.call("b").rule == "mode plan"
    assert theatre.kept(ModeChanged) == [ModeChanged(mode="plan", by="ann")]


def test_a_denied_call_frees_its_place_for_one_that_the_mode_lets_pass() -> None:
    stage = Stage()
    look = stage.tool("look", Return("seen"), effect=Effect.READ, claims=["lane:w"])
    theatre = Theatre(stage, edits(stage), look)

    async def host(run: Run) -> Any:
        turn = await run.submit(
            plan(
                {"id": "a", "tool": "edit", "arguments": {"n": "a"}},
                {"id": "b", "tool": "edit", "arguments": {"n": "b"}},
                {"id": "l", "tool": "look"},
            ),
            wait=False,
        )
        await soon()
        await run.set_mode("plan")
        await turn.wait()
        return turn

    turn = theatre.enter(host)

    assert states(turn) == {"a": State.SUCCEEDED, "b": State.DENIED, "l": State.SUCCEEDED}
    assert stage.log == ["edit a"]


def test_lanes_that_are_freed_by_one_denied_call_start_no_other_that_is_denied() -> None:
    stage = Stage()
    tools = [
        stage.tool("hold", Sleep(10), effect=Effect.READ, claims=["lane:x"]),
        stage.tool("put", Log("put {n}"), effect=Effect.WRITE, claims=["lane:x", "lane:y"]),
        stage.tool("set", Log("set {n}"), effect=Effect.WRITE, claims=["lane:y"]),
    ]
    theatre = Theatre(stage, *tools)

    async def host(run: Run) -> Any:
        turn = await run.submit(
            plan(
                {"id": "h", "tool": "hold"},
                {"id": "p", "tool": "put", "arguments": {"n": 1}},
                {"id": "s", "tool": "set", "arguments": {"n": 2}},
            ),
            wait=False,
        )
        await soon()
        await run.set_mode("plan")
        await turn.wait()
        return turn

    turn = theatre.enter(host)

    assert states(turn) == {"h": State.SUCCEEDED, "p": State.DENIED, "s": State.DENIED}
    assert stage.log == []


def test_a_queued_call_that_asks_in_the_new_mode_leaves_the_queue_and_asks() -> None:
    stage = Stage()
    theatre = Theatre(stage, edits(stage), policy=ASKING)

    async def host(run: Run) -> Any:
        turn = await run.submit(three(), wait=False)
        await soon()
        await run.set_mode("careful")
        assert [one.id for one in run.approvals] == ["t1.2.a1", "t1.3.a1"]
        assert [call.state for call in turn.calls] == [
            State.RUNNING,
            State.AWAITING_APPROVAL,
            State.AWAITING_APPROVAL,
        ]
        await run.deny("b", by="ann")
        await run.approve("c", by="ann")
        await turn.wait()
        return turn

    turn = theatre.enter(host)

    assert states(turn) == {"a": State.SUCCEEDED, "b": State.DENIED, "c": State.SUCCEEDED}
    assert stage.log == ["edit a", "edit c"]
    assert fold(RUN, theatre.journal.facts[RUN]).mode == "careful"


def test_a_call_that_waits_for_an_answer_nobody_wants_any_more_goes_on() -> None:
    stage = Stage()
    theatre = Theatre(stage, edits(stage, 0), policy=ASKING)

    async def host(run: Run) -> Any:
        turn = await run.submit(three(), wait=False)
        await soon()
        assert len(run.approvals) == 3
        await run.approve("a")
        await run.set_mode("build")
        assert list(run.approvals) == []
        await turn.wait()
        return turn

    turn = theatre.enter(host, run={"mode": "careful"})

    assert set(states(turn).values()) == {State.SUCCEEDED}
    assert [turn.call(n).rule for n in "abc"] == ["approved", "default", "default"]


def test_a_call_whose_own_rule_asks_still_waits_when_the_mode_is_wider() -> None:
    stage = Stage()
    policy = Policy(
        [Rule(Decision.ASK, tools=["edit"])], modes=[Mode("careful", frozenset(), Decision.ASK)]
    )
    theatre = Theatre(stage, edits(stage, 0), policy=policy)

    async def host(run: Run) -> Any:
        turn = await run.submit(three(), wait=False)
        await run.set_mode("build")
        assert len(run.approvals) == 3
        await run.cancel()
        return turn

    turn = theatre.enter(host, run={"mode": "careful"})

    assert set(states(turn).values()) == {State.CANCELLED}


def test_a_call_that_is_asked_about_once_more_is_asked_under_another_name() -> None:
    stage = Stage()
    theatre = Theatre(stage, edits(stage), policy=ASKING)

    async def host(run: Run) -> Any:
        turn = await run.submit(three(), wait=False)
        await soon()
        await run.set_mode("careful")
        await run.set_mode("build")
        await run.set_mode("careful")
        assert [one.id for one in run.approvals] == ["t1.2.a2", "t1.3.a2"]
        return turn

    theatre.enter(host)
    theatre.crash()

    async def later(run: Run) -> Any:
        assert run.mode == "careful"
        turn = run.open_turn
        assert turn is not None
        await run.approve("b")
        await run.deny("c")
        await run.finish()
        return turn

    turn = theatre.enter(later)

    assert states(turn)["b"] is State.SUCCEEDED
    assert [fact.approval for fact in theatre.kept(ApprovalAsked)] == [
        "t1.2.a1",
        "t1.3.a1",
        "t1.2.a2",
        "t1.3.a2",
    ]


def test_a_question_that_lapsed_is_no_answer_after_a_crash() -> None:
    stage = Stage()
    theatre = Theatre(stage, edits(stage), policy=ASKING)

    async def host(run: Run) -> None:
        await run.submit(three(), wait=False)
        await run.approve("a")
        await soon()
        await run.set_mode("build")  # b and c are queued behind a, without an answer.
        theatre.crash()

    theatre.enter(host, run={"mode": "careful"})

    turn = theatre.finish(run={"mode": "careful"})

    assert states(turn)["b"] is State.DENIED
    assert "Ask for it again" in failure(turn, "b").hint
    assert stage.log == []


def test_a_granted_call_that_is_queued_is_not_asked_about_again() -> None:
    stage = Stage()
    theatre = Theatre(stage, edits(stage), policy=ASKING)

    async def host(run: Run) -> Any:
        turn = await run.submit(three(), wait=False)
        for name in "abc":
            await run.approve(name)
        await run.set_mode("build")
        await run.set_mode("careful")
        await turn.wait()
        return turn

    turn = theatre.enter(host, run={"mode": "careful"})

    assert set(states(turn).values()) == {State.SUCCEEDED}


@pytest.mark.parametrize(("mode", "hint"), [("plan", "another mode"), ("careful", "Ask for it")])
def test_a_call_between_two_attempts_is_denied_and_says_that_it_may_have_had_its_effect(
    mode: str, hint: str
) -> None:
    stage = Stage()
    shaky = stage.tool("edit", Raise(GONE), effect=Effect.WRITE, idempotent=True, retries=3)
    theatre = Theatre(stage, shaky, policy=ASKING, limits=Limits(back_off_seconds=50))

    async def host(run: Run) -> Any:
        turn = await run.submit(plan({"id": "a", "tool": "edit"}), wait=False)
        await soon()
        assert turn.call("a").state is State.BACKING_OFF
        await run.set_mode(mode)
        await turn.wait()
        return turn

    turn = theatre.enter(host)

    assert states(turn) == {"a": State.DENIED}
    told = failure(turn, "a")
    assert told.happened is Happened.UNKNOWN
    assert hint in told.hint
    assert stage.entered == {"edit": 1}


def test_a_call_that_still_waits_for_another_is_judged_in_the_mode_of_its_time() -> None:
    stage = Stage()
    theatre = Theatre(stage, edits(stage))

    async def host(run: Run) -> Any:
        turn = await run.submit(
            plan(
                {"id": "a", "tool": "edit", "arguments": {"n": 1}},
                {"id": "b", "tool": "edit", "arguments": {"n": 2}, "needs": ["a"]},
            ),
            wait=False,
        )
        await soon()
        await run.set_mode("plan")
        await turn.wait()
        return turn

    turn = theatre.enter(host)

    assert states(turn) == {"a": State.SUCCEEDED, "b": State.DENIED}


def test_a_mode_that_there_is_not_changes_nothing_and_the_same_one_says_nothing() -> None:
    stage = Stage()
    theatre = Theatre(stage, edits(stage))

    async def host(run: Run) -> None:
        with pytest.raises(PolicyError, match="there is no such mode"):
            await run.set_mode("paln")
        await run.set_mode("build")
        assert run.mode == "build"

    theatre.enter(host)

    assert theatre.kept(ModeChanged) == []


def test_the_last_mode_is_that_of_a_resumed_run_unless_the_host_gives_another() -> None:
    stage = Stage()
    theatre = Theatre(stage, edits(stage))

    async def plans(run: Run) -> None:
        await run.set_mode("plan")

    async def asks(run: Run) -> str:
        return run.mode

    theatre.enter(plans)

    assert theatre.enter(asks) == "plan"
    assert theatre.enter(asks, run={"mode": "build"}) == "build"
    assert theatre.enter(asks) == "build"


def test_a_mode_may_change_while_a_left_turn_waits_to_be_taken_up() -> None:
    stage = Stage()
    theatre = Theatre(stage, edits(stage), policy=ASKING)

    async def leaves(run: Run) -> None:
        await run.submit(three(), wait=False)
        await run.approve("a")

    theatre.enter(leaves, run={"mode": "careful"})

    async def goes_on(run: Run) -> Any:
        await run.set_mode("build")
        return await run.finish()

    turn = theatre.enter(goes_on)

    assert states(turn)["b"] is State.SUCCEEDED
    assert states(turn)["c"] is State.SUCCEEDED


def test_a_left_call_whose_tool_is_gone_ends_when_it_is_taken_up_whatever_the_mode() -> None:
    stage = Stage()
    theatre = Theatre(stage, edits(stage), policy=ASKING)

    async def leaves(run: Run) -> None:
        await run.submit(three(), wait=False)

    theatre.enter(leaves, run={"mode": "careful"})
    theatre.tools = ()

    async def goes_on(run: Run) -> Any:
        await run.set_mode("plan")
        await run.cancel()
        return await run.finish()

    turn = theatre.enter(goes_on)

    assert set(states(turn).values()) == {State.CANCELLED}


def test_nobody_is_asked_in_a_turn_that_is_being_closed() -> None:
    stage = Stage()
    theatre = Theatre(stage, edits(stage), policy=ASKING)

    async def host(run: Run) -> Any:
        turn = await run.submit(three(), wait=False)
        await soon()
        closing = asyncio.create_task(turn.close())
        await asyncio.sleep(0)
        await run.set_mode("careful")
        await closing
        return turn

    turn = theatre.enter(host)

    assert states(turn) == {"a": State.SUCCEEDED, "b": State.CANCELLED, "c": State.CANCELLED}
    assert "closed before a human answered" in failure(turn, "b").message


def test_followers_of_a_call_that_is_asked_about_are_asked_about_themselves() -> None:
    stage = Stage()
    tools = [
        stage.tool("hold", Sleep(10), effect=Effect.READ, claims=["lane:x"]),
        stage.tool("sum", Return(3), effect=Effect.PURE, claims=["lane:x"]),
    ]
    policy = Policy(modes=[Mode("none", frozenset(), Decision.ASK)])
    theatre = Theatre(stage, *tools, policy=policy)

    async def host(run: Run) -> Any:
        turn = await run.submit(
            plan(
                {"id": "h", "tool": "hold"},
                {"id": "s", "tool": "sum", "arguments": {"n": 1}},
                {"id": "t", "tool": "sum", "arguments": {"n": 1}},
            ),
            wait=False,
        )
        await soon()
        await run.set_mode("none")
        assert [one.call for one in run.approvals] == ["t1.2", "t1.3"]
        await run.deny("s")
        await run.approve("t")
        await turn.wait()
        return turn

    turn = theatre.enter(host)

    assert states(turn) == {"h": State.SUCCEEDED, "s": State.DENIED, "t": State.SUCCEEDED}


# Runs within calls


def nesting() -> Tool[..., Any]:
    """A tool that writes through a run of its own, which it opens in mode build."""

    @tool(effect=Effect.READ, claims=["lane:outer"], timeout=100)
    async def outer() -> Any:
        call = inside.get()
        assert call is not None
        async with call.scheduler.services.open_run("child", mode="build") as child:
            await asyncio.sleep(5)
            turn = await child.submit(three())
            return [child.mode, *sorted({str(one.state) for one in turn.calls})]

    return outer


def test_a_run_within_a_call_gets_at_most_the_mode_of_the_run_above_it() -> None:
    stage = Stage()
    theatre = Theatre(stage, edits(stage, 0), nesting())

    turn = theatre.enter(
        lambda run: run.submit(plan({"id": "o", "tool": "outer"})), run={"mode": "plan"}
    )

    assert values(turn)["o"] == ["plan", "DENIED"]
    opened = theatre.journal.facts[RunId("child")][0].fact
    assert isinstance(opened, RunOpened)
    assert opened.mode == "plan"


def test_a_change_above_reaches_the_calls_below_that_have_not_started() -> None:
    stage = Stage()
    theatre = Theatre(stage, edits(stage), nesting())

    async def host(run: Run) -> Any:
        turn = await run.submit(plan({"id": "o", "tool": "outer"}), wait=False)
        await asyncio.sleep(7)  # The first of the three edits runs below, two are queued.
        await run.set_mode("plan")
        await turn.wait()
        return turn

    turn = theatre.enter(host)

    assert values(turn)["o"] == ["build", "DENIED", "SUCCEEDED"]
    assert stage.log == ["edit a"]


def test_a_call_within_a_call_is_judged_in_the_mode_that_the_run_above_has_by_then() -> None:
    stage = Stage()
    policy = Policy(modes=[Mode("odd", frozenset({Effect.READ, Effect.PURE, Effect.EXTERNAL}))])
    theatre = Theatre(stage, edits(stage, 0), nesting(), policy=policy)

    async def host(run: Run) -> Any:
        turn = await run.submit(plan({"id": "o", "tool": "outer"}), wait=False)
        await soon()
        await run.set_mode("odd")
        await turn.wait()
        return turn

    turn = theatre.enter(host)

    assert values(turn)["o"] == ["build", "DENIED"]
    assert stage.log == []


def test_of_two_modes_the_one_within_is_never_the_wider() -> None:
    odd = Mode("odd", frozenset({Effect.EXTERNAL}))
    twin = Mode("twin")

    assert at_most(BUILD, PLAN) is PLAN
    assert at_most(PLAN, BUILD) is PLAN
    assert at_most(PLAN, odd) is PLAN, "neither is the narrower: both count for each call"
    assert at_most(BUILD, twin) is twin
    assert mode_of("", None, Policy()) == "build"


# Shells


READS = [
    "ls -la",
    "cat a.txt | grep x | wc -l",
    "grep -r needle . 2>/dev/null",
    "git log --oneline | head -5",
]
CHANGES = [
    "cat a.txt > b.txt",
    "echo x >> log",
    "cat a.txt | tee b.txt",
    "ls; rm -rf build",
    "cat $(rm a.txt)",
    "cat `rm a.txt`",
    "grep x a.txt && sed -i s/a/b/ a.txt",
    "find . -delete",
    'sh -c "$CMD"',
    "$TOOL a.txt",
    "make",
    "cat <(rm a.txt)",
]


def shells() -> Iterator[Any]:
    @tool(
        effect=Effect.EXTERNAL,
        effect_of=shell_effect("command"),
        claims=shell_claims("command"),
    )
    async def run_shell(command: str) -> str:
        return command

    yield run_shell


@pytest.mark.parametrize("command", READS)
def test_a_command_that_provably_reads_runs_in_plan_mode(command: str) -> None:
    theatre = Theatre(Stage(), *shells())

    turn = theatre.enter(
        lambda run: run.submit(
            plan({"id": "s", "tool": "run_shell", "arguments": {"command": command}})
        ),
        run={"mode": "plan"},
    )

    assert states(turn) == {"s": State.SUCCEEDED}


@pytest.mark.parametrize("command", CHANGES)
def test_any_other_command_is_denied_in_plan_mode(command: str) -> None:
    theatre = Theatre(Stage(), *shells())

    turn = theatre.enter(
        lambda run: run.submit(
            plan({"id": "s", "tool": "run_shell", "arguments": {"command": command}})
        ),
        run={"mode": "plan"},
    )

    assert states(turn) == {"s": State.DENIED}
    assert turn.call("s").rule == "mode plan"


@pytest.mark.parametrize("command", CHANGES)
def test_any_other_command_asks_where_the_host_chose_so(command: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(
        '[[mode]]\nname = "plan"\neffects_allowed = ["pure", "read"]\notherwise = "ask"\n'
    )
    theatre = Theatre(Stage(), *shells(), policy=file)

    async def host(run: Run) -> int:
        await run.submit(
            plan({"id": "s", "tool": "run_shell", "arguments": {"command": command}}), wait=False
        )
        asked = len(run.approvals)
        await run.cancel()
        return asked

    assert theatre.enter(host, run={"mode": "plan"}) == 1
    assert theatre.kept(CallStarted) == []


def test_a_command_whose_text_comes_from_another_call_is_judged_when_it_is_known() -> None:
    stage = Stage()
    say = stage.tool(
        "say", Do(lambda given: given["text"]), effect=Effect.READ, schema={"type": "object"}
    )
    theatre = Theatre(stage, say, *shells())

    turn = theatre.enter(
        lambda run: run.submit(
            plan(
                {"id": "x", "tool": "say", "arguments": {"text": "ls"}},
                {"id": "y", "tool": "say", "arguments": {"text": "rm a"}},
                {"id": "s", "tool": "run_shell", "arguments": {"command": "${x}"}},
                {"id": "t", "tool": "run_shell", "arguments": {"command": "${y}"}},
            )
        ),
        run={"mode": "plan"},
    )

    assert states(turn)["s"] is State.SUCCEEDED
    assert states(turn)["t"] is State.DENIED
