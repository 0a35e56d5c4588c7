"""From an answer to outcomes: calls, references, claims, policy, approvals, and what a host does.

Each promise of the kernel about one turn's calls meets a test that tries to break it.
"""

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import anthropic.types
import openai.types.chat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AfterValidator

from laneway import (
    Access,
    Bound,
    Claim,
    Code,
    Decision,
    Effect,
    Engine,
    Failure,
    Happened,
    Limits,
    Policy,
    Rule,
    Run,
    State,
    Success,
    Tool,
    ToolContext,
    Turn,
    tool,
)
from laneway.calls import Reason
from laneway.engine.providers.reply import Asked, Reply
from laneway.errors import (
    EngineClosedError,
    OpenTurnError,
    PayloadError,
    PlanError,
    PolicyError,
    ToolError,
    TurnNotReadyError,
    UnknownApprovalError,
    UnknownCallError,
    UsageError,
)
from laneway.facts import ApprovalAsked, CallEnded, CallQueued, CallStarted, Fact
from laneway.ids import RunId, is_own
from laneway.journal.fold import CallView
from laneway.journal.memory import MemoryJournal, MemoryStore
from laneway.lanes.names import BadResourceError, overlaps
from laneway.policies.modes import Mode
from laneway.policies.questions import Question, Verdict
from laneway.testing.clock import VirtualClock, run_virtual
from laneway.testing.scripted import Block, Do, Log, Raise, Return, Sleep, Stage

ANY = {"type": "object"}
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}

Hosted = Callable[[Run], Awaitable[Any]]
Plan = dict[str, Any]


