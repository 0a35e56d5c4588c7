"""Re-execution: the real scheduler on recorded turns, with recorded results and no tool touched."""

import asyncio
import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import pytest

from laneway import (
    Decision,
    Effect,
    Limits,
    Policy,
    Rule,
    Run,
    Tool,
    plan_tool,
)
from laneway.engine.probing import Found
from laneway.engine.reexecution import Divergence, Reexecution, reexecute
from laneway.facts import (
    ApprovalAsked,
    AttemptEnded,
    CallEnded,
    CallJoined,
    CallQueued,
    CallStarted,
    Row,
)
from laneway.testing.scripted import Block, Do, Raise, Return, Sleep, Stage
from laneway.testing.theatre import RUN, Theatre, plan

ANY = {"type": "object"}
BUILDERS: dict[str, Callable[[], Theatre]] = {}


def again(rows: Theatre | Sequence[Row], **options: Any) -> Reexecution:
    found = rows.journal.facts[RUN] if isinstance(rows, Theatre) else rows
    return asyncio.run(reexecute(found, **options))


def parted(found: Reexecution) -> Divergence:
    assert found.divergence is not None
    return found.divergence


def golden(build: Callable[[], Theatre]) -> Callable[[], Theatre]:
    BUILDERS[build.__name__.replace("_", " ")] = build
    return build


def call(name: str, tool: str, /, **said: Any) -> dict[str, Any]:
    words = ("needs", "after")
    return {
        "id": name,
        "tool": tool,
        "arguments": {key: value for key, value in said.items() if key not in words},
        **{key: value for key, value in said.items() if key in words},
    }


def files(stage: Stage, seconds: float = 1) -> list[Tool[..., Any]]:
    return [
        stage.tool("read", Sleep(seconds), Return("of {path}"), claims=["read file:{path}"]),
        stage.tool(
            "write",
            Sleep(seconds),
            Return("ok"),
            effect=Effect.WRITE,
            claims=["write file:{path}"],
        ),
    ]


def mail(stage: Stage, name: str = "mail", **said: Any) -> Tool[..., Any]:
    said.setdefault("claims", ["lane:mail"])
    return stage.tool(name, Sleep(1), Return("sent"), effect=Effect.EXTERNAL, schema=ANY, **said)


def edits() -> dict[str, Any]:
    return plan(
        call("a", "read", path="x"),
        call("b", "write", path="x"),
        call("c", "write", path="x"),
        call("d", "read", path="y", after=["b"]),
    )


# The golden set


@golden
def a_plan_with_conflicts_and_edges() -> Theatre:
    stage = Stage()
    theatre = Theatre(stage, *files(stage))
    theatre.play(edits())
    return theatre


@golden
def results_that_are_referred_to() -> Theatre:
    stage = Stage()
    theatre = Theatre(stage, *files(stage), stage.tool("find", Return({"at": ["x", "y"]})))
    theatre.play(
        plan(
            call("f", "find"),
            call("r", "read", path="${f.at[0]}"),
            call("w", "write", path={"$from": "f", "path": "at[1]"}),
            call("bad", "read", path="${f.nowhere}"),
            call("later", "write", path="z", needs=["bad"]),
        )
    )
    return theatre


@golden
def results_of_an_earlier_turn() -> Theatre:
    stage = Stage()
    theatre = Theatre(stage, *files(stage), stage.tool("find", Return("x")), mail(stage))

    async def host(run: Run) -> None:
        await run.submit(plan(call("f", "find")))
        await run.submit(plan(call("r", "read", path="${f}"), call("m", "mail", to="a")))
        await run.submit(plan(call("again", "write", path="${r}")))

    theatre.enter(host)
    return theatre


