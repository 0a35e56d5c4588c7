"""The parts of the command line: stores around stores, progress, trees, words."""

import asyncio
import io
import os
import pty
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from laneway import Effect, Engine, Limits, State, Tool, tool
from laneway.calls import CallRecord
from laneway.engine.cli.answering import Answer, Asking, answered, whom_to_ask
from laneway.engine.cli.progress import Progress
from laneway.engine.cli.shown import ShownRun, show_run, workspace_of
from laneway.engine.cli.stores import CrashingStore, ObservedStore, PassingStore
from laneway.engine.cli.terminal import Terminal, program
from laneway.engine.cli.tree import shortened, tree_lines
from laneway.engine.cli.wording import brief, call_text, outcome_text, said_in, seconds_text
from laneway.engine.run import Run
from laneway.facts import (
    CallQueued,
    CallStarted,
    Driver,
    MessageSaid,
    Row,
    RunOpened,
    RunTaken,
    TurnSubmitted,
)
from laneway.ids import CallId, RunId
from laneway.journal.fold import CallView
from laneway.journal.memory import MemoryStore
from laneway.journal.store import JournalStore
from laneway.outcomes import Code, Failure, Success
from laneway.testing.journal_contract import JournalStoreContract

RUN = RunId("r")


@tool(effect=Effect.PURE)
async def add(a: int, b: int) -> int:
    return a + b


@tool(effect=Effect.EXTERNAL, approval=True)
async def send(to: str) -> str:
    return f"sent to {to}"


@tool(effect=Effect.WRITE, claims=["write file:{path}"])
async def edit(path: str) -> str:
    return f"edited {path}"


@tool(effect=Effect.WRITE, retries=1, idempotent=True)
async def shaky() -> str:
    raise ConnectionResetError("gone")


@tool(effect=Effect.WRITE, timeout=0.01)
async def stubborn() -> str:
    while True:
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            continue
        return "at last"


def told_of(
    host: Callable[[Run], Coroutine[Any, Any, Any]],
    *tools: Tool,
    store: JournalStore | None = None,
    limits: Limits | None = None,
) -> tuple[list[str], ShownRun]:
    """What a run tells while a host drives it, and how it is shown afterwards."""
    lines: list[str] = []
    kept = store or MemoryStore()

    async def main() -> Sequence[Row]:
        progress = Progress(lines.append, folder="/w")
        observed = ObservedStore(kept, taken=progress.taken, kept=progress.kept)
        engine = Engine(tools, journal=observed, workspace="/", limits=limits)
        async with engine, engine.run("r") as run:
            await host(run)
            await asyncio.sleep(0.1 if limits else 0)
            return await observed.read(RUN)

    return lines, show_run("r", asyncio.run(main()))


def plan(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"calls": list(calls)}


# Progress


def test_conflicts_are_told_with_what_they_are_over() -> None:
    calls = [{"tool": "edit", "arguments": {"path": path}} for path in ("/w/a", "/w/a", "/w/b")]

    lines, _ = told_of(lambda run: run.submit(plan(*calls)), edit)

    assert "  · t1.2 edit /w/a  waits for t1.1: both touch file:a" in lines
    assert "  ▶ t1.3 edit /w/b  holds file:b exclusive" in lines


def test_a_call_that_waits_for_its_lane_is_told() -> None:
    calls = [{"tool": "send_one", "arguments": {}} for _ in range(2)]

    @tool(effect=Effect.EXTERNAL, claims=["lane:mail"])
    async def send_one() -> str:
        return "sent"

    lines, _ = told_of(lambda run: run.submit(plan(*calls)), send_one)

    assert lines[2:4] == [
        "  ▶ t1.1 send_one  holds lane:mail",
        "  · t1.2 send_one  waits for lane:mail",
    ]
    assert "  ▶ t1.2 send_one  holds lane:mail" in lines


def test_questions_and_answers_are_told() -> None:
    async def host(run: Run) -> None:
        calls = [{"id": name, "tool": "send", "arguments": {"to": name}} for name in ("a", "b")]
        await run.submit(plan(*calls), wait=False)
        await run.approve("a", by="ann")
        await run.deny("b", reason="not now")
        await run.finish()

    lines, _ = told_of(host, send)

    assert "  ? t1.1 send a  waits for a human (tool asks)" in lines
    assert "  ? t1.1 send a  approved by ann" in lines
    assert "  ? t1.2 send b  refused" in lines
    assert any(line.startswith("  ✗ t1.2 send b  DENIED –  APPROVAL_REJECTED: ") for line in lines)


