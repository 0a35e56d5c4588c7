"""The runs that bodies enter: written into the run above, shown below it, ended with it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from laneway import Effect, Engine, State, ToolContext, tool
from laneway.engine.cli.app import app
from laneway.engine.cli.shown import show_run
from laneway.engine.cli.tree import tree_lines
from laneway.engine.probing import Found
from laneway.engine.run import Run
from laneway.errors import DamagedJournalError
from laneway.facts import CallStarted, ChildEntered, Row, RunOpened
from laneway.ids import CallId, RunId
from laneway.journal.fold import RunView, fold
from laneway.journal.memory import MemoryStore
from laneway.journal.sqlite import SqliteStore
from laneway.testing import Log, Raise, Return, Sleep, Stage
from laneway.testing.theatre import RUN, Theatre, plan, states, values

OUTER = plan({"id": "o", "tool": "outer"})


def child(number: int, above: str = "r/t1.1") -> RunId:
    return RunId(f"{above}/{number}")


def view_of(theatre: Theatre, run: RunId) -> RunView:
    return fold(run, theatre.journal.facts[run])


def stops(theatre: Theatre) -> Any:
    """Die half a second after the turn has begun."""

    async def host(run: Run) -> None:
        await run.submit(OUTER, wait=False)
        await asyncio.sleep(0.5)
        theatre.crash()

    return host


def outer_of(*inner: str, probe: Any = None) -> Any:
    @tool(effect=Effect.EXTERNAL, claims=[], timeout=100, reconcile=probe)
    async def outer(context: ToolContext) -> list[Any]:
        return await asyncio.gather(*(context.invoke(name) for name in inner))

    return outer


def test_each_run_that_a_body_enters_is_a_fact_of_its_call() -> None:
    stage = Stage()
    theatre = Theatre(stage, outer_of("one", "two"), stage.tool("one"), stage.tool("two"))

    theatre.play(OUTER)

    call = CallId("t1.1")
    assert theatre.kept(ChildEntered) == [
        ChildEntered(call=call, run=child(1)),
        ChildEntered(call=call, run=child(2)),
    ]
    assert view_of(theatre, RUN).calls[call].children == (child(1), child(2))
    for run in (child(1), child(2)):
        (opened,) = [
            row.fact for row in theatre.journal.facts[run] if isinstance(row.fact, RunOpened)
        ]
        assert opened.setting is None, "it is in the run above"


def test_a_run_that_the_host_opens_in_a_body_is_one_too() -> None:
    stage = Stage()
    engines: list[Engine] = []

    @tool(effect=Effect.EXTERNAL, claims=[])
    async def outer() -> int:
        for _ in range(2):
            async with engines[0].run("own") as run:
                await run.submit(plan({"id": "x", "tool": "inner"}))
        return 0

    async def main() -> tuple[RunId, ...]:
        async with Engine([outer, stage.tool("inner")]) as engine, engine.run("r") as run:
            engines.append(engine)
            turn = await run.submit(OUTER)
        return turn.calls[0].children

    assert asyncio.run(main()) == (RunId("own"),)


def test_the_fact_is_kept_no_later_than_the_first_of_the_run_below() -> None:
    stage = Stage()
    kept: list[tuple[str, str]] = []

    class Watching(MemoryStore):
        def commit(self, batch: Any, /) -> Any:
            kept.extend((row.run, type(row.fact).__name__) for row in batch)
            return super().commit(batch)

    theatre = Theatre(stage, outer_of("one"), stage.tool("one"))

    theatre.enter(lambda run: run.submit(OUTER), journal=Watching(theatre.journal))

    entered = kept.index(("r", "ChildEntered"))
    assert entered < kept.index(("r/t1.1/1", "RunOpened"))


def test_a_body_that_is_entered_again_names_its_runs_once() -> None:
    stage = Stage()

    @tool(effect=Effect.WRITE, idempotent=True, claims=[], timeout=100)
    async def outer(context: ToolContext) -> Any:
        return await context.invoke("one")

    theatre = Theatre(stage, outer, stage.tool("one", Sleep(5), Return(1)))
    theatre.enter(stops(theatre))

    turn = theatre.finish()

    assert values(turn) == {"o": 1}
    assert theatre.kept(ChildEntered) == [ChildEntered(call=CallId("t1.1"), run=child(1))]


# Settled above, ended below


def crashed(*tools: Any, inner: tuple[str, ...], probe: Any = None) -> Theatre:
    theatre = Theatre(Stage(), outer_of(*inner, probe=probe), *tools)
    theatre.enter(stops(theatre))
    return theatre


def tools_of(stage: Stage) -> list[Any]:
    return [
        stage.tool("write", Sleep(9), effect=Effect.WRITE, claims=["write file:/w/a"]),
        stage.tool("read", Sleep(9), claims=["read file:/w/a"]),
        stage.tool("ask", approval=True, effect=Effect.EXTERNAL),
        stage.tool("deep", Sleep(9)),
        outer_named("middle", "deep"),
    ]


def outer_named(name: str, inner: str) -> Any:
    async def middle(context: ToolContext) -> Any:
        return await context.invoke(inner)

    return tool(middle, name=name, effect=Effect.EXTERNAL, claims=[], timeout=100)


def states_below(theatre: Theatre, above: str = "r/t1.1") -> list[State]:
    found: list[State] = []
    for name, rows in sorted(theatre.journal.facts.items()):
        if name.startswith(f"{above}/"):
            view = fold(name, rows)
            assert view.open_turn is None, name
            found += [call.state for call in view.calls.values()]
    return found


def ends_below(theatre: Theatre) -> None:
    """What was running is not known; what waited is cancelled; deeper down as well."""
    assert states_below(theatre) == [
        State.UNCERTAIN,  # write
        State.CANCELLED,  # read: it waited for the file, or was to be run again
        State.CANCELLED,  # ask
        State.UNCERTAIN,  # middle
        State.CANCELLED,  # deep, which changes nothing and would have been run again
    ]


INNER = ("write", "read", "ask", "middle")


def test_settling_a_call_ends_what_a_crash_left_open_below_it() -> None:
    theatre = crashed(*tools_of(Stage()), inner=INNER)

    async def host(run: Run) -> None:
        await run.settle("o", value="done by hand")

    theatre.enter(host)

    ends_below(theatre)
    view = view_of(theatre, child(3))
    (ask,) = view.calls.values()
    assert ask.outcome is not None
    assert "cancelled: the call that asked for it has ended" in str(ask.outcome)


def test_a_probe_that_knows_ends_it_too() -> None:
    async def probe() -> Found:
        return Found.happened("found")

    theatre = crashed(*tools_of(Stage()), inner=INNER, probe=probe)

    turn = theatre.finish()

    assert values(turn) == {"o": "found"}
    ends_below(theatre)


def test_so_does_the_end_of_the_turn_for_a_call_of_which_nobody_knows() -> None:
    theatre = crashed(*tools_of(Stage()), inner=INNER)

    async def host(run: Run) -> None:
        turn = run.open_turn
        assert turn is not None
        await turn.wait()
        assert states(turn) == {"o": State.UNCERTAIN}
        assert view_of(theatre, child(3)).open_turn is not None, "it may run again"
        await run.finish()

    theatre.enter(host)

    ends_below(theatre)


def test_a_call_that_runs_again_goes_on_with_its_runs() -> None:
    stage = Stage()
    theatre = crashed(
        stage.tool("write", Sleep(9), effect=Effect.WRITE),
        stage.tool("read", Sleep(1), Return("seen")),
        inner=("read",),
    )

    async def host(run: Run) -> Any:
        await run.settle("o", again=True)
        return await run.finish()

    turn = theatre.enter(host)

    assert values(turn) == {"o": ["seen"]}
    assert states_below(theatre) == [State.SUCCEEDED]


def test_what_somebody_drives_or_nobody_can_read_is_left_alone() -> None:
    theatre = crashed(*tools_of(Stage()), inner=("write", "ask"))
    rows = theatre.journal.facts[child(1)]
    theatre.journal.facts[child(1)] = [*rows[:2], *rows[3:]]

    async def main(run: Run) -> None:
        engine = run._engine
        async with engine.run(child(2)) as other:
            await run.settle("o", value=1)
            assert other.open_turn is not None

    theatre.enter(main)

    assert view_of(theatre, child(2)).open_turn is not None


def test_a_run_of_which_nothing_was_kept_is_not_made() -> None:
    theatre = crashed(*tools_of(Stage()), inner=("write",))
    del theatre.journal.facts[child(1)]

    async def host(run: Run) -> None:
        await run.settle("o", value=1)

    theatre.enter(host)

    assert child(1) not in theatre.journal.facts


# Shown


def test_a_run_is_drawn_with_the_runs_below_its_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stage = Stage()
    tools = [
        outer_of("one", "middle"),
        outer_named("middle", "bad"),
        stage.tool("one", Return(1)),
        stage.tool("bad", Raise(ValueError("no such file"))),
        stage.tool("last", Log("last")),
    ]
    theatre = Theatre(stage, *tools, journal="laneway.db")
    theatre.play(plan({"id": "o", "tool": "outer"}, {"id": "l", "tool": "last"}))

    shown = CliRunner().invoke(app, ["show", "r"])

    lines = [line.split("  waited")[0].split("  took")[0] for line in shown.output.splitlines()]
    at = next(at for at, line in enumerate(lines) if "t1.1 outer" in line)
    drawn = lines[at:]
    assert drawn[0] == "   ├─ ✗ t1.1 outer  FAILED"
    below = "\n".join(drawn)
    assert "   │   ├─ run r/t1.1/1  ✓  1 call\n   │   │   └─ ✓ t1.1 one  SUCCEEDED\n" in below
    assert "   │   └─ run r/t1.1/2  ✗ some calls did not succeed  1 call\n" in below
    assert "   │       └─ ✗ t1.1 middle  FAILED\n" in below
    assert "   │           └─ run r/t1.1/2/t1.1/1  ✗ some calls did not succeed  1 call\n" in below
    assert "   │               └─ ✗ t1.1 bad  FAILED\n" in below
    assert "no such file" in below
    assert drawn[-1] == "   └─ ✓ t1.2 last  SUCCEEDED"
    assert CliRunner().invoke(app, ["show", "r", "--json"]).output.count('"run":') == 4


def test_a_run_below_that_cannot_be_read_does_not_hide_the_one_above() -> None:
    opened = Theatre(Stage(), outer_of("one"), Stage().tool("one"))
    opened.play(OUTER)
    rows: list[Row] = list(opened.journal.facts[RUN])

    shown = show_run("r", rows, {child(1): ()})

    assert any("run r/t1.1/1  nothing of it can be read" in line for line in tree_lines(shown))
    assert show_run("r", rows).turns[0].calls[0].runs == []
    assert sum(isinstance(row.fact, CallStarted) for row in rows) == 1


def test_a_damaged_run_below_and_a_probe_that_knew_nothing_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def probe() -> Found:
        return Found.unknown("closed")

    stage = Stage()
    tools = [outer_of("one", probe=probe), stage.tool("one")]
    theatre = Theatre(stage, *tools, journal="laneway.db")
    theatre.play(OUTER)

    async def damaged(self: SqliteStore, run: RunId) -> Any:
        if run == child(1):
            raise DamagedJournalError(run, 2, "it is gone")
        return await read(self, run)

    read = SqliteStore.read
    monkeypatch.setattr(SqliteStore, "read", damaged)
    shown = CliRunner().invoke(app, ["show", "r"])

    assert shown.exit_code == 0
    assert "run r/t1.1/1  nothing of it can be read" in shown.output

    uncertain = crashed(stage.tool("two", Sleep(9)), inner=("two",), probe=probe)
    uncertain.finish()
    lines = list(tree_lines(show_run("r", uncertain.journal.facts[RUN])))
    assert any("asked what became of it, its probe said: unknown" in line for line in lines)
