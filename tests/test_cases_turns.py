"""Cases from bug reports of the field: dependencies, resources, failures, pairing, approvals."""

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from laneway import (
    Code,
    Effect,
    Engine,
    Failure,
    Happened,
    Limits,
    State,
    Success,
    Tool,
    ToolContext,
    Turn,
)
from laneway.engine.run import Run
from laneway.errors import TurnNotReadyError
from laneway.testing.clock import run_virtual
from laneway.testing.scripted import Block, Do, Log, Raise, Return, Sleep, Stage

Event = tuple[float, Callable[[Run], Any]]


def plan(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"calls": [{"arguments": {}, **call} for call in calls]}


def play(
    stage: Stage,
    tools: Sequence[Any],
    reply: Any,
    *,
    events: Sequence[Event] = (),
    after: Callable[[Run, Turn], Any] | None = None,
    mode: str | None = None,
    **options: Any,
) -> Turn:
    """Run one turn on virtual time; events happen at their second."""

    async def main() -> Turn:
        engine = Engine(tools, clock=stage.make_clock, **options)
        async with engine, engine.run("case", mode=mode) as run:
            began = asyncio.get_running_loop().time()

            async def happen() -> None:
                for at, event in events:
                    await asyncio.sleep(began + at - asyncio.get_running_loop().time())
                    outcome = event(run)
                    if asyncio.iscoroutine(outcome):
                        await outcome

            happening = asyncio.create_task(happen())
            turn = await run.submit(reply)
            stage.makespan = asyncio.get_running_loop().time() - began
            await happening
            if after is not None:
                outcome = after(run, turn)
                if asyncio.iscoroutine(outcome):
                    await outcome
            return turn

    return run_virtual(main)


def states(turn: Turn) -> dict[str, State]:
    return {call.record.provider_id: call.state for call in turn.calls}


def codes(turn: Turn) -> dict[str, Code]:
    return {
        name: outcome.code
        for name, outcome in turn.outcomes.items()
        if isinstance(outcome, Failure)
    }


def values(turn: Turn) -> dict[str, Any]:
    return {
        name: outcome.value
        for name, outcome in turn.outcomes.items()
        if isinstance(outcome, Success)
    }


def ended_at(turn: Turn, name: str) -> float:
    call = turn.call(name)
    assert call.ended is not None
    return call.ended - call.submitted