@golden
def faults_at_admission() -> Theatre:
    stage = Stage()
    strict = stage.tool(
        "strict",
        Return("ok"),
        schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    )
    theatre = Theatre(stage, *files(stage), strict)
    theatre.play(
        plan(
            call("unknown", "nope"),
            call("invalid", "strict", n="many"),
            call("good", "strict", n=3),
            call("one", "read", path="a", needs=["two"]),
            call("two", "read", path="a", needs=["one"]),
            call("dangling", "read", path="a", needs=["nobody"]),
            call("of", "write", path="b", needs=["invalid"]),
            call("resource", "read", path=""),
        )
    )
    return theatre


@golden
def a_model_s_own_turn() -> Theatre:
    stage = Stage()
    theatre = Theatre(stage, *files(stage))
    calls = [
        {"id": "call_1", "function": {"name": "read", "arguments": '{"path": "x"}'}},
        {"id": "call_1", "function": {"name": "write", "arguments": '{"path": "x"}'}},
        {"id": "call_3", "function": {"name": "write", "arguments": '{"path": '}},
        {"id": "call_4", "function": {"name": "", "arguments": "{}"}},
        {"id": "call_5", "function": {"name": "read", "arguments": '{"path": "$${call_1}"}'}},
        {"id": "call_6", "function": {"name": "read", "arguments": '{"path": "${HOME}"}'}},
    ]
    theatre.play({"role": "assistant", "content": None, "tool_calls": calls})
    return theatre


@golden
def a_reply_that_was_cut_off() -> Theatre:
    stage = Stage()
    theatre = Theatre(stage, *files(stage))
    calls = [
        {"id": "c1", "function": {"name": "read", "arguments": '{"path": "x"}'}},
        {"id": "c2", "function": {"name": "write", "arguments": "{}"}},
    ]
    message = {"role": "assistant", "tool_calls": calls}
    theatre.play({"id": "r1", "choices": [{"message": message, "finish_reason": "length"}]})
    return theatre


@golden
def blocks_of_another_provider() -> Theatre:
    stage = Stage()
    theatre = Theatre(stage, *files(stage))
    blocks = [
        {"type": "tool_use", "id": "toolu_1", "name": "write", "input": {"path": "x"}},
        {"type": "tool_use", "id": "toolu_2", "name": "write", "input": {"path": "x"}},
    ]
    theatre.play({"type": "message", "id": "msg", "role": "assistant", "content": blocks})
    return theatre


@golden
def a_call_written_twice_under_one_id_of_a_plan() -> Theatre:
    stage = Stage()
    theatre = Theatre(stage, *files(stage))
    theatre.play(plan(call("a", "read", path="x"), call("a", "write", path="x")))
    return theatre


@golden
def escapes_and_literals() -> Theatre:
    stage = Stage()
    shell = stage.tool("shell", Return("ok"), schema=ANY, literal=("command",), claims=["lane:s"])
    put = stage.tool("put", Return("ok"), effect=Effect.WRITE, claims=["write db:{t}"])
    theatre = Theatre(stage, shell, put)
    theatre.play(
        plan(
            call("a", "put", t="x"),
            call("b", "put", t="$${a}"),
            call("c", "shell", command="echo ${a}", n="${b}"),
        )
    )
    return theatre


@golden
def an_approval_that_is_granted_and_one_that_is_refused() -> Theatre:
    stage = Stage()
    theatre = Theatre(stage, mail(stage, approval=True), *files(stage))

    async def host(run: Run) -> None:
        reply = plan(
            call("m", "mail", to="a"),
            call("n", "mail", to="b"),
            call("w", "write", path="x"),
            call("x", "read", path="x", needs=["n"]),
        )
        await run.submit(reply, wait=False)
        await asyncio.sleep(5)
        await run.deny("n", by="ann", reason="no")
        await asyncio.sleep(5)
        await run.approve("m", by="ann")
        await run.finish()

    theatre.enter(host)
    return theatre


@golden
def an_approval_that_expires() -> Theatre:
    stage = Stage()
    theatre = Theatre(stage, mail(stage, approval=True), limits=Limits(approval_seconds=10))
    theatre.play(plan(call("m", "mail", to="a"), call("n", "mail", to="b", after=["m"])))
    return theatre


