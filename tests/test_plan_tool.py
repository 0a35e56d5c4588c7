"""The plan tool: a model hands over a DAG in one call, and all of it is checked again."""

import asyncio
import contextlib
import importlib
import itertools
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laneway import (
    Code,
    Decision,
    Effect,
    Engine,
    Happened,
    Policy,
    Rule,
    Run,
    State,
    Tool,
    ToolFailed,
    Turn,
    plan_tool,
)
from laneway.engine.cli.shown import show_run
from laneway.engine.cli.tree import result_lines, tree_lines
from laneway.engine.plan_definition import MAX_CALLS
from laneway.errors import PlanError, ToolError, UnknownApprovalError, UnknownCallError
from laneway.facts import ApprovalAsked, CallEnded, CallStarted, TurnSubmitted
from laneway.ids import is_own
from laneway.journal.fold import fold
from laneway.journal.memory import MemoryStore
from laneway.journal.sqlite import SqliteStore
from laneway.journal.store import JournalStore
from laneway.outcomes import Success, succeeded
from laneway.policies.questions import Question, Verdict
from laneway.testing.clock import run_virtual
from laneway.testing.dying import DyingStore
from laneway.testing.scripted import Do, Log, Raise, Return, Sleep, Stage
from laneway.testing.theatre import RUN, Theatre, failure, plan, states
from laneway.testing.watched import WatchedStore

ROUNDS = int(os.environ.get("LANEWAY_ROUNDS", "1"))
"""How many times as long to look: `make fuzz` sets it."""

ANY = {"type": "object"}

Json = dict[str, Any]


def use(call: str, name: str, **arguments: Any) -> Json:
    return {"type": "tool_use", "id": call, "name": name, "input": arguments}


def said(*calls: Json, key: str = "") -> Json:
    message = {"role": "assistant", "content": list(calls)}
    return {**message, "id": key, "type": "message"} if key else message


def one(call: str, name: str, needs: Sequence[str] = (), **arguments: Any) -> Json:
    written: Json = {"id": call, "tool": name, "arguments": arguments}
    return {**written, "needs": list(needs)} if needs else written


def tools(stage: Stage) -> list[Tool[..., Any]]:
    return [
        stage.tool("echo", Do(dict), schema=ANY),
        stage.tool("nap", Do(lambda given: asyncio.sleep(given["seconds"])), schema=ANY),
        stage.tool("read", Sleep(1), Return("{path}"), claims=["read file:{path}"]),
        stage.tool(
            "write", Sleep(2), Return("ok"), effect=Effect.WRITE, claims=["write file:{path}"]
        ),
        stage.tool("bad", Raise(ToolFailed("no luck", happened=Happened.NOTHING)), schema=ANY),
        stage.tool(
            "pay",
            Log("{n}"),
            Raise(ConnectionError("gone")),
            effect=Effect.EXTERNAL,
            schema=ANY,
        ),
    ]


def theatre(*more: Tool[..., Any], stage: Stage | None = None, **options: Any) -> Theatre:
    stage = stage or Stage()
    return Theatre(stage, *tools(stage), *(more or (plan_tool(),)), **options)


def results(turn: Turn, name: str = "p1") -> Json:
    outcome = turn.outcomes[name]
    assert succeeded(outcome), outcome
    told: Json = outcome.value["results"]
    return told


def faults(turn: Turn) -> list[str]:
    """The faults that a refused plan was told of."""
    return failure(turn, "p1").message.splitlines()[1:]


# One result for all


def test_the_model_is_given_one_result_in_the_order_of_the_plan() -> None:
    play = theatre()

    turn = play.play(
        said(
            use(
                "p1",
                "plan",
                calls=[
                    one("late", "echo", ["first"], n=3),
                    one("first", "read", path="a"),
                    one("broken", "bad"),
                    one("lost", "echo", x="${broken}"),
                ],
            )
        )
    )

    content = turn.messages[1]["content"]
    assert [block["tool_use_id"] for block in content] == ["p1"]
    told = json.loads(content[0]["content"])
    assert list(told) == ["results"]
    assert list(told["results"]) == ["late", "first", "broken", "lost"]
    assert told["results"]["late"] == {"value": {"n": 3}}
    assert told["results"]["first"] == {"value": "a"}
    assert told["results"]["broken"] == {"error": {"code": "TOOL_ERROR", "message": "bad: no luck"}}
    assert told["results"]["lost"]["error"] == {
        "code": "DEPENDENCY_FAILED",
        "message": "Not started, because broken ended FAILED (TOOL_ERROR).",
        "hint": "Mend that first, then ask for this again.",
    }


def test_what_an_error_may_have_done_and_whether_it_may_be_asked_again_is_told() -> None:
    turn = theatre().play(said(use("p1", "plan", calls=[one("a", "pay", n=1), one("b", "nix")])))

    assert failure(turn, "p1").code is Code.UNKNOWN_TOOL

    turn = theatre().play(said(use("p1", "plan", calls=[one("a", "pay", n=1)])))

    error = results(turn)["a"]["error"]
    assert (error["code"], error["happened"]) == ("OUTCOME_UNKNOWN", "unknown")
    assert "retry" not in error


def test_a_failed_read_that_may_be_asked_again_says_so() -> None:
    stage = Stage()
    again = stage.tool("again", Raise(ConnectionError("gone")))

    turn = theatre(again, plan_tool(), stage=stage).play(
        said(use("p1", "plan", calls=[one("a", "again")]))
    )

    assert results(turn)["a"]["error"]["retry"] is True


