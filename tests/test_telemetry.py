"""What a run tells OpenTelemetry while it runs: every span, link, event and metric."""

import asyncio
import contextvars
import gc
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind

from laneway import (
    Budgets,
    Code,
    Decision,
    Effect,
    Engine,
    Found,
    Happened,
    Loops,
    Policy,
    Rule,
    Run,
    Secret,
    State,
    Telemetry,
    Tool,
    ToolContext,
    ToolFailed,
    continued,
    plan_tool,
    tool,
    trace_context,
)
from laneway.engine.descent import entered_as
from laneway.engine.telemetry.carrying import environment
from laneway.engine.telemetry.courses import says_nothing
from laneway.engine.telemetry.labels import OTHER, Labels
from laneway.engine.telemetry.run_listener import RunListener
from laneway.errors import UsageError
from laneway.facts import RunOpened, RunTaken
from laneway.journal.export.spans import spans as exported
from laneway.journal.fork import fork
from laneway.journal.sqlite import SqliteStore
from laneway.journal.timeline import timeline
from laneway.testing.clock import VirtualClock, run_virtual
from laneway.testing.ears import Ears, context_of, events, seconds, told
from laneway.testing.null import NullStore
from laneway.testing.scripted import Block, Do, Raise, Return, Sleep, Stage
from laneway.testing.theatre import RUN, Theatre, plan, states

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT.parent / "shared" / "data" / "otel_execute_tool.json"


def call(name: str, tool_name: str, /, **more: Any) -> dict[str, Any]:
    return {"id": name, "tool": tool_name, **more}


def failing_once() -> Do:
    tries: list[int] = []

    def body(_: Any) -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("the wire broke")
        return "there"

    return Do(body)


def unavailable(_: Any) -> None:
    raise ToolFailed("nobody answers", happened=Happened.NOTHING, code=Code.UNAVAILABLE)


async def nest(context: ToolContext) -> Any:
    return await context.invoke("found")


def mixed() -> tuple[Ears, Theatre]:
    """One run in which everything happens that a call can come to."""
    ears, stage = Ears(), Stage()
    policy = Policy(
        [
            Rule(Decision.DENY, tools=["forbidden"], name="never"),
            Rule(Decision.ASK, tools=["asks*"], name="ask"),
        ]
    )
    theatre = Theatre(
        stage,
        stage.tool("found", Sleep(0.5), Return([1])),
        stage.tool("empty", Return({"rows": [], "total": 0})),
        stage.tool("gone", Do(unavailable)),
        stage.tool("breaks", Sleep(1), Raise(ValueError("bad luck")), effect=Effect.WRITE),
        stage.tool("flaky", Sleep(1), failing_once(), retries=2),
        stage.tool("slow", Sleep(100), timeout=5),
        stage.tool("forbidden", Return(1)),
        stage.tool("asks_yes", Return("done"), effect=Effect.WRITE),
        stage.tool("asks_no", Return("done"), effect=Effect.WRITE),
        stage.tool("endless", Sleep(1000), timeout=5000),
        stage.tool("queued", Sleep(2), Return(1), effect=Effect.WRITE, claims=["lane:one"]),
        Tool.of(nest, effect=Effect.READ, claims=[]),
        policy=policy,
        telemetry=ears.telemetry(),
        budgets=Budgets(tokens=1000, seconds=100_000),
    )
    reply = plan(
        call("found", "found"),
        call("empty", "empty"),
        call("gone", "gone"),
        call("breaks", "breaks"),
        call("skipped", "found", needs=["breaks"]),
        call("flaky", "flaky"),
        call("slow", "slow"),
        call("forbidden", "forbidden"),
        call("yes", "asks_yes", after=["found"]),
        call("no", "asks_no"),
        call("endless", "endless"),
        call("first", "queued"),
        call("second", "queued"),
        call("nest", "nest"),
        call("unknown", "no_such_tool"),
    )

    async def host(run: Run) -> Any:
        turn = await run.submit(reply, wait=False)
        await asyncio.sleep(3)
        await run.deny("t1.10.a1", by="ann")
        await run.approve("t1.9.a1", by="ann")
        await asyncio.sleep(60)
        await run.cancel("endless", reason="enough")
        await turn.wait()
        await turn.close()
        await run.submit(
            {
                "role": "assistant",
                "content": [],
                "usage": {"input_tokens": 700, "output_tokens": 120},
                "id": "m",
                "type": "message",
            }
        )
        return turn

    turn = theatre.enter(host, run={"task_class": "demo"})
    assert set(states(turn).values()) == {
        State.SUCCEEDED,
        State.FAILED,
        State.SKIPPED,
        State.TIMED_OUT,
        State.DENIED,
        State.CANCELLED,
    }
    return ears, theatre


# A mixed run

TREE = """\
✓ invoke_workflow demo
  ✓ turn
    ✓ execute_tool found SUCCEEDED
      ✓ attempt
    ✓ execute_tool empty SUCCEEDED
      ✓ attempt
    ✗ execute_tool gone FAILED
      ✗ attempt
    ✗ execute_tool breaks FAILED
      ✗ attempt
    ✗ execute_tool found SKIPPED
    ✓ execute_tool flaky SUCCEEDED
      ✗ attempt
      ✓ attempt
    ✗ execute_tool slow TIMED_OUT
      ✗ attempt
    ✗ execute_tool forbidden DENIED
    ✓ execute_tool asks_yes SUCCEEDED
      ✓ attempt
    ✗ execute_tool asks_no DENIED
    ✗ execute_tool endless CANCELLED
      ✗ attempt
    ✓ execute_tool queued SUCCEEDED
      ✓ attempt
    ✓ execute_tool queued SUCCEEDED
      ✓ attempt
    ✓ execute_tool nest SUCCEEDED
      ✓ attempt
        ✓ invoke_workflow
          ✓ turn
            ✓ execute_tool found SUCCEEDED
              ✓ attempt
    ✗ execute_tool no_such_tool FAILED
  ✓ turn"""


def test_every_span_of_a_mixed_run_stands_where_it_belongs() -> None:
    ears, _ = mixed()

    assert ears.tree() == TREE.splitlines()
    assert {span.kind for span in ears.spans} == {SpanKind.INTERNAL}


PLACE = "{gen_ai.tool.name}"