@golden
def conflicts_that_let_pass_while_a_human_is_asked() -> Theatre:
    stage = Stage()
    asks = stage.tool(
        "put", Return("ok"), effect=Effect.WRITE, claims=["write file:{path}"], approval=True
    )
    theatre = Theatre(stage, *files(stage), asks, approval_order="overtake")

    async def host(run: Run) -> None:
        await run.submit(plan(call("p", "put", path="x"), call("r", "read", path="x")), wait=False)
        await asyncio.sleep(5)
        await run.approve("p")
        await run.finish()

    theatre.enter(host)
    return theatre


@golden
def a_turn_that_is_closed_before_humans_have_answered() -> Theatre:
    stage = Stage()
    theatre = Theatre(stage, mail(stage, approval=True), *files(stage))

    async def host(run: Run) -> None:
        reply = plan(
            call("m", "mail", to="a"),
            call("r", "read", path="x", after=["m"]),
            call("n", "mail", to="b", after=["r"]),
        )
        turn = await run.submit(reply, wait=False)
        await turn.close()

    theatre.enter(host)
    return theatre


@golden
def attempts_that_are_repeated() -> Theatre:
    stage = Stage()

    def third_time(arguments: Any) -> str:
        if stage.entered["flaky"] < 3:
            raise ConnectionError("gone")
        return "ok"

    flaky = stage.tool("flaky", Do(third_time), retries=3, claims=["lane:f"])
    hopeless = stage.tool("hopeless", Raise(TimeoutError("slow")), retries=1)
    theatre = Theatre(stage, flaky, hopeless)
    theatre.play(
        plan(
            call("a", "flaky"),
            call("b", "hopeless"),
            call("c", "flaky", after=["b"]),
            call("d", "flaky", needs=["b"]),
        )
    )
    return theatre


@golden
def timeouts_also_of_what_does_not_stop() -> Theatre:
    stage = Stage()

    async def stubborn(_: Any) -> str:
        for _ in range(2):
            try:
                await asyncio.sleep(50)
            except asyncio.CancelledError:
                await asyncio.sleep(20)
        return "late"

    theatre = Theatre(
        stage,
        stage.tool("slow", Sleep(100), timeout=2, claims=["lane:l"]),
        stage.tool("deaf", Do(stubborn), timeout=2, claims=["lane:l"], effect=Effect.WRITE),
        stage.tool("thread", Block(60), Return("x"), sync=True, timeout=2, claims=["lane:l"]),
    )

    async def host(run: Run) -> None:
        await run.submit(plan(call("a", "slow"), call("b", "deaf"), call("c", "thread")))
        await asyncio.sleep(200)

    theatre.enter(host)
    return theatre


@golden
def a_body_that_answers_although_it_was_told_to_stop() -> Theatre:
    stage = Stage()

    async def polite(_: Any) -> str:
        try:
            await asyncio.sleep(50)
        except asyncio.CancelledError:
            return "nevertheless"
        return "never"

    theatre = Theatre(stage, stage.tool("polite", Do(polite), timeout=2))
    theatre.play(plan(call("a", "polite"), call("b", "polite", after=["a"])))
    return theatre


@golden
def a_turn_that_takes_too_long() -> Theatre:
    stage = Stage()
    theatre = Theatre(
        stage,
        mail(stage),
        *files(stage, 8),
        limits=Limits(turn_seconds=10),
    )
    theatre.play(
        plan(
            call("a", "write", path="x"),
            call("b", "write", path="x"),
            call("c", "write", path="x"),
            call("d", "mail", needs=["c"]),
        )
    )
    return theatre


@golden
def calls_that_are_cancelled_one_by_one() -> Theatre:
    stage = Stage()
    theatre = Theatre(stage, *files(stage, 10))

    async def host(run: Run) -> None:
        await run.submit(edits(), wait=False)
        await asyncio.sleep(1)
        await run.cancel("b")
        await run.cancel("a")
        await run.finish()

    theatre.enter(host)
    return theatre