def test_another_attempt_is_told_with_its_cause() -> None:
    limits = Limits(back_off_seconds=0.001)

    lines, shown = told_of(lambda run: run.submit(plan({"tool": "shaky"})), shaky, limits=limits)

    assert "  ↻ t1.1 shaky  will run again: ConnectionResetError: gone" in lines
    assert "  ▶ t1.1 shaky  attempt 2, holds lane:tool/shaky" in lines
    assert shown.turns[0].calls[0].attempts == 2


def test_a_body_that_does_not_stop_is_told_and_so_is_its_end() -> None:
    limits = Limits(grace_seconds=0.01)

    lines, shown = told_of(
        lambda run: run.submit(plan({"tool": "stubborn"})), stubborn, limits=limits
    )

    assert "  · t1.1 stubborn  has stopped at last; its lanes are free" in lines
    assert shown.turns[0].calls[0].stuck is False


def test_what_the_host_and_the_model_say_is_told_once() -> None:
    async def host(run: Run) -> None:
        await run.say("What is 1 + 2?")
        use = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1, "b": 2}}
        text = {"type": "text", "text": "I'll  add\nthem."}
        await run.submit({"role": "assistant", "content": [text, use]})
        await run.submit({"role": "assistant", "content": "It is 3."})

    lines, _ = told_of(host, add)

    assert lines == [
        "run r",
        "turn 1, 1 call: I'll add them.",
        "  ▶ t1.1 add 1  holds no lane",
        lines[3],
        "turn 2, no calls: It is 3.",
    ]
    assert lines[3].startswith("  ✓ t1.1 add 1  ")


def test_a_settled_call_is_told_and_shown() -> None:
    @tool(effect=Effect.EXTERNAL)
    async def lost() -> str:
        raise ConnectionResetError("gone")

    async def host(run: Run) -> None:
        turn = await run.submit(plan({"id": "x", "tool": "lost"}), wait=False)
        await turn.wait()
        await run.settle("x", value="it arrived", by="ann")
        await run.finish()

    lines, shown = told_of(host, lost)

    assert "  ? t1.1 lost  settled: it arrived" in lines
    assert "         settled later: it arrived" in list(tree_lines(shown))
    assert shown.succeeded


# Answers

SEND = plan({"id": "mail", "tool": "send", "arguments": {"to": "me"}})