def test_the_calls_of_a_plan_have_ids_below_that_of_its_call() -> None:
    turn = theatre().play(
        said(
            use("x", "echo"),
            use("p1", "plan", calls=[one("a", "echo"), one("b", "echo")]),
            use("y", "echo"),
        )
    )

    assert [(call.id, call.record.parent) for call in turn.calls] == [
        ("t1.1", None),
        ("t1.2", None),
        ("t1.2/1", "t1.2"),
        ("t1.2/2", "t1.2"),
        ("t1.3", None),
    ]
    assert turn.call("t1.2/2") is turn.call("p1/b")
    assert not turn.has("b")
    assert list(turn.outcomes) == ["x", "p1", "y"]
    assert repr(turn) == "<Turn 1 of run 'r', 3 calls, ready>"


def test_names_that_look_like_laneways_own_are_known() -> None:
    assert is_own("t3.2/1")
    assert is_own("t3.2/1/4.a1")
    assert not is_own("t3.2/a")


@pytest.mark.parametrize("provider", ["anthropic-messages", "openai-chat"])
def test_the_message_of_a_provider_holds_exactly_the_result_of_the_plan_call(provider: str) -> None:
    calls = [one("a", "echo", n=1), one("b", "read", path="${a.n}")]
    calls[1]["arguments"]["path"] = "f${a.n}"
    openai = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "p1",
                "type": "function",
                "function": {"name": "plan", "arguments": json.dumps({"calls": calls})},
            }
        ],
    }
    reply = openai if provider == "openai-chat" else said(use("p1", "plan", calls=calls))

    turn = theatre().play(reply)

    text = '{"results":{"a":{"value":{"n":1}},"b":{"value":"f1"}}}'
    answer: Json = {"role": "tool", "tool_call_id": "p1", "content": text}
    if provider != "openai-chat":
        block = {"type": "tool_result", "tool_use_id": "p1", "content": text}
        answer = {"role": "user", "content": [block]}
    assert turn.messages == [reply, answer]


@pytest.mark.parametrize("provider", ["anthropic-messages", "openai-chat"])
def test_a_provider_is_given_the_definition_of_the_tool(provider: str) -> None:
    definition = Engine([plan_tool("all_at_once")]).definitions(provider)[0]

    told = json.dumps(definition)
    assert '"all_at_once"' in told
    assert '"needs"' in told
    assert "at most 1,000" in told


def test_the_model_is_told_what_becomes_of_a_plan_with_a_fault() -> None:
    assert plan_tool().spec.description.endswith("as a whole, and the faults are named.")
    assert plan_tool(strict=False).spec.description.endswith("runs all the same.")


def test_a_name_that_no_provider_takes_is_refused() -> None:
    with pytest.raises(ToolError, match="no name that any provider takes"):
        plan_tool("a plan")


# References


def test_a_reference_keeps_the_type_of_a_whole_value_and_follows_a_path() -> None:
    turn = theatre().play(
        said(
            use(
                "p1",
                "plan",
                calls=[
                    one("b", "echo", n={"$from": "a", "path": "list[1]"}, t="-${a.list[0]}-"),
                    one("a", "echo", list=[1, {"x": 2}]),
                    one("c", "echo", home="$${HOME}"),
                ],
            )
        )
    )

    assert results(turn)["b"] == {"value": {"n": {"x": 2}, "t": "-1-"}}
    assert results(turn)["c"] == {"value": {"home": "${HOME}"}}


def test_each_plan_has_names_of_its_own() -> None:
    turn = theatre().play(
        said(
            use("a", "echo", n=0),
            use("p1", "plan", calls=[one("a", "echo", n=1), one("b", "echo", n="${a.n}")]),
            use("q", "plan", calls=[one("a", "echo", n=2), one("b", "echo", n="${a.n}")]),
        )
    )

    assert results(turn, "p1")["b"] == {"value": {"n": "1"}}
    assert results(turn, "q")["b"] == {"value": {"n": "2"}}


def test_another_call_of_the_turn_may_refer_to_the_result_of_a_plan() -> None:
    turn = theatre().play(
        said(
            use("call_2", "echo", n="${call_1.results.a.value.n}"),
            use("call_1", "plan", calls=[one("a", "echo", n=7), one("b", "bad")]),
            use("call_3", "echo", n="${call_1.results.b.value}"),
        )
    )

    assert turn.outcomes["call_2"] == Success(value={"n": "7"})
    assert failure(turn, "call_3").code is Code.BAD_REFERENCE


def test_a_plan_knows_the_calls_of_earlier_turns_and_they_know_none_of_its() -> None:
    play = theatre()

    async def host(run: Run) -> list[Turn]:
        first = use("call_1", "plan", calls=[one("inner_a", "echo", n=5)])
        again = use("call_2", "plan", calls=[one("b", "echo", n="${call_1.results.inner_a.value}")])
        wrong = use("call_3", "plan", calls=[one("c", "echo", n="${inner_a.n}")])
        return [await run.submit(said(call)) for call in (first, again, wrong)]

    _, second, third = play.enter(host)

    assert results(second, "call_2")["b"] == {"value": {"n": '{"n":5}'}}
    assert "no call is named 'inner_a'" in failure(third, "call_3").message


def test_another_call_of_the_turn_cannot_name_the_calls_of_a_plan() -> None:
    turn = theatre().play(
        plan(one("o", "echo", ["a"]), one("p1", "plan", calls=[one("a", "echo")])),
    )

    assert failure(turn, "o").message == "o depends on 'a', but no call has that name."
    assert failure(turn, "o").hint == "The calls of this turn are: o, p1."
    assert list(results(turn)) == ["a"]


def test_a_plan_does_not_know_the_other_calls_of_its_turn() -> None:
    turn = theatre().play(
        said(
            use("call_1", "echo", n=1), use("p1", "plan", calls=[one("a", "echo", n="${call_1.n}")])
        )
    )

    assert faults(turn) == [
        "- a (echo): argument 'n' refers to ${call_1.n}, but no call is named 'call_1'."
    ]


