"""`laneway settle`, and what `Run.settle` shares with it: a human decides what became of a call."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from laneway import Effect, State, ToolContext, plan_tool, tool
from laneway.engine.cli.app import app
from laneway.engine.cli.commands.settle import write_down
from laneway.engine.run import Run
from laneway.errors import RunOwnedError, UnknownCallError, UsageError
from laneway.facts import CallEnded, CallReopened, CallSettled, Driver, RunTaken
from laneway.ids import CallId, RunId
from laneway.journal.fold import RunView, fold
from laneway.journal.sqlite import SqliteStore
from laneway.policies.modes import Mode
from laneway.policies.rules import Policy
from laneway.testing import Log, Raise, Return, Sleep, Stage
from laneway.testing.scripted import Do
from laneway.testing.theatre import RUN, Theatre, plan, states, values

LOST = ConnectionError("reply lost")


def call(id_: str, tool_: str, **more: Any) -> dict[str, Any]:
    return {"id": id_, "tool": tool_, **more}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "laneway.db"


def laneway(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def crashed(stage: Stage, file: Path, *tools: Any, **options: Any) -> None:
    """A run in which `pay` was running and `tell` waited for it when the process died."""
    theatre = Theatre(stage, *tools)

    async def host(run: Run) -> None:
        reply = plan(call("p", "pay"), call("t", "tell", needs=["p"]))
        await run.submit(reply, wait=False)
        await asyncio.sleep(0.5)
        theatre.crash()

    theatre.enter(host, **options)
    asyncio.run(lay_down(file, theatre.journal.facts))


async def lay_down(file: Path, runs: Any) -> None:
    """Write runs into a file as a process would have left them that is dead."""
    store = SqliteStore(file)
    await store.open()
    for run, rows in runs.items():
        await store.take(run, DEAD)
        await store.commit(rows)
        await store.leave(run)
    await store.close()


DEAD = Driver(host="elsewhere", boot="before", pid=1, started="0")


def view_of(file: Path, run: str = "r") -> RunView:
    async def read() -> RunView:
        store = SqliteStore(file)
        await store.open()
        try:
            return fold(RunId(run), await store.read(RunId(run)))
        finally:
            await store.close()

    return asyncio.run(read())


def tools_of(stage: Stage) -> list[Any]:
    return [
        stage.tool("pay", Log("pay"), Sleep(9), Return("paid"), effect=Effect.EXTERNAL),
        stage.tool("tell", Log("tell"), Return("told")),
    ]


def finished(stage: Stage, file: Path) -> Any:
    return Theatre(stage, *tools_of(stage), journal=str(file)).finish()


def test_a_value_settles_the_call_that_a_crash_left_and_nothing_is_started(here: Path) -> None:
    stage = Stage()
    crashed(stage, here, *tools_of(stage))

    told = laneway("settle", "r", "p", "--value", '{"receipt": 7}', "--by", "ann")

    assert told.exit_code == 0, told.output
    assert told.output == 't1.1 pay  SUCCEEDED  {"receipt": 7}\n'
    view = view_of(here)
    assert view.calls[next(iter(view.calls))].by == "ann"
    assert [one.state for one in view.calls.values()] == [State.SUCCEEDED, State.PENDING]
    assert stage.log == ["pay"]
    turn = finished(stage, here)
    assert values(turn) == {"p": {"receipt": 7}, "t": "told"}
    assert stage.log == ["pay", "tell"]


def test_a_failure_skips_what_needs_the_call(here: Path) -> None:
    stage = Stage()
    crashed(stage, here, *tools_of(stage))

    told = laneway("settle", "r", "t1.1", "--failure", "the bank never saw it", "--json")

    shown = json.loads(told.output)
    assert (shown["call"], shown["state"], shown["ended"]) == ("t1.1", "FAILED", [])
    assert "the bank never saw it" in shown["outcome"]["message"]
    assert shown["by"]
    assert states(finished(stage, here)) == {"p": State.FAILED, "t": State.SKIPPED}


def test_a_call_that_did_nothing_runs_again_when_the_run_is_resumed(here: Path) -> None:
    stage = Stage()
    crashed(stage, here, *tools_of(stage))

    told = laneway("settle", "r", "p", "--again")

    assert told.output == (
        "t1.1 pay  BACKING_OFF  it did nothing, and runs again when the run is resumed\n"
    )
    assert stage.log == ["pay"]
    turn = finished(stage, here)
    assert values(turn) == {"p": "paid", "t": "told"}
    assert stage.log == ["pay", "pay", "tell"]
    shown = laneway("show", "r").output
    assert "run again, as it did nothing; says " in shown


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "(none of them was given)"),
        (("--value", "1", "--again"), "(2 of them were given)"),
        (("--value", "1", "--failure", "x", "--again"), "(3 of them were given)"),
        (("--value", "paid"), "--value paid: this is no JSON"),
    ],
)
def test_exactly_one_thing_is_said_and_a_value_is_json(
    here: Path, arguments: tuple[str, ...], told: str
) -> None:
    stage = Stage()
    crashed(stage, here, *tools_of(stage))
    before = view_of(here).seq

    refused = laneway("settle", "r", "p", *arguments)

    assert refused.exit_code == 2
    assert told in refused.stderr
    assert view_of(here).seq == before


def test_an_unknown_call_is_told_what_could_be_settled_and_nothing_is_written(here: Path) -> None:
    stage = Stage()
    crashed(stage, here, *tools_of(stage))
    before = view_of(here).seq

    refused = laneway("settle", "r", "nobody", "--again")

    assert refused.exit_code == 2
    assert refused.stderr == (
        "laneway: run 'r' has no call 'nobody' whose effect is unknown (could be settled: "
        "t1.1 = p of pay)\n"
    )
    assert view_of(here).seq == before
    assert laneway("settle", "r", "p", "--value", "1").exit_code == 0
    again = laneway("settle", "r", "p", "--value", "2")
    assert "(nothing in it is left to be settled)" in again.stderr


def test_a_run_that_is_not_there_is_not_made(here: Path) -> None:
    stage = Stage()
    crashed(stage, here, *tools_of(stage))

    refused = laneway("settle", "other", "p", "--again")

    assert refused.exit_code == 2
    assert "the journal has no run 'other' (runs: r)" in refused.stderr
    assert "has no run 'other'" in laneway("show", "other").stderr


def test_a_run_that_is_driven_is_not_settled_from_outside(here: Path) -> None:
    stage = Stage()
    crashed(stage, here, *tools_of(stage))

    async def host(run: Run) -> Result:
        return await asyncio.to_thread(laneway, "settle", "r", "p", "--again")

    refused = Theatre(stage, *tools_of(stage), journal=str(here)).enter(host)

    assert refused.exit_code == 2
    assert "is driven by this very process" in refused.stderr


def test_a_mode_of_the_hosts_own_stays_as_it_is(here: Path) -> None:
    """The command line has no policy, and need not know its modes."""
    stage = Stage()
    policy = Policy(modes=[Mode("careful")])
    crashed(stage, here, *tools_of(stage), policy=policy, run={"mode": "careful"})

    assert laneway("settle", "r", "p", "--value", "1").exit_code == 0

    assert view_of(here).mode == "careful"


def test_a_settlement_from_outside_finds_no_changes_of_tools(here: Path) -> None:
    stage = Stage()
    crashed(stage, here, *tools_of(stage))
    before = view_of(here).setting

    laneway("settle", "r", "p", "--value", "1")

    view = view_of(here)
    assert view.setting == before
    assert view.changes == ()


def test_after_the_turn_is_closed_a_settlement_is_a_note_and_again_is_refused(here: Path) -> None:
    stage = Stage()
    crashed(stage, here, *tools_of(stage))
    finished(stage, here)

    refused = laneway("settle", "r", "p", "--again")
    assert laneway("settle", "r", "p", "--value", '"found"').exit_code == 0

    assert refused.exit_code == 2
    assert "call 'p' of run 'r' is UNCERTAIN for good, and is not run again" in refused.stderr

    async def history(run: Run) -> list[dict[str, Any]]:
        return run.history()

    told = Theatre(stage, *tools_of(stage), journal=str(here)).enter(history)
    assert "[Note on the call p of pay: it did happen, with the result: found]" in str(told)


# Run.settle


def lost(stage: Stage) -> Any:
    def once(_: Any) -> None:
        if stage.entered["pay"] == 1:
            raise LOST

    return stage.tool("pay", Log("pay"), Do(once), Return("paid"), effect=Effect.EXTERNAL)


def test_again_runs_the_call_and_what_needs_it_while_its_turn_is_open() -> None:
    stage = Stage()
    theatre = Theatre(stage, lost(stage), stage.tool("tell", Log("tell")))

    async def host(run: Run) -> None:
        turn = await run.submit(plan(call("p", "pay"), call("t", "tell", needs=["p"])), wait=False)
        await turn.wait()
        assert states(turn) == {"p": State.UNCERTAIN, "t": State.PENDING}
        await run.settle("p", again=True, by="ann")
        await turn.wait()
        assert turn.ready
        assert values(turn) == {"p": "paid", "t": None}

    theatre.enter(host)

    assert stage.log == ["pay", "pay", "tell"]
    assert theatre.kept(CallReopened)[0].by == "ann"


def test_what_comes_after_a_call_that_runs_again_waits_for_it_once_more() -> None:
    """It had been let go for one of its sources, and still waited for the other."""
    stage = Stage()
    theatre = Theatre(
        stage,
        lost(stage),
        stage.tool("slow", Sleep(5), Log("slow")),
        stage.tool("tell", Log("tell")),
    )

    async def host(run: Run) -> None:
        after = call("t", "tell", after=["p", "s"])
        turn = await run.submit(plan(call("p", "pay"), call("s", "slow"), after), wait=False)
        await asyncio.sleep(1)
        await run.settle("p", again=True)
        await turn.wait()

    theatre.enter(host)

    assert stage.log == ["pay", "pay", "slow", "tell"]


@pytest.mark.parametrize("more", [{}, {"value": 1, "again": True}, {"failure": "x", "value": None}])
def test_a_host_says_exactly_one_thing(more: dict[str, Any]) -> None:
    stage = Stage()
    theatre = Theatre(stage, lost(stage))

    async def host(run: Run) -> None:
        await run.submit(plan(call("p", "pay")))
        with pytest.raises(UsageError, match="say one thing of 'p': value= if it happened"):
            await run.settle("p", **more)

    theatre.enter(host)

    assert not theatre.kept(CallSettled)


def test_what_is_known_is_not_run_again() -> None:
    stage = Stage()
    theatre = Theatre(
        stage,
        stage.tool("slow", Sleep(9), effect=Effect.EXTERNAL, timeout=1),
        stage.tool("look", Return(1)),
        stage.tool("wait", Sleep(5)),
    )

    async def host(run: Run) -> None:
        await run.submit(plan(call("s", "slow"), call("l", "look"), call("w", "wait")), wait=False)
        await asyncio.sleep(2)
        with pytest.raises(UsageError, match=r"call 's' of run 'r' ended TIMED_OUT for good, and"):
            await run.settle("s", again=True)
        with pytest.raises(
            UnknownCallError, match=r"'l' whose effect is unknown \(could be .*s of"
        ):
            await run.settle("l", again=True)
        await run.finish()

    theatre.enter(host)

    assert not theatre.kept(CallReopened)


def test_a_call_is_not_run_again_while_its_turn_is_being_closed() -> None:
    stage = Stage()
    theatre = Theatre(
        stage, stage.tool("pay", Raise(LOST), effect=Effect.EXTERNAL), stage.tool("slow", Sleep(5))
    )

    async def host(run: Run) -> None:
        turn = await run.submit(
            plan(
                call("p", "pay"),
                call("t", "slow", needs=["p"]),
                call("s", "slow", after=["t"]),
            ),
            wait=False,
        )
        closing = asyncio.create_task(turn.close())
        await asyncio.sleep(1)
        with pytest.raises(UsageError, match="'p' is not run again: its turn is being closed"):
            await run.settle("p", again=True)
        await closing
        assert turn.ready

    theatre.enter(host)


def test_a_call_whose_plan_has_told_of_it_is_not_run_again() -> None:
    stage = Stage()
    theatre = Theatre(
        stage,
        plan_tool(),
        stage.tool("pay", Raise(LOST), effect=Effect.EXTERNAL),
        stage.tool("slow", Sleep(5)),
    )
    asked = {"id": "all", "tool": "plan", "arguments": {"calls": [call("p", "pay", arguments={})]}}

    async def host(run: Run) -> None:
        await run.submit(plan(asked, call("s", "slow")), wait=False)
        await asyncio.sleep(1)
        with pytest.raises(UsageError, match=r"'all/p' of run 'r' is part of the plan t1\.1, "):
            await run.settle("all/p", again=True)
        await run.finish()

    theatre.enter(host)


def test_a_call_of_a_plan_that_has_told_is_refused_from_outside_too(here: Path) -> None:
    stage = Stage()
    tools = [
        plan_tool(),
        stage.tool("pay", Raise(LOST), effect=Effect.EXTERNAL),
        stage.tool("slow", Sleep(5)),
    ]
    theatre = Theatre(stage, *tools)
    asked = {"id": "all", "tool": "plan", "arguments": {"calls": [call("p", "pay", arguments={})]}}

    async def host(run: Run) -> None:
        await run.submit(plan(asked, call("s", "slow")), wait=False)
        await asyncio.sleep(1)
        theatre.crash()

    theatre.enter(host)
    asyncio.run(lay_down(here, theatre.journal.facts))

    refused = laneway("settle", "r", "all/p", "--again")
    told = laneway("settle", "r", "all/p", "--failure", "no such account")

    assert "is part of the plan t1.1, which has told already" in refused.stderr
    assert told.exit_code == 0
    view = view_of(here)
    assert view.calls[next(reversed([c for c in view.calls if "/" in c]))].state is State.FAILED
    assert "no such account" in str(view.conversation[-1])


def test_two_settle_one_run_and_one_of_them_is_refused(here: Path) -> None:
    stage = Stage()
    crashed(stage, here, *tools_of(stage))

    async def both() -> list[object]:
        return await asyncio.gather(
            *(write_down(here, RUN, "p", None, by) for by in ("ann", "bob")),
            return_exceptions=True,
        )

    results = asyncio.run(both())

    assert any(isinstance(one, (RunOwnedError, UnknownCallError)) for one in results)
    view = view_of(here)
    assert [one.state for one in view.calls.values()] == [State.BACKING_OFF, State.PENDING]


def test_who_took_the_run_up_to_settle_it_is_in_the_journal(here: Path) -> None:
    stage = Stage()
    crashed(stage, here, *tools_of(stage))

    laneway("settle", "r", "p", "--value", "1")

    async def read() -> list[Any]:
        store = SqliteStore(here)
        await store.open()
        try:
            return [row.fact for row in await store.read(RUN)][-3:]
        finally:
            await store.close()

    assert [type(fact) for fact in asyncio.run(read())] == [RunTaken, CallEnded, CallSettled]


def test_runs_within_the_call_are_told_of_and_a_nameless_user_says_nothing(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage()

    @tool(name="pay", effect=Effect.EXTERNAL, claims=[])
    async def pay(context: ToolContext) -> Any:
        return await context.invoke("slow")

    def nobody() -> str:
        raise KeyError

    monkeypatch.setattr("getpass.getuser", nobody)
    crashed(stage, here, pay, stage.tool("slow", Sleep(9)), stage.tool("tell"))

    told = laneway("settle", "r", "p", "--value", "1")

    assert told.output == ("t1.1 pay  SUCCEEDED  1\n  r/t1.1/1 was open within it, and is ended\n")
    assert view_of(here).calls[CallId("t1.1")].by == ""
    (inner,) = view_of(here, "r/t1.1/1").calls.values()
    assert inner.state is State.CANCELLED


def test_what_could_be_settled_is_listed_up_to_a_point() -> None:
    stage = Stage()
    theatre = Theatre(stage, stage.tool("pay", Raise(LOST), effect=Effect.EXTERNAL))

    async def host(run: Run) -> None:
        await run.submit(plan(*(call(f"p{n}", "pay") for n in range(11))))
        with pytest.raises(UnknownCallError, match=r"t1\.4 = p3 of pay and 3 more\)"):
            await run.settle("x", value=1)

    theatre.enter(host)


def test_a_failure_that_was_settled_while_nobody_drove_the_run_is_shown(here: Path) -> None:
    stage = Stage()
    crashed(stage, here, *tools_of(stage))
    laneway("settle", "r", "p", "--failure", "declined", "--by", "ann")

    lines = laneway("show", "r").output.splitlines()

    assert any(line.endswith("  says ann") for line in lines)
    assert any("settled later: TOOL_ERROR: " in line and "declined" in line for line in lines)