def openai(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def asked(id_: str, name: str, arguments: Any) -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def anthropic(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {
        "role": "assistant",
        "stop_reason": "tool_use",
        "content": [{"type": "tool_use", "input": {}, **block} for block in blocks],
    }


def failure(turn: Turn, name: str) -> Failure:
    outcome = turn.outcomes[name]
    assert isinstance(outcome, Failure)
    return outcome


# call_identity, argument_parsing, tool_naming


def test_h_ident_1_two_calls_under_one_id_both_run_and_get_ids_of_their_own() -> None:
    stage = Stage()
    reply = openai(
        asked("call_7", "read_note", '{"name": "alpha"}'),
        asked("call_7", "read_note", '{"name": "beta"}'),
    )

    turn = play(stage, [stage.tool("read_note", Return("note:{name}"))], reply)

    assistant, first, second = turn.messages
    ids = [call["id"] for call in assistant["tool_calls"]]
    assert ids[0] == "call_7"
    assert len(set(ids)) == 2
    assert [first["content"], second["content"]] == ["note:alpha", "note:beta"]
    assert [first["tool_call_id"], second["tool_call_id"]] == ids
    assert stage.entered["read_note"] == 2
    assert set(states(turn).values()) == {State.SUCCEEDED}


def test_h_ident_1_the_same_call_twice_is_one_call() -> None:
    stage = Stage()
    call = asked("call_7", "read_note", '{"name": "alpha"}')

    turn = play(stage, [stage.tool("read_note", Return("note:{name}"))], openai(call, dict(call)))

    assistant, *results = turn.messages
    assert len(assistant["tool_calls"]) == 1
    assert [result["content"] for result in results] == ["note:alpha"]
    assert stage.entered["read_note"] == 1


def test_h_args_1_nothing_where_the_arguments_should_be_means_no_arguments() -> None:
    stage = Stage()
    greet_schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
    }
    tools = [
        stage.tool("ping", Return("pong"), schema={"type": "object", "properties": {}}),
        stage.tool("greet", Return("hi {name}"), schema=greet_schema),
    ]
    absent = asked("p4", "ping", "")
    del absent["function"]["arguments"]
    reply = openai(
        asked("p1", "ping", ""),
        asked("p2", "ping", " \n"),
        asked("p3", "ping", None),
        absent,
        asked("p5", "ping", "{}"),
        asked("g1", "greet", ""),
    )

    turn = play(stage, tools, reply)

    assert stage.entered == {"ping": 5}
    assert states(turn) == dict.fromkeys(["p1", "p2", "p3", "p4", "p5"], State.SUCCEEDED) | {
        "g1": State.FAILED
    }
    assert codes(turn) == {"g1": Code.INVALID_ARGUMENTS}
    assert "name" in failure(turn, "g1").message
    replayed = turn.messages[0]["tool_calls"]
    assert [call["function"]["arguments"] for call in replayed] == ["{}"] * 6


def test_h_args_2_a_second_layer_of_json_is_unwrapped_where_the_schema_says_so() -> None:
    seen: list[Any] = []
    stage = Stage()
    schema = {
        "type": "object",
        "properties": {
            "steps": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"title": {"type": "string"}},
                    "required": ["title"],
                },
            },
            "meta": {"type": "object"},
            "note": {"type": "string"},
        },
        "required": ["steps"],
    }
    save = stage.tool(
        "save_plan", Do(seen.append), Return("ok"), schema=schema, effect=Effect.WRITE
    )
    reply = openai(
        asked(
            "a",
            "save_plan",
            '{"steps": "[{\\"title\\": \\"one\\"}]", "meta": "{\\"k\\": 1}", "note": "[1, 2]"}',
        ),
        asked("b", "save_plan", '"{\\"steps\\": [{\\"title\\": \\"two\\"}]}"'),
        asked("c", "save_plan", '{"steps": "[{\\"title\\": 5}]"}'),
        asked("d", "save_plan", '{"steps": "see above"}'),
    )

    turn = play(stage, [save], reply)

    meant = [
        {"steps": [{"title": "one"}], "meta": {"k": 1}, "note": "[1, 2]"},
        {"steps": [{"title": "two"}]},
    ]
    assert [dict(one) for one in seen] == meant
    assert [turn.call(name).record.arguments for name in "ab"] == meant
    assert states(turn) == {
        "a": State.SUCCEEDED,
        "b": State.SUCCEEDED,
        "c": State.FAILED,
        "d": State.FAILED,
    }
    assert codes(turn) == dict.fromkeys("cd", Code.INVALID_ARGUMENTS)
    assert stage.entered["save_plan"] == 2


def test_h_name_1_an_invented_tool_is_answered_and_its_neighbours_run() -> None:
    stage = Stage()
    tools = [stage.tool("lookup", Sleep(0.2), Return("v:{key}"))]
    reply = anthropic(
        {"id": "t1", "name": "lookup", "input": {"key": "a"}},
        {"id": "t2", "name": "fetch_magic", "input": {"key": "b"}},
        {"id": "t3", "name": "lookup", "input": {"key": "c"}},
    )
    alive: list[int] = []

    turn = play(stage, tools, reply, after=lambda *_: alive.append(others_alive()))

    assert states(turn) == {"t1": State.SUCCEEDED, "t2": State.FAILED, "t3": State.SUCCEEDED}
    assert codes(turn) == {"t2": Code.UNKNOWN_TOOL}
    _, results = turn.messages
    assert results["role"] == "user"
    assert [block["tool_use_id"] for block in results["content"]] == ["t1", "t2", "t3"]
    assert results["content"][1]["is_error"] is True
    assert "lookup" in json.dumps(results["content"][1])
    assert stage.entered["lookup"] == 2
    assert alive == [0]