def test_a_plan_that_needs_a_failed_call_of_an_earlier_turn_is_refused() -> None:
    play = theatre()

    async def host(run: Run) -> Turn:
        await run.submit(said(use("call_1", "bad")))
        return await run.submit(
            said(use("p1", "plan", calls=[one("a", "echo", ["call_1"]), one("b", "echo")]))
        )

    turn = play.enter(host)

    assert failure(turn, "p1").code is Code.DEPENDENCY_FAILED
    assert faults(turn) == [
        "- a (echo): Not started, because call_1 of an earlier turn ended FAILED."
    ]


# Order


def test_a_call_starts_the_moment_what_it_needs_has_ended_and_not_a_wave_later() -> None:
    play = theatre()
    calls = [
        one("quick", "nap", seconds=1),
        one("slow", "nap", seconds=10),
        one("after_quick", "nap", ["quick"], seconds=1, n=1),
        one("after_both", "nap", ["quick", "slow"], seconds=1, n=2),
    ]

    play.play(said(use("p1", "plan", calls=calls)))

    at = {json.dumps(dict(one.arguments)): one.start - 1000 for one in play.stage.executions}
    assert list(at.values()) == [0, 0, 1, 10]


def test_a_later_call_waits_only_for_what_it_conflicts_with_in_a_plan_before_it() -> None:
    play = theatre()

    turn = play.play(
        said(
            use(
                "p1",
                "plan",
                calls=[one("w", "write", path="a"), one("n", "nap", seconds=20)],
            ),
            use("r", "read", path="a"),
            use("s", "read", path="b"),
        )
    )

    assert play.stage.of("read", path="a").start == 1002
    assert play.stage.of("read", path="b").start == 1000
    edges = {(*edge[:2], edge[2]["reason"]) for edge in turn.graph.edges(data=True)}
    assert edges == {
        ("t1.1/1", "t1.1", "after"),
        ("t1.1/2", "t1.1", "after"),
        ("t1.1/1", "t1.2", "conflict"),
    }


def test_a_call_of_a_plan_waits_for_what_it_conflicts_with_before_the_plan() -> None:
    play = theatre()

    play.play(
        said(
            use("r", "read", path="a"),
            use("p1", "plan", calls=[one("w", "write", path="a"), one("o", "write", path="b")]),
        )
    )

    assert play.stage.of("write", path="a").start == 1001
    assert play.stage.of("write", path="b").start == 1000


def test_a_serial_run_enters_the_calls_of_a_plan_one_after_the_other() -> None:
    play = theatre()
    reply = said(
        use("x", "nap", seconds=1),
        use("p1", "plan", calls=[one("a", "nap", seconds=1, n=1), one("b", "nap", seconds=1, n=2)]),
        use("y", "nap", seconds=1, n=3),
    )

    turn = play.play(reply, run={"parallel": False})

    assert [one.start - 1000 for one in play.stage.executions] == [0, 1, 2, 3]
    assert results(turn) == {"a": {"value": None}, "b": {"value": None}}


def test_a_tool_of_which_nothing_is_known_runs_alone_from_a_plan_too() -> None:
    entered: list[float] = []

    async def unknown() -> None:
        entered.append(asyncio.get_running_loop().time() - 1000)
        await asyncio.sleep(5)

    stage = Stage()
    play = theatre(Tool.of(unknown), plan_tool(), stage=stage)

    turn = play.play(
        said(
            use("x", "nap", seconds=1),
            use("p1", "plan", calls=[one("a", "nap", seconds=3), one("u", "unknown")]),
            use("y", "nap", seconds=2),
            use("z", "unknown"),
        )
    )

    assert entered == [3.0, 10.0]
    assert play.stage.of("nap", seconds=2).start == 1008
    assert list(results(turn)) == ["a", "u"]
    # The plan's own call touches nothing: nobody meets it.
    conflicts = {
        call
        for *ends, edge in turn.graph.edges(data=True)
        if edge["reason"] == "conflict"
        for call in ends
    }
    assert conflicts == {"t1.1", "t1.2/1", "t1.2/2", "t1.3", "t1.4"}
    assert turn.call("p1").record.claims == ()


# Refusals


def test_every_fault_of_a_plan_is_named_and_nothing_of_it_runs() -> None:
    play = theatre()

    turn = play.play(
        said(
            use(
                "p1",
                "plan",
                calls=[
                    one("a", "reed", ["nix", "nox"], path="x"),
                    one("b", "write", ["c"], path="${ghost}"),
                    one("c", "write", path="${b}"),
                    one("c", "echo"),
                    one("d", "plan", calls=[]),
                    one("e", "echo", n="${e}"),
                    one("f", "read", path=["no text"]),
                    one("g", "reed"),
                    one("h", "echo", ["nix", "h"]),
                    {"id": "i", "tool": "echo", "arguments": "{no json"},
                ],
            ),
            use("needs_it", "echo", n="${p1.results}"),
            use("stays", "echo", n=1),
        )
    )

    told = failure(turn, "p1")
    assert told.code is Code.INVALID_ARGUMENTS
    assert told.message.startswith(
        "The plan was refused as a whole; none of its calls ran (10). Faults:\n"
    )
    assert told.hint == "Mend all of these, and submit the whole plan again."
    lines = faults(turn)
    assert [line.partition(")")[0] for line in lines] == [
        "- a, g (reed",
        "- a (reed",
        "- b (write",
        "- b, c (write",
        "- c_4 (echo",
        "- d (plan",
        "- e (echo",
        "- h (echo",
        "- i (echo",
    ]
    assert 'no tool named "reed"' in lines[0]
    assert "a depends on 'nix', 'nox', but no calls have those names." in lines[1]
    assert "no call is named 'ghost'" in lines[2]
    assert "b, c wait for one another in a cycle" in lines[3]
    assert "has the id 'c' too" in lines[4]
    assert "cannot hold another plan" in lines[5]
    assert "e waits for itself" in lines[6]
    assert "h depends on 'nix', but no call has that name; h waits for itself" in lines[7]
    assert "JSON" in lines[8]
    assert states(turn) == {
        "p1": State.FAILED,
        "needs_it": State.SKIPPED,
        "stays": State.SUCCEEDED,
    }
    assert dict(play.stage.entered) == {"echo": 1}