def test_a_call_tells_what_the_conventions_ask_for() -> None:
    if not DATA.exists():
        pytest.skip("the shared data is not there")
    asked = json.loads(DATA.read_text(encoding="utf-8"))["span"]
    levels = asked["attributes"]
    ears, _ = mixed()

    for span in ears.spans:
        given_ = told(span)
        if given_.get("gen_ai.operation.name") != "execute_tool":
            continue
        assert span.name == asked["name"].replace(PLACE, given_["gen_ai.tool.name"])
        assert span.kind.name == asked["kind"]
        for name, level in levels.items():
            if level.startswith("required"):
                assert name in given_
            elif level == "opt_in":
                assert name not in given_
        failed = span.status.status_code.name == "ERROR"
        assert ("error.type" in given_) is failed
        known = given_["gen_ai.tool.name"] not in {"no_such_tool", "nest"}
        assert ("gen_ai.tool.description" in given_) is known


NAMES = (
    "found empty gone breaks skipped flaky slow forbidden yes no endless first second nest unknown"
)


def test_the_calls_of_a_mixed_run_tell_how_they_went() -> None:
    ears, _ = mixed()

    how = {
        name: (
            one["laneway.path"],
            one["laneway.attempts"],
            one.get("error.type"),
            one.get("laneway.answer"),
        )
        for number, name in enumerate(NAMES.split(), 1)
        for one in (told(ears.of_call(f"t1.{number}")),)
    }
    ran = ("PENDING", "QUEUED", "RUNNING")
    asked = ("PENDING", "AWAITING_APPROVAL")
    assert how == {
        "found": ((*ran, "SUCCEEDED"), 1, None, "found"),
        "empty": ((*ran, "SUCCEEDED"), 1, None, "nothing found"),
        "gone": ((*ran, "FAILED"), 1, "UNAVAILABLE", "source unavailable"),
        "breaks": ((*ran, "FAILED"), 1, "TOOL_ERROR", None),
        "skipped": (("PENDING", "SKIPPED"), 0, "DEPENDENCY_FAILED", None),
        "flaky": ((*ran, "BACKING_OFF", "QUEUED", "RUNNING", "SUCCEEDED"), 2, None, "found"),
        "slow": ((*ran, "TIMED_OUT"), 1, "TIMEOUT", "source unavailable"),
        "forbidden": (("PENDING", "DENIED"), 0, "POLICY_DENIED", None),
        "yes": ((*asked, "QUEUED", "RUNNING", "SUCCEEDED"), 1, None, None),
        "no": ((*asked, "DENIED"), 0, "APPROVAL_REJECTED", None),
        "endless": ((*ran, "CANCELLED"), 1, "CANCELLED", None),
        "first": ((*ran, "SUCCEEDED"), 1, None, None),
        "second": ((*ran, "SUCCEEDED"), 1, None, None),
        "nest": ((*ran, "SUCCEEDED"), 1, None, "found"),
        "unknown": (("PENDING", "FAILED"), 0, "UNKNOWN_TOOL", None),
    }
    assert told(ears.of_call("t1.8"))["laneway.rule"] == "rule 1 (never)"
    assert told(ears.of_call("t1.5"))["laneway.cause"] == "t1.4"


def test_the_events_of_a_mixed_run_tell_what_happened_between() -> None:
    ears, _ = mixed()

    happened = {one: events(ears.of_call(f"t1.{one}")) for one in range(1, 16)}
    (run,) = [span for span in ears.spans if span.name == "invoke_workflow demo"]
    asked = ["laneway.approval.asked", "laneway.approval.answered"]
    assert {one: names for one, names in happened.items() if names} == {
        6: ["laneway.retry"],
        9: asked,
        10: asked,
        13: ["laneway.lanes.waited"],
    }
    assert events(run) == ["laneway.budget.neared", "laneway.run.stopped"][:1]
    (again,) = ears.of_call("t1.6").events
    assert (again.attributes or {})["error.type"] == "ConnectionError"
    (waited,) = ears.of_call("t1.13").events
    assert dict(waited.attributes or {}) == {
        "laneway.wait_seconds": 2.0,
        "laneway.lanes": ("lane",),
    }
    _, answered = ears.of_call("t1.9").events
    assert dict(answered.attributes or {}) == {
        "laneway.approval": "t1.9.a1",
        "laneway.granted": True,
        "laneway.by": "ann",
    }


def test_links_lead_to_the_calls_that_a_call_depends_on() -> None:
    ears, _ = mixed()

    names = {context_of(span): told(span).get("laneway.call") for span in ears.spans}
    links = {
        (told(span)["laneway.call"], names[link.context.span_id]): dict(link.attributes or {})
        for span in ears.spans
        for link in span.links
    }
    assert links == {
        ("t1.5", "t1.4"): {"laneway.reason": "needs"},
        ("t1.9", "t1.1"): {"laneway.reason": "after"},
    }


def test_every_metric_of_a_mixed_run_is_counted() -> None:
    ears, _ = mixed()

    metrics = ears.metrics()
    assert set(metrics) == {
        "gen_ai.client.token.usage",
        "gen_ai.execute_tool.duration",
        "gen_ai.workflow.duration",
        "laneway.approval.wait",
        "laneway.attempt.duration",
        "laneway.budget.use",
        "laneway.budget.warnings",
        "laneway.calls",
        "laneway.queue.wait",
        "laneway.retries",
        "laneway.tokens",
        "laneway.turn.duration",
    }
    calls = {
        (dict(key)["gen_ai.tool.name"], dict(key)["laneway.state"]): count
        for key, count in metrics["laneway.calls"].items()
    }
    assert calls == {
        ("found", "SUCCEEDED"): 2,
        ("found", "SKIPPED"): 1,
        ("empty", "SUCCEEDED"): 1,
        ("gone", "FAILED"): 1,
        ("breaks", "FAILED"): 1,
        ("flaky", "SUCCEEDED"): 1,
        ("slow", "TIMED_OUT"): 1,
        ("forbidden", "DENIED"): 1,
        ("asks_yes", "SUCCEEDED"): 1,
        ("asks_no", "DENIED"): 1,
        ("endless", "CANCELLED"): 1,
        ("queued", "SUCCEEDED"): 2,
        ("nest", "SUCCEEDED"): 1,
        ("other", "FAILED"): 1,
    }
    demo = ("laneway.task.class", "demo")
    queued = (("gen_ai.tool.name", "queued"), demo)
    assert metrics["laneway.queue.wait"][queued] == (2, 2.0)
    assert metrics["laneway.attempt.duration"][queued] == (2, 4.0)
    assert metrics["gen_ai.execute_tool.duration"][queued] == (2, 6.0)
    assert metrics["laneway.retries"] == {(("gen_ai.tool.name", "flaky"), demo): 1}
    assert metrics["laneway.tokens"] == {(demo,): 820}
    assert metrics["gen_ai.workflow.duration"] == {(("gen_ai.workflow.name", "demo"),): (1, 63.0)}
    budgets = metrics["laneway.budget.use"].items()
    use = {dict(key)["laneway.budget"]: point for key, point in budgets}
    assert use["tokens"] == (1, 0.82)
    assert metrics["laneway.budget.warnings"] == {
        (("laneway.budget", "tokens"), ("laneway.percent", 80), demo): 1
    }
    granted = {dict(key)["laneway.granted"] for key in metrics["laneway.approval.wait"]}
    assert granted == {True, False}
    counted = sum(count for count in metrics["laneway.calls"].values())
    assert counted == sum(span.name.startswith("execute_tool") for span in ears.spans)


