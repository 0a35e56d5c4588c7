"""Why is it waiting, and what would happen: answered without touching anything."""

import asyncio
from pathlib import Path
from typing import Any

from laneway import Code, Effect, Engine, Failure, Limits, State
from laneway.engine.explain import Explanation
from laneway.engine.run import Run
from laneway.testing import Block, Do, Raise, Return, Sleep, Stage, run_virtual


def plan(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"calls": [{"arguments": {}, **call} for call in calls]}


def explained(
    tools: Any, stage: Stage, *calls: dict[str, Any], at: float = 0.1, **options: Any
) -> dict[str, Explanation]:
    async def main() -> dict[str, Explanation]:
        engine = Engine(tools, clock=stage.make_clock, **options)
        async with engine, engine.run("r") as run:
            turn = await run.submit(plan(*calls), wait=False)
            await asyncio.sleep(at)
            found = {one.name: one for one in run.explain()}
            await run.cancel()
            await turn.wait()
            return found

    return run_virtual(main)


def test_each_waiting_call_names_what_stands_in_its_way() -> None:
    stage = Stage()
    tools = [
        stage.tool("work", Sleep(5), claims=["lane:L"]),
        stage.tool("ask", Return("x"), effect=Effect.WRITE, approval=True),
    ]

    found = explained(
        tools,
        stage,
        {"id": "a", "tool": "work"},
        {"id": "b", "tool": "work"},
        {"id": "c", "tool": "work", "needs": ["b"]},
        {"id": "q", "tool": "ask"},
        {"id": "d", "tool": "work", "after": ["q"]},
    )

    assert {name: one.state for name, one in found.items()} == {
        "a": State.RUNNING,
        "b": State.QUEUED,
        "c": State.PENDING,
        "q": State.AWAITING_APPROVAL,
        "d": State.PENDING,
    }
    kinds = {name: [(w.kind, w.what, w.on) for w in one.waits] for name, one in found.items()}
    assert kinds["a"] == [("body", "work", "")]
    assert kinds["b"] == [("lane", "lane:L held by", "t1.1")]
    assert kinds["c"] == [("dependency", "needs", "t1.2")]
    assert kinds["q"] == [("approval", "t1.4.a1", "")]
    assert kinds["d"] == [("dependency", "after", "t1.4")]
    assert found["c"].chain == ("t1.3", "t1.2", "t1.1")
    assert found["b"].since_seconds > 0
    assert str(found["b"]).endswith("lane lane:L held by of t1.1")


def test_threads_back_off_and_stops_are_told_apart() -> None:
    stage = Stage()
    tools = [
        stage.tool("blocking", Block(5), sync=True),
        stage.tool("flaky", Raise(ConnectionError("gone")), retries=3),
    ]

    found = explained(
        tools,
        stage,
        {"id": "a", "tool": "blocking"},
        {"id": "b", "tool": "blocking"},
        {"id": "f", "tool": "flaky"},
        limits=Limits(tool_threads=1, back_off_seconds=10),
    )

    assert [(w.kind, w.on) for w in found["b"].waits] == [("thread", "t1.1")]
    assert [w.kind for w in found["f"].waits] == ["back-off"]


def test_a_body_that_will_not_stop_is_explained_until_it_does() -> None:
    stage = Stage()

    async def stubborn(_: Any) -> None:
        for _n in range(3):
            try:
                await asyncio.sleep(2)
            except asyncio.CancelledError:
                continue

    tools = [
        stage.tool("stubborn", Do(stubborn), timeout=0.5, claims=["lane:L"]),
        stage.tool("work", Return("x"), claims=["lane:L"]),
    ]

    found = explained(
        tools, stage, {"id": "s", "tool": "stubborn"}, {"id": "w", "tool": "work"}, at=2.0
    )

    assert found["s"].state is State.TIMED_OUT
    assert [w.kind for w in found["s"].waits] == ["stop"]
    assert [(w.kind, w.on) for w in found["w"].waits] == [("lane", "t1.1")]