@pytest.mark.parametrize(
    ("calls", "code"),
    [
        ([one("a", "echo", ["b"]), one("b", "echo", ["a"])], Code.DEPENDENCY_CYCLE),
        ([one("a", "echo", ["zz"])], Code.BAD_REFERENCE),
        ([one("a", "write", path="x", n="${zz}")], Code.BAD_REFERENCE),
        ([one("a", "unheard_of")], Code.UNKNOWN_TOOL),
        ([one("a", "count", n="many")], Code.INVALID_ARGUMENTS),
        ([one("a", "unheard_of"), one("b", "echo", ["b"])], Code.INVALID_ARGUMENTS),
    ],
)
def test_the_code_of_a_refused_plan_is_that_of_its_faults(calls: list[Json], code: Code) -> None:
    stage = Stage()
    count = stage.tool("count", schema={"type": "object", "properties": {"n": {"type": "integer"}}})

    turn = theatre(count, plan_tool(), stage=stage).play(said(use("p1", "plan", calls=calls)))

    assert failure(turn, "p1").code is code
    assert not stage.entered


def test_of_very_many_faults_those_after_the_first_are_named_by_their_code() -> None:
    calls = [one(f"c{n}", f"tool_{n}") for n in range(999)] + [one("z", "echo", ["z"])]

    told = failure(theatre().play(said(use("p1", "plan", calls=calls))), "p1").message

    lines = told.splitlines()
    assert lines[1].startswith('- c0 (tool_0): There is no tool named "tool_0"')
    assert len(lines) == 53
    assert lines[51].startswith("- c50, c51, c52, ")
    assert lines[51].endswith(", c998: UNKNOWN_TOOL, too")
    assert lines[52] == "- z: DEPENDENCY_CYCLE, too"


@pytest.mark.parametrize(
    "calls",
    [
        [one("a", "x" * 100_000)],
        [one("x" * 100_000, "echo", ["b"])],
        [one("a", "echo", ["x" * 100_000])],
        [{"id": "a", "tool": "echo", "x" * 100_000: 1}],
        [7] * 999,
    ],
)
def test_a_refusal_is_short_enough_to_be_read(calls: list[Any]) -> None:
    turn = theatre().play(said(use("p1", "plan", calls=calls)))

    assert len(failure(turn, "p1").message) < 4_000


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "calls: expected a list of calls"),
        ({"calls": "all of them"}, "calls: expected a list of calls"),
        ({"calls": [], "id": "x", "note": "y"}, "unknown field id, note; a plan has calls"),
        ({"calls": [{"id": "a"}, 7]}, "calls[0].tool: expected the name of a tool"),
        ({"calls": [{"id": "a"}, 7]}, "calls[1]: expected an object with a tool"),
        ({"calls": [{"id": "t1.1/1", "tool": "echo"}]}, "is how Laneway itself names calls"),
        ({"calls": [{"tool": "echo", "need": ["a"]}]}, "unknown field need"),
    ],
)
def test_what_cannot_be_read_as_a_plan_is_told_place_by_place(arguments: Json, told: str) -> None:
    turn = theatre().play(said(use("p1", "plan", **arguments)))

    found = failure(turn, "p1")
    assert found.code is Code.INVALID_ARGUMENTS
    assert found.message.startswith("The plan cannot be read, so none of its calls ran. Faults:\n")
    assert told in found.message


def test_a_plan_written_as_a_text_is_read() -> None:
    turn = theatre().play(said(use("p1", "plan", calls=json.dumps([one("a", "echo", n=1)]))))

    assert results(turn) == {"a": {"value": {"n": 1}}}


def test_calls_without_an_id_are_named_by_their_place() -> None:
    turn = theatre().play(
        said(use("p1", "plan", calls=[{"tool": "echo"}, {"tool": "echo", "arguments": {"n": 1}}]))
    )

    assert results(turn) == {"call_1": {"value": {}}, "call_2": {"value": {"n": 1}}}


def test_an_empty_plan_has_an_empty_result() -> None:
    assert results(theatre().play(said(use("p1", "plan", calls=[])))) == {}


def test_a_plan_of_more_calls_than_it_may_have_is_refused() -> None:
    calls = [one(f"c{n}", "echo") for n in range(MAX_CALLS + 1)]

    turn = theatre().play(said(use("p1", "plan", calls=calls), use("q", "plan", calls=calls[:-1])))

    assert failure(turn, "p1").code is Code.INVALID_ARGUMENTS
    assert failure(turn, "p1").message == (
        "A plan may have at most 1,000 calls, and this one has 1,001; none of them ran."
    )
    assert len(results(turn, "q")) == MAX_CALLS


def test_a_reply_that_must_be_faultless_names_the_faults_of_its_plan() -> None:
    play = theatre()

    async def host(run: Run) -> None:
        await run.submit(said(use("p1", "plan", calls=[one("a", "nix")])), strict=True)

    with pytest.raises(PlanError, match=r"p1 \(plan\): The plan was refused(.|\n)*a \(nix\)"):
        play.enter(host)


def test_a_plan_that_is_not_strict_follows_the_rule_of_a_turn() -> None:
    play = theatre(plan_tool(strict=False))

    turn = play.play(
        said(
            use(
                "p1",
                "plan",
                calls=[
                    one("a", "nix"),
                    one("b", "echo", n="${a}"),
                    one("c", "echo", ["d"]),
                    one("d", "echo", ["c"]),
                    one("e", "echo", n=1),
                    one("e", "echo", n=2),
                    one("f", "plan", calls=[]),
                    one("g", "echo", ["ghost"]),
                ],
            )
        )
    )

    told = results(turn)
    codes = {name: entry["error"]["code"] for name, entry in told.items() if "error" in entry}
    assert codes == {
        "a": "UNKNOWN_TOOL",
        "b": "DEPENDENCY_FAILED",
        "c": "DEPENDENCY_CYCLE",
        "d": "DEPENDENCY_CYCLE",
        "e_6": "BAD_REFERENCE",
        "f": "INVALID_ARGUMENTS",
        "g": "BAD_REFERENCE",
    }
    assert told["e"] == {"value": {"n": 1}}
    assert told["g"]["error"]["hint"].startswith("The calls of this plan are: a, b, c")