@golden
def a_run_of_which_all_is_cancelled() -> Theatre:
    stage = Stage()
    theatre = Theatre(stage, *files(stage, 10), mail(stage, approval=True))

    async def host(run: Run) -> None:
        reply = edits()
        reply["calls"].append(call("m", "mail"))
        await run.submit(reply, wait=False)
        await asyncio.sleep(1)
        await run.cancel()
        await run.finish()

    theatre.enter(host)
    return theatre


@golden
def a_run_that_is_left_and_taken_up() -> Theatre:
    stage = Stage()
    theatre = Theatre(stage, *files(stage, 10), mail(stage, approval=True))

    async def host(run: Run) -> None:
        reply = edits()
        reply["calls"].append(call("m", "mail"))
        await run.submit(reply, wait=False)
        await asyncio.sleep(1)

    theatre.enter(host)

    async def second(run: Run) -> None:
        waiting = asyncio.create_task(run.finish())
        await asyncio.sleep(1)
        await run.approve("m")
        await waiting

    theatre.enter(second)
    return theatre


@golden
def calls_that_are_the_same() -> Theatre:
    stage = Stage()

    def second_time(_: Any) -> str:
        if stage.entered["work"] == 1:
            raise ValueError("boom")
        return "ok"

    work = stage.tool("work", Sleep(1), Do(second_time), effect=Effect.PURE, schema=ANY)
    theatre = Theatre(stage, work)
    theatre.play(plan(*(call(name, "work", n=1) for name in "abc"), call("d", "work", n=2)))
    return theatre


@golden
def plans_in_one_call() -> Theatre:
    stage = Stage()
    theatre = Theatre(stage, *files(stage), plan_tool(), plan_tool("loose", strict=False))

    async def host(run: Run) -> None:
        inner = [call("a", "read", path="x"), call("b", "write", path="${a}", needs=["a"])]
        faulty = [call("a", "nope"), call("b", "read", path="x")]
        await run.submit(
            plan(
                call("p", "plan", calls=inner),
                call("q", "plan", calls=faulty),
                call("l", "loose", calls=faulty),
                call("w", "write", path="x"),
                call("u", "plan", calls=3),
                call("d", "plan", calls=inner) | {"needs": ["nobody"]},
            )
        )
        await run.submit(plan(call("r", "read", path="${p.results.a.value}")))

    theatre.enter(host)
    return theatre


@golden
def an_unknown_end_that_is_settled() -> Theatre:
    stage = Stage()
    lose = stage.tool("lose", Raise(ConnectionError("x")), effect=Effect.EXTERNAL, claims=[])
    theatre = Theatre(stage, lose, *files(stage))

    async def host(run: Run) -> None:
        turn = await run.submit(
            plan(
                call("a", "lose"),
                call("b", "read", path="x", needs=["a"]),
                call("c", "read", path="y", after=["a"]),
            ),
            wait=False,
        )
        await turn.wait()
        await run.settle("a", value=7, by="ann")
        await run.finish()

    theatre.enter(host)
    return theatre


@golden
def an_unknown_end_that_stays_unknown() -> Theatre:
    stage = Stage()
    lose = stage.tool("lose", Raise(ConnectionError("x")), effect=Effect.EXTERNAL, claims=[])
    theatre = Theatre(stage, lose, *files(stage))

    async def host(run: Run) -> None:
        await run.submit(
            plan(
                call("a", "lose"),
                call("b", "read", path="x", needs=["a"]),
                call("c", "read", path="y", after=["b"]),
            )
        )
        await run.settle("a", failure="it did not arrive", by="ann")
        await run.submit(plan(call("z", "read", path="x")))

    theatre.enter(host)
    return theatre