def others_alive() -> int:
    """How many tasks are alive beside the one that asks."""
    return len(asyncio.all_tasks()) - 1


# result_pairing


def test_h_pair_2_a_cancelled_turn_answers_every_call(tmp_path: Path) -> None:
    stage = Stage()
    tools = [
        stage.tool("quick", Return("done")),
        stage.tool("slow", Sleep(5), Return("late"), claims=["lane:L"]),
    ]
    reply = anthropic(
        {"id": "a", "name": "quick"}, {"id": "b", "name": "slow"}, {"id": "c", "name": "slow"}
    )
    journal = tmp_path / "runs.db"
    shown: list[list[dict[str, Any]]] = []

    async def go_on(run: Run, _: Turn) -> None:
        shown.append(await run.say("go on"))

    turn = play(
        stage,
        tools,
        reply,
        events=[(0.15, lambda run: run.cancel())],
        after=go_on,
        journal=journal,
    )

    assert states(turn) == {"a": State.SUCCEEDED, "b": State.CANCELLED, "c": State.CANCELLED}
    assert stage.entered == {"quick": 1, "slow": 1}
    assert ended_at(turn, "b") < 1
    _, message = shown[0]
    kinds = [block["type"] for block in message["content"]]
    assert message["role"] == "user"
    assert kinds == ["tool_result", "tool_result", "tool_result", "text"]
    assert message["content"][3]["text"] == "go on"
    done, *stopped = message["content"][:3]
    assert "done" in json.dumps(done)
    for block in stopped:
        assert block["is_error"] is True
        assert "cancelled" in json.dumps(block)

    async def again() -> list[dict[str, Any]]:
        engine = Engine(tools, journal=journal)
        async with engine, engine.run("case") as run:
            return run.history()

    assert asyncio.run(again()) == shown[0]


# dependencies


def test_h_dep_1_what_needs_a_failed_call_is_skipped_at_once() -> None:
    stage = Stage()
    tools = [
        stage.tool("prices", Sleep(0.1), Raise(RuntimeError("no feed"))),
        stage.tool("slow", Sleep(1), Return("s")),
        stage.tool("place_order", Log("order"), Return("placed"), effect=Effect.EXTERNAL),
        stage.tool("notify", Log("notify"), Return("sent"), effect=Effect.EXTERNAL),
        stage.tool("audit", Return("ok")),
    ]
    reply = plan(
        {"id": "r", "tool": "prices"},
        {"id": "s", "tool": "slow"},
        {
            "id": "d",
            "tool": "place_order",
            "arguments": {"at": {"$from": "r"}, "extra": {"$from": "s"}},
        },
        {"id": "n", "tool": "notify", "needs": ["d"]},
        {"id": "a", "tool": "audit"},
    )

    turn = play(stage, tools, reply)

    assert states(turn) == {
        "r": State.FAILED,
        "s": State.SUCCEEDED,
        "d": State.SKIPPED,
        "n": State.SKIPPED,
        "a": State.SUCCEEDED,
    }
    assert codes(turn) == {
        "r": Code.TOOL_ERROR,
        "d": Code.DEPENDENCY_FAILED,
        "n": Code.DEPENDENCY_FAILED,
    }
    assert stage.log == []
    assert ended_at(turn, "d") <= 0.3
    assert ended_at(turn, "n") <= 0.3
    for name in "dn":
        assert failure(turn, name).cause == turn.call("r").id
        assert re.search(r"\br\b", failure(turn, name).message)
    assert list(turn.outcomes) == ["r", "s", "d", "n", "a"]


def test_h_dep_2_ids_that_are_prefixes_of_others_are_told_apart() -> None:
    stage = Stage()

    async def wait_for_two(arguments: Any) -> None:
        if arguments["n"] == 2:
            await asyncio.sleep(1)

    tools = [
        stage.tool("val", Do(wait_for_two), Return("v{n}")),
        stage.tool("join", Sleep(0.1), Return("{text}")),
    ]
    calls: list[dict[str, Any]] = [
        {"id": f"c{n}", "tool": "val", "arguments": {"n": n}} for n in range(1, 12)
    ]
    calls.append({"id": "j", "tool": "join", "arguments": {"text": "${c1}+${c11}=${c10}"}})

    turn = play(stage, tools, plan(*calls))

    join = stage.of("join").span
    assert values(turn)["j"] == "v1+v11=v10"
    for n in (1, 10, 11):
        assert stage.of("val", n=n).span.end <= join.start
    assert join.overlaps(stage.of("val", n=2).span)