def test_live_spans_tell_what_the_journal_tells_afterwards() -> None:
    ears, theatre = mixed()

    after = exported(timeline(RUN, theatre.journal.facts[RUN]))
    live = [span for span in ears.spans if told(span).get("gen_ai.conversation.id") == RUN]
    attempts = [one for call_ in range(1, 16) for one in ears.attempts(f"t1.{call_}")]
    calls = {context_of(span) for span in live}
    mine = [*live, *(one for one in attempts if one.parent and one.parent.span_id in calls)]
    told_after = sorted((one.name.split(" demo")[0], one.began, one.ended) for one in after)
    told_live = sorted(
        (span.name.removesuffix(" demo"), span.start_time or 0, span.end_time or 0) for span in mine
    )

    assert told_live == told_after


# What is not told


def test_content_is_told_only_where_it_is_asked_for() -> None:
    def play(*, content: bool) -> str:
        ears, stage = Ears(), Stage()
        theatre = Theatre(
            stage,
            stage.tool("say", Return("the answer {x}"), schema={"type": "object"}),
            stage.tool("break", Raise(ValueError("words of failure"))),
            stage.tool("strict", schema={"properties": {"n": {"type": "integer"}}}),
            stage.tool("put", Sleep(1), effect=Effect.WRITE, claims=["write file:{path}"]),
            telemetry=ears.telemetry(content=content),
        )
        theatre.play(
            plan(
                call("a", "say", arguments={"x": "the question"}),
                call("b", "break"),
                call("c", "strict", arguments={"n": "a wrong number"}),
                call("d", "put", arguments={"path": "private.txt"}),
                call("e", "put", arguments={"path": "private.txt"}),
            )
        )
        return "\n".join(span.to_json() for span in ears.spans)

    words = ["the question", "the answer", "words of failure", "a wrong number", "private.txt"]
    assert [word for word in words if word in play(content=False)] == []
    assert [word for word in words if word not in play(content=True)] == []


def test_no_secret_is_told_even_with_content() -> None:
    secret = "sk-live-9f3Zq7"  # noqa: S105 - made up
    ears = Ears()

    @tool(effect=Effect.READ, claims=[], retries=1)
    async def login(token: Annotated[str, Secret], context: ToolContext) -> str:
        """Log in."""
        context.note_read(f"https://x/?key={token}", version=token, found=None)
        raise ConnectionError(f"{token} was refused")

    async def main() -> None:
        engine = Engine([login], telemetry=ears.telemetry(content=True), clock=VirtualClock)
        async with engine, engine.run("r") as run:
            await run.submit(plan(call("a", "login", arguments={"token": secret})))

    run_virtual(main)

    shown = "\n".join(span.to_json() for span in ears.spans) + str(ears.metrics())
    assert secret not in shown
    assert "was refused" in shown
    (read, *_) = ears.attempts("t1.1")[0].events
    assert (read.attributes or {})["laneway.answer"] == "source unavailable"


@given(st.lists(st.text(max_size=3), max_size=200), st.integers(0, 20))
def test_names_in_metrics_are_as_few_as_allowed_whatever_comes(names: list[str], most: int) -> None:
    labels = Labels(most)

    given_ = [labels.of(name) for name in names]

    assert len(set(given_) - {OTHER}) <= most
    for name, label in zip(names, given_, strict=True):
        assert label in (name, OTHER)
        assert labels.of(name) == label


def test_series_do_not_grow_with_what_models_and_hosts_make_up() -> None:
    ears, stage = Ears(), Stage()
    tools = [stage.tool(f"t{n}", Return(n)) for n in range(30)]
    engine_options: dict[str, Any] = {"telemetry": ears.telemetry(tools=5, task_classes=2)}

    async def main() -> None:
        async with Engine(tools, clock=VirtualClock, **engine_options) as engine:
            for number in range(6):
                async with engine.run(f"r{number}", task_class=f"class{number}") as run:
                    calls = [call(f"t{n}", f"t{n}") for n in range(30)]
                    made_up = [call(f"m{n}", f"made-up-{number}-{n}") for n in range(30)]
                    await run.submit(plan(*calls, *made_up))

    run_virtual(main)

    series = [dict(key) for key in ears.metrics()["gen_ai.execute_tool.duration"]]
    names = {one["gen_ai.tool.name"] for one in series}
    classes = {one["laneway.task.class"] for one in series}
    assert names == {"t0", "t1", "t2", "t3", "t4", OTHER}
    assert classes == {"class0", "class1", OTHER}


# Context