def test_another_runs_call_is_named_with_its_run() -> None:
    stage = Stage()
    tools = [stage.tool("work", Sleep(5), claims=["lane:L"])]

    async def main() -> list[str]:
        engine = Engine(tools, clock=stage.make_clock)
        async with engine, engine.run("one") as one, engine.run("two") as two:
            first = await one.submit(plan({"id": "a", "tool": "work"}), wait=False)
            second = await two.submit(plan({"id": "a", "tool": "work"}), wait=False)
            found = [wait.on for call in two.explain() for wait in call.waits]
            await one.cancel()
            await two.cancel()
            await first.wait()
            await second.wait()
            assert two.explain() == ()
            return found

    assert run_virtual(main) == ["one/t1.1"]


def test_a_run_without_turns_has_nothing_to_explain() -> None:
    async def main() -> tuple[Explanation, ...]:
        async with Engine() as engine, engine.run("r") as run:
            return run.explain()

    assert asyncio.run(main()) == ()


def test_a_dry_run_shows_graph_verdicts_and_faults_and_does_nothing(tmp_path: Path) -> None:
    stage = Stage()
    tools = [
        stage.tool("read", Return("x"), claims=["read file:{path}"]),
        stage.tool("write", Return("x"), effect=Effect.WRITE, claims=["write file:{path}"]),
        stage.tool("mail", Return("x"), effect=Effect.EXTERNAL, approval=True),
    ]
    reply = plan(
        {"id": "r", "tool": "read", "arguments": {"path": "a"}},
        {"id": "w", "tool": "write", "arguments": {"path": "a"}},
        {"id": "m", "tool": "mail", "arguments": {"text": "${r}"}},
        {"id": "x", "tool": "nope"},
    )

    async def main() -> Any:
        async with Engine(tools, workspace=tmp_path) as engine:
            shown = await engine.plan(reply)
            assert engine.services.journal.commits == 0
            assert len(engine.services.lanes) == 0
            return shown

    shown = asyncio.run(main())

    r, w, m, x = shown.calls
    assert [r.decision, w.decision, m.decision, x.decision] == ["allow", "allow", "ask", ""]
    assert isinstance(x.outcome, Failure)
    assert x.outcome.code is Code.UNKNOWN_TOOL
    assert [(e.source, e.target, e.reason) for e in shown.edges] == [
        ("t1.1", "t1.3", "data"),
        ("t1.1", "t1.2", "conflict"),
    ]
    assert shown.rounds == (("t1.1",), ("t1.2", "t1.3"))
    assert stage.entered == {}
    text = str(shown)
    assert "t1.2 w write  allow (default)" in text
    assert f"    waits for t1.1: conflict file:{tmp_path}/a" in text
    assert "t1.4 x nope  UNKNOWN_TOOL" in text
    mermaid = shown.to_mermaid()
    assert mermaid.startswith("flowchart TD\n")
    assert 't1_1 -.->|"conflict file:' in mermaid
    assert shown.to_json()["calls"][0]["name"] == "r"


def test_a_run_can_be_asked_while_it_runs(tmp_path: Path) -> None:
    """Explaining does not move anything: the turn ends as it would have."""
    stage = Stage()
    tools = [stage.tool("work", Sleep(0.2), Return("done"), claims=["lane:L"])]

    async def main() -> list[State]:
        engine = Engine(tools, clock=stage.make_clock, journal=tmp_path / "runs.db")
        async with engine, engine.run("r") as run:
            turn = await run.submit(
                plan(*({"id": str(n), "tool": "work"} for n in range(3))), wait=False
            )
            while not turn.ready:
                _look(run)
                await asyncio.sleep(0.05)
            return [call.state for call in turn.calls]

    assert run_virtual(main) == [State.SUCCEEDED] * 3


def _look(run: Run) -> None:
    for one in run.explain():
        assert one.waits
        assert str(one)