def test_h_dep_3_a_ring_is_refused_and_the_rest_runs() -> None:
    stage = Stage()
    tools = [stage.tool("echo", Return("{v}"))]
    reply = plan(
        {"id": "a", "tool": "echo", "arguments": {"v": 1}, "needs": ["b"]},
        {"id": "b", "tool": "echo", "arguments": {"v": 2}, "needs": ["c"]},
        {"id": "c", "tool": "echo", "arguments": {"v": "${a}"}},
        {"id": "d", "tool": "echo", "arguments": {"v": 4}},
        {"id": "e", "tool": "echo", "arguments": {"v": 5}, "needs": ["a"]},
    )

    turn = play(stage, tools, reply)

    assert states(turn) == {
        "a": State.FAILED,
        "b": State.FAILED,
        "c": State.FAILED,
        "d": State.SUCCEEDED,
        "e": State.SKIPPED,
    }
    assert codes(turn) == dict.fromkeys("abc", Code.DEPENDENCY_CYCLE) | {
        "e": Code.DEPENDENCY_FAILED
    }
    assert stage.entered["echo"] == 1
    assert all("a, b, c" in failure(turn, name).message for name in "abc")
    assert len(turn.outcomes) == 5


# resource_conflicts


def test_h_res_1_three_spellings_of_one_file_are_one_file(tmp_path: Path) -> None:
    stage = Stage()
    put = stage.tool(
        "put",
        Log("start {tag}"),
        Sleep(0.1),
        Log("end {tag}"),
        Return("ok"),
        effect=Effect.WRITE,
        claims=["write file:{path}"],
    )
    paths = {
        "a": "./out/f.txt",
        "b": "out/../out/f.txt",
        "c": f"{tmp_path}/out//f.txt",
        "d": "out/g.txt",
    }
    reply = plan(
        *(
            {"id": tag, "tool": "put", "arguments": {"path": path, "tag": tag}}
            for tag, path in paths.items()
        )
    )

    turn = play(stage, [put], reply, workspace=tmp_path)

    spans = {tag: stage.of("put", tag=tag).span for tag in paths}
    assert spans["a"].end <= spans["b"].start
    assert spans["b"].end <= spans["c"].start
    assert spans["d"].overlaps(spans["a"])
    assert ended_at(turn, "c") <= 0.6
    assert set(states(turn).values()) == {State.SUCCEEDED}


