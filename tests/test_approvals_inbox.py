"""Answers from another process: put into the journal's inbox, taken up by the driver of the run."""

# How letters are taken up is looked at from within:
# pyright: reportPrivateUsage=false

import asyncio
import getpass
import json
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import pytest
from typer.testing import CliRunner

from laneway import Effect, Engine, Run, State, ToolContext, Turn, plan_tool, tool
from laneway.engine.cli.answering import Answer, answered
from laneway.engine.cli.app import app
from laneway.engine.cli.asked import became, open_approvals, send
from laneway.engine.cli.stores import PassingStore
from laneway.engine.inbox import take_up
from laneway.errors import JournalError, UnknownRunError
from laneway.facts import ApprovalAnswered
from laneway.ids import ApprovalId, RunId
from laneway.journal import heartbeat
from laneway.journal.fold import CallView
from laneway.journal.housekeeping import remove
from laneway.journal.inbox import Letter, SentAnswer, inbox_of, letters
from laneway.journal.memory import MemoryStore
from laneway.journal.sqlite import SqliteStore

HANG_SECONDS = 10.0
"""Ten times what a look at the inbox takes."""
RUN = RunId("ship")
ROOT = Path(__file__).parent.parent
T = TypeVar("T")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@tool(effect=Effect.EXTERNAL, approval=True, claims=["lane:ship"])
async def deploy(version: int) -> str:
    return f"deployed {version}"


@tool(effect=Effect.READ, claims=[])
async def look() -> str:
    return "seen"


@tool(effect=Effect.EXTERNAL, approval=True, approvers=2, claims=["lane:ship"])
async def launch(version: int) -> str:
    return f"launched {version}"


PLAN = {
    "calls": [
        {"id": "d", "tool": "deploy", "arguments": {"version": 1}},
        {"id": "l", "tool": "look", "arguments": {}, "after": ["d"]},
    ]
}


@tool(effect=Effect.READ, claims=[])
async def outer(context: ToolContext) -> str:
    await context.invoke("deploy", version=5)
    return "done"


def drive(path: Path, host: Callable[[Run], Awaitable[T]], *, journal: Any = None) -> T:
    async def main() -> T:
        engine = Engine([deploy, look, launch, outer, plan_tool()], journal=journal or path)
        async with engine, engine.run(RUN) as run:
            return await asyncio.wait_for(host(run), HANG_SECONDS)

    return asyncio.run(main())


def parked(path: Path, plan: Any = PLAN) -> None:
    """Leave a run with an open question behind that nobody drives."""

    async def host(run: Run) -> None:
        await run.submit(plan, wait=False)
        await run.asked()

    drive(path, host)


def laneway(path: Path, *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, [*words, "--journal", str(path)])
    return done.exit_code, done.output + (done.stderr if done.exit_code == 2 else "")


def with_store(path: Path, act: Callable[[SqliteStore], Awaitable[T]]) -> T:
    async def main() -> T:
        store = SqliteStore(path)
        await store.open()
        try:
            return await act(store)
        finally:
            await store.close()

    return asyncio.run(main())


async def finish(run: Run) -> Turn:
    turn = await run.finish()
    assert turn is not None
    return turn


# Nobody drives the run


def test_an_answer_to_a_run_that_nobody_drives_lies_there_and_is_taken_up_first(
    path: Path,
) -> None:
    parked(path)
    (question,) = open_approvals(path)
    assert (question.call, question.tool, question.arguments) == ("t1.1", "deploy", {"version": 1})
    assert question.unblocks == ("t1.2",)

    code, said = laneway(
        path, "approve", "ship", "t1.1.a1", "--arguments", '{"version": 2}', "--by", "ann"
    )

    assert (code, said) == (
        0,
        "· answer 1 to ship t1.1.a1: not taken up yet; `laneway approvals --answers` tells\n",
    )
    assert open_approvals(path)[0].waiting_answers == ("granted by ann",)
    seen: list[Any] = []

    async def host(run: Run) -> Turn:
        seen.extend(run.approvals)
        return await finish(run)

    turn = drive(path, host)
    assert seen == []
    outcome: Any = turn.call("d").outcome
    assert outcome.value == "deployed 2"
    assert laneway(path, "approvals", "--answers") == (0, "no answer lies in the inbox\n")
    assert laneway(path, "approvals") == (0, "nothing waits for a human\n")


