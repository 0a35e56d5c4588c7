"""Five edits of one file in one turn, on a real MCP server: with lanes none is lost.

The server is the Model Context Protocol's own for files, in the version that servers/package.json
pins; `make servers` installs it. Its `edit_file` reads the file, changes the text and writes it
back, and other requests are served in between: of edits that are in flight together the last to
write wins, and each is answered with success and a diff of what it thinks it did. So the loss is
the server's own. The tests send what a model asks for in one message, and nothing else.
"""

import asyncio
import json
import shutil
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

from laneway import (
    UNLIMITED,
    Budgets,
    Effect,
    Engine,
    Happened,
    Run,
    Success,
    Tool,
    ToolFailed,
    Turn,
    tool,
)
from laneway.testing.theatre import values

T = TypeVar("T")

SERVERS = Path(__file__).resolve().parent / "servers"
PACKAGE = "@modelcontextprotocol/server-filesystem"
INSTALLED = SERVERS / "node_modules" / PACKAGE
PROTOCOL = "2025-06-18"

TURNS = 200
LINES = tuple(f"line {number}" for number in range(5))
BEFORE = "".join(f"{line}: to do\n" for line in LINES)
AFTER = BEFORE.replace("to do", "done")


def missing() -> str:
    """What these tests need and do not find, or nothing."""
    if shutil.which("node") is None:
        return "there is no Node.js here; with it, `make servers` installs the MCP server"
    pinned = json.loads((SERVERS / "package.json").read_text())["dependencies"][PACKAGE]
    manifest = INSTALLED / "package.json"
    if not manifest.is_file():
        return f"{PACKAGE} {pinned} is not installed; `make servers` does it"
    if (found := json.loads(manifest.read_text())["version"]) != pinned:
        return f"{PACKAGE} {found} is installed, not {pinned}; `make servers` does it"
    return ""


MISSING = missing()

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)


def test_all_five_edits_of_one_file_survive_two_hundred_times_out_of_two_hundred(
    tmp_path: Path,
) -> None:
    race = raced(tmp_path, lanes=True)

    print(f"with lanes: {race}")
    assert race.texts == [AFTER] * TURNS
    assert race.most_in_flight == 1


def test_the_same_edits_without_lanes_are_answered_with_success_and_mostly_lost(
    tmp_path: Path,
) -> None:
    race = raced(tmp_path, lanes=False)

    print(f"without lanes: {race}")
    assert race.turns_with_a_loss > TURNS / 2
    assert sum(race.survivors) < len(LINES) * TURNS / 2
    assert race.most_in_flight == len(LINES)


def test_reads_of_other_files_overlap_an_edit_and_a_read_of_its_file_waits_for_it(
    tmp_path: Path,
) -> None:
    edited, *others = (str(tmp_path / f"{name}.txt") for name in "abcde")
    for path in (edited, *others):
        Path(path).write_text(BEFORE)
    asked = [edit(edited, LINES[0])] + [("read_text_file", {"path": path}) for path in others]

    async def host(server: FileServer, run: Run) -> Turn:
        turn = await run.submit(answer(1, *asked, ("read_text_file", {"path": edited})))
        assert server.most_in_flight == len(asked)
        return turn

    # The edit gets no answer before the other reads are in flight beside it, so they must be.
    turn, sent = served(tmp_path, host, keep_back_until=len(asked))

    read_back = values(turn)[f"call_{len(asked)}"]
    assert read_back == BEFORE.replace(f"{LINES[0]}: to do", f"{LINES[0]}: done")
    assert sorted(one.path for one in sent[: len(asked)]) == [edited, *others]
    assert [one.path for one in sent[len(asked) :]] == [edited]
    assert edited not in sent[-1].beside


# The race


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """What became of five edits in each of many turns."""

    texts: list[str]
    """Of the file of each turn, when its turn was over."""
    most_in_flight: int

    @property
    def survivors(self) -> list[int]:
        """How many edits of each turn are in its file."""
        return [sum(f"{line}: done\n" in text for line in LINES) for text in self.texts]

    @property
    def turns_with_a_loss(self) -> int:
        return sum(number < len(LINES) for number in self.survivors)

    def __str__(self) -> str:
        mean = sum(self.survivors) / len(self.texts)
        whole = len(self.texts) - self.turns_with_a_loss
        return (
            f"{mean:.2f} of {len(LINES)} edits survive on average, all of them in {whole} of "
            f"{len(self.texts)} turns; {self.most_in_flight} in flight at most"
        )


def raced(folder: Path, *, lanes: bool) -> Race:
    """Submit the five edits, one turn a file; each must be answered with success."""
    files = [folder / f"{number}.txt" for number in range(TURNS)]
    for file in files:
        file.write_text(BEFORE)

    async def host(server: FileServer, run: Run) -> int:
        for number, file in enumerate(files):
            edits = [edit(str(file), line) for line in LINES]
            turn = await run.submit(answer(number, *edits))
            assert [type(one) for one in turn.outcomes.values()] == [Success] * len(edits)
        return server.most_in_flight

    most, _ = served(folder, host, lanes=lanes)
    return Race(texts=[file.read_text() for file in files], most_in_flight=most)


Asked = tuple[str, dict[str, str]]


def edit(path: str, line: str) -> Asked:
    return "edit_file", {"path": path, "old": f"{line}: to do", "new": f"{line}: done"}


