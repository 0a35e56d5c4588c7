"""One life: forked, played, ended; and a case: life after life, the last two to their end.

A life is forked from a process that has imported everything and has no loop, no thread and no
connection; it inherits the tools and takes nothing else along.
"""

import asyncio
import gc
import importlib
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn
from zlib import crc32

import msgspec

from laneway import Engine, Limits, State, Tool
from laneway.engine.run import Run
from tests.deaths.casting import PEN, cast
from tests.deaths.dying import DyingFile, die
from tests.deaths.evidence import Life, Result
from tests.deaths.programs import LANES, RUN, Call, Case, Death, case_of, everything

MOST_SECONDS = 30.0
"""A life that takes longer hangs."""


class Double(msgspec.Struct, frozen=True, kw_only=True):
    """What is played: the real thing, or something with a fault built in."""

    store: Callable[..., DyingFile] = DyingFile
    tools: Sequence[Tool[..., Any]] = msgspec.field(default_factory=cast)
    lanes: Mapping[str, int] = msgspec.field(default_factory=lambda: {"mail": LANES["mail"]})
    patch: Callable[[], None] = lambda: None
    """Called in each life, before it begins."""
    asked: Callable[[Sequence[Call]], dict[str, Any]] = lambda calls: {
        "calls": [call.asked() for call in calls]
    }


def play_case(case: Case, folder: Path, double: Double) -> list[Life]:
    """Let a case die as often as it is to, and then live to its end, twice."""
    lives: list[Life] = []
    for death in (*case.deaths, None, None):
        lives.append(one_life(case, folder, len(lives), death, double))
        if not lives[-1].clean:
            break
    return lives


def one_life(case: Case, folder: Path, number: int, death: Death | None, double: Double) -> Life:
    """Fork a life, and wait for its end."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reading)
        _live(case, folder, number, death, double, writing)
    os.close(writing)
    began = time.monotonic()
    told = b""
    killed = hung = False
    due = began + (death.ms / 1000 if death and death.kind == "time" else MOST_SECONDS)
    while True:
        ready, _, _ = select.select([reading], [], [], max(due - time.monotonic(), 0))
        if not ready:
            os.kill(pid, signal.SIGKILL)
            killed, hung = True, not (death and death.kind == "time")
            due = time.monotonic() + MOST_SECONDS
            continue
        some = os.read(reading, 1 << 16)
        if not some:
            break
        told += some
    os.close(reading)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return Life(
        pid=pid,
        ended=time.monotonic(),
        died=status == -signal.SIGKILL,
        meant=death is not None and (killed or death.kind != "time"),
        hung=hung,
        status=status,
        result=msgspec.json.decode(told, type=Result) if told and status == 0 else None,
        said=told.decode(errors="replace") if status > 0 else "",
    )


def _live(
    case: Case, folder: Path, number: int, death: Death | None, double: Double, out: int
) -> NoReturn:
    code = 1
    gc.disable()  # A life is short, and what it touches is copied.
    try:
        double.patch()
        PEN.open(folder / "log", dies_at=death.at if death and death.kind == "body" else 0)
        PEN.write(["life", number])
        store = double.store(
            folder / "runs.db", death=death, picture=folder / f"kept.{number}.json"
        )
        told = msgspec.json.encode(asyncio.run(_play(case, store, death, double)))
        if death is None:
            asyncio.run(_last_picture(folder, number))
        code = 0
    except BaseException:  # noqa: BLE001 - a life must not go on as a second campaign
        told = traceback.format_exc().encode()
    try:
        while told:
            told = told[os.write(out, told) :]
    finally:
        os._exit(code)


async def _last_picture(folder: Path, number: int) -> None:
    store = DyingFile(folder / "runs.db", death=None, picture=folder / f"left.{number}.json")
    await store.open()
    await store.close()


async def _play(case: Case, store: DyingFile, death: Death | None, double: Double) -> Result:
    engine = Engine(
        double.tools,
        journal=store,
        lanes=double.lanes,
        limits=Limits(back_off_seconds=0.001),
    )
    async with engine, engine.run(RUN) as run:
        human = asyncio.create_task(_answer(case, run, mute=bool(death and death.kind == "mute")))
        try:
            await _host(case, run, double)
        finally:
            human.cancel()
            await asyncio.wait([human])
        if not human.cancelled():
            human.result()
        while engine.status().stuck:  # noqa: ASYNC110 - a thread that has timed out tells nobody
            await asyncio.sleep(0.002)
        return Result(
            outcomes={call.id: (call.state, call.outcome) for call in run.view.calls.values()},
            history=crc32(msgspec.json.encode(run.history())),
        )


async def _host(case: Case, run: Run, double: Double) -> None:
    """The host's loop: finish what a crash left, then go on with the program."""
    if not run.view.conversation:
        await run.say("do it")
    await _find_out(case, run)
    await run.finish()
    for number, calls in enumerate(case.turns, 1):
        turn = await run.submit(double.asked(calls), key=f"turn {number}")
        assert turn.messages


async def _find_out(case: Case, run: Run) -> None:
    """After a death, a human finds out what came of some calls."""
    known = {call.label for call in case.calls() if call.settle}
    turn = run.open_turn
    for call in turn.calls if turn is not None else ():
        label = call.record.provider_id
        if call.state is State.UNCERTAIN and label in known:
            PEN.write(["settle", str(call.id)])
            await run.settle(call.id, value="found out", by="ann")


async def _answer(case: Case, run: Run, *, mute: bool) -> None:
    """A human who is asked."""
    grants = {call.label: call.grant for turn in case.turns for call in everything(turn)}
    while True:
        for question in run.approvals:
            if mute:
                await asyncio.sleep(0.003)
                die()
            label = question.arguments["id"]
            word = "yes" if grants[label] else "no"
            PEN.write([word, label])
            await (run.approve if grants[label] else run.deny)(question.id, by="ann")
            PEN.write([f"told {word}", label])
        await asyncio.sleep(0.002)


def warm_up(folder: Path, double: Double) -> None:
    """Import whatever a life imports, so that no life has to."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reading)
        try:
            PEN.open(folder / "log")
            store = double.store(folder / "runs.db", death=None, picture=folder / "kept")
            asyncio.run(_play(case_of(0), store, None, double))
            os.write(writing, "\n".join(sys.modules).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as names:
        needed = names.read().split()
    os.waitpid(pid, 0)
    for name in needed:
        if name not in sys.modules and not name.startswith("__"):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