def test_what_does_not_count_is_kept_with_the_reason_and_without_its_arguments(path: Path) -> None:
    parked(path)
    for words in (
        ["--arguments", '{"version": "x"}', "--by", "eve"],
        ["--by", "ann"],
        ["--by", "bob", "--reason", "too late"],
    ):
        assert laneway(path, "approve", "ship", "d", *words)[0] == 0

    turn = drive(path, finish)

    assert turn.call("d").rule == "approved by ann"
    unfit, late = with_store(path, SqliteStore.letters)
    assert unfit.answer.arguments is None
    assert "the changed arguments of t1.1 (deploy) cannot be used" in unfit.refused
    assert "it was granted by ann" in late.refused
    code, said = laneway(path, "approvals", "ship", "--answers")
    assert code == 0
    assert "3 ship t1.1.a1: granted by bob" in said
    assert "does not count" in said


def test_an_answer_that_was_a_fact_before_its_driver_died_counts_once(path: Path) -> None:
    parked(path, {"calls": [{"id": "d", "tool": "launch", "arguments": {"version": 1}}]})
    laneway(path, "approve", "ship", "d", "--by", "ann")

    class Dies(PassingStore):
        async def taken(self, number: int, refused: str = "", /) -> None:
            raise JournalError(f"died before it could remove {number} {refused}")

    async def host(run: Run) -> int:
        return len(run.approvals[0].answers)

    assert drive(path, host, journal=Dies(SqliteStore(path))) == 1
    assert len(with_store(path, SqliteStore.letters)) == 1
    assert drive(path, host) == 1
    assert list(with_store(path, SqliteStore.letters)) == []


def test_an_answer_binds_the_question_as_it_was_shown(path: Path) -> None:
    parked(path, {"calls": [{"id": "d", "tool": "launch", "arguments": {"version": 1}}]})
    laneway(path, "approve", "ship", "d", "--by", "ann")
    laneway(path, "approve", "ship", "d", "--by", "bob", "--arguments", '{"version": 2}')
    laneway(path, "approve", "ship", "d", "--by", "cyd")

    async def host(run: Run) -> list[str]:
        return [one.by for one in run.approvals[0].counted]

    assert drive(path, host) == ["bob"]
    (refused,) = with_store(path, SqliteStore.letters)
    assert refused.answer.by == "cyd"
    assert "it was changed by bob since" in refused.refused
    (question,) = open_approvals(path)
    assert (question.approvers, question.granted_by, question.changed) == (2, ("bob",), True)
    _, shown = laneway(path, "approvals")
    assert "its arguments were changed" in shown
    assert "needs 2 people; granted by bob" in shown
    code, said = laneway(path, "approve", "ship", "d", "--by", "ann", "--wait", "0.01")
    assert code == 1
    assert "not taken up yet after 0.01 s" in said


def test_a_refusal_that_changes_something_is_refused_itself(path: Path) -> None:
    parked(path)
    (question,) = open_approvals(path)
    said = SentAnswer(
        approval=question.approval, digest=question.digest, granted=False, arguments={"version": 9}
    )
    with_store(path, lambda store: store.send(RUN, said))

    async def host(run: Run) -> None:
        assert len(run.approvals) == 1

    drive(path, host)
    (letter,) = with_store(path, SqliteStore.letters)
    assert letter.refused == "a refusal changes no arguments and grants nothing for later calls"