def answer(number: int, *asked: Asked) -> dict[str, Any]:
    """Write calls as a model does."""
    blocks = [
        {"type": "tool_use", "id": f"call_{place}", "name": name, "input": given}
        for place, (name, given) in enumerate(asked)
    ]
    return {
        "id": f"msg_{number}",
        "role": "assistant",
        "stop_reason": "tool_use",
        "content": blocks,
    }


def file_tools(server: "FileServer", *, lanes: bool) -> list[Tool[..., Any]]:
    """Offer two of the server's tools to a model; without lanes they declare that they are free."""

    @tool(effect=Effect.WRITE, claims=["write file:{path}"] if lanes else [])
    async def edit_file(path: str, old: str, new: str) -> str:
        """Replace a text in a file."""
        return await server.call("edit_file", path, edits=[{"oldText": old, "newText": new}])

    @tool(effect=Effect.READ, claims=["read file:{path}"] if lanes else [])
    async def read_text_file(path: str) -> str:
        """Read a text file."""
        return await server.call("read_text_file", path)

    return [edit_file, read_text_file]


def served(
    folder: Path,
    host: Callable[["FileServer", Run], Awaitable[T]],
    *,
    lanes: bool = True,
    keep_back_until: int = 1,
) -> tuple[T, list["Sent"]]:
    """Let a host work with a server for the folder; gives what it returns, and what was sent."""

    async def main() -> tuple[T, list[Sent]]:
        async with file_server(folder, keep_back_until) as server:
            tools, lifted = file_tools(server, lanes=lanes), Budgets(model_turns=UNLIMITED)
            engine = Engine(tools, workspace=folder, budgets=lifted)
            async with engine, engine.run("race") as run:
                done = await host(server, run)
        assert server.exit_code == 0, "the server did not end by itself"
        return done, server.sent

    return asyncio.run(asyncio.wait_for(main(), 100))


# The client


class Sent(NamedTuple):
    """A call that was sent to the server."""

    path: str
    beside: tuple[str, ...]
    """The files of the calls that were in flight then."""


class FileServer:
    """A minimal client: JSON-RPC 2.0, one message a line; answers are told apart by their ids."""

    def __init__(self, process: Process, keep_back_until: int) -> None:
        """Speak with a process.

        Args:
            process: with pipes for input and output.
            keep_back_until: answers are kept back until so many calls have been in flight at once.
        """
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._input, self._output = process.stdin, process.stdout
        self._keep_back_until = keep_back_until
        self._enough = asyncio.Event()
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._in_flight: list[str] = []
        self._requests = 0
        self._reading = asyncio.create_task(self._read())
        self.sent: list[Sent] = []

    @property
    def most_in_flight(self) -> int:
        """How many calls have been in flight at once."""
        return max(len(one.beside) + 1 for one in self.sent)

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.returncode

    async def initialize(self) -> None:
        """Shake hands."""
        client = {"name": "laneway-tests", "version": "1"}
        await self._request(
            "initialize", protocolVersion=PROTOCOL, capabilities={}, clientInfo=client
        )
        self._send(method="notifications/initialized")

    async def call(self, name: str, path: str, **arguments: Any) -> str:
        """Call a tool on a file.

        Raises:
            ToolFailed: the server says that the call failed.
        """
        self.sent.append(Sent(path, tuple(self._in_flight)))
        self._in_flight.append(path)
        if len(self._in_flight) >= self._keep_back_until:
            self._enough.set()
        try:
            result = await self._request(
                "tools/call", name=name, arguments={"path": path, **arguments}
            )
            await self._enough.wait()
        finally:
            self._in_flight.remove(path)
        text = "".join(part["text"] for part in result["content"])
        if result.get("isError"):
            raise ToolFailed(text, happened=Happened.UNKNOWN)
        return text

    async def _request(self, method: str, **params: Any) -> dict[str, Any]:
        if self._reading.done():
            raise ConnectionError("the server has ended")
        self._requests += 1
        waiting = self._answers[self._requests] = asyncio.get_running_loop().create_future()
        self._send(id=self._requests, method=method, params=params)
        message = await waiting
        if "error" in message:
            raise ConnectionError(f"{method}: {message['error']}")
        result: dict[str, Any] = message["result"]
        return result

    def _send(self, **message: Any) -> None:
        self._input.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def _read(self) -> None:
        try:
            async for line in self._output:
                message = json.loads(line)
                waiting = None if "method" in message else self._answers.pop(message["id"], None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(message)
        finally:
            for waiting in self._answers.values():
                if not waiting.done():
                    waiting.set_exception(ConnectionError("the server ended without an answer"))

    async def close(self) -> None:
        """End its input, on which it ends by itself; one that stays is killed."""
        self._input.close()
        try:
            async with asyncio.timeout(10):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
        await self._process.wait()
        await self._reading


@asynccontextmanager
async def file_server(folder: Path, keep_back_until: int) -> AsyncGenerator[FileServer, None]:
    """Start the server for a folder, and see it end."""
    entry = INSTALLED / "dist" / "index.js"
    process = await asyncio.create_subprocess_exec(
        "node", str(entry), str(folder), stdin=PIPE, stdout=PIPE
    )
    server = FileServer(process, keep_back_until)
    try:
        await server.initialize()
        yield server
    finally:
        await server.close()