@golden
def an_unknown_end_that_a_probe_finds_out() -> Theatre:
    stage = Stage()
    answers = [Found.unknown("later"), Found.happened({"id": 7}), Found.nothing()]

    async def ask() -> Found:
        return answers.pop()

    lose = stage.tool(
        "lose", Raise(ConnectionError("x")), effect=Effect.EXTERNAL, claims=[], reconcile=ask
    )
    theatre = Theatre(stage, lose, *files(stage))
    theatre.play(
        plan(call("a", "lose"), call("b", "read", path="x", needs=["a"]), call("c", "lose"))
    )
    return theatre


@golden
def a_crash_in_the_midst_of_bodies() -> Theatre:
    stage = Stage()
    theatre = Theatre(stage, *files(stage, 10), mail(stage))

    async def host(run: Run) -> None:
        await run.submit(
            plan(
                call("r", "read", path="x"),
                call("m", "mail"),
                call("n", "mail", after=["m"]),
                call("w", "write", path="x"),
                call("z", "read", path="z", needs=["m"]),
            ),
            wait=False,
        )
        await asyncio.sleep(0.5)
        theatre.crash()

    theatre.enter(host)
    theatre.finish()
    return theatre


@golden
def a_crash_while_a_human_is_asked_and_another_while_it_goes_on() -> Theatre:
    stage = Stage()
    theatre = Theatre(stage, mail(stage, approval=True), *files(stage, 5))

    async def first(run: Run) -> None:
        await run.submit(plan(call("m", "mail"), call("w", "write", path="x")), wait=False)
        await asyncio.sleep(1)
        theatre.crash()

    async def second(run: Run) -> None:
        await run.approve("m", by="ann")
        waiting = asyncio.ensure_future(run.finish())
        await asyncio.sleep(0.5)
        theatre.crash()
        waiting.cancel()
        await asyncio.wait([waiting])

    theatre.enter(first)
    theatre.enter(second)
    theatre.finish()
    return theatre


@golden
def tools_that_changed_between_two_drivers() -> Theatre:
    stage = Stage()
    theatre = Theatre(stage, mail(stage, approval=True))

    async def first(run: Run) -> None:
        await run.submit(plan(call("m", "mail"), call("n", "mail")), wait=False)
        await asyncio.sleep(1)
        await run.approve("m")
        theatre.crash()

    theatre.enter(first)
    theatre.tools = [mail(stage, approval=True, version="2")]
    theatre.enter(lambda run: run.cancel("n"))
    theatre.finish()
    return theatre


@golden
def tools_that_forbid_a_repeat_by_now() -> Theatre:
    def pay(stage: Stage, **said: Any) -> Tool[..., Any]:
        return stage.tool("pay", Sleep(5), Return("ok"), effect=Effect.EXTERNAL, claims=[], **said)

    stage = Stage()
    theatre = Theatre(stage, pay(stage, idempotent=True))

    async def first(run: Run) -> None:
        await run.submit(plan(call("p", "pay"), call("q", "pay", after=["p"])), wait=False)
        await asyncio.sleep(1)
        theatre.crash()

    theatre.enter(first)
    theatre.tools = [pay(stage)]
    theatre.finish()
    return theatre


@golden
def secrets_that_are_not_recorded() -> Theatre:
    stage = Stage()
    fetch = stage.tool(
        "fetch", Return({"token": "s3cret", "n": 1}), schema=ANY, secret=("return.token",)
    )
    use = stage.tool(
        "use", Return("ok"), effect=Effect.EXTERNAL, schema=ANY, secret=("pin",), approval=True
    )
    same = stage.tool(
        "same", Sleep(1), Return("x"), effect=Effect.PURE, schema=ANY, secret=("pin",)
    )
    theatre = Theatre(stage, fetch, use, same)

    async def host(run: Run) -> None:
        await run.submit(
            plan(
                call("f", "fetch"),
                call("u", "use", pin="1234", header="Bearer ${f.token}"),
                call("a", "same", pin="1"),
                call("b", "same", pin="2"),
            ),
            wait=False,
        )
        await asyncio.sleep(5)
        await run.approve("u")
        await run.finish()

    theatre.enter(host)
    return theatre