def test_the_span_of_the_attempt_is_the_current_one_in_every_kind_of_body(tmp_path: Path) -> None:
    ears = Ears()
    seen: dict[str, int] = {}

    def note(name: str) -> None:
        seen[name] = trace.get_current_span().get_span_context().span_id

    async def in_task(context: ToolContext) -> None:
        note("task")
        await asyncio.create_task(later())
        script = "import os; print(os.environ['TRACEPARENT'])"
        ended = await context.run_process([sys.executable, "-c", script])
        seen["process"] = int(ended.output.text().strip().split("-")[2], 16)
        seen["carried"] = int(trace_context()["traceparent"].split("-")[2], 16)

    async def later() -> None:
        note("subtask")

    def in_thread() -> None:
        note("thread")
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(note, "own thread"))
        thread.start()
        thread.join()

    tools: list[Any] = [
        Tool.of(in_task, effect=Effect.READ, claims=[]),
        Tool.of(in_thread, effect=Effect.READ, claims=[]),
    ]

    async def main() -> None:
        async with Engine(tools, telemetry=ears.telemetry()) as engine, engine.run("r") as run:
            await run.submit(plan(call("a", "in_task"), call("b", "in_thread")))

    asyncio.run(main())

    (task,), (thread,) = ears.attempts("t1.1"), ears.attempts("t1.2")
    assert seen == {
        **dict.fromkeys(("task", "subtask", "process", "carried"), context_of(task)),
        **dict.fromkeys(("thread", "own thread"), context_of(thread)),
    }


def test_parents_are_right_while_many_calls_run_side_by_side() -> None:
    ears = Ears()
    tracer = ears.tracers.get_tracer("test")

    async def body(n: int) -> int:
        with tracer.start_as_current_span(f"inner {n}"):
            await asyncio.sleep((n * 7919 % 13) / 10)
            return n

    def blocking(n: int) -> int:
        with tracer.start_as_current_span(f"inner {n}"):
            return n

    tools: list[Any] = [
        Tool.of(body, effect=Effect.READ, claims=[]),
        Tool.of(blocking, effect=Effect.READ, claims=[]),
    ]

    async def main() -> None:
        engine = Engine(tools, telemetry=ears.telemetry(), clock=VirtualClock)
        async with engine, engine.run("r") as run:
            await run.submit(
                plan(
                    *(
                        call(f"c{n}", "blocking" if n % 3 else "body", arguments={"n": n})
                        for n in range(60)
                    )
                )
            )

    run_virtual(main)

    for n in range(60):
        (inner,) = [span for span in ears.spans if span.name == f"inner {n}"]
        (attempt,) = ears.attempts(f"t1.{n + 1}")
        assert inner.parent is not None
        assert inner.parent.span_id == context_of(attempt)
        assert attempt.parent is not None
        assert attempt.parent.span_id == context_of(ears.of_call(f"t1.{n + 1}"))


def test_a_run_is_below_the_span_of_whoever_enters_it() -> None:
    ears = Ears()

    async def main() -> None:
        with ears.tracers.get_tracer("host").start_as_current_span("request"):
            async with (
                Engine([], telemetry=ears.telemetry(), clock=VirtualClock) as engine,
                engine.run("r"),
            ):
                pass

    run_virtual(main)

    assert ears.tree() == ["✓ request", "  ✓ invoke_workflow"]


def test_a_nested_run_is_below_the_attempt_even_from_a_thread_without_context() -> None:
    ears, stage = Ears(), Stage()

    def outer(context: ToolContext) -> Any:
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(context.invoke_blocking("inner")))
        thread.start()
        thread.join()
        return found

    tools = [Tool.of(outer, effect=Effect.READ, claims=[]), stage.tool("inner", Return(1))]

    async def main() -> None:
        async with Engine(tools, telemetry=ears.telemetry()) as engine, engine.run("r") as run:
            await run.submit(plan(call("a", "outer")))

    asyncio.run(main())

    assert ears.tree()[3:5] == ["      ✓ attempt", "        ✓ invoke_workflow"]


def test_what_is_carried_out_of_the_process_is_taken_up_elsewhere() -> None:
    ears = Ears()
    tracer = ears.tracers.get_tracer("test")
    with tracer.start_as_current_span("here") as here:
        carrier = trace_context()
        env = environment({"PATH": "/bin", "TRACEPARENT": "the host's own"})
        assert environment(None) == {**os.environ, "TRACEPARENT": carrier["traceparent"]}

    with continued(carrier), tracer.start_as_current_span("there") as there:
        pass
    with continued({}), tracer.start_as_current_span("nowhere") as nowhere:
        pass

    assert there.get_span_context().trace_id == here.get_span_context().trace_id
    assert nowhere.get_span_context().trace_id != here.get_span_context().trace_id
    assert env == {"PATH": "/bin", "TRACEPARENT": "the host's own"}
    assert environment(None) is None


# Crashes, leaving, stuck bodies


def test_a_run_that_is_taken_up_links_to_the_span_of_the_driver_before() -> None:
    ears, stage = Ears(), Stage()
    theatre = Theatre(
        stage,
        stage.tool("pay", Sleep(10), effect=Effect.EXTERNAL, claims=[]),
        stage.tool("read", Sleep(1), Return("x")),
        telemetry=ears.telemetry(),
    )

    async def host(run: Run) -> None:
        await run.submit(plan(call("p", "pay"), call("r", "read", needs=["p"])), wait=False)
        await asyncio.sleep(5)
        theatre.crash()

    theatre.enter(host, run={"task_class": "bills"})
    former = [span for span in ears.spans if span.name == "invoke_workflow bills"]
    ears.exporter.clear()

    async def later(run: Run) -> None:
        await run.settle("p", value="paid", by="ann")
        await run.finish()

    theatre.enter(later)

    opened, taken = theatre.kept(RunOpened)[0], theatre.kept(RunTaken)[0]
    (run,) = [span for span in ears.spans if span.name == "invoke_workflow bills"]
    (link,) = run.links
    assert link.context.span_id == context_of(former[0])
    assert dict(link.attributes or {}) == {"laneway.reason": "resumed"}
    assert (opened.task_class, run.links[0].context.is_remote) == ("bills", True)
    assert taken.trace.split("-")[2] == f"{context_of(run):016x}"
    assert ears.tree() == [
        "✓ invoke_workflow bills",
        "  ✓ turn",
        "    ✓ execute_tool pay SUCCEEDED",
        "    ✓ execute_tool read SUCCEEDED",
        "      ✓ attempt",
    ]
    assert told(ears.of_call("t1.1"))["laneway.path"] == ("RUNNING", "UNCERTAIN", "SUCCEEDED")
    assert events(ears.of_call("t1.1")) == ["laneway.settled"]


