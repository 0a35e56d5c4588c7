"""Loops in an engine: refused before anybody is asked, told to the model, kept over restarts."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

import pytest

from laneway import (
    Effect,
    Engine,
    Failure,
    Happened,
    Loops,
    Secret,
    State,
    ToolContext,
    ToolFailed,
    tool,
)
from laneway.engine.reexecution import reexecute
from laneway.engine.run import Run
from laneway.errors import ToolError
from laneway.facts import CallQueued, MessageSaid
from laneway.testing import Do, Raise, Return, Sleep, Stage
from laneway.testing.clock import VirtualClock, run_virtual
from laneway.testing.theatre import RUN, Theatre, failure, plan, states

ANY: dict[str, Any] = {"type": "object"}


def asks(name: str, tool: str = "bash", **arguments: Any) -> dict[str, Any]:
    return {"id": name, "tool": tool, "arguments": arguments}


def chat(name: str, tool: str, arguments: str) -> dict[str, Any]:
    """An answer of another provider, with ids and spelling of its own."""
    function = {"name": tool, "arguments": arguments}
    message = {
        "role": "assistant",
        "tool_calls": [{"id": name, "type": "function", "function": function}],
    }
    return {
        "id": f"chatcmpl-{name}",
        "choices": [{"message": message, "finish_reason": "tool_calls"}],
    }


async def again(run: Run, times: int, *calls: dict[str, Any]) -> list[str]:
    """Ask for the same in so many answers; gives what the first call of each came to."""
    found: list[str] = []
    for _ in range(times):
        turn = await run.submit(plan(*(calls or (asks("a"),))))
        found.append(came(turn.calls[0].outcome))
    return found


def came(outcome: Any) -> str:
    return str(outcome.code) if isinstance(outcome, Failure) else "ran"


LOOP = "LOOP_DETECTED"
GONE = ToolFailed("gone", happened=Happened.NOTHING)


def bash(stage: Stage, *steps: Any, **declared: Any) -> Any:
    return stage.tool("bash", *(steps or (Return(""),)), schema=ANY, **declared)


# Handed cases


def test_h_bud_2_the_same_call_dressed_differently_is_stopped_and_polling_is_not() -> None:
    stage = Stage()
    counted = Do(lambda _: stage.entered["poll"])
    tools = [bash(stage, effect=Effect.EXTERNAL), stage.tool("poll", counted, schema=ANY)]
    theatre = Theatre(stage, *tools, loops=Loops(repeats=4))
    spelt = ['{"cmd": "true", "timeout": 5}', '{"timeout":5,\n  "cmd":"true"}']

    async def loop(run: Run) -> list[Any]:
        turns = [await run.submit(chat(f"call_{n}", "bash", spelt[n % 2])) for n in range(10)]
        assert all(len(turn.messages) == 2 for turn in turns), "each gets a result"
        assert "keep asking for bash" in turns[4].messages[1]["content"]
        assert "LOOP_DETECTED" in turns[9].messages[1]["content"]
        return [(turn.calls[0].state, came(turn.calls[0].outcome)) for turn in turns]

    async def watch(run: Run) -> list[str]:
        turns = [await run.submit(chat(f"w{n}", "poll", '{"job": 1}')) for n in range(10)]
        return [came(turn.calls[0].outcome) for turn in turns]

    async def another_message(run: Run) -> list[str]:
        await run.say("Once more, please.")
        turns = [await run.submit(chat(f"m{n}", "bash", spelt[n % 2])) for n in range(5)]
        return [came(turn.calls[0].outcome) for turn in turns]

    assert theatre.enter(loop) == [(State.SUCCEEDED, "ran")] * 4 + [(State.DENIED, LOOP)] * 6
    assert stage.entered["bash"] == 4
    assert theatre.enter(another_message) == ["ran"] * 4 + [LOOP]
    assert theatre.enter(watch) == ["ran"] * 10


# By default


def test_two_run_the_third_is_refused_and_says_what_to_do() -> None:
    stage = Stage()
    theatre = Theatre(stage, bash(stage))

    async def host(run: Run) -> Failure:
        assert await again(run, 3) == ["ran", "ran", LOOP]
        turn = run.turns[-1]
        assert turn.calls[0].rule == "loops"
        assert turn.messages[-1]["results"][0]["error"]["hint"].startswith("Do not ask for it")
        return failure(turn, "a")

    refused = theatre.enter(host)

    assert refused.message.startswith("You keep asking for bash with the same arguments: twice by")
    assert not refused.retry


@pytest.mark.parametrize("lifted", [None, Loops.OFF])
def test_it_is_lifted_by_name(lifted: Loops | None) -> None:
    stage = Stage()
    theatre = Theatre(stage, bash(stage), loops=lifted)

    assert theatre.enter(lambda run: again(run, 60)) == ["ran"] * 60


def test_an_edit_in_between_is_progress_one_that_is_refused_is_not() -> None:
    stage = Stage()
    edit = stage.tool("edit", Do(edited), effect=Effect.WRITE, schema=ANY)
    theatre = Theatre(stage, bash(stage, Return("3 failed")), edit)

    async def host(run: Run) -> list[str]:
        found: list[str] = []
        for n in range(4):
            found += await again(run, 1)
            await run.submit(plan(asks("e", "edit", n=n)))
        for n in range(2):
            found += await again(run, 1)
            await run.submit(plan(asks("e", "edit", n=n, bad=True)))
        return found + await again(run, 1)

    assert theatre.enter(host) == ["ran"] * 6 + [LOOP]


def edited(given: Any) -> str:
    if given.get("bad"):
        raise ToolFailed("no such text", happened=Happened.NOTHING)
    return f"edited {given['n']}"


def test_a_call_denied_by_the_policy_is_no_business_of_the_detectors() -> None:
    stage = Stage()
    theatre = Theatre(stage, bash(stage, effect=Effect.WRITE))

    async def host(run: Run) -> list[str]:
        return await again(run, 5)

    assert theatre.enter(host, run={"mode": "plan"}) == ["POLICY_DENIED"] * 5


def test_a_failure_that_repeats_is_a_loop_and_a_cancelled_call_says_nothing() -> None:
    stage = Stage()
    theatre = Theatre(stage, bash(stage, Raise(GONE)), stage.tool("slow", Sleep(5)))

    async def host(run: Run) -> list[str]:
        found = await again(run, 3)
        for _ in range(4):
            turn = await run.submit(plan(asks("s", "slow")), wait=False)
            await run.cancel()
            await turn.wait()
            found.append(came(turn.calls[0].outcome))
        return found

    assert theatre.enter(host) == ["TOOL_ERROR", "TOOL_ERROR", LOOP] + ["CANCELLED"] * 4


# Humans


def test_a_human_is_not_asked_a_third_time_what_was_refused_twice() -> None:
    stage = Stage()
    theatre = Theatre(stage, bash(stage, approval=True))

    async def host(run: Run) -> list[str]:
        found: list[str] = []
        for _ in range(4):
            turn = await run.submit(plan(asks("a")), wait=False)
            for question in run.approvals:
                await run.deny(question.id, by="ann", reason="no")
            await turn.wait()
            found.append(came(turn.calls[0].outcome))
        assert len(run.view.approvals) == 2
        return found

    assert theatre.enter(host) == ["APPROVAL_REJECTED"] * 2 + [LOOP] * 2


def test_an_approval_does_not_reset_the_count() -> None:
    stage = Stage()
    theatre = Theatre(stage, bash(stage, approval=True, effect=Effect.EXTERNAL))

    async def host(run: Run) -> list[str]:
        found: list[str] = []
        for _ in range(3):
            turn = await run.submit(plan(asks("a")), wait=False)
            for question in run.approvals:
                await run.approve(question.id)
            await turn.wait()
            found.append(came(turn.calls[0].outcome))
        return found

    assert theatre.enter(host) == ["ran", "ran", LOOP]


@pytest.mark.parametrize(
    ("said", "resets"),
    [
        ("Go on.", True),
        ({"role": "user", "content": "Go on."}, True),
        ({"role": "system", "content": "It is late."}, False),
        ({"role": "assistant", "content": "Well."}, False),
    ],
)
def test_a_message_of_the_user_resets_the_count_another_does_not(
    said: Any, *, resets: bool
) -> None:
    stage = Stage()
    theatre = Theatre(stage, bash(stage))

    async def first(run: Run) -> None:
        await again(run, 3)
        await run.say(said)

    async def live(run: Run) -> list[str]:
        await first(run)
        return await again(run, 3)

    other = Theatre(Stage(), bash(Stage()))
    other.enter(first)

    expected = ["ran", "ran", LOOP] if resets else [LOOP] * 3
    assert theatre.enter(live) == expected
    assert other.enter(lambda run: again(run, 3)) == expected, "the same after a restart"


def test_a_note_of_the_engines_own_is_no_message_of_a_user() -> None:
    lost = ToolFailed("who knows", happened=Happened.UNKNOWN)
    stage = Stage()
    pay = stage.tool("pay", Raise(lost), effect=Effect.EXTERNAL)
    theatre = Theatre(stage, bash(stage), pay)

    async def host(run: Run) -> list[str]:
        await run.submit(plan(asks("p", "pay")))
        found = await again(run, 2)
        await run.settle("p", value="paid")
        return found + await again(run, 1)

    assert theatre.enter(host) == ["ran", "ran", LOOP]
    assert [said.noted for said in theatre.kept(MessageSaid)] == [True]
    assert theatre.enter(lambda run: again(run, 1)) == [LOOP]


# Stop


def test_after_three_answers_with_a_refusal_nothing_runs_before_the_user_speaks() -> None:
    stage = Stage()
    theatre = Theatre(stage, bash(stage), stage.tool("other", Return(1)))
    told: list[Failure] = []

    async def stuck(run: Run) -> None:
        watch = run._live.watch
        assert watch is not None
        watch.on_stop = told.append
        assert await again(run, 4) == ["ran", "ran", LOOP, LOOP]
        assert told == []
        turn = await run.submit(plan(asks("a"), asks("o", "other")))
        assert states(turn) == {"a": State.DENIED, "o": State.DENIED}
        assert failure(turn, "a") in told
        assert "3 answers in a row were so: the run stops here" in failure(turn, "a").message
        assert "this run is stopped" in failure(turn, "o").message

    async def later(run: Run) -> list[str]:
        found = await again(run, 1, asks("o", "other"))
        await run.say("Try the other one.")
        return found + await again(run, 1, asks("o", "other"))

    theatre.enter(stuck)

    assert len(told) == 1
    assert theatre.enter(later) == [LOOP, "ran"]


def test_an_answer_without_a_refusal_ends_the_row() -> None:
    stage = Stage()
    theatre = Theatre(stage, bash(stage), stage.tool("other", Do(lambda _: len(stage.log))))

    async def host(run: Run) -> list[str]:
        await again(run, 4)
        await again(run, 1, asks("o", "other"))
        found = await again(run, 2)
        return found + await again(run, 1, asks("o", "other"))

    async def goes_on(run: Run) -> list[str]:
        found = await again(run, 2)
        return found + await again(run, 1, asks("o", "other", n=2))

    assert theatre.enter(host) == [LOOP, LOOP, "ran"]
    assert theatre.enter(goes_on) == [LOOP, LOOP, "ran"]


# One answer


def test_the_same_reads_of_one_answer_are_one_and_its_effects_are_limited() -> None:
    stage = Stage()
    pay = stage.tool("pay", effect=Effect.EXTERNAL)
    theatre = Theatre(stage, bash(stage), pay, loops=Loops(effects_at_once=3))

    async def host(run: Run) -> None:
        many = [asks(f"c{n}") for n in range(40)] + [asks(f"p{n}", "pay") for n in range(5)]
        turn = await run.submit(plan(*many))
        found = [call.state for call in turn.calls]
        assert found[:43] == [State.SUCCEEDED] * 43
        assert found[43:] == [State.DENIED] * 2
        assert "more than 3 times in one answer" in failure(turn, "p4").message
        assert await again(run, 2) == ["ran", "ran"]
        assert await again(run, 1) == [LOOP]

    theatre.enter(host)


def test_a_dependent_repeat_within_one_answer_is_no_loop() -> None:
    stage = Stage()
    theatre = Theatre(stage, bash(stage))
    calls = [{**asks(f"c{n}"), "needs": [f"c{n - 1}"] if n else []} for n in range(8)]

    turn = theatre.enter(lambda run: run.submit(plan(*calls)))

    assert set(states(turn).values()) == {State.SUCCEEDED}


# References and plans


def test_references_count_by_what_they_stand_for() -> None:
    stage = Stage()
    look = stage.tool("look", Return("seen"), schema=ANY)
    theatre = Theatre(stage, bash(stage), look)

    async def refers(run: Run, name: str) -> str:
        seen = asks(name, "look", n=len(run.turns))
        text = f"$${{{name}}} ${{{name}}}"
        turn = await run.submit(plan(seen, asks("b", n={"$from": name}, text=text)))
        return came(turn.call("b").outcome)

    async def first(run: Run) -> list[str]:
        return [await refers(run, name) for name in ("one", "one", "two")]

    async def second(run: Run) -> list[str]:
        return [await refers(run, "one")]

    assert theatre.enter(first) == ["ran", "ran", "ran"], "the escape tells them apart"
    assert theatre.enter(second) == [LOOP]


# Warnings


def warned(run: Run) -> list[str]:
    return [call.note for turn in run.turns for call in turn.calls if call.note]


def test_a_warning_reaches_the_model_behind_the_result_and_changes_no_outcome() -> None:
    stage = Stage()
    theatre = Theatre(stage, bash(stage, Return("x")), loops=Loops(repeats=3))

    async def host(run: Run) -> None:
        for n in range(2):
            await run.submit(chat(f"c{n}", "bash", "{}"))
        turn = await run.submit(chat("c3", "bash", "{}"))
        content = turn.messages[1]["content"]
        assert content.startswith("x\n[Note: You keep asking for bash with the same arguments")
        assert turn.outcomes["c3"].value == "x"  # type: ignore[union-attr]
        assert run.history()[-1]["content"] == content

    theatre.enter(host)

    async def later(run: Run) -> None:
        assert len(warned(run)) == 1
        assert run.history()[-1]["content"].startswith("x\n[Note:")

    theatre.enter(later)
    (noted,) = [one for one in theatre.kept(CallQueued) if one.note]
    assert noted.note.startswith("[Note: You keep")


def test_little_that_is_new_is_told_once_a_window_also_after_a_restart() -> None:
    stage = Stage()
    loops = Loops(repeats=None, rounds=None, window=10, warn_below=0.5, block_below=0.1)
    theatre = Theatre(stage, bash(stage), loops=loops)

    async def host(run: Run, times: int) -> int:
        for n in range(times):
            turn = await run.submit(plan(asks("a", n=n % 2)))
            assert turn.calls[0].state is State.SUCCEEDED
        return len(warned(run))

    assert theatre.enter(lambda run: host(run, 10)) == 0
    assert theatre.enter(lambda run: host(run, 6)) == 1
    assert theatre.enter(lambda run: host(run, 4)) == 1
    assert theatre.enter(lambda run: host(run, 1)) == 2


def test_a_plan_form_answer_has_its_note_beside_the_value() -> None:
    stage = Stage()
    theatre = Theatre(stage, bash(stage, Return(1)), loops=Loops(repeats=3))

    async def host(run: Run) -> Any:
        await again(run, 3)
        return run.turns[-1].messages[-1]["results"][0]

    result = theatre.enter(host)

    assert result["value"] == 1
    assert result["note"].startswith("[Note: You keep asking")


# Polling


def test_a_polling_tool_has_its_own_interval_and_count() -> None:
    stage = Stage()
    job = stage.tool("job", Return("running"), poll_seconds=10, poll_count=4)
    theatre = Theatre(stage, job, loops=Loops(stop_after=1))

    async def host(run: Run) -> list[str]:
        found = await again(run, 2, asks("j", "job"))
        assert "it may be asked every 10 s" in failure(run.turns[-1], "j").message
        assert failure(run.turns[-1], "j").retry
        for _ in range(3):
            await asyncio.sleep(10)
            found += await again(run, 1, asks("j", "job"))
        return found

    async def once_more(run: Run) -> list[str]:
        await asyncio.sleep(10)
        return await again(run, 1, asks("j", "job"))

    assert theatre.enter(host) == ["ran", LOOP, "ran", "ran", "ran"]
    assert theatre.enter(once_more) == [LOOP]
    assert stage.entered["job"] == 4


def test_news_let_a_polling_tool_go_on_and_many_questions_are_forgotten() -> None:
    stage = Stage()
    job = stage.tool("job", Do(lambda given: stage.entered["job"] // 3), schema=ANY, poll_count=4)
    theatre = Theatre(stage, job, loops=Loops(window=4))

    async def host(run: Run) -> list[str]:
        found = await again(run, 30, asks("j", "job"))
        for n in range(9):
            await run.submit(plan(asks("x", "job", n=n)))
        watch = run._live.watch
        assert watch is not None
        assert len(watch.polls) == 4
        assert not watch.lately.entries
        return found

    assert theatre.enter(host) == ["ran"] * 30


@pytest.mark.parametrize(
    ("declared", "told"),
    [
        ({"poll_seconds": -1}, "poll_seconds=-1 is no interval; give seconds, 0 or more"),
        ({"poll_seconds": "5"}, "poll_seconds='5' is no interval"),
        ({"poll_count": 0}, "poll_count=0 is no number of calls; give 1 or more"),
        ({"poll_count": True}, "poll_count=True is no number of calls"),
    ],
)
def test_what_a_tool_says_of_polling_must_make_sense(declared: Any, told: str) -> None:
    with pytest.raises(ToolError, match=told):
        Stage().tool("job", **declared)


# Secrets


def test_calls_that_differ_in_a_secret_alone_are_different_ones() -> None:
    entered: list[str] = []

    @tool(effect=Effect.READ)
    async def login(password: Annotated[str, Secret]) -> str:
        entered.append(password)
        return "wrong"

    theatre = Theatre(Stage(), login)

    async def host(run: Run) -> list[str]:
        found: list[str] = []
        for n in (1, 2, 3, 3, 3):
            found += await again(run, 1, asks("l", "login", password=f"swordfish-{n}"))
        return found

    async def last(run: Run) -> list[str]:
        return await again(run, 1, asks("l", "login", password=f"swordfish-{3}"))

    assert theatre.enter(host) == ["ran"] * 4 + [LOOP]
    assert theatre.enter(last) == ["ran"], "nobody remembers a secret"


# Restarts


def test_the_count_survives_the_death_of_the_process_at_any_fact() -> None:
    """Whatever of a run is left, what is refused next is what the facts say."""
    stage = Stage()
    tools = [bash(stage, Return("same")), stage.tool("edit", effect=Effect.WRITE, schema=ANY)]
    theatre = Theatre(stage, *tools)

    async def whole(run: Run) -> None:
        await again(run, 1)
        await run.submit(plan(asks("e", "edit", n=1)))
        await again(run, 4)

    theatre.enter(whole)
    rows = list(theatre.journal.facts[RUN])
    for cut in range(1, len(rows) + 1):
        theatre.journal.facts[RUN] = rows[:cut]

        async def resumed(run: Run) -> tuple[int, list[str]]:
            await run.finish()
            since = [turn for turn in run.turns if turn.calls[0].record.tool == "bash"]
            edits = any(turn.calls[0].record.tool == "edit" for turn in run.turns)
            same = sum(turn.calls[0].state is State.SUCCEEDED for turn in since) - edits
            return same, await again(run, 1)

        same, (next_one,) = theatre.enter(resumed)
        assert next_one == (LOOP if same >= 2 else "ran"), (cut, same)


def test_a_resumed_watch_is_the_one_that_was_live() -> None:
    stage = Stage()
    tools = [bash(stage), stage.tool("edit", Do(edited), effect=Effect.WRITE, schema=ANY)]
    theatre = Theatre(stage, *tools, loops=Loops(window=6, stop_after=9))

    def remembered(run: Run) -> Any:
        watch = run._live.watch
        assert watch is not None
        entries = [
            (entry.key, entry.tool, entry.effect, entry.fresh, entry.count, entry.result)
            for entry in watch.lately.entries
        ]
        return entries, watch.stopped, watch._refusals, watch.lately.few, watch.lately.warned

    async def lives(run: Run) -> Any:
        for n in range(12):
            await run.submit(
                plan(asks("a", n=n % 3), asks("e", "edit", n=n // 4), asks("b", n=n % 3))
            )
        await again(run, 3)
        return remembered(run)

    async def looks(run: Run) -> Any:
        return remembered(run)

    live = theatre.enter(lives)

    assert theatre.enter(looks) == live


def test_the_watch_of_a_plan_that_waits_for_a_human_goes_on() -> None:
    stage = Stage()
    theatre = Theatre(stage, bash(stage, approval=True))

    async def first(run: Run) -> None:
        for _ in range(2):
            turn = await run.submit(plan(asks("a")), wait=False)
            if len(run.turns) == 1:
                await run.approve("a")
                await turn.wait()

    async def second(run: Run) -> list[str]:
        await run.approve("a")
        await run.finish()
        return await again(run, 1)

    theatre.enter(first)

    assert theatre.enter(second) == [LOOP]


# Trees of runs


def tree(stage: Stage, body: Callable[[Engine], Any], **options: Any) -> Any:
    """Play one call whose body gets the engine."""
    engines: list[Engine] = []

    @tool(effect=Effect.EXTERNAL, claims=[], timeout=1000)
    async def outer(context: ToolContext) -> Any:
        return await body(engines[0])

    async def main() -> Any:
        tools = [outer, bash(stage, Return("same"))]
        engine = Engine(tools, clock=VirtualClock, **options)
        async with engine, engine.run("top") as run:
            engines.append(engine)
            turn = await run.submit(plan(asks("o", "outer")))
            return turn.outcomes["o"].value  # type: ignore[union-attr]

    return run_virtual(main)


async def child(engine: Engine, name: str, times: int) -> list[str]:
    async with engine.run(name) as run:
        return await again(run, times)


def test_each_run_of_a_tree_may_ask_but_not_all_of_them_for_ever() -> None:
    async def body(engine: Engine) -> list[str]:
        found: list[str] = []
        for n in range(8):
            found += await child(engine, f"child {n}", 1)
        return found

    stage = Stage()
    loops = Loops(repeats_in_tree=6)

    assert tree(stage, body, loops=loops) == ["ran"] * 6 + [LOOP] * 2
    assert tree(Stage(), body) == ["ran"] * 8


def test_a_sequence_over_the_runs_of_a_tree_is_one() -> None:
    async def body(engine: Engine) -> list[str]:
        found: list[str] = []
        for n in range(4):
            async with engine.run(f"child {n}") as run:
                for m in range(2):
                    found += await again(run, 1, asks("a", n=m))
        return found

    assert tree(Stage(), body) == ["ran"] * 6 + [LOOP] * 2


def test_what_runs_beside_one_another_does_not_count_before_it_is_over() -> None:
    async def body(engine: Engine) -> list[str]:
        many = [child(engine, f"child {n}", 1) for n in range(6)]
        return [one for found in await asyncio.gather(*many) for one in found]

    assert tree(Stage(), body, loops=Loops(repeats_in_tree=2)) == ["ran"] * 6


def test_a_user_message_to_the_run_at_the_top_resets_the_tree() -> None:
    async def body(engine: Engine) -> list[str]:
        (top,) = [one for one in engine._schedulers if one.log.view.run == "top"]
        found = await child(engine, "one", 1) + await child(engine, "two", 1)
        assert top.watch is not None
        top.watch.heard()
        return found + await child(engine, "three", 1)

    assert tree(Stage(), body, loops=Loops(repeats_in_tree=2)) == ["ran"] * 3


def test_what_a_body_calls_itself_is_a_program_and_no_model() -> None:
    stage = Stage()

    @tool(effect=Effect.EXTERNAL, claims=[], timeout=1000)
    async def outer(context: ToolContext) -> int:
        return len([await context.invoke("bash", cmd="true") for _ in range(9)])

    theatre = Theatre(stage, outer, bash(stage, Return("same")))

    turn = theatre.play(plan(asks("o", "outer")))

    assert turn.outcomes["o"].value == 9  # type: ignore[union-attr]


# What was recorded


def test_a_run_with_refusals_and_notes_is_executed_again_as_it_was() -> None:
    stage = Stage()
    theatre = Theatre(stage, bash(stage), loops=Loops(repeats=3))

    async def host(run: Run) -> None:
        await again(run, 5)

    theatre.enter(host)

    result = asyncio.run(reexecute(theatre.journal.facts[RUN]))

    assert result.divergence is None, result
