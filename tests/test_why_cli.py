"""`laneway why` and `laneway export` at the terminal, on journals that engines wrote."""

import asyncio
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from laneway import Effect, Engine, tool
from laneway.engine.cli.app import app
from laneway.engine.cli.commands import export as export_command
from laneway.engine.cli.commands import why as why_command
from laneway.errors import DamagedJournalError
from laneway.ids import RunId
from laneway.journal.export.jsonl import read_lines
from laneway.journal.sqlite import SqliteStore
from laneway.states import State

SRC = Path(__file__).resolve().parent.parent / "src"
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")},
    "PYTHONPATH": str(SRC),
}


@tool(effect=Effect.PURE)
async def add(a: int, b: int) -> int:
    return a + b


@tool(effect=Effect.EXTERNAL, claims=["lane:mail"])
async def mail(to: str) -> str:
    await SENT[-1].wait()
    return f"sent to {to}"


@tool(effect=Effect.EXTERNAL, claims=[], approval=True)
async def send(to: str) -> str:
    return to


SENT: list[asyncio.Event] = []
"""The last one lets mail go; an event belongs to its loop."""


def call(name: str, tool_name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": name, "tool": tool_name, "arguments": arguments}


async def until(happened: Callable[[], bool]) -> None:
    while not happened():  # noqa: ASYNC110 - a state of a call sets no event
        await asyncio.sleep(0)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A file with a run `sum`, of nasty names, and `one` and `two`, which share a lane."""
    path = tmp_path / "runs.db"

    async def main() -> None:
        SENT.append(asyncio.Event())
        async with Engine([add, mail], journal=SqliteStore(path)) as engine:
            async with engine.run("sum") as run:
                nasty = "x\n\x1b[31m✓ fake"
                await run.submit(
                    {"calls": [call(nasty, "add", a=1, b=2), call("b", "add", a=1, b=[])]}
                )
            async with engine.run("one") as one, engine.run("two") as two:
                first = await one.submit({"calls": [call("a", "mail", to="x")]}, wait=False)
                await until(lambda: first.calls[0].state is State.RUNNING)
                second = await two.submit({"calls": [call("b", "mail", to="y")]}, wait=False)
                await until(lambda: second.calls[0].state is State.QUEUED)
                SENT[-1].set()
                await first.wait()
                await second.wait()

    asyncio.run(main())
    return path


def laneway(journal: Path, *arguments: str) -> Result:
    result = CliRunner().invoke(app, [*arguments, "--journal", str(journal)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_why_of_a_call_is_said_in_words_and_given_as_data(journal: Path) -> None:
    said = laneway(journal, "why", "sum", "t1.1")
    given = laneway(journal, "why", "sum", "t1.1", "--json")

    assert said.exit_code == given.exit_code == 0
    assert "why: rule default let it pass" in said.stdout
    assert "SUCCEEDED: 3" in said.stdout
    document = json.loads(given.stdout)
    assert (document["call"], document["decision"]) == ("t1.1", "allow")
    assert document["outcome"] == {"outcome": "success", "value": 3}


def test_no_name_of_a_model_makes_a_line_of_its_own_or_steers_the_terminal(journal: Path) -> None:
    for arguments in (("why", "sum", "t1.1"), ("why", "sum")):
        said = laneway(journal, *arguments).stdout

        assert "\x1b" not in said
        assert not any(line.startswith(("✓ fake", "\\x1b")) for line in said.splitlines())
    assert r"x\n\x1b[31m✓ fake" in laneway(journal, "why", "sum", "t1.1").stdout


def test_why_of_a_call_names_the_holder_in_another_run_of_the_file(journal: Path) -> None:
    said = laneway(journal, "why", "two", "b").stdout

    assert re.search(r"one/t1\.1 mail held exclusive lane:mail for \S+ m?s of it", said)
    document = json.loads(laneway(journal, "why", "two", "b", "--json").stdout)
    queued = next(one for one in document["waits"] if one["state"] == "QUEUED")
    assert [one["call"] for one in queued["holders"]] == ["one/t1.1"]


def test_why_of_a_run_says_where_it_stands_and_that_nobody_drives_it(journal: Path) -> None:
    said = laneway(journal, "why", "sum").stdout
    document = json.loads(laneway(journal, "why", "sum", "--json").stdout)

    assert "driver: nobody drives it now" in said
    assert "INVALID_ARGUMENTS, its arguments did not fit the tool" in said
    assert document["driven"] == {"driver": None, "told": "nobody drives it now", "alive": False}
    assert document["spent"]["calls"] == 2


def test_a_driver_is_told_as_alive_or_gone(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"

    async def main() -> str:
        async with Engine([send], journal=SqliteStore(path)) as engine, engine.run("r") as run:
            await run.submit({"calls": [call("a", "send", to="x")]}, wait=False)
            await until(lambda: bool(run.approvals))
            return (await asyncio.to_thread(laneway, path, "why", "r")).stdout

    alive = asyncio.run(main())

    assert "turn 1 is open and waits for 1 call" in alive
    assert f"driver: this very process {os.getpid()} on host" in alive
    assert "t1.1.a1: t1.1 send" in alive
    assert "not answered after" in alive


DIES = """
import asyncio, os, sys
from laneway import Effect, Engine, tool

@tool(effect=Effect.EXTERNAL, claims=["lane:bank"])
async def pay() -> str:
    os.kill(os.getpid(), 9)

async def main():
    async with Engine([pay], journal=sys.argv[1]) as engine, engine.run("r") as run:
        await run.submit({"calls": [{"id": "a", "tool": "pay", "arguments": {}}]})

asyncio.run(main())
"""


def test_a_run_whose_driver_died_says_how_to_go_on(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    command = [sys.executable, "-c", DIES, str(path)]
    subprocess.run(command, env=ENVIRONMENT, check=False, timeout=60)

    said = laneway(path, "why", "r").stdout

    assert ", which is gone" in said
    assert "go on with: laneway resume r" in said
    assert "▶ t1.1 pay {}  RUNNING" in said


def test_a_run_that_is_left_running_is_looked_at_as_a_holder_too(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    command = [sys.executable, "-c", DIES, str(path)]
    subprocess.run(command, env=ENVIRONMENT, check=False, timeout=60)

    async def later() -> None:
        async with Engine([mail], journal=SqliteStore(path)) as engine, engine.run("s") as run:
            SENT.append(asyncio.Event())
            SENT[-1].set()
            await run.submit({"calls": [call("a", "mail", to="x")]})

    asyncio.run(later())
    document = json.loads(laneway(path, "why", "s", "a", "--json").stdout)

    assert document["state"] == "SUCCEEDED"
    assert not any(one["holders"] for one in document["waits"]), "another process's lanes"


def test_damage_in_another_run_hides_no_answer(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(*_: object) -> Any:
        raise DamagedJournalError("other", 3, "it is missing")

    monkeypatch.setattr(why_command, "leased_runs", damaged)

    assert laneway(journal, "why", "two", "b").exit_code == 0
    assert (
        "cannot be told: run 'other', fact 3: it is missing"
        in laneway(journal, "why", "two").stdout
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("why", "nope"), "the journal has no run 'nope'"),
        (("why", "sum", "t9.9"), "run 'sum' has no call 't9.9' (`laneway show` lists them)"),
        (("export", "nope"), "the journal has no run 'nope'"),
        (
            ("export", "sum", "--format", "mermaid", "--turn", "7"),
            "run 'sum' has no turn 7: it has 1",
        ),
        (("export", "sum", "--turn", "1"), "--turn narrows a Mermaid graph"),
        (
            ("export", "sum", "-o", "no/such/x"),
            "no/such/x cannot be written: No such file",
        ),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(
    journal: Path, arguments: tuple[str, ...], told: str
) -> None:
    result = laneway(journal, *arguments)

    assert result.exit_code == 2
    assert told in result.stderr


def test_each_format_goes_to_standard_output(journal: Path) -> None:
    lines = laneway(journal, "export", "sum").stdout
    graph = laneway(journal, "export", "sum", "--format", "mermaid", "--turn", "1").stdout
    trace = laneway(journal, "export", "sum", "--format", "chrome").stdout
    otel = laneway(journal, "export", "sum", "--format", "otel").stdout

    async def rows() -> Any:
        store = SqliteStore(journal)
        await store.open()
        try:
            return list(await store.read(RunId("sum")))
        finally:
            await store.close()

    assert list(read_lines(lines.splitlines())) == asyncio.run(rows())
    assert graph.startswith("flowchart TD\n")
    assert {one["ph"] for one in json.loads(trace)["traceEvents"]} >= {"M", "X"}
    spans = json.loads(otel)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert [one["name"] for one in spans][:3] == ["invoke_workflow", "turn", "execute_tool add"]


def test_an_export_goes_to_a_file(journal: Path, tmp_path: Path) -> None:
    target = tmp_path / "trace.json"

    result = laneway(journal, "export", "sum", "--format", "chrome", "-o", str(target))

    assert (result.exit_code, result.stdout) == (0, "")
    assert json.loads(target.read_bytes())["otherData"]["run"] == "sum"


def test_an_export_that_nobody_reads_any_more_just_stops(journal: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "laneway.engine.cli",
        "export",
        "sum",
        "--journal",
        str(journal),
    ]
    reader, writer = os.pipe()
    os.close(reader)

    done = subprocess.run(
        command, stdout=writer, stderr=subprocess.PIPE, env=ENVIRONMENT, check=False, timeout=60
    )

    os.close(writer)
    assert done.returncode == 0
    assert done.stderr == b""


class Broken:
    """Standard output that nobody reads any more."""

    def __init__(self, descriptor: int) -> None:
        self.buffer = self
        self.descriptor = descriptor

    def write(self, _: bytes) -> None:
        raise BrokenPipeError

    def fileno(self) -> int:
        return self.descriptor


def test_writing_into_a_pipe_that_broke_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path(os.devnull).open("wb") as sink:
        monkeypatch.setattr(sys, "stdout", Broken(sink.fileno()))

        export_command._to_standard_output([b"x", b"y"])


@pytest.mark.parametrize("command", [("why",), ("why", "-"), ("export",)])
def test_of_a_damaged_run_what_is_whole_is_told(tmp_path: Path, command: tuple[str, ...]) -> None:
    path = tmp_path / "runs.db"
    golden = Path(__file__).parent / "golden"
    shutil.copyfile(golden / "format-2.db", path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE facts SET wall = 0 WHERE place = (1 << 32) + 12")
    name, *call = command

    done = CliRunner().invoke(
        app, [name, "finished", *(["t1.1"] if call else []), "--journal", str(path)]
    )

    assert done.exit_code == 1
    assert "run 'finished', fact 12: its hash does not fit" in done.output
    assert "write_note" in done.output