def test_what_is_left_open_ends_as_open() -> None:
    ears, stage = Ears(), Stage()
    theatre = Theatre(
        stage,
        stage.tool("ask", Return(1), effect=Effect.WRITE, approval=True),
        telemetry=ears.telemetry(),
    )

    theatre.enter(lambda run: run.submit(plan(call("a", "ask")), wait=False))

    assert told(ears.of_call("t1.1"))["laneway.open"] is True
    assert ears.metrics().get("laneway.calls") is None


def test_an_attempt_lasts_until_its_body_has_really_stopped() -> None:
    ears, stage = Ears(), Stage()
    theatre = Theatre(
        stage,
        stage.tool("stuck", Block(20), Return("late"), sync=True, timeout=5),
        telemetry=ears.telemetry(content=True),
    )

    async def host(run: Run) -> None:
        await run.submit(plan(call("a", "stuck")))
        await asyncio.sleep(60)

    theatre.enter(host)

    (attempt,) = ears.attempts("t1.1")
    assert (seconds(ears.of_call("t1.1")), seconds(attempt)) == (5.0, 20.0)
    assert events(ears.of_call("t1.1")) == ["laneway.body.outlives"]
    assert events(attempt) == ["laneway.body.stopped"]
    assert told(attempt)["error.type"] == "TIMEOUT"


def test_relaxed_bodies_have_their_span_before_the_facts_are_kept() -> None:
    ears, stage = Ears(), Stage()
    seen: list[int] = []
    body = Do(lambda _: seen.append(trace.get_current_span().get_span_context().span_id))
    theatre = Theatre(
        stage, stage.tool("look", body), telemetry=ears.telemetry(), durability="relaxed"
    )

    theatre.play(plan(call("a", "look")))

    assert seen == [context_of(ears.attempts("t1.1")[0])]


def test_a_loop_is_told_when_it_is_blocked() -> None:
    ears, stage = Ears(), Stage()
    theatre = Theatre(stage, stage.tool("same", Return(1)), telemetry=ears.telemetry())

    async def host(run: Run) -> None:
        for n in range(3):
            await run.submit(
                {
                    "id": f"m{n}",
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": f"c{n}", "name": "same", "input": {}}],
                }
            )

    theatre.enter(host)

    assert "laneway.loop.blocked" in events(ears.of_call("t3.1"))
    loops = {dict(key)["laneway.loop"]: n for key, n in ears.metrics()["laneway.loops"].items()}
    assert loops["blocked"] == 1


def test_calls_that_are_the_same_link_to_the_one_that_runs() -> None:
    ears, stage = Ears(), Stage()
    theatre = Theatre(
        stage,
        stage.tool("sum", Sleep(1), Return(3), effect=Effect.PURE),
        telemetry=ears.telemetry(),
    )

    theatre.play(plan(call("a", "sum"), call("b", "sum")))

    (link,) = ears.of_call("t1.2").links
    assert link.context.span_id == context_of(ears.of_call("t1.1"))
    assert dict(link.attributes or {}) == {"laneway.reason": "joined"}


def test_tokens_of_a_request_are_counted_once() -> None:
    ears = Ears()
    reply = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "content": [],
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }

    async def host(run: Run) -> None:
        async with run.request(max_output_tokens=100) as request:
            request.reply(reply)
        await run.submit(reply)

    Theatre(Stage(), telemetry=ears.telemetry()).enter(host)

    assert ears.metrics()["laneway.tokens"] == {(): 15}


# Who listens, and what it costs


def calls_of(work: Callable[[], object]) -> dict[str, int]:
    """The functions that are called, by file and name."""
    found: dict[str, int] = {}

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            name = f"{frame.f_code.co_filename}:{frame.f_code.co_name}"
            found[name] = found.get(name, 0) + 1

    before = sys.getprofile()
    gc.disable()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
        gc.enable()
    return found


def thirty_calls(telemetry: bool | Telemetry) -> Callable[[], None]:
    stage = Stage()
    tools = [stage.tool("t", Return(1)), stage.tool("w", Return(1), effect=Effect.WRITE)]
    reply = plan(*(call(f"c{n}", "tw"[n % 2], arguments={"n": n}) for n in range(30)))

    async def main() -> None:
        engine = Engine(tools, telemetry=telemetry, clock=VirtualClock, journal=NullStore())
        async with engine, engine.run("r") as run:
            await run.submit(reply)

    return lambda: run_virtual(main)


def test_nothing_is_spent_where_nobody_listens() -> None:
    for given_ in (True, False, Telemetry()):
        work = thirty_calls(given_)
        work()  # What is imported and cached is paid once.

        called = calls_of(work)

        ours = {
            name.rpartition("/")[2]: count
            for name, count in called.items()
            if "engine/telemetry/" in name
        }
        assert not [name for name in called if "opentelemetry/sdk" in name]
        assert ours.pop("listening.py:_set_by_program", 0) <= 2
        # Once an engine and once a run, whatever the number of calls.
        assert set(ours.values()) <= {1}
        assert set(ours) <= {
            "listening.py:listener_of",
            "options.py:__init__",
            "options.py:__post_init__",
            "joining.py:task_class_of",
            "joining.py:join",
            "joining.py:count_budgets",
        }


def test_a_run_that_is_not_sampled_makes_no_span_but_its_own() -> None:
    ears = Ears(sampler=ALWAYS_OFF)
    quiet = Telemetry(tracer_provider=ears.tracers)
    work = thirty_calls(quiet)
    work()

    called = calls_of(work)

    assert ears.spans == ()
    assert (
        sum(n for name, n in called.items() if name.endswith("sdk/trace/__init__.py:start_span"))
        == 1
    )


def test_a_program_that_does_not_trace_never_imports_opentelemetry() -> None:
    script = """
import asyncio, sys
from laneway import Engine, tool
@tool
async def f() -> int: return 1
async def main():
    async with Engine([f]) as engine, engine.run("r") as run:
        await run.submit({"calls": [{"id": "a", "tool": "f", "arguments": {}}]})
asyncio.run(main())
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == "[]"


def test_the_provider_that_the_program_has_set_is_listened_for() -> None:
    script = """
import asyncio
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from laneway import Engine, tool
heard = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(heard))
trace.set_tracer_provider(provider)
@tool
async def f() -> int: return 1
async def main():
    async with Engine([f]) as engine, engine.run("r") as run:
        await run.submit({"calls": [{"id": "a", "tool": "f", "arguments": {}}]})