def test_a_faulty_call_of_a_plan_that_is_not_strict_is_named_below_its_plan() -> None:
    play = theatre(plan_tool(strict=False))

    async def host(run: Run) -> None:
        await run.submit(said(use("p1", "plan", calls=[one("a", "nix")])), strict=True)

    with pytest.raises(PlanError, match=r"p1/a \(nix\): There is no tool"):
        play.enter(host)


def test_the_body_of_the_tool_starts_no_calls() -> None:
    with pytest.raises(ToolFailed, match="can only be submitted in a model's turn"):
        run_virtual(lambda: plan_tool()(calls=[one("a", "echo")]))


# Results that do not fit


def test_results_that_are_too_much_for_one_are_left_out() -> None:
    deep: Any = "x"
    for _ in range(126):
        deep = [deep]
    stage = Stage()
    more = [
        stage.tool("deep", Return(deep)),
        stage.tool("wide", Return([0] * 1000)),
        stage.tool("small", Return([1])),
    ]

    turn = theatre(*more, plan_tool(), stage=stage).play(
        said(use("p1", "plan", calls=[one(name, name) for name in ("deep", "wide", "small")]))
    )

    told = results(turn)
    assert told["small"] == {"value": [1]}
    for name in ("deep", "wide"):
        assert told[name]["error"]["code"] == "RESULT_NOT_SERIALISABLE"
        assert told[name]["error"]["happened"] == "all"
        assert isinstance(turn.call(f"p1/{name}").outcome, Success)


# Policy and approvals


def test_each_call_of_a_plan_is_judged_on_its_own() -> None:
    policy = Policy([Rule(decision=Decision.DENY, tools=["write"], name="no-writes")])

    turn = theatre(policy=policy).play(
        said(
            use(
                "p1",
                "plan",
                calls=[
                    one("w", "write", path="a"),
                    one("after", "read", ["w"], path="b"),
                    one("r", "read", path="c"),
                ],
            )
        )
    )

    told = results(turn)
    assert told["w"]["error"]["code"] == "POLICY_DENIED"
    assert "no-writes" in told["w"]["error"]["message"]
    assert told["after"]["error"]["code"] == "DEPENDENCY_FAILED"
    assert told["r"] == {"value": "c"}
    assert turn.call("p1/w").state is State.DENIED


def test_a_policy_that_denies_plans_lets_nothing_of_one_run() -> None:
    policy = Policy([Rule(decision=Decision.DENY, tools=["plan"], name="no-plans")])
    play = theatre(policy=policy)

    turn = play.play(said(use("p1", "plan", calls=[one("a", "echo")]), use("b", "echo")))

    assert states(turn) == {"p1": State.DENIED, "b": State.SUCCEEDED}
    assert failure(turn, "p1").code is Code.POLICY_DENIED
    assert play.stage.entered["echo"] == 1


def test_a_policy_that_asks_for_plans_asks_for_each_of_their_calls() -> None:
    rules = [
        Rule(decision=Decision.ASK, tools=["plan"], name="see-plans"),
        Rule(decision=Decision.DENY, tools=["write"]),
    ]
    play = theatre(policy=Policy(rules))

    async def host(run: Run) -> Turn:
        calls = [one("a", "echo"), one("w", "write", path="x"), one("b", "echo", ["a"])]
        turn = await run.submit(said(use("p1", "plan", calls=calls), use("o", "echo")), wait=False)
        for name in ("t1.1/1", "p1/b"):
            await asyncio.sleep(1)
            assert [one.call for one in run.approvals] == [turn.call(name).id]
            assert "see-plans" in run.approvals[0].rule
            await run.approve(name, by="ann")
        assert turn.call("o").attempt == 1
        await turn.wait()
        return turn

    turn = play.enter(host)

    told = results(turn)
    assert told["a"] == told["b"] == {"value": {}}
    assert told["w"]["error"]["code"] == "POLICY_DENIED"


def test_a_host_that_must_be_asked_for_everything_is_not_asked_for_the_result() -> None:
    asked: list[str] = []

    class Asking(Policy):
        def decide(self, question: Question, /) -> Verdict:
            asked.append(question.tool)
            return Verdict(Decision.ALLOW, "all", "why not")

    theatre(policy=Asking()).play(said(use("p1", "plan", calls=[one("a", "echo")])))

    # Before anything runs, and once more for the call that it holds.
    assert asked == ["plan", "echo", "plan"]


def approving(*answers: tuple[str, bool]) -> tuple[Theatre, Turn]:
    stage = Stage()
    play = theatre(
        stage.tool("send", Log("{n}"), Return("sent"), effect=Effect.EXTERNAL, approval=True),
        plan_tool(),
        stage=stage,
    )

    async def host(run: Run) -> Turn:
        calls = [one("a", "send", n=1), one("b", "send", n=2), one("c", "echo", n="${a}")]
        turn = await run.submit(
            said(use("p1", "plan", calls=calls), use("o", "echo", n=0)), wait=False
        )
        await asyncio.sleep(1)
        assert turn.open_calls == ["p1", "p1/a", "p1/b", "p1/c"]
        for name, granted in answers:
            await (run.approve(name) if granted else run.deny(name, reason="not now"))
        await turn.close()
        return turn

    return play, play.enter(host)


