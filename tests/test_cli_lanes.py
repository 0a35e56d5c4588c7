"""`laneway lanes`: who holds what in engines that are at work, seen from another process."""

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from laneway import Engine
from laneway.calls import CallRecord
from laneway.claims import Claim, exclusive, shared
from laneway.engine.cli.app import app
from laneway.engine.cli.lanes import shown_lanes
from laneway.engine.cli.lanes_shown import ShownHolder, ShownLanes, ShownWaiter
from laneway.engine.cli.lanes_table import next_look, table_lines, watch_lanes
from laneway.engine.cli.leased import LeasedRun
from laneway.engine.cli.plans import RESUME_WITH
from laneway.facts import (
    CallEnded,
    CallJoined,
    CallQueued,
    CallStarted,
    Driver,
    Fact,
    Row,
    RunOpened,
    TurnSubmitted,
)
from laneway.ids import CallId, RunId
from laneway.journal.lease import this_driver
from laneway.outcomes import Code, Failure
from laneway.states import State

SRC = Path(__file__).resolve().parent.parent / "src"
HANG_SECONDS = 60

CHILD = """
import asyncio, sys
from laneway import Effect, Engine, Limits, tool

gate = None

@tool(effect=Effect.EXTERNAL, claims=["lane:mail"], timeout=None)
async def send(to: str) -> str:
    await gate.wait()
    return "sent"

@tool(effect=Effect.WRITE, claims=["write file:{path}"], timeout=None)
async def edit(path: str) -> str:
    await gate.wait()
    return "edited"

@tool(effect=Effect.WRITE, claims=["lane:press"], timeout=0.01)
async def jam() -> str:
    while not gate.is_set():
        try:
            await gate.wait()
        except asyncio.CancelledError:
            pass
    return "at last"

async def until(true):
    while not true():
        await asyncio.sleep(0.001)

async def main():
    global gate
    gate = asyncio.Event()
    limits = Limits(call_seconds=3600, turn_seconds=3600, grace_seconds=0.01)
    engine = Engine([send, edit, jam], journal=sys.argv[1], workspace="/", limits=limits)
    async with engine, engine.run("one") as one, engine.run("two") as two:
        first = await one.submit({"calls": [
            {"id": "a", "tool": "send", "arguments": {"to": "a"}},
            {"id": "b", "tool": "send", "arguments": {"to": "b"}},
            {"id": "c", "tool": "jam", "arguments": {}},
            {"id": "d", "tool": "edit", "arguments": {"path": "/w/x"}, "needs": ["a"]},
        ]}, wait=False)
        second = await two.submit({"calls": [
            {"id": "e", "tool": "send", "arguments": {"to": "c"}},
            {"id": "f", "tool": "edit", "arguments": {"path": "/w"}},
        ]}, wait=False)
        await until(lambda: first.call("c").outcome is not None)
        await until(lambda: first.call("a").state == second.call("f").state == "RUNNING")
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        gate.set()
        await first.wait()
        await second.wait()

asyncio.run(main())
"""