asyncio.run(main())
print([span.name for span in heard.get_finished_spans()])
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == str(["attempt", "execute_tool f", "turn", "invoke_workflow"])


def test_a_listener_that_fails_is_told_of_once_and_fails_no_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ears, stage = Ears(), Stage()
    told_: list[str] = []

    def broken(*_: Any) -> None:
        raise RuntimeError("no more")

    async def main() -> State:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told_.append(context["message"]))
        engine = Engine(
            [stage.tool("t", Return(1))], telemetry=ears.telemetry(), clock=VirtualClock
        )
        async with engine, engine.run("r") as run:
            monkeypatch.setattr(RunListener, "_hear", broken)
            turn = await run.submit(plan(call("a", "t")))
            return turn.calls[0].state

    assert run_virtual(main) is State.SUCCEEDED
    assert told_ == ["nothing more is told of run 'r': telemetry failed, and the run goes on"]


@pytest.mark.parametrize("wrong", ["yes", None, 1])
def test_what_is_no_telemetry_is_refused_by_name(wrong: Any) -> None:
    async def main() -> None:
        async with Engine([], telemetry=wrong):
            pass

    with pytest.raises(UsageError) as refused:
        asyncio.run(main())

    assert str(refused.value) == (f"telemetry={wrong!r} is none; give True, False or Telemetry(…)")


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "many"])
def test_a_number_of_names_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError) as refused:
        Telemetry(tools=wrong)

    assert str(refused.value) == (
        f"Telemetry.tools is {wrong!r}; give how many names metrics may tell apart, 0 or more"
    )


@pytest.mark.parametrize(
    ("value", "nothing"),
    [
        (None, True),
        ("", True),
        ([], True),
        ({}, True),
        ({"rows": [], "total": 0, "more": False}, True),
        (0, False),
        (False, False),
        ({"total": 0}, False),
        ({"rows": [], "total": 1}, False),
        ([None], False),
        ("none", False),
    ],
)
def test_nothing_found_is_told_by_an_empty_value(value: Any, nothing: bool) -> None:
    assert says_nothing(value) is nothing


def test_a_fork_links_to_the_run_that_it_came_from(tmp_path: Path) -> None:
    ears, stage = Ears(), Stage()
    tools = [stage.tool("t", Return(1))]
    file = tmp_path / "runs.db"

    async def enter(run: str) -> None:
        engine = Engine(tools, journal=file, telemetry=ears.telemetry())
        async with engine, engine.run(run) as entered:
            if run == "r":
                await entered.submit(plan(call("a", "t")))

    async def copy() -> None:
        store = SqliteStore(file)
        await store.open()
        await fork(store, "r", "other")
        await store.close()

    asyncio.run(enter("r"))
    asyncio.run(copy())
    asyncio.run(enter("other"))

    source, forked = [span for span in ears.spans if span.name == "invoke_workflow"]
    (link,) = forked.links
    assert link.context.span_id == context_of(source)
    assert dict(link.attributes or {}) == {"laneway.reason": "forked"}


# What befalls runs and turns


@pytest.mark.parametrize("goes_on", [False, True])
def test_what_befalls_a_run_is_told_of_its_span(goes_on: bool) -> None:
    ears, stage = Ears(), Stage()
    theatre = Theatre(stage, stage.tool("t", Return(1)), telemetry=ears.telemetry())

    async def host(run: Run) -> None:
        await run.set_mode("plan", by="ann")
        run._engine.lanes.pause("mail")
        await run.stop("FAILED", "the disk is gone", by="ann")
        if goes_on:
            await run.resume(by="ann")

    theatre.enter(host)

    (span,) = [one for one in ears.spans if one.name == "invoke_workflow"]
    happened = {event.name: dict(event.attributes or {}) for event in span.events}
    assert happened["laneway.mode.changed"] == {"laneway.mode": "plan", "laneway.by": "ann"}
    assert happened["laneway.lane.changed"] == {
        "laneway.lane": "lane:mail",
        "laneway.change": "paused",
    }
    assert happened["laneway.run.stopped"]["laneway.stop_reason"] == "FAILED"
    assert ("laneway.run.reopened" in happened) is goes_on
    assert told(span).get("laneway.stop_reason") == (None if goes_on else "FAILED")
    assert told(span).get("error.type") == (None if goes_on else "FAILED")
    assert span.status.status_code.name == ("UNSET" if goes_on else "ERROR")
    stops = ears.metrics()["laneway.runs.stopped"]
    assert stops == {(("laneway.stop_reason", "FAILED"),): 1}


def test_the_calls_of_a_plan_are_below_the_call_that_holds_them() -> None:
    ears, stage = Ears(), Stage()
    theatre = Theatre(
        stage, stage.tool("t", Return(1)), plan_tool(), telemetry=ears.telemetry(content=True)
    )
    held = {"calls": [call("a", "t", arguments={}), call("b", "t", arguments={}, needs=["a"])]}

    theatre.play(plan(call("p", "plan", arguments=held)))

    assert ears.tree()[2:] == [
        "    ✓ execute_tool plan SUCCEEDED",
        "      ✓ attempt",
        "      ✓ execute_tool t SUCCEEDED",
        "        ✓ attempt",
        "      ✓ execute_tool t SUCCEEDED",
        "        ✓ attempt",
    ]


def test_a_named_agent_is_an_invoke_agent_below_the_call_of_it() -> None:
    ears, stage = Ears(), Stage()

    async def delegate(context: ToolContext) -> str:
        with entered_as("researcher"):
            async with engines[0].run(f"{context.run}/child") as child:
                await child.submit(plan(call("a", "t")))
        return "done"

    tools = [
        stage.tool("t", Return(1)),
        Tool.of(delegate, effect=Effect.READ, claims=[]),
    ]
    engines = [Engine(tools, telemetry=ears.telemetry(), clock=VirtualClock)]

    async def main() -> None:
        async with engines[0] as engine, engine.run("r", task_class="dig") as run:
            await run.submit(plan(call("d", "delegate")))

    run_virtual(main)

    assert ears.tree()[2:6] == [
        "    ✓ execute_tool delegate SUCCEEDED",
        "      ✓ attempt",
        "        ✓ invoke_agent researcher",
        "          ✓ turn",
    ]
    (agent,) = [span for span in ears.spans if span.name == "invoke_agent researcher"]
    assert told(agent)["gen_ai.agent.name"] == "researcher"
    assert told(agent)["laneway.task.class"] == "dig"
    agents = ears.metrics()["gen_ai.invoke_agent.duration"]
    assert set(agents) == {(("gen_ai.agent.name", "researcher"),)}