def test_a_human_is_asked_about_each_call_of_a_plan() -> None:
    play, turn = approving(("p1/a", True), ("t1.1/2", False))

    told = results(turn)
    assert told["a"] == {"value": "sent"}
    assert told["b"]["error"]["code"] == "APPROVAL_REJECTED"
    assert told["c"] == {"value": {"n": "sent"}}
    assert play.stage.log == ["1"]
    assert [asked.approval for asked in play.kept(ApprovalAsked)] == ["t1.1/1.a1", "t1.1/2.a1"]


def test_a_question_can_be_answered_by_its_own_name() -> None:
    _, turn = approving(("t1.1/1.a1", False))

    assert results(turn)["c"]["error"]["code"] == "DEPENDENCY_FAILED"
    assert results(turn)["b"]["error"]["code"] == "CANCELLED"


def test_a_name_that_could_mean_two_questions_answers_neither() -> None:
    stage = Stage()
    send = stage.tool("send", Return("sent"), effect=Effect.EXTERNAL, approval=True)
    play = theatre(send, plan_tool(), stage=stage)

    async def host(run: Run) -> Turn:
        turn = await run.submit(
            plan(one("p1/a", "send"), one("p1", "plan", calls=[one("a", "send")])), wait=False
        )
        await asyncio.sleep(1)
        assert len(run.approvals) == 2
        for name in ("p1/a", "a"):
            with pytest.raises(UnknownApprovalError):
                await run.approve(name)
            assert not turn.has(name)
            with pytest.raises(UnknownCallError):
                await run.cancel(name)
        await turn.close()
        return turn

    assert set(states(play.enter(host)).values()) == {State.CANCELLED, State.SUCCEEDED}


# Cancelling


def cancelling(name: str | None) -> tuple[Theatre, Turn]:
    play = theatre()

    async def host(run: Run) -> Turn:
        calls = [
            one("quick", "nap", seconds=1),
            one("slow", "nap", seconds=50),
            one("then", "write", ["slow"], path="x"),
        ]
        turn = await run.submit(
            said(use("p1", "plan", calls=calls), use("o", "nap", seconds=20)), wait=False
        )
        await asyncio.sleep(5)
        await run.cancel(name)
        await turn.wait()
        await turn.close()
        return turn

    return play, play.enter(host)


def test_cancelling_a_plan_cancels_its_unfinished_calls_and_tells_of_all() -> None:
    _, turn = cancelling("p1")

    told = results(turn)
    assert told["quick"] == {"value": None}
    assert told["slow"]["error"]["code"] == "CANCELLED"
    assert told["then"]["error"]["code"] == "CANCELLED"
    assert "had not been started" in told["then"]["error"]["message"]
    assert turn.call("o").state is State.SUCCEEDED


def test_cancelling_everything_cancels_the_calls_of_plans_too() -> None:
    _, turn = cancelling(None)

    assert results(turn)["slow"]["error"]["code"] == "CANCELLED"
    assert turn.call("o").state is State.CANCELLED


@pytest.mark.parametrize("name", ["p1/slow", "t1.1/2"])
def test_a_call_of_a_plan_can_be_cancelled_by_itself(name: str) -> None:
    _, turn = cancelling(name)

    assert results(turn)["slow"]["error"]["code"] == "CANCELLED"
    assert results(turn)["then"]["error"]["code"] == "DEPENDENCY_FAILED"


def test_whoever_stops_waiting_cancels_the_calls_of_a_plan() -> None:
    play = theatre()

    async def host(run: Run) -> Turn:
        calls = [one("a", "nap", seconds=50)]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(run.submit(said(use("p1", "plan", calls=calls))), 3)
        assert asyncio.get_running_loop().time() == 1003
        return run.turns[-1]

    turn = play.enter(host)

    assert results(turn)["a"]["error"]["code"] == "CANCELLED"


# Effects that nobody saw the end of


def test_a_plan_is_told_what_was_found_out_while_something_in_it_still_waited() -> None:
    play = theatre()

    async def host(run: Run) -> Turn:
        calls = [one("a", "pay", n=1), one("b", "echo", n="${a}")]
        turn = await run.submit(said(use("p1", "plan", calls=calls)), wait=False)
        await turn.wait()
        await run.settle("p1/a", value="receipt")
        await turn.wait()
        return turn

    turn = play.enter(host)

    assert turn.ready
    assert results(turn) == {"a": {"value": "receipt"}, "b": {"value": {"n": "receipt"}}}


@pytest.mark.parametrize("closed", [False, True])
def test_what_is_found_out_once_a_plan_has_ended_reaches_the_model_as_a_note(closed: bool) -> None:
    play = theatre()

    async def host(run: Run) -> list[Json]:
        turn = await run.submit(said(use("p1", "plan", calls=[one("a", "pay", n=1)])), wait=False)
        await turn.wait()
        if closed:
            await turn.close()
        await run.settle("t1.1/1", value=7)
        if not closed:
            await turn.close()
        assert results(turn)["a"]["error"]["code"] == "OUTCOME_UNKNOWN"
        return run.history()

    history = play.enter(host)

    assert history[-1]["content"][-1]["text"] == (
        "[Note on the call p1/a of pay: it did happen, with the result: 7]"
    )


# Crashes


CRASHING = said(
    use("x", "read", path="a"),
    use(
        "p1",
        "plan",
        calls=[
            one("r", "read", path="a"),
            one("w", "write", path="${r}"),
            one("s", "send", n="${w}"),
            one("e", "echo", ["s"], n="${r}"),
            one("bad", "bad"),
            one("not", "echo", n="${bad}"),
        ],
    ),
    use("y", "read", path="a"),
    use("z", "echo", n="${p1.results.r.value}"),
)


def crashing_stage(stage: Stage) -> Theatre:
    send = stage.tool(
        "send", Log("sending {n}"), Sleep(1), Return("sent"), effect=Effect.EXTERNAL, schema=ANY
    )
    return theatre(send, plan_tool(), stage=stage)