def answered_by(ask: Asking) -> State:
    """What becomes of a call that asks."""

    async def main() -> State:
        news = asyncio.Event()
        store = ObservedStore(
            MemoryStore(), taken=lambda _run, _rows: None, kept=lambda _: news.set()
        )
        async with (
            Engine([send], journal=store) as engine,
            engine.run("r") as run,
            answered(run, news, ask),
        ):
            turn = await run.submit(SEND)
            return turn.calls[0].state

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("typed", "state"),
    [(b"y\n", State.SUCCEEDED), (b" YES \n", State.SUCCEEDED), (b"n\n", State.DENIED)],
)
def test_a_line_at_the_terminal_answers(
    typed: bytes,
    state: State,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ours, theirs = pty.openpty()
    try:
        os.write(ours, typed)
        with os.fdopen(theirs, "r", closefd=False) as terminal:
            monkeypatch.setattr(sys, "stdin", terminal)

            assert answered_by(whom_to_ask(yes=False)) is state
    finally:
        os.close(ours)
        os.close(theirs)

    assert capsys.readouterr().err == 'May t1.1 run?  send {"to": "me"}  [y/N] '


def test_who_has_no_name_may_answer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr("getpass.getuser", nameless)

    assert answered_by(whom_to_ask(yes=True)) is State.SUCCEEDED


def test_a_question_that_is_gone_when_its_answer_comes_is_let_go() -> None:
    async def late(call: CallView) -> Answer:
        await runs[0].cancel("mail")
        return Answer(granted=True, by="ann")

    runs: list[Run] = []

    async def main() -> State:
        news = asyncio.Event()
        store = ObservedStore(
            MemoryStore(), taken=lambda _run, _rows: None, kept=lambda _: news.set()
        )
        async with Engine([send], journal=store) as engine, engine.run("r") as run:
            runs.append(run)
            async with answered(run, news, late):
                return (await run.submit(SEND)).calls[0].state

    assert asyncio.run(main()) is State.CANCELLED


def test_a_fault_of_who_answers_is_not_hidden() -> None:
    async def broken(call: CallView) -> Answer:
        raise OSError("the terminal is gone")

    async def main() -> None:
        news = asyncio.Event()
        async with Engine([send]) as engine, engine.run("r") as run:
            async with answered(run, news, broken):
                await run.submit(SEND, wait=False)
                news.set()
                await asyncio.sleep(0.01)
            await run.cancel()

    with pytest.raises(OSError, match="the terminal is gone"):
        asyncio.run(main())


# Runs as they are shown


def rows(*facts: Any, boots: Sequence[str] = ("b", "b"), mono: Sequence[float] = ()) -> list[Row]:
    return [
        Row(RUN, seq, 1000.0 + 10 * seq, mono[seq - 1] if mono else float(seq), fact)
        for seq, fact in enumerate(facts, 1)
    ]


def driver(boot: str) -> Driver:
    return Driver(host="h", boot=boot, pid=7, started="1")


def resumed(first: str, second: str, mono: Sequence[float]) -> ShownRun:
    call = CallRecord(id=CallId("t1.1"), provider_id="a", tool="add")
    facts = (
        RunOpened(run=RUN, driver=driver(first), settings={"workspace": "/w"}),
        TurnSubmitted(turn=1, provider="plan", message={}, calls=(call,)),
        RunTaken(driver=driver(second)),
    )
    queued = CallQueued(call=call.id, rule="default")
    started = CallStarted(call=call.id, attempt=1, token=1)
    return show_run("r", rows(*facts, queued, started, mono=mono))


def test_times_within_one_boot_are_monotonic() -> None:
    run = resumed("b", "b", (1, 2, 3, 4, 5.5))

    assert run.turns[0].calls[0].waited_seconds == 3.5
    assert run.turns[0].calls[0].took_seconds is None
    assert run.drivers == 2


@pytest.mark.parametrize(("first", "second"), [("b", "c"), ("", "")])
def test_times_across_boots_are_those_of_the_wall(first: str, second: str) -> None:
    assert resumed(first, second, (900, 901, 1, 2, 3)).turns[0].calls[0].waited_seconds == 30


def test_an_open_run_says_so() -> None:
    run = resumed("b", "b", ())

    assert list(tree_lines(run)) == [
        "run r  OPEN  (1 calls, 5 facts, 2 processes)",
        "└─ turn 1  1 call  OPEN",
        "   └─ ▶ t1.1 add  RUNNING  waited 3.00 s  took –",
    ]
    assert (run.finished, run.succeeded) == (False, False)
    assert workspace_of(run) == "/w"


def test_a_stuck_body_is_shown() -> None:
    limits = Limits(grace_seconds=0.01)
    seen: list[ShownRun] = []

    async def host(run: Run) -> None:
        turn = await run.submit(plan({"tool": "stubborn"}))
        assert turn.calls[0].stuck
        seen.append(show_run("r", await store.read(RUN)))

    store = MemoryStore()
    told_of(host, stubborn, store=store, limits=limits)

    assert "         its body has not stopped: it still holds its lanes" in list(
        tree_lines(seen[0])
    )


# Words


def test_values_are_brief() -> None:
    assert brief("a\n  b") == "a b"
    assert brief("x" * 100) == "x" * 59 + "…"
    assert brief({"a": "ü"}) == '{"a": "ü"}'


def test_a_call_is_named_by_its_first_argument() -> None:
    assert call_text("add", {"a": 1, "b": 2}) == "add 1"
    assert call_text("add", {}) == "add"
    assert call_text("add", None) == "add"


def test_outcomes_are_told_in_a_few_words() -> None:
    assert outcome_text(Success(value=[1])) == "[1]"
    assert outcome_text(Failure(code=Code.TIMEOUT, message="too long")) == "TIMEOUT: too long"


def test_times_are_told_in_three_digits() -> None:
    assert [seconds_text(one) for one in (None, 0.0, 0.00123456, 0.5, 12.345)] == [
        "–",
        "0 ms",
        "1.23 ms",
        "500 ms",
        "12.35 s",
    ]


def test_what_a_model_said_is_found_in_any_form() -> None:
    assert said_in({"content": "yes"}) == "yes"
    assert said_in({"content": [{"type": "text", "text": "a"}, {"type": "x"}]}) == "a"
    assert said_in({"content": None, "tool_calls": []}) == ""


def test_resources_are_shortened_to_their_folder() -> None:
    assert shortened("file:/w/a.py", "/w") == "file:a.py"
    assert shortened("lane:shell//w", "/w/") == "lane:shell/."
    assert shortened("file:/w", "") == "file:/w"


# The terminal


def test_lines_are_plain_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal()

    terminal.say("  ✓ " + "x" * 200)
    terminal.give({"not": "shown"})

    assert capsys.readouterr().out == "  ✓ " + "x" * 200 + "\n"


def test_signs_are_coloured_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")

    Terminal().say("  ✓ done")

    assert capsys.readouterr().out == "  \x1b[32m✓\x1b[0m done\n"


def test_a_document_stands_alone(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal(json=True)

    terminal.say("nothing")
    terminal.give({"a": [1]})
    terminal.note("beside it")

    shown = capsys.readouterr()
    assert shown.out == '{\n  "a": [\n    1\n  ]\n}\n'
    assert shown.err == "beside it\n"


def test_what_the_output_cannot_show_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    output = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", output)

    Terminal().say("  ✓ done")

    assert output.buffer.getvalue() == b"  ? done\n"


def test_nobody_reading_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    receiving, sending = os.pipe()
    os.close(receiving)
    with os.fdopen(sending, "w", encoding="utf-8") as output:
        monkeypatch.setattr(sys, "stdout", output)
        terminal = Terminal()

        terminal.say("one")
        terminal.say("two")

        monkeypatch.undo()


@pytest.mark.parametrize(
    ("called", "found", "told"),
    [
        ("/b/laneway", "/b/laneway", "laneway"),
        ("/b/laneway", None, "/b/laneway"),
        (".venv/bin/laneway", "/b/laneway", ".venv/bin/laneway"),
        ("/x/__main__.py", None, f"{sys.executable} -m laneway.engine.cli"),
    ],
)
def test_the_command_is_named_as_it_was_called(
    called: str, found: str | None, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [called])
    monkeypatch.setattr("shutil.which", lambda _: found)

    assert program() == told


# Stores around stores


class TestPassingStore(JournalStoreContract):
    """What stands in front of a store keeps its contract."""

    def make_store(self, place: Any = None) -> JournalStore:
        return PassingStore(MemoryStore())


class Killed(BaseException):
    """Stands in for the end of the process."""


@pytest.mark.parametrize(("before", "kept"), [(True, 1), (False, 2)])
def test_a_crashing_store_dies_around_the_commit_it_is_told(
    before: bool, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def kill(pid: int, number: int) -> None:
        assert (pid, number) == (os.getpid(), signal.SIGKILL)
        assert said == ["last words"]
        raise Killed

    monkeypatch.setattr(os, "kill", kill)
    store = CrashingStore(
        MemoryStore(), at=2, before=before, last_words=lambda: said.append("last words")
    )

    async def main() -> int:
        await store.open()
        await store.take(RUN, driver("b"))
        await store.commit([Row(RUN, 1, 0.0, 0.0, MessageSaid(message="a"))])
        with pytest.raises(Killed):
            await store.commit([Row(RUN, 2, 0.0, 0.0, MessageSaid(message="b"))])
        return len(await store.read(RUN))

    assert asyncio.run(main()) == kept


def test_a_crashing_store_that_is_told_nothing_keeps_everything() -> None:
    store = CrashingStore(MemoryStore(), at=0)

    async def main() -> None:
        async with Engine([add], journal=store) as engine, engine.run("r") as run:
            await run.submit(plan({"tool": "add", "arguments": {"a": 1, "b": 1}}))

    asyncio.run(main())

    assert store.commits > 1