def test_a_turn_that_no_budget_has_room_for_is_an_error() -> None:
    ears, stage = Ears(), Stage()
    theatre = Theatre(
        stage,
        stage.tool("t", Return(1)),
        telemetry=ears.telemetry(),
        budgets=Budgets(model_turns=1),
    )

    async def host(run: Run) -> None:
        await run.submit(plan(call("a", "t")))
        await run.submit(plan(call("b", "t")))

    theatre.enter(host)

    first, second = sorted(
        (span for span in ears.spans if span.name == "turn"),
        key=lambda span: told(span)["laneway.turn"],
    )
    assert "error.type" not in told(first)
    assert told(second)["error.type"] == "BUDGET_EXCEEDED"


def test_what_is_found_out_of_an_end_that_nobody_saw_is_told() -> None:
    ears, stage = Ears(), Stage()

    def probe() -> Found:
        return Found.nothing()

    theatre = Theatre(
        stage,
        stage.tool(
            "pay",
            Sleep(10),
            Return("paid"),
            effect=Effect.EXTERNAL,
            reconcile=probe,
        ),
        telemetry=ears.telemetry(),
    )

    async def host(run: Run) -> None:
        await run.submit(plan(call("p", "pay")), wait=False)
        await asyncio.sleep(5)
        theatre.crash()

    theatre.enter(host)
    ears.exporter.clear()
    theatre.finish()

    span = ears.of_call("t1.1")
    assert events(span) == ["laneway.probed", "laneway.reopened"]
    assert told(span)["laneway.state"] == "SUCCEEDED"


def test_an_unknown_end_that_is_settled_after_its_turn_is_told_of_the_run() -> None:
    ears, stage = Ears(), Stage()
    theatre = Theatre(
        stage,
        stage.tool("pay", Sleep(10), effect=Effect.EXTERNAL, claims=[]),
        telemetry=ears.telemetry(),
    )

    async def host(run: Run) -> None:
        await run.submit(plan(call("p", "pay")), wait=False)
        await asyncio.sleep(5)
        theatre.crash()

    async def later(run: Run) -> None:
        await run.finish()
        await run.settle("p", failure="it never arrived", by="ann")

    theatre.enter(host)
    ears.exporter.clear()
    theatre.enter(later)

    assert told(ears.of_call("t1.1"))["error.type"] == "OUTCOME_UNKNOWN"
    (run,) = [span for span in ears.spans if span.name == "invoke_workflow"]
    settled = [dict(one.attributes or {}) for one in run.events if one.name == "laneway.settled"]
    assert settled == [{"laneway.call": "t1.1", "laneway.by": "ann", "laneway.succeeded": False}]
    (calls,) = [
        count
        for key, count in ears.metrics()["laneway.calls"].items()
        if dict(key)["laneway.state"] == "UNCERTAIN"
    ]
    assert calls == 1


def test_an_edit_is_told_as_the_arguments_that_ran() -> None:
    ears, stage = Ears(), Stage()
    theatre = Theatre(
        stage,
        stage.tool("send", Return(1), effect=Effect.WRITE, approval=True, schema={}),
        telemetry=ears.telemetry(content=True),
    )

    async def host(run: Run) -> None:
        turn = await run.submit(plan(call("a", "send", arguments={"to": "all"})), wait=False)
        await run.approve("t1.1.a1", by="ann", arguments={"to": "bob"})
        await turn.wait()

    theatre.enter(host)

    assert told(ears.of_call("t1.1"))["gen_ai.tool.call.arguments"] == '{"to":"bob"}'


def test_content_names_the_lanes_and_the_reasons_of_waiting() -> None:
    ears, stage = Ears(), Stage()
    put = stage.tool("put", Sleep(1), effect=Effect.WRITE, claims=["write file:{path}", "lane:x"])
    theatre = Theatre(stage, put, telemetry=ears.telemetry(content=True), workspace="/w")
    arguments = {"path": "a.txt"}

    theatre.play(plan(call("a", "put", arguments=arguments), call("b", "put", arguments=arguments)))

    (link,) = ears.of_call("t1.2").links
    assert dict(link.attributes or {}) == {
        "laneway.reason": "conflict",
        "laneway.detail": "file:/w/a.txt",
    }


def test_only_metrics_are_counted_where_only_they_are_listened_for() -> None:
    ears, stage = Ears(), Stage()
    only = Telemetry(meter_provider=ears.meters)
    theatre = Theatre(stage, stage.tool("stuck", Block(20), sync=True, timeout=5), telemetry=only)

    async def host(run: Run) -> None:
        await run.submit(plan(call("a", "stuck")))
        await asyncio.sleep(60)

    theatre.enter(host)

    assert ears.spans == ()
    assert theatre.kept(RunOpened)[0].trace == ""
    (state,) = [dict(key)["laneway.state"] for key in ears.metrics()["laneway.calls"]]
    assert state == "TIMED_OUT"


def test_only_spans_are_told_where_only_they_are_listened_for() -> None:
    ears = Ears()
    stage = Stage()
    only = Telemetry(tracer_provider=ears.tracers)
    Theatre(stage, stage.tool("t", Return(1)), telemetry=only).play(plan(call("a", "t")))

    assert len(ears.spans) == 4
    assert ears.metrics() == {}


def test_a_model_that_begins_to_go_round_in_circles_is_told_of() -> None:
    ears, stage = Ears(), Stage()
    theatre = Theatre(stage, stage.tool("t", Return(1)), telemetry=ears.telemetry())

    async def host(run: Run) -> None:
        for _ in range(3):
            await run.submit(plan(call("a", "t")))

    theatre.enter(host, loops=Loops(repeats=3))

    assert events(ears.of_call("t3.1")) == ["laneway.loop.warned"]
    loops = {dict(key)["laneway.loop"] for key in ears.metrics()["laneway.loops"]}
    assert loops == {"warned"}