def test_h_res_3_reads_see_the_writes_that_were_asked_for_before_them(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("old")
    (tmp_path / "y.txt").write_text("why")

    def write(arguments: Any) -> None:
        (tmp_path / arguments["path"]).write_text(arguments["text"])

    def read(arguments: Any) -> str:
        path: str = arguments["path"]
        return (tmp_path / path).read_text()

    stage = Stage()
    tools = [
        stage.tool(
            "write_file",
            Sleep(0.2),
            Do(write),
            Return("ok"),
            effect=Effect.WRITE,
            claims=["write file:{path}"],
        ),
        stage.tool("read_file", Sleep(0.01), Do(read), claims=["read file:{path}"]),
    ]
    reply = plan(
        {"id": "r0", "tool": "read_file", "arguments": {"path": "x.txt", "n": 0}},
        {"id": "w", "tool": "write_file", "arguments": {"path": "x.txt", "text": "new"}},
        {"id": "r1", "tool": "read_file", "arguments": {"path": "x.txt", "n": 1}},
        {"id": "r2", "tool": "read_file", "arguments": {"path": "x.txt", "n": 2}},
        {"id": "y", "tool": "read_file", "arguments": {"path": "y.txt", "n": 3}},
    )

    turn = play(stage, tools, reply, workspace=tmp_path)

    assert values(turn) == {"r0": "old", "w": "ok", "r1": "new", "r2": "new", "y": "why"}
    written = stage.of("write_file").span
    reads = [stage.of("read_file", n=n).span for n in range(4)]
    assert reads[0].end <= written.start
    assert written.end <= reads[1].start
    assert written.end <= reads[2].start
    assert reads[1].overlaps(reads[2])
    assert reads[3].end <= written.end


# lane_deadlock


def test_h_lane_1_a_tool_may_call_back_into_its_own_lane() -> None:
    stage = Stage()

    async def outer(context: ToolContext) -> str:
        return f"outer:{await context.invoke('inner')}"

    tools = [
        Tool.of(outer, effect=Effect.READ, claims=["lane:db"]),
        stage.tool("inner", Log("inner"), Return("i"), claims=["lane:db"]),
        stage.tool("other", Log("other"), Return("o"), claims=["lane:db"]),
    ]

    turn = play(
        stage,
        tools,
        plan({"id": "a", "tool": "outer"}, {"id": "b", "tool": "other"}),
        lanes={"db": 1},
    )

    assert states(turn) == {"a": State.SUCCEEDED, "b": State.SUCCEEDED}
    assert turn.outcomes == {"a": Success(value="outer:i"), "b": Success(value="o")}
    assert stage.log == ["inner", "other"]
    assert stage.makespan <= 1


def test_h_lane_2_a_call_that_is_cancelled_in_the_queue_leaves_it_at_once() -> None:
    stage = Stage()
    work = stage.tool("work", Log("{tag}"), Sleep(0.3), Return("{tag}"), claims=["lane:L"])
    reply = plan(*({"id": tag, "tool": "work", "arguments": {"tag": tag}} for tag in "abc"))
    seen: list[Any] = []

    def look(run: Run) -> None:
        seen.append(run.turns[-1].call("b").state)

    def lanes(run: Run, _: Turn) -> None:
        seen.append([one for one in run._engine.status().lanes if one.resource == "lane:L"])

    turn = play(
        stage,
        [work],
        reply,
        lanes={"L": 1},
        events=[(0.1, lambda run: run.cancel("b")), (0.2, look)],
        after=lanes,
    )

    assert states(turn) == {"a": State.SUCCEEDED, "b": State.CANCELLED, "c": State.SUCCEEDED}
    assert failure(turn, "b").code is Code.CANCELLED
    assert stage.log == ["a", "c"]
    assert stage.makespan <= 0.9
    state, (lane,) = seen
    assert state is State.CANCELLED
    assert (lane.max_concurrent, lane.holders, lane.waiters) == (1, (), ())


# failure_isolation


def test_h_fail_1_one_failure_leaves_its_siblings_alone() -> None:
    stage = Stage()
    tools = [
        stage.tool("ok", Sleep(0.2), Log("{tag}"), Return("{tag}"), effect=Effect.EXTERNAL),
        stage.tool("bad", Sleep(0.05), Raise(ValueError("boom"))),
    ]
    reply = plan(
        {"id": "a", "tool": "ok", "arguments": {"tag": "a"}},
        {"id": "b", "tool": "bad"},
        {"id": "c", "tool": "ok", "arguments": {"tag": "c"}},
    )
    alive: list[int] = []

    turn = play(stage, tools, reply, after=lambda *_: alive.append(others_alive()))

    assert states(turn) == {"a": State.SUCCEEDED, "b": State.FAILED, "c": State.SUCCEEDED}
    assert codes(turn) == {"b": Code.TOOL_ERROR}
    assert sorted(stage.log) == ["a", "c"]
    assert stage.entered == {"ok": 2, "bad": 1}
    assert list(turn.outcomes) == ["a", "b", "c"]
    told = failure(turn, "b").message
    assert "ValueError: boom" in told
    assert "Traceback" not in told
    assert alive == [0]


def test_h_fail_2_a_tool_that_exits_is_a_failure() -> None:
    stage = Stage()
    tools = [
        stage.tool("quitter", Raise(SystemExit(3)), sync=True),
        stage.tool("ok", Sleep(0.2), Return("ok")),
    ]

    turn = play(stage, tools, plan({"id": "q", "tool": "quitter"}, {"id": "a", "tool": "ok"}))

    assert states(turn) == {"q": State.FAILED, "a": State.SUCCEEDED}
    assert codes(turn) == {"q": Code.TOOL_ERROR}
    assert "SystemExit" in failure(turn, "q").message


def test_h_fail_2_a_keyboard_interrupt_leaves_after_the_final_states(tmp_path: Path) -> None:
    stage = Stage()
    tools = [
        stage.tool("ctrl_c", Sleep(0.05), Raise(KeyboardInterrupt())),
        stage.tool("ok", Sleep(0.2), Return("ok")),
    ]
    journal = tmp_path / "runs.db"
    reply = plan({"id": "k", "tool": "ctrl_c"}, {"id": "b", "tool": "ok"})

    with pytest.raises(KeyboardInterrupt):
        play(stage, tools, reply, journal=journal)

    async def again() -> tuple[dict[str, State], list[dict[str, Any]]]:
        engine = Engine(tools, journal=journal)
        async with engine, engine.run("case") as run:
            return states(run.turns[0]), run.history()

    ended, history = asyncio.run(again())
    assert ended == {"k": State.CANCELLED, "b": State.CANCELLED}
    assert history[0]["role"] == "assistant"
    assert "cancelled" in json.dumps(history[1:])


# policy_approval


def test_h_pol_2_half_answered_approvals_show_nothing_made_up() -> None:
    stage = Stage()
    tools = [
        stage.tool("look", Return("seen")),
        stage.tool("change", Log("{tag}"), Return("{tag}"), effect=Effect.WRITE, approval=True),
    ]
    reply = plan(
        {"id": "l", "tool": "look"},
        {"id": "x", "tool": "change", "arguments": {"tag": "x"}},
        {"id": "y", "tool": "change", "arguments": {"tag": "y"}},
    )

    def ask(run: Run) -> None:
        turn = run.open_turn
        assert turn is not None
        assert not turn.ready
        assert turn.open_calls == ["x"]
        with pytest.raises(TurnNotReadyError, match="call x is open"):
            _ = turn.messages

    turn = play(
        stage,
        tools,
        reply,
        events=[
            (0.1, lambda run: run.approve("y")),
            (0.3, ask),
            (0.4, lambda run: run.deny("x", reason="not today")),
        ],
    )

    assert states(turn) == {"l": State.SUCCEEDED, "x": State.DENIED, "y": State.SUCCEEDED}
    assert codes(turn) == {"x": Code.APPROVAL_REJECTED}
    assert "not today" in failure(turn, "x").message
    assert stage.log == ["y"]
    assert list(turn.outcomes) == ["l", "x", "y"]
    assert ended_at(turn, "l") < 0.1


# timeout_cancellation


def test_h_time_1_a_timed_out_thread_is_given_up_and_its_late_value_is_not_used() -> None:
    stage = Stage()
    tools = [
        stage.tool(
            "stuck",
            Block(1.5),
            Log("late {tag}"),
            Return("late"),
            sync=True,
            effect=Effect.EXTERNAL,
            timeout=0.2,
            retries=2,
        ),
        stage.tool("small", Return("fine"), sync=True),
    ]
    reply = plan(
        {"id": "s1", "tool": "stuck", "arguments": {"tag": 1}},
        {"id": "s2", "tool": "stuck", "arguments": {"tag": 2}},
        {"id": "m", "tool": "small", "after": ["s1", "s2"]},
    )
    seen: dict[str, Any] = {}

    async def two_seconds_later(run: Run, turn: Turn) -> None:
        seen["before"] = turn.messages, run._engine.status().stuck_threads
        await asyncio.sleep(2 - stage.makespan)
        seen["after"] = turn.messages, run._engine.status().stuck_threads
        seen["late"] = [call.late for call in turn.calls]

    turn = play(stage, tools, reply, after=two_seconds_later, limits=Limits(tool_threads=2))

    assert states(turn) == {"s1": State.TIMED_OUT, "s2": State.TIMED_OUT, "m": State.SUCCEEDED}
    assert codes(turn) == dict.fromkeys(["s1", "s2"], Code.TIMEOUT)
    assert stage.entered == {"stuck": 2, "small": 1}
    assert stage.makespan < 1
    told = failure(turn, "s1")
    assert "may still be working" in told.message
    assert "may have had its effect" in told.message
    assert told.happened is Happened.UNKNOWN
    assert seen["before"][1] == 2
    assert seen["after"] == (seen["before"][0], 0)
    assert seen["late"] == ["late", "late", ""]
    assert sorted(stage.log) == ["late 1", "late 2"]


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_h_time_2_a_jump_of_the_wall_clock_changes_no_limit(jump: float) -> None:
    stage = Stage()
    tries: list[int] = []

    def fail_once(_: Any) -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("gone")
        return "ok"

    tools = [
        stage.tool("nap", Sleep(0.3), Return("ok"), timeout=1),
        stage.tool("flaky", Do(fail_once), retries=1),
    ]

    def set_clock(_: Run) -> None:
        assert stage.clock is not None
        stage.clock.advance_wall(jump)

    turn = play(
        stage,
        tools,
        plan({"id": "nap", "tool": "nap"}, {"id": "flaky", "tool": "flaky"}),
        events=[(0.1, set_clock)],
        limits=Limits(back_off_seconds=0.2),
    )

    assert set(states(turn).values()) == {State.SUCCEEDED}
    assert stage.makespan < 0.8
    nap = turn.call("nap")
    assert nap.started is not None
    assert nap.ended is not None
    assert 0.25 <= nap.ended - nap.started <= 0.6
    assert turn.call("flaky").attempt == 2


# threads_and_loops


def test_h_thr_1_blocking_tools_run_beside_the_loop() -> None:
    stage = Stage()

    async def awaited() -> str:
        await asyncio.sleep(0)
        return "from the loop"

    tools = [
        stage.tool("blocking", Block(0.3), Return("s"), sync=True),
        stage.tool("awaiting", Sleep(0.3), Return("a")),
        stage.tool("lazy", Do(lambda _: awaited()), sync=True),
    ]
    beats: list[float] = []

    async def beat(_: Run) -> None:
        for _n in range(30):
            beats.append(asyncio.get_running_loop().time())
            await asyncio.sleep(0.01)

    reply = plan(
        {"id": "x1", "tool": "blocking", "arguments": {"n": 1}},
        {"id": "x2", "tool": "blocking", "arguments": {"n": 2}},
        {"id": "y1", "tool": "awaiting"},
        {"id": "z", "tool": "lazy"},
    )

    turn = play(stage, tools, reply, events=[(0.0, beat)])

    one, two = (stage.of("blocking", n=n).span for n in (1, 2))
    assert one.overlaps(two)
    assert one.overlaps(stage.of("awaiting").span)
    assert stage.makespan < 0.5
    assert max(later - sooner for sooner, later in pairwise(beats)) < 0.1
    assert values(turn)["z"] == "from the loop"


def test_what_a_host_does_with_an_outcome_changes_no_record() -> None:
    stage = Stage()
    tools = [
        stage.tool("give", Return({"v": [1]})),
        stage.tool("slow", Sleep(1), Return("s")),
        stage.tool("take", Do(lambda arguments: arguments["x"])),
    ]
    reply = plan(
        {"id": "a", "tool": "give"},
        {"id": "s", "tool": "slow"},
        {"id": "b", "tool": "take", "arguments": {"x": {"$from": "a"}}, "needs": ["s"]},
    )

    def meddle(run: Run) -> None:
        assert run.open_turn is not None
        outcome = run.open_turn.outcomes["a"]
        assert isinstance(outcome, Success)
        outcome.value["v"].append("injected")

    turn = play(stage, tools, reply, events=[(0.5, meddle)])

    assert values(turn)["a"] == {"v": [1]}
    assert values(turn)["b"] == {"v": [1]}