@contextmanager
def child(journal: Path) -> Generator["subprocess.Popen[str]"]:
    """A process with two runs whose calls wait; a line on its input lets them end."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")},
        "PYTHONPATH": str(SRC),
    }
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(journal)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def laneway(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["lanes", *arguments])


def seen(journal: Path, *arguments: str) -> dict[str, Any]:
    result = laneway("--journal", str(journal), "--json", *arguments)
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def lane(document: dict[str, Any], resource: str) -> dict[str, Any]:
    (engine,) = document["engines"]
    found: dict[str, Any] = next(one for one in engine["lanes"] if one["resource"] == resource)
    return found


def calls(standing: Sequence[dict[str, Any]]) -> list[str]:
    return [one["call"] for one in standing]


# A second process


def test_holders_waiters_and_stuck_calls_of_another_process_are_shown(tmp_path: Path) -> None:
    journal = tmp_path / "laneway.db"

    with child(journal) as process:
        document = seen(journal)
        drawn = laneway("--journal", str(journal)).stdout
        process.communicate("\n", timeout=HANG_SECONDS)

    (engine,) = document["engines"]
    mail, press = lane(document, "lane:mail"), lane(document, "lane:press")
    assert engine["pid"] == process.pid
    assert engine["runs"] == ["one", "two"]
    assert calls(mail["holders"]) == ["one/t1.1"]
    assert calls(mail["waiters"]) == ["one/t1.2", "two/t1.1"]
    assert mail["max_concurrent"] is None
    assert mail["waiters"][1]["waits_for"] == [
        {"resource": "lane:mail", "call": "one/t1.1", "holding": True, "certain": True}
    ]
    assert [(one["call"], one["state"], one["stuck"]) for one in press["holders"]] == [
        ("one/t1.3", "TIMED_OUT", True)
    ]
    assert calls(lane(document, "file:/w")["holders"]) == ["two/t1.2"]
    assert "one/t1.4" not in drawn, "what waits for another call stands in no lane"
    assert "stuck: it ended TIMED_OUT, and its body has not stopped" in drawn
    assert document["gone"] == []
    assert process.returncode == 0, "nobody was disturbed"


def test_looking_at_a_journal_that_nobody_drives_leaves_no_trace(tmp_path: Path) -> None:
    journal = tmp_path / "laneway.db"
    with child(journal) as process:
        process.communicate("\n", timeout=HANG_SECONDS)
    before = journal.read_bytes()

    result = laneway("--journal", str(journal))

    assert result.stdout == f"no engine is at work on {journal}\n"
    assert [file.name for file in tmp_path.iterdir()] == ["laneway.db"]
    assert journal.read_bytes() == before


def test_what_a_dead_process_left_is_shown_apart(tmp_path: Path) -> None:
    journal = tmp_path / "laneway.db"
    with child(journal) as process:
        process.kill()
        process.wait(HANG_SECONDS)

        document = seen(journal)
        of_two = seen(journal, "--run", "two")
        drawn = laneway("--journal", str(journal)).stdout

    assert document["engines"] == []
    assert [(one["run"], one["call"], one["state"]) for one in document["gone"]] == [
        ("one", "t1.1", "RUNNING"),
        ("one", "t1.2", "QUEUED"),
        ("two", "t1.1", "QUEUED"),
        ("two", "t1.2", "RUNNING"),
    ]
    assert {one["run"] for one in of_two["gone"]} == {"two"}
    assert f"left by a process that is gone ({process.pid} on " in drawn
    assert "  ▶ t1.1 send  RUNNING  shared run:one, exclusive lane:mail" in drawn


# The picture


def test_calls_of_several_runs_wait_in_the_order_in_which_they_were_queued() -> None:
    one = leased("one", queued("a", MAIL), started("a"), queued("c", MAIL), wall=[1, 2, 30])
    two = leased("two", queued("b", MAIL), wall=[20])

    mail = picture(one, two).engines[0].lanes[0]

    assert [holder.call for holder in mail.holders] == ["one/a"]
    assert [waiter.call for waiter in mail.waiters] == ["two/b", "one/c"]
    assert [waiter.since_wall for waiter in mail.waiters] == [20, 30]
    assert [[one.call for one in waiter.waits_for] for waiter in mail.waiters] == [
        ["one/a"],
        ["one/a"],
    ]


def test_the_order_within_a_run_is_its_own_whatever_the_wall_clock_did() -> None:
    run = leased("r", queued("a", MAIL), started("a"), queued("b", MAIL), queued("c", MAIL))
    turned_back = [row if row.seq < 6 else with_wall(row, -100.0) for row in run.rows]

    mail = picture(LeasedRun(run.run, run.driver, 0.0, turned_back)).engines[0].lanes[0]

    assert [waiter.call for waiter in mail.waiters] == ["r/b", "r/c"]


def test_each_process_has_lanes_of_its_own() -> None:
    other = Driver(host="elsewhere", boot="b", pid=7, started="1", namespace="n")
    one = leased("one", queued("a", MAIL), started("a"))
    two = leased("two", queued("b", MAIL), started("b"), driver=other)

    here, there = picture(one, two).engines

    assert [holder.call for holder in here.lanes[0].holders] == ["one/a"]
    assert [holder.call for holder in there.lanes[0].holders] == ["two/b"]
    assert (there.host, there.pid, there.runs) == ("elsewhere", 7, ("two",))


def test_a_driver_that_cannot_be_looked_at_is_gone_when_it_has_been_silent_for_too_long() -> None:
    other = Driver(host="elsewhere", boot="b", pid=7, started="1", namespace="n")
    run = leased("r", queued("a", MAIL), started("a"), driver=other, wall=[1, 2])

    def silent(seconds: float) -> LeasedRun:
        return msgspec.structs.replace(run, silent_seconds=seconds)

    living = shown_lanes([silent(29.0)], now_wall=31.0)
    gone = shown_lanes([silent(31.0)], now_wall=31.0)

    assert [engine.pid for engine in living.engines] == [7]
    assert not living.gone
    assert not gone.engines
    assert [(left.call, left.claims) for left in gone.gone] == [("a", ("exclusive lane:mail",))]


def test_a_lane_of_unknown_limit_holds_as_many_as_are_in_it_and_is_only_perhaps_full() -> None:
    file = exclusive("file:/w")
    run = leased(
        "r",
        *(fact for name in "ab" for fact in (queued(name, MAIL), started(name))),
        queued("c", file),
        started("c"),
        queued("d", MAIL, file),
        queued("e", MAIL),
    )

    files, mail = picture(run).engines[0].lanes

    assert [holder.call for holder in mail.holders] == ["r/a", "r/b"]
    waiting = {waiter.call: waiter.waits_for for waiter in (*files.waiters, *mail.waiters)}
    assert [(one.call, one.holding, one.certain) for one in waiting["r/d"]] == [
        ("r/c", True, True),
        ("r/a", True, False),
    ]
    assert [(one.call, one.certain) for one in waiting["r/e"]] == [("r/a", True)]


def test_limits_that_laneway_run_was_given_are_known() -> None:
    settings = {"plan": {}, "tools": "t", "folder": ".", "workspace": ".", "lanes": {"mail": 3}}
    calls: list[Fact] = [fact for name in "abcd" for fact in (queued(name, MAIL), started(name))]

    run = leased(
        "r", *calls[:6], queued("d", MAIL), queued("e", MAIL, shared("file:/")), settings=settings
    )
    empty = leased("r", *calls[:2], queued("d", MAIL), settings=settings)
    strange = leased("r", *calls[:2], settings={"mail": 3})

    assert ["lane:mail", "3"] in [line.split()[:2] for line in drawn(picture(run)).splitlines()]
    full = picture(run).engines[0].lanes[1]
    assert full.max_concurrent == 3
    assert [waiter.call for waiter in full.waiters] == ["r/d", "r/e"]
    assert all(one.certain for waiter in full.waiters for one in waiter.waits_for)
    assert [one.waits_for for one in picture(empty).engines[0].lanes[0].waiters] == [()]
    assert picture(strange).engines[0].lanes[0].max_concurrent is None


def test_a_queued_call_in_whose_way_nobody_is_is_about_to_start() -> None:
    shown = picture(leased("r", queued("a", exclusive("file:/w"))))

    (lane,) = shown.engines[0].lanes
    (waiter,) = lane.waiters
    assert (waiter.call, waiter.waits_for, lane.holders) == ("r/a", (), ())
    assert "exclusive, starts next, or waits for what no journal tells" in drawn(shown)


def test_what_a_body_invokes_does_not_wait_for_its_own_call() -> None:
    file = exclusive("file:/w")
    outer = leased("r", queued("a", file), started("a"), queued("b", file))
    inner = leased("r/a/1", queued("c", file))
    stranger = leased("r/b/1", queued("d", file))

    (lane,) = picture(outer, inner, stranger).engines[0].lanes

    assert [holder.call for holder in lane.holders] == ["r/a"]
    assert [waiter.call for waiter in lane.waiters] == ["r/b", "r/a/1/c", "r/b/1/d"]
    assert [bool(waiter.waits_for) for waiter in lane.waiters] == [True, False, True]


def test_a_call_that_shares_the_success_of_another_stands_in_no_lane() -> None:
    follows = CallJoined(call=CallId("b"), leader="r/a")
    under_way: list[Fact] = [queued("a", MAIL), started("a"), queued("b", MAIL), follows]
    ended = CallEnded(
        call=CallId("a"), state=State.FAILED, outcome=Failure(code=Code.TOOL_ERROR, message="no")
    )

    (mail,) = picture(leased("r", *under_way)).engines[0].lanes
    (alone,) = picture(leased("r", *under_way, ended)).engines[0].lanes

    assert [*map(call_of, mail.holders), *map(call_of, mail.waiters)] == ["r/a"]
    assert [*map(call_of, alone.holders), *map(call_of, alone.waiters)] == ["r/b"]


def test_only_the_lanes_of_one_run_are_shown_where_it_is_named() -> None:
    press = exclusive("lane:press")
    one = leased("one", queued("a", MAIL), started("a"))
    two = leased("two", queued("b", MAIL), queued("c", press), started("c"))

    (engine,) = picture(one, two, run="one").engines

    (mail,) = engine.lanes
    assert mail.resource == "lane:mail"
    assert [waiter.call for waiter in mail.waiters] == ["two/b"]
    assert not picture(one, two, run="three").engines


# For people


def test_the_table_tells_limits_holders_waiters_and_since_when() -> None:
    run = leased(
        "r",
        queued("a", shared("run:r"), MAIL),
        started("a"),
        queued("b", shared("run:r"), MAIL),
        queued("c", shared("run:r"), shared("file:/w")),
        started("c"),
        wall=[1, 2, 3, 4, 5],
    )

    lines = list(table_lines(picture(run, now_wall=10.0), width=60))
    wide = drawn(picture(run, now_wall=10.0))

    assert "process" in lines[0]
    assert max(map(len, lines[1:])) <= 60
    assert [line.split() for line in wide.splitlines()[1:]] == [
        ["lane", "limit", "call", "tool", "since"],
        ["file:/w", "▶", "r/c", "tool_c", "5.00", "s", "shared"],
        ["lane:mail", "?", "▶", "r/a", "tool_a", "8.00", "s"],
        [
            *("·", "r/b", "tool_b", "7.00", "s"),
            *("waits", "for", "lane:mail", "held", "by", "r/a"),
        ],
    ]


def test_a_run_whose_calls_wait_for_it_is_shown_in_the_table() -> None:
    alone = exclusive("run:r")
    run = leased("r", queued("a", shared("run:r")), started("a"), queued("b", alone))
    alone_in_it = leased("r", queued("a", alone), started("a"))

    assert "exclusive, waits for run:r held by r/a" in drawn(picture(run))
    assert "r/a   tool_a" in drawn(picture(alone_in_it))


def test_the_table_says_behind_whom_a_call_waits_and_what_is_not_certain() -> None:
    file = exclusive("file:/w")
    first: list[Fact] = [
        queued("a", MAIL),
        started("a"),
        queued("b", MAIL, file),
        queued("c", file, MAIL),
    ]

    told = drawn(picture(leased("r", *first)))

    assert "waits for lane:mail held by r/a\n" in told
    assert "file:/w behind r/b; lane:mail held by r/a, if it is full" in told


def test_an_engine_that_does_nothing_is_named_with_its_runs() -> None:
    told = drawn(picture(leased("one"), leased("two")))

    assert told.endswith("runs one, two\n  nobody holds a lane or waits for one")


def test_watching_shows_each_change_once_until_it_is_ended() -> None:
    busy = leased("r", queued("a", MAIL), started("a"))
    looks = [picture(busy, now_wall=float(at)) for at in range(3)] + [picture()]
    shown: list[ShownLanes] = []
    pending = iter(looks)

    watch_lanes(lambda: next(pending), shown.append, lambda: len(shown) < 2, clear=False)

    assert shown == [looks[0], looks[3]]


def test_on_a_terminal_each_picture_takes_the_place_of_the_last(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown: list[ShownLanes] = []

    watch_lanes(picture, shown.append, lambda: len(shown) < 3, clear=True)

    assert len(shown) == 3
    assert capsys.readouterr().out == "\x1b[H\x1b[2J" * 3


def test_the_next_look_is_a_second_later(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("laneway.engine.cli.lanes_table.sleep", slept.append)

    assert next_look()
    assert slept == [1.0]


def test_watching_ends_well_when_it_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt() -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr("laneway.engine.cli.app.next_look", interrupt)
    journal = written(tmp_path)

    result = laneway("--journal", str(journal), "--watch")

    assert result.exit_code == 0
    assert result.stdout == f"no engine is at work on {journal}\n"


def test_one_that_waits_for_what_no_journal_tells_holds_nothing_up_for_certain() -> None:
    shown = picture(
        leased("r", queued("a", exclusive("lane:api")), queued("b", exclusive("lane:api")))
    )

    (lane,) = shown.engines[0].lanes
    assert lane.holders == ()
    first, second = lane.waiters
    assert first.waits_for == ()
    assert [(one.call, one.holding, one.certain) for one in second.waits_for] == [
        ("r/a", False, False)
    ]
    assert "behind r/a, if it is full" in drawn(shown)


# Bad input


def test_a_journal_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    result = laneway("--journal", str(tmp_path / "none.db"))

    assert result.exit_code == 2
    assert result.stderr.startswith(f"laneway: there is no journal {tmp_path}/none.db; ")
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no journal, but long enough to be read as one")

    result = laneway("--journal", str(tmp_path / "text"))

    assert result.exit_code == 2
    assert "it is not an SQLite file" in result.stderr


def test_an_unknown_run_is_told_with_those_that_there_are(tmp_path: Path) -> None:
    result = laneway("--journal", str(written(tmp_path)), "--run", "q")

    assert result.exit_code == 2
    assert result.stderr == "laneway: the journal has no run 'q' (runs: r)\n"


def test_watching_and_json_are_not_for_the_same_reader(tmp_path: Path) -> None:
    result = laneway("--journal", str(written(tmp_path)), "--watch", "--json")

    assert result.exit_code == 2
    assert "--watch shows lanes to people" in result.stderr


def test_a_lease_that_cannot_be_read_is_told_with_its_run(tmp_path: Path) -> None:
    journal = written(tmp_path, "UPDATE runs SET driver = '{}'")

    result = laneway("--journal", str(journal))

    assert result.exit_code == 2
    assert "run 'r': its lease cannot be read" in result.stderr


def test_a_damaged_file_is_told_with_the_way_out(tmp_path: Path) -> None:
    journal = written(tmp_path, "DROP VIEW journal", "DROP TABLE facts")

    result = laneway("--journal", str(journal))

    assert result.exit_code == 2
    assert (
        f"journal {journal} could not be read (OperationalError: no such table: " in result.stderr
    )


# Made here

MAIL = exclusive("lane:mail")


def queued(call: str, *claims: Claim) -> CallQueued:
    return CallQueued(call=CallId(call), rule="", claims=claims)


def started(call: str) -> CallStarted:
    return CallStarted(call=CallId(call), attempt=1, token=1)


def leased(
    name: str,
    *facts: Fact,
    wall: Sequence[float] = (),
    driver: Driver | None = None,
    settings: Any = None,
) -> LeasedRun:
    """A run of one turn with the calls that the facts tell of.

    With settings it was begun by `laneway run`.
    """
    run, driver = RunId(name), driver or this_driver()
    known = dict.fromkeys(fact.call for fact in facts if isinstance(fact, CallQueued))
    records = tuple(CallRecord(id=call, provider_id=call, tool=f"tool_{call}") for call in known)
    before: list[Fact] = [
        RunOpened(
            run=run,
            driver=driver,
            resume_with=RESUME_WITH if settings else "",
            settings=settings,
        ),
        TurnSubmitted(turn=1, provider="plan", message={}, calls=records),
    ]
    walls = [0.0, 0.0, *(wall or [0.0] * len(facts))]
    rows = [
        Row(run, seq, at, at, fact)
        for seq, (fact, at) in enumerate(zip([*before, *facts], walls, strict=True), 1)
    ]
    return LeasedRun(run, driver, 0.0, rows)


def with_wall(row: Row, wall: float) -> Row:
    return Row(row.run, row.seq, wall, row.mono, row.fact)


def picture(*runs: LeasedRun, run: str = "", now_wall: float = 0.0) -> ShownLanes:
    return shown_lanes(runs, run, journal="j", now_wall=now_wall)


def call_of(one: ShownHolder | ShownWaiter) -> str:
    return one.call


def drawn(shown: ShownLanes) -> str:
    return "\n".join(table_lines(shown))


def written(folder: Path, *statements: str) -> Path:
    """A journal with a run `r` that nobody drives, after what was done to the file."""
    path = folder / "laneway.db"

    async def main() -> None:
        async with Engine(journal=path) as engine, engine.run("r"):
            pass

    asyncio.run(main())
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return path