def test_a_variable_that_names_a_provider_counts_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    script = """
from laneway.engine.telemetry.listening import _set_by_program
print(type(_set_by_program("trace", "tracer")).__module__, _set_by_program("metrics", "meter"))
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={
            "PYTHONPATH": str(ROOT / "src"),
            "OTEL_PYTHON_TRACER_PROVIDER": "sdk_tracer_provider",
        },
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.split() == ["opentelemetry.sdk.trace", "None"]


def test_an_engine_that_is_left_first_ends_the_spans_of_its_runs() -> None:
    ears, stage = Ears(), Stage()

    async def main() -> None:
        engine = Engine([stage.tool("t", Sleep(9))], telemetry=ears.telemetry(), clock=VirtualClock)
        async with engine:
            run = engine.run("r")
            await run.__aenter__()
            await run.submit(plan(call("a", "t")), wait=False)

    run_virtual(main)

    assert ears.tree()[:2] == ["✓ invoke_workflow", "  ✓ turn"]
    assert told(ears.of_call("t1.1"))["laneway.state"] == "CANCELLED"


def test_content_names_the_lanes_that_were_waited_for() -> None:
    ears, stage = Ears(), Stage()
    tools = [stage.tool("t", Sleep(1), effect=Effect.WRITE, claims=["lane:one"])]
    theatre = Theatre(stage, *tools, telemetry=ears.telemetry(content=True))

    theatre.play(plan(call("a", "t"), call("b", "t")))

    (waited,) = ears.of_call("t1.2").events
    assert (waited.attributes or {})["laneway.lanes"] == ("lane:one",)


def test_a_listener_that_fails_at_the_end_fails_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    ears = Ears()
    told_: list[str] = []

    def broken(_: Any) -> None:
        raise RuntimeError("no more")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told_.append(context["message"]))
        engine = Engine([], telemetry=ears.telemetry(), clock=VirtualClock)
        async with engine, engine.run("r"):
            monkeypatch.setattr(RunListener, "_leave", broken)

    run_virtual(main)

    assert len(told_) == 1
    assert [span.name for span in ears.spans] == ["invoke_workflow"]


def test_a_trace_in_the_journal_that_cannot_be_read_is_left_out() -> None:
    ears, stage = Ears(), Stage()
    theatre = Theatre(stage, telemetry=ears.telemetry())

    async def nothing(_: Run) -> None:
        pass

    theatre.enter(nothing)
    rows = theatre.journal.facts[RUN]
    opened = rows[0].fact
    assert isinstance(opened, RunOpened)
    rows[0] = msgspec.structs.replace(
        rows[0], fact=msgspec.structs.replace(opened, trace="00-nonsense")
    )
    ears.exporter.clear()
    theatre.enter(nothing)

    (run,) = ears.spans
    assert run.links == ()


def test_reading_is_noted_only_in_a_call() -> None:
    ears, stage = Ears(), Stage()
    kept: list[ToolContext] = []

    async def look(context: ToolContext) -> list[int]:
        context.note_read("file:/w/a", version="7", found=False)
        context.note_read("file:/w/b")
        kept.append(context)
        return []

    async def main() -> None:
        tools = [Tool.of(look, effect=Effect.READ, claims=[])]
        engine = Engine(tools, telemetry=ears.telemetry(), clock=VirtualClock)
        async with engine:
            async with engine.run("r") as run:
                await run.submit(plan(call("a", "look")))
                kept[0].note_read("too late")
            kept[0].note_read("much too late")
        kept[0].note_read("nobody is there")

    run_virtual(main)

    (attempt,) = ears.attempts("t1.1")
    assert [dict(event.attributes or {}) for event in attempt.events] == [
        {"laneway.source": "file:/w/a", "laneway.answer": "nothing found", "laneway.version": "7"},
        {"laneway.source": "file:/w/b", "laneway.answer": "found"},
    ]
    assert stage.entered == {}


def test_several_people_who_must_agree_are_all_told() -> None:
    ears, stage = Ears(), Stage()
    theatre = Theatre(
        stage,
        stage.tool("pay", Return(1), effect=Effect.EXTERNAL, approval=True, approvers=2),
        telemetry=ears.telemetry(),
    )

    async def host(run: Run) -> None:
        turn = await run.submit(plan(call("a", "pay")), wait=False)
        await run.approve("t1.1.a1", by="ann")
        await run.approve("t1.1.a1", by="bob")
        await turn.wait()

    theatre.enter(host)

    by = [(event.attributes or {}).get("laneway.by") for event in ears.of_call("t1.1").events]
    assert by == [None, "ann", "bob"]


def test_nothing_is_carried_where_no_span_is() -> None:
    assert trace_context() == {}


def test_undoing_is_told_of_the_run() -> None:
    ears, stage = Ears(), Stage()
    undone: list[Any] = []

    def undo(result: Any) -> None:
        undone.append(result)

    theatre = Theatre(
        stage,
        stage.tool("pay", Return(7), effect=Effect.EXTERNAL, claims=[], compensate=undo),
        telemetry=ears.telemetry(),
    )

    async def host(run: Run) -> None:
        await run.submit(plan(call("a", "pay")))
        await run.abandon(compensate=True, by="ann")

    theatre.enter(host)

    (run,) = [span for span in ears.spans if span.name == "invoke_workflow"]
    told_ = [(event.name, dict(event.attributes or {})) for event in run.events]
    assert [one for one in told_ if "abandoned" in one[0] or "compensation" in one[0]] == [
        ("laneway.run.abandoned", {"laneway.by": "ann"}),
        ("laneway.compensation.started", {"laneway.call": "t1.1"}),
        ("laneway.compensation.ended", {"laneway.call": "t1.1", "laneway.succeeded": True}),
    ]


def test_the_process_of_an_isolated_tool_is_below_its_attempt() -> None:
    ears = Ears()
    isolated = tool(trace_context, effect=Effect.READ, claims=[], isolation="process")
    found: list[Any] = []

    async def main() -> None:
        async with Engine([isolated], telemetry=ears.telemetry()) as engine, engine.run("r") as run:
            turn = await run.submit(plan(call("a", "trace_context")))
            found.extend(turn.outcomes.values())

    asyncio.run(main())

    (attempt,) = ears.attempts("t1.1")
    assert f"{context_of(attempt):016x}" in str(found[0])