class Theatre:
    """A stage with a journal of its own, on which one run is entered as often as one likes."""

    def __init__(self, stage: Stage, *tools: Any, wall: float = 0.0, **options: Any) -> None:
        self.stage = stage
        self.tools: Sequence[Any] = tools
        self.journal = MemoryJournal()
        self.options = options
        self.wall = wall

    def enter(self, host: Hosted, *, run: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """Let a host do its work in the run, on virtual time."""

        async def main() -> Any:
            given = {"journal": MemoryStore(self.journal), **self.options, **options}
            engine = Engine(self.tools, clock=self._clock, **given)
            async with engine, engine.run("r", **(run or {})) as entered:
                return await host(entered)

        return run_virtual(main)

    def play(self, reply: Any, **options: Any) -> Turn:
        """Submit one answer, and wait for it."""

        async def host(run: Run) -> Turn:
            return await run.submit(reply)

        turn = self.enter(host, **options)
        assert isinstance(turn, Turn)
        return turn

    def _clock(self) -> VirtualClock:
        clock = self.stage.make_clock()
        clock.advance_wall(self.wall)
        return clock

    @property
    def facts(self) -> list[Fact]:
        """What the journal holds."""
        return [row.fact for row in self.journal.facts.get(RunId("r"), [])]

    def kept(self, kind: type[Fact]) -> list[Any]:
        """The facts of a kind."""
        return [fact for fact in self.facts if isinstance(fact, kind)]


def plan(*calls: Plan) -> Plan:
    return {"calls": [{"arguments": {}, **call} for call in calls]}


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


def states(turn: Turn) -> dict[str, State]:
    return {call.record.provider_id: call.state for call in turn.calls}


def codes(turn: Turn) -> dict[str, Code]:
    failures = {name: one for name, one in turn.outcomes.items() if isinstance(one, Failure)}
    return {name: failure.code for name, failure in failures.items()}


def values(turn: Turn) -> dict[str, Any]:
    return {name: one.value for name, one in turn.outcomes.items() if isinstance(one, Success)}


def failure(turn: Turn, name: str) -> Failure:
    outcome = turn.outcomes[name]
    assert isinstance(outcome, Failure)
    return outcome


def now() -> float:
    return asyncio.get_running_loop().time()


def edges(turn: Turn) -> set[tuple[str, str, str]]:
    names = {call.id: call.record.provider_id for call in turn.calls}
    return {
        (names[source], names[target], str(reason))
        for source, target, reason in turn.graph.edges(data="reason")
    }


def spans(stage: Stage) -> dict[str, tuple[float, float]]:
    """When each call ran, by its argument `n`."""
    return {
        one.arguments["n"]: (one.start, math.inf if one.end is None else one.end)
        for one in stage.executions
    }


# One outcome for each call, in request order


class UnreadableError(Exception):
    """An exception that cannot even be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class OddError(OSError):
    """A connection error whose number is none."""

    errno = []  # type: ignore[assignment]


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
    assert all(one["id"] == name for one, name in zip(turn.messages[1]["results"], names))
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


def echo(stage: Stage, name: str = "echo", **declared: Any) -> Tool[..., Any]:
    return stage.tool(name, Do(lambda given: dict(given)), schema=ANY, **declared)


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
    assert failure(turn, "a").message == (
        "Not started, because f of an earlier turn ended FAILED."
    )
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


def test_a_ring_of_thousands_is_told_without_naming_all_of_it_to_each() -> None:
    stage = Stage()
    count = 2000
    ring = [
        {"id": f"c{n}", "tool": "echo", "needs": [f"c{(n + 1) % count}"]} for n in range(count)
    ]

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
            "path (echo): argument 'x' refers to ${ok.a..b}, whose path cannot be read: write "
            ".field or [index].",
            "bad (strict): strict was not run, because its arguments do not fit: m is unknown.",
            "ok_8 (echo): An earlier call of the plan has the id 'ok' too, so a reference to it "
            "could mean either.",
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
        with pytest.raises(PlanError, match="1 fault; nothing of it was run:\n  - a .echo.: Not"):
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

    written = {"effect": Effect.WRITE, "claims": claims_of, "schema": ANY}
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
        theatre.journal = crashed(theatre.journal)

    theatre.enter(first)
    resumed = theatre.enter(lambda run: run.finish())

    assert set(states(resumed).values()) == {State.SUCCEEDED}
    by_call = {call: {key for one, _, key in keys if one == call} for call, _, _ in keys}
    assert [(call, attempt) for call, attempt, _ in keys].count(("t1.3", 2)) == 1
    assert all(len(found) == 1 for found in by_call.values())
    assert len({key for _, _, key in keys}) == 3
    assert all(len(key) == 64 for _, _, key in keys)
    assert [call.record.arguments for call in resumed.calls] == [{"n": [1]}] * 3


def crashed(journal: MemoryJournal) -> MemoryJournal:
    """The facts as a crash would leave them now."""
    copy = MemoryJournal()
    copy.facts = {run: list(rows) for run, rows in journal.facts.items()}
    return copy


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
    theatre = Theatre(stage, stage.tool("put", Return("x"), effect=Effect.WRITE))
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
    put = {"effect": Effect.WRITE, "schema": ANY}
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
        theatre.journal = crashed(theatre.journal)

    theatre.enter(first)
    resumed = theatre.enter(lambda run: run.finish(), run={"mode": "plan"})

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
        theatre.journal = crashed(theatre.journal)

    theatre.enter(first)
    asks = Policy([Rule(Decision.ASK, tools=["slow"], arguments={"n": "b"}, name="careful")])
    resumed = theatre.enter(lambda run: run.finish(), policy=asks)

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
    theatre = Theatre(
        stage, echo(stage), stage.tool("bad", Log("bad"), Return(1)), policy=Moody()
    )

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
        names = {
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
        run.approvals[0].arguments["n"] = "something else"
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
        with pytest.raises(UsageError, match="approval t1.1.a1 is stale"):
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
    theatre.wall = 600.0
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
    theatre.wall = 3600.0
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

    ran = theatre.enter(host)

    assert ran["before"] == (0, 1)
    assert ran["ask"] == (10, 11)
    assert ran["after"] == ((11, 12) if order == "keep" else (1, 2))
    assert ran["needs"] == (11, 12)
    assert ran["free"] == (0, 1)


@pytest.mark.parametrize("order", ["keep", "overtake"])
def test_the_order_of_conflicts_with_a_call_that_asks_survives_a_restart(order: str) -> None:
    stage = Stage()
    tools, calls = conflicting(stage)
    theatre = Theatre(stage, *tools, approval_order=order)

    async def first(run: Run) -> None:
        await run.submit(calls, wait=False)
        await asyncio.sleep(1.5)
        theatre.journal = crashed(theatre.journal)

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
    assert states(turn) == {"s": State.SUCCEEDED} | dict.fromkeys(
        ["now", "later"], State.CANCELLED
    )
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
        ({"call_seconds": -1}, "Limits.call_seconds is -1; give a number of 0 or more, or math."),
        ({"turn_seconds": math.nan}, "Limits.turn_seconds is nan; give a number of 0 or more, o"),
        ({"grace_seconds": "1"}, "Limits.grace_seconds is '1'; give a number of 0 or more, or m"),
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

    assert values(Theatre(stage, slow, limits=lifted).play(calls)) == {"a": "s"}
    for limits in none:
        assert codes(Theatre(stage, slow, limits=limits).play(calls)) == {"a": Code.TIMEOUT}


def test_outside_of_its_engine_a_run_is_closed_and_says_how_to_open_it() -> None:
    stage = Stage()
    engine = Engine([stage.tool("ok", Sleep(1), Return(1))], clock=stage.make_clock)
    calls = plan({"id": "a", "tool": "ok"})

    async def main() -> None:
        for look in (lambda: engine.status(), lambda: engine.services):
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
        turn = await run.submit(
            plan(asks("a"), asks("b"), {"id": "c", "tool": "slow"}), key=half, wait=False
        )
        await run.say(half)
        await run.approve("a", by=half, reason=half)
        await run.deny("b", by=half, reason=half)
        await run.cancel("c", reason=half)
        await turn.wait()
        assert await run.submit(plan(asks("z")), key=half) is not turn
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
            with pytest.raises(PayloadError, match="is no message. Say a text, or a message with"):
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

    theatre.enter(host)

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

    theatre.enter(host)

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
        assert await run.finish() is None
        assert run.open_turn is None
        assert [one.number for one in run.turns] == [1]
        assert run.id == "r"

    theatre.enter(host)


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
        with pytest.raises(UnknownCallError, match=r"has no call 'x \(UNCERTAIN\)'"):
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


def test_definitions_are_written_for_each_provider_and_no_other() -> None:
    async def look(path: str, deep: bool = False) -> str:
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
        with pytest.raises(UsageError, match=r"for 'gemini' \(known: openai-chat, anthropic-mess"):
            asked.definitions("gemini")


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