def test_an_answer_to_what_has_expired_is_refused_where_it_is_given(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parked(path)
    (question,) = open_approvals(path)
    later = question.expires_wall + 1
    monkeypatch.setattr(time, "time", lambda: later)

    code, said = laneway(path, "deny", "ship", "d")

    assert code == 2
    assert "approval t1.1.a1 has expired: nobody answered in time" in said
    assert open_approvals(path)[0].expired
    assert "    expired " in laneway(path, "approvals")[1]


def test_an_answer_given_in_time_counts_though_it_is_taken_up_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parked(path)
    laneway(path, "approve", "ship", "d", "--by", "ann")
    (question,) = open_approvals(path)
    later = question.expires_wall + 60
    monkeypatch.setattr(time, "time", lambda: later)

    assert drive(path, finish).call("d").state is State.SUCCEEDED


# Questions and answers that cannot be


def test_what_cannot_be_meant_is_refused_where_it_is_given(path: Path) -> None:
    parked(path)

    for words, told in (
        (["approve", "nobody", "d"], "no run 'nobody'"),
        (["approve", "ship", "x"], "no open approval 'x' (open: t1.1.a1)"),
        (["approve", "ship", "d", "--for", "ever"], "--for ever: say --for run"),
        (["approve", "ship", "d", "--arguments", "{"], "--arguments {: this is no JSON"),
        (["approve", "ship", "d", "--pattern", "[]"], "--pattern []: give an object"),
        (["approvals", "nobody"], "no run 'nobody'"),
    ):
        code, said = laneway(path, *words)
        assert code == 2, words
        assert told in said, words
    assert list(with_store(path, SqliteStore.letters)) == []
    answer = SentAnswer(approval=ApprovalId("t1.1.a1"), digest="", granted=True)
    with pytest.raises(UnknownRunError):
        with_store(path, lambda store: store.send(RunId("nobody"), answer))


def test_a_question_that_is_over_is_told_what_happened(path: Path) -> None:
    parked(path)
    laneway(path, "deny", "ship", "d", "--by", "ann", "--reason", "no")
    drive(path, finish)

    code, said = laneway(path, "approve", "ship", "d")

    assert code == 2
    assert "it was refused by ann (no), and call t1.1 is DENIED" in said


def test_a_damaged_run_hides_no_question_of_another(path: Path) -> None:
    parked(path)

    async def other() -> None:
        async with Engine([look], journal=path) as engine, engine.run("old") as run:
            await run.submit({"calls": [{"id": "l", "tool": "look", "arguments": {}}]})

    asyncio.run(other())
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(
            "UPDATE facts SET wall = wall + 1 WHERE place = (SELECT id << 32 | 2 FROM runs "
            "WHERE name = 'old')"
        )

    assert [one.run for one in open_approvals(path)] == ["ship"]
    assert laneway(path, "approvals", "old")[0] == 2


def test_the_inbox_of_a_run_goes_with_it(path: Path) -> None:
    parked(path)
    laneway(path, "approve", "ship", "d", "--by", "ann")

    assert remove(path, [RUN]) == 1
    parked(path)

    assert list(with_store(path, SqliteStore.letters)) == []
    assert len(open_approvals(path)) == 1


def test_a_line_of_the_inbox_that_cannot_be_read_is_named(path: Path) -> None:
    parked(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("INSERT INTO inbox (run, sent, body) VALUES (1, 0, '{}')")

    with pytest.raises(JournalError, match=r"line 1 of the table inbox, to run 'ship', cannot be"):
        with_store(path, SqliteStore.letters)

    async def host(run: Run) -> int:
        return len(run.approvals)

    assert drive(path, host) == 1


def test_a_store_without_an_inbox_has_no_letters() -> None:
    async def main() -> None:
        store = PassingStore(MemoryStore())
        assert inbox_of(MemoryStore()) is None
        assert inbox_of(store) is None
        assert await store.letters() == ()
        assert await letters(MemoryStore(), RUN) == []
        await store.taken(1)
        store.when_sent(print)
        with pytest.raises(JournalError, match="has no inbox"):
            await store.send(RUN, SentAnswer(approval=ApprovalId("x"), digest="", granted=True))

    asyncio.run(main())


# Somebody drives the run


def test_a_driver_takes_an_answer_up_while_it_waits(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "LOOK_SECONDS", 0.01)

    async def host(run: Run) -> Any:
        turn = await run.submit(PLAN, wait=False)
        (question,) = await run.asked()
        elsewhere = SqliteStore(path)
        await elsewhere.open()
        for digest in ("stale", question.digest):
            said = SentAnswer(approval=question.id, digest=digest, granted=True, by="ann")
            await elsewhere.send(RUN, said)
        await turn.wait()
        left = await elsewhere.letters(RUN)
        await elsewhere.close()
        return turn, left

    turn, left = drive(path, host)

    assert turn.call("d").rule == "approved by ann"
    (refused,) = left
    assert "is about something else than was answered" in refused.refused


LAUNCH = {"calls": [{"id": "d", "tool": "launch", "arguments": {"version": 1}}]}


def beside(path: Path, plan: Any, act: Callable[[Run], Awaitable[T]]) -> T:
    """Drive a run with an open question, and do something meanwhile."""

    async def host(run: Run) -> T:
        turn = await run.submit(plan, wait=False)
        await run.asked()
        found = await act(run)
        await turn.close()
        return found

    return drive(path, host)


def test_whoever_answers_waits_for_what_becomes_of_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "LOOK_SECONDS", 0.01)

    async def act(_: Run) -> list[tuple[int, str]]:
        answers = [
            ("--by", "ann"),
            ("--by", "ann"),
            ("--by", "bob", "--arguments", "{}"),
            ("--by", "bob", "--reason", "go"),
        ]
        return [
            await asyncio.to_thread(
                laneway, path, "approve", "ship", "d", *words, "--wait", str(HANG_SECONDS)
            )
            for words in answers
        ]

    first, twice, unfit, last = beside(path, LAUNCH, act)

    assert first == (0, "✓ answer 1 to ship t1.1.a1: taken up; 1 more must grant it\n")
    assert twice[0] == 1
    assert "refused: ann has granted approval t1.1.a1 already" in twice[1]
    assert unfit[0] == 1
    assert "cannot be used" in unfit[1]
    assert last[0] == 0
    assert "taken up; call t1.1 is " in last[1]


def test_an_answer_whose_run_was_removed_is_refused(path: Path) -> None:
    parked(path)
    (question,) = open_approvals(path)
    answer = SentAnswer(approval=question.approval, digest="", granted=True)
    sent = send(path, "ship", "d", answer)
    remove(path, [RUN])

    assert became(path, sent, 0).why == "the run was removed"


def test_a_question_of_a_call_within_a_call_is_answered_through_the_run_at_the_top(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "LOOK_SECONDS", 0.01)
    plan = {"calls": [{"id": "o", "tool": "outer", "arguments": {}}]}

    async def act(run: Run) -> tuple[int, str]:
        (question,) = run.approvals
        return await asyncio.to_thread(
            laneway, path, "approve", "ship", question.id, "--wait", str(HANG_SECONDS)
        )

    code, said = beside(path, plan, act)

    assert code == 0
    assert "to ship/t1.1/1 t1.1.a1: taken up" in said


def test_ids_of_the_provider_that_mean_two_questions_mean_none(path: Path) -> None:
    calls = [
        {"id": "p", "tool": "plan", "arguments": {"calls": [PLAN["calls"][0]]}},
        {"id": "q", "tool": "plan", "arguments": {"calls": [PLAN["calls"][0]]}},
    ]
    parked(path, {"calls": calls})

    assert [one.name for one in open_approvals(path)] == ["p/d", "q/d"]
    assert laneway(path, "deny", "ship", "d")[0] == 2
    assert laneway(path, "deny", "ship", "p/d", "--by", "ann")[0] == 0
    assert laneway(path, "deny", "ship", "t1.3/1")[0] == 2
    assert laneway(path, "deny", "ship", "t1.4")[0] == 2


def test_who_answers_may_have_no_name(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError("uid")

    monkeypatch.setattr(getpass, "getuser", nobody)
    parked(path)

    assert laneway(path, "deny", "ship", "d")[0] == 0
    assert laneway(path, "approvals")[1].splitlines()[-1] == (
        "    answered, not taken up yet: refused"
    )
    assert with_store(path, SqliteStore.letters)[0].answer.by == ""


def test_who_is_at_the_terminal_is_asked_once_where_somebody_else_must_say_so_too(
    path: Path,
) -> None:
    asked: list[Any] = []

    async def ask(call: CallView) -> Answer:
        assert call.approval is not None
        asked.append(call.approval.arguments)
        return Answer(granted=True, by="ann")

    async def host(run: Run) -> Turn:
        turn = await run.submit(LAUNCH, wait=False)
        news = asyncio.Event()
        async with answered(run, news, ask):
            for _ in range(3):
                news.set()
                await asyncio.sleep(0)
            while not run.approvals[0].counted:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0)
            news.set()
            await run.approve("d", by="bob")
            await turn.wait()
        return turn

    turn = drive(path, host)

    assert asked == [{"version": 1}]
    assert turn.call("d").rule == "approved by ann and bob"


# How letters are taken up


def test_letters_of_a_run_that_is_being_left_stay_for_the_next_driver(path: Path) -> None:
    parked(path)
    laneway(path, "approve", "ship", "d", "--by", "ann")

    class Late(PassingStore):
        """Tells of the letters only when the run is being left."""

        scheduler: Any = None

        async def letters(self, run: RunId | None = None, /) -> Sequence[Letter]:
            found = await super().letters(run)
            if self.scheduler is None:
                return ()
            self.scheduler.leaving = True
            return found

    store = Late(SqliteStore(path))

    async def host(run: Run) -> int:
        store.scheduler = run._scheduler
        assert store.scheduler is not None
        await take_up(store.scheduler)
        store.scheduler.leaving = False
        store.scheduler = None
        return len(run.approvals)

    assert drive(path, host, journal=store) == 1
    assert len(with_store(path, SqliteStore.letters)) == 1


def test_an_engine_that_closes_takes_up_nothing_more(path: Path) -> None:
    parked(path)

    class Slow(PassingStore):
        begun: asyncio.Event

        async def letters(self, run: RunId | None = None, /) -> Sequence[Letter]:
            if not self.begun.is_set():
                return ()
            await asyncio.Event().wait()
            raise AssertionError(run)

    store = Slow(SqliteStore(path))

    async def main() -> None:
        store.begun = asyncio.Event()
        async with Engine([deploy, look], journal=store) as engine, engine.run(RUN):
            store.begun.set()
            engine._letters._sent(RunId("another"))
            engine._letters._sent(RUN)
            engine._letters._sent(RUN)
            assert len(engine._letters._taking) == 1
            await asyncio.sleep(0)
        assert engine._letters._taking == {}

    asyncio.run(main())


DRIVER = """
import asyncio, os, sys
from laneway import Effect, Engine, tool

@tool(effect=Effect.EXTERNAL, approval=True, claims=["write db:ships"])
async def deploy(version: int) -> str:
    print(f"deploying {version}", flush=True)
    return f"deployed {version}"

@tool(effect=Effect.READ, claims=["read db:ships"])
async def look() -> str:
    print("looking", flush=True)
    return "seen"

@tool(effect=Effect.READ, claims=[])
async def other() -> str:
    print("beside", flush=True)
    return "done"

PLAN = {"calls": [
    {"id": "d", "tool": "deploy", "arguments": {"version": 1}},
    {"id": "l", "tool": "look", "arguments": {}},
    {"id": "o", "tool": "other", "arguments": {}},
]}

async def main(path):
    async with Engine([deploy, look, other], journal=path) as engine, engine.run("ship") as run:
        turn = run.open_turn or await run.submit(PLAN, wait=False)
        going = asyncio.create_task(turn.wait())
        async for question in run.questions():
            print("asked", question.id, flush=True)
        await going
        print("told", turn.messages[1]["results"][0].get("note"), flush=True)

asyncio.run(main(sys.argv[1]))
"""


def driver(path: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-P", "-c", textwrap.dedent(DRIVER), str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )


def command(path: Path, *words: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "laneway.engine.cli", *words, "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=12 * HANG_SECONDS,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "LANEWAY_JOURNAL": str(path)},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def lines_until(process: "subprocess.Popen[str]", last: str) -> list[str]:
    assert process.stdout is not None
    found: list[str] = []
    for line in process.stdout:
        found.append(line.strip())
        if line.startswith(last):
            return found
    raise AssertionError(f"{last!r} was not said, but {found}: {process.communicate()[1]}")


def facts_of(path: Path) -> list[Any]:
    return [row.fact for row in with_store(path, lambda store: store.read(RUN))]


@pytest.mark.timeout(24 * HANG_SECONDS)
def test_one_process_waits_and_another_approves_with_other_arguments(path: Path) -> None:
    with driver(path) as waits:
        before = lines_until(waits, "asked")
        (question,) = command(path, "approvals")

        became = command(
            path,
            *("approve", "ship", question["approval"], "--by", "ann"),
            *("--arguments", '{"version": 2}', "--wait", str(10 * HANG_SECONDS)),
        )
        after = lines_until(waits, "told")

    assert sorted(before) == ["asked t1.1.a1", "beside"]
    assert question["arguments"] == {"version": 1}
    assert question["unblocks"] == ["t1.2"]
    assert became["standing"] == "counted"
    note = 'A human changed the arguments of this call to: {"version":2}'
    assert after == ["deploying 2", "looking", f"told {note}"]
    assert waits.returncode == 0
    (fact,) = [one for one in facts_of(path) if isinstance(one, ApprovalAnswered)]
    assert (fact.by, fact.sent) == ("ann", became["number"])


@pytest.mark.timeout(24 * HANG_SECONDS)
def test_the_waiting_process_is_killed_and_the_next_goes_on_with_the_answer(path: Path) -> None:
    with driver(path) as waits:
        lines_until(waits, "asked")
        (before,) = command(path, "approvals")
        waits.send_signal(signal.SIGKILL)
        waits.wait()

    (question,) = command(path, "approvals")
    assert question == before
    sent = command(path, "approve", "ship", "d", "--by", "ann", "--arguments", '{"version": 3}')
    assert sent["standing"] == "waits"
    with driver(path) as goes_on:
        after = lines_until(goes_on, "told")

    assert after[:2] == ["deploying 3", "looking"]
    assert goes_on.returncode == 0
    assert command(path, "approvals") == []
    assert len([one for one in facts_of(path) if isinstance(one, ApprovalAnswered)]) == 1


@pytest.mark.timeout(24 * HANG_SECONDS)
def test_h_crash_2_a_question_survives_a_restart_and_its_old_id_counts(path: Path) -> None:
    """Listed after the crash with the same id and arguments, and answered by that id."""
    with driver(path) as waits:
        lines_until(waits, "asked")
        (before,) = command(path, "approvals")
        waits.send_signal(signal.SIGKILL)
        waits.wait()
    with driver(path) as again:
        assert lines_until(again, "asked")[-1] == f"asked {before['approval']}"
        (question,) = command(path, "approvals")

        command(path, "approve", "ship", before["approval"], "--wait", str(10 * HANG_SECONDS))
        after = lines_until(again, "told")

    assert (question["approval"], question["arguments"]) == (before["approval"], {"version": 1})
    assert after == ["deploying 1", "looking", "told None"]
