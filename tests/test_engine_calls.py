"""From an answer to outcomes: faults, references, claims, the graph, lanes and threads.

Each promise of the kernel about the calls of one turn meets a test that tries to break it.
"""

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AfterValidator

from laneway import (
    Access,
    Claim,
    Code,
    Decision,
    Effect,
    Engine,
    Happened,
    Limits,
    Policy,
    Rule,
    Run,
    State,
    Success,
    Tool,
    Turn,
    tool,
)
from laneway.errors import (
    PayloadError,
    PlanError,
)
from laneway.facts import CallEnded, CallStarted
from laneway.ids import is_own
from laneway.lanes.names import overlaps
from laneway.testing.clock import run_virtual
from laneway.testing.scripted import Block, Do, Log, Raise, Return, Sleep, Stage
from laneway.testing.theatre import Theatre, codes, failure, plan, spans, states, values

ANY = {"type": "object"}

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}

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


def edges(turn: Turn) -> set[tuple[str, str, str]]:
    names = {call.id: call.record.provider_id for call in turn.calls}
    return {
        (names[source], names[target], str(data["reason"]))
        for source, target, data in turn.graph.edges(data=True)
    }


def echo(stage: Stage, name: str = "echo", **declared: Any) -> Tool[..., Any]:
    return stage.tool(name, Do(dict), schema=ANY, **declared)


# One outcome for each call, in request order