@golden
def probes_that_are_asked_by_a_later_driver() -> Theatre:
    stage = Stage()
    answers = {1: Found.unknown("later"), 2: Found.happened({"id": 7}), 3: Found.nothing()}

    async def ask(n: int) -> Found:
        return answers.get(n, Found.happened(object()))

    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    pay = stage.tool(
        "pay", Sleep(5), effect=Effect.EXTERNAL, claims=[], reconcile=ask, schema=schema
    )
    theatre = Theatre(stage, pay, *files(stage))

    async def first(run: Run) -> None:
        calls = [call(f"p{n}", "pay", n=n) for n in range(1, 5)]
        needs = [call(f"r{n}", "read", path="x", needs=[f"p{n}"]) for n in range(1, 5)]
        await run.submit(plan(*calls, *needs), wait=False)
        await asyncio.sleep(1)
        theatre.crash()

    theatre.enter(first)
    theatre.finish()
    return theatre


@golden
def a_probe_that_is_cancelled() -> Theatre:
    stage = Stage()

    async def ask() -> Found:
        await asyncio.sleep(20)
        return Found.nothing()

    pay = stage.tool("pay", Sleep(5), effect=Effect.EXTERNAL, claims=[], reconcile=ask)
    theatre = Theatre(stage, pay, *files(stage))

    async def first(run: Run) -> None:
        later = call("r", "read", path="x", after=["p"])
        await run.submit(plan(call("p", "pay"), call("q", "pay"), later), wait=False)
        await asyncio.sleep(1)
        theatre.crash()

    async def second(run: Run) -> None:
        waiting = asyncio.ensure_future(run.finish())
        await asyncio.sleep(1)
        await run.cancel()
        await waiting

    theatre.enter(first)
    theatre.enter(second)
    return theatre


@golden
def a_serial_run() -> Theatre:
    stage = Stage()
    theatre = Theatre(stage, *files(stage))
    theatre.enter(lambda run: run.submit(edits()), run={"parallel": False})
    return theatre


@golden
def tools_of_which_nothing_is_said() -> Theatre:
    async def mystery(n: int) -> int:
        return n

    stage = Stage()
    theatre = Theatre(stage, mystery, *files(stage))
    theatre.play(
        plan(call("a", "mystery", n=1), call("r", "read", path="x"), call("b", "mystery", n=2))
    )
    return theatre


@golden
def effects_that_follow_the_arguments() -> Theatre:
    stage = Stage()

    def reach(arguments: Any) -> Effect:
        return Effect.READ if arguments.get("dry") else Effect.WRITE

    tool = stage.tool(
        "apply", Return("ok"), effect=Effect.WRITE, effect_of=reach, schema=ANY, claims=[]
    )
    theatre = Theatre(stage, tool)
    theatre.play(plan(call("a", "apply", dry=True), call("b", "apply", dry=False)))
    return theatre


@golden
def claims_that_a_function_names() -> Theatre:
    stage = Stage()
    tool = stage.tool(
        "touch",
        Sleep(1),
        Return("x"),
        effect=Effect.WRITE,
        schema=ANY,
        claims=lambda arguments: [f"write db:{arguments['t']}"],
        claims_at_most=["write db:"],
    )
    theatre = Theatre(stage, tool)
    theatre.play(plan(call("a", "touch", t="x"), call("b", "touch", t="${a}"), call("c", "touch")))
    return theatre


@golden
def a_wide_lane_in_which_the_longest_path_goes_first() -> Theatre:
    stage = Stage()
    tools = [
        stage.tool(f"w{n}", Sleep(n), Return(n), schema=ANY, claims=["lane:wide"])
        for n in range(1, 6)
    ]
    theatre = Theatre(stage, *tools, lanes={"wide": 2})

    async def host(run: Run) -> None:
        for round_ in range(2):
            names = [f"{round_}{n}" for n in range(1, 6)]
            calls = [call(name, f"w{n}") for n, name in enumerate(names, 1)]
            await run.submit(plan(*calls, call(f"{round_}end", "w1", needs=[names[0]])))

    theatre.enter(host)
    return theatre