def test_a_crash_behind_any_commit_resumes_as_for_other_calls() -> None:
    whole = crashing_stage(Stage())
    store = WatchedStore()
    want = results(whole.play(CRASHING, journal=store))
    rows = [row for batch in store.batches for row in batch]
    ends = [*itertools.accumulate(len(batch) for batch in store.batches)]
    assert len(ends) >= 9

    for kept in ends[1:-1]:
        play = crashing_stage(Stage())
        play.journal.facts[RUN] = list(rows[:kept])
        left = fold(RUN, rows[:kept])

        turn = play.finish()

        assert turn.ready
        told = results(turn)
        unseen = {
            call.record.provider_id
            for call in left.calls.values()
            if call.state is State.RUNNING and not call.record.effect.changes_nothing
        }
        for name, entry in told.items():
            if name in unseen:
                assert entry["error"]["code"] == "OUTCOME_UNKNOWN"
            elif "error" in entry and "error" not in want[name]:
                assert unseen, (kept, entry)
                assert entry["error"]["code"] == "DEPENDENCY_FAILED"
            else:
                assert entry == want[name]
        if not unseen:
            assert told == want
            assert turn.outcomes["z"] == Success(value={"n": "a"})
        # Nothing that had succeeded was entered again.
        ended = {one.call for one in play.kept(CallStarted)[len(_started(rows[:kept])) :]}
        assert ended.isdisjoint(
            row.fact.call for row in rows[:kept] if isinstance(row.fact, CallEnded)
        )


def _started(rows: Sequence[Any]) -> list[Any]:
    return [row for row in rows if isinstance(row.fact, CallStarted)]


def live(stage: Stage, store: JournalStore) -> Turn:
    """Submit, or take up what a killed process left, and end it."""

    async def host(run: Run) -> Turn:
        return await run.finish() or await run.submit(said(*CRASHING["content"], key="m"))

    return crashing_stage(stage).enter(host, journal=store)


def test_a_plan_survives_the_death_of_its_process_at_any_commit(tmp_path: Path) -> None:
    importlib.import_module("networkx")  # A child is forked while no import is under way.
    want = results(live(Stage(tmp_path / "log"), MemoryStore()))
    deaths = 0
    for before in (True, False):
        for at in itertools.count(1):
            folder = tmp_path / f"{at}{before}"
            folder.mkdir()
            pid = os.fork()
            if not pid:
                try:
                    store = SqliteStore(folder / "runs.db")
                    live(Stage(folder / "log"), DyingStore(store, at=at, before=before))
                finally:
                    os._exit(0)
            if os.WIFEXITED(os.waitpid(pid, 0)[1]):
                break
            deaths += 1

            stage = Stage(folder / "log")
            turn = live(stage, SqliteStore(folder / "runs.db"))

            assert turn.ready
            told = results(turn)
            assert list(told) == list(want)
            assert stage.log.count("sending ok") <= 1
            if "OUTCOME_UNKNOWN" not in json.dumps(told):
                assert told == want
    assert deaths > 15


def test_a_plan_that_waits_for_a_human_waits_for_one_after_a_crash() -> None:
    stage = Stage()
    send = stage.tool("send", Log("{n}"), Return("sent"), effect=Effect.EXTERNAL, approval=True)
    play = theatre(send, plan_tool(), stage=stage)
    calls = [one("a", "send", n=1), one("b", "echo", n="${a}"), one("c", "send", n=2)]

    async def ask(run: Run) -> None:
        await run.submit(said(use("p1", "plan", calls=calls)), wait=False)
        await asyncio.sleep(1)
        play.crash()

    async def answer(run: Run) -> Turn:
        await run.approve("p1/a")
        await run.cancel("p1/c")
        turn = await run.finish()
        assert turn is not None
        return turn

    play.enter(ask)
    turn = play.enter(answer)

    told = results(turn)
    assert told["b"] == {"value": {"n": "sent"}}
    assert told["c"]["error"]["code"] == "CANCELLED"
    assert stage.log == ["1"]


def test_a_host_that_has_no_plan_tool_any_more_ends_its_plans_all_the_same() -> None:
    play = theatre()

    async def host(run: Run) -> None:
        calls = [one("a", "nap", seconds=20), one("b", "echo", n=1)]
        await run.submit(said(use("p1", "plan", calls=calls)), wait=False)
        await asyncio.sleep(1)
        play.crash()

    play.enter(host)
    play.tools = [one for one in play.tools if one.spec.name != "plan"]

    assert results(play.finish()) == {"a": {"value": None}, "b": {"value": {"n": 1}}}


def test_leaving_a_run_parks_its_plan() -> None:
    play = theatre()

    async def host(run: Run) -> None:
        calls = [one("a", "nap", seconds=50), one("b", "nap", ["a"], seconds=1)]
        await run.submit(said(use("p1", "plan", calls=calls)), wait=False)
        await asyncio.sleep(1)

    play.enter(host)
    turn = play.finish()

    told = results(turn)
    assert told["a"]["error"]["code"] == "CANCELLED"
    assert told["b"]["error"]["code"] == "DEPENDENCY_FAILED"


def test_the_same_reply_submitted_twice_is_one_turn() -> None:
    play = theatre()
    reply = said(use("p1", "plan", calls=[one("a", "echo", n=1)]), key="msg_1")

    first = play.play(reply)
    again = play.play(reply)

    assert again.number == first.number
    assert again.messages == first.messages
    assert play.stage.entered["echo"] == 1
    assert len(play.kept(TurnSubmitted)) == 1


# Looking on