class UnreadableError(Exception):
    """An exception that cannot even be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class OddError(OSError):
    """A connection error whose number is none."""

    def __init__(self, told: str) -> None:
        super().__init__(told)
        self.errno = []  # type: ignore[assignment]


def circular() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


async def deaf(_: Any) -> str:
    """Swallow the first two attempts to stop it."""
    for _n in range(2):
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            continue
    return "deaf"


FAULTS: dict[str, tuple[Any, ...]] = {
    "ok": (Return("fine"),),
    "nothing": (),
    "slow": (Sleep(3), Return("slow")),
    "raises": (Raise(ValueError("boom")),),
    "unreadable": (Raise(UnreadableError()),),
    "odd": (Raise(OddError("odd")),),
    "half": (Raise(ValueError("half a \ud83d character")),),
    "late": (Sleep(500), Return("late")),
    "deaf": (Do(deaf),),
    "quits": (Raise(SystemExit(2)),),
    "cancels": (Raise(asyncio.CancelledError()),),
    "generator_exit": (Raise(GeneratorExit()),),
    "base": (Raise(BaseException("base")),),
    "group": (Raise(BaseExceptionGroup("many", [ValueError("one"), SystemExit(1)])),),
    "group_of_stops": (Raise(BaseExceptionGroup("stops", [asyncio.CancelledError()])),),
    "stop_iteration": (Raise(StopAsyncIteration("over")),),
    "ring": (Do(lambda _: circular()),),
    "object": (Do(lambda _: object()),),
    "nan": (Return(math.nan),),
    "lost": (Raise(ConnectionResetError("gone")),),
    "memory": (Raise(MemoryError()),),
    "recursion": (Raise(RecursionError("deep")),),
}

STRICT = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}


def cast(stage: Stage) -> list[Tool[..., Any]]:
    """A tool for every way to end."""
    return [
        stage.tool(
            name,
            *steps,
            schema=STRICT,
            effect=Effect.WRITE if at % 2 else Effect.READ,
            claims=[] if at % 3 else ["write db:{n}"],
            timeout=5,
            sync=name in ("quits", "raises", "nothing"),
        )
        for at, (name, steps) in enumerate(FAULTS.items())
    ]


ARGUMENTS = [
    "{}",
    '{"n": 1}',
    '{"n": 2}',
    '{"n": "x"}',
    '{"m": 1}',
    '{"n": 1',
    "[1]",
    '{"n": 1}{"n": 2}',
    "NaN",
    "",
]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "", "a b", "c\n", "t1.1", "t1.2.a1"]),
            st.sampled_from([*FAULTS, "nope", "", " "]),
            st.sampled_from(ARGUMENTS),
        ),
        max_size=8,
    ),
    st.sampled_from(["tool_calls", "length"]),
)
def test_any_mix_of_faults_gives_one_outcome_for_each_call_in_request_order(
    calls: list[tuple[str, str, str]], reason: str
) -> None:
    stage = Stage()
    theatre = Theatre(stage, *cast(stage), policy=Policy([Rule(Decision.DENY, tools=["object"])]))

    turn = theatre.play(openai_reply(*calls, reason=reason))

    assistant, *results = turn.messages
    ids = [call["id"] for call in assistant.get("tool_calls", ())]
    assert [result["tool_call_id"] for result in results] == ids
    assert len(set(ids)) == len(ids)
    assert list(turn.outcomes) == ids
    assert all(result["content"].strip() for result in results)
    ended = [fact.call for fact in theatre.kept(CallEnded)]
    assert sorted(ended) == sorted(call.id for call in turn.calls)
    started = {fact.call for fact in theatre.kept(CallStarted)}
    assert sum(stage.entered.values()) == len(started)
    for call in turn.calls:
        assert call.record.tool in FAULTS or call.id not in started
        assert call.state is not State.SUCCEEDED or isinstance(call.outcome, Success)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_plan_of_faulty_calls_ends_with_one_outcome_for_each(data: st.DataObject) -> None:
    names = [f"c{n}" for n in range(data.draw(st.integers(1, 8)))]
    some = st.lists(st.sampled_from([*names, "nowhere"]), max_size=2)
    calls = [
        {
            "id": name,
            "tool": data.draw(st.sampled_from([*FAULTS, "nope"])),
            "arguments": {"n": data.draw(st.sampled_from([1, 2, "x", f"${{{names[0]}}}"]))},
            "needs": data.draw(some),
            "after": data.draw(some),
        }
        for name in names
    ]
    stage = Stage()
    theatre = Theatre(stage, *cast(stage))

    turn = theatre.play({"calls": calls})

    assert list(turn.outcomes) == names
    assert sorted(fact.call for fact in theatre.kept(CallEnded)) == [c.id for c in turn.calls]
    assert all(
        one["id"] == name for one, name in zip(turn.messages[1]["results"], names, strict=True)
    )
    for call, asked in zip(turn.calls, calls, strict=True):
        sources = [turn.call(name) for name in asked["needs"] if name in names]
        if call.started is not None:
            assert all(source.state is State.SUCCEEDED for source in sources)
            assert all(source.ended <= call.started for source in sources if source.ended)


@pytest.mark.parametrize(
    ("name", "state", "code", "told"),
    [
        ("unreadable", State.FAILED, Code.TOOL_ERROR, "UnreadableError: (what it says cannot be"),
        ("half", State.FAILED, Code.TOOL_ERROR, "half a � character"),
        ("quits", State.FAILED, Code.TOOL_ERROR, "quits raised SystemExit: 2"),
        ("cancels", State.FAILED, Code.TOOL_ERROR, "cancels raised CancelledError"),
        ("generator_exit", State.FAILED, Code.TOOL_ERROR, "GeneratorExit"),
        ("base", State.FAILED, Code.TOOL_ERROR, "base raised BaseException: base"),
        ("memory", State.FAILED, Code.TOOL_ERROR, "memory raised MemoryError"),
        ("late", State.TIMED_OUT, Code.TIMEOUT, "within its limit of 5 s"),
        ("deaf", State.TIMED_OUT, Code.TIMEOUT, "The tool has not stopped"),
        ("ring", State.FAILED, Code.RESULT_NOT_SERIALISABLE, "$[0] contains itself"),
        ("object", State.FAILED, Code.RESULT_NOT_SERIALISABLE, "$ is of type object"),
        ("nan", State.FAILED, Code.RESULT_NOT_SERIALISABLE, "$ is nan"),
    ],
)
def test_a_tools_failure_is_a_value_and_names_itself(
    tmp_path: Path, name: str, state: State, code: Code, told: str
) -> None:
    stage = Stage()
    theatre = Theatre(stage, *cast(stage), journal=str(tmp_path / "runs.db"))

    turn = theatre.play(plan({"id": "a", "tool": name}, {"id": "b", "tool": "ok"}))

    assert states(turn) == {"a": state, "b": State.SUCCEEDED}
    assert failure(turn, "a").code is code
    assert told in failure(turn, "a").message
    assert "Traceback" not in json.dumps(turn.messages)


def test_an_exception_of_megabytes_is_told_in_short() -> None:
    stage = Stage()

    turn = Theatre(stage, stage.tool("a", Raise(ValueError("x" * 2_000_000)))).play(
        plan({"id": "a", "tool": "a"})
    )

    assert len(failure(turn, "a").message) < 5000
    assert "(1996000 more characters)" in failure(turn, "a").message


def test_what_a_failed_call_may_have_done_follows_from_its_effect() -> None:
    stage = Stage()
    theatre = Theatre(
        stage,
        stage.tool("read", Raise(ValueError("x")), effect=Effect.READ),
        stage.tool("write", Raise(ValueError("x")), effect=Effect.WRITE),
        stage.tool("refused", Raise(ConnectionRefusedError(111, "no")), effect=Effect.EXTERNAL),
        stage.tool("lost", Raise(ConnectionResetError(104, "cut")), effect=Effect.EXTERNAL),
        stage.tool("bad", Do(lambda _: object()), effect=Effect.WRITE),
    )

    turn = theatre.play(
        plan(*({"id": n, "tool": n} for n in ("read", "write", "refused", "lost", "bad")))
    )

    assert states(turn)["lost"] is State.UNCERTAIN
    assert {name: failure(turn, name).happened for name in turn.outcomes} == {
        "read": Happened.NOTHING,
        "write": Happened.UNKNOWN,
        "refused": Happened.NOTHING,
        "lost": Happened.UNKNOWN,
        "bad": Happened.ALL,
    }
    assert failure(turn, "refused").retry
    assert not failure(turn, "lost").retry


def test_a_truncated_call_is_answered_and_whole_ones_before_it_run() -> None:
    stage = Stage()
    theatre = Theatre(stage, stage.tool("say", Return("{text}"), schema=TEXT))

    turn = theatre.play(
        openai_reply(("a", "say", '{"text": "x"}'), ("b", "say", '{"te'), reason="length")
    )

    assert states(turn) == {"a": State.SUCCEEDED, "b": State.FAILED}
    assert codes(turn) == {"b": Code.TRUNCATED_CALL}
    assert failure(turn, "b").retry
    assert turn.messages[0]["tool_calls"][1]["function"]["arguments"] == "{}"
    assert stage.entered == {"say": 1}


def test_a_call_cut_behind_its_last_field_is_told_so_where_a_field_is_missing() -> None:
    stage = Stage()
    theatre = Theatre(stage, stage.tool("say", Return("{text}"), schema=TEXT))

    turn = theatre.play(anthropic_reply(("a", "say", {}), reason="max_tokens"))

    assert codes(turn) == {"a": Code.TRUNCATED_CALL}
    block = turn.messages[1]["content"][0]
    assert block["is_error"] is True
    assert block["content"].startswith("Error TRUNCATED_CALL: The output limit cut this call off")


@pytest.mark.parametrize("form", ["openai", "anthropic"])
def test_unknown_malformed_and_invalid_calls_are_answered_in_every_form(form: str) -> None:
    stage = Stage()
    theatre = Theatre(stage, stage.tool("say", Return("{text}"), schema=TEXT))
    asked: list[tuple[str, str, Any]] = [
        ("u", "functions.say", {"text": "x"}),
        ("m", "say", '{"text": '),
        ("i", "say", {"text": 5}),
        ("g", "say", {"text": "good"}),
    ]
    if form == "openai":
        texts = [(i, n, g if isinstance(g, str) else json.dumps(g)) for i, n, g in asked]
        reply = openai_reply(*texts)
    else:
        reply = anthropic_reply(*asked)

    turn = theatre.play(reply)

    assert codes(turn) == {
        "u": Code.UNKNOWN_TOOL,
        "m": Code.MALFORMED_ARGUMENTS,
        "i": Code.INVALID_ARGUMENTS,
    }
    assert values(turn) == {"g": "good"}
    assert 'There is no tool named "functions.say"; nothing was run. Tools: say.' in (
        failure(turn, "u").message
    )
    assert "functions.say" not in json.dumps(turn.messages[0])
    assert turn.call("m").record.arguments is None
    assert turn.call("m").record.text == '{"text": '


def test_a_validator_of_a_tool_that_raises_is_an_invalid_argument_and_no_broken_run() -> None:
    def divide(given: int) -> float:
        return 1 / given

    async def halve(n: Annotated[int, AfterValidator(divide)]) -> float:
        return n

    theatre = Theatre(Stage(), tool(halve, effect=Effect.PURE))

    turn = theatre.play(
        plan(
            {"id": "a", "tool": "halve", "arguments": {"n": 0}},
            {"id": "b", "tool": "halve", "arguments": {"n": 4}},
            {"id": "z", "tool": "halve", "arguments": {"n": 0}, "after": ["b"]},
        )
    )

    assert codes(turn) == dict.fromkeys("az", Code.INVALID_ARGUMENTS)
    assert values(turn) == {"b": 0.25}
    assert "ZeroDivisionError" in failure(turn, "a").message


def test_an_answer_without_calls_is_a_turn_that_is_ready() -> None:
    turn = Theatre(Stage()).play({"role": "assistant", "content": "Done."})

    assert turn.ready
    assert turn.calls == []
    assert turn.outcomes == {}
    assert turn.messages == [{"role": "assistant", "content": "Done."}]
    assert repr(turn) == "<Turn 1 of run 'r', 0 calls, ready>"


@pytest.mark.parametrize("given", [{}, {"nonsense": 1}, None, 5, "text", {"calls": 5}])
def test_what_is_no_answer_is_an_error_that_leaves_the_run_as_it_was(given: Any) -> None:
    stage = Stage()
    theatre = Theatre(stage, stage.tool("ok", Return(1)))

    async def host(run: Run) -> Turn:
        with pytest.raises((PayloadError, PlanError)):
            await run.submit(given)
        return await run.submit(plan({"id": "a", "tool": "ok"}))

    assert values(theatre.enter(host)) == {"a": 1}


# References


def test_home_in_a_shell_call_of_a_models_turn_stays_text() -> None:
    stage = Stage()
    command = "echo ${HOME} $${PID} ${x:-${y}} ${a.b[0]}"

    turn = Theatre(stage, echo(stage)).play(openai_reply(("s", "echo", json.dumps({"c": command}))))

    assert values(turn) == {"s": {"c": command}}


def test_a_models_turn_refers_to_calls_of_the_turn_and_of_earlier_ones() -> None:
    stage = Stage()
    theatre = Theatre(stage, echo(stage))

    async def host(run: Run) -> list[Turn]:
        one = await run.submit(anthropic_reply(("toolu_1", "echo", {"x": [10, 20]})))
        two = await run.submit(
            anthropic_reply(
                ("toolu_2", "echo", {"y": "got ${toolu_1.x[1]} in ${HOME}"}),
                ("toolu_3", "echo", {"z": {"$from": "toolu_2"}, "w": {"$from": "toolu_1"}}),
            )
        )
        return [one, two]

    _, two = theatre.enter(host)

    assert values(two) == {
        "toolu_2": {"y": "got 20 in ${HOME}"},
        "toolu_3": {"z": {"y": "got 20 in ${HOME}"}, "w": {"x": [10, 20]}},
    }
    assert edges(two) == {("toolu_2", "toolu_3", "data")}


def test_the_latest_call_of_a_name_is_the_one_that_is_meant_after_a_restart_too() -> None:
    stage = Stage()
    theatre = Theatre(stage, echo(stage))

    async def first(run: Run) -> None:
        await run.submit(plan({"id": "a", "tool": "echo", "arguments": {"v": 1}}))
        await run.submit(plan({"id": "a", "tool": "echo", "arguments": {"v": 2}}))

    async def second(run: Run) -> Turn:
        return await run.submit(
            plan(
                {"id": "b", "tool": "echo", "arguments": {"v": "${a.v}"}},
                {"id": "c", "tool": "echo", "arguments": {"v": {"$from": "a", "path": None}}},
            )
        )

    theatre.enter(first)

    assert values(theatre.enter(second)) == {"b": {"v": "2"}, "c": {"v": {"v": 2}}}


def test_references_to_calls_that_did_not_succeed_skip_and_name_the_root() -> None:
    stage = Stage()
    theatre = Theatre(
        stage,
        echo(stage),
        stage.tool("bad", Raise(ValueError("boom"))),
        stage.tool("lost", Raise(ConnectionResetError("cut")), effect=Effect.EXTERNAL),
    )

    turn = theatre.play(
        plan(
            {"id": "f", "tool": "bad"},
            {"id": "u", "tool": "lost"},
            {"id": "x", "tool": "echo", "arguments": {"v": "${f}"}},
            {"id": "y", "tool": "echo", "arguments": {"v": "${x}"}},
            {"id": "z", "tool": "echo", "arguments": {"v": "${u.field}"}},
            {"id": "n", "tool": "nope"},
            {"id": "w", "tool": "echo", "arguments": {"v": "${n}"}},
            {"id": "k", "tool": "echo", "after": ["f", "u", "x", "n"]},
        )
    )

    assert states(turn) == {
        "f": State.FAILED,
        "u": State.UNCERTAIN,
        "x": State.SKIPPED,
        "y": State.SKIPPED,
        "z": State.SKIPPED,
        "n": State.FAILED,
        "w": State.SKIPPED,
        "k": State.SUCCEEDED,
    }
    assert failure(turn, "y").message == (
        "Not started, because x (and before it f) ended FAILED (TOOL_ERROR)."
    )
    assert failure(turn, "y").cause == turn.call("f").id
    assert failure(turn, "z").message == (
        "Not started, because u ended UNCERTAIN (OUTCOME_UNKNOWN)."
    )
    assert failure(turn, "w").message == "Not started, because n ended FAILED (UNKNOWN_TOOL)."


def test_references_to_earlier_calls_that_did_not_succeed_skip_before_anything_runs() -> None:
    stage = Stage()
    theatre = Theatre(stage, echo(stage), stage.tool("bad", Raise(ValueError("boom"))))

    async def host(run: Run) -> Turn:
        await run.submit(plan({"id": "f", "tool": "bad"}, {"id": "s", "tool": "echo"}))
        return await run.submit(
            plan(
                {"id": "a", "tool": "echo", "needs": ["f"]},
                {"id": "b", "tool": "echo", "arguments": {"v": "${f}"}},
                {"id": "c", "tool": "echo", "after": ["f"]},
                {"id": "d", "tool": "echo", "needs": ["s"]},
                {"id": "e", "tool": "echo", "needs": ["a"]},
            )
        )

    turn = theatre.enter(host)

    assert states(turn) == dict.fromkeys("abe", State.SKIPPED) | dict.fromkeys(
        "cd", State.SUCCEEDED
    )
    assert failure(turn, "a").message == ("Not started, because f of an earlier turn ended FAILED.")
    assert failure(turn, "a").cause == "t1.1"
    assert failure(turn, "e").message == (
        "Not started, because a ended SKIPPED (DEPENDENCY_FAILED)."
    )


def test_a_field_that_is_not_there_fails_the_call_that_refers_to_it_alone() -> None:
    stage = Stage()

    turn = Theatre(stage, echo(stage)).play(
        plan(
            {"id": "a", "tool": "echo", "arguments": {"v": 1}},
            {"id": "b", "tool": "echo", "arguments": {"v": "${a.w}"}},
            {"id": "c", "tool": "echo", "arguments": {"v": "${a.v}"}},
        )
    )

    assert codes(turn) == {"b": Code.BAD_REFERENCE}
    assert failure(turn, "b").message == (
        "${a.w}: the result of a is an object with v, so there is no 'w' in it"
    )


def test_resolved_arguments_are_checked_again_by_the_schema() -> None:
    stage = Stage()
    number = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    theatre = Theatre(stage, echo(stage), stage.tool("count", Return("{n}"), schema=number))

    turn = theatre.play(
        plan(
            {"id": "a", "tool": "echo", "arguments": {"n": 3, "t": "three"}},
            {"id": "b", "tool": "count", "arguments": {"n": {"$from": "a", "path": "n"}}},
            {"id": "c", "tool": "count", "arguments": {"n": {"$from": "a", "path": "t"}}},
            {"id": "d", "tool": "count", "arguments": {"n": {"$from": "a"}, "m": 1}},
            {"id": "e", "tool": "count", "arguments": {"m": {"$from": "a"}}},
        )
    )

    assert values(turn)["b"] == "3"
    assert codes(turn) == dict.fromkeys("cde", Code.INVALID_ARGUMENTS)
    assert 'n: should be of type integer, met "three"' in failure(turn, "c").message
    assert turn.call("c").started is None


def test_a_result_that_looks_like_a_reference_is_not_read_again() -> None:
    stage = Stage()
    theatre = Theatre(stage, echo(stage), stage.tool("evil", Return('${secret} {"$from":"s"}')))

    turn = theatre.play(
        plan(
            {"id": "secret", "tool": "echo", "arguments": {"v": "password"}},
            {"id": "e", "tool": "evil"},
            {"id": "x", "tool": "echo", "arguments": {"v": "${e}"}},
            {"id": "y", "tool": "echo", "arguments": {"v": "${x.v}"}},
        )
    )

    assert values(turn)["x"] == values(turn)["y"] == {"v": '${secret} {"$from":"s"}'}


def test_literal_parameters_hold_no_references_in_a_plan_either() -> None:
    stage = Stage()
    shell = stage.tool("shell", Do(dict), schema=ANY, literal=["command"])

    turn = Theatre(stage, shell).play(
        plan(
            {"id": "a", "tool": "shell", "arguments": {"command": "echo ${a} ${nope}"}},
            {"id": "b", "tool": "shell", "arguments": {"command": "${a}", "x": "$${a}"}},
        )
    )

    assert values(turn)["a"] == {"command": "echo ${a} ${nope}"}
    assert values(turn)["b"] == {"command": "${a}", "x": "${a}"}
    assert edges(turn) == set()


def test_a_body_that_changes_its_arguments_changes_nobody_elses() -> None:
    async def source() -> dict[str, list[int]]:
        return {"a": [0]}

    async def spoil(given: dict[str, list[int]]) -> Any:
        given["a"].append(1)
        return given

    theatre = Theatre(Stage(), tool(source, effect=Effect.PURE), tool(spoil, effect=Effect.PURE))
    whole = {"given": {"$from": "s"}}

    turn = theatre.play(
        plan(
            {"id": "s", "tool": "source"},
            {"id": "x", "tool": "spoil", "arguments": whole},
            {"id": "y", "tool": "spoil", "arguments": whole, "after": ["x"]},
            {"id": "z", "tool": "spoil", "arguments": {"given": {"a": [5]}}},
        )
    )

    assert values(turn) == {
        "s": {"a": [0]},
        "x": {"a": [0, 1]},
        "y": {"a": [0, 1]},
        "z": {"a": [5, 1]},
    }
    assert turn.call("z").record.arguments == {"given": {"a": [5]}}
    assert turn.messages[0]["calls"][3]["arguments"] == {"given": {"a": [5]}}


def test_a_text_that_merely_looks_like_a_long_reference_costs_little() -> None:
    stage = Stage()
    text = "${" + "." * 300_000 + "}" + "${a[" * 50_000 + "${" * 50_000

    turn = Theatre(stage, echo(stage)).play(openai_reply(("a", "echo", json.dumps({"v": text}))))

    assert values(turn) == {"a": {"v": text}}


def test_faults_of_references_are_told_in_short_however_long_they_are() -> None:
    stage = Stage()
    long = "n" * 100_000
    theatre = Theatre(stage, echo(stage))

    turn = theatre.play(
        plan(
            {"id": "a", "tool": "echo", "arguments": {"k" * 5000: 1}},
            {"id": "b", "tool": "echo", "arguments": {"v": f"${{{long}}}"}},
            {"id": "c", "tool": "echo", "arguments": {"v": " ".join(["${x}"] * 1000)}},
            {"id": "d", "tool": "echo", "arguments": {"v": f"${{a.{long}}}"}},
        )
    )

    assert codes(turn) == dict.fromkeys("bcd", Code.BAD_REFERENCE)
    assert failure(turn, "c").message.endswith("and 992 more.")
    assert all(len(failure(turn, name).message) < 1500 for name in "bcd")


# Unresolved claims


def writer(stage: Stage, *claims: str, **declared: Any) -> Tool[..., Any]:
    return stage.tool(
        "write", Sleep(1), Return("w"), effect=Effect.WRITE, claims=claims, schema=ANY, **declared
    )


def file_tools(stage: Stage) -> list[Tool[..., Any]]:
    schema = {"type": "object", "properties": {"path": {"type": "string"}, "n": {}}}
    return [
        stage.tool("give", Sleep(1), Return("{v}"), schema=ANY),
        stage.tool(
            "put",
            Sleep(1),
            Return("ok"),
            effect=Effect.WRITE,
            claims=["write file:out/{path}"],
            schema=schema,
        ),
        stage.tool("get", Sleep(1), Return("ok"), claims=["read file:{path}"], schema=schema),
    ]


def test_a_claim_that_is_not_known_yet_stands_for_its_folder_and_is_narrowed(
    tmp_path: Path,
) -> None:
    stage = Stage()
    theatre = Theatre(stage, *file_tools(stage), workspace=tmp_path)

    turn = theatre.play(
        plan(
            {"id": "g", "tool": "give", "arguments": {"v": "a.txt", "n": "g"}},
            {"id": "w", "tool": "put", "arguments": {"path": "${g}", "n": "w"}},
            {"id": "in", "tool": "get", "arguments": {"path": "out/b.txt", "n": "in"}},
            {"id": "off", "tool": "get", "arguments": {"path": "src/b.txt", "n": "off"}},
        )
    )

    out = f"file:{tmp_path}/out"
    assert edges(turn) == {("g", "w", "data"), ("w", "in", "conflict")}
    assert turn.call("w").record.claims[-1] == Claim(out, Access.EXCLUSIVE)
    assert turn.call("w").claims == (
        Claim("run:r", Access.SHARED),
        Claim(f"{out}/a.txt", Access.EXCLUSIVE),
    )
    ran = spans(stage)
    assert ran["in"][0] >= ran["w"][1]
    assert ran["off"][0] == ran["g"][0]


def test_a_claim_with_an_unknown_value_up_front_covers_the_whole_scheme(tmp_path: Path) -> None:
    stage = Stage()
    theatre = Theatre(stage, *file_tools(stage), workspace=tmp_path)

    turn = theatre.play(
        plan(
            {"id": "w", "tool": "put", "arguments": {"path": "x", "n": "w"}},
            {"id": "g", "tool": "give", "arguments": {"v": "src/a"}},
            {"id": "r", "tool": "get", "arguments": {"path": "${g}", "n": "r"}},
            {"id": "v", "tool": "put", "arguments": {"path": "y", "n": "v"}},
        )
    )

    assert edges(turn) == {("g", "r", "data"), ("w", "r", "conflict"), ("r", "v", "conflict")}
    assert turn.call("r").record.claims[-1] == Claim("file:", Access.SHARED)


def test_a_claim_that_outgrows_what_was_foreseen_is_a_bad_reference(tmp_path: Path) -> None:
    stage = Stage()
    theatre = Theatre(stage, *file_tools(stage), workspace=tmp_path)

    turn = theatre.play(
        plan(
            {"id": "g", "tool": "give", "arguments": {"v": "../secret"}},
            {"id": "w", "tool": "put", "arguments": {"path": "${g}"}},
        )
    )

    assert codes(turn) == {"w": Code.BAD_REFERENCE}
    assert failure(turn, "w").message == (
        f"Now that all is known of it the call claims exclusive file:{tmp_path}/secret, which "
        f"goes beyond shared run:r, exclusive file:{tmp_path}/out, for which its place was chosen."
    )
    assert stage.entered["put"] == 0


def test_a_claim_function_that_asks_for_an_unknown_value_counts_as_its_most() -> None:
    def rows(arguments: Mapping[str, Any]) -> list[str]:
        return [f"write db:{arguments['table']}/{row}" for row in arguments.get("rows", ())]

    stage = Stage()
    schema = {"type": "object", "properties": {"table": {}, "rows": {}}}
    save = stage.tool(
        "save",
        Sleep(1),
        Return("ok"),
        effect=Effect.WRITE,
        schema=schema,
        claims=rows,
        claims_at_most=["write db:shop"],
    )
    turn = Theatre(stage, echo(stage), save).play(
        plan(
            {"id": "s", "tool": "echo", "arguments": {"t": "shop", "u": "bank"}},
            {"id": "a", "tool": "save", "arguments": {"table": "${s.t}", "rows": [1, 2]}},
            {"id": "b", "tool": "save", "arguments": {"table": "shop", "rows": [9]}},
            {"id": "c", "tool": "save", "arguments": {"table": "${s.u}", "rows": [1]}},
        )
    )

    assert turn.call("a").record.claims[-1] == Claim("db:shop", Access.EXCLUSIVE)
    assert [claim.resource for claim in turn.call("a").claims or ()] == [
        "run:r",
        "db:shop/1",
        "db:shop/2",
    ]
    assert ("a", "b", "conflict") in edges(turn)
    assert codes(turn) == {"c": Code.BAD_REFERENCE}
    assert "claims exclusive db:bank/1, which goes beyond" in failure(turn, "c").message


def test_claims_that_cannot_be_named_are_the_arguments_fault() -> None:
    def broken(arguments: Mapping[str, Any]) -> list[Any]:
        return [1 / 0] if arguments["n"] == 0 else [arguments["n"]]

    stage = Stage()
    theatre = Theatre(
        stage,
        echo(stage),
        stage.tool("file", Return(1), effect=Effect.WRITE, claims=["write file:{n}"]),
        stage.tool("made", Return(1), effect=Effect.WRITE, claims=broken, schema=ANY),
    )

    turn = theatre.play(
        plan(
            {"id": "nul", "tool": "file", "arguments": {"n": "a\0b"}},
            {"id": "empty", "tool": "file", "arguments": {"n": ""}},
            {"id": "object", "tool": "file", "arguments": {"n": {}}},
            {"id": "raises", "tool": "made", "arguments": {"n": 0}},
            {"id": "gives", "tool": "made", "arguments": {"n": 1}},
            {"id": "s", "tool": "echo", "arguments": {"v": "a\0b"}},
            {"id": "later", "tool": "file", "arguments": {"n": "${s.v}"}},
        )
    )

    assert codes(turn) == dict.fromkeys(
        ["nul", "empty", "object", "raises", "gives", "later"], Code.INVALID_ARGUMENTS
    )
    assert failure(turn, "raises").message == (
        "The call names a resource that cannot be used: resource 'claims of made': the function "
        "that names them raised ZeroDivisionError"
    )
    assert sum(stage.entered.values()) == 1


# Dependencies and plans


def test_needs_after_data_and_conflict_stand_in_the_graph_with_their_reasons() -> None:
    stage = Stage()
    theatre = Theatre(stage, echo(stage), writer(stage, "write db:t"))

    turn = theatre.play(
        plan(
            {"id": "a", "tool": "echo", "arguments": {"x": 1}},
            {"id": "b", "tool": "echo", "needs": ["a"], "arguments": {"y": "${a.x} ${a}"}},
            {"id": "c", "tool": "write", "after": ["b"]},
            {"id": "d", "tool": "write"},
        )
    )

    assert edges(turn) == {("a", "b", "needs"), ("b", "c", "after"), ("d", "c", "conflict")} or (
        edges(turn) == {("a", "b", "needs"), ("b", "c", "after"), ("c", "d", "conflict")}
    )
    assert turn.graph.number_of_nodes() == 4


def test_hazards_are_drawn_once_from_the_last_writer_and_the_readers_since() -> None:
    stage = Stage()
    row: dict[str, Any] = {"schema": ANY}
    read = stage.tool("read", Return(1), claims=["read db:t/1"], **row)
    write = stage.tool("write", Return(1), effect=Effect.WRITE, claims=["write db:t/1"], **row)
    table = stage.tool("table", Return(1), effect=Effect.WRITE, claims=["write db:t"], schema=ANY)
    order = ["read", "write", "read", "read", "write", "write", "table", "read"]

    turn = Theatre(stage, read, write, table).play(
        plan(*({"id": f"{at}", "tool": name} for at, name in enumerate(order)))
    )

    drawn = sorted(source + target for source, target, _ in edges(turn))
    assert drawn == ["01", "12", "13", "14", "24", "34", "45", "56", "67"]
    details = {data["detail"] for _, _, data in turn.graph.edges(data=True)}
    assert details == {"db:t/1", "db:t"}


def test_a_ring_of_thousands_is_told_without_naming_all_of_it_to_each() -> None:
    stage = Stage()
    count = 2000
    ring = [{"id": f"c{n}", "tool": "echo", "needs": [f"c{(n + 1) % count}"]} for n in range(count)]

    turn = Theatre(stage, echo(stage)).play(plan(*ring, {"id": "ok", "tool": "echo"}))

    assert set(codes(turn).values()) == {Code.DEPENDENCY_CYCLE}
    assert values(turn) == {"ok": {}}
    assert failure(turn, "c7").message == (
        f"the calls {', '.join(f'c{n}' for n in range(20))} and 1980 more wait for one another in "
        "a cycle, so it can never start."
    )


def test_a_model_turn_runs_what_it_can_and_a_strict_one_nothing() -> None:
    stage = Stage()
    calls = (
        {"id": "ok", "tool": "echo"},
        {"id": "self", "tool": "echo", "needs": ["self"]},
        {"id": "dangling", "tool": "echo", "after": ["nowhere"]},
        {"id": "unknown", "tool": "nope"},
        {"id": "name", "tool": "echo", "arguments": {"x": "${nobody.field}"}},
        {"id": "path", "tool": "echo", "arguments": {"x": "${ok.a..b}"}},
        {"id": "bad", "tool": "strict", "arguments": {"m": 1}},
        {"id": "ok", "tool": "echo"},
        {"id": "child", "tool": "echo", "needs": ["bad"]},
    )
    tools = [echo(stage), stage.tool("strict", Return(1), schema=STRICT)]
    theatre = Theatre(stage, *tools)

    async def host(run: Run) -> Turn:
        with pytest.raises(PlanError) as refused:
            await run.submit(plan(*calls), strict=True)
        assert run.turns == []
        assert len(theatre.facts) == 1
        assert refused.value.faults == (
            "self (echo): self waits for itself, so it can never start.",
            "dangling (echo): dangling depends on 'nowhere', but no call has that name.",
            'unknown (nope): There is no tool named "nope"; nothing was run. Tools: echo, strict.',
            "name (echo): argument 'x' refers to ${nobody.field}, but no call is named 'nobody'.",
            (
                "path (echo): argument 'x' refers to ${ok.a..b}, whose path cannot be read: write "
                ".field or [index]."
            ),
            "bad (strict): strict was not run, because its arguments do not fit: m is unknown.",
            (
                "ok_8 (echo): An earlier call of the plan has the id 'ok' too, so a reference to "
                "it could mean either."
            ),
        )
        assert str(refused.value).startswith("the plan has 7 faults; nothing of it was run:\n  - ")
        return await run.submit(plan(*calls))

    turn = theatre.enter(host)

    assert stage.entered == {"echo": 1}
    assert states(turn)["ok"] is State.SUCCEEDED
    assert states(turn)["child"] is State.SKIPPED
    assert codes(turn) == {
        "self": Code.DEPENDENCY_CYCLE,
        "dangling": Code.BAD_REFERENCE,
        "unknown": Code.UNKNOWN_TOOL,
        "name": Code.BAD_REFERENCE,
        "path": Code.BAD_REFERENCE,
        "bad": Code.INVALID_ARGUMENTS,
        "ok_8": Code.BAD_REFERENCE,
        "child": Code.DEPENDENCY_FAILED,
    }


def test_a_strict_plan_whose_source_failed_in_an_earlier_turn_is_refused() -> None:
    stage = Stage()
    theatre = Theatre(stage, echo(stage), stage.tool("bad", Raise(ValueError("boom"))))

    async def host(run: Run) -> None:
        await run.submit(plan({"id": "f", "tool": "bad"}))
        with pytest.raises(
            PlanError, match=r"1 fault; nothing of it was run:\n  - a \(echo\): Not"
        ):
            await run.submit(plan({"id": "a", "tool": "echo", "needs": ["f"]}), strict=True)
        assert len(run.turns) == 1

    theatre.enter(host)


def test_a_sound_plan_runs_strictly_too() -> None:
    stage = Stage()
    theatre = Theatre(stage, echo(stage))

    async def host(run: Run) -> Turn:
        return await run.submit(plan({"id": "a", "tool": "echo"}), strict=True)

    assert values(theatre.enter(host)) == {"a": {}}


@pytest.mark.parametrize("name", ["t1.2", "t12.3.a1"])
def test_no_call_may_bear_a_name_that_laneway_gives(name: str) -> None:
    stage = Stage()
    theatre = Theatre(stage, echo(stage))

    turn = theatre.play(openai_reply((name, "echo", "{}")))
    with pytest.raises(PlanError, match=f"'{name}' is how Laneway itself names calls; give anoth"):
        theatre.play(plan({"id": name, "tool": "echo"}))

    assert is_own(name)
    assert turn.calls[0].record.provider_id != name
    assert turn.messages[1]["tool_call_id"] == turn.messages[0]["tool_calls"][0]["id"]


def test_an_escape_is_read_where_nothing_else_is_referred_to(tmp_path: Path) -> None:
    stage = Stage()
    theatre = Theatre(
        stage,
        echo(stage),
        stage.tool("put", Do(dict), effect=Effect.WRITE, claims=["write db:{p}"], approval=True),
    )

    async def first(run: Run) -> None:
        turn = await run.submit(
            plan(
                {"id": "a", "tool": "echo", "arguments": {"x": "$${a} $${zz}"}},
                {"id": "b", "tool": "put", "arguments": {"p": "$${a}"}},
            ),
            wait=False,
        )
        assert turn.call("b").record.claims[-1] == Claim("db:${a}", Access.EXCLUSIVE)
        await asyncio.sleep(1)
        assert [one.arguments for one in run.approvals] == [{"p": "${a}"}]

    async def second(run: Run) -> Turn:
        await run.approve("b")
        turn = await run.finish()
        assert turn is not None
        return turn

    theatre.enter(first)

    assert values(theatre.enter(second)) == {"a": {"x": "${a} ${zz}"}, "b": {"p": "${a}"}}


# Conflicts, lanes and threads

PATHS = ["a", "a/x", "a/y", "b"]

VERBS = ["read", "write"]


def claims_of(arguments: Mapping[str, Any]) -> list[str]:
    return list(arguments["claims"])


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(
                st.one_of(
                    st.tuples(st.sampled_from(VERBS), st.sampled_from(PATHS)).map(
                        lambda pair: f"{pair[0]} db:{pair[1]}"
                    ),
                    st.sampled_from(["lane:one", "lane:two"]),
                ),
                max_size=3,
            ),
            st.integers(1, 4),
            st.lists(st.integers(0, 9), max_size=2),
            st.sampled_from(["work", "wild", "thread"]),
        ),
        min_size=1,
        max_size=10,
    ),
    st.sampled_from([False, True]),
)
def test_no_body_overlaps_one_that_it_conflicts_with_and_conflicts_keep_request_order(
    jobs: list[tuple[list[str], int, list[int], str]], serial: bool
) -> None:
    stage = Stage()

    async def nap(arguments: Mapping[str, Any]) -> None:
        await asyncio.sleep(arguments["seconds"])

    def block(arguments: Mapping[str, Any]) -> None:
        assert stage.clock is not None
        stage.clock.block(arguments["seconds"])

    written: dict[str, Any] = {"effect": Effect.WRITE, "claims": claims_of, "schema": ANY}
    work = stage.tool("work", Do(nap), Return(1), **written)
    thread = stage.tool("thread", Do(block), Return(1), sync=True, **written)
    wild = Tool.from_schema(stage.tool("wild", Do(nap)).function, name="wild", schema=ANY)
    calls = [
        {
            "id": f"c{at}",
            "tool": kind,
            "arguments": {"n": at, "seconds": seconds, "claims": claims},
            "needs": [f"c{source}" for source in needs if source < at],
        }
        for at, (claims, seconds, needs, kind) in enumerate(jobs)
    ]
    theatre = Theatre(stage, work, thread, wild, lanes={"two": 2}, limits=Limits(tool_threads=2))

    turn = theatre.enter(lambda run: run.submit(plan(*calls)), run={"parallel": not serial})

    assert set(states(turn).values()) == {State.SUCCEEDED}
    ran = spans(stage)
    for late, (claims, _, _, kind) in enumerate(jobs):
        for early, (others, _, _, other) in enumerate(jobs[:late]):
            together = ran[early][0] < ran[late][1] and ran[late][0] < ran[early][1]
            if serial or "wild" in (kind, other) or conflict(claims, others):
                assert ran[early][1] <= ran[late][0]
            assert not (together and "lane:one" in claims and "lane:one" in others)
    for start, _ in ran.values():
        busy = [at for at, (begin, end) in ran.items() if begin <= start < end]
        assert sum("lane:two" in jobs[at][0] for at in busy) <= 2
        assert sum(jobs[at][3] == "thread" for at in busy) <= 2


def conflict(one: Sequence[str], other: Sequence[str]) -> bool:
    return any(
        overlaps(mine.split()[1], theirs.split()[1]) and "write" in (mine[:5], theirs[:5])
        for mine in one
        for theirs in other
        if " " in mine and " " in theirs
    )


def test_a_tool_of_which_nothing_is_said_has_its_run_alone_and_other_runs_go_on() -> None:
    stage = Stage()

    async def mystery(n: str) -> str:
        await body(n)
        return n

    async def body(n: str) -> None:
        await stage.tool("mystery", Sleep(2)).function(n=n)

    async def main() -> dict[str, tuple[float, float]]:
        free = stage.tool("free", Sleep(1), Return("f"), schema=ANY)
        engine = Engine([mystery, free], clock=stage.make_clock)
        async with engine, engine.run("one") as one, engine.run("two") as two:
            began = now()
            await asyncio.gather(
                one.submit(
                    plan(
                        {"id": "a", "tool": "free", "arguments": {"n": "a"}},
                        {"id": "m", "tool": "mystery", "arguments": {"n": "m"}},
                        {"id": "b", "tool": "free", "arguments": {"n": "b"}},
                        {"id": "c", "tool": "free", "arguments": {"n": "c"}},
                    )
                ),
                two.submit(plan({"id": "x", "tool": "free", "arguments": {"n": "x"}})),
            )
            return {name: (a - began, b - began) for name, (a, b) in spans(stage).items()}

    assert run_virtual(main) == {
        "a": (0, 1),
        "m": (1, 3),
        "b": (3, 4),
        "c": (3, 4),
        "x": (0, 1),
    }


def test_a_serial_run_runs_one_call_after_another_in_request_order() -> None:
    stage = Stage()
    free = stage.tool("free", Sleep(1), Return("f"), schema=ANY)
    calls = [{"id": f"c{n}", "tool": "free", "arguments": {"n": n}} for n in range(4)]

    Theatre(stage, free).enter(lambda run: run.submit(plan(*calls)), run={"parallel": False})

    starts = [one.start for one in stage.executions]
    assert [one.arguments["n"] for one in stage.executions] == [0, 1, 2, 3]
    assert all(later - sooner == 1 for sooner, later in pairwise(starts))


def test_a_lane_lets_its_number_in_and_serves_in_the_order_of_asking() -> None:
    stage = Stage()
    mail = stage.tool("mail", Sleep(1), Return("m"), claims=["lane:mail"], schema=ANY)
    calls = [{"id": f"c{n}", "tool": "mail", "arguments": {"n": n}} for n in range(7)]

    Theatre(stage, mail, lanes={"mail": 3}).play(plan(*calls))

    began = stage.executions[0].start
    assert [one.arguments["n"] for one in stage.executions] == list(range(7))
    assert [one.start - began for one in stage.executions] == [0, 0, 0, 1, 1, 1, 2]


def test_the_number_of_a_resource_caps_its_readers() -> None:
    stage = Stage()
    read = stage.tool("read", Sleep(1), Return("m"), claims=["read db:shop"], schema=ANY)
    calls = [{"id": f"c{n}", "tool": "read", "arguments": {"n": n}} for n in range(4)]

    Theatre(stage, read, lanes={"db:shop": 2}).play(plan(*calls))

    began = stage.executions[0].start
    assert [one.start - began for one in stage.executions] == [0, 0, 1, 1]


def test_two_runs_share_lanes_and_resources_first_come_first_served() -> None:
    stage = Stage()
    put = stage.tool("put", Sleep(1), effect=Effect.WRITE, claims=["write db:t"], schema=ANY)

    async def main() -> list[str]:
        engine = Engine([put], clock=stage.make_clock)
        async with engine, engine.run("one") as one, engine.run("two") as two:
            await asyncio.gather(
                *(
                    run.submit(
                        plan(*({"id": n, "tool": "put", "arguments": {"n": n}} for n in names))
                    )
                    for run, names in ((one, "ab"), (two, "xy"))
                )
            )
        return [one.arguments["n"] for one in stage.executions]

    # b and y ask for the table when a and x have ended: each turn keeps its own order.
    assert run_virtual(main) == ["a", "x", "b", "y"]
    ran = sorted(spans(stage).values())
    assert all(sooner[1] <= later[0] for sooner, later in pairwise(ran))


def test_calls_that_wait_for_a_lane_hold_no_thread_meanwhile() -> None:
    stage = Stage()
    tools = [
        stage.tool("slow", Block(1), Return(1), claims=["lane:L"], sync=True, schema=ANY),
        stage.tool("free", Block(1), Return(1), sync=True, schema=ANY),
    ]
    calls = [{"id": f"s{n}", "tool": "slow", "arguments": {"n": f"s{n}"}} for n in range(3)]
    calls.append({"id": "f", "tool": "free", "arguments": {"n": "f"}})

    Theatre(stage, *tools, limits=Limits(tool_threads=2)).play(plan(*calls))

    ran = spans(stage)
    assert ran["f"][0] == ran["s0"][0]
    assert [ran[f"s{n}"][0] - ran["s0"][0] for n in range(3)] == [0, 1, 2]


def test_a_call_that_is_cancelled_while_it_waits_for_a_thread_leaves_the_line() -> None:
    stage = Stage()
    slow = stage.tool("slow", Block(1), Return(1), sync=True, schema=ANY)
    calls = [{"id": n, "tool": "slow", "arguments": {"n": n}} for n in "abc"]

    async def host(run: Run) -> tuple[dict[str, State], Any]:
        turn = await run.submit(plan(*calls), wait=False)
        await run.cancel("b")
        await turn.wait()
        return states(turn), run._engine.status().lanes

    ended, lanes = Theatre(stage, slow, limits=Limits(tool_threads=1)).enter(host)

    assert ended == {"a": State.SUCCEEDED, "b": State.CANCELLED, "c": State.SUCCEEDED}
    ran = spans(stage)
    assert ran["c"][0] == ran["a"][1]
    assert [lane.resource for lane in lanes] == ["lane:engine/threads"]
    assert lanes[0].holders == lanes[0].waiters == ()


def test_the_status_shows_who_holds_and_who_waits() -> None:
    stage = Stage()
    mail = stage.tool("mail", Sleep(1), Return("m"), claims=["lane:mail"], schema=ANY)

    async def host(run: Run) -> Any:
        turn = await run.submit(
            plan({"id": "a", "tool": "mail"}, {"id": "b", "tool": "mail"}), wait=False
        )
        await asyncio.sleep(0.5)
        status = run._engine.status()
        await turn.wait()
        return status, run._engine.status()

    busy, idle = Theatre(stage, mail).enter(host)

    assert busy.runs == idle.runs == ("r",)
    lane = next(lane for lane in busy.lanes if lane.resource == "lane:mail")
    assert lane.max_concurrent == 1
    assert [holder.owner for holder in lane.holders] == ["r/t1.1"]
    assert [waiter.owner for waiter in lane.waiters] == ["r/t1.2"]
    assert [lane.resource for lane in idle.lanes] == ["lane:engine/threads"]
    assert (busy.stuck_threads, busy.stuck) == (0, ())


# Many calls


def test_a_turn_of_five_thousand_calls_ends_in_request_order() -> None:
    stage = Stage()
    count = 5000
    theatre = Theatre(
        stage,
        stage.tool("work", Sleep(0.1), Return("{n}"), schema=ANY),
        stage.tool("lane", Return("{n}"), claims=["lane:L"], schema=ANY),
        stage.tool("bad", Raise(ValueError("x")), schema=ANY),
        *(stage.tool(f"tool_{n}", Return(1)) for n in range(50)),
    )
    kinds = ["work", "lane", "bad", "invented"]
    calls = [
        {"id": f"c{n}", "tool": kinds[n % 4], "arguments": {"n": n}, "needs": needs_of(n)}
        for n in range(count)
    ]

    turn = theatre.play(plan(*calls))

    assert list(turn.outcomes) == [f"c{n}" for n in range(count)]
    assert [one["id"] for one in turn.messages[1]["results"]] == list(turn.outcomes)
    assert stage.entered["work"] == stage.entered["lane"] == stage.entered["bad"] == count // 4
    assert set(states(turn).values()) == {State.SUCCEEDED, State.FAILED}


def needs_of(n: int) -> list[str]:
    return [f"c{n - 4}"] if n % 4 == 0 and n else []


def test_a_chain_of_five_thousand_references_runs_and_a_broken_one_names_its_root() -> None:
    stage = Stage()
    count = 5000
    theatre = Theatre(stage, stage.tool("next", Return("{v}"), schema=ANY), stage.tool("bad"))
    forward = [
        {"id": f"c{n}", "tool": "next", "arguments": {"v": f"${{c{n - 1}}}" if n else "start"}}
        for n in range(count)
    ]
    backward = [
        {"id": f"c{n}", "tool": "next", "arguments": {"v": f"${{c{n + 1}}}"}}
        for n in range(count - 1)
    ]

    whole = theatre.play(plan(*forward))
    broken = Theatre(stage, *theatre.tools).play(
        plan(*backward, {"id": f"c{count - 1}", "tool": "nope"})
    )

    assert values(whole)[f"c{count - 1}"] == "start"
    assert states(broken)["c0"] is State.SKIPPED
    assert failure(broken, "c0").message == (
        f"Not started, because c1 (and before it c{count - 1}) ended FAILED (UNKNOWN_TOOL)."
    )


def test_a_workspace_that_moved_since_a_call_was_asked_for_is_told(tmp_path: Path) -> None:
    stage = Stage()
    put = stage.tool(
        "put", Log("put"), effect=Effect.WRITE, claims=["write file:{n}"], approval=True
    )
    theatre = Theatre(stage, put)

    async def first(run: Run) -> None:
        call = {"id": "a", "tool": "put", "arguments": {"n": "x"}}
        await run.submit(plan(call), wait=False)

    theatre.enter(first, workspace=tmp_path / "old")
    turn = theatre.finish(workspace=tmp_path / "new")

    assert codes(turn) == {"a": Code.BAD_REFERENCE}
    assert f"claims exclusive file:{tmp_path}/new/x, which goes beyond" in (
        failure(turn, "a").message
    )
    assert stage.log == []


def test_a_claim_function_cannot_change_what_runs_nor_end_the_program() -> None:
    def spoiling(arguments: Mapping[str, Any]) -> list[str]:
        spoil(arguments["x"])
        if arguments["x"] != [1, "spoilt"]:
            return []
        raise SystemExit(1)

    stage = Stage()
    theatre = Theatre(
        stage,
        stage.tool("a", Do(dict), schema=ANY, claims=spoiling),
        stage.tool("b", Do(dict), schema=ANY, claims=lambda given: spoil(given["x"])),
    )

    turn = theatre.play(
        plan(
            {"id": "a", "tool": "a", "arguments": {"x": [1]}},
            {"id": "b", "tool": "b", "arguments": {"x": [1]}},
        )
    )

    assert values(turn) == {"a": {"x": [1]}, "b": {"x": [1]}}


def test_a_claim_function_that_exits_is_the_calls_fault() -> None:
    def leaving(_: Mapping[str, Any]) -> list[str]:
        raise SystemExit(1)

    stage = Stage()
    theatre = Theatre(stage, echo(stage), echo(stage, "leaves", claims=leaving))

    turn = theatre.play(plan({"id": "a", "tool": "leaves"}, {"id": "b", "tool": "echo"}))

    assert codes(turn) == {"a": Code.INVALID_ARGUMENTS}
    assert "the function that names them raised SystemExit" in failure(turn, "a").message


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