@golden
def an_interrupt_out_of_a_tool() -> Theatre:
    stage = Stage()
    theatre = Theatre(
        stage, stage.tool("stop", Sleep(1), Raise(KeyboardInterrupt())), *files(stage, 5)
    )
    with pytest.raises(KeyboardInterrupt):
        theatre.play(plan(call("s", "stop"), call("r", "read", path="x")))
    return theatre


@golden
def rules_of_a_policy_and_a_mode() -> Theatre:
    stage = Stage()
    policy = Policy(
        [
            Rule(Decision.DENY, tools=["mail"], arguments={"to": "boss"}, name="no-boss"),
            Rule(Decision.ALLOW, tools=["read"], name="reading"),
            Rule(Decision.DENY, claims=["write file:**/secret"]),
        ]
    )
    theatre = Theatre(stage, *files(stage), mail(stage), policy=policy)

    async def host(run: Run) -> None:
        await run.submit(
            plan(
                call("m", "mail", to="boss"),
                call("n", "mail", to="ann"),
                call("r", "read", path="x"),
                call("w", "write", path="secret", needs=["n"]),
            )
        )

    theatre.enter(host)
    theatre.enter(lambda run: run.submit(edits()), run={"mode": "plan"})
    return theatre


def unenterable(tools: Iterable[Any]) -> list[Any]:
    async def body(**_: Any) -> None:
        raise AssertionError("a body was entered")

    found = []
    for tool in tools:
        one = copy.copy(tool if isinstance(tool, Tool) else Tool.of(tool))
        one.function = body
        found.append(one)
    return found


def test_the_golden_set_is_large() -> None:
    assert len(BUILDERS) >= 25


@pytest.mark.parametrize("name", BUILDERS)
def test_a_recorded_run_is_reproduced_from_its_records_alone(name: str) -> None:
    theatre = BUILDERS[name]()
    entered = dict(theatre.stage.entered)

    found = again(theatre)

    assert found.same, str(found)
    assert found.decisions
    assert not found.earlier
    assert dict(theatre.stage.entered) == entered


@pytest.mark.parametrize(
    "name",
    sorted(
        BUILDERS.keys()
        - {"tools that changed between two drivers", "tools that forbid a repeat by now"}
    ),
)
def test_a_recorded_run_is_reproduced_with_the_host_s_own_tools_whose_bodies_raise(
    name: str,
) -> None:
    theatre = BUILDERS[name]()
    entered = dict(theatre.stage.entered)

    found = again(theatre, tools=unenterable(theatre.tools), policy=theatre.options.get("policy"))

    assert found.same, str(found)
    assert dict(theatre.stage.entered) == entered


@pytest.mark.parametrize("name", BUILDERS)
def test_every_recorded_start_end_and_queue_that_is_taken_out_is_found(name: str) -> None:
    rows = BUILDERS[name]().journal.facts[RUN]
    kinds = (CallStarted, CallEnded, CallQueued, ApprovalAsked, AttemptEnded, CallJoined)
    last = rows[-1].seq
    taken = [row for row in rows if isinstance(row.fact, kinds) and row.seq < last]

    for row in taken:
        rest = [one for one in rows if one is not row]
        found = again(renumbered(rest))

        # What a record may lack at the end of a driver's time is lost with a crash.
        assert not found.same or is_at_an_end(rows, row.seq), (row, str(found))


def renumbered(rows: Sequence[Row]) -> list[Row]:
    return [msgspec.structs.replace(row, seq=at) for at, row in enumerate(rows, 1)]


def is_at_an_end(rows: Sequence[Row], seq: int) -> bool:
    """Whether only what follows by itself stands between a fact and the end of a driver's time."""
    following = (CallQueued, CallStarted, ApprovalAsked, CallJoined)
    for row in rows[seq:]:
        if type(row.fact).__name__ == "RunTaken":
            return True
        if not isinstance(row.fact, following):
            return False
    return True