def test_the_calls_of_a_plan_are_drawn_below_it() -> None:
    play = theatre()
    play.play(
        said(
            use("p1", "plan", calls=[one("a", "echo", n=1), one("b", "echo", n="${a}")]),
            use("q", "echo", n=2),
        )
    )

    run = show_run(RUN, play.journal.facts[RUN])
    lines = list(tree_lines(run))

    assert lines[0].startswith("run r  ✓  (2 calls, ")
    assert lines[1].startswith("└─ turn 1  2 calls")
    assert [line.partition("  SUCCEEDED")[0] for line in lines[2:]] == [
        '   ├─ ✓ t1.1 plan [{"id": "a", "tool": "echo", "arguments…',
        "   │   ├─ ✓ t1.1/1 echo 1",
        "   │   └─ ✓ t1.1/2 echo ${a}",
        "   │         waited for t1.1/1: data",
        "   └─ ✓ t1.2 echo 2",
    ]
    assert [line.partition(":")[0] for line in result_lines(run)] == ["p1", "q"]
    assert [call.parent for call in run.turns[0].calls] == ["", "t1.1", "t1.1", ""]


def test_a_dry_run_shows_the_calls_of_a_plan() -> None:
    stage = Stage()

    async def main() -> list[tuple[str, str]]:
        async with Engine([*tools(stage), plan_tool()], clock=stage.make_clock) as engine:
            seen = await engine.plan(said(use("p1", "plan", calls=[one("a", "echo")])))
            return [(call.id, call.decision) for call in seen.calls]

    assert run_virtual(main) == [("t1.1", "allow"), ("t1.1/1", "allow")]


def test_why_a_plan_waits_is_told() -> None:
    play = theatre()

    async def host(run: Run) -> Sequence[tuple[str, list[str]]]:
        calls = [one("a", "nap", seconds=5), one("b", "nap", ["a"], seconds=5)]
        turn = await run.submit(said(use("p1", "plan", calls=calls)), wait=False)
        await asyncio.sleep(1)
        told = [(one.call, [wait.on for wait in one.waits]) for one in run.explain()]
        await turn.wait()
        return told

    assert play.enter(host)[0] == ("t1.1", ["t1.1/1", "t1.1/2"])


# Against a host's own plan


@st.composite
def dags(draw: st.DrawFn) -> list[Json]:
    calls: list[Json] = []
    order = draw(st.permutations(range(draw(st.integers(1, 9)))))
    for at, n in enumerate(order):
        earlier = [f"c{one}" for one in order[:at]]
        few = st.lists(st.sampled_from(earlier or ["c0"]), max_size=2, unique=True)
        source = draw(st.sampled_from(["", *earlier]))
        calls.append(
            {
                "id": f"c{n}",
                "tool": draw(st.sampled_from(["work", "edit", "look", "fail"])),
                "arguments": {
                    "n": n,
                    "seconds": draw(st.integers(0, 4)),
                    "path": draw(st.sampled_from("ab")),
                    "given": f"${{{source}.n}}" if source else "",
                },
                "needs": draw(few) if earlier else [],
                "after": draw(few) if earlier else [],
            }
        )
    return draw(st.permutations(calls))


def played(reply: Json) -> tuple[dict[int, tuple[float, float | None]], Turn]:
    stage = Stage()
    nap = Do(lambda given: asyncio.sleep(given["seconds"]))
    scripted = [
        stage.tool("work", nap, Do(dict), schema=ANY),
        stage.tool(
            "edit", nap, Do(dict), effect=Effect.WRITE, claims=["write file:{path}", "lane:pen"]
        ),
        stage.tool("look", nap, Do(dict), claims=["read file:{path}"]),
        stage.tool("fail", nap, Raise(ValueError("no")), schema=ANY),
    ]
    turn = Theatre(stage, *scripted, plan_tool()).play(reply)
    return {one.arguments["n"]: (one.start, one.end) for one in stage.executions}, turn


@settings(max_examples=60 * ROUNDS, deadline=None)
@given(calls=dags())
def test_a_dag_in_a_plan_call_runs_as_the_same_dag_of_a_host(calls: list[Json]) -> None:
    own_times, own = played(plan(*calls))

    times, turn = played(said(use("p1", "plan", calls=calls)))

    assert times == own_times
    told = results(turn)
    assert list(told) == [call["id"] for call in calls]
    for name, outcome in own.outcomes.items():
        if succeeded(outcome):
            assert told[name] == {"value": outcome.value}
        else:
            assert told[name]["error"]["code"] == outcome.code
            assert told[name]["error"]["message"] == outcome.message


# What a plan waits for, its calls wait for


@pytest.mark.parametrize(
    ("waits", "log", "x"),
    [
        ({"needs": ["good"]}, ["good", "quick", "quick"], State.SUCCEEDED),
        ({"after": ["bad"]}, ["bad", "quick", "quick"], State.SUCCEEDED),
        ({"needs": ["bad"]}, ["bad"], State.SKIPPED),
        ({"needs": ["ghost"]}, [], State.FAILED),
        ({"needs": ["behind"]}, [], State.FAILED),
    ],
)
def test_the_calls_of_a_plan_wait_for_what_the_plan_waits_for_and_fail_with_it(
    waits: dict[str, Any], log: list[str], x: State
) -> None:
    stage = Stage()
    theatre = Theatre(
        stage,
        stage.tool("good", Sleep(5), Log("good"), effect=Effect.READ),
        stage.tool("bad", Sleep(5), Log("bad"), Raise(ValueError("no")), effect=Effect.READ),
        stage.tool("quick", Log("quick"), effect=Effect.READ),
        plan_tool(),
    )
    inner = [
        {"id": "x", "tool": "quick", "arguments": {}},
        {"id": "y", "tool": "quick", "arguments": {}},
    ]
    first = next((name for name in ("good", "bad") if name in str(waits)), None)
    before = [] if first is None else [{"id": first, "tool": first}]
    holder = {"id": "p", "tool": "plan", "arguments": {"calls": inner}, **waits}
    behind = {"id": "behind", "tool": "nothing", "needs": ["p"]}

    turn = theatre.play(plan(*before, holder, behind))

    assert stage.log == log
    assert (states(turn)["x"], states(turn)["y"]) == (x, x)
    assert states(turn)["behind"] is not State.SUCCEEDED
